"""The driver contract over `native.agent`, its far side a server of each kind of API on the loopback."""

import itertools
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from runtime_host.drivers.native import NativeDriver
from runtime_host.testing.driver_contract import FarBehaviour
from runtime_host.testing.host_tools_contract import HostToolsContract, Told, ToolBehaviour, ToolBench
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


CALLS: Final[dict[ToolBehaviour, str]] = {
    "calls-once": "tool-single",
    "calls-twice": "tool-two-rounds",
    "repeats-a-call": "tool-repeated",
}


def chat_results(body: dict[str, Any]) -> list[Told]:
    newest = itertools.takewhile(lambda message: message["role"] == "tool", reversed(body["messages"]))
    return [Told(each["tool_call_id"], str(each["content"])) for each in newest][::-1]


def response_results(body: dict[str, Any]) -> list[Told]:
    newest = itertools.takewhile(lambda item: item["type"] == "function_call_output", reversed(body["input"]))
    return [Told(each["call_id"], str(each["output"])) for each in newest][::-1]


def message_results(body: dict[str, Any]) -> list[Told]:
    content = body["messages"][-1]["content"]
    blocks = [] if isinstance(content, str) else content
    return [Told(each["tool_use_id"], str(each["content"])) for each in blocks if each["type"] == "tool_result"]


RESULTS: Final = {"openai-compatible": chat_results, "openai": response_results, "anthropic": message_results}


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

    def call(self, how: ToolBehaviour) -> None:
        self.server.behaviour = CALLS[how]

    def told(self) -> list[Told]:
        # Each round says the whole conversation; its newest results are at the end.
        results = RESULTS[self.server.vendor]
        return [each for request in self.server.requests for each in results(request.json())]

    def sent(self) -> int:
        return len(self.server.requests)

    async def aclose(self) -> None:
        """The server ends with its fixture."""


class TestNativeAgent(HostToolsContract):
    @pytest.fixture(params=[ChatServer, ResponsesServer, MessagesServer])
    async def bench(self, request: pytest.FixtureRequest) -> AsyncIterator[ToolBench]:
        async with request.param() as server:
            yield NativeBench(server)
