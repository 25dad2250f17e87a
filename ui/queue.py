"""What waits to be said in a conversation, and what the keys of the composer will do while something is busy.

Owns the order of the queue as the host told it and the sentence under the composer. Must not know Qt, the channel
or the clock. Invariant: what a key will do is said before it is pressed, in every state of a run.
"""

from typing import Any

from ui.setup import counted
from ui.wire import dto

LAST = "Alt+Enter puts it last in the queue"
_STEER = {
    "waiting": "Enter sends it once you have decided · Alt+Enter sends it when the run has ended",
    "stopping": "The run is being stopped: Enter may come too late for it · Alt+Enter puts it in the queue",
}
_STEER_USUAL = "Enter sends it before the model’s next step · Alt+Enter sends it when the run has ended"
_QUEUE = "Enter and Alt+Enter put it in the queue: it is sent when the run has ended"


def enter_words(host: str, busy_enter: str, state: str, rows: int) -> str:
    """The quiet line under the composer.

    Args:
        host: What the host says that Enter will do; it stands where nothing is busy.
        busy_enter: What Enter does while something is busy.
        state: The state of the newest run.
        rows: How many messages wait.
    """
    if busy_enter == "steer":
        return _STEER.get(state, _STEER_USUAL)
    if busy_enter == "queue":
        return _QUEUE
    if not rows:
        return host
    return f"{host.rstrip('.')} · {LAST}" if host else LAST


class Queue:
    """The last that was told of a queue: it counts for its own conversation only."""

    def __init__(self) -> None:
        self._told: dto.Queued | None = None

    def take(self, message: dto.Queued) -> None:
        """The host tells what waits."""
        self._told = message

    def rows(self, conversation: str | None) -> tuple[dto.QueuedRow, ...]:
        """What waits in this conversation, in order."""
        told = self._told
        return told.rows if told is not None and told.conversation == conversation else ()

    def held(self, conversation: str | None, *, busy: bool) -> bool:
        """Whether nothing of it is sent before the person says so; while something is `busy` it waits for that."""
        return bool(self.rows(conversation)) and self._told is not None and self._told.held and not busy

    def row(self, conversation: str | None, wanted: str) -> dto.QueuedRow | None:
        return next((row for row in self.rows(conversation) if row.id == wanted), None)

    def move(self, conversation: str | None, wanted: str, by: int) -> tuple[bool, str | None]:
        """Whether that message can go `by` places on (-1 or 1), and before which other it then stands (None: last)."""
        rows = self.rows(conversation)
        place = next((place for place, row in enumerate(rows) if row.id == wanted), -1)
        to = place + by
        if place < 0 or not 0 <= to < len(rows) or not movable(rows[place]) or not movable(rows[to]):
            return False, None
        before = to if by < 0 else to + 1
        return True, rows[before].id if before < len(rows) else None

    def facts(self, conversation: str | None, *, busy: bool) -> dict[str, Any]:
        """What single values the window binds to."""
        rows, held = self.rows(conversation), self.held(conversation, busy=busy)
        return {
            "queueIds": [row.id for row in rows],
            "queueHeld": held,
            "queueWord": f"{counted(len(rows), 'message')} {'held' if held else 'waiting'}" if rows else "",
        }


def movable(row: dto.QueuedRow) -> bool:
    """What reaches the model before its next step is not put behind anything."""
    return row.kind == "follow_up"
