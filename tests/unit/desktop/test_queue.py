"""What is said while something goes on: steered, queued, edited, reordered, sent, removed; and the page of mounts."""

import asyncio
from typing import Any

import pytest

from desktop.app import Host
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.loopback.chat_server import ChatServer
from tests.puppet import Puppet, until
from tests.unit.desktop.ledgers import WRITES, Decider, deciding, mount_ledger, with_ledger
from tests.unit.desktop.seat import Seat, new_send
from ui.wire import dto

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def ledger(monkeypatch: pytest.MonkeyPatch) -> LedgerPlugin:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    return with_ledger(monkeypatch)


@pytest.fixture
async def person(host: Host, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> Decider:
    server.behaviour = WRITES
    await mount_ledger(host)
    return deciding(host, monkeypatch)


@pytest.fixture
async def waiting(seat: Seat, person: Decider) -> Puppet:
    """A window whose conversation waits for the person."""
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    assert (await puppet.ask(new_send(puppet, "write it down"))).status == "done"
    await puppet.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == "waiting" and m.waiting == 1)
    return puppet


async def say(puppet: Puppet, text: str, *, queue: bool = False, anyway: bool = False) -> dto.Outcome:
    return await puppet.ask(
        dto.Send(
            request=puppet.request(), revision=puppet.binding.revision, request_id=f"r-{len(puppet.told)}-{len(text)}",
            text=text, when="queue" if queue else "now", anyway=anyway,
        )
    )  # fmt: skip


async def queue_is(puppet: Puppet, *words: str) -> tuple[dto.QueuedRow, ...]:
    def newest() -> dto.Queued | None:
        return next((m for m in reversed(puppet.told) if isinstance(m, dto.Queued)), None)

    await until(lambda: (told := newest()) is not None and tuple(row.text for row in told.rows) == words)
    told = newest()
    assert told is not None
    return told.rows


def change(puppet: Puppet, kind: Any, **words: Any) -> Any:
    return puppet.ask(kind(request=puppet.request(), revision=puppet.binding.revision, **words))


def said_by_the_person(server: ChatServer) -> list[str]:
    return [m["content"] for m in server.requests[-1].json()["messages"] if m["role"] == "user"]


async def test_while_a_call_waits_what_is_said_reaches_the_model_and_no_tool_is_made(
    waiting: Puppet, host: Host, server: ChatServer, person: Decider, ledger: LedgerPlugin
) -> None:
    asked = len(server.requests)
    assert (await say(waiting, "hurry up")).status == "done"
    rows = await queue_is(waiting, "hurry up")
    assert rows[0].kind == "steer"
    assert (len(server.requests), ledger.effects) == (asked, []), "typing does not go round the decision"
    person.says("approve")
    [held] = await host.approvals.pending(host.agents.current.agent_id)
    await host.approvals.review(held.operation_id)
    await waiting.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == "done")
    await queue_is(waiting)
    assert "hurry up" in said_by_the_person(server)
    added = [m.item for m in waiting.told if isinstance(m, dto.ItemAdded) and m.item.kind == "user"]
    assert "hurry up" in [item.text for item in added]


async def test_the_queue_is_edited_reordered_and_sent_in_order_each_once(
    waiting: Puppet, host: Host, server: ChatServer, person: Decider
) -> None:
    for words in ("one", "two", "three"):
        assert (await say(waiting, words, queue=True)).status == "done"
    one, two, three = await queue_is(waiting, "one", "two", "three")
    assert {row.kind for row in (one, two, three)} == {"follow_up"}
    assert (await change(waiting, dto.MoveQueued, queued=three.id, before=one.id)).status == "done"
    await queue_is(waiting, "three", "one", "two")
    assert (await change(waiting, dto.EditQueued, queued=one.id, text="other words")).status == "done"
    await queue_is(waiting, "three", "other words", "two")
    assert (await change(waiting, dto.EditQueued, queued=two.id, text="api_key = sk-proj-" + "a1B2c3D4" * 6)).code == (
        "SECRET_FOUND"
    )
    assert (await change(waiting, dto.RemoveQueued, queued=two.id)).status == "done"
    await queue_is(waiting, "three", "other words")
    assert (await change(waiting, dto.EditQueued, queued=two.id, text="x")).status == "stale"
    person.says("deny")
    [held] = await host.approvals.pending(host.agents.current.agent_id)
    await host.approvals.review(held.operation_id)
    await queue_is(waiting)
    await until(lambda: said_by_the_person(server)[-2:] == ["three", "other words"])
    await until(lambda: not host.conversations.busy)
    assert len([r for r in server.requests if r.method == "POST"]) == 4


async def test_after_a_stop_what_is_queued_waits_for_the_person(
    waiting: Puppet, host: Host, server: ChatServer
) -> None:
    assert (await say(waiting, "later on", queue=True)).status == "done"
    [row] = await queue_is(waiting, "later on")
    assert (await change(waiting, dto.Stop)).status == "done"
    await waiting.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == "stopped")
    await waiting.wait_for(dto.Queued, lambda m: m.held and len(m.rows) == 1)
    assert (await change(waiting, dto.SendQueued, queued=row.id)).status == "done"
    await queue_is(waiting)
    await until(lambda: said_by_the_person(server)[-1].endswith("later on"))
    assert any("stopped the turn" in words for words in said_by_the_person(server))


async def test_what_was_never_shown_cannot_be_touched(waiting: Puppet, seat: Seat) -> None:
    await waiting.say(
        dto.RemoveQueued(request=waiting.request(), revision=waiting.binding.revision, queued="inbox-of-another")
    )
    await asyncio.wait_for(seat.channel.closed.wait(), 10)
    assert seat.channel.breach is not None
    assert seat.channel.breach.code == "ID_NEVER_SHOWN"


async def test_a_secret_is_refused_by_its_kind_and_kept_nowhere_until_the_person_says_so(
    seat: Seat, host: Host, server: ChatServer, person: Decider
) -> None:
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    secret = "sk-proj-" + "a1B2c3D4" * 6
    refused = await say(puppet, f"use {secret}")
    assert (refused.status, refused.code) == ("refused", "SECRET_FOUND")
    assert secret not in refused.text
    assert await host.conversations.draft(None) == ""
    assert await host.conversations.names() == []
    assert server.requests == []
    assert (await say(puppet, f"use {secret}", anyway=True)).status == "done"
    await until(lambda: len(server.requests) == 1)


# ------------------------------------------------------------------------------------ the page of mounts


async def mounts_of(puppet: Puppet) -> dict[str, dto.MountRow]:
    after = len(puppet.told)
    await puppet.say(dto.WantPage(page="mounts"))
    return {row.alias: row for row in (await puppet.wait_for(dto.Mounts, after=after)).rows}


async def test_the_page_tells_the_whole_set_and_what_each_tool_would_do(
    seat: Seat, host: Host, person: Decider
) -> None:
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    book = (await host.gateway(host.agents.current.agent_id)).mounts
    await book.add("ledger", "open", policy={"read": "allow"})
    rows = await mounts_of(puppet)
    assert set(rows) == {"files", "artifacts", "web", "ledger", "open"}
    assert rows["web"].state == "put-away"
    verdicts = {tool.name: (tool.effect, tool.verdict) for tool in rows["ledger"].tools}
    assert verdicts["write"] == ("write", "approval")
    assert verdicts["look"] == ("read", "allow")
    assert rows["open"].warnings, "a door beside the gate is told"
    assert rows["ledger"].credential == "none"
    assert (await change_mount(puppet, "switch-mount", rows["ledger"].id)).status == "done"
    assert (await mounts_of(puppet))["ledger"].state == "put-away"
    assert person.asked == []


async def change_mount(puppet: Puppet, action: Any, target: str) -> dto.Outcome:
    return await puppet.ask(dto.Propose(request=puppet.request(), action=action, target=target))


async def test_a_mount_that_was_removed_is_not_the_one_that_has_its_name_now(
    seat: Seat, host: Host, person: Decider
) -> None:
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    book = (await host.gateway(host.agents.current.agent_id)).mounts
    old = (await mounts_of(puppet))["ledger"].id
    await book.remove("ledger")
    await book.add("ledger")
    assert (await change_mount(puppet, "switch-mount", old)).status == "stale"
    assert (await mounts_of(puppet))["ledger"].state == "on"
