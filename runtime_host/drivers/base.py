"""The driver protocol: what a harness must offer to be swappable.

A driver owns the I/O with one harness. It must not know storage, journal, other drivers or any
desktop. Invariants: vendor errors never cross it (they become `AgentNativeExecutionError` or a failed
`DriverResult`); it never sends an input twice of which anything but a reply could come; a cancel that was confirmed
stays confirmed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from runtime_host.canonical import FrozenDict
from runtime_host.capabilities import DriverInspection
from runtime_host.definitions import (
    AgentDefinition,
    ExecutionBinding,
    ImagePart,
    InputPart,
    ReasoningConfig,
    ResponseFormat,
    SessionOptions,
)
from runtime_host.events import DriverEvent
from runtime_host.results import Artifact, DriverResult
from runtime_host.tools.base import EarlierCall, ToolChannel, ToolOffer
from runtime_host.transfer.copy import Incoming, Outgoing


class TranscriptMessage(NamedTuple):
    """One earlier message, as the harness's own loop reads it back. `role`: user or assistant.

    `calls` of an input are the tool calls that its run made, in order, each as the native side was told; `images` are
    the pictures that came with it. `after_calls` is set in what was said to a run that went on already: how many of
    the run's calls came before it.
    """

    role: str
    text: str
    calls: tuple[EarlierCall, ...] = ()
    images: tuple[ImagePart, ...] = ()
    after_calls: int | None = None


class Asked(NamedTuple):
    """A request that is durable and may be sent now.

    Attributes:
        job_id: of the request.
        tries: how often it is sent, with this time, over restarts.
    """

    job_id: str
    tries: int


class Lane(Protocol):
    """What a harness needs whose loop runs here, so that its run can be gone on with after a crash. One for each run.

    Only a driver with `resumes = True` is given one.
    """

    @property
    def said(self) -> tuple[TranscriptMessage, ...]:
        """What was said in this run after its input and before a restart, in order; none in a fresh run."""
        ...

    @property
    def usage(self) -> Mapping[str, int | None] | None:
        """What the answers before a restart have used together; None in a fresh run."""
        ...

    async def steers(self) -> tuple[str, ...]:
        """Take what was said to the run since; it is durable as a message of the transcript when this returns."""
        ...

    async def ask(self, model: str, messages: Sequence[tuple[str, str]], *, goes_on: bool = False) -> Asked | None:
        """Write that a model is asked, with all that came before it. None when it was asked as often as it may be.

        Args:
            model: which one.
            messages: role and words of each, to know the request by.
            goes_on: whether it asks for the rest of a reply in which a server has paused.
        """
        ...

    @property
    def kept(self) -> Mapping[int, tuple[Mapping[str, Any], ...]]:
        """What answers before a restart have to be handed back with, by the number they were kept under."""
        ...

    def answered(
        self,
        asked: Asked,
        reason: str,
        usage: Mapping[str, int | None],
        *,
        number: int = 0,
        kept: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """An answer came to its proper end. Durable with the calls that it asks for, or with the end of the run.

        `kept`: JSON that it has to be handed back with, found again under `number`.
        """
        ...


class Turn(NamedTuple):
    """One input to a session, already admitted and durable.

    Attributes:
        text: the words of the input; several text parts are joined by an empty line.
        read_transcript: returns the complete messages before this input, oldest first.
        parts: of an input that came in parts; a file's path is the real one, inside the workspace.
        response_format: what the answer is to be; the runtime checks it in any case.
        metadata: the caller's remarks on this run.
        tools: calls the host tools that the definition selects and those of mounts; None where there can be none.
            It may offer nothing now: a call all the same is answered with why. With `tools.earlier` the run goes on
            from there: the input was sent before, and is not sent again.
        lane: keeps what a model is asked; None for a driver that does not resume.
        may_send: of one that is rejoined: whether the input is sent now if it certainly never was. Not once somebody
            was told that nobody knows, or asked for its end.
    """

    run_id: str
    text: str
    model: str
    reasoning: ReasoningConfig | None
    read_transcript: Callable[[], Awaitable[tuple[TranscriptMessage, ...]]]
    parts: tuple[InputPart, ...] = ()
    response_format: ResponseFormat | None = None
    metadata: dict[str, Any] = FrozenDict()
    tools: ToolChannel | None = None
    lane: Lane | None = None
    may_send: bool = False


Keep = Callable[[dict[str, Any]], Awaitable[None]]
"""Puts a state in the place of what is kept of a session. It is durable, masked, when this returns.

Raises `StorageError`: it is not kept; then nothing may be done that it was to speak of.
"""


class SessionOpening(NamedTuple):
    """What a driver needs to open or restore a session. `state` is what `DriverSession.state` gave.

    `tools` are the host tools that the definition selects, as the native side is told of them. `keep` writes a state
    at once, between the times at which the runtime asks for it: what is about to be made elsewhere is kept before it is
    asked for, and its name once it is known.
    """

    session_id: str
    definition: AgentDefinition
    options: SessionOptions
    state: dict[str, Any] | None = None
    tools: tuple[ToolOffer, ...] = ()
    keep: Keep | None = None


class DriverRun(Protocol):
    """A started native run."""

    def events(self) -> AsyncIterator[DriverEvent]:
        """Native events until the native side ended. Read once, by the runtime's pump."""
        ...

    async def result(self) -> DriverResult:
        """The outcome; there once `events` ended.

        Raises:
            AgentSessionRecoveryError: acceptance or termination is not known.
            CallHeldError: of a driver that parks: calls wait for a person; nothing goes on natively.
        """
        ...

    async def cancel(self) -> None:
        """Ask the native side to stop; returns once asked. `events` ends when it has."""
        ...


class DriverSession(Protocol):
    async def start(self, turn: Turn) -> DriverRun:
        """Dispatch the input, once."""
        ...

    def state(self) -> dict[str, Any]:
        """Versioned JSON that restores this session; no credentials."""
        ...

    async def close(self) -> None:
        """Let go of everything local. Idempotent."""
        ...


class RejoinableRun(DriverRun, Protocol):
    """A native run that goes on at a service, watched or not."""

    async def release(self) -> None:
        """Watch it no longer; it goes on. `events` ends, and nobody asks for its `result`. Nothing is sent."""
        ...


class RejoinableSession(DriverSession, Protocol):
    """A session at a service."""

    async def start(self, turn: Turn) -> RejoinableRun:
        """Dispatch the input, once."""
        ...

    async def rejoin(self, turn: Turn) -> RejoinableRun:
        """Find out what became of an input that was dispatched before, and watch on.

        An input of which nothing was kept was certainly never sent, since that is done first: it is sent by this if
        `turn.may_send`, and is otherwise a failed result (`INPUT_NOT_SENT`). No other is sent.
        Its `events` are the whole run as the service has saved it and then what follows: what was published before,
        under the same native ids, is recognised and not published twice. `turn.tools.earlier` has its calls; those
        that the saved state shows as answered are only confirmed (`execute`, `delivering`, `delivered`), those that it
        says are pending are answered, all others are left alone. `result` raises `AgentSessionRecoveryError` when it
        still cannot be known; it says how far was looked.
        """
        ...


class PendingUpload(NamedTuple):
    """A file that was sent, of which it is not known whether it arrived.

    Attributes:
        upload_id: what it is kept under.
        path: where the agent would find it.
        since_s: when it was about to be sent, in seconds by the wall clock.
    """

    upload_id: str
    path: str
    since_s: float


class FileExchange(Protocol):
    """The files of one session at a service. The runtime asks for one thing at a time, and never during a run."""

    async def upload(self, file: Outgoing) -> str:
        """Give the agent a file; where it finds that. Sent once, after it is kept that it is about to be.

        Cancelled before all of it is out, nothing of it arrives. Cancelled later, it is removed again where that can be
        done, and known, and else this returns as if it had not been cancelled.

        Raises:
            AgentUnresolvedEffectError: it may have arrived; it is among `pending` from then on.
            AgentTransferError, AgentCapabilityUnsupportedError, AgentNativeExecutionError, ConnectorError: it has not.
        """
        ...

    async def download(self, reference: str, into: Incoming) -> None:
        """Give `into` a file that this very session made: what is said of it first, then its bytes, within bounds.

        Raises:
            AgentTransferError: there is none of this reference in this session, it has expired, or is not given out.
            AgentNativeExecutionError, ConnectorError: it could not be fetched.
        """
        ...

    async def listed(self) -> tuple[Artifact, ...]:
        """What the session made and gives out.

        Raises:
            AgentNativeExecutionError, ConnectorError: that could not be asked.
        """
        ...

    def pending(self) -> tuple[PendingUpload, ...]:
        """Uploads of which it is not known whether they arrived. An input waits until there are none."""
        ...

    async def reconcile(self) -> None:
        """Find out what became of them, where the service can tell; nothing is sent again."""
        ...


class TransferringSession(DriverSession, Protocol):
    """A session that files can be moved in and out of. One without `files` refuses both."""

    @property
    def files(self) -> FileExchange: ...


class ServiceDriver(Protocol):
    """What a driver has besides whose work goes on at a service without this program (`rejoins`)."""

    async def discard(self, opening: SessionOpening) -> None:
        """Remove what this program owns of a session at its service, and nothing else. Idempotent.

        Asked before the record of the session is removed; never when only a handle is let go of. `opening.state` is
        what was kept last. What was about to be made when the program ended is looked for.

        Raises:
            AgentBusyError: something of it goes on there.
            AgentNativeExecutionError, ConnectorError: something may be left; the record stays, and this is asked again.
        """
        ...


class AgentDriver(Protocol):
    """A harness. `driver_id` is its stable name, e.g. ``native.agent``.

    A driver may have these class attributes besides, all False or absent without them:

    - `rejoins`: its work goes on at a service without this program. It is a `ServiceDriver`, its sessions are
      `RejoinableSession`s; it needs storage that outlives the process; its runs are let go of, not ended, with the
      program and by a detach, and are joined again when their session is opened.
    - `settle_s`: how long its far side may take to confirm an end, where that is longer than the runtime's window.

    - `resumes`: its loop runs here and nothing but a reply comes of a request, so a run that a stopped process left is
      gone on with. It is given a `Lane`.
    - `parks`: it ends its part of a run when a call is held (`CallHeldError`), and the run is taken up again once that
      is decided.
    - `hold_wait_s`: of one that does not park: how long its tool calls may wait for a decision.
    """

    @property
    def driver_id(self) -> str: ...

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        """Check a binding without side effects: no request, no process, no lease.

        Raises:
            AgentDriverConfigurationError, AgentPolicyUnsupportedError, AgentCapabilityUnsupportedError
        """
        ...

    async def open(self, opening: SessionOpening) -> DriverSession: ...

    async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Remove what this harness keeps of a session on this computer: it is destroyed or deleted. Idempotent.

        Nothing is sent, and nothing of any other session is touched. `state` is what the session gave last.
        """
        ...

    async def aclose(self) -> None:
        """Let go of what sessions share (clients). Idempotent."""
        ...


__all__ = [
    "AgentDriver",
    "DriverEvent",
    "DriverResult",
    "DriverRun",
    "DriverSession",
    "ExecutionBinding",
    "FileExchange",
    "Keep",
    "PendingUpload",
    "RejoinableRun",
    "RejoinableSession",
    "ServiceDriver",
    "SessionOpening",
    "TranscriptMessage",
    "TransferringSession",
    "Turn",
]
