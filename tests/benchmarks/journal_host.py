"""One measurement of the journal in a process of its own, so that a library can stand before its disk.

    python -m tests.benchmarks.journal_host KIND FOLDER COUNT [--plant]

KIND: `delays` of stamped pieces at 2,000 a second, from the harness to a reader, while items are being made
durable; `growth` of the process over so many events of a run that nobody reads; `pump`, processor time an
event. Prints JSON.
"""

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from runtime_host.intake import Intake
from runtime_host.journal import Journal
from runtime_host.redaction import Published, Redactor
from runtime_host.run import Run, Windows
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.storage.base import AgentStore
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.transcript import Transcript
from tests.benchmarks.loads import DEFINITION, OPTIONS, Load, LoadDriver, Stamps, pieces, tool_event

RATE = 2_000.0
OFTEN_S = 0.05
"""Between two checkpoints: the disk is kept busy all the time."""
SECRET = "sk-canary-3f9A/x+0Zq7=Lm-and-some-more-of-it"
WARM = 200_000
"""Events that fill what is made once, the database's page cache too."""
BATCHES = 5
"""The best of so many: what else the machine does only ever adds."""


async def run_of(folder: Path, load: Load, watch: "Watch") -> None:
    store = await open_agent_store(folder / "agent.sqlite3", profile="bench", agent=DEFINITION.id)

    async def storage(agent_id: str) -> AgentStore:
        return store

    driver = LoadDriver({"warm": pieces(WARM), "go": load})
    backend = LocalBackend(drivers=[driver], storage=storage, windows=Windows(checkpoint_s=OFTEN_S))
    backend.redactor.add(SECRET)  # type: ignore[attr-defined]  # the runtime's own, where no connector brings one
    async with AgentRuntime(backend) as runtime:
        session = await runtime.create_agent(DEFINITION).open_session(OPTIONS)
        await (await session.run("warm")).result()
        run = await session.run("go")
        await watch.until_end(run)
    await store.close()


class Watch:
    """What is looked at while a run goes on."""

    async def until_end(self, run: Run) -> None:
        await run.result()


class Delays(Watch):
    def __init__(self) -> None:
        self.stamps = Stamps()
        self._cursor = 0

    async def until_end(self, run: Run) -> None:
        leave = run.journal.subscribe(lambda: self._read(run))
        await run.result()
        leave()

    def _read(self, run: Run) -> None:
        taken = run.journal.read(self._cursor, 10_000)
        now_ns = time.monotonic_ns()
        for event in taken.events:
            if event.type == "agent.message.delta":
                self.stamps.take(event.data["id"], event.data["text"], now_ns)
        self._cursor = taken.next_cursor(self._cursor)


class Growth(Watch):
    def __init__(self, hoards: bool) -> None:
        self._hoards = hoards
        self._hoard: list[Any] = []
        self.bytes = 0

    async def until_end(self, run: Run) -> None:
        before = resident_bytes()
        reader = run.events()
        await anext(reader)
        if self._hoards:
            self._hoard = [event async for event in reader]
        await run.result()
        self.bytes = resident_bytes() - before
        await reader.aclose()  # type: ignore[attr-defined]  # a generator, as every reader is


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pump_us(count: int, plant: bool) -> float:
    """Processor time in µs an event of a tool, from what a driver yields to what the journal keeps, with a secret."""
    known = Redactor()
    known.add(SECRET)
    redactor = Published(known)
    journal = Journal(
        run_id="run_" + "0" * 32,
        session_id="session_" + "0" * 32,
        budget_bytes=1024 * 1024,
        schedule=lambda callback: None,
    )
    transcript = Transcript(
        session_id="s", run_id="r", first_position=1, redactor=redactor, limit_bytes=None, now_ms=lambda: 0
    )
    intake = Intake(journal=journal, transcript=transcript, redactor=redactor, grown=lambda: None, ended=lambda: None)
    events = [tool_event(number) for number in range(count)]
    best = float("inf")
    for _ in range(BATCHES):
        started = time.process_time()
        for event in events:
            for _ in range(20 if plant else 0):
                redactor.value(event.data)
            intake.take(event)
        best = min(best, (time.process_time() - started) / count * 1e6)
    return best


def main() -> None:
    kind, folder, count, *rest = sys.argv[1:]
    plant = "--plant" in rest
    told: Any
    if kind == "delays":
        delays = Delays()
        load = pieces(int(count), RATE, block_s=0.01 if plant else 0.0)
        asyncio.run(run_of(Path(folder), load, delays))
        told = delays.stamps.delays_ms
    elif kind == "growth":
        growth = Growth(plant)
        asyncio.run(run_of(Path(folder), pieces(int(count)), growth))
        told = growth.bytes
    else:
        told = pump_us(int(count), plant)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
