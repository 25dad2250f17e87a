"""What the window shows, reduced from the host's messages.

Owns the view state and the rules by which each message changes it. Must not know Qt, the
channel or the clock. Invariants: nothing is shown that the host did not say, but what was
typed here; typed text leaves the composer only when the host has confirmed the send.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec.structs import replace

from ui.queue import Queue, enter_words
from ui.setup import Setup
from ui.transcript import Transcript, quiet
from ui.wire import dto

Page = Literal["conversation", "selftest", "settings"]
Area = Literal["facts", "conversations", "choices", "isolation", "notices", "theme", "composer", "queue"]

USUAL_PROFILE = "personal"
"""The profile one gets without asking for another: its window needs no name of its own."""

NOT_DONE = "NOT_DONE"
"""Code of an outcome that is what the person chose: the dialog was closed without an answer."""

FOLDER_FIRST = "Choose the folder to work in first. What you wrote stays here."

DOUBTED = "SECRET_FOUND"
"""Code of a refusal: the text looks like a secret, and is sent only if the person says so once more."""

ASKING = frozenset({"propose", "use"})
"""Kinds of commands that the trusted dialog asks about before they are done."""

RETRY = "RETRY"
"""Code of the notice that a request was sent once more."""

BUSY: frozenset[str] = frozenset({"admitting", "working", "stopping"})
STOPPABLE: frozenset[str] = BUSY | {"waiting", "elsewhere"}
"""A run that waits for the person runs nothing, and can be ended all the same; so can one that nobody watches."""

WORDS: dict[str, str] = {
    "admitting": "Sending",
    "working": "Working",
    "stopping": "Stopping",
    "waiting": "Waiting for you",
    "elsewhere": "Running elsewhere",
    "done": "Done",
    "stopped": "Stopped",
    "incomplete": "Incomplete",
    "failed": "Failed",
    "unknown": "Unknown",
}
"""The word of each run state; never without its icon."""

TONES: dict[str, str] = {
    "admitting": "working",
    "working": "working",
    "stopping": "working",
    "waiting": "waiting",
    "elsewhere": "elsewhere",
    "done": "done",
    "stopped": "stopped",
    "incomplete": "stopped",
    "failed": "failed",
    "unknown": "unknown",
}
"""The colour of each run state, a name of the theme."""

ICONS: dict[str, str] = {**TONES, "incomplete": "incomplete", "done": "check"}


@dataclass(slots=True)
class Pending:
    """A command the host has not answered."""

    kind: str
    text: str = ""
    request_id: str = ""
    conversation: str | None = None
    when: Literal["now", "queue"] = "now"


@dataclass(slots=True)
class Listing:
    """The sidebar's rows: those that are loaded, by place."""

    filter: str = ""
    total: int = 0
    rows: dict[int, dto.ConversationRow] = field(default_factory=dict)
    known: bool = False

    def place(self, conversation: str) -> int | None:
        return next((place for place, row in self.rows.items() if row.id == conversation), None)


class Store:
    """The view state. `apply` reduces one message; `changed` tells which areas to draw anew."""

    def __init__(self) -> None:
        self.changed: set[Area] = set()
        self.hello: dto.HostHello | None = None
        self.appearance = dto.Appearance(theme="system", dark=False)
        self.listing = Listing()
        self.listing_changes: list[tuple[str, int]] = []
        self.selected: dto.Selected | None = None
        self.revision = 0
        self.arrivals = 0
        """How often another conversation came on screen."""
        self.run: dto.RunView | None = None
        self.enter = ""
        self.busy_enter = ""
        self.waiting = 0
        """Calls of the selected conversation that wait for the person."""
        self.queue = Queue()
        self.transcript = Transcript()
        self.setup = Setup()
        self.notices: dict[str, dto.Notice] = {}
        self.retry: dto.Notice | None = None
        """That the reply is asked for once more: said beside the run, where it moves nothing."""
        self.isolation: dto.Isolation | None = None
        self.testing = False
        self.pending: dict[int, Pending] = {}
        self.typed = ""
        self.problem = ""
        self.doubted: Pending | None = None
        """The message that was not sent because it looks like a secret."""
        self.confirmed = ""
        """The request that the host last took: the next message is another, whatever it says."""
        self.page: Page = "conversation"
        self.probes: dto.RunProbes | None = None
        self.raised: str | None = None
        self.closed = False
        self._draft: list[str] = []
        self._draft_left = 0
        self._local = 0
        self._reduce: dict[type[Any], Callable[[Any], None]] = {
            dto.HostHello: self._hello,
            dto.Appearance: self._appearance,
            dto.Conversations: self._conversations,
            dto.ConversationChanged: self._conversation_changed,
            dto.ConversationGone: self._conversation_gone,
            dto.Selected: self._selected,
            dto.DraftPiece: self._draft_piece,
            dto.RunChanged: self._run_changed,
            dto.Queued: self._queued,
            dto.Items: self._items,
            dto.ItemAdded: self._item_added,
            dto.ItemDelta: self._item_delta,
            dto.ItemDone: self._item_done,
            dto.ItemCard: self._item_card,
            dto.ItemText: self._item_text,
            dto.Gap: self._gap,
            dto.Notice: self._notice,
            dto.NoticeGone: self._notice_gone,
            dto.Outcome: self._outcome,
            dto.RunProbes: self._run_probes,
            dto.Isolation: self._isolation,
            dto.Raise: self._raise,
            dto.Close: self._close,
            **dict.fromkeys(self.setup.kinds, self._set_up),
        }

    def apply(self, message: dto.HostMessage) -> None:
        """Reduce one message of the host."""
        self._reduce[type(message)](message)

    # ------------------------------------------------------------------ reading

    @property
    def conversation(self) -> str | None:
        return self.selected.conversation if self.selected is not None else None

    @property
    def busy(self) -> bool:
        return self.run is not None and self.run.state in BUSY

    @property
    def stoppable(self) -> bool:
        return self.run is not None and self.run.state in STOPPABLE

    @property
    def lets_run(self) -> bool:
        """Whether it goes on at a service, and can be let run on there."""
        return self.run is not None and bool(self.run.goes_on_at) and self.run.state == "working"

    @property
    def can_look_again(self) -> bool:
        return self.run is not None and self.run.can_look_again

    @property
    def takes_text(self) -> bool:
        """Whether Enter does anything: while something is busy only where the host says what."""
        return not self.busy or self.busy_enter != ""

    @property
    def asked(self) -> bool:
        """Whether the trusted dialog stands open for something proposed here."""
        return any(pending.kind in ASKING for pending in self.pending.values()) and not self.setup.progress

    @property
    def sending(self) -> bool:
        return any(pending.kind == "send" for pending in self.pending.values())

    @property
    def needs_folder(self) -> bool:
        """Whether nothing can be sent before a folder is chosen."""
        return self.selected is not None and self.selected.folder_use == "required" and not self.selected.folder

    def choice(self) -> dto.Choice | None:
        return self.setup.choice(self.selected.choice) if self.selected is not None else None

    def facts(self) -> dict[str, Any]:
        """What single values the window binds to."""
        selected, run, choice = self.selected, self.run, self.choice()
        conversation = self.conversation
        state = run.state if run is not None else "done"
        last = self.transcript.last()
        told = last is not None and _tells_the_end(last.item)
        isolation = self.isolation
        return {
            "ready": self.hello is not None and selected is not None,
            "profile": self.hello.profile if self.hello else "",
            "otherProfile": self.hello.profile if self.hello and self.hello.profile != USUAL_PROFILE else "",
            "theme": self.appearance.theme,
            "page": self.page,
            "conversation": conversation or "",
            "firstRun": selected is not None and conversation is None and choice is None,
            "empty": selected is not None and selected.total == 0 and self.transcript.total == 0,
            "title": (selected.title if selected else "") or ("New conversation" if selected else ""),
            "sentence": (sentence := _sentence(selected) if selected else ""),
            "sentenceShort": sentence,
            "harness": choice.harness if choice else "",
            "choice": choice.id if choice else "",
            "efforts": list(choice.efforts) if choice else [],
            "effort": selected.effort if selected else "",
            "enter": enter_words(self.enter, self.busy_enter, state, len(self.queue.rows(conversation))),
            "busyEnter": self.busy_enter,
            "takesText": self.takes_text,
            "secret": self.doubted is not None,
            "waiting": self.waiting,
            "reviewable": self.reviewable or "",
            **self.queue.facts(conversation, busy=self.stoppable),
            "runState": state,
            "runWord": WORDS[state],
            "runTone": TONES[state],
            "runIcon": ICONS[state],
            "runSentence": self._run_sentence(told=told),
            "runTold": told and not self.busy,
            "runVisible": run is not None and (state != "done" or run.can_ask_again),
            "busy": self.busy,
            "stoppable": self.stoppable,
            "stopping": state == "stopping",
            "goesOnAt": run.goes_on_at if run is not None else "",
            "letsRun": self.lets_run,
            "detachable": bool(conversation) and not (run is not None and run.goes_on_at),
            "canLookAgain": self.can_look_again,
            "canAskAgain": run is not None and run.can_ask_again and not self.busy,
            "sending": self.sending,
            "problem": self.problem,
            "filter": self.listing.filter,
            "conversations": self.listing.total,
            "listingKnown": self.listing.known,
            "wallLevel": isolation.level if isolation else "unknown",
            "wallSentence": isolation.sentence if isolation else "",
            "wallSystem": isolation.system if isolation else "",
            "testing": self.testing,
            "builtin": tiny.id if (tiny := self.setup.builtin) is not None and tiny.available else "",
            "agent": (selected.agent or "") if selected else "",
            "agentName": selected.agent_name if selected else "",
            "images": selected.images if selected else True,
            "folder": selected.folder if selected else "",
            "folderShort": selected.folder if selected else "",
            "access": selected.access if selected else "",
            "folderUse": selected.folder_use if selected else "never",
            "folderNeeded": self.needs_folder,
            "asked": self.asked,
            **self.setup.facts(),
        }

    @property
    def reviewable(self) -> str | None:
        """The first call on screen or near it that waits for the person."""
        if not self.waiting and (self.run is None or self.run.state != "waiting"):
            return None
        return next(self.transcript.waiting(), None)

    def _run_sentence(self, *, told: bool) -> str:
        if self.run is None or (told and not self.busy):
            return ""
        return self.retry.text if self.retry is not None and self.busy else self.run.sentence

    # ------------------------------------------------------------------ what is done here

    def typing(self, text: str) -> None:
        """The composer holds `text`."""
        self.typed = text
        if self.problem:
            self._well()
            self.changed.add("facts")

    def expect(self, request: int, pending: Pending) -> None:
        """Command `request` is on its way."""
        self.pending[request] = pending
        if pending.kind == "send":
            self._well()
        if pending.kind == "self-test":
            self.testing = True
        self.changed.add("facts")

    def _well(self) -> None:
        """What stood against the message is of no more account."""
        self.problem, self.doubted = "", None

    def show(self, page: Page) -> None:
        self.page = page
        self.changed |= {"facts", "conversations"}

    def say(self, text: str, level: Literal["info", "warning", "error"] = "warning") -> None:
        """A sentence of our own over the conversation."""
        self._local += 1
        notice = dto.Notice(id=f"local-{self._local}", level=level, code="", text=text)
        self.notices[notice.id] = notice
        self.changed.add("notices")

    def dismiss(self, notice: str) -> None:
        if self.notices.pop(notice, None) is not None:
            self.changed.add("notices")

    # ------------------------------------------------------------------ messages

    def _hello(self, message: dto.HostHello) -> None:
        self.hello = message
        self.appearance = dto.Appearance(
            theme=message.theme, dark=message.dark, high_contrast=message.high_contrast,
            reduced_motion=message.reduced_motion, zoom_percent=message.zoom_percent,
        )  # fmt: skip
        self.changed |= {"facts", "theme"}

    def _appearance(self, message: dto.Appearance) -> None:
        self.appearance = message
        self.changed |= {"facts", "theme"}

    def _conversations(self, message: dto.Conversations) -> None:
        listing = self.listing
        if message.filter != listing.filter:
            return  # an answer to what was typed before
        if not listing.known or message.total != listing.total:
            if message.first or not listing.known:
                listing.rows = {}
            listing.total = message.total
            if not message.first:
                listing.rows = {}
        listing.known = True
        for place, row in enumerate(message.rows, message.first):
            listing.rows[place] = row
        self.changed |= {"facts", "conversations"}

    def _conversation_changed(self, message: dto.ConversationChanged) -> None:
        listing, row = self.listing, message.row
        if not listing.known:
            return
        place = listing.place(row.id)
        if place is None and listing.filter:
            return
        rows = [listing.rows[at] for at in sorted(listing.rows) if at != place]
        fresh = place is None
        if len(rows) != listing.total - (0 if fresh else 1):
            rows = self._loaded_front(place)
        position = sum(1 for other in rows if (other.pinned, other.updated_ms) > (row.pinned, row.updated_ms))
        if fresh:
            listing.total += 1
            self._shift(position, row)
        elif place is not None:
            self._move(place, min(position, listing.total - 1), row)
        if self.selected is not None and self.selected.conversation == row.id:
            self._retitle(row.title)
        self.changed |= {"facts", "conversations"}

    def _loaded_front(self, without: int | None) -> list[dto.ConversationRow]:
        """Rows loaded from the top without a hole."""
        front: list[dto.ConversationRow] = []
        for at in range(self.listing.total):
            if at == without:
                continue
            row = self.listing.rows.get(at)
            if row is None:
                break
            front.append(row)
        return front

    def _shift(self, position: int, row: dto.ConversationRow) -> None:
        rows = self.listing.rows
        self.listing.rows = {at + (at >= position): old for at, old in rows.items()}
        self.listing.rows[position] = row

    def _move(self, place: int, position: int, row: dto.ConversationRow) -> None:
        rows = dict(self.listing.rows)
        del rows[place]
        closed = {at - (at > place): old for at, old in rows.items()}
        self.listing.rows = {at + (at >= position): old for at, old in closed.items()}
        self.listing.rows[position] = row

    def _conversation_gone(self, message: dto.ConversationGone) -> None:
        place = self.listing.place(message.id)
        if place is not None:
            rows = self.listing.rows
            del rows[place]
            self.listing.rows = {at - (at > place): row for at, row in rows.items()}
        if place is not None or not self.listing.filter:
            self.listing.total = max(0, self.listing.total - 1)
        self.changed |= {"facts", "conversations"}

    def _retitle(self, title: str) -> None:
        old = self.selected
        if old is None or old.title == title:
            return
        self.selected = replace(old, title=title, draft="")

    def _selected(self, message: dto.Selected) -> None:
        before, first = self.conversation, self.selected is None
        self.selected = message
        self.revision = message.revision
        self._busyness(message)
        if self.problem == FOLDER_FIRST and not self.needs_folder:
            self.problem = ""
        moved = first or before != message.conversation
        if moved:
            self.transcript.reset(message.conversation, message.total)
            self.arrivals += 1
            self.retry = None
            if not self._becomes(before, message):
                self._take_draft(message)
        elif message.conversation is not None:
            self.transcript.resize(max(message.total, self.transcript.total) if self.busy else message.total)
        self.changed |= {"facts", "conversations", "choices", "queue"}

    def _becomes(self, before: str | None, message: dto.Selected) -> bool:
        """Whether the new conversation got its id because of what was just sent from the empty one."""
        if before is not None or message.draft or message.draft_pieces:
            return False
        kinds = {pending.kind for pending in self.pending.values()}
        return "send" in kinds and not kinds & {"select", "new"}

    def _take_draft(self, message: dto.Selected) -> None:
        self._draft = [message.draft]
        self._draft_left = message.draft_pieces
        self._well()
        if not self._draft_left:
            self._put_draft()

    def _draft_piece(self, message: dto.DraftPiece) -> None:
        if self._draft_left <= 0:
            return
        self._draft.append(message.text)
        self._draft_left -= 1
        if not self._draft_left:
            self._put_draft()

    def _put_draft(self) -> None:
        self.typed = "".join(self._draft)
        self._draft = []
        self.changed.add("composer")

    def _run_changed(self, message: dto.RunChanged) -> None:
        if message.conversation != self.conversation:
            return
        self.revision = message.revision
        self._busyness(message)
        self.changed |= {"facts", "queue"}

    def _busyness(self, message: dto.Selected | dto.RunChanged) -> None:
        """How the newest run stands, and what that means for what is typed."""
        self.run = message.run
        self.enter = message.enter
        self.busy_enter = message.busy_enter
        self.waiting = message.waiting

    def _queued(self, message: dto.Queued) -> None:
        self.queue.take(message)
        self.changed |= {"facts", "queue"}

    def _here(self, conversation: str) -> bool:
        return conversation == self.transcript.conversation

    def _items(self, message: dto.Items) -> None:
        if self._here(message.conversation):
            self.transcript.put(message.first, message.items, message.total)
            self.changed.add("facts")

    def _item_added(self, message: dto.ItemAdded) -> None:
        if self._here(message.conversation):
            self.transcript.add(message.index, message.item)
            self.changed.add("facts")

    def _item_delta(self, message: dto.ItemDelta) -> None:
        if self._here(message.conversation):
            self.transcript.delta(message)

    def _item_done(self, message: dto.ItemDone) -> None:
        if self._here(message.conversation):
            self.transcript.done(message)
            self.changed.add("facts")

    def _item_card(self, message: dto.ItemCard) -> None:
        if self._here(message.conversation):
            self.transcript.card(message)
            self.changed.add("facts")

    def _item_text(self, message: dto.ItemText) -> None:
        if self._here(message.conversation):
            self.transcript.text(message)

    def _gap(self, message: dto.Gap) -> None:
        """Its snapshot follows, and the notice that tells the person of it."""

    def _notice(self, message: dto.Notice) -> None:
        if message.code == RETRY:
            self.retry = message
            self.changed.add("facts")
            return
        self.notices[message.id] = message
        self.changed.add("notices")

    def _notice_gone(self, message: dto.NoticeGone) -> None:
        if self.retry is not None and self.retry.id == message.id:
            self.retry = None
            self.changed.add("facts")
        self.dismiss(message.id)

    def _set_up(self, message: Any) -> None:
        self.setup.apply(message)
        self.changed.add("facts")

    def _outcome(self, message: dto.Outcome) -> None:
        pending = self.pending.pop(message.request, None)
        self.changed.add("facts")
        if pending is None:
            return
        if pending.kind == "self-test":
            self.testing = False
        if message.status == "done":
            if pending.kind == "send":
                self._sent(pending)
            return
        if message.code == NOT_DONE:
            return  # the person's own answer in the trusted dialog
        text = message.text or _UNSAID[message.status]
        if pending.kind == "send":
            self.problem = text
            self.doubted = pending if message.code == DOUBTED else None
            return
        self.say(text, "error" if message.status == "failed" else "warning")
        if pending.kind == "edit-queued":
            self.give_back(pending.text)

    def give_back(self, text: str) -> None:
        """Words that were not taken go to the composer, below what stands there."""
        if text.strip():
            self.typed = f"{self.typed.rstrip()}\n\n{text}" if self.typed.strip() else text
            self.changed.add("composer")

    def _sent(self, pending: Pending) -> None:
        """The host has the message: take it out of the composer, leave what was typed after it."""
        self.confirmed = pending.request_id
        if self.typed.startswith(pending.text):
            self.typed = self.typed[len(pending.text) :].lstrip("\n")
            self.changed.add("composer")

    def _run_probes(self, message: dto.RunProbes) -> None:
        self.probes = message

    def _isolation(self, message: dto.Isolation) -> None:
        self.isolation = message
        self.testing = False
        self.changed |= {"facts", "isolation"}

    def _raise(self, message: dto.Raise) -> None:
        self.raised = message.token

    def _close(self, message: dto.Close) -> None:
        self.closed = True


def _tells_the_end(item: dto.Item) -> bool:
    """Whether the transcript itself says how the run ended: a step on the way that failed does not."""
    if item.kind == "notice":
        return not quiet(item)
    return item.kind in ("reply", "reasoning", "user") and item.state in ("stopped", "failed", "unknown")


def _sentence(selected: dto.Selected) -> str:
    """The header's quiet line: who answers, by what means, and what it may touch."""
    agent, sentence = selected.agent_name, selected.sentence
    if not agent or not sentence or selected.choice is None or sentence.startswith(agent):
        return sentence
    return f"{agent} · {sentence}"


_UNSAID = {
    "stale": "The conversation changed in the meantime, so nothing was done. Try again.",
    "refused": "That was not possible.",
    "failed": "That did not work.",
}
