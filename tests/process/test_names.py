"""A whole program in a network with nobody else in it: it looks up no name and writes to no place but its model."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.claude_model import ClaudeModel
from tests.loopback.codex_model import CLASSIC, CodexModel
from tests.loopback.far_side import FarSide, Say
from tests.loopback.name_sink import NameSink
from tests.process.app_driver import PATIENCE_S, Home, lines, served

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "own-network")]


@pytest.mark.parametrize(
    ("harness", "model", "name"),
    [
        ("native.agent", ClaudeModel, "claude-sonnet-5-5"),
        ("native.agent", CodexModel, CLASSIC),
        pytest.param("anthropic.agent.sdk", ClaudeModel, "claude-sonnet-5-5", marks=pytest.mark.needs("claude")),
        pytest.param("openai.codex.sdk", CodexModel, CLASSIC, marks=pytest.mark.needs("codex")),
    ],
)
def test_a_run_looks_up_no_name(harness: str, model: type[FarSide], name: str, home: Path) -> None:
    far, sink = model(key=DEFAULT_KEY), NameSink()
    far.always(Say("It rains there."))
    with served(sink, sink.around(), far):
        place = Home(home)
        place.connect(far, models=[name], vendor=far.vendor)
        words = ["run", "Does it rain?", "--json", "--harness", harness, "--connector", "loopback", "--model", name]
        if harness == "openai.codex.sdk":
            work = home / "work"
            work.mkdir()
            words += ["--environment", f"dir:{work}", "--policy", "read"]
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
        assert lines(done.stdout)[-1]["output_text"] == "It rains there.", json.dumps(lines(done.stdout)[-1])
        assert [each.text for each in far.inputs] == ["Does it rain?"]
    assert (sink.names, sink.places) == ([], [])
