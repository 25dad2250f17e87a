"""A turn of `openai.agents.api` with one tool, and each thing that can go wrong on the way, in the runtime.

Whatever goes wrong, the far side counts one session, one input and one result, the tool acts once, the run ends right,
and the key is nowhere.
"""

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from runtime_host.connectors.transport import Timeouts
from runtime_host.definitions import JsonSchemaFormat, ReasoningConfig, TrustedContext
from runtime_host.errors import AgentRuntimeError, AgentSessionRecoveryError
from runtime_host.results import AgentResult
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.tools.base import HostTool, ResolutionContext, ResolvedTools, ToolContext
from tests.loopback.agents.script import Ask, Fail, Many, Say, Spawn, Think, Use, Wait, WriteFile
from tests.loopback.agents_server import DEFAULT_KEY, AgentsServer, Canary
from tests.loopback.managed_claude.faults import (
    Answered,
    AnswerLost,
    Fault,
    NullIdAtPageEnd,
    Redirected,
    RequestLost,
    StreamFault,
)
from tests.loopback.openai_managed import DEFINITION, driver_for, options_for, registry_of
from tests.loopback.secrecy import PLACES, Heard, listening

BRIEF = Timeouts(connect_s=2.0, read_s=0.4, write_s=2.0)
STEPS = (Think(), Say("I look.", phase="commentary"), Use("look", {"city": "Rome"}), Say("It rains in Rome."))


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    """What is let out in each test; the key is in none of it."""
    with listening(caplog, monkeypatch) as all_of_it:
        yield all_of_it
    assert all_of_it.where(DEFAULT_KEY) == set()


class Place(NamedTuple):
    """A far side, a session with it, and what the tool did."""

    far: AgentsServer
    session: Session
    acted: list[Any]
    store: MemoryAgentStore


@asynccontextmanager
async def _host(
    far: AgentsServer, store: MemoryAgentStore, acted: list[Any], **driver: Any
) -> AsyncIterator[AgentRuntime]:
    """One process of the host."""

    async def look(arguments: Any, _: ToolContext) -> str:
        acted.append(dict(arguments))
        return "rain"

    async def storage(_: str) -> AgentStore:
        return store

    async def resolve(names: tuple[str, ...], _: ResolutionContext) -> ResolvedTools:
        parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
        tools = tuple(HostTool(name, "Tells the weather.", parameters, look) for name in names)
        return ResolvedTools(tools=tools, fingerprint="1")

    connectors = registry_of(far)
    backend = LocalBackend(
        drivers=[driver_for(connectors, **driver)],
        storage=storage,
        connectors=connectors,
        durability="durable",
        resolve_tools=resolve,
    )
    async with AgentRuntime(backend) as runtime:
        yield runtime


@asynccontextmanager
async def _place(*, hosted: bool = True, **driver: Any) -> AsyncIterator[Place]:
    acted: list[Any] = []
    store = MemoryAgentStore()
    async with AgentsServer() as far, _host(far, store, acted, **driver) as runtime:
        definition = DEFINITION.model_copy(update={"tools": ("look",)})
        session = await runtime.create_agent(definition).open_session(options_for(hosted))
        yield Place(far, session, acted, store)


async def _run(place: Place, words: str = "What is the weather in Rome?") -> tuple[AgentResult, str]:
    run = await place.session.run(words)
    events = [event.model_dump(mode="json") async for event in run.events()]
    result = await run.result()
    return result, json.dumps(events) + result.model_dump_json()


def _posted(far: AgentsServer) -> list[Any]:
    return [each for each in far.requests if each.endpoint == "events.create"]


GOES_RIGHT: dict[str, tuple[Fault, ...]] = {
    "nothing": (),
    "the answer to the creation is lost": (AnswerLost("sessions.create"),),
    "the creation is done and answered with 500": (Answered("sessions.create", status=500, executed=True),),
    "the answer to the input is lost": (AnswerLost("events.create:message"),),
    "the input is taken and answered with 503": (Answered("events.create:message", status=503, executed=True),),
    "the answer to the result is lost": (AnswerLost("events.create:tool_result"),),
    "the result itself is lost": (RequestLost("events.create:tool_result"),),
    "the result is refused with 429": (Answered("events.create:tool_result", status=429, retry_after_s=0),),
    "the result is answered with 500": (Answered("events.create:tool_result", status=500),),
    "questions are refused with 429 and 500": (
        Answered("sessions.retrieve", status=429, retry_after_s=0),
        Answered("turns.retrieve", status=500),
        Answered("turns.items", status=500),
        RequestLost("turns.list"),
    ),
    "the first stream is refused": (Answered("events.stream", status=500),),
    "the next stream is refused": (
        StreamFault(how="close", at="agent.session.turn.output_text.delta"),
        Answered("events.stream", status=500),
    ),
    "the stream closes": (StreamFault(how="close", at="agent.session.turn.output_text.delta"),),
    "the stream closes before the call": (StreamFault(how="close", at="agent.session.requires_action"),),
    "the stream is cut": (StreamFault(how="cut", at="agent.session.turn.output_text.delta"),),
    "the stream is cut at the end": (StreamFault(how="cut", at="agent.session.turn.completed"),),
    "an error frame": (StreamFault(how="error", at="agent.session.turn.output_text.delta"),),
    "an unknown type": (StreamFault(how="unknown-type", at="agent.session.turn.output_text.delta"),),
    "a frame without a name": (StreamFault(how="nameless", at="agent.session.turn.*", times=None),),
    "an event of 6 MB": (StreamFault(how="huge", at="agent.session.turn.item.done"),),
    "everything twice": (StreamFault(how="twice", times=None),),
    "deltas swapped": (StreamFault(how="swapped", at="agent.session.turn.output_text.delta"),),
    "the call and its question swapped": (StreamFault(how="swapped", at="agent.session.turn.item.added", after=2),),
    "the end is not told": (StreamFault(how="lost", at="agent.session.turn.completed"),),
    "an error that echoes the key": (Answered("turns.retrieve", status=500, echo=True, times=2),),
}


ONLY_HOSTED = (
    "the answer to the input is lost",
    "the input is taken and answered with 503",
    "the first stream is refused",
    "questions are refused with 429 and 500",
)


def _cases() -> list[Any]:
    """Each fault once, in an environment or in none, and the other one in long runs."""
    cases = []
    for number, what in enumerate(GOES_RIGHT):
        hosted = what in ONLY_HOSTED or number % 2 == 1
        cases.append(pytest.param(what, hosted, id=f"{what}, {'hosted' if hosted else 'none'}"))
        if what not in ONLY_HOSTED:
            other = f"{what}, {'none' if hosted else 'hosted'}"
            cases.append(pytest.param(what, not hosted, id=other, marks=pytest.mark.soak))
    return cases


@pytest.mark.parametrize(("what", "hosted"), _cases())
async def test_the_run_ends_right_and_everything_happens_once(what: str, hosted: bool) -> None:
    async with _place(hosted=hosted) as place:
        place.far.answer(*STEPS)
        place.far.fault(*GOES_RIGHT[what])
        result, published = await _run(place)
        counts = place.far.counts()
        happened = {id(fault) for fault in place.far.faults.happened}
        assert happened == {id(fault) for fault in GOES_RIGHT[what]}, "a fault did not happen"
        assert (result.status, result.output_text, result.error) == ("completed", "It rains in Rome.", None)
        assert (counts["sessions"], counts["inputs"], counts["results"], counts["steered"]) == (1, 1, 1, 0)
        assert place.acted == [{"city": "Rome"}]
        # However often something is sent, its key makes it the same one.
        sent = {(each.json()["events"][0]["type"], each.headers["idempotency-key"]) for each in _posted(place.far)}
        assert len(sent) == len({kind for kind, _ in sent})
        assert DEFAULT_KEY not in published
        assert ("EVENT_TOO_LARGE" in published) == (what == "an event of 6 MB")
        assert ("EVENT_UNKNOWN" in published) == (what == "an unknown type")


async def test_what_is_let_out_is_heard_wherever_it_is(heard: Heard) -> None:
    async with _place() as place:
        place.far.answer(*STEPS)
        await _run(place)
        place.far.fault(RequestLost("events.create:message"))
        with pytest.raises(AgentSessionRecoveryError):
            await (await place.session.run("And now?")).result()
    assert heard.places == set(PLACES)
    assert heard.where("It rains in Rome.") == {"events", "results", "stored"}
    assert heard.where("looked for 4 times") == {"errors", "stored"}


# ---------------------------------------------------------------------------- what cannot go right


async def test_a_creation_refused_with_429_fails_with_its_code_and_makes_nothing() -> None:
    async with _place(hosted=False) as place:
        place.far.fault(Answered("sessions.create", status=429, retry_after_s=1, echo=True))
        result, published = await _run(place)
        assert result.status == "failed"
        assert result.error is not None
        assert result.error.code == "PROVIDER_RATE_LIMITED"
        assert place.far.counts()["sessions"] == 0
        assert DEFAULT_KEY not in published
        again, _ = await _run(place)
        assert (again.status, place.far.counts()["sessions"]) == ("completed", 1)


@pytest.mark.parametrize("on", ["sessions.create", "events.create:message"])
async def test_what_is_answered_with_500_and_was_not_done_is_asked_for_once(on: str) -> None:
    async with _place(hosted=on != "sessions.create") as place:
        place.far.fault(Answered(on, status=500, echo=True))
        run = await place.session.run("What is the weather in Rome?")
        for _ in range(2):
            with pytest.raises(AgentSessionRecoveryError, match="looked for 4 times"):
                await run.result()
            with pytest.raises(AgentRuntimeError):
                await place.session.run("Something else.")
            await place.session.reconcile()
            run = await place.session.get_run(run.run_id)
        endpoint = on.partition(":")[0]
        assert (place.far.counts()["inputs"], place.far.by_endpoint[endpoint]) == (0, 1)


async def test_an_input_refused_with_429_is_not_sent_again() -> None:
    async with _place() as place:
        await _run(place)
        place.far.fault(Answered("events.create:message", status=429))
        result, _ = await _run(place)
        assert result.status == "failed"
        assert place.far.counts()["inputs"] == 1
        assert (await _run(place))[0].status == "completed"


@pytest.mark.parametrize(
    "on",
    [
        "sessions.create",
        "events.create:message",
        pytest.param("sessions.retrieve", marks=pytest.mark.soak),
        pytest.param("events.stream", marks=pytest.mark.soak),
    ],
)
async def test_nothing_goes_to_another_origin(on: str) -> None:
    async with Canary() as canary, _place() as place:
        place.far.fault(Redirected(on, to=canary.base_url, times=None))
        result, published = await _run(place)
        assert result.error is not None
        assert (result.status, result.error.code) == ("failed", "PROVIDER_REDIRECTED")
        assert canary.requests == []
        assert DEFAULT_KEY not in published
        counts = place.far.counts()
        assert (counts["sessions"], counts["inputs"]) == (0 if on == "sessions.create" else 1, 0)
        place.far.faults.clear()
        assert (await _run(place))[0].status == "completed"
        assert (place.far.counts()["sessions"], place.far.counts()["inputs"]) == (1, 1)


async def test_a_history_over_several_pages_is_whole_though_an_id_is_missing_at_a_page_end() -> None:
    async with _place() as place:
        place.far.service.null_id_inputs = True
        place.far.answer(Many(230), Say("That was all."))
        place.far.fault(
            StreamFault(how="close", at="agent.session.turn.item.done", times=3), NullIdAtPageEnd("turns.items")
        )
        run = await place.session.run("Tell me all.")
        events = [event async for event in run.events()]
        told = [event.data["text"] for event in events if event.type == "agent.message.completed"]
        # What has no id cannot be told apart, so it may be left out of the events; never what comes after it.
        assert len({f"Note {number}." for number in range(230)} - set(told)) <= 1
        assert (await run.result()).output_text == "That was all."
        assert place.far.by_endpoint["turns.items"] >= 3
        counts = place.far.counts()
        assert (counts["sessions"], counts["inputs"], counts["results"]) == (1, 1, 0)


@pytest.mark.parametrize("kind", ["mcp_approval_request", "computer_use_approval_request", "environment_connection"])
async def test_what_else_is_waited_for_is_refused_and_the_turn_is_cancelled(kind: Any) -> None:
    async with _place() as place:
        place.far.answer(Say("Hm.", phase="commentary"), Ask(kind), Say("Done."))
        result, _ = await _run(place)
        assert result.error is not None
        assert (result.status, result.error.code) == ("failed", "ACTION_REFUSED")
        assert (place.far.counts()["cancels"], place.far.session().turns[0]["status"]) == (1, "cancelled")


async def test_a_turn_of_a_subagent_neither_ends_the_run_nor_is_told() -> None:
    async with _place(hosted=False) as place:
        place.far.answer(Spawn("I looked into it."), Say("Here.", phase="commentary"), Say("It is so."))
        result, published = await _run(place)
        assert (result.status, result.output_text) == ("completed", "It is so.")
        assert "I looked into it." not in published


async def test_what_a_turn_made_is_named_in_its_result_alone() -> None:
    async with _place() as place:
        place.far.answer(WriteFile("/workspace/outputs/a b.txt"), Say("One."))
        place.far.answer(WriteFile("/workspace/outputs/two.txt"), Say("Two."))
        first, _ = await _run(place)
        second, _ = await _run(place)
        assert [(each.type, each.name) for each in first.artifacts] == [("reference", "a b.txt")]
        assert [each.name for each in second.artifacts] == ["two.txt"]
        assert second.artifacts[0].reference == place.far.session().artifacts[1]["id"]


async def test_a_cancel_is_proven_by_the_turn_and_meets_no_later_input() -> None:
    async with _place() as place:
        place.far.answer(Say("Well", unfinished=True), Wait())
        run = await place.session.run("Take your time.")
        async for event in run.events():
            if event.type == "agent.message.delta":
                break
        await run.cancel()
        assert (await run.result()).status == "cancelled"
        assert place.far.session().turns[0]["status"] == "cancelled"
        result, _ = await _run(place)
        assert (result.status, place.far.counts()["cancels"]) == ("completed", 1)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"environment_echo": {"network": {"access": "enabled", "allowed_domains": []}}}, "network"),
        ({"environment_echo": {"desktop": {"enabled": True}}}, "desktop"),
        ({"agent_echo": {"multi_agent": {"enabled": True}}}, "delegation"),
        ({"agent_echo": {"tools": []}}, "tools"),
    ],
)
async def test_a_session_that_is_not_as_asked_gets_no_input(changed: dict[str, Any], named: str) -> None:
    async with _place() as place:
        for name, value in changed.items():
            setattr(place.far.service, name, value)
        result, _ = await _run(place)
        assert result.error is not None
        assert (result.status, result.error.code) == ("failed", "SESSION_NOT_AS_ASKED")
        assert named in result.error.message
        assert place.far.counts()["inputs"] == 0


async def test_a_session_that_was_changed_behind_its_back_is_not_gone_on_with() -> None:
    async with _place() as place:
        await _run(place)
        place.far.session().record["agent"]["tools"][0]["description"] = "Deletes everything."
        result, _ = await _run(place)
        assert result.error is not None
        assert (result.error.code, place.far.counts()["inputs"]) == ("SESSION_NOT_AS_ASKED", 1)


async def test_model_effort_and_form_of_the_answer_per_run() -> None:
    schema = JsonSchemaFormat.model_validate({"schema": {"type": "object", "required": ["a"]}})
    async with _place(model_efforts={"gpt-6-other": ["low", "high"]}) as place:
        place.far.always(Say('{"a": 1}'))
        run = await place.session.run("One", response_format=schema)
        assert (await run.result()).output_parsed == {"a": 1}
        assert place.far.by_endpoint["sessions.update"] == 0
        high = ReasoningConfig(effort="high")
        run = await place.session.run("Two", response_format=schema, model="gpt-6-other", reasoning=high)
        assert (await run.result()).status == "completed"
        agent = place.far.session().record["agent"]
        assert (agent["model"], agent["reasoning"]["effort"]) == ("gpt-6-other", "high")
        back = await place.session.run("Three", response_format=schema)
        assert (await back.result()).status == "completed"
        assert (agent["model"], agent["reasoning"]["effort"]) == ("gpt-6-astra", None)
        refused = await (await place.session.run("Four")).result()
        assert (refused.status, place.far.counts()["inputs"]) == ("failed", 3)


async def test_what_fails_at_openai_is_told_by_its_code() -> None:
    async with _place() as place:
        place.far.answer(Say("Well."), Fail("credit_balance_exhausted", f"No money. {DEFAULT_KEY}"))
        result, published = await _run(place)
        assert result.error is not None
        assert (result.status, result.error.code) == ("failed", "PROVIDER_QUOTA_EXHAUSTED")
        assert result.error.details["provider_code"] == "credit_balance_exhausted"
        assert DEFAULT_KEY not in published
        assert "No money" not in published


async def test_a_result_that_is_refused_as_not_known_yet_is_told_once_all_the_same() -> None:
    async with _place() as place:
        place.far.service.early_refusals = 2
        place.far.answer(*STEPS)
        result, _ = await _run(place)
        assert (result.status, place.far.counts()["results"], len(place.acted)) == ("completed", 1, 1)


async def test_a_clock_that_jumps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _place() as place:
        place.far.answer(Say("Well", phase="commentary"), Wait(), Use("look", {"city": "Rome"}), Say("Done."))
        place.far.fault(AnswerLost("events.create:message"), AnswerLost("events.create:tool_result"))
        run = await place.session.run("Take your time.")
        async for event in run.events():
            if event.type == "agent.message.completed":
                break
        place.far.jump(-86_400)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 86_400)
        place.far.let_go()
        assert (await run.result()).output_text == "Done."
        counts = place.far.counts()
        assert (counts["sessions"], counts["inputs"], counts["results"], len(place.acted)) == (1, 1, 1, 1)


# ---------------------------------------------------------------------------- over the end of the program


class _Kept(MemoryAgentStore):
    """A store that outlives the runtime that used it."""

    async def close(self) -> None:
        """It stays for the next process."""


async def test_a_run_goes_on_while_the_program_is_closed_and_is_found_again() -> None:
    store, acted = _Kept(), list[Any]()
    async with AgentsServer() as far:
        far.answer(Say("I look.", phase="commentary"), Wait(), Use("look", {"city": "Rome"}), Say("It rains in Rome."))
        async with _host(far, store, acted) as runtime:
            definition = DEFINITION.model_copy(update={"tools": ("look",)})
            session = await runtime.create_agent(definition).open_session(options_for(True))
            run = await session.run("What is the weather in Rome?")
            async for event in run.events():
                if event.type == "agent.message.completed":
                    break
        assert far.session().running
        far.let_go()
        async with _host(far, store, acted) as later:
            [recovered] = await later.recover(DEFINITION.id)
            assert recovered.run is not None
            assert recovered.run.run_id == run.run_id
            events = [event async for event in recovered.run.events()]
            result = await recovered.run.result()
            assert (result.status, result.output_text) == ("completed", "It rains in Rome.")
            said = [event.data["text"] for event in events if event.type == "agent.message.completed"]
            assert said == ["It rains in Rome."], "what was shown before was shown twice"
            assert "HISTORY_GAP" in [event.data["code"] for event in events if event.type == "diagnostic"]
            assert recovered.session is not None
            reference = recovered.session.reference()
            await recovered.session.detach()
            counts = far.counts()
            assert (counts["sessions"], counts["inputs"], counts["results"], counts["cancels"]) == (1, 1, 1, 0)
            assert acted == [{"city": "Rome"}]
            await later.delete_session(reference, context=TrustedContext())
            assert far.counts()["deletes"] == 1


@pytest.mark.parametrize("on", ["sessions.create", "events.create:message"])
async def test_what_is_not_known_is_never_sent_again_and_is_found_out_later(on: str) -> None:
    async with _place(hosted=on != "sessions.create") as place:
        place.far.answer(*STEPS)
        place.far.service.list_lag = 1000
        place.far.fault(AnswerLost(on), Answered("turns.list", status=503, times=None, after=1))
        run = await place.session.run("What is the weather in Rome?")
        with pytest.raises(AgentSessionRecoveryError) as lost:
            await run.result()
        assert lost.value.run_id == run.run_id
        assert DEFAULT_KEY not in lost.value.message + json.dumps(lost.value.details)
        with pytest.raises(AgentRuntimeError):
            await place.session.run("Something else.")
        place.far.faults.clear()
        place.far.session().hidden_looks = 0
        await place.session.reconcile()
        found = await place.session.get_run(run.run_id)
        result = found if isinstance(found, AgentResult) else await found.result()
        assert (result.run_id, result.status, result.output_text) == (run.run_id, "completed", "It rains in Rome.")
        counts = place.far.counts()
        assert (counts["sessions"], counts["inputs"], counts["results"], len(place.acted)) == (1, 1, 1, 1)
        assert (await _run(place))[0].status == "completed"
