"""How the Claude CLI is started: what is in its command line and environment, what is not, and the profiles."""

import itertools
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime_host.definitions import Environment, ExecutionBinding, SessionOptions, TrustedContext
from runtime_host.drivers.claude_sdk import launch
from runtime_host.drivers.claude_sdk.gate import gate_of
from runtime_host.drivers.claude_sdk.home import NOTHING_SAID, Home, forget
from runtime_host.drivers.claude_sdk.launch import Launch
from runtime_host.drivers.claude_sdk.profile import Profile, profile_of
from runtime_host.errors import (
    AgentBusyError,
    AgentDriverConfigurationError,
    AgentPolicyUnsupportedError,
    AgentSessionRecoveryError,
)
from runtime_host.policy import CHAT
from runtime_host.programs import MARK

WORK = Profile(("Read", "Glob", "Grep", "Edit", "Write", "Bash"), "/w", writes=True, commands=True)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.take(str(tmp_path / "agent" / "session"), "agent", "session")


def options(environment: Environment, **policy: str) -> SessionOptions:
    binding = ExecutionBinding(driver="anthropic.agent.sdk", connector="c", model="m")
    return SessionOptions(
        execution=binding, context=TrustedContext(), environment=environment, policy=CHAT.model_copy(update=policy)
    )


def test_a_chat_has_every_tool_of_the_cli_switched_off(home: Home) -> None:
    words = launch.command("/claude", home, Launch("m"), Profile(), ("mcp__host__look",), goes_on=False)
    told = dict(itertools.pairwise(words))
    assert told["--tools"] == ""
    assert told["--allowedTools"] == "mcp__host__look"
    assert told["--permission-mode"] == "dontAsk"
    assert {"--strict-mcp-config", "--setting-sources=", "--disable-slash-commands"} <= set(words)
    assert f"--session-id={home.native_id}" in words
    assert launch.wall_of(home, Profile(), "/claude") is None
    again = launch.command("/claude", home, Launch("m", "high", "{}", 3, 150), Profile(), (), goes_on=True)
    told = dict(itertools.pairwise(again))
    assert (told["--effort"], told["--max-turns"], told["--max-budget-usd"]) == ("high", "3", "1.50")
    assert f"--resume={home.native_id}" in again
    assert "--mcp-config" not in again


def test_nothing_secret_and_nothing_said_is_in_a_command_line(home: Home) -> None:
    for name, content in launch.files("Say nothing of the merger.").items():
        home.put(name, content)
    words = " ".join(launch.command("/claude", home, Launch("m"), WORK, (), goes_on=False))
    assert "merger" not in words
    env = launch.environment(home, WORK, base_url="http://127.0.0.1:9", token="token-1", path="/usr/bin")
    assert "token-1" not in words
    assert env["ANTHROPIC_API_KEY"] == "token-1"
    assert os.stat(home.folder(launch.SYSTEM)).st_mode & 0o777 == 0o600


def test_commands_stand_behind_a_wall_that_lets_through_less(home: Home) -> None:
    outer, inner = launch.wall_of(home, WORK, "/claude"), launch.wall_of_commands(home, WORK)
    assert outer is not None
    assert (outer.network, inner.network) == ("all", "none")
    assert set(inner.writable) < set(outer.writable)
    assert set(inner.writable) == {"/w", home.folder("tmp")}
    assert not {home.folder(name) for name in ("bin", "home")} & set(outer.writable)
    reading = launch.wall_of(home, WORK._replace(writes=False), "/claude")
    assert reading is not None
    assert "/w" not in reading.writable
    assert "/w" in reading.readable
    assert launch.wall_of_commands(home, WORK._replace(writes=False)).writable == (home.folder("tmp"),)


def test_a_command_is_one_word_and_has_nothing_of_the_cli_s_environment(home: Home) -> None:
    script = launch.shell(home, ("/walled", "--read=/a b", "--"))
    words = shlex.split(script.splitlines()[1])
    assert words[:3] == ["exec", "/usr/bin/env", "-i"]
    assert words[-5:] == ["/bin/bash", "--noprofile", "--norc", "-c", "$1"]
    assert "--read=/a b" in words
    assert not any("ANTHROPIC" in word or "CLAUDE" in word for word in words)


def test_a_command_keeps_the_mark_by_which_it_is_found(home: Home, tmp_path: Path) -> None:
    script = tmp_path / "shell"
    script.write_text(launch.shell(home, ("/usr/bin/env", "--")), encoding="utf-8")
    for given, told in (({MARK: "a b"}, f"{MARK}=a b"), ({}, "")):
        command = ["/bin/sh", str(script), f"env | grep {MARK}"]
        done = subprocess.run(command, env={**given, "OTHER": "1"}, capture_output=True, text=True, check=False)
        assert (done.stdout.strip(), done.stderr) == (told, "")


def test_policies_are_the_profiles_whole_or_refused() -> None:
    nowhere, folder = Environment(), Environment(type="local-directory", path="/w")
    assert profile_of(options(nowhere)) == Profile()
    assert profile_of(options(folder, filesystem="workspace-write", commands="sandboxed")) == WORK
    assert profile_of(options(folder, filesystem="read-only")).tools == ("Read", "Glob", "Grep")
    for refused in (
        options(nowhere, filesystem="read-only"),
        options(nowhere, commands="sandboxed"),
        options(folder),
        options(folder, filesystem="read-only", sandbox_network="allowed"),
        options(folder, filesystem="read-only", provider_web_search="allowed"),
        options(folder, filesystem="read-only", approvals="interactive"),
        options(Environment(type="provider-managed", reference="r"), filesystem="read-only"),
    ):
        with pytest.raises(AgentPolicyUnsupportedError):
            profile_of(refused)
    binding = ExecutionBinding(driver="d", connector="c", model="m", driver_config={"dangerously": True})
    with pytest.raises(AgentDriverConfigurationError):
        profile_of(options(nowhere).model_copy(update={"execution": binding}))


def test_a_path_out_of_the_folder_is_refused_whatever_it_looks_like(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/link").symlink_to("/etc")
    root = os.path.realpath(tmp_path / "work")
    gate = gate_of(root, WORK.tools)
    inside: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Read", {"file_path": f"{root}/new/file"}),
        ("Write", {"file_path": "relative"}),
        ("Glob", {"pattern": "**/*.py"}),
        ("Grep", {"pattern": "..", "path": root}),
        ("Bash", {"command": "cat /etc/passwd"}),  # the wall's to judge
    )
    outside: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Read", {"file_path": "/etc/passwd"}),
        ("Read", {"file_path": f"{root}/../x"}),
        ("Read", {"file_path": f"{root}x/file"}),
        ("Edit", {"file_path": f"{root}/link/passwd"}),
        ("Write", {"file_path": "~/x"}),
        ("Write", {"file_path": 7}),
        ("Write", {"file_path": "a\0b"}),
        ("Glob", {"pattern": "../**"}),
        ("Glob", {"pattern": "/etc/*"}),
        ("Grep", {"pattern": "x", "path": "/"}),
        ("WebFetch", {"url": "http://127.0.0.1"}),
        ("Bash", {"command": "sleep 1", "run_in_background": True}),
    )
    for tool, arguments in inside:
        assert gate(tool, arguments) == "", (tool, arguments)
    for tool, arguments in outside:
        assert gate(tool, arguments) != "", (tool, arguments)
    assert gate_of(None, ())("Read", {"file_path": "x"}) != ""


def test_the_driver_comes_without_the_sdk() -> None:
    words = "import sys, runtime_host.drivers.claude_sdk as d; print({'claude_agent_sdk', 'mcp'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


def test_a_home_has_one_owner_and_is_forgotten_by_its_own_only(home: Home, tmp_path: Path) -> None:
    path = str(home.path)
    with pytest.raises(AgentBusyError):
        Home.take(path, "agent", "session")
    home.release()
    with pytest.raises(AgentSessionRecoveryError):
        Home.take(path, "agent", "another")
    forget(path, "agent", "another")
    assert home.path.exists()
    again = Home.take(path, "agent", "session")
    assert again.native_id == home.native_id
    assert again.verify(NOTHING_SAID) == NOTHING_SAID
    again.release()
    fresh = Home.take(path, "agent", "session", fresh=True)
    assert fresh.native_id != home.native_id
    fresh.release()
    (tmp_path / "link").symlink_to(home.path)
    forget(str(tmp_path / "link"), "agent", "session")
    assert home.path.exists()
    forget(path, "agent", "session")
    assert not home.path.exists()
