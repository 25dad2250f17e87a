"""A renderer without a window: speaks the wire as the real one does, or as a broken one would.

For tests of the host's end. It keeps what it was told, in order, and acknowledges frames
unless told not to.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ui.wire import dto
from ui.wire.framing import renderer_decoder, renderer_encoder

M = TypeVar("M")

PATIENCE_S = 20.0


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition()` holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - any condition, not one that could set an event
            await asyncio.sleep(0.01)


class Puppet:
    """The renderer's end of a channel."""

    def __init__(self, connection: socket.socket, build: str) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._build = build
        self._loop = asyncio.get_running_loop()
        self._decoder = renderer_decoder()
        self.encoder = renderer_encoder()
        self.told: list[Any] = []
        self.frames = 0
        self.acknowledge = True
        self.reading = True
        self.closed = asyncio.Event()
        self._news = asyncio.Event()
        self._saying = asyncio.Lock()
        self._request = 0
        self._task = self._loop.create_task(self._read())

    async def _read(self) -> None:
        while True:
            try:
                data = await self._loop.sock_recv(self._connection, 65536)
            except OSError:
                data = b""
            if not data:
                self.closed.set()
                self._news.set()
                return
            for frame in self._decoder.feed(data):
                self.frames += 1
                self.told.extend(frame.messages)
                if self.acknowledge:
                    await self.say(dto.Ack(frame=frame.sequence))
            self._news.set()

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._connection.close()

    async def say(self, *messages: msgspec.Struct) -> None:
        async with self._saying:  # what is said at once is said in turn
            await self.say_bytes(self.encoder.encode(messages))

    async def say_bytes(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._connection, data)

    async def lock(self) -> None:
        """Greet and report the walls."""
        await self.say(
            dto.RendererHello(version=dto.PROTOCOL_VERSION, build=self._build),
            dto.Locked(walls=(dto.Wall(name="seccomp", state="up"),), painted_ns=1),
        )

    def request(self) -> int:
        self._request += 1
        return self._request

    async def wait_for(self, kind: type[M], fits: Callable[[M], bool] | None = None, *, after: int = 0) -> M:
        """The first message of `kind` that fits, told after the first `after` messages."""

        async def look() -> M:
            while True:
                for message in self.told[after:]:
                    if isinstance(message, kind) and (fits is None or fits(message)):
                        return message
                self._news.clear()
                if self.closed.is_set():
                    raise ConnectionError(f"the channel ended before a {kind.__name__}")
                await self._news.wait()

        return await asyncio.wait_for(look(), PATIENCE_S)

    async def ask(self, command: msgspec.Struct) -> dto.Outcome:
        """Give a command and wait for its outcome."""
        after = len(self.told)
        await self.say(command)
        number = command.request  # type: ignore[attr-defined]
        return await self.wait_for(dto.Outcome, lambda outcome: outcome.request == number, after=after)

    @property
    def binding(self) -> dto.Selected:
        """What is selected now, its revision brought up to date."""
        selected = next(message for message in reversed(self.told) if isinstance(message, dto.Selected))
        newest = max(m.revision for m in self.told if isinstance(m, (dto.Selected, dto.RunChanged)))
        return msgspec.structs.replace(selected, revision=newest)

    def text_of(self, item: str) -> str:
        """The text of an item as a reducer would have it."""
        text = ""
        for message in self.told:
            if isinstance(message, dto.Items):
                for sent in message.items:
                    if sent.id == item and (len(sent.text) > len(text) or message.snapshot):
                        text = sent.text
            elif isinstance(message, dto.ItemDelta) and message.item == item and message.at <= len(text):
                text = text[: message.at] + message.text + text[message.at + len(message.text) :]
        return text
