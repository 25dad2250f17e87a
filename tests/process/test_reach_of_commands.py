"""What a command that an agent runs can reach, in a whole run of each harness: its folder, and nothing of the person.

The same command is run where nothing holds it, and reaches all of it.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.claude_model import ClaudeModel
from tests.loopback.codex_model import CODE_MODE, CodexModel
from tests.loopback.far_side import FarSide, Say, Use
from tests.process.app_driver import PATIENCE_S, Home, lines, served

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "landlock")]
SENTINEL = "a-word-of-the-host-4711"
UNTOLD_KEY = f"{DEFAULT_KEY[:-1]}[{DEFAULT_KEY[-1]}]"
UNTOLD_SENTINEL = f"{SENTINEL[:-1]}[{SENTINEL[-1]}]"
"""As patterns, so that the command that looks for the key does not bring it along."""


def command(place: Home, far: FarSide) -> str:
    outside = place.folder / "outside.txt"
    return "\n".join(
        [
            "env",
            # No more than what is looked for: a busy machine's processes would fill what is told of a command.
            "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"
            f" | grep -ao -e '{UNTOLD_KEY}' -e '{UNTOLD_SENTINEL}' | sort -u",
            f"grep -rshao '{UNTOLD_KEY}' {place.folder} 2>/dev/null && echo ''key''-in-a-file",
            f"cat {place.folder}/note.txt 2>/dev/null",
            f"head -c 15 {place.profile.store} 2>/dev/null && echo",
            f"ls {place.data}/profiles/personal 2>/dev/null | grep -q profile.sqlite3 && echo ''lis''ted-it",
            f"(echo x > {outside}) 2>/dev/null",
            f"(exec 3<>/dev/tcp/127.0.0.1/{far.port}) 2>/dev/null && echo ''connec''ted-here",
            "echo x > inside.txt && echo wrote-inside",
            "true",
        ]
    )


REACHED = ("key-in-a-file", "SQLite format 3", "listed-it", "connected-here", "written by hand")
"""None of it stands in the command as it is written here, which can read itself."""


@pytest.mark.parametrize(
    ("harness", "model", "name", "tool", "argument"),
    [
        pytest.param(
            "anthropic.agent.sdk",
            ClaudeModel,
            "claude-sonnet-5-5",
            "Bash",
            "command",
            marks=pytest.mark.needs("claude"),
        ),
        pytest.param(
            "openai.codex.sdk",
            CodexModel,
            CODE_MODE,
            "exec_command",
            "cmd",
            marks=pytest.mark.needs("codex", "user-namespaces"),
        ),
    ],
)
def test_a_command_reaches_its_folder_and_nothing_else(
    harness: str, model: type[FarSide], name: str, tool: str, argument: str, home: Path
) -> None:
    far = model()
    work = home / "work"
    work.mkdir()
    (home / "note.txt").write_text(f"written by hand, {DEFAULT_KEY}\n", encoding="utf-8")
    with served(far):
        place = Home(home, {"SENTINEL": SENTINEL})
        place.connect(far, models=[name], vendor=far.vendor)
        far.always([Use(tool, {argument: command(place, far)})], [Say("It looked.")])
        words = ["run", "Look around.", "--json", "--harness", harness, "--connector", "loopback", "--model", name]
        done = place.run(*words, "--environment", f"dir:{work}", "--policy", "work")
        assert done.returncode == 0, done
        *events, result = lines(done.stdout)
        assert result["output_text"] == "It looked."
        told = far.told[-1].text
        # Where it may have written to some folder that is thrown away, the person's own has nothing new.
        assert not (home / "outside.txt").exists()
        held = _held(place, far, work)
    assert "wrote-inside" in told
    assert (work / "inside.txt").exists()
    for thing in (DEFAULT_KEY, SENTINEL, *REACHED):
        assert thing not in told
        assert thing in held, "nothing holds this command, so it should have been reached"
    assert DEFAULT_KEY not in done.stdout + done.stderr
    assert _commands(events), "the command is no activity of the run"


def _held(place: Home, far: FarSide, work: Path) -> str:
    """What the same command says where nothing holds it."""
    done = subprocess.run(
        ["bash", "-c", command(place, far)],
        env=place.environment(),
        cwd=work,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )
    assert (place.folder / "outside.txt").exists()
    return done.stdout


def _commands(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["type"].startswith("command.")]
