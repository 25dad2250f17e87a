"""Recovery: what the runs mean that a stopped process left behind.

Owns the reading of open runs after a restart. Must not know handles or loops. Invariants: what was
admitted and never dispatched may be dispatched, once; what was dispatched is `unknown`, keeps every
character that was durable, and is never sent again. The one exception repeats nothing: a run that waits for
the results of tools which nobody was told of goes on from there, with the results that were kept.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from runtime_host import outbox
from runtime_host.errors import AgentRuntimeError, StorageError
from runtime_host.results import AgentResult, RunError
from runtime_host.storage.base import (
    OPEN_PHASES,
    SALVAGED,
    UNRESOLVED,
    AgentTx,
    ItemHead,
    ItemRecord,
    ItemState,
    RunRecord,
    ToolCallRecord,
    session_fact,
)

UNKNOWN_CODE: Final = "RUN_UNKNOWN"
UNKNOWN_AFTER_RESTART: Final = (
    "The program ended before this answer did, so what became of it is not known. "
    "The message was not sent again; what had arrived is kept."
)
UNKNOWN_TERMINATION: Final = (
    "The harness did not confirm that it has ended, so what became of this message is not known. "
    "It was not sent again; what had arrived is kept. Continue in a new session."
)
_PAGE: Final = 256


class OpenRuns(NamedTuple):
    """Runs without an end.

    Attributes:
        unsent: were never dispatched.
        unknown: perhaps were; settled as such.
        waiting: were, and wait for results of tools; left as they are.
    """

    unsent: tuple[RunRecord, ...]
    unknown: tuple[RunRecord, ...]
    waiting: tuple[RunRecord, ...] = ()


def take_stock(
    tx: AgentTx, *, live: Collection[str], session_id: str | None, now_ms: int, reconciled: bool = False
) -> OpenRuns:
    """Settle what a stopped process left open.

    Args:
        tx: the transaction; what it settles is durable with it.
        live: runs that this process is driving; they are left alone.
        session_id: only of this session; None is all sessions.
        now_ms: the wall clock.
        reconciled: whether it was tried to find out what came of interrupted tools; a run that still
            waits for that is then settled.
    """
    unsent: list[RunRecord] = []
    unknown: list[RunRecord] = []
    waiting: list[RunRecord] = []
    for run in tx.open_runs():
        if run.run_id in live or (session_id is not None and run.session_id != session_id):
            continue
        if run.phase == "admitted":
            unsent.append(run)
        elif _waits(tx.tool_calls(run.run_id), reconciled=reconciled):
            waiting.append(run)
        else:
            unknown.append(settle_unknown(tx, run, now_ms))
    return OpenRuns(tuple(unsent), tuple(unknown), tuple(waiting))


def _waits(calls: Collection[ToolCallRecord], *, reconciled: bool) -> bool:
    return outbox.can_continue(calls) or (not reconciled and any(call.phase in UNRESOLVED for call in calls))


def continuable(tx: AgentTx, session_id: str) -> tuple[RunRecord, ...]:
    """The newest run of a session, if it was settled as unknown and can go on now that its tools' results are known."""
    runs = tx.runs(session_id)
    if not runs or runs[-1].phase != "unknown" or not outbox.can_continue(tx.tool_calls(runs[-1].run_id)):
        return ()
    run = msgspec.structs.replace(runs[-1], phase="dispatched", finished_ms=None)
    tx.put_run(run)
    return (run,)


class Past(NamedTuple):
    """What a session has behind it when it is opened again.

    Attributes:
        events_gone: it has runs whose events nobody can read any more.
        unknown: its newest run, when nobody knows what became of it.
        salvaged_from: the name of the damaged file it was read from; "" when it was not.
    """

    events_gone: bool = False
    unknown: RunRecord | None = None
    salvaged_from: str = ""


NO_PAST: Final = Past()


def look_back(tx: AgentTx, session_id: str, *, unsent: int = 0, with_runs: bool = False) -> Past:
    """What a session has behind it. `unsent`: runs that were admitted only; `with_runs`: look for an unknown one."""
    salvaged = tx.fact(session_fact(session_id, SALVAGED)) or {}
    last = tx.runs(session_id)[-1:] if with_runs else []
    return Past(
        # Each run has its message, and one that was not sent has nothing else.
        events_gone=tx.count_items(session_id) > unsent,
        unknown=last[0] if last and last[0].phase == "unknown" else None,
        salvaged_from=str(salvaged.get("file", "")),
    )


class TakenUp(NamedTuple):
    """A run that goes on once the transaction is durable.

    Attributes:
        calls: of its tools, from before.
        calls_shown: the items of those of them that nobody was told of, by the ids of the calls; they end in this run.
    """

    run: RunRecord
    first_position: int
    calls: tuple[ToolCallRecord, ...]
    calls_shown: tuple[tuple[str, ItemRecord], ...] = ()


def take_up(tx: AgentTx, run_id: str, sequence_mark: int) -> TakenUp | None:
    """Write that a run goes on where it waits for results. None when it cannot any more."""
    run = tx.run(run_id)
    calls = tuple(tx.tool_calls(run_id))
    if run is None or run.phase != "dispatched" or not outbox.can_continue(calls):
        return None
    shown = _shown_calls(tx, run, {call.call_id for call in calls if call.phase in ("requested", "acknowledged")})
    _end_open_items(tx, run, "stopped", but={item.item_id for item in shown.values()})
    run = msgspec.structs.replace(run, sequence_mark=sequence_mark)
    tx.put_run(run)
    return TakenUp(run, tx.count_items(run.session_id), calls, tuple(shown.items()))


def settle_unknown(tx: AgentTx, run: RunRecord, now_ms: int) -> RunRecord:
    """Write that nobody knows what became of a run, in the transcript too."""
    _end_open_items(tx, run, "unknown")
    end = tx.count_items(run.session_id)
    if tx.item(f"{run.run_id}.unknown") is not None:
        # Settled before, then gone on with, then left open once more.
        run = msgspec.structs.replace(run, phase="unknown", finished_ms=now_ms)
        tx.put_run(run)
        return run
    tx.add_item(
        ItemRecord(
            item_id=f"{run.run_id}.unknown",
            session_id=run.session_id,
            run_id=run.run_id,
            position=end,
            kind="notice",
            state="unknown",
            text=UNKNOWN_AFTER_RESTART,
            created_ms=now_ms,
            code=UNKNOWN_CODE,
        )
    )
    run = msgspec.structs.replace(run, phase="unknown", finished_ms=now_ms)
    tx.put_run(run)
    return run


def _items_of(tx: AgentTx, run: RunRecord) -> Iterator[ItemHead]:
    """What a run has in the transcript besides its input, without the texts."""
    first = int(run.input.get("position", 0)) + 1
    end = tx.count_items(run.session_id)
    while first < end:
        for item in tx.items(run.session_id, first, _PAGE, 0):
            if item.run_id == run.run_id:
                yield item
        first += _PAGE


def _end_open_items(tx: AgentTx, run: RunRecord, state: ItemState, *, but: Collection[str] = ()) -> None:
    for item in _items_of(tx, run):
        if item.state == "open" and item.item_id not in but:
            whole = item.kind == "plan" and item.about.get("completed")
            tx.finish_item(item.item_id, state="complete" if whole else state, text=None)


def _shown_calls(tx: AgentTx, run: RunRecord, call_ids: Collection[str]) -> dict[str, ItemRecord]:
    """The items of calls of tools, by the ids of the calls."""
    found: dict[str, ItemRecord] = {}
    for head in _items_of(tx, run):
        call_id = str(head.about.get("call"))
        if head.kind == "tool" and call_id in call_ids and (item := tx.item(head.item_id)) is not None:
            found[call_id] = item
    return found


def is_written(known: RunRecord, record: RunRecord) -> bool:
    """Whether the end of a run is the stored one already: an earlier try whose answer was lost.

    Raises:
        StorageError: another end is stored. It stands; nothing is written over it.
    """
    if known.phase in OPEN_PHASES:
        return False
    if (known.phase, known.result) == (record.phase, record.result):
        return True
    raise StorageError(
        f"This run is stored as {known.phase} and would now be written as {record.phase}. What is stored stands; "
        "look into the file before the session is used again.",
        code="STORAGE_CONFLICT",
        details={"run_id": known.run_id, "stored": known.phase, "refused": record.phase},
    )


def settle_unsendable(tx: AgentTx, runs: Sequence[RunRecord], error: AgentRuntimeError, now_ms: int) -> None:
    """Write that admitted runs can no longer be sent, and why. They never were, so this is no guess."""
    for run in runs:
        current = tx.run(run.run_id)
        if current is None or current.phase != "admitted":
            continue
        tx.add_item(
            ItemRecord(
                item_id=f"{run.run_id}.unsent",
                session_id=run.session_id,
                run_id=run.run_id,
                position=tx.count_items(run.session_id),
                kind="notice",
                state="failed",
                text=error.message,
                created_ms=now_ms,
                code=error.error_code,
            )
        )
        result = AgentResult(
            run_id=run.run_id,
            session_id=run.session_id,
            status="failed",
            error=RunError(code=error.error_code, message=error.message, retryable=error.retryable),
        ).model_dump(mode="json")
        tx.put_run(msgspec.structs.replace(current, phase="failed", finished_ms=now_ms, result=result))
