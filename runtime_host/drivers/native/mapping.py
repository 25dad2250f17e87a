"""Pieces of a model's reply to events, faults to sentences, transcripts to messages. Pure.

Owns what the person reads when a model server fails. Must not know any I/O. Invariant: a sentence is made of
our words and facts of the binding only; nothing the server wrote is in it.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from runtime_host.canonical import clean_text
from runtime_host.connectors.base import Api, Connector, Vendor
from runtime_host.definitions import ReasoningConfig
from runtime_host.drivers.base import TranscriptMessage
from runtime_host.errors import AgentRuntimeError
from runtime_host.events import DriverEvent
from runtime_host.loop.lane import MOST_SENDS
from runtime_host.loop.model_apis.pieces import (
    Answer,
    Call,
    EndReason,
    FaultKind,
    Finished,
    Image,
    Kept,
    Message,
    ModelFault,
    Piece,
    ReasoningPiece,
    TextPiece,
    TlsReason,
    ToolCallPiece,
)
from runtime_host.results import Artifact, DriverResult, RunError, Usage
from runtime_host.tools.base import EarlierCall, ToolDelivery, ToolRequest

DELTA_CHARS = 8192
"""A longer piece is published as several: a journal caps what one event may carry."""


_KIND_OF_SERVER: Final[dict[Api, str]] = {
    "chat-completions": "an OpenAI-compatible server",
    "responses": "a server that speaks OpenAI Responses",
    "messages": "a server that speaks Anthropic Messages",
}
_ADDRESS_HINT: Final[dict[Vendor, str]] = {
    "openai-compatible": "; many end in /v1",
    "openai": "; many end in /v1. A server that has only chat completions is added as OpenAI-compatible",
}


_COUNTS: Final = tuple(name for name in Usage.model_fields if name.endswith("_tokens"))
_NO_PICTURES: Final = "[A picture was here, which this model cannot be shown.]"


class Ending(NamedTuple):
    status: str
    error: RunError | None


def messages(earlier: Sequence[TranscriptMessage], now: TranscriptMessage, *, images: bool = True) -> list[Message]:
    """The conversation: roles alternate, the input is last. `images`: whether the model takes any.

    An input whose reply failed stands before the next input; both go as one, because many models refuse two
    messages of one role in a row. The tool calls of an earlier run stand where they were made, as long as a reply
    came after them; what was said later to the same run stands where it was said.
    """
    sent: list[Message] = []
    in_rounds: list[str] = []
    for position, (role, content, calls, parts, _) in enumerate((*earlier, now)):
        if role == "assistant" and content in in_rounds:
            in_rounds.remove(content)
            continue
        pictures = tuple(Image(part.media_type, part.data) for part in parts) if images else ()
        if parts and not images:
            content = "\n\n".join(text for text in (content, _NO_PICTURES) if text.strip())
        if not content.strip() and not pictures:
            continue
        last = sent[-1] if sent else None
        if last is not None and last.role == role:
            both = "\n\n".join(text for text in (last.text, content) if text.strip())
            sent[-1] = last._replace(text=both, images=last.images + pictures)
        else:
            sent.append(Message("assistant" if role == "assistant" else "user", content, pictures))
        if calls:
            past, in_rounds = _answered_rounds(calls, earlier[position + 1 :])
            for round_ in past:
                sent += round_messages(round_.said, round_.told)
    return sent


def _answered_rounds(
    calls: Sequence[EarlierCall], after: Sequence[TranscriptMessage]
) -> tuple[list["Round"], list[str]]:
    """Rounds of an earlier run and what was said in them; none unless something was said after the last."""
    past = rounds(calls)
    steered = any(each.after_calls is not None for each in itertools.islice(_inputs(after), 1))
    replies = [each.text for each in itertools.takewhile(lambda each: each.role == "assistant", after)]
    said = [round_.said for round_ in past if round_.said]
    for each in said:
        if each in replies:
            replies.remove(each)
    return (past, said) if steered or any(reply.strip() for reply in replies) else ([], [])


def _inputs(messages: Sequence[TranscriptMessage]) -> Iterator[TranscriptMessage]:
    return (each for each in messages if each.role != "assistant")


class Segment(NamedTuple):
    """A part of a run from before a restart. `said`: to the run, None for its input; `replies`: outside the rounds."""

    said: str | None
    rounds: tuple["Round", ...]
    replies: tuple[str, ...]


def segments(said: Sequence[TranscriptMessage], earlier: Sequence[EarlierCall]) -> list[Segment]:
    """A run that goes on, cut where something was said to it."""
    parts: list[tuple[str | None, int, list[str]]] = [(None, 0, [])]
    for message in said:
        if message.role == "assistant":
            parts[-1][2].append(message.text)
        else:
            parts.append((message.text, message.after_calls or 0, []))
    ends = [begin for _, begin, _ in parts[1:]] + [len(earlier)]
    found: list[Segment] = []
    for (text, begin, replies), end in zip(parts, ends, strict=True):
        past = rounds(earlier[begin:end])
        for round_ in past:
            if round_.said in replies:
                replies.remove(round_.said)
        found.append(Segment(text, tuple(past), tuple(reply for reply in replies if reply.strip())))
    return found


def said_now(sent: list[Message], text: str) -> None:
    """Something that was said to the run, behind what there is; two messages of a person in a row go as one."""
    if sent and sent[-1].role == "user":
        sent[-1] = sent[-1]._replace(text="\n\n".join(filter(str.strip, (sent[-1].text, text))))
    else:
        sent.append(Message("user", text))


def round_messages(
    said: str, deliveries: Sequence[ToolDelivery], kept: Sequence[Mapping[str, Any]] = ()
) -> list[Message]:
    """One round of tool calls: what was asked for, then what came of each."""
    calls = tuple(Call(each.call_id, each.name, _object_text(each.arguments)) for each in deliveries)
    answers = tuple(Answer(each.call_id, _told(each), each.success) for each in deliveries)
    return [Message("assistant", said, calls=calls, kept=tuple(kept)), Message("tools", answers=answers)]


def in_words(messages: Sequence[Message]) -> list[Message]:
    """The conversation with its calls of tools as text: servers refuse calls where no tool is offered."""
    told: list[Message] = []
    for message in messages:
        if message.role == "tools":
            said_now(told, "\n".join(f"[What {answer.call_id} came to: {answer.text}]" for answer in message.answers))
        elif message.calls:
            calls = "\n".join(f"[I called {call.name} as {call.call_id}: {call.arguments}]" for call in message.calls)
            told.append(Message("assistant", "\n\n".join(filter(str.strip, (message.text, calls)))))
        elif message.role == "user" and not message.images:
            said_now(told, message.text)
        else:
            told.append(message)
    return told


class Round(NamedTuple):
    """Tool calls of one reply from before a restart. `told`: none when the model was not told yet."""

    number: int
    said: str
    requests: tuple[ToolRequest, ...]
    told: tuple[ToolDelivery, ...]


def rounds(earlier: Sequence[EarlierCall]) -> list[Round]:
    """The rounds of a run that goes on, in order."""
    found: list[Round] = []
    for call in earlier:
        number = int(call.request.native.get("round", 1))
        if not found or found[-1].number != number:
            found.append(Round(number, str(call.request.native.get("said", "")), (), ()))
        last = found[-1]
        found[-1] = last._replace(
            requests=(*last.requests, call.request), told=last.told if call.told is None else (*last.told, call.told)
        )
    return found


class ReplyMapper:
    """Turns the pieces of a run's replies into events and keeps what the result needs.

    Attributes:
        number: of the reply; each round of tools is followed by another.
        kept: the reply in its provider's own form, to be handed back with the results of its tools.
    """

    def __init__(self) -> None:
        self.number = 0
        self.kept: tuple[Mapping[str, Any], ...] = ()
        self._calls: dict[int, _Call] = {}
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_count = 0
        self.usage: Usage | None = None
        self.reason: EndReason | None = None
        self._usage_before: Usage | None = None
        self._offered = False

    def begin(self, *, offered: bool, number: int | None = None) -> None:
        """Another reply comes. `offered`: whether the model may call tools."""
        self.number = self.number + 1 if number is None else number
        self._offered = offered
        self._text = []
        self._usage_before = self.usage
        self._clear()

    def again(self) -> None:
        """The request is sent once more; nothing of the reply was shown."""
        self.usage = self._usage_before
        self._clear()

    def go_on(self) -> None:
        """The server has paused in the middle of the reply and goes on with it when asked."""
        self._usage_before = self.usage
        self._clear()

    def _clear(self) -> None:
        self._calls = {}
        self.reason = None
        self.kept = ()

    def used_before(self, usage: Mapping[str, int | None]) -> None:
        """What the replies before a restart have used."""
        self.usage = Usage.model_validate({name: usage.get(name) for name in _COUNTS})

    @property
    def offered(self) -> bool:
        """Whether the model may call tools."""
        return self._offered

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join(self._text)

    def events(self, piece: Piece) -> Iterator[DriverEvent]:
        """What to publish for `piece`."""
        if isinstance(piece, TextPiece):
            yield from self._close_reasoning()
            self._text.append(piece.text)
            for part in _parts(piece.text):
                yield DriverEvent("agent.message.delta", {"id": self._reply_id, "text": part, "phase": "unknown"})
        elif isinstance(piece, ReasoningPiece):
            if not self._reasoning:
                self._reasoning_count += 1
            self._reasoning.append(piece.text)
            for part in _parts(piece.text):
                yield DriverEvent("reasoning.delta", {"id": self._reasoning_id, "text": part, "kind": "vendor"})
        elif isinstance(piece, ToolCallPiece):
            yield from self._tool_call(piece)
        elif isinstance(piece, Finished):
            self.reason = piece.reason
        elif isinstance(piece, Kept):
            self.kept = piece.entries
        else:
            self.usage = _sum(self._usage_before, piece.usage)

    def closing_events(self) -> Iterator[DriverEvent]:
        """What to publish once the server has ended the reply."""
        yield from self._close_reasoning()
        if self._text:
            yield DriverEvent("agent.message.completed", {"id": self._reply_id, "text": self.text, "phase": "unknown"})
        if self._offered:
            for slot, call in self._calls.items():
                about = {"id": self._call_id(slot), "name": call.name, "stage": "arguments-completed"}
                yield DriverEvent("tool.progress", about)
        if self.usage is not None:
            yield DriverEvent("usage.updated", self.usage.model_dump())
        if self._offered:
            yield DriverEvent(
                "agent.iteration.completed",
                {
                    "iteration": self.number,
                    "tool_calls": len(self._calls),
                    "has_more_iterations": bool(self.requests()),
                },
            )

    def requests(self) -> tuple[ToolRequest, ...]:
        """The calls to execute: none unless tools were offered and the reply came to its proper end.

        A call that stands twice under one id is one call.
        """
        if not self._offered or self.reason not in (EndReason.TOOL_CALLS, EndReason.STOP):
            return ()
        found: dict[tuple[str, str, str], ToolRequest] = {}
        for slot, call in self._calls.items():
            said = {} if found else {"said": self.text}
            request = ToolRequest(
                self._call_id(slot), call.name, clean_text("".join(call.arguments)), {"round": self.number, **said}
            )
            found.setdefault(request[:3], request)
        return tuple(found.values())

    def _tool_call(self, piece: ToolCallPiece) -> Iterator[DriverEvent]:
        yield from self._close_reasoning()
        call = self._calls.get(piece.slot)
        if call is None:
            call = self._calls[piece.slot] = _Call(clean_text(piece.call_id), clean_text(piece.name))
            if self._offered:
                about = {"id": self._call_id(piece.slot), "name": call.name, "stage": "arguments-started"}
                yield DriverEvent("tool.progress", about)
        call.name = call.name or clean_text(piece.name)
        if piece.arguments:
            call.arguments.append(piece.arguments)
            if self._offered:
                about = {"id": self._call_id(piece.slot), "name": call.name, "stage": "arguments"}
                for part in _parts(piece.arguments):
                    yield DriverEvent("tool.progress", {**about, "delta": part})

    def _call_id(self, slot: int) -> str:
        # Some servers give none; it only has to be one of its kind within the run.
        return self._calls[slot].call_id or f"call-{self.number}-{slot + 1}"

    @property
    def _reply_id(self) -> str:
        return f"reply-{self.number}"

    @property
    def _reasoning_id(self) -> str:
        return f"reasoning-{self._reasoning_count}"

    def _close_reasoning(self) -> Iterator[DriverEvent]:
        if self._reasoning:
            text = "".join(self._reasoning)
            self._reasoning.clear()
            yield DriverEvent("reasoning.completed", {"id": self._reasoning_id, "text": text, "kind": "vendor"})


class _Call:
    """A tool call as it arrives."""

    __slots__ = ("arguments", "call_id", "name")

    def __init__(self, call_id: str, name: str) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments: list[str] = []


def ended(reply: ReplyMapper, connector: Connector, model: str) -> DriverResult:
    """The result of a reply the server brought to an end."""
    reason = reply.reason or EndReason.UNKNOWN
    status, error = _endings(connector, model)[reason]
    if reason is EndReason.TOOL_CALLS and reply.offered:
        error = RunError(
            code="PROVIDER_TOOL_CALL_UNREADABLE",
            message=f"{_printable(model)} asked for a tool and did not say which; nothing was executed. "
            "What it wrote is kept. Send again, or choose another model.",
        )
    return DriverResult.model_validate(
        {
            "status": status,
            "output_text": reply.text,
            "usage": reply.usage,
            "finish_reason": reason.value,
            "error": error,
        }
    )


def failed(reply: ReplyMapper, fault: ModelFault, connector: Connector, model: str, tries: int = 1) -> DriverResult:
    """The result of a reply that broke; what had come of it is kept. `tries`: how often the request was sent."""
    return DriverResult(
        status="failed",
        output_text=reply.text,
        usage=reply.usage,
        finish_reason="stream_incomplete" if fault.kind is FaultKind.STREAM_CUT else "native_error",
        error=fault_error(fault, connector, model, kept=bool(reply.text), tries=tries),
    )


def cancelled(reply: ReplyMapper) -> DriverResult:
    return DriverResult(status="cancelled", output_text=reply.text, usage=reply.usage, finish_reason="cancelled")


def effort(reasoning: ReasoningConfig | None) -> str | None:
    """The field of the request; checked against the profile before."""
    if reasoning is None:
        return None
    return reasoning.effort if reasoning.enabled else "none"


def retrying(fault: ModelFault, connector: Connector, model: str, attempt: int, wait_s: float) -> DriverEvent:
    """A request is sent once more, and why. `attempt`: its number from now on."""
    happened, _, _ = _words(fault, connector, model)
    return DriverEvent(
        "diagnostic",
        {
            "code": "RETRY",
            "level": "warning",
            "message": f"{happened} Nothing of the reply had arrived, so it is asked for once more (try {attempt}).",
            "attempt": attempt,
            "reason": fault.kind.value,
            "wait_ms": round(wait_s * 1000),
        },
    )


def fault_error(fault: ModelFault, connector: Connector, model: str, *, kept: bool, tries: int = 1) -> RunError:
    """A fault in words: what happened, what it means for the work, what to do."""
    happened, todo, retryable = _words(fault, connector, model)
    if kept:
        means = "What had arrived of the reply is kept."
    elif not fault.sent:
        means = "Nothing was sent."
    elif fault.kind in (FaultKind.STREAM_CUT, FaultKind.SILENT):
        means = "Whether it worked on your message is not known; it is not sent again by itself."
    else:
        means = "Your message is kept; there is no reply to it."
    if tries > 1:
        means = f"It was tried {tries} times. {means}"
    details: dict[str, object] = {"tries": tries} if tries > 1 else {}
    if fault.http_status is not None:
        details["http_status"] = fault.http_status
    if fault.retry_after_s is not None:
        details["retry_after_s"] = fault.retry_after_s
    if fault.tls is not None:
        details["tls"] = fault.tls.value
    return RunError(code=fault.kind.value, message=f"{happened} {means} {todo}", retryable=retryable, details=details)


def _no_reply(reply: ReplyMapper, error: RunError) -> DriverResult:
    """A failure; what had been written is kept."""
    return DriverResult(
        status="failed", output_text=reply.text, usage=reply.usage, finish_reason="native_error", error=error
    )


def unreachable(reply: ReplyMapper, connector: Connector) -> DriverResult:
    """The result of a request that was sent as often as it may be, over restarts, and never answered."""
    error = RunError(
        code="MODEL_UNREACHABLE",
        message=f"{_server(connector)} was asked {MOST_SENDS} times and its reply never came to its end before "
        "Remuda ended, so it is not asked again by itself. Your message is kept. Send again if you want a reply.",
        retryable=True,
    )
    return _no_reply(reply, error)


def one_id_for_two(reply: ReplyMapper, model: str) -> DriverResult:
    """The result of a reply in which two different calls have one id: which result is whose cannot be told."""
    error = RunError(
        code="PROVIDER_TOOL_CALL_UNREADABLE",
        message=f"{_printable(model)} gave two tool calls one id; nothing of them was executed. "
        "What it wrote is kept. Send again, or choose another model.",
    )
    return _no_reply(reply, error)


def too_many_rounds(reply: ReplyMapper, limit: int, model: str) -> DriverResult:
    """The result of a run whose model asked for tools again and again."""
    return DriverResult(
        status="incomplete",
        output_text=reply.text,
        usage=reply.usage,
        finish_reason="iteration_limit",
        error=RunError(
            code="AGENT_ITERATION_LIMIT",
            message=f"{_printable(model)} asked for tools {limit} times without coming to an end, so it was stopped; "
            "the last calls were not executed. Ask it to go on.",
        ),
    )


def not_sent(refused: AgentRuntimeError, reply: ReplyMapper) -> DriverResult:
    """The result of what could not be sent: no key, no connector, no local server, a tool that is unresolved."""
    error = RunError(
        code=refused.error_code, message=refused.message, retryable=refused.retryable, details=refused.details
    )
    return _no_reply(reply, error)


def unexpected(reply: ReplyMapper) -> DriverResult:
    """The result after a fault of our own."""
    error = RunError(
        code=FaultKind.FAILED.value,
        message="Something went wrong in Remuda while it read the reply. What had arrived is kept. "
        "Send again if you want a new reply; the log names the kind of fault.",
    )
    return _no_reply(reply, error)


def _words(fault: ModelFault, connector: Connector, model: str) -> tuple[str, str, bool]:
    """What happened, what to do, and whether the same may work later without a change."""
    name = _printable(connector.name)
    model = _printable(model)
    server = _server(connector)
    keyless = connector.vendor != "builtin" and connector.secret is None
    wait = _wait(fault.retry_after_s)
    status = f" ({fault.http_status})" if fault.http_status else ""
    table: dict[FaultKind, tuple[str, str, bool]] = {
        FaultKind.KEY_REFUSED: (
            f"{server} wants a key, and this connector has none (401)."
            if keyless
            else f"{server} refused the key (401).",
            f"Enter a key for {name}." if keyless else f"Check the key of {name} or enter a new one.",
            False,
        ),
        FaultKind.FORBIDDEN: (
            f"{server} does not allow this key to use {model} (403).",
            "Choose another model, or ask whoever runs the account for access.",
            False,
        ),
        FaultKind.QUOTA_EXHAUSTED: (
            f"The account behind {name} has no credit left or has met its spending limit.",
            "Add credit or raise the limit at the provider, or choose another connector.",
            False,
        ),
        FaultKind.MODEL_UNKNOWN: (
            f"{server} has no model called {model}.",
            "Choose another model, or check how its name is written.",
            False,
        ),
        FaultKind.NOT_FOUND: (
            f"{server} knows nothing at {connector.base_url or 'its own address'} (404).",
            f"Check the address of the connector{_ADDRESS_HINT.get(connector.vendor, '')}.",
            False,
        ),
        FaultKind.RATE_LIMITED: (
            f"{server} takes no more requests for now{status}{wait}.",
            "Wait a little and send again." if not wait else "Send again after that.",
            True,
        ),
        FaultKind.UNAVAILABLE: (
            f"{server} is in trouble or overloaded{status}{wait}.",
            "Send again in a while, or choose another connector.",
            True,
        ),
        FaultKind.REDIRECTED: (
            f"{server} pointed to another address, which was not followed, so that the key goes nowhere else.",
            "Check the address of the connector.",
            False,
        ),
        FaultKind.REQUEST_REFUSED: (
            f"{server} refused the request{status}.",
            f"{model} may not be made for chat, or the server may be of another kind. Choose another model.",
            False,
        ),
        FaultKind.PICTURE_REFUSED: (
            f"{server} refused a picture of this conversation{status}.",
            f"{model} may take none, or none so large or of this type. Choose a model that does, or begin a new "
            "conversation without it.",
            False,
        ),
        FaultKind.CONTEXT_TOO_LONG: (
            f"The conversation is longer than {model} can read at once.",
            "Start a new conversation, or choose a model that reads more.",
            False,
        ),
        FaultKind.CONTENT_FILTERED: (
            f"{server} declined the message by its content rules.",
            "Put it in other words.",
            False,
        ),
        FaultKind.UNREACHABLE: (
            f"{server} could not be reached{'' if connector.vendor == 'builtin' else f' at {connector.base_url}'}.",
            "Send again; if it stays so, restart Remuda."
            if connector.vendor == "builtin"
            else "Check that the server runs and that this computer is online, then send again.",
            True,
        ),
        FaultKind.TLS: (_tls_words(fault.tls, server), "Check the address and the clock of this computer.", False),
        FaultKind.PROXY: (
            f"The proxy of this computer does not lead to {server}: {_proxy_words(fault.proxy)}.",
            "Check the network settings.",
            fault.may_pass,
        ),
        FaultKind.OUT_OF_SCOPE: (
            "The request would have gone to another address than the connector's.",
            "Check the address of the connector.",
            False,
        ),
        FaultKind.STREAM_CUT: (
            "The connection broke before the reply was complete."
            if connector.vendor == "builtin"
            else f"The connection to {server} broke before the reply was complete.",
            "Send again if you want a new reply.",
            False,
        ),
        FaultKind.SILENT: (
            f"{server} has said nothing for too long, so the connection was given up.",
            "Send again if you want a new reply.",
            False,
        ),
        FaultKind.MALFORMED: (
            f"{server} sent something that is no chat reply.",
            f"Check that the address belongs to {_KIND_OF_SERVER[connector.api]}"
            f"{_ADDRESS_HINT.get(connector.vendor, '')}.",
            False,
        ),
        FaultKind.FAILED: (
            f"{server} reported a fault of its own while it replied.",
            "Send again if you want a new reply.",
            False,
        ),
    }
    return table[fault.kind]


def _endings(connector: Connector, model: str) -> dict[EndReason, Ending]:
    server = _server(connector)
    model = _printable(model)
    return {
        EndReason.STOP: Ending("completed", None),
        EndReason.LENGTH: Ending(
            "incomplete",
            RunError(
                code="PROVIDER_LENGTH_LIMIT",
                message=f"{model} met its length limit, so the reply ends early. What it wrote is kept. "
                "Ask it to go on.",
            ),
        ),
        EndReason.CONTENT_FILTER: Ending(
            "incomplete",
            RunError(
                code=FaultKind.CONTENT_FILTERED.value,
                message=f"{server} cut the reply off by its content rules. What came before is kept. "
                "Put the question in other words.",
            ),
        ),
        EndReason.REFUSAL: Ending(
            "incomplete",
            RunError(
                code="PROVIDER_REFUSAL",
                message=f"{model} declined to answer. Its words are kept. Put the question in other words.",
            ),
        ),
        EndReason.CONTEXT_FULL: Ending(
            "incomplete",
            RunError(
                code=FaultKind.CONTEXT_TOO_LONG.value,
                message=f"The conversation has come to the end of what {model} can hold at once, so the reply ends "
                "early. What it wrote is kept. Start a new conversation, or choose a model that holds more.",
            ),
        ),
        EndReason.PAUSED: Ending(
            "incomplete",
            RunError(
                code="PROVIDER_PAUSED",
                message=f"{server} paused in the middle of the reply again and again, so it was stopped. "
                "What it wrote is kept. Ask it to go on.",
            ),
        ),
        EndReason.TOOL_CALLS: Ending(
            "failed",
            RunError(
                code="PROVIDER_TOOL_NOT_OFFERED",
                message=f"{model} asked for a tool although it was offered none; nothing was executed. "
                "What it wrote is kept. Send again, or choose another model.",
            ),
        ),
        EndReason.ERROR: Ending(
            "failed",
            RunError(
                code=FaultKind.FAILED.value,
                message=f"{server} reported a fault of its own while it replied. What had arrived is kept. "
                "Send again if you want a new reply.",
            ),
        ),
        EndReason.UNKNOWN: Ending(
            "incomplete",
            RunError(
                code="PROVIDER_END_UNKNOWN",
                message=f"{server} ended the reply for a reason Remuda does not know, so it may not be complete. "
                "What it wrote is kept.",
            ),
        ),
    }


def _tls_words(reason: TlsReason | None, server: str) -> str:
    wrong = {
        TlsReason.UNTRUSTED: "Its certificate is signed by nobody this computer trusts.",
        TlsReason.EXPIRED: "Its certificate has expired.",
        TlsReason.WRONG_HOST: "Its certificate belongs to another name.",
        TlsReason.HANDSHAKE: "It may not speak https at all.",
    }[reason or TlsReason.HANDSHAKE]
    return f"No secure connection to {server} could be made. {wrong}"


def _proxy_words(reason: str | None) -> str:
    return {
        "unreachable": "it cannot be reached",
        "silent": "it does not answer",
        "tls": "no secure connection to it can be made",
        "login": "it wants another login",
        "refused": "it refuses this address",
        "no-way": "it finds no way to this address",
    }.get(reason or "", "it broke off")


def _wait(wait_s: float | None) -> str:
    if wait_s is None or wait_s <= 0:
        return ""
    if wait_s < 120:
        seconds = max(1, round(wait_s))
        return f" and asks to wait {seconds} second{'s' if seconds != 1 else ''}"
    if wait_s < 7200:
        return f" and asks to wait {round(wait_s / 60)} minutes"
    return f" and asks to wait {round(wait_s / 3600)} hours"


def _server(connector: Connector) -> str:
    """How a sentence that begins with the server begins."""
    return "The built-in model" if connector.vendor == "builtin" else _printable(connector.name)


def _printable(name: str) -> str:
    """A name someone typed, fit to stand in a sentence."""
    return re.sub(r"[^\w./:@+ -]", "?", name)[:120]


def tool_completed(delivery: ToolDelivery) -> DriverEvent:
    return DriverEvent(
        "tool.completed",
        {
            "id": delivery.call_id,
            "name": delivery.name,
            "result": delivery.shown or (delivery.payload if delivery.success else None),
            "error": delivery.error,
            "duration_ms": delivery.duration_ms,
            **delivery.about,
        },
    )


def tool_progressed(request: ToolRequest, text: str) -> DriverEvent:
    """What a call shows while it goes on."""
    return DriverEvent("tool.progress", {"id": request.call_id, "name": request.name, "stage": "output", "delta": text})


def changes_of(delivery: ToolDelivery, known: Mapping[str, Artifact]) -> Iterator[tuple[DriverEvent, Artifact]]:
    """Files that a call changed, and each as the run's result has it. `known`: what the run changed before."""
    for change in delivery.changes:
        path, diff = str(change["path"]), str(change.get("diff") or "")
        how: Literal["created", "modified", "deleted"] = change["change"]
        before = known.get(path)
        made_here = how == "modified" and before is not None and before.change == "created"
        about = {"id": delivery.call_id, "path": path, "change": how, "status": "completed"}
        yield (
            DriverEvent("file.changed", {**about, "diff": diff} if diff else about),
            Artifact(type="workspace-change", path=path, change="created" if made_here else how, patch=diff or None),
        )


def tool_interrupted(request: ToolRequest) -> DriverEvent:
    """The end of a call of which it is not known what came."""
    return DriverEvent(
        "tool.completed",
        {
            "id": request.call_id,
            "name": request.name,
            "result": None,
            "error": "Interrupted; whether it acted is not known.",
            "duration_ms": None,
        },
    )


def _told(each: ToolDelivery) -> str:
    """A delivery as the model reads it."""
    if not each.success:
        return json.dumps({"success": False, "error": each.payload}, ensure_ascii=False)
    return each.payload if isinstance(each.payload, str) else json.dumps(each.payload, ensure_ascii=False)


def _object_text(arguments: str) -> str:
    """Arguments as servers take them back: many parse them, and fail on what the model broke."""
    try:
        return arguments if isinstance(json.loads(arguments), dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"


def _sum(before: Usage | None, now: Usage) -> Usage:
    """Tokens of all replies so far; what one of them did not report is not known of all."""
    if before is None:
        return now
    counts = {
        name: None if count is None or (told := getattr(before, name)) is None else told + count
        for name, count in now.model_dump().items()
    }
    return Usage(**counts)


def used_since(before: Usage | None, now: Usage | None) -> dict[str, int | None]:
    """What one reply has used, of what all together have."""
    if now is None:
        return {}
    told: dict[str, int | None] = {}
    for name in _COUNTS:
        count, earlier = getattr(now, name), getattr(before, name, None)
        told[name] = None if count is None else count - (earlier or 0)
    return told


def _parts(text: str) -> Iterator[str]:
    for start in range(0, len(text), DELTA_CHARS):
        yield text[start : start + DELTA_CHARS]
