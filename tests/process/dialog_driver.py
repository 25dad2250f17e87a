"""A real dialog process at the end of a real channel, driven as the host drives it and as a person does.

Owns the process it starts. Blocking on purpose: a test reads what the dialog says next.
"""

import ctypes
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from desktop.dialog import wire
from desktop.isolation import Launch
from desktop.process import descendants

PATIENCE_S = 30.0


class Gone(Exception):
    """The dialog closed its end of the channel."""


class DialogUnderTest:
    """One dialog process; `say` and `hear` are the host's part, `xdotool` the person's."""

    def __init__(self, launched: Launch, display: dict[str, str]) -> None:
        self.process = launched.process
        self.channel = launched.channel
        self.plan = launched.plan
        self.display = display
        self.heard_bytes = bytearray()
        self._decoder = wire.host_decoder()
        self._encoder = wire.host_encoder()
        self._heard: list[wire.DialogToHost] = []
        self.channel.setblocking(True)

    def say(self, *messages: wire.HostToDialog) -> None:
        for message in messages:
            self.channel.sendall(self._encoder.encode([message]))

    def hear(self, patience_s: float = PATIENCE_S) -> wire.DialogToHost:
        """The next message; raises `Gone` at the end and TimeoutError when nothing comes."""
        until = time.monotonic() + patience_s
        while not self._heard:
            if not select.select([self.channel], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError("the dialog said nothing")
            try:
                data = self.channel.recv(65_536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Gone
            self.heard_bytes += data
            for frame in self._decoder.feed(data):
                self._heard += frame.messages
        return self._heard.pop(0)

    def hear_a(self, kind: type[Any]) -> Any:
        message = self.hear()
        assert isinstance(message, kind), message
        return message

    def silent(self, for_s: float) -> bool:
        """Whether the dialog says nothing for this long."""
        return not self._heard and not select.select([self.channel], [], [], for_s)[0]

    def open(
        self, ask: wire.Ask, *, picture: str = "blue lantern", profile: str = "personal", **hello: Any
    ) -> wire.Locked:
        """Hello, wait for the walls, marks and question."""
        kinds: dict[type, wire.Kind] = {
            wire.AskConnector: "connector",
            wire.AskForm: "form",
            wire.AskDelete: "delete",
            wire.AskRemove: "remove",
            wire.AskPicture: "picture",
            wire.AskApproval: "approval",
        }
        self.say(wire.Hello(version=wire.VERSION, expects=kinds[type(ask)], **hello))
        locked = self.hear_a(wire.Locked)
        self.say(wire.Sign(profile=profile, picture=picture), ask)
        assert isinstance(locked, wire.Locked)
        return locked

    def open_ready(self, ask: wire.Ask, **options: Any) -> None:
        """As `open`, and wait until presses count."""
        self.open(ask, **options)
        assert self.hear_a(wire.Ready).question == ask.question

    def xdotool(self, *words: str) -> str:
        done = subprocess.run(
            ["xdotool", *words], env={**os.environ, **self.display}, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def window(self) -> str:
        """The id of the dialog's window, once it is on screen."""
        return self.xdotool("search", "--sync", "--onlyvisible", "--name", "Remuda").split()[-1]

    def close_window(self) -> None:
        """What a window manager does when its close button is pressed."""
        ask_to_close(int(self.window()))

    def focus(self) -> None:
        self.xdotool("windowfocus", "--sync", self.window())

    def pids(self) -> list[int]:
        return [self.process.pid, *(p.pid for p in descendants(self.process.pid))]

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def end(self) -> None:
        self.channel.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


def ask_to_close(window: int) -> None:
    """Send WM_DELETE_WINDOW to `window` on the display of this process' environment."""
    x11 = ctypes.CDLL("libX11.so.6")
    x11.XOpenDisplay.restype = ctypes.c_void_p
    x11.XInternAtom.restype = ctypes.c_ulong
    server = ctypes.c_void_p(x11.XOpenDisplay(None))
    assert server.value, "no X server"

    class ClientMessage(ctypes.Structure):
        _fields_ = (
            ("type", ctypes.c_int),
            ("serial", ctypes.c_ulong),
            ("send_event", ctypes.c_int),
            ("display", ctypes.c_void_p),
            ("window", ctypes.c_ulong),
            ("message_type", ctypes.c_ulong),
            ("format", ctypes.c_int),
            ("data", ctypes.c_long * 5),
            ("room", ctypes.c_long * 24),  # an XEvent is larger than this one of its forms
        )

    atoms = [x11.XInternAtom(server, name, 0) for name in (b"WM_PROTOCOLS", b"WM_DELETE_WINDOW")]
    message = ClientMessage(type=33, window=window, message_type=atoms[0], format=32)
    message.data[0] = atoms[1]
    x11.XSendEvent(server, ctypes.c_ulong(window), 0, ctypes.c_long(0), ctypes.byref(message))
    x11.XCloseDisplay(server)


@contextmanager
def dialog(launch: Callable[[], Launch], display: dict[str, str]) -> Iterator[DialogUnderTest]:
    """A dialog from `launch` (what `desktop.dialogs` uses), ended at the end."""
    under_test = DialogUnderTest(launch(), display)
    try:
        yield under_test
    finally:
        under_test.end()
