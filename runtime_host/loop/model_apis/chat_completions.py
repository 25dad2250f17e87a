"""Chat completions over the official OpenAI client.

Owns one request and its stream. Must not know events, sessions or where keys come from. Importing this module
imports the SDK (about a second): do it in a thread. Invariants: one request, sent once; the one exception is a
server that refused the request outright for its optional field; no exception of the SDK or of HTTP leaves;
leaving the iterator closes the connection.

The client sends the request and reads refusals; the stream is read as bytes (`with_streaming_response`), because
its decoder has no bound on the size of an event, does not tell a finished stream from one that just ended, and
costs a model object for each token.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import anyio.lowlevel
import httpx2
import openai

from runtime_host.connectors.base import Access
from runtime_host.connectors.transport import (
    EncodedBodyError,
    OutOfScopeError,
    Timeouts,
    open_connections,
    scoped_client,
)
from runtime_host.loop.model_apis.chat_frames import FrameReader, refusal_fault, refuses_stream_options
from runtime_host.loop.model_apis.pieces import ChatRequest, FaultKind, Finished, ModelFault, Piece, TlsReason
from runtime_host.loop.model_apis.sse import EventDecoder, EventTooLargeError, ServerEvent
from runtime_host.loop.own_thread import in_own_thread

NOT_THE_KEY = "held-by-the-transport"
"""What the SDK is told instead of the key, which the transport puts in."""
AFTER_FINISH_S = 5.0
AFTER_DONE_S = 0.1


class ChatCompletionsApi:
    """Chat completions of one server; keeps its connections between requests.

    Args:
        timeouts: when the server counts as gone.
    """

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self._timeouts = timeouts or Timeouts()
        self._connections: dict[str, httpx2.AsyncHTTPTransport] = {}
        self._without_usage: set[str] = set()

    async def stream(self, access: Access, request: ChatRequest) -> AsyncGenerator[Piece, None]:
        """Send `request` and yield the reply as it comes; `Finished` is in it unless this raises.

        Raises:
            ModelFault: refused, failed, cut or silent.
        """
        connections = await self._connections_to(access)
        secret_headers = {} if access.api_key is None else {"authorization": f"Bearer {access.api_key}"}
        http_client = scoped_client(
            connections, base_url=access.base_url, secret_headers=secret_headers, timeouts=self._timeouts
        )
        try:
            client = _sdk_client(http_client, access.base_url)
            async with aclosing(self._stream(client, access.base_url, request)) as pieces:
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

    async def _connections_to(self, access: Access) -> httpx2.AsyncHTTPTransport:
        if access.uds_path is not None:
            return open_connections(uds_path=access.uds_path)
        connections = self._connections.get(access.base_url)
        if connections is None:
            opened = await in_own_thread(open_connections, "read certificates")
            connections = self._connections.setdefault(access.base_url, opened)
        return connections

    async def _stream(
        self, client: openai.AsyncOpenAI, base_url: str, request: ChatRequest
    ) -> AsyncGenerator[Piece, None]:
        with_usage = base_url not in self._without_usage
        while True:
            body = request.fields()
            if with_usage:
                body["stream_options"] = {"include_usage": True}
            try:
                async with (
                    client.chat.completions.with_streaming_response.create(**body) as response,
                    aclosing(_read(response.http_response)) as pieces,
                ):
                    async for piece in pieces:
                        yield piece
                return
            except openai.APIStatusError as refused:
                content = refused.response.content
                if with_usage and refuses_stream_options(refused.status_code, content):
                    with_usage = False
                    self._without_usage.add(base_url)
                    continue
                fault = refusal_fault(refused.status_code, refused.response.headers, content)
            except ModelFault as raised:
                fault = raised
            except (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError, OSError) as lost:
                fault = _fault_of(lost)
            except OutOfScopeError:
                fault = ModelFault(FaultKind.OUT_OF_SCOPE, sent=False)
            except (EncodedBodyError, EventTooLargeError):
                fault = ModelFault(FaultKind.MALFORMED)
            # Outside of the except blocks, so that no exception that holds the server's words hangs on it.
            raise fault


def rehearse() -> None:
    """Load what the SDK and the HTTP stack put off until their first request. For the thread that imports this."""
    open_connections(uds_path="unused")
    asyncio.run(_rehearsal())


async def _rehearsal() -> None:
    async def answer(_: httpx2.Request) -> httpx2.Response:
        await anyio.lowlevel.checkpoint()
        frame = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=frame)

    base_url = "http://localhost/v1"
    http_client = scoped_client(httpx2.MockTransport(answer), base_url=base_url, secret_headers={}, timeouts=Timeouts())
    async with http_client:
        client = _sdk_client(http_client, base_url)
        async for _ in ChatCompletionsApi()._stream(client, base_url, ChatRequest("none", [])):
            pass


def _sdk_client(http_client: httpx2.AsyncClient, base_url: str) -> openai.AsyncOpenAI:
    client = openai.AsyncOpenAI(
        api_key=NOT_THE_KEY, base_url=base_url, max_retries=0, timeout=http_client.timeout, http_client=http_client
    )
    # For a header that is not sent anyway it would start a thread to ask what system this is.
    client._platform = "Unknown"
    return client


async def _read(response: httpx2.Response) -> AsyncGenerator[Piece, None]:
    """The pieces of a stream up to its proper end."""
    decoder, reader = EventDecoder(), FrameReader()
    finished = done = False
    # Once the reply has ended only the count of tokens is missing: not worth a long wait.
    deadline: float | None = None
    async with aclosing(response.aiter_bytes()) as chunks:
        try:
            while not done:
                try:
                    async with asyncio.timeout_at(deadline):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    break
                for event in decoder.feed(chunk):
                    if event.data.startswith(b"[DONE]"):
                        done = True
                        break
                    for piece in _pieces(reader, event):
                        if isinstance(piece, Finished):
                            finished = True
                            deadline = asyncio.get_running_loop().time() + AFTER_FINISH_S
                        yield piece
            if done:
                await _drain(chunks)
        except (TimeoutError, httpx2.HTTPError):
            # The reply was whole; what broke came after it.
            if not finished:
                raise
    if not finished:
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        raise ModelFault(FaultKind.STREAM_CUT if is_stream else FaultKind.MALFORMED)


def _pieces(reader: FrameReader, event: ServerEvent) -> list[Piece]:
    pieces = reader.read(event.data)
    if event.event == "error":
        raise ModelFault(FaultKind.FAILED)
    return pieces


async def _drain(chunks: AsyncGenerator[bytes, None]) -> None:
    """Read what is left after the end mark, which lets the connection be used again."""
    try:
        async with asyncio.timeout(AFTER_DONE_S):
            async for _ in chunks:
                pass
    except (TimeoutError, httpx2.HTTPError):
        pass


def _fault_of(lost: BaseException) -> ModelFault:
    """What a lost request or stream means, by the exception that lies deepest."""
    for cause in _causes(lost):
        if isinstance(cause, httpx2.ConnectError):
            tls = next((deeper for deeper in _causes(cause) if isinstance(deeper, ssl.SSLError)), None)
            if tls is not None:
                return ModelFault(FaultKind.TLS, tls=_tls_reason(tls), sent=False)
        if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
            return ModelFault(FaultKind.UNREACHABLE, sent=False)
        if isinstance(cause, httpx2.ReadTimeout | httpx2.WriteTimeout):
            return ModelFault(FaultKind.SILENT)
        if isinstance(cause, httpx2.DecodingError):
            return ModelFault(FaultKind.MALFORMED)
        if isinstance(cause, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol | httpx2.InvalidURL):
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
