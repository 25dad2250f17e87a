"""What a start finds to go on with: of what is queued only what would have been sent anyway."""

import pytest

from runtime_host.loop import lane
from runtime_host.recovery import left_to_do
from runtime_host.storage.base import AgentTx, RunRecord, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore


@pytest.mark.parametrize(
    ("phases", "status", "flows"),
    [
        ((), "open", True),
        (("completed",), "open", True),
        (("incomplete",), "open", True),
        (("cancelled", "completed"), "open", True),
        (("completed", "cancelled"), "open", False),
        (("failed",), "open", False),
        (("unknown",), "open", False),
        (("parked",), "open", False),
        (("dispatched",), "open", False),
        (("completed",), "failed", False),
    ],
)
async def test_what_is_queued_is_sent_at_a_start_where_the_last_run_ended_by_itself(
    phases: tuple[str, ...], status: str, flows: bool
) -> None:
    def left(tx: AgentTx) -> None:
        session = {"scope_digest": "", "created_ms": 1, "definition": {}, "options": {}, "status": status}
        tx.put_session(SessionRecord(session_id="s", **session))  # type: ignore[arg-type]
        for at, phase in enumerate(phases):
            run = {"session_id": "s", "phase": phase, "created_ms": at, "input": {}}
            tx.put_run(RunRecord(run_id=f"r{at}", **run))  # type: ignore[arg-type]
        lane.put(tx, session_id="s", kind="follow_up", text="Next", dedup_key="k", now_ms=9)

    store = MemoryAgentStore()
    await store.transact(left)
    assert await store.read(lambda tx: left_to_do(tx, 10)) == ([], ["s"] if flows else [])
