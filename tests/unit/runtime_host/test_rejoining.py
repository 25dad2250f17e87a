"""Runs whose work goes on at a service: let go of, joined again, found out, stopped and deleted there."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runtime_host.capabilities import Capability, DriverInspection
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.drivers.base import SessionOpening, Turn
from runtime_host.errors import (
    AgentBusyError,
    AgentDriverConfigurationError,
    AgentNativeExecutionError,
    AgentSessionRecoveryError,
)
from runtime_host.events import DriverEvent
from runtime_host.results import DriverResult
from runtime_host.storage.base import SALVAGED, AgentTx, session_fact
from runtime_host.testing import ScriptedDriver
from tests.unit.runtime_host.stage import AGENT, ME, Stage, all_events, kinds, until


def said(kind: Any, item: str, text: str) -> DriverEvent:
    return DriverEvent(kind, {"id": item, "text": text, "phase": "unknown"})


class Service:
    """What is on the other side; it outlives every driver."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.saved: list[DriverEvent] = []
        self.result: DriverResult | None = None
        self.moved = asyncio.Event()
        self.watchers = 0
        self.heeds_stop = True
        self.cannot_be_asked = False
        self.deleted: list[dict[str, Any] | None] = []
        self.refuses_deletion = False
        self.hangs = False
        self.is_slow_to_send = False

    def tell(self, *events: DriverEvent, result: DriverResult | None = None) -> None:
        self.saved += events
        self.result = result or self.result
        self.moved.set()
        self.moved = asyncio.Event()


class Watching:
    def __init__(self, service: Service, *, first: int = 0) -> None:
        self._service = service
        self._at = first
        self._left = asyncio.Event()

    async def events(self) -> AsyncIterator[DriverEvent]:
        service = self._service
        service.watchers += 1
        try:
            while not self._left.is_set():
                moved = service.moved
                while self._at < len(service.saved):
                    self._at += 1
                    yield service.saved[self._at - 1]
                if service.result is not None:
                    return
                either = [asyncio.ensure_future(moved.wait()), asyncio.ensure_future(self._left.wait())]
                try:
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in either:
                        each.cancel()
        finally:
            service.watchers -= 1

    async def result(self) -> DriverResult:
        if self._service.cannot_be_asked or self._service.result is None:
            raise AgentSessionRecoveryError("The service does not answer; looked 3 times.", session_id="", run_id="")
        return self._service.result

    async def cancel(self) -> None:
        if self._service.heeds_stop:
            self._service.tell(result=DriverResult(status="cancelled"))

    async def release(self) -> None:
        self._left.set()


class ServiceSession:
    def __init__(self, service: Service, opening: SessionOpening) -> None:
        self._service = service
        self._opening = opening
        self._state: dict[str, Any] = opening.state or {"version": 1, "made": False}

    async def start(self, turn: Turn) -> Watching:
        assert self._opening.keep is not None
        self._state = {"version": 1, "made": True}
        await self._opening.keep(self._state)
        if self._service.is_slow_to_send:
            await asyncio.Event().wait()
        self._service.inputs.append(turn.text)
        if self._service.cannot_be_asked:
            raise AgentSessionRecoveryError("The answer was lost; looked 3 times.", session_id="", run_id=turn.run_id)
        return Watching(self._service)

    async def rejoin(self, turn: Turn) -> Watching:
        if self._service.cannot_be_asked:
            raise AgentSessionRecoveryError("Still not known; looked 3 times.", session_id="", run_id=turn.run_id)
        if not self._service.inputs:
            if not turn.may_send:
                raise AgentNativeExecutionError("It was not sent.", native_code="INPUT_NOT_SENT")
            self._service.inputs.append(turn.text)
        return Watching(self._service)

    def state(self) -> dict[str, Any]:
        return self._state

    async def close(self) -> None:
        """Holds nothing."""


class ServiceDriver(ScriptedDriver):
    rejoins = True
    settle_s = 0.3

    def __init__(self, service: Service) -> None:
        super().__init__(())
        self.service = service

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        return DriverInspection(
            driver_id=self.driver_id,
            capabilities={"run.cancel": Capability(support="native"), "event.message": Capability(support="native")},
        )

    async def open(self, opening: SessionOpening) -> Any:
        return ServiceSession(self.service, opening)

    async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Keeps nothing here."""

    async def discard(self, opening: SessionOpening) -> None:
        if self.service.hangs:
            await asyncio.Event().wait()
        if self.service.refuses_deletion:
            raise AgentNativeExecutionError("The service did not delete it.", native_code="DISCARD_FAILED")
        self.service.deleted.append(opening.state)


def at(service: Service, before: Stage | None = None, **more: Any) -> Stage:
    memory = before.memory if before else None
    return Stage(driver=ServiceDriver(service), store=memory, durability="durable", **more)


async def gone_on(service: Service, stage: Stage) -> tuple[Any, Any]:
    """A run that has said a whole reply and half of another."""
    session = await stage.open()
    run = await session.run("Hi", request_id="q")
    service.tell(
        said("agent.message.delta", "native-a", "First."),
        said("agent.message.completed", "native-a", "First."),
        said("agent.message.delta", "native-b", "Sec"),
    )
    await until(lambda: any(item.text == "Sec" for item in run.open_items()))
    return session, run


async def test_it_needs_storage_that_outlives_the_process() -> None:
    async with Stage(driver=ServiceDriver(Service())) as stage:
        with pytest.raises(AgentDriverConfigurationError) as refused:
            await stage.open()
        assert refused.value.error_code == "STORAGE_REQUIRED"


async def test_a_run_goes_on_while_the_program_is_closed_and_is_joined_again_under_its_id() -> None:
    service = Service()
    async with at(service) as stage:
        session, run = await gone_on(service, stage)
    with pytest.raises(AgentSessionRecoveryError, match="goes on at its service"):
        await run.result()
    assert service.watchers == 0
    record = await stage.run_record(run.run_id)
    assert record is not None
    assert (record.phase, service.result) == ("dispatched", None)
    items = await stage.items(session.session_id)
    assert kinds(items) == [("user", "complete", "Hi"), ("reply", "complete", "First."), ("reply", "open", "Sec")]
    assert "native-a" not in str(items), "a name of the native side is kept"

    # What was said meanwhile is missed.
    service.tell(said("agent.message.delta", "native-b", "ond"))
    async with at(service, stage) as after:
        [recovered] = await after.runtime.recover(AGENT)
        assert (recovered.outcome, recovered.run_id) == ("continued", run.run_id)
        assert recovered.run is not None
        assert recovered.run.state in ("dispatched", "running")
        await until(lambda: service.watchers == 1)
        service.tell(
            said("agent.message.delta", "native-b", "."),
            said("agent.message.completed", "native-b", "Second."),
            result=DriverResult(status="completed", output_text="Second."),
        )
        assert (await recovered.run.result()).output_text == "Second."
        events = await all_events(recovered.run)
        [gap] = [event for event in events if event.data.get("code") == "HISTORY_GAP"]
        assert (gap.data["from"], gap.data["to"]) == (1, record.sequence_mark)
        assert gap.sequence > record.sequence_mark
        assert [event.data["text"] for event in events if event.type == "agent.message.completed"] == ["Second."]
        assert not [event for event in events if event.type == "agent.message.delta"], "pieces with a hole between"
        assert kinds(await after.items(session.session_id)) == [
            ("user", "complete", "Hi"),
            ("reply", "complete", "First."),
            ("reply", "complete", "Second."),
        ]
        again = await after.runtime.resume_session(session.reference(), context=ME)
        assert (await again.run("Hi", request_id="q")).run_id == run.run_id
    assert service.inputs == ["Hi"]


async def test_a_detached_run_is_watched_by_nobody_and_joined_again_when_its_session_is_resumed() -> None:
    service = Service()
    async with at(service) as stage:
        session, run = await gone_on(service, stage)
        await session.detach()
        assert (session.state, service.watchers, service.result) == ("detached", 0, None)
        service.tell(said("agent.message.completed", "native-b", "Second."), result=DriverResult(status="completed"))
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        joined = await again.get_run(run.run_id)
        assert joined is not run
        assert (await joined.result()).status == "completed"
        assert again.inspect_state().history_gap
    assert service.inputs == ["Hi"]


async def test_what_is_not_known_blocks_and_is_found_out_later() -> None:
    service = Service()
    async with at(service) as stage:
        session = await stage.open()
        service.cannot_be_asked = True
        run = await session.run("Hi")
        with pytest.raises(AgentSessionRecoveryError, match="looked 3 times"):
            await run.result()
        assert (session.state, session.inspect_state().activity) == ("failed", "unknown")
        with pytest.raises(AgentSessionRecoveryError):
            await session.run("More")
        await session.reconcile()
        still = session.active_run
        assert still is not None
        with pytest.raises(AgentSessionRecoveryError):
            await still.result()
        notices = [item for item in await stage.items(session.session_id) if item.kind == "notice"]
        assert [(item.code, item.state) for item in notices] == [("RUN_UNKNOWN", "unknown")], "said once"
        service.cannot_be_asked = False
        service.tell(said("agent.message.completed", "a", "Well."), result=DriverResult(status="completed"))
        await session.reconcile()
        found = await session.get_run(run.run_id)
        assert (await found.result()).status == "completed"
        assert (session.state, session.inspect_state().unresolved_effects) == ("ready", ())
        notices = [item for item in await stage.items(session.session_id) if item.kind == "notice"]
        assert [(item.code, item.state) for item in notices] == [("FOUND_OUT", "complete")]
    assert service.inputs == ["Hi"]


async def test_what_is_not_known_is_looked_for_when_its_session_is_opened_by_another_process() -> None:
    service = Service()
    async with at(service) as stage:
        session = await stage.open()
        service.cannot_be_asked = True
        run = await session.run("Hi")
        await run.wait_settled()
    service.cannot_be_asked = False
    service.tell(said("agent.message.completed", "a", "Well."), result=DriverResult(status="completed"))
    async with at(service, stage) as after:
        assert await after.runtime.recover(AGENT) == [], "a start looks for open runs only"
        again = await after.runtime.resume_session(session.reference(), context=ME)
        assert (await (await again.get_run(run.run_id)).result()).status == "completed"
    assert service.inputs == ["Hi"]


@pytest.mark.parametrize("closing", [False, True])
async def test_letting_go_while_it_is_looked_again_stops_nothing_and_is_joined_later(closing: bool) -> None:
    service = Service()
    async with at(service) as stage:
        session = await stage.open()
        service.cannot_be_asked = True
        run = await session.run("Hi")
        await run.wait_settled()
        service.cannot_be_asked = False
        before, hold = stage.store.commits, asyncio.Event()
        stage.store.hold, stage.store.hold_after = hold, before
        looking = asyncio.ensure_future(session.reconcile())
        await until(lambda: stage.store.commits > before)
        leaving = asyncio.ensure_future(stage.runtime.aclose() if closing else session.detach())
        await asyncio.sleep(0)
        hold.set()
        await asyncio.gather(looking, leaving)
        assert (session.state, session.active_run) == ("destroyed" if closing else "detached", None)
        assert (service.result, service.watchers) == (None, 0), "it was stopped, or is watched by nobody's session"
    service.tell(said("agent.message.completed", "a", "Well."), result=DriverResult(status="completed"))
    async with at(service, stage) as after:
        again = await after.runtime.resume_session(session.reference(), context=ME)
        assert (await (await again.get_run(run.run_id)).result()).status == "completed"
    assert service.inputs == ["Hi"]


async def test_a_stop_counts_once_the_service_has_confirmed_it() -> None:
    service = Service()
    async with at(service) as stage:
        _, run = await gone_on(service, stage)
        await run.cancel()
        assert (await run.result()).status == "cancelled"
    service = Service()
    service.heeds_stop = False
    async with at(service) as stage:
        session, run = await gone_on(service, stage)
        with pytest.raises(AgentSessionRecoveryError):
            await run.cancel()
        assert run.state == "unknown"
        # It was too late for the stop: the service says what it came to.
        service.tell(said("agent.message.completed", "native-b", "Second."), result=DriverResult(status="completed"))
        await session.reconcile()
        assert (await (await session.get_run(run.run_id)).result()).status == "completed"
        assert kinds(await stage.items(session.session_id))[2] == ("reply", "complete", "Second.")


async def test_a_run_that_is_stopped_while_it_is_joined_again_is_stopped_there() -> None:
    service = Service()
    async with at(service) as stage:
        session, run = await gone_on(service, stage)
        await session.detach()
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        joined = await again.get_run(run.run_id)
        await joined.cancel()
        assert (await joined.result()).status == "cancelled"
        assert service.result is not None, "the service was not asked"


async def test_letting_go_does_not_wait_for_a_stop_that_is_not_confirmed() -> None:
    service = Service()
    service.heeds_stop = False
    stage = at(service)
    stage.driver.settle_s = 60.0  # type: ignore[attr-defined]  # of the driver above
    _, run = await gone_on(service, stage)
    run.ask_stop()
    await until(lambda: run.state == "stopping")
    async with asyncio.timeout(5):
        await stage.runtime.aclose()
    record = await stage.run_record(run.run_id)
    assert record is not None
    assert record.phase == "dispatched"


async def test_an_input_that_was_not_sent_yet_is_sent_at_the_next_opening() -> None:
    service = Service()
    async with at(service) as stage:
        session = await stage.open()
        hold = stage.store.hold = asyncio.Event()
        stage.store.hold_after = stage.store.commits + 1
        run = await session.run("Hi")
        closing = asyncio.ensure_future(stage.runtime.aclose())
        await asyncio.sleep(0)
        hold.set()
        await closing
    async with at(service, stage) as after:
        again = await after.runtime.resume_session(session.reference(), context=ME)
        service.tell(said("agent.message.completed", "a", "Well."), result=DriverResult(status="completed"))
        assert (await (await again.get_run(run.run_id)).result()).status == "completed"
    assert service.inputs == ["Hi"]


@pytest.mark.parametrize("since", ["", "stopped", "salvaged", "told that nobody knows"])
async def test_what_the_program_ended_before_sending_is_sent_once_if_it_is_still_wanted(since: str) -> None:
    service = Service()
    service.is_slow_to_send = True
    stage = at(service)
    async with stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: run.state == "dispatched")
        if since == "stopped":
            run.ask_stop()
            await until(lambda: run.state == "stopping")
    record = await stage.run_record(run.run_id)
    assert record is not None
    assert (record.phase, service.inputs) == ("dispatched", [])
    if since == "salvaged":
        fact = session_fact(session.session_id, SALVAGED)
        await stage.memory.transact(lambda tx: tx.put_fact(fact, {"file": "agent.sqlite3.1", "requests": "whole"}))
    service.tell(said("agent.message.completed", "a", "Well."), result=DriverResult(status="completed"))
    service.cannot_be_asked = since == "told that nobody knows"
    async with at(service, stage) as after:
        again = await after.runtime.resume_session(session.reference(), context=ME)
        if service.cannot_be_asked:
            await (await again.get_run(run.run_id)).wait_settled()
            service.cannot_be_asked = False
            await again.reconcile()
        result = await (await again.get_run(run.run_id)).result()
        assert result.run_id == run.run_id
        if since:
            assert result.error is not None
            assert (result.status, result.error.code) == ("failed", "INPUT_NOT_SENT")
        else:
            assert result.status == "completed"
    assert service.inputs == ([] if since else ["Hi"])


async def test_what_is_made_there_is_kept_before_the_run_has_ended() -> None:
    service = Service()
    async with at(service) as stage:
        session, _ = await gone_on(service, stage)

        def state(tx: AgentTx) -> Any:
            record = tx.session(session.session_id)
            return record.driver_state if record is not None else None

        assert await stage.memory.read(state) == {"version": 1, "made": True}


async def test_deleting_asks_the_service_first_and_keeps_the_reference_when_that_fails() -> None:
    service = Service()
    async with at(service) as stage:
        session, run = await gone_on(service, stage)
        with pytest.raises(AgentBusyError):
            await stage.runtime.delete_session(session.reference(), context=ME)
        await session.detach()
        with pytest.raises(AgentBusyError, match="at the service"):
            await stage.runtime.delete_session(session.reference(), context=ME)
        assert service.deleted == []
        service.tell(result=DriverResult(status="completed"))
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        await (await again.get_run(run.run_id)).result()
        service.refuses_deletion = True
        with pytest.raises(AgentNativeExecutionError):
            await stage.runtime.delete_session(session.reference(), context=ME)
        assert len(await stage.items(session.session_id)) == 3
        service.refuses_deletion = False
        await stage.runtime.delete_session(session.reference(), context=ME)
        assert service.deleted == [{"version": 1, "made": True}]
        assert await stage.items(session.session_id) == []


async def test_looking_again_twice_at_once_and_deleting_meanwhile_make_one_run_and_lose_no_reference() -> None:
    service = Service()
    async with at(service) as stage:
        session = await stage.open()
        service.cannot_be_asked = True
        run = await session.run("Hi")
        with pytest.raises(AgentSessionRecoveryError):
            await run.result()
        service.cannot_be_asked = False
        deleting = stage.runtime.delete_session(session.reference(), context=ME)
        said_of = await asyncio.gather(session.reconcile(), session.reconcile(), deleting, return_exceptions=True)
        assert (said_of[0], said_of[1]) == ((), ())
        assert isinstance(said_of[2], AgentBusyError)
        assert service.deleted == []
        await until(lambda: service.watchers > 0)
        assert service.watchers == 1
        service.tell(result=DriverResult(status="completed"))
        assert (await (await session.get_run(run.run_id)).result()).status == "completed"
    assert service.inputs == ["Hi"]


async def test_a_service_that_does_not_answer_a_deletion_holds_it_up_for_a_while_only() -> None:
    service = Service()
    async with at(service, forget_s=0.05) as stage:
        stage.driver.settle_s = 0.05  # type: ignore[attr-defined]  # of the driver above
        session = await stage.open()
        service.hangs = True
        with pytest.raises(AgentNativeExecutionError, match="Delete it again"):
            await stage.runtime.delete_session(session.reference(), context=ME)
        service.hangs = False
        await stage.runtime.delete_session(session.reference(), context=ME)
