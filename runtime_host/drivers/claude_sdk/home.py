"""A session's own folder: who owns it, where the CLI keeps what in it, and what the CLI kept of the conversation.

Owns the files of one session. Must not know processes, messages or the SDK. Invariants: a folder has one owner at a
time, by a lock of the kernel; nothing is removed but a folder that bears this session's mark; a conversation whose
record is shorter than it was, other than it was, or longer than anybody here made it is not gone on with.

All functions that touch the disk are plain; they are called in a thread.
"""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from runtime_host.drivers.claude_sdk.profile import DRIVER_ID
from runtime_host.errors import AgentBusyError, AgentSessionRecoveryError
from runtime_host.trees import remove_entry, remove_tree

_MARK: Final = "owner.json"
_LOCK: Final = "lock"
_RUN: Final = "run.json"
_FOLDERS: Final = ("config", "home", "tmp", "cwd", "bin")
_PIECE_BYTES: Final = 1024 * 1024
_KINDS: Final = ("user", "assistant")
EMPTY_DIGEST: Final = hashlib.sha256().hexdigest()


class Checkpoint(NamedTuple):
    """How far a conversation is recorded.

    Attributes:
        messages: how many there are.
        last: the id of the last one; empty when there is none.
        digest: of the ids of all, in order.
    """

    messages: int = 0
    last: str = ""
    digest: str = EMPTY_DIGEST


NOTHING_SAID: Final = Checkpoint()


class Home:
    """The folder, held by this process from `take` to `release`.

    Attributes:
        path: of the folder.
        native_id: what the CLI calls the conversation.
    """

    def __init__(self, path: Path, native_id: str, lock: int, session_id: str) -> None:
        self.path = path
        self.native_id = native_id
        self._lock: int | None = lock
        self._session_id = session_id
        self._record: _Record | None = None

    @classmethod
    def take(cls, path: str, agent_id: str, session_id: str, *, fresh: bool = False) -> Self:
        """Make the folder or take the one there is.

        Args:
            path: of the folder.
            agent_id: whose it is.
            session_id: whose it is.
            fresh: nothing was ever sent in this session, so that what may lie there is of no worth.

        Raises:
            AgentBusyError: another process has it.
            AgentSessionRecoveryError: it is another session's, or no folder of ours.
            OSError: it cannot be made.
        """
        folder = Path(path)
        made = _make(folder)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AgentBusyError(
                    "Another process works with this session's harness. Close it there first."
                ) from None
            mark = _read_mark(folder)
            if mark is None and not made and any(name != _LOCK for name in os.listdir(folder)):
                raise _foreign(session_id)
            if mark is None:
                mark = {"driver": DRIVER_ID, "agent": agent_id, "session": session_id, "native": str(uuid.uuid4())}
                _write(folder / _MARK, json.dumps(mark))
            if not _is_mark_of(mark, agent_id, session_id):
                raise _foreign(session_id)
            if fresh and not made:
                for name in (*_FOLDERS, _RUN):
                    _remove(folder / name)
                mark = {**mark, "native": str(uuid.uuid4())}
                _write(folder / _MARK, json.dumps(mark))
            for name in _FOLDERS:
                (folder / name).mkdir(mode=0o700, exist_ok=True)
            return cls(folder, str(mark["native"]), lock, session_id)
        except BaseException:
            os.close(lock)
            raise

    def release(self) -> None:
        """Let others have the folder. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def folder(self, name: str) -> str:
        """Full path of something in it."""
        return str(self.path / name)

    def put(self, name: str, content: str, *, executable: bool = False) -> str:
        """Write a file that only its owner can read; its full path."""
        _write(self.path / name, content, 0o700 if executable else 0o600)
        return self.folder(name)

    def sweep(self) -> None:
        """Remove what the CLI leaves in its folder for passing things."""
        for entry in (self.path / "tmp").iterdir():
            _remove(entry)

    # ---- the conversation ----

    def transcript(self) -> str | None:
        """Full path of what the CLI recorded; None when there is nothing.

        Raises:
            AgentSessionRecoveryError: there is more than one.
        """
        pattern = os.path.join(glob.escape(self.folder("config")), "projects", "*", f"{self.native_id}.jsonl")
        found = glob.glob(pattern)
        if len(found) > 1:
            raise self._refused("there are two records of it")
        return found[0] if found else None

    def checkpoint(self) -> Checkpoint:
        """How far the conversation is recorded now; what was read before is not read again."""
        if self._record is None:
            path = self.transcript()
            if path is None:
                return NOTHING_SAID
            self._record = _Record(path)
        for _ in self._record.read_on():
            pass
        return self._record.at

    def drop_record(self) -> None:
        """Remove a record in which nothing was said: the CLI begins no conversation where there is one."""
        path = self.transcript()
        self._record = None
        if path is not None:
            os.unlink(path)

    def answered(self) -> frozenset[str]:
        """Ids of calls whose results are in the record, as they came from whoever executed them."""
        path = self.transcript()
        found: set[str] = set()
        for entry in () if path is None else _entries(path):
            content = _content(entry)
            for block in content if entry.get("type") == "user" else ():
                if block.get("type") == "tool_result" and block.get("is_error") is not True:
                    found.add(str(block.get("tool_use_id")))
        return frozenset(found)

    def verify(self, kept: Checkpoint) -> Checkpoint:
        """Compare the record with what was kept of it; how far it goes now.

        Raises:
            AgentSessionRecoveryError: it is shorter, another one, or longer without a run of ours having begun there.
        """
        path = self.transcript()
        record = self._record = _Record(path) if path is not None else None
        fits = kept == NOTHING_SAID
        for at in record.read_on() if record is not None else ():
            if at.messages == kept.messages and not (fits := at == kept):
                raise self._refused("it is not the one that was kept")
        now = record.at if record is not None else NOTHING_SAID
        if not fits:
            raise self._refused("a part of it is missing")
        if now.messages > kept.messages and self.begun_at() != kept.messages:
            raise self._refused("somebody else went on with it")
        return now

    def begin_run(self, run_id: str, at: Checkpoint) -> None:
        """Note where in the record a run begins, before anything is sent: what a crash leaves behind it is ours."""
        _write(self.path / _RUN, json.dumps({"run": run_id, "messages": at.messages, "last": at.last}))

    def begun_at(self) -> int | None:
        """Where the last run began; None when none did."""
        told = _read_json(self.path / _RUN)
        count = told.get("messages") if told is not None else None
        return count if isinstance(count, int) else None

    def _refused(self, why: str) -> AgentSessionRecoveryError:
        return AgentSessionRecoveryError(
            f"What the Claude CLI recorded of this conversation cannot be gone on with: {why}. Nothing was sent. "
            "What was said can still be read; go on in a new session.",
            session_id=self._session_id,
        )


def forget(path: str, agent_id: str, session_id: str) -> None:
    """Remove the folder of a session, when it is that. Idempotent.

    Raises:
        AgentBusyError: a process works with it.
    """
    folder = Path(path)
    mark = _read_mark(folder)
    if folder.is_symlink() or mark is None or not _is_mark_of(mark, agent_id, session_id):
        return
    home = Home.take(path, agent_id, session_id)
    try:
        # The mark last, so that a removal that was interrupted is taken up again.
        remove_tree(folder, last=_MARK)
    finally:
        home.release()


def _make(folder: Path) -> bool:
    """Whether it was not there before."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(f"{folder} is no folder of this person") from None
        os.chmod(folder, 0o700)
        return False
    return True


class _Record:
    """The messages of a record, read as far as it goes. `at`: how far that is."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.at = NOTHING_SAID
        self._offset = 0
        self._digest = hashlib.sha256()

    def read_on(self) -> Iterator[Checkpoint]:
        """Each further message."""
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            rest = b""
            while piece := file.read(_PIECE_BYTES):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._offset += len(line) + 1
                    entry = _parsed(line)
                    if entry is not None and entry.get("type") in _KINDS and isinstance(entry.get("uuid"), str):
                        self._digest.update(entry["uuid"].encode())
                        self.at = Checkpoint(self.at.messages + 1, entry["uuid"], self._digest.hexdigest())
                        yield self.at


def _entries(path: str) -> Iterator[dict[str, Any]]:
    """The lines that are whole."""
    rest = b""
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            yield from filter(None, map(_parsed, lines))


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _content(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _write(path: Path, content: str, mode: int = 0o600) -> None:
    """Whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    with open(
        fresh, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, mode)
    ) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(fresh, mode)
    os.replace(fresh, path)


def _read_mark(folder: Path) -> dict[str, Any] | None:
    return _read_json(folder / _MARK)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        return _parsed(path.read_bytes())
    except OSError:
        return None


def _is_mark_of(mark: Mapping[str, Any], agent_id: str, session_id: str) -> bool:
    told = (mark.get("driver"), mark.get("agent"), mark.get("session"))
    return told == (DRIVER_ID, agent_id, session_id) and _is_uuid(mark.get("native"))


def _is_uuid(value: Any) -> bool:
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False


def _foreign(session_id: str) -> AgentSessionRecoveryError:
    return AgentSessionRecoveryError(
        "The folder of this session's harness belongs to something else. Nothing was sent.", session_id=session_id
    )


def _remove(path: Path) -> None:
    # What stays is left for the next time, or for `forget`.
    with contextlib.suppress(OSError):
        remove_entry(path)
