"""What stays of sessions with the real Claude CLI, and what does not: records, locks, keys, processes, descriptors."""

import asyncio
import gc
import json
import os
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from runtime_host.definitions import AgentDefinition
from runtime_host.errors import (
    AgentBusyError,
    AgentConfigurationChangedError,
    AgentPolicyUnsupportedError,
    AgentRuntimeDependencyError,
    AgentSessionRecoveryError,
)
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.tools.base import HostTool, ResolutionContext, ResolvedTools
from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.claude_harness import (
    DEFINITION,
    Stage,
    is_there,
    needs_claude,
    options_for,
    say,
    staged,
    turn_for,
    until,
)
from tests.loopback.far_side import Say, Use

pytestmark = needs_claude
SENTINEL = "sentinel-of-the-host-5b1f"


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as made:
        yield made


# ----------------------------------------------------------------------------------------- records


async def test_a_session_goes_on_in_another_process_with_what_was_said(stage: Stage) -> None:
    session = await stage.session()
    await say(session, "My name is Ada.")
    await session.close()
    state = json.loads(json.dumps(session.state()))
    assert DEFAULT_KEY not in json.dumps(state)
    again = await stage.session(state=state)
    await say(again, "What is my name?", run_id="run_2")
    assert [message["content"] for message in stage.model.body()["messages"] if message["role"] == "user"] != []
    assert "My name is Ada." in json.dumps(stage.model.body())
    assert again.state()["native"] == state["native"]
    assert again.state()["messages"] > state["messages"]
    assert len(list(stage.home().glob("config/projects/*/*.jsonl"))) == 1


async def test_a_record_that_is_not_what_was_kept_is_not_gone_on_with(stage: Stage) -> None:
    session = await stage.session()
    await say(session, "My name is Ada.")
    await say(session, "I am a countess.", run_id="run_2")
    await session.close()
    state, record = session.state(), stage.record()
    whole = record.read_bytes()
    lines = whole.splitlines(keepends=True)
    messages = [at for at, line in enumerate(lines) if json.loads(line).get("type") in ("user", "assistant")]

    def replaced(at: int, **fields: Any) -> bytes:
        return json.dumps({**json.loads(lines[at]), **fields}).encode() + b"\n"

    wrong = {
        "nothing": b"",
        "truncated": b"".join(lines[: messages[-1]]),
        "cut in the last message": whole[: whole.index(lines[messages[-1]]) + 40],
        "another end": b"".join([*lines[: messages[-1]], replaced(messages[-1], uuid=state["native"])]),
        "another middle": b"".join([*lines[: messages[1]], replaced(messages[1], uuid="x"), *lines[messages[1] + 1 :]]),
        "grown": whole + replaced(messages[-1], uuid="another"),
    }
    for content in wrong.values():
        record.write_bytes(content)
        with pytest.raises(AgentSessionRecoveryError):
            await stage.session(state=state)
    record.unlink()
    with pytest.raises(AgentSessionRecoveryError):
        await stage.session(state=state)
    record.write_bytes(whole)
    again = await stage.session(state=state)
    assert (await say(again, "And now?", run_id="run_3")).result.status == "completed"
    assert stage.model.asked == 3


async def test_what_a_crash_left_behind_in_the_middle_of_a_run_is_no_strangers_work(stage: Stage) -> None:
    session = await stage.session()
    await say(session, "My name is Ada.")
    before = session.state()
    await say(session, "I am a countess.", run_id="run_2")
    await session.close()
    # As if this process had ended before it could keep the state after the second run.
    again = await stage.session(state=before)
    assert (await say(again, "And now?", run_id="run_3")).result.status == "completed"
    assert "I am a countess." in json.dumps(stage.model.body())


async def test_a_session_has_one_owner(stage: Stage) -> None:
    session = await stage.session()
    await say(session)
    with pytest.raises(AgentBusyError):
        await stage.session(state=session.state())
    with pytest.raises(AgentBusyError):
        await stage.driver().forget(DEFINITION.id, "session_1", None)
    await session.close()
    await (await stage.session(state=session.state())).close()


async def test_forgetting_removes_the_folder_of_this_session_only(stage: Stage) -> None:
    driver = stage.driver()
    one, two = await stage.session(driver), await stage.session(driver, session_id="session_2")
    await say(one)
    for session in (one, two):
        await session.close()
    for _ in range(2):
        await driver.forget(DEFINITION.id, "session_1", one.state())
    assert not stage.home().exists()
    assert stage.home("session_2").exists()
    foreign = stage.home("session_3")
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("Years of work.")
    await driver.forget(DEFINITION.id, "session_3", None)
    assert (foreign / "thesis.txt").exists()
    with pytest.raises(AgentSessionRecoveryError):
        await stage.session(driver, session_id="session_3")
    assert (foreign / "thesis.txt").exists()


# -------------------------------------------------------------------------------------------- keys


async def test_the_key_and_the_host_s_own_variables_are_nowhere_near_the_cli(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_TEST_SENTINEL", SENTINEL)
    monkeypatch.setenv("ANTHROPIC_API_KEY", DEFAULT_KEY)
    session = await stage.session()
    await say(session)
    [program] = stage.programs.started
    environ, argv = _told_to(program.pid)
    names = {line.partition("=")[0] for line in environ.split("\0") if line}
    assert SENTINEL not in environ + argv
    assert DEFAULT_KEY not in environ + argv
    assert "Zymurgy" not in argv
    assert "capital of France" not in argv
    assert {name for name in names if not name.startswith(("CLAUDE", "DISABLE", "LC_", "MCP", "MAX_MCP"))} <= {
        "PATH", "LANG", "TZ", "HOME", "TMPDIR", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "REMUDA_GUARD",
    }  # fmt: skip
    token = dict(line.split("=", 1) for line in environ.split("\0") if line)["ANTHROPIC_API_KEY"]
    await session.close()
    for path in stage.home().rglob("*"):
        assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0 or not path.is_file() or _is_behind(path, stage.home())
        if path.is_file():
            content = path.read_bytes()
            assert DEFAULT_KEY.encode() not in content, path
            assert token.encode() not in content, path
            assert SENTINEL.encode() not in content, path
    assert stat.S_IMODE(stage.home().stat().st_mode) == 0o700


def _told_to(pid: int) -> tuple[str, str]:
    """Environment and command line of a process."""
    about = Path(f"/proc/{pid}")
    return (about / "environ").read_bytes().decode(), (about / "cmdline").read_bytes().decode()


def _is_behind(path: Path, home: Path) -> bool:
    """Whether nobody else can come to it."""
    return home in path.parents


async def test_nothing_of_the_cli_s_own_lies_where_it_did_not_belong(stage: Stage) -> None:
    session = await stage.session()
    await say(session)
    await session.close()
    names = {path.relative_to(stage.home()).parts[0] for path in stage.home().rglob("*")}
    assert names <= {
        "owner.json", "lock", "run.json", "system.txt", "servers.json", "settings.json",
        "config", "home", "tmp", "cwd", "bin",
    }  # fmt: skip
    assert list((stage.home() / "cwd").iterdir()) == list((stage.home() / "tmp").iterdir()) == []


# ------------------------------------------------------------------------------------------- looking


async def test_looking_at_a_binding_starts_and_loads_nothing(stage: Stage) -> None:
    said = await stage.driver().inspect(AgentDefinition(id="a", tools=("look", "tell me")), options_for())
    assert stage.programs.started == []
    assert said.native_tool_names["look"] == "mcp__host__look"
    assert said.native_tool_names["tell me"].startswith("mcp__host__tell_me_")
    assert said.configuration_revision
    assert "difference" in said.usage_coverage
    assert set(said.enforcement) >= {
        "filesystem", "commands", "sandbox_network", "provider_web_search", "approvals", "limits.max_turns",
    }  # fmt: skip
    assert said.capabilities["input.image"].support == "unsupported"
    assert not stage.home().exists()


async def test_a_cli_or_sdk_that_is_missing_is_told_with_how_to_get_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AgentRuntimeDependencyError, match="Install"):
        await stage.driver(cli=lambda: "/nonexistent/claude").inspect(DEFINITION, options_for())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(AgentRuntimeDependencyError, match="Install"):
        await stage.driver().inspect(DEFINITION, options_for())


async def test_a_cli_that_is_none_fails_the_run_in_words(stage: Stage, tmp_path: Path) -> None:
    wrong = tmp_path / "claude"
    wrong.write_text("#!/bin/sh\nexit 3\n")
    wrong.chmod(0o700)
    result = await say(await stage.session(stage.driver(cli=lambda: str(wrong))))
    assert result.result.error is not None
    assert result.result.error.code == "HARNESS_START_FAILED"
    assert stage.programs.living() == []


async def test_a_cli_of_another_age_is_not_listened_to(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.drivers.claude_sdk.run.FIRST_VERSION", (2, 9, 0))
    result = await say(await stage.session())
    assert result.result.error is not None
    assert "version" in result.result.error.message


@pytest.mark.parametrize(
    "policy",
    [
        {"filesystem": "read-only"},
        {"filesystem": "workspace-write"},
        {"commands": "sandboxed"},
        {"sandbox_network": "allowed"},
        {"provider_web_search": "allowed"},
        {"approvals": "interactive"},
    ],
)
async def test_a_chat_that_may_touch_something_is_refused(stage: Stage, policy: dict[str, str]) -> None:
    options = options_for()
    allowed = options.policy.model_copy(update=policy)
    with pytest.raises(AgentPolicyUnsupportedError):
        await stage.driver().inspect(DEFINITION, options.model_copy(update={"policy": allowed}))


# ------------------------------------------------------------------------------------------ results


async def test_a_large_result_of_a_tool_is_told_whole_and_kept_in_no_file(stage: Stage) -> None:
    large = "x" * 200_000

    async def resolve(names: tuple[str, ...], _: ResolutionContext) -> ResolvedTools:
        parameters = {"type": "object", "properties": {}}
        tools = tuple(HostTool(name, "Looks.", parameters, lambda *_: large) for name in names)
        return ResolvedTools(tools=tools, fingerprint="1")

    store = MemoryAgentStore()

    async def storage(_: str) -> AgentStore:
        return store

    stage.model.answer([Use("mcp__host__look", {})], [Say("That is a lot.")])
    backend = LocalBackend(drivers=[stage.driver()], storage=storage, connectors=stage.registry, resolve_tools=resolve)
    async with AgentRuntime(backend) as runtime:
        definition = DEFINITION.model_copy(update={"tools": ("look",)})
        session = await runtime.create_agent(definition).open_session(options_for())
        result = await (await session.run("Look.")).result()
        assert result.status == "completed"
        [told] = stage.model.told
        assert told.text == large
        assert list(stage.home(session.session_id).rglob("tool-results")) == []
        assert stage.model.others == []
    await backend.aclose()


async def test_a_session_s_harness_set_up_otherwise_is_not_gone_on_with(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryAgentStore()

    async def storage(_: str) -> AgentStore:
        return store

    async with AgentRuntime(
        LocalBackend(drivers=[stage.driver()], storage=storage, connectors=stage.registry)
    ) as runtime:
        session = await runtime.create_agent(DEFINITION).open_session(options_for())
        await (await session.run("Hello")).result()
        reference, context = session.reference(), session.options.context
        await session.detach()
        assert stage.home(session.session_id).exists()
    with monkeypatch.context() as changed:
        changed.setattr("runtime_host.drivers.claude_sdk.profile.revision", lambda _: "another")
        async with AgentRuntime(
            LocalBackend(drivers=[stage.driver()], storage=storage, connectors=stage.registry)
        ) as runtime:
            with pytest.raises(AgentConfigurationChangedError):
                await runtime.resume_session(reference, context=context)
    async with AgentRuntime(
        LocalBackend(drivers=[stage.driver()], storage=storage, connectors=stage.registry)
    ) as runtime:
        again = await runtime.resume_session(reference, context=context)
        assert (await (await again.run("And now?")).result()).status == "completed"
        await again.destroy()
        assert not stage.home(session.session_id).exists()


async def test_twenty_sessions_leave_nothing_behind(stage: Stage) -> None:
    driver = stage.driver()
    counted: list[tuple[int, int, int]] = []
    for number in range(20):
        session = await stage.session(driver, session_id=f"session_{number}")
        if number % 4 == 0:
            assert (await say(session)).result.status == "completed"
        else:
            run = await session.start(turn_for("Hello", f"run_{number}"))
            await until(lambda run=run: run.done or bool(stage.programs.living()))
            await run.cancel()
            await run.wait()
        await session.close()
        await driver.forget(DEFINITION.id, f"session_{number}", None)
        gc.collect()
        descriptors = len(os.listdir("/proc/self/fd"))
        counted.append((descriptors, threading.active_count(), len(asyncio.all_tasks())))
    assert stage.programs.living() == []
    assert not any(is_there(program.pid) for program in stage.programs.started)
    # What is there once (the SDK, its loop) was there after the first.
    assert max(counted[10:]) <= max(counted[:10]), counted
    assert list(stage.home().parent.iterdir()) == []
