"""The real window in this process, with a scripted host on the other end of its channel."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QObject, QPoint, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QInputMethodEvent, QKeyEvent
from PySide6.QtQml import QQmlApplicationEngine
from PySide6.QtQuick import QQuickItem, QQuickWindow

from resources.tokens import ROOT
from tests.ui.fake_host import Answers, hello_message
from ui.looks import Looks
from ui.window import Renderer, quick_window
from ui.wire import dto

os.environ.setdefault("QT_QUICK_BACKEND", "software")  # read when the first window is made

M = TypeVar("M")
TIMEOUT_S = 10.0


@pytest.fixture(scope="session")
def qapp_cls() -> type[QGuiApplication]:
    return QGuiApplication


@pytest.fixture(scope="session")
def qapp_args() -> list[str]:
    return ["remuda", "-platform", "offscreen"]


class Bench:
    """A window, its host, and hands on keyboard and mouse."""

    def __init__(self, app: QGuiApplication) -> None:
        self.app = app
        looks = Looks(dark=False)
        self.engine = QQmlApplicationEngine()
        self.engine.rootContext().setContextProperty("theme", looks.map)
        self.engine.load(QUrl.fromLocalFile(os.path.join(ROOT, "qml", "Shell.qml")))
        self.window: QQuickWindow = quick_window(self.engine)
        self.host = Answers()
        self.renderer = Renderer(
            app,
            self.engine,
            looks,
            descriptor=self.host.theirs.fileno(),
            build="test",
            walls=[],
            painted_ns=1,
            early=b"",
        )
        self.revision = 0
        self.window.requestActivate()
        self.wait_for(dto.Locked)
        self.host.send(hello_message())
        self.host.send(
            dto.Choices(
                choices=(
                    dto.Choice(id="tiny", harness="Native", connector="Built-in", model="SmolLM2", builtin=True),
                    dto.Choice(id="big", harness="Native", connector="Server", model="Big", efforts=("low", "high")),
                )
            )
        )

    def spin(self, until: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> bool:
        """Let both ends work until `until()`."""
        end = time.monotonic() + timeout_s
        while not until():
            if time.monotonic() > end:
                return False
            self.app.processEvents()
            self.host.answer()
            time.sleep(0.001)
        return True

    def settle(self) -> None:
        """Until every frame is reduced and drawn."""
        assert self.spin(lambda: self.host.acked >= self.host.encoder.last_sequence)
        end = time.monotonic() + 0.08
        self.spin(lambda: time.monotonic() > end)

    def wait_for(self, kind: type[M]) -> M:
        found: list[M] = []

        def arrived() -> bool:
            found.extend(message for message in self.host.take(kind))
            return bool(found)

        assert self.spin(arrived), f"no {kind.__name__}: {self.host.said}"
        return found[0]

    def select(self, conversation: str | None = "c1", **more: Any) -> None:
        self.revision += 1
        values: dict[str, Any] = {
            "title": "A conversation", "sentence": "Native · SmolLM2 · touches nothing", "choice": "tiny", "effort": "",
            "enter": "Enter sends.", "total": len(self.host.items.get(conversation or "", [])), "draft": "", **more,
        }  # fmt: skip
        self.host.send(dto.Selected(revision=self.revision, conversation=conversation, **values))
        self.settle()

    def item(self, name: str) -> QQuickItem:
        """The item with this objectName, or else with this accessible name."""
        found = self.window.findChild(QQuickItem, name)
        assert found is not None, f"no {name}"
        return found

    def everything(self) -> list[QObject]:
        """Every object of the window; rows of lists are its children on screen only."""
        shown = list(_visual(self.window.contentItem()))
        kids = [*self.window.findChildren(QObject), *shown]
        for item in shown:
            kids += item.findChildren(QObject)
        return list({id(kid): kid for kid in kids}.values())

    def all(self, type_name: str) -> list[QObject]:
        """Every object of a QML type of ours."""
        kids = [*self.window.findChildren(QObject), *_visual(self.window.contentItem())]
        unique = {id(kid): kid for kid in kids}
        return [kid for kid in unique.values() if kid.metaObject().className().startswith(type_name + "_QMLTYPE")]

    def key(self, key: Qt.Key, text: str = "", modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
            QCoreApplication.sendEvent(self.window, QKeyEvent(kind, key, modifiers, text))
        self.app.processEvents()

    def type(self, text: str) -> None:
        for char in text:
            if char == "\n":
                self.key(Qt.Key.Key_Return, "\r", Qt.KeyboardModifier.ShiftModifier)
            else:
                self.key(Qt.Key.Key_unknown, char)

    def compose(self, preedit: str, commit: str = "") -> None:
        event = QInputMethodEvent(preedit, [])
        if commit:
            event.setCommitString(commit)
        QCoreApplication.sendEvent(self.app.focusObject(), event)
        self.app.processEvents()

    def close(self) -> None:
        import shiboken6

        self.window.close()
        self.app.processEvents()
        shiboken6.delete(self.window)  # before what its bindings read
        shiboken6.delete(self.renderer._client)  # its notifiers go before the descriptor does
        self.host.close()


def _visual(item: QQuickItem) -> Iterator[QQuickItem]:
    for kid in item.childItems():
        yield kid
        yield from _visual(kid)


@pytest.fixture
def bench(qapp: QGuiApplication) -> Iterator[Bench]:
    made = Bench(qapp)
    yield made
    made.close()


def centre(item: QQuickItem) -> QPoint:
    return item.mapToScene(item.boundingRect().center()).toPoint()
