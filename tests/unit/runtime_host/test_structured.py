"""Schemas that are none, answers that do not fit, and what is told of either."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.canonical import freeze
from runtime_host.errors import AgentStructuredOutputError
from runtime_host.structured import MAX_VIOLATIONS_TOLD, check_schema, judge, sentence

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
