"""The harness `anthropic.managed.api`: Claude Managed Agents, whose loop, history and sandbox are the provider's.

Owns the checks before a session, the sessions that are open, and the removal of what was made for one. Must not know
storage, journal or other drivers. Invariants: inspecting and opening send nothing and read no key; only what was made
for a session is removed, and only once the provider says that nothing goes on in it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from runtime_host.capabilities import DriverInspection
from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.connectors.transport import Timeouts
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.drivers.base import Keep, SessionOpening
from runtime_host.drivers.claude_managed import profile
from runtime_host.drivers.claude_managed.calls import Calls, Kind
from runtime_host.drivers.claude_managed.files import remove_uploads
from runtime_host.drivers.claude_managed.profile import DRIVER_ID, SERVICE, SETTLE_S, Profile
from runtime_host.drivers.claude_managed.session import ManagedClaudeSession, kept_state
from runtime_host.drivers.managed.faults import ServiceFault, facts
from runtime_host.drivers.managed.intents import LISTED_BY_S, LOOKING, age_s, intended, look_for, settled
from runtime_host.drivers.managed.service import Bounds, Patience
from runtime_host.errors import AgentBusyError, AgentClosedError, AgentNativeExecutionError
from runtime_host.models.declared import NOTHING_DECLARED, DeclaredModels
from runtime_host.models.facts import facts_for
from runtime_host.models.reasoning import ReasoningMap

IDLE_TRIES: Final = 6


def _no_environments() -> tuple[str, ...]:
    return ()


class ClaudeManagedDriver:
    """Sessions with Claude Managed Agents.

    Args:
        connectors: finds servers and hands out keys.
        environment_ids: tells the environments of the account that were reviewed and may be used.
        model_reasoning_efforts: efforts of models beyond the verified ones, or instead of them.
        declared: what the person says of models in their own file.
        timeouts: when a server counts as gone.
        bounds: of what is read.
        patience: of questions.
        looking: how often is looked for what an answer was lost of.
        workspace_id: of the account's workspaces the one to work in.

    Raises:
        AgentDriverConfigurationError: an effort that is declared is unknown or never sent.
    """

    rejoins = True
    settle_s = SETTLE_S
    hold_wait_s = 50.0
    """How long a call waits for a person before the model is told to expect a message."""

    def __init__(
        self,
        connectors: ConnectorRegistry,
        *,
        environment_ids: Callable[[], Collection[str]] = _no_environments,
        model_reasoning_efforts: Mapping[str, Sequence[str]] | None = None,
        declared: DeclaredModels = NOTHING_DECLARED,
        timeouts: Timeouts | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008 - nobody can change it
        patience: Patience = Patience(),  # noqa: B008 - nobody can change it
        looking: Patience = LOOKING,
        workspace_id: str | None = None,
    ) -> None:
        self.connectors = connectors
        self.calls = Calls(connectors, timeouts, bounds, patience, workspace_id)
        self.looking = looking
        self._environment_ids = environment_ids
        self._vouched_efforts = model_reasoning_efforts
        self.declare(declared)
        self._sessions: set[ManagedClaudeSession] = set()
        self._closed = False

    def declare(self, declared: DeclaredModels) -> None:
        """Go by these sayings of the person from now on.

        Raises:
            AgentDriverConfigurationError: an effort that is declared is unknown or never sent; then nothing changes.
        """
        self.efforts = ReasoningMap(
            DRIVER_ID,
            efforts=self._vouched_efforts,
            declared=declared.reasoning.get(DRIVER_ID),
            not_reasoning=declared.not_reasoning,
        )
        self.declared = declared

    @property
    def driver_id(self) -> str:
        return DRIVER_ID

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        """Check a binding; reads no key and sends nothing."""
        return self._look(definition, options)[1]

    async def open(self, opening: SessionOpening) -> ManagedClaudeSession:
        """Open or restore a session; nothing is asked of the provider before its first run."""
        if self._closed:
            raise AgentClosedError(f"{DRIVER_ID} is closed.")
        chosen, _ = self._look(opening.definition, opening.options)
        session = ManagedClaudeSession(self, opening, chosen)
        self._sessions.add(session)
        return session

    async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Nothing of a session is kept on this computer but its state."""

    async def discard(self, opening: SessionOpening) -> None:
        """Remove the session, the environment and the agent that were made for this one. Idempotent.

        Raises:
            AgentBusyError: something goes on in it.
            AgentNativeExecutionError: something may be left; it is in the state still.
        """
        if self._closed:
            raise AgentClosedError(f"{DRIVER_ID} is closed.")
        removal = _Removal(self.calls, opening, self.looking)
        try:
            await removal.run()
            return
        except ServiceFault as raised:
            fault = raised
        raise AgentNativeExecutionError(
            f"{SERVICE} could not remove all that was made for this conversation ({fault.kind}). It is kept here, so "
            "that nothing of it is forgotten. Delete it again later.",
            native_code="CLEANUP_FAILED",
            retryable=True,
            details=facts(fault),
        )

    async def aclose(self) -> None:
        """Let go of what is open. What goes on at the provider goes on."""
        self._closed = True
        while self._sessions:
            await asyncio.gather(*(session.close() for session in tuple(self._sessions)))
        await self.calls.aclose()

    def left(self, session: ManagedClaudeSession) -> None:
        """The session is closed."""
        self._sessions.discard(session)

    def _look(self, definition: AgentDefinition, options: SessionOptions) -> tuple[Profile, DriverInspection]:
        chosen = profile.profile_of(options, self._environment_ids())
        execution = options.execution
        connector = self.connectors.connector(execution.connector)
        profile.check_connector(connector)
        profile.check_model(execution.model)
        profile.check_reasoning(self.efforts, connector, execution.model, execution.reasoning)
        profile.check_tools(definition.tools)
        facts_of_model = facts_for(connector, execution.model, self.declared)
        return chosen, profile.inspection(definition, connector, facts_of_model, self.efforts, chosen)


class _Removal:
    """The removal of what was made for one session, in the order in which it hangs together."""

    def __init__(self, calls: Calls, opening: SessionOpening, looking: Patience) -> None:
        self._calls = calls
        self._keep_state: Keep | None = opening.keep
        self._connector = opening.options.execution.connector
        self._looking = looking
        self._state = kept_state(opening)

    async def run(self) -> None:
        for kind in ("session", "environment", "agent"):
            await self._remove_known(kind)
            await self._remove_lost(kind)
        await remove_uploads(self._calls, self._connector, self._looking, self._state, self._keep)

    async def _remove_known(self, kind: Kind) -> None:
        known = self._state[kind]
        if known is None:
            return
        if kind != "environment" or known.get("owned"):
            await self._remove(kind, str(known["id"]))
        await self._keep({**self._state, kind: None})

    async def _remove_lost(self, kind: Kind) -> None:
        """Remove what was about to be made when its answer was lost, once it is shown.

        Raises:
            AgentBusyError: it is not, and may be still.
        """
        intent = intended(self._state, kind)
        if intent is None:
            return

        async def find() -> tuple[str, ...]:
            return tuple(await self._calls.marked(self._connector, kind, intent))

        looked = await look_for(find, self._looking)
        if not looked.found and age_s(self._state, kind) < LISTED_BY_S:
            # Its record is all that leads to it.
            raise AgentBusyError(
                f"{SERVICE} was asked for this conversation's {kind}, its answer was lost, and it does not show it. It "
                f"was looked for {looked.in_words()}. The conversation stays, so that nothing is forgotten there. Try "
                "again later."
            )
        for thing_id in looked.found:
            await self._remove(kind, thing_id)
        await self._keep(settled(self._state, kind))

    async def _remove(self, kind: Kind, thing_id: str) -> None:
        if kind == "session" and not await self._is_idle(thing_id):
            raise _busy()
        try:
            await self._calls.remove(self._connector, kind, thing_id)
        except ServiceFault as fault:
            if fault.status == 404:
                return
            if kind != "session" or fault.status not in (400, 409):
                raise
        else:
            return
        raise _busy()

    async def _is_idle(self, session_id: str) -> bool:
        """Whether nothing goes on; the record may lag a moment behind."""
        for tried in range(IDLE_TRIES):
            try:
                said = await self._calls.retrieve(self._connector, "session", session_id)
            except ServiceFault as fault:
                if fault.status == 404:
                    return True
                raise
            if said.get("status") in ("idle", "terminated"):
                return True
            await self._looking.sleep(min(1.0, 0.1 * 2**tried))
        return False

    async def _keep(self, state: dict[str, Any]) -> None:
        if self._keep_state is not None:
            await self._keep_state(state)
        self._state = state


def _busy() -> AgentBusyError:
    return AgentBusyError(
        f"Something of this conversation still goes on at {SERVICE}, so nothing was removed. Stop it, then delete it."
    )
