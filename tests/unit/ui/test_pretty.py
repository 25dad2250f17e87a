"""JSON set over lines: nothing is lost, and what is no JSON is left alone."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ui.text.pretty import pretty

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


@given(values, st.sampled_from([None, 1, 4]), st.booleans())
def test_it_is_as_json_writes_it(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert pretty(text) == json.dumps(value, indent=2, ensure_ascii=ascii_only)


@given(st.text(max_size=60))
def test_anything_is_survived(text: str) -> None:
    made = pretty(text)
    assert made == text or "".join(made.split()) == "".join(text.split())


def test_nothing_is_normalised() -> None:
    assert pretty('{"a":1.50,"a":1e400,"big":123456789012345678901234567890}') == (
        '{\n  "a": 1.50,\n  "a": 1e400,\n  "big": 123456789012345678901234567890\n}'
    )


def test_what_is_nested_too_deep_is_left_alone() -> None:
    deep = "[" * 2_000 + "]" * 2_000
    assert pretty(deep) == deep
