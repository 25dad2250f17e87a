"""What a run's events cost on their way into the journal: on a slow disk, with nobody reading, at full speed.

Each measurement is a process of its own (`journal_host`), made twice a round: the pairs are the A/A run.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.gates import Gate, Report, aa_noise, percentile
from tests.benchmarks.options import Options

SHIM = Path(__file__).parents[1] / "faults/sync_shim.c"
SYNC_DELAY_MS = 10
P99_LIMIT_MS = 5.0
GROWTH_LIMIT_MB = 4.0
PUMP_LIMIT_US = 20.0
"""50,000 events a second."""
PACED_EVENTS = 6_000
PUMPED_EVENTS = 5_000


def measure(kind: str, count: int, plant: bool, **variables: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        command = [sys.executable, "-m", "tests.benchmarks.journal_host", kind, folder, str(count)]
        done = subprocess.run(
            [*command, *(["--plant"] * plant)],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            timeout=600,
            check=True,
        )
    return json.loads(done.stdout)


def run(options: Options) -> Report:
    """The delays, the growth, the cost."""
    report = Report(f"journal, {options.events:,} events")
    plant = options.plant == "slow"
    rounds = max(2, options.rounds // 3)
    if shutil.which("gcc") is None:
        # Without a slow disk nothing is known of one: no gate, which is a failure.
        report.figures.append("needs gcc, for a disk that is slow to sync")
        return report
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        shim = Path(folder, "sync_shim.so")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", shim, SHIM, "-ldl"], check=True, timeout=60)
        slow_disk = {"LD_PRELOAD": str(shim), "REMUDA_SYNC_DELAY_MS": str(SYNC_DELAY_MS)}
        first = [measure("delays", PACED_EVENTS, plant, **slow_disk) for _ in range(rounds)]
        second = [measure("delays", PACED_EVENTS, plant, **slow_disk) for _ in range(rounds)]
    ours, again = ([percentile(delays, 0.99) for delays in runs] for runs in (first, second))
    report.gates.append(
        Gate(
            f"event p99 with syncs of {SYNC_DELAY_MS} ms",
            statistics.median([*ours, *again]),
            P99_LIMIT_MS,
            aa_noise(ours, again),
            "ms",
        )
    )
    every = [delay for runs in (first, second) for delays in runs for delay in delays]
    report.figures.append(
        f"from harness to reader p50 {percentile(every, 0.5):.2f}, p99 {percentile(every, 0.99):.2f},"
        f" worst {max(every):.1f} ms of {len(every):,}"
    )
    grown_mb = measure("growth", options.events, plant) / 1e6
    report.gates.append(
        Gate(f"growth over {options.events:,} events that nobody reads", grown_mb, GROWTH_LIMIT_MB, unit="MB")
    )
    pump, pump_again = ([measure("pump", PUMPED_EVENTS, plant) for _ in range(rounds)] for _ in range(2))
    report.gates.append(
        Gate(
            "a tool's event with a secret to mask",
            statistics.median([*pump, *pump_again]),
            PUMP_LIMIT_US,
            aa_noise(pump, pump_again),
            "µs",
        )
    )
    return report
