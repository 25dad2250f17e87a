"""How requests leave this process: one HTTP stack, one rule set.

Owns connections, certificates, the way through a proxy, time limits, and the headers that really go out. Must not
know vendors' SDKs. Invariants: a request goes to the address of its connector or nowhere, straight or through the
proxy that the network settings name; it carries the headers named here and no other, whatever an SDK, an environment
variable or a cookie would add; the key is put in here, below the SDK, so that no object or log record of an SDK
ever holds it, and a proxy sees no more of a request than the host it goes to; redirects are not followed; nothing is
sent twice.
"""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Set
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2

from runtime_host.connectors.network import NetworkSettings, ProxyServer, system_network
from runtime_host.errors import ConnectorError

PIECE_BYTES = 64 * 1024
ERROR_BODY_BYTES = 64 * 1024
ERROR_BODY_S = 10.0
KEEPALIVE_S = 30.0
CA_FILE_BYTES = 16 * 1024 * 1024
_WELL_KNOWN_FILES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
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


OnSent = Callable[[int, int], None]
"""Told how much of a request's body is handed over, and how much it has in all; the last time, all may be out."""


class OutOfScopeError(Exception):
    """A request was aimed at another address than its connector's. Nothing was sent."""


class EncodedBodyError(Exception):
    """The server packed its answer though it was asked not to; unpacking it would have no bound."""


class ProxyReason(StrEnum):
    """Why a proxy did not let a request through."""

    UNREACHABLE = "unreachable"
    SILENT = "silent"
    TLS = "tls"
    LOGIN = "login"
    """It wants another login, or one at all."""
    REFUSED = "refused"
    """It does not lead to this address."""
    NO_WAY = "no-way"
    """It could not reach the address itself."""
    BROKEN = "broken"


class ProxyFaultError(httpx2.ProxyError):
    """What went wrong on the way to the proxy or in it; the server beyond it has seen nothing of the request.

    Attributes:
        proxy: its scheme, host and port, never a login.
        status: what it answered, where it did.
    """

    def __init__(self, reason: ProxyReason, proxy: str, status: int | None = None) -> None:
        super().__init__(f"the proxy {proxy}: {reason}")
        self.reason = reason
        self.proxy = proxy
        self.status = status


@lru_cache(maxsize=4)
def system_tls_context(ca_file: str = "") -> ssl.SSLContext:
    """TLS with the certificates this system trusts, and those of `ca_file`, ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``.

    Reading them takes a while: not for the event loop. Made by hand because `ssl.create_default_context` writes
    session keys to the file SSLKEYLOGFILE names, and because OpenSSL takes the two variables instead of the
    system's certificates, not besides them.

    Raises:
        ConnectorError: code ``NETWORK_CERTIFICATES_UNREADABLE``, for `ca_file`.
    """
    context: ssl.SSLContext
    if sys.platform in ("darwin", "win32"):
        import truststore

        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_default_certs()
    for place in _further_places():
        _load(context, place)
    if ca_file:
        check_certificates(ca_file)
        context.load_verify_locations(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def check_certificates(ca_file: str) -> int:
    """How many certificates the file `ca_file` holds.

    Raises:
        ConnectorError: code ``NETWORK_CERTIFICATES_UNREADABLE``: it cannot be read, or holds none.
    """
    try:
        # What is no file, such as a pipe or a device, would be read without end.
        if not Path(ca_file).is_file() or Path(ca_file).stat().st_size > CA_FILE_BYTES:
            raise ValueError
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cafile=ca_file)
        count = context.cert_store_stats()["x509"]
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        count = 0
    if not count:
        raise ConnectorError(
            f"The file of further certificates, {ca_file}, cannot be read as certificates (PEM). Nothing was sent. "
            "Choose another file, or none.",
            code="NETWORK_CERTIFICATES_UNREADABLE",
        )
    return count


def system_certificates_file() -> str:
    """The file in which this system keeps all certificates it trusts; empty where there is none."""
    named = ssl.get_default_verify_paths().openssl_cafile
    return next((file for file in (named, *_WELL_KNOWN_FILES) if file and Path(file).is_file()), "")


def _further_places() -> Iterator[str]:
    """Where certificates are that were not loaded as the system's."""
    paths = ssl.get_default_verify_paths()
    named = [os.environ.get(name, "") for name in (paths.openssl_cafile_env, paths.openssl_capath_env)]
    if sys.platform in ("darwin", "win32"):
        for places in named:
            yield from (place for place in places.split(os.pathsep) if place)
        return
    # OpenSSL took each variable for the system's own place.
    own = (paths.openssl_cafile, paths.openssl_capath)
    yield from (place for place, taken_over in zip(own, named, strict=True) if taken_over)
    if not any(Path(place).exists() for place in own):
        # A program that was built elsewhere looks in places this system does not have.
        yield system_certificates_file()


def _load(context: ssl.SSLContext, place: str) -> None:
    try:
        if Path(place).is_dir():
            context.load_verify_locations(capath=place)
        elif Path(place).is_file():
            context.load_verify_locations(cafile=place)
    except OSError:
        # Nothing there, or no certificate: that does not take away the rest.
        pass


def open_connections(
    *, uds_path: str | None = None, network: NetworkSettings | None = None
) -> httpx2.AsyncBaseTransport:
    """Connections to servers, kept open for a while between requests.

    Args:
        uds_path: a Unix socket to reach all of them by.
        network: which way to go; None for what the environment says.

    Raises:
        ConnectorError: code ``NETWORK_CERTIFICATES_UNREADABLE``.
    """
    if uds_path is not None:
        # Without TLS on a Unix socket; a context there would only cost the reading of certificates.
        return _straight(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), uds_path)
    network = system_network() if network is None else network
    return _Connections(network, system_tls_context(network.ca_file))


def _straight(tls: ssl.SSLContext, uds_path: str | None = None, **more: Any) -> httpx2.AsyncHTTPTransport:
    return httpx2.AsyncHTTPTransport(
        verify=tls,
        trust_env=False,
        http1=True,
        http2=False,
        retries=0,
        uds=uds_path,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=KEEPALIVE_S),
        **more,
    )


class _Connections(httpx2.AsyncBaseTransport):
    """Sends each request straight or through a proxy, as the network settings have it."""

    def __init__(self, network: NetworkSettings, tls: ssl.SSLContext) -> None:
        self._network = network
        self._tls = tls
        self._direct = _straight(tls)
        self._proxied: httpx2.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        proxy = self._network.proxy_for(str(request.url))
        if proxy is None:
            return await self._direct.handle_async_request(request)
        if self._proxied is None:
            self._proxied = _straight(self._tls, proxy=_proxy(proxy, self._tls))
        seen: dict[str, Mapping[str, Any]] = {}
        # A proxy that takes the connection and says nothing would be waited for as long as a model may think.
        patience_s = 2 * (request.extensions.get("timeout", {}).get("connect") or Timeouts().connect_s)
        loop = asyncio.get_running_loop()

        async def note(step: str, about: Mapping[str, Any]) -> None:
            seen[step] = about
            if step in _SETTING_OUT:
                limit.reschedule(loop.time() + patience_s)
            elif step in _THROUGH:
                limit.reschedule(None)

        request.extensions = {**request.extensions, "trace": note}
        lost: ProxyFaultError | None
        try:
            async with asyncio.timeout(None) as limit:
                return await self._proxied.handle_async_request(request)
        except TimeoutError:
            lost = ProxyFaultError(ProxyReason.SILENT, proxy.url)
        except httpx2.TransportError as fault:
            lost = _proxy_fault(fault, seen.keys(), proxy.url)
            if lost is None:
                raise
        if "socks.connect_tcp.complete" in seen:
            # httpcore2 forgets a connection to a SOCKS proxy that came to nothing.
            await seen["socks.connect_tcp.complete"]["return_value"].aclose()
        # Outside of the except block: the text of the original may be what the proxy wrote.
        raise lost

    async def aclose(self) -> None:
        await self._direct.aclose()
        if self._proxied is not None:
            await self._proxied.aclose()


def _proxy(proxy: ProxyServer, tls: ssl.SSLContext) -> httpx2.Proxy:
    login = (proxy.user, proxy.password) if proxy.has_login else None
    # A context of its own would trust less: a private authority's certificate may be the proxy's, too.
    return httpx2.Proxy(proxy.url, auth=login, ssl_context=tls if proxy.url.startswith("https:") else None)


_SETTING_OUT: Final = frozenset({"connection.connect_tcp.started", "socks.connect_tcp.started"})
_THROUGH: Final = frozenset({"proxy.start_tls.started", "socks.start_tls.started"})
"""Steps that come after the proxy let a request through."""


def _proxy_fault(fault: httpx2.TransportError, seen: Set[str], proxy: str) -> ProxyFaultError | None:
    """What a fault means if it came before the proxy let through; else None."""
    if isinstance(fault, httpx2.ProxyError):
        status = str(fault)[:3]
        if not status.isdigit():
            return ProxyFaultError(ProxyReason.LOGIN if "auth" in str(fault).lower() else ProxyReason.REFUSED, proxy)
        return ProxyFaultError(_reason_of(int(status)), proxy, int(status))
    if seen & _THROUGH or not seen & _SETTING_OUT:
        return None
    if "connection.start_tls.failed" in seen:
        return ProxyFaultError(ProxyReason.TLS, proxy)
    if isinstance(fault, httpx2.ConnectError | httpx2.ConnectTimeout):
        return ProxyFaultError(ProxyReason.UNREACHABLE, proxy)
    return ProxyFaultError(
        ProxyReason.SILENT if isinstance(fault, httpx2.TimeoutException) else ProxyReason.BROKEN, proxy
    )


def _reason_of(status: int) -> ProxyReason:
    if status in (401, 407):
        return ProxyReason.LOGIN
    return ProxyReason.NO_WAY if status in (502, 503, 504) else ProxyReason.REFUSED


def scoped_client(
    connections: httpx2.AsyncBaseTransport,
    *,
    base_url: str,
    secret_headers: Mapping[str, str],
    timeouts: Timeouts,
    passed_headers: Set[str] = frozenset(),
    on_sent: OnSent | None = None,
) -> httpx2.AsyncClient:
    """A client for one use of one connector. Closing it leaves `connections` open.

    Args:
        connections: what `open_connections` gave.
        base_url: in the normal form of `checked_base_url`.
        secret_headers: what proves who asks, e.g. ``{"authorization": "Bearer …"}``.
        timeouts: see there.
        passed_headers: names, in lower case, of an SDK's own headers that may leave, such as the version of an API.
        on_sent: told of the body of a request that is as long as it says, piece by piece.
    """
    return httpx2.AsyncClient(
        transport=_ScopedTransport(connections, base_url, secret_headers, passed_headers, on_sent),
        timeout=httpx2.Timeout(
            connect=timeouts.connect_s, read=timeouts.read_s, write=timeouts.write_s, pool=timeouts.connect_s
        ),
        follow_redirects=False,
        trust_env=False,
    )


class _ScopedTransport(httpx2.AsyncBaseTransport):
    """Rebuilds each request from what may leave, and bounds the answers that are no success."""

    def __init__(
        self,
        connections: httpx2.AsyncBaseTransport,
        base_url: str,
        secret_headers: Mapping[str, str],
        passed_headers: Set[str],
        on_sent: OnSent | None,
    ) -> None:
        self._on_sent = on_sent
        self._connections = connections
        self._scope = httpx2.URL(base_url)
        self._path = self._scope.path.rstrip("/") + "/"
        self._secret_headers = dict(secret_headers)
        self._passed_headers = passed_headers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, scope = request.url, self._scope
        if (url.scheme, url.host, url.port) != (scope.scheme, scope.host, scope.port) or url.userinfo:
            raise OutOfScopeError
        if not url.path.startswith(self._path) or "/../" in url.path:
            raise OutOfScopeError
        # What is not at hand yet passes as it comes, and is as long as the caller says.
        at_hand = isinstance(request.stream, httpx2.ByteStream)
        content: Any = (await request.aread() or None) if at_hand else request.stream
        passed = {name: request.headers[name] for name in self._passed_headers if name in request.headers}
        headers = passed | _FIXED_HEADERS | self._secret_headers
        if content is not None:
            headers |= {"content-type": passed.get("content-type", "application/json")}
        if content is not None and "content-length" in request.headers and (self._on_sent or not at_hand):
            headers |= {"content-length": request.headers["content-length"]}
            if self._on_sent is not None:
                content = _in_pieces(content, int(headers["content-length"]), self._on_sent)
        sent = httpx2.Request(request.method, url, headers=headers, content=content, extensions=request.extensions)
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


async def _in_pieces(content: bytes | AsyncIterable[bytes], total: int, on_sent: OnSent) -> AsyncIterator[bytes]:
    """A body in pieces; that each of them is out is said before it may be, never after."""
    sent = 0
    async for chunk in _once(content) if isinstance(content, bytes) else content:
        for at in range(0, len(chunk), PIECE_BYTES):
            piece = chunk[at : at + PIECE_BYTES]
            sent += len(piece)
            on_sent(sent, total)
            yield piece


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


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
