"""Structured answers: is the schema one, and does an answer meet it? Checked here, whatever a harness promises.

Owns both judgements and their wording. Must not know drivers or runs. Invariants: nothing is fetched to judge
a schema; what cannot be judged is not valid; a sentence names places and rules, never what stood in the answer.
"""

import functools
import importlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from runtime_host.canonical import NotJsonError, freeze
from runtime_host.errors import AgentStructuredOutputError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_VIOLATIONS_TOLD: Final = 5
_RULE_CHARS: Final = 80
_DATA_KEYWORDS: Final = frozenset({"const", "enum", "default", "examples"})
_FENCE: Final = re.compile(r"\A\s*```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```\s*\Z", re.DOTALL)


class Judged(NamedTuple):
    """An answer against its schema: `value` is there when there are no `violations`."""

    value: Any
    violations: tuple[str, ...]


def check_schema(schema: Mapping[str, Any], name: str | None) -> None:
    """Refuse a schema that is none.

    Raises:
        AgentStructuredOutputError: names the schema, the place in it and the rule.
    """
    _validator(_plain(schema), name)


def judge(text: str, schema: Mapping[str, Any], *, unwrap: bool) -> Judged:
    """Whether `text` is JSON that meets `schema`.

    Args:
        text: the whole answer, masked.
        schema: was accepted by `check_schema`.
        unwrap: take the JSON out of a code fence around the whole answer, as models without a mode for it write it.

    Raises:
        AgentStructuredOutputError: the schema is none.
    """
    fenced = _FENCE.match(text) if unwrap else None
    try:
        value = json.loads(fenced.group(1) if fenced else text, parse_constant=_no_constant)
        frozen = freeze(value)
    except NotJsonError as error:
        return Judged(None, (f"the answer is no JSON value: {error}",))
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        return Judged(None, (f"the answer is no JSON{where}",))
    validator = _validator(_plain(schema), None)
    violations: list[str] = []
    try:
        for violation in validator.iter_errors(value):
            violations.append(_told(violation))
            if len(violations) > MAX_VIOLATIONS_TOLD:
                break
    except Exception:
        # A reference that leads nowhere, nesting without end: what is not judged is not valid.
        violations = ["the answer could not be judged, because the schema leads nowhere or has no end"]
    return Judged(None if violations else frozen, tuple(violations))


def sentence(violations: tuple[str, ...], name: str | None) -> str:
    """What is told of an answer that does not fit."""
    told = "; ".join(violations[:MAX_VIOLATIONS_TOLD])
    more = "; and more" if len(violations) > MAX_VIOLATIONS_TOLD else ""
    return f"The answer does not meet the schema{f' {name}' if name else ''}: {told}{more}."


def _validator(schema: Any, name: str | None) -> "Validator":
    jsonschema, referencing = _libraries()
    called = f"The schema {name}" if name else "The schema"
    draft = schema.get("$schema") if isinstance(schema, dict) else None
    kind = jsonschema.validators.validator_for(schema, default=None if draft else jsonschema.Draft202012Validator)
    if kind is None:
        raise AgentStructuredOutputError(f"{called} is of a draft that is not known here.", details=_details(name))
    try:
        kind.check_schema(schema)
        _check_patterns_and_references(schema)
    except jsonschema.SchemaError as error:
        raise AgentStructuredOutputError(
            f"{called} is no JSON schema: {_told(error)}.", details=_details(name)
        ) from None
    except _BadSchemaError as error:
        raise AgentStructuredOutputError(f"{called} cannot be used: {error}.", details=_details(name)) from None
    except RecursionError:
        raise AgentStructuredOutputError(f"{called} is nested too deep.", details=_details(name)) from None
    # A registry of its own, because the usual one fetches what a schema refers to.
    validator: Validator = kind(schema, registry=referencing.Registry())
    return validator


class _BadSchemaError(Exception):
    pass


def _check_patterns_and_references(schema: Any) -> None:
    identified = any(isinstance(part.get("$id"), str) for _, part in _objects(schema, "$"))
    for place, part in _objects(schema, "$"):
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = part.get(keyword)
            if not isinstance(reference, str):
                continue
            if not reference.startswith("#") and not identified:
                raise _BadSchemaError(f"{place} refers to something outside of it, and nothing is fetched")
            if reference.startswith("#/") and not identified and not _leads_somewhere(schema, reference):
                raise _BadSchemaError(f"{place} refers to what is not there")
        patterns = [part["pattern"]] if isinstance(part.get("pattern"), str) else []
        named = part.get("patternProperties")
        if isinstance(named, dict):
            patterns.extend(named)
        for pattern in patterns:
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError):
                raise _BadSchemaError(f"{place} has a pattern that cannot be read") from None


def _objects(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        yield place, schema
        for key, member in schema.items():
            if key not in _DATA_KEYWORDS:
                yield from _objects(member, f"{place}.{key}")
    elif isinstance(schema, list):
        for at, member in enumerate(schema):
            yield from _objects(member, f"{place}[{at}]")


def _leads_somewhere(schema: Any, reference: str) -> bool:
    at = schema
    for step in reference[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict) and key in at:
            at = at[key]
        elif isinstance(at, list) and key.isdecimal() and int(key) < len(at):
            at = at[int(key)]
        else:
            # Percent-encoded pointers are left to the library, which fails closed.
            return "%" in reference
    return True


def _told(error: Any) -> str:
    rule = json.dumps(error.validator_value, ensure_ascii=False, default=str)
    if len(rule) > _RULE_CHARS:
        rule = rule[: _RULE_CHARS - 1] + "…"
    return f"{error.json_path} does not meet {error.validator} {rule}"


def _plain(value: Any) -> Any:
    """Lists and dicts of a frozen value: the library takes tuples for no arrays."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value


def _details(name: str | None) -> dict[str, Any]:
    return {"field": "response_format.schema", "schema": name}


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


@functools.cache
def _libraries() -> tuple[Any, Any]:
    # By name and late: most runs have no schema, and these take 50 ms to import.
    return importlib.import_module("jsonschema"), importlib.import_module("referencing")
