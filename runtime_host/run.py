"""A run: the handle a caller holds, and the driving of it from admission to its durable end.

Owns the pump, cancel and wall time, the cleanup windows, the checkpoints and the last transaction. Must
not know other runs, connectors or who reads. Invariants:

- The input is dispatched once, after `dispatched` is durable.
- The pump waits for nobody who reads. It waits for the disk where a harness is faster than it for long, because
  what is not durable is held in memory.
- `run.finished` is the last event, published only after result and items are durable together; a run
  whose end is not known publishes none, and nothing is sent again.
- Once asked to stop, a run is never `completed`.
- A run at a service is watched from here and not driven: let go of, it goes on there; joined again, its input is not
  sent, and what was published before is not published twice.
- A run that waits for a person has no task, timer, lease or native side; taken up again, it goes on as after a restart.
"""

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

import msgspec

from runtime_host import outbox
from runtime_host.abort import AbortSignal
from runtime_host.admission import (
    SEQUENCE_BLOCK,
    StoredImage,
    mark_dispatched,
    reserve_sequences,
    run_parts,
    run_reasoning,
    run_schema,
    whole_image,
)
from runtime_host.canonical import clean_text, freeze
from runtime_host.capabilities import Support
from runtime_host.definitions import ImagePart, InputPart, ReasoningConfig, SessionOptions, WorkspaceFilePart
from runtime_host.drivers.base import (
    DriverRun,
    DriverSession,
    RejoinableRun,
    RejoinableSession,
    TranscriptMessage,
    Turn,
)
from runtime_host.errors import (
    AgentCapabilityUnsupportedError,
    AgentClosedError,
    AgentDriverConfigurationError,
    AgentNativeExecutionError,
    AgentRuntimeError,
    AgentRunTimeoutError,
    AgentSessionRecoveryError,
    AgentStructuredOutputError,
    AgentWorkspaceError,
    StorageError,
)
from runtime_host.events import AgentEvent
from runtime_host.intake import OUTSIDE_WORKSPACE, Intake, NotAnEventError, Redactor
from runtime_host.journal import Journal, admitted_types
from runtime_host.loop import lane
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.recovery import (
    ASKED_AGAIN,
    ASKED_AGAIN_WORDS,
    FOUND_OUT,
    FOUND_OUT_WORDS,
    REOPENED,
    UNKNOWN_CODE,
    UNKNOWN_TERMINATION,
    TakenUp,
    is_written,
    park,
    read_back,
    rejoin,
    resume,
    take_up,
)
from runtime_host.redaction import Published
from runtime_host.results import AgentResult, Artifact, Bounded, DriverResult, RunError, all_changes, bounded
from runtime_host.run_lane import RunLane
from runtime_host.states import (
    ENDED_RUN_STATES,
    RunState,
    RunStep,
    next_run_state,
)
from runtime_host.storage.base import (
    OPEN_PHASES,
    STOP_ASKED,
    AgentStore,
    AgentTx,
    ItemState,
    RunRecord,
    session_fact,
)
from runtime_host.structured import judge, sentence
from runtime_host.tools.base import CallHeldError, RunCompletion
from runtime_host.tools.calls import RunChannel, SessionTools
from runtime_host.transcript import OpenItem, Transcript, bound_text, write_items
from runtime_host.workspace import Workspace, inside, resolve_file

_log = logging.getLogger("runtime_host.run")

T = TypeVar("T")

PUMP_TURN_EVENTS: Final = 256
"""Events taken before the loop gets its turn, however fast a driver yields."""
IMAGES_AGAIN_BYTES: Final = 16 * 1024 * 1024
"""Of pictures of earlier inputs, sent again with each request; of older ones the words alone go."""
SETTLE_S: Final = 0.05
"""How long a completed item may wait for others, or for the end of the run, to share their commit."""
UNWRITTEN_CHARS: Final = 256 * 1024
"""Text taken and not yet durable at which the pump waits for the disk."""
_MARK_SLACK: Final = 16 * PUMP_TURN_EVENTS

WAITS: Final = (
    "This run waits for a person's decision. It goes on when that is made, in this session or after a restart."
)

_STEP_OF: Final[dict[str, RunStep]] = {"completed": "complete", "incomplete": "cut_short", "failed": "fail"}
_ITEM_END: Final[dict[RunState, ItemState]] = {
    "completed": "complete",
    "incomplete": "stopped",
    "cancelled": "stopped",
    "failed": "failed",
    "unknown": "unknown",
}

GOES_ON_THERE: Final = (
    "This run goes on at its service, without this program. Resume its session to see what has become of it."
)

NOT_SENT: Final = "The session was let go of before this message was sent. It is sent when the session is resumed."

Ending = Literal["durable", "not_stored", "unconfirmed", "abandoned", "parked", "left"]
"""How a run left its session: over and stored; over but not stored; perhaps still going on natively;
not ended at all, because the loop or this library did; waiting for a person; or going on at a service, unwatched."""


class Windows(NamedTuple):
    """How long the runtime waits for a native side.

    Attributes:
        cleanup_s: for each of: the cancel call, a late startup, the confirmation of the end, closing.
        forget_s: for the removal of what a harness keeps of a session.
        checkpoint_s: between two checkpoints of open text, while text arrives.
    """

    cleanup_s: float = 2.0
    checkpoint_s: float = 1.0
    forget_s: float = 15.0


class RunSeat(NamedTuple):
    """What a session gives a run to work with.

    Attributes:
        reference: locator of the session, for errors.
        ended: called once, before the result can be had.
        tools: host tools of the session.
        workspace: the folder that the session works in, held by this run.
        structured_output: how the harness carries schemas.
        resumes, parks, rejoins: what the driver says of itself.
        settle_s: how long its far side may take to confirm an end.
    """

    session_id: str
    driver_id: str
    reference: dict[str, Any]
    options: SessionOptions
    store: AgentStore
    driver_session: DriverSession
    redactor: Redactor
    windows: Windows
    journal_bytes: int
    ended: "Callable[[Run, Ending], None]"
    tools: SessionTools | None = None
    workspace: Workspace | None = None
    structured_output: Support = "unsupported"
    resumes: bool = False
    parks: bool = False
    rejoins: bool = False
    settle_s: float = 0.0


class SteerSeat(NamedTuple):
    """What a session gives a run so that something can be said to it.

    Attributes:
        takes: whether its harness takes what is said while it answers.
        changed: called after what waits to be said has changed.
    """

    store: AgentStore
    takes: bool
    changed: Callable[[], None]


class _Outcome(NamedTuple):
    """How the native side ended, before anything of it is written. `held`: calls that a person has to decide."""

    step: RunStep
    result: DriverResult | None = None
    error: RunError | None = None
    finish_reason: str | None = None
    held: tuple[str, ...] = ()


class _WindowPassedError(Exception):
    """The native side did not answer within the cleanup window."""


class Run:
    """One admitted input and what becomes of it. Obtained from `Session.run` or `Session.get_run`."""

    def __init__(self, record: RunRecord, *, reference: dict[str, Any], journal: Journal) -> None:
        self._record = record
        self._reference = reference
        self._state: RunState = "waiting" if record.phase == "parked" else record.phase
        self.journal = journal
        self._settled = asyncio.Event()
        self._result: AgentResult | None = None
        self._lost_because = ""
        self._drive: _Drive | None = None
        self._withdrawn = False
        self._forget_signals: list[Callable[[], None]] = []
        self.inbox = asyncio.Lock()
        """Held while what waits to be said to the run is taken or changed."""
        self._steer_seat: SteerSeat | None = None
        self._spoken_to = record.phase != "admitted"
        self._quiet = asyncio.Event()
        """Set while nothing of it goes on: it has ended, or waits for a person."""
        self._stop_parked: Callable[[], None] | None = None
        self._decided = False
        if record.phase == "parked":
            self._quiet.set()

    @classmethod
    def restored(cls, record: RunRecord, *, reference: dict[str, Any]) -> "Run":
        """The handle of a run that ended in an earlier process: its result, without its events."""
        journal = Journal(
            run_id=record.run_id,
            session_id=record.session_id,
            budget_bytes=1024,
            first_sequence=record.sequence_mark + 1,
        )
        journal.expire()
        run = cls(record, reference=reference, journal=journal)
        if record.result is not None:
            run._result = AgentResult.model_validate(record.result)
        else:
            run._state = "unknown"
            run._lost_because = "What became of this message is not known. It was not sent again."
        run._end()
        return run

    # ------------------------------------------------------------------------------------- public

    @property
    def run_id(self) -> str:
        return self._record.run_id

    @property
    def session_id(self) -> str:
        return self._record.session_id

    @property
    def created_ms(self) -> int:
        """When it was admitted."""
        return self._record.created_ms

    @property
    def state(self) -> RunState:
        return self._state

    @property
    def done(self) -> bool:
        """Whether `result` answers at once."""
        return self._settled.is_set()

    def events(self, after_sequence: int = 0) -> AsyncIterator[AgentEvent]:
        """Events after a cursor, to the end of the run; before, during and after it, for any number of readers.

        Raises:
            ValueError: the cursor is not one of this run.
            AgentEventHistoryExpiredError: what followed the cursor is no longer kept.
        """
        # Here too, so that a cursor is refused at the call and not at the first event.
        self.journal.check_cursor(after_sequence)
        return self.journal.follow(after_sequence)

    def open_items(self) -> list[OpenItem]:
        """Items that the store does not have as they are now. Ask before reading the store; the store wins."""
        return self._drive.transcript.open_items() if self._drive is not None else []

    async def result(self) -> AgentResult:
        """The result, once it is durable.

        Raises:
            AgentSessionRecoveryError: what became of the input is not known.
        """
        await self._settled.wait()
        if self._result is None:
            raise AgentSessionRecoveryError(
                self._lost_because,
                session_id=self.session_id,
                run_id=self.run_id,
                details={"reference": self._reference, "run_id": self.run_id},
            )
        return self._result

    async def cancel(self) -> None:
        """Stop the run; returns once it has ended. Calling it again, or after the end, does nothing more.

        Raises:
            AgentSessionRecoveryError: the native side did not confirm its end.
        """
        self.ask_stop()
        await self.result()

    @property
    def parked(self) -> bool:
        """Whether it waits for a person, and nothing of it goes on meanwhile."""
        return self._state == "waiting"

    async def wait_settled_or_parked(self) -> bool:
        """Wait until it has ended or waits for a person; whether it has ended."""
        await self._quiet.wait()
        return self.done

    async def steer(self, text: str, request_id: str | None = None, *, taking: str | None = None) -> str:
        """Say something to the harness while it answers. It reaches the model before its next request.

        Nothing that goes on is stopped by it. Of a run that waits for a person it is kept for when it goes on; one
        that has ended by then leaves it to be sent as the next message.

        Args:
            text: the words.
            request_id: makes a repeated call the same words.
            taking: the id of a queued message whose words these are; in the same commit it is queued no more.

        Returns:
            the id under which it waits to be said; it is durable.

        Raises:
            AgentCapabilityUnsupportedError: the harness takes nothing before it has answered.
            AgentClosedError: the run has ended.
            AgentDriverConfigurationError: there are no words, too many, or too many wait already.
            StorageError: it is not kept.
        """
        seat = self._steer_seat
        if seat is None or not seat.takes:
            raise self._unsupported("run.steer")
        if not text.strip() or len(text) > lane.INBOX_CHARS:
            raise AgentDriverConfigurationError("There is no text to send, or too much.", details={"field": "text"})
        if self.done:
            raise AgentClosedError("This answer has ended. Send it as a message.", details={"run_id": self.run_id})
        session_id, run_id, key = self.session_id, self.run_id, request_id or lane.new_id("steer")

        def put(tx: AgentTx) -> str | None:
            known = tx.run(run_id)
            if known is None or known.phase not in ("admitted", "dispatched", "parked"):
                return None
            if taking is not None and not lane.remove(tx, session_id, taking, _now_ms()):
                raise ValueError("That message is said or removed by now.")
            row = lane.put(
                tx, session_id=session_id, kind="steer", text=text, dedup_key=key, run_id=run_id, now_ms=_now_ms()
            )
            return row.inbox_id

        try:
            inbox_id = await seat.store.transact(put)
        except ValueError as full:
            raise AgentDriverConfigurationError(str(full)) from None
        if inbox_id is None:
            raise AgentClosedError("This answer has ended. Send it as a message.", details={"run_id": self.run_id})
        self._spoken_to = True
        if self._drive is not None:
            self._drive.spoken_to()
        seat.changed()
        return inbox_id

    async def respond_to_interaction(self, interaction_id: str, response: Mapping[str, Any]) -> None:
        """Answer a question of the harness.

        Raises:
            AgentCapabilityUnsupportedError: it asks none.
        """
        raise self._unsupported("run.interaction")

    def _unsupported(self, capability: str) -> AgentCapabilityUnsupportedError:
        return AgentCapabilityUnsupportedError(
            "This harness takes nothing while it answers. Stop it, or wait until it has ended.",
            details={"capability": capability, "run_id": self.run_id},
        )

    # ------------------------------------------------------------------- for the session that owns it

    def can_be_steered(self, seat: SteerSeat) -> None:
        """Where what is said to it is kept."""
        self._steer_seat = seat

    def begin(self, seat: RunSeat) -> None:
        """Drive the run. Called by its session, once, and once more each time it goes on after it was parked."""
        self._quiet.clear()
        self._decided = False
        self._drive = _Drive(self, seat)
        self._drive.begin()
        if self._withdrawn:
            self.ask_stop()

    def ask_stop(self) -> None:
        """As `cancel`, without waiting for the end."""
        self._withdrawn = True
        if self._drive is not None:
            self._drive.ask_stop("cancelled")
        elif self._stop_parked is not None and self.parked:
            self._stop_parked()

    async def release(self) -> None:
        """Watch it no longer; it goes on at its service. Returns once nothing of it goes on here."""
        if self._drive is not None:
            self._drive.ask_leave()
        await self._settled.wait()

    def stop_with(self, signal: AbortSignal) -> None:
        """Ask for the end when the signal is raised, as long as the run goes on."""
        if not self.done:
            self._forget_signals.append(signal.listen(self.ask_stop))

    def put_back(self) -> None:
        """It waited to be sent, or for a person, and its session was let go of."""
        if self.parked:
            self._stop_parked = None
            self.journal.close()
            self._lose(WAITS)
            return
        self._lose(NOT_SENT)

    def waits_for_person(self, stop: Callable[[], None]) -> None:
        """It is parked. `stop` ends it all the same."""
        self._drive = None
        self._stop_parked = stop
        self._quiet.set()

    @property
    def record(self) -> RunRecord:
        """The run as it is stored, as far as its handle knows."""
        return self._record

    @property
    def was_decided(self) -> bool:
        """Whether a call of it was decided since it went on last."""
        return self._decided

    @property
    def is_withdrawn(self) -> bool:
        """Whether it was asked to stop."""
        return self._withdrawn

    def decided(self) -> None:
        """One of its calls was decided while it is on the way to wait for that."""
        self._decided = True

    async def store_retained(self) -> bool:
        """Store an outcome whose last transaction failed. Sends nothing; says whether it is durable now."""
        return await self._drive.store_retained() if self._drive is not None else False

    async def wait_settled(self) -> None:
        """Wait until the run has ended, known or unknown."""
        await self._settled.wait()

    def _step(self, step: RunStep) -> None:
        self._state = next_run_state(self._state, step)

    def _settle(self, result: AgentResult) -> None:
        self._result = result
        self._end()

    def _lose(self, sentence: str) -> None:
        self._lost_because = sentence
        self._end()

    def _end(self) -> None:
        self._settled.set()
        self._quiet.set()
        for forget in self._forget_signals:
            forget()
        self._forget_signals.clear()


class _Drive:
    """The moving part of a run: one task that dispatches, pumps and ends it."""

    def __init__(self, run: Run, seat: RunSeat) -> None:
        self.run = run
        self.seat = seat
        self._loop = asyncio.get_running_loop()
        limits = seat.options.policy.limits
        self.journal = run.journal
        self._first_position = int(run._record.input["position"]) + 1
        # What is told; what is kept to go on with is masked by the seat's own alone.
        self._published = Published(seat.redactor)
        self.transcript = Transcript(
            session_id=seat.session_id,
            run_id=run.run_id,
            first_position=self._first_position,
            redactor=self._published,
            limit_bytes=limits.output_bytes,
            now_ms=_now_ms,
            rejoins=seat.rejoins,
        )
        self._settle_s = max(seat.windows.cleanup_s, seat.settle_s)
        self._leave_asked: asyncio.Future[None] = self._loop.create_future()
        self._unknown_notice: str | None = None
        self._may_send = False
        self._stop_reason: str | None = None
        self._stop_asked: asyncio.Future[None] = self._loop.create_future()
        self._over = False
        self.intake = Intake(
            journal=self.journal,
            transcript=self.transcript,
            redactor=self._published,
            grown=self._text_grew,
            ended=self._item_ended,
            place=None if seat.workspace is None else functools.partial(inside, seat.workspace.root),
        )
        # Dispatched already: an earlier process left it waiting for results of tools, or it waited for a person.
        self._goes_on = run._record.phase in ("dispatched", "parked")
        self._channel: RunChannel | None = None
        self._lane: RunLane | None = None
        self._changed_before: tuple[Artifact, ...] = ()
        self._sequence_mark = run._record.sequence_mark + SEQUENCE_BLOCK
        self._checkpoint_timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._retained: tuple[AgentResult, RunRecord] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        record = run._record
        self.model = str(record.input.get("model") or seat.options.execution.model)
        self.reasoning: ReasoningConfig | None = run_reasoning(record) or seat.options.execution.reasoning
        self.parts = run_parts(record)
        self.schema = run_schema(record)

        self._main: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._main = self._spawn(self._live())

    def ask_stop(self, reason: str) -> None:
        """Ask for the end. The first reason stands; after the outcome is decided it is too late."""
        if self._stop_reason is None and not self._over:
            self._stop_reason = reason
            self._stop_asked.set_result(None)
            if self.seat.rejoins:
                _ = self._spawn(self._keep_stop())

    def ask_leave(self) -> None:
        """Ask for the end of the watching. After the outcome is decided it is too late."""
        if not self._leave_asked.done() and not self._over:
            self._leave_asked.set_result(None)

    async def _keep_stop(self) -> None:
        """Another process does not send what was asked to stop before it was sent."""
        fact, run_id = session_fact(self.seat.session_id, STOP_ASKED), self.run.run_id

        def keep(tx: AgentTx) -> None:
            if tx.run(run_id) is not None:
                tx.put_fact(fact, {"run_id": run_id})

        try:
            await self.seat.store.transact(keep)
        except StorageError as error:
            _log.warning("that run %s was asked to stop was not written: %s", run_id, error.error_code)

    # ------------------------------------------------------------------------- from dispatch to end

    async def _live(self) -> None:
        try:
            outcome = await self._execute()
            await self._conclude(outcome)
        except asyncio.CancelledError:
            # The loop is going down: what the store says is what a restart will find.
            self._abandon("The program ended before this answer did; what became of it is not known.")
            raise
        except Exception:
            _log.exception("run %s could not be brought to an end", self.run.run_id)
            self._abandon("An error inside the program ended this run; what became of it is not known.")

    async def _execute(self) -> _Outcome:
        if self._goes_on:
            return await self._go_on()
        if self._stop_reason is not None:
            return _Outcome("withdraw")
        if self._leave_asked.done():
            # Not sent yet: that is done when the session is opened again.
            return _Outcome("leave")
        try:
            # What the harness was opened as is durable with it: after a crash the session is found by that.
            state = self._driver_state_if_any()
            dispatched = await self.seat.store.transact(
                lambda tx: mark_dispatched(tx, self.run.run_id, self._sequence_mark, state)
            )
        except StorageError as error:
            return _Outcome("fail", error=_run_error(error, self.seat.driver_id))
        if dispatched is None:
            return _Outcome("fail", error=RunError(code="AGENT_CLOSED", message="The session was deleted."))
        self.run._record, self._first_position = dispatched
        self.transcript.start_at(self._first_position)
        self.run._step("dispatch")
        self._publish_started()
        return await self._begin_timed(None)

    async def _begin_timed(self, taken: TakenUp | None) -> _Outcome:
        try:
            await self._take_seats(taken)
        except AgentRuntimeError as error:
            return self._decide(None, error)
        return await self._timed()

    async def _take_seats(self, taken: TakenUp | None) -> None:
        """Make what the driver is given: the channel for its tools, and its lane."""
        tools, seat, run_id = self.seat.tools, self.seat, self.run.run_id
        if tools is not None:
            # Mounts are what they are now, also for a session that is older than they are.
            await tools.refresh()
            calls = taken.calls if taken is not None else ()
            self._channel = tools.channel(run_id, self._commit_step, calls, parks=seat.parks)
        if seat.resumes:
            self._lane = RunLane(
                session_id=seat.session_id,
                run_id=run_id,
                store=seat.store,
                commit=self._commit_step,
                inbox=self.run.inbox,
                transcript=self.transcript,
                journal=self.journal,
                redactor=seat.redactor,
                said=taken.said if taken is not None else (),
                jobs=taken.jobs if taken is not None else (),
            )
            self._lane.listened = not self.run._spoken_to

    def spoken_to(self) -> None:
        """Something waits to be said to the run."""
        if self._lane is not None:
            self._lane.listened = False

    async def _go_on(self) -> _Outcome:
        """Take the run up where it was left: its input was sent, and what is done next was certainly not done."""
        run_id, mark = self.run.run_id, self._sequence_mark
        resumes, has_tools, rejoins = self.seat.resumes, self.seat.tools is not None, self.seat.rejoins

        def taking(tx: AgentTx) -> TakenUp | None:
            if rejoins:
                return rejoin(tx, run_id, mark)
            if resumes:
                return resume(tx, run_id, mark, _now_ms())
            return take_up(tx, run_id, mark) if has_tools else None

        was_parked = self.run._record.phase == "parked"
        try:
            taken = await self.seat.store.transact(taking)
        except StorageError as error:
            if was_parked:
                return _Outcome("park")
            return _Outcome("lose", error=_run_error(error, self.seat.driver_id))
        if taken is None:
            return _Outcome("lose")
        seen = self.run._record.sequence_mark
        self.run._record = taken.run
        if self.run.state == "waiting":
            self.run._step("take_up")
        self._changed_before = taken.changed
        made = taken.first_position - self._first_position
        self._first_position = taken.first_position
        self.transcript.start_at(self._first_position, made)
        for call_id, item in taken.calls_shown:
            self.transcript.adopt(call_id, item)
        if rejoins:
            self.intake.recognise(taken.known, REOPENED, taken.remarks)
            self._unknown_notice = taken.unknown_notice
            self._may_send = taken.may_send
        self._publish_gone_on(taken, seen)
        return await self._begin_timed(taken)

    def _publish_gone_on(self, taken: TakenUp, seen: int) -> None:
        if self.journal.numbers_taken == seen:
            # Nothing was published in this process.
            self.journal.append(
                "diagnostic",
                {
                    "code": "HISTORY_GAP",
                    "level": "info",
                    "message": "The program was started anew; what this answer published before is no longer kept.",
                    "from": 1,
                    "to": seen,
                },
            )
        if taken.was_parked:
            self.journal.append("run.resumed", {})
        if taken.asked_again:
            # Its notice is in the transcript already.
            self.journal.append("diagnostic", {"code": ASKED_AGAIN, "level": "warning", "message": ASKED_AGAIN_WORDS})

    async def _timed(self) -> _Outcome:
        if self._stop_reason is not None and not (self._goes_on and self.seat.rejoins):
            # One that goes on at a service has to be stopped there.
            self.run._step("stop")
            return _Outcome("cancel")
        wall_time_ms = self.seat.options.policy.limits.wall_time_ms
        timer = self._loop.call_later(wall_time_ms / 1000, self.ask_stop, "timeout") if wall_time_ms else None
        try:
            return await self._dispatch()
        finally:
            if timer is not None:
                timer.cancel()

    async def _dispatch(self) -> _Outcome:
        starting = self._spawn(self._start())
        await self._until_stop_or(starting)
        if not starting.done() and self._stop_reason is not None:
            self.run._step("stop")
            if not await self._ended_in_window(starting) and not self._leave_asked.done():
                return _Outcome("lose")
        if not starting.done() and not await self._ends_within(starting, self.seat.windows.cleanup_s):
            return _Outcome("leave")
        try:
            native = starting.result()
        except asyncio.CancelledError:
            return self._decide(None, AgentNativeExecutionError("The start was abandoned by the harness."))
        except Exception as error:
            # A start that fails has ended.
            return self._decide(None, error)
        if self.run.state == "dispatched":
            self.run._step("started")
        return await self._observe(native)

    async def _start(self) -> DriverRun:
        if any(isinstance(part, WorkspaceFilePart) for part in self.parts):
            await in_own_thread(self._check_files, "look at files")
        parts = await self._whole_parts() if self.parts else ()
        turn = Turn(
            run_id=self.run.run_id,
            text=str(self.run._record.input["text"]),
            model=self.model,
            reasoning=self.reasoning,
            read_transcript=self._read_transcript,
            # Also where nothing is offered: a call of what is not there is answered with why.
            tools=self._channel,
            parts=parts,
            response_format=self.schema,
            metadata=freeze(self.run._record.input.get("metadata") or {}),
            lane=self._lane,
            may_send=self._may_send,
        )
        if self._goes_on and self.seat.rejoins:
            return await cast("RejoinableSession", self.seat.driver_session).rejoin(turn)
        return await self.seat.driver_session.start(turn)

    async def _whole_parts(self) -> tuple[InputPart, ...]:
        """The parts of the input, its pictures with their bytes."""
        session_id, stored = self.seat.session_id, self.parts

        def read(tx: AgentTx) -> tuple[InputPart, ...]:
            return tuple(
                whole_image(tx, session_id, part) if isinstance(part, StoredImage) else part for part in stored
            )

        return await self.seat.store.read(read)

    def _check_files(self) -> None:
        """Refuse a file that became a way out of the workspace since it was admitted."""
        for part in self.parts:
            if isinstance(part, WorkspaceFilePart):
                workspace = self.seat.workspace
                if workspace is None or resolve_file(workspace, part.path, part.media_type).path != part.path:
                    raise AgentWorkspaceError("A file of the message is another one now.", details={"path": part.path})

    async def _read_transcript(self) -> tuple[TranscriptMessage, ...]:
        session_id, end = self.seat.session_id, self._first_position
        run_id, has_tools = self.run.run_id, self.seat.tools is not None

        def read(tx: AgentTx) -> tuple[TranscriptMessage, ...]:
            images = _images_to_send(tx, session_id, run_id)
            return read_back(tx, session_id, end, but=run_id, images=images, with_calls=has_tools)

        return await self.seat.store.read(read)

    async def _observe(self, native: DriverRun) -> _Outcome:
        pump = self._spawn(self._pump(native))
        await self._until_stop_or(pump)
        if not pump.done() and not self._leave_asked.done():
            if self.run.state == "running":
                self.run._step("stop")
            await self._cancel_native(native)
            if not await self._ended_in_window(pump) and not self._leave_asked.done():
                return _Outcome("lose")
        if not pump.done():
            await self._release_native(cast("RejoinableRun", native), pump)
            return _Outcome("leave")
        failure = None if pump.cancelled() else pump.exception()
        if failure is not None:
            # The native side may still be at it: ask it to stop, and believe only its own end.
            await self._cancel_native(native)
        try:
            result = await self._within(native.result())
        except _WindowPassedError:
            return _Outcome("lose")
        except asyncio.CancelledError:
            raise
        except Exception as error:
            return self._decide(None, failure if isinstance(failure, Exception) else error)
        if isinstance(failure, Exception):
            return self._decide(None, failure)
        return self._decide(result, None)

    def _decide(self, result: DriverResult | None, failure: Exception | None) -> _Outcome:
        """What the run came to. From here on nobody can stop it."""
        self._over = True
        driver_id = self.seat.driver_id
        if isinstance(failure, AgentSessionRecoveryError):
            return _Outcome("lose", error=_run_error(failure, driver_id))
        if self._stop_reason is not None and self.run.state in ("running", "dispatched"):
            self.run._step("stop")
        if self._stop_reason == "timeout":
            limit_ms = self.seat.options.policy.limits.wall_time_ms or 0
            error = RunError(
                code=AgentRunTimeoutError.code,
                message=f"The answer took longer than the {limit_ms / 1000:g} s it may take, so it was stopped.",
                retryable=True,
                details={"wall_time_ms": limit_ms},
            )
            return _Outcome("fail", result, error, "timeout")
        if self._stop_reason is not None:
            return _Outcome("cancel", result)
        if isinstance(failure, CallHeldError) and self.seat.parks:
            return _Outcome("park", held=failure.operation_ids)
        if failure is not None:
            return _Outcome("fail", None, _run_error(failure, driver_id), "native_error")
        if not isinstance(result, DriverResult):
            message = f"{driver_id} ended without saying how, so the answer may be incomplete."
            return _Outcome(
                "fail", None, RunError(code="AGENT_STREAM_INCOMPLETE", message=message), "stream_incomplete"
            )
        if result.status == "cancelled":
            # Nobody here asked for it: somebody else stopped it at the source.
            self.run._step("stop")
            return _Outcome("cancel", result)
        error_of_result = result.error
        if result.status == "failed" and error_of_result is None:
            error_of_result = RunError(
                code=AgentNativeExecutionError.code, message=f"{driver_id} failed and did not say why."
            )
        return _Outcome(_STEP_OF[result.status], result, error_of_result, result.finish_reason)

    # -------------------------------------------------------------------------------------- windows

    async def _release_native(self, native: RejoinableRun, pump: "asyncio.Task[None]") -> None:
        window_s = self.seat.windows.cleanup_s
        releasing = self._spawn(native.release())
        if not await self._ends_within(releasing, window_s) or releasing.exception() is not None:
            _log.info("watching of run %s was given up without an end of its own", self.run.run_id)
        if not await self._ends_within(pump, window_s):
            # It is nothing but a reader.
            await asyncio.wait({pump}, timeout=window_s)

    async def _until_stop_or(self, task: "asyncio.Task[Any]") -> None:
        either: set[asyncio.Future[Any]] = {task, self._stop_asked, self._leave_asked}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    async def _cancel_native(self, native: DriverRun) -> None:
        try:
            await self._within(native.cancel())
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # Asking may fail; what counts is whether the native side ends.
            _log.info("cancelling run %s: %s", self.run.run_id, type(error).__name__)

    async def _within(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        # A coroutine is its own task: cancelled before its first step, it ends as one that was awaited.
        task = self._spawn(awaitable if asyncio.iscoroutine(awaitable) else wait())
        if not await self._ended_in_window(task):
            raise _WindowPassedError
        result: T = task.result()
        return result

    async def _ended_in_window(self, task: "asyncio.Task[Any]") -> bool:
        """Whether the far side has confirmed an end in time; asked to leave meanwhile, that is not waited for."""
        either: set[asyncio.Future[Any]] = {task, self._leave_asked}
        await asyncio.wait(either, timeout=self._settle_s, return_when=asyncio.FIRST_COMPLETED)
        ended = task.done()
        if not ended and not self._leave_asked.done():
            task.cancel()
        return ended

    async def _ends_within(self, task: "asyncio.Task[Any]", window_s: float) -> bool:
        done, _ = await asyncio.wait({task}, timeout=window_s)
        if not done:
            task.cancel()
        return bool(done)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Fetched here, because an abandoned task has nobody else who would.
            task.exception()

    # ----------------------------------------------------------------------------------------- pump

    async def _pump(self, native: DriverRun) -> None:
        events = native.events()
        taken = fed = 0
        try:
            async for event in events:
                if self._over:
                    return
                self.intake.take(event)
                taken += 1
                if (
                    taken == PUMP_TURN_EVENTS
                    or self.transcript.unwritten_chars > UNWRITTEN_CHARS
                    or self.transcript.fed_chars - fed > UNWRITTEN_CHARS
                ):
                    taken, fed = 0, self.transcript.fed_chars
                    await asyncio.sleep(0)
                    await self._let_disk_catch_up()
                    if self.journal.numbers_taken > self._sequence_mark - _MARK_SLACK:
                        await self._reserve_sequences()
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()

    async def _let_disk_catch_up(self) -> None:
        """Wait while too much is not durable; not once the run is to stop, nor for a disk that refuses."""
        while self.transcript.unwritten_chars > UNWRITTEN_CHARS and self._stop_reason is None and not self._over:
            writing = self._writing
            if writing is None:
                if self._checkpoint_timer is not None:
                    self._checkpoint_timer.cancel()
                    self._checkpoint_timer = None
                writing = self._writing = self._spawn(self._write_items())
            await self._until_stop_or(writing)

    async def _reserve_sequences(self) -> None:
        mark = self._sequence_mark + SEQUENCE_BLOCK
        await self.seat.store.transact(lambda tx: reserve_sequences(tx, self.run.run_id, mark))
        self._sequence_mark = mark
        self.run._record = msgspec.structs.replace(self.run._record, sequence_mark=mark)

    def _publish_started(self) -> None:
        options = self.seat.options
        self.journal.append(
            "run.started",
            {
                "driver": self.seat.driver_id,
                "configuration": self._configuration(),
                "observation": options.observation.model_dump(mode="json"),
            },
        )

    def _configuration(self) -> dict[str, Any]:
        reasoning = self.reasoning
        return {
            "connector": self.seat.options.execution.connector,
            "model": self.model,
            "reasoning": reasoning.model_dump(mode="json", exclude_none=True) if reasoning is not None else None,
        }

    # --------------------------------------------------------------------------------- checkpoints

    def _text_grew(self) -> None:
        if self._checkpoint_timer is None and self._writing is None:
            self._arm_checkpoint(self.seat.windows.checkpoint_s)

    def _item_ended(self) -> None:
        self._arm_checkpoint(SETTLE_S)

    def _arm_checkpoint(self, delay_s: float) -> None:
        due = self._loop.time() + delay_s
        timer = self._checkpoint_timer
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._checkpoint_timer = self._loop.call_at(due, self._checkpoint)

    def _checkpoint(self) -> None:
        self._checkpoint_timer = None
        if self._writing is None and not self._over:
            self._writing = self._spawn(self._write_items())

    async def _write_items(self) -> None:
        batch = self.transcript.pending_writes()
        try:
            if batch.writes:
                await self.seat.store.transact(lambda tx: write_items(tx, batch.writes))
            self.transcript.acknowledge(batch)
        except StorageError as error:
            # The text is still here; a later transaction writes all of it, or the last says that it could not.
            self.transcript.doubt()
            _log.warning("a checkpoint of run %s was not written: %s", self.run.run_id, error.error_code)
        finally:
            self._writing = None
        if self.transcript.has_ended_items and not self._over:
            self._arm_checkpoint(SETTLE_S)

    async def _commit_step(self, change: Callable[[AgentTx], T]) -> T:
        """Do a change in one transaction with the items that came before it."""
        while self._writing is not None:
            await asyncio.wait({self._writing})
        if self._over:
            return await self.seat.store.transact(change)
        answer: list[T] = []
        writing = self._writing = self._spawn(self._write_step(change, answer))
        # Not cut with whoever waits: what is being written is written.
        await asyncio.wait({writing})
        writing.result()
        return answer[0]

    async def _write_step(self, change: Callable[[AgentTx], T], answer: list[T]) -> None:
        batch = self.transcript.pending_writes()
        answers = self._lane.pending() if self._lane is not None else 0

        def both(tx: AgentTx) -> T:
            write_items(tx, batch.writes)
            self._write_lane(tx, answers)
            return change(tx)

        try:
            answer.append(await self.seat.store.transact(both))
            self.transcript.acknowledge(batch)
            self._lane_written(answers)
        except StorageError:
            self.transcript.doubt()
            raise
        finally:
            self._writing = None

    def _write_lane(self, tx: AgentTx, answers: int) -> None:
        if self._lane is not None:
            self._lane.write(tx, answers)

    def _lane_written(self, answers: int) -> None:
        if self._lane is not None:
            self._lane.written(answers)

    async def _stop_writing(self) -> None:
        self._over = True
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
            self._checkpoint_timer = None
        if self._writing is not None:
            await asyncio.wait({self._writing})

    # ------------------------------------------------------------------------------------- the end

    async def _conclude(self, outcome: _Outcome) -> None:
        if outcome.step == "park":
            await self._park(outcome)
            return
        if outcome.step == "leave":
            await self._leave()
            return
        await self._stop_writing()
        if self.journal.numbers_taken == 0:
            self._publish_started()
        self.intake.flush()
        if outcome.step == "lose":
            await self._conclude_unknown(outcome)
            return
        whole = self._whole_text(outcome.result)
        parsed: Any = None
        if self.schema is not None and outcome.step == "complete" and not self._text_was_cut():
            outcome, parsed = await self._judged(outcome, whole)
        text = self._within_limit(whole)
        cut = text != whole or self._text_was_cut()
        rest = self._bounded(outcome.result, parsed)
        if (cut or rest.cut) and outcome.step == "complete":
            outcome = outcome._replace(step="cut_short", finish_reason="runtime_limit")
        self.run._step(outcome.step)
        self.intake.end_items(_ITEM_END[self.run.state])
        result = self._result(outcome, text, rest)
        if result.error is not None:
            self.transcript.notice(result.error.message, state="failed", code=result.error.code)
        record = msgspec.structs.replace(
            self.run._record,
            phase=result.status,
            finished_ms=_now_ms(),
            result=result.model_dump(mode="json"),
            sequence_mark=self._sequence_mark,
        )
        try:
            await self._store_end(record, self._driver_state(), "open")
        except StorageError as error:
            self._retained = (result, record)
            self.journal.close()
            self.seat.ended(self.run, "not_stored")
            self.run._lose(f"The answer came, but it could not be stored: {error.message} It was not sent again.")
            return
        self.run._record = record
        self.journal.append("run.finished", {"status": result.status, "finish_reason": result.finish_reason})
        self.journal.close()
        # The session takes the next input as soon as anybody can know that this one is over.
        self.seat.ended(self.run, "durable")
        self.run._settle(result)
        if self.seat.tools is not None:
            self.seat.tools.completed(
                RunCompletion(result.session_id, result.run_id, result.status, result.output_text, result.error)
            )

    async def _park(self, outcome: _Outcome) -> None:
        """Write that the run waits for a person, and let go of it; or go on at once, when that is decided by now."""
        await self._stop_writing()
        record = msgspec.structs.replace(self.run._record, sequence_mark=self._sequence_mark)
        if outcome.held:
            self.intake.flush()
            batch = self.transcript.pending_writes()
            answers = self._lane.pending() if self._lane is not None else 0

            def parking(tx: AgentTx) -> bool:
                write_items(tx, batch.writes)
                self._write_lane(tx, answers)
                return park(tx, record, outcome.held, _now_ms())

            try:
                waits = await self.seat.store.transact(parking)
            except StorageError as error:
                # A restart finds it as one that was left, and holds its calls anew.
                _log.warning("run %s could not be parked: %s", self.run.run_id, error.error_code)
                self._abandon(f"The run waits for a decision, and that could not be stored: {error.message}")
                return
            self.run._record = msgspec.structs.replace(record, phase="parked" if waits else "dispatched")
            self.run._step("park")
            self.journal.append("run.parked", {"operations": list(outcome.held)})
            if not waits:
                self.run._decided = True
        self.seat.ended(self.run, "parked")

    async def _leave(self) -> None:
        """Write how far the run was seen, and let go of it: it goes on at its service, or is sent when resumed."""
        await self._stop_writing()
        self.intake.flush()
        if self.run.state != "admitted":
            self.run._step("leave")
        batch = self.transcript.pending_writes()
        record = msgspec.structs.replace(self.run._record, sequence_mark=self._sequence_mark)
        state = self._driver_state_if_any()

        def leaving(tx: AgentTx) -> None:
            session, known = tx.session(record.session_id), tx.run(record.run_id)
            if session is None or known is None or known.phase not in OPEN_PHASES:
                return
            write_items(tx, batch.writes)
            tx.put_run(msgspec.structs.replace(known, sequence_mark=max(known.sequence_mark, record.sequence_mark)))
            if self._channel is not None and self._channel.answered:
                outbox.confirm(tx, record.run_id)
            if state is not None and known.phase == "dispatched":
                tx.put_session(msgspec.structs.replace(session, driver_state=state))

        try:
            await self.seat.store.transact(leaving)
        except StorageError as error:
            # What is stored of it was enough to find it; the rest is seen again when it is joined again.
            _log.warning("how far run %s was seen was not written: %s", self.run.run_id, error.error_code)
        self.journal.close()
        self.seat.ended(self.run, "left")
        self.run._lose(GOES_ON_THERE if self.run.state != "admitted" else NOT_SENT)

    async def _conclude_unknown(self, outcome: _Outcome) -> None:
        self.run._step("lose")
        self.intake.end_items("unknown")
        sentence = UNKNOWN_TERMINATION if outcome.error is None else self._masked(outcome.error).message
        if self._unknown_notice is None:
            self.transcript.notice(sentence, state="unknown", code=UNKNOWN_CODE)
        record = msgspec.structs.replace(
            self.run._record, phase="unknown", finished_ms=_now_ms(), sequence_mark=self._sequence_mark
        )
        try:
            await self._store_end(record, None, "failed")
            self.run._record = record
        except StorageError as error:
            # Left as dispatched, which a restart reads as unknown as well.
            _log.warning("the unknown end of run %s was not written: %s", self.run.run_id, error.error_code)
        self.journal.close()
        self.seat.ended(self.run, "unconfirmed")
        self.run._lose(sentence)

    def _abandon(self, sentence: str) -> None:
        if self.run.done:
            return
        self._over = True
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
        for task in tuple(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        if self.run.state not in ENDED_RUN_STATES:
            self.run._state = "unknown"
        self.journal.close()
        self.seat.ended(self.run, "abandoned")
        self.run._lose(sentence)

    def _driver_state_if_any(self) -> dict[str, Any] | None:
        try:
            return self._masked_state()
        except Exception:
            # Told at the end of the run, where it is asked for again.
            return None

    def _masked_state(self) -> dict[str, Any]:
        state: dict[str, Any] = freeze(self.seat.redactor.value(self.seat.driver_session.state()))
        return state

    def _driver_state(self) -> dict[str, Any] | None:
        try:
            return self._masked_state()
        except Exception as error:
            self.journal.append(
                "diagnostic",
                {
                    "code": "DRIVER_STATE_FAILED",
                    "level": "warning",
                    "message": f"{self.seat.driver_id} could not say where it stands; its earlier state is kept.",
                    "exception": type(error).__name__,
                },
            )
            return None

    async def _store_end(self, record: RunRecord, driver_state: dict[str, Any] | None, status: str) -> None:
        batch = self.transcript.pending_writes()
        answers = self._lane.pending() if self._lane is not None else 0

        def end(tx: AgentTx) -> None:
            session, known = tx.session(record.session_id), tx.run(record.run_id)
            if session is None or known is None or is_written(known, record):
                # Deleted; or written by an earlier try whose answer was lost.
                return
            write_items(tx, batch.writes)
            tx.put_run(record)
            if self._unknown_notice is not None and record.phase != "unknown":
                tx.finish_item(self._unknown_notice, state="complete", text=FOUND_OUT_WORDS, code=FOUND_OUT)
            self._write_lane(tx, answers)
            lane.end_run(
                tx,
                session_id=record.session_id,
                run_id=record.run_id,
                stopped=record.phase == "cancelled",
                marks=self.seat.resumes,
                now_ms=_now_ms(),
            )
            if self._channel is not None and self.seat.rejoins and record.phase == "unknown":
                # Its service may still ask for them.
                if self._channel.answered:
                    outbox.confirm(tx, record.run_id)
            elif self._channel is not None:
                outbox.close_run(tx, record.run_id, answered=self._channel.answered)
            kept = session.driver_state if driver_state is None else driver_state
            if kept != session.driver_state or session.status != status:
                tx.put_session(msgspec.structs.replace(session, driver_state=kept, status=status))

        try:
            await self.seat.store.transact(end)
        except StorageError:
            self.transcript.doubt()
            raise
        self.transcript.acknowledge(batch)
        self._lane_written(answers)

    async def store_retained(self) -> bool:
        """Store the outcome whose last transaction failed."""
        if self._retained is None:
            return False
        result, record = self._retained
        await self._store_end(record, None, "open")
        self._retained = None
        self.run._record = record
        self.run._result = result
        return True

    def _whole_text(self, native: DriverResult | None) -> str:
        """The run's answer, masked, before any limit of the result."""
        told = self._published.text(clean_text(native.output_text)) if native is not None else ""
        return told or self.transcript.reply_text()

    def _text_was_cut(self) -> bool:
        """Whether what came of the answer is already less than what the harness said."""
        return self.seat.options.policy.limits.output_bytes is not None and self.transcript.truncated

    def _within_limit(self, whole: str) -> str:
        limit_bytes = self.seat.options.policy.limits.output_bytes
        return whole if limit_bytes is None else bound_text(whole, limit_bytes)

    async def _judged(self, outcome: _Outcome, whole: str) -> tuple[_Outcome, Any]:
        """The answer against its schema. One that does not fit fails the run, whatever the harness says."""
        schema = self.schema
        assert schema is not None
        unwrap = self.seat.structured_output != "native"
        judged = await in_own_thread(lambda: judge(whole, schema.json_schema, unwrap=unwrap), "judge answer")
        if not judged.violations:
            return outcome, judged.value
        error = RunError(
            code=AgentStructuredOutputError.code,
            message=sentence(judged.violations, schema.name),
            retryable=True,
            details=freeze({"schema": schema.name, "violations": list(judged.violations[:5])}),
        )
        self.journal.append(
            "diagnostic", freeze({"code": error.code, "level": "error", "message": self._masked(error).message})
        )
        return _Outcome("fail", outcome.result, error, "structured_output_invalid"), None

    def _bounded(self, native: DriverResult | None, parsed: Any) -> Bounded:
        """What a result has besides its text: masked, of this workspace only, within the limits."""
        limits = self.seat.options.policy.limits
        detail = native.native if native is not None else None
        masked = self.seat.redactor.value(detail) if detail is not None else None
        return bounded(
            artifacts=all_changes(
                self._changed_before, self._artifacts(native.artifacts if native is not None else ())
            ),
            parsed=parsed,
            native=None if masked is None else freeze({"driver": self.seat.driver_id, "sanitized": masked}),
            output_bytes=limits.output_bytes,
            artifact_bytes=limits.artifact_bytes,
        )

    def _artifacts(self, told: tuple[Artifact, ...]) -> tuple[Artifact, ...]:
        kept: list[Artifact] = []
        workspace = self.seat.workspace
        for artifact in told:
            masked = Artifact.model_validate(self.seat.redactor.value(artifact.model_dump()))
            if masked.type == "workspace-change" and workspace is not None:
                path = inside(workspace.root, masked.path or "")
                if path is None:
                    self.journal.append("diagnostic", OUTSIDE_WORKSPACE)
                    continue
                masked = masked.model_copy(update={"path": path})
            kept.append(masked)
        return tuple(kept)

    def _result(self, outcome: _Outcome, text: str, rest: Bounded) -> AgentResult:
        native = outcome.result
        status = self.run.state
        if status not in ("completed", "failed", "cancelled", "incomplete"):
            raise AssertionError(f"a run that is {status} has no result")
        reason = "cancelled" if status == "cancelled" else outcome.finish_reason
        return AgentResult(
            run_id=self.run.run_id,
            session_id=self.run.session_id,
            status=status,
            output_text=text,
            usage=(native.usage if native is not None else None) or self.intake.usage,
            finish_reason=None if reason is None else self.seat.redactor.text(clean_text(reason)),
            error=None if outcome.error is None or status == "cancelled" else self._masked(outcome.error),
            configuration=self._configuration(),
            output_parsed=rest.parsed,
            artifacts=rest.artifacts,
            enforcement={} if self.schema is None else {"structured_output": self.seat.structured_output},
            native=rest.native,
        )

    def _masked(self, error: RunError) -> RunError:
        redactor = self._published
        return RunError(
            code=error.code,
            message=redactor.text(clean_text(error.message)),
            retryable=error.retryable,
            details=freeze(redactor.value(error.details)),
        )


def make_journal(record: RunRecord, options: SessionOptions, journal_bytes: int) -> Journal:
    """The journal of a run that is about to be driven."""
    return Journal(
        run_id=record.run_id,
        session_id=record.session_id,
        budget_bytes=min(options.policy.limits.event_buffer_bytes, journal_bytes),
        first_sequence=record.sequence_mark + 1,
        types=admitted_types(options.observation),
    )


def _images_to_send(tx: AgentTx, session_id: str, now: str) -> dict[str, tuple[ImagePart, ...]]:
    """The pictures of inputs before the run `now`, by their runs, the newest as far as they fit.

    Those of one input go together or not at all.
    """
    by_run: dict[str, list[StoredImage]] = {}
    for use in tx.images(session_id):
        if use.run_id == now:
            continue
        stored = StoredImage.model_validate(
            {"media_type": use.media_type, "digest": use.digest, "size_bytes": use.size_bytes}
        )
        by_run.setdefault(use.run_id, []).append(stored)
    sent: dict[str, tuple[ImagePart, ...]] = {}
    left_bytes = IMAGES_AGAIN_BYTES
    for run_id, images in reversed(by_run.items()):
        left_bytes -= sum(image.size_bytes for image in images)
        if left_bytes < 0:
            break
        sent[run_id] = tuple(whole_image(tx, session_id, image) for image in images)
    return sent


def _run_error(error: Exception, driver_id: str) -> RunError:
    """A failure as code and sentence. Of an exception that is no error of ours only the kind is told."""
    if isinstance(error, AgentNativeExecutionError):
        return RunError(code=error.native_code, message=error.message, retryable=error.retryable, details=error.details)
    if isinstance(error, AgentRuntimeError):
        return RunError(code=error.error_code, message=error.message, retryable=error.retryable, details=error.details)
    if isinstance(error, NotAnEventError):
        return RunError(
            code=AgentNativeExecutionError.code,
            message=f"{driver_id} is at fault: it yielded {error}.",
            details={"exception": type(error).__name__},
        )
    return RunError(
        code=AgentNativeExecutionError.code,
        message=f"{driver_id} failed in a way it did not foresee ({type(error).__name__}).",
        details={"exception": type(error).__name__},
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
