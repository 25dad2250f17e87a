"""Everything of a profile in one file that other programs can read.

Owns what is in it, how it is laid out, and that it is there whole or not at all. Must not know windows or the
command line. Invariants: no key and no name of an entry in the key store is in it; a file that was there is
never overwritten; what was not finished leaves nothing behind.
"""

import asyncio
import contextlib
import functools
import itertools
import json
import os
import re
import secrets
import stat
import time
import unicodedata
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

from desktop import transcripts
from desktop.agents import record_row
from desktop.build import BUILD
from desktop.paths import sync_folder
from desktop.profile_store import AgentRecord, ConversationRecord, ProfileTx
from runtime_host.errors import AgentRuntimeError, StorageDamagedError, StorageError
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.storage.base import AgentTx, ImageUse, ItemRecord

if TYPE_CHECKING:
    from desktop.app import Host

T = TypeVar("T")

FORMAT = 1
PIECE_CHARS = 1024 * 1024
"""How much text is gathered before it is written."""
COPY_BYTES = 1024 * 1024
_NO_NAMES_OWN = frozenset('\\:*?"<>|')
NOT_TOLD = ("picture_word", "profile_uuid")
"""Settings that stay: what marks the trusted dialogs, and what names entries of the key store."""

Progress = Callable[[int, int, str], None]
"""Told (done, of, sentence) while it goes on."""

_README = """This is what Remuda kept of one profile.

conversations/   each as .json (everything) and as .md (to read), with its pictures
agents/          each as .json: name, description, instructions, model, what it may touch, tools
files/           files that replies brought, by agent
settings.json    settings
connectors.json  servers and their models; no keys
drafts.json      what was typed and not sent
models.toml      what you declared of models, if you did

Keys are not in this file. They are in the key store of the computer it was made on.
"""


class Exported(NamedTuple):
    """What was written."""

    path: Path
    size_bytes: int
    conversations: int


class ExportRefusedError(AgentRuntimeError):
    """Nothing was written; the message says why."""

    code = "EXPORT_FAILED"


async def export_all(host: "Host", destination: Path, progress: Progress = lambda done, of, sentence: None) -> Exported:
    """Write everything but keys to one new .zip that only its owner can read. Cancelling it leaves nothing.

    Raises:
        ExportRefusedError: there is something of that name, it cannot lie there, or the disk refuses.
    """
    destination = await check_destination(host, destination)
    try:
        target = _Target(destination)
        try:
            count = await _write(host, target, progress)
            size_bytes = await _thoroughly(target.publish)
        except asyncio.CancelledError:
            target.withdraw()
            raise
        finally:
            target.discard()
    except OSError as fault:
        raise ExportRefusedError(
            f"The export could not be written: {fault.strerror or fault}. Nothing was left behind."
        ) from fault
    return Exported(destination, size_bytes, count)


async def check_destination(host: "Host", destination: Path) -> Path:
    """Where the file would lie in the end.

    Raises:
        ExportRefusedError: it cannot lie there.
    """
    return await in_own_thread(lambda: _checked(destination, host.paths.data), "look at destination")


def _checked(destination: Path, data: Path) -> Path:
    if not destination.is_absolute():
        raise ExportRefusedError("The file is given with its full path.")
    folder = Path(os.path.realpath(destination.parent))
    if not folder.is_dir():
        raise ExportRefusedError(f"There is no folder {folder}. Nothing was written.")
    if folder.is_relative_to(os.path.realpath(data)):
        raise ExportRefusedError("The file cannot lie in Remuda’s own folder, where it would go with everything else.")
    destination = folder / destination.name
    if os.path.lexists(destination):
        raise ExportRefusedError(f"There is something called {destination.name} already. It was left as it is.")
    return destination


class _Target:
    """The file while it has no name yet; under a name of its own where the file system knows no other way."""

    def __init__(self, destination: Path) -> None:
        self._destination = destination
        self._named: Path | None = None
        self._published = False
        folder = destination.parent
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            self._descriptor = os.open(folder, flags | os.O_TMPFILE, 0o600)
        except (OSError, AttributeError):
            self._named = folder / f".{secrets.token_hex(8)}.part"
            self._descriptor = os.open(self._named, flags | os.O_CREAT | os.O_EXCL, 0o600)
        self.file = os.fdopen(self._descriptor, "w+b")
        os.fchmod(self._descriptor, 0o600)
        self.archive = zipfile.ZipFile(self.file, "w", zipfile.ZIP_DEFLATED, compresslevel=6)

    def publish(self) -> int:
        """Give it its name, unless something else has it by now; returns its size."""
        self.archive.close()
        self.file.flush()
        os.fsync(self._descriptor)
        folder = os.open(self._destination.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            source = self._named or Path(f"/proc/self/fd/{self._descriptor}")
            os.link(
                source, self._destination, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=self._named is None
            )
        finally:
            os.close(folder)
        self._published = True
        size_bytes = os.fstat(self._descriptor).st_size
        self.discard()
        sync_folder(self._destination.parent)
        return size_bytes

    def withdraw(self) -> None:
        """Take the name away again: it was not wanted any more while it was given."""
        if self._published:
            self._destination.unlink()

    def discard(self) -> None:
        """Let go of what has no name, or only one of its own."""
        self.archive.fp = None  # else it would write its end once more when it is collected
        self.file.close()
        if self._named is not None:
            with contextlib.suppress(OSError):
                self._named.unlink()
            self._named = None


async def _write(host: "Host", target: _Target, progress: Progress) -> int:
    archive = target.archive
    for agent in host.agents:
        await _look_at(host, agent)
    said = await host.conversations.whole()
    of = len(said) + 2
    progress(0, of, "Settings, agents and connectors")
    for name, value in await _profile_parts(host):
        await _add(archive, name, _once(json.dumps(value, ensure_ascii=False, indent=2) + "\n"))
    await _add(archive, "README.txt", _once(_README))
    with contextlib.suppress(FileNotFoundError):
        # Behind a link too, as the host reads it.
        models = host.paths.models
        await _thoroughly(lambda: _copy(archive, models, "models.toml", follow=True))
    names = {agent.agent_id: agent.name for agent in host.agents}
    for number, record in enumerate(said):
        progress(number + 1, of, f"Conversation {number + 1} of {len(said)}")
        stem = f"conversations/{_stem(record)}"
        about = _about(record, names.get(record.agent_id, record.agent_id))
        about["pictures"] = await _pictures(archive, host.conversations.pictures(record.conversation_id), stem)
        await _add(archive, f"{stem}.json", _as_json(about, host.conversations.all_items(record.conversation_id)))
        await _add(archive, f"{stem}.md", _as_markdown(about, host.conversations.all_items(record.conversation_id)))
    progress(of - 1, of, "Files")
    folders = [(agent.agent_id, host.paths.agent(agent.agent_id)) for agent in host.agents]
    await _thoroughly(lambda: _copy_files(archive, folders))
    progress(of, of, "Done")
    return len(said)


async def _look_at(host: "Host", agent: AgentRecord) -> None:
    """Open an agent's file. One that is damaged is set aside by the first look, and the next finds what is left.

    Raises:
        ExportRefusedError: it cannot be read.
    """
    if not (await host.agents.count_conversations())[agent.agent_id]:
        return
    store = await host.stores.open(agent.agent_id)
    try:
        try:
            await store.read(_nothing)
        except StorageDamagedError:
            await store.read(_nothing)
    except StorageError as fault:
        raise ExportRefusedError(
            f"What {agent.name} was told cannot be read, so nothing was written. {fault.message}"
        ) from fault


def _nothing(tx: AgentTx) -> None:
    """What a look reads."""


async def _profile_parts(host: "Host") -> list[tuple[str, Any]]:
    settings, drafts = await host.profile.read(_settings_and_drafts)
    connectors = [_without_key(connector.model_dump(mode="json")) for connector in host.connectors]
    agents = list(host.agents)
    manifest = {
        "format": FORMAT,
        "made_by": f"Remuda {BUILD}",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "profile": host.profile_name,
    }
    parts: list[tuple[str, Any]] = [
        ("manifest.json", manifest),
        ("settings.json", settings),
        ("drafts.json", drafts),
        ("connectors.json", connectors),
    ]
    return parts + [(f"agents/{_plain(agent.name)}-{agent.agent_id}.json", record_row(agent)) for agent in agents]


async def _pictures(
    archive: zipfile.ZipFile, pictures: AsyncIterator[tuple[ImageUse, bytes]], stem: str
) -> list[dict[str, Any]]:
    """Write the pictures of a conversation, each once; returns where each message has which."""
    told: list[dict[str, Any]] = []
    written: set[str] = set()
    async for use, data in pictures:
        name = f"{stem}-pictures/{use.digest[:16]}.{use.media_type.rpartition('/')[2]}"
        told.append({"run_id": use.run_id, "position": use.position, "file": name})
        if name not in written:
            written.add(name)
            await _thoroughly(functools.partial(_put_whole, archive, name, data))
    return told


def _put_whole(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, time.localtime()[:6])
    info.external_attr = 0o600 << 16
    archive.writestr(info, data)


def _settings_and_drafts(tx: ProfileTx) -> tuple[dict[str, Any], dict[str, str]]:
    settings = {key: _masked(value) for key, value in tx.settings().items() if key not in NOT_TOLD}
    return settings, tx.drafts()


def _masked(value: Any) -> Any:
    """A setting without the password that an address may carry, and without where a login is kept."""
    if isinstance(value, dict):
        return {key: _masked(member) for key, member in value.items() if key != "secret"}
    if isinstance(value, list):
        return [_masked(member) for member in value]
    if isinstance(value, str) and "://" in value and "@" in value:
        try:
            parts = urlsplit(value)
        except ValueError:
            return ""
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return value


def _without_key(record: dict[str, Any]) -> dict[str, Any]:
    secret = record.pop("secret", None)
    kinds = {"keyring": "in the key store", "env": f"in the environment variable {(secret or {}).get('name')}"}
    return {**record, "key": kinds[secret["kind"]] if secret else None}


def _about(record: ConversationRecord, agent: str) -> dict[str, Any]:
    return {
        "session": record.conversation_id,
        "title": record.title,
        "agent": agent,
        "model": record.choice,
        "pinned": record.pinned,
        "archived": record.archived,
        "created_ms": record.created_ms,
        "updated_ms": record.updated_ms,
        "state": record.state,
    }


def item_row(item: ItemRecord) -> dict[str, Any]:
    """An item without its text. What is known of a thing that was done is told without the native side's ids."""
    about = {name: value for name, value in item.about.items() if name != "call"}
    return {
        "id": item.item_id,
        "run_id": item.run_id,
        "kind": item.kind,
        "state": item.state,
        "created_ms": item.created_ms,
        "code": item.code,
        "detail": item.detail,
        **({"about": about} if about else {}),
    }


async def _as_json(about: dict[str, Any], items: AsyncIterator[ItemRecord]) -> AsyncIterator[str]:
    yield json.dumps(about, ensure_ascii=False, indent=2).rstrip("}").rstrip() + ',\n  "items": ['
    before = "\n    "
    async for item in items:
        yield before + json.dumps({**item_row(item), "text": item.text}, ensure_ascii=False)
        before = ",\n    "
    yield "\n  ]\n}\n"


async def _as_markdown(about: dict[str, Any], items: AsyncIterator[ItemRecord]) -> AsyncIterator[str]:
    yield transcripts.heading(about["title"], about["agent"]) + "\n"
    async for item in items:
        yield "\n" + transcripts.block(item.kind, item.state, item.text, item.about) + "\n"


async def _once(text: str) -> AsyncIterator[str]:
    yield text


async def _add(archive: zipfile.ZipFile, name: str, pieces: AsyncIterator[str]) -> None:
    """One member, written piece by piece away from the event loop."""
    info = zipfile.ZipInfo(name, time.localtime()[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    member = archive.open(info, "w", force_zip64=True)
    try:
        gathered: list[str] = []
        chars = 0
        async for piece in pieces:
            gathered.append(piece)
            chars += len(piece)
            if chars >= PIECE_CHARS:
                await _put(member, gathered)
                gathered, chars = [], 0
        await _put(member, gathered)
    finally:
        member.close()


async def _put(member: Any, pieces: list[str]) -> None:
    await _thoroughly(lambda: member.write("".join(pieces).encode("utf-8", "replace")))


async def _thoroughly(call: Callable[[], T]) -> T:
    """`call()` in a thread. Who is cancelled meanwhile waits for its end: nothing is cleared away below it."""
    task = asyncio.ensure_future(in_own_thread(call, "export"))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _copy(archive: zipfile.ZipFile, path: Path, name: str, *, follow: bool = False) -> None:
    """Write a file into the archive. What is none (a pipe) is left out."""
    descriptor = os.open(path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW) | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return
    info = zipfile.ZipInfo(name, time.localtime()[:6])
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    with os.fdopen(descriptor, "rb") as source, archive.open(info, "w", force_zip64=True) as member:
        while piece := source.read(COPY_BYTES):
            member.write(piece)


def _copy_files(archive: zipfile.ZipFile, folders: list[tuple[str, Path]]) -> None:
    """What replies brought, by agent. Links are left out."""
    for agent_id, folder in folders:
        taken: set[str] = set()
        for path, name in _plain_files(folder / "artifacts"):
            member = _member_name(name, taken)
            taken.add(member)
            _copy(archive, path, f"files/{agent_id}/{member}")


def _member_name(name: str, taken: Set[str]) -> str:
    """A file's name as every system can unpack it, and only to where it belongs: a backslash parts names on some."""
    plain = "".join(each if each.isprintable() and each not in _NO_NAMES_OWN else "_" for each in name)
    if plain not in taken:
        return plain
    stem, ending = os.path.splitext(plain)
    return next(new for number in itertools.count(2) if (new := f"{stem}-{number}{ending}") not in taken)


def _plain_files(root: Path) -> Iterator[tuple[Path, str]]:
    # What is walked is not asked whether it is a link itself.
    if root.is_symlink() or root.parent.is_symlink():
        return
    for folder, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                yield path, path.relative_to(root).as_posix()


def _stem(record: ConversationRecord) -> str:
    day = datetime.fromtimestamp(record.created_ms / 1000, UTC).strftime("%Y-%m-%d")
    return f"{day}-{_plain(record.title)}-{record.conversation_id}"


def _plain(title: str) -> str:
    """A few words of a title as a part of a file name that every system takes."""
    text = unicodedata.normalize("NFKC", title)
    return re.sub(r"\W+", "-", text)[:40].strip("-_") or "untitled"
