"""Application tools for tests: a resolver that counts, an effect that is recorded, and a runtime around both."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from runtime_host.definitions import AgentDefinition
from runtime_host.drivers.native import NativeDriver
from runtime_host.events import AgentEvent
from runtime_host.results import AgentResult
from runtime_host.run import Run, Windows
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore, AgentTx
from runtime_host.tools.base import (
    EarlierCall,
    HostTool,
    ResolutionContext,
    ResolvedTools,
    RetainedObservation,
    ToolCall,
    ToolContext,
    ToolDelivery,
    ToolReceipt,
    ToolReport,
    ToolRequest,
)
from tests.loopback.chat_server import ChatServer
from tests.loopback.native import AT_ONCE, QUICK, options_for, registry_for

T = TypeVar("T")

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WITH_LOOK = AgentDefinition(id="assistant", instructions="Answer in one sentence.", tools=("look",))


async def soon(event: asyncio.Event) -> None:
    """Wait for what is to happen in a moment; what does not is a failure and no hanging test."""
    async with asyncio.timeout(10):
        await event.wait()


class Channel:
    """The runtime's channel of one run, as one process has it: what it was asked for, and in which order."""

    def __init__(self, *earlier: EarlierCall, hangs: bool = False) -> None:
        self.offers = ()
        self.earlier = earlier
        self.steps: list[tuple[str, str]] = []
        self.asked = asyncio.Event()
        self.shown = asyncio.Event()
        self._hangs = hangs

    async def execute(
        self, requests: tuple[ToolRequest, ...], started: Any, completed: Any, progressed: Any = None
    ) -> tuple[ToolDelivery, ...]:
        deliveries = []
        for each in requests:
            self.steps.append(("execute", each.call_id))
            self.asked.set()
            if self._hangs:
                await asyncio.Event().wait()
            deliveries.append(ToolDelivery(each.call_id, each.name, each.arguments, True, "rain", None))
        return tuple(deliveries)

    async def delivering(self, call_ids: tuple[str, ...]) -> None:
        self.steps += [("delivering", each) for each in call_ids]

    def delivered(self, call_ids: tuple[str, ...]) -> None:
        self.steps += [("delivered", each) for each in call_ids]
        self.shown.set()


@dataclass
class World:
    """Outside of the runtime: what tools have done to it, and what they do.

    Attributes:
        effects: cities that were looked at, in order.
        ledger: reports by call id, as the source of the effect remembers them.
        act: what the tool does after its effect; returns its report or raises.
        proves: whether the source can be asked what came of a call.
    """

    effects: list[str] = field(default_factory=list)
    ledger: dict[str, ToolReceipt] = field(default_factory=dict)
    contexts: list[ToolContext] = field(default_factory=list)
    asked: list[ResolutionContext] = field(default_factory=list)
    retained: list[RetainedObservation] = field(default_factory=list)
    act: Callable[[str, ToolContext], Awaitable[Any]] | None = None
    proves: bool = False
    reconciled: int = 0
    fingerprint: str = "look-1"
    description: str = "Tells the weather of a city."
    resolved: dict[str, Any] = field(default_factory=dict)

    async def look(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        city = str(arguments["city"])
        self.effects.append(city)
        self.contexts.append(context)
        if self.act is not None:
            return await self.act(city, context)
        return {"city": city, "weather": "rain"}

    async def reconcile(self, call: ToolCall, _: ToolContext) -> ToolReceipt | None:
        self.reconciled += 1
        return self.ledger.get(call.call_id)

    def remember(self, call_id: str, run_id: str, city: str = "Paris", **changes: Any) -> None:
        """Let the source remember what came of a call."""
        report = ToolReport(payload={"city": city, "weather": "snow"}, evidence=("ledger/1",))
        receipt = {"call_id": call_id, "tool": "look", "run_id": run_id, "settled": True, "report": report, **changes}
        self.ledger[call_id] = ToolReceipt(**receipt)

    async def resolve(self, names: tuple[str, ...], context: ResolutionContext) -> ResolvedTools:
        self.asked.append(context)
        tools = tuple(HostTool(name, self.description, CITY, self.look) for name in names)
        given = {"tools": tools, "fingerprint": self.fingerprint, **self.resolved}
        return ResolvedTools(reconcile=self.reconcile if self.proves else None, **given)


class MortalStore:
    """A store whose process stops before or after a commit: from then on nothing of it answers any more."""

    def __init__(self, inner: AgentStore) -> None:
        self.inner = inner
        self.commits = 0
        self.dies_before: int | None = None
        self.dies_after: int | None = None
        self.dead = asyncio.Event()

    @property
    def generation(self) -> int:
        return self.inner.generation

    async def transact(self, fn: Callable[[AgentTx], T]) -> T:
        self.commits += 1
        number = self.commits
        if self.dead.is_set() or number == self.dies_before:
            await self._die()
        result = await self.inner.transact(fn)
        if number == self.dies_after:
            await self._die()
        return result

    async def read(self, fn: Callable[[AgentTx], T]) -> T:
        if self.dead.is_set():
            await self._die()
        return await self.inner.read(fn)

    async def close(self) -> None:
        """Stays open for the next process."""

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()


@asynccontextmanager
async def runtime_on(
    server: ChatServer, store: AgentStore, world: World, *, cleanup_s: float = 2.0, max_iterations: int = 64
) -> AsyncIterator[AgentRuntime]:
    registry = registry_for(server.base_url, vendor=server.vendor)

    async def storage(_: str) -> AgentStore:
        return store

    backend = LocalBackend(
        drivers=[NativeDriver(registry, timeouts=QUICK, max_iterations=max_iterations, retries=AT_ONCE)],
        storage=storage,
        connectors=registry,
        windows=Windows(cleanup_s=cleanup_s),
        resolve_tools=world.resolve,
        on_retained_observation=world.retained.append,
    )
    async with AgentRuntime(backend) as runtime:
        yield runtime


@contextmanager
def unheard() -> Iterator[None]:
    """A process that ends in the middle complains of nothing that it had only begun."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
        gc.collect()


@asynccontextmanager
async def doomed_runtime_on(
    server: ChatServer, store: MortalStore, world: World, *, checkpoint_s: float = 1.0
) -> AsyncIterator[AgentRuntime]:
    """As `runtime_on`, but its process ends without a farewell."""
    before = asyncio.all_tasks()
    registry = registry_for(server.base_url, vendor=server.vendor)

    async def storage(_: str) -> AgentStore:
        return store

    driver = NativeDriver(registry, timeouts=QUICK, retries=AT_ONCE)
    backend = LocalBackend(
        drivers=[driver],
        storage=storage,
        connectors=registry,
        resolve_tools=world.resolve,
        windows=Windows(checkpoint_s=checkpoint_s),
    )
    try:
        yield AgentRuntime(backend)
    finally:
        store.dead.set()
        with unheard():
            # Again and again, because what is cancelled may wait for the store once more.
            while left := {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}:
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=0.05)
            await driver.aclose()


async def open_session(runtime: AgentRuntime, definition: AgentDefinition = WITH_LOOK) -> Session:
    return await runtime.create_agent(definition).open_session(options_for())


async def finish(run: Run) -> tuple[list[AgentEvent], AgentResult]:
    async with asyncio.timeout(20):
        events = [event async for event in run.events()]
        return events, await run.result()


async def ask(session: Session, text: str = "What is the weather?") -> tuple[list[AgentEvent], AgentResult]:
    return await finish(await session.run(text))
