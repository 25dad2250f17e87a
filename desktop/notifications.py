"""Desktop notifications: a sentence for the person when there is no window to say it in.

Must not hold anything of a conversation: only facts of the program. A desktop that shows none
is no error.
"""

import asyncio
import logging
import os

log = logging.getLogger("remuda.notifications")

TIMEOUT_S = 2.0


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
    from dbus_fast import Message, MessageType
    from dbus_fast.aio import MessageBus

    bus = await MessageBus().connect()
    try:
        reply = await bus.call(
            Message(
                destination="org.freedesktop.Notifications",
                path="/org/freedesktop/Notifications",
                interface="org.freedesktop.Notifications",
                member="Notify",
                signature="susssasa{sv}i",
                body=["Remuda", 0, "", summary, body, [], {}, -1],
            )
        )
        return reply is not None and reply.message_type is not MessageType.ERROR
    finally:
        bus.disconnect()
