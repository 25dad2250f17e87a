"""Notifications against a daemon of the tests' own on a bus of its own: what is shown, and which presses count."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from desktop.notifications import MOST_SHOWN, NAME, PATH, Notifications, Press, tell
from tests.process.key_stores import Bus, session_bus
from tests.puppet import until

pytestmark = [pytest.mark.process, pytest.mark.needs("dbus-daemon")]


class Daemon:
    """What shows notifications on a desktop."""

    def __init__(self, bus: Any, capabilities: list[str]) -> None:
        self.bus = bus
        self.capabilities = capabilities
        self.shown: dict[int, list[Any]] = {}
        self.closed: list[int] = []

    def called(self, message: Any) -> Any:
        if message.message_type is not MessageType.METHOD_CALL or message.interface != NAME:
            return None
        if message.member == "GetCapabilities":
            return Message.new_method_return(message, "as", [self.capabilities])
        if message.member == "Notify":
            number = len(self.shown) + 1
            self.shown[number] = message.body
            return Message.new_method_return(message, "u", [number])
        self.closed.append(message.body[0])
        return Message.new_method_return(message)

    async def signal(self, member: str, signature: str, body: list[Any], to: str | None = None) -> None:
        await self.bus.send(
            Message(
                message_type=MessageType.SIGNAL, path=PATH, interface=NAME, member=member, signature=signature,
                body=body, destination=to,
            )
        )  # fmt: skip

    async def press(self, number: int, action: str) -> None:
        await self.signal("ActionInvoked", "us", [number, action])


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    with session_bus(tmp_path) as running:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", running.address)
        yield running


async def connected(bus: Bus) -> Any:
    return await MessageBus(bus_address=bus.address).connect()


@pytest.fixture
async def daemon(bus: Bus) -> AsyncIterator[Daemon]:
    there = Daemon(await connected(bus), ["actions", "body"])
    there.bus.add_message_handler(there.called)
    await there.bus.request_name(NAME)
    yield there
    there.bus.disconnect()
    await there.bus.wait_for_disconnect()


async def test_a_press_is_told_once_and_nothing_can_be_allowed(bus: Bus, daemon: Daemon) -> None:
    notifications, pressed = Notifications(), list[Press]()
    assert await notifications.ask("a", "A call waits for you", "Nothing is done until you decide.", pressed.append)
    [body] = daemon.shown.values()
    assert body[3:6] == [
        "A call waits for you",
        "Nothing is done until you decide.",
        ["review", "Review", "deny", "Deny"],
    ]
    assert notifications.connected
    await daemon.press(1, "approve")
    await daemon.press(1, "deny")
    await until(lambda: not notifications.connected)
    assert pressed == [], "what is no button of it answers nothing"
    for number, action in ((2, "deny"), (3, "review"), (4, "default")):
        assert await notifications.ask("a", "A call waits for you", "…", pressed.append)
        await daemon.press(number, action)
        await daemon.press(number, action)
        await until(lambda: not notifications.connected)
    assert pressed == ["deny", "review", "review"]


async def test_nobody_else_on_the_bus_presses(bus: Bus, daemon: Daemon) -> None:
    notifications, pressed = Notifications(), list[Press]()
    assert await notifications.ask("a", "s", "b", pressed.append)
    ours = notifications._bus.unique_name
    other = Daemon(await connected(bus), [])
    await other.press(1, "deny")
    await other.signal("ActionInvoked", "us", [1, "deny"], ours)
    await other.signal("NotificationClosed", "uu", [1, 2], ours)
    other.bus.disconnect()
    await other.bus.wait_for_disconnect()
    await daemon.press(7, "deny")
    # The bus keeps order: whatever was sent before this was heard before it is.
    await daemon.press(1, "review")
    await until(lambda: bool(pressed))
    assert pressed == ["review"]


async def test_one_that_is_withdrawn_or_closed_is_over_and_nothing_stays_connected(bus: Bus, daemon: Daemon) -> None:
    notifications, pressed = Notifications(), list[Press]()
    for name in "abc":
        assert await notifications.ask(name, "s", "b", pressed.append)
    await notifications.withdraw("a")
    await until(lambda: daemon.closed == [1])
    await daemon.press(1, "deny")
    await daemon.signal("NotificationClosed", "uu", [2, 2])
    await notifications.aclose()
    assert daemon.closed[0] == 1
    assert daemon.closed[-1] == 3
    assert (pressed, notifications.connected) == ([], False)


async def test_a_daemon_without_buttons_only_tells_and_too_many_are_not_shown(bus: Bus, daemon: Daemon) -> None:
    notifications = Notifications()
    for number in range(MOST_SHOWN + 2):
        assert await notifications.ask(str(number), "s", "b", lambda press: None) == (number < MOST_SHOWN)
    await notifications.aclose()
    daemon.capabilities = ["body"]
    assert await notifications.ask("plain", "s", "b", lambda press: None)
    assert daemon.shown[MOST_SHOWN + 1][5] == []
    assert not notifications.connected


async def test_a_desktop_without_a_daemon_is_no_error(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    notifications = Notifications()
    assert not await notifications.ask("a", "s", "b", lambda press: None)
    assert not await tell("s", "b")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")
    assert not await notifications.ask("a", "s", "b", lambda press: None)
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS")
    assert not await notifications.ask("a", "s", "b", lambda press: None)
    assert not notifications.connected
    await asyncio.sleep(0)
