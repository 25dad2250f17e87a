"""What a run of the CLI came to, and in which words. Pure.

Owns the sentences the person reads when the CLI or its server fails. Must not know any I/O. Invariants: a success is
only what says so in every place it can say so; no text that the CLI or a server wrote is in a sentence, except those of
our own relay; a run that was stopped is cancelled, whatever the CLI made of it.
"""

import json
import re
from typing import Final, Literal, NamedTuple

from runtime_host.connectors.base import Access, Connector
from runtime_host.connectors.explained import explained
from runtime_host.drivers.claude_sdk.mapping import Ended, TurnMapper
from runtime_host.drivers.claude_sdk.profile import MAX_COST, MAX_TURNS
from runtime_host.errors import AgentNativeExecutionError, AgentRuntimeError
from runtime_host.loop.model_apis.pieces import FaultKind, ModelFault
from runtime_host.results import DriverResult, RunError, RunStatus

Cut = Literal["stopped", "torn", "too-long", "gone", "silent", "foreign-tools", "foreign-version"]
"""Why a run ended before the CLI said so: the person stopped it; a shown reply broke off; more came than may; the CLI
is gone; it does not do what it is asked; it offers tools it was told not to, or is of a version nobody knows."""


class About(NamedTuple):
    """Whom a run asked.

    Attributes:
        requests: questions to the model that left this computer for it.
        way_fault: why the last of them did not come through, in our own words; empty when all did.
    """

    connector: Connector
    model: str
    requests: int = 0
    way_fault: str = ""


def result_of(turn: TurnMapper, about: About, cut: Cut | None) -> DriverResult:
    """The result of a run that has ended."""
    if cut == "stopped":
        return _result(turn, about, "cancelled", "cancelled")
    if cut is not None:
        return _cut(turn, about, cut)
    ended = turn.ended
    if ended is None:
        return _cut(turn, about, "gone")
    limit = _limit(turn, about, ended)
    if limit is not None:
        return limit
    if ended.failed or ended.reason != "completed" or ended.subtype != "success":
        return _failed(turn, about, ended)
    if ended.is_structured:
        answer = json.dumps(ended.structured, ensure_ascii=False)
        return _result(turn, about, "completed", "completed", text=answer)
    return _result(turn, about, "completed", ended.stop_reason or "completed")


def not_done(refused: AgentRuntimeError, turn: TurnMapper, about: About) -> DriverResult:
    """The result of what an error of ours ended: no CLI, no connector, a tool that is unresolved."""
    code = refused.native_code if isinstance(refused, AgentNativeExecutionError) else refused.error_code
    error = RunError(code=code, message=refused.message, retryable=refused.retryable, details=refused.details)
    return _result(turn, about, "failed", "native_error", error)


def unexpected(turn: TurnMapper, about: About) -> DriverResult:
    """The result after a fault of our own."""
    error = RunError(
        code=FaultKind.FAILED.value,
        message="Something went wrong in Remuda while it worked with the Claude CLI. What had arrived is kept. "
        "Send again if you want a new reply; the log names the kind of fault.",
    )
    return _result(turn, about, "failed", "native_error", error)


def _limit(turn: TurnMapper, about: About, ended: Ended) -> DriverResult | None:
    """A run that met a bound is no failure, but not whole either."""
    model = _printable(about.model)
    if ended.reason == "max_turns" or ended.subtype == "error_max_turns":
        error = RunError(
            code="AGENT_ITERATION_LIMIT",
            message=f"The run met its bound of turns (limits.{MAX_TURNS}). What it did is kept. Ask it to go on.",
        )
        return _result(turn, about, "incomplete", MAX_TURNS, error)
    if ended.reason == "budget_exhausted" or ended.subtype == "error_max_budget_usd":
        error = RunError(
            code="AGENT_COST_LIMIT",
            message=f"The run met its bound of cost (limits.{MAX_COST}), as the Claude CLI estimates it. What it did "
            "is kept. Ask it to go on.",
        )
        return _result(turn, about, "incomplete", "max_cost", error)
    if ended.api_error == "max_output_tokens" or (not ended.failed and ended.stop_reason == "max_tokens"):
        error = RunError(
            code="PROVIDER_LENGTH_LIMIT",
            message=f"{model} met its length limit again and again, so the reply ends early. What it wrote is kept. "
            "Ask it to go on.",
        )
        return _result(turn, about, "incomplete", "length", error)
    if ended.stop_reason == "refusal":
        error = RunError(
            code="PROVIDER_REFUSAL",
            message=f"{model} declined to answer. Its words are kept. Put the question in other words.",
        )
        return _result(turn, about, "incomplete", "refusal", error)
    return None


_KINDS: Final[dict[int, FaultKind]] = {
    400: FaultKind.REQUEST_REFUSED,
    401: FaultKind.KEY_REFUSED,
    402: FaultKind.QUOTA_EXHAUSTED,
    403: FaultKind.FORBIDDEN,
    404: FaultKind.MODEL_UNKNOWN,
    413: FaultKind.CONTEXT_TOO_LONG,
    429: FaultKind.RATE_LIMITED,
}
_BROKE: Final = "The connection broke before the reply was complete. Send again if you want a new one."
_PASSING: Final = (FaultKind.RATE_LIMITED, FaultKind.UNAVAILABLE, FaultKind.STREAM_CUT)


def _failed(turn: TurnMapper, about: About, ended: Ended) -> DriverResult:
    kind = _kind(ended)
    if about.way_fault and ended.api_status in (None, 502, 503, 504):
        happened = about.way_fault
    elif kind is FaultKind.STREAM_CUT:
        happened = _BROKE
    elif kind is FaultKind.RATE_LIMITED:
        happened = "The server takes no more requests for now. Try again in a while."
    elif kind is FaultKind.CONTEXT_TOO_LONG:
        happened = f"The conversation is longer than {_printable(about.model)} can read at once. Begin a new session."
    elif kind is FaultKind.FAILED:
        happened = "The Claude CLI ended the run with an error of its own. Send again if you want a new reply."
    else:
        access = Access(about.connector, about.connector.base_url, None, None)
        fault = ModelFault(kind, http_status=ended.api_status)
        # Some end with a command to copy, which no more words may be taken for.
        happened = explained(fault, access, model=_printable(about.model)).sentence.rstrip(".") + "."
    details: dict[str, object] = {"terminal_reason": ended.reason} if ended.reason else {}
    if ended.api_status is not None:
        details["http_status"] = ended.api_status
    error = _error(turn, about, kind, happened, details)
    reason = "stream_incomplete" if kind is FaultKind.STREAM_CUT else "native_error"
    return _result(turn, about, "failed", reason, error)


def _kind(ended: Ended) -> FaultKind:
    if ended.api_status is None:
        if "too_long" in ended.reason or "too_long" in ended.api_error:
            return FaultKind.CONTEXT_TOO_LONG
        return FaultKind.STREAM_CUT if ended.reason == "api_error" else FaultKind.FAILED
    if ended.api_status >= 500:
        return FaultKind.UNAVAILABLE
    return _KINDS.get(ended.api_status, FaultKind.REQUEST_REFUSED)


_SAID: Final[dict[Cut, tuple[FaultKind, str, str]]] = {
    "torn": (FaultKind.STREAM_CUT, _BROKE, "stream_incomplete"),
    "gone": (FaultKind.STREAM_CUT, "The Claude CLI ended in the middle of the run.", "stream_incomplete"),
    "silent": (
        FaultKind.SILENT,
        "The Claude CLI did not do what it was asked in time, so it was ended.",
        "native_error",
    ),
    "foreign-tools": (
        FaultKind.FAILED,
        "The Claude CLI offers tools that it was told to leave out, so it was ended before anything was asked of it.",
        "native_error",
    ),
    "foreign-version": (
        FaultKind.FAILED,
        "This Claude CLI is of a version that this program was not tried with, so it was ended. Install another one.",
        "native_error",
    ),
}


def _cut(turn: TurnMapper, about: About, cut: Cut) -> DriverResult:
    if cut == "too-long":
        error = RunError(
            code="PROVIDER_LENGTH_LIMIT",
            message=f"{_printable(about.model)} wrote more than a run may bring, so it was stopped. What it wrote is "
            "kept.",
        )
        return _result(turn, about, "incomplete", "length", error)
    kind, happened, reason = _SAID[cut]
    return _result(turn, about, "failed", reason, _error(turn, about, kind, happened, {}))


def _error(turn: TurnMapper, about: About, kind: FaultKind, happened: str, details: dict[str, object]) -> RunError:
    if turn.text:
        means = "What had arrived of the reply is kept."
    elif about.requests == 0:
        means = "Nothing was sent."
    elif kind in (FaultKind.STREAM_CUT, FaultKind.SILENT):
        means = "Whether it worked on your message is not known; it is not sent again by itself."
    else:
        means = "Your message is kept; there is no reply to it."
    tries = about.requests - max(0, turn.replies - 1)
    if tries > 1:
        details = {**details, "tries": tries}
        means = f"It was tried {tries} times. {means}"
    return RunError(code=kind.value, message=f"{happened} {means}", retryable=kind in _PASSING, details=details)


def _result(
    turn: TurnMapper,
    about: About,
    status: RunStatus,
    reason: str,
    error: RunError | None = None,
    *,
    text: str | None = None,
) -> DriverResult:
    native: dict[str, object] = {"requests": about.requests, "replies": turn.replies, "retries": turn.retries}
    if turn.version:
        native["cli_version"] = turn.version
    return DriverResult.model_validate(
        {
            "status": status,
            "output_text": turn.text if text is None else text,
            "artifacts": turn.activities.artifacts,
            "usage": turn.usage,
            "finish_reason": reason,
            "error": error,
            "native": native,
        }
    )


def _printable(name: str) -> str:
    """A name someone typed, fit to stand in a sentence."""
    return re.sub(r"[^\w./:@+ -]", "?", name)[:120]
