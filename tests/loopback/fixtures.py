"""pytest fixtures for the servers here; import the ones a test module uses."""

from collections.abc import AsyncIterator

import pytest

from tests.loopback.chat_server import ChatServer


@pytest.fixture
async def chat_server() -> AsyncIterator[ChatServer]:
    """A good server; set `behaviour` to make it another."""
    async with ChatServer() as server:
        yield server
