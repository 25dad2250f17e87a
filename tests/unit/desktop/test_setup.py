"""The settings from the renderer's side: what is shown, what may be proposed, and what comes of it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from desktop import desk_setup
from desktop.app import Host
from desktop.build import BUILD
from desktop.connector_setup import ConnectorSetup
from desktop.dialogs import Answer, ConnectorEntry, ConnectorPrefill, Form
from desktop.discovery import Found
from desktop.secret import Secret
from runtime_host.connectors.base import Connector, ConnectorTest, SecretRef
from runtime_host.models.facts import ModelFacts
from tests.loopback.chat_server import ChatServer
from tests.unit.desktop.seat import Seat
from ui.wire import dto
from ui.wire.framing import HEAD

CANARY = "sk-canary-0123456789"
MANY = Connector(
    name="Many",
    vendor="openai-compatible",
    base_url="http://127.0.0.1:9/v1",
    models=tuple(f"vendor/Model-{number}" for number in range(3_000)),
    facts=(
        ModelFacts(
            model="vendor/Model-7",
            context_tokens=131_072,
            efforts=("low", "high"),
            images=False,
            price_input_usd=3.0,
            price_cached_usd=0.075,
            price_output_usd=1_250.5,
            origin="provider",
        ),
        ModelFacts(model="vendor/Model-8", context_tokens=4_096, display_name="Straße", origin="declared"),
    ),
)


class Person:
    """Answers the trusted dialogs, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.entry: ConnectorEntry | None = None
        self.answers: dict[str, Answer] | None = None
        self.yes = False
        self.thinking = asyncio.Event()
        self.thinking.set()

    async def ask_connector(self, prefill: ConnectorPrefill, *more: object, **names: object) -> ConnectorEntry | None:
        self.asked.append(prefill)
        await self.thinking.wait()
        entry, self.entry = self.entry, None
        return entry

    async def ask_form(self, form: Form) -> dict[str, Answer] | None:
        self.asked.append(form)
        await self.thinking.wait()
        return self.answers

    async def ask_key(self, name: str, address: str, problem: str = "") -> Secret | None:
        self.asked.append((name, address, problem))
        await self.thinking.wait()
        return None

    async def confirm(self, question: object) -> bool:
        self.asked.append(question)
        await self.thinking.wait()
        return self.yes

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.fixture
async def person(host: Host, monkeypatch: pytest.MonkeyPatch) -> Person:
    there = Person()

    async def trusted() -> Person:
        return there

    monkeypatch.setattr(host, "trusted", trusted)
    return there


@pytest.fixture
async def sitting(seat: Seat) -> Seat:
    await seat.puppet.lock()
    await seat.puppet.wait_for(dto.Selected)
    await seat.puppet.wait_for(dto.Connectors)
    return seat


async def look_for(seat: Seat, text: str, connector: str | None = None) -> dto.Choices:
    after = len(seat.puppet.told)
    await seat.puppet.say(dto.WantChoices(filter=text, connector=connector))
    return await seat.puppet.wait_for(dto.Choices, lambda c: (c.filter, c.connector) == (text, connector), after=after)


async def rows_of(seat: Seat) -> dict[str, dto.ConnectorRow]:
    after = len(seat.puppet.told)
    seat.channel.changed("connectors")
    return {row.name: row for row in (await seat.puppet.wait_for(dto.Connectors, after=after)).rows}


# ---------------------------------------------------------------------------------- the picker


async def test_thousands_of_models_are_searched_and_a_hundred_shown(sitting: Seat, host: Host) -> None:
    await host.connectors.add(MANY)
    every = await sitting.puppet.wait_for(
        dto.Choices, lambda c: c.chosen is not None and c.chosen.model == "vendor/Model-0"
    )
    assert (len(every.choices), every.total) == (dto.MOST_CHOICES, 3_002)
    found = await look_for(sitting, "MODEL-299 many ")
    assert found.total == 11
    assert [choice.model for choice in found.choices][:2] == ["vendor/Model-299", "vendor/Model-2990"]
    assert found.chosen == every.chosen, "what is chosen is told whether it is found or not"
    many = (await rows_of(sitting))["Many"]
    narrow = await look_for(sitting, "model-29", many.id)
    assert {choice.connector for choice in narrow.choices} == {"Many"}
    assert (await look_for(sitting, "no such model")).total == 0


async def test_facts_are_told_in_words_with_units_and_with_who_says_so(sitting: Seat, host: Host) -> None:
    await host.connectors.add(MANY)
    known = (await look_for(sitting, "vendor/model-7")).choices[0]
    assert known.model == "vendor/Model-7"
    assert known.context == "131,072 tokens"
    assert known.price == "$3 in, $0.075 cached, $1,250.50 out per million tokens"
    assert (known.badge, known.images, known.efforts) == ("", False, ("low", "high"))
    declared = (await look_for(sitting, "STRASSE")).choices[0]
    assert (declared.model, declared.badge, declared.context) == ("vendor/Model-8", "declared", "4,096 tokens")
    unknown = (await look_for(sitting, "vendor/model-9")).choices[0]
    assert (unknown.context, unknown.price, unknown.badge, unknown.images) == ("", "", "", True)


async def test_model_and_effort_can_be_another_for_the_next_message(sitting: Seat, host: Host) -> None:
    await host.connectors.add(MANY)
    puppet = sitting.puppet
    choice = (await look_for(sitting, "vendor/model-7")).choices[0]
    after = len(puppet.told)
    outcome = await puppet.ask(
        dto.Choose(request=puppet.request(), revision=puppet.binding.revision, choice=choice.id, effort="high")
    )
    assert outcome.status == "done"
    selected = await puppet.wait_for(dto.Selected, after=after)
    assert (selected.choice, selected.effort, selected.images) == (choice.id, "high", False)
    chosen = await puppet.wait_for(dto.Choices, lambda c: c.chosen is not None and c.chosen.id == choice.id)
    assert chosen.chosen is not None
    refused = await puppet.ask(
        dto.Choose(request=puppet.request(), revision=puppet.binding.revision, choice=choice.id, effort="most")
    )
    assert (refused.status, refused.code) == ("refused", "EFFORT_UNKNOWN")


async def test_a_default_is_kept_for_a_connector_and_for_the_profile(sitting: Seat, host: Host) -> None:
    await host.connectors.add(MANY)
    puppet = sitting.puppet
    choice = (await look_for(sitting, "vendor/model-8")).choices[0]
    for scope in ("connector", "profile"):
        outcome = await puppet.ask(dto.SetDefault(request=puppet.request(), choice=choice.id, scope=scope))
        assert outcome.status == "done"
    assert (await rows_of(sitting))["Many"].default_model == "vendor/Model-8"
    assert (await look_for(sitting, "vendor/model-8")).choices[0].default
    assert host.settings.default_choice == {
        "driver": "native.agent", "connector": "Many", "model": "vendor/Model-8", "effort": ""
    }  # fmt: skip
    after = len(puppet.told)
    await puppet.ask(dto.NewConversation(request=puppet.request()))
    assert (await puppet.wait_for(dto.Selected, after=after)).choice == choice.id


# ------------------------------------------------------------------------------------- the pages


async def test_nothing_is_looked_at_before_a_page_is_opened(
    sitting: Seat, host: Host, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    state = host.credentials.state

    async def noted() -> Any:
        looked.append("key store")
        return await state()

    monkeypatch.setattr(host.credentials, "state", noted)
    puppet = sitting.puppet
    await look_for(sitting, "")
    await rows_of(sitting)
    told = {type(message) for message in puppet.told}
    assert not told & {dto.KeyStore, dto.Found, dto.Agents, dto.Profiles, dto.Stored, dto.Network}
    assert looked == []
    asked = len(server.requests)
    await puppet.say(dto.WantPage(page="connections"))
    store = await puppet.wait_for(dto.KeyStore)
    assert store.sentence
    assert looked == ["key store"]
    assert len(server.requests) == asked, "no server is asked for a page"


async def test_each_page_shows_what_there_is(sitting: Seat, host: Host) -> None:
    puppet = sitting.puppet
    for page in ("agents", "profiles", "stored"):
        await puppet.say(dto.WantPage(page=page))
    agents = await puppet.wait_for(dto.Agents)
    assert [(row.name, row.current) for row in agents.rows] == [("Assistant", True)]
    profiles = await puppet.wait_for(dto.Profiles)
    assert [(row.current, row.running) for row in profiles.rows] == [(True, True)]
    stored = await puppet.wait_for(dto.Stored)
    assert any(row.path == str(host.paths.store) and row.size_bytes > 0 for row in stored.rows)
    assert stored.total_bytes >= max(row.size_bytes for row in stored.rows)


async def test_a_flood_of_pages_and_searches_costs_one_each(
    sitting: Seat, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    going_on = asyncio.Event()
    state = host.credentials.state

    async def slow() -> Any:
        nonlocal looks
        looks += 1
        await going_on.wait()
        return await state()

    monkeypatch.setattr(host.credentials, "state", slow)
    puppet = sitting.puppet
    after = len(puppet.told)
    for _ in range(4):
        await puppet.say(*[dto.WantPage(page="connections")] * 100)
    for number in range(4):
        await puppet.say(*[dto.WantChoices(filter=f"{number} {other}") for other in range(100)])
    await puppet.wait_for(dto.Choices, lambda c: c.filter == "3 99", after=after)
    going_on.set()
    await puppet.wait_for(dto.KeyStore, after=after)
    await look_for(sitting, "the window is well")
    assert looks <= 2, "what is asked while it is looked is one more look"
    assert sum(isinstance(message, dto.Choices) for message in puppet.told[after:]) < 100


async def test_an_agent_is_chosen_for_a_new_conversation(sitting: Seat, host: Host) -> None:
    made = await host.agents.duplicate("assistant", "Second")
    puppet = sitting.puppet
    await puppet.say(dto.WantPage(page="agents"))
    rows = {row.name: row for row in (await puppet.wait_for(dto.Agents)).rows}
    after = len(puppet.told)
    await puppet.ask(dto.NewConversation(request=puppet.request(), agent=rows["Second"].id))
    selected = await puppet.wait_for(dto.Selected, after=after)
    assert (selected.agent, selected.agent_name) == (rows["Second"].id, "Second")
    await host.agents.forget(made.agent_id)
    outcome = await puppet.ask(dto.NewConversation(request=puppet.request(), agent=rows["Second"].id))
    assert outcome.status == "stale"


# ------------------------------------------------------------------------------------- proposals


async def test_a_connector_is_proposed_with_its_kind_and_entered_in_the_dialog(
    sitting: Seat, host: Host, server: ChatServer, person: Person
) -> None:
    puppet = sitting.puppet
    person.entry = ConnectorEntry("Mine", server.base_url, None, "compatible")
    person.answers = {"way": "keep", "model": server.model}  # it wants a key, and the person goes on without
    outcome = await puppet.ask(dto.Propose(request=puppet.request(), action="add-connector", target="anthropic"))
    assert outcome.status == "done", outcome
    assert person.asked[0].kind == "anthropic"
    assert "Mine" in await rows_of(sitting)
    for target in ("compatible", None):
        again = await puppet.ask(dto.Propose(request=puppet.request(), action="add-connector", target=target))
        assert (again.status, again.code, again.text) == ("refused", "NOT_DONE", "")
        assert person.asked[-1].kind == "", "which server is chosen in the dialog"


@pytest.mark.parametrize("action", ["change-key", "edit-connector", "remove-connector"])
async def test_what_is_proposed_on_a_connector_is_asked_and_no_is_no(
    sitting: Seat, host: Host, person: Person, action: Any
) -> None:
    puppet = sitting.puppet
    row = (await rows_of(sitting))["loopback"]
    before = host.connectors.find("loopback")
    outcome = await puppet.ask(dto.Propose(request=puppet.request(), action=action, target=row.id))
    assert (outcome.status, outcome.code) == ("refused", "NOT_DONE")
    assert len(person.asked) == 1
    assert host.connectors.find("loopback") == before


async def test_what_is_gone_is_stale_and_nothing_is_asked(sitting: Seat, host: Host, person: Person) -> None:
    puppet = sitting.puppet
    row = (await rows_of(sitting))["loopback"]
    await host.connectors.remove("loopback")
    for command in (
        dto.Propose(request=puppet.request(), action="change-key", target=row.id),
        dto.Propose(request=puppet.request(), action="change-key"),
        dto.TestConnector(request=puppet.request(), connector=row.id),
        dto.RefreshModels(request=puppet.request(), connector=row.id),
    ):
        assert (await puppet.ask(command)).status == "stale"
    # An id of something else, though it was shown, names no connector.
    choice = sitting.puppet.binding.choice
    assert choice is not None
    assert (await puppet.ask(dto.TestConnector(request=puppet.request(), connector=choice))).status == "stale"
    assert person.asked == []


async def test_a_flood_of_proposals_asks_a_few_questions_and_no_more(sitting: Seat, host: Host, person: Person) -> None:
    puppet = sitting.puppet
    person.thinking.clear()
    row = (await rows_of(sitting))["loopback"]
    after = len(puppet.told)
    await puppet.say(
        *[dto.Propose(request=puppet.request(), action="remove-connector", target=row.id) for _ in range(300)]
    )
    refused = await puppet.wait_for(dto.Outcome, after=after)
    assert refused.code == "TOO_MANY_QUESTIONS"
    assert len(person.asked) <= 4
    stop = await look_for(sitting, "still answered")
    assert stop.filter == "still answered"
    person.thinking.set()


async def test_who_said_no_again_and_again_is_left_in_peace(sitting: Seat, person: Person) -> None:
    puppet = sitting.puppet
    outcomes = [await puppet.ask(dto.Propose(request=puppet.request(), action="add-connector")) for _ in range(20)]
    assert len(person.asked) == 6
    assert [outcome.code for outcome in outcomes[6:]] == ["TOO_MANY_QUESTIONS"] * 14
    assert outcomes[-1].text


async def test_every_id_that_was_told_may_be_used(sitting: Seat, host: Host, person: Person) -> None:
    selected = sitting.puppet.binding
    chosen = (await look_for(sitting, "nothing is found")).chosen
    assert chosen is not None
    assert chosen.connector_id is not None
    assert selected.agent is not None
    puppet = sitting.puppet
    for command in (
        dto.NewConversation(request=puppet.request(), agent=selected.agent),
        dto.SetDefault(request=puppet.request(), choice=chosen.id),
        dto.TestConnector(request=puppet.request(), connector=chosen.connector_id),
    ):
        assert (await puppet.ask(command)).status == "done"
    edit = dto.Propose(request=puppet.request(), action="edit-agent", target=selected.agent)
    assert (await puppet.ask(edit)).code == "NOT_DONE"


# ---------------------------------------------------------------------------------- asking servers


async def test_a_test_is_told_while_it_goes_on_and_what_it_found_after(
    sitting: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    puppet = sitting.puppet
    row = (await rows_of(sitting))["loopback"]
    after = len(puppet.told)
    outcome = await puppet.ask(dto.TestConnector(request=puppet.request(), connector=row.id))
    assert outcome.status == "done"
    states = [r for m in puppet.told[after:] if isinstance(m, dto.Connectors) for r in m.rows if r.name == "loopback"]
    assert states[0].testing
    after_test = (await rows_of(sitting))["loopback"]
    assert (after_test.test, after_test.testing) == ("ok", False)
    assert "model" in after_test.tested
    monkeypatch.setenv("TEST_PROVIDER_SECRET", "sk-of-somebody-else")
    await puppet.ask(dto.TestConnector(request=puppet.request(), connector=row.id))
    assert (await rows_of(sitting))["loopback"].test == "problem"
    progress = [m for m in puppet.told[after:] if isinstance(m, dto.Progress)]
    assert {m.ended for m in progress} == {False, True}


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A server that is asked and never answers: what was begun and what was cancelled."""
    happened: list[str] = []

    def never(kind: str) -> Callable[..., Awaitable[Any]]:
        async def ask(self: ConnectorSetup, name: str, *more: object) -> ConnectorTest:
            happened.append(kind)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                happened.append(f"{kind} cancelled")
                raise
            raise AssertionError

        return ask

    monkeypatch.setattr(ConnectorSetup, "test", never("test"))
    monkeypatch.setattr(ConnectorSetup, "refresh", never("refresh"))
    return happened


async def test_what_goes_on_can_be_cancelled(sitting: Seat, endless: list[str]) -> None:
    puppet = sitting.puppet
    row = (await rows_of(sitting))["loopback"]
    testing = puppet.request()
    await puppet.say(dto.TestConnector(request=testing, connector=row.id))
    going_on = await puppet.wait_for(dto.Progress)
    assert going_on.sentence == "Testing loopback"
    assert (await puppet.ask(dto.Cancel(request=puppet.request(), progress=going_on.id))).status == "done"
    outcome = await puppet.wait_for(dto.Outcome, lambda o: o.request == testing)
    assert (outcome.status, outcome.code) == ("refused", "NOT_DONE")
    await puppet.wait_for(dto.Progress, lambda p: p.ended)
    assert endless == ["test", "test cancelled"]
    assert not (await rows_of(sitting))["loopback"].testing
    assert (await puppet.ask(dto.Cancel(request=puppet.request(), progress=going_on.id))).status == "stale"


async def test_a_flood_of_tests_asks_a_server_once_and_ends_with_its_channel(
    sitting: Seat, host: Host, endless: list[str]
) -> None:
    puppet = sitting.puppet
    row = (await rows_of(sitting))["loopback"]
    for kind in (dto.TestConnector, dto.RefreshModels):
        for _ in range(5):
            await puppet.say(*[kind(request=puppet.request(), connector=row.id) for _ in range(100)])
    await puppet.wait_for(dto.Outcome, lambda o: o.request >= 900)
    assert endless == ["test"]
    other = Seat(host)
    await sitting.channel.aclose()
    assert endless == ["test", "test cancelled"]
    await other.puppet.lock()
    await other.puppet.wait_for(dto.Connectors)
    assert not (await rows_of(other))["loopback"].testing
    assert not any(isinstance(message, dto.Progress) for message in other.puppet.told)
    await other.aclose()


# ------------------------------------------------------------------------------------ what is here

OLLAMA = Found("a1", "server", "Ollama", "127.0.0.1:11434 · 2 models", "http://127.0.0.1:11434/v1", usable=True)
CODEX = Found(
    "b2",
    "cli",
    "Codex",
    "/usr/bin/codex, version 1.2.3",
    version="1.2.3",
    path="/usr/bin/codex",
    note="It comes to use with its harness.",
)


async def test_what_is_here_is_looked_for_only_when_asked_and_used_through_the_dialog(
    sitting: Seat, host: Host, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    going_on = asyncio.Event()

    async def look(**_: object) -> tuple[Found, ...]:
        nonlocal looks
        looks += 1
        await going_on.wait()
        return OLLAMA, CODEX

    monkeypatch.setattr(desk_setup, "look", look)
    puppet = sitting.puppet
    await puppet.say(dto.WantPage(page="connections"))
    before = await puppet.wait_for(dto.Found)
    assert (before.looking, before.looked, before.rows, looks) == (False, False, (), 0)
    first = puppet.request()
    await puppet.say(*[dto.Look(request=number) for number in (first, *(puppet.request() for _ in range(200)))])
    await puppet.wait_for(dto.Outcome, lambda o: o.request == first + 200)
    assert (await puppet.wait_for(dto.Found, lambda f: f.looking)).rows == ()
    going_on.set()
    found = await puppet.wait_for(dto.Found, lambda f: f.looked)
    assert looks == 1, "a flood of looks is one look"
    server, program = found.rows
    assert (server.name, server.usable, program.usable) == ("Ollama", True, False)
    assert "/usr/bin" not in repr(found)
    outcome = await puppet.ask(dto.UseFound(request=puppet.request(), found=server.id))
    assert outcome.code == "NOT_DONE"
    assert (person.asked[0].kind, person.asked[0].address) == ("ollama", "http://127.0.0.1:11434/v1")
    outcome = await puppet.ask(dto.UseFound(request=puppet.request(), found=program.id))
    assert (outcome.status, outcome.text) == ("refused", CODEX.note)
    await host.connectors.add(Connector(name="Mine", vendor="openai-compatible", base_url=OLLAMA.base_url))
    await puppet.say(dto.WantPage(page="connections"))
    used = await puppet.wait_for(dto.Found, lambda f: bool(f.rows) and not f.rows[0].usable)
    assert used.rows[0].note == "In use as Mine."
    other = Seat(host)
    await other.puppet.lock()
    await other.puppet.say(dto.WantPage(page="connections"))
    assert (await other.puppet.wait_for(dto.Found)).rows == (), "what one window looked for is not another's"
    await other.aclose()


# ------------------------------------------------------------------------------------- breaches


@pytest.mark.parametrize(
    "message",
    [
        dto.Propose(request=9, action="change-key", target="xneverShown"),
        dto.Propose(request=9, action="delete-agent", target="xneverShown"),
        dto.Propose(request=9, action="open-profile", target="personal"),
        dto.Propose(request=9, action="add-connector", target="gemini"),
        dto.TestConnector(request=9, connector="xneverShown"),
        dto.RefreshModels(request=9, connector="loopback"),
        dto.SetDefault(request=9, choice="hneverShown"),
        dto.UseFound(request=9, found="fneverShown"),
        dto.Cancel(request=9, progress="pneverShown"),
        dto.NewConversation(request=9, agent="assistant"),
        dto.WantChoices(filter="", connector="xneverShown"),
    ],
)
async def test_an_id_that_was_never_shown_ends_the_channel(sitting: Seat, person: Person, message: dto.Message) -> None:
    await sitting.puppet.say(message)
    await asyncio.wait_for(sitting.channel.closed.wait(), 10)
    assert sitting.channel.breach is not None
    assert sitting.channel.breach.code == "ID_NEVER_SHOWN"
    assert person.asked == []


async def test_an_id_that_another_window_was_shown_ends_the_channel(sitting: Seat, host: Host) -> None:
    await host.agents.duplicate("assistant", "Second")
    await sitting.puppet.say(dto.WantPage(page="agents"))
    rows = (await sitting.puppet.wait_for(dto.Agents)).rows
    shown = next(row.id for row in rows if row.name == "Second")
    other = Seat(host)
    await other.puppet.lock()
    await other.puppet.wait_for(dto.Connectors)
    await other.puppet.say(dto.Propose(request=1, action="edit-agent", target=shown))
    await asyncio.wait_for(other.channel.closed.wait(), 10)
    assert other.channel.breach is not None
    assert other.channel.breach.code == "ID_NEVER_SHOWN"
    await other.aclose()


@pytest.mark.parametrize(
    "message",
    [
        dto.Propose(request=1, action="remove-all"),
        dto.WantPage(page="stored"),
        dto.Look(request=1),
        dto.WantChoices(filter=""),
    ],
)
async def test_nothing_is_proposed_or_asked_before_the_walls_stand(
    seat: Seat, person: Person, message: dto.Message
) -> None:
    await seat.puppet.say(dto.RendererHello(version=dto.PROTOCOL_VERSION, build=BUILD), message)
    await asyncio.wait_for(seat.channel.closed.wait(), 10)
    assert seat.channel.breach is not None
    assert seat.channel.breach.code == "NOT_LOCKED"
    assert person.asked == []


@pytest.mark.parametrize(
    "body",
    [
        b'[{"t":"propose","request":1,"action":"export-all","path":"/tmp/x"}]',
        b'[{"t":"propose","request":1,"action":"add-agent","policy":"work"}]',
        b'[{"t":"propose","request":1,"action":"run-command"}]',
        b'[{"t":"propose","request":1,"action":"export-all","target":"/etc/passwd"}]',
        b'[{"t":"want-page","page":"../stored"}]',
        b'[{"t":"use-found","request":1,"found":"f1","base_url":"https://evil.example"}]',
        b'[{"t":"test-connector","request":1,"connector":"x","base_url":"https://evil.example"}]',
        b'[{"t":"set-default","request":1,"choice":"h1","scope":"everyone"}]',
        b'[{"t":"new","request":1,"agent":"a","tools":["shell"]}]',
    ],
)
async def test_a_path_a_policy_or_an_address_in_a_command_ends_the_channel(
    sitting: Seat, person: Person, body: bytes
) -> None:
    sequence = sitting.puppet.encoder.last_sequence + 1
    await sitting.puppet.say_bytes(HEAD.pack(len(body), sequence) + body)
    await asyncio.wait_for(sitting.channel.closed.wait(), 10)
    assert sitting.channel.breach is not None
    assert sitting.channel.breach.code == "FRAME_MALFORMED"
    assert person.asked == []


# -------------------------------------------------------------------- what the person says of models


async def test_what_is_said_of_a_model_is_kept_shown_as_said_and_used_at_once(
    sitting: Seat, host: Host, person: Person
) -> None:
    await host.connectors.add(MANY)
    puppet = sitting.puppet
    choice = (await look_for(sitting, "vendor/model-9")).choices[0]
    assert choice.efforts == ()
    person.answers = {
        "context_tokens": "128,000", "output_tokens": "", "efforts": ("low", "high"), "images": "no", "tools": "",
        "price_input_usd": "0.15", "price_output_usd": "",
    }  # fmt: skip
    outcome = await puppet.ask(dto.Propose(request=puppet.request(), action="declare-model", target=choice.id))
    assert outcome.status == "done"
    said = (await look_for(sitting, "vendor/model-9")).choices[0]
    assert (said.context, said.price, said.badge) == ("128,000 tokens", "$0.15 in per million tokens", "declared")
    assert (said.efforts, said.images) == (("low", "high"), False)
    outcome = await puppet.ask(
        dto.Choose(request=puppet.request(), revision=puppet.binding.revision, choice=said.id, effort="low")
    )
    assert outcome.status == "done"
    assert host.paths.models.stat().st_mode & 0o777 == 0o600


async def test_a_model_that_its_server_does_not_list_can_be_named(sitting: Seat, host: Host, person: Person) -> None:
    puppet = sitting.puppet
    row = (await rows_of(sitting))["loopback"]
    await puppet.ask(dto.RefreshModels(request=puppet.request(), connector=row.id))
    person.answers = {"model": "unlisted", "context_tokens": "4096"}
    await puppet.ask(dto.Propose(request=puppet.request(), action="declare-model", target=row.id))
    found = (await look_for(sitting, "unlisted")).choices
    assert [(choice.model, choice.context) for choice in found] == [("unlisted", "4,096 tokens")]
    await puppet.ask(dto.RefreshModels(request=puppet.request(), connector=row.id))
    assert (await look_for(sitting, "unlisted")).total == 1, "what the person named stays, whatever the server lists"


# --------------------------------------------------------------------------- network, agents, profiles


async def test_the_way_out_is_asked_in_the_dialog_and_told_in_words(sitting: Seat, host: Host, person: Person) -> None:
    puppet = sitting.puppet
    await puppet.say(dto.WantPage(page="connections"))
    before = await puppet.wait_for(dto.Network)
    person.answers = {"proxy": "own", "address": "http://proxy.example.com:3128", "user": "", "ca_file": ""}
    after = len(puppet.told)
    outcome = await puppet.ask(dto.Propose(request=puppet.request(), action="network"))
    assert outcome.status == "done", outcome
    told = await puppet.wait_for(dto.Network, after=after)
    assert told != before
    assert "proxy.example.com:3128" in told.proxy


async def test_a_login_of_a_proxy_is_in_no_message_and_no_setting(
    sitting: Seat, host: Host, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []

    async def exchange(name: str, secret: Secret, *, base_url: str) -> Any:
        kept.append(secret.reveal())
        return SecretRef(kind="keyring", name=name, base_url=base_url), None

    monkeypatch.setattr(host.credentials, "exchange", exchange)
    puppet = sitting.puppet
    await puppet.say(dto.WantPage(page="connections"))
    person.answers = {
        "proxy": "own", "address": "proxy.example.com:3128", "user": "me", "password": Secret(CANARY), "ca_file": "",
    }  # fmt: skip
    outcome = await puppet.ask(dto.Propose(request=puppet.request(), action="network"))
    assert outcome.status == "done", outcome
    assert kept == [f"me:{CANARY}"]
    assert CANARY not in repr(puppet.told)
    assert CANARY not in repr(host.settings.network)
    assert CANARY not in repr(person.answers)


@pytest.mark.parametrize("action", ["edit-agent", "delete-agent"])
async def test_an_agent_is_changed_in_the_dialog_only(sitting: Seat, host: Host, person: Person, action: Any) -> None:
    await host.agents.duplicate("assistant", "Second")
    puppet = sitting.puppet
    await puppet.say(dto.WantPage(page="agents"))
    rows = {row.name: row for row in (await puppet.wait_for(dto.Agents)).rows}
    outcome = await puppet.ask(dto.Propose(request=puppet.request(), action=action, target=rows["Second"].id))
    assert (outcome.status, outcome.code) == ("refused", "NOT_DONE")
    assert len(person.asked) == 1
    person.yes = True
    after = len(puppet.told)
    done = await puppet.ask(dto.Propose(request=puppet.request(), action="delete-agent", target=rows["Second"].id))
    assert done.status == "done"
    gone = await puppet.wait_for(dto.Agents, after=after)
    assert [row.name for row in gone.rows] == ["Assistant"]
    again = await puppet.ask(dto.Propose(request=puppet.request(), action=action, target=rows["Second"].id))
    assert again.status == "stale"


async def test_a_profile_is_made_and_what_is_gone_of_it_is_stale(sitting: Seat, host: Host, person: Person) -> None:
    puppet = sitting.puppet
    await puppet.say(dto.WantPage(page="profiles"))
    await puppet.wait_for(dto.Profiles)
    person.answers = {"name": "Work"}
    after = len(puppet.told)
    assert (await puppet.ask(dto.Propose(request=puppet.request(), action="add-profile"))).status == "done"
    rows = (await puppet.wait_for(dto.Profiles, lambda p: len(p.rows) == 2, after=after)).rows
    work = next(row for row in rows if row.name == "Work")
    person.yes = True
    delete = dto.Propose(request=puppet.request(), action="delete-profile", target=work.id)
    assert (await puppet.ask(delete)).status == "done"
    delete = dto.Propose(request=puppet.request(), action="delete-profile", target=work.id)
    assert (await puppet.ask(delete)).status == "stale"


async def test_everything_is_written_to_a_file_that_the_dialog_named(
    sitting: Seat, host: Host, person: Person, tmp_path: Path
) -> None:
    puppet = sitting.puppet
    person.answers = {"path": str(tmp_path / "all.zip")}
    outcome = await puppet.ask(dto.Propose(request=puppet.request(), action="export-all"))
    assert outcome.status == "done", outcome
    assert (tmp_path / "all.zip").stat().st_mode & 0o777 == 0o600
    progress = [message for message in puppet.told if isinstance(message, dto.Progress)]
    assert progress[-1].ended
    person.answers = None
    outcome = await puppet.ask(dto.Propose(request=puppet.request(), action="export-all"))
    assert outcome.code == "NOT_DONE"
