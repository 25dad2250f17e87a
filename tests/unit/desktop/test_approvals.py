"""Held calls at the desk: shown, decided once in the trusted dialog, gone on with, over restarts too."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from desktop import paths, transcripts
from desktop.app import Host
from desktop.notifications import Press
from desktop.orders.operations import Operations
from desktop.questions import approval as approval_entry
from runtime_host.drivers.native.driver import NativeDriver
from runtime_host.loop.gateway import Gateway
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.loopback.chat_server import ChatServer
from tests.puppet import Puppet, until
from tests.unit.desktop.ledgers import ENTRY, WRITES, Decider, deciding, mount_ledger, with_ledger
from tests.unit.desktop.seat import Seat, new_send
from tests.unit.desktop.test_channel import newest_items
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


async def held_card(puppet: Puppet) -> dto.ToolCard:
    """The card of the call that waits."""

    def card_of(message: Any) -> dto.ToolCard | None:
        shown = message.item.card if isinstance(message, dto.ItemAdded) else getattr(message, "card", None)
        return shown if isinstance(shown, dto.ToolCard) and shown.decided == "waiting" else None

    await until(lambda: any(card_of(message) for message in puppet.told))
    return next(card for message in puppet.told if (card := card_of(message)) is not None)


async def waits(seat: Seat, *before: dto.RendererMessage) -> str:
    """Have the model ask for an entry, after the window said `before`; the operation that waits then."""
    await seat.puppet.lock()
    await seat.puppet.wait_for(dto.Selected)
    if before:
        await seat.puppet.say(*before)
    assert (await seat.puppet.ask(new_send(seat.puppet, "write it down"))).status == "done"
    await seat.puppet.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == "waiting")
    operation = (await held_card(seat.puppet)).operation
    assert operation is not None
    return operation


async def proposed(puppet: Puppet, operation: str) -> dto.Outcome:
    return await puppet.ask(dto.Propose(request=puppet.request(), action="review", target=operation))


async def ended(puppet: Puppet, state: str = "done") -> None:
    await puppet.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == state)


# ------------------------------------------------------------------------------------ deciding


async def test_a_held_call_is_shown_reviewed_and_made_once(
    seat: Seat, host: Host, server: ChatServer, person: Decider, ledger: LedgerPlugin
) -> None:
    operation = await waits(seat)
    newest = [m for m in seat.puppet.told if isinstance(m, dto.RunChanged)][-1]
    assert (newest.waiting, newest.busy_enter) == (1, "steer")
    asked = len(server.requests)
    person.says("later")
    assert (await proposed(seat.puppet, operation)).code == "NOT_DONE"
    assert (ledger.effects, len(server.requests)) == ([], asked), (
        "closing it decides nothing, and the model is not asked"
    )
    [shown] = person.asked
    assert shown.parts == (("entry", "text", ENTRY),)
    assert shown.effect == f"Writes “{ENTRY}” into ledger."
    person.says("approve")
    assert (await proposed(seat.puppet, operation)).status == "done"
    await ended(seat.puppet)
    assert ledger.effects == [("write", ENTRY)]
    assert (await proposed(seat.puppet, operation)).status == "stale", "it was decided"
    cards = [m.card for m in seat.puppet.told if isinstance(m, dto.ItemDone) and isinstance(m.card, dto.ToolCard)]
    assert cards[-1].decided == "approved"
    assert host.approvals.known("") == 0


async def test_a_no_makes_nothing_and_the_model_is_told(
    seat: Seat, server: ChatServer, person: Decider, ledger: LedgerPlugin
) -> None:
    operation = await waits(seat)
    person.says("deny")
    assert (await proposed(seat.puppet, operation)).status == "done"
    await ended(seat.puppet)
    assert ledger.effects == []
    results = [m for m in server.requests[-1].json()["messages"] if m["role"] == "tool"]
    assert len(results) == 1
    assert "said no" in results[0]["content"]


async def test_always_saves_the_rule_that_was_shown_and_the_next_is_not_asked_about(
    seat: Seat, host: Host, person: Decider, ledger: LedgerPlugin
) -> None:
    operation = await waits(seat)
    person.says("approve", always="widest", where={"entry": ("starts", "the first")})
    assert (await proposed(seat.puppet, operation)).status == "done"
    assert person.asked[0].widest == (("entry", "starts", "the ", ENTRY, True),)
    await ended(seat.puppet)
    [row] = [
        row for row in await (await host.gateway(host.agents.current.agent_id)).mounts.all() if row.alias == "ledger"
    ]
    assert row.policy["rules"] == [{"tool": "write", "where": {"entry": {"starts": "the first"}}}]
    told = len(seat.puppet.told)
    assert (await seat.puppet.ask(new_send(seat.puppet, "write it again"))).status == "done"
    await seat.puppet.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == "done", after=told)
    assert ledger.effects == [("write", ENTRY)] * 2


async def test_a_rule_that_is_wider_than_what_was_shown_decides_nothing(
    seat: Seat, host: Host, person: Decider, ledger: LedgerPlugin
) -> None:
    operation = await waits(seat)
    person.says("approve", always="widest", where={"entry": ("starts", "t")})
    refused = await proposed(seat.puppet, operation)
    assert (refused.status, refused.code) == ("refused", "RULE_TOO_WIDE")
    assert ledger.effects == []
    assert len(await host.approvals.pending(host.agents.current.agent_id)) == 1


async def test_what_changed_while_the_person_looked_is_not_approved(
    seat: Seat, host: Host, person: Decider, ledger: LedgerPlugin
) -> None:
    operation = await waits(seat)
    person.says("approve")
    person.thinking.clear()
    asking = asyncio.ensure_future(proposed(seat.puppet, operation))
    await until(lambda: person.asked)
    mounts = (await host.gateway(host.agents.current.agent_id)).mounts
    await mounts.edit("ledger", config={"colour": "red"})
    person.thinking.set()
    await asking
    await ended(seat.puppet)
    assert ledger.effects == []
    assert any("changed since" in m.text for m in seat.puppet.told if isinstance(m, dto.Notice))


# ------------------------------------------------------------------------------------ attacks


async def test_an_operation_that_was_never_shown_is_a_breach(seat: Seat, person: Decider) -> None:
    await waits(seat)
    await seat.puppet.say(dto.Propose(request=seat.puppet.request(), action="review", target="op_" + "0" * 20))
    await asyncio.wait_for(seat.channel.closed.wait(), 10)
    assert seat.channel.breach is not None
    assert seat.channel.breach.code == "ID_NEVER_SHOWN"
    assert person.asked == []


def test_an_argument_that_is_called_like_words_of_ours_is_quoted() -> None:
    given = {"Account": "ada", "If you approve, this holds": "ever", "path": "x", "a\nb": 1}
    assert [name for name, _, _ in approval_entry.parts_of(given)] == [
        '"Account"',
        '"If you approve, this holds"',
        "path",
        '"a\\nb"',
    ]


def test_no_word_of_the_window_approves() -> None:
    """What a window may say about a held call is its id, and that it is to be shown."""
    fields = {name for kind in get_args(dto.RendererMessage) for name in kind.__struct_fields__}
    assert not {"approve", "approved", "decision", "decided", "verdict", "hash", "request_hash", "always"} & fields
    assert not {word for word in get_args(dto.Action) if word.startswith(("approve", "allow", "agree", "accept"))}


async def test_no_order_over_the_socket_approves(
    seat: Seat, host: Host, person: Decider, ledger: LedgerPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every order there is, told everything that could be taken for a yes, while the person says nothing."""
    operation = await waits(seat)
    held = (await host.approvals.pending(host.agents.current.agent_id))[0]
    decided: list[Any] = []
    decide = Gateway.decide

    async def watched(self: Gateway, operation_id: str, **word: Any) -> Any:
        decided.append(word)
        return await decide(self, operation_id, **word)

    monkeypatch.setattr(Gateway, "decide", watched)
    person.says("later")
    yes = {
        "approve": True,
        "approved": True,
        "decision": "approve",
        "state": "approved",
        "confirmed": True,
        "yes": True,
    }
    row = await host.conversations.row(next(iter(await host.conversations.names())))
    assert row is not None
    told = {
        **yes, "operation": operation, "operation_id": operation, "request_hash": held.request_hash, "always": {},
        "session": row.record.conversation_id, "run": held.run_id, "alias": "ledger", "agent": held.agent_id,
    }  # fmt: skip
    over = {"stop", "delete", "raise", "observe", "result", "remove-all", "agent-delete", "mount-remove", "doctor"}
    orders = [name for name in host.operations._orders if name not in over]
    assert "waiting-review" in orders

    async def nowhere(line: dict[str, Any]) -> None:
        assert "sk-" not in str(line)

    for name in orders:
        async with asyncio.timeout(20):
            await host.operations.perform(name, told, nowhere, asyncio.Event())
    assert [word for word in decided if word["approve"]] == []
    assert ledger.effects == []


# ------------------------------------------------------------------------------------ over restarts


async def test_what_waits_is_there_after_a_restart_without_anything_opened(
    seat: Seat, host: Host, person: Decider, ledger: LedgerPlugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = await waits(seat)
    name = (await host.conversations.names())[0]
    await until(lambda: not host.conversations.busy)
    await seat.aclose()
    await host.__aexit__()
    async with Host(paths.profile(tmp_path / "data")) as second:
        await second.recover()
        row = await second.conversations.row(name)
        assert row is not None
        assert row.state == "waiting"
        assert (second.stores.open_files(), second.conversations.running(), second.conversations.busy) == (0, [], False)
        decider = deciding(second, monkeypatch)
        decider.says("approve")
        sitting = Seat(second)
        await sitting.puppet.lock()
        await sitting.puppet.wait_for(dto.Conversations)
        await sitting.puppet.ask(dto.Select(request=sitting.puppet.request(), conversation=name))
        selected = await sitting.puppet.wait_for(dto.Selected, lambda m: m.conversation == name)
        assert selected.run is not None
        assert (selected.run.state, selected.waiting) == ("waiting", 1)
        await sitting.puppet.say(dto.WantItems(conversation=name, first=0, count=50))
        items = await sitting.puppet.wait_for(dto.Items)
        assert [i.card.decided for i in items.items if isinstance(i.card, dto.ToolCard)] == ["waiting"]
        assert (await proposed(sitting.puppet, operation)).status == "done"
        await ended(sitting.puppet)
        assert ledger.effects == [("write", ENTRY)]
        await sitting.aclose()


async def test_what_was_decided_just_before_the_end_is_carried_out_at_the_next_start_once(
    seat: Seat, host: Host, person: Decider, ledger: LedgerPlugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = await waits(seat)
    await until(lambda: not host.conversations.busy)
    # The host ends between the decision and what follows from it.
    monkeypatch.setattr(host.approvals, "_follow_up", lambda decided: None)
    person.says("approve")
    await host.approvals.review(operation)
    assert ledger.effects == []
    await seat.aclose()
    await host.__aexit__()
    for _ in range(2):
        async with Host(paths.profile(tmp_path / "data")) as next_one:
            await next_one.recover()
            await until(_is_quiet(next_one))
            assert ledger.effects == [("write", ENTRY)]
            row = await next_one.conversations.row((await next_one.conversations.names())[0])
            assert row is not None
            assert row.state == "done"


def _is_quiet(host: Host) -> Callable[[], bool]:
    return lambda: not host.conversations.busy


async def test_nobody_deciding_in_time_is_a_no(
    seat: Seat, host: Host, person: Decider, server: ChatServer, ledger: LedgerPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await host.gateway(host.agents.current.agent_id)
    gateway.hold_ms = 1_500
    await waits(seat)
    await ended(seat.puppet)
    assert ledger.effects == []
    assert "in time" in server.requests[-1].json()["messages"][-1]["content"]
    assert host.conversations.wakes == {}


# ------------------------------------------------------------------------------------ harnesses that do not park


@pytest.fixture
def unparked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A harness that cannot wait for days: its call is told as paused, and its turn ends."""
    monkeypatch.setattr(NativeDriver, "parks", False)
    monkeypatch.setattr(NativeDriver, "hold_wait_s", 0.1, raising=False)


@pytest.mark.parametrize("word", ["approve", "deny"])
async def test_a_harness_that_did_not_wait_is_told_by_the_next_message(
    unparked: None, seat: Seat, host: Host, server: ChatServer, person: Decider, ledger: LedgerPlugin, word: Any
) -> None:
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    assert (await puppet.ask(new_send(puppet, "write it down"))).status == "done"
    await ended(puppet)
    assert "paused" in server.requests[-1].json()["messages"][-1]["content"]
    [held] = await host.approvals.pending(host.agents.current.agent_id)
    assert not held.parked
    # Nobody else speaks under the name of what is told of the decision: it would be taken for told.
    taken = msgspec.structs.replace(new_send(puppet, "taken"), request_id=f"decision-{held.operation_id}")
    for when in ("now", "queue"):
        said_no = await puppet.ask(msgspec.structs.replace(taken, request=puppet.request(), when=when))
        assert (said_no.status, said_no.code) == ("refused", "REQUEST_ID_RESERVED")
    person.says(word)
    assert (await proposed(puppet, (await held_card(puppet)).operation or "")).status == "done"
    await until(lambda: server.requests[-1].json()["messages"][-1]["role"] == "user")
    said = server.requests[-1].json()["messages"][-1]
    await until(_is_quiet(host))
    assert ("executed once" if word == "approve" else "said no") in said["content"]
    assert ledger.effects == ([("write", ENTRY)] if word == "approve" else [])
    # The card that was told as paused says what became of it: at once, when it is looked at again, and in the export.
    decided = "approved" if word == "approve" else "denied"
    card = (await puppet.wait_for(dto.ItemCard, lambda m: getattr(m.card, "decided", "") == decided)).item
    again = next(item for item in await newest_items(puppet) if item.id == card)
    assert isinstance(again.card, dto.ToolCard)
    assert (again.state, again.card.decided) == ("complete", decided)
    name = host.desk.first_selection()
    assert name is not None
    [kept] = [item async for item in host.conversations.all_items(name) if item.kind == "tool"]
    assert f"*{decided} by the person*" in transcripts.block(kept.kind, kept.state, kept.text, kept.about)


async def test_what_such_a_harness_was_not_told_before_the_end_it_is_told_at_the_next_start_once(
    unparked: None,
    seat: Seat,
    host: Host,
    server: ChatServer,
    person: Decider,
    ledger: LedgerPlugin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    assert (await puppet.ask(new_send(puppet, "write it down"))).status == "done"
    await ended(puppet)
    [held] = await host.approvals.pending(host.agents.current.agent_id)
    monkeypatch.setattr(host.approvals, "_follow_up", lambda decided: None)
    person.says("approve")
    await host.approvals.review(held.operation_id)
    await until(_is_quiet(host))
    await seat.aclose()
    await host.__aexit__()
    asked = len(server.requests)
    for _ in range(2):
        async with Host(paths.profile(tmp_path / "data")) as next_one:
            await next_one.recover()
            await until(lambda: len(server.requests) > asked)
            await until(_is_quiet(next_one))
            assert ledger.effects == [("write", ENTRY)]
            assert len(server.requests) == asked + 1


# ------------------------------------------------------------------------------------ beside the window


async def test_a_notification_tells_nothing_of_the_call_and_can_only_deny(
    seat: Seat, host: Host, person: Decider, ledger: LedgerPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []

    async def ask(name: str, summary: str, body: str, pressed: Any) -> bool:
        shown.append((name, summary + body, pressed))
        return True

    monkeypatch.setattr(host.approvals.notifications, "ask", ask)
    operation = await waits(seat)
    [(name, words, pressed)] = shown
    assert name == operation
    for private in (ENTRY, "ledger", "write", host.agents.current.name):
        assert private not in words
    deny: Press = "deny"
    pressed(deny)
    await ended(seat.puppet)
    assert (ledger.effects, person.asked) == ([], [])


@pytest.mark.parametrize("in_front", [True, False])
async def test_the_desktop_is_told_only_where_nobody_looks_at_the_window(
    seat: Seat, host: Host, person: Decider, monkeypatch: pytest.MonkeyPatch, in_front: bool
) -> None:
    shown: list[str] = []

    async def ask(name: str, summary: str, body: str, pressed: Any) -> bool:
        shown.append(name)
        return True

    monkeypatch.setattr(host.approvals.notifications, "ask", ask)
    monkeypatch.setattr(host, "window", host.desk.window)
    operation = await waits(seat, dto.WindowActive(active=True), dto.WindowActive(active=in_front))
    assert shown == ([] if in_front else [operation])


async def test_a_held_call_on_the_command_line_says_where_to_decide(
    host: Host, person: Decider, ledger: LedgerPlugin
) -> None:
    lines: list[dict[str, Any]] = []

    async def send(line: dict[str, Any]) -> None:
        lines.append(line)

    operations: Operations = host.operations
    code = await operations.perform("run", {"prompt": "write it down"}, send, asyncio.Event())
    result = lines[-1]["result"]
    assert (code, result["status"], ledger.effects) == (4, "waiting", [])
    [call] = result["waiting"]
    assert (call["mount"], call["tool"]) == ("ledger", "write")
    assert not host.conversations.busy, "nothing of it holds the host"
    lines.clear()
    assert await operations.perform("waiting", {}, send, asyncio.Event()) == 0
    assert [line["row"]["operation"] for line in lines] == [call["operation"]]
    lines.clear()
    person.says("approve")
    code = await operations.perform("waiting-review", {"operation": call["operation"][:8]}, send, asyncio.Event())
    assert (code, lines[-1]["row"]["decided"]) == (0, "approved")
    await until(lambda: ledger.effects == [("write", ENTRY)])
    lines.clear()
    assert await operations.perform("result", {"run": result["run_id"]}, send, asyncio.Event()) == 0
    assert ENTRY in lines[-1]["result"]["output_text"]


async def test_stop_ends_what_waits(seat: Seat, host: Host, person: Decider, ledger: LedgerPlugin) -> None:
    operation = await waits(seat)
    puppet = seat.puppet
    assert (await puppet.ask(dto.Stop(request=puppet.request(), revision=puppet.binding.revision))).status == "done"
    await ended(puppet, "stopped")
    newest = [m for m in puppet.told if isinstance(m, dto.RunChanged)][-1]
    assert newest.waiting == 0, "nothing waits in the header either"
    person.says("approve")
    assert (await proposed(puppet, operation)).status == "stale"
    assert (ledger.effects, person.asked) == ([], [])


async def test_deleting_a_conversation_takes_what_waits_in_it_along(
    seat: Seat, host: Host, person: Decider, ledger: LedgerPlugin
) -> None:
    await waits(seat)
    name = (await host.conversations.names())[0]
    await host.conversations.delete(name)
    agent_id = host.agents.current.agent_id
    assert await host.approvals.pending(agent_id) == ()
    await until(lambda: host.conversations.wakes == {})
    assert ledger.effects == []
