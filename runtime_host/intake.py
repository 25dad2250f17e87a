"""Intake: from what a driver yields to what is published and kept, masked on the way.

Owns the order redact, fold, number for every native event of one run; of what a harness does besides talking,
`activities` knows what it means. Must not know loops, stores or the native side. Invariants: nothing passes
unmasked; an event that is none is refused as a whole; each item that was opened is ended by an event, whatever
ends the run.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from runtime_host.activities import KIND_OF, OUTSIDE_WORKSPACE, Activities, Redactor
from runtime_host.canonical import clean_text
from runtime_host.events import DriverEvent, EventType
from runtime_host.journal import Journal
from runtime_host.results import Usage
from runtime_host.storage.base import ItemRecord, ItemState
from runtime_host.transcript import ACTIVITY_KINDS, OpenItem, Piece, TextKind, Transcript

# What a text event belongs to, the member that tells its sort, and that member when it is missing.
_TEXT_EVENTS: Final[dict[str, tuple[TextKind, str, str]]] = {
    "agent.message.delta": ("reply", "phase", "unknown"),
    "reasoning.delta": ("reasoning", "kind", "vendor"),
}
_TEXT_ENDS: Final[dict[str, tuple[TextKind, str, str]]] = {
    "agent.message.completed": ("reply", "phase", "unknown"),
    "reasoning.completed": ("reasoning", "kind", "vendor"),
}
_DELTA_OF: Final[dict[str, EventType]] = {
    "reply": "agent.message.delta",
    "reasoning": "reasoning.delta",
}
_END_OF: Final[dict[str, EventType]] = {"reply": "agent.message.completed", "reasoning": "reasoning.completed"}
_UNMARKED: Final[dict[str, dict[str, str]]] = {"reply": {"phase": "unknown"}, "reasoning": {"kind": "vendor"}}
_USAGE_FIELDS: Final = frozenset(Usage.model_fields)


class NotAnEventError(Exception):
    """A driver yielded what is no event: a defect of the driver."""


class Intake:
    """Takes the native events of one run.

    Args:
        journal: numbers and keeps what is published.
        transcript: keeps the items.
        redactor: applied to everything.
        grown: called when an item has new text to be checkpointed.
        ended: called when an item has ended and waits to be durable.
        place: a path as it is told: relative to the workspace; None for one that lies elsewhere.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        transcript: Transcript,
        redactor: Redactor,
        grown: Callable[[], None],
        ended: Callable[[], None],
        place: Callable[[str], str | None] | None = None,
    ) -> None:
        self._journal = journal
        self._transcript = transcript
        self._grown = grown
        self._ended = ended
        self._activities = Activities(
            journal=journal, transcript=transcript, redactor=redactor, grown=grown, ended=ended, place=place
        )
        self.usage: Usage | None = None

    def take(self, event: DriverEvent) -> None:
        """Take one native event.

        Raises:
            NotAnEventError: it is none.
        """
        try:
            type_, data = event
            opening = _TEXT_EVENTS.get(type_)
            if opening is not None:
                kind, mark, unmarked = opening
                if self._transcript.has_ended(kind, str(data.get("id", ""))):
                    return
                piece = self._transcript.delta(kind, str(data.get("id", "")), clean_text(data["text"]))
                if piece is not None:
                    self._publish_piece(piece, {mark: str(data.get(mark, unmarked))})
                    self._grown()
            elif type_ in _TEXT_ENDS:
                self._take_end(type_, data)
            elif type_ in KIND_OF:
                self._activities.take(type_, data)
            else:
                self._take_other(type_, data)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise NotAnEventError(_which(event)) from error

    def recognise(
        self, records: Sequence[ItemRecord], reopened: Collection[str], remarks: Collection[tuple[str, str]]
    ) -> None:
        """What the run has from before it was joined again: it is not published twice. Before anything is taken."""
        self._transcript.recognise(records, reopened)
        self._activities.recognise(remarks)

    def flush(self) -> None:
        """Publish what was held back. Nothing is taken after it."""
        self._activities.flush()
        for tail in self._transcript.flush():
            self._publish_piece(tail, _UNMARKED.get(tail.kind, {}))

    def end_items(self, state: ItemState) -> None:
        """End whatever is still open, with the text it has."""
        for item in self._transcript.close_open(state):
            if item.kind in ACTIVITY_KINDS:
                self._activities.publish_end(item)
            else:
                self._publish_end(_END_OF[item.kind], item, _UNMARKED[item.kind])

    # -------------------------------------------------------------------------------------- inside

    def _take_end(self, type_: EventType, data: dict[str, Any]) -> None:
        kind, mark, unmarked = _TEXT_ENDS[type_]
        if self._transcript.has_ended(kind, str(data.get("id", ""))):
            # Published before the run was joined again.
            return
        text = data.get("text")
        marks = {mark: str(data.get(mark, unmarked))}
        tail, item = self._transcript.complete(
            kind, str(data.get("id", "")), None if text is None else clean_text(text)
        )
        if tail is not None:
            self._publish_piece(tail, marks)
        if item is None:
            # Activity without text: the event says so, and there is nothing to keep.
            self._journal.append(type_, {"text": "", **marks})
            return
        self._publish_end(type_, item, marks)
        self._ended()

    def _take_other(self, type_: EventType, data: dict[str, Any]) -> None:
        if type_ == "diagnostic":
            self._activities.remark(data)
        elif type_ in _OTHERS:
            if type_ == "usage.updated":
                self.usage = Usage(**{key: data[key] for key in data if key in _USAGE_FIELDS})
            self._journal.append(type_, self._activities.public(data))
        else:
            raise ValueError("no event of a driver")

    def _publish_piece(self, piece: Piece, marks: dict[str, str]) -> None:
        if piece.kind in ACTIVITY_KINDS:
            self._activities.publish_piece(piece)
            return
        self._journal.append_delta(
            _DELTA_OF[piece.kind],
            piece.item_id,
            piece.text,
            {"id": piece.item_id, "index": piece.position, "at": piece.at, **marks},
        )

    def _publish_end(self, type_: EventType, item: OpenItem, marks: dict[str, str]) -> None:
        self._journal.append(
            type_,
            {
                "id": item.item_id,
                "index": item.position,
                "text": item.text,
                "size_chars": len(item.text),
                "state": item.state,
                **marks,
            },
        )


_KNOWN_MEMBERS: Final = frozenset({"id", "text", "phase", "kind", "delta", "path", "change", "name", "code", "level"})
_OTHERS: Final[frozenset[str]] = frozenset(
    {"agent.iteration.completed", "interaction.requested", "interaction.resolved", "usage.updated"}
)


def _which(event: object) -> str:
    """What was yielded, told from what can hold nothing secret: a type of ours, and which members came with it."""
    type_, data = event if isinstance(event, tuple) and len(event) == 2 else (None, None)
    if not isinstance(type_, str) or type_ not in {*_TEXT_EVENTS, *_TEXT_ENDS, *KIND_OF, "diagnostic", *_OTHERS}:
        return "something that is no event of a driver"
    known = sorted(name for name in data if name in _KNOWN_MEMBERS) if isinstance(data, dict) else []
    return f"{type_} whose data is not as it must be (it has {', '.join(known) or 'nothing known'})"


__all__ = ["OUTSIDE_WORKSPACE", "Intake", "NotAnEventError", "Redactor"]
