"""Normalized events of a run: the closed set of types, the envelope, and what a driver yields.

Invariant: `run.started` is the first event of a fresh run, `run.finished` the last of any; sequence
numbers count up within a run and are never used twice.
"""

from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

EventType = Literal[
    "run.started",
    "run.parked",
    "run.resumed",
    "run.steered",
    "agent.message.delta",
    "agent.message.completed",
    "reasoning.delta",
    "reasoning.completed",
    "plan.updated",
    "agent.iteration.completed",
    "command.started",
    "command.output.delta",
    "command.completed",
    "file.change.started",
    "file.changed",
    "tool.started",
    "tool.progress",
    "tool.completed",
    "interaction.requested",
    "interaction.resolved",
    "usage.updated",
    "diagnostic",
    "run.finished",
]

DELTA_TYPES: frozenset[str] = frozenset(
    {"agent.message.delta", "reasoning.delta", "command.output.delta", "tool.progress"}
)


class AgentEvent(BaseModel):
    """One published event.

    Events that belong to an item of the transcript (messages, reasoning, plans, commands, calls of tools, changes of
    files, remarks that became a notice) carry its `id` and `index`, its position; what the native side calls it is
    never told. A delta carries `text`, what is new, and `at`, where that begins in the item's text. `opened` stands in
    the event of a plan, command, call or change that made its item. The event that ends an item has `state` and
    `size_chars`, of its text, and for what the harness did `about`, what is known of it, `code` and `detail` where
    the item has them. `output`, `result` and `diff` are at most 32 KiB; the item has the whole.

    Attributes:
        sequence: counts from 1 within the run.
        timestamp: UTC.
        data: JSON object; its keys depend on `type`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    session_id: str
    sequence: int
    timestamp: datetime
    type: EventType
    data: dict[str, Any]


class DriverEvent(NamedTuple):
    """What a driver yields: not yet redacted, joined or numbered.

    `agent.message.*` data: `id`, `text`, `phase` ("unknown", "commentary" or "final_answer").
    `reasoning.*` data: `id`, `text`, `kind`. `usage.updated` data: fields of `Usage`. What the others hold,
    `docs/adding_a_harness.md` says. `id` is the native side's: it is masked, compared and never published.
    A driver yields no `run.*`: those are the runtime's. `run.parked` carries `operations`, the calls that wait for a
    person; nothing follows it but `run.resumed`. `run.steered` carries `id` and `index` of the item that was said to
    the run, its `text` and its `inbox` id.
    """

    type: EventType
    data: dict[str, Any]
