"""Conversations at a provider: they go on there, watched or not, and nothing of them is said to be over that is not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from desktop import paths, profiles, stored
from desktop.app import Host
from desktop.choices import OPENAI_MANAGED
from desktop.desk import _run_view
from desktop.late_driver import LateServiceDriver
from desktop.profile_store import AgentRecord
from desktop.terms import managed_terms
from runtime_host.connectors.base import Connector, SecretRef
from runtime_host.drivers.managed.service import Patience
from runtime_host.errors import AgentRuntimeError
from runtime_host.run import Run
from tests.loopback.agents.script import Say, Wait
from tests.loopback.agents_server import AgentsServer
from tests.loopback.managed_claude.faults import Answered, AnswerLost
from tests.puppet import until
from ui.wire import dto

WITHIN_S = 20.0


@pytest.fixture
async def far() -> AsyncIterator[AgentsServer]:
    async with AgentsServer() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, far: AgentsServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTS_SECRET", str(far.key))
    return tmp_path / "data"


@pytest.fixture
async def host(folder: Path, far: AgentsServer) -> AsyncIterator[Host]:
    async with Host(paths.profile(folder)) as running:
        await running.connectors.add(
            Connector(
                name="Acme",
                vendor="openai",
                base_url=far.base_url,
                secret=SecretRef(kind="env", name="AGENTS_SECRET"),
                models=("gpt-6-astra",),
            )
        )
        yield running


async def say(host: Host, text: str, name: str | None = None) -> tuple[str, Run]:
    choice = next(host.choices().of(OPENAI_MANAGED))
    request_id = f"request-{text}"
    return await host.conversations.send(name, text, request_id=request_id, choice=choice, effort="")


async def state(host: Host, name: str) -> str:
    row = await host.conversations.row(name)
    assert row is not None
    return row.state


async def until_there(far: AgentsServer, inputs: int = 1) -> None:
    await until(lambda: far.counts()["inputs"] >= inputs)


async def until_state(host: Host, name: str, wanted: str) -> None:
    changed = asyncio.Event()
    leave = host.conversations.on_change(lambda conversation_id: changed.set())
    try:
        async with asyncio.timeout(WITHIN_S):
            while await state(host, name) != wanted:
                changed.clear()
                await changed.wait()
    finally:
        leave()


async def view(host: Host, name: str) -> dto.RunView:
    shown = _run_view(await host.conversations.ending(name))
    assert shown is not None
    return shown


async def test_what_is_let_run_on_costs_nothing_here_stays_listed_and_is_watched_again(
    host: Host, far: AgentsServer
) -> None:
    far.answer(Wait(), Say("Berths 7 and 19."))
    name, run = await say(host, "Which berths?")
    await until_there(far)
    assert (await view(host, name)).goes_on_at == "OpenAI"
    assert host.conversations.running() == [name]
    assert not host.conversations.busy, "it goes on there, so the end of this host ends nothing"
    await host.conversations.detach(name)
    await until(lambda: far.streams_open == 0)
    assert await state(host, name) == "elsewhere"
    assert host.conversations.at_services() == {"OpenAI": 1}
    shown = await view(host, name)
    assert (shown.state, shown.can_look_again, shown.can_ask_again) == ("elsewhere", True, False)
    assert shown.sentence == "It goes on at OpenAI, and is not watched from here."
    requests = len(far.requests)
    await asyncio.sleep(0)
    assert len(far.requests) == requests

    await host.conversations.resume(name)
    assert await state(host, name) == "working"
    live = host.conversations.live_run(name)
    assert live is not None
    assert live.run_id == run.run_id
    far.let_go()
    assert (await live.result()).output_text == "Berths 7 and 19."
    await until_state(host, name, "done")
    assert far.counts()["inputs"] == 1


async def test_after_a_restart_it_is_running_under_the_same_id_and_never_over(
    host: Host, far: AgentsServer, folder: Path
) -> None:
    far.answer(Wait(), Say("Berths 7 and 19."))
    name, run = await say(host, "Which berths?")
    await until_there(far)
    await host.__aexit__()
    assert far.counts()["cancels"] == 0, "the end of this program ends nothing there"
    async with Host(paths.profile(folder)) as later:
        await later.recover()
        await until_state(later, name, "working")
        live = later.conversations.live_run(name)
        assert live is not None
        assert live.run_id == run.run_id
        far.let_go()
        codes = [event.data.get("code") async for event in live.events()]
        assert "HISTORY_GAP" in codes
        assert (await live.result()).output_text == "Berths 7 and 19."
    assert far.counts()["inputs"] == 1


async def test_what_cannot_be_found_is_unknown_and_looked_for_again(
    host: Host, far: AgentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = next(host.choices().of(OPENAI_MANAGED))
    on = managed_terms("chat", None, sandbox_only=False)
    await host.conversations.inspect(choice, "", on)
    late = host.runtime.backend.driver(OPENAI_MANAGED)
    assert isinstance(late, LateServiceDriver)
    monkeypatch.setattr(late.loaded, "looking", Patience(tries=1, first_wait_s=0.01, longest_wait_s=0.01))
    far.answer(Say("Berths 7 and 19."))
    far.service.list_lag = 1_000
    # The session is made with its first input, and the answer that says so is lost.
    far.fault(AnswerLost("sessions.create"))
    name, run = await host.conversations.send(
        None, "Which berths?", request_id="r1", choice=choice, effort="", terms=on
    )
    await until_state(host, name, "unknown")
    shown = await view(host, name)
    assert (shown.state, shown.can_look_again, shown.can_ask_again) == ("unknown", True, False)
    for session in far.service.sessions.values():
        session.hidden_looks = 0
    await host.conversations.resume(name)
    await until_state(host, name, "done")
    ending = await host.conversations.ending(name)
    assert ending is not None
    assert ending.run_id == run.run_id
    assert (far.counts()["sessions"], far.counts()["inputs"]) == (1, 1)


async def test_what_cannot_be_deleted_there_stays_here_and_says_so(host: Host, far: AgentsServer) -> None:
    far.answer(Say("Berths 7 and 19."))
    name, run = await say(host, "Which berths?")
    await run.result()
    await until_state(host, name, "done")
    far.fault(Answered("sessions.delete", status=500, times=1, executed=False))
    with pytest.raises(AgentRuntimeError):
        await host.conversations.delete(name)
    assert await state(host, name) == "done"
    await host.conversations.delete(name)
    assert await host.conversations.row(name) is None
    assert far.counts()["deletes"] == 1


async def test_what_goes_on_unwatched_is_stopped_from_here(host: Host, far: AgentsServer) -> None:
    far.answer(Wait(), Say("Never."))
    name, _ = await say(host, "Which berths?")
    await until_there(far)
    await host.conversations.detach(name)
    stopped = await host.conversations.stop(name)
    assert stopped is not None
    assert stopped.status == "cancelled"
    await until_state(host, name, "stopped")
    assert far.counts()["cancels"] == 1


async def test_one_that_may_ask_for_a_tool_of_this_computer_keeps_the_host(host: Host, far: AgentsServer) -> None:
    [agent] = host.agents
    await host.agents.edit(structs.replace(agent, tools=("clock",)))
    far.answer(Wait(), Say("It is Tuesday."))
    name, run = await say(host, "Which day is it?")
    await until_there(far)
    assert host.conversations.held_here() == [name]
    assert host.conversations.busy
    far.let_go()
    await run.result()
    await until_state(host, name, "done")
    assert not host.conversations.busy


async def test_an_agent_goes_only_with_what_is_kept_of_it_at_the_provider(host: Host, far: AgentsServer) -> None:
    poet = await host.agents.create(AgentRecord(agent_id="", name="Poet"))
    choice = next(host.choices().of(OPENAI_MANAGED))
    far.answer(Say("Berths 7 and 19."))
    name, run = await host.conversations.send(
        None, "Which berths?", request_id="r1", choice=choice, effort="", agent=poet.agent_id
    )
    await run.result()
    await until_state(host, name, "done")
    far.fault(Answered("sessions.delete", status=500, times=1, executed=False))
    with pytest.raises(AgentRuntimeError, match="could not be deleted at OpenAI"):
        await host.conversations.delete_agent(poet.agent_id)
    assert host.agents.get(poet.agent_id) is not None
    assert await state(host, name) == "done"
    await host.conversations.delete_agent(poet.agent_id)
    assert host.agents.get(poet.agent_id) is None
    assert far.counts()["deletes"] == 1


async def test_what_becomes_of_what_is_at_a_service_is_said_before_a_profile_goes(
    host: Host, far: AgentsServer
) -> None:
    far.always(Say("It is Tuesday."))
    _, first = await say(host, "Which day is it?")
    name, second = await say(host, "And now?")
    await first.result()
    await second.result()
    goes = await stored.what_goes(host, await stored.what_is_stored(host))
    assert "2 conversations at OpenAI are deleted there, too." in goes
    await host.conversations.delete(name)
    await host.__aexit__()
    # As another profile's window finds it.
    [said] = await profiles.stays(host.paths)
    assert said.startswith("1 conversation at OpenAI stays there")
