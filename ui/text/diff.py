"""A unified diff, as it streams in, to rows of lines with their looks.

Owns which line is added, removed, context or heading: counted by the hunks' own headers, so that a
removed line that begins with dashes stays one. Must not know Qt, markup or the theme's values.
Invariants: any cutting gives the same rows; closed rows never change and are bounded; each line keeps
its sign, so that no line is told by colour alone; what acts without being seen is shown by its number,
since a change must not be able to hide.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ui.text.blocks import Row
from ui.text.styles import PLAIN, Span, Style
from ui.text.visible import visible

LINE_CHARS = 2_000
DIFF_LINES = 24
DIFF_CHARS = 2_400
BEGINNING_LINES = 12

Kind = Literal["added", "removed", "context", "hunk", "about"]

_HUNK = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_FILE = ("--- ", "+++ ", "diff --git ", "index ")
"""What says again which file it is."""

_ACTING = (*range(0x200B, 0x2010), *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF, 0x00AD)
_SHOWN = {
    **{code: f"‹U+{code:04X}›" for code in _ACTING},
    0x0D: "\u240d",
    **dict.fromkeys((0x85, 0x2028, 0x2029), "\u2424"),
}

_SIGNS = {"added": Style("up", "addedGround", bold=True), "removed": Style("failed", "removedGround", bold=True)}
_LOOKS = {
    "added": Style(back="addedGround"),
    "removed": Style(back="removedGround"),
    "context": PLAIN,
    "hunk": Style("quiet"),
    "about": Style("quiet", italic=True),
}


@dataclass(slots=True)
class _Reader:
    """Which kind of line comes next."""

    old: int = 0
    new: int = 0
    begun: bool = False

    def kind(self, line: str) -> Kind | None:
        """What `line` is; None for one that is not shown."""
        if (self.old > 0 or self.new > 0) and (known := self._inside(line)) is not None:
            return known
        self.old = self.new = 0
        if found := _HUNK.match(line):
            self.old, self.new = (1 if count is None else int(count) for count in found.groups())
            self.begun = True
            return "hunk"
        if line.startswith(_FILE):
            return "about" if self.begun else None
        if line[:1] in ("+", "-"):
            return "added" if line[0] == "+" else "removed"
        return "context" if line[:1] == " " else "about"

    def _inside(self, line: str) -> Kind | None:
        sign = line[:1]
        if sign == "+":
            self.new -= 1
            return "added"
        if sign == "-":
            self.old -= 1
            return "removed"
        if sign in (" ", ""):
            self.old -= 1
            self.new -= 1
            return "context"
        return "about" if sign == "\\" else None


Line = tuple[Kind, str, bool]
"""Its kind, what is shown of it, and whether it goes on where the one before was cut."""


class DiffSplitter:
    """A diff to `closed` rows and the open `tail`."""

    def __init__(self) -> None:
        self.closed: list[Row] = []
        self.tail: list[Row] = []
        self.line_count = 0
        self._reader = _Reader()
        self._partial = ""
        self._lines: list[Line] = []
        self._first: list[Line] = []
        self._chars = 0

    def feed(self, text: str) -> None:
        """Take `text` in; `closed` may grow, `tail` is made anew."""
        lines = (self._partial + text).split("\n")
        self._partial = lines.pop()
        for line in lines:
            self._take(line)
        self.tail = [self._row(self._lines, last=True, still_open=True)] if self._lines else []

    def finish(self) -> None:
        """The text is whole: everything closes."""
        if self._partial:
            self._take(self._partial)
            self._partial = ""
        if self._lines:
            self.closed.append(self._row(self._lines, last=True))
        self._lines = []
        self.tail = []

    def beginning(self) -> Row | None:
        """The first lines, as many as are shown of a long diff."""
        return make_row(self._first, first=True, last=True) if self._first else None

    def _take(self, line: str) -> None:
        kind = self._reader.kind(line)
        if kind is None:
            return
        self.line_count += 1
        for at in range(0, max(1, len(line)), LINE_CHARS):
            shown = visible(line[at : at + LINE_CHARS].translate(_SHOWN))
            self._add((kind, shown, at > 0))

    def _add(self, line: Line) -> None:
        if len(self._first) < BEGINNING_LINES and sum(len(text) for _, text, _ in self._first) < DIFF_CHARS:
            self._first.append(line)
        if self._lines and (len(self._lines) >= DIFF_LINES or self._chars + len(line[1]) > DIFF_CHARS):
            self.closed.append(self._row(self._lines, last=False))
            self._lines, self._chars = [], 0
        self._lines.append(line)
        self._chars += len(line[1])

    def _row(self, lines: Sequence[Line], *, last: bool, still_open: bool = False) -> Row:
        return make_row(lines, first=not self.closed, last=last, still_open=still_open)


def make_row(lines: Sequence[Line], *, first: bool, last: bool, still_open: bool = False) -> Row:
    """One row of these lines."""
    spans = tuple(_spans(lines))
    joined = not first and lines[0][2]
    text = "".join(part for _, part in spans)
    return Row("diff", text, first=first, last=last, joined=joined, open=still_open, spans=spans)


def _spans(lines: Sequence[Line]) -> Iterator[Span]:
    for place, (kind, text, glued) in enumerate(lines):
        if place and not glued:
            yield PLAIN, "\n"
        sign = _SIGNS.get(kind)
        if sign is not None and text and not glued:
            yield sign, text[0]
            text = text[1:]
        if text:
            yield _LOOKS[kind], text
