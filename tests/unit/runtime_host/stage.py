"""A runtime on a memory store with a scripted driver, and a store that fails where it is told."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from runtime_host.capabilities import Capability, CapabilityRequirement
from runtime_host.definitions import (
    AgentDefinition,
    Environment,
    ExecutionBinding,
    Observation,
    SessionOptions,
    TrustedContext,
)
from runtime_host.errors import StorageFailedError
from runtime_host.events import AgentEvent
from runtime_host.policy import Limits, Policy
from runtime_host.redaction import Redactor
from runtime_host.run import Run, Windows
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore, AgentTx, ItemRecord, RunRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.testing import Script, ScriptedDriver, reply

T = TypeVar("T")

ME = TrustedContext(tenant_id="home", user_id="me")
AGENT = "assistant"


class Connectors:
    def __init__(self) -> None:
        self.redactor = Redactor()


class TouchyStore:
    """A memory store that counts commits and fails or waits before or after the ones it is told."""

    def __init__(self, inner: AgentStore) -> None:
        self.inner = inner
        self.commits = 0
        self.fail_before: Callable[[int], bool] = lambda number: False
        self.fail_after: Callable[[int], bool] = lambda number: False
        self.hold: asyncio.Event | None = None
        self.hold_after = 0

    @property
    def generation(self) -> int:
        return self.inner.generation

    async def transact(self, fn: Callable[[AgentTx], T]) -> T:
        self.commits += 1
        number = self.commits
        if self.hold is not None and number > self.hold_after:
            await self.hold.wait()
        if self.fail_before(number):
            raise StorageFailedError("The disk is full.")
        result = await self.inner.transact(fn)
        if self.fail_after(number):
            raise StorageFailedError("The disk did not confirm.")
        return result

    async def read(self, fn: Callable[[AgentTx], T]) -> T:
        return await self.inner.read(fn)

    async def close(self) -> None:
        await self.inner.close()


class Stage:
    """One process of the runtime; `again` is the next one over the same store."""

    def __init__(
        self,
        *scripts: Script,
        store: AgentStore | None = None,
        driver: ScriptedDriver | None = None,
        cleanup_s: float = 0.2,
        checkpoint_s: float = 0.02,
        journal_bytes: int = 4 * 1024 * 1024,
        forget_s: float = 5.0,
        **backend: Any,
    ) -> None:
        self.memory: AgentStore = store or MemoryAgentStore()
        self.store = TouchyStore(self.memory)
        self.driver = driver or ScriptedDriver(scripts or [Script(reply("Hello."))])
        self.connectors = Connectors()
        self.backend = LocalBackend(
            drivers=[self.driver],
            storage=self._storage,
            connectors=self.connectors,
            windows=Windows(cleanup_s=cleanup_s, checkpoint_s=checkpoint_s, forget_s=forget_s),
            max_session_journal_bytes=journal_bytes,
            **backend,
        )
        self.runtime = AgentRuntime(self.backend)

    async def _storage(self, agent_id: str) -> AgentStore:
        assert agent_id == AGENT
        return self.store

    async def __aenter__(self) -> "Stage":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.store.hold = None
        await self.runtime.aclose()

    async def open(self, **options: Any) -> Session:
        agent = self.runtime.create_agent(AgentDefinition(id=AGENT, instructions="Be kind."))
        return await agent.open_session(session_options(**options))

    async def items(self, session_id: str) -> list[ItemRecord]:
        def read(tx: AgentTx) -> list[ItemRecord]:
            heads = tx.items(session_id, 0, 1000, 10)
            assert [head.position for head in heads] == list(range(len(heads))), "positions have holes"
            records = [tx.item(head.item_id) for head in heads]
            return [record for record in records if record is not None]

        return await self.memory.read(read)

    async def run_record(self, run_id: str) -> RunRecord | None:
        return await self.memory.read(lambda tx: tx.run(run_id))


def session_options(
    *,
    limits: Limits | None = None,
    observation: Observation | None = None,
    context: TrustedContext = ME,
    folder: Path | None = None,
    filesystem: Literal["denied", "read-only", "workspace-write"] = "denied",
    needs: Sequence[CapabilityRequirement] = (),
    **execution: Any,
) -> SessionOptions:
    place = Environment() if folder is None else Environment(type="local-directory", path=str(folder))
    return SessionOptions(
        environment=place,
        required_capabilities=tuple(needs),
        execution=ExecutionBinding(**{"driver": "scripted", "connector": "none", "model": "m-1", **execution}),
        context=context,
        policy=Policy(
            filesystem=filesystem,
            commands="denied",
            sandbox_network="denied",
            provider_web_search="denied",
            approvals="deny",
            limits=limits or Limits(),
        ),
        observation=observation or Observation(),
    )


async def all_events(run: Run, after_sequence: int = 0) -> list[AgentEvent]:
    async with asyncio.timeout(10):
        return [event async for event in run.events(after_sequence)]


def able(*more: str, **scripted: Any) -> ScriptedDriver:
    """A scripted driver that can do more than the usual one."""
    driver = ScriptedDriver(**scripted)
    driver.capabilities |= {name: Capability(support="native") for name in more}
    return driver


def kinds(items: list[ItemRecord]) -> list[tuple[str, str, str]]:
    return [(item.kind, item.state, item.text) for item in items]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something that other tasks bring about is so."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # any condition, not one that could set an event
            await asyncio.sleep(0.001)
