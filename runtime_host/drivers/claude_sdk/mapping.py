"""What the CLI says in one run, as events. Pure.

Owns the order of things: pieces and the whole blocks that repeat them, replies that follow one another, retries. Must
not know any I/O or any word for the person. Invariants: a text that came in pieces is not told again as a block; a
reply of which something was shown is never replaced by another one without `torn` being set; whatever shape a message
has, nothing is raised; no text of the CLI's own faults becomes a reply.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from runtime_host.canonical import clean_text
from runtime_host.drivers.claude_sdk.activities import Activities
from runtime_host.drivers.claude_sdk.naming import STRUCTURED
from runtime_host.drivers.claude_sdk.ports import Gate
from runtime_host.drivers.claude_sdk.usage import NOTHING, Counts, counts_in, used
from runtime_host.events import DriverEvent
from runtime_host.results import Usage

DELTA_CHARS: Final = 8192
"""A longer piece is published as several: a journal caps what one event may carry."""
REPLY_CHARS: Final = 8 * 1024 * 1024
"""Most characters of text and thinking in one run: a server that never ends fills neither memory nor disk."""
_SYNTHETIC: Final = "<synthetic>"
Message = Mapping[str, Any]


class Ended(NamedTuple):
    """How the CLI says a run ended.

    Attributes:
        failed: `is_error`; the subtype is `success` also when it is set.
        reason: of the end, in the CLI's words.
        stop_reason: of the last reply, in the model's.
        api_status: of the request that failed; None where there was none.
        api_error: what kind of error that was, in the CLI's words.
        structured: the answer to a schema.
        is_structured: whether there is one, which may be null.
    """

    failed: bool
    subtype: str
    reason: str
    stop_reason: str
    api_status: int | None
    api_error: str
    structured: Any
    is_structured: bool


class _Call:
    """A tool call of a reply as it arrives."""

    __slots__ = ("call_id", "name", "shown_as")

    def __init__(self, call_id: str, name: str, shown_as: str | None) -> None:
        self.call_id = call_id
        self.name = name
        self.shown_as = shown_as


class TurnMapper:
    """Turns the messages of one run into events and keeps what its result needs.

    Attributes:
        ended: set with the CLI's result; nothing comes after it.
        torn: a reply broke off of which something had been shown.
        too_long: more came than a run may bring.
        tools: what the CLI said it offers; None before it said so.
        version: of the CLI; empty before it said so.
        replies: how many replies began.
        retries: how often the CLI said it asks again.
        counts: of tokens, for the whole session of the CLI.
        last_uuid: of the last message that its transcript has to have.

    Args:
        names: what the application calls its tools, by the name that the model calls.
        before: the counts when the run began.
        own_tools: those of the CLI that are switched on.
        gate: says why one of them is not let do what it is asked for.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        before: Counts = NOTHING,
        own_tools: frozenset[str] = frozenset(),
        gate: Gate | None = None,
    ) -> None:
        self.ended: Ended | None = None
        self.torn = False
        self.too_long = False
        self.tools: tuple[str, ...] | None = None
        self.version = ""
        self.replies = 0
        self.retries = 0
        self.counts = before
        self.usage: Usage | None = None
        self.last_uuid = ""
        self.activities = Activities(own_tools, gate)
        self._names = names
        self._before = before
        self._streamed = ""
        self._open = self._shown = self._goes_on = False
        self._texts = 0
        self._text: list[str] | None = None
        self._answer = ""
        self._thoughts = 0
        self._thinking: list[str] | None = None
        self._calls: dict[int, _Call] = {}
        self._calls_of_reply = 0
        self._api_error = ""
        self._chars = 0

    @property
    def text(self) -> str:
        """The last reply, as far as it came."""
        return "".join(self._text) if self._text is not None else self._answer

    def events(self, message: Message) -> Iterator[DriverEvent]:
        """What to publish for a message."""
        kind = message.get("type")
        if message.get("parent_tool_use_id") is not None or self.ended is not None:
            return
        if kind == "stream_event":
            yield from self._streamed_event(_object(message.get("event")))
        elif kind == "assistant":
            yield from self._assistant(message)
        elif kind == "user":
            yield from self._user(message)
        elif kind == "system":
            yield from self._system(message)
        elif kind == "result":
            yield from self._result(message)

    def broken_off(self) -> Iterator[DriverEvent]:
        """What to publish when nothing more comes."""
        yield from self.activities.interrupted()

    # ---- pieces ----

    def _streamed_event(self, event: Message) -> Iterator[DriverEvent]:
        kind = event.get("type")
        if kind == "message_start":
            yield from self._begin(_string(_object(event.get("message")).get("id")))
        elif kind == "content_block_start":
            yield from self._block(_number(event.get("index")), _object(event.get("content_block")))
        elif kind == "content_block_delta":
            yield from self._delta(_number(event.get("index")), _object(event.get("delta")))
        elif kind == "content_block_stop":
            yield from self._close_thinking()
            yield from self._close_call(_number(event.get("index")))
        elif kind == "message_delta":
            stop_reason = _string(_object(event.get("delta")).get("stop_reason"))
            if stop_reason:
                yield from self._finish(stop_reason)

    def _begin(self, message_id: str) -> Iterator[DriverEvent]:
        if self._open and self._shown:
            self.torn = True
            return
        self._streamed = message_id
        self._open, self._shown = True, False
        self._calls.clear()
        self._calls_of_reply = 0
        self.replies += 1
        if not self._goes_on:
            yield from self._close_text()
        self._goes_on = False

    def _block(self, index: int, block: Message) -> Iterator[DriverEvent]:
        kind = block.get("type")
        if kind == "text":
            yield from self._say(_string(block.get("text")))
        elif kind == "thinking":
            yield from self._think(_string(block.get("thinking")))
        elif kind == "tool_use":
            yield from self._close_thinking()
            yield from self._close_text()
            call_id, name = _string(block.get("id")), _string(block.get("name"))
            self._shown = True
            self._calls_of_reply += name != STRUCTURED
            shown_as = self._names.get(name)
            self._calls[index] = _Call(call_id, name, shown_as)
            if shown_as is not None:
                yield _progress(call_id, shown_as, "arguments-started")

    def _delta(self, index: int, delta: Message) -> Iterator[DriverEvent]:
        kind = delta.get("type")
        if kind == "text_delta":
            yield from self._say(_string(delta.get("text")))
        elif kind == "thinking_delta":
            yield from self._think(_string(delta.get("thinking")))
        elif kind == "input_json_delta":
            call, piece = self._calls.get(index), _string(delta.get("partial_json"))
            if call is not None and call.shown_as is not None:
                for part in _parts(piece):
                    yield _progress(call.call_id, call.shown_as, "arguments", part)

    def _close_call(self, index: int) -> Iterator[DriverEvent]:
        call = self._calls.pop(index, None)
        if call is not None and call.shown_as is not None:
            yield _progress(call.call_id, call.shown_as, "arguments-completed")

    def _finish(self, stop_reason: str) -> Iterator[DriverEvent]:
        """A reply came to an end of its own."""
        self._open = self._shown = False
        yield from self._close_thinking()
        # The CLI has the model go on where its length ran out: that is one reply.
        self._goes_on = stop_reason in ("max_tokens", "pause_turn") and self._text is not None
        if not self._goes_on:
            yield from self._close_text()
        yield DriverEvent(
            "agent.iteration.completed",
            {
                "iteration": self.replies,
                "tool_calls": self._calls_of_reply,
                "has_more_iterations": stop_reason in ("tool_use", "max_tokens", "pause_turn"),
            },
        )

    def _say(self, text: str) -> Iterator[DriverEvent]:
        if not text:
            return
        yield from self._close_thinking()
        self._take(text)
        if self._text is None:
            self._texts += 1
            self._text = []
        self._text.append(text)
        for part in _parts(text):
            yield DriverEvent("agent.message.delta", {"id": f"reply-{self._texts}", "text": part, "phase": "unknown"})

    def _think(self, text: str) -> Iterator[DriverEvent]:
        if not text:
            return
        self._take(text)
        if self._thinking is None:
            self._thoughts += 1
            self._thinking = []
        self._thinking.append(text)
        for part in _parts(text):
            yield DriverEvent("reasoning.delta", {"id": f"reasoning-{self._thoughts}", "text": part, "kind": "vendor"})

    def _take(self, text: str) -> None:
        self._shown = True
        self._chars += len(text)
        self.too_long = self._chars > REPLY_CHARS

    def _close_text(self) -> Iterator[DriverEvent]:
        if self._text is not None:
            self._answer, self._text = "".join(self._text), None
            about = {"id": f"reply-{self._texts}", "text": self._answer, "phase": "unknown"}
            yield DriverEvent("agent.message.completed", about)

    def _close_thinking(self) -> Iterator[DriverEvent]:
        if self._thinking is not None:
            text, self._thinking = "".join(self._thinking), None
            yield DriverEvent(
                "reasoning.completed", {"id": f"reasoning-{self._thoughts}", "text": text, "kind": "vendor"}
            )

    # ---- whole messages ----

    def _assistant(self, message: Message) -> Iterator[DriverEvent]:
        told = _object(message.get("message"))
        if message.get("is_api_error_message") is True or told.get("model") == _SYNTHETIC:
            self._api_error = _string(message.get("api_error") or message.get("error")) or self._api_error
            return
        self._note(message)
        came_in_pieces = bool(self._streamed) and told.get("id") == self._streamed
        if not came_in_pieces:
            yield from self._begin(_string(told.get("id")))
        for block in _list(told.get("content")):
            kind = block.get("type")
            if kind == "tool_use":
                yield from self._call(block)
            elif not came_in_pieces and kind == "text":
                yield from self._say(_string(block.get("text")))
            elif not came_in_pieces and kind == "thinking":
                yield from self._think(_string(block.get("thinking")))
        if not came_in_pieces:
            yield from self._finish(_string(told.get("stop_reason")) or "end_turn")

    def _call(self, block: Message) -> Iterator[DriverEvent]:
        name = _string(block.get("name"))
        # Those of the application are told by whoever executes them.
        if name and name != STRUCTURED and name not in self._names:
            yield from self.activities.began(_string(block.get("id")), name, _object(block.get("input")))

    def _user(self, message: Message) -> Iterator[DriverEvent]:
        self._note(message)
        denied = {
            _string(each.get("id"))
            for each in _list(message.get("tool_result_meta"))
            if _object(each.get("permission_decision")).get("decision") == "reject"
        }
        for block in _list(_object(message.get("message")).get("content")):
            if block.get("type") == "tool_result":
                call_id = _string(block.get("tool_use_id"))
                yield from self.activities.ended(
                    call_id,
                    _said(block.get("content")),
                    failed=block.get("is_error") is True,
                    denied=call_id in denied,
                    detail=message.get("tool_use_result"),
                )

    def _note(self, message: Message) -> None:
        self.last_uuid = _string(message.get("uuid")) or self.last_uuid

    def _system(self, message: Message) -> Iterator[DriverEvent]:
        kind = message.get("subtype")
        if kind == "init":
            tools = message.get("tools")
            self.tools = tuple(name for name in tools if isinstance(name, str)) if isinstance(tools, list) else ()
            self.version = _string(message.get("claude_code_version"))
        elif kind == "api_retry":
            yield from self._retry(message)
        elif kind == "compact_boundary":
            about = (
                "The conversation grew too long for the model, so the Claude CLI put a summary in place of its past."
            )
            yield DriverEvent("diagnostic", {"code": "CONTEXT_COMPACTED", "level": "info", "message": about})
        elif kind == "permission_denied":
            name = _string(message.get("tool_name"))
            about = f"The model asked for {self._names.get(name, name) or 'a tool'}, which it may not use here."
            yield DriverEvent("diagnostic", {"code": "TOOL_DENIED", "level": "warning", "message": about})

    def _retry(self, message: Message) -> Iterator[DriverEvent]:
        if self._shown:
            # What was shown is not replaced by something else: the run ends here.
            self.torn = True
            return
        self.retries += 1
        self._open = False
        status, wait_ms = message.get("error_status"), message.get("retry_delay_ms")
        attempt = _number(message.get("attempt")) + 1
        why = f"the server answered {status}" if isinstance(status, int) else "no answer came"
        yield DriverEvent(
            "diagnostic",
            {
                "code": "RETRY",
                "level": "warning",
                "message": f"The Claude CLI asks for the reply once more (try {attempt}), because {why}. "
                "Nothing of it had arrived.",
                "attempt": attempt,
                "reason": _string(message.get("error")) or "unknown",
                "wait_ms": round(wait_ms) if isinstance(wait_ms, int | float) and 0 <= wait_ms < 1e9 else 0,
                **({"http_status": status} if isinstance(status, int) else {}),
            },
        )

    def _result(self, message: Message) -> Iterator[DriverEvent]:
        failed = message.get("is_error") is True
        status = message.get("api_error_status")
        self.ended = Ended(
            failed=failed,
            subtype=_string(message.get("subtype")),
            reason=_string(message.get("terminal_reason")),
            stop_reason=_string(message.get("stop_reason")),
            api_status=status if isinstance(status, int) and not isinstance(status, bool) else None,
            api_error=_string(message.get("api_error")) or self._api_error,
            structured=message.get("structured_output"),
            is_structured=message.get("structured_output") is not None,
        )
        if not (self._open and self._shown and failed):
            yield from self._close_thinking()
            yield from self._close_text()
        yield from self.activities.interrupted()
        self.counts = counts_in(message.get("modelUsage")) or self.counts
        self.usage = used(self._before, self.counts)
        yield DriverEvent("usage.updated", self.usage.model_dump())


def _progress(call_id: str, name: str, stage: str, delta: str | None = None) -> DriverEvent:
    about = {"id": call_id, "name": name, "stage": stage}
    return DriverEvent("tool.progress", about if delta is None else {**about, "delta": delta})


def _said(content: Any) -> str:
    """The words of a tool's result, whichever way they are put."""
    if isinstance(content, str):
        return clean_text(content)
    return "\n".join(_string(block.get("text")) for block in _list(content) if block.get("type") == "text")


def _object(value: Any) -> Message:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Message]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _string(value: Any) -> str:
    return clean_text(value) if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _parts(text: str) -> Iterator[str]:
    for start in range(0, len(text), DELTA_CHARS):
        yield text[start : start + DELTA_CHARS]
