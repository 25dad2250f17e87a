"""The way out for tools that a model leads: to public machines, and to none within this computer or its network.

Owns which of the addresses a name leads to may be dialled. Must not know HTTP, plugins, or who asks. Invariants: a name
is looked up once for a connection, every address of the answer is checked, and one of these is dialled, so that a
second answer changes nothing; one address that is not public refuses the name; this computer is reached by its own
names only, where the caller says so; no proxy is used but one that the person named in the network settings.
"""

import importlib
import ipaddress
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from runtime_host.connectors.base_url import is_loopback
from runtime_host.connectors.network import DIRECT, NetworkSettings
from runtime_host.connectors.public_addresses import (
    NOTHING_SENT,
    HostRefusedError,
    IPAddress,
    literal,
    read_host,
    refuse_not_public,
    refuse_private_name,
)
from runtime_host.loop.own_thread import in_own_thread

if TYPE_CHECKING:
    import httpx2

MOST_ADDRESSES: Final = 32
_STACK: Final = "runtime_host.connectors.public_transport"

LookUp = Callable[[str], Awaitable[Sequence[str]]]
"""All addresses of a name; OSError when there is none."""
NetworkNow = Callable[[], Awaitable[NetworkSettings]]
Beside = Callable[[IPAddress], bool]
"""Whether an address, public by its form, is this computer's or on the same link."""


async def look_up(host: str) -> tuple[str, ...]:
    """What this system knows of a name, taken as it stands: nothing is put behind it."""
    found = await in_own_thread(
        lambda: socket.getaddrinfo(f"{host}.", None, type=socket.SOCK_STREAM), "look up a public host"
    )
    return tuple(dict.fromkeys(str(address[4][0]) for address in found))


def is_beside(address: IPAddress) -> bool:
    """Whether this computer would send to `address` from that very address, or from the same IPv6 network.

    A home's machines have public IPv6 addresses, too. Nothing is sent to find out.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((str(address), 9))
            own = ipaddress.ip_address(asking.getsockname()[0].partition("%")[0])
    except OSError:
        # No way there: dialling it will say so.
        return False
    if own.version == 4:
        return own == address
    return address in ipaddress.ip_network((own.packed, 64), strict=False)


@dataclass(frozen=True)
class Reach:
    """How the world is looked at. The host gives none and no setting can: another one is for tests.

    Attributes:
        port_of: the place at which an address is dialled that was checked; None for the address itself.
    """

    look_up: LookUp = look_up
    is_beside: Beside = is_beside
    port_of: Callable[[IPAddress, int], tuple[str, int]] | None = None


async def _direct() -> NetworkSettings:
    return DIRECT


class PublicHosts:
    """Connections of tools.

    Args:
        network: tells the network settings as they hold now; asked for each request. Their proxy is used when a person
            named it, the environment's not.
        reach: see there.
    """

    def __init__(self, network: NetworkNow = _direct, *, reach: Reach | None = None) -> None:
        self._network = network
        self._reach = reach or Reach()

    def transport(self, *, loopback: bool = False) -> "httpx2.AsyncBaseTransport":
        """Connections for a client of its own, which closes them. Each request through them is checked by itself.

        Args:
            loopback: whether this computer may be reached, by its own names, as `localhost` and `127.0.0.1` are.
        """
        # The HTTP stack is loaded when something is asked for, not when the program starts.
        from runtime_host.connectors.public_transport import PublicTransport

        return PublicTransport(self, loopback=loopback)

    async def load(self) -> None:
        """Load what `transport` needs, away from the event loop."""
        if _STACK not in sys.modules:
            await in_own_thread(lambda: importlib.import_module(_STACK), "load the HTTP stack")

    async def network(self) -> NetworkSettings:
        """The settings as they hold now, with a proxy only where a person named one.

        Raises:
            ConnectorError: a person named one that cannot be used.
        """
        network = await self._network()
        return network if network.origin == "set" else replace(network, proxy=None, problem="")

    async def places(self, host: str, port: int, *, loopback: bool) -> tuple[tuple[str, int], ...]:
        """Where a connection to `host` may be dialled.

        Raises:
            HostRefusedError: it is not public.
            OSError: it is not known.
        """
        host = read_host(host)
        if loopback and is_loopback(host):
            return tuple((place, port) for place in (("127.0.0.1", "::1") if host == "localhost" else (host,)))
        found = await self._checked(host)
        where = self._reach.port_of
        return tuple((str(address), port) if where is None else where(address, port) for address in found)

    async def allow_through_proxy(self, host: str) -> None:
        """Check what can be when a proxy makes the connection: the host's form, and what is known of it here.

        What the proxy makes of the name then is its own: it looks it up again.

        Raises:
            HostRefusedError: it is not public.
        """
        try:
            await self._checked(read_host(host))
        except OSError:
            # Behind a proxy names of the world are often not known.
            pass

    async def _checked(self, host: str) -> tuple[IPAddress, ...]:
        refuse_private_name(host)
        own = literal(host)
        if own is not None:
            found: tuple[IPAddress, ...] = (own,)
        else:
            found = _read(await self._reach.look_up(host), host)
        for address in found:
            refuse_not_public(address, host)
            if self._reach.is_beside(address):
                raise HostRefusedError(
                    f"{host} leads to {address}, which is this computer or beside it, and no public host. "
                    f"{NOTHING_SENT}"
                )
        return found[:MOST_ADDRESSES]


def _read(answer: Sequence[str], host: str) -> tuple[IPAddress, ...]:
    if not answer:
        raise OSError(f"{host} is not known.")
    try:
        return tuple(ipaddress.ip_address(each) for each in answer)
    except ValueError:
        raise HostRefusedError(f"{host} leads to something that is no address. {NOTHING_SENT}") from None


__all__ = ["HostRefusedError", "PublicHosts", "Reach"]
