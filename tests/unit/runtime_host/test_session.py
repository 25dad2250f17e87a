import asyncio

import pytest

from runtime_host.errors import (
    AgentBusyError,
    AgentCapabilityUnsupportedError,
    AgentClosedError,
    AgentEventHistoryExpiredError,
    AgentRequestConflictError,
    AgentRuntimeError,
    AgentScopeMismatchError,
    AgentSessionRecoveryError,
    StorageFailedError,
)
from runtime_host.session import SessionReference
from runtime_host.testing import Hold, Script, ScriptedDriver, reply
from tests.unit.runtime_host.stage import Stage, all_events, kinds, until


def endless() -> Script:
    return Script([*reply("Half")[:1], Hold(asyncio.Event())])


async def test_of_two_inputs_at_once_the_second_is_refused() -> None:
    async with Stage() as stage:
        session = await stage.open()
        answers = await asyncio.gather(session.run("one"), session.run("two"), return_exceptions=True)
        assert [type(answer).__name__ for answer in answers] == ["Run", "AgentBusyError"]
        assert isinstance(answers[1], AgentBusyError)
        assert answers[1].retryable


async def test_a_second_input_is_refused_while_one_runs_and_taken_after_it() -> None:
    async with Stage(endless(), Script(reply("Two."))) as stage:
        session = await stage.open()
        run = await session.run("one")
        with pytest.raises(AgentBusyError):
            await session.run("two")
        assert session.active_run is run
        assert session.inspect_state().active_run_id == run.run_id
        await run.cancel()
        assert session.active_run is None
        assert (await (await session.run("two")).result()).output_text == "Two."
        assert [item.text for item in await stage.items(session.session_id) if item.kind == "user"] == ["one", "two"]


async def test_the_next_input_can_follow_the_last_event_at_once() -> None:
    async with Stage() as stage:
        session = await stage.open()
        for _ in range(3):
            run = await session.run("again")
            async for event in run.events():
                if event.type == "run.finished":
                    break
            await (await session.run("at once")).result()


async def test_the_same_request_is_the_same_run_before_during_and_after() -> None:
    async with Stage(Script(reply("Once."))) as stage:
        session = await stage.open()
        hold = stage.store.hold = asyncio.Event()
        calls = [asyncio.ensure_future(session.run("Hi", request_id="q")) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert session.inspect_state().activity == "admitting"
        with pytest.raises(AgentRequestConflictError):
            await session.run("Other", request_id="q")
        with pytest.raises(AgentBusyError):
            await session.run("Hi", request_id="p")
        hold.set()
        runs = await asyncio.gather(*calls)
        assert runs[0] is runs[1] is runs[2]
        await runs[0].result()
        assert await session.run("Hi", request_id="q") is runs[0]
        assert await session.find_request("q") is runs[0]
        assert await session.find_request("never") is None
        with pytest.raises(AgentRequestConflictError):
            await session.run("Other", request_id="q")
        assert len(stage.driver.turns) == 1
        assert await session.count_items() == 2
        assert session.state == "ready"


async def test_a_known_request_is_answered_while_another_runs() -> None:
    async with Stage(Script(reply("One.")), endless()) as stage:
        session = await stage.open()
        first = await session.run("1", request_id="a")
        await first.result()
        await session.run("2", request_id="b")
        assert await session.run("1", request_id="a") is first
        with pytest.raises(AgentRequestConflictError):
            await session.run("other", request_id="a")


async def test_an_accepted_input_goes_on_when_its_caller_is_cancelled() -> None:
    async with Stage() as stage:
        session = await stage.open()
        hold = stage.store.hold = asyncio.Event()
        call = asyncio.ensure_future(session.run("Hi", request_id="q"))
        await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.wait({call})
        hold.set()
        run = await session.run("Hi", request_id="q")
        assert (await run.result()).status == "completed"
        assert len(stage.driver.turns) == 1


async def test_a_message_that_could_not_be_stored_is_not_sent_and_the_session_goes_on() -> None:
    async with Stage() as stage:
        session = await stage.open()
        failing = stage.store.commits + 1
        stage.store.fail_before = lambda number: number == failing
        with pytest.raises(StorageFailedError):
            await session.run("Hi", request_id="q")
        assert stage.driver.turns == []
        assert session.state == "ready"
        assert (await (await session.run("Hi", request_id="q")).result()).status == "completed"


async def test_a_missing_capability_is_refused_before_anything_is_stored() -> None:
    driver = ScriptedDriver([Script()], capabilities={})
    async with Stage(driver=driver) as stage:
        session = await stage.open()
        commits = stage.store.commits
        with pytest.raises(AgentCapabilityUnsupportedError):
            await session.run("Hi", model="m-2")
        assert (stage.store.commits, session.state, driver.turns) == (commits, "ready", [])


async def test_detach_puts_an_idle_session_away_and_keeps_it() -> None:
    async with Stage() as stage:
        session = await stage.open()
        await (await session.run("Hi")).result()
        reference = session.reference()
        await session.detach()
        await session.detach()
        assert session.state == "detached"
        assert session.inspect_state().connection == "detached"
        assert stage.driver.closes == 1
        record = await stage.memory.read(lambda tx: tx.session(session.session_id))
        assert record is not None
        assert (record.status, record.driver_state) == ("detached", {"version": 1, "turns": 1})
        with pytest.raises(AgentClosedError, match="detached"):
            await session.run("more")
        from tests.unit.runtime_host.stage import ME

        again = await stage.runtime.resume_session(reference, context=ME)
        assert again is not session
        assert (await (await again.run("more")).result()).status == "completed"
        assert stage.driver.openings[-1].state == {"version": 1, "turns": 1}


async def test_detach_while_a_run_goes_on_is_refused_with_a_sentence_and_changes_nothing() -> None:
    async with Stage(endless()) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        with pytest.raises(AgentBusyError, match="would end with the session"):
            await session.detach()
        assert not run.done
        assert stage.driver.cancels == 0
        assert session.state == "running"


async def test_detach_that_cannot_be_stored_keeps_the_reference() -> None:
    async with Stage() as stage:
        session = await stage.open()
        stage.store.fail_before = lambda number: True
        with pytest.raises(AgentSessionRecoveryError) as failed:
            await session.detach()
        assert SessionReference.model_validate(failed.value.details["reference"]) == session.reference()
        assert session.state == "failed"


async def test_destroy_stops_the_run_keeps_the_record_and_is_idempotent() -> None:
    async with Stage(endless()) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: bool(run.open_items()))
        await asyncio.gather(session.destroy(), session.destroy())
        assert (await run.result()).status == "cancelled"
        assert (session.state, stage.driver.cancels, stage.driver.closes) == ("destroyed", 1, 1)
        assert kinds(await stage.items(session.session_id)) == [
            ("user", "complete", "Hi"),
            ("reply", "stopped", "Half"),
        ]
        with pytest.raises(AgentClosedError):
            await session.run("more")
        with pytest.raises(AgentEventHistoryExpiredError):
            await all_events(run)


async def test_an_input_accepted_while_the_session_is_let_go_is_withdrawn() -> None:
    async with Stage() as stage:
        session = await stage.open()
        hold = stage.store.hold = asyncio.Event()
        before = stage.store.commits
        call = asyncio.ensure_future(session.run("Hi"))
        await until(lambda: stage.store.commits > before)
        leaving = asyncio.ensure_future(session.destroy())
        await asyncio.sleep(0.01)
        hold.set()
        run = await call
        await leaving
        assert (await run.result()).status == "cancelled"
        assert stage.driver.turns == []
        assert session.state == "destroyed"


async def test_destroy_ends_even_if_the_native_side_never_does() -> None:
    script = Script([*reply("Half")[:1], Hold(asyncio.Event())], cancel="ignored")
    async with Stage(script, cleanup_s=0.05) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: bool(run.open_items()))
        await session.destroy()
        assert session.state == "destroyed"
        with pytest.raises(AgentSessionRecoveryError):
            await run.result()


async def test_a_session_used_as_a_context_is_let_go_of() -> None:
    async with Stage() as stage:
        async with await stage.open() as session:
            await (await session.run("Hi")).result()
        assert session.state == "destroyed"


async def test_a_run_of_another_session_is_not_found() -> None:
    async with Stage() as stage:
        one, other = await stage.open(), await stage.open()
        run = await one.run("Hi")
        await run.result()
        assert await one.get_run(run.run_id) is run
        with pytest.raises(AgentScopeMismatchError):
            await other.get_run(run.run_id)
        with pytest.raises(AgentScopeMismatchError):
            await one.get_run("run_none")


async def test_sessions_do_not_wait_for_one_another() -> None:
    async with Stage(endless(), Script(reply("Two."))) as stage:
        one, other = await stage.open(), await stage.open()
        first = await one.run("1")
        await until(lambda: bool(first.open_items()))
        assert (await (await other.run("2")).result()).output_text == "Two."
        assert not first.done


async def test_the_transcript_is_read_in_windows() -> None:
    async with Stage(Script(reply("abcdef"))) as stage:
        session = await stage.open()
        for text in ("1", "2"):
            await (await session.run(text)).result()
        window = await session.items(1, 2, preview_chars=3)
        assert [(head.position, head.text, head.size_chars) for head in window] == [(1, "abc", 6), (2, "2", 1)]


async def test_refusals_are_errors_of_the_tree() -> None:
    async with Stage() as stage:
        session = await stage.open()
        await session.destroy()
        with pytest.raises(AgentRuntimeError) as refused:
            await session.detach()
        assert refused.value.error_code == "AGENT_CLOSED"
        assert refused.value.message.endswith(".")
