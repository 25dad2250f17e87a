"""The harness `openai.agents.api`: sessions whose loop, history and files are OpenAI's.

Owns the client and the sessions that are open. Must not know storage, journal or other drivers. Invariants: looking and
opening send nothing; what is removed at OpenAI is what this program made there, and only when nothing of it goes on.
"""

import asyncio
import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runtime_host.capabilities import DriverInspection
from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.drivers.base import SessionOpening
from runtime_host.drivers.managed import intents
from runtime_host.drivers.managed.faults import ServiceFault, run_error
from runtime_host.drivers.managed.service import Bounds, Patience, ServiceClient
from runtime_host.drivers.openai_managed import profile
from runtime_host.drivers.openai_managed.api import AgentsApi
from runtime_host.drivers.openai_managed.profile import DRIVER_ID, SERVICE
from runtime_host.drivers.openai_managed.session import OpenAIManagedSession, checked_state
from runtime_host.errors import AgentBusyError, AgentClosedError, AgentNativeExecutionError
from runtime_host.loop.model_apis.reading import text
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.models.declared import NOTHING_DECLARED, DeclaredModels
from runtime_host.models.reasoning import ReasoningMap

if TYPE_CHECKING:
    from runtime_host.connectors.transport import Timeouts


class OpenAIManagedDriver:
    """Agents at OpenAI, through the connectors of a registry.

    Args:
        connectors: finds servers and hands out keys.
        model_efforts: by model, efforts the host program vouches for; they replace what is bundled.
        declared: what the person says of models in their own file.
        environment_templates: templates of environments that somebody has reviewed; may be asked anew each time.
        timeouts: when a server counts as gone, and an observer as lost.
        bounds: of what is read from OpenAI at once.
        patience: of questions.
        looking: how often and over how long what a lost answer left is looked for.
        reconnecting: how often in a row a lost stream is opened anew in vain.

    Raises:
        AgentDriverConfigurationError: an effort that is declared is unknown or never sent.
    """

    rejoins = True
    settle_s = 30.0
    hold_wait_s = 50.0

    def __init__(
        self,
        connectors: ConnectorRegistry,
        *,
        model_efforts: Mapping[str, Sequence[str]] | None = None,
        declared: DeclaredModels = NOTHING_DECLARED,
        environment_templates: Callable[[], Collection[str]] | Collection[str] = (),
        timeouts: "Timeouts | None" = None,
        bounds: Bounds = Bounds(),  # noqa: B008 - nobody can change it
        patience: Patience = Patience(),  # noqa: B008 - nobody can change it
        looking: Patience = intents.LOOKING,
        reconnecting: Patience = Patience(tries=10, longest_wait_s=15.0),  # noqa: B008 - nobody can change it
    ) -> None:
        self.connectors = connectors
        self.looking = looking
        self.reconnecting = reconnecting
        self._vouched_efforts = model_efforts
        self._templates = environment_templates
        self._timeouts = timeouts
        self._bounds = bounds
        self._patience = patience
        self._loading: asyncio.Task[ServiceClient[Any]] | None = None
        self._sessions: set[OpenAIManagedSession] = set()
        self._closed = False
        self.declare(declared)

    def declare(self, declared: DeclaredModels) -> None:
        """Go by these sayings of the person from now on.

        Raises:
            AgentDriverConfigurationError: an effort that is declared is unknown or never sent; then nothing changes.
        """
        self.efforts = ReasoningMap(
            DRIVER_ID,
            efforts=self._vouched_efforts,
            declared=declared.reasoning[DRIVER_ID],
            not_reasoning=declared.not_reasoning,
        )

    @property
    def driver_id(self) -> str:
        return DRIVER_ID

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        """Check a binding; reads no key and sends nothing."""
        templates = self._templates() if callable(self._templates) else self._templates
        profile.check_session(options, templates)
        execution = options.execution
        connector = self.connectors.connector(execution.connector)
        profile.check_connector(connector)
        profile.check_model(self.efforts, connector, execution.model, execution.reasoning)
        return profile.inspection(definition, connector, options, self.efforts)

    async def open(self, opening: SessionOpening) -> OpenAIManagedSession:
        """Open or restore a session; nothing is asked of OpenAI before its first run, or the run that is rejoined."""
        if self._closed:
            raise AgentClosedError(f"{DRIVER_ID} is closed.")
        await self.inspect(opening.definition, opening.options)
        session = OpenAIManagedSession(self, opening, self._sessions.discard)
        self._sessions.add(session)
        return session

    async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Nothing of a session is kept on this computer but its record, which is the runtime's."""

    async def discard(self, opening: SessionOpening) -> None:
        """Delete the session at OpenAI. Its environment has no owner to delete it: it expires there by itself.

        Raises:
            AgentBusyError: a turn goes on there, or a session is only being made.
            AgentNativeExecutionError: something may be left.
        """
        state = checked_state(opening)
        connector = self.connectors.connector(opening.options.execution.connector)
        profile.check_connector(connector)
        try:
            api = AgentsApi(await self.client(), connector.name)
            for session_id in await self._owned(api, state, opening):
                await _delete(api, session_id)
            return
        except ServiceFault as raised:
            fault = raised
        said = run_error(
            fault,
            connector,
            SERVICE,
            opening.options.execution.model,
            means="Whether the session at OpenAI is deleted is not known, so its record stays.",
        )
        raise AgentNativeExecutionError(said.message, native_code=said.code, details=dict(said.details))

    async def _owned(self, api: AgentsApi, state: Mapping[str, Any], opening: SessionOpening) -> list[str]:
        known = text(state.get("session"), "id")
        intent = intents.intended(state, "session")
        if known or intent is None:
            return [known] if known else []
        looked = await intents.look_for(lambda: api.marked(intent), self.looking)
        if not looked.found and intents.age_s(state, "session") < intents.LISTED_BY_S:
            # Its record is all that leads to it.
            raise AgentBusyError(
                "OpenAI was asked for this session, its answer was lost, and it does not show the session. It was "
                f"looked for {looked.in_words()}. The conversation stays, so that nothing is forgotten there. Try "
                "again later."
            )
        return list(looked.found)

    async def aclose(self) -> None:
        """Let go of all sessions and close the connections; nothing at OpenAI is ended by this."""
        self._closed = True
        for session in tuple(self._sessions):
            await session.close()
        loading, self._loading = self._loading, None
        if loading is not None:
            # A load that nobody waits for any more still has its thread.
            await asyncio.wait({loading})
            if not loading.cancelled() and loading.exception() is None:
                await loading.result().aclose()

    async def client(self) -> ServiceClient[Any]:
        """The client, its SDK loaded on first use and away from the event loop."""
        if self._closed:
            raise AgentClosedError(f"{DRIVER_ID} is closed.")
        loading = self._loading
        if loading is None or (loading.done() and (loading.cancelled() or loading.exception() is not None)):
            load = in_own_thread(self._load, f"load {DRIVER_ID}")
            loading = self._loading = asyncio.create_task(load)
        # Not given up with the run that asked first: others may wait for it.
        return await asyncio.shield(loading)

    def _load(self) -> ServiceClient[Any]:
        # By name, so that neither this module nor a type checker's import brings an SDK in.
        module = importlib.import_module("runtime_host.drivers.openai_managed.client")
        client: ServiceClient[Any] = module.load(self.connectors, self._timeouts, self._bounds, self._patience)
        return client


async def _delete(api: AgentsApi, session_id: str) -> None:
    """Delete one session that is idle; one that is gone already is deleted."""
    try:
        status = text(await api.session(session_id), "status")
        if status in ("in_progress", "requires_action"):
            raise _busy()
        await api.delete(session_id)
    except ServiceFault as fault:
        if fault.status == 404:
            return
        if fault.status == 409:
            raise _busy() from None
        if fault.did_nothing or not await _is_gone(api, session_id):
            raise


async def _is_gone(api: AgentsApi, session_id: str) -> bool:
    try:
        await api.session(session_id)
    except ServiceFault as fault:
        return fault.status == 404
    return False


def _busy() -> AgentBusyError:
    return AgentBusyError(
        "The agent is still at work at OpenAI, so its session is not deleted. Stop it, or wait until it is done."
    )
