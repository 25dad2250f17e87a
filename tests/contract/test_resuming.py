"""A session is found again by its reference alone, or refused without a trace; nothing is sent on the way."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from runtime_host.definitions import AgentDefinition
from runtime_host.drivers.base import DriverSession, SessionOpening
from runtime_host.errors import (
    AgentClosedError,
    AgentScopeMismatchError,
    StorageFailedError,
    StorageUnsupportedError,
)
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.storage.base import AgentStore
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing import Script, ScriptedDriver, reply
from tests.unit.runtime_host.stage import AGENT, ME, Stage, session_options, until


def alter(path: Path, change: Callable[[int], int]) -> None:
    """Change the version a file says it has, as another program would."""
    with closing(sqlite3.connect(path)) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        db.execute(f"PRAGMA user_version = {change(version)}")


async def test_an_opening_that_failed_keeps_no_claim_and_works_once_the_file_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite3"

    async def storage(_: str) -> AgentStore:
        return await open_agent_store(path, profile="p", agent=AGENT)

    first = await storage(AGENT)
    async with Stage(Script(reply("One.")), store=first) as stage:
        session = await stage.open()
        run = await session.run("Hi", request_id="q")
        result = await run.result()
    await first.close()
    alter(path, lambda version: version + 1)
    driver = ScriptedDriver([])
    async with AgentRuntime(LocalBackend(drivers=[driver], storage=storage)) as runtime:
        for _ in range(2):
            with pytest.raises(StorageUnsupportedError):
                await runtime.resume_session(session.reference(), context=ME)
    alter(path, lambda version: version - 1)
    repaired = await storage(AGENT)
    async with Stage(store=repaired) as after:
        again = await after.runtime.resume_session(session.reference(), context=ME)
        assert await (await again.get_run(run.run_id)).result() == result
        assert after.driver.turns == []
    await repaired.close()
    assert driver.openings == []


async def test_a_resume_that_could_not_read_is_tried_again_and_sends_nothing() -> None:
    async with Stage(Script(reply("One."))) as stage:
        session = await stage.open()
        await (await session.run("Hi")).result()
    failures = iter([True, False])

    async def storage(_: str) -> AgentStore:
        if next(failures, False):
            raise StorageFailedError("The disk does not answer.")
        return stage.memory

    driver = ScriptedDriver([Script(reply("Two."))])
    async with AgentRuntime(LocalBackend(drivers=[driver], storage=storage)) as runtime:
        with pytest.raises(StorageFailedError):
            await runtime.resume_session(session.reference(), context=ME)
        again = await runtime.resume_session(session.reference(), context=ME)
        assert driver.turns == []
        assert (await (await again.run("More")).result()).output_text == "Two."


async def test_a_session_kept_in_memory_is_not_found_in_another_process() -> None:
    async with Stage() as stage:
        session = await stage.open()
        reference = session.reference()
        async with Stage() as other:
            with pytest.raises(AgentScopeMismatchError):
                await other.runtime.resume_session(reference, context=ME)


async def test_a_runtime_that_closes_during_a_resume_lets_go_of_what_comes_late_and_cancels_nothing() -> None:
    async with Stage() as stage:
        session = await stage.open()
        reference = session.reference()
        await session.detach()

    class SlowDriver(ScriptedDriver):
        async def open(self, opening: SessionOpening) -> DriverSession:
            opened = await super().open(opening)
            await gate.wait()
            return opened

    gate = asyncio.Event()
    driver = SlowDriver([])

    async def storage(_: str) -> AgentStore:
        return stage.memory

    runtime = AgentRuntime(LocalBackend(drivers=[driver], storage=storage))
    resuming = asyncio.ensure_future(runtime.resume_session(reference, context=ME))
    await until(lambda: bool(driver.openings))
    await runtime.aclose()
    gate.set()
    with pytest.raises(AgentClosedError):
        await resuming
    assert (driver.closes, driver.cancels, driver.turns) == (1, 0, [])


async def test_a_borrowed_backend_outlives_its_runtime_and_the_handles_do_not() -> None:
    async with Stage() as stage:
        runtime = AgentRuntime(stage.backend, backend_ownership="borrowed")
        agent = runtime.create_agent(AgentDefinition(id=AGENT, instructions="Be kind."))
        session = await agent.open_session(session_options())
        await runtime.aclose()
        with pytest.raises(AgentClosedError):
            await session.run("Hi")
        with pytest.raises(AgentClosedError):
            await agent.open_session(session_options())
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        assert (await (await again.run("Hi")).result()).status == "completed"
