"""The end of a drawing process: noticing it, making sure of it, deciding whether to start another.

Owns waiting for, killing and counting. Must not know why the host wants it. Standard library
only.

Invariant: after `end_tree` no process of the tree is left, bubblewrap's inner ones included.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

Ended = Literal["crash", "breach"]
Decision = Literal["restart", "stop"]


class RestartPolicy:
    """Three crashes or breaches within a minute stop the restarting. Pure: the clock is given."""

    def __init__(self, *, most: int = 3, window_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._window_s = window_s
        self._clock = clock
        self._times: deque[float] = deque()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether the last decision was to stop; only `reset` changes that."""
        return self._stopped

    def ended(self, kind: Ended) -> Decision:
        """Count one end that nobody asked for and decide. A breach counts like a crash."""
        del kind
        now = self._clock()
        self._times.append(now)
        while self._times and now - self._times[0] > self._window_s:
            self._times.popleft()
        if len(self._times) >= self._most:
            self._stopped = True
        return "stop" if self._stopped else "restart"

    def reset(self) -> None:
        """The person asked for the window again: start counting anew."""
        self._times.clear()
        self._stopped = False


async def wait_for_end(process: "subprocess.Popen[bytes]") -> int:
    """Exit status of the process, without a thread and without polling where the system has pidfds."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        return await loop.run_in_executor(None, process.wait)
    if process.poll() is not None:
        return process.returncode
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return process.wait()
    ended = loop.create_future()

    def notice() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(descriptor, notice)
    try:
        await ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return process.wait()


def end_tree(process: "subprocess.Popen[bytes]", *, timeout_s: float = 5.0) -> int:
    """Kill the process and all that it started; wait until none is left. Exit status of the process.

    bubblewrap is two processes and what runs inside; its inner one is the init of a process
    namespace, whose death takes everything in it along.
    """
    if not sys.platform.startswith("linux"):
        process.kill()
        return process.wait(timeout_s)
    held: dict[int, int] = {}
    try:
        # What is stopped starts nothing new while the tree is being read.
        _send(process, signal.SIGSTOP)
        for pid in _descendants(process.pid):
            try:
                held[pid] = os.pidfd_open(pid)
            except OSError:
                continue
        for descriptor in held.values():
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            except OSError:
                continue
        _send(process, signal.SIGKILL)
        code = process.wait(timeout_s)
        _wait_for_all(held, timeout_s)
        return code
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def _send(process: "subprocess.Popen[bytes]", number: int) -> None:
    try:
        process.send_signal(number)
    except OSError:
        return


def _descendants(pid: int) -> list[int]:
    """All processes below `pid`, nearest first."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                after_name = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(after_name[1]), []).append(int(name))
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for parent in level for child in parents.get(parent, ())]
        found += level
    return found


def _wait_for_all(held: dict[int, int], timeout_s: float) -> None:
    import select

    deadline = time.monotonic() + timeout_s
    poller = select.poll()
    for pid, descriptor in held.items():
        poller.register(descriptor, select.POLLIN)
        while not poller.poll(50):
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {pid} does not end")
        poller.unregister(descriptor)
        # As a child subreaper we are their parent now, or we are not and somebody else is.
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
