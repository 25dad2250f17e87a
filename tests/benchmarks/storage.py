"""What durable costs: a commit beside SQLite's own, syncs, a long session opened again, a long list.

The commit's base writes the same rows into the same tables by a plain connection (WAL, FULL), in turn with
ours, into two files: that is the A/A run. Once from a worker thread, as any program does whose loop goes on
meanwhile, and once in a row without one. What a caller waits for beside a bare commit that stops its loop is
told and decides nothing: two threads are woken for ours, which takes the same time whatever the disk takes.
What is to be fast by itself is looked at twice a round, in turn.
"""

import asyncio
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from runtime_host.storage.base import AgentStore, AgentTx, ItemRecord, SessionRecord
from runtime_host.storage.sqlite import SqliteAgentTx, open_agent_store
from tests.benchmarks.gates import Gate, Report, aa_noise, paired_ratio
from tests.benchmarks.options import Options

COMMIT_LIMIT = 1.3
REOPEN_LIMIT_MS = 20.0
LIST_LIMIT_MS = 100.0
COMMITS = 60
"""Commits of each kind a round."""
NEWEST = 200
SESSIONS = 5_000
SYNCED_COMMITS = 50
REPLY = "It says little, and it says it well. " * 55
"""About 2 KB: the size of an answer."""
PREVIEW_CHARS = 4_096

_SYNC = re.compile(rb"\b(fsync|fdatasync)\(")


async def open_store(path: Path) -> AgentStore:
    return await open_agent_store(path, profile="bench", agent="bench")


def session(name: str = "s", number: int = 0) -> SessionRecord:
    return SessionRecord(session_id=name, scope_digest="0" * 64, created_ms=number, definition={}, options={})


def item(position: int, text: str = REPLY, session_id: str = "s") -> ItemRecord:
    return ItemRecord(
        item_id=f"{session_id}-{position}",
        session_id=session_id,
        run_id=None,
        position=position,
        kind="reply" if position % 2 else "user",
        state="complete",
        text=text,
        created_ms=position,
    )


# --------------------------------------------------------------------------------- commits


class Bare:
    """The same rows into the same tables by SQLite as it is: no claim, no thread, no queue, no savepoint."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for order in ("journal_mode = WAL", "synchronous = FULL", "locking_mode = EXCLUSIVE", "foreign_keys = ON"):
            self._db.execute(f"PRAGMA {order}").fetchall()
        self._made = 0

    def commit(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        SqliteAgentTx(self._db).add_item(item(self._made))
        self._db.execute("COMMIT")
        self._made += 1

    def close(self) -> None:
        self._db.close()


async def commit_once(store: AgentStore, position: int, slow_s: float) -> float:
    def write(tx: AgentTx) -> None:
        if slow_s:
            time.sleep(slow_s)
        tx.add_item(item(position))

    started = time.perf_counter()
    await store.transact(write)
    return time.perf_counter() - started


async def commits(folder: Path, rounds: int, slow_s: float) -> tuple[list[Gate], str]:
    """What the disk and the machine take of a commit, and what we add: with one waited for, with two under way."""
    for name in ("first", "second"):
        made = await open_store(folder / name)
        await made.transact(lambda tx: tx.put_session(session()))
        await made.close()
    store = await open_store(folder / "ours")
    bare, again = Bare(folder / "first"), Bare(folder / "second")
    alone = Series()
    stopped = Series()
    waited = Series()
    try:
        await store.transact(lambda tx: tx.put_session(session()))
        with ThreadPoolExecutor(1) as thread:
            for number in range(rounds):
                await alone_round(store, (bare, again), thread, number * 2 * COMMITS, slow_s, alone, stopped)
                await waited_round(store, (bare, again), number * 2 * COMMITS + COMMITS, slow_s, waited)
    finally:
        # Opened in that thread or this one: nothing of it is in use any more.
        bare.close()
        again.close()
        await store.close()
    gates = [
        alone.gate("commit waited for, against a bare one in a thread"),
        waited.gate("commits with two under way, against bare ones in a row"),
    ]
    told = f"alone: {alone.text()}; two under way: {waited.text()}; alone beside a bare one that stops the loop: "
    return gates, f"{told}{stopped.text()}, {paired_ratio(stopped.ours, stopped.base()):.2f} ×"


@dataclass
class Series:
    """Medians of rounds: ours, and the base in two files."""

    ours: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)

    def gate(self, name: str) -> Gate:
        return Gate(name, paired_ratio(self.ours, self.base()), COMMIT_LIMIT, aa_noise(self.first, self.second))

    def base(self) -> list[float]:
        return [(a + b) / 2 for a, b in zip(self.first, self.second, strict=True)]

    def text(self) -> str:
        return f"{statistics.median(self.ours) * 1e6:.0f} µs, bare {statistics.median(self.base()) * 1e6:.0f} µs"


async def alone_round(
    store: AgentStore,
    bare: tuple[Bare, Bare],
    thread: ThreadPoolExecutor,
    position: int,
    slow_s: float,
    into: Series,
    stopped: Series,
) -> None:
    """One commit after the other, each waited for by the loop, in turn with the base's in a thread and in the loop."""
    loop = asyncio.get_running_loop()
    ours: list[float] = []
    threaded: tuple[list[float], list[float]] = ([], [])
    inline: tuple[list[float], list[float]] = ([], [])
    for number in range(position, position + COMMITS):
        ours.append(await commit_once(store, number, slow_s))
        for times, base in zip(threaded, bare, strict=True):
            started = time.perf_counter()
            await loop.run_in_executor(thread, base.commit)
            times.append(time.perf_counter() - started)
        for times, base in zip(inline, bare, strict=True):
            started = time.perf_counter()
            base.commit()
            times.append(time.perf_counter() - started)
    for series, (first, second) in ((into, threaded), (stopped, inline)):
        series.ours.append(statistics.median(ours))
        series.first.append(statistics.median(first))
        series.second.append(statistics.median(second))


async def waited_round(store: AgentStore, bare: tuple[Bare, Bare], position: int, slow_s: float, into: Series) -> None:
    """As many commits as before with the next one always asked for, then as many of the base in a row."""
    started = time.perf_counter()
    under_way: set[asyncio.Task[float]] = set()
    for number in range(position, position + COMMITS):
        if len(under_way) == 2:
            _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        under_way.add(asyncio.ensure_future(commit_once(store, number, slow_s)))
    await asyncio.wait(under_way)
    into.ours.append((time.perf_counter() - started) / COMMITS)
    for medians, base in zip((into.first, into.second), bare, strict=True):
        started = time.perf_counter()
        for _ in range(COMMITS):
            base.commit()
        medians.append((time.perf_counter() - started) / COMMITS)


def syncs(folder: Path, doubled: bool) -> Gate | str:
    """Syncs of a commit, as the kernel saw them; what a commit of its own in a second file costs is planted."""
    if shutil.which("strace") is None:
        return "syncs were not counted: strace is not installed"
    counted = []
    for number in (0, SYNCED_COMMITS):
        trace = folder / f"trace-{number}"
        command = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
        command += [sys.executable, "-m", "tests.benchmarks.storage", str(folder / f"synced-{number}"), str(number)]
        subprocess.run([*command, *(["--twice"] * doubled)], check=True, timeout=120)
        counted.append(len(_SYNC.findall(trace.read_bytes())))
    each = (counted[1] - counted[0]) / SYNCED_COMMITS
    return Gate("syncs of a commit", each, 1.0, unit="syncs")


async def commit_alone(path: Path, count: int, twice: bool) -> None:
    stores = [await open_store(path)] + ([await open_store(path.with_name(path.name + "-second"))] if twice else [])
    for store in stores:
        await store.transact(lambda tx: tx.put_session(session()))
    for position in range(count):
        for store in stores:
            await commit_once(store, position, 0.0)
    for store in stores:
        await store.close()


# --------------------------------------------------------------------------------- reading


async def fill_items(path: Path, count: int) -> None:
    store = await open_store(path)
    await store.transact(lambda tx: tx.put_session(session()))
    for start in range(0, count, 20_000):

        def write(tx: AgentTx, start: int = start) -> None:
            for position in range(start, min(count, start + 20_000)):
                tx.add_item(item(position, "What does chapter one say?"))

        await store.transact(write)
    await store.close()


async def newest(path: Path, slow_s: float) -> float:
    """Seconds from opening the file to its newest items."""
    started = time.perf_counter()
    store = await open_store(path)

    def read(tx: AgentTx) -> int:
        if slow_s:
            time.sleep(slow_s)
        total = tx.count_items("s")
        return len(tx.items("s", max(0, total - NEWEST), NEWEST, PREVIEW_CHARS))

    found = await store.read(read)
    took = time.perf_counter() - started
    assert found == NEWEST
    await store.close()
    return took


async def listed(path: Path, slow_s: float) -> float:
    """Seconds from opening the file to all of its sessions."""
    started = time.perf_counter()
    store = await open_store(path)

    def read(tx: AgentTx) -> int:
        if slow_s:
            time.sleep(slow_s)
        return len(tx.sessions())

    found = await store.read(read)
    took = time.perf_counter() - started
    assert found == SESSIONS
    await store.close()
    return took


async def look(name: str, measure: Callable[[], "asyncio.Future[float]"], limit_ms: float, rounds: int) -> Gate:
    """The median of a look, made twice a round in turn."""
    first: list[float] = []
    second: list[float] = []
    for _ in range(rounds):
        first.append(await measure() * 1e3)
        second.append(await measure() * 1e3)
    return Gate(name, statistics.median([*first, *second]), limit_ms, aa_noise(first, second), "ms")


async def measure(options: Options, folder: Path, report: Report) -> None:
    slow = options.plant == "slow"
    gates, figure = await commits(folder, options.rounds, 0.002 if slow else 0.0)
    report.gates += gates
    report.figures.append(figure)
    counted = syncs(folder, slow)
    if isinstance(counted, Gate):
        report.gates.append(counted)
    else:
        report.figures.append(counted)
    long = folder / "long.sqlite3"
    await fill_items(long, options.events)
    many = folder / "many.sqlite3"
    store = await open_store(many)

    def fill_sessions(tx: AgentTx) -> None:
        for number in range(SESSIONS):
            tx.put_session(session(f"s{number}", number))

    await store.transact(fill_sessions)
    await store.close()
    rounds = max(5, options.rounds)
    report.gates += [
        await look(
            f"newest {NEWEST} of {options.events:,} events after opening",
            lambda: asyncio.ensure_future(newest(long, 0.03 if slow else 0.0)),
            REOPEN_LIMIT_MS,
            rounds,
        ),
        await look(
            f"{SESSIONS:,} sessions listed after opening",
            lambda: asyncio.ensure_future(listed(many, 0.15 if slow else 0.0)),
            LIST_LIMIT_MS,
            rounds,
        ),
    ]
    report.figures.append(f"{long.stat().st_size / 1e6:.0f} MB for {options.events:,} events")


def run(options: Options) -> Report:
    """All of it in one temporary folder, on the disk that temporary files are on."""
    report = Report("storage")
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        asyncio.run(measure(options, Path(folder), report))
    return report


if __name__ == "__main__":
    asyncio.run(commit_alone(Path(sys.argv[1]), int(sys.argv[2]), "--twice" in sys.argv))
