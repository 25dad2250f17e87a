"""A process that ends before or after any commit of a turn at OpenAI with one tool: one input, one effect, one run."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from runtime_host.errors import AgentSessionRecoveryError
from runtime_host.runtime import AgentRuntime, LocalBackend, RecoveredRun
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.tools.base import HostTool, ResolutionContext, ResolvedTools, ToolContext
from tests.loopback.agents.script import Say, Use
from tests.loopback.agents_server import AgentsServer
from tests.loopback.openai_managed import DEFINITION, driver_for, far_elsewhere, options_for, registry_of
from tests.loopback.tools import MortalStore

DEFINED = DEFINITION.model_copy(update={"tools": ("look",)})


def _local(far: AgentsServer, store: AgentStore, acted: list[str]) -> LocalBackend:
    async def look(_: Any, context: ToolContext) -> str:
        acted.append("looked")
        return "rain"

    async def storage(_: str) -> AgentStore:
        return store

    async def resolve(names: tuple[str, ...], _: ResolutionContext) -> ResolvedTools:
        tools = tuple(HostTool(name, "Tells the weather.", {"type": "object"}, look) for name in names)
        return ResolvedTools(tools=tools, fingerprint="1")

    connectors = registry_of(far)
    return LocalBackend(
        drivers=[driver_for(connectors)],
        storage=storage,
        connectors=connectors,
        durability="durable",
        resolve_tools=resolve,
    )


async def _until_death(far: AgentsServer, mortal: MortalStore, acted: list[str], hosted: bool) -> str:
    """A life up to the commit at which its store stops answering; its run, "" where it was not told of one."""
    before = asyncio.all_tasks()
    backend = _local(far, mortal, acted)
    run_id = ""

    async def live() -> None:
        nonlocal run_id
        session = await AgentRuntime(backend).create_agent(DEFINED).open_session(options_for(hosted))
        run = await session.run("What is the weather?", request_id="r")
        run_id = run.run_id
        await run.result()

    living = asyncio.ensure_future(live())
    dying = asyncio.ensure_future(mortal.dead.wait())
    async with asyncio.timeout(20):
        await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
    mortal.dead.set()
    while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.05)
    for task in (living, dying):
        with suppress(asyncio.CancelledError, Exception):
            await task
    await backend.aclose()
    return run_id


async def _came_to(recovered: RecoveredRun, far: AgentsServer, acted: list[str]) -> str:
    """What a run came to that a process left."""
    if recovered.run is None:
        return "unknown"
    try:
        async with asyncio.timeout(20):
            result = await recovered.run.result()
    except AgentSessionRecoveryError:
        return "not found"
    if result.error is not None:
        return result.error.code
    assert (result.status, result.output_text) == ("completed", "It rains.")
    assert (far.counts()["results"], len(acted)) == (1, 1)
    return "completed"


QUICKLY = (("after", 3), ("before", 6), ("before", 9), ("after", 10), ("before", 11))
POINTS = [
    pytest.param(moment, number, hosted, marks=() if (moment, number) in QUICKLY and not hosted else pytest.mark.soak)
    for moment in ("before", "after")
    for number in range(1, 13)
    for hosted in (False, True)
]


# A process that ends in the middle complains of nothing that it had only begun.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("moment", "number", "hosted"), POINTS)
async def test_one_input_and_one_effect_whenever_the_process_ends(moment: str, number: int, hosted: bool) -> None:
    store, acted = MemoryAgentStore(), list[str]()
    async with far_elsewhere() as far:
        far.answer(Say("I look.", phase="commentary"), Use("look", {}), Say("It rains."))
        mortal = MortalStore(store)
        setattr(mortal, f"dies_{moment}", number)
        run_id = await _until_death(far, mortal, acted, hosted)
        acted_before = len(acted)
        async with AgentRuntime(_local(far, store, acted)) as runtime:
            for each in await runtime.recover(DEFINED.id):
                assert each.run is None or each.run.run_id == (run_id or each.run.run_id)
                came_to = await _came_to(each, far, acted)
                if came_to in ("INPUT_NOT_SENT", "not found"):
                    assert far.counts()["inputs"] == 0, "an input that was sent was given up"
                if came_to == "unknown":
                    # It ended while the tool was at work: whether that acted, nobody here can know.
                    assert (far.counts()["results"], len(acted)) == (0, acted_before)
        counts = far.counts()
        assert max(counts["sessions"], counts["inputs"], counts["results"], len(acted)) <= 1
        assert (counts["cancels"], counts["steered"]) == (0, 0)
