"""How requests leave this process: one HTTP stack, one rule set.

Owns connections, certificates, time limits, and the headers that really go out. Must not know vendors'
SDKs. Invariants: a request goes to the address of its connector or nowhere; it carries the headers named
here and no other, whatever an SDK, an environment variable or a cookie would add; the key is put in here,
below the SDK, so that no object or log record of an SDK ever holds it; redirects are not followed; nothing
is sent twice.
"""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import httpx2

ERROR_BODY_BYTES = 64 * 1024
ERROR_BODY_S = 10.0
KEEPALIVE_S = 30.0
_FIXED_HEADERS = {
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",
    "user-agent": "Remuda",
}


class Timeouts(NamedTuple):
    """Seconds until a server counts as gone. `read_s` runs from one piece of the answer to the next."""

    connect_s: float = 10.0
    read_s: float = 90.0
    write_s: float = 60.0


class OutOfScopeError(Exception):
    """A request was aimed at another address than its connector's. Nothing was sent."""


class EncodedBodyError(Exception):
    """The server packed its answer though it was asked not to; unpacking it would have no bound."""


@lru_cache(maxsize=1)
def system_tls_context() -> ssl.SSLContext:
    """TLS with the certificates this system trusts. Reading them takes a while: not for the event loop.

    Made by hand because `ssl.create_default_context` writes session keys to the file SSLKEYLOGFILE names.
    """
    context: ssl.SSLContext
    if sys.platform in ("darwin", "win32"):
        import truststore

        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_default_certs()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def open_connections(*, uds_path: str | None = None) -> httpx2.AsyncHTTPTransport:
    """Connections to one server, kept open for a while between requests."""
    return httpx2.AsyncHTTPTransport(
        # Without TLS on a Unix socket; a context there would only cost the reading of certificates.
        verify=system_tls_context() if uds_path is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        trust_env=False,
        http1=True,
        http2=False,
        retries=0,
        uds=uds_path,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=KEEPALIVE_S),
    )


def scoped_client(
    connections: httpx2.AsyncBaseTransport,
    *,
    base_url: str,
    secret_headers: Mapping[str, str],
    timeouts: Timeouts,
) -> httpx2.AsyncClient:
    """A client for one use of one connector. Closing it leaves `connections` open.

    Args:
        connections: what `open_connections` gave.
        base_url: in the normal form of `checked_base_url`.
        secret_headers: what proves who asks, e.g. ``{"authorization": "Bearer …"}``.
        timeouts: see there.
    """
    return httpx2.AsyncClient(
        transport=_ScopedTransport(connections, base_url, secret_headers),
        timeout=httpx2.Timeout(
            connect=timeouts.connect_s, read=timeouts.read_s, write=timeouts.write_s, pool=timeouts.connect_s
        ),
        follow_redirects=False,
        trust_env=False,
    )


class _ScopedTransport(httpx2.AsyncBaseTransport):
    """Rebuilds each request from what may leave, and bounds the answers that are no success."""

    def __init__(
        self, connections: httpx2.AsyncBaseTransport, base_url: str, secret_headers: Mapping[str, str]
    ) -> None:
        self._connections = connections
        self._scope = httpx2.URL(base_url)
        self._path = self._scope.path.rstrip("/") + "/"
        self._secret_headers = dict(secret_headers)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, scope = request.url, self._scope
        if (url.scheme, url.host, url.port) != (scope.scheme, scope.host, scope.port) or url.userinfo:
            raise OutOfScopeError
        if not url.path.startswith(self._path) or "/../" in url.path:
            raise OutOfScopeError
        content = await request.aread()
        headers = _FIXED_HEADERS | self._secret_headers
        if content:
            headers |= {"content-type": "application/json"}
        sent = httpx2.Request(
            request.method, url, headers=headers, content=content or None, extensions=request.extensions
        )
        response = await self._connections.handle_async_request(sent)
        if response.headers.get("content-encoding", "identity") not in ("", "identity"):
            await response.aclose()
            raise EncodedBodyError
        if response.is_success:
            return response
        return httpx2.Response(
            response.status_code, headers=response.headers, content=await _beginning(response), request=request
        )

    async def aclose(self) -> None:
        """The connections belong to whoever opened them."""


async def _beginning(response: httpx2.Response) -> bytes:
    """What an error says, as far as it comes soon and is small; the rest is not waited for."""
    body = bytearray()
    try:
        async with asyncio.timeout(ERROR_BODY_S):
            pieces: AsyncIterator[bytes] = response.aiter_raw()
            async for piece in pieces:
                body += piece
                if len(body) >= ERROR_BODY_BYTES:
                    break
    except (TimeoutError, httpx2.HTTPError):
        pass
    finally:
        await response.aclose()
    return bytes(body[:ERROR_BODY_BYTES])
