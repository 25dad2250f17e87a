"""Requests to a managed harness over its vendor's SDK, with answers read as bytes.

Owns connections, the order of one request, the bounds of what is read, and the repeating of questions. Must not know
what is asked, sessions or events. Invariants: a request goes out once, unless it only asks (`look`); no exception of
an SDK or of HTTP leaves, and no text of a server; whatever a server sends, no more of it is in memory than the bounds
say; a stream that is closed leaves no task and no connection behind.
"""

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import httpx2

from runtime_host.connectors.base import Access, ConnectorRegistry
from runtime_host.connectors.network import NetworkSettings
from runtime_host.connectors.transport import (
    EncodedBodyError,
    OnSent,
    OutOfScopeError,
    Timeouts,
    open_connections,
    scoped_client,
)
from runtime_host.drivers.managed.faults import EVENT_TOO_LARGE, TOO_LARGE, ServiceFault, causes, lost, refused
from runtime_host.drivers.managed.hurry import pause
from runtime_host.errors import AgentClosedError, AgentRuntimeError
from runtime_host.loop.model_apis.pieces import FaultKind, ModelFault
from runtime_host.loop.model_apis.reading import parsed
from runtime_host.loop.model_apis.service import StreamedResponse, fault_of
from runtime_host.loop.model_apis.sse import EventDecoder, EventTooLargeError
from runtime_host.loop.own_thread import in_own_thread

C = TypeVar("C")
T = TypeVar("T")

Request = Callable[[C], AbstractAsyncContextManager[StreamedResponse]]
"""Writes a request with an SDK's client: ``lambda sdk: sdk.beta.….with_streaming_response.create(…)``."""

Begin = Callable[[Mapping[str, str]], Awaitable[None]]
"""Given the headers of an answer before any of its body."""
Take = Callable[[bytes], Awaitable[None]]

log = logging.getLogger(__name__)


class Bounds(NamedTuple):
    """Most bytes of one answer, of one event, and of events that were read ahead."""

    answer_bytes: int = 4 * 1024 * 1024
    event_bytes: int = 4 * 1024 * 1024
    ahead_bytes: int = 1024 * 1024
    ahead_events: int = 512


class Patience(NamedTuple):
    """How often a question is repeated and how long is waited in between.

    Attributes:
        tries: how often it is asked at most.
        first_wait_s: before the second time; each further wait is twice as long.
        longest_wait_s: of the growing waits.
        longest_asked_s: of a wait that the server asks for; one that asks for more is not asked again.
        sleep: waits.
    """

    tries: int = 5
    first_wait_s: float = 0.5
    longest_wait_s: float = 8.0
    longest_asked_s: float = 30.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def wait_s(self, tried: int, asked_s: float | None = None) -> float | None:
        """How long to wait after so many tries; None when there is to be no other."""
        if tried >= self.tries:
            return None
        if asked_s is not None:
            return asked_s if asked_s <= self.longest_asked_s else None
        return min(self.longest_wait_s, self.first_wait_s * math.pow(2.0, tried - 1))


class ServiceClient(ABC, Generic[C]):
    """One kind of service; keeps its connections between requests.

    A subclass lives in a module of its own that imports the SDK, and is made in a thread on first use.

    Attributes:
        passed_headers: what of the SDK's own headers may leave, in lower case.
        words: codes and types of refusals that may be told.
        status_error, any_error: what the SDK raises for a refusal, and for anything else.

    Args:
        connectors: finds servers and hands out keys, for each request anew.
        timeouts: when a server counts as gone; of a stream, when its observer counts as lost.
        bounds: of what is read.
        patience: of questions.
    """

    passed_headers: ClassVar[frozenset[str]] = frozenset()
    words: ClassVar[frozenset[str]] = frozenset()
    status_error: ClassVar[type[Exception]]
    any_error: ClassVar[type[Exception]]

    def __init__(
        self,
        connectors: ConnectorRegistry,
        timeouts: Timeouts | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008 - nobody can change it
        patience: Patience = Patience(),  # noqa: B008 - nobody can change it
    ) -> None:
        self._connectors = connectors
        self._timeouts = timeouts or Timeouts()
        self.bounds: Final = bounds
        self.patience: Final = patience
        self._connections: dict[tuple[str, NetworkSettings], httpx2.AsyncBaseTransport] = {}
        self._streams: set[EventStream] = set()
        self._closed = False

    @abstractmethod
    def secret_headers(self, key: str) -> Mapping[str, str]:
        """What proves who asks."""

    @abstractmethod
    def sdk(self, http_client: httpx2.AsyncClient, base_url: str) -> C:
        """The official client without retries and without the key, over the one HTTP stack."""

    async def call(self, connector: str, request: Request[C], on_sent: OnSent | None = None) -> Any:
        """Send a request once; the JSON of its answer, None for an empty one.

        `on_sent`: told how much of it is handed over.

        Raises:
            ServiceFault: `did_nothing` says whether it may have been acted upon.
            ConnectorError: nothing was sent.
        """
        async with self._client(connector, on_sent) as sdk:
            return await self._guarded(lambda: self._answer(request(sdk)))

    async def receive(self, connector: str, request: Request[C], begin: Begin, take: Take) -> None:
        """Send a request for a file once, and hand on what comes, piece by piece; `take` bounds it.

        Raises:
            ServiceFault
            ConnectorError: nothing was sent.
            AgentRuntimeError: of `begin` or `take`; the rest is not waited for.
        """
        async with self._client(connector) as sdk:
            await self._guarded(lambda: self._pieces(request(sdk), begin, take))

    async def look(self, connector: str, request: Request[C]) -> Any:
        """As `call` for a request that only asks: where the answer does not come it is asked for a few times more.

        Raises:
            ServiceFault: of the last time.
            ConnectorError
        """
        tried = 0
        while True:
            try:
                return await self.call(connector, request)
            except ServiceFault as fault:
                tried += 1
                wait_s = self.patience.wait_s(tried, fault.retry_after_s) if fault.may_pass else None
                if wait_s is None:
                    raise
                log.info("asked in vain (%s), again in %.1f s", fault.kind, wait_s)
            await pause(self.patience.sleep, wait_s)

    def watch(self, connector: str, request: Request[C], on_ready: Callable[[], None]) -> "EventStream":
        """Open a stream of events. `on_ready` is called whenever there is something to take, or it ended."""
        stream = EventStream(self._events(connector, request), self.bounds, on_ready)
        self._streams.add(stream)
        stream.task.add_done_callback(lambda _: self._streams.discard(stream))
        return stream

    async def aclose(self) -> None:
        """Close streams and connections. Idempotent."""
        self._closed = True
        for stream in tuple(self._streams):
            await stream.close()
        while self._connections:
            _, connections = self._connections.popitem()
            await connections.aclose()

    # ---- one request ----

    @asynccontextmanager
    async def _client(self, connector: str, on_sent: OnSent | None = None) -> AsyncIterator[C]:
        if self._closed:
            raise AgentClosedError("This harness is closed.")
        async with self._connectors.use(connector) as access:
            http_client = scoped_client(
                await self._connections_to(access),
                base_url=access.base_url,
                secret_headers={} if access.api_key is None else self.secret_headers(access.api_key),
                timeouts=self._timeouts,
                passed_headers=self.passed_headers,
                on_sent=on_sent,
            )
            try:
                yield self.sdk(http_client, access.base_url)
            finally:
                await http_client.aclose()

    async def _connections_to(self, access: Access) -> httpx2.AsyncBaseTransport:
        place = access.base_url, access.network
        connections = self._connections.get(place)
        if connections is None:
            opened = await in_own_thread(lambda: open_connections(network=access.network), "read certificates")
            connections = self._connections.setdefault(place, opened)
        return connections

    async def _guarded(self, ask: Callable[[], Awaitable[T]]) -> T:
        fault: ServiceFault | AgentRuntimeError
        try:
            return await ask()
        except ServiceFault as raised:
            fault = raised
        except (self.any_error, httpx2.HTTPError, httpx2.StreamError, OSError, *_OURS) as raised:
            fault = self._fault_of(raised)
        # Outside of the except blocks, so that no exception that holds the server's words hangs on it.
        raise fault

    def _fault_of(self, raised: BaseException) -> ServiceFault | AgentRuntimeError:
        refusal = next((cause for cause in causes(raised) if isinstance(cause, AgentRuntimeError)), None)
        if refusal is not None:
            return refusal
        if isinstance(raised, EventTooLargeError):
            return ServiceFault(FaultKind.MALFORMED, own_code=EVENT_TOO_LARGE)
        if isinstance(raised, _UNWRITABLE):
            # It is most likely that nothing was sent, and not certain: what it is raised for is not told.
            return ServiceFault(FaultKind.MALFORMED)
        response = getattr(raised, "response", None)
        if isinstance(raised, self.status_error) and isinstance(response, httpx2.Response):
            return refused(response.status_code, response.headers, response.content, words=self.words)
        return lost(fault_of(raised))

    async def _pieces(self, sending: AbstractAsyncContextManager[StreamedResponse], begin: Begin, take: Take) -> None:
        async with sending as streamed, aclosing(streamed.http_response.aiter_bytes()) as pieces:
            await begin(streamed.http_response.headers)
            async for piece in pieces:
                await take(piece)

    async def _answer(self, sending: AbstractAsyncContextManager[StreamedResponse]) -> Any:
        body = bytearray()
        async with sending as streamed, aclosing(streamed.http_response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > self.bounds.answer_bytes:
                    raise ServiceFault(FaultKind.MALFORMED, own_code=TOO_LARGE)
        if not body:
            return None
        try:
            return parsed(bytes(body))
        except ModelFault:
            pass
        raise ServiceFault(FaultKind.MALFORMED)

    async def _events(self, connector: str, request: Request[C]) -> AsyncGenerator["_Frame | ServiceFault", None]:
        """What comes of a stream: None once it is open, then its events, at last the fault where it broke."""
        try:
            async with self._client(connector) as sdk, self._opened(request(sdk)) as response:
                yield None
                decoder = EventDecoder(self.bounds.event_bytes)
                async with aclosing(response.aiter_bytes()) as chunks:
                    async for chunk in chunks:
                        for event in decoder.feed(chunk):
                            yield event.event, event.data
            return
        except (self.any_error, httpx2.HTTPError, httpx2.StreamError, OSError, *_OURS, ServiceFault) as raised:
            fault = raised if isinstance(raised, ServiceFault) else self._fault_of(raised)
        if isinstance(fault, AgentRuntimeError):
            raise fault
        yield fault

    @asynccontextmanager
    async def _opened(self, sending: AbstractAsyncContextManager[StreamedResponse]) -> AsyncIterator[httpx2.Response]:
        async with sending as streamed:
            response = streamed.http_response
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise ServiceFault(FaultKind.MALFORMED, status=response.status_code)
            yield response


_UNWRITABLE: Final = (ValueError, httpx2.InvalidURL)
"""What the SDK and HTTP raise for an id that makes no path, such as ``..``: a server may call its things anything."""
_OURS: Final = (OutOfScopeError, EncodedBodyError, EventTooLargeError, *_UNWRITABLE)
_Frame = tuple[str, bytes] | None


class EventStream:
    """Events as they come, read ahead within bounds by a task of its own.

    Attributes:
        ended: nothing more comes. What was read before can still be taken.
        fault: why it ended; None when the server closed it, which proves nothing.
    """

    def __init__(
        self,
        source: "AsyncGenerator[_Frame | ServiceFault, None]",
        bounds: Bounds,
        on_ready: Callable[[], None],
    ) -> None:
        self._source = source
        self._bounds = bounds
        self._on_ready = on_ready
        self._ahead: deque[tuple[str, bytes]] = deque()
        self._ahead_bytes = 0
        self._room = asyncio.Event()
        self._is_open = asyncio.Event()
        self.fault: ServiceFault | None = None
        self._refusal: AgentRuntimeError | None = None
        self.task: Final = asyncio.create_task(self._read(), name="events of a managed harness")

    @property
    def ended(self) -> bool:
        return self.task.done()

    async def opened(self) -> None:
        """Return once the server answers with a stream.

        Raises:
            ServiceFault: it did not.
            ConnectorError: nothing was sent.
        """
        await self._is_open.wait()
        if self._refusal is not None:
            raise self._refusal
        if self.fault is not None and self.ended:
            raise self.fault

    def take(self) -> list[dict[str, Any]]:
        """What has come since, oldest first. A frame that is no JSON object is ``{"type": ""}``.

        An event without a type of its own has the name of its frame.
        """
        events: list[dict[str, Any]] = []
        while self._ahead:
            name, data = self._ahead.popleft()
            self._ahead_bytes -= len(data)
            value = parsed(data, tolerant=True)
            event: dict[str, Any] = value if isinstance(value, dict) else {"type": ""}
            if not isinstance(event.get("type"), str):
                event = {**event, "type": name}
            events.append(event)
        self._room.set()
        return events

    async def close(self) -> None:
        """Read no further and close the connection. Sends nothing; idempotent."""
        self.task.cancel()
        await asyncio.wait({self.task})

    async def _read(self) -> None:
        try:
            async with aclosing(self._source) as frames:
                async for frame in frames:
                    if isinstance(frame, ServiceFault):
                        self.fault = frame
                    elif frame is not None:
                        await self._keep(frame)
                    else:
                        self._is_open.set()
        except AgentRuntimeError as refusal:
            self._refusal = refusal
        finally:
            asyncio.get_running_loop().call_soon(self._is_open.set)
            asyncio.get_running_loop().call_soon(self._on_ready)

    async def _keep(self, frame: tuple[str, bytes]) -> None:
        bounds = self._bounds
        while self._ahead and (self._ahead_bytes >= bounds.ahead_bytes or len(self._ahead) >= bounds.ahead_events):
            self._room.clear()
            await self._room.wait()
        self._ahead.append(frame)
        self._ahead_bytes += len(frame[1])
        self._on_ready()
