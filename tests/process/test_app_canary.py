"""A key that was given to the app is nowhere but where it was given and where it is sent.

One known key goes the whole way: given on the command line, used by the real app for a chat and for faults whose
bodies say it back. Then everything there is to look at is looked at for it; each look is shown to see.
"""

import base64
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loopback.chat_server import ChatServer
from tests.process.app_driver import App, Home, app, asked, chat_server, lines, until
from tests.process.canaries import Canary, arguments_and_environment, files_with, in_memory, writes, written_by
from tests.process.xvfb import Display, xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "xdotool", "root")]

VARIABLE = "CANARY_OF_THE_TESTS"


@pytest.fixture
def display() -> Iterator[Display]:
    with xvfb() as server:
        yield server


@pytest.fixture
def canary() -> Canary:
    return Canary()


@pytest.fixture
def server(canary: Canary) -> Iterator[ChatServer]:
    with chat_server(behaviour="ok", key=canary.key, reply="The capital of France is Paris, on the Seine.") as running:
        yield running


def answered(driven: App, server: ChatServer, message: str) -> None:
    driven.say(message)
    until(lambda: any(text.endswith(message) for text in asked(server)), "it is sent")
    until(lambda: not driven.home.status()["running"], "it is answered")


@pytest.mark.needs("strace")
@pytest.mark.parametrize("way", ["env", pytest.param("key store", marks=pytest.mark.needs("key-store"))])
def test_a_key_is_only_where_it_was_given_and_where_it_is_sent(
    home: Path, tmp_path: Path, display: Display, server: ChatServer, canary: Canary, way: str
) -> None:
    place = Home(home)
    printed: list[str] = []

    def command(*words: str, stdin: str | None = None) -> str:
        done = place.run(*words, stdin=stdin)
        printed.extend((done.stdout, done.stderr))
        return done.stdout

    if way == "env":
        place.variables[VARIABLE] = canary.key
        command("connectors", "add", "mine", "--base-url", server.base_url, "--key-env", VARIABLE, "--json")
    else:
        command("connectors", "add", "mine", "--base-url", server.base_url, "--key-stdin", "--json", stdin=canary.key)
    assert "mine" in command("connectors", "list"), printed
    record = tmp_path / "written"
    with app(place, display) as driven:
        driven.start()
        with written_by(driven.pid, record):
            answered(driven, server, "Where is Paris")
            server.behaviour = "401-echo"
            answered(driven, server, "And London")
            server.behaviour = "error-frame"
            answered(driven, server, "And Rome")
            server.behaviour = "echo-in-text"
            answered(driven, server, "And Bern")
            time.sleep(0.5)
            server.behaviour = "401-echo"
            for mode in ([], ["--json"]):
                command("run", "And Oslo", *mode)
        for words in (["sessions", "--json"], ["status"], ["connectors", "list", "--json"], ["harnesses"]):
            command(*words)
        assert len(asked(server)) == 6, "the server saw every message, so the key was in use"

        # The window: what is on its screen is found in its memory, so the look sees; the key is not.
        renderer = driven.renderer().pid
        shown = "on the Seine"
        assert in_memory(renderer, lambda piece: shown.encode("utf-16-le") in piece)
        assert not in_memory(renderer, canary.found_in)

        # Arguments and environments, of everything that runs for us.
        tree = driven.tree()
        assert len(tree) > 1
        assert all(b"HOME=" in arguments_and_environment(process) for process in tree if process.pid == driven.pid)
        given = {driven.pid} if way == "env" else set()
        assert [p for p in tree if canary.found_in(arguments_and_environment(p))] == [p for p in tree if p.pid in given]
        control = home / "tmp" / "control"
        control.write_bytes(b"x" + base64.b64encode(b"Bearer " + canary.key.encode()))
        assert files_with(canary, home) == [control]
        control.unlink()
        driven.kill(signal.SIGTERM)
        assert driven.wait() == 0
        printed.append(driven.words())

    # Everything the host wrote: frames, files, logs, orders' answers. Only the server's connection carries the key.
    everything = writes(record)
    to_server = [(to, what) for to, what in everything if "TCP:" in to]
    others = [(to, what) for to, what in everything if "TCP:" not in to]
    assert any(canary.key in what for _, what in to_server), "the record holds what was sent to the server"
    assert any("Seine" in what and "UNIX" in to for to, what in others), "and the frames to the window"
    assert any(".sqlite3" in to for to, _ in others), "and what went to the files"
    assert [to for to, what in others if canary.found_in(what)] == []
    assert [text for text in printed if canary.found_in(text)] == []
    assert any("401" in text or "key" in text for text in printed)
    assert files_with(canary, home) == []
    assert any(path.suffix == ".log" and "host of profile" in path.read_text("utf-8") for path in home.rglob("*.log"))


@pytest.mark.needs("strace", "builtin-model")
def test_the_key_of_the_built_in_model_is_told_to_it_and_to_nobody_else(
    home: Path, tmp_path: Path, display: Display
) -> None:
    place = Home(home)
    record = tmp_path / "written"
    with app(place, display) as driven:
        driven.start()
        with written_by(driven.pid, record):
            done = place.run("run", "What is the capital of France?", "--json", within_s=70)
            assert done.returncode == 0, done.stderr
        orders = [what for to, what in writes(record) if "pipe:" in to or "UNIX" in to]
        keys = {m[1] for what in orders if (m := re.search(r'\\"key\\": \\"([A-Za-z0-9_-]{20,})\\"', what))}
        assert len(keys) == 1, "the order to the model was seen"
        canary = Canary(keys.pop())
        # The model is still there: it rests only after a while.
        tree = driven.tree()
        model = driven.of_role("model")
        assert len(model) == 1
        assert in_memory(model[0].pid, canary.found_in), "the look finds it where it belongs"
        assert [p for p in tree if canary.found_in(arguments_and_environment(p))] == []
        assert not in_memory(driven.renderer().pid, canary.found_in)
        assert files_with(canary, home) == []
        assert not canary.found_in(done.stdout + done.stderr)
        lines(done.stdout)
        assert json.loads(done.stdout.splitlines()[-1])["status"] == "completed"
        driven.kill(signal.SIGTERM)
        assert driven.wait() == 0
    assert files_with(canary, home) == []
    assert os.path.exists(place.profile.store)
