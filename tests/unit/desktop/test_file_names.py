"""Names of files: what is shown ends with the truth, what is saved leads nowhere."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop import file_names

RLO, ZWJ, NBSP = "\u202e", "\u200d", "\u00a0"
NAMES = st.text(
    st.one_of(
        st.characters(), st.sampled_from([RLO, ZWJ, NBSP, "\u2066", "\ufeff", "\n", "\0", "/", "\\", ".", "…", "。"])
    ),
    max_size=400,
)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("report.pdf", "report.pdf"),
        (f"invoice{RLO}fdp.exe", "invoice⟨U+202E⟩fdp.exe"),
        (f"photo.png{ZWJ}.sh", "photo.png⟨U+200D⟩.sh"),
        ("letter.pdf                                                                                 .exe", None),
        (f"a.pdf{NBSP * 90}.exe", None),
        ("notes․txt", "notes⟨U+2024⟩txt"),
        ("two\nlines.txt", "two⟨U+000A⟩lines.txt"),
        ("", "(no name)"),
    ],
)
def test_what_is_shown_is_what_it_is(name: str, seen: str | None) -> None:
    told = file_names.shown(name)
    assert told == seen if seen is not None else told.endswith("….exe")


@given(NAMES)
def test_whatever_a_name_is_all_of_it_is_seen_and_its_end_is_its_end(name: str) -> None:
    told = file_names.shown(name)
    assert 0 < len(told) <= file_names.SHOWN_CHARS
    assert told.isprintable()
    if suffix := file_names.extension(name):
        assert len(suffix) > 16 or told.lower().endswith(f".{suffix}")


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("report.pdf", "report.pdf"),
        ("Grüße aus Köln.txt", "Grüße aus Köln.txt"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\a.dll", "a.dll"),
        (f"invoice{RLO}fdp.exe", "invoice_fdp.exe"),
        ("  .bashrc", "bashrc"),
        ("-rf", "rf"),
        ("CON.txt", "_CON.txt"),
        ("trailing. . .", "trailing"),
        ("..", "file"),
        ("", "file"),
        ("\u200d\u200d", "file"),
        ("x" * 300 + ".csv", "x" * 251 + ".csv"),
        ("é" * 300 + ".csv", "é" * 125 + ".csv"),
    ],
)
def test_what_is_saved_under_leads_nowhere_and_says_what_was_changed(name: str, saved: str) -> None:
    found = file_names.safe(name)
    assert found.name == saved
    assert bool(found.changed) == (saved != name)


@given(NAMES)
def test_whatever_a_name_is_it_can_be_saved(name: str) -> None:
    found = file_names.safe(name)
    assert found.name == file_names.safe(found.name).name, "saving twice changes it twice"
    assert 0 < len(found.name.encode()) <= file_names.NAME_BYTES
    assert found.name.isprintable()
    assert not set(found.name) & set('/\\:*?"<>|')
    assert found.name.strip(". ") == found.name
    assert (found.name == name) == (not found.changed) or unicodedata.normalize("NFC", name) == found.name
