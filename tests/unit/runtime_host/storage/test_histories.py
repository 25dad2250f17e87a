"""Files of every released version open, tell what was written into them, and go on."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from desktop.profile_store import PROFILE_FORMAT, open_profile_store
from runtime_host.storage.rows import TABLES, CounterRow, MountRow, OperationRow, UsageHourRow
from runtime_host.storage.sqlite import AGENT_FORMAT, open_agent_store
from tests.histories.stores import (
    AGENT_TOLD,
    CALLS,
    FIRST_AGENT,
    HERE,
    IMAGE,
    KEPT,
    PROFILE_TOLD,
    READER,
    RECORDS,
    SEALED,
    STEPS,
    fill_loop,
    fill_rest,
    told_by_agent,
    told_by_profile,
    told_of_activities,
    told_of_images,
    told_of_loop,
    told_of_rest,
    told_of_tools,
)


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("agent-v*.sqlite3")))
async def test_an_agent_file_of_an_earlier_version(name: str, tmp_path: Path) -> None:
    shutil.copy(HERE / name, tmp_path / "agent.sqlite3")
    store = await open_agent_store(tmp_path / "agent.sqlite3", profile="p", agent="a")
    try:
        assert await store.read(told_by_agent) == AGENT_TOLD
        calls = [] if name == "agent-v1.sqlite3" else CALLS
        assert await store.read(told_of_tools) == (calls, calls[1:])
        did = (None, [{}] * 4) if name < "agent-v4" else (STEPS, [*[{}] * 4, STEPS.about])
        assert await store.read(told_of_activities) == did
        of_loop = ([], []) if name < "agent-v5" else (list(RECORDS), [SEALED])
        assert await store.read(told_of_loop) == of_loop
        pictures = ([], []) if name < "agent-v3" else ([("r1", 0), ("r2", 1)], [IMAGE, IMAGE])
        assert await store.read(told_of_images) == pictures
        await store.transact(lambda tx: tx.append_text("i3", 14, "."))
        assert await store.read(lambda tx: tx.item_text("i3", 0, 99)) == "half an answer."
        if name < "agent-v5":
            # What an earlier version had no place for has one now, beside what it wrote.
            await store.transact(fill_loop)
            assert await store.read(told_of_loop) == (list(RECORDS), [SEALED])
        if name < "agent-v6":
            # The ledger that an earlier version wrote is summed; nothing else is there.
            summed = [row for row in KEPT if isinstance(row, UsageHourRow)] if name == "agent-v5.sqlite3" else []
            assert await store.read(told_of_rest) == summed
            await store.transact(fill_rest)
        assert await store.read(told_of_rest) == list(KEPT)
        await store.transact(lambda tx: tx.delete_session("s1"))
        assert await store.read(lambda tx: (tx.rows(OperationRow), len(tx.rows(MountRow)))) == ([], 2)
        # What was used in the session is in no sum any more; what names none stays.
        left = [row for row in KEPT if not TABLES[type(row)].of_session]
        gone = (CounterRow, UsageHourRow)
        assert await store.read(told_of_rest) == [row for row in left if not isinstance(row, gone)]
    finally:
        await store.close()


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("agent-v*.sqlite3")))
async def test_an_agent_file_of_an_earlier_version_gets_the_tables_of_a_new_one(name: str, tmp_path: Path) -> None:
    def tables(path: Path) -> list[tuple[str, str]]:
        with contextlib.closing(sqlite3.connect(path)) as db:
            found = db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()
        return [(each, " ".join(sql.split())) for each, sql in found]

    shutil.copy(HERE / name, tmp_path / "old")
    for path in (tmp_path / "old", tmp_path / "new"):
        await (await open_agent_store(path, profile="p", agent="a")).close()
    assert tables(tmp_path / "old") == tables(tmp_path / "new")


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.glob("profile-v*.sqlite3")))
async def test_a_profile_file_of_an_earlier_version(name: str, tmp_path: Path) -> None:
    shutil.copy(HERE / name, tmp_path / "profile.sqlite3")
    store = await open_profile_store(tmp_path / "profile.sqlite3", profile="p")
    try:
        assert await store.read(told_by_profile) == PROFILE_TOLD
        agents = [FIRST_AGENT] if name == "profile-v1.sqlite3" else [FIRST_AGENT, READER]
        assert await store.read(lambda tx: tx.agents()) == agents
        assert await store.read(lambda tx: tx.count_by_agent()) == {"assistant": 1}
        await store.transact(lambda tx: tx.put_draft("c1", "next"))
    finally:
        await store.close()


def test_there_is_a_file_of_every_version_of_each_kind() -> None:
    for kind, form in (("agent", AGENT_FORMAT), ("profile", PROFILE_FORMAT)):
        versions = {f"{kind}-v{number}.sqlite3" for number in range(1, len(form.migrations) + 1)}
        assert versions == {path.name for path in HERE.glob(f"{kind}-v*.sqlite3")}
