"""One input to the Codex CLI and what comes of it.

Owns the turn: its dispatch, its events, the calls of host tools within it, and its end. Must not know how the CLI is
started or where it keeps things. Invariants: an input is sent once; nothing is told to the CLI of a call that is not
kept; a turn that is over has left no command running; whoever stops waits for no answer of the CLI without a bound.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from runtime_host.canonical import thaw
from runtime_host.definitions import ImagePart, JsonSchemaFormat, TextPart, WorkspaceFilePart
from runtime_host.drivers.base import Turn
from runtime_host.drivers.codex import host_tools
from runtime_host.drivers.codex.app_server import CallRefusedError, NoAnswerError, ServerGoneError, ServerSilentError
from runtime_host.drivers.codex.denials import Denials
from runtime_host.drivers.codex.faults import NativeFault, early_end, run_error
from runtime_host.drivers.codex.mapping import TurnMapper
from runtime_host.drivers.codex.profile import DRIVER_ID
from runtime_host.errors import AgentNativeExecutionError, AgentRuntimeError, AgentSessionRecoveryError
from runtime_host.events import DriverEvent
from runtime_host.loop.model_apis.pieces import FaultKind
from runtime_host.results import DriverResult, RunError
from runtime_host.tools.base import ToolChannel, ToolDelivery, ToolRequest

if TYPE_CHECKING:
    from runtime_host.drivers.codex.session import CodexSession

WAITING_EVENTS: Final = 1024
"""How far the CLI may run ahead of the pump; beyond it what it says waits in its own stream."""
START_TURN_S: Final = 30.0
INJECT_S: Final = 10.0
INTERRUPT_S: Final = 0.6
INTERRUPTED_S: Final = 0.5
TOOLS_STOP_S: Final = 1.6

_NO_FAULT: Final = NativeFault()

log = logging.getLogger(__name__)


class CodexRun:
    """A turn. It is driven by a task of its own, so that a stop need not wait for the CLI.

    Args:
        session: whose turn it is.
        turn: the input.
    """

    def __init__(self, session: "CodexSession", turn: Turn) -> None:
        self._session = session
        self._turn = turn
        self.run_id = turn.run_id
        self.mapper = TurnMapper(
            connector=session.connector,
            model=turn.model,
            real=session.real,
            workspace=session.workspace,
            spent=session.spending,
        )
        self._denials = Denials()
        self._waiting: deque[DriverEvent] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._changed = asyncio.Event()
        self._stopping = False
        self._dispatched = False
        self._accepted = False
        self._failure: AgentRuntimeError | None = None
        self._result: DriverResult | None = None
        self._lost: AgentSessionRecoveryError | None = None
        self._images: list[str] = []
        self._calling = asyncio.Lock()
        self._calls: set[asyncio.Task[tuple[ToolDelivery, ...]]] = set()
        self._untold: set[str] = set()
        self._told: set[str] = set()
        self._faults_before: tuple[str, ...] = ()
        self._task = asyncio.create_task(self._live(), name=f"{DRIVER_ID} {turn.run_id}")
        self._task.add_done_callback(self._ended)

    # ---- for the runtime ----

    async def events(self) -> AsyncIterator[DriverEvent]:
        """Events until the turn is over and nothing of it runs any more."""
        while True:
            while self._waiting:
                event = self._waiting.popleft()
                if len(self._waiting) < WAITING_EVENTS:
                    self._room.set()
                yield event
            if self._task.done():
                return
            self._wake.clear()
            await self._wake.wait()

    async def result(self) -> DriverResult:
        """The outcome; waits for it.

        Raises:
            AgentSessionRecoveryError: nobody knows whether something still runs.
        """
        await asyncio.wait([self._task])
        if self._lost is not None:
            raise self._lost
        return self._result or self._outcome("cancelled")

    async def cancel(self) -> None:
        """Ask for the end; it is over when the events end."""
        self.stop()

    # ---- for the session ----

    @property
    def is_over(self) -> bool:
        return self._task.done()

    @property
    def owes_an_answer(self) -> bool:
        """Whether the CLI waits for a host tool."""
        return bool(self._untold)

    def stop(self) -> None:
        self._stopping = self.mapper.is_stopping = self._denials.is_stopping = True
        self._room.set()
        self._changed.set()
        for call in self._calls:
            call.cancel()

    def server_gone(self) -> None:
        self._changed.set()

    async def over(self, within_s: float) -> bool:
        done, _ = await asyncio.wait({self._task}, timeout=within_s)
        return bool(done)

    async def take(self, method: str, params: Mapping[str, Any]) -> None:
        """Take a notification of this thread."""
        if self._task.done() or not self._is_of_this_turn(params):
            return
        if method == "item/completed":
            self._was_told(params)
        for event in self.mapper.events(method, params):
            await self._publish(event)
        if method == "thread/tokenUsage/updated" and self._accepted:
            await self._look_for_denials()
        if self.mapper.status is not None:
            self._changed.set()

    def _is_of_this_turn(self, params: Mapping[str, Any]) -> bool:
        turn = params.get("turn")
        named = turn.get("id") if isinstance(turn, dict) else params.get("turnId")
        return not self.mapper.turn_id or not isinstance(named, str) or named == self.mapper.turn_id

    async def call_tool(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer a call of a host tool; None when it is refused. What is not kept is not answered."""
        tools, request = self._turn.tools, host_tools.request_of(params)
        if tools is None or request is None or self._task.done():
            return None
        self._untold.add(request.call_id)
        async with self._calling:
            try:
                [delivery] = await self._stoppable(tools, (request,))
            except AgentRuntimeError as error:
                self._failure = self._failure or error
                self.stop()
                # Nothing is told: the turn is stopped while the CLI still waits.
                raise NoAnswerError from None
        self._untold.discard(request.call_id)
        self._told.add(request.call_id)
        return host_tools.answer_of(delivery)

    async def declined(self, what: str) -> None:
        """The CLI asked for what it was told not to ask for."""
        message = f"The Codex CLI asked for more than this session may do ({what}), and was refused."
        await self._publish(
            DriverEvent("diagnostic", {"code": "APPROVAL_DECLINED", "level": "warning", "message": message})
        )

    # ---- the turn ----

    async def _live(self) -> None:
        session = self._session
        try:
            await session.prepare()
            self._faults_before = session.relay_faults
            self.mapper.spending = session.spending
            await self._dispatch()
            await self._wait_for_end()
            await self._finish()
        except AgentSessionRecoveryError as lost:
            if not self._dispatched:
                # The session cannot go on; of this input it is known that it was not sent.
                self._result = self._refused(lost)
            else:
                self._lost = lost
        except (AgentRuntimeError, CallRefusedError) as refused:
            self._result = self._refused(refused)
        except (ServerGoneError, ServerSilentError):
            await self._broke_off()
        except Exception as fault:
            # Its kind only: what it holds may be of the CLI.
            log.error("%s %s: unexpected %s", DRIVER_ID, self.run_id, type(fault).__name__)
            await self._broke_off()
        finally:
            session.forget_images(self._images)

    async def _dispatch(self) -> None:
        session, tools = self._session, self._turn.tools
        goes_on = tools is not None and bool(tools.earlier)
        text_and_images = [] if goes_on else await self._input()
        if tools is not None and goes_on:
            with contextlib.suppress(NoAnswerError):
                await self._tell_what_waits(tools)
        if self._stopping:
            return
        params: dict[str, Any] = {
            "threadId": session.thread_id,
            "input": text_and_images,
            "model": self._turn.model,
            "effort": session.effort(self._turn.model, self._turn.reasoning),
            "approvalPolicy": "never",
            "approvalsReviewer": "user",
        }
        wanted = self._turn.response_format
        if isinstance(wanted, JsonSchemaFormat):
            params["outputSchema"] = thaw(wanted.json_schema)
        self._dispatched = True
        started = await self._unless_stopped(session.call("turn/start", params, within_s=START_TURN_S))
        if started is not None:
            self._accepted = True
            turn = started.get("turn")
            if not self.mapper.turn_id and isinstance(turn, dict) and isinstance(turn.get("id"), str):
                self.mapper.turn_id = turn["id"]

    async def _unless_stopped(self, call: Any) -> dict[str, Any] | None:
        """The answer of a call; None when the run is to stop before it comes."""
        asking = asyncio.ensure_future(call)
        try:
            while not asking.done() and not self._stopping:
                self._changed.clear()
                waiting = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            if not asking.done():
                await asyncio.wait({asking}, timeout=INTERRUPT_S)
            if not asking.done():
                return None
            result: dict[str, Any] = asking.result()
            return result
        finally:
            asking.cancel()

    async def _input(self) -> list[dict[str, Any]]:
        parts = self._turn.parts or (TextPart(text=self._turn.text),)
        read: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, TextPart):
                read.append({"type": "text", "text": part.text})
            elif isinstance(part, ImagePart):
                path = await self._session.put_image(part)
                self._images.append(path)
                read.append({"type": "localImage", "path": path})
            elif isinstance(part, WorkspaceFilePart):
                read.append({"type": "localImage", "path": part.path})
        return read

    async def _tell_what_waits(self, tools: ToolChannel) -> None:
        """Put into the thread what came of calls that an earlier process left."""
        waiting = host_tools.waiting_of(tools.earlier, self._session.record)
        await self._publish(host_tools.CONTINUED)
        deliveries = await self._stoppable(tools, waiting.untold) if waiting.untold else ()
        items = host_tools.items_for((*waiting.unrecorded, *deliveries), self._session.record)
        if items:
            params = {"threadId": self._session.thread_id, "items": items}
            await self._session.call("thread/inject_items", params, within_s=INJECT_S)
        tools.delivered(tuple(delivery.call_id for delivery in deliveries))

    async def _stoppable(self, tools: ToolChannel, requests: tuple[ToolRequest, ...]) -> tuple[ToolDelivery, ...]:
        """As `_execute`; a stop ends it, and then nothing may be told."""
        if self._stopping:
            raise NoAnswerError
        call = asyncio.create_task(self._execute(tools, requests), name=f"{DRIVER_ID} tools")
        self._calls.add(call)
        try:
            await asyncio.wait({call})
        finally:
            call.cancel()
            self._calls.discard(call)
        if call.cancelled():
            raise NoAnswerError
        return call.result()

    async def _execute(self, tools: ToolChannel, requests: tuple[ToolRequest, ...]) -> tuple[ToolDelivery, ...]:
        """What calls came to, kept and ready to be told."""
        await self._emptied()
        running: list[ToolRequest] = []

        async def started(request: ToolRequest, arguments: Any) -> None:
            running.append(request)
            about = {**request.about, "id": request.call_id, "name": request.name, "arguments": arguments}
            await self._publish(DriverEvent("tool.started", about))

        async def completed(delivery: ToolDelivery) -> None:
            running.clear()
            await self._publish(host_tools.tool_completed(delivery))

        try:
            deliveries = await tools.execute(requests, started, completed)
            await tools.delivering(tuple(delivery.call_id for delivery in deliveries))
        except (asyncio.CancelledError, AgentRuntimeError):
            for request in running:
                self._waiting.append(_tool_interrupted(request))
            raise
        return deliveries

    async def _emptied(self) -> None:
        """What was said before a call goes to disk with it."""
        while self._waiting and not self._stopping:
            self._room.clear()
            await self._room.wait()

    def _was_told(self, params: Mapping[str, Any]) -> None:
        item, tools = params.get("item"), self._turn.tools
        if tools is None or not isinstance(item, dict) or item.get("type") != "dynamicToolCall":
            return
        call_id = item.get("id")
        if isinstance(call_id, str) and call_id in self._told:
            self._told.discard(call_id)
            tools.delivered((call_id,))

    async def _wait_for_end(self) -> None:
        while self.mapper.status is None and not self._stopping and self._session.is_alive:
            self._changed.clear()
            if self.mapper.status is None and not self._stopping and self._session.is_alive:
                await self._changed.wait()
        if self.mapper.status is None and self._stopping:
            await self._interrupt()

    async def _interrupt(self) -> None:
        """Ask the CLI to stop, and wait a moment for its word that it did."""
        session, turn_id = self._session, self.mapper.turn_id
        if not self._dispatched:
            return
        if turn_id:
            params = {"threadId": session.thread_id, "turnId": turn_id}
            try:
                await session.call("turn/interrupt", params, within_s=INTERRUPT_S)
            except (ServerGoneError, ServerSilentError):
                return
            except CallRefusedError:
                # There is no such turn any more: its end is on the way.
                pass
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INTERRUPTED_S):
                while self.mapper.status is None and session.is_alive:
                    self._changed.clear()
                    if self.mapper.status is None:
                        await self._changed.wait()

    async def _finish(self) -> None:
        session = self._session
        if self._calls:
            # Stopped, and within their own bounds over soon.
            await asyncio.wait(self._calls, timeout=TOOLS_STOP_S)
        if self._dispatched:
            if self.mapper.status is None and not self._stopping:
                await self._broke_off()
                return
            ended = self.mapper.status is not None and await self._no_command_left()
            if not ended and not (await session.end_server()).complete:
                raise session.nobody_knows(self.run_id)
            if session.is_alive:
                await session.read_record(self.mapper.turn_id)
            await self._look_for_denials(last=True)
        for event in self.mapper.closing_events():
            self._waiting.append(event)
        if self._failure is not None:
            self._result = self._refused(self._failure)
        elif self._stopping:
            self._result = self._outcome("cancelled")
        else:
            self._result = self._told_outcome()

    async def _no_command_left(self) -> bool:
        """Whether nothing that the turn began runs any more, after ending what did."""
        ended = await self._session.end_commands()
        if ended.ended:
            many = "A command" if ended.ended == 1 else f"{ended.ended} commands"
            message = f"{many} still ran when the turn was over, and was ended with it."
            self._waiting.append(
                DriverEvent("diagnostic", {"code": "COMMANDS_ENDED", "level": "info", "message": message})
            )
        return ended.complete

    async def _look_for_denials(self, *, last: bool = False) -> None:
        entries = await self._session.record_entries()
        for event in self._denials.events(entries, self.mapper.seen_items):
            await self._publish(event)
        if last:
            for event in self._denials.closing_events():
                await self._publish(event)

    # ---- how it ends ----

    def _told_outcome(self) -> DriverResult:
        mapper = self.mapper
        if mapper.status == "completed":
            return self._outcome("completed")
        if mapper.status == "interrupted":
            return self._outcome("cancelled")
        fault = mapper.fault
        if fault is not None and fault.stopped_by and fault.stopped_by != "other":
            error = early_end(fault.stopped_by, self._turn.model)
            return self._outcome("incomplete", error=error, finish_reason=fault.stopped_by)
        error = run_error(
            fault or _NO_FAULT,
            self._session.connector,
            self._turn.model,
            of_the_way=self._session.fault_since(self._faults_before),
        )
        cut = error.code == FaultKind.STREAM_CUT.value
        return self._outcome("failed", error=error, finish_reason="stream_incomplete" if cut else "native_error")

    def _outcome(self, status: Any, **more: Any) -> DriverResult:
        mapper = self.mapper
        return DriverResult(
            status=status,
            output_text=mapper.text(),
            artifacts=mapper.changes.artifacts(),
            usage=mapper.spending.of_the_run(),
            **more,
        )

    def _refused(self, error: AgentRuntimeError | CallRefusedError) -> DriverResult:
        if isinstance(error, CallRefusedError):
            error = AgentNativeExecutionError("The Codex CLI did not take this message. It was not sent.")
            code = error.native_code
        else:
            code = error.error_code
        said = RunError(code=code, message=error.message, retryable=error.retryable, details=error.details)
        return self._outcome("failed", error=said, finish_reason="native_error")

    async def _broke_off(self) -> None:
        """The CLI is gone or silent: make sure that nothing is left, and say what is known."""
        session = self._session
        if not (await session.end_server()).complete and self._dispatched:
            self._lost = session.nobody_knows(self.run_id)
            return
        await self._look_for_denials(last=True)
        for event in self.mapper.closing_events():
            self._waiting.append(event)
        if self._failure is not None:
            self._result = self._refused(self._failure)
        elif self._stopping:
            self._result = self._outcome("cancelled")
        else:
            what = (
                "What it had done stays; your message is not sent again by itself."
                if self._dispatched
                else "Your message was not sent."
            )
            message = f"The Codex CLI ended by itself in the middle of its work. {what}"
            self._result = self._outcome(
                "failed",
                error=RunError(code="CODEX_STREAM_INCOMPLETE", message=message),
                finish_reason="stream_incomplete",
            )

    async def _publish(self, event: DriverEvent) -> None:
        while len(self._waiting) >= WAITING_EVENTS and not self._stopping:
            self._room.clear()
            await self._room.wait()
        if self._stopping and len(self._waiting) >= WAITING_EVENTS:
            # Of a flood that is to stop the rest is let go.
            return
        self._waiting.append(event)
        self._wake.set()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._wake.set()
        self._session.run_over(self)
        if not task.cancelled():
            task.exception()


def _tool_interrupted(request: ToolRequest) -> DriverEvent:
    """The end of a call of which it is not known what came."""
    error = "Interrupted; whether it acted is not known."
    about = {"id": request.call_id, "name": request.name, "result": None, "error": error, "duration_ms": None}
    return DriverEvent("tool.completed", about)
