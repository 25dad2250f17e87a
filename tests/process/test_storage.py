"""What a store promises across real processes: kill -9, two of them, full disks, syncs."""

import asyncio
import contextlib
import ctypes
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime_host.errors import StorageLockedError
from runtime_host.storage.base import AgentTx
from runtime_host.storage.sqlite import open_agent_store
from tests.process.storage_child import write

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]


def command(mode: str, path: Path, argument: str = "") -> list[str]:
    return [sys.executable, "-m", "tests.process.storage_child", mode, str(path), argument]


@contextlib.contextmanager
def child(mode: str, path: Path, argument: str = "") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command(mode, path, argument), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=20)


def output(mode: str, path: Path, argument: str = "") -> list[str]:
    """Lines of a child that ends by itself."""
    done = subprocess.run(
        command(mode, path, argument), cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    return done.stdout.splitlines()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def _names(path: Path, fn: Callable[[AgentTx], object] | None = None) -> list[str]:
    store = await open_agent_store(path, profile="p", agent="a")
    try:
        if fn is not None:
            await store.transact(fn)
        return [head.item_id for head in await store.read(lambda tx: tx.items("s", 0, 1_000_000, 0))]
    finally:
        await store.close()


def names(path: Path) -> list[str]:
    """Items of the session, after a transaction more."""
    return asyncio.run(_names(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sqlite3"


def test_what_was_acknowledged_before_a_kill_is_there_once(path: Path, rounds: Callable[[int, int], int]) -> None:
    chance = random.Random(7)
    acknowledged: list[str] = []
    for number in range(rounds(10, 200)):
        with child("write_until_killed", path, f"r{number}") as process:
            assert first_line(process) == "ready"
            time.sleep(chance.uniform(0.0, 0.25))
            process.kill()
            assert process.stdout is not None
            lines = process.stdout.read().splitlines()
        acknowledged += [line.removeprefix("ack ") for line in lines if line.startswith("ack ")]
    kept = names(path)
    assert len(acknowledged) > 50
    assert len(kept) == len(set(kept))
    assert not set(acknowledged) - set(kept)


def test_a_second_process_is_refused_while_the_first_lives_and_welcome_once_it_is_dead(path: Path) -> None:
    with child("hold", path) as process:
        ready, _, sleeper = first_line(process).partition(" ")
        assert ready == "ready"
        try:
            assert output("try_open", path) == [f"STORAGE_LOCKED {process.pid}"]
            with pytest.raises(StorageLockedError):
                names(path)
            process.send_signal(signal.SIGKILL)
            process.wait(20)
            # Free at once, though a child of the dead one lives on.
            os.kill(int(sleeper), 0)
            assert output("try_open", path) == ["opened"]
        finally:
            os.kill(int(sleeper), signal.SIGKILL)


def check_full(path: Path, lines: list[str]) -> None:
    acknowledged = [line.removeprefix("ack ") for line in lines if line.startswith("ack ")]
    told = [line for line in lines if not line.startswith("ack ")]
    assert len(acknowledged) > 20
    assert told[0].startswith("failed STORAGE_FAILED ")
    assert told[1:] == ["refused STORAGE_FAILED", "closed"]
    kept = names(path)
    assert kept == acknowledged or kept == [*acknowledged, f"n{len(acknowledged)}"]


def test_a_file_that_may_not_grow_loses_nothing_acknowledged(path: Path) -> None:
    check_full(path, output("write_until_full", path, "600000"))
    # With room again it goes on.
    assert asyncio.run(_names(path, write("more")))[-1] == "more"


@pytest.mark.needs("root")
def test_a_full_disk_loses_nothing_acknowledged(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", bytes(disk), b"tmpfs", 0, b"size=768k") != 0:
        pytest.skip("this system does not let root mount a tmpfs")
    try:
        lines = output("write_until_full", disk / "agent.sqlite3", "0")
        assert any("The disk is full" in line for line in lines)
        assert libc.mount(b"tmpfs", bytes(disk), b"tmpfs", 32, b"size=8m") == 0  # MS_REMOUNT: more room
        check_full(disk / "agent.sqlite3", lines)
    finally:
        assert libc.umount2(bytes(disk), 0) == 0


def test_a_store_that_was_replaced_under_its_feet_does_not_touch_the_new_one(path: Path) -> None:
    assert output("replaced", path) == ["ack second", "refused STORAGE_CLAIM_LOST", "ack third"]
    assert names(path) == ["second", "third"]


@pytest.mark.needs("strace")
def test_each_commit_is_one_sync_and_those_that_wait_share_it(path: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,write", "-e", "signal=none", "-s", "64", "-o"]
    traced = [*strace, str(trace), *command("count_syncs", path, "20")]
    subprocess.run(traced, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=120, check=False)
    # What matters of the trace, in order: a sync that ended well, or a line the child told.
    pattern = r'sync(?:\(\d+| resumed>)\)\s*= 0|write\(1, "([^"\\]*)'
    events = [found[1] or "sync" for found in re.finditer(pattern, trace.read_text("utf-8"))]
    start, together, done = (events.index(line) for line in ("one after the other", "together", "done"))
    assert events[start + 1 : together] == [line for number in range(20) for line in ("sync", f"ack a{number}")]
    # The one that held the thread wrote nothing, and twenty shared one commit.
    assert events[together + 1 : done] == ["sync"]
    assert len(names(path)) == 41
