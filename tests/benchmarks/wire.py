"""From a harness to the renderer: how many events, how late, and what a renderer costs that never reads.

Host and reader are two processes (`wire_host`, `wire_reader`); each measurement is made twice a round: the
pairs are the A/A run.
"""

import json
import math
import statistics
import subprocess
import sys
from typing import Any

from tests.benchmarks.gates import Gate, Report, aa_noise, percentile
from tests.benchmarks.options import Options

SESSIONS = 8
RATE_LIMIT_US = 20.0
"""50,000 events a second."""
DELAY_LIMIT_MS = 20.0
GROWTH_LIMIT_MB = 4.0
RATE_EVENTS = 400_000
PACED_EVENTS = 8_000


def measure(kind: str, sessions: int, events: int, plant: bool) -> Any:
    command = [sys.executable, "-m", "tests.benchmarks.wire_host", kind, str(sessions), str(events)]
    done = subprocess.run([*command, *(["--plant"] * plant)], stdout=subprocess.PIPE, timeout=600, check=True)
    return json.loads(done.stdout)


def run(options: Options) -> Report:
    """The rate, the delay, the renderer that never reads."""
    report = Report(f"wire, {SESSIONS} sessions")
    plant = options.plant == "slow"
    rounds = max(2, options.rounds // 3)
    many = min(RATE_EVENTS, options.events)
    cost: tuple[list[float], list[float]] = ([], [])
    late: tuple[list[float], list[float]] = ([], [])
    lost = 0
    every: list[float] = []
    for _ in range(rounds):
        for costs, p99s in zip(cost, late, strict=True):
            found = measure("rate", SESSIONS, many, plant)
            lost += many // SESSIONS * SESSIONS - found["stamps"]
            costs.append(found["took_s"] / found["stamps"] * 1e6)
            delays = measure("delays", 1, PACED_EVENTS, plant)["delays"]
            p99s.append(percentile(delays, 0.99))
            every += delays
    # Of a way on which something is lost the speed is not asked.
    each = statistics.median([*cost[0], *cost[1]]) if not lost else math.nan
    report.gates += [
        Gate("time an event, harness to renderer", each, RATE_LIMIT_US, aa_noise(*cost), "µs"),
        Gate(
            "p99 delay at 2,000 events/s",
            statistics.median([*late[0], *late[1]]),
            DELAY_LIMIT_MS,
            aa_noise(*late),
            "ms",
        ),
        Gate(
            "growth while the renderer never reads",
            measure("growth", 1, options.events, plant) / 1e6,
            GROWTH_LIMIT_MB,
            unit="MB",
        ),
    ]
    report.figures.append(
        f"{1e6 / each:,.0f} events/s, {lost} lost;"
        f" delay p50 {percentile(every, 0.5):.1f}, p99 {percentile(every, 0.99):.1f} ms"
    )
    return report
