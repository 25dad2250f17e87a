"""Intake: from what a driver yields to what is published and kept, masked on the way.

Owns the order redact, fold, number for every native event of one run. Must not know loops, stores or
the native side. Invariants: nothing passes unmasked; an event that is none is refused as a whole; each
item that was opened is ended by an event, whatever ends the run.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from runtime_host.canonical import FrozenDict, clean_text, freeze
from runtime_host.events import DriverEvent, EventType
from runtime_host.journal import Journal
from runtime_host.results import Usage
from runtime_host.storage.base import ItemState
from runtime_host.transcript import OpenItem, Piece, TextKind, TextStream, Transcript

# What a text event belongs to, the member that tells its sort, and that member when it is missing.
_TEXT_EVENTS: Final[dict[str, tuple[TextKind, str, str]]] = {
    "agent.message.delta": ("reply", "phase", "unknown"),
    "reasoning.delta": ("reasoning", "kind", "vendor"),
}
_TEXT_ENDS: Final[dict[str, tuple[TextKind, str, str]]] = {
    "agent.message.completed": ("reply", "phase", "unknown"),
    "reasoning.completed": ("reasoning", "kind", "vendor"),
}
_DELTA_OF: Final[dict[TextKind, EventType]] = {"reply": "agent.message.delta", "reasoning": "reasoning.delta"}
_END_OF: Final[dict[TextKind, EventType]] = {"reply": "agent.message.completed", "reasoning": "reasoning.completed"}
_USAGE_FIELDS: Final = frozenset(Usage.model_fields)


class Redactor(Protocol):
    """Masks secrets in everything that is published."""

    def text(self, text: str, /) -> str: ...
    def value(self, value: Any, /) -> Any: ...
    def stream(self) -> TextStream: ...


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
        self._redactor = redactor
        self._grown = grown
        self._ended = ended
        self._place = place
        self._streams: dict[str, _Stream] = {}
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
                piece = self._transcript.delta(kind, str(data.get("id", "")), clean_text(data["text"]))
                if piece is not None:
                    self._publish_piece(piece, {mark: str(data.get(mark, unmarked))})
                    self._grown()
            elif type_ in _TEXT_ENDS:
                self._take_end(type_, data)
            else:
                self._take_other(type_, data)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise NotAnEventError(_which(event)) from error

    def flush(self) -> None:
        """Publish what was held back. Nothing is taken after it."""
        self._end_streams()
        for tail in self._transcript.flush():
            self._publish_piece(tail, _unmarked(tail.kind))

    def end_items(self, state: ItemState) -> None:
        """End whatever is still open, with the text it has."""
        for item in self._transcript.close_open(state):
            kind: TextKind = "reply" if item.kind == "reply" else "reasoning"
            self._publish_end(_END_OF[kind], item, _unmarked(kind))

    # -------------------------------------------------------------------------------------- inside

    def _take_end(self, type_: EventType, data: dict[str, Any]) -> None:
        kind, mark, unmarked = _TEXT_ENDS[type_]
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
        if type_ == "command.output.delta":
            self._take_stream(type_, "text", data)
        elif type_ == "tool.progress":
            self._take_stream(type_, "delta", data)
        elif type_ in _OTHERS:
            if type_ in _FILE_EVENTS and self._place is not None:
                path = self._place(data["path"])
                if path is None:
                    self._journal.append("diagnostic", OUTSIDE_WORKSPACE)
                    return
                data = {**data, "path": path}
            if type_ in ("command.completed", "tool.completed"):
                self._end_streams(str(data.get("id", "")))
            elif type_ == "usage.updated":
                self.usage = Usage(**{key: data[key] for key in data if key in _USAGE_FIELDS})
            self._journal.append(type_, self._public(data))
        else:
            raise ValueError("no event of a driver")

    def _publish_piece(self, piece: Piece, marks: dict[str, str]) -> None:
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

    def _take_stream(self, type_: EventType, member: str, data: dict[str, Any]) -> None:
        chunk = data.get(member)
        if chunk is None:
            self._journal.append(type_, self._public(data))
            return
        native_id = str(data.get("id", ""))
        key = f"{type_} {native_id}"
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream(type_, member, native_id, self._redactor.stream())
        stream.rest = {name: value for name, value in data.items() if name != member}
        shown = stream.text.feed(clean_text(chunk))
        if shown:
            self._publish_stream(stream, shown)

    def _publish_stream(self, stream: "_Stream", shown: str) -> None:
        rest = self._public(stream.rest)
        if stream.member == "text":
            self._journal.append_delta(stream.type, f"command {stream.native_id}", shown, {**rest, "at": stream.chars})
            stream.chars += len(shown)
        else:
            self._journal.append(stream.type, {**rest, stream.member: shown})

    def _end_streams(self, native_id: str | None = None) -> None:
        for key, stream in tuple(self._streams.items()):
            if native_id is None or stream.native_id == native_id:
                del self._streams[key]
                held = stream.text.flush()
                if held:
                    self._publish_stream(stream, held)

    def _public(self, data: dict[str, Any]) -> dict[str, Any]:
        public: FrozenDict = freeze(self._redactor.value(dict(data)))
        return public


_FILE_EVENTS: Final = frozenset({"file.change.started", "file.changed"})
OUTSIDE_WORKSPACE: Final[dict[str, Any]] = FrozenDict(
    code="FILE_CHANGE_OUTSIDE_WORKSPACE",
    level="warning",
    message="The harness told of a change outside of the workspace; it is left out.",
)
_STREAMS: Final = ("command.output.delta", "tool.progress")
_KNOWN_MEMBERS: Final = frozenset({"id", "text", "phase", "kind", "delta", "path", "change", "name", "code", "level"})
_OTHERS: Final[frozenset[str]] = frozenset(
    {
        "plan.updated",
        "agent.iteration.completed",
        "command.started",
        "command.completed",
        "file.change.started",
        "file.changed",
        "tool.started",
        "tool.completed",
        "interaction.requested",
        "interaction.resolved",
        "usage.updated",
        "diagnostic",
    }
)


def _which(event: object) -> str:
    """What was yielded, told from what can hold nothing secret: a type of ours, and which members came with it."""
    type_, data = event if isinstance(event, tuple) and len(event) == 2 else (None, None)
    if not isinstance(type_, str) or type_ not in {*_TEXT_EVENTS, *_TEXT_ENDS, *_STREAMS, *_OTHERS}:
        return "something that is no event of a driver"
    known = sorted(name for name in data if name in _KNOWN_MEMBERS) if isinstance(data, dict) else []
    return f"{type_} whose data is not as it must be (it has {', '.join(known) or 'nothing known'})"


def _unmarked(kind: TextKind) -> dict[str, str]:
    return {"phase": "unknown"} if kind == "reply" else {"kind": "vendor"}


class _Stream:
    """Text of a command or a tool that arrives in pieces; masked across them, kept nowhere."""

    __slots__ = ("chars", "member", "native_id", "rest", "text", "type")

    def __init__(self, type_: EventType, member: str, native_id: str, text: TextStream) -> None:
        self.type = type_
        self.member = member
        self.native_id = native_id
        self.text = text
        self.rest: dict[str, Any] = {}
        self.chars = 0
