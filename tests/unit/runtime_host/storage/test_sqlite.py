"""What the contract cannot see: costs, bytes on disk."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime_host.storage.base import AgentStore, AgentTx, ItemRecord, SessionRecord
from runtime_host.storage.sqlite import SqliteAgentTx, open_agent_store

CANARY = "canary-" + "0123456789abcdef" * 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sqlite3"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[AgentStore]:
    store = await open_agent_store(path, profile="p", agent="a")
    for name in ("s", "t"):
        await store.transact(lambda tx, name=name: put_session(tx, name))  # type: ignore[misc]
    yield store
    await store.close()


def put_session(tx: AgentTx, session_id: str) -> None:
    tx.put_session(SessionRecord(session_id=session_id, scope_digest="", created_ms=1, definition={}, options={}))


def add(tx: AgentTx, position: int, text: str = "hello", session_id: str = "s") -> None:
    tx.add_item(
        ItemRecord(
            item_id=f"{session_id}{position}",
            session_id=session_id,
            run_id="r",
            position=position,
            kind="reply",
            state="open",
            text=text,
            created_ms=1,
        )
    )


def steps_of_newest(tx: AgentTx) -> int:
    """Steps of SQLite's machine to read the newest 200 items."""
    assert isinstance(tx, SqliteAgentTx)
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    tx.db.set_progress_handler(count, 1)
    try:
        window = tx.items("s", tx.count_items("s") - 200, 200, 1_000)
    finally:
        tx.db.set_progress_handler(None, 0)
    assert len(window) == 200
    return steps[0]


async def test_the_newest_items_cost_the_same_however_long_the_session(store: AgentStore) -> None:
    def fill(tx: AgentTx) -> None:
        for position in range(tx.count_items("s"), 300):
            add(tx, position)

    def fill_more(tx: AgentTx) -> None:
        for position in range(tx.count_items("s"), 20_000):
            add(tx, position)

    await store.transact(fill)
    short = await store.read(steps_of_newest)
    await store.transact(fill_more)
    assert await store.read(steps_of_newest) == short


async def test_a_checkpoint_writes_what_is_new_and_not_the_text_again(store: AgentStore, path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    await store.transact(lambda tx: add(tx, 0, ""))
    await store.transact(lambda tx: tx.append_text("s0", 0, "x" * 600_000))
    before = log.stat().st_size
    for number in range(20):
        await store.transact(lambda tx, at=600_000 + number * 2_000: tx.append_text("s0", at, "y" * 2_000))  # type: ignore[misc]
    assert log.stat().st_size - before < 600_000


async def test_a_deleted_session_is_in_no_file(store: AgentStore, path: Path) -> None:
    def fill(tx: AgentTx) -> None:
        add(tx, 0, f"short {CANARY}")
        add(tx, 1, "x" * 100_000 + CANARY)
        tx.append_text("s1", 100_000 + len(CANARY), CANARY)
        add(tx, 0, "kept", "t")

    await store.transact(fill)
    await store.transact(lambda tx: tx.delete_session("s"))
    assert not [file for file in path.parent.iterdir() if CANARY.encode() in file.read_bytes()]
    assert await store.read(lambda tx: tx.item_text("t0", 0, 9)) == "kept"
