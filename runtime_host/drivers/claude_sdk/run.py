"""One run: an input to the CLI, what comes of it, and the calls of tools in between.

Owns the order of events, calls and the end. Must not know how a CLI is started or recorded. Invariants: an input is
said once, and after a restart not again; a result of a tool is told after the runtime let it be told, or not at all;
the events end when the CLI has ended the run or is no more; a run that was stopped ends within a deadline, with the CLI
if need be.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from runtime_host.drivers.base import Turn
from runtime_host.drivers.claude_sdk import endings
from runtime_host.drivers.claude_sdk.endings import About, Cut
from runtime_host.drivers.claude_sdk.mapping import TurnMapper
from runtime_host.drivers.claude_sdk.ports import Gate, RunningCli, ToolAnswer
from runtime_host.drivers.claude_sdk.processes import left_running
from runtime_host.drivers.claude_sdk.profile import BEFORE_VERSION, FIRST_VERSION
from runtime_host.drivers.claude_sdk.usage import NOTHING, Counts
from runtime_host.errors import AgentNativeExecutionError, AgentRuntimeError, AgentSessionRecoveryError
from runtime_host.events import DriverEvent
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.results import DriverResult
from runtime_host.tools.base import ToolChannel, ToolDelivery, ToolRequest

_WAITING_EVENTS: Final = 1024
"""How far the CLI may run ahead of the pump; beyond it its own pipe holds it back."""
CONTINUED: Final = "[Remuda] "
"""How the words begin that tell a conversation after a restart what became of its tools."""

log = logging.getLogger(__name__)


class Patience(NamedTuple):
    """How long is waited for the CLI. The first and the last together are less than a runtime waits for an end.

    Attributes:
        interrupt_s: for the end of a run that is to stop; then the CLI is killed.
        leave_s: for a CLI without work to end by itself.
        record_s: for the CLI to write down what it said.
    """

    interrupt_s: float = 0.8
    leave_s: float = 1.2
    record_s: float = 0.5


class RunSeat(Protocol):
    """What a run needs of its session."""

    @property
    def session_id(self) -> str: ...
    @property
    def patience(self) -> Patience: ...
    async def cli(self) -> tuple[RunningCli, Counts]:
        """The CLI of the run, and what it has counted so far."""
        ...

    async def begin(self, run_id: str) -> None:
        """The input is about to be said."""
        ...

    async def is_recorded(self) -> bool:
        """Wait a little until the CLI has written down what this run began with; whether it has."""
        ...

    async def answered(self) -> frozenset[str]:
        """Calls whose results the CLI has written down."""
        ...

    async def ended(self, counts: Counts, last_uuid: str) -> None:
        """The run is over: note how far the conversation is recorded."""
        ...

    def about(self) -> About:
        """Whom the run asked, and how often so far."""
        ...


class ClaudeRun:
    """The runtime's handle of a run. Its work is done by a task of its own.

    Args:
        seat: the session, for this run.
        turn: the input.
        tools: what the application calls its tools, by their names within the server.
        names: the same by the names that the model calls.
        own_tools: of the CLI, and for a schema; anything else that it offers ends the run.
        gate: says why one of these is not let do what it is asked for.
        runs_commands: whether the CLI runs any: what these left behind goes with it when a run is stopped.
    """

    def __init__(
        self,
        seat: RunSeat,
        turn: Turn,
        *,
        tools: Mapping[str, str],
        names: Mapping[str, str],
        own_tools: frozenset[str],
        gate: Gate | None = None,
        runs_commands: bool = False,
    ) -> None:
        self._seat = seat
        self._turn = turn
        self._tools = tools
        self._names = names
        self._own_tools = own_tools
        self._gate = gate
        self._runs_commands = runs_commands
        self._mapper = TurnMapper(names)
        self._cli: RunningCli | None = None
        self._waiting: deque[DriverEvent] = deque()
        self._wake, self._room, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._cut: Cut | None = None
        self._fault: AgentRuntimeError | None = None
        self._lost: AgentSessionRecoveryError | None = None
        self._result: DriverResult | None = None
        self._replies = 0
        self._untold: list[str] = []
        self._calling = asyncio.Lock()
        self._calls: set[asyncio.Task[ToolAnswer]] = set()
        self._breaking: asyncio.Task[None] | None = None
        self._is_said = False
        self._main = asyncio.create_task(self._live(), name=f"anthropic.agent.sdk {turn.run_id}")
        self._main.add_done_callback(lambda _: self._wake.set())

    @property
    def done(self) -> bool:
        return self._main.done()

    # ---- for the runtime ----

    async def events(self) -> AsyncIterator[DriverEvent]:
        """Events until the CLI has ended the run, in one way or another."""
        while True:
            while self._waiting:
                event = self._waiting.popleft()
                if len(self._waiting) < _WAITING_EVENTS:
                    self._room.set()
                yield event
            if self._main.done():
                return
            self._wake.clear()
            await self._wake.wait()

    async def result(self) -> DriverResult:
        """The outcome; waits for it.

        Raises:
            AgentSessionRecoveryError: the run cannot be gone on with, and nothing was said.
        """
        await asyncio.wait([self._main])
        if self._lost is not None:
            raise self._lost
        return self._result or endings.result_of(self._mapper, self._seat.about(), "stopped")

    async def cancel(self) -> None:
        """Ask the CLI to stop. What had come stays."""
        if not self._main.done():
            self._break("stopped")

    async def wait(self) -> None:
        """Wait for the end."""
        await asyncio.wait([self._main])

    # ---- for the CLI ----

    async def said(self, message: Mapping[str, Any]) -> None:
        mapper = self._mapper
        for event in mapper.events(message):
            await self._publish(event)
        if mapper.replies > self._replies:
            self._replies = mapper.replies
            self._confirm()
        if mapper.ended is not None:
            self._over.set()
        elif (cut := self._fitness()) is not None:
            self._break(cut)

    async def called(self, call_id: str, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        channel = self._turn.tools
        if channel is not None and self._cut is None and self._fault is None:
            name = self._tools.get(tool, tool)
            request = ToolRequest(call_id, name, json.dumps(arguments, ensure_ascii=False))
            call = asyncio.create_task(self._execute(channel, request), name=f"call {name}")
            self._calls.add(call)
            await asyncio.wait({call})
            if not call.cancelled() and (fault := call.exception()) is None:
                return call.result()
            if not call.cancelled():
                self._fault = fault if isinstance(fault, AgentRuntimeError) else _own_fault(fault)
                self._break("stopped")
        # Told to nobody: who asked is about to be stopped, and waits until then.
        await asyncio.Event().wait()
        raise AssertionError("nothing sets this event")

    def gone(self) -> None:
        if self._mapper.ended is None:
            self._cut = self._cut or "gone"
        self._over.set()

    # ---- inside ----

    async def _live(self) -> None:
        seat, mapper = self._seat, self._mapper
        try:
            await self._work()
        except AgentSessionRecoveryError as lost:
            self._lost = lost
        except AgentRuntimeError as fault:
            self._fault = self._fault or fault
        except asyncio.CancelledError:
            if self._cut is None:
                raise
        except Exception as fault:
            # Its kind only: what a vendor puts into its exceptions may hold what a server wrote.
            log.error("anthropic.agent.sdk %s: unexpected %s", self._turn.run_id, type(fault).__name__)
            self._result = endings.unexpected(mapper, seat.about())
        finally:
            await self._let_go()
        if self._result is None and self._lost is None:
            self._result = self._outcome()

    def _outcome(self) -> DriverResult:
        about = self._seat.about()
        if self._fault is not None:
            return endings.not_done(self._fault, self._mapper, about)
        return endings.result_of(self._mapper, about, self._cut)

    async def _work(self) -> None:
        cli, counts = await self._seat.cli()
        self._cli = cli
        self._mapper = TurnMapper(self._names, counts, self._own_tools, self._gate)
        cli.listen(self)
        earlier = self._turn.tools.earlier if self._turn.tools is not None else ()
        if self._turn.tools is not None and earlier:
            text = await self._go_on(self._turn.tools)
        else:
            await self._seat.begin(self._turn.run_id)
            text = self._turn.text
        await cli.say(text)
        self._is_said = True
        await self._over.wait()

    async def _let_go(self) -> None:
        """Leave the CLI as it may be used again, or not at all."""
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        cli = self._cli
        if cli is None:
            return
        if self._breaking is not None:
            await asyncio.wait({self._breaking})
        if cli.lives and (self._mapper.ended is None or (self._cut is not None and self._runs_commands)):
            # What it may still say belongs to nobody; nor does what its commands left running.
            await self._end_cli(cli)
        cli.listen(None)
        for event in self._mapper.broken_off():
            self._waiting.append(event)
        await self._seat.ended(self._mapper.counts if cli.lives else NOTHING, self._mapper.last_uuid)
        if self._runs_commands and cli.lives:
            await self._end_commands(cli)

    async def _end_commands(self, cli: RunningCli) -> None:
        """End what commands left running: the folder may be another run's from now on."""
        pid = cli.pid
        if pid is None or not await in_own_thread(lambda: left_running(pid), "look at processes"):
            return
        await self._end_cli(cli)
        message = "A command still ran when the run was over, and was ended with it."
        self._waiting.append(DriverEvent("diagnostic", {"code": "COMMANDS_ENDED", "level": "info", "message": message}))

    async def _end_cli(self, cli: RunningCli) -> None:
        end = await cli.stop(0)
        if end.left:
            self._lost = AgentSessionRecoveryError(
                "The Claude CLI could not be ended completely, so what becomes of this message is not known.",
                session_id=self._seat.session_id,
                run_id=self._turn.run_id,
            )

    def _break(self, cut: Cut) -> None:
        """End the run before the CLI does: by asking it, and if that takes too long by force."""
        self._cut = self._cut or cut
        self._mapper.activities.stopping = True
        self._room.set()
        for call in self._calls:
            call.cancel()
        if self._breaking is None:
            self._breaking = asyncio.create_task(self._interrupt(), name="claude interrupt")

    async def _interrupt(self) -> None:
        cli = self._cli
        if cli is None:
            self._main.cancel()
            return
        deadline_s = self._seat.patience.interrupt_s
        asking = asyncio.create_task(cli.interrupt())
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({over}, timeout=deadline_s)
        finally:
            for task in (asking, over):
                task.cancel()
            await asyncio.wait({asking, over})
        # A CLI that did not end the run is ended by `_let_go`.
        self._over.set()
        if not self._is_said:
            self._main.cancel()

    def _fitness(self) -> Cut | None:
        """Why the CLI is not listened to any longer."""
        mapper = self._mapper
        if mapper.torn:
            return "torn"
        if mapper.too_long:
            return "too-long"
        if mapper.version and not _is_known(mapper.version):
            return "foreign-version"
        if mapper.tools is not None and set(mapper.tools) - set(self._names) - self._own_tools:
            return "foreign-tools"
        return None

    # ---- tools ----

    async def _execute(self, channel: ToolChannel, request: ToolRequest) -> ToolAnswer:
        async with self._calling:
            # What was said before goes to disk with the call; and a restart has to find that this run was begun.
            while self._waiting and self._cut is None:
                self._room.clear()
                await self._room.wait()
            await self._seat.is_recorded()
            [delivery] = await self._deliveries(channel, (request,))
            return ToolAnswer(_told(delivery), failed=not delivery.success)

    async def _deliveries(self, channel: ToolChannel, requests: tuple[ToolRequest, ...]) -> tuple[ToolDelivery, ...]:
        """What calls came to, ready to be told."""
        running: list[ToolRequest] = []

        async def started(request: ToolRequest, arguments: Any) -> None:
            running.append(request)
            about = {**request.about, "id": request.call_id, "name": request.name, "arguments": arguments}
            await self._publish(DriverEvent("tool.started", about))

        async def completed(delivery: ToolDelivery) -> None:
            running.clear()
            await self._publish(_completed(delivery))

        try:
            deliveries = await channel.execute(requests, started, completed)
        except (asyncio.CancelledError, AgentRuntimeError):
            self._waiting.extend(_interrupted(request) for request in running)
            self._wake.set()
            raise
        call_ids = tuple(delivery.call_id for delivery in deliveries)
        await channel.delivering(call_ids)
        self._untold += call_ids
        return deliveries

    def _confirm(self) -> None:
        """A reply has begun, so the model has read what it was told."""
        if self._untold and self._turn.tools is not None:
            self._turn.tools.delivered(tuple(self._untold))
            self._untold.clear()

    async def _go_on(self, channel: ToolChannel) -> str:
        """What to say in place of the input, which was said before a restart.

        Raises:
            AgentSessionRecoveryError: the CLI has no record that it was.
        """
        if not await self._seat.is_recorded():
            raise AgentSessionRecoveryError(
                "The Claude CLI recorded nothing of this message before the program ended, so it cannot go on with it. "
                "It was not sent again.",
                session_id=self._seat.session_id,
                run_id=self._turn.run_id,
            )
        answered = await self._seat.answered()
        waiting = tuple(call.request for call in channel.earlier if call.told is None)
        fresh = await self._deliveries(channel, waiting)
        lost = [call.told for call in channel.earlier if call.told is not None and call.told.call_id not in answered]
        about = (
            "The program was started anew; the Claude CLI is told what its tools had come to and goes on from there."
        )
        await self._publish(
            DriverEvent("diagnostic", {"code": "CONTINUED_AFTER_RESTART", "level": "info", "message": about})
        )
        return continuation((*lost, *fresh))

    async def _publish(self, event: DriverEvent) -> None:
        while len(self._waiting) >= _WAITING_EVENTS and self._cut is None:
            self._room.clear()
            await self._room.wait()
        if len(self._waiting) < 2 * _WAITING_EVENTS or not event.type.endswith(".delta"):
            self._waiting.append(event)
        self._wake.set()


def continuation(deliveries: tuple[ToolDelivery, ...]) -> str:
    """What a conversation is told after a restart of the calls that it waited for."""
    told = "\n".join(
        json.dumps(
            {"call": each.call_id, "tool": each.name, "success": each.success, "result": each.payload},
            ensure_ascii=False,
        )
        for each in deliveries
    )
    return (
        f"{CONTINUED}The program was started anew while you waited for tools. Whatever else is said of these calls, "
        f"this is what they came to; they are not to be made again:\n{told}\nGo on from there."
    )


def _is_known(version: str) -> bool:
    """Whether a CLI of this version was tried, or is close enough to one that was."""
    parts = version.split("-")[0].split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return False
    return FIRST_VERSION <= tuple(map(int, parts)) < BEFORE_VERSION


def _told(delivery: ToolDelivery) -> str:
    """A delivery as the model reads it."""
    if not delivery.success:
        return json.dumps({"success": False, "error": delivery.payload}, ensure_ascii=False)
    if isinstance(delivery.payload, str):
        return delivery.payload
    return json.dumps(delivery.payload, ensure_ascii=False)


def _own_fault(fault: BaseException | None) -> AgentRuntimeError:
    log.error("a call of a tool failed unexpectedly: %s", type(fault).__name__)
    return AgentNativeExecutionError("Something went wrong in Remuda while a tool was called. The run was ended.")


def _completed(delivery: ToolDelivery) -> DriverEvent:
    return DriverEvent(
        "tool.completed",
        {
            **delivery.about,
            "id": delivery.call_id,
            "name": delivery.name,
            "result": delivery.payload if delivery.success else None,
            "error": delivery.error,
            "duration_ms": delivery.duration_ms,
        },
    )


def _interrupted(request: ToolRequest) -> DriverEvent:
    """The end of a call of which it is not known what came."""
    error = "Interrupted; whether it acted is not known."
    about = {"id": request.call_id, "name": request.name, "result": None, "error": error, "duration_ms": None}
    return DriverEvent("tool.completed", about)
