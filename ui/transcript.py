"""The transcript as rows: what is loaded, where it lies, what is still to be asked for.

Owns the mapping between items (what the host counts) and rows (what the list shows), the text
of the items that are loaded, and which windows of items are on their way. Must not know Qt:
a `RowListener` is told of each change around it. Invariants: every item that is not loaded is
exactly one row; the cost of a change depends on what is loaded, never on `total`; at most
`KEPT_ITEMS` items stay loaded.
"""

import bisect
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal, Protocol

from msgspec.structs import replace

from ui.cards import CARDS, Ending, Line, lines_of, splitter_for
from ui.text.ansi import OutputSplitter, joined, plain
from ui.text.blocks import PlainSplitter, Splitter
from ui.text.visible import visible
from ui.wire.dto import TEXT_PIECE_CHARS, WINDOW_ITEMS, Item, ItemCard, ItemDelta, ItemDone, ItemText, ToolCard

ASK_ITEMS = 40
KEPT_ITEMS = 400
AHEAD_ITEMS = 40
"""Items loaded beyond either end of what is visible."""
FEED_CHARS = 16_384
"""So much of one item is taken in by one `flush`; the rest waits for the next, so that no frame waits for it."""

Space = Literal["none", "tight", "block", "section", "message"]


class RowListener(Protocol):
    """Who shows the rows. The model's own state changes inside each context."""

    def inserting(self, first: int, count: int) -> AbstractContextManager[object]: ...
    def removing(self, first: int, count: int) -> AbstractContextManager[object]: ...
    def resetting(self) -> AbstractContextManager[object]: ...
    def changed(self, first: int, count: int) -> None: ...


class NoListener:
    """Rows that nobody shows yet."""

    def inserting(self, first: int, count: int) -> AbstractContextManager[object]:
        return nullcontext()

    def removing(self, first: int, count: int) -> AbstractContextManager[object]:
        return nullcontext()

    def resetting(self) -> AbstractContextManager[object]:
        return nullcontext()

    def changed(self, first: int, count: int) -> None:
        pass


@dataclass(slots=True)
class Entry:
    """A loaded item."""

    item: Item
    index: int
    splitter: Splitter
    text: list[str] = field(default_factory=list)
    chars: int = 0
    size_chars: int = 0
    fed: int = 0
    lines: list[Line] = field(default_factory=list)
    settled: int = 0
    """So many of `lines`, from the start, never change any more."""
    finished: bool = False
    expanded: bool = False
    asking: bool = False
    answers: int = 0
    """How often the host answered with more of its text."""
    ending: Ending = field(default_factory=Ending)

    @property
    def open(self) -> bool:
        return self.item.state == "open"

    @property
    def complete(self) -> bool:
        """All of its text is here."""
        return self.chars >= self.size_chars

    def whole_text(self) -> str:
        return "".join(self.text)

    def seen_text(self) -> str:
        """What is here of it, as it is seen: of an output the lines that a terminal shows."""
        if not isinstance(self.splitter, OutputSplitter):
            return visible(self.whole_text())
        whole = self.fed == len(self.text)
        return joined([*self.splitter.closed, *self.splitter.tail]) if whole else plain(self.whole_text())


def quiet(item: Item) -> bool:
    """Whether a notice tells of something on the way, not of how a run ended or what became of the store."""
    return item.kind == "notice" and item.state == "complete" and item.run is not None


class Transcript:
    """Rows of the selected conversation."""

    def __init__(self) -> None:
        self.listener: RowListener = NoListener()
        self.conversation: str | None = None
        self.total = 0
        self._entries: dict[int, Entry] = {}
        self._by_id: dict[str, int] = {}
        self._order: list[int] = []
        self._starts: list[int] = []
        self._rows = 0
        self._asked: set[int] = set()
        self._dirty: set[int] = set()
        self._visible = (0, 0)

    # ------------------------------------------------------------------ reading

    @property
    def row_count(self) -> int:
        return self._rows

    def entry(self, index: int) -> Entry | None:
        return self._entries.get(index)

    def by_id(self, item: str) -> Entry | None:
        index = self._by_id.get(item)
        return None if index is None else self._entries.get(index)

    def last(self) -> Entry | None:
        """The newest item, if it is loaded."""
        return self._entries.get(self.total - 1)

    def entries(self) -> Iterator[Entry]:
        return (self._entries[index] for index in self._order)

    def waiting(self) -> Iterator[str]:
        """The operations among what is loaded that wait for the person, oldest first."""
        for entry in self.entries():
            card = entry.item.card
            if isinstance(card, ToolCard) and card.operation is not None and card.decided == "waiting":
                yield card.operation

    def locate(self, row: int) -> tuple[int, int]:
        """Item index of `row`, and the line inside it."""
        place = bisect.bisect_right(self._starts, row) - 1
        if place < 0:
            return row, 0
        index = self._order[place]
        start, lines = self._starts[place], len(self._entries[index].lines)
        if row < start + lines:
            return index, row - start
        return index + 1 + row - start - lines, 0

    def start_of(self, index: int) -> int:
        """First row of item `index`."""
        place = bisect.bisect_left(self._order, index)
        if place < len(self._order) and self._order[place] == index:
            return self._starts[place]
        if place == 0:
            return index
        before = self._order[place - 1]
        return self._starts[place - 1] + len(self._entries[before].lines) + index - before - 1

    def line(self, row: int) -> tuple[Entry | None, Line]:
        index, offset = self.locate(row)
        entry = self._entries.get(index)
        if entry is None:
            return None, Line("unloaded")
        return entry, entry.lines[offset]

    def space_above(self, row: int) -> Space:
        """How much air a row has above it."""
        index, offset = self.locate(row)
        if offset == 0:
            return ("block" if self._is_work(index) and self._is_work(index - 1) else "message") if index else "section"
        entry = self._entries.get(index)
        if entry is None:
            return "message"
        line = entry.lines[offset]
        if line.kind == "foot":
            return "tight"
        if entry.item.kind in CARDS and line.row is not None and line.row.first:
            return "none" if line.kind in ("output", "diff") and entry.item.kind != "tool" else "tight"
        block = line.row
        if block is None:
            return "block"
        if block.joined or not block.first:
            return "none"
        if block.kind == "heading":
            return "section"
        before = entry.lines[offset - 1].row
        if block.depth and (block.tight or block.marker) and before is not None and before.depth:
            return "tight"
        return "block"

    def _is_work(self, index: int) -> bool:
        """Whether an item is a step on the way: such stand closer together."""
        entry = self._entries.get(index)
        return entry is not None and (entry.item.kind in CARDS or entry.item.kind == "reasoning" or quiet(entry.item))

    def code_at(self, row: int) -> str:
        """The whole code block that `row` is a part of."""
        index, offset = self.locate(row)
        entry = self._entries.get(index)
        if entry is None:
            return ""
        first = last = offset
        while first > 0 and (block := entry.lines[first].row) is not None and block.kind == "code" and not block.first:
            first -= 1
        while last + 1 < len(entry.lines):
            following = entry.lines[last + 1].row
            if following is None or following.kind != "code" or following.first:
                break
            last += 1
        words = ""
        for line in entry.lines[first : last + 1]:
            if line.row is not None:
                words += ("" if not words or line.row.joined else "\n") + line.row.text
        return words

    # ------------------------------------------------------------------ asking

    def look(self, first_row: int, last_row: int) -> list[tuple[int, int]]:
        """The reader sees these rows: windows of items to ask for, as (first, count)."""
        if self.total == 0:
            return []
        first, _ = self.locate(max(0, min(first_row, self._rows - 1)))
        last, _ = self.locate(max(0, min(last_row, self._rows - 1)))
        self._visible = (first, last)
        low, high = max(0, first - AHEAD_ITEMS), min(self.total - 1, last + AHEAD_ITEMS)
        return self._windows(low, high)

    def _windows(self, low: int, high: int) -> list[tuple[int, int]]:
        windows: list[tuple[int, int]] = []
        run: list[int] = []
        for index in (*range(low, high + 1), None):
            missing = index is not None and index not in self._entries and index not in self._asked
            if index is not None and missing and len(run) < min(ASK_ITEMS, WINDOW_ITEMS):
                run.append(index)
                continue
            if run:
                windows.append((run[0], len(run)))
                self._asked.update(run)
                run = [index] if index is not None and missing else []
        return windows

    def want_text(self, row: int) -> tuple[str, int] | None:
        """The `more` row is seen: what of which item to ask for."""
        entry, line = self.line(row)
        if entry is None or line.kind != "more" or entry.asking:
            return None
        entry.asking = True
        if entry.item.kind == "command" and not entry.expanded:
            return entry.item.id, max(entry.chars, entry.size_chars - TEXT_PIECE_CHARS)  # its end is what is shown
        return entry.item.id, entry.chars

    def want_rest(self, item: str) -> int | None:
        """From which character on to ask for the rest of an item; None: it is on its way, or here, or gone."""
        entry = self.by_id(item)
        if entry is None or entry.complete or entry.asking:
            return None
        entry.asking = True
        return entry.chars

    # ------------------------------------------------------------------ changes

    def reset(self, conversation: str | None, total: int) -> None:
        """Another conversation, nothing loaded."""
        with self.listener.resetting():
            self.conversation = conversation
            self.total = total
            self._entries.clear()
            self._by_id.clear()
            self._order.clear()
            self._asked.clear()
            self._dirty.clear()
            self._visible = (max(0, total - 1), max(0, total - 1))
            self._index(0)

    def resize(self, total: int) -> None:
        """The host counts `total` items now."""
        if total > self.total:
            start = self._rows
            with self.listener.inserting(start, total - self.total):
                self.total = total
                self._index(len(self._order))
        elif total < self.total:
            start = self.start_of(total)
            gone = self._rows - start
            with self.listener.removing(start, gone) if gone else nullcontext():
                for index in [index for index in self._order if index >= total]:
                    self._drop(index)
                self.total = total
                self._index(0)

    def put(self, first: int, items: tuple[Item, ...], total: int) -> None:
        """A window of items came."""
        self.flush()
        self.resize(total)
        self._asked.difference_update(range(first, first + max(len(items), ASK_ITEMS)))
        for position, item in enumerate(items):
            if first + position < self.total:
                self._put_one(first + position, item)
        self.flush()
        self._evict()

    def add(self, index: int, item: Item) -> None:
        """An item was added at `index`."""
        self.flush()
        if index < self.total:
            self._put_one(index, item)
            self.flush()
            return
        self.resize(index)
        entry = self._make(index, item)
        start = self._rows
        with self.listener.inserting(start, len(entry.lines)) if entry.lines else nullcontext():
            self.total = index + 1
            self._keep(entry)
            self._index(len(self._order) - 1)

    def delta(self, message: ItemDelta) -> None:
        entry = self.by_id(message.item)
        if entry is None or not entry.open:
            return
        entry.size_chars = max(entry.size_chars, message.at + len(message.text))
        self._append(entry, message.at, message.text)

    def text(self, message: ItemText) -> None:
        """A further piece of a long item."""
        entry = self.by_id(message.item)
        if entry is None:
            return
        entry.asking = False
        entry.answers += 1
        end = message.at + len(message.text)
        entry.size_chars = end if message.last and not entry.open else max(entry.size_chars, end)
        self._append(entry, message.at, message.text)

    def done(self, message: ItemDone) -> None:
        entry = self.by_id(message.item)
        if entry is None:
            return
        entry.size_chars = message.size_chars
        entry.item = replace(
            entry.item, state=message.state, text="", size_chars=message.size_chars,
            code=message.code, detail=message.detail, card=message.card or entry.item.card,
        )  # fmt: skip
        self._dirty.add(entry.index)

    def card(self, message: ItemCard) -> None:
        """More is known of what a harness does."""
        entry = self.by_id(message.item)
        if entry is not None:
            entry.item = replace(entry.item, card=message.card)
            self._dirty.add(entry.index)

    def toggle(self, row: int) -> None:
        """Open or close reasoning or a card."""
        entry, _ = self.line(row)
        if entry is not None and (entry.item.kind == "reasoning" or entry.item.kind in CARDS):
            entry.expanded = not entry.expanded
            entry.settled = 0
            self._render(entry)

    def flush(self) -> None:
        """Bring the rows of items whose text grew up to date: once a frame, however many deltas came."""
        dirty, self._dirty = self._dirty, set()
        for index in dirty:
            if (entry := self._entries.get(index)) is not None:
                if not self._feed(entry):
                    self._dirty.add(index)
                self._render(entry)

    @property
    def has_pending(self) -> bool:
        return bool(self._dirty)

    # ------------------------------------------------------------------ within

    def _append(self, entry: Entry, at: int, text: str) -> None:
        if at > entry.chars:
            entry.ending.add(at, text)
            self._dirty.add(entry.index)  # something is missing between: the `more` row asks for it
            return
        fresh = text[entry.chars - at :] if len(text) > entry.chars - at else ""
        if fresh:
            entry.text.append(fresh)
            entry.chars += len(fresh)
        self._dirty.add(entry.index)

    def _make(self, index: int, item: Item) -> Entry:
        entry = Entry(
            item, index, splitter_for(item), [item.text], len(item.text), max(item.size_chars, len(item.text))
        )
        self._feed(entry)
        entry.lines = self._lines(entry)
        entry.settled = len(entry.splitter.closed) if item.kind == "reply" else 0
        return entry

    def _feed(self, entry: Entry) -> bool:
        """Take in what came; false when some of it has to wait."""
        if entry.finished:
            return True
        end, chars = entry.fed, 0
        while end < len(entry.text) and chars < FEED_CHARS:
            chars += len(entry.text[end])
            end += 1
        fresh, entry.fed = entry.text[entry.fed : end], end
        if fresh:
            entry.splitter.feed("".join(fresh))
        if end < len(entry.text):
            return False
        if not entry.open and entry.complete:
            entry.splitter.finish()
            entry.finished = True
        if len(entry.text) > 64:
            entry.text = ["".join(entry.text)]
            entry.fed = 1
        return True

    def _lines(self, entry: Entry, skip: int = 0) -> list[Line]:
        """Lines of an entry after the first `skip`, which stand."""
        item = entry.item
        kind = item.kind
        more = Line("more", about=(entry.chars, entry.answers))
        if kind == "notice":
            return [Line("note" if quiet(item) else "notice", about=(item.state, item.detail))][skip:]
        if kind in CARDS:
            return lines_of(
                item, entry.splitter, entry.ending,
                expanded=entry.expanded, size_chars=entry.size_chars, complete=entry.complete, more=more,
            )[skip:]  # fmt: skip
        lines: list[Line] = []
        if kind == "reasoning":
            lines.append(Line("reasoning", about=(item.state, item.detail, entry.expanded)))
            if not entry.expanded:
                return lines[skip:]
            blocks = [*entry.splitter.closed, *entry.splitter.tail]
            lines += [Line(block.kind, block, quiet=True) for block in blocks]
            lines = lines[skip:]
        else:
            blocks = [*entry.splitter.closed[skip:], *entry.splitter.tail]
            lines += [Line("user" if kind == "user" else block.kind, block) for block in blocks]
        if not entry.complete:
            lines.append(more)
        if kind == "reply" and not entry.open:
            lines.append(Line("foot", about=(item.state, item.detail)))
        return lines

    def _render(self, entry: Entry) -> None:
        """Bring the lines of an entry up to date, with the least said to the listener."""
        settled = entry.settled
        fresh = self._lines(entry, settled)
        start = self.start_of(entry.index) + settled
        old = entry.lines[settled:]
        same = 0
        while same < len(old) and same < len(fresh) and old[same].same_shape(fresh[same]):
            same += 1
        gone = len(old) - same
        if gone:
            with self.listener.removing(start + same, gone):
                del entry.lines[settled + same :]
                self._index(bisect.bisect_left(self._order, entry.index))
        different = [place for place in range(same) if old[place] != fresh[place]]
        entry.lines[settled : settled + same] = fresh[:same]
        if different:
            self.listener.changed(start + different[0], different[-1] - different[0] + 1)
        if len(fresh) > same:
            with self.listener.inserting(start + same, len(fresh) - same):
                entry.lines += fresh[same:]
                self._index(bisect.bisect_left(self._order, entry.index))
        if entry.item.kind == "reply":
            entry.settled = len(entry.splitter.closed)

    def _put_one(self, index: int, item: Item) -> None:
        known = self._entries.get(index)
        if known is not None and known.item.id == item.id:
            self._merge(known, item)
            return
        start = self.start_of(index)
        count = len(known.lines) if known is not None else 1
        self._replace(start, count, self._make(index, item))

    def _merge(self, entry: Entry, item: Item) -> None:
        """The host says once more what an item is: what is here stands, unless it is the text of something else."""
        common = min(len(item.text), entry.chars)
        if entry.whole_text()[:common] != item.text[:common]:
            fresh = self._make(entry.index, item)
            fresh.expanded = entry.expanded
            fresh.lines = self._lines(fresh)
            self._replace(self.start_of(entry.index), len(entry.lines), fresh)
            return
        entry.item = item
        entry.size_chars = max(item.size_chars, len(item.text), entry.chars if item.state == "open" else 0)
        self._append(entry, 0, item.text)

    def _replace(self, start: int, count: int, entry: Entry | None, index: int = 0) -> None:
        """Rows start…start+count become those of `entry` (None: of one that is not loaded)."""
        if count:
            with self.listener.removing(start, count):
                if entry is not None:
                    self._drop(entry.index)
                    self._hide(entry.index)
                else:
                    self._drop(index)
                    self._hide(index)
        lines = 1 if entry is None else len(entry.lines)
        with self.listener.inserting(start, lines) if lines else nullcontext():
            if entry is not None:
                self._drop(entry.index)
                self._keep(entry)
            else:
                self._drop(index)
            self._index(0)

    def _hide(self, index: int) -> None:
        """Between removal and insertion the item has no row at all."""
        empty = Item(id="-", kind="notice", state="complete", text="", size_chars=0)
        hidden = Entry(empty, index, PlainSplitter())
        self._entries[index] = hidden
        bisect.insort(self._order, index)
        self._index(0)

    def _keep(self, entry: Entry) -> None:
        self._entries[entry.index] = entry
        self._by_id[entry.item.id] = entry.index
        bisect.insort(self._order, entry.index)

    def _drop(self, index: int) -> None:
        entry = self._entries.pop(index, None)
        if entry is not None:
            if self._by_id.get(entry.item.id) == index:
                del self._by_id[entry.item.id]
            del self._order[bisect.bisect_left(self._order, index)]

    def _index(self, place: int) -> None:
        """Work out anew where the loaded items from the `place`th on start."""
        del self._starts[place:]
        if place == 0:
            row = before = 0
            before = -1
        else:
            before = self._order[place - 1]
            row = self._starts[place - 1] + len(self._entries[before].lines)
        for index in self._order[place:]:
            row += index - before - 1
            self._starts.append(row)
            row += len(self._entries[index].lines)
            before = index
        self._rows = row + self.total - before - 1

    def _evict(self) -> None:
        """Let go of what is far from the reader."""
        spare = len(self._entries) - KEPT_ITEMS
        if spare <= 0:
            return
        first, last = self._visible
        far = sorted(self._order, key=lambda index: max(first - index, index - last, 0), reverse=True)
        for index in far[:spare]:
            entry = self._entries[index]
            if entry.open or max(first - index, index - last) <= AHEAD_ITEMS:
                continue
            self._replace(self.start_of(index), len(entry.lines), None, index)
