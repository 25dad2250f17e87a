"""Records of the loop and its gate, and how they lie in tables: mounts, credentials, operations, approvals, jobs.

Owns their fields and keys. Must not know SQL engines, tools or models. Invariants: a record holds no plaintext of a
credential; whatever belongs to a session names it and goes with it. A transaction reads and writes them by `put_row`,
`row`, `rows` and `delete_row`; it is alone while it runs, so what it read before it wrote still holds.
"""

import types
import typing
from typing import Any, Final, Literal, NamedTuple

import msgspec

OperationStatus = Literal["pending", "running", "succeeded", "failed", "rejected", "cancelled", "unknown"]
ApprovalState = Literal["pending", "approved", "denied", "expired"]
InboxKind = Literal["steer", "follow_up", "decision"]
InboxState = Literal["waiting", "taken", "removed"]
JobState = Literal["open", "answered", "cancelled", "unreachable"]

ScriptState = Literal["running", "paused", "completed", "failed", "interrupted"]
BackgroundState = Literal["running", "stopping", "succeeded", "failed", "cancelled", "unknown"]
ReminderState = Literal["waiting", "told", "cancelled", "unknown"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


class MountRow(Row, frozen=True, kw_only=True):
    """What an agent may use, under an alias: the unit of authority.

    Attributes:
        installation_id: fresh on every add, so that what is late for an earlier one of this alias is told apart.
        connection_id: under which the plugin keeps its state.
        tool_version: the version of the plugin that was mounted; another one is refused until it is taken over.
        secret_ref: `agent:<name>`, `operator:<name>`, `env:<NAME>` or None.
        policy: see `runtime_host.loop.rules`.
        tool_snapshot: the tools that a remote side told, admitted; None where the plugin's own are meant.
        closed: whether it was put away; its row stays.
    """

    alias: str
    installation_id: str
    connection_id: str
    plugin: str
    tool_version: str
    public_config: dict[str, Any] = {}
    secret_ref: str | None = None
    policy: dict[str, Any] = {}
    tool_snapshot: dict[str, Any] | None = None
    closed: bool = False
    created_ms: int = 0
    updated_ms: int = 0
    last_used_ms: int | None = None


class PluginChoiceRow(Row, frozen=True, kw_only=True):
    """A plugin that this agent switched on or off; without a row it is as the host has it."""

    plugin: str
    state: Literal["on", "off"]
    updated_ms: int


class ConnectionRow(Row, frozen=True, kw_only=True):
    """State that a plugin keeps of a mount: a session at the other side, what it agreed to. No credential."""

    alias: str
    state: dict[str, Any] = {}
    expires_ms: int | None = None
    updated_ms: int = 0


class PluginVersionRow(Row, frozen=True, kw_only=True):
    """Which version of its own tables a plugin has written for a mount."""

    alias: str
    plugin: str
    version: int


class PluginValueRow(Row, frozen=True, kw_only=True):
    """A value that a plugin keeps for a mount."""

    alias: str
    plugin: str
    store: str
    key: str
    value: Any = None
    index: str | None = None
    updated_ms: int = 0


class SecretRow(Row, frozen=True, kw_only=True):
    """A sealed credential. Nothing here is derived from its value: no suffix, no hash.

    Attributes:
        key_id: which key it is sealed under.
        account: what the person calls it.
        verified: what the last check came to: `{state, at_ms, detail}`; None when it was never checked.
    """

    name: str
    ciphertext: bytes
    iv: bytes
    key_id: str
    account: str = ""
    verified: dict[str, Any] | None = None
    created_ms: int = 0
    updated_ms: int = 0
    last_used_ms: int | None = None


class OperationRow(Row, frozen=True, kw_only=True):
    """One attempt at a tool of a mount.

    Attributes:
        key: under which a repeated write is the same; "" when none was given.
        arguments: as they were asked for, masked.
        result: what the model is told, once there is one.
        identity: as whom it acted: the account of the mount.
    """

    operation_id: str
    session_id: str
    run_id: str
    call_id: str
    mount_alias: str
    installation_id: str
    tool: str
    tool_version: str
    side_effects: Literal["read", "write"]
    replay: Literal["safe", "never"]
    status: OperationStatus
    key: str = ""
    args_hash: str = ""
    arguments: dict[str, Any] = {}
    result_ref: str | None = None
    result: Any = None
    error_code: str = ""
    identity: str = ""
    credential_ref_kind: str = "none"
    created_ms: int = 0
    started_ms: int | None = None
    updated_ms: int = 0


class ApprovalRow(Row, frozen=True, kw_only=True):
    """A call that waits for a person's decision, or had one.

    Attributes:
        request: `{tool, args, held_by}`, verbatim: with approval exactly this is executed.
        request_hash: of the request and of all that it depends on; a decision has to name it.
        depends_on: mount, version and credential as they were when it was held.
        parked: whether the run waits for it; otherwise the harness was told to expect a message.
    """

    operation_id: str
    session_id: str
    run_id: str
    mount_alias: str
    tool: str
    request: dict[str, Any]
    request_hash: str
    depends_on: dict[str, Any]
    held_by: Literal["policy", "agent"]
    state: ApprovalState = "pending"
    parked: bool = True
    approver: str = ""
    note: str = ""
    created_ms: int = 0
    expires_ms: int | None = None
    decided_ms: int | None = None


class InboxRow(Row, frozen=True, kw_only=True):
    """Something said to a session that is busy.

    Attributes:
        rank: waiting ones are taken in this order.
        extra: what goes with the words (model, reasoning, pictures by digest).
    """

    inbox_id: str
    session_id: str
    kind: InboxKind
    text: str
    dedup_key: str
    state: InboxState = "waiting"
    rank: float = 0.0
    extra: dict[str, Any] = {}
    run_id: str = ""
    created_ms: int = 0
    taken_ms: int | None = None


class EntryRow(Row, frozen=True, kw_only=True):
    """What the loop notes of a session besides its transcript, append-only."""

    entry_id: str
    session_id: str
    run_id: str
    type: str
    body: dict[str, Any] = {}
    created_ms: int = 0
    parent_id: str | None = None
    seq: int = 0


class SessionValueRow(Row, frozen=True, kw_only=True):
    """A value that a session keeps under a name. `seq`: of the writes of its session, the last one of it."""

    session_id: str
    namespace: str
    key: str
    seq: int
    body: Any = None


class SessionListRow(Row, frozen=True, kw_only=True):
    """An element of a list that a session keeps, in the order of the writes."""

    session_id: str
    namespace: str
    key: str
    seq: int
    body: Any = None


class ScriptRunRow(Row, frozen=True, kw_only=True):
    """A script that a model wrote, and where it stands.

    Attributes:
        snapshot: the interpreter as it was paused, sealed; None while nothing of it is kept.
        iv, key_id: how it is sealed.
        waiting: what a paused one asked for.
    """

    session_id: str
    script_id: str
    call_id: str
    source: str
    state: ScriptState
    snapshot: bytes | None = None
    iv: bytes | None = None
    key_id: str = ""
    waiting: dict[str, Any] | None = None
    outputs: dict[str, Any] = {}
    host_calls: int = 0
    expires_ms: int | None = None
    created_ms: int = 0


class ModelBindingRow(Row, frozen=True, kw_only=True):
    """Which model an agent is bound to, and what is known of it. `secret_ref`: never a key."""

    binding_id: str
    provider: str
    model: str
    base_url: str = ""
    secret_ref: str | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    updated_ms: int = 0


class BackgroundJobRow(Row, frozen=True, kw_only=True):
    """Work that goes on at another side after its call was answered. `handle`: by which it is asked about."""

    session_id: str
    job_id: str
    mount_alias: str
    tool: str
    handle: dict[str, Any] = {}
    state: BackgroundState = "running"
    polls: int = 0
    next_poll_ms: int | None = None
    created_ms: int = 0
    finished_ms: int | None = None
    outcome: dict[str, Any] | None = None


class ReminderRow(Row, frozen=True, kw_only=True):
    """Something that a session is to be told later. `request_id`: asked for twice it is the same."""

    session_id: str
    reminder_id: str
    title: str
    due_ms: int
    request_id: str
    notes: str = ""
    state: ReminderState = "waiting"
    created_ms: int = 0


class HoldRow(Row, frozen=True, kw_only=True):
    """Something at another side that a mount holds until it is released."""

    alias: str
    live_id: str
    name: str
    started_ms: int
    last_used_ms: int
    postponed_until_ms: int | None = None
    warned_for_ms: int | None = None


class QuotaRow(Row, frozen=True, kw_only=True):
    """How much of a resource may be used within a time, and how much was."""

    resource: str
    limit_value: float
    window_ms: int
    used: float = 0.0
    window_start_ms: int = 0


class AgentStateRow(Row, frozen=True, kw_only=True):
    """A document that an agent keeps: here, or as an artifact where it is long."""

    key: str
    value: str | None = None
    ref: str | None = None
    bytes: int = 0
    updated_ms: int = 0


class CounterRow(Row, frozen=True, kw_only=True):
    """A number that only grows. One that is named as a fact of a session goes with it."""

    name: str
    value: int


class SeedNoticeRow(Row, frozen=True, kw_only=True):
    """What an agent is to be told of the mounts it was begun with."""

    alias: str
    since: str
    state: Literal["waiting", "delivered"] = "waiting"
    delivered_ms: int | None = None


class UsageHourRow(Row, frozen=True, kw_only=True):
    """What the ledger holds of an hour (`2026-12-01T04`, UTC), in sum."""

    hour: str
    resource: str
    key: str
    unit: str
    quantity: float


class UsageDayRow(Row, frozen=True, kw_only=True):
    """What the ledger holds of a day (`2026-12-01`, UTC) whose hours are not kept any more, in sum."""

    day: str
    resource: str
    key: str
    unit: str
    quantity: float


class ModelJobRow(Row, frozen=True, kw_only=True):
    """One request to a model, written before it is sent.

    Attributes:
        number: of the requests of its run, from 1.
        request: `{model, digest, messages, …}`: to know that it is the same; the words are the transcript's.
        answer: `{reason, usage, …}` once it is there; the words are the transcript's.
        taker: who sends it, a new one for each process and try.
        tries: how often it was sent.
    """

    job_id: str
    session_id: str
    run_id: str
    number: int
    purpose: Literal["turn", "compaction"] = "turn"
    state: JobState = "open"
    request: dict[str, Any] = {}
    answer: dict[str, Any] | None = None
    taker: str = ""
    tries: int = 0
    created_ms: int = 0
    dispatched_ms: int | None = None
    answered_ms: int | None = None


class ModelDeliveryRow(Row, frozen=True, kw_only=True):
    """An answer that came for a job: the first is taken, every other one is refused and metered."""

    job_id: str
    taker: str
    session_id: str
    verdict: Literal["accepted", "unaccepted", "late"]
    usage: dict[str, Any] = {}
    at_ms: int = 0


class ArtifactRow(Row, frozen=True, kw_only=True):
    """A payload that was put aside; its bytes lie below the agent's `artifacts/`, named by their digest."""

    path: str
    sha256: str
    size_bytes: int
    mime: str
    session_id: str
    source_operation: str = ""
    created_ms: int = 0


class SeedRow(Row, frozen=True, kw_only=True):
    """What became of a mount that agents are begun with. `since`: of which list it is."""

    alias: str
    since: str
    outcome: str
    at_ms: int
    told: bool = False


class UsageRow(Row, frozen=True, kw_only=True):
    """Something that was used, written in the transaction of the work."""

    usage_id: str
    session_id: str
    resource: str
    key: str
    quantity: float
    unit: str
    at_ms: int


class Table(NamedTuple):
    """Where records of a type lie.

    Attributes:
        key: the fields that name one.
        unique: what else only one may have; several fields together are joined by a plus sign.
        by_key: its records come in the order of their keys, not in that in which they were put.
    """

    name: str
    type: type[Row]
    key: tuple[str, ...]
    unique: tuple[str, ...] = ()
    by_key: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        return self.type.__struct_fields__

    @property
    def of_session(self) -> bool:
        """Whether its records go with a session."""
        return "session_id" in self.fields


TABLES: Final[dict[type[Row], Table]] = {
    table.type: table
    for table in (
        Table("mounts", MountRow, ("alias",), ("installation_id",)),
        Table("plugin_choices", PluginChoiceRow, ("plugin",)),
        Table("connections", ConnectionRow, ("alias",)),
        Table("plugin_db_meta", PluginVersionRow, ("alias", "plugin")),
        Table("plugin_db", PluginValueRow, ("alias", "plugin", "store", "key")),
        Table("secrets", SecretRow, ("name",)),
        Table("operations", OperationRow, ("operation_id",)),
        Table("approvals", ApprovalRow, ("operation_id",)),
        Table("inbox", InboxRow, ("inbox_id",), ("session_id+dedup_key",)),
        Table("native_entries", EntryRow, ("entry_id",)),
        Table("native_model_jobs", ModelJobRow, ("job_id",)),
        Table("native_model_deliveries", ModelDeliveryRow, ("job_id", "taker")),
        Table("artifacts", ArtifactRow, ("path",)),
        Table("seed_record", SeedRow, ("alias", "since")),
        Table("usage_ledger", UsageRow, ("usage_id",)),
        Table("native_session_values", SessionValueRow, ("session_id", "namespace", "key"), by_key=True),
        Table("native_session_lists", SessionListRow, ("session_id", "namespace", "key", "seq"), by_key=True),
        Table("native_script_runs", ScriptRunRow, ("session_id", "script_id"), by_key=True),
        Table("native_model_binding", ModelBindingRow, ("binding_id",), by_key=True),
        Table("background_jobs", BackgroundJobRow, ("session_id", "job_id"), by_key=True),
        Table("reminders", ReminderRow, ("session_id", "reminder_id"), ("session_id+request_id",), by_key=True),
        Table("holds", HoldRow, ("alias", "live_id"), by_key=True),
        Table("quotas", QuotaRow, ("resource",), by_key=True),
        Table("agent_state", AgentStateRow, ("key",), by_key=True),
        Table("counters", CounterRow, ("name",), by_key=True),
        Table("seed_notices", SeedNoticeRow, ("alias", "since"), by_key=True),
        Table("usage_hourly", UsageHourRow, ("hour", "resource", "key", "unit"), by_key=True),
        Table("usage_daily", UsageDayRow, ("day", "resource", "key", "unit"), by_key=True),
    )
}

_PLAIN: Final = (str, int, float, bool, bytes)


def is_json(table: Table, field: str) -> bool:
    """Whether a field is kept as JSON text."""
    annotation = typing.get_type_hints(table.type)[field]
    members = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    return not all(
        member is type(None) or member in _PLAIN or typing.get_origin(member) is Literal for member in members
    )


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


JSON_FIELDS: Final[dict[type[Row], frozenset[str]]] = {
    kind: frozenset(field for field in table.fields if is_json(table, field)) for kind, table in TABLES.items()
}
BOOLS: Final[dict[type[Row], frozenset[str]]] = {
    kind: frozenset(field for field, hint in typing.get_type_hints(kind).items() if hint is bool) for kind in TABLES
}
