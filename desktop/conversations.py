"""What the person sees as one thread: a conversation, its title, draft, state, sessions and what waits to be said.

Owns the conversations of a profile and the sessions that are open for them. Speaks to the
runtime with full rights; who may ask for what is decided before (`authority`). Must not know
channels or DTOs' bounds (`sanitize`). Invariants: a message is durable before `send` returns;
a run is followed to its end whoever looks; what was begun (a message, a deletion) is brought to its
end though who asked for it is gone; state shown is state known, and what is not known
is shown as unknown.
"""

import asyncio
import contextlib
import functools
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from desktop.agent_stores import AgentStores
from desktop.agents import AgentRefusedError, Agents, Configure, agent_terms, definition, no_configuration
from desktop.choices import HARNESSES, NATIVE, Choice, ChoiceBook, service_of
from desktop.pictures import message_of
from desktop.profile_store import AgentRecord, ConversationRecord, ProfileStore, ProfileTx
from desktop.terms import Terms
from runtime_host.admission import run_images
from runtime_host.capabilities import AgentInspection
from runtime_host.definitions import Environment, ImagePart, SessionOptions, TrustedContext
from runtime_host.errors import (
    AgentBusyError,
    AgentClosedError,
    AgentConfigurationChangedError,
    AgentNativeExecutionError,
    AgentRuntimeError,
    AgentScopeMismatchError,
    AgentSessionRecoveryError,
    StorageError,
)
from runtime_host.loop import held, lane
from runtime_host.loop.gateway import decision_request
from runtime_host.loop.held import DECISION
from runtime_host.policy import Policy
from runtime_host.recovery import look_back
from runtime_host.results import AgentResult
from runtime_host.run import Run
from runtime_host.runtime import NOT_YOURS, AgentRuntime
from runtime_host.secret_shapes import kinds_in, words_of
from runtime_host.session import InspectedState, QueuedMessage, Session, SessionReference, UnresolvedEffect
from runtime_host.storage.base import OPEN_PHASES, AgentStore, AgentTx, ImageUse, ItemHead, ItemRecord, RunRecord
from runtime_host.storage.rows import ApprovalRow, InboxRow
from runtime_host.transcript import OpenItem
from ui.wire.dto import RunState

log = logging.getLogger("remuda.conversations")

T = TypeVar("T")

OWNER = TrustedContext(tenant_id="personal", user_id="me")
TITLE_CHARS = 60
TITLE_SOURCE_CHARS = 4096
UNTITLED = "New conversation"
EXPORT_ITEMS = 32
"""Items read at once when all of them are wanted."""
REST_S = 30.0
"""How long a session stays open when nothing is asked of it: its program, its mounts and its file cost memory. A later
message or decision opens it again, where it was."""
NOTING_S = 2.0
"""How long the end of a stopped run may take to be noted when the host ends."""

UNKNOWN_SENTENCE = (
    "Remuda ended while this reply was coming. What had come is kept. Your message was sent once; whether the "
    "work went on is not known, and nothing was sent again. Look at what it was to change before you ask again."
)
STILL_AT_WORK = (
    "It may still be at work, so this conversation takes no more until Remuda is started again. "
    "Look at what it was to change; meanwhile you can go on in a new conversation."
)
"""Of an unknown outcome in this life of the host: what can be done."""

STAYS_READABLE = "What was said here stays readable. To go on, begin a new conversation."
"""Of a conversation that its harness does not take up again: what can be done."""
_SENTENCE: Final = re.compile(r"(?<=[.!?]) ")

UNCONFIRMED_SENTENCE = (
    "{service} did not confirm. Your message was sent once; whether the work goes on there is not known. Look again to "
    "ask for it; nothing is sent again."
)
"""Of an unknown outcome at a service."""
ELSEWHERE_SENTENCE = "It goes on at {service}, and is not watched from here."

_ENDED: dict[str, RunState] = {
    "detached": "elsewhere",
    "completed": "done",
    "failed": "failed",
    "cancelled": "stopped",
    "incomplete": "incomplete",
    "unknown": "unknown",
    "admitted": "admitting",
    "dispatched": "working",
    "parked": "waiting",
}

WAITS_SENTENCE = "Something waits for your decision. Nothing of it is done before you have looked."

_LEFT: Final = (*OPEN_PHASES, "detached")
"""What the profile says of a conversation whose newest run had not ended."""
_UNCERTAIN = ("dispatched", "unknown")
"""Of a run that no session here drives: sent, and nobody knows what became of it."""

_INCOMPLETE_SENTENCES = {
    "length": "The reply reached the model's length limit and ends here.",
    "runtime_limit": "The reply reached the length limit set for it and ends here.",
    "content_filter": "The provider's content filter ended the reply here.",
}


class Ending(NamedTuple):
    """How the newest run of a conversation stands."""

    run_id: str
    state: RunState
    sentence: str = ""
    code: str = ""
    started_ms: int = 0
    service: str = ""
    """Who runs it, where that is a provider."""


class Queue(NamedTuple):
    """What waits to be said in a conversation. `held`: until the person sends it."""

    messages: tuple[QueuedMessage, ...] = ()
    held: bool = False


class Row(NamedTuple):
    """A conversation as the sidebar shows it."""

    record: ConversationRecord
    subtitle: str
    state: RunState


def what_goes(row: Row) -> tuple[str, ...]:
    """What is deleted with a conversation, one sentence each."""
    driver = str((row.record.choice or {}).get("driver", ""))
    there = HARNESSES[driver].deletes if driver in HARNESSES else ""
    return ("All its messages and replies, from this computer.", *((there,) if there else ()))


class _Message(NamedTuple):
    """What is said, to whom, and how it is to be answered."""

    text: str
    request_id: str
    choice: Choice
    effort: str
    terms: Terms | None
    agent: str | None
    metadata: dict[str, Any] | None
    response_format: dict[str, Any] | None
    pictures: tuple[ImagePart, ...] = ()


class _Live:
    """A conversation with an open session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.run: Run | None = None
        self.stopping = False
        self.busy = asyncio.Lock()
        self.parked = False
        """Whether its run was last seen to wait for a person."""
        self.rest: asyncio.TimerHandle | None = None
        """Puts the session away when nothing is asked of it for a while."""
        self.leave_queue: Callable[[], None] = lambda: None
        self.released = False
        """It is let go of while its run goes on at a service."""
        self.follower: asyncio.Task[None] | None = None

    @property
    def service(self) -> str:
        """Who runs its harness, where that is a provider."""
        return service_of(self.session.options.execution.driver)

    @property
    def agent_id(self) -> str:
        return self.session.reference().agent_id

    @property
    def works(self) -> bool:
        """Whether a run goes on in it, and does not only wait for a person."""
        # One that was decided may have to take its folder first.
        return self.run is not None and (not self.run.parked or self.session.state == "running")

    @property
    def terms(self) -> Terms:
        """What the session may touch."""
        return Terms(self.session.options.policy, self.session.options.environment)

    def stay(self) -> None:
        """Something is asked of it, or it is going anyway."""
        if self.rest is not None:
            self.rest.cancel()
            self.rest = None


class SecretFoundError(AgentRuntimeError):
    """A text looks like it holds a secret, and the person has not said that it goes all the same."""

    code = "SECRET_FOUND"


def check_secret(text: str) -> None:
    """Refuse a text that looks like it holds a secret. Its kind is told, nothing of it.

    Raises:
        SecretFoundError: with a sentence for the person.
    """
    kinds = kinds_in(text)
    if kinds:
        raise SecretFoundError(
            f"This looks like it holds {words_of(kinds)}. It was not sent, and is not kept. Take it out, or send "
            "it anyway: then it is in this conversation, and the model reads it.",
            details={"kinds": list(kinds)},
        )


class ConversationGoneError(AgentRuntimeError):
    code = "CONVERSATION_GONE"


async def _nothing_to_prepare(driver: str) -> None:
    """A harness without a program of its own is always there."""


class Conversations:
    """All conversations of the profile.

    Args:
        profile: where they are kept.
        stores: what was said in them.
        runtime: opens their sessions.
        choices: what messages can go to now.
        agents: what they are begun with.
        prepare: awaited before a harness is used, by its id; refuses one that cannot be.
        configure: what a harness is opened with besides its model.
        rest_s: how long the session of a harness that is a program stays open when nothing is asked of it.
    """

    def __init__(
        self,
        profile: ProfileStore,
        stores: AgentStores,
        runtime: AgentRuntime,
        choices: Callable[[], ChoiceBook],
        agents: Agents,
        *,
        prepare: Callable[[str], Awaitable[None]] = _nothing_to_prepare,
        configure: Configure = no_configuration,
        rest_s: float = REST_S,
    ) -> None:
        self._prepare = prepare
        self._configure = configure
        self._rest_s = rest_s
        self._terms: dict[str, Terms] = {}
        self._putting_away: set[asyncio.Task[None]] = set()
        self._profile = profile
        self._stores = stores
        self._runtime = runtime
        self._choices = choices
        self._agents = agents
        self._live: dict[str, _Live] = {}
        self._endings: dict[str, Ending] = {}
        self._followers: set[asyncio.Task[None]] = set()
        self._works: set[asyncio.Task[Any]] = set()
        self._hinted: set[str] = set()
        self.wakes: dict[str, int] = {}
        """When an agent has to be looked at though nobody asks, by Unix time in ms."""
        self._unwritten: dict[str, str] = {}
        """Drafts that are in no file, because they look like they hold a secret."""
        self._leaving: set[str] = set()
        self._elsewhere: dict[str, str] = {}
        """Conversations whose run was let go of here and goes on at a service, with their agents."""
        self._services: dict[str, str] = {}
        self._accepting: set[str] = set()
        """New ones whose first message is on its way."""
        self._opening: dict[str, asyncio.Lock] = {}
        self.on_rest: Callable[[], None] = lambda: None
        """Called when something asked for has come to its end."""
        self._listeners: list[Callable[[str], None]] = []
        self.on_queue: Callable[[str], None] = lambda conversation_id: None
        """Called when what waits to be said in a conversation has changed."""
        self.on_gone: Callable[[str], None] = lambda session_id: None
        """Called with a session that was deleted."""
        self.on_recovered: Callable[[str], Awaitable[None]] = _nothing_to_prepare
        """Awaited once an agent was taken up again after a start, by its id."""

    def on_change(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener(conversation_id)` whenever one changes or goes; returns the way to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _changed(self, conversation_id: str) -> None:
        for listener in list(self._listeners):
            listener(conversation_id)

    # ------------------------------------------------------------------ reading

    async def rows(self, title_filter: str, first: int, count: int) -> tuple[int, list[Row]]:
        """(how many match, rows `first`…)."""
        records, total = await self._profile.read(lambda tx: tx.conversations(title_filter, first, count))
        return total, [self._row(record) for record in records]

    async def row(self, conversation_id: str) -> Row | None:
        record = await self._profile.read(lambda tx: tx.conversation(conversation_id))
        return self._row(record) if record else None

    def _row(self, record: ConversationRecord) -> Row:
        choice = self._choices().kept(record.choice)
        where = choice.harness_name + " · " + choice.runs if choice else "its model is not set up here any more"
        agent = self._agents.get(record.agent_id)
        if agent is not None and len(self._agents) > 1:
            where = f"{agent.name} · {where}"
        return Row(record, where, self._state(record))

    def _state(self, record: ConversationRecord) -> RunState:
        live = self._live.get(record.conversation_id)
        if live is not None and live.run is not None:
            return _live_state(live)
        ending = self._endings.get(record.conversation_id)
        if ending is not None:
            return ending.state
        if record.conversation_id in self._elsewhere:
            return "elsewhere"
        state = _ENDED.get(record.state, "done")
        if state not in ("admitting", "working", "elsewhere"):
            return state
        # Open here and its run not heard of yet: it is being accepted. Else it was said to be running by a host that
        # ended, and was not taken up by this one: not known.
        return "admitting" if record.conversation_id in self._accepting else "unknown"

    async def whole(self) -> list[ConversationRecord]:
        """All there are, put away or not, by agent and then in the order they were begun."""

        def read(tx: ProfileTx) -> list[ConversationRecord]:
            return [record for agent in tx.agents() for record in tx.conversations_of(agent.agent_id)]

        return await self._profile.read(read)

    async def names(self) -> list[str]:
        """The ids of all conversations."""
        records, _ = await self._profile.read(lambda tx: tx.conversations("", 0, 1_000_000))
        return [record.conversation_id for record in records]

    def choice_of(self, record: ConversationRecord) -> tuple[Choice | None, str]:
        """(the choice a conversation is bound to, its effort)."""
        effort = str((record.choice or {}).get("effort", ""))
        return self._choices().kept(record.choice), effort

    def live_run(self, conversation_id: str) -> Run | None:
        """The run that goes on now."""
        live = self._live.get(conversation_id)
        return live.run if live else None

    def running(self) -> list[str]:
        """Conversations with a run that goes on now, those that wait for a person not among them."""
        return [name for name, live in self._live.items() if live.works]

    def agent_of(self, conversation_id: str) -> str | None:
        """The agent of a conversation whose session is open."""
        live = self._live.get(conversation_id)
        return live.agent_id if live is not None else None

    def held_here(self) -> list[str]:
        """Those of them that would end or wait if the host ended: what works at a service needs it for tools only."""
        return [name for name in self.running() if not (live := self._live[name]).service or self._has_tools(live)]

    def _has_tools(self, live: _Live) -> bool:
        agent = self._agents.get(live.agent_id)
        return bool(live.session.definition.tools) or (agent is not None and bool(agent.uses))

    def at_services(self) -> dict[str, int]:
        """How many runs go on at each service, watched or not."""
        drivers = [live.service for live in self._live.values() if live.works and live.service]
        found = [*drivers, *(service for name in self._elsewhere if (service := self._services.get(name)))]
        return {service: found.count(service) for service in dict.fromkeys(found)}

    async def count_by_driver(self) -> dict[str, int]:
        """How many conversations have a session of each driver."""
        return await self._profile.read(lambda tx: tx.count_by_driver())

    @property
    def busy(self) -> bool:
        """Whether a run goes on that needs this host, or a message or a deletion is on its way: it is not to end."""
        return bool(self._works) or bool(self.held_here())

    async def terms_of(self, conversation_id: str) -> Terms | None:
        """What the session of a conversation may touch, as it was opened; None when it has none."""
        live = self._live.get(conversation_id)
        if live is not None:
            return live.terms
        if conversation_id not in self._terms:
            place = await self._place(conversation_id)
            if place is None:
                return None
            session_id, store = place
            record = await store.read(lambda tx: tx.session(session_id))
            if record is None:
                return None
            policy = Policy.model_validate(record.options["policy"])
            self._terms[conversation_id] = Terms(policy, Environment.model_validate(record.options["environment"]))
        return self._terms[conversation_id]

    async def change_terms(self, conversation_id: str, terms: Terms) -> None:
        """Open the session of a conversation anew, in which nothing was said yet, on other terms.

        Raises:
            AgentRuntimeError: something was said, or the terms are refused; it stays as it is.
        """
        await self._finish(self._change_terms(conversation_id, terms))

    async def _change_terms(self, conversation_id: str, terms: Terms) -> None:
        live = await self._open(conversation_id)
        async with live.busy:
            record = await self._profile.read(lambda tx: tx.conversation(conversation_id))
            if record is None or await live.session.count_items() or live.run is not None:
                raise AgentRuntimeError(
                    "A conversation keeps the folder it began with. Begin a new one to work in another.",
                    code="SESSION_BOUND",
                )
            live.stay()
            options = live.session.options.model_copy(update={"policy": terms.policy, "environment": terms.environment})
            session = await self._runtime.create_agent(live.session.definition).open_session(options)
            reference = session.reference().model_dump(mode="json")
            before = live.session.reference()
            await self._profile.transact(
                lambda tx: tx.add_conversation_session(conversation_id, session.session_id, reference)
            )
            live.leave_queue()
            self._adopt(conversation_id, session)
            await self._runtime.delete_session(before, context=OWNER)
        self._changed(conversation_id)

    async def ending(self, conversation_id: str) -> Ending | None:
        """How the newest run stands; None when there was none."""
        live = self._live.get(conversation_id)
        if live is not None and live.run is not None:
            state, started = _live_state(live), live.run.created_ms
            words = WAITS_SENTENCE if state == "waiting" else ""
            return Ending(live.run.run_id, state, words, started_ms=started, service=live.service)
        if conversation_id in self._endings:
            return self._endings[conversation_id]
        place = await self._place(conversation_id)
        if place is None:
            return None
        session_id, store = place
        runs = await store.read(lambda tx: tx.runs(session_id))
        if not runs:
            return None
        service = await self.service_of(conversation_id)
        if conversation_id in self._elsewhere and runs[-1].phase in OPEN_PHASES:
            words = ELSEWHERE_SENTENCE.format(service=service)
            return Ending(runs[-1].run_id, "elsewhere", words, started_ms=runs[-1].created_ms, service=service)
        ending = self._endings[conversation_id] = _ending_of_record(runs[-1], service)
        return ending

    async def service_of(self, conversation_id: str) -> str:
        """Who runs the harness of a conversation, where that is a provider; empty for this computer."""
        live = self._live.get(conversation_id)
        if live is not None:
            return live.service
        if conversation_id not in self._services:
            reference = await self._reference(conversation_id)
            self._services[conversation_id] = service_of(reference.driver_id) if reference is not None else ""
        return self._services[conversation_id]

    async def items(
        self, conversation_id: str, first: int, count: int, preview_chars: int
    ) -> tuple[int, list[ItemHead]]:
        """(how many there are, items `first`…), open ones with their text as it is now."""
        place = await self._place(conversation_id)
        if place is None:
            return 0, []
        session_id, store = place
        total, heads = await store.read(
            lambda tx: (tx.count_items(session_id), _told_since(tx, tx.items(session_id, first, count, preview_chars)))
        )
        run = self.live_run(conversation_id)
        if run is None:
            return total, heads
        # What is being written is newer in the run than in the store, or not in the store yet.
        by_position = {head.position: head for head in heads}
        for item in run.open_items():
            total = max(total, item.position + 1)
            if first <= item.position < first + count:
                by_position[item.position] = _open_head(item, run, session_id, preview_chars)
        return total, [by_position[position] for position in sorted(by_position)]

    async def paused_card(self, conversation_id: str, operation_id: str) -> ItemHead | None:
        """The item of a call whose harness was told to expect a message, with what was decided of it."""
        place = await self._place(conversation_id)
        return None if place is None else await place[1].read(lambda tx: held.paused_card(tx, operation_id))

    async def item_text(self, conversation_id: str, item_id: str, at: int, count: int) -> tuple[str, bool, str] | None:
        """(characters `at`…, whether that is the end, the item's kind); None when it is not of this conversation."""
        run = self.live_run(conversation_id)
        if run is not None:
            for item in run.open_items():
                if item.item_id == item_id:
                    return item.text[at : at + count], at + count >= len(item.text), item.kind
        place = await self._place(conversation_id)
        if place is None:
            return None
        session_id, store = place
        record = await store.read(lambda tx: tx.item(item_id))
        if record is None or record.session_id != session_id:
            return None
        return record.text[at : at + count], at + count >= len(record.text), record.kind

    async def all_items(self, conversation_id: str) -> AsyncIterator[ItemRecord]:
        """The whole transcript, as far as it is durable."""
        sessions = await self._profile.read(lambda tx: tx.conversation_sessions(conversation_id))
        for session in sessions:
            store = await self._stores.open(SessionReference.model_validate(session.reference).agent_id)
            first = 0
            while page := await store.read(functools.partial(_page, session_id=session.session_id, first=first)):
                for item in page:
                    yield item
                first += len(page)

    async def pictures(self, conversation_id: str) -> AsyncIterator[tuple[ImageUse, bytes]]:
        """The pictures of a conversation's messages, each as often as it was sent."""
        sessions = await self._profile.read(lambda tx: tx.conversation_sessions(conversation_id))
        for session in sessions:
            store = await self._stores.open(SessionReference.model_validate(session.reference).agent_id)
            for use in await store.read(functools.partial(_image_uses, session_id=session.session_id)):
                read = functools.partial(_image, session_id=session.session_id, digest=use.digest)
                if (data := await store.read(read)) is not None:
                    yield use, data

    async def _place(self, conversation_id: str) -> tuple[str, AgentStore] | None:
        """(session, store that holds it) of a conversation; None when it has none."""
        reference = await self._reference(conversation_id)
        if reference is None:
            return None
        return reference.session_id, await self._stores.open(reference.agent_id)

    async def _reference(self, conversation_id: str) -> SessionReference | None:
        live = self._live.get(conversation_id)
        if live is not None:
            return live.session.reference()
        sessions = await self._profile.read(lambda tx: tx.conversation_sessions(conversation_id))
        return SessionReference.model_validate(sessions[-1].reference) if sessions else None

    async def reference(self, conversation_id: str) -> SessionReference:
        """Where the session of a conversation is found again.

        Raises:
            ConversationGoneError: it has none.
        """
        reference = await self._reference(conversation_id)
        if reference is None:
            raise ConversationGoneError("This conversation is not there any more.")
        return reference

    async def standing(self, conversation_id: str) -> InspectedState:
        """How the session of a conversation stands. Opens nothing and sends nothing."""
        live = self._live.get(conversation_id)
        if live is not None:
            return live.session.inspect_state()
        reference = await self.reference(conversation_id)
        session_id, store = reference.session_id, await self._stores.open(reference.agent_id)
        runs, calls, past = await store.read(
            lambda tx: (tx.runs(session_id), tx.unresolved_tool_calls(session_id), look_back(tx, session_id))
        )
        unknown = [UnresolvedEffect.of_run(run.run_id, run.finished_ms) for run in runs[-1:] if run.phase in _UNCERTAIN]
        unknown += map(UnresolvedEffect.of_call, calls)
        return InspectedState(
            connection="detached",
            activity="unknown" if unknown else "idle",
            unresolved_effects=tuple(unknown),
            history_gap=any(run.phase != "admitted" for run in runs),
            quarantined=self._runtime.backend.is_quarantined(session_id),
            salvaged_from=past.salvaged_from or None,
        )

    async def find_run(self, run_id: str) -> tuple[str, SessionReference, Run]:
        """(conversation, reference, run) of a run by its id: the live one, or its saved outcome. Sends nothing.

        Raises:
            AgentRuntimeError: there is no such run.
        """
        record = await self._run_record(run_id)
        by_session = await self._profile.read(lambda tx: tx.sessions_to_conversations())
        conversation_id = by_session.get(record.session_id) if record is not None else None
        if record is None or conversation_id is None:
            raise AgentRuntimeError(f"There is no run {run_id}.", code="RUN_UNKNOWN_HERE")
        live = self._live.get(conversation_id)
        if live is not None and live.session.session_id == record.session_id:
            return conversation_id, live.session.reference(), await live.session.get_run(run_id)
        sessions = await self._profile.read(lambda tx: tx.conversation_sessions(conversation_id))
        [reference] = [session.reference for session in sessions if session.session_id == record.session_id]
        run = Run.restored(record, reference=reference)
        return conversation_id, SessionReference.model_validate(reference), run

    async def _run_record(self, run_id: str) -> RunRecord | None:
        counted = await self._agents.count_conversations()
        for agent_id in [name for name, count in counted.items() if count]:
            store = await self._stores.open(agent_id)
            record = await store.read(lambda tx: tx.run(run_id))
            if record is not None:
                return record
        return None

    async def inspect(
        self, choice: Choice, effort: str, terms: Terms | None = None, agent: str | None = None
    ) -> AgentInspection:
        """What a session with this choice would be. Opens nothing and sends nothing."""
        await self._prepare(choice.driver)
        record = self._agent(agent)
        options = self._options(record, choice, effort, terms)
        return await self._runtime.create_agent(definition(record)).inspect(options)

    def _options(self, agent: AgentRecord, choice: Choice, effort: str, terms: Terms | None) -> SessionOptions:
        on = terms or agent_terms(agent, choice=choice)
        return _options(choice, effort, on, self._configure(choice.driver, on))

    def _agent(self, agent_id: str | None) -> AgentRecord:
        record = self._agents.current if agent_id is None else self._agents.find(agent_id)
        if record.agent_id in self._leaving:
            raise AgentRefusedError(f"The agent {record.name} is being deleted.", code="AGENT_UNKNOWN")
        return record

    # ------------------------------------------------------------------- drafts

    async def draft(self, conversation_id: str | None) -> str:
        """The text kept for the composer."""
        unwritten = self._unwritten.get(conversation_id or "")
        if unwritten is not None:
            return unwritten
        text = await self._profile.read(lambda tx: tx.draft(conversation_id or ""))
        return text or ""

    async def keep_draft(self, conversation_id: str | None, text: str) -> None:
        """Keep what stands in the composer: in memory alone while it looks like it holds a secret."""
        key = conversation_id or ""
        if kinds_in(text):
            # What was written of it before may be the beginning of it.
            self._unwritten[key] = text
            text = ""
        else:
            self._unwritten.pop(key, None)
        await self._profile.transact(lambda tx: _put_draft(tx, key, text))

    # ------------------------------------------------------------------ writing

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this to its end, also when who asked for it goes away meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        self._works.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    def _finished(self, task: "asyncio.Task[Any]") -> None:
        self._works.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            # Told to who asked, if they are still there.
            log.info("something asked of a conversation was not done: %s", type(fault).__name__)
        self.on_rest()

    async def send(
        self,
        conversation_id: str | None,
        text: str,
        *,
        request_id: str,
        choice: Choice,
        effort: str,
        composed: bool = False,
        terms: Terms | None = None,
        agent: str | None = None,
        metadata: dict[str, Any] | None = None,
        response_format: dict[str, Any] | None = None,
        pictures: tuple[ImagePart, ...] = (),
        anyway: bool = False,
    ) -> tuple[str, Run]:
        """Say something; returns (conversation, run) once the message is on disk.

        Args:
            conversation_id: None begins a conversation.
            text: what is said.
            request_id: a repeated one is the same run.
            choice: what it goes to.
            effort: how hard the model is to think, "" for its own measure.
            composed: the text is what the composer holds; it is kept as the draft until it is accepted.
            terms: what a new conversation's session is opened on, else as its agent says; of one that is there,
                what it must be on.
            agent: what a new conversation is begun with, by its id; None for the current one.
            metadata: kept with the request.
            response_format: what the reply has to be, where it is not to be text.
            pictures: go with the words, or alone.
            anyway: though it looks like it holds a secret.

        Raises:
            SecretFoundError: it looks like it holds a secret; nothing was kept.
            AgentRuntimeError: nothing was accepted; the text is still the caller's.
        """
        _check_request(request_id)
        if not anyway:
            check_secret(text)
        message = _Message(text, request_id, choice, effort, terms, agent, metadata, response_format, pictures)
        sent = await self._finish(self._send(conversation_id, message, composed=composed))
        if composed:
            self._unwritten.pop(conversation_id or "", None)
        return sent

    async def _send(self, conversation_id: str | None, message: "_Message", *, composed: bool) -> tuple[str, Run]:
        text, choice = message.text, message.choice
        if not text.strip() and not message.pictures:
            raise AgentRuntimeError("There is nothing to send.", code="MESSAGE_EMPTY")
        if not choice.available:
            raise AgentRuntimeError(choice.unavailable_because, code="CHOICE_UNAVAILABLE")
        draft = (conversation_id or "") if composed else None
        if draft is not None:
            # Ahead of everything else: whatever ends the host before the message is accepted, it is not lost.
            await self._profile.transact(lambda tx: _put_draft(tx, draft, text))
        if conversation_id is not None:
            return await self._say(conversation_id, message, draft)
        conversation_id = await self._begin(
            title_of(text), choice, message.effort, message.terms, message.agent, state="admitted"
        )
        try:
            # What it is opened on was just said; a folder is kept as what its name leads to.
            return await self._say(conversation_id, message._replace(terms=None), draft)
        except StorageError:
            # Whether the message is on disk shows when the file is read again.
            raise
        except AgentRuntimeError:
            await self._delete(conversation_id)
            raise
        finally:
            self._accepting.discard(conversation_id)

    async def _say(self, conversation_id: str, message: "_Message", draft: str | None) -> tuple[str, Run]:
        text, choice, effort = message.text, message.choice, message.effort
        async with self._at_hand(conversation_id) as live:
            if live.run is not None:
                known = await live.session.find_request(message.request_id)
                if known is None:
                    raise AgentBusyError(
                        "This conversation waits for your decision. Decide first, or stop it."
                        if live.run.parked
                        else "A reply is still coming. Stop it first, or wait until it has ended."
                    )
            await self._hint_open(live.agent_id)
            bound = live.session.options.execution
            _check_bound(live.session.options, choice, message.terms)
            if live.session.inspect_state().unresolved_effects:
                # Saying something is also asking what became of what is in the way.
                await live.session.reconcile()
            reasoning = choice.execution(effort).reasoning
            try:
                run = await live.session.run(
                    message_of(text, message.pictures),
                    request_id=message.request_id,
                    model=choice.model if choice.model != bound.model else None,
                    reasoning=reasoning if reasoning != bound.reasoning else None,
                    metadata=message.metadata,
                    response_format=message.response_format,
                )
            except AgentSessionRecoveryError as unknown:
                if live.service or not live.session.inspect_state().quarantined:
                    raise
                raise AgentSessionRecoveryError(
                    f"What became of the last message is not known. {STILL_AT_WORK}",
                    session_id=unknown.session_id,
                    run_id=unknown.run_id,
                    details=unknown.details,
                ) from unknown
            if live.run is None:
                self._goes_on(conversation_id, live, run)
        now = _now_ms()
        # A repeated request may be of a run that ended long ago: that is how it stands.
        phase: dict[str, object] = {} if run.done else {"state": "dispatched"}

        def touch(tx: ProfileTx) -> None:
            record = tx.conversation(conversation_id)
            if record is not None:
                title = record.title if record.title != UNTITLED else title_of(text)
                # What is named for one message holds for that one; what the others go to is chosen by `rebind`.
                tx.put_conversation(_with(record, title=title, updated_ms=now, **phase))
            if draft is not None:
                tx.put_draft(draft, "")

        await self._profile.transact(touch)
        self._changed(conversation_id)
        return conversation_id, run

    async def begin(self, choice: Choice, effort: str, terms: Terms | None = None, agent: str | None = None) -> str:
        """Open a conversation in which nothing is said yet; returns its id."""
        if not choice.available:
            raise AgentRuntimeError(choice.unavailable_because, code="CHOICE_UNAVAILABLE")
        conversation_id = await self._begin(UNTITLED, choice, effort, terms, agent, state="")
        self._changed(conversation_id)
        await self._hint_closed(self._live[conversation_id].agent_id)
        return conversation_id

    async def resume(self, conversation_id: str) -> InspectedState:
        """Open the session of a conversation again, with its rights looked at anew.

        What tools may have done is asked of their source; nothing is executed or sent again.
        """
        return await self._finish(self._look_again(conversation_id))

    async def _look_again(self, conversation_id: str) -> InspectedState:
        live = await self._open(conversation_id)
        session = live.session
        if session.inspect_state().unresolved_effects:
            await session.reconcile()
            run = session.active_run
            if run is not None and self._live.get(conversation_id) is live:
                # It was found out that it goes on.
                self._goes_on(conversation_id, live, run)
        if live.run is None and live.service:
            # What it came to may have been found out meanwhile.
            self._endings.pop(conversation_id, None)
            ending = await self.ending(conversation_id)
            if ending is not None:
                await self._record_state(conversation_id, ending.state)
        self._changed(conversation_id)
        return session.inspect_state()

    async def resume_reference(self, reference: SessionReference) -> str:
        """Open the session that a reference names; returns the conversation it belongs to, a new one if to none."""
        by_session = await self._profile.read(lambda tx: tx.sessions_to_conversations())
        conversation_id = by_session.get(reference.session_id)
        if self._agents.get(reference.agent_id) is None:
            # Nothing is opened, and no folder made, for an agent that only a reference speaks of.
            raise AgentScopeMismatchError(NOT_YOURS)
        if conversation_id is None:
            session = await self._taken_up(reference)
            bound = session.options.execution
            first = await session.items(0, 1, TITLE_CHARS * 4)
            conversation_id = await self._keep(
                session,
                title_of(first[0].text) if first else UNTITLED,
                {"driver": bound.driver, "connector": bound.connector, "model": bound.model, "effort": ""},
                state="",
            )
            self._changed(conversation_id)
        else:
            await self._open(conversation_id)
        return conversation_id

    async def _begin(
        self, title: str, choice: Choice, effort: str, terms: Terms | None, agent: str | None, state: str
    ) -> str:
        await self._prepare(choice.driver)
        record = self._agent(agent)
        options = self._options(record, choice, effort, terms)
        # The session keeps this definition: what is edited later holds for the sessions after it.
        session = await self._runtime.create_agent(definition(record)).open_session(options)
        return await self._keep(session, title, choice.record(effort), state)

    async def _keep(self, session: Session, title: str, choice: dict[str, Any], state: str) -> str:
        conversation_id = "c" + secrets.token_hex(12)
        now = _now_ms()
        agent_id = session.reference().agent_id
        record = ConversationRecord(
            conversation_id=conversation_id,
            title=title,
            pinned=False,
            archived=False,
            created_ms=now,
            updated_ms=now,
            agent_id=agent_id,
            choice=choice,
            state=state,
        )
        reference = session.reference().model_dump(mode="json")

        def begin(tx: ProfileTx) -> None:
            if not tx.has_agent(agent_id):
                raise ConversationGoneError("The agent of this conversation was deleted meanwhile.")
            tx.put_conversation(record)
            tx.add_conversation_session(conversation_id, session.session_id, reference)
            tx.put_agent_hint(agent_id, True, self.wakes.get(agent_id))

        if state:
            self._accepting.add(conversation_id)
        try:
            await self._profile.transact(begin)
        except BaseException:
            self._accepting.discard(conversation_id)
            raise
        self._hinted.add(agent_id)
        self._adopt(conversation_id, session)
        return conversation_id

    async def _hint_open(self, agent_id: str) -> None:
        # Written before the agent's own commit, so that it errs only towards "look there".
        if agent_id not in self._hinted:
            await self._profile.transact(lambda tx: tx.put_agent_hint(agent_id, True, self.wakes.get(agent_id)))
            self._hinted.add(agent_id)

    async def wake_at(self, agent_id: str, at_ms: int | None) -> None:
        """Keep when an agent has to be looked at, by this host or a later one; None for not at all."""
        if at_ms == self.wakes.get(agent_id):
            return
        if at_ms is None:
            self.wakes.pop(agent_id, None)
        else:
            self.wakes[agent_id] = at_ms
        opened = agent_id in self._hinted
        await self._profile.transact(lambda tx: tx.put_agent_hint(agent_id, opened, at_ms))

    async def _open(self, conversation_id: str) -> _Live:
        lock = self._opening.setdefault(conversation_id, asyncio.Lock())
        async with lock:
            live = self._live.get(conversation_id)
            if live is None:
                sessions = await self._profile.read(lambda tx: tx.conversation_sessions(conversation_id))
                if not sessions:
                    raise ConversationGoneError("This conversation is not there any more.")
                reference = SessionReference.model_validate(sessions[-1].reference)
                live = self._adopt(conversation_id, await self._taken_up(reference))
            return live

    def _adopt(self, conversation_id: str, session: Session) -> _Live:
        """The open session of a conversation: what goes on or waits in it, and what is begun of its queue."""
        live = self._live[conversation_id] = _Live(session)
        self._elsewhere.pop(conversation_id, None)

        def queue_changed(run: Run | None) -> None:
            if run is not None and self._live.get(conversation_id) is live:
                self._goes_on(conversation_id, live, run)
            self.on_queue(conversation_id)

        live.leave_queue = session.when_queue_changes(queue_changed)
        run = session.active_run or session.parked_run
        if run is not None and not run.done:
            self._goes_on(conversation_id, live, run)
        self._rest_soon(conversation_id, live)
        return live

    def _goes_on(self, conversation_id: str, live: _Live, run: Run) -> None:
        """A run of a conversation goes on or waits: followed to its end, once."""
        if run.done or live.run is run:
            return
        live.run, live.stopping, live.parked = run, False, run.parked
        self._endings.pop(conversation_id, None)
        self._follow(conversation_id, live, run)
        self._changed(conversation_id)

    async def _taken_up(self, reference: SessionReference) -> Session:
        """Open a session again; where its harness cannot, it is said what remains."""
        await self._prepare(reference.driver_id)
        try:
            return await self._runtime.resume_session(reference, context=OWNER)
        except (AgentConfigurationChangedError, AgentNativeExecutionError, AgentSessionRecoveryError) as fault:
            if reference.driver_id == NATIVE:
                raise
            # What the library says of a session in general is said here of the conversation.
            why = [part for part in _SENTENCE.split(fault.message) if "can still be read" not in part]
            raise AgentRuntimeError(
                " ".join((*why, STAYS_READABLE)), code=fault.error_code, details=fault.details
            ) from fault

    @contextlib.asynccontextmanager
    async def _at_hand(self, conversation_id: str) -> AsyncIterator[_Live]:
        """The open session of a conversation, which nobody else asks anything of or puts away meanwhile."""
        while True:
            live = await self._open(conversation_id)
            async with live.busy:
                if self._live.get(conversation_id) is not live:
                    continue
                live.stay()
                try:
                    yield live
                finally:
                    self._rest_soon(conversation_id, live)
                return

    @contextlib.asynccontextmanager
    async def session_at_hand(self, conversation_id: str) -> AsyncIterator[Session]:
        """The open session of a conversation, for something that is no message.

        Raises:
            AgentRuntimeError: it is not there any more, or cannot be opened.
        """
        async with self._at_hand(conversation_id) as live:
            yield live.session

    def _rest_soon(self, conversation_id: str, live: _Live) -> None:
        """Put the session of a program away after a while, unless something is asked of it before."""
        live.stay()
        if not live.works:
            live.rest = asyncio.get_running_loop().call_later(self._rest_s, self._put_away, conversation_id, live)

    def _put_away(self, conversation_id: str, live: _Live) -> None:
        live.rest = None
        task = asyncio.get_running_loop().create_task(self._rest(conversation_id, live))
        self._putting_away.add(task)
        task.add_done_callback(self._putting_away.discard)

    async def _rest(self, conversation_id: str, live: _Live) -> None:
        async with live.busy:
            if self._live.get(conversation_id) is not live or live.works:
                return
            try:
                await live.session.detach()
            except AgentRuntimeError as fault:
                log.info("a session that rests could not be put away: %s", fault.error_code)
                return
            live.leave_queue()
            self._live.pop(conversation_id, None)
        self._changed(conversation_id)

    async def rebind(self, conversation_id: str, choice: Choice, effort: str) -> None:
        """Let the next message of a conversation go to another model of the same connector.

        Raises:
            AgentRuntimeError: the conversation is bound to another connector, which has not seen it.
        """

        def put(tx: ProfileTx) -> None:
            # Read and written in one: a conversation deleted in between would be back, empty.
            record = tx.conversation(conversation_id)
            if record is None:
                raise ConversationGoneError("This conversation is not there any more.")
            kept = record.choice or {}
            if (kept.get("driver"), kept.get("connector")) != (choice.driver, choice.connector):
                raise AgentRuntimeError(
                    "This conversation stays with its connector, because another one has not seen it. "
                    "Start a new conversation to use this model.",
                    code="CONVERSATION_BOUND",
                )
            if HARNESSES[choice.driver].fixed and kept != choice.record(effort):
                raise AgentRuntimeError(
                    f"At {choice.service} model and effort stay as the conversation began. Start a new conversation to "
                    "use others.",
                    code="CONVERSATION_BOUND",
                )
            tx.put_conversation(_with(record, choice=choice.record(effort)))

        await self._profile.transact(put)
        self._changed(conversation_id)

    async def ask_again(self, conversation_id: str, *, request_id: str, choice: Choice, effort: str) -> tuple[str, Run]:
        """Send the last message of the person once more, as a new run. Only ever on the person's word."""
        place = await self._place(conversation_id)
        if place is None:
            raise ConversationGoneError("This conversation is not there any more.")
        session_id, store = place
        runs = await store.read(lambda tx: tx.runs(session_id))
        if not runs:
            raise AgentRuntimeError("There is no message to ask again.", code="MESSAGE_EMPTY")
        text = str(runs[-1].input.get("text", ""))
        pictures = await store.read(lambda tx: run_images(tx, runs[-1]))
        return await self.send(
            conversation_id,
            text,
            request_id=request_id,
            choice=choice,
            effort=effort,
            pictures=pictures,
            anyway=True,  # it was sent before
        )

    # ----------------------------------------------------------------- while something goes on

    async def is_busy(self, conversation_id: str) -> bool:
        """Whether a run goes on or waits for the person: what is said now is said to it, or after it."""
        live = self._live.get(conversation_id)
        if live is not None:
            return live.run is not None
        return conversation_id in self._elsewhere or await self._is_parked(conversation_id)

    async def _is_parked(self, conversation_id: str) -> bool:
        record = await self._profile.read(lambda tx: tx.conversation(conversation_id))
        return record is not None and record.state == "parked"

    async def say_meanwhile(
        self,
        conversation_id: str,
        text: str,
        *,
        request_id: str,
        choice: Choice,
        effort: str,
        queue: bool = False,
        composed: bool = False,
        anyway: bool = False,
    ) -> str | None:
        """Say something to what goes on, where that can be, else after it; returns the id under which it waits.

        None when nothing goes on and nothing is queued any more: then it is a message like any other.

        Args:
            conversation_id: in which.
            text: what is said.
            request_id: a repeated one is the same.
            choice: what it goes to when it is sent after what goes on.
            effort: how hard the model is to think then.
            queue: after what goes on, though it could be said to it.
            composed: the text is what the composer holds.
            anyway: though it looks like it holds a secret.

        Raises:
            SecretFoundError: it looks like it holds a secret; nothing was kept.
        """
        _check_request(request_id)
        if not anyway:
            check_secret(text)
        said = await self._finish(
            self._say_meanwhile(conversation_id, text, request_id, choice, effort, queue=queue, composed=composed)
        )
        if composed:
            self._unwritten.pop(conversation_id, None)
        return said

    async def _say_meanwhile(
        self,
        conversation_id: str,
        text: str,
        request_id: str,
        choice: Choice,
        effort: str,
        *,
        queue: bool,
        composed: bool,
    ) -> str | None:
        async with self._at_hand(conversation_id) as live:
            said: str | None = None
            if live.run is not None and not queue and can_steer(live.session):
                try:
                    said = await live.run.steer(text, request_id)
                except AgentClosedError:
                    log.info("what was to be said to a run came after its end")
            elif live.run is not None or (queue and await live.session.queued()):
                said = await self._queue(live, text, request_id, choice, effort)
            if said is not None and composed:
                self._unwritten.pop(conversation_id, None)
                await self._profile.transact(lambda tx: tx.put_draft(conversation_id, ""))
        return said

    async def _queue(self, live: _Live, text: str, request_id: str, choice: Choice | None, effort: str) -> str:
        await self._hint_open(live.agent_id)
        bound = live.session.options.execution
        model, reasoning = None, None
        if choice is not None:
            _check_bound(live.session.options, choice, None)
            model = choice.model if choice.model != bound.model else None
            wanted = choice.execution(effort).reasoning
            reasoning = wanted if wanted != bound.reasoning else None
        kept = await live.session.queue(text, request_id=request_id, model=model, reasoning=reasoning)
        return kept.inbox_id

    async def queued(self, conversation_id: str) -> Queue:
        """What waits to be said, in order. Opens no session."""
        live = self._live.get(conversation_id)
        if live is not None:
            return Queue(await live.session.queued(), live.session.queue_is_held)
        place = await self._place(conversation_id)
        if place is None:
            return Queue()
        session_id, store = place
        messages = await store.read(lambda tx: _queued_messages(tx, session_id))
        ending = await self.ending(conversation_id)
        return Queue(messages, ending is not None and ending.state not in ("done", "incomplete", "waiting"))

    async def change_queue(self, conversation_id: str, change: Callable[[Session], Awaitable[bool]]) -> bool:
        """Change what waits to be said; False when what it is about was said or removed by now."""

        async def work() -> bool:
            async with self._at_hand(conversation_id) as live:
                return await change(live.session)

        return await self._finish(work())

    async def send_queued(self, conversation_id: str, queued_id: str) -> bool:
        """Say something queued now: to the run that goes on where that can be, else as the next one. False: gone."""
        return await self._finish(self._send_queued(conversation_id, queued_id))

    async def _send_queued(self, conversation_id: str, queued_id: str) -> bool:
        async with self._at_hand(conversation_id) as live:
            found = next((each for each in await live.session.queued() if each.inbox_id == queued_id), None)
            if found is None:
                return False
            if live.run is None:
                await self._hint_open(live.agent_id)
                return await live.session.send_queued(queued_id) is not None
            if found.kind == "steer" or found.input is not None or not can_steer(live.session):
                # It is said as soon as that can be; what is queued goes to the front.
                first = next((each for each in await live.session.queued() if each.kind == "follow_up"), None)
                if found.kind == "follow_up" and first is not None and first.inbox_id != queued_id:
                    await live.session.move_queued(queued_id, first.inbox_id)
                return True
            await live.run.steer(found.text, f"now-{queued_id}", taking=queued_id)
            return True

    # ------------------------------------------------------------------------------ decisions

    async def conversation_of(self, session_id: str) -> str | None:
        """The conversation that a session belongs to."""
        by_session = await self._profile.read(lambda tx: tx.sessions_to_conversations())
        return by_session.get(session_id)

    async def expect(self, agent_id: str) -> None:
        """Something of an agent is about to be decided: after a crash it is looked at again."""
        await self._hint_open(agent_id)

    async def settled(self, agent_id: str) -> None:
        """What was decided is carried out, or goes on in a run."""
        await self._hint_closed(agent_id)

    async def take_up(self, conversation_id: str, run_id: str) -> None:
        """Let a run that waited for the person go on."""
        await self._finish(self._take_up(conversation_id, run_id))

    async def _take_up(self, conversation_id: str, run_id: str) -> None:
        async with self._at_hand(conversation_id) as live:
            await self._hint_open(live.agent_id)
            run = await live.session.take_up(run_id)
            self._goes_on(conversation_id, live, run)

    async def say_decision(self, conversation_id: str, operation_id: str, words: str) -> None:
        """Tell a harness what came of a call that it did not wait for: once, after what goes on in it."""
        await self._finish(self._say_decision(conversation_id, operation_id, words))

    async def _say_decision(self, conversation_id: str, operation_id: str, words: str) -> None:
        row = await self.row(conversation_id)
        choice, effort = self.choice_of(row.record) if row is not None else (None, "")
        async with self._at_hand(conversation_id) as live:
            await self._queue(live, words, decision_request(operation_id), choice, effort)

    async def stop(self, conversation_id: str) -> AgentResult | None:
        """Stop the run that goes on; returns when it has stopped. None when none goes on."""
        live = self._live.get(conversation_id)
        if live is None and (conversation_id in self._elsewhere or await self._is_parked(conversation_id)):
            live = await self._open(conversation_id)
        if live is None or live.run is None:
            return None
        run = live.run
        live.stopping = True
        self._changed(conversation_id)
        await run.cancel()
        return await run.result()

    async def detach(self, conversation_id: str) -> None:
        """Let go of the session; it and its transcript stay and can be opened again.

        What works at a service goes on there.

        Raises:
            AgentRuntimeError: a run on this computer goes on and would end with it.
        """
        live = self._live.get(conversation_id)
        if live is None:
            return
        await self._detach(conversation_id, live)
        if conversation_id in self._elsewhere:
            await self._record_state(conversation_id, "elsewhere")
        self._changed(conversation_id)

    async def _detach(self, conversation_id: str, live: _Live) -> None:
        goes_on = live.works and bool(live.service)
        live.released = goes_on
        try:
            await live.session.detach()
        except BaseException:
            live.released = False
            raise
        live.leave_queue()
        live.stay()
        if self._live.get(conversation_id) is live:
            del self._live[conversation_id]
        if goes_on:
            self._elsewhere[conversation_id] = live.agent_id
            self._services[conversation_id] = live.service
            self._endings.pop(conversation_id, None)
            if live.follower is not None:
                # Nobody waits for it here any more, and nothing of it is watched.
                live.follower.cancel()

    async def delete(self, conversation_id: str) -> None:
        """Stop what runs, then remove the conversation with everything it holds, for good."""
        await self._finish(self._delete(conversation_id))

    async def _delete(self, conversation_id: str) -> None:
        live = self._live.get(conversation_id)
        if (live is not None and live.run is not None) or conversation_id in self._elsewhere:
            try:
                await self.stop(conversation_id)
            except AgentSessionRecoveryError:
                log.warning("a run was deleted whose end was not confirmed")
        reference = await self._reference(conversation_id)
        if reference is not None:
            # Without opening it, which would send what still waits; refused while something is not resolved.
            try:
                await self._runtime.delete_session(reference, context=OWNER)
            except AgentScopeMismatchError:
                log.info("a conversation is deleted that outlived its session")
            if (gone := self._live.pop(conversation_id, None)) is not None:
                gone.leave_queue()
                gone.stay()
            self.on_gone(reference.session_id)
        self._terms.pop(conversation_id, None)
        self._services.pop(conversation_id, None)
        self._elsewhere.pop(conversation_id, None)
        await self._profile.transact(lambda tx: tx.delete_conversation(conversation_id))
        self._unwritten.pop(conversation_id, None)
        self._endings.pop(conversation_id, None)
        self._opening.pop(conversation_id, None)
        self._changed(conversation_id)

    async def delete_agent(self, agent_id: str) -> list[str]:
        """Stop what runs, then remove an agent with its conversations and its files; returns the conversations.

        Raises:
            AgentRuntimeError: it stays: it is the only one, or a tool of it may have acted and that is not known.
        """
        return await self._finish(self._delete_agent(agent_id))

    async def _delete_agent(self, agent_id: str) -> list[str]:
        self._agents.check_not_last(agent_id)
        self._leaving.add(agent_id)
        try:
            names = [r.conversation_id for r in await self._profile.read(lambda tx: tx.conversations_of(agent_id))]
            await self._check_resolved(names)
            await self._delete_at_services(names)
            while at_hand := [name for name, live in self._live.items() if live.agent_id == agent_id]:
                await self._let_go(at_hand[0])
            async with self._stores.removing(agent_id):
                # The one commit that decides: before it all is as it was, after it the files only have to go.
                await self._agents.forget(agent_id)
        finally:
            self._leaving.discard(agent_id)
        self._hinted.discard(agent_id)
        for name in names:
            self._endings.pop(name, None)
            self._terms.pop(name, None)
            self._opening.pop(name, None)
            self._changed(name)
        return names

    async def delete_at_services(self) -> None:
        """Delete every conversation of which something is kept at a service, there and here.

        Raises:
            AgentRuntimeError: one could not be deleted; it and those after it stay.
        """
        await self._finish(self._delete_at_services(await self.names()))

    async def _delete_at_services(self, names: Sequence[str]) -> None:
        """What is kept at a service would be there for good once nothing here speaks of it."""
        for name in names:
            if not (service := await self.service_of(name)):
                continue
            try:
                await self._delete(name)
            except AgentRuntimeError as fault:
                raise AgentRuntimeError(
                    f"A conversation could not be deleted at {service}, so it stays, and all that was to go after it. "
                    f"{fault.message}",
                    code=fault.error_code,
                    details=fault.details,
                ) from fault

    async def _check_resolved(self, names: list[str]) -> None:
        for name in names:
            if any(effect.kind == "tool-result" for effect in (await self.standing(name)).unresolved_effects):
                raise AgentRefusedError(
                    "A tool may have acted in a conversation of this agent, and what came of it is not known. "
                    "Open that conversation and find out first. Nothing was deleted.",
                    code="AGENT_UNRESOLVED_EFFECT",
                )

    async def _let_go(self, conversation_id: str) -> None:
        """Stop what runs in a conversation and close its session."""
        live = self._live[conversation_id]
        if live.run is not None:
            try:
                await self.stop(conversation_id)
            except AgentSessionRecoveryError:
                log.warning("a run was deleted whose end was not confirmed")
        # Until the one commit that decides, all can still be as it was; after it the agent's folder goes as a whole.
        live.stay()
        await live.session.destroy(forget=False)
        self._live.pop(conversation_id, None)

    # ---------------------------------------------------------------- following

    def _follow(self, conversation_id: str, live: _Live, run: Run) -> None:
        task = live.follower = asyncio.get_running_loop().create_task(self._until_end(conversation_id, live, run))
        self._followers.add(task)
        task.add_done_callback(self._followers.discard)

    async def _until_end(self, conversation_id: str, live: _Live, run: Run) -> None:
        leave = run.journal.subscribe(lambda: self._look(conversation_id, live, run))
        self._look(conversation_id, live, run)
        try:
            ending = ending_of_result(await run.result(), run.created_ms)._replace(service=live.service)
        except AgentSessionRecoveryError as unknown:
            if live.released:
                return
            if live.parked:
                # Its session was put away; it waits on in the agent's file.
                return
            ending = Ending(run.run_id, "unknown", unknown.message, unknown.error_code, run.created_ms, live.service)
            # The session takes no further run; the next message opens it anew from disk.
            await live.session.destroy(forget=False)
            live.leave_queue()
            self._live.pop(conversation_id, None)
        finally:
            leave()
        if live.run is run:
            live.run = None
            live.stopping = live.parked = False
        if self._live.get(conversation_id) is live:
            self._rest_soon(conversation_id, live)
        self._endings[conversation_id] = ending
        if live.run is None:
            # (Else the next of the queue goes on already.)
            await self._record_state(conversation_id, ending.state)
        self._changed(conversation_id)
        self.on_queue(conversation_id)
        if not await self._flows(live):
            await self._hint_closed(live.agent_id)

    async def _flows(self, live: _Live) -> bool:
        """Whether something queued is about to be sent."""
        try:
            return not live.session.queue_is_held and any(
                each.kind == "follow_up" for each in await live.session.queued()
            )
        except AgentRuntimeError:
            return False

    def _look(self, conversation_id: str, live: _Live, run: Run) -> None:
        """A run was heard of: whether it waits for a person now, or goes on again."""
        if live.run is run and run.parked != live.parked and not run.done:
            live.parked = run.parked
            task = asyncio.get_running_loop().create_task(self._note_parked(conversation_id, live, run))
            self._putting_away.add(task)
            task.add_done_callback(self._putting_away.discard)

    async def _note_parked(self, conversation_id: str, live: _Live, run: Run) -> None:
        parked = run.parked
        if live.run is not run:
            return
        if parked:
            live.stopping = False
            self._rest_soon(conversation_id, live)
        else:
            live.stay()
        await self._record_state(conversation_id, "waiting" if parked else "working")
        self._changed(conversation_id)
        if parked:
            await self._hint_closed(live.agent_id)

    async def _record_state(self, conversation_id: str, state: RunState) -> None:
        phase = {v: k for k, v in _ENDED.items()}[state]

        def put(tx: ProfileTx) -> None:
            record = tx.conversation(conversation_id)
            if record is not None:
                tx.put_conversation(_with(record, state=phase))

        await self._profile.transact(put)

    async def _hint_closed(self, agent_id: str) -> None:
        """Nothing of this agent needs to be looked at after a crash any more, unless a run of it goes on."""
        at_work = any(live.works and live.agent_id == agent_id for live in self._live.values())
        if agent_id in self._hinted and not at_work and agent_id not in self._elsewhere.values():
            self._hinted.discard(agent_id)
            await self._profile.transact(lambda tx: tx.put_agent_hint(agent_id, False, self.wakes.get(agent_id)))

    async def recover(self) -> None:
        """After a start: bring every run that was open when the host ended to where it is known to be.

        One that was accepted and never sent is sent now; of one that was sent, what became of it is
        unknown, and it is not sent again. An agent whose file cannot be read keeps no other from this.
        """
        hints = await self._profile.read(lambda tx: tx.agent_hints())
        fault: AgentRuntimeError | None = None
        wakes = {name: hint.soonest_wake_at_ms for name, hint in hints.items()}
        self.wakes |= {name: at_ms for name, at_ms in wakes.items() if at_ms is not None}
        for agent_id in [agent.agent_id for agent in self._agents if agent.agent_id in hints]:
            if not hints[agent_id].open:
                continue
            try:
                await self._recover(agent_id)
            except AgentRuntimeError as met:
                fault = met
        if fault is not None:
            raise fault

    async def _recover(self, agent_id: str) -> None:
        left = await self._profile.read(lambda tx: _left_open(tx, agent_id))
        self._hinted.add(agent_id)
        by_session = await self._profile.read(lambda tx: tx.sessions_to_conversations())
        for driver_id in {reference.driver_id for name in left if (reference := await self._reference(name))}:
            with contextlib.suppress(AgentRuntimeError):
                # One that cannot be used is said by its session.
                await self._prepare(driver_id)
        recovered = await self._runtime.recover(agent_id)
        touched = {name: None for run in recovered if (name := by_session.get(run.session_id)) is not None}
        for run in recovered:
            conversation_id = by_session.get(run.session_id)
            if conversation_id is not None and run.run is not None and run.session is not None:
                self._goes_on(conversation_id, self._adopt(conversation_id, run.session), run.run)
        for conversation_id in await self._queues_of(agent_id, by_session):
            # The runtime has opened those of which it sends something.
            await self._open(conversation_id)
        await self.on_recovered(agent_id)
        for conversation_id in {**touched, **dict.fromkeys(name for name in left if name not in self._live)}:
            await self._settle(conversation_id)
            self._changed(conversation_id)
        await self._hint_closed(agent_id)

    async def _queues_of(self, agent_id: str, by_session: dict[str, str]) -> list[str]:
        """Conversations that are not open here and in which something queued is to be sent."""
        store = await self._stores.open(agent_id)
        rows = await store.read(lambda tx: tx.rows(InboxRow, state="waiting"))
        sessions = {row.session_id for row in rows if row.kind == "follow_up"}
        opened = {name for name in sessions if self._runtime.backend.open_session(name) is not None}
        names = [by_session[session_id] for session_id in sorted(opened) if session_id in by_session]
        return [name for name in names if name not in self._live]

    async def _settle(self, conversation_id: str) -> None:
        """Make what the profile says of a conversation agree with what the agent's file knows."""
        place = await self._place(conversation_id)
        runs: list[RunRecord] = []
        said: list[InboxRow] = []
        if place is not None:
            session_id, store = place
            runs, said = await store.read(lambda tx: (tx.runs(session_id), tx.rows(InboxRow, session_id=session_id)))
        if not runs:
            # Begun, and the host ended before its first message was accepted: that is a draft, not a conversation.
            await self.delete(conversation_id)
            return
        # Said to a run that went on, or after it, is accepted as well.
        newest = max(said, key=lambda row: row.created_ms, default=None)
        sent = {runs[-1].input.get("text"), newest.text if newest is not None else None} - {None}
        keys = [conversation_id, ""] if len(runs) == 1 else [conversation_id]

        def drop(tx: ProfileTx) -> None:
            # Accepted just before the host ended: the message is there, once.
            for key in keys:
                if tx.draft(key) in sent:
                    tx.put_draft(key, "")

        await self._profile.transact(drop)
        ending = await self.ending(conversation_id)
        await self._record_state(conversation_id, ending.state if ending else "unknown")

    async def wait_until_quiet(self, stop: asyncio.Event) -> None:
        """Return when no run goes on any more that needs this host, or when `stop` is set."""
        while (ending := self._followers - self._let_run_on()) and not stop.is_set():
            stopped = asyncio.ensure_future(stop.wait())
            await asyncio.wait({stopped, *ending}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()

    def _let_run_on(self) -> set[asyncio.Task[None]]:
        """Those who follow what goes on at a service whether this host is there or not."""
        followed = [live for live in self._live.values() if live.works and live.service and not self._has_tools(live)]
        return {live.follower for live in followed if live.follower is not None}

    async def aclose(self) -> None:
        """Finish what was begun, stop what runs and note how it ended."""
        await asyncio.gather(*self._works, return_exceptions=True)
        for live in self._live.values():
            live.stay()
        await asyncio.gather(*self._putting_away, return_exceptions=True)
        leaving = [self._leave(name, live) for name, live in list(self._live.items())]
        await asyncio.gather(*leaving, return_exceptions=True)
        if self._followers:
            await asyncio.wait(set(self._followers), timeout=NOTING_S)
        for task in list(self._followers):
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        self._live.clear()

    async def _leave(self, conversation_id: str, live: _Live) -> None:
        """Let go of a session as the host ends: what works at a service goes on there, all else is stopped."""
        if live.service:
            await self._detach(conversation_id, live)
        else:
            await live.session.destroy(forget=False)


def _live_state(live: _Live) -> RunState:
    if live.stopping:
        return "stopping"
    return "waiting" if live.run is not None and live.run.parked else "working"


def can_steer(session: Session) -> bool:
    """Whether what is said to a run of a session reaches its model before the run has ended."""
    capability = session.inspection.capabilities.get("run.steer")
    return capability is not None and capability.support != "unsupported"


def _queued_messages(tx: AgentTx, session_id: str) -> tuple[QueuedMessage, ...]:
    return tuple(
        QueuedMessage(
            row.inbox_id,
            "steer" if row.kind == "steer" else "follow_up",
            row.text,
            row.created_ms,
            row.extra.get("input"),
        )
        for row in lane.waiting(tx, session_id)
    )


def _page(tx: AgentTx, *, session_id: str, first: int) -> list[ItemRecord]:
    heads = tx.items(session_id, first, EXPORT_ITEMS, 0)
    items = [item for head in heads if (item := tx.item(head.item_id)) is not None]
    return [msgspec.structs.replace(item, about=held.as_decided(tx, item.kind, item.about)) for item in items]


def _image_uses(tx: AgentTx, session_id: str) -> list[ImageUse]:
    return tx.images(session_id)


def _image(tx: AgentTx, session_id: str, digest: str) -> bytes | None:
    return tx.image(session_id, digest)


def _options(choice: Choice, effort: str, terms: Terms, config: Mapping[str, Any]) -> SessionOptions:
    execution = choice.execution(effort, config)
    return SessionOptions(execution=execution, context=OWNER, policy=terms.policy, environment=terms.environment)


def _check_bound(options: SessionOptions, choice: Choice, terms: Terms | None) -> None:
    """Refuse what a session cannot take any more."""
    bound = options.execution
    if bound.connector != choice.connector or bound.driver != choice.driver:
        raise AgentRuntimeError(
            f"This conversation is bound to {bound.connector}. A new conversation can go elsewhere.",
            code="CONVERSATION_BOUND",
        )
    if terms is not None and terms != Terms(options.policy, options.environment):
        raise AgentRuntimeError(
            "Policy and environment belong to a session from its start. Begin a new one to change them.",
            code="SESSION_BOUND",
        )


def _told_since(tx: AgentTx, heads: list[ItemHead]) -> list[ItemHead]:
    """Items with what became of them after their end."""
    return [head._replace(about=held.as_decided(tx, head.kind, head.about)) for head in _with_costs(tx, heads)]


def _with_costs(tx: AgentTx, heads: list[ItemHead]) -> list[ItemHead]:
    """The replies that end a run with what it took: tokens as the provider counted them, and the time."""
    last = {head.run_id: place for place, head in enumerate(heads) if head.kind == "reply" and head.run_id is not None}
    told = list(heads)
    for run_id, place in last.items():
        run = tx.run(run_id)
        if run is not None and not told[place].detail:
            told[place] = told[place]._replace(detail=cost_line(run, _waited_ms(tx, run)))
    return told


def _waited_ms(tx: AgentTx, run: RunRecord) -> int:
    """How long a run stood still for a person: while one of its calls waited, counted once where several did."""
    waited, until_ms = 0, run.created_ms
    held = tx.rows(ApprovalRow, session_id=run.session_id, parked=True)
    for row in sorted((row for row in held if row.run_id == run.run_id), key=lambda row: row.created_ms):
        end_ms = row.decided_ms or run.finished_ms or row.created_ms
        waited += max(0, end_ms - max(row.created_ms, until_ms))
        until_ms = max(until_ms, end_ms)
    return waited


def cost_line(run: RunRecord, waited_ms: int = 0) -> str:
    """What a run took, in one quiet line; what was not told is left out, and the time it waited for a person too."""
    parts: list[str] = []
    usage = (run.result or {}).get("usage") or {}
    if usage.get("input_tokens") is not None:
        parts.append(f"{usage['input_tokens']:,} tokens in")
    if usage.get("output_tokens") is not None:
        parts.append(f"{usage['output_tokens']:,} out")
    if usage.get("reasoning_tokens"):
        parts.append(f"{usage['reasoning_tokens']:,} of them for reasoning")
    if run.finished_ms is not None:
        parts.append(f"{max(0, run.finished_ms - run.created_ms - waited_ms) / 1000:.1f} s")
    return " · ".join(parts)


def _open_head(item: OpenItem, run: Run, session_id: str, preview_chars: int) -> ItemHead:
    return ItemHead(
        item_id=item.item_id,
        session_id=session_id,
        run_id=run.run_id,
        position=item.position,
        kind=item.kind,
        state=item.state,
        text=item.text[:preview_chars],
        size_chars=len(item.text),
        created_ms=item.created_ms or run.created_ms,
        code=item.code,
        detail=item.detail,
        about=item.about,
    )


def _left_open(tx: ProfileTx, agent_id: str) -> list[str]:
    """Conversations of an agent that the profile last said to be at work."""
    return [record.conversation_id for record in tx.conversations_of(agent_id) if record.state in _LEFT]


def _check_request(request_id: str) -> None:
    """Refuse an id under which only what came of a decision is told: whoever took it would have that swallowed."""
    if request_id.startswith(DECISION):
        raise AgentRuntimeError("A message under this id tells of a decision. Use another.", code="REQUEST_ID_RESERVED")


def _put_draft(tx: ProfileTx, key: str, text: str) -> None:
    """Keep a draft; not of a conversation that is gone, where nothing would ever take it away again."""
    if not key or tx.conversation(key) is not None:
        tx.put_draft(key, text)


def title_of(text: str) -> str:
    """A title by rule: the first line with words in it, cut at a word."""
    # The message may be megabytes of line ends: no more of it is taken apart than a title needs.
    lines = text.lstrip()[:TITLE_SOURCE_CHARS].splitlines()
    first = next((line.strip() for line in lines if line.strip()), UNTITLED)
    words = " ".join(first.split())
    if len(words) <= TITLE_CHARS:
        return words
    cut = words[:TITLE_CHARS].rsplit(" ", 1)[0]
    return (cut if len(cut) > TITLE_CHARS // 2 else words[:TITLE_CHARS]).rstrip() + "…"


def ending_of_result(result: AgentResult, started_ms: int) -> Ending:
    """How a run that ended stands, in words."""
    sentence = result.error.message if result.error else ""
    if result.status == "incomplete":
        sentence = sentence or _INCOMPLETE_SENTENCES.get(result.finish_reason or "", "The reply ends here, incomplete.")
    return Ending(
        result.run_id,
        _ENDED[result.status],
        sentence,
        result.error.code if result.error else "",
        started_ms,
    )


def _ending_of_record(record: RunRecord, service: str = "") -> Ending:
    if record.result is not None:
        return ending_of_result(AgentResult.model_validate(record.result), record.created_ms)._replace(service=service)
    state = _ENDED[record.phase]
    if state == "waiting":
        return Ending(record.run_id, state, WAITS_SENTENCE, started_ms=record.created_ms, service=service)
    if state == "unknown" or (service and state == "working"):
        # One at a service that nobody here drives was to be joined again, and that did not come about.
        words = UNCONFIRMED_SENTENCE.format(service=service) if service else UNKNOWN_SENTENCE
        return Ending(record.run_id, "unknown", words, "RUN_UNKNOWN", record.created_ms, service)
    return Ending(record.run_id, state, started_ms=record.created_ms, service=service)


def _with(record: ConversationRecord, **changes: object) -> ConversationRecord:
    import msgspec

    return msgspec.structs.replace(record, **changes)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
