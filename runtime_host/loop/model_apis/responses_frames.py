"""OpenAI Responses, as requests are written and replies are read. Pure.

Must not know HTTP clients or SDKs. Invariants: nothing is stored at the provider for later; frames are told apart by
the `type` in them; a field of the wrong kind reads as absent; sealed reasoning goes back exactly as it came.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from runtime_host.loop.model_apis.chat_frames import data_url
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
from runtime_host.loop.model_apis.reading import CallSizes, Halves, KeptSize, listed, member, number, object_of, text
from runtime_host.loop.model_apis.refusals import stream_fault
from runtime_host.loop.model_apis.sse import ServerEvent
from runtime_host.results import Usage

MAX_ITEMS: Final = 1024

_CUT_SHORT: Final[dict[str, EndReason]] = {
    "max_output_tokens": EndReason.LENGTH,
    "content_filter": EndReason.CONTENT_FILTER,
}


def fields(request: ChatRequest, *, reasoning_extras: bool = True) -> dict[str, Any]:
    """The body of a request. `reasoning_extras`: ask for what comes of the reasoning besides the answer."""
    body: dict[str, Any] = {
        "model": request.model,
        "input": [item for message in request.messages for item in _items(message)],
        "stream": True,
        # The conversation is kept here, and only here.
        "store": False,
    }
    if request.instructions.strip():
        body["instructions"] = request.instructions
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": offer.name,
                "description": offer.description,
                "parameters": offer.parameters,
                # Strict ones have to follow rules that an application's schema need not; arguments are checked here.
                "strict": False,
            }
            for offer in request.tools
        ]
    reasoning: dict[str, Any] = {}
    if request.reasoning_effort is not None:
        reasoning["effort"] = request.reasoning_effort
    if request.reasons and reasoning_extras and request.reasoning_effort != "none":
        reasoning["summary"] = "auto"
        # Without it the reasoning before a tool call would be lost, as nothing is stored there.
        body["include"] = ["reasoning.encrypted_content"]
    if reasoning:
        body["reasoning"] = reasoning
    if request.schema is not None:
        wanted = request.schema
        format_: dict[str, Any] = {"type": "json_schema", "name": wanted.name, "schema": wanted.schema}
        if wanted.strict is not None:
            format_["strict"] = wanted.strict
        body["text"] = {"format": format_}
    optional = {
        "max_output_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
    }
    return body | {name: value for name, value in optional.items() if value is not None}


def refuses_reasoning_extras(status: int, body: bytes) -> bool:
    """Whether the server refused the request for the extras alone: an account or a model that does not give them."""
    return status in (400, 403, 422) and (b"reasoning.summary" in body or b"ncrypted content" in body)


def _items(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tools":
        for answer in message.answers:
            yield {"type": "function_call_output", "call_id": answer.call_id, "output": answer.text}
    elif message.role == "assistant":
        yield from _said(message)
    elif message.images:
        parts: list[dict[str, Any]] = [{"type": "input_text", "text": message.text}] if message.text.strip() else []
        parts += [{"type": "input_image", "detail": "auto", "image_url": data_url(*image)} for image in message.images]
        yield {"type": "message", "role": "user", "content": parts}
    else:
        yield {"type": "message", "role": "user", "content": message.text}


def _said(message: Message) -> Iterator[dict[str, Any]]:
    calls = {call.call_id: call for call in message.calls}
    if not message.kept and message.text.strip():
        yield {"type": "message", "role": "assistant", "content": message.text}
    for entry in message.kept:
        if "call" not in entry:
            yield dict(entry)
        elif (call := calls.pop(entry["call"], None)) is not None:
            yield _function_call(call) | {name: value for name, value in entry.items() if name != "call"}
    for call in calls.values():
        yield _function_call(call)


def _function_call(call: Call) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}


class _Item:
    """An output item of this reply as it arrives. `begun`: something of it was given out."""

    __slots__ = ("begun", "kind", "part", "slot")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.slot = 0
        self.begun = False
        self.part = 0


class FrameReader:
    """Reads the frames of one reply in order.

    Attributes:
        done: the server has said that nothing more comes.
    """

    def __init__(self) -> None:
        self.done = False
        self._items: dict[int, _Item] = {}
        self._kept: dict[int, Mapping[str, Any]] = {}
        self._calls = 0
        self._sizes = CallSizes()
        self._sealed = KeptSize()
        self._refused = False
        self._spoke: int | None = None
        self._text = Halves()
        self._reasoning = Halves()

    def read(self, event: ServerEvent) -> list[Piece]:
        """Pieces in one frame, in the order in which they belong.

        Raises:
            ModelFault: the frame is no JSON object, or it reports a failure.
        """
        frame = object_of(event.data)
        kind = text(frame, "type") or event.event
        if kind == "error":
            # Flat, as it is written down, or within an object, as other errors are.
            raise stream_fault(member(frame, "error") or {**frame, "type": ""})
        if kind == "response.failed":
            raise stream_fault(member(member(frame, "response"), "error"))
        if kind in ("response.completed", "response.incomplete"):
            return self._end(kind, member(frame, "response"))
        if not kind.startswith("response.") or "output_index" not in frame:
            return []
        return self._of_item(kind.removeprefix("response."), number(frame, "output_index") or 0, frame)

    def _of_item(self, kind: str, index: int, frame: dict[str, Any]) -> list[Piece]:
        if kind in ("output_item.added", "output_item.done"):
            return self._whole_item(kind, index, member(frame, "item"))
        item = self._items.get(index)
        piece = text(frame, "delta")
        if item is None or not piece:
            return []
        if kind in ("output_text.delta", "refusal.delta"):
            return self._said(item, piece, refused=kind == "refusal.delta")
        if kind == "reasoning_summary_text.delta":
            return self._thought(item, piece, number(frame, "summary_index") or 0)
        if kind == "reasoning_text.delta":
            return self._thought(item, piece, number(frame, "content_index") or 0)
        if kind == "function_call_arguments.delta" and item.kind == "function_call":
            return [self._more_arguments(item, "", "", piece)]
        return []

    def _whole_item(self, kind: str, index: int, content: dict[str, Any]) -> list[Piece]:
        item = self._items.get(index)
        pieces: list[Piece] = []
        if item is None:
            if len(self._items) >= MAX_ITEMS:
                raise ModelFault(FaultKind.MALFORMED)
            item = self._items[index] = _Item(text(content, "type"))
            if item.kind == "function_call":
                item.slot = self._calls
                self._calls += 1
                call_id, name = text(content, "call_id"), text(content, "name")
                pieces.append(self._more_arguments(item, call_id, name, ""))
                item.begun = False
        if kind == "output_item.done":
            if not item.begun:
                pieces += self._all_of(item, content)
            self._keep(index, item, content)
        return pieces

    def _all_of(self, item: _Item, content: dict[str, Any]) -> list[Piece]:
        """What an item holds that came without its pieces."""
        if item.kind == "function_call":
            arguments = text(content, "arguments")
            return [self._more_arguments(item, "", "", arguments)] if arguments else []
        pieces: list[Piece] = []
        if item.kind == "message":
            for part in listed(content.get("content")):
                refusal = text(part, "refusal")
                pieces += self._said(item, text(part, "text") or refusal, refused=bool(refusal))
        elif item.kind == "reasoning":
            for number_, part in enumerate(listed(content.get("summary"))):
                pieces += self._thought(item, text(part, "text"), number_)
        return pieces

    def _keep(self, index: int, item: _Item, content: dict[str, Any]) -> None:
        item_id = text(content, "id")
        self._sealed.grow(len(item_id))
        if item.kind == "function_call":
            self._kept[index] = {"call": text(content, "call_id")} | ({"id": item_id} if item_id else {})
        elif item.kind == "reasoning" and text(content, "encrypted_content"):
            # Only what is sealed can be handed back: of the rest the provider kept nothing.
            self._sealed.grow(len(text(content, "encrypted_content")) + len(str(content.get("summary"))))
            self._kept[index] = {
                "type": "reasoning",
                "id": item_id,
                "summary": listed(content.get("summary")),
                "encrypted_content": text(content, "encrypted_content"),
            }
        elif item.kind == "message":
            said = "".join(text(part, "text") or text(part, "refusal") for part in listed(content.get("content")))
            phase = text(content, "phase")
            self._sealed.grow(len(said) + len(phase))
            if said.strip():
                whole = {"type": "message", "role": "assistant", "content": said}
                self._kept[index] = whole | ({"phase": phase} if phase else {})

    def _said(self, item: _Item, piece: str, *, refused: bool) -> list[Piece]:
        item.begun = True
        self._refused = self._refused or refused
        if self._spoke not in (None, id(item)):
            # Another message of the same reply.
            piece = "\n\n" + piece
        self._spoke = id(item)
        piece = self._text.whole(piece)
        return [TextPiece(piece)] if piece else []

    def _thought(self, item: _Item, piece: str, part: int) -> list[Piece]:
        if item.begun and part != item.part:
            piece = "\n\n" + piece
        item.begun, item.part = True, part
        piece = self._reasoning.whole(piece)
        return [ReasoningPiece(piece)] if piece else []

    def _more_arguments(self, item: _Item, call_id: str, name: str, piece: str) -> ToolCallPiece:
        item.begun = True
        self._sizes.grow(item.slot, len(piece), call_id, name)
        return ToolCallPiece(item.slot, call_id, name, piece)

    def _end(self, kind: str, response: dict[str, Any]) -> list[Piece]:
        self.done = True
        pieces: list[Piece] = []
        usage = _usage(response.get("usage"))
        if usage is not None:
            pieces.append(UsageReport(usage))
        pieces.append(Kept(tuple(entry for _, entry in sorted(self._kept.items()))))
        if kind == "response.incomplete":
            reason = _CUT_SHORT.get(text(member(response, "incomplete_details"), "reason"), EndReason.UNKNOWN)
        elif self._refused:
            reason = EndReason.REFUSAL
        else:
            reason = EndReason.TOOL_CALLS if self._calls else EndReason.STOP
        return [*pieces, Finished(reason)]


def _usage(value: Any) -> Usage | None:
    read, said = member(value, "input_tokens_details"), member(value, "output_tokens_details")
    usage = Usage(
        input_tokens=number(value, "input_tokens"),
        cached_input_tokens=number(read, "cached_tokens"),
        cache_write_input_tokens=number(read, "cache_write_tokens"),
        output_tokens=number(value, "output_tokens"),
        reasoning_tokens=number(said, "reasoning_tokens"),
        total_tokens=number(value, "total_tokens"),
    )
    return None if usage == Usage() else usage
