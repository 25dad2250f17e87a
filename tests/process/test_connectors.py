"""Connectors from the command line, with a real server and a real key store: added, tried, changed, removed."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loopback.chat_server import DEFAULT_REPLY, ChatServer
from tests.process.app_driver import Home, app, asked, chat_server, lines, until
from tests.process.key_stores import Bus, session_bus
from tests.process.xvfb import xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "gnome-keyring", "dbus-daemon")]

VARIABLE = "KEY_OF_THE_TESTS"
OLD, NEW = "sk-canary-old-0123456789abcdef", "sk-canary-new-fedcba9876543210"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(key=OLD) as running:
        yield running


@pytest.fixture
def bus(home: Path) -> Iterator[Bus]:
    with session_bus(home) as running, running.key_store():
        yield running


@pytest.fixture
def place(home: Path, bus: Bus) -> Home:
    return Home(home, {"DBUS_SESSION_BUS_ADDRESS": bus.address})


def ok(said: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    assert said.returncode == 0, (said.stdout, said.stderr)
    for key in (OLD, NEW):
        assert key not in said.stdout + said.stderr
    return lines(said.stdout)


def refused(said: "subprocess.CompletedProcess[str]", code: str, exit_code: int = 1) -> str:
    *_, line = lines(said.stdout)
    assert (said.returncode, line["code"]) == (exit_code, code), (said.stdout, said.stderr)
    for key in (OLD, NEW):
        assert key not in said.stdout + said.stderr
    return str(line["message"])


def add(place: Home, server: ChatServer, key: str = OLD) -> None:
    ok(place.run("connectors", "add", "mine", "--base-url", server.base_url, "--key-stdin", "--json", stdin=key))


def listed(place: Home, name: str = "mine") -> dict[str, Any]:
    return next(row for row in ok(place.run("connectors", "list", "--json")) if row["name"] == name)


def keys(bus: Bus) -> list[str]:
    return list(bus.kept().values())


def test_a_name_has_letters_of_any_script_and_its_key_is_found_by_it(place: Home, server: ChatServer, bus: Bus) -> None:
    typed, kept = "Cafe\u0301 家", "Caf\u00e9 家"
    base = ("--base-url", server.base_url, "--key-stdin", "--json")
    [added] = ok(place.run("connectors", "add", typed, *base, stdin=OLD))
    assert added["name"] == kept
    assert ok(place.run("connectors", "test", kept, "--json"))[-1]["status"] == "ok"
    refused(place.run("connectors", "add", "CAFÉ 家", *base, stdin=OLD), "CONNECTOR_EXISTS", 2)
    refused(place.run("connectors", "add", "Caf\u200bé", *base, stdin=OLD), "CONNECTOR_NAME_INVALID", 2)
    ok(place.run("connectors", "remove", kept, "--yes", "--json"))
    assert keys(bus) == []


def sent_keys(server: ChatServer) -> list[str]:
    """The key of each request for a reply."""
    return [
        request.headers["authorization"].removeprefix("Bearer ")
        for request in server.requests
        if request.method == "POST"
    ]


def test_a_key_is_changed_while_a_reply_is_being_written(place: Home, server: ChatServer, bus: Bus) -> None:
    add(place, server)
    assert keys(bus) == [OLD]
    server.behaviour, server.tokens, server.tokens_per_s = "slow", 60, 5.0
    with place.running("run", "Write at length", "--json") as holding:
        until(lambda: asked(server), "the reply is being written")
        server.key = NEW
        [rotated] = ok(place.run("connectors", "rotate", "mine", "--key-stdin", "--json", stdin=NEW + "\n"))
        assert rotated == {"name": "mine", "rotated": True}
        assert keys(bus) == [NEW]
        server.tokens_per_s = 100_000.0
        assert holding.stdout is not None
        *_, result = (json.loads(line) for line in holding.stdout)
        assert (result["status"], holding.wait()) == ("completed", 0)
    # The server says both keys back; the host that knew the old one knows the new one, and still the old.
    server.behaviour, server.tokens, server.reply = "ok", None, f"Old: {OLD}, new: {NEW}."
    with xvfb() as display, app(place, display) as driven:
        driven.start()
        server.key = OLD
        place.run("connectors", "rotate", "mine", "--key-stdin", stdin=OLD)
        assert place.run("run", "One").returncode == 0
        server.key = NEW
        ok(place.run("connectors", "rotate", "mine", "--key-stdin", "--json", stdin=NEW))
        said = place.run("run", "Two")
        assert said.returncode == 0
        assert "Old: [redacted], new: [redacted]." in said.stdout
    assert sent_keys(server) == [OLD, OLD, NEW]
    assert OLD not in place.log() + said.stdout
    assert NEW not in place.log() + said.stdout


def test_a_key_that_is_refused_takes_no_place(place: Home, server: ChatServer, bus: Bus) -> None:
    add(place, server)
    said = place.run("connectors", "rotate", "mine", "--key-stdin", "--json", stdin=NEW)
    refused(said, "PROVIDER_KEY_REFUSED")
    assert keys(bus) == [OLD]
    assert place.run("run", "Hi").stdout == DEFAULT_REPLY + "\n"
    ok(place.run("connectors", "rotate", "mine", "--key-stdin", "--unchecked", "--json", stdin=NEW))
    assert keys(bus) == [NEW]
    # The same for a connector that is new: refused it leaves nothing, wanted all the same it stays.
    other = ("connectors", "add", "other", "--base-url", server.base_url, "--key-stdin", "--json")
    refused(place.run(*other, stdin=NEW), "PROVIDER_KEY_REFUSED")
    assert keys(bus) == [NEW]
    ok(place.run(*other, "--unchecked", stdin=NEW))
    assert len(keys(bus)) == 2


@pytest.mark.parametrize("key", ["", "\n", "two words", "sk-ünicode", '"sk-quoted-0123456789"'])
def test_what_is_no_key_is_said_before_anything_is_kept(place: Home, server: ChatServer, bus: Bus, key: str) -> None:
    add(place, server)
    said = place.run("connectors", "rotate", "mine", "--key-stdin", "--json", stdin=key)
    assert said.returncode == 2
    assert lines(said.stdout)[-1]["message"]
    assert keys(bus) == [OLD]


def test_a_key_moves_to_a_variable_and_back(place: Home, server: ChatServer, bus: Bus) -> None:
    add(place, server)
    refused(place.run("connectors", "rotate", "mine", "--key-env", VARIABLE, "--json"), "CONNECTOR_KEY_ENV_MISSING")
    assert keys(bus) == [OLD]
    place.variables[VARIABLE] = OLD
    ok(place.run("connectors", "rotate", "mine", "--key-env", VARIABLE, "--json"))
    assert keys(bus) == []
    assert (listed(place)["key"], listed(place)["key_state"]) == (f"env {VARIABLE}", "set")
    assert place.run("run", "Hi").returncode == 0
    del place.variables[VARIABLE]
    assert listed(place)["key_state"] == "not set"
    said = place.run("run", "Hi", "--json")
    assert VARIABLE in lines(said.stdout)[-1]["error"]["message"]
    ok(place.run("connectors", "rotate", "mine", "--key-stdin", "--json", stdin=OLD))
    assert keys(bus) == [OLD]
    assert place.run("run", "Hi").returncode == 0
    assert place.run("connectors", "rotate", "mine").returncode == 2
    refused(place.run("connectors", "rotate", "none", "--key-env", VARIABLE, "--json"), "CONNECTOR_UNKNOWN", 2)
    refused(place.run("connectors", "rotate", "builtin", "--key-env", VARIABLE, "--json"), "CONNECTOR_CONFIGURATION", 2)


def test_a_locked_key_store_changes_nothing_and_loses_nothing(place: Home, server: ChatServer, bus: Bus) -> None:
    add(place, server)
    assert place.run("run", "Hello").returncode == 0
    bus.lock()
    said = place.run("connectors", "list", "--json")
    assert ok(said)[0]["key_state"] == "locked"
    assert "locked" in said.stderr
    assert server.key == OLD
    for words in (
        ("rotate", "mine", "--key-stdin"),
        ("add", "other", "--base-url", server.base_url, "--key-stdin"),
        ("remove", "mine", "--yes"),
    ):
        assert "--key-env" in refused(place.run("connectors", *words, "--json", stdin=NEW), "KEYRING_LOCKED")
    failed = place.run("run", "And now?", "--json")
    result = lines(failed.stdout)[-1]
    assert (result["error"]["code"], failed.returncode) == ("KEYRING_LOCKED", 1)
    assert "Unlock it" in result["error"]["message"]
    [row] = lines(place.run("connectors", "test", "mine", "--json").stdout)
    assert (row["status"], row["code"]) == ("key-store", "KEYRING_LOCKED")
    bus.unlock()
    assert keys(bus) == [OLD]
    # What was written is there, and goes on once the key can be read.
    [exported] = lines(place.run("export", result["session"], "--format", "json").stdout.replace("\n", ""))
    assert [item["text"] for item in exported["items"] if item["kind"] == "user"] == ["And now?"]
    assert place.run("run", "Again", "--session", result["session"]).returncode == 0
    assert [text.split()[-1] for text in asked(server)] == ["Hello", "Again"]


def test_what_uses_a_connector_is_shown_before_it_goes_and_stays_readable(
    place: Home, server: ChatServer, bus: Bus
) -> None:
    add(place, server)
    unused = place.run("connectors", "remove", "mine", "--json")
    assert "Nothing was removed" in refused(unused, "NOT_CONFIRMED", 2)
    assert "with its key" in unused.stderr
    *_, result = lines(place.run("run", "Remember the milk", "--json").stdout)
    assert listed(place)["used_by"] == {"conversations": ["Remember the milk"], "agents": []}
    said = place.run("connectors", "remove", "mine", "--json")
    assert "Nothing was removed" in refused(said, "NOT_CONFIRMED", 2)
    assert "Remember the milk" in said.stderr
    assert keys(bus) == [OLD]
    assert ok(place.run("connectors", "remove", "mine", "--yes", "--json")) == [{"name": "mine", "removed": True}]
    assert keys(bus) == []
    assert DEFAULT_REPLY in place.run("export", result["session"]).stdout
    gone = refused(place.run("run", "More", "--session", result["session"], "--json"), "CHOICE_GONE")
    assert "mine" in gone
    assert server.model in gone
    assert "add its connector again" in gone
    add(place, server)
    assert place.run("run", "More", "--session", result["session"]).returncode == 0


def test_a_connector_is_removed_without_a_key_store_or_its_key(place: Home, server: ChatServer, bus: Bus) -> None:
    add(place, server)
    bus.lock()
    assert "--leave-key" in refused(place.run("connectors", "remove", "mine", "--yes", "--json"), "KEYRING_LOCKED")
    [left] = ok(place.run("connectors", "remove", "mine", "--yes", "--leave-key", "--json"))
    assert "left in the key store" in left["note"]
    bus.unlock()
    assert keys(bus) == [OLD]
    add(place, server)
    nowhere = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent/bus"}
    [removed] = ok(place.run("connectors", "remove", "mine", "--yes", "--json", variables=nowhere))
    assert removed["removed"]
    assert "left in the key store" in removed["note"]


def test_models_are_listed_searched_and_one_is_the_default(place: Home, server: ChatServer) -> None:
    server.behaviour = "by-model"
    add(place, server)
    every = ok(place.run("connectors", "models", "mine", "--json"))
    names = [row["model"] for row in every]
    assert len(names) > 3
    assert [row["model"] for row in every if row["default"]] == names[:1]
    assert all(row["origin"] in ("provider", "bundled", "declared", "assumed") for row in every)
    some = ok(place.run("connectors", "models", "mine", "--filter", "SLOW", "--json"))
    assert [row["model"] for row in some] == [name for name in names if "slow" in name.lower()]
    assert ok(place.run("connectors", "default", "mine", "ok", "--json")) == [{"name": "mine", "default_model": "ok"}]
    assert [row["model"] for row in ok(place.run("connectors", "models", "mine", "--json")) if row["default"]] == ["ok"]
    assert place.run("run", "Hi").stdout == DEFAULT_REPLY + "\n"
    assert server.requests[-1].json()["model"] == "ok"
    refused(place.run("connectors", "default", "mine", "no-such-model", "--json"), "MODEL_UNKNOWN", 2)
    server.behaviour = "ok"
    [one] = ok(place.run("connectors", "models", "mine", "--refresh", "--json"))
    assert (one["model"], one["default"], listed(place)["default_model"]) == (server.model, True, "")


def test_a_test_tells_what_is_wrong(place: Home, server: ChatServer) -> None:
    add(place, server)
    [good] = ok(place.run("connectors", "test", "mine", "--json"))
    assert (good["status"], good["name"], good["models_seen"]) == ("ok", "mine", 1)
    assert ok(place.run("connectors", "test", "mine", "--model", server.model, "--json"))[0]["status"] == "ok"
    server.key = NEW
    said = place.run("connectors", "test", "mine", "--json")
    assert (said.returncode, lines(said.stdout)[0]["status"]) == (1, "wrong-key")
    assert OLD not in said.stdout
    elsewhere = ("--base-url", "http://127.0.0.1:1/v1", "--unchecked")
    ok(place.run("connectors", "add", "nobody", *elsewhere, "--json"))
    said = place.run("connectors", "test", "nobody", "--json")
    assert (said.returncode, lines(said.stdout)[0]["status"]) == (1, "unreachable")
    refused(place.run("connectors", "test", "nothing", "--json"), "CONNECTOR_UNKNOWN", 2)


@pytest.mark.parametrize(
    ("vendor", "base_url"), [("openai", "https://api.openai.com/v1"), ("anthropic", "https://api.anthropic.com")]
)
def test_a_vendor_brings_its_address(place: Home, vendor: str, base_url: str) -> None:
    words = ("connectors", "add", vendor, "--vendor", vendor, "--model", "a-model", "--key-env", VARIABLE, "--json")
    [added] = ok(place.run(*words))
    assert added == {"name": vendor, "base_url": base_url, "models": ["a-model"]}
    assert listed(place, vendor)["vendor"] == vendor
    no_vendor = place.run("connectors", "add", "x", "--vendor", "nobody", "--model", "m", "--json")
    refused(no_vendor, "CONNECTOR_CONFIGURATION", 2)


def test_who_waits_for_a_key_store_is_told_and_can_stop(home: Path, server: ChatServer) -> None:
    with session_bus(home) as bus:
        place = Home(home, {"DBUS_SESSION_BUS_ADDRESS": bus.address})
        with bus.key_store():
            add(place, server)
        with bus.silent_key_store():
            for words in (("run", "Hi"), ("connectors", "remove", "mine", "--yes")):
                with place.running(*words) as waiting:
                    assert waiting.stderr is not None
                    assert "slow to answer" in waiting.stderr.readline()
                    waiting.send_signal(signal.SIGINT)
                    assert waiting.wait(20) == 3
            assert listed(place)["key_state"] == "slow"
        with bus.key_store():
            assert keys(bus) == [OLD]
            assert place.run("run", "Hi").returncode == 0
