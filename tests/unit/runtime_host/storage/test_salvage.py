"""What a damaged file still holds comes back whole and true, whichever of its pages is gone."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime_host.errors import AgentScopeMismatchError, AgentSessionRecoveryError, StorageDamagedError
from runtime_host.recovery import continuable, take_stock
from runtime_host.storage.base import (
    AgentStore,
    AgentTx,
    ItemRecord,
    RequestRecord,
    RunRecord,
    SessionRecord,
    ToolCallPhase,
    ToolCallRecord,
    session_fact,
)
from runtime_host.storage.salvage import SALVAGED_CODE, Salvaged, salvage, set_aside, take_over
from runtime_host.storage.sqlite import open_agent_store
from tests.histories.stores import HERE, TEXTS
from tests.unit.runtime_host.stage import ME, Stage

PAGE_BYTES = 4096
SESSIONS, RUNS = 4, 12


def text_of(session: int, position: int) -> str:
    return f"session {session} item {position} " * (1 + (position * 37) % 400)


def about_of(position: int) -> dict[str, Any]:
    return {"command": f"command {position}", "exit_code": position % 3}


def fill(tx: AgentTx) -> None:
    for session in range(SESSIONS):
        name = f"s{session}"
        tx.put_session(SessionRecord(session_id=name, scope_digest="x", created_ms=1, definition={}, options={}))
        for number in range(RUNS):
            run_id, last = f"{name}r{number}", number == RUNS - 1
            phase: Any = ("admitted" if session % 2 else "dispatched") if last else "completed"
            tx.put_run(RunRecord(run_id=run_id, session_id=name, phase=phase, created_ms=number, input={"n": number}))
            tx.put_request(RequestRecord(session_id=name, request_id=f"q{number}", digest="d", run_id=run_id))
            for kind in ("user", "reply", "command"):
                position = tx.count_items(name)
                tx.add_item(
                    ItemRecord(
                        item_id=f"{name}-{position}",
                        session_id=name,
                        run_id=run_id,
                        position=position,
                        kind=kind,
                        state="open" if last and kind != "user" else "complete",
                        text=text_of(session, position),
                        created_ms=position,
                        about=about_of(position) if kind == "command" else {},
                    )
                )


def content_of(path: Path) -> bytes:
    return path.read_bytes()


async def written(path: Path) -> bytes:
    store = await open_agent_store(path, profile="p", agent="a")
    await store.transact(fill)
    await store.close()
    return content_of(path)


async def salvaged(damaged: Path, to: Path) -> tuple[Salvaged, AgentStore]:
    store = await open_agent_store(to, profile="p", agent="a")
    return await salvage(damaged, store, now_ms=9), store


async def check(store: AgentStore) -> int:
    """Nothing in it is invented, nothing open, nothing to be sent; how many items there are."""

    def look(tx: AgentTx) -> int:
        assert not any(take_stock(tx, live=(), session_id=None, now_ms=9))
        count = 0
        for record in tx.sessions():
            session = int(record.session_id[1:])
            heads = tx.items(record.session_id, 0, 1_000, 0)
            assert [head.position for head in heads] == list(range(len(heads)))
            assert (heads[-1].code, heads[-1].kind) == (SALVAGED_CODE, "notice")
            before = -1
            for head in heads[:-1]:
                item = tx.item(head.item_id)
                assert item is not None
                position = int(item.item_id.rpartition("-")[2])
                assert position > before, "out of order"
                before = position
                assert item.text == text_of(session, position)
                assert item.about == (about_of(position) if item.kind == "command" else {})
                assert item.state in ("complete", "unknown")
                count += 1
            ids = {f"q{number}" for number in range(RUNS)}
            kept = {name for name in ids if tx.request(record.session_id, name) is not None}
            assert kept == ids or tx.fact(session_fact(record.session_id, "salvaged"))["requests"] == "lost"
            for run in tx.runs(record.session_id):
                assert run.phase in ("completed", "unknown")
                assert run.input == {"n": run.created_ms}
        return count

    return await store.transact(look)


async def test_of_a_file_that_is_whole_nothing_is_missing(tmp_path: Path) -> None:
    await written(tmp_path / "old")
    told, store = await salvaged(tmp_path / "old", tmp_path / "new")
    try:
        assert told == Salvaged(SESSIONS, SESSIONS * RUNS, SESSIONS * RUNS * 3, 0)
        assert await check(store) == told.items
        assert await store.read(lambda tx: [tx.count_requests(f"s{n}") for n in range(SESSIONS)]) == [RUNS] * SESSIONS
        assert await salvage(tmp_path / "old", store, now_ms=9) == Salvaged(0, 0, 0, 0), "salvaged twice"
    finally:
        await store.close()


async def test_whichever_page_is_gone_the_rest_comes_back(tmp_path: Path, rounds: Callable[[int, int], int]) -> None:
    content = await written(tmp_path / "old")
    pages = len(content) // PAGE_BYTES
    assert pages > 40
    counts = []
    step = 5 - rounds(0, 4)
    for page in range(0, pages, step):
        damaged = tmp_path / f"damaged-{page}"
        damaged.write_bytes(content[: page * PAGE_BYTES] + b"\xa5" * PAGE_BYTES + content[(page + 1) * PAGE_BYTES :])
        before = damaged.read_bytes()
        told, store = await salvaged(damaged, tmp_path / f"new-{page}")
        try:
            assert await check(store) == told.items
        finally:
            await store.close()
        assert damaged.read_bytes() == before
        assert told.items == SESSIONS * RUNS * 3 or told.unreadable
        counts.append(told.items)
    whole = SESSIONS * RUNS * 3
    # Most pages are leaves: one of them takes a few items at most.
    assert sorted(counts)[len(counts) // 4] >= whole * 3 // 4, counts


async def test_a_damaged_store_is_set_aside_and_salvaged_into_the_next(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite3"
    content = await written(path)
    # A leaf of a table (13): a page of a long text that goes on would be read as text that is none.
    middle = len(content) // PAGE_BYTES // 2 * PAGE_BYTES
    while content[middle] != 13 or content[middle + PAGE_BYTES] != 13:
        middle += PAGE_BYTES
    path.write_bytes(content[:middle] + b"\xa5" * (2 * PAGE_BYTES) + content[middle + 2 * PAGE_BYTES :])
    store = await open_agent_store(path, profile="p", agent="a")
    with pytest.raises(StorageDamagedError) as failure:
        await store.read(lambda tx: [tx.item(h.item_id) for n in range(SESSIONS) for h in tx.items(f"s{n}", 0, 99, 0)])
    await store.close()
    told, store = await salvaged(Path(failure.value.details["set_aside"]), path)
    try:
        assert told.unreadable
        assert SESSIONS * RUNS < await check(store) < SESSIONS * RUNS * 3
    finally:
        await store.close()


async def test_a_file_of_an_earlier_version_is_salvaged_too(tmp_path: Path) -> None:
    shutil.copy(HERE / "agent-v1.sqlite3", tmp_path / "old")
    told, store = await salvaged(tmp_path / "old", tmp_path / "new")
    try:
        assert told == Salvaged(1, 2, 4, 0)
        texts = await store.read(lambda tx: [tx.item_text(f"i{number}", 0, 10**6) for number in range(4)])
        assert texts == TEXTS
        run = await store.read(lambda tx: tx.run("r2"))
        assert run is not None
        assert run.phase == "unknown"
    finally:
        await store.close()


@pytest.mark.parametrize("content", [b"", b"no database " * 500, b"SQLite format 3\0" + b"\xff" * 9000])
async def test_of_what_is_no_database_nothing_is_read_and_that_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "old").write_bytes(content)
    told, store = await salvaged(tmp_path / "old", tmp_path / "new")
    try:
        assert told == Salvaged(0, 0, 0, 1)
    finally:
        await store.close()


async def test_whichever_page_is_gone_no_message_is_sent_a_second_time(
    tmp_path: Path, rounds: Callable[[int, int], int]
) -> None:
    old = tmp_path / "old"
    store = await open_agent_store(old, profile="p", agent="a")
    sent: dict[str, str] = {}
    async with Stage(store=store) as stage:
        session = await stage.open()
        for number in range(40):
            run = await session.run(f"message {number}", request_id=f"q{number}")
            await run.result()
            sent[f"q{number}"] = run.run_id
    await store.close()
    content = content_of(old)
    outcomes = {"known": 0, "refused": 0}
    for page in range(1, len(content) // PAGE_BYTES, 4 - rounds(0, 3)):
        damaged = tmp_path / f"damaged-{page}"
        damaged.write_bytes(content[: page * PAGE_BYTES] + b"\xa5" * PAGE_BYTES + content[(page + 1) * PAGE_BYTES :])
        told, store = await salvaged(damaged, tmp_path / f"new-{page}")
        async with Stage(store=store) as stage:
            if not told.sessions:
                with pytest.raises(AgentScopeMismatchError):
                    await stage.runtime.resume_session(session.reference(), context=ME)
                await store.close()
                continue
            again = await stage.runtime.resume_session(session.reference(), context=ME)
            assert again.inspect_state().salvaged_from == damaged.name
            for number in range(40):
                try:
                    run = await again.run(f"message {number}", request_id=f"q{number}")
                    assert run.run_id == sent[f"q{number}"], "another run for the same request"
                    outcomes["known"] += 1
                except AgentSessionRecoveryError:
                    outcomes["refused"] += 1
            assert stage.driver.sent == [], "sent a second time"
        await store.close()
    # Of a page of runs or of the ledger, the other one tells.
    assert outcomes["known"] > outcomes["refused"]


async def test_a_lost_ledger_is_written_anew_from_the_runs_and_without_them_refuses(tmp_path: Path) -> None:
    for lost, expected in (("requests",), "known"), (("requests", "runs"), "refused"):
        path = tmp_path / expected
        store = await open_agent_store(path, profile="p", agent="a")
        async with Stage(store=store) as stage:
            session = await stage.open()
            first = await session.run("Hi", request_id="q")
            await first.result()
        await store.close()
        with sqlite3.connect(path) as db:
            roots = [
                db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()[0] for name in lost
            ]
        db.close()
        content = bytearray(content_of(path))
        for root in roots:
            content[(root - 1) * PAGE_BYTES : root * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
        path.write_bytes(content)
        _, store = await salvaged(path, tmp_path / f"{expected}-new")
        async with Stage(store=store) as stage:
            again = await stage.runtime.resume_session(session.reference(), context=ME)
            if expected == "known":
                assert (await again.run("Hi", request_id="q")).run_id == first.run_id
            else:
                for request_id in ("q", "perhaps used before"):
                    with pytest.raises(AgentSessionRecoveryError, match="not sent now"):
                        await again.run("Hi", request_id=request_id)
            assert stage.driver.sent == []
            # What has no id is no repeat.
            assert (await (await again.run("Something new")).result()).status == "completed"
        await store.close()


async def test_a_call_of_a_tool_that_was_not_over_is_executed_for_nobody_any_more(tmp_path: Path) -> None:
    """A run that only waits for results goes on after a restart. Not from a damaged file: what is missing may tell."""
    open_phases: tuple[ToolCallPhase, ...] = ("requested", "executing", "acknowledged", "delivering")
    phases: tuple[ToolCallPhase, ...] = (*open_phases, "delivered", "withdrawn")

    def fill(tx: AgentTx) -> None:
        for phase in phases:
            tx.put_session(SessionRecord(session_id=phase, scope_digest="x", created_ms=1, definition={}, options={}))
            tx.put_run(RunRecord(run_id=phase, session_id=phase, phase="dispatched", created_ms=1, input={"n": 1}))
            tx.put_tool_call(
                ToolCallRecord(
                    session_id=phase, run_id=phase, call_id="a", tool="look", arguments="{}", phase=phase, created_ms=1
                )
            )

    store = await open_agent_store(tmp_path / "old", profile="p", agent="a")
    await store.transact(fill)
    await store.close()
    _, store = await salvaged(tmp_path / "old", tmp_path / "new")

    def look(tx: AgentTx) -> dict[str, str]:
        assert not any(take_stock(tx, live=(), session_id=None, now_ms=9))
        assert [phase for phase in phases if continuable(tx, phase)] == [], "a run of a damaged file goes on"
        assert [phase for phase in phases if tx.unresolved_tool_calls(phase)] == list(open_phases)
        return {call.run_id: call.phase for phase in phases for call in tx.tool_calls(phase)}

    kept = await store.transact(look)
    await store.close()
    assert kept == {**dict.fromkeys(open_phases, "interrupted"), "delivered": "delivered", "withdrawn": "withdrawn"}


async def test_a_picture_whose_bytes_are_not_what_they_were_does_not_come_back(tmp_path: Path) -> None:
    def fill(tx: AgentTx) -> list[str]:
        tx.put_session(SessionRecord(session_id="s", scope_digest="x", created_ms=1, definition={}, options={}))
        tx.put_run(RunRecord(run_id="r", session_id="s", phase="completed", created_ms=1, input={"n": 1}))
        return [
            tx.put_image("s", "r", place, media_type="image/png", data=data) for place, data in enumerate((b"1", b"2"))
        ]

    path = tmp_path / "old"
    store = await open_agent_store(path, profile="p", agent="a")
    _, whole = await store.transact(fill)
    await store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE images SET data = x'33' WHERE data = x'31'")
    db.close()
    told, store = await salvaged(path, tmp_path / "new")
    kept = await store.read(lambda tx: [(use.position, use.digest) for use in tx.images("s")])
    await store.close()
    assert kept == [(1, whole)]
    assert told.unreadable == 1


async def test_what_came_after_a_damage_is_not_forgotten_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite3"

    def set_it_aside(number: int) -> None:
        for ending in ("", "-wal"):
            file = path.with_name(path.name + ending)
            if file.exists():
                file.rename(path.with_name(f"{path.name}.damaged-2026010{number}T030405Z{ending}"))

    store = await open_agent_store(path, profile="p", agent="a")
    async with Stage(store=store) as stage:
        session, deleted = await stage.open(), await stage.open()
        first = await session.run("first", request_id="q1")
        await first.result()
    await store.close()
    set_it_aside(1)
    store = await open_agent_store(path, profile="p", agent="a")
    await take_over(path, store, now_ms=9)
    async with Stage(store=store) as stage:
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        second = await again.run("second", request_id="q2")
        await second.result()
        await stage.runtime.delete_session(deleted.reference(), context=ME)
    await store.close()
    set_it_aside(2)
    store = await open_agent_store(path, profile="p", agent="a")
    assert len(await take_over(path, store, now_ms=9)) == 1
    async with Stage(store=store) as stage:
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        assert (await again.run("first", request_id="q1")).run_id == first.run_id
        assert (await again.run("second", request_id="q2")).run_id == second.run_id
        assert stage.driver.sent == []
        with pytest.raises(AgentScopeMismatchError):
            await stage.runtime.resume_session(deleted.reference(), context=ME)
    await store.close()
    # Two that nobody took over in between: the newer one is the last word, an older one alone is none.
    for number in (1, 2):
        (tmp_path / f"agent.sqlite3.damaged-2026010{number}T030405Z.salvaged").unlink()
    path.rename(tmp_path / "elsewhere")
    store = await open_agent_store(path, profile="p", agent="a")
    assert len(await take_over(path, store, now_ms=9)) == 2
    async with Stage(store=store) as stage:
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        assert (await again.run("second", request_id="q2")).run_id == second.run_id
        old = await stage.runtime.resume_session(deleted.reference(), context=ME)
        with pytest.raises(AgentSessionRecoveryError, match="not sent now"):
            await old.run("Perhaps said since", request_id="q3")
        assert stage.driver.sent == []
    await store.close()


async def test_a_file_set_aside_by_a_process_that_ended_then_is_taken_over_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite3"
    await written(path)
    aside = path.with_name("agent.sqlite3.damaged-20260102T030405Z")
    path.rename(aside)
    store = await open_agent_store(path, profile="p", agent="a")
    try:
        assert set_aside(path) == (aside,)
        assert await take_over(path, store, now_ms=9) == (aside,)
        assert await check(store) == SESSIONS * RUNS * 3
        assert await take_over(path, store, now_ms=9) == (), "taken over twice"
        assert set_aside(path) == (aside,), "told until somebody removes it"
        aside.unlink()
        assert set_aside(path) == ()
    finally:
        await store.close()
