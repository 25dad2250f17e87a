"""Salvage: what can still be read of an agent's damaged file, written into a new one.

Owns the reading around damaged pages. Must not change the damaged file: it reads a copy. Invariants: what
is written is whole records, in order, positions without holes; nothing that was open is taken for anything
but unknown, so that nothing is ever sent or executed again; a session whose request ids are not all known is
marked, so that none is taken for new; each session that was in the file says that it was salvaged.
"""

import asyncio
import concurrent.futures
import contextlib
import hashlib
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from runtime_host.storage.base import (
    SALVAGED,
    AgentStore,
    AgentTx,
    ItemRecord,
    RequestRecord,
    RowT,
    RunRecord,
    SessionRecord,
    ToolCallRecord,
    session_fact,
)
from runtime_host.storage.claim import sync_folder
from runtime_host.storage.common import from_json
from runtime_host.storage.rows import TABLES, PluginChoiceRow, Row
from runtime_host.storage.salvage_rows import FILE_UUID, AgentRows, as_left, put_missing, write_agent
from runtime_host.storage.sqlite import AGENT_FORMAT, SqliteAgentTx

T = TypeVar("T")

SALVAGED_CODE: Final = "STORAGE_SALVAGED"
SALVAGED_NOTICE: Final = (
    "The file this conversation was kept in was damaged. What could be read of it is here; parts may be missing. "
    "Nothing was sent again."
)
_NEAR: Final = 256
_FAR: Final = 1 << 40
_ENDED: Final = frozenset({"completed", "failed", "cancelled", "incomplete", "unknown"})
_FINAL_CALLS: Final = frozenset({"delivered", "withdrawn"})
_MARK: Final = ".salvaged"
"""Ending of the empty file beside a damaged one that was salvaged. A note in the store could be damaged with it, and
then what was deleted meanwhile would come back."""
_NAME: Final = re.compile(r"\.damaged-\d{8}T\d{6}Z(-\d+)?")


class Salvaged(NamedTuple):
    """How much was read. `unreadable` counts the places that could not be; 0 says that nothing is missing."""

    sessions: int
    runs: int
    items: int
    unreadable: int


class _Session(NamedTuple):
    record: SessionRecord
    requests: list[RequestRecord]
    requests_whole: bool
    runs: list[RunRecord]
    items: list[ItemRecord]
    calls: list[ToolCallRecord]
    images: list["_Image"]
    facts: dict[str, Any]
    records: list[Row]


class _Image(NamedTuple):
    run_id: str
    position: int
    media_type: str
    data: bytes


def set_aside(path: Path) -> tuple[Path, ...]:
    """Damaged files that were set aside in favour of a store, oldest first. They stay until somebody removes them."""
    try:
        beside = sorted(path.parent.iterdir())
    except FileNotFoundError:
        return ()
    return tuple(
        each for each in beside if each.name.startswith(path.name) and _NAME.fullmatch(each.name[len(path.name) :])
    )


async def take_over(path: Path, store: AgentStore, *, now_ms: int) -> tuple[Path, ...]:
    """Salvage each file that was set aside in favour of a store and was not salvaged yet, also by an earlier process.

    Args:
        path: of the store.
        store: the one at `path`.
        now_ms: the wall clock.

    Returns:
        the ones that were salvaged now.

    Raises:
        StorageError: the store did not take it; the next call tries again.
    """
    taken: list[Path] = []
    # The newest first: what it holds is left alone by the older ones, which know nothing of what came after them.
    for each in reversed(set_aside(path)):
        mark = each.with_name(each.name + _MARK)
        if not mark.exists():
            await salvage(each, store, now_ms=now_ms, newest=not taken)
            mark.touch(0o600)
            sync_folder(mark.parent)
            taken.append(each)
    return tuple(taken)


async def salvage(damaged: Path, store: AgentStore, *, now_ms: int, newest: bool = True) -> Salvaged:
    """Write what can be read of a file that was set aside into a store that holds none of it.

    Args:
        damaged: the name in `StorageDamagedError.details["set_aside"]`.
        store: where it goes; sessions it has already are left alone.
        now_ms: the wall clock.
        newest: False when another file was in use after this one: what it says of request ids is not the last word.

    Raises:
        StorageError: the store did not take it.
    """
    with concurrent.futures.ThreadPoolExecutor(1, "salvage") as thread:
        found, of_agent, unreadable = await asyncio.get_running_loop().run_in_executor(thread, _read, damaged)
    sessions = runs = items = 0
    await store.transact(lambda tx: write_agent(tx, of_agent, now_ms))
    for each in found:

        def write(tx: AgentTx, each: _Session = each) -> bool:
            return _write(tx, each, now_ms, damaged.name, newest=newest)

        if await store.transact(write):
            sessions, runs, items = sessions + 1, runs + len(each.runs), items + len(each.items)
    return Salvaged(sessions, runs, items, unreadable)


def _write(tx: AgentTx, found: _Session, now_ms: int, name: str, *, newest: bool) -> bool:
    record = found.record
    if tx.session(record.session_id) is not None:
        return False
    tx.put_session(record)
    for key, value in found.facts.items():
        tx.put_fact(key, value)
    earlier = tx.fact(session_fact(record.session_id, SALVAGED)) or {}
    whole = newest and found.requests_whole and earlier.get("requests", "whole") == "whole"
    tx.put_fact(session_fact(record.session_id, SALVAGED), {"file": name, "requests": "whole" if whole else "lost"})
    for run in found.runs:
        if run.phase not in _ENDED:
            run = msgspec.structs.replace(run, phase="unknown", finished_ms=now_ms)
        tx.put_run(run)
    for request in found.requests:
        tx.put_request(request)
    for call in found.calls:
        if call.phase not in _FINAL_CALLS:
            call = msgspec.structs.replace(call, phase="interrupted")
        tx.put_tool_call(call)
    put_missing(tx, [as_left(each, now_ms) for each in found.records])
    for image in found.images:
        tx.put_image(record.session_id, image.run_id, image.position, media_type=image.media_type, data=image.data)
    for position, item in enumerate(found.items):
        state = "unknown" if item.state == "open" else item.state
        tx.add_item(msgspec.structs.replace(item, position=position, state=state))
    tx.add_item(
        ItemRecord(
            item_id=f"{record.session_id}.{name}",
            session_id=record.session_id,
            run_id=None,
            position=len(found.items),
            kind="notice",
            state="complete",
            text=SALVAGED_NOTICE,
            created_ms=now_ms,
            code=SALVAGED_CODE,
            detail=name,
        )
    )
    return True


# ---- reading ----


def _read(damaged: Path) -> tuple[list[_Session], AgentRows, int]:
    """What the damaged file holds, and how many places of it could not be read."""
    with tempfile.TemporaryDirectory(prefix=".salvage-", dir=damaged.parent) as folder:
        copy = Path(folder) / "copy.sqlite3"
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(damaged.with_name(damaged.name + suffix), copy.with_name(copy.name + suffix))
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as db:
            reading = _Reading(db)
            if not reading.attempt(reading.prepare):
                return [], AgentRows((), None, choices_whole=False), 1
            of_agent = reading.agent()
            return reading.sessions(), of_agent, reading.unreadable


class _Reading:
    """A connection to the copy, and what it could not give."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._tx = SqliteAgentTx(db)
        self.unreadable = 0
        self._of_session: dict[str, list[Row]] = {}

    def prepare(self) -> bool:
        """Bring the copy to the tables of today; indexes are made anew where they can be."""
        for setting in ("locking_mode = EXCLUSIVE", "trusted_schema = OFF", "synchronous = OFF"):
            self._db.execute(f"PRAGMA {setting}")
        application_id, version = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if application_id != AGENT_FORMAT.application_id or version > len(AGENT_FORMAT.migrations):
            return False
        for script in AGENT_FORMAT.migrations[version:]:
            self._db.executescript(script)
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("REINDEX")
        return True

    def attempt(self, fn: Callable[[], T]) -> T | None:
        """What `fn` gives; None, counted, when that place is damaged or holds what is no record."""
        try:
            return fn()
        except (sqlite3.Error, ValueError, TypeError, LookupError, msgspec.MsgspecError):
            self.unreadable += 1
            return None

    def agent(self) -> AgentRows:
        """What is no session's."""
        kinds = [kind for kind, table in TABLES.items() if not table.of_session and kind is not PluginChoiceRow]
        records = [record for kind in kinds for record in self._records(kind)]
        file_uuid = self.attempt(lambda: self._tx.fact(FILE_UUID))
        before = self.unreadable
        choices = self._records(PluginChoiceRow)
        return AgentRows([*records, *choices], file_uuid, choices_whole=self.unreadable == before)

    def sessions(self) -> list[_Session]:
        for kind, table in TABLES.items():
            for record in self._records(kind) if table.of_session else ():
                self._of_session.setdefault(record.session_id, []).append(record)  # type: ignore[attr-defined]
        return [found for number, _ in self._rows("session", "sessions") if (found := self._session(number))]

    def _session(self, number: int) -> _Session | None:
        def find() -> SessionRecord | None:
            row = self._db.execute("SELECT session_id FROM sessions WHERE session = ?", (number,)).fetchone()
            return None if row is None else self._tx.session(row[0])

        record = self.attempt(find)
        if record is None:
            return None
        session_id = record.session_id
        before = self.unreadable
        run_ids = [name for _, name in self._rows("run", "runs", "run_id", number)]
        runs = [run for name in run_ids if (run := self.attempt(lambda name=name: self._tx.run(name)))]  # type: ignore[misc]
        runs_whole = self.unreadable == before and len(runs) == len(run_ids)
        item_ids = [name for _, name in self._rows("item", "items", "item_id", number)]
        call_ids = [name for _, name in self._rows("entry", "outbox", "run_id || char(10) || call_id", number)]
        items = [item for name in item_ids if (item := self.attempt(lambda name=name: self._tx.item(name)))]  # type: ignore[misc]
        requests = self.attempt(lambda: self._requests(number, session_id))
        known = {request.request_id: request for request in requests or ()}
        for run in runs:
            identity = run.input.get("request")
            if identity is not None and identity["id"] not in known:
                known[identity["id"]] = RequestRecord(
                    session_id=session_id, request_id=identity["id"], digest=identity["digest"], run_id=run.run_id
                )
        # A run of an earlier version does not say whether it had an id.
        told_by_runs = runs_whole and all("request" in run.input for run in runs)
        return _Session(
            record,
            list(known.values()),
            requests is not None or told_by_runs,
            runs,
            sorted(items, key=lambda item: item.position),
            [
                call
                for name in call_ids
                if (call := self.attempt(lambda name=name: self._tx.tool_call(*name.split("\n", 1))))  # type: ignore[misc]
            ],
            [
                image
                for use, _ in self._rows("use", "image_uses", session=number)
                if (image := self.attempt(lambda use=use: self._image(use)))  # type: ignore[misc]
            ],
            self.attempt(lambda: self._facts(session_id)) or {},
            self._of_session.get(session_id, []),
        )

    def _records(self, kind: type[RowT]) -> list[RowT]:
        if TABLES[kind].by_key:
            return self._keyed(kind)
        places = [place for place, _ in self._rows("rowid", TABLES[kind].name)]
        found = (self.attempt(lambda place=place: self._tx.row_at(kind, place)) for place in places)  # type: ignore[misc]
        return [record for record in found if record is not None]

    def _keyed(self, kind: type[RowT]) -> list[RowT]:
        """Records of a table that has no places, from its beginning, and from its end where that breaks off."""
        fields = TABLES[kind].key
        found: dict[tuple[Any, ...], RowT] = {}
        for backwards in (False, True):
            at: tuple[Any, ...] = ()
            before = self.unreadable
            while True:
                record = self.attempt(
                    lambda at=at, backwards=backwards: self._tx.read_row(kind, at, backwards=backwards)  # type: ignore[misc]
                )
                at = () if record is None else tuple(getattr(record, field) for field in fields)
                if record is None or at in found:
                    break
                found[at] = record
            if self.unreadable == before:
                break
        return [found[key] for key in sorted(found)]

    def _image(self, use: int) -> _Image | None:
        row = self._db.execute(
            "SELECT run_id, position, media_type, digest, data FROM image_uses JOIN images USING (image) WHERE use = ?",
            (use,),
        ).fetchone()
        if row is not None and hashlib.sha256(row[4]).hexdigest() != row[3]:
            raise ValueError("the bytes of a picture are not what they were")
        return row and _Image(row[0], row[1], row[2], row[4])

    def _facts(self, session_id: str) -> dict[str, Any]:
        own = session_fact(session_id, "")
        rows = self._db.execute("SELECT key, value FROM facts WHERE substr(key, 1, ?) = ?", (len(own), own))
        return {key: from_json(value) for key, value in rows}

    def _requests(self, number: int, session_id: str) -> list[RequestRecord]:
        rows = self._db.execute("SELECT request_id, digest, run_id FROM requests WHERE session = ?", (number,))
        return [
            RequestRecord(session_id=session_id, request_id=request_id, digest=digest, run_id=run_id)
            for request_id, digest, run_id in rows
        ]

    def _rows(self, key: str, table: str, value: str = "1", session: int | None = None) -> Iterator[tuple[int, Any]]:
        """Keys and a value of the rows of a table, of one session if given, around pages that cannot be read."""
        # Names are this module's own; nothing of the file gets into a statement.
        own = "" if session is None else f" AND +session = {int(session)}"
        next_row = f"SELECT {key}, {value} FROM {table} NOT INDEXED WHERE {key} >= ?{own} ORDER BY {key} LIMIT 1"  # noqa: S608
        at, skip = 0, 1
        while at < _FAR:
            try:
                row = self._db.execute(next_row, (at,)).fetchone()
            except sqlite3.Error:
                self.unreadable += skip == 1
                at += skip
                # Near by each row is tried; a larger hole is crossed in growing steps.
                skip = skip if skip == 1 and at % _NEAR else skip * 2
                continue
            if row is None:
                return
            skip = 1
            at = row[0] + 1
            yield row
