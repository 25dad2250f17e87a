"""Taking a profile away with everything: its keys from the key store, its files from the disk.

Owns the note that says a profile is to go, and the work that follows from it. Must not know hosts or windows.
Invariants: the note decides, so a crash leaves the profile as it was or has it removed at the next look; a
profile whose keys cannot be deleted is not taken away; nothing that is not the profile's is touched.
"""

import contextlib
import json
import logging
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from desktop.paths import GONE, ProfilePaths, remove_tree, sync_folder, write_private
from runtime_host.errors import AgentRuntimeError, ConnectorError, StorageDamagedError
from runtime_host.loop.own_thread import in_own_thread

log = logging.getLogger("remuda.profiles")

NOTE = "removal.json"
"""In the root of a profile: it is to go."""
_NOTE_BYTES = 1024 * 1024
_OLD_LOGS = tuple(f"host.log.{number}" for number in (1, 2, 3))


class Note(NamedTuple):
    """What has to be deleted outside the profile's folder: entries of the key store, by the connectors' names."""

    profile_uuid: str
    keys: tuple[str, ...]
    keys_known: bool = True


class KeysStayError(AgentRuntimeError):
    """The key store kept a key, so nothing was removed."""

    code = "KEYS_NOT_REMOVED"


async def take_stock(paths: ProfilePaths) -> Note:
    """What a profile that no host has open keeps in the key store."""
    if not paths.store.exists():
        return Note("", ())
    from desktop.profile_store import open_profile_store

    try:
        store = await open_profile_store(paths.store, profile=paths.name)
    except StorageDamagedError:
        return Note("", (), keys_known=False)
    try:
        uuid, records = await store.read(
            lambda tx: (tx.setting("profile_uuid"), [*tx.connectors(), tx.setting("network"), tx.setting("sealing")])
        )
    finally:
        await store.close()
    return Note(uuid if isinstance(uuid, str) else "", keys_of(records))


def keys_of(records: list[Any]) -> tuple[str, ...]:
    """Names of the entries of the key store that records speak of: of connectors, the network and seals."""
    secret_refs = (record.get("secret") or {} for record in records if isinstance(record, dict))
    return tuple(dict.fromkeys(str(ref["name"]) for ref in secret_refs if ref.get("kind") == "keyring"))


def decide(root: Path, note: Note) -> None:
    """From here on the profile is to go."""
    write_private(root / NOTE, json.dumps(note._asdict()))


def withdraw(root: Path) -> None:
    """It stays after all."""
    (root / NOTE).unlink(missing_ok=True)
    sync_folder(root)


def read_note(root: Path) -> Note | None:
    """The note in a folder; None where there is none that can be read."""
    try:
        with open(root / NOTE, "rb", opener=_opened) as file:
            kept = json.loads(file.read(_NOTE_BYTES))
        return Note(str(kept["profile_uuid"]), tuple(map(str, kept["keys"])), bool(kept["keys_known"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _opened(path: str, flags: int) -> int:
    """Neither through a link nor waiting for a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


async def delete_keys(note: Note, on_slow: Callable[[str], None] | None = None) -> None:
    """Delete the keys of a profile that is to go. `on_slow` is told when the key store is slow to answer.

    Raises:
        KeysStayError: the key store kept one; the sentence says which and why.
    """
    if not note.keys:
        return
    from desktop.credentials import Credentials
    from runtime_host.connectors.base import SecretRef

    credentials = Credentials(note.profile_uuid, on_slow=on_slow)
    try:
        for number, name in enumerate(note.keys):
            try:
                await credentials.delete(SecretRef(kind="keyring", name=name))
            except ConnectorError as fault:
                done = f" {number} of {len(note.keys)} keys were deleted before." if number else ""
                raise KeysStayError(
                    f"The key of {name} could not be deleted, so the profile stays as it is.{done} {fault.message}"
                ) from fault
    finally:
        await credentials.aclose()


def move_away(root: Path) -> Path:
    """Take a profile's folder out of where profiles are looked for; returns where it lies now."""
    gone = root.parent / f"{GONE}{secrets.token_hex(8)}"
    os.rename(root, gone)
    sync_folder(root.parent)
    return gone


def move_back(gone: Path, root: Path) -> None:
    os.rename(gone, root)
    sync_folder(root.parent)


async def erase(folder: Path) -> None:
    """Remove a folder that was moved away, with everything in it. The note goes last.

    Raises:
        AgentRuntimeError: something of it is still there.
    """
    await in_own_thread(lambda: _erase(folder), "remove profile")


def _erase(folder: Path) -> None:
    met: list[str] = []

    if folder.is_symlink() and read_note(folder) is None and os.listdir(folder):
        # Where nothing says that a profile is to go, a link means a folder of somebody else.
        raise AgentRuntimeError(
            f"{folder} is a link to a folder in which nothing says that it is to go. It was left as it is.",
            code="REMOVAL_INCOMPLETE",
        )
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name == NOTE):
        if entry.is_dir(follow_symlinks=False):
            remove_tree(Path(entry.path), lambda path, fault: met.append(f"{path}: {fault}"))
        elif not met:
            try:
                os.unlink(entry.path)
            except OSError as fault:
                met.append(str(fault))
    if not met:
        if folder.is_symlink():
            # Somebody put the profile elsewhere and a link here: both go.
            os.rmdir(os.path.realpath(folder))
            os.unlink(folder)
        else:
            os.rmdir(folder)
        sync_folder(folder.parent)
        return
    raise AgentRuntimeError(
        f"Not everything could be removed: {met[0]}. It is tried again at the next start.", code="REMOVAL_INCOMPLETE"
    )


def unfinished(profiles: Path) -> list[Path]:
    """Folders of profiles that are to go and are still there."""
    try:
        return [profiles / name for name in os.listdir(profiles) if name.startswith((GONE, ".new-"))]
    except OSError:
        return []


async def finish(profiles: Path) -> None:
    """End what removals and creations that were interrupted had begun. What cannot be done now stays for later."""
    for folder in unfinished(profiles):
        note = read_note(folder)
        try:
            if note is not None:
                await delete_keys(note)
            await erase(folder)
        except (AgentRuntimeError, OSError) as fault:
            log.warning("a profile that was deleted is not gone yet: %s", fault)


def sweep_data_folder(paths: ProfilePaths) -> None:
    """What a profile that is gone had elsewhere; after the last one also what lies beside the profiles.

    Folders go only where nothing else is in them.
    """
    profiles = paths.root.parent
    if not paths.control.is_relative_to(paths.root):
        # A host that was killed left its socket.
        with contextlib.suppress(OSError):
            paths.control.unlink()
        with contextlib.suppress(OSError):
            paths.control.parent.rmdir()
    if not paths.transfer.is_symlink():
        with contextlib.suppress(OSError):
            remove_tree(paths.transfer)
    with contextlib.suppress(OSError):
        paths.transfer.parent.rmdir()
    with contextlib.suppress(OSError):
        if any(not name.startswith(".") for name in os.listdir(profiles)):
            return
    if unfinished(profiles):
        return
    # Until profiles had logs of their own there was one beside them.
    old = paths.old_logs
    for file in (paths.models, profiles / ".lock", *(old / name for name in ("host.log", *_OLD_LOGS))):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.lstat(file).st_mode):
                file.unlink()
    for folder in (old, profiles, paths.data):
        with contextlib.suppress(OSError):
            folder.rmdir()
