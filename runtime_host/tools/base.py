"""Application tools: what a host offers to a model, what a call is, and what came of it.

Owns the words that tools, resolvers and owners are written in. Must not know stores, drivers or events.
Invariants: a call has one identity, the id the native side gave it, for ever; what a tool returns is told
to the native side as it is or not at all; who a call acts for is said by the host, never by the model.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol

from runtime_host.definitions import TrustedContext
from runtime_host.frozen import Frozen
from runtime_host.results import RunError, RunStatus
from runtime_host.storage.base import AgentTx

HOST_TOOLS: Final = "tools.host"
"""The capability of a harness that lets a model call tools of the application."""


class ToolCall(NamedTuple):
    """One call. `call_id` is the original id of the native side; `arguments` is the JSON object it gave."""

    session_id: str
    run_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class ToolContext:
    """For whom and as what a tool acts.

    Attributes:
        context: whose session it is.
        principal: as whom the tool acts; the owner's where there is an owner.
        roles: of resolver and owner together.
        accounts: named accounts of resolver and owner together; the owner's wins over a like name.
        memory: the owner's, whatever it is to its tools.
        stopping: set when the run is to stop; a tool that returns soon after still has its result kept.
        progress: shows text of a call that goes on.
    """

    context: TrustedContext
    principal: str | None = None
    roles: frozenset[str] = frozenset()
    accounts: Mapping[str, str] = field(default_factory=dict)
    memory: Any = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    progress: Callable[[str], Awaitable[None]] | None = None


class ToolReport(Frozen):
    """What came of a call.

    Attributes:
        success: whether the application calls it one; False is told to the model and the run goes on.
        payload: JSON that the model is told.
        evidence: references to proof that the host keeps.
        changes: files of the session's folder that are otherwise now, `{path, change, diff}`; shown, never told.
        shown: what a person is shown instead of the payload; "" for the payload itself.
    """

    called: ClassVar[str] = "tool report"

    success: bool = True
    payload: Any = None
    evidence: tuple[str, ...] = ()
    changes: tuple[Mapping[str, Any], ...] = ()
    shown: str = ""


class ToolReceipt(Frozen):
    """The original report of a call, read from where the effect is recorded.

    Attributes:
        settled: False while the source itself is not finished with it.
    """

    called: ClassVar[str] = "tool receipt"

    call_id: str
    tool: str
    run_id: str
    settled: bool
    report: ToolReport


class ReconcileBounds(NamedTuple):
    """How far one look at the sources of interrupted calls goes before it stops. The next one goes on from there.

    Attributes:
        calls: asked about at most.
        each_s: waited for one answer.
        all_s: for all of them together.
    """

    calls: int = 256
    each_s: float = 30.0
    all_s: float = 60.0


USUAL_BOUNDS: Final = ReconcileBounds()


class Reconciliation(Frozen):
    """How far the last look at the sources of interrupted calls went.

    Attributes:
        unresolved: calls that were to be found out.
        looked_at: of these, the ones whose source was asked.
        found: of these, the ones it is now known of.
        stopped_by: the bound at which it stopped before the last one; None when it looked at all.
    """

    called: ClassVar[str] = "reconciliation"

    unresolved: int
    looked_at: int
    found: int
    stopped_by: Literal["calls", "time"] | None = None

    def in_words(self) -> str:
        """How far it looked, when that was not to the end; "" when it was."""
        if self.stopped_by is None:
            return ""
        bound = "as many as one look may take" if self.stopped_by == "calls" else "as long as one look may take"
        return (
            f"It was looked into {self.looked_at} of {self.unresolved} interrupted calls, which is {bound}; "
            "looking again goes on from there."
        )


class ToolFailedError(Exception):
    """Raised by a tool: it failed, and these are the words for the model. The run goes on."""


class ToolOutcomeUnknownError(Exception):
    """Raised by a tool: it may have acted and cannot say. The call stays unresolved until it is reconciled."""


class Permission(NamedTuple):
    """Whether a call may be made. `reason` is told to the model."""

    allowed: bool
    reason: str = ""


class Judged(NamedTuple):
    """What a gate says of a call before anything of it happened.

    Attributes:
        kind: `run` it under `operation_id`; `refuse` it, with `words` for the model; `hold` it: operation and approval
            are durable, and a person is asked.
        words: of a refusal; of a hold what a harness is told that does not wait.
        code: stable, of a refusal.
        operation_id: "" where there is no row.
        effect: of a hold: in one sentence what the call would do.
        decided: what a person said of it, where one was asked: approved, denied, expired or stale.
    """

    kind: Literal["run", "refuse", "hold"]
    words: str = ""
    code: str = ""
    operation_id: str = ""
    effect: str = ""
    decided: str = ""


class CallHeldError(Exception):
    """Raised to a driver that parks: calls wait for a person. Nothing of them was executed, and nothing is told.

    The run is taken up again by the runtime when they are decided, with these calls among its `earlier` ones.
    """

    def __init__(self, operation_ids: tuple[str, ...]) -> None:
        super().__init__(f"{len(operation_ids)} calls wait for a decision")
        self.operation_ids = operation_ids


class Gate(Protocol):
    """Stands before the tools of mounts: names, rights, approvals and the record of each attempt. One for a session.

    `runtime_host.loop.gateway.SessionGate` is the one there is; this is what the runtime's channel needs of it.
    """

    @property
    def tools(self) -> "tuple[HostTool, ...]":
        """What may be offered now, under their model-facing names; their `call` is never used."""
        ...

    def owns(self, tool: str) -> bool:
        """Whether a name that a model called is the gate's business: offered, or once offered, or like one."""
        ...

    async def refresh(self) -> None:
        """Reconcile with the mounts as they are; called when a session opens and before each run."""
        ...

    async def judge(self, call: ToolCall, context: ToolContext, *, parks: bool) -> Judged:
        """Look at a call, in the order of the gateway. `parks`: whether the run waits if it is held."""
        ...

    def claim(self, tx: AgentTx, operation_id: str) -> bool:
        """In the transaction that writes `executing`: take the operation. False when it may not be begun (any more)."""
        ...

    def give_back(self, tx: AgentTx, operation_id: str) -> None:
        """In the transaction that takes `executing` back: it was claimed and is certain not to have been entered."""
        ...

    async def execute(self, operation_id: str, call: ToolCall, context: ToolContext) -> "ToolReport":
        """Do what was claimed: the recorded request, once. What cannot be known of it is said in the report."""
        ...

    def cut(self, operation_id: str) -> "ToolReport":
        """What is to be said of one that was cut off while it was executed."""
        ...

    def settle(self, tx: AgentTx, operation_id: str, report: "ToolReport") -> None:
        """In the transaction that keeps what came of it."""
        ...

    async def decided(self, operation_id: str, timeout_s: float) -> bool:
        """Wait for a person's decision; False when there was none within the time."""
        ...

    def pause(self, tx: AgentTx, operation_id: str) -> bool:
        """In the transaction that tells a harness to expect a message. False when it was decided by then."""
        ...

    def operation_of(self, call: ToolCall) -> str:
        """The operation that a call is, whether or not it was judged yet."""
        ...

    async def reconcile(self, call: ToolCall) -> "ToolReceipt | None":
        """What is to be told of a call that was interrupted: of a write that nobody knows, of a read to ask again."""
        ...


ToolFunction = Callable[[Mapping[str, Any], ToolContext], Any]
"""Returns JSON or a `ToolReport`; async, or plain and then run in a thread of its own."""


@dataclass(frozen=True)
class HostTool:
    """A function of the application that a model may call and that it waits for.

    Attributes:
        name: exact name; what the model calls and what a person reads.
        parameters: JSON schema of the arguments; an object at its root.
        call: does it.
        background: True for a tool that answers later; refused.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: ToolFunction
    background: bool = False


class CallPermissions(Protocol):
    async def permit(self, call: ToolCall, context: ToolContext) -> Permission:
        """Whether the call may be made. Raising is a no."""
        ...


class ToolRunner(CallPermissions, Protocol):
    """Runs tools for many sessions; its own permissions hold besides those of the resolver."""

    async def execute(self, call: ToolCall, tool: HostTool, context: ToolContext) -> Any: ...
    async def acquire(self, session_id: str) -> None:
        """A session works through this manager from now on. Never called to inspect."""
        ...

    async def release(self, session_id: str) -> None: ...


class RunCompletion(NamedTuple):
    """How a run ended, for the owner of its tools. It says nothing of usage: that is not the owner's model's."""

    session_id: str
    run_id: str
    status: RunStatus
    output_text: str
    error: RunError | None


class ToolOwner(Protocol):
    """An agent whose tools these are. It keeps its principal, memory and cancellation."""

    @property
    def principal(self) -> str | None: ...
    @property
    def roles(self) -> frozenset[str]: ...
    @property
    def accounts(self) -> Mapping[str, str]: ...
    @property
    def memory(self) -> Any: ...
    @property
    def cancelled(self) -> bool:
        """Whether the owner was stopped; its tools are then not executed."""
        ...

    async def before_tool(self, call: ToolCall, context: ToolContext) -> Permission:
        """Execution hook, before anything happened. Raising is a no."""
        ...

    async def after_tool(self, call: ToolCall, report: ToolReport, context: ToolContext) -> None:
        """Execution hook, after the report was made durable. Raising changes nothing."""
        ...

    async def run_completed(self, completion: RunCompletion) -> None:
        """Lifecycle hook, after the run's result was made durable. Raising changes nothing."""
        ...


Reconcile = Callable[[ToolCall, ToolContext], Awaitable[ToolReceipt | None]]
"""Reads the original report of a call from its source and never executes anything; None where there is no proof."""

Project = Callable[[ToolCall, ToolReport], Awaitable[ToolReport]]
"""Keeps the evidence of a report and says what the native side may be told of it."""


@dataclass(frozen=True)
class ResolvedTools:
    """What a resolver answers.

    Attributes:
        tools: exactly the ones that were named.
        fingerprint: changes whenever implementation, authorization, connector or evidence of one changes.
        manager: runs the tools; they are called directly without one.
        owner: an agent whose tools they are.
        permission_manager: must allow each call, besides what manager and owner say.
        roles, accounts, principal: part of the context of each call.
        reconcile: finds out what came of a call that was interrupted.
        project: keeps evidence; a failure of it stops the run and is never replaced by the raw report.
    """

    tools: tuple[HostTool, ...]
    fingerprint: str
    manager: ToolRunner | None = None
    owner: ToolOwner | None = None
    permission_manager: CallPermissions | None = None
    roles: frozenset[str] = frozenset()
    accounts: Mapping[str, str] = field(default_factory=dict)
    principal: str | None = None
    reconcile: Reconcile | None = None
    project: Project | None = None


class ResolutionContext(NamedTuple):
    """For whom tools are resolved. `purpose` inspect: nothing may be acquired, started or written."""

    agent_id: str
    context: TrustedContext
    purpose: Literal["inspect", "open"]


ToolResolver = Callable[[tuple[str, ...], ResolutionContext], Awaitable[ResolvedTools]]


class RetainedObservation(NamedTuple):
    """A report that is known here and could not be kept or may not be told. It exists in memory only."""

    call: ToolCall
    report: ToolReport
    reason: Literal["evidence", "storage"]


OnRetainedObservation = Callable[[RetainedObservation], None]


class ToolOffer(NamedTuple):
    """A tool as a driver tells the native side of it."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class ToolRequest(NamedTuple):
    """A call as the native side asked for it.

    Attributes:
        call_id: its original id.
        arguments: JSON text as it came.
        native: JSON that the driver needs to go on with the call after a restart.
        about: what its card shows besides: `operation`, `decided` and `effect` of one that waits for a person. A driver
            puts it into the event that the call began.
    """

    call_id: str
    name: str
    arguments: str
    native: Mapping[str, Any] = {}
    about: Mapping[str, Any] = {}


class ToolDelivery(NamedTuple):
    """What the native side is to be told of a call; durable before a driver has it.

    Attributes:
        arguments: as they were kept: masked.
        error: in words for the model, when it did not succeed.
        duration_ms: of the execution; None when there was none.
        about: what its card shows besides: `operation` and `decided`; a driver puts it into the event of its end.
        changes: as in the report; live only.
        shown: likewise.
    """

    call_id: str
    name: str
    arguments: str
    success: bool
    payload: Any
    error: str | None
    duration_ms: int | None = None
    native: Mapping[str, Any] = {}
    about: Mapping[str, Any] = {}
    changes: tuple[Mapping[str, Any], ...] = ()
    shown: str = ""


class EarlierCall(NamedTuple):
    """A call from before a restart; `told` is what the native side was told, None when it still waits."""

    request: ToolRequest
    told: ToolDelivery | None


class ToolChannel(Protocol):
    """The one way by which a driver calls host tools. One for each run."""

    @property
    def offers(self) -> tuple[ToolOffer, ...]: ...

    @property
    def earlier(self) -> tuple[EarlierCall, ...]:
        """Calls of this run that an earlier process left, in order; none in a fresh run."""
        ...

    async def execute(
        self,
        requests: tuple[ToolRequest, ...],
        started: Callable[[ToolRequest, Any], Awaitable[None]],
        completed: Callable[[ToolDelivery], Awaitable[None]],
        progressed: Callable[[ToolRequest, str], Awaitable[None]] | None = None,
    ) -> tuple[ToolDelivery, ...]:
        """Execute the calls that the native side waits for now, one after the other, each at most once.

        Args:
            requests: the calls, in the order in which they were asked for.
            started: told of each that is begun, and of each that waits for a person.
            completed: told of what came of each.
            progressed: told of text that a call shows while it goes on.

        Raises:
            CallHeldError: of a channel that parks: some wait for a person. What was executed before is kept.
            AgentUnresolvedEffectError: one was interrupted; nothing more may be told or sent.
            StorageError: what came of one could not be kept.
        """
        ...

    async def delivering(self, call_ids: tuple[str, ...]) -> None:
        """They are still waited for and are about to be told."""
        ...

    def delivered(self, call_ids: tuple[str, ...]) -> None:
        """They were told; durable with the next step of the run."""
        ...
