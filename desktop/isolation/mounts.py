"""A wall's own view of the file system, where the kernel lets this user have one.

Owns the mounts of a wall: everything read-only but what may be written, terminals and shared memory of its own. It
holds what Landlock does not know: mode, owner, times and attributes of files elsewhere. Must not know what may be
read. Invariant: it is tried in a process of its own first; it stands whole, or this process is as it was.

Standard library and `ui.lockdown` only.
"""

import ctypes
import os
import struct
from collections.abc import Callable, Sequence

SOURCE = "remuda-wall"
"""What the terminals of a wall are mounted from: a wall inside it knows by it that they are not the person's."""

_NEWNS, _NEWIPC, _NEWUSER = 0x0002_0000, 0x0800_0000, 0x1000_0000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 8, 4096, 16384, 1 << 19
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_CLONE_TREE, _BOTH_ARE_OPENED = 1, 0x4 | 0x40
_READ_ONLY, _NO_SET_USER_ID = 1, 2
_UNSHARE = {"x86_64": 272, "aarch64": 97}

Open = Callable[[str], int | None]


def stands() -> bool:
    """Whether this process has the mounts of a wall around it."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            return any(f" - devpts {SOURCE} " in line for line in table)
    except OSError:
        return False


def raise_mounts(writable: Sequence[str], open_real: Open) -> bool:
    """Give this process mounts of its own; False where it may not, then nothing was changed.

    Args:
        writable: folders that stay as they are, by their real paths.
        open_real: opens a path without following links; None when it is not there.

    Raises:
        OSError: it could be done a moment ago and not now.
    """
    trial = os.fork()
    if trial == 0:
        status = 1
        try:
            _raise(writable, open_real)
            status = 0
        except Exception:
            status = 1
        finally:
            os._exit(status)
    _, status = os.waitpid(trial, 0)
    if status != 0:
        return False
    _raise(writable, open_real)
    return True


def _raise(writable: Sequence[str], open_real: Open) -> None:
    from ui.lockdown import system_call

    user, group = os.geteuid(), os.getegid()
    spaces = _NEWNS | _NEWIPC | (0 if user == 0 and _may_mount() else _NEWUSER)
    system_call(_UNSHARE[os.uname().machine], spaces)
    if spaces & _NEWUSER:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    _mount("none", "/", "", _MS_REC | _MS_SLAVE)
    kept = [(place, tree) for path in _outermost(writable) if (place := open_real(path)) is not None
            for tree in (_copy_of(place),)]  # fmt: skip
    attributes = ctypes.create_string_buffer(struct.pack("=QQQQ", _READ_ONLY | _NO_SET_USER_ID, 0, 0, 0), 32)
    system_call(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, 32)
    for place, tree in kept:
        system_call(_MOVE_MOUNT, tree, b"", place, b"", _BOTH_ARE_OPENED)
        os.close(place)
        os.close(tree)
    _mount(SOURCE, "/dev/pts", "devpts", _MS_NOSUID | _MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    if not os.path.islink("/dev/ptmx"):
        _mount("/dev/pts/ptmx", "/dev/ptmx", "", _MS_BIND)
    if os.path.isdir("/dev/shm"):  # noqa: S108 (covered by a mount of its own)
        _mount(SOURCE, "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")  # noqa: S108 (as above)
    # The working folder is a place in the old mounts until it is entered again.
    os.chdir(os.getcwd())


def _may_mount() -> bool:
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        held = next(line for line in status if line.startswith("CapEff:"))
    return bool(int(held.split()[1], 16) & 1 << 21)


def _outermost(paths: Sequence[str]) -> list[str]:
    return [
        path
        for path in dict.fromkeys(paths)
        if not any(path != other and path.startswith(other.rstrip("/") + "/") for other in paths)
    ]


def _copy_of(place: int) -> int:
    from ui.lockdown import system_call

    return system_call(_OPEN_TREE, place, b"", _CLONE_TREE | os.O_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    options = (source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None)
    if libc.mount(*options) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)
