"""The host's end of the wire to one renderer.

Owns the socket, the frames and a cursor into the journal of the run on screen. Must not
know how a renderer is started or what a conversation is made of: it asks `Desk` and sends
what `sanitize` lets out. Invariants:

- nothing but the hello leaves before the renderer reports locked;
- there is no outbox: what is to be sent is answers to the renderer's own questions (the next one is not
  looked at while too many answers wait), names of what changed (a set), and what the journal keeps;
- it is not read while too many of its questions wait, but for the acknowledgement of a frame in flight;
- one frame is in flight; the next is built when it was acknowledged, at once when the channel was
  idle, else `FRAME_INTERVAL_S` after the last; there is no timer while there is nothing to send;
- the first breach ends the channel.
"""

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, Protocol

import msgspec

from desktop import sanitize
from desktop.authority import ChannelAuthority
from runtime_host.errors import AgentRuntimeError
from runtime_host.run import Run
from ui.wire import dto
from ui.wire.framing import HOST_FRAME_BYTES, MAX_MESSAGES, Breach, host_decoder, host_encoder

log = logging.getLogger("remuda.channel")

FRAME_INTERVAL_S = 0.016
FRAME_BUDGET_BYTES = HOST_FRAME_BYTES - 1024
READ_BYTES = 64 * 1024
WAITING_COMMANDS = 64
"""Commands read but not carried out; more and the renderer is not read until they are."""
MOST_COMMANDS = 1024
"""Commands that may arrive ahead of the acknowledgement of a frame; more is a breach."""
WAITING_QUESTIONS = 4
"""Commands whose question in the trusted dialog is not answered; more are refused."""
MOST_NOES = 6
NOES_S = 30.0
"""After this many noes within this time nothing more is asked for a while: no window wears the person down."""
WAITING_ANSWERS = 64
"""Answers not sent yet; more and the next command waits. One answer may itself be many."""
MOST_PIECES = 2048
"""Pieces ahead of one text; the wire has no higher number for them."""
JOURNAL_EVENTS = 256
"""Events taken from a journal for one frame."""
NEWEST_ITEMS = 4
"""Newest items sent when a run begins or ends: the message, reasoning, the reply, a notice."""
MOST_NEWEST_ITEMS = 64
"""When the run has more of its own, what its harness does among them, up to so many."""
SNAPSHOT_ITEMS = 50
"""Newest items sent after a gap."""

GAP_SENTENCE = (
    "The window could not keep up, so some of what happened live was left out. "
    "The text below is whole up to now, and nothing of the work was lost."
)


NOT_DONE = "NOT_DONE"
"""The code of an outcome that the person chose themselves, in the trusted dialog: nothing is to be said about it."""
PAGE_FAILED = "Remuda failed at this page, and noted why in its log. Open it again, or start Remuda again."


class Desk(Protocol):
    """What a channel may ask the host. Every method acts for the person in front of the window."""

    def hello(self) -> dto.HostHello: ...
    def appearance(self) -> dto.Appearance: ...
    def first_selection(self) -> str | None: ...
    async def first_messages(self, locked: dto.Locked) -> list[dto.Message]: ...
    async def conversations(self, title_filter: str, first: int, count: int) -> dto.Conversations: ...
    async def conversation(self, conversation_id: str) -> dto.ConversationRow | None: ...
    async def selected(self, authority: ChannelAuthority) -> list[dto.Message]: ...
    async def run_changed(self, authority: ChannelAuthority) -> dto.RunChanged | None: ...
    async def items(self, conversation_id: str, first: int, count: int, snapshot: bool) -> dto.Items: ...
    async def queued(self, conversation_id: str) -> dto.Queued: ...
    async def item_text(self, conversation_id: str, item_id: str, at: int) -> dto.ItemText | None: ...
    async def keep_draft(self, conversation_id: str | None, text: str) -> None: ...
    async def carry_out(self, command: dto.Message, text: str, authority: ChannelAuthority) -> dto.Outcome: ...
    def choices(self, text: str, connector: str | None, authority: ChannelAuthority) -> dto.Choices: ...
    async def connectors(self, authority: ChannelAuthority) -> dto.Connectors: ...
    async def page(self, page: dto.Page, authority: ChannelAuthority) -> list[dto.Message]: ...
    def live_run(self, conversation_id: str) -> Run | None: ...
    def choose_new(self, agent: str | None) -> bool: ...


class RendererChannel:
    """One renderer's channel, from its start until `closed` is set."""

    def __init__(
        self,
        connection: socket.socket,
        desk: Desk,
        *,
        build: str,
        on_locked: Callable[[dto.Locked], None] = lambda locked: None,
        on_window_closed: Callable[[], None] = lambda: None,
    ) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._desk = desk
        self._build = build
        self._on_locked = on_locked
        self._on_window_closed = on_window_closed
        self._loop = asyncio.get_running_loop()
        self._decoder = host_decoder()
        self._encoder = host_encoder()
        self.authority = ChannelAuthority()
        self.breach: Breach | None = None
        self.closed = asyncio.Event()
        self.settled = asyncio.Event()
        """Set once the renderer has locked itself, or the channel is closed."""
        self.locked: asyncio.Future[dto.Locked] = self._loop.create_future()
        self.filled = False
        """Whether the renderer shows a conversation and takes what is typed."""
        self.active = False
        """Whether the window takes the keys, as it last said; it may be wrong about that, and about nothing else."""
        self._filled_by = 0
        self._greeted = False
        self._commands: deque[dto.RendererMessage] = deque()
        self._command_arrived = asyncio.Event()
        self._room_made = asyncio.Event()
        self._reading = False
        self._spool: list[str] = []
        self._spool_bytes = 0
        # What is to be sent.
        self._answers: deque[dto.Message] = deque()
        self._changed: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._dirty: set[str] = set()
        self._progress: dict[str, dto.Progress] = {}
        self._search: tuple[str, str | None] = ("", None)
        self._pages: dict[dto.Page, Literal["shown", "making", "again"]] = {}
        """The pages that were opened, and whether one is being made, or is out of date while it is."""
        self._questions = 0
        self._noes: deque[float] = deque(maxlen=MOST_NOES)
        self._run: Run | None = None
        self._cursor = 0
        self._retrying = False
        self._leave_journal: Callable[[], None] = lambda: None
        # What is being sent.
        self._in_flight = 0
        self._unsent = memoryview(b"")
        self._sent_at = 0.0
        self._wake_timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._long: set[asyncio.Task[None]] = set()
        self._probe_answers: dict[int, asyncio.Future[tuple[dto.Probe, ...]]] = {}
        self._answers_to: dict[type, Callable[[Any], Awaitable[None]]] = {
            dto.Locked: self._first_messages,
            dto.WantConversations: self._want_conversations,
            dto.WantItems: self._want_items,
            dto.WantText: self._want_text,
            dto.WantChoices: self._want_choices,
            dto.WantPage: self._want_page,
            dto.Piece: self._piece,
            dto.Draft: self._draft,
        }

    # -------------------------------------------------------------------- life

    def start(self) -> None:
        """Send the hello and begin to read."""
        self._answers.append(self._desk.hello())
        self._resume_reading()
        for work in (self._carry_out_commands(), self._send_frames()):
            task = self._loop.create_task(work)
            task.add_done_callback(self._task_ended)
            self._tasks.append(task)
        self._wake.set()

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            if isinstance(fault, Breach):
                self._end(fault)
            else:
                log.error("a channel task failed", exc_info=fault)
                self._end(None)

    def _long_ended(self, task: "asyncio.Task[None]") -> None:
        self._long.discard(task)
        self._task_ended(task)
        self._room_made.set()
        self._read_on_or_pause()

    def _end(self, breach: Breach | None) -> None:
        if self.closed.is_set():
            return
        self.breach = breach
        if breach is not None:
            log.warning("renderer breach: %s", breach)
        self._pause_reading()
        with contextlib.suppress(OSError, ValueError):
            self._loop.remove_writer(self._connection)
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self._leave_journal()
        for task in (*self._tasks, *self._long):
            if task is not asyncio.current_task():
                task.cancel()
        for answer in self._probe_answers.values():
            answer.cancel()
        if not self.locked.done():
            self.locked.cancel()
        self._connection.close()
        self.settled.set()
        self.closed.set()

    async def aclose(self) -> None:
        """End the channel; the other side sees its end."""
        self._end(None)
        # The task in which the end was noticed was not cancelled then: it was the one running.
        for task in (*self._tasks, *self._long):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._long, return_exceptions=True)

    # ----------------------------------------------------------------- reading

    def _resume_reading(self) -> None:
        if not self._reading and not self.closed.is_set():
            self._loop.add_reader(self._connection, self._readable)
            self._reading = True

    def _pause_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._connection)
            self._reading = False

    def _readable(self) -> None:
        try:
            data = self._connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(None)
            return
        try:
            for frame in self._decoder.feed(data):
                for message in frame.messages:
                    self._received(message)
        except Breach as breach:
            self._end(breach)
            return
        self._read_on_or_pause()

    def _read_on_or_pause(self) -> None:
        # The acknowledgement of a frame in flight must be able to come: without it nothing would move any more.
        if self._in_flight or len(self._commands) + len(self._long) <= WAITING_COMMANDS:
            self._resume_reading()
        else:
            self._pause_reading()

    def _received(self, message: dto.RendererMessage) -> None:
        if isinstance(message, dto.Ack):
            if message.frame != self._in_flight or self._in_flight == 0:
                raise Breach("ACK_OUT_OF_ORDER", str(message.frame))
            self._in_flight = 0
            self.filled = self.filled or 0 < self._filled_by <= message.frame
            self._wake.set()
            return
        if isinstance(message, dto.RendererHello):
            if self._greeted or message.version != dto.PROTOCOL_VERSION or message.build != self._build:
                raise Breach("HELLO_REFUSED", f"version {message.version}, build {message.build}")
            self._greeted = True
            return
        if not self._greeted:
            raise Breach("NO_HELLO", type(message).__name__)
        if isinstance(message, dto.Locked):
            if self.locked.done():
                raise Breach("LOCKED_TWICE")
            self.locked.set_result(message)
            self.settled.set()
            self._on_locked(message)
        elif not self.locked.done():
            raise Breach("NOT_LOCKED", type(message).__name__)
        elif self._taken_at_once(message):
            return
        if self._in_flight and len(self._commands) >= MOST_COMMANDS:
            raise Breach("FLOOD", f"{len(self._commands)} commands, frame {self._in_flight} not acknowledged")
        self._commands.append(message)
        self._command_arrived.set()

    def _taken_at_once(self, message: dto.RendererMessage) -> bool:
        """Take what does not stand in the row of commands; whether it was such a message."""
        if isinstance(message, dto.WindowClosed):
            self._on_window_closed()
        elif isinstance(message, dto.WindowActive):
            self.active = message.active
        elif isinstance(message, dto.ProbeResults):
            # The test that waits for it may stand in that row.
            self._probe_results(message)
        else:
            return False
        return True

    # ------------------------------------------------------------- carrying out

    async def _carry_out_commands(self) -> None:
        while not self.closed.is_set():
            await self._command_arrived.wait()
            self._command_arrived.clear()
            while self._commands and not self.closed.is_set():
                await self._room()
                await self._carry_out(self._commands.popleft())
                self._read_on_or_pause()

    async def _room(self) -> None:
        """Wait until the renderer has taken most of what it asked for, so that no question costs memory twice."""
        while len(self._answers) > WAITING_ANSWERS or len(self._long) >= WAITING_COMMANDS:
            self._room_made.clear()
            await self._room_made.wait()

    async def _carry_out(self, message: dto.RendererMessage) -> None:
        answer = self._answers_to.get(type(message))
        try:
            if answer is not None:
                await answer(message)
            else:
                await self._command(message)
        except AgentRuntimeError as fault:
            self._tell_fault(fault)

    def _tell_fault(self, fault: AgentRuntimeError) -> None:
        """What could not be read is said; the window stays, and the rest works."""
        log.warning("a question of the window was not answered: %s", fault.error_code)
        self._answer(
            dto.Notice(
                id="fault",
                level="error",
                code=sanitize.code(fault.error_code),
                text=sanitize.sentence(fault.message),
            )
        )

    async def _first_messages(self, message: dto.Locked) -> None:
        for first in await self._desk.first_messages(message):
            self._answer(first)
        self._dirty.update(("choices", "connectors"))
        await self._select(self._desk.first_selection())

    async def _want_conversations(self, message: dto.WantConversations) -> None:
        self._answer(await self._desk.conversations(message.filter, message.first, message.count))

    async def _want_items(self, message: dto.WantItems) -> None:
        if self._on_this_screen(message.conversation):
            await self._answer_items(message.conversation, message.first, message.count, snapshot=False)

    async def _want_text(self, message: dto.WantText) -> None:
        if self._on_this_screen(message.conversation):
            self.authority.check_item(message.item)
            answer = await self._desk.item_text(message.conversation, message.item, message.at)
            if answer is not None:
                self._answer(answer)

    async def _want_choices(self, message: dto.WantChoices) -> None:
        if message.connector is not None:
            self.authority.check_id(message.connector)
        # Only the newest search is answered, and not before the frame it goes into: a flood of them costs one.
        self._search = (message.filter, message.connector)
        self._dirty.add("choices")
        self._wake.set()

    async def _want_page(self, message: dto.WantPage) -> None:
        if message.about is not None:
            self.authority.check_id(message.about)
        if message.page == "mounts":
            self.authority.looks_at = message.about
        self._make_page(message.page)

    def _make_page(self, page: dto.Page) -> None:
        """Have a page made beside everything else (a key store takes its time); what is asked meanwhile is one."""
        if self._pages.get(page) in ("making", "again"):
            self._pages[page] = "again"
            return
        self._pages[page] = "making"
        task = self._loop.create_task(self._answer_page(page))
        task.add_done_callback(self._long_ended)
        self._long.add(task)

    async def _answer_page(self, page: dto.Page) -> None:
        try:
            for message in await self._desk.page(page, self.authority):
                self._answer(message)
        except AgentRuntimeError as fault:
            self._tell_fault(fault)
        except Exception:
            log.exception("the page %s failed", page)
            self._tell_fault(AgentRuntimeError(PAGE_FAILED, code="INTERNAL"))
        again = self._pages[page] == "again"
        self._pages[page] = "shown"
        if again:
            self._make_page(page)

    async def _piece(self, message: dto.Piece) -> None:
        self._spool_bytes += len(message.text.encode("utf-8"))
        if self._spool_bytes > dto.SPOOL_BYTES or len(self._spool) >= MOST_PIECES:
            raise Breach("SPOOL_OVERFLOW")
        self._spool.append(message.text)

    async def _draft(self, message: dto.Draft) -> None:
        text = self._take_spool(message.text, message.pieces)
        name = message.conversation
        if name is None or self.authority.check_id(name) == "ok":
            await self._desk.keep_draft(name, text)

    def _probe_results(self, message: dto.ProbeResults) -> None:
        waiting = self._probe_answers.pop(message.request, None)
        if waiting is None:
            raise Breach("PROBES_NOT_ASKED")
        if not waiting.done():
            waiting.set_result(message.probes)

    def _on_this_screen(self, conversation_id: str) -> bool:
        """Whether a question about a conversation is still to be answered: another may be selected by now."""
        return (
            self.authority.check_id(conversation_id) == "ok"
            and conversation_id == self.authority.binding.conversation_id
        )

    async def _command(self, command: dto.RendererMessage) -> None:
        request: int = command.request  # type: ignore[union-attr]
        text = ""
        if isinstance(command, dto.Send | dto.EditQueued):
            text = self._take_spool(command.text, command.pieces)
        if any(self.authority.check_id(name) == "stale" for name in _ids(command)):
            self._answer(_stale(request))
            return
        revision = getattr(command, "revision", None)
        if revision is not None and self.authority.check_revision(revision) == "stale":
            self._answer(_stale(request))
            return
        if isinstance(command, dto.Select):
            await self._select(command.conversation)
            self._answer(dto.Outcome(request=request, status="done", id=command.conversation))
            return
        if isinstance(command, dto.NewConversation):
            if not self._desk.choose_new(command.agent):
                self._answer(_stale(request))
                return
            await self._select(None)
            self._answer(dto.Outcome(request=request, status="done"))
            return
        if isinstance(command, ASKING_COMMANDS):
            if self._questions >= WAITING_QUESTIONS or self._is_worn():
                self._answer(_too_many(request))
                return
            self._questions += 1
        if isinstance(command, LONG_COMMANDS):
            # These wait for a confirmation or an end; what the person does meanwhile must not wait for them.
            task = self._loop.create_task(self._answer_later(command, request))
            task.add_done_callback(self._long_ended)
            self._long.add(task)
            return
        await self._answer_command(command, request, text)

    async def _answer_later(self, command: dto.RendererMessage, request: int) -> None:
        # What is selected may be another conversation by now: that is none of this command's doing.
        try:
            outcome = await self._outcome(command, request, "")
            if outcome.code == NOT_DONE and isinstance(command, ASKING_COMMANDS):
                self._noes.append(self._loop.time())
            self._answer(outcome)
        finally:
            if isinstance(command, ASKING_COMMANDS):
                self._questions -= 1

    def _is_worn(self) -> bool:
        """Whether the person said no so often just now that they are left in peace."""
        return len(self._noes) == MOST_NOES and self._loop.time() - self._noes[0] < NOES_S

    async def _answer_command(self, command: dto.RendererMessage, request: int, text: str) -> None:
        before = self.authority.binding
        outcome = await self._outcome(command, request, text)
        if self.authority.binding.conversation_id != before.conversation_id:
            await self._on_screen(self.authority.binding.conversation_id)
        elif self.authority.binding != before:
            self._dirty.add("selected" if isinstance(command, dto.Choose) else "run")
        self._answer(outcome)

    async def _outcome(self, command: dto.RendererMessage, request: int, text: str) -> dto.Outcome:
        try:
            return await self._desk.carry_out(command, text, self.authority)
        except AgentRuntimeError as refused:
            return dto.Outcome(
                request=request,
                status="refused",
                code=sanitize.code(refused.error_code),
                text=sanitize.sentence(refused.message),
            )
        except (Breach, asyncio.CancelledError):
            raise
        except Exception:
            # A fault of ours: it is logged, the person is told, and nothing is done half again by itself.
            log.exception("the command %s failed", type(command).__name__)
            return dto.Outcome(
                request=request,
                status="failed",
                code="INTERNAL",
                text="Remuda failed at this, and noted why in its log. Look whether it was done before you try again.",
            )

    def _take_spool(self, last: str, pieces: int) -> str:
        if pieces != len(self._spool):
            raise Breach("PIECES_MISCOUNTED", f"{pieces} said, {len(self._spool)} sent")
        whole = "".join([*self._spool, last])
        self._spool.clear()
        self._spool_bytes = 0
        return whole

    async def _select(self, conversation_id: str | None) -> None:
        self.authority.select(conversation_id)
        await self._on_screen(conversation_id)

    async def _on_screen(self, conversation_id: str | None) -> None:
        self._watch(self._desk.live_run(conversation_id) if conversation_id else None)
        self._dirty.discard("run")
        for message in await self._desk.selected(self.authority):
            self._answer(message)
        if self.authority.binding.conversation_id is not None:
            self._dirty.add("queue")
            self._wake.set()

    async def _answer_items(self, conversation_id: str, first: int, count: int, *, snapshot: bool) -> None:
        window = await self._desk.items(conversation_id, first, count, snapshot)
        # A window of long items is sent in as many messages as its bytes need.
        start = 0
        size = 0
        for end, item in enumerate(window.items):
            length = len(self._encoder.part(item))
            if end > start and size + length > FRAME_BUDGET_BYTES // 2:
                self._answer_window(window, start, end)
                start, size = end, 0
            size += length
        self._answer_window(window, start, len(window.items))

    def _answer_window(self, window: dto.Items, start: int, end: int) -> None:
        self._answer(msgspec.structs.replace(window, first=window.first + start, items=window.items[start:end]))

    # ----------------------------------------------------------------- sending

    def _answer(self, message: dto.Message) -> None:
        self._answers.append(message)
        self._wake.set()

    def conversation_changed(self, conversation_id: str) -> None:
        """A conversation, perhaps on no screen, is not what it was."""
        self._changed[conversation_id] = None
        if conversation_id == self.authority.binding.conversation_id:
            self._dirty.add("run")
        self._wake.set()

    def queue_changed(self, conversation_id: str) -> None:
        """What waits to be said in a conversation is not what it was."""
        if conversation_id == self.authority.binding.conversation_id:
            self._dirty.add("queue")
            self._wake.set()

    def conversation_gone(self, conversation_id: str) -> None:
        """A conversation is no more."""
        self._gone[conversation_id] = None
        self._changed.pop(conversation_id, None)
        self._wake.set()

    def changed(self, what: str) -> None:
        """`what` ("choices", "connectors", "appearance") is not what it was."""
        self._dirty.add(what)
        self._wake.set()

    def page_changed(self, page: dto.Page) -> None:
        """What stands on a page is not what it was: made anew if it was ever opened."""
        if page in self._pages:
            self._make_page(page)

    def tell(self, message: dto.Message) -> None:
        """Send a rare message of the host's own: a notice, raise, close, the self-test's rows.

        Of a `Progress` only the newest goes, however often it is told.
        """
        if isinstance(message, dto.Progress):
            self._progress[message.id] = message
            self._wake.set()
        else:
            self._answer(message)

    async def run_probes(self, targets: dto.RunProbes) -> tuple[dto.Probe, ...]:
        """Have the renderer attack these decoys; what each attack met."""
        answer: asyncio.Future[tuple[dto.Probe, ...]] = self._loop.create_future()
        self._probe_answers[targets.request] = answer
        self._answer(targets)
        return await answer

    def _watch(self, run: Run | None) -> None:
        self._leave_journal()
        self._leave_journal = lambda: None
        self._end_retry()
        self._run = run
        if run is not None:
            # What was said before is in the items; from here on the journal tells.
            self._cursor = run.journal.last_sequence
            self._leave_journal = run.journal.subscribe(self._wake.set)

    async def _send_frames(self) -> None:
        while not self.closed.is_set():
            await self._wake.wait()
            self._wake.clear()
            if self._in_flight or self._unsent:
                continue
            if not (self.locked.done() or self._encoder.last_sequence == 0):
                continue
            wait_s = self._sent_at + FRAME_INTERVAL_S - self._loop.time()
            if wait_s > 0:
                if self._wake_timer is None:
                    self._wake_timer = self._loop.call_later(wait_s, self._interval_over)
                continue
            parts = await self._next_parts()
            if not parts:
                continue
            data = self._encoder.join(parts)
            self._in_flight = self._encoder.last_sequence
            self._sent_at = self._loop.time()
            self._write(data)
            self._room_made.set()
            self._read_on_or_pause()

    def _interval_over(self) -> None:
        self._wake_timer = None
        self._wake.set()

    async def _next_parts(self) -> list[bytes]:
        parts: list[bytes] = []
        size = 0

        def add(message: dto.Message) -> bool:
            nonlocal size
            part = self._encoder.part(message)
            if len(part) > FRAME_BUDGET_BYTES:
                # A fault of ours; without this message the window stays, with it no frame would ever leave.
                log.error("a %s of %d bytes fits no frame and was left out", type(message).__name__, len(part))
                return True
            if parts and (size + len(part) + 1 > FRAME_BUDGET_BYTES or len(parts) >= MAX_MESSAGES):
                return False
            parts.append(part)
            size += len(part) + 1
            self._shown(message)
            return True

        if self._encoder.last_sequence == 0:
            add(self._answers.popleft())
            return parts
        try:
            await self._refill()
        except AgentRuntimeError as fault:
            self._tell_fault(fault)
        while self._answers and add(self._answers[0]):
            self._answers.popleft()
        if self._answers:
            self._wake.set()
        return parts

    def _shown(self, message: dto.Message) -> None:
        """The ids in a message that leaves are from now on ids this renderer may use."""
        match message:
            case dto.Conversations():
                self.authority.show(*(row.id for row in message.rows))
            case dto.ConversationChanged():
                self.authority.show(message.row.id)
            case dto.Selected():
                self._filled_by = self._filled_by or self._encoder.last_sequence + 1
                self._show(message.conversation, message.choice, message.agent)
            case dto.Choices():
                for choice in message.choices if message.chosen is None else (*message.choices, message.chosen):
                    self._show(choice.id, choice.connector_id)
            case dto.Connectors() | dto.Found() | dto.Harnesses() | dto.Agents() | dto.Profiles() | dto.Mounts():
                self.authority.show(*_row_ids(message))
            case dto.Progress():
                self.authority.show(message.id)
            case dto.Queued():
                self.authority.show_queue(*(row.id for row in message.rows))
            case dto.Items():
                self.authority.show_items(*(item.id for item in message.items))
                self._show(*(_operation(item.card) for item in message.items))
            case dto.ItemAdded():
                self.authority.show_items(message.item.id)
                self._show(_operation(message.item.card))
            case dto.ItemCard() | dto.ItemDone():
                self._show(_operation(message.card))

    def _show(self, *ids: str | None) -> None:
        self.authority.show(*(name for name in ids if name is not None))

    async def _refill(self) -> None:
        """Turn what changed into messages, at most about a frame of them."""
        if len(self._answers) >= MAX_MESSAGES:
            return
        while self._gone:
            name = self._gone.popitem()[0]
            self.authority.forget(name)
            self._answers.append(dto.ConversationGone(id=name))
            if self.authority.binding.conversation_id == name:
                await self._select(None)
        for name in list(self._changed)[:JOURNAL_EVENTS]:
            del self._changed[name]
            row = await self._desk.conversation(name)
            if row is not None:
                self._answers.append(dto.ConversationChanged(row=row))
            else:
                self.conversation_gone(name)
        if self._changed:
            self._wake.set()
        self._answers.extend(self._progress.values())
        self._progress.clear()
        await self._take_from_journal()
        for what in list(self._dirty):
            self._dirty.discard(what)
            await self._refresh(what)

    async def _refresh(self, what: str) -> None:
        if what == "appearance":
            self._answers.append(self._desk.appearance())
        elif what == "choices":
            self._answers.append(self._desk.choices(*self._search, self.authority))
        elif what == "connectors":
            self._answers.append(await self._desk.connectors(self.authority))
        elif what == "selected":
            for message in await self._desk.selected(self.authority):
                self._answers.append(message)
        elif what == "queue":
            if (name := self.authority.binding.conversation_id) is not None:
                self._answers.append(await self._desk.queued(name))
        elif what == "run":
            await self._refresh_run()

    async def _refresh_run(self) -> None:
        name = self.authority.binding.conversation_id
        live = self._desk.live_run(name) if name else None
        if name is not None and live is not None and live is not self._run:
            # A run began: the message and what there is of its reply, then what the journal tells.
            self._watch(live)
            await self._answer_newest(name, run=live)
        elif name is not None and live is None:
            # No run goes on: what the journal of the last still holds comes first, then what stands.
            ended = self._run
            if self._run is not None:
                await self._take_from_journal()
                if self._cursor < self._run.journal.last_sequence:
                    self._dirty.add("run")
                    self._wake.set()
                    return
                self._watch(None)
            await self._answer_newest(name, run=ended)
        self.authority.moved()
        changed = await self._desk.run_changed(self.authority)
        if changed is not None:
            self._answers.append(changed)

    async def _answer_newest(
        self, conversation_id: str, count: int = NEWEST_ITEMS, *, run: Run | None = None, snapshot: bool = False
    ) -> None:
        """The newest items; of a run all it has, as far as that is not too many."""
        total = (await self._desk.items(conversation_id, 0, 1, False)).total
        while run is not None and count < min(total, MOST_NEWEST_ITEMS):
            oldest = (await self._desk.items(conversation_id, total - count, 1, False)).items
            if not oldest or oldest[0].run != sanitize.wire_id(run.run_id):
                break
            count *= 2
        await self._answer_items(conversation_id, max(0, total - count), count, snapshot=snapshot)

    async def _take_from_journal(self) -> None:
        name = self.authority.binding.conversation_id
        if self._run is None or name is None:
            return
        taken = self._run.journal.read(self._cursor, JOURNAL_EVENTS)
        if taken.gap is not None:
            self._answers.append(
                dto.Gap(
                    conversation=name,
                    run=sanitize.wire_id(self._run.run_id),
                    after=taken.gap.after,
                    before=taken.gap.before,
                )
            )
            self._answers.append(
                dto.Notice(id="gap", level="info", code="EVENTS_DROPPED", text=sanitize.sentence(GAP_SENTENCE))
            )
            self._cursor = self._run.journal.last_sequence
            await self._answer_newest(name, SNAPSHOT_ITEMS, snapshot=True)
            return
        for happened in taken.events:
            self._answers.extend(sanitize.event(name, happened))
            if happened.type != "diagnostic":
                self._end_retry()
            elif happened.data.get("code") == "RETRY":
                self._retrying = True
        if taken.events:
            self._cursor = taken.events[-1].sequence
            if len(taken.events) >= JOURNAL_EVENTS:
                self._wake.set()

    def _end_retry(self) -> None:
        """Take the line back that a reply is asked for once more: it came, or the end says why not."""
        if self._retrying:
            self._retrying = False
            self._answers.append(dto.NoticeGone(id=sanitize.RETRY))

    def _write(self, data: bytes) -> None:
        self._unsent = memoryview(data)
        self._writable()

    def _writable(self) -> None:
        try:
            sent = self._connection.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._end(None)
            return
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.add_writer(self._connection, self._writable)
        else:
            self._loop.remove_writer(self._connection)
            self._wake.set()


ASKING_COMMANDS = (dto.Delete, dto.Propose, dto.UseFound)
"""Commands that ask in the trusted dialog."""
LONG_COMMANDS = (
    *ASKING_COMMANDS,
    dto.Stop,
    dto.LookAgain,
    dto.SelfTest,
    dto.Look,
    dto.TestConnector,
    dto.RefreshModels,
)
"""Commands that wait for the person, a server or an end."""


def _ids(command: dto.RendererMessage) -> Iterator[str]:
    """The ids a command names."""
    if isinstance(command, dto.Propose) and command.action == "add-connector":
        if command.target is not None and command.target not in dto.CONNECTOR_KINDS:
            raise Breach("ID_NEVER_SHOWN", command.target)
        return
    for field in ("conversation", "choice", "connector", "target", "found", "agent", "progress", "queued", "before"):
        name = getattr(command, field, None)
        if name is not None:
            yield name


def _row_ids(
    message: dto.Connectors | dto.Found | dto.Harnesses | dto.Agents | dto.Profiles | dto.Mounts,
) -> list[str]:
    """The ids of a page."""
    agents = [message.agent, *(one.id for one in message.agents)] if isinstance(message, dto.Mounts) else []
    return [*(row.id for row in message.rows), *agents]


def _operation(card: dto.Card | None) -> str | None:
    """The held call that a card is of, which may be named from now on."""
    return card.operation if isinstance(card, dto.ToolCard) else None


def _too_many(request: int) -> dto.Outcome:
    return dto.Outcome(
        request=request,
        status="refused",
        code="TOO_MANY_QUESTIONS",
        text="Several questions wait, or were answered with no just now. Answer them, or try again in half a minute.",
    )


def _stale(request: int) -> dto.Outcome:
    return dto.Outcome(
        request=request,
        status="stale",
        code="STALE",
        text="This changed while you were deciding. Look again, then decide.",
    )
