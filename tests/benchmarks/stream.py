"""A streamed reply: what an update costs the thread that also has to answer the person.

The same stream into a short and a long transcript, after a short and a long open code fence, and as the
coloured output of a command that has written much already, one after the other in turn; the short one twice
a round, which is the A/A run. Costs are processor time of the GUI thread (`stream_window`), so that other
work on the machine does not count.
"""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field

from tests.benchmarks.gates import Gate, Report, aa_noise, paired_ratio, percentile
from tests.benchmarks.options import Options

P95_LIMIT_MS = 12.0
FLAT = 1.25
UPDATES = 150
SHORT_ROWS = 1_000
SHORT_FENCE, LONG_FENCE = 2_000, 60_000
OUTPUT_CHARS = 200_000


class NoStream(Exception):
    """A window that did not stream; the message says what it said."""


@dataclass
class Series:
    """One way to stream: the medians of its runs, and every update of all of them."""

    rows: int
    fence_chars: int = 0
    command: bool = False
    medians: list[float] = field(default_factory=list)
    busy_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)

    def run(self, *, slow: bool) -> None:
        command = [sys.executable, "-I", "-m", "tests.benchmarks.stream_window"]
        command += [str(self.rows), str(self.fence_chars), str(UPDATES)]
        command += ["--command"] * self.command + ["--slow"] * slow
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0 or not done.stdout:
            raise NoStream(done.stderr[-2_000:])
        measured = json.loads(done.stdout.splitlines()[-1])
        self.medians.append(statistics.median(measured["busy_ms"]))
        self.busy_ms += measured["busy_ms"]
        self.wall_ms += measured["wall_ms"]

    def text(self) -> str:
        busy, wall = self.busy_ms, self.wall_ms
        return (
            f"GUI thread p50 {percentile(busy, 0.5):.1f} p95 {percentile(busy, 0.95):.1f} ms,"
            f" from update to update p50 {percentile(wall, 0.5):.1f} p95 {percentile(wall, 0.95):.1f} ms"
        )


def run(options: Options) -> Report:
    """Interleave rounds of the series."""
    report = Report(f"stream, {options.rows:,} rows at 2,000 tokens/s")
    if "DISPLAY" not in os.environ:
        report.figures.append("needs an X display: `make bench`")
        return report
    slow = options.plant == "slow"
    short, again, long = Series(SHORT_ROWS), Series(SHORT_ROWS), Series(options.rows)
    fence, long_fence = Series(SHORT_ROWS, SHORT_FENCE), Series(SHORT_ROWS, LONG_FENCE)
    output = Series(SHORT_ROWS, OUTPUT_CHARS, command=True)
    for _ in range(max(3, options.rounds // 2)):
        for series in (short, long, again, fence, long_fence, output):
            series.run(slow=slow)
    noise = aa_noise(short.medians, again.medians)
    base = [(a + b) / 2 for a, b in zip(short.medians, again.medians, strict=True)]
    report.gates = [
        Gate(f"update in {options.rows:,} rows, p95", percentile(long.busy_ms, 0.95), P95_LIMIT_MS, noise, "ms"),
        Gate("update of a command's output, p95", percentile(output.busy_ms, 0.95), P95_LIMIT_MS, noise, "ms"),
        Gate("long transcript against a short one", paired_ratio(long.medians, base), FLAT, noise),
        Gate("long open fence against a short one", paired_ratio(long_fence.medians, fence.medians), FLAT, noise),
    ]
    for name, series in (
        (f"{SHORT_ROWS:,} rows", short),
        (f"{options.rows:,} rows", long),
        (f"fence of {SHORT_FENCE:,} characters", fence),
        (f"fence of {LONG_FENCE:,} characters", long_fence),
        (f"output of {OUTPUT_CHARS:,} characters", output),
    ):
        report.figures.append(f"{name}: {series.text()}")
    return report
