"""Leases of folders among all programs of a person: one works in a folder, around it and inside it at a time.

Owns a private folder of small files, one for each lease that any process holds. Must not know sessions or runs, and
never writes into the folders that are leased. Invariants: a lease is a kernel lock, so it ends with its process,
however that dies, and never by age; the files are read and added to under one lock, so that of two that ask at the
same time one is refused; what cannot be read while its lock is held counts as taken.
"""

import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from runtime_host.errors import AgentBusyError, AgentWorkspaceError

if sys.platform != "win32":
    import fcntl

_ENDING: Final = ".lease"
_REGISTRY: Final = "registry.lock"
PATIENCE_S: Final = 5.0
"""How long others may take to look at the leases; it is a few milliseconds, unless one of them is stopped."""
_PAUSE_S: Final = 0.005


class Holder(NamedTuple):
    """Who holds a lease, and of what: a real path, and identities from it up to the root of its file system."""

    root: str
    ancestry: tuple[tuple[int, int], ...]
    holder: str
    pid: int


class SharedLease:
    """A lease held by this process."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd: int | None = fd

    def release(self) -> None:
        """Give it up. Doing it again does nothing."""
        if self._fd is not None:
            # The name first: a file that is locked and gone is nobody's, one that is there and free looks dead.
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(self._fd)
            self._fd = None


class SharedLeases:
    """The leases of this computer's processes of one person.

    Args:
        folder: where they are kept; made when the first lease is taken. None is the person's runtime folder.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = Path(folder) if folder is not None else None

    def take(
        self,
        root: str,
        ancestry: Sequence[tuple[int, int]],
        holder: str,
        overlaps: Callable[[str, tuple[tuple[int, int], ...]], bool],
    ) -> SharedLease | None:
        """Take a folder. Reads and locks files: not for an event loop. None where the system has no such locks.

        Raises:
            AgentBusyError: another holder works in it, around it or inside it, here or in another process.
            AgentWorkspaceError: leases cannot be kept here.
        """
        if sys.platform == "win32":
            return None
        try:
            folder = self._folder or runtime_folder()
            _make_private(folder)
            with _registry(folder):
                for other in _living(folder):
                    if other is None or overlaps(other.root, other.ancestry):
                        raise _taken(other)
                return _added(folder, Holder(root, tuple(ancestry), holder, os.getpid()))
        except OSError as error:
            raise AgentWorkspaceError(
                "That no other program works in this folder cannot be made sure, because the place where that is "
                f"noted cannot be used ({type(error).__name__}).",
                details={"path": root},
            ) from error


def runtime_folder() -> Path:
    """Where the programs of this person meet: their runtime folder, else one in the folder for temporary files."""
    told = os.environ.get("XDG_RUNTIME_DIR", "")
    for each in (told, f"/run/user/{os.getuid()}"):
        if os.path.isabs(each) and os.path.isdir(each) and os.stat(each).st_uid == os.getuid():
            return Path(each, "remuda-leases")
    return Path("/tmp", f"remuda-leases-{os.getuid()}")  # noqa: S108  # shared on purpose; checked to be the person's own


def _make_private(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        os.makedirs(folder.parent, 0o700, exist_ok=True)
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)
    found = os.lstat(folder)
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not os.path.isdir(folder) or os.path.islink(folder):
        raise PermissionError("the folder for leases is not this person's own")


@contextlib.contextmanager
def _registry(folder: Path) -> Iterator[None]:
    """Alone with the leases."""
    fd = os.open(folder / _REGISTRY, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        ends_at = time.monotonic() + PATIENCE_S
        while not _locked(fd):
            if time.monotonic() > ends_at:
                raise AgentBusyError(
                    "Another program keeps looking at which folders are worked in. Try again in a moment.",
                    details={"pid": None},
                )
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(fd)


def _living(folder: Path) -> Iterator[Holder | None]:
    """Who holds a lease; None for one that cannot be read. Files of dead holders are removed on the way."""
    for name in os.listdir(folder):
        if not name.endswith(_ENDING):
            continue
        path = folder / name
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if _locked(fd):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                continue
            if os.fstat(fd).st_nlink:
                yield _read(os.pread(fd, 1024 * 1024, 0))
        finally:
            os.close(fd)


def _read(content: bytes) -> Holder | None:
    try:
        told: dict[str, Any] = json.loads(content)
        ancestry = tuple((int(device), int(inode)) for device, inode in told["ancestry"])
        return Holder(str(told["root"]), ancestry, str(told["holder"]), int(told["pid"]))
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None


def _added(folder: Path, own: Holder) -> SharedLease:
    path = folder / f"{uuid.uuid4().hex}{_ENDING}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(fd, json.dumps(own._asdict()).encode("utf-8", "surrogateescape"))
    except BaseException:
        SharedLease(path, fd).release()
        raise
    return SharedLease(path, fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _taken(other: Holder | None) -> AgentBusyError:
    if other is None:
        return AgentBusyError(
            "Another program works in a folder that it does not tell. Try again later.", details={"pid": None}
        )
    return AgentBusyError(
        f"Another run works in this folder, or in one around or inside it (process {other.pid}). "
        "Wait until it has ended.",
        details={"held_by": other.holder, "pid": other.pid, "quarantined": False},
    )
