"""What the Codex CLI wrote of a session: its record, a JSON object a line, that only grows.

Owns the reading of that file. Must not know the protocol, and never writes it. Invariants: what was read is known by a
digest, so that a record that became shorter or another one is found out; a line is read when it is whole.
"""

import glob
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_CHUNK_BYTES: Final = 1024 * 1024
_MAX_LINE_BYTES: Final = 128 * 1024 * 1024


class Mark(NamedTuple):
    """How far a record is known.

    Attributes:
        size_bytes: of the beginning that was read.
        digest: of that beginning.
        turns: that had begun in it.
        last_turn: the id of the newest of them; "" without one.
    """

    size_bytes: int = 0
    digest: str = ""
    turns: int = 0
    last_turn: str = ""


class NotTheRecordError(Exception):
    """The record is missing, shorter, or another one than it was."""


class Record:
    """The record of one thread, read from its beginning as it grows.

    Args:
        path: of the file, which need not exist yet.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._digest = hashlib.sha256()
        self._size_bytes = 0
        self._turns: list[str] = []
        self.calls: dict[str, str] = {}
        self.answered: set[str] = set()
        self.ended_turns: set[str] = set()

    @property
    def mark(self) -> Mark:
        if not self._size_bytes:
            return Mark()
        return Mark(
            self._size_bytes, self._digest.hexdigest(), len(self._turns), self._turns[-1] if self._turns else ""
        )

    def read(self, up_to_bytes: int | None = None) -> list[Mapping[str, Any]]:
        """What was written since the last time, up to a place in the file.

        Raises:
            NotTheRecordError: it became shorter, or is no record.
        """
        try:
            with open(self.path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._size_bytes:
                    raise NotTheRecordError
                file.seek(self._size_bytes)
                return self._entries(file, up_to_bytes)
        except FileNotFoundError:
            if self._size_bytes:
                raise NotTheRecordError from None
            return []
        except OSError:
            raise NotTheRecordError from None

    def _entries(self, file: Any, up_to_bytes: int | None) -> list[Mapping[str, Any]]:
        entries: list[Mapping[str, Any]] = []
        while up_to_bytes is None or self._size_bytes < up_to_bytes:
            line = file.readline(_MAX_LINE_BYTES)
            if not line.endswith(b"\n"):
                # Being written, or torn by an end: it is no part of what is known.
                break
            try:
                entry = json.loads(line)
            except ValueError:
                raise NotTheRecordError from None
            self._digest.update(line)
            self._size_bytes += len(line)
            if isinstance(entry, dict):
                self._note(entry)
                entries.append(entry)
        return entries

    def _note(self, entry: Mapping[str, Any]) -> None:
        payload = entry.get("payload")
        if not isinstance(payload, dict):
            return
        kind = payload.get("type")
        if entry.get("type") == "turn_context" and isinstance(turn := payload.get("turn_id"), str):
            if turn not in self._turns:
                self._turns.append(turn)
        elif entry.get("type") == "event_msg" and kind in ("task_complete", "turn_aborted"):
            self.ended_turns.add(str(payload.get("turn_id")))
        elif entry.get("type") == "response_item" and isinstance(call_id := payload.get("call_id"), str):
            if kind in ("function_call", "custom_tool_call"):
                self.calls[call_id] = str(payload.get("name"))
            elif kind in ("function_call_output", "custom_tool_call_output"):
                self.answered.add(call_id)

    def has_turn(self, turn: str) -> bool:
        return turn in self._turns


def checked(path: str, mark: Mark) -> Record:
    """The record at `path`, that must begin as it did at `mark`; read to its end.

    Raises:
        NotTheRecordError: it does not.
    """
    record = Record(path)
    if mark.size_bytes:
        record.read(mark.size_bytes)
        if record.mark != mark:
            raise NotTheRecordError
    record.read()
    return record


def find(codex_home: str, thread_id: str) -> str | None:
    """The file of a thread's record."""
    pattern = os.path.join(
        glob.escape(codex_home), "sessions", "*", "*", "*", f"rollout-*-{glob.escape(thread_id)}.jsonl"
    )
    return next(iter(sorted(glob.glob(pattern))), None)
