"""A chat-completions server that behaves as it is told, well or badly.

Standard library only. Strict: it refuses unknown fields, a wrong order of roles and a wrong key, as a picky
provider would, and records every request. By hand::

    python -m tests.loopback.chat_server --port 8123 --behaviour slow --rate 20

Behaviour ``by-model`` takes the name of the model as the behaviour, so that one server shows them all.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import re
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

DEFAULT_REPLY = "The capital of France is Paris."
DEFAULT_MODEL = "loopback-chat"
DEFAULT_KEY = "sk-loopback-0123456789abcdef"
TOOL_MARKUP = '<tool_call>{"name": "shell", "arguments": {"command": "rm -rf /"}}</tool_call>'
HUGE_CHARS = 6 * 1024 * 1024
KNOWN_FIELDS = {
    "model", "messages", "stream", "stream_options", "reasoning_effort", "max_tokens", "temperature", "top_p",
    "tools", "response_format",
}  # fmt: skip
MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Recorded:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    raw_headers: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def connections_begun() -> None:
    """Let what was accepted when a server was closed come to where it is known, so that it can be ended."""
    for _ in range(8):
        await asyncio.sleep(0)


@dataclass
class ChatServer:
    """One listening server. ``async with ChatServer("ok") as server: server.base_url``.

    Attributes:
        behaviour: a key of `behaviours`; may be changed between requests.
        script: behaviours of the next requests, one each, before `behaviour` holds again.
        key: the accepted key; None accepts any request.
        reply: the text of a good reply, sent word by word.
        reasoning: text sent as reasoning before the reply.
        tokens_per_s: pace of a good reply; None is as fast as it goes.
        tokens: sends this many numbered words instead of `reply`.
        strict_roles: takes nothing but a reply behind results of tools, as some providers and templates do.
        requests: every request so far.
        open_replies: replies being written; a closed connection ends one.
    """

    vendor: ClassVar[Literal["openai", "anthropic", "openai-compatible"]] = "openai-compatible"
    place: ClassVar[str] = "/v1/chat/completions"

    behaviour: str = "ok"
    script: list[str] = field(default_factory=list)
    key: str | None = DEFAULT_KEY
    reply: str = DEFAULT_REPLY
    reasoning: str = ""
    model: str = DEFAULT_MODEL
    tokens_per_s: float | None = None
    tokens: int | None = None
    strict_roles: bool = True
    redirect_to: str = "http://127.0.0.1:9/v1/chat/completions"
    tls: ssl.SSLContext | None = None
    uds_path: str | None = None
    port: int = 0
    requests: list[Recorded] = field(default_factory=list)
    open_replies: int = 0
    _server: asyncio.Server | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def base_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        if self.uds_path is not None:
            self._server = await asyncio.start_unix_server(self._accept, self.uds_path)
            return
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        await connections_begun()
        while self._connections:
            for task in tuple(self._connections):
                task.cancel()
            await asyncio.wait(tuple(self._connections))
        if self._server is not None:
            await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, asyncio.LimitOverrunError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _read_request(reader)
        if request is None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return False
        self.requests.append(request)
        answer = self.answer_to(request, writer)
        self.open_replies += 1
        try:
            await self._answer(answer)
            await writer.drain()
        finally:
            self.open_replies -= 1
        return not answer.closing

    async def _answer(self, answer: "Answer") -> None:
        request = answer.request
        if self.key is not None and self.key_in(request) != self.key:
            await answer.error(401, "invalid_api_key", "Incorrect API key provided.")
            return
        if (request.method, request.path) == ("GET", "/v1/models"):
            names = list(self.behaviours) if self.behaviour == "by-model" else [self.model]
            await answer.json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]})
            return
        if (request.method, request.path) != ("POST", self.place):
            await answer.error(404, None, "Not found: there is nothing here.")
            return
        fault = self.complaint(request)
        if fault is not None:
            await answer.error(400, "invalid_request_error", fault)
            return
        behaviour = request.json()["model"] if self.behaviour == "by-model" else self.behaviour
        if self.script:
            behaviour = self.script.pop(0)
        await self.behaviours.get(behaviour, unknown_model)(answer)

    # What another kind of API has otherwise.

    @property
    def behaviours(self) -> dict[str, "Behaviour"]:
        return BEHAVIOURS

    def key_in(self, request: Recorded) -> str | None:
        """The key that a request brings."""
        return request.headers.get("authorization", "").removeprefix("Bearer ") or None

    def complaint(self, request: Recorded) -> str | None:
        """What a picky provider says against a request, or None."""
        return _complaint(request, strict_roles=self.strict_roles)

    def answer_to(self, request: Recorded, writer: asyncio.StreamWriter) -> "Answer":
        return Answer(self, request, writer)


@dataclass
class Answer:
    """The answer to one request, written piece by piece."""

    server: ChatServer
    request: Recorded
    writer: asyncio.StreamWriter
    closing: bool = False

    async def json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self._head(status, {"Content-Type": "application/json", "Content-Length": str(len(content))} | (headers or {}))
        self.writer.write(content)

    async def error(
        self, status: int, code: str | None, message: str, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        await self.json(status, {"error": {"message": message, "type": code, "code": code, **more}}, headers)

    def start_stream(self, content_type: str = "text/event-stream; charset=utf-8") -> None:
        self._head(200, {"Content-Type": content_type, "Transfer-Encoding": "chunked", "Cache-Control": "no-cache"})

    async def raw(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def frame(self, body: Any) -> None:
        await self.raw(b"data: " + (body if isinstance(body, bytes) else json.dumps(body).encode()) + b"\n\n")

    async def delta(self, *, finish_reason: str | None = None, **delta: Any) -> None:
        await self.frame(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": self.server.model,
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
            }
        )

    def told(self) -> list[str]:
        """What the results of tools in the request say, newest last."""
        return [str(result["content"]) for result in self.results()]

    def results(self) -> list[dict[str, Any]]:
        """Results of tools in the request, newest last."""
        return [message for message in self.request.json()["messages"] if message["role"] == "tool"]

    async def call(self, call_id: str, name: str, arguments: str, index: int = 0) -> None:
        """Ask for a tool, the arguments in two pieces, as providers send them."""
        middle = len(arguments) // 2
        opening = {"index": index, "id": call_id, "type": "function"}
        await self.delta(tool_calls=[{**opening, "function": {"name": name, "arguments": ""}}])
        for piece in (arguments[:middle], arguments[middle:]):
            await self.delta(tool_calls=[{"index": index, "function": {"arguments": piece}}])

    async def two_calls(self, name: str) -> None:
        """Ask for two calls, their pieces mixed."""
        for index, call_id in enumerate(("call_a", "call_b")):
            await self.delta(tool_calls=[{"index": index, "id": call_id, "function": {"name": name, "arguments": ""}}])
        for piece_a, piece_b in (('{"city": ', '{"ci'), ('"Paris"}', 'ty": "Rome"}')):
            await self.delta(
                tool_calls=[
                    {"index": 0, "function": {"arguments": piece_a}},
                    {"index": 1, "function": {"arguments": piece_b}},
                ]
            )

    async def begin(self) -> None:
        """What comes ahead of any text."""
        await self.delta(role="assistant", content="")

    async def think(self, text: str) -> None:
        """A piece of reasoning."""
        await self.delta(reasoning_content=text)

    async def say(self, text: str) -> None:
        """A piece of text, as it is."""
        await self.delta(content=text)

    async def text(self, text: str) -> None:
        for word in _words(text):
            await self.say(word)

    async def decline(self, text: str) -> None:
        """Refuse, in the way of the API."""
        await self.delta(refusal=text)
        await self.finish()

    async def fail(self, message: str, code: str = "server_error") -> None:
        """Report a fault within the stream."""
        await self.frame({"error": {"message": message, "type": code, "code": None}})
        await self.end()

    async def stop(self, reason: str = "stop") -> None:
        """The end of the reply alone, without what may follow it."""
        await self.delta(finish_reason=reason)

    async def finish(self, reason: str = "stop", *, usage: bool = True) -> None:
        await self.delta(finish_reason=reason)
        asked = (self.request.json().get("stream_options") or {}).get("include_usage")
        if usage and asked:
            await self.frame({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": USAGE})
        await self.done()

    async def done(self) -> None:
        await self.frame(b"[DONE]")
        await self.end()

    async def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def cut(self) -> None:
        """Break the connection in the middle of the stream."""
        await self.writer.drain()
        self.closing = True
        self.writer.transport.abort()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())


USAGE = {
    "prompt_tokens": 21,
    "completion_tokens": 8,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 3},
}

Behaviour = Callable[[Answer], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(name: str) -> Callable[[Behaviour], Behaviour]:
    def put(function: Behaviour) -> Behaviour:
        BEHAVIOURS[name] = function
        return function

    return put


@behaviour("ok")
async def ok(answer: Answer) -> None:
    server = answer.server
    answer.start_stream()
    await answer.begin()
    for word in _words(server.reasoning):
        await answer.think(word)
    async for words in _paced(server):
        await answer.text(words)
    await answer.finish()


@behaviour("slow")
async def slow(answer: Answer) -> None:
    """Twenty words a second unless told otherwise."""
    answer.server.tokens_per_s = answer.server.tokens_per_s or 20.0
    await ok(answer)


@behaviour("reasoning")
async def reasoning(answer: Answer) -> None:
    """Names the field the other way than `ok` with a `reasoning` text."""
    answer.start_stream()
    for word in _words("France. Its capital."):
        await answer.delta(reasoning=word)
    await answer.text(answer.server.reply)
    await answer.finish()


@behaviour("no-usage")
async def no_usage(answer: Answer) -> None:
    answer.start_stream()
    await answer.text(answer.server.reply)
    await answer.finish(usage=False)


@behaviour("refuses-stream-options")
async def refuses_stream_options(answer: Answer) -> None:
    if "stream_options" in answer.request.json():
        await answer.json(422, {"detail": [{"loc": ["body", "stream_options"], "type": "extra_forbidden"}]})
        return
    await no_usage(answer)


@behaviour("401")
async def key_refused(answer: Answer) -> None:
    await answer.error(401, "invalid_api_key", "Incorrect API key provided.")


@behaviour("401-echo")
async def key_refused_with_echo(answer: Answer) -> None:
    """Says the key back, in text and in a header."""
    sent = f"Bearer {answer.server.key_in(answer.request)}"
    await answer.error(401, "invalid_api_key", f"Incorrect API key provided: {sent}.", {"X-Echo": sent})


@behaviour("402")
async def no_credit(answer: Answer) -> None:
    await answer.error(402, None, "Payment required.")


@behaviour("403")
async def forbidden(answer: Answer) -> None:
    await answer.error(403, "permission_denied", "Your organization must be verified.")


@behaviour("404-model")
async def unknown_model(answer: Answer) -> None:
    model = answer.request.json().get("model")
    await answer.error(404, "model_not_found", f"The model `{model}` does not exist.", param="model")


@behaviour("404-page")
async def not_found(answer: Answer) -> None:
    answer._head(404, {"Content-Type": "text/html", "Content-Length": "20"})
    answer.writer.write(b"<h1>404 nothing</h1>")


@behaviour("400")
async def bad_request(answer: Answer) -> None:
    await answer.error(400, "invalid_request_error", "Something about it is not right.")


@behaviour("400-context")
async def too_long(answer: Answer) -> None:
    await answer.error(400, "context_length_exceeded", "This model's maximum context length is 2048 tokens.")


@behaviour("429")
async def rate_limited(answer: Answer) -> None:
    await answer.error(429, "rate_limit_exceeded", "Rate limit reached.", {"Retry-After": "20"})


@behaviour("429-quota")
async def quota(answer: Answer) -> None:
    await answer.error(429, "insufficient_quota", "You exceeded your current quota.")


@behaviour("500")
async def server_error(answer: Answer) -> None:
    await answer.error(500, "server_error", "The server had an error.")


@behaviour("503-retry")
async def asks_for_retry(answer: Answer) -> None:
    """Asks a client to try again at once, in the header the official SDK obeys."""
    await answer.error(503, "server_error", "Try again.", {"x-should-retry": "true", "Retry-After": "0"})


@behaviour("529")
async def overloaded(answer: Answer) -> None:
    await answer.error(529, "overloaded_error", "Overloaded.")


def refuses(name: str, status: int, code: str | None, message: str, headers: dict[str, str] | None = None) -> None:
    async def refuse(answer: Answer) -> None:
        await answer.error(status, code, message, headers)

    behaviour(name)(refuse)


refuses("400-credit", 400, "invalid_request_error", "Your credit balance is too low to access the API.")
refuses("400-image", 400, "invalid_request_error", "messages.0.content.1.image.source.base64: image is too large")
refuses("408", 408, "request_timeout", "The request took too long.")
refuses("409", 409, "conflict_error", "Another request is at it.")
refuses("413", 413, "request_too_large", "The request is too large.")
refuses("422", 422, "invalid_request_error", "A field is not valid.")
refuses("429-bare", 429, "rate_limit_error", "Slow down.")
refuses("429-date", 429, "rate_limit_error", "Slow down.", {"Retry-After": "Mon, 01 Jan 2001 00:00:00 GMT"})
refuses("429-hour", 429, "rate_limit_error", "Slow down.", {"Retry-After": "3600"})
refuses("502", 502, "bad_gateway", "Bad gateway.")
refuses("503-hour", 503, "overloaded_error", "Come back later.", {"Retry-After": "3600"})
refuses("504", 504, "timeout_error", "Gateway timeout.")


@behaviour("error-frame-first")
async def error_frame_first(answer: Answer) -> None:
    """Status 200, and a fault before any text."""
    answer.start_stream()
    await answer.fail("Overloaded", "overloaded_error")


@behaviour("error-frame-bad-request")
async def error_frame_bad_request(answer: Answer) -> None:
    answer.start_stream()
    await answer.fail("Something about the request is not right.", "invalid_request_error")


@behaviour("redirect")
async def redirect(answer: Answer) -> None:
    answer._head(307, {"Location": answer.server.redirect_to, "Content-Length": "0"})


@behaviour("cut-before-text")
async def cut_before_text(answer: Answer) -> None:
    answer.start_stream()
    await answer.begin()
    await answer.cut()


@behaviour("cut-after-text")
async def cut_after_text(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await answer.cut()


@behaviour("cut-before-answer")
async def cut_before_answer(answer: Answer) -> None:
    await answer.cut()


@behaviour("end-without-finish")
async def end_without_finish(answer: Answer) -> None:
    """Ends in good order, but never says that the reply is whole."""
    answer.start_stream()
    await answer.text("The capital of")
    await answer.end()


@behaviour("done-without-finish")
async def done_without_finish(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await answer.done()


@behaviour("finish-without-done")
async def finish_without_done(answer: Answer) -> None:
    answer.start_stream()
    await answer.text(answer.server.reply)
    await answer.stop()
    await answer.end()


@behaviour("cut-after-finish")
async def cut_after_finish(answer: Answer) -> None:
    answer.start_stream()
    await answer.text(answer.server.reply)
    await answer.stop()
    await answer.cut()


@behaviour("silence-3s")
async def silence(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await asyncio.sleep(3)
    await answer.text(" France is Paris.")
    await answer.finish()


@behaviour("keep-alive")
async def keep_alive(answer: Answer) -> None:
    """Says for a while only that it is still there."""
    answer.start_stream()
    for _ in range(6):
        await answer.raw(b": keep-alive\n\n")
        await asyncio.sleep(0.1)
    await answer.text(answer.server.reply)
    await answer.finish()


@behaviour("silent")
async def silent(answer: Answer) -> None:
    """Takes the request and never says anything."""
    await asyncio.sleep(3600)


@behaviour("silent-after-text")
async def silent_after_text(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await asyncio.sleep(3600)


@behaviour("malformed-json")
async def malformed(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await answer.frame(b'{"choices": [{"index": 0, "delta": {"content": "broken')
    await answer.end()


@behaviour("malformed-utf8")
async def malformed_utf8(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await answer.frame(b'{"type": "x", "choices": [{"index": 0, "delta": {"content": "\xff\xfe"}}]}')
    await answer.end()


@behaviour("odd-shapes")
async def odd_shapes(answer: Answer) -> None:
    """JSON, but not of the shape anyone promised; around it a good reply."""
    answer.start_stream()
    for odd in (
        {"choices": None},
        {"choices": [None, 7, "x"]},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"index": 0, "delta": {"content": 5, "reasoning": ["x"]}, "finish_reason": 0}], "usage": [1]},
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
        {"usage": {"prompt_tokens": "many", "completion_tokens": -1, "total_tokens": True}},
        {"unknown": {"nested": [1, 2]}},
    ):
        await answer.frame(odd)
    await answer.text(answer.server.reply)
    await answer.finish(usage=False)


@behaviour("html-page")
async def html_page(answer: Answer) -> None:
    """What a captive portal answers."""
    answer.start_stream("text/html")
    await answer.raw(b"<html><body>Please log in to the hotel</body></html>")
    await answer.end()


@behaviour("gzip")
async def gzip_body(answer: Answer) -> None:
    answer._head(200, {"Content-Type": "text/event-stream", "Content-Encoding": "gzip", "Content-Length": "4"})
    answer.writer.write(b"\x1f\x8b\x08\x00")


@behaviour("error-frame")
async def error_frame(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await answer.fail(f"Internal fault for {answer.server.key_in(answer.request)}")


@behaviour("named-error-frame")
async def named_error_frame(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await answer.raw(b'event: error\ndata: {"message": "gone"}\n\n')
    await answer.end()


@behaviour("tool-markup")
async def tool_markup(answer: Answer) -> None:
    answer.start_stream()
    await answer.text(TOOL_MARKUP)
    await answer.finish()


@behaviour("tool-call")
async def tool_call(answer: Answer) -> None:
    answer.start_stream()
    await answer.call("c", "shell", "{}")
    await answer.finish("tool_calls")


def _first_tool(answer: Answer) -> str:
    tools = answer.request.json().get("tools") or [{"name": "look"}]
    name: str = tools[0].get("function", tools[0])["name"]
    return name


async def _report(answer: Answer) -> None:
    """The final reply: what the newest results say."""
    await answer.text("It says: " + " and ".join(answer.told()))
    await answer.finish()


@behaviour("tool-single")
async def tool_single(answer: Answer) -> None:
    """Asks for the first tool offered, then tells what it said."""
    answer.start_stream()
    if answer.results():
        await _report(answer)
        return
    await answer.call("call_a", _first_tool(answer), '{"city": "Paris"}')
    await answer.finish("tool_calls")


@behaviour("tool-parallel")
async def tool_parallel(answer: Answer) -> None:
    """Asks for two calls at once, their pieces mixed."""
    answer.start_stream()
    if answer.results():
        await _report(answer)
        return
    await answer.two_calls(_first_tool(answer))
    await answer.finish("tool_calls")


@behaviour("tool-after-text")
async def tool_after_text(answer: Answer) -> None:
    """Says something first, and ends the reply as if it asked for nothing."""
    answer.start_stream()
    if answer.results():
        await _report(answer)
        return
    await answer.text("Let me look.")
    await answer.call("call_a", _first_tool(answer), '{"city": "Paris"}')
    await answer.finish("stop")


@behaviour("tool-with-extras")
async def tool_with_extras(answer: Answer) -> None:
    """Reasons, signs its call, and goes on only when both come back as they were, as some providers want it."""
    answer.start_stream()
    details = [{"type": "reasoning.text", "index": 0, "text": "France. Its capital.", "signature": "s"}]
    extra = {"google": {"thought_signature": "c2lnbmVk"}}
    if answer.results():
        asked = answer.request.json()["messages"][-2]
        whole = (
            asked.get("reasoning_content"),
            asked.get("reasoning_details"),
            asked["tool_calls"][0]["extra_content"],
        )
        if whole != ("France. Its capital.", details, extra):
            await answer.fail("Function call is missing a thought_signature", "invalid_request_error")
            return
        await _report(answer)
        return
    pieces: list[dict[str, Any]] = [
        {"type": "reasoning.text", "index": 0, "text": "France. "},
        {"type": "reasoning.text", "index": 0, "text": "Its capital.", "signature": "s"},
    ]
    for piece in pieces:
        await answer.delta(reasoning_content=piece["text"], reasoning_details=[piece])
    function = {"name": _first_tool(answer), "arguments": '{"city": "Paris"}'}
    await answer.delta(tool_calls=[{"index": 0, "id": "call_a", "function": function, "extra_content": extra}])
    await answer.finish("tool_calls")


@behaviour("tool-two-rounds")
async def tool_two_rounds(answer: Answer) -> None:
    answer.start_stream()
    done = len(answer.results())
    if done == 2:
        await _report(answer)
        return
    await answer.text(f"Step {done + 1}.")
    await answer.call(f"call_{done}", _first_tool(answer), json.dumps({"city": ("Paris", "Rome")[done]}))
    await answer.finish("tool_calls")


@behaviour("tool-malformed")
async def tool_malformed(answer: Answer) -> None:
    """Breaks the arguments off."""
    answer.start_stream()
    if answer.results():
        await _report(answer)
        return
    await answer.call("call_a", _first_tool(answer), '{"city": "Par')
    await answer.finish("tool_calls")


@behaviour("tool-misfit")
async def tool_misfit(answer: Answer) -> None:
    """Arguments that are JSON and do not fit the schema."""
    answer.start_stream()
    if answer.results():
        await _report(answer)
        return
    await answer.call("call_a", _first_tool(answer), '{"city": 7}')
    await answer.finish("tool_calls")


@behaviour("tool-unknown")
async def tool_unknown(answer: Answer) -> None:
    answer.start_stream()
    if answer.results():
        await _report(answer)
        return
    await answer.call("call_a", "shell", '{"command": "rm -rf /"}')
    await answer.finish("tool_calls")


@behaviour("tool-repeated")
async def tool_repeated(answer: Answer) -> None:
    """Asks for the same call under the same id in a second reply."""
    answer.start_stream()
    if len(answer.results()) == 2:
        await _report(answer)
        return
    await answer.call("call_a", _first_tool(answer), '{"city": "Paris"}')
    await answer.finish("tool_calls")


@behaviour("tool-repeated-other")
async def tool_repeated_other(answer: Answer) -> None:
    """Uses an id of the first reply for another call in the second."""
    answer.start_stream()
    done = len(answer.results())
    if done == 2:
        await _report(answer)
        return
    await answer.call("call_a", _first_tool(answer), json.dumps({"city": ("Paris", "Rome")[done]}))
    await answer.finish("tool_calls")


@behaviour("tool-one-id")
async def tool_one_id(answer: Answer) -> None:
    """Two different calls under one id in one reply."""
    answer.start_stream()
    name = _first_tool(answer)
    await answer.call("call_a", name, '{"city": "Paris"}')
    await answer.call("call_a", name, '{"city": "Rome"}', index=1)
    await answer.finish("tool_calls")


@behaviour("tool-no-id")
async def tool_no_id(answer: Answer) -> None:
    """Gives calls neither id nor index, and arguments as an object, as some servers do."""
    answer.start_stream()
    if answer.results():
        await _report(answer)
        return
    for city in ("Paris", "Rome"):
        call = {"function": {"name": _first_tool(answer), "arguments": {"city": city}}}
        await answer.delta(tool_calls=[call])
    await answer.finish("tool_calls")


@behaviour("tool-cut")
async def tool_cut(answer: Answer) -> None:
    """Breaks the connection after a whole call and before the end of the reply."""
    answer.start_stream()
    await answer.call("call_a", _first_tool(answer), '{"city": "Paris"}')
    await answer.cut()


@behaviour("tool-length")
async def tool_length(answer: Answer) -> None:
    """Meets the length limit within the arguments."""
    answer.start_stream()
    await answer.call("call_a", _first_tool(answer), '{"city": "Par')
    await answer.finish("length")


@behaviour("tool-nameless")
async def tool_nameless(answer: Answer) -> None:
    """Says that it asks for a tool, and asks for none."""
    answer.start_stream()
    await answer.finish("tool_calls")


@behaviour("tool-endless")
async def tool_endless(answer: Answer) -> None:
    answer.start_stream()
    await answer.call(f"call_{len(answer.results())}", _first_tool(answer), '{"city": "Paris"}')
    await answer.finish("tool_calls")


@behaviour("tool-then-500")
async def tool_then_500(answer: Answer) -> None:
    """Asks for a tool and fails when it is told what the tool said."""
    if answer.results():
        await server_error(answer)
        return
    await tool_single(answer)


@behaviour("huge-event")
async def huge_event(answer: Answer) -> None:
    answer.start_stream()
    await answer.begin()
    await answer.say("x" * HUGE_CHARS)
    await answer.finish()


@behaviour("endless-event")
async def endless_event(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await answer.raw(b"data: ")
    while True:
        await answer.raw(b"x" * 65536)


@behaviour("echo-in-text")
async def echo_in_text(answer: Answer) -> None:
    """Says the key back inside the reply, a few characters at a time."""
    answer.start_stream()
    text = f"Your header was Bearer {answer.server.key_in(answer.request)}, I think."
    await answer.begin()
    for start in range(0, len(text), 3):
        await answer.say(text[start : start + 3])
    await answer.finish()


@behaviour("split-surrogates")
async def split_surrogates(answer: Answer) -> None:
    """Cuts one character into halves, and leaves half of another."""
    answer.start_stream()
    for half in ('"a\\ud83d"', '"\\ude00b"', '"\\ud83d"', '"c"'):
        await answer.frame(b'{"choices": [{"index": 0, "delta": {"content": %b}}]}' % half.encode())
    await answer.finish()


@behaviour("length")
async def length(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await answer.finish("length")


@behaviour("content-filter")
async def content_filter(answer: Answer) -> None:
    answer.start_stream()
    await answer.text("The capital of")
    await answer.finish("content_filter")


@behaviour("refusal")
async def refusal(answer: Answer) -> None:
    answer.start_stream()
    await answer.decline("I will not say.")


@behaviour("odd-finish")
async def odd_finish(answer: Answer) -> None:
    answer.start_stream()
    await answer.text(answer.server.reply)
    await answer.finish("because \x1b[31m of sk-something")


def _complaint(request: Recorded, *, strict_roles: bool = True) -> str | None:
    """What a picky provider says against the body of a request, or None."""
    try:
        body = request.json()
    except ValueError:
        return "The body is no JSON."
    unknown = set(body) - KNOWN_FIELDS
    if unknown:
        return f"Unrecognized request argument supplied: {sorted(unknown)}"
    if body.get("stream") is not True:
        return "Only streaming is served here."
    messages, fault = _without_tools(body, strict_roles=strict_roles)
    if fault is not None:
        return fault
    roles = [message.get("role") for message in messages]
    if roles[:1] == ["system"]:
        roles = roles[1:]
    expected = ["user" if position % 2 == 0 else "assistant" for position in range(len(roles))]
    if not roles or roles != expected or roles[-1] != "user":
        return f"Conversation roles must alternate user/assistant and end with user, not {roles}"
    for message in messages:
        if set(message) != {"role", "content"} or not _is_content(message["role"], message["content"]):
            return "A message has a role and a text, or parts of which the user's may be images."
    return None


def _is_content(role: str, content: Any) -> bool:
    if isinstance(content, str):
        return True
    if role != "user" or not isinstance(content, list) or not content:
        return False
    for part in content:
        if part.get("type") == "text" and set(part) == {"type", "text"} and part["text"]:
            continue
        if part.get("type") != "image_url" or set(part) != {"type", "image_url"}:
            return False
        if not is_data_url(part["image_url"].get("url")):
            return False
    return True


def is_data_url(url: Any) -> bool:
    """Whether it is a picture in a data URL, and really one of the type it says."""
    found = re.fullmatch(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=]+)", str(url))
    return found is not None and is_image(found[1], found[2])


def is_image(media_type: str, data: str) -> bool:
    """Whether base64 text is a picture of a type, by how it begins."""
    begins = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8", "image/gif": b"GIF8", "image/webp": b"RIFF"}
    return base64.b64decode(data, validate=True).startswith(begins.get(media_type, b"?"))


def _without_tools(body: dict[str, Any], *, strict_roles: bool) -> tuple[list[dict[str, Any]], str | None]:
    """The messages without finished rounds of tools, and what is wrong with those."""
    plain: list[dict[str, Any]] = []
    open_ids: list[str] = []
    after_results = False
    offered = {tool["function"]["name"] for tool in body.get("tools", [])}
    for message in body.get("messages", []):
        if message.get("role") == "tool":
            if set(message) != {"role", "tool_call_id", "content"} or not isinstance(message["content"], str):
                return plain, "A tool message has an id and a text."
            if message["tool_call_id"] not in open_ids:
                return plain, "A tool message must answer a call of the message before."
            open_ids.remove(message["tool_call_id"])
            after_results = True
            continue
        if after_results and message.get("role") == "user" and not open_ids:
            if strict_roles:
                return plain, "Unexpected role 'user' after role 'tool'"
            # Said while the tools ran: it stands with their results, as most providers take it.
            after_results = False
            continue
        after_results = False
        if open_ids:
            return plain, f"These tool_call_ids did not have response messages: {open_ids}"
        if "tool_calls" not in message:
            plain.append(message)
            continue
        if not offered or message.get("role") != "assistant" or message["content"] == "":
            return plain, "Tool calls belong to an assistant that was offered tools."
        for call in message["tool_calls"]:
            json.loads(call["function"]["arguments"])
            open_ids.append(call["id"])
        if len(set(open_ids)) < len(open_ids):
            return plain, "Duplicate tool call ids."
    return plain, f"These tool_call_ids did not have response messages: {open_ids}" if open_ids else None


def _words(text: str) -> list[str]:
    """`text` in token-like pieces: a word with the space before it."""
    pieces: list[str] = []
    for char in text:
        if not pieces or char in " \n":
            pieces.append(char)
        else:
            pieces[-1] += char
    return pieces


async def _paced(server: ChatServer) -> AsyncIterator[str]:
    """The reply in pieces of one write each, held to the pace asked for."""
    words = _words(server.reply) if server.tokens is None else [f" word{n}" for n in range(server.tokens)]
    if server.tokens_per_s is None:
        yield "".join(words)
        return
    loop = asyncio.get_running_loop()
    start = loop.time()
    sent = 0
    while sent < len(words):
        # By the clock, so that a late wake-up is made up for and the mean pace holds.
        due = min(len(words), max(sent + 1, int((loop.time() - start) * server.tokens_per_s)))
        yield "".join(words[sent:due])
        sent = due
        await asyncio.sleep(max(0.0, start + (sent + 1) / server.tokens_per_s - loop.time()))


async def _read_request(reader: asyncio.StreamReader) -> Recorded | None:
    head = await reader.readexactly(1)
    if head == b"\x16":
        return None  # the beginning of TLS
    head += await reader.readuntil(b"\r\n\r\n")
    first, _, rest = head.decode("latin-1").partition("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {}
    for line in rest.strip().split("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    size_bytes = int(headers.get("content-length", "0"))
    if size_bytes > MAX_BODY_BYTES:
        return None
    body = await reader.readexactly(size_bytes)
    return Recorded(method, path, headers, head.decode("latin-1"), body)


async def _main(options: argparse.Namespace) -> list[Recorded]:
    server = ChatServer(
        behaviour=options.behaviour,
        key=options.key or None,
        reply=options.reply,
        reasoning=options.reasoning,
        tokens_per_s=options.rate,
        tokens=options.tokens,
        port=options.port,
    )
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with server:
        print(json.dumps({"base_url": server.base_url, "key": server.key, "behaviour": server.behaviour}), flush=True)
        await stopped.wait()
    return server.requests


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.loopback.chat_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one and prints it")
    parser.add_argument("--behaviour", default="ok", choices=["by-model", *BEHAVIOURS])
    parser.add_argument("--key", default=DEFAULT_KEY, help="the accepted key; empty accepts any request")
    parser.add_argument("--reply", default=DEFAULT_REPLY)
    parser.add_argument("--reasoning", default="")
    parser.add_argument("--rate", type=float, default=None, help="tokens a second")
    parser.add_argument("--tokens", type=int, default=None, help="that many numbered words instead of the reply")
    parser.add_argument("--record", default=None, help="file to write all requests to at the end, a line each")
    options = parser.parse_args(argv)
    recorded = asyncio.run(_main(options))
    if options.record:
        lines = [
            json.dumps({"method": each.method, "path": each.path, "headers": each.headers, "body": each.body.decode()})
            for each in recorded
        ]
        Path(options.record).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
