"""Standard output of a process that goes on while nobody reads it.

Owns descriptor 1 while an order is carried out by this process. Must not know what is printed. Invariants: the loop
never waits for a pipe, so whoever does not read holds up the telling of its own order and nothing else; once the
person asks for the end, what nobody reads is not waited for.
"""

import asyncio
import contextlib
import io
import os
import select
import sys
from collections.abc import Callable
from typing import Final

LAST_WORDS_S: Final = 2.0
"""How long the output may stand still after the end was asked for, before the rest of it is given up."""


class Output:
    """Prints without ever blocking the loop.

    Args:
        stop: set when the person asks for the end.
    """

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._given_up = False

    async def give(self, say: Callable[[], object]) -> None:
        """Write out what `say` prints; returns once it is out, or given up.

        Raises:
            BrokenPipeError: whoever read has left.
        """
        sys.stdout.flush()
        with contextlib.redirect_stdout(io.StringIO()) as said:
            say()
        rest = memoryview(said.getvalue().encode(sys.stdout.encoding, sys.stdout.errors or "strict"))
        while rest and await self._has_room():
            # A pipe that has room takes so much without waiting.
            rest = rest[os.write(1, rest[: select.PIPE_BUF]) :]

    async def _has_room(self) -> bool:
        poll = select.poll()
        poll.register(1, select.POLLOUT)
        if not self._given_up and not poll.poll(0):
            # Part of a line may be out when it is given up: nothing follows it.
            self._given_up = not await self._room_made()
        return not self._given_up

    async def _room_made(self) -> bool:
        loop = asyncio.get_running_loop()
        made = asyncio.Event()
        loop.add_writer(1, made.set)
        waits = [asyncio.ensure_future(made.wait()), asyncio.ensure_future(self._stop.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(waits[:1], timeout=LAST_WORDS_S)
        finally:
            loop.remove_writer(1)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return made.is_set()
