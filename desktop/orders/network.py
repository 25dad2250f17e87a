"""The orders about the way out of this computer and about what is found on it.

Owns their answers. Must not know how orders arrive. Invariant: no order carries a login; one that comes from the
command line is in the key store before its reference comes here.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from desktop.discovery import look
from desktop.exit_codes import COMPLETED
from desktop.network import parsed_place
from desktop.orders.answers import Send
from runtime_host.connectors.base import SecretRef
from runtime_host.errors import ConnectorError

if TYPE_CHECKING:
    from desktop.app import Host
    from desktop.orders.operations import Order


class NetworkOrders:
    """The orders `network…` and `found` of a host."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    def by_name(self) -> Mapping[str, "Order"]:
        return {"network": self._show, "network-set": self._set, "found": self._found}

    async def _show(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        network = self._host.network
        view = network.view()
        await send(
            {
                "row": {
                    "proxy": network.proxy,
                    "ca_file": network.ca_file,
                    "login": network.login is not None,
                    "proxy_in_words": view.proxy,
                    "certificates_in_words": view.certificates,
                }
            }
        )
        return COMPLETED

    async def _set(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        proxy, ca_file, login = (arguments.get(name) for name in ("proxy", "ca_file", "secret"))
        place = None if proxy is None else parsed_place(str(proxy))
        if arguments.get("check"):
            await send({"row": {"base_url": place}})
            return COMPLETED
        try:
            kept_login = None if login is None else SecretRef.model_validate(login)
        except ValidationError:
            raise ConnectorError("This is no reference to a login.", code="CONNECTOR_CONFIGURATION") from None
        await self._host.network.set(place, None if ca_file is None else str(ca_file), kept_login=kept_login)
        return await self._show(arguments, send, stop)

    async def _found(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        for found in await look(brought=self._host.harnesses.brought()):
            await send({"row": found._asdict()})
        return COMPLETED
