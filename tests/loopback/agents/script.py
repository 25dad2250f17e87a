"""What the model of a managed session does with one input.

Owns the steps and the words for them. Must not know HTTP. Invariant: steps of a turn are played in order, and a call
that waits for its result holds up all that follows it; several `Use` in a row are asked for at once.

    far.answer(Say("Hello."))                                          # the next input
    far.answer(Think("Hm."), Use("look", {"city": "Rome"}), Say("It rains."))
    far.always(Say("Yes."))                                            # every other input
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from runtime_host.testing.driver_contract import FarBehaviour

if TYPE_CHECKING:
    from tests.loopback.agents.sessions import Playing

PAD = "and so on, "
Phase = Literal["commentary", "final_answer"] | None
ActionKind = Literal["mcp_approval_request", "computer_use_approval_request", "environment_connection"]


@dataclass(frozen=True)
class Step:
    """One thing the model does."""

    async def play(self, to: "Playing") -> bool:
        """Whether the turn goes on."""
        raise AssertionError


@dataclass(frozen=True)
class Say(Step):
    """A message, in so many deltas.

    Attributes:
        text: or what makes it of the texts of all results so far.
        phase: ``commentary`` is not the answer.
        pause_s: between two pieces.
        unfinished: whether it breaks off before its end is told.
    """

    text: str | Callable[[Sequence[str]], str]
    pieces: int = 4
    phase: Phase = "final_answer"
    pause_s: float = 0.0
    unfinished: bool = False

    async def play(self, to: "Playing") -> bool:
        text = self.text(to.told) if callable(self.text) else self.text
        fields: dict[str, Any] = {"role": "assistant", "phase": self.phase, "content": []}
        item, index = to.begin_item("message", "msg", **fields)
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        to.tell("content_part.added", **place, part={"type": "output_text", "text": ""})
        for piece in pieces_of(text, self.pieces):
            to.tell("output_text.delta", **place, delta=piece)
            await to.session.room()
            await asyncio.sleep(self.pause_s)
        if self.unfinished:
            return True
        part = {"type": "output_text", "text": text}
        to.tell("output_text.done", **place, text=text)
        to.tell("content_part.done", **place, part=part)
        to.end_item(item, index, content=[part])
        return True


@dataclass(frozen=True)
class Think(Step):
    """Reasoning of which a summary is told."""

    text: str = "Hm."
    pieces: int = 2

    async def play(self, to: "Playing") -> bool:
        item, index = to.begin_item("reasoning", "rs", summary=[])
        place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
        to.tell("reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""})
        for piece in pieces_of(self.text, self.pieces):
            to.tell("reasoning_summary_text.delta", **place, delta=piece)
            await asyncio.sleep(0)
        part = {"type": "summary_text", "text": self.text}
        to.tell("reasoning_summary_text.done", **place, text=self.text)
        to.tell("reasoning_summary_part.done", **place, part=part)
        to.end_item(item, index, summary=[part])
        return True


@dataclass(frozen=True)
class Run(Step):
    """A command in the environment, with what it prints."""

    command: str
    output: str = ""
    exit_code: int = 0
    cwd: str = "/workspace"

    async def play(self, to: "Playing") -> bool:
        item, index = to.begin_item("command_execution", "cmd", command=self.command, cwd=self.cwd, output=None)
        for piece in pieces_of(self.output, 2):
            fields = {"item_id": item["id"], "output_index": index, "delta": piece}
            to.session.tell("agent.output.command_execution_output.delta", turn_id=to.turn["id"], **fields)
            await asyncio.sleep(0)
        status = "completed" if self.exit_code == 0 else "failed"
        to.end_item(item, index, status, output=self.output, exit_code=self.exit_code, duration_ms=7)
        return True


@dataclass(frozen=True)
class Use(Step):
    """A call of a function of the host.

    Attributes:
        call_id: left out it is a new one.
        as_text: whether the arguments come as JSON in a text.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call_id: str = ""
    as_text: bool = False

    async def play(self, to: "Playing") -> bool:
        arguments: Any = json.dumps(self.arguments) if self.as_text else dict(self.arguments)
        to.call(self.name, arguments, self.call_id or to.session.service.new_id("call"))
        await asyncio.sleep(0)
        return True


@dataclass(frozen=True)
class Ask(Step):
    """A required action that is no call of a function; nothing more until it is answered, or the turn is cancelled."""

    kind: ActionKind = "mcp_approval_request"

    async def play(self, to: "Playing") -> bool:
        session = to.session
        action: dict[str, Any] = {"type": self.kind, "environment_id": session.service.new_id("env")}
        if self.kind != "environment_connection":
            request: dict[str, Any] = {"type": "mcp_tool_call", "arguments": {}, "message": "May it?", "name": "send"}
            request["server_label"] = "mail"
            if self.kind == "computer_use_approval_request":
                request = {"type": "browser_origin_access", "origin": "https://example.invalid", "reason": None}
            action = {"type": self.kind, "request_id": session.service.new_id("req"), "turn_id": to.turn["id"]}
            action["request"] = request
        session.record["required_actions"].append(action)
        await to.wait_for_results()
        return True


@dataclass(frozen=True)
class Wait(Step):
    """Nothing more until the test says `let_go`."""

    async def play(self, to: "Playing") -> bool:
        await to.session.wait_for_word()
        return True


@dataclass(frozen=True)
class WaitForStream(Step):
    """Nothing more until a client listens to the events."""

    async def play(self, to: "Playing") -> bool:
        while not to.session.listening:
            to.session.listened.clear()
            await to.session.listened.wait()
        return True


@dataclass(frozen=True)
class Flood(Step):
    """Text without end, as fast as it is taken."""

    piece: str = PAD

    async def play(self, to: "Playing") -> bool:
        item, index = to.begin_item("message", "msg", role="assistant", phase=None, content=[])
        while True:
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            to.tell("output_text.delta", **place, delta=self.piece)
            await to.session.room()
            await asyncio.sleep(0)


@dataclass(frozen=True)
class Many(Step):
    """So many messages of commentary, for paging."""

    count: int

    async def play(self, to: "Playing") -> bool:
        for number in range(self.count):
            item, index = to.begin_item("message", "msg", role="assistant", phase="commentary", content=[])
            to.end_item(item, index, content=[{"type": "output_text", "text": f"Note {number}."}])
            await to.session.room()
        return True


@dataclass(frozen=True)
class Emit(Step):
    """An event as it is said, with an id; it is not kept."""

    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    async def play(self, to: "Playing") -> bool:
        to.session.tell(self.type, **dict(self.fields))
        return True


@dataclass(frozen=True)
class Fail(Step):
    """The turn fails.

    Attributes:
        session: whether the session fails with it and takes no more inputs.
    """

    code: str = "server_error"
    message: str = "Scripted failure."
    session: bool = False

    async def play(self, to: "Playing") -> bool:
        to.end("failed", {"code": self.code, "message": self.message}, fails=self.session)
        return False


@dataclass(frozen=True)
class Spawn(Step):
    """A subagent that says something in a turn of its own."""

    text: str = "I looked into it."

    async def play(self, to: "Playing") -> bool:
        await to.spawn(self.text)
        return True


@dataclass(frozen=True)
class WriteFile(Step):
    """A file under the outputs of the environment, published when the turn completes.

    Attributes:
        endless: whether a download of it never ends.
    """

    path: str = "/workspace/outputs/report.txt"
    content: str | bytes = "made"
    media_type: str = "application/octet-stream"
    endless: bool = False

    @property
    def data(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content.encode()

    async def play(self, to: "Playing") -> bool:
        to.files.append(self)
        return True


BEHAVIOURS: dict[FarBehaviour, tuple[Step, ...]] = {
    "answers": (Say("The capital of France is Paris.", pieces=6),),
    "waits": (Say("The capital", unfinished=True), Wait()),
    "fails": (Fail(),),
    "breaks-off": (Say("The capital", unfinished=True), Fail("connection_failed")),
    "loses-acceptance": (Say("The capital of France is Paris.", pieces=6),),
    "floods": (Flood(),),
}
Steps: TypeAlias = tuple[Step, ...]
_BY_NAME: dict[str, type[Step]] = {
    kind.__name__: kind
    for kind in (
        Say, Think, Run, Use, Ask, Wait, WaitForStream, Flood, Many, Emit, Fail, Spawn, WriteFile,
    )
}  # fmt: skip


def steps_of(said: Any) -> Steps:
    """Steps that another process says as JSON: ``[{"Say": {"text": "Hello."}}, {"Wait": {}}]``."""
    return tuple(_BY_NAME[name](**fields) for each in said for name, fields in each.items())


def pieces_of(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, count)))
    return [text[start : start + size] for start in range(0, len(text), size)]
