"""Canonical JSON, digests of it, and JSON values that nobody can change any more.

Owns the one byte form in which definitions, bindings, requests and scopes are compared. Must not know
what the values mean. Invariants: equal JSON values give equal bytes whatever the order of their keys;
values that are no JSON (NaN, infinities, whole numbers of more than 64 bits, bytes, functions, keys that are no
strings, lone surrogates) are refused, never bent into shape.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

MAX_DEPTH = 64
_LEAST, _MOST = -(2**63), 2**64 - 1
"""Whole numbers beyond are stored nowhere and mean another thing to every reader."""


class NotJsonError(ValueError):
    """The value is no JSON value; `path` says where."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path or 'the value'} {what}")
        self.path = path


class FrozenDict(dict[str, Any]):
    """A JSON object that refuses every change. Still a dict, so every encoder takes it."""

    __slots__ = ()

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError("this object is shared and cannot be changed; copy it first")

    __setitem__ = _refuse
    __delitem__ = _refuse
    __ior__ = _refuse
    clear = _refuse
    pop = _refuse
    popitem = _refuse
    setdefault = _refuse
    update = _refuse

    def __reduce__(self) -> tuple[type["FrozenDict"], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)

    def __deepcopy__(self, _memo: dict[int, Any]) -> "FrozenDict":
        return self


def freeze(value: Any, path: str = "") -> Any:
    """A deep, unchangeable copy of a JSON value: objects as `FrozenDict`, lists as tuples.

    Raises:
        NotJsonError: it is no JSON value.
    """
    try:
        return _frozen(value, 0)
    except _FaultError as fault:
        raise NotJsonError(path + "".join(reversed(fault.steps)) if path else fault.path(), fault.what) from None


def thaw(value: Any) -> Any:
    """Dicts and lists of a frozen value: to be changed, compared with what was read, or for who takes no tuples."""
    if isinstance(value, Mapping):
        return {key: thaw(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [thaw(member) for member in value]
    return value


class _FaultError(Exception):
    """What is no JSON. The way to it is noted while the error leaves: finding none costs nothing."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.steps: list[str] = []

    def path(self) -> str:
        return "".join(reversed(self.steps)).removeprefix(".")


def _frozen(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _checked_text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if _LEAST <= value <= _MOST else _refuse_number()
    if kind is dict or isinstance(value, Mapping):
        return _frozen_object(value, depth)
    if isinstance(value, str):
        return _checked_text(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _FaultError("is not a finite number")
        return value
    if isinstance(value, int):
        return int(value) if _LEAST <= value <= _MOST else _refuse_number()
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return _frozen_list(value, depth)
    raise _FaultError(f"is a {kind.__name__}, which JSON has no form for")


def _refuse_number() -> NoReturn:
    raise _FaultError("is a whole number of more than 64 bits")


def _frozen_object(value: Mapping[Any, Any], depth: int) -> FrozenDict:
    _check_depth(depth)
    frozen: dict[str, Any] = {}
    for key, member in value.items():
        if not isinstance(key, str):
            raise _FaultError("has a key that is no string")
        try:
            frozen[key if key.isascii() else _checked_text(key)] = _frozen(member, depth + 1)
        except _FaultError as fault:
            fault.steps.append(f".{key}")
            raise
    return FrozenDict(frozen)


def _frozen_list(value: Sequence[Any], depth: int) -> tuple[Any, ...]:
    _check_depth(depth)
    frozen: list[Any] = []
    for member in value:
        try:
            frozen.append(_frozen(member, depth + 1))
        except _FaultError as fault:
            fault.steps.append(f"[{len(frozen)}]")
            raise
    return tuple(frozen)


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise _FaultError(f"is nested deeper than {MAX_DEPTH} levels")


def plain_strings(value: Any) -> list[str] | None:
    """Every string, keys included, of a JSON object made of Python's own types; it can be written as it is.

    Of what it says None to, a copy may still be one (`freeze`).
    """
    found: list[str] = []
    return found if type(value) is dict and _is_plain(value, value.values(), 0, found) else None


def _is_plain(keys: Iterable[Any], members: Iterable[Any], depth: int, found: list[str]) -> bool:
    for key in keys:
        if type(key) is not str or not key.isascii():
            return False
        found.append(key)
    for member in members:
        kind = type(member)
        if kind is str:
            if not member.isascii():
                # Rare enough to be looked at the long way.
                return False
            found.append(member)
        elif kind is dict:
            if depth == MAX_DEPTH - 1 or not _is_plain(member, member.values(), depth + 1, found):
                return False
        elif kind is list or kind is tuple:
            if depth == MAX_DEPTH - 1 or not _is_plain((), member, depth + 1, found):
                return False
        elif member is not None and kind is not bool and not (kind is int and _LEAST <= member <= _MOST):
            return False
    return True


def canonical_json(value: Any) -> bytes:
    """The canonical bytes: keys sorted at every depth, no white space, UTF-8.

    A whole float is written as the integer it equals, because JSON has one kind of number.

    Raises:
        NotJsonError: it is no JSON value.
    """
    return json.dumps(
        _one_number(freeze(value)), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode("utf-8")


def digest(value: Any) -> str:
    """SHA-256 over the canonical bytes, as 64 hex digits.

    Raises:
        NotJsonError: it is no JSON value.
    """
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _checked_text(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise _FaultError("holds half a character (a lone surrogate)") from None
    return text


def _one_number(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _one_number(member) for key, member in value.items()}
    if isinstance(value, tuple):
        return [_one_number(member) for member in value]
    return value


def cut_utf8(text: str, limit_bytes: int) -> str:
    """The longest prefix whose UTF-8 form has at most `limit_bytes` bytes; never half a character."""
    if len(text) * 4 <= limit_bytes:
        return text
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) <= limit_bytes:
        return text
    return encoded[: max(0, limit_bytes)].decode("utf-8", "ignore")


def clean_text(text: str) -> str:
    """`text` as UTF-8 can carry it: split characters joined, half ones replaced by U+FFFD.

    Raises:
        TypeError: it is no text.
    """
    if not isinstance(text, str):
        # Bytes have most of what is asked of a text below.
        raise TypeError("no text")
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
