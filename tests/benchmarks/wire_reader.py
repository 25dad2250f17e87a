"""The renderer's half of the wire without a window: it decodes, acknowledges and reads the stamps.

    python -m tests.benchmarks.wire_reader KIND FD...

With the kind `growth` it locks itself and reads nothing after that. Prints JSON once every run has ended: how many
stamps came, how long from the first that was made to the last that arrived, and the delays.
"""

import json
import selectors
import signal
import socket
import sys
import time

from desktop.build import BUILD
from tests.benchmarks.loads import Stamps
from ui.wire import dto
from ui.wire.framing import renderer_decoder, renderer_encoder


class End:
    """One channel's end."""

    def __init__(self, fd: int) -> None:
        self.connection = socket.socket(fileno=fd)
        self.encoder = renderer_encoder()
        self.decoder = renderer_decoder()
        self.stamps = Stamps()
        self.first_ns = 0
        self.last_ns = 0
        self.ended = False
        greeting = (
            dto.RendererHello(version=dto.PROTOCOL_VERSION, build=BUILD),
            dto.Locked(walls=(dto.Wall(name="none", state="down"),), painted_ns=1),
        )
        self.connection.sendall(self.encoder.encode(greeting))

    def read(self) -> None:
        data = self.connection.recv(1 << 20)
        if not data:
            self.ended = True
        for frame in self.decoder.feed(data):
            now_ns = time.monotonic_ns()
            for message in frame.messages:
                if isinstance(message, dto.ItemDelta):
                    self.stamps.take(message.item, message.text, now_ns)
                    self.first_ns = self.first_ns or int(now_ns - self.stamps.delays_ms[0] * 1e6)
                    self.last_ns = now_ns
                elif isinstance(message, dto.RunChanged) and message.run is not None and message.run.state == "done":
                    self.ended = True
            self.connection.sendall(self.encoder.encode((dto.Ack(frame=frame.sequence),)))


def main() -> None:
    kind, *fds = sys.argv[1:]
    ends = [End(int(fd)) for fd in fds]
    if kind == "growth":
        signal.pause()
    with selectors.DefaultSelector() as selector:
        for end in ends:
            selector.register(end.connection, selectors.EVENT_READ, end)
        while not all(end.ended for end in ends):
            for key, _ in selector.select():
                key.data.read()
                if key.data.ended:
                    selector.unregister(key.data.connection)
    spoken = [end for end in ends if end.first_ns]
    delays = [delay for end in ends for delay in end.stamps.delays_ms]
    took_ns = max(end.last_ns for end in spoken) - min(end.first_ns for end in spoken)
    print(json.dumps({"stamps": len(delays), "took_s": took_ns / 1e9, "delays": delays[-20_000:]}))


if __name__ == "__main__":
    main()
