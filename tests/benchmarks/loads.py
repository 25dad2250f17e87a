"""Harnesses that say as much as they are told to, each piece stamped with when it was said.

Owns a driver without model, process or network. A piece of text is its stamp: `STAMP_CHARS` digits of the
monotonic clock in nanoseconds, which all processes of a machine share.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.definitions import AgentDefinition, ExecutionBinding, SessionOptions, TrustedContext
from runtime_host.drivers.base import SessionOpening, Turn
from runtime_host.events import DriverEvent
from runtime_host.policy import CHAT
from runtime_host.results import DriverResult

STAMP_CHARS = 20
PIECES_A_MESSAGE = 500
"""After so many pieces a message is completed and the next begins, as answers do."""

Load = Callable[[], AsyncIterator[DriverEvent]]

DEFINITION = AgentDefinition(id="bench")
OPTIONS = SessionOptions(
    execution=ExecutionBinding(driver="load", connector="none", model="none"), context=TrustedContext(), policy=CHAT
)


def stamp() -> str:
    return f"{time.monotonic_ns():0{STAMP_CHARS}d}"


class Stamps:
    """Reads the stamps of messages whose text arrives in pieces of any size."""

    def __init__(self) -> None:
        self.delays_ms: list[float] = []
        self._rest: dict[str, str] = {}

    def take(self, message_id: str, text: str, now_ns: int) -> None:
        """More text of a message; each stamp that is whole now says how long ago it was made."""
        text = self._rest.get(message_id, "") + text
        whole = len(text) // STAMP_CHARS * STAMP_CHARS
        self._rest[message_id] = text[whole:]
        self.delays_ms += [(now_ns - int(text[at : at + STAMP_CHARS])) / 1e6 for at in range(0, whole, STAMP_CHARS)]


def pieces(count: int, a_second: float | None = None, *, block_s: float = 0.0) -> Load:
    """So many pieces of messages: at a pace, or as fast as they are taken.

    `block_s` blocks the loop so long in every 20 ms: a defect to be found.
    """

    async def events() -> AsyncIterator[DriverEvent]:
        began = time.monotonic()
        blocked_at = began
        number = 0
        while number < count:
            due = count if a_second is None else min(count, int((time.monotonic() - began) * a_second))
            while number < due:
                name = f"m{number // PIECES_A_MESSAGE}"
                yield DriverEvent("agent.message.delta", {"id": name, "text": stamp(), "phase": "unknown"})
                number += 1
                if number % PIECES_A_MESSAGE == 0 or number == count:
                    yield DriverEvent("agent.message.completed", {"id": name, "phase": "unknown"})
            if a_second is not None:
                if block_s and time.monotonic() - blocked_at > 0.02:
                    time.sleep(block_s)  # noqa: ASYNC251 - that is the defect
                    blocked_at = time.monotonic()
                await asyncio.sleep(0.001)

    return events


EVENTS_A_CALL = 5


def tool_event(number: int) -> DriverEvent:
    """One of the five events that a call of a tool is told by."""
    call, step = divmod(number, EVENTS_A_CALL)
    about = {"id": f"call_{call}", "name": "lookup_status"}
    arguments = {"order": f"A-{call}", "depth": 3, "fields": ["state", "when"], "note": "where is it now?"}
    if step < 3:
        stage = ("arguments-started", "arguments", "arguments-completed")[step]
        return DriverEvent(
            "tool.progress", {**about, "stage": stage, **({"delta": str(arguments)} if step == 1 else {})}
        )
    if step == 3:
        return DriverEvent("tool.started", {**about, "arguments": arguments})
    return DriverEvent("tool.completed", {**about, "result": arguments, "error": None, "duration_ms": 12})


class LoadDriver:
    """Runs of a load; each turn's text picks its load by name."""

    driver_id = "load"

    def __init__(self, loads: dict[str, Load]) -> None:
        self._loads = loads

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        named = ("session.continue", "run.cancel", "event.live", "event.message")
        return DriverInspection(
            driver_id=self.driver_id, capabilities={name: Capability(support="native") for name in named}
        )

    async def open(self, opening: SessionOpening) -> "_LoadSession":
        return _LoadSession(self._loads)

    async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Nothing is shared."""


class _LoadSession:
    def __init__(self, loads: dict[str, Load]) -> None:
        self._loads = loads

    async def start(self, turn: Turn) -> "_LoadRun":
        return _LoadRun(self._loads[turn.text])

    def state(self) -> dict[str, Any]:
        return {"version": 1}

    async def close(self) -> None:
        """Nothing is held."""


class _LoadRun:
    def __init__(self, load: Load) -> None:
        self._load = load

    def events(self) -> AsyncIterator[DriverEvent]:
        return self._load()

    async def result(self) -> DriverResult:
        return DriverResult(status="completed", finish_reason="completed")

    async def cancel(self) -> None:
        """It ends by itself."""
