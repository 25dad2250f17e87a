"""What waits to be said is changed in its own session, and only where it is somebody's words."""

import pytest

from runtime_host.loop import lane
from runtime_host.loop.gateway import decision_request
from runtime_host.storage.base import AgentTx, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore


def _two_sessions(tx: AgentTx) -> list[str]:
    for name in ("s", "other"):
        tx.put_session(SessionRecord(session_id=name, scope_digest="", created_ms=1, definition={}, options={}))
    keys = ("mine", decision_request("op_1"))
    return [
        lane.put(tx, session_id="s", kind="follow_up", text="Words", dedup_key=key, now_ms=1).inbox_id for key in keys
    ]


async def test_a_message_is_not_changed_from_another_session() -> None:
    store = MemoryAgentStore()
    mine, _ = await store.transact(_two_sessions)
    assert not await store.transact(lambda tx: lane.edit(tx, "other", mine, "Others"))
    assert not await store.transact(lambda tx: lane.remove(tx, "other", mine, 2))
    assert [row.text for row in await store.read(lambda tx: lane.waiting(tx, "s"))] == ["Words", "Words"]
    assert await store.transact(lambda tx: lane.edit(tx, "s", mine, "Others"))


async def test_what_tells_of_a_decision_is_nobody_s_to_change() -> None:
    store = MemoryAgentStore()
    _, decision = await store.transact(_two_sessions)
    with pytest.raises(ValueError, match="sent as it is"):
        await store.transact(lambda tx: lane.edit(tx, "s", decision, "It was approved"))
    with pytest.raises(ValueError, match="sent as it is"):
        await store.transact(lambda tx: lane.remove(tx, "s", decision, 2))
    assert [row.text for row in await store.read(lambda tx: lane.waiting(tx, "s"))] == ["Words", "Words"]
