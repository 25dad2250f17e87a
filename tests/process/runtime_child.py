"""A host process over a real file, for tests that kill it at each commit and between the steps of its harness.

`python -m tests.process.runtime_child FOLDER POINT [tools]`: what a person's program does, from the first line to
the last, in a folder where it may have been before. POINT is where it kills itself: `before N` or `after N`
of its commits, `step N` of its harness's, or `nowhere`. What it knows it tells in the file `told`, and what
the harness's far side took in `far`: a line each, there from the moment it is written. With `tools` the
effect of an answer is a host tool's, called by the harness.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from runtime_host.definitions import AgentDefinition, ExecutionBinding, SessionOptions, TrustedContext
from runtime_host.drivers.base import Turn
from runtime_host.errors import AgentScopeMismatchError, AgentSessionRecoveryError
from runtime_host.policy import CHAT
from runtime_host.run import Run, Windows
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session, SessionReference
from runtime_host.storage.base import AgentStore
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing.counting import CountingStore, Side
from runtime_host.testing.scripted import Call, Do, Script, ScriptedDriver, Step, Wait, reply
from runtime_host.tools.base import (
    HostTool,
    ResolutionContext,
    ResolvedTools,
    ToolCall,
    ToolContext,
    ToolReceipt,
    ToolReport,
    ToolRequest,
)

AGENT: Final = "assistant"
ME: Final = TrustedContext(tenant_id="home", user_id="me")
OPTIONS: Final = SessionOptions(
    execution=ExecutionBinding(driver="scripted", connector="none", model="m-1"), context=ME, policy=CHAT
)
FIRST: Final = "Hello"
SECOND: Final = "And then?"


@dataclass
class Place:
    """A folder and what is written in it. `stop_at` ends the process at a point."""

    folder: Path
    stop_at: str = "nowhere"
    tools: bool = False
    steps: int = field(default=0, init=False)

    def write(self, name: str, line: str) -> None:
        fd = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, f"{line}\n".encode())
        finally:
            os.close(fd)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []

    def told(self, what: str) -> list[str]:
        """What was told of one sort, in order."""
        return [line.partition(" ")[2] for line in self.lines("told") if line.partition(" ")[0] == what]

    def tell(self, what: str, value: str) -> None:
        if value not in self.told(what):
            self.write("told", f"{what} {value}")

    def at_commit(self, side: Side, number: int) -> None:
        self.at(f"{side} {number}")

    def at_step(self) -> None:
        self.steps += 1
        self.at(f"step {self.steps}")

    def at(self, point: str) -> None:
        if point == self.stop_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def script(self, turn: Turn) -> Script:
        """A reply in pieces with an effect in the middle, a point between any two of its steps."""
        answer = reply(f"Answer to {turn.text}", pieces=3)
        effect: Step = Do(lambda: self.write("far", f"effect {turn.run_id}"))
        if self.tools:
            effect = Call((ToolRequest(f"call-{turn.run_id}", "note", json.dumps({"run": turn.run_id})),))
        steps: list[Step] = [answer[0], Wait(0.03), effect, *answer[1:], Wait(0.08)]
        point = Do(self.at_step)
        return Script([point, *(each for step in steps for each in (step, point))])

    async def note(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """The tool: its effect is a line in `far`."""
        self.at("tool before")
        self.write("far", f"effect {arguments['run']}")
        self.at("tool after")
        return "noted"

    async def receipt(self, call: ToolCall, context: ToolContext) -> ToolReceipt:
        """What the far side says became of a call. The process that made it is dead: it is settled either way."""
        acted = f"effect {call.arguments['run']}" in self.lines("far")
        report = ToolReport(success=acted, payload="noted" if acted else "never noted")
        return ToolReceipt(call_id=call.call_id, tool=call.tool, run_id=call.run_id, settled=True, report=report)

    async def resolve(self, names: tuple[str, ...], context: ResolutionContext) -> ResolvedTools:
        parameters = {"type": "object", "properties": {"run": {"type": "string"}}, "required": ["run"]}
        note = HostTool("note", "Notes something.", parameters, self.note)
        return ResolvedTools(tools=(note,), fingerprint="1", reconcile=self.receipt)


async def life(place: Place) -> int:
    """The program: opens or finds its session, has two inputs answered, puts the session away. Returns its commits."""
    store: AgentStore = await open_agent_store(place.folder / "agent.sqlite3", profile="p", agent=AGENT)
    counted = CountingStore(store, place.at_commit)

    async def storage(_: str) -> AgentStore:
        return counted

    driver = ScriptedDriver(
        place.script,
        on_send=lambda turn: place.write("far", f"input {turn.run_id} {turn.text}"),
        on_told=lambda turn, delivery: place.write("far", f"told {turn.run_id} {delivery.payload}"),
    )
    backend = LocalBackend(
        drivers=[driver],
        storage=storage,
        windows=Windows(cleanup_s=1.0, checkpoint_s=0.02),
        resolve_tools=place.resolve if place.tools else None,
    )
    try:
        async with AgentRuntime(backend) as runtime, asyncio.timeout(30):
            session = await find_session(runtime, place)
            for request_id, text in (("first", FIRST), ("second", SECOND)):
                run = await session.run(text, request_id=request_id)
                place.tell(f"run-{request_id}", run.run_id)
                place.tell(f"outcome-{request_id}", await outcome(run))
            await session.detach()
    finally:
        await store.close()
    return counted.commits


async def find_session(runtime: AgentRuntime, place: Place) -> Session:
    """The session of an earlier life, else a new one."""
    for text in place.told("reference"):
        await runtime.recover(AGENT)
        try:
            return await runtime.resume_session(SessionReference.model_validate_json(text), context=ME)
        except AgentScopeMismatchError:
            place.tell("lost-reference", text)
    tools = ("note",) if place.tools else ()
    agent = runtime.create_agent(AgentDefinition(id=AGENT, instructions="Be kind.", tools=tools))
    session = await agent.open_session(OPTIONS)
    place.tell("reference", session.reference().model_dump_json())
    return session


async def outcome(run: Run) -> str:
    try:
        result = await run.result()
    except AgentSessionRecoveryError as unknown:
        return json.dumps(["unknown", unknown.run_id, unknown.details["reference"]["session_id"]])
    return json.dumps([result.status, result.run_id, result.output_text])


if __name__ == "__main__":
    _, folder, point, *rest = sys.argv
    here = Place(Path(folder), point, tools=bool(rest))
    here.tell("commits", str(asyncio.run(life(here))))
    here.tell("steps", str(here.steps))
