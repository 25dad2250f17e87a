"""What the person in front of the window may do, carried out with the host's rights.

Owns the translation of a checked command into work, and of records into DTOs. The channel
has checked ids and revisions before anything arrives here; what is dangerous is asked once
more in the trusted dialog. Invariant: every answer has been through `sanitize`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from desktop import doctor, sanitize
from desktop.agents import agent_terms
from desktop.authority import ChannelAuthority
from desktop.build import BUILD
from desktop.choices import NATIVE, Choice, gone, missing
from desktop.conversations import STILL_AT_WORK, Ending, Row, check_secret, what_goes
from desktop.desk_setup import SetupDesk, agent_id, fitting, not_done
from desktop.dialogs import DeleteConfirmation
from desktop.isolation import drawing_uid, seal_host
from desktop.isolation.decoys import decoys
from desktop.orders.answers import unresolved_in_words
from desktop.profile_store import AgentRecord
from desktop.questions import folder as folder_entry
from desktop.questions.folder import Folder
from desktop.terms import Terms, access_words, service_words, uses_words
from runtime_host.errors import AgentRuntimeError, AgentUnresolvedEffectError
from runtime_host.loop.held import Decided
from runtime_host.run import Run
from ui.wire import dto

if TYPE_CHECKING:
    from desktop.app import Host
    from desktop.channel import RendererChannel
    from desktop.window import Window

log = logging.getLogger("remuda.desk")

NEW_LINE = "Shift+Enter starts a new line"
ENTER_SENDS = f"Enter sends · {NEW_LINE}"
ENTER_WAITS = "A reply is coming · stop it to send something else"
ENTER_NOWHERE = "Choose a model first"
ENTER_NO_FOLDER = "Choose a folder first"

BUSY = ("admitting", "working", "stopping", "waiting", "elsewhere")
"""States in which something goes on, or waits for the person."""

FolderUse = Literal["never", "optional", "required", "fixed"]

PROBES_S = 60.0
"""How long a renderer may take over a self-test."""
PIECES_A_TURN = 16
"""Pieces of a draft that are cleaned before others get their turn."""


class WindowDesk:
    """The `Desk` of the window's channel."""

    def __init__(self, host: "Host") -> None:
        self._host = host
        self.window: Window | None = None
        self._new_choice: tuple[str, str] | None = None
        self._new_folder: Folder | Literal["none"] | None = None
        """Where the next new conversation works: as the person said, or None for as its agent says."""
        self._new_agent: str | None = None
        """The agent of the next new conversation, where it is not the current one."""
        self._last_selected: str | None = None
        self._testing = asyncio.Lock()
        self._test_request = 0
        host.conversations.on_change(self._conversation_changed)
        host.conversations.on_queue = self._queue_changed
        host.approvals.on_change = self._waiting_changed
        host.approvals.on_paused_decided = self._paused_decided
        host.connectors.on_change = self._connectors_changed
        host.agents.on_change = self._agents_changed
        host.harnesses.on_change = self._harnesses_changed
        host.managed.on_change = self._harnesses_changed
        self._tasks: set[asyncio.Task[None]] = set()
        self._chosen: Choice | None = None
        """What the selected binding goes to, as it was shown last."""
        self._uses: tuple[str, ...] = ()
        """The mounts that its agent uses."""
        self.setup = SetupDesk(host, self._channel_of)
        self.setup.proposals |= {"choose-folder": self._choose_folder, "clear-folder": self._clear_folder}
        self._commands: dict[type, Callable[[Any, str, ChannelAuthority], Awaitable[dto.Outcome]]] = {
            dto.Send: self._send,
            dto.EditQueued: self._edit_queued,
            dto.MoveQueued: self._move_queued,
            dto.SendQueued: self._send_queued,
            dto.RemoveQueued: self._remove_queued,
            dto.AskAgain: self._ask_again,
            dto.LookAgain: self._look_again,
            dto.Choose: self._choose,
            dto.Stop: self._stop,
            dto.Detach: self._detach,
            dto.Delete: self._delete,
            dto.SetTheme: self._set_theme,
            dto.SelfTest: self._self_test,
            **self.setup.commands,
        }

    async def aclose(self) -> None:
        """End what goes on beside the window's questions."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------ what changed

    def _conversation_changed(self, conversation_id: str) -> None:
        channel = self.window.channel if self.window else None
        if channel is not None:
            channel.conversation_changed(conversation_id)

    def _queue_changed(self, conversation_id: str) -> None:
        channel = self.window.channel if self.window else None
        if channel is not None:
            channel.queue_changed(conversation_id)

    def _waiting_changed(self, session_id: str) -> None:
        """A call of a session began or ceased to wait for the person."""
        task = asyncio.get_running_loop().create_task(self._tell_waiting(session_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _paused_decided(self, decided: Decided) -> None:
        """The card of a call that was told as paused shows what became of it."""
        task = asyncio.get_running_loop().create_task(self._tell_card(decided))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell_card(self, decided: Decided) -> None:
        name = await self._host.conversations.conversation_of(decided.session_id)
        channel = self.window.channel if self.window else None
        if name is None or channel is None or channel.authority.binding.conversation_id != name:
            return
        head = await self._host.conversations.paused_card(name, decided.operation_id)
        card = sanitize.card(head.kind, head.about) if head is not None else None
        if head is not None and card is not None:
            channel.tell(dto.ItemCard(conversation=name, item=sanitize.wire_id(head.item_id), card=card))

    async def _tell_waiting(self, session_id: str) -> None:
        name = await self._host.conversations.conversation_of(session_id)
        if name is not None:
            self._conversation_changed(name)

    def conversation_deleted(self, conversation_id: str) -> None:
        """Tell the window that a conversation is no more."""
        if self._last_selected == conversation_id:
            self._last_selected = None
        channel = self.window.channel if self.window else None
        if channel is not None:
            channel.conversation_gone(conversation_id)

    def _connectors_changed(self) -> None:
        channel = self.window.channel if self.window else None
        if channel is not None:
            for what in ("connectors", "choices", "selected"):
                channel.changed(what)
            channel.page_changed("agents")
            channel.page_changed("harnesses")

    def _agents_changed(self) -> None:
        channel = self.window.channel if self.window else None
        if channel is not None:
            channel.page_changed("agents")
            channel.changed("selected")

    def _harnesses_changed(self) -> None:
        channel = self.window.channel if self.window else None
        if channel is not None:
            for what in ("choices", "selected"):
                channel.changed(what)
            channel.page_changed("harnesses")

    # ---------------------------------------------------------------- greeting

    def hello(self) -> dto.HostHello:
        look = self._host.appearance.message()
        return dto.HostHello(
            version=dto.PROTOCOL_VERSION,
            build=BUILD,
            profile=sanitize.line(self._host.profile_name),
            theme=look.theme,
            dark=look.dark,
            high_contrast=look.high_contrast,
            reduced_motion=look.reduced_motion,
        )

    def appearance(self) -> dto.Appearance:
        return self._host.appearance.message()

    def first_selection(self) -> str | None:
        """After a restart of the renderer the conversation is still there."""
        return self._last_selected

    async def first_messages(self, locked: dto.Locked) -> list[dto.Message]:
        window = self.window
        assert window is not None
        assert window.launch_plan is not None
        await self._host.recover()
        report = doctor.isolation(window.launch_plan, locked.walls)
        messages: list[dto.Message] = [report, await self.conversations("", 0, 100)]
        messages.extend(self._host.notices)
        if report.level == "none":
            messages.append(dto.Notice(id="walls", level="warning", code="NO_WALLS", text=report.sentence, sticky=True))
        if window.restarted_because:
            messages.append(
                dto.Notice(
                    id="restarted",
                    level="warning",
                    code="WINDOW_RESTARTED",
                    text="The window was started again, because "
                    + sanitize.sentence(window.restarted_because)
                    + ". Nothing that was sent is lost, and work went on.",
                )
            )
            window.restarted_because = ""
        task = asyncio.get_running_loop().create_task(self._follow_system_look())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return messages

    async def _follow_system_look(self) -> None:
        if await self._host.appearance.ask_system():
            channel = self.window.channel if self.window else None
            if channel is not None:
                channel.changed("appearance")

    # ----------------------------------------------------------------- reading

    async def conversations(self, title_filter: str, first: int, count: int) -> dto.Conversations:
        total, rows = await self._host.conversations.rows(title_filter, first, count)
        return dto.Conversations(filter=title_filter, total=total, first=first, rows=tuple(_row(row) for row in rows))

    async def conversation(self, conversation_id: str) -> dto.ConversationRow | None:
        row = await self._host.conversations.row(conversation_id)
        return _row(row) if row else None

    async def selected(self, authority: ChannelAuthority) -> list[dto.Message]:
        revision, conversation_id = authority.binding
        conversations = self._host.conversations
        row = await conversations.row(conversation_id) if conversation_id else None
        if conversation_id is not None and row is None:
            revision, conversation_id = authority.select(None)
        fresh = conversation_id != self._last_selected
        self._last_selected = conversation_id
        if fresh and row is not None and row.state == "elsewhere":
            task = asyncio.get_running_loop().create_task(self._watch_again(row.record.conversation_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        ending, total = await self._standing(conversation_id) if conversation_id else (None, 0)
        choice, effort = conversations.choice_of(row.record) if row else await self._choice_for_new()
        agent = self._host.agents.get(row.record.agent_id) if row else self._agent_for_new()
        uses = agent.uses if agent is not None else ()
        if (choice, uses) != (self._chosen, self._uses):
            self._chosen, self._uses = choice, uses
            if (channel := self._channel_of(authority)) is not None:
                channel.changed("choices")
        folder = await self._folder(conversation_id, choice, agent, begun=total > 0)
        first, *rest = await _cleaned_pieces(await conversations.draft(conversation_id))
        selected = dto.Selected(
            revision=revision,
            conversation=conversation_id,
            title=sanitize.line(row.record.title) if row else "",
            sentence=sanitize.line(_header(choice, effort, row, folder, agent)),
            choice=choice.choice_id if choice else None,
            effort=effort,
            enter=ENTER_NO_FOLDER if folder.missing else _enter(ending, choice),
            total=total,
            draft=first,
            draft_pieces=len(rest),
            run=await self._run_view(conversation_id, ending),
            agent=agent_id(agent) if agent else None,
            agent_name=sanitize.line(agent.name) if agent else "",
            images=choice.images if choice else True,
            folder=sanitize.sentence(folder.path),
            access=sanitize.line(folder.access),
            folder_use=folder.use,
            busy_enter=self._busy_enter(ending, choice),
            waiting=await self._waiting(conversation_id, ending),
        )
        return [selected, *(dto.DraftPiece(revision=revision, text=piece) for piece in rest)]

    async def _folder(
        self, conversation_id: str | None, choice: Choice | None, agent: AgentRecord | None, *, begun: bool
    ) -> "_FolderView":
        """Where the selected binding works and what it may do there; whether that can still be chosen."""
        if conversation_id is None:
            terms = self._terms_for_new(choice, agent) if choice is not None and agent is not None else None
        else:
            terms = await self._terms_of(conversation_id)
        use: FolderUse = choice.folder if choice is not None else "never"
        path = terms.environment.path if terms is not None else None
        if begun and (path or use != "never"):
            use = "fixed"
        access = access_words(terms.policy) if terms is not None and path else ""
        service = choice.service if choice is not None else ""
        at = service_words(terms, service) if terms is not None and service else ""
        return _FolderView(path or "", access, use, use == "required" and not path, at)

    async def _terms_of(self, conversation_id: str) -> Terms | None:
        try:
            return await self._host.conversations.terms_of(conversation_id)
        except AgentRuntimeError:
            # Its file cannot be read, which is said at the run.
            return None

    def _terms_for_new(self, choice: Choice, agent: AgentRecord) -> Terms:
        """What the next new conversation may touch."""
        if choice.folder == "never" or self._new_folder is None:
            return agent_terms(agent, choice=choice)
        return Terms() if self._new_folder == "none" else self._new_folder.terms(choice.driver)

    async def _standing(self, conversation_id: str) -> tuple[Ending | None, int]:
        """How the newest run stands and how many items there are; why that cannot be read, where it cannot."""
        conversations = self._host.conversations
        try:
            return await conversations.ending(conversation_id), (await conversations.items(conversation_id, 0, 1, 1))[0]
        except AgentRuntimeError as fault:
            return Ending(conversation_id, "failed", fault.message, fault.error_code), 0

    async def run_changed(self, authority: ChannelAuthority) -> dto.RunChanged | None:
        revision, conversation_id = authority.binding
        if conversation_id is None:
            return None
        conversations = self._host.conversations
        row = await conversations.row(conversation_id)
        if row is None:
            return None
        ending = await conversations.ending(conversation_id)
        choice, _ = conversations.choice_of(row.record)
        return dto.RunChanged(
            revision=revision,
            conversation=conversation_id,
            enter=_enter(ending, choice),
            run=await self._run_view(conversation_id, ending),
            busy_enter=self._busy_enter(ending, choice),
            waiting=await self._waiting(conversation_id, ending),
        )

    @staticmethod
    def _busy_enter(ending: Ending | None, choice: Choice | None) -> Literal["", "steer", "queue"]:
        """What Enter does while something goes on or waits."""
        if ending is None or choice is None or ending.state not in BUSY:
            return ""
        return "steer" if choice.driver == NATIVE else "queue"

    async def _waiting(self, conversation_id: str | None, ending: Ending | None) -> int:
        """How many calls wait for the person; the agent's file is looked into only where one is known to."""
        if conversation_id is None or ending is None:
            return 0
        reference = await self._host.conversations.reference(conversation_id)
        if not self._host.approvals.known(reference.session_id) and ending.state != "waiting":
            return 0
        return len(await self._host.approvals.waiting(reference.agent_id, reference.session_id))

    async def queued(self, conversation_id: str) -> dto.Queued:
        queue = await self._host.conversations.queued(conversation_id)
        rows = [
            dto.QueuedRow(
                id=sanitize.wire_id(each.inbox_id),
                kind=each.kind,
                text=sanitize.text(each.text[: dto.TEXT_PIECE_CHARS]),
                size_chars=len(each.text),
            )
            for each in queue.messages[:64]
        ]
        return dto.Queued(conversation=conversation_id, rows=fitting(rows), held=queue.held)

    async def _run_view(self, conversation_id: str | None, ending: Ending | None) -> dto.RunView | None:
        """How the newest run stands; where something is not resolved besides, also what can be done about it."""
        if conversation_id is None or ending is None:
            return _run_view(ending)
        if ending.state != "unknown" and ending.code != AgentUnresolvedEffectError.code:
            return _run_view(ending)
        state = await self._host.conversations.standing(conversation_id)
        # Asking again would be refused as long as it may be at work; after a start anew it is the way on.
        blocked = ending.state == "unknown" and state.quarantined and not ending.service
        said = (ending.sentence, STILL_AT_WORK if blocked else "", unresolved_in_words(state))
        return _run_view(ending._replace(sentence=" ".join(filter(None, said))), blocked=blocked)

    async def items(self, conversation_id: str, first: int, count: int, snapshot: bool) -> dto.Items:
        total, heads = await self._host.conversations.items(conversation_id, first, count, dto.TEXT_PIECE_CHARS)
        return dto.Items(
            conversation=conversation_id,
            total=total,
            first=min(first, total),
            items=tuple(sanitize.item(head) for head in heads),
            snapshot=snapshot,
        )

    async def item_text(self, conversation_id: str, item_id: str, at: int) -> dto.ItemText | None:
        found = await self._host.conversations.item_text(conversation_id, item_id, at, dto.TEXT_PIECE_CHARS)
        if found is None:
            return None
        text, last, kind = found
        shown = sanitize.text_of(kind, text)
        return dto.ItemText(conversation=conversation_id, item=item_id, at=at, text=shown, last=last)

    async def keep_draft(self, conversation_id: str | None, text: str) -> None:
        await self._host.conversations.keep_draft(conversation_id, text)

    def choices(self, text: str, connector: str | None, authority: ChannelAuthority) -> dto.Choices:
        return self.setup.choices(self._host.choices(), text, connector, self._chosen, self._uses)

    async def connectors(self, authority: ChannelAuthority) -> dto.Connectors:
        return await self.setup.connectors(authority)

    async def page(self, page: dto.Page, authority: ChannelAuthority) -> list[dto.Message]:
        return await self.setup.page(page, authority)

    def _channel_of(self, authority: ChannelAuthority) -> "RendererChannel | None":
        """The channel of this authority while it is the window's."""
        channel = self.window.channel if self.window else None
        return channel if channel is not None and channel.authority is authority else None

    def live_run(self, conversation_id: str) -> Run | None:
        return self._host.conversations.live_run(conversation_id)

    def choose_new(self, agent: str | None) -> bool:
        """A new conversation starts with the default choice again, and with this agent; False when that is gone."""
        record = None if agent is None else self.setup.agent(agent)
        if agent is not None and record is None:
            return False
        self._new_choice = None
        self._new_folder = None
        self._new_agent = record.agent_id if record is not None else None
        return True

    def _agent_for_new(self) -> AgentRecord:
        agents = self._host.agents
        chosen = agents.get(self._new_agent) if self._new_agent is not None else None
        return chosen or agents.current

    async def _choice_for_new(self) -> tuple[Choice | None, str]:
        """What the next new conversation goes to; nothing yet on the first-run page."""
        book = self._host.choices()
        if not self._host.settings.welcomed:
            known = any(True for _ in self._host.connectors)
            if not known and (await self._host.conversations.rows("", 0, 1))[0] == 0:
                return None, ""
            await self._host.settings.set_welcomed()
        if self._new_choice is not None:
            chosen = book.get(self._new_choice[0])
            if chosen is not None:
                return chosen, self._new_choice[1]
        agent = self._agent_for_new()
        # One whose model is gone goes to no other of itself: the person chooses.
        choice = book.default() if agent.choice is None else book.find(agent.choice)
        return choice, agent.effort if choice is not None and agent.effort in choice.efforts else ""

    # ---------------------------------------------------------------- commands

    async def carry_out(self, command: dto.Message, text: str, authority: ChannelAuthority) -> dto.Outcome:
        """Carry out a command whose ids and revision were checked.

        Raises:
            AgentRuntimeError: it was refused, with the sentence for the person.
        """
        do = self._commands.get(type(command))
        if do is None:
            raise AgentRuntimeError("Remuda does not know this command.", code="COMMAND_UNKNOWN")
        return await do(command, text, authority)

    async def _stop(self, command: dto.Stop, text: str, authority: ChannelAuthority) -> dto.Outcome:
        await self._host.conversations.stop(_conversation(authority))
        return _done(command.request)

    async def _detach(self, command: dto.Detach, text: str, authority: ChannelAuthority) -> dto.Outcome:
        await self._host.conversations.detach(_conversation(authority))
        authority.select(None)
        return _done(command.request)

    async def _look_again(self, command: dto.LookAgain, text: str, authority: ChannelAuthority) -> dto.Outcome:
        await self._host.conversations.resume(_conversation(authority))
        return _done(command.request)

    async def _watch_again(self, conversation_id: str) -> None:
        """A conversation that was let run on is open again: what goes on in it is watched."""
        try:
            await self._host.conversations.resume(conversation_id)
        except AgentRuntimeError as fault:
            # It stands as running elsewhere, and can be looked at again.
            self._host.tell("look-again", "warning", fault.error_code, fault.message)

    async def _set_theme(self, command: dto.SetTheme, text: str, authority: ChannelAuthority) -> dto.Outcome:
        await self._host.settings.set_theme(command.theme)
        await self._follow_system_look()
        if self.window is not None and self.window.channel is not None:
            self.window.channel.changed("appearance")
        return _done(command.request)

    async def _self_test(self, command: dto.SelfTest, text: str, authority: ChannelAuthority) -> dto.Outcome:
        await self.self_test()
        return _done(command.request)

    async def _current_choice(self, conversation_id: str | None) -> tuple[Choice, str]:
        choice: Choice | None
        row = None
        if conversation_id is None:
            choice, effort = await self._choice_for_new()
        else:
            row = await self._host.conversations.row(conversation_id)
            choice, effort = self._host.conversations.choice_of(row.record) if row else (None, "")
        if choice is None:
            raise AgentRuntimeError(
                missing(row.record.choice if row else self._agent_for_new().choice), code="CHOICE_GONE"
            )
        return choice, effort

    async def _send(self, command: dto.Send, text: str, authority: ChannelAuthority) -> dto.Outcome:
        conversation_id = authority.binding.conversation_id
        choice, effort = await self._current_choice(conversation_id)
        if conversation_id is not None and (command.when == "queue" or await self._is_busy(conversation_id)):
            waits = await self._host.conversations.say_meanwhile(
                conversation_id,
                text,
                request_id=command.request_id,
                choice=choice,
                effort=effort,
                queue=command.when == "queue",
                composed=True,
                anyway=command.anyway,
            )
            if waits is not None:
                return dto.Outcome(request=command.request, status="done", id=sanitize.wire_id(waits))
        agent = self._agent_for_new() if conversation_id is None else None
        terms = self._terms_for_new(choice, agent) if agent is not None and choice.folder != "never" else None
        if terms is not None and choice.folder == "required" and terms.environment.path is None:
            raise AgentRuntimeError(f"{choice.harness_name} works in a folder. Choose one first.", code="FOLDER_NEEDED")
        name, run = await self._host.conversations.send(
            conversation_id,
            text,
            request_id=command.request_id,
            choice=choice,
            effort=effort,
            terms=terms,
            agent=agent.agent_id if agent is not None else None,
            composed=True,
            anyway=command.anyway,
        )
        if name != conversation_id:
            authority.select(name)
        return dto.Outcome(request=command.request, status="done", id=sanitize.wire_id(run.run_id))

    async def _is_busy(self, conversation_id: str) -> bool:
        return await self._host.conversations.is_busy(conversation_id)

    async def _queued_id(self, conversation_id: str, wire_name: str | None) -> str | None:
        """What waits to be said under an id of the wire; None when it was said or removed by now."""
        queue = await self._host.conversations.queued(conversation_id)
        return next((each.inbox_id for each in queue.messages if sanitize.wire_id(each.inbox_id) == wire_name), None)

    async def _edit_queued(self, command: dto.EditQueued, text: str, authority: ChannelAuthority) -> dto.Outcome:
        name = _conversation(authority)
        queued = await self._queued_id(name, command.queued)
        if queued is None:
            return _said_by_now(command.request)
        conversations = self._host.conversations
        if not text.strip():
            done = await conversations.change_queue(name, lambda session: session.remove_queued(queued))
        else:
            check_secret(text)
            done = await conversations.change_queue(name, lambda session: session.edit_queued(queued, text))
        return _done(command.request) if done else _said_by_now(command.request)

    async def _move_queued(self, command: dto.MoveQueued, text: str, authority: ChannelAuthority) -> dto.Outcome:
        name = _conversation(authority)
        queued = await self._queued_id(name, command.queued)
        before = None if command.before is None else await self._queued_id(name, command.before)
        if queued is None or (before is None and command.before is not None):
            return _said_by_now(command.request)
        done = await self._host.conversations.change_queue(name, lambda session: session.move_queued(queued, before))
        return _done(command.request) if done else _said_by_now(command.request)

    async def _send_queued(self, command: dto.SendQueued, text: str, authority: ChannelAuthority) -> dto.Outcome:
        name = _conversation(authority)
        queued = await self._queued_id(name, command.queued)
        done = queued is not None and await self._host.conversations.send_queued(name, queued)
        return _done(command.request) if done else _said_by_now(command.request)

    async def _remove_queued(self, command: dto.RemoveQueued, text: str, authority: ChannelAuthority) -> dto.Outcome:
        name = _conversation(authority)
        queued = await self._queued_id(name, command.queued)
        done = queued is not None and await self._host.conversations.change_queue(
            name, lambda session: session.remove_queued(queued)
        )
        return _done(command.request) if done else _said_by_now(command.request)

    async def _ask_again(self, command: dto.AskAgain, text: str, authority: ChannelAuthority) -> dto.Outcome:
        name = _conversation(authority)
        choice, effort = await self._current_choice(name)
        _, run = await self._host.conversations.ask_again(
            name, request_id=command.request_id, choice=choice, effort=effort
        )
        return dto.Outcome(request=command.request, status="done", id=sanitize.wire_id(run.run_id))

    async def _choose(self, command: dto.Choose, text: str, authority: ChannelAuthority) -> dto.Outcome:
        choice = self._host.choices().get(command.choice)
        if choice is None:
            return dto.Outcome(
                request=command.request, status="stale", code="STALE", text="This choice is not offered any more."
            )
        if not choice.available:
            raise AgentRuntimeError(choice.unavailable_because, code="CHOICE_UNAVAILABLE")
        if command.effort and command.effort not in choice.efforts:
            raise AgentRuntimeError("This model does not offer that effort.", code="EFFORT_UNKNOWN")
        conversation_id = authority.binding.conversation_id
        if conversation_id is None:
            self._new_choice = (choice.choice_id, command.effort)
            await self._host.settings.set_welcomed()
        else:
            await self._host.conversations.rebind(conversation_id, choice, command.effort)
        authority.moved()
        return dto.Outcome(request=command.request, status="done")

    # ------------------------------------------------------------------ the folder

    async def _choose_folder(self, command: dto.Propose, authority: ChannelAuthority) -> bool | None:
        """Ask for the folder of the conversation that is the target, or of the next new one."""
        name = command.target
        choice, before = await self._folder_now(name)
        if choice is None or choice.folder == "never":
            raise AgentRuntimeError("What is chosen works in no folder.", code="FOLDER_NOT_USED")
        chosen = await folder_entry.choose(self._host, choice, before)
        return False if chosen is None else await self._use_folder(name, chosen, authority)

    async def _clear_folder(self, command: dto.Propose, authority: ChannelAuthority) -> bool | None:
        """Work in no folder: nothing is asked, less is touched."""
        return await self._use_folder(command.target, None, authority)

    async def _folder_now(self, name: str | None) -> tuple[Choice | None, Folder | None]:
        if name is None:
            choice, _ = await self._choice_for_new()
            terms = self._terms_for_new(choice, self._agent_for_new()) if choice is not None else None
        else:
            row = await self._host.conversations.row(name)
            if row is None:
                raise AgentRuntimeError("This conversation is not there any more.", code="CONVERSATION_GONE")
            if (await self._host.conversations.items(name, 0, 1, 1))[0]:
                raise AgentRuntimeError(
                    "A conversation keeps the folder it began with. Begin a new one to work in another.",
                    code="SESSION_BOUND",
                )
            choice, _ = self._host.conversations.choice_of(row.record)
            terms = await self._host.conversations.terms_of(name)
        path = terms.environment.path if terms is not None else None
        if terms is None or path is None:
            return choice, None
        return choice, Folder(path, "work" if terms.policy.filesystem == "workspace-write" else "read")

    async def _use_folder(self, name: str | None, folder: Folder | None, authority: ChannelAuthority) -> bool:
        choice, _ = await self._folder_now(name)
        if choice is None:
            raise AgentRuntimeError("Choose a model first.", code="CHOICE_GONE")
        if name is None:
            self._new_folder = folder or "none"
        else:
            await self._host.conversations.change_terms(name, folder.terms(choice.driver) if folder else Terms())
        if authority.binding.conversation_id == name:
            authority.moved()
            if (channel := self._channel_of(authority)) is not None:
                channel.changed("selected")
        return True

    async def _delete(self, command: dto.Delete, text: str, authority: ChannelAuthority) -> dto.Outcome:
        name = _conversation(authority)
        row = await self._host.conversations.row(name)
        if row is None:
            return dto.Outcome(request=command.request, status="stale", code="STALE", text="It is gone already.")
        running = self._host.conversations.live_run(name) is not None or row.state == "elsewhere"
        confirmed = await (await self._host.trusted()).confirm(
            DeleteConfirmation(title=row.record.title, running=running, goes=what_goes(row))
        )
        if not confirmed:
            return not_done(command.request)
        await self._host.conversations.delete(name)
        self.conversation_deleted(name)
        return dto.Outcome(request=command.request, status="done")

    # --------------------------------------------------------------- self-test

    async def self_test(self) -> dto.Isolation:
        """Have the renderer attack decoys and show what each attack met."""
        window = self.window
        if window is None or window.channel is None or window.locked is None:
            raise AgentRuntimeError("There is no window to test.", code="NO_WINDOW")
        assert window.launch_plan is not None
        async with self._testing:
            self._test_request += 1
            # In a thread: an X server that hangs may hold the window among the decoys for seconds.
            putting_up = decoys(self._host.paths.root, reader=drawing_uid())
            standing = await asyncio.to_thread(putting_up.__enter__)
            try:
                channel = window.channel
                if channel is None or channel.closed.is_set():
                    raise AgentRuntimeError("There is no window to test.", code="NO_WINDOW")
                async with asyncio.timeout(PROBES_S):
                    probes = await channel.run_probes(standing.targets(self._test_request))
                touched = standing.touched
            except TimeoutError:
                raise AgentRuntimeError(
                    f"The window did not answer the self-test within {PROBES_S:g} seconds.", code="PROBES_SILENT"
                ) from None
            finally:
                await asyncio.to_thread(putting_up.__exit__, None, None, None)
        name, state, detail = seal_host()
        locked = window.locked
        if locked is None:
            raise AgentRuntimeError("There is no window to test.", code="NO_WINDOW")
        report = doctor.isolation(
            window.launch_plan,
            locked.walls,
            probes,
            touched=touched,
            host_memory=dto.Wall(name=name, state=state, detail=detail),
        )
        channel.tell(report)
        return report


async def _cleaned_pieces(text: str) -> list[str]:
    """A draft as it is sent. It may be megabytes of what has to be replaced: not in one go."""
    cleaned: list[str] = []
    for piece in sanitize.pieces(text):
        cleaned.append(sanitize.text(piece))
        if len(cleaned) % PIECES_A_TURN == 0:
            await asyncio.sleep(0)
    return cleaned


def _done(request: int) -> dto.Outcome:
    return dto.Outcome(request=request, status="done")


def _said_by_now(request: int) -> dto.Outcome:
    return dto.Outcome(
        request=request, status="stale", code="STALE", text="This was said or removed while you were deciding."
    )


def _conversation(authority: ChannelAuthority) -> str:
    name = authority.binding.conversation_id
    if name is None:
        raise AgentRuntimeError("No conversation is selected.", code="NOTHING_SELECTED")
    return name


def _row(row: Row) -> dto.ConversationRow:
    record = row.record
    return dto.ConversationRow(
        id=record.conversation_id,
        title=sanitize.line(record.title),
        subtitle=sanitize.line(row.subtitle),
        updated_ms=max(0, record.updated_ms),
        state=row.state,
        pinned=record.pinned,
    )


def _run_view(ending: Ending | None, *, blocked: bool = False) -> dto.RunView | None:
    if ending is None:
        return None
    # What became of it is asked for before anything is said anew.
    look = bool(ending.service) and ending.state in ("unknown", "elsewhere")
    return dto.RunView(
        id=sanitize.wire_id(ending.run_id),
        state=ending.state,
        sentence=sanitize.sentence(ending.sentence or _where(ending)),
        code=sanitize.code(ending.code),
        started_ms=max(0, ending.started_ms),
        can_ask_again=not blocked and not look and ending.state in ("failed", "unknown", "stopped", "incomplete"),
        goes_on_at=sanitize.line(ending.service) if ending.state in BUSY else "",
        can_look_again=look,
    )


def _where(ending: Ending) -> str:
    """Of what goes on at a service: what that means for it."""
    if ending.service and ending.state == "working":
        return f"At {ending.service}, and goes on there while Remuda is closed."
    return ""


class _FolderView(NamedTuple):
    """Where a binding works, in words; `missing`: it has to, and none is chosen; `at`: of a service, where there."""

    path: str
    access: str
    use: FolderUse
    missing: bool
    at: str = ""


def _header(choice: Choice | None, effort: str, row: Row | None, folder: _FolderView, agent: AgentRecord | None) -> str:
    if choice is not None:
        access = "no folder chosen yet" if folder.missing else folder.at or folder.access
        uses = uses_words(agent.uses) if agent is not None else ""
        return choice.sentence(effort, " · ".join(filter(None, (access, uses))) or "touches nothing")
    return gone(row.record.choice) if row is not None and row.record.choice else "Choose a model"


def _enter(ending: Ending | None, choice: Choice | None) -> str:
    if choice is None:
        return ENTER_NOWHERE
    if ending is not None and ending.state in BUSY:
        return ENTER_WAITS
    if choice.service:
        return f"Enter sends it to {choice.service}, where it goes on while Remuda is closed · {NEW_LINE}"
    return ENTER_SENDS
