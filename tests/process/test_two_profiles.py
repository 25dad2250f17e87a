"""Two profiles at once, each with a host and a window of its own: nothing of one is in anything of the other.

Each has a key, a message, a reply and a draft that nobody else has. Then every file, process and frame of the
other is looked at for them; each look is shown to see what may be there.
"""

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.loopback.chat_server import ChatServer
from tests.process.app_driver import App, Home, app, asked, chat_server, lines, until
from tests.process.canaries import Canary, arguments_and_environment, files_with, memory, writes, written_by
from tests.process.key_stores import Bus, session_bus
from tests.process.xvfb import xvfb

pytestmark = [
    pytest.mark.process,
    pytest.mark.needs("linux", "xdotool", "root", "strace", "gnome-keyring", "dbus-daemon"),
]

VARIABLE = "KEY_OF_ONE_PROFILE"


@dataclass
class Side:
    """One profile, and what is its alone: all of it holds its mark."""

    name: str
    place: Home
    server: ChatServer
    mark: Canary = field(default_factory=lambda: Canary(secrets.token_hex(20)))
    driven: App | None = None

    def __post_init__(self) -> None:
        self.key = self._own("sk-canary/+")
        self.message, self.reply, self.draft = (self._own(what) for what in ("message", "reply", "draft"))

    def _own(self, what: str) -> Canary:
        return Canary(f"{what}{self.mark.key}{secrets.token_hex(16)}")

    @property
    def app(self) -> App:
        assert self.driven is not None
        return self.driven

    @property
    def canaries(self) -> dict[str, Canary]:
        return {"key": self.key, "message": self.message, "reply": self.reply, "draft": self.draft}

    def found_in(self, data: bytes | str) -> list[str]:
        return [name for name, canary in self.canaries.items() if canary.found_in(data)]


@pytest.fixture
def bus(home: Path) -> Iterator[Bus]:
    with session_bus(home) as running, running.key_store():
        yield running


def links(pid: int) -> list[str]:
    """What the descriptors of a process are."""
    found = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(entry.path))
        except OSError:
            continue  # closed meanwhile
    return found


def mapped(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text("utf-8")


def test_nothing_of_one_is_in_anything_of_the_other(home: Path, tmp_path: Path, bus: Bus) -> None:
    variables = {"DBUS_SESSION_BUS_ADDRESS": bus.address}
    with ExitStack() as stack:
        sides = []
        for name in ("north", "south"):
            side = Side(name, Home(home, variables, name), stack.enter_context(chat_server()))
            side.server.key, side.server.reply = side.key.key, side.reply.key
            side.driven = stack.enter_context(app(side.place, stack.enter_context(xvfb())))
            sides.append(side)
        north, south = sides
        # The same name in both, in one key store; south's is in a variable that its own host has.
        add = ("connectors", "add", "mine", "--json", "--base-url")
        said = north.place.run(*add, north.server.base_url, "--key-stdin", stdin=north.key.key)
        assert said.returncode == 0, said
        south.place.variables[VARIABLE] = south.key.key
        said = south.place.run(*add, south.server.base_url, "--key-stdin", stdin=south.key.key)
        assert said.returncode == 0, said
        assert sorted(bus.kept().values()) == sorted([north.key.key, south.key.key])
        assert len({profile for profile, _ in bus.kept()}) == 2
        said = south.place.run("connectors", "rotate", "mine", "--key-env", VARIABLE, "--json")
        assert said.returncode == 0, said
        assert list(bus.kept().values()) == [north.key.key]

        for side in sides:
            side.app.start()
        for side in sides:
            stack.enter_context(written_by(side.app.pid, tmp_path / side.name))
            stack.enter_context(written_by(side.app.renderer().pid, tmp_path / f"{side.name}-window"))
        for side in sides:
            side.app.say(side.message.key)
            until(lambda side=side: asked(side.server) == [side.message.key], "it is sent")  # type: ignore[misc]
            until(lambda side=side: not side.place.status()["running"], "it is answered")  # type: ignore[misc]
            side.app.write(side.draft.key)
        for side in sides:
            [row] = lines(side.place.run("sessions", "--json").stdout)
            assert side.mark.found_in(row["title"])
            [offered, builtin] = lines(side.place.run("connectors", "list", "--json").stdout)
            assert (offered["base_url"], builtin["name"]) == (side.server.base_url, "builtin")

        for side, other in ((north, south), (south, north)):
            _processes(side, other)
        for side in sides:
            side.app.kill(signal.SIGTERM)
            assert side.app.wait() == 0
    for side, other in ((north, south), (south, north)):
        _frames(tmp_path, side, other)
        _files(home, side, other)
        keys = {request.headers.get("authorization") for request in side.server.requests}
        assert keys == {f"Bearer {side.key.key}"}
        assert not other.found_in(side.app.words() + side.place.log())


def _processes(side: Side, other: Side) -> None:
    """Arguments, environments, descriptors, mappings and memory of all that runs for `side`."""
    tree = side.app.tree()
    pids = {process.pid for process in tree}
    assert len(tree) > 1
    assert pids.isdisjoint(process.pid for process in other.app.tree())
    own, others = (str(where.place.profile.root) for where in (side, other))
    if side.name == "south":
        [host] = [process for process in tree if process.pid == side.app.pid]
        assert side.found_in(arguments_and_environment(host)) == ["key"], "the look sees its own variable"
    assert any(own in link for link in links(side.app.pid)), "the host has files of its own open"
    for process in tree:
        assert other.found_in(arguments_and_environment(process)) == []
        assert [link for link in links(process.pid) if others in link] == []
        assert others not in mapped(process.pid)
    renderer = side.app.renderer().pid
    shown = side.reply.key.encode("utf-16-le")
    # What is on its screen is found in the window, its own key where it belongs, and nothing else of either.
    looks: dict[str, Callable[[bytes], bool]] = {
        "shown": lambda piece: shown in piece,
        "key": side.key.found_in,
        "other": other.mark.found_in,
    }
    assert seen_in(renderer, looks) == {"shown"}
    assert "other" not in seen_in(side.app.pid, looks) >= {"key"}


def seen_in(pid: int, looks: dict[str, Callable[[bytes], bool]]) -> set[str]:
    """Which of `looks` find something in the memory of a process."""
    seen: set[str] = set()
    for piece in memory(pid):
        seen |= {name for name, found in looks.items() if name not in seen and found(piece)}
    return seen


def _frames(records: Path, side: Side, other: Side) -> None:
    """All that the host and the window wrote, to whatever."""
    of_host, of_window = writes(records / side.name), writes(records / f"{side.name}-window")
    assert any(side.reply.found_in(what) for to, what in of_host if "UNIX" in to), "the frames to the window were seen"
    assert any(side.draft.found_in(what) for to, what in of_window if "UNIX" in to), "and those from it"
    assert any(".sqlite3" in to for to, _ in of_host), "and what went to the files"
    everything = [*of_host, *of_window]
    assert [to for to, what in everything if other.found_in(what)] == []
    assert [to for to, _ in everything if f"/profiles/{other.name}/" in to] == []


def _files(home: Path, side: Side, other: Side) -> None:
    root = side.place.profile.root
    for name in ("message", "reply", "draft"):
        holding = files_with(side.canaries[name], home)
        assert holding, f"its own {name} is found"
        assert [path for path in holding if not path.is_relative_to(root)] == []
    assert files_with(side.key, home) == []
    planted = other.place.profile.root / "planted"
    planted.write_text(side.message.key, "utf-8")
    assert planted in files_with(side.message, home)
    planted.unlink()
