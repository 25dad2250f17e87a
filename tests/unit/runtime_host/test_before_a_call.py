"""What changes after a call was judged and before it is entered: nothing is done that was not looked at."""

from typing import Any

import msgspec
import pytest

from runtime_host.storage.rows import ApprovalRow, MountRow, OperationRow
from runtime_host.testing.ledger_plugin import LedgerPlugin
from runtime_host.tools.base import ToolCall, ToolContext
from tests.loopback.gate import CONTEXT, Bench, BenchSession


def call_of(session: BenchSession, entry: str = "one") -> ToolCall:
    return ToolCall("session_1", session.run_id, "c1", "book__write", {"entry": entry})


async def bench_with(**policy: Any) -> tuple[Bench, LedgerPlugin, BenchSession]:
    plugin = LedgerPlugin()
    bench = Bench(plugin)
    await bench.mounts.add("ledger", "book", policy=policy)
    return bench, plugin, await bench.session()


@pytest.mark.parametrize("policy", [{"write": "approval"}, {"tools": {"write": "approval"}}])
async def test_a_policy_that_asks_by_then_is_not_gone_round(policy: dict[str, Any]) -> None:
    bench, _, session = await bench_with()
    judged = await session.gate.judge(call_of(session), ToolContext(CONTEXT), parks=True)
    assert judged.kind == "run"
    await bench.mounts.edit("book", policy=policy)
    assert not await bench.store.transact(lambda tx: session.gate.claim(tx, judged.operation_id))
    assert (await bench.operation(judged.operation_id)).status == "pending"


async def test_what_was_judged_is_begun_and_no_other_request_under_its_id() -> None:
    bench, plugin, session = await bench_with()
    judged = await session.gate.judge(call_of(session, "looked at"), ToolContext(CONTEXT), parks=True)
    other = await bench.session()
    assert await other.gate.judge(call_of(other, "another"), ToolContext(CONTEXT), parks=True) == judged
    assert not await bench.store.transact(lambda tx: session.gate.claim(tx, judged.operation_id))
    assert await bench.store.transact(lambda tx: other.gate.claim(tx, judged.operation_id))
    await other.gate.execute(judged.operation_id, call_of(other), ToolContext(CONTEXT))
    assert plugin.effects == [("write", "another")]


async def test_a_row_that_is_edited_after_the_claim_sends_no_credential() -> None:
    bench, plugin, session = await bench_with()
    await bench.mounts.edit("book", config={"allowed_hosts": ["a.example"]})
    await bench.mounts.attach("book", {"token": "a-good-token-0001"})
    judged = await session.gate.judge(call_of(session), ToolContext(CONTEXT), parks=True)
    assert await bench.store.transact(lambda tx: session.gate.claim(tx, judged.operation_id))

    def edit(tx: Any) -> None:
        tx.put_row(msgspec.structs.replace(tx.row(MountRow, "book"), public_config={"allowed_hosts": []}))

    await bench.store.transact(edit)
    report = await session.gate.execute(judged.operation_id, call_of(session), ToolContext(CONTEXT))
    assert not report.success
    assert "allowed_hosts" in str(report.payload)
    assert plugin.effects == []
    await bench.store.transact(lambda tx: session.gate.settle(tx, judged.operation_id, report))
    operation = await bench.operation(judged.operation_id)
    assert (operation.status, operation.error_code) == ("failed", "allowed_hosts_required")


async def test_a_decision_that_comes_as_a_harness_is_told_to_wait_is_not_lost() -> None:
    bench, plugin, session = await bench_with(write="approval")

    async def too_late(operation_id: str, timeout_s: float) -> bool:
        [waits] = await bench.gateway.pending()
        said = await bench.gateway.decide(operation_id, approve=True, request_hash=waits.request_hash, approver="p")
        assert said.state == "approved"
        return False

    session.gate.decided = too_late  # type: ignore[method-assign]  # decided after the time, before it is told
    delivery = await session.call("book__write", {"entry": "one"}, "c1", parks=False)
    assert delivery.payload == "write: one"
    assert plugin.effects == [("write", "one")]
    assert await bench.gateway.undelivered() == ()


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize(
    ("kind", "fields"),
    [(OperationRow, {"tool": "set"}), (OperationRow, {"args_hash": "0" * 64}), (ApprovalRow, {"tool": "set"})],
    ids=["tool", "arguments", "what is shown"],
)
async def test_another_call_in_the_place_of_the_one_that_was_shown_is_not_made(
    kind: Any, fields: dict[str, str], decided: bool
) -> None:
    bench, plugin, session = await bench_with(write="approval")
    operation_id = await session.held("book__write", {"entry": "one"}, "c1")
    [waits] = await bench.gateway.pending()

    async def decide() -> str:
        shown = waits.request_hash
        return (await bench.gateway.decide(operation_id, approve=True, request_hash=shown, approver="p")).state

    if decided:
        assert await decide() == "approved"
    row = await bench.store.read(lambda tx: tx.row(kind, operation_id))
    assert row is not None
    await bench.store.transact(lambda tx: tx.put_row(msgspec.structs.replace(row, **fields)))
    if not decided:
        assert await decide() == "stale_request"
    delivery = await session.call("book__write", {"entry": "one"}, "c1")
    assert "not what was asked" in str(delivery.error)
    assert plugin.effects == []
