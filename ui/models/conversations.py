"""The sidebar's rows as a Qt model.

Owns headings, times and words of each row. Must not know the wire's windows: what is not
loaded is an empty row.
"""

import time
from typing import Any

from PySide6.QtCore import QModelIndex

from ui.models.rows import RowModel
from ui.store import ICONS, TONES, WORDS, Store
from ui.text.visible import one_line
from ui.when import section, when


class ConversationsModel(RowModel):
    """`Listing` of the store."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._shown = 0
        self._maps: list[dict[str, Any] | None] = []

    def refresh(self) -> None:
        """The listing, the selection or the hour changed: say what differs, and nothing else."""
        total = self._store.listing.total
        if total < self._shown:
            self.beginRemoveRows(QModelIndex(), total, self._shown - 1)
            self._shown = total
            self.endRemoveRows()
        elif total > self._shown:
            self.beginInsertRows(QModelIndex(), self._shown, total - 1)
            self._shown = total
            self.endInsertRows()
        old, self._maps = self._maps, [None] * total
        for place in self._store.listing.rows:
            if place >= total:
                continue
            fresh = self._make(place)
            self._maps[place] = fresh
            if place >= len(old) or old[place] != fresh:
                self.changed(place, 1)

    def count(self) -> int:
        return self._shown

    def row_map(self, row: int) -> dict[str, Any]:
        known = self._maps[row] if row < len(self._maps) else None
        return known or _EMPTY

    def spoken(self, row: int) -> str:
        return str(self.row_map(row)["said"])

    def missing(self, first: int, last: int) -> tuple[int, int] | None:
        """The first window of rows between these that is not loaded, as (first, count)."""
        rows = self._store.listing.rows
        holes = [place for place in range(max(0, first), min(last + 1, self._shown)) if place not in rows]
        if not holes:
            return None
        return holes[0], holes[-1] - holes[0] + 1

    def _make(self, place: int) -> dict[str, Any]:
        row = self._store.listing.rows[place]
        now_ms = time.time_ns() // 1_000_000
        heading = section(row.updated_ms, now_ms, pinned=row.pinned)
        before = self._store.listing.rows.get(place - 1)
        repeated = before is not None and section(before.updated_ms, now_ms, pinned=before.pinned) == heading
        ago = when(row.updated_ms, now_ms)
        subtitle = one_line(row.subtitle)
        title = one_line(row.title) or "New conversation"
        word = "" if row.state == "done" else WORDS[row.state]
        return {
            "id": row.id,
            "title": title,
            "subtitle": f"{subtitle} · {ago}" if subtitle and ago else subtitle or ago,
            "heading": "" if repeated else heading,
            "word": word,
            "tone": TONES[row.state],
            "icon": ICONS[row.state],
            "pinned": row.pinned,
            "chosen": row.id == self._store.conversation and self._store.page == "conversation",
            "place": place,
            "said": ", ".join(part for part in (title, word, subtitle, ago) if part),
        }


_EMPTY: dict[str, Any] = {
    "id": "", "title": "", "subtitle": "", "heading": "", "word": "", "tone": "done", "icon": "check",
    "pinned": False, "chosen": False, "place": -1, "said": "Not loaded yet",
}  # fmt: skip
