"""One session with Claude Managed Agents: what is made for it at the provider, and what is kept of that.

Owns the creation of agent, environment and session, the driver state, and its order. Must not know what happens within
a turn. Invariants: what is about to be made is kept before it is asked for, and what was made before anything else is
done; a lost answer is looked for and never asked for again; nothing is used that is not as it was asked for.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from runtime_host.connectors.base import Connector
from runtime_host.definitions import ImagePart, JsonSchemaFormat, TextPart
from runtime_host.drivers.base import SessionOpening, Turn
from runtime_host.drivers.claude_managed import profile as asked
from runtime_host.drivers.claude_managed.calls import Calls, Kind
from runtime_host.drivers.claude_managed.files import SessionFiles
from runtime_host.drivers.claude_managed.profile import DRIVER_ID, SERVICE, Profile
from runtime_host.drivers.claude_managed.run import ManagedClaudeRun
from runtime_host.drivers.managed.faults import ServiceFault
from runtime_host.drivers.managed.intents import intend, intended, look_for, settled
from runtime_host.errors import (
    AgentCapabilityUnsupportedError,
    AgentClosedError,
    AgentNativeExecutionError,
    AgentRuntimeError,
    AgentSessionRecoveryError,
)

if TYPE_CHECKING:
    from runtime_host.drivers.claude_managed.driver import ClaudeManagedDriver

STATE_VERSION: Final = 1
RUNS_KEPT: Final = 8
KINDS: Final[tuple[Kind, ...]] = ("agent", "environment", "session")


class ManagedClaudeSession:
    """A session. Nothing is asked of the provider before its first input.

    Args:
        driver: whose session it is.
        opening: what it was opened with.
        profile: what it is to be at the provider.
    """

    def __init__(self, driver: "ClaudeManagedDriver", opening: SessionOpening, profile: Profile) -> None:
        self._driver = driver
        self._opening = opening
        self.profile: Final = profile
        self._state: dict[str, Any] = kept_state(opening)
        self._runs: set[ManagedClaudeRun] = set()
        self._closed = False
        self.files: Final = SessionFiles(self, self._keep)

    # ---- what its runs need ----

    @property
    def session_id(self) -> str:
        return self._opening.session_id

    @property
    def calls(self) -> Calls:
        return self._driver.calls

    @property
    def looking(self) -> Any:
        return self._driver.looking

    @property
    def connector(self) -> Connector:
        return self._driver.connectors.connector(self._opening.options.execution.connector)

    @property
    def model(self) -> str:
        return self._opening.options.execution.model

    @property
    def native_id(self) -> str:
        return str(self._state["session"]["id"])

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_made(self) -> bool:
        return self._state["session"] is not None

    def record(self, run_id: str) -> dict[str, Any] | None:
        """What was kept of a run whose input was about to be sent."""
        found = self._state["runs"].get(run_id)
        return dict(found) if isinstance(found, Mapping) else None

    async def keep_run(self, run_id: str, record: Mapping[str, Any] | None) -> None:
        """Keep what is known of a run, durably; None forgets it."""
        runs = {name: each for name, each in self._state["runs"].items() if name != run_id}
        if record is not None:
            runs = dict([*runs.items()][-(RUNS_KEPT - 1) :]) | {run_id: dict(record)}
        await self._keep({**self._state, "runs": runs})

    @property
    def is_unreadable(self) -> bool:
        """Whether its history holds something that is larger than is read."""
        return bool(self._state.get("unreadable"))

    async def keep_unreadable(self) -> None:
        """Keep that its history cannot be read."""
        await self._keep({**self._state, "unreadable": True})

    async def provide(self) -> tuple[dict[str, Any], bool]:
        """The session at the provider, made now where there is none; and whether it is new.

        Raises:
            AgentSessionRecoveryError: whether one was made is not known.
            AgentNativeExecutionError: what there is, is not as it was asked for.
            ServiceFault: the provider refused.
        """
        if self._state.get("quarantined"):
            self._in_quarantine()
        agent = await self._agent()
        environment_id = await self._environment()
        fresh = not self.is_made
        if fresh:
            said = await self._make(
                "session", lambda intent: asked.session_fields(agent, environment_id, self.profile, intent)
            )
            await self._keep(settled({**self._state, "session": {"id": said["id"]}}, "session"))
        else:
            said = await self.calls.retrieve(self._connector_name, "session", self.native_id)
        wrong = asked.session_mismatch(said, agent, environment_id, self.profile, fresh=fresh)
        carried = said.get("agent")
        if wrong is None and isinstance(carried, Mapping):
            opening = self._opening
            wrong = asked.agent_mismatch(carried, opening.definition, opening.options, self.profile, opening.tools)
        if wrong is not None:
            raise self._mismatch("session", wrong)
        return said, fresh

    async def find_lost(self) -> None:
        """Look for what was about to be made when its answer was lost; nothing is made.

        Raises:
            AgentSessionRecoveryError: it was not found.
        """
        for kind in KINDS:
            intent = intended(self._state, kind)
            if intent is not None:
                await self._adopt(kind, await self._found(kind, intent))

    # ---- the protocol ----

    async def start(self, turn: Turn) -> ManagedClaudeRun:
        """Dispatch the input, once."""
        self._check(turn)
        # Of a run that went on already the input is out, whatever it is asked as.
        went_on = turn.run_id in self._state["runs"] or (turn.tools is not None and bool(turn.tools.earlier))
        return self._run(turn, rejoined=went_on)

    async def rejoin(self, turn: Turn) -> ManagedClaudeRun:
        """Find out what became of an input that was dispatched before; sent is only what certainly never was."""
        return self._run(turn, rejoined=True)

    def state(self) -> dict[str, Any]:
        return dict(self._state)

    async def close(self) -> None:
        """Watch nothing any more. What goes on at the provider goes on."""
        self._closed = True
        for run in tuple(self._runs):
            await run.release()
        self._driver.left(self)

    def left(self, run: ManagedClaudeRun) -> None:
        self._runs.discard(run)

    # ---- inside ----

    @property
    def _connector_name(self) -> str:
        return self._opening.options.execution.connector

    def _run(self, turn: Turn, *, rejoined: bool) -> ManagedClaudeRun:
        if self._closed:
            raise AgentClosedError(f"This session of {DRIVER_ID} is closed.")
        run = ManagedClaudeRun(self, turn, rejoined=rejoined)
        self._runs.add(run)
        return run

    def _check(self, turn: Turn) -> None:
        execution = self._opening.options.execution
        wrong = (
            "run.model_override"
            if turn.model != execution.model
            else "run.reasoning_override"
            if turn.reasoning != execution.reasoning
            else "run.structured_output"
            if isinstance(turn.response_format, JsonSchemaFormat)
            else "input.image"
            if any(isinstance(part, ImagePart) or not isinstance(part, TextPart) for part in turn.parts)
            else None
        )
        if wrong is not None:
            raise AgentCapabilityUnsupportedError(
                f"Claude Managed Agents do not offer {wrong}. Nothing was sent. Begin a new conversation with other "
                "settings, or leave it out.",
                details={"capability": wrong},
            )

    async def _keep(self, state: dict[str, Any]) -> None:
        if self._opening.keep is not None:
            await self._opening.keep(state)
        self._state = state

    async def _agent(self) -> dict[str, Any]:
        known = self._state["agent"]
        if known is None:
            opening = self._opening
            said = await self._make(
                "agent",
                lambda intent: asked.agent_fields(
                    opening.definition, opening.options, self.profile, opening.tools, intent
                ),
            )
            known = await self._adopt("agent", said)
            wrong = asked.agent_mismatch(said, opening.definition, opening.options, self.profile, opening.tools)
            if wrong is not None:
                raise self._mismatch("agent", wrong)
        return dict(known)

    async def _environment(self) -> str:
        known = self._state["environment"]
        if known is None and self.profile.environment_id is not None:
            said = await self.calls.retrieve(self._connector_name, "environment", self.profile.environment_id)
            self._check_environment(said)
            known = {"id": said["id"], "owned": False}
            await self._keep({**self._state, "environment": known})
        elif known is None:
            said = await self._make("environment", asked.environment_fields)
            known = await self._adopt("environment", said)
            self._check_environment(said)
        else:
            # It may be one that was made otherwise than it was asked for, or was changed there since.
            self._check_environment(await self.calls.retrieve(self._connector_name, "environment", str(known["id"])))
        return str(known["id"])

    def _check_environment(self, said: Mapping[str, Any]) -> None:
        wrong = asked.environment_mismatch(said, reviewed=self.profile.environment_id is not None)
        if wrong is not None:
            raise self._mismatch("environment", wrong)

    async def _make(self, kind: Kind, fields: Any) -> dict[str, Any]:
        """Have one made; what the provider says of it. Its id is not kept yet."""
        intent = intended(self._state, kind)
        if intent is not None:
            return await self._found(kind, intent)
        state, intent = intend(self._state, kind)
        await self._keep(state)
        try:
            return await self.calls.create(self._connector_name, kind, fields(intent))
        except ServiceFault as fault:
            if fault.did_nothing:
                await self._keep(settled(self._state, kind))
                raise
        except AgentRuntimeError:
            # Of the way to the key: nothing was sent.
            await self._keep(settled(self._state, kind))
            raise
        return await self._found(kind, intent)

    async def _adopt(self, kind: Kind, said: Mapping[str, Any]) -> dict[str, Any]:
        known: dict[str, Any] = {"id": said["id"]}
        if kind == "agent":
            version = said.get("version")
            known["version"] = version if isinstance(version, int) else 1
        elif kind == "environment":
            known["owned"] = True
        await self._keep(settled({**self._state, kind: known}, kind))
        return known

    async def _found(self, kind: Kind, intent: str) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {}

        async def find() -> tuple[str, ...]:
            found.update(await self.calls.marked(self._connector_name, kind, intent))
            return tuple(found)

        try:
            looked = await look_for(find, self.looking)
        except ServiceFault as raised:
            fault = raised
        else:
            if len(looked.found) > 1:
                await self._keep({**self._state, "quarantined": {"kind": kind, "ids": sorted(looked.found)}})
                self._in_quarantine()
            if looked.found:
                return found[looked.found[0]]
            raise self._unknown(kind, f"It was looked for {looked.in_words()}.")
        raise self._unknown(kind, f"It could not be looked for ({fault.kind}).")

    def _in_quarantine(self) -> NoReturn:
        held = self._state["quarantined"]
        raise AgentNativeExecutionError(
            f"{SERVICE} has more than one {held['kind']} for this conversation, so none of them is used. "
            "Begin a new conversation, and delete this one to have them removed.",
            native_code="QUARANTINED",
            details={"kind": held["kind"], "ids": list(held["ids"])},
        )

    def _unknown(self, kind: Kind, far: str) -> AgentSessionRecoveryError:
        return AgentSessionRecoveryError(
            f"{SERVICE} was asked to make the {kind} for this conversation, and the answer was lost. {far} "
            "It is not asked for again, and your message was not sent. Look again later.",
            session_id=self.session_id,
            details={"kind": kind},
        )

    def _mismatch(self, kind: str, field: str) -> AgentNativeExecutionError:
        return AgentNativeExecutionError(
            f"{SERVICE} made or changed the {kind} otherwise than it was asked for ({field}), so it is not used. "
            "Nothing was sent. Begin a new conversation.",
            native_code="ECHO_MISMATCH",
            details={"kind": kind, "field": field},
        )


def kept_state(opening: SessionOpening) -> dict[str, Any]:
    """The state of a session as it was kept; that of a new one where there is none.

    Raises:
        AgentSessionRecoveryError: it was kept by another version.
    """
    empty: dict[str, Any] = {
        "version": STATE_VERSION,
        "intents": {},
        "agent": None,
        "environment": None,
        "session": None,
        "runs": {},
    }
    state = opening.state
    if state is None:
        return empty
    if state.get("version") != STATE_VERSION or not isinstance(state.get("runs"), Mapping):
        raise AgentSessionRecoveryError(
            f"This session was kept by another version of {DRIVER_ID}, so it is not continued. "
            "Its messages can still be read.",
            session_id=opening.session_id,
        )
    return {**empty, **state}
