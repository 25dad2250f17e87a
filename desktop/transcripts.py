"""A conversation as something to read elsewhere.

Pure. Owns how a transcript looks in Markdown. Must not know where its items come from.
"""

_SPEAKERS = {"user": "You", "reply": "Reply", "reasoning": "Reasoning", "notice": "Note"}


def heading(title: str, where: str) -> str:
    """What stands above the first item."""
    return f"# {title}\n\n*{where}*" if where else f"# {title}"


def block(kind: str, state: str, text: str) -> str:
    """One item, told from what surrounds it by an empty line before and after."""
    told = "" if state == "complete" else f" ({state})"
    if kind in ("reasoning", "notice"):
        text = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
    return f"## {_SPEAKERS.get(kind, kind)}{told}\n\n{text}"
