"""How the window is to look: the person's theme, and the system's where they follow it.

Owns the question to the desktop portal, asked once when a window wants to know. Must not
know the window. What the system does not tell is light and without reduced motion.
"""

import asyncio
import contextlib
import logging
import os

from desktop.dialogs import Looks
from desktop.settings import Settings
from ui.wire import dto

log = logging.getLogger("remuda.appearance")

ASK_TIMEOUT_S = 2.0
LEAVE_S = 0.2


class Appearance:
    """The look that holds now."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._system_dark = False
        self._high_contrast = False
        self._reduced_motion = False

    def message(self) -> dto.Appearance:
        """The look as the renderer is told it."""
        theme = self._settings.theme
        return dto.Appearance(
            theme=theme,
            dark=theme == "dark" or (theme == "system" and self._system_dark),
            high_contrast=self._high_contrast,
            reduced_motion=self._reduced_motion,
        )

    def looks(self) -> Looks:
        """The look as dialogs are told it."""
        look = self.message()
        return Looks(look.dark, look.high_contrast, look.reduced_motion, look.zoom_percent)

    async def ask_system(self) -> bool:
        """Ask the desktop portal; returns whether the look has changed by it."""
        before = self.message()
        try:
            await asyncio.wait_for(self._ask_portal(), ASK_TIMEOUT_S)
        except Exception as fault:  # a desktop without a portal, or one that answers strangely: keep the defaults
            log.info("the desktop portal tells no appearance: %s", type(fault).__name__)
        return self.message() != before

    async def _ask_portal(self) -> None:
        if not os.environ.get("DBUS_SESSION_BUS_ADDRESS"):
            return
        from dbus_fast import Message, MessageType
        from dbus_fast.aio import MessageBus

        bus = MessageBus()
        try:
            await bus.connect()
            for key in ("color-scheme", "contrast", "reduced-motion"):
                reply = await bus.call(
                    Message(
                        destination="org.freedesktop.portal.Desktop",
                        path="/org/freedesktop/portal/desktop",
                        interface="org.freedesktop.portal.Settings",
                        member="ReadOne",
                        signature="ss",
                        body=["org.freedesktop.appearance", key],
                    )
                )
                if reply is None or reply.message_type is MessageType.ERROR:
                    continue
                value = reply.body[0].value
                if key == "color-scheme":
                    self._system_dark = value == 1
                elif key == "contrast":
                    self._high_contrast = value == 1
                else:
                    self._reduced_motion = value == 1
        finally:
            # To its end: a connection that is only let go of stays open as long as nobody collects it.
            bus.disconnect()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(bus.wait_for_disconnect(), LEAVE_S)  # type: ignore[no-untyped-call]
