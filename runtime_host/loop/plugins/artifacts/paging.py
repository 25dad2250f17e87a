"""Parts of a result that was put aside. Pure.

Owns how a list, a text and an object are read in parts, and the bounds of a part. Must not know where results lie.
Invariants: a part is never longer than its bound, whatever was asked for; it says what it is a part of and where to go
on; arguments that do not apply are said not to have been applied.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

PART_BYTES: Final = 32 * 1024
"""Of an answer, serialised."""
ITEMS: Final = 50
MOST_ITEMS: Final = 200
CHARS: Final = 4000
MOST_CHARS: Final = 16_000
SHOWN_CHARS: Final = 1000
"""Of a text within an object."""
MOST_FIELDS: Final = 64


class Wanted(NamedTuple):
    """Which part. `limit` None is the usual one; fields are dotted."""

    fields: tuple[str, ...] = ()
    offset: int = 0
    limit: int | None = None

    @property
    def pages(self) -> bool:
        return self.offset > 0 or self.limit is not None


def part_of(value: Any, wanted: Wanted) -> dict[str, Any]:
    """The part of a JSON value that is wanted."""
    if isinstance(value, str):
        return text_part(value, wanted, fields_apply=False)
    if isinstance(value, list):
        return list_part(value, wanted)
    if not isinstance(value, dict):
        return {"value": value, **_not_applied(wanted, fields_apply=False)}
    if wanted.fields:
        return _of_fields(value, wanted)
    arrays = list(_inner_arrays(value))
    if len(arrays) == 1:
        [(at, items)] = arrays
        rest = _shortened(_without(value, at.split(".")), at="")
        return _bounded({**list_part(items, wanted), "at": at, "rest": rest}, "rest")
    return _whole(value, wanted)


def text_part(text: str, wanted: Wanted, *, fields_apply: bool) -> dict[str, Any]:
    """A page of a text, in characters."""
    start = min(max(wanted.offset, 0), len(text))
    limit = min(wanted.limit or CHARS, MOST_CHARS)
    page = text[start : start + limit]
    while page and _size(page) > PART_BYTES:
        page = page[: len(page) // 2]
    told: dict[str, Any] = {"text": page, "offset": start, "characters": len(text)}
    if start + len(page) < len(text):
        told["next_offset"] = start + len(page)
    if wanted.fields and not fields_apply:
        told["note"] = "It is a text, so fields did not apply."
    return told


def list_part(items: list[Any], wanted: Wanted) -> dict[str, Any]:
    """A page of a list: as many of its items as fit."""
    start = min(max(wanted.offset, 0), len(items))
    limit = min(wanted.limit or ITEMS, MOST_ITEMS)
    page: list[Any] = []
    left = PART_BYTES
    for item in items[start : start + limit]:
        told_item = _fields_of(item, wanted.fields) if wanted.fields else item
        size = _size(told_item) + 1
        if size > left and page:
            break
        if size > left:
            told_item = _fitting(told_item)
            size = _size(told_item)
        page.append(told_item)
        left -= size
    told: dict[str, Any] = {"items": page, "offset": start, "total": len(items)}
    if start + len(page) < len(items):
        told["next_offset"] = start + len(page)
    return told


def _of_fields(value: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    if len(wanted.fields) > 1:
        told = {"value": _shortened(_fields_of(value, wanted.fields), at="")}
        return _bounded({**told, **_not_applied(wanted, fields_apply=True)}, "value")
    [at] = wanted.fields
    found = _member(value, at)
    if found is _ABSENT:
        return {"note": f"There is no {at[:80]} in it.", "fields": [name[:80] for name in list(value)[:MOST_FIELDS]]}
    inner = wanted._replace(fields=())
    if isinstance(found, str):
        return {"at": at, **text_part(found, inner, fields_apply=True)}
    return {"at": at, **part_of(found, inner)} if not isinstance(found, dict) else _whole(found, inner, at=at)


def _whole(value: dict[str, Any], wanted: Wanted, *, at: str = "") -> dict[str, Any]:
    told = {"value": _shortened(value, at=at), **({"at": at} if at else {})}
    return _bounded({**told, **_not_applied(wanted, fields_apply=True)}, "value")


def _not_applied(wanted: Wanted, *, fields_apply: bool) -> dict[str, str]:
    names = (["fields"] if wanted.fields and not fields_apply else []) + (["offset and limit"] if wanted.pages else [])
    if not names:
        return {}
    return {"note": f"There is not one list in it to page, so {' and '.join(names)} did not apply. Name one field."}


def _inner_arrays(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Lists below an object that are in no other list, by their dotted way."""
    for name, member in value.items():
        at = f"{path}.{name}" if path else name
        if isinstance(member, list):
            yield at, member
        elif isinstance(member, dict):
            yield from _inner_arrays(member, at)


def _without(value: dict[str, Any], way: Sequence[str]) -> dict[str, Any]:
    first, *further = way
    if first not in value:
        # A name with a dot in it is no way: then it is all shown.
        return value
    if not further:
        return {name: member for name, member in value.items() if name != first}
    return {**value, first: _without(value[first], further)}


def _shortened(value: Any, *, at: str) -> Any:
    """With long texts cut, each with how it is read whole."""
    if isinstance(value, str) and len(value) > SHOWN_CHARS:
        how = f'; read it with fields ["{at}"]' if at else ""
        return f"{value[:SHOWN_CHARS]}… [{len(value) - SHOWN_CHARS:,} more characters{how}]"
    if isinstance(value, dict):
        return {name: _shortened(member, at=f"{at}.{name}" if at else name) for name, member in value.items()}
    if isinstance(value, list):
        return [_shortened(member, at="") for member in value]
    return value


def _bounded(told: dict[str, Any], name: str) -> dict[str, Any]:
    if _size(told) <= PART_BYTES:
        return told
    value = told[name]
    shape = {each[:80]: _kind(member) for each, member in list(value.items())[:MOST_FIELDS]}
    note = "It is too long to be shown whole: these are its fields. Name one with fields."
    short = {**told, name: shape, "note": note}
    # What is beside it may be long as well; a page of a list goes before the rest.
    return short if _size(short) <= 2 * PART_BYTES else {"note": note, name: {}}


def _fitting(value: Any) -> Any:
    cut = _shortened(value, at="")
    if _size(cut) <= PART_BYTES:
        return cut
    text = json.dumps(value, ensure_ascii=False)
    return f"{text[:SHOWN_CHARS]}… [an item of {len(text):,} characters; name fields of it]"


def _fields_of(item: Any, fields: Sequence[str]) -> Any:
    if not isinstance(item, dict):
        return item
    found = {name: _member(item, name) for name in fields}
    return {name: member for name, member in found.items() if member is not _ABSENT}


def _member(value: Any, path: str) -> Any:
    if isinstance(value, dict) and path in value:
        return value[path]
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return _ABSENT
        value = value[name]
    return value


_ABSENT: Final = object()


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return f"text of {len(value):,} characters"
    if isinstance(value, list):
        return f"list of {len(value):,}"
    return f"object of {len(value):,}" if isinstance(value, dict) else "value"


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
