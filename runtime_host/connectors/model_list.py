"""Which models a server offers: one question, its answer bounded and not believed further than as names.

Must not know drivers or SDKs. Invariant: nothing of an error body gets out.
"""

import asyncio

import httpx2
import msgspec

from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.connectors.transport import (
    EncodedBodyError,
    OutOfScopeError,
    Timeouts,
    open_connections,
    scoped_client,
)
from runtime_host.errors import ConnectorError

LIST_BYTES = 4 * 1024 * 1024
MOST_MODELS = 500
NAME_CHARS = 200
_TIMEOUTS = Timeouts(connect_s=5.0, read_s=15.0, write_s=5.0)


class _Model(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Model]


async def list_models(registry: ConnectorRegistry, name: str) -> tuple[str, ...]:
    """The ids of the models that the server of connector `name` lists, at most `MOST_MODELS`.

    Raises:
        ConnectorError: the key was refused, the server cannot be reached, or it lists no models; each
            with a code of its own.
    """
    async with registry.use(name) as access:
        headers = {} if access.api_key is None else {"authorization": f"Bearer {access.api_key}"}
        # Reading the system's certificates takes a while.
        connections = await asyncio.to_thread(open_connections, uds_path=access.uds_path)
        client = scoped_client(connections, base_url=access.base_url, secret_headers=headers, timeouts=_TIMEOUTS)
        try:
            async with client.stream("GET", access.base_url.rstrip("/") + "/models") as response:
                if not response.is_success:
                    raise _refused(response.status_code)
                body = bytearray()
                async for piece in response.aiter_raw():
                    body += piece
                    if len(body) > LIST_BYTES:
                        raise _no_list()
        except httpx2.TimeoutException as fault:
            raise ConnectorError(
                "The server did not answer in time. Check the address, and that the server is running.",
                code="PROVIDER_SILENT",
                retryable=True,
            ) from fault
        except (httpx2.HTTPError, OSError, OutOfScopeError) as fault:
            raise ConnectorError(
                "The server cannot be reached. Check the address, and that the server is running.",
                code="PROVIDER_UNREACHABLE",
                retryable=True,
            ) from fault
        except EncodedBodyError as fault:
            raise _no_list() from fault
        finally:
            await client.aclose()
            await connections.aclose()
    try:
        listed = msgspec.json.decode(bytes(body), type=_List)
    except msgspec.DecodeError:
        raise _no_list() from None
    names = dict.fromkeys(model.id for model in listed.data if 0 < len(model.id) <= NAME_CHARS)
    if not names:
        raise _no_list()
    return tuple(names)[:MOST_MODELS]


def _no_list() -> ConnectorError:
    return ConnectorError(
        "The server answered, but it lists no models. Check that the address ends where its API begins, often in /v1; "
        "or name a model yourself: remuda connectors add NAME --base-url ADDRESS --model MODEL.",
        code="PROVIDER_LISTS_NO_MODELS",
    )


def _refused(status: int) -> ConnectorError:
    if status == 401:
        return ConnectorError("The server refused the key. Check it and enter it again.", code="PROVIDER_KEY_REFUSED")
    if status == 403:
        return ConnectorError("The server does not let this key see its models.", code="PROVIDER_FORBIDDEN")
    if 300 <= status < 400:
        return ConnectorError(
            "The server points to another address. Remuda does not follow, because the key is for this one. "
            "Enter the other address if you trust it.",
            code="PROVIDER_REDIRECTED",
        )
    if status in (404, 405):
        return _no_list()
    return ConnectorError(
        f"The server answered with status {status}. Try again later.", code="PROVIDER_UNAVAILABLE", retryable=True
    )
