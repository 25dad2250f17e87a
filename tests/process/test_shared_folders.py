"""Programs of one person do not work in one folder at a time, however they came to it and however they end."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.process


class Program:
    """A program that works in a folder, or was refused."""

    def __init__(self, folder: Path, leases: Path, *more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.process.folder_child", str(folder), str(leases), *more],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()


@contextlib.contextmanager
def program(folder: Path, leases: Path, *more: str) -> Iterator[Program]:
    started = Program(folder, leases, *more)
    try:
        yield started
    finally:
        started.end()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work" / "inner").mkdir(parents=True)
    (tmp_path / "beside").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work" / "inner")
    return tmp_path


def test_another_program_waits_for_the_folder_by_whatever_name_around_it_and_inside_it(folder: Path) -> None:
    leases = folder / "beside" / "leases"
    work = folder / "work"
    with program(work, leases) as first:
        assert "run_id" in first.told()
        for other in (work, folder / "link", work / "inner", folder):
            with program(other, leases) as second:
                told = second.told()
                assert told["code"] == "AGENT_BUSY", other
                assert told["details"]["pid"] == first.process.pid
                assert f"(process {first.process.pid})" in told["message"]
        with program(folder / "beside", leases) as elsewhere:
            assert "run_id" in elsewhere.told()
        assert sorted(path.name for path in work.rglob("*")) == ["inner"], "something was written into the folder"
    with program(work / "inner", leases) as after:
        assert "run_id" in after.told()


def test_a_program_that_is_killed_holds_nothing_even_while_what_it_started_lives(folder: Path) -> None:
    leases = folder / "beside" / "leases"
    with program(folder / "work", leases, "child") as first:
        child = first.told()["child"]
        try:
            first.process.send_signal(signal.SIGKILL)
            first.process.wait(10)
            os.kill(child, 0)
            with program(folder / "work", leases) as second:
                assert "run_id" in second.told()
                # What the dead one left is cleared away.
                assert len(list(leases.glob("*.lease"))) == 1
        finally:
            os.kill(child, signal.SIGKILL)
    assert list(leases.glob("*.lease")) == []


def test_of_programs_that_begin_at_the_same_time_one_works(folder: Path) -> None:
    leases = folder / "beside" / "leases"
    places = (folder / "work", folder / "link", folder / "work" / "inner", folder / "work")
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(program(place, leases)) for place in places]
        told = [each.told() for each in started]
        working = [each for each in told if "run_id" in each]
        # Both inner ones are one folder; whichever came first, nobody works around, inside or beside it.
        assert len(working) == 1, told
        assert {each["code"] for each in told if "run_id" not in each} == {"AGENT_BUSY"}
