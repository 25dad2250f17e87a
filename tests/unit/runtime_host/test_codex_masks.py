"""What the Codex CLI puts into a workspace while a command runs, and what a kill leaves of it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime_host.drivers.codex.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home.take(str(tmp_path / "homes" / "session"), "session")
    yield home
    home.let_go()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / ".agents").mkdir(parents=True)
    return work


def test_what_a_killed_run_left_goes_with_the_next_one(home: Home, work: Path) -> None:
    home.begin_masks(str(work))
    for name in (".git", ".codex", ".aws"):
        (work / name).mkdir()
    (work / ".aws" / "config").touch()
    home.begin_masks(str(work))
    assert sorted(os.listdir(work)) == [".agents", ".aws"], "the person's own was taken, or what is nobody's stays"


def test_another_session_clears_what_one_left_in_the_same_folder_and_in_no_other(home: Home, work: Path) -> None:
    other = work.parent / "other"
    other.mkdir()
    home.begin_masks(str(work))
    (work / ".git").mkdir()
    home.let_go()
    next_one = Home.take(str(work.parent / "homes" / "next"), "next")
    next_one.begin_masks(str(other))
    assert (work / ".git").exists()
    next_one.begin_masks(str(work))
    assert os.listdir(work) == [".agents"]
    next_one.let_go()


def test_what_is_made_between_runs_is_nobody_s_to_take(home: Home, work: Path) -> None:
    home.begin_masks(str(work))
    home.end_masks(str(work))
    (work / ".git").mkdir()
    home.begin_masks(str(work))
    home.end_masks(str(work))
    assert sorted(os.listdir(work)) == [".agents", ".git"]


def test_a_link_in_its_place_leads_nowhere(home: Home, work: Path, tmp_path: Path) -> None:
    home.begin_masks(str(work))
    (tmp_path / "empty").mkdir()
    (work / ".git").symlink_to(tmp_path / "empty")
    home.end_masks(str(work))
    assert (tmp_path / "empty").is_dir()
