"""Calls of host tools, from what the native side asks for to what it may be told.

Owns permission, execution, hooks and reconciliation, and the outbox steps around each. Must not know drivers,
events or what a tool does. Invariants: a tool is called only after its `executing` is durable and at most once
for each call id; what came of it is durable before anybody is told; a report that cannot be kept or may not be
told is retained here and handed to the host, never replaced; what was interrupted blocks until there is proof.
Tools of mounts go through the gate and through nothing else: claimed and settled in the outbox's own transactions.
"""

import asyncio
import inspect
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from runtime_host import outbox
from runtime_host.canonical import NotJsonError, clean_text, freeze
from runtime_host.definitions import TrustedContext
from runtime_host.errors import AgentUnresolvedEffectError, StorageError
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.redaction import shapes_masked
from runtime_host.storage.base import AgentStore, AgentTx, ToolCallRecord, ToolOutcome
from runtime_host.tools.base import (
    USUAL_BOUNDS,
    CallHeldError,
    EarlierCall,
    Gate,
    HostTool,
    Judged,
    OnRetainedObservation,
    Permission,
    ReconcileBounds,
    Reconciliation,
    RetainedObservation,
    RunCompletion,
    ToolCall,
    ToolContext,
    ToolDelivery,
    ToolFailedError,
    ToolOffer,
    ToolOutcomeUnknownError,
    ToolReceipt,
    ToolReport,
    ToolRequest,
)
from runtime_host.tools.resolver import NO_TOOLS, BoundTools, gate_offers
from runtime_host.transcript import bound_text

_log = logging.getLogger("runtime_host.tools")

T = TypeVar("T")
Commit = Callable[[Callable[[AgentTx], T]], Awaitable[T]]
_Key = tuple[str, str]

MAX_TOLD_BYTES: Final = 256 * 1024
"""What a model is told of one call at most."""
HOOK_S: Final = 10.0
HOLD_WAIT_S: Final = 50.0
"""How long a harness that does not park is kept waiting for a person, before it is told to expect a message."""
_JUDGED_AT_MOST: Final = 5

STILL_UNRESOLVED: Final = (
    "The tool {tool} was interrupted, and whether it acted is not known. "
    "Nothing is sent and nothing is executed again until that is found out."
)


class Redactor(Protocol):
    def text(self, text: str, /) -> str: ...
    def value(self, value: Any, /) -> Any: ...


class _Retained(NamedTuple):
    report: ToolReport
    projected: bool


class _Unproven(Exception):
    """What came of a call is not known, or may not be told."""


class _NotClaimedError(Exception):
    """The gate does not let an operation be begun any more; nothing was written."""


class _Execution:
    """A call that runs: `whole` is everything up to the durable result, `tool` only the tool itself."""

    def __init__(self, operation_id: str, progress: Callable[[str], Awaitable[None]] | None) -> None:
        self.operation_id = operation_id
        self.progress = progress
        self.stopping = asyncio.Event()
        self.whole: asyncio.Task[ToolDelivery] | None = None
        self.tool: asyncio.Task[Any] | None = None


class SessionTools:
    """The host tools of one session.

    Args:
        session_id: of the session.
        context: whose it is.
        bound: the tools that the definition selects, checked; None when it selects none.
        gate: stands before the tools of mounts; None where there are none.
        store: of the agent.
        redactor: applied to ids, names, arguments and reports before they are kept or told.
        on_retained: told of reports that could not be kept or may not be told.
        window_s: how long a run that is stopped is waited for. For half of it a tool may go on to its
            end; then it is cut.
        bounds: how far one look at the sources of interrupted calls goes.
        hold_wait_s: how long a harness that does not park is kept waiting for a person.
    """

    def __init__(
        self,
        *,
        session_id: str,
        context: TrustedContext,
        bound: BoundTools | None,
        store: AgentStore,
        redactor: Redactor,
        gate: Gate | None = None,
        on_retained: OnRetainedObservation | None = None,
        window_s: float = 2.0,
        bounds: ReconcileBounds = USUAL_BOUNDS,
        hold_wait_s: float = HOLD_WAIT_S,
    ) -> None:
        self.session_id = session_id
        self.selected = bound
        self.bound = bound or NO_TOOLS
        self.gate = gate
        self.store = store
        self.redactor = redactor
        self._context = context
        self._on_retained = on_retained
        self._grace_s = window_s / 2
        self._end_s = window_s / 4
        self._bounds = bounds
        self._hold_wait_s = hold_wait_s
        self._asked: dict[_Key, int] = {}
        self.reconciliation: Reconciliation | None = None
        self._retained: dict[_Key, _Retained] = {}
        self._running: dict[_Key, _Execution] = {}
        self._unresolved: dict[_Key, ToolCallRecord] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._acquired = False

    # ------------------------------------------------------------------------------------ the session

    @property
    def unresolved(self) -> tuple[ToolCallRecord, ...]:
        """Calls of which nobody knows what came of them. They block the session."""
        return tuple(self._unresolved.values())

    async def open(self) -> None:
        """Take what an earlier process left unresolved, and the manager."""
        for record in await self.store.read(lambda tx: tx.unresolved_tool_calls(self.session_id)):
            self._unresolved[record.run_id, record.call_id] = record
        await self.refresh()
        manager = self.bound.resolved.manager
        if manager is not None:
            await manager.acquire(self.session_id)
            self._acquired = True

    async def close(self) -> None:
        """Let go of the manager; what still executes is abandoned and stays unresolved. Idempotent."""
        for execution in tuple(self._running.values()):
            if execution.tool is not None:
                execution.tool.cancel()
        tasks = tuple(self._tasks)
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=self._end_s)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=self._end_s)
        manager = self.bound.resolved.manager
        if manager is not None and self._acquired:
            self._acquired = False
            await self._hook("release", manager.release(self.session_id))

    async def refresh(self) -> None:
        """Reconcile what is offered with the mounts as they are; before each run."""
        if self.gate is not None:
            await self.gate.refresh()

    @property
    def offers(self) -> tuple[ToolOffer, ...]:
        """What a native side is told of now: the selected tools, then those of mounts."""
        if self.gate is None:
            return self.bound.offers
        return (*self.bound.offers, *gate_offers(self.gate, self.bound.by_name))

    def is_gated(self, name: str) -> bool:
        """Whether a name that a model called is the gate's business. A selected tool never is."""
        if self.gate is None or name in self.bound.by_name:
            return False
        return not self.bound.by_name or self.gate.owns(name)

    def channel(
        self,
        run_id: str,
        commit: "Commit[Any]",
        earlier: Sequence[ToolCallRecord] = (),
        *,
        parks: bool = False,
    ) -> "RunChannel":
        """The channel of a run.

        Args:
            run_id: of the run.
            commit: does a change in a transaction and returns when it is durable.
            earlier: calls of the run from before.
            parks: whether the run waits by itself for calls that a person has to decide.
        """
        return RunChannel(self, run_id, commit, earlier, parks=parks, hold_wait_s=self._hold_wait_s)

    def binding(self) -> dict[str, Any] | None:
        """What a session's record keeps of the selected tools; tools of mounts are reconciled, not pinned."""
        return self.selected.binding() if self.selected is not None else None

    def completed(self, completion: RunCompletion) -> None:
        """Tell the owner how a run ended; nobody waits for what it does with that."""
        owner = self.bound.resolved.owner
        if owner is not None:
            completion = completion._replace(output_text=bound_text(completion.output_text, MAX_TOLD_BYTES))
            # Kept by `_tasks`.
            _ = self.spawn(self._hook("run_completed", owner.run_completed(completion)))

    async def reconcile(self) -> tuple[ToolCallRecord, ...]:
        """Find out what came of interrupted calls, from what is retained here or from the source; execute nothing.

        Stops at its bounds, and `reconciliation` then says how far it looked; those it did not come to are the
        first the next time.

        Returns:
            the calls of which it is still not known.

        Raises:
            StorageError: what was found out could not be kept.
        """
        records = await self.store.read(lambda tx: tx.unresolved_tool_calls(self.session_id))
        records = [record for record in records if (record.run_id, record.call_id) not in self._running]
        records.sort(key=lambda record: self._asked.get((record.run_id, record.call_id), 0))
        ends_at = time.monotonic() + self._bounds.all_s
        looked_at = found = 0
        stopped_by: Literal["calls", "time"] | None = None
        for record in records:
            left_s = ends_at - time.monotonic()
            if looked_at == self._bounds.calls or left_s <= 0:
                stopped_by = "calls" if looked_at == self._bounds.calls else "time"
                break
            looked_at += 1
            key = record.run_id, record.call_id
            self._asked[key] = self._asked.get(key, 0) + 1
            told = await self._proof(record, min(left_s, self._bounds.each_s))
            if told is not None:
                await self.store.transact(self._acknowledging(record, told))
                found += 1
                self._retained.pop(key, None)
                self._unresolved.pop(key, None)
                self._asked.pop(key, None)
        self.reconciliation = Reconciliation(
            unresolved=len(records), looked_at=looked_at, found=found, stopped_by=stopped_by
        )
        left = await self.store.read(lambda tx: tx.unresolved_tool_calls(self.session_id))
        self._unresolved = {
            (record.run_id, record.call_id): record
            for record in left
            if (record.run_id, record.call_id) not in self._running
            or (record.run_id, record.call_id) in self._unresolved
        }
        return self.unresolved

    def check_resolved(self) -> None:
        """Refuse to go on while something is unresolved.

        Raises:
            AgentUnresolvedEffectError: something is.
        """
        for record in self._unresolved.values():
            raise unresolved_error(record, self.reconciliation)

    # --------------------------------------------------------------------------------------- one call

    async def permission(self, call: ToolCall, context: ToolContext) -> Permission:
        """Whether everybody who has a say allows a call; whoever fails to answer does not."""
        resolved = self.bound.resolved
        owner = resolved.owner
        if owner is not None and owner.cancelled:
            return Permission(False, "The agent that this tool belongs to was stopped.")
        asked: list[Callable[[ToolCall, ToolContext], Awaitable[Permission]]] = [
            each.permit for each in (resolved.permission_manager, resolved.manager) if each is not None
        ]
        if owner is not None:
            asked.append(owner.before_tool)
        for ask in asked:
            try:
                permission = await ask(call, context)
                allowed, reason = permission.allowed is True, str(permission.reason)
            except Exception as error:
                _log.warning("no answer whether %s may be called: %s", call.tool, type(error).__name__)
                allowed, reason = False, "Whether it may be used could not be found out."
            if not allowed:
                return Permission(False, self.redactor.text(clean_text(reason)) or "It may not be used here.")
        return Permission(True)

    def context(self, stopping: asyncio.Event) -> ToolContext:
        """As whom and for whom a call acts."""
        resolved = self.bound.resolved
        owner = resolved.owner
        if owner is None:
            return ToolContext(
                self._context,
                resolved.principal,
                frozenset(resolved.roles),
                freeze(resolved.accounts),
                stopping=stopping,
            )
        return ToolContext(
            self._context,
            owner.principal,
            frozenset(resolved.roles) | frozenset(owner.roles),
            freeze({**resolved.accounts, **owner.accounts}),
            owner.memory,
            stopping,
        )

    async def perform(
        self,
        call: ToolCall,
        record: ToolCallRecord,
        commit: "Commit[Any]",
        operation_id: str = "",
        progress: Callable[[str], Awaitable[None]] | None = None,
    ) -> ToolDelivery:
        """Execute a call whose `executing` is durable, and keep what came of it.

        Args:
            call: the call.
            record: as it is kept.
            commit: as for `channel`.
            operation_id: of a call that the gate claimed.
            progress: shows text while it goes on.

        Raises:
            AgentUnresolvedEffectError: that is not known, or may not be told.
            StorageError: it could not be kept.
        """
        key = call.run_id, call.call_id
        execution = self._running[key] = _Execution(operation_id, progress)
        execution.whole = self.spawn(self._perform(call, record, commit, execution))
        try:
            return await asyncio.shield(execution.whole)
        except asyncio.CancelledError:
            await self._stop(execution)
            if key in self._running:
                self._unresolved[key] = record
            raise

    async def take_back(
        self, beginning: "asyncio.Task[Any]", run_id: str, call_id: str, operation_id: str = ""
    ) -> None:
        """Undo the `executing` of a call that was stopped before it was executed: that is certain here."""

        def back(tx: AgentTx) -> None:
            outbox.take_back(tx, run_id, call_id)
            if self.gate is not None and operation_id:
                self.gate.give_back(tx, operation_id)

        async def undo() -> None:
            await asyncio.wait({beginning})
            await self.store.transact(back)

        undoing = self.spawn(undo())
        await asyncio.wait({undoing})

    async def _stop(self, execution: _Execution) -> None:
        """Let a tool come to its end for a moment, then cut it."""
        whole = execution.whole
        if whole is None:
            return
        execution.stopping.set()
        await asyncio.wait({whole}, timeout=self._grace_s)
        if execution.tool is not None and not whole.done():
            execution.tool.cancel()
            await asyncio.wait({whole}, timeout=self._end_s)

    async def _perform(
        self, call: ToolCall, record: ToolCallRecord, commit: "Commit[Any]", execution: _Execution
    ) -> ToolDelivery:
        key = call.run_id, call.call_id
        # Until it is acknowledged.
        began_ns = time.monotonic_ns()
        context = self.context(execution.stopping)
        try:
            try:
                report = await self._report(call, context, execution)
                duration_ms = (time.monotonic_ns() - began_ns) // 1_000_000
                told = await self._told(call, report, gated=bool(execution.operation_id))
                await self._keep(call, record, report, told, commit)
            except _Unproven:
                raise unresolved_error(record) from None
        except BaseException:
            self._unresolved[key] = record
            raise
        finally:
            self._running.pop(key, None)
        self._unresolved.pop(key, None)
        owner = self.bound.resolved.owner
        if owner is not None and not execution.operation_id:
            await self._hook("after_tool", owner.after_tool(call, report, context))
        return _delivery(record, told, duration_ms)._replace(changes=report.changes, shown=report.shown)

    async def _report(self, call: ToolCall, context: ToolContext, execution: _Execution) -> ToolReport:
        if self.gate is not None and execution.operation_id:
            return await self._gated_report(self.gate, call, context, execution)
        tool = self.bound.by_name[call.tool]
        manager = self.bound.resolved.manager
        if manager is not None:
            work: Coroutine[Any, Any, Any] = _awaited(manager.execute(call, tool, context))
        elif inspect.iscoroutinefunction(tool.call):
            work = _awaited(tool.call(call.arguments, context))
        else:
            # Cannot be cut: it runs to its end, and its result is kept even when nobody waits any more.
            return await self._settled(call, _plain_call(tool, call, context))
        execution.tool = self.spawn(work)
        await asyncio.wait({execution.tool})
        if execution.tool.cancelled():
            raise _Unproven
        return await self._settled(call, _outcome_of(execution.tool))

    async def _gated_report(
        self, gate: Gate, call: ToolCall, context: ToolContext, execution: _Execution
    ) -> ToolReport:
        """What came of a call of a mount. Cut off in the middle it is said to be so, and blocks nothing."""
        context = replace(context, progress=execution.progress)
        execution.tool = self.spawn(gate.execute(execution.operation_id, call, context))
        await asyncio.wait({execution.tool})
        if execution.tool.cancelled():
            return gate.cut(execution.operation_id)
        if (error := execution.tool.exception()) is not None:
            _log.warning("the gate failed at %s: %s", call.tool, type(error).__name__)
            return gate.cut(execution.operation_id)
        report: ToolReport = execution.tool.result()
        return report

    async def _settled(self, call: ToolCall, work: Awaitable[Any]) -> ToolReport:
        """What came of a call, in every way in which it can end."""
        try:
            result = await work
        except ToolFailedError as failed:
            return ToolReport(success=False, payload=clean_text(str(failed)) or "The tool failed.")
        except ToolOutcomeUnknownError:
            raise _Unproven from None
        except Exception as error:
            # Its kind only: what an application puts into its exceptions is not meant for a model.
            _log.warning("tool %s failed: %s", call.tool, type(error).__name__)
            return ToolReport(
                success=False, payload=f"The tool failed ({type(error).__name__}); how far it got is not known."
            )
        report = result if isinstance(result, ToolReport) else None
        try:
            payload = freeze(report.payload if report is not None else result)
        except NotJsonError:
            # Where in it names keys of it, which are not for a log.
            _log.warning("tool %s returned what is no JSON", call.tool)
            return ToolReport(success=False, payload="The tool ran to its end, but its result cannot be told.")
        if report is None:
            return ToolReport(payload=payload)
        return report.model_copy(update={"payload": payload})

    async def _told(self, call: ToolCall, report: ToolReport, *, gated: bool = False) -> outbox.Told:
        """What may be told of a report; where that cannot be found out, the report is retained."""
        project = None if gated else self.bound.resolved.project
        projected = report
        if project is not None:
            try:
                projected = await project(call, report)
                if not isinstance(projected, ToolReport):
                    raise TypeError("a projection is a report")
                projected = projected.model_copy(update={"payload": freeze(projected.payload)})
            except Exception as error:
                _log.warning("the evidence of a call of %s could not be kept: %s", call.tool, type(error).__name__)
                self._retain(call, report, projected=False)
                raise _Unproven from None
        outcome: ToolOutcome = "succeeded" if projected.success else "failed"
        return outbox.Told(outcome, self._bounded(projected.payload), tuple(map(str, projected.evidence)))

    async def _keep(
        self, call: ToolCall, record: ToolCallRecord, report: ToolReport, told: outbox.Told, commit: "Commit[Any]"
    ) -> None:
        try:
            await commit(self._acknowledging(record, told))
        except StorageError:
            self._retain(
                call,
                ToolReport(success=told.outcome == "succeeded", payload=told.payload, evidence=told.evidence),
                projected=True,
                raw=report,
            )
            raise

    def _acknowledging(self, record: ToolCallRecord, told: outbox.Told) -> Callable[[AgentTx], ToolCallRecord | None]:
        """Keep what came of a call, and with it what the gate knows of it."""
        gate = self.gate if self.is_gated(record.tool) else None
        if gate is None:
            return lambda tx: outbox.acknowledge(tx, record.run_id, record.call_id, told)
        arguments = _known_arguments(record)
        call = ToolCall(record.session_id, record.run_id, record.call_id, record.tool, arguments)
        operation_id = gate.operation_of(call)
        report = ToolReport(success=told.outcome == "succeeded", payload=told.payload, evidence=told.evidence)

        def both(tx: AgentTx) -> ToolCallRecord | None:
            gate.settle(tx, operation_id, report)
            return outbox.acknowledge(tx, record.run_id, record.call_id, told)

        return both

    def _retain(self, call: ToolCall, report: ToolReport, *, projected: bool, raw: ToolReport | None = None) -> None:
        self._retained[call.run_id, call.call_id] = _Retained(report, projected)
        if self._on_retained is None:
            return
        try:
            self._on_retained(RetainedObservation(call, raw or report, "storage" if projected else "evidence"))
        except Exception as error:
            _log.warning("the host did not take a retained observation: %s", type(error).__name__)

    def _bounded(self, payload: Any) -> Any:
        payload = freeze(shapes_masked(self.redactor.value(payload)))
        if isinstance(payload, str):
            return bound_text(payload, MAX_TOLD_BYTES)
        size_bytes = len(json.dumps(payload, ensure_ascii=False).encode())
        if size_bytes > MAX_TOLD_BYTES:
            return f"The result has {size_bytes} bytes, which is more than can be told ({MAX_TOLD_BYTES})."
        return payload

    async def _proof(self, record: ToolCallRecord, timeout_s: float) -> outbox.Told | None:
        """What came of an interrupted call, when that can be shown."""
        call = ToolCall(self.session_id, record.run_id, record.call_id, record.tool, _known_arguments(record))
        retained = self._retained.get((record.run_id, record.call_id))
        gated = self.is_gated(record.tool)
        reconcile = self.bound.resolved.reconcile
        try:
            async with asyncio.timeout(timeout_s):
                if retained is not None:
                    if retained.projected:
                        report = retained.report
                        outcome: ToolOutcome = "succeeded" if report.success else "failed"
                        return outbox.Told(outcome, report.payload, report.evidence)
                    return await self._told(call, retained.report)
                if self.gate is not None and gated:
                    known = await self.gate.reconcile(call)
                    return await self._told(call, known.report, gated=True) if known is not None else None
                if reconcile is None or record.tool not in self.bound.by_name:
                    return None
                receipt = await reconcile(call, self.context(asyncio.Event()))
                if not _proves(receipt, record):
                    return None
                return await self._told(call, receipt.report)  # type: ignore[union-attr]  # `_proves` has looked
        except _Unproven:
            return None
        except Exception as error:
            _log.warning("what became of a call of %s was not found out: %s", record.tool, type(error).__name__)
            return None

    async def _hook(self, name: str, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(HOOK_S):
                await work
        except Exception as error:
            _log.warning("the hook %s failed: %s", name, type(error).__name__)

    def spawn(self, work: "Coroutine[Any, Any, T]") -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Fetched here, because whoever waited may have been cancelled.
            task.exception()


class RunChannel:
    """The `ToolChannel` of one run."""

    def __init__(
        self,
        tools: SessionTools,
        run_id: str,
        commit: "Commit[Any]",
        earlier: Sequence[ToolCallRecord],
        *,
        parks: bool = False,
        hold_wait_s: float = HOLD_WAIT_S,
    ) -> None:
        self._parks = parks
        self._hold_wait_s = hold_wait_s
        self._tools = tools
        # The same for the whole run: what changes meanwhile is refused by the gate.
        self._offers = tools.offers
        self._run_id = run_id
        self._commit = commit
        self._earlier = tuple(
            EarlierCall(
                ToolRequest(record.call_id, record.tool, record.arguments, record.native),
                _delivery(record) if record.phase == "delivered" else None,
            )
            for record in earlier
        )
        self._repeated: set[str] = set()
        self.answered = False

    @property
    def offers(self) -> tuple[ToolOffer, ...]:
        return self._offers

    @property
    def earlier(self) -> tuple[EarlierCall, ...]:
        return self._earlier

    def records(self, requests: Sequence[ToolRequest]) -> tuple[ToolCallRecord, ...]:
        """The calls as they are kept, for who writes them together with the reply that asked for them."""
        return tuple(self._record(self._masked(each)) for each in requests)

    async def execute(
        self,
        requests: tuple[ToolRequest, ...],
        started: Callable[[ToolRequest, Any], Awaitable[None]],
        completed: Callable[[ToolDelivery], Awaitable[None]],
        progressed: Callable[[ToolRequest, str], Awaitable[None]] | None = None,
    ) -> tuple[ToolDelivery, ...]:
        run_id = self._run_id
        requests = tuple(map(self._masked, requests))
        known = {record.call_id: record for record in await self._tools.store.read(lambda tx: tx.tool_calls(run_id))}
        # Off the loop: what a schema makes of arguments may take a second.
        asked = await in_own_thread(
            lambda: [_Asked(request, *self._read(request)) for request in requests], "check arguments"
        )
        fresh = [self._record(each.request) for each in asked if each.request.call_id not in known]
        if fresh and any(self._tools.is_gated(each.request.name) for each in asked):
            # Before a person is asked: what is held has to be found again after a restart.
            await self._commit(_asking(fresh))
            fresh = []
        self._repeated.clear()
        said = _Said(started, completed, progressed)
        deliveries: list[ToolDelivery] = []
        held: list[str] = []
        for each in asked:
            record = known.get(each.request.call_id) or self._record(each.request)
            delivery = await self._one(each, record, fresh, said, held)
            if delivery is not None:
                deliveries.append(delivery)
        if fresh:
            # Repeats only: nothing was written yet, and nothing needs to be.
            await self._commit(_asking(fresh))
        if held:
            raise CallHeldError(tuple(held))
        return tuple(deliveries)

    async def _one(
        self, each: "_Asked", record: ToolCallRecord, fresh: list[ToolCallRecord], said: "_Said", held: list[str]
    ) -> ToolDelivery | None:
        """One call, in its turn; None when it waits for a person, or for one before it that does."""
        if record.phase != "requested":
            return await self._of_before(each.request, record, said)
        if self._tools.is_gated(each.request.name):
            delivery = await self._gated(each, record, said, held)
            if delivery is not None:
                await said.completed(delivery)
            return delivery
        if held:
            # In the order in which they were asked for: what comes after waits too.
            return None
        await said.started(each.request, self._tools.redactor.value(each.arguments))
        delivery = await self._execute(each, record, fresh)
        fresh.clear()
        await said.completed(delivery)
        return delivery

    async def delivering(self, call_ids: tuple[str, ...]) -> None:
        kept = map(self._tools.redactor.text, call_ids)
        ids = [call_id for call_id in kept if call_id not in self._repeated]
        self.answered = False
        if ids and not await self._commit(lambda tx: outbox.deliver(tx, self._run_id, ids)):
            raise AgentUnresolvedEffectError("A tool's result may have been told before, so it is not told again.")

    def delivered(self, call_ids: tuple[str, ...]) -> None:
        self.answered = True

    # ----------------------------------------------------------------------------------------- inside

    def _masked(self, request: ToolRequest) -> ToolRequest:
        # Ids and names are the model's words as well: they are kept with the call, and what comes of it goes by them.
        mask = self._tools.redactor.text
        return request._replace(call_id=mask(request.call_id), name=mask(request.name))

    async def _of_before(self, request: ToolRequest, record: ToolCallRecord, said: "_Said") -> ToolDelivery:
        """What is told of a call that is past the point where it could be executed."""
        if record.phase != "acknowledged":
            return self._repeat(request, record)
        # From before a restart, or from before the run waited for a person: it is not executed again.
        delivery = _delivery(record)
        await said.completed(delivery)
        return delivery

    # ------------------------------------------------------------------------------- through the gate

    async def _gated(
        self, each: "_Asked", record: ToolCallRecord, said: "_Said", held: list[str]
    ) -> ToolDelivery | None:
        """One call of a mount, up to what is told of it; None when it waits for a person, or for one that does."""
        tools, gate, request = self._tools, self._tools.gate, each.request
        if gate is None or each.refusal is not None:
            return await self._refused(
                request, record, Judged("refuse", each.refusal or "There is no such tool."), said
            )
        call = ToolCall(tools.session_id, self._run_id, request.call_id, request.name, each.arguments)
        context, shown = tools.context(asyncio.Event()), False
        for _ in range(_JUDGED_AT_MOST):
            judged = await gate.judge(call, context, parks=self._parks)
            if held and judged.kind != "hold":
                # In the order in which they were asked for: it is judged anew when those before are decided.
                return None
            if not shown:
                about = _waiting(judged) if judged.kind == "hold" else _about(judged)
                await said.started(request._replace(about=about), tools.redactor.value(each.arguments))
                shown = True
            if judged.kind == "refuse":
                return await self._refuse(record, judged)
            if judged.kind == "hold":
                if self._parks:
                    held.append(judged.operation_id)
                    return None
                if (paused := await self._wait(gate, record, judged)) is not None:
                    return paused
                continue
            try:
                return await self._claimed(gate, call, record, judged, said)
            except _NotClaimedError:
                continue
        words = "What this tool is was changed while it was called. Nothing was executed."
        return await self._refuse(record, Judged("refuse", words, "mount_changed"))

    async def _wait(self, gate: Gate, record: ToolCallRecord, judged: Judged) -> ToolDelivery | None:
        """Keep a harness waiting for a person as long as it bears; None when there is a decision."""
        if await gate.decided(judged.operation_id, self._hold_wait_s):
            return None
        # A plain answer: a harness that is given a failure tries again.
        told = outbox.Told("succeeded", judged.words)

        def pause(tx: AgentTx) -> bool:
            if not gate.pause(tx, judged.operation_id):
                return False
            outbox.acknowledge(tx, record.run_id, record.call_id, told)
            return True

        if not await self._commit(pause):
            return None
        return _delivery(record, told)._replace(about=_waiting(judged))

    async def _refused(
        self, request: ToolRequest, record: ToolCallRecord, judged: Judged, said: "_Said"
    ) -> ToolDelivery:
        await said.started(request, {})
        return await self._refuse(record, judged)

    async def _refuse(self, record: ToolCallRecord, judged: Judged) -> ToolDelivery:
        told = outbox.Told("refused", self._tools.redactor.text(clean_text(judged.words)))
        await self._commit(lambda tx: outbox.acknowledge(tx, record.run_id, record.call_id, told))
        return _delivery(record, told)._replace(about=_about(judged))

    async def _claimed(
        self, gate: Gate, call: ToolCall, record: ToolCallRecord, judged: Judged, said: "_Said"
    ) -> ToolDelivery:
        """Begin and execute a call that may be: the outbox and the gate write that in one transaction."""
        tools, operation_id = self._tools, judged.operation_id

        def begin(tx: AgentTx) -> bool:
            if not outbox.begin(tx, call.run_id, call.call_id):
                return False
            if not gate.claim(tx, operation_id):
                # Undoes what was begun above.
                raise _NotClaimedError
            return True

        beginning = tools.spawn(_awaited(self._commit(begin)))
        try:
            begun = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            await tools.take_back(beginning, call.run_id, call.call_id, operation_id)
            raise
        if not begun:
            raise unresolved_error(record)
        progress = None
        if said.progressed is not None:
            progress = _progress(said.progressed, ToolRequest(record.call_id, record.tool, record.arguments))
        delivery = await tools.perform(call, record, self._commit, operation_id, progress)
        return delivery._replace(about=_about(judged))

    # ------------------------------------------------------------------------------- selected tools

    async def _execute(self, each: "_Asked", record: ToolCallRecord, fresh: list[ToolCallRecord]) -> ToolDelivery:
        """One call, from `requested` to a durable result. `fresh`: calls whose request is not durable yet."""
        tools, run_id, call_id = self._tools, self._run_id, each.request.call_id
        refusal = each.refusal
        call = ToolCall(tools.session_id, run_id, call_id, each.request.name, each.arguments)
        if refusal is None:
            permission = await tools.permission(call, tools.context(asyncio.Event()))
            refusal = None if permission.allowed else f"The tool was not allowed: {permission.reason}"
        if refusal is not None:
            told = outbox.Told("refused", tools.redactor.text(clean_text(refusal)))

            def refuse(tx: AgentTx) -> None:
                outbox.ask(tx, fresh)
                outbox.acknowledge(tx, run_id, call_id, told)

            await self._commit(refuse)
            return _delivery(record, told)

        def begin(tx: AgentTx) -> bool:
            outbox.ask(tx, fresh)
            return outbox.begin(tx, run_id, call_id)

        beginning = tools.spawn(_awaited(self._commit(begin)))
        try:
            begun = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            await tools.take_back(beginning, run_id, call_id)
            raise
        if not begun:
            raise unresolved_error(record)
        return await tools.perform(call, record, self._commit)

    def _repeat(self, request: ToolRequest, record: ToolCallRecord) -> ToolDelivery:
        """The answer to a call id that this run has used before. Nothing is executed."""
        if record.phase in ("executing", "interrupted", "withdrawn"):
            raise unresolved_error(record)
        self._repeated.add(request.call_id)
        arguments = self._tools.redactor.text(clean_text(request.arguments))
        if record.tool == request.name and record.arguments == arguments:
            return _delivery(record)
        words = "This call id was used for another call before. Nothing was executed; use a new id for a new call."
        return ToolDelivery(request.call_id, request.name, arguments, False, words, words, None, request.native)

    def _read(self, request: ToolRequest) -> tuple[Mapping[str, Any], str | None]:
        """The arguments of a request, and why it is not executed, if it is not."""
        gated = self._tools.is_gated(request.name)
        if not gated and request.name not in self._tools.bound.by_name:
            offered = ", ".join(offer.name for offer in self.offers)
            return freeze({}), f"There is no tool of this name; nothing was executed. There are: {offered}."
        try:
            parsed = json.loads(request.arguments or "{}")
            arguments = freeze(parsed)
        except (ValueError, RecursionError):
            return freeze({}), "The arguments are no JSON; nothing was executed."
        if not isinstance(parsed, dict):
            return freeze({}), "The arguments must be a JSON object; nothing was executed."
        if gated:
            # Its schema is looked at by the gate.
            return arguments, None
        complaint = self._tools.bound.complaint(request.name, parsed)
        return arguments, None if complaint is None else f"Nothing was executed: {complaint}."

    def _record(self, request: ToolRequest) -> ToolCallRecord:
        return ToolCallRecord(
            session_id=self._tools.session_id,
            run_id=self._run_id,
            call_id=request.call_id,
            tool=request.name,
            arguments=self._tools.redactor.text(clean_text(request.arguments)),
            phase="requested",
            created_ms=time.time_ns() // 1_000_000,
            native=freeze(self._tools.redactor.value(dict(request.native))),
        )


class _Said(NamedTuple):
    """Whom the channel tells of its calls."""

    started: Callable[[ToolRequest, Any], Awaitable[None]]
    completed: Callable[[ToolDelivery], Awaitable[None]]
    progressed: Callable[[ToolRequest, str], Awaitable[None]] | None


class _Asked(NamedTuple):
    request: ToolRequest
    arguments: Mapping[str, Any]
    refusal: str | None


def unresolved_error(
    record: ToolCallRecord, reconciliation: Reconciliation | None = None
) -> AgentUnresolvedEffectError:
    """The refusal that an unresolved call is the reason of. `reconciliation`: how far it was looked into."""
    details: dict[str, Any] = {"tool": record.tool, "call_id": record.call_id, "run_id": record.run_id}
    how_far = ""
    if reconciliation is not None:
        details["reconciliation"] = reconciliation.model_dump(mode="json")
        how_far = reconciliation.in_words()
    return AgentUnresolvedEffectError(
        " ".join(filter(None, (STILL_UNRESOLVED.format(tool=record.tool), how_far))), details=details
    )


def told_calls(records: Sequence[ToolCallRecord]) -> tuple[EarlierCall, ...]:
    """Calls of a run that is over as the native side was told of them; none unless it was told of all."""
    if any(record.phase not in ("delivering", "delivered") for record in records):
        return ()
    return tuple(
        EarlierCall(ToolRequest(record.call_id, record.tool, record.arguments, record.native), _delivery(record))
        for record in records
    )


def _delivery(record: ToolCallRecord, told: outbox.Told | None = None, duration_ms: int | None = None) -> ToolDelivery:
    outcome, payload = (told.outcome, told.payload) if told is not None else (record.outcome, record.payload)
    success = outcome == "succeeded"
    error = None if success else payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    return ToolDelivery(
        record.call_id, record.tool, record.arguments, success, payload, error, duration_ms, record.native
    )


def _asking(records: Sequence[ToolCallRecord]) -> Callable[[AgentTx], None]:
    return lambda tx: outbox.ask(tx, records)


def _waiting(judged: Judged) -> Mapping[str, Any]:
    """What the card of a call shows that waits for a person."""
    return {"operation": judged.operation_id, "decided": "waiting", "effect": judged.effect}


def _about(judged: Judged) -> Mapping[str, Any]:
    """What the card of a call shows of a decision; nothing where nobody was asked."""
    return {"operation": judged.operation_id, "decided": judged.decided} if judged.decided else {}


def _progress(
    tell: Callable[[ToolRequest, str], Awaitable[None]], request: ToolRequest
) -> Callable[[str], Awaitable[None]]:
    async def progress(text: str) -> None:
        await tell(request, text)

    return progress


def _proves(receipt: Any, record: ToolCallRecord) -> bool:
    """Whether a receipt is the settled one of exactly this call."""
    return (
        isinstance(receipt, ToolReceipt)
        and receipt.settled is True
        and (receipt.call_id, receipt.tool, receipt.run_id) == (record.call_id, record.tool, record.run_id)
    )


def _known_arguments(record: ToolCallRecord) -> Mapping[str, Any]:
    try:
        arguments = freeze(json.loads(record.arguments or "{}"))
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else freeze({})


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _outcome_of(task: "asyncio.Task[Any]") -> Any:
    return task.result()


async def _plain_call(tool: HostTool, call: ToolCall, context: ToolContext) -> Any:
    result = await in_own_thread(lambda: tool.call(call.arguments, context), f"tool {tool.name}")
    return await result if inspect.isawaitable(result) else result
