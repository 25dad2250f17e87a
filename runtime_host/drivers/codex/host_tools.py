"""The application's tools, as the Codex CLI offers and calls them. Pure.

Must not know any I/O. Invariants: a call keeps the id that the CLI gave it; what is told is the delivery as it is, a
failure as a failure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from runtime_host.canonical import thaw
from runtime_host.drivers.codex.history import Record
from runtime_host.events import DriverEvent
from runtime_host.tools.base import EarlierCall, ToolDelivery, ToolOffer, ToolRequest

CONTINUED: Final = DriverEvent(
    "diagnostic",
    {
        "code": "CONTINUED_AFTER_RESTART",
        "level": "info",
        "message": "The program was started anew while a tool was at work; the run goes on with what came of it.",
    },
)


def dynamic_tools(offers: Sequence[ToolOffer]) -> list[dict[str, Any]]:
    """The tools as the CLI takes them when a thread begins."""
    return [
        {
            "type": "function",
            "name": offer.name,
            "description": offer.description,
            "inputSchema": thaw(offer.parameters),
        }
        for offer in offers
    ]


def request_of(params: Mapping[str, Any]) -> ToolRequest | None:
    """The call that the CLI asks for; None when it is none."""
    call_id, name, arguments = params.get("callId"), params.get("tool"), params.get("arguments")
    if not isinstance(call_id, str) or not call_id or not isinstance(name, str) or params.get("namespace"):
        return None
    text = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
    return ToolRequest(call_id, name, text)


def told_text(delivery: ToolDelivery) -> str:
    """What the model reads of a call."""
    if not delivery.success and delivery.error is not None:
        return delivery.error
    payload = delivery.payload
    return payload if isinstance(payload, str) else json.dumps(thaw(payload), ensure_ascii=False)


def answer_of(delivery: ToolDelivery) -> dict[str, Any]:
    """The answer to the CLI's question."""
    return {
        "contentItems": [{"type": "inputText", "text": told_text(delivery)}],
        "success": delivery.success,
    }


def tool_completed(delivery: ToolDelivery) -> DriverEvent:
    return DriverEvent(
        "tool.completed",
        {
            **delivery.about,
            "id": delivery.call_id,
            "name": delivery.name,
            "result": delivery.payload if delivery.success else None,
            "error": delivery.error,
            "duration_ms": delivery.duration_ms,
        },
    )


class Waiting(NamedTuple):
    """Calls that an earlier process left: those nobody was told of, and those that the CLI has no record of."""

    untold: tuple[ToolRequest, ...]
    unrecorded: tuple[ToolDelivery, ...]


def waiting_of(earlier: Sequence[EarlierCall], record: Record) -> Waiting:
    """What has to be told so that the run can go on."""
    untold = tuple(call.request for call in earlier if call.told is None)
    unrecorded = tuple(
        call.told
        for call in earlier
        if call.told is not None and call.told.call_id in record.calls and call.told.call_id not in record.answered
    )
    return Waiting(untold, unrecorded)


def items_for(deliveries: Sequence[ToolDelivery], record: Record) -> list[dict[str, Any]]:
    """What is put into the thread, so that the model knows what came of calls that were interrupted.

    A call that the record has and has no answer of gets its answer under its own id. Of any other (one that a script
    made, one that the CLI wrote off) a message tells.
    """
    items: list[dict[str, Any]] = []
    for delivery in deliveries:
        call_id = delivery.call_id
        if call_id in record.calls and call_id not in record.answered:
            items.append({"type": "function_call_output", "call_id": call_id, "output": told_text(delivery)})
            continue
        outcome = "came to" if delivery.success else "failed with"
        text = (
            "The application was restarted while a tool was at work, so the turn was interrupted. The call "
            f"{call_id} of the tool {delivery.name} with the arguments {delivery.arguments} was made once and is not "
            f"to be made again. It {outcome}:\n{told_text(delivery)}\nGo on from there."
        )
        items.append({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]})
    return items
