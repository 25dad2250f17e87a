"""A pasted secret is caught whichever way it goes while something goes on: said to the run, queued or edited in."""

from pathlib import Path
from typing import Literal

import pytest

from desktop.app import Host
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.loopback.chat_server import ChatServer
from tests.puppet import Puppet, until
from tests.unit.desktop.ledgers import WRITES, deciding, mount_ledger, with_ledger
from tests.unit.desktop.seat import Seat, new_send
from ui.wire import dto

pytestmark = pytest.mark.process

SECRET = "sk-proj-" + "a1B2c3D4" * 6


@pytest.fixture(autouse=True)
def ledger(monkeypatch: pytest.MonkeyPatch) -> LedgerPlugin:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    return with_ledger(monkeypatch)


async def said(puppet: Puppet, text: str, when: Literal["now", "queue"], *, anyway: bool = False) -> dto.Outcome:
    return await puppet.ask(
        dto.Send(
            request=puppet.request(), revision=puppet.binding.revision, request_id=f"r-{len(puppet.told)}",
            text=text, when=when, anyway=anyway,
        )
    )  # fmt: skip


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and "sqlite" in path.name)


async def test_it_is_refused_by_kind_and_written_nowhere_until_it_is_to_go_anyway(
    seat: Seat, host: Host, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.behaviour = WRITES
    await mount_ledger(host)
    deciding(host, monkeypatch)
    puppet = seat.puppet
    await puppet.lock()
    await puppet.wait_for(dto.Selected)
    assert (await puppet.ask(new_send(puppet, "write it down"))).status == "done"
    await puppet.wait_for(dto.RunChanged, lambda m: m.run is not None and m.run.state == "waiting")
    assert (await said(puppet, "later on", "queue")).status == "done"
    await puppet.wait_for(dto.Queued, lambda m: len(m.rows) == 1)
    queued = next(m for m in reversed(puppet.told) if isinstance(m, dto.Queued)).rows[0].id
    edited = dto.EditQueued(
        request=puppet.request(), revision=puppet.binding.revision, queued=queued, text=f"use {SECRET}"
    )
    refused = [
        await said(puppet, f"use {SECRET}", "now"),
        await said(puppet, f"use {SECRET}", "queue"),
        await puppet.ask(edited),
    ]
    assert [each.code for each in refused] == ["SECRET_FOUND"] * 3
    assert SECRET not in str(refused)
    assert SECRET.encode() not in on_disk(host.paths.root)
    assert (await said(puppet, f"use {SECRET}", "queue", anyway=True)).status == "done"
    await until(lambda: SECRET.encode() in on_disk(host.paths.root))
