"""What turns of managed Claude come to: states, stops, pauses, refusals, restarts, and what is left of them."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runtime_host.definitions import Environment, JsonSchemaFormat, ReasoningConfig, SessionOptions
from runtime_host.drivers.base import SessionOpening, Turn
from runtime_host.drivers.claude_managed.driver import ClaudeManagedDriver
from runtime_host.drivers.claude_managed.run import ManagedClaudeRun
from runtime_host.drivers.claude_managed.session import ManagedClaudeSession
from runtime_host.drivers.managed.service import Patience
from runtime_host.errors import (
    AgentBusyError,
    AgentCapabilityUnsupportedError,
    AgentNativeExecutionError,
    AgentSessionRecoveryError,
    StorageError,
)
from runtime_host.events import DriverEvent
from runtime_host.policy import Policy
from runtime_host.results import DriverResult
from runtime_host.tools.base import EarlierCall, ToolRequest
from tests.loopback.claude_managed import DEFINITION, MODEL, driver_for, options_for, registry_for
from tests.loopback.managed_claude.faults import Altered, Answered, AnswerLost, RequestLost, StreamFault
from tests.loopback.managed_claude.script import (
    GiveUp,
    Refuse,
    Request,
    Reschedule,
    Say,
    Terminate,
    Think,
    Trouble,
    Use,
    UseBuiltIn,
    Wait,
)
from tests.loopback.managed_claude_server import ManagedClaudeServer
from tests.loopback.tools import Channel, soon

WORK = Policy(
    filesystem="workspace-write",
    commands="sandboxed",
    sandbox_network="denied",
    provider_web_search="denied",
    approvals="deny",
)
INPUT = "events.send:user.message"


class Kept:
    """The state of a session, as the runtime would keep it."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []

    async def keep(self, state: dict[str, Any]) -> None:
        self.states.append(state)

    def opening(self, options: SessionOptions | None = None) -> SessionOpening:
        state = self.states[-1] if self.states else None
        return SessionOpening("session_1", DEFINITION, options or options_for(), state, keep=self.keep)


async def _nothing_before() -> tuple[()]:
    return ()


def turn_for(text: str = "Hello", run_id: str = "run_1", **more: Any) -> Turn:
    return Turn(run_id, text, MODEL, None, _nothing_before, **more)


@asynccontextmanager
async def at(far: ManagedClaudeServer, **more: Any) -> AsyncIterator[ClaudeManagedDriver]:
    driver = driver_for(registry_for(far.base_url), **more)
    try:
        yield driver
    finally:
        await driver.aclose()


async def seen(run: ManagedClaudeRun) -> tuple[list[DriverEvent], DriverResult]:
    async with asyncio.timeout(20):
        events = [event async for event in run.events()]
        return events, await run.result()


async def told(far: ManagedClaudeServer, *steps: Any, options: SessionOptions | None = None) -> Any:
    """One turn from beginning to end."""
    far.answer(*steps)
    async with at(far) as driver:
        session = await driver.open(Kept().opening(options))
        return await seen(await session.start(turn_for()))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # a far side is plain data
            await asyncio.sleep(0.005)


def codes(events: list[DriverEvent]) -> list[str]:
    return [event.data["code"] for event in events if event.type == "diagnostic"]


# ---- what is made ----


async def test_opening_and_inspecting_send_nothing_and_the_first_input_makes_what_was_asked_for() -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        kept = Kept()
        options = options_for(
            policy=WORK,
            reasoning=ReasoningConfig(effort="high"),
            driver_config={"native_tools": ["bash", "read", "write"], "max_list_cost_usd_cents": "250"},
        )
        inspection = await driver.inspect(DEFINITION, options)
        session = await driver.open(kept.opening(options))
        assert far.requests == []
        assert inspection.capabilities["run.model_override"].support == "unsupported"
        turn = turn_for()._replace(reasoning=ReasoningConfig(effort="high"))
        _, result = await seen(await session.start(turn))
        assert result.status == "completed"
        [agent], [environment], [made] = (
            far.bodies(f"{name}.create") for name in ("agents", "environments", "sessions")
        )
    assert agent["model"] == {"id": MODEL, "effort": "high"}
    assert agent["tools"][0]["default_config"]["enabled"] is False
    assert [each["name"] for each in agent["tools"][0]["configs"]] == ["bash", "read", "write"]
    networking = {"type": "limited", "allowed_hosts": [], "allow_mcp_servers": False, "allow_package_managers": False}
    assert environment["config"] == {"type": "cloud", "networking": networking}
    assert made["agent"]["version"] == 1
    assert (made["vault_ids"], made["budget"]["max_list_cost"]) == ([], {"amount": "250", "currency": "USD"})
    # Each intent before its request, each name after it.
    steps = [
        (sorted(state["intents"]), [state[each] is not None for each in ("agent", "environment", "session")])
        for state in kept.states
    ]
    assert steps[:6] == [
        (["agent"], [False, False, False]),
        ([], [True, False, False]),
        (["environment"], [True, False, False]),
        ([], [True, True, False]),
        (["session"], [True, True, False]),
        ([], [True, True, True]),
    ]  # fmt: skip
    assert "Hello" not in str(kept.states)


@pytest.mark.parametrize("endpoint", ["agents.create", "environments.create", "sessions.create"])
async def test_what_is_made_otherwise_is_not_used(endpoint: str) -> None:
    changes: dict[str, dict[str, Any]] = {
        "agents.create": {
            "tools": [{"type": "agent_toolset_20260401", "default_config": {"enabled": True}, "configs": []}]
        },
        "environments.create": {"config": {"type": "cloud", "networking": {"type": "unrestricted"}}},
        "sessions.create": {"vault_ids": ["vlt_1"]},
    }
    async with ManagedClaudeServer() as far, at(far) as driver:
        far.fault(Altered(endpoint, changes=changes[endpoint]))
        session = await driver.open(Kept().opening())
        _, result = await seen(await session.start(turn_for()))
        assert result.error is not None
        assert (result.status, result.error.code) == ("failed", "ECHO_MISMATCH")
        assert far.counts()["inputs"] == 0


async def test_an_environment_whose_network_was_opened_after_a_turn_is_not_used_for_the_next() -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        session = await driver.open(Kept().opening())
        await seen(await session.start(turn_for()))
        [room] = far.service.environments.values()
        room["config"]["networking"]["allowed_hosts"] = ["elsewhere.example"]
        _, result = await seen(await session.start(turn_for("Again", "run_2")))
        assert result.error is not None
        assert (result.status, result.error.code) == ("failed", "ECHO_MISMATCH")
        assert far.counts()["inputs"] == 1


@pytest.mark.parametrize("at_which", range(8))
async def test_a_full_disk_at_any_keeping_makes_nothing_twice_and_sends_nothing_twice(at_which: int) -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        kept, times = Kept(), itertools.count()

        async def keep(state: dict[str, Any]) -> None:
            if next(times) == at_which:
                raise StorageError("The disk is full.")
            await kept.keep(state)

        first = await driver.open(kept.opening()._replace(keep=keep))
        run = await first.start(turn_for())
        with contextlib.suppress(AgentSessionRecoveryError):
            await seen(run)
        await first.close()
        again = await driver.open(kept.opening())
        with contextlib.suppress(AgentSessionRecoveryError):
            await seen(await again.rejoin(turn_for()))
        counts = far.counts()
        assert {
            name: counts[name] for name in ("agents", "environments", "sessions", "inputs") if counts[name] > 1
        } == {}


async def test_two_of_one_intent_are_used_by_nobody_and_both_removed() -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        kept = Kept()
        far.fault(AnswerLost("agents.create"))
        far.service.late_sessions = 0
        session = await driver.open(kept.opening())
        known = far.service.agents

        def twice() -> None:
            [versions] = known.values()
            known["agent_copy"] = [{**versions[0], "id": "agent_copy"}]

        run = await session.start(turn_for())
        await until(lambda: bool(known))
        twice()
        _, result = await seen(run)
        assert result.error is not None
        assert result.error.code == "QUARANTINED"
        assert len(result.error.details["ids"]) == 2
        assert "agent_copy" not in result.error.message
        await session.close()
        await driver.discard(kept.opening())
        assert sorted(far.service.archives) == sorted(result.error.details["ids"])


async def test_an_environment_of_the_list_is_used_and_left_alone() -> None:
    async with ManagedClaudeServer() as far, at(far) as maker:
        await seen(await (await maker.open(Kept().opening())).start(turn_for()))
        [borrowed] = far.service.environments
        async with at(far, environment_ids=lambda: (borrowed,)) as driver:
            kept = Kept()
            options = options_for(environment=Environment(type="provider-managed", reference=borrowed))
            session = await driver.open(kept.opening(options))
            _, result = await seen(await session.start(turn_for()))
            assert result.status == "completed"
            await session.close()
            await driver.discard(kept.opening(options))
        assert borrowed in far.service.environments
        assert (far.counts()["environments"], far.counts()["archives"]) == (1, 1)


# ---- how it ends ----


async def test_thinking_is_told_without_words_and_a_refusal_is_no_success() -> None:
    async with ManagedClaudeServer() as far:
        events, result = await told(far, Think(), Refuse("cyber"))
    assert [event.data["text"] for event in events if event.type == "reasoning.completed"] == [""]
    assert (result.status, result.error.code, result.error.details["category"]) == ("failed", "REFUSED", "cyber")
    assert "Scripted" not in result.model_dump_json()


@pytest.mark.parametrize(("step", "code"), [(GiveUp(), "RETRIES_EXHAUSTED"), (Terminate(), "SESSION_TERMINATED")])
async def test_what_is_given_up_or_terminated_fails(step: Any, code: str) -> None:
    async with ManagedClaudeServer() as far:
        _, result = await told(far, Say("The capital"), step)
    assert (result.status, result.error.code) == ("failed", code)


async def test_trouble_that_is_tried_again_is_shown_and_does_not_fail() -> None:
    async with ManagedClaudeServer() as far:
        events, result = await told(far, Trouble(), Reschedule(), Say("Half", previews_only=True), Say("Paris."))
    assert (result.status, result.output_text) == ("completed", "Paris.")
    assert codes(events) == ["RETRY", "RESCHEDULED"]
    assert "Scripted" not in str(events)


async def test_a_budget_that_is_reached_keeps_waiting_until_it_is_raised() -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        far.answer(Request(cents=60), Say("One."), Request(), Say("Two."))
        options = options_for(driver_config={"max_list_cost_usd_cents": "50"})
        kept = Kept()
        session = await driver.open(kept.opening(options))
        run = await session.start(turn_for())
        events: list[DriverEvent] = []

        async def read() -> None:
            events.extend([event async for event in run.events()])

        reading = asyncio.create_task(read())
        [native] = await _sessions(far)
        await until(lambda: native.status == "idle" and far.by_endpoint["events.list"] > 1)
        await asyncio.sleep(0.1)
        assert not reading.done(), "a run whose budget is reached ended"
        other = await driver.open(kept.opening(options))
        _, second = await seen(await other.start(turn_for(run_id="run_2")))
        assert (second.error is not None and second.error.code, far.counts()["inputs"]) == ("BUDGET_REACHED", 1)
        native.record["budget"] = None
        native.budget_changed.set()
        await asyncio.wait_for(reading, 10)
        result = await run.result()
    assert (result.status, result.output_text, codes(events)) == ("completed", "Two.", ["BUDGET_REACHED"])
    assert result.usage is not None
    assert result.usage.native is not None
    assert result.usage.native["list_cost"]["amount"] == "60"


async def _sessions(far: ManagedClaudeServer) -> list[Any]:
    await until(lambda: bool(far.service.sessions))
    return list(far.service.sessions.values())


async def test_a_built_in_tool_that_wants_a_confirmation_is_interrupted() -> None:
    async with ManagedClaudeServer() as far:
        _, result = await told(far, UseBuiltIn(asks=True), Say("Never."))
        assert (result.status, result.error.code) == ("failed", "ACTION_REFUSED")
        assert (far.counts()["interrupts"], far.by_endpoint["events.send"]) == (1, 2)


async def test_a_built_in_tool_is_shown_as_a_command() -> None:
    async with ManagedClaudeServer() as far:
        events, result = await told(far, UseBuiltIn(asks=False), Say("Done."))
    assert result.status == "completed"
    [done] = [event.data for event in events if event.type == "command.completed"]
    assert (done["command"], done["output"], done["status"]) == ("id", "uid=0(root)", "completed")


# ---- stops ----


@pytest.mark.parametrize(
    "fault", [None, AnswerLost("events.send:user.interrupt"), Answered("events.send:user.interrupt", status=429)]
)
async def test_a_stop_is_our_interrupt_its_echo_and_an_idle_after_it(fault: Any) -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        far.answer(Say("The capital"), Wait())
        if fault is not None:
            far.fault(fault)
        kept = Kept()
        run = await (await driver.open(kept.opening())).start(turn_for())
        await until(lambda: far.service.waiting == 1)
        await run.cancel()
        _, result = await seen(run)
        assert (result.status, result.output_text, far.counts()["interrupts"]) == ("cancelled", "The capital", 1)
        assert kept.states[-1]["runs"]["run_1"]["stop"]["event"]


async def test_a_stop_that_comes_after_the_end_changes_nothing() -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        far.service.stale_reads = 3
        run = await (await driver.open(Kept().opening())).start(turn_for())
        await until(
            lambda: any(
                event["type"] == "session.status_idle"
                for each in far.service.sessions.values()
                for event in each.events
            )
        )
        await run.cancel()
        _, result = await seen(run)
        assert (result.status, result.output_text) == ("completed", "The capital of France is Paris.")


async def test_a_turn_is_over_once_the_record_of_the_session_says_so_too() -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        far.service.stale_reads = 3
        _, result = await seen(await (await driver.open(Kept().opening())).start(turn_for()))
        [session] = far.service.sessions.values()
        assert (result.status, session.stale_reads) == ("completed", 0)


async def test_streams_that_end_at_once_are_opened_again_ever_less_often() -> None:
    waits: list[float] = []

    async def wait(wait_s: float) -> None:
        waits.append(wait_s)
        await asyncio.sleep(0.001)

    async with ManagedClaudeServer() as far, at(far, looking=Patience(tries=6, sleep=wait)) as driver:
        # Each of these would be the first event of a stream.
        far.answer(*(Say("Well.", pieces=1, pause_s=0.02) for _ in range(30)), Wait(), Say("Paris."))
        far.fault(StreamFault(how="close", times=None))
        run = await (await driver.open(Kept().opening())).start(turn_for())
        await until(lambda: far.service.waiting == 1)
        far.faults.clear()
        far.let_go()
        _, result = await seen(run)
        assert result.status == "completed"
    assert len(waits) >= 3
    assert waits[:4] == sorted(set(waits[:4]))


# ---- let go of, and joined again ----


async def test_a_result_that_the_provider_has_is_only_confirmed_when_the_run_is_joined_again() -> None:
    async with ManagedClaudeServer() as far:
        far.answer(Use("look", {}, "sevt_1"), Say("It rains."), Wait(), Say("Still."))
        kept, first = Kept(), Channel()
        async with at(far) as driver:
            run = await (await driver.open(kept.opening())).start(turn_for(tools=first))
            await until(lambda: far.service.waiting == 1)
            await run.release()
        channel = Channel(EarlierCall(ToolRequest("sevt_1", "look", "{}"), None))
        async with at(far) as later:
            run = await (await later.open(kept.opening())).rejoin(turn_for(tools=channel))
            reading = asyncio.ensure_future(seen(run))
            await soon(channel.shown)
            far.let_go()
            _, result = await reading
        assert result.output_text == "Still."
        assert channel.steps == [("execute", "sevt_1"), ("delivering", "sevt_1"), ("delivered", "sevt_1")]
        assert (far.counts()["results"], far.counts()["inputs"]) == (1, 1)


async def test_a_run_that_was_let_go_of_goes_on_and_is_joined_with_all_that_came() -> None:
    async with ManagedClaudeServer() as far:
        far.answer(Say("One."), Wait(), Say("Two."))
        kept = Kept()
        async with at(far) as driver:
            run = await (await driver.open(kept.opening())).start(turn_for())
            await until(lambda: far.service.waiting == 1 and kept.states[-1]["runs"]["run_1"]["input"] is not None)
            sent = far.by_endpoint["events.send"]
            await run.release()
            assert far.by_endpoint["events.send"] == sent
        far.let_go()
        async with at(far) as later:
            events, result = await seen(await (await later.open(kept.opening())).rejoin(turn_for()))
        texts = [event.data["text"] for event in events if event.type == "agent.message.completed"]
        assert (texts, result.status, result.output_text) == (["One.", "Two."], "completed", "Two.")
        assert (far.counts()["inputs"], far.counts()["sessions"]) == (1, 1)


async def test_a_run_whose_session_was_set_up_otherwise_meanwhile_is_told_nothing() -> None:
    async with ManagedClaudeServer() as far:
        far.answer(Say("I look."), Wait(), Use("look", {}, "sevt_1"), Say("It rains."))
        kept = Kept()
        async with at(far) as driver:
            run = await (await driver.open(kept.opening())).start(turn_for(tools=Channel()))
            await until(lambda: far.service.waiting == 1)
            await run.release()
        [room] = far.service.environments.values()
        room["config"]["networking"]["allowed_hosts"] = ["elsewhere.example"]
        far.let_go()
        channel = Channel()
        async with at(far) as later:
            run = await (await later.open(kept.opening())).rejoin(turn_for(tools=channel))
            with pytest.raises(AgentSessionRecoveryError, match=r"networking\.allowed_hosts"):
                await seen(run)
            assert channel.steps == []
            # It can be stopped all the same.
            run = await (await later.open(kept.opening())).rejoin(turn_for(tools=channel))
            await run.cancel()
            _, result = await seen(run)
        assert (result.status, channel.steps) == ("cancelled", [])
        assert (far.counts()["results"], far.counts()["inputs"], far.counts()["interrupts"]) == (0, 1, 1)


@pytest.mark.parametrize("kind", ["agent", "environment", "session"])
async def test_what_was_about_to_be_made_when_the_program_ended_is_found_and_not_made_again(kind: str) -> None:
    async with ManagedClaudeServer() as far:
        kept, after = Kept(), Kept()
        async with at(far) as driver:
            await seen(await (await driver.open(kept.opening())).start(turn_for()))
        # All that the next process has of it.
        after.states = [next(state for state in kept.states if kind in state["intents"])]
        async with at(far) as later:
            _, result = await seen(await (await later.open(after.opening())).start(turn_for("More", "run_2")))
        counts = far.counts()
        assert (result.status, counts["inputs"]) == ("completed", 2)
        made = dict(agent=counts["agents"], environment=counts["environments"], session=counts["sessions"])
        assert made[kind] == 1


async def test_a_creation_that_was_lost_keeps_its_conversation_until_it_is_shown_or_long_ago() -> None:
    async with ManagedClaudeServer() as far:
        kept = Kept()
        far.fault(RequestLost("sessions.create"))
        async with at(far) as driver:
            with pytest.raises(AgentSessionRecoveryError):
                await seen(await (await driver.open(kept.opening())).start(turn_for()))
            with pytest.raises(AgentBusyError, match="Try again later"):
                await driver.discard(kept.opening())
            assert "session" in kept.states[-1]["intents"]
            intents = {
                what: {**each, "since": each["since"] - 7200} for what, each in kept.states[-1]["intents"].items()
            }
            kept.states.append({**kept.states[-1], "intents": intents})
            await driver.discard(kept.opening())
        assert (far.counts()["sessions"], kept.states[-1]["intents"], kept.states[-1]["agent"]) == (0, {}, None)


async def test_an_input_that_went_out_is_not_sent_again_whatever_it_is_asked_as() -> None:
    async with ManagedClaudeServer() as far:
        kept = Kept()
        async with at(far) as driver:
            await seen(await (await driver.open(kept.opening())).start(turn_for()))
        async with at(far) as later:
            _, result = await seen(await (await later.open(kept.opening())).start(turn_for()))
        assert (result.status, far.counts()["inputs"]) == ("completed", 1)


async def test_an_input_whose_answer_nobody_saw_is_found_by_its_words_after_a_restart() -> None:
    async with ManagedClaudeServer() as far:
        kept = Kept()
        far.fault(AnswerLost(INPUT), Answered("events.list", times=6 * 5, status=503))
        async with at(far) as driver:
            run = await (await driver.open(kept.opening())).start(turn_for("What is it?"))
            with pytest.raises(AgentSessionRecoveryError):
                await seen(run)
            assert kept.states[-1]["runs"]["run_1"]["input"] is None
        async with at(far) as later:
            _, result = await seen(await (await later.open(kept.opening())).rejoin(turn_for("What is it?")))
        assert (result.status, far.counts()["inputs"]) == ("completed", 1)


async def test_an_input_that_is_nowhere_stays_unknown_whatever_the_clock_says_and_is_never_sent_again() -> None:
    async with ManagedClaudeServer() as far:
        kept = Kept()
        far.fault(RequestLost(INPUT))
        async with at(far) as driver:
            session = await driver.open(kept.opening())
            for attempt in (session.start, session.rejoin):
                with pytest.raises(AgentSessionRecoveryError, match="looked through 6 times"):
                    await seen(await attempt(turn_for()))
            kept.states[-1]["runs"]["run_1"]["since"] -= 86400
            again = await driver.open(kept.opening())
            with pytest.raises(AgentSessionRecoveryError):
                await seen(await again.rejoin(turn_for()))
        assert (far.by_endpoint["events.send"], far.counts()["inputs"]) == (1, 0)


async def test_a_stop_that_was_kept_and_never_arrived_is_asked_for_when_the_run_is_joined_again() -> None:
    async with ManagedClaudeServer() as far:
        far.answer(Say("The capital"), Wait())
        kept = Kept()
        far.fault(RequestLost("events.send:user.interrupt"))
        async with at(far) as driver:
            run = await (await driver.open(kept.opening())).start(turn_for())
            await until(lambda: far.service.waiting == 1)
            await run.cancel()
            await until(lambda: bool(far.faults.happened))
            await run.release()
        async with at(far) as later:
            _, result = await seen(await (await later.open(kept.opening())).rejoin(turn_for()))
        assert (result.status, far.counts()["interrupts"], far.counts()["inputs"]) == ("cancelled", 1, 1)


async def test_a_run_of_which_nothing_was_kept_was_never_sent() -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        _, result = await seen(await (await driver.open(Kept().opening())).rejoin(turn_for()))
        assert result.error is not None
        assert (result.error.code, far.requests) == ("INPUT_NOT_SENT", [])


# ---- what is refused ----


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "claude-opus-5-5"},
        {"reasoning": ReasoningConfig(effort="low")},
        {"response_format": JsonSchemaFormat(schema={"type": "object"})},
    ],
)
async def test_what_is_bound_is_not_changed_by_a_run_and_nothing_is_sent(changed: dict[str, Any]) -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        session: ManagedClaudeSession = await driver.open(Kept().opening())
        with pytest.raises(AgentCapabilityUnsupportedError):
            await session.start(turn_for()._replace(**changed))
        assert far.requests == []


# ---- what is left ----


async def test_all_that_was_made_is_removed_and_nothing_while_it_works() -> None:
    async with ManagedClaudeServer() as far, at(far) as driver:
        far.answer(Say("The capital"), Wait())
        kept = Kept()
        session = await driver.open(kept.opening())
        run = await session.start(turn_for())
        await until(lambda: far.service.waiting == 1)
        with pytest.raises(AgentBusyError):
            await driver.discard(kept.opening())
        assert (far.counts()["deletes"], far.counts()["archives"]) == (0, 0)
        await run.cancel()
        await seen(run)
        await session.close()
        far.fault(Answered("environments.delete", status=500, echo=True))
        with pytest.raises(AgentNativeExecutionError) as refused:
            await driver.discard(kept.opening())
        assert refused.value.native_code == "CLEANUP_FAILED"
        assert kept.states[-1]["session"] is None
        assert kept.states[-1]["environment"] is not None
        for _ in range(2):
            await driver.discard(kept.opening())
        assert (len(far.service.sessions), len(far.service.environments), far.counts()["archives"]) == (0, 0, 1)
