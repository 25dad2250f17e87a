"""JSON of model servers, read without trust and without I/O.

Owns the reading of values that may be anything. Must not know what they mean. Invariants: a value of the wrong
kind reads as absent, never as an exception; text that is given out can be stored.
"""

import json
import re
from typing import Any

import msgspec

from runtime_host.loop.model_apis.pieces import FaultKind, ModelFault

MAX_TOOL_CALLS = 128
MAX_ARGUMENTS_CHARS = 1024 * 1024
MAX_NAME_CHARS = 64 * 1024
"""Of an id or name of a tool call. Some gateways put the signature of the reasoning into the id."""
MAX_KEPT_CHARS = 16 * 1024 * 1024
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def parsed(data: bytes, *, tolerant: bool = False) -> Any:
    """The value of JSON text.

    Raises:
        ModelFault: it is none; with `tolerant` that reads as None.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        # Slower, but takes half characters and NaN, which some servers write.
        return json.loads(data)
    except (ValueError, RecursionError):
        if tolerant:
            return None
        raise ModelFault(FaultKind.MALFORMED) from None


def object_of(data: bytes) -> dict[str, Any]:
    """The object of a frame.

    Raises:
        ModelFault: it is none.
    """
    frame = parsed(data)
    if not isinstance(frame, dict):
        raise ModelFault(FaultKind.MALFORMED)
    return frame


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def member(value: Any, name: str) -> dict[str, Any]:
    """The object called `name` in `value`; empty where there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def text(value: Any, name: str) -> str:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def number(value: Any, name: str) -> int | None:
    """A count or an index."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if type(found) is int and 0 <= found < 2**53 else None


class Halves:
    """Text in pieces, as text that can be stored: halves joined with what follows, what stays half replaced."""

    def __init__(self) -> None:
        self._half = ""

    def whole(self, piece: str) -> str:
        if not piece or (piece.isascii() and not self._half):
            return piece
        piece = self._half + piece
        self._half = ""
        if "\ud800" <= piece[-1] <= "\udbff":
            self._half = piece[-1]
            piece = piece[:-1]
        if _LONE_SURROGATE.search(piece):
            piece = piece.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return piece


class KeptSize:
    """Holds what is to be handed back of one reply within bounds, which what is shown has already.

    Raises:
        ModelFault: by `grow`.
    """

    def __init__(self) -> None:
        self._chars = 0

    def grow(self, chars: int) -> None:
        self._chars += chars
        if self._chars > MAX_KEPT_CHARS:
            raise ModelFault(FaultKind.MALFORMED)


class CallSizes:
    """Holds what the tool calls of one reply may come to.

    Raises:
        ModelFault: by `grow`: more calls, or more of one, than any tool is for.
    """

    def __init__(self) -> None:
        self._chars: dict[int, int] = {}

    def grow(self, slot: int, chars: int, *names: str) -> None:
        self._chars[slot] = self._chars.get(slot, 0) + chars
        if len(self._chars) > MAX_TOOL_CALLS or self._chars[slot] > MAX_ARGUMENTS_CHARS:
            raise ModelFault(FaultKind.MALFORMED)
        if any(len(name) > MAX_NAME_CHARS for name in names):
            raise ModelFault(FaultKind.MALFORMED)
