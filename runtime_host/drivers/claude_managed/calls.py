"""Requests to the service that holds managed Claude sessions, as JSON in and out.

Must not know what a run is, nor the SDK before it is used. Invariants: what makes or changes something is sent once;
what only asks may be repeated; a list is read to its end or told as not whole.
"""

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.connectors.transport import Timeouts
from runtime_host.drivers.managed.faults import TOO_LARGE, ServiceFault
from runtime_host.drivers.managed.ids import id_of
from runtime_host.drivers.managed.intents import MARK
from runtime_host.drivers.managed.pages import Page, walk
from runtime_host.drivers.managed.service import Bounds, EventStream, Patience, ServiceClient
from runtime_host.loop.model_apis.pieces import FaultKind
from runtime_host.loop.model_apis.reading import member, text
from runtime_host.loop.own_thread import in_own_thread

Kind = Literal["agent", "environment", "session"]

DELTAS: Final = ("agent.message", "agent.thinking")
PAGE: Final = 100
NEWEST_PAGES: Final = 5
"""How many pages of the newest agents, environments or sessions are looked through for a mark."""
LATEST: Final = 20
_SMALLER: Final = (PAGE, 10, 1)
_SMALLER_LATEST: Final = (LATEST, 2)
"""Sizes of a page of events, tried in this order while one is larger than an answer may be."""
_MODULE: Final = "runtime_host.drivers.claude_managed.client"


class Calls:
    """The service, by its endpoints.

    Args:
        connectors: finds servers and hands out keys.
        timeouts: when a server counts as gone.
        bounds: of what is read.
        patience: of questions.
        workspace_id: of the account's workspaces the one to work in.
    """

    def __init__(
        self,
        connectors: ConnectorRegistry,
        timeouts: Timeouts | None,
        bounds: Bounds,
        patience: Patience,
        workspace_id: str | None,
    ) -> None:
        self._make = connectors, timeouts, bounds, patience, workspace_id
        self._loading: asyncio.Task[ServiceClient[Any]] | None = None

    async def aclose(self) -> None:
        if self._loading is None:
            return
        await asyncio.wait({self._loading})
        if not self._loading.cancelled() and self._loading.exception() is None:
            await self._loading.result().aclose()

    # ---- what makes and changes ----

    async def create(self, connector: str, kind: Kind, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Make one. An answer that names nothing is a lost answer."""
        client = await self._client()
        made = await client.call(connector, lambda sdk: _of(sdk, kind).with_streaming_response.create(**fields))
        if not id_of(made):
            raise ServiceFault(FaultKind.MALFORMED)
        return dict(made)

    async def send(self, connector: str, session_id: str, event: Mapping[str, Any]) -> dict[str, Any]:
        """Send one event; as it was stored, {} where the answer does not say."""
        client = await self._client()
        answer = await client.call(
            connector,
            lambda sdk: sdk.beta.sessions.events.with_streaming_response.send(session_id, events=[event]),
        )
        stored = answer.get("data") if isinstance(answer, dict) else None
        found = [each for each in stored if isinstance(each, dict)] if isinstance(stored, list) else []
        return next((each for each in found if each.get("type") == event["type"]), {})

    async def remove(self, connector: str, kind: Kind, thing_id: str) -> None:
        """Delete a session or an environment, archive an agent: it has no other end."""
        client = await self._client()

        def request(sdk: Any) -> Any:
            way = _of(sdk, kind).with_streaming_response
            return way.archive(thing_id) if kind == "agent" else way.delete(thing_id)

        await client.call(connector, request)

    # ---- what asks ----

    async def retrieve(self, connector: str, kind: Kind, thing_id: str) -> dict[str, Any]:
        client = await self._client()
        found = await client.look(connector, lambda sdk: _of(sdk, kind).with_streaming_response.retrieve(thing_id))
        if text(found, "id") != thing_id:
            raise ServiceFault(FaultKind.MALFORMED)
        return dict(found)

    async def marked(self, connector: str, kind: Kind, intent: str) -> dict[str, dict[str, Any]]:
        """Those among the newest that bear a mark, by id."""
        client = await self._client()

        async def page(cursor: str | None) -> Page:
            more = {} if cursor is None else {"page": cursor}
            return _page(
                await client.look(
                    connector, lambda sdk: _of(sdk, kind).with_streaming_response.list(limit=PAGE, **more)
                )
            )

        listed = await walk(page, most_pages=NEWEST_PAGES)
        return {
            id_of(each): each for each in listed.entries if id_of(each) and member(each, "metadata").get(MARK) == intent
        }

    async def latest(self, connector: str, session_id: str) -> list[dict[str, Any]]:
        """The newest events of a session, the newest first; fewer where one of them is larger than is read."""
        return (await self._events(connector, session_id, _SMALLER_LATEST, {"order": "desc"})).entries

    async def history(
        self, connector: str, session_id: str, boundary: str | None
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All events of a session, oldest first: up to an event, and after it.

        Raises:
            ServiceFault: also when it is longer than is read, or does not hold that event.
        """

        async def page(cursor: str | None) -> Page:
            # The order belongs to the first page; a cursor has it in it.
            more = {"order": "asc"} if cursor is None else {"page": cursor}
            return await self._events(connector, session_id, _SMALLER, more)

        listed = await walk(page)
        if boundary is None:
            return _split(listed.entries, 0, listed.whole)
        at = next((index for index, event in enumerate(listed.entries) if event.get("id") == boundary), None)
        return _split(listed.entries, at + 1 if at is not None else None, listed.whole)

    async def watch(self, connector: str, session_id: str, on_ready: Callable[[], None]) -> EventStream:
        """A stream of what happens from now on; it may not be open yet."""
        client = await self._client()
        return client.watch(
            connector,
            lambda sdk: sdk.beta.sessions.events.with_streaming_response.stream(session_id, event_deltas=list(DELTAS)),
            on_ready,
        )

    async def client(self) -> ServiceClient[Any]:
        """What sends the requests, its SDK loaded on first use and away from the event loop."""
        return await self._client()

    # ---- inside ----

    async def _events(self, connector: str, session_id: str, sizes: Sequence[int], more: Mapping[str, Any]) -> Page:
        """One page of a session's events, of the first of the sizes that is not larger than is read."""
        client = await self._client()

        def listing(size: int) -> Callable[[Any], Any]:
            return lambda sdk: sdk.beta.sessions.events.with_streaming_response.list(session_id, limit=size, **more)

        for size in sizes:
            try:
                return _page(await client.look(connector, listing(size)))
            except ServiceFault as fault:
                if fault.own_code != TOO_LARGE or size == sizes[-1]:
                    raise
        raise ServiceFault(FaultKind.MALFORMED)

    async def _client(self) -> ServiceClient[Any]:
        loading = self._loading
        if loading is None or (loading.done() and (loading.cancelled() or loading.exception() is not None)):
            loading = self._loading = asyncio.create_task(
                in_own_thread(lambda: _load(*self._make), "load anthropic"), name="load anthropic"
            )
        return await asyncio.shield(loading)


def _load(*make: Any) -> ServiceClient[Any]:
    # By name, so that neither this module nor a type checker's import brings the SDK in.
    loaded: ServiceClient[Any] = importlib.import_module(_MODULE).load(*make)
    return loaded


def _of(sdk: Any, kind: Kind) -> Any:
    return {"agent": sdk.beta.agents, "environment": sdk.beta.environments, "session": sdk.beta.sessions}[kind]


def _page(answer: Any) -> Page:
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise ServiceFault(FaultKind.MALFORMED)
    return Page([each for each in data if isinstance(each, dict)], text(answer, "next_page") or None)


def _split(
    entries: Sequence[dict[str, Any]], at: int | None, whole: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    if at is None or not whole:
        raise ServiceFault(FaultKind.MALFORMED)
    return list(entries[:at]), list(entries[at:])
