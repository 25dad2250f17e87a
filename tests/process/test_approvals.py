"""A call that waits, from the command line to the real dialog: decided once, and carried out over the end of hosts.

Real processes: the host, its command behind the wall, the dialog on an X server. The model server answers on loopback.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loopback.chat_server import BEHAVIOURS, Answer, ChatServer, behaviour
from tests.process.app_driver import Home, chat_server, until
from tests.process.dialog_driver import PATIENCE_S
from tests.process.xvfb import Display, xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "landlock", "xdotool")]

COMMAND = "\n".join(["echo once >> made.txt", *(f"true {number}" for number in range(60)), "cat made.txt"])
RUNS, STICKS = "files-run", "files-run-then-silence"

if RUNS not in BEHAVIOURS:

    @behaviour(RUNS)
    async def runs(answer: Answer) -> None:
        """Asks for a command, then tells what came of it."""
        answer.start_stream()
        await answer.begin()
        if answer.results():
            await answer.text("It says: " + " and ".join(answer.told()))
            await answer.finish()
        else:
            await answer.call("call_a", "files__run", json.dumps({"command": COMMAND}))
            await answer.finish("tool_calls")

    @behaviour(STICKS)
    async def sticks(answer: Answer) -> None:
        """Asks for a command; once it has its result, says nothing more."""
        if answer.results():
            await BEHAVIOURS["silent"](answer)
        else:
            await runs(answer)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(behaviour=RUNS) as running:
        yield running


@pytest.fixture(scope="module")
def display() -> Iterator[Display]:
    with xvfb() as there:
        yield there


@pytest.fixture
def place(home: Path, server: ChatServer) -> Home:
    made = Home(home)
    made.connect(server)
    (home / "notes").mkdir()
    return made


def xdotool(display: Display, *words: str) -> str:
    done = subprocess.run(
        ["xdotool", *words], env={**os.environ, **display.env}, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def at_window(display: Display, title: str, *keys: str) -> None:
    """Wait for a dialog, until presses count in it, and press keys there."""
    window = xdotool(display, "search", "--sync", "--onlyvisible", "--name", title).split()[-1]
    xdotool(display, "windowfocus", "--sync", window)
    # Presses count half a second after a window became active.
    xdotool(display, "sleep", "1.2", "key", *keys)


def held(place: Home) -> dict[str, Any]:
    """Have the model ask for the command; how the run stands then."""
    done = place.run(
        "run", "write it down", "--policy", "work", "--environment", f"dir:{place.folder / 'notes'}", "--json"
    )
    assert done.returncode == 4, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["status"] == "waiting"
    return result


def made(place: Home) -> str:
    file = place.folder / "notes" / "made.txt"
    return file.read_text("utf-8") if file.exists() else ""


def test_what_waits_is_decided_in_the_real_dialog_and_made_once_though_the_host_is_killed(
    place: Home, server: ChatServer, display: Display
) -> None:
    """The first host held the call and ended; the second asks and is killed over the rest; the third ends the run."""
    result = held(place)
    assert made(place) == ""
    server.behaviour = STICKS
    with place.running("mounts", "review", result["operation"], "--json", **display.env) as reviewing:
        at_window(display, "Choose your picture", "Escape")
        # Approving is not to be had before the end of sixty lines was seen.
        at_window(display, "May this be done", "End", "Tab", "Return")
        until(lambda: server.requests[-1].json()["messages"][-1]["role"] == "tool", "the model is told")
        reviewing.send_signal(signal.SIGKILL)
        assert reviewing.stdout is not None
        assert json.loads(reviewing.stdout.readline())["decided"] == "approved"
    assert made(place) == "once\n"
    server.behaviour = RUNS
    told = json.loads(place.run("result", result["run_id"], "--json").stdout)
    assert (told["status"], "once" in told["output_text"]) == ("completed", True)
    assert made(place) == "once\n"
