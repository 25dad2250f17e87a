"""What any model API yields and how it fails, in our own words.

Owns the common language of the model APIs. Must not know SDKs, drivers or events. Invariants: a `ModelFault`
carries no text of the server, which may echo the key; what was sent and not answered is never sent again.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from runtime_host.results import Usage


class ChatRequest(NamedTuple):
    """One request. `messages` and `tools` are plain objects, as chat completions write them."""

    model: str
    messages: Sequence[dict[str, Any]]
    reasoning_effort: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: Sequence[dict[str, Any]] = ()

    def fields(self) -> dict[str, Any]:
        """As chat completions name them."""
        fields: dict[str, Any] = {"model": self.model, "messages": list(self.messages), "stream": True}
        optional = {
            "reasoning_effort": self.reasoning_effort,
            "max_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }
        if self.tools:
            fields["tools"] = list(self.tools)
        fields |= {name: value for name, value in optional.items() if value is not None}
        return fields


class TextPiece(NamedTuple):
    """New text of the reply."""

    text: str


class ReasoningPiece(NamedTuple):
    """New text of the model's reasoning, as far as the server shows it."""

    text: str


class ToolCallPiece(NamedTuple):
    """More of a tool call that the model asks for.

    Attributes:
        slot: which call of this reply, from 0.
        call_id, name: empty where this piece does not say them.
        arguments: new JSON text of the arguments.
    """

    slot: int
    call_id: str
    name: str
    arguments: str


class Finished(NamedTuple):
    """The server said how the reply ended: one of `EndReason`."""

    reason: "EndReason"


class UsageReport(NamedTuple):
    usage: Usage


Piece = TextPiece | ReasoningPiece | ToolCallPiece | Finished | UsageReport


class EndReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    TOOL_CALLS = "tool_calls"
    ERROR = "error"
    UNKNOWN = "unknown"


class FaultKind(StrEnum):
    """Stable codes of what went wrong between us and a model server."""

    KEY_REFUSED = "PROVIDER_KEY_REFUSED"
    FORBIDDEN = "PROVIDER_FORBIDDEN"
    QUOTA_EXHAUSTED = "PROVIDER_QUOTA_EXHAUSTED"
    MODEL_UNKNOWN = "PROVIDER_MODEL_UNKNOWN"
    NOT_FOUND = "PROVIDER_NOT_FOUND"
    RATE_LIMITED = "PROVIDER_RATE_LIMITED"
    UNAVAILABLE = "PROVIDER_UNAVAILABLE"
    REDIRECTED = "PROVIDER_REDIRECTED"
    REQUEST_REFUSED = "PROVIDER_REQUEST_REFUSED"
    CONTEXT_TOO_LONG = "PROVIDER_CONTEXT_TOO_LONG"
    CONTENT_FILTERED = "PROVIDER_CONTENT_FILTERED"
    UNREACHABLE = "PROVIDER_UNREACHABLE"
    TLS = "PROVIDER_TLS"
    OUT_OF_SCOPE = "PROVIDER_OUT_OF_SCOPE"
    STREAM_CUT = "PROVIDER_STREAM_CUT"
    SILENT = "PROVIDER_SILENT"
    MALFORMED = "PROVIDER_MALFORMED"
    FAILED = "PROVIDER_FAILED"


class TlsReason(StrEnum):
    UNTRUSTED = "untrusted"
    EXPIRED = "expired"
    WRONG_HOST = "wrong-host"
    HANDSHAKE = "handshake"


class ModelFault(Exception):
    """A request or stream that failed.

    Attributes:
        kind: what happened.
        http_status: of the answer, when there was one.
        retry_after_s: how long the server asked to wait.
        tls: what was wrong with the certificate or handshake.
        sent: False only when it is certain that nothing reached the server.
    """

    def __init__(
        self,
        kind: FaultKind,
        *,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        tls: TlsReason | None = None,
        sent: bool = True,
    ) -> None:
        super().__init__(kind.value)
        self.kind = kind
        self.http_status = http_status
        self.retry_after_s = retry_after_s
        self.tls = tls
        self.sent = sent
