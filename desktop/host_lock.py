"""One host a profile: a kernel lock on `<profile>/host.lock`.

Owns the lock's descriptor. Invariant: the kernel frees it when the host dies, however it
dies, so a leftover file never blocks a start; the descriptor is inherited by no child.
Standard library only.
"""

import os
import sys
from pathlib import Path


class HostLock:
    """The lock, held until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def acquire(path: Path) -> HostLock | None:
    """Take the lock of a profile; None when a living host holds it.

    Raises:
        OSError: the lock file cannot be made, or is a link, behind which another file would be changed.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            os.fchmod(descriptor, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return HostLock(descriptor)
