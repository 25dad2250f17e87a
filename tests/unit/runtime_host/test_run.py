import asyncio
from typing import Any

import pytest

from runtime_host.definitions import Observation
from runtime_host.errors import (
    AgentEventHistoryExpiredError,
    AgentNativeExecutionError,
    AgentSessionRecoveryError,
    ConnectorError,
)
from runtime_host.events import DriverEvent
from runtime_host.policy import Limits
from runtime_host.redaction import MASK
from runtime_host.results import DriverResult, RunError, Usage
from runtime_host.run import PUMP_TURN_EVENTS, UNWRITTEN_CHARS
from runtime_host.storage.base import ItemRecord
from runtime_host.testing import Do, Fail, Flood, Hold, Script, Wait, reply
from runtime_host.transcript import TRUNCATION_LINE
from tests.unit.runtime_host.stage import Stage, all_events, kinds, until

KEY = "sk-canary-0123456789abcdef"


async def test_a_run_starts_streams_and_finishes_in_that_order() -> None:
    async with Stage(
        Script([*reply("Hello there.", pieces=3), DriverEvent("usage.updated", {"output_tokens": 3})])
    ) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        result = await run.result()
        events = await all_events(run)
        assert events[0].type == "run.started"
        assert events[0].data["driver"] == "scripted"
        assert events[0].data["configuration"] == {"connector": "none", "model": "m-1", "reasoning": None}
        assert [event.type for event in events[1:]] == [
            "agent.message.delta",
            "agent.message.completed",
            "usage.updated",
            "run.finished",
        ]
        assert [event.sequence for event in events] == [1, 2, 3, 4, 5]
        assert (result.status, result.output_text, result.error) == ("completed", "Hello there.", None)
        assert result.usage == Usage(output_tokens=3)
        assert kinds(await stage.items(session.session_id)) == [
            ("user", "complete", "Hi"),
            ("reply", "complete", "Hello there."),
        ]


async def test_text_events_say_where_the_text_belongs() -> None:
    async with Stage(
        Script([DriverEvent("reasoning.delta", {"id": "r", "text": "Hm."}), *reply("Yes.", pieces=2)])
    ) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await run.result()
        items = await stage.items(session.session_id)
        for event in await all_events(run):
            if "index" in event.data:
                item = items[event.data["index"]]
                assert event.data["id"] == item.item_id
                assert item.kind == ("reasoning" if event.type.startswith("reasoning") else "reply")
                if "at" in event.data:
                    at = event.data["at"]
                    assert item.text[at : at + len(event.data["text"])] == event.data["text"]


async def test_the_result_is_durable_before_anyone_can_see_the_end() -> None:
    hold = asyncio.Event()
    async with Stage(Script([Hold(hold), *reply("Done.")])) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        stage.store.hold = asyncio.Event()
        hold.set()
        await asyncio.sleep(0.05)
        assert not run.done
        assert [event.type for event in run.journal.read(0).events][-1] != "run.finished"
        stage.store.hold.set()
        await run.result()
        record = await stage.run_record(run.run_id)
        assert record is not None
        assert record.phase == "completed"
        assert run.journal.read(0).events[-1].type == "run.finished"


async def test_nothing_is_sent_before_the_dispatch_is_durable() -> None:
    async with Stage() as stage:
        session = await stage.open()
        hold = stage.store.hold = asyncio.Event()
        stage.store.hold_after = stage.store.commits + 1
        run = await session.run("Hi")
        await until(lambda: stage.store.commits > stage.store.hold_after)
        await asyncio.sleep(0.02)
        record = await stage.run_record(run.run_id)
        assert record is not None
        assert (record.phase, stage.driver.turns) == ("admitted", [])
        hold.set()
        assert (await run.result()).status == "completed"


async def test_a_run_needs_no_reader_and_a_slow_one_holds_nobody_up() -> None:
    flood = [DriverEvent("diagnostic", {"code": "N", "message": f"{number}" * 20}) for number in range(5_000)]
    async with Stage(Script([*flood, *reply("Done.")])) as stage:
        session = await stage.open(limits=Limits(event_buffer_bytes=4096))
        run = await session.run("Hi")
        reader = run.events()
        first = await anext(reader)
        assert first.type == "run.started"
        assert (await run.result()).status == "completed"
        assert run.journal.statistics().retained_bytes <= 4096
        rest = [event async for event in reader]
        assert rest[0].data["code"] == "EVENTS_DROPPED"
        assert rest[-1].type == "run.finished"


async def test_a_driver_that_never_waits_does_not_stop_the_loop() -> None:
    events = [DriverEvent("agent.message.delta", {"id": "m", "text": "x"})] * (PUMP_TURN_EVENTS * 20)
    async with Stage(Script(events)) as stage:
        run = await (await stage.open()).run("Hi")
        turns = 0
        while not run.done:
            turns += 1
            await asyncio.sleep(0)
        assert turns > 20


async def test_cancel_keeps_the_text_and_has_no_error_even_if_the_driver_says_completed() -> None:
    script = Script([*reply("Half of the ans")[:1], Hold(asyncio.Event())], cancelled_as="completed")
    async with Stage(script) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: bool(run.open_items()))
        await asyncio.gather(run.cancel(), run.cancel(), session.cancel_active_run())
        await run.cancel()
        result = await run.result()
        assert (result.status, result.finish_reason, result.error) == ("cancelled", "cancelled", None)
        assert result.output_text == "Half of the ans"
        assert stage.driver.cancels == 1
        assert kinds(await stage.items(session.session_id)) == [
            ("user", "complete", "Hi"),
            ("reply", "stopped", "Half of the ans"),
        ]
        events = await all_events(run)
        assert events[-1].data == {"status": "cancelled", "finish_reason": "cancelled"}
        assert [event.data["state"] for event in events if event.type == "agent.message.completed"] == ["stopped"]
        assert session.state == "ready"


async def test_a_run_cancelled_before_it_was_sent_is_never_sent() -> None:
    async with Stage() as stage:
        session = await stage.open()
        hold = stage.store.hold = asyncio.Event()
        stage.store.hold_after = stage.store.commits + 1
        run = await session.run("Hi")
        run.ask_stop()
        hold.set()
        await run.cancel()
        assert stage.driver.turns == []
        assert (await run.result()).status == "cancelled"
        assert [event.type for event in await all_events(run)] == ["run.started", "run.finished"]
        record = await stage.run_record(run.run_id)
        assert record is not None
        assert record.phase == "cancelled"


async def test_cancel_after_the_end_changes_nothing() -> None:
    async with Stage() as stage:
        run = await (await stage.open()).run("Hi")
        await run.result()
        await run.cancel()
        assert (await run.result()).status == "completed"
        assert stage.driver.cancels == 0


async def test_a_cancel_call_that_fails_does_not_break_the_cancelling() -> None:
    hold = asyncio.Event()
    async with Stage(Script([Hold(hold)], cancel=RuntimeError("not now"))) as stage:
        run = await (await stage.open()).run("Hi")
        await until(lambda: bool(stage.driver.turns))
        asyncio.get_running_loop().call_later(0.05, hold.set)
        await run.cancel()
        assert (await run.result()).status == "cancelled"


@pytest.mark.parametrize("how", ["ignored", "hangs"])
async def test_an_end_that_is_not_confirmed_is_unknown(how: Any) -> None:
    script = Script([*reply("Half")[:1], Hold(asyncio.Event())], cancel=how)
    async with Stage(script, cleanup_s=0.05) as stage:
        session = await stage.open()
        run = await session.run("Hi", request_id="q")
        await until(lambda: bool(run.open_items()))
        with pytest.raises(AgentSessionRecoveryError) as unknown:
            await run.cancel()
        assert (unknown.value.run_id, unknown.value.session_id) == (run.run_id, session.session_id)
        assert unknown.value.details["reference"] == session.reference().model_dump(mode="json")
        with pytest.raises(AgentSessionRecoveryError):
            await run.result()
        assert "run.finished" not in [event.type for event in await all_events(run)]
        assert session.state == "failed"
        state = session.inspect_state()
        assert (state.connection, state.activity, state.quarantined) == ("lost", "unknown", True)
        assert [effect.id for effect in state.unresolved_effects] == [run.run_id]
        items = await stage.items(session.session_id)
        assert kinds(items)[1] == ("reply", "unknown", "Half")
        assert (items[2].kind, items[2].state, items[2].code) == ("notice", "unknown", "RUN_UNKNOWN")
        record = await stage.run_record(run.run_id)
        assert record is not None
        assert record.phase == "unknown"
        # No further input, and the old one is still that run.
        with pytest.raises(AgentSessionRecoveryError):
            await session.run("Again")
        assert await session.run("Hi", request_id="q") is run
        assert len(stage.driver.turns) == 1


async def test_a_start_that_hangs_is_bounded_by_the_window() -> None:
    async with Stage(Script(start="hangs"), cleanup_s=0.05) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: bool(stage.driver.turns))
        async with asyncio.timeout(5):
            with pytest.raises(AgentSessionRecoveryError):
                await run.cancel()
        assert session.state == "failed"


async def test_wall_time_is_a_timeout_even_if_the_driver_says_completed() -> None:
    script = Script([*reply("Slow")[:1], Wait(30)], cancelled_as="completed")
    async with Stage(script) as stage:
        session = await stage.open(limits=Limits(wall_time_ms=40))
        run = await session.run("Hi")
        result = await run.result()
        assert (result.status, result.finish_reason) == ("failed", "timeout")
        assert result.error is not None
        assert result.error.code == "AGENT_RUN_TIMEOUT"
        assert result.output_text == "Slow"
        assert kinds(await stage.items(session.session_id))[1:] == [
            ("reply", "failed", "Slow"),
            ("notice", "failed", result.error.message),
        ]
        assert session.state == "ready"


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (
            AgentNativeExecutionError("The key was refused. Enter it again.", native_code="PROVIDER_AUTH"),
            "PROVIDER_AUTH",
            "The key was refused. Enter it again.",
        ),
        (ConnectorError("There is no key.", code="CONNECTOR_KEY_MISSING"), "CONNECTOR_KEY_MISSING", "There is no key."),
        (
            ValueError(f"vendor text with {KEY}"),
            "AGENT_NATIVE_EXECUTION",
            "scripted failed in a way it did not foresee (ValueError).",
        ),
    ],
)
@pytest.mark.parametrize("where", ["start", "events", "result"])
async def test_a_failure_is_a_result_with_code_and_sentence(
    error: Exception, code: str, sentence: str, where: str
) -> None:
    script = {
        "start": Script(start=error),
        "events": Script([*reply("So far")[:1], Fail(error)]),
        "result": Script(reply("So far")[:1], result=error),
    }[where]
    async with Stage(script) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        result = await run.result()
        assert result.status == "failed"
        assert result.error is not None
        assert (result.error.code, result.error.message) == (code, sentence)
        assert KEY not in result.model_dump_json()
        items = await stage.items(session.session_id)
        assert (items[-1].kind, items[-1].state, items[-1].text, items[-1].code) == ("notice", "failed", sentence, code)
        if where != "start":
            assert kinds(items)[1] == ("reply", "failed", "So far")
        assert (await all_events(run))[-1].type == "run.finished"
        assert session.state == "ready"
        assert len(stage.driver.turns) == 1


async def test_a_stream_that_ends_without_a_result_is_never_completed() -> None:
    async with Stage(Script(reply("All of it?"), result="missing")) as stage:
        result = await (await (await stage.open()).run("Hi")).result()
        assert (result.status, result.finish_reason) == ("failed", "stream_incomplete")
        assert result.error is not None
        assert result.error.code == "AGENT_STREAM_INCOMPLETE"


async def test_a_result_that_never_comes_is_unknown() -> None:
    async with Stage(Script(reply("All of it?"), result="hangs"), cleanup_s=0.05) as stage:
        session = await stage.open()
        with pytest.raises(AgentSessionRecoveryError):
            await (await session.run("Hi")).result()
        assert session.state == "failed"


async def test_a_broken_stream_with_a_result_that_never_comes_is_unknown() -> None:
    script = Script([Fail(OSError("cut"))], result="hangs", cancel="ignored")
    async with Stage(script, cleanup_s=0.05) as stage:
        session = await stage.open()
        with pytest.raises(AgentSessionRecoveryError):
            await (await session.run("Hi")).result()
        assert session.state == "failed"


async def test_a_driver_may_say_that_the_acceptance_is_not_known() -> None:
    lost = AgentSessionRecoveryError("The service did not say whether it took the message.", session_id="x")
    async with Stage(Script(start=lost)) as stage:
        session = await stage.open()
        with pytest.raises(AgentSessionRecoveryError, match="did not say whether"):
            await (await session.run("Hi")).result()
        assert (await stage.items(session.session_id))[-1].text == lost.message


async def test_failed_without_a_reason_still_has_code_and_sentence() -> None:
    async with Stage(Script(result=DriverResult(status="failed"))) as stage:
        result = await (await (await stage.open()).run("Hi")).result()
        assert result.error is not None
        assert result.error.code
        assert result.error.message.endswith(".")


async def test_incomplete_keeps_its_reason() -> None:
    script = Script(
        reply("Up to he"), result=DriverResult(status="incomplete", output_text="Up to he", finish_reason="length")
    )
    async with Stage(script) as stage:
        session = await stage.open()
        result = await (await session.run("Hi")).result()
        assert (result.status, result.finish_reason, result.error) == ("incomplete", "length", None)


@pytest.mark.parametrize(
    "event",
    [
        DriverEvent("run.finished", {"status": "completed"}),
        DriverEvent("agent.message.delta", {"id": "m"}),
        DriverEvent("agent.message.delta", {"id": "m", "text": 5}),
        DriverEvent("agent.message.delta", {"id": "m", "text": b"bytes"}),
        DriverEvent("tool.started", {"id": "t", "arguments": float("nan")}),
        DriverEvent("no.such.type", {}),  # type: ignore[arg-type]
        "text",
        None,
    ],
    ids=repr,
)
async def test_what_is_no_event_fails_the_run_and_asks_the_driver_to_stop(event: Any) -> None:
    async with Stage(Script([event, *reply("never shown")])) as stage:
        run = await (await stage.open()).run("Hi")
        result = await run.result()
        assert result.status == "failed"
        assert result.error is not None
        assert result.error.details == {"exception": "NotAnEventError"}
        assert stage.driver.cancels == 1
        assert [event.type for event in await all_events(run)] == ["run.started", "run.finished"]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (DriverEvent("tool.progress", {"id": "t", "delta": 5}), "tool.progress whose data is not as it must be"),
        (DriverEvent("agent.message.delta", {"id": "m", "sk-canary": 1}), "(it has id)"),
        (("sk-canary", {}), "something that is no event of a driver"),
        (("agent.message.delta", ["sk-canary"]), "(it has nothing known)"),
    ],
)
async def test_whoever_writes_a_driver_is_told_which_event_was_none(event: Any, words: str) -> None:
    async with Stage(Script([event])) as stage:
        result = await (await (await stage.open()).run("Hi")).result()
        assert result.error is not None
        assert words in result.error.message
        assert "sk-canary" not in result.error.message


async def test_output_is_cut_to_its_limit_and_the_run_is_incomplete() -> None:
    text = "äöü" * 100
    async with Stage(Script(reply(text, pieces=7))) as stage:
        session = await stage.open(limits=Limits(output_bytes=101))
        run = await session.run("Hi")
        result = await run.result()
        assert (result.status, result.finish_reason) == ("incomplete", "runtime_limit")
        assert len(result.output_text.encode()) <= 101
        assert result.output_text.endswith("\n" + TRUNCATION_LINE)
        [item] = [item for item in await stage.items(session.session_id) if item.kind == "reply"]
        assert len(item.text.encode()) <= 101
        shown = "".join(event.data["text"] for event in await all_events(run) if event.type == "agent.message.delta")
        assert len(shown.encode()) <= 101
        assert text.startswith(shown)
        assert (await all_events(run))[-1].data == {"status": "incomplete", "finish_reason": "runtime_limit"}


async def test_a_secret_appears_nowhere() -> None:
    halves = (KEY[:9], KEY[9:])
    script = Script(
        [
            *(DriverEvent("agent.message.delta", {"id": "m", "text": half}) for half in halves),
            DriverEvent("agent.message.completed", {"id": "m", "text": f"see {KEY}"}),
            *(DriverEvent("reasoning.delta", {"id": "r", "text": half}) for half in halves),
            *(DriverEvent("command.output.delta", {"id": "c", "text": half}) for half in halves),
            DriverEvent(
                "command.completed", {"id": "c", "command": "x", "output": KEY, "exit_code": 0, "status": "ok"}
            ),
            *(
                DriverEvent("tool.progress", {"id": "t", "name": "n", "stage": "arguments", "delta": half})
                for half in halves
            ),
            DriverEvent("tool.completed", {"id": "t", "name": "n", "result": {KEY: [KEY]}, "error": None}),
        ],
        result=DriverResult(
            status="failed",
            output_text=KEY,
            finish_reason=f"because {KEY}",
            error=RunError(code="PROVIDER_AUTH", message=f"The key {KEY} was refused.", details={"body": {KEY: KEY}}),
        ),
    )
    async with Stage(script) as stage:
        stage.connectors.redactor.add(KEY)
        session = await stage.open()
        run = await session.run("Hi")
        result = await run.result()
        events = await all_events(run)
        everything = "".join(event.model_dump_json() for event in events) + result.model_dump_json()
        everything += "".join(f"{item.text}{item.detail}" for item in await stage.items(session.session_id))
        record = await stage.run_record(run.run_id)
        everything += repr(record)
        assert KEY not in everything
        assert result.error is not None
        assert result.error.message == f"The key {MASK} was refused."
        for type_ in ("agent.message.delta", "reasoning.delta", "command.output.delta"):
            assert "".join(event.data["text"] for event in events if event.type == type_) == MASK, type_
        assert "".join(event.data.get("delta", "") for event in events if event.type == "tool.progress") == MASK


async def test_what_is_held_back_is_published_when_the_run_ends() -> None:
    script = Script(
        [
            DriverEvent("command.output.delta", {"id": "c", "text": "ends with s"}),
            DriverEvent("tool.progress", {"id": "t", "name": "n", "stage": "arguments", "delta": "{s"}),
            DriverEvent("agent.message.delta", {"id": "m", "text": "words"}),
        ]
    )
    async with Stage(script) as stage:
        stage.connectors.redactor.add(KEY)
        run = await (await stage.open()).run("Hi")
        assert (await run.result()).output_text == "words"
        events = await all_events(run)
        said = {event.type: "" for event in events}
        for event in events:
            said[event.type] += event.data.get("text", event.data.get("delta", ""))
        assert said["command.output.delta"] == "ends with s"
        assert said["tool.progress"] == "{s"
        assert said["agent.message.delta"] == "words"
        assert events[-1].type == "run.finished"


async def test_open_text_is_checkpointed_while_it_arrives_and_no_timer_is_left() -> None:
    hold = asyncio.Event()
    async with Stage(Script([*reply("Open text")[:1], Hold(hold)])) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: bool(run.open_items()))
        before = stage.store.commits
        for _ in range(200):
            if stage.store.commits > before:
                break
            await asyncio.sleep(0.005)
        assert kinds(await stage.items(session.session_id))[1:] == [("reply", "open", "Open text")]
        commits = stage.store.commits
        await asyncio.sleep(0.1)
        assert stage.store.commits == commits, "nothing arrived, yet something was written"
        assert [item.text for item in run.open_items()] == ["Open text"]
        hold.set()
        await run.result()
        assert run.open_items() == []


async def test_a_completed_item_is_durable_before_the_run_ends() -> None:
    hold = asyncio.Event()
    script = Script([*reply("First.", item_id="a"), Hold(hold), *reply("Second.", item_id="b")])
    async with Stage(script, checkpoint_s=60) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: stage.driver.turns != [] and run.journal.last_sequence >= 3)
        await until(lambda: run.open_items() == [])
        assert kinds(await stage.items(session.session_id))[1:] == [("reply", "complete", "First.")]
        hold.set()
        assert (await run.result()).output_text == "Second."


async def test_a_short_run_costs_three_commits() -> None:
    async with Stage() as stage:
        session = await stage.open()
        before = stage.store.commits
        await (await session.run("Hi")).result()
        assert stage.store.commits - before == 3, "admission, dispatch, end"


@pytest.mark.parametrize("made", [True, False], ids=["made, answer lost", "not made"])
async def test_an_end_that_could_not_be_stored_is_kept_and_stored_later(made: bool) -> None:
    async with Stage() as stage:
        session = await stage.open()
        admission = stage.store.commits + 1
        if made:
            stage.store.fail_after = lambda number: number > admission + 1
        else:
            stage.store.fail_before = lambda number: number > admission + 1
        run = await session.run("Hi")
        with pytest.raises(AgentSessionRecoveryError, match="could not be stored"):
            await run.result()
        assert "run.finished" not in [event.type for event in await all_events(run)]
        assert session.state == "failed"
        stage.store.fail_before = stage.store.fail_after = lambda number: False
        again = await session.get_run(run.run_id)
        assert (await again.result()).output_text == "Hello."
        record = await stage.run_record(run.run_id)
        assert record is not None
        assert record.phase == "completed"
        assert kinds(await stage.items(session.session_id))[-1] == ("reply", "complete", "Hello.")
        assert len(stage.driver.turns) == 1


@pytest.mark.parametrize("made", [True, False], ids=["made, answer lost", "not made"])
@pytest.mark.parametrize("more", [True, False], ids=["more text", "the end"])
async def test_a_failed_checkpoint_loses_nothing(made: bool, more: bool) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    rest = reply("Text, whole.") if not more else reply(", whole.")[:1]
    async with Stage(Script([*reply("Text")[:1], Hold(first), *rest, Hold(second)])) as stage:
        session = await stage.open()
        failing = stage.store.commits + 3
        if made:
            stage.store.fail_after = lambda number: number == failing
        else:
            stage.store.fail_before = lambda number: number == failing
        run = await session.run("Hi")
        await until(lambda: stage.store.commits >= failing)
        assert [item.text for item in run.open_items()] == ["Text"]
        first.set()
        if more:
            await until(lambda: stage.store.commits > failing)
            assert kinds(await stage.items(session.session_id))[1:] == [("reply", "open", "Text, whole.")]
        second.set()
        assert (await run.result()).status == "completed"
        assert kinds(await stage.items(session.session_id))[1:] == [("reply", "complete", "Text, whole.")]


async def test_a_driver_that_cannot_say_its_state_keeps_the_earlier_one() -> None:
    async with Stage() as stage:
        session = await stage.open()
        await (await session.run("One")).result()
        native = session._driver_session
        assert native is not None
        native.state = lambda: {"bad": object()}  # type: ignore[method-assign]
        run = await session.run("Two")
        assert (await run.result()).status == "completed"
        assert "DRIVER_STATE_FAILED" in [event.data.get("code") for event in await all_events(run)]
        record = await stage.memory.read(lambda tx: tx.session(session.session_id))
        assert record is not None
        assert record.driver_state == {"version": 1, "turns": 1}


async def test_the_harness_reads_what_was_said_before() -> None:
    scripts = (Script(reply("One.")), Script([*reply("Tw")[:1], Hold(asyncio.Event())]), Script(reply("Three.")))
    async with Stage(*scripts) as stage:
        session = await stage.open()
        await (await session.run("1")).result()
        second = await session.run("2")
        await until(lambda: bool(second.open_items()))
        await second.cancel()
        await (await session.run("3")).result()
        said = await stage.driver.turns[2].read_transcript()
        assert [message[:2] for message in said] == [
            ("user", "1"),
            ("assistant", "One."),
            ("user", "2"),
            ("assistant", "Tw"),
        ]


async def test_overrides_hold_for_one_run() -> None:
    async with Stage() as stage:
        session = await stage.open()
        first = await (await session.run("1", model="m-2")).result()
        second = await (await session.run("2")).result()
        assert [turn.model for turn in stage.driver.turns] == ["m-2", "m-1"]
        assert (first.configuration["model"], second.configuration["model"]) == ("m-2", "m-1")


async def test_observation_filters_events_and_not_the_run() -> None:
    script = Script([DriverEvent("reasoning.delta", {"id": "r", "text": "Hm"}), *reply("Yes.")])
    async with Stage(script) as stage:
        session = await stage.open(observation=Observation(mode="final-only"))
        run = await session.run("Hi")
        assert (await run.result()).output_text == "Yes."
        events = await all_events(run)
        assert [event.type for event in events] == ["run.started", "agent.message.completed", "run.finished"]
        assert [event.sequence for event in events] == [1, 2, 3]
        assert [item.kind for item in await stage.items(session.session_id)] == ["user", "reasoning", "reply"]


async def test_ended_journals_expire_oldest_first_and_results_stay() -> None:
    async with Stage(Script(reply("x" * 3000)), journal_bytes=16_000) as stage:
        session = await stage.open()
        runs = []
        for number in range(6):
            run = await session.run(f"{number}")
            await run.result()
            runs.append(run)
        with pytest.raises(AgentEventHistoryExpiredError):
            runs[0].events()
        with pytest.raises(ValueError, match="cursor"):
            runs[-1].events(after_sequence=1000)
        assert (await all_events(runs[-1]))[-1].type == "run.finished"
        saved = await session.get_run(runs[0].run_id)
        assert (await saved.result()).output_text == "x" * 3000
        with pytest.raises(AgentEventHistoryExpiredError):
            await all_events(saved)


async def test_halves_of_characters_do_not_break_a_run() -> None:
    script = Script(
        [
            DriverEvent("agent.message.delta", {"id": "m", "text": "a\ud83d"}),
            DriverEvent("agent.message.delta", {"id": "m", "text": "\ude00b"}),
            DriverEvent("agent.message.completed", {"id": "m", "text": "a\ud83d\ude00b"}),
        ]
    )
    async with Stage(script) as stage:
        session = await stage.open()
        result = await (await session.run("Hi")).result()
        assert result.status == "completed"
        assert kinds(await stage.items(session.session_id))[1] == ("reply", "complete", "a😀b")


PIECE = DriverEvent("agent.message.delta", {"id": "long", "text": "It says much. " * 73, "phase": "unknown"})
PIECES = 4 * UNWRITTEN_CHARS // len(PIECE.data["text"])


def whole(items: list[ItemRecord]) -> bool:
    return items[1].text == str(PIECE.data["text"]) * PIECES


async def test_a_harness_faster_than_the_disk_waits_for_it_and_loses_nothing() -> None:
    said: list[None] = []
    steps = [step for _ in range(PIECES) for step in (Do(lambda: said.append(None)), PIECE)]
    async with Stage(Script([*steps, *reply("Done.")])) as stage:
        session = await stage.open()
        stage.store.hold = hold = asyncio.Event()
        stage.store.hold_after = stage.store.commits + 2  # the input, the dispatch
        run = await session.run("Hi")
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert UNWRITTEN_CHARS / 2 < len(said) * len(PIECE.data["text"]) < 1.5 * UNWRITTEN_CHARS
        hold.set()
        assert (await run.result()).status == "completed"
        assert len(said) == PIECES
        assert whole(await stage.items(session.session_id))


async def test_a_run_whose_disk_does_not_answer_stops_when_it_is_asked_to() -> None:
    async with Stage(Script([Flood(PIECES, event=PIECE), *reply("Done.")])) as stage:
        session = await stage.open()
        stage.store.hold = hold = asyncio.Event()
        stage.store.hold_after = stage.store.commits + 2  # the input, the dispatch
        run = await session.run("Hi")
        for _ in range(1_000):
            await asyncio.sleep(0)
        run.ask_stop()
        # Longer than the window in which a harness has to end: one that was kept from it would be lost.
        await asyncio.sleep(0.3)
        hold.set()
        assert (await run.result()).status == "cancelled"


@pytest.mark.parametrize("made", [True, False], ids=["made, answer lost", "not made"])
async def test_a_disk_that_refuses_holds_no_harness_up(made: bool) -> None:
    async with Stage(Script([Flood(PIECES, event=PIECE), *reply("Done.")])) as stage:
        session = await stage.open()
        dispatch = stage.store.commits + 2
        if made:
            stage.store.fail_after = lambda number: number > dispatch
        else:
            stage.store.fail_before = lambda number: number > dispatch
        run = await session.run("Hi")
        with pytest.raises(AgentSessionRecoveryError, match="could not be stored"):
            await run.result()
        stage.store.fail_before = stage.store.fail_after = lambda number: False
        again = await session.get_run(run.run_id)
        assert (await again.result()).output_text == "Done."
        assert whole(await stage.items(session.session_id))
