"""JSON set over several lines.

Owns where its lines break. Must not know what it is about. Invariant: nothing but white space
between its parts is added or taken away; what is no JSON is left as it is.
"""

import json
import re

INDENT = "  "
MOST_BRACKETS = 1_000

_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)


def pretty(text: str) -> str:
    """`text` as one would write it by hand, if it is JSON."""
    if not _is_json(text):
        return text
    parts = _PARTS.findall(text)
    out: list[str] = []
    depth = 0
    for place, part in enumerate(parts):
        following = parts[place + 1] if place + 1 < len(parts) else ""
        if part in ("{", "["):
            depth += 1
            empty = following in ("}", "]")
            out.append(part if empty else part + _line(depth))
        elif part in ("}", "]"):
            depth -= 1
            empty = place > 0 and parts[place - 1] in ("{", "[")
            out.append(part if empty else _line(depth) + part)
        elif part == ",":
            out.append(part + _line(depth))
        else:
            out.append(": " if part == ":" else part)
    return "".join(out)


def _line(depth: int) -> str:
    return "\n" + INDENT * depth


def _is_json(text: str) -> bool:
    if text.count("{") + text.count("[") > MOST_BRACKETS:
        return False
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True
