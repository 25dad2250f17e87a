"""A key that was given to the app is nowhere but where it was given and where it is sent.

One known key goes the whole way: given on the command line, used by the real app for a chat and for faults whose
bodies say it back. Then everything there is to look at is looked at for it; each look is shown to see.
"""

import base64
import json
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from desktop.process import Process
from tests.loopback.chat_server import ChatServer
from tests.process.app_driver import App, Home, app, asked, chat_server, lines, until
from tests.process.xvfb import Display, xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "xdotool", "root")]

VARIABLE = "CANARY_OF_THE_TESTS"
CHUNK_BYTES = 16 * 1024 * 1024
WRITING = "write,writev,pwrite64,pwritev,sendto,sendmsg,sendmmsg"


class Canary:
    """A key, and every form in which it would give itself away."""

    def __init__(self, key: str | None = None) -> None:
        self.key = key or f"sk-canary/+{secrets.token_hex(20)}"
        core = self.key[-30:]
        texts = {self.key, core, quote(self.key, safe=""), self.key.encode().hex(), core.encode().hex()}
        for part in (self.key, core):
            for shift in range(3):
                # In base64 the same bytes look different at each of three places; the rims depend on what is around.
                coded = base64.b64encode(b"\0" * shift + part.encode())[4:-4]
                texts |= {coded.decode(), coded.translate(bytes.maketrans(b"+/", b"-_")).decode()}
        forms = [form for text in texts for form in (text.encode(), text.encode("utf-16-le"))]
        self.pattern = re.compile(b"|".join(map(re.escape, sorted(forms, key=len, reverse=True))))

    def found_in(self, data: bytes | str) -> bool:
        return self.pattern.search(data.encode() if isinstance(data, str) else data) is not None


def memory(pid: int) -> Iterator[bytes]:
    """Everything readable in a process' memory, in overlapping pieces."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in Path(f"/proc/{pid}/maps").read_text("utf-8").splitlines():
            span, rights, *rest = line.split(maxsplit=5)
            if not rights.startswith("r") or rest[-1] in ("[vvar]", "[vsyscall]", "[vvar_vclock]"):
                continue
            start, end = (int(part, 16) for part in span.split("-"))
            for at in range(start, end, CHUNK_BYTES):
                try:
                    mem.seek(at)
                    yield mem.read(min(end - at, CHUNK_BYTES + 4096))
                except (OSError, OverflowError):
                    continue


def in_memory(pid: int, found: Callable[[bytes], bool]) -> bool:
    return any(found(piece) for piece in memory(pid))


def files_with(canary: Canary, folder: Path) -> list[Path]:
    read = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            try:
                content = path.read_bytes()
            except OSError:
                continue  # gone meanwhile
            if canary.found_in(content):
                read.append(path)
    return read


def arguments_and_environment(process: Process) -> bytes:
    found = b""
    for name in ("cmdline", "environ"):
        try:
            found += Path(f"/proc/{process.pid}/{name}").read_bytes() + b"\0"
        except OSError:
            continue  # gone meanwhile, or a zombie
    return found


@contextmanager
def written_by(pid: int, record: Path) -> Iterator[None]:
    """All that a process and its children write meanwhile, to whatever descriptor, goes into `record`."""
    command = ["strace", "-f", "-yy", "-s", "400000", "-e", f"trace={WRITING}", "-o", str(record), "-p", str(pid)]
    tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert tracer.stderr is not None
    try:
        said = tracer.stderr.readline()
        assert b"attached" in said, said
        yield
    finally:
        tracer.terminate()
        tracer.wait(20)
        tracer.stderr.close()


def writes(record: Path) -> list[tuple[str, str]]:
    """(what was written to, what) of each write."""
    found = []
    for line in record.read_text("utf-8", "replace").splitlines():
        match = re.match(r"\d+ +\w+\((\d+<.*?>)(?=[,)])(.*)", line)
        if match is not None:
            found.append((match[1], match[2]))
    return found


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
