"""What a harness does, through a real host and its channel: live, when it is looked at again, and in pieces."""

import asyncio

import pytest

from desktop.app import Host
from runtime_host.events import DriverEvent
from runtime_host.testing import Hold, Script, ScriptedDriver, reply
from runtime_host.testing.scripted import Step
from tests.puppet import until
from tests.unit.desktop.seat import Seat, new_send
from tests.unit.desktop.test_channel import newest_items, until_ended
from ui.wire import dto

pytestmark = pytest.mark.process

LONG = "".join(f"\x1b[3{number % 8}mline {number}\x1b[0m\r\n" for number in range(4_000))


def plays(host: Host, *steps: Step) -> None:
    """Have the host's harness do that."""
    native = host.runtime.backend.driver("native.agent")
    driver = ScriptedDriver([Script(steps)], driver_id="native.agent")
    # Looked at as before, played from here on.
    driver.inspect = native.inspect  # type: ignore[method-assign]
    host.runtime.backend._drivers["native.agent"] = driver


def work(looked_at: asyncio.Event, gate: asyncio.Event) -> list[Step]:
    plan = {"id": "p", "items": [{"text": "Build", "status": "active"}], "completed": False}
    calls: list[Step] = []
    for number in range(20):
        about = {"id": f"t{number}", "name": f"tool {number}"}
        calls.append(DriverEvent("tool.started", {**about, "arguments": {}}))
        calls.append(DriverEvent("tool.completed", {**about, "result": "r", "error": None}))
    return [
        DriverEvent("plan.updated", plan),
        *calls,
        Hold(looked_at),
        DriverEvent("command.started", {"id": "c", "command": "make \u202eall"}),
        DriverEvent("command.output.delta", {"id": "c", "text": LONG}),
        Hold(gate),
        DriverEvent("command.completed", {"id": "c", "command": "make", "exit_code": 1, "status": "completed"}),
        DriverEvent("plan.updated", {**plan, "completed": True}),
        *reply("Done."),
    ]


async def test_cards_come_live_and_stand_afterwards(seat: Seat, host: Host) -> None:
    looked_at, gate = asyncio.Event(), asyncio.Event()
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    plays(host, *work(looked_at, gate))
    await puppet.ask(new_send(puppet, "Build it"))
    # As a window does: it asks for what there is by then, and is told what comes after.
    await puppet.wait_for(dto.Selected, lambda m: m.conversation is not None)
    seen = {item.id for item in await newest_items(puppet)}
    looked_at.set()
    added = (await puppet.wait_for(dto.ItemAdded, lambda m: m.item.kind == "command")).item
    await until(lambda: len(puppet.text_of(added.id)) == len(LONG))
    assert puppet.text_of(added.id) == LONG
    running = (await newest_items(puppet))[-1]
    assert (running.kind, running.state, running.size_chars) == ("command", "open", len(LONG))
    gate.set()
    await until_ended(puppet)
    done = await puppet.wait_for(dto.ItemDone, lambda m: m.item == added.id)
    assert isinstance(done.card, dto.CommandCard)
    assert (done.state, done.card.exit_code) == ("complete", 1)
    # Nothing of the run is unknown to a window that looked once and then only heard of it.
    heard = {m.item.id for m in puppet.told if isinstance(m, dto.ItemAdded)}
    items = await newest_items(puppet)
    assert [item.kind for item in items] == ["user", "plan", *["tool"] * 20, "command", "reply"]
    assert {item.id for item in items} <= heard | seen
    command = items[-2]
    assert isinstance(command.card, dto.CommandCard)
    assert (command.text, command.size_chars) == (LONG[: dto.TEXT_PIECE_CHARS], len(LONG))
    conversation = puppet.binding.conversation
    assert conversation is not None
    at = dto.TEXT_PIECE_CHARS
    await puppet.say(dto.WantText(conversation=conversation, item=command.id, at=at))
    piece = await puppet.wait_for(dto.ItemText, lambda m: m.item == command.id and m.at == at)
    assert piece.text == LONG[at : 2 * at]


async def test_what_a_call_shows_is_seen_live_and_when_one_comes_back_and_gives_way_to_its_result(
    seat: Seat, host: Host
) -> None:
    gate, again = asyncio.Event(), asyncio.Event()
    about = {"id": "t", "name": "files__run"}
    lines = "".join(f"line {number}\n" for number in range(3_000))
    result = "The result.\n" * 2_000
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    plays(
        host,
        Hold(again),
        DriverEvent("tool.started", {**about, "arguments": {"command": "make"}}),
        DriverEvent("tool.progress", {**about, "stage": "output", "delta": lines}),
        Hold(gate),
        DriverEvent("tool.completed", {**about, "result": result, "error": None}),
        *reply("Done."),
    )
    await puppet.ask(new_send(puppet, "Build it"))
    await puppet.wait_for(dto.Selected, lambda m: m.conversation is not None)
    await newest_items(puppet)
    again.set()
    card = (await puppet.wait_for(dto.ItemAdded, lambda m: m.item.kind == "tool")).item
    await until(lambda: puppet.text_of(card.id) == lines)
    running = (await newest_items(puppet))[-1]
    assert (running.kind, running.state, running.size_chars) == ("tool", "open", len(lines))
    assert running.text == lines[: dto.TEXT_PIECE_CHARS]
    gate.set()
    await until_ended(puppet)
    told = (await puppet.wait_for(dto.ItemAdded, lambda m: m.item.id == card.id and m.item.state == "complete")).item
    assert told.size_chars == len(result)
    assert result.startswith(told.text)
    assert told.text
    stands = next(item for item in await newest_items(puppet) if item.id == card.id)
    assert (stands.size_chars, stands.text) == (len(result), result[: dto.TEXT_PIECE_CHARS])
