"""What a session may touch and how much it may produce. Nothing has a default that permits."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from runtime_host.frozen import MAX_SAFE_INTEGER, Frozen, PositiveInteger

DEFAULT_EVENT_BUFFER_BYTES: Final = 1024 * 1024
MIN_EVENT_BUFFER_BYTES: Final = 1024


class Limits(Frozen):
    """Bounds of a run; None is no bound of ours. Bytes are UTF-8 bytes.

    A harness may know limits of its own; any other name is taken with a positive whole number, and the
    inspection tells that the runtime does not enforce it.

    Attributes:
        wall_time_ms: from the dispatch of the input to the confirmed end.
        output_bytes: of the answer's text, of the parsed answer, and of native detail.
        artifact_bytes: of the result's list of artifacts as JSON; also of one transferred file.
        event_buffer_bytes: of the events kept for replay.
    """

    model_config = ConfigDict(extra="allow")
    called: ClassVar[str] = "policy"
    place: ClassVar[str] = "policy.limits"
    __pydantic_extra__: dict[str, PositiveInteger] = Field(init=False)

    wall_time_ms: PositiveInteger | None = None
    output_bytes: PositiveInteger | None = None
    artifact_bytes: PositiveInteger | None = None
    event_buffer_bytes: Annotated[int, Field(strict=True, ge=MIN_EVENT_BUFFER_BYTES, le=MAX_SAFE_INTEGER)] = (
        DEFAULT_EVENT_BUFFER_BYTES
    )


class Policy(Frozen):
    """What a session may touch. All five are said each time; there is no default.

    Attributes:
        sandbox_network: what commands and tools reach; never the way to the model's provider.
        provider_web_search: a search of the provider's own; never network for commands.
    """

    called: ClassVar[str] = "policy"
    place: ClassVar[str] = "policy"

    filesystem: Literal["denied", "read-only", "workspace-write"]
    commands: Literal["denied", "sandboxed"]
    sandbox_network: Literal["denied", "allowed"]
    provider_web_search: Literal["denied", "allowed"]
    approvals: Literal["deny", "interactive"]
    limits: Limits = Limits()


POLICY_FIELDS: Final[tuple[str, ...]] = tuple(name for name in Policy.model_fields if name != "limits")

CHAT = Policy(
    filesystem="denied", commands="denied", sandbox_network="denied", provider_web_search="denied", approvals="deny"
)
"""Touches nothing."""
