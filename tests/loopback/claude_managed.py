"""Drives `anthropic.managed.api` against its far side on the loopback: a bench of the contracts, and what is shared."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from runtime_host.connectors import Connector, ConnectorRegistry, SecretRef
from runtime_host.connectors.transport import Timeouts
from runtime_host.definitions import (
    AgentDefinition,
    Environment,
    ExecutionBinding,
    ReasoningConfig,
    SessionOptions,
    TrustedContext,
)
from runtime_host.drivers.claude_managed.driver import ClaudeManagedDriver
from runtime_host.drivers.managed.service import Patience
from runtime_host.policy import CHAT
from runtime_host.testing.driver_contract import FarBehaviour
from runtime_host.testing.host_tools_contract import TOOL, Told, ToolBehaviour
from tests.loopback.managed_claude.faults import Answered
from tests.loopback.managed_claude.script import Say, Use
from tests.loopback.managed_claude_server import DEFAULT_KEY, ManagedClaudeServer

MODEL: Final = "claude-sonnet-5-5"
CONNECTOR: Final = "claude"
DEFINITION: Final = AgentDefinition(id="assistant", instructions="Answer in one sentence.")
QUICK: Final = Timeouts(connect_s=2.0, read_s=8.0, write_s=8.0)


async def _soon(wait_s: float) -> None:
    await asyncio.sleep(min(wait_s, 0.01))


HASTY: Final = Patience(tries=5, sleep=_soon)
LOOKING: Final = Patience(tries=6, sleep=_soon)
"""As patient as always, without the waits."""


def registry_for(base_url: str, key: str = DEFAULT_KEY) -> ConnectorRegistry:
    secret = SecretRef(kind="env", name="LOOPBACK_KEY")
    connector = Connector(name=CONNECTOR, vendor="anthropic", base_url=base_url, secret=secret)

    async def fetch(_: SecretRef) -> str:
        return key

    return ConnectorRegistry({connector.name: connector}.get, fetch)


def options_for(
    *,
    environment: Environment = Environment(type="provider-managed"),  # noqa: B008 - nobody can change it
    model: str = MODEL,
    reasoning: ReasoningConfig | None = None,
    driver_config: dict[str, Any] | None = None,
    **more: Any,
) -> SessionOptions:
    execution = ExecutionBinding(
        driver="anthropic.managed.api",
        connector=CONNECTOR,
        model=model,
        reasoning=reasoning,
        driver_config=driver_config or {},
    )
    given = {"execution": execution, "context": TrustedContext(), "policy": CHAT, "environment": environment}
    return SessionOptions(**{**given, **more})


def driver_for(registry: ConnectorRegistry, **more: Any) -> ClaudeManagedDriver:
    return ClaudeManagedDriver(registry, **{"timeouts": QUICK, "patience": HASTY, "looking": LOOKING, **more})


@asynccontextmanager
async def far_elsewhere() -> AsyncIterator[ManagedClaudeServer]:
    """A far side in a thread of its own, which the end of a process here does not touch."""
    loop, over = asyncio.new_event_loop(), asyncio.Event()
    here = asyncio.get_running_loop()
    ready: asyncio.Future[ManagedClaudeServer] = here.create_future()

    async def serve() -> None:
        async with ManagedClaudeServer() as far:
            here.call_soon_threadsafe(ready.set_result, far)
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="far side")
    thread.start()
    try:
        yield await ready
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


class ClaudeManagedBench:
    """The far side, as the contracts speak to it."""

    definition = DEFINITION
    patience_s = 10.0
    secret = DEFAULT_KEY

    def __init__(self, far: ManagedClaudeServer) -> None:
        self.far = far
        self.options = options_for()
        self.connectors = registry_for(far.base_url)

    def driver(self) -> ClaudeManagedDriver:
        return driver_for(self.connectors)

    def behave(self, how: FarBehaviour) -> None:
        self.far.behave(how)
        if how == "loses-acceptance":
            # An answer that is lost alone is found in the history: nobody knows only where that is not there either.
            self.far.fault(Answered("events.list", times=None, status=500))

    def call(self, how: ToolBehaviour) -> None:
        def say(told: Any) -> str:
            return f"I was told: {told[-1] if told else 'nothing'}"

        first, second = {"city": "Paris"}, {"city": "Rome"}
        script = {
            "calls-once": (Use(TOOL, first), Say(say)),
            "calls-twice": (Use(TOOL, first), Say("One more."), Use(TOOL, second), Say(say)),
            "repeats-a-call": (
                Use(TOOL, first, "sevt_again"),
                Say("Once more."),
                Use(TOOL, first, "sevt_again"),
                Say(say),
            ),
        }
        self.far.always(*script[how])

    def told(self) -> list[Told]:
        said = [each for body in self.far.bodies("events.send") for each in body["events"]]
        return [
            Told(each["custom_tool_use_id"], "".join(block["text"] for block in each["content"]))
            for each in said
            if each["type"] == "user.custom_tool_result"
        ]

    def sent(self) -> int:
        return self.far.counts()["inputs"]

    async def aclose(self) -> None:
        """The far side ends with its fixture."""
