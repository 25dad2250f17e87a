"""Drives `native.agent` against a loopback server, as the runtime does, without the runtime."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from runtime_host.connectors import Connector, ConnectorRegistry, SecretRef
from runtime_host.connectors.base import Vendor
from runtime_host.connectors.transport import Timeouts
from runtime_host.definitions import (
    AgentDefinition,
    ExecutionBinding,
    ReasoningConfig,
    SessionOptions,
    TrustedContext,
)
from runtime_host.drivers.base import DriverRun, SessionOpening, TranscriptMessage, Turn
from runtime_host.drivers.native import NativeDriver
from runtime_host.drivers.native.driver import Retries
from runtime_host.events import DriverEvent
from runtime_host.models.facts import ModelFacts
from runtime_host.policy import CHAT
from runtime_host.results import DriverResult
from tests.loopback.chat_server import DEFAULT_KEY, DEFAULT_MODEL

QUICK = Timeouts(connect_s=2.0, read_s=8.0, write_s=8.0)


async def _at_once(_: float) -> None:
    await asyncio.sleep(0)


AT_ONCE = Retries(sleep=_at_once)
"""Retries as they are, without the waits."""
ONE_TRY = Retries(tries=1)
DEFINITION = AgentDefinition(id="assistant", instructions="Answer in one sentence.")


def registry_for(
    base_url: str,
    key: str | None = DEFAULT_KEY,
    *,
    name: str = "server",
    vendor: Vendor = "openai-compatible",
    facts: tuple[ModelFacts, ...] = (),
) -> ConnectorRegistry:
    connector = Connector(
        name=name,
        vendor=vendor,
        facts=facts,
        base_url=base_url,
        secret=None if key is None else SecretRef(kind="env", name="LOOPBACK_KEY"),
    )

    async def fetch(_: SecretRef) -> str:
        assert key is not None
        return key

    return ConnectorRegistry({connector.name: connector}.get, fetch)


def options_for(
    connector: str = "server", model: str = DEFAULT_MODEL, reasoning: ReasoningConfig | None = None, **more: Any
) -> SessionOptions:
    execution = ExecutionBinding(driver="native.agent", connector=connector, model=model, reasoning=reasoning)
    return SessionOptions(**{"execution": execution, "context": TrustedContext(), "policy": CHAT, **more})


def turn_for(
    text: str = "What is the capital of France?",
    *,
    earlier: Sequence[TranscriptMessage] = (),
    model: str = DEFAULT_MODEL,
    reasoning: ReasoningConfig | None = None,
    **more: Any,
) -> Turn:
    async def read_transcript() -> tuple[TranscriptMessage, ...]:
        return tuple(earlier)

    return Turn("run_1", text, model, reasoning, read_transcript, **more)


@dataclass
class Outcome:
    events: list[DriverEvent]
    result: DriverResult

    def text(self, kind: str = "agent.message.delta") -> str:
        return "".join(event.data["text"] for event in self.events if event.type == kind)

    def types(self) -> list[str]:
        """Event types in order, runs of one type as one."""
        types = [event.type for event in self.events]
        return [kind for position, kind in enumerate(types) if position == 0 or types[position - 1] != kind]


@asynccontextmanager
async def driver_for(
    registry: ConnectorRegistry, timeouts: Timeouts = QUICK, retries: Retries = AT_ONCE
) -> AsyncIterator[NativeDriver]:
    driver = NativeDriver(registry, timeouts=timeouts, retries=retries)
    try:
        yield driver
    finally:
        await driver.aclose()


async def start(driver: NativeDriver, turn: Turn, options: SessionOptions | None = None) -> DriverRun:
    session = await driver.open(SessionOpening("session_1", DEFINITION, options or options_for()))
    return await session.start(turn)


async def outcome(run: DriverRun, within_s: float = 20.0) -> Outcome:
    async with asyncio.timeout(within_s):
        events = [event async for event in run.events()]
        return Outcome(events, await run.result())


async def drive(
    registry: ConnectorRegistry,
    turn: Turn | None = None,
    *,
    options: SessionOptions | None = None,
    timeouts: Timeouts = QUICK,
    within_s: float = 20.0,
    retries: Retries = AT_ONCE,
) -> Outcome:
    """One turn from beginning to end."""
    async with driver_for(registry, timeouts, retries) as driver:
        return await outcome(await start(driver, turn or turn_for(), options), within_s)
