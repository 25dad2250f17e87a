"""One SQLite file, owned by one thread: the engine below every store.

Owns the connection, its settings, the claim, group commit, migrations and what happens to a file that
is damaged, foreign or on a failing disk. Must not know any table but its own `store` row.

Invariants:
  * What was acknowledged was synced to disk before. Transactions that wait together share one commit,
    each in a savepoint of its own, so that one that raises undoes alone.
  * After a failed commit, sync or read nothing more is written through this object: what the
    kernel still has in memory is not what is on disk. The file has to be opened anew.
  * Only SQLite opens the database path.
  * The content of a file that is not ours, newer than us or damaged is never changed.
"""

import asyncio
import concurrent.futures
import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, Self, TypeVar
from urllib.parse import quote

from runtime_host.errors import (
    StorageDamagedError,
    StorageError,
    StorageFailedError,
    StorageForeignError,
    StorageLockedError,
    StorageUnsupportedError,
)
from runtime_host.storage.claim import CLAIM_LOST, Claim, sync_folder

T = TypeVar("T")

BATCH_MAX = 256
"""Transactions that share one commit at most, so that none waits for an endless queue behind it."""

_COPY = ".version-"

STORE_TABLE = """
CREATE TABLE store (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    profile    TEXT NOT NULL,
    agent      TEXT NOT NULL,
    generation INTEGER NOT NULL
) STRICT;
"""

SETTINGS = """
PRAGMA synchronous = FULL;
PRAGMA fullfsync = ON;              -- macOS: fsync alone leaves the data in the drive's cache
PRAGMA checkpoint_fullfsync = ON;
PRAGMA foreign_keys = ON;
PRAGMA secure_delete = ON;
PRAGMA cache_size = -512;           -- KiB; the kernel keeps the file's pages, here four times as many only cost memory
PRAGMA temp_store = MEMORY;         -- content never spills into a temporary folder
PRAGMA cell_size_check = ON;
PRAGMA trusted_schema = OFF;
"""

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# With these SQLite may have undone more than the statement, or the disk no longer says what we wrote.
_FATAL = _DAMAGED | {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_BUSY,
}


@dataclass(frozen=True)
class StoreFormat:
    """What a kind of file is. Version n of its tables is what the first n of `migrations` leave behind."""

    application_id: int
    migrations: tuple[str, ...]


class SqliteTx:
    """Base of a store's named operations: the connection, inside one transaction, on the storage thread."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.erases = False

    def erase(self) -> None:
        """What this transaction deletes is gone from the disk, not only from the tables, once it is acknowledged."""
        self.erases = True


TxT = TypeVar("TxT", bound=SqliteTx)


class _Job(NamedTuple):
    fn: Callable[[Any], Any]
    writes: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class _Answer(NamedTuple):
    """To whoever asked; what was asked is let go of before it is given."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    value: Any
    error: BaseException | None


class SqliteFile(Generic[TxT]):
    """A claimed, open file. Made by `open`; usable from any event loop of this process."""

    def __init__(
        self, path: Path, form: StoreFormat, tx: Callable[[sqlite3.Connection], TxT], profile: str, agent: str
    ) -> None:
        # One file has one lock, by whatever link it is reached.
        self._path = Path(os.path.realpath(path))
        self._form = form
        self._tx = tx
        self._identity = (profile, agent)
        self._generation = 0
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._sealed = False
        self._failure: StorageError | None = None
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        # Running futures cannot be cancelled by a caller that stops waiting for them.
        self._opened.set_running_or_notify_cancel()
        self._ended.set_running_or_notify_cancel()
        self._thread = threading.Thread(target=self._main, name=f"storage {path.name}", daemon=True)

    @classmethod
    async def open(
        cls,
        path: Path,
        form: StoreFormat,
        tx: Callable[[sqlite3.Connection], TxT],
        *,
        profile: str,
        agent: str = "",
    ) -> Self:
        """Claim and open `path`, or make it.

        Raises:
            StorageLockedError: another holder lives.
            StorageForeignError: it is another program's, profile's or agent's file.
            StorageUnsupportedError: a newer version made it, or it is on a network file system.
            StorageDamagedError: it cannot be read. It was set aside under the name in the message and
                in `details["set_aside"]`; opening again makes a new one.
            StorageFailedError: the disk refuses.
        """
        store = cls(path, form, tx, profile, agent)
        store._thread.start()
        try:
            await asyncio.wrap_future(store._opened)
        except asyncio.CancelledError:
            store._seal()
            raise
        return store

    @property
    def path(self) -> Path:
        return self._path

    @property
    def generation(self) -> int:
        """How many times this file has been claimed; each commit checks that it is still this claim's."""
        return self._generation

    async def transact(self, fn: Callable[[TxT], T]) -> T:
        """Run `fn` in a transaction on the storage thread; returns after it is durable.

        What `fn` raises undoes this transaction alone and is raised here. Once asked for it runs, also
        when the caller is cancelled meanwhile.

        Raises:
            StorageError: it was not acknowledged. After `StorageFailedError` the file has to be opened
                anew, and only that shows whether this transaction is in it.
        """
        result: T = await self._ask(fn, writes=True)
        return result

    async def read(self, fn: Callable[[TxT], T]) -> T:
        """Run `fn`, which may not write. It sees what was asked for before, and nothing that is not durable."""
        result: T = await self._ask(fn, writes=False)
        return result

    async def close(self) -> None:
        """Refuse what comes from now on, finish what was asked for before, give the claim up."""
        self._seal()
        await asyncio.wrap_future(self._ended)
        self._thread.join()

    def _seal(self) -> None:
        with self._gate:
            if not self._sealed:
                self._sealed = True
                self._queue.put(None)

    async def _ask(self, fn: Callable[[TxT], T], *, writes: bool) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._gate:
            if self._sealed:
                raise StorageError(f"“{self._path.name}” is closed.", code="STORAGE_CLOSED")
            self._queue.put(_Job(fn, writes, loop, future))
        return await future

    # ---- on the storage thread ----

    def _main(self) -> None:
        try:
            claim = Claim.take(self._path)
            try:
                db = _open(claim, self._form, self._identity)
            except BaseException:
                claim.release()
                raise
        except BaseException as error:
            self._opened.set_exception(error)
            return
        try:
            self._generation = _generation(db)
            self._opened.set_result(None)
            self._serve(db, claim)
        finally:
            with contextlib.suppress(sqlite3.Error):
                db.close()
            claim.release()
            self._ended.set_result(None)

    def _serve(self, db: sqlite3.Connection, claim: Claim) -> None:
        more = True
        while more:
            # Nothing of a batch is held while the thread waits for the next one: what was asked for may hold much.
            more = self._serve_batch(db, claim)

    def _serve_batch(self, db: sqlite3.Connection, claim: Claim) -> bool:
        batch, more = self._next_batch()
        writes = [job for job in batch if job.writes]
        reads = [job for job in batch if not job.writes]
        batch.clear()
        if writes:
            _deliver(self._guarded(db, writes, partial(self._run_writes, db, claim)))
        # After the commit they waited with: they see what was asked for before them, and only what is durable.
        if reads:
            _deliver(self._guarded(db, reads, partial(self._run_reads, db)))
        return more

    def _next_batch(self) -> tuple[list[_Job], bool]:
        """Whatever waits, at least one; False with the last. Blocks without a timeout: an idle store costs nothing."""
        batch: list[_Job] = []
        while (job := self._queue.get()) is not None:
            batch.append(job)
            if len(batch) == BATCH_MAX or self._queue.empty():
                return batch, True
        return batch, False

    def _guarded(
        self, db: sqlite3.Connection, jobs: list[_Job], run: Callable[[list[_Job]], list[_Answer]]
    ) -> list[_Answer]:
        """The answers of `run`, or the failure of this store for each job when it has failed before or does now.

        The jobs are let go of: whoever is answered may count on being alone with what it asked for.
        """
        answers: list[_Answer] | None = None
        if self._failure is None:
            try:
                answers = run(jobs)
            except Exception as error:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                self._failure = _explain(self._path, error)
                if self._failure is not error:
                    self._failure.__cause__ = error
        if self._failure is not None:
            answers = [_Answer(job.loop, job.future, None, _again(self._failure)) for job in jobs]
        jobs.clear()
        return answers or []

    def _run_writes(self, db: sqlite3.Connection, claim: Claim, jobs: list[_Job]) -> list[_Answer]:
        answers: list[_Answer] = []
        erases = False
        db.execute("BEGIN IMMEDIATE")
        if len(jobs) == 1:
            # Alone it needs no savepoint: what undoes it undoes the transaction.
            tx = self._tx(db)
            answers.append(self._attempt(jobs[0], tx))
            if answers[0].error is not None:
                db.execute("ROLLBACK")
                return answers
            erases = tx.erases
        else:
            for job in jobs:
                tx = self._tx(db)
                db.execute("SAVEPOINT job")
                answer = self._attempt(job, tx)
                if answer.error is not None:
                    db.execute("ROLLBACK TO job")
                db.execute("RELEASE job")
                erases |= tx.erases and answer.error is None
                answers.append(answer)
        claim.verify()
        if _generation(db) != self._generation:
            raise _claim_lost(self._path)
        db.execute("COMMIT")
        if erases:
            _erase(db, self._path)
        return answers

    def _run_reads(self, db: sqlite3.Connection, jobs: list[_Job]) -> list[_Answer]:
        db.execute("PRAGMA query_only = ON")
        answers = [self._attempt(job, self._tx(db)) for job in jobs]
        db.execute("PRAGMA query_only = OFF")
        return answers

    def _attempt(self, job: _Job, tx: TxT) -> _Answer:
        try:
            return _Answer(job.loop, job.future, job.fn(tx), None)
        except sqlite3.Error as error:
            code = _primary_code(error)
            if code in _FATAL and (job.writes or code != sqlite3.SQLITE_READONLY):
                raise
            refusal = StorageError(f"“{self._path.name}” refused an operation: {error}.", code="STORAGE_OPERATION")
            refusal.__cause__ = error
            return _Answer(job.loop, job.future, None, refusal)
        except StopIteration as error:  # the one exception a future cannot carry
            return _Answer(job.loop, job.future, None, RuntimeError(f"{job.fn!r} raised {error!r}"))
        except BaseException as error:
            return _Answer(job.loop, job.future, None, error)


def _deliver(answers: list[_Answer]) -> None:
    """Hand each answer to the loop that waits for it, waking every loop once."""
    if len(answers) == 1:
        with contextlib.suppress(RuntimeError):
            answers[0].loop.call_soon_threadsafe(_settle, answers)
        return
    for loop in {answer.loop for answer in answers}:
        with contextlib.suppress(RuntimeError):  # a closed loop: nobody waits there any more
            loop.call_soon_threadsafe(_settle, [answer for answer in answers if answer.loop is loop])


def _settle(answers: list[_Answer]) -> None:
    for _, future, value, error in answers:
        if future.done():  # its caller was cancelled
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


# ---- the file ----


def _open(claim: Claim, form: StoreFormat, identity: tuple[str, str]) -> sqlite3.Connection:
    path = claim.path
    if _size(path) == 0 and _size(_beside(path, "-wal")) > 0:
        raise _set_aside(path)  # SQLite takes the log of an empty file for a stale one and deletes it
    try:
        db = _connect(path, claim.lock)
    except sqlite3.Error as error:
        raise _explain(path, error) from error
    try:
        _prepare(db, claim, form, identity)
    except (sqlite3.Error, OSError) as error:
        failure = _explain(path, error)
        db.close()
        raise failure from error
    except BaseException:
        db.close()
        raise
    return db


def _connect(path: Path, lock: Path) -> sqlite3.Connection:
    """Open `path` through SQLite alone, which makes it with the mode of the lock file (0600) whatever the umask."""
    url = f"file:{quote(os.fsencode(path))}?modeof={quote(os.fsencode(lock))}"
    return sqlite3.connect(url, uri=True, isolation_level=None, timeout=0, cached_statements=256)


def _prepare(db: sqlite3.Connection, claim: Claim, form: StoreFormat, identity: tuple[str, str]) -> None:
    path = claim.path
    # Before the first access: the index of the log then lies in memory instead of a mapped file, which
    # on a full or mmap-hostile file system takes the whole process down.
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    application_id = _pragma(db, "application_id")
    version = _pragma(db, "user_version")
    fresh = not (application_id or version or db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    if not fresh:
        _check_identity(db, path, form, application_id, version, identity)
    for file in (path, _beside(path, "-wal")):
        with contextlib.suppress(FileNotFoundError):
            os.chmod(file, 0o600)
    if (mode := _pragma(db, "journal_mode = WAL")) != "wal":
        raise StorageFailedError(
            f"“{path.name}” cannot use a write-ahead log here ({mode}).", details={"path": str(path)}
        )
    for setting in _statements(SETTINGS):
        db.execute(setting)
    if version < len(form.migrations) and not fresh:
        _copy(db, _beside(path, f"{_COPY}{version}"), claim.lock)
    db.execute("BEGIN IMMEDIATE")
    if fresh:
        db.execute(f"PRAGMA application_id = {form.application_id}")
        db.execute(STORE_TABLE)
        db.execute("INSERT INTO store (one, profile, agent, generation) VALUES (1, ?, ?, 0)", identity)
    for script in form.migrations[version:]:
        for statement in _statements(script):
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {len(form.migrations)}")
    db.execute("UPDATE store SET generation = generation + 1")
    claim.bind()
    claim.verify()
    db.execute("COMMIT")
    _checkpoint(db, path)  # ends an erasure that a crash interrupted


def _check_identity(
    db: sqlite3.Connection, path: Path, form: StoreFormat, application_id: int, version: int, identity: tuple[str, str]
) -> None:
    details = {"path": str(path)}
    if application_id != form.application_id:
        raise StorageForeignError(f"“{path}” is not a file of this kind. It was left as it is.", details=details)
    if version > len(form.migrations):
        raise StorageUnsupportedError(
            f"“{path}” was written by a newer version. Update to open it; it was left as it is.",
            details=details | {"version": version, "newest_known": len(form.migrations)},
        )
    if db.execute("SELECT profile, agent FROM store").fetchone() != identity:
        raise StorageForeignError(
            f"“{path}” belongs to another profile or agent. It was left as it is.", details=details
        )


def _copy(db: sqlite3.Connection, target: Path, lock: Path) -> None:
    """Keep the file as it is before a migration. The copy goes with the first deletion after it (`_erase`)."""
    part = _beside(target, ".part")
    part.unlink(missing_ok=True)
    with contextlib.closing(_connect(part, lock)) as copy:
        db.backup(copy)
    os.replace(part, target)
    sync_folder(target.parent)


def _checkpoint(db: sqlite3.Connection, path: Path) -> None:
    """Move the log into the database and empty it."""
    busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StorageFailedError(f"The log of “{path.name}” could not be emptied.", details={"path": str(path)})


def _erase(db: sqlite3.Connection, path: Path) -> None:
    """Remove what was deleted from the log and from copies; in the database secure_delete has zeroed it."""
    _checkpoint(db, path)
    for name in os.listdir(path.parent):
        if name.startswith(f"{path.name}{_COPY}"):
            os.unlink(path.parent / name)


def _set_aside(path: Path) -> StorageError:
    """Rename a damaged file with its log, so that nothing is lost and the name is free; tells where it went."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    target = _beside(path, f".damaged-{stamp}")
    number = 1
    while target.exists() or _beside(target, "-wal").exists():
        number += 1
        target = _beside(path, f".damaged-{stamp}-{number}")
    try:
        for suffix in ("", "-wal", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(_beside(path, suffix), _beside(target, suffix))
        sync_folder(path.parent)
    except OSError as error:
        return StorageFailedError(
            f"“{path}” is damaged and could not be set aside: {error.strerror}.", details={"path": str(path)}
        )
    return StorageDamagedError(
        f"“{path.name}” is damaged. It was set aside as “{target}” and not changed; opening again starts a new one.",
        details={"path": str(path), "set_aside": str(target)},
    )


# ---- words and small facts ----


def _explain(path: Path, error: Exception) -> StorageError:
    """The error for the caller; sets a damaged file aside."""
    if isinstance(error, StorageError):
        return error
    code = _primary_code(error)
    if code in _DAMAGED:
        return _set_aside(path)
    details = {"path": str(path), "reason": getattr(error, "sqlite_errorname", type(error).__name__)}
    if code == sqlite3.SQLITE_BUSY:
        return StorageLockedError(f"“{path.name}” is in use by another program. Close that one first.", details=details)
    if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) == errno.ENOSPC:
        why = "The disk is full"
    else:
        why = f"“{path.name}” could not be read or written ({error})"
    return StorageFailedError(
        f"{why}. What was confirmed before is safe; the file has to be opened again.", details=details
    )


def _claim_lost(path: Path) -> StorageFailedError:
    return StorageFailedError(
        f"“{path.name}” was claimed by another process. Nothing more is written to it.",
        code=CLAIM_LOST,
        details={"path": str(path)},
    )


def _again(failure: StorageError) -> StorageError:
    """A new exception that says the same: one object raised in many tasks would gather all their tracebacks."""
    again = type(failure)(
        failure.message, code=failure.error_code, retryable=failure.retryable, details=dict(failure.details)
    )
    again.__cause__ = failure.__cause__
    return again


def _primary_code(error: BaseException) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _pragma(db: sqlite3.Connection, text: str) -> Any:
    return db.execute(f"PRAGMA {text}").fetchone()[0]


def _generation(db: sqlite3.Connection) -> int:
    generation: int = db.execute("SELECT generation FROM store").fetchone()[0]
    return generation


def _statements(script: str) -> Iterator[str]:
    """The statements of a script whose statements end at line ends (executescript would commit in between)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_size
    return 0
