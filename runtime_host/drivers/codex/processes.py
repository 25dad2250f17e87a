"""What still runs below a program, by the kernel's word.

Owns the reading of the process table. Must not know who started what, and ends nothing. Invariant: where the table
cannot be read the answer is None, never that nothing is there.
"""

import os
from typing import Final

_OWN: Final = frozenset({"codex", "codex-code-mode"})
"""Names, as the kernel keeps them, of what belongs to the CLI itself."""


def commands_below(pid: int) -> int | None:
    """How many processes below `pid` are neither the CLI's own nor dead."""
    try:
        entries = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in entries:
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        if len(fields) > 1 and fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append((entry, name))
    below, count = [pid], 0
    while below:
        for entry, name in children.get(below.pop(), ()):
            below.append(entry)
            count += name not in _OWN
    return count
