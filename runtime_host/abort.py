"""The signal by which a caller withdraws what it asked for, and what is done in spite of it.

Owns nothing else. Must not know who listens. Invariants: it is raised once and stays raised; each
listener hears it once; a listener that fails keeps no other from hearing it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from runtime_host.errors import AgentAbortedError

_log = logging.getLogger("runtime_host.abort")


class AbortSignal:
    """Given to `Session.run`: raised before the input is durable nothing is sent, later the run is stopped.

    Raised on the event loop's own thread; from another one use `loop.call_soon_threadsafe`.
    """

    def __init__(self) -> None:
        self._reason: BaseException | None = None
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def aborted(self) -> bool:
        return self._reason is not None

    @property
    def reason(self) -> BaseException | None:
        """What is raised to whoever still waits."""
        return self._reason

    def abort(self, reason: BaseException | None = None) -> None:
        """Raise the signal. Raising it again changes nothing."""
        if self._reason is not None:
            return
        self._reason = reason or AgentAbortedError("The caller withdrew this message before it was sent.")
        listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            try:
                listener()
            except Exception:
                _log.exception("a listener of an abort signal failed")

    def check(self) -> None:
        """Raise the reason if the signal was raised."""
        if self._reason is not None:
            raise self._reason

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` once when the signal is raised, at once if it was; gives what takes that back."""
        if self._reason is not None:
            listener()
            return _nothing
        key = object()
        self._listeners[key] = listener

        def forget() -> None:
            self._listeners.pop(key, None)

        return forget


async def past_stopping(work: Coroutine[Any, Any, None]) -> None:
    """Do what belongs to something that has happened: a cancel of the caller comes too late, and is forgotten."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None:
                current.uncancel()
    task.result()


def _nothing() -> None:
    return
