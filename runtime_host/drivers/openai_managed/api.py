"""The requests to OpenAI's Agents API that this harness makes, each as one call.

Must not know runs, events or storage. Invariants: only what asks is repeated; every list is read by its own cursor and
to its end or within bounds that are told; an answer of another form than expected is a fault.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from runtime_host.drivers.managed.faults import TOO_LARGE, ServiceFault
from runtime_host.drivers.managed.ids import id_of
from runtime_host.drivers.managed.intents import MARK
from runtime_host.drivers.managed.pages import Page, Walked, walk
from runtime_host.drivers.managed.service import EventStream, ServiceClient
from runtime_host.loop.model_apis.pieces import FaultKind
from runtime_host.loop.model_apis.reading import listed, text

PAGE: Final = 100
NEWEST: Final = 20
MOST_TURN_PAGES: Final = 10
_SMALLER: Final = (PAGE, 10, 1)
"""Sizes of a page of items, tried in this order while one is larger than an answer may be."""


class AgentsApi:
    """One connector's account at OpenAI."""

    def __init__(self, client: ServiceClient[Any], connector: str) -> None:
        self._client = client
        self._connector = connector

    # ---- what changes something: once each ----

    async def create(self, body: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Make a session without an input."""
        headers = {"Idempotency-Key": key}
        return _object(
            await self._client.call(
                self._connector,
                lambda sdk: sdk.beta.agents.sessions.with_streaming_response.create(**body, extra_headers=headers),
            )
        )

    def create_with(self, body: Mapping[str, Any], words: str, key: str, on_ready: Callable[[], None]) -> EventStream:
        """Make a session with its first input; its events come in the answer."""
        headers = {"Idempotency-Key": key}
        return self._client.watch(
            self._connector,
            lambda sdk: sdk.beta.agents.sessions.with_streaming_response.create(
                **body, input=words, stream=True, extra_headers=headers
            ),
            on_ready,
        )

    async def update(self, session_id: str, agent: Mapping[str, Any]) -> None:
        """Change model or effort of the turns to come."""
        await self._client.call(
            self._connector,
            lambda sdk: sdk.beta.agents.sessions.with_streaming_response.update(session_id, agent=agent),
        )

    async def send(self, session_id: str, event: Mapping[str, Any], key: str) -> None:
        """Hand in one input event; that it was accepted is all that is known when this returns."""
        await self._client.call(
            self._connector,
            lambda sdk: sdk.beta.agents.sessions.events.with_streaming_response.create(
                session_id, events=[event], idempotency_key=key
            ),
        )

    async def delete(self, session_id: str) -> None:
        await self._client.call(
            self._connector, lambda sdk: sdk.beta.agents.sessions.with_streaming_response.delete(session_id)
        )

    # ---- what asks ----

    def stream(self, session_id: str, on_ready: Callable[[], None]) -> EventStream:
        """The events of a session from now on."""
        return self._client.watch(
            self._connector,
            lambda sdk: sdk.beta.agents.sessions.events.with_streaming_response.stream(
                session_id, include_obfuscation=False
            ),
            on_ready,
        )

    async def session(self, session_id: str) -> dict[str, Any]:
        return _object(
            await self._client.look(
                self._connector, lambda sdk: sdk.beta.agents.sessions.with_streaming_response.retrieve(session_id)
            ),
            session_id,
        )

    async def turn(self, session_id: str, turn_id: str) -> dict[str, Any]:
        return _object(
            await self._client.look(
                self._connector,
                lambda sdk: sdk.beta.agents.sessions.turns.with_streaming_response.retrieve(
                    turn_id, session_id=session_id
                ),
            ),
            turn_id,
        )

    async def newest_turn(self, session_id: str) -> str | None:
        """The turn that began last."""
        page = await self._turns(session_id, None, limit=1)
        return text(page.entries[0], "id") if page.entries else None

    async def turns_after(self, session_id: str, boundary: str | None) -> list[dict[str, Any]]:
        """The turns of the session's own agent that began after `boundary`, oldest first."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MOST_TURN_PAGES):
            page = await self._turns(session_id, cursor, limit=NEWEST)
            for turn in page.entries:
                if boundary is not None and text(turn, "id") == boundary:
                    return found[::-1]
                if turn.get("subagent_id") is None:
                    found.append(turn)
            if page.following is None:
                break
            cursor = page.following
        return found[::-1]

    async def _turns(self, session_id: str, cursor: str | None, *, limit: int) -> Page:
        after = {} if cursor is None else {"after": cursor}
        return _page(
            await self._client.look(
                self._connector,
                lambda sdk: sdk.beta.agents.sessions.turns.with_streaming_response.list(
                    session_id, limit=limit, order="desc", **after
                ),
            ),
            cursor,
        )

    async def items(self, session_id: str, turn_id: str) -> Walked:
        """What is saved of a turn, oldest first. Not whole where one item is larger than an answer may be."""
        cut = False

        async def page(cursor: str | None) -> Page:
            nonlocal cut
            for limit in _SMALLER:
                try:
                    return await self._items(session_id, turn_id, cursor, limit)
                except ServiceFault as fault:
                    if fault.own_code != TOO_LARGE:
                        raise
            # Where the next item begins is told with this one only.
            cut = True
            return Page([], None)

        walked = await walk(page)
        return Walked(walked.entries, walked.whole and not cut)

    async def _items(self, session_id: str, turn_id: str, cursor: str | None, limit: int) -> Page:
        after = {} if cursor is None else {"after": cursor}
        return _page(
            await self._client.look(
                self._connector,
                lambda sdk: sdk.beta.agents.sessions.turns.items.with_streaming_response.list(
                    turn_id, session_id=session_id, limit=limit, order="asc", **after
                ),
            ),
            cursor,
        )

    async def artifacts(self, session_id: str, environment_id: str) -> Walked:
        """What the session published from an environment."""

        async def page(cursor: str | None) -> Page:
            after = {} if cursor is None else {"after": cursor}
            return _page(
                await self._client.look(
                    self._connector,
                    lambda sdk: sdk.beta.agents.sessions.artifacts.with_streaming_response.list(
                        session_id, environment_id=environment_id, limit=PAGE, order="asc", **after
                    ),
                ),
                cursor,
            )

        return await walk(page)

    async def marked(self, intent: str) -> list[str]:
        """The sessions that bear an intent's mark; two at most, since two are too many."""
        page = _page(
            await self._client.look(
                self._connector,
                lambda sdk: sdk.beta.agents.sessions.with_streaming_response.list(
                    metadata={MARK: intent}, limit=NEWEST
                ),
            ),
            None,
        )
        marked = [each for each in page.entries if text(each.get("metadata"), MARK) == intent]
        return [id_of(each) for each in marked if id_of(each)]


def _object(answer: Any, asked: str | None = None) -> dict[str, Any]:
    """A description; one of another than was asked for is none."""
    if not isinstance(answer, dict) or not id_of(answer) or asked not in (None, id_of(answer)):
        raise ServiceFault(FaultKind.MALFORMED)
    return answer


def _page(answer: Any, cursor: str | None) -> Page:
    """A page by its own word on what follows: the id of its last entry may be missing."""
    if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
        raise ServiceFault(FaultKind.MALFORMED)
    entries = [entry for entry in listed(answer.get("data")) if isinstance(entry, dict)]
    if answer.get("has_more") is not True:
        return Page(entries, None)
    following = text(answer, "last_id") or next((text(e, "id") for e in reversed(entries) if text(e, "id")), "")
    if not following or following == cursor:
        # More is said to follow, and nothing says where: never taken for the end.
        raise ServiceFault(FaultKind.MALFORMED)
    return Page(entries, following)
