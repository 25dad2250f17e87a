"""One turn with three tools, a read, a write and one that a person approves, as lives of a program that may be ended.

`life` is the program from its first line to its last; told again after it was ended, it goes on. What the tools did is
told to a `Far` side that outlives it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from runtime_host.definitions import AgentDefinition, TrustedContext
from runtime_host.drivers.native import NativeDriver
from runtime_host.loop.gateway import Gateway
from runtime_host.loop.plugins.base import PluginCall
from runtime_host.results import AgentResult
from runtime_host.run import Run, Windows
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session, SessionReference
from runtime_host.storage.base import AgentStore, AgentTx, RunRecord, SessionRecord, ToolCallRecord
from runtime_host.storage.rows import ApprovalRow, OperationRow
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.loopback.chat_server import Answer, ChatServer, behaviour
from tests.loopback.native import AT_ONCE, QUICK, options_for, registry_for

AGENT = AgentDefinition(id="assistant", instructions="Answer in one sentence.")
ME = TrustedContext()
ASKED = "Look, set and write."
TOOLS = {"call_1": ("book", "look"), "call_2": ("book", "write"), "call_3": ("desk", "write")}
"""What the model asks for: of which mount, and which of its tools. Writes at the desk are approved by a person."""


@behaviour("three-tools")
async def three_tools(answer: Answer) -> None:
    answer.start_stream()
    if told := answer.told():
        await answer.text("It says: " + " | ".join(told))
        await answer.finish()
        return
    await answer.text("Let me.")
    for index, (call_id, (alias, tool)) in enumerate(TOOLS.items()):
        await answer.call(call_id, f"{alias}__{tool}", f'{{"entry": "{call_id}"}}', index)
    await answer.finish("tool_calls")


def driver_for(server: ChatServer) -> NativeDriver:
    return NativeDriver(registry_for(server.base_url), timeouts=QUICK, retries=AT_ONCE)


async def life(
    store: AgentStore,
    driver: NativeDriver,
    does: Callable[[PluginCall], Awaitable[Any]],
    *,
    doomed: bool = False,
) -> AgentResult:
    """The program: finds or begins the turn, decides what is held, and has its result. `doomed`: it is not closed."""

    async def storage(_: str) -> AgentStore:
        return store

    backend = LocalBackend(
        drivers=[driver], storage=storage, plugins=[LedgerPlugin(does=does)], windows=Windows(checkpoint_s=0.02)
    )
    runtime = AgentRuntime(backend)
    try:
        return await _live(runtime, store)
    finally:
        if not doomed:
            await runtime.aclose()


async def _live(runtime: AgentRuntime, store: AgentStore) -> AgentResult:
    gateway = await runtime.gateway("assistant")
    known = {mount.alias for mount in await gateway.mounts.all()}
    for alias, policy in (("book", {}), ("desk", {"write": "approval"})):
        if alias not in known:
            await gateway.mounts.add("ledger", alias, policy=policy)
    await runtime.recover("assistant")
    session = await _session(runtime, store)
    run: Run = await session.find_request("once") or await session.run(ASKED, request_id="once")
    while not await run.wait_settled_or_parked():
        await _approve(gateway)
        run = await runtime.take_up("assistant", session.session_id, run.run_id, context=ME)
    return await run.result()


async def _session(runtime: AgentRuntime, store: AgentStore) -> Session:
    for record in await store.read(lambda tx: tx.sessions()):
        return await runtime.resume_session(reference_of(record), context=ME)
    return await runtime.create_agent(AGENT).open_session(options_for(model="three-tools"))


async def _approve(gateway: Gateway) -> None:
    for held in await gateway.pending():
        await gateway.decide(held.operation_id, approve=True, request_hash=held.request_hash, approver="p")


def reference_of(record: SessionRecord) -> SessionReference:
    return SessionReference(
        session_id=record.session_id,
        agent_id="assistant",
        scope_digest=record.scope_digest,
        driver_id="native.agent",
    )


async def check(store: AgentStore, server: ChatServer, result: AgentResult, effects: list[str], killed_at: str) -> None:
    """What has to hold after the last life, wherever the earlier ones were ended."""
    assert result.status == "completed", (killed_at, result.error)
    done = Counter(effects)
    assert max(done["call_2"], done["call_3"]) <= 1, f"{killed_at}: an effect twice: {done}"

    def read(tx: AgentTx) -> tuple[list[RunRecord], list[ToolCallRecord], list[OperationRow], list[Any], list[str]]:
        [session] = tx.sessions()
        runs = tx.runs(session.session_id)
        items = tx.items(session.session_id, 0, 100, 2000)
        return (
            runs,
            tx.tool_calls(runs[0].run_id),
            tx.rows(OperationRow, session_id=session.session_id),
            items,
            [row.state for row in tx.rows(ApprovalRow, session_id=session.session_id)],
        )

    runs, calls, operations, items, approvals = await store.read(read)
    # One message, one run, one call of each kind, each told once; nothing is open any more.
    assert [run.phase for run in runs] == ["completed"], killed_at
    assert [(call.call_id, call.phase) for call in calls] == [(each, "delivered") for each in TOOLS], killed_at
    assert [item.text for item in items if item.kind == "user"] == [ASKED], killed_at
    assert [item for item in items if item.state == "open"] == [], killed_at
    assert approvals == ["approved"], (killed_at, approvals)
    last = [message for message in server.requests[-1].json()["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in last] == list(TOOLS), killed_at
    for message in last:
        call_id, told = message["tool_call_id"], message["content"]
        alias, tool = TOOLS[call_id]
        [operation] = [each for each in operations if each.call_id == call_id]
        assert (operation.mount_alias, operation.tool) == (alias, tool)
        if operation.status == "succeeded":
            assert done[call_id] >= 1, f"{killed_at}: {call_id} is said to be done and was not"
            assert told == f"{tool}: {call_id}"
        elif tool == "look":
            assert "Nothing was changed" in told, (killed_at, message)
        else:
            # Perhaps done: the model and the person are told that it is not known, and it is not done again.
            assert operation.status == "unknown", (killed_at, operation)
            assert "not known" in told, (killed_at, message)
            card = next(item for item in items if item.kind == "tool" and item.about.get("call") == call_id)
            assert "not known" in card.text + card.detail, (killed_at, card)
    again = [item for item in items if item.code == "ASKED_AGAIN" and item.kind == "notice"]
    assert len(server.requests) <= 2 + len(again), f"{killed_at}: asked {len(server.requests)} times, {len(again)} said"
