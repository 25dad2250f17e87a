"""What a session may touch and how much it may produce. Nothing has a default that permits."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

DEFAULT_EVENT_BUFFER_BYTES = 1024 * 1024


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(_Frozen):
    """Bounds of a run; None is no bound of ours. Bytes are UTF-8 bytes."""

    wall_time_ms: int | None = Field(default=None, gt=0, le=2**53 - 1)
    output_bytes: int | None = Field(default=None, gt=0, le=2**53 - 1)
    artifact_bytes: int | None = Field(default=None, gt=0, le=2**53 - 1)
    event_buffer_bytes: int = Field(default=DEFAULT_EVENT_BUFFER_BYTES, ge=1024, le=2**53 - 1)


class Policy(_Frozen):
    filesystem: Literal["denied", "read-only", "workspace-write"]
    commands: Literal["denied", "sandboxed"]
    sandbox_network: Literal["denied", "allowed"]
    provider_web_search: Literal["denied", "allowed"]
    approvals: Literal["deny", "interactive"]
    limits: Limits = Limits()


CHAT = Policy(
    filesystem="denied", commands="denied", sandbox_network="denied", provider_web_search="denied", approvals="deny"
)
"""Touches nothing."""
