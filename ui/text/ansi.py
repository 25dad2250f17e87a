"""What a command writes, as it streams in, to rows of styled lines.

Owns the small terminal that reads it: colours and other looks (SGR), carriage return, backspace and
erasing within a line; every other control sequence is dropped. Must not know Qt, markup or the theme's
values. Invariants: any cutting of the text into pieces gives the same rows; closed rows never change;
no row is larger than its bound, a line without an end is cut every `LINE_CHARS` as a terminal of that
width would wrap it; whatever the bytes were, no control character is left in a row, and a sequence that
never ends hides nothing beyond its line.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ui.text.blocks import Row
from ui.text.styles import PLAIN, Span, Style
from ui.text.visible import visible

LINE_CHARS = 2_000
LINE_SPANS = 400
"""More changes of look than this, and a line is cut as if it were full."""
SPAN_CHARS = 8
"""As much as so many characters does it cost to show a change of look."""
OUTPUT_LINES = 24
OUTPUT_CHARS = 2_400
ENDING_LINES = 10
ENDING_CHARS = 900

NAMES = tuple(
    "ansi" + bright + name
    for bright in ("", "Bright")
    for name in ("Black", "Red", "Green", "Yellow", "Blue", "Magenta", "Cyan", "White")
)
"""The sixteen colours of a terminal, by their number, as names of the theme."""

Line = tuple[tuple[Span, ...], bool, int]
"""A line, whether it goes on where the one before was cut, and what showing it costs."""

_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_STRING_END = re.compile("[\x07\x18\x1a\x1b\x9c\n]")
_CSI = re.compile(r"([0-?]{0,64})([ -/]{0,4})")
_CHARSET = re.compile(r"[ -/]{1,4}")
_NEWLINES = "\x0b\x0c\x84\x85\u2028\u2029"
_STRINGS = "\x90\x98\x9d\x9e\x9f"
_ESCAPED_STRINGS = "PX]^_"
_LEVELS = (0, 95, 135, 175, 215, 255)


def _indexed(number: int) -> str:
    """One of the 256 colours."""
    if number < 16:
        return NAMES[number]
    if number < 232:
        cube = number - 16
        red, green, blue = _LEVELS[cube // 36], _LEVELS[cube // 6 % 6], _LEVELS[cube % 6]
        return f"#{red:02x}{green:02x}{blue:02x}"
    grey = 8 + 10 * (number - 232)
    return f"#{grey:02x}{grey:02x}{grey:02x}"


def _number(text: str) -> int:
    """A parameter; an absent one is 0, an absurd one none that means anything."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0 if not text else -1


def _colour(words: Sequence[str]) -> tuple[str | None, int]:
    """The colour after 38 or 48 (None: it makes no sense), and how many parameters it took."""
    kind = _number(words[0]) if words else -1
    if kind == 5 and len(words) > 1:
        number = _number(words[1])
        return (_indexed(number) if 0 <= number < 256 else None), 2
    if kind == 2 and len(words) > 3:
        parts = [_number(word) for word in words[1:4]]
        fits = all(0 <= part < 256 for part in parts)
        return ("#{:02x}{:02x}{:02x}".format(*parts) if fits else None), 4
    return None, len(words)


_SET = {1: "bold", 2: "faint", 3: "italic", 4: "underline", 7: "inverse", 9: "strike", 21: "underline"}
_UNSET = {22: ("bold", "faint"), 23: ("italic",), 24: ("underline",), 27: ("inverse",), 29: ("strike",)}
_TARGETS = {38: "fore", 48: "back"}


def _with(style: Style, **changes: Any) -> Style:
    return style._replace(**changes)


def _single(style: Style, code: int) -> Style:
    """What one parameter without followers does."""
    if code == 0:
        return PLAIN
    if code in _SET:
        return _with(style, **{_SET[code]: True})
    if code in _UNSET:
        return _with(style, **dict.fromkeys(_UNSET[code], False))
    for first, target, offset in ((30, "fore", 0), (40, "back", 0), (90, "fore", 8), (100, "back", 8)):
        if first <= code < first + 8:
            return _with(style, **{target: NAMES[code - first + offset]})
    if code in (39, 49):
        return _with(style, **{"fore" if code == 39 else "back": ""})
    return style


def _colons(style: Style, words: list[str]) -> Style:
    """A parameter with parts of its own: `38:2::r:g:b`, `4:3`."""
    code = _number(words[0])
    if code in _TARGETS:
        rest = words[1:]
        if len(rest) > 4 and rest[0] == "2":
            del rest[1]  # the colour space
        colour, _ = _colour(rest)
        return style if colour is None else _with(style, **{_TARGETS[code]: colour})
    if code == 4:
        return style._replace(underline=_number(words[1]) != 0)
    return _single(style, code)


def graphics(style: Style, parameters: str) -> Style:
    """`style` after a Select Graphic Rendition with these parameters."""
    words = parameters.split(";")
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if ":" in word:
            style = _colons(style, word.split(":"))
            continue
        code = _number(word)
        if code in _TARGETS:
            colour, taken = _colour(words[at:])
            at += taken
            style = style if colour is None else _with(style, **{_TARGETS[code]: colour})
        else:
            style = _single(style, code)
    return style


class _OpenLine:
    """The line the cursor is in: runs of text, and where in them writing goes on."""

    __slots__ = ("cursor", "length", "spans")

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.length = 0
        self.cursor = 0

    def write(self, style: Style, text: str) -> None:
        """Put `text` at the cursor, over what is there."""
        if self.cursor < self.length:
            before, after = self._take(0, self.cursor), self._take(self.cursor + len(text), self.length)
            self.spans = before
            self._append(style, text)
            for old, rest in after:
                self._append(old, rest)
        else:
            self._append(style, text)
        self.cursor += len(text)
        self.length = max(self.length, self.cursor)

    def _append(self, style: Style, text: str) -> None:
        if self.spans and self.spans[-1][0] == style:
            self.spans[-1] = (style, self.spans[-1][1] + text)
        else:
            self.spans.append((style, text))

    def _take(self, first: int, end: int) -> list[Span]:
        found: list[Span] = []
        at = 0
        for style, text in self.spans:
            part = text[max(0, first - at) : max(0, end - at)]
            if part:
                found.append((style, part))
            at += len(text)
        return found

    def erase(self, how: int) -> None:
        """Erase to the end (0), to the cursor (1), or all of it (2); the cursor stays."""
        cursor = self.cursor
        if how == 0:
            self.spans = self._take(0, cursor)
            self.length = min(self.length, cursor)
        elif how == 1:
            blank = min(cursor + 1, self.length)
            if blank:
                self.cursor = 0
                self.write(PLAIN, " " * blank)
                self.cursor = cursor
        elif how == 2:
            self.spans, self.length = ([(PLAIN, " " * cursor)], cursor) if cursor else ([], 0)


class _Terminal:
    """Text in pieces to lines."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        """Whole lines, for the taker to take."""
        self.line = _OpenLine()
        self.glued = False
        self._style = PLAIN
        self._held = ""
        self._string = False

    def feed(self, text: str) -> None:
        text, self._held = self._held + text, ""
        at, end = 0, len(text)
        while at < end:
            if self._string:
                found = _STRING_END.search(text, at)
                if found is None:
                    return
                self._string = False
                at = found.start() + (text[found.start()] not in "\x1b\n")
                continue
            found = _ACTS.search(text, at)
            stop = found.start() if found is not None else end
            if stop > at:
                self._put(visible(text[at:stop]))
            if found is None:
                return
            at = self._act(text, stop)

    def _put(self, text: str) -> None:
        """Text that holds no control character but ends of lines."""
        if "\n" not in text:
            self._write(text)
            return
        first, *between, last = text.split("\n")
        self._write(first)
        self._end_line()
        for piece in between:
            if len(piece) > LINE_CHARS:
                self._write(piece)
                self._end_line()
            else:
                spans = ((self._style, piece),) if piece else ()
                self.lines.append((spans, False, len(piece) + SPAN_CHARS * len(spans)))
        self._write(last)

    def _write(self, text: str) -> None:
        line = self.line
        while text:
            room = LINE_CHARS - line.cursor
            if room <= 0 or (len(line.spans) >= LINE_SPANS and line.cursor >= line.length):
                self._end_line(glued=True)
                line, room = self.line, LINE_CHARS
            line.write(self._style, text[:room])
            text = text[room:]

    def open_line(self) -> Line:
        """The line the cursor is in, as it is now."""
        spans = self.line.spans
        return tuple(spans), self.glued, self.line.length + SPAN_CHARS * len(spans)

    def _end_line(self, *, glued: bool = False) -> None:
        self.lines.append(self.open_line())
        self.line = _OpenLine()
        self.glued = glued

    def _act(self, text: str, at: int) -> int:
        """Carry out the control character at `at`; where to go on."""
        char = text[at]
        if char == "\x1b":
            return self._escape(text, at)
        if char == "\x9b":
            return self._csi(text, at, at + 1)
        if char in _STRINGS:
            self._string = True
        elif char == "\r":
            self.line.cursor = 0
        elif char == "\b":
            self.line.cursor = max(0, self.line.cursor - 1)
        elif char in _NEWLINES:
            self._end_line()
        return at + 1

    def _hold(self, text: str, at: int) -> int:
        """The rest decides what this is: it is looked at again with what follows."""
        self._held = text[at:]
        return len(text)

    def _escape(self, text: str, at: int) -> int:
        if at + 1 >= len(text):
            return self._hold(text, at)
        char = text[at + 1]
        if char == "[":
            return self._csi(text, at, at + 2)
        if char in _ESCAPED_STRINGS:
            self._string = True
        elif found := _CHARSET.match(text, at + 1):
            if found.end() == len(text):
                return self._hold(text, at)
            return found.end() + ("0" <= text[found.end()] <= "~")
        elif char == "c":
            self._style = PLAIN
        elif char in "DE":
            self._end_line()
        elif not "0" <= char <= "~":
            return at + 1
        return at + 2

    def _csi(self, text: str, at: int, begin: int) -> int:
        found = _CSI.match(text, begin)
        assert found is not None
        end = found.end()
        if end == len(text):
            return self._hold(text, at)
        final = text[end]
        if not "@" <= final <= "~":
            return end
        parameters = found[1]
        if not found[2] and not parameters.startswith(("<", "=", ">", "?")):
            if final == "m":
                self._style = graphics(self._style, parameters)
            elif final == "K":
                self.line.erase(_number(parameters))
            elif final == "G":
                self.line.cursor = max(0, min(_number(parameters) - 1, self.line.length))
        return end + 1


def make_row(lines: Iterable[Line], *, first: bool, last: bool, still_open: bool = False) -> Row:
    """One row of these lines."""
    spans: list[Span] = []
    joined = False
    for place, (parts, glued, _) in enumerate(lines):
        if place == 0:
            joined = glued
        elif not glued:
            spans.append((PLAIN, "\n"))
        spans += parts
    text = "".join(part for _, part in spans)
    return Row(
        "output", text, first=first, last=last, joined=joined and not first, open=still_open, spans=tuple(spans)
    )  # fmt: skip


class OutputSplitter:
    """What a command wrote to `closed` rows and the open `tail`."""

    def __init__(self) -> None:
        self.closed: list[Row] = []
        self.tail: list[Row] = []
        self.line_count = 0
        self._terminal = _Terminal()
        self._lines: list[Line] = []
        self._weight = 0
        self._recent: deque[Line] = deque(maxlen=ENDING_LINES)
        self._finished = False

    def feed(self, text: str) -> None:
        """Take `text` in; `closed` may grow, `tail` is made anew."""
        self._terminal.feed(text)
        lines, self._terminal.lines = self._terminal.lines, []
        for line in lines:
            self._add(line)
        self._recent += lines[-ENDING_LINES:]
        self.tail = list(self._rest(still_open=True))

    def finish(self) -> None:
        """The text is whole: everything closes."""
        self.closed += list(self._rest(still_open=False))
        if (line := self._open_line()) is not None:
            self.line_count += not line[1]
            self._recent.append(line)
        self._lines, self._weight = [], 0
        self._finished = True
        self.tail = []

    def ending(self) -> Row | None:
        """The last lines, however long the output is; None where there are none."""
        lines = list(self._recent)
        if not self._finished and (line := self._open_line()) is not None:
            lines = [*lines, line][-ENDING_LINES:]
        room = ENDING_CHARS
        kept: list[Line] = []
        for line in reversed(lines):
            if kept and room <= 0:
                break
            kept.append(_last_part(line, room))
            room -= kept[-1][2]
        return make_row(reversed(kept), first=True, last=True, still_open=not self._finished) if kept else None

    def _open_line(self) -> Line | None:
        terminal = self._terminal
        return terminal.open_line() if terminal.line.length or terminal.glued else None

    def _full(self, line: Line) -> bool:
        lines = len(self._lines)
        return lines > 0 and (lines >= OUTPUT_LINES or self._weight + line[2] > OUTPUT_CHARS)

    def _add(self, line: Line) -> None:
        self.line_count += not line[1]
        if self._full(line):
            self.closed.append(make_row(self._lines, first=not self.closed, last=False))
            self._lines, self._weight = [], 0
        self._lines.append(line)
        self._weight += line[2]

    def _rest(self, *, still_open: bool) -> Iterator[Row]:
        """Rows of the lines that are not in `closed`."""
        lines, line = self._lines, self._open_line()
        first = not self.closed
        if line is not None and self._full(line):
            yield make_row(lines, first=first, last=False, still_open=still_open)
            lines, first = [], False
        if line is not None:
            lines = [*lines, line]
        if lines:
            yield make_row(lines, first=first, last=True, still_open=still_open)


def _last_part(line: Line, room: int) -> Line:
    """`line`, or as much of its end as there is room for."""
    spans, _, weight = line
    if weight <= room:
        return line
    kept: list[Span] = []
    for style, text in reversed(spans):
        if room <= 0:
            break
        kept.append((style, text[-room:]))
        room -= len(kept[-1][1]) + SPAN_CHARS
    kept.append((Style(faint=True), "…"))
    return tuple(reversed(kept)), False, weight


def plain(text: str) -> str:
    """The whole of what a command wrote as the lines one sees, without any look."""
    splitter = OutputSplitter()
    splitter.feed(text)
    splitter.finish()
    return joined(splitter.closed)


def joined(rows: Iterable[Row]) -> str:
    """Rows as one text."""
    return "".join(row.text if row.first or row.joined else "\n" + row.text for row in rows)
