"""Words of cards: what a harness did, how it stands, how long it took.

Owns their wording and marks. Must not know Qt: they are plain maps for the transcript's model.
Invariants: a state is always an icon, a word and a colour; what comes from a harness is plain text.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ui.cards import COMMAND_CHARS, COMMAND_LINES, Head
from ui.models.places import joined, path_words, short_path
from ui.setup import counted
from ui.text.blocks import Row
from ui.text.rich import code
from ui.text.visible import LRI, PDI, as_written, in_order, isolated, one_line, visible
from ui.when import lasted
from ui.wire import dto

DENIED = "DENIED"

_DECIDED = {
    "waiting": ("waiting", "waiting", "Waiting for you"),
    "denied": ("shield", "stopped", "Denied"),
    "expired": ("waiting", "stopped", "Expired"),
    "stale": ("warning", "stopped", "Out of date"),
}
"""Icon, colour and word of a call that waits for the person, or was not done for want of a yes."""

_UNDONE = {
    "denied": "You said no, so it was not done.",
    "expired": "Nobody decided in time, so it was not done.",
    "stale": "What it was meant for changed after it was asked, so it was not done.",
}
"""What became of such a call, where the host says nothing more."""

_STOPPED_FIRST = "The run was stopped before you decided, so it was not done."
"""The same of a call whose run ended first."""

ARGUMENT_CHARS = 200
"""Most characters of what a tool was given while its card is folded."""

_OPEN = {"plan": "In progress", "command": "Running", "tool": "Working", "change": "Writing"}
_ENDED = {"complete": "Done", "stopped": "Stopped", "failed": "Failed", "unknown": "Unknown"}
_MARKS = {
    "open": ("working", "working"),
    "complete": ("check", "up"),
    "stopped": ("stopped", "stopped"),
    "failed": ("failed", "failed"),
    "unknown": ("unknown", "unknown"),
}
"""Icon and colour of the state of an item."""

_STEPS = {
    "done": ("check", "up", "Done"),
    "active": ("working", "working", "In progress"),
    "pending": ("ring", "quiet", "To do"),
}
"""Icon, colour and word of a step of a plan."""

_CHANGES = {
    "created": ("plus", "Created", "Creating", "created"),
    "modified": ("edit", "Changed", "Changing", "changed"),
    "deleted": ("trash", "Deleted", "Deleting", "deleted"),
}
"""Of a changed file: its glyph, the word when it is done and while it is not, and what was to become of it."""


def mark(kind: str, head: Head) -> dict[str, Any]:
    """How an item stands: icon, colour and word."""
    icon, tone = _MARKS[head.state]
    word = _OPEN[kind] if head.state == "open" else _ENDED[head.state]
    card = head.card
    if head.state == "failed" and head.code == DENIED:
        icon, word = "shield", "Denied"
    elif isinstance(card, dto.ChangeCard) and head.state in ("open", "complete"):
        word = _CHANGES[card.change][2 if head.state == "open" else 1]
    elif isinstance(card, dto.CommandCard) and head.state == "complete" and card.exit_code:
        icon, tone, word = "warning", "failed", f"Exit code {card.exit_code}"
    elif isinstance(card, dto.ToolCard) and card.decided in _DECIDED and not _ended_undecided(head):
        icon, tone, word = _DECIDED[card.decided]
    return {"icon": icon, "tone": tone, "word": word}


def _ended_undecided(head: Head) -> bool:
    """Whether a run was stopped while this call of it waited."""
    return head.state == "stopped" and isinstance(head.card, dto.ToolCard) and head.card.decided == "expired"


def fold_words(kind: str, head: Head) -> str:
    """What the button that unfolds a card says."""
    if not head.foldable:
        return ""
    if kind == "tool":
        return "Hide" if head.expanded else "Show"
    if head.expanded:
        return "Show less"
    if head.lines:
        return f"Show all {counted(head.lines, 'line')}"
    return f"Show all {counted(head.chars, 'character')}" if head.chars else "Show all"


def head_map(kind: str, head: Head, looks: Mapping[str, Any]) -> dict[str, Any]:
    """The top of a card."""
    values = mark(kind, head)
    said = _WORDS[kind](head, looks)
    detail = visible(head.detail)
    if isinstance(head.card, dto.ToolCard):
        detail = detail or (_STOPPED_FIRST if _ended_undecided(head) else _UNDONE.get(head.card.decided, ""))
    fold = fold_words(kind, head)
    values |= {
        "detail": detail,
        "fold": fold,
        "expanded": head.expanded,
        "attached": head.attached,
        "copyable": head.chars > 0 or head.attached,
        **said,
    }
    name = joined(
        said["name"], values["word"], said["facts"], said.get("counts", ""), said.get("effect", ""), detail, by=", "
    )
    values["said"] = f"{name}, {'shown' if head.expanded else 'folded'}" if fold else name
    return values


def _plan(head: Head, looks: Mapping[str, Any]) -> dict[str, Any]:
    del looks
    steps = head.card.steps if isinstance(head.card, dto.PlanCard) else ()
    left_out = head.card.left_out if isinstance(head.card, dto.PlanCard) else 0
    done = sum(step.state == "done" for step in steps)
    of = len(steps) + left_out
    rows = []
    for step in steps:
        icon, tone, word = _STEPS[step.state]
        if step.state == "active" and head.state != "open":
            icon, tone, word = "incomplete", "quiet", "Not finished"
        text = one_line(step.text)
        rows.append({"icon": icon, "tone": tone, "word": word, "text": isolated(text), "said": f"{word}: {text}"})
    facts = f"{done} of {of} done" if of else ""
    return {
        "name": "Plan",
        "facts": facts,
        "share": done / of if of else -1.0,
        "steps": rows,
        "more": f"and {counted(left_out, 'further step')}" if left_out else "",
    }


def _command(head: Head, looks: Mapping[str, Any]) -> dict[str, Any]:
    card = head.card if isinstance(head.card, dto.CommandCard) else dto.CommandCard(command="")
    whole = visible(card.command)
    shown = whole if head.expanded else _first_lines(whole)
    cut = card.cut and len(shown) == len(whole)
    facts = joined(
        "exit code 0" if card.exit_code == 0 and head.state == "complete" else "",
        f"exit code {card.exit_code}" if card.exit_code and head.state != "complete" else "",
        lasted(card.duration_ms) if card.duration_ms else "",
        "the end of the command was cut off" if cut else "",
    )
    row = Row("code", shown + ("…" if cut or len(shown) < len(whole) else ""), language="bash")
    return {
        "name": f"Command {one_line(shown)}",
        "facts": facts,
        "html": code(row, looks),
        "command": row.text,
    }


def _first_lines(command: str) -> str:
    lines = command.split("\n")
    return "\n".join(lines[:COMMAND_LINES])[:COMMAND_CHARS]


def _in_brief(arguments: str) -> str:
    """What a tool was given, in one line without the marks of JSON; nested parts keep them."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(given, dict):
        return arguments
    said = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for key, value in given.items()
    }
    return next(iter(said.values())) if len(said) == 1 else ", ".join(f"{key}: {value}" for key, value in said.items())


def _tool(head: Head, looks: Mapping[str, Any]) -> dict[str, Any]:
    del looks
    card = head.card if isinstance(head.card, dto.ToolCard) else dto.ToolCard(name="")
    title = one_line(card.name) or "Tool"
    arguments = "" if head.expanded else one_line(_in_brief(card.arguments))[:ARGUMENT_CHARS]
    facts = joined(
        "approved by you" if card.decided == "approved" else "", lasted(card.duration_ms) if card.duration_ms else ""
    )
    waits = card.decided == "waiting"
    return {
        "name": f"Tool {title}",
        "facts": facts,
        "waits": waits,
        "operation": card.operation or "" if waits else "",
        "effect": as_written(one_line(card.effect)),
        "title": isolated(title),
        "arguments": f"{LRI}{in_order(arguments)}{PDI}" if arguments else "",
    }


def _change(head: Head, looks: Mapping[str, Any]) -> dict[str, Any]:
    del looks
    card = head.card if isinstance(head.card, dto.ChangeCard) else dto.ChangeCard(path="", change="modified")
    glyph, _, _, wanted = _CHANGES[card.change]
    counts = joined(
        counted(card.added, "line") + " added" if card.added else "",
        counted(card.removed, "line") + " removed" if card.removed else "",
        by=", ",
    )
    path = path_words(card.path)
    return {
        "name": f"File {path}",
        "facts": "" if head.state in ("open", "complete") else f"was to be {wanted}",
        "counts": counts,
        "glyph": glyph,
        "path": path,
        "pathShort": short_path(card.path),
        "added": f"+{card.added:,}" if card.added else "",
        "removed": f"\N{MINUS SIGN}{card.removed:,}" if card.removed else "",
    }


_WORDS: dict[str, Callable[[Head, Mapping[str, Any]], dict[str, Any]]] = {
    "plan": _plan,
    "command": _command,
    "tool": _tool,
    "change": _change,
}
