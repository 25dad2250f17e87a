"""Ways out of a workspace, tried by a program that may stand behind a wall: run as a script.

Owns the attempts that `ui.probes` has not: those that go by names, links, mounts, identity and terminals. Standard
library only. What came of each is printed as JSON: `open`, or why it was refused.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)
_SHMGET, _SHMAT = {"x86_64": (29, 30), "aarch64": (194, 196)}.get(os.uname().machine, (0, 0))


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _read(path: str) -> None:
    with open(path, "rb") as file:
        assert b"sentinel" in file.read()


def _read_over_link(target: str) -> None:
    os.symlink(target, "secret-link")
    _read("secret-link")


def _append(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"+")


def _through(link: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)
    os.symlink(target, link)
    _append(link)


def _datagram(path: str) -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        here.sendto(b"hello", path)


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)


def _tcp(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=5).close()


def _shared_memory(number: int) -> None:
    _libc.syscall.restype = ctypes.c_long
    result = _libc.syscall(ctypes.c_long(_SHMAT), ctypes.c_long(number), None, ctypes.c_long(0))
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _unshare(flags: int) -> None:
    # In a child: what worked must not change the other attempts.
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _libc.unshare(flags) == 0 else ctypes.get_errno())
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        raise OSError(code, os.strerror(code))


def _mount(source: str, target: str, kind: bytes | None, flags: int) -> None:
    _checked(_libc.mount(source.encode(), target.encode(), kind, ctypes.c_ulong(flags), None))
    _libc.umount2(target.encode(), 2)


def _set_user_id(path: str) -> None:
    with open(path, "wb"):
        pass
    os.chmod(path, 0o4700)
    assert os.stat(path).st_mode & 0o4000


def _terminal(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
    os.close(descriptor)


def _signal_thread(pid: int) -> None:
    # tgkill, which the standard library has for its own process only.
    _libc.syscall.restype = ctypes.c_long
    number = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
    _checked(_libc.syscall(ctypes.c_long(number), ctypes.c_long(pid), ctypes.c_long(pid), ctypes.c_long(0)))


def _inherit() -> None:
    if not CAME_ALONG:
        raise OSError(errno.EBADF, "nothing came along")


def _is_open(number: int) -> bool:
    try:
        fcntl.fcntl(number, fcntl.F_GETFD)
    except OSError:
        return False
    return True


CAME_ALONG = [number for number in range(3, 256) if _is_open(number)]
"""Descriptors besides the three streams, before any is opened here."""


def attempts(t: dict[str, str], pid: int) -> dict[str, Callable[[], object]]:
    """By name; `t` are targets outside, `pid` a program outside."""
    outside, folder = t["file"], t["folder"]
    return {
        "append to a file": lambda: _append(outside),
        "make a file": lambda: _append(os.path.join(folder, "made")),
        "make a folder": lambda: os.mkdir(os.path.join(folder, "made-folder")),
        "cut a file short": lambda: os.truncate(outside, 0),
        "cut a file short while reading": lambda: os.close(os.open(outside, os.O_RDONLY | os.O_TRUNC)),
        "cut a file short in passing": lambda: os.close(os.open(outside, os.O_ACCMODE | os.O_TRUNC)),
        "ask something of a file": lambda: os.close(os.open(t["secret"], os.O_ACCMODE)),
        "remove a file": lambda: os.unlink(t["spare"]),
        "move a file in": lambda: os.rename(t["spare2"], "moved-in"),
        "move a file out": lambda: os.rename("own", os.path.join(folder, "moved-out")),
        "link a file in": lambda: os.link(outside, "linked-in"),
        "write over a link": lambda: _through("link", outside),
        "write over a folder's link": lambda: _append(os.path.join("folder-link", "through")),
        "write by /proc/self/root": lambda: _append("/proc/self/root" + outside),
        "write by /proc/self/cwd": lambda: _append("/proc/self/cwd/../" + os.path.basename(folder) + "/up"),
        "change a mode": lambda: os.chmod(outside, 0o640),
        "change times": lambda: os.utime(outside, (1, 1)),
        "read a secret": lambda: _read(t["secret"]),
        "read a secret over a link": lambda: _read_over_link(t["secret"]),
        "read the data folder": lambda: _read(t["data"]),
        "read the environment of a program": lambda: _read(f"/proc/{pid}/environ"),
        "open the memory of a program": lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)),
        "enter the root of a program": lambda: _read(f"/proc/{pid}/root{t['secret']}"),
        "open a file of a program": lambda: os.close(os.open(f"/proc/{pid}/fd/0", os.O_RDONLY)),
        "signal a program": lambda: os.kill(pid, 0),
        "signal what it comes from": lambda: os.kill(os.getppid(), 0),
        "signal a thread of what it comes from": lambda: _signal_thread(os.getppid()),
        "stop what it comes from by pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0),
        "stop a program by pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 0),
        "limit a program": lambda: resource.prlimit(pid, resource.RLIMIT_CPU),
        "slow a program": lambda: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)),
        "slow every program": lambda: os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_PROCESS, 0)),
        "connect to a socket": lambda: _connect(t["socket"]),
        "send to a socket from a pair": lambda: _datagram(t["datagrams"]),
        "connect over TCP": lambda: _tcp(int(t["port"])),
        "take shared memory": lambda: _shared_memory(int(t["shared"])),
        "open a terminal": lambda: _terminal(t["terminal"]),
        "mount over the workspace": lambda: _mount("none", "mount-point", b"tmpfs", 0),
        "bind a folder in": lambda: _mount(folder, "mount-point", None, 4096),
        "make mounts of its own": lambda: _unshare(0x0002_0000),
        "make users of its own": lambda: _unshare(0x1000_0000),
        "make a device": lambda: os.mknod("device", 0o600 | 0o060000, os.makedev(7, 0)),
        "make a program that is its owner": lambda: _set_user_id("set-user-id"),
        "gain by a program of root": lambda: _gain(),
        "keep a descriptor": _inherit,
    }  # fmt: skip


def _gain() -> None:
    """Whether a set-user-id program gives anything: what the kernel says of this process."""
    with open("/proc/self/status", encoding="ascii") as status:
        if any(line.split() == ["NoNewPrivs:", "1"] for line in status):
            raise OSError(errno.EPERM, "no new privileges")


def run(targets: dict[str, str]) -> dict[str, str]:
    found = {}
    for name, attempt in attempts(targets, int(targets["pid"])).items():
        try:
            attempt()
        except OSError as refused:
            found[name] = errno.errorcode.get(refused.errno or 0, str(refused))
        else:
            found[name] = "open"
    return found


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    if order.get("inside"):
        # The program behind the outer wall starts its command behind the inner one.
        inner = json.dumps(order["targets"] | {"spare": "/nonexistent/a", "spare2": "/nonexistent/b"})
        nested = subprocess.run(
            [*order["inside"], sys.executable, "-I", __file__, json.dumps({"targets": json.loads(inner)})],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(nested.stdout or json.dumps({"failed": nested.stderr}))
    else:
        print(json.dumps(run(order["targets"])))
