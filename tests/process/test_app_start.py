"""Starts of the app: the first, the second, after a crash, and where it cannot; and what its processes have loaded."""

import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from desktop import host_lock
from tests.loopback.chat_server import ChatServer
from tests.process.app_driver import App, Home, alive, app, asked, chat_server, end, until
from tests.process.canaries import memory
from tests.process.xvfb import Display, xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]

SECOND_START_S = 2.0
WINDOWLESS_MB = 60


@pytest.fixture
def display() -> Iterator[Display]:
    with xvfb() as server:
        yield server


@pytest.fixture
def place(home: Path) -> Home:
    return Home(home)


@pytest.fixture
def driven(place: Home, display: Display) -> Iterator[App]:
    with app(place, display) as running:
        yield running


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


@contextmanager
def another_window(driven: App) -> Iterator[str]:
    """A window of another program, above all others and with the focus."""
    process = subprocess.Popen(
        ["xev", "-event", "mouse"],
        env={**os.environ, **driven.display.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        name = driven.xdotool("search", "--sync", "--onlyvisible", "--name", "^Event Tester$").split()[-1]
        driven.xdotool("windowraise", name, "windowfocus", "--sync", name)
        yield name
    finally:
        end(process)


def stacked(driven: App) -> list[str]:
    """The windows on screen, the uppermost first."""
    tree = subprocess.run(
        ["xwininfo", "-root", "-children"],
        env={**os.environ, **driven.display.env},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    ).stdout
    return [str(int(name, 16)) for name in re.findall(r"^ +(0x[0-9a-f]+) ", tree, re.MULTILINE)]


def in_front(driven: App, window: str, other: str) -> bool:
    order = stacked(driven)
    return order.index(window) < order.index(other)


# ------------------------------------------------------------------------------- second start


@pytest.mark.needs("xdotool", "xprop")
def test_a_second_start_brings_the_window_to_the_front_and_ends(driven: App) -> None:
    driven.start()
    window = driven.window()
    with another_window(driven) as other:
        assert in_front(driven, other, window)
        started = time.monotonic()
        second = driven.home.run(variables=driven.display.env)
        took_s = time.monotonic() - started
        assert second.returncode == 0
        assert (second.stdout, second.stderr) == ("", "")
        until(lambda: in_front(driven, window, other), "the window is in front")
    assert took_s < SECOND_START_S
    assert len(driven.of_role("renderer")) == 1
    assert driven.window() == window


@pytest.mark.needs("xdotool", "xprop")
def test_a_second_start_makes_the_window_manager_activate_the_window(driven: App) -> None:
    environment = {**os.environ, **driven.display.env}
    program = shutil.which("openbox")
    if program is None:
        pytest.skip("openbox is not installed")
    manager = subprocess.Popen(
        [program, "--sm-disable"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def active() -> str:
        said = subprocess.run(
            ["xprop", "-root", "_NET_ACTIVE_WINDOW"], env=environment, capture_output=True, text=True, check=True
        ).stdout
        return str(int(said.split("#")[-1], 16)) if "#" in said else ""

    try:
        driven.start()
        window = driven.window()
        with another_window(driven) as other:
            until(lambda: active() == other, "the other window is in use")
            assert driven.home.run(variables=driven.display.env).returncode == 0
            until(lambda: active() == window, "the window is in use")
    finally:
        end(manager)


@pytest.mark.needs("xdotool")
def test_a_start_while_a_command_runs_opens_the_window_of_that_host(
    driven: App, place: Home, server: ChatServer
) -> None:
    """The command is the host then; the window stays when the command's work is done."""
    server.behaviour, server.tokens_per_s, server.tokens = "slow", 10.0, 600
    place.connect(server)
    with place.running("run", "count on", **driven.display.env) as command:
        until(lambda: place.status().get("running"), "the command is the host")
        assert place.run(variables=driven.display.env).returncode == 0
        until(lambda: place.status().get("locked"), "the window is open")
        server.tokens_per_s = 100_000.0
        until(lambda: not place.status()["running"], "the reply has ended")
        time.sleep(0.5)
        assert command.poll() is None
        assert place.status()["window"]
        driven.close_window()
        assert command.wait(10) == 0
    assert asked(server) == ["count on"]


def test_a_lock_left_by_a_killed_host_does_not_block(driven: App, place: Home) -> None:
    driven.start()
    driven.kill(signal.SIGKILL)
    driven.wait()
    assert place.profile.lock.exists()
    assert place.profile.control.exists()
    driven.start()
    lock = host_lock.acquire(place.profile.lock)
    assert lock is None, "and the new host holds it"
    driven.kill(signal.SIGTERM)
    assert driven.wait() == 0
    assert not place.profile.control.exists()


def test_a_host_that_hangs_is_said_to_hang(driven: App, place: Home) -> None:
    driven.start()
    os.kill(driven.pid, signal.SIGSTOP)
    try:
        second = place.run(variables=driven.display.env)
        assert second.returncode == 6
        assert "does not answer" in second.stderr
    finally:
        os.kill(driven.pid, signal.SIGCONT)


# -------------------------------------------------------------------------- where it cannot start


def test_no_display_is_said_and_what_to_do_instead(place: Home) -> None:
    done = place.run()
    assert done.returncode == 1
    assert "no display" in done.stderr
    assert "remuda run" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_display_that_does_not_answer_ends_in_words(place: Home) -> None:
    done = place.run(variables={"DISPLAY": ":4711"})
    assert done.returncode == 1
    assert done.stderr.startswith("remuda: ")
    assert "window" in done.stderr
    assert "Traceback" not in done.stderr + place.log()
    # Nothing of it is left, and nothing blocks the next one.
    lock = host_lock.acquire(place.profile.lock)
    assert lock is not None
    lock.release()


@pytest.mark.parametrize("command", [(), ("sessions",), ("run", "hello")])
def test_an_unusable_data_folder_is_said(place: Home, command: tuple[str, ...]) -> None:
    file = place.folder / "file"
    file.write_text("not a folder", "utf-8")
    done = place.run("--data-dir", str(file / "data"), *command)
    assert done.returncode == 1
    assert "data folder" in done.stderr
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr
    assert file.read_text("utf-8") == "not a folder"


@pytest.mark.needs("xdotool")
def test_with_a_display_an_unusable_data_folder_is_said_in_a_window(place: Home, display: Display) -> None:
    file = place.folder / "file"
    file.write_text("not a folder", "utf-8")
    place.variables["REMUDA_HOME"] = str(file / "data")
    with app(place, display) as driven:
        driven.launch()
        driven.window()
        until(lambda: "data folder" in driven.words(), "it is said on the terminal too")
        driven.close_window()
        assert driven.wait(20) == 1


@pytest.mark.needs("not-root")
def test_a_data_folder_that_cannot_be_written_is_said(place: Home) -> None:
    closed = place.folder / "closed"
    closed.mkdir(mode=0o500)
    done = place.run("--data-dir", str(closed / "data"), "sessions")
    assert done.returncode == 1
    assert "data folder" in done.stderr


def test_what_is_made_is_private_whatever_the_umask(driven: App, place: Home, server: ChatServer) -> None:
    place.connect(server)
    previous = os.umask(0)
    try:
        assert place.run("run", "hello").returncode == 0
        driven.start()
    finally:
        os.umask(previous)
    wide = [
        path
        for path in (place.data / "profiles", *place.data.rglob("*"))
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    assert wide == []


# --------------------------------------------------------------------------- what is loaded


def mapped(pid: int) -> str:
    """The files that a process has mapped, program libraries first of all."""
    return Path(f"/proc/{pid}/maps").read_text("utf-8")


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@pytest.mark.needs("root", "xdotool")
def test_the_host_is_small_and_has_no_qt_and_no_sdk_until_it_is_used(
    driven: App, place: Home, server: ChatServer
) -> None:
    place.connect(server)
    driven.start()
    time.sleep(1.0)
    assert "PySide6" not in mapped(driven.pid)
    assert "libQt6" not in mapped(driven.pid)
    # The SDKs bring a parser of their own, jiter: it is there once one of them is.
    assert "/jiter/" not in mapped(driven.pid)
    assert resident_mb(driven.pid) <= WINDOWLESS_MB
    driven.say("What is the capital of France?")
    until(lambda: asked(server), "it is sent")
    until(lambda: not place.status()["running"], "it is answered")
    assert "/jiter/" in mapped(driven.pid), "so it would have been seen"
    assert "libQt6" in mapped(driven.renderer().pid), "and so would Qt"
    driven.kill_renderer()
    driven.wait_locked()
    assert "PySide6" not in mapped(driven.pid)
    assert "libQt6" not in mapped(driven.pid)


NOT_IN_A_RENDERER = (
    "desktop",
    "runtime_host",
    "keyring",
    "openai",
    "anthropic",
    "httpx2",
    "httpcore2",
    "sqlite3",
    "pydantic",
    "typer",
    "dbus_fast",
    "secretstorage",
)


@pytest.mark.needs("root", "xdotool")
def test_a_real_renderer_has_nothing_of_the_host_loaded(driven: App, place: Home, server: ChatServer) -> None:
    """A module that was imported left the path of its file in the memory of the process."""
    place.connect(server)
    driven.start()
    driven.say("What is the capital of France?")
    until(lambda: asked(server), "it is sent")
    until(lambda: not place.status()["running"], "it is answered")
    names = "|".join((*NOT_IN_A_RENDERER, "ui", "PySide6", "msgspec")).encode()
    pattern = re.compile(rb"/(" + names + rb")/(?:[A-Za-z0-9_]+/)*[A-Za-z0-9_]+\.py(?=[^A-Za-z0-9_])")

    def loaded(pid: int) -> set[str]:
        return {match[1].decode() for piece in memory(pid) for match in pattern.finditer(piece)}

    found = loaded(driven.renderer().pid)
    assert {"ui", "msgspec"} <= found, "what is loaded is found"
    assert found.isdisjoint(NOT_IN_A_RENDERER)
    libraries = mapped(driven.renderer().pid)
    assert "libQt6Quick" in libraries
    # (QtNetwork comes along with Qt; what holds it is the walls.)
    for library in ("_sqlite3", "libsqlite3", "pydantic_core", "/jiter/"):
        assert library not in libraries
    # The same look at the host finds what belongs there, so it would have found it in the renderer.
    assert {"desktop", "runtime_host", "openai", "httpx2", "sqlite3", "pydantic"} <= loaded(driven.pid)


def test_no_core_file_can_be_written_of_the_host(driven: App) -> None:
    driven.start()
    soft, _ = resource.prlimit(driven.pid, resource.RLIMIT_CORE)
    crashed = driven.process
    assert crashed is not None
    tree = driven.kill(signal.SIGSEGV)
    assert driven.wait() == -signal.SIGSEGV
    until(lambda: not any(map(alive, tree)), "nothing is left", 2.0)
    assert not [path for path in driven.home.folder.rglob("core*") if path.is_file()], soft
