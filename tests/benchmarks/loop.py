"""What a line costs: accepts and passes a second beside the same writes by SQLite as it is; a call through the gate.

The base runs the same kernel over a plain connection (WAL, FULL) with the same commits, in turn with ours and a few
turns at a time, each into a file of its own; twice, which is the A/A run. It writes in a thread of its own, as whatever
has a window must: waking that thread takes as long as a busy machine likes, and is no cost of ours. What a loop that
stops for its disk does is told. What a turn writes and looks at is counted, which no machine makes slower. What the
gate adds to a call is its own commits, told beside bare ones.
"""

import asyncio
import contextlib
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.definitions import ExecutionBinding, SessionOptions, TrustedContext
from runtime_host.drivers.native import NativeDriver
from runtime_host.loop.engine import Answer, Job, LaneEngine, Operation
from runtime_host.policy import CHAT
from runtime_host.runtime import LocalBackend
from runtime_host.storage.base import AgentStore, AgentTx, RunRecord, SessionRecord
from runtime_host.storage.sqlite import SqliteAgentTx
from runtime_host.testing.ledger_plugin import LedgerPlugin
from runtime_host.tools.base import ToolCall, ToolContext
from tests.benchmarks.gates import Gate, Report, aa_noise, paired_ratio
from tests.benchmarks.options import Options
from tests.benchmarks.storage import open_store, session

T = TypeVar("T")

LIMIT = 1.7
"""Of a bare loop: a queue, a look at what waits with it, and a savepoint for each of ours."""
COMMITS, LOOKS = 5, 5
"""Of a turn without tools, its accept with it: said, begun, asked, answered, ended; what there may be to do, twice."""
TURNS = 4
"""Measured at a time: what else a machine does comes and goes in longer pieces."""
TIMES = 6
"""How often, for each round that is asked for."""
CALLS = 20


class BareStore:
    """The same rows into the same tables by a plain connection: no claim, no queue, no savepoint."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for order in ("journal_mode = WAL", "synchronous = FULL", "locking_mode = EXCLUSIVE", "foreign_keys = ON"):
            self._db.execute(f"PRAGMA {order}").fetchall()
        self.generation = 0
        self.commits = self.looks = 0

    async def transact(self, fn: Callable[[AgentTx], T]) -> T:
        return self._write(fn)

    async def read(self, fn: Callable[[AgentTx], T]) -> T:
        return self._look(fn)

    async def close(self) -> None:
        self._db.close()

    def _write(self, fn: Callable[[AgentTx], T]) -> T:
        self._db.execute("BEGIN IMMEDIATE")
        result = fn(SqliteAgentTx(self._db))
        self._db.execute("COMMIT")
        self.commits += 1
        return result

    def _look(self, fn: Callable[[AgentTx], T]) -> T:
        self.looks += 1
        return fn(SqliteAgentTx(self._db))


class BareThread(BareStore):
    """As that, in a thread of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._thread = ThreadPoolExecutor(1)

    async def transact(self, fn: Callable[[AgentTx], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._write, fn)

    async def read(self, fn: Callable[[AgentTx], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._look, fn)

    async def close(self) -> None:
        self._thread.shutdown()
        await super().close()


class AtOnce:
    """A world whose models answer at once."""

    async def send(self, job: Job) -> Answer:
        return Answer("Yes.", usage={"output_tokens": 1})

    async def act(self, operation: Operation) -> str:
        return "done"

    def holds(self, tool: str) -> bool:
        return False


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def _turns(store: AgentStore, first: int, slow_s: float) -> tuple[float, float]:
    """Seconds of the accepts and of the passes of some turns, each in a session of its own."""
    engine = LaneEngine(store, AtOnce())
    names = [f"s{number}" for number in range(first, first + TURNS)]
    for name in names:
        await store.transact(lambda tx, name=name: tx.put_session(session(name)))  # type: ignore[misc]

    async def accept() -> None:
        for name in names:
            if slow_s:
                time.sleep(slow_s)  # noqa: ASYNC251  # what is planted stops the loop
            await engine.accept(name, "Hello", dedup_key="1")

    async def drive() -> None:
        for name in names:
            if slow_s:
                time.sleep(slow_s)  # noqa: ASYNC251  # what is planted stops the loop
            await engine.drive(name)

    return await _timed(accept), await _timed(drive)


async def lines(folder: Path, rounds: int, slow_s: float) -> tuple[list[Gate], list[str]]:
    """Accepts and passes beside a bare loop."""
    for name in ("first", "second", "stopping"):
        await (await open_store(folder / name)).close()
    stores: dict[str, AgentStore] = {
        "first": (first := BareThread(folder / "first")),
        "ours": await open_store(folder / "ours"),
        "second": BareThread(folder / "second"),
        "stopping": BareStore(folder / "stopping"),
    }
    told: dict[str, list[tuple[float, float]]] = {name: [] for name in stores}
    async with contextlib.AsyncExitStack() as stack:
        for store in stores.values():
            stack.push_async_callback(store.close)
        for number in range(rounds * TIMES):
            # By turns in front: the first one pays for what the last one left behind.
            order = list(stores.items())[:: 1 if number % 2 else -1]
            for name, store in order:
                told[name].append(await _turns(store, number * TURNS, slow_s if name == "ours" else 0.0))
    turns = rounds * TIMES * TURNS
    gates = [
        # One more of each: the session is put there first.
        Gate("commits of a turn, accept and pass", first.commits / turns - 1, COMMITS, unit="commits"),
        Gate("looks of a turn", first.looks / turns, LOOKS, unit="looks"),
    ]
    figures = []
    for index, what in enumerate(("accepts", "passes")):
        mine, base, again, stopping = (
            [each[index] for each in told[name]] for name in ("ours", "first", "second", "stopping")
        )
        gates.append(Gate(f"{what} beside a bare loop", paired_ratio(mine, base), LIMIT, aa_noise(base, again)))
        a_second = [TURNS / statistics.median(each) for each in (mine, base, stopping)]
        figures.append(
            "{} a second: {:.0f}, bare {:.0f}, bare and stopping for its disk {:.0f}".format(what, *a_second)
        )
    return gates, figures


async def calls(folder: Path) -> list[str]:
    """What a call through the gate takes, beside the plugin alone and beside its commits alone."""
    store, plugin = await open_store(folder / "gate"), LedgerPlugin()

    async def storage(_: str) -> AgentStore:
        return store

    async def no_key(_: Any) -> str:
        raise LookupError("no key is needed")

    registry = ConnectorRegistry(lambda _: None, no_key)
    backend = LocalBackend(drivers=[NativeDriver(registry)], storage=storage, plugins=[plugin])
    gateway = backend.gateway("bench")
    try:
        await gateway.mounts.add("ledger", "book")
        options = SessionOptions(
            execution=ExecutionBinding(driver="native.agent", connector="none", model="m"),
            context=TrustedContext(),
            policy=CHAT,
        )
        await store.transact(_session_with_run)
        gate = gateway.session_gate("s", options, None)
        await gate.refresh()
        context = ToolContext(options.context)
        took: list[float] = []
        for number in range(CALLS):
            call = ToolCall("s", "r", f"call-{number}", "book__write", {"entry": "a"})
            started = time.perf_counter()
            judged = await gate.judge(call, context, parks=True)
            claimed = await store.transact(lambda tx, id_=judged.operation_id: gate.claim(tx, id_))  # type: ignore[misc]
            if not claimed:
                raise RuntimeError(f"the call was not let through: {judged}")
            report = await gate.execute(judged.operation_id, call, context)
            await store.transact(lambda tx, id_=judged.operation_id, told=report: gate.settle(tx, id_, told))  # type: ignore[misc]
            took.append(time.perf_counter() - started)
        bare = [await _timed(lambda: store.transact(lambda tx: tx.put_fact("bench", 1))) for _ in range(CALLS)]
    finally:
        await backend.aclose()
        await store.close()
    call_ms, commit_ms = statistics.median(took) * 1000, statistics.median(bare) * 1000
    return [
        f"a call through the gate: {call_ms:.2f} ms, of which {call_ms / commit_ms:.1f} commits of {commit_ms:.2f} ms"
    ]


def _session_with_run(tx: AgentTx) -> None:
    tx.put_session(SessionRecord(session_id="s", scope_digest="0" * 64, created_ms=0, definition={}, options={}))
    tx.put_run(RunRecord(run_id="r", session_id="s", phase="dispatched", created_ms=0, input={}))


async def _measure(options: Options) -> Report:
    folder = Path(tempfile.mkdtemp(prefix="bench-loop-"))
    try:
        report = Report("loop")
        report.gates, report.figures = await lines(folder, options.rounds, 0.02 if options.plant == "slow" else 0.0)
        report.figures += await calls(folder)
        return report
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(options: Options) -> Report:
    """Measure it."""
    return asyncio.run(_measure(options))
