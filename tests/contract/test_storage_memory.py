import pytest

from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.testing.storage_contract import AgentStoreContract, StorePlace


class MemoryPlace:
    async def open(self) -> AgentStore:
        return MemoryAgentStore()


class TestMemoryStore(AgentStoreContract):
    @pytest.fixture
    def place(self) -> StorePlace:
        return MemoryPlace()
