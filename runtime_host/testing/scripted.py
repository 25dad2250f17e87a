"""A harness that does what it is told, well or badly, and counts what was asked of it.

Owns no model, no process, no network. Must not know the runtime's insides: it speaks the driver
protocol alone. Invariant: a `Script` says everything it does; what it was given is there to be read.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.drivers.base import DriverRun, DriverSession, SessionOpening, Turn
from runtime_host.events import DriverEvent
from runtime_host.results import DriverResult


@dataclass(frozen=True)
class Wait:
    """Nothing for a while; a stop ends it early."""

    seconds: float


@dataclass(frozen=True)
class Hold:
    """Nothing until the event is set; a stop ends it early."""

    until: asyncio.Event


@dataclass(frozen=True)
class Fail:
    """The stream of events breaks."""

    error: Exception


Step: TypeAlias = DriverEvent | Wait | Hold | Fail


@dataclass(frozen=True)
class Script:
    """What one native run does.

    Attributes:
        steps: in order; a stop ends them.
        result: what the run ends with; made from the last reply unless given. `missing` ends without
            one, `hangs` never answers.
        start: `hangs` never starts; an error fails the start.
        cancel: `stops` ends the run, `ignored` does nothing, `hangs` never returns, an error is raised
            and nothing stops.
        cancelled_as: the status a stopped run claims.
    """

    steps: Sequence[Step] = ()
    result: DriverResult | Exception | Literal["missing", "hangs"] | None = None
    start: Exception | Literal["at-once", "hangs"] = "at-once"
    cancel: Exception | Literal["stops", "ignored", "hangs"] = "stops"
    cancelled_as: Literal["cancelled", "completed"] = "cancelled"


def reply(text: str, *, pieces: int = 1, item_id: str = "m1") -> tuple[DriverEvent, ...]:
    """The events of one reply in so many pieces."""
    size = max(1, -(-len(text) // pieces))
    deltas = tuple(
        DriverEvent("agent.message.delta", {"id": item_id, "text": text[at : at + size], "phase": "unknown"})
        for at in range(0, len(text), size)
    )
    return (*deltas, DriverEvent("agent.message.completed", {"id": item_id, "text": text, "phase": "unknown"}))


@dataclass
class ScriptedDriver:
    """A driver that plays scripts, one a run; the last one again when they run out.

    Attributes:
        scripts: what its runs do, over all sessions; or a function of the turn.
        turns, openings, cancels, closes, inspections: what it was given so far.
    """

    scripts: Sequence[Script] | Callable[[Turn], Script]
    driver_id: str = "scripted"
    capabilities: dict[str, Capability] = field(
        default_factory=lambda: {
            name: Capability(support="native")
            for name in (
                "session.continue",
                "session.restore",
                "run.cancel",
                "run.model_override",
                "run.reasoning_override",
                "event.live",
                "event.message",
                "event.reasoning",
            )
        }
    )
    open_fails: Exception | None = None
    turns: list[Turn] = field(default_factory=list)
    openings: list[SessionOpening] = field(default_factory=list)
    cancels: int = 0
    closes: int = 0
    inspections: int = 0

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        self.inspections += 1
        return DriverInspection(driver_id=self.driver_id, capabilities=self.capabilities)

    async def open(self, opening: SessionOpening) -> DriverSession:
        if self.open_fails is not None:
            raise self.open_fails
        self.openings.append(opening)
        return _ScriptedSession(self, opening)

    async def aclose(self) -> None:
        """Nothing is shared between sessions."""

    def script_of(self, turn: Turn) -> Script:
        """What the run of a turn does."""
        if callable(self.scripts):
            return self.scripts(turn)
        return self.scripts[min(len(self.turns), len(self.scripts)) - 1]


class _ScriptedSession:
    def __init__(self, driver: ScriptedDriver, opening: SessionOpening) -> None:
        self._driver = driver
        self._turns = int((opening.state or {}).get("turns", 0))

    async def start(self, turn: Turn) -> DriverRun:
        self._driver.turns.append(turn)
        self._turns += 1
        script = self._driver.script_of(turn)
        if isinstance(script.start, Exception):
            raise script.start
        if script.start == "hangs":
            await asyncio.Event().wait()
        return _ScriptedRun(self._driver, script)

    def state(self) -> dict[str, Any]:
        return {"version": 1, "turns": self._turns}

    async def close(self) -> None:
        self._driver.closes += 1


class _ScriptedRun:
    def __init__(self, driver: ScriptedDriver, script: Script) -> None:
        self._driver = driver
        self._script = script
        self._stop = asyncio.Event()
        self._said = ""

    async def events(self) -> AsyncIterator[DriverEvent]:
        for step in self._script.steps:
            if self._stop.is_set():
                return
            match step:
                case Wait(seconds):
                    await self._unless_stopped(asyncio.sleep(seconds))
                case Hold(until):
                    await self._unless_stopped(until.wait())
                case Fail(error):
                    raise error
                case _:
                    if isinstance(step, DriverEvent) and step.type == "agent.message.completed":
                        self._said = str(step.data.get("text", ""))
                    yield step

    async def result(self) -> DriverResult:
        outcome = self._script.result
        if self._stop.is_set():
            return DriverResult(status=self._script.cancelled_as)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == "hangs":
            await asyncio.Event().wait()
        if outcome == "missing":
            return None  # type: ignore[return-value]  # what a defective driver does
        if isinstance(outcome, DriverResult):
            return outcome
        return DriverResult(status="completed", output_text=self._said, finish_reason="completed")

    async def cancel(self) -> None:
        self._driver.cancels += 1
        how = self._script.cancel
        if isinstance(how, Exception):
            raise how
        if how == "hangs":
            await asyncio.Event().wait()
        if how == "stops":
            self._stop.set()

    async def _unless_stopped(self, work: Any) -> None:
        waiting = [asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
