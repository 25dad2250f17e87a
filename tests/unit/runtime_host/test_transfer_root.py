"""The folder of a transfer: which names lead to a file in it, and what is left where something goes wrong."""

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.errors import AgentTransferError
from runtime_host.transfer import root as root_module
from runtime_host.transfer.root import Arrival, TransferRoot, partial_of, split

BOUND = 1000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.txt").write_bytes(b"abc")
    return folder


def root_of(place: Path) -> TransferRoot:
    found = place.stat()
    return TransferRoot(os.path.realpath(place), (found.st_dev, found.st_ino))


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(AgentTransferError) as refused:
        call()
    assert refused.value.message.endswith(".")
    return refused.value.error_code


def left(place: Path) -> list[str]:
    return sorted(str(each.relative_to(place)) for each in place.rglob("*") if each.is_symlink() or not each.is_dir())


def bring(place: Path, path: str, content: bytes = b"new", meanwhile: Callable[[], object] = lambda: None) -> None:
    """A file that comes in, as a transfer does it."""
    arrival: Arrival | None = None
    try:
        arrival = root_of(place).create(path, partial_of(path))
        arrival.write(content)
        meanwhile()
        arrival.publish()
        arrival.keep()
    finally:
        if arrival is not None:
            arrival.discard()


# ------------------------------------------------------------------------------------------------ names

NAMES = {
    "../a.txt": "TRANSFER_PATH_TRAVERSAL",
    "in/../a.txt": "TRANSFER_PATH_TRAVERSAL",
    "in/..": "TRANSFER_PATH_TRAVERSAL",
    "..\\a.txt": "TRANSFER_PATH_TRAVERSAL",
    "/etc/passwd": "TRANSFER_PATH_ABSOLUTE",
    "C:\\a.txt": "TRANSFER_PATH_ABSOLUTE",
    "\\\\server\\a": "TRANSFER_PATH_ABSOLUTE",
    "": "TRANSFER_PATH_INVALID",
    ".": "TRANSFER_PATH_INVALID",
    "in/./a.txt": "TRANSFER_PATH_INVALID",
    "in//a.txt": "TRANSFER_PATH_INVALID",
    "in/": "TRANSFER_PATH_INVALID",
    "a\0b": "TRANSFER_PATH_INVALID",
    "a\nb": "TRANSFER_PATH_INVALID",
    "a\u202eb": "TRANSFER_PATH_INVALID",
    "\ud800": "TRANSFER_PATH_INVALID",
    "n" * 256: "TRANSFER_PATH_INVALID",
    "/".join(["n" * 100] * 50): "TRANSFER_PATH_INVALID",
    ".remuda-0123456789abcdef.part": "TRANSFER_PATH_INVALID",
}


@pytest.mark.parametrize(("path", "code"), NAMES.items(), ids=[repr(name)[:20] for name in NAMES])
def test_a_name_that_leads_elsewhere_is_refused_in_both_directions(place: Path, path: str, code: str) -> None:
    before = left(place)
    assert code_of(lambda: root_of(place).read(path, BOUND)) == code
    assert code_of(lambda: bring(place, path)) == code
    assert left(place) == before


@given(st.text(alphabet=st.sampled_from("ab./\\~ é\0\n:"), max_size=12))
def test_whatever_a_name_is_it_stays_below_the_folder(path: str) -> None:
    try:
        parents, name = split(path)
    except AgentTransferError:
        return
    assert "/".join((*parents, name)) == path
    assert all(part not in ("", ".", "..") and "/" not in part and "\0" not in part for part in (*parents, name))
    whole = os.path.normpath(os.path.join("/files", path))
    assert whole.startswith("/files/")


# ------------------------------------------------------------------------------------------ what is there


def _link(at: Path) -> None:
    at.symlink_to("in/a.txt")


def _dangling(at: Path) -> None:
    at.symlink_to("nowhere")


def _socket(at: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(at.parent)
        made.bind(at.name)


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (_link, "TRANSFER_SYMLINK"),
    "dangling link": (_dangling, "TRANSFER_SYMLINK"),
    "folder": (Path.mkdir, "TRANSFER_DIRECTORY"),
    "pipe": (os.mkfifo, "TRANSFER_FIFO"),
    "socket": (_socket, "TRANSFER_SOCKET"),
    "nothing": (lambda at: None, "TRANSFER_NOT_FOUND"),
}


@pytest.fixture
def _back() -> Iterator[None]:
    here = os.getcwd()
    yield
    os.chdir(here)


@pytest.mark.usefixtures("_back")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_not_sent_and_not_overwritten(place: Path, kind: str) -> None:
    make, code = KINDS[kind]
    make(place / "x")
    before = left(place)
    assert code_of(lambda: root_of(place).read("x", BOUND)) == code
    if kind != "nothing":
        taken = "TRANSFER_SYMLINK" if "link" in kind else "TRANSFER_EXISTS"
        assert code_of(lambda: root_of(place).check_free("x")) == taken
        assert code_of(lambda: bring(place, "x")) == taken
    assert left(place) == before


def test_a_device_is_not_read(tmp_path: Path) -> None:
    devices = root_of(Path("/dev"))
    assert code_of(lambda: devices.read("null", BOUND)) == "TRANSFER_DEVICE"


def test_a_folder_on_the_way_is_there_and_no_link(place: Path) -> None:
    (place / "link").symlink_to("in")
    (place / "up").symlink_to("..")
    for path, code in {
        "link/a.txt": "TRANSFER_SYMLINK",
        "up/a.txt": "TRANSFER_SYMLINK",
        "gone/a.txt": "TRANSFER_PARENT_MISSING",
        "in/a.txt/b": "TRANSFER_PARENT_NOT_FOLDER",
    }.items():
        assert code_of(lambda path=path: root_of(place).read(path, BOUND)) == code  # type: ignore[misc]
        assert code_of(lambda path=path: bring(place, path)) == code  # type: ignore[misc]
    assert left(place) == ["in/a.txt", "link", "up"]


def test_the_folder_itself_is_the_one_that_was_looked_at(place: Path) -> None:
    root = root_of(place)
    place.rename(place.with_name("old"))
    assert code_of(lambda: root.read("in/a.txt", BOUND)) == "TRANSFER_ROOT_REFUSED"
    place.symlink_to("old")
    assert code_of(lambda: root.read("in/a.txt", BOUND)) == "TRANSFER_ROOT_REFUSED"
    place.unlink()
    (place / "in").mkdir(parents=True)
    (place / "in" / "a.txt").write_bytes(b"other")
    assert code_of(lambda: root.read("in/a.txt", BOUND)) == "TRANSFER_ROOT_REFUSED"


def test_what_is_there_is_not_overwritten_even_if_it_comes_meanwhile(place: Path) -> None:
    assert code_of(lambda: bring(place, "in/a.txt")) == "TRANSFER_EXISTS"
    other = place / "in" / "b.txt"
    assert code_of(lambda: bring(place, "in/b.txt", meanwhile=lambda: other.write_bytes(b"hers"))) == "TRANSFER_EXISTS"
    assert (left(place), other.read_bytes()) == (["in/a.txt", "in/b.txt"], b"hers")


# ------------------------------------------------------------------------------------------------ bytes


@pytest.mark.parametrize("size", [0, 1, BOUND])
def test_exact_bytes_go_both_ways_and_files_are_private(place: Path, size: int) -> None:
    content = bytes(range(256)) * 4
    old = os.umask(0)
    try:
        bring(place, "in/b.bin", content[:size])
    finally:
        os.umask(old)
    assert root_of(place).read("in/b.bin", BOUND) == content[:size]
    assert stat.S_IMODE((place / "in" / "b.bin").stat().st_mode) == 0o600
    assert left(place) == ["in/a.txt", "in/b.bin"]


def test_one_byte_more_is_too_much(place: Path) -> None:
    (place / "big").write_bytes(b"x" * (BOUND + 1))
    assert code_of(lambda: root_of(place).read("big", BOUND)) == "TRANSFER_TOO_LARGE"


class FailingOs:
    """`os` as the module sees it: one call fails, or does something first."""

    def __init__(self, name: str, do: Callable[..., Any], *, after: int = 0) -> None:
        self._name, self._do, self._after = name, do, after

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name != self._name:
            return real

        def call(*given: Any, **more: Any) -> Any:
            self._after -= 1
            return self._do(real, *given, **more) if self._after < 0 else real(*given, **more)

        return call


def fails(number: int) -> Callable[..., Any]:
    def fail(real: Any, *given: Any, **more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("step", ["write", "fsync", "link", "fchmod", "the second fsync", "half of a write"])
def test_a_disk_that_fails_at_any_step_leaves_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    def half(real: Any, file: int, rest: Any) -> Any:
        if len(rest) < 3:
            raise OSError(number, os.strerror(number))
        return real(file, rest[:1])

    name = {"the second fsync": "fsync", "half of a write": "write"}.get(step, step)
    failing = FailingOs(name, half if step.startswith("half") else fails(number), after=int(step == "the second fsync"))
    monkeypatch.setattr(root_module, "os", failing)
    code = code_of(lambda: bring(place, "in/new.txt"))
    monkeypatch.undo()
    told = {errno.ENOSPC: "TRANSFER_DISK_FULL", errno.EDQUOT: "TRANSFER_DISK_FULL", errno.EROFS: "TRANSFER_NO_ACCESS"}
    assert code == told.get(number, "TRANSFER_IO")
    assert left(place) == ["in/a.txt"]


def test_a_disk_without_room_for_a_name_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(real: Any, path: Any, flags: int, *given: Any, **more: Any) -> Any:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "full")
        return real(path, flags, *given, **more)

    monkeypatch.setattr(root_module, "os", FailingOs("open", full))
    code = code_of(lambda: bring(place, "in/new.txt"))
    monkeypatch.undo()
    assert (code, left(place)) == ("TRANSFER_DISK_FULL", ["in/a.txt"])


@pytest.mark.parametrize("name", ["open", "stat", "fstat", "read"])
def test_a_fault_of_the_disk_is_told_in_words_that_name_no_path(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for number in (errno.EMFILE, errno.EIO, errno.EACCES):
        monkeypatch.setattr(root_module, "os", FailingOs(name, fails(number)))
        with pytest.raises(AgentTransferError) as told:
            root_of(place).read("in/a.txt", BOUND)
        assert str(place) not in f"{told.value.message} {told.value.details} {told.value.__cause__!r}"
        monkeypatch.undo()


# ------------------------------------------------------------------------------------- exchanged meanwhile


def swap(place: Path) -> Path:
    old = (place / "in").rename(place / "away")
    (place / "in").mkdir()
    return old


def test_a_folder_that_is_exchanged_while_a_file_comes_gets_nothing_and_neither_does_the_old_one(place: Path) -> None:
    code = code_of(lambda: bring(place, "in/new.txt", meanwhile=lambda: swap(place)))
    assert (code, left(place)) == ("TRANSFER_PARENT_CHANGED", ["away/a.txt"])


def test_a_folder_that_is_exchanged_at_the_last_moment_is_noticed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(real: Any, *given: Any, **more: Any) -> Any:
        swap(place)
        return real(*given, **more)

    monkeypatch.setattr(root_module, "os", FailingOs("link", late))
    code = code_of(lambda: bring(place, "in/new.txt"))
    monkeypatch.undo()
    assert (code, left(place)) == ("TRANSFER_PARENT_CHANGED", ["away/a.txt"])


def test_a_folder_that_becomes_a_link_while_a_file_comes_leads_nowhere(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def exchange() -> None:
        (place / "in").rename(place / "away")
        (place / "in").symlink_to(elsewhere)

    code = code_of(lambda: bring(place, "in/new.txt", meanwhile=exchange))
    assert (code, left(place), list(elsewhere.iterdir())) == ("TRANSFER_PARENT_CHANGED", ["away/a.txt", "in"], [])


MEANWHILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "longer": (lambda place: (place / "in/a.txt").write_bytes(b"abcdef"), "TRANSFER_SOURCE_CHANGED"),
    "another": (
        lambda place: (place / "b").write_bytes(b"xyz") and (place / "b").rename(place / "in/a.txt"),
        "TRANSFER_SOURCE_CHANGED",
    ),
    "gone": (lambda place: (place / "in/a.txt").unlink(), "TRANSFER_SOURCE_CHANGED"),
    "folder": (lambda place: swap(place), "TRANSFER_PARENT_CHANGED"),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_what_is_changed_while_it_is_read_is_not_sent(place: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    change, code = MEANWHILE[what]
    done: list[object] = []

    def read(real: Any, *given: Any) -> Any:
        if not done:
            done.append(change(place))
        return real(*given)

    monkeypatch.setattr(root_module, "os", FailingOs("read", read))
    assert code_of(lambda: root_of(place).read("in/a.txt", BOUND)) == code


def test_a_file_that_becomes_a_pipe_before_it_is_opened_holds_nobody_up(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(real: Any, path: Any, *given: Any, **more: Any) -> Any:
        if path == "a.txt":
            (place / "in/a.txt").unlink()
            os.mkfifo(place / "in/a.txt")
        return real(path, *given, **more)

    monkeypatch.setattr(root_module, "os", FailingOs("open", late))
    assert code_of(lambda: root_of(place).read("in/a.txt", BOUND)) == "TRANSFER_SOURCE_CHANGED"


def test_what_is_given_up_after_it_was_published_goes_as_well_and_another_file_of_its_name_stays(place: Path) -> None:
    arrival = root_of(place).create("in/new.txt", partial_of("in/new.txt"))
    arrival.publish()
    assert left(place) == ["in/a.txt", "in/new.txt"]
    arrival.discard()
    assert left(place) == ["in/a.txt"]
    arrival = root_of(place).create("in/new.txt", partial_of("in/new.txt"))
    arrival.publish()
    (place / "other").write_bytes(b"hers")
    (place / "other").rename(place / "in/new.txt")
    arrival.discard()
    assert (place / "in/new.txt").read_bytes() == b"hers"


# ------------------------------------------------------------------------------------------------- kills


def test_what_a_killed_program_left_is_removed_and_nothing_else(place: Path) -> None:
    partial = partial_of("in/new.txt")
    assert partial != partial_of("in/new.txt")
    arrival = root_of(place).create("in/new.txt", partial)
    arrival.write(b"half")
    assert left(place) == sorted(["in/a.txt", partial])
    root_of(place).remove_partial(partial)
    root_of(place).remove_partial(partial)
    root_of(place).remove_partial("gone/.remuda-0123456789abcdef.part")
    root_of(place).remove_partial("in/a.txt")
    assert left(place) == ["in/a.txt"]
    arrival.discard()
    assert left(place) == ["in/a.txt"]
