"""What an agent of this program is begun with: nothing that acts without a question, and nothing in a plain chat."""

import pytest

from desktop.app import Host
from tests.loopback.chat_server import ChatServer
from tests.puppet import until
from tests.unit.desktop.seat import Seat, new_send
from ui.wire import dto

pytestmark = pytest.mark.process


async def test_a_new_agent_asks_before_it_writes_and_its_way_out_is_switched_off(
    seat: Seat, host: Host, server: ChatServer
) -> None:
    gateway = await host.gateway(host.agents.current.agent_id)
    await gateway.open()
    rows = {row.alias: row for row in await gateway.mounts.all()}
    assert {alias: (row.plugin, dict(row.policy), row.closed) for alias, row in rows.items()} == {
        "files": ("workspace", {"read": "allow", "write": "approval"}, False),
        "artifacts": ("artifacts", {"read": "allow"}, False),
        "web": ("http", {"read": "approval", "write": "approval"}, True),
    }
    assert [row.secret_ref for row in rows.values()] == [None] * 3
    report = await gateway.mounts.report()
    verdicts = {(told.row.alias, line.effect): line.verdict for told in report.mounts for line in told.tools}
    assert verdicts[("files", "write")] == verdicts[("web", "write")] == verdicts[("web", "read")] == "approval"
    await seat.puppet.lock()
    await seat.puppet.wait_for(dto.Selected)
    assert (await seat.puppet.ask(new_send(seat.puppet, "hello"))).status == "done"
    await until(lambda: len(server.requests) == 1)
    assert "tools" not in server.requests[0].json()
