"""The storage port: one store for each (profile, agent), spoken to in transactions of named operations.

`await store.transact(fn)` runs the pure function `fn(tx)` on the store's own thread. Transactions that
wait together share one commit and are acknowledged after it; `fn` may run again, so it has no
effects besides those on `tx`. An exception from `fn` undoes that transaction alone and is raised to
its caller. Commits are admitted in the order they were asked for. `close()` seals admission at once
and drains what it had admitted.

No SQL above this line. Every record is JSON-able and holds no credential.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from runtime_host.canonical import FrozenDict
from runtime_host.storage.rows import Row

T = TypeVar("T")
RowT = TypeVar("RowT", bound=Row)

RunPhase = Literal["admitted", "dispatched", "parked", "completed", "failed", "cancelled", "incomplete", "unknown"]
OPEN_PHASES: tuple[RunPhase, ...] = ("admitted", "dispatched")
"""Phases of runs that a process drives, or has to look after at its start. A parked one waits for a person."""

ItemKind = Literal["user", "reply", "reasoning", "notice", "plan", "command", "tool", "change"]
ItemState = Literal["open", "complete", "stopped", "failed", "unknown"]


ToolCallPhase = Literal["requested", "executing", "interrupted", "acknowledged", "delivering", "delivered", "withdrawn"]
"""How far a call of a host tool is:

============  ===========================================================================================
requested     asked for, certainly not executed
executing     perhaps executed: what came of it is not known until it is acknowledged
interrupted   as executing, and its run has ended: known or not, nobody will be told
acknowledged  executed or refused, the result is kept, nobody was told it yet
delivering    perhaps told
delivered     certainly told
withdrawn     its run ended before it was told; never executed and never told from here on
============  ===========================================================================================
"""
UNRESOLVED: tuple[ToolCallPhase, ...] = ("executing", "interrupted")
ToolOutcome = Literal["succeeded", "failed", "refused"]


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session. `definition`, `options`, `driver_state` are JSON objects without credentials.

    `tools` is what it is bound to of application tools: their fingerprint and the digest of each schema.
    """

    session_id: str
    scope_digest: str
    created_ms: int
    definition: dict[str, Any]
    options: dict[str, Any]
    driver_state: dict[str, Any] | None = None
    status: Literal["open", "detached", "failed"] = "open"
    tools: dict[str, Any] | None = None


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One admitted request: its digest decides whether a repeated id is the same request."""

    session_id: str
    request_id: str
    digest: str
    run_id: str


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run. `result` is the JSON of `AgentResult` once it has ended; no event has passed `sequence_mark`."""

    run_id: str
    session_id: str
    phase: RunPhase
    created_ms: int
    input: dict[str, Any]
    sequence_mark: int = 0
    finished_ms: int | None = None
    result: dict[str, Any] | None = None


class ItemRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a session's transcript. `position` counts from 0 without holes; `text` is whole.

    `about` is a JSON object: what is known of a thing the harness did besides its text; empty for what was said.
    """

    item_id: str
    session_id: str
    run_id: str | None
    position: int
    kind: ItemKind
    state: ItemState
    text: str
    created_ms: int
    code: str = ""
    detail: str = ""
    about: dict[str, Any] = {}


class ItemHead(NamedTuple):
    """An item without most of its text: `text` is the first `preview_chars` characters of `size_chars`."""

    item_id: str
    session_id: str
    run_id: str | None
    position: int
    kind: ItemKind
    state: ItemState
    text: str
    size_chars: int
    created_ms: int
    code: str
    detail: str
    about: dict[str, Any] = FrozenDict()


class ToolCallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a host tool, by the id that the native side gave it.

    Attributes:
        arguments: JSON text as the model wrote it, masked.
        native: what the driver needs to go on with the call after a restart.
        outcome, payload, evidence: what came of it, what the native side is told, where the proof lies.
    """

    session_id: str
    run_id: str
    call_id: str
    tool: str
    arguments: str
    phase: ToolCallPhase
    created_ms: int
    native: dict[str, Any] = {}
    outcome: ToolOutcome | None = None
    payload: Any = None
    evidence: tuple[str, ...] = ()


class ImageUse(NamedTuple):
    """A picture of an input, without its bytes. `position` counts within the input."""

    run_id: str
    position: int
    digest: str
    media_type: str
    size_bytes: int


def session_fact(session_id: str, name: str) -> str:
    """Key of a fact that goes with its session."""
    return f"session/{session_id}/{name}"


CONFIGURATION: Final = "configuration"
"""Fact of a session: `revision`, what the harness was configured as when the session was opened."""
STOP_ASKED: Final = "stop-asked"
"""Fact of a session at a service: `run_id`, the run that somebody asked to stop."""
SALVAGED: Final = "salvaged"
"""Fact of a session: `file`, the damaged file it was read from; `requests`, whether all ids were: whole or lost."""


class AgentTx(Protocol):
    """Named operations inside one transaction. Later reads see earlier writes."""

    # sessions
    def put_session(self, record: SessionRecord) -> None: ...
    def session(self, session_id: str) -> SessionRecord | None: ...
    def sessions(self) -> list[SessionRecord]: ...
    def delete_session(self, session_id: str) -> None:
        """Remove the session with its requests, runs, items, images and own facts; a missing one is no error."""
        ...

    # requests
    def put_request(self, record: RequestRecord) -> None:
        """Raises `AgentRequestConflictError` when the id is taken by another digest."""
        ...

    def request(self, session_id: str, request_id: str) -> RequestRecord | None: ...
    def count_requests(self, session_id: str) -> int: ...

    # runs
    def put_run(self, record: RunRecord) -> None: ...
    def run(self, run_id: str) -> RunRecord | None: ...
    def runs(self, session_id: str) -> list[RunRecord]:
        """In order of admission."""
        ...

    def open_runs(self) -> list[RunRecord]:
        """Runs of all sessions that are admitted or dispatched."""
        ...

    # items
    def add_item(self, record: ItemRecord) -> None:
        """`record.position` must be `count_items(session_id)`."""
        ...

    def append_text(self, item_id: str, at_chars: int, text: str) -> None:
        """Checkpoint of an open item: append to its text, which now has `at_chars` characters."""
        ...

    def put_about(self, item_id: str, about: dict[str, Any]) -> None:
        """Checkpoint of an open item: what is known of it now, in place of what was."""
        ...

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
        """Close an item. With `text`, that replaces what checkpoints had appended; so does `about`."""
        ...

    def item(self, item_id: str) -> ItemRecord | None: ...
    def count_items(self, session_id: str) -> int: ...
    def items(self, session_id: str, first: int, count: int, preview_chars: int) -> list[ItemHead]: ...
    def item_text(self, item_id: str, at_chars: int, count_chars: int) -> str: ...
    def messages(self, session_id: str, before_position: int) -> list[ItemRecord]:
        """Complete or stopped `user` and `reply` items before a position, in order."""
        ...

    # images
    def put_image(self, session_id: str, run_id: str, position: int, *, media_type: str, data: bytes) -> str:
        """Keep a picture of an input, its bytes once however often they come; returns their digest (SHA-256, hex).

        It goes when the last session that uses it is deleted.
        """
        ...

    def image(self, session_id: str, digest: str) -> bytes | None:
        """The bytes of a picture that an input of this session has."""
        ...

    def images(self, session_id: str) -> list[ImageUse]:
        """All uses in a session, in the order of the inputs and of their parts."""
        ...

    # outbox
    def put_tool_call(self, record: ToolCallRecord) -> None:
        """Add a call, or take a known one further."""
        ...

    def tool_call(self, run_id: str, call_id: str) -> ToolCallRecord | None: ...
    def tool_calls(self, run_id: str) -> list[ToolCallRecord]:
        """Of a run, in the order in which they were asked for."""
        ...

    def unresolved_tool_calls(self, session_id: str) -> list[ToolCallRecord]:
        """Calls of a session that are executing or interrupted."""
        ...

    # records of the loop and its gate (`runtime_host.storage.rows`)
    def put_row(self, record: Row) -> None:
        """Add a record, or put it in the place of the one with its key.

        Raises:
            ValueError: another record has what only one may have; or the session it names is not there.
        """
        ...

    def row(self, kind: type[RowT], *key: str | int) -> RowT | None: ...
    def rows(self, kind: type[RowT], **equal: str | int | bool | None) -> list[RowT]:
        """Those whose fields are equal to these, in the order in which they were first put.

        In that of their keys, where the table says so (`Table.by_key`).
        """
        ...

    def delete_row(self, kind: type[Row], *key: str | int) -> None:
        """Remove one, its bytes from the disk as well; a missing one is no error."""
        ...

    # small facts (hints, schema of others); JSON values
    def put_fact(self, key: str, value: Any) -> None: ...
    def fact(self, key: str) -> Any: ...


class AgentStore(Protocol):
    """A store that this process owns while it is open."""

    @property
    def generation(self) -> int:
        """Number of the claim; each commit checks it."""
        ...

    async def transact(self, fn: Callable[[AgentTx], T]) -> T:
        """Run `fn` in a transaction; returns after it is durable.

        Raises:
            StorageError: not durable (disk full, failed fsync, closed, lost claim). After a failed
                fsync the store is poisoned: it must be opened anew from disk.
        """
        ...

    async def read(self, fn: Callable[[AgentTx], T]) -> T:
        """Run `fn` that writes nothing; it sees all that was acknowledged before."""
        ...

    async def close(self) -> None: ...


Items = Sequence[ItemHead]
