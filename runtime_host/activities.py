"""What a harness does, as items: plans, commands, calls of tools, changes of files.

Owns which event means what for which item, and what is known of each besides its text, within bounds. Must not
know loops or stores. Invariants: an item is opened once and ended once, by an event of its own that says so; what
is published goes by the item's id, never by the native side's; nothing passes unmasked; however many things go on
and however much they write, what is held here is bounded.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from runtime_host.canonical import FrozenDict, NotJsonError, clean_text, freeze, plain_strings
from runtime_host.events import EventType
from runtime_host.journal import Journal
from runtime_host.storage.base import ItemState
from runtime_host.transcript import (
    OPEN_ACTIVITIES,
    ActivityKind,
    OpenItem,
    Piece,
    Place,
    TextStream,
    Transcript,
    bound_text,
)

_encode: Final = msgspec.json.Encoder().encode
ABOUT_BYTES: Final = 64 * 1024
COMMAND_CHARS: Final = 8 * 1024
ARGUMENTS_CHARS: Final = 8 * 1024
STEPS: Final = 64
STEP_CHARS: Final = 512
NAME_CHARS: Final = 512
SENTENCE_CHARS: Final = 1024
PATH_CHARS: Final = 4096
DETAIL_CHARS: Final = 2048
EVENT_TEXT_BYTES: Final = 32 * 1024
"""Of an output, a result or a diff in the event that ends its item; the item has more of it."""
CODE_OF_REFUSAL: Final = "DENIED"
ENDED_KEPT: Final = 1024
"""Calls that have ended and of which it is still known which item they are."""

NOTICES: Final = 64
"""Of remarks of a harness in one run that become notices."""
NOTICED_CODES: Final = frozenset({"RETRY", "CONTINUED_AFTER_RESTART"})
"""Codes of remarks that become notices at any level."""
_NOTICED_LEVELS: Final = frozenset({"warning", "error"})

KIND_OF: Final[dict[str, ActivityKind]] = {
    "plan.updated": "plan",
    "command.started": "command",
    "command.output.delta": "command",
    "command.completed": "command",
    "tool.started": "tool",
    "tool.progress": "tool",
    "tool.completed": "tool",
    "file.change.started": "change",
    "file.changed": "change",
}
"""The event types that this module takes."""
_ENDS: Final[dict[ActivityKind, EventType]] = {
    "plan": "plan.updated",
    "command": "command.completed",
    "tool": "tool.completed",
    "change": "file.changed",
}
_ENDING_TYPES: Final = frozenset({"command.completed", "tool.completed", "file.changed"})
_OF_GATE: Final = ("operation", "decided", "effect")
_TEXT_MEMBER: Final[dict[str, str]] = {"command": "output", "tool": "result", "change": "diff"}
"""Which member of an ending event is the text of its item."""
_STEP_STATES: Final = {"active": "active", "in_progress": "active", "done": "done", "completed": "done"}
_CHANGES: Final = {"created": "created", "deleted": "deleted"}
_STATE_OF: Final[dict[str, tuple[ItemState, str]]] = {
    "failed": ("failed", ""),
    "declined": ("failed", CODE_OF_REFUSAL),
    "denied": ("failed", CODE_OF_REFUSAL),
    "interrupted": ("stopped", ""),
    "cancelled": ("stopped", ""),
}
_COMPLETE: Final[tuple[ItemState, str]] = ("complete", "")
OUTSIDE_WORKSPACE: Final[dict[str, Any]] = FrozenDict(
    code="FILE_CHANGE_OUTSIDE_WORKSPACE",
    level="warning",
    message="The harness told of a change outside of the workspace; it is left out.",
)


class Redactor(Protocol):
    """Masks secrets in everything that is published."""

    def text(self, text: str, /) -> str: ...
    def value(self, value: Any, /) -> Any: ...
    def plain(self, value: Any, strings: list[str], /) -> Any: ...
    def stream(self) -> TextStream: ...


class _Ending(NamedTuple):
    state: ItemState
    code: str = ""
    detail: str = ""


class _Ended(NamedTuple):
    """The last event of something: what may be published of it, its whole text if it has one, and where it stands."""

    kind: ActivityKind
    type: EventType
    native_id: str
    public: dict[str, Any]
    whole: str | None
    at: Place


class Activities:
    """Takes the native events of one run that tell what a harness does, and its remarks.

    Args:
        journal: numbers and keeps what is published.
        transcript: keeps the items.
        redactor: applied to everything.
        grown: called when an item has something new to be checkpointed.
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
        place: Callable[[str], str | None] | None,
    ) -> None:
        self._journal = journal
        self._transcript = transcript
        self._redactor = redactor
        self._grown = grown
        self._ended = ended
        self._place = place
        self._pieces: dict[str, TextStream] = {}
        self._over: OrderedDict[str, Place] = OrderedDict()
        self._noticed: set[tuple[str, str]] = set()
        self._told_id = self._masked_id = ""

    def take(self, type_: EventType, data: dict[str, Any]) -> None:
        """Take one event of a type in `KIND_OF`. Raises what an event that is none leads to."""
        kind = KIND_OF[type_]
        if self._transcript.remembers and self._transcript.has_ended(kind, self._id_within(kind, data)):
            # Published before the run was joined again.
            return
        if type_ == "command.output.delta":
            self._take_output(data)
        elif type_ == "tool.progress":
            self._take_progress(data)
        else:
            self._take_known(kind, type_, data)

    def remark(self, data: dict[str, Any]) -> None:
        """Take a remark of the harness; the person sees it when it is a warning or changes what they wait for."""
        public = self.public(data)
        code, message = str(public.get("code", "")), str(public.get("message", ""))
        seen = code in NOTICED_CODES or public.get("level") in _NOTICED_LEVELS
        if not seen or not message or (code, message) in self._noticed or len(self._noticed) >= NOTICES:
            self._journal.append("diagnostic", public)
            return
        self._noticed.add((code, message))
        at = self._transcript.notice(message[:DETAIL_CHARS], state="complete", code=code)
        self._journal.append("diagnostic", {**public, "id": at.item_id, "index": at.position})
        self._ended()

    def recognise(self, remarks: Collection[tuple[str, str]]) -> None:
        """Codes and words of remarks that the run has notices of already."""
        self._noticed.update(remarks)

    def flush(self) -> None:
        """Publish what of arguments was held back. Nothing is taken after it."""
        for native_id in tuple(self._pieces):
            self._end_pieces(native_id, {})

    def publish_end(self, item: OpenItem) -> None:
        """Publish that something has ended because its run has."""
        if item.kind == "plan":
            # As it was said: the words of the event, not those of the item.
            steps = [{"text": step["text"], "status": step["state"]} for step in item.about.get("steps", ())]
            said: dict[str, Any] = {"items": steps, "completed": bool(item.about.get("completed"))}
        else:
            said = {name: value for name, value in item.about.items() if name not in ("call", "cut")}
            said["status"] = item.state
        self._publish_ended(_ENDS[item.kind], item, said)  # type: ignore[index]  # only what was done is given here

    # ------------------------------------------------------------------------------------ inside

    def _take_known(self, kind: ActivityKind, type_: EventType, data: dict[str, Any]) -> None:
        """An event that says all it has to say at once."""
        native_id = self._id_within(kind, data)
        if kind == "change":
            path = self._path_of(data)
            if path is None:
                self.remark(OUTSIDE_WORKSPACE)
                return
            data = {**data, "path": path}
        # A long text is masked once, on its way into its item.
        member = _TEXT_MEMBER.get(kind, "")
        given = data.get(member)
        whole = clean_text(given) if isinstance(given, str) else None
        if whole is not None:
            data = {name: value for name, value in data.items() if name != member}
        public = self.public(data)
        known = self._transcript.known(kind, native_id)
        if kind == "tool":
            about = _about_tool(public, known, native_id)
        else:
            about = _ABOUT_OF[kind](public, known)
            if kind == "change" and whole is not None:
                about.update(_counts(whole))
            elif kind == "plan":
                public = {**public, "items": public["items"][:STEPS]}
            elif about.get("cut"):
                public = {**public, "command": about["command"], "cut": True}
        at = self._opened(kind, native_id, about)
        if type_ in _ENDING_TYPES:
            self._end(_Ended(kind, type_, native_id, public, whole, at))
        else:
            self._journal.append(type_, _at(public, at))
            self._grown()

    def _path_of(self, data: dict[str, Any]) -> str | None:
        path: str | None = data["path"] if self._place is None else self._place(data["path"])
        return path

    def _id_within(self, kind: ActivityKind, data: dict[str, Any]) -> str:
        """What an item goes by here: one change of several files is an item for each."""
        native_id = self._native_id(data)
        return f"{native_id} {self._path_of(data)}" if kind == "change" else native_id

    def _end(self, told: "_Ended") -> None:
        kind, native_id, public = told.kind, told.native_id, told.public
        if kind == "tool":
            self._end_pieces(native_id, {"name": public.get("name")})
            self._over[native_id] = told.at
            if len(self._over) > ENDED_KEPT:
                self._over.popitem(last=False)
        ending = _ending(kind, public)
        text = shown_result(public.get("result")) if kind == "tool" and told.whole is None else told.whole
        shown_chars = self._transcript.shown_chars(kind, native_id)
        tails, item = self._transcript.finish(
            kind, native_id, state=ending.state, text=text, code=ending.code, detail=ending.detail
        )
        for tail in tails:
            self.publish_piece(tail, known=public)
        if kind == "tool" and text and shown_chars:
            # What was shown meanwhile is the text no more.
            public = {**public, "replaces_chars": shown_chars}
        if told.whole is not None:
            public = {**public, _TEXT_MEMBER[kind]: bound_text(item.text, EVENT_TEXT_BYTES)}
        self._publish_ended(told.type, item, public, opened=told.at.opened)
        self._ended()

    def _opened(self, kind: ActivityKind, native_id: str, about: dict[str, Any] | None) -> Place:
        at = self._transcript.activity(kind, native_id, about)
        if at.opened and self._transcript.open_activities > OPEN_ACTIVITIES:
            # It was begun so long ago and never ended: it is not followed any more.
            oldest, its_id = self._transcript.oldest_activity()
            self._pieces.pop(its_id, None)
            _, item = self._transcript.finish(oldest, its_id, state="unknown", text=None)
            self.publish_end(item)
            self._ended()
        return at

    def _take_output(self, data: dict[str, Any]) -> None:
        text = clean_text(data["text"])
        native_id = self._native_id(data)
        known = self._transcript.known("command", native_id)
        at = self._opened("command", native_id, None if known else _about_command({}, known))
        piece = self._transcript.output(native_id, text)
        if at.opened:
            self._journal.append("command.output.delta", _at({"at": 0, "text": ""}, at))
        if piece is not None:
            self.publish_piece(piece)
        self._grown()

    def publish_piece(self, piece: Piece, known: Mapping[str, Any] = FrozenDict()) -> None:
        """Publish more of what a command or a call has written. `known`: of the call, what is not known of its item."""
        place = {"id": piece.item_id, "index": piece.position}
        if piece.kind != "tool":
            self._journal.append_delta("command.output.delta", piece.item_id, piece.text, {**place, "at": piece.at})
            return
        name = {"name": known["name"]} if known.get("name") else {}
        # Six bytes a character is the worst that JSON makes of one.
        room = max(16, (self._journal.payload_cap_bytes - 1024) // 6)
        for start in range(0, len(piece.text), room):
            told = {**place, **name, "stage": "output", "at": piece.at + start}
            self._journal.append("tool.progress", {**told, "delta": piece.text[start : start + room]})

    def _take_progress(self, data: dict[str, Any]) -> None:
        native_id = self._native_id(data)
        delta = data.get("delta")
        if delta is not None:
            delta = clean_text(delta)
            data = {name: value for name, value in data.items() if name != "delta"}
        rest = self.public(data)
        at = self._over.get(native_id)
        if at is None:
            known = self._transcript.known("tool", native_id)
            at = self._opened("tool", native_id, None if known else _about_tool(rest, known, native_id))
            if at.opened:
                self._grown()
        if delta is None:
            if rest.get("stage") != "arguments":
                self._end_pieces(native_id, rest)
            self._journal.append("tool.progress", _at(rest, at))
            return
        if rest.get("stage") == "output":
            self._take_shown(native_id, rest, at, delta)
            return
        stream = self._pieces.get(native_id)
        if stream is None:
            stream = self._pieces[native_id] = self._redactor.stream()
        shown = stream.feed(delta)
        if shown or at.opened:
            self._journal.append("tool.progress", {**_at(rest, at), "delta": shown})

    def _take_shown(self, native_id: str, rest: dict[str, Any], at: Place, delta: str) -> None:
        """Text that a call shows while it goes on: the text of its item until there is a result."""
        if native_id in self._over:
            return
        self._end_pieces(native_id, rest)
        if at.opened:
            self._journal.append("tool.progress", _at({**rest, "at": 0, "delta": ""}, at))
        piece = self._transcript.output(native_id, delta, "tool")
        if piece is not None:
            self.publish_piece(piece, known=rest)
        self._grown()

    def _end_pieces(self, native_id: str, rest: dict[str, Any]) -> None:
        """Publish what was held back of a call's arguments."""
        stream = self._pieces.pop(native_id, None)
        held = stream.flush() if stream is not None else ""
        if held:
            at = self._over.get(native_id) or self._transcript.activity("tool", native_id)
            name = rest.get("name") or self._transcript.known("tool", native_id).get("name")
            self._journal.append("tool.progress", {**_at({"name": name, "stage": "arguments"}, at), "delta": held})

    def _publish_ended(self, type_: EventType, item: OpenItem, public: dict[str, Any], *, opened: bool = False) -> None:
        told = _at(public, Place(item.item_id, item.position, opened))
        about = {name: value for name, value in item.about.items() if name != "call"}
        told |= {"state": item.state, "size_chars": len(item.text), "about": about}
        for name, value in (("code", item.code), ("detail", item.detail)):
            if value:
                told[name] = value
        self._journal.append(type_, told)

    def _native_id(self, data: dict[str, Any]) -> str:
        told = data.get("id", "")
        if told != self._told_id or type(told) is not str:
            # Of one thing come many events, one after the other.
            self._told_id, self._masked_id = str(told), self._redactor.text(clean_text(str(told)))
        return self._masked_id

    def public(self, data: dict[str, Any]) -> dict[str, Any]:
        """What may be published of an event's data, now and not later: masked, and JSON, and perhaps the driver's own.

        Raises:
            NotJsonError: it is none.
        """
        strings = plain_strings(data)
        if strings is not None:
            # A mask is of the same types as what it masks.
            plain: dict[str, Any] = self._redactor.plain(data, strings)
            return plain
        public: dict[str, Any] = self._redactor.value(data if type(data) is dict else dict(data))
        try:
            public = freeze(public)
        except NotJsonError:
            # Half characters come from the far side; all else that is no JSON is a defect of the driver.
            public = freeze(self._redactor.value(_whole_characters(dict(data))))
        return public


def _at(public: dict[str, Any], at: Place) -> dict[str, Any]:
    """An event's data under the id and the position of its item."""
    told = {**public, "id": at.item_id, "index": at.position}
    if at.opened:
        told["opened"] = True
    return told


def _ending(kind: ActivityKind, data: dict[str, Any]) -> _Ending:
    """What state something ended in, from what its last event says."""
    status, detail = data.get("status"), data.get("detail")
    state, code = _STATE_OF.get(status, _COMPLETE) if isinstance(status, str) else _COMPLETE
    if kind == "tool" and data.get("error") is not None:
        state = "failed" if state == "complete" else state
        detail = data["error"]
    if detail is None:
        return _Ending(state, code)
    words = detail if isinstance(detail, str) else json.dumps(detail, ensure_ascii=False)
    return _Ending(state, code, words[:DETAIL_CHARS])


def shown_result(result: Any) -> str | None:
    """A result as it is read: text as it is, other JSON laid out."""
    if result is None or isinstance(result, str):
        return result
    return msgspec.json.format(_encode(result), indent=2).decode("utf-8")


def shown_arguments(arguments: Any) -> str:
    """Arguments as they are read: JSON as it came."""
    return arguments if isinstance(arguments, str) else _encode(arguments).decode("utf-8")


def step_state(status: Any) -> str:
    """How far a step of a plan is: pending, active or done."""
    return _STEP_STATES.get(status, "pending") if isinstance(status, str) else "pending"


def _about_plan(data: dict[str, Any], _known: dict[str, Any]) -> dict[str, Any]:
    said = data["items"]
    steps: list[dict[str, Any]] = [
        {
            "text": _line(step["text"], STEP_CHARS),
            "state": step_state(step.get("status")),
        }
        for step in said[:STEPS]
    ]
    while len(steps) > 1 and len(msgspec.json.encode(steps)) > ABOUT_BYTES - 1024:
        steps.pop()
    about: dict[str, Any] = {"steps": steps, "completed": data.get("completed") is True}
    if len(said) > len(steps):
        about["left_out"] = len(said) - len(steps)
    return about


def _about_command(data: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    command = str(data.get("command") or known.get("command", ""))
    about = {"command": command[:COMMAND_CHARS], "exit_code": _number(data, "exit_code")}
    if len(command) > COMMAND_CHARS or known.get("cut"):
        about["cut"] = True
    return _with_duration(about, data)


def _about_tool(data: dict[str, Any], known: dict[str, Any], native_id: str) -> dict[str, Any]:
    about: dict[str, Any] = {
        "name": _line(data.get("name") or known.get("name"), NAME_CHARS),
        "call": native_id[:NAME_CHARS],
    }
    if "arguments" in data:
        arguments = shown_arguments(data["arguments"])
        about["arguments"] = arguments[:ARGUMENTS_CHARS]
        if len(arguments) > ARGUMENTS_CHARS:
            about["cut"] = True
    else:
        about.update({name: known[name] for name in ("arguments", "cut") if name in known})
    if "operation" in data or "operation" in known:
        # What a person was asked, and what they said: of calls that went through the gate.
        for name in _OF_GATE:
            if said := data.get(name) or known.get(name):
                about[name] = _line(said, SENTENCE_CHARS if name == "effect" else NAME_CHARS)
    return _with_duration(about, data)


def _about_change(data: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    counted: dict[str, Any] = {name: each for name, each in known.items() if name in ("added", "removed")}
    change = _CHANGES.get(str(data.get("change")), "modified")
    return {"path": data["path"][:PATH_CHARS], "change": change, **counted}


def _counts(diff: str) -> dict[str, int]:
    """How many lines a change adds and removes."""
    lines = diff.split("\n")
    return {
        "added": sum(line.startswith("+") and not line.startswith("+++ ") for line in lines),
        "removed": sum(line.startswith("-") and not line.startswith("--- ") for line in lines),
    }


_ABOUT_OF: Final[dict[ActivityKind, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]]] = {
    "plan": _about_plan,
    "command": _about_command,
    "change": _about_change,
}


def _with_duration(about: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    duration_ms = _number(data, "duration_ms")
    if duration_ms is not None:
        about["duration_ms"] = max(0, duration_ms)
    return about


def _number(data: dict[str, Any], name: str) -> int | None:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _line(value: Any, limit: int) -> str:
    """Words on one line."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    if len(text) <= limit and text.isidentifier():
        return text
    return " ".join(text[: limit * 2].split())[:limit]


def _whole_characters(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        keys = [clean_text(key) if isinstance(key, str) else key for key in value]
        return dict(zip(keys, map(_whole_characters, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return [_whole_characters(each) for each in value]
    return value
