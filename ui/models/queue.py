"""Rows of the queue above the composer.

Owns their wording and what can be done with each. Must not know Qt: the rows are plain maps for a `ListModel`.
"""

from typing import Any

from ui.queue import movable
from ui.store import Store
from ui.text.visible import one_line, visible
from ui.wire import dto

SAID_CHARS = 200
"""So much of a message is said when it gets the focus."""

TOO_LONG = "It is too long to be edited here. Remove it and write it anew."


def queued(store: Store) -> list[dict[str, Any]]:
    """What waits, in order; a heading where it changes when it is said."""
    conversation = store.conversation
    rows = store.queue.rows(conversation)
    made: list[dict[str, Any]] = []
    before = ""
    for place, row in enumerate(rows):
        heading = _heading(store, row)
        whole = row.size_chars <= len(row.text)
        text = visible(row.text).strip()
        made.append(
            {
                "id": row.id,
                "heading": "" if heading == before else heading,
                "text": text if whole else text + "…",
                "raw": row.text,
                "editable": whole,
                "why": "" if whole else TOO_LONG,
                "earlier": store.queue.move(conversation, row.id, -1)[0],
                "later": store.queue.move(conversation, row.id, 1)[0],
                "movable": movable(row),
                "sendable": _sendable(store, row),
                "said": f"{place + 1} of {len(rows)}. {heading}: {one_line(text)[:SAID_CHARS]}",
            }
        )
        before = heading
    return made


def _sendable(store: Store, row: dto.QueuedRow) -> bool:
    """Whether saying it now is anything else than what happens to it anyway."""
    if not store.stoppable:
        return True
    return row.kind == "follow_up" and store.busy_enter == "steer"


def _heading(store: Store, row: dto.QueuedRow) -> str:
    if store.queue.held(store.conversation, busy=store.stoppable):
        return "Sent when you say so, or after your next message"
    if row.kind == "follow_up":
        return "Sent when the run has ended" if store.stoppable else "Sent next"
    if not store.stoppable:
        return "Not sent yet"
    waits = store.run is not None and store.run.state == "waiting"
    return "Sent once you have decided" if waits else "Sent before the model’s next step"
