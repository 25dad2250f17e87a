import asyncio
import gc
import hashlib
import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from runtime_host.errors import (
    StorageDamagedError,
    StorageError,
    StorageFailedError,
    StorageForeignError,
    StorageLockedError,
    StorageUnsupportedError,
)
from runtime_host.storage import sqlite_file
from runtime_host.storage.sqlite_file import BATCH_MAX, SqliteFile, SqliteTx, StoreFormat

ONE = "CREATE TABLE notes (note INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;\n"
TWO = """
ALTER TABLE notes ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
UPDATE notes SET size = length(text);
"""
V1 = StoreFormat(application_id=0x54455354, migrations=(ONE,))
V2 = StoreFormat(application_id=0x54455354, migrations=(ONE, TWO))

CANARY = "canary-" + "0123456789abcdef" * 8


class NotesTx(SqliteTx):
    def add(self, text: str) -> None:
        self.db.execute("INSERT INTO notes (text) VALUES (?)", (text,))

    def remove(self, text: str) -> None:
        self.db.execute("DELETE FROM notes WHERE text = ?", (text,))
        self.erase()

    def all(self) -> list[str]:
        return [text for (text,) in self.db.execute("SELECT text FROM notes ORDER BY note")]


Notes = SqliteFile[NotesTx]


async def open_notes(path: Path, form: StoreFormat = V1, profile: str = "p", agent: str = "a") -> Notes:
    return await SqliteFile.open(path, form, NotesTx, profile=profile, agent=agent)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "notes.sqlite3"


@pytest.fixture
async def notes(path: Path) -> AsyncIterator[Notes]:
    store = await open_notes(path)
    yield store
    await store.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def content_of(path: Path | str) -> bytes:
    return Path(path).read_bytes()


def put_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


async def written(path: Path, *texts: str, form: StoreFormat = V1) -> None:
    store = await open_notes(path, form)
    for text in texts:
        await store.transact(lambda tx, text=text: tx.add(text))  # type: ignore[misc]
    await store.close()


def digests(path: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.parent.iterdir()
        if not file.name.endswith(".lock")
    }


async def hold(store: Notes) -> tuple[asyncio.Task[None], threading.Event]:
    """Keep the storage thread inside a transaction until the event is set."""
    loop, started, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def wait(tx: NotesTx) -> None:
        loop.call_soon_threadsafe(started.set)
        assert go.wait(20)

    task = asyncio.ensure_future(store.transact(wait))
    await started.wait()
    return task, go


# ---- settings and modes ----


async def test_the_settings_are_those_of_a_durable_private_file(notes: Notes) -> None:
    def look(tx: NotesTx) -> dict[str, Any]:
        names = ["journal_mode", "synchronous", "locking_mode", "foreign_keys", "secure_delete", "temp_store"]
        names += ["fullfsync", "checkpoint_fullfsync", "trusted_schema", "application_id", "user_version"]
        return {name: tx.db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}

    assert await notes.read(look) == {
        "journal_mode": "wal",
        "synchronous": 2,
        "locking_mode": "exclusive",
        "foreign_keys": 1,
        "secure_delete": 1,
        "temp_store": 2,
        "fullfsync": 1,
        "checkpoint_fullfsync": 1,
        "trusted_schema": 0,
        "application_id": V1.application_id,
        "user_version": 1,
    }


async def test_every_file_is_private_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        store = await open_notes(path)
        await store.transact(lambda tx: tx.add("x"))
        open_modes = {file.name: mode(file) for file in path.parent.iterdir()}
        await store.close()
        store = await open_notes(path, V2)
    finally:
        os.umask(before)
    migrated = {file.name for file in path.parent.iterdir()}
    await store.close()
    # No -shm: the index of the log is in memory, where a full disk cannot take the process down.
    assert open_modes == dict.fromkeys((path.name, f"{path.name}-wal", f"{path.name}.lock"), 0o600)
    assert mode(path.with_name(path.name + ".version-1")) == 0o600
    assert mode(path.parent) == 0o700
    # What the copy was written into is gone.
    assert migrated == {*open_modes, f"{path.name}.version-1"}


async def test_a_file_others_could_read_is_tightened(path: Path) -> None:
    await written(path, "x")
    os.chmod(path, 0o644)
    store = await open_notes(path)
    assert mode(path) == 0o600
    await store.close()


async def test_any_name_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a?b=c&d#e %41" / "nötes?mode=memory.sqlite3"
    await written(path, "kept")
    assert path.exists()
    store = await open_notes(path)
    assert await store.read(NotesTx.all) == ["kept"]
    await store.close()


async def test_an_idle_store_is_never_woken(notes: Notes) -> None:
    await notes.read(NotesTx.all)
    (thread,) = (thread for thread in threading.enumerate() if thread.name == f"storage {notes.path.name}")

    def switches() -> str:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text("ascii")
        return next(line for line in status.splitlines() if line.startswith("voluntary"))

    await asyncio.sleep(0.05)
    before = switches()
    await asyncio.sleep(0.5)
    assert switches() == before


# ---- the claim ----


async def test_a_second_opening_is_refused_until_the_first_is_closed(path: Path, tmp_path: Path) -> None:
    store = await open_notes(path)
    (tmp_path / "link").symlink_to(path)
    for way in (path, tmp_path / "link"):
        with pytest.raises(StorageLockedError, match=str(os.getpid())):
            await open_notes(way)
    await store.transact(lambda tx: tx.add("still mine"))
    await store.close()
    store = await open_notes(tmp_path / "link")
    assert await store.read(NotesTx.all) == ["still mine"]
    await store.close()


async def test_each_claim_has_the_next_generation(path: Path) -> None:
    for generation in (1, 2, 3):
        store = await open_notes(path)
        assert store.generation == generation
        await store.close()


async def test_a_commit_under_another_generation_is_refused(notes: Notes) -> None:
    def usurp(tx: NotesTx) -> None:
        tx.add("lost")
        tx.db.execute("UPDATE store SET generation = generation + 1")

    for fn in (usurp, NotesTx.all):
        with pytest.raises(StorageFailedError) as failure:
            await notes.transact(fn)
        assert failure.value.error_code == "STORAGE_CLAIM_LOST"


@pytest.mark.parametrize("gone", ["notes.sqlite3", "notes.sqlite3.lock"])
async def test_nothing_is_acknowledged_once_the_file_or_its_lock_was_moved(notes: Notes, gone: str, path: Path) -> None:
    await notes.transact(lambda tx: tx.add("kept"))
    moved = path.with_name("moved")
    path.with_name(gone).rename(moved)
    for _ in range(2):
        with pytest.raises(StorageFailedError):
            await notes.transact(lambda tx: tx.add("lost"))
    moved.rename(path.with_name(gone))
    await notes.close()
    again = await open_notes(path)
    assert await again.read(NotesTx.all) == ["kept"]
    await again.close()


async def test_an_opening_that_nobody_waits_for_gives_the_claim_up(path: Path) -> None:
    opening = asyncio.ensure_future(open_notes(path))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    for _ in range(500):
        try:
            store = await open_notes(path)
        except StorageLockedError:
            await asyncio.sleep(0.01)
        else:
            await store.close()
            return
    pytest.fail("the claim is still held")


# ---- files that are not ours ----


@pytest.mark.parametrize("identity", [("other", "a"), ("p", "other")])
async def test_a_file_of_another_profile_or_agent_is_refused_and_left(path: Path, identity: tuple[str, str]) -> None:
    await written(path, "x")
    before = digests(path)
    with pytest.raises(StorageForeignError):
        await open_notes(path, profile=identity[0], agent=identity[1])
    assert digests(path) == before
    await written(path, "y")


async def test_a_database_of_another_program_is_refused_and_left(path: Path) -> None:
    path.parent.mkdir()
    for statement in ("CREATE TABLE bookmarks (url)", "PRAGMA application_id = 7"):
        db = sqlite3.connect(path)
        db.execute(statement)
        db.commit()
        db.close()
        before = digests(path)
        with pytest.raises(StorageForeignError):
            await open_notes(path)
        assert digests(path) == before


async def test_a_file_of_a_newer_version_is_refused_and_left(path: Path) -> None:
    await written(path, "x", form=V2)
    before = digests(path)
    with pytest.raises(StorageUnsupportedError) as refusal:
        await open_notes(path)
    assert digests(path) == before
    assert refusal.value.details["version"] == 2


# ---- damage ----


def crash_copy(path: Path, to: Path) -> Path:
    """The files of an open store as a crash now would leave them."""
    to.mkdir()
    for suffix in ("", "-wal"):
        (to / (path.name + suffix)).write_bytes(path.with_name(path.name + suffix).read_bytes())
    return to / path.name


def contents(path: Path) -> dict[str, bytes]:
    files = {suffix: Path(f"{path}{suffix}") for suffix in ("", "-wal")}
    return {suffix: file.read_bytes() for suffix, file in files.items() if file.exists() and file.stat().st_size}


async def check_set_aside(path: Path, store: Notes | None = None) -> None:
    """Using the damaged file raises, names where it went, and changes none of its bytes."""
    damaged = contents(path)
    use = open_notes(path) if store is None else store.read(NotesTx.all)
    with pytest.raises(StorageDamagedError) as failure:
        await use
    aside = failure.value.details["set_aside"]
    assert aside in failure.value.message
    assert contents(Path(aside)) == damaged
    if store is not None:
        await store.close()
    again = await open_notes(path)
    assert await again.read(NotesTx.all) == []
    await again.close()
    assert contents(Path(aside)) == damaged


NO_DATABASES = [b"no database at all, but long enough " * 50, b"SQLite format 3\0" + b"\xff" * 8192]


@pytest.mark.parametrize("content", NO_DATABASES)
async def test_a_file_that_is_no_database_is_set_aside(path: Path, content: bytes) -> None:
    put_file(path, content)
    await check_set_aside(path)


async def test_a_file_cut_short_is_set_aside(path: Path) -> None:
    await written(path, *(f"{number} {'x' * 4000}" for number in range(20)))
    os.truncate(path, 8192)
    await check_set_aside(path)


async def test_an_emptied_file_with_a_log_is_set_aside(path: Path, tmp_path: Path) -> None:
    store = await open_notes(path)
    await store.transact(lambda tx: tx.add("only in the log"))
    left = crash_copy(path, tmp_path / "left")
    await store.close()
    os.truncate(left, 0)
    await check_set_aside(left)


async def test_damage_met_later_sets_the_file_aside_too(path: Path) -> None:
    await written(path, *(f"{number} {'x' * 3000}" for number in range(30)))
    content = content_of(path)
    put_file(path, content[: 4096 * 8] + b"\xa5" * (len(content) - 4096 * 8))
    await check_set_aside(path, await open_notes(path))


async def test_two_damaged_files_do_not_overwrite_each_other(path: Path) -> None:
    places = set()
    for number in range(3):
        put_file(path, f"damaged {number} ".encode() * 200)
        with pytest.raises(StorageDamagedError) as failure:
            await open_notes(path)
        places.add(failure.value.details["set_aside"])
    assert {content[:9] for content in map(content_of, places)} == {b"damaged 0", b"damaged 1", b"damaged 2"}


# ---- migrations ----


async def test_an_older_file_is_copied_and_then_migrated(path: Path) -> None:
    await written(path, "old", CANARY)
    store = await open_notes(path, V2)
    sizes = await store.read(lambda tx: tx.db.execute("SELECT text, size FROM notes ORDER BY note").fetchall())
    assert sizes == [("old", 3), (CANARY, len(CANARY))]
    copy = path.with_name(path.name + ".version-1")
    db = sqlite3.connect(f"file:{copy}?immutable=1", uri=True)
    assert db.execute("SELECT * FROM notes ORDER BY note").fetchall() == [(1, "old"), (2, CANARY)]
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    db.close()
    # What the person deletes is in no copy either.
    await store.transact(lambda tx: tx.remove(CANARY))
    assert {file.name for file in path.parent.iterdir() if CANARY.encode() in file.read_bytes()} == set()
    assert not copy.exists()
    await store.close()


async def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    await written(path, "same", "size")
    broken = StoreFormat(V1.application_id, (ONE, TWO, "UPDATE notes SET text = 'one';\n"))
    with pytest.raises(StorageFailedError):
        await open_notes(path, broken)
    store = await open_notes(path)
    assert await store.read(NotesTx.all) == ["same", "size"]
    columns = await store.read(lambda tx: tx.db.execute("SELECT * FROM notes").description)
    assert [column[0] for column in columns] == ["note", "text"]
    await store.close()


async def test_a_file_that_is_made_now_needs_no_copy(path: Path) -> None:
    await written(path, "x", form=V2)
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}


# ---- commits ----


async def test_transactions_that_wait_together_share_one_commit(notes: Notes) -> None:
    statements: list[str] = []
    await notes.read(lambda tx: tx.db.set_trace_callback(statements.append))
    first, go = await hold(notes)
    tasks = [asyncio.ensure_future(notes.transact(lambda tx, n=n: tx.add(str(n)))) for n in range(100)]  # type: ignore[misc]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, *tasks)
    await notes.read(lambda tx: tx.db.set_trace_callback(None))
    assert statements.count("COMMIT") == 2
    assert await notes.read(NotesTx.all) == [str(n) for n in range(100)]


async def test_a_long_queue_is_committed_in_bounded_parts(notes: Notes) -> None:
    statements: list[str] = []
    await notes.read(lambda tx: tx.db.set_trace_callback(statements.append))
    first, go = await hold(notes)
    tasks = [
        asyncio.ensure_future(notes.transact(lambda tx, n=n: tx.add(str(n))))  # type: ignore[misc]
        for n in range(BATCH_MAX + 1)
    ]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, *tasks)
    await notes.read(lambda tx: tx.db.set_trace_callback(None))
    assert statements.count("COMMIT") == 3


async def test_a_failing_transaction_in_a_shared_commit_fails_alone(notes: Notes) -> None:
    first, go = await hold(notes)

    def fails(tx: NotesTx) -> None:
        tx.add("undone")
        raise KeyError("mine")

    tasks = [
        asyncio.ensure_future(notes.transact(fn))
        for fn in (lambda tx: tx.add("a"), fails, lambda tx: tx.add("a"), lambda tx: tx.add("b"))
    ]
    await asyncio.sleep(0)
    go.set()
    await first
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[0] is None
    assert isinstance(results[1], KeyError)
    assert isinstance(results[2], StorageError)  # the constraint of that table
    assert results[2].error_code == "STORAGE_OPERATION"
    assert results[3] is None
    assert await notes.read(NotesTx.all) == ["a", "b"]


async def test_a_read_sees_what_was_asked_for_before_it_once_that_is_durable(notes: Notes) -> None:
    statements: list[str] = []
    await notes.read(lambda tx: tx.db.set_trace_callback(statements.append))
    first, go = await hold(notes)
    write = asyncio.ensure_future(notes.transact(lambda tx: tx.add("x")))
    read = asyncio.ensure_future(notes.read(NotesTx.all))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, write)
    assert await read == ["x"]
    await notes.read(lambda tx: tx.db.set_trace_callback(None))
    select = next(index for index, statement in enumerate(statements) if statement.startswith("SELECT text"))
    assert statements[:select].count("COMMIT") == 2


async def test_the_exception_a_future_cannot_carry_is_raised_as_another(notes: Notes) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await notes.transact(lambda tx: next(iter(())))


async def test_a_caller_whose_loop_has_ended_is_no_trouble(notes: Notes) -> None:
    first, go = await hold(notes)

    async def leave() -> None:
        task = asyncio.ensure_future(notes.transact(lambda tx: tx.add("x")))
        await asyncio.sleep(0)
        task.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(leave()))
    thread.start()
    thread.join()
    go.set()
    await first
    assert await notes.read(NotesTx.all) == ["x"]


# ---- a failing disk ----


async def test_a_full_file_fails_everything_after_and_loses_nothing_before(notes: Notes, path: Path) -> None:
    await notes.transact(lambda tx: tx.add("kept"))
    await notes.read(lambda tx: tx.db.execute("PRAGMA max_page_count = 1").fetchone())
    first, go = await hold(notes)
    tasks = [
        asyncio.ensure_future(notes.transact(fn))
        for fn in (lambda tx: tx.add("shares the commit"), lambda tx: tx.add("x" * 100_000))
    ]
    await asyncio.sleep(0)
    go.set()
    await first
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, StorageFailedError)
        assert result.message.startswith("The disk is full.")
        assert result.details["reason"] == "SQLITE_FULL"
    for use in (notes.transact, notes.read):
        with pytest.raises(StorageFailedError):
            await use(NotesTx.all)
    await notes.close()
    again = await open_notes(path)
    assert await again.read(NotesTx.all) == ["kept"]
    await again.close()


async def test_a_transaction_that_hides_a_failure_of_the_disk_is_not_acknowledged(notes: Notes) -> None:
    def hides(tx: NotesTx) -> None:
        try:
            tx.db.execute("ROLLBACK")  # as SQLite does by itself on some failures
        except sqlite3.Error:
            pass

    with pytest.raises(StorageFailedError):
        await notes.transact(hides)
    with pytest.raises(StorageFailedError):
        await notes.transact(lambda tx: tx.add("x"))


async def test_a_folder_that_cannot_be_made_is_a_failure_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailedError, match="cannot be opened"):
        await open_notes(tmp_path / "file" / "db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageFailedError):
        await open_notes(tmp_path / "folder")


# ---- erasure ----


async def test_deleted_text_is_in_no_file_once_it_is_acknowledged(path: Path) -> None:
    store = await open_notes(path)
    await store.transact(lambda tx: tx.add(CANARY))
    await store.transact(lambda tx: tx.add(CANARY + "x" * 20_000))
    assert any(CANARY.encode() in file.read_bytes() for file in path.parent.iterdir())
    await store.transact(lambda tx: tx.remove(CANARY))
    await store.transact(lambda tx: tx.remove(CANARY + "x" * 20_000))
    assert not [file for file in path.parent.iterdir() if CANARY.encode() in file.read_bytes()]
    await store.close()
    assert not [file for file in path.parent.iterdir() if CANARY.encode() in file.read_bytes()]


async def test_an_erasure_that_a_crash_interrupted_ends_at_the_next_opening(path: Path, tmp_path: Path) -> None:
    store = await open_notes(path)
    await store.transact(lambda tx: tx.add(CANARY))
    await store.transact(lambda tx: tx.db.execute("DELETE FROM notes"))  # not erased: as far as a crash let it go
    left = crash_copy(path, tmp_path / "left")
    await store.close()
    assert any(CANARY.encode() in file.read_bytes() for file in left.parent.iterdir())
    store = await open_notes(left)
    assert not [file for file in left.parent.iterdir() if CANARY.encode() in file.read_bytes()]
    await store.close()


def test_statements_of_a_script_are_told_apart() -> None:
    script = "CREATE TABLE a (b);\n-- why; so\nCREATE TRIGGER t AFTER INSERT ON a\nBEGIN\n  SELECT 1;\nEND;\n"
    assert len(list(sqlite_file._statements(script))) == 2


async def test_nothing_of_what_was_asked_for_is_held_once_it_is_answered(notes: Notes) -> None:
    class Text:
        """What a transaction writes."""

    text = Text()
    gone = weakref.ref(text)

    def write(tx: NotesTx, text: Text = text) -> None:
        assert text is not None

    asked = [asyncio.ensure_future(notes.transact(write)), asyncio.ensure_future(notes.read(write))]
    await asyncio.wait(asked)
    asked.clear()
    del write, text
    gc.collect()
    assert gone() is None
