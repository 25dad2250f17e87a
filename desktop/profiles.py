"""The profiles of a data folder: separate folders, keys and agents.

Owns which profiles there are, what they are called, how one is made, renamed, deleted and opened. Must not know
what is in one. Standard library only where it is imported: which profile is meant is asked before the first
window is painted. Invariants: a profile's id is the name of its folder and never changes; no two have names that
read the same; whatever ends the program in between, a profile is there or it is not.
"""

import contextlib
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from desktop import host_lock, names, paths
from desktop.paths import PROFILE_ID, ProfilePaths, private_dir, write_private

DEFAULT = "personal"
MOST_PROFILES = 64
PATIENCE_S = 5.0
"""How long another process may be making, renaming or deleting one."""

_ACCEPTS = 0x10000
"""Among the flags of a Unix socket: it listens."""
_NOTE = "removal.json"
_NAME_FILE = "name"
_NAME_FILE_BYTES = 4096


class ProfileRefusedError(ValueError):
    """Something cannot be done with a profile; the text is the sentence for the person."""

    def __init__(self, sentence: str, code: str = "PROFILE_REFUSED") -> None:
        super().__init__(sentence)
        self.code = code


class ProfileEntry(NamedTuple):
    """A profile as it is listed.

    Attributes:
        running: a host has it open.
        current: it is the one of this host.
    """

    profile_id: str
    name: str
    running: bool
    current: bool


def list_profiles(data: Path, current: str = "") -> list[ProfileEntry]:
    """All there are, by name. `current` is the id of the one that asks."""
    found = [
        ProfileEntry(
            name, display_name(ProfilePaths(data, name)), is_running(ProfilePaths(data, name)), name == current
        )
        for name in _ids(data)
    ]
    return sorted(found, key=lambda entry: (names.same(entry.name), entry.profile_id))


def display_name(profile: ProfilePaths) -> str:
    """What the person calls a profile; its id where nothing that can be a name is kept."""
    try:
        # By an opener, for a folder of that name is closed again then.
        with open(profile.root / _NAME_FILE, "rb", opener=_opened) as file:
            return names.checked("a profile", file.read(_NAME_FILE_BYTES).decode().strip())
    except (OSError, ValueError):
        return profile.name


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def is_running(profile: ProfilePaths) -> bool:
    """Whether a host of this profile listens. Its lock is left alone: taking it would look like a host to others."""
    try:
        with open("/proc/net/unix", "rb") as file:
            return any(_listens(line, os.fsencode(profile.control)) for line in file)
    except OSError:
        pass  # another system than Linux: it is knocked at
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(0.5)
        try:
            connection.connect(str(profile.control))
        except OSError:
            return False
    return True


def _listens(line: bytes, path: bytes) -> bool:
    """Whether a line of the kernel's list of Unix sockets is that of one that listens at `path`."""
    parts = line.rstrip(b"\n").split(maxsplit=7)
    return len(parts) == 8 and parts[7] == path and int(parts[3], 16) & _ACCEPTS != 0


def resolve(data: Path, word: str | None) -> ProfilePaths:
    """The profile that a word means, by id or name, ready for use; without a word the usual one.

    Raises:
        ProfileRefusedError: there is none.
        OSError: its folders cannot be made.
    """
    _set_aside_what_is_to_go(data)
    ids = _ids(data)
    if word is None:
        usual = DEFAULT if DEFAULT in ids or not ids else list_profiles(data)[0].profile_id
        return paths.profile(data, usual)
    found = word if word in ids else _named(data, ids, word)
    if found is None and word == DEFAULT:
        found = DEFAULT
    if found is None:
        shown = "".join(character if character.isprintable() else "\ufffd" for character in word[: names.NAME_CHARS])
        raise ProfileRefusedError(
            f"There is no profile called {shown}. See what there is: remuda profiles list. "
            "Make one: remuda profiles add NAME.",
            "PROFILE_UNKNOWN",
        )
    return paths.profile(data, found)


def create(data: Path, name: str) -> ProfilePaths:
    """Make a profile; it is there whole or not at all.

    Raises:
        ProfileRefusedError: it cannot have this name, or there are too many.
        OSError: the disk refuses.
    """
    private_dir(data)
    folder = private_dir(data / "profiles")
    with changing(data):
        entries = list_profiles(data)
        if len(entries) >= MOST_PROFILES:
            raise ProfileRefusedError(f"There are at most {MOST_PROFILES} profiles. Delete one first.")
        name = _checked(entries, name)
        profile_id = names.slug(name, os.listdir(folder), "profile")
        new = folder / f".new-{secrets.token_hex(8)}"
        os.mkdir(new, 0o700)
        try:
            os.chmod(new, 0o700)
            write_private(new / _NAME_FILE, name + "\n")
            os.rename(new, folder / profile_id)
        except OSError:
            with contextlib.suppress(OSError):
                (new / _NAME_FILE).unlink(missing_ok=True)
                new.rmdir()
            raise
        paths.sync_folder(folder)
    return paths.profile(data, profile_id)


def rename(data: Path, word: str, name: str) -> str:
    """Call a profile something else; its folder and id stay. Returns the new name.

    Raises:
        ProfileRefusedError: there is no such profile, or it cannot have this name.
        OSError: the disk refuses.
    """
    existing(data, word)
    with changing(data):
        profile = existing(data, word)
        name = _checked([entry for entry in list_profiles(data) if entry.profile_id != profile.name], name)
        write_private(profile.root / _NAME_FILE, name + "\n")
    return name


async def delete(data: Path, word: str, *, current: str = "", on_slow: Callable[[str], None] | None = None) -> str:
    """Delete a profile with its keys, agents, conversations and settings, for good. Returns its name.

    Args:
        data: the data folder.
        word: id or name.
        current: id of the profile of the host that asks.
        on_slow: told when the key store is slow to answer.

    Raises:
        ProfileRefusedError: there is none, a host has it open, or it is the one that asks.
        AgentRuntimeError: its keys could not be deleted, so it stays; or not all files could be removed.
        OSError: the disk refuses.
    """
    from desktop import removal

    existing(data, word)
    async with changing_beside(data):
        profile = existing(data, word)
        name = display_name(profile)
        if profile.name == current:
            raise ProfileRefusedError(
                f"{name} is the profile you are in. Open another one and delete it from there.", "PROFILE_CURRENT"
            )
        if profile.root.is_symlink():
            raise ProfileRefusedError(f"The folder of {name} is a link to another place, so it is not deleted.")
        lock = host_lock.acquire(profile.lock)
        if lock is None:
            raise ProfileRefusedError(f"{name} is open. Close it first.", "PROFILE_RUNNING")
        try:
            note = await removal.take_stock(profile)
            removal.decide(profile.root, note)
            gone = removal.move_away(profile.root)
            try:
                await removal.delete_keys(note, on_slow)
            except removal.KeysStayError:
                removal.move_back(gone, profile.root)
                removal.withdraw(profile.root)
                raise
            await removal.erase(gone)
        finally:
            lock.release()
    removal.sweep_data_folder(profile)
    return name


async def stays(profile: ProfilePaths) -> tuple[str, ...]:
    """What of a profile that no host has open would stay at services if it were deleted, one sentence each."""
    from desktop import choices
    from desktop.profile_store import open_profile_store
    from runtime_host.errors import AgentRuntimeError

    if not profile.store.exists():
        return ()
    try:
        store = await open_profile_store(profile.store, profile=profile.name)
    except AgentRuntimeError:
        # Damaged, or open after all: it can be deleted, or not, all the same.
        return ("Whether something of it is at a provider cannot be read; that would stay there.",)
    try:
        return choices.at_services(await store.read(lambda tx: tx.count_by_driver()), stays=True)
    finally:
        await store.close()


async def finish_interrupted(data: Path) -> None:
    """End what deletions that were interrupted had begun, unless another process is changing profiles just now."""
    from desktop import removal

    if removal.unfinished(data / "profiles") and (lock := host_lock.acquire(data / "profiles" / ".lock")) is not None:
        try:
            await removal.finish(data / "profiles")
        finally:
            lock.release()


def existing(data: Path, word: str) -> ProfilePaths:
    """The profile of an id or a name; nothing is made.

    Raises:
        ProfileRefusedError: there is none.
    """
    ids = _ids(data)
    found = word if word in ids else _named(data, ids, word)
    if found is None:
        raise ProfileRefusedError(
            "There is no such profile. See what there is: remuda profiles list.", "PROFILE_UNKNOWN"
        )
    return ProfilePaths(data, found)


def open_window(profile: ProfilePaths, environment: dict[str, str] | None = None) -> None:
    """Start a host with a window of this profile. One that has it open raises its window instead.

    Call it on the main thread. What is started outlives this process.

    Raises:
        OSError: it cannot be started.
    """
    from desktop.roles import app_command

    command = [*app_command(), f"--data-dir={profile.data}", f"--profile={profile.name}"]
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    os.posix_spawn(
        command[0], command, dict(os.environ if environment is None else environment), file_actions=nothing, setsid=True
    )


def _ids(data: Path) -> list[str]:
    """Ids of all profiles that are there and are to stay."""
    try:
        entries = list(os.scandir(data / "profiles"))
    except OSError:
        return []
    return sorted(
        entry.name
        for entry in entries
        if PROFILE_ID.fullmatch(entry.name) and entry.is_dir() and not os.path.lexists(os.path.join(entry.path, _NOTE))
    )


def _named(data: Path, ids: list[str], word: str) -> str | None:
    wanted = names.same(word.strip())
    for profile_id in ids:
        if wanted in (names.same(display_name(ProfilePaths(data, profile_id))), names.same(profile_id)):
            return profile_id
    return None


def _checked(others: list[ProfileEntry], name: str) -> str:
    taken = [word for entry in others for word in (entry.name, entry.profile_id)]
    try:
        return names.checked("a profile", name, taken)
    except names.NameRefusedError as refused:
        raise ProfileRefusedError(str(refused), "PROFILE_NAME_REFUSED") from None


def _set_aside_what_is_to_go(data: Path) -> None:
    """A profile whose removal was decided and not ended is no profile any more; its keys and bytes go later."""
    try:
        entries = list(os.scandir(data / "profiles"))
    except OSError:
        return
    for entry in entries:
        if PROFILE_ID.fullmatch(entry.name) and os.path.lexists(os.path.join(entry.path, _NOTE)):
            # Unless the host that is removing it still lives.
            lock = host_lock.acquire(ProfilePaths(data, entry.name).lock)
            if lock is not None:
                try:
                    os.rename(entry.path, os.path.join(data, "profiles", f"{paths.GONE}{secrets.token_hex(8)}"))
                finally:
                    lock.release()


@contextlib.contextmanager
def changing(data: Path) -> Iterator[None]:
    """One process at a time makes, renames or deletes.

    Raises:
        ProfileRefusedError: another one has not ended within `PATIENCE_S`.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (lock := _try(data, deadline)) is None:
        time.sleep(0.02)
    try:
        yield
    finally:
        lock.release()


@contextlib.asynccontextmanager
async def changing_beside(data: Path) -> AsyncIterator[None]:
    """As `changing`, without holding up the event loop."""
    import asyncio

    deadline = time.monotonic() + PATIENCE_S
    while (lock := _try(data, deadline)) is None:  # noqa: ASYNC110 -- a lock of the file system wakes nobody
        await asyncio.sleep(0.02)
    try:
        yield
    finally:
        lock.release()


def _try(data: Path, deadline: float) -> host_lock.HostLock | None:
    lock = host_lock.acquire(data / "profiles" / ".lock")
    if lock is None and time.monotonic() > deadline:
        raise ProfileRefusedError("Another Remuda is changing profiles just now. Try again.", "PROFILE_BUSY")
    return lock


def has_display() -> bool:
    """Whether a window could be opened here."""
    if not sys.platform.startswith("linux"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))
