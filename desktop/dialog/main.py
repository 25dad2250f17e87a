"""The start of a dialog process: walls, then the host's hello, then Qt.

Owns the order of these steps. Must not know the key store, the runtime or any file of a profile.
Invariant: the walls that must stand before any thread are raised before Qt is imported, and no
question is drawn before those that follow the first paint stand too.
"""

import os
import select
import socket
import sys
from collections.abc import Sequence

HELLO_TIMEOUT_S = 20.0


def main(argv: Sequence[str]) -> int:
    """Serve questions from the channel named in `argv` until it closes; returns the exit code."""
    options = dict(argument.removeprefix("--").partition("=")[::2] for argument in argv)
    descriptor, names = options.get("channel", ""), options.get("walls", "none")
    if not descriptor.isdigit():
        print("remuda: the dialog is started by the host, with --channel", file=sys.stderr)
        return 2
    from desktop.dialog import wire
    from desktop.process import undumpable
    from ui import lockdown

    undumpable()
    walls = frozenset(name for name in names.split(",") if name and name != "none")
    rows = list(lockdown.early(walls))

    channel = socket.socket(fileno=int(descriptor))
    channel.setblocking(True)
    decoder = wire.dialog_decoder()
    heard: list[wire.HostToDialog] = []
    while not heard:
        if not select.select([channel], [], [], HELLO_TIMEOUT_S)[0]:
            return 1
        data = channel.recv(65_536)
        if not data:
            return 0
        for frame in decoder.feed(data):
            heard += frame.messages
    hello = heard[0]
    # The host says nothing else before it has heard that the walls stand.
    if len(heard) != 1 or not isinstance(hello, wire.Hello) or hello.version != wire.VERSION:
        return 1
    # No cache is written (there is no place for it), one thread draws.
    os.environ["QML_DISABLE_DISK_CACHE"] = "1"
    os.environ["QSG_RENDER_LOOP"] = "basic"

    from desktop.dialog.window import run

    return run(channel, decoder, hello, lambda: rows + list(lockdown.late(walls)))
