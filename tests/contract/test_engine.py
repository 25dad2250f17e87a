"""The engine contract, on the kernel over both stores and on an engine that shares no code with it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runtime_host.loop import lane
from runtime_host.loop.engine import Engine, LaneEngine
from runtime_host.storage.base import AgentStore, AgentTx, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import ApprovalRow, UsageRow
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing.engine_contract import EngineBench, EngineContract, HeldRequest, ScriptedWorld
from runtime_host.testing.memory_engine import Lines, MemoryEngine


class StoreBench:
    def __init__(self, store: AgentStore) -> None:
        self.world = ScriptedWorld()
        self._store = store

    def engine(self) -> Engine:
        return LaneEngine(self._store, self.world)

    async def said(self) -> list[tuple[str, str]]:
        roles = {"user": "user", "tool": "tool"}
        items = await self._store.read(lambda tx: tx.items("s", 0, 100, 1000))
        return [(roles.get(item.kind, "assistant"), item.text) for item in items]

    async def jobs(self) -> list[tuple[str, int]]:
        def read(tx: AgentTx) -> list[tuple[str, int]]:
            return [(job.state, job.tries) for run in tx.runs("s") for job in lane.jobs(tx, "s", run.run_id)]

        return await self._store.read(read)

    async def held(self) -> list[HeldRequest]:
        rows = await self._store.read(lambda tx: tx.rows(ApprovalRow, session_id="s", state="pending"))
        return [HeldRequest(row.operation_id, row.tool, row.request["args"], row.request_hash) for row in rows]

    async def metered(self) -> list[tuple[str, float]]:
        return [(row.resource, row.quantity) for row in await self._store.read(lambda tx: tx.rows(UsageRow))]


class LinesBench:
    def __init__(self) -> None:
        self.world = ScriptedWorld()
        self._lines = Lines()

    def engine(self) -> Engine:
        return MemoryEngine(self._lines, self.world)

    async def said(self) -> list[tuple[str, str]]:
        return [(role, text) for _, role, text in self._lines.of["s"].said]

    async def jobs(self) -> list[tuple[str, int]]:
        return [(job.state, job.tries) for run in self._lines.of["s"].runs for job in run.jobs]

    async def held(self) -> list[HeldRequest]:
        calls = [call for run in self._lines.of["s"].runs for call in run.calls if call.held == "pending"]
        return [HeldRequest(call.operation_id, call.tool, call.arguments, call.request_hash) for call in calls]

    async def metered(self) -> list[tuple[str, float]]:
        return [(resource, quantity) for resource, _, quantity in self._lines.metered]


class TestKernel(EngineContract):
    @pytest.fixture(params=["memory", "sqlite"])
    async def bench(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineBench]:
        store: AgentStore = MemoryAgentStore()
        if request.param == "sqlite":
            store = await open_agent_store(tmp_path / "agent.sqlite3", profile="p", agent="assistant")
        record = SessionRecord(session_id="s", scope_digest="", created_ms=1, definition={}, options={})
        await store.transact(lambda tx: tx.put_session(record))
        yield StoreBench(store)
        await store.close()


class TestLinesInMemory(EngineContract):
    @pytest.fixture
    def bench(self) -> EngineBench:
        return LinesBench()
