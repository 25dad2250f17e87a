"""Mounts on the command line's side: what an order changes, what it cannot, and the way of a credential."""

import asyncio
from typing import Any

import msgspec
import pytest

from desktop.app import Host
from desktop.orders.mounts import parked_name
from runtime_host.connectors.base import SecretRef
from runtime_host.loop.seeds import USUAL_SEEDS, sow
from runtime_host.storage.base import AgentTx
from runtime_host.storage.rows import SeedRow
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.unit.desktop.ledgers import deciding, with_ledger
from tests.unit.desktop.seat import Seat
from ui.wire import dto

pytestmark = pytest.mark.process

TOKEN = "a-good-token-0001"


@pytest.fixture(autouse=True)
def ledger(monkeypatch: pytest.MonkeyPatch) -> LedgerPlugin:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    return with_ledger(monkeypatch)


class Orders:
    """Gives orders and keeps what was said."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.said: list[dict[str, Any]] = []

    async def __call__(self, command: str, **arguments: Any) -> tuple[int, dict[str, Any]]:
        """(exit code, the last line) of an order."""
        lines: list[dict[str, Any]] = []

        async def send(line: dict[str, Any]) -> None:
            lines.append(line)

        code = await self._host.operations.perform(command, arguments, send, asyncio.Event())
        self.said += lines
        rows = [line for line in lines if "note" not in line]
        return code, rows[-1] if rows else {}


@pytest.fixture
def order(host: Host) -> Orders:
    return Orders(host)


async def test_a_mount_is_added_set_up_renamed_switched_and_removed(order: Orders, host: Host) -> None:
    code, line = await order("mount-add", plugin="ledger", alias="books", set=["colour=red", "size=3"])
    assert (code, line["row"]["config"]) == (0, {"colour": "red", "size": 3})
    assert line["row"]["policy"] == {"read": "allow", "write": "approval"}, "what changes something asks first"
    code, line = await order("mount-edit", alias="books", write="deny", tools=["set=allow"], set=["size="])
    assert line["row"]["policy"] == {"read": "allow", "write": "deny", "tools": {"set": "allow"}}
    assert line["row"]["config"] == {"colour": "red"}
    installation = line["row"]["installation"]
    code, line = await order("mount-rename", alias="books", new="shelf")
    assert (line["row"]["alias"], line["row"]["installation"]) == ("shelf", installation)
    assert (await order("mount-switch", alias="shelf", to="off"))[1]["row"]["state"] == "put-away"
    assert (await order("mount-switch", alias="shelf", to="on"))[1]["row"]["state"] == "on"
    code, line = await order("mount-remove", alias="shelf")
    assert (line["row"]["confirm"], line["row"]["goes"][0]) == (
        True,
        "The mount shelf (Ledger) with its settings and rules.",
    )
    assert (await order("mount-remove", alias="shelf", confirmed=True))[1]["row"]["removed"] is True
    code, line = await order("mount-remove", alias="shelf", confirmed=True)
    assert (code, line["error"]["code"]) == (2, "NOT_MOUNTED")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"plugin": "ledgre"}, "PLUGIN_UNKNOWN", "Did you mean ledger?"),
        ({"plugin": "ledger", "set": ["color=red"]}, "SETTING_UNKNOWN", "Did you mean colour?"),
        ({"plugin": "ledger", "set": ["size=many"]}, "SETTING_TYPE", "a number"),
        ({"plugin": "ledger", "alias": "a__b"}, "ALIAS_REFUSED", "underscores"),
        ({"plugin": "ledger", "alias": "files"}, "ALIAS_TAKEN", "already"),
        ({"plugin": "ledger", "write": "maybe"}, "POLICY_REFUSED", "allow, deny, approval"),
    ],
)
async def test_what_means_nothing_is_refused_with_what_was_meant(
    order: Orders, arguments: dict[str, Any], code: str, words: str
) -> None:
    exit_code, line = await order("mount-add", **arguments)
    assert (exit_code, line["error"]["code"]) == (2, code)
    assert words in line["error"]["message"]
    _, listed = await order("mounts")
    assert listed["row"]["alias"] in ("files", "artifacts", "web")


async def test_only_the_reference_of_this_mounts_credential_is_taken(
    order: Orders, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key of a connector is not to be sealed into a mount that could send it elsewhere."""
    _, line = await order("mount-add", plugin="ledger", set=["allowed_hosts=api.example.com"])
    kept = {"loopback": "sk-of-the-connector", parked_name(line["row"]["installation"]): TOKEN}
    resolved: list[str] = []

    async def resolve(ref: SecretRef) -> str:
        resolved.append(ref.name)
        return kept[ref.name]

    async def delete(ref: SecretRef) -> None:
        kept.pop(ref.name, None)

    monkeypatch.setattr(host.credentials, "resolve", resolve)
    monkeypatch.setattr(host.credentials, "delete", delete)
    for secret in (
        {"kind": "keyring", "name": "loopback"},
        {"kind": "env", "name": "HOME"},
        {"kind": "keyring", "name": parked_name("inst_of_another")},
        {"token": TOKEN},
        None,
    ):
        code, refused = await order("mount-attach", alias="ledger", secret=secret)
        assert (code, refused["error"]["code"]) == (2, "CREDENTIAL_REFUSED")
    assert resolved == []
    own = {"kind": "keyring", "name": parked_name(line["row"]["installation"])}
    await order("mount-attach", alias="ledger", secret=own)
    assert resolved == [own["name"]]
    assert own["name"] not in kept, "whatever came of it, it is in the key store no more"
    assert TOKEN not in str(order.said)


async def test_to_look_at_a_mount_is_answered_in_the_dialog_alone(
    order: Orders, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = deciding(host, monkeypatch)
    code, line = await order("mount-add", plugin="mcp", alias="server", set=["transport=stdio", "command=/bin/true"])
    assert code == 0, line
    [row] = [each["row"] for each in order.said if each.get("row", {}).get("alias") == "server"][-1:]
    assert row["policy"] == {"read": "approval", "write": "approval"}
    person.says("later")
    code, line = await order("mount-look", alias="server", agreed=True, digest="x", confirmed=True)
    assert (code, line["row"]["ready"]) == (1, False)
    [asked] = person.asked
    assert asked.heading == "May this be started?"
    assert any("/bin/true" in text for _, _, text in asked.parts)


async def test_what_an_agent_uses_is_said_everywhere_without_its_file_being_opened(
    order: Orders, host: Host, seat: Seat
) -> None:
    puppet, agent_id = seat.puppet, host.agents.current.agent_id
    await puppet.lock()
    assert (await puppet.wait_for(dto.Selected)).sentence.endswith(" · touches nothing")
    # What every agent is begun with reaches nothing but a folder, and the web is switched off.
    await order("mounts")
    assert host.agents.current.uses == ()
    await order("mount-add", plugin="ledger", alias="book")
    said = await puppet.wait_for(dto.Selected, lambda m: m.sentence.endswith(" · uses book"))
    assert "touches nothing" not in said.sentence
    await host.stores.rest()
    assert host.stores.open_files() == 0
    offered = host.desk.choices("", None, seat.channel.authority).choices
    assert {(choice.folder, choice.touches) for choice in offered} == {
        ("optional", "one folder that you choose, and what book reaches"),
        ("never", "what book reaches"),
    }
    assert (await host.desk.selected(seat.channel.authority))[0].sentence.endswith(" · uses book")  # type: ignore[attr-defined]
    # Two orders are of one mind with it: what would be bound, and what an agent is.
    assert (await order("inspect"))[1]["row"]["uses"] == ["book"]
    assert (await order("agents"))[1]["row"]["uses"] == ["book"]
    assert host.stores.open_files() == 0
    # What is kept is not what somebody says of an agent, and a copy has no mounts.
    edited = await host.agents.edit(msgspec.structs.replace(host.agents.current, uses=(), description="x"))
    assert edited.uses == ("book",)
    assert (await host.agents.duplicate(agent_id)).uses == ()
    await order("mount-rename", alias="book", new="diary")
    await order("mount-switch", alias="web", to="on")
    await puppet.wait_for(dto.Selected, lambda m: m.sentence.endswith(" · uses web, diary"))
    await order("mount-switch", alias="diary", to="off")
    after = len(puppet.told)
    await order("mount-remove", alias="web", confirmed=True)
    await puppet.wait_for(dto.Selected, lambda m: m.sentence.endswith(" · touches nothing"), after=after)
    assert host.agents.current.uses == ()


async def test_what_was_done_to_mounts_without_the_person_is_told_once(order: Orders, host: Host, seat: Seat) -> None:
    def told(page: dto.Mounts) -> dict[str, tuple[str, ...]]:
        return {row.alias: row.warnings for row in page.rows}

    await order("mounts")
    rows = [line["row"] for line in order.said]
    assert [row["alias"] for row in rows] == ["files", "artifacts", "web"]
    assert all("Every agent is begun with this one" in row["warnings"][0] for row in rows)
    order.said.clear()
    await order("mounts")
    assert [line["row"]["warnings"] for line in order.said] == [[], [], []]
    # A version of its plugin that is newer than the mount, and an agent that had one of the name already.
    gateway, store = await host.gateway("assistant"), await host.stores.open("assistant")
    web, files = (await gateway.mounts.all())[2], (await gateway.mounts.all())[0]

    def older(tx: AgentTx) -> None:
        tx.put_row(msgspec.structs.replace(web, tool_version="0"))
        tx.delete_row(SeedRow, files.alias, "1")
        sow(tx, gateway.ground, USUAL_SEEDS)

    await store.transact(older)
    await seat.puppet.lock()
    for _ in range(2):
        # It stands as long as the window does, and is told in no other place any more.
        after = len(seat.puppet.told)
        await seat.puppet.say(dto.WantPage(page="mounts"))
        page = told(await seat.puppet.wait_for(dto.Mounts, after=after))
        assert "You had one already; it stays as it is." in page["files"][0]
        assert page["web"][0].startswith(f"It goes on with version {web.tool_version} of http now")
        assert page["artifacts"] == ()
    order.said.clear()
    await order("mounts")
    assert [line["row"]["warnings"] for line in order.said] == [[], [], []]


async def test_everything_sealed_is_brought_under_a_new_key(
    order: Orders, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key store is one text here; what was attached before opens after, and the older key is gone."""
    entries: dict[str, str] = {}

    async def look_up(name: str) -> str | None:
        return entries.get(name)

    async def store(name: str, secret: Any) -> SecretRef:
        entries[name] = secret.reveal()
        return SecretRef(kind="keyring", name=name)

    monkeypatch.setattr(host.credentials, "look_up", look_up)
    monkeypatch.setattr(host.credentials, "store", store)
    await order("mount-add", plugin="ledger", alias="books", set=["allowed_hosts=ledger.example"])
    book = (await host.gateway(host.agents.current.agent_id)).mounts
    await book.attach("books", {"token": TOKEN})
    [before] = entries.values()
    code, line = await order("mount-rotate-key")
    assert (code, line["row"]) == (0, {"done": 1, "unreadable": 0})
    [after] = entries.values()
    assert len(after.split()) == 1
    assert after != before
    code, line = await order("mount-check", alias="books")
    assert line["row"]["state"] != "unreadable"
    assert TOKEN not in str(order.said)
