"""Folds what a driver yields of one run into transcript items, and says what of them is to be written.

Owns the items of a run from their first character to their durable end: ids, positions, text, redaction
across pieces, the byte limit of the output. Must not know loops, stores' insides or events' numbers.
Invariants: positions follow one another without a hole; text once taken is never lost, whatever ends
the run; an item is forgotten only after its end was acknowledged as durable; nothing unredacted is
kept.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from runtime_host.canonical import cut_utf8
from runtime_host.storage.base import AgentTx, ItemKind, ItemRecord, ItemState

TRUNCATION_LINE: Final = "[output truncated by Agent Runtime]"
PARTS_MAX: Final = 1024
BLOCK_CHARS: Final = 65_536
REWRITTEN_CHARS: Final = 65_536
"""A text up to this is written anew at its end, so that it is read as one; of a longer one only what is missing."""
ITEM_CHARS: Final = 1024
"""What an item counts for besides its text, as long as it is not durable."""
_SUFFIX: Final = "\n" + TRUNCATION_LINE

TextKind: TypeAlias = Literal["reply", "reasoning"]


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


class FinishItem(NamedTuple):
    """End an item. Without a text it has the one that was added and appended."""

    item_id: str
    state: ItemState
    text: str | None
    code: str
    detail: str


ItemWrite: TypeAlias = AddItem | AppendText | FinishItem | SettleItem


class OpenItem(NamedTuple):
    """An item that the store does not yet have as it is: still open, or just ended."""

    item_id: str
    kind: ItemKind
    position: int
    text: str
    state: ItemState = "open"
    created_ms: int = 0


class Piece(NamedTuple):
    """New text of an item: what may be shown, and at which character it starts."""

    item_id: str
    kind: TextKind
    position: int
    at: int
    text: str


class _Item:
    __slots__ = (
        "added",
        "blocks",
        "chars",
        "code",
        "created_ms",
        "detail",
        "durable_chars",
        "item_id",
        "kind",
        "parts",
        "position",
        "replaced",
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
    marks: tuple[tuple[_Item, int, bool], ...]
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
    ) -> None:
        self._session_id = session_id
        self._run_id = run_id
        self._next_position = first_position
        self._redactor = redactor
        self._limit_bytes = limit_bytes
        self._streamed_bytes = 0
        self._completed_bytes = 0
        self._now_ms = now_ms
        self._by_native: dict[tuple[TextKind, str], _Item] = {}
        self._live: dict[str, _Item] = {}
        self._made = 0
        self._last_reply: _Item | None = None
        self._doubtful = False
        self._taken_chars = 0
        self._durable_chars = 0
        self.truncated = False

    def start_at(self, position: int, made: int = 0) -> None:
        """Where the first item goes, and how many the run has already. Before anything is taken."""
        self._next_position = position
        self._made = made

    # ------------------------------------------------------------------------------------ folding

    def delta(self, kind: TextKind, native_id: str, text: str) -> Piece | None:
        """Take more text of an item; opens it at its first. None when nothing of it may be shown yet."""
        item = self._by_native.get((kind, native_id))
        if item is None:
            if not text:
                return None
            item = self._open(kind, native_id)
        stream = item.stream
        shown = stream.feed(text) if stream is not None else self._redactor.text(text)
        return self._grow(item, kind, shown) if shown else None

    def complete(self, kind: TextKind, native_id: str, text: str | None) -> tuple[Piece | None, OpenItem | None]:
        """End an item. `text` is the whole of it and wins over what its deltas gave, unless it is empty.

        Returns:
            what no piece has given yet, and the item as it ended; no item when it never had text.
        """
        item = self._by_native.pop((kind, native_id), None)
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

    def flush(self) -> list[Piece]:
        """Give what open items hold back. For the end of a run: more text of them would not join up masked."""
        tails = [self._flush(item, kind) for (kind, _native_id), item in self._by_native.items()]
        return [tail for tail in tails if tail is not None]

    def close_open(self, state: ItemState) -> list[OpenItem]:
        """End whatever is open, with the text it has."""
        ended = list(self._by_native.values())
        self._by_native.clear()
        for item in ended:
            item.state = state
        return [_seen(item) for item in ended]

    def notice(self, text: str, *, state: ItemState, code: str, detail: str = "") -> None:
        """Add what the person must know of the end of the run."""
        item = self._make("notice", None)
        self._replace(item, text)
        item.state, item.code, item.detail = state, code, detail

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
        marks: list[tuple[_Item, int, bool]] = []
        for item in self._live.values():
            ended = item.state != "open"
            if self._doubtful:
                writes.append(SettleItem(self._record(item, item.text())))
            elif not item.added:
                writes.append(AddItem(self._record(item, item.text())))
            elif ended and (item.replaced or item.chars <= REWRITTEN_CHARS):
                writes.append(FinishItem(item.item_id, item.state, item.text(), item.code, item.detail))
            else:
                if item.chars > item.durable_chars:
                    writes.append(AppendText(item.item_id, item.durable_chars, item.text_from(item.durable_chars)))
                elif not ended:
                    continue
                if ended:
                    writes.append(FinishItem(item.item_id, item.state, None, item.code, item.detail))
            marks.append((item, item.chars, ended))
        return Batch(tuple(writes), tuple(marks), self._taken_chars)

    def doubt(self) -> None:
        """A batch was asked for and its answer was lost: whether it is durable is not known."""
        self._doubtful = True

    def acknowledge(self, batch: Batch) -> None:
        """The batch is durable."""
        self._doubtful = False
        self._durable_chars = batch.taken_chars
        for item, chars, ended in batch.marks:
            item.added = True
            item.durable_chars = chars
            if ended:
                self._live.pop(item.item_id, None)

    # ------------------------------------------------------------------------------------- inside

    def _open(self, kind: TextKind, native_id: str) -> _Item:
        item = self._by_native[kind, native_id] = self._make(kind, self._redactor.stream())
        if kind == "reply":
            self._last_reply = item
        return item

    def _make(self, kind: ItemKind, stream: TextStream | None) -> _Item:
        self._made += 1
        item = _Item(f"{self._run_id}.{self._made}", kind, self._next_position, self._now_ms(), stream)
        self._next_position += 1
        self._taken_chars += ITEM_CHARS
        self._live[item.item_id] = item
        return item

    def _grow(self, item: _Item, kind: TextKind, shown: str) -> Piece | None:
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

    def _flush(self, item: _Item, kind: TextKind) -> Piece | None:
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
        )


def write_items(tx: AgentTx, writes: Sequence[ItemWrite]) -> None:
    """Do a batch's writes inside a transaction."""
    for write in writes:
        match write:
            case AddItem(record):
                tx.add_item(record)
            case AppendText(item_id, at_chars, text):
                tx.append_text(item_id, at_chars, text)
            case FinishItem(item_id, state, text, code, detail):
                tx.finish_item(item_id, state=state, text=text, code=code, detail=detail)
            case SettleItem(record):
                _settle(tx, record)


def _settle(tx: AgentTx, record: ItemRecord) -> None:
    known = tx.item(record.item_id)
    if known is None:
        tx.add_item(record)
    elif record.state == "open":
        tx.append_text(record.item_id, len(known.text), record.text[len(known.text) :])
    else:
        tx.finish_item(record.item_id, state=record.state, text=record.text, code=record.code, detail=record.detail)


def bound_text(text: str, limit_bytes: int) -> str:
    """`text` in at most `limit_bytes` UTF-8 bytes; what was cut is said in a last line where it fits."""
    if len(text) * 4 <= limit_bytes or len(text.encode("utf-8", "surrogatepass")) <= limit_bytes:
        return text
    if limit_bytes <= len(_SUFFIX):
        return cut_utf8(text, limit_bytes)
    return cut_utf8(text, limit_bytes - len(_SUFFIX)) + _SUFFIX


def _seen(item: _Item) -> OpenItem:
    return OpenItem(item.item_id, item.kind, item.position, item.text(), item.state, item.created_ms)
