"""What a person may fill into a form: pure rules and the sentences that go with them.

Owns the check of each kind of field, once for the dialog while it is typed and once more for the host.
Must not know Qt or what a form is for: whether a name is taken or a folder exists, who asked decides.
Invariant: an answer holds exactly the fields that were asked, each within its bound and its options.
"""

import os
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from desktop.dialog import wire
from desktop.dialog.entry import Check, whole_key
from desktop.dialog.text import visible

_SPELLED = re.compile("\u2066‹U\\+([0-9A-F]{4,6})›\u2069")
_LINE_BREAKS = "\n\r\x0b\x0c\x85\u2028\u2029"


def asked(fields: tuple[wire.FormField, ...], values: Mapping[str, Any]) -> list[wire.FormField]:
    """The fields that are asked as things stand: those that hang on no other, or on one that is asked and fits."""
    found: dict[str, wire.FormField] = {}
    for field in fields:
        other, wanted = field.when
        if not other or (other in found and _text(values.get(other)) in wanted):
            found[field.id] = field
    return list(found.values())


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else ""


def check(field: wire.FormField, value: object) -> tuple[Check, Any]:
    """(how the field stands, its value as it would be answered)."""
    if field.kind == "switch":
        return (Check("good", ""), value) if isinstance(value, bool) else (_no_answer(), False)
    if field.kind == "checks":
        return _checks(field, value)
    if not isinstance(value, str):
        return _no_answer(), ""
    if field.kind == "choice":
        return _choice(field, value), value
    found = _typed(field, value)
    return found, found.value


def _no_answer() -> Check:
    return Check("wrong", "", "This is no answer to what was asked.")


def _choice(field: wire.FormField, value: str) -> Check:
    if any(option.value == value for option in field.options):
        return Check("good", value)
    if value:
        return _no_answer()
    return Check("empty", "", "Choose one.") if field.required else Check("good", "")


def _checks(field: wire.FormField, value: object) -> tuple[Check, Any]:
    offered = [option.value for option in field.options]
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one in offered for one in value):
        return _no_answer(), ()
    chosen = tuple(one for one in offered if one in value)
    if field.required and not chosen:
        return Check("empty", "", "Choose at least one."), chosen
    return Check("good", ""), chosen


def _typed(field: wire.FormField, value: str) -> Check:
    if field.kind == "secret":
        found = whole_key(value)
        if found.state == "empty":
            return Check("empty", "", f"{field.label} is needed.") if field.required else Check("good", "")
        return found
    if field.kind == "text":
        text = value.replace("\r\n", "\n").replace("\u2029", "\n").replace("\u2028", "\n")
    else:
        text = unicodedata.normalize("NFC", value).strip()
    if not text.strip():
        return Check("empty", "", f"{field.label} is needed.") if field.required else Check("good", text)
    size = len(text.encode("utf-8", "replace"))
    if size > field.bound:
        return Check("wrong", text, f"That is too long: {size:,} bytes, {field.bound:,} fit.")
    if field.kind == "text":
        return Check("good", text, hidden(text, keep_line_breaks=True))
    if any(char in _LINE_BREAKS for char in text):
        return Check("wrong", text, "This is one line; there is a line break in it.")
    if field.kind == "path":
        return _path(text)
    return Check("good", text, hidden(text))


def _path(text: str) -> Check:
    if not os.path.isabs(text) and not text.startswith("~/") and text != "~":
        return Check("wrong", text, "Give the whole path, from / or ~/ on.")
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in text):
        return Check("wrong", text, "There is a character in it that no path should have.")
    return Check("good", text, hidden(text))


def hidden(text: str, *, keep_line_breaks: bool = False) -> str:
    """A sentence about characters that are not drawn, or that turn others around; empty where there are none."""
    points = list(dict.fromkeys(_SPELLED.findall(visible(text, keep_line_breaks=keep_line_breaks))))
    if keep_line_breaks and "0009" in points:
        points.remove("0009")
    if not points:
        return ""
    shown = ", ".join(f"U+{point}" for point in points[:4]) + (" and others" if len(points) > 4 else "")
    return f"There are characters in it that are not drawn, or that turn others around: {shown}."


def filled(fields: tuple[wire.FormField, ...], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer, if every field that is asked is as it should be."""
    answer: dict[str, Any] = {}
    for field in asked(fields, values):
        found, value = check(field, values.get(field.id))
        if found.state != "good":
            return None
        answer[field.id] = value
    return answer


def is_answer(fields: tuple[wire.FormField, ...], values: Mapping[str, Any]) -> bool:
    """Whether these are values that a dialog by these rules can have sent."""
    answer = filled(fields, values)
    return answer is not None and answer == dict(values)
