"""The journal of a run: its events, numbered, bounded in bytes, readable by any number of cursors.

Owns numbering, joining, the byte budget and what is dropped for it. Must not know drivers, storage or
who reads. Invariants:

- Numbers count up by one and are never used twice; what was dropped keeps its numbers, so every hole
  is visible to a cursor exactly where it is.
- Deltas of one item that come in the same turn of the loop are one event.
- Retained bytes stay within the budget; deltas go first, oldest first, then anything, oldest first.
- `run.finished` is the last event or there is none.
- A reader costs nothing while it does not read: the journal is the queue, a reader is a number.
"""

import asyncio
import logging
import time
import weakref
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple, get_args

import msgspec

from runtime_host.canonical import cut_utf8, freeze
from runtime_host.definitions import Observation
from runtime_host.errors import AgentEventHistoryExpiredError
from runtime_host.events import DELTA_TYPES, AgentEvent, EventType

_log = logging.getLogger("runtime_host.journal")

MIN_BUDGET_BYTES: Final = 1024
MAX_PAYLOAD_BYTES: Final = 65536
READ_EVENTS: Final = 256
_SCRATCH_BYTES: Final = 8192

_ALWAYS: Final[frozenset[str]] = frozenset(
    {
        "run.started",
        "run.finished",
        "agent.message.completed",
        "usage.updated",
        "diagnostic",
        "interaction.requested",
        "interaction.resolved",
    }
)
_EVERY_TYPE: Final[frozenset[str]] = frozenset(get_args(EventType))
_REASONING: Final[frozenset[str]] = frozenset({"reasoning.delta", "reasoning.completed"})
# Cut first to last when a payload is too large: what tells one thing from another stays longest.
_KEPT_SCALARS: Final = (
    "id",
    "index",
    "opened",
    "at",
    "state",
    "size_chars",
    "name",
    "status",
    "code",
    "level",
    "kind",
    "phase",
    "path",
    "change",
    "exit_code",
    "duration_ms",
    "completed",
)

_encoder: Final = msgspec.json.Encoder()
_encode: Final = _encoder.encode
_decode: Final = msgspec.json.Decoder().decode
_sequence_of: Final = attrgetter("sequence")


class Gap(NamedTuple):
    """Numbers that were published and are gone. The counts are of the whole journal so far."""

    from_sequence: int
    to_sequence: int
    dropped_events: int
    dropped_deltas: int

    @property
    def after(self) -> int:
        """The number before the hole."""
        return self.from_sequence - 1

    @property
    def before(self) -> int:
        """The number after the hole."""
        return self.to_sequence + 1


class JournalSlice(NamedTuple):
    """What a cursor gets.

    Attributes:
        events: consecutive events.
        gap: what is missing directly before them; without events, what is missing up to the end.
        last_sequence: the newest number of the journal, so that a reader knows how far behind it is.
    """

    events: tuple[AgentEvent, ...]
    gap: Gap | None
    last_sequence: int

    def next_cursor(self, after_sequence: int) -> int:
        """Where to read on."""
        if self.events:
            return self.events[-1].sequence
        return self.gap.to_sequence if self.gap is not None else after_sequence


class JournalStatistics(NamedTuple):
    retained_events: int
    retained_bytes: int
    dropped_events: int
    dropped_deltas: int
    last_sequence: int


class _Entry:
    """A published event, as JSON: what is kept is as large as it is counted, whoever reads or does not.

    The public model is built when somebody reads it, and shared as long as anybody has it.
    """

    __slots__ = ("json", "model", "sequence", "size_bytes", "timestamp_s", "type")

    def __init__(self, sequence: int, timestamp_s: float, type_: EventType, json: bytes, size_bytes: int) -> None:
        self.sequence = sequence
        self.timestamp_s = timestamp_s
        self.type = type_
        self.json = json
        self.size_bytes = size_bytes
        self.model: weakref.ReferenceType[AgentEvent] | None = None


class _Shelf:
    """Entries by number, taken from the front only; so what was dropped costs no memory."""

    __slots__ = ("entries", "head")

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.head = 0

    def __len__(self) -> int:
        return len(self.entries) - self.head

    def take_oldest(self) -> _Entry:
        entry = self.entries[self.head]
        # What is dropped is dropped now; the numbers before `head` are cleared away a few at a time.
        entry.json = b""
        self.head += 1
        if self.head > 64 and self.head * 2 > len(self.entries):
            del self.entries[: self.head]
            self.head = 0
        return entry

    def first_after(self, sequence: int) -> int:
        return bisect_right(self.entries, sequence, lo=self.head, key=_sequence_of)

    def clear(self) -> None:
        self.entries.clear()
        self.head = 0


class _Pending:
    """A delta that still grows in this turn of the loop."""

    __slots__ = ("chars", "data", "item_id", "sequence", "texts", "timestamp_s", "type")

    def __init__(self, sequence: int, timestamp_s: float, type_: EventType, item_id: str, data: dict[str, Any]) -> None:
        self.sequence = sequence
        self.timestamp_s = timestamp_s
        self.type = type_
        self.item_id = item_id
        self.data = data
        self.texts: list[str] = []
        self.chars = 0


def admitted_types(observation: Observation) -> frozenset[str] | None:
    """Which event types an observation keeps and delivers; None is all of them.

    This never touches what the native side does, nor the result.
    """
    if observation.mode == "final-only" or observation.detail == "status":
        return _ALWAYS
    if observation.detail == "reasoning":
        return None
    return _EVERY_TYPE - _REASONING


class Journal:
    """Bounded, numbered events of one run.

    Args:
        run_id: of the run.
        session_id: of its session.
        budget_bytes: bound of what is retained, envelope included; at least 1024.
        first_sequence: number of the first event; above 1 where an earlier process has published.
        types: what is kept at all; None is everything.
        schedule: runs a callback once, after the current turn of the loop.
    """

    def __init__(
        self,
        *,
        run_id: str,
        session_id: str,
        budget_bytes: int,
        first_sequence: int = 1,
        types: frozenset[str] | None = None,
        schedule: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        if budget_bytes < MIN_BUDGET_BYTES:
            raise ValueError(f"a journal needs at least {MIN_BUDGET_BYTES} bytes")
        self.run_id = run_id
        self.session_id = session_id
        self.budget_bytes = budget_bytes
        self.payload_cap_bytes = min(MAX_PAYLOAD_BYTES, max(256, budget_bytes // 4))
        self._types = types
        self._schedule = schedule if schedule is not None else asyncio.get_running_loop().call_soon
        self._join_chars = self.payload_cap_bytes // 2
        self._envelope_bytes = 150 + len(run_id) + len(session_id)
        self._next = first_sequence
        self._deltas = _Shelf()
        self._others = _Shelf()
        self._retained_bytes = 0
        self._dropped_events = 0
        self._dropped_deltas = 0
        self._scratch = bytearray()
        self._pending: _Pending | None = None
        self._turn_scheduled = False
        self._subscribers: dict[object, Callable[[], None]] = {}
        self._closed = False
        self._expired = False

    # ------------------------------------------------------------------------------------- writing

    def append(self, type_: EventType, data: dict[str, Any]) -> None:
        """Publish an event that stands alone. `data` is JSON and is the journal's from here on."""
        if self._closed:
            raise RuntimeError("the journal is closed: nothing comes after the end of a run")
        if self._types is not None and type_ not in self._types:
            return
        self._seal()
        self._publish(self._take_number(), time.time(), type_, data, type_ in DELTA_TYPES)
        self._touch()

    def append_delta(self, type_: EventType, item_id: str, text: str, data: dict[str, Any]) -> None:
        """Publish more text of an item; joined with what the item got in this turn of the loop.

        Args:
            type_: of the event.
            item_id: what joins.
            text: what is new.
            data: the event's other members as they are at the start of `text`; `at` counts characters.
        """
        pending = self._pending
        if pending is None or pending.item_id != item_id or pending.type != type_:
            if self._closed:
                raise RuntimeError("the journal is closed: nothing comes after the end of a run")
            if self._types is not None and type_ not in self._types:
                return
            self._seal()
            pending = self._pending = _Pending(self._take_number(), time.time(), type_, item_id, data)
            self._touch()
        pending.texts.append(text)
        pending.chars += len(text)
        if pending.chars >= self._join_chars:
            self._seal()

    def close(self) -> None:
        """No more events. Readers get what is retained and then the end."""
        if not self._closed:
            self._seal()
            self._closed = True
            self._touch()

    def expire(self) -> None:
        """Give back the memory of a closed journal; its events are history from here on."""
        self.close()
        self._expired = True
        dropped = len(self._deltas) + len(self._others)
        self._dropped_events += dropped
        self._dropped_deltas += len(self._deltas)
        self._deltas.clear()
        self._others.clear()
        self._retained_bytes = 0

    # ------------------------------------------------------------------------------------- reading

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def expired(self) -> bool:
        return self._expired

    @property
    def last_sequence(self) -> int:
        """The newest number. What comes later has a later one, also text of the same item."""
        self._seal()
        return self._next - 1

    @property
    def numbers_taken(self) -> int:
        """As `last_sequence`, without ending what still grows."""
        return self._next - 1

    def statistics(self) -> JournalStatistics:
        return JournalStatistics(
            retained_events=len(self._deltas) + len(self._others),
            retained_bytes=self._retained_bytes,
            dropped_events=self._dropped_events,
            dropped_deltas=self._dropped_deltas,
            last_sequence=self.last_sequence,
        )

    def read(self, after_sequence: int, max_events: int = READ_EVENTS) -> JournalSlice:
        """Up to `max_events` consecutive events after a cursor. Never waits.

        Raises:
            ValueError: the cursor is negative or beyond the newest number.
        """
        self._seal()
        if after_sequence < 0 or after_sequence > self.last_sequence:
            raise ValueError(f"the cursor {after_sequence} is not between 0 and {self.last_sequence}")
        deltas, others = self._deltas.entries, self._others.entries
        at_delta, at_other = self._deltas.first_after(after_sequence), self._others.first_after(after_sequence)
        taken: list[AgentEvent] = []
        gap: Gap | None = None
        expected = after_sequence + 1
        while len(taken) < max_events:
            delta = deltas[at_delta] if at_delta < len(deltas) else None
            other = others[at_other] if at_other < len(others) else None
            if delta is not None and (other is None or delta.sequence < other.sequence):
                entry = delta
                at_delta += 1
            elif other is not None:
                entry = other
                at_other += 1
            else:
                break
            if entry.sequence != expected:
                if taken:
                    break
                gap = self._gap(expected, entry.sequence - 1)
            taken.append(self._model(entry))
            expected = entry.sequence + 1
        if not taken and expected <= self.last_sequence:
            gap = self._gap(expected, self.last_sequence)
        return JournalSlice(tuple(taken), gap, self.last_sequence)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called once in a turn of the loop in which something new came.

        It must not block. One that raises is dropped, alone.

        Returns:
            what ends the subscription; calling it again does nothing.
        """
        key = object()
        self._subscribers[key] = callback

        def unsubscribe() -> None:
            self._subscribers.pop(key, None)

        return unsubscribe

    def check_cursor(self, after_sequence: int) -> None:
        """Refuse a cursor that cannot be followed.

        Raises:
            TypeError, ValueError: it is none of this run.
            AgentEventHistoryExpiredError: what followed it is gone.
        """
        if isinstance(after_sequence, bool) or not isinstance(after_sequence, int):
            raise TypeError("the cursor is a number")
        if self._expired:
            raise AgentEventHistoryExpiredError(
                "The events of this run are no longer kept; its result still is.", details={"run_id": self.run_id}
            )
        slice_ = self.read(after_sequence, 1)
        if after_sequence > 0 and slice_.gap is not None:
            raise AgentEventHistoryExpiredError(
                "The events after this point are no longer kept; read from the start to see what is left.",
                details={"run_id": self.run_id, "first_retained": slice_.gap.to_sequence + 1},
            )

    async def follow(self, after_sequence: int = 0) -> AsyncIterator[AgentEvent]:
        """Events from a cursor to the end of the run, each once, in order.

        Where events are gone, a `diagnostic` with the code `EVENTS_DROPPED` and the number of the last
        missing one stands for them.

        Raises:
            ValueError: the cursor is not one of this run.
            AgentEventHistoryExpiredError: what followed the cursor is gone.
        """
        self.check_cursor(after_sequence)
        cursor = after_sequence
        wake = asyncio.Event()
        unsubscribe = self.subscribe(wake.set)
        try:
            while True:
                wake.clear()
                slice_ = self.read(cursor)
                if slice_.gap is not None:
                    yield self._marker(slice_.gap)
                for event in slice_.events:
                    yield event
                cursor = slice_.next_cursor(cursor)
                if not slice_.events:
                    if self._closed:
                        return
                    await wake.wait()
        finally:
            unsubscribe()

    # ------------------------------------------------------------------------------------ inside

    def _take_number(self) -> int:
        number = self._next
        self._next = number + 1
        return number

    def _touch(self) -> None:
        if not self._turn_scheduled and (self._pending is not None or self._subscribers):
            self._turn_scheduled = True
            self._schedule(self._end_of_turn)

    def _end_of_turn(self) -> None:
        self._turn_scheduled = False
        self._seal()
        for key, callback in tuple(self._subscribers.items()):
            try:
                callback()
            except Exception:
                self._subscribers.pop(key, None)
                _log.exception("a subscriber of run %s failed and was dropped", self.run_id)

    def _seal(self) -> None:
        """Publish the growing delta, in pieces where it is larger than a payload may be."""
        pending = self._pending
        if pending is None:
            return
        self._pending = None
        text = pending.texts[0] if len(pending.texts) == 1 else "".join(pending.texts)
        sequence, data = pending.sequence, pending.data
        # Six bytes a character is the worst that JSON makes of one.
        room_chars = max(16, (self.payload_cap_bytes - 160) // 6)
        if len(text) > room_chars and len(_encode(text)) > self.payload_cap_bytes - 160:
            at = data.get("at", 0)
            for start in range(0, len(text), room_chars):
                piece = {**data, "at": at + start, "text": text[start : start + room_chars]}
                number = sequence if start == 0 else self._take_number()
                self._publish(number, pending.timestamp_s, pending.type, piece, True)
            return
        data["text"] = text
        self._publish(sequence, pending.timestamp_s, pending.type, data, True)

    def _publish(self, sequence: int, timestamp_s: float, type_: EventType, data: dict[str, Any], delta: bool) -> None:
        cap_bytes = self.payload_cap_bytes
        text = data.get("text")
        # JSON is never shorter than its text: what cannot fit is not written out first.
        json = b"" if isinstance(text, str) and len(text) > cap_bytes else self._json(data)
        if not json or len(json) > cap_bytes:
            json = self._json(_cut(data, cap_bytes))
        size_bytes = len(json) + self._envelope_bytes
        entry = _Entry(sequence, timestamp_s, type_, json, size_bytes)
        (self._deltas if delta else self._others).entries.append(entry)
        self._retained_bytes += size_bytes
        if self._retained_bytes > self.budget_bytes:
            self._drop()

    def _json(self, data: dict[str, Any]) -> bytes:
        # What the encoder itself returns keeps the room it was written into, up to half as much again.
        scratch = self._scratch
        _encoder.encode_into(data, scratch)
        json = bytes(scratch)
        if len(scratch) > _SCRATCH_BYTES:
            self._scratch = bytearray()
        return json

    def _drop(self) -> None:
        newest = self._next - 1
        while self._retained_bytes > self.budget_bytes:
            if len(self._deltas) and self._deltas.entries[self._deltas.head].sequence != newest:
                shelf = self._deltas
                self._dropped_deltas += 1
            elif len(self._others) and self._others.entries[self._others.head].sequence != newest:
                shelf = self._others
            else:
                return
            self._retained_bytes -= shelf.take_oldest().size_bytes
            self._dropped_events += 1

    def _gap(self, first: int, last: int) -> Gap:
        return Gap(first, last, self._dropped_events, self._dropped_deltas)

    def _model(self, entry: _Entry) -> AgentEvent:
        model = entry.model() if entry.model is not None else None
        if model is None:
            # The journal made every part of it: nothing is left to validate.
            model = AgentEvent.model_construct(
                run_id=self.run_id,
                session_id=self.session_id,
                sequence=entry.sequence,
                timestamp=datetime.fromtimestamp(entry.timestamp_s, UTC),
                type=entry.type,
                data=freeze(_decode(entry.json)),
            )
            entry.model = weakref.ref(model)
        return model

    def _marker(self, gap: Gap) -> AgentEvent:
        return AgentEvent(
            run_id=self.run_id,
            session_id=self.session_id,
            sequence=gap.to_sequence,
            timestamp=datetime.now(UTC),
            type="diagnostic",
            data={
                "code": "EVENTS_DROPPED",
                "level": "warning",
                "message": "Some events are no longer kept. The result and the finished text are not affected.",
                "from": gap.from_sequence,
                "to": gap.to_sequence,
                "dropped_events": gap.dropped_events,
                "dropped_deltas": gap.dropped_deltas,
            },
        )


def _cut(data: dict[str, Any], cap_bytes: int) -> dict[str, Any]:
    """The same payload within `cap_bytes`: what identifies it, the start of its text, `truncated`."""
    kept: dict[str, Any] = {"truncated": True}
    room = cap_bytes // 2
    for key in _KEPT_SCALARS:
        member = data.get(key)
        if key in data and (member is None or isinstance(member, str | int | float)):
            size_bytes = len(_encode({key: member}))
            if size_bytes <= room:
                kept[key] = member
                room -= size_bytes
    name, text = ("text", data["text"]) if isinstance(data.get("text"), str) else ("payload_preview", "")
    if not text:
        text = _encode({key: member for key, member in data.items() if key not in kept}).decode("utf-8")
    room_bytes = cap_bytes - len(_encode({**kept, name: ""}))
    # No longer prefix can fit, and of a long text the rest need not be looked at.
    text = text[:room_bytes]
    limit = room_bytes
    while len(_encode(piece := cut_utf8(text, limit))) - 2 > room_bytes:
        limit = limit * 3 // 4
    return {**kept, name: piece}
