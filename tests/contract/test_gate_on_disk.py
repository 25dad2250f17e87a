"""Gated turns of `native.agent` on a real file, against servers of all three protocols, over ends of the host.

What a person has to decide is decided in one life of the program and carried out in the next.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runtime_host.definitions import AgentDefinition, TrustedContext
from runtime_host.drivers.native import NativeDriver
from runtime_host.run import Run
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session, SessionReference
from runtime_host.storage.base import AgentStore
from runtime_host.storage.rows import ApprovalRow, OperationRow
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.loopback.chat_server import Answer, Behaviour, ChatServer
from tests.loopback.messages_server import MessagesServer
from tests.loopback.native import AT_ONCE, QUICK, options_for, registry_for
from tests.loopback.responses_server import ResponsesServer

AGENT = AgentDefinition(id="assistant", instructions="Answer in one sentence.")
ME = TrustedContext()
PROTOCOLS = pytest.mark.parametrize("protocol", [ChatServer, ResponsesServer, MessagesServer])
Wish = tuple[str, str, Mapping[str, Any]]
"""A call that the model asks for: its id, the name and the arguments."""


@asynccontextmanager
async def model_that_asks(protocol: type[ChatServer], *replies: tuple[Wish, ...]) -> AsyncIterator[ChatServer]:
    """A server whose model asks for these calls, reply by reply, and then says what it was told last."""
    left = list(replies)

    async def asks(answer: Answer) -> None:
        answer.start_stream()
        if not left:
            await answer.text(f"It says: {answer.told()[-1]}")
            await answer.finish()
            return
        for index, (call_id, name, arguments) in enumerate(left.pop(0)):
            await answer.call(call_id, name, json.dumps(arguments), index)
        await answer.finish("tool_calls")

    class Asking(protocol):  # type: ignore[misc, valid-type]  # one of three
        @property
        def behaviours(self) -> dict[str, Behaviour]:
            return {**super().behaviours, "asks": asks}

    async with Asking(behaviour="asks") as server:
        yield server


class Life:
    """The program, from its start to its end, with the agent's file open."""

    def __init__(self, runtime: AgentRuntime, store: AgentStore) -> None:
        self.runtime = runtime
        self.store = store

    async def open(self) -> Session:
        return await self.runtime.create_agent(AGENT).open_session(options_for())

    async def resume(self) -> Session:
        [record] = await self.store.read(lambda tx: tx.sessions())
        known = SessionReference(
            session_id=record.session_id,
            agent_id="assistant",
            scope_digest=record.scope_digest,
            driver_id="native.agent",
        )
        return await self.runtime.resume_session(known, context=ME)

    async def decide(self, *, approve: bool, note: str = "") -> None:
        gateway = await self.runtime.gateway("assistant")
        [held] = await gateway.pending()
        await gateway.decide(
            held.operation_id, approve=approve, request_hash=held.request_hash, approver="Ada Lovelace", note=note
        )

    async def operations(self) -> dict[str, tuple[str, str]]:
        """Status and code of each call."""
        rows = await self.store.read(lambda tx: tx.rows(OperationRow))
        return {row.call_id: (row.status, row.error_code or "") for row in rows}


@asynccontextmanager
async def life(folder: Path, server: ChatServer, plugin: LedgerPlugin) -> AsyncIterator[Life]:
    registry = registry_for(server.base_url, vendor=server.vendor)
    store = await open_agent_store(folder / "agent.sqlite3", profile="p", agent="assistant")

    async def storage(_: str) -> AgentStore:
        return store

    driver = NativeDriver(registry, timeouts=QUICK, retries=AT_ONCE)
    backend = LocalBackend(drivers=[driver], storage=storage, connectors=registry, plugins=[plugin])
    try:
        async with AgentRuntime(backend) as runtime:
            yield Life(runtime, store)
    finally:
        await store.close()


async def parked(run: Run) -> str:
    assert not await run.wait_settled_or_parked()
    return run.run_id


@PROTOCOLS
async def test_what_was_agreed_to_is_done_once_in_the_next_life_and_a_no_of_the_policy_never(
    protocol: type[ChatServer], tmp_path: Path
) -> None:
    plugin = LedgerPlugin()
    wishes = (
        ("c1", "book__look", {"entry": "a"}),
        ("c2", "book__set", {"entry": "b", "confirm": True}),
        ("c3", "book__write", {"entry": "c"}),
    )
    async with model_that_asks(protocol, wishes) as server:
        async with life(tmp_path, server, plugin) as first:
            gateway = await first.runtime.gateway("assistant")
            await gateway.mounts.add("ledger", "book", policy={"write": "approval", "tools": {"set": "deny"}})
            await parked(await (await first.open()).run("Look, set and write."))
            [approval] = await first.store.read(lambda tx: tx.rows(ApprovalRow))
            assert approval.request == {"tool": "write", "args": {"entry": "c"}, "held_by": "policy"}
            assert (await first.operations())["c2"] == ("rejected", "policy_denied")
            assert (plugin.effects, len(server.requests)) == ([("look", "a")], 1)
            # Agreed to, and the program ends before anything came of that.
            await first.decide(approve=True)
        async with life(tmp_path, server, plugin) as second:
            [recovered] = await second.runtime.recover("assistant")
            assert recovered.run is not None
            result = await recovered.run.result()
            assert await second.runtime.recover("assistant") == []
            assert {call: status for call, (status, _) in (await second.operations()).items()} == {
                "c1": "succeeded",
                "c2": "rejected",
                "c3": "succeeded",
            }
        assert result.output_text == "It says: write: c"
        assert plugin.effects == [("look", "a"), ("write", "c")]
        [_, sent] = [request.body.decode() for request in server.requests]
    assert sent.index("look: a") < sent.index("does not allow") < sent.index("write: c")


@PROTOCOLS
async def test_a_no_is_the_only_result_of_its_call_and_names_nobody(protocol: type[ChatServer], tmp_path: Path) -> None:
    plugin = LedgerPlugin()
    async with model_that_asks(protocol, (("c1", "book__write", {"entry": "a", "confirm": True}),)) as server:
        async with life(tmp_path, server, plugin) as first:
            await (await first.runtime.gateway("assistant")).mounts.add("ledger", "book")
            run_id = await parked(await (await first.open()).run("Write, but ask me."))
        async with life(tmp_path, server, plugin) as second:
            assert await second.runtime.recover("assistant") == []
            # A start asks no model while a person has not decided.
            assert len(server.requests) == 1
            [approval] = await second.store.read(lambda tx: tx.rows(ApprovalRow))
            assert (approval.held_by, approval.request["args"]) == ("agent", {"entry": "a"})
            await second.decide(approve=False, note="not today")
            run = await second.runtime.take_up("assistant", approval.session_id, run_id, context=ME)
            result = await run.result()
            assert await second.operations() == {"c1": ("cancelled", "approval_denied")}
        assert "said no" in result.output_text
        assert "not today" in result.output_text
        assert plugin.effects == []
        sent = server.requests[1].body.decode()
    assert sent.count("The person was asked about this call") == 1
    assert "Ada" not in sent


class Older(LedgerPlugin):
    """Before what it writes with was called otherwise."""

    look, write, *_ = LedgerPlugin.tools
    tools = (look, write._replace(name="note"))  # type: ignore[assignment]  # two of its four
    retired: Mapping[str, str | None] = {}


@PROTOCOLS
async def test_an_old_session_goes_on_with_other_names_and_another_model(
    protocol: type[ChatServer], tmp_path: Path
) -> None:
    older, newer = Older(), LedgerPlugin(version="2")
    replies = (
        (("c1", "book__note", {"entry": "a"}),),
        (("c2", "book__note", {"entry": "b"}),),
        (("c3", "diary__note", {"entry": "b"}),),
        (("c4", "diary__write", {"entry": "b"}),),
    )
    async with model_that_asks(protocol, *replies) as server:
        async with life(tmp_path, server, older) as first:
            await (await first.runtime.gateway("assistant")).mounts.add("ledger", "book")
            session = await first.open()
            # It asks once and answers; the other wishes are of the next life.
            server.script = ["asks", "ok"]
            await (await session.run("Note a.")).result()
            before = await session.items(0, 20)
        async with life(tmp_path, server, newer) as second:
            mounts = (await second.runtime.gateway("assistant")).mounts
            await mounts.take_over("book")
            await mounts.rename("book", "diary")
            session = await second.resume()
            result = await (await session.run("Note b.", model="another-model")).result()
            assert result.status == "completed"
            assert result.output_text == "It says: write: b"
            assert (await session.items(0, len(before))) == before
        asked = [json.loads(request.body) for request in server.requests]
        last = server.requests[-1].body.decode()
    assert [each["model"] for each in asked[2:]] == ["another-model"] * 4
    assert (older.effects, newer.effects) == ([("note", "a")], [("write", "b")])
    # What was called by its old name is told so once, and the call that was made under it stays as it was made.
    assert last.count("It is called diary__write now") == 1
    assert last.count("There is no tool book__note") == 1
    assert last.index("note: a") < last.index("There is no tool book__note") < last.index("It is called diary__write")
