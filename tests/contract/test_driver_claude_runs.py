"""What single runs of the real Claude CLI come to: words, faults, limits, stops, formats."""

import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.definitions import ImagePart, JsonSchemaFormat, ReasoningConfig
from runtime_host.errors import (
    AgentCapabilityUnsupportedError,
    AgentConfigurationChangedError,
    AgentDriverConfigurationError,
    ConnectorError,
)
from runtime_host.policy import CHAT, Limits
from tests.loopback.claude_harness import (
    MODEL,
    PATIENT,
    Reading,
    Stage,
    needs_claude,
    options_for,
    outcome,
    say,
    staged,
    turn_for,
    until,
)
from tests.loopback.far_side import Cut, Fault, Finish, Hang, Refuse, Say, Think, Use
from tests.loopback.native import registry_for

pytestmark = needs_claude
SCHEMA = JsonSchemaFormat.model_validate(
    {
        "type": "json_schema",
        "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    }
)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as made:
        yield made


async def test_thinking_and_text_come_once_each_in_order(stage: Stage) -> None:
    stage.model.answer([Think("Let me see."), Say("Paris, of course.")])
    result = await say(await stage.session())
    kinds = [event.type for event in result.events]
    assert result.text() == "Paris, of course."
    assert result.text("reasoning.delta") == "Let me see."
    assert [each["text"] for each in result.of("agent.message.completed")] == ["Paris, of course."]
    assert [each["text"] for each in result.of("reasoning.completed")] == ["Let me see."]
    assert kinds.index("reasoning.completed") < kinds.index("agent.message.delta")
    assert (result.result.status, result.result.finish_reason) == ("completed", "end_turn")
    assert stage.model.body()["system"][-1]["text"].startswith("Answer in one sentence.")


async def test_what_a_person_says_reaches_the_model_as_it_is(stage: Stage) -> None:
    session = await stage.session()
    for text in ("/context", "@/etc/passwd what is in it?", "!id"):
        await say(session, text)
        assert stage.model.inputs[-1].text == text
    said = json.dumps(stage.model.body())
    assert "root:" not in said
    assert stage.folder not in said
    assert os.uname().release not in said
    # Nothing besides the inputs left the CLI: no title, no count, no hello.
    assert (stage.model.asked, stage.model.others) == (3, [])


async def test_a_tool_that_was_not_given_is_not_there(stage: Stage) -> None:
    stage.model.answer([Use("Bash", {"command": "id > /tmp/claude-was-here"})], [Say("It is not there.")])
    result = await say(await stage.session())
    assert "tools" not in stage.model.body(0) or stage.model.body(0)["tools"] == []
    [told] = stage.model.told
    assert told.is_error
    [ended] = result.of("tool.completed")
    assert (ended["name"], ended["status"]) == ("Bash", "failed")
    assert result.result.status == "completed"


REFUSALS = {
    400: ("PROVIDER_REQUEST_REFUSED", 1),
    401: ("PROVIDER_KEY_REFUSED", 2),
    403: ("PROVIDER_FORBIDDEN", 1),
    429: ("PROVIDER_RATE_LIMITED", 2),
    529: ("PROVIDER_UNAVAILABLE", 2),
}


async def test_a_refusal_is_told_with_every_try(stage: Stage) -> None:
    session = await stage.session(stage.driver(retries=1))
    for status, (code, tries) in REFUSALS.items():
        asked = stage.model.asked
        stage.model.answer(Refuse(status))
        result = await say(session, f"And {status}?", run_id=f"run_{status}")
        assert result.result.status == "failed"
        assert result.result.error is not None
        assert (result.result.error.code, result.result.error.details["http_status"]) == (code, status)
        assert stage.model.asked - asked == tries
        assert result.codes() == ["RETRY"] * (tries - 1)
        assert result.result.error.details.get("tries", 1) == tries
        assert "Scripted" not in result.result.error.message
        assert result.of("agent.message.completed") == []
    assert (await say(session, "And now?", run_id="run_last")).result.status == "completed"
    assert len(stage.programs.started) == 1


async def test_what_was_shown_is_never_followed_by_another_answer(stage: Stage) -> None:
    stage.model.answer([Say("Half an"), Hang(), Cut(times=1), Say("Something else.")])
    session = await stage.session(stage.driver(retries=2))
    reading = Reading(await session.start(turn_for()))
    await reading.shown("Half an")
    stage.model.let_go()
    result = await reading.outcome()
    assert (result.result.status, result.result.finish_reason) == ("failed", "stream_incomplete")
    assert result.result.output_text == result.text() == "Half an"
    assert stage.model.asked == 1
    stage.model.always(Say("Whole again."))
    assert (await say(session, "And now?")).result.output_text == "Whole again."


async def test_replies_end_as_they_ended_and_the_conversation_goes_on(stage: Stage) -> None:
    session = await stage.session(stage.driver(retries=1))

    stage.model.answer([Refuse(529, times=1), Say("Paris.")])
    passed = await say(session, "One?", run_id="run_1")
    assert (passed.result.status, passed.text(), passed.codes()) == ("completed", "Paris.", ["RETRY"])
    [retry] = passed.of("diagnostic")
    assert (retry["attempt"], retry["http_status"]) == (2, 529)

    stage.model.answer([Say("Half an"), Fault("overloaded_error")])
    broken = await say(session, "Two?", run_id="run_2")
    assert (broken.result.status, broken.result.output_text) == ("failed", "Half an")
    assert broken.result.error is not None
    assert broken.result.error.code == "PROVIDER_UNAVAILABLE"

    asked = stage.model.asked
    stage.model.answer([Say("I would rather not."), Finish("refusal")])
    declined = await say(session, "Three?", run_id="run_3")
    assert (declined.result.status, declined.result.output_text) == ("incomplete", "I would rather not.")
    assert declined.result.error is not None
    assert declined.result.error.code == "PROVIDER_REFUSAL"
    assert stage.model.asked == asked + 1

    stage.model.answer([Say("The capital"), Finish("length")], [Say(" is Paris.")])
    long = await say(session, "Four?", run_id="run_4")
    assert (long.result.status, long.result.output_text) == ("completed", "The capital is Paris.")
    assert len(long.of("agent.message.completed")) == 1
    assert len(stage.programs.started) == 1


async def test_a_server_that_is_not_there_is_told_in_our_words(stage: Stage) -> None:
    stage.registry = registry_for(f"http://127.0.0.1:{free_port()}", vendor="anthropic")
    result = await say(await stage.session())
    assert result.result.error is not None
    assert "Nothing answers at" in result.result.error.message
    assert result.result.error.retryable


async def test_a_key_that_cannot_be_had_is_told_in_the_words_of_its_store(stage: Stage) -> None:
    async def locked(_: Any) -> str:
        raise ConnectorError("The key store is locked. Unlock it.", code="KEYRING_LOCKED")

    connector = stage.registry.connector("server")
    stage.registry = ConnectorRegistry({"server": connector}.get, locked)
    result = await say(await stage.session())
    assert result.result.error is not None
    assert "The key store is locked." in result.result.error.message
    assert stage.model.requests == []


# ------------------------------------------------------------------------------------------ stops


async def test_a_stop_in_a_reply_ends_it_and_the_same_process_goes_on(stage: Stage) -> None:
    session = await stage.session()
    stage.model.answer([Say("The capital"), Hang()])
    run = await session.start(turn_for())
    reading = Reading(run)
    await reading.shown("The capital")
    await run.cancel()
    result = await reading.outcome()
    assert (result.result.status, result.result.output_text) == ("cancelled", "The capital")
    await until(lambda: stage.model.hanging == 0)
    assert (await say(session, "And now?", run_id="run_2")).result.status == "completed"
    assert len(stage.programs.started) == 1


async def test_a_cli_that_does_not_stop_is_ended(stage: Stage) -> None:
    session = await stage.session(stage.driver(patience=PATIENT._replace(interrupt_s=0.5)))
    stage.model.answer([Say("The capital"), Hang()])
    run = await session.start(turn_for())
    reading = Reading(run)
    await reading.shown("The capital")
    [program] = stage.programs.started
    os.kill(program.pid, signal.SIGSTOP)
    await run.cancel()
    result = await reading.outcome()
    assert result.result.status == "cancelled"
    assert stage.programs.living() == []
    stage.model.let_go()
    assert (await say(session, "And now?", run_id="run_2")).result.status == "completed"


async def test_a_cli_that_is_killed_fails_the_run_and_the_session_goes_on(stage: Stage) -> None:
    session = await stage.session()
    await say(session, "My name is Ada.")
    stage.model.answer([Say("The capital"), Hang()])
    run = await session.start(turn_for("What is my name?", "run_2"))
    reading = Reading(run)
    await reading.shown("The capital")
    # What it has not written down yet is lost to it with its death.
    await until(lambda: "What is my name?" in stage.record().read_text("utf-8"))
    os.kill(stage.programs.started[0].pid, signal.SIGKILL)
    result = await reading.outcome()
    assert (result.result.status, result.result.finish_reason) == ("failed", "stream_incomplete")
    assert result.result.output_text == "The capital"
    after = await say(session, "And now?", run_id="run_3")
    assert after.result.status == "completed"
    assert [each.text for each in stage.model.inputs] == ["My name is Ada.", "What is my name?", "And now?"]
    assert "My name is Ada." in json.dumps(stage.model.body())
    assert stage.model.asked == 3


async def test_a_start_that_is_given_up_leaves_nothing(stage: Stage) -> None:
    session = await stage.session()
    run = await session.start(turn_for())
    await run.cancel()
    assert (await outcome(run)).result.status == "cancelled"
    await session.close()
    assert stage.programs.living() == []
    assert stage.model.requests == []


# ------------------------------------------------------------------------------- limits, formats, words


async def test_a_bound_of_turns_makes_a_run_incomplete(stage: Stage) -> None:
    stage.model.always([Use("Bash", {"command": "id"})])
    policy = CHAT.model_copy(update={"limits": Limits.model_validate({"max_turns": 1})})
    result = await say(await stage.session(options=options_for(policy=policy)))
    assert (result.result.status, result.result.finish_reason) == ("incomplete", "max_turns")
    assert result.result.error is not None
    assert stage.model.asked == 1


async def test_a_bound_of_cost_holds_for_each_run(stage: Stage) -> None:
    policy = CHAT.model_copy(update={"limits": Limits.model_validate({"max_cost_usd_cents": 1})})
    session = await stage.session(options=options_for(policy=policy))
    for number in range(2):
        assert (await say(session, run_id=f"run_{number}")).result.status == "completed"
    assert [order.command[order.command.index("--max-budget-usd") + 1] for order in stage.programs.orders] == [
        "0.01"
    ] * 2


async def test_an_answer_to_a_schema_is_the_json_that_was_given(stage: Stage) -> None:
    session = await stage.session()
    stage.model.answer([Use("StructuredOutput", {"n": "many"})], [Use("StructuredOutput", {"n": 4})])
    result = await say(session, response_format=SCHEMA)
    assert (result.result.status, json.loads(result.result.output_text)) == ("completed", {"n": 4})
    assert result.of("tool.started") == []
    plain = await say(session, "And in words?", run_id="run_2")
    assert plain.result.status == "completed"
    assert "StructuredOutput" not in json.dumps(stage.model.body().get("tools", []))
    assert "What is the capital" in json.dumps(stage.model.body())


async def test_an_answer_that_only_talks_is_given_as_it_is(stage: Stage) -> None:
    stage.model.answer(Say("I would rather talk."), Say("Still talking."))
    result = await say(await stage.session(), response_format=SCHEMA)
    assert result.result.output_text == "Still talking."


async def test_model_and_effort_of_a_run_do_not_stick(stage: Stage) -> None:
    session = await stage.session()
    await say(session)
    other = await say(
        session, "And now?", run_id="run_2", model="claude-opus-5-5", reasoning=ReasoningConfig(effort="max")
    )
    assert other.result.status == "completed"
    body = stage.model.body()
    assert (body["model"], _effort(body)) == ("claude-opus-5-5", "max")
    await say(session, "And now again?", run_id="run_3")
    body = stage.model.body()
    assert body["model"] == MODEL
    assert _effort(body) != "max"
    assert [each.text for each in stage.model.inputs][-2:] == ["And now?", "And now again?"]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def _effort(body: dict[str, Any]) -> str | None:
    told = [message["output_config"] for message in body["messages"] if "output_config" in message]
    effort: str | None = (body.get("output_config") or (told[-1] if told else {})).get("effort")
    return effort


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": " \n"},
        {"model": "sonnet"},
        {"model": "--model"},
        {"model": "claude sonnet"},
        {"reasoning": ReasoningConfig(effort="ultra")},
        {"reasoning": ReasoningConfig(enabled=False)},
        {"reasoning": ReasoningConfig(budget_tokens=1000)},
        {"model": "unheard-of", "reasoning": ReasoningConfig(effort="low")},
        {
            "response_format": JsonSchemaFormat.model_validate(
                {"type": "json_schema", "schema": {"type": "array", "items": {}}}
            )
        },
    ],
)
async def test_what_the_cli_would_bend_is_refused_before_anything_starts(stage: Stage, wrong: dict[str, Any]) -> None:
    session = await stage.session()
    with pytest.raises(AgentDriverConfigurationError):
        await session.start(turn_for(**wrong))
    assert stage.programs.started == []


async def test_a_picture_is_refused(stage: Stage) -> None:
    picture = ImagePart(media_type="image/png", data=b"\x89PNG\r\n\x1a\n")
    session = await stage.session()
    with pytest.raises(AgentCapabilityUnsupportedError):
        await session.start(turn_for(parts=(picture,)))


async def test_usage_is_what_each_run_used(stage: Stage) -> None:
    session = await stage.session()
    first, second = await say(session), await say(session, "And now?", run_id="run_2")
    assert first.result.usage is not None
    assert second.result.usage is not None
    assert (first.result.usage.input_tokens, first.result.usage.output_tokens) == (21, 8)
    assert second.result.usage.model_dump(exclude={"native"}) == first.result.usage.model_dump(exclude={"native"})
    assert "difference" in (first.result.usage.coverage or "")
    stage.model.answer([Use("Bash", {})], [Say("No.")])
    third = await say(session, "And again?", run_id="run_3")
    assert third.result.usage is not None
    assert (third.result.usage.input_tokens, third.result.usage.output_tokens) == (42, 16)


async def test_a_connector_that_moved_is_sent_nothing(stage: Stage) -> None:
    session = await stage.session()
    await say(session)
    elsewhere = registry_for(f"http://127.0.0.1:{free_port()}", vendor="anthropic").connector("server")
    stage.registry._find = {"server": elsewhere}.get
    with pytest.raises(AgentConfigurationChangedError):
        await session.start(turn_for("And now?", "run_2"))
    assert stage.model.asked == 1
