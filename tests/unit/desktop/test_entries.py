"""Agents, profiles and everything at once, as the person is asked for them in trusted dialogs."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from desktop import dialogs, profiles
from desktop.app import Host
from desktop.dialog import wire
from desktop.dialogs import DeleteConfirmation, Form
from desktop.profile_store import AgentRecord
from desktop.questions import agent as agent_entry
from desktop.questions import profile as profile_entry
from runtime_host.connectors.base import Connector
from runtime_host.errors import AgentRuntimeError

Answers = dict[str, Any] | None


class Person:
    """Fills in forms and answers questions, one after the other, and remembers what was shown."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.forms: list[Form] = []
        self.questions: list[DeleteConfirmation] = []

    async def ask_form(self, form: Form) -> Answers:
        self.forms.append(form)
        given = self.answers.pop(0)
        if given is None:
            return None
        return {field.id: given.get(field.id, field.value) for field in form.fields}

    async def confirm(self, question: DeleteConfirmation) -> bool:
        self.questions.append(question)
        return bool(self.answers.pop(0))


@pytest.fixture
def meet(host: Host, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Person]:
    def met(*answers: Any) -> Person:
        person = Person(*answers)

        async def trusted() -> Person:
            return person

        monkeypatch.setattr(host, "trusted", trusted)
        return person

    return met


def field(form: Form, name: str) -> Any:
    return next(field for field in form.fields if field.id == name)


async def test_an_agent_is_entered_and_what_was_wrong_is_said_at_its_place(
    host: Host, meet: Callable[..., Person]
) -> None:
    [choice] = [each for each in host.choices() if each.connector == "loopback"]
    person = meet({"name": "assistant", "instructions": "Rhyme."}, {"name": "Poet"}, {"name": "Poet"})
    person.answers[1] |= {"model": choice.choice_id, "tools": ("clock",)}
    kept = await agent_entry.add(host)
    assert kept is not None
    assert (kept.name, kept.instructions, kept.tools) == ("Poet", "Rhyme.", ("clock",))
    assert (kept.choice or {})["connector"] == "loopback"
    first, again = person.forms
    assert "already" in field(again, "name").problem
    assert field(again, "instructions").value == "Rhyme."
    assert again.problem == ""
    # What the harness takes is offered, in its own words, and a folder only where it is used.
    assert [option.value for option in field(first, "preset").options] == ["chat", "read", "work"]
    assert field(first, "preset").help == ""
    assert field(first, "folder").when == ("preset", ("read", "work"))
    assert [option.value for option in field(first, "tools").options] == ["clock"]


async def test_an_agent_is_changed_as_it_stands_and_nothing_else(host: Host, meet: Callable[..., Person]) -> None:
    gone = {"driver": "native.agent", "connector": "removed", "model": "old-model"}
    record = await host.agents.create(AgentRecord(agent_id="", name="Poet", instructions="Rhyme.", choice=gone))
    person = meet(None)
    assert await agent_entry.edit(host, record.agent_id) is None
    [form] = person.forms
    assert field(form, "model").value in [option.value for option in field(form, "model").options]
    # A model that is gone stays as long as nothing else is chosen, but nothing is kept with it.
    person = meet({"description": "Writes"}, {"model": "usual"})
    changed = await agent_entry.edit(host, record.agent_id)
    assert "not set up here" in person.forms[1].problem
    assert changed is not None
    assert (changed.agent_id, changed.description, changed.choice) == (record.agent_id, "Writes", None)
    meet({})
    assert await agent_entry.edit(host, record.agent_id) == changed
    assert await agent_entry.edit(host, "nobody") is None


async def test_the_largest_agent_among_many_models_fits_the_trusted_form(
    host: Host, meet: Callable[..., Person]
) -> None:
    await host.connectors.add(
        Connector(
            name="many",
            vendor="openai-compatible",
            base_url="http://127.0.0.1:9/v1",
            models=tuple(f"{number}-{'m' * 100}" for number in range(900)),
        )
    )
    draft = AgentRecord(agent_id="", name="P" * 64, description="ü" * 200, instructions="ü" * 32_768)
    record = await host.agents.create(draft)
    person = meet(None)
    await agent_entry.edit(host, record.agent_id)
    asked = dialogs._form(person.forms[0], 1)
    [frame] = wire.dialog_decoder().feed(wire.host_encoder().encode([asked]))
    assert list(frame.messages) == [asked]
    [shown] = [each for each in asked.fields if each.id == "instructions"]
    assert shown.value == draft.instructions


async def test_an_agent_is_doubled_and_deleted_after_a_question(host: Host, meet: Callable[..., Person]) -> None:
    copy = await agent_entry.duplicate(host, "assistant")
    assert copy is not None
    assert copy.name == "Assistant copy"
    person = meet(False)
    assert await agent_entry.delete(host, copy.agent_id) is False
    assert person.questions[0].what == "agent"
    assert "no conversations" in " ".join(person.questions[0].goes)
    meet(True)
    assert await agent_entry.delete(host, copy.agent_id) is True
    with pytest.raises(AgentRuntimeError, match="only agent"):
        await agent_entry.delete(host, "assistant")


async def test_a_profile_is_made_renamed_and_deleted(host: Host, meet: Callable[..., Person]) -> None:
    data = host.paths.data
    person = meet({"name": "personal"}, {"name": "a/b"}, {"name": "Work"})
    made = await profile_entry.add(host)
    assert made is not None
    assert made.name == "work"
    assert "already" in field(person.forms[1], "name").problem
    assert "path" in field(person.forms[2], "name").problem
    person = meet({"name": "Office"})
    assert await profile_entry.rename(host, "work") == "Office"
    assert field(person.forms[0], "name").value == "Work"
    meet({"name": "Mine"})
    assert await profile_entry.rename(host, "personal") == host.profile_name == "Mine"
    with pytest.raises(AgentRuntimeError, match="you are in"):
        await profile_entry.delete(host, "personal")
    async with Host(made):
        with pytest.raises(AgentRuntimeError, match="is open"):
            await profile_entry.delete(host, "work")
    meet(False)
    assert await profile_entry.delete(host, "work") is False
    person = meet(True)
    assert await profile_entry.delete(host, "work") is True
    assert str(made.root) in " ".join(person.questions[0].goes)
    assert [entry.profile_id for entry in profiles.list_profiles(data)] == ["personal"]
    with pytest.raises(AgentRuntimeError, match="no such profile"):
        await profile_entry.open_profile(host, "work")


async def test_everything_is_exported_to_where_the_person_says(
    host: Host, meet: Callable[..., Person], tmp_path: Path
) -> None:
    there = tmp_path / "there.zip"
    there.touch()
    person = meet(None, {"path": str(there)}, {"path": "all.zip"}, {"path": str(tmp_path / "all.zip")})
    assert await profile_entry.ask_destination(host) is None
    assert field(person.forms[0], "path").value.endswith(".zip")
    chosen = await profile_entry.ask_destination(host)
    assert chosen is not None
    assert "already" in field(person.forms[2], "path").problem
    assert "full path" in field(person.forms[3], "path").problem
    told: list[tuple[int, int]] = []
    await profile_entry.export_all(host, chosen, lambda done, of: told.append((done, of)))
    assert told[-1] == (2, 2)
    assert chosen.stat().st_size > 0


async def test_everything_is_removed_after_a_question_though_who_asked_has_left(
    host: Host, meet: Callable[..., Person]
) -> None:
    meet(False)
    assert await profile_entry.remove_all(host) is False
    assert not host.ended.is_set()
    person = meet(True)
    asking = asyncio.ensure_future(profile_entry.remove_all(host))
    for _ in range(1_000):
        if not host.removing:
            await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    await host.ended.wait()
    assert "of files" in " ".join(person.questions[0].goes)
    await host.__aexit__()
    assert not host.paths.root.exists()
