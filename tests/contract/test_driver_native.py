"""The driver contract over `native.agent`, its far side a server of each kind of API on the loopback."""

from collections.abc import AsyncIterator
from typing import Final

import pytest

from runtime_host.drivers.native import NativeDriver
from runtime_host.testing.driver_contract import AgentDriverContract, DriverBench, FarBehaviour
from tests.loopback.chat_server import DEFAULT_KEY, ChatServer
from tests.loopback.messages_server import MessagesServer
from tests.loopback.native import DEFINITION, ONE_TRY, QUICK, options_for, registry_for
from tests.loopback.responses_server import ResponsesServer

BEHAVIOURS: Final[dict[FarBehaviour, str]] = {
    "answers": "ok",
    "waits": "silent-after-text",
    "fails": "500",
    "breaks-off": "cut-after-text",
    "loses-acceptance": "cut-before-answer",
    "floods": "ok",
}


class NativeBench:
    def __init__(self, server: ChatServer) -> None:
        self.server = server
        self.definition = DEFINITION
        self.options = options_for()
        self.patience_s = 10.0
        self.secret = DEFAULT_KEY
        self.connectors = registry_for(server.base_url, vendor=server.vendor)

    def driver(self) -> NativeDriver:
        # The contract is of inputs that have effects; requests for a reply alone, which have none, may be repeated.
        return NativeDriver(self.connectors, timeouts=QUICK, retries=ONE_TRY)

    def behave(self, how: FarBehaviour) -> None:
        self.server.behaviour = BEHAVIOURS[how]
        if how == "floods":
            self.server.tokens = 500_000

    def sent(self) -> int:
        return len(self.server.requests)

    async def aclose(self) -> None:
        """The server ends with its fixture."""


class TestNativeAgent(AgentDriverContract):
    @pytest.fixture(params=[ChatServer, ResponsesServer, MessagesServer])
    async def bench(self, request: pytest.FixtureRequest) -> AsyncIterator[DriverBench]:
        async with request.param() as server:
            yield NativeBench(server)
