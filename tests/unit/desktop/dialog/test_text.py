"""What a trusted dialog spells out instead of drawing."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from desktop.dialog.text import LONGEST_MARK_RUN, visible

SPELLED = re.compile("\u2066‹U\\+([0-9A-F]{4,6})›\u2069")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a\u202eb", "202E"),  # right-to-left override
        ("a\u2067b", "2067"),  # right-to-left isolate
        ("a\u200bb", "200B"),  # zero width space
        ("a\u200db", "200D"),  # zero width joiner
        ("a\ufeffb", "FEFF"),
        ("a\u00adb", "00AD"),  # soft hyphen
        ("a\x00b", "0000"),
        ("a\x1bb", "001B"),
        ("a\rb", "000D"),
        ("a\nb", "000A"),
        ("a\u2028b", "2028"),
        ("a\u00a0b", "00A0"),  # no-break space
        ("a\u3000b", "3000"),
        ("a\u3164b", "3164"),  # Hangul filler: a letter by category, and nothing is drawn
        ("a\U000e0041b", "E0041"),  # tag
        ("a\U000e0100b", "E0100"),  # variation selector
        ("a\ue000b", "E000"),  # private use
        ("a\ud800b", "D800"),  # lone surrogate
    ],
)
def test_what_hides_or_reorders_is_spelled_out(text: str, code: str) -> None:
    assert visible(text) == f"a\u2066‹U+{code}›\u2069b"


@pytest.mark.parametrize(
    "text", ["plain", "Grüße", "日本語", "שלום", "a <b>bold</b> &amp;", "❤\ufe0f", "e\u0301", "👍🏽"]
)
def test_what_people_write_stays(text: str) -> None:
    assert visible(text) == text


def test_line_breaks_stay_where_whole_texts_are_shown() -> None:
    assert visible("a\nb", keep_line_breaks=True) == "a\nb"


def test_a_tower_of_marks_is_cut_down() -> None:
    shown = visible("Z" + "\u0351" * 40)
    assert shown.count("\u0351") == LONGEST_MARK_RUN
    assert len(SPELLED.findall(shown)) == 40 - LONGEST_MARK_RUN


@given(st.text())
@example("\u2066‹U+0041›\u2069")
def test_nothing_invisible_is_left_and_nothing_is_lost(text: str) -> None:
    shown = visible(text)
    rest = SPELLED.sub("", shown)
    for char in rest:
        category = unicodedata.category(char)
        assert category not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"), f"U+{ord(char):04X}"
    assert SPELLED.sub(lambda found: chr(int(found[1], 16)), shown) == text
