from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from desktop.profile_store import (
    AgentHint,
    ConversationRecord,
    ConversationSession,
    ProfileStore,
    ProfileTx,
    open_profile_store,
)
from runtime_host.errors import StorageForeignError
from runtime_host.storage.sqlite import open_agent_store

CANARY = "canary-" + "0123456789abcdef" * 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profile.sqlite3"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[ProfileStore]:
    store = await open_profile_store(path, profile="p")
    yield store
    await store.close()


def conversation(conversation_id: str, **changes: Any) -> ConversationRecord:
    record = ConversationRecord(
        conversation_id=conversation_id,
        title=f"Title of {conversation_id}",
        pinned=False,
        archived=False,
        created_ms=1,
        updated_ms=1,
        agent_id="assistant",
    )
    return msgspec.structs.replace(record, **changes)


async def put(store: ProfileStore, *records: ConversationRecord) -> None:
    def work(tx: ProfileTx) -> None:
        for record in records:
            tx.put_conversation(record)

    await store.transact(work)


async def listed(store: ProfileStore, filter: str = "", first: int = 0, count: int = 99, **kw: Any) -> list[str]:
    window = await store.read(lambda tx: tx.conversations(filter, first, count, **kw))
    return [record.conversation_id for record in window.rows]


async def test_a_conversation_is_kept_whole_and_replaced(store: ProfileStore) -> None:
    first = conversation("c", choice={"model": "m"}, pinned=True, state="completed")
    await put(store, first)
    assert await store.read(lambda tx: (tx.conversation("c"), tx.conversation("none"))) == (first, None)
    changed = conversation("c", title="Renamed", archived=True)
    await put(store, changed)
    assert await store.read(lambda tx: tx.conversation("c")) == changed


async def test_the_list_has_pinned_ones_first_and_then_the_latest(store: ProfileStore) -> None:
    await put(
        store,
        conversation("old", updated_ms=1),
        conversation("new", updated_ms=9),
        conversation("old pin", updated_ms=2, pinned=True),
        conversation("new pin", updated_ms=3, pinned=True),
        conversation("put away", updated_ms=10, archived=True),
        conversation("same time, later", updated_ms=9),
    )
    assert await listed(store) == ["new pin", "old pin", "same time, later", "new", "old"]
    assert await listed(store, archived=True) == ["put away"]
    assert await listed(store, first=1, count=2) == ["old pin", "same time, later"]
    window = await store.read(lambda tx: tx.conversations("", 4, 10))
    assert (len(window.rows), window.total) == (1, 5)


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ("straße", ["german"]),
        ("STRASSE", ["german"]),
        ("ПРИВЕТ", ["russian"]),
        ("100%", ["percent"]),
        ("_", ["underscore"]),
        ("o", ["german", "percent", "underscore"]),
        ("nowhere", []),
    ],
)
async def test_a_filter_is_any_part_of_the_title_whatever_its_case(
    store: ProfileStore, filter: str, found: list[str]
) -> None:
    await put(
        store,
        conversation("german", title="Lange Straße Offen"),
        conversation("russian", title="Привет"),
        conversation("percent", title="100% of it"),
        conversation("underscore", title="some_name"),
        conversation("put away", title="Straße 100% _ o", archived=True),
    )
    assert sorted(await listed(store, filter)) == found
    window = await store.read(lambda tx: tx.conversations(filter, 0, 1))
    assert window.total == len(found)


async def test_a_window_of_many_is_read_from_the_index_in_order(store: ProfileStore) -> None:
    plans: list[str] = []

    def explain(tx: ProfileTx) -> None:
        statements: list[str] = []
        tx.db.set_trace_callback(statements.append)
        tx.conversations("", 0, 50)
        tx.conversations("title", 0, 50)
        tx.db.set_trace_callback(None)
        for statement in statements:
            plans.extend(row[3] for row in tx.db.execute(f"EXPLAIN QUERY PLAN {statement}"))

    await put(store, *(conversation(f"c{number}", updated_ms=number) for number in range(500)))
    await store.read(explain)
    assert len(plans) == 4
    assert all("conversations_in_order" in plan for plan in plans), plans
    assert await listed(store, count=3) == ["c499", "c498", "c497"]


async def test_sessions_of_a_conversation_stay_in_a_row(store: ProfileStore) -> None:
    await put(store, conversation("c"), conversation("d"))

    def work(tx: ProfileTx) -> None:
        for name in ("s2", "s1"):
            tx.add_conversation_session("c", name, {"id": name})
        tx.add_conversation_session("c", "s2", {"id": "renewed"})
        tx.add_conversation_session("d", "s3", {})

    await store.transact(work)
    rows = await store.read(lambda tx: tx.conversation_sessions("c"))
    assert rows == [ConversationSession("s2", {"id": "renewed"}), ConversationSession("s1", {"id": "s1"})]
    assert await store.read(lambda tx: tx.sessions_to_conversations()) == {"s1": "c", "s2": "c", "s3": "d"}
    with pytest.raises(LookupError):
        await store.transact(lambda tx: tx.add_conversation_session("none", "s", {}))


async def test_a_deleted_conversation_is_in_no_file_and_the_others_stay(store: ProfileStore, path: Path) -> None:
    await put(store, conversation("c", title=CANARY), conversation("d"))

    def work(tx: ProfileTx) -> None:
        tx.add_conversation_session("c", "s", {"note": CANARY})
        tx.put_draft("c", CANARY)
        tx.put_draft("d", "stays")

    await store.transact(work)
    await store.transact(lambda tx: tx.delete_conversation("c"))
    await store.transact(lambda tx: tx.delete_conversation("never there"))
    assert await store.read(lambda tx: (tx.conversation("c"), tx.conversation_sessions("c"))) == (None, [])
    assert await store.read(lambda tx: (tx.draft("c"), tx.draft("d"))) == ("", "stays")
    assert await listed(store) == ["d"]
    assert not [file for file in path.parent.iterdir() if CANARY.encode() in file.read_bytes()]


async def test_drafts_settings_connectors_and_hints_are_kept(store: ProfileStore, path: Path) -> None:
    def work(tx: ProfileTx) -> None:
        assert tx.draft("") == ""
        tx.put_draft("", "new\ud800")
        tx.put_draft("c", "one")
        tx.put_draft("c", "")
        tx.put_setting("theme", "dark")
        tx.put_setting("theme", {"name": "light"})
        tx.put_connector({"name": "b", "base_url": "x"})
        tx.put_connector({"name": "a"})
        tx.put_connector({"name": "b", "base_url": "y"})
        tx.put_connector({"name": "c"})
        tx.delete_connector("c")
        tx.put_agent_hint("one", True, 5)
        tx.put_agent_hint("two", True, None)
        tx.put_agent_hint("two", False, None)

    await store.transact(work)
    await store.close()
    again = await open_profile_store(path, profile="p")

    def look(tx: ProfileTx) -> Any:
        return tx.draft(""), tx.draft("c"), tx.setting("theme"), tx.setting("none"), tx.connectors()

    kept = "new\ufffd", "", {"name": "light"}, None, [{"name": "a"}, {"name": "b", "base_url": "y"}]
    try:
        assert await again.read(look) == kept
        hints = await again.read(lambda tx: (tx.agent_hint("one"), tx.agent_hint("none"), tx.agent_hints()))
        assert hints == (AgentHint(True, 5), None, {"one": AgentHint(True, 5), "two": AgentHint(False, None)})
    finally:
        await again.close()


async def test_a_profile_file_and_an_agent_file_are_not_mixed_up(store: ProfileStore, path: Path) -> None:
    await store.close()
    with pytest.raises(StorageForeignError):
        await open_agent_store(path, profile="p", agent="")
    with pytest.raises(StorageForeignError):
        await open_profile_store(path, profile="other")
