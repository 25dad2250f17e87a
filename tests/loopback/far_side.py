"""What stands at the far end of a real harness: a model that answers each input as the test says.

A harness sends many requests for one input: after each round of tools, and again when one fails. So an answer is told
for an *input*, as rounds: one round is the answer to one request, and the next one begins once the harness comes back
with the results of its tools. A request that is repeated after a fault gets the same round again.

    model.answer(Say("Hello."))                                    # the next new input
    model.answer([Think("Hm."), Use("Bash", {"command": "id"})], [Say("You are root.")])
    model.always(Say("Yes."))                                      # every other input
    model.behave("waits")                                          # the words of the driver contract

Steps of a round are played in order. `Refuse`, `Cut` and `Fault` break a round off; with `times` they do so that often
and are passed over from then on, so `[Refuse(529, times=2), Say("Yes.")]` answers the third request.
"""

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

from runtime_host.testing.driver_contract import FarBehaviour
from tests.loopback.chat_server import Answer, ChatServer

Arguments: TypeAlias = Mapping[str, Any] | str
_READER: ContextVar[asyncio.StreamReader] = ContextVar("_READER")
"""Of the connection that is being answered."""


class Told(NamedTuple):
    """What the model was told of a call: its id and the text of the result.

    Attributes:
        is_error: whether the harness says that the tool failed.
        pictures: how many were with it.
    """

    call_id: str
    text: str
    is_error: bool = False
    pictures: int = 0


class Input(NamedTuple):
    """One thing that was said to the model by whoever uses the harness.

    Attributes:
        conversation: the harness's own name of it.
        text: as the model saw it.
        pictures: data URLs or base64, as they came.
    """

    conversation: str
    text: str
    pictures: tuple[str, ...] = ()


@dataclass
class Conversation:
    """What one request says: all of a conversation so far.

    Attributes:
        model: who is asked.
    """

    name: str
    model: str
    inputs: list[Input] = field(default_factory=list)
    results: list[Told] = field(default_factory=list)


class Playing:
    """One round that is being played to one request."""

    def __init__(self, far: "FarSide", answer: Answer, talk: Conversation) -> None:
        self.far = far
        self.answer = answer
        self.talk = talk
        self.began = False
        self.asked_for_tools = False
        self.reason = ""

    async def begin(self) -> None:
        if not self.began:
            self.began = True
            self.answer.start_stream()
            await self.answer.begin()


@dataclass(frozen=True)
class Step:
    """One thing the model does. Passed over once it was done `times` times for an input; None for no limit."""

    async def play(self, to: Playing) -> bool:
        """Whether the round goes on."""
        raise AssertionError


@dataclass(frozen=True)
class Say(Step):
    """Text, in so many pieces; `pause_s` between them."""

    text: str
    pieces: int = 4
    pause_s: float = 0.0

    async def play(self, to: Playing) -> bool:
        await to.begin()
        for piece in _pieces(self.text, self.pieces):
            await to.answer.say(piece)
            await asyncio.sleep(self.pause_s)
        return True


@dataclass(frozen=True)
class Think(Step):
    """Reasoning that is shown, in two pieces."""

    text: str

    async def play(self, to: Playing) -> bool:
        await to.begin()
        for piece in _pieces(self.text, 2):
            await to.answer.think(piece)
        await to.far.thought_through(to.answer, self.text)
        return True


@dataclass(frozen=True)
class Use(Step):
    """A call of a tool. The round ends after the last of them, and the next one is played to the results.

    Attributes:
        name: as the harness offers it, e.g. ``mcp__host__look``, ``Bash``, ``exec_command``, ``apply_patch``.
        arguments: of a tool that takes free text, a text. Or what makes them of the conversation so far, for what
            only the results of earlier calls tell.
        call_id: for the same one twice; left out it is a new one.
    """

    name: str
    arguments: Arguments | Callable[[Conversation], Arguments]
    call_id: str = ""

    async def play(self, to: Playing) -> bool:
        await to.begin()
        to.asked_for_tools = True
        arguments = self.arguments(to.talk) if callable(self.arguments) else self.arguments
        await to.far.use(to, self.name, arguments, self.call_id or to.far.new_call_id())
        return True


@dataclass(frozen=True)
class Refuse(Step):
    """An error in place of an answer."""

    status: int
    times: int | None = None
    code: str = ""
    message: str = "Scripted refusal."
    retry_after_s: int | None = None

    async def play(self, to: Playing) -> bool:
        code = self.code or to.far.code_of.get(self.status, "api_error")
        later = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        await to.answer.error(self.status, code, self.message, later)
        return False


@dataclass(frozen=True)
class Cut(Step):
    """The connection breaks, in the middle of a stream or before it began."""

    times: int | None = None

    async def play(self, to: Playing) -> bool:
        await to.answer.cut()
        return False


@dataclass(frozen=True)
class Fault(Step):
    """A failure that is told within the stream."""

    code: str = "server_error"
    message: str = "Scripted failure."
    times: int | None = None

    async def play(self, to: Playing) -> bool:
        await to.begin()
        await to.answer.fail(self.message, self.code)
        return False


@dataclass(frozen=True)
class Hang(Step):
    """Nothing more, until the harness leaves or the test says `let_go`."""

    async def play(self, to: Playing) -> bool:
        await to.answer.writer.drain()
        to.far.hanging += 1
        going_on = asyncio.ensure_future(to.far.let_going.wait())
        leaving = asyncio.ensure_future(_READER.get().read(1))
        try:
            await asyncio.wait({going_on, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not going_on.done():
                raise ConnectionResetError
        finally:
            to.far.hanging -= 1
            going_on.cancel()
            leaving.cancel()
            await asyncio.wait({going_on, leaving})
        return True


@dataclass(frozen=True)
class Flood(Step):
    """Text without end, as fast as it is taken."""

    piece: str = "and so on, "

    async def play(self, to: Playing) -> bool:
        await to.begin()
        while True:
            await to.answer.say(self.piece)
            await asyncio.sleep(0)


@dataclass(frozen=True)
class Finish(Step):
    """How the round ends: ``length``, ``refusal``, ``content_filter`` instead of by itself."""

    reason: str

    async def play(self, to: Playing) -> bool:
        await to.begin()
        to.reason = self.reason
        return True


Round: TypeAlias = Step | Sequence[Step]
BEHAVIOURS: dict[FarBehaviour, tuple[Round, ...]] = {
    "answers": (Say("The capital of France is Paris.", pieces=6),),
    "waits": ([Say("The capital"), Hang()],),
    "fails": (Refuse(400),),
    "breaks-off": ([Say("The capital"), Cut()],),
    "loses-acceptance": (Cut(),),
    "floods": (Flood(),),
}


@dataclass
class _Turn:
    """How one input is answered, and how far that is."""

    rounds: tuple[Sequence[Step], ...]
    at: int = 0
    played: Counter[tuple[int, int]] = field(default_factory=Counter)

    def steps(self) -> list[Step]:
        """Of the round at hand, without those that were played often enough; counts what can be."""
        if self.at >= len(self.rounds):
            return [Say("Done.")]
        found = []
        for position, step in enumerate(self.rounds[self.at]):
            times = getattr(step, "times", None)
            if times is not None:
                if self.played[self.at, position] >= times:
                    continue
                self.played[self.at, position] += 1
                found.append(step)
                break
            found.append(step)
        return found


@dataclass
class FarSide(ChatServer):
    """A model server for real harnesses.

    Attributes:
        inputs: distinct inputs so far, in order; requests are counted in `requests`.
        told: what it was told of calls, each time anew.
        hanging: requests that are being kept waiting.
        refused_for_key: requests that came with another key.
        others: requests for something else than an answer of a model, as ``METHOD path``.
    """

    code_of: ClassVar[Mapping[int, str]] = {}
    call_prefix: ClassVar[str] = "call_"

    inputs: list[Input] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    hanging: int = 0
    refused_for_key: int = 0
    others: list[str] = field(default_factory=list)
    let_going: asyncio.Event = field(default_factory=asyncio.Event)
    _queue: deque[tuple[Sequence[Step], ...]] = field(default_factory=deque)
    _always: tuple[Sequence[Step], ...] = ((Say("The capital of France is Paris.", pieces=6),),)
    _turns: dict[tuple[str, int], _Turn] = field(default_factory=dict)
    _results_seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    _calls: int = 0

    # ---- what a test says ----

    def answer(self, *rounds: Round) -> None:
        """How the next new input is answered that nothing was said for yet."""
        self._queue.append(_plain(rounds))

    def always(self, *rounds: Round) -> None:
        """How every input is answered that `answer` says nothing of."""
        self._always = _plain(rounds)

    def behave(self, how: FarBehaviour) -> None:
        """As the driver contract has it."""
        self.always(*BEHAVIOURS[how])

    def let_go(self) -> None:
        """End every `Hang`."""
        self.let_going.set()

    @property
    def asked(self) -> int:
        """Requests for an answer of the model, repeated ones too."""
        return len([request for request in self.requests if self.is_question(request.method, request.path)])

    def body(self, number: int = -1) -> Any:
        """What the request for an answer of that number said."""
        found = [request for request in self.requests if self.is_question(request.method, request.path)]
        return found[number].json()

    # ---- what an API has otherwise ----

    def read(self, body: Any) -> Conversation:
        """What a request says."""
        raise AssertionError

    def other(self, method: str, path: str) -> Any:
        """The answer to a request for something else; None for a 404."""
        return None

    async def use(self, to: Playing, name: str, arguments: Arguments, call_id: str) -> None:
        await to.answer.call(call_id, name, arguments if isinstance(arguments, str) else json.dumps(arguments))

    async def thought_through(self, answer: Answer, text: str) -> None:
        """End a piece of reasoning."""

    # ---- serving ----

    def is_question(self, method: str, path: str) -> bool:
        return (method, path.partition("?")[0]) == ("POST", self.place)

    def new_call_id(self) -> str:
        self._calls += 1
        return f"{self.call_prefix}{self._calls:06}"

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        _READER.set(reader)
        return await super()._serve_one(reader, writer)

    async def _answer(self, answer: Answer) -> None:
        request = answer.request
        if self.key is not None and self.key_in(request) != self.key:
            self.refused_for_key += 1
            await answer.error(401, "invalid_api_key", "Incorrect API key provided.")
            return
        if not self.is_question(request.method, request.path):
            self.others.append(f"{request.method} {request.path}")
            found = self.other(request.method, request.path.partition("?")[0])
            if found is None:
                await answer.error(404, "model_not_found", "Not found: there is nothing here.")
            else:
                await answer.json(200, found)
            return
        talk = self.read(request.json())
        turn = self._turn(talk)
        self._note_results(talk)
        await self._play(Playing(self, answer, talk), turn)

    def _turn(self, talk: Conversation) -> _Turn:
        place = talk.name, len(talk.inputs)
        if place not in self._turns:
            if talk.inputs:
                self.inputs.append(talk.inputs[-1])
            rounds = self._queue.popleft() if self._queue and talk.inputs else self._always
            self._turns[place] = _Turn(rounds)
        return self._turns[place]

    def _note_results(self, talk: Conversation) -> None:
        here: Counter[tuple[str, str]] = Counter()
        for result in talk.results:
            place = talk.name, result.call_id
            here[place] += 1
            if here[place] > self._results_seen[place]:
                self._results_seen[place] += 1
                self.told.append(result)

    async def _play(self, playing: Playing, turn: _Turn) -> None:
        for step in turn.steps():
            if not await step.play(playing):
                return
        await playing.begin()
        await playing.answer.finish(playing.reason or ("tool_calls" if playing.asked_for_tools else "stop"))
        turn.at += 1


def _plain(rounds: Sequence[Round]) -> tuple[Sequence[Step], ...]:
    return tuple([each] if isinstance(each, Step) else each for each in rounds)


def _pieces(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, count)))
    return [text[start : start + size] for start in range(0, len(text), size)]
