"""What any model API is asked, what it yields and how it fails, in our own words.

Owns the common language of the model APIs. Must not know SDKs, drivers or events. Invariants: a `ModelFault`
carries no text of the server, which may echo the key; nothing of one provider's own form is in a request, except
what the same provider gave in this run to be handed back (`Message.kept`).
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol

from runtime_host.connectors.base import Access
from runtime_host.results import Usage
from runtime_host.tools.base import ToolOffer


class Image(NamedTuple):
    """A picture of an input. `media_type` is image/png, image/jpeg, image/gif or image/webp."""

    media_type: str
    data: bytes


class Call(NamedTuple):
    """A tool call of an earlier reply. `arguments` is the text of a JSON object."""

    call_id: str
    name: str
    arguments: str


class Answer(NamedTuple):
    """What a tool call came to, in words for the model."""

    call_id: str
    text: str
    success: bool = True


class Message(NamedTuple):
    """One message of the conversation.

    Attributes:
        role: `tools` answers all calls of the assistant's message before it.
        images: of a user.
        calls: of an assistant, after `text`.
        answers: of `tools`.
        kept: of an assistant: what its provider gave in `Kept`; it stands for `text` and says where each of `calls`
            belongs.
    """

    role: Literal["user", "assistant", "tools"]
    text: str = ""
    images: tuple[Image, ...] = ()
    calls: tuple[Call, ...] = ()
    answers: tuple[Answer, ...] = ()
    kept: tuple[Mapping[str, Any], ...] = ()


class Schema(NamedTuple):
    """What the answer has to be. `strict`: whether the provider is to hold the model to it."""

    schema: Mapping[str, Any]
    name: str = "answer"
    strict: bool | None = None


class ChatRequest(NamedTuple):
    """One request.

    Attributes:
        messages: user first and last of its turns; the roles alternate, `tools` counting as user.
        reasoning_effort: `none` switches reasoning off.
        reasons: whether the model is known to reason, so that what comes of it may be asked for.
        schema: only for an API and model with a mode for it.
    """

    model: str
    messages: Sequence[Message]
    instructions: str = ""
    tools: Sequence[ToolOffer] = ()
    reasoning_effort: str | None = None
    reasons: bool = False
    schema: Schema | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None


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
    """The server said how the reply ended."""

    reason: "EndReason"


class UsageReport(NamedTuple):
    """Tokens of this reply so far; a later report stands for the earlier ones."""

    usage: Usage


class Kept(NamedTuple):
    """The reply in its provider's own form, for `Message.kept`: signed or sealed reasoning goes back as it came.

    An entry ``{"call": call_id}`` stands where a tool call was, and may hold more of it.
    """

    entries: tuple[Mapping[str, Any], ...]


Piece = TextPiece | ReasoningPiece | ToolCallPiece | Finished | UsageReport | Kept


class ModelApi(Protocol):
    """One kind of API of model servers; keeps its connections between requests."""

    def stream(self, access: Access, request: ChatRequest) -> AsyncGenerator[Piece, None]:
        """Send `request`, once, and yield the reply as it comes; `Finished` is in it unless this raises.

        Raises:
            ModelFault: refused, failed, cut or silent.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        ...


class EndReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    CONTEXT_FULL = "context_full"
    TOOL_CALLS = "tool_calls"
    PAUSED = "paused"
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
    PICTURE_REFUSED = "PROVIDER_PICTURE_REFUSED"
    UNREACHABLE = "PROVIDER_UNREACHABLE"
    TLS = "PROVIDER_TLS"
    PROXY = "NETWORK_PROXY"
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
        proxy: what went wrong on the way, before the server saw anything: a `ProxyReason` of the transport.
        sent: False only when it is certain that nothing reached the server.
    """

    def __init__(
        self,
        kind: FaultKind,
        *,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        tls: TlsReason | None = None,
        proxy: str | None = None,
        sent: bool = True,
    ) -> None:
        super().__init__(kind.value)
        self.kind = kind
        self.http_status = http_status
        self.retry_after_s = retry_after_s
        self.tls = tls
        self.proxy = proxy
        self.sent = sent

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed in a moment. Repeating it repeats no effect: a model only answers."""
        return self.kind in _PASSING or self.proxy in ("unreachable", "no-way", "broken")


_PASSING = {
    FaultKind.RATE_LIMITED,
    FaultKind.UNAVAILABLE,
    FaultKind.UNREACHABLE,
    FaultKind.STREAM_CUT,
    FaultKind.FAILED,
}
