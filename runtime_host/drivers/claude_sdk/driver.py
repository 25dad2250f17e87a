"""The harness `anthropic.agent.sdk`: the Claude CLI, behind a road to the model that holds no key.

Owns the checks before a session and the sessions that are open. Must not know storage, journal, other drivers, or how a
CLI is spoken to. Invariants: inspecting starts and loads nothing; the CLI is given a loopback address and a token of
its session, never the connector's key; what it keeps lies in the session's own folder and goes with `forget`.
"""

import asyncio
import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from runtime_host.capabilities import DriverInspection
from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.connectors.transport import Timeouts
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.drivers.base import SessionOpening
from runtime_host.drivers.claude_sdk import home as homes_of_sessions
from runtime_host.drivers.claude_sdk import launch, profile
from runtime_host.drivers.claude_sdk.home import NOTHING_SAID, Checkpoint, Home
from runtime_host.drivers.claude_sdk.ports import MakesClis
from runtime_host.drivers.claude_sdk.profile import DRIVER_ID, HOW_TO_GET, Profile
from runtime_host.drivers.claude_sdk.run import Patience
from runtime_host.drivers.claude_sdk.session import STATE_VERSION, ClaudeSession, endpoint_of, moved
from runtime_host.errors import (
    AgentClosedError,
    AgentNativeExecutionError,
    AgentPolicyUnsupportedError,
    AgentRuntimeDependencyError,
    AgentSessionRecoveryError,
    AgentWorkspaceError,
)
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.models.declared import NOTHING_DECLARED, DeclaredModels
from runtime_host.models.facts import facts_for
from runtime_host.models.reasoning import ReasoningMap
from runtime_host.programs import HarnessHomes, Programs, Toolchains
from runtime_host.workspace import HOLDS_PROGRAM, holds

_SDK: Final = "claude_agent_sdk"
_NEEDS: Final = (_SDK, "mcp")


class ClaudeDriver:
    """Sessions with the Claude CLI.

    Args:
        connectors: finds servers and hands out keys.
        programs: starts programs, and says what walls there are.
        homes: where each session has its folder.
        cli: full path of the CLI; None for the one that the SDK brings along.
        model_reasoning_efforts: efforts of models beyond the verified ones, or instead of them.
        declared: what the person says of models in their own file.
        timeouts: when a server counts as gone.
        patience: how long is waited for the CLI.
        retries: how often the CLI asks again where nothing of a reply has come.
        toolchains: finds the programs that the person installed for themselves and that commands may use, each time the
            CLI is started; called in a thread. None for the system's programs alone.

    Raises:
        AgentDriverConfigurationError: an effort that is declared is unknown or never sent.
    """

    own_folder_tools = True
    """Its CLI brings tools for the folder along, so those of mounts are not offered besides."""
    hold_wait_s = 50.0
    """How long a call waits for a person before the model is told to expect a message."""

    def __init__(
        self,
        connectors: ConnectorRegistry,
        programs: Programs,
        homes: HarnessHomes,
        *,
        cli: Callable[[], str] | None = None,
        model_reasoning_efforts: Mapping[str, Sequence[str]] | None = None,
        declared: DeclaredModels = NOTHING_DECLARED,
        timeouts: Timeouts | None = None,
        patience: Patience = Patience(),  # noqa: B008 - nobody can change it
        retries: int = launch.RETRIES,
        toolchains: Callable[[], Toolchains] | None = None,
    ) -> None:
        self.connectors = connectors
        self.programs = programs
        self.timeouts = timeouts
        self.patience = patience
        self.retries = retries
        self.toolchains: Callable[[], Toolchains] = toolchains or Toolchains
        self._homes = homes
        self._cli = cli
        self._vouched_efforts = model_reasoning_efforts
        self.declare(declared)
        self._sessions: set[ClaudeSession] = set()
        self._loading: asyncio.Task[MakesClis] | None = None
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
        """Check a binding; reads no key, starts nothing and sends nothing."""
        return self._look(definition, options)[1]

    async def open(self, opening: SessionOpening) -> ClaudeSession:
        """Open or restore a session. The CLI is started by its first run."""
        if self._closed:
            raise AgentClosedError("anthropic.agent.sdk is closed.")
        chosen, _ = self._look(opening.definition, opening.options)
        if chosen.root is not None and (fault := await self.programs.wall_fault()):
            raise AgentPolicyUnsupportedError(
                f"The Claude CLI is let into a folder only behind walls, and they do not hold here. {fault}",
                details={"field": "environment"},
            )
        execution = opening.options.execution
        endpoint = endpoint_of(self.connectors.connector(execution.connector))
        kept = _kept(opening)
        if opening.state is not None and opening.state.get("endpoint", endpoint) != endpoint:
            raise moved(execution.connector)
        cli, home, at = await in_own_thread(lambda: self._take(opening, kept), "open claude home")
        session = ClaudeSession(self, opening, home, profile=chosen, cli=cli, endpoint=endpoint, at=at)
        self._sessions.add(session)
        return session

    async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Remove the folder of a session that is closed. Idempotent."""
        path = self._homes.home(agent_id, session_id)
        await in_own_thread(lambda: homes_of_sessions.forget(path, agent_id, session_id), "forget claude home")

    async def aclose(self) -> None:
        """Close what is open."""
        self._closed = True
        while self._sessions:
            await asyncio.gather(*(session.close() for session in tuple(self._sessions)))
        if self._loading is not None:
            # A load that nobody waits for any more still has its thread.
            await asyncio.wait({self._loading})

    # ---- for its sessions ----

    async def makes_clis(self) -> MakesClis:
        """What starts a CLI, the SDK loaded on first use and away from the event loop."""
        loading = self._loading
        if loading is None or (loading.done() and (loading.cancelled() or loading.exception() is not None)):
            loading = self._loading = asyncio.create_task(in_own_thread(_load, "load claude"))
        return await asyncio.shield(loading)

    def left(self, session: ClaudeSession) -> None:
        """The session is closed."""
        self._sessions.discard(session)

    # ---- inside ----

    def _look(self, definition: AgentDefinition, options: SessionOptions) -> tuple[Profile, DriverInspection]:
        chosen = profile.profile_of(options)
        execution = options.execution
        connector = self.connectors.connector(execution.connector)
        profile.check_connector(connector)
        profile.check_model(execution.model)
        profile.check_reasoning(self.efforts, connector, execution.model, execution.reasoning)
        cli = self._cli_path()
        if chosen.root is not None and chosen.writes and holds(chosen.root, cli):
            raise AgentWorkspaceError(HOLDS_PROGRAM)
        if chosen.root is not None and self.programs.walled(launch.NO_WAY) is None:
            raise AgentPolicyUnsupportedError(
                "The Claude CLI is let into a folder only behind walls, and this system has none.",
                details={"field": "environment"},
            )
        facts = facts_for(connector, execution.model, self.declared)
        return chosen, profile.inspection(definition, connector, facts, self.efforts, chosen)

    def _cli_path(self) -> str:
        """Full path of the CLI.

        Raises:
            AgentRuntimeDependencyError: the CLI or its SDK is not here; the sentence says how to get it.
        """
        found = [importlib.util.find_spec(name) for name in _NEEDS]
        if None in found:
            raise AgentRuntimeDependencyError(f"The Claude SDK is not installed here. {HOW_TO_GET}")
        if self._cli is not None:
            path = self._cli()
        else:
            spec = found[0]
            places = list(spec.submodule_search_locations or ()) if spec is not None else []
            path = next((str(Path(place, "_bundled", "claude")) for place in places), "")
        if not path or not os.path.isabs(path) or not os.access(path, os.X_OK):
            raise AgentRuntimeDependencyError(f"The Claude CLI is not installed here. {HOW_TO_GET}")
        return path

    def _take(self, opening: SessionOpening, kept: Checkpoint | None) -> tuple[str, Home, Checkpoint]:
        cli = os.path.realpath(self._cli_path())
        path = self._homes.home(opening.definition.id, opening.session_id)
        try:
            home = Home.take(path, opening.definition.id, opening.session_id, fresh=opening.state is None)
        except OSError as fault:
            raise AgentNativeExecutionError(
                f"The folder of this session's harness cannot be made ({type(fault).__name__}).",
                native_code="HARNESS_HOME_FAILED",
            ) from None
        try:
            if kept is not None and opening.state is not None and opening.state.get("native") != home.native_id:
                raise AgentSessionRecoveryError(
                    "What the Claude CLI recorded of this conversation is no longer there. Nothing was sent. "
                    "What was said can still be read; go on in a new session.",
                    session_id=opening.session_id,
                )
            return cli, home, home.verify(kept or NOTHING_SAID)
        except BaseException:
            home.release()
            raise


def _kept(opening: SessionOpening) -> Checkpoint | None:
    """How far the conversation was recorded when it was kept; None for a new one."""
    state = opening.state
    if state is None:
        return None
    values = (state.get("messages"), state.get("last"), state.get("digest"))
    if state.get("version") != STATE_VERSION or not (
        isinstance(values[0], int) and isinstance(values[1], str) and isinstance(values[2], str)
    ):
        raise AgentSessionRecoveryError(
            "This session was kept by another version of anthropic.agent.sdk, so it is not continued. "
            "Its messages can still be read.",
            session_id=opening.session_id,
        )
    return Checkpoint(values[0], values[1], values[2])


def _load() -> MakesClis:
    # By name, so that neither this module nor a type checker's import brings the SDK in.
    module = importlib.import_module("runtime_host.drivers.claude_sdk.cli")
    makes: MakesClis = module.Cli
    return makes
