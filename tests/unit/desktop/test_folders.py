"""A harness that is a program, from the renderer's side: in the picker, in a folder that it keeps, at rest."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from desktop import conversations, harness_setup, late_driver
from desktop.agents import definition
from desktop.app import Host
from desktop.choices import CLAUDE, CODEX, Choice
from desktop.conversations import OWNER
from desktop.dialogs import Answer, Form
from desktop.harness_views import harness_id
from desktop.terms import terms
from runtime_host.capabilities import DriverInspection
from runtime_host.connectors.base import Connector, SecretRef
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.errors import (
    AgentNativeExecutionError,
    AgentPolicyUnsupportedError,
    AgentRuntimeDependencyError,
    AgentRuntimeError,
)
from runtime_host.testing.scripted import Hold, Script, ScriptedDriver, reply
from tests.puppet import until
from tests.unit.desktop.seat import Seat, new_send
from ui.wire import dto

pytestmark = pytest.mark.needs("linux")

CODEX_SAYS, CLAUDE_SAYS = "codex-cli 0.163.0", "2.1.332 (Claude Code)"


class FolderHarness(ScriptedDriver):
    """Works in a folder and nowhere else, and reads by commands."""

    async def inspect(self, asked: AgentDefinition, options: SessionOptions) -> DriverInspection:
        said = await super().inspect(asked, options)
        if options.environment.type != "local-directory" or options.policy.commands != "sandboxed":
            raise AgentPolicyUnsupportedError("It works in a folder, by commands.")
        return said.model_copy(update={"enforcement": {"filesystem": f"{self.driver_id}: its own sandbox"}})


class Person:
    """Answers the trusted dialogs in a row, and remembers what was asked."""

    def __init__(self, *answers: dict[str, Answer] | None) -> None:
        self.answers = list(answers)
        self.asked: list[Form] = []

    async def ask_form(self, form: Form) -> dict[str, Answer] | None:
        self.asked.append(form)
        return self.answers.pop(0) if self.answers else None

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str, str], Path]:
    def made(name: str, says: str) -> Path:
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\necho '{says}'\n", encoding="utf-8")
        file.chmod(0o755)
        return file

    return made


@pytest.fixture
def codex() -> FolderHarness:
    return FolderHarness([Script(reply("done"))], driver_id=CODEX)


@pytest.fixture
async def local(
    host: Host, codex: FolderHarness, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> Host:
    """A host with a key for OpenAI and a Codex CLI; what speaks to the CLI does as its script says."""
    monkeypatch.setattr(harness_setup, "_brought", lambda kind: None)
    host.harnesses._standing.clear()
    for late in host._late:
        driver = codex if late.driver_id == CODEX else ScriptedDriver([Script(reply("hello"))], driver_id=CLAUDE)
        monkeypatch.setattr(late, "_load", lambda driver=driver: lambda: driver)
    for name, vendor in (("Hosted", "openai"), ("Other", "anthropic")):
        secret = SecretRef(kind="env", name="TEST_PROVIDER_SECRET")
        await host.connectors.add(
            Connector.model_validate({"name": name, "vendor": vendor, "secret": secret, "models": (f"{vendor}-1",)})
        )
    await host.harnesses.pick(CODEX, str(program("codex", CODEX_SAYS)))
    return host


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def answering(host: Host, monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Answer] | None) -> Person:
    person = Person(*answers)

    async def trusted() -> Person:
        return person

    monkeypatch.setattr(host, "trusted", trusted)
    return person


def choice_of(host: Host, driver: str) -> Choice:
    return next(host.choices().of(driver))


async def choose(seat: Seat, host: Host, driver: str) -> dto.Selected:
    puppet, choice = seat.puppet, choice_of(host, driver)
    await puppet.say(dto.WantChoices(filter=choice.harness_name))
    await puppet.wait_for(dto.Choices, lambda c: any(one.id == choice.choice_id for one in c.choices))
    after = len(puppet.told)
    await puppet.ask(dto.Choose(request=puppet.request(), revision=puppet.binding.revision, choice=choice.choice_id))
    return await puppet.wait_for(dto.Selected, lambda s: s.choice == choice.choice_id, after=after)


async def propose(seat: Seat, action: dto.Action, target: str | None = None) -> dto.Outcome:
    return await seat.puppet.ask(dto.Propose(request=seat.puppet.request(), action=action, target=target))


@pytest.fixture
async def sitting(seat: Seat, local: Host) -> Seat:
    await seat.puppet.lock()
    await seat.puppet.wait_for(dto.Selected)
    return seat


# ------------------------------------------------------------------------------------ the picker


async def test_a_harness_is_offered_where_its_program_and_a_key_are_here(local: Host, tmp_path: Path) -> None:
    offered = [(choice.driver, choice.connector) for choice in local.choices()]
    assert (CODEX, "Hosted") in offered
    assert {name for driver, name in offered if driver == CODEX} == {"Hosted"}, "whose API it speaks, and nobody else's"
    assert not [driver for driver, _ in offered if driver == CLAUDE], "its program is not here"
    codex = choice_of(local, CODEX)
    assert (codex.harness_name, codex.folder, codex.touches) == ("Codex", "required", "one folder that you choose")
    assert "touches nothing" not in codex.sentence()
    assert local.choices().default() != codex, "a first answer needs none of it"
    await local.connectors.add(Connector(name="Keyless", vendor="openai", models=("m",)))
    assert [c.connector for c in local.choices().of(CODEX)] == ["Hosted"], "no key, no harness: its login is not ours"
    (tmp_path / "bin/codex").unlink()
    await local.harnesses.look()
    assert not list(local.choices().of(CODEX))


async def test_the_page_tells_how_each_harness_stands(
    sitting: Seat, local: Host, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    puppet = sitting.puppet
    await puppet.say(dto.WantPage(page="harnesses"))
    page = await puppet.wait_for(dto.Harnesses, lambda p: all(row.state != "looking" for row in p.rows))
    own, codex, claude, *services = page.rows
    assert (own.name, own.state, own.program) == ("Remuda", "ready", False)
    assert (codex.name, codex.state, codex.version, codex.picked) == ("Codex", "ready", "0.163.0", True)
    assert codex.path.endswith("/bin/codex")
    assert {badge.name: badge.support for badge in codex.badges}["Stops when asked"] == "native"
    assert "Files: its own sandbox" in codex.held
    assert (claude.name, claude.state) == ("Claude", "missing")
    assert "make harnesses" in claude.way
    assert [row.state for row in services] == ["ready"] * 2
    # Another program is picked in the trusted dialog, and what is wrong with one is said there.
    wrong, right = program("wrong", CLAUDE_SAYS), program("right", "codex-cli 0.163.7")
    person = answering(local, monkeypatch, {"path": str(wrong)}, {"path": str(right)})
    assert (await propose(sitting, "pick-program", harness_id(CODEX))).status == "done"
    assert "does not say that it is Codex" in person.asked[1].fields[0].problem
    changed = await puppet.wait_for(dto.Harnesses, lambda p: p.rows[1].version == "0.163.7")
    assert changed.rows[1].path == str(right)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HOME", "/nowhere")
    assert (await propose(sitting, "forget-program", harness_id(CODEX))).status == "done"
    await puppet.wait_for(dto.Harnesses, lambda p: not p.rows[1].picked)


# ------------------------------------------------------------------------------------ the folder


async def test_a_folder_is_chosen_in_the_trusted_dialog_shown_and_kept(
    sitting: Seat, local: Host, codex: FolderHarness, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puppet = sitting.puppet
    selected = await choose(sitting, local, CODEX)
    assert (selected.folder, selected.folder_use, selected.enter) == ("", "required", "Choose a folder first")
    assert "no folder chosen yet" in selected.sentence
    refused = await puppet.ask(new_send(puppet, "hello"))
    assert (refused.status, refused.code) == ("refused", "FOLDER_NEEDED")
    assert codex.openings == []

    link = tmp_path / "link"
    link.symlink_to(folder)
    data = str(local.paths.data)
    answers: list[dict[str, Answer]] = [
        {"path": path, "access": "read"}
        for path in ("relative", str(tmp_path / "missing"), "/", data, str(local.paths.run), str(tmp_path))
    ]
    person = answering(local, monkeypatch, *answers, {"path": str(link), "access": "read"})
    after = len(puppet.told)
    assert (await propose(sitting, "choose-folder")).status == "done"
    problems = [form.fields[0].problem for form in person.asked[1:]]
    assert len(problems) == 6
    assert all(problems)
    assert "what this program keeps" in problems[3]
    assert "what this program keeps" in problems[4]
    assert "what this program keeps" in problems[5], "the data folder lies in it"
    selected = await puppet.wait_for(dto.Selected, lambda s: s.folder != "", after=after)
    assert (selected.folder, selected.folder_use) == (str(folder), "required"), "the real place is shown"
    assert selected.access == "reads only; its commands cannot write"
    assert selected.access in selected.sentence

    sent = await puppet.ask(new_send(puppet, "hello"))
    assert sent.status == "done"
    begun = await puppet.wait_for(dto.Selected, lambda s: s.conversation is not None, after=after)
    assert (begun.folder, begun.folder_use) == (str(folder), "fixed")
    name = begun.conversation
    assert name is not None
    await until(lambda: not local.conversations.running())
    options = codex.openings[0].options
    assert (options.environment.path, options.policy.filesystem) == (str(folder), "read-only")
    assert options.policy.commands == "sandboxed"
    bound = await propose(sitting, "choose-folder", name)
    assert (bound.status, bound.code) == ("refused", "SESSION_BOUND")
    # Also when nobody holds its session any more.
    await local.conversations.detach(name)
    kept = await local.conversations.terms_of(name)
    assert kept is not None
    assert kept.environment.path == str(folder)


async def test_what_the_next_conversation_touches_begins_anew(
    sitting: Seat, local: Host, folder: Path, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    puppet = sitting.puppet
    await local.harnesses.pick(CLAUDE, str(program("claude", CLAUDE_SAYS)))
    selected = await choose(sitting, local, CLAUDE)
    assert (selected.folder_use, selected.folder) == ("optional", "")
    assert "touches nothing" in selected.sentence
    answering(local, monkeypatch, {"path": str(folder), "access": "work"}, None)
    await propose(sitting, "choose-folder")
    working = await puppet.wait_for(dto.Selected, lambda s: s.folder != "")
    assert working.access == "reads and changes files, runs commands"
    assert (await propose(sitting, "choose-folder")).code == "NOT_DONE", "no is no"
    after = len(puppet.told)
    await propose(sitting, "clear-folder")
    cleared = await puppet.wait_for(dto.Selected, after=after)
    assert (cleared.folder, cleared.access) == ("", "")
    await propose(sitting, "choose-folder")
    native = await choose(sitting, local, "native.agent")
    assert (native.folder_use, native.folder) == ("optional", "")
    assert "touches nothing" in native.sentence
    await (await local.gateway("assistant")).mounts.switch("web", "on")
    answering(local, monkeypatch, {"path": str(folder), "access": "read"})
    after = len(puppet.told)
    await propose(sitting, "choose-folder")
    reading = await puppet.wait_for(dto.Selected, lambda s: s.folder != "", after=after)
    assert reading.access == "reads only"
    assert "reads only · uses web" in reading.sentence


async def test_a_model_that_calls_no_tools_works_in_no_folder(sitting: Seat, local: Host) -> None:
    tiny = next(local.choices().of("native.agent", "builtin"))
    local.desk._new_choice = (tiny.choice_id, "")
    assert (await propose(sitting, "choose-folder")).code == "FOLDER_NOT_USED"


async def test_an_opened_session_in_which_nothing_was_said_takes_another_folder(
    sitting: Seat, local: Host, codex: FolderHarness, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = choice_of(local, CODEX)
    name = await local.conversations.begin(choice, "", terms("read", f"dir:{folder}", CODEX))
    before = (await local.conversations.reference(name)).session_id
    other = tmp_path / "other"
    other.mkdir()
    await sitting.puppet.say(dto.WantConversations(filter="", first=0, count=10))
    await sitting.puppet.wait_for(dto.Conversations, lambda c: any(row.id == name for row in c.rows))
    await sitting.puppet.ask(dto.Select(request=sitting.puppet.request(), conversation=name))
    answering(local, monkeypatch, {"path": str(other), "access": "work"})
    assert (await propose(sitting, "choose-folder", name)).status == "done"
    selected = await sitting.puppet.wait_for(dto.Selected, lambda s: s.folder == str(other))
    assert (selected.folder_use, selected.access) == ("required", "reads and changes files, runs commands")
    assert [session for session, _ in codex.forgotten] == [before], "what was opened first is not left behind"
    await local.conversations.send(name, "hello", request_id="r1", choice=choice, effort="")
    await until(lambda: not local.conversations.running())
    assert [item.kind async for item in local.conversations.all_items(name)] == ["user", "reply"]
    with pytest.raises(AgentRuntimeError, match="keeps the folder it began with"):
        await local.conversations.change_terms(name, terms("read", f"dir:{folder}", CODEX))  # type: ignore[arg-type]


async def test_an_agent_gives_its_folder_and_no_harness_touches_more_than_it_says(local: Host, folder: Path) -> None:
    from desktop import agent_setup
    from desktop.profile_store import AgentRecord

    choice = choice_of(local, CODEX)
    record = {key: value for key, value in choice.record().items() if key != "effort"}
    kept = await agent_setup.keep(
        local, AgentRecord(agent_id="", name="Worker", choice=record, preset="work", folder=str(folder))
    )
    inspected = await local.conversations.inspect(choice, "", agent=kept.agent_id)
    assert (inspected.environment.root, inspected.driver_id) == (str(folder), CODEX)
    # One without a folder is asked for one with each conversation.
    free = await agent_setup.keep(local, AgentRecord(agent_id="", name="Free", choice=record))
    assert (free.preset, free.folder) == ("chat", "")
    with pytest.raises(AgentRuntimeError, match="what this program keeps"):
        await agent_setup.keep(
            local,
            AgentRecord(agent_id="", name="Nosy", choice=record, preset="read", folder=str(local.paths.root)),
        )


# ------------------------------------------------------------------------------------ resting


async def begun(host: Host, folder: Path, text: str = "hello") -> tuple[str, Choice]:
    choice = choice_of(host, CODEX)
    name, _ = await host.conversations.send(
        None, text, request_id=text, choice=choice, effort="", terms=terms("work", f"dir:{folder}", CODEX)
    )
    await until(lambda: not host.conversations.running())
    return name, choice


async def test_a_program_of_which_nothing_is_asked_is_let_go_and_taken_up_again(
    local: Host, codex: FolderHarness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.conversations, "_rest_s", 0.05)
    name, choice = await begun(local, folder)
    await until(lambda: codex.closes == 1)
    assert codex.forgotten == []
    held = asyncio.Event()
    codex.scripts = [Script((Hold(held), *reply("again")))]
    _, run = await local.conversations.send(name, "more", request_id="r2", choice=choice, effort="")
    await asyncio.sleep(0.2)
    assert codex.closes == 1, "a run is not let go of"
    held.set()
    assert (await run.result()).status == "completed"
    await until(lambda: codex.closes == 2)
    assert len(codex.openings) == 2
    assert codex.openings[1].session_id == codex.openings[0].session_id
    assert (codex.openings[1].state or {}).get("turns") == 1, "where it was"
    assert [item.text async for item in local.conversations.all_items(name)] == ["hello", "done", "more", "again"]


async def test_messages_and_rests_do_not_get_into_each_others_way(
    local: Host, codex: FolderHarness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.conversations, "_rest_s", 0.0)
    name, choice = await begun(local, folder)
    for number in range(20):
        _, run = await local.conversations.send(name, "m", request_id=f"n{number}", choice=choice, effort="")
        assert (await run.result()).status == "completed"
        await until(lambda: not local.conversations.running())
        await asyncio.sleep(0.001 * (number % 4))
    assert len(codex.sent) == 21


async def test_deleting_a_conversation_removes_what_its_harness_keeps_and_the_end_of_the_host_does_not(
    local: Host, codex: FolderHarness, folder: Path
) -> None:
    name, _ = await begun(local, folder)
    other, _ = await begun(local, folder, "other")
    session = (await local.conversations.reference(name)).session_id
    kept = (await local.conversations.reference(other)).session_id
    await local.conversations.delete(name)
    assert [forgotten for forgotten, _ in codex.forgotten] == [session]
    await local.conversations.aclose()
    assert [forgotten for forgotten, _ in codex.forgotten] == [session]
    assert codex.closes == 2
    assert kept != session


async def test_a_conversation_that_its_harness_cannot_take_up_stays_readable_and_says_what_to_do(
    local: Host, codex: FolderHarness, folder: Path
) -> None:
    name, choice = await begun(local, folder)
    await local.conversations.detach(name)
    codex.open_fails = AgentNativeExecutionError("Codex does not find this conversation any more.")
    with pytest.raises(AgentRuntimeError) as refused:
        await local.conversations.send(name, "more", request_id="r2", choice=choice, effort="", composed=True)
    assert refused.value.message == (f"Codex does not find this conversation any more. {conversations.STAYS_READABLE}")
    assert [item.text async for item in local.conversations.all_items(name)] == ["hello", "done"]
    assert await local.conversations.draft(name) == "more", "what was typed is still there"
    await local.conversations.delete(name)


async def test_a_program_that_went_away_is_said_before_anything_is_sent(
    local: Host, codex: FolderHarness, folder: Path, tmp_path: Path
) -> None:
    name, choice = await begun(local, folder)
    await local.conversations.detach(name)
    (tmp_path / "bin/codex").unlink()
    with pytest.raises(AgentRuntimeDependencyError, match="Codex"):
        await local.conversations.send(name, "more", request_id="r2", choice=choice, effort="")
    assert len(codex.sent) == 1
    assert [item.text async for item in local.conversations.all_items(name)] == ["hello", "done"]


# ------------------------------------------------------------------------------------ late


async def test_a_harness_is_loaded_once_when_it_is_first_used(local: Host, codex: FolderHarness, folder: Path) -> None:
    loads: list[str] = []

    def load() -> Callable[[], Any]:
        loads.append("load")
        return lambda: codex

    late = late_driver.LateDriver(CODEX, load)
    assert late.loaded is None
    asked = definition(local.agents.current)
    made = terms("work", f"dir:{folder}", CODEX)
    assert made is not None
    options = SessionOptions(
        execution=choice_of(local, CODEX).execution(),
        context=OWNER,
        policy=made.policy,
        environment=made.environment,
    )
    both = await asyncio.gather(late.inspect(asked, options), late.inspect(asked, options))
    assert both[0] == both[1]
    assert loads == ["load"]
    await late.aclose()


async def test_a_harness_that_cannot_be_loaded_is_said_each_time(local: Host, folder: Path) -> None:
    def load() -> Callable[[], Any]:
        raise ModuleNotFoundError("no", name="claude_agent_sdk")

    late = late_driver.LateDriver(CLAUDE, load)
    for _ in range(2):
        with pytest.raises(AgentRuntimeDependencyError, match="claude_agent_sdk"):
            await late.forget("a", "s", None)
    await late.aclose()
    with pytest.raises(AgentRuntimeError, match="ending"):
        await late.forget("a", "s", None)
