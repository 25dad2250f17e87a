"""What a harness can do and who enforces it. What is not known is said to be unknown."""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator

from runtime_host.canonical import FrozenDict, freeze
from runtime_host.frozen import Frozen, JsonObject, NonBlank

Support = Literal["native", "emulated", "unsupported"]
Minimum = Literal["native", "emulated"]
Durability = Literal["process", "durable", "unknown"]
TextMap = Annotated[dict[str, str], AfterValidator(freeze)]
UNKNOWN: Final = "unknown"

CAPABILITY_IDS: Final = (
    "session.continue",
    "session.restore",
    "run.cancel",
    "run.structured_output",
    "run.model_override",
    "run.reasoning_override",
    "run.interaction",
    "run.approval",
    "run.user_input",
    "run.steer",
    "input.image",
    "event.live",
    "event.message",
    "event.reasoning",
    "event.plan",
    "event.command",
    "event.command_output",
    "event.file_change",
    "event.tool",
    "event.tool_progress",
    "file.upload",
    "file.download",
    "isolation.workspace",
    "isolation.tenant",
)
"""Capabilities with a meaning here. A driver may name more."""


class Capability(Frozen):
    """How a harness carries something.

    Attributes:
        constraints: facts a program can act on, e.g. the reasoning efforts that were verified.
        reason: a sentence or half of one for the person.
    """

    called: ClassVar[str] = "capability"

    support: Support
    reason: str | None = None
    constraints: JsonObject = FrozenDict()


class CapabilityRequirement(Frozen):
    """What a caller needs. `emulated` takes native and emulated, `native` takes native only."""

    called: ClassVar[str] = "capability"
    place: ClassVar[str] = "required_capabilities"

    id: NonBlank
    minimum: Minimum = "emulated"


class DriverInspection(Frozen):
    """What a driver says of a binding.

    Attributes:
        capabilities: by id (`session.continue`, `run.cancel`, `event.reasoning` …); a missing id is
            unsupported.
        enforcement: who enforces each policy field; a missing one is unknown.
        prerequisites: sentences on what must be there before the first run.
        usage_coverage: what the usage of a result counts, in words.
        native_tool_names: by application tool, what the harness calls it, where that was verified.
        configuration_revision: another value whenever the harness is configured otherwise in a way that matters to
            a session that goes on; None when nothing of it can be configured.
    """

    driver_id: str
    capabilities: dict[str, Capability]
    enforcement: TextMap = FrozenDict()
    prerequisites: tuple[str, ...] = ()
    usage_coverage: str = UNKNOWN
    native_tool_names: TextMap = FrozenDict()
    configuration_revision: NonBlank | None = None


class ToolInspection(Frozen):
    """A selected application tool: its name and the digest of what a model is told of it."""

    name: str
    schema_digest: str
    native_name: str = UNKNOWN


class ReplayBounds(Frozen):
    """How much of what happened can be seen again.

    Attributes:
        event_buffer_bytes: of one run.
        session_journal_bytes: of all ended runs of a session together; the oldest expire first.
    """

    event_buffer_bytes: int
    session_journal_bytes: int


class InspectedEnvironment(Frozen):
    """Where a session would work. `root` is the real path, which is also its identity."""

    type: Literal["none", "local-directory", "provider-managed"]
    root: str | None = None
    reference: str | None = None


class AgentInspection(Frozen):
    """What a binding of a definition would be, found out without any effect.

    Attributes:
        capabilities, prerequisites, usage_coverage: as the driver says.
        enforcement: who enforces each policy field and each limit; `unknown` where nobody said.
        definition_digest: equal for the same definition whichever harness carries it.
        execution_digest: of definition, binding, environment, policy, tools and observation together.
        tools, tools_fingerprint: of the application tools selected; the fingerprint is the resolver's.
        configuration: model and reasoning that a run has unless it says otherwise.
        configuration_revision: what the harness is configured as; a session is not continued with another.
        durability: whether sessions outlive this process; `unknown` unless the host said.
        account_access: whether the account may use the model; nothing is asked to find out.
        replay: how much of the events can be seen again.
    """

    driver_id: str
    capabilities: dict[str, Capability]
    enforcement: TextMap = FrozenDict()
    prerequisites: tuple[str, ...] = ()
    definition_digest: str
    execution_digest: str
    tools: tuple[ToolInspection, ...] = ()
    tools_fingerprint: str | None = None
    configuration: JsonObject = FrozenDict()
    configuration_revision: NonBlank | None = None
    environment: InspectedEnvironment = InspectedEnvironment(type="none")
    durability: Durability = UNKNOWN
    usage_coverage: str = UNKNOWN
    account_access: Literal["unknown"] = UNKNOWN
    replay: ReplayBounds


def strongest(requirements: Iterable[CapabilityRequirement]) -> dict[str, Minimum]:
    """The union of requirements: of two for one capability the stronger minimum holds."""
    union: dict[str, Minimum] = {}
    for requirement in requirements:
        if union.get(requirement.id) != "native":
            union[requirement.id] = requirement.minimum
    return union


def missing(capabilities: Mapping[str, Capability], needed: Mapping[str, Minimum]) -> tuple[str, str] | None:
    """The first capability that is not there as needed, and why. One that is not named is not there."""
    for name, minimum in needed.items():
        capability = capabilities.get(name)
        if capability is None or capability.support == "unsupported":
            reason = f" ({capability.reason})" if capability is not None and capability.reason else ""
            return name, f"{name} is not supported{reason}"
        if minimum == "native" and capability.support != "native":
            return name, f"{name} is only emulated, and native was asked for"
    return None
