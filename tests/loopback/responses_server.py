"""An OpenAI Responses server that behaves as it is told, well or badly.

Standard library only, and as strict as the provider: unknown fields, calls without results, results without calls,
sealed reasoning that was changed, and requests that want to be stored are refused.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

from tests.loopback.chat_server import BEHAVIOURS as CHAT_BEHAVIOURS
from tests.loopback.chat_server import Answer, Behaviour, ChatServer, Recorded, is_data_url

KNOWN_FIELDS = {
    "model", "input", "stream", "store", "instructions", "tools", "reasoning", "include", "text", "max_output_tokens",
    "temperature", "top_p",
}  # fmt: skip
ONLY_CHAT = {
    "odd-shapes", "done-without-finish", "finish-without-done", "refuses-stream-options", "reasoning", "tool-no-id",
    "split-surrogates", "tool-with-extras",
}  # fmt: skip
USAGE = {
    "input_tokens": 21,
    "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 6},
    "output_tokens": 8,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 29,
}
EFFORTS = {None, "none", "minimal", "low", "medium", "high", "xhigh", "max"}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
THOUGHTS = ("France. ", "Its capital.")


@dataclass
class ResponsesServer(ChatServer):
    """One listening server.

    Attributes:
        sealed: reasoning items as they were sent, and have to come back.
    """

    vendor: ClassVar[Literal["openai", "anthropic", "openai-compatible"]] = "openai"
    place: ClassVar[str] = "/v1/responses"

    sealed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def behaviours(self) -> dict[str, Behaviour]:
        return BEHAVIOURS

    def complaint(self, request: Recorded) -> str | None:
        body = request.json()
        unknown = set(body) - KNOWN_FIELDS
        if unknown:
            return f"Unknown parameter: {sorted(unknown)}"
        if body.get("stream") is not True or body.get("store") is not False:
            return "Only streaming is served here, and nothing is stored."
        if "instructions" in body and not body["instructions"].strip():
            return "Invalid 'instructions': empty."
        return _options_complaint(body) or _input_complaint(self, body)

    def answer_to(self, request: Recorded, writer: asyncio.StreamWriter) -> Answer:
        return ResponsesAnswer(self, request, writer)


@dataclass
class ResponsesAnswer(Answer):
    tag: str = "1"
    number: int = 0
    begun: bool = False
    item: dict[str, Any] = field(default_factory=dict)
    index: int = -1
    said: str = ""
    items: list[dict[str, Any]] = field(default_factory=list)

    async def error(
        self, status: int, code: str | None, message: str, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code, **more}}
        await self.json(status, body, headers)

    async def event(self, kind: str, **fields: Any) -> None:
        body = {"type": kind, "sequence_number": self.number, **fields}
        self.number += 1
        await self.raw(b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps(body).encode()))

    def response(self, status: str, **fields: Any) -> dict[str, Any]:
        return {"id": f"resp_{self.tag}", "object": "response", "status": status, "output": self.items, **fields}

    async def begin(self) -> None:
        if not self.begun:
            self.begun = True
            await self.event("response.created", response=self.response("in_progress"))
            await self.event("response.in_progress", response=self.response("in_progress"))

    async def open(self, kind: str, **content: Any) -> None:
        """Begin an item; whatever was open ends."""
        await self.begin()
        await self.close()
        self.index += 1
        self.said = ""
        self.item = {"id": f"{kind[:2]}_{self.tag}_{self.index}", "type": kind, "status": "in_progress", **content}
        await self.event("response.output_item.added", output_index=self.index, item=self.item)

    async def delta(self, **fields: Any) -> None:
        kind = fields.pop("kind")
        await self.event(f"response.{kind}.delta", item_id=self.item["id"], output_index=self.index, **fields)

    async def close(self) -> None:
        if self.item:
            done = {**self.item, "status": "completed"}
            if done["type"] == "message":
                done["content"] = [{"type": "output_text", "text": self.said, "annotations": []}]
            await self.event("response.output_item.done", output_index=self.index, item=done)
            self.items.append(done)
            self.item = {}

    async def say(self, text: str) -> None:
        if self.item.get("type") != "message":
            await self.open("message", role="assistant", content=[])
            part = {"type": "output_text", "text": "", "annotations": []}
            await self.event(
                "response.content_part.added",
                item_id=self.item["id"], output_index=self.index, content_index=0, part=part,
            )  # fmt: skip
        self.said += text
        await self.delta(kind="output_text", content_index=0, delta=text, logprobs=[])

    async def think(self, text: str) -> None:
        if self.item.get("type") != "reasoning":
            await self.open("reasoning", summary=[])
        await self.delta(kind="reasoning_summary_text", summary_index=0, delta=text)

    async def seal(self, text: str) -> None:
        """End the reasoning `text`, which from now on has to come back as it was."""
        self.item |= {"summary": [{"type": "summary_text", "text": text}], "encrypted_content": f"sealed:{text}"}
        kept = {name: self.item[name] for name in ("type", "id", "summary", "encrypted_content")}
        assert isinstance(self.server, ResponsesServer)
        self.server.sealed.append(kept)
        await self.close()

    async def call(self, call_id: str, name: str, arguments: str, index: int = 0) -> None:
        await self.open("function_call", call_id=call_id, name=name, arguments="")
        middle = len(arguments) // 2
        for piece in (arguments[:middle], arguments[middle:]):
            await self.delta(kind="function_call_arguments", delta=piece)
        self.item["arguments"] = arguments
        await self.close()

    async def two_calls(self, name: str) -> None:
        """Their pieces are mixed."""
        for call_id in ("call_a", "call_b"):
            await self.open("function_call", call_id=call_id, name=name, arguments="")
            self.items.append(self.item)
            self.item = {}
        first = self.index - 1
        for pieces in (('{"city": ', '{"ci'), ('"Paris"}', 'ty": "Rome"}')):
            for at, piece in enumerate(pieces):
                await self.event(
                    "response.function_call_arguments.delta",
                    item_id=self.items[at - 2]["id"], output_index=first + at, delta=piece,
                )  # fmt: skip
        for at, city in enumerate(("Paris", "Rome")):
            done = {**self.items[at - 2], "arguments": json.dumps({"city": city}), "status": "completed"}
            await self.event("response.output_item.done", output_index=first + at, item=done)

    async def decline(self, text: str) -> None:
        await self.open("message", role="assistant", content=[])
        await self.delta(kind="refusal", content_index=0, delta=text)
        self.item["content"] = [{"type": "refusal", "refusal": text}]
        await self.finish()

    async def fail(self, message: str, code: str = "server_error") -> None:
        if self.begun:
            failed = self.response("failed", error={"code": code, "message": message})
            await self.event("response.failed", response=failed)
        else:
            await self.event("error", code=code, message=message, param=None)
        await self.end()

    async def stop(self, reason: str = "stop") -> None:
        await self.begin()
        await self.close()
        usage = {} if self.server.behaviour == "no-usage" else {"usage": USAGE}
        if reason in ("stop", "tool_calls"):
            await self.event("response.completed", response=self.response("completed", **usage))
        else:
            details = {"incomplete_details": {"reason": _INCOMPLETE.get(reason, reason)}}
            await self.event("response.incomplete", response=self.response("incomplete", **details, **usage))

    async def finish(self, reason: str = "stop", *, usage: bool = True) -> None:
        await self.stop(reason)
        await self.end()

    async def done(self) -> None:
        await self.end()

    def told(self) -> list[str]:
        return [str(result["output"]) for result in self.results()]

    def results(self) -> list[dict[str, Any]]:
        return [item for item in self.request.json()["input"] if item["type"] == "function_call_output"]


Behave = Callable[[ResponsesAnswer], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {name: done for name, done in CHAT_BEHAVIOURS.items() if name not in ONLY_CHAT}


def behaviour(name: str) -> Callable[[Behave], Behave]:
    def put(function: Behave) -> Behave:
        BEHAVIOURS[name] = cast(Behaviour, function)
        return function

    return put


@behaviour("reasoning")
async def reasoning(answer: ResponsesAnswer) -> None:
    answer.start_stream()
    for piece in THOUGHTS:
        await answer.think(piece)
    await answer.seal("".join(THOUGHTS))
    await answer.text(answer.server.reply)
    await answer.finish()


@behaviour("reasoning-tool")
async def reasoning_with_tool(answer: ResponsesAnswer) -> None:
    """Reasons, says something and asks for two tools; goes on only when all of that comes back as it was."""
    answer.start_stream()
    if answer.results():
        await answer.text("It says: " + " and ".join(answer.told()))
        await answer.finish()
        return
    for piece in THOUGHTS:
        await answer.think(piece)
    await answer.seal("".join(THOUGHTS))
    await answer.text("Let me look.")
    await answer.close()
    await answer.two_calls(answer.request.json()["tools"][0]["name"])
    await answer.finish("tool_calls")


@behaviour("whole-items")
async def whole_items(answer: ResponsesAnswer) -> None:
    """As some gateways send it: items as a whole, without their pieces."""
    answer.start_stream()
    message = {"id": "m", "type": "message", "role": "assistant"}
    parts = [{"type": "output_text", "text": answer.server.reply, "annotations": []}]
    await answer.event("response.output_item.done", output_index=0, item={**message, "content": parts})
    await answer.finish()


@behaviour("two-messages")
async def two_messages(answer: ResponsesAnswer) -> None:
    answer.start_stream()
    await answer.text("I will think.")
    await answer.close()
    await answer.text("Paris.")
    await answer.finish()


@behaviour("no-extras")
async def no_extras(answer: ResponsesAnswer) -> None:
    """An account that may not see summaries of the reasoning."""
    if "summary" in answer.request.json().get("reasoning", {}):
        message = "Your organization must be verified to generate reasoning summaries."
        await answer.error(400, "unsupported_value", message, param="reasoning.summary")
        return
    answer.start_stream()
    await answer.text(answer.server.reply)
    await answer.finish()


@behaviour("odd-shapes")
async def odd_shapes(answer: ResponsesAnswer) -> None:
    """JSON, but not of the shape anyone promised; around it a good reply."""
    answer.start_stream()
    await answer.begin()
    for odd in (
        {"type": "response.output_text.delta", "output_index": 70, "delta": "of an item that never began"},
        {"type": "response.output_item.added", "output_index": "x", "item": 5},
        {"type": "response.output_item.added", "output_index": 80, "item": {"type": "web_search_call"}},
        {"type": "response.web_search_call.searching", "output_index": 80, "delta": ["x"]},
        {"type": "new_kind_of_event", "nested": [1, 2]},
        {"type": 7},
        {},
    ):
        await answer.raw(b"data: " + json.dumps(odd).encode() + b"\n\n")
    answer.index = 80
    await answer.text(answer.server.reply)
    await answer.finish()


def _options_complaint(body: dict[str, Any]) -> str | None:
    thinking = body.get("reasoning", {})
    if set(thinking) - {"effort", "summary"} or thinking.get("effort") not in EFFORTS:
        return "Invalid value: 'reasoning.effort'."
    if thinking.get("summary") not in (None, "auto"):
        return "Invalid value: 'reasoning.summary'."
    if body.get("include", ["reasoning.encrypted_content"]) != ["reasoning.encrypted_content"]:
        return "Invalid value: 'include'."
    wanted = body.get("text", {}).get("format")
    if wanted is not None:
        named = re.fullmatch(r"[A-Za-z0-9_-]{1,64}", wanted.get("name", ""))
        if set(wanted) - {"strict"} != {"type", "name", "schema"} or wanted["type"] != "json_schema" or not named:
            return "Invalid 'text.format'."
    for tool in body.get("tools", []):
        if set(tool) != {"type", "name", "description", "parameters", "strict"} or tool["type"] != "function":
            return "Missing or unknown parameter: 'tools[0]'."
    return None


def _input_complaint(server: ResponsesServer, body: dict[str, Any]) -> str | None:
    reading = _Input(body)
    for position, item in enumerate(body["input"]):
        fault = reading.take(item, body["input"][position + 1 :])
        if fault is not None:
            return fault
    if reading.open_calls:
        return f"No tool output found for function call {reading.open_calls[0]}."
    if reading.last not in ("user", "tools"):
        return "The last item must be of the user, or a result."
    if reading.last == "tools" and reading.sealed != server.sealed:
        return "The encrypted content could not be verified."
    return None


class _Input:
    """The items of a request, taken in order; each refusal is a sentence."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.offered = {tool["name"] for tool in body.get("tools", [])}
        self.open_calls: list[str] = []
        self.sealed: list[dict[str, Any]] = []
        self.last = "assistant"

    def take(self, item: dict[str, Any], after: list[dict[str, Any]]) -> str | None:
        kind = item["type"]
        if self.open_calls and kind not in ("function_call", "function_call_output"):
            return f"No tool output found for function call {self.open_calls[0]}."
        if kind == "function_call_output":
            return self._result(item)
        if kind == "function_call":
            return self._call(item)
        if kind == "reasoning":
            self.sealed.append(item)
            alone = not after or after[0].get("role") == "user"
            return (
                f"Item '{item['id']}' of type 'reasoning' was provided without its following item." if alone else None
            )
        if kind != "message" or not _is_message(item) or (item["role"] == self.last == "user"):
            return f"Invalid item of type {kind}, or not where it may be."
        self.last = item["role"]
        return None

    def _result(self, item: dict[str, Any]) -> str | None:
        if item["call_id"] not in self.open_calls or set(item) != {"type", "call_id", "output"}:
            return f"No tool call found for function call output with call_id {item['call_id']}."
        self.open_calls.remove(item["call_id"])
        self.last = "tools"
        return None

    def _call(self, item: dict[str, Any]) -> str | None:
        if set(item) - {"id"} != {"type", "call_id", "name", "arguments"} or not self.offered:
            return "Invalid function call."
        json.loads(item["arguments"])
        self.open_calls.append(item["call_id"])
        return None


def _is_message(item: dict[str, Any]) -> bool:
    content = item["content"]
    if set(item) - {"phase"} != {"type", "role", "content"}:
        return False
    if isinstance(content, str):
        return bool(content.strip()) and item["role"] in ("user", "assistant")
    return item["role"] == "user" and all(
        (part["type"] == "input_text" and set(part) == {"type", "text"} and part["text"])
        or (
            part["type"] == "input_image"
            and set(part) == {"type", "detail", "image_url"}
            and is_data_url(part["image_url"])
        )
        for part in content
    )
