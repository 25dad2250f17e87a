"""Records of the loop and its gate out of a damaged file.

Owns what becomes of them. Must not know SQL or pages. Invariants: what had not ended is not known any more, so that
nothing is executed, sent or decided from what a damaged file says; what may have been switched off and cannot be read
is off; a record that the store has already is left as it is.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from runtime_host.storage import usage
from runtime_host.storage.base import AgentTx
from runtime_host.storage.rows import (
    TABLES,
    ApprovalRow,
    BackgroundJobRow,
    CounterRow,
    ModelJobRow,
    MountRow,
    OperationRow,
    PluginChoiceRow,
    ReminderRow,
    Row,
    ScriptRunRow,
    SecretRow,
    UsageDayRow,
    UsageHourRow,
    UsageRow,
)

FILE_UUID: Final = "file_uuid"
"""Fact that what is sealed in a file is bound to: without it no seal opens."""
SALVAGE_NOTE: Final = "The file it was kept in was damaged, so it is not asked about any more."


class AgentRows(NamedTuple):
    """What a damaged file holds of an agent besides its sessions.

    Attributes:
        choices_whole: whether everything was read of what was switched on and off.
    """

    records: Sequence[Row]
    file_uuid: Any
    choices_whole: bool


def as_left(record: Row, now_ms: int) -> Row:
    """A record of a session as it is to be found in the new file: nothing of it goes on."""
    if isinstance(record, OperationRow) and record.status in ("pending", "running"):
        return msgspec.structs.replace(record, status="unknown", updated_ms=now_ms)
    if isinstance(record, ApprovalRow) and record.state == "pending":
        return msgspec.structs.replace(record, state="expired", note=SALVAGE_NOTE, decided_ms=now_ms)
    if isinstance(record, ModelJobRow) and record.state == "open":
        return msgspec.structs.replace(record, state="cancelled", answered_ms=now_ms)
    if isinstance(record, ScriptRunRow) and record.state in ("running", "paused"):
        return msgspec.structs.replace(record, state="interrupted", snapshot=None, waiting=None)
    if isinstance(record, BackgroundJobRow) and record.state in ("running", "stopping"):
        return msgspec.structs.replace(record, state="unknown", next_poll_ms=None, finished_ms=now_ms)
    if isinstance(record, ReminderRow) and record.state == "waiting":
        return msgspec.structs.replace(record, state="unknown")
    return record


def put_missing(tx: AgentTx, records: Sequence[Row]) -> None:
    """Put those whose place is free; one of two that claim what only one may have is left out.

    What was used is summed anew from the ledger.
    """
    for record in records:
        kind = type(record)
        if isinstance(record, UsageHourRow | UsageDayRow) or _is_mark(record):
            continue
        table = TABLES[kind]
        if tx.row(kind, *(str(getattr(record, field)) for field in table.key)) is None and not _claimed(tx, record):
            if isinstance(record, UsageRow):
                usage.meter(tx, record)
            else:
                tx.put_row(record)


def write_agent(tx: AgentTx, found: AgentRows, now_ms: int) -> None:
    """Give an agent back what it may use."""
    if found.file_uuid is not None and not tx.rows(SecretRow) and tx.fact(FILE_UUID) is None:
        # Only then: two files' seals are never open under one another's name.
        tx.put_fact(FILE_UUID, found.file_uuid)
    own = tx.fact(FILE_UUID) == found.file_uuid
    before = {mount.plugin for mount in tx.rows(MountRow)}
    put_missing(tx, [record for record in found.records if own or not isinstance(record, SecretRow)])
    if not found.choices_whole:
        for plugin in {mount.plugin for mount in tx.rows(MountRow)} - before:
            if tx.row(PluginChoiceRow, plugin) is None:
                tx.put_row(PluginChoiceRow(plugin=plugin, state="off", updated_ms=now_ms))


def _is_mark(record: Row) -> bool:
    return isinstance(record, CounterRow) and record.name == usage.FOLDED


def _claimed(tx: AgentTx, record: Row) -> bool:
    return any(
        tx.rows(type(record), **{field: getattr(record, field) for field in unique.split("+")})
        for unique in TABLES[type(record)].unique
    )
