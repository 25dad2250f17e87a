"""What the drivers of managed harnesses share: faults, intents, pages, the way of events."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from runtime_host.connectors import Connector, SecretRef
from runtime_host.drivers.managed import faults, intents
from runtime_host.drivers.managed.faults import ServiceFault
from runtime_host.drivers.managed.outlet import Outlet
from runtime_host.drivers.managed.pages import Page, walk
from runtime_host.drivers.managed.service import Bounds, EventStream, Patience
from runtime_host.events import DriverEvent
from runtime_host.loop.model_apis.pieces import FaultKind

CANARY = "sk-canary-0123456789abcdef"
CONNECTOR = Connector(name="o", vendor="openai", secret=SecretRef(kind="env", name="K"))


async def _at_once(_: float) -> None:
    await asyncio.sleep(0)


SOON = Patience(tries=3, sleep=_at_once)


def _refused(status: int, code: str = "", **headers: str) -> ServiceFault:
    body = json.dumps({"error": {"code": code, "type": CANARY, "message": CANARY}}).encode()
    return faults.refused(status, headers, body, words=frozenset({"conflict_error"}))


@pytest.mark.parametrize("status", [307, 400, 401, 404, 409, 422, 429])
def test_what_was_refused_did_nothing(status: int) -> None:
    assert _refused(status).did_nothing


@pytest.mark.parametrize("status", [408, 500, 502, 503, 529])
def test_what_failed_may_have_done_something(status: int) -> None:
    assert not _refused(status).did_nothing
    assert not ServiceFault(FaultKind.STREAM_CUT).did_nothing
    assert ServiceFault(FaultKind.UNREACHABLE, sent=False).did_nothing


def test_of_a_refusal_only_known_words_are_told() -> None:
    fault = _refused(409, "conflict_error", **{"x-request-id": "req_1", "retry-after": "3"})
    assert faults.facts(fault) == {
        "http_status": 409,
        "provider_code": "conflict_error",
        "request_id": "req_1",
        "retry_after_s": 3.0,
    }
    echoing = _refused(500, CANARY, **{"x-request-id": f"Bearer {CANARY}"})
    said = faults.run_error(echoing, CONNECTOR, "OpenAI", "m", means="It was not sent.")
    assert CANARY not in said.model_dump_json() + repr(echoing)


def test_every_kind_of_fault_has_a_sentence() -> None:
    for kind in FaultKind:
        said = faults.run_error(ServiceFault(kind), CONNECTOR, "OpenAI", "m", means="It was not sent.")
        assert said.code == kind.value
        assert said.message.count(". ") >= 2


def test_a_question_is_repeated_a_few_times_and_no_longer_than_bearable() -> None:
    patience = Patience(tries=5, first_wait_s=1.0, longest_wait_s=8.0, longest_asked_s=30.0)
    assert [patience.wait_s(tried) for tried in range(1, 6)] == [1.0, 2.0, 4.0, 8.0, None]
    assert patience.wait_s(1, 30.0) == 30.0
    assert patience.wait_s(1, 3600.0) is None


def test_an_intent_is_kept_until_it_is_known_what_came_of_it() -> None:
    state, intent = intents.intend({"version": 1}, "session")
    assert intents.intended(state, "session") == intent
    assert intents.intended(state, "agent") is None
    assert intents.intended(intents.settled(state, "session"), "session") is None


async def test_looking_goes_on_a_few_times_and_says_how_far() -> None:
    answers: list[Any] = [[], ServiceFault(FaultKind.SILENT), ["s1"], ["s2"]]

    async def find() -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, ServiceFault):
            raise answer
        return list(answer)

    looked = await intents.look_for(find, SOON)
    assert (looked.found, looked.times) == (("s1",), 3)
    assert looked.in_words().startswith("3 times in ")
    answers[:] = [[], [], []]
    assert (await intents.look_for(find, SOON)).found == ()
    answers[:] = [[], [], ServiceFault(FaultKind.SILENT)]
    with pytest.raises(ServiceFault):
        await intents.look_for(find, SOON)


async def test_a_list_is_read_to_its_end_or_said_not_to_be_whole() -> None:
    async def page(cursor: str | None) -> Page:
        number = int(cursor or 0)
        return Page([{"id": number}], str(number + 1) if number < 5 else None)

    assert [entry["id"] for entry in (await walk(page)).entries] == [0, 1, 2, 3, 4, 5]
    assert not (await walk(page, most_pages=3)).whole
    assert not (await walk(page, most_entries=2)).whole

    async def circle(cursor: str | None) -> Page:
        return Page([], "again")

    with pytest.raises(ServiceFault):
        await walk(circle)


async def test_a_flood_waits_for_its_reader_and_the_end_gives_out_the_rest() -> None:
    outlet = Outlet(most_waiting=2)
    events = [DriverEvent("agent.message.delta", {"id": "m", "text": str(n), "phase": "unknown"}) for n in range(5)]

    async def put() -> None:
        for event in events:
            await outlet.put(event)
        outlet.close()

    putting = asyncio.ensure_future(put())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not putting.done()
    assert [event async for event in outlet.events()] == events
    await outlet.put(events[0])
    assert [event async for event in outlet.events()] == []


@pytest.mark.parametrize("bounds", [Bounds(ahead_events=5), Bounds(ahead_bytes=50)], ids=["events", "bytes"])
async def test_a_stream_is_read_no_further_ahead_than_its_bounds(bounds: Bounds) -> None:
    given = 0

    async def flood() -> AsyncGenerator[tuple[str, bytes] | ServiceFault | None, None]:
        nonlocal given
        yield None
        while given < 100:
            given += 1
            yield "e", b'{"n":%4d}' % given

    stream = EventStream(flood(), bounds, lambda: None)
    await stream.opened()
    taken: list[int] = []
    ended = False
    while not ended:
        for _ in range(200):
            await asyncio.sleep(0)
        ended = stream.ended
        # One more is in its hand. Also of one that has ended: all of it may have been read at once.
        assert given - len(taken) <= 6
        taken += [event["n"] for event in stream.take()]
        await asyncio.sleep(0)
    assert [*taken, *(event["n"] for event in stream.take())] == list(range(1, 101))
    await stream.close()
