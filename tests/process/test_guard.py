"""The guard: what a child starts never outlives the guard, and the guard never outlives the host."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from desktop.guard import MARK, Guarded, GuardError, child_env, guard_pids
from desktop.process import look
from runtime_host import programs

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]

STUBBORN = """
import os, signal, sys, time
# What a daemon does to get away: a session of its own, no parent, deaf to every polite signal.
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(name, signal.SIG_IGN)
        os.write(1, b"daemon %d\\n" % os.getpid())
        time.sleep(300)
    os._exit(0)
os.wait()
os.write(1, b"child %d\\n" % os.getpid())
time.sleep(300)
"""


class Tree:
    """Finds, from outside the product, every living process of one test by a variable all of them inherit."""

    def __init__(self) -> None:
        self.env = {"TEST_TREE": uuid.uuid4().hex}

    def alive(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TEST_TREE") == self.env["TEST_TREE"]:
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    async def until(self, condition: Callable[[list[psutil.Process]], bool], within_s: float = 10.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition(alive := self.alive()):
            assert time.monotonic() < deadline, f"still there or not yet there: {alive}"
            await asyncio.sleep(0.05)


@pytest.fixture
def tree() -> Tree:
    return Tree()


def environment_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_text("utf-8").split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


async def lines(guarded: Guarded, count: int) -> list[str]:
    assert guarded.stdout is not None
    async with asyncio.timeout(20):
        return [(await guarded.stdout.readline()).decode().strip() for _ in range(count)]


async def test_a_daemon_deaf_to_sigterm_does_not_outlive_stop(tree: Tree) -> None:
    guarded = await Guarded.start([sys.executable, "-c", STUBBORN], env=tree.env, name="test")
    said = dict(line.split() for line in await lines(guarded, 2))
    daemon = look(int(said["daemon"]))
    assert daemon is not None
    assert daemon.parent == guarded.pid  # it got away from its own parent, not from the guard

    report = await guarded.stop(grace_s=0.3)

    assert tree.alive() == []
    assert report.complete
    assert report.left == 0
    assert report.killed == 1  # the daemon alone; the child itself went at the polite signal
    assert report.signalled == 2
    assert guard_pids() == set()


async def test_background_jobs_of_a_shell_go_with_it(tree: Tree) -> None:
    guarded = await Guarded.start(["sh", "-c", "sleep 300 & sleep 300 & echo up; sleep 300"], env=tree.env, name="test")
    assert await lines(guarded, 1) == ["up"]
    await tree.until(lambda alive: len(alive) == 4)
    report = await guarded.stop()
    assert tree.alive() == []
    assert (report.complete, report.killed) == (True, 0)


async def test_a_child_that_forks_without_end_is_ended(tree: Tree) -> None:
    forks = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"up\\n")
for _ in range(400):  # bounded, so that a broken guard does not take the machine along
    if os.fork() != 0:
        os._exit(0)
    time.sleep(0.005)
time.sleep(60)
"""
    guarded = await Guarded.start([sys.executable, "-c", forks], env=tree.env, name="test")
    await lines(guarded, 1)
    report = await guarded.stop(grace_s=0.2)
    assert tree.alive() == []
    assert report.complete


async def test_what_a_child_leaves_behind_ends_with_it(tree: Tree) -> None:
    async with await Guarded.start(["sh", "-c", "setsid sleep 300 & exit 7"], env=tree.env, name="test") as guarded:
        assert await guarded.wait() == 7
        await tree.until(lambda alive: not alive)


HOST = """
import asyncio, json, os, sys
from desktop import process
from desktop.guard import Guarded

async def main():
    process.become_subreaper()
    guarded = await Guarded.start([sys.executable, "-c", sys.argv[1]], env={"TEST_TREE": sys.argv[2]}, name="test")
    for _ in range(2):
        await guarded.stdout.readline()
    print(guarded.pid, flush=True)
    await asyncio.sleep(300)

asyncio.run(main())
"""


async def test_nothing_outlives_a_host_killed_with_sigkill(tree: Tree) -> None:
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOST, STUBBORN, tree.env["TEST_TREE"], stdout=asyncio.subprocess.PIPE
    )
    assert host.stdout is not None
    async with asyncio.timeout(20):
        guard = look(int(await host.stdout.readline()))
    assert guard is not None
    assert len(tree.alive()) == 2
    host.kill()
    await host.communicate()
    await tree.until(lambda alive: not alive, within_s=5)

    def guard_is_gone() -> bool:
        now = look(guard.pid)
        return now is None or now.is_zombie or now.started_ticks != guard.started_ticks

    await tree.until(lambda _: guard_is_gone(), within_s=5)


async def test_a_killed_guard_is_noticed_and_its_tree_ended(tree: Tree) -> None:
    guarded = await Guarded.start([sys.executable, "-c", STUBBORN], env=tree.env, name="test")
    await lines(guarded, 2)
    os.kill(guarded.pid, signal.SIGKILL)
    assert await guarded.wait() is None  # nobody saw how the child ended, so nobody says
    assert tree.alive() == []
    report = await guarded.stop()
    assert (report.complete, report.left) == (True, 0)


async def test_what_has_an_environment_of_its_own_goes_with_a_killed_guard_too(tree: Tree) -> None:
    below = f"env -i TEST_TREE={tree.env['TEST_TREE']} setsid sleep 300 & echo up; sleep 300"
    guarded = await Guarded.start(["sh", "-c", f"({below}) & wait"], env=tree.env, name="test")
    assert await lines(guarded, 1) == ["up"]
    await tree.until(lambda alive: any("TEST_TREE" in each.environ() and MARK not in each.environ() for each in alive))
    os.kill(guarded.pid, signal.SIGKILL)
    await guarded.wait()
    assert tree.alive() == []
    assert (await guarded.stop()).complete
    assert MARK == programs.MARK, "what has an environment made anew for it would not be found"


async def test_a_guard_stopped_by_its_child_cannot_shield_it(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("desktop.guard._UNANSWERED_S", 0.5)
    guarded = await Guarded.start(
        [sys.executable, "-c", f"import os\nos.kill(os.getppid(), 19)\n{STUBBORN}"], env=tree.env, name="test"
    )
    await tree.until(lambda alive: len(alive) == 2)
    report = await guarded.stop(grace_s=0.1)
    assert tree.alive() == []
    assert report.left == 0


async def test_the_child_sees_the_allow_list_and_the_overlay_only(monkeypatch: pytest.MonkeyPatch, tree: Tree) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-of-the-host")
    monkeypatch.setenv("LD_PRELOAD_CANARY", "canary-of-the-host")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    async with await Guarded.start(
        [sys.executable, "-c", "import os,time; print('up', flush=True); time.sleep(300)"],
        env={**tree.env, "GIVEN": "yes"},
        name="test",
    ) as guarded:
        await lines(guarded, 1)
        child = environment_of(guarded.child_pid)
        # The guard lets nobody but root look into it, and that is meant.
        guard = environment_of(guarded.pid) if os.geteuid() == 0 else child_env({})
    allowed = set(child_env({}))
    assert set(child) == allowed | {"GIVEN", "TEST_TREE", MARK}
    assert child["GIVEN"] == "yes"
    assert child["HTTPS_PROXY"] == "http://proxy.invalid:3128"
    assert child["LC_TIME"] == "C"
    assert child["PATH"] == os.environ["PATH"]
    assert set(guard) == allowed  # what is given to the child is not even in the guard's
    assert "canary-of-the-host" not in {*child.values(), *guard.values()}


async def test_neither_order_nor_line_is_visible(tree: Tree) -> None:
    async with await Guarded.start(
        [sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd'), key=int)); input()"],
        env={**tree.env, "KEY": "canary-of-the-order"},
        name="test",
    ) as guarded:
        [fds] = await lines(guarded, 1)
        # 3 is the listing of the folder itself
        assert fds == "['0', '1', '2', '3']"
        shown = psutil.Process(guarded.pid).cmdline()
        assert not [word for word in shown if "canary" in word or "listdir" in word]


async def test_streams_pass_through_and_end(tree: Tree) -> None:
    async with await Guarded.start(
        ["sh", "-c", "cat; echo said to stderr >&2; exit 3"], env=tree.env, name="test"
    ) as guarded:
        assert guarded.stdin is not None
        assert guarded.stdout is not None
        assert guarded.stderr is not None
        sent = os.urandom(300_000)
        guarded.stdin.write(sent)
        guarded.stdin.write_eof()
        async with asyncio.timeout(20):
            received, complaint = await asyncio.gather(guarded.stdout.read(), guarded.stderr.read())
        assert received == sent
        assert complaint == b"said to stderr\n"
        assert await guarded.wait() == 3
        assert guarded.returncode == 3


async def test_a_signal_is_reported_as_such(tree: Tree) -> None:
    async with await Guarded.start(["sh", "-c", "kill -SEGV $$"], env=tree.env, name="test") as guarded:
        assert await guarded.wait() == -signal.SIGSEGV


async def test_given_descriptors_and_folder_are_the_childs(tree: Tree, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        async with await Guarded.start(
            ["pwd"], env=tree.env, cwd=str(tmp_path), stdin="null", stdout=out.fileno(), stderr="null", name="test"
        ) as guarded:
            assert (guarded.stdin, guarded.stdout, guarded.stderr) == (None, None, None)
            assert await guarded.wait() == 0
    assert (tmp_path / "out").read_text("utf-8").strip() == str(tmp_path)


async def test_a_child_that_floods_its_output_is_held_and_still_ended(tree: Tree) -> None:
    before = psutil.Process().memory_info().rss
    guarded = await Guarded.start(["yes", "x" * 1000], env=tree.env, name="test")
    await asyncio.sleep(1.0)
    assert psutil.Process().memory_info().rss - before < 16 << 20
    assert guarded.stdout is not None
    assert (await guarded.stdout.readline()).startswith(b"xxx")
    report = await guarded.stop()
    assert report.complete
    assert tree.alive() == []


async def test_twenty_rounds_leave_nothing(tree: Tree, rounds: Callable[[int, int], int]) -> None:
    async def once() -> None:
        guarded = await Guarded.start(["sh", "-c", "sleep 300 & echo up; wait"], env=tree.env, name="test")
        assert guard_pids() == {guarded.pid}
        await lines(guarded, 1)
        assert (await guarded.stop()).complete

    await once()  # libraries open on first use what they keep
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(rounds(20, 300)):
        await once()
    assert guard_pids() == set()
    assert tree.alive() == []
    assert [child for child in psutil.Process().children() if "guard" in " ".join(child.cmdline())] == []
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize(
    ("command", "cwd", "code", "named"),
    [
        (["no-such-program-anywhere"], None, "GUARD_NO_PROGRAM", "no-such-program-anywhere"),
        (["true"], "/no/such/folder", "GUARD_START_FAILED", "/no/such/folder"),
        (["/etc/hostname"], None, "GUARD_START_FAILED", "/etc/hostname"),
    ],
)
async def test_what_cannot_start_says_so(command: list[str], cwd: str | None, code: str, named: str) -> None:
    with pytest.raises(GuardError) as caught:
        await Guarded.start(command, env={}, cwd=cwd, name="the harness")
    assert caught.value.code == code
    assert caught.value.message.startswith("the harness could not be started: " + named)
    assert guard_pids() == set()


async def test_a_cancelled_start_leaves_nothing(tree: Tree) -> None:
    for delay_s in (0.0, 0.01, 0.03, 0.06):
        task = asyncio.create_task(Guarded.start(["sleep", "300"], env=tree.env, name="test"))
        await asyncio.sleep(delay_s)
        task.cancel()
        try:
            await (await task).stop()
        except asyncio.CancelledError:
            pass
        await tree.until(lambda alive: not alive)
        assert guard_pids() == set()


def test_only_the_main_thread_starts_children() -> None:
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(Guarded.start(["true"], env={}, name="test"))
        except RuntimeError as fault:
            caught.append(fault)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_the_role_loads_little() -> None:
    """The guard's start is in the way of each harness: it must not load what only the host's half needs."""
    program = textwrap.dedent(
        """
        import sys
        before = set(sys.modules)
        import desktop.guard
        heavy = {"asyncio", "subprocess", "threading", "logging", "pydantic", "msgspec", "pathlib", "ctypes"}
        print(*sorted(heavy & (set(sys.modules) - before)))
        """
    )
    result = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert result.stdout.split() == []


def test_the_role_refuses_to_be_started_by_hand() -> None:
    for arguments in ([], ["--line=x"], ["--line=3", "more"]):
        result = subprocess.run(
            [sys.executable, "-I", "-m", "desktop", "--role=guard", *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert result.returncode == 2
        assert "host only" in result.stderr
