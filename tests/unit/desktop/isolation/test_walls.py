"""What is asked of a wall, before any is raised; and the verdict over a trial."""

import os
from pathlib import Path

import pytest

from desktop.harness_programs import WallReport
from desktop.isolation import wall_trial, walls
from desktop.isolation.wall_trial import CHANGE_MODE, MUST_FAIL, ON_THE_NETWORK, SIGNAL, WRITE_WORKSPACE, Seen, Trial
from desktop.isolation.walls import WallError, WallOrder, real, spared
from desktop.orders import harnesses
from ui import lockdown


def test_an_order_survives_the_command_line_whatever_its_paths_are() -> None:
    odd = os.fsdecode(b"/a b/\xff=--x\n'")
    order = WallOrder((odd, "/r"), ("/w=1", "--write"), "all", ("/h",))
    assert WallOrder.of(order.arguments()) == order


@pytest.mark.parametrize(
    "arguments",
    [["--read=/a"], ["--network=some"], ["--network=none", "--network=all"], ["--network=none", "--readable=/a"],
     ["--network=none", "--read"], ["/a", "--network=none"]],
)  # fmt: skip
def test_an_order_that_is_not_whole_is_none(arguments: list[str]) -> None:
    with pytest.raises(WallError):
        WallOrder.of(arguments)


def test_a_folder_of_the_system_is_let_through_but_for_the_way_to_what_is_hidden(tmp_path: Path) -> None:
    for name in ("a/x", "b/data/secret", "b/other", "c"):
        (tmp_path / name).mkdir(parents=True)
    top = str(tmp_path)
    assert sorted(spared(top, (f"{top}/b/data",))) == [f"{top}/a", f"{top}/b/other", f"{top}/c"]
    assert list(spared(top, (top,))) == []
    assert list(spared(top, (f"{top}x",))) == [top]


def test_of_a_folder_only_what_every_user_may_read_is_named(tmp_path: Path) -> None:
    top = tmp_path / "etc"
    for name in ("open/a", "mixed/b", "mixed/secret", "shut/c"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch(0o644)
    (top / "open/link").symlink_to("../shut")
    for folder in (top, top / "open", top / "mixed"):
        folder.chmod(0o755)
    for name in ("open/a", "mixed/b", "shut/c"):
        (top / name).chmod(0o644)
    assert walls.public(str(top / "open")) == (True, [f"{top}/open"])
    (top / "mixed/secret").chmod(0o640)
    (top / "shut").chmod(0o700)
    whole, parts = walls.public(str(top))
    assert not whole
    assert sorted(parts) == [f"{top}/mixed/b", f"{top}/open"]


def test_a_link_anywhere_on_the_way_is_no_real_path(tmp_path: Path) -> None:
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    opened = real(str(tmp_path / "real/inner"))
    assert opened is not None
    try:
        assert os.path.samestat(os.fstat(opened), os.stat(tmp_path / "real/inner"))
    finally:
        os.close(opened)
    for path in ("link", "link/inner"):
        with pytest.raises(WallError, match="link"):
            real(str(tmp_path / path))
    assert real(str(tmp_path / "missing/inner")) is None


@pytest.mark.parametrize(
    "order",
    [WallOrder(("relative",)), WallOrder(("/a/../b",)), WallOrder(writable=("/data",), hidden=("/data",)),
     WallOrder(("/",), hidden=("/data",)), WallOrder(("/home/u",), hidden=("/home/u/data",))],
)  # fmt: skip
def test_an_order_that_would_open_what_is_hidden_is_refused(order: WallOrder) -> None:
    with pytest.raises(WallError):
        walls.check(order)


def test_what_is_named_inside_the_hidden_folder_is_meant() -> None:
    walls.check(WallOrder(("/usr/bin/x",), ("/data/agents/a/home", "/dat"), hidden=("/data",)))


def test_a_kernel_without_landlock_has_no_walls_and_one_with_any_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockdown, "filters_calls", lambda: True)
    monkeypatch.setattr("sys.platform", "linux")
    for version in range(1, 7):
        monkeypatch.setattr(lockdown, "landlock_abi", lambda version=version: version)
        assert walls.missing() == ""
    monkeypatch.setattr(lockdown, "landlock_abi", lambda: 0)
    assert "no Landlock" in walls.missing()
    with pytest.raises(WallError, match=r"Landlock"):
        walls.raise_wall(WallOrder())


# ------------------------------------------------------------------------------- the verdict


def seen(verdict: str, *other: str, other_verdict: str = "open") -> Seen:
    rows: Seen = {name: (verdict, "why") for name in (*MUST_FAIL, CHANGE_MODE)}
    return {**rows, WRITE_WORKSPACE: ("open", ""), **{name: (other_verdict, "why") for name in other}}


HELD = Trial(seen("open"), seen("blocked", *ON_THE_NETWORK), seen("blocked"), ON_THE_NETWORK, True, 6)


def test_walls_that_held_have_no_fault_and_the_report_is_read_as_it_was_written() -> None:
    assert wall_trial.fault(HELD) == ""
    assert Trial.of(HELD.packed()) == HELD


@pytest.mark.parametrize("name", sorted(MUST_FAIL))
def test_each_attempt_that_worked_is_a_fault_and_named(name: str) -> None:
    assert name in wall_trial.fault(HELD._replace(inner=seen("blocked", name)))
    if name not in ON_THE_NETWORK:
        assert name in wall_trial.fault(HELD._replace(outer=seen("blocked", *ON_THE_NETWORK, name)))


def test_what_a_decoy_noticed_is_a_fault_whatever_the_attacker_says() -> None:
    assert "socket file" in wall_trial.fault(HELD._replace(touched=frozenset({"socket file"})))


def test_a_trial_without_a_proof_or_an_answer_is_no_proof() -> None:
    for name in wall_trial.MUST_WORK_WITHOUT:
        assert name in wall_trial.fault(HELD._replace(without=seen("open", name, other_verdict="blocked")))
    assert "no answer" in wall_trial.fault(HELD._replace(inner={}))
    assert "workspace" in wall_trial.fault(HELD._replace(inner=seen("blocked", WRITE_WORKSPACE, other_verdict="no")))


def test_what_is_weaker_without_own_mounts_is_said_and_is_no_fault() -> None:
    less = HELD._replace(own_mounts=False, inner=seen("blocked", CHANGE_MODE))
    assert wall_trial.fault(less) == ""
    assert len(wall_trial.weaker(less)) == 2
    assert wall_trial.weaker(HELD) == ()


def test_signals_are_a_fault_where_they_can_be_held_and_said_where_they_cannot() -> None:
    loose = HELD._replace(inner=seen("blocked", SIGNAL), outer=seen("blocked", *ON_THE_NETWORK, SIGNAL))
    assert SIGNAL in wall_trial.fault(loose)
    for version in range(1, 6):
        older = loose._replace(landlock=version)
        assert wall_trial.fault(older) == ""
        assert f"here is Landlock {version}." in wall_trial.weaker(older)[0]
    # An older one excuses nothing else.
    assert "read host memory" in wall_trial.fault(HELD._replace(landlock=1, inner=seen("blocked", "read host memory")))


def test_the_doctor_does_not_say_that_all_was_denied_where_it_was_not() -> None:
    older = HELD._replace(landlock=4, inner=seen("blocked", SIGNAL))
    answers = [
        harnesses._walls(WallReport(wall_trial.fault(trial), wall_trial.weaker(trial), trial))
        for trial in (HELD, older)
    ]
    assert [answer["holds"] for answer in answers] == [True, True]
    assert [answer["sentence"] for answer in answers] == [harnesses.WALLS_HOLD, harnesses.NOT_LEFT]
    assert [len(answer["weaker"]) for answer in answers] == [0, 1]
    open_ones = [tried["name"] for tried in answers[1]["attempts"] if tried["verdict"] == "open"]
    assert open_ones == [SIGNAL]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"without": {"a": 1}}', "null"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no report"):
        Trial.of(text)
