"""A question as it is drawn: headings, button words and made-visible text.

Owns the words of the dialogs. Must not know Qt. Invariant: every string that came over the wire
passes `text.visible` here, so the window draws nothing else.
"""

from typing import Any

from desktop.dialog import approval, entry, wire
from desktop.dialog.pictures import Picture
from desktop.dialog.text import visible


def picture_map(picture: Picture | None, *, dark: bool) -> dict[str, str]:
    """What the window needs to draw a picture; empty strings where there is none."""
    if picture is None:
        return {"words": "", "path": "", "colour": ""}
    return {"words": picture.words, "path": picture.path, "colour": picture.dark if dark else picture.light}


MANY_OPTIONS = 8
"""More options than these are searched in, not read through."""


def question_map(ask: wire.Ask) -> dict[str, Any]:
    """What the window needs to draw `ask`."""
    if isinstance(ask, wire.AskConnector):
        return _connector(ask)
    if isinstance(ask, wire.AskForm):
        return _form(ask)
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
    if isinstance(ask, wire.AskApproval):
        return _approval(ask)
    return {
        "kind": "picture",
        "heading": "Choose your picture",
        "asked_by": "",
        "yes": "Use this picture",
        "no": "Later",
    }


def _connector(ask: wire.AskConnector) -> dict[str, Any]:
    return {
        "kind": "connector",
        "heading": "Change this connector" if ask.name_fixed else "Add a connector",
        "asked_by": visible(ask.asked_by),
        "kinds": [{"value": one.kind, "label": one.label, "means": one.means} for one in entry.KINDS],
        "leads": ask.kind if entry.connector_kind(ask.kind) is not None else "",
        "name": ask.name,
        "address": ask.address,
        "name_fixed": ask.name_fixed,
        "problem": visible(ask.problem, keep_line_breaks=True),
        "yes": "Save",
        "no": "Cancel",
    }


def _form(ask: wire.AskForm) -> dict[str, Any]:
    return {
        "kind": "form",
        "heading": visible(ask.title),
        "asked_by": visible(ask.asked_by),
        "lead": visible(ask.lead, keep_line_breaks=True),
        "about": visible(ask.about),
        "detail": visible(ask.detail),
        "effect": visible(ask.effect, keep_line_breaks=True),
        "problem": visible(ask.problem, keep_line_breaks=True),
        "fields": [_field(field) for field in ask.fields],
        "yes": visible(ask.confirm),
        "no": "Cancel",
    }


PIECE_CHARS = 4_000
"""Of long text in one piece: it is laid out piece by piece."""


def _approval(ask: wire.AskApproval) -> dict[str, Any]:
    return {
        "kind": "approval",
        "heading": visible(ask.heading) or "May this be done?",
        "asked_by": visible(ask.asked_by),
        "facts": [
            {"text": visible(text), "label": place == 0}
            for row in (
                ("Tool", ask.tool),
                ("Of", ask.mount),
                ("Account", ask.account),
                ("Folder", ask.folder),
                ("Conversation", ask.conversation),
                ("Asked because", ask.why),
                ("Until", ask.until),
            )
            if row[1]
            for place, text in enumerate(row)
        ],
        "effect": visible(ask.effect, keep_line_breaks=True),
        "refusable": visible(ask.refusable),
        "parts": [
            {"name": visible(part.name), "about": _size_words(part), "pieces": in_pieces(part.text)}
            for part in ask.parts
        ],
        "conditions": [
            {
                "argument": one.argument,
                "label": visible(one.argument) or "arguments",
                "value": one.value,
                "editable": one.editable,
                "words": approval.in_words(one, one.value),
            }
            for one in ask.widest
        ],
        "also": [{"value": name, "label": visible(name), "means": ""} for name in ask.also],
        "offers": _offers(ask),
        "yes": visible(ask.yes) or "Approve",
        "no": visible(ask.no) or "Deny",
        "later": "Decide later",
    }


def _offers(ask: wire.AskApproval) -> list[dict[str, str]]:
    """For how long consent may be given."""
    if ask.refusable:
        return []
    # A rule is of the agent's mount, and not of this conversation.
    means = "In every conversation of this agent" + (", whatever its folder." if ask.folder else ".")
    offers = [{"value": "", "label": "Only this once", "means": ""}]
    if ask.exact:
        offers.append({"value": "exact", "label": "Always, if it is exactly this call", "means": means})
    if ask.widest:
        offers.append({"value": "widest", "label": "Always, if it is like this call", "means": means})
    return offers if len(offers) > 1 else []


def _size_words(part: wire.RequestPart) -> str:
    lines = part.text.count("\n") + 1
    if part.kind == "json":
        return "as JSON"
    chars = len(part.text)
    if lines == 1:
        return "" if chars <= 80 else f"{chars:,} characters"
    return f"{lines:,} lines, {chars:,} characters"


def in_pieces(text: str) -> list[str]:
    """Untrusted text whole, made visible, in pieces that end at line breaks where there are any."""
    pieces: list[str] = []
    rest = visible(text, keep_line_breaks=True)
    while len(rest) > PIECE_CHARS:
        end = rest.rfind("\n", PIECE_CHARS // 2, PIECE_CHARS)
        # The line break between two pieces is drawn by their standing one below the other.
        pieces.append(rest[:end] if end > 0 else rest[:PIECE_CHARS])
        rest = rest[end + 1 :] if end > 0 else rest[PIECE_CHARS:]
    return [*pieces, rest or "(empty)"]


def _field(field: wire.FormField) -> dict[str, Any]:
    """A field. Its value is as it is: it is typed on, and `form.hidden` tells what in it is not seen."""
    return {
        "id": field.id,
        "kind": "picker" if field.kind == "choice" and len(field.options) > MANY_OPTIONS else field.kind,
        "label": visible(field.label),
        "value": list(field.value) if isinstance(field.value, tuple) else field.value,
        "options": [
            {"value": one.value, "label": visible(one.label), "means": visible(one.means)} for one in field.options
        ],
        "hint": visible(field.hint),
        "help": visible(field.help),
        "required": field.required,
        "problem": visible(field.problem),
    }


def _lines(lines: tuple[str, ...]) -> list[str]:
    return [visible(line, keep_line_breaks=True) for line in lines]
