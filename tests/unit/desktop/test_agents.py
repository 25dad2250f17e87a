"""Agents: kept, changed and deleted; a conversation keeps what it was begun with."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from desktop import agent_setup, host_tools, paths
from desktop.agents import Agents, presets_for
from desktop.app import Host
from desktop.choices import Choice
from desktop.profile_store import AgentRecord, ProfileStore, open_profile_store
from runtime_host.errors import AgentRuntimeError
from runtime_host.run import Run
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.testing.scripted import Script, ScriptedDriver
from runtime_host.tools.base import RetainedObservation, ToolCall, ToolReport
from tests.loopback.chat_server import Answer, ChatServer, behaviour
from tests.unit.desktop.seat import Seat, new_send
from ui.wire import dto

CANARY = "canary-5150-of-the-agent"


@behaviour("asks-the-clock")
async def asks_the_clock(answer: Answer) -> None:
    """Asks for the clock where it is offered, then says what it was told."""
    told = answer.told()
    answer.start_stream()
    if told or not answer.request.json().get("tools"):
        await answer.text(told[-1] if told else "There is no clock.")
        await answer.finish()
        return
    await answer.call("call_a", "clock", "{}")
    await answer.finish("tool_calls")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ProfileStore]:
    opened = await open_profile_store(tmp_path / "profile.sqlite3", profile="p")
    yield opened
    await opened.close()


@pytest.fixture
async def agents(store: ProfileStore) -> Agents:
    loaded = Agents(store)
    await loaded.load()
    return loaded


def draft(name: str, **said: Any) -> AgentRecord:
    return AgentRecord(agent_id="", name=name, **said)


async def say(host: Host, text: str, conversation_id: str | None = None, agent: str | None = None) -> tuple[str, Run]:
    [choice] = [each for each in host.choices() if each.connector == "loopback"]
    name, run = await host.conversations.send(
        conversation_id, text, request_id=os.urandom(8).hex(), choice=choice, effort="", agent=agent
    )
    await run.result()
    await host.conversations.wait_until_quiet(asyncio.Event())
    return name, run


def instructed(server: ChatServer) -> list[str]:
    """What each request for a reply said ahead of everything."""
    bodies = [request.json() for request in server.requests if request.method == "POST"]
    return ["".join(m["content"] for m in body["messages"] if m["role"] in ("system", "developer")) for body in bodies]


async def test_a_profile_begins_with_one_agent_that_stays(agents: Agents) -> None:
    assert [(record.agent_id, record.name) for record in agents] == [("assistant", "Assistant")]
    assert agents.current.agent_id == "assistant"
    with pytest.raises(AgentRuntimeError, match="only agent"):
        await agents.forget("assistant")


async def test_agents_are_kept_changed_and_found_again(agents: Agents, store: ProfileStore) -> None:
    poet = await agents.create(
        draft("Poet", instructions="Rhyme.", tools=("clock", "clock"), description=" of  verse ")
    )
    assert (poet.tools, poet.description) == (("clock",), "of verse")
    bard = await agents.edit(msgspec.structs.replace(poet, name="Bard"))
    copy = await agents.duplicate(bard.agent_id)
    again = await agents.duplicate(bard.agent_id)
    assert [copy.name, again.name] == ["Bard copy", "Bard copy 2"]
    assert msgspec.structs.replace(copy, agent_id="", name="") == msgspec.structs.replace(bard, agent_id="", name="")
    await agents.set_current(bard.agent_id)
    await agents.forget(again.agent_id)
    reread = Agents(store)
    await reread.load()
    assert list(reread) == list(agents)
    assert [record.name for record in reread] == ["Assistant", "Bard", "Bard copy"]
    assert reread.current == bard == reread.find(" bARD ") == reread.find(bard.agent_id)
    with pytest.raises(AgentRuntimeError, match="no agent called Poet"):
        reread.find("Poet")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"name": "assistant"}, "already"),
        ({"name": "A\u202eB"}, "controls"),
        ({"name": "../x"}, "path"),
        ({"description": "x" * 201}, "200 characters"),
        ({"description": "a\u202eb"}, "can be seen"),
        ({"instructions": "ü" * 32_769}, "64 KiB"),
        ({"instructions": "a\0b"}, "NUL"),
        ({"instructions": "\ud800"}, "halves"),
        ({"preset": "everything"}, "no preset"),
        ({"preset": "read"}, "name the folder"),
        ({"preset": "work", "folder": "notes"}, "full path"),
        ({"tools": ("shell",)}, "no tool called shell"),
        ({"effort": "heroic"}, "no effort"),
    ],
)
async def test_what_an_agent_cannot_be_is_said(agents: Agents, said: dict[str, Any], why: str) -> None:
    with pytest.raises(AgentRuntimeError, match=why):
        await agents.create(msgspec.structs.replace(draft("Poet"), **said))
    assert len(agents) == 1


async def test_of_a_spoiled_record_what_fits_is_read_and_no_more_is_permitted(store: ProfileStore) -> None:
    spoiled = {"preset": "anything", "folder": 5, "tools": "clock", "instructions": "Rhyme.", "later": {"x": 1}}

    def spoil(tx: Any) -> None:
        for name, record in (("one", json.dumps(spoiled)), ("two", "[]")):
            tx.db.execute(
                "INSERT INTO agents (agent_id, name, name_key, record) VALUES (?1, ?1, ?1, ?2)", (name, record)
            )

    await store.transact(spoil)
    loaded = Agents(store)
    await loaded.load()
    assert [loaded.get("one"), loaded.get("two")] == [
        AgentRecord(agent_id="one", name="one", instructions="Rhyme."),
        AgentRecord(agent_id="two", name="two"),
    ]


async def test_instructions_of_the_largest_size_are_kept_whole(agents: Agents, store: ProfileStore) -> None:
    text = "ü" * 32_768
    kept = await agents.create(draft("Poet", instructions=text))
    [_, read] = await store.read(lambda tx: tx.agents())
    assert kept.instructions == read.instructions == text


async def test_a_conversation_keeps_what_it_began_with_over_a_change_and_a_restart(
    tmp_path: Path, host: Host, server: ChatServer
) -> None:
    server.behaviour = "asks-the-clock"
    poet = await host.agents.create(draft("Poet", instructions="Rhyme.", tools=("clock",)))
    old, _ = await say(host, "Hello", agent=poet.agent_id)
    await agent_setup.keep(host, msgspec.structs.replace(poet, instructions="Never rhyme.", tools=()))
    await say(host, "Go on", old)
    assert set(instructed(server)) == {"Rhyme."}
    connector = host.connectors.find("loopback")
    assert connector is not None
    await host.__aexit__()
    server.requests.clear()
    async with Host(paths.profile(tmp_path / "data")) as later:
        _, run = await say(later, "And after a restart", old)
        assert set(instructed(server)) == {"Rhyme."}
        assert "weekday" in (await run.result()).output_text
        server.requests.clear()
        new, run = await say(later, "Hello", agent=poet.agent_id)
        assert instructed(server) == ["Never rhyme."]
        assert (await run.result()).output_text == "There is no clock."
        assert (await later.agents.count_conversations())[poet.agent_id] == 2
        row = await later.conversations.row(new)
        assert row is not None
        assert row.subtitle.startswith("Poet · Remuda")
        assert row.record.agent_id == poet.agent_id


async def test_the_clock_is_a_real_tool(host: Host, server: ChatServer) -> None:
    server.behaviour = "asks-the-clock"
    teller = await host.agents.create(draft("Teller", tools=("clock",)))
    _, run = await say(host, "What day is it?", agent=teller.agent_id)
    text = (await run.result()).output_text
    assert set(msgspec.json.decode(text)) == {"date", "weekday", "time", "zone", "utc_offset"}


async def test_an_agent_goes_with_its_conversations_file_and_folder_and_no_other(
    host: Host, server: ChatServer
) -> None:
    poet = await host.agents.create(draft("Poet", instructions=CANARY))
    kept, _ = await say(host, "Stay")
    gone, _ = await say(host, CANARY, agent=poet.agent_id)
    await host.conversations.keep_draft(gone, CANARY)
    folder = host.paths.agent(poet.agent_id)
    assert folder.is_dir()
    server.behaviour, server.tokens_per_s, server.tokens = "slow", 5.0, 400
    [choice] = [each for each in host.choices() if each.connector == "loopback"]
    running, run = await host.conversations.send(
        None, "Write on", request_id="r", choice=choice, effort="", agent=poet.agent_id
    )
    assert "2 conversations" in " ".join(await agent_setup.deletion(host, poet))
    assert "stopped first" in " ".join(await agent_setup.deletion(host, poet))
    await agent_setup.delete(host, poet.agent_id)
    assert run.done
    assert await host.conversations.names() == [kept]
    assert [await host.conversations.row(name) for name in (gone, running)] == [None, None]
    assert os.listdir(host.paths.agents) == ["assistant"]
    assert [str(p) for p in host.paths.root.rglob("*") if p.is_file() and CANARY.encode() in p.read_bytes()] == []
    server.behaviour, server.tokens_per_s = "ok", 100_000.0
    with pytest.raises(AgentRuntimeError, match="no agent"):
        await say(host, "Are you there?", agent=poet.agent_id)
    await say(host, "Go on", kept)


async def test_a_deletion_that_was_interrupted_is_undone_or_ended(tmp_path: Path, host: Host) -> None:
    """Killed before the one commit that decides, and after it."""
    undecided = await host.agents.create(draft("Undecided"))
    decided = await host.agents.create(draft("Decided"))
    kept, _ = await say(host, "Stay", agent=undecided.agent_id)
    await say(host, CANARY, agent=decided.agent_id)
    for record in (undecided, decided):
        store = await host.stores.open(record.agent_id)
        await store.rest()  # type: ignore[attr-defined]
        os.rename(host.paths.agent(record.agent_id), host.paths.gone_agent(record.agent_id))
    await host.agents.forget(decided.agent_id)
    await host.__aexit__()
    async with Host(paths.profile(tmp_path / "data")) as later:
        assert sorted(os.listdir(later.paths.agents)) == [undecided.agent_id]
        assert await later.conversations.names() == [kept]
        assert (await later.conversations.items(kept, 0, 9, 99))[0] == 2


async def test_a_reference_of_an_agent_that_is_not_there_opens_and_makes_nothing(host: Host) -> None:
    name, _ = await say(host, "Hello")
    reference = await host.conversations.reference(name)
    for agent_id in ("nobody", "../../../tmp/x", "assistant/../.."):
        foreign = reference.model_copy(update={"agent_id": agent_id})
        with pytest.raises(AgentRuntimeError, match="not yours"):
            await host.conversations.resume_reference(foreign)
    assert os.listdir(host.paths.agents) == ["assistant"]


async def test_every_agent_is_recovered_after_a_crash(tmp_path: Path, host: Host, server: ChatServer) -> None:
    poet = await host.agents.create(draft("Poet"))
    names = [(await say(host, "Hello", agent=agent))[0] for agent in ("assistant", poet.agent_id)]

    def cut_off(tx: Any) -> None:
        for name in names:
            tx.put_conversation(msgspec.structs.replace(tx.conversation(name), state="dispatched"))
        for agent in ("assistant", poet.agent_id):
            tx.put_agent_hint(agent, True, None)

    await host.profile.transact(cut_off)
    await host.__aexit__()
    async with Host(paths.profile(tmp_path / "data")) as later:
        await later.recover()
        rows = [await later.conversations.row(name) for name in names]
        assert [row and row.state for row in rows] == ["done", "done"]
        hints = await later.profile.read(lambda tx: tx.agent_hints())
        assert [hints[agent].open for agent in ("assistant", poet.agent_id)] == [False, False]


async def test_what_a_preset_means_is_the_harness_own_word(host: Host) -> None:
    [choice] = [each for each in host.choices() if each.connector == "loopback"]
    chat, read, work = await presets_for(host.runtime, choice)
    assert (chat.offered, read.offered, work.offered) == (True, True, True)
    assert "native.agent" in chat.means
    assert "open nothing outside the folder" in read.means
    assert "waits for your approval" in work.means
    assert "a wall of the host around each command" in work.means


async def test_a_model_that_calls_no_tools_is_given_no_folder(host: Host) -> None:
    [builtin] = [each for each in host.choices() if each.vendor == "builtin"]
    chat, read, work = await presets_for(host.runtime, builtin)
    assert (chat.offered, read.offered, work.offered) == (True, False, False)
    assert "calls no tools" in read.why_not
    with pytest.raises(AgentRuntimeError, match=r"Work in a folder with no tools cannot be had here: .*calls no tools"):
        await agent_setup.keep(host, draft("Worker", preset="work", folder="/srv", choice=builtin.record()))
    assert len(host.agents) == 1


async def test_a_model_that_calls_no_tools_is_not_given_any(host: Host) -> None:
    [builtin] = [each for each in host.choices() if each.vendor == "builtin"]
    with pytest.raises(AgentRuntimeError, match=r"Chat with Clock cannot be had here: .*calls no tools"):
        await agent_setup.keep(host, draft("Teller", tools=("clock",), choice=builtin.record()))
    assert len(host.agents) == 1


async def test_a_harness_that_takes_a_folder_is_offered_with_all_presets() -> None:
    driver = ScriptedDriver([Script()])

    async def storage(agent: str) -> MemoryAgentStore:
        return MemoryAgentStore()

    async with AgentRuntime(LocalBackend(drivers=[driver], storage=storage)) as runtime:
        views = await presets_for(runtime, Choice("scripted", "c", "m", "v"))
    assert [(view.preset, view.offered) for view in views] == [("chat", True), ("read", True), ("work", True)]


async def test_two_agents_have_two_private_files(host: Host) -> None:
    poet = await host.agents.create(draft("Poet"))
    await say(host, "To the first")
    await say(host, "To the second", agent=poet.agent_id)
    first, second = (host.paths.agent_store(agent) for agent in ("assistant", poet.agent_id))
    await host.stores.aclose()
    assert stat.S_IMODE(second.stat().st_mode) == 0o600
    assert b"To the second" in second.read_bytes()
    assert b"To the second" not in first.read_bytes()
    assert b"To the first" not in second.read_bytes()


async def test_an_interrupted_reading_of_the_clock_holds_nothing_up() -> None:
    context: Any = None
    resolved = await host_tools.resolve_host_tools(("clock",), context)
    assert resolved.reconcile is not None
    receipt = await resolved.reconcile(ToolCall("s", "r", "c", "clock", {}), context)
    assert receipt is not None
    assert (receipt.settled, receipt.report.success, receipt.call_id) == (True, False, "c")
    with pytest.raises(AgentRuntimeError, match="no tool called shell"):
        await host_tools.resolve_host_tools(("clock", "shell"), context)


def test_a_reading_that_could_not_be_kept_is_said_without_what_it_was() -> None:
    told: list[tuple[str, str]] = []
    hear = host_tools.retained(lambda code, sentence: told.append((code, sentence)))
    hear(RetainedObservation(ToolCall("s", "r", "c", "clock", {}), ToolReport(payload={"time": CANARY}), "storage"))
    [(code, sentence)] = told
    assert code == "TOOL_RESULT_NOT_KEPT"
    assert "clock" in sentence
    assert CANARY not in sentence


def test_the_clock_tells_where_it_is() -> None:
    at = datetime(2026, 3, 1, 7, 5, 9, tzinfo=timezone(timedelta(hours=5, minutes=30), "IST"))
    assert host_tools.reading(at) == {
        "date": "2026-03-01",
        "weekday": "Sunday",
        "time": "07:05:09",
        "zone": "IST",
        "utc_offset": "+05:30",
    }


async def test_in_the_window_an_agent_whose_model_is_gone_goes_to_no_other_of_itself(
    host: Host, seat: Seat, server: ChatServer
) -> None:
    await host.settings.set_welcomed()
    gone = {"driver": "native.agent", "connector": "removed", "model": "old-model"}
    poet = await host.agents.create(draft("Poet", choice=gone))
    await host.agents.set_current(poet.agent_id)
    puppet = seat.puppet
    await puppet.lock()
    assert (await puppet.ask(dto.NewConversation(request=puppet.request()))).status == "done"
    outcome = await puppet.ask(new_send(puppet, "Hello"))
    assert (outcome.status, outcome.code) == ("refused", "CHOICE_GONE")
    assert "old-model at removed is not set up here" in outcome.text
    assert [request for request in server.requests if request.method == "POST"] == []
