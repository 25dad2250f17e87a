"""The real Claude CLI under the desktop's guard: what is left when one of them is killed."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator

import psutil
import pytest

from desktop.harness_programs import HarnessPrograms
from tests.loopback.claude_harness import Reading, Stage, is_there, needs_claude, say, staged, turn_for, until
from tests.loopback.far_side import Hang, Say

pytestmark = [pytest.mark.process, pytest.mark.needs("linux"), needs_claude]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged(HarnessPrograms()) as made:
        yield made


@pytest.mark.parametrize("victim", ["cli", "guard"])
async def test_a_run_whose_cli_or_guard_is_killed_fails_and_the_session_goes_on(stage: Stage, victim: str) -> None:
    session = await stage.session()
    await say(session, "My name is Ada.")
    stage.model.answer([Say("The capital"), Hang()])
    run = await session.start(turn_for("What is my name?", "run_2"))
    reading = Reading(run)
    await reading.shown("The capital")
    [program] = stage.programs.started
    below = [each.pid for each in psutil.Process(program.guard_pid).children(recursive=True)]  # type: ignore[attr-defined]
    assert program.pid in below
    os.kill(program.pid if victim == "cli" else program.guard_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    result = await reading.outcome()
    assert result.result.status == "failed"
    assert result.result.output_text == "The capital"
    await until(lambda: not any(map(is_there, below)))
    await until(lambda: stage.model.hanging == 0)
    stage.model.let_go()
    assert (await say(session, "And now?", run_id="run_3")).result.status == "completed"
    await session.close()
    assert stage.programs.living() == []


async def test_a_host_that_is_killed_leaves_no_cli_and_its_session_goes_on(stage: Stage) -> None:
    stage.model.answer(Say("Hello, Ada."))
    stage.model.answer([Say("The capital", pieces=1), Hang()])
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.process.claude_host", stage.model.base_url, stage.folder),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert host.stdout is not None
        async with asyncio.timeout(40):
            told = json.loads(await host.stdout.readline())
        # What it has not written down yet is lost to it with its death.
        await until(lambda: "What is my name?" in stage.record().read_text("utf-8"))
    finally:
        host.kill()
        await host.wait()
    assert len(told["below"]) >= 2
    await until(lambda: not any(map(is_there, told["below"])))
    await until(lambda: stage.model.hanging == 0)
    session = await stage.session(state=told["state"])
    assert (await say(session, "And now?", run_id="run_3")).result.status == "completed"
    assert [each.text for each in stage.model.inputs] == ["My name is Ada.", "What is my name?", "And now?"]
    await session.close()
