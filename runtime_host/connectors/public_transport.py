"""HTTP over connections that were checked.

Owns how a request becomes a connection to a checked address. Must not know which addresses are public
(`public_hosts`), nor who asks. Invariants: sockets are opened in one place, `_Guarded.connect_tcp`, after the check and
to what was checked; Host header, TLS name and connection come from one reading of the address; nothing is sent twice,
no redirect is followed and no connection is kept for another request.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn

import httpcore2
import httpx2

from runtime_host.connectors.network import NetworkSettings
from runtime_host.connectors.public_addresses import HostRefusedError, WebAddress, read_address
from runtime_host.connectors.transport import open_connections, system_tls_context
from runtime_host.loop.own_thread import in_own_thread

if TYPE_CHECKING:
    from runtime_host.connectors.public_hosts import PublicHosts

NEXT_ADDRESS_S: Final = 3.0
"""How long one address of several may take to answer."""


class PublicTransport(httpx2.AsyncBaseTransport):
    """See `PublicHosts.transport`."""

    def __init__(self, hosts: "PublicHosts", *, loopback: bool) -> None:
        self._hosts = hosts
        self._loopback = loopback
        self._pools: dict[str | None, httpcore2.AsyncConnectionPool] = {}
        self._proxied: set[httpx2.AsyncBaseTransport] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, once.

        Raises:
            HostRefusedError: its address is not public; nothing was sent.
            ConnectorError: the network settings name something that cannot be used; nothing was sent.
        """
        address = read_address(str(request.url))
        network = await self._hosts.network()
        if network.proxy_for(str(address)) is not None:
            return await self._through_proxy(address, request, network)
        return await self._straight(address, request, network.ca_file if address.scheme == "https" else None)

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()
        for connections in self._proxied:
            await connections.aclose()
        self._pools.clear()
        self._proxied.clear()

    async def _pool(self, ca_file: str | None) -> httpcore2.AsyncConnectionPool:
        """Connections with the certificates that are trusted; None for without TLS."""
        tls = None
        if ca_file is not None:
            tls = await in_own_thread(lambda: system_tls_context(ca_file), "read certificates")
        if ca_file not in self._pools:
            self._pools[ca_file] = httpcore2.AsyncConnectionPool(
                ssl_context=tls,
                max_connections=None,
                max_keepalive_connections=0,
                retries=0,
                network_backend=_Guarded(self._hosts, loopback=self._loopback),
            )
        return self._pools[ca_file]

    async def _straight(self, address: WebAddress, request: httpx2.Request, ca_file: str | None) -> httpx2.Response:
        pool = await self._pool(ca_file)
        sent = httpcore2.Request(
            request.method,
            httpcore2.URL(
                scheme=address.scheme.encode(),
                host=address.host.encode(),
                port=address.port,
                target=address.target.encode(),
            ),
            headers=_headers(address, request),
            content=request.stream if isinstance(request.stream, AsyncIterable) else None,
            extensions={"timeout": request.extensions.get("timeout", {})},
        )
        try:
            response = await pool.handle_async_request(sent)
        except _CORE_FAULTS as fault:
            _raise_as_ours(fault)
        stream = response.stream
        assert isinstance(stream, AsyncIterable)
        return httpx2.Response(response.status, headers=response.headers, stream=_Body(stream), request=request)

    async def _through_proxy(
        self, address: WebAddress, request: httpx2.Request, network: NetworkSettings
    ) -> httpx2.Response:
        await self._hosts.allow_through_proxy(address.host)
        connections = await in_own_thread(lambda: open_connections(network=network), "read certificates")
        sent = httpx2.Request(
            request.method,
            str(address),
            headers=httpx2.Headers(_headers(address, request)),
            stream=request.stream,
            extensions={"timeout": request.extensions.get("timeout", {})},
        )
        try:
            if sent.url.raw_host != address.host.encode() or sent.url.userinfo:
                # The proxy is told what the URL's own reader makes of it.
                raise HostRefusedError("The host of the address could be read in two ways. Nothing was sent there.")
            response = await connections.handle_async_request(sent)
        except BaseException:
            await connections.aclose()
            raise
        assert isinstance(response.stream, AsyncIterable)
        # Of this request alone: the next one goes as the settings are then.
        body = _Body(response.stream, connections, self._proxied)
        return httpx2.Response(response.status_code, headers=response.headers, stream=body, request=request)


class _Guarded(httpcore2.AsyncNetworkBackend):
    """Opens sockets: to public machines, and to none other."""

    def __init__(self, hosts: "PublicHosts", *, loopback: bool) -> None:
        self._hosts = hosts
        self._loopback = loopback
        self._real = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                return await self._connected(host, port)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host} did not answer in time") from None
        except OSError as fault:
            raise httpcore2.ConnectError(f"{host} is not known: {fault}") from None

    async def _connected(self, host: str, port: int) -> httpcore2.AsyncNetworkStream:
        places = await self._hosts.places(host, port, loopback=self._loopback)
        fault: Exception | None = None
        for number, (place, at) in enumerate(places, 1):
            try:
                # An address, so nothing is looked up again. One that says nothing does not take the time of the rest.
                return await self._real.connect_tcp(place, at, None if number == len(places) else NEXT_ADDRESS_S)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
                fault = failed
        raise fault or httpcore2.ConnectError(f"{host} leads nowhere")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise HostRefusedError("A socket of this computer is no public host. Nothing was sent there.")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Body(httpx2.AsyncByteStream):
    """The body of an answer.

    Args:
        stream: of it.
        connections: what ends with it.
        among: where these are noted until then.
    """

    def __init__(
        self,
        stream: AsyncIterable[bytes],
        connections: httpx2.AsyncBaseTransport | None = None,
        among: set[httpx2.AsyncBaseTransport] | None = None,
    ) -> None:
        self._stream = stream
        self._connections = connections
        self._among = set() if among is None else among
        if connections is not None:
            self._among.add(connections)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                yield piece
        except _CORE_FAULTS as fault:
            _raise_as_ours(fault)

    async def aclose(self) -> None:
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()
        if self._connections is not None:
            self._among.discard(self._connections)
            await self._connections.aclose()


def _headers(address: WebAddress, request: httpx2.Request) -> list[tuple[bytes, bytes]]:
    """The request's own, with the host that was checked."""
    own = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
    return [(b"host", address.netloc.encode()), *own]


_CORE_FAULTS = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)


def _raise_as_ours(fault: Exception) -> NoReturn:
    """As the one HTTP stack names it: the two have the same names."""
    kind: type[httpx2.TransportError] = getattr(httpx2, type(fault).__name__, httpx2.TransportError)
    raise kind(str(fault)) from fault
