"""A run that waits for a person, and what is queued behind one: nothing held meanwhile, nothing lost, nothing twice."""

import asyncio
from collections.abc import Callable

import pytest

from runtime_host.drivers.base import Turn
from runtime_host.errors import AgentBusyError, AgentDriverConfigurationError, AgentSessionRecoveryError
from runtime_host.loop import lane
from runtime_host.run import Run
from runtime_host.session import Session
from runtime_host.storage.base import AgentTx
from runtime_host.storage.rows import ApprovalRow, InboxRow, OperationRow
from runtime_host.testing import Script, ScriptedDriver, reply
from runtime_host.testing.scripted import Fail, Hold
from runtime_host.tools.base import CallHeldError
from tests.unit.runtime_host.stage import AGENT, ME, Stage

OPERATION = "op_1"


def held_driver(*, holds: int = 1) -> ScriptedDriver:
    """One whose run meets a held call so often before it answers."""
    starts: dict[str, int] = {}

    def script(turn: Turn) -> Script:
        starts[turn.run_id] = starts.get(turn.run_id, 0) + 1
        if starts[turn.run_id] <= holds and turn.text.startswith("Delete"):
            return Script([Fail(CallHeldError((OPERATION,)))])
        return Script(reply(f"Answer to {turn.text}"))

    driver = ScriptedDriver(script)
    driver.parks = driver.resumes = True  # type: ignore[attr-defined]  # what a driver may say of itself
    return driver


async def hold(stage: Stage, session: Session, run_id: str, *, expires_ms: int | None = None) -> None:
    """What the gate writes of a held call."""

    def write(tx: AgentTx) -> None:
        about = {"session_id": session.session_id, "run_id": run_id, "mount_alias": "files", "tool": "delete"}
        tx.put_row(
            OperationRow(
                operation_id=OPERATION,
                call_id="call_1",
                installation_id="i",
                tool_version="1",
                side_effects="write",
                replay="never",
                status="pending",
                **about,  # type: ignore[arg-type]
            )
        )
        tx.put_row(
            ApprovalRow(
                operation_id=OPERATION,
                request={"tool": "delete", "args": {}, "held_by": "policy"},
                request_hash="h",
                depends_on={},
                held_by="policy",
                expires_ms=expires_ms,
                **about,  # type: ignore[arg-type]
            )
        )

    await stage.memory.transact(write)


async def decide(stage: Stage, state: str = "approved") -> None:
    def write(tx: AgentTx) -> None:
        approval = tx.row(ApprovalRow, OPERATION)
        assert approval is not None
        tx.put_row(
            ApprovalRow(**{name: getattr(approval, name) for name in approval.__struct_fields__} | {"state": state})
        )

    await stage.memory.transact(write)


async def park(stage: Stage, session: Session, text: str = "Delete it") -> Run:
    """A run that waits for a person."""
    stage.store.hold, stage.store.hold_after = asyncio.Event(), stage.store.commits + 1
    run = await session.run(text)
    await hold(stage, session, run.run_id)
    stage.store.hold.set()
    async with asyncio.timeout(5):
        assert await run.wait_settled_or_parked() is False
    return run


async def phases(stage: Stage, session: Session) -> list[str]:
    return [run.phase for run in await stage.memory.read(lambda tx: tx.runs(session.session_id))]


async def test_a_held_call_parks_the_run_and_nothing_of_it_goes_on_until_it_is_decided() -> None:
    async with Stage(driver=held_driver()) as stage:
        session = await stage.open()
        run = await park(stage, session)
        assert (run.state, run.parked, run.done) == ("waiting", True, False)
        assert await phases(stage, session) == ["parked"]
        state = session.inspect_state()
        assert (state.activity, state.active_run_id, session.state) == ("waiting", run.run_id, "ready")
        # No task of it is left, and it is nobody's to recover.
        assert not [task for task in asyncio.all_tasks() if "_live" in str(task.get_coro())]
        assert run.run_id not in stage.backend.live_runs
        assert await stage.runtime.recover(AGENT) == []
        with pytest.raises(AgentBusyError):
            await session.run("Never mind")
        starts = len(stage.driver.turns)
        await decide(stage)
        again = await stage.runtime.take_up(AGENT, session.session_id, run.run_id, context=ME)
        assert again is run
        async with asyncio.timeout(5):
            result = await run.result()
        assert (result.status, result.output_text) == ("completed", "Answer to Delete it")
        assert len(stage.driver.turns) == starts + 1
        events = [event.type for event in [each async for each in run.events()]]
        assert events.index("run.parked") < events.index("run.resumed") < events.index("run.finished")
        assert [item.kind for item in await stage.items(session.session_id)] == ["user", "reply"]


async def test_a_run_waits_on_while_its_call_is_undecided() -> None:
    async with Stage(driver=held_driver(holds=2)) as stage:
        session = await stage.open()
        run = await park(stage, session)
        assert await stage.runtime.take_up(AGENT, session.session_id, run.run_id, context=ME) is run
        async with asyncio.timeout(5):
            assert await run.wait_settled_or_parked() is False
        assert await phases(stage, session) == ["parked"]


async def test_a_decision_on_the_way_to_waiting_is_not_missed() -> None:
    """Decided after the call was held and before the run was put away: it goes on by itself."""
    async with Stage(driver=held_driver()) as stage:
        session = await stage.open()
        stage.store.hold, stage.store.hold_after = asyncio.Event(), stage.store.commits + 1
        run = await session.run("Delete it")
        await hold(stage, session, run.run_id)
        await decide(stage)
        stage.store.hold.set()
        async with asyncio.timeout(5):
            result = await run.result()
        assert result.status == "completed"


@pytest.mark.parametrize("late", [False, True])
async def test_after_a_restart_it_waits_without_being_opened_and_goes_on_once_it_is_decided(late: bool) -> None:
    stage = Stage(driver=held_driver())
    session = await stage.open()
    run = await park(stage, session)
    await stage.runtime.aclose()
    with pytest.raises(AgentSessionRecoveryError):
        await run.result()
    async with Stage(store=stage.memory, driver=held_driver(holds=0)) as later:
        if late:
            assert await later.runtime.recover(AGENT) == []
            assert later.driver.openings == []
            await decide(later)
            again = await later.runtime.take_up(AGENT, session.session_id, run.run_id, context=ME)
        else:
            # Decided, and the program ended before the run went on.
            await decide(later, "denied")
            [recovered] = await later.runtime.recover(AGENT)
            assert recovered.outcome == "continued"
            assert recovered.run is not None
            again = recovered.run
        async with asyncio.timeout(5):
            result = await again.result()
        assert (result.run_id, result.status) == (run.run_id, "completed")
        assert await phases(later, session) == ["completed"]


async def test_time_that_is_up_is_a_decision() -> None:
    stage = Stage(driver=held_driver())
    session = await stage.open()
    run = await park(stage, session)
    await stage.runtime.aclose()
    await hold(stage, session, run.run_id, expires_ms=1)
    async with Stage(store=stage.memory, driver=held_driver(holds=0)) as later:
        [recovered] = await later.runtime.recover(AGENT)
        assert (recovered.run_id, recovered.outcome) == (run.run_id, "continued")


async def test_stopping_a_run_that_waits_ends_it_and_its_call() -> None:
    async with Stage(driver=held_driver()) as stage:
        session = await stage.open()
        run = await park(stage, session)
        sent = list(stage.driver.sent)
        async with asyncio.timeout(5):
            await session.cancel_active_run()
            result = await run.result()
        assert (result.status, stage.driver.sent) == ("cancelled", sent)
        rows = await stage.memory.read(lambda tx: (tx.row(OperationRow, OPERATION), tx.row(ApprovalRow, OPERATION)))
        assert [row.status if isinstance(row, OperationRow) else row and row.state for row in rows] == [
            "cancelled",
            "expired",
        ]
        # Free for the next message.
        assert (await (await session.run("Hello")).result()).status == "completed"


async def test_detached_while_it_waits_it_is_taken_up_by_whoever_resumes() -> None:
    async with Stage(driver=held_driver()) as stage:
        session = await stage.open()
        run = await park(stage, session)
        await session.detach()
        resumed = await stage.runtime.resume_session(session.reference(), context=ME)
        assert resumed.inspect_state().activity == "waiting"
        assert resumed.parked_run is not None
        assert resumed.parked_run.run_id == run.run_id
        await decide(stage)
        again = await resumed.take_up(run.run_id)
        async with asyncio.timeout(5):
            assert (await again.result()).status == "completed"


# ------------------------------------------------------------------------------------------- the queue


def slow_driver(go_on: asyncio.Event, result: str = "completed") -> ScriptedDriver:
    def script(turn: Turn) -> Script:
        if turn.text == "First":
            if result == "failed":
                return Script([Hold(go_on), Fail(RuntimeError("broken"))])
            return Script([Hold(go_on), *reply("First answer")])
        return Script(reply(f"Answer to {turn.text}"))

    return ScriptedDriver(script)


async def said(stage: Stage, session: Session) -> list[str]:
    return [item.text for item in await stage.items(session.session_id) if item.kind == "user"]


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  # of a state of its own
            await asyncio.sleep(0.005)


async def all_sent(session: Session) -> None:
    async with asyncio.timeout(5):
        while await session.queued() or session.active_run is not None:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.005)


async def test_what_is_queued_is_sent_in_its_order_after_the_run_and_each_once() -> None:
    go_on = asyncio.Event()
    async with Stage(driver=slow_driver(go_on)) as stage:
        session = await stage.open()
        run = await session.run("First")
        begun: list[str] = []
        session.when_queue_changes(lambda each: begun.append(each.run_id) if each is not None else None)
        one = await session.queue("One", request_id="r1")
        assert await session.queue("One", request_id="r1") == one
        two = await session.queue("Two")
        three = await session.queue("Three")
        gone = await session.queue("Gone")
        assert await session.move_queued(three.inbox_id, one.inbox_id)
        assert await session.edit_queued(two.inbox_id, "Zwei")
        assert await session.remove_queued(gone.inbox_id)
        assert not await session.remove_queued(gone.inbox_id)
        assert [each.text for each in await session.queued()] == ["Three", "One", "Zwei"]
        assert await said(stage, session) == ["First"]
        go_on.set()
        await run.result()
        await all_sent(session)
        assert await said(stage, session) == ["First", "Three", "One", "Zwei"]
        assert len(begun) == len(set(begun)) == 3
        assert not await session.edit_queued(one.inbox_id, "Too late")


@pytest.mark.parametrize("ending", ["stopped", "failed"])
async def test_after_a_stop_or_a_failure_the_queue_is_held_until_the_person_sends(ending: str) -> None:
    go_on = asyncio.Event()
    async with Stage(driver=slow_driver(go_on, ending)) as stage:
        session = await stage.open()
        run = await session.run("First")
        await session.queue("One")
        two = await session.queue("Two")
        if ending == "stopped":
            await run.cancel()
        go_on.set()
        await run.wait_settled()
        await asyncio.sleep(0.05)
        assert session.queue_is_held
        assert await said(stage, session) == ["First"]
        sent = await session.send_queued(two.inbox_id)
        assert sent is not None
        await sent.result()
        await all_sent(session)
        # The one that was sent now came first; the other followed, because that one ended by itself.
        assert await said(stage, session) == ["First", "Two", "One"]


async def test_a_host_that_ends_between_a_run_and_what_is_queued_behind_it_sends_it_once() -> None:
    go_on = asyncio.Event()
    stage = Stage(driver=slow_driver(go_on))
    session = await stage.open()
    run = await session.run("First")
    await session.queue("Next")
    # The end of the run is durable, and nothing after it.
    stage.store.hold, stage.store.hold_after = asyncio.Event(), stage.store.commits + 1
    go_on.set()
    await eventually(lambda: run.done)
    await asyncio.sleep(0.02)
    async with Stage(store=stage.memory, driver=slow_driver(go_on)) as later:
        await later.runtime.recover(AGENT)
        found = later.backend.open_session(session.session_id)
        assert found is not None
        await all_sent(found[0])
        assert await said(later, session) == ["First", "Next"]
        await later.runtime.recover(AGENT)
        await all_sent(found[0])
        assert await said(later, session) == ["First", "Next"]
    stage.store.hold.set()
    await stage.runtime.aclose()
    assert await said(stage, session) == ["First", "Next"]


async def test_a_harness_that_takes_nothing_while_it_answers_queues_only() -> None:
    go_on = asyncio.Event()
    async with Stage(driver=slow_driver(go_on)) as stage:
        session = await stage.open()
        run = await session.run("First")
        with pytest.raises(Exception, match="takes nothing while it answers"):
            await run.steer("Stop that")
        with pytest.raises(AgentDriverConfigurationError):
            await session.queue("  ")
        for number in range(lane.MOST_WAITING):
            await session.queue(f"{number}")
        with pytest.raises(AgentDriverConfigurationError, match="wait here already"):
            await session.queue("One more")
        # What came of a decision is told all the same.
        told = await session.queue("It was done.", request_id="decision-op_1")
        with pytest.raises(AgentDriverConfigurationError, match="sent as it is"):
            await session.remove_queued(told.inbox_id)
        for each in (await session.queued())[:-1]:
            await session.remove_queued(each.inbox_id)
        rows = await stage.memory.read(lambda tx: tx.rows(InboxRow, session_id=session.session_id)[:-1])
        # Of what was taken back only that it was there is kept.
        assert {(row.state, row.text) for row in rows} == {("removed", "")}
        go_on.set()
        await run.result()
        await all_sent(session)
        assert await said(stage, session) == ["First", "It was done."]
