"""What a person may decide about a call: pure rules and the sentences that go with them.

Owns how a rule that “always” would save is made narrower and how it reads. Must not know Qt, mounts or gateways, whose
code a dialog process does not hold: that a rule is no wider than what was offered, the host checks once more with the
gateway's own rules. Invariant: what passes here holds for the call that is decided, and allows nothing that was not
offered.
"""

import json
from collections.abc import Mapping

from desktop.dialog import wire
from desktop.dialog.entry import Check
from desktop.dialog.text import visible

_SCHEMES = ("https://", "http://")


def check(condition: wire.Condition, typed: str) -> Check:
    """Whether a condition may be made this."""
    if not condition.editable:
        same = typed == condition.value
        return Check("good", typed) if same else Check("wrong", typed, "This cannot be changed.")
    if not typed:
        return Check("empty", "", "It cannot be wider than what was offered: leave what was there, or write more.")
    if typed == condition.value:
        return Check("good", typed)
    if not _is_narrower(condition, typed):
        start = condition.value if condition.kind == "starts" else f"https://{condition.value}/"
        return Check("wrong", typed, f"It has to begin with {visible(start)}, so that it allows nothing more.")
    if not condition.now.startswith(typed):
        return Check("wrong", typed, "This call would not be one of those. Write less of it.")
    return Check("good", typed)


def _is_narrower(condition: wire.Condition, typed: str) -> bool:
    if condition.kind == "starts":
        return typed.startswith(condition.value)
    return any(typed.startswith(f"{scheme}{condition.value}/") for scheme in _SCHEMES)


def kind_of(condition: wire.Condition, typed: str) -> str:
    """What kind of condition it is, made this."""
    return "starts" if condition.kind == "host" and typed != condition.value else condition.kind


def _names(told: str) -> str:
    """Names told as a list of JSON, as a person writes them."""
    try:
        names = json.loads(told)
    except ValueError:
        return told
    plain = isinstance(names, list) and all(isinstance(name, str) and name.isidentifier() for name in names)
    return ", ".join(names) if plain and names else told


def in_words(condition: wire.Condition, typed: str) -> str:
    """A condition as it would be saved."""
    if condition.argument == "":
        return f"the arguments are these and no others: {visible(_names(condition.value))}"
    name = visible(condition.argument)
    relation = {"is": "is exactly", "starts": "begins with", "host": "leads to the host"}[kind_of(condition, typed)]
    return f"{name} {relation} {visible(typed)}"


def rule_in_words(ask: wire.AskApproval, always: str, where: Mapping[str, str], also: tuple[str, ...]) -> str:
    """What “always” would save, one condition a line; empty for nothing."""
    if always == "exact":
        return f"Calls of {visible(ask.tool)} exactly like this one, with nothing else in them."
    if always != "widest":
        return ""
    lines = [in_words(one, where.get(one.argument, one.value)) for one in ask.widest]
    lines += [f"{visible(name)} is exactly what it is in this call" for name in ask.also if name in also]
    return "\n".join((f"Calls of {visible(ask.tool)} where", *(f"• {line}" for line in lines)))


def is_answer(ask: wire.AskApproval, answer: wire.Decided) -> bool:
    """Whether a dialog by these rules can have sent this."""
    if not answer.approve:
        return not (answer.always or answer.where or answer.also)
    if ask.refusable:
        return False
    if answer.always == "widest":
        editable = {one.argument: one for one in ask.widest if one.editable}
        return (
            bool(ask.widest)
            and answer.where.keys() == editable.keys()
            and all(check(editable[name], typed).state == "good" for name, typed in answer.where.items())
            and set(answer.also) <= set(ask.also)
        )
    return not answer.where and not answer.also and (answer.always == "" or ask.exact)
