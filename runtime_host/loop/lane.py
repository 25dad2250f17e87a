"""The lane of a session: what is said to it, what a model is asked for it, and in which order. Pure writes.

Owns the rows of inbox, model jobs, their deliveries, the ledger and the marks of a stop, as functions of a transaction.
Must not know models, drivers, loops or handles. Invariants: a job is written before it is sent and is sent a bounded
number of times in all; the first answer to it is taken, every other one is metered and nothing else; what was said is
taken once; whatever is said to a run that has ended by then is said to the next one.
"""

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from runtime_host.loop import held
from runtime_host.storage import usage as ledger
from runtime_host.storage.base import AgentTx
from runtime_host.storage.rows import (
    ApprovalRow,
    EntryRow,
    InboxRow,
    JobState,
    ModelDeliveryRow,
    ModelJobRow,
    UsageRow,
)

MOST_SENDS: Final = 3
"""How often a request is sent in all, over restarts."""
STOPPED: Final = "cancelled"
"""Type of the entry that a stopped run leaves."""
STOPPED_WORDS: Final = (
    "[The person stopped the turn above before it had ended. Do not go on with it unless they ask for that.]"
)
STOPPED_HOLD: Final = "The run was stopped."
INBOX_CHARS: Final = 4 * 1024 * 1024
MOST_WAITING: Final = 64

Verdict = Literal["accepted", "unaccepted", "late"]


def new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


def request_digest(messages: Iterable[tuple[str, str]]) -> str:
    """To know that a request is the same: of roles and words, in order."""
    found = hashlib.sha256()
    for role, text in messages:
        for each in (role, text):
            raw = each.encode("utf-8", "surrogatepass")
            found.update(len(raw).to_bytes(8, "big"))
            found.update(raw)
    return found.hexdigest()


# ------------------------------------------------------------------------------------------------ model jobs


def jobs(tx: AgentTx, session_id: str, run_id: str) -> list[ModelJobRow]:
    """Of a run, in order."""
    return sorted(tx.rows(ModelJobRow, session_id=session_id, run_id=run_id), key=lambda job: job.number)


def open_jobs(tx: AgentTx, session_id: str, run_id: str) -> list[ModelJobRow]:
    return [job for job in jobs(tx, session_id, run_id) if job.state == "open"]


def ask(
    tx: AgentTx, *, session_id: str, run_id: str, request: Mapping[str, Any], taker: str, now_ms: int
) -> ModelJobRow | None:
    """Write that a model is asked: a job of its own, or once more the one that has no answer yet.

    It counts as sent from here on, because nobody can tell once the process has died. None, and the job is given up,
    when it was sent as often as it may be.
    """
    unanswered = open_jobs(tx, session_id, run_id)
    if unanswered:
        job = unanswered[-1]
        if job.tries >= MOST_SENDS:
            tx.put_row(msgspec.structs.replace(job, state="unreachable", answered_ms=now_ms))
            return None
        job = msgspec.structs.replace(
            job, request=dict(request), taker=taker, tries=job.tries + 1, dispatched_ms=now_ms
        )
    else:
        number = len(jobs(tx, session_id, run_id)) + 1
        job = ModelJobRow(
            job_id=f"job_{run_id}_{number}",
            session_id=session_id,
            run_id=run_id,
            number=number,
            request=dict(request),
            taker=taker,
            tries=1,
            created_ms=now_ms,
            dispatched_ms=now_ms,
        )
    tx.put_row(job)
    return job


def answer(
    tx: AgentTx,
    *,
    job_id: str,
    taker: str,
    reason: str,
    model: str,
    usage: Mapping[str, int | None],
    now_ms: int,
    more: Mapping[str, Any] | None = None,
) -> Verdict:
    """Write that an answer came. Only an accepted one may be placed; what it cost is written in any case, once.

    `more`: what is kept of an accepted one besides.
    """
    job = tx.row(ModelJobRow, job_id)
    if job is None:
        return "late"
    known = tx.row(ModelDeliveryRow, job_id, taker)
    if known is not None:
        return known.verdict
    verdict: Verdict = "accepted"
    if job.state != "open" or job.taker != taker:
        verdict = "late" if job.state == "cancelled" else "unaccepted"
    counted = {name: count for name, count in usage.items() if count}
    tx.put_row(
        ModelDeliveryRow(
            job_id=job_id,
            taker=taker,
            session_id=job.session_id,
            verdict=verdict,
            usage=dict(counted),
            at_ms=now_ms,
        )
    )
    meter(tx, job=job, taker=taker, model=model, usage=counted, verdict=verdict, now_ms=now_ms)
    if verdict == "accepted":
        told = {"reason": reason, "usage": dict(counted), **(more or {})}
        tx.put_row(msgspec.structs.replace(job, state="answered", answer=told, answered_ms=now_ms))
    return verdict


def meter(
    tx: AgentTx,
    *,
    job: ModelJobRow,
    taker: str,
    model: str,
    usage: Mapping[str, int],
    verdict: Verdict,
    now_ms: int,
) -> None:
    """Write what an answer cost, whether it was taken or not."""
    resource = "model.tokens" if verdict == "accepted" else "model.tokens.unaccepted"
    for name, count in usage.items():
        ledger.meter(
            tx,
            UsageRow(
                usage_id=f"{job.job_id}.{taker}.{name}",
                session_id=job.session_id,
                resource=resource,
                key=f"{model}:{name.removesuffix('_tokens')}"[:200],
                quantity=float(count),
                unit="tokens",
                at_ms=now_ms,
            ),
        )


def end_jobs(tx: AgentTx, session_id: str, run_id: str, now_ms: int, *, stopped: bool = True) -> None:
    """Write that nobody waits for answers of a run any more; one that comes all the same is late."""
    for job in open_jobs(tx, session_id, run_id):
        state: JobState = "cancelled" if stopped else "unreachable"
        tx.put_row(msgspec.structs.replace(job, state=state, answered_ms=now_ms))


# ---------------------------------------------------------------------------------------------------- inbox


def put(
    tx: AgentTx,
    *,
    session_id: str,
    kind: Literal["steer", "follow_up", "decision"],
    text: str,
    dedup_key: str,
    now_ms: int,
    run_id: str = "",
    extra: Mapping[str, Any] | None = None,
) -> InboxRow:
    """Write what was said. The second time under one key the first row is given, whatever became of it."""
    for known in tx.rows(InboxRow, session_id=session_id, dedup_key=dedup_key):
        return known
    waiting = tx.rows(InboxRow, session_id=session_id, state="waiting")
    # What came of a decision is told however much else waits.
    if len(waiting) >= MOST_WAITING and not dedup_key.startswith(held.DECISION):
        raise ValueError(f"{MOST_WAITING} messages wait here already. Send or remove one of them first.")
    row = InboxRow(
        inbox_id=new_id("in"),
        session_id=session_id,
        kind=kind,
        text=text,
        dedup_key=dedup_key,
        rank=max((each.rank for each in waiting), default=0.0) + 1.0,
        extra=dict(extra or {}),
        run_id=run_id,
        created_ms=now_ms,
    )
    tx.put_row(row)
    return row


def waiting(tx: AgentTx, session_id: str, kind: str | None = None) -> list[InboxRow]:
    """What waits to be said, in order: first what is for the run that goes on."""
    found = tx.rows(InboxRow, session_id=session_id, state="waiting")
    return sorted(
        (row for row in found if kind is None or row.kind == kind), key=lambda row: (row.kind == "follow_up", row.rank)
    )


def steers(tx: AgentTx, session_id: str, run_id: str) -> list[InboxRow]:
    """What waits to be said to a run before its next request."""
    found = tx.rows(InboxRow, session_id=session_id, run_id=run_id, state="waiting")
    return sorted((row for row in found if row.kind == "steer"), key=lambda row: row.rank)


def take(tx: AgentTx, inbox_id: str, *, run_id: str, now_ms: int) -> bool:
    """Write that it is said now, in the transaction that says it. False when it was said or removed before."""
    row = tx.row(InboxRow, inbox_id)
    if row is None or row.state != "waiting":
        return False
    tx.put_row(msgspec.structs.replace(row, state="taken", run_id=run_id, taken_ms=now_ms))
    return True


def remove(tx: AgentTx, session_id: str, inbox_id: str, now_ms: int) -> bool:
    """Write that it is not to be said. False when it was said or removed before, or is of another session.

    Raises:
        ValueError: it is no person's words.
    """
    row = _theirs(tx, session_id, inbox_id)
    if row is None:
        return False
    # Nothing of what was taken back is kept but that it was there, so that its key stays used.
    tx.put_row(msgspec.structs.replace(row, state="removed", text="", extra={}, taken_ms=now_ms))
    return True


def edit(tx: AgentTx, session_id: str, inbox_id: str, text: str) -> bool:
    """Put other words in the place of what waits. False when it was said or removed before, or is of another session.

    Raises:
        ValueError: it is no person's words.
    """
    row = _theirs(tx, session_id, inbox_id)
    if row is None:
        return False
    tx.put_row(msgspec.structs.replace(row, text=text))
    return True


def _theirs(tx: AgentTx, session_id: str, inbox_id: str) -> InboxRow | None:
    """What a person said that waits in a session."""
    row = tx.row(InboxRow, inbox_id)
    if row is None or row.state != "waiting" or row.session_id != session_id:
        return None
    if row.dedup_key.startswith(held.DECISION):
        raise ValueError("This tells what came of a call that was decided, so it is sent as it is.")
    return row


def move(tx: AgentTx, session_id: str, inbox_id: str, before: str | None) -> bool:
    """Move what is to be sent ahead of another one, or to the end. False when one of them does not wait there."""
    rows = waiting(tx, session_id, "follow_up")
    ids = [row.inbox_id for row in rows]
    if inbox_id not in ids or (before is not None and before not in ids):
        return False
    if before == inbox_id:
        return True
    moved = rows.pop(ids.index(inbox_id))
    at = len(rows) if before is None else [row.inbox_id for row in rows].index(before)
    rows.insert(at, moved)
    _rank(tx, rows)
    return True


def _rank(tx: AgentTx, rows: Sequence[InboxRow]) -> None:
    for number, row in enumerate(rows, start=1):
        if row.rank != float(number):
            tx.put_row(msgspec.structs.replace(row, rank=float(number)))


# ---------------------------------------------------------------------------------------- the end of a run


def end_run(tx: AgentTx, *, session_id: str, run_id: str, stopped: bool, marks: bool, now_ms: int) -> None:
    """Write what the end of a run means for its lane, in the transaction of the end.

    Args:
        tx: the transaction.
        session_id: of the session.
        run_id: the run.
        stopped: whether a person stopped it.
        marks: whether that is noted for the next request.
        now_ms: the wall clock.
    """
    end_jobs(tx, session_id, run_id, now_ms, stopped=stopped)
    _let_go_of_kept(tx, session_id, run_id)
    withdraw_holds(tx, session_id, run_id, now_ms)
    late = steers(tx, session_id, run_id)
    if late:
        # Ahead of what was to come after the run anyway.
        later = waiting(tx, session_id, "follow_up")
        late = [msgspec.structs.replace(row, kind="follow_up", run_id="", rank=-1.0) for row in late]
        _rank(tx, [*late, *later])
    if stopped and marks:
        tx.put_row(
            EntryRow(
                entry_id=f"{run_id}.{STOPPED}", session_id=session_id, run_id=run_id, type=STOPPED, created_ms=now_ms
            )
        )


def _let_go_of_kept(tx: AgentTx, session_id: str, run_id: str) -> None:
    """Sealed reasoning of a provider goes back to it within its run; nothing of it stays."""
    for job in jobs(tx, session_id, run_id):
        if job.answer is not None and "kept" in job.answer:
            answer = {name: value for name, value in job.answer.items() if name != "kept"}
            tx.put_row(msgspec.structs.replace(job, answer=answer))


def withdraw_holds(tx: AgentTx, session_id: str, run_id: str, now_ms: int) -> None:
    """Write that calls for which a run waited are not to be made any more: nobody is told of them."""
    held.withdraw(tx, session_id, run_id, STOPPED_HOLD, now_ms)


def is_stopped(tx: AgentTx, run_id: str) -> bool:
    """Whether a run left the mark of a stop."""
    return tx.row(EntryRow, f"{run_id}.{STOPPED}") is not None


def stopped_runs(tx: AgentTx, session_id: str) -> frozenset[str]:
    """Runs of a session that a person stopped and of which the model is told so."""
    return frozenset(row.run_id for row in tx.rows(EntryRow, session_id=session_id, type=STOPPED))


# ----------------------------------------------------------------------------------------------- parked runs


def still_held(tx: AgentTx, operation_ids: Iterable[str], now_ms: int) -> bool:
    """Whether one of these calls waits for a person."""
    return any(
        approval is not None and _waits(approval, now_ms)
        for approval in (tx.row(ApprovalRow, operation_id) for operation_id in operation_ids)
    )


def decided_runs(tx: AgentTx, now_ms: int) -> list[tuple[str, str]]:
    """Parked runs, as session and run, that wait for nobody any more: their calls were decided, or it is too late."""
    waits: dict[tuple[str, str], bool] = {}
    for approval in tx.rows(ApprovalRow, parked=True):
        key = approval.session_id, approval.run_id
        waits[key] = waits.get(key, False) or _waits(approval, now_ms)
    found = []
    for (session_id, run_id), still in waits.items():
        run = None if still else tx.run(run_id)
        if run is not None and run.phase == "parked":
            found.append((session_id, run_id))
    return found


def _waits(approval: ApprovalRow, now_ms: int) -> bool:
    return approval.state == "pending" and (approval.expires_ms is None or approval.expires_ms > now_ms)
