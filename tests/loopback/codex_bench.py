"""A Codex driver with the real CLI, a model of its own on the loopback, and folders that go with it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.definitions import (
    AgentDefinition,
    Environment,
    ExecutionBinding,
    ReasoningConfig,
    ResponseFormat,
    SessionOptions,
    TrustedContext,
)
from runtime_host.drivers.base import DriverRun, SessionOpening, TranscriptMessage, Turn
from runtime_host.drivers.codex import CodexDriver
from runtime_host.drivers.codex.session import CodexSession
from runtime_host.events import DriverEvent
from runtime_host.plain_programs import PlainPrograms
from runtime_host.policy import Policy
from runtime_host.programs import Program, ProgramEnd, ProgramOrder, Programs
from runtime_host.results import DriverResult
from runtime_host.testing.driver_contract import FarBehaviour
from runtime_host.testing.host_tools_contract import TOOL, Told, ToolBehaviour
from tests.loopback.chat_server import DEFAULT_KEY
from tests.loopback.codex_model import CLASSIC, CodexModel
from tests.loopback.far_side import Say, Use
from tests.loopback.native import registry_for

READ_ONLY: Final = Policy(
    filesystem="read-only",
    commands="sandboxed",
    sandbox_network="denied",
    provider_web_search="denied",
    approvals="deny",
)
WORK: Final = READ_ONLY.model_copy(update={"filesystem": "workspace-write"})
DEFINITION: Final = AgentDefinition(id="assistant", instructions="Answer in one sentence.")


class SeenPrograms:
    """Programs as the library starts them, that says of an ended one whether anything of it is left.

    Attributes:
        orders: what was ordered.
        running: what was started and not stopped yet.
    """

    def __init__(self) -> None:
        self._plain = PlainPrograms()
        self.orders: list[ProgramOrder] = []
        self.running: list[Program] = []

    async def start(self, order: ProgramOrder) -> Program:
        self.orders.append(order)
        program = _SeenProgram(self, await self._plain.start(order))
        self.running.append(program)
        return program

    def walled(self, wall: Any) -> tuple[str, ...] | None:
        return self._plain.walled(wall)

    async def wall_fault(self) -> str:
        return await self._plain.wall_fault()


class _SeenProgram:
    def __init__(self, seen: SeenPrograms, program: Program) -> None:
        self._seen = seen
        self._program = program
        self.stdin, self.stdout, self.stderr = program.stdin, program.stdout, program.stderr

    @property
    def pid(self) -> int:
        return self._program.pid

    @property
    def returncode(self) -> int | None:
        return self._program.returncode

    async def wait(self) -> int | None:
        return await self._program.wait()

    async def stop(self, grace_s: float = 2.0) -> ProgramEnd:
        end = await self._program.stop(grace_s)
        if self in self._seen.running:
            self._seen.running.remove(self)
        for _ in range(50):
            if not living_in(self.pid):
                return ProgramEnd(complete=True, left=0, killed=end.killed)
            await asyncio.sleep(0.02)
        return ProgramEnd(complete=False, left=len(living_in(self.pid)), killed=end.killed)


def living_in(session: int) -> list[str]:
    """Names of processes that belong to a session of the kernel and live."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            if fields[0] not in "ZX" and int(fields[3]) == session:
                found.append(name)
    return found


class Folders:
    """Meets `HarnessHomes`."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def home(self, agent_id: str, session_id: str) -> str:
        return str(self.data / "homes" / agent_id / session_id)


class CodexBench:
    """Meets `ToolBench`.

    Attributes:
        data: the data folder of the application, which is hidden.
        workspace: where sessions work.
    """

    definition = DEFINITION
    patience_s = 15.0
    secret = DEFAULT_KEY

    def __init__(self, model: CodexModel, root: Path, *, named: str = CLASSIC) -> None:
        self.model = model
        self.data = root / "data"
        self.workspace = root / "work 'späce' 😀"
        for folder in (self.data, self.workspace):
            folder.mkdir(mode=0o700)
        self.connectors: ConnectorRegistry = registry_for(model.base_url, vendor="openai")
        self.programs = SeenPrograms()
        self.options = self.options_for(model=named)

    def options_for(
        self,
        *,
        model: str = CLASSIC,
        policy: Policy = WORK,
        reasoning: ReasoningConfig | None = None,
        **driver_config: Any,
    ) -> SessionOptions:
        execution = ExecutionBinding(
            driver="openai.codex.sdk", connector="server", model=model, reasoning=reasoning, driver_config=driver_config
        )
        return SessionOptions(
            execution=execution,
            context=TrustedContext(),
            environment=Environment(type="local-directory", path=str(self.workspace)),
            policy=policy,
        )

    def driver(self, programs: Programs | None = None, cli: Callable[[], str] | None = None) -> CodexDriver:
        return CodexDriver(
            self.connectors,
            programs or self.programs,
            Folders(self.data),
            hidden=(str(self.data),),
            cli=cli,
            retries=1,
        )

    def behave(self, how: FarBehaviour) -> None:
        self.model.behave(how)

    def call(self, how: ToolBehaviour) -> None:
        asks = Use(TOOL, {"city": "Paris"})
        if how == "calls-once":
            self.model.always(asks, Say("It rains."))
        elif how == "calls-twice":
            self.model.always(asks, asks, Say("It rains."))
        else:
            again = Use(TOOL, {"city": "Paris"}, "call_again")
            self.model.always(again, again, Say("It rains."))

    def told(self) -> list[Told]:
        return [Told(each.call_id, each.text) for each in self.model.told]

    def sent(self) -> int:
        return len(self.model.inputs)

    async def aclose(self) -> None:
        assert self.programs.running == [], "a program was left running"

    # ---- without the runtime ----

    @asynccontextmanager
    async def session(
        self,
        options: SessionOptions | None = None,
        *,
        state: dict[str, Any] | None = None,
        name: str = "session",
        **more: Any,
    ) -> AsyncIterator[CodexSession]:
        driver = self.driver()
        opening = SessionOpening(name, self.definition, options or self.options, state, **more)
        try:
            yield await driver.open(opening)
        finally:
            await driver.aclose()


def turn_for(text: str, *, model: str = CLASSIC, response_format: ResponseFormat | None = None, **more: Any) -> Turn:
    async def read_transcript() -> tuple[TranscriptMessage, ...]:
        return ()

    return Turn(
        run_id="run_1",
        text=text,
        model=model,
        reasoning=more.pop("reasoning", None),
        read_transcript=read_transcript,
        response_format=response_format,
        **more,
    )


async def ask(session: CodexSession, text: str, **more: Any) -> tuple[list[DriverEvent], DriverResult]:
    """One turn to its end."""
    return await to_the_end(await session.start(turn_for(text, **more)))


async def to_the_end(run: DriverRun) -> tuple[list[DriverEvent], DriverResult]:
    async with asyncio.timeout(30):
        events = [event async for event in run.events()]
        return events, await run.result()


def of_type(events: Sequence[DriverEvent], *types: str) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type in types]


def real_path(folder: str) -> Path:
    return Path(folder).resolve()


@asynccontextmanager
async def bench_of(named: str = CLASSIC, **more: Any) -> AsyncIterator[CodexBench]:
    with tempfile.TemporaryDirectory(prefix="rmd-") as folder:
        async with CodexModel(**more) as model:
            yield CodexBench(model, real_path(folder), named=named)
