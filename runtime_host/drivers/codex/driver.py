"""The harness `openai.codex.sdk`.

Owns what sessions share: connectors, programs, homes and maps. Must not know what a session does. Invariants: looking
at a binding starts nothing; what is kept of a session goes only when it is forgotten, and only if it is ours.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runtime_host.capabilities import DriverInspection
from runtime_host.connectors.base import Connector, ConnectorRegistry
from runtime_host.definitions import AgentDefinition, ReasoningConfig, SessionOptions
from runtime_host.drivers.base import SessionOpening
from runtime_host.drivers.codex import cli, home, profile
from runtime_host.drivers.codex.launch import RETRIES
from runtime_host.drivers.codex.profile import DRIVER_ID
from runtime_host.drivers.codex.projects import check_project
from runtime_host.drivers.codex.session import CodexSession
from runtime_host.errors import AgentClosedError, AgentWorkspaceError
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.models.declared import NOTHING_DECLARED, DeclaredModels
from runtime_host.models.reasoning import ReasoningMap
from runtime_host.programs import HarnessHomes, Programs, Toolchains
from runtime_host.workspace import HOLDS_PROGRAM, holds

if TYPE_CHECKING:
    from runtime_host.connectors.transport import Timeouts


class CodexDriver:
    """Works in folders of this computer through the Codex CLI.

    Args:
        connectors: finds servers and hands out keys; the CLI gets none.
        programs: starts the CLI.
        homes: where sessions keep what they must keep.
        cli: the path of the CLI; None for the one that was installed with this program.
        model_reasoning_efforts: efforts of models beyond the verified ones, or instead of them.
        declared: what the person says of models in their own file.
        hidden: folders that no command may see, by their real paths; tried at each opening.
        timeouts: when a server counts as gone; None for the usual ones.
        retries: how often the CLI sends a request again that failed.
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
        hidden: tuple[str, ...] = (),
        timeouts: "Timeouts | None" = None,
        retries: int = RETRIES,
        toolchains: Callable[[], Toolchains] | None = None,
    ) -> None:
        self.connectors = connectors
        self.programs = programs
        self.homes = homes
        self.hidden = hidden
        self.timeouts = timeouts
        self.retries = retries
        self.toolchains: Callable[[], Toolchains] = toolchains or Toolchains
        self._cli = cli
        self._vouched_efforts = model_reasoning_efforts
        self.declare(declared)
        self._sessions: set[CodexSession] = set()
        self._closed = False

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
        self.declared = declared

    @property
    def driver_id(self) -> str:
        return DRIVER_ID

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        """Check a binding; reads no key, starts nothing and sends nothing.

        Raises:
            AgentRuntimeDependencyError: the CLI is not there; the sentence says how to get it.
        """
        profile.check_session(options)
        execution = options.execution
        connector = self.connectors.connector(execution.connector)
        profile.check_connector(connector)
        self.check_turn(connector, execution.model, execution.reasoning)
        settings = profile.settings(execution.driver_config)
        folder, named = options.environment.path or "", self._cli

        def look() -> None:
            check_project(
                os.path.realpath(folder),
                allowed=settings.allow_project_config,
                needs_repository=not settings.skip_git_repo_check,
            )
            files = {cli.find(named).binary, named() if named is not None else ""} - {""}
            if options.policy.filesystem == "workspace-write" and any(holds(folder, file) for file in files):
                raise AgentWorkspaceError(HOLDS_PROGRAM)

        await in_own_thread(look, "look at a folder")
        return profile.inspection(definition, connector, options, self.efforts)

    def check_turn(self, connector: Connector, model: str, reasoning: ReasoningConfig | None) -> None:
        """Refuse a model or a reasoning setting that nobody verified.

        Raises:
            AgentDriverConfigurationError: with a sentence that names it.
        """
        profile.check_model(connector, model, self.efforts, self.declared)
        profile.check_reasoning(self.efforts, connector, model, reasoning)

    async def open(self, opening: SessionOpening) -> CodexSession:
        """Start the CLI for a session and try its sandbox; nothing is sent."""
        if self._closed:
            raise AgentClosedError("openai.codex.sdk is closed.")
        await self.inspect(opening.definition, opening.options)
        named = self._cli
        found = await in_own_thread(lambda: cli.find(named), "look for a program")
        connector = self.connectors.connector(opening.options.execution.connector)
        session = CodexSession(self, opening, connector, found)
        await session.open()
        self._sessions.add(session)
        return session

    def closed(self, session: CodexSession) -> None:
        """A session was let go of."""
        self._sessions.discard(session)

    async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Remove the folder of a session.

        Raises:
            OSError: something is left.
        """
        path = self.homes.home(agent_id, session_id)

        def remove() -> None:
            home.Canaries(self.hidden, session_id).remove()
            home.remove(path, session_id)

        await in_own_thread(remove, "remove a folder")

    async def aclose(self) -> None:
        self._closed = True
        while self._sessions:
            await next(iter(self._sessions)).close()
