"""The harness `native.agent`: a chat with any model a connector leads to.

Owns the requests of its runs. Must not know storage, journal, other drivers or where keys are kept. Invariants:
a request is durable before it is sent, and is repeated a few times at most, visibly, and only because nothing else
comes of it than a reply: within a process while nothing of the reply was shown, after a restart when its end never
came. A model acts on nothing, tools are executed by the runtime's channel alone, and what they came to is told again,
not done again; what is said to a run is told before its next request; every fault of server or way ends as a failed
result in words, with what had arrived kept; after `cancel` returns nothing more is read, and the connection is closed
at once.
"""

import asyncio
import importlib
import logging
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from runtime_host.canonical import digest
from runtime_host.capabilities import DriverInspection
from runtime_host.connectors.base import Api, Connector, ConnectorRegistry
from runtime_host.definitions import AgentDefinition, ImagePart, JsonSchemaFormat, SessionOptions
from runtime_host.drivers.base import Asked, SessionOpening, TranscriptMessage, Turn
from runtime_host.drivers.native import mapping, profile
from runtime_host.drivers.native.formats import instructions_with, schema_name
from runtime_host.drivers.native.profile import DRIVER_ID
from runtime_host.errors import (
    AgentClosedError,
    AgentConfigurationChangedError,
    AgentRuntimeError,
    AgentSessionRecoveryError,
)
from runtime_host.events import DriverEvent
from runtime_host.loop.model_apis.pieces import (
    ChatRequest,
    EndReason,
    Finished,
    Kept,
    Message,
    ModelApi,
    ModelFault,
    Piece,
    ReasoningPiece,
    Schema,
    TextPiece,
)
from runtime_host.loop.model_apis.reading import KeptSize
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.models.declared import NOTHING_DECLARED, DeclaredModels
from runtime_host.models.facts import ModelFacts, facts_for
from runtime_host.models.reasoning import ReasoningMap
from runtime_host.results import Artifact, DriverResult, Usage
from runtime_host.tools.base import CallHeldError, ToolChannel, ToolDelivery, ToolRequest

if TYPE_CHECKING:
    from runtime_host.connectors.transport import Timeouts

_STATE_VERSION = 1
REPLY_CHARS = 8 * 1024 * 1024
"""Most characters of text and reasoning in one reply: a server that never ends fills neither memory nor disk."""
_WAITING_EVENTS = 1024
"""How far the server may run ahead of the pump; beyond it the connection itself holds the server back."""

_MODULE_OF: Final[dict[Api, str]] = {
    "chat-completions": "runtime_host.loop.model_apis.chat_completions",
    "responses": "runtime_host.loop.model_apis.responses",
    "messages": "runtime_host.loop.model_apis.messages",
}

log = logging.getLogger(__name__)


class Retries(NamedTuple):
    """How often and after which waits a request is sent once more.

    Attributes:
        tries: how often it is sent at most.
        first_wait_s: before the second try; each further wait is four times as long, and none exactly so long.
        longest_wait_s: a server that asks for more is not waited for.
        sleep: waits.
    """

    tries: int = 3
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def wait_s(self, fault: ModelFault, tried: int) -> float | None:
        """How long to wait before the next try; None when there is to be none."""
        if not fault.may_pass or tried >= self.tries:
            return None
        if fault.retry_after_s is not None:
            return fault.retry_after_s if fault.retry_after_s <= self.longest_wait_s else None
        # Not all at once, where many were refused together.
        spread = random.uniform(0.75, 1.25)  # noqa: S311 - no secret
        return min(self.longest_wait_s, self.first_wait_s * math.pow(4.0, tried - 1) * spread)


class _SpentError(Exception):
    """A request was sent as often as it may be."""


class NativeDriver:
    """Chats through the connectors of a registry.

    Args:
        connectors: finds servers and hands out keys.
        model_reasoning_efforts: efforts of models beyond the verified ones, or instead of them.
        declared: what the person says of models in their own file.
        timeouts: when a server counts as gone; None for the usual ones.
        max_iterations: how often a model may ask for tools within one run.
        retries: of requests of which nothing was shown.
        works_in_folders: whether agents have the tools for a folder (`runtime_host.loop.plugins.workspace`).

    Raises:
        AgentDriverConfigurationError: an effort that is declared is unknown or never sent.
    """

    resumes = True
    parks = True

    def __init__(
        self,
        connectors: ConnectorRegistry,
        *,
        model_reasoning_efforts: Mapping[str, Sequence[str]] | None = None,
        declared: DeclaredModels = NOTHING_DECLARED,
        timeouts: "Timeouts | None" = None,
        max_iterations: int = 64,
        retries: Retries = Retries(),  # noqa: B008 - nobody can change it
        works_in_folders: bool = False,
    ) -> None:
        self._works_in_folders = works_in_folders
        self.max_iterations = max_iterations
        self.retries = retries
        self._vouched_efforts = model_reasoning_efforts
        self.declare(declared)
        self._connectors = connectors
        self._timeouts = timeouts
        self._loading: dict[Api, asyncio.Task[ModelApi]] = {}
        self._closed = False

    def declare(self, declared: DeclaredModels) -> None:
        """Go by these sayings of the person from now on.

        Raises:
            AgentDriverConfigurationError: an effort that is declared is unknown or never sent; then nothing changes.
        """
        self.efforts = ReasoningMap(
            DRIVER_ID,
            efforts=self._vouched_efforts,
            declared=declared.reasoning[DRIVER_ID],
            not_reasoning=declared.not_reasoning,
        )
        self.declared = declared

    @property
    def driver_id(self) -> str:
        return DRIVER_ID

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        """Check a binding; reads no key and sends nothing."""
        folder = profile.check_session(options, folders=self._works_in_folders)
        execution = options.execution
        connector = self._connectors.connector(execution.connector)
        profile.check_model(connector, execution.model)
        facts = facts_for(connector, execution.model, self.declared)
        profile.check_folder(folder, facts)
        profile.check_reasoning(self.efforts, connector, execution.model, execution.reasoning)
        return profile.inspection(definition, connector, facts, self.efforts, folder)

    async def open(self, opening: SessionOpening) -> "NativeSession":
        """Open or restore a session; the conversation itself is the runtime's transcript."""
        if self._closed:
            raise AgentClosedError("native.agent is closed.")
        await self.inspect(opening.definition, opening.options)
        if opening.state is not None and opening.state.get("version") != _STATE_VERSION:
            raise AgentSessionRecoveryError(
                "This session was kept by another version of native.agent, so it is not continued. "
                "Its messages can still be read.",
                session_id=opening.session_id,
            )
        endpoint = _endpoint(self._connectors.connector(opening.options.execution.connector))
        if opening.state is not None and opening.state.get("endpoint", endpoint) != endpoint:
            raise _moved(opening.options.execution.connector)
        return NativeSession(self, self._connectors, opening, endpoint)

    async def forget(self, agent_id: str, session_id: str, state: dict[str, Any] | None) -> None:
        """Nothing of a session is kept here: its transcript is the runtime's."""

    async def aclose(self) -> None:
        self._closed = True
        while self._loading:
            _, loading = self._loading.popitem()
            # A load that nobody waits for any more still has its thread.
            await asyncio.wait({loading})
            if not loading.cancelled() and loading.exception() is None:
                await loading.result().aclose()

    async def api(self, kind: Api) -> ModelApi:
        """The API of a kind, its SDK loaded on first use and away from the event loop."""
        if self._closed:
            raise AgentClosedError("native.agent is closed.")
        loading = self._loading.get(kind)
        if loading is None or (loading.done() and (loading.cancelled() or loading.exception() is not None)):
            load = in_own_thread(lambda: self._load(kind), f"load {kind}")
            loading = self._loading[kind] = asyncio.create_task(load)
        # Not given up with the run that asked first: others may wait for it.
        return await asyncio.shield(loading)

    def _load(self, kind: Api) -> ModelApi:
        # By name, so that neither this module nor a type checker's import brings an SDK in.
        api: ModelApi = importlib.import_module(_MODULE_OF[kind]).load(self._timeouts)
        return api


def _endpoint(connector: Connector) -> str:
    """Which server a connector leads to; the same for another key, another for another address."""
    return digest([connector.vendor, connector.base_url])


def _moved(name: str) -> AgentConfigurationChangedError:
    return AgentConfigurationChangedError(
        f"The connector {name} leads to another server than when this session began, and what was said here was "
        "not meant for it. Nothing was sent. Begin a new session to use the other server."
    )


class NativeSession:
    """One conversation. Holds nothing but its options: each turn reads the transcript anew."""

    def __init__(
        self, driver: NativeDriver, connectors: ConnectorRegistry, opening: SessionOpening, endpoint: str
    ) -> None:
        self._driver = driver
        self._endpoint = endpoint
        self._connectors = connectors
        self._opening = opening
        self._runs: set[NativeRun] = set()
        self._closed = False

    async def start(self, turn: Turn) -> "NativeRun":
        """Send the input.

        Raises:
            AgentDriverConfigurationError: model or reasoning of this turn are refused; nothing was sent.
            AgentConfigurationChangedError: the connector leads to another address now; nothing was sent.
        """
        if self._closed:
            raise AgentClosedError("This session is closed.")
        connector = self._connectors.connector(self._opening.options.execution.connector)
        if _endpoint(connector) != self._endpoint:
            raise _moved(connector.name)
        profile.check_model(connector, turn.model)
        profile.check_parts(turn.parts)
        facts = facts_for(connector, turn.model, self._driver.declared)
        profile.check_reasoning(self._driver.efforts, connector, turn.model, turn.reasoning)
        run = NativeRun(
            self._driver, self._connectors, connector, facts, self._opening.definition, turn, self._runs.discard
        )
        self._runs.add(run)
        return run

    def state(self) -> dict[str, Any]:
        return {"version": _STATE_VERSION, "endpoint": self._endpoint}

    async def close(self) -> None:
        self._closed = True
        for run in tuple(self._runs):
            await run.cancel()


class NativeRun:
    """The requests of one input and their replies.

    They are read by a task of its own, so that a cancel need not wait for the server.
    """

    def __init__(
        self,
        driver: NativeDriver,
        connectors: ConnectorRegistry,
        connector: Connector,
        facts: ModelFacts,
        definition: AgentDefinition,
        turn: Turn,
        on_end: "Callable[[NativeRun], None]",
    ) -> None:
        self._driver = driver
        self._connectors = connectors
        self._connector = connector
        self._facts = facts
        self._definition = definition
        self._turn = turn
        self._reply = mapping.ReplyMapper()
        self._tries = 0
        self._kept_size = KeptSize()
        self._published = 0
        self._waiting: deque[DriverEvent] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._result: DriverResult | None = None
        self._held: CallHeldError | None = None
        self._changed: dict[str, Artifact] = {}
        self._task = asyncio.create_task(self._read(), name=f"native.agent {turn.run_id}")
        self._task.add_done_callback(lambda _: self._ended(on_end))

    async def events(self) -> AsyncIterator[DriverEvent]:
        """Events until the reply has ended, in one way or another."""
        while True:
            while self._waiting:
                event = self._waiting.popleft()
                if len(self._waiting) < _WAITING_EVENTS:
                    self._room.set()
                yield event
            if self._task.done():
                return
            self._wake.clear()
            await self._wake.wait()

    async def result(self) -> DriverResult:
        """The outcome; waits for it.

        Raises:
            CallHeldError: calls wait for a person.
        """
        await asyncio.wait([self._task])
        if self._held is not None:
            raise self._held
        result = self._result or mapping.cancelled(self._reply)
        return result.model_copy(update={"artifacts": tuple(self._changed.values())}) if self._changed else result

    async def cancel(self) -> None:
        """Close the connection. What had arrived stays; returns once nothing more is read."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def _ended(self, on_end: "Callable[[NativeRun], None]") -> None:
        self._wake.set()
        on_end(self)

    async def _read(self) -> None:
        connector, model = self._connector, self._turn.model
        try:
            await self._exchange()
        except CallHeldError as held:
            self._held = held
        except _SpentError:
            self._result = mapping.unreachable(self._reply, connector)
        except ModelFault as fault:
            log.info("native.agent %s: %s, http status %s", self._turn.run_id, fault.kind, fault.http_status)
            self._result = mapping.failed(self._reply, fault, connector, model, self._tries)
        except AgentRuntimeError as refused:
            self._result = mapping.not_sent(refused, self._reply)
        except Exception as fault:
            # Its kind only: what an SDK puts into its exceptions may hold what a server wrote.
            log.error("native.agent %s: unexpected %s", self._turn.run_id, type(fault).__name__)
            self._result = mapping.unexpected(self._reply)
        else:
            self._result = self._result or mapping.ended(self._reply, connector, model)

    async def _exchange(self) -> None:
        """Send the input, then round by round what tools came to, up to the proper end of a reply."""
        turn, tools = self._turn, self._turn.tools
        earlier = await turn.read_transcript()
        api = await self._driver.api(self._connector.api)
        images = tuple(part for part in turn.parts if isinstance(part, ImagePart))
        now = TranscriptMessage("user", turn.text, images=images)
        messages = mapping.messages(earlier, now, images=self._facts.images is not False)
        telling = await self._catch_up(messages)
        while True:
            await self._listen(messages)
            self._reply.begin(offered=tools is not None)
            await self._whole_reply(api, messages, telling)
            telling = ()
            requests = self._reply.requests()
            if tools is None or not requests:
                if self._reply.reason is not EndReason.STOP or self._reply.number >= self._driver.max_iterations:
                    return
                said = Message("assistant", self._reply.text)
                if not await self._listen(messages, after=said if said.text.strip() else None):
                    return
                continue
            if len({request.call_id for request in requests}) < len(requests):
                self._result = mapping.one_id_for_two(self._reply, turn.model)
                return
            if self._reply.number >= self._driver.max_iterations:
                self._result = mapping.too_many_rounds(self._reply, self._driver.max_iterations, turn.model)
                return
            deliveries, telling = await self._execute(tools, requests)
            messages += mapping.round_messages(self._reply.text, deliveries, self._reply.kept)

    async def _catch_up(self, messages: list[Message]) -> tuple[str, ...]:
        """What this run was before a restart, behind its input; the calls whose results are yet to be told."""
        tools, lane = self._turn.tools, self._turn.lane
        telling: tuple[str, ...] = ()
        kept = lane.kept if lane is not None else {}
        if lane is not None and lane.usage is not None:
            self._reply.used_before(lane.usage)
        past = mapping.segments(lane.said if lane is not None else (), tools.earlier if tools is not None else ())
        for number, segment in enumerate(past, start=1):
            if segment.said is not None:
                mapping.said_now(messages, segment.said)
            for round_ in segment.rounds:
                self._reply.begin(offered=True, number=round_.number)
                deliveries = round_.told
                if tools is not None and len(deliveries) < len(round_.requests):
                    deliveries, telling = await self._execute(tools, round_.requests)
                messages += mapping.round_messages(round_.said, deliveries, kept.get(round_.number, ()))
            if segment.replies and number < len(past):
                self._reply.begin(offered=tools is not None)
                messages.append(Message("assistant", "\n\n".join(segment.replies)))
        return telling

    async def _listen(self, messages: list[Message], after: Message | None = None) -> bool:
        """Take what was said to the run; whether there was anything. `after`: a reply that it stands behind."""
        if self._turn.lane is None:
            return False
        if after is not None:
            await self._let_be_read()
        said = await self._turn.lane.steers()
        if said and after is not None:
            messages.append(after)
        for text in said:
            mapping.said_now(messages, text)
        return bool(said)

    async def _whole_reply(self, api: ModelApi, messages: list[Message], telling: tuple[str, ...]) -> None:
        """Ask for a reply, and for the rest of it where the server pauses. `telling`: calls whose results are in it."""
        rest: list[Message] = []
        asked, used_before = None, self._reply.usage
        for pauses in range(self._driver.max_iterations):
            used_before = self._reply.usage
            asked = await self._ask(api, [*messages, *rest], telling, goes_on=bool(rest))
            goes_on = self._reply.reason is EndReason.PAUSED and self._reply.kept
            if not goes_on or pauses == self._driver.max_iterations - 1:
                break
            self._answered(asked, used_before)
            kept = (*(rest[0].kept if rest else ()), *self._reply.kept)
            rest = [Message("assistant", self._reply.text, kept=kept)]
            self._reply.go_on()
            telling = ()
        if rest:
            # Calls asked for after a pause are answered with all that was said before them.
            self._reply.kept = (*rest[0].kept, *self._reply.kept)
        self._answered(asked, used_before, self._reply.kept)
        for event in self._reply.closing_events():
            await self._publish(event)

    async def _execute(
        self, tools: ToolChannel, requests: tuple[ToolRequest, ...]
    ) -> tuple[tuple[ToolDelivery, ...], tuple[str, ...]]:
        """What the calls of the newest reply came to, ready to be told, and their ids."""
        await self._let_be_read()
        running: list[ToolRequest] = []

        async def started(request: ToolRequest, arguments: Any) -> None:
            running.append(request)
            about = {"id": request.call_id, "name": request.name, "arguments": arguments, **request.about}
            await self._publish(DriverEvent("tool.started", about))

        async def progressed(request: ToolRequest, text: str) -> None:
            await self._publish(mapping.tool_progressed(request, text))

        async def completed(delivery: ToolDelivery) -> None:
            running.clear()
            await self._publish(mapping.tool_completed(delivery))
            for event, artifact in mapping.changes_of(delivery, self._changed):
                self._changed[event.data["path"]] = artifact
                await self._publish(event)

        try:
            deliveries = await tools.execute(requests, started, completed, progressed)
        except (asyncio.CancelledError, AgentRuntimeError):
            for request in running:
                self._waiting.append(mapping.tool_interrupted(request))
            raise
        call_ids = tuple(delivery.call_id for delivery in deliveries)
        await tools.delivering(call_ids)
        return deliveries, call_ids

    async def _let_be_read(self) -> None:
        """What the model said before goes to disk with its calls, or with what was said to it."""
        while self._waiting:
            self._room.clear()
            await self._room.wait()

    async def _write_request(self, messages: Sequence[Message], *, goes_on: bool) -> Asked | None:
        lane = self._turn.lane
        if lane is None:
            self._tries += 1
            return None
        await self._let_be_read()
        words = [(message.role, _words_of(message)) for message in messages]
        asked = await lane.ask(self._turn.model, words, goes_on=goes_on)
        if asked is None:
            raise _SpentError
        self._tries = asked.tries
        return asked

    def _answered(self, asked: Asked | None, before: Usage | None, kept: Sequence[Mapping[str, Any]] = ()) -> None:
        if asked is not None and self._turn.lane is not None:
            reason = (self._reply.reason or EndReason.UNKNOWN).value
            used = mapping.used_since(before, self._reply.usage)
            self._turn.lane.answered(asked, reason, used, number=self._reply.number, kept=kept)

    async def _ask(
        self, api: ModelApi, messages: Sequence[Message], telling: tuple[str, ...], *, goes_on: bool = False
    ) -> Asked | None:
        """Send one request, again where that may help and nothing was shown, and publish what comes of it."""
        request, retries = self._request(messages), self._driver.retries
        self._tries = 0
        while True:
            asked = await self._write_request(messages, goes_on=goes_on)
            shown_before = self._published
            try:
                await self._read_reply(api, request, telling)
            except ModelFault as fault:
                wait_s = retries.wait_s(fault, self._tries) if self._published == shown_before else None
                if wait_s is None:
                    raise
                log.info("native.agent %s: %s, to be tried again", self._turn.run_id, fault.kind)
                event = mapping.retrying(fault, self._connector, self._turn.model, self._tries + 1, wait_s)
            else:
                return asked
            await self._publish(event)
            self._reply.again()
            await retries.sleep(wait_s)

    async def _read_reply(self, api: ModelApi, request: ChatRequest, telling: tuple[str, ...]) -> None:
        tools, name = self._turn.tools, self._connector.name
        # After a pause the reply goes on.
        chars = len(self._reply.text)
        async with self._connectors.use(name) as access, aclosing(api.stream(access, request)) as pieces:
            if _endpoint(access.connector) != _endpoint(self._connector):
                raise _moved(name)
            async for piece in pieces:
                if tools is not None and telling:
                    # A reply has begun, so the server has read what it was told.
                    tools.delivered(telling)
                    telling = ()
                for event in self._reply.events(piece):
                    await self._publish(event)
                if isinstance(piece, Kept):
                    # All of a run together: each further request hands back what came in all before.
                    self._kept_size.grow(sum(len(str(entry)) for entry in piece.entries))
                chars += _shown_chars(piece)
                if chars > REPLY_CHARS:
                    list(self._reply.events(Finished(EndReason.LENGTH)))
                    break

    def _request(self, messages: Sequence[Message]) -> ChatRequest:
        turn, tools, wanted = self._turn, self._turn.tools, self._turn.response_format
        info = profile.model_info(self._connector, turn.model)
        instructions, schema = self._definition.instructions, None
        if isinstance(wanted, JsonSchemaFormat):
            if profile.holds_to_schemas(self._connector):
                schema = Schema(wanted.json_schema, schema_name(wanted.name), wanted.strict)
            if self._connector.api == "chat-completions":
                # A server's grammar lets only what fits pass; what is wanted the model has to be told.
                instructions = instructions_with(instructions, wanted)
        offers = tools.offers if tools is not None else ()
        return ChatRequest(
            model=turn.model,
            messages=messages if offers else mapping.in_words(messages),
            instructions=instructions,
            tools=offers,
            reasoning_effort=mapping.effort(turn.reasoning),
            reasons=profile.reasons(self._driver.efforts, self._connector, self._turn.model),
            schema=schema,
            max_output_tokens=profile.output_tokens(self._connector, self._facts),
            temperature=info.temperature if info else None,
            top_p=info.top_p if info else None,
        )

    async def _publish(self, event: DriverEvent) -> None:
        while len(self._waiting) >= _WAITING_EVENTS:
            self._room.clear()
            await self._room.wait()
        self._published += 1
        self._waiting.append(event)
        self._wake.set()


def _words_of(message: Message) -> str:
    """What a request is known by of a message: its words, its calls and what they came to."""
    said = [message.text, *(f"{call.call_id} {call.name} {call.arguments}" for call in message.calls)]
    return "\n".join((*said, *(f"{answer.call_id} {answer.text}" for answer in message.answers)))


def _shown_chars(piece: Piece) -> int:
    return len(piece.text) if isinstance(piece, TextPiece | ReasoningPiece) else 0
