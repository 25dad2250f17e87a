"""Stores on a disk that is slow to sync, or fails to."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime_host.storage.sqlite import open_agent_store

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "gcc")]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("shim") / "sync_shim.so"
    source = Path(__file__).with_name("sync_shim.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=60)
    return library


def told(shim: Path, mode: str, path: Path, argument: str = "", **variables: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.process.storage_child", mode, str(path), argument],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(shim), **variables},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.splitlines()


async def kept(path: Path) -> list[str]:
    store = await open_agent_store(path, profile="p", agent="a")
    try:
        return [head.item_id for head in await store.read(lambda tx: tx.items("s", 0, 1_000, 0))]
    finally:
        await store.close()


def test_failed_sync_poisons_the_store(shim: Path, tmp_path: Path) -> None:
    """Fault: fsync reports EIO once, then succeeds without the data (the kernel forgot the pages)."""
    path, switch = tmp_path / "agent.sqlite3", tmp_path / "switch"
    lines = told(shim, "fail_syncs", path, str(switch), REMUDA_SYNC_FAILS_IF=str(switch))
    assert lines == ["ack before", *["refused STORAGE_FAILED"] * 3, "done"]
    # Opened from disk: what was acknowledged, perhaps what was not, and nothing that was asked for after.
    assert asyncio.run(kept(path)) in (["before"], ["before", "during"])


def test_slow_sync_leaves_the_event_loop_alone(shim: Path, tmp_path: Path) -> None:
    """Fault: each sync takes 100 ms longer. A loop that waited itself would turn once or twice meanwhile."""
    (line,) = told(shim, "count_turns", tmp_path / "agent.sqlite3", REMUDA_SYNC_DELAY_MS="100")
    assert int(line.removeprefix("turns ")) > 50
