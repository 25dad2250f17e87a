"""From nothing installed to a first answer: in the window, counted in clicks, and on the command line, in commands."""

import subprocess
from pathlib import Path

import pytest

from tests.loopback.chat_server import ChatServer
from tests.process.first_answer import KEY, QUESTION, REPLY, WAYS, surroundings, walk

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "gnome-keyring", "dbus-daemon")]

needs_model = pytest.mark.needs("builtin-model")

MACHINE_S = 60.0
"""More than this is a fault and not a slow machine."""


def replies(server: ChatServer) -> int:
    return sum(request.method == "POST" for request in server.requests)


@pytest.mark.needs("xdotool", "imagemagick")
@pytest.mark.parametrize(
    ("name", "clicks", "typed"),
    [
        pytest.param("built-in model", 1, 1, marks=needs_model),
        ("Ollama", 5, 1),
        ("Anthropic key", 4, 2),
        ("OpenAI key", 4, 2),
    ],
)
def test_in_the_window(home: Path, tmp_path: Path, name: str, clicks: int, typed: int) -> None:
    journey, place, server = walk(name, home, tmp_path / "pictures")
    assert (journey.clicks, journey.typed) == (clicks, typed)
    assert journey.waited_s < MACHINE_S
    [said] = place.truth().said(QUESTION)
    run = place.truth().run_of(QUESTION)
    reply = place.truth().reply_to(run)
    assert said
    assert reply is not None, run.result
    assert reply.state == "complete"
    if server is not None:
        assert reply.text == REPLY
        assert replies(server) == 1
    assert not any(KEY.encode() in path.read_bytes() for path in home.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        pytest.param("built-in model", [], marks=needs_model),
        ("Ollama", ["connectors add here --base-url {address}"]),
        ("Anthropic key", ["connectors add claude --vendor anthropic --key-stdin"]),
        ("OpenAI key", ["connectors add gpt --vendor openai --key-stdin"]),
    ],
)
def test_on_the_command_line(home: Path, name: str, commands: list[str]) -> None:
    with surroundings(WAYS[name], home) as (place, server, _):
        for command in commands:
            words = command.format(address=server.base_url if server else "").split()
            done = place.run(*words, stdin=KEY + "\n")
            assert done.returncode == 0, done.stderr
        done = place.run("run", QUESTION, within_s=90.0)
        assert done.returncode == 0, done.stderr
        _answered(done, server)


def _answered(done: "subprocess.CompletedProcess[str]", server: ChatServer | None) -> None:
    if server is None:
        assert done.stdout.strip()
        return
    assert done.stdout == REPLY + "\n"
    assert replies(server) == 1
