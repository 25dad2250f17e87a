"""What the walls are, what the probes met, and one sentence about it.

Owns the level and the wording of the isolation report. Must not know processes: it is given
rows and results. Pure, but for naming the system.

Invariant: a wall the renderer did not report is never shown as up, and a decoy that noticed
being reached counts as open whatever the renderer says.
"""

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from desktop.isolation import WallPlan
from ui.wire.dto import Isolation, Probe, Wall

Level = Literal["walled", "partly", "none"]

REQUIRED_WALLS = ("landlock", "seccomp")

X11_PROBES = frozenset(
    {
        "x11: picture of the screen",
        "x11: picture of another window",
        "x11: keys held down",
        "x11: keys typed into another window",
        "x11: press keys for the person",
        "x11: record what is typed",
    }
)
"""Open to every program that holds an X server's trusted cookie, whatever the walls."""

WITHOUT_BUBBLEWRAP = frozenset({"see that a file exists"})
"""What only own mounts close: Landlock and seccomp do not hold the reading of names and sizes by exact path."""


def expected_open(*, x11: bool, bubblewrap: bool) -> frozenset[str]:
    """Probes that are open though every required wall stands."""
    return (X11_PROBES if x11 else frozenset()) | (frozenset() if bubblewrap else WITHOUT_BUBBLEWRAP)


def isolation(
    plan: WallPlan,
    renderer_walls: Iterable[Wall],
    probes: Iterable[Probe] = (),
    *,
    touched: Collection[str] = (),
    host_memory: Wall | None = None,
) -> Isolation:
    """The page's content.

    Args:
        plan: What the launcher raised.
        renderer_walls: What the renderer reported about itself.
        probes: What came of its attempts; none before they were made.
        touched: Probes whose decoy noticed being reached.
        host_memory: Whether the host's memory is closed to others.
    """
    launcher = [Wall(name=name, state=state, detail=detail) for name, state, detail in plan.rows]
    known_outside = {wall.name for wall in launcher}
    inside = [wall for wall in renderer_walls if wall.name not in known_outside]
    walls = [*inside, *launcher, *([host_memory] if host_memory is not None else [])]
    corrected = [_corrected(probe, touched) for probe in probes]
    level, sentence = _judged(plan, walls, corrected)
    return Isolation(level=level, sentence=sentence, walls=tuple(walls), probes=tuple(corrected), system=system_line())


def _corrected(probe: Probe, touched: Collection[str]) -> Probe:
    if probe.name in touched and probe.verdict != "open":
        return Probe(name=probe.name, verdict="open", detail="the decoy was reached, though the renderer denies it")
    return probe


def _judged(plan: WallPlan, walls: Sequence[Wall], probes: Sequence[Probe]) -> tuple[Level, str]:
    standing = {wall.name for wall in walls if wall.state == "up"}
    missing = [name for name in REQUIRED_WALLS if name not in standing]
    surprising = unexpected(plan, probes)
    if not plan.supported:
        return "none", "The renderer is not isolated on this system yet: nothing but good manners holds it."
    if len(missing) == len(REQUIRED_WALLS):
        return "none", "No wall stands around the renderer: it can do whatever this user can do."
    if missing:
        return "partly", f"One required wall is missing ({missing[0]}): the renderer is held only in part."
    if surprising:
        return "partly", f"The walls stand, but an attempt got through: {', '.join(surprising[:3])}."
    return "walled", _walled_sentence(plan, probes)


def _walled_sentence(plan: WallPlan, probes: Sequence[Probe]) -> str:
    words = ["The kernel holds the renderer: no network, no files of yours, no programs, no keys."]
    if not plan.bubblewrap:
        words.append("Without bubblewrap it can still learn whether a file exists.")
    if plan.x11:
        words.append(
            "On X11 every window is within the reach of every other: the renderer could take pictures of the screen, "
            "follow the keyboard and press buttons. A Wayland session closes that."
        )
    if not probes:
        words.append("The attempts to get out were not made yet.")
    return " ".join(words)


def unexpected(plan: WallPlan, probes: Iterable[Probe]) -> list[str]:
    """Probes that are open and should not be."""
    expected = expected_open(x11=plan.x11, bubblewrap=plan.bubblewrap)
    return [probe.name for probe in probes if probe.verdict == "open" and probe.name not in expected]


def system_line() -> str:
    """Kernel, processor and Python in one line."""
    return " · ".join(f"{name} {value}" for name, value in system().items())


def system() -> dict[str, str]:
    """What the report was made on."""
    if not hasattr(os, "uname"):
        return {"system": sys.platform, "python": sys.version.split()[0]}
    kernel = os.uname()
    return {
        "system": f"{kernel.sysname} {kernel.release}",
        "processor": kernel.machine,
        "python": sys.version.split()[0],
    }


def report(page: Isolation) -> dict[str, Any]:
    """The same as one JSON object."""
    return {
        "level": page.level,
        "sentence": page.sentence,
        "walls": [{"name": w.name, "state": w.state, "detail": w.detail} for w in page.walls],
        "probes": [{"name": p.name, "verdict": p.verdict, "detail": p.detail} for p in page.probes],
        "system": system(),
    }
