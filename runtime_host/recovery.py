"""Recovery: what the runs mean that a stopped process left behind.

Owns the reading of open runs after a restart. Must not know handles or loops. Invariants: what was
admitted and never dispatched may be dispatched, once; what was dispatched is `unknown`, keeps every
character that was durable, and is never sent again.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from runtime_host.errors import AgentRuntimeError
from runtime_host.results import AgentResult, RunError
from runtime_host.storage.base import AgentTx, ItemRecord, RunRecord

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
    """Runs without an end: `unsent` were never dispatched, `unknown` perhaps were and are settled as such."""

    unsent: tuple[RunRecord, ...]
    unknown: tuple[RunRecord, ...]


def take_stock(tx: AgentTx, *, live: Collection[str], session_id: str | None, now_ms: int) -> OpenRuns:
    """Settle what a stopped process left open.

    Args:
        tx: the transaction; what it settles is durable with it.
        live: runs that this process is driving; they are left alone.
        session_id: only of this session; None is all sessions.
        now_ms: the wall clock.
    """
    unsent: list[RunRecord] = []
    unknown: list[RunRecord] = []
    for run in tx.open_runs():
        if run.run_id in live or (session_id is not None and run.session_id != session_id):
            continue
        if run.phase == "admitted":
            unsent.append(run)
        else:
            unknown.append(settle_unknown(tx, run, now_ms))
    return OpenRuns(tuple(unsent), tuple(unknown))


def settle_unknown(tx: AgentTx, run: RunRecord, now_ms: int) -> RunRecord:
    """Write that nobody knows what became of a run, in the transcript too."""
    first = int(run.input.get("position", 0)) + 1
    end = tx.count_items(run.session_id)
    while first < end:
        for item in tx.items(run.session_id, first, _PAGE, 0):
            if item.run_id == run.run_id and item.state == "open":
                tx.finish_item(item.item_id, state="unknown", text=None)
        first += _PAGE
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
