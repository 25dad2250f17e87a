"""A program that is killed while a file goes out or comes in: what the next one finds, does and says."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runtime_host.definitions import TrustedContext
from runtime_host.errors import AgentUnresolvedEffectError
from runtime_host.session import SessionReference
from runtime_host.storage.sqlite import open_agent_store
from tests.loopback.agents import script as agents
from tests.loopback.managed_claude import script as claude
from tests.loopback.managed_claude.faults import Held, Partly
from tests.loopback.transfers import KINDS, Bench, KindName
from tests.unit.runtime_host.stage import until

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]


@asynccontextmanager
async def killed(name: KindName, far: Any, folder: Path, store: Path, way: str, when: Any) -> AsyncIterator[Bench]:
    """What is there after a program was killed once `when` was so: a bench, with its session at `reference`."""
    words = ["-m", "tests.process.file_mover", name, far.base_url, str(folder), str(store), way]
    program = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    try:
        assert program.stdout is not None
        said = await asyncio.wait_for(program.stdout.readline(), 60)
        async with asyncio.timeout(20):
            await until(when)
    finally:
        program.kill()
        await program.wait()
    far.let_go()
    kept = await open_agent_store(store, profile="mover", agent="assistant")
    bench = Bench(name, far, folder, kept)
    bench.reference = SessionReference.model_validate(json.loads(said))
    try:
        yield bench
    finally:
        await bench.runtime.aclose()
        await kept.close()


@pytest.mark.parametrize("name", ["openai", "claude"])
async def test_a_file_that_was_coming_in_is_gone_after_the_next_start(name: KindName, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    async with KINDS[name].server() as far:
        content = "x" * 3_000_000
        if name == "openai":
            far.answer(agents.WriteFile("/workspace/outputs/out.txt", content), agents.Say("Done."))
        else:
            far.service.late_looks = 0
            far.answer(claude.WriteFile("out.txt", content), claude.Say("Done."))
        far.fault(Partly(KINDS[name].content, size_bytes=2_500_000, then="hold"))

        def half_is_here() -> bool:
            return any(each.stat().st_size > 0 for each in folder.iterdir())

        async with killed(name, far, folder, tmp_path / "agent.sqlite3", "download", half_is_here) as bench:
            assert [each.startswith(".remuda-") for each in bench.here()] == [True]
            await bench.runtime.recover("assistant")
            assert bench.here() == []
            session = await bench.runtime.resume_session(bench.reference, context=TrustedContext())
            [artifact] = await session.artifacts()
            await session.download_artifact(reference=str(artifact.reference), path="out.txt")
            assert bench.here() == ["out.txt"]


@pytest.mark.parametrize("name", ["openai", "claude"])
async def test_a_file_that_was_going_out_is_never_sent_again(name: KindName, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "in.txt").write_bytes(b"Hello.\n")
    endpoint = KINDS[name].upload
    async with KINDS[name].server() as far:
        far.fault(Held(endpoint))

        def arrived() -> bool:
            return int(far.counts()["files"]) > 0 or bool(_given(far))

        async with killed(name, far, folder, tmp_path / "agent.sqlite3", "upload", arrived) as bench:
            session = await bench.runtime.resume_session(bench.reference, context=TrustedContext())
            assert [each.kind for each in session.inspect_state().unresolved_effects] == ["upload"]
            if name == "openai":
                with pytest.raises(AgentUnresolvedEffectError):
                    await session.run("Go on.")
            else:
                # Nobody waits for it any more: what was left of it is removed, and that is known.
                await bench.talked(session)
                assert (bench.held(), session.inspect_state().unresolved_effects) == (0, ())
            assert bench.sent() == 1


def _given(far: Any) -> dict[str, Any]:
    held = getattr(far.service, "environment_files", {})
    return {path: data for each in held.values() for path, data in each.items()}
