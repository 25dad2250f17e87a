"""One session at OpenAI, as this program knows it.

Owns what is kept of it: its name there, what is about to be made, and of the newest runs what is needed to find them
again. Must not know events or storage. Invariants: nothing is asked to be made before the intent is kept; inputs,
cancels and changes go one after the other; the state holds no credential and no word of person or model.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from runtime_host.canonical import digest
from runtime_host.connectors.base import Connector
from runtime_host.drivers.base import SessionOpening, Turn
from runtime_host.drivers.managed import intents
from runtime_host.drivers.managed.faults import ServiceFault
from runtime_host.drivers.openai_managed import profile, words
from runtime_host.drivers.openai_managed.api import AgentsApi
from runtime_host.drivers.openai_managed.files import SessionFiles
from runtime_host.drivers.openai_managed.profile import DRIVER_ID
from runtime_host.drivers.openai_managed.run import SESSION, OpenAIManagedRun
from runtime_host.errors import AgentClosedError, AgentConfigurationChangedError, AgentSessionRecoveryError
from runtime_host.loop.model_apis.reading import member, text
from runtime_host.results import RunError

if TYPE_CHECKING:
    from runtime_host.drivers.openai_managed.driver import OpenAIManagedDriver

STATE_VERSION: Final = 1
MOST_RUNS: Final = 8


def checked_state(opening: SessionOpening) -> dict[str, Any]:
    """What was kept of a session; a fresh state where there is none.

    Raises:
        AgentSessionRecoveryError: another version kept it.
    """
    state = opening.state
    if not state:
        return {"version": STATE_VERSION, "intents": {}, "session": None, "environment": None, "runs": {}}
    if state.get("version") != STATE_VERSION:
        raise AgentSessionRecoveryError(
            f"This session was kept by another version of {DRIVER_ID}, so it is not continued. Its messages can "
            "still be read.",
            session_id=opening.session_id,
        )
    return dict(state)


class OpenAIManagedSession:
    """A session of the driver.

    Attributes:
        opening: what it was opened with.
        lock: held by whatever changes something at OpenAI.
        files: moves them in and out.
    """

    def __init__(
        self,
        driver: "OpenAIManagedDriver",
        opening: SessionOpening,
        on_close: "Callable[[OpenAIManagedSession], None]",
    ) -> None:
        self.driver: Final = driver
        self.opening: Final = opening
        self.lock: Final = asyncio.Lock()
        self._state = checked_state(opening)
        self._on_close = on_close
        self._runs: set[OpenAIManagedRun] = set()
        self._closed = False
        self.files: Final = SessionFiles(self, self._checked_connector)
        self._check_endpoint()

    async def start(self, turn: Turn) -> OpenAIManagedRun:
        """Send the input.

        Raises:
            AgentDriverConfigurationError: model, reasoning, format or parts of this turn are refused; nothing was sent.
            AgentConfigurationChangedError: the connector leads to another address now; nothing was sent.
        """
        connector = self._checked_connector()
        profile.check_model(self.driver.efforts, connector, turn.model, turn.reasoning)
        profile.check_parts(turn.parts)
        profile.check_format(self._state.get("format"), turn.response_format)
        return self._begin(turn, rejoins=False)

    async def rejoin(self, turn: Turn) -> OpenAIManagedRun:
        """Find out what became of an input and watch on; nothing is sent by this.

        Raises:
            AgentConfigurationChangedError: the connector leads to another address now.
        """
        self._checked_connector()
        return self._begin(turn, rejoins=True)

    def state(self) -> dict[str, Any]:
        return dict(self._state)

    async def close(self) -> None:
        """Let go of everything local. What goes on at OpenAI goes on."""
        self._closed = True
        for run in tuple(self._runs):
            await run.release()
        self._on_close(self)

    # ---- for its runs ----

    @property
    def connector(self) -> Connector:
        return self.driver.connectors.connector(self.opening.options.execution.connector)

    async def api(self) -> AgentsApi:
        return AgentsApi(await self.driver.client(), self.opening.options.execution.connector)

    @property
    def native_id(self) -> str:
        """What OpenAI calls the session; "" until that is known."""
        return text(self._state.get("session"), "id")

    @property
    def environment_id(self) -> str:
        return text(self._state.get("environment"), "id")

    @property
    def kept(self) -> Mapping[str, Any]:
        return self._state

    def run_record(self, run_id: str) -> dict[str, Any] | None:
        """What is kept of a run; None where nothing of it was about to be sent."""
        record = self._state.get("runs", {}).get(run_id)
        return dict(record) if isinstance(record, Mapping) else None

    async def keep(self, state: Mapping[str, Any]) -> None:
        """Put a state in the place of the last one, durable when this returns.

        Raises:
            StorageError: it is not kept; then nothing may be done that it was to speak of.
        """
        new = dict(state)
        if self.opening.keep is not None:
            await self.opening.keep(new)
        self._state = new

    def with_run(
        self, run_id: str, record: Mapping[str, Any], state: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """A state in which this is kept of a run; of older runs the newest few stay."""
        base = self._state if state is None else state
        runs = {name: each for name, each in base.get("runs", {}).items() if name != run_id}
        runs = dict([*runs.items(), (run_id, dict(record))][-MOST_RUNS:])
        return {**base, "runs": runs}

    def creation(self, turn: Turn, intent: str) -> dict[str, Any]:
        """What the session is made with, for its first input."""
        return profile.creation(
            self.opening.definition,
            self.opening.options,
            self.opening.tools,
            model=turn.model,
            effort=profile.effort_of(turn.reasoning),
            wanted=turn.response_format,
            intent=intent,
        )

    def fixed(self, turn: Turn, state: Mapping[str, Any]) -> dict[str, Any]:
        """A state with what the session is made with."""
        effort = profile.effort_of(turn.reasoning)
        return {**state, "format": profile.format_of(turn.response_format), "model": turn.model, "effort": effort}

    async def keep_made(self, description: Mapping[str, Any]) -> None:
        """Keep what OpenAI calls the session and its environment; nothing is about to be made any more."""
        session_id, environment_id = profile.names_of(description)
        environment = {"id": environment_id, "owned": False} if environment_id else None
        made = {**self._state, "session": {"id": session_id}, "environment": environment}
        await self.keep(intents.settled(made, SESSION))

    async def idle(self, api: AgentsApi) -> dict[str, Any] | RunError:
        """The session once it is idle, since its record may lag behind the end of a turn; or why it takes nothing."""
        patience, tried = self.driver.looking, 0
        while True:
            description = await api.session(self.native_id)
            status = text(description, "status")
            if status == "idle":
                return description
            tried += 1
            wait_s = patience.wait_s(tried) if status != "failed" else None
            if wait_s is None:
                return words.takes_nothing(failed=status == "failed")
            await patience.sleep(wait_s)

    async def set_model(self, api: AgentsApi, turn: Turn) -> None:
        """Give the turns to come the model and effort of this one, where they are not those of the session.

        Raises:
            ServiceFault: they are not set, or that is not known; the next run asks for its own all the same.
        """
        effort = profile.effort_of(turn.reasoning)
        if (self._state.get("model"), self._state.get("effort")) == (turn.model, effort):
            return
        await self.keep({**self._state, "model": None, "effort": None})
        fault: ServiceFault | None = None
        try:
            await api.update(self.native_id, {"model": turn.model, "reasoning": {"effort": effort}})
        except ServiceFault as raised:
            fault = raised
        if fault is not None:
            now = member(await api.session(self.native_id), "agent")
            is_set = text(now, "model") == turn.model and effort in (None, text(now.get("reasoning"), "effort"))
            if fault.did_nothing or not is_set:
                raise fault
        await self.keep({**self._state, "model": turn.model, "effort": effort})

    def run_over(self, run: OpenAIManagedRun) -> None:
        self._runs.discard(run)

    # ---- its own ----

    def _begin(self, turn: Turn, *, rejoins: bool) -> OpenAIManagedRun:
        run = OpenAIManagedRun(self, turn, rejoins=rejoins)
        self._runs.add(run)
        return run

    def _checked_connector(self) -> Connector:
        if self._closed:
            raise AgentClosedError("This session is closed.")
        connector = self.connector
        profile.check_connector(connector)
        self._check_endpoint()
        return connector

    def _check_endpoint(self) -> None:
        """Refuse another server than the one the session is at; another key of the same account is fine."""
        connector = self.connector
        endpoint = digest([connector.vendor, connector.base_url])
        if self._state.setdefault("endpoint", endpoint) != endpoint:
            raise AgentConfigurationChangedError(
                f"The connector {connector.name} leads to another server than when this session began, where nobody "
                "knows it. Nothing was sent. Begin a new session to use the other server."
            )
