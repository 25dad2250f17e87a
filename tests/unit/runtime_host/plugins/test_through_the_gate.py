"""The http and artifacts plugins as mounts of an agent: through its gateway, with its credentials and its shelf."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime_host.loop.artifact_store import shelves
from runtime_host.loop.mounts import MountRefusedError
from runtime_host.loop.plugins.artifacts import ArtifactsPlugin
from runtime_host.loop.plugins.http import HttpPlugin
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import ArtifactRow, MountRow
from tests.loopback.gate import Bench
from tests.loopback.public import CONTROL, Canary, PublicNet
from tests.loopback.web_server import Question, Reply, WebServer

SECRET = "s3cr3t-Value-0123456789"
PLAIN = {"Content-Type": "text/plain"}


class Agent:
    """An agent that mounts the web as `web` and reads what was put aside as `artifacts`."""

    def __init__(self, folder: Path, server: WebServer) -> None:
        self.folder = folder
        self.server = server
        self.store: AgentStore = MemoryAgentStore()
        self.net = PublicNet({"control.example": [[CONTROL]]}, {CONTROL: server.port})

        async def opened() -> AgentStore:
            return self.store

        shelf = shelves(lambda _: folder)("agent", opened)
        self.bench = Bench(HttpPlugin(self.net.hosts()), ArtifactsPlugin(), store=self.store, shelf=shelf)

    async def mount(self, *, reader: bool = True, **web: Any) -> None:
        await self.bench.mounts.add("http", "web", **web)
        if reader:
            await self.bench.mounts.add("artifacts", "artifacts")


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with WebServer({"/long": Reply(b"0123456789" * 2000, headers=PLAIN)}) as server:
        yield server


@pytest.fixture
async def agents(tmp_path: Path, server: WebServer) -> AsyncIterator[tuple[Agent, Agent]]:
    pair = (Agent(tmp_path / "a", server), Agent(tmp_path / "b", server))
    yield pair
    for agent in pair:
        await agent.bench.gateway.aclose()


LONG = {"url": "http://control.example/long"}


async def test_a_long_page_is_put_aside_and_read_in_parts_and_not_by_another_agent(
    agents: tuple[Agent, Agent],
) -> None:
    a, b = agents
    for agent in agents:
        await agent.mount()
    session = await a.bench.session()
    told = (await session.call("web__get", LONG)).payload
    assert "artifacts__read" in told["note"]
    assert len(json.dumps(told)) < 4096
    operation = (await a.bench.operations())[-1]
    assert operation.result_ref == told["parked"]
    where = {"ref": told["parked"], "fields": ["text"], "offset": 4000, "limit": 10}
    page = (await session.call("artifacts__read", where)).payload
    assert (page["text"], page["characters"], page["next_offset"]) == ("0123456789", 20_000, 4010)
    other = await (await b.bench.session()).call("artifacts__read", where)
    assert not other.success
    assert "nothing under this reference" in str(other.error)


async def test_without_a_reader_it_is_cut_and_said_so(agents: tuple[Agent, Agent]) -> None:
    a, _ = agents
    await a.mount(reader=False)
    told = (await (await a.bench.session()).call("web__get", LONG)).payload
    assert told["truncated"] is True
    assert "not kept" in told["note"]
    assert await a.store.read(lambda tx: tx.rows(ArtifactRow)) == []


async def test_what_was_put_aside_goes_with_its_session(agents: tuple[Agent, Agent]) -> None:
    a, _ = agents
    await a.mount()
    await (await a.bench.session()).call("web__get", LONG)
    assert len(os.listdir(a.folder)) == 1
    await a.store.transact(lambda tx: tx.delete_session("session_1"))
    await a.bench.gateway.sweep()
    assert os.listdir(a.folder) == []


async def test_a_credential_is_attached_only_where_hosts_are_listed_and_an_edited_row_sends_nothing(
    agents: tuple[Agent, Agent],
) -> None:
    a, _ = agents
    await a.mount(config={})
    without: tuple[dict[str, Any], ...] = ({}, {"allowed_hosts": []})
    for config in without:
        await a.bench.mounts.edit("web", config=config)
        with pytest.raises(MountRefusedError) as refused:
            await a.bench.mounts.attach("web", {"token": SECRET})
        assert refused.value.error_code == "ALLOWED_HOSTS_REQUIRED"
    await a.bench.mounts.edit("web", config={"allowed_hosts": ["control.example"]})
    await a.bench.mounts.attach("web", {"token": SECRET})
    for config in without:
        with pytest.raises(MountRefusedError):
            await a.bench.mounts.edit("web", config=config)
    session = await a.bench.session()
    for config in without:
        await _write(a, config)
        delivery = await session.call("web__get", {"url": "https://control.example/long"})
        assert "allowed_hosts" in str(delivery.error)
    assert a.server.asked == []
    assert a.net.asked == []


async def _write(agent: Agent, config: Mapping[str, Any]) -> None:
    """Change the row itself, as nobody should."""
    import msgspec

    row = await agent.store.read(lambda tx: tx.row(MountRow, "web"))
    assert row is not None
    changed = msgspec.structs.replace(row, public_config=dict(config))
    await agent.store.transact(lambda tx: tx.put_row(changed))


async def test_a_sealed_credential_goes_to_its_host_and_its_echo_is_told_to_nobody(
    agents: tuple[Agent, Agent],
) -> None:
    """Over this computer, where plain http may carry one."""
    a, _ = agents

    def echo(question: Question) -> Reply:
        return Reply(f"you are {question.headers['authorization']}".encode(), headers=PLAIN)

    a.server.answers["/me"] = echo
    await a.mount(config={"allowed_hosts": ["127.0.0.1"], "loopback": True})
    await a.bench.mounts.attach("web", {"token": SECRET})
    session = await a.bench.session()
    delivery = await session.call("web__get", {"url": f"http://127.0.0.1:{a.server.port}/me"})
    assert a.server.asked[0].headers["authorization"] == f"Bearer {SECRET}"
    assert delivery.payload["text"] == "you are Bearer [secret web]"
    assert SECRET not in json.dumps([operation.result for operation in await a.bench.operations()])


async def test_private_hosts_are_refused_even_when_a_person_listed_them(agents: tuple[Agent, Agent]) -> None:
    a, _ = agents
    async with Canary() as canary:
        hosts = ["127.0.0.1", "localhost", "router.local", "wiki.internal", "10.0.0.1", "169.254.169.254", "::1"]
        await a.mount(config={"allowed_hosts": hosts})
        session = await a.bench.session()
        for host in (*hosts[:-1], "[::1]"):
            delivery = await session.call("web__get", {"url": f"http://{host}:{canary.port}/"})
            assert "no public host" in str(delivery.error), host
        for url in ("file:///etc/passwd", "data:text/plain,x", "gopher://control.example/"):
            assert "http:// or https://" in str((await session.call("web__get", {"url": url})).error)
        await asyncio.sleep(0)
        assert canary.came == 0


async def test_what_a_status_means_for_the_record(agents: tuple[Agent, Agent]) -> None:
    a, _ = agents
    await a.mount()
    session = await a.bench.session()
    for status, recorded in {201: "succeeded", 404: "failed", 429: "failed", 500: "unknown"}.items():
        a.server.answers["/"] = Reply(b"{}", status=status)
        await session.call("web__send", {"url": "http://control.example/", "method": "POST", "json": {}})
        assert (await a.bench.operations())[-1].status == recorded, status


async def test_always_lets_one_host_through_and_no_other(agents: tuple[Agent, Agent]) -> None:
    a, _ = agents
    a.server.answers["/a"] = a.server.answers["/b"] = Reply(b"{}")
    await a.mount(policy={"write": "approval"})
    session = await a.bench.session()
    order = {"url": "http://control.example/a", "method": "POST", "json": {"n": 1}}
    operation_id = await session.held("web__send", order, "c1")
    [held] = await a.bench.gateway.pending()
    assert "control.example" in held.effect
    assert held.widest is not None
    await a.bench.gateway.decide(
        operation_id, approve=True, request_hash=held.request_hash, approver="me", always=held.widest
    )
    await session.call("web__send", order, "c1")
    assert (await session.call("web__send", {**order, "url": "http://control.example/b"})).success
    await session.held("web__send", {**order, "url": "http://other.example/a"})
    await session.held("web__send", {**order, "method": "DELETE"})
    await session.held("web__send", {**order, "secret_headers": {"X-Key": "github"}})
    assert [each.path for each in a.server.asked] == ["/a", "/b"]
