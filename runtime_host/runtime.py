"""The Agent Runtime: agents, sessions opened and resumed, recovery after a crash.

Owns which drivers there are, which sessions are open, and who may resume or delete one. Must not know
Qt, desktops or vendors. Invariants: a foreign scope learns nothing, not even that a session exists; a
session is open at most once in a backend; closing lets go of every session that was opened here.
"""

import asyncio
import functools
import hmac
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Protocol, Self

import msgspec
from pydantic import ValidationError

from runtime_host.canonical import NotJsonError, digest, freeze
from runtime_host.capabilities import AgentInspection, ReplayBounds
from runtime_host.definitions import AgentDefinition, SessionOptions, TrustedContext
from runtime_host.drivers.base import AgentDriver, DriverSession, SessionOpening
from runtime_host.errors import (
    AgentBusyError,
    AgentClosedError,
    AgentDriverConfigurationError,
    AgentDriverNotFoundError,
    AgentNativeExecutionError,
    AgentRuntimeError,
    AgentScopeMismatchError,
    StorageError,
)
from runtime_host.frozen import configuration_error
from runtime_host.intake import Redactor
from runtime_host.recovery import settle_unsendable, take_stock
from runtime_host.redaction import Redactor as SecretRedactor
from runtime_host.run import Run, Windows
from runtime_host.session import Session, SessionReference
from runtime_host.states import verdict
from runtime_host.storage.base import AgentStore, AgentTx, RunRecord, SessionRecord

_log = logging.getLogger("runtime_host.runtime")

MIN_SESSION_JOURNAL_BYTES: Final = 1024
NOT_YOURS: Final = "There is no such session, or it is not yours."


class Connectors(Protocol):
    """The named credentials that drivers use; the runtime needs only what masks them."""

    @property
    def redactor(self) -> Redactor: ...


class RecoveredRun(NamedTuple):
    """What became of a run that an earlier process left open.

    Attributes:
        outcome: `dispatched`, it had never been sent and is sent now; `unknown`, it had been and is not
            sent again; `failed`, it had never been sent and cannot be.
        run, session: of a dispatched one; the session stays open until it is detached or destroyed.
    """

    session_id: str
    run_id: str
    outcome: Literal["dispatched", "unknown", "failed"]
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
    ) -> None:
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
        for driver in self._drivers.values():
            try:
                async with asyncio.timeout(self.windows.cleanup_s):
                    await driver.aclose()
            except TimeoutError:
                _log.warning("driver %s did not close in time", driver.driver_id)
            except Exception as error:
                _log.warning("closing driver %s failed: %s", driver.driver_id, type(error).__name__)


class Agent:
    """A definition that sessions can be opened of. Obtained from `AgentRuntime.create_agent`."""

    def __init__(self, runtime: "AgentRuntime", definition: AgentDefinition) -> None:
        self._runtime = runtime
        self.definition = definition

    @property
    def agent_id(self) -> str:
        return self.definition.id

    async def inspect(self, options: SessionOptions) -> AgentInspection:
        """What this binding would be. Sends nothing, starts nothing, stores nothing.

        Raises:
            AgentDriverNotFoundError, AgentDriverConfigurationError, AgentPolicyUnsupportedError,
            AgentCapabilityUnsupportedError: it would be refused.
        """
        return await self._runtime._inspect(self.definition, _captured(options))

    async def open_session(self, options: SessionOptions) -> Session:
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
            AgentBusyError: a run of it goes on.
            StorageError: it is still there.
        """
        self._check_open()
        store = await self.backend.storage(reference.agent_id)
        async with self.backend.lock(reference.session_id):
            record = await self._checked_record(store, reference, context)
            opened = self.backend.open_session(record.session_id)
            session = self._ours(opened) if opened is not None else None
            if session is not None:
                if verdict("delete", session.state) == "busy":
                    raise AgentBusyError(
                        "An answer is still coming. Stop it before the session is deleted.",
                        details={"session_id": record.session_id},
                    )
                await session.destroy()
            await store.transact(lambda tx: tx.delete_session(record.session_id))
            if session is not None:
                session.mark_deleted()

    async def recover(self, agent_id: str) -> list[RecoveredRun]:
        """Bring every run that an earlier process left open to where it is known to be.

        What was admitted and never sent is sent once; of what was sent the outcome is unknown, and it
        is never sent again. Runs of this process are left alone.
        """
        self._check_open()
        store = await self.backend.storage(agent_id)
        live = self.backend.live_runs
        stock = await store.transact(lambda tx: take_stock(tx, live=live, session_id=None, now_ms=_now_ms()))
        recovered = [RecoveredRun(run.session_id, run.run_id, "unknown") for run in stock.unknown]
        for session_id in dict.fromkeys(run.session_id for run in stock.unsent):
            recovered.extend(await self._recover_session(store, session_id))
        return recovered

    async def aclose(self) -> None:
        """Destroy every session opened here, and the backend if it is owned. Idempotent."""
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
        await asyncio.gather(*(session.destroy() for session in sessions))
        if self._owns_backend:
            await self.backend.aclose()

    async def _inspect(self, definition: AgentDefinition, options: SessionOptions) -> AgentInspection:
        self._check_open()
        driver = self.backend.driver(options.execution.driver)
        if definition.tools:
            raise AgentDriverConfigurationError(
                "This runtime has no resolver for application tools, so a definition cannot select any.",
                details={"field": "tools", "tools": list(definition.tools)},
            )
        said = await driver.inspect(definition, options)
        definition_digest = digest(definition.model_dump(mode="json"))
        bound = options.model_dump(mode="json", exclude={"context"})
        return AgentInspection(
            driver_id=said.driver_id,
            capabilities=said.capabilities,
            enforcement=said.enforcement,
            prerequisites=said.prerequisites,
            definition_digest=definition_digest,
            execution_digest=digest({"definition": definition_digest, "options": bound}),
            replay=ReplayBounds(
                event_buffer_bytes=min(
                    options.policy.limits.event_buffer_bytes, self.backend.max_session_journal_bytes
                ),
                session_journal_bytes=self.backend.max_session_journal_bytes,
            ),
        )

    async def _open_session(self, definition: AgentDefinition, options: SessionOptions) -> Session:
        inspection = await self._inspect(definition, options)
        store = await self.backend.storage(definition.id)
        record = SessionRecord(
            session_id=f"session_{uuid.uuid4().hex}",
            scope_digest=_scope_digest(options.context),
            created_ms=_now_ms(),
            definition=definition.model_dump(mode="json"),
            options=options.model_dump(mode="json"),
        )
        # The record first: what a driver makes for a session must never be without an owner.
        await store.transact(lambda tx: tx.put_session(record))
        driver_session: DriverSession | None = None
        try:
            driver_session = await self._open_native(definition, options, record)
            self._check_open()
        except BaseException:
            if driver_session is not None:
                await self._close_native(driver_session)
            await self._forget_record(store, record.session_id)
            raise
        return self._session(store, record, definition, options, inspection, driver_session)

    async def _restore(self, store: AgentStore, record: SessionRecord) -> Session:
        """Open the session of a record; the caller holds its lock and has checked the scope."""
        definition = AgentDefinition.model_validate(record.definition)
        options = _captured(SessionOptions.model_validate(record.options))
        inspection = await self._inspect(definition, options)
        if self.backend.is_quarantined(record.session_id):
            return self._session(store, record, definition, options, inspection, None)
        driver_session = await self._open_native(definition, options, record)
        session_id, live = record.session_id, self.backend.live_runs

        def take(tx: AgentTx) -> tuple[RunRecord, ...]:
            stock = take_stock(tx, live=live, session_id=session_id, now_ms=_now_ms())
            current = tx.session(session_id)
            if current is not None and current.status != "open":
                tx.put_session(msgspec.structs.replace(current, status="open"))
            return stock.unsent

        try:
            unsent = await store.transact(take)
            self._check_open()
        except BaseException:
            await self._close_native(driver_session)
            raise
        session = self._session(store, record, definition, options, inspection, driver_session)
        session.take_unsent(unsent)
        return session

    async def _recover_session(self, store: AgentStore, session_id: str) -> list[RecoveredRun]:
        async with self.backend.lock(session_id):
            runs = await store.read(lambda tx: [run for run in tx.runs(session_id) if run.phase == "admitted"])
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
                session.take_unsent(runs)
                return [
                    RecoveredRun(session_id, run.run_id, "dispatched", session.active_run, session) for run in runs[:1]
                ]
            try:
                session = await self._restore(store, record)
            except StorageError:
                raise
            except AgentRuntimeError as error:
                await store.transact(functools.partial(settle_unsendable, runs=runs, error=error, now_ms=_now_ms()))
                return [RecoveredRun(session_id, run.run_id, "failed") for run in runs]
            return [
                RecoveredRun(session_id, run.run_id, "dispatched", await session.get_run(run.run_id), session)
                for run in runs
            ]

    def _session(
        self,
        store: AgentStore,
        record: SessionRecord,
        definition: AgentDefinition,
        options: SessionOptions,
        inspection: AgentInspection,
        driver_session: DriverSession | None,
    ) -> Session:
        session = Session(
            home=self.backend,
            record=record,
            definition=definition,
            options=options,
            inspection=inspection,
            store=store,
            driver_session=driver_session,
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

    async def _open_native(
        self, definition: AgentDefinition, options: SessionOptions, record: SessionRecord
    ) -> DriverSession:
        driver = self.backend.driver(options.execution.driver)
        try:
            return await driver.open(SessionOpening(record.session_id, definition, options, record.driver_state))
        except AgentRuntimeError:
            raise
        except Exception as error:
            raise AgentNativeExecutionError(
                f"{driver.driver_id} could not open a session ({type(error).__name__})."
            ) from error

    async def _close_native(self, driver_session: DriverSession) -> None:
        try:
            async with asyncio.timeout(self.backend.windows.cleanup_s):
                await driver_session.close()
        except Exception as error:
            _log.warning("closing a native side that was not needed failed: %s", type(error).__name__)

    async def _forget_record(self, store: AgentStore, session_id: str) -> None:
        try:
            await store.transact(lambda tx: tx.delete_session(session_id))
        except StorageError as error:
            _log.warning("the record of a session that did not open stays: %s", error.error_code)


def _captured(options: SessionOptions) -> SessionOptions:
    """Options that nobody can change any more."""
    try:
        config = freeze(options.execution.driver_config, "driver_config")
    except NotJsonError as error:
        raise AgentDriverConfigurationError(
            f"The session options are not valid: {error}.", details={"field": "execution.driver_config"}
        ) from None
    execution = options.execution.model_copy(update={"driver_config": config})
    return options.model_copy(update={"execution": execution})


def _scope_digest(context: TrustedContext) -> str:
    return digest(context.scope())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
