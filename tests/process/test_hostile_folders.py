"""The real CLIs in folders that are made to catch them: what lies there is started by no more than a command.

Each attack is shown to work where what holds it is taken away.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from desktop.harness_programs import HarnessPrograms
from desktop.isolation import walls
from runtime_host.drivers.base import SessionOpening
from runtime_host.programs import Program, ProgramOrder, Programs, Wall
from tests.loopback.claude_harness import needs_claude, say, staged
from tests.loopback.codex_bench import CodexBench, ask
from tests.loopback.codex_model import CODE_MODE, CodexModel
from tests.loopback.far_side import Say, Use
from tests.process.test_claude_workspace import Place, place, working

__all__ = ["place"]
pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]
NAMES = ("git", "rg", "bwrap", "env", "id", "bash", "uname", "ps", "which", "getconf", "lsb_release", "node", "python3")
needs_walls = pytest.mark.skipif(bool(walls.missing()), reason=walls.missing())


@dataclass
class OnPath:
    """Programs of the app; where they are not `held`, they look for others wherever the host does."""

    held: bool
    inner: Programs = field(default_factory=HarnessPrograms)

    async def start(self, order: ProgramOrder) -> Program:
        env = order.env if self.held else {**order.env, "PATH": os.environ["PATH"]}
        return await self.inner.start(replace(order, env=env))

    def walled(self, wall: Wall) -> tuple[str, ...] | None:
        return self.inner.walled(wall)

    async def wall_fault(self) -> str:
        # They are tried in tests of their own.
        return ""


def impostors(folder: Path, heard: Path) -> None:
    """Programs under the names of usual ones, which say that they were started and with how much, then do the work."""
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        script = f'#!/bin/sh\nPATH=/usr/bin:/bin\nenv >>{heard} 2>/dev/null\nexec {name} "$@"\n'
        (folder / name).write_text(script, encoding="utf-8")
        (folder / name).chmod(0o755)


def in_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join((str(folder / "bin"), ".", "", os.environ["PATH"])))


@pytest.fixture
def heard(place: Place) -> Path:
    """What the programs of the folder had of an environment. In it, because the walls let through nothing else."""
    return Path(place.root, "heard.txt")


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""


@needs_claude
@needs_walls
@pytest.mark.needs("landlock")
@pytest.mark.parametrize("held", [True, False])
async def test_claude_starts_nothing_that_lies_in_its_folder_under_a_usual_name(
    held: bool, place: Place, heard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impostors(Path(place.root, "bin"), heard)
    in_path(Path(place.root), monkeypatch)
    inner = HarnessPrograms(hidden=(place.data,))
    async with staged(OnPath(held, inner)) as stage:
        stage.folder = os.path.join(place.data, "agents")
        stage.model.answer([Use("Bash", {"command": "id -u"})], Say("Done."))
        session = await stage.session(options=working(place))
        result = await say(session)
        assert result.result.status == "completed"
        await session.close()
    assert ("ANTHROPIC_API_KEY=" not in text_of(heard)) == held


@needs_claude
@needs_walls
@pytest.mark.needs("landlock")
async def test_what_a_command_left_running_ends_with_its_run_and_the_conversation_goes_on(place: Place) -> None:
    """The folder is another run's from then on, maybe of another harness."""
    beat = Path(place.root, "beat")
    goes_on = "setsid sh -c 'while :; do echo on >>beat; sleep 0.02; done' </dev/null >/dev/null 2>&1 & sleep 0.2"
    async with staged(OnPath(held=True, inner=HarnessPrograms(hidden=(place.data,)))) as stage:
        stage.folder = os.path.join(place.data, "agents")
        stage.model.answer([Use("Bash", {"command": goes_on})], Say("Begun."))
        session = await stage.session(options=working(place))
        result = await say(session, "Begin.")
        assert (result.result.status, result.codes()) == ("completed", ["COMMANDS_ENDED"])
        last = text_of(beat)
        await asyncio.sleep(0.3)
        assert last == text_of(beat) != "", "a command outlived its run"
        stage.model.answer([Use("Bash", {"command": "echo quiet"})], Say("Yes."))
        result = await say(session, "Again.")
        assert (result.result.status, result.codes()) == ("completed", [])
        assert len(stage.programs.started) == 2
        assert "Begun." in str(stage.model.body(-1)), "what was said before was lost"
        living = stage.programs.living()
        assert len(living) == 1, "the CLI was ended where nothing was left running"
        await session.close()


@asynccontextmanager
async def codex_in(place: Place) -> AsyncIterator[CodexBench]:
    async with CodexModel() as model:
        yield CodexBench(model, Path(place.outside), named=CODE_MODE)


def opening_of(bench: CodexBench) -> SessionOpening:
    return SessionOpening("session", bench.definition, bench.options, None)


@pytest.mark.needs("codex", "user-namespaces")
@pytest.mark.parametrize("held", [True, False])
async def test_codex_starts_nothing_that_lies_in_its_folder_under_a_usual_name(
    held: bool, place: Place, heard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with codex_in(place) as bench:
        impostors(bench.workspace / "bin", heard)
        in_path(bench.workspace, monkeypatch)
        bench.model.answer([Use("exec_command", {"cmd": "id -u"})], Say("Done."))
        driver = bench.driver(OnPath(held))
        try:
            session = await driver.open(opening_of(bench))
            _, result = await ask(session, "Go.", model=CODE_MODE)
        finally:
            await driver.aclose()
        assert result.status == "completed"
    # Its sandbox lets a command write into the folder alone, so whatever wrote here was outside of it.
    assert ("REMUDA_RELAY_TOKEN=" not in text_of(heard)) == held
