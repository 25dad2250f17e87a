"""One request to a model server over its official client, and the reading of the stream that answers it.

Owns what all kinds of API have in common: connections, the order of one request, time limits after the end, and what
a lost request means. Must not know events, sessions or where keys come from. Invariants: a request is sent once; the
one exception is a server that refused it outright for an optional field and did nothing else with it; no exception of
an SDK or of HTTP leaves; leaving the iterator closes the connection.

The client of the SDK sends the request and reads refusals; the stream is read as bytes (`with_streaming_response`),
because the decoders of the SDKs have no bound on the size of an event, do not tell a finished stream from one that
just ended, drop events without a name, and cost a model object for each token.
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, ClassVar, Final, Protocol

import anyio.lowlevel
import httpx2

from runtime_host.connectors.base import Access
from runtime_host.connectors.network import NetworkSettings
from runtime_host.connectors.transport import (
    EncodedBodyError,
    OutOfScopeError,
    ProxyFaultError,
    Timeouts,
    open_connections,
    scoped_client,
)
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.model_apis.pieces import ChatRequest, FaultKind, Finished, ModelFault, Piece, TlsReason
from runtime_host.loop.model_apis.refusals import refusal_fault
from runtime_host.loop.model_apis.sse import EventDecoder, EventTooLargeError, ServerEvent
from runtime_host.loop.own_thread import in_own_thread

NOT_THE_KEY: Final = "held-by-the-transport"
"""What the SDKs are told instead of the key, which the transport puts in."""
AFTER_FINISH_S: Final = 5.0
AFTER_DONE_S: Final = 0.1
_OURS: Final = (OutOfScopeError, EncodedBodyError, EventTooLargeError)
"""Raised below or above an SDK; some SDKs wrap what is raised below them in an error of theirs."""


class FrameReader(Protocol):
    """Reads the frames of one reply. `done`: the server has said that nothing more comes."""

    @property
    def done(self) -> bool: ...

    def read(self, event: ServerEvent) -> list[Piece]: ...


class StreamedResponse(Protocol):
    """Of an SDK's response what is used of it."""

    @property
    def http_response(self) -> httpx2.Response: ...


class Refused(Exception):
    """The server answered, and not with success. Made inside of a subclass, so that it knows no SDK's exceptions."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__()
        self.status = response.status_code
        self.headers = response.headers
        self.content = response.content

    def fault(self, request: ChatRequest) -> ModelFault:
        pictures = any(message.images for message in request.messages)
        return refusal_fault(self.status, self.headers, self.content, pictures=pictures)


class SdkApi(ABC):
    """One kind of API; keeps its connections between requests.

    Attributes:
        passed_headers: what of the SDK's own headers may leave.
        status_error, any_error: what the SDK raises for a refusal, and for anything else.

    Args:
        timeouts: when a server counts as gone.
    """

    passed_headers: ClassVar[frozenset[str]] = frozenset()
    status_error: ClassVar[type[Exception]]
    any_error: ClassVar[type[Exception]]

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self._timeouts = timeouts or Timeouts()
        self._connections: dict[tuple[str, NetworkSettings], httpx2.AsyncBaseTransport] = {}
        self._refused_extras: set[tuple[str, str]] = set()

    @abstractmethod
    def secret_headers(self, key: str) -> Mapping[str, str]:
        """What proves who asks."""

    @abstractmethod
    def reader(self) -> FrameReader:
        """For one reply."""

    @abstractmethod
    def send(
        self, http_client: httpx2.AsyncClient, base_url: str, body: dict[str, Any]
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """Send the request over the SDK."""

    @abstractmethod
    def body(self, request: ChatRequest, *, extras: bool) -> dict[str, Any]:
        """The request as this API writes it. `extras`: with fields that not every server or model takes."""

    @abstractmethod
    def refuses_extras(self, refused: Refused) -> bool:
        """Whether the server refused the request for the extras alone."""

    async def stream(self, access: Access, request: ChatRequest) -> AsyncGenerator[Piece, None]:
        """Send `request` and yield the reply as it comes; `Finished` is in it unless this raises.

        Raises:
            ModelFault: refused, failed, cut or silent.
        """
        connections = await self._connections_to(access)
        http_client = scoped_client(
            connections,
            base_url=access.base_url,
            secret_headers={} if access.api_key is None else self.secret_headers(access.api_key),
            timeouts=self._timeouts,
            passed_headers=self.passed_headers,
        )
        try:
            async with aclosing(self._stream(http_client, access.base_url, request)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            await http_client.aclose()
            if access.uds_path is not None:
                # The built-in server may be stopped after this use; a kept connection would outlive it.
                await connections.aclose()

    async def aclose(self) -> None:
        """Close all connections. Idempotent."""
        while self._connections:
            _, connections = self._connections.popitem()
            await connections.aclose()

    async def _connections_to(self, access: Access) -> httpx2.AsyncBaseTransport:
        if access.uds_path is not None:
            return open_connections(uds_path=access.uds_path)
        place = access.base_url, access.network
        connections = self._connections.get(place)
        if connections is None:
            opened = await in_own_thread(lambda: open_connections(network=access.network), "read certificates")
            connections = self._connections.setdefault(place, opened)
        return connections

    async def _stream(
        self, http_client: httpx2.AsyncClient, base_url: str, request: ChatRequest
    ) -> AsyncGenerator[Piece, None]:
        place = base_url, request.model
        extras = place not in self._refused_extras
        while True:
            fault: ModelFault | AgentRuntimeError
            try:
                async with (
                    self.send(http_client, base_url, self.body(request, extras=extras)) as response,
                    aclosing(read_stream(response.http_response, self.reader())) as pieces,
                ):
                    async for piece in pieces:
                        yield piece
                return
            except self.status_error as error:
                refused = Refused(error.response)  # type: ignore[attr-defined]  # what a status error has
                if extras and self.refuses_extras(refused):
                    extras = False
                    self._refused_extras.add(place)
                    continue
                fault = refused.fault(request)
            except ModelFault as raised:
                fault = raised
            except (self.any_error, httpx2.HTTPError, httpx2.StreamError, OSError, *_OURS) as lost:
                refusal = next((cause for cause in _causes(lost) if isinstance(cause, AgentRuntimeError)), None)
                fault = refusal or fault_of(lost)
            # Outside of the except blocks, so that no exception that holds the server's words hangs on it.
            raise fault

    def rehearse(self, frames: bytes) -> None:
        """Load what the SDK and the HTTP stack put off until their first request. For the thread that imports this."""
        open_connections(uds_path="unused")
        asyncio.run(self._rehearsal(frames))

    async def _rehearsal(self, frames: bytes) -> None:
        base_url = "http://localhost/v1"

        async def answer(_: httpx2.Request) -> httpx2.Response:
            await anyio.lowlevel.checkpoint()
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=frames)

        http_client = scoped_client(
            httpx2.MockTransport(answer), base_url=base_url, secret_headers={}, timeouts=Timeouts()
        )
        async with http_client, aclosing(self._stream(http_client, base_url, ChatRequest("none", []))) as pieces:
            async for _ in pieces:
                pass


async def read_stream(response: httpx2.Response, reader: FrameReader) -> AsyncGenerator[Piece, None]:
    """The pieces of a stream up to its proper end."""
    decoder = EventDecoder()
    finished = False
    # Once the reply has ended only the count of tokens is missing: not worth a long wait.
    deadline: float | None = None
    async with aclosing(response.aiter_bytes()) as chunks:
        try:
            while not reader.done:
                try:
                    async with asyncio.timeout_at(deadline):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    break
                for event in decoder.feed(chunk):
                    for piece in reader.read(event):
                        if isinstance(piece, Finished):
                            finished = True
                            deadline = asyncio.get_running_loop().time() + AFTER_FINISH_S
                        yield piece
                    if reader.done:
                        break
            if reader.done:
                await _drain(chunks)
        except (TimeoutError, httpx2.HTTPError):
            # The reply was whole; what broke came after it.
            if not finished:
                raise
    if not finished:
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        raise ModelFault(FaultKind.STREAM_CUT if is_stream else FaultKind.MALFORMED)


async def _drain(chunks: AsyncGenerator[bytes, None]) -> None:
    """Read what is left after the end mark, which lets the connection be used again."""
    try:
        async with asyncio.timeout(AFTER_DONE_S):
            async for _ in chunks:
                pass
    except (TimeoutError, httpx2.HTTPError):
        pass


def fault_of(lost: BaseException) -> ModelFault:
    """What a lost request or stream means, by the exception that lies deepest."""
    for cause in _causes(lost):
        if isinstance(cause, ProxyFaultError):
            return ModelFault(FaultKind.PROXY, proxy=cause.reason.value, sent=False)
        if isinstance(cause, httpx2.ConnectError):
            tls = next((deeper for deeper in _causes(cause) if isinstance(deeper, ssl.SSLError)), None)
            if tls is not None:
                return ModelFault(FaultKind.TLS, tls=_tls_reason(tls), sent=False)
        if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
            return ModelFault(FaultKind.UNREACHABLE, sent=False)
        if isinstance(cause, httpx2.ReadTimeout | httpx2.WriteTimeout):
            return ModelFault(FaultKind.SILENT)
        if isinstance(cause, httpx2.DecodingError | EncodedBodyError | EventTooLargeError):
            return ModelFault(FaultKind.MALFORMED)
        if isinstance(
            cause, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol | httpx2.InvalidURL | OutOfScopeError
        ):
            return ModelFault(FaultKind.OUT_OF_SCOPE, sent=False)
    return ModelFault(FaultKind.STREAM_CUT)


def _tls_reason(error: ssl.SSLError) -> TlsReason:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return TlsReason.HANDSHAKE
    if error.verify_code == 10:
        return TlsReason.EXPIRED
    return TlsReason.WRONG_HOST if error.verify_code in (62, 64) else TlsReason.UNTRUSTED


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
