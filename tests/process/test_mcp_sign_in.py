"""Signing in at an MCP server, whole: the real window, the trusted dialog, a browser, and a server that wants it.

The browser is a program under the name by which the system's is looked for; it follows where it is led. What was kept
is read from the files of the dead host.
"""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest

from desktop.profile_store import open_profile_store
from runtime_host.storage.rows import SecretRow
from runtime_host.storage.sqlite import open_agent_store
from tests.loopback.authority import Authority, Guarded
from tests.loopback.mcp_servers import Noted
from tests.loopback.obedient_model import ObedientModel
from tests.process.app_driver import App, Home, served, until
from tests.process.xvfb import xvfb

pytestmark = [pytest.mark.process, pytest.mark.needs("linux", "landlock", "xdotool")]

BROWSER = """
import pathlib, sys, urllib.error, urllib.request
folder, address = pathlib.Path(sys.argv[1]), sys.argv[2]
opened = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    said = opened.open(address, timeout=10).read().decode()
except urllib.error.HTTPError as fault:
    said = fault.read().decode()
with open(folder / "browsed", "a") as file:
    print(address, said.replace("\\n", " "), sep="\\t", file=file)
"""


class Person:
    """Who sits in front of the app."""

    def __init__(self, home: Home, app: App) -> None:
        self.home = home
        self.app = app

    @property
    def browsed(self) -> list[list[str]]:
        """(address, what the page said) of each page the browser was led to."""
        file = self.home.folder / "browsed"
        return [line.split("\t") for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    def press(self, *keys: str) -> None:
        self.app.xdotool("key", "--delay", "15", *keys)

    def at(self, title: str, *keys: str) -> None:
        """Wait for a dialog, until presses count in it, and press keys there."""
        window = self.app.xdotool("search", "--sync", "--onlyvisible", "--name", title).split()[-1]
        self.app.xdotool("windowfocus", "--sync", window)
        # Presses count half a second after a window became active.
        self.app.xdotool("sleep", "0.6", *(["key", "--delay", "15", *keys] if keys else []))

    def away(self, title: str) -> None:
        until(lambda: not self.app.xdotool("search", "--onlyvisible", "--name", title, fails=True), "it is closed")

    def back(self) -> None:
        """Go to the window, and let it show what changed."""
        self.app.xdotool("windowfocus", "--sync", self.app.window(), "sleep", "0.7")

    def type(self, text: str) -> None:
        self.app.xdotool("type", "--delay", "4", text)

    def sign_in(self, *keys: str) -> None:
        """Press the button of the mount, on which the focus stays, and keys in the dialog."""
        self.back()
        self.press("Return")
        self.at("Sign in with your browser", *keys)
        self.away("Sign in with your browser")

    def mount(self) -> dict[str, Any]:
        """The one mount there is; {} before."""
        return next((line["row"] for line in self.home.order("mounts") if "row" in line), {})

    def use(self, model: ObedientModel, words: str) -> str:
        """Have the model call the tool; what it was told of that."""
        before = len(model.requests)
        model.opening = [("crm__add", {"left": 2, "right": 3})]
        self.back()
        self.press("Escape")
        self.app.say(words)

        def told() -> str:
            said = [message for request in model.requests[before:] for message in request.json()["messages"][-1:]]
            return next((str(message["content"]) for message in said if message["role"] == "tool"), "")

        return until(told, "the model is told")


@pytest.fixture
def person(home: Path, model: ObedientModel) -> Iterator[Person]:
    made = Home(home)
    made.connect(model)
    programs = home / "bin"
    programs.mkdir()
    (home / "browser.py").write_text(BROWSER, "utf-8")
    words = [sys.executable, "-I", str(home / "browser.py"), str(home)]
    (programs / "xdg-open").write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', "utf-8")
    (programs / "xdg-open").chmod(0o755)
    asyncio.run(_picture_chosen(made))
    with xvfb() as display:
        app = App(made, display)
        try:
            app.start(PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
            yield Person(made, app)
        finally:
            app.end()


@pytest.fixture
def guarded() -> Guarded:
    return Guarded(Authority(), Noted())


@pytest.fixture
def model(guarded: Guarded) -> Iterator[ObedientModel]:
    made = ObedientModel()
    with served(made, guarded):
        yield made


async def _picture_chosen(home: Home) -> None:
    store = await open_profile_store(home.profile.store, profile=home.profile.name)
    try:
        await store.transact(lambda tx: tx.put_setting("picture_word", "blue lantern"))
    finally:
        await store.close()


async def _sealed(home: Home) -> list[SecretRow]:
    profile = await open_profile_store(home.profile.store, profile=home.profile.name)
    try:
        uuid = await profile.read(lambda tx: tx.setting("profile_uuid"))
    finally:
        await profile.close()
    store = await open_agent_store(home.profile.agent_store("assistant"), profile=uuid, agent="assistant")
    try:
        return list(await store.read(lambda tx: tx.rows(SecretRow)))
    finally:
        await store.close()


def browse(address: str, host: str = "") -> tuple[int, str]:
    """A page, wherever it leads; with another host named where one is given."""
    headers = {"host": host} if host else {}
    with httpx2.Client(trust_env=False, follow_redirects=True) as browser:
        answer = browser.get(address, headers=headers)
    return answer.status_code, answer.text


def test_a_person_signs_in_from_the_window_and_again_once_the_token_is_refused(
    person: Person, model: ObedientModel, guarded: Guarded
) -> None:
    home, authority = person.home, guarded.authority
    for alias in ("files", "artifacts", "web"):
        home.order("mount-remove", alias=alias, confirmed=True)
    person.app.focus()
    person.press("ctrl+comma", "Right", "Right", "Right", "Right", "Tab", "Return")
    person.at("Add a mount", "Down", "Right", "Tab")
    person.type("crm")
    person.press("Return")
    person.away("Add a mount")
    person.at("Add a mount")
    # The kind of server, past what is for programs, and the address; then that it is here, and wants a sign-in.
    person.press("Tab", "Down", "Tab", "Tab", "Tab", "Tab")
    person.type(guarded.address)
    person.press("Return", "space", "Tab", "space", "Tab", *["Return"] * 4)
    row = until(person.mount, "it is there")
    assert (row["alias"], row["credential"], row["tools"]) == ("crm", "none", [])
    assert authority.clients == {}, "nobody was asked before the person said so"
    person.away("Add a mount")

    # Cancelled: nothing was opened, nothing is kept.
    person.back()
    person.press("Tab", "Tab")
    person.sign_in("Return")
    until(lambda: len(authority.clients) == 1, "it was found out where to sign in")
    assert (person.browsed, authority.granted, person.mount()["credential"]) == ([], [], "none")

    # The browser is led elsewhere by the far side; what others send back is not taken; the right answer is.
    authority.sends_back = "elsewhere"
    person.sign_in("Tab", "Return")
    [address, _] = until(lambda: person.browsed, "the browser was led")[0]
    asked = parse_qs(urlsplit(address).query)
    assert urlsplit(address).netloc == urlsplit(authority.origin).netloc
    assert asked["code_challenge_method"] == ["S256"]
    assert len(guarded.caught) == 1
    [back], [state] = asked["redirect_uri"], asked["state"]
    assert browse(f"{back}?{urlencode({'code': 'theirs', 'state': state})}", "evil.example")[0] == 400
    authority.sends_back = "other-state"
    status, page = browse(address)
    assert (status, "another sign-in" in page) == (400, True)
    assert (authority.granted, person.mount()["credential"]) == ([], "none")
    authority.sends_back = "there"
    status, page = browse(address)
    assert (status, "You are signed in" in page) == (200, True)
    person.at("May these tools be offered", "End", "Tab", "Return")
    until(lambda: person.mount()["tools"], "its tools are offered")
    assert (authority.granted, person.mount()["credential"]) == (["authorization_code"], "attached")
    home.order("mount-edit", alias="crm", read="allow", write="allow")

    # It is used; a token that ran out before its time is renewed by itself; one that is refused is said to be.
    assert '"5"' in person.use(model, "Add it up")
    authority.valid.clear()
    assert '"5"' in person.use(model, "Once more")
    assert authority.granted == ["authorization_code", "refresh_token"]
    authority.revoke()
    assert "has to sign in" in person.use(model, "And again")
    assert person.mount()["credential"] == "rejected"

    # Signing in again is the first button of the mount.
    person.press("ctrl+comma")
    person.back()
    person.press("Tab", "Tab", "Tab")
    person.sign_in("Tab", "Return")
    until(lambda: person.mount()["credential"] == "attached", "it is signed in again")
    assert '"5"' in person.use(model, "Now")

    person.app.kill()
    person.app.process.wait(10)  # type: ignore[union-attr]
    assert guarded.did.lines == ["add 2 3"] * 3
    assert authority.refused == ["invalid_grant"], "one renewal of a token that was taken back, and nothing else"
    [sealed] = asyncio.run(_sealed(home))
    assert sealed.name.endswith(":oauth")
    kept = [file.read_bytes() for file in home.data.rglob("*") if file.is_file()]
    assert [secret for secret in authority.secrets if any(secret.encode() in text for text in kept)] == []
    told = json.dumps([request.json() for request in model.requests if request.method == "POST"])
    assert [secret for secret in authority.secrets if secret in told] == []
