"""What the model of a managed session does with one message of the person.

Owns the steps and the words for them. Must not know HTTP. Invariant: steps of a turn are played in order, and a call
that waits for its result holds up all that follows it; several `Use` in a row are asked for at once.

    far.answer(Say("Hello."))                                          # the next message
    far.answer(Think(), Use("look", {"city": "Rome"}), Say("It rains."))
    far.always(Say("Yes."))                                            # every other message
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from runtime_host.testing.driver_contract import FarBehaviour

if TYPE_CHECKING:
    from tests.loopback.managed_claude.sessions import Playing

PAD = "and so on, "


@dataclass(frozen=True)
class Step:
    """One thing the model does."""

    async def play(self, to: "Playing") -> bool:
        """Whether the turn goes on."""
        raise AssertionError


@dataclass(frozen=True)
class Say(Step):
    """A message; its previews in so many pieces.

    Attributes:
        text: or what makes it of the texts of all results so far.
        pause_s: between two pieces.
        previews_only: whether it breaks off before the message itself.
    """

    text: str | Callable[[Sequence[str]], str]
    pieces: int = 4
    pause_s: float = 0.0
    previews_only: bool = False

    async def play(self, to: "Playing") -> bool:
        text = self.text(to.told) if callable(self.text) else self.text
        await to.begin_request()
        event_id = to.session.new_event_id()
        to.session.preview_start(event_id, "agent.message")
        for piece in pieces_of(text, self.pieces):
            to.session.preview(event_id, piece)
            await asyncio.sleep(self.pause_s)
        if not self.previews_only:
            to.session.add("agent.message", event_id, content=[{"type": "text", "text": text}])
        return True


@dataclass(frozen=True)
class Think(Step):
    """Thinking, of which no text is told."""

    async def play(self, to: "Playing") -> bool:
        await to.begin_request()
        event_id = to.session.new_event_id()
        to.session.preview_start(event_id, "agent.thinking")
        to.session.add("agent.thinking", event_id)
        return True


@dataclass(frozen=True)
class Use(Step):
    """A call of a tool of the host.

    Attributes:
        call_id: of the event; left out it is a new one.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call_id: str = ""

    async def play(self, to: "Playing") -> bool:
        await to.begin_request()
        to.call("agent.custom_tool_use", self.call_id, name=self.name, input=dict(self.arguments))
        return True


@dataclass(frozen=True)
class UseBuiltIn(Step):
    """A call of a tool of the provider, which wants a confirmation or is made at once."""

    name: str = "bash"
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"command": "id"})
    asks: bool = True
    result: str = "uid=0(root)"

    async def play(self, to: "Playing") -> bool:
        await to.begin_request()
        permission = "ask" if self.asks else "allow"
        fields: dict[str, Any] = {"name": self.name, "input": dict(self.arguments), "evaluated_permission": permission}
        if self.asks:
            to.call("agent.tool_use", "", **fields)
        else:
            use = to.session.add("agent.tool_use", **fields)
            content = [{"type": "text", "text": self.result}]
            to.session.add("agent.tool_result", tool_use_id=use["id"], content=content, is_error=False)
        return True


@dataclass(frozen=True)
class Request(Step):
    """From here on it is another request to the model, with this cost and these tokens."""

    cents: int = 0
    input_tokens: int = 10
    output_tokens: int = 5

    async def play(self, to: "Playing") -> bool:
        await to.end_request()
        await to.begin_request(self)
        return True


@dataclass(frozen=True)
class Wait(Step):
    """Nothing more until the test says `let_go`."""

    async def play(self, to: "Playing") -> bool:
        await to.session.wait_for_word()
        return True


@dataclass(frozen=True)
class Flood(Step):
    """Previews without end, as fast as they are taken."""

    async def play(self, to: "Playing") -> bool:
        await to.begin_request()
        event_id = to.session.new_event_id()
        to.session.preview_start(event_id, "agent.message")
        while True:
            await to.session.room()
            to.session.preview(event_id, PAD)
            await asyncio.sleep(0 if to.session.listening else 0.01)


@dataclass(frozen=True)
class Many(Step):
    """So many events that fill the history."""

    count: int
    text: str = ""

    async def play(self, to: "Playing") -> bool:
        await to.begin_request()
        for number in range(self.count):
            if self.text:
                to.session.add("agent.message", content=[{"type": "text", "text": f"{self.text}{number}"}])
            else:
                to.session.add("agent.thinking")
            await asyncio.sleep(0)
        return True


@dataclass(frozen=True)
class Emit(Step):
    """Any event, in the history and on the streams."""

    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    async def play(self, to: "Playing") -> bool:
        to.session.add(self.type, **self.fields)
        return True


@dataclass(frozen=True)
class Trouble(Step):
    """An error of the session that is told, and goes by or not."""

    kind: str = "model_overloaded_error"
    retry: str = "retrying"
    message: str = "Scripted trouble."

    async def play(self, to: "Playing") -> bool:
        error = {"type": self.kind, "message": self.message, "retry_status": {"type": self.retry}}
        to.session.add("session.error", error=error)
        return True


@dataclass(frozen=True)
class Reschedule(Step):
    """The session is taken up elsewhere and goes on there."""

    async def play(self, to: "Playing") -> bool:
        await to.end_request()
        to.session.set_status("rescheduling", "session.status_rescheduled")
        await asyncio.sleep(0)
        to.session.run()
        return True


@dataclass(frozen=True)
class GiveUp(Step):
    """Idle, as no retry helped."""

    async def play(self, to: "Playing") -> bool:
        await Trouble(retry="exhausted").play(to)
        return await to.stop("retries_exhausted")


@dataclass(frozen=True)
class Refuse(Step):
    """Idle, as the model declined."""

    category: str | None = "cyber"
    explanation: str | None = "Scripted refusal."

    async def play(self, to: "Playing") -> bool:
        details = {"type": "refusal", "category": self.category, "explanation": self.explanation}
        return await to.stop("refusal", details)


@dataclass(frozen=True)
class Terminate(Step):
    """The session ends for good."""

    async def play(self, to: "Playing") -> bool:
        await to.end_request(error=True)
        to.session.set_status("terminated", "session.status_terminated")
        return False


@dataclass(frozen=True)
class WriteFile(Step):
    """A file under the outputs of the session."""

    name: str
    content: str | bytes = "made"
    mime_type: str = "text/plain"

    async def play(self, to: "Playing") -> bool:
        data = self.content if isinstance(self.content, bytes) else self.content.encode()
        to.session.service.output(to.session.id, self.name, data, self.mime_type)
        return True


BEHAVIOURS: dict[FarBehaviour, tuple[Step, ...]] = {
    "answers": (Say("The capital of France is Paris.", pieces=6),),
    "waits": (Say("The capital"), Wait()),
    "fails": (GiveUp(),),
    "breaks-off": (Say("The capital"), Terminate()),
    "loses-acceptance": (Say("The capital of France is Paris.", pieces=6),),
    "floods": (Flood(),),
}
Steps: TypeAlias = tuple[Step, ...]
_BY_NAME: dict[str, type[Step]] = {
    kind.__name__: kind
    for kind in (
        Say, Think, Use, UseBuiltIn, Request, Wait, Flood, Many, Emit, Trouble, Reschedule, GiveUp, Refuse, Terminate,
        WriteFile,
    )
}  # fmt: skip


def steps_of(said: Any) -> Steps:
    """Steps that another process says as JSON: ``[{"Say": {"text": "Hello."}}, {"Wait": {}}]``."""
    return tuple(_BY_NAME[name](**fields) for each in said for name, fields in each.items())


def pieces_of(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, count)))
    return [text[start : start + size] for start in range(0, len(text), size)]
