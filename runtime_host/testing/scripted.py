"""A harness that does what it is told, well or badly, and counts what was asked of it.

Owns no model, no process, no network. Must not know the runtime's insides: it speaks the driver
protocol alone. Invariants: a `Script` says everything a run does; what was given and what was sent is
there to be read; whatever hangs, deaf or not, ends when the driver is released.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.drivers.base import DriverRun, DriverSession, SessionOpening, Turn
from runtime_host.events import DriverEvent
from runtime_host.results import DriverResult
from runtime_host.tools.base import HOST_TOOLS, ToolChannel, ToolDelivery, ToolRequest

_PIECE: Final = DriverEvent("agent.message.delta", {"id": "flood", "text": "x", "phase": "unknown"})


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


@dataclass(frozen=True)
class Flood:
    """One event so often, as fast as it is taken: a piece of a reply unless given. A deaf one goes on after a stop."""

    events: int
    event: DriverEvent = _PIECE
    deaf: bool = False


@dataclass(frozen=True)
class Do:
    """Something of the test's own at this point, such as ending the process."""

    action: Callable[[], object]


@dataclass(frozen=True)
class Call:
    """The model calls host tools and waits for all of them.

    In a run that goes on after a restart, the steps up to the first call nobody was told of are not done again.
    """

    requests: tuple[ToolRequest, ...]


ToolMisbehaviour = Literal[
    "asks-once",
    "repeats-as-new",
    "tells-before-kept",
    "tells-what-failed",
    "hides-a-denial",
    "tells-under-another-id",
    "tells-twice",
    "executes-again",
]
"""What a harness can do badly with host tools: take two calls of one tool for one; give a repeated call another id;
tell a result before it may; tell something where there is no result; tell that a denied call went well; tell what is
left from before a restart under another id, or everything twice; have that executed again."""

Step: TypeAlias = DriverEvent | Wait | Hold | Fail | Flood | Do | Call


@dataclass(frozen=True)
class Script:
    """What one native run does.

    Attributes:
        steps: in order; a stop ends them.
        result: what the run ends with; made from the last reply unless given. `missing` ends without
            one, `hangs` never answers, `changes` is completed once and failed when asked again.
        start: before the input is sent: `hangs` never sends it, `deaf` neither and cannot be given up;
            a wait makes it late; an error fails it.
        sends: how often the input is sent; a harness may send it once.
        acceptance: after the input was sent: `hangs` never answers, an error is raised.
        finishes: how often the last completed message is said.
        cancel: `stops` ends the run, `ignored` does nothing, `hangs` never returns, an error is raised
            and nothing stops.
        cancelled_as: the status a stopped run claims.
        ended_result_stands: whether a cancel after the end leaves the result as it was.
    """

    steps: Sequence[Step] = ()
    result: DriverResult | Exception | Literal["missing", "hangs", "changes"] | None = None
    start: Exception | Wait | Hold | Literal["at-once", "hangs", "deaf"] = "at-once"
    sends: int = 1
    acceptance: Exception | Literal["answered", "hangs"] = "answered"
    finishes: int = 1
    cancel: Exception | Literal["stops", "ignored", "hangs"] = "stops"
    cancelled_as: Literal["cancelled", "completed"] = "cancelled"
    ended_result_stands: bool = True


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
        open_fails, state_fails, close_fails: what these calls raise.
        close_hangs: a close never returns.
        close_ends_all: closing one session ends the runs of all.
        state_extra: what a session's state says besides.
        forget_fails: what forgetting a session raises.
        forgets_badly: what it does badly at that: ends all other sessions with it, reaches the far side, raises when
            it is asked again, or never returns.
        inspection_sends: a look at a binding reaches the far side.
        tools_badly: what it does badly with host tools.
        configuration_revision: what it says it is configured as.
        on_send: called with each turn as its input is sent.
        on_told: called with a turn and what its native side is told of a call.
        turns, openings, cancels, closes, inspections: what it was given so far.
        forgotten: sessions it was to forget, each with the state it was given, as often as it was asked.
        sent: run ids of the inputs that were sent, each as often as it was.
        told: what the native side was told of calls.
        released: set to end everything that hangs.
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
                HOST_TOOLS,
            )
        }
    )
    open_fails: Exception | None = None
    state_fails: Exception | None = None
    close_fails: Exception | None = None
    close_hangs: bool = False
    close_ends_all: bool = False
    forget_fails: Exception | None = None
    forgets_badly: Literal["forgets-all", "forget-sends", "forgets-once-only", "hanging-forget"] | None = None
    state_extra: dict[str, Any] = field(default_factory=dict)
    inspection_sends: bool = False
    tools_badly: ToolMisbehaviour | None = None
    configuration_revision: str | None = None
    on_send: Callable[[Turn], object] | None = None
    on_told: Callable[[Turn, ToolDelivery], object] | None = None
    turns: list[Turn] = field(default_factory=list)
    openings: list[SessionOpening] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    told: list[ToolDelivery] = field(default_factory=list)
    cancels: int = 0
    closes: int = 0
    inspections: int = 0
    forgotten: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)
    runs: "list[_ScriptedRun]" = field(default_factory=list, repr=False)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        self.inspections += 1
        if self.inspection_sends:
            self.sent.append("inspection")
        return DriverInspection(
            driver_id=self.driver_id,
            capabilities=self.capabilities,
            configuration_revision=self.configuration_revision,
        )

    async def open(self, opening: SessionOpening) -> DriverSession:
        if self.open_fails is not None:
            raise self.open_fails
        self.openings.append(opening)
        return _ScriptedSession(self, opening)

    async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        again = any(session_id == known for known, _ in self.forgotten)
        self.forgotten.append((session_id, state))
        if self.forget_fails is not None:
            raise self.forget_fails
        match self.forgets_badly:
            case "forgets-all":
                self.scripts = (Script(result=DriverResult(status="failed")),)
            case "forget-sends":
                self.sent.append("forget")
            case "forgets-once-only" if again:
                raise FileNotFoundError(session_id)
            case "hanging-forget":
                await self.released.wait()

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
        self._runs: list[_ScriptedRun] = []

    async def start(self, turn: Turn) -> DriverRun:
        driver = self._driver
        driver.turns.append(turn)
        self._turns += 1
        script = driver.script_of(turn)
        await self._begin(script.start)
        goes_on = turn.tools is not None and bool(turn.tools.earlier)
        for _ in range(0 if goes_on else script.sends):
            driver.sent.append(turn.run_id)
            if driver.on_send is not None:
                driver.on_send(turn)
        if isinstance(script.acceptance, Exception):
            raise script.acceptance
        if script.acceptance == "hangs":
            await driver.released.wait()
        run = _ScriptedRun(driver, script, turn)
        self._runs.append(run)
        driver.runs.append(run)
        return run

    async def _begin(self, how: Exception | Wait | Hold | str) -> None:
        match how:
            case Exception():
                raise how
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Hold(until):
                await until.wait()
            case "hangs":
                await self._driver.released.wait()
            case "deaf":
                await _deaf(self._driver.released)

    def state(self) -> dict[str, Any]:
        if self._driver.state_fails is not None:
            raise self._driver.state_fails
        return {"version": 1, "turns": self._turns, **self._driver.state_extra}

    async def close(self) -> None:
        self._driver.closes += 1
        if self._driver.close_fails is not None:
            raise self._driver.close_fails
        if self._driver.close_hangs:
            await self._driver.released.wait()
        for run in self._driver.runs if self._driver.close_ends_all else self._runs:
            if run.stoppable and not run.over:
                run.stop.set()


class _ScriptedRun:
    def __init__(self, driver: ScriptedDriver, script: Script, turn: Turn) -> None:
        self._driver = driver
        self._script = script
        self._turn = turn
        self.stop = asyncio.Event()
        self._said: DriverEvent | None = None
        self._seen: set[str] = set()
        self._asked = 0
        self.over = False

    @property
    def stoppable(self) -> bool:
        return self._script.cancel == "stops"

    async def events(self) -> AsyncIterator[DriverEvent]:
        for step in self._steps():
            if self.stop.is_set():
                return
            if isinstance(step, Call):
                for event in await self._call(step):
                    yield event
            elif isinstance(step, Flood):
                for _ in range(step.events):
                    if self._driver.released.is_set() or (self.stop.is_set() and not step.deaf):
                        return
                    yield step.event
            elif isinstance(step, Wait | Hold | Fail | Do):
                await self._do(step)
            else:
                # What is no event is given as it is: a runtime has to bear that too.
                if isinstance(step, DriverEvent) and step.type == "agent.message.completed":
                    self._said = step
                yield step
        for _ in range(self._script.finishes - 1):
            if self._said is not None:
                yield self._said
        self.over = self._script.ended_result_stands

    def _steps(self) -> Sequence[Step]:
        """All steps, or of a run that goes on those from the first call on that nobody was told of."""
        tools, steps = self._turn.tools, self._script.steps
        if tools is None or not tools.earlier:
            return steps
        told = {call.request.call_id for call in tools.earlier if call.told is not None}
        for number, step in enumerate(steps):
            if isinstance(step, Call) and not {request.call_id for request in step.requests} <= told:
                return steps[number:]
        return ()

    async def _call(self, step: Call) -> list[DriverEvent]:
        """Have the calls executed and the native side told; what is to be published of it."""
        tools = self._turn.tools
        if tools is None:
            raise LookupError("the definition selects no tools")
        published: list[DriverEvent] = []

        async def started(request: ToolRequest, arguments: Any) -> None:
            data = {"id": request.call_id, "name": request.name, "arguments": arguments}
            published.append(DriverEvent("tool.started", {**request.about, **data}))

        async def completed(delivery: ToolDelivery) -> None:
            data = {"id": delivery.call_id, "name": delivery.name, "result": delivery.payload, "error": delivery.error}
            published.append(DriverEvent("tool.completed", {**delivery.about, **data}))

        working = asyncio.ensure_future(self._deliver(tools, step.requests, started, completed))
        stopping = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            else:
                working.cancel()
                await asyncio.wait((working,))
        finally:
            working.cancel()
            stopping.cancel()
        return published

    async def _deliver(self, tools: ToolChannel, requests: tuple[ToolRequest, ...], *said: Any) -> None:
        badly = self._driver.tools_badly
        if self._renames(tools, requests):
            requests = tuple(request._replace(call_id=f"{request.call_id}-again") for request in requests)
        ids = tuple(request.call_id for request in requests)
        if badly == "asks-once" and self._seen:
            self._tell(self._driver.told[0])
            return
        self._seen.update(ids)
        try:
            deliveries = await tools.execute(requests, *said)
        except Exception:
            if badly == "tells-what-failed":
                self._tell(ToolDelivery(ids[0], requests[0].name, "{}", True, "It went well.", None))
            raise
        if badly == "tells-before-kept":
            self._tell(*deliveries)
        await tools.delivering(ids)
        if badly == "hides-a-denial":
            deliveries = tuple(each._replace(success=True, payload="It went well.", error=None) for each in deliveries)
        if badly == "tells-under-another-id" and tools.earlier:
            deliveries = tuple(each._replace(call_id=f"{each.call_id}-other") for each in deliveries)
        self._tell(
            *(() if badly == "tells-before-kept" else deliveries), *(deliveries if badly == "tells-twice" else ())
        )
        tools.delivered(ids)

    def _renames(self, tools: ToolChannel, requests: tuple[ToolRequest, ...]) -> bool:
        """Whether it asks for calls under other ids than theirs."""
        badly = self._driver.tools_badly
        return (badly == "executes-again" and bool(tools.earlier)) or (
            badly == "repeats-as-new" and any(request.call_id in self._seen for request in requests)
        )

    def _tell(self, *deliveries: ToolDelivery) -> None:
        for delivery in deliveries:
            self._driver.told.append(delivery)
            if self._driver.on_told is not None:
                self._driver.on_told(self._turn, delivery)

    async def _do(self, step: Wait | Hold | Fail | Do) -> None:
        match step:
            case Wait(seconds):
                await self._unless_stopped(asyncio.sleep(seconds))
            case Hold(until):
                await self._unless_stopped(until.wait())
            case Fail(error):
                raise error
            case Do(action):
                action()

    async def result(self) -> DriverResult:
        outcome = self._script.result
        self._asked += 1
        if self.stop.is_set():
            return DriverResult(status=self._script.cancelled_as)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == "hangs":
            await self._driver.released.wait()
        if outcome == "missing":
            return None  # type: ignore[return-value]  # what a defective driver does
        if outcome == "changes" and self._asked > 1:
            return DriverResult(status="failed")
        if isinstance(outcome, DriverResult):
            return outcome
        said = "" if self._said is None else str(self._said.data.get("text", ""))
        return DriverResult(status="completed", output_text=said, finish_reason="completed")

    async def cancel(self) -> None:
        self._driver.cancels += 1
        how = self._script.cancel
        if isinstance(how, Exception):
            raise how
        if how == "hangs":
            await self._driver.released.wait()
        if how == "stops" and not self.over:
            self.stop.set()

    async def _unless_stopped(self, work: Awaitable[object]) -> None:
        over = self.stop.wait(), self._driver.released.wait()
        waiting = [asyncio.ensure_future(each) for each in (work, *over)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()


async def _deaf(released: asyncio.Event) -> None:
    """Wait, whoever gives it up."""
    while not released.is_set():
        try:
            await released.wait()
        except asyncio.CancelledError:
            continue
