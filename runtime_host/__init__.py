"""The Agent Runtime: durable sessions of swappable agent harnesses. What is named here is public, nothing else is.

Owns the public names. Invariant: importing this package imports none of its modules; each name brings
its own at first use.
"""

# Type checkers know the name; importing `typing` for it would cost more than all the rest.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from runtime_host.abort import AbortSignal
    from runtime_host.capabilities import (
        AgentInspection,
        Capability,
        CapabilityRequirement,
        DriverInspection,
        InspectedEnvironment,
        ReplayBounds,
        ToolInspection,
    )
    from runtime_host.connectors.base import Connector, ConnectorRegistry, ConnectorTest, SecretRef
    from runtime_host.connectors.model_list import list_models
    from runtime_host.connectors.network import NetworkSettings, set_network, system_network
    from runtime_host.connectors.testing import test_connector
    from runtime_host.definitions import (
        AgentDefinition,
        Environment,
        ExecutionBinding,
        ImagePart,
        JsonSchemaFormat,
        Observation,
        ReasoningConfig,
        RunInput,
        SessionOptions,
        TextFormat,
        TextPart,
        TrustedContext,
        WorkspaceFilePart,
    )
    from runtime_host.errors import (
        AgentAbortedError,
        AgentBusyError,
        AgentCapabilityUnsupportedError,
        AgentClosedError,
        AgentConfigurationChangedError,
        AgentDriverConfigurationError,
        AgentDriverNotFoundError,
        AgentEventHistoryExpiredError,
        AgentEventSubscriberOverflowError,
        AgentNativeExecutionError,
        AgentPolicyUnsupportedError,
        AgentRecordTooLargeError,
        AgentRequestConflictError,
        AgentRequestLedgerFullError,
        AgentRuntimeDependencyError,
        AgentRuntimeError,
        AgentRunTimeoutError,
        AgentScopeMismatchError,
        AgentSessionRecoveryError,
        AgentStructuredOutputError,
        AgentTransferError,
        AgentUnresolvedEffectError,
        AgentWorkspaceError,
        ConnectorError,
        StorageDamagedError,
        StorageError,
        StorageFailedError,
        StorageForeignError,
        StorageLockedError,
        StorageUnsupportedError,
    )
    from runtime_host.events import AgentEvent, EventType
    from runtime_host.journal import Gap, Journal, JournalSlice
    from runtime_host.models.declared import DeclaredModels, read_models_toml
    from runtime_host.models.facts import ModelFacts, facts_for
    from runtime_host.policy import Limits, Policy
    from runtime_host.results import AgentResult, Artifact, RunError, Usage
    from runtime_host.run import Run, Windows
    from runtime_host.runtime import Agent, AgentRuntime, LocalBackend, RecoveredRun
    from runtime_host.session import InspectedState, Session, SessionReference, UnresolvedEffect
    from runtime_host.storage.memory import MemoryAgentStore
    from runtime_host.storage.sqlite import open_agent_store
    from runtime_host.tools.base import (
        HostTool,
        Permission,
        ReconcileBounds,
        Reconciliation,
        ResolutionContext,
        ResolvedTools,
        RetainedObservation,
        RunCompletion,
        ToolCall,
        ToolContext,
        ToolFailedError,
        ToolOutcomeUnknownError,
        ToolReceipt,
        ToolReport,
    )
    from runtime_host.transcript import OpenItem
    from runtime_host.transfer.copy import TransferProgress, Transferred
    from runtime_host.transfer.grant import TransferOptions

_HOMES = {
    "abort": ("AbortSignal",),
    "capabilities": (
        "AgentInspection",
        "Capability",
        "CapabilityRequirement",
        "DriverInspection",
        "InspectedEnvironment",
        "ReplayBounds",
        "ToolInspection",
    ),
    "connectors.base": ("Connector", "ConnectorRegistry", "ConnectorTest", "SecretRef"),
    "connectors.model_list": ("list_models",),
    "connectors.network": ("NetworkSettings", "set_network", "system_network"),
    "connectors.testing": ("test_connector",),
    "definitions": (
        "AgentDefinition",
        "Environment",
        "ExecutionBinding",
        "ImagePart",
        "JsonSchemaFormat",
        "Observation",
        "ReasoningConfig",
        "RunInput",
        "SessionOptions",
        "TextFormat",
        "TextPart",
        "TrustedContext",
        "WorkspaceFilePart",
    ),
    "errors": (
        "AgentAbortedError",
        "AgentBusyError",
        "AgentCapabilityUnsupportedError",
        "AgentClosedError",
        "AgentConfigurationChangedError",
        "AgentDriverConfigurationError",
        "AgentDriverNotFoundError",
        "AgentEventHistoryExpiredError",
        "AgentEventSubscriberOverflowError",
        "AgentNativeExecutionError",
        "AgentPolicyUnsupportedError",
        "AgentRecordTooLargeError",
        "AgentRequestConflictError",
        "AgentRequestLedgerFullError",
        "AgentRunTimeoutError",
        "AgentRuntimeDependencyError",
        "AgentRuntimeError",
        "AgentScopeMismatchError",
        "AgentSessionRecoveryError",
        "AgentStructuredOutputError",
        "AgentTransferError",
        "AgentUnresolvedEffectError",
        "AgentWorkspaceError",
        "ConnectorError",
        "StorageDamagedError",
        "StorageError",
        "StorageFailedError",
        "StorageForeignError",
        "StorageLockedError",
        "StorageUnsupportedError",
    ),
    "events": ("AgentEvent", "EventType"),
    "journal": ("Gap", "Journal", "JournalSlice"),
    "models.declared": ("DeclaredModels", "read_models_toml"),
    "models.facts": ("ModelFacts", "facts_for"),
    "policy": ("Limits", "Policy"),
    "results": ("AgentResult", "Artifact", "RunError", "Usage"),
    "run": ("Run", "Windows"),
    "runtime": ("Agent", "AgentRuntime", "LocalBackend", "RecoveredRun"),
    "session": ("InspectedState", "Session", "SessionReference", "UnresolvedEffect"),
    "storage.memory": ("MemoryAgentStore",),
    "storage.sqlite": ("open_agent_store",),
    "tools.base": (
        "HostTool",
        "Permission",
        "ReconcileBounds",
        "Reconciliation",
        "ResolutionContext",
        "ResolvedTools",
        "RetainedObservation",
        "RunCompletion",
        "ToolCall",
        "ToolContext",
        "ToolFailedError",
        "ToolOutcomeUnknownError",
        "ToolReceipt",
        "ToolReport",
    ),
    "transcript": ("OpenItem",),
    "transfer.copy": ("TransferProgress", "Transferred"),
    "transfer.grant": ("TransferOptions",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AbortSignal",
    "Agent",
    "AgentAbortedError",
    "AgentBusyError",
    "AgentCapabilityUnsupportedError",
    "AgentClosedError",
    "AgentConfigurationChangedError",
    "AgentDefinition",
    "AgentDriverConfigurationError",
    "AgentDriverNotFoundError",
    "AgentEvent",
    "AgentEventHistoryExpiredError",
    "AgentEventSubscriberOverflowError",
    "AgentInspection",
    "AgentNativeExecutionError",
    "AgentPolicyUnsupportedError",
    "AgentRecordTooLargeError",
    "AgentRequestConflictError",
    "AgentRequestLedgerFullError",
    "AgentResult",
    "AgentRunTimeoutError",
    "AgentRuntime",
    "AgentRuntimeDependencyError",
    "AgentRuntimeError",
    "AgentScopeMismatchError",
    "AgentSessionRecoveryError",
    "AgentStructuredOutputError",
    "AgentTransferError",
    "AgentUnresolvedEffectError",
    "AgentWorkspaceError",
    "Artifact",
    "Capability",
    "CapabilityRequirement",
    "Connector",
    "ConnectorError",
    "ConnectorRegistry",
    "ConnectorTest",
    "DeclaredModels",
    "DriverInspection",
    "Environment",
    "EventType",
    "ExecutionBinding",
    "Gap",
    "HostTool",
    "ImagePart",
    "InspectedEnvironment",
    "InspectedState",
    "Journal",
    "JournalSlice",
    "JsonSchemaFormat",
    "Limits",
    "LocalBackend",
    "MemoryAgentStore",
    "ModelFacts",
    "NetworkSettings",
    "Observation",
    "OpenItem",
    "Permission",
    "Policy",
    "ReasoningConfig",
    "ReconcileBounds",
    "Reconciliation",
    "RecoveredRun",
    "ReplayBounds",
    "ResolutionContext",
    "ResolvedTools",
    "RetainedObservation",
    "Run",
    "RunCompletion",
    "RunError",
    "RunInput",
    "SecretRef",
    "Session",
    "SessionOptions",
    "SessionReference",
    "StorageDamagedError",
    "StorageError",
    "StorageFailedError",
    "StorageForeignError",
    "StorageLockedError",
    "StorageUnsupportedError",
    "TextFormat",
    "TextPart",
    "ToolCall",
    "ToolContext",
    "ToolFailedError",
    "ToolInspection",
    "ToolOutcomeUnknownError",
    "ToolReceipt",
    "ToolReport",
    "TransferOptions",
    "TransferProgress",
    "Transferred",
    "TrustedContext",
    "UnresolvedEffect",
    "Usage",
    "Windows",
    "WorkspaceFilePart",
    "facts_for",
    "list_models",
    "open_agent_store",
    "read_models_toml",
    "set_network",
    "system_network",
    "test_connector",
]


if not TYPE_CHECKING:
    # Hidden from type checkers, so that a name that is not public is an error to them.

    def __getattr__(name):
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Not at the top: the package itself must cost nothing.
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return value


def __dir__() -> list[str]:
    return list(__all__)
