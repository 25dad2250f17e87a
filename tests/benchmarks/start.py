"""From exec to the first painted window: the app against an empty QML window, side by side.

Both are started by the same host code with the same walls (`start_host`), one after the other in turn;
the empty one twice a round, which is the A/A run.
"""

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time

from tests.benchmarks.gates import Gate, Report, aa_noise, paired_ratio
from tests.benchmarks.options import Options
from tests.benchmarks.processes import end

LIMIT = 1.3
PATIENCE_S = 60.0
QUIET, MOST_BATCHES = 0.08, 3
"""Rounds are repeated while a limit is passed in more noise than this."""


class NoWindow(Exception):
    """A start that painted nothing; the message says what the host said."""


def start_once(kind: str, *, slow: bool = False) -> tuple[float, list[str]]:
    """Seconds from exec to the first painted frame, and the provider SDKs the host had loaded by then."""
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="b") as folder, open(f"{folder}/said", "w+b") as said:
        command = [sys.executable, "-I", "-m", "tests.benchmarks.start_host", kind, str(writing), f"{folder}/data"]
        command += ["--slow"] * slow
        started_ns = time.monotonic_ns()
        host = subprocess.Popen(command, pass_fds=(writing,), stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as answers:
                line = answers.readline() if select.select([answers], [], [], PATIENCE_S)[0] else b""
        finally:
            end(host)
        if not line:
            said.seek(0)
            raise NoWindow(
                f"{kind}: no window was painted. The host said: {said.read().decode('utf-8', 'replace')[-2_000:]}"
            )
    answer = json.loads(line)
    return (answer["painted_ns"] - started_ns) / 1e9, answer["sdks"]


def run(options: Options) -> Report:
    """Interleave rounds of app, empty window, empty window again; more of them while the noise hides the answer."""
    slow = options.plant == "slow"
    app: list[float] = []
    first: list[float] = []
    second: list[float] = []
    sdks: set[str] = set()
    start_once("app")  # fills the page cache
    batches = 0
    while True:
        batches += 1
        for _ in range(options.rounds):
            took, loaded = start_once("app", slow=slow)
            app.append(took)
            sdks.update(loaded)
            first.append(start_once("empty")[0])
            second.append(start_once("empty")[0])
        base = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
        gate = Gate("app against an empty window", paired_ratio(app, base), LIMIT, aa_noise(first, second))
        if gate.verdict == "ok" or gate.noise <= QUIET or batches == MOST_BATCHES:
            break
    return Report(
        "start, exec to first painted window",
        [gate, Gate("provider SDKs loaded before it", len(sdks), 0, unit="modules")],
        [
            f"app {statistics.median(app) * 1e3:.0f} ms, empty window {statistics.median(base) * 1e3:.0f} ms"
            f" (medians of {len(app)}; best {min(app) * 1e3:.0f} and {min(base) * 1e3:.0f} ms)"
        ],
    )
