"""A session: one logical agent bound to one harness, taking one input at a time.

Owns the session's state, the admission of inputs, its runs and their journals, detach and destroy. Must
not know other sessions, connectors or desktops. Invariants: one run or transfer at a time, reserved before
anything is awaited; a request id is one run for ever; after an unconfirmed end the handle takes no input again; while a
run waits for a person the session takes no other; what is queued is sent in its order, each once, and not after an
end that was not the run's own.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, TypeVar, cast

import msgspec
from pydantic import BaseModel, ConfigDict

from runtime_host.abort import AbortSignal
from runtime_host.admission import (
    PARTS_JOINT,
    Admitted,
    Prepared,
    Repeated,
    admit,
    check_capabilities,
    conflict,
    find_repeated,
    prepare,
    required_capabilities,
)
from runtime_host.canonical import freeze
from runtime_host.capabilities import AgentInspection, Support
from runtime_host.definitions import (
    AgentDefinition,
    InputPart,
    JsonSchemaFormat,
    ReasoningConfig,
    RunInput,
    SessionOptions,
    TextFormat,
    WorkspaceFilePart,
)
from runtime_host.drivers.base import DriverSession, FileExchange, PendingUpload
from runtime_host.errors import (
    AgentAbortedError,
    AgentBusyError,
    AgentCapabilityUnsupportedError,
    AgentClosedError,
    AgentDriverConfigurationError,
    AgentNativeExecutionError,
    AgentRuntimeError,
    AgentScopeMismatchError,
    AgentSessionRecoveryError,
    AgentWorkspaceError,
    ConnectorError,
    StorageError,
)
from runtime_host.intake import Redactor
from runtime_host.loop import held, lane
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.recovery import NO_PAST, Past, continuable, rejoinable
from runtime_host.results import Artifact
from runtime_host.run import Ending, Run, RunSeat, SteerSeat, Windows, make_journal
from runtime_host.states import Operation, SessionState, SessionStep, Verdict, next_session_state, verdict
from runtime_host.storage.base import AgentStore, AgentTx, ItemHead, RunRecord, SessionRecord, ToolCallRecord
from runtime_host.storage.rows import InboxRow
from runtime_host.structured import check_schema
from runtime_host.tools.base import Reconciliation
from runtime_host.tools.calls import SessionTools
from runtime_host.transfer.copy import OnProgress, Transferred
from runtime_host.transfer.grant import Grant
from runtime_host.transferring import SessionTransfers, unresolved_upload
from runtime_host.workspace import Lease, Workspace, WorkspaceLeases, check_unchanged, resolve_file

_log = logging.getLogger("runtime_host.session")

T = TypeVar("T")

ITEM_PREVIEW_CHARS: Final = 4096


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SessionReference(_Frozen):
    """Where a session is found again. A locator: it authenticates nobody and holds no credential."""

    version: Literal[1] = 1
    session_id: str
    agent_id: str
    scope_digest: str
    driver_id: str


class UnresolvedEffect(_Frozen):
    """Something outside of which it is not known whether it happened.

    Attributes:
        id: of the run, or the original id of the call.
        tool, run_id: of a call.
        since: when it was recorded, UTC; None when that is not known.
    """

    kind: Literal["tool-result", "input", "upload", "creation", "cleanup"]
    id: str
    tool: str | None = None
    run_id: str | None = None
    since: datetime | None = None

    @classmethod
    def of_run(cls, run_id: str, recorded_ms: int | None) -> Self:
        """An input of which nobody knows what became of it."""
        return cls(kind="input", id=run_id, since=_moment(recorded_ms))

    @classmethod
    def of_call(cls, call: ToolCallRecord) -> Self:
        """A tool that may have acted."""
        return cls(
            kind="tool-result", id=call.call_id, tool=call.tool, run_id=call.run_id, since=_moment(call.created_ms)
        )

    @classmethod
    def of_upload(cls, upload: PendingUpload) -> Self:
        """A file of which nobody knows whether it arrived."""
        return cls(kind="upload", id=upload.upload_id, since=_moment(int(upload.since_s * 1000)))


Activity = Literal["idle", "admitting", "running", "transferring", "waiting", "unknown"]


class InspectedState(_Frozen):
    """How a session stands, each side for itself.

    Attributes:
        activity: `transferring`, a file is being moved; `waiting`, a run waits for a person; or an accepted input is
            not sent yet: its folder is taken, or a tool is unresolved.
        reconciliation: how far the last look at the sources of interrupted tools went; None when there was none.
        history_gap: events of its runs were published that nobody can read any more: an earlier process's,
            evicted ones or expired ones.
        salvaged_from: the name of the damaged file that this session was read from; None when it was not.
    """

    connection: Literal["attached", "detached", "lost"]
    activity: Activity
    active_run_id: str | None = None
    unresolved_effects: tuple[UnresolvedEffect, ...] = ()
    reconciliation: Reconciliation | None = None
    history_gap: bool = False
    quarantined: bool = False
    salvaged_from: str | None = None


class SessionHome(Protocol):
    """What a session needs of the runtime it lives in."""

    @property
    def redactor(self) -> Redactor: ...
    @property
    def windows(self) -> Windows: ...
    @property
    def max_session_journal_bytes(self) -> int: ...
    @property
    def live_runs(self) -> set[str]:
        """Runs this process is responsible for; recovery leaves them alone."""
        ...

    @property
    def leases(self) -> WorkspaceLeases: ...
    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> AgentInspection:
        """What a binding would be; refuses one that is not carried. Without any effect."""
        ...

    async def forget(self, driver_id: str, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Have a harness remove what it keeps of a session; raises when it could not."""
        ...

    async def grant(self, options: SessionOptions) -> Grant:
        """What one transfer of a session may do; asked of the host anew each time."""
        ...

    def left(self, session: "Session") -> None:
        """The session is no longer open here."""
        ...

    def quarantine(self, session_id: str) -> None:
        """Something of the session may still be going on natively."""
        ...


class _Admitting(NamedTuple):
    request_id: str | None
    digest: str
    task: "asyncio.Task[Run]"
    interrupt: "asyncio.Future[None]"


class QueuedMessage(NamedTuple):
    """Something that waits to be said.

    Attributes:
        kind: `steer`, to the run that goes on; `follow_up`, after it.
        input: what it brings besides words, as it came; None when it is words only.
    """

    inbox_id: str
    kind: Literal["steer", "follow_up"]
    text: str
    created_ms: int
    input: Mapping[str, Any] | None = None


class Driven(NamedTuple):
    """What a driver says of itself. See `runtime_host.drivers.base.AgentDriver`."""

    resumes: bool = False
    parks: bool = False
    rejoins: bool = False
    settle_s: float = 0.0


class _Looked(NamedTuple):
    """What the look before an admission found: the parts with the real paths of their files."""

    parts: tuple[InputPart, ...]


class Session:
    """Handle of an open session. Obtained from `Agent.open_session` or `AgentRuntime.resume_session`."""

    def __init__(
        self,
        *,
        home: SessionHome,
        record: SessionRecord,
        definition: AgentDefinition,
        options: SessionOptions,
        inspection: AgentInspection,
        store: AgentStore,
        driver_session: DriverSession | None,
        tools: SessionTools | None = None,
        workspace: Workspace | None = None,
        past: Past = NO_PAST,
        driven: Driven = Driven(),  # noqa: B008 - nobody can change it
    ) -> None:
        self._driven = driven
        self._home = home
        self._record = record
        self.definition = definition
        self.options = options
        self.inspection = inspection
        self._store = store
        self._driver_session = driver_session
        self._tools = tools
        self._workspace = workspace
        self._leases: dict[str, Lease] = {}
        self._state: SessionState = "opening"
        self._step("opened" if driver_session is not None else "open_failed")
        self._quarantined = driver_session is None
        self._past = past
        self._events_gone = past.events_gone
        self._unknown: UnresolvedEffect | None = None
        if driver_session is None and past.unknown is not None:
            self._unknown = UnresolvedEffect.of_run(past.unknown.run_id, past.unknown.finished_ms)
        self._admitting: _Admitting | None = None
        self._active: Run | None = None
        self._parked: Run | None = None
        self._queue_flows = past.queue_flows
        self._queue_listeners: list[Callable[[Run | None], None]] = []
        self._advancing = False
        # What is queued is not changed while it is being sent.
        self._queue_lock = asyncio.Lock()
        self._unsent: deque[RunRecord] = deque()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        # Detach and destroy wait for one another; the later one then finds what the earlier one left.
        self._leaving = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        files: FileExchange | None = getattr(driver_session, "files", None)
        self._transfers = (
            SessionTransfers(self.session_id, store, files, lambda: home.grant(options)) if files is not None else None
        )
        self._transferring: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.destroy()

    # -------------------------------------------------------------------------------------- looking

    @property
    def session_id(self) -> str:
        return self._record.session_id

    @property
    def agent_id(self) -> str:
        return self.definition.id

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def active_run(self) -> Run | None:
        """The run that goes on."""
        return self._active

    @property
    def parked_run(self) -> Run | None:
        """The run that waits for a person."""
        return self._parked

    def reference(self) -> SessionReference:
        return SessionReference(
            session_id=self.session_id,
            agent_id=self.agent_id,
            scope_digest=self._record.scope_digest,
            driver_id=self.options.execution.driver,
        )

    def inspect_state(self) -> InspectedState:
        unresolved: tuple[UnresolvedEffect, ...] = ()
        if self._state == "failed" and self._unknown is not None:
            unresolved = (self._unknown,)
        if self._tools is not None:
            unresolved += tuple(map(UnresolvedEffect.of_call, self._tools.unresolved))
        if self._transfers is not None:
            unresolved += tuple(map(UnresolvedEffect.of_upload, self._transfers.pending()))
        activity: Activity = "idle"
        if self._admitting is not None:
            activity = "admitting"
        elif self._active is not None:
            activity = "running"
        elif self._transferring is not None:
            activity = "transferring"
        elif self._state == "failed":
            activity = "unknown"
        elif self._unsent or self._parked is not None:
            activity = "waiting"
        connection: Literal["attached", "detached", "lost"] = "attached"
        if self._state in ("detached", "destroyed", "deleted"):
            connection = "detached"
        elif self._state == "failed":
            connection = "lost"
        return InspectedState(
            connection=connection,
            activity=activity,
            active_run_id=None if (run := self._active or self._parked) is None else run.run_id,
            unresolved_effects=unresolved,
            reconciliation=self._tools.reconciliation if self._tools is not None else None,
            history_gap=self._events_gone
            or any(run.journal.statistics().dropped_events for run in self._runs.values()),
            quarantined=self._quarantined,
            salvaged_from=self._past.salvaged_from or None,
        )

    async def get_run(self, run_id: str) -> Run:
        """A run of this session: the live handle, or the saved outcome. Nothing is ever sent by this.

        Raises:
            AgentScopeMismatchError: this session has no such run.
        """
        run = self._runs.get(run_id)
        if run is not None:
            await run.store_retained()
            return run
        record = await self._store.read(lambda tx: tx.run(run_id))
        if record is None or record.session_id != self.session_id:
            raise AgentScopeMismatchError("There is no such run in this session.", details={"run_id": run_id})
        return self._known(record)

    async def find_request(self, request_id: str) -> Run | None:
        """The run that a request id stands for; None when it was not used in this session."""
        if self._admitting is not None and self._admitting.request_id == request_id:
            return await asyncio.shield(self._admitting.task)
        session_id = self.session_id

        def find(tx: AgentTx) -> RunRecord | None:
            request = tx.request(session_id, request_id)
            return tx.run(request.run_id) if request is not None else None

        record = await self._store.read(find)
        return self._known(record) if record is not None else None

    async def count_items(self) -> int:
        """How many items the transcript has."""
        session_id = self.session_id
        return await self._store.read(lambda tx: tx.count_items(session_id))

    async def items(self, first: int, count: int, preview_chars: int = ITEM_PREVIEW_CHARS) -> list[ItemHead]:
        """A window of the transcript, as far as it is durable; of calls with what was decided since."""
        session_id = self.session_id

        def read(tx: AgentTx) -> list[ItemHead]:
            heads = tx.items(session_id, first, count, preview_chars)
            return [head._replace(about=held.as_decided(tx, head.kind, head.about)) for head in heads]

        return await self._store.read(read)

    # ------------------------------------------------------------------------------------- running

    async def run(
        self,
        message: str | RunInput | Mapping[str, Any],
        *,
        request_id: str | None = None,
        model: str | None = None,
        reasoning: ReasoningConfig | Mapping[str, Any] | None = None,
        response_format: TextFormat | JsonSchemaFormat | Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        signal: AbortSignal | None = None,
    ) -> Run:
        """Take an input; returns once it is durable. A repeated request id gives the run it already is.

        Once accepted it goes on, also when the caller is cancelled while waiting here.

        Args:
            message: words, or parts.
            request_id: makes a repeated call the same run.
            model: of this run only.
            reasoning: of this run only.
            response_format: a schema that the answer has to meet; it is checked here in any case.
            metadata: kept with the run.
            signal: raised before the input is durable, nothing is sent; raised later, the run is stopped.

        Raises:
            AgentBusyError: a run goes on, here or in the same folder.
            AgentRequestConflictError: the request id stands for another input.
            AgentRequestLedgerFullError, AgentRecordTooLargeError, AgentDriverConfigurationError,
            AgentCapabilityUnsupportedError, AgentStructuredOutputError, AgentWorkspaceError,
            AgentSessionRecoveryError, AgentClosedError, AgentAbortedError, StorageError:
                nothing was sent.
        """
        if signal is not None:
            signal.check()
        prepared = prepare(
            message,
            request_id=request_id,
            model=model,
            reasoning=reasoning,
            response_format=response_format,
            metadata=metadata,
        )
        check_capabilities(
            self.inspection.capabilities, required_capabilities(prepared, self.options), self.inspection.driver_id
        )
        judged = verdict("run", self._state)
        if judged == "do" and self._parked is not None:
            judged = "busy"
        if judged == "do":
            if self._tools is not None and self._tools.unresolved:
                return await self._known_or_blocked(prepared, self._tools, signal)
            return await self._reserve(prepared, signal)
        if request_id is not None and judged in ("busy", "failed"):
            admitting = self._admitting
            if admitting is not None and admitting.request_id == request_id:
                if admitting.digest != prepared.digest:
                    raise conflict(self.session_id, request_id)
                return _heard(await asyncio.shield(admitting.task), signal)
            session_id = self.session_id
            known = await self._store.read(lambda tx: find_repeated(tx, session_id=session_id, prepared=prepared))
            if known is not None and (known.run.phase != "admitted" or known.run.run_id in self._runs):
                return _heard(self._known(known.run), signal)
        raise self._refusal("run", judged)

    async def reconcile(self) -> tuple[UnresolvedEffect, ...]:
        """Find out what came of interrupted tools and uploads, from their source; sends nothing that was before.

        A run that waited for that goes on with the original results. With a harness whose work goes on at a service,
        what became of an input is looked for there again; its run is then the active one, until that is known.

        Returns:
            what is still not known, and blocks the session.

        Raises:
            AgentClosedError: the session is not open.
            StorageError: what was found out could not be kept.
        """
        if self._state not in ("ready", "running", "failed"):
            raise self._refusal("run", "closed")
        if self._tools is not None:
            session_id = self.session_id
            if not await self._tools.reconcile() and self._state == "ready" and not self._driven.rejoins:
                self.take_unsent(await self._store.transact(lambda tx: continuable(tx, session_id)))
        if self._transfers is not None and self._transfers.pending() and self._state == "ready":
            try:
                await self._transfer(self._transfers.reconcile, None)
            except (AgentNativeExecutionError, ConnectorError) as fault:
                _log.info("what became of an upload could not be asked: %s", fault.error_code)
        if self._driven.rejoins and self._driver_session is not None and self._active is None:
            await self._rejoin()
        blocking = ("tool-result", "upload")
        return tuple(effect for effect in self.inspect_state().unresolved_effects if effect.kind in blocking)

    async def _rejoin(self) -> None:
        """Look at its service for what became of the newest run, where that is not known."""
        session_id = self.session_id

        def take(tx: AgentTx) -> tuple[RunRecord, ...]:
            found, record = rejoinable(tx, session_id), tx.session(session_id)
            if found and record is not None and record.status != "open":
                tx.put_session(msgspec.structs.replace(record, status="open"))
            return found

        if self._state not in ("ready", "failed"):
            return
        # Before anything is awaited, as an input does.
        before = self._state
        self._step("rejoin" if before == "failed" else "reserve")
        try:
            found = await self._store.transact(take)
        except BaseException:
            self._not_rejoined(before)
            raise
        if not found or self.state != "running":
            # Let go of meanwhile: what is written is joined again at the next opening, and nothing is stopped by that.
            self._not_rejoined(before)
            return
        self._unknown = None
        self._runs.pop(found[0].run_id, None)
        self._home.live_runs.add(found[0].run_id)
        self._begin(found[0])

    def _not_rejoined(self, before: SessionState) -> None:
        if self._state == "running":
            self._step("run_unconfirmed" if before == "failed" else "release")

    async def cancel_active_run(self) -> None:
        """Stop the run that goes on, if one does; returns once it has ended.

        Raises:
            AgentSessionRecoveryError: the native side did not confirm its end.
        """
        admitting = self._admitting
        if admitting is not None:
            _interrupt(admitting.interrupt, AgentAbortedError("The message was withdrawn before it was sent."))
            await asyncio.wait({admitting.task})
        if (run := self._active or self._parked) is not None:
            await run.cancel()

    # ----------------------------------------------------------------------------- the queue

    async def queue(
        self,
        message: str | RunInput | Mapping[str, Any],
        *,
        request_id: str | None = None,
        model: str | None = None,
        reasoning: ReasoningConfig | Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> QueuedMessage:
        """Keep an input to be sent after the run that goes on and what was queued before it; durable when this returns.

        With nothing before it, it is sent at once. After a run that was stopped, failed or of which nobody knows the
        end, what is queued stays until the person sends something.

        Args:
            message: words, or parts.
            request_id: makes a repeated call the same message.
            model: of its run only.
            reasoning: of its run only.
            metadata: kept with its run.

        Raises:
            AgentDriverConfigurationError: it could not be sent as it is, or too many wait already.
            AgentRecordTooLargeError, AgentCapabilityUnsupportedError, AgentClosedError, StorageError: it is not kept.
        """
        prepared = prepare(
            message, request_id=None, model=model, reasoning=reasoning, response_format=None, metadata=metadata
        )
        check_capabilities(
            self.inspection.capabilities, required_capabilities(prepared, self.options), self.inspection.driver_id
        )
        if self._state not in ("ready", "running", "failed"):
            raise self._refusal("run", "closed")
        extra: dict[str, Any] = {"options": prepared.options.content()}
        if prepared.parts:
            extra["input"] = RunInput(parts=prepared.parts).model_dump(mode="json")
        session_id, key, now_ms = self.session_id, request_id or lane.new_id("queued"), time.time_ns() // 1_000_000
        try:
            row = await self._store.transact(
                lambda tx: lane.put(
                    tx,
                    session_id=session_id,
                    kind="follow_up",
                    text=prepared.text,
                    dedup_key=key,
                    now_ms=now_ms,
                    extra=extra,
                )
            )
        except ValueError as full:
            raise AgentDriverConfigurationError(str(full)) from None
        self._queue_changed()
        self._advance_queue()
        return _queued(row)

    async def queued(self) -> tuple[QueuedMessage, ...]:
        """What waits to be said: first to the run that goes on, then after it, in order."""
        session_id = self.session_id
        return tuple(map(_queued, await self._store.read(lambda tx: lane.waiting(tx, session_id))))

    @property
    def queue_is_held(self) -> bool:
        """Whether what is queued waits for the person: they stopped the last run, or it failed."""
        return not self._queue_flows

    async def edit_queued(self, inbox_id: str, text: str) -> bool:
        """Put other words in the place of what waits. False when it is said or removed by now.

        Raises:
            AgentDriverConfigurationError: there are no words, or too many; or it tells of a decision.
        """
        if not text.strip() or len(text) > lane.INBOX_CHARS:
            raise AgentDriverConfigurationError("There is no text to send, or too much.", details={"field": "text"})
        session_id = self.session_id
        return await self._change_queue(lambda tx: lane.edit(tx, session_id, inbox_id, text))

    async def move_queued(self, inbox_id: str, before: str | None = None) -> bool:
        """Move what is to be sent ahead of another one, or to the end. False when one of them waits no more."""
        session_id = self.session_id
        return await self._change_queue(lambda tx: lane.move(tx, session_id, inbox_id, before))

    async def remove_queued(self, inbox_id: str) -> bool:
        """Take back what waits. False when it is said or removed by now.

        Raises:
            AgentDriverConfigurationError: it tells of a decision.
        """
        session_id, now_ms = self.session_id, time.time_ns() // 1_000_000
        return await self._change_queue(lambda tx: lane.remove(tx, session_id, inbox_id, now_ms))

    async def send_queued(self, inbox_id: str) -> Run | None:
        """Send this one of what is queued now; what is queued flows again after it.

        Returns:
            its run; None when it is said or removed by now.

        Raises:
            AgentBusyError: a run goes on; it is the next one now.
            AgentRuntimeError: as `run`; it stays queued.
        """
        session_id = self.session_id
        rows = await self._store.read(lambda tx: lane.waiting(tx, session_id, "follow_up"))
        if rows and rows[0].inbox_id != inbox_id:
            await self.move_queued(inbox_id, rows[0].inbox_id)
        return await self._send_first(inbox_id)

    def when_queue_changes(self, callback: Callable[[Run | None], None]) -> Callable[[], None]:
        """Have it called when what is queued has changed, with the run that was begun of it, if one was.

        Returns:
            ends that.
        """
        self._queue_listeners.append(callback)

        def forget() -> None:
            if callback in self._queue_listeners:
                self._queue_listeners.remove(callback)

        return forget

    async def _change_queue(self, change: Callable[[AgentTx], bool]) -> bool:
        run = self._active or self._parked
        # Not while it is being said.
        async with self._queue_lock, contextlib.nullcontext() if run is None else run.inbox:
            try:
                changed = await self._store.transact(change)
            except ValueError as refused:
                raise AgentDriverConfigurationError(str(refused)) from None
        if changed:
            self._queue_changed()
        return changed

    def _queue_changed(self, run: Run | None = None) -> None:
        for callback in tuple(self._queue_listeners):
            try:
                callback(run)
            except Exception:
                _log.exception("a listener of a queue failed")

    def _advance_queue(self) -> None:
        """Send the next of what is queued, if it may be sent."""
        free = self._state == "ready" and self._parked is None and not self._unsent and self._queue_flows
        if free and not self._advancing:
            self._advancing = True
            # Kept by `_tasks`.
            _ = self._spawn(self._send_next())

    async def _send_next(self) -> None:
        try:
            if self._state == "ready" and self._parked is None:
                await self._send_first(None)
        except AgentRuntimeError as refused:
            _log.info("what was queued is not sent: %s", refused.error_code)
            if refused.error_code not in ("AGENT_BUSY", "AGENT_CLOSED"):
                self._queue_flows = False
                self._queue_changed()
        finally:
            self._advancing = False

    async def _send_first(self, inbox_id: str | None) -> Run | None:
        """Send the first of what is queued, if it is this one."""
        session_id = self.session_id
        async with self._queue_lock:
            rows = await self._store.read(lambda tx: lane.waiting(tx, session_id, "follow_up"))
            if not rows or inbox_id not in (None, rows[0].inbox_id):
                return None
            row = rows[0]
            options = row.extra.get("options", {})
            parts = row.extra.get("input")
            # Its admission is what takes it from the queue.
            run = await self.run(
                row.text if parts is None else _with_text(parts, row.text),
                request_id=row.inbox_id,
                model=options.get("model"),
                reasoning=options.get("reasoning"),
                metadata=options.get("metadata"),
            )
        self._queue_changed(run)
        return run

    # ------------------------------------------------------------------------------------- files

    async def upload_file(
        self,
        *,
        path: str,
        media_type: str,
        on_progress: OnProgress | None = None,
        signal: AbortSignal | None = None,
    ) -> Transferred:
        """Give the harness a file of the host's transfer folder. No run, detach or other transfer goes on meanwhile.

        Args:
            path: in that folder, relative.
            media_type: what the file is; it is looked at, and has to be one that the host takes.
            on_progress: told how much is handed over.
            signal: raised before all of it is out, nothing arrives; raised later, it is removed again where the service
                lets go of it, else it is there, and this returns.

        Raises:
            AgentCapabilityUnsupportedError: the harness takes none.
            AgentTransferError: the file is not one that may be moved; its code says why. Nothing was sent.
            AgentUnresolvedEffectError: it may have arrived. It is never sent again; no input goes before that is known.
            AgentBusyError, AgentClosedError, AgentAbortedError, AgentNativeExecutionError, ConnectorError,
            StorageError: it has not arrived.
        """
        transfers = self._transfers_of("takes no files by upload")
        return await self._transfer(lambda: transfers.upload(path, media_type, on_progress), signal)

    async def download_artifact(
        self,
        *,
        reference: str,
        path: str,
        on_progress: OnProgress | None = None,
        signal: AbortSignal | None = None,
    ) -> Transferred:
        """Fetch what this session made into the host's transfer folder, exactly. As exclusive as an upload.

        Args:
            reference: of `AgentResult.artifacts` or `artifacts()`.
            path: in that folder, relative, of nothing that is there.
            on_progress: told how much has come.
            signal: raised, nothing of it stays.

        Raises:
            AgentCapabilityUnsupportedError: the harness keeps nothing to fetch.
            AgentTransferError: it is not one that may be moved, or has no place; its code says why.
            AgentBusyError, AgentClosedError, AgentAbortedError, AgentNativeExecutionError, ConnectorError,
            StorageError: nothing of it is here.
        """
        transfers = self._transfers_of("keeps no files to download")
        return await self._transfer(lambda: transfers.download(reference, path, on_progress), signal)

    async def artifacts(self) -> tuple[Artifact, ...]:
        """What this session made at its service and gives out, as references.

        Raises:
            AgentCapabilityUnsupportedError: the harness keeps nothing to fetch.
            AgentBusyError, AgentClosedError, AgentNativeExecutionError, ConnectorError
        """
        return await self._transfer(self._transfers_of("keeps no files to download").listed, None)

    async def _transfer(self, work: Callable[[], Coroutine[Any, Any, T]], signal: AbortSignal | None) -> T:
        """What moves files, alone: until it has ended the session takes nothing else, whoever waits for it."""
        if signal is not None:
            signal.check()
        judged = verdict("run", self._state)
        if judged == "do" and (self._parked is not None or self._unsent):
            judged = "busy"
        if judged != "do":
            raise self._refusal("run", judged)
        self._step("reserve")
        task = self._transferring = self._spawn(work())
        task.add_done_callback(self._transferred)
        forget = signal.listen(lambda: _cancel(task)) if signal is not None else _nothing
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            forget()
        if not task.cancelled():
            result: T = task.result()
            return result
        if self._transfers is not None and (pending := self._transfers.pending()):
            raise unresolved_upload(pending)
        raise AgentAbortedError("The transfer was stopped. Nothing of the file was left.")

    def _transferred(self, task: "asyncio.Task[Any]") -> None:
        self._transferring = None
        if self._state in ("running", "destroying"):
            self._step("release")
            self._next_unsent()
            self._advance_queue()

    def _transfers_of(self, words: str) -> SessionTransfers:
        if self._transfers is not None:
            return self._transfers
        if self._driver_session is None:
            raise self._refusal("run", verdict("run", self._state))
        driver_id = self.inspection.driver_id
        raise AgentCapabilityUnsupportedError(
            f"{driver_id} works on this computer and {words}. Give the session a folder instead.",
            code="TRANSFER_UNSUPPORTED",
            details={"capability": "file.transfer", "driver": driver_id},
        )

    # ------------------------------------------------------------------------------------- leaving

    async def detach(self) -> None:
        """Let go of the session and keep all of it; it can be resumed.

        A run that goes on at a service goes on there; one of this computer would end, so it is in the way.

        Raises:
            AgentBusyError: a run of this computer goes on and would end with the session.
            AgentSessionRecoveryError: it could not be stored; the reference stays good.
        """
        async with self._leaving:
            judged = verdict("detach", self._state)
            free = self._admitting is None and self._transferring is None
            if self._driven.rejoins and self._state == "running" and free:
                judged = "do"
            if judged == "done_already":
                return
            if judged != "do":
                raise self._refusal("detach", judged)
            await self._detach()

    async def _detach(self) -> None:
        self._step("detach")
        if self._active is not None:
            await self._active.release()
        try:
            await self._store_status("detached")
        except StorageError as error:
            self._step("detach_failed")
            raise AgentSessionRecoveryError(
                f"The session could not be put away: {error.message}",
                session_id=self.session_id,
                details={"reference": self.reference().model_dump(mode="json")},
            ) from error
        self._put_parked_back()
        await self._close_native()
        self._step("detached")
        self._leave()

    async def destroy(self, *, forget: bool = True, leave: bool = False) -> None:
        """Stop what runs and let go of the handle; the record and the transcript stay. Idempotent.

        Args:
            leave: whether a run that goes on at a service goes on there, unwatched. One of this computer is stopped.
            forget: whether its harness removes what it keeps of the session on this computer. A harness that keeps
                its own memory of it, a command line program, then does not go on with it. False keeps all of it.

        Raises:
            AgentNativeExecutionError: what the harness keeps could not be removed; all else is done. The reference
                stays good for `AgentRuntime.delete_session`, which tries it again.
            AgentDriverNotFoundError, StorageError: as above.
        """
        async with self._leaving:
            if verdict("destroy", self._state) == "do":
                await self._destroy(forget, leave and self._driven.rejoins)

    async def _destroy(self, forget: bool, leave: bool) -> None:
        self._step("destroy")
        if self._admitting is not None:
            closed = AgentClosedError("The session was let go of before the message was sent.")
            _interrupt(self._admitting.interrupt, closed)
            await asyncio.wait({self._admitting.task})
        if self._transferring is not None:
            self._transferring.cancel()
            await asyncio.wait({self._transferring})
        active = self._active
        if active is not None and leave:
            await active.release()
        elif active is not None:
            try:
                await active.cancel()
            except AgentSessionRecoveryError:
                # Not confirmed: the run says so to whoever asks for its result.
                pass
        for record in self._unsent:
            self._home.live_runs.discard(record.run_id)
            self._runs[record.run_id].put_back()
        self._unsent.clear()
        self._put_parked_back()
        await self._close_native()
        self._step("destroyed")
        self._leave()
        if forget:
            await self._forget_native()

    # ------------------------------------------------------------------- for the runtime that owns it

    def take_unsent(self, records: Sequence[RunRecord]) -> None:
        """Dispatch runs that were admitted and never sent, one after the other."""
        self._home.live_runs.update(record.run_id for record in records)
        self._unsent.extend(records)
        for record in records:
            self._handle(record)
        self._next_unsent()

    def hold(self, record: RunRecord) -> None:
        """A run of it waits for a person."""
        run = self._handle(record)
        self._parked = run
        run.waits_for_person(lambda: self._stop_parked(run))

    async def take_up(self, run_id: str) -> Run:
        """Go on with a run that waits for a person; its calls are looked at anew, and it waits on if one is undecided.

        Raises:
            AgentScopeMismatchError: this session has no such run.
            AgentClosedError: the session is not open.
        """
        active, parked = self._active, self._parked
        if active is not None and active.run_id == run_id:
            active.decided()
            return active
        if parked is None or parked.run_id != run_id:
            return await self.get_run(run_id)
        if self._state != "ready":
            raise self._refusal("run", verdict("run", self._state))
        self._go_on(parked)
        return parked

    def flow(self) -> None:
        """Send what is queued, if the last run ended by itself."""
        self._advance_queue()

    def mark_deleted(self) -> None:
        """The record is gone."""
        if self._state in ("detached", "destroyed"):
            self._step("deleted")

    # -------------------------------------------------------------------------------------- inside

    def _step(self, step: SessionStep) -> None:
        self._state = next_session_state(self._state, step)

    def _put_parked_back(self) -> None:
        parked, self._parked = self._parked, None
        if parked is not None:
            parked.put_back()
            self._runs.pop(parked.run_id, None)

    def _go_on(self, run: Run) -> None:
        if self._parked is not run or self._state != "ready":
            return
        self._step("reserve")
        self._home.live_runs.add(run.run_id)
        if self._workspace is None:
            self._parked = None
            self._begin(run.record)
        else:
            # Kept by `_tasks`.
            _ = self._spawn(self._go_on_in_folder(run))

    async def _go_on_in_folder(self, run: Run) -> None:
        try:
            await self._take_lease(run.run_id)
        except AgentBusyError as busy:
            self._wait_on(run)
            self._home.leases.when_released(lambda: self._go_on(run), elsewhere="pid" in busy.details)
            return
        except AgentWorkspaceError as fault:
            _log.warning("a run waits on, because its folder cannot be taken: %s", fault.message)
            self._wait_on(run)
            return
        if self._state == "running" and self._parked is run:
            self._parked = None
            self._begin(run.record)
        else:
            self._give_back(run.run_id)
            self._home.live_runs.discard(run.run_id)

    def _wait_on(self, run: Run) -> None:
        self._home.live_runs.discard(run.run_id)
        if self._state == "running":
            self._step("release")
            if run.is_withdrawn:
                self._stop_parked(run)

    def _stop_parked(self, run: Run) -> None:
        """End a run that waits for a person. It touches its folder no more, so it needs none."""
        if self._parked is run and self._state == "ready":
            self._step("reserve")
            self._home.live_runs.add(run.run_id)
            self._parked = None
            self._begin(run.record)

    async def _known_or_blocked(self, prepared: Prepared, tools: SessionTools, signal: AbortSignal | None) -> Run:
        """The run that a request already is; a new one is refused while something is unresolved."""
        session_id = self.session_id
        known = await self._store.read(lambda tx: find_repeated(tx, session_id=session_id, prepared=prepared))
        if known is not None and known.run.phase != "admitted":
            return _heard(self._known(known.run), signal)
        tools.check_resolved()
        return await self._reserve(prepared, signal)

    async def _reserve(self, prepared: Prepared, signal: AbortSignal | None) -> Run:
        # Before anything is awaited: of two calls at once the second finds the session taken.
        self._step("reserve")
        interrupt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = self._spawn(self._admit(prepared, signal, interrupt))
        self._admitting = _Admitting(prepared.options.request_id, prepared.digest, task, interrupt)
        return await asyncio.shield(task)

    async def _admit(self, prepared: Prepared, signal: AbortSignal | None, interrupt: "asyncio.Future[None]") -> Run:
        run_id = f"run_{uuid.uuid4().hex}"
        session_id = self.session_id
        now_ms = time.time_ns() // 1_000_000
        live = self._home.live_runs
        forget = _nothing
        if signal is not None:
            heard = signal
            forget = heard.listen(lambda: _interrupt(interrupt, heard.reason))
        live.add(run_id)
        try:
            known = await self._look_up(prepared, interrupt)
            if known is not None:
                admitted: Admitted | Repeated = known
                if self._is_unsent(known.run):
                    await self._unless(interrupt, self._take_lease(run_id))
            else:
                await self._unless(interrupt, self._take_lease(run_id))
                if self._has_pending_upload:
                    await self._unless(interrupt, cast("SessionTransfers", self._transfers).check_known())
                looked = await self._look(prepared, interrupt)
                if interrupt.done():
                    interrupt.result()
                admitted = await self._store.transact(
                    lambda tx: admit(
                        tx,
                        session_id=session_id,
                        prepared=prepared._replace(parts=looked.parts),
                        run_id=run_id,
                        now_ms=now_ms,
                    )
                )
        except BaseException:
            live.discard(run_id)
            self._give_back(run_id)
            self._step("release")
            raise
        finally:
            forget()
            self._admitting = None
            if interrupt.done():
                # Looked at, so that nobody is told of a failure that nobody waited for.
                interrupt.exception()
        run = admitted.run
        if isinstance(admitted, Repeated):
            live.discard(run_id)
            if not self._is_unsent(run):
                self._give_back(run_id)
                self._step("release")
                return _heard(self._known(run), signal)
            # The commit of the first call was made and its answer lost: the input was never sent.
            live.add(run.run_id)
            if run_id in self._leases:
                self._leases[run.run_id] = self._leases.pop(run_id)
        begun = self._begin(run)
        if interrupt.done():
            # Withdrawn while it was being written: it is there, and nothing of it is sent.
            begun.ask_stop()
        return _heard(begun, signal)

    async def _look_up(self, prepared: Prepared, interrupt: "asyncio.Future[None]") -> Repeated | None:
        """The run that a request already is, where looking further could refuse it by now."""
        if prepared.options.request_id is None or not self._looks_at_something(prepared):
            return None
        session_id = self.session_id
        return await self._unless(
            interrupt, self._store.read(lambda tx: find_repeated(tx, session_id=session_id, prepared=prepared))
        )

    def _looks_at_something(self, prepared: Prepared) -> bool:
        given = bool(prepared.files) or self._deviates(prepared) or bool(prepared.schema)
        return given or self._workspace is not None or self._has_pending_upload

    @property
    def _has_pending_upload(self) -> bool:
        return self._transfers is not None and bool(self._transfers.pending())

    def _deviates(self, prepared: Prepared) -> bool:
        chosen, bound = prepared.options, self.options.execution
        return (chosen.model or bound.model) != bound.model or (chosen.reasoning or bound.reasoning) != bound.reasoning

    async def _look(self, prepared: Prepared, interrupt: "asyncio.Future[None]") -> _Looked:
        """Read what an admission depends on: schema, folder, files, and what the harness says of another model.

        Changes nothing, so it may be given up at any moment, also when what is read never answers.
        """
        if not self._looks_at_something(prepared):
            return _Looked(prepared.parts)
        looked = await self._unless(interrupt, in_own_thread(lambda: self._look_at_files(prepared), "look at input"))
        if self._deviates(prepared):
            chosen = prepared.options
            execution = self.options.execution.model_copy(
                update={
                    "model": chosen.model or self.options.execution.model,
                    "reasoning": chosen.reasoning or self.options.execution.reasoning,
                }
            )
            options = self.options.model_copy(update={"execution": execution})
            inspection = await self._unless(interrupt, self._home.inspect(self.definition, options))
            check_capabilities(
                inspection.capabilities, required_capabilities(prepared, self.options), inspection.driver_id
            )
        return looked

    def _look_at_files(self, prepared: Prepared) -> _Looked:
        if prepared.schema is not None:
            check_schema(prepared.schema.json_schema, prepared.schema.name)
        workspace = self._workspace
        if workspace is None:
            if prepared.files:
                raise AgentWorkspaceError("This session has no folder, so an input cannot bring a file of one.")
            return _Looked(prepared.parts)
        check_unchanged(workspace)
        parts: list[InputPart] = []
        for part in prepared.parts:
            if isinstance(part, WorkspaceFilePart):
                found = resolve_file(workspace, part.path, part.media_type)
                parts.append(WorkspaceFilePart(path=found.path, media_type=found.media_type))
            else:
                parts.append(part)
        return _Looked(tuple(parts))

    async def _unless(self, interrupt: "asyncio.Future[None]", work: Coroutine[Any, Any, T]) -> T:
        """The result of a read; what interrupts the admission ends the waiting at once."""
        task = self._spawn(work)
        either: set[asyncio.Future[Any]] = {task, interrupt}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if interrupt.done():
            task.cancel()
            interrupt.result()
        result: T = task.result()
        return result

    def _is_unsent(self, run: RunRecord) -> bool:
        return run.phase == "admitted" and run.run_id not in self._home.live_runs

    async def _take_lease(self, run_id: str) -> None:
        if self._workspace is not None:
            self._leases[run_id] = await self._home.leases.acquire(self._workspace, run_id)

    def _give_back(self, run_id: str) -> None:
        lease = self._leases.pop(run_id, None)
        if lease is not None:
            self._home.leases.release(lease)

    def _begin(self, record: RunRecord) -> Run:
        driver_session = self._driver_session
        if driver_session is None:
            raise AssertionError("a session without a native side takes no input")
        journal_bytes = self._home.max_session_journal_bytes
        run = self._active = self._handle(record)
        run.begin(
            RunSeat(
                session_id=self.session_id,
                driver_id=self.options.execution.driver,
                reference=self._locator(),
                options=self.options,
                store=self._store,
                driver_session=driver_session,
                redactor=self._home.redactor,
                windows=self._home.windows,
                journal_bytes=journal_bytes,
                ended=self._run_ended,
                tools=self._tools,
                workspace=self._workspace,
                structured_output=self._structured_output(),
                resumes=self._driven.resumes,
                parks=self._driven.parks,
                rejoins=self._driven.rejoins,
                settle_s=self._driven.settle_s,
            )
        )
        if self._state == "destroying":
            # Accepted while the session was being let go: withdrawn before anything is sent.
            run.ask_stop()
        return run

    def _handle(self, record: RunRecord) -> Run:
        """The handle of a run that is driven here, or waits to be."""
        run = self._runs.get(record.run_id)
        if run is None:
            # An earlier process published of it what only that process had.
            self._events_gone |= record.sequence_mark > 0
            journal = make_journal(record, self.options, self._home.max_session_journal_bytes)
            run = self._runs[record.run_id] = Run(record, reference=self._locator(), journal=journal)
            run.can_be_steered(SteerSeat(self._store, self._driven.resumes, self._queue_changed))
        return run

    def _structured_output(self) -> Support:
        capability = self.inspection.capabilities.get("run.structured_output")
        return capability.support if capability is not None else "unsupported"

    def _run_ended(self, run: Run, ending: Ending) -> None:
        self._active = None
        if ending == "parked":
            self._run_parked(run)
            return
        if ending == "left":
            self._give_back(run.run_id)
            self._home.live_runs.discard(run.run_id)
            return
        if ending in ("durable", "not_stored"):
            self._give_back(run.run_id)
        elif (lease := self._leases.pop(run.run_id, None)) is not None:
            self._home.leases.quarantine(lease)
        if ending == "durable":
            self._home.live_runs.discard(run.run_id)
            self._step("run_ended")
            self._expire_journals()
            self._queue_flows = run.state in ("completed", "incomplete")
            self._next_unsent()
            # What was said to it too late waits to be sent now.
            self._queue_changed()
            self._advance_queue()
            return
        self._step("run_unconfirmed")
        self._queue_flows = False
        if run.state == "unknown":
            self._unknown = UnresolvedEffect.of_run(run.run_id, time.time_ns() // 1_000_000)
        if ending == "unconfirmed":
            self._home.live_runs.discard(run.run_id)
        if ending == "unconfirmed" and not self._driven.rejoins:
            self._quarantined = True
            self._home.quarantine(self.session_id)
            if self._state == "failed":
                # Kept by `_tasks`; nobody waits for it.
                _ = self._spawn(self._close_native())

    def _run_parked(self, run: Run) -> None:
        self._give_back(run.run_id)
        self._home.live_runs.discard(run.run_id)
        self._parked = run
        self._step("run_parked")
        go_on, stop = run.was_decided, run.is_withdrawn
        run.waits_for_person(lambda: self._stop_parked(run))
        if self._state == "destroying":
            return
        if stop:
            self._stop_parked(run)
        elif go_on:
            self._go_on(run)

    def _next_unsent(self) -> None:
        blocked = self._parked is not None or (self._tools is not None and self._tools.unresolved)
        if not self._unsent or self._state != "ready" or blocked:
            return
        self._step("reserve")
        if self._workspace is None:
            self._begin(self._unsent.popleft())
        else:
            # Kept by `_tasks`; whoever leaves the session meanwhile is found out when the folder is there.
            _ = self._spawn(self._send_unsent(self._unsent[0]))

    async def _send_unsent(self, record: RunRecord) -> None:
        try:
            await self._take_lease(record.run_id)
        except AgentBusyError as busy:
            if self._state == "running":
                self._step("release")
                # Acknowledged once, so it is sent once: when the folder is free.
                self._home.leases.when_released(self._next_unsent, elsewhere="pid" in busy.details)
            return
        except AgentWorkspaceError as fault:
            _log.warning("a message waits, because its folder cannot be taken: %s", fault.message)
            if self._state == "running":
                self._step("release")
            return
        if self._state == "running" and self._unsent and self._unsent[0] is record:
            self._begin(self._unsent.popleft())
        else:
            self._give_back(record.run_id)

    def _expire_journals(self) -> None:
        """Keep the journals of ended runs within the session's bound, oldest out first."""
        ended = [run for run in self._runs.values() if run.done]
        total = sum(run.journal.statistics().retained_bytes for run in ended)
        for run in ended[:-1]:
            if total <= self._home.max_session_journal_bytes:
                return
            total -= run.journal.statistics().retained_bytes
            self._events_gone = True
            run.journal.expire()
            del self._runs[run.run_id]

    def _known(self, record: RunRecord) -> Run:
        """The handle of an admitted run: the one there is, else one for the saved outcome."""
        return self._runs.get(record.run_id) or Run.restored(record, reference=self._locator())

    async def _store_status(self, status: Literal["open", "detached"]) -> None:
        driver_session = self._driver_session
        driver_state: dict[str, Any] | None = None
        if driver_session is not None:
            driver_state = freeze(self._home.redactor.value(driver_session.state()))
        session_id = self.session_id

        def put(tx: AgentTx) -> None:
            record = tx.session(session_id)
            if record is not None:
                kept = record.driver_state if driver_state is None else driver_state
                tx.put_session(msgspec.structs.replace(record, status=status, driver_state=kept))

        await self._store.transact(put)

    async def _forget_native(self) -> None:
        kept = await self._store.read(lambda tx: tx.session(self.session_id))
        state = self._record.driver_state if kept is None else kept.driver_state
        await self._home.forget(self.options.execution.driver, self.agent_id, self.session_id, state)

    async def _close_native(self) -> None:
        await self._close_driver()
        if self._tools is not None:
            await self._tools.close()

    async def _close_driver(self) -> None:
        if self._driver_session is None:
            return
        task = self._spawn(_awaited(self._driver_session.close()))
        done, _ = await asyncio.wait({task}, timeout=self._home.windows.cleanup_s)
        if not done:
            task.cancel()
            _log.warning("the native side of session %s did not close in time", self.session_id)
        elif not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("closing the native side of session %s failed: %s", self.session_id, type(error).__name__)

    def _leave(self) -> None:
        for run in self._runs.values():
            if run.done:
                run.journal.expire()
        self._home.left(self)

    def _locator(self) -> dict[str, Any]:
        return self.reference().model_dump(mode="json")

    def _refusal(self, operation: Operation, judged: Verdict) -> AgentRuntimeError:
        details = {"session_id": self.session_id, "state": self._state}
        if judged == "busy" and self._transferring is not None:
            return AgentBusyError("A file is being moved. Wait until it has arrived, or stop that.", details=details)
        if judged == "busy":
            sentence = (
                "A run goes on here and would end with the session. Stop it first, or wait until it has ended."
                if operation == "detach"
                else "An answer is still coming. Stop it first, or wait until it has ended."
            )
            return AgentBusyError(sentence, details=details)
        if judged == "failed":
            return AgentSessionRecoveryError(
                "What became of the last message is not known, so this session takes no more. "
                "Continue in a new session.",
                session_id=self.session_id,
                details={**details, "reference": self._locator()},
            )
        return AgentClosedError(f"This session was {self._state}; resume it to go on.", details=details)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Fetched here, because the caller may have been cancelled.
            task.exception()


def _queued(row: InboxRow) -> QueuedMessage:
    kind: Literal["steer", "follow_up"] = "steer" if row.kind == "steer" else "follow_up"
    return QueuedMessage(row.inbox_id, kind, row.text, row.created_ms, row.extra.get("input"))


def _with_text(parts: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """An input in parts with these words: as it came, unless they were changed while it waited."""
    if text == PARTS_JOINT.join(str(part["text"]) for part in parts["parts"] if part["type"] == "text"):
        return parts
    others = [part for part in parts["parts"] if part["type"] != "text"]
    return {**parts, "parts": [{"type": "text", "text": text}, *others]}


def _moment(recorded_ms: int | None) -> datetime | None:
    return datetime.fromtimestamp(recorded_ms / 1000, UTC) if recorded_ms else None


def _interrupt(interrupt: "asyncio.Future[None]", reason: BaseException | None) -> None:
    if not interrupt.done():
        interrupt.set_exception(reason or AgentAbortedError("The message was withdrawn before it was sent."))


def _heard(run: Run, signal: AbortSignal | None) -> Run:
    """The run, stopped when the caller raises its signal."""
    if signal is not None:
        run.stop_with(signal)
    return run


def _nothing() -> None:
    return


def _cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()


async def _awaited(work: Awaitable[None]) -> None:
    await work
