"""What lies on the disk of a result that was put aside: from which length on, and without what is sealed."""

from pathlib import Path
from typing import Any

import pytest

from runtime_host.loop.artifact_store import shelves
from runtime_host.loop.parking import TOLD_BYTES, is_small
from runtime_host.loop.plugins.artifacts import ArtifactsPlugin
from runtime_host.loop.plugins.base import PluginCall
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.loopback.gate import Bench

TOKEN = "a-good-token-0001"


@pytest.mark.parametrize(("over", "told_whole"), [(0, True), (1, False)])
def test_more_than_four_kibibytes_are_long(over: int, told_whole: bool) -> None:
    assert TOLD_BYTES == 4096
    assert is_small(b"x" * (TOLD_BYTES + over)) is told_whole


async def test_a_credential_in_a_long_result_is_not_put_aside_with_it(tmp_path: Path) -> None:
    store: AgentStore = MemoryAgentStore()

    async def opened() -> AgentStore:
        return store

    async def echoes(call: PluginCall) -> Any:
        assert call.credential is not None
        return {"text": f"Bearer {call.credential.token} " * 400}

    shelf = shelves(lambda _: tmp_path / "kept")("agent", opened)
    bench = Bench(LedgerPlugin(does=echoes), ArtifactsPlugin(), store=store, shelf=shelf)
    await bench.mounts.add("ledger", "book", config={"allowed_hosts": ["a.example"]})
    await bench.mounts.add("artifacts", "kept")
    await bench.mounts.attach("book", {"token": TOKEN})
    told = (await (await bench.session()).call("book__write", {"entry": "one"})).payload
    assert "parked" in told
    [file] = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert b"Bearer [secret book]" in file.read_bytes()
    assert TOKEN.encode() not in file.read_bytes()
    assert TOKEN not in str(told)
