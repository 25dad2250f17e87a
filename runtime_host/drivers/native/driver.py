"""The harness `native.agent`: a chat with any model a connector leads to.

Owns the requests of its runs. Must not know storage, journal, other drivers or where keys are kept. Invariants:
one input is one request, never sent again; every fault of server or way ends as a failed result in words, with
what had arrived kept; after `cancel` returns nothing more is read, and the connection is closed at once.
"""

import asyncio
import importlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from runtime_host.capabilities import DriverInspection
from runtime_host.connectors.base import Connector, ConnectorRegistry
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.drivers.base import SessionOpening, Turn
from runtime_host.drivers.native import mapping, profile
from runtime_host.drivers.native.profile import DRIVER_ID, EffortMap
from runtime_host.errors import AgentClosedError, AgentRuntimeError, AgentSessionRecoveryError
from runtime_host.events import DriverEvent
from runtime_host.loop.model_apis.pieces import (
    ChatRequest,
    EndReason,
    Finished,
    ModelFault,
    ReasoningPiece,
    TextPiece,
)
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.results import DriverResult

if TYPE_CHECKING:
    from runtime_host.connectors.transport import Timeouts
    from runtime_host.loop.model_apis.chat_completions import ChatCompletionsApi

_STATE_VERSION = 1
REPLY_CHARS = 8 * 1024 * 1024
"""Most characters of text and reasoning in one reply: a server that never ends fills neither memory nor disk."""
_WAITING_EVENTS = 1024
"""How far the server may run ahead of the pump; beyond it the connection itself holds the server back."""

log = logging.getLogger(__name__)


class NativeDriver:
    """Chats through the connectors of a registry.

    Args:
        connectors: finds servers and hands out keys.
        model_reasoning_efforts: efforts of models beyond the verified ones, or instead of them.
        timeouts: when a server counts as gone; None for the usual ones.

    Raises:
        AgentDriverConfigurationError: an entry of `model_reasoning_efforts` is empty or unknown.
    """

    def __init__(
        self,
        connectors: ConnectorRegistry,
        *,
        model_reasoning_efforts: Mapping[str, Sequence[str]] | None = None,
        timeouts: "Timeouts | None" = None,
    ) -> None:
        self.efforts = EffortMap(model_reasoning_efforts)
        self._connectors = connectors
        self._timeouts = timeouts
        self._api: ChatCompletionsApi | None = None
        self._api_lock = asyncio.Lock()
        self._closed = False

    @property
    def driver_id(self) -> str:
        return DRIVER_ID

    async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
        """Check a binding; reads no key and sends nothing."""
        profile.check_session(definition, options)
        execution = options.execution
        connector = self._connectors.connector(execution.connector)
        profile.check_model(connector, execution.model)
        self.efforts.check(execution.model, execution.reasoning)
        return profile.inspection(connector, execution.model, self.efforts)

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
        return NativeSession(self, self._connectors, opening)

    async def aclose(self) -> None:
        self._closed = True
        async with self._api_lock:
            if self._api is not None:
                await self._api.aclose()
                self._api = None

    async def api(self) -> "ChatCompletionsApi":
        """The API, its SDK loaded on first use and away from the event loop."""
        async with self._api_lock:
            if self._closed:
                raise AgentClosedError("native.agent is closed.")
            if self._api is None:
                self._api = await in_own_thread(self._load, "load openai")
            return self._api

    def _load(self) -> "ChatCompletionsApi":
        # By name, so that neither this module nor a type checker's import brings the SDK in.
        module = importlib.import_module("runtime_host.loop.model_apis.chat_completions")
        module.rehearse()
        api: ChatCompletionsApi = module.ChatCompletionsApi(self._timeouts)
        return api


class NativeSession:
    """One conversation. Holds nothing but its options: each turn reads the transcript anew."""

    def __init__(self, driver: NativeDriver, connectors: ConnectorRegistry, opening: SessionOpening) -> None:
        self._driver = driver
        self._connectors = connectors
        self._opening = opening
        self._runs: set[NativeRun] = set()
        self._closed = False

    async def start(self, turn: Turn) -> "NativeRun":
        """Send the input.

        Raises:
            AgentDriverConfigurationError: model or reasoning of this turn are refused; nothing was sent.
        """
        if self._closed:
            raise AgentClosedError("This session is closed.")
        connector = self._connectors.connector(self._opening.options.execution.connector)
        profile.check_model(connector, turn.model)
        self._driver.efforts.check(turn.model, turn.reasoning)
        run = NativeRun(self._driver, self._connectors, connector, self._opening.definition, turn, self._runs.discard)
        self._runs.add(run)
        return run

    def state(self) -> dict[str, Any]:
        return {"version": _STATE_VERSION}

    async def close(self) -> None:
        self._closed = True
        for run in tuple(self._runs):
            await run.cancel()


class NativeRun:
    """One request and its reply, read by a task of its own so that a cancel need not wait for the server."""

    def __init__(
        self,
        driver: NativeDriver,
        connectors: ConnectorRegistry,
        connector: Connector,
        definition: AgentDefinition,
        turn: Turn,
        on_end: "Callable[[NativeRun], None]",
    ) -> None:
        self._driver = driver
        self._connectors = connectors
        self._connector = connector
        self._definition = definition
        self._turn = turn
        self._reply = mapping.ReplyMapper()
        self._waiting: deque[DriverEvent] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._result: DriverResult | None = None
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
        """The outcome; waits for it."""
        await asyncio.wait([self._task])
        return self._result or mapping.cancelled(self._reply)

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
        except ModelFault as fault:
            log.info("native.agent %s: %s, http status %s", self._turn.run_id, fault.kind, fault.http_status)
            self._result = mapping.failed(self._reply, fault, connector, model)
        except AgentRuntimeError as refused:
            self._result = mapping.not_sent(refused)
        except Exception as fault:
            # Its kind only: what an SDK puts into its exceptions may hold what a server wrote.
            log.error("native.agent %s: unexpected %s", self._turn.run_id, type(fault).__name__)
            self._result = mapping.unexpected(self._reply)
        else:
            self._result = mapping.ended(self._reply, connector, model)

    async def _exchange(self) -> None:
        """Send the one request and publish the reply up to its proper end."""
        connector, turn = self._connector, self._turn
        earlier = await turn.read_transcript()
        api = await self._driver.api()
        info = profile.model_info(connector, turn.model)
        request = ChatRequest(
            model=turn.model,
            messages=mapping.messages(self._definition.instructions, earlier, turn.text),
            reasoning_effort=mapping.effort(turn.reasoning),
            max_output_tokens=info.max_output_tokens if info else None,
            temperature=info.temperature if info else None,
            top_p=info.top_p if info else None,
        )
        chars = 0
        async with self._connectors.use(connector.name) as access, aclosing(api.stream(access, request)) as pieces:
            async for piece in pieces:
                for event in self._reply.events(piece):
                    await self._publish(event)
                if isinstance(piece, TextPiece | ReasoningPiece):
                    chars += len(piece.text)
                    if chars > REPLY_CHARS:
                        list(self._reply.events(Finished(EndReason.LENGTH)))
                        break
        for event in self._reply.closing_events():
            await self._publish(event)

    async def _publish(self, event: DriverEvent) -> None:
        while len(self._waiting) >= _WAITING_EVENTS:
            self._room.clear()
            await self._room.wait()
        self._waiting.append(event)
        self._wake.set()
