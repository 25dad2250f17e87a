import shutil
from pathlib import Path

import pytest

from runtime_host.storage.base import AgentStore
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing.storage_contract import DurableAgentStoreContract, DurablePlace


class FilePlace:
    def __init__(self, folder: Path) -> None:
        self._folders = (folder / str(number) for number in range(1_000_000))
        self._folder = next(self._folders)

    async def open(self) -> AgentStore:
        return await open_agent_store(self._folder / "agent.sqlite3", profile="p", agent="a")

    def crash(self) -> None:
        # What is on disk while the store is open, in a place of its own: the kernel's lock stays behind.
        left, self._folder = self._folder, next(self._folders)
        shutil.copytree(left, self._folder)


class TestSqliteStore(DurableAgentStoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> DurablePlace:
        return FilePlace(tmp_path)
