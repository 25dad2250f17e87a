"""The walls, as the self-test of a real window finds them: by user, by what bubblewrap does, and without any."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from desktop import doctor
from tests.process.ordinary_user import Program, ordinary_program
from tests.process.xvfb import Display, xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "landlock")]

RUN_SELFTEST = "import sys; from desktop.selftest import main; sys.exit(main(sys.argv[1:]))"

MUST_BE_BLOCKED = {
    "read a secret file", "list the home folder", "read /etc/passwd", "write a file of the host", "write own code",
    "write /tmp", "write /dev/shm", "watch the home folder", "old thread reads a secret file", "tcp to this machine",
    "udp to this machine", "vsock socket", "netlink socket", "socket file", "abstract socket", "read a kernel key",
    "add a kernel key", "run a program", "run a program from memory", "fork", "see host processes",
    "read host environment", "list host descriptors", "read host memory", "read host memory by process_vm_readv",
    "trace the host", "take a host descriptor", "signal the host", "use an inherited descriptor", "io_uring", "bpf",
    "new user namespace",
}  # fmt: skip

SYSTEM_MAY_REFUSE = {"bpf", "io_uring", "new user namespace", "vsock socket", "read a kernel key", "add a kernel key"}

Who = Literal["root", "root-readable", "user"]
Bubblewrap = Literal["works", "exits", "hangs", "absent"]


class Starter(NamedTuple):
    """How the self-test is started: by whom, with which interpreter and environment."""

    python: str
    env: dict[str, str]
    uid: int

    def run(self, *arguments: str, timeout_s: float = 120) -> tuple[int, dict[str, Any]]:
        other = self.uid if self.uid != os.geteuid() else None
        done = subprocess.run(
            [self.python, "-I", "-c", RUN_SELFTEST, *arguments],
            env=self.env,
            cwd="/",
            user=other,
            group=other,
            extra_groups=None if other is None else [],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.stderr == ""
        report: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, report


@pytest.fixture(scope="module")
def display() -> Iterator[Display]:
    with xvfb() as standing:
        yield standing


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with ordinary_program() as made:
        yield made


@pytest.fixture
def starter(request: pytest.FixtureRequest, display: Display, home: Path) -> Starter:
    who: Who = getattr(request, "param", "user")
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **display.env}
    if who != "user" and os.geteuid() != 0:
        pytest.skip("not run as root")
    if who == "root":
        return Starter(sys.executable, env | {"HOME": str(home)}, 0)
    if who == "user" and os.geteuid() != 0:
        return Starter(sys.executable, env | {"HOME": str(home)}, os.geteuid())
    made: Program = request.getfixturevalue("program")
    env |= {"HOME": str(made.home), "TMPDIR": str(made.home)}
    if who == "root-readable":
        return Starter(made.python, env, 0)
    return Starter(made.python, env | {"XAUTHORITY": made.owned_copy(display.authority, "authority")}, made.uid)


def path_with(kind: Bubblewrap, folder: Path) -> str:
    """A PATH on which `bwrap` behaves as asked for; a hanging one writes its pid beside itself."""
    if kind == "works":
        return os.environ["PATH"]
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    bodies = {
        "exits": "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n",
        "hangs": f"#!/bin/sh\necho $$ > {folder}/pid\nexec /usr/bin/sleep 60\n",
    }
    if kind != "absent":
        script = folder / "bwrap"
        script.write_text(bodies[kind], encoding="utf-8")
        script.chmod(0o755)
        folder.chmod(0o777)
    return str(folder)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="remuda-bwrap-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def user_namespaces_work() -> bool:
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return (
        shutil.which("bwrap") is not None and not subprocess.run(command, capture_output=True, check=False).returncode
    )


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {probe["name"]: probe["verdict"] for probe in report["probes"]}


def wall(report: dict[str, Any], name: str) -> tuple[str, str]:
    return next((w["state"], w["detail"]) for w in report["walls"] if w["name"] == name)


@pytest.mark.parametrize("starter", ["root", "root-readable", "user"], indirect=True)
def test_without_walls_every_attempt_gets_through(starter: Starter) -> None:
    code, report = starter.run("--walls=none")
    found = verdicts(report)
    assert set(found) == MUST_BE_BLOCKED | doctor.X11_PROBES | doctor.WITHOUT_BUBBLEWRAP
    not_open = {name for name, verdict in found.items() if verdict != "open"}
    assert not_open <= SYSTEM_MAY_REFUSE
    assert all(found[name] == "not-applicable" for name in not_open)
    assert code == 0
    assert report["level"] == "none"
    assert "No wall stands" in report["sentence"]


@pytest.mark.parametrize("bubblewrap", ["works", "exits", "hangs", "absent"])
@pytest.mark.parametrize("starter", ["root", "root-readable", "user"], indirect=True)
def test_with_walls_nothing_gets_through(
    request: pytest.FixtureRequest, starter: Starter, bubblewrap: Bubblewrap, place: Path
) -> None:
    who: Who = request.node.callspec.params["starter"]
    starter = starter._replace(env=starter.env | {"PATH": path_with(bubblewrap, place / "bin")})
    code, report = starter.run("--walls=all")
    state, why = wall(report, "bubblewrap")
    if bubblewrap == "works" and state == "down" and not user_namespaces_work():
        pytest.skip(f"bubblewrap may not make user namespaces here: {why}")
    found = verdicts(report)
    assert {name for name, verdict in found.items() if verdict == "blocked"} >= MUST_BE_BLOCKED
    expected = doctor.expected_open(x11=True, bubblewrap=bubblewrap == "works")
    assert {name for name, verdict in found.items() if verdict == "open"} == expected
    assert (code, report["level"]) == (0, "walled")
    assert "On X11 every window is within the reach of every other" in report["sentence"]
    for name in ("landlock", "seccomp", "capabilities", "no-new-privileges", "dumpable", "host memory"):
        assert wall(report, name)[0] == "up", name
    assert state == ("up" if bubblewrap == "works" else "down")
    assert {
        "works": "own mounts",
        "exits": "it ended with 1: bwrap: setting up uid map: Permission denied",
        "hangs": "it did not start the program within 3 s",
        "absent": "not installed",
    }[bubblewrap] in why
    expect_user(report, who)
    if bubblewrap == "hangs":
        assert_gone(int((place / "bin" / "pid").read_text("ascii")))


def expect_user(report: dict[str, Any], who: Who) -> None:
    state, detail = wall(report, "user")
    if who == "user":
        assert state == "up"
    elif who == "root-readable":
        assert (state, detail) == ("up", "uid 65534")
    else:
        from ui.lockdown import may_become_unprivileged

        assert (state == "up") == may_become_unprivileged()


def assert_gone(pid: int) -> None:
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} is still there")


def test_a_window_that_does_not_come_up_is_reported_and_not_silent(starter: Starter) -> None:
    code, report = starter._replace(env=starter.env | {"DISPLAY": ":64999"}).run("--walls=all")
    assert code == 1
    assert report["level"] == "none"
    assert "The self-test could not be made: the window closed its channel" in report["sentence"]
    assert "could not connect to display" in report["sentence"]


def test_without_any_display_the_walls_are_tried_all_the_same(starter: Starter) -> None:
    env = {name: value for name, value in starter.env.items() if name not in ("DISPLAY", "XAUTHORITY")}
    code, report = starter._replace(env=env).run("--walls=all")
    assert (code, report["level"], report["platform"]) == (0, "walled", "offscreen")


def test_offscreen_has_no_x11_attempt_and_keeps_the_walls(starter: Starter) -> None:
    code, report = starter._replace(env=starter.env | {"QT_QPA_PLATFORM": "offscreen"}).run("--walls=all")
    found = verdicts(report)
    assert (code, report["level"], report["platform"]) == (0, "walled", "offscreen")
    assert {found[name] for name in doctor.X11_PROBES} == {"not-applicable"}
    expected = doctor.expected_open(x11=False, bubblewrap=report["bubblewrap"])
    assert {name for name, verdict in found.items() if verdict == "open"} == expected
    assert "X11" not in report["sentence"]
