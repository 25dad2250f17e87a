"""How a turn of a managed Claude session ends, in words: what happened, what it means, what to do. Pure.

Must not know any I/O. Invariants: only an end of the provider's own is a completed answer; nothing that the provider
wrote is in a sentence but words that are known.
"""

import json
from typing import Any, Final, NamedTuple

from runtime_host.canonical import thaw
from runtime_host.connectors.base import Connector
from runtime_host.drivers.claude_managed.history import Reading
from runtime_host.drivers.claude_managed.profile import SERVICE
from runtime_host.drivers.managed.faults import TOO_LARGE
from runtime_host.errors import AgentNativeExecutionError, AgentRuntimeError
from runtime_host.results import DriverResult, RunError, Usage
from runtime_host.tools.base import ToolDelivery

ACTION_REFUSED: Final = "ACTION_REFUSED"
REFUSED: Final = "REFUSED"

_REASONS: Final[dict[str, tuple[str, str]]] = {
    "terminated": (
        "SESSION_TERMINATED",
        f"{SERVICE} ended this session for good, so it takes no message. Nothing was sent. Begin a new conversation.",
    ),
    "budget_reached": (
        "BUDGET_REACHED",
        "The cost cap of this conversation is reached, so it takes no message. Nothing was sent. Raise the cap at the "
        "provider, then send it again.",
    ),
    "requires_action": (
        "SESSION_WAITS",
        "The session waits for the answer to an earlier call, so it takes no message. Nothing was sent. "
        "Begin a new conversation.",
    ),
    "running": (
        "SESSION_BUSY",
        "Something goes on in this session at the provider, so it takes no message now. Nothing was sent. "
        "Wait until it is over, then send it again.",
    ),
    "action": (
        ACTION_REFUSED,
        f"Claude asked {SERVICE} for something that this session may not do, and waited for a permission that is "
        "never given. It was stopped. Ask for it in another way.",
    ),
    "too_large": (
        TOO_LARGE,
        f"{SERVICE} holds something of this conversation that is larger than Remuda reads at once, so it could not be "
        "followed or answered. It was stopped, and takes no further message. Begin a new conversation.",
    ),
    "result": (
        "RESULT_REFUSED",
        f"{SERVICE} does not take the result of a call, so the work was stopped. What the call did is done. "
        "Begin a new conversation.",
    ),
}


class Ending(NamedTuple):
    """What is known of the end of a turn."""

    reading: Reading
    usage: Usage | None
    connector: Connector
    model: str


def not_sent(why: str) -> AgentNativeExecutionError:
    """Why something was refused here: a key of the table above."""
    code, message = _REASONS[why]
    return AgentNativeExecutionError(message, native_code=code)


def not_arrived(what: str) -> RunError:
    """An input of which it is certain that the provider does not have it."""
    return RunError(code="INPUT_NOT_SENT", message=f"{what} Nothing came of it. Send it again.", retryable=True)


def failed(error: RunError, **more: Any) -> DriverResult:
    return DriverResult(status="failed", error=error, finish_reason="native_error", **more)


def of_error(error: AgentRuntimeError) -> RunError:
    """An error of this library as the reason of a failed run."""
    code = error.native_code if isinstance(error, AgentNativeExecutionError) else error.error_code
    return RunError(code=code, message=error.message, retryable=error.retryable, details=error.details)


def of_reading(ending: Ending, failure: AgentRuntimeError | None) -> DriverResult:
    """The result of a turn that is over.

    Args:
        ending: what the provider says of it.
        failure: why it was stopped by us, other than for the person.
    """
    reading = ending.reading
    about: dict[str, Any] = {"output_text": reading.answer, "usage": ending.usage}
    told = {name: value for name, value in (("stop_reason", reading.reason), ("category", reading.category)) if value}
    if told:
        about["native"] = told
    if failure is not None:
        return failed(of_error(failure), **about)
    if reading.stage == "terminated":
        return failed(_terminated(reading), **about)
    if reading.stopped:
        return DriverResult(status="cancelled", finish_reason="cancelled", **about)
    if reading.reason == "end_turn":
        return DriverResult(status="completed", finish_reason="completed", **about)
    if reading.reason == "refusal":
        return failed(_refusal(reading), **about)
    return failed(_exhausted(reading), **about)


def _refusal(reading: Reading) -> RunError:
    named = f" ({reading.category})" if reading.category else ""
    return RunError(
        code=REFUSED,
        message=f"Claude refused to answer this{named}. Ask in another way, or ask another model.",
        details={"category": reading.category} if reading.category else {},
    )


def _exhausted(reading: Reading) -> RunError:
    named = f" ({reading.error})" if reading.error else ""
    return RunError(
        code="RETRIES_EXHAUSTED",
        message=f"{SERVICE} tried several times in vain{named} and gave this turn up. Try again in a while.",
        retryable=True,
        details={"provider_type": reading.error} if reading.error else {},
    )


def _terminated(reading: Reading) -> RunError:
    named = f" ({reading.error})" if reading.error else ""
    return RunError(
        code="SESSION_TERMINATED",
        message=f"{SERVICE} ended this session for good{named}. What it did until then is kept. "
        "Begin a new conversation.",
        details={"provider_type": reading.error} if reading.error else {},
    )


def result_text(delivery: ToolDelivery) -> str:
    """What the model reads of a call."""
    if not delivery.success and delivery.error is not None:
        return delivery.error
    payload = delivery.payload
    return payload if isinstance(payload, str) else json.dumps(thaw(payload), ensure_ascii=False)
