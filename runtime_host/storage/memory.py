"""The store of one agent in memory: for tests and for agents that are to leave nothing behind.

Owns plain dictionaries and an undo list. Must not touch a disk or a thread. Invariant: callers notice
no difference from the SQLite store except that nothing survives `close()`; a transaction that raises
leaves everything, orders included, as it was.
"""

import hashlib
import itertools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from runtime_host.errors import StorageError
from runtime_host.storage.base import (
    OPEN_PHASES,
    UNRESOLVED,
    AgentTx,
    ImageUse,
    ItemHead,
    ItemRecord,
    ItemState,
    RequestRecord,
    RowT,
    RunRecord,
    SessionRecord,
    ToolCallRecord,
    session_fact,
)
from runtime_host.storage.common import check_ids, from_json, request_conflict, storable, to_json
from runtime_host.storage.rows import JSON_FIELDS, TABLES, CounterRow, Row
from runtime_host.storage.usage import forget

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_MISSING: Final[Any] = object()


class MemoryAgentStore:
    """An `AgentStore` that lives as long as this object."""

    def __init__(self) -> None:
        self._tables = _Tables()
        self._closed = False

    @property
    def generation(self) -> int:
        return 1

    async def transact(self, fn: Callable[[AgentTx], T]) -> T:
        return self._run(fn, writable=True)

    async def read(self, fn: Callable[[AgentTx], T]) -> T:
        return self._run(fn, writable=False)

    async def close(self) -> None:
        self._closed = True
        self._tables = _Tables()

    def _run(self, fn: Callable[[AgentTx], T], *, writable: bool) -> T:
        if self._closed:
            raise StorageError("The store is closed.", code="STORAGE_CLOSED")
        tx = _MemoryTx(self._tables, writable=writable)
        try:
            return fn(tx)
        except BaseException:
            tx.undo()
            raise


class _Tables:
    """Records with their place in the order of admission. JSON is kept as text, so that no caller shares it."""

    def __init__(self) -> None:
        self.order = itertools.count()
        self.sessions: dict[str, tuple[int, str]] = {}
        self.requests: dict[tuple[str, str], RequestRecord] = {}
        self.runs: dict[str, tuple[int, str]] = {}
        self.items: dict[str, ItemRecord] = {}
        self.positions: dict[tuple[str, int], str] = {}
        self.counts: dict[str, int] = {}
        self.images: dict[str, bytes] = {}
        self.image_uses: dict[tuple[str, int], tuple[int, str, ImageUse]] = {}
        self.outbox: dict[tuple[str, str], tuple[int, str]] = {}
        self.facts: dict[str, str] = {}
        self.rows: dict[type[Row], dict[tuple[str, ...], tuple[int, bytes]]] = {kind: {} for kind in TABLES}


class _MemoryTx:
    def __init__(self, tables: _Tables, *, writable: bool) -> None:
        self._tables = tables
        self._writable = writable
        self._undo: list[Callable[[], None]] = []

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _set(self, table: dict[K, V], key: K, value: V) -> None:
        """Set, or with `_MISSING` remove, remembering what was there."""
        if not self._writable:
            raise StorageError("A read may not write.", code="STORAGE_OPERATION")
        before = table.get(key, _MISSING)
        self._undo.append(lambda: _put(table, key, before))
        _put(table, key, value)

    # sessions

    def put_session(self, record: SessionRecord) -> None:
        check_ids(record.session_id)
        order, _ = self._tables.sessions.get(record.session_id) or (next(self._tables.order), "")
        self._set(self._tables.sessions, record.session_id, (order, to_json(msgspec.to_builtins(record))))

    def session(self, session_id: str) -> SessionRecord | None:
        kept = self._tables.sessions.get(session_id)
        return None if kept is None else SessionRecord(**from_json(kept[1]))

    def sessions(self) -> list[SessionRecord]:
        return [SessionRecord(**from_json(text)) for _, text in sorted(self._tables.sessions.values())]

    def delete_session(self, session_id: str) -> None:
        tables = self._tables
        forget(self, session_id)
        self._set(tables.sessions, session_id, _MISSING)
        self._set(tables.counts, session_id, _MISSING)
        for request in [key for key in tables.requests if key[0] == session_id]:
            self._set(tables.requests, request, _MISSING)
        for call in [call for call in self._all_tool_calls() if call.session_id == session_id]:
            self._set(tables.outbox, (call.run_id, call.call_id), _MISSING)
        for use in self.images(session_id):
            self._set(tables.image_uses, (use.run_id, use.position), _MISSING)
            if not any(use.digest == other.digest for _, _, other in tables.image_uses.values()):
                self._set(tables.images, use.digest, _MISSING)
        for run in self.runs(session_id):
            self._set(tables.runs, run.run_id, _MISSING)
        for position in [key for key in tables.positions if key[0] == session_id]:
            self._set(tables.items, tables.positions[position], _MISSING)
            self._set(tables.positions, position, _MISSING)
        for key in [key for key in tables.facts if key.startswith(session_fact(session_id, ""))]:
            self._set(tables.facts, key, _MISSING)
        for counter in [key for key in tables.rows[CounterRow] if key[0].startswith(session_fact(session_id, ""))]:
            self._set(tables.rows[CounterRow], counter, _MISSING)
        for kind, kept in tables.rows.items():
            if TABLES[kind].of_session:
                for row in [key for key, (_, data) in kept.items() if _of_session(kind, data) == session_id]:
                    self._set(kept, row, _MISSING)

    # requests

    def put_request(self, record: RequestRecord) -> None:
        check_ids(record.request_id, record.run_id)
        known = self.request(record.session_id, record.request_id)
        if known is None:
            self._require_session(record.session_id)
            self._set(self._tables.requests, (record.session_id, record.request_id), record)
        elif known.digest != record.digest:
            raise request_conflict(record)

    def request(self, session_id: str, request_id: str) -> RequestRecord | None:
        return self._tables.requests.get((session_id, request_id))

    def count_requests(self, session_id: str) -> int:
        return sum(key[0] == session_id for key in self._tables.requests)

    # runs

    def put_run(self, record: RunRecord) -> None:
        check_ids(record.run_id)
        self._require_session(record.session_id)
        known = self.run(record.run_id)
        if known is not None and known.session_id != record.session_id:
            raise ValueError(f"run {record.run_id} belongs to another session")
        order, _ = self._tables.runs.get(record.run_id) or (next(self._tables.order), "")
        self._set(self._tables.runs, record.run_id, (order, to_json(msgspec.to_builtins(record))))

    def run(self, run_id: str) -> RunRecord | None:
        kept = self._tables.runs.get(run_id)
        return None if kept is None else RunRecord(**from_json(kept[1]))

    def runs(self, session_id: str) -> list[RunRecord]:
        return [run for run in self._all_runs() if run.session_id == session_id]

    def open_runs(self) -> list[RunRecord]:
        return [run for run in self._all_runs() if run.phase in OPEN_PHASES]

    # items

    def add_item(self, record: ItemRecord) -> None:
        check_ids(record.item_id, record.run_id)
        self._require_session(record.session_id)
        if record.position != (expected := self.count_items(record.session_id)):
            raise ValueError(f"the next item of the session has position {expected}, not {record.position}")
        if record.item_id in self._tables.items:
            raise ValueError(f"item {record.item_id} is there already")
        self._put_item(record)
        self._set(self._tables.positions, (record.session_id, record.position), record.item_id)
        self._set(self._tables.counts, record.session_id, record.position + 1)

    def append_text(self, item_id: str, at_chars: int, text: str) -> None:
        item = self._item(item_id)
        if item.state != "open":
            raise ValueError(f"item {item_id} is closed")
        if at_chars != len(item.text):
            raise ValueError(f"item {item_id} has {len(item.text)} characters, not {at_chars}")
        self._put_item(msgspec.structs.replace(item, text=item.text + text))

    def put_about(self, item_id: str, about: dict[str, Any]) -> None:
        item = self._item(item_id)
        if item.state != "open":
            raise ValueError(f"item {item_id} is closed")
        self._put_item(msgspec.structs.replace(item, about=about))

    def finish_item(
        self,
        item_id: str,
        *,
        state: ItemState,
        text: str | None,
        code: str = "",
        detail: str = "",
        about: dict[str, Any] | None = None,
    ) -> None:
        item = self._item(item_id)
        whole = item.text if text is None else text
        known = item.about if about is None else about
        self._put_item(msgspec.structs.replace(item, state=state, text=whole, code=code, detail=detail, about=known))

    def item(self, item_id: str) -> ItemRecord | None:
        item = self._tables.items.get(item_id)
        return item if item is None or not item.about else msgspec.structs.replace(item, about=_own(item.about))

    def count_items(self, session_id: str) -> int:
        return self._tables.counts.get(session_id, 0)

    def items(self, session_id: str, first: int, count: int, preview_chars: int) -> list[ItemHead]:
        return [
            ItemHead(
                item.item_id,
                session_id,
                item.run_id,
                item.position,
                item.kind,
                item.state,
                item.text[:preview_chars],
                len(item.text),
                item.created_ms,
                item.code,
                item.detail,
                _own(item.about),
            )
            for item in self._window(session_id, first, first + count if first > 0 else count)
        ]

    def item_text(self, item_id: str, at_chars: int, count_chars: int) -> str:
        start = max(at_chars, 0)
        return self._item(item_id).text[start : max(at_chars + count_chars, start)]

    def messages(self, session_id: str, before_position: int) -> list[ItemRecord]:
        return [
            item
            for item in self._window(session_id, 0, before_position)
            if item.kind in ("user", "reply") and item.state in ("complete", "stopped")
        ]

    # images

    def put_image(self, session_id: str, run_id: str, position: int, *, media_type: str, data: bytes) -> str:
        self._require_session(session_id)
        if (run_id, position) in self._tables.image_uses:
            raise ValueError(f"run {run_id} has an image at {position} already")
        digest = hashlib.sha256(data).hexdigest()
        use = ImageUse(run_id, position, digest, media_type, len(data))
        self._set(self._tables.images, digest, data)
        self._set(self._tables.image_uses, (run_id, position), (next(self._tables.order), session_id, use))
        return digest

    def image(self, session_id: str, digest: str) -> bytes | None:
        used = any(use.digest == digest for use in self.images(session_id))
        return self._tables.images.get(digest) if used else None

    def images(self, session_id: str) -> list[ImageUse]:
        return [use for _, owner, use in sorted(self._tables.image_uses.values()) if owner == session_id]

    # outbox

    def put_tool_call(self, record: ToolCallRecord) -> None:
        check_ids(record.run_id, record.call_id, record.tool)
        self._require_session(record.session_id)
        key = record.run_id, record.call_id
        order, _ = self._tables.outbox.get(key) or (next(self._tables.order), "")
        self._set(self._tables.outbox, key, (order, to_json(msgspec.to_builtins(record))))

    def tool_call(self, run_id: str, call_id: str) -> ToolCallRecord | None:
        kept = self._tables.outbox.get((run_id, call_id))
        return None if kept is None else _tool_call(kept[1])

    def tool_calls(self, run_id: str) -> list[ToolCallRecord]:
        return [call for call in self._all_tool_calls() if call.run_id == run_id]

    def unresolved_tool_calls(self, session_id: str) -> list[ToolCallRecord]:
        return [call for call in self._all_tool_calls() if call.session_id == session_id and call.phase in UNRESOLVED]

    # records of the loop and its gate

    def put_row(self, record: Row) -> None:
        kind = type(record)
        table, kept = TABLES[kind], self._tables.rows[kind]
        if table.of_session and record.session_id not in self._tables.sessions:  # type: ignore[attr-defined]
            raise ValueError(f"{table.name}: there is no such session")
        record = _storable(record)
        key = tuple(str(getattr(record, field)) for field in table.key)
        for unique in table.unique:
            fields = unique.split("+")
            mine = [getattr(record, field) for field in fields]
            for other, (_, data) in kept.items():
                there = _decoded(kind, data)
                if other != key and [getattr(there, field) for field in fields] == mine:
                    raise ValueError(f"{table.name}: {unique} is there already")
        order, _ = kept.get(key) or (next(self._tables.order), b"")
        self._set(kept, key, (order, msgspec.msgpack.encode(record)))

    def row(self, kind: type[RowT], *key: str | int) -> RowT | None:
        kept = self._tables.rows[kind].get(tuple(map(str, key)))
        return None if kept is None else _decoded(kind, kept[1])

    def rows(self, kind: type[RowT], **equal: str | int | bool | None) -> list[RowT]:
        table = TABLES[kind]
        if unknown := equal.keys() - set(table.fields):
            raise ValueError(f"{table.name} has no {', '.join(sorted(unknown))}")
        found = [_decoded(kind, data) for _, data in sorted(self._tables.rows[kind].values())]
        if table.by_key:
            found.sort(key=lambda record: [getattr(record, field) for field in table.key])
        return [record for record in found if all(getattr(record, name) == value for name, value in equal.items())]

    def delete_row(self, kind: type[Row], *key: str | int) -> None:
        names = tuple(map(str, key))
        if names in self._tables.rows[kind]:
            self._set(self._tables.rows[kind], names, _MISSING)

    # facts

    def put_fact(self, key: str, value: Any) -> None:
        check_ids(key)
        self._set(self._tables.facts, key, to_json(value))

    def fact(self, key: str) -> Any:
        text = self._tables.facts.get(key)
        return None if text is None else from_json(text)

    # ---- tables ----

    def _require_session(self, session_id: str) -> None:
        if session_id not in self._tables.sessions:
            raise LookupError(f"no session {session_id}")

    def _all_runs(self) -> list[RunRecord]:
        return [RunRecord(**from_json(text)) for _, text in sorted(self._tables.runs.values())]

    def _all_tool_calls(self) -> list[ToolCallRecord]:
        return [_tool_call(text) for _, text in sorted(self._tables.outbox.values())]

    def _item(self, item_id: str) -> ItemRecord:
        item = self._tables.items.get(item_id)
        if item is None:
            raise LookupError(f"no item {item_id}")
        return item

    def _put_item(self, record: ItemRecord) -> None:
        self._set(
            self._tables.items,
            record.item_id,
            msgspec.structs.replace(
                record,
                text=storable(record.text),
                code=storable(record.code),
                detail=storable(record.detail),
                about=_own(record.about),
            ),
        )

    def _window(self, session_id: str, first: int, end: int) -> list[ItemRecord]:
        tables = self._tables
        positions = range(max(first, 0), min(end, self.count_items(session_id)))
        return [tables.items[tables.positions[session_id, position]] for position in positions]


def _storable(record: Row) -> Row:
    """The record as a file would give it back."""
    texts = {
        name: storable(value) for name in record.__struct_fields__ if isinstance(value := getattr(record, name), str)
    }
    jsons = {
        name: from_json(to_json(value))
        for name in JSON_FIELDS[type(record)]
        if (value := getattr(record, name)) is not None
    }
    return msgspec.structs.replace(record, **{**texts, **jsons})


def _of_session(kind: type[Row], data: bytes) -> str:
    return str(_decoded(kind, data).session_id)  # type: ignore[attr-defined]


def _decoded(kind: type[RowT], data: bytes) -> RowT:
    return msgspec.msgpack.decode(data, type=kind)


def _tool_call(text: str) -> ToolCallRecord:
    kept = from_json(text)
    return ToolCallRecord(**{**kept, "evidence": tuple(kept["evidence"])})


def _own(about: dict[str, Any]) -> dict[str, Any]:
    """A copy that nobody else has."""
    own: dict[str, Any] = from_json(to_json(about)) if about else {}
    return own


def _put(table: dict[K, V], key: K, value: V) -> None:
    if value is _MISSING:
        table.pop(key, None)
    else:
        table[key] = value
