"""`anthropic.managed.api` in the runtime while the way to the provider goes wrong: one of each all the same."""

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from runtime_host.errors import AgentRuntimeError, AgentSessionRecoveryError
from runtime_host.events import AgentEvent
from runtime_host.results import AgentResult
from runtime_host.run import Run, Windows
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.tools.base import HostTool, ResolutionContext, ResolvedTools
from tests.loopback.claude_managed import DEFINITION, driver_for, options_for, registry_for
from tests.loopback.managed_claude.faults import (
    Answered,
    AnswerLost,
    Fault,
    NullIdAtPageEnd,
    Redirected,
    RequestLost,
    StreamFault,
)
from tests.loopback.managed_claude.script import Many, Say, Think, Use, Wait
from tests.loopback.managed_claude_server import DEFAULT_KEY, Canary, ManagedClaudeServer
from tests.loopback.secrecy import Heard, listening

INPUT = "events.send:user.message"
RESULT = "events.send:user.custom_tool_result"


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """What is let out in each test; the key is in none of it."""
    with listening(caplog, monkeypatch) as all_of_it:
        yield all_of_it
    assert all_of_it.where(DEFAULT_KEY) == set()
    assert all_of_it.places >= {"events", "logs", "stored"}


@dataclass
class Desk:
    """The application: one tool that counts."""

    effects: list[str] = field(default_factory=list)

    async def resolve(self, names: tuple[str, ...], _: ResolutionContext) -> ResolvedTools:
        parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
        tools = tuple(HostTool(name, "Tells the weather.", parameters, self.look) for name in names)
        return ResolvedTools(tools=tools, fingerprint="1")

    async def look(self, arguments: Any, _: Any) -> str:
        self.effects.append(arguments["city"])
        return "It rains there."


@asynccontextmanager
async def conversation(
    far: ManagedClaudeServer, desk: Desk | None = None, store: AgentStore | None = None
) -> AsyncIterator[Session]:
    """A session with one tool, in the runtime."""
    kept, application = store or MemoryAgentStore(), desk or Desk()
    registry = registry_for(far.base_url)

    async def storage(_: str) -> AgentStore:
        return kept

    backend = LocalBackend(
        drivers=[driver_for(registry)],
        storage=storage,
        connectors=registry,
        windows=Windows(cleanup_s=2.0),
        resolve_tools=application.resolve,
        durability="durable",
    )
    async with AgentRuntime(backend) as runtime:
        definition = DEFINITION.model_copy(update={"tools": ("look",)})
        yield await runtime.create_agent(definition).open_session(options_for())


async def _seen(run: Run) -> tuple[list[AgentEvent], AgentResult]:
    events = [event async for event in run.events()]
    return events, await run.result()


def _texts(events: list[AgentEvent]) -> list[str]:
    return [event.data["text"] for event in events if event.type == "agent.message.completed"]


FOUND_AGAIN: dict[str, Fault] = {
    "the answer to the agent lost": AnswerLost("agents.create"),
    "the answer to the environment lost": AnswerLost("environments.create"),
    "the answer to the session lost": AnswerLost("sessions.create"),
    "the answer to the input lost": AnswerLost(INPUT),
    "the answer to the result lost": AnswerLost(RESULT),
    "the result lost": RequestLost(RESULT),
    "500 for a session that was made": Answered("sessions.create", status=500, executed=True),
    "500 for an input that was taken": Answered(INPUT, status=500, executed=True, echo=True),
    "500 for a result that was taken": Answered(RESULT, status=500, executed=True),
    "500 for a result": Answered(RESULT, status=500),
    "429 for a result": Answered(RESULT, status=429),
    "429 for the history": Answered("events.list", status=429),
    "500 for the history": Answered("events.list", status=500, echo=True),
    "500 for the stream": Answered("events.stream", status=500),
    "500 for the record": Answered("sessions.retrieve", status=500),
    "the stream closed in the middle": StreamFault(how="close", at="agent.message"),
    "the stream closed at the call": StreamFault(how="close", at="session.status_idle"),
    "the stream cut": StreamFault(how="cut", at="agent.message"),
    "an error frame": StreamFault(how="error", at="agent.message"),
    "an event of an unknown type": StreamFault(how="unknown-type", at="agent.message"),
    "a frame without a name": StreamFault(how="nameless", at="session.status_idle"),
    "an event of six megabytes": StreamFault(how="huge", at="agent.message"),
    "events twice": StreamFault(how="twice", at="*", times=None),
    "events in another order": StreamFault(how="swapped", at="event_start", times=None),
    "an idle that comes early": StreamFault(how="swapped", at="agent.message", times=None),
    "an event that is not sent": StreamFault(how="lost", at="agent.message"),
}


ELSEWHERE = (
    "the answer to the environment lost",
    "500 for a session that was made",
    "500 for a result that was taken",
    "429 for the history",
    "500 for the stream",
    "500 for the record",
    "the stream closed at the call",
    "an idle that comes early",
)
"""As another row, at another endpoint or event."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if name in ELSEWHERE else ()) for name in FOUND_AGAIN]
)
async def test_whatever_goes_wrong_once_there_is_one_of_each_and_the_right_answer(name: str) -> None:
    desk = Desk()
    async with ManagedClaudeServer() as far:
        far.answer(Think(), Use("look", {"city": "Rome"}), Say("It rains in Rome.", pieces=5))
        far.fault(FOUND_AGAIN[name])
        async with conversation(far, desk) as session:
            events, result = await _seen(await session.run("How is Rome?"))
        counts = far.counts()
        assert far.faults.happened, "the fault never came"
    assert (result.status, result.output_text, result.error) == ("completed", "It rains in Rome.", None)
    assert (counts["agents"], counts["environments"], counts["sessions"]) == (1, 1, 1)
    assert (counts["inputs"], counts["results"], counts["repeats"], desk.effects) == (1, 1, 0, ["Rome"])
    assert _texts(events) == ["It rains in Rome."]
    assert DEFAULT_KEY not in json.dumps([event.model_dump(mode="json") for event in events])


async def test_a_page_that_ends_with_an_event_without_an_id_hides_nothing() -> None:
    async with ManagedClaudeServer() as far:
        far.answer(Many(350, "part "), Say("The end."))
        far.fault(NullIdAtPageEnd(times=None))
        async with conversation(far) as session:
            _, result = await _seen(await session.run("Count."))
        pages, counts = far.by_endpoint["events.list"], far.counts()
    assert (result.status, result.output_text) == ("completed", "The end.")
    assert pages > 3, "the history was not read over several pages"
    assert (counts["sessions"], counts["inputs"], counts["results"]) == (1, 1, 0)


async def test_a_clock_that_jumps_changes_nothing() -> None:
    async with ManagedClaudeServer() as far:
        far.always(Use("look", {"city": "Rome"}), Say("It rains."))
        async with conversation(far) as session:
            for offset_s in (7200, -86400):
                _, result = await _seen(await session.run("How is Rome?"))
                assert (result.status, result.output_text) == ("completed", "It rains.")
                far.jump(offset_s)
        assert (far.counts()["sessions"], far.counts()["inputs"], far.counts()["results"]) == (1, 2, 2)


@pytest.mark.parametrize("offset_s", [86_400, pytest.param(-86_400, marks=pytest.mark.soak)])
async def test_a_clock_that_jumps_within_a_turn_changes_nothing(offset_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    async with ManagedClaudeServer() as far:
        far.answer(Say("I look."), Wait(), Use("look", {"city": "Rome"}), Say("It rains."))
        far.fault(AnswerLost(INPUT), AnswerLost(RESULT))
        async with conversation(far, desk) as session:
            run = await session.run("How is Rome?")
            async for event in run.events():
                if event.type == "agent.message.completed":
                    break
            far.jump(-offset_s)
            now = time.time()
            monkeypatch.setattr(time, "time", lambda: now + offset_s)
            far.let_go()
            result = await run.result()
        counts = far.counts()
    assert (result.status, result.output_text) == ("completed", "It rains.")
    assert (counts["sessions"], counts["inputs"], counts["results"], desk.effects) == (1, 1, 1, ["Rome"])


@pytest.mark.parametrize("status", [400, pytest.param(401, marks=pytest.mark.soak), 429])
async def test_an_input_that_was_refused_fails_with_a_code_and_goes_out_anew_when_it_is_said_again(status: int) -> None:
    async with ManagedClaudeServer() as far:
        far.fault(Answered(INPUT, status=status, echo=True))
        async with conversation(far) as session:
            events, result = await _seen(await session.run("Hello"))
            assert (result.status, far.counts()["inputs"]) == ("failed", 0)
            assert result.error is not None
            assert DEFAULT_KEY not in result.model_dump_json() + json.dumps([each.data for each in events])
            assert "not sent" in result.error.message
            assert (await (await session.run("Hello")).result()).status == "completed"
        assert (far.counts()["sessions"], far.counts()["inputs"]) == (1, 1)


@pytest.mark.parametrize("status", [500, 529])
@pytest.mark.parametrize("executed", [False, True])
async def test_an_input_that_is_answered_with_an_error_may_be_taken_and_is_looked_for(
    status: int, executed: bool
) -> None:
    """Overloaded says nothing of whether it was taken, either: where it is nowhere, nobody knows."""
    async with ManagedClaudeServer() as far:
        far.fault(Answered(INPUT, status=status, executed=executed, echo=True))
        async with conversation(far) as session:
            run = await session.run("Hello")
            if executed:
                assert (await run.result()).status == "completed"
            for _ in range(0 if executed else 2):
                with pytest.raises(AgentSessionRecoveryError, match="looked through 6 times"):
                    await run.result()
                with pytest.raises(AgentRuntimeError):
                    await session.run("Something else.")
                await session.reconcile()
                run = await session.get_run(run.run_id)
        sent = len(far.bodies("events.send"))
        assert (far.counts()["sessions"], far.counts()["inputs"], sent) == (1, int(executed), 1)


async def test_a_session_whose_answer_was_lost_and_that_is_listed_later_is_gone_on_with() -> None:
    async with ManagedClaudeServer() as far:
        far.fault(AnswerLost("sessions.create"), Answered("sessions.list", status=503, times=None))
        async with conversation(far) as session:
            run = await session.run("Hello")
            with pytest.raises(AgentSessionRecoveryError, match="could not be looked for"):
                await run.result()
            far.faults.clear()
            await session.reconcile()
            result = await (await session.get_run(run.run_id)).result()
            # It was found, and with it that the message was not sent: that can be said again.
            assert result.error is not None
            assert (result.status, result.error.code, far.counts()["inputs"]) == ("failed", "INPUT_NOT_SENT", 0)
            assert (await (await session.run("Hello")).result()).status == "completed"
        assert (far.by_endpoint["sessions.create"], far.counts()["sessions"], far.counts()["inputs"]) == (1, 1, 1)


async def test_a_session_of_which_nobody_knows_is_never_asked_for_again() -> None:
    async with ManagedClaudeServer() as far:
        far.fault(RequestLost("sessions.create"))
        async with conversation(far) as session:
            with pytest.raises(AgentSessionRecoveryError, match="looked for 6 times"):
                await (await session.run("Hello")).result()
        assert (far.by_endpoint["sessions.create"], far.counts()["inputs"]) == (1, 0)


async def test_a_redirect_is_not_followed_and_the_key_stays_here() -> None:
    async with Canary() as elsewhere, ManagedClaudeServer() as far:
        far.fault(Redirected("*", times=None, to=elsewhere.base_url))
        async with conversation(far) as session:
            _, result = await _seen(await session.run("Hello"))
            assert (result.status, result.error is not None and result.error.code) == ("failed", "PROVIDER_REDIRECTED")
            assert not elsewhere.requests
            assert (far.counts()["agents"], far.counts()["sessions"], far.counts()["inputs"]) == (0, 0, 0)
            far.faults.clear()
            assert (await (await session.run("Hello")).result()).status == "completed"
            # Where there is a session, neither what asks nor what sends is led elsewhere.
            for on in ("sessions.retrieve", INPUT):
                far.fault(Redirected(on, times=None, to=elsewhere.base_url))
                _, result = await _seen(await session.run("Once more"))
                assert result.error is not None
                assert (result.status, result.error.code) == ("failed", "PROVIDER_REDIRECTED")
                far.faults.clear()
            assert not elsewhere.requests
            counts = far.counts()
            assert (counts["agents"], counts["environments"], counts["sessions"], counts["inputs"]) == (1, 1, 1, 1)
