"""The workspace plugin with real programs: commands behind the wall, and a search that comes to an end."""

import asyncio
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from desktop.harness_programs import HarnessPrograms
from desktop.isolation import walls
from desktop.roles import self_command
from runtime_host.loop.plugins.base import Mount, PluginAnswer, PluginCall, PluginError
from runtime_host.loop.plugins.workspace.plugin import WorkspacePlugin
from runtime_host.plain_programs import PlainPrograms
from tests.process import test_walls
from tests.process.test_walls import Place

pytestmark = [pytest.mark.process, pytest.mark.skipif(os.name != "posix", reason="this system is not POSIX")]
walled = [
    pytest.mark.needs("linux", "landlock"),
    pytest.mark.skipif(bool(walls.missing()), reason=walls.missing()),
]
MOUNT = Mount("a", "files", "i1", "c1")

place = test_walls.place


class Bench:
    """Calls of a session in one folder."""

    def __init__(self, plugin: WorkspacePlugin, root: str) -> None:
        self.plugin = plugin
        self.root = root
        self.shown: list[str] = []
        self.stopping = asyncio.Event()
        self._grew = asyncio.Condition()

    async def call(self, tool: str, *, writes: bool = True, runs: bool = True, **arguments: Any) -> PluginAnswer:
        nothing: Any = None
        call = PluginCall(
            MOUNT, tool, arguments, "op_1", "s", "r", nothing, nothing, None, self.root, writes, runs,
            self.stopping, self._progress,
        )  # fmt: skip
        async with asyncio.timeout(60):
            return await self.plugin.call(call)

    async def _progress(self, text: str) -> None:
        self.shown.append(text)
        async with self._grew:
            self._grew.notify_all()

    async def shown_so_far(self, most: int) -> None:
        """Until so much was shown."""
        async with asyncio.timeout(60), self._grew:
            await self._grew.wait_for(lambda: len("".join(self.shown)) >= most)

    async def run(self, command: str, **more: Any) -> dict[str, Any]:
        answer = await self.call("run", command=command, **more)
        assert isinstance(answer.payload, dict)
        return answer.payload


@pytest.fixture
def bench(place: Place) -> Bench:
    return Bench(WorkspacePlugin(HarnessPrograms(hidden=(place.data,))), place.workspace)


@pytest.fixture
def plain(tmp_path: Path) -> Bench:
    root = tmp_path / "project"
    root.mkdir()
    return Bench(WorkspacePlugin(PlainPrograms()), str(root.resolve()))


def put(root: str, path: str, content: str) -> None:
    place = Path(root, path)
    place.parent.mkdir(exist_ok=True)
    place.write_text(content, encoding="utf-8")


def text(root: str, path: str) -> str:
    return Path(root, path).read_text("utf-8")


# --------------------------------------------------------------------------------------- commands


@pytest.mark.usefixtures("place")
class TestCommands:
    """Of the tool run."""

    pytestmark = walled

    async def test_every_way_out_of_the_folder_is_closed_to_a_command(self, bench: Bench, place: Place) -> None:
        test_walls.renew(place)
        shutil.copy(test_walls.ATTACKS, place.workspace)
        order = json.dumps({"targets": place.targets})
        command = "exec " + shlex.join([sys.executable, "-I", "wall_attacks.py", order])
        done = await bench.run(command)
        found = json.loads(done["output"])
        assert [name for name, verdict in found.items() if verdict == "open"] == []
        assert len(found) > 30
        test_walls.is_as_it_was(place)

    async def test_a_command_works_in_the_folder_with_a_clean_environment(
        self, bench: Bench, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SENTINEL", "of-the-host")
        command = "echo made > made.txt; pwd; env; echo oops >&2; mktemp; cat; exit 3"
        answer = await bench.call("run", command=command)
        output = answer.payload["output"]
        assert (answer.success, answer.payload["exit_code"]) == (True, 3)
        assert output.splitlines()[0] == place.workspace
        assert text(place.workspace, "made.txt") == "made\n"
        assert "oops" in output
        assert "of-the-host" not in output
        assert answer.shown.endswith("Exit code 3.")
        scratch = os.path.dirname(output.splitlines()[-1])
        assert os.path.basename(scratch).startswith("remuda-")
        assert os.path.basename(scratch) not in os.listdir(os.path.dirname(scratch))
        assert "".join(bench.shown) == output

    async def test_where_files_may_only_be_read_a_command_cannot_write(self, bench: Bench, place: Place) -> None:
        put(place.workspace, "a.txt", "one")
        done = await bench.run("cat a.txt; echo two > a.txt", writes=False)
        assert done["output"].startswith("one")
        assert done["exit_code"] != 0
        assert text(place.workspace, "a.txt") == "one"

    async def test_output_comes_while_the_command_goes_on_and_is_bounded(self, bench: Bench) -> None:
        running = asyncio.create_task(bench.run("echo first; read line < /dev/zero & yes | head -c 300000; sleep 400"))
        await bench.shown_so_far(65_536)
        bench.stopping.set()
        done = await running
        assert "".join(bench.shown).startswith("first\n")
        assert len("".join(bench.shown)) == 65_536
        # How much more had come until it was stopped is the machine's.
        assert done["left_out_characters"] > 0
        assert len(done["output"]) < 60_000
        assert done["ended_by"].startswith("the stop of the run")

    async def test_at_its_time_limit_a_command_ends_with_all_it_started(self, bench: Bench) -> None:
        answer = await bench.call(
            "run", command="setsid sleep 400 & (sleep 401 &) ; trap '' TERM; echo $$; sleep 402", limit_s=1
        )
        assert (answer.success, answer.payload["exit_code"]) == (False, None)
        assert answer.payload["ended_by"] == "its time limit of 1 s, with everything it had started"
        assert asleep() == []

    async def test_what_a_command_leaves_behind_ends_with_it(self, bench: Bench) -> None:
        done = await bench.run("setsid sleep 403 & echo done")
        assert (done["exit_code"], done["output"]) == (0, "done\n")
        assert asleep() == []

    async def test_a_caller_that_is_cancelled_leaves_nothing_behind(self, bench: Bench) -> None:
        running = asyncio.create_task(bench.run("echo on; sleep 404"))
        await bench.shown_so_far(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert asleep() == []


def asleep() -> list[str]:
    """What of the commands here still sleeps."""
    found = [each for each in psutil.Process().children(recursive=True) if each.name() == "sleep"]
    seconds = [each.cmdline()[-1] for each in found if each.status() != psutil.STATUS_ZOMBIE]
    return [number for number in seconds if number.startswith("40")]


async def test_where_no_wall_can_be_raised_no_command_is_offered_or_run(plain: Bench) -> None:
    held = await plain.plugin.withheld(MOUNT, folder=True, writes=True, runs=True)
    assert list(held) == ["run"]
    assert "no walls" in held["run"]
    with pytest.raises(PluginError, match="no walls") as refused:
        await plain.run("touch made")
    assert refused.value.landed == "no"
    assert os.listdir(plain.root) == []


async def test_what_a_session_may_not_is_not_offered_and_refused(plain: Bench) -> None:
    held = await plain.plugin.withheld(MOUNT, folder=True, writes=False, runs=False)
    assert sorted(held) == ["edit", "run", "write"]
    for tool, arguments in (("write", {"path": "a", "content": "x"}), ("run", {"command": "touch a"})):
        with pytest.raises(PluginError) as refused:
            await plain.call(tool, writes=False, runs=False, **arguments)
        assert str(refused.value) == held[tool]
    assert os.listdir(plain.root) == []
    assert len(await plain.plugin.withheld(MOUNT, folder=False, writes=False, runs=False)) == 6


# ----------------------------------------------------------------------------------------- search


async def test_a_pattern_that_would_never_end_is_ended_and_named(plain: Bench) -> None:
    put(plain.root, "bad.txt", "a" * 64 + "!\n")
    put(plain.root, "good.txt", "aaa\n")
    found = (await plain.call("search", pattern="(a+)+$")).payload
    assert [hit["path"] for hit in found["hits"]] == ["good.txt"]
    assert found["too_slow_in"] == ["bad.txt"]


async def test_a_search_that_does_not_answer_is_ended(plain: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_host.loop.plugins.workspace.plugin.SEARCH_S", -1.5)
    stuck = WorkspacePlugin(PlainPrograms(), search=("/bin/sleep", "405"))
    with pytest.raises(PluginError) as refused:
        await Bench(stuck, plain.root).call("search", pattern="x")
    assert (refused.value.code, refused.value.landed) == ("too_slow", "no")
    assert asleep() == []


async def test_the_search_is_a_role_of_the_program(plain: Bench) -> None:
    put(plain.root, "a\u202eb", "one needle\n")
    put(plain.root, ".git/config", "needle")
    search = tuple(self_command("search"))
    found = (await Bench(WorkspacePlugin(HarnessPrograms(), search=search), plain.root).call(
        "search", pattern="NEEDLE", literal=True, ignore_case=True
    )).payload  # fmt: skip
    assert found == {
        "hits": [{"path": "a\\u202eb", "line": 1, "text": "one needle"}],
        "files_looked_at": 1,
        "not_looked_into": [".git"],
    }


@pytest.mark.parametrize(("pattern", "path"), [("(", "."), ("x", "nowhere"), ("x", "../project")])
async def test_a_search_that_cannot_be_is_refused_in_words(plain: Bench, pattern: str, path: str) -> None:
    with pytest.raises(PluginError, match=r"\."):
        await plain.call("search", pattern=pattern, path=path)


# ------------------------------------------------------------------------------------------ words


async def test_a_change_is_shown_as_a_diff_and_told_with_its_next_version(plain: Bench) -> None:
    made = await plain.call("write", path="a.txt", content="one\n")
    answer = await plain.call("edit", path="a.txt", version=made.payload["version"], old="one", new="two")
    assert answer.shown == "--- a/a.txt\n+++ b/a.txt\n@@ -1,1 +1,1 @@\n-one\n+two\n"
    assert answer.changes == (("a.txt", "modified", answer.shown),)
    assert answer.payload["version"] == (await plain.call("read", path="a.txt")).payload["version"]


def test_what_a_call_would_do_is_said_before(plain: Bench) -> None:
    effect = plain.plugin.effect
    assert effect(MOUNT, "edit", {"path": "a\u202e.py", "old": "x\ny", "new": ""}) == (
        "Changes the file “a\\u202e.py”: 2 lines replaced."
    )
    assert effect(MOUNT, "write", {"path": "b", "content": "1\n"}) == "Makes the new file “b”, 1 line."
    assert "no network" in effect(MOUNT, "run", {"command": "ls"})


def test_always_is_never_offered_for_more_than_a_folder_or_one_command(plain: Bench) -> None:
    widest = plain.plugin.widest
    assert widest(MOUNT, "run", {"command": "ls"}) is None
    in_folder = widest(MOUNT, "edit", {"path": "src/a.py"})
    at_top = widest(MOUNT, "write", {"path": "a.py"})
    assert in_folder is not None
    assert at_top is not None
    assert in_folder.where == {"path": {"starts": "src/"}}
    assert at_top.where == {"path": {"is": "a.py"}}
