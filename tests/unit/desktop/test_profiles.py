"""Profiles: found by id or name, made, renamed and deleted whole or not at all."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from desktop import host_lock, paths, profiles, removal
from desktop.app import Host
from desktop.paths import ProfilePaths
from desktop.profile_store import open_profile_store
from runtime_host.errors import AgentRuntimeError, ConnectorError

CANARY = "canary-1812-of-the-profile"


class KeyStore:
    """Stands in for the keys of all profiles; refuses when it is told to."""

    def __init__(self) -> None:
        self.keys: dict[tuple[str, str], str] = {}
        self.refuses = ""

    def of(self, profile_uuid: str, **_: Any) -> Any:
        store = self

        class Keys:
            async def delete(self, ref: Any) -> None:
                if store.refuses == ref.name:
                    raise ConnectorError("The key store is locked and stayed locked.", code="KEYRING_LOCKED")
                store.keys.pop((profile_uuid, ref.name), None)

            async def aclose(self) -> None:
                pass

        return Keys()


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> KeyStore:
    made = KeyStore()
    monkeypatch.setattr("desktop.credentials.Credentials", made.of)
    return made


async def filled(data: Path, name: str, *key_names: str, keys: KeyStore | None = None) -> ProfilePaths:
    """A profile with something in it."""
    made = profiles.create(data, name)
    store = await open_profile_store(made.store, profile=made.name)
    uuid = f"uuid-of-{made.name}"

    def fill(tx: Any) -> None:
        tx.put_setting("profile_uuid", uuid)
        tx.put_draft("", CANARY)
        for key in key_names:
            tx.put_connector({"name": key, "secret": {"kind": "keyring", "name": key}})
        tx.put_setting("network", {"proxy": "p", "secret": {"kind": "keyring", "name": f"network:{name}"}})
        tx.put_connector({"name": "by-env", "secret": {"kind": "env", "name": "SOME_KEY"}})

    await store.transact(fill)
    await store.close()
    if keys is not None:
        keys.keys |= {(uuid, key): CANARY for key in (*key_names, f"network:{name}")}
    return made


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def listed(data: Path) -> list[tuple[str, str]]:
    return [(entry.profile_id, entry.name) for entry in profiles.list_profiles(data)]


def test_the_first_start_makes_the_usual_one(tmp_path: Path) -> None:
    assert profiles.resolve(tmp_path / "data", None).name == "personal"
    assert listed(tmp_path / "data") == [("personal", "personal")]


def test_a_profile_is_meant_by_its_id_or_its_name(tmp_path: Path) -> None:
    made = profiles.create(tmp_path, "Büro & Söhne")
    assert made.name == "buro-sohne"
    assert stat.S_IMODE(made.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((made.root / "name").stat().st_mode) == 0o600
    for word in ("buro-sohne", "Büro & Söhne", "BÜRO & SÖHNE", " Büro & Söhne "):
        assert profiles.resolve(tmp_path, word) == made
    assert profiles.resolve(tmp_path, None) == made
    for word in ("work", "../buro-sohne", "", "/etc", "buro-sohne/../x", "\u202ework"):
        with pytest.raises(profiles.ProfileRefusedError, match="no profile called") as refused:
            profiles.resolve(tmp_path, word)
        assert str(refused.value).isprintable()
    assert listed(tmp_path) == [("buro-sohne", "Büro & Söhne")]


@pytest.mark.parametrize("name", ["..", "a/b", "a\u202eb", "x" * 300, "CON", "a\nb", "work", "WORK", "\uff37ork", ""])
def test_a_name_that_cannot_be_is_refused_and_makes_nothing(tmp_path: Path, name: str) -> None:
    profiles.create(tmp_path, "Work")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(profiles.ProfileRefusedError):
        profiles.create(tmp_path, name)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_name_is_changed_and_the_folder_stays(tmp_path: Path) -> None:
    made = profiles.create(tmp_path, "Work")
    profiles.create(tmp_path, "Home")
    assert profiles.rename(tmp_path, "work", "Office") == "Office"
    assert profiles.rename(tmp_path, "Office", "OFFICE") == "OFFICE"
    assert listed(tmp_path) == [("home", "Home"), ("work", "OFFICE")]
    assert profiles.resolve(tmp_path, "Office") == made
    for taken in ("home", "Home"):
        with pytest.raises(profiles.ProfileRefusedError, match="already"):
            profiles.rename(tmp_path, "work", taken)


@pytest.mark.parametrize(
    "spoiled", [b"\xff\xfe", b"", b"a\x00b", "a\u202eb".encode(), b"x" * 9_000, b"../up"], ids=repr
)
def test_a_name_that_was_spoiled_shows_as_the_id(tmp_path: Path, spoiled: bytes) -> None:
    made = profiles.create(tmp_path, "Work")
    (made.root / "name").write_bytes(spoiled)
    assert listed(tmp_path) == [("work", "work")]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_in_place_of_the_name_leaves_nothing_open(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    made = profiles.create(tmp_path, "Work")
    (made.root / "name").unlink()
    make(made.root / "name")
    assert listed(tmp_path) == [("work", "work")]


def test_what_is_no_profile_is_not_listed(tmp_path: Path) -> None:
    profiles.create(tmp_path, "Work")
    folder = tmp_path / "profiles"
    (folder / ".gone-1").mkdir()
    (folder / ".new-1").mkdir()
    (folder / "a\u202eb").mkdir()
    (folder / "file").write_text("", encoding="utf-8")
    (folder / "link").symlink_to("/nowhere")
    assert listed(tmp_path) == [("work", "Work")]
    # And a new one never takes the place of what lies there.
    assert profiles.create(tmp_path, "File").name == "file-2"


async def test_a_profile_goes_with_its_keys_and_files_and_no_other(tmp_path: Path, keys: KeyStore) -> None:
    work = await filled(tmp_path, "Work", "openai", "groq", keys=keys)
    home = await filled(tmp_path, "Home", "openai", keys=keys)
    before = snapshot(home.root)
    assert await profiles.delete(tmp_path, "Work") == "Work"
    assert not work.root.exists()
    assert sorted(os.listdir(tmp_path / "profiles")) == [".lock", "home"]
    assert snapshot(home.root) == before
    assert keys.keys == {("uuid-of-home", key): CANARY for key in ("openai", "network:Home")}
    await profiles.delete(tmp_path, "home")
    assert keys.keys == {}
    assert not os.access(tmp_path, os.F_OK)


async def test_one_that_is_open_or_the_current_one_is_not_deleted(tmp_path: Path) -> None:
    work = await filled(tmp_path, "Work")
    lock = host_lock.acquire(work.lock)
    assert lock is not None
    with pytest.raises(profiles.ProfileRefusedError, match=r"Work is open\. Close it first"):
        await profiles.delete(tmp_path, "work")
    lock.release()
    with pytest.raises(profiles.ProfileRefusedError, match="you are in"):
        await profiles.delete(tmp_path, "work", current="work")
    with pytest.raises(profiles.ProfileRefusedError, match="no such profile"):
        await profiles.delete(tmp_path, "../work")
    assert CANARY.encode() in b"".join(snapshot(work.root).values())


async def test_a_key_store_that_keeps_a_key_keeps_the_profile(tmp_path: Path, keys: KeyStore) -> None:
    work = await filled(tmp_path, "Work", "groq", "openai", keys=keys)
    keys.refuses = "groq"
    with pytest.raises(AgentRuntimeError, match=r"key of groq could not be deleted.*locked"):
        await profiles.delete(tmp_path, "work")
    assert len(keys.keys) == 3
    assert {"name", "profile.sqlite3"} <= set(snapshot(work.root))
    assert removal.NOTE not in snapshot(work.root)
    assert CANARY.encode() in b"".join(snapshot(work.root).values())
    assert listed(tmp_path) == [("work", "Work")]
    keys.refuses = ""
    await profiles.delete(tmp_path, "work")
    assert keys.keys == {}


async def test_a_damaged_profile_can_be_deleted_too(tmp_path: Path) -> None:
    work = await filled(tmp_path, "Work")
    work.store.write_bytes(b"no database" * 1_000)
    [said] = await profiles.stays(work)
    assert "cannot be read" in said
    await profiles.delete(tmp_path, "work")
    assert not os.access(tmp_path, os.F_OK)


async def test_a_removal_that_was_decided_is_ended_at_the_next_look(tmp_path: Path, keys: KeyStore) -> None:
    """As after a kill between the note and the last byte."""
    work = await filled(tmp_path, "Work", "groq", keys=keys)
    await filled(tmp_path, "Home")
    removal.decide(work.root, await removal.take_stock(work))
    assert listed(tmp_path) == [("home", "Home")]
    assert profiles.resolve(tmp_path, None).name == "home"
    with pytest.raises(profiles.ProfileRefusedError):
        profiles.resolve(tmp_path, "work")
    assert not work.root.exists()
    await profiles.finish_interrupted(tmp_path)
    assert keys.keys == {}
    assert sorted(os.listdir(tmp_path / "profiles")) == [".lock", "home"]


async def test_what_a_creation_left_goes_at_the_next_look(tmp_path: Path) -> None:
    profiles.create(tmp_path, "Home")
    left = tmp_path / "profiles" / ".new-0123"
    left.mkdir()
    (left / "name").write_text("Half", encoding="utf-8")
    assert listed(tmp_path) == [("home", "Home")]
    await profiles.finish_interrupted(tmp_path)
    assert not left.exists()


async def test_nothing_of_another_is_touched_while_one_is_being_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(tmp_path, "Work")
    monkeypatch.setattr(profiles, "PATIENCE_S", 0.05)
    with profiles.changing(tmp_path):
        for attempt in (lambda: profiles.create(tmp_path, "Home"), lambda: profiles.rename(tmp_path, "work", "X")):
            with pytest.raises(profiles.ProfileRefusedError, match="changing profiles just now"):
                attempt()
        with pytest.raises(profiles.ProfileRefusedError, match="changing profiles just now"):
            await profiles.delete(tmp_path, "work")
        left = tmp_path / "profiles" / ".gone-77"
        left.mkdir()
        await profiles.finish_interrupted(tmp_path)
        assert left.exists()
    assert listed(tmp_path) == [("work", "Work")]


async def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    work = await filled(tmp_path, "Work")
    for spoiled in (
        "",
        "[]",
        "[" * 100_000,
        '{"profile_uuid": 1}',
        json.dumps({"keys": 5, "profile_uuid": "u", "keys_known": 1}),
    ):
        (work.root / removal.NOTE).write_text(spoiled, encoding="utf-8")
        assert removal.read_note(work.root) is None
    (work.root / removal.NOTE).unlink()
    (work.root / removal.NOTE).mkdir()
    assert removal.read_note(work.root) is None
    (work.root / removal.NOTE).rmdir()
    os.mkfifo(work.root / removal.NOTE)
    assert removal.read_note(work.root) is None, "and a pipe is not waited for"


async def test_a_link_in_place_of_what_is_to_go_takes_nobody_elses_folder_away(tmp_path: Path) -> None:
    profiles.create(tmp_path, "Home")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "precious").write_text("precious", encoding="utf-8")
    for name in (paths.GONE + "0123", ".new-0123"):
        (tmp_path / "profiles" / name).symlink_to(mine)
    await profiles.finish_interrupted(tmp_path)
    assert (mine / "precious").read_text(encoding="utf-8") == "precious"


async def test_a_host_shows_the_name_the_person_gave(tmp_path: Path) -> None:
    made = profiles.create(tmp_path, "Büro")
    async with Host(paths.profile(tmp_path, made.name)) as host:
        assert host.profile_name == host.desk.hello().profile == "Büro"
        [entry] = profiles.list_profiles(tmp_path, current=made.name)
        assert (entry.running, entry.current) == (True, True)
        profiles.rename(tmp_path, "buro", "Work")
        assert host.profile_name == "Work"
    assert profiles.list_profiles(tmp_path)[0].running is False
