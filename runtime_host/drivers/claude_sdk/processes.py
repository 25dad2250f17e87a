"""What commands of the CLI left running, by the kernel's word.

Owns the reading of the process table. Must not know who started what, and ends nothing. Invariant: what a command put
into a session of its own, or left without a parent, is found as well.
"""

import os
import time
from typing import Final

LOOKS: Final = 4
_LOOK_AGAIN_S: Final = 0.05


def left_running(pid: int) -> bool:
    """Whether something besides the CLI `pid` itself goes on under whatever looks after it; waits for a moment."""
    for _ in range(LOOKS):
        parents = _parents()
        above = parents.get(pid)
        if above is None:
            return False
        # What lost its parent falls to the guard. Where there is none, to nobody who is known here.
        top = pid if above == os.getpid() else above
        if not any(other != pid and _is_below(other, top, parents) for other in parents):
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True


def _is_below(pid: int, top: int, parents: dict[int, int]) -> bool:
    seen: set[int] = set()
    while (above := parents.get(pid)) is not None and pid not in seen:
        if above == top:
            return True
        seen.add(pid)
        pid = above
    return False


def _parents() -> dict[int, int]:
    """The parent of each process that lives; empty where that cannot be read."""
    try:
        entries = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    parents: dict[int, int] = {}
    for entry in entries:
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                state, parent, *_ = file.read().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if state not in ("Z", "X"):
            parents[int(entry)] = int(parent)
    return parents
