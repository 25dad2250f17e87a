"""The smallest window there is, behind the same walls as the renderer, for the self-test.

Owns a window with one line of text and the answer to one question. It raises the walls in
the order of the real renderer (before Qt, after the first painted frame) and speaks the same
messages, so that the self-test needs no running program. Must not show anything of the host.
"""

import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ui import lockdown

_QML = b"""import QtQuick
Window {
    visible: true
    width: 320; height: 120
    title: "Remuda self-test"
    Text { anchors.centerIn: parent; text: "Trying the walls" }
}
"""


class _OldThread:
    """A thread that is there before Qt's: older than the walls in a run without them, else the oldest there can be."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], str]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[str | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True, name="old").start()

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                self._answers.put(job())
            except Exception as fault:  # handed to who asked
                self._answers.put(fault)

    def __call__(self, job: Callable[[], str]) -> str:
        self._jobs.put(job)
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _argument(argv: list[str], name: str) -> str:
    return next((word.partition("=")[2] for word in argv if word.startswith(f"--{name}=")), "")


def main(argv: list[str]) -> int:
    """Run the window until the host closes it; exit status."""
    walls = frozenset(word for word in _argument(argv, "walls").split(",") if word not in ("", "none"))
    rows = lockdown.early(walls)
    old_thread = _OldThread()

    from PySide6.QtCore import Qt
    from PySide6.QtGui import QGuiApplication
    from PySide6.QtQml import QQmlApplicationEngine
    from PySide6.QtQuick import QQuickWindow

    application = QGuiApplication(["remuda"])
    engine = QQmlApplicationEngine()
    engine.loadData(_QML)
    window = engine.rootObjects()[0]
    assert isinstance(window, QQuickWindow)
    state: dict[str, Any] = {}

    def painted() -> None:
        if "conversation" in state:
            return
        painted_ns = time.monotonic_ns()
        rows.extend(lockdown.late(walls))
        state["conversation"] = _converse(argv, rows, painted_ns, old_thread, application)

    window.frameSwapped.connect(painted, Qt.ConnectionType.QueuedConnection)
    return int(application.exec())


def _converse(
    argv: list[str], rows: list[lockdown.Row], painted_ns: int, old_thread: _OldThread, application: Any
) -> object:
    """Say that the walls stand, then answer the host until it closes."""
    import socket

    from PySide6.QtCore import QSocketNotifier

    from ui import probes
    from ui.wire.dto import PROTOCOL_VERSION, Close, Locked, Probe, ProbeResults, RendererHello, RunProbes, Wall
    from ui.wire.framing import renderer_decoder, renderer_encoder

    channel = socket.socket(fileno=int(_argument(argv, "channel")))
    encoder, decoder = renderer_encoder(), renderer_decoder()
    walls = tuple(Wall(name=name, state=state, detail=detail) for name, state, detail in rows)
    hello = RendererHello(version=PROTOCOL_VERSION, build=_argument(argv, "build"))
    locked = Locked(walls=walls, painted_ns=painted_ns, platform=application.platformName())
    channel.sendall(encoder.encode([hello, locked]))

    def read() -> None:
        content = channel.recv(65536)
        if not content:
            application.quit()
            return
        for frame in decoder.feed(content):
            for message in frame.messages:
                if isinstance(message, Close):
                    application.quit()
                elif isinstance(message, RunProbes):
                    found = probes.run(message, x11=True, in_early_thread=old_thread)
                    results = tuple(Probe(name=name, verdict=verdict, detail=detail) for name, verdict, detail in found)
                    channel.sendall(encoder.encode([ProbeResults(request=message.request, probes=results)]))

    notifier = QSocketNotifier(channel.fileno(), QSocketNotifier.Type.Read)
    notifier.activated.connect(read)
    return channel, notifier, read


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
