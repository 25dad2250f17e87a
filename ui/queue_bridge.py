"""What QML may call about the messages that wait.

Owns the translation between gestures and commands on the queue, and how long text is cut for the channel. Must not
decide what waits (`ui.queue`) or how it is shown (QML). Invariant: words that were typed are never lost: what the host
does not take goes to the composer.
"""

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Slot

from ui.store import Pending, Store
from ui.text.visible import whole_characters
from ui.wire import dto

Command = Callable[..., None]


def pieces(text: str) -> list[str]:
    """`text` cut so that each part fits one message; at least one part."""
    return [text[at : at + dto.TEXT_PIECE_CHARS] for at in range(0, len(text), dto.TEXT_PIECE_CHARS)] or [""]


class QueueBridge(QObject):
    """Context property `queue`."""

    def __init__(self, store: Store, command: Command, settle: Callable[[], None], channel: Any) -> None:
        """Begin with an empty queue.

        Args:
            store: The view state.
            command: Sends a command of this kind; its outcome is awaited.
            settle: Shows what changed here.
            channel: Takes pieces of long text ahead of their command.
        """
        super().__init__()
        self._store, self._command, self._settle, self._channel = store, command, settle, channel

    def _about(self, queued: str) -> dto.QueuedRow | None:
        return self._store.queue.row(self._store.conversation, queued)

    @Slot(str, str)
    def edit(self, queued: str, text: str) -> None:
        """Other words for what waits; without any it is removed."""
        row, text = self._about(queued), whole_characters(text)
        if row is None or len(text.encode()) > dto.SPOOL_BYTES:
            self.keep(text)
            return
        if text == row.text:
            return
        if not text.strip():
            self.remove(queued)
            return
        parts, revision = pieces(text), self._store.revision
        self._channel.send(*(dto.Piece(text=part) for part in parts[:-1]))
        self._command(
            "edit-queued",
            lambda request: dto.EditQueued(
                request=request, revision=revision, queued=queued, text=parts[-1], pieces=len(parts) - 1
            ),
            Pending("edit-queued", text),
        )

    @Slot(str)
    def keep(self, text: str) -> None:
        """What was being edited has been said meanwhile: the new words go to the composer."""
        self._store.give_back(whole_characters(text))
        self._settle()

    @Slot(str, int)
    def move(self, queued: str, by: int) -> None:
        """One place earlier (-1) or later (1)."""
        can, before = self._store.queue.move(self._store.conversation, queued, by)
        if can:
            self._command(
                "queue",
                lambda request: dto.MoveQueued(
                    request=request, revision=self._store.revision, queued=queued, before=before
                ),
            )

    @Slot(str)
    def send(self, queued: str) -> None:
        """Say it now."""
        self._do(queued, dto.SendQueued)

    @Slot(str)
    def remove(self, queued: str) -> None:
        self._do(queued, dto.RemoveQueued)

    def _do(self, queued: str, command: Callable[..., dto.RendererMessage]) -> None:
        if self._about(queued) is not None:
            self._command(
                "queue", lambda request: command(request=request, revision=self._store.revision, queued=queued)
            )
