"""The outbox: each call of a host tool from its request to the moment its result was told.

Owns the steps of a call and what they mean for its run and its session, as pure writes inside transactions.
Must not know tools, drivers or loops. Invariants: nothing is executed whose `executing` is not durable, and
nothing `executing` is executed again; nothing is told that is not acknowledged; what was perhaps told is not
told again; while one call is unresolved, its session takes no input and is not deleted.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from runtime_host.storage.base import UNRESOLVED, AgentTx, ToolCallPhase, ToolCallRecord, ToolOutcome

_WAITING: Final[frozenset[ToolCallPhase]] = frozenset({"requested", "acknowledged"})


class Told(NamedTuple):
    """What came of a call, as the native side is told."""

    outcome: ToolOutcome
    payload: Any
    evidence: tuple[str, ...] = ()


def ask(tx: AgentTx, records: Iterable[ToolCallRecord]) -> None:
    """Write the calls that the native side asks for now; known ones stay as they are.

    Asking for more proves that it was told of all before.
    """
    records = tuple(records)
    for run_id in {record.run_id for record in records}:
        confirm(tx, run_id)
    for record in records:
        if tx.tool_call(record.run_id, record.call_id) is None:
            tx.put_tool_call(record)


def begin(tx: AgentTx, run_id: str, call_id: str) -> bool:
    """Write that a call is executed from now on. False when it must not be: it is past that."""
    record = tx.tool_call(run_id, call_id)
    if record is None or record.phase != "requested":
        return False
    tx.put_tool_call(msgspec.structs.replace(record, phase="executing"))
    return True


def take_back(tx: AgentTx, run_id: str, call_id: str) -> None:
    """Write that a call that was begun is certain not to have been executed."""
    record = tx.tool_call(run_id, call_id)
    if record is not None and record.phase in UNRESOLVED:
        phase: ToolCallPhase = "requested" if record.phase == "executing" else "withdrawn"
        tx.put_tool_call(msgspec.structs.replace(record, phase=phase))


def acknowledge(tx: AgentTx, run_id: str, call_id: str, told: Told) -> ToolCallRecord | None:
    """Write what came of a call. None when it is gone; a call that is past this stays as it is."""
    record = tx.tool_call(run_id, call_id)
    if record is None or record.phase not in ("requested", *UNRESOLVED):
        return record
    # Of a run that is over nobody can be told any more; the result is kept all the same.
    phase: ToolCallPhase = "withdrawn" if record.phase == "interrupted" else "acknowledged"
    record = msgspec.structs.replace(
        record, phase=phase, outcome=told.outcome, payload=told.payload, evidence=told.evidence
    )
    tx.put_tool_call(record)
    return record


def deliver(tx: AgentTx, run_id: str, call_ids: Collection[str]) -> bool:
    """Write that calls are told from now on. False, and nothing written, when one may not be."""
    records = [record for record in tx.tool_calls(run_id) if record.call_id in call_ids]
    if len(records) != len(set(call_ids)) or any(record.phase != "acknowledged" for record in records):
        return False
    for record in records:
        tx.put_tool_call(msgspec.structs.replace(record, phase="delivering"))
    return True


def confirm(tx: AgentTx, run_id: str) -> None:
    """Write that what was being told arrived."""
    for record in tx.tool_calls(run_id):
        if record.phase == "delivering":
            tx.put_tool_call(msgspec.structs.replace(record, phase="delivered"))


def close_run(tx: AgentTx, run_id: str, *, answered: bool) -> None:
    """Write that a run takes no more results. What is executing stays unresolved: nobody knows what came of it.

    Args:
        tx: the transaction that ends the run.
        run_id: the run.
        answered: whether the native side said something after what it was told last.
    """
    if answered:
        confirm(tx, run_id)
    for record in tx.tool_calls(run_id):
        if record.phase in _WAITING:
            tx.put_tool_call(msgspec.structs.replace(record, phase="withdrawn"))
        elif record.phase == "executing":
            tx.put_tool_call(msgspec.structs.replace(record, phase="interrupted"))


def can_continue(calls: Collection[ToolCallRecord]) -> bool:
    """Whether a run that a stopped process left waits for results which nobody was told of.

    Then the next step of it was certainly not taken, so that taking it repeats nothing.
    """
    phases = {call.phase for call in calls}
    return bool(phases & _WAITING) and not phases & {*UNRESOLVED, "delivering"}
