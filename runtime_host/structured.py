"""JSON schemas: is one a schema, and does a value meet it? Checked here, whatever a harness promises.

Owns both judgements and their wording, and how much work either may be. Must not know drivers or runs. Invariants:
nothing is fetched to judge a schema; no schema and no value makes a judgement endless, whatever pattern or reference
is in it; what cannot be judged is not valid; a sentence names places and rules, never what stood in the answer.
"""

import functools
import importlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, ValidationError, core_schema

from runtime_host.canonical import NotJsonError, freeze, thaw
from runtime_host.errors import AgentStructuredOutputError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_VIOLATIONS_TOLD: Final = 5
MAX_STEPS: Final = 1_000_000
"""Rules applied to an answer, over all its members."""
JUDGING_S: Final = 5.0
MAX_PATTERN_SIZE: Final = 4096
"""Places in a pattern, its counted repetitions written out; a class of characters is several."""
MAX_PATTERN_WORK: Final = 4_000_000
"""Places in a pattern times characters of the text it is searched in: about a tenth of a second."""
_WORK_OF_A_STEP: Final = 500
_CLASS_SIZE: Final = 8
_COUNTS: Final = re.compile(r"\{(\d{1,9})(?:(,)(\d{0,9}))?\}")
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
    _validator(thaw(schema), name, Bounds(MAX_STEPS))


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
    bounds = Bounds(MAX_STEPS)
    validator = _validator(thaw(schema), None, bounds)
    violations: list[str] = []
    try:
        for violation in validator.iter_errors(value):
            violations.append(_told(violation))
            if len(violations) > MAX_VIOLATIONS_TOLD:
                break
    except TooMuchWorkError:
        violations = ["the answer could not be judged, because that is more work than a judgement may be"]
    except Exception:
        # A reference that leads nowhere, nesting without end: what is not judged is not valid.
        violations = ["the answer could not be judged, because the schema leads nowhere or has no end"]
    return Judged(None if violations else frozen, tuple(violations))


def checker(schema: Mapping[str, Any], *, steps: int) -> Callable[[Any], str | None]:
    """What a value does not meet of a schema that others were told: a place and a rule; None when it meets it.

    Raises:
        AgentStructuredOutputError: the schema is none, or has a pattern that cannot be searched in bounded time.
    """
    bounds = Bounds(steps)
    validator = _validator(thaw(schema), None, bounds)

    def complaint(value: Any) -> str | None:
        bounds.begin()
        try:
            problem = next(validator.iter_errors(thaw(value)), None)
        except Exception:
            return "whether they fit the schema could not be found out"
        if problem is None:
            return None
        place = ".".join(str(step) for step in problem.absolute_path) or "the arguments"
        return f"{place} did not fit the schema ({problem.validator})"

    return complaint


def sentence(violations: tuple[str, ...], name: str | None) -> str:
    """What is told of an answer that does not fit."""
    told = "; ".join(violations[:MAX_VIOLATIONS_TOLD])
    more = "; and more" if len(violations) > MAX_VIOLATIONS_TOLD else ""
    return f"The answer does not meet the schema{f' {name}' if name else ''}: {told}{more}."


class TooMuchWorkError(Exception):
    """A judgement took more than it may."""


class Bounds:
    """What one judgement may take."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.begin()

    def begin(self) -> None:
        """A judgement begins."""
        self._left = self._steps
        self._ends_at = time.monotonic() + JUDGING_S

    def spend(self, steps: int) -> None:
        """Count work before it is done.

        Raises:
            TooMuchWorkError: there is none left.
        """
        self._left -= steps
        if self._left < 0 or (not self._left & 63 and time.monotonic() > self._ends_at):
            raise TooMuchWorkError

    def found(self, pattern: str, text: str) -> bool:
        """Whether a pattern is found in a text, by a search whose time is linear in the text.

        Raises:
            TooMuchWorkError: that would take too long.
        """
        search, size = _search(pattern)
        work = size * len(text)
        if work > MAX_PATTERN_WORK:
            raise TooMuchWorkError
        self.spend(1 + work // _WORK_OF_A_STEP)
        try:
            search.validate_python(text)
        except ValidationError:
            return False
        return True


def _validator(schema: Any, name: str | None, bounds: Bounds) -> "Validator":
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
    # Without its draft, which is decided: the library would take its own unbounded validator for that wherever it meets
    # one. With a registry of its own, because the usual one fetches what a schema refers to.
    if isinstance(schema, dict):
        schema.pop("$schema", None)
    validator: Validator = _bounded(kind, bounds)(schema, registry=referencing.Registry())
    return validator


def _bounded(kind: Any, bounds: Bounds) -> Any:
    """A kind of validator whose every rule counts, and whose patterns are searched in linear time."""
    jsonschema, _ = _libraries()
    rules = dict(kind.VALIDATORS)
    changed = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    for keyword, rule in rules.items():
        own = changed.get(keyword)
        rules[keyword] = _counted(functools.partial(own, bounds) if own is not None else rule, bounds)
    return jsonschema.validators.extend(kind, rules)


def _counted(rule: Callable[..., Any], bounds: Bounds) -> Callable[..., Any]:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        bounds.spend(1)
        yield from rule(validator, value, instance, schema) or ()

    return counted


def _pattern(bounds: Bounds, validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not bounds.found(pattern, instance):
        yield _violation("the pattern is not found")


def _pattern_properties(bounds: Bounds, validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[Any]:
    if validator.is_type(instance, "object"):
        for pattern, schema in patterns.items():
            for key, value in instance.items():
                if bounds.found(pattern, key):
                    yield from validator.descend(value, schema, path=key, schema_path=pattern)


def _additional_properties(bounds: Bounds, validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [key for key in instance if key not in known and not any(bounds.found(each, key) for each in patterns)]
    if rule is False and extra:
        yield _violation("there are properties that may not be there")
    elif isinstance(rule, dict):
        for key in extra:
            yield from validator.descend(instance[key], rule, path=key)


def _unique_items(bounds: Bounds, validator: Any, rule: Any, instance: Any, _: Any) -> Iterator[Any]:
    if rule is True and validator.is_type(instance, "array"):
        bounds.spend(len(instance))
        if len({_identity(each) for each in instance}) < len(instance):
            yield _violation("there are members that are equal")


def _identity(value: Any) -> Any:
    """Something hashable that two values share when JSON takes them for equal: 1 is 1.0, and neither is true."""
    if isinstance(value, dict):
        return "object", frozenset((key, _identity(member)) for key, member in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_identity, value))
    return isinstance(value, bool), value


def _violation(words: str) -> Any:
    return _libraries()[0].ValidationError(words)


@functools.lru_cache(256)
def _search(pattern: str) -> tuple[SchemaValidator, int]:
    """The search for a pattern, whose time is linear in the text, and how large the pattern is.

    Raises:
        ValueError: it is too large, or needs what cannot be searched in linear time (look-around, back-references).
    """
    size = _size(pattern)
    if size > MAX_PATTERN_SIZE:
        raise ValueError("that is too large")
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)), size
    except PatternError as error:
        raise ValueError("that cannot be searched in bounded time") from error


def _size(pattern: str) -> int:
    """Places in a pattern, counted repetitions written out."""
    sizes, last, at = [1], 1, 0
    while at < len(pattern):
        sign, counts = pattern[at], _COUNTS.match(pattern, at)
        at = counts.end() if counts is not None else at + (2 if sign == "\\" else 1)
        if counts is not None:
            times = max(1, int(counts[3] or counts[1]))
            sizes[-1] += last * (times - 1)
            last *= times
        elif sign == "(":
            sizes.append(1)
        elif sign == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif sign not in "*+?|^$":
            if sign == "[":
                at = _after_class(pattern, at)
            last = _CLASS_SIZE if sign in "[\\." else 1
            sizes[-1] += last
    return sum(sizes)


def _after_class(pattern: str, at: int) -> int:
    """The place after a class of characters whose first is at `at`."""
    if pattern[at : at + 1] == "^":
        at += 1
    first = True
    while at < len(pattern) and (first or pattern[at] != "]"):
        at += 2 if pattern[at] == "\\" else 1
        first = False
    return at + 1


class _BadSchemaError(Exception):
    pass


def _check_patterns_and_references(schema: Any) -> None:
    identified = any(isinstance(part.get("$id"), str) for _, part in _objects(schema, "$"))
    unevaluated = any("unevaluatedProperties" in part for _, part in _objects(schema, "$"))
    for place, part in _objects(schema, "$"):
        if place != "$" and isinstance(part.get("$schema"), str):
            raise _BadSchemaError(f"{place} is of a draft of its own")
        if "patternProperties" in part and unevaluated:
            # What was evaluated the library finds out by a search of its own, whose time has no bound.
            raise _BadSchemaError(f"{place} has patternProperties, which do not go with unevaluatedProperties here")
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
                _search(pattern)
            except (re.error, RecursionError, OverflowError):
                raise _BadSchemaError(f"{place} has a pattern that cannot be read") from None
            except ValueError as error:
                raise _BadSchemaError(f"{place} has a pattern {error}") from None


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


def _details(name: str | None) -> dict[str, Any]:
    return {"field": "response_format.schema", "schema": name}


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


@functools.cache
def _libraries() -> tuple[Any, Any]:
    # By name and late: most runs have no schema, and these take 50 ms to import.
    return importlib.import_module("jsonschema"), importlib.import_module("referencing")
