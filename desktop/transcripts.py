"""A conversation as something to read elsewhere.

Pure. Owns how a transcript looks in Markdown. Must not know where its items come from. Invariant: what a harness
or a command has written stays inside its fence, and nothing of it can act on a terminal.
"""

import re
from collections.abc import Mapping
from typing import Any

_SPEAKERS = {
    "user": "You",
    "reply": "Reply",
    "reasoning": "Reasoning",
    "notice": "Note",
    "plan": "Plan",
    "command": "Command",
    "tool": "Tool",
    "change": "Change",
}
_DECIDED = {
    "waiting": "waits for a decision",
    "approved": "approved by the person",
    "denied": "denied by the person",
    "expired": "not decided in time",
    "stale": "not made, because what it depends on was changed",
}
_BOXES = {"pending": "[ ]", "active": "[-]", "done": "[x]"}
# What terminals draw by: control sequences, operating system commands, other escapes; then single characters that act.
_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]")
_ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TICKS = re.compile(r"`{3,}")


def heading(title: str, where: str) -> str:
    """What stands above the first item."""
    return f"# {title}\n\n*{where}*" if where else f"# {title}"


def block(kind: str, state: str, text: str, about: Mapping[str, Any] | None = None) -> str:
    """One item, told from what surrounds it by an empty line before and after.

    Args:
        kind: of the item.
        state: of the item.
        text: of the item, whole.
        about: what is known of a thing that a harness did.
    """
    told = "" if state == "complete" else f" ({state})"
    if kind in ("reasoning", "notice"):
        text = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
    elif about is not None and kind in ("plan", "command", "tool", "change"):
        text = _did(kind, text, about)
    return f"## {_SPEAKERS.get(kind, kind)}{told}\n\n{text}"


def _did(kind: str, text: str, about: Mapping[str, Any]) -> str:
    if kind == "plan":
        steps = [f"- {_BOXES.get(str(step['state']), '[ ]')} {_line(step['text'])}" for step in about.get("steps", ())]
        left_out = [f"- and {about['left_out']} more"] if about.get("left_out") else []
        return "\n".join([*steps, *left_out])
    if kind == "command":
        code = about.get("exit_code")
        ended = [] if code in (None, 0) else [f"exit code {code}"]
        return "\n\n".join([_fenced(f"$ {about.get('command', '')}\n{_settled(text)}", "text"), *ended])
    if kind == "tool":
        parts = [f"**{_line(about.get('name', ''))}**"]
        if decided := _DECIDED.get(str(about.get("decided", ""))):
            parts.append(f"*{decided}*")
        if about.get("arguments"):
            parts.append(_fenced(str(about["arguments"]), "json"))
        return "\n\n".join([*parts, *([_fenced(text, "text")] if text else [])])
    what = f"{about.get('change', 'modified')}: `{_line(about.get('path', '')).replace('`', '')}`"
    return "\n\n".join([what, *([_fenced(text, "diff")] if text else [])])


def _settled(output: str) -> str:
    """What a terminal would show of an output in the end, but for its colours."""
    plain = _SEQUENCES.sub("", output).replace("\r\n", "\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n"))


def _fenced(text: str, language: str) -> str:
    longest = max(map(len, _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{_ACTING.sub('', _SEQUENCES.sub('', text)).rstrip()}\n{fence}"


def _line(value: Any) -> str:
    return " ".join(_ACTING.sub("", str(value)).split())
