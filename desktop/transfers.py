"""Files between this computer and a conversation at a service.

Owns the folder that they pass through, the person's file that is read or made, and which kinds are taken. Must not know
windows or the command line, nor how a harness moves anything. Invariants: the person's file is opened once, through no
link, and only if it is one; what passes through is gone again however it ends; nothing of the person's is overwritten.
"""

import contextlib
import errno
import logging
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from desktop import file_names
from desktop.paths import private_dir, remove_tree
from runtime_host.abort import AbortSignal
from runtime_host.definitions import TrustedContext
from runtime_host.errors import AgentTransferError
from runtime_host.loop.own_thread import in_own_thread, to_its_end
from runtime_host.session import Session
from runtime_host.transfer.copy import OnProgress, Transferred
from runtime_host.transfer.grant import MOST_BYTES, TransferOptions
from runtime_host.transfer.media import KNOWN_TYPES, UNKNOWN, guessed, normal
from runtime_host.transfer.root import TransferRoot, partial_of

log = logging.getLogger("remuda.transfers")

TAKEN: Final = (*KNOWN_TYPES, UNKNOWN)
"""What people work with, and what shows no kind at all. Programs show theirs, and are not among them."""
_READ_BYTES: Final = 256 * 1024
_SOURCE: Final = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_PERHAPS_NO_LINKS: Final = frozenset({"TRANSFER_NO_ACCESS", "TRANSFER_IO"})
_KINDS: Final = (
    (stat.S_ISDIR, "TRANSFER_DIRECTORY", "is a folder. Single files are given; pack it first."),
    (stat.S_ISFIFO, "TRANSFER_FIFO", "is a pipe and no file."),
    (stat.S_ISSOCK, "TRANSFER_SOCKET", "is a socket and no file."),
    (stat.S_ISCHR, "TRANSFER_DEVICE", "is a device and no file."),
    (stat.S_ISBLK, "TRANSFER_DEVICE", "is a device and no file."),
)

AtHand = Callable[[str], AbstractAsyncContextManager[Session]]
"""The open session of a conversation, which nobody else asks anything of meanwhile."""


class Given(NamedTuple):
    """A file that a conversation was given. `changed`: what became of its name; "" where nothing did."""

    moved: Transferred
    changed: str


class Made(NamedTuple):
    """A file that a conversation made.

    Attributes:
        name: as it may be shown.
        extension: the true one.
        save_as: a name to save it under.
    """

    reference: str
    name: str
    extension: str
    save_as: str
    media_type: str | None


class Transfers:
    """What a profile moves.

    Args:
        folder: through which files pass; made when there is something to move.
        at_hand: gives the session of a conversation.
    """

    def __init__(self, folder: Path, at_hand: AtHand) -> None:
        self._folder = folder
        self._at_hand = at_hand

    def allow(self, _: TrustedContext) -> TransferOptions:
        """What the runtime may move for this profile."""
        return TransferOptions(root=self._folder, max_bytes=MOST_BYTES, media_types=TAKEN)

    async def sweep(self) -> None:
        """Remove what a program that was killed left in the folder; who calls this holds the profile's lock."""
        await in_own_thread(lambda: _sweep(self._folder), "sweep transfer folder")

    async def upload(
        self,
        conversation_id: str,
        source: Path,
        media_type: str | None = None,
        on_progress: OnProgress | None = None,
        signal: AbortSignal | None = None,
    ) -> Given:
        """Give a conversation a file of the person's.

        Args:
            conversation_id: whose harness gets it.
            source: the file, from the top of the disk on.
            media_type: what it is; else its name and content say.
            on_progress: told how far it is.
            signal: stops it, as in `Session.upload_file`.

        Raises:
            AgentRuntimeError: as `Session.upload_file`, or the file is none that is given.
        """
        content = await in_own_thread(lambda: _read(source), "read file")
        name, changed = file_names.safe(source.name)
        kind = _kind(media_type, name, content)
        async with self._at_hand(conversation_id) as session, self._place() as (folder, place):
            await in_own_thread(lambda: _write(folder / name, content), "write file")
            moved = await session.upload_file(
                path=f"{place}/{name}", media_type=kind, on_progress=on_progress, signal=signal
            )
        return Given(moved, changed)

    async def download(
        self,
        conversation_id: str,
        reference: str,
        to: Path,
        on_progress: OnProgress | None = None,
        signal: AbortSignal | None = None,
    ) -> Transferred:
        """Put a file that a conversation made where the person wants it, in the place of nothing.

        Args:
            conversation_id: whose file it is.
            reference: as `made` gives it.
            to: the new file, from the top of the disk on; its folder is there.
            on_progress: told how far it is.
            signal: stops it.

        Raises:
            AgentRuntimeError: nothing of it is here.
        """
        there = await in_own_thread(lambda: _destination(to), "look at folder")
        async with self._at_hand(conversation_id) as session, self._place() as (folder, place):
            passing = file_names.safe(to.name).name
            moved = await session.download_artifact(
                reference=reference, path=f"{place}/{passing}", on_progress=on_progress, signal=signal
            )
            await to_its_end(lambda: _publish(folder / passing, there, to.name), "write file")
        return moved

    async def made(self, conversation_id: str) -> tuple[Made, ...]:
        """What a conversation made and gives out.

        Raises:
            AgentRuntimeError: its harness keeps nothing, or it could not be asked.
        """
        async with self._at_hand(conversation_id) as session:
            found = await session.artifacts()
        return tuple(
            Made(
                reference=each.reference or "",
                name=file_names.shown(each.name or ""),
                extension=file_names.extension(each.name or ""),
                save_as=file_names.safe(each.name or "").name,
                media_type=each.media_type,
            )
            for each in found
        )

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[tuple[Path, str]]:
        """A folder of one transfer, which is gone afterwards."""
        place = secrets.token_hex(8)
        folder = self._folder / place

        def make() -> None:
            private_dir(self._folder)
            os.mkdir(folder, 0o700)

        try:
            await to_its_end(make, "make folder")
        except OSError as fault:
            raise _refused(fault) from None
        try:
            yield folder, place
        finally:
            await to_its_end(lambda: _remove(folder), "remove folder")


def _kind(said: str | None, name: str, content: bytes) -> str:
    if said:
        if (declared := normal(said)) is not None:
            return declared
        raise AgentTransferError(
            "A kind is written as in text/plain. Leave it out to have the file looked at.", code="TRANSFER_MEDIA_TYPE"
        )
    if (seen := guessed(name, content)) is None:
        raise AgentTransferError(
            f"The content of {file_names.shown(name)} is not what its name says, so it was not sent. Say what it is, "
            "or rename it.",
            code="TRANSFER_MEDIA_TYPE_MISMATCH",
        )
    return seen


def _read(source: Path) -> bytes:
    try:
        file = os.open(source, _SOURCE)
    except OSError as fault:
        raise _refused(fault, source) from None
    try:
        before = os.fstat(file)
        for is_kind, code, words in _KINDS:
            if is_kind(before.st_mode):
                raise AgentTransferError(f"{_shown(source)} {words}", code=code)
        content = bytearray()
        while len(content) <= MOST_BYTES and (piece := os.read(file, _READ_BYTES)):
            content += piece
        after = os.fstat(file)
    except OSError as fault:
        raise _refused(fault, source) from None
    finally:
        os.close(file)
    if len(content) > MOST_BYTES:
        raise AgentTransferError(
            f"{_shown(source)} is larger than the {MOST_BYTES:,} bytes that may be given at once. Nothing was sent.",
            code="TRANSFER_TOO_LARGE",
        )
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or len(content) != after.st_size:
        raise AgentTransferError(
            f"{_shown(source)} was changed while it was read, so it was not sent. Try again.",
            code="TRANSFER_SOURCE_CHANGED",
        )
    return bytes(content)


def _write(path: Path, content: bytes) -> None:
    file = os.open(path, _NEW, 0o600)
    with os.fdopen(file, "wb") as written:
        os.fchmod(file, 0o600)
        written.write(content)


def _destination(to: Path) -> TransferRoot:
    """The folder of a new file, looked at; whoever chose it may have gone through links."""
    try:
        parent = os.path.realpath(to.parent, strict=True)
        seen = os.stat(parent)
    except OSError as fault:
        if fault.errno in (errno.ENOENT, errno.ENOTDIR):
            raise AgentTransferError(
                f"The folder {_shown(to.parent)} is not there. Make it first.", code="TRANSFER_PARENT_MISSING"
            ) from None
        raise _refused(fault, to.parent) from None
    if not stat.S_ISDIR(seen.st_mode):
        raise AgentTransferError(f"{_shown(to.parent)} is no folder.", code="TRANSFER_PARENT_NOT_FOLDER")
    root = TransferRoot(parent, (seen.st_dev, seen.st_ino))
    root.check_free(to.name)
    return root


def _publish(passing: Path, there: TransferRoot, name: str) -> None:
    content = passing.read_bytes()
    arrival = there.create(name, partial_of(name))
    try:
        arrival.write(content)
        arrival.publish()
        arrival.keep()
        return
    except AgentTransferError as refused:
        if refused.error_code not in _PERHAPS_NO_LINKS:
            raise
    finally:
        arrival.discard()
    # The file systems of memory sticks cannot give a file its name only once it is whole.
    with there.folder(()) as folder:
        _write_at(folder, name, content)


def _write_at(folder: int, name: str, content: bytes) -> None:
    try:
        file = os.open(name, _NEW, 0o600, dir_fd=folder)
    except OSError as fault:
        raise _refused(fault) from None
    try:
        with os.fdopen(file, "wb") as written:
            written.write(content)
            written.flush()
            os.fsync(file)
    except OSError as fault:
        os.unlink(name, dir_fd=folder)
        raise _refused(fault) from None


def _remove(folder: Path) -> None:
    remove_tree(folder, on_fault=lambda path, fault: log.warning("%s stays: %s", path, type(fault).__name__))
    with contextlib.suppress(OSError):
        # Not while something else passes through.
        os.rmdir(folder.parent)


def _sweep(folder: Path) -> None:
    if not os.path.lexists(folder):
        return
    if folder.is_symlink():
        log.warning("the transfer folder is a link, and is not used")
        return
    remove_tree(folder, on_fault=lambda path, fault: log.warning("%s stays: %s", path, type(fault).__name__))


def _refused(fault: OSError, path: Path | None = None) -> AgentTransferError:
    what = "The file" if path is None else _shown(path)
    if fault.errno == errno.ELOOP:
        return AgentTransferError(
            f"{what} is a link, which is not followed. Name the file itself.", code="TRANSFER_SYMLINK"
        )
    if fault.errno in (errno.ENOENT, errno.ENOTDIR):
        return AgentTransferError(f"{what} is not there.", code="TRANSFER_NOT_FOUND")
    if fault.errno == errno.ENXIO:
        return AgentTransferError(f"{what} is a socket and no file.", code="TRANSFER_SOCKET")
    if fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return AgentTransferError("There is no room left on the disk.", code="TRANSFER_DISK_FULL")
    if fault.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AgentTransferError(f"{what} may not be read or made by you.", code="TRANSFER_NO_ACCESS")
    return AgentTransferError(f"{what} could not be moved ({fault.strerror}).", code="TRANSFER_IO")


def _shown(path: Path) -> str:
    return file_names.shown(str(path), 160)
