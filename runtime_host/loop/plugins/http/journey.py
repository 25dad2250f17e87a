"""One request and where it is led: hop by hop, each one checked as the first.

Owns the order of a call on the wire. Must not know tools and their words for results. Invariants: no hop is taken
before its address passed the mount's list and the guard of `PublicHosts`; secrets go to the first origin, and never
again once a hop left it; what was sent and not answered is said to have perhaps been done.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urljoin

import httpx2

from runtime_host.connectors.base_url import is_loopback
from runtime_host.connectors.public_addresses import HostRefusedError, WebAddress, read_address
from runtime_host.connectors.public_hosts import PublicHosts
from runtime_host.connectors.transport import ProxyFaultError
from runtime_host.errors import ConnectorError
from runtime_host.loop.plugins.base import PluginError
from runtime_host.loop.plugins.http.bodies import Body, read_body
from runtime_host.loop.plugins.http.mounts import Allowed

MOST_HOPS: Final = 4
CONNECT_S: Final = 10.0
READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEEP_METHOD: Final = frozenset({307, 308})
_OF_A_BODY: Final = frozenset({"content-type", "content-encoding", "content-language"})


class Asked(NamedTuple):
    """What a call asks for.

    Attributes:
        headers: what is sent to every hop.
        secret_headers: what is sent to the first origin only.
        body: None for none.
    """

    method: str
    address: WebAddress
    headers: Mapping[str, str]
    secret_headers: Mapping[str, str]
    body: bytes | None
    follow: bool


class Came(NamedTuple):
    """What came back from the last hop.

    Attributes:
        headers: as they came, in order.
        hops: how often it was led on.
        not_followed: why it was not led on further; "" when there was nowhere else to go.
    """

    address: WebAddress
    status: int
    headers: tuple[tuple[str, str], ...]
    body: Body
    hops: int
    not_followed: str

    def header(self, name: str) -> str:
        return next((value for each, value in self.headers if each.lower() == name), "")


class Journey:
    """The way of one call.

    Attributes:
        perhaps_done: whether a request that may change something has left and was not answered.
    """

    def __init__(self, hosts: PublicHosts, rules: Allowed, asked: Asked, *, time_s: float) -> None:
        self._hosts = hosts
        self._rules = rules
        self._asked = asked
        self._time_s = time_s
        self.perhaps_done = False

    async def go(self) -> Came:
        """Ask, and follow where it leads.

        Raises:
            PluginError: it was refused or failed.
        """
        asked = self._asked
        method, address, body = asked.method, asked.address, asked.body
        carries, elsewhere = True, False
        answered: Came | None = None
        for hops in range(MOST_HOPS + 1):
            headers = {**asked.headers, **(asked.secret_headers if carries else {})}
            if body is None:
                headers = {name: value for name, value in headers.items() if name not in _OF_A_BODY}
            try:
                self._check(address, elsewhere, hops)
                came = await self._hop(method, address, headers, body, hops, elsewhere)
            except PluginError as fault:
                if answered is None:
                    raise
                # The write itself was answered; only what it led to is missing.
                return answered._replace(not_followed=str(fault))
            elsewhere = elsewhere or not is_loopback(address.host)
            if came.status not in _REDIRECTS or not came.header("location") or not asked.follow:
                return came
            keeps = came.status in _KEEP_METHOD or method in READS
            follow, why_not = self._next(came, writes=keeps and method not in READS, elsewhere=elsewhere)
            if follow is None:
                return came._replace(not_followed=why_not)
            if not keeps:
                method, body, answered, self.perhaps_done = "GET", None, came, True
            carries = carries and follow.origin == asked.address.origin
            address = follow
        raise PluginError(
            f"It was led on more than {MOST_HOPS} times, last to {address.host}. It was not followed further.",
            code="too_many_redirects",
            landed="no" if asked.method in READS else "perhaps",
        )

    def _check(self, address: WebAddress, elsewhere: bool, hops: int) -> None:
        try:
            self._rules.check(address, from_elsewhere=elsewhere)
        except HostRefusedError as refused:
            raise self._refused(refused, hops) from None

    def _next(self, came: Came, *, writes: bool, elsewhere: bool) -> tuple[WebAddress | None, str]:
        """Where it is led; or None and why not, where a write was answered and what follows may not be."""
        try:
            follow = read_address(urljoin(str(came.address), came.header("location")))
            self._rules.check(follow, from_elsewhere=elsewhere)
        except (HostRefusedError, ValueError) as refused:
            if self._asked.method not in READS:
                return None, str(refused)
            raise self._refused(refused, came.hops + 1) from None
        if writes and follow.origin != came.address.origin:
            listed = self._rules.hosts is not None and follow.host in self._rules.hosts
            if not listed or (came.address.scheme, follow.scheme) == ("https", "http"):
                return None, "It leads a request that changes something to another host. That is not followed."
        return follow, ""

    def _refused(self, refused: Exception, hops: int) -> PluginError:
        led = "" if not hops else f"Hop {hops} was refused. "
        return PluginError(f"{led}{refused}", code="host_refused")

    async def _hop(
        self,
        method: str,
        address: WebAddress,
        headers: dict[str, str],
        body: bytes | None,
        hops: int,
        elsewhere: bool,
    ) -> Came:
        times = dict.fromkeys(("read", "write", "pool"), self._time_s) | {"connect": CONNECT_S}
        request = httpx2.Request(method, str(address), headers=headers, content=body, extensions={"timeout": times})
        transport = self._hosts.transport(loopback=self._rules.loopback and not elsewhere)
        before = self.perhaps_done
        self.perhaps_done = before or method not in READS
        try:
            response = await transport.handle_async_request(request)
            try:
                answer = await read_body(response.aiter_raw(), response.headers.get("content-encoding", ""))
            finally:
                await response.aclose()
        except _NOTHING_LEFT as fault:
            self.perhaps_done = before
            raise self._not_sent(address, fault, hops) from None
        except (httpx2.HTTPError, httpx2.StreamError) as fault:
            raise self._broken(address, fault) from None
        finally:
            await transport.aclose()
        self.perhaps_done = before
        return Came(address, response.status_code, _pairs(response), answer, hops, "")

    def _not_sent(self, address: WebAddress, fault: Exception, hops: int) -> PluginError:
        if isinstance(fault, HostRefusedError):
            return self._refused(fault, hops)
        if isinstance(fault, ConnectorError):
            return PluginError(fault.message, code="network_refused")
        if isinstance(fault, ProxyFaultError):
            return PluginError(
                f"The proxy did not lead to {address.host}. Nothing was sent there.", code="proxy", transient=True
            )
        if "CERTIFICATE_VERIFY_FAILED" in str(fault):
            return PluginError(
                f"{address.host} shows a certificate that this computer does not trust. Nothing was sent there.",
                code="certificate",
            )
        return PluginError(
            f"{address.host} could not be reached. Nothing was sent there.", code="unreachable", transient=True
        )

    def _broken(self, address: WebAddress, fault: Exception) -> PluginError:
        silent = isinstance(fault, httpx2.TimeoutException)
        what = f"{address.host} did not answer in time" if silent else f"The connection to {address.host} broke"
        end = "Whether it did what it was asked is not known." if self.perhaps_done else "Nothing was changed there."
        return PluginError(
            f"{what}. {end}",
            code="timed_out" if silent else "connection_lost",
            landed="perhaps" if self.perhaps_done else "no",
            transient=True,
        )


_NOTHING_LEFT: Final = (
    HostRefusedError,
    ConnectorError,
    ProxyFaultError,
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
)
"""What comes before a byte of a request leaves."""


def _pairs(response: httpx2.Response) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw)
