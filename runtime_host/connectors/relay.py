"""A session's own road to the server of its connector, for a program that must not have the key.

Owns the listening on this computer, the connections of a session's programs, and the passing of requests and answers.
Must not know which harness asks, or what is in a body. Invariants: the key of the connector is put in on this side
and comes back in no answer as it was sent; the token opens this one road, and nothing once it is closed; a request
goes where the connector led when the road was opened, or nowhere; nothing is sent twice; a program that leaves takes
its request with it; after `aclose` no task, connection or listener is left.

A key that a server says back is masked within the bytes of an answer. One that it spreads over several events of a
stream is not seen here; the runtime's own masking joins the text of events, and does.
"""

import asyncio
import secrets
from collections import deque
from types import TracebackType
from typing import Final, Self

import h11
import httpx2

from runtime_host.connectors.base import Access, Connector, ConnectorRegistry, Vendor
from runtime_host.connectors.explained import explained
from runtime_host.connectors.network import NetworkSettings
from runtime_host.connectors.relay_guest import PIECE_BYTES, BodyTooLargeError, Guest
from runtime_host.connectors.relay_rules import (
    BROKEN_OFF,
    MOST_AT_ONCE,
    REQUEST_HEADERS,
    ROADS,
    TOO_LARGE,
    TOO_MANY,
    Refusal,
    Road,
    at_the_door,
    values_of,
)
from runtime_host.connectors.transport import (
    EncodedBodyError,
    OutOfScopeError,
    Timeouts,
    open_connections,
    scoped_client,
)
from runtime_host.errors import AgentClosedError, AgentConfigurationChangedError, AgentRuntimeError, ConnectorError
from runtime_host.loop.model_apis.pieces import FaultKind, ModelFault
from runtime_host.loop.model_apis.service import fault_of
from runtime_host.loop.own_thread import in_own_thread

MOST_CONNECTIONS: Final = 64
KEPT_FAULTS: Final = 16
PATIENT: Final = Timeouts(read_s=600.0)
"""A program has a patience of its own; the road is not what ends an answer that is thought about for long."""
_LASTING: Final = (FaultKind.REDIRECTED, FaultKind.OUT_OF_SCOPE, FaultKind.TLS)
_LOST: Final = (
    ModelFault, OutOfScopeError, EncodedBodyError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL,
)  # fmt: skip


class Relay:
    """A session's own road to its connector's server: a loopback address and a token in place of the key.

    An async context; or `open` and `aclose`.

    Attributes:
        base_url: for a harness, with ``/v1`` at its end where the vendor is openai. Known once it is open.
        token: what a harness is given as its key.
        requests: questions to a model that were sent on so far, those that found nobody too.
        refused: requests that were not let through at the door.

    Args:
        connectors: hands out the key, anew for each request.
        connector: by name; its vendor is openai or anthropic.
        timeouts: when the server counts as gone.
    """

    def __init__(self, connectors: ConnectorRegistry, connector: str, *, timeouts: Timeouts | None = None) -> None:
        self.base_url = ""
        self.token = secrets.token_urlsafe(32)
        self.requests = 0
        self.refused = 0
        self._connectors = connectors
        self._name = connector
        self._timeouts = timeouts or PATIENT
        self._faults: deque[str] = deque(maxlen=KEPT_FAULTS)
        self._leads_to: Connector | None = None
        self._place = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[Guest, None] = {}
        self._passing = 0
        self._ways: dict[tuple[NetworkSettings, str], httpx2.AsyncBaseTransport] = {}
        self._closed = False

    @property
    def faults(self) -> tuple[str, ...]:
        """Why requests did not come through, in sentences, the newest last."""
        return tuple(self._faults)

    async def open(self) -> Self:
        """Begin to listen; no key is touched and nothing is sent.

        Raises:
            ConnectorError: there is no such connector, or no harness speaks to its kind of server.
            AgentClosedError: it was closed, or is open.
        """
        if self._closed or self._leads_to is not None:
            raise AgentClosedError("A road to the model is opened once.")
        connector = self._connectors.connector(self._name)
        if connector.vendor not in ROADS:
            raise ConnectorError(
                f"The connector {connector.name} leads to a server of another kind than this harness speaks to. "
                "Choose another connector.",
                code="CONNECTOR_VENDOR_UNFIT",
            )
        self._leads_to = connector
        self._connectors.redactor.add(self.token)
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=PIECE_BYTES)
        self._place = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.base_url = f"http://{self._place}" + ("/v1" if connector.vendor == "openai" else "")
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cut what is under way and let nothing in any more. Idempotent."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        while self._tasks:
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self._server is not None:
            await self._server.wait_closed()
        while self._ways:
            _, way = self._ways.popitem()
            await way.aclose()
        self._connectors.redactor.remove(self.token)

    # ---- programs that come ----

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        connector = self._leads_to
        if task is None or connector is None or self._closed or not self._has_room():
            writer.transport.abort()
            return
        self._tasks.add(task)
        guest = Guest(reader, writer)
        self._strangers[guest] = None
        try:
            while await self._serve_one(guest, connector.vendor):
                pass
            await guest.hang_up()
        except (OSError, TimeoutError, h11.ProtocolError):
            # It left, took too long, or speaks no HTTP.
            pass
        except asyncio.CancelledError:
            if not self._closed:
                raise
        finally:
            self._tasks.discard(task)
            self._strangers.pop(guest, None)
            guest.cut()

    def _has_room(self) -> bool:
        """Whether one more connection is taken; of those that showed no token the oldest gives way.

        Any program here can connect, another user's too, and must not keep out the one this road is for.
        """
        if len(self._tasks) < MOST_CONNECTIONS:
            return True
        stranger = next(iter(self._strangers), None)
        if stranger is not None:
            del self._strangers[stranger]
            stranger.cut()
        return stranger is not None

    async def _serve_one(self, guest: Guest, vendor: Vendor) -> bool:
        """One request; whether another may follow on this connection."""
        request = await guest.request()
        if request is None:
            return False
        found = at_the_door(
            vendor,
            request.method.decode("latin-1"),
            request.target.decode("latin-1"),
            list(request.headers),
            place=self._place,
            token=self.token,
        )
        if not isinstance(found, Refusal) and self._passing >= MOST_AT_ONCE:
            found = TOO_MANY
        if isinstance(found, Refusal):
            self.refused += 1
            await guest.refuse(found, found.body(vendor))
            return False
        self._strangers.pop(guest, None)
        self._passing += 1
        try:
            await guest.while_there(self._pass(guest, vendor, request, *found))
        finally:
            self._passing -= 1
        return guest.goes_on()

    # ---- passing on ----

    async def _pass(self, guest: Guest, vendor: Vendor, request: h11.Request, road: Road, query: str) -> None:
        try:
            async with self._connectors.use(self._name) as access:
                self._check_place(access)
                refusal = await self._exchange(guest, request, access, road, query)
        except AgentRuntimeError as refused:
            refusal = Refusal(503, refused.error_code, refused.message)
        if refusal is None:
            return
        self._faults.append(refusal.sentence)
        if guest.was_answered:
            # Half an answer is not mended by words; it has to look cut.
            raise ConnectionAbortedError
        await guest.refuse(refusal, refusal.body(vendor))

    def _check_place(self, access: Access) -> None:
        then, now = self._leads_to, access.connector
        if then is None or (now.vendor, now.base_url) != (then.vendor, then.base_url):
            raise AgentConfigurationChangedError(
                f"The connector {self._name} leads to another server than when this session began, and what was said "
                "here was not meant for it. Nothing was sent. Begin a new session to use the other server."
            )

    async def _exchange(
        self, guest: Guest, request: h11.Request, access: Access, road: Road, query: str
    ) -> Refusal | None:
        """Send a request on and hand the answer back, whatever it says; or tell why none came."""
        try:
            await self._send_on(guest, request, access, road, query)
        except BodyTooLargeError:
            return TOO_LARGE
        except _LOST as lost:
            fault = _fault(lost)
        else:
            return None
        if fault.kind is FaultKind.STREAM_CUT:
            return BROKEN_OFF
        told = explained(fault, access)
        status = 504 if fault.kind is FaultKind.SILENT else 502
        return Refusal(status, told.code, told.sentence, is_lasting=fault.kind in _LASTING)

    async def _send_on(self, guest: Guest, request: h11.Request, access: Access, road: Road, query: str) -> None:
        headers = list(request.headers)
        named = {name: values_of(headers, name) for name in (*REQUEST_HEADERS, "content-length")}
        client = scoped_client(
            await self._way(access),
            base_url=access.base_url,
            secret_headers=_proof(access),
            timeouts=self._timeouts,
            passed_headers=REQUEST_HEADERS,
        )
        self.requests += road.asks_model
        method, url = request.method.decode(), access.base_url + road.there + query
        passed = {name: ",".join(values) for name, values in named.items() if values}
        body = guest.body() if method == "POST" else None
        if body is None:
            await guest.no_body()
        async with client, client.stream(method, url, headers=passed, content=body) as response:
            if 300 <= response.status_code < 400:
                raise ModelFault(FaultKind.REDIRECTED, http_status=response.status_code)
            await guest.answer(response, self._connectors.redactor)

    async def _way(self, access: Access) -> httpx2.AsyncBaseTransport:
        place = access.network, access.base_url
        way = self._ways.get(place)
        if way is None:
            opened = await in_own_thread(lambda: open_connections(network=access.network), "read certificates")
            way = self._ways.setdefault(place, opened)
        return way


def _proof(access: Access) -> dict[str, str]:
    """What shows the server who asks. The version of an API is the program's own."""
    if access.api_key is None:
        return {}
    if access.connector.vendor == "anthropic":
        return {"x-api-key": access.api_key}
    return {"authorization": f"Bearer {access.api_key}"}


def _fault(lost: Exception) -> ModelFault:
    if isinstance(lost, ModelFault):
        return lost
    if isinstance(lost, OutOfScopeError):
        return ModelFault(FaultKind.OUT_OF_SCOPE, sent=False)
    return fault_of(lost)


__all__ = ["Relay"]
