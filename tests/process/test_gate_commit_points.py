"""A turn with three tools, a read, a write and one that a person approves, in processes that are killed at each commit.

`native.agent`, the real gateway and a real file. Whatever the point, the next life goes on with the turn by itself: its
transcript is valid, each write was done once at most, and what cannot be known is told as unknown to model and person.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from runtime_host.results import AgentResult
from runtime_host.storage.base import AgentTx
from runtime_host.storage.rows import OperationRow
from runtime_host.storage.sqlite import open_agent_store
from tests.loopback.chat_server import ChatServer
from tests.loopback.three_tools import TOOLS, check
from tests.process.gate_lives import Place

ROOT = Path(__file__).parents[2]
KILLED = -9

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]


class Forks:
    """A process that lives the lives, one after another."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def life(self, place: Place, server: ChatServer, point: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = json.dumps([str(place.folder), server.base_url, point])
        self._process.stdin.write(f"{order}\n".encode())
        async with asyncio.timeout(60):
            code = int(await self._process.stdout.readline())
        assert code in (0, KILLED), f"{place.folder.name}: {point}"
        return code


@asynccontextmanager
async def forks() -> AsyncIterator[Forks]:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tests.process.gate_lives")
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    try:
        yield Forks(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(35):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def killed_at(lives: Forks, folder: Path, *points: str) -> bool:
    """Whether lives were killed, one after another, each at its point; checks the one that comes to its end."""
    place = Place(folder / "-".join(point.replace(" ", "") for point in points))
    place.folder.mkdir()
    codes = []
    async with ChatServer(behaviour="three-tools") as server:
        for point in points:
            codes.append(await lives.life(place, server, point))
            if codes[-1] == 0:
                break
        if codes[-1] == KILLED:
            assert await lives.life(place, server, "nowhere") == 0, points
        store = await open_agent_store(place.folder / "agent.sqlite3", profile="p", agent="assistant")
        try:
            [result] = place.lines("result")
            await check(store, server, AgentResult.model_validate_json(result), place.lines("far"), str(points))
        finally:
            await store.close()
    return codes == [KILLED] * len(points)


async def at_each(folder: Path, point: Callable[[int], tuple[str, ...]], step: int = 1, first: int = 1) -> int:
    """How many lives were killed, each at a further point, until one came to its end; two at a time."""
    numbers, killed = count(first, step), 0

    async def some(lives: Forks) -> None:
        nonlocal killed
        while await killed_at(lives, folder, *point(next(numbers))):
            killed += 1

    async with forks() as one, forks() as other, asyncio.TaskGroup() as both:
        both.create_task(some(one))
        both.create_task(some(other))
    return killed


async def statuses(place: Place) -> dict[str, str]:
    """What is known of each call."""

    def read(tx: AgentTx) -> dict[str, str]:
        return {row.call_id: row.status for row in tx.rows(OperationRow)}

    store = await open_agent_store(place.folder / "agent.sqlite3", profile="p", agent="assistant")
    try:
        return await store.read(read)
    finally:
        await store.close()


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_turn_killed_at_commits_goes_on_by_itself_and_does_nothing_twice(
    side: str, tmp_path: Path, rounds: Callable[[int, int], int]
) -> None:
    # Not the same ones on both sides: after one commit is before the next, but for what the process had in mind.
    step, first = rounds(5, 1), 1 if side == "before" else rounds(3, 1)
    killed = await at_each(tmp_path, lambda number: (f"{side} {number}",), step, first)
    # Mounts, session, input, dispatch, requests, calls, and what each call and its decision take.
    assert killed >= 20 // step, killed


async def test_what_was_done_just_before_the_end_is_unknown_and_not_done_again(tmp_path: Path) -> None:
    async with forks() as lives:
        for number, (call_id, (_, tool)) in enumerate(TOOLS.items(), start=1):
            assert await killed_at(lives, tmp_path, f"effect {number}")
            place = Place(tmp_path / f"effect{number}")
            known = await statuses(place)
            assert place.lines("far").count(call_id) == 1, "not made again by the host, whatever it is"
            assert known.pop(call_id) == ("failed" if tool == "look" else "unknown"), known
            assert set(known.values()) == {"succeeded"}, known


@pytest.mark.soak
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("earlier", range(2, 24, 3))
async def test_so_it_is_when_the_life_that_goes_on_is_killed_as_well(side: str, earlier: int, tmp_path: Path) -> None:
    # It opens its session, at least, and puts it away.
    assert await at_each(tmp_path, lambda number: (f"after {earlier}", f"{side} {number}")) >= 2
