"""Which folders are workspaces, which files of them an input may bring, and who works in one."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime_host.errors import AgentBusyError, AgentWorkspaceError
from runtime_host.workspace import Workspace, WorkspaceLeases, check_unchanged, inside, resolve_file, resolve_workspace


def resolved(path: Path, *, write: bool = False, private: tuple[str, ...] = ()) -> Workspace:
    return resolve_workspace(str(path), write=write, private=private)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "inner" / "most").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    return folder


# ----------------------------------------------------------------------------------------- folders


def test_a_folder_is_its_real_path_whatever_link_leads_to_it(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    for name in (place, tmp_path / "link", place / ".." / "work", tmp_path / "link" / "inner" / ".."):
        assert resolved(name).root == str(place.resolve())


@pytest.mark.parametrize("name", ["/", "missing", "file", "dangling", "nul\0"])
def test_what_is_no_folder_to_work_in_is_refused_in_words(name: str, place: Path) -> None:
    (place / "file").write_text("x")
    (place / "dangling").symlink_to(place / "nowhere")
    with pytest.raises(AgentWorkspaceError) as refused:
        resolve_workspace(name if name == "/" else f"{place}/{name}", write=False)
    assert refused.value.message.endswith(".")
    assert refused.value.error_code == "AGENT_WORKSPACE_ERROR"


@pytest.mark.parametrize("path", ["/proc", "/proc/self", "/sys/kernel", "/dev"])
def test_what_the_kernel_shows_as_folders_is_none_to_work_in(path: str) -> None:
    with pytest.raises(AgentWorkspaceError, match="kernel"):
        resolve_workspace(path, write=False)


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder of root's in a place anybody may look at; the program acts as somebody else meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)  # noqa: S103  # nobody must reach the folder in it
        own = Path(name) / "own"
        own.mkdir()
        os.seteuid(65534)
        try:
            yield own
        finally:
            os.seteuid(0)


@pytest.mark.needs("root")
@pytest.mark.parametrize(("mode", "write", "good"), [(0o700, False, False), (0o755, False, True), (0o755, True, False)])
def test_access_is_checked_as_whoever_the_program_acts_as(nobody: Path, mode: int, write: bool, good: bool) -> None:
    os.seteuid(0)
    nobody.chmod(mode)
    os.seteuid(65534)
    if good:
        assert resolved(nobody, write=write).root
    else:
        with pytest.raises(AgentWorkspaceError, match="may not be"):
            resolved(nobody, write=write)


@pytest.mark.needs("not-root")
@pytest.mark.parametrize(("mode", "write"), [(0o000, False), (0o500, True)])
def test_a_folder_without_access_is_refused(place: Path, mode: int, write: bool) -> None:
    place.chmod(mode)
    try:
        with pytest.raises(AgentWorkspaceError, match="may not be"):
            resolved(place, write=write)
    finally:
        place.chmod(0o700)


def test_a_folder_that_overlaps_the_programs_own_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place / "inner")
    for private in (place, place / "inner", place / "not-yet", place.parent, tmp_path / "link"):
        with pytest.raises(AgentWorkspaceError, match="what this program keeps"):
            resolved(place, private=(str(private),))
    assert resolved(place, private=(str(tmp_path / "other"), str(tmp_path / "work-not")))


def test_a_folder_that_became_another_is_not_gone_on_with(place: Path, tmp_path: Path) -> None:
    workspace = resolved(place)
    check_unchanged(workspace)
    place.rename(tmp_path / "moved")
    with pytest.raises(AgentWorkspaceError):
        check_unchanged(workspace)
    place.symlink_to(tmp_path / "other")
    with pytest.raises(AgentWorkspaceError, match="another folder"):
        check_unchanged(workspace)
    place.unlink()
    place.mkdir()
    with pytest.raises(AgentWorkspaceError, match="another folder"):
        check_unchanged(workspace)


# ------------------------------------------------------------------------------------------- files


def test_an_image_is_told_by_its_name_or_by_its_caller(place: Path) -> None:
    workspace = resolved(place)
    for ending, media_type in {
        "PNG": "image/png",
        "jpg": "image/jpeg",
        "webp": "image/webp",
        "avif": "image/avif",
    }.items():
        (place / f"a.{ending}").write_bytes(b"x")
        found = resolve_file(workspace, f"a.{ending}", None)
        assert found == (str(place.resolve() / f"a.{ending}"), media_type)
    (place / "raw").write_bytes(b"x")
    assert resolve_file(workspace, str(place / "raw"), "image/x-raw").media_type == "image/x-raw"
    with pytest.raises(AgentWorkspaceError, match="media type"):
        resolve_file(workspace, "raw", None)


@pytest.mark.parametrize("name", ["../other/a.png", "out.png", "up/a.png", "inner", "no.png", "nul\0.png", "pipe.png"])
def test_a_file_that_is_not_in_the_folder_is_refused(name: str, place: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "a.png").write_bytes(b"x")
    (place / "out.png").symlink_to(tmp_path / "other" / "a.png")
    (place / "up").symlink_to(tmp_path / "other")
    os.mkfifo(place / "pipe.png")
    with pytest.raises(AgentWorkspaceError):
        resolve_file(resolved(place), name, None)


def test_a_change_is_told_relative_to_the_folder_or_not_at_all() -> None:
    assert inside("/w", "a/b.txt") == inside("/w", "/w/a/b.txt") == inside("/w", "a/../a/b.txt") == "a/b.txt"
    for path in ("..", "/wx/a", "../w2/a", "/etc/passwd", "/w", ".", "a\0"):
        assert inside("/w", path) is None


# ------------------------------------------------------------------------------------------ leases


def test_one_run_works_in_a_folder_around_it_and_inside_it(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place / "inner")
    leases = WorkspaceLeases()
    middle = leases.take(resolved(place / "inner"), "run_1")
    for name in (place / "inner", place, place / "inner" / "most", tmp_path / "link", tmp_path):
        with pytest.raises(AgentBusyError) as busy:
            leases.take(resolved(name), "run_2")
        assert busy.value.details == {"held_by": "run_1", "quarantined": False}
        assert busy.value.retryable
    leases.take(resolved(tmp_path / "other"), "run_3")
    leases.release(middle)
    leases.release(middle)
    leases.take(resolved(place), "run_2")


def test_a_name_that_only_begins_alike_is_another_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "ab").mkdir()
    leases = WorkspaceLeases()
    leases.take(resolved(tmp_path / "a"), "run_1")
    leases.take(resolved(tmp_path / "ab"), "run_2")


def test_one_folder_under_two_names_is_one_folder(place: Path) -> None:
    """As with a bind mount: another path, and the same folder."""
    real = resolved(place)
    bound = Workspace("/somewhere/else", (real.ancestry[0], real.ancestry[-1]))
    within = Workspace("/somewhere/else/x", (resolved(place / "inner").ancestry[0], *bound.ancestry))
    assert real.overlaps(bound)
    assert real.overlaps(within)
    assert within.overlaps(real)


def test_a_quarantined_folder_is_given_to_nobody_until_the_backend_is_gone(place: Path) -> None:
    leases = WorkspaceLeases()
    lease = leases.take(resolved(place), "run_1")
    leases.quarantine(lease)
    leases.release(lease)
    with pytest.raises(AgentBusyError) as busy:
        leases.take(resolved(place / "inner"), "run_2")
    assert busy.value.details["quarantined"]
    assert not busy.value.retryable
    leases.clear()
    leases.take(resolved(place / "inner"), "run_2")


def test_whoever_waits_is_called_once_when_a_folder_is_free(place: Path) -> None:
    leases = WorkspaceLeases()
    lease = leases.take(resolved(place), "run_1")
    called: list[int] = []
    leases.when_released(lambda: called.append(1))
    assert called == []
    leases.release(lease)
    leases.release(leases.take(resolved(place), "run_2"))
    assert called == [1]
