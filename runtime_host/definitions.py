"""Definitions, bindings and options: frozen, validated, without credentials."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from runtime_host.policy import Policy

NonBlank = Annotated[str, StringConstraints(strip_whitespace=False, min_length=1, pattern=r"\S")]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AgentDefinition(_Frozen):
    """A logical agent, the same whichever harness carries it.

    Attributes:
        id: logical identity.
        instructions: the system text.
        tools: exact names of application tools; no wildcards.
    """

    id: NonBlank
    instructions: str = ""
    tools: tuple[NonBlank, ...] = ()


class ReasoningConfig(_Frozen):
    enabled: bool = True
    effort: Effort | None = None
    budget_tokens: int | None = Field(default=None, gt=0)


class ExecutionBinding(_Frozen):
    """Which harness, with which credential and model. The connector is the only authority over keys."""

    driver: NonBlank
    connector: NonBlank
    model: NonBlank
    reasoning: ReasoningConfig | None = None
    driver_config: dict[str, Any] = {}


class TrustedContext(_Frozen):
    """Whose session it is: said by the host, never by a model or a renderer."""

    tenant_id: str | None = None
    user_id: str | None = None
    group_id: str | None = None


class Environment(_Frozen):
    type: Literal["none", "local-directory", "provider-managed"] = "none"
    path: str | None = None
    reference: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.path is not None) != (self.type == "local-directory"):
            raise ValueError("path belongs to the type local-directory, and only to it")
        if self.reference is not None and self.type != "provider-managed":
            raise ValueError("reference belongs to the type provider-managed")
        return self


class Observation(_Frozen):
    mode: Literal["live", "final-only"] = "live"
    detail: Literal["status", "activity", "reasoning"] = "reasoning"


class SessionOptions(_Frozen):
    execution: ExecutionBinding
    context: TrustedContext
    environment: Environment = Environment()
    policy: Policy
    observation: Observation = Observation()


class RunOptions(_Frozen):
    """Per-run choices. `request_id` makes a repeated call the same run."""

    request_id: str | None = Field(default=None, min_length=1, max_length=256)
    model: NonBlank | None = None
    reasoning: ReasoningConfig | None = None
    metadata: dict[str, Any] = {}
