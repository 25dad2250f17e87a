"""A held call of the real Claude and Codex CLIs: paused, decided while none runs, executed once, told as a message."""

from typing import Any

import pytest

from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.drivers.base import AgentDriver
from runtime_host.loop.gateway import decision_request
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.loopback.claude_harness import DEFINITION, needs_claude, options_for, staged
from tests.loopback.codex_bench import bench_of
from tests.loopback.far_side import Say, Use


async def _held_and_decided(
    driver: AgentDriver, connectors: Any, model: Any, definition: AgentDefinition, options: SessionOptions, name: str
) -> None:
    plugin, store = LedgerPlugin(), MemoryAgentStore()
    driver.hold_wait_s = 0.0  # type: ignore[attr-defined]  # no wait for a person who comes later anyway

    async def storage(_: str) -> AgentStore:
        return store

    model.answer([Use(name, {"entry": "b"})], [Say("I wait for the message.")])
    backend = LocalBackend(drivers=[driver], storage=storage, connectors=connectors, plugins=[plugin])
    async with AgentRuntime(backend) as runtime:
        gateway = await runtime.gateway(definition.id)
        await gateway.mounts.add("ledger", "book", policy={"write": "approval"})
        session = await runtime.create_agent(definition).open_session(options)
        result = await (await session.run("Write it down.")).result()
        assert (result.status, result.output_text) == ("completed", "I wait for the message.")
        assert "paused" in model.told[0].text
        assert plugin.effects == []
        [held] = await gateway.pending()
        card = next(item for item in await session.items(0, 10) if item.kind == "tool")
        assert (card.about["operation"], card.about["decided"]) == (held.operation_id, "waiting")
        await session.detach()
        await gateway.decide(held.operation_id, approve=True, request_hash=held.request_hash, approver="p")
        words = await gateway.run_decided(held.operation_id)
        assert words is not None
        assert plugin.effects == [("write", "b")]
        session = await runtime.resume_session(session.reference(), context=options.context)
        model.answer([Say("It is written.")])
        for _ in range(2):
            run = await session.run(words, request_id=decision_request(held.operation_id))
            assert (await run.result()).output_text == "It is written."
        assert "write: b" in model.inputs[-1].text
        card = next(item for item in await session.items(0, 10) if item.kind == "tool")
        assert (card.state, card.about["decided"]) == ("complete", "approved")
        assert await gateway.undelivered() == ()
        assert plugin.effects == [("write", "b")]


@needs_claude
async def test_a_held_call_of_claude() -> None:
    async with staged() as stage:
        name = "mcp__host__book__write"
        await _held_and_decided(stage.driver(), stage.registry, stage.model, DEFINITION, options_for(), name)


@pytest.mark.needs("codex", "linux", "user-namespaces")
async def test_a_held_call_of_codex() -> None:
    async with bench_of() as bench:
        options = bench.options_for()
        await _held_and_decided(bench.driver(), bench.connectors, bench.model, bench.definition, options, "book__write")
