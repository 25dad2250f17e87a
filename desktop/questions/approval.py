"""A held call as the person decides about it: what the trusted dialog shows, and the rule that is made of the answer.

Owns the words. Must not know how a decision is taken or what follows from it. Invariants: everything that would be
executed is shown, whole; the rule that is saved is the one that was shown, and is no wider than what was offered; who
closes the dialog has decided nothing.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from desktop.dialogs import Approval, ApprovalAnswer
from runtime_host.loop import rules
from runtime_host.loop.held import Held
from runtime_host.loop.plugins.base import Rule

if TYPE_CHECKING:
    from desktop.app import Host

_PLAIN_NAME: Final = re.compile(r"[a-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_HELD_BY: Final = {
    "policy": "You wanted to be asked before this.",
    "agent": "The agent itself asks you to confirm this.",
}


class Verdict(NamedTuple):
    """What the person decided about a call."""

    approve: bool
    always: Rule | None = None


async def ask(host: "Host", held: Held, *, agent: str, conversation: str, folder: str = "") -> Verdict | None:
    """Show a held call and ask; None when the person did not decide: it goes on waiting."""
    asked = approval_of(held, agent=agent, conversation=conversation, folder=folder)
    answer = await (await host.trusted()).ask_approval(asked)
    return None if answer is None else Verdict(answer.approve, rule_of(held, answer))


def approval_of(held: Held, *, agent: str, conversation: str, folder: str = "") -> Approval:
    """What is shown of a held call."""
    widest = _widest(held)
    return Approval(
        operation_id=held.operation_id,
        asked_by=f"the agent {agent}",
        tool=held.tool,
        mount=f"{held.alias} ({held.plugin_title})",
        account=held.account,
        conversation=conversation,
        folder=folder,
        effect=held.effect or f"Calls {held.tool} of {held.alias}.",
        why=_HELD_BY[held.held_by],
        until=until_words(held.expires_ms),
        parts=parts_of(held.arguments),
        refusable=f"{held.stale} So it can only be denied; the agent may ask anew." if held.stale else "",
        exact=not held.stale and rules.holds(held.exact, held.tool, held.arguments),
        widest=tuple(_condition(argument, condition, held) for argument, condition in widest.where.items())
        if widest
        else (),
        also=tuple(name for name in held.arguments if widest and "." not in name and not _speaks_of(widest, name)),
    )


def parts_of(arguments: Mapping[str, Any]) -> tuple[tuple[str, Literal["text", "json"], str], ...]:
    """Each argument whole: a text as it is, anything else as JSON. What is called like words of ours is quoted."""
    return tuple(
        (_label(name), "text", value)
        if isinstance(value, str)
        else (_label(name), "json", json.dumps(_plain(value), ensure_ascii=False, indent=2))
        for name, value in arguments.items()
    )


def _label(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def until_words(expires_ms: int | None) -> str:
    """When it counts as a no; empty for never."""
    if expires_ms is None:
        return ""
    when = datetime.fromtimestamp(expires_ms / 1000).astimezone()
    return f"Counts as denied on {when.day} {when:%B} at {when:%H:%M}, if it is not decided before."


def rule_of(held: Held, answer: ApprovalAnswer) -> Rule | None:
    """The rule that “always” saves, exactly as it was shown; None for once."""
    if not answer.approve or not answer.always:
        return None
    if answer.always == "exact":
        return held.exact
    widest = _widest(held)
    if widest is None:
        return None
    where = {argument: dict(condition) for argument, condition in widest.where.items()}
    where |= {argument: {made: typed} for argument, (made, typed) in answer.where.items()}
    where |= {name: {"is": _plain(held.arguments[name])} for name in answer.also}
    return Rule(held.tool, where)


def _widest(held: Held) -> Rule | None:
    """The widest rule that may be offered: one that speaks of this very call, and not of nothing."""
    widest = held.widest
    if held.stale or widest is None or not widest.where or not rules.holds(widest, held.tool, held.arguments):
        return None
    return widest


def _speaks_of(rule: Rule, name: str) -> bool:
    return any(path.partition(".")[0] == name for path in rule.where)


def _condition(
    argument: str, condition: Mapping[str, Any], held: Held
) -> tuple[str, Literal["is", "starts", "host"], str, str, bool]:
    [(kind, value)] = condition.items()
    now = _value_at(held.arguments, argument)
    shown = value if isinstance(value, str) and argument else json.dumps(_plain(value), ensure_ascii=False)
    known: Literal["is", "starts", "host"] = "starts" if kind == "starts" else "host" if kind == "host" else "is"
    editable = known != "is" and isinstance(now, str)
    return argument, known, shown, now if editable else "", editable


def _value_at(arguments: Mapping[str, Any], path: str) -> Any:
    found: Any = arguments
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _plain(value: Any) -> Any:
    """A frozen value as plain JSON."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
