"""Command line of the benchmarks: which to run, what to plant, how to end."""

import argparse
import sys
from collections.abc import Callable

from tests.benchmarks import idle, journal, loop, start, storage, stream, wire
from tests.benchmarks.gates import Report
from tests.benchmarks.options import Options

BENCHMARKS: dict[str, Callable[[Options], Report]] = {
    "start": start.run,
    "stream": stream.run,
    "idle": idle.run,
    "storage": storage.run,
    "journal": journal.run,
    "loop": loop.run,
    "wire": wire.run,
}

PLANTED = {"slow": {"start", "stream", "storage", "journal", "loop", "wire"}, "timer": {"idle"}}
"""Which benchmarks must find which planted fault."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHMARKS)}; all without a name")
    parser.add_argument(
        "--plant", choices=("slow", "timer"), help="put in a slowdown, or a 1 Hz timer: the run must fail"
    )
    parser.add_argument("--rounds", type=int, default=9, help="rounds of all but `idle`")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long `idle` looks; its limits scale")
    parser.add_argument("--sessions", type=int, default=1_000, help="conversations of `idle`")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of `stream`'s long transcript")
    parser.add_argument("--events", type=int, default=1_000_000, help="events of `storage`, `journal` and `wire`")
    given = parser.parse_args()
    names = given.names or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    if given.plant and not PLANTED[given.plant] & set(names):
        parser.error(f"--plant {given.plant} is found by {' and '.join(sorted(PLANTED[given.plant]))}")
    options = Options(
        plant=given.plant,
        rounds=given.rounds,
        seconds=given.seconds,
        sessions=given.sessions,
        rows=given.rows,
        events=given.events,
    )
    passed = True
    for name in names:
        report = BENCHMARKS[name](options)
        print(report.text(), flush=True)
        passed = passed and report.passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
