"""The real Claude CLI in a folder, behind walls as older kernels raise them: it works, and gets out as little."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from desktop.harness_programs import HarnessPrograms
from desktop.isolation import walls
from desktop.isolation.walls import WallOrder
from runtime_host.definitions import Environment
from runtime_host.policy import CHAT
from runtime_host.programs import Program, ProgramOrder, Wall
from tests.loopback.claude_harness import needs_claude, options_for, say, staged
from tests.loopback.far_side import Say, Use
from tests.process.old_kernel import WITHOUT_NAMESPACES, gives_no_namespaces, on_old_kernel

pytestmark = [
    pytest.mark.process,
    pytest.mark.needs("linux", "landlock"),
    pytest.mark.skipif(bool(walls.missing()), reason=walls.missing()),
    needs_claude,
]


class OldPrograms(HarnessPrograms):
    """As on a kernel with this version of Landlock; its trial is in `test_walls`."""

    def __init__(self, version: int, before: list[str], hidden: str) -> None:
        super().__init__(hidden=(hidden,))
        self.version = version
        self.before = before

    async def start(self, order: ProgramOrder) -> Program:
        if order.wall is None:
            return await super().start(order)
        prefix = self.walled(order.wall)
        before = [shutil.which(self.before[0]) or "", *self.before[1:]] if self.before else []
        return await super().start(replace(order, command=(*before, *prefix, *order.command), wall=None))

    def walled(self, wall: Wall) -> tuple[str, ...]:
        order = WallOrder(wall.readable, wall.writable, wall.network, self._hidden)
        return (*on_old_kernel(self.version, "wall"), *order.arguments(), "--")

    async def wall_fault(self) -> str:
        return ""


@pytest.fixture
def top() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="remuda-old-", dir="/var/tmp")).resolve()
    for name in ("work", "outside", "data"):
        (place / name).mkdir()
    (place / "data/settings.toml").write_text("secret of the profile", encoding="utf-8")
    try:
        yield place
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize(
    ("version", "mounts"),
    [pytest.param(1, True, id="Linux 5.15"), pytest.param(4, False, id="Ubuntu 24.04")],
)
async def test_it_works_in_its_folder_and_nowhere_else(top: Path, version: int, mounts: bool) -> None:
    if not mounts and not gives_no_namespaces():
        pytest.skip("bubblewrap cannot take namespaces away here")
    work = top / "work"
    policy = CHAT.model_copy(update={"filesystem": "workspace-write", "commands": "sandboxed"})
    options = options_for(policy=policy, environment=Environment(type="local-directory", path=str(work)))
    with socket.create_server(("127.0.0.1", 0)) as far:
        commands = (
            "mkdir -p a/b && echo one > a/one && mv a/one a/b/ && cat a/b/one && echo two > a/b/one && cat a/b/one",
            f"echo x > {top}/outside/x",
            f"truncate -s 0 {top}/data/settings.toml",
            f"cat {top}/data/settings.toml",
            f"exec 3<>/dev/tcp/127.0.0.1/{far.getsockname()[1]}",
        )
        async with staged(OldPrograms(version, [] if mounts else WITHOUT_NAMESPACES, str(top / "data"))) as stage:
            stage.folder = os.path.join(top, "data")
            stage.model.answer(
                *([Use("Bash", {"command": command})] for command in commands),
                [Use("Write", {"file_path": f"{work}/written", "content": "three\n"})],
                [Use("Read", {"file_path": f"{work}/written"})],
                [Use("Edit", {"file_path": f"{work}/written", "old_string": "three", "new_string": "four"})],
                Say("Done."),
            )
            session = await stage.session(options=options)
            result = await say(session)
            assert result.result.status == "completed", result.result
            assert (await say(session, "And now?", run_id="run_2")).result.status == "completed"
            await session.close()
    works, *others = result.of("command.completed")
    assert (works["exit_code"], works["output"].split()) == (0, ["one", "two"]), works
    assert [each["exit_code"] != 0 for each in others] == [True] * 4, others
    assert "secret of the profile" not in str(others)
    assert (work / "written").read_text("utf-8") == "four\n"
    assert os.listdir(top / "outside") == []
    assert (top / "data/settings.toml").read_text("utf-8") == "secret of the profile"
