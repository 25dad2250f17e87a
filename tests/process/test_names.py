"""A whole program in a network with nobody else in it: it looks up no name and writes to no place but its model."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.loopback.claude_model import ClaudeModel
from tests.loopback.codex_model import CLASSIC, CODE_MODE, CodexModel
from tests.loopback.far_side import FarSide, Say, Use
from tests.loopback.name_sink import NameSink
from tests.process.app_driver import PATIENCE_S, Home, lines, served

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "own-network")]


claude_cli, codex_cli = pytest.mark.needs("claude"), pytest.mark.needs("codex")
CLAUDE = "claude-sonnet-5-5"
OUT = "getent hosts somewhere.example || getent ahostsv4 203.0.113.7; echo x > /dev/udp/203.0.113.7/9; echo tried; true"
"""A command that looks up a name, and writes to an address it knows by heart."""


def run_alone(far: FarSide, sink: NameSink, home: Path, harness: str, name: str, *more: str) -> dict[str, Any]:
    """What `remuda run` comes to, where there is nobody else; it is the host itself."""
    place = Home(home)
    place.connect(far, models=[name], vendor=far.vendor)
    words = ["run", "Does it rain?", "--json", "--harness", harness, "--connector", "loopback", "--model", name, *more]
    done = subprocess.run(
        [*sink.prefix, *place.command(*words)],
        env=place.environment(),
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done
    return lines(done.stdout)[-1]


@pytest.mark.parametrize(
    ("harness", "model", "name"),
    [
        ("native.agent", ClaudeModel, CLAUDE),
        pytest.param("anthropic.agent.sdk", ClaudeModel, CLAUDE, marks=claude_cli),
        pytest.param("openai.codex.sdk", CodexModel, CLASSIC, marks=codex_cli),
    ],
)
def test_a_run_looks_up_no_name(harness: str, model: type[FarSide], name: str, home: Path) -> None:
    far, sink = model(), NameSink()
    far.always(Say("It rains there."))
    work = home / "work"
    work.mkdir()
    more = ["--environment", f"dir:{work}", "--policy", "read"] if harness == "openai.codex.sdk" else []
    with served(sink, sink.around(), far):
        assert run_alone(far, sink, home, harness, name, *more)["output_text"] == "It rains there."
        assert [each.text for each in far.inputs] == ["Does it rain?"]
    assert (sink.names, sink.places) == ([], [])


@pytest.mark.parametrize(
    ("harness", "model", "name", "call"),
    [
        pytest.param(
            "anthropic.agent.sdk",
            ClaudeModel,
            CLAUDE,
            Use("Bash", {"command": OUT, "description": "x"}),
            marks=claude_cli,
        ),
        pytest.param("openai.codex.sdk", CodexModel, CODE_MODE, Use("exec_command", {"cmd": OUT}), marks=codex_cli),
    ],
)
def test_a_command_of_the_agent_gets_nowhere(
    harness: str, model: type[FarSide], name: str, call: Use, home: Path
) -> None:
    far, sink = model(), NameSink()
    far.always([call], [Say("It tried.")])
    work = home / "work"
    work.mkdir()
    with served(sink, sink.around(), far):
        more = ("--environment", f"dir:{work}", "--policy", "work")
        assert run_alone(far, sink, home, harness, name, *more)["output_text"] == "It tried."
        assert "tried" in far.told[-1].text
        assert (sink.names, sink.places) == ([], [])
        # The same command where nothing holds it.
        subprocess.run([*sink.prefix, "bash", "-c", OUT], capture_output=True, timeout=PATIENCE_S, check=False)
    assert set(sink.names) == {"somewhere.example"}
    assert sink.places == ["203.0.113.7:9"]
