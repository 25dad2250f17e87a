"""Drives `anthropic.agent.sdk` with the real CLI against the loopback model, with or without the runtime."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.definitions import (
    AgentDefinition,
    ExecutionBinding,
    ReasoningConfig,
    SessionOptions,
    TrustedContext,
)
from runtime_host.drivers.base import SessionOpening, Turn
from runtime_host.drivers.claude_sdk import DRIVER_ID, ClaudeDriver, Patience
from runtime_host.drivers.claude_sdk.run import CONTINUED, ClaudeRun
from runtime_host.drivers.claude_sdk.session import ClaudeSession
from runtime_host.events import DriverEvent
from runtime_host.plain_programs import PlainPrograms
from runtime_host.policy import CHAT
from runtime_host.programs import Program, ProgramOrder, Programs, Wall
from runtime_host.results import DriverResult
from runtime_host.tools.base import ToolOffer
from tests.loopback.claude_model import ClaudeModel
from tests.loopback.far_side import Conversation, Told
from tests.loopback.native import registry_for

MODEL = "claude-sonnet-5-5"
DEFINITION = AgentDefinition(id="assistant", instructions="Answer in one sentence. The word of the day is Zymurgy.")
PATIENT = Patience(interrupt_s=4.0, leave_s=4.0, record_s=4.0)
"""A busy computer is no fault of the harness."""

needs_claude = pytest.mark.needs("claude")


@dataclass
class HarnessModel(ClaudeModel):
    """The model as the driver's harness talks to it: what it tells after a restart is results, no new input."""

    lost_sight: ClassVar[str] = "[Tool call interrupted:"
    """How the CLI begins what it puts in the place of a result that it never got."""

    def read(self, body: Any) -> Conversation:
        talk = super().read(body)
        talk.results[:] = [each for each in talk.results if not each.text.startswith(self.lost_sight)]
        for said in [each for each in talk.inputs if each.text.startswith(CONTINUED)]:
            talk.inputs.remove(said)
            calls = [json.loads(line) for line in said.text.splitlines() if line.startswith("{")]
            talk.results += [Told(each["call"], json.dumps(each["result"]), not each["success"]) for each in calls]
        return talk


@dataclass
class Homes:
    """Folders of sessions below one folder."""

    folder: str

    def home(self, agent_id: str, session_id: str) -> str:
        return os.path.join(os.path.realpath(self.folder), agent_id, session_id)


@dataclass
class Watched:
    """Programs, and what was ordered of them."""

    inner: Programs = field(default_factory=PlainPrograms)
    orders: list[ProgramOrder] = field(default_factory=list)
    started: list[Program] = field(default_factory=list)

    async def start(self, order: ProgramOrder) -> Program:
        self.orders.append(order)
        program = await self.inner.start(order)
        self.started.append(program)
        return program

    def walled(self, wall: Wall) -> tuple[str, ...] | None:
        return self.inner.walled(wall)

    async def wall_fault(self) -> str:
        return await self.inner.wall_fault()

    def living(self) -> list[int]:
        """Programs that have not ended."""
        return [program.pid for program in self.started if program.returncode is None and is_there(program.pid)]


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@dataclass
class Stage:
    """A model, a driver's surroundings, and drivers in them."""

    model: HarnessModel
    registry: ConnectorRegistry
    folder: str
    programs: Watched
    drivers: list[ClaudeDriver] = field(default_factory=list)

    def driver(self, **more: Any) -> ClaudeDriver:
        kinds: dict[str, Any] = {"patience": PATIENT, "retries": 0, **more}
        driver = ClaudeDriver(self.registry, self.programs, Homes(self.folder), **kinds)
        self.drivers.append(driver)
        return driver

    def home(self, session_id: str = "session_1") -> Path:
        return Path(Homes(self.folder).home(DEFINITION.id, session_id))

    async def session(self, driver: ClaudeDriver | None = None, **opening: Any) -> ClaudeSession:
        values: dict[str, Any] = {
            "session_id": "session_1",
            "definition": DEFINITION,
            "options": options_for(),
            **opening,
        }
        return await (driver or self.driver()).open(SessionOpening(**values))

    def record(self, session_id: str = "session_1") -> Path:
        """What the CLI wrote down of a session."""
        [found] = self.home(session_id).glob("config/projects/*/*.jsonl")
        return found


@asynccontextmanager
async def staged(programs: Programs | None = None) -> AsyncIterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="claude-") as folder:
        async with HarnessModel() as model:
            registry = registry_for(model.base_url, vendor="anthropic")
            stage = Stage(model, registry, folder, Watched(programs or PlainPrograms()))
            try:
                yield stage
            finally:
                for driver in stage.drivers:
                    await driver.aclose()
                for program in stage.programs.started:
                    await program.stop(0)


def options_for(model: str = MODEL, reasoning: ReasoningConfig | None = None, **more: Any) -> SessionOptions:
    execution = ExecutionBinding(driver=DRIVER_ID, connector="server", model=model, reasoning=reasoning)
    return SessionOptions(**{"execution": execution, "context": TrustedContext(), "policy": CHAT, **more})


def turn_for(text: str = "What is the capital of France?", run_id: str = "run_1", **more: Any) -> Turn:
    async def read_transcript() -> tuple[Any, ...]:
        return ()

    values: dict[str, Any] = {"model": MODEL, "reasoning": None, **more}
    return Turn(run_id, text, read_transcript=read_transcript, **values)


@dataclass
class Outcome:
    events: list[DriverEvent]
    result: DriverResult

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.type == kind]

    def text(self, kind: str = "agent.message.delta") -> str:
        return "".join(data["text"] for data in self.of(kind))

    def codes(self) -> list[str]:
        return [data["code"] for data in self.of("diagnostic")]


async def outcome(run: ClaudeRun, within_s: float = 40.0) -> Outcome:
    async with asyncio.timeout(within_s):
        events = [event async for event in run.events()]
        return Outcome(events, await run.result())


class Reading:
    """A run read in the background: what it shows can be waited for.

    That a far side has said a text does not mean that the CLI has shown all of it.
    """

    def __init__(self, run: ClaudeRun) -> None:
        self._seen = Outcome([], cast(DriverResult, None))
        self._ending = asyncio.ensure_future(self._read(run))

    async def shown(self, text: str) -> None:
        """Return once the pieces of text so far are these."""
        await until(lambda: self._seen.text() == text)

    async def outcome(self) -> Outcome:
        return await self._ending

    async def _read(self, run: ClaudeRun) -> Outcome:
        async with asyncio.timeout(40):
            async for event in run.events():
                self._seen.events.append(event)
            return Outcome(self._seen.events, await run.result())


async def say(session: ClaudeSession, text: str = "What is the capital of France?", **more: Any) -> Outcome:
    """One turn from beginning to end."""
    return await outcome(await session.start(turn_for(text, **more)))


async def until(condition: Any, within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  # far sides and processes are plain data
            await asyncio.sleep(0.01)


def offers(*names: str) -> Sequence[ToolOffer]:
    return tuple(ToolOffer(name, f"Does {name}.", {"type": "object", "properties": {}}) for name in names)
