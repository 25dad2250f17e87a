"""A flood of events with a reader that never reads: the process does not grow with it, and the run ends."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GROWTH_BYTES = 4 * 1024 * 1024
JOURNAL_BYTES = 1024 * 1024
OUTPUT_EVENTS = 27_000
"""Of 3,776 characters each: about 100 MB."""

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]


def flood(folder: Path, kind: str, events: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.process.flood_child", str(folder), kind, str(events)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("kind", ["pieces", "tools", "output"])
def test_a_reader_that_never_reads_costs_nothing_and_the_result_settles(
    kind: str, tmp_path: Path, rounds: Callable[[int, int], int]
) -> None:
    events = {"pieces": 1_000_000, "tools": rounds(150_000, 1_000_000), "output": OUTPUT_EVENTS}[kind]
    told = flood(tmp_path, kind, events)
    assert told["status"] == "completed"
    assert told["last"] == "run.finished"
    assert told["retained_bytes"] <= JOURNAL_BYTES
    assert told["grown_bytes"] <= GROWTH_BYTES, told
    if kind == "pieces":
        # All of it: no limit holds for the text of a reply, and none of it is only in the events.
        assert told["kept_chars"] >= events
    if kind == "output":
        # Both runs' commands: beginning and end of each, and a line that says so.
        assert 2 * 1024 * 1024 <= told["kept_chars"] <= 2 * 1024 * 1024 + 1_000
        assert told["disk_bytes"] <= 16 * 1024 * 1024, told
    if kind == "tools":
        # Each was an event of its own; what is gone is told where it is missing.
        assert told["last_sequence"] > events
        assert told["gap_to"] > events / 2
