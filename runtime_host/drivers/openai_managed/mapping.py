"""OpenAI's events and saved items as events of a run. Pure.

Owns what of a turn was told so far. Must not know any I/O. Invariants: events are told apart by their `type` string;
each item is told once, in the order of its first sight, however often and in whatever order its events come; the final
answer is made of the saved items alone; nothing of another turn, such as a subagent's, is told.
"""

import json
import posixpath
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from runtime_host.drivers.openai_managed.words import code_of
from runtime_host.events import DriverEvent
from runtime_host.loop.model_apis.reading import Halves, listed, member, number, text
from runtime_host.results import Artifact, Usage
from runtime_host.tools.base import ToolDelivery, ToolRequest

TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
MOST_EARLY: Final = 512
_EVENT_IDS: Final = 4096
_S: Final = "agent.session."
_T: Final = f"{_S}turn."
_OUTPUT_DELTA: Final = "agent.output.command_execution_output.delta"
_TELL_NOTHING: Final = frozenset(
    {
        f"{_S}{name}"
        for name in (
            "created",
            "in_progress",
            "requires_action",
            "idle",
            "failed",
            "budget_reached",
            "environment.pending",
            "environment.ready",
            "environment.connected",
            "environment.suspended",
            "subagent.created",
            "subagent.active",
            "subagent.closed",
            "turn.created",
            "turn.in_progress",
            "turn.completed",
            "turn.failed",
            "turn.cancelled",
            "turn.content_part.added",
            "turn.content_part.done",
            "turn.output_text.done",
            "turn.reasoning_summary_part.added",
            "turn.reasoning_summary_part.done",
        )
    }
)
_LOOK_AFTER: Final = frozenset(
    {f"{_S}{name}" for name in ("requires_action", "idle", "failed", "budget_reached", "environment.failed")}
    | {f"{_T}{name}" for name in ("completed", "failed", "cancelled")}
    | {"error"}
)
_ENVIRONMENTS: Final[Mapping[str, tuple[str, str]]] = {
    f"{_S}environment.failed": ("ENVIRONMENT_FAILED", "The environment at OpenAI failed."),
    f"{_S}environment.expired": (
        "ENVIRONMENT_EXPIRED",
        "The environment at OpenAI has expired. Its files are gone; what it published can still be fetched there.",
    ),
    f"{_S}environment.disconnected": ("ENVIRONMENT_DISCONNECTED", "The environment at OpenAI is not connected."),
    f"{_S}environment.reset": (
        "ENVIRONMENT_RESET",
        "OpenAI replaced the environment. Files that were made in it before are gone.",
    ),
}
_STATUS_OF: Final = {"completed": "completed", "failed": "failed", "incomplete": "interrupted"}


class TurnMapper:
    """What of one turn was told.

    Attributes:
        turn_id: whose events are told; "" until it is known: what comes before waits.
        session: the last description of the session that an event brought; None before the first.
        ended: an event said that the turn is over; nothing of it follows.
        roots: turns of the session's own agent that events spoke of, in that order.
        wants_a_look: an event came after which the saved state has to be read; the reader sets it back.
    """

    def __init__(self, turn_id: str = "") -> None:
        self.turn_id = turn_id
        self.session: dict[str, Any] | None = None
        self.ended = False
        self._asked: dict[str, set[str]] = {}
        self._answered: dict[str, set[str]] = {}
        self.wants_a_look = False
        self._early: deque[dict[str, Any]] = deque(maxlen=MOST_EARLY)
        self._event_ids: deque[str] = deque(maxlen=_EVENT_IDS)
        self._seen_events: set[str] = set()
        self._items: dict[str, dict[str, Any]] = {}
        self._begun: dict[str, str] = {}
        self._done: set[str] = set()
        self._stale: set[str] = set()
        self._after_gap = False
        self._halves: dict[str, Halves] = {}
        self._unknown_told = False
        self._errors: set[str] = set()
        self._resets: set[tuple[str, Any]] = set()
        self.roots: list[str] = []

    # ---- what streams bring ----

    def event(self, event: dict[str, Any]) -> list[DriverEvent]:
        """What an event of the stream tells."""
        kind = text(event, "type")
        if not self._is_new(event):
            return []
        if kind in _LOOK_AFTER:
            self.wants_a_look = True
        if isinstance(event.get("session"), dict):
            self.session = event["session"]
        turn = member(event, "turn")
        if text(turn, "id") and turn.get("subagent_id") is None and text(turn, "id") not in self.roots:
            self.roots.append(text(turn, "id"))
        if not kind.startswith((_S, "agent.output.")):
            return self._error(event) if kind == "error" else self._unknown()
        if kind.startswith(_T) or kind == _OUTPUT_DELTA:
            return self._of_a_turn(kind, event)
        if kind in _ENVIRONMENTS:
            return self._of_the_environment(kind, event)
        return [] if kind in _TELL_NOTHING else self._unknown()

    def gap(self) -> None:
        """The stream was lost or begins in the middle: pieces may be missing of whatever is open."""
        self._after_gap = True
        self._stale |= self._begun.keys() - self._done

    def now(self, turn_id: str) -> list[DriverEvent]:
        """The turn is known: what came before and belongs to it."""
        self.turn_id = turn_id
        early, self._early = tuple(self._early), deque(maxlen=MOST_EARLY)
        return [told for event in early for told in self._of_a_turn(text(event, "type"), event)]

    def _is_new(self, event: Mapping[str, Any]) -> bool:
        event_id = text(event, "event_id")
        if not event_id:
            return True
        if event_id in self._seen_events:
            return False
        if len(self._event_ids) == _EVENT_IDS:
            self._seen_events.discard(self._event_ids[0])
        self._event_ids.append(event_id)
        self._seen_events.add(event_id)
        return True

    def asked(self, call_id: str) -> int:
        """How often a call of this id was made, as far as is known: once at least, where it is waited for."""
        return max(1, len(self._asked.get(call_id, ())))

    def answered(self, call_id: str) -> int:
        """How many saved results of this id were seen."""
        return len(self._answered.get(call_id, ()))

    def _of_a_turn(self, kind: str, event: dict[str, Any]) -> list[DriverEvent]:
        named = text(event, "turn_id") or text(member(event, "turn"), "id")
        if not self.turn_id:
            self._early.append(event)
            return []
        if named and named != self.turn_id:
            return []
        if kind.removeprefix(_T) in TERMINAL:
            self.ended = True
        if kind == f"{_T}item.added":
            return self._added(member(event, "item"))
        if kind == f"{_T}item.done":
            return self._complete(member(event, "item"))
        if kind == f"{_T}output_text.delta":
            return self._message_piece(event)
        if kind == f"{_T}reasoning_summary_text.delta":
            return self._piece("reasoning.delta", _summary_id(event), text(event, "item_id"), event, kind="summary")
        if kind == f"{_T}reasoning_summary_text.done":
            return self._summary_done(_summary_id(event), text(event, "text"))
        if kind == _OUTPUT_DELTA:
            item_id = text(event, "item_id")
            if item_id not in self._items:
                # Its command was not told yet; the output comes with the end of it.
                self._stale.add(item_id)
            return self._piece("command.output.delta", item_id, item_id, event)
        return [] if kind in _TELL_NOTHING else self._unknown()

    def _error(self, event: Mapping[str, Any]) -> list[DriverEvent]:
        code = code_of(member(event, "error"))
        if code in self._errors:
            return []
        self._errors.add(code)
        named = f" ({code})" if code else ""
        message = f"OpenAI reported a fault while it worked{named}. The turn goes on until OpenAI says how it ended."
        return [_diagnostic("PROVIDER_ERROR", "warning", message)]

    def _of_the_environment(self, kind: str, event: Mapping[str, Any]) -> list[DriverEvent]:
        code, message = _ENVIRONMENTS[kind]
        which = (code, event.get("reset_count") if type(event.get("reset_count")) is int else None)
        if which in self._resets:
            return []
        self._resets.add(which)
        return [_diagnostic(code, "warning", message)]

    def _unknown(self) -> list[DriverEvent]:
        if self._unknown_told:
            return []
        self._unknown_told = True
        message = "OpenAI sent a kind of event that is not known here. It was left out; the saved result is complete."
        return [_diagnostic("EVENT_UNKNOWN", "info", message)]

    # ---- what is saved ----

    def saved(self, items: Iterable[Mapping[str, Any]]) -> list[DriverEvent]:
        """What saved items tell that was not told yet, in their order."""
        told: list[DriverEvent] = []
        for item in items:
            told += self._complete(item) if _is_over(item) else self._added(item, live=False)
        return told

    def _added(self, item: Mapping[str, Any], *, live: bool = True) -> list[DriverEvent]:
        item_id = text(item, "id")
        self._note_call(item)
        if not item_id or item_id in self._done or not self._is_ours(item):
            return []
        if not live and item_id not in self._begun:
            # Its beginning was not seen: how much of it was said before the stream is not known.
            self._stale.add(item_id)
        first = item_id not in self._begun
        self._items[item_id] = dict(item)
        self._begun.setdefault(item_id, text(item, "type"))
        kind = text(item, "type")
        if not first:
            return []
        if kind == "command_execution":
            return [DriverEvent("command.started", {"id": item_id, "command": text(item, "command")})]
        if _is_tool(kind):
            return [DriverEvent("tool.started", {"id": item_id, "name": _tool_name(item), "arguments": _asked(item)})]
        return []

    def _complete(self, item: Mapping[str, Any]) -> list[DriverEvent]:
        item_id, kind = text(item, "id"), text(item, "type")
        self._note_call(item)
        if not item_id or item_id in self._done or not self._is_ours(item):
            return []
        begun = self._added(item)
        self._items[item_id] = dict(item)
        self._done.add(item_id)
        if kind == "message" and text(item, "role") == "assistant":
            about = {"id": item_id, "text": _whole(message_text(item)), "phase": _phase(item)}
            return [DriverEvent("agent.message.completed", about)]
        if kind == "reasoning":
            parts = [text(part, "text") for part in listed(item.get("summary"))]
            return [e for at, part in enumerate(parts) for e in self._summary_done(f"{item_id}/{at}", part)]
        if kind == "command_execution":
            return [*begun, _command_completed(item)]
        if _is_tool(kind):
            return [*begun, _tool_completed(item)]
        return []

    def _note_call(self, item: Mapping[str, Any]) -> None:
        call_id, item_id = text(item, "call_id"), text(item, "id")
        if call_id and item_id and self._is_ours(item):
            if text(item, "type") == "function_call_output":
                self._answered.setdefault(call_id, set()).add(item_id)
            elif text(item, "type") == "function_call":
                self._asked.setdefault(call_id, set()).add(item_id)

    def _is_ours(self, item: Mapping[str, Any]) -> bool:
        return text(item, "turn_id") in ("", self.turn_id)

    def _message_piece(self, event: Mapping[str, Any]) -> list[DriverEvent]:
        item_id = text(event, "item_id")
        if number(event, "content_index") not in (0, None):
            # Parts after the first come with the whole message.
            self._stale.add(item_id)
        phase = _phase(self._items.get(item_id, {}))
        return self._piece("agent.message.delta", item_id, item_id, event, phase=phase)

    def _piece(self, what: Any, told_id: str, item_id: str, event: Mapping[str, Any], **more: str) -> list[DriverEvent]:
        if not item_id or {item_id, told_id} & self._done or item_id in self._stale:
            return []
        if self._after_gap and item_id not in self._begun:
            # It may have begun while nobody watched.
            self._stale.add(item_id)
            return []
        self._begun.setdefault(item_id, "")
        piece = self._halves.setdefault(told_id, Halves()).whole(text(event, "delta"))
        return [DriverEvent(what, {"id": told_id, "text": piece, **more})] if piece else []

    def _summary_done(self, told_id: str, words: str) -> list[DriverEvent]:
        if told_id in self._done or not words:
            return []
        self._done.add(told_id)
        return [DriverEvent("reasoning.completed", {"id": told_id, "text": _whole(words), "kind": "summary"})]


def answer_of(items: Iterable[Mapping[str, Any]], turn_id: str) -> str:
    """The text of the final answer: of the completed messages of a turn that are no commentary, as they were saved."""
    answers = [item for item in items if _is_answer(item) and text(item, "turn_id") in ("", turn_id)]
    return "".join(_whole(message_text(item)) for item in answers)


def _is_answer(item: Mapping[str, Any]) -> bool:
    is_reply = text(item, "type") == "message" and text(item, "role") == "assistant"
    return is_reply and text(item, "status") == "completed" and text(item, "phase") != "commentary"


def _is_over(item: Mapping[str, Any]) -> bool:
    return text(item, "status") != "in_progress"


def _is_tool(kind: str) -> bool:
    """Whether an item is a call of a tool of the provider's own; those of the application are told by their channel."""
    return kind.endswith("_call") and kind != "function_call"


def _summary_id(event: Mapping[str, Any]) -> str:
    return f"{text(event, 'item_id')}/{number(event, 'summary_index') or 0}"


def _phase(item: Mapping[str, Any]) -> str:
    phase = text(item, "phase")
    return phase if phase in ("commentary", "final_answer") else "unknown"


def _whole(words: str) -> str:
    whole = Halves()
    return whole.whole(words)


def message_text(item: Mapping[str, Any]) -> str:
    """The words of a message, of the person or the model."""
    parts = [part for part in listed(item.get("content")) if text(part, "type") in ("output_text", "input_text")]
    return "".join(text(part, "text") for part in parts)


def _tool_name(item: Mapping[str, Any]) -> str:
    return text(item, "name") or text(item, "type").removesuffix("_call")


def _asked(item: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("arguments", "action"):
        value = item.get(name)
        if isinstance(value, dict):
            return value
    title = text(item, "title")
    return {"title": title} if title else {}


def _tool_completed(item: Mapping[str, Any]) -> DriverEvent:
    failed = text(item, "status") in ("failed", "incomplete")
    output = item.get("output")
    about = {
        "id": text(item, "id"),
        "name": _tool_name(item),
        # Pictures would be megabytes; of anything else it is what the provider's own tool answered.
        "result": output if isinstance(output, str) and not failed else None,
        "error": "OpenAI says that it failed." if failed else None,
        "status": _STATUS_OF.get(text(item, "status"), "completed"),
    }
    return DriverEvent("tool.completed", about)


def _command_completed(item: Mapping[str, Any]) -> DriverEvent:
    exit_code = item.get("exit_code")
    ran = type(exit_code) is int
    about: dict[str, Any] = {
        "id": text(item, "id"),
        "command": text(item, "command"),
        "exit_code": exit_code if ran else None,
        "status": "completed" if ran else _STATUS_OF.get(text(item, "status"), "failed"),
    }
    if text(item, "output"):
        about["output"] = _whole(text(item, "output"))
    if number(item, "duration_ms") is not None:
        about["duration_ms"] = number(item, "duration_ms")
    return DriverEvent("command.completed", about)


def _diagnostic(code: str, level: str, message: str) -> DriverEvent:
    return DriverEvent("diagnostic", {"code": code, "level": level, "message": message})


# ---------------------------------------------------------------------------------- calls


def pending_calls(actions: Sequence[Mapping[str, Any]], turn_id: str) -> list[ToolRequest]:
    """The calls of the application's tools that a turn waits for."""
    return [
        ToolRequest(text(action, "call_id"), text(action, "name"), _arguments(action.get("arguments")))
        for action in actions
        if text(action, "type") == "function_call" and text(action, "turn_id") == turn_id and text(action, "call_id")
    ]


def other_actions(actions: Sequence[Mapping[str, Any]]) -> list[str]:
    """The kinds of what a session waits for besides calls of functions."""
    return [text(action, "type") for action in actions if text(action, "type") != "function_call"]


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps({} if value is None else value)


def tool_result(turn_id: str, delivery: ToolDelivery, payload: Any) -> dict[str, Any]:
    """The input that tells the agent what came of a call. `payload`: of the delivery, as plain JSON."""
    told = {"type": f"{_S}input.tool_result", "turn_id": turn_id, "call_id": delivery.call_id}
    if not delivery.success and delivery.error is not None:
        return {**told, "success": False, "error": delivery.error}
    output = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    return {**told, "success": True, "output": output}


def tool_started(request: ToolRequest, arguments: Any) -> DriverEvent:
    about = {**request.about, "id": request.call_id, "name": request.name, "arguments": arguments}
    return DriverEvent("tool.started", about)


def tool_completed(delivery: ToolDelivery) -> DriverEvent:
    return DriverEvent(
        "tool.completed",
        {
            **delivery.about,
            "id": delivery.call_id,
            "name": delivery.name,
            "result": delivery.payload if delivery.success else None,
            "error": delivery.error,
            "duration_ms": delivery.duration_ms,
        },
    )


# ---------------------------------------------------------------------------------- the end


def usage_of(turn: Mapping[str, Any]) -> Usage | None:
    """What a turn used, as far as the provider says."""
    said = member(turn, "usage")
    if not said:
        return None
    return Usage(
        input_tokens=number(said, "input_tokens"),
        cached_input_tokens=number(member(said, "input_tokens_details"), "cached_tokens"),
        output_tokens=number(said, "output_tokens"),
        reasoning_tokens=number(member(said, "output_tokens_details"), "reasoning_tokens"),
        total_tokens=number(said, "total_tokens"),
        coverage="the root turn as OpenAI counted it, which may change",
    )


_UNSAFE: Final = re.compile(r"[^\w.()+,@ -]")


def artifacts_of(
    listing: Iterable[Mapping[str, Any]], *, session_id: str, turn_id: str, environment_id: str
) -> tuple[Artifact, ...]:
    """What one turn of one session published in one environment, as references."""
    whose = {"session_id": session_id, "turn_id": turn_id, "environment_id": environment_id}
    return tuple(
        Artifact(type="reference", name=safe_name(text(each, "path")), reference=text(each, "id"))
        for each in listing
        if text(each, "id") and all(text(each, name) == value for name, value in whose.items())
    )


def safe_name(path: str) -> str:
    """The last part of a path of the provider, as a name that leads nowhere."""
    name = _UNSAFE.sub("_", posixpath.basename(path)).strip(". ")[:120]
    return name or "file"
