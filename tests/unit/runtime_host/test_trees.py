"""A folder goes with everything in it, however a program filled it."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from runtime_host.trees import remove_tree
from tests.unit.desktop.test_paths import with_files_of

ORDINARY = 61_234


def dig(folder: Path, levels: int, name: str = "d") -> None:
    """Folders within folders, deeper than a path can be long."""
    here = os.open(folder, os.O_RDONLY)
    for level in range(levels):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
        if level % 500 == 0:
            os.close(os.open("file", os.O_WRONLY | os.O_CREAT, 0o400, dir_fd=here))
    os.close(here)


@pytest.mark.parametrize("name", ["d", "n" * 255], ids=["short names", "longest names"])
def test_depth_is_of_no_account(name: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    dig(tree, 1200, name)
    (tree / "beside").mkdir()
    remove_tree(tree)
    assert os.listdir(tmp_path) == []


@pytest.mark.needs("root")
def test_modes_that_a_command_set_are_of_no_account() -> None:
    outside = Path(tempfile.mkdtemp())
    os.chown(outside, ORDINARY, -1)
    with with_files_of(ORDINARY):
        deep = outside / "tree" / "a" / "b"
        deep.mkdir(parents=True)
        dig(deep, 60)
        for folder, mode in ((deep, 0o000), (deep.parent, 0o100), (outside / "tree", 0o400)):
            folder.chmod(mode)
        remove_tree(outside / "tree")
        assert os.listdir(outside) == []
    outside.rmdir()


def test_links_are_removed_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o500)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(kept)
    remove_tree(tmp_path / "tree")
    (tmp_path / "tree").symlink_to(kept)
    with pytest.raises(OSError, match="tree"):
        remove_tree(tmp_path / "tree")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o500


def test_what_stays_is_told_once_and_the_mark_stays_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree" / "in").mkdir(parents=True)
    for name in ("mark", "in/stays", "in/goes"):
        (tmp_path / "tree" / name).touch()
    real = os.unlink

    def unlink(name: str, *, dir_fd: int | None = None) -> None:
        if name == "stays":
            raise PermissionError(1, "held", name)
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    told: list[str] = []
    remove_tree(tmp_path / "tree", on_fault=lambda path, _: told.append(path), last="mark")
    assert told == [str(tmp_path / "tree" / "in" / "stays")]
    assert sorted(str(each.relative_to(tmp_path / "tree")) for each in (tmp_path / "tree").rglob("*")) == [
        "in",
        "in/stays",
        "mark",
    ]
    monkeypatch.undo()
    remove_tree(tmp_path / "tree", last="mark")
    assert not (tmp_path / "tree").exists()
