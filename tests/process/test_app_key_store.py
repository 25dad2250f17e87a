"""The app with a key store in every state: it opens, says what is so, and loses nothing."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.loopback.chat_server import ChatServer
from tests.process import first_answer
from tests.process.app_driver import Home, app, asked, chat_server, lines, until
from tests.process.key_stores import PASSPHRASE, PROMPTER, Bus, session_bus
from tests.process.xvfb import Display, xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "xdotool", "gnome-keyring", "dbus-daemon")]

KEY = "sk-canary-of-the-key-store-0123456789"


@pytest.fixture
def display() -> Iterator[Display]:
    with xvfb() as server:
        yield server


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(key=KEY) as running:
        yield running


def keep_a_key(place: Home, server: ChatServer, bus: Bus) -> None:
    """What a person did before: a connector, its key in the key store, a message that was answered."""
    place.variables["DBUS_SESSION_BUS_ADDRESS"] = bus.address
    words = ("connectors", "add", "mine", "--base-url", server.base_url, "--key-stdin")
    assert place.run(*words, stdin=KEY).returncode == 0
    assert place.run("run", "Before").returncode == 0
    assert asked(server) == ["Before"]


@contextmanager
def key_store_in(state: str, place: Home, server: ChatServer, home: Path) -> Iterator[Bus]:
    """The same profile, and then a key store in that state."""
    with ExitStack() as stack:
        bus = stack.enter_context(session_bus(home))
        with bus.key_store():
            keep_a_key(place, server, bus)
            if state == "locked":
                bus.lock()
                yield bus
                return
        if state == "no bus":
            place.variables["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nonexistent/bus"
        elif state == "forbidden":
            elsewhere = home / "other"
            elsewhere.mkdir(mode=0o700)
            forbidding = stack.enter_context(session_bus(elsewhere, forbidden=True))
            stack.enter_context(forbidding.silent_key_store())
            place.variables["DBUS_SESSION_BUS_ADDRESS"] = forbidding.address
        yield bus


def failed_session(place: Home) -> dict[str, str]:
    """The conversation whose last message could not be sent, once it says so."""

    def failed() -> str:
        return next((name for name, state in place.sessions().items() if state == "failed"), "")

    name = until(failed, "it says that it could not be sent")
    [row] = lines(place.run("status", name, "--json").stdout)
    return row


@pytest.mark.parametrize(
    ("state", "code", "word", "way"),
    [
        ("no bus", "KEYRING_ABSENT", "no key store", "--key-env"),
        ("absent", "KEYRING_ABSENT", "no key store", "--key-env"),
        ("locked", "KEYRING_LOCKED", "locked", "Unlock it"),
        ("forbidden", "KEYRING_DENIED", "did not let Remuda in", "allow it"),
    ],
)
def test_it_opens_says_so_and_loses_nothing(
    home: Path, display: Display, server: ChatServer, state: str, code: str, word: str, way: str
) -> None:
    place = Home(home)
    with key_store_in(state, place, server, home), app(place, display) as driven:
        driven.start()
        driven.say("Are you there")
        row = failed_session(place)
        assert row["code"] == code
        assert word in row["sentence"]
        assert way in row["sentence"]
        driven.xdotool("key", "ctrl+n")
        driven.write("typed and not sent")
        [listed, _] = lines(place.run("connectors", "list", "--json").stdout)
        assert (listed["name"], listed["key"]) == ("mine", "keyring")
        assert listed["key_state"] == code.removeprefix("KEYRING_").lower()
        refused = place.run("connectors", "add", "other", "--base-url", server.base_url, "--key-stdin", stdin=KEY)
        assert (refused.returncode, word in refused.stderr) == (1, True)
        driven.kill(signal.SIGTERM)
        assert driven.wait() == 0
    assert asked(server) == ["Before"]
    truth = place.truth()
    assert len(truth.said("Before")) == len(truth.said("Are you there")) == 1
    assert len(truth.drafted("typed and not sent")) == 1
    assert not any(KEY.encode() in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_what_could_not_be_sent_goes_once_the_key_store_is_open(
    home: Path, display: Display, server: ChatServer
) -> None:
    place = Home(home)
    with key_store_in("locked", place, server, home) as bus, app(place, display) as driven:
        driven.start()
        driven.say("Are you there")
        row = failed_session(place)
        bus.unlock()
        done = place.run("run", "And now", "--session", row["session"])
        assert done.returncode == 0, done.stderr
        assert asked(server)[-1].endswith("And now")
        driven.kill(signal.SIGTERM)
        assert driven.wait() == 0


@pytest.mark.needs("imagemagick")
@pytest.mark.skipif(not os.path.exists(PROMPTER), reason="gcr-prompter is not installed")
def test_a_key_is_typed_once_though_the_question_to_unlock_is_declined(
    home: Path, display: Display, tmp_path: Path
) -> None:
    way = first_answer.WAYS["OpenAI key"]
    with (
        first_answer.surroundings(way, home, variables=display.env, prompter=True) as (place, server, bus),
        app(place, display) as driven,
    ):
        bus.lock()
        assert server is not None
        journey = first_answer.Journey(driven, tmp_path / "pictures")
        driven.start()
        driven.focus()
        journey.click(first_answer.STEPS.to_openai)
        journey.choose_a_picture()
        journey.dialog("Add a connector")
        journey.type(first_answer.KEY)
        journey.click()
        journey.dialog("Unlock")
        driven.xdotool("key", "Escape")
        journey.dialog("This did not work")
        assert place.order("connectors")[0]["row"]["name"] == "builtin"
        # Try again: the key is held meanwhile.
        journey.click()
        journey.dialog("Unlock")
        driven.xdotool("type", "--delay", "20", PASSPHRASE)
        driven.xdotool("key", "Return")
        first_answer.connected(journey)
        journey.ask()
        assert list(bus.kept().values()) == [first_answer.KEY]
        # While it asks, the app can be ended.
        bus.lock()
        assert place.run("run", "Again", "--detach").returncode == 0
        journey.dialog("Unlock")
        driven.kill(signal.SIGTERM)
        assert driven.wait(10.0) == 0
    assert place.truth().said(first_answer.QUESTION)
    assert place.truth().said("Again")


def test_a_key_store_that_never_answers_leaves_a_window_that_works(
    home: Path, display: Display, server: ChatServer
) -> None:
    place = Home(home)
    with key_store_in("absent", place, server, home) as bus, bus.silent_key_store(), app(place, display) as driven:
        driven.start()
        driven.say("Are you there")
        until(lambda: place.status().get("running"), "it waits for the key")
        [name] = place.status()["running"]
        [listed, _] = lines(place.run("connectors", "list", "--json").stdout)
        assert listed["key_state"] == "slow"
        shown = "The key store is slow to answer".encode("utf-16-le")
        if os.geteuid() == 0:
            from tests.process.canaries import in_memory

            until(lambda: in_memory(driven.renderer().pid, lambda piece: shown in piece), "the window says so")
        # What waits for it can be stopped, and what needs no key goes on.
        assert place.run("stop", name).returncode == 0
        assert place.sessions()[name] == "stopped"
        driven.xdotool("key", "ctrl+n")
        driven.write("typed and not sent")
        driven.kill(signal.SIGTERM)
        assert driven.wait() == 0
    assert asked(server) == ["Before"]
    truth = place.truth()
    assert len(truth.said("Are you there")) == 1
    assert len(truth.drafted("typed and not sent")) == 1
