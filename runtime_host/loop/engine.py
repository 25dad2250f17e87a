"""The engine port: a session's serialised line, whoever keeps it; and the kernel that keeps it in an agent's store.

Owns the words of the port and one pass of the kernel over the rows of `lane`. Must not know models, tools or handles:
both are a `World` that is asked. Invariants: accepting is a write and nothing else; a request is durable before it is
sent and an answer is taken once; a held call executes exactly what was recorded, once, after one decision; what was
begun and has no end is unknown and is not begun again; opening does no I/O of its own.

What it is for: to say what a line promises, apart from who keeps it. `testing.engine_contract` holds two adapters to
it, `LaneEngine` here and `testing.memory_engine` that shares no code with it, and the benchmark `loop` measures what a
turn has to write. A host that puts another kernel under its lines begins with that contract.

Who uses it: those two. The runtime writes the same rows by the same functions of `lane`, each within a transaction of
its own that an engine knows nothing of, and for that reason does not go through the port:

- `accept`: `Run.steer` is refused where its run has ended, with no row left; `Session.queue` keeps options and pictures
  with the words, and what waits begins a run by its admission, which takes it in the transaction of the run.
- `drive`, `collect`: an answer comes in pieces that are shown and written as they come (`run_lane.RunLane`), its calls
  go through the outbox, and its end is the commit that ends the run.
- `decide`: `loop.held` also looks at what the request depended on, saves a rule and changes the card, in one commit.
- `cancel`: ends the stream first, and is written with all that had arrived (`Run`).
- `wake`, `list_open`: `recovery` tells runs that were never sent from those that go on and those that nobody can know.
"""

import functools
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from runtime_host.canonical import digest, freeze
from runtime_host.loop import lane
from runtime_host.storage.base import AgentStore, AgentTx, ItemRecord, RunRecord
from runtime_host.storage.rows import ApprovalRow, ModelJobRow, OperationRow

UNKNOWN_WORDS = "The call was interrupted, and whether it acted is not known. It is not made again."
DENIED_WORDS = "The person said no. Nothing was done."


class Wanted(NamedTuple):
    """A call that a model asks for."""

    tool: str
    arguments: Mapping[str, Any]


class Answer(NamedTuple):
    """What a model answered."""

    text: str = ""
    calls: tuple[Wanted, ...] = ()
    usage: Mapping[str, int] = {}


class Job(NamedTuple):
    """A request that may be sent now. `messages`: role and words of each."""

    job_id: str
    taker: str
    session_id: str
    run_id: str
    messages: tuple[tuple[str, str], ...]


class Operation(NamedTuple):
    """A call that was claimed, as it was recorded."""

    operation_id: str
    tool: str
    arguments: Mapping[str, Any]


class Pass(NamedTuple):
    """What one pass came to.

    Attributes:
        open: runs of the session that have no end.
        wake_in_ms: when another pass has something to do; None when only a person or a message can bring it on.
        settled: runs that ended in this pass.
    """

    open: int
    wake_in_ms: int | None = None
    settled: tuple[str, ...] = ()


class OpenRun(NamedTuple):
    session_id: str
    run_id: str
    waits_for: Literal["drive", "decision"]


class World(Protocol):
    """What an engine asks."""

    async def send(self, job: Job) -> Answer: ...
    async def act(self, operation: Operation) -> str: ...
    def holds(self, tool: str) -> bool:
        """Whether calls of a tool wait for a person."""
        ...


class Engine(Protocol):
    """Keeps the lines of sessions. What raises out of `drive` is a process that ended there: the next pass goes on."""

    async def accept(
        self, session_id: str, text: str, *, dedup_key: str, kind: Literal["say", "follow_up"] = "say"
    ) -> str:
        """Keep what was said; durable when this returns. `say` steers a run that goes on, else it begins one."""
        ...

    async def drive(self, session_id: str) -> Pass: ...
    async def decide(self, operation_id: str, *, approve: bool, request_hash: str) -> bool:
        """The decision of a held call. False when it had one, or the request is another one."""
        ...

    async def cancel(self, session_id: str) -> str | None:
        """End the run that is open; its id, or None, and nothing written, when there is none."""
        ...

    async def collect(self, job_id: str, taker: str, answer: Answer) -> lane.Verdict:
        """An answer that came by any way."""
        ...

    async def wake(self) -> tuple[str, ...]:
        """Sessions in which a pass has something to do."""
        ...

    async def list_open(self) -> tuple[OpenRun, ...]: ...


class LaneEngine:
    """The kernel: lines in the rows of an agent's store.

    Args:
        store: of the agent; its sessions are there already.
        world: models and tools.
        clock: the wall clock, in ms.
    """

    def __init__(self, store: AgentStore, world: World, clock: Callable[[], int] | None = None) -> None:
        self._store = store
        self._world = world
        self._now = clock or (lambda: time.time_ns() // 1_000_000)

    async def accept(
        self, session_id: str, text: str, *, dedup_key: str, kind: Literal["say", "follow_up"] = "say"
    ) -> str:
        now_ms = self._now()

        def put(tx: AgentTx) -> str:
            run = _open_run(tx, session_id)
            steers = kind == "say" and run is not None
            row = lane.put(
                tx,
                session_id=session_id,
                kind="steer" if steers else "follow_up",
                text=text,
                dedup_key=dedup_key,
                run_id=run.run_id if run is not None and steers else "",
                now_ms=now_ms,
            )
            return row.inbox_id

        return await self._store.transact(put)

    async def drive(self, session_id: str) -> Pass:
        now_ms, taker = self._now(), lane.new_id("taker")
        begun = await self._store.transact(lambda tx: _begin(tx, session_id, now_ms))
        if begun is None:
            return Pass(0)
        waits = await self._operations(begun)
        if waits:
            return Pass(1)
        job = await self._store.transact(lambda tx: _ask(tx, begun, taker, now_ms))
        if job is None:
            return Pass(0, settled=(begun.run_id,))
        answer = await self._world.send(job)
        await self._place(job, answer)
        waits = await self._operations(begun)
        over = await self._store.transact(lambda tx: _end(tx, begun.run_id, self._now()))
        more = await self._store.read(lambda tx: bool(lane.waiting(tx, session_id)))
        wake = 0 if (not over and not waits) or (over and more) else None
        return Pass(0 if over else 1, wake, (begun.run_id,) if over else ())

    async def decide(self, operation_id: str, *, approve: bool, request_hash: str) -> bool:
        now_ms = self._now()
        return await self._store.transact(lambda tx: _decide(tx, operation_id, approve, request_hash, now_ms))

    async def cancel(self, session_id: str) -> str | None:
        now_ms = self._now()

        def stop(tx: AgentTx) -> str | None:
            run = _open_run(tx, session_id)
            if run is None:
                return None
            tx.put_run(msgspec.structs.replace(run, phase="cancelled", finished_ms=now_ms))
            lane.end_run(tx, session_id=session_id, run_id=run.run_id, stopped=True, marks=True, now_ms=now_ms)
            return run.run_id

        # Looked at first: of an idle line nothing is written.
        if await self._store.read(lambda tx: _open_run(tx, session_id)) is None:
            return None
        return await self._store.transact(stop)

    async def collect(self, job_id: str, taker: str, answer: Answer) -> lane.Verdict:
        now_ms, world = self._now(), self._world
        return await self._store.transact(lambda tx: _collect(tx, job_id, taker, answer, world, now_ms))

    async def wake(self) -> tuple[str, ...]:
        def read(tx: AgentTx) -> tuple[str, ...]:
            due = []
            for session in tx.sessions():
                run = _open_run(tx, session.session_id)
                idle = run is None and lane.waiting(tx, session.session_id)
                if idle or (run is not None and not _waits_for_person(tx, run)):
                    due.append(session.session_id)
            return tuple(due)

        return await self._store.read(read)

    async def list_open(self) -> tuple[OpenRun, ...]:
        def read(tx: AgentTx) -> tuple[OpenRun, ...]:
            found = []
            for session in tx.sessions():
                if (run := _open_run(tx, session.session_id)) is not None:
                    waits = "decision" if _waits_for_person(tx, run) else "drive"
                    found.append(OpenRun(session.session_id, run.run_id, waits))  # type: ignore[arg-type]
            return tuple(found)

        return await self._store.read(read)

    async def _place(self, job: Job, answer: Answer) -> None:
        await self.collect(job.job_id, job.taker, answer)

    async def _operations(self, run: RunRecord) -> bool:
        """Do what may be done of a run's calls; whether one waits for a person."""
        while await self._store.read(lambda tx: _has_work(tx, run)):
            claimed = await self._store.transact(lambda tx: _claim(tx, run, self._now()))
            if claimed is None:
                break
            result = await self._world.act(claimed)
            await self._store.transact(functools.partial(_settle, claimed.operation_id, result, self._now()))
        return await self._store.read(lambda tx: _waits_for_person(tx, run))


def _open_run(tx: AgentTx, session_id: str) -> RunRecord | None:
    runs = tx.runs(session_id)
    return runs[-1] if runs and runs[-1].phase in ("dispatched", "parked") else None


def _operations_of(tx: AgentTx, run: RunRecord) -> list[OperationRow]:
    return tx.rows(OperationRow, session_id=run.session_id, run_id=run.run_id)


def _has_work(tx: AgentTx, run: RunRecord) -> bool:
    """Looked at first: a pass without calls writes nothing for them."""
    return any(operation.status == "pending" for operation in _operations_of(tx, run))


def _waits_for_person(tx: AgentTx, run: RunRecord) -> bool:
    approvals = tx.rows(ApprovalRow, session_id=run.session_id, run_id=run.run_id)
    return any(approval.state == "pending" for approval in approvals)


def _begin(tx: AgentTx, session_id: str, now_ms: int) -> RunRecord | None:
    """The run that is open, or one of what waits. What an earlier process began of its calls is unknown now."""
    run = _open_run(tx, session_id)
    if run is not None:
        for operation in _operations_of(tx, run):
            if operation.status == "running":
                _end_operation(tx, operation, "unknown", UNKNOWN_WORDS, now_ms)
        return run
    rows = lane.waiting(tx, session_id, "follow_up")
    if not rows:
        return None
    run = RunRecord(
        run_id=f"run_{uuid.uuid4().hex}",
        session_id=session_id,
        phase="dispatched",
        created_ms=now_ms,
        input={"text": rows[0].text},
    )
    tx.put_run(run)
    _say(tx, run, "user", rows[0].text, rows[0].inbox_id, now_ms)
    lane.take(tx, rows[0].inbox_id, run_id=run.run_id, now_ms=now_ms)
    return run


def _say(tx: AgentTx, run: RunRecord, kind: Literal["user", "reply", "tool"], text: str, key: str, now_ms: int) -> None:
    tx.add_item(
        ItemRecord(
            item_id=f"{run.run_id}.{key}",
            session_id=run.session_id,
            run_id=run.run_id,
            position=tx.count_items(run.session_id),
            kind=kind,
            state="complete",
            text=text,
            created_ms=now_ms,
        )
    )


def _ask(tx: AgentTx, run: RunRecord, taker: str, now_ms: int) -> Job | None:
    """Write the next request, with what was said to the run since. None when the run came to its end instead."""
    for row in lane.steers(tx, run.session_id, run.run_id):
        _say(tx, run, "user", row.text, row.inbox_id, now_ms)
        lane.take(tx, row.inbox_id, run_id=run.run_id, now_ms=now_ms)
    messages = _messages(tx, run.session_id)
    request = {"digest": lane.request_digest(messages)}
    job = lane.ask(tx, session_id=run.session_id, run_id=run.run_id, request=request, taker=taker, now_ms=now_ms)
    if job is None:
        tx.put_run(msgspec.structs.replace(run, phase="failed", finished_ms=now_ms))
        lane.end_run(tx, session_id=run.session_id, run_id=run.run_id, stopped=False, marks=False, now_ms=now_ms)
        return None
    return Job(job.job_id, taker, run.session_id, run.run_id, messages)


def _messages(tx: AgentTx, session_id: str) -> tuple[tuple[str, str], ...]:
    stopped = lane.stopped_runs(tx, session_id)
    said: list[tuple[str, str]] = []
    last = ""
    for head in tx.items(session_id, 0, tx.count_items(session_id), 0):
        item = tx.item(head.item_id)
        if item is None:
            continue
        run_id = item.run_id or ""
        if last in stopped and run_id != last:
            said.append(("user", lane.STOPPED_WORDS))
        last = run_id
        said.append(({"user": "user", "tool": "tool"}.get(item.kind, "assistant"), item.text))
    return tuple(said)


def _collect(tx: AgentTx, job_id: str, taker: str, answer: Answer, world: World, now_ms: int) -> lane.Verdict:
    verdict = lane.answer(
        tx, job_id=job_id, taker=taker, reason="stop", model="model", usage=answer.usage, now_ms=now_ms
    )
    job = tx.row(ModelJobRow, job_id)
    run = tx.run(job.run_id) if job is not None else None
    if verdict != "accepted" or run is None or job is None or tx.item(f"{run.run_id}.{job_id}") is not None:
        return verdict
    _say(tx, run, "reply", answer.text, job_id, now_ms)
    for number, wanted in enumerate(answer.calls):
        _record(tx, run, f"{job_id}.{number}", wanted, world.holds(wanted.tool), now_ms)
    return verdict


def _record(tx: AgentTx, run: RunRecord, call_id: str, wanted: Wanted, held: bool, now_ms: int) -> None:
    operation_id = f"op_{digest([run.run_id, call_id])[:20]}"
    arguments: dict[str, Any] = freeze(wanted.arguments)
    tx.put_row(
        OperationRow(
            operation_id=operation_id,
            session_id=run.session_id,
            run_id=run.run_id,
            call_id=call_id,
            mount_alias="",
            installation_id="",
            tool=wanted.tool,
            tool_version="1",
            side_effects="write",
            replay="never",
            status="pending",
            arguments=arguments,
            created_ms=now_ms,
        )
    )
    if held:
        request = {"tool": wanted.tool, "args": arguments, "held_by": "policy"}
        tx.put_row(
            ApprovalRow(
                operation_id=operation_id,
                session_id=run.session_id,
                run_id=run.run_id,
                mount_alias="",
                tool=wanted.tool,
                request=request,
                request_hash=digest(request),
                depends_on={},
                held_by="policy",
                created_ms=now_ms,
            )
        )


def _decide(tx: AgentTx, operation_id: str, approve: bool, request_hash: str, now_ms: int) -> bool:
    approval = tx.row(ApprovalRow, operation_id)
    if approval is None or approval.state != "pending" or approval.request_hash != request_hash:
        return False
    state: Literal["approved", "denied"] = "approved" if approve else "denied"
    tx.put_row(msgspec.structs.replace(approval, state=state, decided_ms=now_ms))
    operation = tx.row(OperationRow, operation_id)
    if not approve and operation is not None:
        _end_operation(tx, operation, "cancelled", DENIED_WORDS, now_ms)
    return True


def _claim(tx: AgentTx, run: RunRecord, now_ms: int) -> Operation | None:
    """Take the next call that may be made, as it was recorded."""
    for operation in _operations_of(tx, run):
        if operation.status != "pending":
            continue
        approval = tx.row(ApprovalRow, operation.operation_id)
        if approval is not None and approval.state != "approved":
            # In the order in which they were asked for.
            return None
        arguments = operation.arguments if approval is None else approval.request["args"]
        tx.put_row(msgspec.structs.replace(operation, status="running", started_ms=now_ms, updated_ms=now_ms))
        return Operation(operation.operation_id, operation.tool, arguments)
    return None


def _settle(operation_id: str, told: str, now_ms: int, tx: AgentTx) -> None:
    operation = tx.row(OperationRow, operation_id)
    if operation is not None and operation.status == "running":
        _end_operation(tx, operation, "succeeded", told, now_ms)


def _end_operation(
    tx: AgentTx, operation: OperationRow, status: Literal["succeeded", "unknown", "cancelled"], told: str, now_ms: int
) -> None:
    tx.put_row(msgspec.structs.replace(operation, status=status, result=told, updated_ms=now_ms))
    run = tx.run(operation.run_id)
    if run is not None:
        _say(tx, run, "tool", told, operation.operation_id, now_ms)


def _end(tx: AgentTx, run_id: str, now_ms: int) -> bool:
    """Write the end of a run whose last answer asks for nothing and to which nothing more was said."""
    run = tx.run(run_id)
    if run is None or run.phase != "dispatched":
        return True
    jobs = lane.jobs(tx, run.session_id, run_id)
    last = jobs[-1] if jobs else None
    asks = last is not None and any(each.call_id.startswith(f"{last.job_id}.") for each in _operations_of(tx, run))
    if last is None or last.state != "answered" or asks or lane.steers(tx, run.session_id, run_id):
        return False
    tx.put_run(msgspec.structs.replace(run, phase="completed", finished_ms=now_ms))
    lane.end_run(tx, session_id=run.session_id, run_id=run_id, stopped=False, marks=False, now_ms=now_ms)
    return True
