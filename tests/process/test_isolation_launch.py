"""What a drawing process is given at its start, and that it never outlives who started it."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from desktop import doctor, selftest
from desktop.isolation import Launch, WallPlan, Walls, launch, linux
from desktop.isolation.watch import wait_for_end
from desktop.roles import self_command
from tests.process.xvfb import Display, xvfb
from ui.wire.dto import Locked, Wall

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]

CANARY = "canary-sk-000111222333"

TELL = """
import json, os, socket, sys
os.write(int(os.environ["REMUDA_STARTED_FD"]), b"1") if "REMUDA_STARTED_FD" in os.environ else None
channel = socket.socket(fileno=int(next(w for w in sys.argv if w.startswith("--channel=")).partition("=")[2]))
fds = {}
for name in os.listdir("/proc/self/fd"):
    try:
        fds[name] = os.readlink("/proc/self/fd/" + name)
    except OSError:
        pass
cookie = ""
if os.environ.get("XAUTHORITY"):
    cookie = open(os.environ["XAUTHORITY"], "rb").read().hex()
seen = {"env": dict(os.environ), "argv": sys.argv, "fds": fds, "sid": os.getsid(0) == os.getpid(), "cookie": cookie,
        "visible": sorted(os.listdir("/")), "home": os.path.exists(sys.argv[1])}
channel.sendall(json.dumps(seen).encode())
channel.recv(1)
"""


@pytest.fixture
def wayland(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket where a compositor would listen."""
    monkeypatch.delenv("QT_QPA_PLATFORM", raising=False)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(os.environ["XDG_RUNTIME_DIR"], "wl-0"))
        listener.listen(4)
        listener.settimeout(2)
        monkeypatch.setenv("WAYLAND_DISPLAY", "wl-0")
        yield listener


@pytest.fixture(scope="module")
def server() -> Iterator[Display]:
    with xvfb() as standing:
        yield standing


@pytest.fixture
def display(server: Display, monkeypatch: pytest.MonkeyPatch) -> Display:
    """A display of our own, in this process's environment."""
    for name in ("WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(params=["bubblewrap", "plain"])
def with_bubblewrap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> bool:
    if request.param == "plain":
        monkeypatch.setenv("PATH", str(tmp_path))
        return False
    if subprocess.run(
        ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, check=False
    ).returncode:
        pytest.skip("bubblewrap may not make user namespaces here")
    return True


def told(home: Path) -> dict[str, Any]:
    """What a process started by the launcher sees of the world."""
    launched = launch([sys.executable, "-I", "-c", TELL, str(home)], build="b")
    try:
        launched.channel.settimeout(20)
        content = b""
        while True:
            content += launched.channel.recv(65536)
            try:
                seen: dict[str, Any] = json.loads(content)
                return seen | {"plan": launched.plan}
            except json.JSONDecodeError:
                continue
    finally:
        launched.end()


def test_environment_is_built_not_copied(
    display: Display, home: Path, with_bubblewrap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "SSH_AUTH_SOCK", "MY_TOKEN", "LD_PRELOAD_X", "PYTHONPATH_X", "QT_PLUGIN_PATH"):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("LC_MESSAGES", "C.UTF-8")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path=/{CANARY}")
    seen = told(home)
    assert CANARY not in json.dumps([seen["env"], seen["argv"]])
    assert seen["env"]["LC_MESSAGES"] == "C.UTF-8"
    assert seen["env"]["DBUS_SESSION_BUS_ADDRESS"] == "disabled:"
    assert seen["env"]["HOME"] == "/nonexistent"
    assert seen["env"]["QT_QUICK_BACKEND"] == "software"
    assert seen["plan"].bubblewrap == with_bubblewrap


def test_descriptors_are_the_channel_the_cookie_and_nothing_of_ours(
    display: Display, home: Path, with_bubblewrap: bool, tmp_path: Path
) -> None:
    with open(tmp_path / "mine", "w", encoding="utf-8") as file:
        os.set_inheritable(file.fileno(), True)
        seen = told(home)
    standard = {name: seen["fds"][name] for name in "012"}
    assert set(standard.values()) == {"/dev/null"}
    others = [what.split(":")[0] for name, what in seen["fds"].items() if name not in "012"]
    allowed = ["/memfd", "pipe", "socket"] if with_bubblewrap else ["/memfd", "socket"]
    assert sorted(what for what in others if not what.startswith("/proc/")) == allowed
    assert seen["sid"] or with_bubblewrap


def test_the_cookie_opens_this_display_and_is_no_file(display: Display, home: Path, with_bubblewrap: bool) -> None:
    seen = told(home)
    own = Path(display.authority).read_bytes()
    assert seen["cookie"] == own.hex()
    assert seen["env"]["XAUTHORITY"].startswith("/proc/self/fd/")


@pytest.mark.needs("bwrap", "user-namespaces")
def test_inside_bubblewrap_neither_home_nor_the_rest_of_the_sources_exist(display: Display, home: Path) -> None:
    seen = told(home)
    assert not seen["home"]
    assert not {"home", "root", "etc/passwd", "boot", "srv"} & (set(seen["visible"]) - {"root", "home"})
    root = str(Path(linux.__file__).resolve().parents[2])
    bound = linux.program_binds(("ui", "resources"))
    assert os.path.join(root, "ui") in bound
    assert not [path for path in bound if path in (root, os.path.join(root, "desktop"), os.path.join(root, "tests"))]
    assert not [path for path in bound if str(home).startswith(path.rstrip("/") + "/")]


@pytest.mark.needs("bwrap", "user-namespaces")
def test_inside_bubblewrap_nothing_exists_that_only_the_host_looks_for_modules_in(
    display: Display, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert not told(tmp_path / "mine")["home"]


@pytest.mark.needs("landlock")
@pytest.mark.parametrize("walls", ["all", "none"])
def test_the_real_window_answers_like_the_small_one(
    display: Display, with_bubblewrap: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walls: Walls
) -> None:
    monkeypatch.setattr(selftest, "_command", lambda: self_command("renderer"))
    monkeypatch.setattr(selftest, "seal_host", lambda: ("host memory", "down", "the tests stay readable"))
    report = selftest.run(walls, folder=tmp_path)
    found = {probe["name"]: probe["verdict"] for probe in report["probes"]}
    if walls == "none":
        assert selftest.proves(report) == []
        return
    assert report["level"] == "walled"
    expected = doctor.expected_open(x11=True, bubblewrap=with_bubblewrap)
    assert {name for name, verdict in found.items() if verdict == "open"} == expected


def test_wayland_comes_as_a_connected_descriptor_and_x11_does_not_come_along(
    wayland: socket.socket, display: Display, home: Path, monkeypatch: pytest.MonkeyPatch, with_bubblewrap: bool
) -> None:
    monkeypatch.setenv("WAYLAND_DISPLAY", "wl-0")
    seen = told(home)
    wayland.accept()[0].close()
    assert seen["env"]["QT_QPA_PLATFORM"] == "wayland"
    assert seen["fds"][seen["env"]["WAYLAND_SOCKET"]].startswith("socket:")
    assert "DISPLAY" not in seen["env"]
    assert "WAYLAND_DISPLAY" not in seen["env"]
    assert not seen["plan"].x11


def test_a_chosen_platform_is_never_overridden(
    wayland: socket.socket, display: Display, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYLAND_DISPLAY", "wl-0")
    for chosen in ("xcb", "offscreen"):
        monkeypatch.setenv("QT_QPA_PLATFORM", chosen)
        seen = told(home)
        assert seen["env"]["QT_QPA_PLATFORM"] == chosen
        assert ("DISPLAY" in seen["env"]) == (chosen == "xcb")
        assert "WAYLAND_SOCKET" not in seen["env"]


def start_window(**options: Any) -> Launch:
    return launch([sys.executable, "-I", "-m", "ui.selftest"], build="b", **options)


def locked_walls(launched: Launch) -> tuple[Wall, ...]:
    return selftest._Conversation(launched.channel).wait_for(Locked, 20).walls


def tree(pid: int) -> list[int]:
    from desktop.isolation.watch import _descendants

    return [pid, *_descendants(pid)]


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 3
    left = pids
    while time.monotonic() < deadline:
        left = [pid for pid in pids if alive(pid)]
        if not left:
            return
        time.sleep(0.02)
    pytest.fail(f"still there: {left}")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.needs("landlock")
def test_ending_it_leaves_none_of_its_processes(display: Display, with_bubblewrap: bool) -> None:
    launched = start_window()
    locked_walls(launched)
    pids = tree(launched.process.pid)
    assert len(pids) == (3 if with_bubblewrap else 1)
    assert launched.end() == -signal.SIGKILL
    assert_gone(pids)


HOST = """
import sys, time
from desktop.isolation import launch
from desktop.isolation.watch import _descendants
from desktop import selftest
from ui.wire.dto import Locked
launched = launch([sys.executable, "-I", "-m", "ui.selftest"], build="b")
selftest._Conversation(launched.channel).wait_for(Locked, 20)
print(launched.process.pid, *_descendants(launched.process.pid), flush=True)
time.sleep(60)
"""


@pytest.mark.needs("landlock")
def test_a_killed_host_takes_the_window_along(display: Display, with_bubblewrap: bool) -> None:
    with subprocess.Popen([sys.executable, "-I", "-c", HOST], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        pids = [int(word) for word in host.stdout.readline().split()]
        assert pids
        host.kill()
        host.wait(5)
    assert_gone(pids)


@pytest.mark.needs("landlock")
async def test_an_end_is_noticed_with_its_status(display: Display, with_bubblewrap: bool) -> None:
    launched = start_window()
    try:
        locked_walls(launched)
        waiting = asyncio.ensure_future(wait_for_end(launched.process))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        os.kill(tree(launched.process.pid)[-1], signal.SIGKILL)
        assert await asyncio.wait_for(waiting, 5) in (-signal.SIGKILL, 128 + signal.SIGKILL)
        assert await wait_for_end(launched.process) == launched.process.returncode
    finally:
        launched.end()


@pytest.mark.needs("landlock")
@pytest.mark.parametrize(
    ("wall", "blocked", "still_open"),
    [
        ("landlock", {"read a secret file", "write /tmp", "tcp to this machine"}, {"read a kernel key", "fork"}),
        ("seccomp", {"socket file", "fork", "read a kernel key", "write /tmp"}, {"read a secret file"}),
    ],
)
def test_each_required_wall_alone_is_not_enough(
    display: Display,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wall: str,
    blocked: set[str],
    still_open: set[str],
) -> None:
    monkeypatch.setattr(linux, "RENDERER_WALLS", wall)
    monkeypatch.setattr(selftest, "seal_host", lambda: ("host memory", "down", "not sealed"))
    monkeypatch.setenv("PATH", str(tmp_path))
    report = selftest.run(folder=tmp_path)
    found = {probe["name"]: probe["verdict"] for probe in report["probes"]}
    assert {found[name] for name in blocked} == {"blocked"}
    assert {found[name] for name in still_open} == {"open"}
    assert report["level"] == "partly"
    assert f"One required wall is missing ({'seccomp' if wall == 'landlock' else 'landlock'})" in report["sentence"]


WINDOW_WITH_CLIPBOARD = """
import os, socket, sys
from ui import lockdown
walls = frozenset({"landlock", "seccomp", "caps"})
rows = lockdown.early(walls)
from PySide6.QtCore import QSocketNotifier
from PySide6.QtGui import QGuiApplication
from PySide6.QtQuick import QQuickView
channel = socket.socket(fileno=int(next(w for w in sys.argv if w.startswith("--channel=")).partition("=")[2]))
app = QGuiApplication(["clipboard"])
view = QQuickView()
view.resize(200, 100)
def painted():
    view.frameSwapped.disconnect(painted)
    rows.extend(lockdown.late(walls))
    channel.sendall(" ".join(name + "=" + state for name, state, _ in rows).encode())
view.frameSwapped.connect(painted)
def read():
    order = channel.recv(65536).decode()
    if order.startswith("copy "):
        app.clipboard().setText(order[5:])
        channel.sendall(b"copied")
    elif order == "paste":
        channel.sendall(app.clipboard().text().encode())
    else:
        app.quit()
notifier = QSocketNotifier(channel.fileno(), QSocketNotifier.Type.Read)
notifier.activated.connect(read)
view.show()
app.exec()
"""


@pytest.mark.needs("landlock", "xclip")
def test_copy_and_paste_work_both_ways_behind_all_walls(display: Display, with_bubblewrap: bool) -> None:
    launched = launch([sys.executable, "-I", "-c", WINDOW_WITH_CLIPBOARD], build="b")
    xclip = [shutil.which("xclip", path=os.defpath) or "xclip", "-selection", "clipboard"]
    owner = None
    try:
        launched.channel.settimeout(20)
        walls = launched.channel.recv(1000).decode()
        assert {"landlock=up", "seccomp=up"} <= set(walls.split())
        launched.channel.sendall("copy from the window: žluťoučký".encode())
        assert launched.channel.recv(100) == b"copied"
        taken = subprocess.run([*xclip, "-o"], capture_output=True, timeout=10, check=True)
        assert taken.stdout.decode() == "from the window: žluťoučký"
        owner = subprocess.Popen([*xclip, "-quiet"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert owner.stdin is not None
        owner.stdin.write("into the window: 你好".encode())
        owner.stdin.close()
        deadline = time.monotonic() + 10
        got = ""
        while got != "into the window: 你好" and time.monotonic() < deadline:
            launched.channel.sendall(b"paste")
            got = launched.channel.recv(1000).decode()
            time.sleep(0.05)
        assert got == "into the window: 你好"
    finally:
        launched.end()
        if owner is not None:
            owner.kill()
            owner.wait(5)


EARLY = """
import sys, threading, time
from ui import lockdown
if sys.argv[1] == "thread":
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
walls = frozenset(sys.argv[2].split(","))
for row in lockdown.early(walls) + lockdown.late(walls):
    print(*row, sep="|")
"""


def early_rows(*arguments: str) -> dict[str, tuple[str, str]]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", EARLY, *arguments], capture_output=True, text=True, timeout=30, check=True
    )
    rows = (line.split("|") for line in done.stdout.splitlines())
    return {name: (state, detail) for name, state, detail in rows}


@pytest.mark.needs("landlock")
def test_a_thread_older_than_landlock_is_reported() -> None:
    assert early_rows("alone", "landlock,seccomp,caps")["landlock"][0] == "up"
    rows = early_rows("thread", "landlock,seccomp,caps")
    from ui.lockdown import _TSYNC_SINCE_ABI, landlock_abi

    if landlock_abi() < _TSYNC_SINCE_ABI:
        assert rows["landlock"] == ("down", "2 threads were there before it, it holds one of them")
    assert rows["seccomp"][0] == "up"


def test_what_was_not_asked_for_is_reported_down() -> None:
    rows = early_rows("alone", "caps")
    assert rows["landlock"] == rows["seccomp"] == ("down", "switched off for this run")
    assert rows["capabilities"][0] == "up"
    page = doctor.isolation(
        WallPlan([], bubblewrap=False, platform="", x11=False),
        [Wall(name=name, state="down", detail=detail) for name, (_, detail) in rows.items()],
    )
    assert page.level == "none"
