"""Decisions at the edge: too late without anybody having looked, a rule for another call, two who tell the outcome."""

import asyncio
from typing import Any

import msgspec
import pytest

from runtime_host.loop.mounts import MountRefusedError
from runtime_host.loop.plugins.base import Rule
from runtime_host.storage.base import AgentTx
from runtime_host.storage.rows import ApprovalRow
from runtime_host.testing.ledger_plugin import LedgerPlugin, waiting
from tests.loopback.gate import Bench


async def bench_with(plugin: LedgerPlugin, **gateway: Any) -> Bench:
    bench = Bench(plugin, **gateway)
    await bench.mounts.add("ledger", "book", policy={"write": "approval"})
    return bench


async def test_a_call_that_is_judged_anew_after_its_time_is_a_no_though_nobody_looked() -> None:
    plugin = LedgerPlugin()
    bench = await bench_with(plugin, hold_ms=1000)
    session = await bench.session()
    operation_id = await session.held("book__write", {"entry": "one"}, "c1")
    bench.now[0] += 1000
    delivery = await session.call("book__write", {"entry": "one"}, "c1")
    assert "Nobody decided in time" in str(delivery.error)
    assert (await bench.operation(operation_id)).status == "cancelled"
    assert plugin.effects == []


async def test_a_rule_that_is_not_about_this_call_decides_nothing() -> None:
    plugin = LedgerPlugin()
    bench = await bench_with(plugin)
    operation_id = await (await bench.session()).held("book__write", {"entry": "notes of may"})
    [held] = await bench.gateway.pending()
    other = Rule("write", {"entry": {"starts": "notebook"}})
    with pytest.raises(MountRefusedError, match="does not hold for this call"):
        await bench.gateway.decide(
            operation_id, approve=True, request_hash=held.request_hash, approver="p", always=other
        )
    assert await bench.gateway.pending() == (held,)
    assert (await bench.mounts.all())[0].policy == {"write": "approval"}


async def test_who_asks_for_an_outcome_while_the_call_goes_on_is_told_how_it_ended() -> None:
    go_on = asyncio.Event()
    plugin = LedgerPlugin(does=waiting(go_on))
    bench = await bench_with(plugin)
    delivery = await (await bench.session()).call("book__write", {"entry": "one"}, "c1", parks=False)
    operation_id = delivery.about["operation"]
    [held] = await bench.gateway.pending()
    await bench.gateway.decide(operation_id, approve=True, request_hash=held.request_hash, approver="p")
    first = asyncio.ensure_future(bench.gateway.run_decided(operation_id))
    await plugin.entered.wait()
    second = asyncio.ensure_future(bench.gateway.run_decided(operation_id))
    await asyncio.wait({second}, timeout=0.05)
    go_on.set()
    words = await asyncio.gather(first, second)
    assert words[0] == words[1]
    assert "write: one" in str(words[0])
    assert (await bench.operation(operation_id)).status == "succeeded"
    assert plugin.effects == [("write", "one")]


async def test_a_decision_about_something_else_saves_no_rule() -> None:
    plugin = LedgerPlugin()
    bench = await bench_with(plugin)
    operation_id = await (await bench.session()).held("book__write", {"entry": "notes of may"})
    [held] = await bench.gateway.pending()
    said = await bench.gateway.decide(
        operation_id, approve=True, request_hash="0" * 64, approver="p", always=held.exact
    )
    assert said.state == "stale_request"
    assert (await bench.mounts.all())[0].policy == {"write": "approval"}
    no = await bench.gateway.decide(
        operation_id, approve=False, request_hash=held.request_hash, approver="p", always=held.exact
    )
    assert no.state == "denied"
    assert (await bench.mounts.all())[0].policy == {"write": "approval"}


async def test_a_credential_in_what_a_person_says_to_a_no_is_told_to_nobody() -> None:
    plugin = LedgerPlugin()
    bench = await bench_with(plugin)
    await bench.mounts.edit("book", config={"allowed_hosts": ["a.example"]})
    await bench.mounts.attach("book", {"token": "a-good-token-0001"})
    session = await bench.session()
    operation_id = await session.held("book__write", {"entry": "one"}, "c1")
    [held] = await bench.gateway.pending()
    note = "not with a-good-token-0001"
    await bench.gateway.decide(operation_id, approve=False, request_hash=held.request_hash, approver="p", note=note)
    delivery = await session.call("book__write", {"entry": "one"}, "c1")
    assert "not with [secret book]" in str(delivery.error)
    assert "a-good-token" not in str([delivery, *await bench.approvals(), *await bench.operations()])


@pytest.mark.parametrize("offered", [Rule("write", {}), Rule("set", {"entry": {"starts": "o"}}), "raises"])
async def test_a_plugin_cannot_offer_a_rule_for_everything_or_for_another_tool(
    offered: Rule | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def widest(*_: Any) -> Any:
        if isinstance(offered, str):
            raise ValueError(offered)
        return offered

    plugin = LedgerPlugin()
    monkeypatch.setattr(plugin, "widest", widest)
    bench = await bench_with(plugin)
    operation_id = await (await bench.session()).held("book__write", {"entry": "one"})
    [held] = await bench.gateway.pending()
    assert held.widest is None
    for always in (Rule("write", {}), Rule("set", {"entry": {"starts": "o"}})):
        with pytest.raises(MountRefusedError):
            await bench.gateway.decide(
                operation_id, approve=True, request_hash=held.request_hash, approver="p", always=always
            )
    assert (await bench.approvals())[0].state == "pending"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_request_whose_record_was_changed_is_not_executed(when: str) -> None:
    plugin = LedgerPlugin()
    bench = await bench_with(plugin)
    session = await bench.session()
    operation_id = await session.held("book__write", {"entry": "shown"}, "c1")
    [held] = await bench.gateway.pending()

    def change(tx: AgentTx) -> None:
        approval = tx.row(ApprovalRow, operation_id)
        assert approval is not None
        request = {**approval.request, "args": {"entry": "never shown"}}
        tx.put_row(msgspec.structs.replace(approval, request=request))

    if when == "before":
        await bench.store.transact(change)
    said = await bench.gateway.decide(operation_id, approve=True, request_hash=held.request_hash, approver="p")
    assert said.state == ("stale_request" if when == "before" else "approved")
    if when == "after":
        await bench.store.transact(change)
    assert not (await session.call("book__write", {"entry": "shown"}, "c1")).success
    assert plugin.effects == []


async def test_a_credential_that_was_written_anew_makes_what_waits_another_request() -> None:
    plugin = LedgerPlugin()
    bench = await bench_with(plugin)
    await bench.mounts.edit("book", config={"allowed_hosts": ["a.example"]})
    await bench.mounts.attach("book", {"token": "a-good-token-0001"}, "Ada")
    session = await bench.session()
    operation_id = await session.held("book__write", {"entry": "one"}, "c1")
    [held] = await bench.gateway.pending()
    bench.now[0] += 1
    await bench.mounts.attach("book", {"token": "another-token-0002"}, "Ada")
    [shown] = await bench.gateway.pending()
    assert "credential" in shown.stale
    said = await bench.gateway.decide(operation_id, approve=True, request_hash=held.request_hash, approver="p")
    assert said.state == "stale_request"
    assert plugin.effects == []
