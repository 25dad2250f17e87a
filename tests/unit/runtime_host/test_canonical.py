import copy
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.canonical import (
    FrozenDict,
    NotJsonError,
    canonical_json,
    clean_text,
    cut_utf8,
    digest,
    freeze,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


def shuffled(value: Any, reverse: bool) -> Any:
    if isinstance(value, dict):
        members = sorted(value.items(), reverse=reverse)
        return {key: shuffled(member, not reverse) for key, member in members}
    if isinstance(value, list):
        return [shuffled(member, reverse) for member in value]
    return value


@given(json_values)
def test_the_order_of_keys_does_not_change_a_digest(value: Any) -> None:
    assert digest(shuffled(value, True)) == digest(shuffled(value, False)) == digest(value)


@given(json_values, json_values)
def test_other_values_have_other_digests(one: Any, other: Any) -> None:
    same = json.loads(canonical_json(one)) == json.loads(canonical_json(other))
    assert (canonical_json(one) == canonical_json(other)) == (digest(one) == digest(other))
    if digest(one) == digest(other):
        assert same


@given(json_values)
def test_canonical_bytes_are_that_value_as_json(value: Any) -> None:
    assert json.loads(canonical_json(value)) == json.loads(json.dumps(value))


def test_true_is_not_one_and_text_is_not_a_number() -> None:
    assert len({digest(value) for value in (True, 1, "1", "true", None, [], {}, [1], {"1": 1})}) == 9


def test_one_number_has_one_form() -> None:
    assert digest({"a": 1.0}) == digest({"a": 1})
    assert digest(-0.0) == digest(0)


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        b"x",
        {1: 2},
        {"a": {"b": object()}},
        print,
        {"a": {1, 2}},
        "\ud800",
        {"\udc00": 1},
        2**64,
        [-(2**63) - 1],
    ],
    ids=repr,
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(NotJsonError):
        digest(value)


def test_a_refusal_says_where() -> None:
    with pytest.raises(NotJsonError, match=r"metadata\.a\[1\]\.b is not a finite number"):
        freeze({"a": [0, {"b": math.nan}]}, "metadata")


def test_endless_nesting_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotJsonError, match="deeper"):
        freeze(value)


def test_a_frozen_value_is_a_copy_that_nobody_can_change() -> None:
    original = {"a": {"b": [1, 2]}}
    frozen = freeze(original)
    original["a"]["b"].append(3)
    assert frozen == {"a": {"b": (1, 2)}}
    changes: list[Callable[[], object]] = [
        lambda: frozen.__setitem__("x", 1),
        lambda: frozen["a"].update(x=1),
        lambda: frozen.pop("a"),
        lambda: frozen["a"].__delitem__("b"),
        lambda: frozen.clear(),
        lambda: frozen.setdefault("z", 1),
        lambda: frozen.__ior__({"z": 1}),
    ]
    for change in changes:
        with pytest.raises(TypeError):
            change()
    assert frozen == {"a": {"b": (1, 2)}}
    assert json.dumps(frozen) == '{"a": {"b": [1, 2]}}'
    assert copy.deepcopy(frozen) == frozen
    assert isinstance(copy.copy(frozen), FrozenDict)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 50))
def test_a_cut_never_splits_a_character_and_leaves_no_room_for_the_next(text: str, limit: int) -> None:
    cut = cut_utf8(text, limit)
    assert text.startswith(cut)
    assert len(cut.encode()) <= limit
    if cut != text:
        assert len((cut + text[len(cut)]).encode()) > limit


@given(st.text())
def test_cleaned_text_always_encodes(text: str) -> None:
    cleaned = clean_text(text)
    assert "\ufffd" in cleaned or cleaned.encode("utf-8").decode() == cleaned
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert cleaned == text


def test_the_halves_of_a_split_character_are_joined() -> None:
    assert clean_text("a\ud83d\ude00b") == "a😀b"
    assert clean_text("a\ud83db") == "a\ufffdb"
