"""The window of a dialog process and the object its QML talks to.

Owns Qt in this process, the channel to the host once Qt runs, and the guard that keeps a press
meant for something else from landing on an answer. Must not know the key store or any file of a
profile. Invariant: one answer a question; closing, Escape and a lost host are "no".
"""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import Property, QEvent, QObject, QSocketNotifier, Qt, QUrl, Signal, Slot
from PySide6.QtGui import QFontDatabase, QGuiApplication, QKeyEvent
from PySide6.QtQml import QQmlApplicationEngine
from PySide6.QtQuick import QQuickWindow

from desktop.dialog import approval, entry, form, wire
from desktop.dialog.pictures import picture, propose
from desktop.dialog.present import picture_map, question_map
from desktop.dialog.text import visible
from resources import tokens
from ui.wire.framing import Breach, FrameDecoder

GUARD_MS = 500
"""How long a question has been on screen, in an active window, before a press counts."""

_QML = os.path.join(os.path.dirname(os.path.abspath(__file__)), "qml")

Rows = Sequence[tuple[str, str, str]]


class Desk(QObject):
    """What the QML sees: looks, marks, the question, and the ways to answer it.

    Signals:
        signChanged, askedChanged, waitingChanged: the property of that name moved.
        fronted: the host wants the window in front.
    """

    signChanged = Signal()
    askedChanged = Signal()
    waitingChanged = Signal()
    fronted = Signal()

    def __init__(self, hello: wire.Hello, send: Callable[[wire.DialogToHost], None]) -> None:
        super().__init__()
        self._send = send
        self._dark = hello.dark
        self._expects = hello.expects
        self._look = tokens.tokens(
            dark=hello.dark,
            high_contrast=hello.high_contrast,
            reduced_motion=hello.reduced_motion,
            zoom_percent=hello.zoom_percent,
        )
        self._profile = ""
        self._picture = picture_map(None, dark=self._dark)
        self._ask: wire.Ask | None = None
        self._asked: dict[str, Any] = {}
        self._waiting = 0
        self._ready_said = False
        self._seen: tuple[str, ...] = ()

    # ------------------------------------------------------------------ what the QML reads

    @Property("QVariantMap", constant=True)  # type: ignore[arg-type]
    def look(self) -> dict[str, Any]:
        return self._look

    @Property(str, constant=True)
    def expects(self) -> str:
        return self._expects

    @Property(int, constant=True)
    def guardMs(self) -> int:
        return GUARD_MS

    @Property(str, notify=signChanged)
    def profile(self) -> str:
        return self._profile

    @Property("QVariantMap", notify=signChanged)  # type: ignore[arg-type]
    def picture(self) -> dict[str, str]:
        return self._picture

    @Property("QVariantMap", notify=askedChanged)  # type: ignore[arg-type]
    def asked(self) -> dict[str, Any]:
        return self._asked

    @Property(int, notify=waitingChanged)
    def waiting(self) -> int:
        return self._waiting

    # ----------------------------------------------------------------------- from the host

    def take(self, message: wire.HostToDialog) -> None:
        """One message of the host."""
        if isinstance(message, wire.Sign):
            self._profile = visible(message.profile)
            self._picture = picture_map(picture(message.picture), dark=self._dark)
            self.signChanged.emit()
        elif isinstance(message, wire.Front):
            self._waiting = message.waiting
            self.waitingChanged.emit()
            self.fronted.emit()
        elif not isinstance(message, wire.Hello):
            self._ask = message
            self._ready_said = False
            self._asked = question_map(message)
            self.askedChanged.emit()

    # ------------------------------------------------------------------------ from the QML

    @Slot()
    def noteReady(self) -> None:
        """The question has been readable for the time of the guard."""
        if self._ask is not None and not self._ready_said:
            self._ready_said = True
            self._send(wire.Ready(question=self._ask.question))

    @Slot(str, result="QVariantMap")
    def proposal(self, kind: str) -> dict[str, str]:
        """Name and address that a connector of this kind usually has."""
        taken = self._ask.taken if isinstance(self._ask, wire.AskConnector) else ()
        found = entry.connector_kind(kind)
        return {"name": entry.proposed_name(kind, taken), "address": found.address if found is not None else ""}

    def _entry(self, name: str, address: str, key: str) -> entry.Entry:
        ask = self._ask
        if not isinstance(ask, wire.AskConnector):
            return entry.check_entry(name, address, key)
        return entry.check_entry(name, address, key, taken=ask.taken, kept_for=ask.kept_for)

    @Slot(str, str, str, str, result="QVariantMap")
    def check(self, kind: str, name: str, address: str, key: str) -> dict[str, Any]:
        """The fields as they stand, with a sentence for each that needs one."""
        found = self._entry(name, address, key)
        where = found.address
        good = where.check.state == "good"
        kept = isinstance(self._ask, wire.AskConnector) and bool(self._ask.kept_for) and not found.key.value
        if good and where.loopback and not found.key.value:
            effect = f"Messages stay on this computer: they go to {where.host}."
        elif good and kept and found.key.state == "good":
            effect = f"The key that is kept goes with your messages to {where.host}, nowhere else."
        elif good:
            effect = (
                f"The key goes into this computer’s key store, and with your messages to {where.host}, nowhere else."
            )
        else:
            effect = ""
        return {
            "name": {"state": found.name.state, "sentence": found.name.sentence},
            "address": {"state": where.check.state, "sentence": where.check.sentence},
            "key": {"state": found.key.state, "sentence": found.key.sentence},
            "loopback": where.loopback,
            "effect": effect,
            "complete": found.complete and entry.connector_kind(kind) is not None,
        }

    @Slot(str, str, str, str)
    def save(self, kind: str, name: str, address: str, key: str) -> None:
        """The person pressed Save; only a complete entry leaves."""
        ask = self._ask
        if not isinstance(ask, wire.AskConnector) or entry.connector_kind(kind) is None:
            return
        found = self._entry(name, address, key)
        if found.complete:
            self._answer(
                wire.Typed(
                    question=ask.question,
                    kind=kind,
                    name=found.name.value,
                    address=found.address.check.value,
                    key=found.key.value,
                )
            )

    @Slot("QVariantMap", result="QVariantMap")
    def checkForm(self, values: dict[str, Any]) -> dict[str, Any]:
        """Every field of a form as it stands: whether it is asked, and a sentence if it needs one."""
        ask = self._ask
        if not isinstance(ask, wire.AskForm):
            return {"fields": {}, "complete": False}
        now = {field.id: form.check(field, values.get(field.id))[0] for field in form.asked(ask.fields, values)}
        nothing = entry.Check("good", "")
        fields = {
            field.id: {
                "asked": field.id in now,
                "state": now.get(field.id, nothing).state,
                "sentence": now.get(field.id, nothing).sentence,
            }
            for field in ask.fields
        }
        return {"fields": fields, "complete": all(found.state == "good" for found in now.values())}

    @Slot("QVariantMap")
    def fill(self, values: dict[str, Any]) -> None:
        """The person pressed the button of a form; only one that is filled in as it must be leaves."""
        ask = self._ask
        if isinstance(ask, wire.AskForm) and (answer := form.filled(ask.fields, values)) is not None:
            self._answer(wire.Filled(question=ask.question, values=answer))

    @Slot()
    def agree(self) -> None:
        if isinstance(self._ask, wire.AskDelete | wire.AskRemove):
            self._answer(wire.Agreed(question=self._ask.question))

    @Slot(str, "QVariantMap", "QVariantList", result="QVariantMap")
    def checkRule(self, always: str, where: dict[str, Any], also: list[Any]) -> dict[str, Any]:
        """How the rule that “always” would save stands, with a sentence for each part of it that needs one."""
        ask = self._ask
        if not isinstance(ask, wire.AskApproval):
            return {"fields": {}, "complete": False, "words": ""}
        typed = {name: str(value) for name, value in where.items()}
        found = {
            one.argument: approval.check(one, typed.get(one.argument, one.value)) for one in ask.widest if one.editable
        }
        complete = always != "widest" or all(one.state == "good" for one in found.values())
        return {
            "fields": {name: {"state": one.state, "sentence": one.sentence} for name, one in found.items()},
            "complete": complete,
            "words": approval.rule_in_words(ask, always, typed, tuple(map(str, also))) if complete else "",
        }

    @Slot(bool, str, "QVariantMap", "QVariantList")
    def decide(self, approve: bool, always: str, where: dict[str, Any], also: list[Any]) -> None:
        """The person approved or denied; only what could have been offered leaves."""
        ask = self._ask
        if not isinstance(ask, wire.AskApproval):
            return
        answer = wire.Decided(question=ask.question, approve=False)
        if approve and always in ("", "exact", "widest"):
            widest = always == "widest"
            answer = wire.Decided(
                question=ask.question,
                approve=True,
                always=always,  # type: ignore[arg-type]  # one of the three
                where={name: str(value) for name, value in where.items()} if widest else {},
                also=tuple(map(str, also)) if widest else (),
            )
        if answer.approve == approve and approval.is_answer(ask, answer):
            self._answer(answer)

    @Slot()
    def decline(self) -> None:
        if self._ask is not None:
            self._answer(wire.Declined(question=self._ask.question))
        else:
            # Closed before anything was asked: the host reads the end of the channel as no answer.
            QGuiApplication.quit()

    @Slot(result="QVariantList")
    def proposals(self) -> list[dict[str, str]]:
        """Three pictures, others than before."""
        drawn = propose(self._seen[-24:])
        self._seen += tuple(one.words for one in drawn)
        return [picture_map(one, dark=self._dark) for one in drawn]

    @Slot(str)
    def choose(self, words: str) -> None:
        if isinstance(self._ask, wire.AskPicture) and picture(words) is not None:
            self._answer(wire.Chosen(question=self._ask.question, picture=words))

    def _answer(self, answer: wire.DialogToHost) -> None:
        ended = self._ask is not None and wire.takes_secret(self._ask)
        self._ask = None
        self._asked = {}
        self.askedChanged.emit()
        self._send(answer)
        if ended:
            # A secret has a process of its own, and its memory ends with it.
            QGuiApplication.quit()


class HeldKeys(QObject):
    """Drops what a key that is held down repeats, so that no answer is given by a key pressed before the window came.

    X11 repeats a key as release and press at the same time; only mostly are they marked as repeats.
    """

    _KEYS = frozenset([Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space])
    _NEW_PRESS_MS = 2

    def __init__(self) -> None:
        super().__init__()
        self._released_ms = -1_000

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if not isinstance(event, QKeyEvent) or event.key() not in self._KEYS:
            return False
        if event.type() == QEvent.Type.KeyRelease:
            self._released_ms = event.timestamp()
            return event.isAutoRepeat()
        return event.isAutoRepeat() or event.timestamp() - self._released_ms < self._NEW_PRESS_MS


class Line:
    """The channel, once Qt runs: nothing is read from it before the walls stand."""

    def __init__(self, channel: socket.socket, decoder: FrameDecoder[wire.HostToDialog]) -> None:
        self.broken = False
        self._channel = channel
        self._decode = decoder.feed
        self._encode = wire.dialog_encoder().encode
        self._take: Callable[[wire.HostToDialog], None] = lambda message: None
        self._notifier = QSocketNotifier(channel.fileno(), QSocketNotifier.Type.Read)
        self._notifier.setEnabled(False)
        self._notifier.activated.connect(self._read)

    def send(self, message: wire.DialogToHost) -> None:
        try:
            self._channel.sendall(self._encode([message]))
        except OSError:
            self.close()

    def listen(self, take: Callable[[wire.HostToDialog], None]) -> None:
        self._take = take
        self._notifier.setEnabled(True)

    def close(self) -> None:
        self._notifier.setEnabled(False)
        QGuiApplication.quit()

    def _read(self) -> None:
        try:
            data = self._channel.recv(65_536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            for frame in self._decode(data):
                for message in frame.messages:
                    self._take(message)
        except Breach:
            self.broken = True
            self.close()


def run(
    channel: socket.socket,
    decoder: FrameDecoder[wire.HostToDialog],
    hello: wire.Hello,
    lock: Callable[[], Rows],
) -> int:
    """Show the window, raise the late walls at its first paint, then serve the channel until it ends."""
    app = QGuiApplication([sys.argv[0] if sys.argv else "remuda"])
    app.setApplicationDisplayName("Remuda")
    app.setDesktopFileName("remuda")
    app.setQuitOnLastWindowClosed(False)
    for name in ("Inter-Regular.otf", "Inter-Medium.otf", "Inter-SemiBold.otf", "JetBrainsMono-Regular.ttf"):
        QFontDatabase.addApplicationFont(os.path.join(tokens.ROOT, "fonts", name))

    line = Line(channel, decoder)
    desk = Desk(hello, line.send)
    engine = QQmlApplicationEngine()
    engine.setInitialProperties({"desk": desk})
    engine.load(QUrl.fromLocalFile(os.path.join(_QML, "Main.qml")))
    roots = engine.rootObjects()
    if not roots or not isinstance(roots[0], QQuickWindow):
        line.send(wire.Trouble(code="DIALOG_BROKEN", text="The dialog could not be drawn."))
        return 1
    window = roots[0]
    held_keys = HeldKeys()
    window.installEventFilter(held_keys)
    walls: list[wire.Wall] = []

    def painted() -> None:
        QObject.disconnect(first_paint)
        if walls:
            return
        walls.extend(wire.Wall(name=name, state=_state(state), detail=detail) for name, state, detail in lock())
        line.send(wire.Locked(walls=tuple(walls)))
        line.listen(desk.take)

    first_paint = window.frameSwapped.connect(painted, Qt.ConnectionType.QueuedConnection)
    window.show()
    app.exec()
    del engine
    return 1 if line.broken else 0


def _state(state: str) -> Any:
    return state if state in ("up", "down") else "not-applicable"
