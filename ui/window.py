"""Everything of the renderer that comes after the first painted frame.

Owns how channel, store, models and QML are put together. Must not be imported before the
first paint. Invariant: when the channel is lost the process ends.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QGuiApplication
from PySide6.QtQml import QQmlApplicationEngine
from PySide6.QtQuick import QQuickWindow

from resources.tokens import ROOT
from ui import actions
from ui.bridge import Bridge
from ui.client import Client
from ui.icons import IconProvider
from ui.looks import Looks, load_fonts, still_caret
from ui.store import Store
from ui.wire import dto

LOST = 3
"""Exit code when the channel is gone."""


def prepare(engine: QQmlApplicationEngine, looks: Looks) -> None:
    """Fonts, icons and the caret: what any window of ours needs."""
    looks.wear(dark=looks.dark)
    load_fonts(looks)
    still_caret()
    engine.addImageProvider("icon", IconProvider())


def fill(engine: QQmlApplicationEngine, bridge: Bridge) -> None:
    """Give the shell its content."""
    context = engine.rootContext()
    context.setContextProperty("remuda", bridge)
    context.setContextProperty("now", bridge.state)
    context.setContextProperty("actionTable", actions.as_data())
    context.setContextProperty("proposalTable", actions.as_data(actions.PROPOSALS))
    context.setContextProperty("queueTable", actions.as_data(actions.QUEUE))
    context.setContextProperty("setup", bridge.setup)
    context.setContextProperty("queue", bridge.queue)
    context.setContextProperty("conversationKeys", [key for key, _ in actions.CONVERSATION_KEYS])
    for name in ("transcript", "conversations", "notices", "isolation", "queued"):
        context.setContextProperty(name + "Model", getattr(bridge, name))
    for name, model in bridge.setup.models.items():
        context.setContextProperty(name + "Model", model)
    shell = engine.rootObjects()[0]
    shell.setProperty("content", QUrl.fromLocalFile(os.path.join(ROOT, "qml", "Main.qml")))


class Renderer(QObject):
    """The running renderer."""

    def __init__(
        self,
        app: QGuiApplication,
        engine: QQmlApplicationEngine,
        looks: Looks,
        *,
        descriptor: int,
        build: str,
        walls: Sequence[tuple[str, str, str]],
        painted_ns: int,
        early: bytes,
    ) -> None:
        super().__init__()
        self._app = app
        store = Store()
        self._client = Client(descriptor, self._reduce, self._settle, self._lost, early)
        self._bridge = Bridge(store, looks, self._client)
        self._bridge.probesWanted.connect(self._probe)
        self._bridge.ended.connect(app.quit)
        prepare(engine, looks)
        fill(engine, self._bridge)
        self._window = quick_window(engine)
        self._window.activeChanged.connect(self._active_changed)
        self._client.begin(
            [
                dto.RendererHello(version=dto.PROTOCOL_VERSION, build=build),
                dto.Locked(
                    walls=tuple(_wall(*row) for row in walls), painted_ns=painted_ns, platform=app.platformName()
                ),
            ]
        )
        if self._window.isActive():
            self._active_changed()

    def _active_changed(self) -> None:
        self._bridge.tell_active(self._window.isActive())

    def _reduce(self, messages: Sequence[dto.HostMessage]) -> None:
        self._bridge.reduce(messages)

    def _settle(self) -> None:
        self._bridge.settle()

    def _lost(self, why: str) -> None:
        print(f"remuda renderer ends: {why}", file=sys.stderr)
        self._app.exit(LOST)

    def _probe(self, targets: dto.RunProbes) -> None:
        from ui import probes  # the probes of this process, with the window as it stands

        found = probes.run(targets, x11=self._app.platformName() == "xcb")
        self._client.send(dto.ProbeResults(request=targets.request, probes=tuple(_probe_row(*row) for row in found)))
        self._client.flush()


def _wall(name: str, state: Any, detail: str) -> dto.Wall:
    return dto.Wall(name=name[:512], state=state, detail=detail[:2048])


def _probe_row(name: str, verdict: Any, detail: str) -> dto.Probe:
    return dto.Probe(name=name[:512], verdict=verdict, detail=detail[:2048])


def quick_window(engine: QQmlApplicationEngine) -> QQuickWindow:
    """The shell as a window."""
    window = engine.rootObjects()[0]
    if not isinstance(window, QQuickWindow):
        raise TypeError("the shell is a window")
    return window
