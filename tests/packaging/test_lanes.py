"""The lanes of `make test`: nothing is run twice or left out, and one that fails fails the whole."""

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTHING_RAN = 5
SCRIPT = ROOT / "packaging" / "scripts" / "lanes.py"


@pytest.fixture(scope="module")
def lanes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lanes_of_the_tests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lanes_are_the_whole_suite(lanes: ModuleType) -> None:
    *processes, contracts, rest = lanes.lanes(["--durations=5"])
    windows = "tests/ui/test_process.py"
    assert contracts == ["tests/contract", "--durations=5"]
    assert rest == [
        "tests",
        "--ignore=tests/process",
        f"--ignore={windows}",
        "--ignore=tests/contract",
        "--durations=5",
    ]
    assert [lane[-1] for lane in processes] == ["--durations=5", "--durations=5"]
    files = sorted(file for lane in processes for file in lane[:-1])
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "process").rglob("test_*.py")}
    assert len(files) == len(set(files))
    assert set(files) == {windows, *there}


def test_paths_are_one_lane(lanes: ModuleType) -> None:
    assert lanes.lanes(["tests/unit", "-k", "wire"]) == [["tests/unit", "-k", "wire"]]
    assert lanes.lanes(["tests/arch/test_tree.py::test_x"]) == [["tests/arch/test_tree.py::test_x"]]


def test_the_closing_lines_are_added_up(lanes: ModuleType) -> None:
    first = lanes.counts("....\n=== 1 failed, 20 passed, 3 skipped in 41.20s ===\n")
    second = lanes.counts("....\n=== 100 passed, 1 error, 2 skipped in 1041.20s (0:17:21) ===")
    assert lanes.counts("killed in the middle") == Counter()
    line = lanes.closing_line(first + second, 1021.0)
    assert line == "=== 1 failed, 120 passed, 5 skipped, 1 errors in 1021.00s (00:17:01) ===".center(80, "=")


@pytest.mark.parametrize(("test", "status"), [("def test_it(): pass", 0), ("def test_it(): assert 0", 1), ("", 5)])
def test_a_lane_that_fails_or_runs_nothing_fails_the_whole(
    lanes: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    test: str,
    status: int,
) -> None:
    good, other = tmp_path / "test_good.py", tmp_path / "test_other.py"
    good.write_text("def test_it(): pass", "utf-8")
    other.write_text(test, "utf-8")
    monkeypatch.setattr(lanes, "SESSION", [])
    monkeypatch.setattr(
        lanes, "PYTEST", [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    )
    monkeypatch.setattr(lanes, "ROOT", tmp_path)
    monkeypatch.setattr(lanes, "lanes", lambda _: [[str(good)], [str(other)]])
    assert lanes.main([]) == status
    assert lanes.main(["-k", "it"]) == status % NOTHING_RAN
    closing = capfd.readouterr().out.splitlines()[-1]
    assert ("1 failed" in closing) == (status == 1)
    assert ("2 passed" in closing) == (status == 0)


def test_make_test_goes_by_them() -> None:
    told = subprocess.run(
        ["make", "-n", "test", "ARGS=tests/arch"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "packaging/scripts/lanes.py tests/arch" in told
