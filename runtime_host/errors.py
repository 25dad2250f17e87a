"""Errors of the Agent Runtime: one tree, each with a stable code and a sentence for the person.

    AgentRuntimeError
    ├── AgentDriverNotFoundError            AGENT_DRIVER_NOT_FOUND
    ├── AgentDriverConfigurationError       AGENT_DRIVER_CONFIGURATION
    ├── AgentCapabilityUnsupportedError     AGENT_CAPABILITY_UNSUPPORTED
    ├── AgentPolicyUnsupportedError         AGENT_POLICY_UNSUPPORTED
    ├── AgentWorkspaceError                 AGENT_WORKSPACE_ERROR
    ├── AgentBusyError                      AGENT_BUSY
    ├── AgentEventHistoryExpiredError       AGENT_EVENT_HISTORY_EXPIRED
    ├── AgentEventSubscriberOverflowError   AGENT_EVENT_SUBSCRIBER_OVERFLOW
    ├── AgentRunTimeoutError                AGENT_RUN_TIMEOUT
    ├── AgentNativeExecutionError           AGENT_NATIVE_EXECUTION
    ├── AgentRuntimeDependencyError         AGENT_RUNTIME_DEPENDENCY
    ├── AgentStructuredOutputError          AGENT_STRUCTURED_OUTPUT
    ├── AgentSessionRecoveryError           AGENT_SESSION_RECOVERY      acceptance or termination unknown
    ├── AgentRequestConflictError           AGENT_REQUEST_CONFLICT      same request id, other input
    ├── AgentRequestLedgerFullError         AGENT_REQUEST_LEDGER_FULL
    ├── AgentRecordTooLargeError            AGENT_RECORD_TOO_LARGE
    ├── AgentScopeMismatchError             AGENT_SCOPE_MISMATCH        not yours, or not there
    ├── AgentClosedError                    AGENT_CLOSED                used after destroy or detach
    ├── AgentAbortedError                   AGENT_ABORTED               withdrawn by its own caller
    ├── AgentUnresolvedEffectError          AGENT_UNRESOLVED_EFFECT     a tool may have acted: blocked until known
    ├── AgentTransferError                  TRANSFER_*                  a file that is not moved, each reason by itself
    ├── AgentConfigurationChangedError      AGENT_CONFIGURATION_CHANGED bound to what is no longer so
    ├── ConnectorError                      CONNECTOR_*                 no key, key store away, unknown connector
    └── StorageError                        STORAGE_*
        ├── StorageLockedError              STORAGE_LOCKED              another host holds the claim
        ├── StorageDamagedError             STORAGE_DAMAGED             set aside, never overwritten
        ├── StorageForeignError             STORAGE_FOREIGN             file of another profile or agent
        ├── StorageUnsupportedError         STORAGE_UNSUPPORTED         network file system, newer version
        └── StorageFailedError              STORAGE_FAILED              disk full, failed fsync: reopen

Vendor exceptions never leave a driver; a driver raises `AgentNativeExecutionError` with one of the
provider codes (`PROVIDER_*`) as `native_code`.
"""

from typing import Any, ClassVar


class AgentRuntimeError(Exception):
    """Base of every error of this library.

    Args:
        message: a sentence for the person: what happened, what it means, what to do.
        code: stable code for programs; the class's own unless given.
        retryable: whether the same call may succeed later without a change. Never true for an
            unknown outcome.
        details: JSON-serializable facts, without secrets.
    """

    code: ClassVar[str] = "AGENT_RUNTIME"
    status: ClassVar[int] = 500
    """The HTTP status that says about the same."""
    retryable_by_default: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = code or self.code
        self.retryable = self.retryable_by_default if retryable is None else retryable
        self.details = details or {}


class AgentDriverNotFoundError(AgentRuntimeError):
    code = "AGENT_DRIVER_NOT_FOUND"
    status = 404


class AgentDriverConfigurationError(AgentRuntimeError):
    code = "AGENT_DRIVER_CONFIGURATION"
    status = 400


class AgentCapabilityUnsupportedError(AgentRuntimeError):
    code = "AGENT_CAPABILITY_UNSUPPORTED"
    status = 400


class AgentPolicyUnsupportedError(AgentRuntimeError):
    code = "AGENT_POLICY_UNSUPPORTED"
    status = 400


class AgentWorkspaceError(AgentRuntimeError):
    code = "AGENT_WORKSPACE_ERROR"
    status = 400


class AgentBusyError(AgentRuntimeError):
    code = "AGENT_BUSY"
    status = 409
    retryable_by_default = True


class AgentEventHistoryExpiredError(AgentRuntimeError):
    code = "AGENT_EVENT_HISTORY_EXPIRED"
    status = 410


class AgentEventSubscriberOverflowError(AgentRuntimeError):
    code = "AGENT_EVENT_SUBSCRIBER_OVERFLOW"
    status = 409


class AgentRunTimeoutError(AgentRuntimeError):
    code = "AGENT_RUN_TIMEOUT"
    status = 408


class AgentNativeExecutionError(AgentRuntimeError):
    """A harness or provider failed after the start. `native_code` is one of ours, never the vendor's text."""

    code = "AGENT_NATIVE_EXECUTION"
    status = 502

    def __init__(self, message: str, *, native_code: str = "PROVIDER_FAILED", **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.native_code = native_code


class AgentRuntimeDependencyError(AgentRuntimeError):
    code = "AGENT_RUNTIME_DEPENDENCY"


class AgentStructuredOutputError(AgentRuntimeError):
    code = "AGENT_STRUCTURED_OUTPUT"
    status = 422


class AgentSessionRecoveryError(AgentRuntimeError):
    """What became of the input is not known. Carries the original run id; nothing is sent again."""

    code = "AGENT_SESSION_RECOVERY"
    status = 409

    def __init__(self, message: str, *, session_id: str, run_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.session_id = session_id
        self.run_id = run_id


class AgentRequestConflictError(AgentRuntimeError):
    code = "AGENT_REQUEST_CONFLICT"
    status = 409


class AgentRequestLedgerFullError(AgentRuntimeError):
    code = "AGENT_REQUEST_LEDGER_FULL"
    status = 409


class AgentRecordTooLargeError(AgentRuntimeError):
    code = "AGENT_RECORD_TOO_LARGE"
    status = 413


class AgentScopeMismatchError(AgentRuntimeError):
    code = "AGENT_SCOPE_MISMATCH"
    status = 404


class AgentClosedError(AgentRuntimeError):
    code = "AGENT_CLOSED"
    status = 410


class AgentUnresolvedEffectError(AgentRuntimeError):
    """A tool may have acted and nobody knows; the session takes no input and is not deleted until that is known."""

    code = "AGENT_UNRESOLVED_EFFECT"


class AgentTransferError(AgentRuntimeError):
    """A file is not moved, and nothing of it was left. Its code says why; its words name no path of this computer."""

    code = "TRANSFER_REFUSED"
    status = 400


class AgentConfigurationChangedError(AgentRuntimeError):
    """A kept session is bound to tools or settings that are others now; nothing is migrated."""

    code = "AGENT_CONFIGURATION_CHANGED"


class AgentAbortedError(AgentRuntimeError):
    """The caller raised its abort signal before anything was sent."""

    code = "AGENT_ABORTED"
    status = 409


class ConnectorError(AgentRuntimeError):
    code = "CONNECTOR_FAILED"
    status = 502


class StorageError(AgentRuntimeError):
    code = "STORAGE_FAILED"


class StorageLockedError(StorageError):
    code = "STORAGE_LOCKED"
    status = 423
    retryable_by_default = True


class StorageDamagedError(StorageError):
    code = "STORAGE_DAMAGED"


class StorageForeignError(StorageError):
    code = "STORAGE_FOREIGN"
    status = 409


class StorageUnsupportedError(StorageError):
    code = "STORAGE_UNSUPPORTED"
    status = 501


class StorageFailedError(StorageError):
    code = "STORAGE_FAILED"
    status = 507
