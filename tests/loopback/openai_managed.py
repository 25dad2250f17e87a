"""Drives `openai.agents.api` against the loopback far side."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from queue import SimpleQueue
from typing import Any, Final

from runtime_host.connectors import ConnectorRegistry
from runtime_host.connectors.transport import Timeouts
from runtime_host.definitions import (
    AgentDefinition,
    Environment,
    ExecutionBinding,
    ReasoningConfig,
    SessionOptions,
    TrustedContext,
)
from runtime_host.drivers.managed.service import Patience
from runtime_host.drivers.openai_managed import OpenAIManagedDriver
from runtime_host.policy import CHAT, Policy
from runtime_host.testing.driver_contract import FarBehaviour
from runtime_host.testing.host_tools_contract import RESULT, TOOL, Told, ToolBehaviour
from tests.loopback.agents.script import Say, Step, Use
from tests.loopback.agents_server import DEFAULT_KEY, AgentsServer
from tests.loopback.managed_claude.faults import Answered
from tests.loopback.native import registry_for

MODEL: Final = "gpt-6-astra"
QUICK: Final = Timeouts(connect_s=2.0, read_s=5.0, write_s=5.0)
SOON: Final = Patience(tries=4, first_wait_s=0.01, longest_wait_s=0.05, longest_asked_s=2.0)
DEFINITION: Final = AgentDefinition(id="assistant", instructions="Answer in one sentence.")
WORK: Final = Policy(
    filesystem="workspace-write",
    commands="sandboxed",
    sandbox_network="denied",
    provider_web_search="denied",
    approvals="deny",
)
CALLS: Final[dict[ToolBehaviour, tuple[Step, ...]]] = {
    "calls-once": (Use(TOOL, {"city": "Paris"}), Say("It rains.")),
    "calls-twice": (
        Use(TOOL, {"city": "Paris"}),
        Say("One.", phase="commentary"),
        Use(TOOL, {"city": "Rome"}),
        Say("It rains."),
    ),
    "repeats-a-call": (
        Use(TOOL, {"city": "Paris"}, "call_again"),
        Say("Once more.", phase="commentary"),
        Use(TOOL, {"city": "Paris"}, "call_again"),
        Say("It rains."),
    ),
}


def options_for(hosted: bool = False, *, reasoning: ReasoningConfig | None = None, **more: Any) -> SessionOptions:
    execution = ExecutionBinding(driver="openai.agents.api", connector="server", model=MODEL, reasoning=reasoning)
    where: dict[str, Any] = {"environment": Environment(type="provider-managed"), "policy": WORK}
    if not hosted:
        where = {"environment": Environment(), "policy": CHAT}
    return SessionOptions(**{"execution": execution, "context": TrustedContext(), **where, **more})


def registry_of(server: AgentsServer) -> ConnectorRegistry:
    return registry_for(server.base_url, DEFAULT_KEY, vendor="openai")


def driver_for(connectors: ConnectorRegistry, **more: Any) -> OpenAIManagedDriver:
    quick = {"timeouts": QUICK, "patience": SOON, "looking": SOON, "reconnecting": SOON}
    return OpenAIManagedDriver(connectors, **{**quick, **more})


@asynccontextmanager
async def far_elsewhere() -> AsyncIterator[AgentsServer]:
    """A far side in a thread of its own, which the end of a process here does not touch."""
    ready: SimpleQueue[tuple[AgentsServer, asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()

    async def serve() -> None:
        async with AgentsServer() as far:
            over = asyncio.Event()
            ready.put((far, asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="far side")
    thread.start()
    far, loop, over = ready.get()
    try:
        yield far
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


class OpenAIManagedBench:
    """A bench of the suites; `hosted` sessions have an environment at the far side."""

    def __init__(self, server: AgentsServer, *, hosted: bool = False) -> None:
        self.server = server
        self.definition = DEFINITION
        self.options = options_for(hosted)
        self.patience_s = 8.0
        self.secret = DEFAULT_KEY
        self.connectors = registry_of(server)

    def driver(self) -> OpenAIManagedDriver:
        return driver_for(self.connectors)

    def behave(self, how: FarBehaviour) -> None:
        self.server.behave(how)
        if how == "loses-acceptance":
            # What is lost is found again in what is saved, unless that cannot be seen either.
            self.server.service.list_lag = 1000
            self.server.fault(Answered("turns.list", status=503, times=None, after=1))

    def call(self, how: ToolBehaviour) -> None:
        self.server.always(*CALLS[how])

    def told(self) -> list[Told]:
        sent = [each for body in self.server.bodies("events.create") for each in body["events"]]
        results = [each for each in sent if each["type"].endswith("tool_result")]
        return [Told(each["call_id"], str(each.get("output") or each.get("error"))) for each in results]

    def sent(self) -> int:
        return len(self.server.service.inputs)

    async def aclose(self) -> None:
        """The server ends with its fixture."""


__all__ = ["DEFAULT_KEY", "RESULT", "OpenAIManagedBench", "driver_for", "options_for", "registry_of"]
