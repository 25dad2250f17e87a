"""Proxies on this computer, good and bad. Names lead where the test says, whatever a resolver would say."""

import asyncio
import base64
import contextlib
import ssl
import struct
from collections.abc import Callable
from typing import Self

Place = tuple[str, int]
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Lead = Callable[[str, int], Place]


def to_this_computer(host: str, port: int) -> Place:
    return "127.0.0.1", port


class Listening:
    """Takes connections until its context ends."""

    tls: ssl.SSLContext | None = None
    port: int = 0

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        # A handshake that the other side gave up has no task yet, and ends when the loop comes round to it.
        await asyncio.sleep(0.02)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self.serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            await hang_up(writer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        raise OSError


class ConnectProxy(Listening):
    """An HTTP proxy that opens tunnels.

    Args:
        lead: where a tunnel to a name ends.
        login: ``user:password`` that it wants; None wants none.
        answer: a status it answers with instead of leading anywhere; 0 never answers.
        tls: what it speaks itself, for a proxy that is reached by https.

    Attributes:
        asked: the heads of all requests, as they came.
    """

    def __init__(
        self,
        lead: Lead = to_this_computer,
        *,
        login: str | None = None,
        answer: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__()
        self.lead = lead
        self.login = login
        self.answer = answer
        self.tls = tls
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        login = "" if self.login is None else f"{self.login}@"
        return f"{'https' if self.tls else 'http'}://{login}127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.asked.append(head)
        if self.answer == 0:
            await asyncio.sleep(3600)
        status = self._status(head)
        if status != 200:
            writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
            return
        host, _, port = head.split(" ")[1].rpartition(":")
        there = await asyncio.open_connection(*self.lead(host, int(port)))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await join((reader, writer), there)

    def _status(self, head: str) -> int:
        if self.answer is not None:
            return self.answer
        if not head.startswith("CONNECT "):
            return 405
        given = [line.split(": ", 1)[1] for line in head.splitlines() if line.lower().startswith("proxy-authorization")]
        wanted = None if self.login is None else "Basic " + base64.b64encode(self.login.encode()).decode()
        return 200 if wanted is None or given == [wanted] else 407


class Interceptor(Listening):
    """What stands in between: it shows a certificate of its own, and reads all that passes.

    Args:
        shows: the certificate it shows.
        beyond: the real server.
        trusts: how it looks at the real server.
        name: the real server's.

    Attributes:
        read: all that came from the client, in clear.
    """

    def __init__(self, shows: ssl.SSLContext, beyond: Place, trusts: ssl.SSLContext, name: str) -> None:
        super().__init__()
        self.tls = shows
        self.beyond = beyond
        self.trusts = trusts
        self.name = name
        self.read = bytearray()

    def lead(self, host: str, port: int) -> Place:
        return "127.0.0.1", self.port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(*self.beyond, ssl=self.trusts, server_hostname=self.name)
        await join((reader, writer), there, self.read)


class SocksProxy(Listening):
    """A SOCKS 5 proxy without login; `asked` are the places it was asked to lead to."""

    def __init__(self, lead: Lead = to_this_computer, *, refuses: bool = False) -> None:
        super().__init__()
        self.lead = lead
        self.refuses = refuses
        self.asked: list[Place] = []

    @property
    def url(self) -> str:
        return f"socks5://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(b"\x05\x00")
        kind = (await reader.readexactly(4))[3]
        size = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
        host = (await reader.readexactly(size)).decode("latin-1")
        (port,) = struct.unpack("!H", await reader.readexactly(2))
        self.asked.append((host, port))
        writer.write(bytes([5, 2 if self.refuses else 0, 0, 1, 0, 0, 0, 0, 0, 0]))
        await writer.drain()
        if not self.refuses:
            await join((reader, writer), await asyncio.open_connection(*self.lead(host, port)))


async def join(here: Ends, there: Ends, read: bytearray | None = None) -> None:
    """Carry bytes both ways until one end is through; `read` collects what comes from here."""
    ways = [asyncio.ensure_future(_carry(here[0], there[1], read)), asyncio.ensure_future(_carry(there[0], here[1]))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        await hang_up(there[1])


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, read: bytearray | None = None) -> None:
    while piece := await source.read(65536):
        if read is not None:
            read += piece
        target.write(piece)
        await target.drain()


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
