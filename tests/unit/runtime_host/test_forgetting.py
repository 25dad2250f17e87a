"""What a harness keeps of a session goes when the session is destroyed or deleted, and at no other moment."""

import asyncio
from typing import Any

import pytest

from runtime_host.drivers.base import DriverSession, SessionOpening
from runtime_host.errors import AgentDriverNotFoundError, AgentNativeExecutionError, AgentScopeMismatchError
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.testing import Script, ScriptedDriver, reply
from tests.unit.runtime_host.stage import ME, Stage

LATE = OSError("folder is in use")


async def test_a_destroyed_session_is_forgotten_after_it_was_closed_and_its_record_stays() -> None:
    order: list[str] = []

    class Ordered(ScriptedDriver):
        async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
            order.append(f"{agent_id} {self.closes}")
            await super().forget(agent_id, session_id, state)

    async with Stage(driver=Ordered([Script(reply("Hello."))])) as stage:
        session = await stage.open()
        await (await session.run("Hi")).result()
        await session.destroy()
        await session.destroy()
        assert order == ["assistant 1"]
        assert stage.driver.forgotten == [(session.session_id, {"version": 1, "turns": 1})]
        assert len(await stage.items(session.session_id)) == 2


async def test_letting_go_keeps_what_the_harness_has() -> None:
    async with Stage() as stage:
        detached, kept, closing = await stage.open(), await stage.open(), await stage.open()
        await detached.detach()
        await kept.destroy(forget=False)
        assert kept.state == "destroyed"
    assert closing.state == "destroyed"
    assert stage.driver.forgotten == []


@pytest.mark.parametrize("opened", [True, False])
async def test_a_deleted_session_is_forgotten_once_open_or_not(opened: bool) -> None:
    async with Stage() as stage:
        session = await stage.open()
        await (await session.run("Hi")).result()
        if not opened:
            await session.detach()
        await stage.runtime.delete_session(session.reference(), context=ME)
        assert stage.driver.forgotten == [(session.session_id, {"version": 1, "turns": 1})]
        with pytest.raises(AgentScopeMismatchError):
            await stage.runtime.resume_session(session.reference(), context=ME)


async def test_what_cannot_be_removed_keeps_the_reference_and_says_so() -> None:
    async with Stage() as stage:
        session = await stage.open()
        reference = session.reference()
        stage.driver.forget_fails = LATE
        with pytest.raises(AgentNativeExecutionError, match="could not remove what it keeps") as told:
            await stage.runtime.delete_session(reference, context=ME)
        assert told.value.native_code == "FORGET_FAILED"
        stage.driver.forget_fails = None
        assert (
            await (await (await stage.runtime.resume_session(reference, context=ME)).run("Hi")).result()
        ).output_text
        await stage.runtime.delete_session(reference, context=ME)
        with pytest.raises(AgentScopeMismatchError):
            await stage.runtime.delete_session(reference, context=ME)


async def test_a_destroy_that_cannot_remove_says_so_and_a_delete_tries_again() -> None:
    async with Stage() as stage:
        session = await stage.open()
        stage.driver.forget_fails = LATE
        with pytest.raises(AgentNativeExecutionError):
            await session.destroy()
        assert (session.state, stage.driver.closes) == ("destroyed", 1)
        stage.driver.forget_fails = None
        await stage.runtime.delete_session(session.reference(), context=ME)
        assert len(stage.driver.forgotten) == 2


async def test_a_harness_that_does_not_answer_holds_nobody_up() -> None:
    class Slow(ScriptedDriver):
        async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
            await asyncio.Event().wait()

    async with Stage(driver=Slow([Script()]), forget_s=0.02) as stage:
        session = await stage.open()
        with pytest.raises(AgentNativeExecutionError):
            await stage.runtime.delete_session(session.reference(), context=ME)
        assert (await stage.runtime.resume_session(session.reference(), context=ME)).state == "ready"


async def test_without_its_harness_a_session_is_not_deleted() -> None:
    async with Stage() as stage:
        session = await stage.open()
        await session.detach()
        other = LocalBackend(drivers=[ScriptedDriver([Script()], driver_id="another")], storage=stage.backend.storage)
        async with AgentRuntime(other) as runtime:
            with pytest.raises(AgentDriverNotFoundError):
                await runtime.delete_session(session.reference(), context=ME)
        assert (await stage.runtime.resume_session(session.reference(), context=ME)).state == "ready"


@pytest.mark.parametrize("removable", [True, False])
async def test_a_session_that_does_not_open_leaves_nothing_without_an_owner(removable: bool) -> None:
    class Halfway(ScriptedDriver):
        async def open(self, opening: SessionOpening) -> DriverSession:
            raise AgentNativeExecutionError("The program did not start.")

    async with Stage(driver=Halfway([Script()])) as stage:
        stage.driver.forget_fails = None if removable else LATE
        with pytest.raises(AgentNativeExecutionError, match="did not start"):
            await stage.open()
        records = await stage.memory.read(lambda tx: tx.sessions())
        assert len(stage.driver.forgotten) == 1
        assert [record.session_id for record in records] == ([] if removable else [stage.driver.forgotten[0][0]])
