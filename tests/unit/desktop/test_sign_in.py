"""Signing in at another side: what is shown, and what is opened."""

from pathlib import Path
from typing import Any

import pytest

from desktop import browser
from desktop.dialogs import Approval, ApprovalAnswer
from desktop.process import wait_for_exit
from desktop.questions import sign_in
from runtime_host.loop.plugins.base import PluginError

ADDRESS = "https://accounts.example.com/authorize?client_id=a&state=b%20c&redirect_uri=http%3A%2F%2F127.0.0.1"


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a program that opens addresses says what it was given."""
    said = tmp_path / "said"
    program = tmp_path / "bin/xdg-open"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$#" "$@" > {said}\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent) + ":/usr/bin:/bin")
    monkeypatch.setattr("sys.platform", "linux")
    return said


class Host:
    """A person who answers."""

    def __init__(self, *, agrees: bool | None) -> None:
        self.agrees = agrees
        self.asked: list[Approval] = []

    async def trusted(self) -> Any:
        return self

    async def ask_approval(self, asked: Approval) -> ApprovalAnswer | None:
        self.asked.append(asked)
        return None if self.agrees is None else ApprovalAnswer(self.agrees)


def told(said: Path) -> list[str]:
    """What was opened: how many words, and the words."""
    return said.read_text("utf-8").splitlines() if said.exists() else []


async def test_the_whole_address_is_shown_and_then_opened(opened: Path) -> None:
    host: Any = Host(agrees=True)
    assert await sign_in.show(host, "notes", ADDRESS)
    assert ("Whole address", "text", ADDRESS) in host.asked[0].parts
    assert ("Page of", "text", "accounts.example.com") in host.asked[0].parts
    assert told(opened) == ["1", ADDRESS]


@pytest.mark.parametrize("answer", [False, None])
async def test_nothing_is_opened_without_a_yes(opened: Path, answer: bool | None) -> None:
    host: Any = Host(agrees=answer)
    assert not await sign_in.show(host, "notes", ADDRESS)
    assert told(opened) == []


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "javascript:alert(1)", "--help", "https://", "https://a/ b", "https://a/\n", "mailto:a@b.c"],
)
async def test_only_a_web_page_is_opened(opened: Path, address: str) -> None:
    with pytest.raises(browser.BrowserError):
        await browser.open_address(address)
    assert told(opened) == []


async def test_a_system_without_a_browser_says_so(opened: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (opened.parent / "bin/xdg-open").write_text("#!/bin/sh\nexit 3\n", "utf-8")
    host: Any = Host(agrees=True)
    with pytest.raises(PluginError, match="could not be opened"):
        await sign_in.show(host, "notes", ADDRESS)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PluginError, match="nothing here that opens a browser"):
        await sign_in.show(host, "notes", ADDRESS)


async def test_what_becomes_the_browser_itself_is_not_waited_for(opened: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "_SOON_S", 0.1)
    (opened.parent / "bin/xdg-open").write_text("#!/bin/sh\nexec sleep 0.4\n", "utf-8")
    await browser.open_address(ADDRESS)
    (going,) = browser._going
    await wait_for_exit(going)
    browser._going.clear()
