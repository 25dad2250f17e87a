"""What OpenAI's codes mean, in words of ours. Data and pure functions.

Must not know any I/O. Invariant: no text of the provider is in a sentence, only codes that stand here.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from runtime_host.drivers.managed.faults import TOO_LARGE
from runtime_host.loop.model_apis.pieces import FaultKind
from runtime_host.loop.model_apis.reading import member, text
from runtime_host.results import RunError

UNKNOWN_CALL: Final = "Unknown pending tool call"
ACTION_REFUSED: Final = "ACTION_REFUSED"
ECHO_MISMATCH: Final = "SESSION_NOT_AS_ASKED"
SESSION_FAILED: Final = "SESSION_FAILED"
SESSION_UNKNOWN: Final = "SESSION_UNKNOWN"
SESSION_BUSY: Final = "SESSION_BUSY"
INPUT_NOT_SENT: Final = "INPUT_NOT_SENT"

REFUSAL_WORDS: Final = frozenset(
    {
        "invalid_request_error",
        "invalid_beta",
        "agent_not_persisted",
        "unauthorized",
        "forbidden",
        "not_found_error",
        "model_not_found",
        "conflict_error",
        "executor_version_incompatible",
        "mcp_server_startup_failed",
        "files_api_rate_limit_exceeded",
        "rate_limit_exceeded",
        "internal_error",
        "invalid_api_key",
        "insufficient_quota",
    }
)
"""Codes and types of refusals that may be told."""


class _Said(NamedTuple):
    kind: FaultKind
    happened: str
    todo: str
    retryable: bool = False


_AGAIN: Final = "Send again if you want to try once more."
_LIMIT: Final = "Raise the limit at OpenAI, or use another connector."
_TURN_ERRORS: Final[Mapping[str, _Said]] = {
    "context_length_exceeded": _Said(
        FaultKind.CONTEXT_TOO_LONG,
        "The conversation is longer than the model can read at once.",
        "Begin a new conversation, or choose a model that reads more.",
    ),
    "max_output_tokens": _Said(
        FaultKind.FAILED, "The answer came to the longest that the model may write.", "Ask for the rest."
    ),
    "usage_limit_exceeded": _Said(FaultKind.QUOTA_EXHAUSTED, "The account at OpenAI has met a usage limit.", _LIMIT),
    "project_spend_limit_exceeded": _Said(
        FaultKind.QUOTA_EXHAUSTED, "The project at OpenAI has met its spending limit.", _LIMIT
    ),
    "organization_spend_limit_exceeded": _Said(
        FaultKind.QUOTA_EXHAUSTED, "The organization at OpenAI has met its spending limit.", _LIMIT
    ),
    "organization_usage_limit_exceeded": _Said(
        FaultKind.QUOTA_EXHAUSTED, "The organization has met the usage limit that OpenAI set for it.", _LIMIT
    ),
    "billing_not_active": _Said(
        FaultKind.QUOTA_EXHAUSTED, "Billing is not active for the account at OpenAI.", "Set up billing at OpenAI."
    ),
    "credit_balance_exhausted": _Said(
        FaultKind.QUOTA_EXHAUSTED, "The account at OpenAI has no credit left.", "Add credit at OpenAI."
    ),
    "rate_limit_exceeded": _Said(
        FaultKind.RATE_LIMITED, "OpenAI took no more requests of this account for now.", "Send again in a while.", True
    ),
    "flex_unavailable": _Said(
        FaultKind.UNAVAILABLE, "OpenAI has no room at this price for now.", "Send again in a while.", True
    ),
    "server_overloaded": _Said(FaultKind.UNAVAILABLE, "OpenAI is overloaded.", "Send again in a while.", True),
    "cyber_policy": _Said(
        FaultKind.CONTENT_FILTERED, "OpenAI declined this by its safety rules.", "Put it in other words."
    ),
    "misalignment_policy_violation": _Said(
        FaultKind.CONTENT_FILTERED, "OpenAI stopped this by its safety rules.", "Put it in other words."
    ),
    "connection_failed": _Said(FaultKind.UNAVAILABLE, "OpenAI could not reach its own model.", _AGAIN, True),
    "server_error": _Said(FaultKind.FAILED, "OpenAI reported a fault of its own.", _AGAIN, True),
    "authentication_error": _Said(
        FaultKind.KEY_REFUSED, "OpenAI no longer lets this key work.", "Check the key of the connector."
    ),
    "invalid_request": _Said(
        FaultKind.REQUEST_REFUSED, "OpenAI took the input for an invalid one.", "Choose another model or setting."
    ),
    "resource_not_found": _Said(
        FaultKind.NOT_FOUND, "Something this needs is not there at OpenAI any more.", "Choose another model."
    ),
    "sandbox_error": _Said(
        FaultKind.FAILED, "The environment at OpenAI failed.", "Send again; if it stays so, begin a new session.", True
    ),
    "executor_version_incompatible": _Said(
        FaultKind.FAILED, "The environment at OpenAI is of an older version.", "Begin a new session."
    ),
    "active_turn_not_steerable": _Said(
        FaultKind.FAILED, "OpenAI was still at work on another input of this session.", "Send again when it is done."
    ),
    "request_timeout": _Said(FaultKind.SILENT, "The model at OpenAI did not answer in time.", _AGAIN, True),
    "internal_error": _Said(FaultKind.FAILED, "OpenAI reported a fault of its own.", _AGAIN, True),
}
TURN_ERROR_CODES: Final = frozenset(_TURN_ERRORS)
_UNTOLD: Final = _Said(
    FaultKind.FAILED, "OpenAI ended the turn as failed and gave no reason that is known here.", _AGAIN
)


def code_of(error: Any) -> str:
    """The code of an error object, where it is one that is known; else ""."""
    found = text(error, "code")
    return found if found in _TURN_ERRORS or found in REFUSAL_WORDS else ""


def turn_error(turn: Mapping[str, Any]) -> RunError:
    """Why a turn failed."""
    code = code_of(member(turn, "error"))
    said = _TURN_ERRORS.get(code, _UNTOLD)
    return RunError(
        code=said.kind.value,
        message=f"{said.happened} What had arrived is kept. {said.todo}",
        retryable=said.retryable,
        details={"provider_code": code} if code else {},
    )


def refused_action(kind: str) -> RunError:
    """What a turn is stopped with that waits for something this harness never gives."""
    what = _ACTIONS.get(kind, "something this harness has no answer to")
    return RunError(
        code=ACTION_REFUSED,
        message=f"The agent at OpenAI waited for {what}, which is always refused here. The turn was stopped; what had "
        "arrived is kept. Ask for it in a way that does not need this.",
        details={"action": kind} if kind in _ACTIONS else {},
    )


def too_large() -> RunError:
    """What a turn is stopped with where the session's record, and what it waits for with it, is longer than is read."""
    return RunError(
        code=TOO_LARGE,
        message="The agent at OpenAI waits for something that is larger than Remuda reads at once, so it cannot be "
        "answered. The turn was stopped; what had arrived is kept. Ask for it in smaller pieces.",
    )


_ACTIONS: Final = {
    "mcp_approval_request": "somebody to allow a call of another server's tool",
    "computer_use_approval_request": "somebody to allow or fill in something in a browser",
    "environment_connection": "an environment to be connected",
}


def not_as_asked(differences: tuple[str, ...], *, sent: bool, rejoined: bool = False) -> str:
    """What it means that a session is otherwise than it was asked for. `rejoined`: its input was sent before."""
    what = ", ".join(differences)
    if rejoined:
        means = "So nothing more is told to it."
    else:
        means = "The turn was stopped." if sent else "Nothing was sent to it."
    return (
        f"OpenAI's description of this session is not what was asked for ({what}). {means} Begin a new session; "
        "delete this one if you did not change it yourself."
    )


def takes_nothing(*, failed: bool) -> RunError:
    """Why a session takes no input: it has failed, or is at work."""
    if failed:
        return RunError(
            code=SESSION_FAILED,
            message="OpenAI says that this session has failed, so it takes no message any more. Yours was not sent. "
            "Begin a new session.",
        )
    return RunError(
        code=SESSION_BUSY,
        message="The agent at OpenAI is still at work on something else in this session. Your message was not sent, "
        "because it would have changed that work. Send it again when that is done.",
        retryable=True,
    )
