"""A process that ends anywhere in a turn at a provider with one tool: one session, one input, one result, one effect.

Each death leaves a file and a far side; a new process has to come to what these two prove, and to nothing else.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runtime_host.definitions import SessionOptions, TrustedContext
from runtime_host.drivers.base import AgentDriver
from runtime_host.errors import AgentRuntimeError, AgentSessionRecoveryError
from runtime_host.results import AgentResult
from runtime_host.run import Run
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session, SessionReference
from runtime_host.storage.base import AgentStore, AgentTx, RunRecord, SessionRecord
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.tools.base import HostTool, ResolutionContext, ResolvedTools, ToolContext
from tests.loopback import claude_managed, openai_managed
from tests.loopback.agents import script as agents
from tests.loopback.agents_server import DEFAULT_KEY as OPENAI_KEY
from tests.loopback.agents_server import AgentsServer
from tests.loopback.managed_claude import script as claude
from tests.loopback.managed_claude.faults import Fault, Held, StreamFault
from tests.loopback.managed_claude_server import DEFAULT_KEY as CLAUDE_KEY
from tests.loopback.managed_claude_server import ManagedClaudeServer
from tests.loopback.tools import MortalStore

WORDS = "What is the weather?"
REPLIES = ["I look.", "It rains."]
Far = AgentsServer | ManagedClaudeServer


class Kind(NamedTuple):
    """A harness at a provider.

    Attributes:
        steps: the last step before each death at the provider, and what the far side counts once it is done.
        things: what is made at the provider, in the order in which it is made.
        says_unsent: whether it says that an input was not sent where it does not find what it was about to make.
    """

    elsewhere: Callable[[], AbstractAsyncContextManager[Any]]
    driver: Callable[[Any], AgentDriver]
    registry: Callable[[Any], Any]
    options: SessionOptions
    script: tuple[Any, ...]
    steps: dict[str, tuple[Fault, str]]
    things: tuple[str, ...]
    says_unsent: bool
    key: str


OPENAI_STEPS: dict[str, tuple[Fault, str]] = {
    "session made": (Held("sessions.create"), "sessions"),
    "input taken": (Held("events.create:message"), "inputs"),
    "result taken": (Held("events.create:tool_result"), "results"),
    "stream open": (StreamFault(how="silent", at="agent.session.turn.output_text.delta"), "inputs"),
    "stream open after the tool": (
        StreamFault(how="silent", at="agent.session.turn.output_text.delta", after=4),
        "results",
    ),
}


def _openai(hosted: bool) -> Kind:
    look = (agents.Say(REPLIES[0], phase="commentary"), agents.Use("look", {}), agents.Say(REPLIES[1]))
    steps = {name: step for name, step in OPENAI_STEPS.items() if hosted or name != "input taken"}
    return Kind(
        openai_managed.far_elsewhere,
        openai_managed.driver_for,
        openai_managed.registry_of,
        openai_managed.options_for(hosted),
        look,
        steps,
        ("session",),
        True,
        OPENAI_KEY,
    )


KINDS = {
    "openai": _openai(True),
    "openai without an environment": _openai(False),
    "claude": Kind(
        claude_managed.far_elsewhere,
        claude_managed.driver_for,
        lambda far: claude_managed.registry_for(far.base_url),
        claude_managed.options_for(),
        (claude.Say(REPLIES[0]), claude.Use("look", {}), claude.Say(REPLIES[1])),
        {
            "agent made": (Held("agents.create"), "agents"),
            "environment made": (Held("environments.create"), "environments"),
            "session made": (Held("sessions.create"), "sessions"),
            "input taken": (Held("events.send:user.message"), "inputs"),
            "result taken": (Held("events.send:user.custom_tool_result"), "results"),
            "stream open": (StreamFault(how="silent", at="agent.message"), "inputs"),
            "stream open after the tool": (StreamFault(how="silent", at="agent.message", after=1), "results"),
        },
        ("agent", "environment", "session"),
        False,
        CLAUDE_KEY,
    ),
}
TOOL_DEATHS = ("tool begun", "tool done")


@dataclass
class Life:
    """What of a process is outside of it: a folder with its file, the effects of its tool, and the far side.

    Attributes:
        dies: at what; None for the process that comes after.
    """

    kind: Kind
    folder: Path
    far: Far
    dies: str | None = None
    mortal: MortalStore | None = None
    run_id: str = ""
    finished: bool = False
    effects: list[str] = field(default_factory=list)

    def backend(self, store: AgentStore) -> LocalBackend:
        async def look(_: Any, __: ToolContext) -> str:
            assert self.mortal is None or not self.mortal.dead.is_set(), "a dead process does nothing"
            if self.dies == "tool begun":
                await self.end()
            self.effects.append("looked")
            if self.dies == "tool done":
                await self.end()
            return "rain"

        async def storage(_: str) -> AgentStore:
            return store

        async def resolve(names: tuple[str, ...], _: ResolutionContext) -> ResolvedTools:
            tools = tuple(HostTool(name, "Tells the weather.", {"type": "object"}, look) for name in names)
            return ResolvedTools(tools=tools, fingerprint="1")

        connectors = self.kind.registry(self.far)
        return LocalBackend(
            drivers=[self.kind.driver(connectors)],
            storage=storage,
            connectors=connectors,
            durability="durable",
            resolve_tools=resolve,
        )

    async def end(self) -> None:
        assert self.mortal is not None
        self.mortal.dead.set()
        await asyncio.Event().wait()

    def __post_init__(self) -> None:
        self.folder.mkdir()

    @asynccontextmanager
    async def store(self) -> AsyncIterator[AgentStore]:
        opened = await open_agent_store(self.folder / "agent.sqlite3", profile="p", agent=DEFINED.id)
        try:
            yield opened
        finally:
            await opened.close()

    def holds_the_key(self) -> bool:
        return any(self.kind.key.encode() in path.read_bytes() for path in self.folder.rglob("*") if path.is_file())


DEFINED = openai_managed.DEFINITION.model_copy(update={"tools": ("look",)})


async def _until_death(life: Life) -> None:
    """A process up to the moment at which nothing of it goes on any more."""
    before = asyncio.all_tasks()
    async with life.store() as store:
        mortal = life.mortal = MortalStore(store)
        moment, _, number = str(life.dies).partition(" commit ")
        if number:
            setattr(mortal, f"dies_{moment}", int(number))
        backend = life.backend(mortal)

        async def live() -> None:
            session = await AgentRuntime(backend).create_agent(DEFINED).open_session(life.kind.options)
            run = await session.run(WORDS, request_id="r")
            life.run_id = run.run_id
            await run.result()
            life.finished = not mortal.dead.is_set()

        living = asyncio.ensure_future(live())
        dying = asyncio.ensure_future(_moment(life))
        async with asyncio.timeout(20):
            await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
        mortal.dead.set()
        while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=0.05)
        for task in (living, dying):
            with suppress(asyncio.CancelledError, Exception):
                await task
        await backend.aclose()
    assert not life.holds_the_key()
    life.mortal = None


async def _moment(life: Life) -> None:
    """Until it is dead; where it is to die of a step of the provider, until that is done there."""
    assert life.mortal is not None
    if life.dies not in life.kind.steps:
        await life.mortal.dead.wait()
        return
    _, counted = life.kind.steps[life.dies]
    while not life.far.faults.happened or not life.far.counts()[counted]:  # noqa: ASYNC110 - of another thread
        await asyncio.sleep(0.002)


class Left(NamedTuple):
    """What the file says after a death."""

    session: SessionRecord | None
    run: RunRecord | None
    was_executing: bool

    @property
    def state(self) -> dict[str, Any]:
        return (self.session and self.session.driver_state) or {}

    def expected(self, life: Life) -> str:
        """What the next process has to come to, of what file and far side prove."""
        if self.was_executing:
            return "effect not known"
        if life.far.counts()["inputs"] or self.run is None or self.run.phase in ("admitted", "completed"):
            return "completed"
        if self.state.get("runs"):
            return "nowhere"
        if self.lost(life):
            return "not sent" if life.kind.says_unsent else "nowhere"
        # Of what certainly never was sent, and is still wanted.
        return "completed"

    def lost(self, life: Life) -> bool:
        """Whether something was about to be made, and never was."""
        return any(not life.far.counts()[f"{thing}s"] for thing in self.state.get("intents", {}))


def _left(tx: AgentTx) -> Left:
    session = next(iter(tx.sessions()), None)
    run = next(iter(tx.runs(session.session_id)), None) if session is not None else None
    return Left(session, run, session is not None and bool(tx.unresolved_tool_calls(session.session_id)))


async def _come_to(run: Run) -> AgentResult | None:
    """What a run came to; None where nobody knows."""
    async with asyncio.timeout(20):
        try:
            return await run.result()
        except AgentSessionRecoveryError:
            return None


async def _session_of(runtime: AgentRuntime, left: Left, options: SessionOptions) -> Session:
    if left.session is None:
        return await runtime.create_agent(DEFINED).open_session(options)
    found = SessionReference(
        session_id=left.session.session_id,
        agent_id=DEFINED.id,
        scope_digest=left.session.scope_digest,
        driver_id=options.execution.driver,
    )
    return await runtime.resume_session(found, context=TrustedContext())


async def _next_life(life: Life, left: Left) -> str:
    """A process that comes after; what it finds out."""
    before, effects = life.far.counts(), len(life.effects)
    async with life.store() as store, AgentRuntime(life.backend(store)) as runtime:
        recovered = await runtime.recover(DEFINED.id)
        session = next((each.session for each in recovered if each.session is not None), None)
        session = session or await _session_of(runtime, left, life.kind.options)
        run = await session.run(WORDS, request_id="r")
        known = {left.run.run_id} if left.run is not None else set()
        assert {run.run_id} | known | {each.run_id for each in recovered} | {life.run_id or run.run_id} == {run.run_id}
        result = await _come_to(run)
        for _ in range(2):
            if result is None:
                unresolved = await session.reconcile()
                assert bool(unresolved) == left.was_executing
                result = await _come_to(await session.get_run(run.run_id))
        if result is None:
            with pytest.raises(AgentRuntimeError):
                await session.run("Something else.")
            counts = life.far.counts()
            made = ("sessions", "inputs", "results")
            assert ([counts[each] for each in made], len(life.effects)) == ([before[each] for each in made], effects)
            return "effect not known" if left.was_executing else "nowhere"
        assert result.run_id == run.run_id
        if result.error is not None:
            assert (result.status, result.error.code, life.far.counts()["inputs"]) == ("failed", "SESSION_UNKNOWN", 0)
            # Nor is a session made again by another message.
            again = await _come_to(await session.run(WORDS, request_id="again"))
            assert again is not None
            assert again.status == "failed"
            return "not sent"
        assert (result.status, result.output_text) == ("completed", REPLIES[1])
        await _check_shown(session, run, left)
        return "completed"


async def _check_shown(session: Session, run: Run, left: Left) -> None:
    items = await session.items(0, 100)
    assert [item.text for item in items if item.kind == "user"] == [WORDS]
    assert [item.text for item in items if item.kind == "reply"] == REPLIES
    assert [item.state for item in items if item.kind == "tool"] == ["complete"]
    if left.run is not None and left.run.phase == "dispatched":
        events = [event async for event in run.events()]
        assert "HISTORY_GAP" in [event.data.get("code") for event in events if event.type == "diagnostic"]


async def _killed(kind: Kind, folder: Path, dies: str) -> tuple[bool, str]:
    """Whether a process was ended at this; what the ones after it came to."""
    async with kind.elsewhere() as far:
        far.answer(*kind.script)
        life = Life(kind, folder, far, dies)
        if dies in kind.steps:
            far.fault(kind.steps[dies][0])
        await _until_death(life)
        if dies in kind.steps:
            assert far.faults.happened
            far.faults.clear()
        life.dies = None
        async with life.store() as store:
            left = await store.read(_left)
        expected = left.expected(life)
        # Twice: what a process found out holds for the one after it.
        for _ in range(2):
            assert await _next_life(life, left) == expected
            if expected == "not sent":
                break
            async with life.store() as store:
                left = (await store.read(_left))._replace(was_executing=left.was_executing)
        counts = far.counts()
        one = 1 if expected == "completed" else 0
        assert (counts["inputs"], counts["results"]) == (one or counts["inputs"], one), counts
        assert max(counts[f"{thing}s"] for thing in kind.things) <= 1
        assert counts["inputs"] <= 1
        assert len(life.effects) == one or (expected == "effect not known" and len(life.effects) <= 1)
        assert (counts.get("cancels", 0), counts.get("interrupts", 0)) == (0, 0)
        assert not life.holds_the_key()
        return not life.finished, expected


def _deaths(kind: Kind) -> Iterator[str]:
    """Every step, and every commit up to the one that no process comes to."""
    yield from (*kind.steps, *TOOL_DEATHS)
    for number in range(1, 60):
        yield f"before commit {number}"
        yield f"after commit {number}"


DRIVERS = {"openai": ("openai", "openai without an environment"), "claude": ("claude",)}
QUICKLY = {
    "openai": ("input taken", "result taken", "before commit 9"),
    "openai without an environment": ("session made", "tool done", "stream open"),
    "claude": ("session made", "input taken", "result taken", "tool begun", "stream open", "before commit 12"),
}


# A process that ends in the middle complains of nothing that it had only begun.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "dies"), [(name, dies) for name, deaths in QUICKLY.items() for dies in deaths])
async def test_one_of_each_wherever_the_process_ends(name: str, dies: str, tmp_path: Path) -> None:
    died, _ = await _killed(KINDS[name], tmp_path / "life", dies)
    assert died


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("driver", DRIVERS)
async def test_one_of_each_before_and_after_every_commit_and_every_step(driver: str, tmp_path: Path) -> None:
    came_to: dict[str, str] = {}
    for name in DRIVERS[driver]:
        died = True
        for number, dies in enumerate(_deaths(KINDS[name])):
            try:
                died, came = await _killed(KINDS[name], tmp_path / f"{name[-4:]}{number}", dies)
            except AssertionError as wrong:
                wrong.add_note(f"{name}: {dies}")
                raise
            if not died:
                break
            came_to[f"{name}: {dies}"] = came
        assert not died, "the turn was not ended at each of its commits"
    print(f"\n{driver}: {len(came_to)} deaths, {dict(Counter(came_to.values()))}")
    for came in ("nowhere", "not sent", "effect not known"):
        print(f"  {came}: {', '.join(dies for dies, each in came_to.items() if each == came)}")
    assert len(came_to) >= 30
    assert set(came_to.values()) <= {"completed", "not sent", "nowhere", "effect not known"}
    # Not known, and so not sent again, is only what died between the word that it is sent and its sending.
    assert len([each for each in came_to.values() if each in ("not sent", "nowhere")]) <= 4
