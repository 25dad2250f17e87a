"""One input to a session at OpenAI and what comes of it.

Owns the turn: how its input is sent or found again, its events, the calls of host tools within it, and its end. Must
not know storage or how requests are made. Invariants: an input is sent once, and only after what finds it again is
kept; it is over when OpenAI's record of the turn says so, and by nothing else; a call is answered only while the
retrieved state says that it is waited for, and a result that is saved there is not sent again; to let go sends nothing.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from runtime_host.drivers.base import Turn
from runtime_host.drivers.managed import intents
from runtime_host.drivers.managed.faults import TOO_LARGE, ServiceFault, facts, run_error
from runtime_host.drivers.managed.hurry import heed, pause
from runtime_host.drivers.managed.outlet import Outlet
from runtime_host.drivers.managed.service import EventStream
from runtime_host.drivers.openai_managed import mapping, profile, words
from runtime_host.drivers.openai_managed.api import AgentsApi
from runtime_host.drivers.openai_managed.calls import HostCalls
from runtime_host.drivers.openai_managed.mapping import TERMINAL, TurnMapper
from runtime_host.drivers.openai_managed.profile import DRIVER_ID, SERVICE
from runtime_host.errors import AgentRuntimeError, AgentSessionRecoveryError, StorageError
from runtime_host.events import DriverEvent
from runtime_host.loop.model_apis.reading import text
from runtime_host.results import DriverResult, RunError

if TYPE_CHECKING:
    from runtime_host.drivers.openai_managed.session import OpenAIManagedSession

T = TypeVar("T")

LOOK_AGAIN_S: Final = 0.5
"""How long an event is waited for before the saved state is read, while something of the run is not known yet."""
SENDING_S: Final = 1.0
"""How long a request that is under way may go on when the run is let go of."""
MOST_CANCELS: Final = 3
FAILED_LOOKS: Final = 3
SESSION = "session"

log = logging.getLogger(__name__)


class _OverError(Exception):
    """The run has its result, or is let go of."""


class OpenAIManagedRun:
    """A turn. It is driven by a task of its own.

    Args:
        session: whose turn it is.
        turn: the input.
        rejoins: it was dispatched before, and is found again instead of being sent.
    """

    def __init__(self, session: "OpenAIManagedSession", turn: Turn, *, rejoins: bool) -> None:
        self._session = session
        self._turn = turn
        self._mapper = TurnMapper()
        self._outlet = Outlet()
        self._wake = asyncio.Event()
        self._stream: EventStream | None = None
        self._stop_asked = asyncio.Event()
        self._released = False
        self._sending = False
        self._sent = False
        self._cancels = 0
        self._cancel_taken = False
        self._failed_looks = 0
        self._failure: RunError | None = None
        self._result: DriverResult | None = None
        self._lost: AgentSessionRecoveryError | None = None
        self._calls = HostCalls(
            session, turn, self._mapper, self._outlet, send=self._send_result, on_end=self._calls_over
        )
        self._tick = False
        self._task = asyncio.create_task(self._live(rejoins), name=f"{DRIVER_ID} {turn.run_id}")
        self._task.add_done_callback(self._ended)

    # ---- for the runtime ----

    def events(self) -> AsyncIterator[DriverEvent]:
        """Events until the turn is over, or the run is let go of."""
        return self._outlet.events()

    async def result(self) -> DriverResult:
        """The outcome; waits for it.

        Raises:
            AgentSessionRecoveryError: it is not known what became of the input, or nobody watched any longer.
        """
        await asyncio.wait([self._task])
        if self._result is not None:
            return self._result
        raise self._lost or self._unknown("It is not watched any longer and may go on there.")

    async def cancel(self) -> None:
        """Ask OpenAI to stop; it is over when its record of the turn says so."""
        self._stop()

    async def release(self) -> None:
        """Watch no longer; the turn goes on. A request that is under way may come to its end."""
        self._released = True
        self._wake.set()
        try:
            if not self._task.done():
                await asyncio.wait({self._task}, timeout=SENDING_S if self._sending else LOOK_AGAIN_S / 10)
        finally:
            # Also where nobody waits for this any longer: nothing of it stays behind.
            self._task.cancel()
        await asyncio.wait({self._task})

    @property
    def _stopping(self) -> bool:
        return self._stop_asked.is_set()

    def _stop(self) -> None:
        self._stop_asked.set()
        self._calls.stop()
        self._wake.set()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._outlet.close()
        self._session.run_over(self)
        if not task.cancelled():
            task.exception()

    # ---- the run ----

    async def _live(self, rejoins: bool) -> None:
        heed(self._stop_asked)
        try:
            self._api: AgentsApi = await self._session.api()
            await (self._find() if rejoins else self._dispatch())
            await self._watch()
        except _OverError:
            pass
        except AgentSessionRecoveryError as lost:
            self._lost = lost
        except ServiceFault as fault:
            self._broken(fault)
        except AgentRuntimeError as refused:
            self._refused(refused)
        except Exception as fault:
            # Its kind only: what it holds may be of the provider.
            log.error("%s %s: unexpected %s", DRIVER_ID, self._turn.run_id, type(fault).__name__)
            self._broken(None)
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        await self._calls.stopped()
        await self._close_stream()

    def _broken(self, fault: ServiceFault | None) -> None:
        """A request came to nothing: of an input that was not sent it is known, of any other it is not."""
        if self._sent:
            self._lost = self._unknown("", fault)
        elif fault is None:
            message = "Something went wrong in Remuda. Your message was not sent. The log names the kind of fault."
            self._result = _failed(RunError(code="PROVIDER_FAILED", message=message))
        else:
            self._result = _failed(self._error(fault, "Your message was not sent."))

    def _refused(self, refused: AgentRuntimeError) -> None:
        if self._sent:
            self._lost = self._unknown(refused.message)
            return
        error = RunError(
            code=refused.error_code, message=refused.message, retryable=refused.retryable, details=refused.details
        )
        self._result = _failed(error)

    def _error(self, fault: ServiceFault, means: str) -> RunError:
        return run_error(fault, self._session.connector, SERVICE, self._turn.model, means=means)

    def _unknown(self, why: str, fault: ServiceFault | None = None) -> AgentSessionRecoveryError:
        means = "What became of this message is not known; it may have been worked on. It is not sent again."
        if fault is not None:
            why = self._error(fault, why).message if why else self._error(fault, "Nothing of it is lost there.").message
        return AgentSessionRecoveryError(
            f"{means} {why} Look again later: OpenAI keeps what it did.".replace("  ", " "),
            session_id=self._session.opening.session_id,
            run_id=self._turn.run_id,
            details=facts(fault) if fault is not None else {},
        )

    # ---- sending ----

    async def _dispatch(self) -> None:
        session = self._session
        async with session.lock:
            if self._stopping:
                raise self._over(DriverResult(status="cancelled", finish_reason="cancelled"))
            intent = intents.intended(session.kept, SESSION)
            if not session.native_id and intent is not None:
                # Asked for before, and the answer was lost: it is looked for again, and never asked for again.
                await self._session.keep_made(await self._find_session(intent))
            if session.native_id:
                await self._send_input()
            elif session.opening.options.environment.type == "none":
                await self._create_with_input()
            else:
                await self._create_empty()
                await self._send_input()

    async def _create_with_input(self) -> None:
        """Make the session with the input in it: an environment of none is made no other way."""
        session = self._session
        before = session.kept
        state, intent = intents.intend(session.fixed(self._turn, before), SESSION)
        await session.keep(session.with_run(self._turn.run_id, _record(None), state))
        self._sent = True
        stream = self._api.create_with(session.creation(self._turn, intent), self._turn.text, intent, self._wake.set)
        self._stream = stream
        fault: ServiceFault | None = None
        try:
            await self._while_sending(stream.opened())
            description = await self._first_description(stream)
        except ServiceFault as raised:
            fault, description = raised, None
        if fault is not None and fault.did_nothing:
            self._sent = False
            await session.keep({**before, "runs": dict(before.get("runs", {}))})
            raise fault
        if description is None:
            description = await self._find_session(intent)
        await self._session.keep_made(description)
        await self._verify(description)

    async def _first_description(self, stream: EventStream) -> dict[str, Any] | None:
        """The session as the first event of its stream has it; None when the stream ended without."""
        while True:
            self._wake.clear()
            await self._publish_all(stream)
            described = self._mapper.session
            if described is not None and profile.names_of(described)[0]:
                return described
            if stream.ended or self._stopping or self._released:
                return None
            await self._wake.wait()

    async def _create_empty(self) -> None:
        session = self._session
        before = session.kept
        state, intent = intents.intend(session.fixed(self._turn, before), SESSION)
        await session.keep(state)
        fault: ServiceFault | None = None
        description: dict[str, Any] | None = None
        try:
            description = await self._while_sending(self._api.create(session.creation(self._turn, intent), intent))
        except ServiceFault as raised:
            fault = raised
        if fault is not None and fault.did_nothing:
            await session.keep(before)
            raise fault
        if description is None:
            description = await self._find_session(intent)
        await self._session.keep_made(description)

    async def _find_session(self, intent: str) -> dict[str, Any]:
        """The session whose creation was not answered.

        Raises:
            AgentSessionRecoveryError: it cannot be found, or there are two, and the input went with it.
        """
        looked = await intents.look_for(lambda: self._api.marked(intent), self._session.driver.looking)
        if len(looked.found) != 1 and not self._sent:
            message = (
                "OpenAI was asked for a session and its answer was lost. Your message was not sent: "
                + ("it shows no such session yet" if not looked.found else "it made more than one, and none is used")
                + f". It was looked for {looked.in_words()}. Send it again later, or begin a new session."
            )
            details = {"sessions": list(looked.found)} if looked.found else {}
            raise self._over(_failed(RunError(code=words.SESSION_UNKNOWN, message=message, details=details)))
        if len(looked.found) > 1:
            lost = self._unknown("OpenAI made more than one session for it, so none of them is used.")
            lost.details = {**lost.details, "sessions": list(looked.found)}
            raise lost
        if not looked.found:
            raise self._unknown(f"OpenAI shows no session that was made for it; it was looked for {looked.in_words()}.")
        return await self._api.session(looked.found[0])

    async def _verify(self, description: Mapping[str, Any]) -> None:
        """Go on only with a session that is set up as it was asked for."""
        opening = self._session.opening
        differences = profile.differences(description, opening.definition, opening.options, opening.tools)
        if not differences:
            return
        error = RunError(code=words.ECHO_MISMATCH, message=words.not_as_asked(differences, sent=self._sent))
        if not self._sent:
            raise self._over(_failed(error))
        self._failure = self._failure or error
        self._stop()

    async def _send_input(self) -> None:
        session, turn = self._session, self._turn
        await self._listen()
        description = await session.idle(self._api)
        if isinstance(description, RunError):
            raise self._over(_failed(description))
        await self._verify(description)
        await self._while_sending(session.set_model(self._api, turn))
        boundary = await self._api.newest_turn(session.native_id)
        record = _record(boundary)
        before = session.kept
        await session.keep(session.with_run(turn.run_id, record))
        self._sent = True
        message = {
            "type": "agent.session.input.message",
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": turn.text}]}],
        }
        fault: ServiceFault | None = None
        try:
            await self._while_sending(self._api.send(session.native_id, message, record["input_key"]))
        except ServiceFault as raised:
            fault = raised
        if fault is None:
            return
        if fault.did_nothing:
            self._sent = False
            await session.keep(before)
            raise fault
        await self._find_turn(record)

    async def _listen(self) -> None:
        """Open the stream ahead of the input; where that fails for now, what is saved is read until there is one."""
        self._stream = self._api.stream(self._session.native_id, self._wake.set)
        try:
            await self._stream.opened()
        except ServiceFault as fault:
            if not fault.may_pass:
                raise
            await self._close_stream()

    async def _while_sending(self, request: Awaitable[T]) -> T:
        """Wait for a request that changes something; who lets go of the run gives it a moment."""
        self._sending = True
        try:
            return await request
        finally:
            self._sending = False

    # ---- finding again ----

    async def _find(self) -> None:
        """What became of an input that was dispatched before."""
        session = self._session
        record = session.run_record(self._turn.run_id)
        if record is None:
            if not self._turn.may_send:
                raise self._over(_failed(_not_sent()))
            await self._dispatch()
            return
        self._sent = True
        if record.get("stop"):
            self._stop_asked.set()
        intent = intents.intended(session.kept, SESSION)
        if not session.native_id:
            if intent is None:
                raise self._over(_failed(_not_sent()))
            await self._session.keep_made(await self._find_session(intent))
        description = await self._described()
        opening = session.opening
        differences = (
            profile.differences(description, opening.definition, opening.options, opening.tools) if description else ()
        )
        if differences:
            raise self._unknown(words.not_as_asked(differences, sent=True, rejoined=True))
        turn_id = text(record, "turn")
        if turn_id:
            await self._adopt(turn_id)
            return
        await self._find_turn(record)

    async def _find_turn(self, record: Mapping[str, Any]) -> None:
        """The turn that an input began whose acceptance was not seen.

        Raises:
            AgentSessionRecoveryError: it cannot be found.
        """
        boundary = text(record, "boundary") or None
        looked = await intents.look_for(lambda: self._turns_of_the_input(boundary), self._session.driver.looking)
        if not looked.found:
            raise self._unknown(f"OpenAI shows no turn that it began; it was looked for {looked.in_words()}.")
        await self._adopt(looked.found[0])

    async def _turns_of_the_input(self, boundary: str | None) -> list[str]:
        """Turns after the boundary whose input is this one."""
        session_id, found = self._session.native_id, []
        for turn in await self._api.turns_after(session_id, boundary):
            items = (await self._api.items(session_id, text(turn, "id"))).entries
            said = [i for i in items if text(i, "type") == "message" and text(i, "role") == "user"]
            if any(mapping.message_text(item) == self._turn.text for item in said):
                found.append(text(turn, "id"))
        return found

    async def _adopt(self, turn_id: str) -> None:
        """From now on this is the turn."""
        for event in self._mapper.now(turn_id):
            await self._outlet.put(event)
        session = self._session
        record = session.run_record(self._turn.run_id)
        if record is not None and record.get("turn") != turn_id:
            await session.keep(session.with_run(self._turn.run_id, {**record, "turn": turn_id}))

    async def _recognise(self) -> None:
        """Find the turn that the input began: the first one after the boundary."""
        record = self._session.run_record(self._turn.run_id) or {}
        boundary = text(record, "boundary")
        found = next((turn_id for turn_id in self._mapper.roots if turn_id != boundary), "")
        if found:
            await self._adopt(found)

    # ---- watching ----

    async def _watch(self) -> None:
        """Read events and saved state until the turn is over."""
        patience, tried = self._session.driver.reconnecting, 0
        while True:
            fault: ServiceFault | None = None
            try:
                if self._stream is None:
                    self._mapper.gap()
                    self._stream = self._api.stream(self._session.native_id, self._wake.set)
                    await self._unless_let_go(self._stream.opened())
                    await self._look(whole=True)
                tried = 0
                fault = await self._follow(self._stream)
            except ServiceFault as raised:
                fault = raised
            await self._close_stream()
            tried += 1
            if fault is not None and not await self._may_go_on(fault):
                raise fault
            wait_s = patience.wait_s(tried, None if fault is None else fault.retry_after_s)
            if wait_s is None:
                raise fault or self._unknown("OpenAI ends every stream of its events at once.")
            if tried > 1 or fault is not None:
                await self._unless_let_go(pause(patience.sleep, wait_s))

    async def _may_go_on(self, fault: ServiceFault) -> bool:
        if not fault.own_code:
            return fault.may_pass or not fault.did_nothing
        message = "OpenAI sent more at once than Remuda reads. What it has saved is read instead."
        await self._outlet.put(
            DriverEvent("diagnostic", {"code": fault.own_code, "level": "warning", "message": message})
        )
        return True

    async def _follow(self, stream: EventStream) -> ServiceFault | None:
        """Take events until the stream ends; why it did."""
        while True:
            self._wake.clear()
            if self._released:
                raise _OverError
            had_ended = stream.ended
            await self._publish_all(stream)
            if not self._mapper.turn_id:
                await self._recognise()
            self._calls.confirm()
            await self._attend()
            if had_ended:
                return stream.fault
            await self._waited()

    async def _attend(self) -> None:
        """Look where an event or the time asks for it, and send a cancel that is due."""
        if self._mapper.wants_a_look or self._tick:
            self._mapper.wants_a_look = self._tick = False
            await self._look(whole=self._calls.owes_proof)
        if self._stopping:
            await self._ask_to_cancel()

    async def _waited(self) -> None:
        """Wait for the next event; not for long while something is to be found out of the saved state."""
        settled = self._mapper.turn_id and not self._stopping and not self._calls.owes_proof
        try:
            async with asyncio.timeout(None if settled else LOOK_AGAIN_S):
                await self._wake.wait()
        except TimeoutError:
            self._tick = True

    async def _unless_let_go(self, waiting: Awaitable[T]) -> T:
        """What is waited for, unless the run is let go of first."""
        task = asyncio.ensure_future(waiting)
        try:
            while not task.done():
                if self._released:
                    raise _OverError
                self._wake.clear()
                woken = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({task, woken}, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
            return task.result()
        finally:
            task.cancel()

    async def _publish_all(self, stream: EventStream) -> None:
        for event in stream.take():
            for told in self._mapper.event(event):
                await self._outlet.put(told)

    async def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    # ---- what is saved ----

    async def _look(self, *, whole: bool) -> None:
        """Read what OpenAI has saved and act on it.

        Raises:
            _OverError: the turn is over.
        """
        session_id = self._session.native_id
        description = await self._described()
        if not self._mapper.turn_id:
            record = self._session.run_record(self._turn.run_id) or {}
            turns = await self._api.turns_after(session_id, text(record, "boundary") or None)
            if turns:
                await self._adopt(text(turns[0], "id"))
        turn_id = self._mapper.turn_id
        if turn_id:
            turn = await self._api.turn(session_id, turn_id)
            if text(turn, "status") in TERMINAL:
                await self._take_rest()
                await self._finish(turn)
            if whole:
                await self._take_saved(turn_id)
        if text(description, "status") == "failed":
            self._session_failed()
        if turn_id:
            self._act(description)

    async def _described(self) -> dict[str, Any]:
        """The session's record. Where it is longer than is read, {}: then what it waits for is never answered."""
        try:
            return await self._api.session(self._session.native_id)
        except ServiceFault as fault:
            if fault.own_code != TOO_LARGE:
                raise
        if not self._stopping:
            self._failure = self._failure or words.too_large()
            self._stop()
        return {}

    async def _take_rest(self) -> None:
        """What the stream still carries of a turn that is over, so that it is told piece by piece as it came."""
        stream, loop = self._stream, asyncio.get_running_loop()
        until = loop.time() + LOOK_AGAIN_S
        while stream is not None and not self._mapper.ended and not self._released:
            self._wake.clear()
            had_ended = stream.ended
            await self._publish_all(stream)
            if had_ended or self._mapper.ended or loop.time() >= until:
                return
            try:
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _take_saved(self, turn_id: str) -> tuple[list[dict[str, Any]], bool]:
        walked = await self._api.items(self._session.native_id, turn_id)
        for event in self._mapper.saved(walked.entries):
            await self._outlet.put(event)
        self._calls.confirm()
        return walked.entries, walked.whole

    def _session_failed(self) -> None:
        self._failed_looks += 1
        if self._failed_looks < FAILED_LOOKS:
            self._mapper.wants_a_look = True
            return
        error = RunError(
            code=words.SESSION_FAILED,
            message="OpenAI says that the session has failed. What had arrived is kept. Begin a new session.",
        )
        raise self._over(_failed(self._failure or error))

    async def _finish(self, turn: Mapping[str, Any]) -> None:
        """The turn is over: read all that is saved of it, and say what it came to."""
        turn_id = text(turn, "id")
        # Nobody waits for the results of calls any more.
        await self._calls.stopped()
        items, whole = await self._take_saved(turn_id)
        answer = mapping.answer_of(items, turn_id)
        usage = mapping.usage_of(turn)
        status = text(turn, "status")
        more: dict[str, Any] = {"output_text": answer, "usage": usage}
        if status == "failed" or self._failure is not None:
            error = self._failure or words.turn_error(turn)
            if error.details.get("provider_code") == "max_output_tokens":
                raise self._over(DriverResult(status="incomplete", finish_reason="max_output_tokens", **more))
            raise self._over(_failed(error, **more))
        if status == "cancelled":
            raise self._over(DriverResult(status="cancelled", finish_reason="cancelled", **more))
        more["artifacts"] = await self._artifacts(turn_id)
        if not whole:
            raise self._over(DriverResult(status="incomplete", finish_reason="answer_too_large", **more))
        raise self._over(DriverResult(status="completed", finish_reason="completed", **more))

    async def _artifacts(self, turn_id: str) -> tuple[Any, ...]:
        session_id, environment_id = self._session.native_id, self._session.environment_id
        if not environment_id:
            return ()
        try:
            listing = await self._api.artifacts(session_id, environment_id)
        except ServiceFault as fault:
            log.info("%s: artifacts not listed (%s)", DRIVER_ID, fault.kind)
            message = "Which files the agent made could not be listed. They stay at OpenAI with the session."
            about = {"code": "ARTIFACTS_NOT_LISTED", "level": "warning", "message": message}
            await self._outlet.put(DriverEvent("diagnostic", about))
            return ()
        return mapping.artifacts_of(
            listing.entries, session_id=session_id, turn_id=turn_id, environment_id=environment_id
        )

    # ---- calls ----

    def _act(self, description: Mapping[str, Any]) -> None:
        """Answer the calls that the retrieved session waits for; refuse whatever else it waits for."""
        if self._stopping or self._released:
            return
        actions = profile.actions_of(description)
        others = mapping.other_actions(actions)
        if others or not self._calls.take(actions):
            self._failure = self._failure or words.refused_action(others[0] if others else "function_call")
            self._stop()

    async def _send_result(self, event: Mapping[str, Any], name: str) -> None:
        """Send what a call came to. `name`: of the result within the run, the same whenever it is sent."""
        session = self._session
        record = session.run_record(self._turn.run_id) or {}
        key = str(uuid.uuid5(uuid.UUID(record["input_key"]), name))
        async with session.lock:
            await self._while_sending(self._api.send(session.native_id, event, key))

    def _calls_over(self, error: BaseException | None) -> None:
        """The calls that were at work came to their end, or could not be told."""
        if isinstance(error, ServiceFault):
            self._failure = self._failure or self._error(error, "What a tool came to could not be told to the agent.")
        elif isinstance(error, AgentRuntimeError):
            said = RunError(code=error.error_code, message=error.message, details=error.details)
            self._failure = self._failure or said
        elif error is not None:
            log.error("%s %s: unexpected %s", DRIVER_ID, self._turn.run_id, type(error).__name__)
            message = "Something went wrong in Remuda while a tool was at work. The log names the kind of fault."
            self._failure = self._failure or RunError(code="PROVIDER_FAILED", message=message)
        if error is not None:
            self._stop_asked.set()
        self._mapper.wants_a_look = True
        self._wake.set()

    # ---- stopping ----

    async def _ask_to_cancel(self) -> None:
        """Ask once that the turn is stopped; again, under the same key, only where that was not taken."""
        session, turn_id = self._session, self._mapper.turn_id
        if not turn_id or self._cancels >= MOST_CANCELS or self._cancel_taken:
            # It names no turn, so it waits until there is one that it can only mean.
            return
        async with session.lock:
            turn = await self._api.turn(session.native_id, turn_id)
            if text(turn, "status") in TERMINAL:
                self._mapper.wants_a_look = True
                self._wake.set()
                return
            record = session.run_record(self._turn.run_id) or {}
            if not record.get("stop"):
                try:
                    await session.keep(session.with_run(self._turn.run_id, {**record, "stop": True}))
                except StorageError:
                    # What is to stop is stopped all the same.
                    log.warning("%s %s: a stop could not be kept", DRIVER_ID, self._turn.run_id)
            self._cancels += 1
            key = str(uuid.uuid5(uuid.UUID(record["input_key"]), "cancel"))
            try:
                await self._while_sending(
                    self._api.send(session.native_id, {"type": "agent.session.input.cancel"}, key)
                )
                self._cancel_taken = True
            except ServiceFault as fault:
                log.info("%s: a cancel was not taken (%s)", DRIVER_ID, fault.kind)
                if self._cancels == MOST_CANCELS:
                    raise

    def _over(self, result: DriverResult) -> _OverError:
        self._result = result
        return _OverError()


def _record(boundary: str | None) -> dict[str, Any]:
    """What is kept of a run before its input is sent."""
    return {"input_key": str(uuid.uuid4()), "boundary": boundary, "turn": None}


def _failed(error: RunError, **more: Any) -> DriverResult:
    return DriverResult(status="failed", error=error, finish_reason="native_error", **more)


def _not_sent() -> RunError:
    """Of an input of which nothing was kept: that is done before anything of it is sent."""
    return RunError(
        code=words.INPUT_NOT_SENT,
        message="The program ended before this message was sent. Nothing came of it. Send it again.",
        retryable=True,
    )
