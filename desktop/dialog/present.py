"""A question as it is drawn: headings, button words and made-visible text.

Owns the words of the dialogs. Must not know Qt. Invariant: every string that came over the wire
passes `text.visible` here, so the window draws nothing else.
"""

from typing import Any

from desktop.dialog import wire
from desktop.dialog.pictures import Picture
from desktop.dialog.text import visible


def picture_map(picture: Picture | None, *, dark: bool) -> dict[str, str]:
    """What the window needs to draw a picture; empty strings where there is none."""
    if picture is None:
        return {"words": "", "path": "", "colour": ""}
    return {"words": picture.words, "path": picture.path, "colour": picture.dark if dark else picture.light}


def question_map(ask: wire.Ask) -> dict[str, Any]:
    """What the window needs to draw `ask`."""
    if isinstance(ask, wire.AskConnector):
        return {
            "kind": "connector",
            "heading": "Change this connector" if ask.name_fixed else "Add a connector",
            "asked_by": visible(ask.asked_by),
            "name": ask.name,
            "address": ask.address,
            "name_fixed": ask.name_fixed,
            "problem": visible(ask.problem, keep_line_breaks=True),
            "yes": "Save",
            "no": "Cancel",
        }
    if isinstance(ask, wire.AskDelete):
        return {
            "kind": "delete",
            "heading": f"Delete this {visible(ask.what)}?",
            "asked_by": visible(ask.asked_by),
            "title": visible(ask.title) or "(without a title)",
            "subtitle": "",
            "parts": [
                {"label": "What is deleted", "lines": _lines(ask.goes)},
                {"label": "Running work", "lines": _lines((ask.running,)) if ask.running else []},
            ],
            "last": "This cannot be undone.",
            "yes": f"Delete {visible(ask.what)}",
            "no": "Keep it",
        }
    if isinstance(ask, wire.AskRemove):
        return {
            "kind": "remove",
            "heading": "Remove this connector?",
            "asked_by": visible(ask.asked_by),
            "title": visible(ask.name),
            "subtitle": visible(ask.address),
            "parts": [
                {"label": "Its key", "lines": _lines((ask.key,)) if ask.key else []},
                {"label": "Used by", "lines": _lines(ask.used_by)},
            ],
            "last": "Conversations stay. To go on with one of these, choose another connector.",
            "yes": "Remove connector",
            "no": "Keep it",
        }
    return {
        "kind": "picture",
        "heading": "Choose your picture",
        "asked_by": "",
        "yes": "Use this picture",
        "no": "Later",
    }


def _lines(lines: tuple[str, ...]) -> list[str]:
    return [visible(line, keep_line_breaks=True) for line in lines]
