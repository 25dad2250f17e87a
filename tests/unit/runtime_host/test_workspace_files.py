"""Files of a session's folder: what is read is so, what is changed was read, and no way leads out."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.loop.plugins.workspace import diffs, files, places
from runtime_host.loop.plugins.workspace.naming import meant, told
from runtime_host.loop.plugins.workspace.places import PlaceError
from runtime_host.loop.plugins.workspace.searching import Order, Search

pytestmark = pytest.mark.skipif(os.name != "posix", reason="this system is not POSIX")


@pytest.fixture
def root(tmp_path: Path) -> str:
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "outside.txt").write_text("sentinel\n")
    return os.path.realpath(folder)


def put(root: str, path: str, text: str | bytes) -> Path:
    place = Path(root, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


def version(root: str, path: str) -> str:
    return str(files.reading(root, path, 1, 10)["version"])


def refused(work: Callable[[], Any]) -> PlaceError:
    with pytest.raises(PlaceError) as caught:
        work()
    return caught.value


# ------------------------------------------------------------------------------------------ names


@given(st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name and b"/" not in name))
def test_what_is_told_of_a_name_means_that_name_again(name: bytes) -> None:
    shown = told(os.fsdecode(name))
    assert os.fsencode(meant(shown)) == name
    assert shown.isprintable()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain and ünï.txt", "plain and ünï.txt"),
        ("a\u202etxt.exe", "a\\u202etxt.exe"),
        ("two\nlines\x1b[2J", "two\\x0alines\\x1b[2J"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("no\u00a0break", "no\\u00a0break"),
        ("back\\slash", "back\\\\slash"),
        ("end ", "end\\x20"),
        ("\udcff.bin", "\\xff.bin"),
    ],
)
def test_names_are_told_so_that_they_cannot_be_mistaken(name: str, shown: str) -> None:
    assert told(name) == shown
    assert meant(shown) == name


@pytest.mark.parametrize("word", ["a\\q", "a\\", "\\ud800", "a\\x2fb", "a\\x00", "\\U00ffffff"])
def test_what_is_no_name_is_refused_in_words(word: str) -> None:
    with pytest.raises(ValueError, match=r"[A-Z\\].*\."):
        meant(word)


# ----------------------------------------------------------------------------------------- places


def ways_out(root: str) -> list[str]:
    """Paths that lead to the sentinel beside the folder, if anything is followed."""
    os.symlink("../outside.txt", Path(root, "link"))
    os.symlink("..", Path(root, "up"))
    os.symlink("/", Path(root, "slash"))
    outside = str(Path(root).parent / "outside.txt")
    return [
        "../outside.txt",
        "sub/../../outside.txt",
        outside,
        f"{root}/../outside.txt",
        f"{root}-beside",
        "link",
        "up/outside.txt",
        f"slash{outside}",
        "\\x2e\\x2e/outside.txt",
    ]


def test_no_path_leads_out(root: str) -> None:
    for path in ways_out(root):
        works: list[Callable[[], Any]] = [
            lambda path=path: files.reading(root, path, 1, 10),  # type: ignore[misc]
            lambda path=path: files.listing(root, path, 1),  # type: ignore[misc]
            lambda path=path: files.writing(root, path, None, "+"),  # type: ignore[misc]
            lambda path=path: files.writing(root, path, files.version_of(b"sentinel\n"), "+"),  # type: ignore[misc]
            lambda path=path: files.editing(  # type: ignore[misc]
                root, path, files.version_of(b"sentinel\n"), "sentinel", "+", every=False
            ),
        ]
        for work in works:
            fault = refused(work)
            assert fault.code in ("outside", "link", "exists", "not_there", "not_a_folder"), (path, fault.words)
            assert "sentinel" not in fault.words
    assert (Path(root).parent / "outside.txt").read_text() == "sentinel\n"
    assert sorted(os.listdir(Path(root).parent)) == ["outside.txt", "project"]


def test_a_link_on_the_way_to_the_folder_itself_is_not_followed(root: str) -> None:
    put(root, "a.txt", "sentinel")
    os.symlink(root, root + "-link")
    assert refused(lambda: files.reading(root + "-link", "a.txt", 1, 1)).code == "link"


def test_a_folder_that_becomes_a_link_between_two_steps_is_not_followed(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, "sub/a.txt", "mine")
    put(str(Path(root).parent), "elsewhere/a.txt", "sentinel")
    opened = os.open

    def swapping(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if path == "sub" and os.path.isdir(Path(root, "sub")) and not os.path.islink(Path(root, "sub")):
            os.rename(Path(root, "sub"), Path(root, "gone"))
            os.symlink("../elsewhere", Path(root, "sub"))
        return opened(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", swapping)
    assert refused(lambda: files.reading(root, "sub/a.txt", 1, 1)).code == "link"


def test_pipes_sockets_and_devices_are_left_alone(root: str) -> None:
    os.mkfifo(Path(root, "pipe"))
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.getcwd()
        os.chdir(root)
        try:
            bound.bind("socket")
        finally:
            os.chdir(here)
        for name in ("pipe", "socket"):
            assert refused(lambda name=name: files.reading(root, name, 1, 1)).code == "not_a_file"  # type: ignore[misc]
            assert refused(lambda name=name: files.writing(root, name, None, "x")).code == "exists"  # type: ignore[misc]
            assert refused(lambda name=name: files.writing(root, name, "0", "x")).code == "not_a_file"  # type: ignore[misc]
        kinds = {entry["path"]: entry["kind"] for entry in files.listing(root, ".", 1)["entries"]}
    assert kinds == {"pipe": "other", "socket": "other"}
    assert refused(lambda: files.reading("/dev", "null", 1, 1)).code == "not_a_file"


# ------------------------------------------------------------------------------------------- look


def test_a_listing_names_links_and_does_not_follow_them(root: str) -> None:
    put(root, "src/deep/a.py", "x")
    put(root, ".git/config", "x")
    put(root, "a\u202eb", "1234")
    os.symlink("../outside.txt", Path(root, "link"))
    entries = {entry.pop("path"): entry for entry in files.listing(root, "", 3)["entries"]}
    assert entries == {
        ".git": {"kind": "folder"},
        "a\\u202eb": {"kind": "file", "bytes": 4},
        "link": {"kind": "link", "leads_to": "../outside.txt"},
        "src": {"kind": "folder"},
        "src/deep": {"kind": "folder"},
        "src/deep/a.py": {"kind": "file", "bytes": 1},
    }


def test_a_listing_says_what_it_leaves_out(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_ENTRIES", 3)
    for number in range(5):
        put(root, f"f{number}", "")
    found = files.listing(root, ".", 1)
    assert (len(found["entries"]), found["left_out"]) == (3, {"entries": 2})


def test_reading_tells_lines_as_they_are_and_where_to_go_on(root: str) -> None:
    put(root, "a.txt", "one\n two\t\nthree\u2028still three\nfour")
    found = files.reading(root, "a.txt", 2, 2)
    assert (found["content"], found["lines"], found["lines_in_all"]) == (" two\t\nthree\u2028still three\n", 2, 4)
    assert found["goes_on"] == "Read on from line 4."
    assert files.reading(root, f"{root}/a.txt", 4, 9)["content"] == "four"


@pytest.mark.parametrize("data", [b"\xff\xfe\x00a", b"text\0", b"caf\xe9"])
def test_what_is_no_text_is_not_read_as_text(root: str, data: bytes) -> None:
    put(root, "a.bin", data)
    assert refused(lambda: files.reading(root, "a.bin", 1, 1)).code == "no_text"


# ----------------------------------------------------------------------------------------- change


def test_an_edit_replaces_exactly_and_keeps_the_mode(root: str) -> None:
    place = put(root, "run.sh", "echo one\necho two\n")
    place.chmod(0o751)
    done = files.editing(root, "run.sh", version(root, "run.sh"), "one", "1", every=False)
    assert place.read_text() == "echo 1\necho two\n"
    assert stat.S_IMODE(place.stat().st_mode) == 0o751
    assert (done.version, done.added, done.removed) == (version(root, "run.sh"), 1, 1)
    assert done.diff == "--- a/run.sh\n+++ b/run.sh\n@@ -1,2 +1,2 @@\n-echo one\n+echo 1\n echo two\n"
    assert os.listdir(root) == ["run.sh"]


@pytest.mark.parametrize(
    ("old", "every", "code"), [("nowhere", False, "no_match"), ("o", False, "many_matches"), ("one ", True, "no_match")]
)
def test_an_edit_that_does_not_fit_changes_nothing(root: str, old: str, every: bool, code: str) -> None:
    place = put(root, "a.txt", "one two\n".replace("one ", "one\t"))
    fault = refused(lambda: files.editing(root, "a.txt", version(root, "a.txt"), old, "x", every=every))
    assert fault.code == code
    assert place.read_text() == "one\ttwo\n"


def test_what_changed_since_it_was_read_is_not_changed(root: str) -> None:
    place = put(root, "a.txt", "one\n")
    seen = version(root, "a.txt")
    place.write_text("one, and more\n")
    for work in (
        lambda: files.editing(root, "a.txt", seen, "one", "two", every=False),
        lambda: files.writing(root, "a.txt", seen, "two"),
    ):
        assert refused(work).code == "changed_since"
    assert refused(lambda: files.writing(root, "a.txt", None, "two")).code == "exists"
    assert place.read_text() == "one, and more\n"


def test_what_changes_while_it_is_written_is_left_as_it_is(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = put(root, "a.txt", "one\n")
    seen = version(root, "a.txt")
    monkeypatch.setattr(os, "fsync", lambda _: place.write_text("theirs\n"))
    assert refused(lambda: files.writing(root, "a.txt", seen, "mine\n")).code == "changed_since"
    assert place.read_text() == "theirs\n"
    assert os.listdir(root) == ["a.txt"]


def test_a_write_that_breaks_off_leaves_the_file_whole(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = put(root, "a.txt", "one\n")
    seen = version(root, "a.txt")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    fault = refused(lambda: files.writing(root, "a.txt", seen, "two\n"))
    assert "No space left" in fault.words
    assert place.read_text() == "one\n"
    assert os.listdir(root) == ["a.txt"]


def test_a_new_file_comes_with_its_folders_and_takes_nobodys_place(root: str) -> None:
    done = files.writing(root, "src/new/a.py", None, "x = 1\n")
    assert (done.new, done.diff) == (True, "--- /dev/null\n+++ b/src/new/a.py\n@@ -0,0 +1,1 @@\n+x = 1\n")
    assert Path(root, "src/new/a.py").read_text(encoding="utf-8") == "x = 1\n"
    assert refused(lambda: files.writing(root, "src/new/a.py", None, "x")).code == "exists"


def test_lines_that_end_with_crlf_keep_their_ends(root: str) -> None:
    place = put(root, "a.bat", "one\r\ntwo\r\n")
    told_ = files.reading(root, "a.bat", 1, 9)
    assert told_["content"] == "one\ntwo\n"
    files.editing(root, "a.bat", told_["version"], "one\ntwo", "one\n1.5\ntwo", every=False)
    assert place.read_bytes() == b"one\r\n1.5\r\ntwo\r\n"


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".git", "sub/.GIT/config"])
def test_what_git_would_run_is_not_written(root: str, path: str) -> None:
    put(root, ".git/config", "[core]\n")
    assert refused(lambda: files.writing(root, path, None, "x")).code == "refused"


def test_other_names_of_a_file_are_told_to_keep_what_it_held(root: str) -> None:
    put(root, "a.txt", "one\n")
    os.link(Path(root, "a.txt"), Path(root, "b.txt"))
    done = files.writing(root, "a.txt", version(root, "a.txt"), "two\n")
    assert "hard links" in done.note
    assert Path(root, "b.txt").read_text(encoding="utf-8") == "one\n"


@given(st.lists(st.sampled_from("abc\n"), max_size=40), st.lists(st.sampled_from("abc\n"), max_size=40))
def test_a_diff_counts_what_it_shows(before: list[str], after: list[str]) -> None:
    diff, added, removed = diffs.unified("".join(before), "".join(after), "f")
    body = diff.splitlines()[2:]
    assert sum(line.startswith("+") for line in body) == added
    assert sum(line.startswith("-") for line in body) == removed
    kept = [line[1:] for line in body if line[:1] in " +"]
    assert all(line in "".join(after).split("\n") for line in kept)


def test_a_diff_of_two_long_texts_is_bounded() -> None:
    before, after = "".join(f"a{n}\n" for n in range(20_000)), "".join(f"b{n}\n" for n in range(20_000))
    diff, added, removed = diffs.unified(before, after, "f")
    assert (added, removed) == (20_000, 20_000)
    assert len(diff) <= diffs.MOST_CHARS + 100
    assert "more lines of this change are not shown" in diff


# ----------------------------------------------------------------------------------------- search


def searched(root: str, pattern: str, **order: Any) -> tuple[list[list[Any]], dict[str, Any]]:
    hits: list[list[Any]] = []
    done = Search(Order(root, order.pop("parts", []), pattern, **order), lambda m: hits.append(m["hit"]), alarms=False)
    return hits, done.run()


@pytest.fixture
def tree(root: str) -> str:
    put(root, "a.py", "import os\nprint('Hello (world)')\n")
    put(root, "src/b.py", "hello\r\n" + "x" * 1000 + "hello" + "y" * 1000 + "\n")
    put(root, "src/c.txt", "hello\n")
    put(root, ".git/objects/x", "hello\n")
    put(root, "picture.png", b"\x89PNG\0hello")
    os.mkfifo(Path(root, "pipe"))
    os.symlink("../outside.txt", Path(root, "link"))
    os.symlink("..", Path(root, "src/up"))
    return root


def test_a_search_tells_places_and_what_it_left_out(tree: str) -> None:
    hits, done = searched(tree, "hello", ignore_case=True)
    assert [(path, number) for path, number, _ in hits] == [
        ("a.py", 2),
        ("src/b.py", 1),
        ("src/b.py", 2),
        ("src/c.txt", 1),
    ]
    assert done == {"files": 4, "hits": 4, "left_out": {"binary": 1, "links": 2, "other": 1}, "ignored": [".git"]}
    long = hits[2][2]
    assert "hello" in long
    assert long.startswith("…")
    assert long.endswith("…")
    assert len(long) < 310
    assert hits[1][2] == "hello"


def test_a_search_never_leaves_the_folder(tree: str) -> None:
    assert searched(tree, "sentinel")[0] == []


def test_a_search_can_be_narrowed(tree: str) -> None:
    assert [hit[0] for hit in searched(tree, "hello", names="*.txt")[0]] == ["src/c.txt"]
    assert [hit[0] for hit in searched(tree, "hello", names="src/*")[0]] == ["src/b.py", "src/b.py", "src/c.txt"]
    assert [hit[0] for hit in searched(tree, "hello", parts=["src", "c.txt"])[0]] == ["src/c.txt"]
    assert [hit[0] for hit in searched(tree, "hello", parts=[".git"], ignored=[])[0]] == [".git/objects/x"]
    assert [hit[:2] for hit in searched(tree, "(world)", literal=True)[0]] == [["a.py", 2]]


def test_a_search_stops_at_its_bounds_and_says_so(tree: str) -> None:
    hits, done = searched(tree, "hello", most=2)
    assert (len(hits), done["stopped_by"]) == (2, "hits")
    assert searched(tree, "hello", limit_s=-1.0)[1]["stopped_by"] == "time"


def test_places_are_told_relative_to_the_folder(root: str) -> None:
    assert places.in_words(places.parts_of(root, f"{root}/./a//b/")) == "a/b"
    assert places.in_words(places.parts_of(root, ".")) == "."
