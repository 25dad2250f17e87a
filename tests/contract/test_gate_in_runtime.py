"""Mounted tools through whole runs: `native.agent` waits for a person, another harness expects a message."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from runtime_host.definitions import AgentDefinition, SessionOptions, TrustedContext
from runtime_host.drivers.native import NativeDriver
from runtime_host.loop.gateway import Gateway, decision_request
from runtime_host.loop.plugins.base import FileChange, PluginAnswer, PluginCall
from runtime_host.policy import CHAT
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import OperationRow
from runtime_host.testing import Script, ScriptedDriver, reply
from runtime_host.testing.ledger_plugin import LedgerPlugin
from runtime_host.testing.scripted import Call
from runtime_host.tools.base import ToolRequest
from tests.loopback.chat_server import Answer, ChatServer, behaviour
from tests.loopback.fixtures import chat_server
from tests.loopback.native import AT_ONCE, QUICK, options_for, registry_for

__all__ = ["chat_server"]

AGENT = AgentDefinition(id="assistant", instructions="Answer in one sentence.")


@behaviour("writes-down")
async def writes_down(answer: Answer) -> None:
    answer.start_stream()
    if told := answer.told():
        await answer.text(f"It says: {told[-1]}")
        await answer.finish()
        return
    await answer.call("call_1", "book__look", '{"entry": "a"}', 0)
    await answer.call("call_2", "book__write", '{"entry": "b"}', 1)
    await answer.finish("tool_calls")


@asynccontextmanager
async def runtime_on(server: ChatServer, store: AgentStore, plugin: LedgerPlugin) -> AsyncIterator[AgentRuntime]:
    server.behaviour = "by-model"
    registry = registry_for(server.base_url, vendor=server.vendor)

    async def storage(_: str) -> AgentStore:
        return store

    driver = NativeDriver(registry, timeouts=QUICK, retries=AT_ONCE)
    backend = LocalBackend(drivers=[driver], storage=storage, connectors=registry, plugins=[plugin])
    async with AgentRuntime(backend) as runtime:
        yield runtime


async def decide(gateway: Gateway, *, approve: bool) -> None:
    [held] = await gateway.pending()
    await gateway.decide(held.operation_id, approve=approve, request_hash=held.request_hash, approver="p")


async def test_a_plain_chat_is_offered_nothing_and_a_mount_is_there_from_the_next_run_on(
    chat_server: ChatServer,
) -> None:
    plugin = LedgerPlugin()
    async with runtime_on(chat_server, MemoryAgentStore(), plugin) as runtime:
        session = await runtime.create_agent(AGENT).open_session(options_for(model="ok"))
        await (await session.run("Hello")).result()
        assert "tools" not in chat_server.requests[-1].json()
        gateway = await runtime.gateway("assistant")
        await gateway.mounts.add("ledger", "book")
        await (await session.run("Hello again")).result()
        offered = [tool["function"]["name"] for tool in chat_server.requests[-1].json()["tools"]]
        assert offered == ["book__look", "book__write", "book__set", "book__ask"]
        await gateway.mounts.rename("book", "diary")
        await (await session.run("And now")).result()
        assert chat_server.requests[-1].json()["tools"][0]["function"]["name"] == "diary__look"


async def test_a_held_call_parks_the_run_and_goes_on_after_a_restart_with_the_decision(
    chat_server: ChatServer,
) -> None:
    plugin, store = LedgerPlugin(), MemoryAgentStore()
    async with runtime_on(chat_server, store, plugin) as runtime:
        gateway = await runtime.gateway("assistant")
        await gateway.mounts.add("ledger", "book", policy={"write": "approval"})
        session = await runtime.create_agent(AGENT).open_session(options_for(model="writes-down"))
        run = await session.run("Write it down")
        assert not await run.wait_settled_or_parked()
        session_id, run_id, asked = session.session_id, run.run_id, len(chat_server.requests)
        card = (await session.items(0, 10))[-1]
        assert card.about["decided"] == "waiting"
        assert card.about["effect"] == "Writes “b” into book."
        assert plugin.effects == [("look", "a")]
    async with runtime_on(chat_server, store, plugin) as runtime:
        assert await runtime.recover("assistant") == []
        # Nothing is asked of a model while a person has not decided.
        assert len(chat_server.requests) == asked
        await decide(await runtime.gateway("assistant"), approve=True)
        taken = await runtime.take_up("assistant", session_id, run_id, context=TrustedContext())
        async with asyncio.timeout(20):
            result = await taken.result()
        assert result.output_text == "It says: write: b"
        assert plugin.effects == [("look", "a"), ("write", "b")]
        [sent] = chat_server.requests[asked:]
        told = [message["content"] for message in sent.json()["messages"] if message["role"] == "tool"]
        assert told == ["look: a", "write: b"]
        session = await _resumed(runtime, session_id)
        cards = [item for item in await session.items(0, 20) if item.kind == "tool"]
        assert [(item.state, item.about.get("decided", "")) for item in cards] == [
            ("complete", ""),
            ("complete", "approved"),
        ]


async def test_a_denial_reaches_the_model_as_one(chat_server: ChatServer) -> None:
    plugin = LedgerPlugin()
    async with runtime_on(chat_server, MemoryAgentStore(), plugin) as runtime:
        gateway = await runtime.gateway("assistant")
        await gateway.mounts.add("ledger", "book", policy={"write": "approval"})
        session = await runtime.create_agent(AGENT).open_session(options_for(model="writes-down"))
        run = await session.run("Write it down")
        await run.wait_settled_or_parked()
        await decide(gateway, approve=False)
        taken = await runtime.take_up("assistant", session.session_id, run.run_id, context=TrustedContext())
        result = await taken.result()
        assert "said no" in result.output_text
        assert plugin.effects == [("look", "a")]


async def test_a_stopped_run_takes_its_question_along(chat_server: ChatServer) -> None:
    plugin = LedgerPlugin()
    async with runtime_on(chat_server, MemoryAgentStore(), plugin) as runtime:
        gateway = await runtime.gateway("assistant")
        await gateway.mounts.add("ledger", "book", policy={"write": "approval"})
        session = await runtime.create_agent(AGENT).open_session(options_for(model="writes-down"))
        run = await session.run("Write it down")
        await run.wait_settled_or_parked()
        [held] = await gateway.pending()
        await run.cancel()
        said = await gateway.decide(held.operation_id, approve=True, request_hash=held.request_hash, approver="p")
        assert said.state in ("already_decided", "expired")
        assert await gateway.pending() == ()
        assert plugin.effects == [("look", "a")]


async def test_another_harness_is_told_to_expect_a_message_and_gets_it() -> None:
    plugin, store = LedgerPlugin(), MemoryAgentStore()
    request = ToolRequest("c1", "book__write", '{"entry": "b"}')
    driver = ScriptedDriver(lambda turn: Script([Call((request,)), *reply("ok")] if turn.tools else reply("heard")))
    driver.hold_wait_s = 0.0  # type: ignore[attr-defined]  # what a driver may say of itself

    async def storage(_: str) -> AgentStore:
        return store

    options = SessionOptions.model_validate(
        {
            "execution": {"driver": driver.driver_id, "connector": "c", "model": "m"},
            "context": {},
            "policy": CHAT.model_dump(),
        }
    )
    async with AgentRuntime(LocalBackend(drivers=[driver], storage=storage, plugins=[plugin])) as runtime:
        gateway = await runtime.gateway("assistant")
        await gateway.mounts.add("ledger", "book", policy={"write": "approval"})
        session = await runtime.create_agent(AGENT).open_session(options)
        result = await (await session.run("Write it down")).result()
        assert result.status == "completed"
        assert "paused" in str(driver.told[-1].payload)
        assert driver.openings[0].tools[0].name == "book__look"
        [held] = await gateway.pending()
        assert not held.parked
        assert await decided_of(session) == ("complete", "waiting")
        await decide(gateway, approve=True)
        assert await decided_of(session) == ("complete", "approved")
        [operation_id] = await gateway.undelivered()
        words = await gateway.run_decided(operation_id)
        assert words is not None
        assert "write: b" in words
        driver.scripts = [Script(reply("heard"))]
        for _ in range(2):
            await (await session.run(words, request_id=decision_request(operation_id))).result()
        assert driver.turns[-1].text == words
        assert len(driver.turns) == 2
        assert await gateway.undelivered() == ()
        assert plugin.effects == [("write", "b")]
        [operation] = await store.read(lambda tx: tx.rows(OperationRow))
        assert operation.status == "succeeded"


@pytest.mark.parametrize("how", ["denied", "expired", "stale"])
async def test_the_card_of_a_call_that_another_harness_was_told_is_paused_shows_what_became_of_it(how: str) -> None:
    plugin, store = LedgerPlugin(), MemoryAgentStore()
    driver = ScriptedDriver(lambda turn: Script([Call((ToolRequest("c1", "book__write", '{"entry": "b"}'),))]))
    driver.hold_wait_s = 0.0  # type: ignore[attr-defined]  # what a driver may say of itself

    async def storage(_: str) -> AgentStore:
        return store

    options = options_for().model_copy(
        update={"execution": options_for().execution.model_copy(update={"driver": driver.driver_id})}
    )
    async with AgentRuntime(LocalBackend(drivers=[driver], storage=storage, plugins=[plugin])) as runtime:
        gateway = await runtime.gateway("assistant")
        gateway.hold_ms = 0 if how == "expired" else None
        await gateway.mounts.add("ledger", "book", policy={"write": "approval"})
        session = await runtime.create_agent(AGENT).open_session(options)
        await (await session.run("Write it down")).result()
        if how == "expired":
            assert await gateway.pending() == ()
        elif how == "stale":
            [held] = await gateway.pending()
            await gateway.mounts.edit("book", config={"size": 5})
            await gateway.decide(held.operation_id, approve=True, request_hash=held.request_hash, approver="p")
        else:
            await decide(gateway, approve=False)
        assert await decided_of(session) == ("complete", how)


async def decided_of(session: Session) -> tuple[str, str]:
    [card] = [item for item in await session.items(0, 20) if item.kind == "tool"]
    return card.state, card.about["decided"]


async def test_the_result_of_a_run_that_waited_has_every_file_that_it_changed(chat_server: ChatServer) -> None:
    plugin = LedgerPlugin()
    changes = {
        "look": (FileChange("a.txt", "created", "+1\n"), FileChange("kept.txt", "modified", "-x\n+y\n")),
        "write": (FileChange("a.txt", "modified", "-1\n+2\n"), FileChange("c.txt", "deleted")),
    }
    answers = plugin.call

    async def call(asked: PluginCall) -> PluginAnswer:
        return (await answers(asked))._replace(changes=changes[asked.tool])

    plugin.call = call  # type: ignore[assignment, method-assign]  # it changes files too
    store = MemoryAgentStore()
    async with runtime_on(chat_server, store, plugin) as runtime:
        await (await runtime.gateway("assistant")).mounts.add("ledger", "book", policy={"write": "approval"})
        session = await runtime.create_agent(AGENT).open_session(options_for(model="writes-down"))
        run = await session.run("Write it down")
        assert not await run.wait_settled_or_parked()
    async with runtime_on(chat_server, store, plugin) as runtime:
        await decide(await runtime.gateway("assistant"), approve=True)
        taken = await runtime.take_up("assistant", session.session_id, run.run_id, context=TrustedContext())
        async with asyncio.timeout(20):
            result = await taken.result()
    assert [(each.path, each.change, each.patch) for each in result.artifacts] == [
        ("a.txt", "created", "-1\n+2\n"),
        ("kept.txt", "modified", "-x\n+y\n"),
        ("c.txt", "deleted", None),
    ]


async def _resumed(runtime: AgentRuntime, session_id: str) -> Session:
    opened = runtime.backend.open_session(session_id)
    assert opened is not None
    return opened[0]
