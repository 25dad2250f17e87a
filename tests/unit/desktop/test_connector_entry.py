"""Entering, changing and removing connectors: what the person is told when it does not work, and what is kept."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from desktop.app import Host
from desktop.authority import ChannelAuthority
from desktop.connector_setup import ConnectorSetup
from desktop.credentials import Credentials
from desktop.dialogs import ConnectorEntry, ConnectorPrefill, Form, RemoveConnector
from desktop.questions.connector import edit, enter_connector, remove, rotate
from desktop.secret import Secret
from runtime_host.connectors.base import Connector, SecretRef
from tests.loopback.chat_server import ChatServer
from tests.puppet import until
from ui.wire import dto

GOOD, WRONG = "sk-good-0123456789abcdef", "sk-wrong-0123456789abcdef"


class Store:
    """A key store in memory that may be locked."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.locked = False
        self.before_change: Callable[[], None] = lambda: None

    def _call(self) -> None:
        if self.locked:
            raise KeyringLocked

    def get_password(self, service: str, username: str) -> str | None:
        self._call()
        return self.entries.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self._call()
        self.before_change()
        self.entries[username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._call()
        self.before_change()
        del self.entries[username]


class KeyringLocked(Exception):
    pass


Answer = Any


class Person:
    """The dialogs, answered one after the other; what was asked is kept."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._answers: list[Callable[[], Answer] | Answer] = []

    def will(self, *answers: Callable[[], Answer] | Answer) -> None:
        self._answers.extend(answers)

    def _answer(self, kind: str, asked: Any) -> Answer:
        self.asked.append((kind, asked))
        answer = self._answers.pop(0)
        return answer() if callable(answer) else answer

    async def ask_connector(
        self, prefill: ConnectorPrefill, problem: str | None, *, taken: tuple[str, ...] = ()
    ) -> ConnectorEntry | None:
        answer = self._answer("connector", (prefill, problem or ""))
        assert answer is None or isinstance(answer, ConnectorEntry)
        return answer

    async def ask_key(self, name: str, address: str, problem: str) -> Secret | None:
        answer = self._answer("key", (name, address, problem))
        assert answer is None or isinstance(answer, Secret)
        return answer

    async def ask_form(self, form: Form) -> dict[str, Any] | None:
        answer: dict[str, Any] | None = self._answer("form", form)
        if answer is not None:
            offered = {option.value for option in form.fields[0].options}
            assert answer["way"] in offered, (answer, offered)
        return answer

    async def confirm(self, question: RemoveConnector) -> bool:
        return bool(self._answer("remove", question))

    def problem(self) -> str:
        """What the newest question says is wrong."""
        kind, asked = self.asked[-1]
        return str(asked.problem if kind == "form" else asked[-1])

    def done(self) -> bool:
        return not self._answers


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def person() -> Person:
    return Person()


@pytest.fixture
async def desk(host: Host, server: ChatServer, store: Store, person: Person) -> AsyncIterator[Host]:
    """A host with that key store and that person before it; its server takes the good key."""
    server.key = GOOD
    await host.credentials.aclose()
    host.credentials = Credentials("uuid", open_backend=lambda: store, trusted=frozenset([__name__]))
    host.setup = ConnectorSetup(host.connectors, host.credentials, host.registry)
    host.registry._secrets = host.credentials.resolve
    await host.connectors.remove("loopback")

    async def trusted() -> Person:
        return person

    host.trusted = trusted  # type: ignore[method-assign, assignment]
    yield host
    await host.credentials.aclose()


def entry(server: ChatServer, key: str | None, name: str = "mine") -> ConnectorEntry:
    return ConnectorEntry(name, server.base_url, Secret(key) if key else None)


async def test_a_key_that_is_refused_can_be_corrected(
    desk: Host, server: ChatServer, store: Store, person: Person
) -> None:
    person.will(entry(server, WRONG), {"way": "correct"}, entry(server, GOOD))
    kept = await enter_connector(desk)
    assert kept is not None
    assert kept.models == (server.model,)
    assert store.entries == {"mine": GOOD}
    (first, *_), (second, form), (third, again) = person.asked
    assert (first, second, third) == ("connector", "form", "connector")
    assert "refused" in form.problem
    assert again[1] == form.problem
    assert (again[0].name, again[0].address, again[0].kept_for) == ("mine", server.base_url, server.base_url)
    assert WRONG not in repr(person.asked)
    assert person.done()


async def test_what_does_not_work_can_be_kept_anyway_with_a_model_to_choose(
    desk: Host, server: ChatServer, store: Store, person: Person
) -> None:
    person.will(entry(server, WRONG), {"way": "keep", "model": " my-model "})
    kept = await enter_connector(desk)
    assert kept is not None
    assert kept.models == ("my-model",)
    assert store.entries == {"mine": WRONG}
    assert desk.connectors.find("mine") == kept


async def test_giving_up_leaves_nothing(desk: Host, server: ChatServer, store: Store, person: Person) -> None:
    person.will(entry(server, WRONG), None, None)
    assert await enter_connector(desk) is None
    assert store.entries == {}
    assert desk.connectors.find("mine") is None


async def test_a_locked_key_store_does_not_ask_for_the_key_twice(
    desk: Host, server: ChatServer, store: Store, person: Person
) -> None:
    store.locked = True

    def unlock() -> dict[str, str]:
        assert "locked" in person.problem()
        store.locked = False
        return {"way": "again"}

    person.will(entry(server, GOOD), {"way": "again"}, unlock)
    assert await enter_connector(desk) is not None
    assert store.entries == {"mine": GOOD}
    assert [kind for kind, _ in person.asked] == ["connector", "form", "form"]


async def test_a_key_that_is_held_goes_to_no_other_address(
    desk: Host, server: ChatServer, store: Store, person: Person
) -> None:
    other = ConnectorEntry("mine", "http://127.0.0.1:1/v1", None)
    person.will(entry(server, WRONG), {"way": "correct"}, other, {"way": "keep"})
    kept = await enter_connector(desk)
    assert kept is not None
    assert kept.secret is None
    assert store.entries == {}


async def test_a_key_that_is_held_is_used_when_the_name_is_corrected(
    desk: Host, server: ChatServer, store: Store, person: Person
) -> None:
    await desk.connectors.add(Connector(name="mine", vendor="openai-compatible", base_url=server.base_url))
    person.will(entry(server, GOOD), entry(server, None, "yours"))
    assert await enter_connector(desk) is not None
    assert store.entries == {"yours": GOOD}
    assert "already" in person.problem()


@pytest.fixture
async def kept(desk: Host, server: ChatServer, person: Person) -> Connector:
    """A connector that works."""
    person.will(entry(server, GOOD))
    connector = await enter_connector(desk)
    assert connector is not None
    person.asked.clear()
    return connector


NEW = "sk-new-0123456789abcdef"


async def test_another_key_is_tried_before_it_takes_the_place_of_the_old(
    desk: Host, server: ChatServer, store: Store, person: Person, kept: Connector
) -> None:
    person.will(Secret(WRONG), {"way": "correct"}, Secret(NEW), {"way": "again"}, None)
    assert not await rotate(desk, "mine")
    assert store.entries == {"mine": GOOD}
    assert person.done()
    server.key = NEW
    person.will(Secret(NEW))
    assert await rotate(desk, "mine")
    assert store.entries == {"mine": NEW}
    assert desk.connectors.find("mine") == kept
    # Both are known to whatever might write them.
    assert desk.registry.redactor.text(f"{GOOD} {NEW} {WRONG}") == "[redacted] [redacted] [redacted]"


async def test_the_old_key_stays_where_the_new_one_cannot_be_kept(
    desk: Host, server: ChatServer, store: Store, person: Person, kept: Connector
) -> None:
    server.key = NEW

    def lock() -> Secret:
        store.locked = True
        return Secret(NEW)

    def unlock() -> dict[str, str]:
        assert "locked" in person.problem()
        assert store.entries == {"mine": GOOD}
        store.locked = False
        return {"way": "again"}

    person.will(lock, unlock)
    assert await rotate(desk, "mine")
    assert store.entries == {"mine": NEW}


@pytest.mark.parametrize("what", ["change", "remove"])
async def test_who_gives_up_on_a_key_store_finds_it_as_it_was(
    desk: Host, store: Store, kept: Connector, what: str
) -> None:
    release, entered = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert release.wait(30)

    store.before_change = hang
    secret = SecretRef(kind="keyring", name="mine", base_url=kept.base_url)
    setup = desk.setup
    work = setup.rotate("mine", Secret(NEW), secret, unchecked=True) if what == "change" else setup.remove("mine")
    changing: asyncio.Future[Any] = asyncio.ensure_future(work)
    await until(entered.is_set)
    changing.cancel()
    await asyncio.wait_for(desk.setup.aclose(), 10)
    assert isinstance((await asyncio.gather(changing, return_exceptions=True))[0], asyncio.CancelledError)
    store.before_change = lambda: None
    release.set()
    # What it wrote after all is taken back.
    await desk.credentials.check()
    assert store.entries == {"mine": GOOD}
    assert desk.connectors.find("mine") == kept


async def test_a_key_of_a_variable_is_changed_for_one_in_the_key_store(
    desk: Host, server: ChatServer, store: Store, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.connectors.add(
        Connector(
            name="mine",
            vendor="openai-compatible",
            base_url=server.base_url,
            secret=SecretRef(kind="env", name="OLD_ONE"),
            models=("m",),
        )
    )
    person.will(Secret(GOOD))
    assert await rotate(desk, "mine")
    changed = desk.connectors.own("mine")
    assert changed.secret == SecretRef(kind="keyring", name="mine", base_url=server.base_url)
    assert changed.models == ("m",)


async def test_an_address_is_changed_with_its_key_and_a_key_is_kept_with_its_address(
    desk: Host, server: ChatServer, store: Store, person: Person, kept: Connector
) -> None:
    person.will(entry(server, None))
    assert await edit(desk, "mine") == kept
    assert store.entries == {"mine": GOOD}
    [(_, (shown, _))] = person.asked
    assert (shown.name_fixed, shown.kept_for) == (True, server.base_url)
    elsewhere = "http://127.0.0.1:1/v1"
    person.will(ConnectorEntry("mine", elsewhere, Secret(NEW)), {"way": "keep", "model": "m"})
    changed = await edit(desk, "mine")
    assert changed is not None
    assert changed.base_url == elsewhere
    assert changed.secret is not None
    assert changed.secret.base_url == elsewhere
    assert store.entries == {"mine": NEW}
    # Without a key for the new address the old key is not kept for it.
    server.key = None
    person.will(ConnectorEntry("mine", server.base_url, None))
    changed = await edit(desk, "mine")
    assert changed is not None
    assert changed.secret is None
    assert store.entries == {}


async def test_a_new_key_is_never_in_the_key_store_beside_the_old_address(
    desk: Host, server: ChatServer, store: Store, person: Person, kept: Connector
) -> None:
    """Whoever reads between the two steps, or the next start after a crash there, sends no key elsewhere."""
    places: list[tuple[str, bool]] = []

    def look() -> None:
        found = desk.connectors.find("mine")
        assert found is not None
        places.append((found.base_url, found.secret is not None))

    store.before_change = look
    elsewhere = "http://127.0.0.1:1/v1"
    person.will(ConnectorEntry("mine", elsewhere, Secret(NEW)), {"way": "keep", "model": "m"})
    assert await edit(desk, "mine") is not None
    assert places == [(elsewhere, False)]


async def test_an_address_whose_key_cannot_be_kept_is_not_changed(
    desk: Host, server: ChatServer, store: Store, person: Person, kept: Connector
) -> None:
    entered = ConnectorEntry("mine", "http://127.0.0.1:1/v1", Secret(NEW))

    def lock() -> None:
        store.locked = True
        raise KeyringLocked

    store.before_change = lock
    person.will(entered, {"way": "keep", "model": "m"}, None, None)
    assert await edit(desk, "mine") is None
    assert desk.connectors.find("mine") == kept
    assert store.entries == {"mine": GOOD}


async def test_what_uses_it_is_shown_before_it_goes_with_its_key(
    desk: Host, server: ChatServer, store: Store, person: Person, kept: Connector
) -> None:
    [choice] = [choice for choice in desk.choices() if choice.connector == "mine"]
    name, run = await desk.conversations.send(None, "Hello", request_id="r1", choice=choice, effort="")
    await run.result()
    person.will(False)
    assert not await remove(desk, "mine")
    [(_, question)] = person.asked
    assert question.used_by == ("Conversation: Hello",)
    assert store.entries == {"mine": GOOD}
    store.locked = True
    person.will(True, None)
    assert not await remove(desk, "mine")
    assert desk.connectors.find("mine") == kept
    assert "was not removed" in person.problem()
    person.will(True, {"way": "leave-key"})
    assert await remove(desk, "mine")
    assert desk.connectors.find("mine") is None
    assert store.entries == {"mine": GOOD}
    assert [row.record.title for row in (await desk.conversations.rows("", 0, 9))[1]] == ["Hello"]
    row = await desk.conversations.row(name)
    assert row is not None
    assert desk.conversations.choice_of(row.record)[0] is None
    authority = ChannelAuthority()
    authority.select(name)
    selected = (await desk.desk.selected(authority))[0]
    assert isinstance(selected, dto.Selected)
    assert selected.sentence == f"{choice.model} at mine is not set up here any more"


async def test_a_key_is_warned_about_where_there_is_no_key_store(
    desk: Host, server: ChatServer, person: Person
) -> None:
    desk.credentials = Credentials("uuid", open_backend=lambda: object(), trusted=frozenset())  # type: ignore[arg-type, return-value]
    person.will(None, None)
    await enter_connector(desk, ConnectorPrefill(kind="anthropic"))
    assert "no key store" in person.problem()
    assert "--key-env" in person.problem()
    await enter_connector(desk, ConnectorPrefill(kind="ollama"))
    assert person.problem() == ""
    await desk.credentials.aclose()
