"""The host is killed before and after each of its commits and between any two steps of its harness.

Whatever the point, the next life of the program finds: the reference leads to the session, the request id
to the same run, and either its one native input, its one effect and its answer, or `unknown`, never a
second input.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from runtime_host.storage.base import AgentTx
from runtime_host.storage.sqlite import open_agent_store
from tests.process.runtime_child import AGENT, FIRST, SECOND, Place, life

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]


def start(place: Place, point: str) -> int:
    """One life of the program up to a point; its exit code."""
    command = [
        sys.executable,
        "-m",
        "tests.process.runtime_child",
        str(place.folder),
        point,
        *(["tools"] if place.tools else []),
    ]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def points(kinds: tuple[str, ...]) -> Iterator[list[str]]:
    for number in count(1):
        yield [f"{kind} {number}" for kind in kinds]


def check(place: Place, killed_at: str) -> str:
    """The life after the kill, in this process; how the first run has ended."""
    promised = {name: place.told(name) for name in ("reference", "run-first", "outcome-first", "run-second")}
    asyncio.run(life(Place(place.folder, tools=place.tools)))
    for name, values in promised.items():
        # Nothing that was told is taken back: the same run, the same outcome, a reference that resolves.
        assert place.told(name)[: len(values)] == values, f"{killed_at}: {name} has changed"
        assert len(place.told(name)) == 1, f"{killed_at}: two of {name}: {place.told(name)}"
    assert place.told("lost-reference") == []
    far = Counter(place.lines("far"))
    assert set(far.values()) <= {1}, f"{killed_at}: sent or done twice: {far}"
    ends = []
    for request_id, text in (("first", FIRST), ("second", SECOND)):
        (run_id,), (told,) = place.told(f"run-{request_id}"), place.told(f"outcome-{request_id}")
        status, outcome_run, rest = json.loads(told)
        assert outcome_run == run_id
        sent, done = far[f"input {run_id} {text}"], far[f"effect {run_id}"]
        if place.tools:
            # What the native side was told is what the source says, and it was told once.
            told_lines = [line for line in far if line.startswith(f"told {run_id} ")]
            assert told_lines in ([], [f"told {run_id} {'noted' if done else 'never noted'}"]), killed_at
            assert status != "completed" or told_lines, killed_at
        if status == "completed":
            assert (sent, rest) == (1, f"Answer to {text}"), killed_at
            assert done == 1 or place.tools, killed_at
        else:
            assert status == "unknown", killed_at
            assert rest == json.loads(place.told("reference")[0])["session_id"]
            assert sent <= 1
        ends.append(status)
    inputs = [line for line in far if line.startswith("input ")]
    assert len(inputs) <= 2, f"{killed_at}: an input nobody knows of: {inputs}"
    asyncio.run(check_store(place, ends))
    return str(ends[0])


async def check_store(place: Place, ends: list[str]) -> None:
    store = await open_agent_store(place.folder / "agent.sqlite3", profile="p", agent=AGENT)
    try:
        (reference,) = place.told("reference")
        session_id = json.loads(reference)["session_id"]

        def read(tx: AgentTx) -> object:
            items = [item for head in tx.items(session_id, 0, 100, 0) if (item := tx.item(head.item_id)) is not None]
            users = [item.text for item in items if item.kind == "user"]
            still_open = [item.item_id for item in items if item.state == "open"]
            return users, still_open, [run.phase for run in tx.runs(session_id)], tx.open_runs()

        assert await store.read(read) == ([FIRST, SECOND], [], ends, [])
    finally:
        await store.close()


def kill_at_each(
    folder: Path, kinds: tuple[str, ...], prepare: Callable[[Place], None] = lambda place: None, *, tools: bool = False
) -> dict[str, str]:
    """A life killed at each point of these kinds, until it has none left; how the first run then ended."""

    def one(point: str) -> tuple[str, int, str]:
        place = Place(folder / point.replace(" ", "-"), tools=tools)
        place.folder.mkdir()
        prepare(place)
        code = start(place, point)
        return point, code, check(place, point)

    ended: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=2) as pool:
        for some in points(kinds):
            told = list(pool.map(one, some))
            if all(code == 0 for _, code, _ in told):
                return ended
            ended |= {point: end for point, code, end in told if code == -9}
    raise AssertionError("unreachable")


def test_before_and_after_each_commit(tmp_path: Path) -> None:
    ended = kill_at_each(tmp_path, ("before", "after"))
    # Open the session, admit, dispatch, write items, end; twice the last four; put away.
    assert len(ended) >= 2 * 9, ended
    assert {"completed", "unknown"} == set(ended.values()), ended
    # Durable and never sent, the input is sent by the next life: the kill costs nothing.
    assert ended["before 2"] == ended["after 2"] == ended["before 3"] == "completed"
    assert ended["after 3"] == "unknown"


def test_between_any_two_steps_of_the_harness(tmp_path: Path) -> None:
    ended = kill_at_each(tmp_path, ("step",))
    assert len(ended) == 2 * 8, ended
    first_run = [ended[f"step {number}"] for number in range(1, 9)]
    # Sent, perhaps done, and nobody was there to hear the end of it.
    assert first_run == ["unknown"] * 8


@pytest.mark.parametrize(
    "earlier",
    ["after 2", pytest.param("after 3", marks=pytest.mark.soak), pytest.param("step 4", marks=pytest.mark.soak)],
)
def test_before_and_after_each_commit_of_the_life_after_a_kill(tmp_path: Path, earlier: str) -> None:
    def die_once(place: Place) -> None:
        assert start(place, earlier) == -9

    ended = kill_at_each(tmp_path, ("before", "after"), die_once)
    assert len(ended) >= 2 * 5, ended
    assert set(ended.values()) <= {"completed", "unknown"}


def test_before_and_after_each_commit_with_a_host_tool(tmp_path: Path) -> None:
    ended = kill_at_each(tmp_path, ("before", "after"), tools=True)
    assert len(ended) >= 2 * 15, ended
    # Between the request for a call and its telling the next step of the harness was certainly not taken: the
    # run goes on there and is no guess.
    assert {"completed", "unknown"} == set(ended.values()), ended


@pytest.mark.parametrize(("point", "noted"), [("tool before", 0), ("tool after", 1)])
def test_around_the_effect_of_a_host_tool(tmp_path: Path, point: str, noted: int) -> None:
    place = Place(tmp_path, tools=True)
    assert start(place, point) == -9
    # The source says what became of it; the call is never made again, and the run goes on with what it says.
    assert check(place, point) == "completed"
    (run_id,) = place.told("run-first")
    assert place.lines("far").count(f"effect {run_id}") == noted
