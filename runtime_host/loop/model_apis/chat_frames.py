"""What chat-completions servers say, read without trust and without I/O.

Owns the reading of stream frames and of refusals. Must not know HTTP clients or SDKs. Invariants: a field of
the wrong kind reads as absent, never as an exception; nothing of a refusal's text leaves this module.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from runtime_host.loop.model_apis.pieces import (
    EndReason,
    FaultKind,
    Finished,
    ModelFault,
    Piece,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
    UsageReport,
)
from runtime_host.results import Usage

_END_REASONS: dict[str, EndReason] = {
    "stop": EndReason.STOP,
    "eos": EndReason.STOP,
    "eos_token": EndReason.STOP,
    "end_turn": EndReason.STOP,
    "stop_sequence": EndReason.STOP,
    "length": EndReason.LENGTH,
    "max_tokens": EndReason.LENGTH,
    "model_length": EndReason.LENGTH,
    "content_filter": EndReason.CONTENT_FILTER,
    "refusal": EndReason.REFUSAL,
    "tool_calls": EndReason.TOOL_CALLS,
    "function_call": EndReason.TOOL_CALLS,
    "error": EndReason.ERROR,
}
_TOO_LONG_CODES = {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"}
_TOO_LONG_WORDS = re.compile(
    r"context (length|window|size)|maximum context|too many tokens|prompt is too long|input is too long", re.IGNORECASE
)
_QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
_FILTER_CODES = {"content_filter", "content_policy_violation", "moderation_blocked"}
_MODEL_CODES = {"model_not_found", "model_not_available", "invalid_model", "unknown_model"}
_OVERLOAD_CODES = {"overloaded_error", "server_overloaded", "engine_overloaded_error", "slow_down"}
_RATE_CODES = {"rate_limit_exceeded", "rate_limit_error", "tokens", "requests"}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_TOOL_CALLS = 128
MAX_ARGUMENTS_CHARS = 1024 * 1024
_LONGEST_WAIT_S = 7 * 24 * 3600.0


class _Slot:
    """A tool call of this reply."""

    __slots__ = ("call_id", "index", "size_chars")

    def __init__(self, index: int | None, call_id: str) -> None:
        self.index = index
        self.call_id = call_id
        self.size_chars = 0


class FrameReader:
    """Reads the frames of one reply in order."""

    def __init__(self) -> None:
        self._usage: Usage | None = None
        self._refused = False
        # Of each tool call so far: the index the server gave it, its id, the size of its arguments.
        self._calls: list[_Slot] = []
        # Half of a character that a server cut in two, one half for each kind of text.
        self._half: dict[str, str] = {"text": "", "reasoning": ""}

    def read(self, data: bytes) -> list[Piece]:
        """Pieces in one frame, in the order in which they belong.

        Raises:
            ModelFault: the frame is no JSON object, or it reports a failure.
        """
        frame = _parsed(data)
        if not isinstance(frame, dict):
            raise ModelFault(FaultKind.MALFORMED)
        if frame.get("error"):
            raise ModelFault(_kind_of_error(frame["error"]) or FaultKind.FAILED)
        pieces: list[Piece] = []
        for choice in _list(frame.get("choices")):
            if isinstance(choice, dict) and choice.get("index") in (0, None):
                pieces.extend(self._choice(choice))
        usage = _usage(frame.get("usage"))
        if usage is not None and usage != self._usage:
            self._usage = usage
            pieces.append(UsageReport(usage))
        return pieces

    def _choice(self, choice: dict[str, Any]) -> Iterator[Piece]:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            # Servers name it one way or the other; some send both with the same text.
            reasoning = self._whole("reasoning", _text(delta.get("reasoning_content")) or _text(delta.get("reasoning")))
            if reasoning:
                yield ReasoningPiece(reasoning)
            refusal = _text(delta.get("refusal"))
            self._refused = self._refused or bool(refusal)
            text = self._whole("text", _text(delta.get("content")) or refusal)
            if text:
                yield TextPiece(text)
            for entry in _list(delta.get("tool_calls")):
                if isinstance(entry, dict):
                    yield self._tool_call(entry)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            end = _END_REASONS.get(reason.lower(), EndReason.UNKNOWN)
            yield Finished(EndReason.REFUSAL if self._refused and end is EndReason.STOP else end)

    def _tool_call(self, entry: dict[str, Any]) -> ToolCallPiece:
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name, arguments = entry.get("id"), function.get("name"), function.get("arguments")
        call_id = call_id if isinstance(call_id, str) else ""
        name = name if isinstance(name, str) else ""
        if isinstance(arguments, dict):
            # Some servers send them as the object they are to be.
            arguments = json.dumps(arguments)
        arguments = arguments if isinstance(arguments, str) else ""
        index = entry.get("index")
        number = self._slot(index if type(index) is int else None, call_id, name)
        slot = self._calls[number]
        slot.call_id = slot.call_id or call_id
        slot.size_chars += len(arguments)
        if slot.size_chars > MAX_ARGUMENTS_CHARS:
            raise ModelFault(FaultKind.MALFORMED)
        return ToolCallPiece(number, call_id, name, arguments)

    def _slot(self, index: int | None, call_id: str, name: str) -> int:
        """Which call an entry belongs to. Servers leave the index out, or give each call the same one."""
        for number in range(len(self._calls) - 1, -1, -1):
            slot = self._calls[number]
            if index is None:
                goes_on = call_id == slot.call_id if call_id else not name
            else:
                goes_on = index == slot.index and (not call_id or not slot.call_id or call_id == slot.call_id)
            if goes_on:
                return number
            if index is None and not call_id:
                break
        if len(self._calls) >= MAX_TOOL_CALLS:
            raise ModelFault(FaultKind.MALFORMED)
        self._calls.append(_Slot(index, call_id))
        return len(self._calls) - 1

    def _whole(self, kind: str, text: str) -> str:
        """`text` as text that can be stored: halves joined with what follows, what stays half replaced."""
        if not text or (text.isascii() and not self._half[kind]):
            return text
        text = self._half[kind] + text
        self._half[kind] = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self._half[kind] = text[-1]
            text = text[:-1]
        if _LONE_SURROGATE.search(text):
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text


def refusal_fault(status: int, headers: Mapping[str, str], body: bytes, *, now: datetime | None = None) -> ModelFault:
    """What an answer that is no success means. Only known codes are read out of its body, never its text."""
    parsed = _parsed(body, tolerant=True)
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
    kind = _kind_of_status(status, error)
    wait_s = _retry_after_s(headers, now or datetime.now(UTC)) if status in (408, 429) or status >= 500 else None
    return ModelFault(kind, http_status=status, retry_after_s=wait_s)


def refuses_stream_options(status: int, body: bytes) -> bool:
    """Whether the server refused the request for the one field that is an extra: it then did nothing else with it."""
    return status in (400, 422) and b"stream_options" in body


def _kind_of_status(status: int, error: Any) -> FaultKind:
    named = _kind_of_error(error)
    if 300 <= status < 400:
        return FaultKind.REDIRECTED
    if status == 401:
        return FaultKind.KEY_REFUSED
    if status == 402:
        return FaultKind.QUOTA_EXHAUSTED
    if status == 403:
        return FaultKind.FORBIDDEN
    if status == 404:
        return (
            FaultKind.MODEL_UNKNOWN if named is FaultKind.MODEL_UNKNOWN or _names_model(error) else FaultKind.NOT_FOUND
        )
    if status == 413:
        return FaultKind.CONTEXT_TOO_LONG
    if status == 429:
        return FaultKind.QUOTA_EXHAUSTED if named is FaultKind.QUOTA_EXHAUSTED else FaultKind.RATE_LIMITED
    if status == 408 or status >= 500:
        # llama.cpp answers an overlong prompt with 500 in some versions.
        return FaultKind.CONTEXT_TOO_LONG if named is FaultKind.CONTEXT_TOO_LONG else FaultKind.UNAVAILABLE
    if status in (400, 405, 409, 410, 415, 422):
        return named or FaultKind.REQUEST_REFUSED
    return FaultKind.REQUEST_REFUSED if 400 <= status < 500 else FaultKind.MALFORMED


def _kind_of_error(error: Any) -> FaultKind | None:
    """What an error object says by its codes; free text decides only that a prompt was too long."""
    if not isinstance(error, dict):
        return None
    codes = {value.lower() for value in (error.get("code"), error.get("type")) if isinstance(value, str)}
    status = error.get("code")
    for known, kind in (
        (_TOO_LONG_CODES, FaultKind.CONTEXT_TOO_LONG),
        (_QUOTA_CODES, FaultKind.QUOTA_EXHAUSTED),
        (_FILTER_CODES, FaultKind.CONTENT_FILTERED),
        (_MODEL_CODES, FaultKind.MODEL_UNKNOWN),
        (_OVERLOAD_CODES, FaultKind.UNAVAILABLE),
        (_RATE_CODES, FaultKind.RATE_LIMITED),
    ):
        if codes & known:
            return kind
    message = error.get("message")
    if isinstance(message, str) and _TOO_LONG_WORDS.search(message):
        return FaultKind.CONTEXT_TOO_LONG
    if status == 429:
        return FaultKind.RATE_LIMITED
    return None


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


def _parsed(data: bytes, *, tolerant: bool = False) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        # Slower, but takes half characters and NaN, which some servers write.
        return json.loads(data)
    except (ValueError, RecursionError):
        if tolerant:
            return None
        raise ModelFault(FaultKind.MALFORMED) from None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    # Some servers send content as typed parts, as the request format does.
    return "".join(
        part["text"]
        for part in _list(value)
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    prompt = value.get("prompt_tokens_details")
    completion = value.get("completion_tokens_details")
    usage = Usage(
        input_tokens=_count(value, "prompt_tokens"),
        cached_input_tokens=_count(prompt, "cached_tokens"),
        cache_write_input_tokens=_count(prompt, "cache_write_tokens"),
        output_tokens=_count(value, "completion_tokens"),
        reasoning_tokens=_count(completion, "reasoning_tokens"),
        total_tokens=_count(value, "total_tokens"),
    )
    return None if usage == Usage() else usage


def _count(value: Any, name: str) -> int | None:
    count = value.get(name) if isinstance(value, dict) else None
    return count if type(count) is int and 0 <= count < 2**53 else None
