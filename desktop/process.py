"""What the kernel lets a process know and say about processes.

Owns the process-wide switches of the host (no dump, child subreaper), the exact naming of a
process (pid and start time, so that a pid used again is never mistaken), the ending of whole
trees, and the burying of orphans that fall to the host. Must not know what any process is for.
Invariant: no signal goes to a process other than the one that was looked at, and no exit status
is taken from the one who waits for it. Standard library only, and light: the host imports it
before the first window is painted.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio
    import socket
    import subprocess

LINUX = sys.platform.startswith("linux")

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> bool:
    if not LINUX:
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    return int(libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)) == 0


def undumpable() -> bool:
    """No core file of this process, and no other process of this user reads its memory, files or environment.

    Returns:
        Whether the kernel agreed; never on systems other than Linux.
    """
    return _prctl(_PR_SET_DUMPABLE, 0)


def dumpable() -> bool:
    """Take `undumpable` back, for a process that is about to be another program. Returns whether the kernel agreed."""
    return _prctl(_PR_SET_DUMPABLE, 1)


def become_subreaper() -> bool:
    """Orphans below this process become its children instead of init's. Returns whether the kernel agreed."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int) -> bool:
    """Have the kernel send `signum` when the thread that started this process ends.

    It is a belt, never the only strap: a parent that ended before the call is not noticed, and
    the setting is lost over a set-user-id program.
    """
    return _prctl(_PR_SET_PDEATHSIG, signum)


def peer_of(connection: "socket.socket") -> tuple[int, int] | None:
    """(pid, uid) of whoever connected to, or listens on, the other end; None where the system does not tell."""
    import socket
    import struct

    if not hasattr(socket, "SO_PEERCRED"):
        return None
    pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


class Process(NamedTuple):
    """One process as it was looked at; `started_ticks` tells it from a later one with the same pid."""

    pid: int
    parent: int
    state: str
    started_ticks: int

    @property
    def is_zombie(self) -> bool:
        return self.state in "ZX"


def look(pid: int) -> Process | None:
    """The process as it is now, or None when there is none (or this system has no /proc)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold any byte, parentheses too.
    fields = line[line.rfind(b")") + 2 :].split()
    return Process(pid, int(fields[1]), fields[0].decode("ascii"), int(fields[19]))


def processes() -> list[Process]:
    """Every process that can be seen; empty where there is no /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [found for name in names if name.isdigit() and (found := look(int(name))) is not None]


def descendants(pid: int) -> list[Process]:
    """All processes below `pid`, zombies too, parents before children."""
    children: dict[int, list[Process]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process)
    below = list(children.get(pid, ()))
    for process in below:  # grows while it is walked
        below.extend(children.get(process.pid, ()))
    return below


def carriers(name: str, value: str) -> list[Process]:
    """Processes whose environment holds `name=value`, as far as it may be read."""
    wanted = f"{name}={value}".encode()
    found = []
    for process in processes():
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append(process)
    return found


def send(process: Process, signum: int) -> bool:
    """Signal exactly the process that was looked at. Returns False when it is gone or not ours to signal."""
    try:
        if not hasattr(os, "pidfd_open"):
            os.kill(process.pid, signum)
            return True
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # The handle holds the process by now; if the start time still fits it is the one we mean.
        now = look(process.pid)
        if now is None or now.started_ticks != process.started_ticks:
            return False
        signal.pidfd_send_signal(handle, signum)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def kill_all(find: Callable[[], list[Process]]) -> set[Process]:
    """One pass of SIGKILL over what `find` names; returns what was killed (parent and state as first seen).

    Everything is stopped before anything is killed, until a look shows nothing new: a process that
    keeps forking cannot run ahead of the list.
    """
    stopped: dict[tuple[int, int], Process] = {}
    for _ in range(16):
        new = [p for p in find() if not p.is_zombie and (p.pid, p.started_ticks) not in stopped]
        if not new:
            break
        for process in new:
            stopped[process.pid, process.started_ticks] = process
            send(process, signal.SIGSTOP)
    return {process for process in stopped.values() if send(process, signal.SIGKILL)}


async def wait_for_exit(process: "subprocess.Popen[bytes]") -> int:
    """The exit status of `process`, without a thread and without polling where the kernel has pidfds."""
    import asyncio

    if process.poll() is not None:
        return int(process.returncode)
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return await asyncio.to_thread(process.wait)
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(handle, lambda: None if ended.done() else ended.set_result(None))
        await ended
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    return process.wait()


class OrphanReaper:
    """Buries orphans that fell to this process because it is a child subreaper.

    Woken by SIGCHLD alone: no timer runs unless a dead child lies unburied. A dead child is given
    `grace_s` for the one who started it to take its status; only then is it an orphan. Children
    whose owner looks rarely are named with `keep` and never touched.
    """

    def __init__(self, loop: "asyncio.AbstractEventLoop", *, grace_s: float = 2.0) -> None:
        self._loop = loop
        self._grace_s = grace_s
        self._kept: set[int] = set()
        self._seen: set[tuple[int, int]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.buried = 0

    def start(self) -> None:
        """Begin; call on the main thread. Without effect where orphans do not fall to us."""
        if LINUX:
            self._loop.add_signal_handler(signal.SIGCHLD, self._someone_died)
            self._someone_died()

    def close(self) -> None:
        if LINUX and not self._loop.is_closed():
            self._loop.remove_signal_handler(signal.SIGCHLD)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def keep(self, pid: int) -> None:
        """`pid` has an owner who may take its status at any later time."""
        self._kept.add(pid)

    def release(self, pid: int) -> None:
        self._kept.discard(pid)

    def _someone_died(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._grace_s, self._bury)

    def _bury(self) -> None:
        self._timer = None
        try:
            # A look that takes nothing: mostly the owner has buried its child by now.
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                self._seen.clear()
                return
        except ChildProcessError:
            self._seen.clear()
            return
        me = os.getpid()
        dead = {
            (p.pid, p.started_ticks) for p in processes() if p.parent == me and p.is_zombie and p.pid not in self._kept
        }
        for pid, _ in dead & self._seen:
            try:
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None:
                    self.buried += 1
            except ChildProcessError:
                continue
        self._seen = dead - self._seen
        if self._seen:
            self._someone_died()
