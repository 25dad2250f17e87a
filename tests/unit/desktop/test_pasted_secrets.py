"""Something that looks like a secret is in no draft on the disk, and is not sent from the command line by mistake."""

import asyncio
from typing import Any

import pytest

from desktop.app import Host
from desktop.exit_codes import COMPLETED, USAGE
from desktop.orders.operations import Operations
from runtime_host.loop.mounts import register_plugin
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.loopback.chat_server import ChatServer

pytestmark = pytest.mark.process

KEY = "sk-proj-" + "a1B2c3D4" * 6


def on_disk(host: Host) -> bytes:
    return b"".join(path.read_bytes() for path in host.paths.root.rglob("*sqlite3*") if path.is_file())


async def test_a_draft_with_a_secret_is_kept_in_memory_alone(host: Host) -> None:
    said = host.conversations
    await said.keep_draft(None, "my key is sk-proj-a1B2")
    await said.keep_draft(None, f"my key is {KEY}")
    assert await said.draft(None) == f"my key is {KEY}"
    assert await host.profile.read(lambda tx: tx.draft("")) in ("", None), "its beginning is still there"
    assert KEY.encode() not in on_disk(host)
    await said.keep_draft(None, "without it")
    assert await said.draft(None) == await host.profile.read(lambda tx: tx.draft("")) == "without it"
    await said.keep_draft(None, KEY)
    await said.keep_draft(None, "")
    assert await said.draft(None) == ""


async def test_a_command_is_refused_by_kind_until_it_is_to_go_anyway(host: Host, server: ChatServer) -> None:
    operations = Operations(host)
    told: list[dict[str, Any]] = []

    async def send(line: dict[str, Any]) -> None:
        told.append(line)

    assert await operations.perform("run", {"prompt": f"use {KEY}"}, send, asyncio.Event()) == USAGE
    error = told[-1]["error"]
    assert (error["code"], "an API key" in error["message"], KEY in str(told)) == ("SECRET_FOUND", True, False)
    assert "--anyway" in error["message"]
    assert (server.requests, await host.conversations.names()) == ([], [])
    assert KEY.encode() not in on_disk(host)
    again = {"prompt": f"use {KEY}", "anyway": True}
    assert await operations.perform("run", again, send, asyncio.Event()) == COMPLETED
    assert KEY in str(server.requests)


async def test_what_a_plugin_says_its_credentials_look_like_is_refused_too(host: Host, server: ChatServer) -> None:
    register_plugin(LedgerPlugin())
    key = "ledg_" + "aB3d" * 8
    told: list[dict[str, Any]] = []

    async def send(line: dict[str, Any]) -> None:
        told.append(line)

    assert await Operations(host).perform("run", {"prompt": f"use {key}"}, send, asyncio.Event()) == USAGE
    error = told[-1]["error"]
    assert (error["code"], "a ledger key" in error["message"], key in str(told)) == ("SECRET_FOUND", True, False)
    assert (server.requests, await host.conversations.names()) == ([], [])
    assert key.encode() not in on_disk(host)
