"""Names read as they are written, and no path, option or file system takes them for something else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop import names
from desktop.paths import PROFILE_ID


@pytest.mark.parametrize(
    "name", ["Work", "a b", "Büro 2", "仕事", "Заметки", "x" * 64, "R&D (old)", "Ann's", "1st", "draft: one"]
)
def test_what_people_call_things_is_taken_as_it_is(name: str) -> None:
    assert names.checked("a profile", name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "Give a profile a name"),
        ("   ", "Give a profile a name"),
        (".", "begins with a letter"),
        ("..", "begins with a letter"),
        (".hidden", "begins with a letter"),
        ("-rf", "begins with a letter"),
        ("../up", "path"),
        ("a/b", "path"),
        ("a\\b", "path"),
        ("a\x00b", "controls"),
        ("a\nb", "controls"),
        ("a\x1b[31mb", "controls"),
        ("evil\u202etxt", "controls"),
        ("zero\u200bwidth", "controls"),
        ("a\u2066b", "controls"),
        ("half\ud800", "controls"),
        ("line\u2028end", "controls"),
        ("x" * 65, "64 characters"),
        ("ü" * 128, "64 characters"),
        ("仕" * 64 + "事" * 22, "64 characters"),
        ("CON", "Some systems"),
        ("nul.txt", "Some systems"),
        ("lpt1", "Some systems"),
        ("dot.", "Some systems"),
    ],
)
def test_a_hostile_name_is_refused_with_a_sentence(name: str, why: str) -> None:
    with pytest.raises(names.NameRefusedError, match=why) as refused:
        names.checked("a profile", name)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("one", "other"), [("Work", "work"), ("Straße", "STRASSE"), ("é", "e\u0301"), ("\uff37ork", "Work"), ("x", " x ")]
)
def test_names_that_read_the_same_are_one_name(one: str, other: str) -> None:
    with pytest.raises(names.NameRefusedError, match="already"):
        names.checked("a profile", one, [other.strip()])


def test_a_free_name_counts_on_and_stays_within_the_bounds() -> None:
    assert names.free("Copy", ["copy", "Copy 2"]) == "Copy 3"
    long = "x" * names.NAME_CHARS
    assert names.checked("an agent", names.free(long, [long])) != long


@given(st.text(min_size=1, max_size=80), st.sets(st.sampled_from(["work", "work-2", "profile", "con"])))
def test_a_slug_is_always_a_folder_name_nobody_has(name: str, taken: set[str]) -> None:
    made = names.slug(name, taken, "profile")
    assert PROFILE_ID.fullmatch(made)
    assert made.isascii()
    assert made == made.lower()
    assert made not in taken


@given(st.text(max_size=80))
def test_whatever_is_taken_can_be_seen_and_is_taken_again(name: str) -> None:
    try:
        kept = names.checked("a profile", name)
    except names.NameRefusedError:
        return
    assert kept.isprintable()
    assert names.checked("a profile", kept) == kept
    assert len(kept.encode()) <= names.NAME_BYTES
