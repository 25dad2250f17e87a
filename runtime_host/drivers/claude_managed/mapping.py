"""Events of a managed Claude session as events of a run. Pure.

Must not know any I/O. Invariants: what an event is, its `type` says and nothing else; an event is told once, however
often and on whichever way it comes; a piece of a text is told only where its beginning was; the whole message under the
same id is the truth.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from runtime_host.events import DriverEvent
from runtime_host.loop.model_apis.reading import member, text

Event = Mapping[str, Any]

_NOTICES: Final[Mapping[str, tuple[str, str, str]]] = {
    "session.status_rescheduled": (
        "RESCHEDULED",
        "info",
        "Anthropic moved this session to another place and goes on with it there.",
    ),
    "agent.thread_context_compacted": (
        "CONTEXT_COMPACTED",
        "info",
        "The conversation had become long, so Anthropic summed up its older part.",
    ),
}
_ERRORS: Final = frozenset(
    {
        "billing_error",
        "compaction_limit_reached_error",
        "mcp_authentication_failed_error",
        "mcp_connection_failed_error",
        "model_overloaded_error",
        "model_rate_limited_error",
        "model_request_failed_error",
        "tool_use_limit_reached_error",
        "unknown_error",
    }
)
"""What a session's error may be called; another name is not repeated."""


class TurnMapper:
    """Events of one turn, from a stream and from the history, in whatever order."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._previews: set[str] = set()
        self._native: dict[str, tuple[str, str, bool]] = {}

    def earlier(self, events: Iterable[Event]) -> None:
        """These belong to turns before; should they come again, they are not told."""
        self._told.update(key(event) for event in events)

    def reconnected(self) -> None:
        """Another stream is read from now on: what it tells the middle of has no beginning here."""
        self._previews.clear()

    def take(self, event: Event) -> list[DriverEvent]:
        """What an event is for the run; nothing when it was taken before, or means nothing here."""
        kind = text(event, "type")
        if kind in ("event_start", "event_delta"):
            return self._preview(kind, event)
        named = key(event)
        if named in self._told:
            return []
        if kind.startswith("user."):
            return []
        self._told.add(named)
        return self._whole(kind, event)

    def _preview(self, kind: str, event: Event) -> list[DriverEvent]:
        if kind == "event_start":
            begun = member(event, "event")
            event_id = text(begun, "id")
            if text(begun, "type") == "agent.message" and event_id and event_id not in self._told:
                self._previews.add(event_id)
            return []
        event_id, piece = text(event, "event_id"), text(member(member(event, "delta"), "content"), "text")
        if event_id not in self._previews or event_id in self._told or not piece:
            return []
        return [DriverEvent("agent.message.delta", {"id": event_id, "text": piece, "phase": "unknown"})]

    def _whole(self, kind: str, event: Event) -> list[DriverEvent]:
        event_id = text(event, "id")
        if kind == "agent.message":
            self._previews.discard(event_id)
            said = {"id": event_id, "text": words(event), "phase": "unknown"}
            return [DriverEvent("agent.message.completed", said)] if event_id else []
        if kind == "agent.thinking":
            thought = {"id": event_id, "text": "", "kind": "vendor"}
            return [DriverEvent("reasoning.completed", thought)] if event_id else []
        if kind in ("agent.tool_use", "agent.mcp_tool_use"):
            return self._begun(event_id, event)
        if kind in ("agent.tool_result", "agent.mcp_tool_result"):
            return self._done(event)
        if kind == "span.model_request_end":
            # A request that broke off has no message; nothing of it follows.
            self._previews.clear()
            return []
        if kind == "session.error":
            return [_error(event)]
        notice = _NOTICES.get(kind)
        if notice is not None:
            code, level, message = notice
            return [DriverEvent("diagnostic", {"code": code, "level": level, "message": message})]
        return []

    def _begun(self, event_id: str, event: Event) -> list[DriverEvent]:
        if not event_id:
            return []
        name, given = text(event, "name"), member(event, "input")
        command = text(given, "command") if name == "bash" else ""
        self._native[event_id] = (name, command, event.get("evaluated_permission") == "deny")
        if command:
            return [DriverEvent("command.started", {"id": event_id, "command": command})]
        return [DriverEvent("tool.started", {"id": event_id, "name": name or "tool", "arguments": dict(given)})]

    def _done(self, event: Event) -> list[DriverEvent]:
        call_id = text(event, "tool_use_id") or text(event, "mcp_tool_use_id")
        begun = self._native.pop(call_id, None)
        if begun is None:
            return []
        name, command, denied = begun
        failed = event.get("is_error") is True
        status = "denied" if denied else "failed" if failed else "completed"
        output = words(event)
        if command:
            said = {"id": call_id, "command": command, "output": output, "exit_code": None, "status": status}
            return [DriverEvent("command.completed", said)]
        told = {
            "id": call_id,
            "name": name or "tool",
            "result": None if failed else output,
            "error": output if failed else None,
            "status": status,
        }
        return [DriverEvent("tool.completed", told)]


def key(event: Event) -> str:
    """By what an event is known again: its id, or all of it where it has none."""
    event_id = text(event, "id")
    return event_id or json.dumps(event, sort_keys=True, default=str)


def words(event: Event) -> str:
    """The text of an event's content, its blocks one after the other."""
    content = event.get("content")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(text(block, "text") for block in blocks if isinstance(block, dict) and block.get("type") == "text")


def error_of(event: Event) -> tuple[str, str]:
    """What a `session.error` calls itself, "" for a name that is not known, and whether it is tried again."""
    error = member(event, "error")
    kind = text(error, "type")
    return kind if kind in _ERRORS else "", text(member(error, "retry_status"), "type")


def _error(event: Event) -> DriverEvent:
    kind, retry = error_of(event)
    named = f" ({kind})" if kind else ""
    if retry == "retrying":
        code, message = "RETRY", f"Anthropic had trouble with this session{named} and tries again."
    else:
        code, message = "PROVIDER_ERROR", f"Anthropic had trouble with this session{named} and does not try again."
    return DriverEvent("diagnostic", {"code": code, "level": "warning", "message": message})
