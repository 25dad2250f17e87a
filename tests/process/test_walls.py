"""The walls around harnesses and their commands: what they hold back, and that people's commands work behind them."""

import asyncio
import ctypes
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from desktop.guard import MARK, guard_pids
from desktop.harness_programs import HarnessPrograms, ProfileHomes
from desktop.isolation import wall_trial, walls
from desktop.isolation.wall_trial import Trial
from desktop.isolation.walls import WallOrder
from desktop.paths import ProfilePaths
from desktop.roles import self_command
from runtime_host.programs import Program, ProgramError, ProgramOrder, Wall
from tests.process.old_kernel import WITHOUT_NAMESPACES, gives_no_namespaces, on_old_kernel
from tests.process.ordinary_user import Program as UserProgram
from tests.process.ordinary_user import ordinary_program

pytestmark = [
    pytest.mark.process,
    pytest.mark.needs("linux", "landlock"),
    pytest.mark.skipif(bool(walls.missing()), reason=walls.missing()),
]

ATTACKS = str(Path(__file__).with_name("wall_attacks.py"))
BY_MOUNTS_ALONE = {"change a mode", "change times"}
"""What Landlock does not know."""
BEFORE_VERSION_6 = {"signal a program", "stop a program by pidfd"}
"""What Landlock of Linux 6.10 and before does not know, and nothing else holds."""
SYSTEM_MAY_REFUSE = {
    "make users of its own", "make mounts of its own", "mount over the workspace", "bind a folder in", "make a device",
    "open the memory of a program", "take shared memory", "gain by a program of root",
}  # fmt: skip
"""Without any wall too, for a program that is not root's, or in a container."""


class Place(NamedTuple):
    """A workspace, and beside it all that is none of a command's business."""

    workspace: str
    home: str
    data: str
    targets: dict[str, str]


@pytest.fixture
def place() -> Iterator[Place]:
    # Not in the tests' temporary folder: what is in /tmp would be closed to every wall as it is.
    root = Path(tempfile.mkdtemp(prefix="remuda-walls-", dir="/var/tmp")).resolve()
    for name in ("workspace", "home/.ssh", "data/agents/a/harness-homes/s", "outside"):
        (root / name).mkdir(parents=True)
    names = {"file": "outside/file", "secret": "home/.ssh/id_ed25519", "data": "data/profile.sqlite3",
             "spare": "outside/spare", "spare2": "outside/spare2"}  # fmt: skip
    for name in names.values():
        (root / name).write_text("sentinel", encoding="utf-8")
    victim = subprocess.Popen(["sleep", "300"], env={"VICTIM": "sentinel"}, stdin=subprocess.DEVNULL)
    master, slave = pty.openpty()
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        stream.bind(str(root / "s"))
        stream.listen(16)
        datagrams.bind(str(root / "d"))
        shared = _shared_memory()
        targets = {name: str(root / path) for name, path in names.items()} | {
            "folder": str(root / "outside"), "port": str(tcp.getsockname()[1]), "socket": str(root / "s"),
            "datagrams": str(root / "d"), "terminal": os.ttyname(slave), "pid": str(victim.pid), "shared": str(shared),
        }  # fmt: skip
        try:
            yield Place(
                str(root / "workspace"), str(root / "data/agents/a/harness-homes/s"), str(root / "data"), targets
            )
        finally:
            ctypes.CDLL(None).shmctl(shared, 0, None)
            os.close(master)
            os.close(slave)
            victim.kill()
            victim.wait()
            shutil.rmtree(root)


def _shared_memory() -> int:
    number: int = ctypes.CDLL(None).shmget(0, 4096, 0o600 | 0o1000)
    assert number >= 0
    return number


def renew(place: Place) -> None:
    """As it was before an attack."""
    shutil.rmtree(place.workspace)
    Path(place.workspace, "mount-point").mkdir(parents=True)
    Path(place.workspace, "own").touch()
    Path(place.workspace, "folder-link").symlink_to(place.targets["folder"])
    for name in ("file", "spare", "spare2"):
        Path(place.targets[name]).write_text("sentinel", encoding="utf-8")
    os.chmod(place.targets["file"], 0o600)


def write(place: Place, name: str, text: str) -> None:
    Path(place.workspace, name).write_text(text, encoding="utf-8")


def ran(command: Sequence[str], cwd: str = "/") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=60)


async def run(
    programs: HarnessPrograms,
    *command: str,
    cwd: str,
    wall: Wall | None,
    env: dict[str, str] | None = None,
) -> tuple[int | None, str, str]:
    program = await programs.start(ProgramOrder("The program", command, env or {}, cwd, wall))
    try:
        program.stdin.close()
        async with asyncio.timeout(60):
            said, complained = await asyncio.gather(program.stdout.read(), program.stderr.read())
            return await program.wait(), said.decode(), complained.decode()
    finally:
        end = await program.stop()
        assert end.complete


async def attacked(
    programs: HarnessPrograms, place: Place, wall: Wall | None, inside: tuple[str, ...] = ()
) -> dict[str, str]:
    renew(place)
    order = json.dumps({"targets": place.targets, "inside": inside})
    _, said, complained = await run(programs, sys.executable, "-I", ATTACKS, order, cwd=place.workspace, wall=wall)
    assert said, complained
    found: dict[str, str] = json.loads(said)
    assert "failed" not in found, found
    return found


def is_as_it_was(place: Place) -> None:
    assert sorted(os.listdir(place.targets["folder"])) == ["file", "spare", "spare2"]
    assert Path(place.targets["file"]).read_text("utf-8") == "sentinel"
    assert os.stat(place.targets["file"]).st_mode & 0o777 == 0o600


async def test_every_way_out_of_a_workspace_is_closed_and_is_open_without_the_wall(place: Place) -> None:
    programs = HarnessPrograms(hidden=(place.data,))
    wall = Wall(readable=(ATTACKS,), writable=(place.workspace,))

    found = await attacked(programs, place, wall)
    assert [name for name, verdict in found.items() if verdict == "open"] == []
    is_as_it_was(place)

    loose = await attacked(programs, place, None)
    shut = {name for name, verdict in loose.items() if verdict != "open"}
    assert shut <= SYSTEM_MAY_REFUSE | {"keep a descriptor"}


async def test_a_command_behind_a_wall_inside_a_wall_has_what_both_let_through(place: Place) -> None:
    programs = HarnessPrograms(hidden=(place.data,))
    outer = Wall(readable=(ATTACKS,), writable=(place.workspace, place.home), network="all")
    inner = programs.walled(Wall(readable=(ATTACKS,), writable=(place.workspace,)))
    assert inner is not None
    found = await attacked(programs, place, outer, inside=inner)
    assert [name for name, verdict in found.items() if verdict == "open"] == []
    is_as_it_was(place)

    script = (
        'touch "$H/outer" "$W/outer" && "$@" /bin/sh -c \'touch "$W/inner"; touch "$H/inner"; cat "$H/outer"; '
        'cat /proc/$PPID/environ | tr "\\0" "\\n" | grep TOKEN\'; ls "$H"'
    )
    names = {"H": place.home, "W": place.workspace, "TOKEN": "of-the-program"}
    command = ("/bin/sh", "-c", script, "sh", *inner)
    _, said, complained = await run(programs, *command, cwd=place.workspace, wall=outer, env=names)
    assert said.split() == ["outer"]
    assert complained.count("Permission denied") == 3
    assert {"inner", "outer"} <= set(os.listdir(place.workspace))


async def test_a_program_ends_the_command_that_it_put_behind_a_wall(place: Place) -> None:
    inner = HarnessPrograms().walled(Wall(writable=(place.workspace,)))
    assert inner is not None
    script = (
        '"$@" /bin/sh -c "echo > up; exec sleep 300" & until [ -e up ]; do sleep 0.05; done; kill $!; wait $!; echo $?'
    )
    command = ("/bin/sh", "-c", script, "sh", *inner)
    wall = Wall(writable=(place.workspace,), network="all")
    _, said, _ = await run(HarnessPrograms(), *command, cwd=place.workspace, wall=wall)
    assert said == f"{128 + signal.SIGTERM}\n"


async def test_what_is_hidden_in_a_folder_of_the_system_stays_hidden(place: Place) -> None:
    licenses = "/usr/share/common-licenses"
    if not os.path.isdir(licenses):  # noqa: ASYNC240 (a look at the start)
        pytest.skip("this system keeps no licenses in /usr/share")
    command = ("/bin/sh", "-c", f"ls {licenses}; ls /usr/share/zoneinfo > /dev/null && echo seen")
    _, said, complained = await run(
        HarnessPrograms(hidden=(licenses,)), *command, cwd=place.workspace, wall=Wall(writable=(place.workspace,))
    )
    assert said == "seen\n"
    assert "Permission denied" in complained


@pytest.mark.needs("root")
async def test_root_gives_a_command_nothing_that_only_root_may_read(place: Place) -> None:
    command = ("/bin/sh", "-c", "cat /etc/passwd > /dev/null && ls /etc > /dev/null && echo seen; cat /etc/shadow")
    wall = Wall(writable=(place.workspace,))
    _, said, complained = await run(HarnessPrograms(), *command, cwd=place.workspace, wall=wall)
    assert said == "seen\n"
    assert complained == "cat: /etc/shadow: Permission denied\n"


async def test_the_inner_wall_gives_nothing_that_the_outer_one_does_not(place: Place) -> None:
    programs = HarnessPrograms()
    wide = programs.walled(Wall(writable=(place.workspace, place.targets["folder"]), network="all"))
    assert wide is not None
    _, said, _ = await run(
        programs,
        *("/bin/sh", "-c", '"$@" /bin/sh -c "touch made; touch $OUT/made; cat $OUT/file"', "sh", *wide),
        cwd=place.workspace,
        wall=Wall(writable=(place.workspace,)),
        env={"OUT": place.targets["folder"]},
    )
    assert said == ""
    assert "made" in os.listdir(place.workspace)
    assert sorted(os.listdir(place.targets["folder"])) == ["file", "spare", "spare2"]


async def test_with_a_network_a_program_reaches_its_port_and_no_local_socket(place: Place) -> None:
    found = await attacked(
        HarnessPrograms(), place, Wall(readable=(ATTACKS,), writable=(place.workspace,), network="all")
    )
    assert {name for name, verdict in found.items() if verdict == "open"} == {"connect over TCP"}


async def test_a_folder_that_may_be_read_is_not_written(place: Place) -> None:
    programs = HarnessPrograms()
    wall = Wall(readable=(place.workspace,))
    write(place, "text", "words")
    code, said, complained = await run(
        programs, "/bin/sh", "-c", "cat text; ls; touch made", cwd=place.workspace, wall=wall
    )
    assert (code, said) == (1, "wordstext\n")
    assert "touch: cannot touch 'made'" in complained
    assert os.listdir(place.workspace) == ["text"]


# -------------------------------------------------------------------------- people's commands

COMMANDS = {
    "devices": "echo x > /dev/null && head -c 4 /dev/urandom | wc -c | grep -q 4 && echo y | tee /dev/stderr",
    "a temporary file": 'f=$(mktemp) && echo words > "$f" && case "$f" in "$TMPDIR"/*) rm "$f" ;; *) exit 1 ;; esac',
    "pipes and jobs": "(sleep 0 & wait) && seq 100 | sort -n | tail -1 | grep -q 100",
    "modes and links": "touch a && chmod 755 a && test -x a && ln a b && ln -s a c && mv c d && cp -a a e && mkdir f",
    "locale and time": "LC_ALL=C.UTF-8 date +%A && TZ=Europe/Berlin date && locale > /dev/null",
    "processes": 'ps -o pid= -p $$ > /dev/null && kill -0 $$ && sh -c "sleep 60 & kill -9 \\$!"',
}


@pytest.mark.parametrize("name", COMMANDS)
async def test_peoples_commands_work(place: Place, name: str) -> None:
    await works(place, "/bin/sh", "-ec", COMMANDS[name])


async def works(place: Place, *command: str) -> str:
    home = os.path.join(place.workspace, ".home")
    os.mkdir(home)
    env = {"HOME": home, "TMPDIR": home, "PATH": os.defpath}
    wall = Wall(writable=(place.workspace,))
    code, said, complained = await run(HarnessPrograms(), *command, cwd=place.workspace, wall=wall, env=env)
    assert code == 0, f"{said}{complained}"
    return said


@pytest.mark.needs("git")
async def test_git_works_without_the_persons_configuration(place: Place) -> None:
    said = await works(
        place,
        *("/bin/sh", "-ec"),
        "git init -q . && git config user.email a@b.invalid && git config user.name A && echo 1 > x && git add x "
        "&& git commit -qm first && git checkout -qb other && echo 2 > x && git commit -qam second && git diff --stat "
        "HEAD~1 && git clone -q . copy && git log --oneline | wc -l",
    )
    assert said.split()[-1] == "2"


@pytest.mark.needs("gcc")
async def test_a_compiler_and_what_it_makes_work(place: Place) -> None:
    write(place, "hello.c", '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
    write(place, "Makefile", "hello: hello.c\n\tgcc -o $@ $<\n")
    command = "make -s hello && ./hello" if shutil.which("make", path=os.defpath) else "gcc -o hello hello.c && ./hello"
    assert await works(place, "/bin/sh", "-ec", command) == "hello\n"


async def test_python_with_a_terminal_a_pool_and_tests_works(place: Place) -> None:
    write(
        place,
        "test_it.py",
        "import multiprocessing, os, pty, sqlite3, subprocess, sys\n\n"
        "def test_pool():\n"
        "    with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "        assert pool.map(abs, [-1, -2]) == [1, 2]\n\n"
        "def test_terminal():\n"
        "    master, slave = pty.openpty()\n"
        "    code = 'import os; print(os.isatty(1))'\n"
        "    subprocess.run([sys.executable, '-c', code], stdout=slave, check=True)\n"
        "    assert os.read(master, 100).strip() == b'True'\n\n"
        "def test_database(tmp_path):\n"
        "    with sqlite3.connect(tmp_path / 'd') as d:\n"
        "        d.execute('create table t (x)')\n",
    )
    wanted = "test_pool or test_terminal or test_database" if own_mounts() else "test_pool or test_database"
    said = await works(
        place,
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "-k",
        wanted,
        "test_it.py",
    )
    assert f"{wanted.count('test_')} passed" in said


def own_mounts() -> bool:
    """Whether walls have mounts, and so terminals, of their own here."""
    seen = subprocess.run(
        [*self_command("wall"), "--network=none", "--", "/bin/cat", "/proc/self/mountinfo"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return " devpts remuda-wall " in seen


# ---------------------------------------------------------------------- a program of a harness


async def test_a_program_has_the_ordered_environment_and_nothing_else_of_the_host(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SENTINEL", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "TMPDIR", "LD_CANARY", "PYTHONPATH"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("LC_TIME", "C")
    inner = HarnessPrograms().walled(Wall())
    assert inner is not None
    wall = Wall(writable=(place.workspace,))
    command = ("/bin/sh", "-c", 'env; echo; "$@" /usr/bin/env', "sh", *inner)
    for each in (None, wall):
        _, said, complained = await run(
            HarnessPrograms(), *command, cwd=place.workspace, wall=each, env={"HOME": "/h", "TOKEN": "t"}
        )
        assert complained == ""
        for part in said.split("\n\n"):
            names = {line.split("=", 1)[0] for line in part.split("\n") if line}
            of_the_shell = {"PWD", "OLDPWD", "_", "SHLVL"}
            passed_on = {"LANG", "TZ"} | {name for name in names if name.startswith("LC_")}
            assert names - of_the_shell - passed_on == {"PATH", "HOME", "TOKEN", MARK}
            assert "LC_TIME" in names
            assert "canary" not in part


async def test_a_line_of_twelve_mebibytes_is_read_at_once(place: Place) -> None:
    order = ProgramOrder("x", (sys.executable, "-c", "print('x' * (12 << 20))"), {}, place.workspace)
    program = await HarnessPrograms().start(order)
    try:
        async with asyncio.timeout(60):
            assert len(await program.stdout.readline()) == (12 << 20) + 1
    finally:
        await program.stop()


async def test_without_its_wall_a_program_is_not_executed(place: Place) -> None:
    os.symlink(place.targets["folder"], os.path.join(place.workspace, "link"))
    touch = ("/usr/bin/touch", os.path.join(place.workspace, "executed"))
    for wall in (
        Wall(writable=(place.workspace, os.path.join(place.workspace, "link"))),
        Wall(readable=(os.path.dirname(place.data),), writable=(place.workspace,)),
        Wall(writable=(place.workspace + "/../workspace",)),
    ):
        programs = HarnessPrograms(hidden=(place.data,))
        with pytest.raises(ProgramError, match="the wall around it could not be raised") as refused:
            await programs.start(ProgramOrder("The program", touch, {}, place.workspace, wall))
        assert refused.value.code == "PROGRAM_NO_WALL"
        prefix = programs.walled(wall)
        assert prefix is not None
        done = ran([*prefix, *touch])
        assert done.returncode == walls.NOT_RAISED
        assert done.stderr.startswith("remuda: the wall could not be raised: ")
        assert done.stderr.count("\n") == 1
    assert os.listdir(place.workspace) == ["link"]
    assert guard_pids() == set()


async def test_a_program_that_is_not_there_is_told_behind_a_wall_too(place: Place) -> None:
    wall = Wall(writable=(place.workspace,))
    with pytest.raises(ProgramError) as missing:
        await HarnessPrograms().start(ProgramOrder("x", ("/nonexistent",), {}, place.workspace, wall))
    assert missing.value.code == "PROGRAM_MISSING"
    prefix = HarnessPrograms().walled(wall)
    assert prefix is not None
    done = ran([*prefix, "/nonexistent"])
    assert (done.returncode, done.stderr) == (127, "remuda: /nonexistent: No such file or directory\n")
    with pytest.raises(ProgramError, match="full path"):
        await HarnessPrograms().start(ProgramOrder("x", ("sh",), {}, place.workspace, wall))


STUBBORN = """
import os, signal, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(300)
os.write(1, b"up\\n")
time.sleep(300)
"""


async def started(programs: HarnessPrograms, place: Place) -> Program:
    order = ProgramOrder(
        "x", (sys.executable, "-I", "-c", STUBBORN), {"TREE": place.workspace}, place.workspace,
        Wall(writable=(place.workspace,)),
    )  # fmt: skip
    program = await programs.start(order)
    async with asyncio.timeout(30):
        assert await program.stdout.readline() == b"up\n"
    return program


def alive(place: Place) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TREE") == place.workspace and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


async def test_stop_and_a_killed_guard_leave_nothing_of_a_walled_program(place: Place) -> None:
    program = await started(HarnessPrograms(), place)
    assert len(alive(place)) == 3
    end = await program.stop(grace_s=0.2)
    assert alive(place) == []
    assert (end.complete, end.left, end.killed) == (True, 0, 2)

    program = await started(HarnessPrograms(), place)
    (guard,) = guard_pids()
    os.kill(guard, signal.SIGKILL)
    async with asyncio.timeout(30):
        assert await program.wait() is None
    assert (await program.stop()).complete
    assert alive(place) == []


async def test_twenty_programs_leave_no_descriptor(place: Place) -> None:
    programs = HarnessPrograms()
    wall = Wall(writable=(place.workspace,))
    await run(programs, "/bin/true", cwd=place.workspace, wall=wall)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await run(programs, "/bin/true", cwd=place.workspace, wall=wall)
    assert len(os.listdir("/proc/self/fd")) == before
    assert guard_pids() == set()


def test_each_session_has_a_folder_of_its_own_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "data").symlink_to("real")
    homes = ProfileHomes(ProfilePaths(tmp_path / "data", "default"))
    home = homes.home("agent", "session_1")
    assert home == f"{os.path.realpath(tmp_path)}/real/profiles/default/agents/agent/harness-homes/session_1"
    for name in ("", "..", ".", "a/b", "a\0", "ä", "-a"):
        with pytest.raises(ValueError, match="no session"):
            homes.home("agent", name)


# ------------------------------------------------------------------------------ the trial


async def test_the_walls_hold_here_and_it_is_tried_once(tmp_path: Path) -> None:
    programs = HarnessPrograms(hidden=(str(tmp_path),))
    report, fault = await asyncio.gather(programs.wall_report(), programs.wall_fault())
    assert fault == report.fault == ""
    assert report.trial is not None
    assert report.trial.inner["read a secret file"][0] == "blocked"
    assert report.trial.without["read a secret file"][0] == "open"
    assert report is await programs.wall_report()
    assert os.listdir(tmp_path) == []


async def test_a_trial_that_gives_no_report_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("desktop.harness_programs.self_command", lambda role: ["/bin/sh", "-c", "echo broken >&2"])
    assert "broken" in await HarnessPrograms().wall_fault()


@pytest.fixture(scope="module")
def user_program() -> Iterator[UserProgram]:
    with ordinary_program() as made:
        yield made


def becoming(user: UserProgram) -> dict[str, Any]:
    """How a process is started as that user."""
    other = None if user.uid == os.geteuid() else user.uid
    return {"user": other, "group": other, "extra_groups": None if other is None else []}


@pytest.fixture
def without_namespaces() -> list[str]:
    if not gives_no_namespaces():
        pytest.skip("bubblewrap cannot take namespaces away here")
    return WITHOUT_NAMESPACES


def tried(command: list[str], **options: Any) -> Trial:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/", **options)
    assert done.returncode == 0, done.stderr
    return Trial.of(done.stdout)


def tried_by(user: UserProgram, before: Sequence[str] = (), command: Sequence[str] = ()) -> Trial:
    return tried(
        [*before, *(command or (user.python, "-I", "-m", "desktop", "--role=wall-trial")), str(user.home)],
        env={"HOME": str(user.home), "PATH": os.environ["PATH"]},
        **becoming(user),
    )


def test_the_walls_hold_for_an_ordinary_user(user_program: UserProgram) -> None:
    assert wall_trial.fault(tried_by(user_program)) == ""


def test_the_walls_hold_for_an_ordinary_user_without_namespaces(
    user_program: UserProgram, without_namespaces: list[str]
) -> None:
    trial = tried_by(user_program, without_namespaces)
    assert wall_trial.fault(trial) == ""
    assert not trial.own_mounts
    assert len(wall_trial.weaker(trial)) == 2


BY_ANOTHER_USER = f"""
import asyncio, json, os, signal, sys
from desktop import process
from desktop.guard import guard_pids
from desktop.harness_programs import HarnessPrograms
from runtime_host.programs import ProgramOrder, Wall

STUBBORN = {STUBBORN!r}

def alive():
    return len([found for found in process.carriers("TREE", sys.argv[1]) if not found.is_zombie])

async def main():
    process.undumpable()
    process.become_subreaper()
    said = []
    for kill in (False, True):
        order = ProgramOrder("x", (sys.executable, "-I", "-c", STUBBORN), {{"TREE": sys.argv[1]}}, sys.argv[1],
                             Wall(writable=(sys.argv[1],)))
        program = await HarnessPrograms().start(order)
        await program.stdout.readline()
        before = alive()
        if kill:
            os.kill(*guard_pids(), signal.SIGKILL)
            await program.wait()
        end = await program.stop(grace_s=0.2)
        said.append([before, alive(), end.complete])
    print(json.dumps(said))

asyncio.run(main())
"""


def test_stop_and_a_killed_guard_leave_nothing_for_an_ordinary_user(user_program: UserProgram) -> None:
    """A wall with users of its own must not put its processes out of the host's reach."""
    workspace = user_program.home / "workspace"
    workspace.mkdir()
    os.chown(workspace, user_program.uid, user_program.uid)
    done = subprocess.run(
        [user_program.python, "-I", "-c", BY_ANOTHER_USER, str(workspace)],
        env={"HOME": str(user_program.home), "PATH": os.environ["PATH"]}, cwd="/", capture_output=True, text=True,
        timeout=120, check=False, **becoming(user_program),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[3, 0, True], [3, 0, True]]


def test_the_walls_hold_without_mounts_of_their_own(tmp_path: Path, without_namespaces: list[str]) -> None:
    trial = tried([*without_namespaces, *self_command("wall-trial"), str(tmp_path)], env={"PATH": os.environ["PATH"]})
    assert wall_trial.fault(trial) == ""
    assert not trial.own_mounts


async def test_every_way_out_but_modes_and_times_is_closed_without_mounts_of_their_own(
    place: Place, without_namespaces: list[str]
) -> None:
    renew(place)
    prefix = HarnessPrograms(hidden=(place.data,)).walled(Wall(readable=(ATTACKS,), writable=(place.workspace,)))
    assert prefix is not None
    order = json.dumps({"targets": place.targets})
    done = ran([*without_namespaces, *prefix, sys.executable, "-I", ATTACKS, order], place.workspace)
    found: dict[str, str] = json.loads(done.stdout)
    assert {name for name, verdict in found.items() if verdict == "open"} == BY_MOUNTS_ALONE


# ------------------------------------------------------------------------ on older kernels


@pytest.fixture(params=["with mounts of their own", "without"])
def system(request: pytest.FixtureRequest) -> list[str]:
    """What a command line begins with on a system that gives walls their own mounts, and on one that does not."""
    if request.param == "without":
        before: list[str] = request.getfixturevalue("without_namespaces")
        return before
    if not own_mounts():
        pytest.skip("this system gives walls no mounts of their own")
    return []


def attacked_on(version: int, system: list[str], place: Place, network: str, inside: Sequence[str] = ()) -> set[str]:
    """The attempts that worked behind a wall as that version of Landlock raises it."""
    renew(place)
    order = WallOrder((ATTACKS,), (place.workspace,), "all" if network == "all" else "none", (place.data,))
    targets = json.dumps({"targets": place.targets, "inside": inside})
    command = [*system, *on_old_kernel(version, "wall"), *order.arguments(), "--", sys.executable, "-I", ATTACKS]
    done = ran([*command, targets], place.workspace)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    assert len(found) > 30, found
    return {name for name, verdict in found.items() if verdict == "open"}


@pytest.mark.parametrize("version", range(1, 6))
def test_an_older_landlock_leaves_signals_open_and_nothing_else(place: Place, system: list[str], version: int) -> None:
    left = BEFORE_VERSION_6 | (BY_MOUNTS_ALONE if system else set())
    assert attacked_on(version, system, place, "none") == left
    if not system:
        is_as_it_was(place)
    assert Path(place.targets["file"]).read_text("utf-8") == "sentinel"
    assert sorted(os.listdir(place.targets["folder"])) == ["file", "spare", "spare2"]
    assert attacked_on(version, system, place, "all") == left | {"connect over TCP"}


@pytest.mark.parametrize("version", [1, 2, 4])
def test_a_wall_inside_a_wall_holds_as_much_with_an_older_landlock(
    place: Place, system: list[str], version: int
) -> None:
    inner = WallOrder((ATTACKS,), (place.workspace,), "none", (place.data,))
    inside = [*on_old_kernel(version, "wall"), *inner.arguments(), "--"]
    left = BEFORE_VERSION_6 | (BY_MOUNTS_ALONE if system else set())
    assert attacked_on(version, system, place, "all", inside) == left


@pytest.mark.parametrize("version", [1, 2])
def test_a_command_cuts_no_file_short_that_only_the_wall_around_it_lets_be_written(
    place: Place, system: list[str], version: int
) -> None:
    """The mounts of the outer wall let it: only the filter of calls does not."""
    record = Path(place.home, "record")
    record.write_text("sentinel", encoding="utf-8")
    outer = WallOrder((), (place.workspace, place.home), "all", (place.data,))
    inner = WallOrder((), (place.workspace,), "none", (place.data,))
    walls_around = [
        word for order in (outer, inner) for word in (*on_old_kernel(version, "wall"), *order.arguments(), "--")
    ]
    cut = (
        "import os, sys\nfor way in (lambda: os.truncate(sys.argv[1], 0), *(\n"
        "    lambda how=how: os.open(sys.argv[1], how | os.O_TRUNC) for how in range(4))):\n"
        "    try:\n        way()\n    except OSError:\n        print('no')\n"
    )
    done = ran([*system, *walls_around, sys.executable, "-I", "-c", cut, str(record)], place.workspace)
    assert done.stdout.split() == ["no"] * 5, done.stderr
    assert record.read_text("utf-8") == "sentinel"
    # What is its own it cuts short, in the usual ways.
    write(place, "own", "words")
    shell = "truncate -s 2 own && cat own && echo > own && cat own"
    done = ran([*system, *walls_around, "/bin/sh", "-c", shell], place.workspace)
    assert done.stdout == "wo\n", done.stderr


@pytest.mark.parametrize("version", [1, 2, 4])
def test_the_trial_says_what_an_older_landlock_does_not_hold(tmp_path: Path, system: list[str], version: int) -> None:
    trial = tried([*system, *on_old_kernel(version, "wall-trial"), str(tmp_path)], env={"PATH": os.environ["PATH"]})
    assert wall_trial.fault(trial) == ""
    assert (trial.landlock, trial.own_mounts) == (version, not system)
    told = wall_trial.weaker(trial)
    assert len(told) == 1 + (version == 1) + (2 if system else 0)
    assert "send signals" in told[0]


def test_the_walls_hold_for_an_ordinary_user_of_debian_12(user_program: UserProgram) -> None:
    trial = tried_by(user_program, command=on_old_kernel(2, "wall-trial", user_program.python))
    assert wall_trial.fault(trial) == ""
    assert trial.landlock == 2


def test_the_walls_hold_for_an_ordinary_user_of_ubuntu_24_04(
    user_program: UserProgram, without_namespaces: list[str]
) -> None:
    trial = tried_by(user_program, without_namespaces, on_old_kernel(4, "wall-trial", user_program.python))
    assert wall_trial.fault(trial) == ""
    assert (trial.landlock, trial.own_mounts) == (4, False)


def test_not_everybody_is_signalled_at_once_where_signals_are_not_held(place: Place) -> None:
    order = WallOrder((), (place.workspace,)).arguments()
    done = ran([*on_old_kernel(5, "wall"), *order, "--", sys.executable, "-c", "import os; os.kill(-1, 0)"])
    assert "PermissionError" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_peoples_commands_work_with_the_oldest_landlock(place: Place, name: str) -> None:
    home = os.path.join(place.workspace, ".home")
    os.mkdir(home)
    order = WallOrder((), (place.workspace,)).arguments()
    command = [*on_old_kernel(1, "wall"), *order, "--", "/usr/bin/env", f"HOME={home}", f"TMPDIR={home}"]
    done = ran([*command, "/bin/sh", "-ec", COMMANDS[name]], place.workspace)
    assert done.returncode == 0, done.stderr
