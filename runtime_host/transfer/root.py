"""The one folder that a host lets files be moved through, and the names in it.

Owns every look at the disk that a transfer makes. Must not know what is moved, or where to. Invariants: a name leads to
a regular file below the folder or nowhere: each part of the way is opened by itself, from the part before it, and none
of them through a link; nothing that is there is overwritten; a file that comes in has its name only once it is whole
and on the disk; what was begun and not finished goes, as soon as that can be.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from runtime_host.errors import AgentTransferError

_MOST_NAME_BYTES: Final = 255
_MOST_PATH_BYTES: Final = 4096
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_PARTIAL: Final = re.compile(r"\.remuda-[0-9a-f]{16}\.part")
_READ_BYTES: Final = 256 * 1024
_FOLDER: Final = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
_STEP: Final = _FOLDER | getattr(os, "O_PATH", 0)
"""A folder on the way needs to be passed through only, not to be read."""
_LEAF: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_LEAF_WAITS_FOR_NOBODY: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

_SUPPORTED: Final = hasattr(os, "O_NOFOLLOW") and {os.open, os.stat, os.unlink, os.link} <= os.supports_dir_fd

_KINDS: Final = (
    (stat.S_ISLNK, "TRANSFER_SYMLINK", "a link. Links are not followed; give the file itself."),
    (stat.S_ISDIR, "TRANSFER_DIRECTORY", "a folder. Single files are moved; pack it first."),
    (stat.S_ISFIFO, "TRANSFER_FIFO", "a pipe and no file."),
    (stat.S_ISSOCK, "TRANSFER_SOCKET", "a socket and no file."),
    (stat.S_ISCHR, "TRANSFER_DEVICE", "a device and no file."),
    (stat.S_ISBLK, "TRANSFER_DEVICE", "a device and no file."),
)
_ON_DISK: Final = {
    errno.ENOSPC: ("TRANSFER_DISK_FULL", "There is no room left on the disk. Make some, then try again."),
    errno.EDQUOT: ("TRANSFER_DISK_FULL", "There is no room left for you on the disk. Make some, then try again."),
    errno.EFBIG: ("TRANSFER_DISK_FULL", "The disk takes no file of this size."),
    errno.EACCES: ("TRANSFER_NO_ACCESS", "This program may not do that in the transfer folder. See who may."),
    errno.EPERM: ("TRANSFER_NO_ACCESS", "This program may not do that in the transfer folder. See who may."),
    errno.EROFS: ("TRANSFER_NO_ACCESS", "The transfer folder can only be read."),
    errno.EEXIST: ("TRANSFER_EXISTS", "There is something of this name already, and it is not overwritten."),
    errno.ENAMETOOLONG: ("TRANSFER_PATH_INVALID", "The name is too long for this disk."),
}


def is_supported() -> bool:
    """Whether this system can open a file from the folder before it, and not through a link."""
    return _SUPPORTED


def split(path: str) -> tuple[tuple[str, ...], str]:
    """Folders and name of a relative path.

    Raises:
        AgentTransferError: it leads elsewhere, or is none. What it says is not repeated.
    """
    if path.startswith("/") or _DRIVE.match(path) or path.startswith("\\"):
        _refuse("TRANSFER_PATH_ABSOLUTE", "A file is named from the transfer folder on, not from the top of the disk.")
    parts = path.split("/")
    if ".." in parts or ".." in path.split("\\"):
        _refuse("TRANSFER_PATH_TRAVERSAL", "The name leads out of a folder with .., which is not done.")
    try:
        coded = path.encode("utf-8")
    except UnicodeEncodeError:
        coded = b""
    if (
        not coded
        or not path.isprintable()
        or "\\" in path
        or len(coded) > _MOST_PATH_BYTES
        or any(part in ("", ".") or len(part.encode("utf-8")) > _MOST_NAME_BYTES for part in parts)
        or any(_PARTIAL.fullmatch(part) for part in parts)
    ):
        _refuse(
            "TRANSFER_PATH_INVALID", "This is no name of a file in a folder: it is empty, too long or has odd signs."
        )
    return tuple(parts[:-1]), parts[-1]


class TransferRoot:
    """The folder of one transfer.

    Args:
        path: its real path, absolute and without links.
        identity: device and inode that it had when it was looked at.
    """

    def __init__(self, path: str, identity: tuple[int, int]) -> None:
        self._path = path
        self._identity = identity

    def read(self, path: str, max_bytes: int) -> bytes:
        """The whole content of a file.

        Raises:
            AgentTransferError: there is no regular file under this name, it is larger than `max_bytes`, it was changed
                or moved while it was read, or it cannot be read.
        """
        parents, name = split(path)
        with self.folder(parents) as folder, _told("read"):
            seen = _lstat(name, folder)
            if seen is None:
                _refuse("TRANSFER_NOT_FOUND", "There is no such file in the transfer folder.")
            _check_regular(seen)
            # What waits for somebody else when it is opened, a pipe put there since, is not waited for.
            file = os.open(name, _LEAF | _LEAF_WAITS_FOR_NOBODY, dir_fd=folder)
            try:
                before = os.fstat(file)
                # A number of a file may be given to what takes its place, a pipe too.
                if _identity(before) != _identity(seen) or not stat.S_ISREG(before.st_mode):
                    _changed()
                content = _read(file, before.st_size, max_bytes)
                after = os.fstat(file)
            finally:
                os.close(file)
            if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or len(
                content
            ) != after.st_size:
                _changed()
            now = _lstat(name, folder)
            if now is None or _identity(now) != _identity(before):
                _changed()
            self.check_still(parents, folder)
        return content

    def check_free(self, path: str) -> None:
        """Refuse a name that something has already, or that can have nothing.

        Raises:
            AgentTransferError
        """
        parents, name = split(path)
        with self.folder(parents) as folder, _told("looked at"):
            _check_free(name, folder)

    def create(self, path: str, partial: str) -> "Arrival":
        """Begin a file that comes in. `partial`: what `partial_of` gave for it.

        Raises:
            AgentTransferError: something has this name, or nothing can be made there. Nothing is left.
        """
        parents, name = split(path)
        return Arrival(self, parents, name, partial.rpartition("/")[2])

    def remove_partial(self, partial: str) -> None:
        """Remove what a program left that ended while a file came in; nothing where there is nothing.

        Raises:
            AgentTransferError: it could not be.
        """
        above, _, name = partial.rpartition("/")
        if not _PARTIAL.fullmatch(name):
            return
        parents = split(f"{above}/x")[0] if above else ()
        try:
            with self.folder(parents) as folder, _told("removed"):
                seen = _lstat(name, folder)
                if seen is not None and stat.S_ISREG(seen.st_mode):
                    os.unlink(name, dir_fd=folder)
        except AgentTransferError as gone:
            if gone.error_code != "TRANSFER_PARENT_MISSING":
                raise

    @contextmanager
    def folder(self, parents: tuple[str, ...]) -> Iterator[int]:
        """A folder below this one, held open.

        Raises:
            AgentTransferError: a part of the way is missing, a link or no folder.
        """
        held = self.open_folder(parents)
        try:
            yield held
        finally:
            os.close(held)

    def open_folder(self, parents: tuple[str, ...]) -> int:
        """As `folder`; the caller closes it."""
        with _told("opened"):
            at = os.open("/", _STEP)
            try:
                for part in self._path.split("/"):
                    if part:
                        at = _step(at, part, of_root=True)
                if _identity(os.fstat(at)) != self._identity:
                    _refuse("TRANSFER_ROOT_REFUSED", "The transfer folder is another one than a moment ago.")
                for part in parents:
                    at = _step(at, part, of_root=False)
                return os.open(".", _FOLDER, dir_fd=at)
            finally:
                os.close(at)

    def check_still(self, parents: tuple[str, ...], held: int) -> None:
        """Refuse when the way leads to another folder now than to the one that is held open.

        Raises:
            AgentTransferError: code ``TRANSFER_PARENT_CHANGED``.
        """
        try:
            with self.folder(parents) as now:
                same = _identity(os.fstat(now)) == _identity(os.fstat(held))
        except AgentTransferError:
            same = False
        if not same:
            _refuse("TRANSFER_PARENT_CHANGED", "A folder on the way was exchanged meanwhile, so nothing was moved.")


class Arrival:
    """A file that comes in, under a name that nobody asks for until it is whole.

    Raises:
        AgentTransferError: it cannot be begun; nothing is left.
    """

    def __init__(self, root: TransferRoot, parents: tuple[str, ...], name: str, partial: str) -> None:
        self._root = root
        self._parents = parents
        self._name = name
        self._partial = partial
        self._file = -1
        self._identity: tuple[int, int] | None = None
        self._folder = root.open_folder(parents)
        try:
            with _told("made"):
                _check_free(name, self._folder)
                self._file = os.open(partial, _NEW, 0o600, dir_fd=self._folder)
                self._identity = _identity(os.fstat(self._file))
                # Whatever the umask says.
                os.fchmod(self._file, 0o600)
        except BaseException:
            self.discard()
            raise

    def write(self, piece: bytes) -> None:
        """Add to it.

        Raises:
            AgentTransferError: it could not be.
        """
        rest = memoryview(piece)
        with _told("written"):
            while rest:
                rest = rest[os.write(self._file, rest) :]

    def publish(self) -> None:
        """Give it its name: whole, on the disk, and in the place of nothing.

        Raises:
            AgentTransferError: it could not be; `discard` leaves nothing of it.
        """
        with _told("written"):
            os.fsync(self._file)
            self._root.check_still(self._parents, self._folder)
            # Fails where something has the name by now; there is no moment in which something could be overwritten.
            os.link(self._partial, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder, follow_symlinks=False)
            os.unlink(self._partial, dir_fd=self._folder)
            os.fsync(self._folder)
            self._root.check_still(self._parents, self._folder)

    def keep(self) -> None:
        """What was published stays: whoever gave it up before this gave it up whole."""
        self._close()

    def discard(self) -> None:
        """Leave nothing of it, also where it is published. Idempotent; after `keep` it does nothing.

        Raises:
            AgentTransferError: something is left; `TransferRoot.remove_partial` tries again.
        """
        if self._folder < 0:
            return
        try:
            with _told("removed"):
                for name in (self._partial, self._name):
                    seen = _lstat(name, self._folder)
                    if seen is not None and self._is_ours(name, seen):
                        os.unlink(name, dir_fd=self._folder)
        finally:
            self._close()

    def _is_ours(self, name: str, seen: os.stat_result) -> bool:
        """Whether it is this file: of what another has put under its name nothing is touched."""
        if self._identity is None:
            return self._file >= 0 and name == self._partial
        return _identity(seen) == self._identity

    def _close(self) -> None:
        for held in (self._file, self._folder):
            if held >= 0:
                os.close(held)
        self._file = self._folder = -1


def partial_of(path: str) -> str:
    """A name, in the folder of `path`, under which a file comes in until it is whole; another one each time.

    Raises:
        AgentTransferError: `path` is no name.
    """
    parents, _ = split(path)
    return "/".join((*parents, f".remuda-{secrets.token_hex(8)}.part"))


def _step(at: int, part: str, *, of_root: bool) -> int:
    """From a folder into one of it; the one before is closed."""
    try:
        below = os.open(part, _STEP, dir_fd=at)
    except OSError as fault:
        if of_root:
            _refuse("TRANSFER_ROOT_REFUSED", "The transfer folder is not there any more, or leads through a link.")
        seen = _lstat(part, at)
        if seen is not None and stat.S_ISLNK(seen.st_mode):
            _refuse("TRANSFER_SYMLINK", "A folder on the way is a link. Links are not followed.")
        if seen is None:
            _refuse("TRANSFER_PARENT_MISSING", "The folder is not there; it is not made for this. Make it first.")
        if not stat.S_ISDIR(seen.st_mode):
            _refuse("TRANSFER_PARENT_NOT_FOLDER", "What should be a folder on the way is none.")
        _raise(fault, "opened")
    os.close(at)
    return below


def _lstat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _check_free(name: str, folder: int) -> None:
    seen = _lstat(name, folder)
    if seen is None:
        return
    if stat.S_ISLNK(seen.st_mode):
        _refuse("TRANSFER_SYMLINK", "There is a link of this name. Links are not followed; choose another name.")
    _refuse("TRANSFER_EXISTS", "There is something of this name already, and it is not overwritten.")


def _check_regular(seen: os.stat_result) -> None:
    for is_kind, code, words in _KINDS:
        if is_kind(seen.st_mode):
            _refuse(code, f"What has this name is {words}")
    if not stat.S_ISREG(seen.st_mode):
        _refuse("TRANSFER_DEVICE", "What has this name is no file.")


def _read(file: int, size_bytes: int, max_bytes: int) -> bytes:
    # Not before all of it was read: it may be larger than its size says.
    content = bytearray()
    if size_bytes <= max_bytes:
        while (piece := os.read(file, _READ_BYTES)) and len(content) <= max_bytes:
            content += piece
    if size_bytes > max_bytes or len(content) > max_bytes:
        raise too_large(max_bytes)
    return bytes(content)


def _identity(seen: os.stat_result) -> tuple[int, int]:
    return seen.st_dev, seen.st_ino


def too_large(max_bytes: int) -> AgentTransferError:
    """What is said of a file over its bound."""
    return AgentTransferError(
        f"The file is larger than the {max_bytes:,} bytes that may be moved at once. Nothing of it was kept.",
        code="TRANSFER_TOO_LARGE",
        details={"max_bytes": max_bytes},
    )


def _changed() -> NoReturn:
    _refuse("TRANSFER_SOURCE_CHANGED", "The file was changed while it was read, so it was not sent. Try again.")


def _refuse(code: str, sentence: str) -> NoReturn:
    raise AgentTransferError(sentence, code=code)


def _raise(fault: OSError, doing: str) -> NoReturn:
    known = _ON_DISK.get(fault.errno or 0)
    if fault.errno == errno.ELOOP:
        known = "TRANSFER_SYMLINK", "What has this name is a link. Links are not followed."
    if known is None:
        name = errno.errorcode.get(fault.errno or 0, "unknown")
        known = "TRANSFER_IO", f"The file could not be {doing} ({name}). Nothing of it was kept."
    raise AgentTransferError(known[1], code=known[0]) from None


@contextmanager
def _told(doing: str) -> Iterator[None]:
    """A fault of the disk, in words that name no path."""
    try:
        yield
    except OSError as fault:
        _raise(fault, doing)
