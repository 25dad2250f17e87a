"""What a damaged file says of mounts, credentials, operations and approvals comes back, and nothing of it goes on."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec

from runtime_host.storage.base import AgentStore, AgentTx, RunRecord, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import (
    TABLES,
    ApprovalRow,
    BackgroundJobRow,
    InboxRow,
    ModelJobRow,
    MountRow,
    OperationRow,
    PluginChoiceRow,
    ReminderRow,
    Row,
    ScriptRunRow,
    SecretRow,
    UsageDayRow,
    UsageHourRow,
    UsageRow,
)
from runtime_host.storage.salvage import salvage
from runtime_host.storage.salvage_rows import FILE_UUID, SALVAGE_NOTE
from runtime_host.storage.sqlite import open_agent_store
from tests.histories.stores import (
    KEPT,
    RECORDS,
    RUNS,
    SEALED,
    SESSION,
    fill_loop,
    told_of_loop,
    told_of_rest,
)

PAGE_BYTES = 4096
SUMS = (UsageHourRow, UsageDayRow)


def fill(tx: AgentTx) -> None:
    tx.put_session(SESSION)
    for run in RUNS:
        tx.put_run(run)
    fill_loop(tx)
    for record in KEPT:
        # The sums are the ledger's; what of them was written beside it would be invented.
        if not isinstance(record, SUMS):
            tx.put_row(record)


def content_of(path: Path) -> bytes:
    return path.read_bytes()


async def written(path: Path, *more: Callable[[AgentTx], object]) -> bytes:
    store = await open_agent_store(path, profile="p", agent="a")
    for each in (fill, *more):
        await store.transact(each)
    await store.close()
    return content_of(path)


async def salvaged(damaged: Path) -> AgentStore:
    store = MemoryAgentStore()
    await salvage(damaged, store, now_ms=9)
    return store


def damage(path: Path, *tables: str) -> None:
    """Overwrite the pages on which these tables begin."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        roots = [
            db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()[0] for name in tables
        ]
    content = bytearray(path.read_bytes())
    for root in roots:
        content[(root - 1) * PAGE_BYTES : root * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(content)


def ended(record: Row) -> Row:
    """What is to become of a record that was written."""
    if isinstance(record, OperationRow) and record.status == "pending":
        return msgspec.structs.replace(record, status="unknown", updated_ms=9)
    if isinstance(record, ApprovalRow):
        return msgspec.structs.replace(record, state="expired", note=SALVAGE_NOTE, decided_ms=9)
    if isinstance(record, ModelJobRow):
        return msgspec.structs.replace(record, state="cancelled", answered_ms=9)
    if isinstance(record, ScriptRunRow):
        return msgspec.structs.replace(record, state="interrupted", snapshot=None, waiting=None)
    if isinstance(record, BackgroundJobRow):
        return msgspec.structs.replace(record, state="unknown", next_poll_ms=None, finished_ms=9)
    if isinstance(record, ReminderRow):
        return msgspec.structs.replace(record, state="unknown")
    return record


def rest() -> list[Row]:
    """What is to become of what version 6 brought. The one hour is what the ledger of `fill_loop` comes to."""
    return [ended(record) for record in KEPT if not isinstance(record, UsageDayRow)]


async def test_all_of_it_comes_back_from_a_file_that_is_whole_and_what_was_open_is_over(tmp_path: Path) -> None:
    await written(tmp_path / "old")
    store = await salvaged(tmp_path / "old")
    assert await store.read(told_of_loop) == ([ended(record) for record in RECORDS], [SEALED])
    assert await store.read(told_of_rest) == rest()
    assert await store.read(lambda tx: tx.rows(InboxRow, state="waiting")), "what the person wrote is lost"


async def test_a_run_that_waited_for_a_decision_is_not_gone_on_with(tmp_path: Path) -> None:
    parked = msgspec.structs.replace(RUNS[1], run_id="r3", phase="parked")
    await written(tmp_path / "old", lambda tx: tx.put_run(parked))
    store = await salvaged(tmp_path / "old")
    run = await store.read(lambda tx: tx.run("r3"))
    assert isinstance(run, RunRecord)
    assert run.phase == "unknown"


async def test_whichever_page_is_gone_no_record_is_invented_and_none_is_open(
    tmp_path: Path, rounds: Callable[[int, int], int]
) -> None:
    content = await written(tmp_path / "old")
    allowed = [ended(record) for record in RECORDS]
    off = {mount.plugin for mount in RECORDS if isinstance(mount, MountRow)}
    back = pages = 0
    for page in range(1, len(content) // PAGE_BYTES, 7 - rounds(0, 6)):
        damaged = tmp_path / f"damaged-{page}"
        damaged.write_bytes(content[: page * PAGE_BYTES] + b"\xa5" * PAGE_BYTES + content[(page + 1) * PAGE_BYTES :])
        store = await salvaged(damaged)
        records, opened = await store.read(told_of_loop)
        for record in records:
            added = isinstance(record, PluginChoiceRow) and record.state == "off" and record.plugin in off
            assert record in allowed or added
        assert opened in ([], [SEALED])
        later = await store.read(told_of_rest)
        assert all(record in rest() for record in later)
        # Whatever of the ledger came back is what the sums come to.
        summed = [record for record in later if isinstance(record, UsageHourRow)]
        assert bool(summed) == any(isinstance(record, UsageRow) for record in records)
        back += len(records) + len(opened) + len(later)
        pages += 1
    assert back > (len(RECORDS) + 1 + len(rest())) * pages * 3 // 4, "hardly anything came back"


async def test_where_it_cannot_be_read_what_was_switched_off_nothing_is_on(tmp_path: Path) -> None:
    await written(tmp_path / "old")
    damage(tmp_path / "old", "plugin_choices")
    store = await salvaged(tmp_path / "old")
    choices = await store.read(lambda tx: tx.rows(PluginChoiceRow))
    assert {(row.plugin, row.state) for row in choices} == {("mcp", "off"), ("workspace", "off")}


async def test_a_seal_is_given_back_only_with_what_it_is_bound_to(tmp_path: Path) -> None:
    await written(tmp_path / "old", lambda tx: tx.put_fact(FILE_UUID, None))
    assert await (await salvaged(tmp_path / "old")).read(lambda tx: len(tx.rows(SecretRow))) == 1
    store = MemoryAgentStore()
    await store.transact(lambda tx: tx.put_fact(FILE_UUID, "another"))
    await salvage(tmp_path / "old", store, now_ms=9)
    assert await store.read(lambda tx: (tx.fact(FILE_UUID), tx.rows(SecretRow))) == ("another", [])


async def test_what_the_new_file_has_already_is_left_as_it_is(tmp_path: Path) -> None:
    await written(tmp_path / "old")
    old = next(record for record in RECORDS if isinstance(record, MountRow))
    mine = msgspec.structs.replace(old, policy={"write": "deny"}, secret_ref=None)
    elsewhere = msgspec.structs.replace(mine, alias="renamed")
    for there in (mine, elsewhere):
        store = MemoryAgentStore()
        await store.transact(lambda tx, there=there: tx.put_row(there))  # type: ignore[misc]
        await salvage(tmp_path / "old", store, now_ms=9)
        mounts = await store.read(lambda tx: tx.rows(MountRow))
        assert [mount for mount in mounts if mount.installation_id == old.installation_id] == [there]


async def test_a_record_that_is_none_any_more_is_left_out_and_counted(tmp_path: Path) -> None:
    await written(tmp_path / "old")
    with contextlib.closing(sqlite3.connect(tmp_path / "old", isolation_level=None)) as db:
        db.execute("UPDATE operations SET status = 'whatever' WHERE operation_id = 'op_1'")
        db.execute("UPDATE mounts SET policy = '{\"write\": ' WHERE alias = 'github'")
    store = MemoryAgentStore()
    told = await salvage(tmp_path / "old", store, now_ms=9)
    kept = await store.read(lambda tx: ([row.operation_id for row in tx.rows(OperationRow)], tx.rows(MountRow)))
    assert (kept[0], [row.alias for row in kept[1]]) == (["op_2"], ["files"])
    assert told.unreadable == 2


async def test_records_of_a_session_that_is_lost_are_nobodys(tmp_path: Path) -> None:
    await written(tmp_path / "old")
    damage(tmp_path / "old", "sessions")
    store = await salvaged(tmp_path / "old")
    of_session = [kind for kind, table in TABLES.items() if table.of_session]
    assert await store.read(lambda tx: [tx.rows(kind) for kind in of_session]) == [[]] * len(of_session)
    assert await store.read(lambda tx: len(tx.rows(MountRow))) == 2
    await store.transact(
        lambda tx: tx.put_session(
            SessionRecord(session_id="new", scope_digest="x", created_ms=1, definition={}, options={})
        )
    )
