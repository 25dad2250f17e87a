"""When a result is too long to be told whole, and what is told of it then. Pure.

Owns the limit and the words. Must not know stores or tools. Invariant: what is told in place of a result says so, how
long the result is, and how the rest is had, or that it is not.
"""

import json
from typing import Any, Final, NamedTuple

TOLD_BYTES: Final = 4 * 1024
"""Of a result, serialised; what is longer is put aside."""
BEGINS_BYTES: Final = 1500
BEGINS_WITHOUT_READER_BYTES: Final = 3500
"""Of what a result begins with, serialised again."""


class Parked(NamedTuple):
    """Where a result was put, and what the model calls to read it."""

    reference: str
    reader: str


def encoded(payload: Any) -> bytes:
    """A result as it is counted and kept."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), default=_plain).encode("utf-8", "replace")


def is_small(data: bytes) -> bool:
    return len(data) <= TOLD_BYTES


def begin_told(payload: Any, data: bytes, parked: Parked | None, *, why: str = "") -> dict[str, Any]:
    """What is told of a result that is too long."""
    begins = payload if isinstance(payload, str) else data.decode()
    told: dict[str, Any] = {"size_bytes": len(data)}
    if parked is None:
        kept = f" {why}" if why else ""
        note = f"It is too long to be told whole, and this is its beginning. The rest was not kept.{kept}"
        return {"truncated": True, **told, "begins": _cut(begins, BEGINS_WITHOUT_READER_BYTES), "note": note}
    told |= _shape(payload)
    note = f"It is too long to be told whole, and was put aside. Read it with {parked.reader}, by this reference."
    return {"parked": parked.reference, **told, "begins": _cut(begins, BEGINS_BYTES), "note": note}


def _shape(payload: Any) -> dict[str, Any]:
    """What a reader needs to choose what to read."""
    if isinstance(payload, list | tuple):
        return {"items": len(payload)}
    if isinstance(payload, dict):
        return {"fields": {name[:80]: _kind(value) for name, value in list(payload.items())[:40]}}
    return {"characters": len(payload)} if isinstance(payload, str) else {}


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return f"text of {len(value):,} characters"
    if isinstance(value, list | tuple):
        return f"list of {len(value):,}"
    if isinstance(value, dict):
        return f"object of {len(value):,}"
    return "value"


def _cut(text: str, most_bytes: int) -> str:
    cut = text[:most_bytes]
    while (over := len(encoded(cut)) - most_bytes) > 0:
        # A sign has six bytes at most when it is written as an escape.
        cut = cut[: len(cut) - max(1, over // 6)]
    return cut if len(cut) == len(text) else f"{cut}…"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value)
