"""Chat completions, as requests are written and replies are read. Pure.

Must not know HTTP clients or SDKs. Invariants: a field of the wrong kind reads as absent, never as an exception;
what is no known word of the server stays a reason that is not known.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from runtime_host.loop.model_apis.pieces import (
    ChatRequest,
    EndReason,
    Finished,
    Kept,
    Message,
    Piece,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
    UsageReport,
)
from runtime_host.loop.model_apis.reading import CallSizes, Halves, KeptSize, listed, number, object_of
from runtime_host.loop.model_apis.refusals import stream_fault
from runtime_host.loop.model_apis.sse import ServerEvent
from runtime_host.results import Usage

_END_REASONS: dict[str, EndReason] = {
    "stop": EndReason.STOP,
    "eos": EndReason.STOP,
    "eos_token": EndReason.STOP,
    "end_turn": EndReason.STOP,
    "stop_sequence": EndReason.STOP,
    "length": EndReason.LENGTH,
    "max_tokens": EndReason.LENGTH,
    "model_length": EndReason.LENGTH,
    "content_filter": EndReason.CONTENT_FILTER,
    "refusal": EndReason.REFUSAL,
    "tool_calls": EndReason.TOOL_CALLS,
    "function_call": EndReason.TOOL_CALLS,
    "error": EndReason.ERROR,
}

RESULTS_READ: Final = "[I have read what the calls came to.]"
"""What an assistant says between results of tools and a person's message.

Strict servers, and templates of local models, take nothing but a reply behind the results. What the person said stays
a message of its own: within a result it would be told apart from what a tool says by words alone, which a page can say
as well.
"""


def fields(request: ChatRequest) -> dict[str, Any]:
    """The body of a request, without what is only asked of some servers."""
    messages: list[dict[str, Any]] = []
    if request.instructions.strip():
        messages.append({"role": "system", "content": request.instructions})
    for message in request.messages:
        if message.role == "user" and messages and messages[-1]["role"] == "tool":
            messages.append({"role": "assistant", "content": RESULTS_READ})
        messages.extend(_message(message))
    body: dict[str, Any] = {"model": request.model, "messages": messages, "stream": True}
    optional = {
        "reasoning_effort": request.reasoning_effort,
        "max_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": offer.name, "description": offer.description, "parameters": offer.parameters},
            }
            for offer in request.tools
        ]
    if request.schema is not None:
        wanted = {"name": request.schema.name, "schema": request.schema.schema, "strict": request.schema.strict}
        given = {name: value for name, value in wanted.items() if value is not None}
        body["response_format"] = {"type": "json_schema", "json_schema": given}
    return body | {name: value for name, value in optional.items() if value is not None}


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def _message(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tools":
        for answer in message.answers:
            yield {"role": "tool", "tool_call_id": answer.call_id, "content": answer.text}
    elif message.role == "assistant" and message.calls:
        yield _asked(message)
    elif message.images:
        parts: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text.strip() else []
        parts += [{"type": "image_url", "image_url": {"url": data_url(*image)}} for image in message.images]
        yield {"role": "user", "content": parts}
    else:
        yield {"role": message.role, "content": message.text}


def _asked(message: Message) -> dict[str, Any]:
    """A message with tool calls, and what its server wants back with them: signatures, and the reasoning before."""
    extras: dict[str, dict[str, Any]] = {}
    reasoned: dict[str, Any] = {}
    for entry in message.kept:
        if "call" in entry:
            extras[entry["call"]] = {name: value for name, value in entry.items() if name != "call"}
        else:
            reasoned |= entry
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
            **extras.get(call.call_id, {}),
        }
        for call in message.calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls, **reasoned}


class _Slot:
    """A tool call of this reply. `extra`: what its server put beside it and wants back, such as a signature."""

    __slots__ = ("call_id", "extra", "index")

    def __init__(self, index: int | None, call_id: str) -> None:
        self.index = index
        self.call_id = call_id
        self.extra: dict[str, Any] | None = None


class _Detail:
    """A reasoning detail as it arrives, its text in pieces: each put to a long text would copy all before it."""

    __slots__ = ("_fields", "_pieces")

    def __init__(self, detail: Mapping[str, Any]) -> None:
        self._fields = dict(detail)
        self._pieces = {name: [detail[name]] for name in ("text", "summary") if isinstance(detail.get(name), str)}

    def takes(self, detail: Mapping[str, Any]) -> bool:
        """Put a piece to what it continues; False for one that begins anew."""
        if all(self._fields.get(name) == detail.get(name) for name in ("type", "index")):
            for name, pieces in self._pieces.items():
                if isinstance(detail.get(name), str):
                    pieces.append(detail[name])
                    self._fields |= {key: value for key, value in detail.items() if key not in self._pieces}
                    return True
        return False

    def whole(self) -> dict[str, Any]:
        return self._fields | {name: "".join(pieces) for name, pieces in self._pieces.items()}


class FrameReader:
    """Reads the frames of one reply in order.

    Attributes:
        done: the server has said that nothing more comes.
    """

    def __init__(self) -> None:
        self.done = False
        self._usage: Usage | None = None
        self._refused = False
        # Of each tool call so far: the index the server gave it and its id.
        self._calls: list[_Slot] = []
        self._sizes = CallSizes()
        self._sealed = KeptSize()
        self._thought: list[str] = []
        self._details: list[_Detail] = []
        self._text = Halves()
        self._reasoning = Halves()

    def read(self, event: ServerEvent) -> list[Piece]:
        """Pieces in one frame, in the order in which they belong.

        Raises:
            ModelFault: the frame is no JSON object, or it reports a failure.
        """
        if event.data.startswith(b"[DONE]"):
            self.done = True
            return []
        frame = object_of(event.data)
        if frame.get("error"):
            raise stream_fault(frame["error"])
        if event.event == "error":
            raise stream_fault(frame)
        pieces: list[Piece] = []
        for choice in listed(frame.get("choices")):
            if isinstance(choice, dict) and choice.get("index") in (0, None):
                pieces.extend(self._choice(choice))
        usage = _usage(frame.get("usage"))
        if usage is not None and usage != self._usage:
            self._usage = usage
            pieces.append(UsageReport(usage))
        return pieces

    def _choice(self, choice: dict[str, Any]) -> Iterator[Piece]:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._keep_reasoning(delta)
            # Servers name it one way or the other; some send both with the same text.
            reasoning = self._reasoning.whole(_text(delta.get("reasoning_content")) or _text(delta.get("reasoning")))
            if reasoning:
                yield ReasoningPiece(reasoning)
            refusal = _text(delta.get("refusal"))
            self._refused = self._refused or bool(refusal)
            text = self._text.whole(_text(delta.get("content")) or refusal)
            if text:
                yield TextPiece(text)
            for entry in listed(delta.get("tool_calls")):
                if isinstance(entry, dict):
                    yield self._tool_call(entry)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            end = _END_REASONS.get(reason.lower(), EndReason.UNKNOWN)
            if kept := self._kept():
                yield Kept(kept)
            yield Finished(EndReason.REFUSAL if self._refused and end is EndReason.STOP else end)

    def _keep_reasoning(self, delta: dict[str, Any]) -> None:
        """Some servers refuse results of tools unless the reasoning before the calls comes back as they named it."""
        thought = delta.get("reasoning_content")
        if isinstance(thought, str) and thought:
            self._sealed.grow(len(thought))
            self._thought.append(thought)
        for detail in listed(delta.get("reasoning_details")):
            if isinstance(detail, dict):
                self._sealed.grow(len(str(detail)))
                if not (self._details and self._details[-1].takes(detail)):
                    self._details.append(_Detail(detail))

    def _kept(self) -> tuple[dict[str, Any], ...]:
        kept: list[dict[str, Any]] = []
        if self._thought:
            kept.append({"reasoning_content": "".join(self._thought)})
        if self._details:
            kept.append({"reasoning_details": [detail.whole() for detail in self._details]})
        signed = [slot for slot in self._calls if slot.extra is not None]
        kept += [{"call": slot.call_id, "extra_content": slot.extra} for slot in signed]
        # Without calls nothing is answered, so nothing needs to go back.
        return tuple(kept) if self._calls else ()

    def _tool_call(self, entry: dict[str, Any]) -> ToolCallPiece:
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name, arguments = entry.get("id"), function.get("name"), function.get("arguments")
        call_id = call_id if isinstance(call_id, str) else ""
        name = name if isinstance(name, str) else ""
        if isinstance(arguments, dict):
            # Some servers send them as the object they are to be.
            arguments = json.dumps(arguments)
        arguments = arguments if isinstance(arguments, str) else ""
        index = entry.get("index")
        slot = self._slot(index if type(index) is int else None, call_id, name)
        self._calls[slot].call_id = self._calls[slot].call_id or call_id
        self._sizes.grow(slot, len(arguments), call_id, name)
        extra = entry.get("extra_content")
        if isinstance(extra, dict):
            self._sealed.grow(len(str(extra)))
            self._calls[slot].extra = extra
        return ToolCallPiece(slot, call_id, name, arguments)

    def _slot(self, index: int | None, call_id: str, name: str) -> int:
        """Which call an entry belongs to. Servers leave the index out, or give each call the same one."""
        for number_ in range(len(self._calls) - 1, -1, -1):
            slot = self._calls[number_]
            if index is None:
                goes_on = call_id == slot.call_id if call_id else not name
            else:
                goes_on = index == slot.index and (not call_id or not slot.call_id or call_id == slot.call_id)
            if goes_on:
                return number_
            if index is None and not call_id:
                break
        self._calls.append(_Slot(index, call_id))
        return len(self._calls) - 1


def refuses_stream_options(status: int, body: bytes) -> bool:
    """Whether the server refused the request for the one field that is an extra: it then did nothing else with it."""
    return status in (400, 422) and b"stream_options" in body


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    # Some servers send content as typed parts, as the request format does.
    return "".join(
        part["text"]
        for part in listed(value)
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    prompt = value.get("prompt_tokens_details")
    completion = value.get("completion_tokens_details")
    usage = Usage(
        input_tokens=number(value, "prompt_tokens"),
        cached_input_tokens=number(prompt, "cached_tokens"),
        cache_write_input_tokens=number(prompt, "cache_write_tokens"),
        output_tokens=number(value, "completion_tokens"),
        reasoning_tokens=number(completion, "reasoning_tokens"),
        total_tokens=number(value, "total_tokens"),
    )
    return None if usage == Usage() else usage
