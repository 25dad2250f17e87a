"""One managed session: its items, its turns and who listens.

Owns the record of a session and the order of its events. Must not know HTTP. Invariant: what a stream carries once is
carried to those who listen at that moment and to nobody later; items, turns and states are kept.
"""

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.loopback.agents.fields import PREFIX, Record, conflict, messages, refuse
from tests.loopback.agents.script import Step, Use, WriteFile

if TYPE_CHECKING:
    from tests.loopback.agents.service import Service

ROOM = 256
TURN_TOKENS = (120, 30)


@dataclass(eq=False)
class Listening:
    """One stream that is open: what it is still to carry; None ends it.

    Attributes:
        obfuscated: whether deltas are padded.
        until_idle: whether the stream ends once the session rests.
        taken: set whenever something of it was taken, and once it has ended.
    """

    obfuscated: bool = True
    until_idle: bool = False
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    to_come: "asyncio.Queue[Record | None]" = field(default_factory=asyncio.Queue)

    def tell(self, event: Record) -> None:
        if self.obfuscated and event["type"].endswith(".delta"):
            event = {**event, "obfuscation": "x" * (16 - len(event["delta"]) % 16)}
        self.to_come.put_nowait(event)
        if self.until_idle and event["type"] in ("agent.session.idle", "agent.session.failed"):
            self.to_come.put_nowait(None)


@dataclass(eq=False)
class Playing:
    """One turn that is being played.

    Attributes:
        told: the texts of all results so far.
        files: what is published when it completes.
    """

    session: "Session"
    turn: Record
    steps: tuple[Step, ...]
    told: list[str] = field(default_factory=list)
    files: list[WriteFile] = field(default_factory=list)
    outputs: int = 0
    asked: bool = False

    async def play(self) -> None:
        await asyncio.sleep(0)
        self.turn |= {"status": "in_progress", "started_at": self.session.service.now()}
        self.tell("in_progress", turn=self.turn)
        for step in self.steps:
            if self.asked and not isinstance(step, Use):
                await self.wait_for_results()
            if not await step.play(self):
                return
        if self.asked:
            await self.wait_for_results()
        self.end("completed")

    def tell(self, kind: str, **fields: Any) -> None:
        self.session.tell(f"agent.session.turn.{kind}", turn_id=self.turn["id"], **fields)

    def begin_item(self, kind: str, prefix: str, **fields: Any) -> tuple[Record, int]:
        item = self.session.keep_item(self.turn, kind, prefix, status="in_progress", **fields)
        index, self.outputs = self.outputs, self.outputs + 1
        self.tell("item.added", item=item, output_index=index)
        return item, index

    def end_item(self, item: Record, index: int, status: str = "completed", **fields: Any) -> None:
        item |= {"status": status, **fields}
        self.tell("item.done", item=item, output_index=index)

    def call(self, name: str, arguments: Any, call_id: str) -> None:
        fields = {"call_id": call_id, "name": name, "arguments": arguments}
        item, index = self.begin_item("function_call", "fc", **fields)
        self.session.calls[call_id] = (item, index)
        self.session.early_refusals[call_id] = self.session.service.early_refusals
        action = {"type": "function_call", **fields, "turn_id": self.turn["id"]}
        self.session.record["required_actions"].append(action)
        self.asked = True

    async def wait_for_results(self) -> None:
        session = self.session
        if session.record["required_actions"]:
            self.turn["status"] = "waiting"
            session.all_answered.clear()
            session.set_status("requires_action")
            await session.all_answered.wait()
        self.told.extend(session.told)
        session.told.clear()
        self.asked = False
        self.turn["status"] = "in_progress"
        session.set_status("in_progress")

    async def spawn(self, text: str) -> None:
        """Have a subagent say something."""
        session, service = self.session, self.session.service
        sub: Record = {"id": service.new_id("sub"), "object": "agent.session.subagent", "name": "helper"}
        sub |= {"session_id": session.id, "parent_agent_id": session.record["agent"]["id"], "instructions": None}
        sub |= {"opened_at": service.now(), "closed_at": None, "status": "active"}
        session.subagents.append(sub)
        item, index = self.begin_item("create_subagent_call", "sc", agent_id=sub["id"], content=[])
        self.end_item(item, index)
        session.tell("agent.session.subagent.created", subagent=sub)
        other = Playing(session, session.new_turn(sub["id"]), ())
        other.turn["status"] = "in_progress"
        other.tell("in_progress", turn=other.turn)
        note, at = other.begin_item("message", "msg", role="assistant", phase="final_answer", content=[])
        other.tell("output_text.delta", item_id=note["id"], output_index=at, content_index=0, delta=text)
        await asyncio.sleep(0)
        other.end_item(note, at, content=[{"type": "output_text", "text": text}])
        session.close_turn(other.turn, "completed")
        sub |= {"status": "closed", "closed_at": service.now()}
        session.tell("agent.session.subagent.closed", subagent=sub)

    def end(self, status: str, error: Mapping[str, str] | None = None, *, fails: bool = False) -> None:
        session = self.session
        session.playing = None
        session.record["required_actions"].clear()
        session.told.clear()
        for item in session.items:
            if item["turn_id"] == self.turn["id"] and item.get("status") == "in_progress":
                item["status"] = "incomplete"
        if status == "completed":
            session.publish(self.turn, self.files)
        session.close_turn(self.turn, status, error)
        session.record["error"] = error["message"] if fails and error else None
        session.set_status("failed" if fails else "idle")


@dataclass(eq=False)
class Session:
    """One session.

    Attributes:
        record: as it is given back.
        calls: every call of a function there ever was, with its item, by its id.
        early_refusals: how many results of a call are refused yet as if it were not known.
        hidden_looks: so many listings do not show it yet.
    """

    service: "Service"
    id: str
    record: Record
    items: list[Record] = field(default_factory=list)
    turns: list[Record] = field(default_factory=list)
    subagents: list[Record] = field(default_factory=list)
    artifacts: list[Record] = field(default_factory=list)
    listening: list[Listening] = field(default_factory=list)
    calls: dict[str, tuple[Record, int]] = field(default_factory=dict)
    early_refusals: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    keys: dict[str, bytes] = field(default_factory=dict)
    hidden_looks: int = 0
    playing: Playing | None = None
    all_answered: asyncio.Event = field(default_factory=asyncio.Event)
    listened: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _cancelling: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.playing is not None

    # ---- events ----

    def tell(self, kind: str, **fields: Any) -> None:
        event: Record = {"event_id": self.service.new_id("evt"), "type": kind}
        if "session" not in fields and "subagent" not in fields:
            event["session_id"] = self.id
        event = copy.deepcopy(event | fields)
        for listening in self.listening:
            listening.tell(event)

    async def room(self) -> None:
        """Wait until every stream has taken most of what it was told."""
        for listening in tuple(self.listening):
            if listening.to_come.qsize() > ROOM:
                listening.taken.clear()
                await listening.taken.wait()

    def listen(self, listening: Listening) -> None:
        self.listening.append(listening)
        self.listened.set()

    async def wait_for_word(self) -> None:
        self.service.waiting += 1
        try:
            await self.service.let_going.wait()
        finally:
            self.service.waiting -= 1

    def set_status(self, status: str) -> None:
        self.record |= {"status": status, "last_active_at": self.service.now()}
        self.tell(f"agent.session.{status}", session=self.record)

    # ---- items and turns ----

    def keep_item(self, turn: Record, kind: str, prefix: str, **fields: Any) -> Record:
        item = {"id": self.service.new_id(prefix), "type": kind, "turn_id": turn["id"], **fields}
        self.items.append(item)
        return item

    def new_turn(self, subagent_id: str | None = None) -> Record:
        now = self.service.now()
        turn: Record = {"id": self.service.new_id("turn"), "object": "agent.session.turn", "session_id": self.id}
        turn |= {"agent_id": self.record["agent"]["id"], "status": "queued", "created_at": now, "started_at": None}
        turn |= {"completed_at": None, "error": None, "subagent_id": subagent_id, "usage": None}
        self.turns.append(turn)
        self.tell("agent.session.turn.created", turn_id=turn["id"], turn=turn)
        return turn

    def close_turn(self, turn: Record, status: str, error: Mapping[str, str] | None = None) -> None:
        usage = usage_of(*TURN_TOKENS)
        turn |= {"status": status, "completed_at": self.service.now(), "usage": usage}
        turn["error"] = dict(error) if error else None
        before = self.record["usage"] or usage_of(0, 0)
        sums = before["input_tokens"] + TURN_TOKENS[0], before["output_tokens"] + TURN_TOKENS[1]
        self.record["usage"] = usage_of(*sums)
        self.tell(f"agent.session.turn.{status}", turn_id=turn["id"], turn=turn, usage=usage)

    def publish(self, turn: Record, files: list[WriteFile]) -> None:
        for made in files:
            record: Record = {"id": self.service.new_id("art"), "object": "agent.session.artifact", "path": made.path}
            record |= {"session_id": self.id, "turn_id": turn["id"], "created_at": self.service.now()}
            record |= {"environment_id": self.record["environment"].get("id", "")}
            record |= {"size_bytes": len(made.data)}
            self.artifacts.append(record)
            self.service.contents[record["id"]] = made

    # ---- what a client says ----

    def check(self, said: Record) -> None:
        """Refuse what is out of order before anything of a request is stored."""
        kind = said["type"].removeprefix(PREFIX)
        if kind == "message" and self.record["status"] == "failed":
            conflict("The session has failed.")
        if kind == "tool_result":
            self._check_result(said)
        if kind.endswith("_result") and kind != "tool_result" and self._action("request_id", said) is None:
            refuse("Unknown pending request.")

    def _check_result(self, said: Record) -> None:
        call_id = said["call_id"]
        action = self._action("call_id", said)
        if action is not None and self.early_refusals[call_id] > 0:
            self.early_refusals[call_id] -= 1
            action = None
        if action is None or action["turn_id"] != said["turn_id"]:
            refuse(f"Unknown pending tool call: {call_id[:128]}")

    def _action(self, name: str, said: Record) -> Record | None:
        actions = self.record["required_actions"]
        return next((each for each in actions if each.get(name) == said[name]), None)

    def take(self, said: Record) -> None:
        """Do what one event of the client says."""
        kind = said["type"].removeprefix(PREFIX)
        if kind == "message":
            self.input(messages(said["input"]))
        elif kind == "cancel":
            self.service.cancels.append(self.id)
            self._cancel()
        elif kind == "tool_result":
            self._take_result(said)
        else:
            self._answered(self._action("request_id", said))

    def input(self, contents: list[list[Record]]) -> None:
        """An input of the person: it starts a turn, or steers the one that goes on."""
        playing = self.playing
        starts = playing is None
        if playing is None:
            self.set_status("in_progress")
            playing = self.playing = Playing(self, self.new_turn(), self.service.next_steps())
        else:
            self.service.steered += 1
        for content in contents:
            fields = {"role": "user", "phase": None, "content": content, "status": "completed"}
            item = self.keep_item(playing.turn, "message", "msg", **fields)
            if self.service.null_id_inputs:
                item["id"] = None
            playing.tell("item.added", item=item, output_index=None)
        texts = ("".join(part.get("text", "") for part in content) for content in contents)
        self.service.inputs.append("\n".join(texts))
        if starts:
            self._task = self.service.spawn(playing.play())

    def _cancel(self) -> None:
        how = self.service.cancels_work
        if self.playing is None or how == "never":
            return
        if how == "held":
            self._cancelling = self.service.spawn(self._cancel_later(self.playing))
        else:
            self._cancel_now(self.playing)

    async def _cancel_later(self, playing: Playing) -> None:
        await self.service.let_going.wait()
        if self.playing is playing:
            self._cancel_now(playing)

    def _cancel_now(self, playing: Playing) -> None:
        assert self._task is not None
        self._task.cancel()
        playing.end("cancelled")

    def _take_result(self, said: Record) -> None:
        assert self.playing is not None
        call_id = said["call_id"]
        action = self._action("call_id", said)
        item, index = self.calls[call_id]
        output, error = said.get("output"), said.get("error")
        status = "completed" if said["success"] else "failed"
        fields = {"call_id": call_id, "output": output, "error": error, "status": status}
        saved = self.keep_item(self.playing.turn, "function_call_output", "fco", **fields)
        self.playing.tell("item.added", item=saved, output_index=None)
        self.playing.end_item(item, index, status)
        self.service.results.append(call_id)
        self.told.append(output if isinstance(output, str) else _text_of(output) if output else error or "")
        self._answered(action)

    def _answered(self, action: Record | None) -> None:
        actions = self.record["required_actions"]
        if action is not None:
            actions.remove(action)
        if actions:
            self.set_status("requires_action")
        else:
            self.all_answered.set()

    # ---- the end ----

    def end_streams(self) -> None:
        for listening in self.listening:
            listening.to_come.put_nowait(None)


def usage_of(input_tokens: int, output_tokens: int) -> Record:
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + output_tokens,
    }


def _text_of(parts: list[Record]) -> str:
    return "".join(part.get("text", "") for part in parts)
