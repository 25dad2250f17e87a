"""Run the whole test suite in four lanes at once, each in a session of its own.

Real processes are two of them; the contracts, which talk to servers and programs, are one; all the rest is one. The
first three mostly wait, so that there is room beside them. Owns the division and the one closing line for all. Must not
know any test. Standard library only. Invariant: a lane that fails, or runs nothing, fails the whole.

    lanes.py [PYTEST OPTIONS | PATHS]

With paths there is one lane, for them.
"""

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = "tests/process"
WINDOWS = "tests/ui/test_process.py"
"""Real windows, which wait as real processes do."""
CONTRACTS = "tests/contract"
NOTHING_RAN = 5
"""pytest's exit code for it."""
SESSION = [sys.executable, str(ROOT / "packaging" / "scripts" / "session.py"), "--"]
PYTEST = [sys.executable, "-m", "pytest", "--basetemp={tmp}/p"]
ORDER = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")
CLOSING = re.compile(r"=+ (.*) in [0-9.]+s.*=+\s*\Z")
COUNT = re.compile(r"(\d+) (\w+)")


def lanes(arguments: list[str]) -> list[list[str]]:
    """What each lane's pytest is told."""
    if any(not each.startswith("-") and (ROOT / each.partition("::")[0]).exists() for each in arguments):
        return [arguments]
    files = sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / PROCESSES).glob("test_*.py"))
    # Neighbours by name are of one kind, so each lane gets every other one.
    processes = [files[1::2], [WINDOWS, *files[::2]]]
    rest = ["tests", *(f"--ignore={each}" for each in (PROCESSES, WINDOWS, CONTRACTS))]
    return [[*some, *arguments] for some in (*processes, [CONTRACTS], rest)]


def counts(output: str) -> Counter[str]:
    """The counts of the closing line of a run."""
    for line in reversed(output.splitlines()):
        found = CLOSING.match(line)
        if found:
            return Counter({_plural(word): int(number) for number, word in COUNT.findall(found[1])})
    return Counter()


def closing_line(total: Counter[str], took_s: float) -> str:
    """As pytest closes a run."""
    told = ", ".join(f"{total[word]} {word}" for word in ORDER if total[word]) or "no tests ran"
    return f" {told} in {took_s:.2f}s ({time.strftime('%H:%M:%S', time.gmtime(took_s))}) ".center(80, "=")


def _plural(word: str) -> str:
    return {"error": "errors", "warning": "warnings"}.get(word, word)


def _start(arguments: list[str], out: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*SESSION, *PYTEST, *arguments], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)


def _follow(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Show what a lane writes, until it has ended."""
    with path.open("rb") as written:
        while True:
            ended = process.poll() is not None
            piece = written.read()
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
            if ended and not piece:
                return
            if not piece:
                time.sleep(0.2)


def main(arguments: list[str]) -> int:
    """Run all lanes; the exit code is that of the first that failed."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="remuda-lanes-") as folder:
        running: list[tuple[Path, subprocess.Popen[bytes]]] = []
        try:
            for number, lane in enumerate(lanes(arguments)):
                path = Path(folder, f"{number}.log")
                with path.open("wb") as out:
                    running.append((path, _start(lane, out)))
            for path, process in running:
                _follow(path, process)
        finally:
            # Interrupted: a session ends all that it started.
            for _, process in running:
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
            for _, process in running:
                process.wait()
        total: Counter[str] = Counter()
        for path, _ in running:
            total.update(counts(path.read_text("utf-8", "replace")))
    if len(running) > 1:
        print(closing_line(total, time.monotonic() - began_s), flush=True)
    codes = [process.returncode for _, process in running]
    if total["passed"] and any(each.startswith(("-k", "-m")) for each in arguments):
        # What was asked for may all lie in one lane.
        codes = [code for code in codes if code != NOTHING_RAN]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
