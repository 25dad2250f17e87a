"""A server that answers as the test says, path by path, and keeps what it was asked."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.loopback.proxy import Listening


class Question(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Reply(NamedTuple):
    """An answer. `body` that is no bytes goes out as JSON; `pieces` go out one by one, instead of a body."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    pieces: tuple[bytes, ...] = ()
    endless: bytes = b""


Answer = Reply | Callable[[Question], "Reply | Awaitable[Reply]"]


class WebServer(Listening):
    """Answers by path; what is not in `answers` is a 404.

    Attributes:
        answers: by path, without the query.
        asked: every request so far.
    """

    def __init__(self, answers: dict[str, Answer] | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.answers: dict[str, Answer] = answers or {}
        self.tls = tls
        self.asked: list[Question] = []

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ", 2)
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            parts = urlsplit(target)
            question = Question(method, parts.path, parts.query, headers, body)
            self.asked.append(question)
            answer = self.answers.get(parts.path, Reply({"error": {"message": "Not found."}}, 404))
            found = answer if isinstance(answer, Reply) else answer(question)
            await _write(writer, found if isinstance(found, Reply) else await found)


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **reply.headers}
    if reply.pieces or reply.endless:
        del headers["Content-Length"]
        headers["Connection"] = "close"
    lines = [f"HTTP/1.1 {reply.status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if reply.pieces or reply.endless else body))
    await writer.drain()
    for piece in reply.pieces:
        writer.write(piece)
        await writer.drain()
    while reply.endless:
        writer.write(reply.endless)
        await writer.drain()
        await asyncio.sleep(0)
    if reply.pieces:
        raise ConnectionResetError
