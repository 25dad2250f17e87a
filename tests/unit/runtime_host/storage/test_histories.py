"""Files of every released version open, tell what was written into them, and go on."""

import shutil
from pathlib import Path

import pytest

from desktop.profile_store import PROFILE_FORMAT, open_profile_store
from runtime_host.storage.sqlite import AGENT_FORMAT, open_agent_store
from tests.histories.stores import (
    AGENT_TOLD,
    CALLS,
    FIRST_AGENT,
    HERE,
    IMAGE,
    PROFILE_TOLD,
    READER,
    STEPS,
    told_by_agent,
    told_by_profile,
    told_of_activities,
    told_of_images,
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
        pictures = ([], []) if name < "agent-v3" else ([("r1", 0), ("r2", 1)], [IMAGE, IMAGE])
        assert await store.read(told_of_images) == pictures
        await store.transact(lambda tx: tx.append_text("i3", 14, "."))
        assert await store.read(lambda tx: tx.item_text("i3", 0, 99)) == "half an answer."
    finally:
        await store.close()


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
