"""Anthropic Messages, as requests are written and replies are read. Pure.

Must not know HTTP clients or SDKs. Invariants: frames are told apart by the `type` in them, never by the name of the
event, which proxies drop; a field of the wrong kind reads as absent; thinking goes back exactly as it came.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from runtime_host.loop.model_apis.pieces import (
    Call,
    ChatRequest,
    EndReason,
    FaultKind,
    Finished,
    Kept,
    Message,
    ModelFault,
    Piece,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
    UsageReport,
)
from runtime_host.loop.model_apis.reading import CallSizes, Halves, KeptSize, member, number, object_of, text
from runtime_host.loop.model_apis.refusals import stream_fault
from runtime_host.loop.model_apis.sse import ServerEvent
from runtime_host.results import Usage

MAX_OUTPUT_TOKENS: Final = 8192
"""The API wants a bound. Every model it has takes this one; a model of which more is known gets its own."""
MAX_BLOCKS: Final = 1024

_END_REASONS: Final[dict[str, EndReason]] = {
    "end_turn": EndReason.STOP,
    "stop_sequence": EndReason.STOP,
    "max_tokens": EndReason.LENGTH,
    "tool_use": EndReason.TOOL_CALLS,
    "pause_turn": EndReason.PAUSED,
    "refusal": EndReason.REFUSAL,
    "model_context_window_exceeded": EndReason.CONTEXT_FULL,
}


def fields(request: ChatRequest) -> dict[str, Any]:
    """The body of a request."""
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_output_tokens or MAX_OUTPUT_TOKENS,
        "messages": _messages(request.messages),
        "stream": True,
    }
    if request.instructions.strip():
        body["system"] = request.instructions
    if request.tools:
        body["tools"] = [
            {"name": offer.name, "description": offer.description, "input_schema": offer.parameters}
            for offer in request.tools
        ]
    output: dict[str, Any] = {}
    if request.reasoning_effort == "none":
        body["thinking"] = {"type": "disabled"}
    elif request.reasoning_effort is not None:
        output["effort"] = request.reasoning_effort
        if not _lost_its_thinking(request.messages):
            # Without it these models think little or not at all, and newer ones would send the thinking empty.
            body["thinking"] = {"type": "adaptive", "display": "summarized"}
    if request.schema is not None:
        output["format"] = {"type": "json_schema", "schema": request.schema.schema}
    if output:
        body["output_config"] = output
    optional = {"temperature": request.temperature, "top_p": request.top_p}
    return body | {name: value for name, value in optional.items() if value is not None}


def _lost_its_thinking(messages: Sequence[Message]) -> bool:
    """Whether results go to a reply whose thinking is no longer known: it was made before a restart.

    The provider wants the thinking of such a reply back whenever it is to think on.
    """
    if len(messages) > 2 and messages[-1].role == "user":
        # Said while the tools ran.
        messages = messages[:-1]
    return len(messages) > 1 and messages[-1].role == "tools" and not messages[-2].kept


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """All messages. What was said while tools ran goes with their results: roles alternate here."""
    written: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        now = _message(message)
        if position and message.role == "user" and messages[position - 1].role == "tools":
            content = now["content"]
            written[-1]["content"] += _text_blocks(content) if isinstance(content, str) else content
        else:
            written.append(now)
    return written


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tools":
        results = [
            {
                "type": "tool_result",
                "tool_use_id": answer.call_id,
                "content": answer.text,
                **({} if answer.success else {"is_error": True}),
            }
            for answer in message.answers
        ]
        return {"role": "user", "content": results}
    if message.role == "assistant" and (message.kept or message.calls):
        return {"role": "assistant", "content": _said(message)}
    if message.images:
        # Pictures first, as the provider asks for it.
        blocks: list[dict[str, Any]] = [
            {
                "type": "image",
                "source": {
                    "type": "base64",
                    "media_type": image.media_type,
                    "data": base64.b64encode(image.data).decode("ascii"),
                },
            }
            for image in message.images
        ]
        blocks += _text_blocks(message.text)
        return {"role": "user", "content": blocks}
    return {"role": message.role, "content": message.text}


def _said(message: Message) -> list[dict[str, Any]]:
    if not message.kept:
        return [*_text_blocks(message.text), *(_tool_use(call) for call in message.calls)]
    calls = {call.call_id: call for call in message.calls}
    blocks: list[dict[str, Any]] = []
    for entry in message.kept:
        if "call" not in entry:
            blocks.append(dict(entry))
        elif (call := calls.pop(entry["call"], None)) is not None:
            blocks.append(_tool_use(call))
    # Calls that had no id of the server's.
    return blocks + [_tool_use(call) for call in calls.values()]


def _text_blocks(said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": said}] if said.strip() else []


def _tool_use(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": json.loads(call.arguments)}


class _Block:
    """A content block of this reply as it arrives."""

    __slots__ = ("data", "kind", "parts", "seals", "slot")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[str] = []
        # In pieces: each piece put to a long text would copy all that came before.
        self.seals: list[str] = []
        self.data: Mapping[str, Any] = {}
        self.slot = 0


class FrameReader:
    """Reads the frames of one reply in order.

    Attributes:
        done: the server has said that nothing more comes.
    """

    def __init__(self) -> None:
        self.done = False
        self._blocks: dict[int, _Block] = {}
        self._call_ids: list[str] = []
        self._sizes = CallSizes()
        self._sealed = KeptSize()
        self._halves = {"text": Halves(), "thinking": Halves()}
        self._counts: dict[str, int] = {}
        self._reported: Usage | None = None

    def read(self, event: ServerEvent) -> list[Piece]:
        """Pieces in one frame, in the order in which they belong.

        Raises:
            ModelFault: the frame is no JSON object, or it reports a failure.
        """
        frame = object_of(event.data)
        kind = text(frame, "type") or event.event
        if kind == "error":
            raise stream_fault(frame.get("error"))
        if kind == "message_start":
            return self._usage(member(member(frame, "message"), "usage"))
        if kind == "content_block_start":
            return self._start(number(frame, "index"), member(frame, "content_block"))
        if kind == "content_block_delta":
            return self._delta(self._blocks.get(number(frame, "index") or 0), member(frame, "delta"))
        if kind == "message_delta":
            return self._end(frame)
        self.done = self.done or kind == "message_stop"
        return []

    def _start(self, index: int | None, content: dict[str, Any]) -> list[Piece]:
        block = _Block(text(content, "type"))
        if index is None or index in self._blocks or len(self._blocks) >= MAX_BLOCKS:
            raise ModelFault(FaultKind.MALFORMED)
        self._blocks[index] = block
        if block.kind == "tool_use":
            block.slot = len(self._call_ids)
            call_id, name = text(content, "id"), text(content, "name")
            self._call_ids.append(call_id)
            # The arguments come in pieces; some gateways give them at once.
            given = content.get("input")
            return [self._more_arguments(block, json.dumps(given) if given else "", call_id, name)]
        if block.kind == "redacted_thinking":
            block.data = {"type": "redacted_thinking", "data": text(content, "data")}
            self._sealed.grow(len(text(content, "data")))
        elif block.kind == "thinking":
            self._sealed_with(block, text(content, "signature"))
            return self._thought(block, text(content, "thinking"))
        elif block.kind == "text":
            return self._said(block, text(content, "text"))
        return []

    def _delta(self, block: _Block | None, delta: dict[str, Any]) -> list[Piece]:
        kind = text(delta, "type")
        if block is None:
            raise ModelFault(FaultKind.MALFORMED)
        if kind == "text_delta":
            return self._said(block, text(delta, "text"))
        if kind == "thinking_delta":
            return self._thought(block, text(delta, "thinking"))
        if kind == "signature_delta":
            self._sealed_with(block, text(delta, "signature"))
        elif kind == "input_json_delta" and block.kind == "tool_use":
            piece = text(delta, "partial_json")
            return [self._more_arguments(block, piece, "", "")] if piece else []
        return []

    def _sealed_with(self, block: _Block, piece: str) -> None:
        self._sealed.grow(len(piece))
        if piece:
            block.seals.append(piece)

    def _said(self, block: _Block, piece: str) -> list[Piece]:
        piece = self._halves["text"].whole(piece)
        if piece:
            block.parts.append(piece)
        return [TextPiece(piece)] if piece else []

    def _thought(self, block: _Block, piece: str) -> list[Piece]:
        # What goes back must be what came, to the last character; halves of one are only joined for being shown.
        if piece:
            block.parts.append(piece)
        shown = self._halves["thinking"].whole(piece)
        return [ReasoningPiece(shown)] if shown else []

    def _more_arguments(self, block: _Block, piece: str, call_id: str, name: str) -> ToolCallPiece:
        self._sizes.grow(block.slot, len(piece), call_id, name)
        return ToolCallPiece(block.slot, call_id, name, piece)

    def _end(self, frame: dict[str, Any]) -> list[Piece]:
        pieces = self._usage(member(frame, "usage"))
        reason = text(member(frame, "delta"), "stop_reason")
        if reason:
            pieces.append(Kept(tuple(self._kept())))
            pieces.append(Finished(_END_REASONS.get(reason, EndReason.UNKNOWN)))
        return pieces

    def _kept(self) -> list[Mapping[str, Any]]:
        entries: list[Mapping[str, Any]] = []
        for _, block in sorted(self._blocks.items()):
            whole = "".join(block.parts)
            if block.kind == "tool_use":
                entries.append({"call": self._call_ids[block.slot]})
            elif block.kind == "thinking" and block.seals:
                entries.append({"type": "thinking", "thinking": whole, "signature": "".join(block.seals)})
            elif block.kind == "redacted_thinking":
                entries.append(block.data)
            elif block.kind == "text" and whole.strip():
                entries.append({"type": "text", "text": whole})
        return entries

    def _usage(self, counts: dict[str, Any]) -> list[Piece]:
        """Each count is of the whole reply so far, so that a later one stands for an earlier one."""
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            count = number(counts, name)
            if count is not None:
                self._counts[name] = count
        thought = number(member(counts, "output_tokens_details"), "thinking_tokens")
        if thought is not None:
            self._counts["thinking_tokens"] = thought
        usage = _usage(self._counts)
        if usage is None or usage == self._reported:
            return []
        self._reported = usage
        return [UsageReport(usage)]


def _usage(counts: Mapping[str, int]) -> Usage | None:
    """The provider counts what it read from or wrote into its cache apart from the rest of the input."""
    if not counts:
        return None
    cached, written = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
    fresh, said = counts.get("input_tokens"), counts.get("output_tokens")
    read = None if fresh is None else fresh + (cached or 0) + (written or 0)
    return Usage(
        input_tokens=read,
        cached_input_tokens=cached,
        cache_write_input_tokens=written,
        output_tokens=said,
        reasoning_tokens=counts.get("thinking_tokens"),
        total_tokens=None if read is None or said is None else read + said,
    )


def refuses_thinking(status: int, body: bytes) -> bool:
    """Whether the server refused the request because the model has no thinking of the kind that was asked for."""
    return status in (400, 422) and b"thinking" in body and b"adaptive" in body
