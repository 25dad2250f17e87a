"""An input of `openai.agents.api` that nobody watched for a while, or whose acceptance nobody saw."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runtime_host.drivers.base import SessionOpening, Turn
from runtime_host.drivers.openai_managed.run import OpenAIManagedRun
from runtime_host.drivers.openai_managed.session import OpenAIManagedSession
from runtime_host.errors import (
    AgentBusyError,
    AgentConfigurationChangedError,
    AgentNativeExecutionError,
    AgentRuntimeError,
    AgentSessionRecoveryError,
)
from runtime_host.events import DriverEvent
from runtime_host.tools.base import EarlierCall, ToolDelivery, ToolRequest
from tests.loopback.agents.script import Say, Use, Wait
from tests.loopback.agents_server import DEFAULT_KEY, AgentsServer
from tests.loopback.managed_claude.faults import Answered, AnswerLost, RequestLost
from tests.loopback.openai_managed import DEFINITION, MODEL, driver_for, options_for, registry_of
from tests.loopback.tools import Channel, soon


class Process:
    """One process of the host: a driver, and what it keeps, which the next process finds.

    Attributes:
        states: everything that was kept, in order.
        asked_before: how many requests had come to the far side at each keeping.
    """

    def __init__(self, far: AgentsServer, hosted: bool = True, **driver: Any) -> None:
        self.far = far
        self.hosted = hosted
        self.driver = driver_for(registry_of(far), **driver)
        self.states: list[dict[str, Any]] = []
        self.asked_before: list[int] = []

    async def __aenter__(self) -> "Process":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.driver.aclose()

    def after(self, other: "Process") -> "Process":
        self.states = [json.loads(json.dumps(other.states[-1]))] if other.states else []
        return self

    def opening(self) -> SessionOpening:
        state = self.states[-1] if self.states else None
        return SessionOpening("s1", DEFINITION, options_for(self.hosted), state, keep=self._keep)

    async def open(self) -> OpenAIManagedSession:
        return await self.driver.open(self.opening())

    async def _keep(self, state: dict[str, Any]) -> None:
        self.states.append(json.loads(json.dumps(state)))
        self.asked_before.append(len(self.far.requests))


def _turn(run_id: str = "r1", words: str = "What is the capital of France?", tools: Channel | None = None) -> Turn:
    async def nothing() -> tuple[()]:
        return ()

    return Turn(run_id, words, MODEL, None, nothing, tools=tools)


async def _all(run: OpenAIManagedRun) -> list[DriverEvent]:
    return [event async for event in run.events()]


@pytest.fixture
async def far() -> AsyncIterator[AgentsServer]:
    async with AgentsServer() as server:
        yield server


@asynccontextmanager
async def _left_running(far: AgentsServer, hosted: bool) -> AsyncIterator[Process]:
    """A process that let go of a turn in its middle."""
    far.answer(Say("The capital", phase="commentary"), Wait(), Say("Paris."))
    async with Process(far, hosted) as process:
        session = await process.open()
        run = await session.start(_turn())
        async for event in run.events():
            if event.type == "agent.message.completed":
                break
        before = len(far.requests)
        await run.release()
        with pytest.raises(AgentSessionRecoveryError):
            await run.result()
        assert [each for each in far.requests[before:] if each.method != "GET"] == [], "something was sent"
        yield process


@pytest.mark.parametrize("hosted", [False, True], ids=["none", "hosted"])
async def test_a_turn_that_was_let_go_of_is_found_with_all_that_it_did(far: AgentsServer, hosted: bool) -> None:
    async with _left_running(far, hosted) as process:
        assert far.session().running
    far.let_go()
    async with Process(far, hosted).after(process) as later:
        run = await (await later.open()).rejoin(_turn())
        events = await _all(run)
        result = await run.result()
    assert (result.status, result.output_text) == ("completed", "Paris.")
    said = [event.data["text"] for event in events if event.type == "agent.message.completed"]
    assert said == ["The capital", "Paris."]
    counts = far.counts()
    assert (counts["sessions"], counts["inputs"], counts["cancels"]) == (1, 1, 0)


async def test_a_call_that_waits_after_a_restart_is_answered_under_its_id(far: AgentsServer) -> None:
    far.answer(Use("look", {"city": "Rome"}, "call_1"), Say("It rains."))
    async with Process(far, hosted=False) as process:
        first = Channel(hangs=True)
        run = await (await process.open()).start(_turn(tools=first))
        await soon(first.asked)
        await run.release()
    assert far.counts()["results"] == 0
    async with Process(far, hosted=False).after(process) as later:
        channel = Channel(EarlierCall(ToolRequest("call_1", "look", "{}"), None))
        run = await (await later.open()).rejoin(_turn(tools=channel))
        await _all(run)
        assert (await run.result()).output_text == "It rains."
    assert channel.steps == [("execute", "call_1"), ("delivering", "call_1"), ("delivered", "call_1")]
    assert (far.counts()["results"], far.counts()["inputs"]) == (1, 1)


@pytest.mark.parametrize("known", [False, True], ids=["not seen", "seen"])
async def test_a_result_that_openai_has_is_not_sent_again(far: AgentsServer, known: bool) -> None:
    far.answer(Use("look", {}, "call_1"), Say("It rains.", phase="commentary"), Wait(), Say("Still."))
    async with Process(far, hosted=False) as process:
        first = Channel()
        run = await (await process.open()).start(_turn(tools=first))
        reading = asyncio.ensure_future(_all(run))
        await soon(first.shown)
        await run.release()
        await reading
    request = ToolRequest("call_1", "look", "{}")
    told = ToolDelivery("call_1", "look", "{}", True, "rain", None) if known else None
    channel = Channel(EarlierCall(request, told))
    async with Process(far, hosted=False).after(process) as later:
        run = await (await later.open()).rejoin(_turn(tools=channel))
        reading = asyncio.ensure_future(_all(run))
        if not known:
            await soon(channel.shown)
        far.let_go()
        await reading
        assert (await run.result()).output_text == "Still."
    confirmed = [("execute", "call_1"), ("delivering", "call_1"), ("delivered", "call_1")]
    assert channel.steps == ([] if known else confirmed)
    sent = [each["type"] for body in far.bodies("events.create") for each in body["events"]]
    assert sent == ["agent.session.input.tool_result"]


async def test_a_stop_that_was_asked_for_before_a_restart_is_finished_after_it(far: AgentsServer) -> None:
    far.service.cancels_work = "held"
    far.answer(Use("look", {}, "call_1"), Say("It rains."))
    async with Process(far, hosted=False) as process:
        channel = Channel(hangs=True)
        run = await (await process.open()).start(_turn(tools=channel))
        await soon(channel.asked)
        await run.cancel()
        while not far.service.cancels:  # noqa: ASYNC110  # a far side is plain data
            await asyncio.sleep(0.01)
        await run.release()
    far.let_go()
    async with Process(far, hosted=False).after(process) as later:
        run = await (await later.open()).rejoin(_turn())
        await _all(run)
        assert (await run.result()).status == "cancelled"
    assert far.session().turns[0]["status"] == "cancelled"


async def test_a_stop_that_was_kept_and_never_arrived_is_asked_for_when_the_run_is_joined_again(
    far: AgentsServer,
) -> None:
    far.answer(Say("The capital", phase="commentary"), Wait(), Say("Paris."))
    far.fault(RequestLost("events.create:cancel", times=None))
    async with Process(far) as process:
        run = await (await process.open()).start(_turn())
        reading = asyncio.ensure_future(_all(run))
        while not far.service.waiting:  # noqa: ASYNC110  # a far side is plain data
            await asyncio.sleep(0.005)
        await run.cancel()
        while not far.faults.happened:  # noqa: ASYNC110  # a far side is plain data
            await asyncio.sleep(0.005)
        await run.release()
        await reading
    far.faults.clear()
    async with Process(far).after(process) as later:
        run = await (await later.open()).rejoin(_turn())
        await _all(run)
        result = await run.result()
    assert (result.status, far.counts()["cancels"], far.counts()["inputs"]) == ("cancelled", 1, 1)


async def test_a_run_whose_session_was_set_up_otherwise_meanwhile_is_told_nothing(far: AgentsServer) -> None:
    async with _left_running(far, True) as process:
        far.session().record["agent"]["instructions"] = "Obey everybody."
        before = len(far.requests)
        async with Process(far).after(process) as later:
            run = await (await later.open()).rejoin(_turn())
            await _all(run)
            with pytest.raises(AgentSessionRecoveryError, match="instructions") as unknown:
                await run.result()
        # Its input is out there: that nothing was sent would be a lie.
        assert "Nothing was sent" not in unknown.value.message
        assert [each for each in far.requests[before:] if each.method != "GET"] == []


async def test_a_session_is_looked_for_at_the_server_that_has_it_alone(far: AgentsServer) -> None:
    async with _left_running(far, True) as process, AgentsServer() as other:
        before = len(far.requests)
        async with Process(other).after(process) as later:
            with pytest.raises(AgentConfigurationChangedError, match="leads to another server"):
                await later.open()
        assert (other.requests, len(far.requests)) == ([], before)


async def test_native_ids_stay_the_same_over_a_rejoin(far: AgentsServer) -> None:
    async with _left_running(far, False) as process:
        pass
    seen = []
    for _ in range(2):
        async with Process(far, False).after(process) as later:
            run = await (await later.open()).rejoin(_turn())
            async for event in run.events():
                seen.append(event.data["id"])
                break
    assert len(seen) == 2
    assert len(set(seen)) == 1


async def test_a_creation_that_cannot_be_found_stays_unknown_until_it_can(far: AgentsServer) -> None:
    far.service.list_lag = 6
    far.fault(AnswerLost("sessions.create"))
    async with Process(far, hosted=False) as process:
        run = await (await process.open()).start(_turn())
        await _all(run)
        with pytest.raises(AgentSessionRecoveryError, match="4 times") as lost:
            await run.result()
        assert lost.value.run_id == "r1"
    async with Process(far, hosted=False).after(process) as later:
        session = await later.open()
        found = await session.rejoin(_turn())
        await _all(found)
        assert (await found.result()).status == "completed"
        # The next input goes to the same session.
        again = await session.start(_turn("r2", "And then?"))
        await _all(again)
        assert (await again.result()).status == "completed"
    assert (far.counts()["sessions"], far.counts()["inputs"]) == (1, 2)


async def test_an_environment_that_cannot_be_found_gets_no_input_and_is_never_made_again(far: AgentsServer) -> None:
    far.service.list_lag = 6
    far.fault(AnswerLost("sessions.create"))
    async with Process(far) as process:
        run = await (await process.open()).start(_turn())
        await _all(run)
        result = await run.result()
        assert result.error is not None
        assert (result.status, result.error.code, far.counts()["inputs"]) == ("failed", "SESSION_UNKNOWN", 0)
    async with Process(far).after(process) as later:
        again = await (await later.open()).start(_turn("r2"))
        await _all(again)
        assert (await again.result()).status == "completed"
    assert (far.counts()["sessions"], far.counts()["inputs"]) == (1, 1)


async def test_an_input_whose_acceptance_was_not_seen_is_found_by_its_words(far: AgentsServer) -> None:
    async with Process(far) as process:
        session = await process.open()
        await _all(await session.start(_turn()))
        far.fault(AnswerLost("events.create:message"), Answered("turns.list", status=503, times=None, after=1))
        run = await session.start(_turn("r2", "And then?"))
        await _all(run)
        with pytest.raises(AgentSessionRecoveryError):
            await run.result()
    far.faults.clear()
    async with Process(far).after(process) as later:
        found = await (await later.open()).rejoin(_turn("r2", "And then?"))
        await _all(found)
        assert (await found.result()).status == "completed"
    assert far.counts()["inputs"] == 2


async def test_an_input_that_never_arrived_stays_unknown_whatever_the_clock_says(
    far: AgentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.fault(RequestLost("events.create:message"))
    async with Process(far) as process:
        run = await (await process.open()).start(_turn())
        await _all(run)
        with pytest.raises(AgentSessionRecoveryError):
            await run.result()
    async with Process(far).after(process) as soon:
        again = await (await soon.open()).rejoin(_turn())
        await _all(again)
        with pytest.raises(AgentSessionRecoveryError, match="looked for 4 times"):
            await again.result()
    now = time.time()
    for hours in (24 * 365, -24):
        monkeypatch.setattr(time, "time", lambda hours=hours: now + hours * 3600)
        far.jump(hours * 3600)
        async with Process(far).after(process) as later:
            found = await (await later.open()).rejoin(_turn())
            await _all(found)
            with pytest.raises(AgentSessionRecoveryError, match="looked for 4 times"):
                await found.result()
    assert (far.counts()["inputs"], len(far.bodies("events.create"))) == (0, 1)


async def test_two_sessions_for_one_intent_are_both_left_alone(far: AgentsServer) -> None:
    far.fault(AnswerLost("sessions.create"))
    far.service.list_lag = 9
    async with Process(far, hosted=False) as process:
        await _all(await (await process.open()).start(_turn()))
    [session] = far.service.sessions.values()
    session.hidden_looks = 0
    twin = type(session)(far.service, "sess_twin", {**session.record, "id": "sess_twin"})
    far.service.sessions["sess_twin"] = twin
    async with Process(far, hosted=False).after(process) as later:
        run = await (await later.open()).rejoin(_turn())
        await _all(run)
        with pytest.raises(AgentSessionRecoveryError) as lost:
            await run.result()
        assert sorted(lost.value.details["sessions"]) == sorted([session.id, "sess_twin"])
        assert session.id not in lost.value.message


async def test_what_was_never_about_to_be_sent_was_not_sent(far: AgentsServer) -> None:
    async with Process(far) as process:
        run = await (await process.open()).rejoin(_turn())
        await _all(run)
        result = await run.result()
    assert result.error is not None
    assert (result.status, result.error.code, far.requests) == ("failed", "INPUT_NOT_SENT", [])


async def test_what_is_about_to_be_made_is_kept_before_it_is_asked_for(far: AgentsServer) -> None:
    async with Process(far, hosted=False) as process:
        await _all(await (await process.open()).start(_turn()))
    first = process.states[0]
    assert (first["session"], process.asked_before[0]) == (None, 0)
    [body] = far.bodies("sessions.create")
    assert body["metadata"] == {"remuda_intent": first["intents"]["session"]["id"]}
    assert (body["vault_ids"], body["environment"], body["input"]) == ([], {"type": "none"}, _turn().text)
    assert process.states[-1]["session"] == {"id": far.session().id}
    kept = json.dumps(process.states)
    assert DEFAULT_KEY not in kept
    assert "France" not in kept


async def test_a_session_is_deleted_once_it_is_idle_and_nothing_else(far: AgentsServer) -> None:
    async with _left_running(far, True) as process, Process(far).after(process) as later:
        with pytest.raises(AgentBusyError):
            await later.driver.discard(later.opening())
        assert far.counts()["deletes"] == 0
        far.let_go()
        run = await (await later.open()).rejoin(_turn())
        await _all(run)
        far.fault(Answered("sessions.delete", status=403, echo=True))
        with pytest.raises(AgentNativeExecutionError) as left:
            await later.driver.discard(later.opening())
        assert DEFAULT_KEY not in left.value.message + json.dumps(left.value.details)
        far.fault(AnswerLost("sessions.delete"))
        for _ in range(2):
            await later.driver.discard(later.opening())
        assert (far.counts()["deletes"], far.service.sessions) == (1, {})


async def test_a_session_whose_creation_was_not_answered_is_deleted_too(far: AgentsServer) -> None:
    far.service.list_lag = 6
    far.fault(AnswerLost("sessions.create"))
    async with Process(far, hosted=False) as process:
        await _all(await (await process.open()).start(_turn()))
        # It may not be shown yet.
        far.service.sessions[next(iter(far.service.sessions))].hidden_looks = 9
        with pytest.raises(AgentRuntimeError):
            await process.driver.discard(process.opening())
        far.session().hidden_looks = 0
        await process.driver.discard(process.opening())
    assert far.counts()["deletes"] == 1


async def test_what_was_never_made_there_does_not_keep_a_conversation_for_ever(far: AgentsServer) -> None:
    far.fault(RequestLost("sessions.create"))
    async with Process(far, hosted=True) as process:
        await _all(await (await process.open()).start(_turn()))
        opening = process.opening()
        assert opening.state is not None
        with pytest.raises(AgentBusyError, match="Try again later"):
            await process.driver.discard(opening)
        intent = opening.state["intents"]["session"]
        intent = {**intent, "since": intent["since"] - 2 * 3600}
        long_ago = {**opening.state, "intents": {"session": intent}}
        await process.driver.discard(opening._replace(state=long_ago))
    assert (far.counts()["sessions"], far.counts()["deletes"]) == (0, 0)
