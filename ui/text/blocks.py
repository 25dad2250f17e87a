"""Markdown text, as it streams in, to rows: closed ones that never change and an open tail.

Owns the block structure of CommonMark (with tables), line by line: each whole line is looked
at once, and only the open leaf is kept. Must not know Qt, colours or inline markup (a row
keeps its inline source). Invariants: `closed` only grows and its rows never change; any
cutting of the text into pieces gives the same rows; no row is larger than its bound, so that
the cost of a piece depends neither on the length of the message nor on that of an open fence.

Raw HTML is no construct here: it is text. Whole messages are not given to markdown-it because
a streamed text would have to be parsed again from its start; it parses the inline text of a
row (`rich`), and tests hold this block structure against its own.
"""

import copy
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from ui.text.styles import Span
from ui.text.visible import Lines

LINE_CHARS = 2_000
"""A physical line is taken in pieces of at most this."""
PARAGRAPH_CHARS = 4_000
CODE_LINES = 24
CODE_CHARS = 2_400
TABLE_LINES = 30
TABLE_CELLS = 24
DEPTH = 8
"""Containers deeper than this are text."""

RowKind = Literal["text", "heading", "code", "table", "rule", "output", "diff"]


@dataclass(frozen=True, slots=True)
class Row:
    """One block, or a bounded part of a long one.

    `text` is source: inline markdown, code, or table lines; of output and of a diff it is what is shown.
    """

    kind: RowKind
    text: str = ""
    level: int = 0
    depth: int = 0
    marker: str = ""
    quote: int = 0
    language: str = ""
    first: bool = True
    last: bool = True
    joined: bool = False
    """Goes on where the row above was cut, inside a line."""
    tight: bool = False
    """No blank line lies before it."""
    cells: tuple[tuple[str, ...], ...] = ()
    aligns: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    """Percent of each table column; the same in each part of a long table."""
    open: bool = False
    spans: tuple[Span, ...] = ()
    """Of output and of a diff: its text with its looks."""
    references: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(slots=True)
class _Container:
    quote: bool
    offset: int = 0
    marker: str = ""
    shown: bool = False
    empty: bool = False


@dataclass(slots=True)
class _Leaf:
    kind: Literal["text", "fence", "indented", "table"]
    text: str = ""
    lines: int = 0
    fence: str = ""
    offset: int = 0
    language: str = ""
    blanks: int = 0
    begun: bool = False
    """A part of it is already among the closed rows."""
    glued: bool = False
    midline: bool = False
    tight: bool = False
    cells: tuple[tuple[str, ...], ...] = ()
    aligns: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()


_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*\Z")
_FENCE = re.compile(r"( {0,3})(?:(`{3,})([^`]*)|(~{3,})(.*))\Z")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}\Z")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*\Z")
_BULLET = re.compile(r"( {0,3})(?:([-+*])|(\d{1,9})([.)]))(?=[ \t]|\Z)")
_DELIMITER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\Z")
_UNDECIDED = re.compile(r"[\s\-=*_#>+|`~:\d.)\[\]\\]*\Z")
_DEFINITION = re.compile(r" {0,3}\[[^\[\]]+\]:")
_TASK = re.compile(r"\[([ xX])\][ \t]+")
_PIPE = re.compile(r"(?<!\\)\|")


def _indent(text: str, at: int = 0) -> int:
    """Columns of leading white space of `text`, which begins in column `at`."""
    column = at
    for char in text:
        if char == " ":
            column += 1
        elif char == "\t":
            column += 4 - column % 4
        else:
            break
    return column - at


def _strip(text: str, columns: int, at: int = 0) -> str:
    """`text` without up to `columns` of leading white space; a tab cut in two leaves spaces."""
    column, end = at, at + columns
    for position, char in enumerate(text):
        if column >= end:
            return " " * (column - end) + text[position:]
        if char == " ":
            column += 1
        elif char == "\t":
            column += 4 - column % 4
        else:
            return text[position:]
    return " " * max(0, column - end)


def _cut(text: str, most: int, window: int = 80) -> int:
    """Where to cut `text`, which is longer than `most`: after its last space near there."""
    space = max(text.rfind(" ", most - window, most), text.rfind("\n", most - window, most))
    return space + 1 if space > 0 else most


def split_cells(line: str) -> tuple[str, ...]:
    """Cells of one table line."""
    body = line.strip()
    if body.startswith("|"):
        body = body[1:]
    if body.endswith("|") and not body.endswith("\\|"):
        body = body[:-1]
    return tuple(cell.strip().replace("\\|", "|") for cell in _PIPE.split(body))


def _aligns(line: str) -> tuple[str, ...]:
    names = {(True, True): "center", (False, True): "right", (True, False): "left", (False, False): ""}
    return tuple(names[cell.startswith(":"), cell.endswith(":")] for cell in split_cells(line))


def _widths(cells: tuple[tuple[str, ...], ...]) -> tuple[int, ...]:
    columns = len(cells[0])
    longest = [max(4, *(min(48, len(row[c])) if c < len(row) else 0 for row in cells)) for c in range(columns)]
    total = sum(longest)
    return tuple(max(1, round(100 * chars / total)) for chars in longest)


class _Machine:
    """One whole line after another; rows that close go to `out`."""

    def __init__(self, references: dict[str, Any]) -> None:
        self.containers: list[_Container] = []
        self.leaf: _Leaf | None = None
        self.out: list[Row] = []
        self.blank = True
        self.tentative = False
        self.references = references

    def fork(self) -> "_Machine":
        """The same state with its own open leaf: lines given to it leave this one as it is."""
        twin = copy.copy(self)
        twin.containers = [copy.copy(container) for container in self.containers]
        twin.leaf = copy.copy(self.leaf)
        twin.out = []
        twin.tentative = True
        return twin

    # ------------------------------------------------------------------ closing

    def _emit(self, row: Row) -> None:
        quote = sum(container.quote for container in self.containers)
        depth = len(self.containers) - quote
        marker = ""
        for container in self.containers:
            if not container.quote and not container.shown:
                marker, container.shown = container.marker, True
        if marker == "•" and row.kind == "text" and (task := _TASK.match(row.text)):
            marker = "☐" if task[1] == " " else "☑"
            row = replace(row, text=row.text[task.end() :])
        self.out.append(replace(row, quote=quote, depth=depth, marker=marker, references=self.references))

    def _close_leaf(self) -> None:
        leaf, self.leaf = self.leaf, None
        if leaf is None:
            return
        if leaf.kind == "text":
            text = leaf.text.strip() if leaf.glued else self._without_definitions(leaf.text.strip())
            if text:
                self._emit(Row("text", text, joined=leaf.glued, tight=leaf.tight))
        elif leaf.kind == "table":
            self._emit_table(leaf, last=True)
        else:
            self._emit_code(leaf, last=True)

    def _without_definitions(self, text: str) -> str:
        """Take link reference definitions off the front of a paragraph."""
        if self.tentative or not _DEFINITION.match(text):
            return text
        from ui.text.rich import definitions

        return definitions(text, self.references)

    def _emit_code(self, leaf: _Leaf, *, last: bool) -> None:
        row = Row("code", leaf.text, language=leaf.language, first=not leaf.begun, last=last)
        self._emit(replace(row, joined=leaf.glued, tight=leaf.tight))

    def _emit_table(self, leaf: _Leaf, *, last: bool) -> None:
        widths = leaf.widths or _widths(leaf.cells)
        row = Row("table", cells=leaf.cells, aligns=leaf.aligns, widths=widths, first=not leaf.begun, last=last)
        leaf.widths = widths
        self._emit(replace(row, tight=leaf.tight))

    def _leave(self, matched: int) -> None:
        """Close the leaf and every container past the first `matched`."""
        self._close_leaf()
        while len(self.containers) > matched:
            innermost = self.containers[-1]
            if not innermost.quote and not innermost.shown:
                self._emit(Row("text", tight=not self.blank))
            self.containers.pop()

    def close(self) -> None:
        """The text ends here."""
        self._leave(0)

    # ------------------------------------------------------------------ open leaves

    def _add_code(self, text: str, *, newline: bool) -> None:
        """Add one line, or with `newline` false the rest of one, to the open code."""
        leaf = self.leaf
        assert leaf is not None
        if leaf.lines and ((leaf.lines >= CODE_LINES and newline) or len(leaf.text) + len(text) > CODE_CHARS):
            self._emit_code(leaf, last=False)
            leaf.text, leaf.lines, leaf.begun = "", 0, True
            leaf.glued = not newline
            newline = True
        if newline:
            leaf.text += ("\n" if leaf.lines else "") + text
            leaf.lines += 1
        else:
            leaf.text += text

    def _add_text(self, text: str) -> None:
        leaf = self.leaf
        assert leaf is not None
        leaf.text += text
        while len(leaf.text) > PARAGRAPH_CHARS:
            cut = _cut(leaf.text, PARAGRAPH_CHARS)
            self._emit(Row("text", leaf.text[:cut].strip(), joined=leaf.glued, tight=leaf.tight))
            leaf.text, leaf.glued = leaf.text[cut:], True

    def _begin(self, leaf: _Leaf) -> None:
        self._close_leaf()
        leaf.tight = not self.blank
        self.leaf = leaf
        self.blank = False

    # ------------------------------------------------------------------ lines

    def rest_of_line(self, text: str) -> None:
        """A further piece of a line that was longer than a piece may be."""
        leaf = self.leaf
        if leaf is not None and leaf.kind in ("fence", "indented"):
            self._add_code(text, newline=False)
            return
        if leaf is None or leaf.kind != "text":
            self._begin(_Leaf("text", glued=True))
        self._add_text(text)

    def line(self, text: str, *, whole: bool = True) -> None:
        """One line without its end; `whole` is false when the rest of it follows."""
        matched, rest = self._match(text)
        inside = matched == len(self.containers)
        leaf = self.leaf
        if inside and leaf is not None and leaf.kind == "fence":
            self._fence_line(leaf, rest)
            return
        if not rest.strip():
            self._blank_line(matched)
            return
        if inside and leaf is not None and leaf.kind == "text" and self._underlined(leaf, rest, whole=whole):
            return
        self._open_line(matched, rest, whole=whole)

    def _match(self, text: str) -> tuple[int, str]:
        """How many containers go on in this line, and what is left of it."""
        rest = text
        blank = not text.strip()
        for count, container in enumerate(self.containers):
            indent = _indent(rest)
            if container.quote:
                if indent > 3 or not rest.lstrip().startswith(">"):
                    return count, rest
                rest = rest.lstrip()[1:]
                if rest[:1] in (" ", "\t"):
                    rest = _strip(rest, 1)
                blank = not rest.strip()
            elif blank:
                if container.empty:
                    return count, rest
            elif indent >= container.offset:
                rest = _strip(rest, container.offset)
            else:
                return count, rest
        return len(self.containers), rest

    def _fence_line(self, leaf: _Leaf, rest: str) -> None:
        stripped = rest.strip()
        if (
            _indent(rest) <= 3
            and len(stripped) >= len(leaf.fence)
            and stripped[0] == leaf.fence[0]
            and not stripped.strip(leaf.fence[0])
        ):
            self._close_leaf()
            self.blank = False
        else:
            self._add_code(_strip(rest, leaf.offset), newline=True)

    def _blank_line(self, matched: int) -> None:
        leaf = self.leaf
        if leaf is not None and leaf.kind == "indented" and matched == len(self.containers):
            leaf.blanks += 1
        else:
            self._leave(matched)
        self.blank = True

    def _underlined(self, leaf: _Leaf, rest: str, *, whole: bool) -> bool:
        """Whether this line turns the open paragraph into a heading or a table."""
        if underline := _SETEXT.match(rest):
            self.leaf = None
            text = self._without_definitions(leaf.text.strip())
            if text:
                level = 1 if underline[1][0] == "=" else 2
                self._emit(Row("heading", " ".join(text.split("\n")), level=level, tight=leaf.tight))
                self.blank = False
                return True
            self.leaf = _Leaf("text", tight=leaf.tight)
            return False
        if not whole or "|" not in rest or not _DELIMITER.match(rest):
            return False
        before, _, header = leaf.text.rpartition("\n")
        titles, aligns = split_cells(header), _aligns(rest)
        if len(titles) != len(aligns) or len(titles) > TABLE_CELLS:
            return False
        leaf.text = before
        tight = leaf.tight
        if before.strip():
            self._close_leaf()
            tight = True
        self.leaf = _Leaf("table", lines=1, cells=(titles,), aligns=aligns, tight=tight)
        return True

    def _open_line(self, matched: int, rest: str, *, whole: bool) -> None:
        """A line that is neither blank nor inside a fence: new containers, then its leaf."""
        entered = matched == len(self.containers)
        fresh = False
        while True:
            leaf = self.leaf if entered and not fresh else None
            paragraph = leaf is not None and leaf.kind == "text"
            if _indent(rest) >= 4:
                if self.leaf is not None and self.leaf.kind == "text" and not fresh:
                    break
                self._indented(matched if not fresh else len(self.containers), rest)
                return
            container = self._container(rest, paragraph=paragraph)
            if container is None:
                break
            if not fresh:
                self._leave(matched)
            fresh = True
            opened, rest = container
            self.containers.append(opened)
            if not rest.strip():
                return
        if self._single(matched, rest, fresh=fresh):
            return
        self._text_line(matched, rest, fresh=fresh, whole=whole)

    def _container(self, rest: str, *, paragraph: bool) -> tuple[_Container, str] | None:
        """The container that opens here, and the line inside it."""
        if len(self.containers) >= DEPTH:
            return None
        body = rest.lstrip()
        if body.startswith(">"):
            inner = body[1:]
            return _Container(quote=True), _strip(inner, 1) if inner[:1] in (" ", "\t") else inner
        if _RULE.match(rest) or not (found := _BULLET.match(rest)):
            return None
        inner = rest[found.end() :]
        empty = not inner.strip()
        if paragraph and (empty or (found[3] and int(found[3]) != 1)):
            return None
        width = len(found[0])
        space = _indent(inner, width)
        padding = 1 if empty or space > 4 else space
        marker = "•" if found[2] else f"{int(found[3])}{found[4]}"
        opened = _Container(quote=False, offset=width + padding, marker=marker, empty=empty)
        return opened, "" if empty else _strip(inner, padding, width)

    def _indented(self, matched: int, rest: str) -> None:
        leaf = self.leaf
        if leaf is None or leaf.kind != "indented" or matched != len(self.containers):
            self._leave(matched)
            self._begin(_Leaf("indented"))
            leaf = self.leaf
        assert leaf is not None
        for _ in range(leaf.blanks):
            self._add_code("", newline=True)
        leaf.blanks = 0
        self._add_code(_strip(rest, 4), newline=True)
        self.blank = False
        self._filled()

    def _single(self, matched: int, rest: str, *, fresh: bool) -> bool:
        """Headings, rules and the opening of a fence."""
        heading, fence = _HEADING.match(rest), _FENCE.match(rest)
        rule = _RULE.match(rest)
        if heading is None and fence is None and rule is None:
            return False
        if not fresh:
            self._leave(matched)
        if fence is not None:
            info = (fence[3] or fence[5] or "").strip()
            mark = fence[2] or fence[4]
            self._begin(_Leaf("fence", fence=mark, offset=len(fence[1]), language=info.split(" ")[0][:40]))
        elif heading is not None:
            self._emit(Row("heading", (heading[2] or "").strip(), level=len(heading[1]), tight=not self.blank))
            self.blank = False
        else:
            self._emit(Row("rule", tight=not self.blank))
            self.blank = False
        self._filled()
        return True

    def _text_line(self, matched: int, rest: str, *, fresh: bool, whole: bool) -> None:
        leaf = self.leaf
        body = rest.strip(" \t") if whole and not rest.endswith("  ") else rest.lstrip(" \t")
        if leaf is not None and leaf.kind == "text" and not fresh:
            self._add_text("\n" + body)  # also a lazy continuation of a paragraph in unmatched containers
            return
        if leaf is not None and leaf.kind == "table" and not fresh and whole and matched == len(self.containers):
            self._table_line(leaf, rest)
            return
        if not fresh:
            self._leave(matched)
        self._begin(_Leaf("text"))
        self._add_text(body)
        self._filled()

    def _table_line(self, leaf: _Leaf, rest: str) -> None:
        if leaf.lines >= TABLE_LINES:
            self._emit_table(leaf, last=False)
            leaf.cells, leaf.lines, leaf.begun = (), 0, True
        cells = split_cells(rest)[: len(leaf.aligns)]
        leaf.cells += (cells + ("",) * (len(leaf.aligns) - len(cells)),)
        leaf.lines += 1

    def _filled(self) -> None:
        for container in self.containers:
            container.empty = False


class MarkdownSplitter:
    """Text in pieces to `closed` rows and the open `tail`."""

    def __init__(self) -> None:
        self.closed: list[Row] = []
        self.tail: list[Row] = []
        self._lines = Lines()
        self._partial = ""
        self._inside_line = False
        self._machine = _Machine({})

    def feed(self, text: str) -> None:
        """Take `text` in; `closed` may grow, `tail` is made anew."""
        self._take(self._lines.feed(text))
        self._preview()

    def finish(self) -> None:
        """The text is whole: everything closes."""
        self._take(self._lines.finish())
        if self._partial:
            self._piece(self._partial, whole=True)
            self._partial = ""
        self._machine.close()
        self._collect()
        self.tail = []

    def _take(self, text: str) -> None:
        buffer = self._partial + text
        start = 0
        while True:
            end = buffer.find("\n", start)
            length = (end if end >= 0 else len(buffer)) - start
            if length > LINE_CHARS:
                cut = _cut(buffer[start : start + LINE_CHARS + 1], LINE_CHARS)
                self._piece(buffer[start : start + cut], whole=False)
                self._inside_line = True
                start += cut
            elif end >= 0:
                self._piece(buffer[start:end], whole=True)
                self._inside_line = False
                start = end + 1
            else:
                break
        self._partial = buffer[start:]
        self._collect()

    def _piece(self, text: str, *, whole: bool) -> None:
        if self._inside_line:
            self._machine.rest_of_line(text)
        else:
            self._machine.line(text, whole=whole)

    def _collect(self) -> None:
        if self._machine.out:
            self.closed += self._machine.out
            self._machine.out = []

    def _preview(self) -> None:
        """What is open now, the unfinished line included once it can no longer turn into something else."""
        twin = self._machine.fork()
        if self._partial:
            if self._inside_line:
                twin.rest_of_line(self._partial)
            elif not _UNDECIDED.match(self._partial):
                twin.line(self._partial)
        twin.close()
        self.tail = [replace(row, open=True) for row in twin.out]


class PlainSplitter:
    """The same for text that is no markup: what a person typed."""

    def __init__(self) -> None:
        self.closed: list[Row] = []
        self.tail: list[Row] = []
        self._lines = Lines()
        self._rest = ""
        self._glued = False

    def feed(self, text: str) -> None:
        self._rest += self._lines.feed(text)
        while len(self._rest) > PARAGRAPH_CHARS:
            cut = _cut(self._rest, PARAGRAPH_CHARS, PARAGRAPH_CHARS // 2)
            piece = self._rest[:cut]
            self._rest = self._rest[cut:]
            self._close(piece, last=False)
        self.tail = [self._row(self._rest, last=True, still_open=True)] if self._rest else []

    def finish(self) -> None:
        self._rest += self._lines.finish()
        if self._rest or not self.closed:
            self._close(self._rest, last=True)
        self._rest = ""
        self.tail = []

    def _row(self, text: str, *, last: bool, still_open: bool = False) -> Row:
        whole = text[:-1] if text.endswith("\n") and not last else text
        return Row("text", whole, first=not self.closed, last=last, joined=self._glued, open=still_open)

    def _close(self, text: str, *, last: bool) -> None:
        self.closed.append(self._row(text, last=last))
        self._glued = not text.endswith("\n")


class Splitter(Protocol):
    """Text in pieces to rows: closed ones that never change, and what is open."""

    closed: list[Row]
    tail: list[Row]

    def feed(self, text: str) -> None: ...
    def finish(self) -> None: ...
