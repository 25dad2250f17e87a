"""A real host with a real model server on loopback, for tests that speak to it over a channel."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from desktop import paths
from desktop.app import Host
from runtime_host.connectors.base import Connector, SecretRef
from tests.loopback.chat_server import DEFAULT_KEY, ChatServer
from tests.unit.desktop.seat import Seat


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    async with ChatServer("ok") as running:
        yield running


@pytest.fixture
async def host(tmp_path: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setenv("TEST_PROVIDER_SECRET", DEFAULT_KEY)
    async with Host(paths.profile(tmp_path / "data")) as running:
        await running.connectors.add(
            Connector(
                name="loopback",
                vendor="openai-compatible",
                base_url=server.base_url,
                secret=SecretRef(kind="env", name="TEST_PROVIDER_SECRET"),
                models=(server.model,),
            )
        )
        yield running


@pytest.fixture
async def seat(host: Host) -> AsyncIterator[Seat]:
    sitting = Seat(host)
    yield sitting
    await sitting.aclose()
