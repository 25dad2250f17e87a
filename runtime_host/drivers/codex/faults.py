"""What it means when a turn of the Codex CLI fails, in a sentence with a way on. Pure.

Must not know the protocol's transport. Invariant: nothing that a server or the CLI wrote is in a sentence.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from runtime_host.loop.model_apis.pieces import FaultKind
from runtime_host.results import RunError

INCOMPLETE: Final = "Incomplete response returned, reason: "
"""How the CLI begins to say that the model stopped early."""

_CUT: Final = "stream disconnected before completion: "
"""How it begins to say that the reply broke off, once it has given up asking anew; it names no kind then."""


class NativeFault(NamedTuple):
    """Why a turn failed, as the CLI says it.

    Attributes:
        kind: its own word; "" for none.
        http_status: of the server, where it had one.
        stopped_by: why the model stopped early; "" when it did not.
    """

    kind: str = ""
    http_status: int | None = None
    stopped_by: str = ""


def read_fault(error: object) -> NativeFault:
    """The fault in an error of the CLI."""
    if not isinstance(error, Mapping):
        return NativeFault()
    message = error.get("message")
    stopped_by = ""
    if isinstance(message, str) and message.startswith(INCOMPLETE):
        stopped_by = message.removeprefix(INCOMPLETE)
        stopped_by = stopped_by if stopped_by in ("max_output_tokens", "content_filter") else "other"
    info = error.get("codexErrorInfo")
    if info == "other" and isinstance(message, str) and message.startswith(_CUT):
        info = "responseStreamDisconnected"
    if isinstance(info, str):
        return NativeFault(info, None, stopped_by)
    if isinstance(info, Mapping) and info:
        kind, detail = next(iter(info.items()))
        status = detail.get("httpStatusCode") if isinstance(detail, Mapping) else None
        return NativeFault(str(kind), status if isinstance(status, int) else None, stopped_by)
    return NativeFault("", None, stopped_by)


class Told(NamedTuple):
    """A fault as it is told."""

    kind: FaultKind
    sentence: str
    retryable: bool


def explain(fault: NativeFault, connector: str, model: str) -> Told:
    """What the fault means for whoever asked."""
    status = fault.http_status or 0
    kind = FaultKind.UNAVAILABLE if status >= 500 else _OF_KIND.get(fault.kind, FaultKind.FAILED)
    kind = _OF_STATUS.get(status, kind)
    sentence, retryable = _WORDS.get(kind, _WORDS[FaultKind.FAILED])
    return Told(kind, sentence.format(connector=connector, model=model), retryable)


def run_error(fault: NativeFault, connector: str, model: str, *, of_the_way: str = "") -> RunError:
    """The error of a result.

    Args:
        fault: as the CLI says it.
        connector: by name.
        model: who should have answered.
        of_the_way: what the relay says went wrong on the way to the server; it knows better.
    """
    told = explain(fault, connector, model)
    if of_the_way and fault.http_status is not None:
        way = _OF_THE_WAY.get(fault.http_status, FaultKind.FAILED)
        told = Told(way, of_the_way, way is not FaultKind.FAILED)
    details: dict[str, Any] = {"native": fault.kind} if fault.kind else {}
    if fault.http_status is not None:
        details["http_status"] = fault.http_status
    kept = " What had arrived is kept; your message is not sent again by itself."
    return RunError(code=told.kind.value, message=told.sentence + kept, retryable=told.retryable, details=details)


def early_end(stopped_by: str, model: str) -> RunError:
    """Why an answer is not whole though nothing failed."""
    if stopped_by == "content_filter":
        sentence = f"The rules of the server ended the reply of {model}. Put the question in other words."
        return RunError(code="PROVIDER_CONTENT_FILTERED", message=f"{sentence} What it wrote is kept.")
    sentence = f"{model} met its length limit, so the reply ends early. Ask it to go on."
    return RunError(code="PROVIDER_LENGTH_LIMIT", message=f"{sentence} What it wrote is kept.")


_OF_THE_WAY: Final = {502: FaultKind.UNREACHABLE, 504: FaultKind.SILENT}
_OF_STATUS: Final = {
    400: FaultKind.REQUEST_REFUSED,
    401: FaultKind.KEY_REFUSED,
    402: FaultKind.QUOTA_EXHAUSTED,
    403: FaultKind.FORBIDDEN,
    404: FaultKind.NOT_FOUND,
    413: FaultKind.REQUEST_REFUSED,
    422: FaultKind.REQUEST_REFUSED,
    429: FaultKind.RATE_LIMITED,
    504: FaultKind.SILENT,
}
_OF_KIND: Final = {
    "contextWindowExceeded": FaultKind.CONTEXT_TOO_LONG,
    "sessionBudgetExceeded": FaultKind.QUOTA_EXHAUSTED,
    "usageLimitExceeded": FaultKind.QUOTA_EXHAUSTED,
    "rateLimitExceeded": FaultKind.RATE_LIMITED,
    "serverOverloaded": FaultKind.UNAVAILABLE,
    "flexUnavailable": FaultKind.UNAVAILABLE,
    "internalServerError": FaultKind.UNAVAILABLE,
    "unauthorized": FaultKind.KEY_REFUSED,
    "badRequest": FaultKind.REQUEST_REFUSED,
    "other": FaultKind.REQUEST_REFUSED,
    "cyberPolicy": FaultKind.CONTENT_FILTERED,
    "misalignmentPolicyViolation": FaultKind.CONTENT_FILTERED,
    "httpConnectionFailed": FaultKind.UNREACHABLE,
    "responseStreamConnectionFailed": FaultKind.UNREACHABLE,
    "responseStreamDisconnected": FaultKind.STREAM_CUT,
    "responseTooManyFailedAttempts": FaultKind.RATE_LIMITED,
}
_WORDS: Final[dict[FaultKind, tuple[str, bool]]] = {
    FaultKind.KEY_REFUSED: ("The server of {connector} refused the key. Check it and enter it again.", False),
    FaultKind.FORBIDDEN: (
        "The server of {connector} does not let this key use {model}. Choose another model, or ask whoever runs the "
        "account for access.",
        False,
    ),
    FaultKind.QUOTA_EXHAUSTED: (
        "The account behind {connector} has no credit left or has met its spending limit. Add credit or raise the "
        "limit at the provider.",
        False,
    ),
    FaultKind.NOT_FOUND: (
        "The server of {connector} has no model called {model}, or its address is wrong. Check both.",
        False,
    ),
    FaultKind.RATE_LIMITED: ("The server of {connector} takes no more requests for now. Try again in a while.", True),
    FaultKind.UNAVAILABLE: ("The server of {connector} is in trouble or overloaded. Try again later.", True),
    FaultKind.REQUEST_REFUSED: (
        "The server of {connector} refused the request to {model}. Choose another model, or begin a new conversation.",
        False,
    ),
    FaultKind.CONTEXT_TOO_LONG: (
        "The conversation is longer than {model} can read. Begin a new one, or choose a model that reads more.",
        False,
    ),
    FaultKind.CONTENT_FILTERED: (
        "The server of {connector} does not answer this for reasons of its rules. Put the question in other words.",
        False,
    ),
    FaultKind.UNREACHABLE: (
        "The server of {connector} could not be reached. Check the address and that this computer is online.",
        True,
    ),
    FaultKind.STREAM_CUT: (
        "The reply of the server of {connector} broke off in the middle. Send again if you want a new one.",
        True,
    ),
    FaultKind.SILENT: ("The server of {connector} did not answer in time. Try again later.", True),
    FaultKind.FAILED: ("The Codex CLI could not finish this. Send again if you want a new reply.", False),
}
