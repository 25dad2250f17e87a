"""Reading requests and writing answers of HTTP/1.1 on a loopback port.

Owns connections and bytes. Must not know what is served. Invariant: whoever closes the server ends every connection.
"""

import asyncio
import contextlib
import json
import socket
import struct
import sys
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.loopback.chat_server import connections_begun

MAX_BODY_BYTES = 64 * 1024 * 1024
LINGER = "hh" if sys.platform == "win32" else "ii"


@dataclass(frozen=True)
class Request:
    """One request as it came.

    Attributes:
        endpoint: what it asked for, as ``sessions.create``; empty for what there is not.
    """

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    raw_headers: str
    body: bytes
    endpoint: str = ""

    def json(self) -> Any:
        return json.loads(self.body) if self.body else {}


@dataclass
class Connection:
    """What is written to one client, piece by piece."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    closing: bool = False

    async def json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        await self.content(status, json.dumps(body).encode(), {"Content-Type": "application/json"} | (headers or {}))

    async def content(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self._head(status, headers | {"Content-Length": str(len(content))})
        self.writer.write(content)
        await self.writer.drain()

    async def partly(
        self, content: bytes, headers: dict[str, str], size_bytes: int, then: str, go: asyncio.Event
    ) -> None:
        """The beginning of a content, and what comes of the rest."""
        if then == "short":
            await self.content(200, content[:size_bytes], headers)
            return
        if then == "endless":
            self._head(200, headers | {"Transfer-Encoding": "chunked", "Connection": "close"})
            while True:
                await self.piece(b"x" * 65536)
        self._head(200, headers | {"Content-Length": str(len(content))})
        self.writer.write(content[:size_bytes])
        await self.writer.drain()
        if then == "hold":
            await go.wait()
            self.writer.write(content[size_bytes:])
            await self.writer.drain()
        else:
            # What was written so far is on its way first.
            await asyncio.sleep(0.02)
            await self.drop()

    async def start_stream(self) -> None:
        """Begin an answer whose length nobody knows. The connection is closed after it, and this says so."""
        kind = {"Content-Type": "text/event-stream; charset=utf-8", "Transfer-Encoding": "chunked"}
        self._head(200, kind | {"Connection": "close"})
        await self.writer.drain()

    async def piece(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def end_stream(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def drop(self, *, reset: bool = False) -> None:
        """Break the connection off: with what was written on its way, or as a reset."""
        self.closing = True
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()
        if reset:
            held = self.writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(LINGER, 1, 0))
        self.writer.transport.abort()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())


@dataclass
class Listener:
    """A listening server; a subclass says what `serve` does."""

    port: int = 0
    _listening: asyncio.Server | None = field(default=None, init=False)
    _connections: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        if self._listening is not None:
            self._listening.close()
        await connections_begun()
        while self._connections:
            for task in tuple(self._connections):
                task.cancel()
            await asyncio.wait(tuple(self._connections))
        if self._listening is not None:
            await self._listening.wait_closed()

    async def serve(self, request: Request, to: Connection) -> None:
        """Answer one request."""
        raise AssertionError

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        to = Connection(reader, writer)
        try:
            while not to.closing and (request := await read_request(reader)) is not None:
                await self.serve(request, to)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, asyncio.LimitOverrunError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request; None once there are no more, or for what is none."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, _, raw_headers = head.partition("\r\n")
    words = first.split(" ")
    if len(words) != 3:
        return None
    pairs = (line.partition(":") for line in raw_headers.split("\r\n") if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        body = await _chunked(reader)
    else:
        size_bytes = int(headers.get("content-length", "0"))
        if size_bytes > MAX_BODY_BYTES:
            return None
        body = await reader.readexactly(size_bytes)
    place = urlsplit(words[1])
    query = parse_qs(place.query, keep_blank_values=True)
    return Request(words[0], unquote(place.path), query, headers, raw_headers, body)


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size_bytes := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size_bytes)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return body
