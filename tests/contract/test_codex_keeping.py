"""What a session of the real Codex CLI leaves, what it goes on with, and what it refuses to go on with."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from runtime_host.drivers.base import SessionOpening
from runtime_host.errors import (
    AgentBusyError,
    AgentConfigurationChangedError,
    AgentDriverConfigurationError,
    AgentSessionRecoveryError,
)
from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.codex_bench import CodexBench, ask, bench_of, living_in, turn_for
from tests.loopback.far_side import Say
from tests.loopback.native import registry_for

pytestmark = pytest.mark.needs("codex", "linux", "user-namespaces")


@pytest.fixture
async def bench() -> AsyncIterator[CodexBench]:
    async with bench_of() as bench:
        yield bench
        await bench.aclose()


def record_of(bench: CodexBench) -> Path:
    [path] = (bench.data / "homes").rglob("rollout-*.jsonl")
    return path


async def one_turn(bench: CodexBench) -> dict[str, Any]:
    async with bench.session() as session:
        await ask(session, "Remember 7.")
        await ask(session, "And 9.")
        return json.loads(json.dumps(session.state()))  # type: ignore[no-any-return]


async def test_a_session_goes_on_in_a_new_process_with_all_that_was_said(bench: CodexBench) -> None:
    state = await one_turn(bench)
    async with bench.session(state=state) as session:
        _, result = await ask(session, "Which numbers?")
    assert result.status == "completed"
    sent = json.dumps(bench.model.body())
    assert "Remember 7." in sent
    assert "And 9." in sent
    assert result.usage is not None
    assert result.usage.input_tokens == 21, "what earlier runs used was counted again"
    assert DEFAULT_KEY not in json.dumps(state)


@pytest.mark.parametrize("how", ["shorter", "changed", "gone"])
async def test_a_record_that_is_not_what_it_was_is_not_gone_on_with(bench: CodexBench, how: str) -> None:
    state = await one_turn(bench)
    path = record_of(bench)
    lines = path.read_bytes().splitlines(keepends=True)
    if how == "shorter":
        path.write_bytes(b"".join(lines[:-6]))
    elif how == "changed":
        path.write_bytes(path.read_bytes().replace(b"Remember 7.", b"Remember 8."))
    else:
        path.unlink()
    with pytest.raises(AgentSessionRecoveryError, match="not continued"):
        async with bench.session(state=state):
            pass
    assert bench.sent() == 2


async def test_two_processes_never_have_one_session(bench: CodexBench) -> None:
    async with bench.session() as session:
        await ask(session, "Hello.")
        with pytest.raises(AgentBusyError):
            async with bench.session(state=session.state()):
                pass
        _, result = await ask(session, "Still there?")
        assert result.status == "completed"


async def test_a_connector_that_leads_elsewhere_is_not_gone_on_with(bench: CodexBench) -> None:
    state = await one_turn(bench)
    bench.connectors = registry_for("http://127.0.0.1:9/v1", vendor="openai")
    with pytest.raises(AgentConfigurationChangedError):
        async with bench.session(state=state):
            pass


async def test_settings_of_the_project_block_the_opening_and_each_turn(bench: CodexBench) -> None:
    settings = bench.workspace / ".codex" / "config.toml"
    async with bench.session() as session:
        await ask(session, "Hello.")
        settings.parent.mkdir()
        settings.write_text('approval_policy = "on-request"\n')
        with pytest.raises(AgentDriverConfigurationError, match="allow_project_config"):
            await session.start(turn_for("Again."))
        settings.unlink()
        _, result = await ask(session, "Again.")
        assert result.status == "completed"
    settings.symlink_to("/nowhere")
    with pytest.raises(AgentDriverConfigurationError):
        async with bench.session(name="other"):
            pass
    assert bench.sent() == 2


async def test_settings_above_the_folder_count_up_to_the_root_of_its_repository(bench: CodexBench) -> None:
    above = bench.workspace
    (above / ".git").mkdir()
    (above / ".codex").mkdir()
    (above / ".codex" / "config.toml").write_text("")
    bench.workspace = above / "inner" / "deep"
    bench.workspace.mkdir(parents=True)
    driver = bench.driver()
    with pytest.raises(AgentDriverConfigurationError):
        await driver.inspect(bench.definition, bench.options_for())
    (above / "inner" / ".git").mkdir()
    await driver.inspect(bench.definition, bench.options_for())


async def test_settings_of_a_project_that_were_allowed_are_read(bench: CodexBench) -> None:
    (bench.workspace / "AGENTS.md").write_text("Say WORD-OF-THE-PROJECT.")
    (bench.workspace / ".codex").mkdir()
    (bench.workspace / ".codex" / "config.toml").write_text('sandbox_mode = "danger-full-access"\n')
    async with bench.session(bench.options_for(allow_project_config=True)) as session:
        await ask(session, "Hello.")
    assert "WORD-OF-THE-PROJECT" in json.dumps(bench.model.body())


async def test_what_is_kept_is_private_and_goes_when_it_is_forgotten(bench: CodexBench) -> None:
    state = await one_turn(bench)
    home = bench.data / "homes" / bench.definition.id / "session"
    for folder in (home, home / "codex", home / "scratch", home / "tmp"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in home.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert DEFAULT_KEY.encode() not in path.read_bytes(), f"the key lies in {path.name}"
    driver = bench.driver()
    left = bench.data / ".remuda-canary-session"
    left.write_text("of an opening that was killed")
    await driver.forget(bench.definition.id, "session", state)
    assert not home.exists()
    assert not left.exists()
    await driver.forget(bench.definition.id, "session", state)
    home.mkdir()
    (home / "letter.txt").write_text("not ours")
    with pytest.raises(OSError, match="not the folder"):
        await driver.forget(bench.definition.id, "session", None)
    assert (home / "letter.txt").exists()


async def test_a_folder_of_somebody_else_is_not_used(bench: CodexBench) -> None:
    home = bench.data / "homes" / bench.definition.id / "session"
    home.mkdir(parents=True)
    (home / "letter.txt").write_text("not ours")
    with pytest.raises(AgentSessionRecoveryError):
        async with bench.session():
            pass


async def test_looking_starts_nothing(bench: CodexBench) -> None:
    said = await bench.driver().inspect(bench.definition, bench.options)
    assert said.capabilities["input.image"].support == "native"
    assert bench.programs.orders == []
    assert not (bench.data / "homes").exists()


async def test_twenty_sessions_leave_nothing(bench: CodexBench) -> None:
    bench.model.always(Say("Yes."))
    driver = bench.driver()

    async def one(number: int) -> None:
        session = await driver.open(SessionOpening(f"s{number}", bench.definition, bench.options))
        if number % 5 == 0:
            await ask(session, "Hello.")
        await session.close()
        await driver.forget(bench.definition.id, f"s{number}", session.state())

    await one(0)
    before = here()
    for first in range(1, 21, 4):
        await asyncio.gather(*(one(number) for number in range(first, first + 4)))
    for _ in range(50):
        if not grown(before):
            break
        # A thread ends a moment after what it did; one from before the first may end as well.
        await asyncio.sleep(0.02)
    assert not grown(before)
    assert bench.programs.running == []
    assert list((bench.data / "homes" / bench.definition.id).iterdir()) == []
    assert not list(bench.data.glob(".remuda*"))
    await driver.aclose()


def grown(before: tuple[int, ...]) -> dict[int, tuple[int, int]]:
    """What there is more of than before, by its place in `here`."""
    return {at: (was, now) for at, (was, now) in enumerate(zip(before, here(), strict=True)) if now > was}


def here() -> tuple[int, int, int, int]:
    """Descriptors, threads, tasks and programs of this process."""
    return (
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        len(asyncio.all_tasks()),
        len([name for name in living_in(os.getsid(0)) if name.startswith("codex")]),
    )
