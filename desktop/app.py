"""The composition root: the only place that wires the parts of a host together.

Owns the life of the host: it lives while a window, a run or an order from the command line
is there, and ends in the reverse order of its making.
"""

import asyncio
import functools
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Literal, get_args

from desktop import (
    failed_start,
    guard,
    host_tools,
    logs,
    notifications,
    process,
    profiles,
    sanitize,
    sealing_keys,
    stored,
)
from desktop.agent_stores import AgentStores
from desktop.agents import Agents
from desktop.appearance import Appearance
from desktop.approvals import Approvals
from desktop.build import BUILD
from desktop.choices import CLAUDE_MANAGED, OPENAI_MANAGED, Choice, ChoiceBook, EffortsOf
from desktop.connector_setup import ConnectorSetup
from desktop.connectors import Connectors
from desktop.control import ControlServer
from desktop.conversations import Conversations
from desktop.credentials import Credentials
from desktop.desk import WindowDesk
from desktop.dialogs import Dialogs
from desktop.harness_programs import HarnessPrograms, ProfileHomes
from desktop.harness_setup import CLAUDE, CODEX, Harnesses
from desktop.host_lock import HostLock
from desktop.isolation import Launch, launch_dialog, walls
from desktop.late_driver import LateDriver, LateServiceDriver, ServiceHarness
from desktop.local_model import BuiltinModel, available
from desktop.managed import Managed
from desktop.mounts import reaching
from desktop.network import Network
from desktop.orders.operations import Operations
from desktop.paths import ProfilePaths
from desktop.plugins import plugins
from desktop.profile_store import open_profile_store
from desktop.settings import Settings
from desktop.transfers import Transfers
from desktop.window import Window
from runtime_host.connectors.base import Connector, ConnectorRegistry
from runtime_host.drivers.base import AgentDriver
from runtime_host.drivers.native.driver import NativeDriver
from runtime_host.errors import AgentRuntimeError, StorageDamagedError, StorageError
from runtime_host.loop.artifact_store import shelves
from runtime_host.loop.gateway import Gateway
from runtime_host.loop.seeds import USUAL_SEEDS
from runtime_host.models.declared import NOTHING_DECLARED, DeclaredModels, read_models_toml
from runtime_host.models.facts import ModelFacts, facts_for
from runtime_host.models.reasoning import Harness, ReasoningMap
from runtime_host.programs import Toolchains
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.storage.rows import MountRow
from runtime_host.storage.salvage import set_aside
from ui.wire import dto

log = logging.getLogger("remuda.host")

GAVE_UP = (
    "the window ended three times within a minute, so it was not started again. Nothing that was sent is lost. "
    "Start Remuda again to open it."
)


NEVER_OPENED = (
    "no window could be opened. Check that DISPLAY or WAYLAND_DISPLAY names a display that takes you. "
    'Without a window: remuda run "your message"'
)


class Host:
    """Everything a host holds, wired. Use `async with`."""

    def __init__(self, paths: ProfilePaths) -> None:
        self.paths = paths
        self.ended = asyncio.Event()
        self._serves = False
        """It is up to window, runs and orders when it ends; before that, to the command that it was started for."""
        self.removing = False
        """Everything of this profile was removed from what it knows, and its files go once it has ended."""
        self._stack = AsyncExitStack()
        self._recovery: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self.window: Window | None = None
        self._choosing_picture = asyncio.Lock()
        self._pictures_asked = 0
        self._book: tuple[tuple[Any, ...], ChoiceBook] | None = None
        self.notices: list[dto.Notice] = []
        self.aside: Callable[[str], None] = log.info
        """Told what a window would show, where there is none."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._late: list[LateDriver] = []

    async def __aenter__(self) -> "Host":
        try:
            await self._wire()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in (self._recovery, self._sweeping):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._stack.aclose()
        if self.removing:
            # Nothing of it is open any more, and the lock is still held by who started this host.
            try:
                await stored.remove_files(self.paths)
            except AgentRuntimeError as fault:
                print(f"remuda: {fault.message}", file=sys.stderr)

    def _tell_set_aside(self) -> None:
        """Name every damaged file that was set aside, at each start for as long as it is there."""
        for number, file in enumerate((*set_aside(self.paths.store), *self.stores.set_aside())):
            if any(sanitize.sentence(str(file)) in notice.text for notice in self.notices):
                continue
            self.notices.append(
                dto.Notice(
                    id=f"set-aside-{number}",
                    level="warning",
                    code="STORAGE_SET_ASIDE",
                    text=sanitize.sentence(
                        f"A damaged file was set aside as “{file}” and not changed. Remove it when you need it no "
                        "more; until then this is said at each start."
                    ),
                    sticky=True,
                )
            )

    async def _wire(self) -> None:
        paths, stack = self.paths, self._stack
        try:
            profile = await open_profile_store(paths.store, profile=paths.name)
        except StorageDamagedError as damaged:
            # It was set aside under a name that the person is told, and never overwritten.
            self.notices.append(
                dto.Notice(
                    id="damaged",
                    level="error",
                    code=damaged.error_code,
                    text=sanitize.sentence(damaged.message),
                    sticky=True,
                )
            )
            profile = await open_profile_store(paths.store, profile=paths.name)
        stack.push_async_callback(profile.close)
        self.profile = profile
        self.settings = Settings(profile)
        await self.settings.load()
        self.credentials = Credentials(
            self.settings.profile_uuid, on_slow=functools.partial(self.tell, "key-store", "warning", "KEYRING_SLOW")
        )
        stack.push_async_callback(self.credentials.aclose)
        self.connectors = Connectors(profile)
        await self.connectors.load()
        self.network = Network(self.settings, self.credentials, paths.run)
        self.model = BuiltinModel(paths.run)
        stack.push_async_callback(self.model.aclose)
        self.registry = ConnectorRegistry(
            find=self.connectors.find,
            secrets=self.credentials.resolve,
            builtin=self.model,
            network=self.network.now,
        )
        self.setup = ConnectorSetup(self.connectors, self.credentials, self.registry)
        stack.push_async_callback(self.setup.aclose)
        handler = logs.start(paths.logs, self.registry.redactor.text)
        stack.callback(logs.stop, handler)
        self.declared = _declared_models(paths)
        self._native = NativeDriver(self.registry, declared=self.declared, works_in_folders=True)
        self.programs = HarnessPrograms(hidden=(str(paths.data),))
        self.harnesses = Harnesses(self.settings)
        self.harnesses.load()
        self.managed = Managed(self.settings)
        self.stores = AgentStores(paths, self.settings.profile_uuid)
        stack.push_async_callback(self.stores.aclose)
        self._tell_set_aside()
        self.approvals = Approvals(self)
        self.seals = sealing_keys.KeyringSeals(
            self.credentials,
            lambda: self.settings.set_sealing({"secret": sealing_keys.NOTED}),
        )
        self.runtime = AgentRuntime(
            LocalBackend(
                drivers=[self._native, *self._local_drivers(), *self._services()],
                connectors=self.registry,
                storage=self.stores.open,
                private_roots=(paths.data,),
                program_files=walls.own_program(),
                durability="durable",
                resolve_tools=host_tools.resolve_host_tools,
                on_retained_observation=host_tools.retained(functools.partial(self.tell, "tool", "warning")),
                plugins=plugins(paths, self.programs, self.network.now, self._toolchains),
                seeds=USUAL_SEEDS,
                artifacts=shelves(lambda agent_id: paths.agent(agent_id) / "artifacts"),
                tenant=self.settings.profile_uuid,
                seals=self.seals,
                outside=sealing_keys.outside(self.credentials),
                on_held=self.approvals.held,
                on_decided=self.approvals.decided,
                on_mounts=self._mounts_changed,
                file_transfer=lambda context: self.transfers.allow(context),
            )
        )
        stack.push_async_callback(self.runtime.aclose)
        self.agents = Agents(profile)
        await self.agents.load()
        await self.stores.sweep([agent.agent_id for agent in self.agents])
        self.conversations = Conversations(
            profile,
            self.stores,
            self.runtime,
            self.choices,
            self.agents,
            prepare=self.harnesses.prepare,
            configure=self.managed.configuration,
        )
        self.transfers = Transfers(paths.transfer, self.conversations.session_at_hand)
        await self.transfers.sweep()
        self.conversations.on_rest = self.end_when_idle_soon
        self.conversations.on_recovered = self.approvals.recovered
        self.conversations.on_gone = self.approvals.forget
        stack.push_async_callback(self.conversations.aclose)
        stack.push_async_callback(self.approvals.aclose)
        self.appearance = Appearance(self.settings)
        self.dialogs = Dialogs(
            lambda: self.profile_name,
            functools.partial(launch_dialog, build=BUILD),
            picture_word=lambda: self.settings.picture_word,
            looks=self.appearance.looks,
            on_failure=functools.partial(self.tell, "dialog", "error"),
        )
        stack.push_async_callback(self.dialogs.aclose)
        self.operations = Operations(self)
        control = ControlServer(paths.control, self.operations.perform, guard.guard_pids)
        try:
            await control.start()
        except OSError as fault:
            raise AgentRuntimeError(
                f"The socket by which Remuda is reached cannot be made: {fault}.", code="CONTROL_SOCKET_FAILED"
            ) from fault
        stack.push_async_callback(control.aclose)
        reaper = process.OrphanReaper(asyncio.get_running_loop())
        reaper.start()
        stack.callback(reaper.close)
        self.desk = WindowDesk(self)
        stack.push_async_callback(self.desk.aclose)
        log.info("host of profile %s started", paths.name)

    @property
    def profile_name(self) -> str:
        """What the person calls this profile."""
        return profiles.display_name(self.paths)

    def choices(self) -> ChoiceBook:
        """What messages can go to now; made anew when a connector came or went."""
        made_of = (tuple(self.connectors), self.declared, self.settings.default_choice, self.harnesses.ready())
        if self._book is None or self._book[0] != made_of:
            connectors, declared, default, ready = made_of
            usable = (*ready, OPENAI_MANAGED, CLAUDE_MANAGED)
            harnesses = {driver: _efforts_of(driver, declared) for driver in usable}
            book = ChoiceBook(connectors, available(), declared=declared, default=default, harnesses=harnesses)
            self._book = made_of, book
        return self._book[1]

    def _local_drivers(self) -> list[AgentDriver]:
        """The harnesses that are programs of their own; the code of each is loaded when it is first used."""
        homes, toolchains = ProfileHomes(self.paths), self._toolchains

        def codex() -> Callable[[], AgentDriver]:
            from runtime_host.drivers.codex.driver import CodexDriver

            return lambda: CodexDriver(
                self.registry,
                self.programs,
                homes,
                cli=functools.partial(self.harnesses.program, CODEX.driver),
                declared=self.declared,
                hidden=(os.path.realpath(self.paths.data),),
                toolchains=toolchains,
            )

        def claude() -> Callable[[], AgentDriver]:
            from runtime_host.drivers.claude_sdk.driver import ClaudeDriver

            return lambda: ClaudeDriver(
                self.registry,
                self.programs,
                homes,
                cli=functools.partial(self.harnesses.program, CLAUDE.driver),
                declared=self.declared,
                toolchains=toolchains,
            )

        local = [LateDriver(CODEX.driver, codex), LateDriver(CLAUDE.driver, claude)]
        self._late += local
        return list(local)

    def _services(self) -> list[AgentDriver]:
        """The harnesses that work at a provider; the code of each is loaded when it is first used."""

        def openai() -> Callable[[], ServiceHarness]:
            from runtime_host.drivers.openai_managed.driver import OpenAIManagedDriver

            return lambda: OpenAIManagedDriver(
                self.registry,
                declared=self.declared,
                environment_templates=functools.partial(self.managed.environments, OPENAI_MANAGED),
            )

        def anthropic() -> Callable[[], ServiceHarness]:
            from runtime_host.drivers.claude_managed.driver import ClaudeManagedDriver

            return lambda: ClaudeManagedDriver(
                self.registry,
                declared=self.declared,
                environment_ids=functools.partial(self.managed.environments, CLAUDE_MANAGED),
            )

        services = [
            LateServiceDriver(OPENAI_MANAGED, openai, settle_s=30.0),
            LateServiceDriver(CLAUDE_MANAGED, anthropic, settle_s=20.0),
        ]
        self._late += services
        return list(services)

    def _toolchains(self) -> Toolchains:
        from desktop.toolchains import found

        return found(os.environ, hidden=(str(self.paths.data),))

    async def gateway(self, agent_id: str) -> Gateway:
        """The mounts of an agent and its calls that wait."""
        return await self.runtime.gateway(agent_id)

    async def _mounts_changed(self, agent_id: str, rows: tuple[MountRow, ...]) -> None:
        """Keep what an agent uses where it is told without its file being opened."""
        try:
            await self.agents.note_uses(agent_id, reaching(rows))
        except StorageError as fault:
            # It is told anew when the agent is next opened.
            log.warning("which mounts %s uses was not kept: %s", agent_id, fault.error_code)

    def default_choice(self) -> Choice | None:
        """What a new conversation goes to unless it is said otherwise."""
        return self.choices().default()

    async def recover(self) -> None:
        """Take up what the last host left, once, and return when that is done.

        Nothing is shown or sent before: what was accepted would still stand as a draft, and be sent twice.
        What cannot be taken up is said, and the rest works.
        """
        if self._recovery is None:
            self._recovery = asyncio.get_running_loop().create_task(self._recover())
        await asyncio.shield(self._recovery)

    async def _recover(self) -> None:
        # Beside everything else: it may have to wait for the key store.
        self._sweeping = asyncio.get_running_loop().create_task(profiles.finish_interrupted(self.paths.data))
        try:
            await self.conversations.recover()
            self.approvals.arm()
        except AgentRuntimeError as fault:
            log.exception("what the last host left could not be taken up")
            self.notices.append(
                dto.Notice(
                    id="recovery",
                    level="error",
                    code=sanitize.code(fault.error_code),
                    text=sanitize.sentence(fault.message),
                    sticky=True,
                )
            )

    def open_window(self, launch: Launch | None = None) -> None:
        """Open the window, or bring the open one to the front."""
        if self.window is None or not self.window.is_open:
            self.window = Window(self.desk, launch, self._window_ended)
            self.desk.window = self.window
            self._stack.push_async_callback(self.window.aclose)
            self.window.open()

    def raise_window(self, token: str) -> None:
        """Bring the window to the front; open one where the host has none."""
        if self.window is not None and self.window.channel is not None:
            self.window.channel.tell(dto.Raise(token=sanitize.line(token)))
        else:
            self.open_window()

    def tell(self, name: str, level: Literal["info", "warning", "error"], code: str, sentence: str) -> None:
        """Say a sentence in the window, or aside where there is none."""
        if self.window is not None and self.window.channel is not None and self.window.locked is not None:
            self.window.channel.tell(
                dto.Notice(id=name, level=level, code=sanitize.code(code), text=sanitize.sentence(sentence))
            )
        else:
            self.aside(sentence)

    async def trusted(self) -> Dialogs:
        """The dialogs; ahead of the very first one the person chooses the picture that marks all of them.

        Who puts it off is not asked again for the questions that were waiting already.
        """
        asked = self._pictures_asked
        async with self._choosing_picture:
            if self.settings.picture_word is None and asked == self._pictures_asked:
                word = await self.dialogs.choose_picture_word()
                self._pictures_asked += 1
                if word is not None:
                    await self.settings.set_picture_word(word)
        return self.dialogs

    def read_declared_models(self) -> None:
        """Go by what `models.toml` says now."""
        self.declared = _declared_models(self.paths)
        self._native.declare(self.declared)
        for late in self._late:
            late.declare(self.declared)
        self.connectors.on_change()

    def facts(self, connector: Connector, model: str) -> ModelFacts:
        """What is known of a model, and who says so."""
        return facts_for(connector, model, self.declared)

    def _window_ended(self) -> None:
        running = len(self.conversations.held_here())
        elsewhere = goes_on_words(self.conversations.at_services())
        if running or elsewhere:
            here = f"{'A reply is' if running == 1 else f'{running} replies are'} still being written. "
            task = asyncio.get_running_loop().create_task(
                notifications.tell(
                    "Remuda goes on without its window" if running else "Work goes on at a provider",
                    f"{here if running else ''}{f'{elsewhere} ' if elsewhere else ''}Start Remuda again to see it.",
                )
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.end_when_idle()

    def end_when_idle(self) -> None:
        """End the host if neither window nor run nor order holds it."""
        windowless = self.window is None or not self.window.is_open
        busy = self.conversations.busy or self.approvals.busy or self.operations.active
        if self._serves and windowless and not busy:
            self.ended.set()

    async def run_until_ended(self) -> None:
        """Serve until nothing holds the host any more, or a signal ends it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.ended.set)
        leave = self.conversations.on_change(lambda conversation_id: self.end_when_idle_soon())
        # What was asked for and done before does not count: a question in its first moment would end a window's host.
        self._serves = True
        self.end_when_idle_soon()
        try:
            await self.ended.wait()
        finally:
            leave()

    def end_when_idle_soon(self) -> None:
        """Look again once the change that is being told has been taken in."""
        if self.window is None or not self.window.is_open:
            asyncio.get_running_loop().call_soon(self.end_when_idle)


def goes_on_words(at_services: Mapping[str, int]) -> str:
    """What goes on where when this program ends; empty for nothing."""
    parts = [f"{count} conversation{'' if count == 1 else 's'} at {name}" for name, count in at_services.items()]
    if not parts:
        return ""
    alone = sum(at_services.values()) == 1
    return f"{' and '.join(parts)} {'goes' if alone else 'go'} on while Remuda is closed."


def _efforts_of(driver: str, declared: DeclaredModels) -> EffortsOf:
    """The efforts that models take in a harness of its own loop."""
    harness = next(known for known in get_args(Harness) if known == driver)
    try:
        return ReasoningMap(harness, declared=declared.reasoning[harness], not_reasoning=declared.not_reasoning).efforts
    except AgentRuntimeError as fault:
        # Whoever wants to use them is told by the harness itself.
        log.warning("efforts that are declared are not offered: %s", fault.message)
        return ReasoningMap(harness).efforts


def _declared_models(paths: ProfilePaths) -> DeclaredModels:
    """What the person's `models.toml` says of models. One that is wrong declares nothing, and the log says why."""
    try:
        return read_models_toml(paths.models)
    except AgentRuntimeError as error:
        log.warning("nothing of it is used: %s", error.message)
        return NOTHING_DECLARED


def run_window(paths: ProfilePaths, lock: HostLock, launch: Launch) -> int:
    """The app: a host with a window whose renderer is already starting. Returns the exit code."""

    async def serve() -> int:
        try:
            async with Host(paths) as host:
                host.open_window(launch)
                await host.recover()
                await host.run_until_ended()
                gave_up = host.window is not None and host.window.gave_up
                was_open = host.window is not None and host.window.was_open
            if gave_up:
                print(f"remuda: {GAVE_UP if was_open else NEVER_OPENED}", file=sys.stderr)
            return 1 if gave_up else 0
        finally:
            lock.release()

    try:
        return asyncio.run(serve())
    except (AgentRuntimeError, OSError) as fault:
        if launch.process.poll() is not None:
            raise
        code, message = (
            (fault.error_code, fault.message) if isinstance(fault, AgentRuntimeError) else ("START_FAILED", str(fault))
        )
        return failed_start.show(launch, f"Remuda cannot start. {message}", code)
