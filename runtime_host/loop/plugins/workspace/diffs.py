"""The difference of two texts as a person reads it. Pure.

Owns the form and the bounds. Invariants: what is shown is a unified diff that says all of it, or says that it does not;
however large the texts are, making it is soon over.
"""

import difflib
import io
from typing import Final

MOST_CHARS: Final = 64 * 1024
_CONTEXT: Final = 3
_MOST_COMPARED: Final = 250_000
"""Lines of one side times those of the other: beyond it what lies between the first and the last difference is shown
as gone and come."""


def unified(before: str, after: str, name: str, *, new: bool = False) -> tuple[str, int, int]:
    """(the diff, lines that came, lines that went). `new`: there was no file before."""
    old, now = lines_of(before), lines_of(after)
    first = _common(old, now)
    last = _common(old[first:][::-1], now[first:][::-1])
    begin, old_end, now_end = max(first - _CONTEXT, 0), len(old) - last, len(now) - last
    tail = min(last, _CONTEXT)
    went, came = old[first:old_end], now[first:now_end]
    if len(went) * len(came) > _MOST_COMPARED:
        body = [
            f"@@ -{_span(begin, old_end + tail)} +{_span(begin, now_end + tail)} @@\n",
            *(f" {line}" for line in old[begin:first]),
            *(f"-{line}" for line in went),
            *(f"+{line}" for line in came),
            *(f" {line}" for line in old[old_end : old_end + tail]),
        ]
    else:
        body = _hunks(old[begin : old_end + tail], now[begin : now_end + tail], begin)
    heads = ["--- /dev/null\n" if new else f"--- a/{name}\n", f"+++ b/{name}\n"]
    added = sum(line.startswith("+") for line in body)
    removed = sum(line.startswith("-") for line in body)
    return _bounded([*heads, *body]), added, removed


def lines_of(text: str) -> list[str]:
    """With their ends. Nothing but a newline ends one."""
    return list(io.StringIO(text, newline="\n"))


def _common(one: list[str], other: list[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _hunks(old: list[str], now: list[str], begin: int) -> list[str]:
    lines: list[str] = []
    for group in difflib.SequenceMatcher(None, old, now, autojunk=False).get_grouped_opcodes(_CONTEXT):
        head, foot = group[0], group[-1]
        lines.append(f"@@ -{_span(begin + head[1], begin + foot[2])} +{_span(begin + head[3], begin + foot[4])} @@\n")
        for tag, old_from, old_to, now_from, now_to in group:
            if tag == "equal":
                lines += [f" {line}" for line in old[old_from:old_to]]
            else:
                lines += [f"-{line}" for line in old[old_from:old_to]]
                lines += [f"+{line}" for line in now[now_from:now_to]]
    return lines


def _span(begin: int, end: int) -> str:
    length = end - begin
    return f"{begin + 1 if length else begin},{length}"


def _bounded(lines: list[str]) -> str:
    shown: list[str] = []
    room = MOST_CHARS
    for index, line in enumerate(lines):
        whole = line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        if len(whole) > room:
            return "".join(shown) + f"… {len(lines) - index} more lines of this change are not shown here.\n"
        room -= len(whole)
        shown.append(whole)
    return "".join(shown)
