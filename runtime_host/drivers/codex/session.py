"""One session of the Codex CLI: its program, its thread, and the turns in it, one after the other.

Owns the start of the program, the proof that its sandbox holds, the thread and what is known of its record, and the end
of all of it. Must not know what a turn says. Invariants: nothing of a session begins before its sandbox was tried; a
thread goes on only where its record is the one that was left; after `close` no process, lock or road is left.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from runtime_host.canonical import digest
from runtime_host.connectors.base import Connector
from runtime_host.connectors.relay import Relay
from runtime_host.definitions import ImagePart, ReasoningConfig
from runtime_host.drivers.base import SessionOpening, Turn
from runtime_host.drivers.codex import history, launch, probe, profile
from runtime_host.drivers.codex.app_server import AppServer, CallRefusedError, ServerGoneError, ServerSilentError
from runtime_host.drivers.codex.cli import Cli
from runtime_host.drivers.codex.history import Mark, NotTheRecordError, Record
from runtime_host.drivers.codex.home import Home
from runtime_host.drivers.codex.host_tools import dynamic_tools
from runtime_host.drivers.codex.processes import commands_below
from runtime_host.drivers.codex.profile import DRIVER_ID
from runtime_host.drivers.codex.projects import check_project
from runtime_host.drivers.codex.run import CodexRun
from runtime_host.drivers.codex.spending import Spending
from runtime_host.drivers.codex.system import roots_own
from runtime_host.errors import (
    AgentClosedError,
    AgentConfigurationChangedError,
    AgentNativeExecutionError,
    AgentRuntimeDependencyError,
    AgentSessionRecoveryError,
)
from runtime_host.loop.own_thread import in_own_thread, to_its_end
from runtime_host.programs import ProgramEnd, ProgramError, ProgramOrder, search_path

if TYPE_CHECKING:
    from runtime_host.drivers.codex.driver import CodexDriver

STATE_VERSION: Final = 1
CALL_S: Final = 20.0
CLEAN_S: Final = 0.5
RECORD_LOOKS: Final = 50
STOP_S: Final = 0.5
_DECLINE: Final[dict[str, dict[str, Any]]] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}, "scope": "turn"},
    "applyPatchApproval": {"decision": "denied"},
    "execCommandApproval": {"decision": "denied"},
    "mcpServer/elicitation/request": {"action": "decline", "content": None},
    "item/tool/requestUserInput": {"answers": {}},
}
"""What is answered to whatever the CLI asks for: no."""
_SYSTEM_FOLDERS: Final = tuple(folder for folder in ("/opt", "/nix", "/snap") if os.path.isdir(folder))
"""Where systems keep programs besides the usual places."""


class CommandsEnd(NamedTuple):
    """What came of commands that still ran.

    Attributes:
        ended: how many there were.
        complete: none is left.
    """

    ended: int
    complete: bool


class CodexSession:
    """A session with its program. Opened by `open`.

    Attributes:
        connector: by name.
        workspace: by its real path.
        thread_id: of the thread in the CLI; "" before there is one.
        spending: what the thread has used so far.
        record: what the CLI wrote of the thread.
    """

    def __init__(self, driver: "CodexDriver", opening: SessionOpening, connector: Connector, cli: Cli) -> None:
        self._driver = driver
        self._opening = opening
        self._endpoint = endpoint_of(connector)
        self._cli = cli
        self._settings = profile.settings(opening.options.execution.driver_config)
        self.connector = connector.name
        self.workspace = os.path.realpath(opening.options.environment.path or "")
        self.thread_id = ""
        self.spending = Spending()
        self.record = Record("")
        self._mark = Mark()
        self._unlooked: list[Mapping[str, Any]] = []
        self._home: Home | None = None
        self._relay: Relay | None = None
        self._server: AppServer | None = None
        self._defaults: dict[str, str] = {}
        self._effort_was_set = False
        self._run: CodexRun | None = None
        self._closed = False

    @property
    def is_alive(self) -> bool:
        return self._server is not None and self._server.is_alive

    @property
    def relay_faults(self) -> tuple[str, ...]:
        """What went wrong on the way to the server so far, the newest last."""
        return self._relay.faults if self._relay is not None else ()

    def fault_since(self, before: tuple[str, ...]) -> str:
        """The newest of what went wrong on the way since it was `before`; "" when nothing did."""
        now = self.relay_faults
        return now[-1] if now and now != before else ""

    # ---- opening ----

    async def open(self) -> None:
        """Take the folder, open the road to the model, start the program and try its sandbox.

        Raises:
            AgentRuntimeError: one of these failed; then nothing is left.
        """
        state = self._opening.state
        if state is not None:
            self._restore(state)
        try:
            await self._check_project()
            path = self._driver.homes.home(self._opening.definition.id, self._opening.session_id)
            session_id = self._opening.session_id
            self._home = await in_own_thread(lambda: Home.take(path, session_id), "take a folder")
            self._relay = await Relay(self._driver.connectors, self.connector, timeouts=self._driver.timeouts).open()
            await self._connect()
        except BaseException:
            await self._let_go()
            raise

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state.get("version") != STATE_VERSION:
            raise AgentSessionRecoveryError(
                "This session was kept by another version of openai.codex.sdk, so it is not continued. Its messages "
                "can still be read.",
                session_id=self._opening.session_id,
            )
        if state.get("endpoint") != self._endpoint:
            raise _moved(self.connector)
        self.thread_id = str(state.get("thread_id", ""))
        self._mark = Mark(*state.get("record", ()))
        self._effort_was_set = bool(state.get("effort_was_set"))
        used = state.get("used")
        self.spending = Spending({str(name): int(count) for name, count in used.items()} if used else None)

    def state(self) -> dict[str, Any]:
        """What restores this session; no credential is in it."""
        return {
            "version": STATE_VERSION,
            "endpoint": self._endpoint,
            "thread_id": self.thread_id,
            "record": list(self._mark),
            "effort_was_set": self._effort_was_set,
            "used": self.spending.known(),
        }

    async def _check_project(self) -> None:
        settings = self._settings
        check = functools.partial(
            check_project,
            self.workspace,
            allowed=settings.allow_project_config,
            needs_repository=not settings.skip_git_repo_check,
        )
        await in_own_thread(check, "look at a folder")

    async def _connect(self) -> None:
        """Start the program, see that it is the one and holds its walls, and have the thread in it."""
        home, relay = self._home, self._relay
        if home is None or relay is None:
            raise AgentClosedError("This session is closed.")
        policy = self._opening.options.policy
        toolchains = await in_own_thread(self._driver.toolchains, "look for toolchains")
        order = launch.Order(
            binary=self._cli.binary,
            readable=self._cli.readable,
            extra_readable=(*_SYSTEM_FOLDERS, *toolchains.readable),
            base_url=relay.base_url,
            places=home.places,
            workspace=self.workspace,
            may_write=policy.filesystem == "workspace-write",
            network=policy.sandbox_network == "allowed",
            web_search=policy.provider_web_search == "allowed",
            project=self._settings.allow_project_config,
            retries=self._driver.retries,
            closed=await in_own_thread(roots_own, "look at what is root's"),
        )
        # What the CLI starts by name, its sandbox among it, stands in no sandbox.
        places = dict.fromkeys((*toolchains.path, *os.environ.get("PATH", "").split(os.pathsep)))
        found = search_path(os.pathsep.join(places), apart_from=(self.workspace, home.path))
        first: tuple[str, ...] = ()
        if (bubblewrap := shutil.which("bwrap", path=found)) is not None:
            script = launch.sandbox_program(bubblewrap)
            first = (await to_its_end(lambda: home.put_program("bwrap", script), "keep a program"),)
        path = os.pathsep.join((*first, *self._cli.path_entries, found))
        try:
            program = await self._driver.programs.start(
                ProgramOrder(
                    name="The Codex CLI",
                    command=launch.command_line(order),
                    env=launch.environment(order, relay.token, path),
                    # Of its own, because the CLI puts things into the folder it is in for as long as a command runs,
                    # and the workspace may be that of another session, too, until a run takes it.
                    cwd=home.places.scratch,
                )
            )
        except ProgramError as error:
            raise AgentRuntimeDependencyError(f"The Codex CLI could not be started: {error.message}") from None
        self._server = AppServer(program, self._notified, self._asked, self._gone)
        try:
            await self._greet()
            await probe.check_walls(self.call, home, self._driver.hidden, order, relay.token, self._opening.session_id)
            await self._have_thread(order, home)
        except (ServerGoneError, ServerSilentError) as error:
            await self.end_server()
            raise AgentNativeExecutionError(
                "The Codex CLI ended or went silent while the session was opened. Nothing was sent.",
                native_code="CODEX_NOT_READY",
                details={"native": type(error).__name__},
            ) from None
        except BaseException:
            await self.end_server()
            raise

    async def _greet(self) -> None:
        hello = await self.call(
            "initialize",
            {"clientInfo": {"name": "remuda", "version": "1"}, "capabilities": {"experimentalApi": True}},
        )
        profile.check_version(str(hello.get("userAgent", "")))
        if self._server is not None:
            await self._server.notify("initialized")
        models = await self.call("model/list", {"includeHidden": True})
        for each in models.get("data") or ():
            if isinstance(each, dict) and isinstance(each.get("defaultReasoningEffort"), str):
                self._defaults[str(each.get("model", each.get("id")))] = each["defaultReasoningEffort"]

    async def _have_thread(self, order: launch.Order, home: Home) -> None:
        options, definition = self._opening.options, self._opening.definition
        params: dict[str, Any] = {
            "cwd": self.workspace,
            "model": options.execution.model,
            "modelProvider": launch.PROVIDER,
            "approvalPolicy": "never",
            "approvalsReviewer": "user",
            "permissions": launch.PROFILE,
            "developerInstructions": definition.instructions or None,
        }
        path = await in_own_thread(lambda: self._find_record(home), "find a record")
        try:
            said = await (self._new_thread(params, home) if path is None else self._old_thread(path, params))
        except CallRefusedError as error:
            details = {"native": error.code}
            if path is None:
                raise AgentNativeExecutionError(
                    "The Codex CLI did not begin a session with these settings and tools. Nothing was sent.",
                    native_code="CODEX_NOT_READY",
                    details=details,
                ) from None
            raise AgentSessionRecoveryError(
                "The Codex CLI did not go on with its session. Its messages can still be read.",
                session_id=self._opening.session_id,
                details=details,
            ) from None
        probe.check_thread(said, order)

    def _find_record(self, home: Home) -> str | None:
        """The record of the thread, whose id may have been kept in the folder only; it is there from the first turn."""
        for thread_id in filter(None, (self.thread_id, home.noted_thread() if self.thread_id else "")):
            path = history.find(home.places.codex_home, thread_id)
            if path is not None:
                self.thread_id = thread_id
                return path
        return None

    async def _new_thread(self, params: dict[str, Any], home: Home) -> dict[str, Any]:
        if self._mark.turns:
            raise self._not_the_record()
        if self._opening.tools:
            params["dynamicTools"] = dynamic_tools(self._opening.tools)
        said = await self.call("thread/start", params)
        thread = said.get("thread")
        if not isinstance(thread, dict) or not isinstance(thread.get("id"), str) or not thread.get("path"):
            raise ServerGoneError("thread/start")
        self.thread_id = thread["id"]
        self.record = Record(str(thread["path"]))
        thread_id = self.thread_id
        await to_its_end(lambda: home.note_thread(thread_id), "keep an id")
        return said

    async def _old_thread(self, path: str, params: dict[str, Any]) -> dict[str, Any]:
        mark = self._mark
        try:
            self.record = await in_own_thread(lambda: history.checked(path, mark), "read a record")
        except NotTheRecordError:
            raise self._not_the_record() from None
        self._mark = self.record.mark
        said = await self.call("thread/resume", {"threadId": self.thread_id, **params})
        thread = said.get("thread")
        turns = thread.get("turns") if isinstance(thread, dict) else None
        known = [str(turn.get("id")) for turn in turns or () if isinstance(turn, dict)]
        # What was resumed has to be all that was left, not only the beginning of it.
        if len(known) < mark.turns or (mark.last_turn and mark.last_turn not in known):
            raise self._not_the_record()
        return said

    def _not_the_record(self) -> AgentSessionRecoveryError:
        return AgentSessionRecoveryError(
            "What the Codex CLI kept of this session is missing, shorter or another one than it was, so the session is "
            "not continued. Its messages can still be read; begin a new session to go on.",
            session_id=self._opening.session_id,
        )

    # ---- turns ----

    async def start(self, turn: Turn) -> CodexRun:
        """Begin a turn; the input is sent by it.

        Raises:
            AgentDriverConfigurationError: model or reasoning are refused; nothing was sent.
            AgentConfigurationChangedError: the connector leads elsewhere now; nothing was sent.
        """
        if self._closed:
            raise AgentClosedError("This session is closed.")
        connector = self._driver.connectors.connector(self.connector)
        if endpoint_of(connector) != self._endpoint:
            raise _moved(self.connector)
        self._driver.check_turn(connector, turn.model, turn.reasoning)
        await self._check_project()
        self._run = CodexRun(self, turn)
        return self._run

    async def prepare(self) -> None:
        """Have the program there, also where it ended since the last turn."""
        if self.is_alive:
            await self._masks(begin=True)
            return
        if (await self.end_server()).left:
            raise AgentSessionRecoveryError(
                "Something of the Codex CLI that ended is still running, so no other one is started. Nothing was sent.",
                session_id=self._opening.session_id,
            )
        await self._masks(begin=True)
        await self._connect()

    async def _masks(self, *, begin: bool) -> None:
        """Leave nothing in the workspace that the CLI puts there for as long as a command runs."""
        home, workspace = self._home, self.workspace
        if home is not None:
            look = home.begin_masks if begin else home.end_masks
            await in_own_thread(lambda: look(workspace), "look at a folder")

    def effort(self, model: str, reasoning: ReasoningConfig | None) -> str | None:
        """What is said of the effort with each turn, because what an earlier one said stays."""
        if reasoning is not None and reasoning.effort is not None:
            self._effort_was_set = True
            return reasoning.effort
        default = self._defaults.get(model)
        if default is None and self._effort_was_set:
            default = profile.FALLBACK_EFFORT
        return default

    def real(self, path: str) -> str:
        """Where a path really leads, links and all."""
        return os.path.realpath(path)

    def run_over(self, run: CodexRun) -> None:
        if self._run is run:
            self.spending = run.mapper.spending.next()

    async def put_image(self, part: ImagePart) -> str:
        home = self._home
        if home is None:
            raise AgentClosedError("This session is closed.")
        return await to_its_end(lambda: home.put_image(part.data, part.media_type), "keep a picture")

    def forget_images(self, paths: list[str]) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def nobody_knows(self, run_id: str) -> AgentSessionRecoveryError:
        """That it cannot be said whether a run is over."""
        return AgentSessionRecoveryError(
            "The Codex CLI ended, and whether a command of it still runs is not known. Nothing was sent again.",
            session_id=self._opening.session_id,
            run_id=run_id,
        )

    async def call(self, method: str, params: Mapping[str, Any], *, within_s: float | None = None) -> dict[str, Any]:
        """Ask the program for something, with a deadline."""
        server = self._server
        if server is None:
            raise ServerGoneError(method)
        return await server.call(method, params, within_s=CALL_S if within_s is None else within_s)

    async def end_commands(self) -> CommandsEnd:
        """End what commands still run in the thread, and see that they did."""
        count = 0
        try:
            for _ in range(3):
                listed = await self.call("thread/backgroundTerminals/list", self._here(), within_s=CLEAN_S)
                running = listed.get("data")
                if not running and not await self._runs_below():
                    await self._masks(begin=False)
                    return CommandsEnd(count, complete=True)
                count = max(count, len(running or ()))
                await self.call("thread/backgroundTerminals/clean", self._here(), within_s=CLEAN_S)
                await asyncio.sleep(0.02)
        except (ServerGoneError, ServerSilentError, CallRefusedError):
            return CommandsEnd(count, complete=False)
        return CommandsEnd(count, complete=not await self._runs_below())

    async def _runs_below(self) -> bool:
        server = self._server
        if server is None:
            return False
        pid = server.program.pid
        for _ in range(10):
            below = await in_own_thread(lambda: commands_below(pid), "look at processes")
            if not below:
                # Where there is no table to look at, the CLI's own list has to do.
                return False
            await asyncio.sleep(0.02)
        return True

    def _here(self) -> dict[str, Any]:
        return {"threadId": self.thread_id}

    # ---- the record ----

    async def record_entries(self) -> list[Mapping[str, Any]]:
        """What was written since the last time; nothing where it cannot be read."""
        await self._read_on()
        entries, self._unlooked = self._unlooked, []
        return entries

    async def read_record(self, turn_id: str) -> None:
        """Read the record to the end of a turn, so that it is known how far it goes."""
        for _ in range(RECORD_LOOKS):
            if not await self._read_on() or turn_id in self.record.ended_turns:
                break
            await asyncio.sleep(0.02)
        self._mark = self.record.mark

    async def _read_on(self) -> bool:
        try:
            self._unlooked += await in_own_thread(self.record.read, "read a record")
        except NotTheRecordError:
            return False
        return True

    # ---- what the program says ----

    async def _notified(self, method: str, params: Mapping[str, Any]) -> None:
        run = self._run
        if run is not None and params.get("threadId", self.thread_id) == self.thread_id:
            await run.take(method, params)

    async def _asked(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        run = self._run
        if method == "item/tool/call":
            return await run.call_tool(params) if run is not None else None
        answer = _DECLINE.get(method)
        if answer is not None and run is not None:
            await run.declined(method.rpartition("/")[0] or method)
        return None if answer is None else dict(answer)

    def _gone(self) -> None:
        if self._run is not None:
            self._run.server_gone()

    # ---- ends ----

    async def end_server(self, *, at_once: bool = True) -> ProgramEnd:
        """End the program and everything below it; what is known of that."""
        server, self._server = self._server, None
        if server is None:
            return ProgramEnd(complete=True)
        if at_once and server.program.returncode is None:
            # Asked politely it would write into its record that the user had stopped it, and whatever it waited for.
            with contextlib.suppress(OSError):
                os.kill(server.program.pid, signal.SIGKILL)
        end = await server.stop(STOP_S)
        if end.complete:
            await self._masks(begin=False)
        return end

    async def close(self) -> None:
        """End what runs and let go of everything. Idempotent."""
        self._closed = True
        self._driver.closed(self)
        await self._let_go()

    async def _let_go(self) -> None:
        run = self._run
        waits_for_us = run is not None and run.owes_an_answer
        if run is not None and not run.is_over and not waits_for_us:
            run.stop()
            await run.over(1.2)
        # What it may leave is for whoever started it to tell; nothing here can do more.
        await self.end_server(at_once=waits_for_us)
        if run is not None and not run.is_over:
            run.stop()
            await run.over(0.3)
        relay, self._relay = self._relay, None
        if relay is not None:
            await relay.aclose()
        home, self._home = self._home, None
        if home is not None:
            home.let_go()


def endpoint_of(connector: Connector) -> str:
    """Which server a connector leads to; the same for another key, another for another address."""
    return digest([connector.vendor, connector.base_url])


def _moved(name: str) -> AgentConfigurationChangedError:
    return AgentConfigurationChangedError(
        f"The connector {name} leads to another server than when this session began, and what was said here was "
        "not meant for it. Nothing was sent. Begin a new session to use the other server."
    )


__all__ = ["DRIVER_ID", "CodexSession", "CommandsEnd", "endpoint_of"]
