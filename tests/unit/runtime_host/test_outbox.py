"""The outbox on every store: which step of a call may follow which, and what that means for run and session."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host import outbox
from runtime_host.errors import StorageError
from runtime_host.outbox import Told
from runtime_host.storage.base import AgentStore, AgentTx, RunRecord, SessionRecord, ToolCallPhase, ToolCallRecord
from runtime_host.storage.memory import MemoryAgentStore, _MemoryTx, _Tables
from runtime_host.storage.sqlite import open_agent_store

PHASES: tuple[ToolCallPhase, ...] = (
    "requested", "executing", "interrupted", "acknowledged", "delivering", "delivered", "withdrawn",
)  # fmt: skip
DONE = Told("succeeded", {"weather": "rain"}, ("ledger/1",))


def call(
    call_id: str = "a", run_id: str = "r", phase: ToolCallPhase = "requested", session: str = "s"
) -> ToolCallRecord:
    return ToolCallRecord(
        session_id=session,
        run_id=run_id,
        call_id=call_id,
        tool="look",
        arguments='{"city": "Paris \ud83d"}',
        phase=phase,
        created_ms=1,
        native={"round": 1},
    )


def put_run(tx: AgentTx, session_id: str = "s", run_id: str = "r") -> None:
    tx.put_session(SessionRecord(session_id=session_id, scope_digest="", created_ms=1, definition={}, options={}))
    tx.put_run(RunRecord(run_id=run_id, session_id=session_id, phase="dispatched", created_ms=1, input={}))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgentStore]:
    opened: AgentStore
    if request.param == "memory":
        opened = MemoryAgentStore()
    else:
        opened = await open_agent_store(tmp_path / "agent.sqlite3", profile="p", agent="a")
    await opened.transact(put_run)
    yield opened
    await opened.close()


async def phase(store: AgentStore, call_id: str = "a") -> str | None:
    record = await store.read(lambda tx: tx.tool_call("r", call_id))
    return None if record is None else record.phase


async def test_a_call_from_its_request_to_its_delivery(store: AgentStore) -> None:
    await store.transact(lambda tx: outbox.ask(tx, [call(), call("b")]))
    assert await store.transact(lambda tx: outbox.begin(tx, "r", "a"))
    assert [each.call_id for each in await store.read(lambda tx: tx.unresolved_tool_calls("s"))] == ["a"]
    # A second time it is not begun: it may be at it.
    assert not await store.transact(lambda tx: outbox.begin(tx, "r", "a"))
    await store.transact(lambda tx: outbox.acknowledge(tx, "r", "a", DONE))
    kept = await store.read(lambda tx: tx.tool_call("r", "a"))
    assert kept is not None
    assert (kept.phase, kept.outcome, kept.payload, kept.evidence) == ("acknowledged", *DONE)
    assert (kept.arguments, kept.native) == ('{"city": "Paris \ufffd"}', {"round": 1})
    await store.transact(lambda tx: outbox.acknowledge(tx, "r", "a", Told("failed", "other")))
    assert await store.read(lambda tx: tx.tool_call("r", "a")) == kept
    # Of several either all may be told or none is.
    assert not await store.transact(lambda tx: outbox.deliver(tx, "r", ["a", "b"]))
    assert not await store.transact(lambda tx: outbox.deliver(tx, "r", ["a", "unheard-of"]))
    assert await phase(store) == "acknowledged"
    assert await store.transact(lambda tx: outbox.deliver(tx, "r", ["a"]))
    assert not await store.transact(lambda tx: outbox.deliver(tx, "r", ["a"]))
    await store.transact(lambda tx: outbox.ask(tx, [call("c")]))
    assert [each.phase for each in await store.read(lambda tx: tx.tool_calls("r"))] == [
        "delivered",
        "requested",
        "requested",
    ]


async def test_a_known_call_is_not_asked_for_anew(store: AgentStore) -> None:
    await store.transact(lambda tx: outbox.ask(tx, [call()]))
    await store.transact(lambda tx: outbox.begin(tx, "r", "a"))
    await store.transact(lambda tx: outbox.ask(tx, [call()]))
    assert await phase(store) == "executing"


async def test_the_end_of_a_run_tells_nobody_of_what_waits(store: AgentStore) -> None:
    def prepare(tx: AgentTx) -> None:
        for each in PHASES:
            tx.put_tool_call(call(each, phase=each))

    await store.transact(prepare)
    await store.transact(lambda tx: outbox.close_run(tx, "r", answered=False))
    after = {each.call_id: each.phase for each in await store.read(lambda tx: tx.tool_calls("r"))}
    assert after == {
        "requested": "withdrawn",
        "executing": "interrupted",
        "interrupted": "interrupted",
        "acknowledged": "withdrawn",
        "delivering": "delivering",
        "delivered": "delivered",
        "withdrawn": "withdrawn",
    }
    await store.transact(lambda tx: outbox.close_run(tx, "r", answered=True))
    assert await phase(store, "delivering") == "delivered"
    # What is found out afterwards is kept, and told to nobody.
    await store.transact(lambda tx: outbox.acknowledge(tx, "r", "executing", DONE))
    record = await store.read(lambda tx: tx.tool_call("r", "executing"))
    assert record is not None
    assert (record.phase, record.payload) == ("withdrawn", DONE.payload)


async def test_calls_go_with_their_session_and_only_with_it(store: AgentStore) -> None:
    def prepare(tx: AgentTx) -> None:
        put_run(tx, "other", "r2")
        tx.put_tool_call(call(phase="executing"))
        tx.put_tool_call(call(run_id="r2", session="other", phase="executing"))

    await store.transact(prepare)
    await store.transact(lambda tx: tx.delete_session("s"))
    assert await store.read(lambda tx: tx.tool_calls("r")) == []
    assert await store.read(lambda tx: tx.unresolved_tool_calls("s")) == []
    assert len(await store.read(lambda tx: tx.unresolved_tool_calls("other"))) == 1


async def test_a_call_needs_a_session_and_a_transaction_that_fails_leaves_none(store: AgentStore) -> None:
    with pytest.raises((LookupError, StorageError)):
        await store.transact(lambda tx: tx.put_tool_call(call(session="nowhere")))

    def fails(tx: AgentTx) -> None:
        outbox.ask(tx, [call()])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.transact(fails)
    assert await store.read(lambda tx: tx.tool_calls("r")) == []


async def test_what_a_session_is_bound_to_is_kept(store: AgentStore) -> None:
    binding = {"fingerprint": "f", "schemas": {"look": "0" * 64}}

    def put(tx: AgentTx) -> None:
        record = tx.session("s")
        assert record is not None
        assert record.tools is None
        tx.put_session(
            SessionRecord(session_id="s", scope_digest="", created_ms=1, definition={}, options={}, tools=binding)
        )

    await store.transact(put)
    record = await store.read(lambda tx: tx.session("s"))
    assert record is not None
    assert record.tools == binding


@pytest.mark.parametrize(
    ("phases", "goes_on"),
    [
        ((), False),
        (("delivered",), False),
        (("acknowledged",), True),
        (("requested",), True),
        (("delivered", "acknowledged"), True),
        (("acknowledged", "requested"), True),
        (("acknowledged", "executing"), False),
        (("acknowledged", "interrupted"), False),
        (("delivering",), False),
        (("delivering", "acknowledged"), False),
        (("withdrawn",), False),
    ],
)
def test_a_run_goes_on_only_where_nobody_was_told_and_all_is_known(
    phases: tuple[ToolCallPhase, ...], goes_on: bool
) -> None:
    assert outbox.can_continue([call(str(at), phase=each) for at, each in enumerate(phases)]) is goes_on


STEPS: dict[str, Callable[[AgentTx, str], object]] = {
    "ask": lambda tx, call_id: outbox.ask(tx, [call(call_id)]),
    "begin": lambda tx, call_id: outbox.begin(tx, "r", call_id),
    "take back": lambda tx, call_id: outbox.take_back(tx, "r", call_id),
    "acknowledge": lambda tx, call_id: outbox.acknowledge(tx, "r", call_id, DONE),
    "deliver": lambda tx, call_id: outbox.deliver(tx, "r", [call_id]),
    "confirm": lambda tx, _: outbox.confirm(tx, "r"),
    "close": lambda tx, _: outbox.close_run(tx, "r", answered=False),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.sampled_from(["a", "b"])), max_size=30))
def test_whatever_is_done_nothing_is_executed_or_told_twice(steps: list[tuple[str, str]]) -> None:
    tx = _MemoryTx(_Tables(), writable=True)
    put_run(tx)
    taken_back: dict[str, int] = {}
    begun: dict[str, int] = {}
    told: dict[str, int] = {}
    for step, call_id in steps:
        before = tx.tool_call("r", call_id)
        answer = STEPS[step](tx, call_id)
        after = tx.tool_call("r", call_id)
        if step == "begin" and answer:
            begun[call_id] = begun.get(call_id, 0) + 1
        if step == "take back" and before is not None and after is not None and before.phase != after.phase:
            taken_back[call_id] = taken_back.get(call_id, 0) + 1
        if step == "deliver" and answer:
            assert after is not None
            assert after.outcome is not None
            told[call_id] = told.get(call_id, 0) + 1
    for call_id in ("a", "b"):
        assert begun.get(call_id, 0) - taken_back.get(call_id, 0) <= 1
        assert told.get(call_id, 0) <= 1
