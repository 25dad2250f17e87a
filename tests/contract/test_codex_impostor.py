"""What the Codex driver makes of a CLI that is another one, asks for more, falls silent or talks nonsense."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from runtime_host.drivers.base import SessionOpening
from runtime_host.drivers.codex import probe, session
from runtime_host.drivers.codex.session import CodexSession
from runtime_host.errors import (
    AgentNativeExecutionError,
    AgentPolicyUnsupportedError,
    AgentRuntimeDependencyError,
    AgentRuntimeError,
)
from tests.loopback.codex_bench import CodexBench, ask, bench_of, of_type, to_the_end, turn_for
from tests.loopback.codex_impostor import QUESTIONS, impostor

pytestmark = pytest.mark.needs("codex", "linux", "user-namespaces")

Open = Callable[[str], Any]


@pytest.fixture
async def bench() -> AsyncIterator[CodexBench]:
    async with bench_of() as bench:
        yield bench
        await bench.aclose()


async def opened(bench: CodexBench, how: str) -> CodexSession:
    path = impostor(bench.data.parent, how, probe._DONE)
    driver = bench.driver(cli=lambda: path)
    return await driver.open(SessionOpening("session", bench.definition, bench.options))


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("old", AgentRuntimeDependencyError, "0.99.0"),
        ("mute", AgentNativeExecutionError, "silent"),
        ("asks-by-policy", AgentPolicyUnsupportedError, "ask for approval"),
        ("has-network", AgentPolicyUnsupportedError, "lets through more"),
        ("no-profile", AgentPolicyUnsupportedError, "another one"),
    ],
)
async def test_a_cli_that_is_not_as_it_must_be_opens_no_session(
    bench: CodexBench, monkeypatch: pytest.MonkeyPatch, how: str, error: type[AgentRuntimeError], words: str
) -> None:
    monkeypatch.setattr(session, "CALL_S", 1.0 if how == "mute" else 10.0)
    with pytest.raises(error, match=words):
        await opened(bench, how)


async def test_whatever_it_asks_for_is_refused_and_told(bench: CodexBench) -> None:
    codex = await opened(bench, "asks")
    events, result = await ask(codex, "Hello.")
    await codex.close()
    answers = json.loads(result.output_text)
    assert set(answers) == set(QUESTIONS)
    granted = {"accept", "acceptForSession", "approved", "approved_for_session"}
    for method, answer in answers.items():
        assert answer == "refused" or answer.get("decision", answer.get("action", "decline")) not in granted, method
    assert answers["item/permissions/requestApproval"]["permissions"] == {}
    assert answers["account/chatgptAuthTokens/refresh"] == "refused"
    told = [data for data in of_type(events, "diagnostic") if data["code"] == "APPROVAL_DECLINED"]
    assert told[0]["level"] == "warning"
    assert "rm -rf" not in json.dumps([event.data for event in events if event.type == "diagnostic"])


async def test_nonsense_ends_the_turn_as_broken_off(bench: CodexBench) -> None:
    codex = await opened(bench, "says-garbage")
    _, result = await ask(codex, "Hello.")
    await codex.close()
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.code == "CODEX_STREAM_INCOMPLETE"


async def test_a_turn_that_is_never_accepted_can_be_stopped(bench: CodexBench) -> None:
    codex = await opened(bench, "never-accepts")
    run = await codex.start(turn_for("Hello."))
    reading = asyncio.ensure_future(to_the_end(run))
    await asyncio.sleep(0.1)
    await run.cancel()
    _, result = await asyncio.wait_for(reading, 5)
    assert result.status == "cancelled"
    await codex.close()


async def test_a_turn_that_is_never_accepted_has_a_deadline(bench: CodexBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.drivers.codex.run.START_TURN_S", 0.3)
    codex = await opened(bench, "never-accepts")
    _, result = await asyncio.wait_for(ask(codex, "Hello."), 5)
    await codex.close()
    assert result.status == "failed"


async def test_a_cli_that_is_not_there_is_told_with_how_to_get_it(bench: CodexBench) -> None:
    driver = bench.driver(cli=lambda: str(bench.data / "nowhere"))
    with pytest.raises(AgentRuntimeDependencyError, match="pip install"):
        await driver.inspect(bench.definition, bench.options)
    driver = bench.driver(cli=lambda: "")
    with pytest.raises(AgentRuntimeDependencyError, match="not installed"):
        await driver.inspect(bench.definition, bench.options)
    assert bench.programs.orders == []


async def test_what_is_sent_is_what_the_vendor_s_models_take(
    bench: CodexBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openai_codex.generated.v2_all as vendor

    sent: dict[str, dict[str, Any]] = {}
    call = CodexSession.call

    async def noted(self: CodexSession, method: str, params: Any, *, within_s: float | None = None) -> dict[str, Any]:
        sent[method] = dict(params)
        return await call(self, method, params, within_s=within_s)

    monkeypatch.setattr(CodexSession, "call", noted)
    async with bench.session() as codex:
        await ask(codex, "Hello.")
        state = codex.state()
        run = await codex.start(turn_for("Again."))
        await run.cancel()
        await to_the_end(run)
    async with bench.session(state=state):
        pass
    models: dict[str, Any] = {
        "initialize": vendor.InitializeParams,
        "model/list": vendor.ModelListParams,
        "command/exec": vendor.CommandExecParams,
        "thread/start": vendor.ThreadStartParams,
        "thread/resume": vendor.ThreadResumeParams,
        "turn/start": vendor.TurnStartParams,
    }
    experimental = {"permissions", "dynamicTools"}
    for method, model in models.items():
        known = {field.alias or name for name, field in model.model_fields.items()}
        assert set(sent[method]) - known <= experimental, f"{method} is sent what its model does not know"
        model.model_validate({name: value for name, value in sent[method].items() if name in known})
