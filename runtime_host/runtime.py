"""The Agent Runtime: agents, sessions opened and resumed, recovery after a crash.

Owns which drivers there are, which sessions are open, and who may resume or delete one. Must not know
Qt, desktops or vendors. Invariants: a foreign scope learns nothing, not even that a session exists; a
session is open at most once in a backend; closing lets go of every session that was opened here.
"""

import asyncio
import functools
import hmac
import inspect
import logging
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Protocol, Self, cast

import msgspec
from pydantic import ValidationError

from runtime_host.admission import check_capabilities
from runtime_host.canonical import FrozenDict, digest, freeze
from runtime_host.capabilities import (
    UNKNOWN,
    AgentInspection,
    Capability,
    CapabilityRequirement,
    DriverInspection,
    Durability,
    InspectedEnvironment,
    ReplayBounds,
    ToolInspection,
    strongest,
)
from runtime_host.definitions import AgentDefinition, SessionOptions, TrustedContext
from runtime_host.drivers.base import AgentDriver, DriverSession, ServiceDriver, SessionOpening
from runtime_host.errors import (
    AgentBusyError,
    AgentClosedError,
    AgentConfigurationChangedError,
    AgentDriverConfigurationError,
    AgentDriverNotFoundError,
    AgentNativeExecutionError,
    AgentPolicyUnsupportedError,
    AgentRuntimeError,
    AgentScopeMismatchError,
    AgentTransferError,
    AgentWorkspaceError,
    StorageError,
)
from runtime_host.frozen import configuration_error
from runtime_host.intake import Redactor
from runtime_host.loop.credentials import MountCredentials, Outside
from runtime_host.loop.gateway import HOLD_MS, IDLE_S, Gateway, Held, ResultShelf, Rights
from runtime_host.loop.held import Decided
from runtime_host.loop.kept import Ground
from runtime_host.loop.mounts import OnUse, register_plugin
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.loop.plugins.base import Plugin
from runtime_host.loop.sealing import Seals
from runtime_host.loop.seeds import Seed
from runtime_host.policy import POLICY_FIELDS, Limits
from runtime_host.recovery import (
    NO_PAST,
    Past,
    continuable,
    left_to_do,
    look_back,
    rejoinable,
    settle_unknown,
    settle_unsendable,
    take_stock,
)
from runtime_host.redaction import Redactor as SecretRedactor
from runtime_host.run import Run, Windows
from runtime_host.session import Driven, Session, SessionReference
from runtime_host.shared_leases import SharedLease, SharedLeases
from runtime_host.states import verdict
from runtime_host.storage.base import (
    CONFIGURATION,
    OPEN_PHASES,
    AgentStore,
    AgentTx,
    RunRecord,
    SessionRecord,
    session_fact,
)
from runtime_host.tools.base import (
    HOST_TOOLS,
    USUAL_BOUNDS,
    OnRetainedObservation,
    ReconcileBounds,
    Reconciliation,
    ToolOffer,
    ToolResolver,
)
from runtime_host.tools.calls import HOLD_WAIT_S, SessionTools, unresolved_error
from runtime_host.tools.resolver import BoundTools, check_unchanged, resolve
from runtime_host.transfer.grant import Grant, TransferOptions
from runtime_host.transfer.root import TransferRoot, is_supported
from runtime_host.transferring import remove_partial, sessions_with_partials
from runtime_host.workspace import Identity, Workspace, WorkspaceLeases, resolve_workspace

_log = logging.getLogger("runtime_host.runtime")

MIN_SESSION_JOURNAL_BYTES: Final = 1024
_ENFORCED_LIMITS: Final = frozenset(Limits.model_fields)
FileTransfer = Callable[[TrustedContext], TransferOptions | Awaitable[TransferOptions]]
"""Says what a transfer for this context may do. Raises to deny it."""
NOT_YOURS: Final = "There is no such session, or it is not yours."


class Connectors(Protocol):
    """The named credentials that drivers use; the runtime needs only what masks them."""

    @property
    def redactor(self) -> Redactor: ...


class RecoveredRun(NamedTuple):
    """What became of a run that an earlier process left open.

    Attributes:
        outcome: `dispatched`, it had never been sent and is sent now; `continued`, it waited for results
            of tools or a decision, or its harness resumes, and it goes on; `unknown`, it had been sent and is not
            sent again; `failed`, it had never been sent and cannot be.
        run, session: of one that goes on; the session stays open until it is detached or destroyed. One
            that is unknown because of an interrupted tool has its session too.
    """

    session_id: str
    run_id: str
    outcome: Literal["dispatched", "continued", "unknown", "failed"]
    run: Run | None = None
    session: Session | None = None


class LocalBackend:
    """Drivers, connectors and storage of one process.

    Args:
        drivers: each harness once.
        storage: gives the store of an agent by its id. The store stays the giver's: it is never closed
            here, and may be given again and again.
        connectors: masks every credential it hands out; None when no driver needs one.
        max_session_journal_bytes: bound of the events kept for the ended runs of a session.
        windows: how long a native side is waited for.
        resolve_tools: gives the application tools that a definition names; None when there are none.
        on_retained_observation: told of each result of a tool that could not be kept or may not be told.
        private_roots: folders where the host keeps its own data. A workspace that lies in one, around one or
            is one is refused.
        program_files: files and folders with the host's own code. A workspace that holds one may not be written.
        durability: what the host knows of its storage: whether sessions outlive the process.
        lease_folder: where it is noted which folders are worked in, for all programs of this person to see; None is
            their runtime folder. Nothing is ever written into the folders themselves.
        reconcile_bounds: how far one look at the sources of interrupted tools goes before it stops and says so.
        plugins: what agents may mount, in the order in which their tools are offered; each once.
        plugins_off: ids of plugins that are switched off for agents that chose nothing.
        seeds: mounts that every agent is begun with.
        seals: where the keys are that credentials of mounts are sealed under; None: none can be kept.
        outside: fetches credentials that are kept outside of an agent's file; None: none are.
        file_transfer: says, for each transfer anew and for the trusted context of its session, from and to which folder
            what may be moved; None: nothing may. What it raises denies the transfer.
        artifacts: gives the place of an agent where results that are too long are put aside.
        tenant: whose agents they are; credentials are bound to it.
        hold_ms: after which a call that waits for a person counts as denied; None is never.
        gateway_idle_s: how long after its last use a plugin lets go of what it holds.
        on_held, on_decided: told of calls that begin to wait for a person, and of what became of that.
        on_mounts: told of an agent's mounts that may be used, after each change of them and when it is first opened.

    Raises:
        AgentDriverConfigurationError: two drivers of one id, or a bound that is too small.
    """

    def __init__(
        self,
        *,
        drivers: Iterable[AgentDriver],
        storage: Callable[[str], Awaitable[AgentStore]],
        connectors: Connectors | None = None,
        max_session_journal_bytes: int = 4 * 1024 * 1024,
        windows: Windows | None = None,
        resolve_tools: ToolResolver | None = None,
        on_retained_observation: OnRetainedObservation | None = None,
        private_roots: Iterable[str | os.PathLike[str]] = (),
        program_files: Iterable[str | os.PathLike[str]] = (),
        durability: Durability = UNKNOWN,
        lease_folder: str | os.PathLike[str] | None = None,
        reconcile_bounds: ReconcileBounds = USUAL_BOUNDS,
        plugins: Iterable[Plugin] = (),
        plugins_off: Iterable[str] = (),
        seeds: Iterable[Seed] = (),
        seals: Seals | None = None,
        outside: Outside | None = None,
        artifacts: Callable[[str, Callable[[], Awaitable[AgentStore]]], ResultShelf] | None = None,
        tenant: str = "",
        hold_ms: int | None = HOLD_MS,
        gateway_idle_s: float = IDLE_S,
        on_held: Callable[[Held], None] | None = None,
        on_decided: Callable[[Decided], None] | None = None,
        on_mounts: OnUse | None = None,
        file_transfer: FileTransfer | None = None,
    ) -> None:
        self._file_transfer = file_transfer
        self._drivers: dict[str, AgentDriver] = {}
        for driver in drivers:
            if driver.driver_id in self._drivers:
                raise AgentDriverConfigurationError(
                    f"Two drivers are called {driver.driver_id}; each may be registered once.",
                    details={"driver": driver.driver_id},
                )
            self._drivers[driver.driver_id] = driver
        if max_session_journal_bytes < MIN_SESSION_JOURNAL_BYTES:
            raise AgentDriverConfigurationError(
                f"max_session_journal_bytes must be at least {MIN_SESSION_JOURNAL_BYTES}.",
                details={"field": "max_session_journal_bytes"},
            )
        self.storage = storage
        self.redactor: Redactor = connectors.redactor if connectors is not None else SecretRedactor()
        self.max_session_journal_bytes = max_session_journal_bytes
        self.windows = windows or Windows()
        self.resolve_tools = resolve_tools
        self.on_retained_observation = on_retained_observation
        self.private_roots: tuple[str, ...] = tuple(os.fspath(root) for root in private_roots)
        self.program_files: tuple[str, ...] = tuple(os.fspath(file) for file in program_files)
        self.durability: Durability = durability
        self.reconcile_bounds = reconcile_bounds
        self.plugins = _by_id(plugins)
        self._make_gateway = functools.partial(
            self._gateway,
            plugins_off=frozenset(plugins_off),
            seeds=tuple(seeds),
            seals=seals,
            outside=outside,
            artifacts=artifacts,
            tenant=tenant,
            settings={
                "hold_ms": hold_ms,
                "idle_s": gateway_idle_s,
                "on_held": on_held,
                "on_decided": on_decided,
                "on_mounts": on_mounts,
            },
        )
        self._gateways: dict[str, Gateway] = {}
        self._shared_leases = SharedLeases(lease_folder)
        self.leases = WorkspaceLeases(self._share)
        self.live_runs: set[str] = set()
        self._open: dict[str, tuple[Session, AgentRuntime]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._quarantined: set[str] = set()
        self._closed = False

    def driver(self, driver_id: str) -> AgentDriver:
        """The driver of an id.

        Raises:
            AgentDriverNotFoundError: there is none.
        """
        self.check_open()
        driver = self._drivers.get(driver_id)
        if driver is None:
            raise AgentDriverNotFoundError(
                f"There is no harness called {driver_id} here.",
                details={"driver": driver_id, "known": sorted(self._drivers)},
            )
        return driver

    def driven(self, driver_id: str) -> Driven:
        """What a driver says of itself; nothing, when there is none of this id."""
        driver = self._drivers.get(driver_id)
        return Driven(
            getattr(driver, "resumes", False) is True,
            getattr(driver, "parks", False) is True,
            getattr(driver, "rejoins", False) is True,
            float(getattr(driver, "settle_s", 0.0)),
        )

    def goes_on(self, record: SessionRecord) -> bool:
        """Whether a run that a stopped process left in this session is gone on with."""
        driven = self.driven(str(record.options["execution"]["driver"]))
        return driven.resumes or driven.rejoins

    def check_storage(self, driver_id: str) -> None:
        """Refuse a harness at a service where what is made there would be forgotten with this process.

        Raises:
            AgentDriverConfigurationError: code ``STORAGE_REQUIRED``.
        """
        if self.driven(driver_id).rejoins and self.durability != "durable":
            raise AgentDriverConfigurationError(
                f"{driver_id} works at a service, also without this program. It needs storage that outlives the "
                "process, so that what it does there is found again.",
                code="STORAGE_REQUIRED",
                details={"driver": driver_id, "durability": self.durability},
            )

    def gateway(self, agent_id: str) -> Gateway:
        """The one gateway of an agent. Opens nothing by itself.

        Raises:
            AgentClosedError: this backend was destroyed.
        """
        self.check_open()
        if agent_id not in self._gateways:
            self._gateways[agent_id] = self._make_gateway(agent_id)
        return self._gateways[agent_id]

    def _gateway(
        self,
        agent_id: str,
        *,
        plugins_off: frozenset[str],
        seeds: tuple[Seed, ...],
        seals: Seals | None,
        outside: Outside | None,
        artifacts: Callable[[str, Callable[[], Awaitable[AgentStore]]], ResultShelf] | None,
        tenant: str,
        settings: dict[str, Any],
    ) -> Gateway:
        open_store = functools.partial(self.storage, agent_id)
        redactor = self.redactor if isinstance(self.redactor, SecretRedactor) else None
        credentials = MountCredentials(
            open_store, tenant=tenant, agent_id=agent_id, seals=seals, outside=outside, redactor=redactor
        )
        ground = Ground(agent_id, open_store, self.plugins, credentials, off=plugins_off, masked=self.redactor.value)
        shelf = artifacts(agent_id, open_store) if artifacts is not None else None
        return Gateway(ground, seeds=seeds, shelf=shelf, rights=self._rights, **settings)

    def folder_of_tools(self, options: SessionOptions, root: str | None) -> str | None:
        """The folder in which tools of mounts may work; None where the harness has tools of its own for it."""
        driver = self._drivers.get(options.execution.driver)
        return None if getattr(driver, "own_folder_tools", False) else root

    def _rights(self, options: SessionOptions) -> Rights:
        return Rights.of(options, self.folder_of_tools(options, options.environment.path))

    def hold_wait_s(self, driver_id: str) -> float:
        """How long a harness that does not park is kept waiting for a person."""
        return float(getattr(self._drivers.get(driver_id), "hold_wait_s", HOLD_WAIT_S))

    def driver_ids(self) -> tuple[str, ...]:
        return tuple(self._drivers)

    def check_open(self) -> None:
        """Refuse a backend that was closed.

        Raises:
            AgentClosedError: it was.
        """
        if self._closed:
            raise AgentClosedError("This backend was destroyed.")

    def lock(self, session_id: str) -> asyncio.Lock:
        """One lock a session, for resuming and deleting."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    def opened(self, session: Session, runtime: "AgentRuntime") -> None:
        self._open[session.session_id] = (session, runtime)

    def open_session(self, session_id: str) -> "tuple[Session, AgentRuntime] | None":
        return self._open.get(session_id)

    def sessions_of(self, runtime: "AgentRuntime") -> list[Session]:
        return [session for session, owner in self._open.values() if owner is runtime]

    def left(self, session: Session) -> None:
        self._open.pop(session.session_id, None)
        lock = self._locks.get(session.session_id)
        if lock is not None and not lock.locked():
            del self._locks[session.session_id]

    def quarantine(self, session_id: str) -> None:
        self._quarantined.add(session_id)

    def is_quarantined(self, session_id: str) -> bool:
        """Whether something of the session may still be going on natively in this process."""
        return session_id in self._quarantined

    async def aclose(self) -> None:
        """Let go of the drivers. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for gateway in self._gateways.values():
            await gateway.aclose()
        for plugin in self.plugins.values():
            try:
                async with asyncio.timeout(self.windows.cleanup_s):
                    await plugin.aclose()
            except Exception as error:
                _log.warning("closing plugin %s failed: %s", plugin.id, type(error).__name__)
        for driver in self._drivers.values():
            try:
                async with asyncio.timeout(self.windows.cleanup_s):
                    await driver.aclose()
            except TimeoutError:
                _log.warning("driver %s did not close in time", driver.driver_id)
            except Exception as error:
                _log.warning("closing driver %s failed: %s", driver.driver_id, type(error).__name__)
        self.leases.clear()

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> AgentInspection:
        """What a binding would be. Sends nothing, starts nothing, stores nothing, takes nothing.

        Raises:
            AgentDriverNotFoundError, AgentDriverConfigurationError, AgentPolicyUnsupportedError,
            AgentCapabilityUnsupportedError, AgentWorkspaceError: it would be refused.
        """
        driver = self.driver(options.execution.driver)
        self._check_no_credential(definition, options)
        workspace = await self.workspace(options)
        tools = await resolve(self.resolve_tools, definition, options.context, inspecting=True)
        try:
            said = await driver.inspect(definition, options)
        except AgentRuntimeError:
            raise
        except Exception as error:
            raise AgentNativeExecutionError(
                f"{driver.driver_id} could not say what it can do ({type(error).__name__})."
            ) from error
        inspection = _inspection(definition, options, said, workspace, tools, self)
        _check_needs(options, inspection, tools)
        return inspection

    async def forget(self, driver_id: str, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Have a harness remove what it keeps of a session.

        Args:
            driver_id: the harness.
            agent_id: whose session it is.
            session_id: of the session.
            state: what the session gave last.

        Raises:
            AgentDriverNotFoundError: there is no such harness here.
            AgentNativeExecutionError: it could not, or does not say so in time.
        """
        driver = self._drivers.get(driver_id)
        if driver is None:
            raise AgentDriverNotFoundError(
                f"There is no harness called {driver_id} here, so what it keeps of this session cannot be removed.",
                details={"driver": driver_id, "session_id": session_id},
            )
        try:
            async with asyncio.timeout(self.windows.forget_s):
                await driver.forget(agent_id, session_id, state)
        except AgentRuntimeError:
            raise
        except Exception as error:
            raise AgentNativeExecutionError(
                f"{driver_id} could not remove what it keeps of this session ({type(error).__name__}), "
                "so the session stays. Delete it again.",
                native_code="FORGET_FAILED",
                details={"driver": driver_id, "session_id": session_id},
            ) from error

    async def workspace(self, options: SessionOptions) -> Workspace | None:
        """The folder of a session as it really is; None when it has none.

        Raises:
            AgentWorkspaceError: no session may work there.
        """
        path = options.environment.path
        if path is None:
            return None
        write = options.policy.filesystem == "workspace-write"
        private = (*self.private_roots, *await self._folder_for_files(options))
        # Looking at a folder may take as long as the disk or the network behind it.
        return await in_own_thread(
            lambda: resolve_workspace(path, write=write, private=private, programs=self.program_files),
            "look at workspace",
        )

    async def grant(self, options: SessionOptions) -> Grant:
        """What one transfer of a session may do, as the host says now.

        Raises:
            AgentTransferError: nothing, or the folder is none that files may be moved through.
        """
        said = await self._asked(options)
        limit = options.policy.limits.artifact_bytes
        root = await in_own_thread(lambda: self._transfer_root(os.fspath(said.root)), "look at transfer folder")
        max_bytes = said.max_bytes if limit is None else min(said.max_bytes, limit)
        return Grant(root, max_bytes, frozenset(said.media_types))

    async def _asked(self, options: SessionOptions) -> TransferOptions:
        if self._file_transfer is None or not is_supported():
            raise AgentTransferError(
                "Files are not moved by this program."
                if self._file_transfer is None
                else "This system cannot keep files apart well enough to move them.",
                code="TRANSFER_NOT_ALLOWED",
            )
        try:
            answer = self._file_transfer(options.context)
            said = await answer if inspect.isawaitable(answer) else answer
        except Exception as refused:
            _log.info("the host denied a transfer: %s", type(refused).__name__)
            said = None
        if not isinstance(said, TransferOptions):
            raise AgentTransferError("This program does not allow this file to be moved.", code="TRANSFER_NOT_ALLOWED")
        return said

    async def _folder_for_files(self, options: SessionOptions) -> tuple[str, ...]:
        """The transfer folder of a context, where it has one: no agent works in it."""
        if self._file_transfer is None:
            return ()
        try:
            return (os.fspath((await self._asked(options)).root),)
        except AgentTransferError:
            return ()

    def _transfer_root(self, path: str) -> TransferRoot:
        try:
            found = resolve_workspace(path, write=True, private=self.private_roots, programs=self.program_files)
        except AgentWorkspaceError as refused:
            raise AgentTransferError(
                f"The folder for files is none that they may be moved through: {refused.message}",
                code="TRANSFER_ROOT_REFUSED",
            ) from None
        if self.leases.overlaps(found):
            raise AgentTransferError(
                "The folder for files overlaps one that an agent works in, so nothing is moved through it.",
                code="TRANSFER_ROOT_REFUSED",
            )
        return TransferRoot(found.root, (found.ancestry[0].device, found.ancestry[0].inode))

    async def remove_partials(self, store: AgentStore) -> None:
        """Remove what a stopped process left of files that came in, of sessions that are not open here."""
        for record in await store.read(sessions_with_partials):
            if record.session_id not in self._open:
                await self.remove_partial(store, record)

    async def remove_partial(self, store: AgentStore, record: SessionRecord) -> None:
        """Remove what is left of a file that came into a session; where the folder is not to be had, later."""
        options = _captured(record.options)
        try:
            await remove_partial(store, record.session_id, lambda: self.grant(options))
        except AgentTransferError as refused:
            _log.warning("part of a file stays in the transfer folder for now: %s", refused.error_code)

    async def _share(self, workspace: Workspace, holder: str) -> SharedLease | None:
        """Take a folder among all processes of this person."""

        def overlaps(root: str, ancestry: tuple[tuple[int, int], ...]) -> bool:
            return workspace.overlaps(Workspace(root, tuple(Identity(*each) for each in ancestry)))

        return await in_own_thread(
            lambda: self._shared_leases.take(workspace.root, workspace.ancestry, holder, overlaps), "take folder"
        )

    async def discard(self, driver_id: str, opening: SessionOpening) -> None:
        """Have a harness remove what its session owns at a service; nothing, where it has none.

        Raises:
            AgentRuntimeError: something may be left.
        """
        if not self.driven(driver_id).rejoins:
            return
        driver = cast("ServiceDriver", self.driver(driver_id))
        try:
            # Its service may have to confirm that nothing goes on there, and each thing goes by itself.
            async with asyncio.timeout(2 * max(self.windows.forget_s, self.driven(driver_id).settle_s)):
                await driver.discard(opening)
        except AgentRuntimeError:
            raise
        except Exception as error:
            raise AgentNativeExecutionError(
                f"{driver_id} could not remove what it keeps at its service ({type(error).__name__}), "
                "so the session stays. Delete it again.",
                native_code="DISCARD_FAILED",
                details={"driver": driver_id, "session_id": opening.session_id},
            ) from None

    def _check_no_credential(self, definition: AgentDefinition, options: SessionOptions) -> None:
        for what, value in (
            ("definition", definition.model_dump(mode="json")),
            ("session", options.model_dump(mode="json")),
        ):
            if self.redactor.value(value) != value:
                raise AgentDriverConfigurationError(
                    f"The {what} holds a credential. Credentials belong to connectors only.", details={"field": what}
                )


class Agent:
    """A definition that sessions can be opened of. Obtained from `AgentRuntime.create_agent`."""

    def __init__(self, runtime: "AgentRuntime", definition: AgentDefinition) -> None:
        self._runtime = runtime
        self.definition = definition

    @property
    def agent_id(self) -> str:
        return self.definition.id

    async def inspect(self, options: SessionOptions | Mapping[str, Any]) -> AgentInspection:
        """What this binding would be. Sends nothing, starts nothing, stores nothing.

        Raises:
            AgentDriverNotFoundError, AgentDriverConfigurationError, AgentPolicyUnsupportedError,
            AgentCapabilityUnsupportedError, AgentWorkspaceError: it would be refused.
        """
        return await self._runtime._inspect(self.definition, _captured(options))

    async def open_session(self, options: SessionOptions | Mapping[str, Any]) -> Session:
        """Open a session; its record is durable when this returns.

        Raises:
            AgentRuntimeError: as `inspect`; or it could not be stored.
        """
        return await self._runtime._open_session(self.definition, _captured(options))


class AgentRuntime:
    """The runtime over one backend.

    Args:
        backend: drivers, connectors, storage.
        backend_ownership: `owned` closes the backend with the runtime, `borrowed` leaves it open.
    """

    def __init__(self, backend: LocalBackend, *, backend_ownership: Literal["owned", "borrowed"] = "owned") -> None:
        self.backend = backend
        self._owns_backend = backend_ownership == "owned"
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # ------------------------------------------------------------------------------------- public

    def create_agent(self, definition: AgentDefinition | Mapping[str, Any]) -> Agent:
        """An agent of a definition.

        Raises:
            AgentDriverConfigurationError: the definition is not valid.
        """
        self._check_open()
        try:
            return Agent(self, AgentDefinition.model_validate(definition))
        except ValidationError as error:
            raise configuration_error("definition", error) from None

    async def resume_session(self, reference: SessionReference, *, context: TrustedContext) -> Session:
        """Open a session again. An input that was admitted and never sent is sent now.

        Raises:
            AgentScopeMismatchError: there is no such session, or it is not of this context.
            AgentBusyError: another runtime of this process has it open.
            AgentRuntimeError: its binding is refused now, or it could not be read.
        """
        self._check_open()
        store = await self.backend.storage(reference.agent_id)
        async with self.backend.lock(reference.session_id):
            record = await self._checked_record(store, reference, context)
            opened = self.backend.open_session(record.session_id)
            if opened is not None:
                return self._ours(opened)
            return await self._restore(store, record)

    async def delete_session(self, reference: SessionReference, *, context: TrustedContext) -> None:
        """Remove a session with its requests, runs and items, for good.

        Raises:
            AgentScopeMismatchError: there is no such session, or it is not of this context.
            AgentBusyError: a run of it goes on, here or at its service.
            AgentUnresolvedEffectError: a tool of it may have acted, and that is not found out yet.
            AgentNativeExecutionError, ConnectorError: what its harness keeps of it could not be removed, so its record
                stays.
            AgentDriverNotFoundError: its harness is not there to remove what it keeps.
            StorageError: it is still there.
        """
        self._check_open()
        store = await self.backend.storage(reference.agent_id)
        async with self.backend.lock(reference.session_id):
            record = await self._checked_record(store, reference, context)
            opened = self.backend.open_session(record.session_id)
            session = self._ours(opened) if opened is not None else None
            looked = session.inspect_state().reconciliation if session is not None else None
            rejoins = self.backend.driven(str(record.options["execution"]["driver"])).rejoins
            await store.read(lambda tx: _check_deletable(tx, record.session_id, looked, rejoins=rejoins))
            if session is not None:
                if verdict("delete", session.state) == "busy":
                    moving = session.inspect_state().activity == "transferring"
                    raise AgentBusyError(
                        "A file is being moved. Stop that before the session is deleted."
                        if moving
                        else "An answer is still coming. Stop it before the session is deleted.",
                        details={"session_id": record.session_id},
                    )
                await session.destroy(forget=False)
                record = await self._checked_record(store, reference, context)
            await self.backend.remove_partial(store, record)
            await self._discard(store, record)
            await self._forget(record)
            await store.transact(lambda tx: _delete(tx, record.session_id))
            if self.backend.plugins:
                await self.backend.gateway(reference.agent_id).sweep()
            if session is not None:
                session.mark_deleted()

    async def gateway(self, agent_id: str) -> Gateway:
        """The gateway of an agent, its file opened: mounts, calls that wait for a person, and their decisions.

        Raises:
            AgentClosedError: this runtime was destroyed.
            StorageError: the agent's file cannot be opened.
        """
        self._check_open()
        gateway = self.backend.gateway(agent_id)
        await gateway.open()
        return gateway

    async def take_up(self, agent_id: str, session_id: str, run_id: str, *, context: TrustedContext) -> Run:
        """Go on with a run that waited for a person, after one of its calls was decided. Its session is opened for it.

        The calls are looked at anew, so it waits on where another is undecided. A run that does not wait is only
        given back.

        Raises:
            AgentScopeMismatchError: there is no such run, or it is not of this context.
            AgentRuntimeError: as `resume_session`; the run waits on.
        """
        self._check_open()
        store = await self.backend.storage(agent_id)
        record = await store.read(lambda tx: tx.session(session_id))
        if record is None:
            raise AgentScopeMismatchError(NOT_YOURS)
        reference = SessionReference(
            session_id=session_id,
            agent_id=agent_id,
            scope_digest=_scope_digest(context),
            driver_id=str(record.options["execution"]["driver"]),
        )
        session = await self.resume_session(reference, context=context)
        return await session.take_up(run_id)

    async def recover(self, agent_id: str) -> list[RecoveredRun]:
        """Bring every run that an earlier process left open to where it is known to be.

        What was admitted and never sent is sent once. A run whose harness resumes goes on, its unanswered request
        asked again; one that waits for a person waits on, without anything being opened for it, and goes on if that
        was decided. Of all else that was sent the outcome is unknown, and it is never sent again. What was queued is
        sent where the last run ended by itself. Runs of this process are left alone.
        """
        self._check_open()
        store = await self.backend.storage(agent_id)
        live = self.backend.live_runs
        resumes = self.backend.goes_on
        await self.backend.remove_partials(store)
        stock = await store.transact(
            lambda tx: take_stock(tx, live=live, session_id=None, now_ms=_now_ms(), resumes=resumes)
        )
        recovered = [RecoveredRun(run.session_id, run.run_id, "unknown") for run in stock.unknown]
        for session_id in dict.fromkeys(run.session_id for run in (*stock.waiting, *stock.unsent)):
            recovered.extend(await self._recover_session(store, session_id))
        decided, flowing = await store.read(lambda tx: left_to_do(tx, _now_ms()))
        for session_id, run_id in decided:
            recovered.extend(await self._go_on_parked(store, session_id, run_id))
        for session_id in flowing:
            await self._flow(store, session_id)
        return recovered

    async def aclose(self) -> None:
        """Let go of every session opened here, and destroy the backend if it is owned. Idempotent.

        What harnesses keep of the sessions stays, so that these can be resumed. What goes on at a service goes on.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._aclose())
        await asyncio.shield(self._closing)

    # ------------------------------------------------------------------------------------- inside

    def _check_open(self) -> None:
        if self._closing is not None:
            raise AgentClosedError("This runtime was destroyed.")
        self.backend.check_open()

    async def _aclose(self) -> None:
        sessions = self.backend.sessions_of(self)
        await asyncio.gather(*(session.destroy(forget=False, leave=True) for session in sessions))
        if self._owns_backend:
            await self.backend.aclose()

    async def _inspect(self, definition: AgentDefinition, options: SessionOptions) -> AgentInspection:
        self._check_open()
        return await self.backend.inspect(definition, options)

    async def _open_session(self, definition: AgentDefinition, options: SessionOptions) -> Session:
        inspection = await self._inspect(definition, options)
        self.backend.check_storage(options.execution.driver)
        # From here on the folder is what its name led to now.
        options = _at_root(options, inspection)
        workspace = await self.backend.workspace(options)
        store = await self.backend.storage(definition.id)
        session_id = f"session_{uuid.uuid4().hex}"
        tools = await self._session_tools(store, session_id, definition, options, inspection)
        record = SessionRecord(
            session_id=session_id,
            scope_digest=_scope_digest(options.context),
            created_ms=_now_ms(),
            definition=definition.model_dump(mode="json"),
            options=options.model_dump(mode="json"),
            tools=tools.binding() if tools is not None else None,
        )
        # The record first: what a driver makes for a session must never be without an owner.
        await store.transact(lambda tx: _put_new(tx, record, inspection.configuration_revision))
        driver_session: DriverSession | None = None
        try:
            if tools is not None:
                await tools.open()
            driver_session = await self._open_native(definition, options, record, tools)
            self._check_open()
        except BaseException:
            await self._close_native(driver_session, tools)
            await self._forget_unopened(store, record)
            raise
        return self._session(store, record, definition, options, inspection, driver_session, tools, workspace)

    async def _restore(self, store: AgentStore, record: SessionRecord) -> Session:
        """Open the session of a record; the caller holds its lock and has checked the scope."""
        definition = AgentDefinition.model_validate(record.definition)
        options = _captured(record.options)
        inspection = await self._inspect(definition, options)
        workspace = await self.backend.workspace(options)
        if inspection.environment.root != options.environment.path:
            raise AgentConfigurationChangedError(
                "The workspace of this session leads to another folder now, so it is not continued.",
                details={"changed": "workspace"},
            )
        tools = await self._session_tools(store, record.session_id, definition, options, inspection)
        check_unchanged(record.tools, tools.selected if tools is not None else None)
        session_id, live = record.session_id, self.backend.live_runs
        await self._check_configuration(store, session_id, inspection)
        await self.backend.remove_partial(store, record)
        if self.backend.is_quarantined(session_id):
            past = await store.read(lambda tx: look_back(tx, session_id, with_runs=True))
            return self._session(store, record, definition, options, inspection, None, tools, workspace, past)
        driver_session: DriverSession | None = None

        def take(tx: AgentTx) -> tuple[tuple[RunRecord, ...], Past]:
            stock = take_stock(
                tx,
                live=live,
                session_id=session_id,
                now_ms=_now_ms(),
                reconciled=True,
                resumes=self.backend.goes_on,
            )
            if self.backend.driven(options.execution.driver).rejoins:
                waiting = stock.waiting or rejoinable(tx, session_id)
            else:
                waiting = stock.waiting or (continuable(tx, session_id) if tools is not None else ())
            current = tx.session(session_id)
            if current is not None and current.status != "open":
                tx.put_session(msgspec.structs.replace(current, status="open"))
            return (*waiting, *stock.unsent), look_back(tx, session_id, unsent=len(stock.unsent))

        try:
            if tools is not None:
                await tools.open()
                await tools.reconcile()
            driver_session = await self._open_native(definition, options, record, tools)
            unsent, past = await store.transact(take)
            self._check_open()
        except BaseException:
            await self._close_native(driver_session, tools)
            raise
        session = self._session(store, record, definition, options, inspection, driver_session, tools, workspace, past)
        if past.parked is not None:
            session.hold(past.parked)
        session.take_unsent(unsent)
        session.flow()
        return session

    async def _opened(self, store: AgentStore, session_id: str) -> Session | None:
        """A session, opened unless it is; None when it is gone, or its binding is refused now."""
        async with self.backend.lock(session_id):
            opened = self.backend.open_session(session_id)
            if opened is not None:
                return opened[0]
            record = await store.read(lambda tx: tx.session(session_id))
            try:
                return None if record is None else await self._restore(store, record)
            except StorageError:
                raise
            except AgentRuntimeError as error:
                _log.warning("a session that has something to do cannot be opened: %s", error.error_code)
                return None

    async def _go_on_parked(self, store: AgentStore, session_id: str, run_id: str) -> list[RecoveredRun]:
        session = await self._opened(store, session_id)
        if session is None or session.state != "ready":
            return []
        run = await session.take_up(run_id)
        return [RecoveredRun(session_id, run_id, "continued", run, session)]

    async def _flow(self, store: AgentStore, session_id: str) -> None:
        session = await self._opened(store, session_id)
        if session is not None:
            session.flow()

    async def _recover_session(self, store: AgentStore, session_id: str) -> list[RecoveredRun]:
        async with self.backend.lock(session_id):
            runs = await store.read(lambda tx: [run for run in tx.runs(session_id) if run.phase in OPEN_PHASES])
            runs = [run for run in runs if run.run_id not in self.backend.live_runs]
            record = await store.read(lambda tx: tx.session(session_id))
            if record is None or not runs:
                return []
            opened = self.backend.open_session(session_id)
            if opened is not None:
                # Admitted here by a commit whose answer was lost: its own session sends it, when it can.
                session = opened[0]
                if session.state != "ready":
                    return []
                runs = [run for run in runs if run.phase == "admitted"]
                session.take_unsent(runs)
                return [
                    RecoveredRun(session_id, run.run_id, "dispatched", await session.get_run(run.run_id), session)
                    for run in runs[:1]
                ]
            try:
                session = await self._restore(store, record)
            except StorageError:
                raise
            except AgentRuntimeError as error:
                await store.transact(functools.partial(_settle, runs=runs, error=error, now_ms=_now_ms()))
                return [
                    RecoveredRun(session_id, run.run_id, "failed" if run.phase == "admitted" else "unknown")
                    for run in runs
                ]
            recovered = []
            for run in runs:
                handle = await session.get_run(run.run_id)
                if run.phase == "dispatched" and handle.state == "unknown":
                    recovered.append(RecoveredRun(session_id, run.run_id, "unknown", session=session))
                    continue
                outcome: Literal["dispatched", "continued"] = "dispatched" if run.phase == "admitted" else "continued"
                recovered.append(RecoveredRun(session_id, run.run_id, outcome, handle, session))
            return recovered

    def _session(
        self,
        store: AgentStore,
        record: SessionRecord,
        definition: AgentDefinition,
        options: SessionOptions,
        inspection: AgentInspection,
        driver_session: DriverSession | None,
        tools: SessionTools | None,
        workspace: Workspace | None,
        past: Past = NO_PAST,
    ) -> Session:
        session = Session(
            home=self.backend,
            record=record,
            definition=definition,
            options=options,
            inspection=inspection,
            store=store,
            driver_session=driver_session,
            tools=tools,
            workspace=workspace,
            past=past,
            driven=self.backend.driven(options.execution.driver),
        )
        self.backend.opened(session, self)
        return session

    def _ours(self, opened: "tuple[Session, AgentRuntime]") -> Session:
        session, owner = opened
        if owner is not self:
            raise AgentBusyError("This session is open elsewhere in this program.")
        return session

    async def _checked_record(
        self, store: AgentStore, reference: SessionReference, context: TrustedContext
    ) -> SessionRecord:
        record = await store.read(lambda tx: tx.session(reference.session_id))
        scope = _scope_digest(context)
        known = record.scope_digest if record is not None else ""
        if record is None or not hmac.compare_digest(known, scope) or reference.scope_digest != scope:
            raise AgentScopeMismatchError(NOT_YOURS)
        return record

    async def _check_configuration(self, store: AgentStore, session_id: str, now: AgentInspection) -> None:
        """Refuse to go on with a harness that is configured otherwise than when the session was opened."""
        kept = await store.read(lambda tx: tx.fact(session_fact(session_id, CONFIGURATION))) or {}
        if kept.get("revision") != now.configuration_revision:
            raise AgentConfigurationChangedError(
                f"{now.driver_id} is configured otherwise than when this session was opened, so it is not continued.",
                details={"changed": "configuration_revision"},
            )

    async def _session_tools(
        self,
        store: AgentStore,
        session_id: str,
        definition: AgentDefinition,
        options: SessionOptions,
        inspection: AgentInspection,
    ) -> SessionTools | None:
        bound = await resolve(self.backend.resolve_tools, definition, options.context, inspecting=False)
        carried = inspection.capabilities.get(HOST_TOOLS)
        gate = None
        if self.backend.plugins and carried is not None and carried.support != "unsupported":
            folder = self.backend.folder_of_tools(options, inspection.environment.root)
            gate = self.backend.gateway(definition.id).session_gate(session_id, options, folder)
        if bound is None and gate is None:
            return None
        return SessionTools(
            session_id=session_id,
            context=options.context,
            bound=bound,
            gate=gate,
            store=store,
            redactor=self.backend.redactor,
            on_retained=self.backend.on_retained_observation,
            window_s=self.backend.windows.cleanup_s,
            bounds=self.backend.reconcile_bounds,
            hold_wait_s=self.backend.hold_wait_s(options.execution.driver),
        )

    async def _open_native(
        self, definition: AgentDefinition, options: SessionOptions, record: SessionRecord, tools: SessionTools | None
    ) -> DriverSession:
        driver = self.backend.driver(options.execution.driver)
        offers = tools.offers if tools is not None else ()
        try:
            store = await self.backend.storage(definition.id)
            return await driver.open(self._opening(store, record, definition, options, offers))
        except AgentRuntimeError:
            raise
        except Exception as error:
            raise AgentNativeExecutionError(
                f"{driver.driver_id} could not open a session ({type(error).__name__})."
            ) from error

    def _opening(
        self,
        store: AgentStore,
        record: SessionRecord,
        definition: AgentDefinition,
        options: SessionOptions,
        offers: tuple[ToolOffer, ...] = (),
    ) -> SessionOpening:
        session_id, redactor = record.session_id, self.backend.redactor

        async def keep(state: dict[str, Any]) -> None:
            kept: dict[str, Any] = freeze(redactor.value(state))

            def put(tx: AgentTx) -> bool:
                current = tx.session(session_id)
                if current is not None:
                    tx.put_session(msgspec.structs.replace(current, driver_state=kept))
                return current is not None

            if not await store.transact(put):
                raise AgentClosedError("The session was deleted.", details={"session_id": session_id})

        return SessionOpening(session_id, definition, options, record.driver_state, offers, keep)

    async def _discard(self, store: AgentStore, record: SessionRecord) -> None:
        """Have the harness of a session remove what that owns at a service."""
        definition, options = AgentDefinition.model_validate(record.definition), _captured(record.options)
        await self.backend.discard(options.execution.driver, self._opening(store, record, definition, options))

    async def _close_native(self, driver_session: DriverSession | None, tools: SessionTools | None) -> None:
        try:
            async with asyncio.timeout(self.backend.windows.cleanup_s):
                if tools is not None:
                    await tools.close()
                if driver_session is not None:
                    await driver_session.close()
        except Exception as error:
            _log.warning("closing a native side that was not needed failed: %s", type(error).__name__)

    async def _forget(self, record: SessionRecord) -> None:
        """Have the harness of a session remove what it keeps of it."""
        driver_id = str(record.options["execution"]["driver"])
        await self.backend.forget(driver_id, str(record.definition["id"]), record.session_id, record.driver_state)

    async def _forget_unopened(self, store: AgentStore, record: SessionRecord) -> None:
        """Remove a session that did not open; its record stays as long as its harness may keep something of it."""
        try:
            await self._forget(record)
            await store.transact(lambda tx: tx.delete_session(record.session_id))
        except AgentRuntimeError as error:
            _log.warning("the record of a session that did not open stays: %s", error.error_code)


def _by_id(plugins: Iterable[Plugin]) -> dict[str, Plugin]:
    """Plugins by their ids.

    Raises:
        AgentDriverConfigurationError: two of one id.
        MountRefusedError: one that cannot be mounted as it is.
    """
    found: dict[str, Plugin] = {}
    for plugin in plugins:
        if plugin.id in found:
            raise AgentDriverConfigurationError(
                f"Two plugins are called {plugin.id}; each may be registered once.", details={"plugin": plugin.id}
            )
        # From the start of the host: what a person pastes is looked at for its shapes of secrets, too.
        register_plugin(plugin)
        found[plugin.id] = plugin
    return found


def _put_new(tx: AgentTx, record: SessionRecord, configuration_revision: str | None) -> None:
    tx.put_session(record)
    if configuration_revision is not None:
        tx.put_fact(session_fact(record.session_id, CONFIGURATION), {"revision": configuration_revision})


def _check_deletable(
    tx: AgentTx, session_id: str, looked: Reconciliation | None = None, *, rejoins: bool = False
) -> None:
    for call in tx.unresolved_tool_calls(session_id):
        raise unresolved_error(call, looked)
    if rejoins and any(run.phase == "dispatched" for run in tx.runs(session_id)):
        raise AgentBusyError(
            "An answer is still being made at the service. Open the conversation and stop it before it is deleted.",
            details={"session_id": session_id},
        )


def _delete(tx: AgentTx, session_id: str) -> None:
    _check_deletable(tx, session_id)
    tx.delete_session(session_id)


def _settle(tx: AgentTx, runs: list[RunRecord], error: AgentRuntimeError, now_ms: int) -> None:
    """Write what runs came to whose session cannot be opened: the unsent failed, of the others nobody knows."""
    settle_unsendable(tx, [run for run in runs if run.phase == "admitted"], error, now_ms)
    for run in runs:
        current = tx.run(run.run_id)
        if run.phase == "dispatched" and current is not None and current.phase == "dispatched":
            settle_unknown(tx, current, now_ms)


def _captured(options: SessionOptions | Mapping[str, Any]) -> SessionOptions:
    """Options that nobody can change any more, also when they were made past validation."""
    given = options.model_dump() if isinstance(options, SessionOptions) else options
    try:
        return SessionOptions.model_validate(given)
    except ValidationError as error:
        raise configuration_error("session", error) from None


def _at_root(options: SessionOptions, inspection: AgentInspection) -> SessionOptions:
    if inspection.environment.root is None:
        return options
    environment = options.environment.model_copy(update={"path": inspection.environment.root})
    return options.model_copy(update={"environment": environment})


def _check_needs(options: SessionOptions, inspection: AgentInspection, tools: BoundTools | None) -> None:
    """Refuse a binding that its harness cannot carry as it was asked for."""
    capabilities, driver_id = inspection.capabilities, inspection.driver_id
    if options.policy.approvals == "interactive":
        approving = capabilities.get("run.approval")
        if approving is None or approving.support == "unsupported":
            raise AgentPolicyUnsupportedError(
                f"{driver_id} cannot ask for approvals, so policy.approvals must be deny.",
                details={"field": "policy.approvals"},
            )
    needed = list(options.required_capabilities)
    if options.control_mode == "steerable":
        needed.append(CapabilityRequirement(id="run.steer"))
    if tools is not None:
        needed.append(CapabilityRequirement(id=HOST_TOOLS))
    check_capabilities(capabilities, strongest(needed), driver_id)


def _inspection(
    definition: AgentDefinition,
    options: SessionOptions,
    said: DriverInspection,
    workspace: Workspace | None,
    tools: BoundTools | None,
    backend: LocalBackend,
) -> AgentInspection:
    limits = options.policy.limits
    enforcement = {field: said.enforcement.get(field, UNKNOWN) for field in POLICY_FIELDS}
    for name, value in limits.model_dump().items():
        if value is not None:
            ours = name in _ENFORCED_LIMITS
            enforcement[f"limits.{name}"] = "runtime" if ours else said.enforcement.get(f"limits.{name}", UNKNOWN)
    environment = InspectedEnvironment(
        type=options.environment.type,
        root=workspace.root if workspace is not None else None,
        reference=options.environment.reference,
    )
    definition_digest = digest(definition.model_dump(mode="json"))
    bound = {
        "definition": definition_digest,
        "options": options.model_dump(mode="json", exclude={"context", "metadata", "environment"}),
        "environment": environment.model_dump(mode="json"),
    }
    if tools is not None:
        bound["tools"] = tools.binding()
    if said.configuration_revision is not None:
        bound["configuration_revision"] = said.configuration_revision
    schema_digests = tools.schema_digests if tools is not None else {}
    return AgentInspection(
        driver_id=said.driver_id,
        capabilities={
            **said.capabilities,
            "isolation.tenant": Capability(support="unsupported", reason="everything here runs as one person"),
        },
        enforcement=FrozenDict(enforcement),
        prerequisites=said.prerequisites,
        definition_digest=definition_digest,
        execution_digest=digest(bound),
        tools=tuple(
            ToolInspection(name=name, schema_digest=each, native_name=said.native_tool_names.get(name, UNKNOWN))
            for name, each in schema_digests.items()
        ),
        tools_fingerprint=tools.fingerprint if tools is not None else None,
        configuration=FrozenDict(options.execution.model_dump(mode="json", include={"model", "reasoning"})),
        configuration_revision=said.configuration_revision,
        environment=environment,
        durability=backend.durability,
        usage_coverage=said.usage_coverage,
        replay=ReplayBounds(
            event_buffer_bytes=min(limits.event_buffer_bytes, backend.max_session_journal_bytes),
            session_journal_bytes=backend.max_session_journal_bytes,
        ),
    )


def _scope_digest(context: TrustedContext) -> str:
    return digest(context.scope())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
