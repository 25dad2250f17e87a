"""What a harness can do and who enforces it. What is not known is said to be unknown."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Support = Literal["native", "emulated", "unsupported"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Capability(_Frozen):
    support: Support
    reason: str | None = None


class DriverInspection(_Frozen):
    """What a driver says of a binding.

    Attributes:
        capabilities: by id (`session.continue`, `run.cancel`, `event.reasoning` …); a missing id is
            unsupported.
        enforcement: who enforces each policy field; a missing one is unknown.
        prerequisites: sentences on what must be there before the first run.
    """

    driver_id: str
    capabilities: dict[str, Capability]
    enforcement: dict[str, str] = {}
    prerequisites: tuple[str, ...] = ()


class AgentInspection(_Frozen):
    """What a binding of a definition would be, found out without any effect.

    Attributes:
        capabilities, enforcement, prerequisites: as the driver says.
        definition_digest: equal for the same definition whichever harness carries it.
        execution_digest: of definition, binding, environment, policy and observation together.
        event_buffer_bytes: how much of a run's events can be replayed.
    """

    driver_id: str
    capabilities: dict[str, Capability]
    enforcement: dict[str, str] = {}
    prerequisites: tuple[str, ...] = ()
    definition_digest: str
    execution_digest: str
    event_buffer_bytes: int
