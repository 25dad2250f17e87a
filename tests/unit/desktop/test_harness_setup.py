"""Which program a harness is: found where installers put it, refused where others could have, never by its login."""

import asyncio
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from desktop import harness_setup, paths, program_files
from desktop.harness_setup import CLAUDE, CODEX, Harnesses, ProgramRefusedError
from desktop.profile_store import open_profile_store
from desktop.settings import Settings
from runtime_host.errors import AgentRuntimeDependencyError
from runtime_host.loop.own_thread import in_own_thread

pytestmark = pytest.mark.needs("linux")

RIGHT = {CODEX.driver: "codex-cli 0.163.4", CLAUDE.driver: "2.1.400 (Claude Code)"}


class Kept:
    """Settings that are kept in memory."""

    def __init__(self) -> None:
        self.programs: dict[str, Any] = {}

    async def set_programs(self, record: dict[str, Any]) -> None:
        self.programs = record


def program(file: Path, says: str, *, counts: Path | None = None) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    count = f"echo asked >> {counts}\n" if counts else ""
    file.write_text(f"#!/bin/sh\n{count}echo '{says}'\n", encoding="utf-8")
    file.chmod(0o755)
    return file


@pytest.fixture
def nothing_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither CLI came with Remuda; what speaks to them is installed."""
    monkeypatch.setattr(harness_setup, "_brought", lambda kind: None)
    monkeypatch.setattr(program_files, "_OF_ALL", ())


def harnesses(kept: Kept, environment: Mapping[str, str]) -> Harnesses:
    made = Harnesses(kept, environment=lambda: environment)  # type: ignore[arg-type]  # what it needs of settings
    made.load()
    return made


@pytest.mark.usefixtures("nothing_brought")
@pytest.mark.parametrize(
    "place",
    [
        "on-path",
        ".local/bin",
        ".claude/local",
        ".npm-global/bin",
        ".bun/bin",
        ".volta/bin",
        ".cargo/bin",
        ".nvm/versions/node/v22.1.0/bin",
    ],
)
async def test_a_program_is_found_where_installers_put_it(tmp_path: Path, place: str) -> None:
    file = program(tmp_path / place / "codex", RIGHT[CODEX.driver])
    path = str(tmp_path / "on-path") if place == "on-path" else "/nowhere"
    found = harnesses(kept := Kept(), {"PATH": path, "HOME": str(tmp_path)})
    assert found.standing(CODEX.driver).state == "missing", "nothing is looked for by itself"
    await found.look()
    standing = found.standing(CODEX.driver)
    assert (standing.state, standing.version, standing.path) == ("ready", "0.163.4", str(file))
    assert found.ready() == (CODEX.driver,)
    assert found.program(CODEX.driver) == str(file)
    # At the next start it is known without another look.
    assert harnesses(kept, {}).ready() == (CODEX.driver,)


@pytest.mark.usefixtures("nothing_brought")
async def test_the_newest_node_is_looked_at_first(tmp_path: Path) -> None:
    for version in ("v9.1.0", "v22.1.0", "v8.9.9"):
        program(tmp_path / f".nvm/versions/node/{version}/bin/codex", RIGHT[CODEX.driver])
    found = harnesses(Kept(), {"HOME": str(tmp_path)})
    await found.look()
    assert "/v22.1.0/" in found.program(CODEX.driver)


@pytest.mark.usefixtures("nothing_brought")
@pytest.mark.parametrize(
    ("says", "state", "words"),
    [
        ("codex-cli 0.162.9", "unsupported", "older"),
        ("codex-cli 0.164.0", "unsupported", "newer"),
        ("codex-cli 1.0.0", "unsupported", "newer"),
        ("git version 0.163.1", "unusable", "does not say that it is Codex"),
        ("codex", "unusable", "does not say"),
        ("", "unusable", "does not say"),
    ],
)
async def test_a_version_that_is_not_known_to_work_is_not_used(
    tmp_path: Path, says: str, state: str, words: str
) -> None:
    program(tmp_path / "codex", says)
    found = harnesses(kept := Kept(), {"PATH": str(tmp_path)})
    await found.look()
    standing = found.standing(CODEX.driver)
    assert (standing.state, standing.path) == (state, str(tmp_path / "codex"))
    assert words in standing.sentence
    assert "npm install -g @openai/codex" in standing.way
    assert (found.ready(), kept.programs) == ((), {})
    with pytest.raises(AgentRuntimeDependencyError, match=words):
        found.program(CODEX.driver)
    with pytest.raises(AgentRuntimeDependencyError, match=words):
        await found.prepare(CODEX.driver)


@pytest.mark.usefixtures("nothing_brought")
async def test_one_that_works_is_used_though_another_lies_before_it(tmp_path: Path) -> None:
    program(tmp_path / "a/claude", "1.0.3 (Claude Code)")
    right = program(tmp_path / "b/claude", RIGHT[CLAUDE.driver])
    found = harnesses(Kept(), {"PATH": f"{tmp_path / 'a'}:{tmp_path / 'b'}"})
    await found.look()
    assert found.program(CLAUDE.driver) == str(right)


async def test_what_came_with_remuda_is_ready_without_a_look_and_goes_first(tmp_path: Path) -> None:
    pytest.importorskip("codex_cli_bin", reason="the Codex CLI did not come along")
    asked = tmp_path / "asked"
    program(tmp_path / "codex", RIGHT[CODEX.driver], counts=asked)
    found = harnesses(kept := Kept(), {"PATH": str(tmp_path)})
    standing = found.standing(CODEX.driver)
    assert (standing.state, standing.brought) == ("ready", True)
    await found.look()
    assert found.standing(CODEX.driver) == standing
    assert not asked.exists()
    assert CODEX.driver not in kept.programs


@pytest.mark.usefixtures("nothing_brought")
async def test_without_what_speaks_to_it_a_cli_is_of_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "claude", RIGHT[CLAUDE.driver])
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "claude_agent_sdk" else real(name))
    found = harnesses(Kept(), {"PATH": str(tmp_path)})
    await found.look()
    standing = found.standing(CLAUDE.driver)
    assert (standing.state, standing.version) == ("missing", "2.1.400")
    assert "claude_agent_sdk" in standing.sentence
    assert "make harnesses" in standing.way


# --------------------------------------------------------------------------------------- trust


@pytest.mark.usefixtures("nothing_brought")
async def test_what_others_could_have_put_there_is_not_started(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    file = program(tmp_path / "open/codex", RIGHT[CODEX.driver], counts=ran)
    file.parent.chmod(0o777)
    found = harnesses(Kept(), {"PATH": str(file.parent)})
    await found.look()
    assert found.standing(CODEX.driver).state == "unusable"
    with pytest.raises(ProgramRefusedError, match="Others may change it"):
        await found.pick(CODEX.driver, str(file))
    file.parent.chmod(0o755)
    file.chmod(0o757)
    with pytest.raises(ProgramRefusedError, match="Others may change it"):
        await found.pick(CODEX.driver, str(file))
    file.chmod(0o755)
    if os.getuid() == 0:
        os.chown(file, 61_234, 61_234)
        with pytest.raises(ProgramRefusedError, match="Others may change it"):
            await found.pick(CODEX.driver, str(file))
        os.chown(file, 0, 0)
    assert not ran.exists()
    await found.pick(CODEX.driver, str(file))
    assert ran.exists()


@pytest.mark.usefixtures("nothing_brought")
async def test_the_question_for_the_version_shows_nothing_of_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".codex").mkdir(parents=True)
    (home / ".codex/auth.json").write_text("login", encoding="utf-8")
    for name in ("OPENAI_API_KEY", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"canary-{home}")
    monkeypatch.setenv("HOME", str(home))
    seen = tmp_path / "seen"
    file = tmp_path / "bin/codex"
    program(file, RIGHT[CODEX.driver])
    file.write_text(
        f'#!/bin/sh\n{{ env; pwd; ls -A "$HOME" "$CODEX_HOME"; stat -c %a "$HOME"; }} > {seen}\n'
        f"echo '{RIGHT[CODEX.driver]}'\n",
        encoding="utf-8",
    )
    found = harnesses(Kept(), {"PATH": str(file.parent)})
    await found.look()
    assert found.standing(CODEX.driver).state == "ready"
    told = seen.read_text(encoding="utf-8")
    assert "canary" not in told
    assert str(home) not in told
    assert ".codex" not in told
    asked_home = next(line for line in told.splitlines() if line.startswith("HOME=")).removeprefix("HOME=")
    assert told.splitlines()[-1] == "700"
    assert asked_home
    assert not (await in_own_thread(lambda: os.path.lexists(asked_home), "look")), "nothing of the question is left"


@pytest.mark.usefixtures("nothing_brought")
async def test_a_program_that_does_not_answer_costs_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_files, "VERSION_S", 1.0)
    file = program(tmp_path / "codex", "")
    file.write_text("#!/bin/sh\nsleep 61 & sleep 61\n", encoding="utf-8")
    found = harnesses(Kept(), {"PATH": str(tmp_path)})
    async with asyncio.timeout(10):
        await found.look()
    assert found.standing(CODEX.driver).state == "unusable"


# ------------------------------------------------------------------------------- another program


@pytest.mark.usefixtures("nothing_brought")
async def test_a_program_that_changed_is_looked_at_again_before_it_is_used(tmp_path: Path) -> None:
    """CLIs keep themselves up to date: the link leads to another version from one day to the next."""
    first = program(tmp_path / "versions/2.1.340", "2.1.340 (Claude Code)")
    link = tmp_path / "bin/claude"
    link.parent.mkdir()
    link.symlink_to(first)
    found = harnesses(kept := Kept(), {"PATH": str(link.parent)})
    await found.prepare(CLAUDE.driver)
    assert (found.program(CLAUDE.driver), found.standing(CLAUDE.driver).version) == (str(first), "2.1.340")
    second = program(tmp_path / "versions/2.1.341", "2.1.341 (Claude Code)")
    link.unlink()
    link.symlink_to(second)
    await found.prepare(CLAUDE.driver)
    assert (found.program(CLAUDE.driver), found.standing(CLAUDE.driver).version) == (str(second), "2.1.341")
    link.unlink()
    link.symlink_to(program(tmp_path / "versions/3.0.0", "3.0.0 (Claude Code)"))
    with pytest.raises(AgentRuntimeDependencyError, match="newer"):
        await found.prepare(CLAUDE.driver)
    link.unlink()
    link.symlink_to(second)
    await found.prepare(CLAUDE.driver)
    # In its own place, too, and over a start anew: known as it was, and asked before it is used.
    program(second, "2.1.342 (Claude Code), the next")
    anew = harnesses(kept, {})
    assert anew.ready() == (CLAUDE.driver,)
    with pytest.raises(AgentRuntimeDependencyError, match="another one"):
        anew.program(CLAUDE.driver)
    await anew.prepare(CLAUDE.driver)
    assert (anew.program(CLAUDE.driver), anew.standing(CLAUDE.driver).version) == (str(second), "2.1.342")
    link.unlink()
    with pytest.raises(AgentRuntimeDependencyError, match=r"2\.1\.332"):
        await found.prepare(CLAUDE.driver)
    assert harnesses(kept, {}).ready() == ()


@pytest.mark.usefixtures("nothing_brought")
async def test_a_pick_goes_before_all_else_until_it_is_taken_back(tmp_path: Path) -> None:
    usual = program(tmp_path / "bin/codex", RIGHT[CODEX.driver])
    own = program(tmp_path / "own/my-codex", "codex-cli 0.163.9")
    found = harnesses(kept := Kept(), {"PATH": str(usual.parent)})
    changes: list[tuple[str, ...]] = []
    found.on_change = lambda: changes.append(found.ready())
    await found.look()
    await found.pick(CODEX.driver, f" {own} ")
    assert found.program(CODEX.driver) == str(own)
    await found.look()
    assert found.program(CODEX.driver) == str(own)
    again = harnesses(kept, {"PATH": str(usual.parent)})
    assert (again.program(CODEX.driver), again.standing(CODEX.driver).picked) == (str(own), True)
    # Gone, it is said, and no other takes its place unasked.
    own.unlink()
    with pytest.raises(AgentRuntimeDependencyError):
        await again.prepare(CODEX.driver)
    await again.forget_pick(CODEX.driver)
    assert again.program(CODEX.driver) == str(usual)
    assert len(changes) == 2


@pytest.mark.usefixtures("nothing_brought")
async def test_a_look_that_goes_on_undoes_no_decision(tmp_path: Path) -> None:
    usual = program(tmp_path / "bin/codex", RIGHT[CODEX.driver])
    own = program(tmp_path / "own/my-codex", "codex-cli 0.163.9")
    found = harnesses(kept := Kept(), {"PATH": str(usual.parent)})
    for decide, expected in (
        (lambda: found.pick(CODEX.driver, str(own)), own),
        (lambda: found.forget_pick(CODEX.driver), usual),
    ):
        for turns in range(12):
            look = asyncio.ensure_future(found.look(again=True))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.gather(decide(), look, found.look())
            assert found.program(CODEX.driver) == str(expected)
            assert harnesses(kept, {}).program(CODEX.driver) == str(expected)


@pytest.mark.usefixtures("nothing_brought")
@pytest.mark.parametrize("path", ["", "codex", "./codex", "/nowhere/at/all", "/etc", "/etc/passwd", "/usr/bin/\0x"])
async def test_what_is_no_program_cannot_be_picked(path: str) -> None:
    found = harnesses(kept := Kept(), {})
    with pytest.raises(ProgramRefusedError):
        await found.pick(CODEX.driver, path)
    assert kept.programs == {}


@pytest.mark.usefixtures("nothing_brought")
@pytest.mark.parametrize(
    "inside",
    [
        "codex-linux-x64/vendor/x86_64-unknown-linux-musl/codex/codex",
        "codex/vendor/x86_64-unknown-linux-musl/codex/codex",
        "codex/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    ],
)
async def test_of_a_package_for_node_the_program_itself_is_started(
    tmp_path: Path, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop reaches what was started. The script that starts it would not pass that on."""
    monkeypatch.setattr(os, "uname", lambda: type("Machine", (), {"machine": "x86_64"}))
    scope = tmp_path / "lib/node_modules/@openai"
    script = program(scope / "codex/bin/codex.js", "codex-cli 0.163.1")
    script.write_text("#!/usr/bin/env node\n", encoding="utf-8")
    native = program(scope / inside, "codex-cli 0.163.2")
    program(scope / "codex-linux-arm64/vendor/aarch64-unknown-linux-musl/codex/codex", "codex-cli 0.163.3")
    link = tmp_path / "bin/codex"
    link.parent.mkdir()
    link.symlink_to(script)
    found = harnesses(Kept(), {"PATH": str(link.parent)})
    await found.look()
    assert (found.program(CODEX.driver), found.standing(CODEX.driver).version) == (str(native), "0.163.2")
    await found.prepare(CODEX.driver)
    native.unlink()
    with pytest.raises(AgentRuntimeDependencyError, match="script for Node"):
        await found.prepare(CODEX.driver)


async def test_what_is_kept_survives_in_the_profile_and_nonsense_is_nothing(tmp_path: Path) -> None:
    place = paths.profile(tmp_path / "data")
    store = await open_profile_store(place.store, profile=place.name)
    settings = Settings(store)
    await settings.load()
    kinds: list[Any] = [{"path": 1}, {"path": "/x", "version": "1", "stamp": []}, [], "x", None]
    for nonsense in kinds:
        await settings.set_programs({CODEX.driver: nonsense})
        again = Settings(store)
        await again.load()
        assert again.programs == {CODEX.driver: nonsense}
        Harnesses(again, environment=dict).load()
    await store.close()


def test_versions_are_compared_as_numbers() -> None:
    order = program_files.version_order
    assert order("0.163") < order("0.163.1") < order("0.163.10") < order("0.1000.0") < order("2.1.332")
    assert order("0.163.0-alpha.2") == order("0.163.0")
