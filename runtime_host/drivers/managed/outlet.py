"""The events of one run on their way to the runtime: a task of the driver puts them, the runtime's pump takes them.

Must not know what they are. Invariants: no more wait than the bound says, so that a flood holds its own source back;
once the outlet is closed what waits is still given out, and nothing more is taken.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from runtime_host.events import DriverEvent

MOST_WAITING: Final = 1024


class Outlet:
    """Events of one run, in order."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._most = most_waiting
        self._waiting: deque[DriverEvent] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    async def put(self, event: DriverEvent) -> None:
        """Give out an event; waits while too many wait. Lost once the outlet is closed."""
        while len(self._waiting) >= self._most and not self._closed:
            self._room.clear()
            await self._room.wait()
        if not self._closed:
            self._waiting.append(event)
            self._wake.set()

    async def emptied(self) -> None:
        """Return once everything was taken: what was said before a call goes to disk with it."""
        while self._waiting and not self._closed:
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """Nothing more comes. Idempotent."""
        self._closed = True
        self._wake.set()
        self._room.set()

    async def events(self) -> AsyncIterator[DriverEvent]:
        """What is given out, until the outlet is closed and empty."""
        while True:
            while self._waiting:
                event = self._waiting.popleft()
                self._room.set()
                yield event
            if self._closed:
                return
            self._wake.clear()
            await self._wake.wait()
