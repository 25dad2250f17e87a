"""From nothing installed to a first answer, as a person in front of the window gets there.

`python -m tests.process.first_answer FOLDER` takes the ways one after the other, prints clicks and seconds, and
puts a picture of each step into FOLDER. Owns the ways; must not know what is expected of them: that is
test_first_answer.py. The providers' own addresses are spoken to, through a proxy that leads to this computer.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.loopback.authorities import Authority
from tests.loopback.chat_server import Answer, ChatServer
from tests.loopback.messages_server import MessagesServer
from tests.loopback.proxy import ConnectProxy
from tests.loopback.responses_server import ResponsesServer
from tests.process.app_driver import PATIENCE_S, App, Home, app, served, until
from tests.process.key_stores import Bus, session_bus
from tests.process.xvfb import xvfb

KEY = "sk-canary-first-0123456789abcdef"
QUESTION = "What is the capital of France?"
READS_S = 2.0
"""A person looks at a window before they press anything in it. Not counted as waiting."""
ANSWER_S = 60.0
REPLY = "The capital of France is Paris."


class OllamaServer(ChatServer):
    """A chat server that answers as Ollama does, and wants no key."""

    async def _answer(self, answer: Answer) -> None:
        if (answer.request.method, answer.request.path) == ("GET", "/api/version"):
            await answer.json(200, {"version": "0.12.6"})
        else:
            await super()._answer(answer)


class AnthropicServer(MessagesServer):
    """The Messages API with its list of models."""

    async def _answer(self, answer: Answer) -> None:
        path, _, _ = answer.request.path.partition("?")
        if (answer.request.method, path, self.key_in(answer.request)) == ("GET", "/v1/models", self.key):
            listed = {
                "type": "model",
                "id": self.model,
                "display_name": "A model",
                "created_at": "2026-01-01T00:00:00Z",
            }
            page = {"data": [listed], "has_more": False, "first_id": self.model, "last_id": self.model}
            await answer.json(200, page)
        else:
            await super()._answer(answer)


class Steps(NamedTuple):
    """Where the keyboard finds what a person would click: how often Tab is pressed, from where the focus is."""

    to_try: int = 8
    to_look: int = 9
    to_openai: int = 10
    to_anthropic: int = 11
    from_look_to_use: int = 1
    from_picture_to_use: int = 5


STEPS = Steps()


@dataclass
class Journey:
    """One way, and what it took.

    Attributes:
        clicks: on buttons, fields and pictures.
        typed: texts that were typed.
        waited_s: from the start of the program to the answer, without the time in which the person looks.
    """

    driven: App
    pictures: Path | None = None
    clicks: int = 0
    typed: int = 0
    waited_s: float = 0.0
    _began_s: float = field(default_factory=time.monotonic)
    _looked_s: float = 0.0
    _step: int = 0

    def look(self) -> None:
        """Look at what there is, and keep a picture of it."""
        time.sleep(READS_S)
        self._looked_s += READS_S
        self._step += 1
        if self.pictures is not None:
            before_s = time.monotonic()
            self.pictures.mkdir(parents=True, exist_ok=True)
            picture = self.pictures / f"{self._step}.png"
            environment = {**os.environ, **self.driven.display.env}
            subprocess.run(["import", "-window", "root", str(picture)], env=environment, check=True, timeout=PATIENCE_S)
            self._looked_s += time.monotonic() - before_s

    def click(self, tabs: int = 0) -> None:
        """Press what is `tabs` further on."""
        self.driven.xdotool("key", *["Tab"] * tabs, "Return") if tabs else self.driven.xdotool("key", "Return")
        self.clicks += 1

    def type(self, text: str) -> None:
        self.driven.xdotool("type", "--delay", "4", text)
        self.typed += 1

    def dialog(self, title: str) -> None:
        """Wait for a trusted dialog, and look at it."""

        def shown() -> str:
            found = self.driven.xdotool("search", "--onlyvisible", "--name", f"^{title}", fails=True).split()
            return found[-1] if found else ""

        # (There is no window manager here that would hand it the focus.)
        self.driven.xdotool("windowfocus", "--sync", until(shown, f"the dialog “{title}” is on screen"))
        self.look()

    def choose_a_picture(self) -> None:
        """The mark of every later dialog."""
        self.dialog("Choose your picture")
        self.click()
        self.click(STEPS.from_picture_to_use)

    def window(self) -> None:
        self.driven.focus()

    def ask(self) -> None:
        """Write the question, send it and wait for the answer."""
        self.type(QUESTION)
        self.driven.enter()
        place = self.driven.home

        def answered() -> bool:
            # A conversation is there before its run is: that nothing runs says little until one was begun.
            for session in place.sessions():
                row = next(line["row"] for line in place.order("status", session=session) if "row" in line)
                return row["run"] is not None and row["state"] not in ("admitting", "working")
            return False

        until(answered, "the answer is there", ANSWER_S)
        self.waited_s = time.monotonic() - self._began_s - self._looked_s
        self.look()


def built_in(journey: Journey) -> None:
    """Try it now."""
    journey.look()
    journey.click(STEPS.to_try)
    journey.look()
    journey.ask()


def found_server(journey: Journey) -> None:
    """Look, use what is found."""
    journey.look()
    journey.click(STEPS.to_look)
    time.sleep(READS_S)
    journey.look()
    journey.click(STEPS.from_look_to_use)
    journey.choose_a_picture()
    journey.dialog("Add a connector")
    journey.click()
    connected(journey)
    journey.ask()


def with_key(tabs: int) -> Callable[[Journey], None]:
    """Add a key of a provider."""

    def way(journey: Journey) -> None:
        journey.look()
        journey.click(tabs)
        journey.choose_a_picture()
        journey.dialog("Add a connector")
        journey.type(KEY)
        journey.click()
        connected(journey)
        journey.ask()

    return way


def connected(journey: Journey) -> None:
    """Wait until the connector is kept."""

    def there() -> bool:
        return any(
            line["row"]["name"] != "builtin" for line in journey.driven.home.order("connectors") if "row" in line
        )

    until(there, "the connector is kept")
    journey.window()
    journey.look()


class Way(NamedTuple):
    """A way to a first answer: how it is gone, and the server it leads to (None is the built-in model)."""

    go: Callable[[Journey], None]
    server: type[ChatServer] | None = None
    host: str = ""


WAYS = {
    "built-in model": Way(built_in),
    "Ollama": Way(found_server, OllamaServer),
    "Anthropic key": Way(with_key(STEPS.to_anthropic), AnthropicServer, "api.anthropic.com"),
    "OpenAI key": Way(with_key(STEPS.to_openai), ResponsesServer, "api.openai.com"),
}


class Surroundings(NamedTuple):
    place: Home
    server: ChatServer | None
    bus: Bus


@contextmanager
def surroundings(way: Way, home: Path, **of_bus: Any) -> Iterator[Surroundings]:
    """An empty home on a computer with a key store, and the server of this way behind its own address."""
    with ExitStack() as stack:
        bus = stack.enter_context(session_bus(home, **of_bus))
        stack.enter_context(bus.key_store())
        place = Home(home, {"DBUS_SESSION_BUS_ADDRESS": bus.address, "OLLAMA_HOST": "127.0.0.1:9"})
        server: ChatServer | None = None
        if way.server is not None and way.host:
            authority = Authority(home)
            server = way.server(tls=authority.serves(way.host), key=KEY, reply=REPLY)
            behind = server
            proxy = ConnectProxy(lambda host, port: ("127.0.0.1", behind.port))
            stack.enter_context(served(server, proxy))
            place.variables |= {"HTTPS_PROXY": proxy.url, "SSL_CERT_FILE": str(authority.file)}
        elif way.server is not None:
            server = way.server(key=None, reply=REPLY)
            stack.enter_context(served(server))
            place.variables["OLLAMA_HOST"] = f"127.0.0.1:{server.port}"
        yield Surroundings(place, server, bus)


def walk(name: str, home: Path, pictures: Path | None = None) -> tuple[Journey, Home, ChatServer | None]:
    """Go a way; the app is ended then."""
    way = WAYS[name]
    with surroundings(way, home) as (place, server, _), xvfb() as display, app(place, display) as driven:
        journey = Journey(driven, pictures)
        driven.start()
        driven.focus()
        way.go(journey)
        driven.kill(15)
        assert driven.wait() == 0
        return journey, place, server


def main(folder: Path) -> int:
    print(f"{'':16} {'clicks':>6} {'typed':>6} {'seconds':>8}")
    for name in WAYS:
        with tempfile.TemporaryDirectory(prefix="first") as home:
            journey, _, _ = walk(name, Path(home), folder / name.lower().replace(" ", "-"))
        print(f"{name:16} {journey.clicks:6} {journey.typed:6} {journey.waited_s:8.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
