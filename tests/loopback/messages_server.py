"""An Anthropic Messages server that behaves as it is told, well or badly.

Standard library only, and as strict as the provider: unknown fields, a wrong order of roles and blocks, missing
results of tools, thinking that was changed, and headers that are missing are refused.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

from tests.loopback.chat_server import BEHAVIOURS as CHAT_BEHAVIOURS
from tests.loopback.chat_server import Answer, Behaviour, ChatServer, Recorded, is_image

KNOWN_FIELDS = {
    "model", "max_tokens", "messages", "stream", "system", "tools", "thinking", "output_config", "temperature", "top_p",
}  # fmt: skip
ONLY_CHAT = {
    "odd-shapes", "done-without-finish", "finish-without-done", "refuses-stream-options", "reasoning", "tool-no-id",
    "split-surrogates", "429-quota", "content-filter", "tool-with-extras",
}  # fmt: skip
USAGE_AT_START = {
    "input_tokens": 10,
    "cache_read_input_tokens": 5,
    "cache_creation_input_tokens": 6,
    "output_tokens": 1,
}
USAGE_AT_END = {"output_tokens": 8, "output_tokens_details": {"thinking_tokens": 3}}
EFFORTS = (None, "low", "medium", "high", "xhigh", "max")
_ERROR_TYPES = {
    "invalid_api_key": "authentication_error",
    "permission_denied": "permission_error",
    "model_not_found": "not_found_error",
    "context_length_exceeded": "invalid_request_error",
    "rate_limit_exceeded": "rate_limit_error",
    "server_error": "api_error",
}
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


@dataclass
class MessagesServer(ChatServer):
    """One listening server.

    Attributes:
        nameless: whether events come without their names, as some proxies pass them on.
        thought: what was sent as thinking, as it has to come back.
    """

    vendor: ClassVar[Literal["openai", "anthropic", "openai-compatible"]] = "anthropic"
    place: ClassVar[str] = "/v1/messages"

    nameless: bool = False
    thought: list[dict[str, Any]] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return super().base_url.removesuffix("/v1")

    @property
    def behaviours(self) -> dict[str, Behaviour]:
        return BEHAVIOURS

    def key_in(self, request: Recorded) -> str | None:
        return None if "authorization" in request.headers else request.headers.get("x-api-key")

    def complaint(self, request: Recorded) -> str | None:
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", request.headers.get("anthropic-version", "")):
            return "anthropic-version: header is required"
        body = request.json()
        unknown = set(body) - KNOWN_FIELDS
        if unknown:
            return f"{sorted(unknown)}: Extra inputs are not permitted"
        if body.get("stream") is not True:
            return "Only streaming is served here."
        if type(body.get("max_tokens")) is not int or body["max_tokens"] < 1:
            return "max_tokens: Field required"
        if "system" in body and not body["system"].strip():
            return "system: must not be empty"
        return _options_complaint(body) or _messages_complaint(self, body)

    def answer_to(self, request: Recorded, writer: asyncio.StreamWriter) -> Answer:
        return MessagesAnswer(self, request, writer)


@dataclass
class MessagesAnswer(Answer):
    message_id: str = "msg_1"
    blocks: int = 0
    open_block: str = ""
    begun: bool = False

    async def error(
        self, status: int, code: str | None, message: str, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        if code == "context_length_exceeded":
            message = "prompt is too long: 210000 tokens > 200000 maximum"
        if code == "model_not_found":
            message = f"model: {self.request.json()['model']}"
        kind = _ERROR_TYPES.get(code or "", code) or ("billing_error" if status == 402 else "api_error")
        body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
        await self.json(status, body, headers)

    async def event(self, kind: str, **fields: Any) -> None:
        name = b"" if getattr(self.server, "nameless", False) else b"event: %b\n" % kind.encode()
        await self.raw(name + b"data: " + json.dumps({"type": kind, **fields}).encode() + b"\n\n")

    async def begin(self) -> None:
        if self.begun:
            return
        self.begun = True
        message: dict[str, Any] = {
            "id": self.message_id,
            "type": "message",
            "role": "assistant",
            "model": self.server.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": USAGE_AT_START if self.usage_told() else {},
        }
        await self.event("message_start", message=message)
        await self.event("ping")

    def usage_told(self) -> bool:
        return self.server.behaviour != "no-usage"

    async def block(self, kind: str, **content: Any) -> None:
        """Begin a block; whatever was open ends."""
        await self.begin()
        await self.close()
        self.open_block = kind
        await self.event("content_block_start", index=self.blocks, content_block={"type": kind, **content})

    async def delta(self, **delta: Any) -> None:
        await self.event("content_block_delta", index=self.blocks, delta=delta)

    async def close(self) -> None:
        if self.open_block:
            await self.event("content_block_stop", index=self.blocks)
            self.blocks += 1
            self.open_block = ""

    async def say(self, text: str) -> None:
        if self.open_block != "text":
            await self.block("text", text="")
        await self.delta(type="text_delta", text=text)

    async def think(self, text: str) -> None:
        if self.open_block != "thinking":
            await self.block("thinking", thinking="", signature="")
        await self.delta(type="thinking_delta", thinking=text)

    async def sign(self, text: str) -> None:
        """End the thinking `text`, which from now on has to come back as it was."""
        signature = signature_of(text)
        await self.delta(type="signature_delta", signature=signature)
        self.remember({"type": "thinking", "thinking": text, "signature": signature})

    async def redacted(self, data: str) -> None:
        await self.block("redacted_thinking", data=data)
        self.remember({"type": "redacted_thinking", "data": data})

    def remember(self, block: dict[str, Any]) -> None:
        assert isinstance(self.server, MessagesServer)
        self.server.thought.append(block)

    async def call(self, call_id: str, name: str, arguments: str, index: int = 0) -> None:
        await self.block("tool_use", id=call_id, name=name, input={})
        middle = len(arguments) // 2
        for piece in ("", arguments[:middle], arguments[middle:]):
            await self.delta(type="input_json_delta", partial_json=piece)

    async def two_calls(self, name: str) -> None:
        await self.call("call_a", name, '{"city": "Paris"}')
        await self.call("call_b", name, '{"city": "Rome"}')

    async def decline(self, text: str) -> None:
        await self.text(text)
        await self.finish("refusal")

    async def fail(self, message: str, code: str = "server_error") -> None:
        await self.event("error", error={"type": _ERROR_TYPES.get(code, code), "message": message})
        await self.end()

    async def stop(self, reason: str = "stop") -> None:
        await self.begin()
        await self.close()
        usage = USAGE_AT_END if self.usage_told() else {}
        delta = {"stop_reason": _STOP_REASONS.get(reason, reason), "stop_sequence": None}
        await self.event("message_delta", delta=delta, usage=usage)

    async def finish(self, reason: str = "stop", *, usage: bool = True) -> None:
        await self.stop(reason)
        await self.done()

    async def done(self) -> None:
        await self.event("message_stop")
        await self.end()

    def results(self) -> list[dict[str, Any]]:
        return [
            block
            for message in self.request.json()["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]


def signature_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


Behave = Callable[[MessagesAnswer], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {name: done for name, done in CHAT_BEHAVIOURS.items() if name not in ONLY_CHAT}


def behaviour(name: str) -> Callable[[Behave], Behave]:
    def put(function: Behave) -> Behave:
        BEHAVIOURS[name] = cast(Behaviour, function)
        return function

    return put


THOUGHTS = ("France. ", "Its capital.")


@behaviour("reasoning")
async def reasoning(answer: MessagesAnswer) -> None:
    answer.start_stream()
    for piece in THOUGHTS:
        await answer.think(piece)
    await answer.sign("".join(THOUGHTS))
    await answer.text(answer.server.reply)
    await answer.finish()


@behaviour("reasoning-tool")
async def reasoning_with_tool(answer: MessagesAnswer) -> None:
    """Thinks, says something and asks for two tools; goes on only when all of that comes back as it was."""
    answer.start_stream()
    if answer.results():
        await answer.text("It says: " + " and ".join(answer.told()))
        await answer.finish()
        return
    for piece in THOUGHTS:
        await answer.think(piece)
    await answer.sign("".join(THOUGHTS))
    await answer.redacted("c2VhbGVk")
    await answer.text("Let me look.")
    await answer.two_calls(answer.request.json()["tools"][0]["name"])
    await answer.finish("tool_calls")


@behaviour("omitted-thinking")
async def omitted_thinking(answer: MessagesAnswer) -> None:
    """Signs a thinking that it does not show."""
    answer.start_stream()
    if answer.results():
        await answer.text("It says: " + " and ".join(answer.told()))
        await answer.finish()
        return
    await answer.block("thinking", thinking="", signature="")
    await answer.sign("")
    await answer.call("call_a", answer.request.json()["tools"][0]["name"], '{"city": "Paris"}')
    await answer.finish("tool_calls")


@behaviour("pause")
async def pause(answer: MessagesAnswer) -> None:
    """Pauses twice, and goes on when what it said comes back."""
    answer.start_stream()
    said = answer.request.json()["messages"][-1]
    if said["role"] != "assistant":
        await answer.text("The capital")
        await answer.finish("pause_turn")
    elif len(said["content"]) == 1:
        await answer.text(" of France")
        await answer.finish("pause_turn")
    else:
        await answer.text(" is Paris.")
        await answer.finish()


@behaviour("pause-endless")
async def pause_endless(answer: MessagesAnswer) -> None:
    answer.start_stream()
    await answer.text("x")
    await answer.finish("pause_turn")


@behaviour("context-full")
async def context_full(answer: MessagesAnswer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await answer.finish("model_context_window_exceeded")


@behaviour("no-adaptive")
async def no_adaptive(answer: MessagesAnswer) -> None:
    if "thinking" in answer.request.json():
        await answer.error(400, "invalid_request_error", "adaptive thinking is not supported on this model")
        return
    answer.start_stream()
    await answer.text(answer.server.reply)
    await answer.finish()


@behaviour("nameless")
async def nameless(answer: MessagesAnswer) -> None:
    """As some proxies pass it on: without the names of the events."""
    assert isinstance(answer.server, MessagesServer)
    answer.server.nameless = True
    answer.start_stream()
    await answer.text(answer.server.reply)
    await answer.finish()


@behaviour("odd-shapes")
async def odd_shapes(answer: MessagesAnswer) -> None:
    """JSON, but not of the shape anyone promised; around it a good reply."""
    answer.start_stream()
    await answer.begin()
    for odd in (
        {"type": "content_block_start", "index": 90, "content_block": {"type": "server_tool_use", "name": 4}},
        {"type": "content_block_delta", "index": 90, "delta": {"type": "citations_delta", "citation": {}}},
        {"type": "content_block_stop"},
        {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": "many"}},
        {"type": "new_kind_of_event", "nested": [1, 2]},
        {"type": 7},
        {},
    ):
        await answer.raw(b"event: x\ndata: " + json.dumps(odd).encode() + b"\n\n")
    await answer.text(answer.server.reply)
    await answer.finish()


@behaviour("keep-alive")
async def keep_alive(answer: MessagesAnswer) -> None:
    """Says for a while only that it is still there."""
    answer.start_stream()
    await answer.begin()
    for _ in range(6):
        await answer.event("ping")
        await asyncio.sleep(0.1)
    await answer.text(answer.server.reply)
    await answer.finish()


def _options_complaint(body: dict[str, Any]) -> str | None:
    thinking = body.get("thinking")
    if thinking not in (None, {"type": "disabled"}) and (
        set(thinking) - {"type", "display"} or thinking["type"] != "adaptive"
    ):
        return "thinking: Input tag does not match any of the expected tags"
    output = body.get("output_config", {})
    if set(output) - {"effort", "format"} or output.get("effort") not in (
        None,
        "low",
        "medium",
        "high",
        "xhigh",
        "max",
    ):
        return "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'"
    wanted = output.get("format")
    if wanted is not None and (set(wanted) != {"type", "schema"} or wanted["type"] != "json_schema"):
        return "output_config.format: not a format"
    for tool in body.get("tools", []):
        if set(tool) != {"name", "description", "input_schema"} or tool["input_schema"].get("type") != "object":
            return "tools.0: Extra inputs are not permitted, or a schema that is no object"
    return None


def _messages_complaint(server: MessagesServer, body: dict[str, Any]) -> str | None:
    offered = {tool["name"] for tool in body.get("tools", [])}
    open_calls: list[str] = []
    thought: list[dict[str, Any]] = []
    messages = body["messages"]
    for position, message in enumerate(messages):
        if set(message) != {"role", "content"} or message["role"] != ("user", "assistant")[position % 2]:
            return f"messages.{position}: roles must alternate"
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not content:
            return f"messages.{position}: all messages must have non-empty content"
        kinds = [block["type"] for block in content]
        answered = [block.get("tool_use_id") for block in content if block["type"] == "tool_result"]
        if sorted(answered) != sorted(open_calls) or kinds[: len(answered)] != ["tool_result"] * len(answered):
            return f"messages.{position}: `tool_use` ids were found without `tool_result` blocks immediately after"
        for block in content:
            fault = _block_complaint(message["role"], block, offered)
            if fault is not None:
                return f"messages.{position}: {fault}"
        open_calls = [block["id"] for block in content if block["type"] == "tool_use"]
        thought += [block for block in content if block["type"] in ("thinking", "redacted_thinking")]
    if open_calls or (messages[-1]["role"] == "assistant" and not server.behaviour.startswith("pause")):
        return "This model does not support assistant message prefill."
    wanted = server.thought if "thinking" in body or server.behaviour == "omitted-thinking" else thought
    if messages[-1]["role"] == "user" and "tool_result" in str(messages[-1]["content"]) and thought != wanted:
        return "thinking blocks in the latest assistant message cannot be modified, left out or reordered"
    return None


def _block_complaint(role: str, block: dict[str, Any], offered: set[str]) -> str | None:
    kind = block["type"]
    rules: dict[str, tuple[str, set[str], bool]] = {
        "text": ("", {"type", "text"}, bool(str(block.get("text", "")).strip())),
        "image": ("user", {"type", "source"}, _is_source(block.get("source"))),
        "tool_result": ("user", {"type", "tool_use_id", "content"}, bool(block.get("content"))),
        "tool_use": (
            "assistant",
            {"type", "id", "name", "input"},
            bool(offered and block.get("name")) and isinstance(block.get("input"), dict),
        ),
        "thinking": (
            "assistant",
            {"type", "thinking", "signature"},
            block.get("signature") == signature_of(str(block.get("thinking"))),
        ),
        "redacted_thinking": ("assistant", {"type", "data"}, bool(block.get("data"))),
    }
    if kind not in rules:
        return f"{kind}: unknown block"
    of_role, fields, holds = rules[kind]
    if of_role not in ("", role) or set(block) - {"is_error"} != fields or not holds:
        return f"{kind}: not as it has to be"
    return None


def _is_source(source: Any) -> bool:
    if not isinstance(source, dict) or set(source) != {"type", "media_type", "data"} or source["type"] != "base64":
        return False
    return is_image(source["media_type"], source["data"])
