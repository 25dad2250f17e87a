"""Where a harness's program looks for other programs."""

import os
from pathlib import Path

import pytest

from runtime_host.programs import search_path


@pytest.mark.parametrize("place", ["", ".", "bin", "../bin", "./node_modules/.bin"])
def test_a_place_that_depends_on_where_a_program_is_is_none(place: str) -> None:
    assert search_path(os.pathsep.join(("/usr/bin", place, "/bin"))) == "/usr/bin:/bin"


def test_what_lies_in_a_folder_that_is_worked_in_is_not_looked_at(tmp_path: Path) -> None:
    work, tools, twin = tmp_path / "work", tmp_path / "tools", tmp_path / "work-tools"
    for folder in (work / "bin", tools, twin):
        folder.mkdir(parents=True)
    (tmp_path / "alias").symlink_to(work)
    (work / "out").symlink_to(tools)
    (tools / "in").symlink_to(work / "bin")
    inside = [work, work / "bin", work / "not-there-yet", tmp_path / "alias" / "bin", work / "out", tools / "in"]
    inside += [tools / ".." / "work" / "bin"]
    outside = [tools, twin, Path("/usr/bin")]
    named = os.pathsep.join(map(str, (*inside, *outside)))
    assert search_path(named, apart_from=[str(tmp_path / "alias")]) == os.pathsep.join(map(str, outside))


def test_the_system_s_own_programs_are_found_where_nothing_else_is_left(tmp_path: Path) -> None:
    assert search_path(str(tmp_path), apart_from=[str(tmp_path)]).split(os.pathsep)[-1] == "/bin"
    assert search_path("") == search_path(".")
