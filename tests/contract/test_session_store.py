"""What a session keeps, on both stores: whole or not at all, in order, within its session; and sums that add up."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_host.errors import StorageError
from runtime_host.loop.session_store import SessionStore, SessionStores
from runtime_host.storage import usage
from runtime_host.storage.base import AgentStore, AgentTx, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import CounterRow, Row, UsageDayRow, UsageHourRow, UsageRow
from runtime_host.storage.sqlite import open_agent_store

DAY_MS = 24 * 3600 * 1000


def begin(tx: AgentTx) -> None:
    for name in ("s", "t"):
        tx.put_session(SessionRecord(session_id=name, scope_digest="", created_ms=1, definition={}, options={}))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgentStore]:
    store: AgentStore = MemoryAgentStore()
    if request.param == "sqlite":
        store = await open_agent_store(tmp_path / "agent.sqlite3", profile="p", agent="a")
    await store.transact(begin)
    yield store
    await store.close()


def everything(stores: SessionStores) -> Any:
    return stores.values("n"), stores.list("n", "l"), stores.value("n", "k")


def sums(tx: AgentTx) -> tuple[dict[Any, float], dict[Any, float]]:
    """What the ledger holds, and what hours and days hold together."""
    by_time: list[UsageHourRow | UsageDayRow] = [*tx.rows(UsageHourRow), *tx.rows(UsageDayRow)]
    return _summed(tx.rows(UsageRow)), _summed(by_time)


def _summed(rows: Sequence[UsageRow | UsageHourRow | UsageDayRow]) -> dict[Any, float]:
    found: dict[Any, float] = {}
    for row in rows:
        place = row.resource, row.key, row.unit
        found[place] = found.get(place, 0.0) + row.quantity
    return {place: quantity for place, quantity in found.items() if quantity}


async def test_what_is_written_to_several_stores_is_there_whole_or_not_at_all(store: AgentStore) -> None:
    session = SessionStore(store, "s")

    def write(stores: SessionStores) -> None:
        stores.append("note", {}, parent=None)
        stores.put_value("n", "k", {"a": 1})
        stores.add("n", "l", "one")
        stores.used("u", "tool.call", "m.t:calls", 1.0, "call", at_ms=1)

    def fails(stores: SessionStores) -> None:
        write(stores)
        assert stores.value("n", "k") == {"a": 1}
        raise LookupError("undone")

    def look(tx: AgentTx) -> list[Row]:
        return [*tx.rows(CounterRow), *tx.rows(UsageRow), *tx.rows(UsageHourRow)]

    with pytest.raises(LookupError, match="undone"):
        await session.transact(fails)
    assert await session.read(everything) == ([], [], None)
    assert await store.read(look) == []
    await session.transact(write)
    assert await session.read(everything) == ([("k", {"a": 1})], [(3, "one")], {"a": 1})
    ledger, told = await store.read(sums)
    assert ledger == told == {("tool.call", "m.t:calls", "call"): 1.0}


async def test_later_reads_see_earlier_writes_and_both_come_in_write_order(store: AgentStore) -> None:
    def write(stores: SessionStores) -> Any:
        for key in ("z", "a", "z"):
            stores.put_value("n", key, key)
        for number in range(11):
            stores.add("n", "l", number)
        stores.add("n", "other", None)
        first = stores.list("n", "l", after_seq=4, limit=2)
        stores.remove_value("n", "a")
        return [name for name, _ in stores.values("n")], [each for _, each in stores.list("n", "l")], first

    told = await SessionStore(store, "s").transact(write)
    # The ninth and the eleventh in the order of numbers; as text they would change places.
    assert told == (["z"], list(range(11)), [(5, 1), (6, 2)])

    def clear(stores: SessionStores) -> Any:
        stores.clear("n", "l")
        return stores.list("n", "l"), stores.list("n", "other")

    assert await SessionStore(store, "s").transact(clear) == ([], [(15, None)])


async def test_a_branch_ends_at_its_branch_point_and_a_cursor_comes_before_a_limit(store: AgentStore) -> None:
    def write(stores: SessionStores) -> Any:
        root = stores.append("say", {"n": 0}, parent=None)
        point = stores.append("note", {"n": 1}, parent=root.entry_id)
        left = stores.append("say", {"n": 2}, parent=point.entry_id)
        right = stores.append("say", {"n": 3}, parent=point.entry_id)
        last = stores.append("note", {"n": 4}, parent=right.entry_id)
        end = stores.append("say", {"n": 5}, parent=last.entry_id)

        def numbers(leaf: Any, **how: Any) -> list[int]:
            return [row.body["n"] for row in stores.branch(leaf.entry_id, **how)]

        # The filter keeps nothing of what the branch point is: the branch ends there all the same.
        says = numbers(end, since=point.entry_id, only=lambda row: row.type == "say")
        with pytest.raises(LookupError):
            stores.branch(left.entry_id, since=right.entry_id)
        return (
            numbers(left),
            numbers(end),
            says,
            numbers(end, after_seq=right.seq, limit=1),
            numbers(end, limit=0),
            numbers(end, only=lambda row: row.type == "say", after_seq=root.seq, limit=1),
        )

    assert await SessionStore(store, "s").transact(write) == ([0, 1, 2], [0, 1, 3, 4, 5], [3, 5], [4], [], [3])


async def test_one_session_reaches_nothing_of_another(store: AgentStore) -> None:
    def write(stores: SessionStores) -> str:
        stores.put_value("n", "k", 1)
        stores.add("n", "l", 1)
        stores.used("u", "r", "k", 1.0, "x", at_ms=1)
        return stores.append("say", {}, parent=None).entry_id

    entry = await SessionStore(store, "s").transact(write)
    other = SessionStore(store, "t")
    assert await other.read(everything) == ([], [], None)
    with pytest.raises(LookupError):
        await other.read(lambda stores: stores.branch(entry))
    with pytest.raises(LookupError):
        await other.transact(lambda stores: stores.append("say", {}, parent=entry))
    with pytest.raises(ValueError, match="another session"):
        await other.transact(lambda stores: stores.used("u", "r", "k", 9.0, "x", at_ms=1))
    with pytest.raises(StorageError):
        await other.read(lambda stores: stores.put_value("n", "k", 2))
    await other.transact(write_other)
    await store.transact(lambda tx: tx.delete_session("s"))
    assert await SessionStore(store, "s").read(everything) == ([], [], None)
    assert await other.read(everything) == ([("k", "t")], [], "t")
    assert await store.read(lambda tx: [row.name for row in tx.rows(CounterRow)]) == ["session/t/writes"]


def write_other(stores: SessionStores) -> None:
    stores.put_value("n", "k", "t")


async def test_commits_come_in_the_order_they_were_asked_for_and_closing_drains_them(store: AgentStore) -> None:
    session = SessionStore(store, "s")
    asked = [
        asyncio.ensure_future(session.transact(lambda stores, n=number: stores.add("n", "l", n)))  # type: ignore[misc]
        for number in range(40)
    ]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(session.close())
    await asyncio.sleep(0)
    for refused in (session.transact(everything), session.read(everything)):
        with pytest.raises(StorageError, match="closed"):
            await refused
    await closing
    await asyncio.gather(*asked)
    await session.close()
    # Another one of the same session is not closed with it.
    told = await SessionStore(store, "s").read(lambda stores: stores.list("n", "l"))
    assert told == [(number + 1, number) for number in range(40)]


async def test_closing_after_the_store_was_closed_is_no_error() -> None:
    store = MemoryAgentStore()
    session = SessionStore(store, "s")
    await store.close()
    await session.close()


async def test_hours_become_days_and_a_late_amount_goes_where_its_time_is(store: AgentStore) -> None:
    def used(number: int, day: float, session: str = "s") -> Any:
        def write(tx: AgentTx) -> None:
            at_ms = int(day * DAY_MS)
            usage.meter(tx, UsageRow(usage_id=str(number), session_id=session, resource="r", key="k", quantity=number,
                                     unit="x", at_ms=at_ms))  # fmt: skip

        return write

    def look(tx: AgentTx) -> Any:
        return (
            [(row.hour, row.quantity) for row in tx.rows(UsageHourRow)],
            [(row.day, row.quantity) for row in tx.rows(UsageDayRow)],
        )

    await store.transact(used(1, 100.0))
    await store.transact(used(2, 100.5))
    await store.transact(used(4, 130.0, "t"))
    assert await store.read(look) == (
        [("1970-04-11T00", 1.0), ("1970-04-11T12", 2.0), ("1970-05-11T00", 4.0)],
        [],
    )
    await store.transact(used(8, 136.0, "t"))
    await store.transact(used(16, 100.9, "t"))
    assert await store.read(look) == ([("1970-05-11T00", 4.0), ("1970-05-17T00", 8.0)], [("1970-04-11", 19.0)])
    # Written again it is counted once, and what a session used goes with it.
    await store.transact(used(8, 136.0, "t"))
    await store.transact(lambda tx: tx.delete_session("s"))
    assert await store.read(look) == ([("1970-05-11T00", 4.0), ("1970-05-17T00", 8.0)], [("1970-04-11", 16.0)])
    await store.transact(lambda tx: tx.delete_session("t"))
    assert await store.read(look) == ([], [])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 12), st.sampled_from("st"), st.sampled_from("ab"), st.integers(-3, 5), st.integers(0, 90)
        ),
        max_size=30,
    ),
    st.integers(0, 30),
)
def test_the_sums_always_equal_the_ledger(writes: list[tuple[int, str, str, int, int]], deleted_after: int) -> None:
    async def go() -> None:
        store = MemoryAgentStore()
        await store.transact(begin)
        for number, (each, session, key, quantity, day) in enumerate(writes):
            row = UsageRow(
                usage_id=f"{session}{each}",
                session_id=session,
                resource="r",
                key=key,
                quantity=quantity,
                unit="x",
                at_ms=day * DAY_MS + each * 3_600_000,
            )
            await store.transact(lambda tx, row=row: usage.meter(tx, row))  # type: ignore[misc]
            if number == deleted_after:
                await store.transact(lambda tx: tx.delete_session("s"))
                await store.transact(begin)
            ledger, told = await store.read(sums)
            assert ledger == told
        await store.close()

    asyncio.run(go())


async def test_what_is_nothing_or_no_number_is_not_written(store: AgentStore) -> None:
    session = SessionStore(store, "s")
    for number, quantity in enumerate((0.0, float("nan"), float("inf"))):
        await session.transact(lambda stores, n=number, q=quantity: stores.used(str(n), "r", "k", q, "x", at_ms=1))  # type: ignore[misc]
    await session.transact(lambda stores: stores.used("refund", "r", "k", -2.0, "x", at_ms=1))
    assert await store.read(lambda tx: [row.quantity for row in tx.rows(UsageRow)]) == [-2.0]
    with pytest.raises(ValueError, match="too long"):
        await session.transact(lambda stores: stores.used("long", "r", "k" * 201, 1.0, "x", at_ms=1))
