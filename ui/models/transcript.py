"""The transcript as a Qt model.

Owns the cache of rich text of rows on screen and the translation of `RowListener` into Qt's
signals. Must not know the wire. Invariant: a closed row is turned into rich text once while it
stays near the screen.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from PySide6.QtCore import QModelIndex

from ui.cards import Head, Line
from ui.models.cards import head_map
from ui.models.rows import RowModel
from ui.text.blocks import Row
from ui.text.highlight import label
from ui.text.rich import rich, spoken, typed
from ui.text.visible import has_right_to_left, visible
from ui.transcript import Entry, Transcript
from ui.when import when

CACHED_ROWS = 400
RETRY = "RETRY"

_NOTICE_TONES = {"failed": "failed", "unknown": "unknown", "stopped": "stopped"}
_FOOT_WORDS = {"stopped": "Stopped by you", "failed": "Failed", "unknown": "Unknown"}


class TranscriptModel(RowModel):
    """Rows of the selected conversation."""

    def __init__(self, transcript: Transcript, looks: Mapping[str, Any]) -> None:
        super().__init__()
        self._transcript = transcript
        self._looks = looks
        self._rich: OrderedDict[int, tuple[Row, str]] = OrderedDict()
        transcript.listener = self

    def restyle(self) -> None:
        """The theme changed: every row is drawn anew."""
        self._rich.clear()
        self.changed(0, self.count())

    # ------------------------------------------------------------------ rows

    def count(self) -> int:
        return self._transcript.row_count

    def kind(self, row: int) -> str:
        kind = self._transcript.line(row)[1].kind
        return "text" if kind == "heading" else kind

    def row_map(self, row: int) -> dict[str, Any]:
        entry, line = self._transcript.line(row)
        space = self._transcript.space_above(row)
        if entry is None:
            return {"space": space, "said": "Not loaded yet"}
        values: dict[str, Any] = {"space": space, "item": entry.item.id, "quiet": line.quiet}
        if line.row is not None:
            values |= self._block(entry, line.row)
        else:
            values |= self._about(entry, line)
        return values

    def spoken(self, row: int) -> str:
        return str(self.row_map(row).get("said", ""))

    def _block(self, entry: Entry, row: Row) -> dict[str, Any]:
        person = entry.item.kind == "user"
        said = row.text if person else spoken(row)
        values: dict[str, Any] = {
            "html": self._html(row, person=person),
            "said": said,
            "level": row.level,
            "heading": row.kind == "heading",
            "depth": row.depth,
            "marker": row.marker,
            "quote": row.quote,
            "first": row.first,
            "last": row.last,
            "rightToLeft": _right_to_left(said),
        }
        if row.kind == "code":
            values["language"] = label(row.language) if row.first else ""
        if row.kind in ("output", "diff"):
            values["alone"] = entry.item.kind == "tool"
        if person:
            values["short"] = row.first and row.last
        return values

    def _html(self, row: Row, *, person: bool) -> str:
        known = self._rich.get(id(row))
        if known is not None and known[0] is row:
            self._rich.move_to_end(id(row))
            return known[1]
        html = typed(row, self._looks) if person else rich(row, self._looks)
        if not row.open:
            self._rich[id(row)] = (row, html)
            if len(self._rich) > CACHED_ROWS:
                self._rich.popitem(last=False)
        return html

    def _about(self, entry: Entry, line: Line) -> dict[str, Any]:
        item = entry.item
        if isinstance(line.about, Head):
            return head_map(line.kind, line.about, self._looks)
        detail = visible(item.detail)
        if line.kind == "label":
            return {"words": str(line.about), "said": str(line.about)}
        if line.kind == "note":
            return self._note(entry, detail)
        if line.kind == "notice":
            tone = _NOTICE_TONES.get(item.state, "waiting")
            words = visible(entry.whole_text())
            word = _FOOT_WORDS.get(item.state, "Notice") if item.state != "stopped" else "Stopped"
            return {
                "tone": tone,
                "icon": tone,
                "word": word,
                "words": words,
                "detail": detail,
                "said": f"{word}. {words}",
            }
        if line.kind == "reasoning":
            word = "Thinking" if entry.open else "Thought"
            return {"word": word, "expanded": entry.expanded, "active": entry.open, "detail": detail, "said": word}
        if line.kind == "more":
            left = entry.size_chars - entry.chars
            return {"said": f"{left:,} more characters"}
        state = _FOOT_WORDS.get(item.state, "")
        tone = _NOTICE_TONES.get(item.state, "done")
        time_said = when(item.created_ms, time.time_ns() // 1_000_000)
        return {"word": state, "tone": tone, "icon": tone, "detail": detail, "time": time_said, "said": state or detail}

    def _note(self, entry: Entry, detail: str) -> dict[str, Any]:
        """A quiet line: something that happened on the way."""
        again = entry.item.code == RETRY
        word = "Asked again" if again else "Note"
        words = visible(entry.whole_text())
        return {
            "icon": "again" if again else "info",
            "word": word,
            "words": words,
            "detail": detail,
            "said": f"{word}. {words}",
        }

    # ------------------------------------------------------------------ RowListener

    @contextmanager
    def _inserting(self, first: int, count: int) -> Iterator[None]:
        self.beginInsertRows(QModelIndex(), first, first + count - 1)
        try:
            yield
        finally:
            self.endInsertRows()

    @contextmanager
    def _removing(self, first: int, count: int) -> Iterator[None]:
        self.beginRemoveRows(QModelIndex(), first, first + count - 1)
        try:
            yield
        finally:
            self.endRemoveRows()

    @contextmanager
    def _resetting(self) -> Iterator[None]:
        self.beginResetModel()
        try:
            yield
        finally:
            self._rich.clear()
            self.endResetModel()

    def inserting(self, first: int, count: int) -> AbstractContextManager[object]:
        return self._inserting(first, count)

    def removing(self, first: int, count: int) -> AbstractContextManager[object]:
        return self._removing(first, count)

    def resetting(self) -> AbstractContextManager[object]:
        return self._resetting()


def _right_to_left(text: str) -> bool:
    """Whether the first strong character is right-to-left."""
    if text.isascii():
        return False
    import unicodedata

    for char in text[:400]:
        kind = unicodedata.bidirectional(char)
        if kind == "L":
            return False
        if kind in ("R", "AL"):
            return has_right_to_left(char)
    return False
