"""What the refusals of model servers mean, by status and code.

Owns the reading of answers that are no success and of failures told within a stream. Must not know HTTP clients,
SDKs or which API was asked. Invariant: nothing of a refusal's text leaves this module.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from runtime_host.loop.model_apis.pieces import FaultKind, ModelFault
from runtime_host.loop.model_apis.reading import listed, parsed

_KIND_OF_CODE: Final[dict[str, FaultKind]] = {
    code: kind
    for kind, codes in (
        (
            FaultKind.CONTEXT_TOO_LONG,
            ("context_length_exceeded", "exceed_context_size_error", "string_above_max_length", "request_too_large"),
        ),
        (
            FaultKind.QUOTA_EXHAUSTED,
            ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"),
        ),
        (FaultKind.CONTENT_FILTERED, ("content_filter", "content_policy_violation", "moderation_blocked")),
        (FaultKind.MODEL_UNKNOWN, ("model_not_found", "model_not_available", "invalid_model", "unknown_model")),
        (
            FaultKind.UNAVAILABLE,
            ("overloaded_error", "server_overloaded", "engine_overloaded_error", "slow_down", "timeout_error"),
        ),
        (FaultKind.RATE_LIMITED, ("rate_limit_exceeded", "rate_limit_error", "tokens", "requests")),
        (FaultKind.KEY_REFUSED, ("authentication_error", "invalid_api_key", "api_key_invalid")),
        (FaultKind.FORBIDDEN, ("permission_error", "permission_denied")),
        (
            FaultKind.REQUEST_REFUSED,
            ("invalid_request_error", "invalid_prompt"),
        ),
    )
    for code in codes
}
_PRECEDENCE: Final = tuple(dict.fromkeys(_KIND_OF_CODE.values()))
_TOO_LONG_WORDS: Final = re.compile(
    r"context (length|window|size|limit)|maximum context|too many tokens|prompt is too long|input is too long",
    re.IGNORECASE,
)
_PICTURE_WORDS: Final = re.compile(r"(?<![A-Za-z])images?(?![A-Za-z])|vision|multimodal", re.IGNORECASE)
_NO_CREDIT_WORDS: Final = re.compile(r"credit balance is too low", re.IGNORECASE)
_BY_STATUS_ALONE: Final = {
    401: FaultKind.KEY_REFUSED,
    402: FaultKind.QUOTA_EXHAUSTED,
    403: FaultKind.FORBIDDEN,
    413: FaultKind.CONTEXT_TOO_LONG,
}
_TRY_LATER: Final = (408, 409, 429)
_LONGEST_WAIT_S: Final = 7 * 24 * 3600.0


def refusal_fault(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    pictures: bool = False,
    now: datetime | None = None,
) -> ModelFault:
    """What an answer that is no success means. Only known codes are read out of its body, never its text.

    Args:
        status: of the answer.
        headers: of the answer.
        body: of the answer, as far as it was read.
        pictures: whether the request brought some: then a refusal that speaks of them is about them.
        now: the wall clock.
    """
    said = parsed(body, tolerant=True)
    if isinstance(said, list) and len(said) == 1:
        said = said[0]  # as Google's servers answer
    error = said.get("error", said) if isinstance(said, dict) else None
    kind = _kind_of_status(status, error)
    if pictures and kind is FaultKind.REQUEST_REFUSED and _PICTURE_WORDS.search(body.decode("utf-8", "replace")):
        kind = FaultKind.PICTURE_REFUSED
    wait_s = _retry_after_s(headers, now or datetime.now(UTC)) if status in _TRY_LATER or status >= 500 else None
    return ModelFault(kind, http_status=status, retry_after_s=wait_s)


def stream_fault(error: Any) -> ModelFault:
    """What a failure means that is told within a stream, after the server began well."""
    return ModelFault(kind_of_error(error) or FaultKind.FAILED)


def kind_of_error(error: Any) -> FaultKind | None:
    """What an error object says by its codes; free text decides only that a prompt was too long or unpaid."""
    if not isinstance(error, dict):
        return None
    named = [error.get("code"), error.get("type"), *(detail.get("reason") for detail in _details(error))]
    codes = {value.lower() for value in named if isinstance(value, str)}
    kinds = {_KIND_OF_CODE[code] for code in codes if code in _KIND_OF_CODE}
    message = error.get("message")
    if isinstance(message, str) and kinds <= {FaultKind.REQUEST_REFUSED}:
        # The codes say nothing, or only that something about the request is wrong.
        if _TOO_LONG_WORDS.search(message):
            return FaultKind.CONTEXT_TOO_LONG
        if _NO_CREDIT_WORDS.search(message):
            return FaultKind.QUOTA_EXHAUSTED
    if not kinds and error.get("code") == 429:
        return FaultKind.RATE_LIMITED
    return next((kind for kind in _PRECEDENCE if kind in kinds), None)


def _kind_of_status(status: int, error: Any) -> FaultKind:
    named = kind_of_error(error)
    if 300 <= status < 400:
        return FaultKind.REDIRECTED
    if status in _BY_STATUS_ALONE:
        return _BY_STATUS_ALONE[status]
    if status == 404:
        unknown = named is FaultKind.MODEL_UNKNOWN or _names_model(error)
        return FaultKind.MODEL_UNKNOWN if unknown else FaultKind.NOT_FOUND
    if status == 429:
        return FaultKind.QUOTA_EXHAUSTED if named is FaultKind.QUOTA_EXHAUSTED else FaultKind.RATE_LIMITED
    if status in _TRY_LATER or status >= 500:
        # llama.cpp answers an overlong prompt with 500 in some versions.
        return FaultKind.CONTEXT_TOO_LONG if named is FaultKind.CONTEXT_TOO_LONG else FaultKind.UNAVAILABLE
    if status in (400, 405, 410, 415, 422):
        return named or FaultKind.REQUEST_REFUSED
    return FaultKind.REQUEST_REFUSED if 400 <= status < 500 else FaultKind.MALFORMED


def _details(error: dict[str, Any]) -> list[dict[str, Any]]:
    return [detail for detail in listed(error.get("details")) if isinstance(detail, dict)]


def _names_model(error: Any) -> bool:
    if not isinstance(error, dict):
        return False
    message = error.get("message")
    return error.get("param") == "model" or (isinstance(message, str) and "model" in message.lower())


def _retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,15}(\.\d{1,6})?", value, re.ASCII):
            return min(float(value) * unit_s, _LONGEST_WAIT_S)
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, TypeError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return min(max(0.0, (until - now).total_seconds()), _LONGEST_WAIT_S)
