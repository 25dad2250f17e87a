"""One managed session: its events, its turns and who listens.

Owns the record of a session and its order of events. Must not know HTTP. Invariant: an event that a stream carries is
in the history from the same moment on, except for previews, which never are.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.loopback.managed_claude.fields import refuse
from tests.loopback.managed_claude.script import Request, Step, Steps, Use, UseBuiltIn

if TYPE_CHECKING:
    from tests.loopback.managed_claude.service import Service

Event = dict[str, Any]
ROOM = 256


@dataclass(eq=False)
class Listening:
    """One stream that is open: what it is still to carry; None ends it.

    Attributes:
        taken: set whenever something of it was taken, and once it has ended.
    """

    previews: frozenset[str]
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    to_come: "asyncio.Queue[Event | None]" = field(default_factory=asyncio.Queue)


@dataclass(eq=False)
class Playing:
    """One turn that is being played."""

    session: "Session"
    steps: tuple[Step, ...]
    told: list[str] = field(default_factory=list)
    request_id: str = ""
    request: Request = field(default_factory=Request)
    asked: bool = False

    async def play(self) -> None:
        for step in self.steps:
            if self.asked and not isinstance(step, Use | UseBuiltIn):
                await self.wait_for_results()
            if not await step.play(self):
                return
            self.asked = self.asked or bool(self.session.pending)
        if self.asked:
            await self.wait_for_results()
        await self.stop("end_turn")

    async def begin_request(self, request: Request | None = None) -> None:
        if self.request_id:
            return
        await self.within_budget()
        self.request = request or Request(cents=self.session.service.request_cents)
        self.request_id = self.session.add("span.model_request_start")["id"]

    async def end_request(self, *, error: bool = False) -> None:
        if not self.request_id:
            return
        start, self.request_id = self.request_id, ""
        tokens = {"input_tokens": self.request.input_tokens, "output_tokens": self.request.output_tokens}
        usage = {**tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "speed": "standard"}
        ended: Event = {"model_request_start_id": start, "is_error": error, "model_usage": usage}
        self.session.add("span.model_request_end", **ended)
        self.session.spend(self.request)

    async def within_budget(self) -> None:
        while self.session.over_budget():
            self.session.idle({"type": "budget_reached"})
            self.session.budget_changed.clear()
            await self.session.budget_changed.wait()
            self.session.run()

    def call(self, kind: str, event_id: str, **fields: Any) -> None:
        event = self.session.add(kind, event_id or None, **fields)
        self.session.pending[event["id"]] = event

    async def wait_for_results(self) -> None:
        await self.end_request()
        if self.session.pending:
            self.session.ask_for_action()
            await self.session.all_answered.wait()
        self.told.extend(self.session.told)
        self.session.told.clear()
        self.asked = False
        self.session.run()

    async def stop(self, reason: str, details: Mapping[str, Any] | None = None) -> bool:
        await self.end_request()
        self.session.idle({"type": reason}, details)
        return False


@dataclass(eq=False)
class Session:
    """One session.

    Attributes:
        status: as it is; what a retrieval says may lag behind it, see `record_says`.
        events: the history, oldest first.
        pending: calls that wait for what the client has to say, by id.
        stale_reads: so many retrievals more still say that it is running.
    """

    service: "Service"
    id: str
    record: dict[str, Any]
    status: str = "idle"
    events: list[Event] = field(default_factory=list)
    listening: list[Listening] = field(default_factory=list)
    pending: dict[str, Event] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    told: list[str] = field(default_factory=list)
    queued: deque[tuple[Event, Steps]] = field(default_factory=deque)
    spent_cents: int = 0
    tokens: dict[str, int] = field(default_factory=lambda: {"input_tokens": 0, "output_tokens": 0})
    stale_reads: int = 0
    all_answered: asyncio.Event = field(default_factory=asyncio.Event)
    budget_changed: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: asyncio.Task[None] | None = None
    _playing: Playing | None = None
    _ending: bool = False

    # ---- events ----

    def new_event_id(self) -> str:
        return self.service.new_id("sevt")

    def add(self, kind: str, event_id: str | None = None, *, at: Any = "now", **fields: Any) -> Event:
        event = {"id": event_id or self.new_event_id(), "type": kind, **fields}
        event["processed_at"] = self.service.now() if at == "now" else at
        self.events.append(event)
        self.tell(event)
        return event

    def tell(self, event: Event) -> None:
        for listening in self.listening:
            listening.to_come.put_nowait(dict(event))

    def preview_start(self, event_id: str, kind: str) -> None:
        self._preview(kind, {"type": "event_start", "event": {"type": kind, "id": event_id}})

    def preview(self, event_id: str, text: str) -> None:
        delta = {"type": "content_delta", "index": 0, "content": {"type": "text", "text": text}}
        self._preview("agent.message", {"type": "event_delta", "event_id": event_id, "delta": delta})

    def _preview(self, kind: str, event: Event) -> None:
        for listening in self.listening:
            if kind in listening.previews:
                listening.to_come.put_nowait(event)

    async def room(self) -> None:
        """Wait until every stream has taken most of what it was told."""
        for listening in tuple(self.listening):
            if listening.to_come.qsize() > ROOM:
                listening.taken.clear()
                await listening.taken.wait()

    async def wait_for_word(self) -> None:
        self.service.waiting += 1
        try:
            await self.service.let_going.wait()
        finally:
            self.service.waiting -= 1

    # ---- states ----

    def set_status(self, status: str, kind: str, **fields: Any) -> None:
        if status == "idle" and self.status != "idle":
            self.stale_reads = self.service.stale_reads
        self.status = status
        self.record["updated_at"] = self.service.now()
        self.add(kind, **fields)

    def record_says(self) -> str:
        """The status that the record has; one look further."""
        if self.status == "idle" and self.stale_reads:
            self.stale_reads -= 1
            return "running"
        return self.status

    def run(self) -> None:
        self.set_status("running", "session.status_running")

    def idle(self, reason: Mapping[str, Any], details: Mapping[str, Any] | None = None) -> None:
        self.set_status("idle", "session.status_idle", stop_reason=dict(reason), stop_details=details)

    def ask_for_action(self) -> None:
        self.all_answered.clear()
        self.idle({"type": "requires_action", "event_ids": list(self.pending)})

    # ---- money ----

    def spend(self, request: Request) -> None:
        self.spent_cents += request.cents
        self.tokens["input_tokens"] += request.input_tokens
        self.tokens["output_tokens"] += request.output_tokens
        self.add("session.usage", usage=self.usage(), budget=self.record["budget"])

    def usage(self) -> dict[str, Any]:
        return {
            **self.tokens,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
            "active_seconds": float(len(self.events)),
            "list_cost": {"amount": str(self.spent_cents), "currency": "USD"},
            "server_tool_use": {"web_fetch_requests": 0, "web_search_requests": 0},
        }

    def over_budget(self) -> bool:
        budget = self.record["budget"]
        return budget is not None and self.spent_cents >= int(budget["max_list_cost"]["amount"])

    # ---- what a client says ----

    def take(self, said: Event) -> Event:
        """Store one event of the client; as it is given back to it."""
        if self.status == "terminated":
            refuse("The session is terminated.")
        if said["type"] == "user.message":
            return self._message(said)
        if said["type"] == "user.interrupt":
            return self._interrupt(said)
        return self._answer(said)

    def check(self, said: Event) -> None:
        """Refuse what is out of order before anything of a request is stored."""
        call_id = said.get("custom_tool_use_id") or said.get("tool_use_id")
        if call_id is None:
            return
        if (call := self.pending.get(call_id)) is not None:
            if (call["type"] == "agent.custom_tool_use") != (said["type"] == "user.custom_tool_result"):
                refuse(f"{call_id[:64]}: the call wants another kind of answer")
            return
        if call_id in self.answered and self.service.repeats_accepted:
            return
        refuse(f"{call_id[:64]}: no such call waits for a result")

    def _message(self, said: Event) -> Event:
        event = {"id": self.new_event_id(), **said, "processed_at": None}
        self.service.inputs.append(event["id"])
        self.events.append(event)
        self.tell(event)
        # What it is answered with is settled with it: what a test says afterwards is of the next one.
        self.queued.append((event, self.service.next_steps()))
        back = dict(event)
        if self._turn is None or self._turn.done():
            self._turn = self.service.spawn(self._play_queued())
        return back

    async def _play_queued(self) -> None:
        while self.queued and self.status != "terminated":
            event, steps = self.queued.popleft()
            event["processed_at"] = self.service.now()
            self.tell(event)
            self.run()
            self._playing = Playing(self, steps)
            await self._playing.play()

    def _interrupt(self, said: Event) -> Event:
        self.service.interrupts += 1
        event = {"id": self.new_event_id(), **said, "processed_at": self.service.now()}
        self.events.append(event)
        self.tell(event)
        if self._turn is not None and not self._turn.done() and not self._ending:
            self._ending = True
            self._turn.cancel()
            self._turn = self.service.spawn(self._end_interrupted(self._turn, self._playing))
            if self.service.interrupt_drops_queued:
                self.queued.clear()
        return {**event, "processed_at": None}

    async def _end_interrupted(self, turn: asyncio.Task[None], playing: Playing | None) -> None:
        await asyncio.wait({turn})
        self.pending.clear()
        self.told.clear()
        if playing is not None:
            await playing.end_request(error=True)
        self.idle({"type": self.service.interrupt_reason})
        self._ending = False
        await self._play_queued()

    def _answer(self, said: Event) -> Event:
        call_id = said.get("custom_tool_use_id") or said["tool_use_id"]
        call = self.pending.get(call_id)
        event = self.add(said["type"], **{name: value for name, value in said.items() if name != "type"})
        if call is None:
            self.service.repeats += 1
            return event
        del self.pending[call_id]
        self.answered.add(call_id)
        self._note(said, call_id)
        if self.pending:
            self.ask_for_action()
        else:
            self.all_answered.set()
        return event

    def _note(self, said: Event, call_id: str) -> None:
        if said["type"] == "user.custom_tool_result":
            self.service.results.append(call_id)
            parts = (block.get("text", "") for block in said.get("content") or ())
            self.told.append("".join(parts))
        elif said["result"] == "allow":
            content = [{"type": "text", "text": "uid=0(root)"}]
            self.add("agent.tool_result", tool_use_id=call_id, content=content, is_error=False)

    # ---- the end ----

    def end_streams(self) -> None:
        for listening in self.listening:
            listening.to_come.put_nowait(None)

    def stop(self) -> None:
        """End what goes on in it."""
        if self._turn is not None:
            self._turn.cancel()
