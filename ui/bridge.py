"""What QML may call, and what it reads.

Owns the translation between gestures and commands, and the moments at which the store's
changes reach the models. Must not decide what is shown (`ui.store`) or how (QML). Invariants:
models are brought up to date at most once a frame; there is no timer while nothing is due.
"""

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from PySide6.QtCore import QObject, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtQml import QQmlPropertyMap

from ui.looks import Looks
from ui.models import lists, queue
from ui.models.conversations import ConversationsModel
from ui.models.places import parts, path_words, sentence_case, short_path, whole_parts
from ui.models.rows import ListModel
from ui.models.transcript import TranscriptModel
from ui.queue_bridge import QueueBridge, pieces
from ui.setup_bridge import SetupBridge
from ui.store import FOLDER_FIRST, Pending, Store
from ui.text.visible import FSI, LRI, PDI, one_line, visible, whole_characters
from ui.wire import dto

FRAME_S = 0.016
PICTURE_REFUSED = "This model takes none anyway."
DRAFT_AFTER_MS = 400
LISTING_ROWS = 60
_ONE_LINE = ("title", "harness", "effort", "enter", "proxy", "certificates")
_NAMES = ("profile", "otherProfile", "sentence", "agentName", "modelsOf", "modelsDefault", "mountsOf")
_SENTENCES = ("runSentence", "problem", "wallSentence", "wallSystem", "keyStoreSentence", "keyStoreWay")
_THEMES: tuple[dto.Theme, ...] = ("system", "light", "dark")


_MARKS = {ord(mark): None for mark in (FSI, LRI, PDI)}
"""What keeps a name or code from reordering its surroundings on screen; no part of the text."""


class Channel:
    """The part of `ui.client.Client` that the bridge uses."""

    def next_request(self) -> int:
        raise TypeError("a channel counts its requests")

    def send(self, *messages: dto.RendererMessage) -> None:
        raise TypeError("a channel sends")

    def flush(self) -> None:
        raise TypeError("a channel writes")


class Bridge(QObject):
    """Context property `remuda`.

    Signals:
        replacing: A window of items is about to take the place of rows; `replaced` follows.
        composerText: The composer is to hold this text.
        followed: Another conversation is on screen: go to its end.
        flushed: Rows grew: whoever follows the end goes there before the next frame, not after it.
        copied: The whole of this item is in the clipboard.
        asked: The window is to carry out this action itself (focus, picker, sidebar).
        probesWanted: The host asks for the probes.
        ended: The host closes the window.
    """

    composerText = Signal(str)
    followed = Signal()
    flushed = Signal()
    replacing = Signal()
    replaced = Signal()
    asked = Signal(str)
    copied = Signal(str)
    probesWanted = Signal(object)
    ended = Signal()

    def __init__(self, store: Store, looks: Looks, channel: Any) -> None:
        super().__init__()
        self._store, self._looks, self._channel = store, looks, channel
        self.state = QQmlPropertyMap.create()
        self._facts: dict[str, Any] = {}
        self.transcript = TranscriptModel(store.transcript, looks.table)
        self.conversations = ConversationsModel(store)
        self.setup = SetupBridge(store, self._command, self._say)
        self.queue = QueueBridge(store, self._command, self.settle, channel)
        self.notices, self.isolation, self.queued = ListModel(), ListModel(), ListModel()
        self._arrivals = 0
        self._listing_asked: set[int] = set()
        self._flushed_at = 0.0
        self._frame = self._once(0, self._flush_rows)
        self._draft = self._once(DRAFT_AFTER_MS, self.keepDraft)
        self._drafted: tuple[str | None, str] = (None, "")
        self._request_id: tuple[str, str] = ("", "")
        self._copying = ""
        self._publish()

    def _once(self, after_ms: int, do: Callable[[], None]) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(after_ms)
        timer.timeout.connect(do)
        return timer

    # ------------------------------------------------------------------ from the host

    def reduce(self, messages: Sequence[dto.HostMessage]) -> None:
        """One frame of the host."""
        for message in messages:
            if isinstance(message, dto.Items):
                self.replacing.emit()
                self._store.apply(message)
                self.replaced.emit()
            else:
                self._store.apply(message)

    def settle(self) -> None:
        """Everything that was ready has been reduced: show it."""
        store = self._store
        changed, store.changed = store.changed, set()
        if "theme" in changed:
            look = store.appearance
            self._looks.wear(
                dark=look.dark,
                high_contrast=look.high_contrast,
                reduced_motion=look.reduced_motion,
                zoom_percent=look.zoom_percent,
            )
            self.transcript.restyle()
        if store.transcript.has_pending:
            self._flush_soon()
        if "conversations" in changed:
            self.conversations.refresh()
        for area, model, rows in (
            ("notices", self.notices, lists.notices),
            ("isolation", self.isolation, lists.isolation),
            ("queue", self.queued, queue.queued),
        ):
            if area in changed:
                model.replace(rows(store))
        self.setup.settle(selection="choices" in changed)
        if changed:
            self._publish()
        if store.arrivals != self._arrivals:
            self._arrivals = store.arrivals
            self._drafted = (store.conversation, store.typed)
            self._look_at_end()
            self.followed.emit()
        if "composer" in changed:
            self.composerText.emit(store.typed)
        if self._copying:
            self._copy_when_whole()
        self._rare()

    def _rare(self) -> None:
        store = self._store
        if store.probes is not None:
            probes, store.probes = store.probes, None
            self.probesWanted.emit(probes)
        if store.raised is not None:
            token, store.raised = store.raised, None
            if token:
                # What lets a Wayland compositor bring the window to the front; read by Qt when it asks.
                os.environ["XDG_ACTIVATION_TOKEN"] = token
            self.asked.emit("raise")
        if store.hello is not None and not store.listing.known and not self._listing_asked:
            self._want_conversations(0, LISTING_ROWS)
        if store.closed:
            self.ended.emit()

    def _publish(self) -> None:
        """Bring the property map up to date, fact by fact."""
        for name, value in self._store.facts().items():
            if name in _ONE_LINE:
                value = one_line(value)
            elif name in _NAMES:
                value = parts(value)
            elif name == "mountsAgents":
                value = [{"id": each["id"], "name": parts(each["name"])} for each in value]
            elif name == "access":
                value = sentence_case(value)
            elif name == "folder":
                value = path_words(value)
            elif name == "folderShort":
                value = short_path(value)
            elif name == "sentenceShort":
                value = whole_parts(value)
            elif name in _SENTENCES:
                value = visible(value)
            if name not in self._facts or self._facts[name] != value:
                self._facts[name] = value
                self.state.insert(name, value)

    def _flush_soon(self) -> None:
        wait_s = self._flushed_at + FRAME_S - time.monotonic()
        if wait_s <= 0:
            self._flush_rows()
        elif not self._frame.isActive():
            self._frame.start(int(wait_s * 1000) + 1)

    def _flush_rows(self) -> None:
        self._store.transcript.flush()
        self._flushed_at = time.monotonic()
        self.flushed.emit()
        if self._store.transcript.has_pending:
            self._flush_soon()  # a flood is taken in over several frames

    def _look_at_end(self) -> None:
        rows = self._store.transcript.row_count
        self.look(rows - 1, rows - 1)

    # ------------------------------------------------------------------ commands

    def _command(self, kind: str, make: Callable[[int], dto.RendererMessage], pending: Pending | None = None) -> None:
        request = self._channel.next_request()
        self._store.expect(request, pending or Pending(kind))
        self._channel.send(make(request))
        self.settle()
        self._channel.flush()

    def _say(self, *messages: dto.RendererMessage) -> None:
        """Send what has no outcome, and show what changed here."""
        self._channel.send(*messages)
        self.settle()
        self._channel.flush()

    def _acts_here(self) -> bool:
        return self._store.selected is not None

    @Slot(str)
    def send(self, text: str) -> None:
        """Enter: send what the composer holds."""
        self._send(text, "now")

    @Slot(str)
    def sendLater(self, text: str) -> None:
        """Alt+Enter: put it last in the queue; where nothing is ahead of it, that is to send it."""
        store = self._store
        behind = store.stoppable or bool(store.queue.rows(store.conversation))
        self._send(text, "queue" if behind and store.conversation is not None else "now")

    @Slot()
    def sendAnyway(self) -> None:
        """It looks like a secret, and the person wants it sent all the same: the same request once more."""
        doubted = self._store.doubted
        if doubted is not None and doubted.conversation == self._store.conversation:
            self._send(doubted.text, doubted.when, anyway=True)

    def _hindered(self, text: str) -> str:
        """Why this message cannot go to the host."""
        if self._store.needs_folder:
            return FOLDER_FIRST
        if len(text.encode()) > dto.SPOOL_BYTES:
            return f"One message holds at most {dto.SPOOL_BYTES // 2**20} MiB. Nothing was sent."
        return ""

    def _send(self, text: str, when: Literal["now", "queue"], *, anyway: bool = False) -> None:
        store = self._store
        text = whole_characters(text)
        if not self._acts_here() or store.sending or not store.takes_text or not text.strip():
            return
        if problem := self._hindered(text):
            store.problem = problem
            store.changed.add("facts")
            self.settle()
            return
        if self._request_id[0] != text or self._request_id[1] == store.confirmed:
            self._request_id = (text, uuid.uuid4().hex)
        store.typed = text
        self._draft.stop()
        parts = pieces(text)
        self._channel.send(*(dto.Piece(text=part) for part in parts[:-1]))
        identity = self._request_id[1]
        pending = Pending("send", text, identity, store.conversation, when)
        self._command(
            "send",
            lambda request: dto.Send(
                request=request,
                revision=store.revision,
                request_id=identity,
                text=parts[-1],
                pieces=len(parts) - 1,
                when=when,
                anyway=anyway,
            ),
            pending,
        )

    @Slot(str)
    def typing(self, text: str) -> None:
        """The composer's text changed by hand."""
        self._store.typing(whole_characters(text))
        if not self._draft.isActive():
            # Not started anew by each key: who types without a pause would have nothing kept.
            self._draft.start()
        if self._store.changed:
            self.settle()

    @Slot()
    def keepDraft(self) -> None:
        """Hand the composer's text to the host, unless it has it."""
        self._draft.stop()
        store = self._store
        state = (store.conversation, store.typed)
        if not self._acts_here() or state == self._drafted or store.sending:
            return
        if len(store.typed.encode()) > dto.SPOOL_BYTES:
            return
        self._drafted = state
        parts = pieces(store.typed)
        self._channel.send(*(dto.Piece(text=part) for part in parts[:-1]))
        self._channel.send(dto.Draft(conversation=store.conversation, text=parts[-1], pieces=len(parts) - 1))
        self._channel.flush()

    @Slot(str)
    def select(self, conversation: str) -> None:
        if self._store.page != "conversation":
            self.leave()
        if not conversation or conversation == self._store.conversation:
            self.settle()
            return
        self.keepDraft()
        self._command("select", lambda request: dto.Select(request=request, conversation=conversation))

    @Slot(int)
    def selectPlace(self, place: int) -> None:
        """Open the conversation at a place of the sidebar."""
        row = self._store.listing.rows.get(place)
        if row is not None:
            self.select(row.id)

    @Slot(str)
    def act(self, name: str) -> None:
        """Carry out an action of `ui.actions`."""
        do = self._doers().get(name)
        if do is None:
            self.asked.emit(name)
        else:
            do()

    def _doers(self) -> Mapping[str, Callable[[], None]]:
        store = self._store
        if not self._acts_here():
            return {}

        def at_revision(kind: str, command: Callable[..., dto.RendererMessage]) -> Callable[[], None]:
            return lambda: self._command(kind, lambda request: command(request=request, revision=store.revision))

        return {
            "new": lambda: self.startWith(""),
            "settings": self._open_settings,
            "stop": at_revision("stop", dto.Stop) if store.stoppable else lambda: None,
            "detach": at_revision("detach", dto.Detach),
            "let-run": at_revision("detach", dto.Detach) if store.lets_run else lambda: None,
            "look-again": at_revision("look-again", dto.LookAgain) if store.can_look_again else lambda: None,
            "delete": at_revision("delete", dto.Delete),
            "again": self._again,
            "review": self._review,
            "selftest": self._open_selftest,
        }

    def _open_settings(self) -> None:
        self.keepDraft()
        there = self._store.page == "settings"
        self.setup.open(self._store.setup.place)
        if there:
            self.asked.emit("settings")

    def _review(self) -> None:
        """The trusted dialog shows the first call that waits; one that is not here yet is at the end of the page."""
        store, operation = self._store, self._store.reviewable
        if store.asked or (not store.waiting and operation is None):
            return
        if operation is None:
            self.asked.emit("below")
        else:
            self.setup.propose("review", operation)

    def _again(self) -> None:
        run = self._store.run
        if run is None or not run.can_ask_again or self._store.busy:
            return
        identity = uuid.uuid5(uuid.NAMESPACE_OID, "again:" + run.id).hex  # a second click is the same request
        self._command(
            "again",
            lambda request: dto.AskAgain(request=request, revision=self._store.revision, request_id=identity),
        )

    def _open_selftest(self) -> None:
        self.keepDraft()
        self._store.show("selftest")
        if self._store.isolation is None or not self._store.isolation.probes:
            self.selfTest()
        else:
            self.settle()

    @Slot()
    def selfTest(self) -> None:
        """Run the probes (again)."""
        if not self._store.testing:
            self._command("self-test", lambda request: dto.SelfTest(request=request))

    @Slot()
    def leave(self) -> None:
        """Back to the conversation."""
        if self._store.page == "settings":
            self.setup.forget_search()
        self._store.show("conversation")
        self.settle()
        self.asked.emit("write")

    @Slot(str)
    def startWith(self, agent: str) -> None:
        """A new conversation with an agent (empty: the one that is current)."""
        self.keepDraft()
        self.leave()
        self._command("new", lambda request: dto.NewConversation(request=request, agent=agent or None))
        self.asked.emit("write")

    @Slot(str, str)
    def choose(self, choice: str, effort: str) -> None:
        """Bind the conversation to another entry of the picker."""
        if self._acts_here():
            self._command(
                "choose",
                lambda request: dto.Choose(
                    request=request, revision=self._store.revision, choice=choice, effort=effort
                ),
            )

    @Slot()
    def tryBuiltin(self) -> None:
        """First run: the model that needs neither key nor network."""
        choice = self._store.setup.builtin
        if choice is not None:
            self.choose(choice.id, choice.efforts[0] if choice.efforts else "")
            self.asked.emit("write")

    @Slot(str)
    def setTheme(self, theme: str) -> None:
        chosen = next((known for known in _THEMES if known == theme), None)
        if chosen is not None:
            self._command("set-theme", lambda request: dto.SetTheme(request=request, theme=chosen))

    @Slot(str)
    def dismiss(self, notice: str) -> None:
        self._store.dismiss(notice)
        self.settle()

    def tell_active(self, active: bool) -> None:
        """The window came to the front, or another one did."""
        self._channel.send(dto.WindowActive(active=active))
        self._channel.flush()

    @Slot()
    def windowClosed(self) -> None:
        """The person closed the window."""
        self.keepDraft()
        self._channel.send(dto.WindowClosed())
        self._channel.flush()

    # ------------------------------------------------------------------ windows of rows

    @Slot(str)
    def filter(self, text: str) -> None:
        """Show conversations whose title holds `text`."""
        text = whole_characters(text)[:512]
        listing = self._store.listing
        if text == listing.filter:
            return
        listing.filter = text
        self._listing_asked.clear()
        self._want_conversations(0, LISTING_ROWS)
        self._publish()

    def _want_conversations(self, first: int, count: int) -> None:
        self._listing_asked.add(first)
        self._channel.send(
            dto.WantConversations(
                filter=self._store.listing.filter, first=first, count=max(1, min(count, dto.WINDOW_ITEMS))
            )
        )
        self._channel.flush()

    @Slot(int, int)
    def lookAtConversations(self, first: int, last: int) -> None:
        """These rows of the sidebar are seen."""
        missing = self.conversations.missing(first - LISTING_ROWS // 2, last + LISTING_ROWS // 2)
        if missing is not None and missing[0] not in self._listing_asked:
            self._want_conversations(*missing)

    @Slot(int, int)
    def look(self, first: int, last: int) -> None:
        """These rows of the transcript are seen: ask for what is missing around them."""
        transcript = self._store.transcript
        conversation = transcript.conversation
        if conversation is None:
            return
        for start, count in transcript.look(first, last):
            self._channel.send(dto.WantItems(conversation=conversation, first=start, count=count))
        self._channel.flush()

    @Slot(int, result="QVariantList")
    def placeOf(self, row: int) -> list[int]:
        """Item and line of a row: a name for it that outlives changes above it."""
        return list(self._store.transcript.locate(row))

    @Slot(int, int, result=int)
    def rowOf(self, index: int, line: int) -> int:
        """Where that line is now; the item's last one if it has fewer."""
        transcript = self._store.transcript
        entry = transcript.entry(index)
        lines = len(entry.lines) if entry is not None else 1
        return transcript.start_of(index) + min(line, max(0, lines - 1))

    @Slot(int)
    def more(self, row: int) -> None:
        """The `more` row of a long item is seen."""
        transcript = self._store.transcript
        conversation = transcript.conversation
        if conversation is None or not 0 <= row < transcript.row_count:
            return
        wanted = transcript.want_text(row)
        if wanted is not None:
            self._channel.send(dto.WantText(conversation=conversation, item=wanted[0], at=wanted[1]))
            self._channel.flush()

    @Slot(int)
    def toggle(self, row: int) -> None:
        self._store.transcript.toggle(row)

    # ------------------------------------------------------------------ copying

    @Slot(result=bool)
    def pasteIsPicture(self) -> bool:
        """Whether the clipboard holds a picture and no text; then it is said what becomes of it."""
        held = QGuiApplication.clipboard().mimeData()
        if held is None or held.hasText() or not held.hasImage():
            return False
        taken = "`remuda run --image FILE` sends it." if self._store.facts()["images"] else PICTURE_REFUSED
        self._store.problem = f"The message holds text only, so the picture was not put in. {taken}"
        self._store.changed.add("facts")
        self.settle()
        return True

    @Slot(str)
    def copyText(self, text: str) -> None:
        """What was selected, without the marks that keep code from being reordered."""
        clipboard = QGuiApplication.clipboard()
        clipboard.setText(text.translate(_MARKS).replace("\u2029", "\n").replace("\u2028", "\n"))

    @Slot(int)
    def copyCode(self, row: int) -> None:
        QGuiApplication.clipboard().setText(self._store.transcript.code_at(row))

    @Slot(str, result=bool)
    def copyMessage(self, item: str) -> bool:
        """The message as it was written, an output or a diff as it is seen; what is not here yet is fetched first.

        Returns:
            Whether it is copied; `copied` follows where it is not.
        """
        self._copying = item
        return self._copy_when_whole()

    def _copy_when_whole(self) -> bool:
        item = self._copying
        transcript = self._store.transcript
        entry = transcript.by_id(item)
        if entry is None:
            self._copying = ""
            return False
        if entry.open or entry.complete:
            self._copying = ""
            QGuiApplication.clipboard().setText(entry.seen_text())
            self.copied.emit(item)
            return True
        wanted, conversation = transcript.want_rest(item), transcript.conversation
        if wanted is not None and conversation is not None:
            self._channel.send(dto.WantText(conversation=conversation, item=item, at=wanted))
            self._channel.flush()
        return False
