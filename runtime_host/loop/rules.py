"""What a mount's policy says of a call. Pure.

Owns the form of a policy and the order in which it is read. Must not know stores or plugins. Invariants: no policy
allows; a tool's own word goes before read and write; a deny is never lifted by a rule; a rule is read only where the
policy says approval; a saved rule holds nothing that was not shown, and can only be narrower than what was offered.

A policy: `{"read"?: D, "write"?: D, "tools"?: {name: D}, "rules"?: [{"tool": name, "where": {argument: condition}}]}`
with D one of allow, deny, approval.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import unquote, urlsplit

from runtime_host.loop.plugins.base import Rule, SideEffects

Decision = Literal["allow", "deny", "approval"]
DECISIONS: Final[tuple[Decision, ...]] = get_args(Decision)
MOST_RULES: Final = 64


class Said(NamedTuple):
    """A verdict and what it came from: `tool`, `read`, `write`, `rule` or `none`."""

    decision: Decision
    by: Literal["tool", "read", "write", "rule", "none"]


def verdict(policy: Mapping[str, Any], tool: str, effect: SideEffects, arguments: Mapping[str, Any]) -> Said:
    """What a policy says of a call."""
    tools = policy.get("tools") or {}
    if tool in tools:
        said = Said(_decision(tools[tool]), "tool")
    elif effect in policy:
        said = Said(_decision(policy[effect]), effect)
    else:
        return Said("allow", "none")
    if said.decision == "approval" and any(holds(rule, tool, arguments) for rule in rules_of(policy)):
        return Said("allow", "rule")
    return said


def rules_of(policy: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules of a policy; what is none is left out, so that it allows nothing."""
    found = [rule for rule in policy.get("rules") or () if _is_rule(rule)]
    return tuple(Rule(rule["tool"], rule["where"]) for rule in found)


def holds(rule: Rule, tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call is one that a rule speaks of. A condition that means nothing holds for nothing."""
    return rule.tool == tool and all(
        _meets(_member(arguments, path), condition) for path, condition in rule.where.items()
    )


def exactly(tool: str, arguments: Mapping[str, Any]) -> Rule:
    """The narrowest rule: this call and no other; one that holds for nothing where its arguments cannot be named."""
    if any(name == "" or "." in name for name in arguments):
        # Such a name means something else in a rule, so what stands under it would be left open.
        return Rule(tool, {"": {"is": False}})
    return Rule(tool, {name: {"is": value} for name, value in arguments.items()} | {"": {"is": sorted(arguments)}})


def is_narrower(rule: Rule, offered: Rule) -> bool:
    """Whether a rule allows nothing that `offered` would not."""
    return rule.tool == offered.tool and all(
        path in rule.where and _implies(rule.where[path], condition) for path, condition in offered.where.items()
    )


def with_rule(policy: Mapping[str, Any], rule: Rule) -> dict[str, Any]:
    """The policy with one more rule, once."""
    told = {"tool": rule.tool, "where": {path: dict(condition) for path, condition in rule.where.items()}}
    rules = [each for each in policy.get("rules") or () if each != told]
    if len(rules) >= MOST_RULES:
        raise ValueError(f"A mount has at most {MOST_RULES} rules. Remove one first.")
    return {**policy, "rules": [*rules, told]}


def checked(policy: Mapping[str, Any]) -> dict[str, Any]:
    """A policy that means something.

    Raises:
        ValueError: with a sentence that says what does not.
    """
    if unknown := sorted(policy.keys() - {"read", "write", "tools", "rules"}):
        raise ValueError(f"A policy has read, write, tools and rules, and no {', '.join(unknown)}.")
    words = [policy[name] for name in ("read", "write") if name in policy]
    tools = policy.get("tools", {})
    if not isinstance(tools, Mapping):
        raise ValueError("The tools of a policy are an object of decisions by name.")
    for word in (*words, *tools.values()):
        if word not in DECISIONS:
            raise ValueError(f"A decision is one of {', '.join(DECISIONS)}, not {word!r}.")
    rules = policy.get("rules", [])
    if len(rules_of(policy)) != len(rules) or len(rules) > MOST_RULES:
        raise ValueError(f"The rules of a policy are at most {MOST_RULES}, each of a tool and conditions.")
    for rule in rules_of(policy):
        for condition in rule.where.values():
            if not _is_condition(condition):
                raise ValueError("A condition is an object with one of: is, starts, host.")
    return dict(policy)


def _decision(word: Any) -> Decision:
    # A word that means nothing must not open anything.
    return word if word in DECISIONS else "deny"


def _is_rule(rule: Any) -> bool:
    return isinstance(rule, Mapping) and isinstance(rule.get("tool"), str) and isinstance(rule.get("where"), Mapping)


def _member(arguments: Mapping[str, Any], path: str) -> Any:
    if path == "":
        # Which arguments there are at all.
        return sorted(arguments)
    found: Any = arguments
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return _ABSENT
        found = found[name]
    return found


_ABSENT: Final = object()


def _is_condition(condition: Any) -> bool:
    return isinstance(condition, Mapping) and len(condition) == 1 and next(iter(condition)) in ("is", "starts", "host")


def _meets(value: Any, condition: Mapping[str, Any]) -> bool:
    if value is _ABSENT or not _is_condition(condition):
        return False
    [(kind, wanted)] = condition.items()
    if kind == "is":
        return _same_json(value, wanted)
    if not isinstance(value, str) or not isinstance(wanted, str) or not wanted:
        return False
    if kind == "starts":
        return value.startswith(wanted) and not _leads_up(value)
    return _host(value) == wanted.lower()


def _leads_up(text: str) -> bool:
    """Whether a part of a path in it leads out again of what it begins with, in whatever way that is written."""
    for _ in range(_UNPACKED):
        text = unquote(text)
    return ".." in _PARTS.split(text)


_UNPACKED: Final = 3
_PARTS: Final = re.compile(r"[/\\?#&=;]")


def _same_json(value: Any, wanted: Any) -> bool:
    # Frozen values of a call and plain ones of a policy are the same JSON.
    if isinstance(value, Mapping) and isinstance(wanted, Mapping):
        return value.keys() == wanted.keys() and all(_same_json(value[key], wanted[key]) for key in value)
    if isinstance(value, list | tuple) and isinstance(wanted, list | tuple):
        return len(value) == len(wanted) and all(map(_same_json, value, wanted))
    return type(value) is type(wanted) and bool(value == wanted)


_PORTS: Final = {"http": 80, "https": 443}


def _host(value: str) -> str:
    try:
        parts = urlsplit(value)
        # What answers at another port of a host is another server.
        usual = parts.port in (None, _PORTS.get(parts.scheme))
        return (parts.hostname or "").lower() if parts.scheme in _PORTS and usual else ""
    except ValueError:
        return ""


def _implies(narrow: Mapping[str, Any], wide: Mapping[str, Any]) -> bool:
    if not _is_condition(narrow) or not _is_condition(wide):
        return False
    [(kind, value)], [(of_wide, wanted)] = narrow.items(), wide.items()
    if kind == "is":
        return _meets(value, wide)
    if kind == "host":
        return of_wide == "host" and _meets(f"https://{value}/", wide)
    # A prefix implies a host only where it holds the whole host, closed by what ends one.
    if of_wide == "starts":
        return isinstance(value, str) and value.startswith(wanted)
    return of_wide == "host" and isinstance(value, str) and value.count("/") >= 3 and _host(value) == wanted.lower()
