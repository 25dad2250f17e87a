"""A folder that holds the programs which keep a session within its bounds can be read by it and not written."""

import os
from pathlib import Path

import pytest

from desktop.isolation import walls
from runtime_host.drivers.codex.cli import find
from runtime_host.errors import AgentRuntimeError, AgentWorkspaceError
from runtime_host.plain_programs import PlainPrograms
from runtime_host.programs import Wall
from runtime_host.workspace import resolve_workspace
from tests.loopback.claude_harness import DEFINITION, needs_claude, staged
from tests.loopback.codex_bench import READ_ONLY, bench_of
from tests.process.test_claude_workspace import Place, place, working

__all__ = ["place"]


@pytest.mark.parametrize("below", ["program", "in/program", "by-link", "out", "not-there-yet"])
def test_what_holds_a_program_may_be_read_only(below: str, tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    for folder in (work / "in", other):
        folder.mkdir(parents=True)
    for file in (work / "program", work / "in" / "program", other / "program"):
        file.touch()
    (other / "by-link").symlink_to(work / "program")
    (work / "out").symlink_to(other / "program")
    program = str((other if below == "by-link" else work) / below)
    with pytest.raises(AgentWorkspaceError, match="could change them"):
        resolve_workspace(str(work), write=True, programs=[program])
    for write, named in (
        (False, program),
        (True, str(other / "program")),
        (True, str(tmp_path / "work-2" / "program")),
    ):
        assert resolve_workspace(str(work), write=write, programs=[named]).root == str(work.resolve())


def test_the_host_knows_its_own_code() -> None:
    for package in ("desktop", "ui", "runtime_host"):
        file = os.path.abspath(f"{package}/__init__.py")
        assert any(file.startswith(place) for place in walls.own_program()), package
    with pytest.raises(AgentWorkspaceError, match="could change them"):
        resolve_workspace(os.getcwd(), write=True, programs=walls.own_program())


class WithWalls(PlainPrograms):
    """Says that there are walls, whether or not there are."""

    def walled(self, wall: Wall) -> tuple[str, ...]:
        return ()


def put(link: Path, program: str) -> str:
    link.symlink_to(program)
    return str(link)


@needs_claude
@pytest.mark.needs("linux")
async def test_claude_is_not_let_change_itself(place: Place) -> None:
    async with staged(WithWalls()) as stage:
        cli = put(Path(place.root, "claude"), stage.driver()._cli_path())
        driver = stage.driver(cli=lambda: cli)
        with pytest.raises(AgentRuntimeError, match="could change them"):
            await driver.inspect(DEFINITION, working(place))
        await driver.inspect(DEFINITION, working(place, writes=False))


@pytest.mark.needs("codex")
async def test_codex_is_not_let_change_itself() -> None:
    async with bench_of() as bench:
        cli = put(bench.workspace / "codex", find(None).binary)
        driver = bench.driver(cli=lambda: cli)
        with pytest.raises(AgentRuntimeError, match="could change them"):
            await driver.inspect(bench.definition, bench.options)
        await driver.inspect(bench.definition, bench.options_for(policy=READ_ONLY))
