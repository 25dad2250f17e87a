"""Schemas that are none, answers that do not fit, and what is told of either."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.canonical import freeze
from runtime_host.errors import AgentStructuredOutputError
from runtime_host.structured import MAX_VIOLATIONS_TOLD, check_schema, checker, judge, sentence

SECRET = "the-word-that-stood-in-the-answer"
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, r"\$\.type"),
        ({"properties": {"a": {"type": 3}}}, r"\$\.properties\.a\.type"),
        ({"required": "name"}, r"\$\.required"),
        ({"properties": {"a": {"pattern": "("}}}, r"\$\.properties\.a\.pattern"),
        ({"patternProperties": {"[": {}}}, "pattern"),
        ({"$ref": "https://schemas.example/person.json"}, "nothing is fetched"),
        ({"items": {"$ref": "other.json#/a"}}, "nothing is fetched"),
        ({"properties": {"a": {"$ref": "#/$defs/nobody"}}}, r"\$\.properties\.a refers to what is not there"),
        ({"$schema": "https://schemas.example/my-own-draft"}, "draft"),
        ({"minimum": "one"}, r"\$\.minimum"),
        ({"properties": {"a": {"pattern": r"^(?!b)a"}}}, r"\$\.properties\.a has a pattern .* bounded time"),
        ({"pattern": r"(a)\1"}, r"\$ has a pattern .* bounded time"),
        ({"pattern": "(?:[ab]{1,300}){1,300}c"}, r"\$ has a pattern that is too large"),
        ({"patternProperties": {"a{5000}": {}}}, r"\$ has a pattern that is too large"),
        ({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}, r"\$\.items is of a draft of its own"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "do not go with unevaluatedProperties"),
    ],
)
def test_a_schema_that_is_none_is_named_with_the_place_in_it(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(AgentStructuredOutputError, match=words) as refused:
        check_schema(freeze(schema), "person")
    assert refused.value.message.startswith("The schema person ")
    assert refused.value.error_code == "AGENT_STRUCTURED_OUTPUT"
    assert refused.value.details["schema"] == "person"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        PERSON,
        {"$ref": "#/$defs/a", "$defs": {"a": PERSON}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}, "$ref": "#/definitions/a"},
        {"const": {"$ref": "https://is.data/here"}},
        {"$defs": {"a/b": {}}, "$ref": "#/$defs/a~1b"},
    ],
)
def test_a_schema_that_is_one_passes(schema: dict[str, Any]) -> None:
    check_schema(freeze(schema), None)


def test_an_answer_that_fits_is_given_as_it_is_and_frozen() -> None:
    judged = judge('{"name": "Ada", "age": 36}', freeze(PERSON), unwrap=False)
    assert (judged.value, judged.violations) == ({"name": "Ada", "age": 36}, ())
    with pytest.raises(TypeError):
        judged.value["name"] = "Eve"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("", "no JSON"),
        (f"Sure! {SECRET}", "no JSON at line 1"),
        ('{"name": "Ada", "age": 36', "no JSON"),
        ('{"name": "Ada", "age": NaN}', "no JSON"),
        ('{"name": "Ada", "age": 1e999}', "no JSON value"),
        ('{"name": "Ada", "age": ' + "9" * 5000 + "}", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"name": "Ada"}', r"\$ does not meet required"),
        (f'{{"name": "{SECRET}", "age": 1}}', r"\$\.name does not meet maxLength 8"),
        ('{"name": "Ada", "age": -1}', r"\$\.age does not meet minimum 0"),
        (f'{{"name": "Ada", "age": "{SECRET}"}}', r'\$\.age does not meet type "integer"'),
        ('```json\n{"name": "Ada", "age": 36}\n```', "no JSON"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_by_place_and_rule_and_never_quoted(answer: str, words: str) -> None:
    judged = judge(answer, freeze(PERSON), unwrap=False)
    assert judged.value is None
    told = sentence(judged.violations, "person")
    assert told.startswith("The answer does not meet the schema person: ")
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(told)
    assert SECRET not in told


def test_at_most_five_violations_are_told() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    few = judge(json.dumps(["x"] * MAX_VIOLATIONS_TOLD), schema, unwrap=False)
    many = judge(json.dumps(["x"] * 1000), schema, unwrap=False)
    assert sentence(few.violations, None).count("does not meet type") == MAX_VIOLATIONS_TOLD
    assert sentence(many.violations, None).count("does not meet type") == MAX_VIOLATIONS_TOLD
    assert sentence(many.violations, None).endswith("; and more.")
    assert not sentence(few.violations, None).endswith("; and more.")
    assert len(sentence(judge('"x"', {"enum": ["y" * 5000]}, unwrap=False).violations, None)) < 300


@pytest.mark.parametrize("fenced", ['```json\n{"a": 1}\n```', '\n```\n{"a": 1}\n```\n', '{"a": 1}'])
def test_a_fence_is_taken_off_only_for_harnesses_without_a_mode_for_json(fenced: str) -> None:
    assert judge(fenced, {"type": "object"}, unwrap=True).value == {"a": 1}
    assert judge(f"So: {fenced} That's it.", {"type": "object"}, unwrap=True).violations


def test_what_cannot_be_judged_is_not_valid() -> None:
    endless: dict[str, Any] = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    assert judge("1", endless, unwrap=False).violations
    nowhere = {"$id": "https://schemas.example/root", "$ref": "https://schemas.example/nowhere"}
    assert judge("1", nowhere, unwrap=False).violations == (
        "the answer could not be judged, because the schema leads nowhere or has no end",
    )


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_JSON)
def test_any_json_meets_the_schema_that_allows_all_and_comes_back_equal(value: Any) -> None:
    judged = judge(json.dumps(value), {}, unwrap=True)
    assert judged.violations == ()
    assert judged.value == freeze(value)


@given(st.text())
def test_any_text_is_judged_without_an_error(text: str) -> None:
    judged = judge(text, PERSON, unwrap=True)
    assert (judged.value is None) == bool(judged.violations)


# ------------------------------------------------------------------------------------- bounded work

# With a search that goes back and tries again each of these takes longer than anybody lives.
CATASTROPHE = "a" * 200 + "!"


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"pattern": "(a+)+$"}, CATASTROPHE),
        ({"pattern": r"^(\w+\s?)*$"}, CATASTROPHE),
        ({"patternProperties": {"(a|a)*$": False}, "minProperties": 2}, {CATASTROPHE: 1}),
        ({"patternProperties": {"(a|aa)+$": {}}, "additionalProperties": False}, {CATASTROPHE: 1}),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(a+)+$"}, CATASTROPHE),
        ({"propertyNames": {"pattern": "(a*)*b"}}, {CATASTROPHE: 1}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"not": {"not": {"pattern": "(a+)+$"}}}}}, CATASTROPHE),
    ],
)
def test_a_pattern_made_to_hang_is_judged_at_once(schema: dict[str, Any], answer: Any) -> None:
    check_schema(freeze(schema), None)
    assert judge(json.dumps(answer), freeze(schema), unwrap=False).violations
    assert checker(freeze(schema), steps=1000)(answer) is not None


def test_a_pattern_on_more_text_than_can_be_searched_is_not_valid() -> None:
    schema = {"pattern": "(?:[ab]c?d?e?f?){1,90}!"}
    assert judge('"ab!"', schema, unwrap=False).violations == ()
    assert "more work" in judge(json.dumps("ab" * 500_000 + "!"), schema, unwrap=False).violations[0]


def test_a_schema_that_doubles_at_each_reference_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.structured.MAX_STEPS", 20_000)
    doubling: dict[str, Any] = {"x0": {"not": {}}}
    for n in range(1, 60):
        doubling[f"x{n}"] = {"anyOf": [{"$ref": f"#/$defs/x{n - 1}"}, {"$ref": f"#/$defs/x{n - 1}"}]}
    schema = {"$defs": doubling, "$ref": "#/$defs/x59"}
    check_schema(schema, None)
    assert "more work" in judge("1", schema, unwrap=False).violations[0]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (
            r"^[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}$",
            "0" * 8 + "-0000" * 3 + "-" + "0" * 12,
            True,
        ),
        (r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$", "2026-01-02T03:04:05Z", True),
        (r"^[^\s@]+@[^\s@]+\.[a-z]{2,}$", "ada@example.org", True),
        (r"^[^\s@]+@[^\s@]+\.[a-z]{2,}$", "ada at example.org", False),
        ("b", "abc", True),
        (r"^[]a]{2}\/\[$", "]a/[", True),
        (r"^(?:a|b){3}(?P<n>c)?$", "abac", True),
    ],
)
def test_usual_patterns_are_searched_anywhere_in_the_text(pattern: str, text: str, found: bool) -> None:
    schema = {"pattern": pattern}
    check_schema(schema, None)
    assert (judge(json.dumps(text), schema, unwrap=False).violations == ()) is found


@pytest.mark.parametrize(
    ("members", "unique"),
    [
        ([1, 2, "1"], True),
        ([1, 1.0], False),
        ([1, True, 0, False], True),
        ([{"a": 1, "b": [2]}, {"b": [2], "a": 1.0}], False),
        ([[1], [True]], True),
        ([{}, [], None, "", 0], True),
        ([[{"a": None}], [{"a": None}]], False),
    ],
)
def test_members_are_equal_where_json_says_so(members: list[Any], unique: bool) -> None:
    assert (judge(json.dumps(members), {"uniqueItems": True}, unwrap=False).violations == ()) is unique
    assert judge(json.dumps(members), {"uniqueItems": False}, unwrap=False).violations == ()
