"""The renderer as a process: its start, its end, and every scene without a word from Qt."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ui.fake_host import FakeHost, Screen, hello_message
from tests.ui.scenes import PLACES, SCENES, TITLES, Stage
from ui.wire import dto
from ui.wire.framing import HEAD

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]


def environment(**more: str) -> dict[str, str]:
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**keep, "LANG": "C.UTF-8", "QT_QPA_PLATFORM": "offscreen", "QT_QUICK_BACKEND": "software", **more}


@pytest.fixture
def host() -> Iterator[FakeHost]:
    made = FakeHost(env=environment())
    yield made
    told = made.close()
    assert [line for line in told.splitlines() if "renderer ends" not in line] == []


def test_it_says_hello_then_locked_and_nothing_before(host: FakeHost) -> None:
    locked = host.wait_for(dto.Locked)
    assert [type(message) for message in host.said[:2]] == [dto.RendererHello, dto.Locked]
    assert locked.painted_ns > 0
    assert {wall.state for wall in locked.walls} <= {"up", "down", "not-applicable"}


def test_it_paints_before_it_loads_anything_else(host: FakeHost) -> None:
    locked = host.wait_for(dto.Locked)
    assert locked.painted_ns < time.monotonic_ns()
    assert locked.painted_ns / 1e9 > host.started


def test_each_frame_is_acknowledged(host: FakeHost) -> None:
    host.wait_for(dto.Locked)
    for _ in range(3):
        host.send(dto.Notice(id="n", level="info", code="", text="x"), dto.NoticeGone(id="n"))
        host.settle()
    assert host.acked == host.encoder.last_sequence


def test_it_ends_with_its_channel(host: FakeHost) -> None:
    host.wait_for(dto.Locked)
    host.socket.shutdown(socket.SHUT_RDWR)
    assert host.process.wait(10) != 0


def test_it_ends_when_the_host_breaks_the_protocol(host: FakeHost) -> None:
    host.wait_for(dto.Locked)
    host.socket.sendall(HEAD.pack(3, 99) + b"[1]")
    assert host.process.wait(10) != 0


def test_it_ends_when_the_host_says_so(host: FakeHost) -> None:
    host.wait_for(dto.Locked)
    host.send(dto.Close())
    assert host.process.wait(10) == 0


@pytest.mark.parametrize("argv", [[], ["--channel=999", "--build=x"], ["--channel=x", "--build=x"], ["--channel=0"]])
def test_without_a_channel_there_is_no_window(argv: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "ui", *argv], env=environment(), capture_output=True, timeout=20, check=False
    )
    assert done.returncode == 2
    assert b"usage" in done.stderr


def switches(pid: int) -> int:
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        status = Path("/proc", str(pid), "task", task, "status").read_text("ascii")
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))
    return total


def test_an_idle_window_is_idle(host: FakeHost) -> None:
    """The caret rests after ten seconds; then nothing wakes the process."""
    host.wait_for(dto.Locked)
    host.send(
        dto.Selected(
            revision=1, conversation="c", title="t", sentence="s", choice=None, effort="", enter="", total=0, draft=""
        )
    )
    host.settle()
    host.pump(11.0)
    before = switches(host.process.pid)
    host.pump(3.0)
    assert switches(host.process.pid) - before <= 3


@pytest.mark.gui
@pytest.mark.needs("xdotool", "imagemagick")
@pytest.mark.parametrize(("dark", "width"), [(False, 1120), (True, 480)])
def test_every_scene_plays_without_a_complaint(tmp_path: Path, dark: bool, width: int) -> None:
    screen = Screen()
    try:
        stage = Stage(screen, tmp_path, dark=dark, hasty=True)
        stage.size(width, 760)
        for play in SCENES.values():
            play(stage)
        told = stage.close()
    finally:
        screen.close()
    assert [line for line in told.splitlines() if "renderer ends" not in line] == []
    assert len(list(tmp_path.glob("*.png"))) >= len(SCENES)


@pytest.mark.gui
@pytest.mark.needs("xdotool")
def test_typing_in_the_real_window_reaches_the_host() -> None:
    screen = Screen()
    try:
        host = FakeHost(env=screen.env(), hello=hello_message())
        host.wait_for(dto.Locked)
        window = screen.window(host.process.pid)
        host.send(
            dto.Selected(
                revision=4,
                conversation="c",
                title="t",
                sentence="s",
                choice=None,
                effort="",
                enter="",
                total=0,
                draft="",
            )
        )
        host.settle()
        screen.tool("xdotool", "windowfocus", "--sync", window)
        screen.tool("xdotool", "type", "--delay", "5", "Hello from the keyboard")
        screen.tool("xdotool", "key", "Return")
        sent = host.wait_for(dto.Send)
        assert (sent.text, sent.revision) == ("Hello from the keyboard", 4)
        host.process.send_signal(signal.SIGTERM)
        host.process.wait(10)
        host.close()
    finally:
        screen.close()


@pytest.mark.gui
@pytest.mark.needs("xdotool")
def test_the_settings_open_behind_the_walls_and_then_rest() -> None:
    """Their files are read after the walls stand; a page that is looked at wakes nothing."""
    screen = Screen()
    try:
        stage = Stage(screen, Path(), walls="landlock,seccomp,caps")
        stage.dress(tuple(row for row in TITLES if row[3] != "working"))
        stage.select("c1", "A conversation")
        stage.host.settle()
        for place in PLACES:
            stage.key("ctrl+comma" if place == PLACES[0] else "Right")
        assert {want.page for want in stage.host.said if isinstance(want, dto.WantPage)} == {
            "connections", "harnesses", "agents", "mounts", "profiles", "stored",
        }  # fmt: skip
        stage.host.pump(1.0)
        before = switches(stage.host.process.pid)
        stage.host.pump(3.0)
        assert switches(stage.host.process.pid) - before <= 3
        told = stage.close()
    finally:
        screen.close()
    assert [line for line in told.splitlines() if "renderer ends" not in line] == []
