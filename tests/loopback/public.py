"""The public net of a test: names that lead to public addresses, and public addresses that are servers of the test."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Self

from runtime_host.connectors.network import DIRECT, NetworkSettings
from runtime_host.connectors.public_addresses import IPAddress
from runtime_host.connectors.public_hosts import PublicHosts, Reach
from tests.loopback.proxy import Listening

CONTROL = "93.184.216.34"
"""A public address; nothing of a test ever goes there."""


class PublicNet:
    """What a test's names and addresses lead to.

    Args:
        names: answers by name; a list of answers is given one by one, the last for good.
        servers: ports of this computer, by the public address at which a test may find them.

    Attributes:
        asked: names that were looked up, in order.
        dialled: checked addresses to which a connection was made, in order.
    """

    def __init__(self, names: Mapping[str, Sequence[Sequence[str]]], servers: Mapping[str, int]) -> None:
        self._names = {name: list(answers) for name, answers in names.items()}
        self._servers = servers
        self.asked: list[str] = []
        self.dialled: list[str] = []

    def hosts(self, network: NetworkSettings = DIRECT) -> PublicHosts:
        async def now() -> NetworkSettings:
            return network

        return PublicHosts(now, reach=Reach(look_up=self._look_up, is_beside=lambda _: False, port_of=self._port_of))

    async def _look_up(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        answers = self._names.get(host)
        if answers is None:
            raise OSError("not known")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def _port_of(self, address: IPAddress, port: int) -> tuple[str, int]:
        self.dialled.append(str(address))
        # An address that is no server of the test is dialled as it is: a canary on this computer would be reached.
        served = self._servers.get(str(address))
        return (str(address), port) if served is None else ("127.0.0.1", served)


class Canary(Listening):
    """Counts who comes. It listens at all addresses of this computer, on one port."""

    def __init__(self) -> None:
        super().__init__()
        self.came = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._others = []
        for place in ("127.0.0.2", "::1"):
            try:
                self._others.append(await asyncio.start_server(self._accept, place, self.port))
            except OSError:
                # A computer without IPv6, or with one loopback address.
                continue
        return self

    async def __aexit__(self, *reason: object) -> None:
        for other in self._others:
            other.close()
            await other.wait_closed()
        await super().__aexit__(*reason)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\ncanary")
        await writer.drain()
