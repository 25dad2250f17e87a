"""What doing nothing costs: the real app with many conversations, its window shown, then hidden.

Counts how often the kernel woke any thread of host and renderer (voluntary context switches), what the
host has started and which agents' files it holds open. Counts decide as they are: an idle
program has no noise.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.gates import Gate, Report, scaled_count
from tests.benchmarks.options import Options
from tests.benchmarks.processes import descendants, end, open_files, parent_of, renderer_of, resident_mb, wakes

SETTLE_S = 75.0
"""Until idle: the cursor blinks for 10 s, an agent's file rests after 60 s."""


class Counted:
    """Wakes of one process over a while, and by which thread."""

    def __init__(self, before: dict[int, tuple[str, int]], after: dict[int, tuple[str, int]]) -> None:
        by_thread = {task: (name, count - before.get(task, (name, 0))[1]) for task, (name, count) in after.items()}
        self.total = sum(count for _, count in by_thread.values())
        self.text = ", ".join(
            f"{name} {count}" for name, count in sorted(by_thread.values(), key=lambda r: -r[1]) if count
        )


def look(host: int, renderer: int, seconds: float) -> tuple[Counted, Counted]:
    """Host and renderer over `seconds`."""
    before = wakes(host), wakes(renderer)
    time.sleep(seconds)
    return Counted(before[0], wakes(host)), Counted(before[1], wakes(renderer))


def outside_the_window(host: int, renderer: int) -> set[int]:
    """What the host has started and has nothing to do with drawing."""
    drawing = {renderer}
    pid = renderer
    while (pid := parent_of(pid)) not in (0, 1, host):
        drawing.add(pid)
    return descendants(host) - drawing - descendants(renderer)


def order_windows(*order: str, title: str = "^Remuda$") -> bool:
    """Carry out an xdotool order on the app's window, as a window system would; whether there was one."""
    search = ["xdotool", "search", "--onlyvisible", "--name", title]
    windows = subprocess.run(search, capture_output=True, text=True, check=False).stdout.split()
    for window in windows:
        subprocess.run(["xdotool", *order, window], check=True)
    return bool(windows)


def run(options: Options) -> Report:
    """Fill a profile, start the app, let it settle, look at it shown and hidden."""
    report = Report(f"idle, {options.sessions} conversations, {options.seconds:.0f} s")
    if "DISPLAY" not in os.environ or shutil.which("xdotool") is None:
        report.figures.append("needs an X display and xdotool: `make bench`")
        return report
    with tempfile.TemporaryDirectory(prefix="b") as temporary:
        folder = Path(temporary, "data")
        subprocess.run([sys.executable, "-I", "-m", "tests.benchmarks.fill", folder, str(options.sessions)], check=True)
        program = "tests.benchmarks.idle_host" if options.plant == "timer" else "desktop"
        place = [str(folder)] if options.plant == "timer" else ["--data-dir", str(folder)]
        host = subprocess.Popen([sys.executable, "-I", "-m", program, *place], stdin=subprocess.DEVNULL)
        try:
            measure(host.pid, options.seconds, folder, report)
        finally:
            end(host)
    return report


def measure(host: int, seconds: float, folder: Path, report: Report) -> None:
    renderer = renderer_of(host)
    time.sleep(SETTLE_S / 3)
    # With the caret in the composer: the window as it is while somebody reads.
    focused = order_windows("windowfocus")
    time.sleep(SETTLE_S * 2 / 3)
    host_shown, shown = look(host, renderer, seconds)
    children = len(outside_the_window(host, renderer))
    files = open_files(host)
    agent_files = [name for name in files or () if name.startswith(str(folder / "profiles")) and "/agents/" in name]
    memory = f"host {resident_mb(host):.0f} MB, renderer {resident_mb(renderer):.0f} MB"
    if not focused or not order_windows("windowunmap"):
        report.figures.append("the window was not found on the display")
        return
    time.sleep(3.0)
    host_hidden, hidden = look(host, renderer, seconds)
    few, more = scaled_count(6, seconds), scaled_count(60, seconds)
    report.gates += [
        Gate("host, window shown", host_shown.total, few, unit="wakes"),
        Gate("host, window hidden", host_hidden.total, few, unit="wakes"),
        Gate("renderer, hidden", hidden.total, few, unit="wakes"),
        Gate("renderer, shown", shown.total, more, unit="wakes"),
        Gate("children besides the window", children, 0, unit="processes"),
    ]
    if files is None:
        report.figures.append("the host's descriptors can only be looked at as root: agent files not counted")
    else:
        report.gates.append(Gate("agents' files open", len(agent_files), 0, unit="files"))
    report.figures.append(memory)
    for name, counted in (("host shown", host_shown), ("renderer shown", shown), ("renderer hidden", hidden)):
        report.figures.append(f"{name}: {counted.text or 'never woken'}")
