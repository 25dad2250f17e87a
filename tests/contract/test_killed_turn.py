"""A turn with three tools, a read, a write and one that a person approves, ended before and after each commit of it."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from runtime_host.loop.plugins.base import PluginCall
from runtime_host.results import AgentResult
from runtime_host.storage.memory import MemoryAgentStore
from tests.loopback.chat_server import ChatServer
from tests.loopback.three_tools import check, driver_for, life
from tests.loopback.tools import MortalStore


async def until_death(mortal: MortalStore, server: ChatServer, effects: list[str]) -> AgentResult | None:
    """A life up to the point at which its store stops answering; its result, if it came to its end before."""

    async def does(call: PluginCall) -> Any:
        if mortal.dead.is_set():
            raise AssertionError("a dead process does nothing")
        effects.append(str(call.arguments["entry"]))

    before, driver = asyncio.all_tasks(), driver_for(server)
    living = asyncio.ensure_future(life(mortal, driver, does, doomed=True))
    dying = asyncio.ensure_future(mortal.dead.wait())
    async with asyncio.timeout(20):
        await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
    result = living.result() if living.done() and not mortal.dead.is_set() else None
    mortal.dead.set()
    servers = {task for task in asyncio.all_tasks() if "ChatServer" in str(task.get_coro())}
    while left := asyncio.all_tasks() - before - servers - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.05)
    for task in (living, dying):
        with suppress(asyncio.CancelledError, Exception):
            await task
    await driver.aclose()
    return result


async def killed_at(moment: str, number: int, earlier: tuple[str, int] | None = None) -> bool:
    """Whether a life was ended at this commit; checks the one after it. `earlier`: ended once before."""
    store = MemoryAgentStore()
    effects: list[str] = []
    result = None
    async with ChatServer(behaviour="three-tools") as server:
        for each in filter(None, (earlier, (moment, number))):
            mortal = MortalStore(store)
            setattr(mortal, f"dies_{each[0]}", each[1])
            result = await until_death(mortal, server, effects)
        whole = result is not None

        async def does(call: PluginCall) -> Any:
            effects.append(str(call.arguments["entry"]))

        last = result or await life(store, driver_for(server), does)
        await check(store, server, last, effects, f"{earlier} {moment} {number}")
    return not whole


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_each_effect_of_a_turn_is_had_once_at_most_wherever_the_host_ends(moment: str) -> None:
    # After one commit is before the next, but for what the dying process still had in mind: every third will do.
    number, step = 1, 1 if moment == "before" else 3
    while await killed_at(moment, number):
        number += step
    # Mount, session, input, dispatch, request, calls, and what each call and its decision take.
    assert number > 15, number


@pytest.mark.soak
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("first", range(5, 24, 2))
async def test_so_it_is_when_the_host_that_goes_on_is_ended_as_well(moment: str, first: int) -> None:
    number = 1
    while await killed_at(moment, number, ("after", first)):
        number += 1
