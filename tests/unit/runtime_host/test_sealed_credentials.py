"""Credentials of mounts: sealed to their place, opened for one call, refused where they do not open."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.errors import ConnectorError
from runtime_host.loop import held
from runtime_host.loop.credentials import (
    CredentialRefusedError,
    Missing,
    MountCredentials,
    maskable,
    ref_kind,
)
from runtime_host.loop.plugins.base import Credential, CredentialCheck, CredentialShape, Mount, Plugin, PluginError
from runtime_host.loop.sealing import (
    HeldSeals,
    NotOpenedError,
    Place,
    SealingKeyError,
    Seals,
    key_id,
    seal,
    unseal,
)
from runtime_host.redaction import Redactor
from runtime_host.storage.base import AgentStore, AgentTx
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import MountRow, SecretRow
from runtime_host.storage.salvage_rows import FILE_UUID
from runtime_host.storage.sqlite import open_agent_store

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
TOKEN = CredentialShape("token")
VALUE = "canary-Zq7LmA9x0Bc3"
PLACE = Place("file", "tenant", "agent", "name")

names = st.text(min_size=1, max_size=12)


def mount(alias: str = "hub", number: int = 1, **changes: Any) -> MountRow:
    row = MountRow(alias=alias, installation_id=f"m{number}", connection_id="c", plugin="p", tool_version="1")
    return msgspec.structs.replace(row, **changes)


def desk(store: AgentStore, seals: Seals | None = None, *, agent: str = "a", **more: Any) -> MountCredentials:
    async def open_store() -> AgentStore:
        return store

    return MountCredentials(open_store, tenant="t", agent_id=agent, seals=seals or HeldSeals(KEY), **more)


async def holding(*mounts: MountRow) -> AgentStore:
    store = MemoryAgentStore()

    def put(tx: AgentTx) -> None:
        for each in mounts or (mount(),):
            tx.put_row(each)

    await store.transact(put)
    return store


async def opened(creds: MountCredentials, row: MountRow) -> str:
    found = await creds.resolve(row)
    assert isinstance(found, Credential), found
    return found.token


async def missing(creds: MountCredentials, row: MountRow) -> str:
    found = await creds.resolve(row)
    assert isinstance(found, Missing)
    assert VALUE not in found.words
    return found.kind


# ---- seals ----


@given(
    fields=st.dictionaries(names, st.text(max_size=200), max_size=4), place=st.builds(Place, names, names, names, names)
)
def test_what_is_sealed_opens_in_its_place(fields: dict[str, str], place: Place) -> None:
    one, other = seal(KEY, place, fields), seal(KEY, place, fields)
    assert unseal(KEY, place, one) == fields
    assert (one.iv, one.ciphertext) != (other.iv, other.ciphertext)
    assert len(one.iv) == 12
    assert (len(one.ciphertext) - 16) % 256 == 0, "its length tells the value's"


@given(place=st.builds(Place, names, names, names, names), other=st.builds(Place, names, names, names, names))
def test_what_was_moved_does_not_open(place: Place, other: Place) -> None:
    sealed = seal(KEY, place, {"token": VALUE})
    if place == other:
        assert unseal(KEY, other, sealed) == {"token": VALUE}
        return
    with pytest.raises(NotOpenedError) as told:
        unseal(KEY, other, sealed)
    assert not told.value.wrong_key


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), in_iv=st.booleans())
def test_a_single_bit_that_is_not_as_it_was_is_noticed(at: int, bit: int, in_iv: bool) -> None:
    sealed = seal(KEY, PLACE, {"token": VALUE})
    data = bytearray(sealed.iv if in_iv else sealed.ciphertext)
    data[at % len(data)] ^= 1 << bit
    changed = sealed._replace(iv=bytes(data)) if in_iv else sealed._replace(ciphertext=bytes(data))
    with pytest.raises(NotOpenedError):
        unseal(KEY, PLACE, changed)


@given(size=st.integers(0, 64).filter(lambda size: size != 32))
def test_a_key_of_another_length_is_refused(size: int) -> None:
    sealed = seal(KEY, PLACE, {})
    for use in (lambda key: seal(key, PLACE, {}), lambda key: unseal(key, PLACE, sealed), key_id):
        with pytest.raises(SealingKeyError, match=f"{size} bytes and not 32"):
            use(bytes(size))


def test_another_key_is_told_from_a_change() -> None:
    with pytest.raises(NotOpenedError) as told:
        unseal(OTHER_KEY, PLACE, seal(KEY, PLACE, {}))
    assert told.value.wrong_key


# ---- calls ----


async def test_a_credential_is_attached_used_and_taken_away() -> None:
    store = await holding()
    creds = desk(store, now_ms=lambda: 5)
    assert (await missing(creds, mount()), (await creds.state(mount(), TOKEN)).kind) == ("none", "none")
    row = await creds.attach("hub", {"token": VALUE}, "me@hub", shape=TOKEN)
    assert row.secret_ref == "agent:hub"
    found = await creds.resolve(row)
    assert isinstance(found, Credential)
    assert (found.token, found.account) == (VALUE, "me@hub")
    assert VALUE not in repr(found) + str(found)
    state = await creds.state(row, TOKEN)
    assert (state.kind, state.account, state.last_used_ms) == ("attached", "me@hub", 5)
    kept = await store.read(lambda tx: tx.rows(SecretRow))
    assert VALUE.encode() not in msgspec.msgpack.encode(kept)
    without = await creds.detach("hub")
    assert (without.secret_ref, await store.read(lambda tx: tx.rows(SecretRow))) == (None, [])
    assert await missing(creds, row) == "unreadable", "a mount as it was before opens nothing"


async def test_a_look_leaves_no_stamp() -> None:
    creds = desk(await holding())
    row = await creds.attach("hub", {"token": VALUE}, shape=TOKEN)
    await creds.resolve(row, touch=False)
    assert (await creds.state(row, TOKEN)).last_used_ms is None


async def test_a_row_of_another_agent_or_file_or_name_does_not_open() -> None:
    store = await holding(mount(), mount("other", 2))
    creds = desk(store)
    row = await creds.attach("hub", {"token": VALUE}, shape=TOKEN)
    sealed = (await store.read(lambda tx: tx.rows(SecretRow)))[0]
    file_uuid = await store.read(lambda tx: tx.fact(FILE_UUID))

    async def moved(name: str = "hub", agent: str = "a", file: str | None = None) -> str:
        there = await holding(mount(secret_ref=f"agent:{name}"))

        def put(tx: AgentTx) -> None:
            tx.put_fact(FILE_UUID, file or file_uuid)
            tx.put_row(msgspec.structs.replace(sealed, name=name))

        await there.transact(put)
        return await missing(desk(there, agent=agent), mount(secret_ref=f"agent:{name}"))

    assert await moved(name="other") == await moved(agent="b") == await moved(file="another") == "unreadable"
    assert await opened(creds, row) == VALUE
    # Another agent's mount that names it finds nothing of that name in its own file.
    elsewhere = await holding(mount(secret_ref="agent:hub"))
    assert await missing(desk(elsewhere, agent="b"), mount(secret_ref="agent:hub")) == "unreadable"


class Locked(HeldSeals):
    async def key(self, key_id: str | None = None, *, make: bool = False) -> bytes | None:
        raise ConnectorError("The key store is locked.", code="KEYRING_LOCKED")

    async def known(self) -> frozenset[str] | None:
        return None


class Empty(HeldSeals):
    async def key(self, key_id: str | None = None, *, make: bool = False) -> bytes | None:
        return None

    async def known(self) -> frozenset[str] | None:
        return frozenset()


class Short(HeldSeals):
    async def key(self, key_id: str | None = None, *, make: bool = False) -> bytes | None:
        return bytes(31)


@pytest.mark.parametrize(
    ("seals", "call", "page"),
    [
        (Locked(KEY), "unreported", "unreported"),
        (Empty(KEY), "unreadable", "unreadable"),
        (HeldSeals(OTHER_KEY), "unreadable", "unreadable"),
        (Short(KEY), "unreadable", "attached"),
    ],
)
async def test_without_its_key_a_call_is_refused_and_told_why(seals: Seals, call: str, page: str) -> None:
    store = await holding()
    row = await desk(store).attach("hub", {"token": VALUE}, shape=TOKEN)
    creds = desk(store, seals)
    assert await missing(creds, row) == call
    assert (await creds.state(row, TOKEN)).kind == page
    assert await opened(desk(store), row) == VALUE, "it opens again with its key"
    if not isinstance(seals, HeldSeals) or type(seals) is not HeldSeals:
        with pytest.raises((SealingKeyError, ConnectorError)):
            await creds.attach("hub", {"token": "another-value"}, shape=TOKEN)
        assert await opened(desk(store), row) == VALUE, "what could not be replaced is still there"


async def test_where_no_key_can_be_nothing_is_kept() -> None:
    store = await holding()

    async def open_store() -> AgentStore:
        return store

    creds = MountCredentials(open_store, tenant="t", agent_id="a")
    with pytest.raises(SealingKeyError):
        await creds.attach("hub", {"token": VALUE}, shape=TOKEN)
    assert await store.read(lambda tx: (tx.rows(SecretRow), tx.row(MountRow, "hub"))) == ([], mount())


async def test_a_changed_byte_is_seen_at_the_call_and_on_the_page_until_it_is_written_again() -> None:
    store = await holding()
    creds = desk(store)
    row = await creds.attach("hub", {"token": VALUE}, shape=TOKEN)
    sealed = (await store.read(lambda tx: tx.rows(SecretRow)))[0]
    flipped = bytes([sealed.ciphertext[0] ^ 1]) + sealed.ciphertext[1:]
    await store.transact(lambda tx: tx.put_row(msgspec.structs.replace(sealed, ciphertext=flipped)))
    assert (await creds.state(row, TOKEN)).kind == "attached"
    assert await missing(creds, row) == "unreadable"
    assert (await creds.state(row, TOKEN)).kind == "unreadable"
    await creds.rotate("hub", {"token": VALUE}, shape=TOKEN)
    assert (await creds.state(row, TOKEN)).kind == "attached"


async def test_what_is_kept_outside_is_fetched_for_the_call() -> None:
    async def outside(kind: str, name: str) -> str | None:
        if name == "locked":
            raise ConnectorError("The key store is locked.", code="KEYRING_LOCKED")
        return {"hub": VALUE, "both": '{"user": "me", "key": "k-1234567890"}'}.get(name)

    both = CredentialShape("fields", ("user", "key"))
    refs = {"operator:hub": "", "env:HUB": "unreadable", "operator:locked": "unreported", "vault:x": "unreadable"}
    for ref, kind in refs.items():
        row = mount(secret_ref=ref)
        creds = desk(await holding(row), outside=outside)
        if kind:
            assert await missing(creds, row) == kind, ref
        else:
            assert await opened(creds, row) == VALUE
            assert (await creds.state(row, TOKEN)).kind == "unreported"
        assert await missing(desk(await holding(row)), row) == "unreadable", "not allowed here"
    row = mount(secret_ref="operator:both")
    found = await desk(await holding(row), outside=outside).resolve(row, both)
    assert isinstance(found, Credential)
    assert (found.field("user"), found.field("key")) == ("me", "k-1234567890")
    assert [ref_kind(ref) for ref in (None, "agent:x", "operator:x", "env:X", "agent:kept:x", "x")] == [
        "none", "agent", "operator", "env", "other", "other",
    ]  # fmt: skip


# ---- checking ----


class Checked(Plugin):
    id, version, title, credential = "p", "1", "Hub", TOKEN

    def __init__(self, says: Callable[[Credential], Awaitable[CredentialCheck]]) -> None:
        self._says = says

    async def check_credential(self, mount: Mount, credential: Credential) -> CredentialCheck:
        return await self._says(credential)


async def test_a_check_tells_rejected_from_unreachable_and_notes_no_value() -> None:
    store = await holding()
    creds = desk(store)
    row = await creds.attach("hub", {"token": VALUE}, shape=TOKEN)
    seen = Mount("a", "hub", "m1", "c")

    async def echoes(credential: Credential) -> CredentialCheck:
        return CredentialCheck("rejected", f"{credential.token} is not known")

    async def fails(credential: Credential) -> CredentialCheck:
        raise OSError(f"no road with {credential.token}")

    async def hangs(credential: Credential) -> CredentialCheck:
        await asyncio.sleep(60)
        return CredentialCheck("ok")

    for says, state in ((echoes, "rejected"), (fails, "unreachable"), (hangs, "unreachable")):
        told = await creds.check(row, Checked(says), seen, within_s=0.05)
        assert told.state == state
        assert VALUE not in told.detail
        verified = (await creds.state(row, TOKEN)).verified
        assert verified is not None
        assert (verified["state"], VALUE in str(verified)) == (state, False)
    assert (await creds.check(mount(), Checked(hangs), seen)).state == "unchecked"


# ---- mounts that change ----


async def test_a_renamed_mount_takes_its_credential_with_it_or_nothing_happens() -> None:
    store = await holding()
    creds = desk(store)
    row = await creds.attach("hub", {"token": VALUE}, shape=TOKEN)
    move = await creds.renaming(row, "github")

    def rename(tx: AgentTx, fails: bool) -> MountRow:
        ref = move(tx)
        tx.delete_row(MountRow, "hub")
        renamed = msgspec.structs.replace(row, alias="github", secret_ref=ref)
        tx.put_row(renamed)
        if fails:
            raise ConnectionError
        return renamed

    with pytest.raises(ConnectionError):
        await store.transact(lambda tx: rename(tx, True))
    assert await opened(creds, row) == VALUE
    renamed = await store.transact(lambda tx: rename(tx, False))
    assert renamed.secret_ref == "agent:github"
    assert await opened(creds, renamed) == VALUE
    with pytest.raises(CredentialRefusedError, match="changed while"):
        await store.transact(lambda tx: rename(tx, False))


async def test_what_a_held_call_depends_on_changes_with_each_value_and_not_with_the_key() -> None:
    store = await holding()
    creds = desk(store, now_ms=lambda: 5)
    row = await creds.attach("hub", {"token": VALUE}, shape=TOKEN)

    async def depends() -> str:
        return repr(await store.read(lambda tx: held.depends_on(tx, row, "1")))

    first = await depends()
    moved = desk(store, HeldSeals(OTHER_KEY, older=[KEY]), now_ms=lambda: 6)
    assert await moved.reseal() == (1, 0)
    assert (await depends(), await opened(desk(store, HeldSeals(OTHER_KEY)), row)) == (first, VALUE)
    await moved.rotate("hub", {"token": VALUE}, shape=TOKEN)
    assert await depends() != first
    assert VALUE not in first
    assert await desk(store, HeldSeals(bytes(32))).reseal() == (0, 1)


async def test_one_mount_does_not_take_away_what_another_one_uses() -> None:
    store = await holding(mount(), mount("copy", 2, secret_ref="agent:hub"))
    creds = desk(store)
    row = await creds.attach("hub", {"token": VALUE}, shape=TOKEN)
    copy = await store.read(lambda tx: tx.row(MountRow, "copy"))
    assert copy is not None
    await store.transact(lambda tx: creds.removing(tx, row))
    await store.transact(lambda tx: tx.delete_row(MountRow, "hub"))
    again = await creds.attach("copy", {"token": "another-value"}, shape=TOKEN)
    assert await opened(creds, again) == "another-value"


# ---- kept by name ----


async def test_what_a_plugin_keeps_of_a_mount_is_that_mounts_alone_and_goes_with_it() -> None:
    one, other = mount(), mount("other", 2)
    store = await holding(one, other)
    creds = desk(store)
    await creds.keep("oauth", "kept-by-the-person")
    await creds.keep("header", "for-set-headers", kind="owner")
    await creds.put_secret(one, "oauth", {"tokens": f'{{"access_token": "{VALUE}", "type": "Bearer"}}'})
    mine, others = await creds.secret(one, "oauth"), await creds.secret(other, "oauth")
    assert mine is not None
    assert others is not None
    assert (VALUE in mine.field("tokens"), others.token) == (True, "kept-by-the-person")
    assert await creds.secret(one, "header") is None, "a call names what only a mount may be set to send"
    owned = await creds.owned("header")
    assert owned is not None
    assert (owned.token, await creds.names(), await creds.names("owner")) == (
        "for-set-headers",
        ("oauth",),
        ("header",),
    )
    assert (await creds.state(one, CredentialShape("sign-in"))).kind == "attached"
    with pytest.raises(PluginError) as told:
        await desk(store, HeldSeals(OTHER_KEY)).secret(one, "oauth")
    assert (told.value.code, told.value.landed) == ("credential_unreadable", "no")
    await store.transact(lambda tx: creds.removing(tx, one))
    again = await creds.secret(one, "oauth")
    assert again is not None
    assert again.token == "kept-by-the-person"
    await creds.drop("oauth")
    assert (await creds.secret(one, "oauth"), await creds.secret(one, "../x")) == (None, None)


async def test_values_are_masked_under_their_name_from_when_they_are_known() -> None:
    store = await holding()
    await desk(store).attach("hub", {"token": VALUE}, shape=TOKEN)
    redactor = Redactor()
    creds = desk(store, redactor=redactor)
    await creds.arm()
    assert redactor.text(f"echo {VALUE}") == "echo [secret hub]"
    creds.let_go()
    assert redactor.text(VALUE) == VALUE
    assert maskable({"user": "somebody-known", "password": "p", "tokens": '{"access_token": "t", "type": "b"}'}) == [
        "p",
        "t",
    ]


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({"token": "with space"}, TOKEN),
        ({"token": "line\nend"}, TOKEN),
        ({"token": " "}, TOKEN),
        ({"other": VALUE}, TOKEN),
        ({"a": VALUE}, CredentialShape("fields", ("a", "b"))),
        ({"token": VALUE}, CredentialShape("none")),
        ({"token": VALUE}, CredentialShape("sign-in", why_not="cannot be had yet")),
        ({"token": "x" * 70_000}, TOKEN),
    ],
)
async def test_what_is_no_credential_for_a_mount_is_refused(fields: dict[str, str], shape: CredentialShape) -> None:
    store = await holding()
    with pytest.raises(CredentialRefusedError) as refusal:
        await desk(store).attach("hub", fields, shape=shape)
    assert VALUE not in str(refusal.value)
    assert await store.read(lambda tx: tx.rows(SecretRow)) == []


async def test_the_hosts_own_look_at_the_mount_decides_in_the_same_transaction() -> None:
    store = await holding()

    def refuse(tx: AgentTx, row: MountRow) -> None:
        assert row.secret_ref == "agent:hub"
        raise CredentialRefusedError("It has to list allowed hosts first.", code="ALLOWED_HOSTS_REQUIRED")

    with pytest.raises(CredentialRefusedError, match="allowed hosts"):
        await desk(store).attach("hub", {"token": VALUE}, shape=TOKEN, check=refuse)
    assert await store.read(lambda tx: (tx.rows(SecretRow), tx.row(MountRow, "hub"))) == ([], mount())


async def test_a_seal_that_is_replaced_or_removed_is_not_on_the_disk_any_more(tmp_path: Path) -> None:
    store = await open_agent_store(tmp_path / "agent", profile="p", agent="a")
    await store.transact(lambda tx: tx.put_row(mount()))
    creds = desk(store)
    seals = []
    for value in (VALUE, "second-value"):
        await creds.attach("hub", {"token": value}, shape=TOKEN)
        seals.append((await store.read(lambda tx: tx.rows(SecretRow)))[0].ciphertext)
    await creds.detach("hub")
    on_disk = b"".join(path.read_bytes() for path in tmp_path.iterdir())  # noqa: ASYNC240
    await store.close()
    assert not any(each[:32] in on_disk for each in seals)
    assert VALUE.encode() not in on_disk
