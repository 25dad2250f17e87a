"""What a driver of a harness that calls host tools must do besides: each call once, told once, kept before.

Owns the cases of calls, denials and restarts, inside the runtime. Must not know any harness. A subclass gives the
fixture `bench`, a `ToolBench`, and has the whole of `AgentDriverContract` with it.

    class TestMyDriver(HostToolsContract):
        @pytest.fixture
        async def bench(self):
            async with MyServer() as server:
                yield MyBench(server)
"""

import asyncio
import contextlib
import gc
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeVar

from runtime_host.definitions import AgentDefinition
from runtime_host.errors import AgentSessionRecoveryError, AgentUnresolvedEffectError, StorageFailedError
from runtime_host.results import AgentResult
from runtime_host.run import Run, Windows
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore, AgentTx
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.testing.driver_contract import AgentDriverContract, DriverBench
from runtime_host.tools.base import (
    HostTool,
    Permission,
    ResolutionContext,
    ResolvedTools,
    ToolCall,
    ToolContext,
)

T = TypeVar("T")

TOOL: Final = "look"
"""The one tool that is offered; it takes the name of a `city`."""
RESULT: Final = "It rains there."
DENIED: Final = "Looking out is not wanted here."
STEPS_S: Final = 10.0
"""How long the steps of a whole run may take at least, however impatient a bench is with a single one."""
_PARAMETERS: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "units": {"type": "array", "items": {"enum": ["mm", "in"]}}},
    "required": ["city"],
}
"""With lists in it, as most have: frozen ones are tuples, which are equal to no list that comes back."""

ToolBehaviour = Literal["calls-once", "calls-twice", "repeats-a-call"]
"""How the far side takes the next inputs: it asks for `TOOL` and answers once it was told; asks for it, is told, asks
again under another id, and then answers; or asks the second time under the same id, for the same."""


class Told(NamedTuple):
    """What the far side was told of a call: its id and the words or JSON of the result."""

    call_id: str
    text: str


class ToolBench(DriverBench, Protocol):
    """A bench may have `die()` besides: it ends what of the harness ends with its host's process, a program.

    Without it that may go on for a moment where only the host's process is played to have ended.
    """

    def call(self, how: ToolBehaviour) -> None:
        """Tell the far side how to take the inputs from now on."""
        ...

    def told(self) -> list[Told]:
        """Everything the far side was told of calls so far, each time it was told.

        A harness that says the whole conversation anew with each round counts what is new in it only.
        """
        ...


class _Desk:
    """The application: runs the tool, and says who may."""

    def __init__(self) -> None:
        self.executed: list[str] = []
        self.denies = False
        self.hangs = False
        self.on_effect: Callable[[], None] = lambda: None

    async def resolve(self, names: tuple[str, ...], _: ResolutionContext) -> ResolvedTools:
        tools = tuple(HostTool(name, "Tells the weather of a city.", _PARAMETERS, _never) for name in names)
        return ResolvedTools(tools=tools, fingerprint="1", manager=self)

    async def acquire(self, session_id: str) -> None:
        """Nothing to take."""

    async def release(self, session_id: str) -> None:
        """Nothing was taken."""

    async def permit(self, call: ToolCall, _: ToolContext) -> Permission:
        return Permission(not self.denies, DENIED)

    async def execute(self, call: ToolCall, tool: HostTool, context: ToolContext) -> Any:
        self.executed.append(call.call_id)
        self.on_effect()
        if self.hangs:
            await asyncio.Event().wait()
        return RESULT


class _Watched:
    """A store that sees what the far side knows at each commit, and may fail or stop for good at one."""

    def __init__(self, inner: AgentStore, bench: ToolBench) -> None:
        self.inner = inner
        self._bench = bench
        self.too_early: list[str] = []
        self.fails = False
        self.dies_when_kept = False
        self.dead = asyncio.Event()

    @property
    def generation(self) -> int:
        return self.inner.generation

    async def transact(self, fn: Callable[[AgentTx], T]) -> T:
        await self.look()
        # A driver that tells too early has the time to do so.
        await asyncio.sleep(0.01)
        phases = await self.look()
        if self.dead.is_set() or (self.dies_when_kept and "acknowledged" in phases):
            self.dead.set()
            await asyncio.Event().wait()
        if self.fails:
            raise StorageFailedError("The disk is full.")
        return await self.inner.transact(fn)

    async def read(self, fn: Callable[[AgentTx], T]) -> T:
        if self.dead.is_set():
            await asyncio.Event().wait()
        return await self.inner.read(fn)

    async def close(self) -> None:
        """Stays open for the next process."""

    async def look(self) -> list[str]:
        """How far each call is; notes the ones that were told and are not kept as such."""

        def phases(tx: AgentTx) -> dict[str, str]:
            calls = [
                call for each in tx.sessions() for run in tx.runs(each.session_id) for call in tx.tool_calls(run.run_id)
            ]
            return {call.call_id: call.phase for call in calls}

        known = await self.inner.read(phases)
        told = {each.call_id for each in self._bench.told()}
        self.too_early += [each for each in told if known.get(each) not in ("delivering", "delivered", "withdrawn")]
        return list(known.values())


class HostToolsContract(AgentDriverContract):
    """Subclass as `Test…`, with a fixture `bench`."""

    host_tools: ClassVar[bool] = True

    async def test_the_same_tool_twice_is_two_calls(self, bench: ToolBench) -> None:
        bench.call("calls-twice")
        async with _runtime(bench) as (desk, _, session):
            result = await _result(bench, await session.run("Hello"))
        assert (result.status, result.error) == ("completed", None)
        assert len(desk.executed) == len(set(desk.executed)) == 2, "two calls of one tool were taken for one"
        assert [each.call_id for each in bench.told()] == desk.executed
        assert all(RESULT in each.text for each in bench.told())

    async def test_a_repeated_call_is_executed_once(self, bench: ToolBench) -> None:
        bench.call("repeats-a-call")
        async with _runtime(bench) as (desk, _, session):
            assert (await _result(bench, await session.run("Hello"))).status == "completed"
        assert len(desk.executed) == 1, "a call that was repeated under its id was executed again"
        assert {each.call_id for each in bench.told()} == set(desk.executed)

    async def test_nothing_is_told_before_it_is_kept(self, bench: ToolBench) -> None:
        bench.call("calls-twice")
        async with _runtime(bench) as (_, store, session):
            await _result(bench, await session.run("Hello"))
        assert store.too_early == [], "the far side was told what no record says it may be told"
        assert len(bench.told()) == 2

    async def test_what_cannot_be_kept_is_told_to_nobody(self, bench: ToolBench) -> None:
        bench.call("calls-once")
        async with _runtime(bench) as (desk, store, session):

            def full() -> None:
                store.fails = True

            desk.on_effect = full
            run = await session.run("Hello")
            with contextlib.suppress(AgentSessionRecoveryError):
                assert (await _result(bench, run)).status != "completed", "a run went on without its result"
            store.fails = False
        assert len(desk.executed) == 1
        assert bench.told() == []

    async def test_what_is_denied_is_not_executed_and_told_as_that(self, bench: ToolBench) -> None:
        bench.call("calls-once")
        async with _runtime(bench) as (desk, _, session):
            desk.denies = True
            result = await _result(bench, await session.run("Hello"))
        assert desk.executed == []
        assert result.status == "completed", "a call that was denied ended the run"
        assert len(bench.told()) == 1
        assert DENIED in bench.told()[0].text, "the model was told something else than that it was denied"

    async def test_a_result_kept_before_a_restart_is_told_once_under_its_id(self, bench: ToolBench) -> None:
        desk, run_id, result = await _over_a_restart(bench)
        assert (result.run_id, result.status) == (run_id, "completed")
        assert [each.call_id for each in bench.told()] == desk.executed[:1]
        assert RESULT in bench.told()[0].text

    async def test_a_run_that_goes_on_executes_nothing_again(self, bench: ToolBench) -> None:
        desk, _, _ = await _over_a_restart(bench)
        assert len(desk.executed) == 1, "what was executed before a restart was executed again"

    async def test_in_the_runtime_an_interrupted_call_is_never_executed_again(self, bench: ToolBench) -> None:
        bench.call("calls-once")
        memory, desk = MemoryAgentStore(), _Desk()
        desk.hangs = True
        store = _Watched(memory, bench)
        desk.on_effect = store.dead.set
        async with _doomed(bench, store, desk) as session:
            await session.run("Hello")
            await asyncio.wait_for(store.dead.wait(), max(bench.patience_s, STEPS_S))
        desk.hangs, desk.on_effect = False, _nothing
        async with _backend(bench, memory, desk) as runtime:
            [recovered] = await runtime.recover(bench.definition.id)
            assert recovered.outcome == "unknown"
            assert recovered.session is not None
            try:
                await recovered.session.run("Again")
            except AgentUnresolvedEffectError:
                pass
            else:
                raise AssertionError("a session went on though a tool may have acted")
        assert (len(desk.executed), bench.told()) == (1, [])


# ------------------------------------------------------------------------------------------ steps


async def _over_a_restart(bench: ToolBench) -> tuple[_Desk, str, AgentResult]:
    """A process ends when a result is kept and told to nobody; the next one goes on."""
    bench.call("calls-once")
    memory, desk = MemoryAgentStore(), _Desk()
    store = _Watched(memory, bench)
    store.dies_when_kept = True
    async with _doomed(bench, store, desk) as session:
        run_id = (await session.run("Hello")).run_id
        await asyncio.wait_for(store.dead.wait(), max(bench.patience_s, STEPS_S))
    assert bench.told() == [], "the far side was told before the record says so"
    async with _backend(bench, memory, desk) as runtime:
        [recovered] = await runtime.recover(bench.definition.id)
        assert recovered.run is not None, "a run that waited for a result did not go on with it"
        return desk, run_id, await _result(bench, recovered.run)


async def _result(bench: ToolBench, run: Run) -> AgentResult:
    async with asyncio.timeout(max(bench.patience_s * 4, STEPS_S)):
        return await run.result()


def _definition(bench: ToolBench) -> AgentDefinition:
    return bench.definition.model_copy(update={"tools": (TOOL,)})


def _local(bench: ToolBench, store: AgentStore, desk: _Desk) -> LocalBackend:
    async def storage(_: str) -> AgentStore:
        return store

    return LocalBackend(
        drivers=[bench.driver()],
        storage=storage,
        connectors=bench.connectors,
        windows=Windows(cleanup_s=min(bench.patience_s, 2.0)),
        resolve_tools=desk.resolve,
        durability="durable",
    )


@contextlib.asynccontextmanager
async def _backend(bench: ToolBench, store: AgentStore, desk: _Desk) -> AsyncIterator[AgentRuntime]:
    try:
        async with AgentRuntime(_local(bench, store, desk)) as runtime:
            yield runtime
    finally:
        await bench.aclose()


@contextlib.asynccontextmanager
async def _runtime(bench: ToolBench) -> AsyncIterator[tuple[_Desk, _Watched, Session]]:
    desk, store = _Desk(), _Watched(MemoryAgentStore(), bench)
    async with _backend(bench, store, desk) as runtime:
        yield desk, store, await runtime.create_agent(_definition(bench)).open_session(bench.options)


@contextlib.asynccontextmanager
async def _doomed(bench: ToolBench, store: _Watched, desk: _Desk) -> AsyncIterator[Session]:
    """A session whose process ends without a farewell."""
    before = asyncio.all_tasks()
    backend = _local(bench, store, desk)
    try:
        yield await AgentRuntime(backend).create_agent(_definition(bench)).open_session(bench.options)
    finally:
        store.dead.set()
        die = getattr(bench, "die", None)
        if die is not None:
            die()
        with warnings.catch_warnings():
            # A process that ends in the middle complains of nothing that it had only begun.
            warnings.simplefilter("ignore", RuntimeWarning)
            # Again and again, because what is cancelled may wait for the store once more.
            while left := {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}:
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=0.05)
            await backend.aclose()
            gc.collect()


async def _never(arguments: Any, context: ToolContext) -> Any:
    raise AssertionError("a tool was called past its manager")


def _nothing() -> None:
    return
