"""A program from the person's home, run by commands of the real CLIs; what lies beside it stays closed to them."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from desktop.harness_programs import HarnessPrograms
from desktop.isolation import walls
from desktop.toolchains import found
from runtime_host.definitions import Environment
from runtime_host.drivers.base import SessionOpening
from runtime_host.drivers.codex import CodexDriver
from runtime_host.policy import CHAT
from runtime_host.programs import Toolchains
from tests.loopback.claude_harness import MODEL, needs_claude, options_for, say, staged
from tests.loopback.claude_model import ClaudeModel
from tests.loopback.codex_bench import Folders, ask, bench_of, of_type
from tests.loopback.codex_model import CLASSIC, CodexModel
from tests.loopback.far_side import FarSide, Say, Use
from tests.process.app_driver import Home, lines, served

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]

SECRET = "secret-of-the-registry"
COMMANDS = (
    "node --version",
    "cat {home}/.cargo/credentials.toml",
    "cat {home}/.nvm/versions/node/v99.1.0/etc/npmrc",
    "echo x > {home}/.nvm/versions/node/v99.1.0/bin/planted",
    "cat {home}/.netrc",
)


@pytest.fixture
def home() -> Iterator[Path]:
    # Not in the tests' temporary folder: what is in /tmp is closed to every wall as it is.
    place = Path(tempfile.mkdtemp(prefix="remuda-home-", dir="/var/tmp")).resolve()
    node = place / ".nvm/versions/node/v99.1.0"
    for folder in (node / "bin", node / "etc", place / ".cargo/bin"):
        folder.mkdir(parents=True)
    (node / "bin/node").write_text('#!/bin/sh\necho "v99.1.0 $1"\n', encoding="utf-8")
    (node / "bin/node").chmod(0o755)
    (node / "etc/npmrc").write_text(f"//registry.invalid/:_authToken={SECRET}\n", encoding="utf-8")
    for name in (".cargo/credentials.toml", ".netrc"):
        (place / name).write_text(SECRET, encoding="utf-8")
    try:
        yield place
    finally:
        shutil.rmtree(place)


def installed(home: Path, *hidden: str) -> Toolchains:
    """As the desktop finds it where the person put this version first."""
    path = f"{home}/.nvm/versions/node/v99.1.0/bin:/usr/bin:/bin"
    return found({"HOME": str(home), "PATH": path}, hidden=hidden)


def asked(home: Path) -> list[str]:
    return [command.format(home=home) for command in COMMANDS]


def see(home: Path, said: list[str], codes: list[Any]) -> None:
    """What came of the commands, in their order."""
    version, *others = said
    assert version.strip() == "v99.1.0 --version"
    assert codes[0] == 0
    assert all(code != 0 for code in codes[1:])
    assert SECRET not in "".join(others)
    assert os.listdir(home / ".nvm/versions/node/v99.1.0/bin") == ["node"]


@needs_claude
@pytest.mark.needs("landlock")
@pytest.mark.skipif(bool(walls.missing()), reason=walls.missing())
async def test_commands_of_claude(home: Path) -> None:
    work = home / "work"
    work.mkdir()
    policy = CHAT.model_copy(update={"filesystem": "workspace-write", "commands": "sandboxed"})
    options = options_for(policy=policy, environment=Environment(type="local-directory", path=str(work)))
    async with staged(HarnessPrograms()) as stage:
        stage.model.answer(*([Use("Bash", {"command": command})] for command in asked(home)), Say("Done."))
        session = await stage.session(stage.driver(toolchains=partial(installed, home)), options=options)
        result = await say(session)
        await session.close()
    done = result.of("command.completed")
    see(home, [each["output"] for each in done], [each["exit_code"] for each in done])


@pytest.mark.needs("codex", "user-namespaces")
async def test_commands_of_codex(home: Path) -> None:
    async with bench_of() as bench:
        driver = CodexDriver(
            bench.connectors,
            bench.programs,
            Folders(bench.data),
            hidden=(str(bench.data),),
            toolchains=partial(installed, home, str(bench.data)),
        )
        session = await driver.open(SessionOpening("session", bench.definition, bench.options))
        said, codes = [], []
        for command in asked(home):
            bench.model.answer([Use("exec_command", {"cmd": command})], Say("Done."))
            events, result = await ask(session, "Work.")
            assert result.status == "completed", result
            [done] = of_type(events, "command.completed") or [{"output": "", "exit_code": -1}]
            said.append(done["output"])
            codes.append(done["exit_code"])
        await driver.aclose()
    see(home, said, codes)


@pytest.mark.needs("landlock")
@pytest.mark.parametrize(
    ("harness", "model", "name", "use"),
    [
        pytest.param("anthropic.agent.sdk", ClaudeModel, MODEL, ("Bash", "command"), marks=needs_claude),
        pytest.param(
            "openai.codex.sdk", CodexModel, CLASSIC, ("exec_command", "cmd"),
            marks=pytest.mark.needs("codex", "user-namespaces"),
        ),
    ],
)  # fmt: skip
def test_a_whole_run_finds_what_a_short_path_does_not_name(
    home: Path, harness: str, model: type[FarSide], name: str, use: tuple[str, str]
) -> None:
    """As from a desktop session, whose `PATH` no shell has set."""
    (home / "work").mkdir()
    (home / ".nvm/versions/node/v99.1.0/bin/node").rename(home / ".nvm/versions/node/v99.1.0/bin/persons-node")
    far = model()
    with served(far):
        place = Home(home, {"PATH": "/usr/bin:/bin"})
        place.connect(far, models=[name], vendor=far.vendor)
        tool, argument = use
        command = "persons-node --version; cat ../.cargo/credentials.toml ../.nvm/versions/node/v99.1.0/etc/npmrc"
        far.always([Use(tool, {argument: command})], [Say("Done.")])
        words = ["run", "Which version?", "--json", "--harness", harness, "--connector", "loopback", "--model", name]
        done = place.run(*words, "--environment", f"dir:{home}/work", "--policy", "work")
        assert done.returncode == 0, done
        assert lines(done.stdout)[-1]["output_text"] == "Done."
        assert "v99.1.0 --version" in far.told[-1].text
        assert SECRET not in far.told[-1].text
