"""A look at what the renderer says to the host, without either noticing.

Owns a pair of threads between the two ends of the channel. Standard library only: it works while the
renderer starts and must not import anything that the host would not have.
"""

import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

HEAD = struct.Struct(">II")
"""Length and sequence number before each frame, as `ui.wire.framing` writes them."""


class Tap:
    """Passes everything on; tells `seen` each message of the renderer, as decoded JSON."""

    def __init__(self, renderer: socket.socket, seen: Callable[[dict[str, Any]], None]) -> None:
        self.host_end, self._inner = socket.socketpair()
        self._renderer = renderer
        self._seen = seen
        self._received = b""
        for source, target, looked_at in ((renderer, self._inner, True), (self._inner, renderer, False)):
            threading.Thread(target=self._pass_on, args=(source, target, looked_at), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, looked_at: bool) -> None:
        # Its own timeout mode: the host may have set one on the socket.
        source.setblocking(True)
        try:
            while data := source.recv(262_144):
                if looked_at:
                    self._look(data)
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _look(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= HEAD.size:
            length = HEAD.unpack_from(self._received)[0]
            if len(self._received) < HEAD.size + length:
                return
            frame, self._received = self._received[HEAD.size : HEAD.size + length], self._received[HEAD.size + length :]
            for message in json.loads(frame):
                self._seen(message)
