"""One connection of a program to a relay, as HTTP/1.1.

Owns reading requests from it, writing answers to it, and noticing that the program has left. Must not know where
requests go, tokens or keys. Invariants: a head and a wait have a bound; a body is read only as fast as it is taken,
an answer only as fast as the program reads; of an answer that breaks off no end is written.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Final

import h11
import httpx2

from runtime_host.connectors.relay_rules import BODY_BYTES, Refusal, passed_back
from runtime_host.redaction import Redactor

HEAD_BYTES: Final = 64 * 1024
STEP_S: Final = 20.0
"""How long a program may take over the head of a request, and from one piece of its body to the next."""
PIECE_BYTES: Final = 64 * 1024
LINGER_S: Final = 2.0
LINGER_BYTES: Final = 2 * BODY_BYTES
"""What is read past of a program that goes on sending after its answer: hung up on at once it would not see it."""


class BodyTooLargeError(Exception):
    """A body went on beyond what passes."""


class Guest:
    """A program at the other end of `reader` and `writer`.

    Attributes:
        was_answered: the head of an answer to the request at hand went out.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.was_answered = False
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._whole = asyncio.Event()

    async def request(self) -> h11.Request | None:
        """The next request's head; None when the program is through.

        Raises:
            TimeoutError: it took too long.
            h11.RemoteProtocolError: what came is no HTTP.
        """
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
            if not self._http.trailing_data[0]:
                # It was let in before; its next word may be hours away, and is lost where it meets a close.
                self._http.receive_data(await self._reader.read(PIECE_BYTES))
        self.was_answered = False
        self._whole = asyncio.Event()
        async with asyncio.timeout(STEP_S):
            event = await self._event()
        return event if isinstance(event, h11.Request) else None

    def body(self) -> AsyncIterator[bytes]:
        """The body of the request at hand, piece by piece.

        Raises:
            BodyTooLargeError: it is larger than what passes.
            ConnectionError: the program left in the middle.
        """
        return self._body()

    async def no_body(self) -> None:
        """Read past what a request brings that should bring nothing."""
        async for _ in self._body():
            pass

    async def answer(self, response: httpx2.Response, redactor: Redactor) -> None:
        """Hand an answer on as it comes, every secret in its bytes masked."""
        # One byte is one character, so that nothing but a secret is changed, wherever the pieces are cut.
        masking = redactor.stream()
        headers = [(name, redactor.text(value)) for name, value in passed_back(response.headers.multi_items())]
        await self._send(h11.Response(status_code=response.status_code, headers=headers))
        if response.is_stream_consumed or response.is_closed:
            await self._send_masked(masking.feed(response.content.decode("latin-1")))
        else:
            async with aclosing(response.aiter_raw()) as pieces:
                async for piece in pieces:
                    await self._send_masked(masking.feed(piece.decode("latin-1")))
        await self._send_masked(masking.flush())
        await self._send(h11.EndOfMessage())

    async def refuse(self, refusal: Refusal, body: bytes) -> None:
        """Answer in place of the server, and take no more on this connection."""
        headers = [*refusal.headers(), ("content-length", str(len(body))), ("connection", "close")]
        await self._send(h11.Response(status_code=refusal.status, headers=headers))
        await self._send(h11.Data(body))
        await self._send(h11.EndOfMessage())

    def goes_on(self) -> bool:
        """Whether this connection can carry another request."""
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def while_there(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work`, unless the program leaves: then it is cut short.

        Raises:
            ConnectionResetError: the program left.
        """
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._leaves())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ConnectionResetError
            working.result()
        finally:
            for task in (working, leaving):
                task.cancel()
            await asyncio.wait({working, leaving})
            for task in (working, leaving):
                if not task.cancelled():
                    # Looked at, or the loop complains of it.
                    task.exception()

    async def _leaves(self) -> None:
        """Returns once the program has left. What it sends ahead waits for its turn."""
        await self._whole.wait()
        ahead = 0
        while ahead <= HEAD_BYTES:
            piece = await self._reader.read(PIECE_BYTES)
            self._http.receive_data(piece)
            if not piece:
                return
            ahead += len(piece)

    async def _event(self) -> Any:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(PIECE_BYTES))

    async def _body(self) -> AsyncIterator[bytes]:
        size_bytes = 0
        while True:
            async with asyncio.timeout(STEP_S):
                event = await self._event()
            if isinstance(event, h11.EndOfMessage):
                self._whole.set()
                return
            if not isinstance(event, h11.Data):
                raise ConnectionResetError
            size_bytes += len(event.data)
            if size_bytes > BODY_BYTES:
                raise BodyTooLargeError
            yield bytes(event.data)

    async def _send_masked(self, text: str) -> None:
        if text:
            await self._send(h11.Data(text.encode("latin-1")))

    async def _send(self, event: h11.Event) -> None:
        if isinstance(event, h11.Response):
            self.was_answered = True
        piece = self._http.send(event)
        if piece:
            self._writer.write(piece)
            await self._writer.drain()

    async def hang_up(self) -> None:
        """End the connection in peace."""
        self._writer.write_eof()
        read_bytes = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while read_bytes <= LINGER_BYTES and (piece := await self._reader.read(PIECE_BYTES)):
                    read_bytes += len(piece)
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def cut(self) -> None:
        """End the connection at once, so that what was not written whole is seen not to be."""
        self._writer.transport.abort()
