"""Files lie where they belong, private whatever the umask."""

import contextlib
import ctypes
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop import host_lock, paths


@pytest.fixture
def open_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_every_folder_is_private(tmp_path: Path) -> None:
    profile = paths.profile(tmp_path / "deep" / "data")
    for folder in (tmp_path / "deep", profile.data, profile.root, profile.run, profile.logs):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


def test_a_folder_that_was_too_open_is_tightened(tmp_path: Path) -> None:
    wide = tmp_path / "data"
    wide.mkdir()
    wide.chmod(0o755)
    paths.profile(wide)
    assert stat.S_IMODE(wide.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "x" * 65, "a\x00b", "tab\t"])
def test_a_profile_name_that_is_no_plain_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="profile"):
        paths.profile(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_remuda_home_moves_everything_and_data_dir_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    assert paths.data_dir() == tmp_path / "home"
    assert paths.data_dir(str(tmp_path / "other")) == tmp_path / "other"
    monkeypatch.delenv("REMUDA_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert paths.data_dir() == tmp_path / "xdg" / "remuda"


def test_a_socket_that_would_not_fit_lies_elsewhere_and_never_collides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "rt"))
    deep = tmp_path / ("d" * 100)
    first = paths.socket_path(deep / "one", "control.sock")
    second = paths.socket_path(deep / "two", "control.sock")
    assert first != second
    for path in (first, second):
        assert len(os.fsencode(path)) < paths.SUN_PATH_BYTES
        assert path.is_relative_to(tmp_path / "rt")
    assert paths.socket_path(Path("/short"), "control.sock") == Path("/short/control.sock")


def test_one_host_a_profile_and_a_dead_one_does_not_block(tmp_path: Path) -> None:
    lock = host_lock.acquire(tmp_path / "host.lock")
    assert lock is not None
    assert host_lock.acquire(tmp_path / "host.lock") is None
    assert not os.get_inheritable(lock._descriptor)
    lock.release()
    lock.release()
    again = host_lock.acquire(tmp_path / "host.lock")
    assert again is not None
    again.release()
    assert stat.S_IMODE((tmp_path / "host.lock").stat().st_mode) == 0o600


def test_a_lock_file_that_is_a_link_changes_nothing_behind_it(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("precious", encoding="utf-8")
    other.chmod(0o644)
    (tmp_path / "host.lock").symlink_to(other)
    with pytest.raises(OSError, match=r"host\.lock"):
        host_lock.acquire(tmp_path / "host.lock")
    assert stat.S_IMODE(other.stat().st_mode) == 0o644


def test_a_file_in_place_of_a_folder_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine", encoding="utf-8")
    (tmp_path / "data").chmod(0o644)
    with pytest.raises(NotADirectoryError):
        paths.private_dir(tmp_path / "data")
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o644


@pytest.mark.needs("linux")
def test_what_somebody_left_in_place_of_the_new_file_is_not_written_into(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("precious", encoding="utf-8")
    for leave in (os.mkfifo, lambda new: os.link(other, new)):
        leave(tmp_path / ".name.new")
        paths.write_private(tmp_path / "name", "new")
        assert (tmp_path / "name").read_text(encoding="utf-8") == "new"
    assert other.read_text(encoding="utf-8") == "precious"


@contextlib.contextmanager
def with_files_of(user_id: int) -> Iterator[None]:
    """Where the tests run as root: files are reached with the rights of this user alone."""
    if os.getuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None)
    libc.setfsuid(user_id)
    try:
        yield
    finally:
        libc.setfsuid(0)


@pytest.mark.needs("linux")
def test_a_tree_goes_though_programs_made_parts_of_it_read_only() -> None:
    """Package stores of harnesses are such, and they lie in an agent's folder."""
    user_id = os.getuid() or 61_234
    outside = Path(tempfile.mkdtemp())
    try:
        os.chown(outside, user_id, -1)
        with with_files_of(user_id):
            kept = outside / "kept"
            kept.mkdir(mode=0o500)
            deep = outside / "tree" / "a" / "b"
            deep.mkdir(parents=True)
            (deep / "file").write_text("x", encoding="utf-8")
            (deep / "link").symlink_to(kept)
            for folder, mode in ((deep, 0o500), (deep.parent, 0o000), (outside / "tree", 0o500)):
                folder.chmod(mode)
            paths.remove_tree(outside / "tree")
            assert os.listdir(outside) == ["kept"]
            assert stat.S_IMODE(kept.stat().st_mode) == 0o500
    finally:
        shutil.rmtree(outside)


@pytest.mark.needs("root")
def test_a_folder_of_another_user_is_no_private_folder(tmp_path: Path) -> None:
    """In a shared temporary folder another user may have made it first, to own the socket in it."""
    squatted = tmp_path / "squatted"
    squatted.mkdir(mode=0o700)
    os.chown(squatted, 65534, 65534)
    with pytest.raises(PermissionError):
        paths.private_dir(squatted)
