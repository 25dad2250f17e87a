"""Diffs: each line is what its hunk says, the same however it is cut, bounded, and nothing hides in it."""

import difflib
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.tokens import tokens
from ui.text.blocks import Row
from ui.text.diff import BEGINNING_LINES, DIFF_LINES, DiffSplitter
from ui.text.rich import rich
from ui.text.styles import Style

LINES = (
    "--- a/x.py", "+++ b/x.py", "@@ -1,3 +1,3 @@ def f():", "@@ -1 +1 @@", "@@ -0,0 +1,2 @@", " context", "+added",
    "-removed", "--- dashes", "+++ pluses", "", "\\ No newline at end of file", "diff --git a/x b/x", "index 1..2",
    "Binary files differ", "+\u202eevil", "-\x1b[31mred", "+tail\r", "@@", "rename from a", "+" + "y" * 3_000,
)  # fmt: skip

diffs = st.lists(st.sampled_from(LINES), max_size=40).map("\n".join)
anything = st.one_of(diffs, st.text(max_size=200))


def rows(text: str, cuts: list[int] | None = None) -> list[Row]:
    splitter = DiffSplitter()
    bounds = sorted({min(cut, len(text)) for cut in cuts or []} | {0, len(text)})
    seen: list[Row] = []
    for start, end in pairwise(bounds):
        splitter.feed(text[start:end])
        assert splitter.closed[: len(seen)] == seen, "a closed row changed"
        seen = list(splitter.closed)
    splitter.finish()
    return splitter.closed


def kinds(text: str) -> list[tuple[str, str]]:
    """Each line with the ground it stands on."""
    found: list[tuple[str, str]] = [("", "")]
    for row in rows(text):
        for style, part in (*row.spans, (Style(), "\n")):
            if part == "\n":
                found.append(("", ""))
            else:
                back, line = found[-1]
                found[-1] = (style.back or back, line + part)
    return [line for line in found[:-1] if line != ("", "")]


@given(anything, st.lists(st.integers(0, 400), max_size=20))
def test_any_cutting_gives_the_same_rows(text: str, cuts: list[int]) -> None:
    assert rows(text, cuts) == rows(text)


@given(st.lists(st.sampled_from(("a", "b", "--- c", "+++ d", "@@ -1 +1 @@", "")), max_size=30), st.data())
def test_added_and_removed_lines_are_those_of_the_change(old: list[str], data: st.DataObject) -> None:
    new = data.draw(st.lists(st.sampled_from(("a", "x", "-- y", "++ z", "diff --git q")), max_size=30))
    found = kinds("\n".join(difflib.unified_diff(old, new, "a", "b", lineterm="")))
    changes = [code for code in difflib.SequenceMatcher(None, old, new).get_opcodes() if code[0] != "equal"]
    added = [line for change in changes for line in new[change[3] : change[4]]]
    removed = [line for change in changes for line in old[change[1] : change[2]]]
    assert [line[1:] for ground, line in found if ground == "addedGround"] == added
    assert [line[1:] for ground, line in found if ground == "removedGround"] == removed
    assert all(line[0] == ("+" if ground == "addedGround" else "-") for ground, line in found if ground)


@given(anything)
def test_rows_are_bounded_and_hold_no_control_character(text: str) -> None:
    for row in rows(text):
        assert row.text.count("\n") < DIFF_LINES
        assert "".join(part for _, part in row.spans) == row.text
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", row.text)


def test_what_acts_unseen_is_shown_by_its_number() -> None:
    found = [line for _, line in kinds("@@ -1 +1 @@\n-if admin:\n+if \u202eadmin\u2066:\u200b\n")]
    assert found[-1] == "+if ‹U+202E›admin‹U+2066›:‹U+200B›"


def test_a_changed_line_ending_is_seen() -> None:
    assert [line for ground, line in kinds("@@ -1 +1 @@\n-same\n+same\r\n") if ground] == ["-same", "+same\u240d"]


def test_the_heading_of_the_one_file_is_left_out_and_that_of_another_is_not() -> None:
    lines = [
        line for _, line in kinds("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-c\n+d\n")
    ]
    assert lines == ["@@ -1 +1 @@", "-a", "+b", "--- a/y", "+++ b/y", "@@ -1 +1 @@", "-c", "+d"]


def test_the_beginning_is_bounded() -> None:
    splitter = DiffSplitter()
    splitter.feed("@@ -0,0 +1,500 @@\n" + "".join(f"+line {n}\n" for n in range(500)))
    beginning = splitter.beginning()
    assert beginning is not None
    assert beginning.text.count("\n") == BEGINNING_LINES - 1
    assert splitter.line_count == 501


@pytest.mark.parametrize("dark", [False, True])
@given(text=anything)
def test_a_diff_is_never_markup(dark: bool, text: str) -> None:
    looks = tokens(dark=dark)
    for row in rows(text):
        tags = re.sub(r"</?(?:p|span)(?: [a-z]+=\"[^\"<>]*\")*>", "", rich(row, looks))
        assert "<" not in tags
        assert ">" not in tags
