"""Programs as the library starts them alone: exact environment, long lines, an end for the whole group."""

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from runtime_host.plain_programs import PlainPrograms
from runtime_host.programs import Program, ProgramError, ProgramOrder, Wall

pytestmark = [pytest.mark.process, pytest.mark.skipif(os.name != "posix", reason="this system is not POSIX")]


def order(folder: Path, *command: str, env: dict[str, str] | None = None, wall: Wall | None = None) -> ProgramOrder:
    return ProgramOrder("The program", command, env or {}, str(folder), wall)


async def said(program: Program) -> bytes:
    async with asyncio.timeout(30):
        return await program.stdout.read()


async def test_it_has_the_ordered_environment_and_the_passed_on_names_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SENTINEL", "HTTPS_PROXY", "TMPDIR", "LD_CANARY"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("LC_TIME", "C")
    program = await PlainPrograms().start(order(tmp_path, "/usr/bin/env", "-0", env={"HOME": "/h", "PATH": "/p"}))
    try:
        names = {line.split("=", 1)[0]: line for line in (await said(program)).decode().split("\0") if line}
        assert set(names) - {"LANG"} <= {"HOME", "PATH", "TZ"} | {n for n in names if n.startswith("LC_")}
        assert (names["HOME"], names["PATH"], names["LC_TIME"]) == ("HOME=/h", "PATH=/p", "LC_TIME=C")
        assert await program.wait() == 0
    finally:
        await program.stop()


async def test_a_line_of_eight_mebibytes_is_read_at_once(tmp_path: Path) -> None:
    program = await PlainPrograms().start(order(tmp_path, sys.executable, "-c", "print('x' * (8 << 20))"))
    try:
        async with asyncio.timeout(30):
            assert len(await program.stdout.readline()) == (8 << 20) + 1
    finally:
        await program.stop()


async def test_stop_ends_what_the_program_left_in_its_group(tmp_path: Path) -> None:
    program = await PlainPrograms().start(order(tmp_path, "/bin/sh", "-c", "sleep 300 & echo $!; exit 3"))
    async with asyncio.timeout(30):
        job = psutil.Process(int(await program.stdout.readline()))
        assert await program.wait() == 3
    end = await program.stop()
    assert (end.complete, end.left) == (False, 0)
    gone, _ = psutil.wait_procs([job], timeout=10)
    assert gone == [job] or job.status() == psutil.STATUS_ZOMBIE


async def test_a_program_deaf_to_the_request_is_killed_and_counted(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(300)"
    program = await PlainPrograms().start(order(tmp_path, sys.executable, "-c", deaf))
    async with asyncio.timeout(30):
        assert await program.stdout.readline() == b"up\n"
    end = await program.stop(grace_s=0.2)
    assert (end.killed, end.left, program.returncode) == (1, 0, -9)
    assert await program.stop() == end


async def test_a_program_that_is_not_there_is_told_from_a_folder_that_is_not(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="/nonexistent/program: No such file") as missing:
        await PlainPrograms().start(order(tmp_path, "/nonexistent/program"))
    assert missing.value.code == "PROGRAM_MISSING"
    with pytest.raises(ProgramError, match="folder: No such file") as folder:
        await PlainPrograms().start(order(tmp_path / "folder", "/bin/sh"))
    assert folder.value.code == "PROGRAM_START_FAILED"
    with pytest.raises(ProgramError, match="full path"):
        await PlainPrograms().start(order(tmp_path, "sh"))


async def test_it_builds_no_walls_and_starts_nothing_that_needs_one(tmp_path: Path) -> None:
    programs = PlainPrograms()
    assert programs.walled(Wall()) is None
    assert "no walls" in await programs.wall_fault()
    with pytest.raises(ProgramError) as refused:
        await programs.start(order(tmp_path, "/usr/bin/touch", "made", wall=Wall()))
    assert refused.value.code == "PROGRAM_NO_WALL"
    assert os.listdir(tmp_path) == []
