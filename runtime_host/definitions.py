"""Definitions, bindings and options: frozen, validated, without credentials."""

import re
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import ConfigDict, Discriminator, Field, StringConstraints, field_validator, model_validator

from runtime_host.canonical import FrozenDict
from runtime_host.capabilities import CapabilityRequirement
from runtime_host.frozen import Flag, Frozen, JsonObject, NonBlank, PositiveInteger, Text
from runtime_host.policy import Policy

__all__ = ["NonBlank"]

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"]
ControlMode = Literal["observe-only", "steerable"]

_WILDCARDS = re.compile(r"[*?\[\]{}]")


class AgentDefinition(Frozen):
    """A logical agent, the same whichever harness carries it.

    Attributes:
        id: logical identity.
        instructions: the system text.
        tools: exact names of application tools; no wildcards, none twice.
    """

    called: ClassVar[str] = "definition"

    id: NonBlank
    instructions: Text = ""
    tools: tuple[NonBlank, ...] = ()

    @field_validator("tools")
    @classmethod
    def _exact(cls, tools: tuple[str, ...]) -> tuple[str, ...]:
        for name in tools:
            if _WILDCARDS.search(name):
                raise ValueError("tools are named exactly, without wildcards")
        if len(set(tools)) != len(tools):
            raise ValueError("a tool is named twice")
        return tools


class ReasoningConfig(Frozen):
    """How much a model is to think. Given at all, it is switched on unless it says otherwise."""

    called: ClassVar[str] = "reasoning"
    place: ClassVar[str] = "reasoning"

    enabled: Flag = True
    effort: Effort | None = None
    budget_tokens: PositiveInteger | None = None


class ExecutionBinding(Frozen):
    """Which harness, with which credential and model. The connector is the only authority over keys."""

    called: ClassVar[str] = "execution"
    place: ClassVar[str] = "execution"

    driver: NonBlank
    connector: NonBlank
    model: NonBlank
    reasoning: ReasoningConfig | None = None
    driver_config: JsonObject = FrozenDict()


class TrustedContext(Frozen):
    """Whose session it is: said by the host, never by a model or a renderer.

    Attributes:
        metadata: the host's own remarks; no part of whose session it is.
    """

    called: ClassVar[str] = "context"
    place: ClassVar[str] = "context"

    tenant_id: Text | None = None
    user_id: Text | None = None
    group_id: Text | None = None
    metadata: JsonObject = FrozenDict()

    def scope(self) -> dict[str, str | None]:
        """What decides whose session it is."""
        return {"tenant_id": self.tenant_id, "user_id": self.user_id, "group_id": self.group_id}


class Environment(Frozen):
    """Where a session works: nowhere, in a folder of this computer, or where the provider says.

    Attributes:
        path: of a local directory.
        reference: a template or environment of the provider that the host has reviewed.
    """

    called: ClassVar[str] = "environment"
    place: ClassVar[str] = "environment"

    type: Literal["none", "local-directory", "provider-managed"] = "none"
    path: NonBlank | None = None
    reference: NonBlank | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.path is not None) != (self.type == "local-directory"):
            raise ValueError("path belongs to the type local-directory, and only to it")
        if self.reference is not None and self.type != "provider-managed":
            raise ValueError("reference belongs to the type provider-managed")
        return self


class Observation(Frozen):
    """What of a run is published. It never changes what the run does."""

    called: ClassVar[str] = "observation"
    place: ClassVar[str] = "observation"

    mode: Literal["live", "final-only"] = "live"
    detail: Literal["status", "activity", "reasoning"] = "reasoning"


class SessionOptions(Frozen):
    """How an agent is bound for a session.

    Attributes:
        control_mode: `steerable` needs a harness that can be steered.
        required_capabilities: what the harness must be able to do, besides what a run needs by itself.
        metadata: the host's own remarks, kept with the session.
    """

    called: ClassVar[str] = "session"

    execution: ExecutionBinding
    context: TrustedContext
    environment: Environment = Environment()
    policy: Policy
    observation: Observation = Observation()
    control_mode: ControlMode = "observe-only"
    required_capabilities: tuple[CapabilityRequirement, ...] = ()
    metadata: JsonObject = FrozenDict()


# ------------------------------------------------------------------------------------------ inputs


class TextPart(Frozen):
    """Words."""

    called: ClassVar[str] = "input"

    type: Literal["text"] = "text"
    text: Text


class WorkspaceFilePart(Frozen):
    """An image inside the session's local directory. It is never uploaded anywhere by this.

    Attributes:
        path: relative to the directory, or absolute within it.
        media_type: when it is missing the name's ending tells.
    """

    called: ClassVar[str] = "input"

    type: Literal["workspace-file"] = "workspace-file"
    path: NonBlank
    media_type: Annotated[str, StringConstraints(strict=True, pattern=r"^image/[\w.+-]+$")] | None = None


ImageType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
MAX_IMAGE_BYTES: Final = 3 * 1024 * 1024
MAX_IMAGES: Final = 8


class ImagePart(Frozen):
    """A picture that goes to the model with the words. It is kept with the conversation and sent again with it.

    Attributes:
        data: the file as it is; it must begin as files of its type do.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    called: ClassVar[str] = "input"

    type: Literal["image"] = "image"
    media_type: ImageType
    data: Annotated[bytes, Field(strict=True, min_length=1, max_length=MAX_IMAGE_BYTES, repr=False)]

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if image_type(self.data) != self.media_type:
            raise ValueError("the picture is of another type than it is said to be, or none")
        return self


def image_type(data: bytes) -> ImageType | None:
    """Of which type a picture is, by how it begins; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None


InputPart: TypeAlias = Annotated[TextPart | WorkspaceFilePart | ImagePart, Discriminator("type")]


class RunInput(Frozen):
    """An input in parts.

    Attributes:
        metadata: kept with the run; what the run's options say of a key wins.
    """

    called: ClassVar[str] = "input"

    parts: Annotated[tuple[InputPart, ...], Field(min_length=1)]
    metadata: JsonObject = FrozenDict()

    @field_validator("parts")
    @classmethod
    def _not_too_many(cls, parts: tuple[InputPart, ...]) -> tuple[InputPart, ...]:
        if sum(isinstance(part, ImagePart) for part in parts) > MAX_IMAGES:
            raise ValueError(f"one message brings at most {MAX_IMAGES} pictures")
        return parts


class TextFormat(Frozen):
    called: ClassVar[str] = "response_format"
    place: ClassVar[str] = "response_format"

    type: Literal["text"] = "text"


class JsonSchemaFormat(Frozen):
    """The answer is to be JSON that meets a schema; it is checked here whatever the harness promises."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_alias=True, validate_by_name=True)
    called: ClassVar[str] = "response_format"
    place: ClassVar[str] = "response_format"

    type: Literal["json_schema"] = "json_schema"
    json_schema: JsonObject = Field(alias="schema")
    name: NonBlank | None = None
    strict: Flag | None = None


ResponseFormat: TypeAlias = Annotated[TextFormat | JsonSchemaFormat, Discriminator("type")]


class RunOptions(Frozen):
    """Per-run choices. `request_id` makes a repeated call the same run."""

    called: ClassVar[str] = "run"

    request_id: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)] | None = None
    model: NonBlank | None = None
    reasoning: ReasoningConfig | None = None
    response_format: ResponseFormat | None = None
    metadata: JsonObject = FrozenDict()

    def content(self) -> dict[str, Any]:
        """What of the options makes two requests the same request. A name that is not used is not in it."""
        content = self.model_dump(mode="json", exclude={"request_id", "response_format"})
        if isinstance(self.response_format, JsonSchemaFormat):
            content["response_format"] = self.response_format.model_dump(mode="json")
        return content
