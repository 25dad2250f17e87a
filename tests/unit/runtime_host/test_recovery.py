"""What a crash leaves, and what the next process makes of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from runtime_host.errors import (
    AgentBusyError,
    AgentDriverConfigurationError,
    AgentEventHistoryExpiredError,
    AgentRequestConflictError,
    AgentSessionRecoveryError,
    StorageError,
    StorageFailedError,
)
from runtime_host.recovery import take_stock
from runtime_host.run import Run
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing import Hold, Script, ScriptedDriver, reply
from tests.unit.runtime_host.stage import AGENT, ME, Stage, all_events, kinds, until


def half() -> Script:
    return Script([*reply("Half")[:1], Hold(asyncio.Event())])


async def crash(stage: Stage) -> None:
    """End the process: nothing it still does reaches the store."""
    stage.store.hold = asyncio.Event()
    stage.store.fail_before = lambda number: True
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if "runtime_host" in repr(task.get_coro()) or "_Drive" in repr(task):
            task.cancel()
    await asyncio.sleep(0)
    stage.store.hold.set()
    await asyncio.sleep(0)


async def test_a_dispatched_run_is_unknown_keeps_its_text_and_is_never_sent_again() -> None:
    stage = Stage(half())
    session = await stage.open()
    run = await session.run("Hi", request_id="q")
    await until(lambda: bool(run.open_items()))
    await until(lambda: stage.store.commits >= 4)
    await crash(stage)
    async with Stage(Script(reply("Next.")), store=stage.memory) as after:
        [recovered] = await after.runtime.recover(AGENT)
        assert (recovered.session_id, recovered.run_id, recovered.outcome) == (
            session.session_id,
            run.run_id,
            "unknown",
        )
        items = await after.items(session.session_id)
        assert kinds(items)[:2] == [("user", "complete", "Hi"), ("reply", "unknown", "Half")]
        assert (items[2].kind, items[2].state, items[2].code) == ("notice", "unknown", "RUN_UNKNOWN")
        again = await after.runtime.resume_session(session.reference(), context=ME)
        same = await again.run("Hi", request_id="q")
        assert (same.run_id, same.state) == (run.run_id, "unknown")
        with pytest.raises(AgentSessionRecoveryError):
            await same.result()
        with pytest.raises(AgentRequestConflictError):
            await again.run("Other", request_id="q")
        assert after.driver.turns == []
        assert await after.runtime.recover(AGENT) == []
        # What ran died with its process, so the session goes on.
        assert (await (await again.run("Go on")).result()).output_text == "Next."
        assert len(await after.items(session.session_id)) == 5


async def test_an_admitted_run_is_sent_once_by_the_next_process() -> None:
    stage = Stage()
    session = await stage.open()
    stage.store.hold = asyncio.Event()
    stage.store.hold_after = stage.store.commits + 1
    run = await session.run("Hi", request_id="q", model="m-2")
    await crash(stage)
    assert stage.driver.turns == []
    async with Stage(Script(reply("Sent.")), store=stage.memory) as after:
        both = await asyncio.gather(after.runtime.recover(AGENT), after.runtime.recover(AGENT))
        [recovered] = [each for some in both for each in some]
        assert (recovered.outcome, recovered.run_id) == ("dispatched", run.run_id)
        assert recovered.run is not None
        assert recovered.session is not None
        result = await recovered.run.result()
        assert (result.status, result.output_text, result.configuration["model"]) == ("completed", "Sent.", "m-2")
        assert [turn.text for turn in after.driver.turns] == ["Hi"]
        assert await recovered.session.run("Hi", request_id="q", model="m-2") is recovered.run
        assert kinds(await after.items(session.session_id)) == [
            ("user", "complete", "Hi"),
            ("reply", "complete", "Sent."),
        ]


async def test_resuming_a_session_sends_what_it_never_sent() -> None:
    stage = Stage()
    session = await stage.open()
    stage.store.hold = asyncio.Event()
    stage.store.hold_after = stage.store.commits + 1
    run = await session.run("Hi")
    await crash(stage)
    async with Stage(Script(reply("Sent.")), store=stage.memory) as after:
        again = await after.runtime.resume_session(session.reference(), context=ME)
        active = again.active_run
        assert active is not None
        assert active.run_id == run.run_id
        with pytest.raises(AgentBusyError):
            await again.run("More")
        assert (await active.result()).status == "completed"
        assert len(after.driver.turns) == 1


async def test_an_admitted_run_that_can_no_longer_be_sent_has_failed() -> None:
    stage = Stage()
    session = await stage.open()
    stage.store.hold = asyncio.Event()
    stage.store.hold_after = stage.store.commits + 1
    run = await session.run("Hi", request_id="q")
    await crash(stage)
    refusing = ScriptedDriver([], open_fails=AgentDriverConfigurationError("The connector is gone."))
    async with Stage(driver=refusing, store=stage.memory) as after:
        [recovered] = await after.runtime.recover(AGENT)
        assert recovered.outcome == "failed"
        assert kinds(await after.items(session.session_id))[-1] == ("notice", "failed", "The connector is gone.")
        refusing.open_fails = None
        again = await after.runtime.resume_session(session.reference(), context=ME)
        result = await (await again.run("Hi", request_id="q")).result()
        assert (result.run_id, result.status) == (run.run_id, "failed")
        assert result.error is not None
        assert result.error.code == "AGENT_DRIVER_CONFIGURATION"
        assert refusing.turns == []


async def test_a_finished_run_is_the_same_after_a_restart_and_its_events_are_history() -> None:
    async with Stage() as stage:
        session = await stage.open()
        run = await session.run("Hi", request_id="q")
        result = await run.result()
        newest = run.journal.last_sequence
    async with Stage(store=stage.memory) as after:
        again = await after.runtime.resume_session(session.reference(), context=ME)
        same = await again.run("Hi", request_id="q")
        assert same.run_id == run.run_id
        assert await same.result() == result
        assert same.done
        await same.cancel()
        with pytest.raises(AgentEventHistoryExpiredError):
            await all_events(same)
        assert same.journal.last_sequence >= newest, "a number would be used twice"
        assert after.driver.turns == []


async def test_runs_of_this_process_are_left_alone() -> None:
    async with Stage(half()) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: bool(run.open_items()))
        assert await stage.runtime.recover(AGENT) == []
        assert not run.done
        other = await stage.open()
        hold = stage.store.hold = asyncio.Event()
        recovering = asyncio.ensure_future(stage.runtime.recover(AGENT))
        admitting = asyncio.ensure_future(other.run("Hi too"))
        await asyncio.sleep(0.01)
        hold.set()
        assert await recovering == []
        second = await admitting
        await until(lambda: bool(second.open_items()))
        assert [turn.text for turn in stage.driver.turns] == ["Hi", "Hi too"]


async def test_a_commit_whose_answer_was_lost_is_still_one_message() -> None:
    async with Stage(Script(reply("Once."))) as stage:
        session = await stage.open()
        lost = stage.store.commits + 1
        stage.store.fail_after = lambda number: number == lost
        with pytest.raises(StorageFailedError):
            await session.run("Hi", request_id="q")
        assert stage.driver.turns == []
    async with Stage(Script(reply("Once.")), store=stage.memory) as after:
        again = await after.runtime.resume_session(session.reference(), context=ME)
        run = await again.run("Hi", request_id="q")
        assert (await run.result()).output_text == "Once."
        assert len(after.driver.turns) == 1
        assert [item.text for item in await after.items(session.session_id) if item.kind == "user"] == ["Hi"]


@pytest.mark.parametrize("how", ["repeat", "recover"])
async def test_a_lost_answer_is_made_up_for_in_the_same_process(how: str) -> None:
    async with Stage(Script(reply("Once."))) as stage:
        session = await stage.open()
        lost = stage.store.commits + 1
        stage.store.fail_after = lambda number: number == lost
        with pytest.raises(StorageFailedError):
            await session.run("Hi", request_id="q")
        if how == "recover":
            [recovered] = await stage.runtime.recover(AGENT)
            assert recovered.session is session
        run = await session.run("Hi", request_id="q")
        assert (await run.result()).output_text == "Once."
        assert await session.run("Hi", request_id="q") is run
        assert len(stage.driver.turns) == 1
        assert len(stage.driver.openings) == 1
        assert kinds(await stage.items(session.session_id)) == [
            ("user", "complete", "Hi"),
            ("reply", "complete", "Once."),
        ]


async def test_inputs_that_were_never_sent_are_sent_one_after_the_other() -> None:
    stage = Stage()
    session = await stage.open()
    for text in ("one", "two"):
        lost = stage.store.commits + 1
        stage.store.fail_after = lambda number, lost=lost: number == lost  # type: ignore[misc]
        with pytest.raises(StorageFailedError):
            await session.run(text, request_id=text)
    await crash(stage)
    async with Stage(Script(reply("First.")), Script(reply("Second.")), store=stage.memory) as after:
        again = await after.runtime.resume_session(session.reference(), context=ME)
        for text, answer in (("one", "First."), ("two", "Second.")):
            await until(lambda: again.state == "ready")
            run = await again.run(text, request_id=text)
            assert (await run.result()).output_text == answer
        assert [turn.text for turn in after.driver.turns] == ["one", "two"]
        assert [message[:2] for message in await after.driver.turns[1].read_transcript()] == [
            ("user", "one"),
            ("assistant", "First."),
        ]
        assert [item.text for item in await after.items(session.session_id)] == ["one", "two", "First.", "Second."]


async def test_a_file_keeps_what_memory_keeps(tmp_path: Path) -> None:
    async def file_store() -> AgentStore:
        return await open_agent_store(tmp_path / "agent.sqlite3", profile="p", agent=AGENT)

    first = await file_store()
    async with Stage(Script(reply("One.", pieces=2)), store=first) as stage:
        session = await stage.open(driver_config={"nested": {"list": [1, {"a": None}]}})
        result = await (await session.run("1", request_id="q", metadata={"tags": ["x"]})).result()
    await first.close()
    second = await file_store()
    half_stage = Stage(half(), store=second)
    again = await half_stage.runtime.resume_session(session.reference(), context=ME)
    assert await (await again.run("1", request_id="q", metadata={"tags": ["x"]})).result() == result
    lost = await again.run("2")
    before = half_stage.store.commits
    await until(lambda: bool(lost.open_items()))
    await until(lambda: half_stage.store.commits > before)
    await crash(half_stage)
    await second.close()
    third = await file_store()
    async with Stage(Script(reply("Three.")), store=third) as after:
        [recovered] = await after.runtime.recover(AGENT)
        assert (recovered.run_id, recovered.outcome) == (lost.run_id, "unknown")
        back = await after.runtime.resume_session(session.reference(), context=ME)
        assert back.options.execution.driver_config == {"nested": {"list": (1, {"a": None})}}
        assert after.driver.openings[0].state == {"version": 1, "turns": 1}
        assert (await (await back.run("3")).result()).output_text == "Three."
        assert [item.kind for item in await after.items(session.session_id)] == [
            "user",
            "reply",
            "user",
            "reply",
            "notice",
            "user",
            "reply",
        ]
        await after.runtime.delete_session(session.reference(), context=ME)
        assert await after.items(session.session_id) == []
    await third.close()


async def test_taking_stock_twice_settles_once() -> None:
    stage = Stage(half())
    session = await stage.open()
    await session.run("Hi")
    await until(lambda: bool(stage.driver.turns))
    await crash(stage)
    for expected in (1, 0):
        stock = await stage.memory.transact(lambda tx: take_stock(tx, live=(), session_id=None, now_ms=1))
        assert len(stock.unknown) == expected
    notices = [item for item in await stage.items(session.session_id) if item.kind == "notice"]
    assert len(notices) == 1


async def test_an_end_whose_answer_was_lost_is_verified_and_acknowledged_anew() -> None:
    async with Stage(Script(reply("Once."))) as stage:
        session = await stage.open()
        dispatched = stage.store.commits + 2
        stage.store.fail_after = lambda number: number > dispatched
        run = await session.run("Hi")
        with pytest.raises(AgentSessionRecoveryError):
            await run.result()
        stage.store.fail_after = lambda number: False
        asked = stage.store.commits
        before = await stage.run_record(run.run_id)
        assert before is not None
        assert before.phase == "completed"
        again = await session.get_run(run.run_id)
        assert (await again.result()).output_text == "Once."
        assert stage.store.commits > asked, "nothing acknowledged it"
        assert await stage.run_record(run.run_id) == before
        assert len(stage.driver.turns) == 1


async def test_an_end_that_differs_from_the_stored_one_blocks_and_is_not_written() -> None:
    async with Stage(Script(reply("Once."))) as stage:
        session = await stage.open()
        dispatched = stage.store.commits + 2
        stage.store.fail_before = lambda number: number > dispatched
        run = await session.run("Hi")
        with pytest.raises(AgentSessionRecoveryError):
            await run.result()
        stage.store.fail_before = lambda number: False
        # Somebody else has settled it meanwhile, without the claim that forbids it.
        await stage.memory.transact(lambda tx: take_stock(tx, live=(), session_id=None, now_ms=1))
        settled = await stage.run_record(run.run_id)
        for _ in range(2):
            with pytest.raises(StorageError, match="What is stored stands") as conflict:
                await session.get_run(run.run_id)
            assert conflict.value.error_code == "STORAGE_CONFLICT"
            assert conflict.value.details["stored"] == "unknown"
        assert await stage.run_record(run.run_id) == settled
        assert len(stage.driver.turns) == 1
        with pytest.raises(AgentSessionRecoveryError):
            await session.run("More")


class RunMachine(RuleBasedStateMachine):
    """Any order of inputs, repeats, stops, ends, store failures, crashes and restarts over one session.

    Whatever happened: an acknowledged message is there exactly once, it was sent at most once, its
    request id stands for one run for ever, and a result once given never changes.
    """

    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.memory = MemoryAgentStore()
        self.sent: list[str] = []
        self.acknowledged: dict[str, str] = {}
        self.results: dict[str, Any] = {}
        self.unknown: set[str] = set()
        self.gates: list[asyncio.Event] = []
        self.counter = 0
        self.stage = self._stage()
        self.session: Session

    def _stage(self) -> Stage:
        def script(turn: Any) -> Script:
            self.sent.append(turn.run_id)
            gate = asyncio.Event()
            self.gates.append(gate)
            events = reply(f"Answer to {turn.text}", pieces=2)
            return Script([events[0], Hold(gate), *events[1:]])

        return Stage(store=self.memory, driver=ScriptedDriver(script), cleanup_s=0.02, checkpoint_s=0.001)

    def go(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def open(self) -> None:
        self.session = self.go(self.stage.open())

    async def _input(self, request_id: str, text: str) -> Run | None:
        try:
            run = await self.session.run(text, request_id=request_id)
        except (AgentBusyError, AgentSessionRecoveryError, StorageFailedError):
            return None
        known = self.acknowledged.setdefault(request_id, run.run_id)
        assert known == run.run_id, "one request, two runs"
        return run

    @rule(target=requests, text=st.sampled_from(["a", "b"]))
    def new_input(self, text: str) -> tuple[str, str]:
        self.counter += 1
        request_id = f"q{self.counter}"
        self.go(self._input(request_id, text))
        return request_id, text

    @rule(request=requests)
    def repeat(self, request: tuple[str, str]) -> None:
        self.go(self._input(*request))

    @rule(request=requests)
    def conflicting(self, request: tuple[str, str]) -> None:
        if request[0] in self.acknowledged:
            with pytest.raises(
                (AgentRequestConflictError, AgentBusyError, AgentSessionRecoveryError, StorageFailedError)
            ):
                self.go(self.session.run("something else", request_id=request[0]))

    @rule()
    def let_it_finish(self) -> None:
        async def finish() -> None:
            run = self.session.active_run
            for _ in range(50):
                for gate in self.gates:
                    gate.set()
                if run is None or run.done:
                    break
                await asyncio.sleep(0.001)

        self.go(finish())

    @rule()
    def stop(self) -> None:
        async def stop() -> None:
            run = self.session.active_run
            if run is not None:
                try:
                    await run.cancel()
                except AgentSessionRecoveryError:
                    return
                assert (await run.result()).status == "cancelled"

        self.go(stop())

    @rule(ahead=st.integers(1, 3), after=st.booleans())
    def store_fails_soon(self, ahead: int, after: bool) -> None:
        failing = self.stage.store.commits + ahead
        if after:
            self.stage.store.fail_after = lambda number: number == failing
        else:
            self.stage.store.fail_before = lambda number: number == failing

    @rule(turns=st.integers(0, 12))
    def time_passes(self, turns: int) -> None:
        async def pass_() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.go(pass_())

    @rule(recover_first=st.booleans())
    def crash_and_restart(self, recover_first: bool) -> None:
        async def restart() -> None:
            await crash(self.stage)
            reference = self.session.reference()
            self.stage = self._stage()
            if recover_first:
                await self.stage.runtime.recover(AGENT)
            self.session = await self.stage.runtime.resume_session(reference, context=ME)

        self.go(restart())

    @rule()
    def leave_and_resume(self) -> None:
        async def resume() -> None:
            reference = self.session.reference()
            try:
                await self.session.detach()
            except (AgentBusyError, AgentSessionRecoveryError):
                await self.session.destroy()
            self.session = await self.stage.runtime.resume_session(reference, context=ME)

        try:
            self.go(resume())
        except StorageFailedError:
            self.crash_and_restart(False)

    @rule(request=consumes(requests))
    def look_again(self, request: tuple[str, str]) -> None:
        async def look() -> None:
            run = await self.session.find_request(request[0])
            if run is None:
                assert request[0] not in self.acknowledged
                return
            assert self.acknowledged.setdefault(request[0], run.run_id) == run.run_id
            if run.done:
                try:
                    result = await run.result()
                except AgentSessionRecoveryError:
                    assert run.run_id not in self.results, "a result was given and taken back"
                    return
                assert self.results.setdefault(run.run_id, result) == result

        self.go(look())

    @invariant()
    def acknowledged_is_there_once_and_sent_at_most_once(self) -> None:
        async def check() -> None:
            if not hasattr(self, "session"):
                return
            session_id = self.session.session_id
            items = await self.stage.items(session_id)
            users = [item.run_id for item in items if item.kind == "user"]
            assert len(users) == len(set(users))
            for run_id in self.acknowledged.values():
                assert users.count(run_id) == 1
            assert len(self.sent) == len(set(self.sent)), "an input was sent twice"
            runs = await self.memory.read(lambda tx: tx.runs(session_id))
            for run in runs:
                if run.phase in ("completed", "failed", "cancelled", "incomplete"):
                    assert run.result is not None
                    open_items = [item for item in items if item.run_id == run.run_id and item.state == "open"]
                    assert open_items == []

        self.go(check())

    def teardown(self) -> None:
        async def end() -> None:
            self.stage.store.fail_before = lambda number: False
            self.stage.store.fail_after = lambda number: False
            await self.stage.runtime.aclose()
            await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.go(end())
        self.loop.close()


TestRunMachine = RunMachine.TestCase
# 1,000 histories in the long run.
TestRunMachine.settings = settings(
    max_examples=max(40, settings.default.max_examples // 5 if settings.default else 0),
    stateful_step_count=25,
    deadline=None,
)
