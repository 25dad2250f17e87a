"""What a run ends as."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

RunStatus = Literal["completed", "failed", "cancelled", "incomplete"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Usage(_Frozen):
    """Tokens as the provider counted them; None is not reported, never zero."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None


class RunError(_Frozen):
    """Why a run failed: a code for programs and a sentence for the person."""

    code: str
    message: str
    retryable: bool = False
    details: dict[str, Any] = {}


class Artifact(_Frozen):
    """Something a run made."""

    type: Literal["workspace-change", "reference"]
    path: str | None = None
    change: Literal["created", "modified", "deleted"] | None = None
    patch: str | None = None
    name: str | None = None
    media_type: str | None = None
    reference: str | None = None


class AgentResult(_Frozen):
    """Terminal result of a run. `error` is there whenever `status` is failed."""

    run_id: str
    session_id: str
    status: RunStatus
    output_text: str = ""
    output_parsed: Any = None
    artifacts: tuple[Artifact, ...] = ()
    usage: Usage | None = None
    finish_reason: str | None = None
    error: RunError | None = None
    configuration: dict[str, Any] = {}


class DriverResult(_Frozen):
    """What a driver says its native run came to. The runtime decides the final status."""

    status: RunStatus
    output_text: str = ""
    usage: Usage | None = None
    finish_reason: str | None = None
    error: RunError | None = None
