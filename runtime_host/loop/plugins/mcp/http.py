"""What leaves for an MCP server at an address, and what of its answers is taken in.

Owns the bounds of requests and answers, and where a token goes. Must not know the SDK or what messages mean.
Invariants: a token goes to the server's own origin and nowhere else, and only while a call is going on; a request that
was to carry one is not sent without; an answer is not packed and has a bound; how a request ended is told to the call
that made it.
"""

from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Final, Literal

import httpx2

from runtime_host.connectors.base_url import is_loopback

ANSWER_BYTES: Final = 8 << 20
STREAM_BYTES: Final = 32 << 20
_CONNECT_S: Final = 10.0
_SILENT_S: Final = 300.0
_KEPT_HEADERS: Final = frozenset(
    {"accept", "content-type", "content-length", "mcp-session-id", "mcp-method", "mcp-name", "last-event-id", "host"}
)


class TooMuchError(httpx2.TransportError):
    """An answer is longer than anybody reads, or packed."""


class SignInNeededError(httpx2.TransportError):
    """Nobody is signed in, or not any more. Nothing was sent, or the server refused it."""


class Ending:
    """How the last request of a call ended.

    Attributes:
        step: `unsent`, it did not reach the server; `sent`, it may have; `answered`, with `status`.
        words: why it was refused before it was sent.
    """

    def __init__(self) -> None:
        self.step: Literal["unsent", "sent", "answered"] = "unsent"
        self.status = 0
        self.words = ""


ending: ContextVar[Ending | None] = ContextVar("mcp_ending", default=None)
"""Of the call whose context it is; the SDK sends each message in the context of who asked for it."""


class ServerTransport(httpx2.AsyncBaseTransport):
    """Before the connections of one server.

    Args:
        inner: the way out, which checks every address by itself.
        address: the server's endpoint.
        origin: scheme, host and port of it.
        loopback: whether plain http to this computer is allowed.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, address: str, origin: str, *, loopback: bool) -> None:
        self._inner = inner
        self._address = httpx2.URL(address)
        self._origin = httpx2.URL(origin)
        self._loopback = loopback
        self.token: Callable[[], str] | None = None
        """Gives the bearer token of the call that goes on; None where the server wants none."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        heard = ending.get()
        url = request.url
        if url.userinfo or not (url.scheme == "https" or (self._loopback and is_loopback(url.host))):
            # Where tokens are asked for, too: nothing of a sign-in goes in plain words.
            self._note(heard, "unsent", words="The server led to an address that is not https.")
            raise httpx2.UnsupportedProtocol("not https")
        if request.method == "GET" and url == self._address:
            # No call waits for what a server says of its own accord, so it gets no standing connection for it.
            return httpx2.Response(405, request=request)
        try:
            response = await self._inner.handle_async_request(self._rebuilt(request))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as fault:
            self._note(heard, "unsent", words=str(fault))
            raise
        except httpx2.TransportError:
            self._note(heard, "sent")
            raise
        except Exception as fault:
            # A refused address: its sentence is for whoever called.
            self._note(heard, "unsent", words=str(fault))
            raise httpx2.UnsupportedProtocol(str(fault)) from None
        self._note(heard, "answered", status=response.status_code)
        if response.headers.get("content-encoding", "identity") not in ("", "identity"):
            await response.aclose()
            raise TooMuchError("a packed answer")
        streamed = response.headers.get("content-type", "").startswith("text/event-stream")
        bounded = _Bounded(response, STREAM_BYTES if streamed else ANSWER_BYTES)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=bounded,
            extensions=response.extensions,
            request=request,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _rebuilt(self, request: httpx2.Request) -> httpx2.Request:
        url = request.url
        own = (url.scheme, url.host, url.port) == (self._origin.scheme, self._origin.host, self._origin.port)
        headers = {
            name: value
            for name, value in request.headers.items()
            if name in _KEPT_HEADERS or name.startswith("mcp-") or name == "authorization"
        }
        headers |= {"accept-encoding": "identity", "user-agent": "Remuda"}
        if own and self.token is not None:
            token = self.token()
            if not token:
                raise SignInNeededError("no token")
            headers["authorization"] = f"Bearer {token}"
        return httpx2.Request(
            request.method, url, headers=headers, stream=request.stream, extensions=request.extensions
        )

    @staticmethod
    def _note(
        heard: Ending | None, step: Literal["unsent", "sent", "answered"], *, status: int = 0, words: str = ""
    ) -> None:
        if heard is not None:
            heard.step, heard.status, heard.words = step, status, words


class _Bounded(httpx2.AsyncByteStream):
    """An answer up to its bound."""

    def __init__(self, response: httpx2.Response, most: int) -> None:
        self._response = response
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for piece in self._response.aiter_raw():
            taken += len(piece)
            if taken > self._most:
                raise TooMuchError("a longer answer than anybody reads")
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


def client(transport: ServerTransport, auth: httpx2.Auth | None = None) -> httpx2.AsyncClient:
    """A client of one server. It keeps no cookies, follows nothing and reads no variable of the environment."""
    return httpx2.AsyncClient(
        transport=transport,
        auth=auth,
        timeout=httpx2.Timeout(connect=_CONNECT_S, read=_SILENT_S, write=60.0, pool=_CONNECT_S),
        follow_redirects=False,
        trust_env=False,
    )


__all__ = ["ANSWER_BYTES", "Ending", "ServerTransport", "SignInNeededError", "TooMuchError", "client", "ending"]
