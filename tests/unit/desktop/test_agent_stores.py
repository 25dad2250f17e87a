"""An agent's file is open while it is used, and closed soon after."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from desktop import paths
from desktop.agent_stores import AgentStores
from desktop.app import Host
from runtime_host.errors import StorageDamagedError
from runtime_host.storage.base import AgentTx, ItemRecord, SessionRecord
from tests.puppet import until


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[AgentStores]:
    opened = AgentStores(paths.profile(tmp_path), "uuid-of-profile", rest_s=0.05)
    yield opened
    await opened.aclose()


async def test_nothing_is_open_before_the_first_use(stores: AgentStores) -> None:
    store = await stores.open("assistant")
    assert stores.open_files() == 0
    await store.transact(lambda tx: tx.put_fact("key", 1))
    assert stores.open_files() == 1


async def test_the_file_rests_after_its_last_use_and_opens_again_with_what_was_written(stores: AgentStores) -> None:
    store = await stores.open("assistant")
    await store.transact(lambda tx: tx.put_fact("key", [1, "two"]))
    await until(lambda: stores.open_files() == 0)
    assert await store.read(lambda tx: tx.fact("key")) == [1, "two"]


async def test_many_uses_at_once_share_one_opening(stores: AgentStores) -> None:
    store = await stores.open("assistant")

    async def put(number: int) -> None:
        def fn(tx: AgentTx) -> None:
            tx.put_fact(f"k{number}", number)

        await store.transact(fn)

    await asyncio.gather(*(put(number) for number in range(50)))
    assert await stores.open("assistant") is store
    assert await store.read(lambda tx: [tx.fact(f"k{n}") for n in range(50)]) == list(range(50))


async def test_closing_waits_for_what_is_under_way(stores: AgentStores) -> None:
    store = await stores.open("assistant")
    writing = asyncio.ensure_future(store.transact(lambda tx: tx.put_fact("key", "kept")))
    await asyncio.sleep(0)
    await stores.aclose()
    await writing
    assert stores.open_files() == 0
    assert await (await stores.open("assistant")).read(lambda tx: tx.fact("key")) == "kept"


async def test_a_damaged_file_is_named_once_and_then_what_it_still_held_is_there(
    stores: AgentStores, tmp_path: Path
) -> None:
    def fill(tx: AgentTx) -> None:
        tx.put_session(SessionRecord(session_id="s", scope_digest="", created_ms=1, definition={}, options={}))
        for position in range(40):
            tx.add_item(
                ItemRecord(
                    item_id=f"i{position}",
                    session_id="s",
                    run_id=None,
                    position=position,
                    kind="user",
                    state="complete",
                    text=f"message {position} " * 200,
                    created_ms=1,
                )
            )

    def read(tx: AgentTx) -> list[str]:
        return [tx.item_text(head.item_id, 0, 20) for head in tx.items("s", 0, 100, 0)]

    store = await stores.open("assistant")
    await store.transact(fill)
    file = paths.profile(tmp_path).agent_store("assistant")
    await until(lambda: stores.open_files() == 0 and not file.with_name(file.name + "-wal").exists())
    damage(file)
    with pytest.raises(StorageDamagedError) as told:
        await store.read(lambda tx: [tx.item(head.item_id) for head in tx.items("s", 0, 100, 0)])
    aside = Path(told.value.details["set_aside"])
    assert str(aside) in told.value.message
    texts = await store.read(read)
    assert 20 < len(texts) < 40
    assert texts[0].startswith("message 0")
    assert texts[-1].startswith("The file this conv")
    notice = await store.read(lambda tx: tx.items("s", 0, 100, 0)[-1])
    assert (notice.code, notice.detail) == ("STORAGE_SALVAGED", aside.name)


async def test_a_file_set_aside_before_a_restart_is_taken_over_and_named_after_it(
    stores: AgentStores, tmp_path: Path
) -> None:
    def fill(tx: AgentTx) -> None:
        tx.put_session(SessionRecord(session_id="s", scope_digest="", created_ms=1, definition={}, options={}))
        tx.put_fact("large", "x" * 200_000)

    store = await stores.open("assistant")
    await store.transact(fill)
    profile = paths.profile(tmp_path)
    file = profile.agent_store("assistant")
    await until(lambda: stores.open_files() == 0 and not file.with_name(file.name + "-wal").exists())
    damage(file)
    with pytest.raises(StorageDamagedError) as told:
        await store.read(lambda tx: tx.fact("large"))
    # The process ends here: nobody used the store again.
    await stores.aclose()
    after = AgentStores(profile, "uuid-of-profile", rest_s=0.05)
    try:
        aside = Path(told.value.details["set_aside"])
        assert after.set_aside() == [aside]
        store = await after.open("assistant")
        assert await store.read(lambda tx: [record.session_id for record in tx.sessions()]) == ["s"]
        assert after.set_aside() == [aside], "named for as long as it is there"
    finally:
        await after.aclose()
    async with Host(profile) as host:
        [notice] = [notice for notice in host.notices if notice.code == "STORAGE_SET_ASIDE"]
        assert str(aside) in notice.text
        assert notice.sticky
    aside.unlink()  # noqa: ASYNC240  # one name of a temporary folder
    async with Host(profile) as host:
        assert [notice.code for notice in host.notices if notice.code == "STORAGE_SET_ASIDE"] == []


def damage(path: Path) -> None:
    content = path.read_bytes()
    at = len(content) * 3 // 4 // 4096 * 4096
    path.write_bytes(content[:at] + b"\xa5" * 8192 + content[at + 8192 :])


async def test_a_file_found_damaged_while_in_use_is_set_aside_and_the_next_use_works(
    stores: AgentStores, tmp_path: Path
) -> None:
    store = await stores.open("assistant")
    await store.transact(lambda tx: tx.put_fact("key", "x" * 100_000))
    await until(lambda: stores.open_files() == 0)
    path = paths.profile(tmp_path).agent_store("assistant")
    spoil(path)
    with pytest.raises(StorageDamagedError) as damaged:
        await store.read(lambda tx: tx.fact("key"))
    assert damaged.value.details["set_aside"]
    await store.transact(lambda tx: tx.put_fact("key", "new"))
    assert await store.read(lambda tx: tx.fact("key")) == "new"


def spoil(path: Path) -> None:
    """Overwrite everything behind the header of a database that nobody has open."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(size - 100))
