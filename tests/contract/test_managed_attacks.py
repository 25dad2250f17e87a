"""Managed harnesses in a hostile place: an environment that would add to requests, and providers that ask for anything.

Whatever comes, the key is at the provider and nowhere else, a request goes out once, and a stop is heard.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runtime_host.connectors.transport import Timeouts
from runtime_host.drivers.managed.service import Bounds, Patience
from runtime_host.results import AgentResult
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.tools.base import HostTool, ResolutionContext, ResolvedTools
from tests.loopback import claude_managed, openai_managed
from tests.loopback.agents import script as openai_script
from tests.loopback.agents_server import AgentsServer
from tests.loopback.managed_claude import script as claude_script
from tests.loopback.managed_claude.faults import Answered, Held
from tests.loopback.managed_claude_server import DEFAULT_KEY, ManagedClaudeServer

EVIL = {
    "OPENAI_LOG": "debug",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_ORG_ID": "org-ambient",
    "OPENAI_PROJECT_ID": "proj-ambient",
    "OPENAI_CUSTOM_HEADERS": "X-Evil: ambient\nIdempotency-Key: ambient\nOpenAI-Beta: ambient\nAuthorization: ambient",
    "ANTHROPIC_LOG": "debug",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
    "ANTHROPIC_AUTH_TOKEN": "ambient",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Evil: ambient\nanthropic-version: ambient\nanthropic-beta: ambient\n"
    "anthropic-workspace-id: ambient",
}


@pytest.fixture
async def openai() -> AsyncIterator[AgentsServer]:
    async with AgentsServer() as far:
        yield far


@pytest.fixture
async def claude() -> AsyncIterator[ManagedClaudeServer]:
    async with ManagedClaudeServer() as far:
        yield far


class Desk:
    """The application: one tool that counts what it did, and a store that can be looked into."""

    def __init__(self) -> None:
        self.acted: list[Any] = []
        self.store = MemoryAgentStore()

    async def resolve(self, names: tuple[str, ...], _: ResolutionContext) -> ResolvedTools:
        parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
        return ResolvedTools(
            tools=tuple(HostTool(name, "Tells the weather.", parameters, self.look) for name in names), fingerprint="1"
        )

    async def look(self, arguments: Any, _: Any) -> str:
        self.acted.append(dict(arguments))
        return "It rains."

    @asynccontextmanager
    async def session(self, far: AgentsServer | ManagedClaudeServer, **driver: Any) -> AsyncIterator[Session]:
        """A session with the tool, at either provider."""

        async def storage(_: str) -> AgentStore:
            return self.store

        made: Any
        if isinstance(far, AgentsServer):
            connectors = openai_managed.registry_of(far)
            made, options = openai_managed.driver_for(connectors, **driver), openai_managed.options_for(True)
        else:
            connectors = claude_managed.registry_for(far.base_url)
            made, options = claude_managed.driver_for(connectors, **driver), claude_managed.options_for()
        backend = LocalBackend(
            drivers=[made], storage=storage, connectors=connectors, durability="durable", resolve_tools=self.resolve
        )
        async with AgentRuntime(backend) as runtime:
            definition = openai_managed.DEFINITION.model_copy(update={"tools": ("look",)})
            yield await runtime.create_agent(definition).open_session(options)


async def _told(session: Session, words: str = "What is the weather?") -> tuple[AgentResult, str]:
    run = await session.run(words)
    events = [event.model_dump(mode="json") async for event in run.events()]
    result = await run.result()
    return result, json.dumps(events) + result.model_dump_json()


# ---------------------------------------------------------------------------- the environment


async def test_the_environment_adds_nothing_to_requests_and_the_key_is_in_no_log(
    openai: AgentsServer,
    claude: ManagedClaudeServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in EVIL.items():
        monkeypatch.setenv(name, value)
    caplog.set_level(logging.DEBUG)
    openai.always(openai_script.Use("look", {"city": "Rome"}), openai_script.Say("It rains."))
    claude.always(claude_script.Use("look", {"city": "Rome"}), claude_script.Say("It rains."))
    for far, key in ((openai, openai_managed.DEFAULT_KEY), (claude, DEFAULT_KEY)):
        desk = Desk()
        async with desk.session(far) as session:
            result, published = await _told(session)
            assert result.status == "completed"
            await session.detach()
        assert "ambient" not in "".join(request.raw_headers for request in far.requests)
        assert key not in published + caplog.text
    keys = {request.headers.get("idempotency-key", "") for request in openai.requests if request.method == "GET"}
    assert keys == {""}


# ---------------------------------------------------------------------------- a provider that says wait

YEAR_S = 31_536_000


async def _until(true: Any) -> None:
    async with asyncio.timeout(8.0):
        while not true():  # noqa: ASYNC110 - a server that is looked at from outside
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("on", ["events.create:tool_result", "sessions.retrieve", "events.create:cancel"])
async def test_a_stop_is_not_kept_waiting_by_what_openai_asks_for(openai: AgentsServer, on: str) -> None:
    openai.answer(openai_script.Use("look", {"city": "Rome"}), openai_script.Say("It rains."))
    if on == "events.create:cancel":
        openai.behave("waits")
    openai.fault(Answered(on, status=429, retry_after_s=25, after=3 if on == "sessions.retrieve" else 0))
    async with Desk().session(openai, patience=Patience(), looking=Patience(), reconnecting=Patience()) as session:
        run = await session.run("What is the weather?")
        if on != "events.create:cancel":
            await _until(lambda: openai.faults.happened)
        else:
            await _until(lambda: openai.counts()["inputs"])
        async with asyncio.timeout(8.0):
            await run.cancel()
            assert (await run.result()).status == "cancelled"
        assert openai.counts()["inputs"] == 1


@pytest.mark.parametrize("on", ["events.send:user.custom_tool_result", "events.list", "events.send:user.interrupt"])
async def test_a_stop_is_not_kept_waiting_by_what_anthropic_asks_for(claude: ManagedClaudeServer, on: str) -> None:
    claude.answer(claude_script.Use("look", {"city": "Rome"}), claude_script.Say("It rains."))
    if on == "events.send:user.interrupt":
        claude.behave("waits")
    seconds = 25 if on == "events.list" else YEAR_S
    claude.fault(Answered(on, status=429, retry_after_s=seconds, after=1 if on == "events.list" else 0))
    async with Desk().session(claude, patience=Patience(), looking=Patience()) as session:
        run = await session.run("What is the weather?")
        if on != "events.send:user.interrupt":
            await _until(lambda: claude.faults.happened)
        else:
            await _until(lambda: claude.counts()["inputs"])
        async with asyncio.timeout(8.0):
            await run.cancel()
            assert (await run.result()).status in ("cancelled", "completed")
        assert claude.counts()["inputs"] == 1


# ---------------------------------------------------------------------------- more than is read

SMALL = Bounds(answer_bytes=48 * 1024, event_bytes=48 * 1024)
"""So that more than this is quickly said."""


async def test_a_call_larger_than_openai_is_read_is_stopped_there(openai: AgentsServer) -> None:
    openai.answer(openai_script.Use("look", {"city": "R" * 60_000}), openai_script.Say("It rains."))
    desk = Desk()
    async with desk.session(openai, bounds=SMALL) as session:
        result, _ = await _told(session)
        assert result.error is not None
        assert (result.status, result.error.code) == ("failed", "ANSWER_TOO_LARGE")
        assert (openai.session().turns[0]["status"], openai.counts()["cancels"], desk.acted) == ("cancelled", 1, [])
        assert (await _told(session))[0].status == "completed"


async def test_a_call_larger_than_anthropic_is_read_is_stopped_there(claude: ManagedClaudeServer) -> None:
    claude.answer(claude_script.Use("look", {"city": "R" * 60_000}), claude_script.Say("It rains."))
    desk = Desk()
    async with desk.session(claude, bounds=SMALL) as session:
        result, _ = await _told(session)
        assert result.error is not None
        assert (result.status, result.error.code) == ("failed", "ANSWER_TOO_LARGE")
        assert (claude.counts()["interrupts"], claude.service.waiting, desk.acted) == (1, 0, [])
        again, _ = await _told(session)
        assert (again.status, claude.counts()["inputs"]) == ("failed", 1), "what cannot be followed is sent nothing"


async def test_many_events_larger_together_than_anthropic_is_read_are_read_one_by_one(
    claude: ManagedClaudeServer,
) -> None:
    claude.answer(*(claude_script.Say(f"{number}" * 30_000, pieces=1) for number in range(4)))
    async with Desk().session(claude, bounds=SMALL) as session:
        result, _ = await _told(session)
        assert (result.status, result.output_text) == ("completed", "3" * 30_000)
        assert (await _told(session))[0].status == "completed"


# ---------------------------------------------------------------------------- let go of in the middle


async def test_a_program_that_ends_while_an_input_is_on_its_way_leaves_nothing_waiting(openai: AgentsServer) -> None:
    openai.fault(Held("events.create:message"))
    before = asyncio.all_tasks()
    patient = Timeouts(connect_s=2.0, read_s=60.0, write_s=60.0)
    async with asyncio.timeout(20.0), Desk().session(openai, timeouts=patient) as session:
        await session.run("What is the weather?")
        await _until(lambda: openai.faults.happened)
    left = [task.get_name() for task in asyncio.all_tasks() - before if "openai" in task.get_name()]
    openai.let_go()
    assert left == []
