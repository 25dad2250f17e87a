"""What is stored where is true to the byte; all of it is exported, and all of it removed."""

import asyncio
import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from desktop import export, network, paths, profiles, stored
from desktop.app import Host
from desktop.profile_store import AgentRecord, ProfileTx
from runtime_host.connectors.base import Connector, SecretRef
from runtime_host.errors import AgentRuntimeError, ConnectorError
from runtime_host.storage.base import AgentTx
from tests.loopback.chat_server import DEFAULT_KEY, DEFAULT_REPLY, ChatServer

CANARY = "canary-9006-of-a-message"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


async def say(host: Host, text: str, agent: str | None = None) -> str:
    [choice] = [each for each in host.choices() if each.connector == "loopback"]
    name, run = await host.conversations.send(
        None, text, request_id=os.urandom(8).hex(), choice=choice, effort="", agent=agent
    )
    await run.result()
    await host.conversations.wait_until_quiet(asyncio.Event())
    return name


async def keyed(host: Host, name: str) -> None:
    await host.connectors.add(
        Connector(
            name=name,
            vendor="openai-compatible",
            base_url="http://127.0.0.1:9/v1",
            secret=SecretRef(kind="keyring", name=name),
            models=("m",),
        )
    )


async def pictured(host: Host, conversation_id: str) -> None:
    """Let the first message of a conversation have a picture."""
    reference = await host.conversations.reference(conversation_id)
    store = await host.stores.open(reference.agent_id)

    def put(tx: AgentTx) -> None:
        [run] = tx.runs(reference.session_id)
        tx.put_image(reference.session_id, run.run_id, 1, media_type="image/png", data=PICTURE)

    await store.transact(put)


def put_away(tx: ProfileTx, conversation_id: str) -> None:
    record = tx.conversation(conversation_id)
    assert record is not None
    tx.put_conversation(msgspec.structs.replace(record, archived=True))


def files_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_symlink() or not path.is_dir()]


def there(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def bytes_below(*roots: Path) -> int:
    """As `du --apparent-size` counts them, without the folders themselves."""
    return sum(path.lstat().st_size for root in roots for path in files_below(root))


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the keys that were deleted from the key store."""
    names: list[str] = []

    class Keys:
        def __init__(self, profile_uuid: str, **_: Any) -> None:
            self.profile_uuid = profile_uuid

        async def delete(self, ref: SecretRef) -> None:
            if ref.name == "locked":
                raise ConnectorError("The key store is locked and stayed locked.", code="KEYRING_LOCKED")
            names.append(ref.name)

        async def aclose(self) -> None:
            pass

    monkeypatch.setattr("desktop.credentials.Credentials", Keys)
    return names


async def test_every_byte_is_in_exactly_one_row(host: Host) -> None:
    poet = await host.agents.create(AgentRecord(agent_id="", name="Poet"))
    await say(host, CANARY * 1_000)
    await say(host, "Hello", agent=poet.agent_id)
    await keyed(host, "groq")
    root = host.paths.root
    for name, size_bytes in (("artifacts/a/b.png", 5_000), ("harness-homes/x", 70), ("other", 3)):
        file = host.paths.agent(poet.agent_id) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size_bytes)
    (root / "agents" / "loose").write_bytes(b"y" * 11)
    (root / "agents" / "a0").mkdir()
    (root / "agents" / "a0" / "left").write_bytes(b"z" * 13)
    (root / "strange").mkdir()
    (root / "strange" / "link").symlink_to("/etc/passwd")
    (root / "agents" / "linked").symlink_to("/usr")
    host.paths.models.write_text("# mine", encoding="utf-8")
    rows = await stored.what_is_stored(host)
    inside = [row for row in rows if Path(row.path).is_relative_to(root)]
    assert sum(row.size_bytes for row in inside) == bytes_below(root)
    assert sum(row.count for row in inside) == len(files_below(root))
    assert stored.total_bytes(rows) == bytes_below(root) + 6
    by_what = {row.what: row for row in rows}
    assert by_what["Agent Poet"].path == str(host.paths.agent(poet.agent_id))
    assert by_what["Agent Poet"].sentence.startswith("1 conversation:")
    assert by_what["Poet: artifacts"].size_bytes == 5_000
    assert by_what["Of no agent"].size_bytes >= 13
    assert by_what["Key of groq"].path.endswith(host.settings.profile_uuid)
    assert "Key of loopback" not in by_what
    assert by_what["Models of yours"].size_bytes == 6
    assert [row.path for row in inside if not os.access(row.path, os.F_OK)] == []


async def test_everything_but_keys_is_exported(host: Host, tmp_path: Path) -> None:
    poet = await host.agents.create(AgentRecord(agent_id="", name="Poet", instructions="Rhyme."))
    first = await say(host, CANARY)
    second = await say(host, "../../etc/passwd \u202e title", agent=poet.agent_id)
    await host.profile.transact(lambda tx: put_away(tx, second))
    await pictured(host, first)
    await keyed(host, "groq")
    await host.conversations.keep_draft(first, "half a thought")
    await host.settings.set_picture_word("blue heron")
    await host.profile.transact(
        lambda tx: tx.put_setting(
            "network",
            {
                "proxy": "http://me:pass-canary@proxy.example:3128",
                "ca_file": "",
                "secret": {"kind": "keyring", "name": "entry-canary"},
            },
        )
    )
    artifact = host.paths.agent("assistant") / "artifacts" / "a.txt"
    artifact.parent.mkdir()
    artifact.write_text("brought", encoding="utf-8")
    (artifact.parent / "link").symlink_to("/etc/passwd")
    host.paths.models.write_text("# mine", encoding="utf-8")
    told: list[tuple[int, int, str]] = []
    target = tmp_path / "all.zip"
    made = await export.export_all(host, target, lambda done, of, sentence: told.append((done, of, sentence)))
    assert (made.conversations, made.size_bytes) == (2, target.stat().st_size)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [done for done, _, _ in told] == [0, 1, 2, 3, 4]
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len(set(names)) == len(names)
        assert all(".." not in name.split("/") and not name.startswith("/") for name in names)
        [picture] = [name for name in names if name.endswith(".png")]
        assert archive.read(picture) == PICTURE
        everything = {name: archive.read(name).decode() for name in names if name != picture}
    whole = "\n".join(everything.values())
    for secret in (DEFAULT_KEY, "blue heron", "pass-canary", "entry-canary", host.settings.profile_uuid, "root:"):
        assert secret not in whole
    [talk] = [json.loads(text) for name, text in everything.items() if first in name and name.endswith(".json")]
    assert [(item["kind"], item["text"]) for item in talk["items"]] == [("user", CANARY), ("reply", DEFAULT_REPLY)]
    assert talk["pictures"] == [{"run_id": talk["items"][0]["run_id"], "position": 1, "file": picture}]
    [put_off] = [json.loads(text) for name, text in everything.items() if second in name and name.endswith(".json")]
    assert (put_off["archived"], put_off["agent"]) == (True, "Poet")
    [read] = [text for name, text in everything.items() if first in name and name.endswith(".md")]
    assert f"## You\n\n{CANARY}\n\n## Reply\n\n{DEFAULT_REPLY}\n" in read
    connectors = {row["name"]: row["key"] for row in json.loads(everything["connectors.json"])}
    assert connectors["groq"] == "in the key store"
    assert connectors["loopback"] == "in the environment variable TEST_PROVIDER_SECRET"
    assert json.loads(everything["drafts.json"]) == {first: "half a thought"}
    assert json.loads(everything["settings.json"])["network"]["proxy"] == "http://proxy.example:3128"
    assert (everything["files/assistant/a.txt"], everything["models.toml"]) == ("brought", "# mine")
    assert "Rhyme." in everything[f"agents/Poet-{poet.agent_id}.json"]


async def test_an_export_holds_files_of_its_agents_alone_under_names_that_stay_in_their_folder(
    host: Host, tmp_path: Path
) -> None:
    (tmp_path / "ssh").mkdir()
    (tmp_path / "ssh" / "id").write_text(CANARY, encoding="utf-8")
    [agent] = host.agents
    files = host.paths.agent(agent.agent_id) / "artifacts"
    files.mkdir(parents=True)
    for name in (b"..\\..\\evil", b"C:evil", b"\xff\xfe.txt", b"__.txt", b"two\nlines"):
        (files / os.fsdecode(name)).write_bytes(b"x")
    (files / "linked").symlink_to(tmp_path / "ssh")
    other = await host.agents.create(AgentRecord(agent_id="", name="Poet"))
    host.paths.agent(other.agent_id).mkdir(parents=True)
    (host.paths.agent(other.agent_id) / "artifacts").symlink_to(tmp_path / "ssh")
    (tmp_path / "mine.toml").write_text("# mine", encoding="utf-8")
    host.paths.models.symlink_to(tmp_path / "mine.toml")
    done = await export.export_all(host, tmp_path / "all.zip")
    with zipfile.ZipFile(done.path) as archive:
        assert archive.testzip() is None
        said = {name: archive.read(name) for name in archive.namelist()}
    names = sorted(name for name in said if name.startswith("files/"))
    of = f"files/{agent.agent_id}"
    assert names == [f"{of}/{name}" for name in (".._.._evil", "C_evil", "__-2.txt", "__.txt", "two_lines")]
    assert CANARY.encode() not in b"".join(said.values())
    assert said["models.toml"] == b"# mine", "as the host reads it"


async def test_an_export_takes_no_place_that_is_taken_or_not_its_own(host: Host, tmp_path: Path) -> None:
    taken = tmp_path / "there.zip"
    taken.write_text("mine", encoding="utf-8")
    (tmp_path / "dangling.zip").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "way-in").symlink_to(host.paths.root)
    for path, why in (
        (taken, "already"),
        (tmp_path / "dangling.zip", "already"),
        (tmp_path / "none" / "all.zip", "no folder"),
        (host.paths.root / "all.zip", "own folder"),
        (tmp_path / "way-in" / "all.zip", "own folder"),
        (Path("all.zip"), "full path"),
    ):
        with pytest.raises(AgentRuntimeError, match=why):
            await export.export_all(host, path)
    assert taken.read_text("utf-8") == "mine"
    assert there(tmp_path) == ["dangling.zip", "data", "there.zip", "way-in"]


@pytest.mark.parametrize("nameless", [True, False])
async def test_what_is_cancelled_or_fails_leaves_nothing(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE")
    for number in range(3):
        await say(host, f"{CANARY} {number}")
    folder = tmp_path / "out"
    folder.mkdir()
    begun = asyncio.Event()
    task = asyncio.ensure_future(
        export.export_all(host, folder / "all.zip", lambda done, of, sentence: begun.set() if done == 2 else None)
    )
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert there(folder) == []

    def full(archive: zipfile.ZipFile, folders: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "_copy_files", full)
    with pytest.raises(AgentRuntimeError, match=r"No space left on device\. Nothing was left behind"):
        await export.export_all(host, folder / "all.zip")
    assert there(folder) == []
    monkeypatch.undo()
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE")
    await export.export_all(host, folder / "all.zip")
    assert there(folder) == ["all.zip"]


async def test_somebody_elses_file_that_came_meanwhile_is_not_overwritten(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "all.zip"

    def meanwhile(done: int, of: int, sentence: str) -> None:
        target.write_text("mine", encoding="utf-8")

    with pytest.raises(AgentRuntimeError, match="could not be written"):
        await export.export_all(host, target, meanwhile)
    assert target.read_text("utf-8") == "mine"
    assert there(tmp_path) == ["all.zip", "data"]


async def test_of_a_damaged_file_what_is_left_is_exported(host: Host, tmp_path: Path) -> None:
    poet = await host.agents.create(AgentRecord(agent_id="", name="Poet"))
    first = await say(host, CANARY)
    second = await say(host, "Hello", agent=poet.agent_id)
    for name in (first, second):
        await host.conversations.detach(name)
    file = host.paths.agent_store(poet.agent_id)
    await host.stores.rest()
    file.write_bytes(b"no database" * 10_000)
    made = await export.export_all(host, tmp_path / "all.zip")
    assert made.conversations == 2
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        whole = "".join(archive.read(name).decode() for name in archive.namelist())
    assert CANARY in whole
    assert [path.name for path in file.parent.glob("*.damaged-*")]


async def test_everything_is_removed_and_a_second_look_finds_nothing(
    host: Host, tmp_path: Path, deleted: list[str]
) -> None:
    other = profiles.create(tmp_path / "data", "Other")
    await say(host, CANARY)
    await keyed(host, "groq")
    host.paths.models.write_text("# mine", encoding="utf-8")
    host.paths.old_logs.mkdir()
    for name in ("host.log", "host.log.2"):
        (host.paths.old_logs / name).write_text("of before", encoding="utf-8")
    login = SecretRef(kind="keyring", name=network.LOGIN_ENTRY, base_url="http://127.0.0.1:3128").model_dump(
        mode="json"
    )
    await host.settings.set_network({"proxy": "http://127.0.0.1:3128", "ca_file": "", "secret": login})
    rows = await stored.what_is_stored(host)
    assert [row.size_bytes for row in rows if row.what == "Earlier log"] == [18]
    assert "2 keys in" in " ".join(await stored.what_goes(host, rows))
    await stored.remove_all(host)
    assert sorted(deleted) == ["groq", network.LOGIN_ENTRY]
    assert host.ended.is_set()
    told: list[Any] = []

    async def hear(line: Any) -> None:
        told.append(line)

    assert await host.operations.perform("sessions", {}, hear, asyncio.Event()) == 1
    assert told[0]["error"]["code"] == "PROFILE_REMOVED"
    await host.__aexit__()
    assert stored.left_behind(host.paths) == []
    assert not host.paths.root.exists()
    # What is another profile's stays, and with it what all profiles share.
    assert other.root.is_dir()
    assert host.paths.models.exists()
    await profiles.delete(tmp_path / "data", "other")
    assert not (tmp_path / "data").exists()


async def test_a_profile_that_lies_elsewhere_behind_a_link_is_removed_there_too(tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk"
    elsewhere.mkdir()
    (tmp_path / "neighbour").write_text("mine", encoding="utf-8")
    made = profiles.create(tmp_path / "data", "Work")
    os.rename(made.root, elsewhere / "work")
    made.root.symlink_to(elsewhere / "work")
    with pytest.raises(profiles.ProfileRefusedError, match="link to another place"):
        await profiles.delete(tmp_path / "data", "work")
    async with Host(paths.profile(tmp_path / "data", "work")) as host:
        await stored.remove_all(host)
    assert there(tmp_path) == ["disk", "neighbour"]
    assert there(elsewhere) == []


async def test_nothing_is_removed_while_a_reply_is_written_unless_it_is_stopped(
    host: Host, server: ChatServer, deleted: list[str]
) -> None:
    server.behaviour, server.tokens, server.tokens_per_s = "slow", 400, 5.0
    [choice] = [each for each in host.choices() if each.connector == "loopback"]
    _, run = await host.conversations.send(None, CANARY, request_id="r", choice=choice, effort="")
    await keyed(host, "groq")
    with pytest.raises(AgentRuntimeError, match="A reply is being written, and nothing is removed"):
        await stored.remove_all(host)
    assert (deleted, run.done, host.removing, host.ended.is_set()) == ([], False, False, False)
    await stored.remove_all(host, stop_runs=True)
    assert run.done
    await host.__aexit__()
    assert stored.left_behind(host.paths) == []


async def test_a_key_store_that_keeps_a_key_keeps_everything(host: Host, deleted: list[str]) -> None:
    await say(host, CANARY)
    await keyed(host, "locked")
    with pytest.raises(AgentRuntimeError, match=r"key of locked could not be deleted.*locked and stayed locked"):
        await stored.remove_all(host)
    assert (host.removing, host.ended.is_set()) == (False, False)
    assert await host.conversations.names()
    await host.__aexit__()
    assert profiles.resolve(host.paths.data, "personal") == host.paths
    async with Host(paths.profile(host.paths.data)) as later:
        assert len(await later.conversations.names()) == 1
