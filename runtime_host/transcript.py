"""Folds what a driver yields of one run into transcript items, and says what of them is to be written.

Owns the items of a run from their first character to their durable end: ids, positions, text, redaction
across pieces, the byte limit of the output, the bound of what a command writes. Must not know loops, stores'
insides or events' numbers. Invariants: positions follow one another without a hole; text once taken is never
lost, whatever ends the run, but the middle of what is longer than its bound, and that is said in it; an item is
forgotten only after its end was acknowledged as durable; nothing unredacted is kept.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from runtime_host.canonical import FrozenDict, cut_utf8
from runtime_host.long_text import LongText
from runtime_host.storage.base import AgentTx, ItemKind, ItemRecord, ItemState

TRUNCATION_LINE: Final = "[output truncated by Agent Runtime]"
PARTS_MAX: Final = 1024
BLOCK_CHARS: Final = 65_536
REWRITTEN_CHARS: Final = 65_536
"""A text up to this is written anew at its end, so that it is read as one; of a longer one only what is missing."""
ITEM_CHARS: Final = 1024
"""What an item counts for besides its text, as long as it is not durable."""
ACTIVITY_CHARS: Final = 1024 * 1024
"""Of the text of one thing that a harness did: half of it from the beginning, half from the end."""
ACTIVITIES_CHARS: Final = 32 * 1024 * 1024
"""Of such texts of one run; what comes after has only `LATER_CHARS` each."""
LATER_CHARS: Final = 8 * 1024
OPEN_ACTIVITIES: Final = 1024
"""Things that go on at once in a run; when there are more, the oldest is no longer followed."""
_SUFFIX: Final = "\n" + TRUNCATION_LINE

TextKind: TypeAlias = Literal["reply", "reasoning"]
ActivityKind: TypeAlias = Literal["plan", "command", "tool", "change"]
ACTIVITY_KINDS: Final[frozenset[str]] = frozenset({"plan", "command", "tool", "change"})


class TextStream(Protocol):
    """Masks one text that arrives in pieces."""

    def feed(self, chunk: str) -> str: ...
    def flush(self) -> str: ...


class TextRedactor(Protocol):
    """What the fold needs of a redactor."""

    def text(self, text: str) -> str: ...
    def stream(self) -> TextStream: ...


class AddItem(NamedTuple):
    record: ItemRecord


class AppendText(NamedTuple):
    item_id: str
    at_chars: int
    text: str


class SettleItem(NamedTuple):
    """Bring an item to this, whether an earlier write of it was made or not."""

    record: ItemRecord


class PutAbout(NamedTuple):
    item_id: str
    about: dict[str, Any]


class FinishItem(NamedTuple):
    """End an item. Without a text it has the one that was added and appended; so with what is known of it."""

    item_id: str
    state: ItemState
    text: str | None
    code: str
    detail: str
    about: dict[str, Any] | None = None


ItemWrite: TypeAlias = AddItem | AppendText | PutAbout | FinishItem | SettleItem


class OpenItem(NamedTuple):
    """An item that the store does not yet have as it is: still open, or just ended."""

    item_id: str
    kind: ItemKind
    position: int
    text: str
    state: ItemState = "open"
    created_ms: int = 0
    about: dict[str, Any] = FrozenDict()
    code: str = ""
    detail: str = ""


class Place(NamedTuple):
    """Where an item stands; `opened`: just now."""

    item_id: str
    position: int
    opened: bool


class Piece(NamedTuple):
    """New text of an item: what may be shown, and at which character it starts."""

    item_id: str
    kind: ItemKind
    position: int
    at: int
    text: str


class _Item:
    __slots__ = (
        "about",
        "added",
        "adopted",
        "blocks",
        "chars",
        "code",
        "created_ms",
        "detail",
        "durable_chars",
        "durable_revision",
        "item_id",
        "kind",
        "long",
        "native",
        "parts",
        "position",
        "replaced",
        "revision",
        "state",
        "stream",
    )

    def __init__(self, item_id: str, kind: ItemKind, position: int, created_ms: int, stream: TextStream | None) -> None:
        self.item_id = item_id
        self.kind = kind
        self.position = position
        self.created_ms = created_ms
        self.stream = stream
        self.blocks: list[str] = []
        self.parts: list[str] = []
        self.chars = 0
        self.state: ItemState = "open"
        self.code = ""
        self.detail = ""
        self.added = False
        self.replaced = False
        self.durable_chars = 0
        # What is known of it, and how often that has changed.
        self.about: dict[str, Any] = {}
        self.revision = 0
        self.durable_revision = 0
        self.long: LongText | None = None
        # An earlier process wrote it, in whatever state: it is written again at its end only.
        self.adopted = False
        # By what it is found again when its run is joined again; empty where it never is.
        self.native = ""

    def know(self, about: dict[str, Any]) -> bool:
        """What is known of it now; whether that is news."""
        if about == self.about:
            return False
        self.about = about
        self.revision += 1
        return True

    def add(self, piece: str) -> None:
        self.parts.append(piece)
        if len(self.parts) == PARTS_MAX:
            # A list of a million tiny pieces would weigh eight times their text.
            self._join_parts()

    def text(self) -> str:
        if self.parts or len(self.blocks) > 1:
            self.blocks += self.parts
            self.parts.clear()
            self.blocks = ["".join(self.blocks)]
        return self.blocks[0] if self.blocks else ""

    def text_from(self, at_chars: int) -> str:
        """The end of the text, without the rest of it being touched: a long text is not copied for each piece."""
        self._join_parts()
        first, start = len(self.blocks), self.chars
        while start > at_chars:
            first -= 1
            start -= len(self.blocks[first])
        return "".join(self.blocks[first:])[at_chars - start :]

    def _join_parts(self) -> None:
        """Into blocks of which the earlier are the larger: few, and each character is copied a few times only."""
        if not self.parts:
            return
        block = "".join(self.parts)
        self.parts.clear()
        while self.blocks and len(self.blocks[-1]) <= len(block) < BLOCK_CHARS:
            block = self.blocks.pop() + block
        self.blocks.append(block)

    def replace(self, text: str) -> None:
        self.parts.clear()
        self.blocks = [text]
        self.chars = len(text)
        self.replaced = True


class Batch(NamedTuple):
    """Writes for one transaction, and what they make durable once it is acknowledged."""

    writes: tuple[ItemWrite, ...]
    marks: tuple[tuple[_Item, int, int, bool], ...]
    taken_chars: int


class Transcript:
    """The items of one run.

    Args:
        session_id: of the session.
        run_id: of the run; item ids are made from it.
        first_position: position of the run's first item after its input.
        redactor: applied to every text before it is kept.
        limit_bytes: bound of the run's reply text; None is no bound.
        now_ms: the wall clock.
        rejoins: whether the run may be joined again by another process: items are then found again by what the native
            side calls them. Of that a digest is kept.
    """

    def __init__(
        self,
        *,
        session_id: str,
        run_id: str,
        first_position: int,
        redactor: TextRedactor,
        limit_bytes: int | None,
        now_ms: Callable[[], int],
        rejoins: bool = False,
    ) -> None:
        self._rejoins = rejoins
        self._before: dict[tuple[ItemKind, str], _Item | None] = {}
        self._session_id = session_id
        self._run_id = run_id
        self._next_position = first_position
        self._redactor = redactor
        self._limit_bytes = limit_bytes
        self._streamed_bytes = 0
        self._completed_bytes = 0
        self._now_ms = now_ms
        self._by_native: dict[tuple[ItemKind, str], _Item] = {}
        self._activities: dict[tuple[ActivityKind, str], _Item] = {}
        self._activity_chars = 0
        self._live: dict[str, _Item] = {}
        self._made = 0
        self._last_reply: _Item | None = None
        self._doubtful = False
        self._taken_chars = 0
        self._durable_chars = 0
        self.truncated = False
        self.fed_chars = 0
        """How much text has come of what the harness does, kept or not."""

    def start_at(self, position: int, made: int = 0) -> None:
        """Where the first item goes, and how many the run has already. Before anything is taken."""
        self._next_position = position
        self._made = made

    def adopt(self, native_id: str, record: ItemRecord) -> None:
        """A call of a tool that an earlier process began and that ends in this one. Before anything is taken."""
        self._activities["tool", native_id] = self._as_before(record)

    def _as_before(self, record: ItemRecord) -> _Item:
        item = _Item(record.item_id, record.kind, record.position, record.created_ms, None)
        item.replace(record.text)
        item.replaced = False
        item.durable_chars = item.chars
        item.about = record.about
        item.added = item.adopted = True
        self._live[item.item_id] = item
        return item

    def _again(self, kind: ItemKind, native_id: str) -> _Item | None:
        """An item that was begun before the run was joined again, the first time that something comes of it."""
        key = kind, _digest(native_id)
        item = self._before.get(key) if self._before else None
        if item is not None:
            del self._before[key]
        return item

    def recognise(self, records: Sequence[ItemRecord], reopened: Collection[str]) -> None:
        """Items of the run from before it was joined again. Before anything is taken.

        Args:
            records: each with what the native side calls it.
            reopened: states of those that go on, where they stand.
        """
        for record in records:
            native = str(record.about.get("native", ""))
            if record.state not in reopened:
                self._before[record.kind, native] = None
                continue
            item = self._as_before(record)
            item.native = native
            item.about = {name: value for name, value in record.about.items() if name != "native"}
            self._before[record.kind, native] = item

    @property
    def remembers(self) -> bool:
        """Whether there are items from before the run was joined again."""
        return bool(self._before)

    def has_ended(self, kind: ItemKind, native_id: str) -> bool:
        """Whether it is an item that had ended before the run was joined again; nothing is taken of it any more."""
        return self.remembers and self._before.get((kind, _digest(native_id)), self) is None

    # ------------------------------------------------------------------------------------ folding

    def delta(self, kind: TextKind, native_id: str, text: str) -> Piece | None:
        """Take more text of an item; opens it at its first. None when nothing of it may be shown yet."""
        item = self._by_native.get((kind, native_id))
        if item is None:
            if not text:
                return None
            item = self._open(kind, native_id)
        if item.adopted:
            # Pieces in between were missed. Its end brings the whole of it.
            return None
        stream = item.stream
        shown = stream.feed(text) if stream is not None else self._redactor.text(text)
        return self._grow(item, kind, shown) if shown else None

    def complete(self, kind: TextKind, native_id: str, text: str | None) -> tuple[Piece | None, OpenItem | None]:
        """End an item. `text` is the whole of it and wins over what its deltas gave, unless it is empty.

        Returns:
            what no piece has given yet, and the item as it ended; no item when it never had text.
        """
        item = self._by_native.pop((kind, native_id), None) or self._again(kind, native_id)
        if item is None:
            if not text:
                return None, None
            # It came whole. Its text is given as one piece, so that pieces always make up an item.
            item = self._open(kind, native_id)
            del self._by_native[kind, native_id]
            self._replace(item, self._bounded(kind, self._redactor.text(text)))
            tail = Piece(item.item_id, kind, item.position, 0, item.text()) if item.chars else None
        else:
            tail = self._flush(item, kind)
            if text:
                whole = self._bounded(kind, self._redactor.text(text))
                if whole != item.text():
                    self._replace(item, whole)
        if kind == "reply" and self._limit_bytes is not None:
            self._completed_bytes += len(item.text().encode("utf-8", "surrogatepass"))
            self._streamed_bytes = self._completed_bytes
        item.state = "complete"
        return tail, _seen(item)

    # ----------------------------------------------------------------------------- what was done

    @property
    def open_activities(self) -> int:
        return len(self._activities)

    def oldest_activity(self) -> tuple[ActivityKind, str]:
        """The one that was begun first of those that go on."""
        return next(iter(self._activities))

    def known(self, kind: ActivityKind, native_id: str) -> dict[str, Any]:
        """What is known of something that goes on."""
        item = self._activities.get((kind, native_id)) or self._begun_before(kind, native_id)
        return {} if item is None else item.about

    def shown_chars(self, kind: ActivityKind, native_id: str) -> int:
        """How long the text is that something has which goes on."""
        item = self._activities.get((kind, native_id))
        return 0 if item is None else item.chars

    def activity(self, kind: ActivityKind, native_id: str, about: dict[str, Any] | None = None) -> Place:
        """Something that the harness does, opened when it is new; with what is known of it now."""
        item = self._activities.get((kind, native_id)) or self._begun_before(kind, native_id)
        opened = item is None
        if item is None:
            # A command's output arrives in pieces; all else comes whole, but for what a call shows meanwhile.
            item = self._make(kind, self._redactor.stream() if kind == "command" else None, native_id)
            self._activities[kind, native_id] = item
        if about is not None and item.know(about) and not opened:
            self._taken_chars += ITEM_CHARS
        return Place(item.item_id, item.position, opened)

    def _begun_before(self, kind: ActivityKind, native_id: str) -> _Item | None:
        item = self._again(kind, native_id)
        if item is not None:
            self._activities[kind, native_id] = item
        return item

    def output(self, native_id: str, text: str, kind: Literal["command", "tool"] = "command") -> Piece | None:
        """Take more of what a command or a call writes, which was opened before. None when nothing may be shown yet."""
        item = self._activities[kind, native_id]
        if item.adopted and item.native:
            # Pieces in between were missed. Its end brings the whole of it.
            return None
        if kind == "tool" and item.stream is None:
            item.stream = self._redactor.stream()
        self.fed_chars += len(text)
        shown = item.stream.feed(text) if item.stream is not None else self._redactor.text(text)
        return self._lengthen(item, shown)

    def finish(
        self,
        kind: ActivityKind,
        native_id: str,
        *,
        state: ItemState,
        text: str | None,
        code: str = "",
        detail: str = "",
    ) -> tuple[list[Piece], OpenItem]:
        """End what the harness did, which was opened before. `text` is the whole of it, unless pieces gave more.

        Of a call of a tool it is what came of it, and takes the place of what it showed while it went on.

        Returns:
            what no piece has given yet of what it wrote, and the item as it ended.
        """
        item = self._activities.pop((kind, native_id))
        tails = self._end_text(item) if item.stream is not None or item.long is not None else []
        if text and kind == "tool":
            self._replace(item, self._whole(text))
            tails = []
        elif text:
            whole = self._whole(text)
            if not item.chars:
                # It came whole. What a command wrote is given as one piece, so that pieces always make up its text.
                self._replace(item, whole)
                tails = [Piece(item.item_id, kind, item.position, 0, whole)] if kind == "command" else []
            elif len(whole) > item.chars:
                # Pieces may have begun late; a whole that is shorter was cut by whoever gave it.
                self._replace(item, whole)
        self._activity_chars += item.chars
        item.state, item.code, item.detail = state, code, detail
        return tails, _seen(item)

    def _lengthen(self, item: _Item, shown: str) -> Piece | None:
        if item.long is None:
            item.long = self._long()
        kept = item.long.take(shown)
        return self._grow(item, item.kind, kept) if kept else None

    def _end_text(self, item: _Item) -> list[Piece]:
        """The rest of what a command has written: what was held back, and the end of what is long."""
        held = item.stream.flush() if item.stream is not None else ""
        item.stream = None
        tails = [self._lengthen(item, held) if held else None]
        if item.long is not None:
            end, item.long = item.long.end(), None
            tails.append(self._grow(item, item.kind, end) if end else None)
        return [tail for tail in tails if tail is not None]

    def _long(self) -> LongText:
        return LongText(ACTIVITY_CHARS if self._activity_chars < ACTIVITIES_CHARS else LATER_CHARS)

    def _whole(self, text: str) -> str:
        """A text that comes whole, masked and within its bound."""
        self.fed_chars += len(text)
        if len(text) <= LATER_CHARS // 2:
            # Within every bound.
            return self._redactor.text(text)
        long, stream = self._long(), self._redactor.stream()
        kept = [long.take(stream.feed(text[at : at + BLOCK_CHARS])) for at in range(0, len(text), BLOCK_CHARS)]
        kept.append(long.take(stream.flush()))
        return "".join((*kept, long.end()))

    # ------------------------------------------------------------------------------------ the end

    def flush(self) -> list[Piece]:
        """Give what open items hold back. For the end of a run: more text of them would not join up masked."""
        tails = [self._flush(item, item.kind) for item in self._by_native.values()]
        rests = [rest for item in self._activities.values() for rest in self._end_text(item)]
        return [*(tail for tail in tails if tail is not None), *rests]

    def close_open(self, state: ItemState) -> list[OpenItem]:
        """End whatever is open, with the text it has. What became of a thing that nobody ended is not known."""
        before = [item for item in self._before.values() if item is not None]
        ended = [*self._by_native.values(), *self._activities.values(), *before]
        self._by_native.clear()
        self._activities.clear()
        self._before.clear()
        ended.sort(key=lambda item: item.position)
        for item in ended:
            if item.kind == "plan":
                item.state = "complete" if item.about.get("completed") else state
            elif item.kind in ACTIVITY_KINDS and state == "complete":
                item.state = "unknown"
            else:
                item.state = state
        return [_seen(item) for item in ended]

    def notice(self, text: str, *, state: ItemState, code: str, detail: str = "") -> Place:
        """Add what the person must know."""
        item = self._make("notice", None)
        self._replace(item, text)
        item.state, item.code, item.detail = state, code, detail
        return Place(item.item_id, item.position, True)

    def said(self, text: str, about: dict[str, Any]) -> Place:
        """Add what the person said to the run."""
        item = self._make("user", None)
        self._replace(item, self._redactor.text(text))
        item.state, item.about = "complete", about
        return Place(item.item_id, item.position, True)

    @property
    def next_position(self) -> int:
        """Where the next item goes."""
        return self._next_position

    def reply_text(self) -> str:
        """Text of the run's newest reply, finished or not."""
        return self._last_reply.text() if self._last_reply is not None else ""

    def open_items(self) -> list[OpenItem]:
        """What the store does not yet have, in order. Ask before reading the store; the store wins."""
        return [_seen(item) for item in self._live.values()]

    # ------------------------------------------------------------------------------------ writing

    @property
    def has_ended_items(self) -> bool:
        """Whether an ended item waits to become durable."""
        return any(item.state != "open" for item in self._live.values())

    @property
    def unwritten_chars(self) -> int:
        """How much was taken since what the last acknowledged batch held; 0 while no batch is acknowledged at all."""
        return 0 if self._doubtful else self._taken_chars - self._durable_chars

    def pending_writes(self) -> Batch:
        """What must be written to make everything taken so far durable. Changes nothing."""
        writes: list[ItemWrite] = []
        marks: list[tuple[_Item, int, int, bool]] = []
        for item in self._live.values():
            some = self._writes_of(item)
            if some:
                writes += some
                marks.append((item, item.chars, item.revision, item.state != "open"))
        return Batch(tuple(writes), tuple(marks), self._taken_chars)

    def _writes_of(self, item: _Item) -> list[ItemWrite]:
        """What makes one item durable as it is; nothing when it is."""
        ended = item.state != "open"
        if item.adopted and not ended:
            return []
        if self._doubtful:
            return [SettleItem(self._record(item, item.text()))]
        if not item.added:
            return [AddItem(self._record(item, item.text()))]
        about = self._kept_about(item) if item.revision != item.durable_revision else None
        if ended and (item.replaced or item.chars <= REWRITTEN_CHARS):
            return [FinishItem(item.item_id, item.state, item.text(), item.code, item.detail, about)]
        writes: list[ItemWrite] = []
        if item.chars > item.durable_chars:
            writes.append(AppendText(item.item_id, item.durable_chars, item.text_from(item.durable_chars)))
        if ended:
            writes.append(FinishItem(item.item_id, item.state, None, item.code, item.detail, about))
        elif about is not None:
            writes.append(PutAbout(item.item_id, about))
        return writes

    def doubt(self) -> None:
        """A batch was asked for and its answer was lost: whether it is durable is not known."""
        self._doubtful = True

    def acknowledge(self, batch: Batch) -> None:
        """The batch is durable."""
        self._doubtful = False
        self._durable_chars = batch.taken_chars
        for item, chars, revision, ended in batch.marks:
            item.added = True
            item.durable_chars = chars
            item.durable_revision = revision
            if ended:
                self._live.pop(item.item_id, None)

    # ------------------------------------------------------------------------------------- inside

    def _open(self, kind: TextKind, native_id: str) -> _Item:
        item = self._again(kind, native_id) or self._make(kind, self._redactor.stream(), native_id)
        self._by_native[kind, native_id] = item
        if kind == "reply":
            self._last_reply = item
        return item

    def _make(self, kind: ItemKind, stream: TextStream | None, native_id: str = "") -> _Item:
        self._made += 1
        item = _Item(f"{self._run_id}.{self._made}", kind, self._next_position, self._now_ms(), stream)
        if self._rejoins and native_id:
            item.native = _digest(native_id)
        self._next_position += 1
        self._taken_chars += ITEM_CHARS
        self._live[item.item_id] = item
        return item

    def _grow(self, item: _Item, kind: ItemKind, shown: str) -> Piece | None:
        if self._limit_bytes is not None and kind == "reply":
            shown = self._within_limit(shown, self._limit_bytes)
            if not shown:
                return None
        at = item.chars
        item.add(shown)
        item.chars = at + len(shown)
        self._taken_chars += len(shown)
        return Piece(item.item_id, kind, item.position, at, shown)

    def _replace(self, item: _Item, text: str) -> None:
        item.replace(text)
        self._taken_chars += len(text)

    def _flush(self, item: _Item, kind: ItemKind) -> Piece | None:
        held = item.stream.flush() if item.stream is not None else ""
        item.stream = None
        return self._grow(item, kind, held) if held else None

    def _within_limit(self, shown: str, limit_bytes: int) -> str:
        kept = cut_utf8(shown, limit_bytes - self._streamed_bytes)
        self._streamed_bytes += len(kept.encode("utf-8", "surrogatepass"))
        if len(kept) < len(shown):
            # What is cut ends the output: a shorter later piece must not slip in behind the cut.
            self._streamed_bytes = limit_bytes
            self.truncated = True
        return kept

    def _bounded(self, kind: TextKind, text: str) -> str:
        if self._limit_bytes is None or kind != "reply":
            return text
        bounded = bound_text(text, max(0, self._limit_bytes - self._completed_bytes))
        if len(bounded) != len(text) or bounded != text:
            self.truncated = True
        return bounded

    def _record(self, item: _Item, text: str) -> ItemRecord:
        return ItemRecord(
            item_id=item.item_id,
            session_id=self._session_id,
            run_id=self._run_id,
            position=item.position,
            kind=item.kind,
            state=item.state,
            text=text,
            created_ms=item.created_ms,
            code=item.code,
            detail=item.detail,
            about=self._kept_about(item),
        )

    def _kept_about(self, item: _Item) -> dict[str, Any]:
        return {**item.about, "native": item.native} if item.native else item.about


def _digest(native_id: str) -> str:
    """What is kept of a name that the native side gave: enough to know it again, and nothing of it."""
    return hashlib.sha256(native_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def write_items(tx: AgentTx, writes: Sequence[ItemWrite]) -> None:
    """Do a batch's writes inside a transaction."""
    for write in writes:
        match write:
            case AddItem(record):
                tx.add_item(record)
            case AppendText(item_id, at_chars, text):
                tx.append_text(item_id, at_chars, text)
            case PutAbout(item_id, about):
                tx.put_about(item_id, about)
            case FinishItem(item_id, state, text, code, detail, about):
                tx.finish_item(item_id, state=state, text=text, code=code, detail=detail, about=about)
            case SettleItem(record):
                _settle(tx, record)


def _settle(tx: AgentTx, record: ItemRecord) -> None:
    known = tx.item(record.item_id)
    if known is None:
        tx.add_item(record)
    elif record.state == "open":
        tx.append_text(record.item_id, len(known.text), record.text[len(known.text) :])
        if known.about != record.about:
            tx.put_about(record.item_id, record.about)
    else:
        tx.finish_item(
            record.item_id,
            state=record.state,
            text=record.text,
            code=record.code,
            detail=record.detail,
            about=record.about,
        )


def bound_text(text: str, limit_bytes: int) -> str:
    """`text` in at most `limit_bytes` UTF-8 bytes; what was cut is said in a last line where it fits."""
    if len(text) * 4 <= limit_bytes or len(text.encode("utf-8", "surrogatepass")) <= limit_bytes:
        return text
    if limit_bytes <= len(_SUFFIX):
        return cut_utf8(text, limit_bytes)
    return cut_utf8(text, limit_bytes - len(_SUFFIX)) + _SUFFIX


def _seen(item: _Item) -> OpenItem:
    return OpenItem(
        item.item_id,
        item.kind,
        item.position,
        item.text(),
        item.state,
        item.created_ms,
        item.about,
        item.code,
        item.detail,
    )
