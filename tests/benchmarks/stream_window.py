"""One measured stream: the real window in this process, a host played on the other end of the channel.

    python -I -m tests.benchmarks.stream_window ROWS CHARS_BEFORE UPDATES [--command] [--slow]

CHARS_BEFORE is how much of an open code fence (with --command: of a command's output) is there already.
Each update is what 2,000 tokens/s bring in one frame of 16 ms. Its cost is all processor time of the GUI
thread until the next one: reading, reducing, model, layout, rendering, and what moves meanwhile. Prints one
JSON object.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable

from PySide6.QtCore import QEventLoop, QSocketNotifier, QTimer, QUrl
from PySide6.QtGui import QGuiApplication
from PySide6.QtQml import QQmlApplicationEngine

from resources.tokens import ROOT
from ui.looks import Looks
from ui.window import Renderer, quick_window
from ui.wire import dto
from ui.wire.framing import host_decoder, host_encoder

TOKENS_A_SECOND = 2_000
FRAME_S = 0.016
CHARS_A_TOKEN = 4
UPDATE_CHARS = round(TOKENS_A_SECOND * FRAME_S) * CHARS_A_TOKEN
PATIENCE_S = 20.0
SETTLING_UPDATES = 5
CONVERSATION, REPLY = "conversation", "streamed"

PROSE = (
    "The herd moves **slowly** along the river, and nobody is in a hurry to `cross` it. A rider who has been\n"
    "out since morning picks a fresh mount, checks the girth and goes on; what was left behind is fed.\n\n"
    "- water first, then *hay*\n- the grey one last\n\n1. count them\n2. count them [again](https://example.org/herd)\n\n"
)
CODE = (
    "    for horse in herd.by_rest(minutes=40):  # the longest rested one comes first\n"
    "        saddle(horse, loose=False)\n"
)
OUTPUT = (
    "\x1b[32mPASSED\x1b[0m tests/unit/test_herd.py::test_the_longest_rested_comes_first \x1b[36m[ 41 %]\x1b[0m\r\n"
    "\r\x1b[2Kdownloading \x1b[1;34m==>\x1b[0m 41 %\r\x1b[2Kdownloading \x1b[1;34m===>\x1b[0m 42 %\r\n"
)


def item(index: int) -> dto.Item:
    """What stands at `index` of the transcript: questions and answers in turn."""
    text = f"What comes after {index}?" if index % 2 == 0 else PROSE * 2
    kind: dto.ItemKind = "user" if index % 2 == 0 else "reply"
    return dto.Item(id=f"item-{index}", kind=kind, state="complete", text=text, size_chars=len(text))


class PlayedHost:
    """The other end of the channel: answers what the window asks for, sends what it is told to."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        for end in (ours, self.theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
        self._socket = ours
        self.descriptor = ours.fileno()
        self._encoder, self._decoder = host_encoder(), host_decoder()
        self.locked = False

    def send(self, *messages: dto.HostMessage) -> None:
        self._socket.sendall(self._encoder.encode(messages))

    def answer(self) -> None:
        """Read what the window said and answer it."""
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return
        for frame in self._decoder.feed(data):
            for message in frame.messages:
                self._answer(message)

    def _answer(self, message: dto.RendererMessage) -> None:
        if isinstance(message, dto.Locked):
            self.locked = True
        elif isinstance(message, dto.WantItems):
            last = min(message.first + message.count, self.rows)
            items = tuple(item(index) for index in range(message.first, last))
            self.send(dto.Items(conversation=CONVERSATION, total=self.rows, first=message.first, items=items))
        elif isinstance(message, dto.WantConversations):
            self.send(dto.Conversations(filter=message.filter, total=0, first=0, rows=()))


class Measured:
    """The window, its host and the clock."""

    def __init__(self, rows: int) -> None:
        self.app = QGuiApplication(["remuda"])
        looks = Looks(dark=False)
        self.engine = QQmlApplicationEngine()
        self.engine.rootContext().setContextProperty("theme", looks.map)
        self.engine.load(QUrl.fromLocalFile(os.path.join(ROOT, "qml", "Shell.qml")))
        self.window = quick_window(self.engine)
        self.window.resize(1100, 720)
        self.host = PlayedHost(rows)
        self.answering = QSocketNotifier(self.host.descriptor, QSocketNotifier.Type.Read)
        self.answering.activated.connect(self.host.answer)
        self.alarm = QTimer()  # wakes the thread when nothing else does
        self.alarm.setSingleShot(True)
        self.frames = 0
        self.window.frameSwapped.connect(self._drawn)
        self.renderer = Renderer(
            self.app,
            self.engine,
            looks,
            descriptor=self.host.theirs.fileno(),
            build="measured",
            walls=[],
            painted_ns=0,
            early=b"",
        )

    def _drawn(self) -> None:
        self.frames += 1

    def until(self, reached: Callable[[], bool]) -> None:
        """Let the window work until `reached()`; the thread sleeps while nothing is to be done."""
        deadline = time.monotonic() + PATIENCE_S
        self.alarm.start(round(PATIENCE_S * 1e3))
        while True:
            self.app.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)
            if reached():
                break
            if time.monotonic() >= deadline:
                raise TimeoutError("the window does not answer")
        self.alarm.stop()

    def settle(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        QTimer.singleShot(round(seconds * 1e3) + 1, lambda: None)
        self.until(lambda: time.monotonic() >= end)

    def open(self) -> None:
        """Say hello and put the conversation's end on the screen."""
        run = dto.RunView(id="run", state="working")
        self.until(lambda: self.host.locked)
        self.host.send(
            dto.HostHello(version=dto.PROTOCOL_VERSION, build="measured", profile="personal", theme="light", dark=False)
        )
        self.host.send(
            dto.Selected(
                revision=1,
                conversation=CONVERSATION,
                title="A long one",
                sentence="Native agent",
                choice=None,
                effort="",
                enter="Enter sends",
                total=self.host.rows,
                draft="",
                run=run,
            )
        )
        self.settle(0.6)

    def begin_reply(self, fence_chars: int) -> int:
        """Open the reply that is streamed; with a fence of so many characters of code already in it."""
        before = "```python\n" + (CODE * (fence_chars // len(CODE) + 1))[:fence_chars] if fence_chars else ""
        return self._begin(dto.Item(id=REPLY, kind="reply", state="open", text="", size_chars=0), before)

    def begin_command(self, chars: int) -> int:
        """Open the command whose output is streamed; so much of it is there already."""
        card = dto.CommandCard(command="make check")
        opened = dto.Item(id=REPLY, kind="command", state="open", text="", size_chars=0, card=card)
        return self._begin(opened, OUTPUT * (chars // len(OUTPUT)))

    def _begin(self, opened: dto.Item, before: str) -> int:
        self.host.rows += 1
        self.host.send(dto.ItemAdded(conversation=CONVERSATION, index=self.host.rows - 1, item=opened))
        at = 0
        while before:
            piece, before = before[: dto.TEXT_PIECE_CHARS], before[dto.TEXT_PIECE_CHARS :]
            self.delta(at, piece)
            at += len(piece)
            self.settle(0.05)
        self.settle(0.4)
        return at

    def delta(self, at: int, text: str) -> None:
        self.host.send(dto.ItemDelta(conversation=CONVERSATION, item=REPLY, at=at, text=text))

    def stream(self, at: int, source: str, updates: int) -> tuple[list[float], list[float]]:
        """Milliseconds of GUI-thread time, and of wall time, from each update to the next."""
        busy, wall = [], []
        place = 0
        for number in range(updates):
            text = "".join(source[(place + offset) % len(source)] for offset in range(UPDATE_CHARS))
            place += UPDATE_CHARS
            started, started_wall = time.thread_time(), time.monotonic()
            self.delta(at, text)
            at += len(text)
            self.settle(FRAME_S)
            if number >= SETTLING_UPDATES:
                busy.append((time.thread_time() - started) * 1e3)
                wall.append((time.monotonic() - started_wall) * 1e3)
        if self.frames < updates // 2:
            raise TimeoutError(f"{updates} updates were drawn in {self.frames} frames")
        return busy, wall


def plant_slowdown() -> None:
    """A cost that grows with the transcript, as a careless change would bring it."""
    from ui.transcript import Transcript

    flush = Transcript.flush

    def slow(self: Transcript) -> None:
        for _ in range(self.total * 2):
            pass
        flush(self)

    Transcript.flush = slow  # type: ignore[method-assign]


def main() -> int:
    rows, fence_chars, updates = (int(argument) for argument in sys.argv[1:4])
    if "--slow" in sys.argv:
        plant_slowdown()
    measured = Measured(rows)
    measured.open()
    if "--command" in sys.argv:
        at, source = measured.begin_command(fence_chars), OUTPUT
    else:
        at, source = measured.begin_reply(fence_chars), CODE if fence_chars else PROSE
    busy, wall = measured.stream(at, source, updates)
    print(json.dumps({"busy_ms": busy, "wall_ms": wall}))
    sys.stdout.flush()
    os._exit(0)  # nothing of this window is of use any more


if __name__ == "__main__":
    main()
