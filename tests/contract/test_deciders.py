"""Many who decide at once over many held calls: each is executed once or not at all, and all are distinct."""

import asyncio
from pathlib import Path

import pytest

from runtime_host.storage.rows import OperationRow
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing.ledger_plugin import LedgerPlugin
from runtime_host.tools.base import CallHeldError
from tests.loopback.gate import Bench

DECIDERS = 8


@pytest.mark.parametrize("calls", [12, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("parks", [True, False])
async def test_each_held_call_is_executed_once_however_many_decide_and_take_it_up(
    tmp_path: Path, calls: int, parks: bool
) -> None:
    plugin = LedgerPlugin()
    store = await open_agent_store(tmp_path / "agent.sqlite3", profile="p", agent="agent")
    try:
        bench = Bench(plugin, store=store)
        await bench.mounts.add("ledger", "book", policy={"write": "approval"})
        session = await bench.session()
        asked = tuple(("book__write", {"entry": f"entry {number}"}, f"c{number}") for number in range(calls))
        if parks:
            with pytest.raises(CallHeldError):
                await session.calls(*asked)
        else:
            await session.calls(*asked, parks=False)
        waiting = await bench.gateway.pending()
        assert len(waiting) == calls

        async def decider(number: int) -> int:
            """Decides every call, and takes up what it may, as often as it can."""
            won = 0
            for held in waiting[number:] + waiting[:number]:
                said = await bench.gateway.decide(
                    held.operation_id, approve=True, request_hash=held.request_hash, approver=f"p{number}"
                )
                won += said.state == "approved"
                if not parks:
                    await bench.gateway.run_decided(held.operation_id)
            return won

        won = await asyncio.gather(*map(decider, range(DECIDERS)))
        assert sum(won) == calls
        if parks:
            await session.calls(*asked)
        assert len(plugin.effects) == len(set(plugin.effects)) == calls
        assert len({call.key for call in plugin.seen}) == calls
        rows = await store.read(lambda tx: tx.rows(OperationRow))
        assert [row.status for row in rows] == ["succeeded"] * calls
    finally:
        await store.close()
