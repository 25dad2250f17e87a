"""The host's own tools: what an agent can be given besides the model.

Owns which tools there are, what is said of them, and the answer to a resolver's question. Must not know
sessions, stores or drivers. Invariants: a tool here only reads, so a call that was interrupted has changed
nothing and may be made again; what a tool came to never reaches the log.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.tools.base import (
    HostTool,
    ResolutionContext,
    ResolvedTools,
    RetainedObservation,
    ToolCall,
    ToolContext,
    ToolReceipt,
    ToolReport,
)

log = logging.getLogger("remuda.tools")

NOT_KEPT = "What a tool came to could not be kept on disk, so the reply that waited for it was ended."


class _Known(NamedTuple):
    tool: HostTool
    title: str
    means: str
    version: int


class ToolView(NamedTuple):
    """A tool as a person reads of it."""

    name: str
    title: str
    means: str


def _clock(arguments: Mapping[str, Any], context: ToolContext) -> dict[str, str]:
    return reading(datetime.now().astimezone())


def reading(now: datetime) -> dict[str, str]:
    """What the clock tells of a moment: as it is written here, and where here is."""
    offset = now.strftime("%z")
    return {
        "date": now.strftime("%Y-%m-%d"),
        "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")[now.weekday()],
        "time": now.strftime("%H:%M:%S"),
        "zone": now.tzname() or "",
        "utc_offset": f"{offset[:3]}:{offset[3:5]}",
    }


_TOOLS: Final[Mapping[str, _Known]] = {
    "clock": _Known(
        HostTool(
            "clock",
            "Tells the date, the weekday, the time of day and the time zone of the person's computer, as of now.",
            {"type": "object", "properties": {}, "additionalProperties": False},
            _clock,
        ),
        "Clock",
        "reads date, time and time zone of this computer",
        1,
    )
}

TOOLS: Final = tuple(ToolView(name, known.title, known.means) for name, known in _TOOLS.items())
"""All there are, in the order they are offered."""


def unknown_tools(names: tuple[str, ...]) -> list[str]:
    """Those of `names` that are no tools."""
    return [name for name in names if name not in _TOOLS]


async def resolve_host_tools(names: tuple[str, ...], context: ResolutionContext) -> ResolvedTools:
    """The tools of these names.

    Raises:
        AgentDriverConfigurationError: there is none of one name.
    """
    if unknown := unknown_tools(names):
        raise AgentDriverConfigurationError(
            f"There is no tool called {', '.join(unknown)} here. There is: {', '.join(_TOOLS)}.",
            details={"field": "tools", "tools": unknown},
        )
    known = [_TOOLS[name] for name in names]
    told = "\n".join(f"{each.tool.name} {each.version}" for each in known)
    return ResolvedTools(
        tools=tuple(each.tool for each in known),
        fingerprint="host-tools:" + hashlib.sha256(told.encode()).hexdigest(),
        reconcile=_reconcile,
    )


async def _reconcile(call: ToolCall, context: ToolContext) -> ToolReceipt:
    """Of a tool that only reads it is certain what an interrupted call did: nothing."""
    words = "Remuda ended while this was being read. Nothing was changed; read it again."
    return ToolReceipt(
        call_id=call.call_id,
        tool=call.tool,
        run_id=call.run_id,
        settled=True,
        report=ToolReport(success=False, payload=words),
    )


def retained(tell: Callable[[str, str], None]) -> Callable[[RetainedObservation], None]:
    """What is done with a report that could not be kept: the person is told, by `tell(code, sentence)`."""

    def hear(observation: RetainedObservation) -> None:
        call = observation.call
        # Its name and its run only: what it returned belongs to the conversation.
        log.warning("tool %s of run %s was not kept: %s", call.tool, call.run_id, observation.reason)
        tell("TOOL_RESULT_NOT_KEPT", f"{NOT_KEPT} The tool was {call.tool}; it only reads, and nothing was changed.")

    return hear
