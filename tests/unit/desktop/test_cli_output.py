"""What the command line prints as JSON: the value, whole, and nothing that steers a terminal."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from desktop.commands.terminal import json_text

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet=st.characters()), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_it_is_the_same_value_and_steers_nothing(value: object) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert "\n" not in text
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in text)
    assert not any(unicodedata.bidirectional(c) in BIDI for c in text)


BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_words_of_any_script_are_printed_as_they_are() -> None:
    assert (
        json_text({"text": "h\u00e9llo \u4f60\u597d \u05e9\u05dc\u05d5\u05dd"})
        == '{"text": "h\u00e9llo \u4f60\u597d \u05e9\u05dc\u05d5\u05dd"}'
    )


def test_controls_and_overrides_are_written_as_escapes() -> None:
    assert json_text("a\x9b31m\u202eb\x1b[0m") == r'"a\u009b31m\u202eb\u001b[0m"'
