"""The claim on a database file: which one process may use it, and whether its folder may hold one at all.

Owns the lock file beside the database, the refusal of network file systems, and the private modes
of folders it makes. Must not know what the database holds, and never opens the database itself: a
close() of any other descriptor of that file would drop SQLite's own POSIX locks.

Invariant: while a `Claim` is held no other one on the same path can be taken, in this process or
another. The lock is the kernel's, so it ends with its holder, however that dies; it is never broken
by age. Its descriptor is closed on exec, so no child keeps it.
"""

import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from runtime_host.errors import StorageFailedError, StorageLockedError, StorageUnsupportedError

if sys.platform != "win32":
    import fcntl

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "coda", "ceph", "lustre", "beegfs", "gpfs", "gfs2", "ocfs2"}
_NETWORK_FUSE = {"sshfs", "ceph", "glusterfs", "s3fs", "gcsfuse", "rclone", "juicefs", "curlftpfs", "gvfsd-fuse"}

CLAIM_LOST = "STORAGE_CLAIM_LOST"


class Claim:
    """An exclusive lock on `<path>.lock`, held from `take` to `release`."""

    def __init__(self, path: Path, lock: Path, fd: int) -> None:
        self.path = path
        self.lock = lock
        self._fd = fd
        self._names = str(lock), str(path)  # each commit looks at both: without building them anew
        self._lock_id = _file_id(lock)
        self._path_id: tuple[int, int] | None = None

    @classmethod
    def take(cls, path: Path) -> Self:
        """Claim `path`, making its missing folders (0700).

        Raises:
            StorageLockedError: another holder lives.
            StorageUnsupportedError: a network file system, or a system without this kind of lock.
            StorageFailedError: the folder or the lock file cannot be made.
        """
        if sys.platform == "win32":
            raise StorageUnsupportedError("Stores cannot be kept on this system yet.")
        try:
            _make_private(path.parent)
            if kind := network_type(path.parent):
                raise StorageUnsupportedError(
                    f"“{path.parent}” is on a network file system ({kind}), where a store is not safe."
                    " Choose a folder on a disk of this computer.",
                    details={"path": str(path), "file_system": kind},
                )
            lock = path.with_name(path.name + ".lock")
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageFailedError(
                f"“{path}” cannot be opened: {error.strerror}.", details={"path": str(path)}
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, 0o600)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
            return cls(path, lock, fd)
        except BlockingIOError:
            holder = os.pread(fd, 300, 0).decode(errors="replace").partition(" ")[0]
            os.close(fd)
            raise StorageLockedError(
                f"“{path.name}” is in use by process {holder or 'unknown'}. Close that one first.",
                details={"path": str(path), "pid": int(holder) if holder.isdecimal() else None},
            ) from None
        except OSError as error:
            os.close(fd)
            raise StorageFailedError(
                f"“{path}” cannot be locked: {error.strerror}.", details={"path": str(path)}
            ) from error

    def bind(self) -> None:
        """Remember which file the path names now; `verify` holds it to that."""
        self._path_id = _file_id(self.path)

    def verify(self) -> None:
        """Raises `StorageFailedError` when the lock file or the database was removed or replaced meanwhile."""
        lock, path = self._names
        if _file_id(lock) != self._lock_id or (self._path_id and _file_id(path) != self._path_id):
            raise StorageFailedError(
                f"“{self.path.name}” was moved or replaced while in use. Nothing more is written to it.",
                code=CLAIM_LOST,
                details={"path": str(self.path)},
            )

    def release(self) -> None:
        """Give the lock up. The lock file stays: removing it would let two holders in."""
        os.close(self._fd)


def _file_id(path: str | Path) -> tuple[int, int] | None:
    # Part of every commit: no context manager, no object but the answer.
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _make_private(folder: Path) -> None:
    """Make missing folders, each 0700 whatever the umask and on disk before the database in them can be."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    for new in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(new, 0o700)
            os.chmod(new, 0o700)
        sync_folder(new.parent)


def sync_folder(folder: Path) -> None:
    """Make names added to or removed from `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def network_type(folder: Path) -> str | None:
    """Name of the network file system `folder` is on; None when it is local, or the system does not tell."""
    if sys.platform == "darwin":
        return _network_type_darwin(folder)
    with contextlib.suppress(OSError):
        # f_type of statfs calls sshfs and virtiofs both FUSE; the mount table knows them apart. The
        # mount's id is exact where comparing paths or device numbers is not (binds, btrfs, overlays).
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fdinfo = Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="utf-8")
        finally:
            os.close(fd)
        mount_id = next(line.split()[1] for line in fdinfo.splitlines() if line.startswith("mnt_id:"))
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        return network_type_of_mount(mountinfo, mount_id)
    return None


def network_type_of_mount(mountinfo: str, mount_id: str) -> str | None:
    """As `network_type`, for one mount of the text of /proc/self/mountinfo."""
    for kind, source, options in _mounts(mountinfo, mount_id):
        system, _, subtype = kind.partition(".")
        if (
            kind in _NETWORK
            or (system == "fuse" and (subtype in _NETWORK_FUSE or "://" in source))
            # 9p carries a virtual machine's local folders as well as remote ones: its transport tells.
            or (system == "9p" and not {"trans=tcp", "trans=rdma"}.isdisjoint(options.split(",")))
        ):
            return kind
    return None


def _mounts(mountinfo: str, mount_id: str) -> Iterator[tuple[str, str, str]]:
    for line in mountinfo.splitlines():
        if line.startswith(f"{mount_id} "):
            kind, source, options = line.partition(" - ")[2].split(" ", 2)
            yield kind, source, options


def _network_type_darwin(folder: Path) -> str | None:
    """From statfs(2): f_flags lies at byte 64 and f_fstypename at 72 of the 64-bit struct; MNT_LOCAL is 0x1000."""
    libc = ctypes.CDLL(None, use_errno=True)
    statfs = getattr(libc, "statfs$INODE64", None) or libc.statfs
    buffer = ctypes.create_string_buffer(4096)
    if statfs(os.fsencode(folder), buffer) != 0:
        return None
    flags = int.from_bytes(buffer.raw[64:68], sys.byteorder)
    return None if flags & 0x1000 else buffer.raw[72:88].rstrip(b"\0").decode(errors="replace")
