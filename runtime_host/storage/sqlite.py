"""The store of one agent in one SQLite file.

Owns the SQL of the agent's tables (`migrations`). Must not know what a driver or a run does. Invariant:
an item's text is its head followed by its chunks in order, without holes, `size_chars` long.

A window of items costs as much as the window, however long the session: one range of the index on
(session, position), heads bounded by `HEAD_CHARS`.
"""

import functools
import hashlib
import sqlite3
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from runtime_host.storage.base import (
    AgentStore,
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
from runtime_host.storage.common import from_json, request_conflict, storable, to_json
from runtime_host.storage.migrations import STEPS
from runtime_host.storage.rows import BOOLS, JSON_FIELDS, TABLES, Row, Table
from runtime_host.storage.sqlite_file import SqliteFile, SqliteTx, StoreFormat
from runtime_host.storage.usage import forget

AGENT_FORMAT = StoreFormat(application_id=0x524D4441, migrations=STEPS)  # "RMDA"

HEAD_CHARS = 4096
"""What an item's own row holds of its text at most: enough for any preview of it."""

CHUNK_CHARS = 65_536
"""Pieces of a text that is written at once, so that a range of it is read without the rest."""


async def open_agent_store(path: Path, *, profile: str, agent: str) -> AgentStore:
    """Claim and open the agent's file, or make it. Raises as `SqliteFile.open` does."""
    return await SqliteFile.open(path, AGENT_FORMAT, SqliteAgentTx, profile=profile, agent=agent)


class SqliteAgentTx(SqliteTx):
    """`AgentTx` in SQL."""

    # sessions

    def put_session(self, record: SessionRecord) -> None:
        self.db.execute(
            "INSERT INTO sessions (session_id, scope_digest, created_ms, definition, options, driver_state, status,"
            " tools) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session_id) DO UPDATE SET"
            " scope_digest = excluded.scope_digest, created_ms = excluded.created_ms,"
            " definition = excluded.definition, options = excluded.options,"
            " driver_state = excluded.driver_state, status = excluded.status, tools = excluded.tools",
            (
                record.session_id,
                record.scope_digest,
                record.created_ms,
                to_json(record.definition),
                to_json(record.options),
                None if record.driver_state is None else to_json(record.driver_state),
                record.status,
                None if record.tools is None else to_json(record.tools),
            ),
        )

    def session(self, session_id: str) -> SessionRecord | None:
        row = self.db.execute(f"{_SESSIONS} WHERE session_id = ?", (session_id,)).fetchone()
        return row and _session(row)

    def sessions(self) -> list[SessionRecord]:
        return [_session(row) for row in self.db.execute(f"{_SESSIONS} ORDER BY session")]

    def delete_session(self, session_id: str) -> None:
        forget(self, session_id)
        mine = self.db.execute(
            "SELECT DISTINCT image FROM image_uses JOIN sessions USING (session) WHERE session_id = ?", (session_id,)
        ).fetchall()
        self.db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
        self.db.executemany(
            "DELETE FROM images WHERE image = ?1 AND NOT EXISTS (SELECT 1 FROM image_uses WHERE image = ?1)", mine
        )
        own = session_fact(session_id, "")
        # "0" comes next after "/": all keys that begin so, by the index.
        self.db.execute("DELETE FROM facts WHERE key >= ? AND key < ?", (own, f"{own[:-1]}0"))
        self.db.execute("DELETE FROM counters WHERE name >= ? AND name < ?", (own, f"{own[:-1]}0"))
        self.erase()

    # requests

    def put_request(self, record: RequestRecord) -> None:
        known = self.request(record.session_id, record.request_id)
        if known is None:
            self.db.execute(
                "INSERT INTO requests (session, request_id, digest, run_id) VALUES (?, ?, ?, ?)",
                (self._session(record.session_id), record.request_id, record.digest, record.run_id),
            )
        elif known.digest != record.digest:
            raise request_conflict(record)

    def request(self, session_id: str, request_id: str) -> RequestRecord | None:
        row = self.db.execute(
            "SELECT digest, run_id FROM requests JOIN sessions USING (session) WHERE session_id = ? AND request_id = ?",
            (session_id, request_id),
        ).fetchone()
        return row and RequestRecord(session_id=session_id, request_id=request_id, digest=row[0], run_id=row[1])

    def count_requests(self, session_id: str) -> int:
        return self._number(
            "SELECT count(*) FROM requests JOIN sessions USING (session) WHERE session_id = ?", session_id
        )

    # runs

    def put_run(self, record: RunRecord) -> None:
        written = self.db.execute(
            "INSERT INTO runs (run_id, session, phase, created_ms, input, sequence_mark, finished_ms, result)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET phase = excluded.phase,"
            " created_ms = excluded.created_ms, input = excluded.input, sequence_mark = excluded.sequence_mark,"
            " finished_ms = excluded.finished_ms, result = excluded.result WHERE session = excluded.session",
            (
                record.run_id,
                self._session(record.session_id),
                record.phase,
                record.created_ms,
                to_json(record.input),
                record.sequence_mark,
                record.finished_ms,
                None if record.result is None else to_json(record.result),
            ),
        ).rowcount
        if not written:
            raise ValueError(f"run {record.run_id} belongs to another session")

    def run(self, run_id: str) -> RunRecord | None:
        row = self.db.execute(f"{_RUNS} WHERE run_id = ?", (run_id,)).fetchone()
        return row and _run(row)

    def runs(self, session_id: str) -> list[RunRecord]:
        return [_run(row) for row in self.db.execute(f"{_RUNS} WHERE session_id = ? ORDER BY run", (session_id,))]

    def open_runs(self) -> list[RunRecord]:
        rows = self.db.execute(f"{_RUNS} WHERE phase IN ('admitted', 'dispatched') ORDER BY run")
        return [_run(row) for row in rows]

    # items

    def add_item(self, record: ItemRecord) -> None:
        session = self._session(record.session_id)
        if record.position != (expected := self._count_items(session)):
            raise ValueError(f"the next item of the session has position {expected}, not {record.position}")
        text = storable(record.text)
        try:
            item = self.db.execute(
                "INSERT INTO items (item_id, session, run_id, position, kind, state, head, size_chars, created_ms,"
                " code, detail, about) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    record.item_id,
                    session,
                    record.run_id,
                    record.position,
                    record.kind,
                    record.state,
                    text[:HEAD_CHARS],
                    len(text),
                    record.created_ms,
                    storable(record.code),
                    storable(record.detail),
                    _about(record.about),
                ),
            ).lastrowid
        except sqlite3.IntegrityError as error:
            raise ValueError(f"item {record.item_id} is there already") from error
        self._add_chunks(item, HEAD_CHARS, text[HEAD_CHARS:])

    def append_text(self, item_id: str, at_chars: int, text: str) -> None:
        item, size_chars, state = self._item(item_id)
        if state != "open":
            raise ValueError(f"item {item_id} is closed")
        if at_chars != size_chars:
            raise ValueError(f"item {item_id} has {size_chars} characters, not {at_chars}")
        if text:
            self._add_chunks(item, at_chars, storable(text))
            self.db.execute("UPDATE items SET size_chars = ? WHERE item = ?", (at_chars + len(text), item))

    def put_about(self, item_id: str, about: dict[str, Any]) -> None:
        item, _, state = self._item(item_id)
        if state != "open":
            raise ValueError(f"item {item_id} is closed")
        self.db.execute("UPDATE items SET about = ? WHERE item = ?", (_about(about), item))

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
        item, _, _ = self._item(item_id)
        if about is not None:
            self.db.execute("UPDATE items SET about = ? WHERE item = ?", (_about(about), item))
        self.db.execute(
            "UPDATE items SET state = ?, code = ?, detail = ? WHERE item = ?",
            (state, storable(code), storable(detail), item),
        )
        if text is not None:
            text = storable(text)
            self.db.execute("DELETE FROM chunks WHERE item = ?", (item,))
            self.db.execute(
                "UPDATE items SET head = ?, size_chars = ? WHERE item = ?", (text[:HEAD_CHARS], len(text), item)
            )
            self._add_chunks(item, HEAD_CHARS, text[HEAD_CHARS:])

    def item(self, item_id: str) -> ItemRecord | None:
        row = self.db.execute(f"{_ITEMS} WHERE item_id = ?", (item_id,)).fetchone()
        return row and self._record(row)

    def count_items(self, session_id: str) -> int:
        row = self.db.execute("SELECT session FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
        return self._count_items(row[0]) if row else 0

    def items(self, session_id: str, first: int, count: int, preview_chars: int) -> list[ItemHead]:
        rows = self.db.execute(
            f"{_ITEMS} WHERE session_id = ? AND position >= ? ORDER BY position LIMIT ?",
            (session_id, first, max(count, 0)),
        )
        heads = []
        for item, item_id, run_id, position, kind, state, head, size_chars, created_ms, code, detail, about, _ in rows:
            whole = len(head) >= min(preview_chars, size_chars)
            text = head[:preview_chars] if whole else self._text(item, head, 0, preview_chars)
            known = {} if about is None else from_json(about)
            rest = (created_ms, code, detail, known)
            heads.append(ItemHead(item_id, session_id, run_id, position, kind, state, text, size_chars, *rest))
        return heads

    def item_text(self, item_id: str, at_chars: int, count_chars: int) -> str:
        row = self.db.execute("SELECT item, head FROM items WHERE item_id = ?", (item_id,)).fetchone()
        if row is None:
            raise LookupError(f"no item {item_id}")
        return self._text(row[0], row[1], at_chars, at_chars + count_chars)

    def messages(self, session_id: str, before_position: int) -> list[ItemRecord]:
        rows = self.db.execute(
            f"{_ITEMS} WHERE session_id = ? AND position < ? AND kind IN ('user', 'reply')"
            " AND state IN ('complete', 'stopped') ORDER BY position",
            (session_id, before_position),
        )
        return [self._record(row) for row in rows]

    # images

    def put_image(self, session_id: str, run_id: str, position: int, *, media_type: str, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.db.execute("INSERT OR IGNORE INTO images (digest, data) VALUES (?, ?)", (digest, data))
        try:
            self.db.execute(
                "INSERT INTO image_uses (session, run_id, position, image, media_type)"
                " VALUES (?, ?, ?, (SELECT image FROM images WHERE digest = ?), ?)",
                (self._session(session_id), run_id, position, digest, media_type),
            )
        except sqlite3.IntegrityError as error:
            raise ValueError(f"run {run_id} has an image at {position} already") from error
        return digest

    def image(self, session_id: str, digest: str) -> bytes | None:
        row: tuple[bytes] | None = self.db.execute(
            "SELECT data FROM images WHERE digest = ? AND image IN"
            " (SELECT image FROM image_uses JOIN sessions USING (session) WHERE session_id = ?)",
            (digest, session_id),
        ).fetchone()
        return None if row is None else row[0]

    def images(self, session_id: str) -> list[ImageUse]:
        rows = self.db.execute(
            "SELECT run_id, position, digest, media_type, length(data) FROM image_uses JOIN images USING (image)"
            " JOIN sessions USING (session) WHERE session_id = ? ORDER BY use",
            (session_id,),
        )
        return [ImageUse(*row) for row in rows]

    # outbox

    def put_tool_call(self, record: ToolCallRecord) -> None:
        self.db.execute(
            "INSERT INTO outbox (session, run_id, call_id, tool, arguments, native, phase, created_ms, outcome,"
            " payload, evidence) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id, call_id) DO UPDATE SET"
            " tool = excluded.tool, arguments = excluded.arguments, native = excluded.native,"
            " phase = excluded.phase, created_ms = excluded.created_ms, outcome = excluded.outcome,"
            " payload = excluded.payload, evidence = excluded.evidence",
            (
                self._session(record.session_id),
                record.run_id,
                record.call_id,
                record.tool,
                storable(record.arguments),
                to_json(record.native),
                record.phase,
                record.created_ms,
                record.outcome,
                to_json(record.payload),
                to_json(record.evidence),
            ),
        )

    def tool_call(self, run_id: str, call_id: str) -> ToolCallRecord | None:
        row = self.db.execute(f"{_OUTBOX} WHERE run_id = ? AND call_id = ?", (run_id, call_id)).fetchone()
        return row and _tool_call(row)

    def tool_calls(self, run_id: str) -> list[ToolCallRecord]:
        return [_tool_call(row) for row in self.db.execute(f"{_OUTBOX} WHERE run_id = ? ORDER BY entry", (run_id,))]

    def unresolved_tool_calls(self, session_id: str) -> list[ToolCallRecord]:
        rows = self.db.execute(
            f"{_OUTBOX} WHERE session_id = ? AND phase IN ('executing', 'interrupted') ORDER BY entry", (session_id,)
        )
        return [_tool_call(row) for row in rows]

    # records of the loop and its gate

    def put_row(self, record: Row) -> None:
        table = TABLES[type(record)]
        values = [_cell(table.type, field, getattr(record, field)) for field in table.fields]
        try:
            self.db.execute(_statements(table).put, values)
        except sqlite3.IntegrityError as error:
            raise ValueError(f"{table.name}: {error}") from error

    def row(self, kind: type[RowT], *key: str | int) -> RowT | None:
        table = TABLES[kind]
        where = " AND ".join(f'"{field}" = ?' for field in table.key)
        found = self.db.execute(f"{_statements(table).select} WHERE {where}", key).fetchone()
        return None if found is None else _record(kind, table, found)

    def rows(self, kind: type[RowT], **equal: str | int | bool | None) -> list[RowT]:
        table = TABLES[kind]
        if unknown := equal.keys() - set(table.fields):
            raise ValueError(f"{table.name} has no {', '.join(sorted(unknown))}")
        where = " AND ".join(f'"{field}" IS ?' for field in equal) or "1"
        found = self.db.execute(
            f"{_statements(table).select} WHERE {where} ORDER BY {_order(table)}", tuple(equal.values())
        )
        return [_record(kind, table, each) for each in found]

    def read_row(self, kind: type[RowT], key: tuple[Any, ...], *, backwards: bool = False) -> RowT | None:
        """The first record of a table by its key that comes behind a key, or before it; () is every one's beginning.

        Raises:
            msgspec.ValidationError: what lies there is no such record.
        """
        table = TABLES[kind]
        order = [f'"{field}"{" DESC" if backwards else ""}' for field in table.key]
        names, marks = ", ".join(f'"{field}"' for field in table.key), ", ".join("?" for _ in key)
        where = f"WHERE ({names}) {'<' if backwards else '>'} ({marks})" if key else ""
        select = f"{_statements(table).select} {where} ORDER BY {', '.join(order)} LIMIT 1"
        return self._checked(kind, table, self.db.execute(select, key).fetchone())

    def row_at(self, kind: type[RowT], rowid: int) -> RowT | None:
        """The record in a place of its table, found without an index and checked: for files that are damaged.

        Raises:
            msgspec.ValidationError: what lies there is no such record.
        """
        table = TABLES[kind]
        found = self.db.execute(f"{_statements(table).select} NOT INDEXED WHERE rowid = ?", (rowid,)).fetchone()
        return self._checked(kind, table, found)

    def _checked(self, kind: type[RowT], table: Table, found: tuple[Any, ...] | None) -> RowT | None:
        if found is None:
            return None
        values = msgspec.structs.asdict(_record(kind, table, found))
        return msgspec.convert(values, kind, builtin_types=(bytes,))

    def delete_row(self, kind: type[Row], *key: str | int) -> None:
        table = TABLES[kind]
        where = " AND ".join(f'"{field}" = ?' for field in table.key)
        delete = f"DELETE FROM {table.name} WHERE {where}"  # noqa: S608 - names of ours
        if self.db.execute(delete, key).rowcount:
            self.erase()

    # facts

    def put_fact(self, key: str, value: Any) -> None:
        self.db.execute("INSERT OR REPLACE INTO facts (key, value) VALUES (?, ?)", (key, to_json(value)))

    def fact(self, key: str) -> Any:
        row = self.db.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return row and from_json(row[0])

    # ---- rows ----

    def _number(self, sql: str, *values: Any) -> int:
        number: int = self.db.execute(sql, values).fetchone()[0]
        return number

    def _session(self, session_id: str) -> int:
        row = self.db.execute("SELECT session FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
        if row is None:
            raise LookupError(f"no session {session_id}")
        session: int = row[0]
        return session

    def _count_items(self, session: int) -> int:
        # Positions have no holes, so the last one counts them all without walking over them.
        return self._number("SELECT coalesce(max(position) + 1, 0) FROM items WHERE session = ?", session)

    def _item(self, item_id: str) -> tuple[int, int, ItemState]:
        row: tuple[int, int, ItemState] | None = self.db.execute(
            "SELECT item, size_chars, state FROM items WHERE item_id = ?", (item_id,)
        ).fetchone()
        if row is None:
            raise LookupError(f"no item {item_id}")
        return row

    def _add_chunks(self, item: int | None, at_chars: int, text: str) -> None:
        """More of a text, from a character on, in pieces of bounded size."""
        for start in range(0, len(text), CHUNK_CHARS):
            self.db.execute(
                "INSERT INTO chunks (item, at_chars, text) VALUES (?, ?, ?)",
                (item, at_chars + start, text[start : start + CHUNK_CHARS]),
            )

    def _text(self, item: int, head: str, start: int, end: int) -> str:
        """Characters [start, end) of an item, reading only the chunks that hold them."""
        start = max(start, 0)
        parts = [head[start:end]] if start < end else []
        if len(head) < end:
            chunks = self.db.execute(
                "SELECT at_chars, text FROM chunks WHERE item = ?1 AND at_chars < ?3 AND at_chars >= coalesce("
                "(SELECT max(at_chars) FROM chunks WHERE item = ?1 AND at_chars <= ?2), 0) ORDER BY at_chars",
                (item, start, end),
            )
            parts += [text[max(start - at, 0) : end - at] for at, text in chunks]
        return "".join(parts)

    def _record(self, row: tuple[Any, ...]) -> ItemRecord:
        item, item_id, run_id, position, kind, state, head, size_chars, created_ms, code, detail, *rest = row
        about, session_id = rest
        return ItemRecord(
            item_id=item_id,
            session_id=session_id,
            run_id=run_id,
            position=position,
            kind=kind,
            state=state,
            text=head if len(head) == size_chars else self._text(item, head, 0, size_chars),
            created_ms=created_ms,
            code=code,
            detail=detail,
            about={} if about is None else from_json(about),
        )


_SESSIONS = (
    "SELECT session_id, scope_digest, created_ms, definition, options, driver_state, status, tools FROM sessions"
)
_RUNS = (
    "SELECT run_id, session_id, phase, runs.created_ms, input, sequence_mark, finished_ms, result"
    " FROM runs JOIN sessions USING (session)"
)
_ITEMS = (
    "SELECT item, item_id, run_id, position, kind, state, head, size_chars, items.created_ms, code, detail,"
    " about, session_id FROM items JOIN sessions USING (session)"
)
_OUTBOX = (
    "SELECT session_id, run_id, call_id, tool, arguments, native, phase, outbox.created_ms, outcome, payload, evidence"
    " FROM outbox JOIN sessions USING (session)"
)


_ANY: Final = ("value", "result", "body")
"""Fields that may hold any JSON value, null too."""


class _Statements(NamedTuple):
    put: str
    select: str


@functools.cache
def _statements(table: Table) -> _Statements:
    """SQL of a table; names come from `rows`, never from a caller."""
    columns = ", ".join(f'"{field}"' for field in table.fields)
    marks = ", ".join("?" for _ in table.fields)
    rest = [f'"{field}" = excluded."{field}"' for field in table.fields if field not in table.key]
    key = ", ".join(f'"{field}"' for field in table.key)
    values = f"({columns}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {', '.join(rest)}"
    put, select = f"INSERT INTO {table.name} {values}", f"SELECT {columns} FROM {table.name}"  # noqa: S608 - names of ours
    return _Statements(put, select)


def _order(table: Table) -> str:
    return ", ".join(f'"{field}"' for field in table.key) if table.by_key else "rowid"


def _cell(kind: type[Row], field: str, value: Any) -> Any:
    if field in JSON_FIELDS[kind]:
        # A JSON null is text like any other; only an optional field may be without any.
        return None if value is None and field not in _ANY else to_json(value)
    return storable(value) if isinstance(value, str) else value


def _record(kind: type[RowT], table: Table, found: tuple[Any, ...]) -> RowT:
    values = dict(zip(table.fields, found, strict=True))
    for field in JSON_FIELDS[kind]:
        values[field] = None if values[field] is None else from_json(values[field])
    for field in BOOLS[kind]:
        values[field] = bool(values[field])
    return kind(**values)


def _about(about: dict[str, Any]) -> str | None:
    return to_json(about) if about else None


def _session(row: tuple[Any, ...]) -> SessionRecord:
    session_id, scope_digest, created_ms, definition, options, driver_state, status, tools = row
    return SessionRecord(
        session_id=session_id,
        scope_digest=scope_digest,
        created_ms=created_ms,
        definition=from_json(definition),
        options=from_json(options),
        driver_state=None if driver_state is None else from_json(driver_state),
        status=status,
        tools=None if tools is None else from_json(tools),
    )


def _run(row: tuple[Any, ...]) -> RunRecord:
    run_id, session_id, phase, created_ms, given, sequence_mark, finished_ms, result = row
    return RunRecord(
        run_id=run_id,
        session_id=session_id,
        phase=phase,
        created_ms=created_ms,
        input=from_json(given),
        sequence_mark=sequence_mark,
        finished_ms=finished_ms,
        result=None if result is None else from_json(result),
    )


def _tool_call(row: tuple[Any, ...]) -> ToolCallRecord:
    session_id, run_id, call_id, tool, arguments, native, phase, created_ms, outcome, payload, evidence = row
    return ToolCallRecord(
        session_id=session_id,
        run_id=run_id,
        call_id=call_id,
        tool=tool,
        arguments=arguments,
        phase=phase,
        created_ms=created_ms,
        native=from_json(native),
        outcome=outcome,
        payload=from_json(payload),
        evidence=tuple(from_json(evidence)),
    )
