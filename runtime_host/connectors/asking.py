"""Small questions to a server: one request, one answer, both bounded.

Owns one exchange outside of a run. Must not know what is asked, SDKs or drivers. Invariants: an answer is taken up to
a size and within a time, whatever the server does; nothing is sent twice; the key goes to the connector's own address
only, and not to what is asked beside it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2

from runtime_host.connectors.base import Access
from runtime_host.connectors.network import DIRECT, NetworkSettings
from runtime_host.connectors.transport import (
    EncodedBodyError,
    OutOfScopeError,
    Timeouts,
    open_connections,
    scoped_client,
)
from runtime_host.loop.model_apis.pieces import FaultKind, ModelFault
from runtime_host.loop.model_apis.refusals import refusal_fault
from runtime_host.loop.model_apis.service import fault_of
from runtime_host.loop.own_thread import in_own_thread

ANSWER_BYTES: Final = 4 * 1024 * 1024
ANSWER_S: Final = 20.0
ANTHROPIC_VERSION: Final = "2026-10-21"
"""The version of the API that its official client speaks."""
_TIMEOUTS: Final = Timeouts(connect_s=5.0, read_s=15.0, write_s=5.0)


class Asker:
    """Asks one server."""

    def __init__(self, client: httpx2.AsyncClient, base_url: str) -> None:
        self._client = client
        self._base_url = base_url.rstrip("/")

    async def ask(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        within_s: float = ANSWER_S,
    ) -> bytes:
        """One request, GET or with a `body` POST; the answer as nobody has looked at it.

        Raises:
            ModelFault: refused, lost, too long in coming or too large.
        """
        try:
            async with asyncio.timeout(within_s):
                return await self._ask(path, query, body)
        except ModelFault as raised:
            fault = raised
        except TimeoutError:
            fault = ModelFault(FaultKind.SILENT)
        except OutOfScopeError:
            fault = ModelFault(FaultKind.OUT_OF_SCOPE, sent=False)
        except EncodedBodyError:
            fault = ModelFault(FaultKind.MALFORMED)
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as lost:
            fault = fault_of(lost)
        # Outside of the except blocks, so that nothing of the server's words hangs on it.
        raise fault

    async def _ask(self, path: str, query: Mapping[str, str] | None, body: Mapping[str, Any] | None) -> bytes:
        content = None if body is None else json.dumps(body).encode()
        request = self._client.stream(
            "GET" if content is None else "POST", self._base_url + path, params=query, content=content
        )
        async with request as response:
            if not response.is_success:
                raise refusal_fault(response.status_code, response.headers, await response.aread())
            answer = bytearray()
            async for piece in response.aiter_raw():
                answer += piece
                if len(answer) > ANSWER_BYTES:
                    raise ModelFault(FaultKind.MALFORMED)
        return bytes(answer)


def headers_for(access: Access, *, with_key: bool = True) -> dict[str, str]:
    """What each request of this connector says besides its question."""
    key = access.api_key if with_key else None
    if access.connector.api == "messages":
        return {"anthropic-version": ANTHROPIC_VERSION} | ({} if key is None else {"x-api-key": key})
    return {} if key is None else {"authorization": f"Bearer {key}"}


@asynccontextmanager
async def asking(access: Access, *, beside: str = "", with_key: bool = True) -> AsyncIterator[Asker]:
    """Ask the server of a connector.

    Args:
        access: as the registry gave it.
        beside: another address of the same server, where no key goes.
        with_key: False to come as one without a key.

    Raises:
        ConnectorError: certificates or proxy that are set cannot be used.
    """
    headers = headers_for(access, with_key=with_key and not beside)
    async with _asking(beside or access.base_url, headers, access.network, access.uds_path, _TIMEOUTS) as asker:
        yield asker


@asynccontextmanager
async def asking_nobody_known(base_url: str, timeouts: Timeouts) -> AsyncIterator[Asker]:
    """Ask whoever may be at an address of this computer, without a key."""
    async with _asking(base_url, {}, DIRECT, None, timeouts) as asker:
        yield asker


@asynccontextmanager
async def _asking(
    base_url: str, headers: Mapping[str, str], network: NetworkSettings, uds_path: str | None, timeouts: Timeouts
) -> AsyncIterator[Asker]:
    connections = await in_own_thread(lambda: open_connections(uds_path=uds_path, network=network), "read certificates")
    client = scoped_client(connections, base_url=base_url, secret_headers=headers, timeouts=timeouts)
    try:
        yield Asker(client, base_url)
    finally:
        await client.aclose()
        await connections.aclose()
