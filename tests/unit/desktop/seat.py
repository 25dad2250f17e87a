"""A host's channel with a puppet at its other end, for tests of what the host does with what it is told."""

import asyncio
import os
import socket

from desktop.app import Host
from desktop.build import BUILD
from desktop.channel import RendererChannel
from desktop.isolation import WallPlan
from desktop.window import Window
from tests.puppet import Puppet
from ui.wire import dto


class Seat:
    """A channel of the host and the puppet at its other end."""

    def __init__(self, host: Host) -> None:
        here, there = socket.socketpair()
        window = Window(host.desk, None, lambda: None)
        window.launch_plan = WallPlan([], bubblewrap=False, platform="offscreen", x11=False)
        host.desk.window = window

        def locked(message: dto.Locked) -> None:
            window.locked = message

        self.channel = RendererChannel(here, host.desk, build=BUILD, on_locked=locked)
        window.channel = self.channel
        self.puppet = Puppet(there, BUILD)
        self.channel.start()

    async def aclose(self) -> None:
        await asyncio.wait_for(self.channel.aclose(), 10)
        await self.puppet.aclose()


def new_send(puppet: Puppet, text: str) -> dto.Send:
    """A message on the binding as it is now, under a request id of its own."""
    return dto.Send(
        request=puppet.request(),
        revision=puppet.binding.revision,
        request_id="r" + os.urandom(6).hex(),
        text=text,
    )
