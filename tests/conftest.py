"""What every test gets: an empty home, and a look at what it left behind.

Owns isolation (home, variables, bus), the leak checks (tasks, threads, descriptors, children)
and the table that turns `needs`, `gui` and `soak` into skips. Must not know what the tests
test. Invariant: a skip names the capability this machine lacks; a leak fails the test that
made it, by name.
"""

import asyncio
import ctypes
import gc
import inspect
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

SETTLE_S = 2.0
"""How long what a test started may take to be gone."""

# ------------------------------------------------------------------------------- hypothesis

hypothesis.settings.register_profile(
    "ci",
    # The same examples on each run: a red run can be repeated, a green one means the same everywhere.
    derandomize=True,
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "soak", max_examples=5_000, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
)
hypothesis.settings.load_profile("ci")

# ----------------------------------------------------------------------------- capabilities


def _program(name: str) -> Callable[[], bool]:
    return lambda: shutil.which(name) is not None


def _compiler() -> bool:
    return shutil.which("gcc") is not None and Path("/usr/include/stdio.h").exists()


def _display() -> bool:
    """Whether the X server DISPLAY names takes connections."""
    display = os.environ.get("DISPLAY", "")
    host, _, number = display.partition(":")
    number = number.partition(".")[0]
    if not number.isdigit():
        return False
    if host:
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        for address in (f"\0/tmp/.X11-unix/X{number}", f"/tmp/.X11-unix/X{number}"):
            try:
                probe.connect(address)
            except OSError:
                continue
            return True
    return False


def _key_store() -> bool:
    """Whether this run has a bus and key store of its own (the person's are never used)."""
    return "REMUDA_TEST_SESSION" in os.environ and "DBUS_SESSION_BUS_ADDRESS" in os.environ


def _landlock() -> bool:
    """Whether the kernel offers Landlock (asks for its ABI version)."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint32(1))) > 0


def _user_namespaces() -> bool:
    """Whether bubblewrap may make its namespaces here."""
    import subprocess

    if shutil.which("bwrap") is None:
        return False
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    try:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _own_network() -> bool:
    """Whether this user may make a network with nobody else in it."""
    from tests.loopback.name_sink import may_make_networks

    return may_make_networks()


def _module(name: str) -> Callable[[], bool]:
    import importlib.util

    return lambda: importlib.util.find_spec(name) is not None


CAPABILITIES: dict[str, tuple[Callable[[], bool], str]] = {
    "linux": (lambda: sys.platform.startswith("linux"), "this system is not Linux"),
    "display": (_display, "no X display answers (`make test` brings one)"),
    "key-store": (_key_store, "no session bus and key store of this run's own (`make test` brings them)"),
    "root": (lambda: os.geteuid() == 0, "not run as root"),
    "not-root": (lambda: os.geteuid() != 0, "run as root"),
    "landlock": (_landlock, "this kernel has no Landlock"),
    "user-namespaces": (_user_namespaces, "bubblewrap may not make user namespaces here"),
    "own-network": (_own_network, "this user may not make a network of its own here"),
    "system-python": (lambda: Path("/usr/bin/python3").exists(), "no /usr/bin/python3"),
    "builtin-model": (_module("xllamacpp"), "the built-in model is not installed (extra builtin-model)"),
    "claude": (_module("claude_agent_sdk"), "the Claude CLI is not installed (extra claude)"),
    "codex": (_module("codex_cli_bin"), "the Codex CLI is not installed (extra codex)"),
    "bwrap": (_program("bwrap"), "bubblewrap is not installed"),
    "xdotool": (_program("xdotool"), "xdotool is not installed"),
    "xclip": (_program("xclip"), "xclip is not installed"),
    "xauth": (_program("xauth"), "xauth is not installed"),
    "xprop": (_program("xprop"), "x11-utils is not installed"),
    "strace": (_program("strace"), "strace is not installed"),
    "gcc": (_compiler, "a C compiler with its headers is not installed"),
    "git": (_program("git"), "git is not installed"),
    "gnome-keyring": (_program("gnome-keyring-daemon"), "gnome-keyring is not installed"),
    "dbus-daemon": (_program("dbus-daemon"), "dbus-daemon is not installed"),
    "setpriv": (_program("setpriv"), "setpriv (util-linux) is not installed"),
    "imagemagick": (_program("import"), "imagemagick is not installed"),
}
"""What `@pytest.mark.needs(...)` may name, how it is found out, and what a skip says."""

BROUGHT = {"display", "key-store", "builtin-model", "claude", "codex"} | {
    name for name in CAPABILITIES if CAPABILITIES[name][1].endswith("is not installed")
}
"""What `make test` brings itself: under `--no-missing-tools` its absence is a failure, not a skip."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("remuda")
    group.addoption("--soak", action="store_true", help="run the long loops, and all loops with their long counts")
    group.addoption("--no-missing-tools", action="store_true", help="a tool the run should have brought fails a test")


def _needs(item: pytest.Item) -> list[str]:
    named = [str(name) for mark in item.iter_markers("needs") for name in mark.args]
    return [*named, "display"] if item.get_closest_marker("gui") else named


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Turn what the machine lacks into skips that say so."""
    soak, strict = config.getoption("--soak"), config.getoption("--no-missing-tools")
    verdicts: dict[str, bool] = {}
    for item in items:
        if item.get_closest_marker("soak") and not soak:
            item.add_marker(pytest.mark.skip(reason="a long loop: `make soak`"))
        for name in _needs(item):
            if name not in CAPABILITIES:
                raise pytest.UsageError(f"{item.nodeid} needs {name!r}, which tests/conftest.py does not know")
            present, reason = CAPABILITIES[name]
            if name not in verdicts:
                verdicts[name] = present()
            if not verdicts[name] and not (strict and name in BROUGHT):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """`rounds(20, 1_000)`: how often to loop, now and under `make soak`."""
    soak: bool = request.config.getoption("--soak")
    return lambda usual, long: long if soak else usual


# -------------------------------------------------------------------------------- isolation

_SECRETS = ("_API_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and data folder; no key, proxy or bus of the person is in the environment."""
    # The name is short: Unix sockets below it have 108 bytes.
    folder = tmp_path_factory.mktemp("h")
    for name in list(os.environ):
        if name.upper().endswith((*_SECRETS, "_PROXY")) or name.startswith(
            ("OPENAI_", "ANTHROPIC_", "CLAUDE_", "CODEX_")
        ):
            monkeypatch.delenv(name)
    if "REMUDA_TEST_SESSION" not in os.environ:
        monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    places = {"HOME": "", "REMUDA_HOME": "data", "XDG_RUNTIME_DIR": "run"}
    places |= {f"XDG_{kind}_HOME": f".{kind.lower()}" for kind in ("CONFIG", "CACHE", "DATA", "STATE")}
    for name, part in places.items():
        (folder / part).mkdir(mode=0o700, exist_ok=True)
        monkeypatch.setenv(name, str(folder / part))
    return folder


# ------------------------------------------------------------------------------------ leaks

_LASTING_FDS = ("/dev/urandom", "/dev/random", "/dev/null", "/proc/", "/dev/shm/", "anon_inode:[pidfd]")
"""What libraries open once and keep: no test's leak."""


def _open_fds() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the listing's own descriptor
    return found


def _new_fds(before: dict[int, str], *, with_qt: bool) -> dict[int, str]:
    """Descriptors that were not open before (same number and same thing behind it)."""
    new = {fd: what for fd, what in _open_fds().items() if before.get(fd) != what and not what.startswith(_LASTING_FDS)}
    if with_qt:
        # Qt keeps its event dispatchers, its connection to the display and its fonts for the process.
        kept = ("anon_inode:", "socket:", "/usr/share/", "/memfd:", "/dev/dri/", "pipe:")
        new = {fd: what for fd, what in new.items() if not what.startswith(kept)}
    return new


def _children() -> dict[int, str]:
    """Children of this process, ended but not waited for included."""
    found: dict[int, str] = {}
    for task in os.listdir("/proc/self/task"):
        try:
            pids = Path("/proc/self/task", task, "children").read_text("ascii").split()
        except OSError:
            continue
        for pid in map(int, pids):
            try:
                command = (
                    Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                )
            except OSError:
                command = ""
            found[pid] = command.strip() or "(ended, not waited for)"
    return found


def _new_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before and thread.is_alive() and not isinstance(thread, threading._DummyThread)
    ]


def _left(found: Callable[[], dict[int, str] | list[threading.Thread]]) -> str:
    """What is still there after a moment; empty when nothing is."""
    left = found()
    if not left:
        return ""
    gc.collect()
    deadline = time.monotonic() + SETTLE_S
    while (left := found()) and time.monotonic() < deadline:
        time.sleep(0.02)
    if isinstance(left, dict):
        return ", ".join(f"{number} ({what})" for number, what in left.items())
    return ", ".join(thread.name for thread in left)


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, home: Path) -> Iterator[None]:
    """Fail a test that leaves a descriptor, a child process or a thread."""
    with_qt = any(name in request.fixturenames for name in ("qapp", "qtbot", "qtmodeltester", "qapplication"))
    if not sys.platform.startswith("linux"):
        yield
        return
    fds, children, threads = _open_fds(), set(_children()), set(threading.enumerate())
    yield
    leaks = [
        f"{what}: {left}"
        for what, left in (
            ("child processes", _left(lambda: {pid: name for pid, name in _children().items() if pid not in children})),
            ("threads", _left(lambda: _new_threads(threads))),
            ("descriptors", _left(lambda: _new_fds(fds, with_qt=with_qt))),
        )
        if left
    ]
    if leaks:
        pytest.fail(f"the test left behind {'; '.join(leaks)}", pytrace=False)


@pytest.fixture(autouse=True)
def no_task_left_behind(request: pytest.FixtureRequest) -> None:
    """Fail an async test that leaves a task running."""
    function = getattr(request, "function", None)
    if function is not None and inspect.iscoroutinefunction(inspect.unwrap(function)):
        request.getfixturevalue("_tasks_of_the_loop")


@pytest.fixture
async def _tasks_of_the_loop() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    mine = asyncio.current_task()
    left = {task for task in asyncio.all_tasks() if task not in before and task is not mine}
    if left:
        _, left = await asyncio.wait(left, timeout=SETTLE_S)
    if left:
        names = ", ".join(f"{task.get_name()} ({task.get_coro()})" for task in left)
        pytest.fail(f"the test left behind tasks: {names}", pytrace=False)
