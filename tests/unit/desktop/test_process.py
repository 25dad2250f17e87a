"""Process-wide switches, exact signals, and the burying of orphans: each tried on real processes."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from desktop import process

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]


def run_python(program: str, *arguments: str) -> str:
    """Run `program` in an interpreter of its own, for what would change this one for good."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@contextmanager
def started(*command: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as popen:
        try:
            yield popen
        finally:
            popen.kill()


def test_a_dump_is_allowed_before_and_not_after() -> None:
    program = """
    import ctypes
    from desktop import process
    dumpable = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
    print(dumpable(), process.undumpable(), dumpable())
    """
    assert run_python(program) == "1 True 0"


def test_orphans_fall_to_a_subreaper_and_not_before() -> None:
    program = """
    import os, subprocess, sys
    from desktop import process
    def parent_of_an_orphan():
        told = subprocess.run(["sh", "-c", "sleep 30 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True).stdout
        orphan = process.look(int(told))
        os.kill(orphan.pid, 9)
        return orphan.parent
    print(parent_of_an_orphan() == os.getpid(), process.become_subreaper(), parent_of_an_orphan() == os.getpid())
    """
    assert run_python(program) == "False True True"


def test_die_with_parent_takes_the_child_along() -> None:
    program = """
    import os, signal, sys, time
    from desktop import process
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        leaf = os.fork()
        if leaf == 0:
            process.die_with_parent(signal.SIGKILL)
            os.write(writer, b"%d" % os.getpid())
            time.sleep(60)
            os._exit(0)
        time.sleep(60)
    process.become_subreaper()
    leaf = int(os.read(reader, 16))
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    print(os.waitstatus_to_exitcode(os.waitpid(leaf, 0)[1]))
    """
    # The leaf becomes ours only when the middle one has died, so the subreaper may be set after the forks.
    assert run_python(program) == "-9"


def test_a_name_made_to_confuse_is_read_right() -> None:
    program = """
    import os
    from desktop import process
    open("/proc/self/comm", "w").write(") Z 1 (x) R 1")
    mine = process.look(os.getpid())
    print(mine.parent == os.getppid(), mine.state, mine.is_zombie)
    """
    assert run_python(program) == "True R False"


def test_who_is_gone_is_not_seen() -> None:
    with started("true") as popen:
        popen.wait()
        assert process.look(popen.pid) is None


def test_descendants_are_named_parents_first() -> None:
    with started("sh", "-c", "sh -c 'sleep 60 & echo up; wait' & wait") as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        below = process.descendants(shell.pid)
        assert len(below) == 2
        assert below[0].parent == shell.pid
        assert below[1].parent == below[0].pid
        assert [p.pid for p in process.descendants(os.getpid())][:1] == [shell.pid]
        killed = process.kill_all(lambda: process.descendants(shell.pid))
        assert {p.pid for p in killed} == {p.pid for p in below}
        assert shell.wait(timeout=10) == 0


def test_no_signal_reaches_another_process_with_the_same_pid() -> None:
    with started("sleep", "60") as popen:
        meant = process.look(popen.pid)
        assert meant is not None
        earlier = meant._replace(started_ticks=meant.started_ticks - 1)
        assert not process.send(earlier, signal.SIGKILL)
        assert popen.poll() is None
        assert process.send(meant, signal.SIGKILL)
        assert popen.wait(timeout=10) == -signal.SIGKILL
        assert not process.send(meant, signal.SIGKILL)


def test_carriers_are_found_by_their_variable() -> None:
    with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "A_MARK": "one"}) as popen:
        try:
            assert [p.pid for p in process.carriers("A_MARK", "one")] == [popen.pid]
            assert process.carriers("A_MARK", "on") == []
        finally:
            popen.kill()


async def test_an_exit_is_waited_for_without_a_thread() -> None:
    with started("sh", "-c", "read line; exit 4") as popen:
        waiting = asyncio.create_task(process.wait_for_exit(popen))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert popen.stdin is not None
        popen.stdin.close()
        assert await asyncio.wait_for(waiting, 20) == 4
        assert await process.wait_for_exit(popen) == 4  # also when it is over already


async def test_giving_up_waiting_leaves_the_status_to_the_next() -> None:
    with started("sh", "-c", "read line; exit 4") as popen:
        waiting = asyncio.create_task(process.wait_for_exit(popen))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert popen.stdin is not None
        popen.stdin.close()
        assert await asyncio.wait_for(process.wait_for_exit(popen), 20) == 4


def test_orphans_are_buried_and_no_status_is_stolen() -> None:
    program = """
    import asyncio, os, subprocess, sys
    from desktop import process

    def dead():
        return [p.pid for p in process.descendants(os.getpid()) if p.is_zombie]

    async def main():
        process.become_subreaper()
        reaper = process.OrphanReaper(asyncio.get_running_loop(), grace_s=0.1)
        reaper.start()
        kept = subprocess.Popen(["sh", "-c", "exit 7"])  # nobody waits for it until the end
        reaper.keep(kept.pid)
        # An orphan, left behind by a child whose own status asyncio takes; the last to die, so nobody else wakes us.
        parent = await asyncio.create_subprocess_exec("sh", "-c", "sleep 1 & exit 5")
        status = await parent.wait()
        slow = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.2; exit 6")
        waited = await slow.wait()
        async with asyncio.timeout(20):
            while reaper.buried < 1:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        print(status, waited, reaper.buried, dead() == [kept.pid], kept.wait(), dead(), reaper._timer)
        reaper.close()

    asyncio.run(main())
    """
    assert run_python(program) == "5 6 1 True 7 [] None"


def test_what_stands_before_the_first_paint_is_light() -> None:
    program = """
    import sys
    before = set(sys.modules)
    import desktop.process
    heavy = {"asyncio", "subprocess", "threading", "logging", "socket", "ctypes", "json", "pathlib"}
    print(*sorted(heavy & (set(sys.modules) - before)))
    """
    assert run_python(program) == ""
