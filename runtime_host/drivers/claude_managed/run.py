"""One input to a managed Claude session and what comes of it.

Owns the turn: its dispatch, what is watched of it, the calls of host tools within it, its stop and its end. Must not
know what is made at the provider, nor any SDK. Invariants: an input is sent once; every decision is taken from the
saved history, never from a stream; a result is sent only while the saved history says that it is waited for; what
cannot be known is said to be unknown.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from runtime_host.canonical import thaw
from runtime_host.drivers.base import Turn
from runtime_host.drivers.claude_managed import usage
from runtime_host.drivers.claude_managed.endings import (
    Ending,
    failed,
    not_arrived,
    not_sent,
    of_error,
    of_reading,
    result_text,
)
from runtime_host.drivers.claude_managed.history import Reading, arguments_of, blocks_input, is_at_rest, read
from runtime_host.drivers.claude_managed.mapping import TurnMapper, key
from runtime_host.drivers.claude_managed.profile import DRIVER_ID, SERVICE
from runtime_host.drivers.managed.faults import EVENT_TOO_LARGE, TOO_LARGE, ServiceFault, run_error
from runtime_host.drivers.managed.hurry import heed, pause
from runtime_host.drivers.managed.intents import Looked, look_for
from runtime_host.drivers.managed.outlet import Outlet
from runtime_host.drivers.managed.service import EventStream
from runtime_host.errors import AgentNativeExecutionError, AgentRuntimeError, AgentSessionRecoveryError
from runtime_host.events import DriverEvent
from runtime_host.loop.model_apis.reading import text
from runtime_host.results import DriverResult
from runtime_host.tools.base import ToolChannel, ToolDelivery, ToolRequest

if TYPE_CHECKING:
    from runtime_host.drivers.claude_managed.session import ManagedClaudeSession

MOST_TRIES: Final = 5
"""How often a result is sent, each time only while it is still waited for."""
MOST_BLIND: Final = 8
"""How often in a row nothing could be read before the run is given up as one nobody knows of."""
LONGEST_PAUSE_S: Final = 8.0
CONFIRM_TRIES: Final = 8
CATCH_UP_S: Final = 0.25

T = TypeVar("T")
Next = Literal["end", "again", "wait"]

_TELLING: Final = frozenset(
    {
        "session.status_idle",
        "session.status_terminated",
        "session.deleted",
        "user.interrupt",
        "user.custom_tool_result",
        "",
    }
)
"""Events after which it is looked into the saved history."""

log = logging.getLogger(__name__)


class ManagedClaudeRun:
    """A turn. It is driven by a task of its own.

    Args:
        session: whose turn it is.
        turn: the input.
        rejoined: whether the input was dispatched before.
    """

    def __init__(self, session: "ManagedClaudeSession", turn: Turn, *, rejoined: bool) -> None:
        self._session = session
        self._turn = turn
        self._rejoined = rejoined
        self._outlet = Outlet()
        self._mapper = TurnMapper()
        self._wake = asyncio.Event()
        self._stream: EventStream | None = None
        self._stop_asked = asyncio.Event()
        self._interrupted = False
        self._due = False
        self._record: dict[str, Any] = {}
        self._failure: AgentRuntimeError | None = None
        self._known: dict[str, ToolDelivery] = {}
        self._tries: dict[str, int] = {}
        self._unconfirmed: set[str] = set()
        self._looked_after: set[str] = set()
        self._said: set[str] = set()
        self._blind = 0
        self._quiet = 0
        self._outcome: DriverResult | AgentSessionRecoveryError | None = None
        self._task = asyncio.create_task(self._live(), name=f"{DRIVER_ID} {turn.run_id}")

    def events(self) -> AsyncIterator[DriverEvent]:
        return self._outlet.events()

    async def result(self) -> DriverResult:
        await asyncio.wait({self._task})
        if isinstance(self._outcome, DriverResult):
            return self._outcome
        raise self._outcome or self._nobody_knows("It was not watched to its end.")

    async def cancel(self) -> None:
        """Ask the provider to stop; it is over when `events` ends."""
        self._stop_asked.set()
        self._wake.set()

    async def release(self) -> None:
        """Watch it no longer; nothing is sent."""
        self._task.cancel()
        await asyncio.wait({self._task})

    # ---- the turn ----

    async def _live(self) -> None:
        heed(self._stop_asked)
        try:
            self._outcome = await (self._joined() if self._rejoined else self._sent())
        except AgentSessionRecoveryError as lost:
            self._outcome = lost
        except ServiceFault as fault:
            means = "Your message was not sent."
            self._outcome = failed(run_error(fault, self._session.connector, SERVICE, self._turn.model, means=means))
        except AgentRuntimeError as refused:
            self._outcome = self._refused(refused)
        except Exception as fault:
            # Its kind only: what it holds may be of the provider.
            log.error("%s %s: unexpected %s", DRIVER_ID, self._turn.run_id, type(fault).__name__)
            self._outcome = self._nobody_knows("Remuda stumbled over what the provider sent.")
        finally:
            self._outlet.close()
            self._session.left(self)
            await self._drop_stream()

    def _refused(self, error: AgentRuntimeError) -> DriverResult | AgentSessionRecoveryError:
        if self._record and not self._stopped_for(error):
            # The input is out; that something failed here says nothing of what goes on there.
            return self._nobody_knows(error.message)
        return failed(of_error(error))

    def _stopped_for(self, error: AgentRuntimeError) -> bool:
        return error is self._failure

    async def _sent(self) -> DriverResult:
        session = self._session
        said, fresh = await session.provide()
        if self._stopping:
            return DriverResult(status="cancelled")
        boundary = None if fresh else await self._takes_input(said)
        with contextlib.suppress(ServiceFault):
            # Before the input, so that nothing of its beginning is missed; without it the history tells it.
            await self._open_stream()
        if self._stopping:
            return DriverResult(status="cancelled")
        self._record = {
            "boundary": boundary,
            "input": None,
            "usage_before": {} if fresh else usage.snapshot(said.get("usage")),
            "since": int(time.time()),
        }
        try:
            await self._keep()
        except AgentRuntimeError:
            self._record = {}
            raise
        await self._send_input()
        return await self._watched()

    async def _takes_input(self, said: Mapping[str, Any]) -> str | None:
        """The last event before the input.

        Raises:
            AgentRuntimeError: the session takes none now.
        """
        if self._session.is_unreadable:
            raise not_sent("too_large")
        newest = await self._session.calls.latest(self._connector, self._session.native_id)
        why = "terminated" if said.get("status") == "terminated" else blocks_input(newest)
        if not why and said.get("status") != "idle":
            # The record may lag a moment behind the last word.
            why = "" if await self._at_rest() is not None else "running"
        if why:
            raise not_sent(why)
        return next((text(event, "id") for event in newest if text(event, "id")), None)

    async def _send_input(self) -> None:
        said = {"type": "user.message", "content": [{"type": "text", "text": self._turn.text}]}
        session = self._session
        try:
            stored = await session.calls.send(self._connector, session.native_id, said)
        except ServiceFault as fault:
            if fault.did_nothing:
                self._record = {}
                await session.keep_run(self._turn.run_id, None)
                raise
        except AgentRuntimeError:
            # Of the way to the key: nothing was sent.
            self._record = {}
            await session.keep_run(self._turn.run_id, None)
            raise
        else:
            if text(stored, "id"):
                await self._keep(input=text(stored, "id"))
                return
        await self._find_input("The answer to your message was lost.")

    async def _joined(self) -> DriverResult:
        session = self._session
        record = session.record(self._turn.run_id)
        if record is None:
            # It is kept before anything of an input is sent.
            if self._turn.may_send:
                return await self._sent()
            await session.find_lost()
            return failed(not_arrived("Remuda ended before your message was sent."))
        self._record = record
        if record.get("stop"):
            self._stop_asked.set()
        if not self._stopping:
            await self._verify()
        if record.get("input") is None:
            await self._find_input("Remuda ended while your message was on its way.")
        return await self._watched()

    async def _verify(self) -> None:
        """Tell nothing to a session that was set up otherwise meanwhile; one that is to stop is stopped all the same.

        Raises:
            AgentSessionRecoveryError: it was, or it could not be looked.
        """
        while True:
            try:
                await self._session.provide()
            except ServiceFault as fault:
                await self._blinded(fault)
                continue
            except AgentNativeExecutionError as error:
                what = error.details.get("field") or error.details.get("kind")
                raise self._nobody_knows(f"What {SERVICE} has is otherwise than it was asked for ({what}).") from None
            self._blind = 0
            return

    async def _find_input(self, why: str) -> None:
        """Look for an input whose answer was lost. Where it is not found nobody knows, however long ago it was."""

        async def find() -> tuple[str, ...]:
            reading = await self._reading()
            return (reading.input_id,) if reading.input_id else ()

        try:
            looked = await look_for(find, self._session.looking)
        except ServiceFault as fault:
            raise self._nobody_knows(f"{why} It could not be looked for it ({fault.kind}).") from None
        if looked.found:
            await self._keep(input=looked.found[0])
            return
        raise self._nobody_knows(f"{why} {_how_far(looked)}")

    async def _watched(self) -> DriverResult:
        """Watch the turn until the provider says that it is over."""
        while True:
            try:
                reading = await self._look()
                step, ending = await self._act(reading)
            except ServiceFault as fault:
                if fault.own_code == TOO_LARGE:
                    return await self._stopped_unread()
                await self._blinded(fault)
                continue
            self._blind = 0
            if ending is not None:
                return ending
            if step == "wait":
                await self._listen()

    async def _look(self) -> Reading:
        """Where the turn stands by what is saved; what of it is new is told."""
        if self._stream is None or self._stream.ended:
            await self._drop_stream()
            await self._open_stream()
        reading = await self._reading()
        if reading.interrupt_id is not None and self._stop.get("event") is None:
            await self._keep(stop={**self._stop, "event": reading.interrupt_id})
        await self._catch_up(reading)
        for event in reading.events:
            await self._tell(event)
        await self._confirm(reading)
        return reading

    async def _catch_up(self, reading: Reading) -> None:
        """Tell what the stream has before what is saved: pieces are worth nothing after their whole.

        At the end the stream gets a moment to come as far, too.
        """
        last = key(reading.events[-1]) if reading.stage == "ended" else None
        until_s = asyncio.get_running_loop().time() + CATCH_UP_S
        while (stream := self._stream) is not None:
            self._wake.clear()
            ended = stream.ended
            for event in stream.take():
                self._due = await self._heard(event) or self._due
                last = None if key(event) == last else last
            if last is None or ended:
                return
            try:
                # Only the waiting is cut short: what was taken is told.
                async with asyncio.timeout_at(until_s):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _reading(self) -> Reading:
        before, after = await self._session.calls.history(
            self._connector, self._session.native_id, self._record.get("boundary")
        )
        self._mapper.earlier(before)
        return read(
            after,
            said=self._turn.text,
            input_id=self._record.get("input"),
            interrupt=bool(self._stop),
            interrupt_id=self._stop.get("event"),
        )

    async def _act(self, reading: Reading) -> tuple[Next, DriverResult | None]:
        stage = reading.stage
        if stage in ("ended", "terminated"):
            said = await self._at_rest()
            return ("again", None) if said is None else ("end", await self._ended(reading, said))
        if stage == "refused_action" and self._failure is None:
            self._failure = not_sent("action")
            self._stop_asked.set()
        if self._stopping:
            return await self._interrupt(), None
        if stage == "calls":
            return await self._answer(reading.pending), None
        if stage == "paused":
            await self._say_once(
                f"budget {reading.pause}",
                "BUDGET_REACHED",
                "warning",
                "The cost cap of this conversation is reached, so it waits. Raise the cap at the provider, or stop it.",
            )
        return "wait", None

    async def _ended(self, reading: Reading, said: Mapping[str, Any]) -> DriverResult:
        used = usage.difference(self._record.get("usage_before"), usage.snapshot(said.get("usage")))
        if used is not None:
            await self._outlet.put(DriverEvent("usage.updated", used.model_dump(exclude_none=True)))
        ending = Ending(reading, used, self._session.connector, self._turn.model)
        return of_reading(ending, self._failure)

    async def _at_rest(self) -> dict[str, Any] | None:
        """The record of the session once it says, too, that nothing goes on; it may lag a moment behind the stream."""
        for tried in range(CONFIRM_TRIES):
            said = await self._session.calls.retrieve(self._connector, "session", self._session.native_id)
            if said.get("status") in ("idle", "terminated"):
                return said
            await self._session.looking.sleep(min(2.0, 0.1 * 2**tried))
        return None

    # ---- watching ----

    async def _open_stream(self) -> None:
        self._mapper.reconnected()
        self._stream = await self._session.calls.watch(self._connector, self._session.native_id, self._wake.set)
        try:
            await self._stream.opened()
        except (ServiceFault, AgentRuntimeError):
            await self._drop_stream()
            raise

    async def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    async def _listen(self) -> None:
        """Tell what a stream gives until there is reason to look into the saved history."""
        asked_to_stop = self._stopping
        if self._due:
            self._due = False
            return
        while True:
            stream = self._stream
            if stream is None:
                return
            self._wake.clear()
            ended = stream.ended
            looks = False
            for event in stream.take():
                self._quiet = 0
                looks = await self._heard(event) or looks
            if looks or (self._stopping and not asked_to_stop):
                return
            if ended:
                await self._stream_ended(stream)
                return
            await self._wake.wait()

    async def _heard(self, event: Mapping[str, Any]) -> bool:
        """Take an event of the stream; whether it is to be looked into the saved history."""
        kind = event.get("type")
        if kind == "error":
            await self._drop_stream()
            return True
        if kind == "user.message" and event.get("processed_at") is None:
            return False
        await self._tell(event)
        return kind in _TELLING

    async def _tell(self, event: Mapping[str, Any]) -> None:
        for told in self._mapper.take(event):
            await self._outlet.put(told)

    async def _stream_ended(self, stream: EventStream) -> None:
        fault = stream.fault
        await self._drop_stream()
        if fault is not None and fault.own_code == EVENT_TOO_LARGE:
            await self._say_once(
                EVENT_TOO_LARGE,
                EVENT_TOO_LARGE,
                "warning",
                f"{SERVICE} sent an event larger than Remuda reads. What is saved there is read instead.",
            )
        self._quiet += 1
        await self._pause(self._quiet)

    async def _blinded(self, fault: ServiceFault) -> None:
        """It could not be looked. It goes on there, so that it is tried again for a while."""
        await self._drop_stream()
        self._blind += 1
        if fault.status == 404:
            raise self._nobody_knows(f"{SERVICE} has no such session any more.")
        if not (fault.may_pass or fault.own_code) or self._blind >= MOST_BLIND:
            raise self._nobody_knows(f"{SERVICE} could not be asked ({fault.kind}), {self._blind} times in a row.")
        await self._pause(self._blind)

    async def _pause(self, times: int, asked_s: float | None = None) -> None:
        pause_s = asked_s or min(LONGEST_PAUSE_S, 0.05 * 2**times)
        await pause(self._session.looking.sleep, pause_s)

    async def _say_once(self, what: str, code: str, level: str, message: str) -> None:
        if what not in self._said:
            self._said.add(what)
            await self._outlet.put(DriverEvent("diagnostic", {"code": code, "level": level, "message": message}))

    # ---- stopping ----

    @property
    def _stopping(self) -> bool:
        return self._stop_asked.is_set()

    @property
    def _stop(self) -> dict[str, Any]:
        stop = self._record.get("stop")
        return stop if isinstance(stop, dict) else {}

    async def _interrupt(self) -> Next:
        """Ask the provider to stop, once; only a request that certainly did nothing is made again."""
        if self._stop.get("event") is not None or self._interrupted:
            return "wait"
        session = self._session
        await self._keep(stop={"event": None, "since": int(time.time())})
        self._interrupted = True
        try:
            stored = await session.calls.send(self._connector, session.native_id, {"type": "user.interrupt"})
        except ServiceFault as fault:
            if not fault.did_nothing:
                # Whether it arrived is seen by its echo.
                return "again"
            self._interrupted = False
            await self._keep(stop=None)
            self._blind += 1
            if self._blind >= MOST_BLIND or not fault.may_pass:
                raise self._nobody_knows(f"{SERVICE} refused to stop it ({fault.kind}).") from None
            await self._pause(self._blind, fault.retry_after_s)
            return "again"
        if text(stored, "id"):
            await self._keep(stop={**self._stop, "event": text(stored, "id")})
        return "again"

    async def _stopped_unread(self) -> DriverResult:
        """Stop a turn that can be neither followed nor answered, since something of it is larger than is read."""
        self._failure = self._failure or not_sent("too_large")
        self._stop_asked.set()
        await self._drop_stream()
        session, fault = self._session, None
        for tried in range(MOST_BLIND):
            try:
                newest = await session.calls.latest(self._connector, session.native_id)
                if is_at_rest(newest, self._stop.get("event")) and await self._at_rest() is not None:
                    await session.keep_unreadable()
                    return failed(of_error(self._failure))
                await self._interrupt()
            except ServiceFault as raised:
                fault = raised
            await self._pause(tried)
        kind = "" if fault is None else f" ({fault.kind})"
        raise self._nobody_knows(f"{SERVICE} was asked to stop what is larger than Remuda reads, and did not{kind}.")

    # ---- host tools ----

    async def _answer(self, pending: tuple[Mapping[str, Any], ...]) -> Next:
        """Execute the calls that are waited for, and tell what came of them."""
        tools = self._turn.tools
        if tools is None:
            self._failure = not_sent("action")
            self._stop_asked.set()
            return "again"
        new = tuple(_request(call) for call in pending if text(call, "id") not in self._known)
        try:
            if not await self._execute(tools, new):
                return "again"
            reading = await self._reading()
            await self._confirm(reading)
            if reading.stage != "calls":
                return "again"
            waiting = [text(call, "id") for call in reading.pending if text(call, "id") in self._known]
            # What was sent and did not arrive is sent again as what it was.
            await tools.delivering(tuple(call_id for call_id in waiting if call_id not in self._unconfirmed))
        except AgentRuntimeError as error:
            self._failure = self._failure or error
            self._stop_asked.set()
            return "again"
        self._unconfirmed.update(waiting)
        for call_id in waiting:
            if not await self._deliver(tools, self._known[call_id]):
                break
        return "again"

    async def _execute(self, tools: ToolChannel, requests: tuple[ToolRequest, ...]) -> bool:
        """Have calls executed; False when the run is to stop before they are done."""
        if not requests:
            return True
        await self._outlet.emptied()
        running: list[ToolRequest] = []

        async def started(request: ToolRequest, arguments: Any) -> None:
            running.append(request)
            about = {**request.about, "id": request.call_id, "name": request.name, "arguments": arguments}
            await self._outlet.put(DriverEvent("tool.started", about))

        async def completed(delivery: ToolDelivery) -> None:
            running.clear()
            await self._outlet.put(_completed(delivery))

        try:
            deliveries = await self._unless_stopped(tools.execute(requests, started, completed))
        except AgentRuntimeError:
            for request in running:
                await self._outlet.put(_interrupted(request))
            raise
        if deliveries is None:
            for request in running:
                await self._outlet.put(_interrupted(request))
            return False
        self._known.update({delivery.call_id: delivery for delivery in deliveries})
        return True

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        doing = asyncio.ensure_future(work)
        try:
            while not doing.done() and not self._stopping:
                self._wake.clear()
                waking = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({doing, waking}, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})
            # There may be something to take that nobody waited for.
            self._wake.set()
        return None if doing.cancelled() else doing.result()

    async def _deliver(self, tools: ToolChannel, delivery: ToolDelivery) -> bool:
        """Send one result, once; whether it goes on with the next one."""
        call_id, session = delivery.call_id, self._session
        tries = self._tries[call_id] = self._tries.get(call_id, 0) + 1
        if tries > MOST_TRIES:
            raise self._nobody_knows(f"The result of a call could not be handed over, {MOST_TRIES} times.")
        said = {
            "type": "user.custom_tool_result",
            "custom_tool_use_id": call_id,
            "content": [{"type": "text", "text": result_text(delivery)}],
            "is_error": not delivery.success,
        }
        try:
            await session.calls.send(self._connector, session.native_id, said)
        except ServiceFault as fault:
            if fault.did_nothing and not fault.may_pass and tries > 1:
                # Refused for what it is, and still waited for: it will never be taken.
                self._failure = not_sent("result")
                self._stop_asked.set()
                return False
            # The saved history says whether it arrived, and whether it is still waited for.
            await self._pause(tries, fault.retry_after_s)
            return False
        self._told(tools, (call_id,))
        return True

    async def _confirm(self, reading: Reading) -> None:
        """What the saved history shows as answered was told."""
        tools = self._turn.tools
        if tools is None:
            return
        for earlier in tools.earlier:
            call_id = earlier.request.call_id
            if earlier.told is not None or call_id in self._looked_after or call_id not in reading.answered:
                continue
            self._looked_after.add(call_id)
            if await self._execute(tools, (earlier.request,)):
                await tools.delivering((call_id,))
                self._unconfirmed.add(call_id)
        confirmed = tuple(sorted(self._unconfirmed & reading.answered))
        if confirmed:
            self._told(tools, confirmed)

    def _told(self, tools: ToolChannel, call_ids: tuple[str, ...]) -> None:
        """They are known to have been told. Should they be asked for again, they are answered again."""
        self._unconfirmed.difference_update(call_ids)
        for call_id in call_ids:
            self._known.pop(call_id, None)
            self._tries.pop(call_id, None)
        tools.delivered(call_ids)

    # ---- inside ----

    @property
    def _connector(self) -> str:
        return self._session.connector.name

    async def _keep(self, **changed: Any) -> None:
        self._record = {**self._record, **changed}
        await self._session.keep_run(self._turn.run_id, self._record)

    def _nobody_knows(self, why: str) -> AgentSessionRecoveryError:
        return AgentSessionRecoveryError(
            f"{why} Whether {SERVICE} works on it, or what came of it, is not known; it was not sent again. "
            "Look again later.",
            session_id=self._session.session_id,
            run_id=self._turn.run_id,
        )


def _how_far(looked: Looked) -> str:
    return f"What the provider saved was looked through {looked.in_words()}, and it is not there."


def _request(call: Mapping[str, Any]) -> ToolRequest:
    given = json.dumps(thaw(arguments_of(call)), ensure_ascii=False)
    return ToolRequest(key(call), text(call, "name"), given)


def _completed(delivery: ToolDelivery) -> DriverEvent:
    told: dict[str, Any] = {
        **delivery.about,
        "id": delivery.call_id,
        "name": delivery.name,
        "result": delivery.payload if delivery.success else None,
        "error": delivery.error,
        "duration_ms": delivery.duration_ms,
    }
    return DriverEvent("tool.completed", told)


def _interrupted(request: ToolRequest) -> DriverEvent:
    """The end of a call of which it is not known what came."""
    error = "Interrupted; whether it acted is not known."
    told = {"id": request.call_id, "name": request.name, "result": None, "error": error, "duration_ms": None}
    return DriverEvent("tool.completed", told)
