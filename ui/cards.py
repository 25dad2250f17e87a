"""What a harness did, as lines of the transcript: plan, command, tool and changed file.

Owns which lines a card has, folded and unfolded, and how much of a long output is shown. Must not know
Qt, the channel or any wording. Invariants: a folded card has at most two lines besides its head, each
bounded, however long the text behind it is; an unfolded one shows all of it, in bounded rows.
"""

from dataclasses import dataclass
from typing import Literal

from ui.text.ansi import OutputSplitter
from ui.text.blocks import CODE_CHARS, CODE_LINES, MarkdownSplitter, PlainSplitter, Row, Splitter
from ui.text.diff import DiffSplitter
from ui.text.pretty import pretty
from ui.text.visible import visible
from ui.wire.dto import Card, Item, ItemState, ToolCard

CARDS = frozenset({"plan", "command", "tool", "change"})
"""Kinds of items that are shown as cards."""

COMMAND_LINES = 3
COMMAND_CHARS = 240
"""A command longer than this is cut while its card is folded."""

ENDING_CHARS = 4_000
"""So much of the end of an output is kept while what lies before it is not here."""

LineKind = Literal[
    "user", "text", "heading", "code", "table", "rule", "reasoning", "notice", "note", "foot", "more", "unloaded",
    "plan", "command", "tool", "change", "label", "output", "diff",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Head:
    """What stands at the top of a card. `lines` is how many its text has, 0 where that is not known."""

    state: ItemState
    code: str
    detail: str
    card: Card | None
    expanded: bool = False
    foldable: bool = False
    lines: int = 0
    chars: int = 0
    attached: bool = False
    """The row below belongs to it without a gap."""


@dataclass(slots=True)
class Line:
    """One row of the list: a block of an item, or something about the item (`about`)."""

    kind: LineKind
    row: Row | None = None
    quiet: bool = False
    about: object = None

    def same_shape(self, other: "Line") -> bool:
        """Whether a view can go from one to the other by new text alone."""
        return self.kind == other.kind


@dataclass(slots=True)
class Ending:
    """The end of a text whose middle is not here."""

    at: int = 0
    text: str = ""

    def add(self, at: int, text: str) -> None:
        """Text from character `at` on: what joins up is kept, anything else begins anew."""
        if at != self.at + len(self.text) or not self.text:
            self.at, self.text = at, ""
        self.text += text
        over = len(self.text) - ENDING_CHARS
        if over > 0:
            self.at, self.text = self.at + over, self.text[over:]

    def row(self) -> Row | None:
        """Its last lines; the first one, of which the beginning is missing, is left out if it can be."""
        _, newline, rest = self.text.partition("\n")
        splitter = OutputSplitter()
        splitter.feed(rest if newline and rest else self.text)
        return splitter.ending()


def splitter_for(item: Item) -> Splitter:
    """How the text of an item is cut into rows."""
    if item.kind in ("command", "tool"):
        return OutputSplitter()
    if item.kind == "change":
        return DiffSplitter()
    return PlainSplitter() if item.kind in ("user", "notice", "plan") else MarkdownSplitter()


def code_rows(text: str, language: str) -> list[Row]:
    """Rows of code that is whole."""
    rows: list[Row] = []
    lines = [line[at : at + CODE_CHARS] for line in text.split("\n") for at in range(0, max(1, len(line)), CODE_CHARS)]
    taken: list[str] = []
    for line in lines:
        if taken and (len(taken) >= CODE_LINES or sum(map(len, taken)) + len(line) > CODE_CHARS):
            rows.append(Row("code", "\n".join(taken), language=language, first=not rows, last=False))
            taken = []
        taken.append(line)
    rows.append(Row("code", "\n".join(taken), language=language, first=not rows))
    return rows


def lines_of(
    item: Item, splitter: Splitter, ending: Ending, *, expanded: bool, size_chars: int, complete: bool, more: Line
) -> list[Line]:
    """The lines of a card.

    Args:
        item: The item as the host last told it.
        splitter: Its text in rows, as far as it is here.
        ending: The end of the text, where what is here does not reach it.
        expanded: Whether the person unfolded it.
        size_chars: How long the whole text is.
        complete: Whether all of it is here.
        more: The line that asks for the rest.
    """
    rows = [*splitter.closed, *splitter.tail]
    body: list[Line]
    if isinstance(item.card, ToolCard) or item.kind == "tool":
        body, foldable = _of_tool(item, rows, expanded=expanded, size_chars=size_chars)
        unfinished = not complete and expanded
    elif item.kind == "plan":
        body, foldable, unfinished = [], False, False
    else:
        short = _short(splitter, ending, complete=complete)
        whole = complete and len(rows) <= 1 and (not rows or (short is not None and rows[0].text == short.text))
        foldable = not whole or _long_command(item)
        shown = rows if expanded or whole else [short] if short is not None else []
        kind: LineKind = "diff" if item.kind == "change" else "output"
        body = [Line(kind, row) for row in shown]
        unfinished = not complete and (expanded or not shown)
    if unfinished:
        body.append(more)
    head = Head(
        item.state, item.code, item.detail, item.card, expanded=expanded, foldable=foldable,
        lines=getattr(splitter, "line_count", 0) if complete and item.state != "open" else 0,
        chars=size_chars if item.state != "open" else 0,
        attached=bool(body) and body[0].kind in ("output", "diff"),
    )  # fmt: skip
    return [Line(_KINDS[item.kind], about=head), *body]


_KINDS: dict[str, LineKind] = {"plan": "plan", "command": "command", "tool": "tool", "change": "change"}


def _short(splitter: Splitter, ending: Ending, *, complete: bool) -> Row | None:
    """What a folded card shows of its text: the end of an output, the beginning of a diff."""
    if isinstance(splitter, DiffSplitter):
        return splitter.beginning()
    if not complete:
        return ending.row()
    return splitter.ending() if isinstance(splitter, OutputSplitter) else None


def _long_command(item: Item) -> bool:
    command = getattr(item.card, "command", "")
    return command.count("\n") >= COMMAND_LINES or len(command) > COMMAND_CHARS


def _of_tool(item: Item, rows: list[Row], *, expanded: bool, size_chars: int) -> tuple[list[Line], bool]:
    card = item.card
    arguments = card.arguments if isinstance(card, ToolCard) else ""
    said = arguments.strip() not in ("", "{}")
    foldable = said or size_chars > 0
    if not expanded:
        return [], foldable
    body: list[Line] = []
    if said and isinstance(card, ToolCard):
        body.append(Line("label", about="Arguments, of which the end was cut off" if card.cut else "Arguments"))
        body += [Line("code", row) for row in code_rows(visible(pretty(arguments)), "json")]
    if size_chars > 0:
        body.append(Line("label", about="Result" if item.state != "open" else "Result so far"))
        body += [Line("output", row) for row in rows]
    return body, foldable
