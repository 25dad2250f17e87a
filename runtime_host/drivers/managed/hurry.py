"""Waits that a stop cuts short: what a service asks for, or patience has, is nothing that a person has to wait for.

Must not know what is waited for. Invariant: once a stop is asked for, no single wait of its run is longer than
`HURRIED_S`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final

HURRIED_S: Final = 0.5
LONGEST_S: Final = 30.0

_ASKED: ContextVar[asyncio.Event | None] = ContextVar("a stop of this run", default=None)


def heed(stop: asyncio.Event) -> None:
    """From now on the waits of this task, and of the tasks it begins, are cut short by `stop`."""
    _ASKED.set(stop)


async def pause(sleep: Callable[[float], Awaitable[None]], wait_s: float) -> None:
    """Wait, `LONGEST_S` at most; `HURRIED_S` at most once a stop is asked for."""
    stop, wait_s = _ASKED.get(), min(wait_s, LONGEST_S)
    if stop is None:
        await sleep(wait_s)
        return
    if not stop.is_set():
        sleeping, stopping = asyncio.ensure_future(sleep(wait_s)), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({sleeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if sleeping.done():
                sleeping.result()
                return
        finally:
            sleeping.cancel()
            stopping.cancel()
            await asyncio.wait({sleeping, stopping})
    await sleep(min(wait_s, HURRIED_S))
