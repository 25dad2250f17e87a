"""What every agent store must do, as a suite a new engine subclasses.

Owns the checks of `runtime_host.storage.base`. Must not know any engine. A subclass is ten lines: it
gives the fixture `place`, a `StorePlace`.

    class TestMyStore(AgentStoreContract):
        @pytest.fixture
        def place(self, tmp_path): return MyPlace(tmp_path)

Needs pytest, pytest-asyncio in its auto mode, and hypothesis.
"""

import asyncio
import threading
import types
import typing
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from runtime_host.errors import AgentRequestConflictError, StorageError
from runtime_host.storage.base import (
    AgentStore,
    AgentTx,
    ImageUse,
    ItemHead,
    ItemRecord,
    RequestRecord,
    RowT,
    RunRecord,
    SessionRecord,
    ToolCallRecord,
    session_fact,
)
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import TABLES, InboxRow, MountRow, OperationRow, PluginValueRow, Row, SecretRow

T = TypeVar("T")


class StorePlace(Protocol):
    """Where the store under test is kept."""

    async def open(self) -> AgentStore:
        """Open the store of this place; the last one opened here was closed, or lost in a crash."""
        ...


class DurablePlace(StorePlace, Protocol):
    """A place that keeps what was acknowledged."""

    def crash(self) -> None:
        """Continue from what a crash at this moment would leave on disk.

        The store that is open now is not of this place any more.
        """
        ...


def session(session_id: str = "s", **changes: Any) -> SessionRecord:
    """A session as a runtime would write it."""
    record = SessionRecord(
        session_id=session_id, scope_digest="scope", created_ms=1, definition={"id": "a"}, options={"b": [1, None, "ü"]}
    )
    return msgspec.structs.replace(record, **changes)


def run(run_id: str = "r", session_id: str = "s", **changes: Any) -> RunRecord:
    """An admitted run."""
    record = RunRecord(run_id=run_id, session_id=session_id, phase="admitted", created_ms=2, input={"text": "hi"})
    return msgspec.structs.replace(record, **changes)


def item(position: int = 0, text: str = "", session_id: str = "s", **changes: Any) -> ItemRecord:
    """An open reply."""
    record = ItemRecord(
        item_id=f"{session_id}-{position}",
        session_id=session_id,
        run_id="r",
        position=position,
        kind="reply",
        state="open",
        text=text,
        created_ms=3,
    )
    return msgspec.structs.replace(record, **changes)


def tool_call(call_id: str = "c", **changes: Any) -> ToolCallRecord:
    """A call that was asked for."""
    record = ToolCallRecord(
        session_id="s", run_id="r", call_id=call_id, tool="t", arguments="{}", phase="requested", created_ms=4
    )
    return msgspec.structs.replace(record, **changes)


def row(kind: type[RowT], number: int = 0, session_id: str = "s", **changes: Any) -> RowT:
    """A record of a kind with something of its own in every field."""
    values = {
        field: session_id if field == "session_id" else _sample(hint, field, number)
        for field, hint in typing.get_type_hints(kind).items()
    }
    return kind(**{**values, **changes})


def _sample(hint: Any, field: str, number: int) -> Any:
    members = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return members[number % len(members)]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        given = [member for member in members if member is not type(None)]
        return _sample(given[0], field, number)
    samples: dict[Any, Any] = {
        str: f"{field} {number} ü\0",
        bytes: b"\0\xff" + field.encode() + bytes([number]),
        bool: number % 2 == 0,
        int: number * 1_000_000_000_000,
        float: number + 0.25,
    }
    return samples.get(hint, {"number": number, "deep": [None, {"ü": 1.5}], field: "\0"})


def steps(*changes: Callable[[AgentTx], object]) -> Callable[[AgentTx], None]:
    """One transaction of several changes."""

    def work(tx: AgentTx) -> None:
        for change in changes:
            change(tx)

    return work


class Undo(Exception):
    """Raised inside a transaction that is to leave nothing."""


class AgentStoreContract:
    """Subclass as `Test…`, with a fixture `place`."""

    @pytest_asyncio.fixture
    async def store(self, place: StorePlace) -> AsyncIterator[AgentStore]:
        store = await place.open()
        await store.transact(lambda tx: tx.put_session(session()))
        yield store
        await store.close()

    # ---- transactions ----

    async def test_a_transaction_returns_what_its_function_returns(self, store: AgentStore) -> None:
        assert await store.transact(lambda tx: tx.count_items("s")) == 0
        assert await store.read(lambda tx: 7) == 7

    async def test_later_operations_see_earlier_ones(self, store: AgentStore) -> None:
        def both(tx: AgentTx) -> Any:
            tx.put_fact("k", 1)
            return tx.fact("k")

        assert await store.transact(both) == 1

    async def test_an_exception_undoes_its_transaction_alone_and_reaches_its_caller(self, store: AgentStore) -> None:
        def fails(tx: AgentTx) -> None:
            tx.put_session(session("other"))
            tx.put_session(session("s", status="failed"))
            tx.add_item(item())
            tx.put_request(RequestRecord(session_id="s", request_id="q", digest="d", run_id="r"))
            tx.put_run(run())
            tx.put_fact("k", 1)
            raise Undo

        results = await asyncio.gather(
            store.transact(lambda tx: tx.put_fact("before", 1)),
            store.transact(fails),
            store.transact(lambda tx: tx.put_fact("after", 1)),
            return_exceptions=True,
        )
        assert isinstance(results[1], Undo)

        def look(tx: AgentTx) -> Any:
            facts = tx.fact("before"), tx.fact("after"), tx.fact("k")
            return facts, tx.sessions(), tx.count_items("s"), tx.count_requests("s"), tx.runs("s"), tx.item("s-0")

        assert await store.read(look) == ((1, 1, None), [session()], 0, 0, [], None)

    async def test_writes_to_every_table_of_a_session_are_there_together_or_not_at_all(self, store: AgentStore) -> None:
        def write(tx: AgentTx) -> None:
            tx.put_run(run())
            tx.put_request(RequestRecord(session_id="s", request_id="q", digest="d", run_id="r"))
            tx.add_item(item(0, "hi", kind="user", state="complete"))
            tx.put_tool_call(tool_call())
            tx.put_fact("k", 1)

        def fails_at_the_end(tx: AgentTx) -> None:
            write(tx)
            assert _tables(tx) == (1, 1, 1, 1, 1), "what was written is not seen by the same transaction"
            raise Undo

        with pytest.raises(Undo):
            await store.transact(fails_at_the_end)
        assert await store.read(_tables) == (0, 0, 0, 0, 0)
        await store.transact(write)
        assert await store.read(_tables) == (1, 1, 1, 1, 1)

    async def test_an_undone_deletion_brings_everything_back_in_order(self, store: AgentStore) -> None:
        def fill(tx: AgentTx) -> None:
            tx.put_session(session("t"))
            for number in range(3):
                tx.put_run(run(f"r{number}"))
                tx.add_item(item(number, text="x" * number))
                tx.put_request(RequestRecord(session_id="s", request_id=f"q{number}", digest="d", run_id="r"))

        def fails(tx: AgentTx) -> None:
            tx.delete_session("s")
            assert tx.session("s") is None
            raise Undo

        await store.transact(fill)
        before = await store.read(_everything)
        with pytest.raises(Undo):
            await store.transact(fails)
        assert await store.read(_everything) == before

    async def test_transactions_take_effect_in_the_order_they_were_asked_for(self, store: AgentStore) -> None:
        def append(number: int) -> Callable[[AgentTx], None]:
            return lambda tx: tx.put_fact("order", [*(tx.fact("order") or []), number])

        await asyncio.gather(*(store.transact(append(number)) for number in range(300)))
        assert await store.read(lambda tx: tx.fact("order")) == list(range(300))

    async def test_a_read_may_not_write(self, store: AgentStore) -> None:
        with pytest.raises(StorageError):
            await store.read(lambda tx: tx.put_fact("k", 1))
        assert await store.read(lambda tx: tx.fact("k")) is None
        await store.transact(lambda tx: tx.put_fact("k", 2))

    async def test_a_cancelled_caller_breaks_nothing(self, store: AgentStore) -> None:
        task = asyncio.ensure_future(store.transact(lambda tx: tx.put_fact("k", 1)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.transact(lambda tx: tx.put_fact("j", 1))
        assert await store.read(lambda tx: tx.fact("j")) == 1

    async def test_it_serves_several_event_loops(self, store: AgentStore) -> None:
        done: list[Any] = []

        async def elsewhere() -> None:
            await store.transact(lambda tx: tx.put_fact("k", "elsewhere"))
            done.append(await store.read(lambda tx: tx.fact("k")))

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        while thread.is_alive():
            await store.read(lambda tx: None)
        thread.join()
        assert done == ["elsewhere"]

    async def test_close_seals_admission_at_once_though_it_still_drains(self, place: StorePlace) -> None:
        store = await place.open()
        waiting = [asyncio.ensure_future(store.transact(partial(_append, number))) for number in range(5)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        with pytest.raises(StorageError) as refusal:
            await store.transact(partial(_append, 99))
        assert refusal.value.error_code == "STORAGE_CLOSED"
        await closing
        assert await asyncio.gather(*waiting) == [1, 2, 3, 4, 5]

    async def test_close_finishes_what_was_admitted_and_refuses_the_rest(self, place: StorePlace) -> None:
        store = await place.open()
        done: list[int] = []

        async def put(number: int) -> None:
            await store.transact(lambda tx: tx.put_fact(f"k{number}", number))
            done.append(number)

        tasks = [asyncio.ensure_future(put(number)) for number in range(20)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*tasks)
        assert sorted(done) == list(range(20))
        for late in (store.transact, store.read):
            with pytest.raises(StorageError) as refusal:
                await late(lambda tx: None)
            assert refusal.value.error_code == "STORAGE_CLOSED"
        await store.close()

    # ---- sessions ----

    async def test_sessions_are_put_replaced_and_listed_in_order(self, store: AgentStore) -> None:
        changed = session(status="detached", driver_state={"cursor": 1})

        def work(tx: AgentTx) -> None:
            tx.put_session(session("t"))
            tx.put_session(session("a"))
            tx.put_session(changed)

        await store.transact(work)
        assert await store.read(lambda tx: tx.sessions()) == [changed, session("t"), session("a")]
        assert await store.read(lambda tx: (tx.session("s"), tx.session("none"))) == (changed, None)

    async def test_a_record_is_not_shared_with_its_caller(self, store: AgentStore) -> None:
        options = {"deep": {"list": [1]}}
        await store.transact(lambda tx: tx.put_session(session("t", options=options)))
        options["deep"]["list"].append(2)
        read = await store.read(lambda tx: tx.session("t"))
        assert read is not None
        assert read.options == {"deep": {"list": [1]}}
        read.options["deep"]["list"].append(3)
        assert await store.read(lambda tx: tx.session("t")) == session("t", options={"deep": {"list": [1]}})

    async def test_deleting_a_session_takes_all_of_it_and_nothing_else(self, store: AgentStore) -> None:
        def note(tx: AgentTx) -> None:
            for session_id in ("s", "s2", "t"):
                tx.put_fact(session_fact(session_id, "note"), session_id)

        await store.transact(steps(_fill, note))

        def delete(tx: AgentTx) -> None:
            tx.delete_session("s")
            tx.delete_session("never there")

        await store.transact(delete)

        def look(tx: AgentTx) -> Any:
            gone = (
                tx.session("s"),
                tx.runs("s"),
                tx.run("r1"),
                tx.count_items("s"),
                tx.item("s-0"),
                tx.items("s", 0, 9, 9),
            )
            facts = [tx.fact(session_fact(session_id, "note")) for session_id in ("s", "s2", "t")]
            return gone, tx.count_requests("s"), tx.request("s", "q"), tx.count_items("t"), len(tx.open_runs()), facts

        gone: Any = (None, [], None, 0, None, [])
        assert await store.read(look) == (gone, 0, None, 1, 1, [None, "s2", "t"])
        await store.transact(steps(lambda tx: tx.put_session(session()), lambda tx: tx.add_item(item())))
        assert await store.read(lambda tx: tx.count_items("s")) == 1

    # ---- records of the loop and its gate ----

    @pytest.mark.parametrize("kind", TABLES, ids=lambda kind: TABLES[kind].name)
    async def test_a_record_of_each_kind_comes_back_as_it_was(self, store: AgentStore, kind: type[Row]) -> None:
        table = TABLES[kind]
        first, second = row(kind, 1), row(kind, 2)
        await store.transact(steps(lambda tx: tx.put_row(first), lambda tx: tx.put_row(second)))

        def key(record: Row) -> list[str]:
            return [getattr(record, field) for field in table.key]

        assert await store.read(lambda tx: tx.row(kind, *key(first))) == first
        assert await store.read(lambda tx: tx.rows(kind)) == [first, second]
        # In its place, not behind the others.
        fields = {field: getattr(second, field) for field in table.fields if field not in table.key}
        changed = msgspec.structs.replace(first, **{**fields, **_unique(table.unique)})
        await store.transact(lambda tx: tx.put_row(changed))
        assert await store.read(lambda tx: tx.rows(kind)) == [changed, second]
        await store.transact(
            steps(lambda tx: tx.delete_row(kind, *key(first)), lambda tx: tx.delete_row(kind, *key(first)))
        )
        assert await store.read(lambda tx: (tx.row(kind, *key(first)), tx.rows(kind))) == (None, [second])

    @pytest.mark.parametrize("kind", TABLES, ids=lambda kind: TABLES[kind].name)
    async def test_what_a_record_may_leave_out_stays_left_out(self, store: AgentStore, kind: type[Row]) -> None:
        hints = typing.get_type_hints(kind)
        nothing: dict[str, Any] = {field: None for field, hint in hints.items() if type(None) in typing.get_args(hint)}
        empty: dict[str, Any] = {field: {} for field, hint in hints.items() if typing.get_origin(hint) is dict}
        record = row(kind, 1, **{**nothing, **empty})
        await store.transact(lambda tx: tx.put_row(record))
        assert await store.read(lambda tx: tx.rows(kind)) == [record]
        for field in nothing:
            found = await store.read(lambda tx, field=field: tx.rows(kind, **{field: None}))  # type: ignore[misc]
            assert found == [record]

    async def test_records_are_found_by_the_fields_that_are_asked_for(self, store: AgentStore) -> None:
        said = [
            row(
                InboxRow,
                number,
                inbox_id=f"i{number}",
                dedup_key=str(number),
                state="waiting" if number % 2 else "taken",
            )
            for number in range(4)
        ]
        await store.transact(steps(*(partial(_put, each) for each in said)))
        waiting = await store.read(lambda tx: tx.rows(InboxRow, session_id="s", state="waiting"))
        assert waiting == [said[1], said[3]]
        assert await store.read(lambda tx: tx.rows(InboxRow, session_id="t")) == []
        closed = row(MountRow, 1, closed=True)
        await store.transact(lambda tx: tx.put_row(closed))
        found = await store.read(lambda tx: (tx.rows(MountRow, closed=True), tx.rows(MountRow, closed=False)))
        assert found == ([closed], [])
        with pytest.raises(ValueError, match="nothing_such"):
            await store.read(lambda tx: tx.rows(InboxRow, nothing_such="x"))

    async def test_what_only_one_may_have_is_refused_to_another_and_undoes_its_transaction(
        self, store: AgentStore
    ) -> None:
        mount = row(MountRow, 1)
        said = row(InboxRow, 1)
        await store.transact(steps(lambda tx: tx.put_row(mount), lambda tx: tx.put_row(said)))
        for other in (
            msgspec.structs.replace(mount, alias="another"),
            msgspec.structs.replace(said, inbox_id="another"),
        ):
            with pytest.raises(ValueError, match=TABLES[type(other)].name):
                await store.transact(steps(partial(_fact, 1), lambda tx, other=other: tx.put_row(other)))  # type: ignore[misc]
            assert await store.read(lambda tx: tx.fact("k")) is None
        # In another session the same key is another one's.
        await store.transact(lambda tx: tx.put_session(session("t")))
        elsewhere = msgspec.structs.replace(said, inbox_id="another", session_id="t")
        await store.transact(lambda tx: tx.put_row(elsewhere))
        assert await store.read(lambda tx: tx.rows(InboxRow)) == [said, elsewhere]

    async def test_records_of_a_session_need_it_and_go_with_it(self, store: AgentStore) -> None:
        of_session = [kind for kind, table in TABLES.items() if table.of_session]
        assert OperationRow in of_session
        for kind in of_session:
            with pytest.raises(ValueError, match=TABLES[kind].name):
                await store.transact(lambda tx, kind=kind: tx.put_row(row(kind, session_id="none")))  # type: ignore[misc]
        kept = [row(kind, 2, "t") for kind in of_session] + [
            row(kind, 1) for kind, table in TABLES.items() if not table.of_session
        ]

        def fill(tx: AgentTx) -> None:
            tx.put_session(session("t"))
            for kind in of_session:
                tx.put_row(row(kind, 1))
            for record in kept:
                tx.put_row(record)

        def fails(tx: AgentTx) -> None:
            tx.delete_session("s")
            raise Undo

        await store.transact(fill)
        before = await store.read(_all_rows)
        with pytest.raises(Undo):
            await store.transact(fails)
        assert await store.read(_all_rows) == before
        await store.transact(lambda tx: tx.delete_session("s"))
        assert sorted(await store.read(_all_rows), key=repr) == sorted(kept, key=repr)

    async def test_records_are_undone_with_their_transaction_and_not_shared(self, store: AgentStore) -> None:
        value = row(PluginValueRow, 1, value={"list": [1]})
        await store.transact(lambda tx: tx.put_row(value))

        def fails(tx: AgentTx) -> None:
            tx.put_row(row(PluginValueRow, 2))
            tx.delete_row(PluginValueRow, *(getattr(value, field) for field in TABLES[PluginValueRow].key))
            assert len(tx.rows(PluginValueRow)) == 1
            raise Undo

        with pytest.raises(Undo):
            await store.transact(fails)
        read = (await store.read(lambda tx: tx.rows(PluginValueRow)))[0]
        assert read == value
        read.value["list"].append(2)
        assert await store.read(lambda tx: tx.rows(PluginValueRow)) == [value]

    async def test_records_are_not_written_by_a_read(self, store: AgentStore) -> None:
        secret = row(SecretRow, 1)
        await store.transact(lambda tx: tx.put_row(secret))
        for change in (lambda tx: tx.put_row(row(SecretRow, 2)), lambda tx: tx.delete_row(SecretRow, secret.name)):
            with pytest.raises(StorageError):
                await store.read(change)
        assert await store.read(lambda tx: tx.rows(SecretRow)) == [secret]

    async def test_a_record_with_text_that_utf8_cannot_hold_is_kept_as_well_as_it_can_be(
        self, store: AgentStore
    ) -> None:
        record = row(InboxRow, 1, text="a\ud800b", extra={"\udfff": ["\ud800"]})
        await store.transact(lambda tx: tx.put_row(record))
        kept = msgspec.structs.replace(record, text="a\ufffdb", extra={"\ufffd": ["\ufffd"]})
        assert await store.read(lambda tx: tx.rows(InboxRow)) == [kept]

    # ---- images ----

    async def test_an_image_is_kept_once_and_goes_with_its_last_session(self, store: AgentStore) -> None:
        def fill(tx: AgentTx) -> tuple[str, str, str]:
            tx.put_session(session("t"))
            tx.put_run(run("r1"))
            tx.put_run(run("r2", session_id="t"))
            first = tx.put_image("s", "r1", 1, media_type="image/png", data=b"one" * 1000)
            second = tx.put_image("s", "r1", 0, media_type="image/gif", data=b"two")
            again = tx.put_image("t", "r2", 0, media_type="image/png", data=b"one" * 1000)
            return first, second, again

        first, second, again = await store.transact(fill)
        assert first == again
        assert await store.read(lambda tx: tx.images("s")) == [
            ImageUse("r1", 1, first, "image/png", 3000),
            ImageUse("r1", 0, second, "image/gif", 3),
        ]
        assert await store.read(lambda tx: (tx.image("s", first), tx.image("s", second))) == (b"one" * 1000, b"two")
        assert await store.read(lambda tx: (tx.image("t", second), tx.image("none", first))) == (None, None)
        with pytest.raises(ValueError, match="already"):
            await store.transact(lambda tx: tx.put_image("s", "r1", 0, media_type="image/png", data=b"three"))
        with pytest.raises(LookupError):
            await store.transact(lambda tx: tx.put_image("none", "r9", 0, media_type="image/png", data=b"x"))
        await store.transact(lambda tx: tx.delete_session("s"))
        assert await store.read(lambda tx: (tx.images("s"), tx.image("s", first))) == ([], None)
        assert await store.read(lambda tx: tx.image("t", first)) == b"one" * 1000
        await store.transact(lambda tx: tx.delete_session("t"))
        await store.transact(steps(lambda tx: tx.put_session(session("t")), lambda tx: tx.put_run(run("r3", "t"))))
        assert await store.read(lambda tx: tx.image("t", first)) is None

    async def test_an_undone_image_is_not_there(self, store: AgentStore) -> None:
        def fails(tx: AgentTx) -> None:
            tx.put_run(run())
            tx.put_image("s", "r", 0, media_type="image/png", data=b"one")
            raise Undo

        with pytest.raises(Undo):
            await store.transact(fails)
        assert await store.read(lambda tx: tx.images("s")) == []

    # ---- requests and runs ----

    async def test_a_request_id_is_taken_by_its_first_digest(self, store: AgentStore) -> None:
        first = RequestRecord(session_id="s", request_id="q", digest="d", run_id="r")
        await store.transact(lambda tx: tx.put_request(first))
        await store.transact(lambda tx: tx.put_request(msgspec.structs.replace(first, run_id="another")))
        with pytest.raises(AgentRequestConflictError):
            await store.transact(lambda tx: tx.put_request(msgspec.structs.replace(first, digest="e")))
        assert await store.read(lambda tx: (tx.request("s", "q"), tx.count_requests("s"))) == (first, 1)
        await store.transact(lambda tx: tx.put_session(session("t")))
        await store.transact(lambda tx: tx.put_request(msgspec.structs.replace(first, session_id="t", digest="e")))
        assert await store.read(lambda tx: (tx.count_requests("s"), tx.count_requests("t"))) == (1, 1)

    async def test_runs_keep_their_order_of_admission_through_changes(self, store: AgentStore) -> None:
        def work(tx: AgentTx) -> None:
            for name in ("c", "a", "b"):
                tx.put_run(run(name))
            tx.put_run(run("c", phase="dispatched", sequence_mark=100))
            tx.put_run(run("a", phase="completed", finished_ms=9, result={"output_text": "ü"}))

        await store.transact(work)
        assert [r.run_id for r in await store.read(lambda tx: tx.runs("s"))] == ["c", "a", "b"]
        assert [r.run_id for r in await store.read(lambda tx: tx.open_runs())] == ["c", "b"]
        finished = run("a", phase="completed", finished_ms=9, result={"output_text": "ü"})
        assert await store.read(lambda tx: (tx.run("a"), tx.run("none"))) == (finished, None)

    async def test_a_run_stays_in_its_session(self, store: AgentStore) -> None:
        await store.transact(steps(lambda tx: tx.put_session(session("t")), lambda tx: tx.put_run(run())))
        with pytest.raises(ValueError, match="another session"):
            await store.transact(lambda tx: tx.put_run(run(session_id="t")))

    async def test_nothing_is_written_for_a_session_that_is_not_there(self, store: AgentStore) -> None:
        request = RequestRecord(session_id="none", request_id="q", digest="d", run_id="r")
        with pytest.raises(LookupError):
            await store.transact(lambda tx: tx.put_request(request))
        with pytest.raises(LookupError):
            await store.transact(lambda tx: tx.put_run(run(session_id="none")))
        with pytest.raises(LookupError):
            await store.transact(lambda tx: tx.add_item(item(session_id="none")))

    # ---- items ----

    async def test_positions_count_from_zero_without_holes(self, store: AgentStore) -> None:
        await store.transact(lambda tx: tx.add_item(item(0)))
        for wrong in (0, 2):
            with pytest.raises(ValueError, match="position 1"):
                await store.transact(lambda tx, wrong=wrong: tx.add_item(item(wrong, item_id="new")))  # type: ignore[misc]
        with pytest.raises(ValueError, match="there already"):
            await store.transact(lambda tx: tx.add_item(item(1, item_id="s-0")))
        assert await store.read(lambda tx: tx.count_items("s")) == 1

    async def test_appended_text_continues_the_item_and_is_replaced_at_its_end(self, store: AgentStore) -> None:
        await store.transact(lambda tx: tx.add_item(item(text="Hel")))
        await store.transact(
            steps(lambda tx: tx.append_text("s-0", 3, "lo "), lambda tx: tx.append_text("s-0", 6, "wörld"))
        )
        await store.transact(lambda tx: tx.append_text("s-0", 11, ""))
        assert await store.read(lambda tx: tx.item("s-0")) == item(text="Hello wörld")
        await store.transact(
            lambda tx: tx.finish_item("s-0", state="complete", text="Hello, world", code="C", detail="d")
        )
        whole = item(text="Hello, world", state="complete", code="C", detail="d")
        assert await store.read(lambda tx: tx.item("s-0")) == whole
        assert await store.read(lambda tx: tx.item_text("s-0", 0, 100)) == "Hello, world"

    async def test_an_item_that_ends_without_a_text_keeps_what_was_appended(self, store: AgentStore) -> None:
        await store.transact(steps(lambda tx: tx.add_item(item()), lambda tx: tx.append_text("s-0", 0, "half")))
        await store.transact(lambda tx: tx.finish_item("s-0", state="unknown", text=None))
        assert await store.read(lambda tx: tx.item("s-0")) == item(text="half", state="unknown")

    async def test_text_is_appended_only_where_the_item_ends_and_while_it_is_open(self, store: AgentStore) -> None:
        await store.transact(lambda tx: tx.add_item(item(text="abc")))
        for at_chars in (0, 2, 4):
            with pytest.raises(ValueError, match="3 characters"):
                await store.transact(lambda tx, at=at_chars: tx.append_text("s-0", at, "x"))  # type: ignore[misc]
        await store.transact(lambda tx: tx.finish_item("s-0", state="complete", text=None))
        with pytest.raises(ValueError, match="closed"):
            await store.transact(lambda tx: tx.append_text("s-0", 3, "x"))
        for change in (
            lambda tx: tx.append_text("none", 0, "x"),
            lambda tx: tx.finish_item("none", state="complete", text=None),
            lambda tx: tx.item_text("none", 0, 1),
        ):
            with pytest.raises(LookupError):
                await store.transact(change)

    @pytest.mark.parametrize("by_appending", [False, True], ids=["at once", "in appended pieces"])
    async def test_any_range_of_a_long_text_is_read(self, store: AgentStore, by_appending: bool) -> None:
        text = "".join(chr(0x61 + number % 26) + ("ü\0🐎" if number % 97 == 0 else "") for number in range(200_000))

        def write(tx: AgentTx) -> None:
            if by_appending:
                tx.add_item(item(text=text[:10]))
                for at in range(10, len(text), 7_001):
                    tx.append_text("s-0", at, text[at : at + 7_001])
            else:
                tx.add_item(item(text=text))

        await store.transact(write)
        for at, count in (
            (0, 1),
            (0, 10_000),
            (4_090, 12),
            (65_530, 150_000),
            (len(text) - 3, 100),
            (len(text), 5),
            (7, 0),
        ):
            read = await store.read(lambda tx, at=at, count=count: tx.item_text("s-0", at, count))  # type: ignore[misc]
            assert read == text[at : at + count]
        (head,) = await store.read(lambda tx: tx.items("s", 0, 1, 9_000))
        assert (head.text, head.size_chars) == (text[:9_000], len(text))
        whole = await store.read(lambda tx: tx.item("s-0"))
        assert whole is not None
        assert whole.text == text

    async def test_text_that_utf8_cannot_hold_is_kept_as_well_as_it_can_be(self, store: AgentStore) -> None:
        await store.transact(lambda tx: tx.add_item(item(text="a\ud800b")))
        await store.transact(lambda tx: tx.append_text("s-0", 3, "c\udfffd"))
        assert await store.read(lambda tx: tx.item_text("s-0", 0, 9)) == "a\ufffdbc\ufffdd"
        await store.transact(lambda tx: tx.put_run(run(input={"text": "\ud800"})))
        assert await store.read(lambda tx: tx.run("r")) == run(input={"text": "\ufffd"})

    async def test_a_window_is_a_range_of_heads(self, store: AgentStore) -> None:
        def fill(tx: AgentTx) -> None:
            for number in range(10):
                tx.add_item(item(number, text=f"text {number}", detail="d"))

        await store.transact(fill)
        window = await store.read(lambda tx: tx.items("s", 7, 5, 4))
        assert window == [ItemHead(f"s-{n}", "s", "r", n, "reply", "open", "text", 6, 3, "", "d") for n in range(7, 10)]
        assert await store.read(lambda tx: tx.items("s", 10, 5, 4)) == []
        assert await store.read(lambda tx: tx.items("s", 0, 0, 4)) == []
        assert [head.text for head in await store.read(lambda tx: tx.items("s", 0, 2, 0))] == ["", ""]
        assert await store.read(lambda tx: tx.items("none", 0, 5, 4)) == []

    async def test_what_was_done_keeps_what_is_known_of_it(self, store: AgentStore) -> None:
        first, then, last = {"command": "ls ü"}, {"command": "ls ü", "exit_code": None}, {"exit_code": 0, "list": [1]}
        done = item(1, kind="command", about=first)
        await store.transact(steps(lambda tx: tx.add_item(item(0)), lambda tx: tx.add_item(done)))
        assert await store.read(lambda tx: (tx.item("s-0"), tx.item("s-1"))) == (item(0), done)
        await store.transact(lambda tx: tx.put_about("s-1", then))
        await store.transact(lambda tx: tx.append_text("s-1", 0, "out"))
        assert await store.read(lambda tx: tx.item("s-1")) == item(1, "out", kind="command", about=then)
        await store.transact(lambda tx: tx.finish_item("s-1", state="failed", text=None))
        ended = item(1, "out", kind="command", state="failed", about=then)
        assert await store.read(lambda tx: tx.item("s-1")) == ended
        with pytest.raises(ValueError, match="closed"):
            await store.transact(lambda tx: tx.put_about("s-1", last))
        with pytest.raises(LookupError):
            await store.transact(lambda tx: tx.put_about("none", last))
        await store.transact(lambda tx: tx.finish_item("s-1", state="complete", text="o", about=last))
        heads = await store.read(lambda tx: tx.items("s", 0, 2, 0))
        assert [(head.state, head.size_chars, head.about) for head in heads] == [("open", 0, {}), ("complete", 1, last)]

    async def test_what_is_known_of_a_thing_done_is_not_shared_and_can_be_undone(self, store: AgentStore) -> None:
        about = {"steps": [{"text": "\ud800"}]}
        await store.transact(lambda tx: tx.add_item(item(kind="plan", about=about)))
        about["steps"].append({})
        kept = item(kind="plan", about={"steps": [{"text": "\ufffd"}]})
        read = await store.read(lambda tx: tx.item("s-0"))
        assert read == kept
        read.about["steps"].append({})
        [head] = await store.read(lambda tx: tx.items("s", 0, 1, 0))
        head.about["steps"].append({})

        def fails(tx: AgentTx) -> None:
            tx.put_about("s-0", {"completed": True})
            tx.finish_item("s-0", state="complete", text=None, about={})
            raise Undo

        with pytest.raises(Undo):
            await store.transact(fails)
        assert await store.read(lambda tx: tx.item("s-0")) == kept

    async def test_messages_are_what_was_said(self, store: AgentStore) -> None:
        rows = [
            ("user", "complete"),
            ("reasoning", "complete"),
            ("reply", "complete"),
            ("notice", "complete"),
            ("user", "complete"),
            ("plan", "complete"),
            ("command", "complete"),
            ("tool", "stopped"),
            ("change", "complete"),
            ("reply", "stopped"),
            ("reply", "failed"),
            ("reply", "unknown"),
            ("user", "complete"),
            ("reply", "open"),
        ]
        await store.transact(
            steps(*(partial(_add, item(n, kind=kind, state=state)) for n, (kind, state) in enumerate(rows)))
        )
        # The end is applied before the choice of kinds and states: it counts items, not messages.
        for before in range(len(rows) + 1):
            upto = await store.read(lambda tx, before=before: tx.messages("s", before))  # type: ignore[misc]
            kinds = [rows[position] for position in range(before)]
            assert len(upto) == sum(k in ("user", "reply") and s in ("complete", "stopped") for k, s in kinds)
        said = await store.read(lambda tx: tx.messages("s", 12))
        assert [(message.position, message.kind) for message in said] == [
            (0, "user"),
            (2, "reply"),
            (4, "user"),
            (9, "reply"),
        ]

    # ---- calls of host tools ----

    async def test_calls_keep_their_order_and_are_found_while_unresolved(self, store: AgentStore) -> None:
        def ask(tx: AgentTx) -> None:
            tx.put_run(run())
            for call_id in ("b", "a", "c"):
                tx.put_tool_call(tool_call(call_id))

        await store.transact(ask)
        assert [call.call_id for call in await store.read(lambda tx: tx.tool_calls("r"))] == ["b", "a", "c"]
        assert await store.read(lambda tx: tx.unresolved_tool_calls("s")) == []
        executing = tool_call("a", phase="executing")
        known = tool_call("b", phase="acknowledged", outcome="failed", payload={"n": [1]}, evidence=("e",))
        await store.transact(steps(lambda tx: tx.put_tool_call(executing), lambda tx: tx.put_tool_call(known)))
        assert await store.read(lambda tx: tx.unresolved_tool_calls("s")) == [executing]
        assert await store.read(lambda tx: tx.tool_calls("r")) == [known, executing, tool_call("c")]
        assert await store.read(lambda tx: (tx.tool_call("r", "b"), tx.tool_call("r", "none"))) == (known, None)
        await store.transact(lambda tx: tx.delete_session("s"))
        assert await store.read(lambda tx: (tx.tool_calls("r"), tx.unresolved_tool_calls("s"))) == ([], [])

    async def test_an_id_that_utf8_cannot_hold_is_refused_and_undoes_its_transaction(self, store: AgentStore) -> None:
        half = "\ud800"
        await store.transact(lambda tx: tx.put_run(run()))
        before = await store.read(_everything)
        request = RequestRecord(session_id="s", request_id=half, digest="d", run_id="r")
        writes: tuple[Callable[[AgentTx], None], ...] = (
            lambda tx: tx.put_session(session(half)),
            lambda tx: tx.put_request(request),
            lambda tx: tx.put_run(run(half)),
            lambda tx: tx.add_item(msgspec.structs.replace(item(), item_id=half)),
            lambda tx: tx.put_tool_call(tool_call(half)),
            lambda tx: tx.put_fact(half, 1),
        )
        for write in writes:
            with pytest.raises(UnicodeEncodeError):
                await store.transact(steps(lambda tx: tx.put_fact("k", 1), write))
        assert await store.read(_everything) == before

    # ---- facts ----

    async def test_facts_are_json(self, store: AgentStore) -> None:
        for value in (None, 0, False, "", "ü", [1, {"a": None}], {"n": 1.5}):
            await store.transact(lambda tx, value=value: tx.put_fact("k", value))  # type: ignore[misc]
            assert await store.read(lambda tx: tx.fact("k")) == value
        assert await store.read(lambda tx: tx.fact("none")) is None

    # ---- any history ----

    def test_any_history_reads_like_the_plain_one(self, place: StorePlace) -> None:
        _run_histories(lambda: History(place))


class DurableAgentStoreContract(AgentStoreContract):
    """For stores that keep what was acknowledged. The fixture `place` gives a `DurablePlace`."""

    async def test_what_was_acknowledged_is_there_after_close_and_crash(self, place: DurablePlace) -> None:
        store = await place.open()
        generation = store.generation
        await store.transact(_fill)
        before = await store.read(_everything)
        await store.close()
        store = await place.open()
        assert store.generation > generation
        assert await store.read(_everything) == before
        await store.transact(lambda tx: tx.put_fact("late", 1))
        before = await store.read(_everything)
        place.crash()
        again = await place.open()
        try:
            assert await again.read(_everything) == before
        finally:
            await again.close()
            await store.close()

    def test_any_history_with_crashes_reads_like_the_plain_one(self, place: DurablePlace) -> None:
        _run_histories(lambda: DurableHistory(place))


def _run_histories(machine: Callable[[], RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]
        settings=settings(
            settings.default,
            max_examples=max(settings.default.max_examples // 4, 10) if settings.default else 15,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def _append(number: int, tx: AgentTx) -> int:
    """The length of a list with one more in it."""
    known = [*(tx.fact("list") or []), number]
    tx.put_fact("list", known)
    return len(known)


def _tables(tx: AgentTx) -> tuple[int, ...]:
    """How much of the session each table holds."""
    rows: tuple[Any, ...] = tx.runs("s"), tx.tool_calls("r")
    return (*map(len, rows), tx.count_requests("s"), tx.count_items("s"), tx.fact("k") or 0)


def _unique(unique: tuple[str, ...]) -> dict[str, str]:
    """Values of unique fields that nobody else has."""
    return {name.rpartition("+")[2]: "of its own" for name in unique}


def _put(record: Row, tx: AgentTx) -> None:
    tx.put_row(record)


def _fact(value: int, tx: AgentTx) -> None:
    tx.put_fact("k", value)


def _all_rows(tx: AgentTx) -> list[Row]:
    return [record for kind in TABLES for record in tx.rows(kind)]


def _add(record: ItemRecord, tx: AgentTx) -> None:
    tx.add_item(record)


def _fill(tx: AgentTx) -> None:
    for session_id in ("s", "t"):
        tx.put_session(session(session_id))
        tx.put_request(RequestRecord(session_id=session_id, request_id="q", digest="d", run_id="r"))
        tx.add_item(item(session_id=session_id, text="x" * 100_000))
        tx.append_text(f"{session_id}-0", 100_000, "more")
    tx.put_run(run("r1", "s"))
    tx.put_run(run("r2", "t", phase="dispatched"))
    tx.put_fact("k", {"v": 1})
    for kind in TABLES:
        tx.put_row(row(kind, 1))


def _everything(tx: AgentTx) -> Any:
    """All that a store can tell, through its operations alone."""
    told: list[Any] = [_all_rows(tx), tx.open_runs(), [tx.fact(key) for key in ("k", "late", *_FACTS)]]
    for record in tx.sessions():
        name = record.session_id
        heads = tx.items(name, 0, 1_000, 5)
        requests = [tx.request(name, request_id) for request_id in ("q", *_REQUESTS)]
        told.append([record, tx.count_requests(name), requests, tx.runs(name), tx.count_items(name), heads])
        told.append([tx.item(head.item_id) for head in heads])
        told.append(tx.messages(name, 1_000))
    return told


_SESSIONS = ["s0", "s1", "s2"]
_REQUESTS = ["q0", "q1"]
_FACTS = ["f0", "f1"]

_texts = st.text(max_size=40) | st.integers(4_000, 4_200).map(lambda size: "lang…" * (size // 5))
_sessions = st.sampled_from(_SESSIONS)
_abouts = st.dictionaries(st.sampled_from(["a", "b"]), st.none() | st.integers() | st.lists(st.text(max_size=5)))


class History(RuleBasedStateMachine):
    """Any sequence of operations and undone transactions, told by the store under test and by a plain one.

    Args:
        place: where the store under test is kept; each history uses it from a deletion of all it holds.
    """

    def __init__(self, place: StorePlace) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._store = self._await(place.open())
        self._plain = MemoryAgentStore()
        self._numbers = iter(range(1_000_000))

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def _both(self, fn: Callable[[AgentTx], Any]) -> None:
        told = [self._await(_outcome(store, fn)) for store in (self._store, self._plain)]
        assert told[0] == told[1]

    @initialize()
    def begin(self) -> None:
        def work(tx: AgentTx) -> None:
            for known in tx.sessions():
                tx.delete_session(known.session_id)
            for key in _FACTS:
                tx.put_fact(key, None)
            for record in _all_rows(tx):
                tx.delete_row(type(record), *(getattr(record, field) for field in TABLES[type(record)].key))
            tx.put_session(session("s0"))

        self._both(work)

    @rule(name=_sessions, status=st.sampled_from(["open", "detached", "failed"]), state=st.none() | st.just({"a": [1]}))
    def put_session(self, name: str, status: str, state: Any) -> None:
        self._both(lambda tx: tx.put_session(session(name, status=status, driver_state=state)))

    @rule(name=_sessions)
    def delete_session(self, name: str) -> None:
        self._both(lambda tx: tx.delete_session(name))

    @rule(name=_sessions, request_id=st.sampled_from(_REQUESTS), digest=st.sampled_from("de"))
    def admit(self, name: str, request_id: str, digest: str) -> None:
        number = next(self._numbers)

        def work(tx: AgentTx) -> None:
            tx.put_run(run(f"r{number}", name))
            tx.add_item(item(tx.count_items(name), "hi", name, item_id=f"i{number}", kind="user", state="complete"))
            tx.put_request(RequestRecord(session_id=name, request_id=request_id, digest=digest, run_id=f"r{number}"))

        self._both(work)

    @rule(name=_sessions, phase=st.sampled_from(["admitted", "dispatched", "completed", "unknown"]))
    def change_last_run(self, name: str, phase: Any) -> None:
        def work(tx: AgentTx) -> None:
            for last in tx.runs(name)[-1:]:
                tx.put_run(msgspec.structs.replace(last, phase=phase, result={"phase": phase}))

        self._both(work)

    @rule(name=_sessions, text=_texts, off=st.sampled_from([0, 0, 0, 1]), about=_abouts)
    def add_item(self, name: str, text: str, off: int, about: Any) -> None:
        number = next(self._numbers)
        changes = {"item_id": f"i{number}", "kind": "tool" if about else "reply", "about": about}
        self._both(lambda tx: tx.add_item(item(tx.count_items(name) + off, text, name, **changes)))

    @rule(name=_sessions, about=_abouts)
    def put_about_last_item(self, name: str, about: Any) -> None:
        def work(tx: AgentTx) -> None:
            for head in tx.items(name, tx.count_items(name) - 1, 1, 0):
                tx.put_about(head.item_id, about)

        self._both(work)

    @rule(name=_sessions, text=_texts)
    def append_to_last_item(self, name: str, text: str) -> None:
        def work(tx: AgentTx) -> None:
            for head in tx.items(name, tx.count_items(name) - 1, 1, 0):
                tx.append_text(head.item_id, head.size_chars, text)

        self._both(work)

    @rule(
        name=_sessions,
        text=st.none() | _texts,
        state=st.sampled_from(["complete", "stopped", "failed"]),
        about=st.none() | _abouts,
    )
    def finish_last_item(self, name: str, text: str | None, state: Any, about: Any) -> None:
        def work(tx: AgentTx) -> None:
            for head in tx.items(name, tx.count_items(name) - 1, 1, 0):
                tx.finish_item(head.item_id, state=state, text=text, detail="d", about=about)

        self._both(work)

    @rule(name=_sessions, first=st.integers(-2, 5), count=st.integers(-1, 5), chars=st.integers(0, 9_000))
    def window(self, name: str, first: int, count: int, chars: int) -> None:
        self._both(lambda tx: tx.items(name, first, count, chars))
        self._both(lambda tx: [tx.item_text(head.item_id, first, chars) for head in tx.items(name, 0, 3, 0)])

    @rule(key=st.sampled_from(_FACTS), value=st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists))
    def put_fact(self, key: str, value: Any) -> None:
        self._both(lambda tx: tx.put_fact(key, value))

    @rule(name=_sessions, kind=st.sampled_from(list(TABLES)), number=st.integers(0, 2), other=st.integers(0, 2))
    def put_row(self, name: str, kind: type[Row], number: int, other: int) -> None:
        # Named like one, with the fields of another: what only one may have meets what somebody else has.
        named = {field: getattr(row(kind, number), field) for field in TABLES[kind].key if field != "session_id"}
        self._both(lambda tx: tx.put_row(row(kind, other, name, **named)))

    @rule(kind=st.sampled_from(list(TABLES)), number=st.integers(0, 2))
    def delete_row(self, kind: type[Row], number: int) -> None:
        key = [getattr(row(kind, number), field) for field in TABLES[kind].key]
        self._both(lambda tx: tx.delete_row(kind, *key))

    @rule(name=_sessions, delete=st.booleans())
    def undone(self, name: str, delete: bool) -> None:
        def work(tx: AgentTx) -> None:
            if delete:
                tx.delete_session(name)
            tx.put_session(session(name, scope_digest="undone"))
            tx.add_item(item(tx.count_items(name), "undone", name, item_id="undone"))
            tx.put_fact(_FACTS[0], "undone")
            raise Undo

        self._both(work)

    @invariant()
    def reads_alike(self) -> None:
        self._both(_everything)

    def teardown(self) -> None:
        self._await(self._store.close())
        self._runner.close()


class DurableHistory(History):
    """The same with closings and crashes in between."""

    def __init__(self, place: DurablePlace) -> None:
        super().__init__(place)
        self._durable_place = place

    @rule(crash=st.booleans())
    def open_again(self, crash: bool) -> None:
        if crash:
            self._durable_place.crash()
        self._await(self._store.close())
        self._store = self._await(self._durable_place.open())


async def _outcome(store: AgentStore, fn: Callable[[AgentTx], Any]) -> Any:
    try:
        return await store.transact(fn)
    except Exception as error:
        return type(error)
