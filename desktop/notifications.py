"""Desktop notifications: a sentence for the person when there is no window to say it in, or nobody looks at it.

Must not hold anything of a conversation: only facts of the program. A desktop that shows none is no error.
Invariants: what a notification can do is what is safe without having seen anything (to look, or to say no), so there
is no way in here to allow something; a press counts only from the desktop's own daemon and only once; nothing is
connected while nothing is shown.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

log = logging.getLogger("remuda.notifications")

TIMEOUT_S = 2.0
MOST_SHOWN: Final = 8
"""More are not shown: nobody reads them, and what waits is in the window."""

NAME: Final = "org.freedesktop.Notifications"
PATH: Final = "/org/freedesktop/Notifications"

Press = Literal["review", "deny"]
"""What can be pressed. There is no third one."""

_LABELS: Final[dict[Press, str]] = {"review": "Review", "deny": "Deny"}


async def tell(summary: str, body: str) -> bool:
    """Show a notification; whether the desktop took it."""
    try:
        return await asyncio.wait_for(_notify(summary, body), TIMEOUT_S)
    except Exception as fault:  # a desktop without notifications, or one that answers strangely
        log.info("no notification was shown: %s", type(fault).__name__)
        return False


async def _notify(summary: str, body: str) -> bool:
    if not os.environ.get("DBUS_SESSION_BUS_ADDRESS"):
        return False
    from dbus_fast.aio import MessageBus

    bus = await MessageBus().connect()
    try:
        return await _call(bus, "Notify", "susssasa{sv}i", ["Remuda", 0, "", summary, body, [], {}, -1]) is not None
    finally:
        bus.disconnect()


async def _call(bus: Any, member: str, signature: str = "", body: list[Any] | None = None) -> Any:
    """The answer of the daemon; None when it refuses."""
    from dbus_fast import Message, MessageType

    reply = await bus.call(
        Message(destination=NAME, path=PATH, interface=NAME, member=member, signature=signature, body=body or [])
    )
    return reply if reply is not None and reply.message_type is not MessageType.ERROR else None


class _Shown(NamedTuple):
    number: int
    daemon: str
    pressed: Callable[[Press], None]


class Notifications:
    """Notifications that ask something, until it is answered or withdrawn."""

    def __init__(self) -> None:
        self._bus: Any = None
        self._shown: dict[str, _Shown] = {}
        self._at_work = asyncio.Lock()

    @property
    def connected(self) -> bool:
        """Whether the session bus is listened to."""
        return self._bus is not None

    async def ask(self, name: str, summary: str, body: str, pressed: Callable[[Press], None]) -> bool:
        """Show that something waits, with Review and Deny; `pressed` is told at most once. Whether it was shown."""
        async with self._at_work:
            if name in self._shown or len(self._shown) >= MOST_SHOWN:
                return False
            try:
                return await asyncio.wait_for(self._show(name, summary, body, pressed), TIMEOUT_S)
            except Exception as fault:  # as for `tell`
                log.info("no notification was shown: %s", type(fault).__name__)
                return False
            finally:
                self._rest()

    async def withdraw(self, name: str) -> None:
        """Take one back: it was answered elsewhere, or is over."""
        async with self._at_work:
            shown = self._shown.pop(name, None)
            if shown is not None and self._bus is not None:
                try:
                    await asyncio.wait_for(_call(self._bus, "CloseNotification", "u", [shown.number]), TIMEOUT_S)
                except Exception as fault:
                    log.info("a notification was not taken back: %s", type(fault).__name__)
            self._rest()

    async def aclose(self) -> None:
        """Take all back: nobody would hear what is pressed."""
        for name in list(self._shown):
            await self.withdraw(name)

    async def _show(self, name: str, summary: str, body: str, pressed: Callable[[Press], None]) -> bool:
        bus = await self._connected()
        if bus is None:
            return False
        able = await _call(bus, "GetCapabilities")
        # Without buttons it only tells.
        actions = [word for press, label in _LABELS.items() for word in (press, label)]
        if able is None or "actions" not in able.body[0]:
            actions = []
        answer = await _call(
            bus, "Notify", "susssasa{sv}i", ["Remuda", 0, "", summary, body, actions, _hints(), 0 if actions else -1]
        )
        if answer is None:
            return False
        if actions:
            self._shown[name] = _Shown(int(answer.body[0]), str(answer.sender), pressed)
        return True

    async def _connected(self) -> Any:
        if self._bus is not None and self._bus.connected:
            return self._bus
        self._forget()
        if not os.environ.get("DBUS_SESSION_BUS_ADDRESS"):
            return None
        from dbus_fast import Message
        from dbus_fast.aio import MessageBus

        bus = await MessageBus().connect()
        try:
            await bus.call(
                Message(
                    destination="org.freedesktop.DBus",
                    path="/org/freedesktop/DBus",
                    interface="org.freedesktop.DBus",
                    member="AddMatch",
                    signature="s",
                    body=[f"type='signal',sender='{NAME}',interface='{NAME}',path='{PATH}'"],
                )
            )
            bus.add_message_handler(self._heard)
        except BaseException:
            bus.disconnect()
            raise
        self._bus = bus
        return bus

    def _heard(self, message: Any) -> None:
        if message.interface != NAME or message.member not in ("ActionInvoked", "NotificationClosed"):
            return
        number, what = message.body[0], message.body[1]
        # Anybody on the bus may send such a signal to us; only the one who showed it has seen a press.
        name = next(
            (n for n, each in self._shown.items() if (each.number, each.daemon) == (number, message.sender)), ""
        )
        if not name:
            return
        shown = self._shown.pop(name)
        if message.member == "ActionInvoked" and what in ("review", "deny", "default"):
            # (The default is a press on the notification itself.)
            shown.pressed("deny" if what == "deny" else "review")
        self._rest()

    def _rest(self) -> None:
        """Listen to nothing while nothing is shown."""
        if not self._shown:
            self._forget()

    def _forget(self) -> None:
        bus, self._bus = self._bus, None
        self._shown.clear()
        if bus is not None:
            bus.remove_message_handler(self._heard)
            bus.disconnect()


def _hints() -> dict[str, Any]:
    from dbus_fast import Variant

    # It stays until it is answered, and shows nothing of itself that others should not see.
    return {"urgency": Variant("y", 1), "resident": Variant("b", False), "desktop-entry": Variant("s", "remuda")}
