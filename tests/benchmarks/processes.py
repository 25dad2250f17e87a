"""What the kernel counts of a running host and its renderer.

Owns the reading of /proc and the ending of what a benchmark started. Must not know what is
measured with it.
"""

import os
import re
import signal
import subprocess
import time
from pathlib import Path


def descendants(root: int) -> set[int]:
    """Processes below `root`, those that have ended and were not waited for included."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text("utf-8", "replace")
            except OSError:
                continue
            parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    below: set[int] = set()
    while new := {pid for pid, parent in parents.items() if (parent == root or parent in below) and pid not in below}:
        below |= new
    return below


def parent_of(pid: int) -> int:
    """Its parent; 0 when it is gone."""
    try:
        return int(Path("/proc", str(pid), "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def arguments_of(pid: int) -> list[str]:
    """Its command line; empty when it is gone."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return []


def end(host: subprocess.Popen[bytes]) -> None:
    """End a host and everything it started."""
    below = descendants(host.pid)
    host.send_signal(signal.SIGTERM)
    try:
        host.wait(timeout=10)
    except subprocess.TimeoutExpired:
        below |= descendants(host.pid)
        host.kill()
        host.wait()
    deadline = time.monotonic() + 5
    while (left := {pid for pid in below if Path("/proc", str(pid)).exists()}) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def renderer_of(host: int, patience_s: float = 30.0) -> int:
    """The process that draws: the innermost of those started as the renderer (a launcher may stand around it)."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        below = {pid: arguments_of(pid) for pid in descendants(host)}
        started = {pid for pid, said in below.items() if any(part.startswith("--channel=") for part in said)}
        inner = {pid for pid in started if not any(parent_of(other) == pid for other in started)}
        python = {pid for pid in inner if "python" in os.path.basename(below[pid][0])}
        if len(python) == 1:
            return python.pop()
        time.sleep(0.05)
    raise TimeoutError("the host has no renderer")


def wakes(pid: int) -> dict[int, tuple[str, int]]:
    """Name and voluntary context switches of each thread: how often it went to sleep, so was woken."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            status = Path("/proc", str(pid), "task", task, "status").read_text("utf-8", "replace")
        except OSError:
            continue
        name = re.search(r"^Name:\t(.*)$", status, re.MULTILINE)
        count = re.search(r"^voluntary_ctxt_switches:\t(\d+)$", status, re.MULTILINE)
        if name and count:
            found[int(task)] = (name[1], int(count[1]))
    return found


def open_files(pid: int) -> list[str] | None:
    """What its descriptors lead to; None where this may not be looked at."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return None
    found = []
    for name in names:
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
    return found


def resident_mb(pid: int) -> float:
    status = Path("/proc", str(pid), "status").read_text("utf-8", "replace")
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0
