"""A list model whose rows are plain value maps.

Owns the one way in which rows reach QML: a `kind` for choosing a delegate and a `row` map, one
call a row instead of one a role.
"""

from typing import Any

from PySide6.QtCore import QAbstractListModel, QByteArray, QModelIndex, QPersistentModelIndex, Qt, Slot

Index = QModelIndex | QPersistentModelIndex

KIND = int(Qt.ItemDataRole.UserRole) + 1
ROW = KIND + 1
_ROOT = QModelIndex()


class RowModel(QAbstractListModel):
    """Base: subclasses give `count` and `row_map`."""

    def count(self) -> int:
        raise TypeError("a subclass says how many rows there are")

    def kind(self, row: int) -> str:
        del row
        return "row"

    def row_map(self, row: int) -> dict[str, Any]:
        raise TypeError("a subclass says what a row holds")

    def spoken(self, row: int) -> str:
        """The row in words, for tests and assistive tools."""
        return str(self.row_map(row))

    def changed(self, first: int, count: int) -> None:
        """Rows first…first+count say something else now."""
        if count > 0:
            self.dataChanged.emit(self.index(first), self.index(first + count - 1), [ROW])

    @Slot(int, result="QVariantMap")
    def rowAt(self, row: int) -> dict[str, Any]:
        """The same for QML that needs a row without a delegate."""
        return self.row_map(row) if 0 <= row < self.count() else {}

    # Qt's own names

    def rowCount(self, parent: Index = _ROOT) -> int:
        return 0 if parent.isValid() else self.count()

    def roleNames(self) -> dict[int, QByteArray]:
        return {KIND: QByteArray(b"kind"), ROW: QByteArray(b"row")}

    def data(self, index: Index, role: int = int(Qt.ItemDataRole.DisplayRole)) -> Any:
        row = index.row()
        if not 0 <= row < self.count():
            return None
        if role == KIND:
            return self.kind(row)
        if role == ROW:
            return self.row_map(row)
        if role == int(Qt.ItemDataRole.DisplayRole):
            return self.spoken(row)
        return None


class ListModel(RowModel):
    """A short list that is replaced whole."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[dict[str, Any]] = []

    def replace(self, rows: list[dict[str, Any]]) -> None:
        """Show `rows`. Rows in place of others are changed, not made anew, so that focus stays."""
        common = min(len(rows), len(self._rows))
        if len(rows) < len(self._rows):
            self.beginRemoveRows(QModelIndex(), len(rows), len(self._rows) - 1)
            del self._rows[len(rows) :]
            self.endRemoveRows()
        different = [place for place in range(common) if rows[place] != self._rows[place]]
        self._rows[:common] = rows[:common]
        if different:
            self.changed(different[0], different[-1] - different[0] + 1)
        if len(rows) > len(self._rows):
            self.beginInsertRows(QModelIndex(), len(self._rows), len(rows) - 1)
            self._rows += rows[len(self._rows) :]
            self.endInsertRows()

    def count(self) -> int:
        return len(self._rows)

    def row_map(self, row: int) -> dict[str, Any]:
        return self._rows[row]
