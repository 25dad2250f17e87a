"""What the person sets up from the window: connectors, models, agents, profiles, and what is stored.

Owns the pages of the settings and what is proposed on them. The channel has checked ids before anything arrives
here; whatever is typed or decided is asked in the trusted dialog, so a proposal carries nothing but a name.
Invariants: nothing is probed, no server asked and no key store looked at before a page is opened or the person
says so; what a channel asked for belongs to that channel and is ended with it; what goes on is told and can be
cancelled; of one thing only one is going on.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from desktop import agent_setup, harness_views, mounts, profiles, sanitize, stored
from desktop.agents import preset_title, tool_words
from desktop.approvals import ApprovalGoneError
from desktop.authority import ChannelAuthority
from desktop.channel import NOT_DONE
from desktop.choices import Choice, ChoiceBook
from desktop.dialog import entry
from desktop.dialogs import ConnectorPrefill
from desktop.discovery import Found, look
from desktop.harness_setup import LOCAL
from desktop.managed import CAPPED
from desktop.profile_store import AgentRecord
from desktop.questions import agent as agent_entry
from desktop.questions import cap as cap_entry
from desktop.questions import credential as credential_entry
from desktop.questions import mount as mount_entry
from desktop.questions import network as network_entry
from desktop.questions import profile as profile_entry
from desktop.questions import program as program_entry
from desktop.questions.connector import edit, enter_connector, remove, rotate
from desktop.questions.model import declare_model
from desktop.sizes import size_words
from desktop.terms import touches_words
from runtime_host.connectors.base import Connector
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.mounts import MountBook, MountReport
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.loop.plugins.base import CredentialCheck
from runtime_host.storage.rows import SeedRow
from ui.wire import dto

if TYPE_CHECKING:
    from desktop.app import Host
    from desktop.channel import RendererChannel

log = logging.getLogger("remuda.desk")

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")

ROWS_BYTES = 192 * 1024
"""What of a list is sent: names are other people's, so their sum has no bound of its own, and a frame has."""
TESTS_AT_ONCE = 4
PROGRESS_STEPS = 200
"""How often work of any length tells how far it is."""


class Visit:
    """What one channel has asked for: what was found and tested for it, and what is going on."""

    def __init__(self) -> None:
        self.tested: dict[str, tuple[str, bool]] = {}
        self.testing: set[str] = set()
        self.found: dict[str, Found] = {}
        self.looking = False
        self.looked = False
        self.works: dict[str, asyncio.Task[Any]] = {}
        self.tests = asyncio.Semaphore(TESTS_AT_ONCE)
        self.mounts: dict[str, tuple[str, str]] = {}
        """(agent, installation) of each mount that was shown."""
        self.news: dict[str, tuple[SeedRow, ...]] = {}
        """What was told of each of them once, by its installation."""


class SetupDesk:
    """The part of the window's desk that sets things up."""

    def __init__(self, host: "Host", channel_of: Callable[[ChannelAuthority], "RendererChannel | None"]) -> None:
        """Show and change what `host` has; `channel_of` is the channel of an authority while it is there."""
        self._host = host
        self._channel_of = channel_of
        self._visits: WeakKeyDictionary[ChannelAuthority, Visit] = WeakKeyDictionary()
        self.commands: dict[type, Callable[[Any, str, ChannelAuthority], Awaitable[dto.Outcome]]] = {
            dto.Propose: self._propose,
            dto.Look: self._look,
            dto.UseFound: self._use_found,
            dto.TestConnector: self._test,
            dto.RefreshModels: self._refresh,
            dto.SetDefault: self._set_default,
            dto.Cancel: self._cancel,
        }
        self.proposals: dict[str, Callable[[dto.Propose, ChannelAuthority], Awaitable[bool | None]]] = {
            "add-connector": self._add_connector,
            "change-key": self._on_connector(rotate),
            "edit-connector": self._on_connector(edit),
            "remove-connector": self._on_connector(remove),
            "declare-model": self._declare_model,
            "network": self._network,
            "add-agent": self._add_agent,
            "edit-agent": self._on_agent(agent_entry.edit),
            "duplicate-agent": self._on_agent(agent_entry.duplicate),
            "delete-agent": self._on_agent(agent_entry.delete),
            "add-profile": self._add_profile,
            "rename-profile": self._on_profile(profile_entry.rename),
            "delete-profile": self._on_profile(profile_entry.delete),
            "open-profile": self._on_profile(profile_entry.open_profile),
            "export-all": self._export_all,
            "remove-all": self._remove_all,
            "pick-program": self._on_harness(program_entry.pick),
            "forget-program": self._on_harness(_forget_program),
            "cap-cost": self._on_harness(cap_entry.cap, CAPPED),
            "review": self._review,
            "add-mount": self._add_mount,
            "edit-mount": self._on_mount(mount_entry.edit),
            "rename-mount": self._on_mount(lambda host, book, found: mount_entry.rename(host, book, found.row)),
            "switch-mount": self._on_mount(mount_entry.switch),
            "remove-mount": self._on_mount(mount_entry.remove),
            "attach-credential": self._on_mount(credential_entry.attach),
            "detach-credential": self._on_mount(credential_entry.detach),
            "check-credential": self._check_credential,
            "refresh-mount": self._refresh_mount,
            "sign-in": self._sign_in,
        }
        self._pages: dict[dto.Page, Callable[[ChannelAuthority], Awaitable[list[dto.Message]]]] = {
            "connections": self._connections,
            "harnesses": self._harnesses,
            "agents": self._agents,
            "profiles": self._profiles,
            "stored": self._stored,
            "mounts": self._mounts,
        }

    def _visit(self, authority: ChannelAuthority) -> Visit:
        visit = self._visits.get(authority)
        if visit is None:
            visit = self._visits[authority] = Visit()
        return visit

    # ------------------------------------------------------------------ reading

    def choices(
        self, book: ChoiceBook, text: str, connector: str | None, chosen: Choice | None, uses: tuple[str, ...] = ()
    ) -> dto.Choices:
        """The first entries of the picker in which `text` is found.

        Args:
            book: what is offered.
            text: what is looked for.
            connector: by its id of the wire.
            chosen: what the selected binding goes to.
            uses: the mounts of its agent.
        """
        name = None if connector is None else (found.name if (found := self._connector(connector)) else "")
        default = book.default()
        total, offered = book.search(text, name, dto.MOST_CHOICES)
        return dto.Choices(
            filter=text,
            connector=connector,
            total=total,
            choices=fitting(choice_row(choice, default, uses) for choice in offered),
            chosen=choice_row(chosen, default, uses) if chosen is not None else None,
        )

    async def connectors(self, authority: ChannelAuthority) -> dto.Connectors:
        visit = self._visit(authority)
        connectors = list(self._host.connectors)[:256]
        uses = await self._host.connectors.uses()
        return dto.Connectors(rows=fitting(_connector_row(one, uses[one.name].in_words(), visit) for one in connectors))

    async def page(self, page: dto.Page, authority: ChannelAuthority) -> list[dto.Message]:
        """What stands on a page; only now is looked up what takes a look."""
        make = self._pages.get(page)
        return await make(authority) if make is not None else []

    async def _connections(self, authority: ChannelAuthority) -> list[dto.Message]:
        network = self._host.network.view()
        self._tell(
            authority,
            dto.Network(proxy=sanitize.line(network.proxy), certificates=sanitize.line(network.certificates)),
        )
        self._tell(authority, await self.connectors(authority))
        self._tell(authority, self._found_message(self._visit(authority)))
        # Last, and the rest does not wait for it: a key store may take its time.
        state = await self._host.credentials.state()
        return [
            dto.KeyStore(
                state=state.state, sentence=sanitize.sentence(state.sentence), way=sanitize.sentence(state.way)
            )
        ]

    async def _harnesses(self, authority: ChannelAuthority) -> list[dto.Message]:
        host = self._host
        look = asyncio.ensure_future(host.harnesses.look())
        await asyncio.sleep(0)
        try:
            rows = await harness_views.rows(host)
            if any(row.state == "looking" for row in rows):
                # Programs may take a while to say their version.
                self._tell(authority, dto.Harnesses(rows=rows))
        finally:
            await look
        return [dto.Harnesses(rows=await harness_views.rows(host))]

    def _on_harness(
        self, do: "Callable[[Host, str], Awaitable[bool]]", drivers: Collection[str] = tuple(LOCAL)
    ) -> Callable[[dto.Propose, ChannelAuthority], Awaitable[bool | None]]:
        """A proposal about the harness that is its target, of those that it is meant for."""

        async def proposed(command: dto.Propose, authority: ChannelAuthority) -> bool | None:
            driver = next((name for name in drivers if harness_views.harness_id(name) == command.target), None)
            if driver is None:
                return None
            try:
                return await do(self._host, driver)
            finally:
                self._page_changed(authority, "harnesses")

        return proposed

    async def _agents(self, authority: ChannelAuthority) -> list[dto.Message]:
        host = self._host
        counted = await host.agents.count_conversations()
        current = host.agents.current.agent_id
        rows = [
            dto.AgentRow(
                id=agent_id(record),
                name=sanitize.line(record.name),
                description=sanitize.sentence(record.description),
                sentence=sanitize.line(agent_setup.model_words(host, record)),
                preset=sanitize.line(": ".join(filter(None, (preset_title(record.preset), record.folder)))),
                tools=sanitize.line(tool_words(record)),
                conversations=counted.get(record.agent_id, 0),
                current=record.agent_id == current,
            )
            for record in host.agents
        ]
        return [dto.Agents(rows=fitting(rows[:256]))]

    async def _profiles(self, authority: ChannelAuthority) -> list[dto.Message]:
        paths = self._host.paths
        # Beside the loop: whether one is running is asked of its socket.
        entries = await in_own_thread(lambda: profiles.list_profiles(paths.data, paths.name), "list profiles")
        rows = [
            dto.ProfileRow(
                id=profile_id(one.profile_id), name=sanitize.line(one.name), current=one.current, running=one.running
            )
            for one in entries
        ]
        return [dto.Profiles(rows=fitting(rows[:64]))]

    async def _stored(self, authority: ChannelAuthority) -> list[dto.Message]:
        found = await stored.what_is_stored(self._host)
        rows = [
            dto.StoredRow(
                what=sanitize.line(row.what),
                path=sanitize.sentence(row.path),
                size_bytes=max(0, row.size_bytes),
                sentence=sanitize.sentence(row.sentence),
            )
            for row in found
        ]
        return [dto.Stored(rows=fitting(rows[:256]), total_bytes=stored.total_bytes(found))]

    # ------------------------------------------------------------------ mounts and what waits

    async def _mounts_agent(self, authority: ChannelAuthority) -> AgentRecord:
        """Whose mounts the page shows: the one that was chosen there, else that of the conversation, or the current."""
        chosen = None if authority.looks_at is None else self.agent(authority.looks_at)
        if chosen is not None:
            return chosen
        name = authority.binding.conversation_id
        row = await self._host.conversations.row(name) if name is not None else None
        record = self._host.agents.get(row.record.agent_id) if row is not None else None
        return record or self._host.agents.current

    async def _mounts(self, authority: ChannelAuthority) -> list[dto.Message]:
        record = await self._mounts_agent(authority)
        book = (await self._host.gateway(record.agent_id)).mounts
        report = await book.report()
        await book.told(report)
        visit = self._visit(authority)
        for each in report.mounts:
            place = record.agent_id, each.row.installation_id
            visit.mounts[mounts.mount_id(each.row.installation_id)] = place
            visit.news[place[1]] = (*visit.news.get(place[1], ()), *each.news)
        # What is told once stands as long as the window does.
        shown = tuple(each._replace(news=visit.news[each.row.installation_id]) for each in report.mounts)
        report = report._replace(mounts=shown)
        agents = [dto.MountsAgent(id=agent_id(one), name=sanitize.line(one.name)) for one in self._host.agents]
        page = mounts.page(agent_id(record), record.name, report)
        return [msgspec.structs.replace(page, agents=fitting(agents[:256]))]

    def _on_mount(
        self, do: "Callable[[Host, MountBook, MountReport], Awaitable[bool]]"
    ) -> Callable[[dto.Propose, ChannelAuthority], Awaitable[bool | None]]:
        """A proposal about the mount that is its target, as that is now."""

        async def proposed(command: dto.Propose, authority: ChannelAuthority) -> bool | None:
            place = self._visit(authority).mounts.get(command.target or "")
            if place is None or self._host.agents.get(place[0]) is None:
                return None
            book = (await self._host.gateway(place[0])).mounts
            report = await book.report()
            found = next((each for each in report.mounts if each.row.installation_id == place[1]), None)
            if found is None:
                return None
            try:
                return await do(self._host, book, found)
            finally:
                self._page_changed(authority, "mounts")

        return proposed

    async def _add_mount(self, command: dto.Propose, authority: ChannelAuthority) -> bool | None:
        # The agent that was shown as the person pressed, whichever is asked for meanwhile.
        record = self.agent(command.target) if command.target else await self._mounts_agent(authority)
        if record is None:
            return None
        try:
            return await mount_entry.add(self._host, (await self._host.gateway(record.agent_id)).mounts) is not None
        finally:
            self._page_changed(authority, "mounts")

    async def _check_credential(self, command: dto.Propose, authority: ChannelAuthority) -> bool | None:
        async def check(host: "Host", book: MountBook, report: MountReport) -> bool:
            alias = report.row.alias
            found = await self._work(authority, f"Asking whether {alias} is let in", book.check(alias))
            if found is None:
                return False
            self._say(authority, "credential", "info" if found.state == "ok" else "warning", check_words(alias, found))
            return True

        return await self._on_mount(check)(command, authority)

    async def _refresh_mount(self, command: dto.Propose, authority: ChannelAuthority) -> bool | None:
        async def refresh(host: "Host", book: MountBook, report: MountReport) -> bool:
            return await mount_entry.look_at(host, book, report.row.alias)

        return await self._on_mount(refresh)(command, authority)

    async def _sign_in(self, command: dto.Propose, authority: ChannelAuthority) -> bool | None:
        """Lead to where a person signs in. It goes on until the browser comes back, so it can be given up meanwhile."""

        async def sign_in(host: "Host", book: MountBook, report: MountReport) -> bool:
            if report.credential_shape.why_not:
                raise AgentRuntimeError(report.credential_shape.why_not, code="NO_SIGN_IN")
            # Its dialog and the browser come in when somebody signs in.
            from desktop.questions.sign_in import show

            alias = report.row.alias
            found = await self._work(
                authority,
                f"Waiting until you have signed in for {alias}",
                book.sign_in(alias, lambda address: show(host, alias, address)),
            )
            if found is None:
                self._say(authority, "sign-in", "info", f"The sign-in for {alias} was given up. Nothing of it is kept.")
                return False
            self._page_changed(authority, "mounts")
            if found.state == "ok":
                # In the place of what was said of a sign-in before.
                self._say(authority, "sign-in", "info", f"You are signed in for {alias}.")
                await mount_entry.look_after(host, book, alias, f"You are signed in for {alias}.")
            return found.state == "ok"

        return await self._on_mount(sign_in)(command, authority)

    def _say(self, authority: ChannelAuthority, name: str, level: Literal["info", "warning"], sentence: str) -> None:
        self._tell(authority, dto.Notice(id=name, level=level, code="", text=sanitize.sentence(sentence)))

    async def _review(self, command: dto.Propose, authority: ChannelAuthority) -> bool | None:
        """Show a held call in the trusted dialog: the window says which, the person decides there."""
        try:
            decided = await self._host.approvals.review(command.target or "")
        except ApprovalGoneError:
            return None
        if decided is None:
            return False
        if decided.state not in ("approved", "denied"):
            self._say(authority, "decided", "warning", decided.words)
        return True

    def agent(self, wire_id: str) -> AgentRecord | None:
        """The agent of an id of the wire, while it is there."""
        return next((record for record in self._host.agents if agent_id(record) == wire_id), None)

    def _connector(self, wire_id: str) -> Connector | None:
        return next((one for one in self._host.connectors if connector_id(one.name) == wire_id), None)

    # ------------------------------------------------------------------ proposals

    async def _propose(self, command: dto.Propose, text: str, authority: ChannelAuthority) -> dto.Outcome:
        do = self.proposals.get(command.action)
        if do is None:
            raise AgentRuntimeError("Remuda cannot do this yet.", code="COMMAND_UNKNOWN")
        done = await do(command, authority)
        if done is None:
            return gone(command.request)
        return _done(command.request) if done else not_done(command.request)

    async def _add_connector(self, command: dto.Propose, authority: ChannelAuthority) -> bool:
        # What else speaks the chat API has many names: they are shown to choose from.
        kind = command.target if command.target in ("openai", "anthropic") else ""
        return await self._entered(ConnectorPrefill(kind=kind), authority)

    async def _entered(self, prefill: ConnectorPrefill, authority: ChannelAuthority) -> bool:
        if await enter_connector(self._host, prefill) is None:
            return False
        await self._host.settings.set_welcomed()
        self._keys_changed(authority)
        return True

    def _on_connector(
        self, do: "Callable[[Host, str], Awaitable[object]]"
    ) -> Callable[[dto.Propose, ChannelAuthority], Awaitable[bool | None]]:
        """A proposal about the connector that is its target."""

        async def proposed(command: dto.Propose, authority: ChannelAuthority) -> bool | None:
            found = self._connector(command.target or "")
            if found is None:
                return None
            done = bool(await do(self._host, found.name))
            if done:
                self._visit(authority).tested.pop(found.name, None)
                self._keys_changed(authority)
            return done

        return proposed

    def _keys_changed(self, authority: ChannelAuthority) -> None:
        """The key store was used: it may have been unlocked meanwhile, or be gone."""
        self._page_changed(authority, "connections")

    async def _declare_model(self, command: dto.Propose, authority: ChannelAuthority) -> bool | None:
        """The target is a connector, whose model is named in the dialog, or an entry of the picker."""
        connector = self._connector(command.target or "")
        if connector is not None:
            return await declare_model(self._host, connector, None)
        choice = self._host.choices().get(command.target or "")
        connector = self._host.connectors.find(choice.connector) if choice is not None else None
        if choice is None or connector is None:
            return None
        return await declare_model(self._host, connector, choice.model)

    async def _network(self, command: dto.Propose, authority: ChannelAuthority) -> bool:
        done = await network_entry.change(self._host)
        self._keys_changed(authority)
        return done

    # ------------------------------------------------------------------ agents and profiles

    async def _add_agent(self, command: dto.Propose, authority: ChannelAuthority) -> bool:
        return await agent_entry.add(self._host) is not None

    def _on_agent(
        self, do: "Callable[[Host, str], Awaitable[object]]"
    ) -> Callable[[dto.Propose, ChannelAuthority], Awaitable[bool | None]]:
        """A proposal about the agent that is its target."""

        async def proposed(command: dto.Propose, authority: ChannelAuthority) -> bool | None:
            record = self.agent(command.target or "")
            return None if record is None else bool(await do(self._host, record.agent_id))

        return proposed

    async def _add_profile(self, command: dto.Propose, authority: ChannelAuthority) -> bool:
        done = await profile_entry.add(self._host) is not None
        self._page_changed(authority, "profiles")
        return done

    def _on_profile(
        self, do: "Callable[[Host, str], Awaitable[object]]"
    ) -> Callable[[dto.Propose, ChannelAuthority], Awaitable[bool | None]]:
        """A proposal about the profile that is its target."""

        async def proposed(command: dto.Propose, authority: ChannelAuthority) -> bool | None:
            data = self._host.paths.data
            entries = await in_own_thread(lambda: profiles.list_profiles(data), "list profiles")
            found = next((one.profile_id for one in entries if profile_id(one.profile_id) == command.target), None)
            if found is None:
                return None
            try:
                return bool(await do(self._host, found))
            finally:
                self._page_changed(authority, "profiles")

        return proposed

    def _page_changed(self, authority: ChannelAuthority, page: dto.Page) -> None:
        if (channel := self._channel_of(authority)) is not None:
            channel.page_changed(page)

    # ------------------------------------------------------------------ all that is stored

    async def _export_all(self, command: dto.Propose, authority: ChannelAuthority) -> bool:
        destination = await profile_entry.ask_destination(self._host)
        if destination is None:
            return False
        written = await self._told_work(
            authority,
            "Writing everything into one file",
            lambda tell: profile_entry.export_all(self._host, destination, tell),
        )
        if written is None:
            return False
        if (channel := self._channel_of(authority)) is not None:
            words = f"Everything is in {written.path.name}, {size_words(written.size_bytes)}, without your keys."
            channel.tell(dto.Notice(id="exported", level="info", code="EXPORTED", text=sanitize.sentence(words)))
        return True

    async def _remove_all(self, command: dto.Propose, authority: ChannelAuthority) -> bool:
        return await profile_entry.remove_all(self._host)

    # ------------------------------------------------------------------ asking a server

    async def _test(self, command: dto.TestConnector, text: str, authority: ChannelAuthority) -> dto.Outcome:
        found, visit = self._connector(command.connector), self._visit(authority)
        if found is None:
            return gone(command.request)
        if found.name in visit.testing:
            return _done(command.request)
        async with self._testing(found.name, visit, authority):
            async with visit.tests:
                tested = await self._work(authority, f"Testing {found.name}", self._host.setup.test(found.name))
            if tested is None:
                return not_done(command.request)
            visit.tested[found.name] = (tested.sentence, tested.status == "ok")
        return _done(command.request)

    async def _refresh(self, command: dto.RefreshModels, text: str, authority: ChannelAuthority) -> dto.Outcome:
        found, visit = self._connector(command.connector), self._visit(authority)
        if found is None:
            return gone(command.request)
        if found.name in visit.testing:
            return _done(command.request)
        async with self._testing(found.name, visit, authority):
            asking = self._host.setup.refresh(found.name)
            try:
                async with visit.tests:
                    kept = await self._work(authority, f"Asking {found.name} for its models", asking)
            except AgentRuntimeError as fault:
                visit.tested[found.name] = (fault.message, False)
                raise
            if kept is None:
                return not_done(command.request)
            count = len(kept.models)
            visit.tested[found.name] = (f"The server lists {count:,} model{'' if count == 1 else 's'}.", True)
        return _done(command.request)

    @asynccontextmanager
    async def _testing(self, name: str, visit: Visit, authority: ChannelAuthority) -> AsyncIterator[None]:
        """A server is being asked: said at its connector, from the beginning to the end."""
        visit.testing.add(name)
        self._changed(authority, "connectors")
        try:
            yield
        finally:
            visit.testing.discard(name)
            self._changed(authority, "connectors")

    def _changed(self, authority: ChannelAuthority, what: str) -> None:
        if (channel := self._channel_of(authority)) is not None:
            channel.changed(what)

    # ------------------------------------------------------------------ what is here

    async def _look(self, command: dto.Look, text: str, authority: ChannelAuthority) -> dto.Outcome:
        visit = self._visit(authority)
        if visit.looking:
            return _done(command.request)
        visit.looking = True
        self._tell(authority, self._found_message(visit))
        try:
            harnesses = self._host.harnesses
            found, _ = await asyncio.gather(look(brought=harnesses.brought()), harnesses.look(again=True))
            visit.found = {sanitize.wire_id("found:" + one.found_id): one for one in found}
            visit.looked = True
        finally:
            visit.looking = False
            self._tell(authority, self._found_message(visit))
        return _done(command.request)

    async def _use_found(self, command: dto.UseFound, text: str, authority: ChannelAuthority) -> dto.Outcome:
        found = self._visit(authority).found.get(command.found)
        if found is None:
            return gone(command.request)
        if not found.usable:
            raise AgentRuntimeError(found.note or "Nothing can be made of it yet.", code="FOUND_NOT_USABLE")
        kind = next((one.kind for one in entry.KINDS if one.label.casefold() == found.name.casefold()), "compatible")
        done = await self._entered(ConnectorPrefill(kind=kind, address=found.base_url), authority)
        return _done(command.request) if done else not_done(command.request)

    def _found_message(self, visit: Visit) -> dto.Found:
        # What a connector leads to already is not offered once more.
        used = {connector.base_url: connector.name for connector in self._host.connectors}
        rows = [
            dto.FoundRow(
                id=name,
                kind=one.kind,
                name=sanitize.line(one.name),
                # Where a program lies is nothing that a window needs to know.
                detail=sanitize.line(
                    one.detail if one.kind == "server" else f"version {one.version}" if one.version else ""
                ),
                note=sanitize.sentence(f"In use as {used[one.base_url]}." if one.base_url in used else one.note),
                usable=one.usable and one.base_url not in used,
            )
            for name, one in visit.found.items()
        ]
        return dto.Found(looking=visit.looking, looked=visit.looked, rows=fitting(rows[:32]))

    def _tell(self, authority: ChannelAuthority, message: dto.Message) -> None:
        if (channel := self._channel_of(authority)) is not None:
            channel.tell(message)

    # ------------------------------------------------------------------ defaults

    async def _set_default(self, command: dto.SetDefault, text: str, authority: ChannelAuthority) -> dto.Outcome:
        choice = self._host.choices().get(command.choice)
        if choice is None:
            return gone(command.request)
        if not choice.available:
            raise AgentRuntimeError(choice.unavailable_because, code="CHOICE_UNAVAILABLE")
        if command.scope == "connector":
            await self._host.connectors.set_default(choice.connector, choice.model)
            return _done(command.request)
        await self._host.settings.set_default_choice(choice.record())
        for what in ("choices", "selected"):
            self._changed(authority, what)
        return _done(command.request)

    # ------------------------------------------------------------------ long work

    async def _work(self, authority: ChannelAuthority, sentence: str, work: Coroutine[Any, Any, T]) -> T | None:
        """Do `work` where it is told and can be cancelled; None when the person cancelled it."""
        return await self._told_work(authority, sentence, lambda tell: work)

    async def _told_work(
        self,
        authority: ChannelAuthority,
        sentence: str,
        begin: Callable[[Callable[[int, int], None]], Coroutine[Any, Any, T]],
    ) -> T | None:
        """As `_work`, for work that tells how far it is: `begin` gets the function to tell it with."""
        visit = self._visit(authority)
        name = "p" + secrets.token_hex(8)
        words = sanitize.sentence(sentence)
        step = 0

        def tell(done: int, of: int, *, ended: bool = False) -> None:
            nonlocal step
            now = done * PROGRESS_STEPS // of if of > 0 else 0
            channel = self._channel_of(authority)
            if channel is not None and (ended or done == 0 or now != step):
                step = now
                channel.tell(dto.Progress(id=name, sentence=words, done=max(0, done), of=max(0, of), ended=ended))

        task = asyncio.get_running_loop().create_task(begin(lambda done, of: tell(done, of)))
        visit.works[name] = task
        tell(0, 0)
        try:
            # Cancelled from outside (the channel ended) the work goes with it; by `Cancel` only the work ends.
            await asyncio.wait([task])
            return None if task.cancelled() else task.result()
        finally:
            del visit.works[name]
            tell(0, 0, ended=True)
            if not task.done():
                task.cancel()
                await asyncio.wait([task])  # to its end: what it began to write is taken back

    async def _cancel(self, command: dto.Cancel, text: str, authority: ChannelAuthority) -> dto.Outcome:
        task = self._visit(authority).works.get(command.progress)
        if task is None:
            return gone(command.request)
        task.cancel()
        return _done(command.request)


def fitting(rows: Iterable[R]) -> tuple[R, ...]:
    """As many, from the first, as one message may hold."""
    found: list[R] = []
    size_bytes = 0
    for row in rows:
        size_bytes += len(msgspec.json.encode(row))
        if size_bytes > ROWS_BYTES:
            break
        found.append(row)
    return tuple(found)


def check_words(alias: str, found: CredentialCheck) -> str:
    """What asking the other side about a credential came to."""
    said = {
        "ok": f"{alias} is let in.",
        "rejected": f"The other side does not take the credential of {alias}.",
        "unreachable": f"The other side of {alias} could not be reached, so whether it lets in is not known.",
        "unchecked": f"{alias} has no way to check its credential; a call will tell.",
    }[found.state]
    return f"{said} {found.detail}".rstrip()


async def _forget_program(host: "Host", driver: str) -> bool:
    await host.harnesses.forget_pick(driver)
    return True


def connector_id(name: str) -> str:
    """The wire's name of a connector."""
    return sanitize.wire_id("connector:" + name)


def agent_id(record: AgentRecord) -> str:
    """The wire's name of an agent."""
    return sanitize.wire_id("agent:" + record.agent_id)


def profile_id(name: str) -> str:
    """The wire's name of a profile."""
    return sanitize.wire_id("profile:" + name)


def choice_row(choice: Choice, default: Choice | None, uses: tuple[str, ...] = ()) -> dto.Choice:
    builtin = choice.vendor == "builtin"
    return dto.Choice(
        id=choice.choice_id,
        harness=sanitize.line(choice.harness_name),
        connector=sanitize.line("This computer" if builtin else choice.connector),
        model=sanitize.line(choice.model),
        efforts=tuple(sanitize.line(effort) for effort in choice.efforts[:12]),
        runs=choice.runs,
        touches=sanitize.line(touches_words(choice.touches, uses)),
        bills=choice.bills,
        note=sanitize.sentence(choice.note),
        available=choice.available,
        builtin=builtin,
        context=choice.context,
        price=choice.price,
        badge=choice.badge,
        images=choice.images,
        default=default is not None and choice.choice_id == default.choice_id,
        folder=choice.folder,
        connector_id=None if builtin else connector_id(choice.connector),
    )


def _connector_row(connector: Connector, used_by: str, visit: Visit) -> dto.ConnectorRow:
    sentence, well = visit.tested.get(connector.name, ("", True))
    return dto.ConnectorRow(
        id=connector_id(connector.name),
        name=sanitize.line(connector.name),
        vendor=vendor_words(connector),
        address=sanitize.line(connector.base_url),
        key=_key_words(connector.secret.kind if connector.secret else None),
        used_by=sanitize.line(used_by),
        default_model=sanitize.line(connector.default_model),
        models=len(connector.models),
        tested=sanitize.sentence(sentence),
        test=("ok" if well else "problem") if sentence else "",
        testing=connector.name in visit.testing,
    )


def vendor_words(connector: Connector) -> str:
    """What people call what a connector leads to."""
    kind = entry.connector_kind(entry.kind_of(connector.vendor, connector.base_url))
    return "OpenAI-compatible" if kind is None or not kind.address else kind.label


def _key_words(kind: str | None) -> str:
    if kind is None:
        return "no key"
    return "key in the system's key store" if kind == "keyring" else "key in an environment variable"


def _done(request: int) -> dto.Outcome:
    return dto.Outcome(request=request, status="done")


def not_done(request: int) -> dto.Outcome:
    """The person said no, or not now."""
    return dto.Outcome(request=request, status="refused", code=NOT_DONE, text="")


def gone(request: int) -> dto.Outcome:
    """What was named is not there any more."""
    return dto.Outcome(request=request, status="stale", code="STALE", text="It is gone already.")
