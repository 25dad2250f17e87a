"""MCP servers of the official SDK used from `remuda run`: a program under the guard, and a server at an address.

Hosts, guards and servers are real. What the person agrees to in the trusted dialog is agreed to here on the files, with
no host running, by what the dialog would call.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from desktop.process import look, processes
from desktop.profile_store import open_profile_store
from runtime_host.loop.credentials import MountCredentials
from runtime_host.loop.kept import Ground
from runtime_host.loop.mounts import MountBook
from runtime_host.loop.plugins.mcp import McpPlugin
from runtime_host.plain_programs import PlainPrograms
from runtime_host.storage.base import AgentStore
from runtime_host.storage.rows import OperationRow
from runtime_host.storage.sqlite import open_agent_store
from tests.loopback import mcp_servers
from tests.loopback.mcp_servers import Noted, over_http
from tests.loopback.obedient_model import ObedientModel
from tests.loopback.public import PublicNet
from tests.process.app_driver import Home, lines, served

pytestmark = [pytest.mark.process, pytest.mark.needs("linux")]

SERVER = str(Path(mcp_servers.__file__))


class Place:
    """A home with a model, and what its MCP servers did."""

    def __init__(self, folder: Path, model: ObedientModel) -> None:
        self.home = Home(folder)
        self.model = model
        self.home.connect(model)
        self.folder = folder / "server"
        self.folder.mkdir()

    @property
    def did(self) -> list[str]:
        file = self.folder / "did"
        return file.read_text("utf-8").splitlines() if file.exists() else []

    def mount(self, *settings: str) -> dict[str, Any]:
        words = [word for setting in settings for word in ("--set", setting)]
        done = self.home.run("mounts", "add", "mcp", "--as", "far", *words, "--read=allow", "--write=allow", "--json")
        assert done.returncode == 0, done
        row: dict[str, Any] = lines(done.stdout)[0]
        return row

    def run(self, *calls: tuple[str, dict[str, Any]]) -> list[str]:
        """What the model was told of each call it made in a new conversation."""
        self.model.opening = list(calls)
        done = self.home.run("run", "Do it.", "--json")
        assert done.returncode == 0, done
        assert lines(done.stdout)[-1]["status"] == "completed"
        said = self.model.requests[-1].json()["messages"]
        return [str(message["content"]) for message in said if message["role"] == "tool"]

    def agree(self) -> list[tuple[str, str]]:
        """As the person does in the dialog: to the program and to the tools; (label, text) of what was shown."""
        return asyncio.run(self._agree())

    async def _agree(self) -> list[tuple[str, str]]:
        store = await self.open()
        plugin = McpPlugin(PlainPrograms(), PublicNet({}, {}).hosts(), lambda mount: str(self.folder / "home"))

        async def opened() -> AgentStore:
            return store

        credentials = MountCredentials(opened, tenant="t", agent_id="assistant")
        book = MountBook(Ground("assistant", opened, {plugin.id: plugin}, credentials))
        try:
            consent = await book.consent("far")
            if consent is not None:
                await book.agree("far", consent.digest)
            told = await book.refresh("far")
            await book.accept_tools("far", told.digest)
            return list(consent.shown) if consent is not None else []
        finally:
            await plugin.aclose()
            await store.close()

    async def open(self) -> AgentStore:
        profile = await open_profile_store(self.home.profile.store, profile=self.home.profile.name)
        try:
            uuid = await profile.read(lambda tx: tx.setting("profile_uuid"))
        finally:
            await profile.close()
        return await open_agent_store(self.home.profile.agent_store("assistant"), profile=uuid, agent="assistant")

    def operations(self) -> list[tuple[str, str]]:
        """(tool, status) of every attempt."""

        async def read() -> list[tuple[str, str]]:
            store = await self.open()
            try:
                rows = await store.read(lambda tx: tx.rows(OperationRow))
            finally:
                await store.close()
            return [(row.tool, row.status) for row in sorted(rows, key=lambda row: row.created_ms)]

        return asyncio.run(read())

    def left(self) -> list[str]:
        """Processes that were started for this home."""
        mine = str(self.home.folder).encode()
        found = []
        for process in processes():
            try:
                words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
                environment = Path(f"/proc/{process.pid}/environ").read_bytes()
            except OSError:
                continue
            if process.pid != os.getpid() and not process.is_zombie and mine in words + environment:
                found.append(words.decode("utf-8", "replace"))
        return found


@contextmanager
def a_place(folder: Path, *servers: Any) -> Iterator[Place]:
    model = ObedientModel()
    with served(model, *servers):
        yield Place(folder, model)


def test_a_program_is_used_killed_begun_anew_and_leaves_nothing(home: Path) -> None:
    with a_place(home) as place:
        command = json.dumps([sys.executable, SERVER, "good", str(place.folder)])
        row = place.mount("transport=stdio", f"command={command}")
        assert row["alias"] == "far"
        # Nobody agreed: it is neither offered nor started.
        assert "did" not in os.listdir(place.folder)
        shown = dict(place.agree())
        assert shown["Command"].splitlines() == [json.dumps(word) for word in json.loads(command)]
        told = place.run(
            ("far__add", {"left": 2, "right": 3}),
            ("far__note", {"text": "hi"}),
            ("far__leave", {}),
            ("far__environment", {"name": "LOOPBACK_SECRET"}),
        )
        assert '"5"' in told[0]
        assert "noted hi" in told[1]
        assert "not known" in told[2]
        assert "(unset)" in told[3], "begun anew, and with nothing of the host's environment"
        *did, left = place.did
        assert did == ["add 2 3", "note hi"]
        assert look(int(left.removeprefix("left "))) is None, "what it had left behind in a session of its own"
        assert place.operations() == [
            ("add", "succeeded"),
            ("note", "succeeded"),
            ("leave", "unknown"),
            ("environment", "succeeded"),
        ]
        assert place.left() == []


def test_a_server_at_an_address_is_used(home: Path) -> None:
    did = Noted()
    address: list[str] = []

    class Serving:
        """The server in the thread of the model."""

        async def __aenter__(self) -> None:
            self._server = over_http(mcp_servers.good, did)
            address.append(await self._server.__aenter__())

        async def __aexit__(self, *raised: Any) -> None:
            await self._server.__aexit__(None, None, None)

    with a_place(home, Serving()) as place:
        place.mount("transport=http", f"address={address[0]}", "loopback=true")
        assert place.agree() == []
        told = place.run(("far__add", {"left": 2, "right": 3}), ("far__note", {"text": "hi"}))
        assert '"5"' in told[0]
        assert "noted hi" in told[1]
        assert did.lines == ["add 2 3", "note hi"]
        assert place.operations() == [("add", "succeeded"), ("note", "succeeded")]
