"""The lane's rows: whose answer to a request is taken, and what becomes of what was said to a run that ended."""

import pytest

from runtime_host.loop import lane
from runtime_host.storage.base import AgentStore, AgentTx, RunRecord, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import ModelJobRow, UsageRow


@pytest.fixture
async def store() -> AgentStore:
    opened = MemoryAgentStore()

    def begin(tx: AgentTx) -> None:
        tx.put_session(SessionRecord(session_id="s", scope_digest="", created_ms=1, definition={}, options={}))
        tx.put_run(RunRecord(run_id="r", session_id="s", phase="dispatched", created_ms=1, input={}))

    await opened.transact(begin)
    return opened


def ask(tx: AgentTx, taker: str) -> ModelJobRow | None:
    return lane.ask(tx, session_id="s", run_id="r", request={"model": "m"}, taker=taker, now_ms=1)


def answer(tx: AgentTx, taker: str) -> str:
    job = "job_r_1"
    return lane.answer(tx, job_id=job, taker=taker, reason="stop", model="m", usage={"output_tokens": 7}, now_ms=2)


async def metered(store: AgentStore) -> list[str]:
    return [row.resource for row in await store.read(lambda tx: tx.rows(UsageRow, session_id="s"))]


async def test_whoever_asked_before_is_late_with_an_answer_and_the_newest_is_waited_for(store: AgentStore) -> None:
    for taker in ("t1", "t2"):
        assert await store.transact(lambda tx, taker=taker: ask(tx, taker)) is not None  # type: ignore[misc]
    assert await store.transact(lambda tx: answer(tx, "t1")) == "unaccepted"
    job = await store.read(lambda tx: tx.row(ModelJobRow, "job_r_1"))
    assert job is not None
    assert (job.state, job.answer) == ("open", None)
    assert await store.transact(lambda tx: answer(tx, "t2")) == "accepted"
    assert await metered(store) == ["model.tokens.unaccepted", "model.tokens"]


async def test_an_answer_to_what_was_given_up_is_metered_and_not_placed(store: AgentStore) -> None:
    takers = [f"t{number}" for number in range(1, lane.MOST_SENDS + 2)]
    asked = [await store.transact(lambda tx, taker=taker: ask(tx, taker)) for taker in takers]  # type: ignore[misc]
    assert [job is not None for job in asked] == [True] * lane.MOST_SENDS + [False]
    assert await store.transact(lambda tx: answer(tx, takers[-2])) == "unaccepted"
    job = await store.read(lambda tx: tx.row(ModelJobRow, "job_r_1"))
    assert job is not None
    assert (job.state, job.answer) == ("unreachable", None)
    assert await metered(store) == ["model.tokens.unaccepted"]


async def test_what_was_said_to_a_run_that_ended_waits_ahead_of_what_was_queued(store: AgentStore) -> None:
    def say(tx: AgentTx) -> None:
        lane.put(tx, session_id="s", kind="follow_up", text="Later", dedup_key="k1", now_ms=1)
        lane.put(tx, session_id="s", kind="steer", text="One more thing", dedup_key="k2", now_ms=2, run_id="r")
        lane.put(tx, session_id="s", kind="steer", text="And another", dedup_key="k3", now_ms=3, run_id="r")
        # Said to another run, it is none of this one's.
        assert lane.steers(tx, "s", "another") == []
        assert [row.text for row in lane.steers(tx, "s", "r")] == ["One more thing", "And another"]
        lane.end_run(tx, session_id="s", run_id="r", stopped=False, marks=True, now_ms=4)

    await store.transact(say)
    rows = await store.read(lambda tx: lane.waiting(tx, "s"))
    assert [(row.kind, row.text) for row in rows] == [
        ("follow_up", "One more thing"),
        ("follow_up", "And another"),
        ("follow_up", "Later"),
    ]
    assert await store.read(lambda tx: lane.steers(tx, "s", "r")) == []


async def test_an_answer_that_is_written_twice_counts_once(store: AgentStore) -> None:
    await store.transact(lambda tx: ask(tx, "t1"))
    assert [await store.transact(lambda tx: answer(tx, "t1")) for _ in range(2)] == ["accepted", "accepted"]
    assert await metered(store) == ["model.tokens"]
