"""The key for agents' credentials: made once, when something is sealed, and not lost while it is changed."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from desktop import sealing_keys
from desktop.credentials import Credentials
from desktop.removal import keys_of
from desktop.sealing_keys import ENTRY, KeyringSeals
from runtime_host.errors import ConnectorError
from runtime_host.loop.credentials import MountCredentials
from runtime_host.loop.plugins.base import Credential, CredentialShape
from runtime_host.loop.sealing import SealingKeyError, key_id
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import MountRow
from tests.unit.desktop.test_credentials import FakeStore
from tests.unit.desktop.test_credentials import credentials as entries

TOKEN = CredentialShape("token")


Entries = Callable[[FakeStore], Credentials]


@pytest_asyncio.fixture
async def credentials() -> AsyncIterator[Entries]:
    made: list[Credentials] = []

    def make(store: FakeStore) -> Credentials:
        made.append(entries(store))
        return made[-1]

    yield make
    for each in made:
        await each.aclose()


class Noted:
    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.times = 0

    async def __call__(self) -> None:
        assert not any(name == ENTRY for _, name in self.store.entries), "noted after it was made"
        self.times += 1


async def test_a_key_is_made_once_and_only_to_seal_with(credentials: Entries) -> None:
    store = FakeStore()
    noted = Noted(store)
    seals = KeyringSeals(credentials(store), noted)
    assert (await seals.key(), await seals.known(), noted.times) == (None, frozenset(), 0)
    keys = await asyncio.gather(*(seals.key(make=True) for _ in range(5)))
    assert len(set(keys)) == 1
    key = keys[0]
    assert key is not None
    assert (len(key), noted.times) == (32, 1)
    again = KeyringSeals(credentials(store), noted)
    assert [await again.key(), await again.key(key_id(key))] == [key, key]
    assert await again.known() == frozenset([key_id(key)])
    assert await again.key("another") is None
    assert keys_of([{"secret": sealing_keys.NOTED}]) == (ENTRY,), "it would stay when the profile goes"


@pytest.mark.parametrize("kept", [base64.b64encode(bytes(31)).decode(), "no key at all", "é"])
async def test_what_is_no_key_is_refused(kept: str, credentials: Entries) -> None:
    store = FakeStore()
    seals = KeyringSeals(credentials(store), Noted(store))
    store.entries["remuda/uuid-1", ENTRY] = kept
    for make in (False, True):
        with pytest.raises(SealingKeyError) as refusal:
            await seals.key(make=make)
        assert refusal.value.error_code == "SEALING_KEY_REFUSED"
    assert store.entries["remuda/uuid-1", ENTRY] == kept


async def test_a_key_store_that_is_away_is_no_missing_key(credentials: Entries) -> None:
    def away(call: str) -> None:
        raise RuntimeError("the daemon went away")

    seals = KeyringSeals(credentials(FakeStore(away)), Noted(FakeStore()))
    with pytest.raises(ConnectorError):
        await seals.key(make=True)


async def test_the_key_is_changed_under_every_agent_and_the_old_one_goes_last(credentials: Entries) -> None:
    store = FakeStore()
    seals = KeyringSeals(credentials(store), lambda: asyncio.sleep(0))
    desks, files, mounts = [], [], []
    for number in range(2):
        file = MemoryAgentStore()

        async def open_store(file: AgentStore = file) -> AgentStore:
            return file

        row = MountRow(alias="hub", installation_id=f"m{number}", connection_id="c", plugin="p", tool_version="1")
        await file.transact(lambda tx, row=row: tx.put_row(row))  # type: ignore[misc]
        desk = MountCredentials(open_store, tenant="t", agent_id=f"a{number}", seals=seals)
        mounts.append(await desk.attach("hub", {"token": f"value-{number}"}, shape=TOKEN))
        desks.append(desk)
        files.append(file)
    first = await seals.key()

    # Interrupted after the first agent: both open, under two keys.
    async def stopped() -> None:
        raise ConnectionError

    class Stops:
        async def reseal(self) -> None:
            await stopped()

    with pytest.raises(ConnectionError):
        await seals.rotate([desks[0], Stops()])  # type: ignore[list-item]
    assert len(await seals.known() or ()) == 2
    for round_ in range(2):
        for number, desk in enumerate(desks):
            opened = await desk.resolve(mounts[number])
            assert isinstance(opened, Credential)
            assert opened.token == f"value-{number}"
        if round_ == 0:
            assert (await seals.rotate(desks)).done == 2
    assert await seals.known() == frozenset([key_id(await seals.key() or b"")])
    assert await seals.key() != first


async def test_what_is_kept_outside_is_read_where_it_is(credentials: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FakeStore()
    store.entries["remuda/uuid-1", "operator:hub"] = "of the operator"
    store.entries["remuda/uuid-1", "hub"] = "a connector's"
    fetch = sealing_keys.outside(credentials(store))
    assert (await fetch("operator", "hub"), await fetch("operator", "other")) == ("of the operator", None)
    monkeypatch.setenv("HUB_TOKEN", "of the environment")
    assert await fetch("env", "HUB_TOKEN") == "of the environment"
    monkeypatch.setattr("sys.frozen", True, raising=False)
    assert await fetch("env", "HUB_TOKEN") is None
