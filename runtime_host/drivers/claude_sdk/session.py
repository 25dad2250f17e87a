"""One conversation with the CLI: its folder, its road to the model, and the process that serves its runs.

Owns when a process is started, used again and ended, and what is kept of the conversation. Must not know messages or
the SDK. Invariants: a process serves only runs that need the very same start, so nothing that was asked for one run
holds for the next; a conversation is gone on with only where its record is what was kept of it; after `close` neither
process nor listener nor lock is left.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from runtime_host.canonical import digest
from runtime_host.connectors.base import Connector, ConnectorRegistry
from runtime_host.connectors.relay import Relay
from runtime_host.connectors.transport import Timeouts
from runtime_host.definitions import JsonSchemaFormat
from runtime_host.drivers.base import SessionOpening, Turn
from runtime_host.drivers.claude_sdk import launch as launching
from runtime_host.drivers.claude_sdk import profile as profiles
from runtime_host.drivers.claude_sdk.endings import About
from runtime_host.drivers.claude_sdk.gate import gate_of
from runtime_host.drivers.claude_sdk.home import Checkpoint, Home
from runtime_host.drivers.claude_sdk.launch import Launch
from runtime_host.drivers.claude_sdk.naming import STRUCTURED, native_names, wire_names
from runtime_host.drivers.claude_sdk.ports import MakesClis, RunningCli
from runtime_host.drivers.claude_sdk.profile import Profile
from runtime_host.drivers.claude_sdk.run import ClaudeRun, Patience
from runtime_host.drivers.claude_sdk.usage import NOTHING, Counts
from runtime_host.errors import (
    AgentBusyError,
    AgentCapabilityUnsupportedError,
    AgentClosedError,
    AgentConfigurationChangedError,
    AgentDriverConfigurationError,
    AgentPolicyUnsupportedError,
)
from runtime_host.loop.own_thread import in_own_thread, to_its_end
from runtime_host.models.reasoning import ReasoningMap
from runtime_host.programs import ProgramOrder, Programs, Toolchains, search_path

STATE_VERSION: Final = 1
_LOOK_AGAIN_S: Final = 0.02


class SessionHost(Protocol):
    """What a session needs of its driver."""

    @property
    def programs(self) -> Programs: ...
    @property
    def connectors(self) -> ConnectorRegistry: ...
    @property
    def efforts(self) -> ReasoningMap: ...
    @property
    def timeouts(self) -> Timeouts | None: ...
    @property
    def patience(self) -> Patience: ...
    @property
    def retries(self) -> int: ...
    def toolchains(self) -> Toolchains:
        """What is installed that commands may use; it is looked for on a disk."""
        ...

    async def makes_clis(self) -> MakesClis:
        """What starts a CLI; the SDK is loaded by this."""
        ...

    def left(self, session: "ClaudeSession") -> None:
        """The session is closed."""
        ...


class ClaudeSession:
    """The runtime's handle of a session.

    Args:
        host: the driver.
        opening: what it was opened with.
        home: its folder, held.
        profile: what the CLI may do by itself.
        cli: full path of the CLI.
        endpoint: which server the connector leads to.
        at: how far the conversation is recorded.
    """

    def __init__(
        self,
        host: SessionHost,
        opening: SessionOpening,
        home: Home,
        *,
        profile: Profile,
        cli: str,
        endpoint: str,
        at: Checkpoint,
    ) -> None:
        self._host = host
        self._opening = opening
        self.home = home
        self.profile = profile
        self._cli_path = cli
        self._endpoint = endpoint
        self.at = at
        names = tuple(offer.name for offer in opening.tools)
        self._tools = {wire: name for name, wire in wire_names(names).items()}
        self._names = {native: name for name, native in native_names(names).items()}
        self._gate = gate_of(profile.root, profile.tools)
        self._relay: Relay | None = None
        self._running: RunningCli | None = None
        self._unended: set[RunningCli] = set()
        self._launch: Launch | None = None
        self._counts: Counts = NOTHING
        self._run: ClaudeRun | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def session_id(self) -> str:
        return self._opening.session_id

    # ---- for the runtime ----

    async def start(self, turn: Turn) -> ClaudeRun:
        """Begin a run.

        Raises:
            AgentDriverConfigurationError: model, reasoning or schema of this turn are refused; nothing was sent.
            AgentConfigurationChangedError: the connector leads to another address now; nothing was sent.
        """
        if self._closing is not None:
            raise AgentClosedError("This session is closed.")
        if self._run is not None and not self._run.done:
            raise AgentBusyError("The Claude CLI still works on the message before this one.")
        connector = self._host.connectors.connector(self._opening.options.execution.connector)
        profiles.check_connector(connector)
        if endpoint_of(connector) != self._endpoint:
            raise moved(connector.name)
        launch = self._launch_for(connector, turn)
        own_tools = frozenset((*self.profile.tools, *((STRUCTURED,) if launch.schema else ())))
        seat = _Seat(self, launch, connector)
        self._run = ClaudeRun(
            seat,
            turn,
            tools=self._tools,
            names=self._names,
            own_tools=own_tools,
            gate=self._gate,
            runs_commands=self.profile.commands,
        )
        return self._run

    def state(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "endpoint": self._endpoint,
            "native": self.home.native_id,
            "messages": self.at.messages,
            "last": self.at.last,
            "digest": self.at.digest,
        }

    async def close(self) -> None:
        """End the process and let go of the folder. Idempotent."""
        if self._closing is None or self._closing.cancelled():
            self._closing = asyncio.create_task(self._close(), name="claude close")
        await asyncio.shield(self._closing)

    # ---- for its runs ----

    async def cli(self, launch: Launch) -> tuple[RunningCli, Counts]:
        """A CLI that was started for `launch`, and what it has counted so far."""
        running = self._running
        if running is not None and running.lives and self._launch == launch:
            return running, self._counts
        if running is not None:
            self._running = None
            await self._end(running, self.patience.leave_s)
            await self.look()
        if self._relay is None:
            execution = self._opening.options.execution
            relay = Relay(self._host.connectors, execution.connector, timeouts=self._host.timeouts)
            self._relay = await relay.open()
        makes = await self._host.makes_clis()
        order = await to_its_end(lambda: self._order(launch), "prepare claude")
        offers = {
            wire: offer for wire, name in self._tools.items() for offer in self._opening.tools if offer.name == name
        }
        running = makes(self._host.programs, order, offers, self._gate)
        self._unended.add(running)
        self._running, self._launch, self._counts = running, launch, NOTHING
        try:
            await running.connect()
        except BaseException:
            self._running = None
            await self._end(running, 0)
            raise
        return running, NOTHING

    async def run_ended(self, counts: Counts, last_uuid: str) -> None:
        """A run is over; `last_uuid` is what the record is to end with."""
        self._counts = counts
        running = self._running
        if running is None or not running.lives:
            self._running = None
            if running is not None:
                await self._end(running, 0)
            await self.look()
            return
        # Where it is not written down in time, what is kept stays where this run began: what then follows in the
        # record is known to be this run's.
        if not last_uuid or await self._until(lambda at: at.last == last_uuid):
            await self.look()

    async def look(self) -> Checkpoint:
        """How far the conversation is recorded now."""
        self.at = await in_own_thread(self.home.checkpoint, "read claude record")
        return self.at

    async def is_recorded(self) -> bool:
        """Whether the CLI has written down what the newest run began with; waits for it a little."""
        begun = await in_own_thread(self.home.begun_at, "read claude mark")
        return await self._until(lambda at: at.messages > (begun or 0))

    async def _until(self, is_so: Callable[[Checkpoint], bool]) -> bool:
        ends_at = time.monotonic() + self.patience.record_s
        while not is_so(await in_own_thread(self.home.checkpoint, "read claude record")):
            if time.monotonic() > ends_at:
                return False
            await asyncio.sleep(_LOOK_AGAIN_S)
        return True

    @property
    def patience(self) -> Patience:
        return self._host.patience

    @property
    def asked(self) -> int:
        """Questions to the model that left so far."""
        return self._relay.requests if self._relay is not None else 0

    @property
    def way_faults(self) -> tuple[str, ...]:
        return self._relay.faults if self._relay is not None else ()

    # ---- inside ----

    def _launch_for(self, connector: Connector, turn: Turn) -> Launch:
        if any(part.type != "text" for part in turn.parts):
            raise AgentCapabilityUnsupportedError("The Claude CLI is given no pictures here. Take them out.")
        if not turn.text.strip():
            # The CLI takes it for an input and asks nobody.
            raise AgentDriverConfigurationError("There is nothing in this message. Write something.")
        profiles.check_model(turn.model)
        effort = profiles.check_reasoning(self._host.efforts, connector, turn.model, turn.reasoning)
        schema = ""
        if isinstance(turn.response_format, JsonSchemaFormat):
            schema = json.dumps(turn.response_format.json_schema, ensure_ascii=False, sort_keys=True)
            profiles.check_schema(turn.response_format, len(schema.encode()))
        turns, cents = profiles.limits_of(self._opening.options.policy)
        # The CLI counts its cost from its own start.
        return Launch(turn.model, effort, schema, turns, cents, turn.run_id if cents else "")

    def _order(self, launch: Launch) -> ProgramOrder:
        home, relay = self.home, self._relay
        if relay is None:
            raise AssertionError("the road to the model is open before anything is started")
        home.sweep()
        for name, content in launching.files(self._opening.definition.instructions).items():
            home.put(name, content)
        toolchains = launching.NONE_INSTALLED
        if self.profile.commands:
            toolchains = self._host.toolchains()
            walled = self._host.programs.walled(launching.wall_of_commands(home, self.profile, toolchains))
            if walled is None:
                raise AgentPolicyUnsupportedError("Commands cannot be walled in on this computer, so none are run.")
            home.put(launching.SHELL, launching.shell(home, walled, toolchains.path), executable=True)
        goes_on = home.checkpoint().messages > 0
        if not goes_on:
            home.drop_record()
        return ProgramOrder(
            name="The Claude CLI",
            command=launching.command(self._cli_path, home, launch, self.profile, tuple(self._names), goes_on=goes_on),
            env=launching.environment(
                home,
                self.profile,
                base_url=relay.base_url,
                token=relay.token,
                path=search_path(os.environ.get("PATH", ""), apart_from=launching.not_searched(home, self.profile)),
                retries=self._host.retries,
            ),
            cwd=self.profile.root or home.folder("cwd"),
            wall=launching.wall_of(home, self.profile, self._cli_path, toolchains),
        )

    async def _close(self) -> None:
        run, running = self._run, self._running
        try:
            if run is not None and not run.done:
                await run.cancel()
                if running is not None:
                    await running.stop(0)
                await run.wait()
            self._running = None
            for left in tuple(self._unended):
                await self._end(left, self.patience.leave_s)
        finally:
            if self._relay is not None:
                await self._relay.aclose()
            await in_own_thread(self._leave_home, "leave claude home")
            self._host.left(self)

    async def _end(self, running: RunningCli, grace_s: float) -> None:
        await running.stop(grace_s)
        self._unended.discard(running)

    def _leave_home(self) -> None:
        try:
            self.home.sweep()
        finally:
            self.home.release()


class _Seat:
    """The session for one run."""

    def __init__(self, session: ClaudeSession, launch: Launch, connector: Connector) -> None:
        self._session = session
        self._launch = launch
        self._connector = connector
        self._asked_before = session.asked
        self._faults_before = len(session.way_faults)

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def patience(self) -> Patience:
        return self._session.patience

    async def cli(self) -> tuple[RunningCli, Counts]:
        return await self._session.cli(self._launch)

    async def begin(self, run_id: str) -> None:
        session = self._session
        at = await session.look()
        await to_its_end(lambda: session.home.begin_run(run_id, at), "note claude run")

    async def is_recorded(self) -> bool:
        return await self._session.is_recorded()

    async def answered(self) -> frozenset[str]:
        return await in_own_thread(self._session.home.answered, "read claude record")

    async def ended(self, counts: Counts, last_uuid: str) -> None:
        await self._session.run_ended(counts, last_uuid)

    def about(self) -> About:
        session = self._session
        # What is kept of faults is bounded, so of many only the newest counts as one of this run.
        faults = session.way_faults
        is_new = len(faults) > self._faults_before or (bool(faults) and len(faults) == self._faults_before >= 16)
        asked = session.asked - self._asked_before
        return About(self._connector, self._launch.model, asked, faults[-1] if is_new else "")


def endpoint_of(connector: Connector) -> str:
    """Which server a connector leads to; the same for another key, another for another address."""
    return digest([connector.vendor, connector.base_url])


def moved(name: str) -> AgentConfigurationChangedError:
    return AgentConfigurationChangedError(
        f"The connector {name} leads to another server than when this session began, and what was said here was "
        "not meant for it. Nothing was sent. Begin a new session to use the other server."
    )
