"""The level and the sentence of the isolation report."""

import json

import msgspec
import pytest

from desktop import doctor
from desktop.isolation import WallPlan
from ui.wire.dto import Isolation, Probe, Wall


def plan(*, bubblewrap: bool = True, x11: bool = False, supported: bool = True) -> WallPlan:
    rows = [("bubblewrap", "up" if bubblewrap else "down", "reason")]
    return WallPlan(rows, bubblewrap=bubblewrap, platform="wayland", x11=x11, supported=supported)  # type: ignore[arg-type]


def walls(**states: str) -> list[Wall]:
    return [Wall(name=name, state=state) for name, state in states.items()]  # type: ignore[arg-type]


UP = walls(landlock="up", seccomp="up")
BLOCKED = Probe(name="fork", verdict="blocked", detail="EPERM")


def test_both_required_walls_and_nothing_open_is_walled() -> None:
    page = doctor.isolation(plan(), UP, [BLOCKED])
    assert page.level == "walled"
    assert page.sentence.startswith("The kernel holds the renderer")
    assert "X11" not in page.sentence


@pytest.mark.parametrize("missing", ["landlock", "seccomp"])
def test_one_required_wall_missing_is_partly(missing: str) -> None:
    for states in ({missing: "down"}, {missing: "not-applicable"}, {}):
        others = {name: "up" for name in ("landlock", "seccomp") if name != missing}
        page = doctor.isolation(plan(), walls(**others, **states), [BLOCKED])
        assert page.level == "partly"
        assert missing in page.sentence


def test_bubblewrap_alone_is_no_required_wall() -> None:
    assert doctor.isolation(plan(), walls(landlock="down", seccomp="down")).level == "none"


def test_an_attempt_that_got_through_is_named_and_lowers_the_level() -> None:
    page = doctor.isolation(plan(), UP, [Probe(name="fork", verdict="open"), BLOCKED])
    assert page.level == "partly"
    assert "fork" in page.sentence


def test_x11_is_said_and_does_not_lower_the_level() -> None:
    probes = [Probe(name=name, verdict="open") for name in doctor.X11_PROBES]
    page = doctor.isolation(plan(x11=True), UP, probes)
    assert page.level == "walled"
    assert "On X11 every window is within the reach of every other" in page.sentence
    # The same without X11 would be a hole.
    assert doctor.isolation(plan(x11=False), UP, probes).level == "partly"


def test_what_only_bubblewrap_closes_is_said() -> None:
    open_stat = [Probe(name="see that a file exists", verdict="open")]
    page = doctor.isolation(plan(bubblewrap=False), UP, open_stat)
    assert page.level == "walled"
    assert "whether a file exists" in page.sentence
    assert doctor.isolation(plan(bubblewrap=True), UP, open_stat).level == "partly"


def test_a_decoy_that_was_reached_counts_against_the_renderer() -> None:
    lie = Probe(name="tcp to this machine", verdict="blocked", detail="EPERM")
    page = doctor.isolation(plan(), UP, [lie], touched={"tcp to this machine"})
    assert page.level == "partly"
    assert page.probes[0].verdict == "open"
    assert "the renderer denies it" in page.probes[0].detail


def test_a_system_without_walls_is_none_whatever_is_claimed() -> None:
    page = doctor.isolation(plan(supported=False), UP)
    assert page.level == "none"
    assert "not isolated on this system yet" in page.sentence


def test_what_the_launcher_knows_overrides_what_the_renderer_thinks() -> None:
    launcher = WallPlan([("user", "down", "root outside")], bubblewrap=True, platform="", x11=False)
    page = doctor.isolation(launcher, [*UP, Wall(name="user", state="up", detail="uid 65534")])
    assert [(w.state, w.detail) for w in page.walls if w.name == "user"] == [("down", "root outside")]


def test_the_page_fits_the_wire_and_the_report_is_json() -> None:
    probes = [Probe(name=f"probe {n}", verdict="blocked", detail="x" * 500) for n in range(40)]
    page = doctor.isolation(
        plan(x11=True, bubblewrap=False), UP, probes, host_memory=Wall(name="host memory", state="up")
    )
    assert msgspec.json.decode(msgspec.json.encode(page), type=Isolation) == page
    report = json.loads(json.dumps(doctor.report(page)))
    assert set(report) == {"level", "sentence", "walls", "probes", "system"}
    assert len(report["probes"]) == 40
