"""A scripted host: the real renderer process on a socketpair, told what to show.

Owns the process, the frames and what the renderer said. It answers what a host must answer
(windows of items and conversations) from plain lists.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ui.wire import dto
from ui.wire.framing import MAX_MESSAGES, host_decoder, host_encoder

BUILD = "test"
M = TypeVar("M")


class Talk:
    """What a host knows and answers, on one end of a socketpair."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket, self.theirs = ours, theirs
        self.decoder, self.encoder = host_decoder(), host_encoder()
        self.said: list[dto.RendererMessage] = []
        self.acked = 0
        self.items: dict[str, list[dto.Item]] = {}
        self.texts: dict[str, str] = {}
        self.rows: list[dto.ConversationRow] = []
        self.offer: list[dto.Choice] = []
        self.pages: dict[str, list[dto.Message]] = {}
        self.on_command: Callable[[dto.RendererMessage], None] = lambda message: None

    def send(self, *messages: dto.Message) -> None:
        for at in range(0, len(messages), MAX_MESSAGES):
            self.socket.sendall(self.encoder.encode(messages[at : at + MAX_MESSAGES]))

    def received(self, data: bytes) -> None:
        for frame in self.decoder.feed(data):
            for message in frame.messages:
                self._take(message)

    def _take(self, message: dto.RendererMessage) -> None:
        if isinstance(message, dto.Ack):
            self.acked = max(self.acked, message.frame)
            return
        self.said.append(message)
        if isinstance(message, dto.WantItems):
            items = self.items.get(message.conversation, [])
            window = tuple(items[message.first : message.first + message.count])
            half = 20
            for at in range(0, max(1, len(window)), half):
                self.send(
                    dto.Items(
                        conversation=message.conversation,
                        total=len(items),
                        first=message.first + at,
                        items=window[at : at + half],
                    )
                )
        elif isinstance(message, dto.WantText):
            text = self.texts[message.item]
            piece = text[message.at : message.at + dto.TEXT_PIECE_CHARS]
            last = message.at + len(piece) >= len(text)
            self.send(
                dto.ItemText(conversation=message.conversation, item=message.item, at=message.at, text=piece, last=last)
            )
        elif isinstance(message, dto.WantConversations):
            found = [row for row in self.rows if message.filter.lower() in row.title.lower()]
            self.send(
                dto.Conversations(
                    filter=message.filter,
                    total=len(found),
                    first=message.first,
                    rows=tuple(found[message.first : message.first + message.count]),
                )
            )
        elif isinstance(message, dto.WantChoices):
            self.send(self.choices(message.filter, message.connector))
        elif isinstance(message, dto.WantPage):
            self.send(*self.pages.get(message.page, []))
        self.on_command(message)

    def choices(self, text: str = "", connector: str | None = None) -> dto.Choices:
        """What is offered of it, as an answer."""
        found = [
            choice
            for choice in self.offer
            if text.lower() in choice.model.lower() and connector in (None, choice.connector_id)
        ]
        return dto.Choices(choices=tuple(found[: dto.MOST_CHOICES]), filter=text, connector=connector, total=len(found))

    def item(self, conversation: str, kind: str, text: str, state: str = "complete", **more: Any) -> dto.Item:
        """Put an item at the end of a conversation's list, without telling the renderer."""
        items = self.items.setdefault(conversation, [])
        name = f"{conversation}-{len(items)}"
        self.texts[name] = text
        made = dto.Item(
            id=name,
            kind=kind,  # type: ignore[arg-type]
            state=state,  # type: ignore[arg-type]
            text=text[: dto.TEXT_PIECE_CHARS],
            size_chars=len(text),
            **more,
        )
        items.append(made)
        return made


class Answers(Talk):
    """A host in the same process as its window: it is asked to answer, and never waits."""

    def __init__(self) -> None:
        super().__init__()
        for end in (self.socket, self.theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)

    def answer(self) -> None:
        try:
            data = self.socket.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if data:
            self.received(data)

    def take(self, kind: type[M]) -> list[M]:
        """Messages of this kind that came since; they count as taken."""
        found: list[M] = [message for message in self.said if isinstance(message, kind)]
        self.said = [message for message in self.said if not isinstance(message, kind)]
        return found

    def close(self) -> None:
        self.socket.close()
        self.theirs.close()


class FakeHost(Talk):
    """A host whose window is the real renderer process."""

    def __init__(
        self,
        *,
        env: dict[str, str],
        walls: str = "none",
        hello: dto.HostHello | None = None,
        stderr: Any = subprocess.PIPE,
    ) -> None:
        super().__init__()
        theirs = self.theirs
        self._seen = 0
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "ui", f"--channel={theirs.fileno()}", f"--walls={walls}", f"--build={BUILD}"],
            pass_fds=[theirs.fileno()],
            env=env,
            stdin=subprocess.DEVNULL,
            stderr=stderr,
        )
        theirs.close()
        self.send(hello or hello_message())

    def close(self) -> str:
        """End the renderer; what it wrote to stderr."""
        self.socket.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)
        if self.process.stderr is None:
            return ""
        with self.process.stderr as stream:
            return str(stream.read(), "utf-8", "replace")

    def pump(self, seconds: float) -> None:
        """Answer for a while."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self.socket], [], [], left)
            if ready and not self._read():
                return

    def wait_for(self, kind: type[M], timeout_s: float = 15.0) -> M:
        """The next message of this kind that was not waited for before."""
        end = time.monotonic() + timeout_s
        while True:
            for place in range(self._seen, len(self.said)):
                message = self.said[place]
                if isinstance(message, kind):
                    self._seen = place + 1
                    return message
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no {kind.__name__}; said {[type(m).__name__ for m in self.said]}")
            ready, _, _ = select.select([self.socket], [], [], left)
            if ready and not self._read():
                raise EOFError(f"the renderer ended with {self.process.poll()}")

    def settle(self, timeout_s: float = 15.0) -> None:
        """Wait until everything sent has been reduced."""
        end = time.monotonic() + timeout_s
        while self.acked < self.encoder.last_sequence:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("frames were not acknowledged")
            ready, _, _ = select.select([self.socket], [], [], left)
            if ready and not self._read():
                raise EOFError(f"the renderer ended with {self.process.poll()}")

    def _read(self) -> bool:
        data = self.socket.recv(65536)
        if not data:
            return False
        self.received(data)
        return True


def hello_message(**more: Any) -> dto.HostHello:
    values: dict[str, Any] = {"theme": "system", "dark": False, "profile": "personal", **more}
    return dto.HostHello(version=dto.PROTOCOL_VERSION, build=BUILD, **values)


class Screen:
    """An X server of our own with a window manager, if there is one."""

    def __init__(self, size: str = "1600x1200") -> None:
        read, write = os.pipe()
        self.server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(write), "-screen", "0", f"{size}x24", "-nolisten", "tcp"],
            pass_fds=[write],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(write)
        with os.fdopen(read, encoding="ascii") as line:
            number = line.readline().strip()
        if not number:
            raise RuntimeError("Xvfb did not start")
        self.display = f":{number}"
        self.manager: subprocess.Popen[bytes] | None = None

    def env(self, **more: str) -> dict[str, str]:
        """Environment of a renderer on this screen."""
        keep = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL") if name in os.environ}
        keep.setdefault("LANG", "C.UTF-8")
        return {
            **keep,
            "DISPLAY": self.display,
            "QT_QPA_PLATFORM": "xcb",
            "QT_QUICK_BACKEND": "software",
            "DBUS_SESSION_BUS_ADDRESS": "disabled:",
            **more,
        }

    def tool(self, *command: str) -> str:
        """Run an X tool on this screen."""
        done = subprocess.run(
            command, env={**os.environ, "DISPLAY": self.display}, capture_output=True, timeout=30, check=True
        )
        return str(done.stdout, "utf-8")

    def window(self, pid: int, timeout_s: float = 15.0) -> str:
        end = time.monotonic() + timeout_s
        while True:
            try:
                found = self.tool("xdotool", "search", "--onlyvisible", "--pid", str(pid)).split()
            except subprocess.CalledProcessError:
                found = []
            if found:
                return found[0]
            if time.monotonic() > end:
                raise TimeoutError("no window")
            time.sleep(0.05)

    def close(self) -> None:
        for process in (self.manager, self.server):
            if process is not None:
                process.terminate()
                process.wait(10)


def rows_of(titles: Sequence[tuple[str, str, int, str, bool]], now_ms: int) -> list[dto.ConversationRow]:
    """Sidebar rows from (title, subtitle, age in minutes, state, pinned)."""
    return [
        dto.ConversationRow(
            id=f"c{place}",
            title=title,
            subtitle=subtitle,
            updated_ms=now_ms - age * 60_000,
            state=state,  # type: ignore[arg-type]
            pinned=pinned,
        )
        for place, (title, subtitle, age, state, pinned) in enumerate(titles)
    ]
