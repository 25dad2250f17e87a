"""The Codex driver under the desktop's guard: what becomes of a turn, and what is left, when either is killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable

import pytest

from desktop.harness_programs import HarnessPrograms
from desktop.process import descendants
from runtime_host.drivers.base import SessionOpening
from runtime_host.drivers.codex.session import CodexSession
from tests.loopback.codex_bench import CodexBench, ask, bench_of, of_type, to_the_end, turn_for
from tests.loopback.far_side import Use

pytestmark = [pytest.mark.process, pytest.mark.needs("codex", "linux", "user-namespaces")]

FOREVER = {"cmd": "while :; do date > goes-on; sleep 0.05; done", "yield_time_ms": 30000}


@pytest.fixture
async def bench() -> AsyncIterator[CodexBench]:
    async with bench_of() as bench:
        yield bench


async def opened(bench: CodexBench) -> CodexSession:
    driver = bench.driver(programs=HarnessPrograms(hidden=(str(bench.data),)))
    return await driver.open(SessionOpening("session", bench.definition, bench.options))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("victim", ["cli", "guard"])
async def test_whichever_is_killed_ends_the_turn_and_leaves_nothing(bench: CodexBench, victim: str) -> None:
    marker = bench.workspace / "goes-on"
    before = descendants(os.getpid())
    session = await opened(bench)
    bench.model.answer([Use("exec_command", FOREVER)])
    run = await session.start(turn_for("Work."))
    reading = asyncio.ensure_future(to_the_end(run))
    await until(marker.exists)
    await asyncio.sleep(0.3)
    assert session._server is not None
    program = session._server.program
    os.kill(program.pid if victim == "cli" else program.guard_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    events, result = await asyncio.wait_for(reading, 10)
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.code == "CODEX_STREAM_INCOMPLETE"
    assert [data["status"] for data in of_type(events, "command.completed")] == ["interrupted"]
    marker.unlink()
    await asyncio.sleep(0.3)
    assert not marker.exists(), "a command outlived the CLI that began it"
    # What it covers the folder's settings with stood there while the command ran.
    assert [name for name in (".git", ".codex", ".agents", ".aws") if (bench.workspace / name).exists()] == []
    _, after = await ask(session, "Again.")
    assert after.status == "completed"
    await session.close()
    await until(lambda: descendants(os.getpid()) == before)
