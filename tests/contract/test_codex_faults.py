"""What goes wrong between the real Codex CLI and its model, and what goes wrong with the CLI itself."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from runtime_host.drivers.base import SessionOpening
from runtime_host.errors import AgentSessionRecoveryError
from runtime_host.plain_programs import PlainPrograms
from tests.loopback.codex_bench import CodexBench, ask, bench_of, of_type, to_the_end, turn_for
from tests.loopback.far_side import Cut, Fault, Finish, Hang, Refuse, Round, Say, Use

pytestmark = pytest.mark.needs("codex", "linux", "user-namespaces")


@pytest.fixture
async def bench() -> AsyncIterator[CodexBench]:
    async with bench_of() as bench:
        yield bench
        await bench.aclose()


@pytest.mark.parametrize(
    ("far", "code", "retryable"),
    [
        (Refuse(401), "PROVIDER_KEY_REFUSED", False),
        (Refuse(403), "PROVIDER_FORBIDDEN", False),
        (Refuse(400), "PROVIDER_REQUEST_REFUSED", False),
        (Refuse(429), "PROVIDER_RATE_LIMITED", True),
        (Refuse(529), "PROVIDER_UNAVAILABLE", True),
        (Fault(code="context_length_exceeded"), "PROVIDER_CONTEXT_TOO_LONG", False),
        (Fault(code="insufficient_quota"), "PROVIDER_QUOTA_EXHAUSTED", False),
        (Fault(code="rate_limit_exceeded"), "PROVIDER_RATE_LIMITED", True),
        (Fault(), "PROVIDER_STREAM_CUT", True),
        ([Say("Half"), Cut()], "PROVIDER_STREAM_CUT", True),
        (Cut(), "PROVIDER_UNREACHABLE", True),
    ],
)
async def test_a_fault_of_the_server_is_told_in_words_and_the_session_goes_on(
    bench: CodexBench, far: Round, code: str, retryable: bool
) -> None:
    bench.model.answer(far)
    async with bench.session() as session:
        _, failed = await ask(session, "Hello.")
        _, after = await ask(session, "Again.")
    assert failed.status == "failed"
    assert failed.error is not None
    assert (failed.error.code, failed.error.retryable) == (code, retryable)
    assert "Scripted" not in failed.error.message
    assert after.status == "completed"
    assert [each.text for each in bench.model.inputs].count("Hello.") == 1


async def test_retries_are_shown(bench: CodexBench) -> None:
    bench.model.answer([Refuse(529, times=1), Say("Here I am.")])
    async with bench.session() as session:
        events, result = await ask(session, "Hello.")
    assert result.output_text == "Here I am."
    assert bench.model.asked == 2
    [retry] = [data for data in of_type(events, "diagnostic") if data["code"] == "RETRY"]
    assert (retry["level"], retry["reason"]) == ("warning", "PROVIDER_UNAVAILABLE")


async def test_of_an_answer_that_was_cut_only_the_newest_is_the_answer(bench: CodexBench) -> None:
    bench.model.answer([Say("The capital"), Cut(times=1), Say(" of France is Paris.")])
    async with bench.session() as session:
        events, result = await ask(session, "Hello.")
    assert result.status == "completed"
    shown = [(data["text"], data["phase"]) for data in of_type(events, "agent.message.completed")]
    assert len(shown) == 2
    assert shown[0][1] == "commentary"
    assert result.output_text == shown[1][0]
    kinds = [(event.type, event.data.get("code")) for event in events]
    retry = kinds.index(("diagnostic", "RETRY"))
    assert kinds.index(("agent.message.completed", None)) == retry + 1
    assert "begun anew" in events[retry].data["message"]


async def test_a_limit_of_the_answer_is_incomplete(bench: CodexBench) -> None:
    bench.model.answer([Say("Half of it"), Finish("length")])
    async with bench.session() as session:
        _, result = await ask(session, "Hello.")
    assert (result.status, result.finish_reason, result.output_text) == (
        "incomplete",
        "max_output_tokens",
        "Half of it",
    )
    assert result.error is not None
    assert result.error.code == "PROVIDER_LENGTH_LIMIT"
    assert "Ask it to go on" in result.error.message


async def test_a_cli_that_is_killed_fails_its_turn_and_the_next_one_goes_on(bench: CodexBench) -> None:
    async with bench.session() as session:
        await ask(session, "Remember 7.")
        bench.model.answer([Say("Half"), Use("exec_command", {"cmd": "sleep 60", "yield_time_ms": 30000})])
        run = await session.start(turn_for("Work."))
        reading = asyncio.ensure_future(to_the_end(run))
        bench.model.always(Say("I go on."))
        await until(lambda: bench.sent() == 2)
        await asyncio.sleep(0.3)
        os.kill(bench.programs.running[0].pid, signal.SIGKILL)
        _, result = await asyncio.wait_for(reading, 5)
        assert result.status == "failed"
        assert result.error is not None
        assert result.error.code == "CODEX_STREAM_INCOMPLETE"
        _, after = await ask(session, "Go on.")
        assert (after.status, after.output_text) == ("completed", "I go on.")
    said = str(bench.model.body())
    assert "Remember 7." in said, "what was said before the end was forgotten"
    assert said.count("Work.") == 1
    assert bench.sent() == 3


async def test_where_nobody_can_say_what_is_left_of_a_killed_cli_the_outcome_is_unknown(bench: CodexBench) -> None:
    bench.behave("waits")
    driver = bench.driver(programs=PlainPrograms())
    session = await driver.open(SessionOpening("session", bench.definition, bench.options))
    run = await session.start(turn_for("Work."))
    reading = asyncio.ensure_future(to_the_end(run))
    await until(lambda: bench.model.hanging == 1)
    assert session._server is not None
    os.kill(session._server.program.pid, signal.SIGKILL)
    with pytest.raises(AgentSessionRecoveryError):
        await asyncio.wait_for(reading, 8)
    await driver.aclose()


async def test_a_cli_that_hears_nothing_is_stopped_all_the_same(bench: CodexBench) -> None:
    bench.model.answer([Say("The capital"), Hang()])
    async with bench.session() as session:
        run = await session.start(turn_for("Hello."))
        reading = asyncio.ensure_future(to_the_end(run))
        await until(lambda: bench.model.hanging == 1)
        frozen = bench.programs.running[0].pid
        os.kill(frozen, signal.SIGSTOP)
        began = asyncio.get_running_loop().time()
        await run.cancel()
        _, result = await asyncio.wait_for(reading, 6)
        assert asyncio.get_running_loop().time() - began < 6
        assert result.status == "cancelled"
        with pytest.raises(ProcessLookupError):
            os.kill(frozen, 0)
        _, after = await ask(session, "Again.")
        assert after.status == "completed"


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - plain data of a far side
            await asyncio.sleep(0.02)
