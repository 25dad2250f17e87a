"""Where a browser comes back to after a sign-in: a port of this computer, open for one answer.

Owns the listening and the reading of that one answer. Must not know OAuth beyond its names, nor the SDK. Invariants:
it listens on this computer only, for one sign-in, and not longer; what does not name the sign-in's own state, or
another host, is answered and not taken; it says nothing of what it was told.
"""

import asyncio
import secrets
from types import TracebackType
from typing import Final
from urllib.parse import parse_qs, urlsplit

_PATH: Final = "/signed-in"
_REQUEST_BYTES: Final = 16 * 1024
_READ_S: Final = 10.0
_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>Remuda</title>"
    "<p>{words}</p><p>You can close this page and go back to Remuda.</p>"
)


class Redirect:
    """An async context: while it is open, `address` can be redirected to."""

    def __init__(self) -> None:
        self.address = ""
        self._host = ""
        self._state = ""
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Redirect":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_REQUEST_BYTES, backlog=8)
        port = self._server.sockets[0].getsockname()[1]
        self._host = f"127.0.0.1:{port}"
        self.address = f"http://{self._host}{_PATH}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)
        await self._server.wait_closed()

    def expect(self, authorization_address: str) -> None:
        """Take only what answers this address: the state in it is known to whoever was sent there, and to nobody."""
        self._state = parse_qs(urlsplit(authorization_address).query).get("state", [""])[0]

    async def answer(self, within_s: float) -> dict[str, str]:
        """What came back: `code`, `state`, `iss`, or `error`.

        Raises:
            TimeoutError: nothing did.
        """
        async with asyncio.timeout(within_s):
            return await asyncio.shield(self._answer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            async with asyncio.timeout(_READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, words = self._take(head.decode("latin-1"))
                page = _PAGE.format(words=words).encode()
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(page)}\r\n"
                    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
                    "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n".encode()
                    + page
                )
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
            self._answering.discard(task)

    def _take(self, head: str) -> tuple[str, str]:
        first, *lines = head.split("\r\n")
        parts = first.split(" ")
        hosts = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]
        if len(parts) != 3 or parts[0] != "GET" or hosts != [self._host]:
            return "400 Bad Request", "This was not understood."
        asked = urlsplit(parts[1])
        told = {name: values[0] for name, values in parse_qs(asked.query).items()}
        if asked.path != _PATH:
            return "404 Not Found", "There is nothing here."
        if not self._state or not secrets.compare_digest(told.get("state", "").encode(), self._state.encode()):
            return "400 Bad Request", "This answers another sign-in than the one that waits. Nothing was taken."
        if not self._answer.done():
            self._answer.set_result(told)
        return "200 OK", "You are signed in." if "code" in told else "The sign-in came to nothing."


__all__ = ["Redirect"]
