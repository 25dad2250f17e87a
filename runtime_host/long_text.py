"""A text that may be endless, kept within a bound: its beginning as it comes, its end when it has ended.

Owns what of such a text is kept and how that is said in it. Must not know whose text it is. Invariants: what was
given stays as it is, so that it can be shown and stored piece by piece; memory is bounded whatever comes in
pieces of whatever size; where something is left out, the text says so.
"""

from collections import deque
from typing import Final

GOES_ON_LINE: Final = "\n[this is long: its middle is left out here, and its end follows when it has ended]\n"
_LEFT_OUT: Final = "[{} characters were left out]\n"
_BLOCK_PARTS: Final = 1024


class LongText:
    """Bounds one text.

    Args:
        limit_chars: of what is kept; half of it of the beginning, half of the end, and a line between them.
    """

    def __init__(self, limit_chars: int) -> None:
        self._half = limit_chars // 2
        self._room = self._half
        self._left_out = 0
        self._blocks: deque[str] = deque()
        self._parts: list[str] = []
        self._tail_chars = 0

    def take(self, text: str) -> str:
        """What of more text is kept at once; none once the beginning is full."""
        if len(text) <= self._room:
            self._room -= len(text)
            return text
        head, rest = text[: self._room], text[self._room :]
        self._room = 0
        line = "" if self._tail_chars else GOES_ON_LINE
        self._keep(rest)
        return head + line

    def end(self) -> str:
        """The end of the text, once there is no more of it."""
        self._join()
        tail = "".join(self._blocks)
        self._blocks.clear()
        left_out = self._left_out + max(0, len(tail) - self._half)
        self._left_out = self._tail_chars = 0
        return (_LEFT_OUT.format(f"{left_out:,}") if left_out else "") + tail[-self._half :]

    def _keep(self, rest: str) -> None:
        # What cannot be among the last characters need not be kept, and of a large text no copy.
        self._left_out += max(0, len(rest) - self._half)
        self._parts.append(rest[-self._half :])
        self._tail_chars += min(len(rest), self._half)
        if len(self._parts) == _BLOCK_PARTS or self._tail_chars > 2 * self._half:
            self._join()
            while self._blocks and self._tail_chars - len(self._blocks[0]) >= self._half:
                gone = len(self._blocks.popleft())
                self._tail_chars -= gone
                self._left_out += gone

    def _join(self) -> None:
        """Tiny pieces into one: a list of them would weigh many times their text."""
        if self._parts:
            self._blocks.append("".join(self._parts))
            self._parts.clear()


__all__ = ["GOES_ON_LINE", "LongText"]
