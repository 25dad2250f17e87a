"""An engine in memory that shares nothing with the kernel but the words of the port: for the contract, and for tests.

Owns lines as plain objects. Must not know stores or rows. Invariants: those of the port; what it has is what a process
that ends there leaves, so another engine over the same `Lines` goes on from it.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runtime_host.canonical import digest, freeze
from runtime_host.loop import lane
from runtime_host.loop.engine import (
    DENIED_WORDS,
    UNKNOWN_WORDS,
    Answer,
    Job,
    OpenRun,
    Operation,
    Pass,
    World,
)

_SENDS = 3


@dataclass
class _Job:
    job_id: str
    run_id: str
    taker: str = ""
    tries: int = 0
    state: str = "open"
    asked: int = 0


@dataclass
class _Call:
    operation_id: str
    tool: str
    arguments: Mapping[str, Any]
    status: str = "pending"
    held: str = ""
    request_hash: str = ""


@dataclass
class _Run:
    run_id: str
    state: str = "open"
    jobs: list[_Job] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)


@dataclass
class _Line:
    runs: list[_Run] = field(default_factory=list)
    said: list[tuple[str, str, str]] = field(default_factory=list)
    steers: list[tuple[str, str]] = field(default_factory=list)
    queue: list[tuple[str, str]] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)

    @property
    def open(self) -> _Run | None:
        return self.runs[-1] if self.runs and self.runs[-1].state == "open" else None


@dataclass
class Lines:
    """What outlives an engine. `metered`: what answers cost, and whether they were taken."""

    of: dict[str, _Line] = field(default_factory=dict)
    metered: list[tuple[str, str, float]] = field(default_factory=list)
    answers: set[tuple[str, str]] = field(default_factory=set)
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))


class MemoryEngine:
    """See `runtime_host.loop.engine.Engine`."""

    def __init__(self, lines: Lines, world: World) -> None:
        self._lines = lines
        self._world = world

    async def accept(
        self, session_id: str, text: str, *, dedup_key: str, kind: Literal["say", "follow_up"] = "say"
    ) -> str:
        line = self._line(session_id)
        if dedup_key in line.keys:
            return line.keys[dedup_key]
        inbox_id = line.keys[dedup_key] = f"in_{next(self._lines.numbers)}"
        steers = kind == "say" and line.open is not None
        (line.steers if steers else line.queue).append((inbox_id, text))
        return inbox_id

    async def drive(self, session_id: str) -> Pass:
        line = self._line(session_id)
        run = line.open
        if run is None:
            if not line.queue:
                return Pass(0)
            run = _Run(f"run_{next(self._lines.numbers)}")
            line.runs.append(run)
            line.said.append((run.run_id, "user", line.queue.pop(0)[1]))
        for call in run.calls:
            if call.status == "running":
                self._tell(line, run, call, "unknown", UNKNOWN_WORDS)
        if await self._work(line, run):
            return Pass(1)
        job = self._ask(line, run)
        if job is None:
            self._close(line, run, "failed")
            return Pass(0, settled=(run.run_id,))
        messages = self._messages(line)
        answer = await self._world.send(Job(job.job_id, job.taker, session_id, run.run_id, messages))
        await self.collect(job.job_id, job.taker, answer)
        waits = await self._work(line, run)
        if run.state != "open":
            return Pass(0, 0 if line.queue else None)
        if answer.calls or line.steers:
            return Pass(1, None if waits else 0)
        self._close(line, run, "completed")
        return Pass(0, 0 if line.queue else None, (run.run_id,))

    async def decide(self, operation_id: str, *, approve: bool, request_hash: str) -> bool:
        for line in self._lines.of.values():
            for run in line.runs:
                for call in run.calls:
                    if call.operation_id == operation_id:
                        return self._decide(line, run, call, approve, request_hash)
        return False

    async def cancel(self, session_id: str) -> str | None:
        line = self._line(session_id)
        run = line.open
        if run is None:
            return None
        for call in run.calls:
            if call.status == "pending":
                call.status, call.held = "cancelled", "expired" if call.held == "pending" else call.held
        line.stopped.add(run.run_id)
        self._close(line, run, "cancelled")
        return run.run_id

    async def collect(self, job_id: str, taker: str, answer: Answer) -> lane.Verdict:
        found = [
            (line, run, job)
            for line in self._lines.of.values()
            for run in line.runs
            for job in run.jobs
            if job.job_id == job_id
        ]
        if not found:
            return "late"
        line, run, job = found[0]
        accepted = job.state == "open" and job.taker == taker
        verdict: lane.Verdict = "accepted" if accepted else "late" if job.state == "cancelled" else "unaccepted"
        if (job_id, taker) not in self._lines.answers:
            resource = "model.tokens" if accepted else "model.tokens.unaccepted"
            self._lines.answers.add((job_id, taker))
            self._lines.metered += [(resource, name, float(count)) for name, count in answer.usage.items()]
        if accepted:
            job.state, job.asked = "answered", len(answer.calls)
            line.said.append((run.run_id, "assistant", answer.text))
            for wanted in answer.calls:
                arguments = freeze(wanted.arguments)
                request = {"tool": wanted.tool, "args": arguments, "held_by": "policy"}
                held = "pending" if self._world.holds(wanted.tool) else ""
                operation_id = f"op_{next(self._lines.numbers)}"
                run.calls.append(_Call(operation_id, wanted.tool, arguments, held=held, request_hash=digest(request)))
        return verdict

    async def wake(self) -> tuple[str, ...]:
        return tuple(
            session_id
            for session_id, line in self._lines.of.items()
            if (line.open is None and line.queue) or (line.open is not None and not _waits(line.open))
        )

    async def list_open(self) -> tuple[OpenRun, ...]:
        return tuple(
            OpenRun(session_id, line.open.run_id, "decision" if _waits(line.open) else "drive")
            for session_id, line in self._lines.of.items()
            if line.open is not None
        )

    # ------------------------------------------------------------------------------------------ inside

    def _line(self, session_id: str) -> _Line:
        return self._lines.of.setdefault(session_id, _Line())

    def _ask(self, line: _Line, run: _Run) -> _Job | None:
        while line.steers:
            line.said.append((run.run_id, "user", line.steers.pop(0)[1]))
        job = run.jobs[-1] if run.jobs and run.jobs[-1].state == "open" else None
        if job is None:
            job = _Job(f"job_{next(self._lines.numbers)}", run.run_id)
            run.jobs.append(job)
        if job.tries == _SENDS:
            return None
        job.tries += 1
        job.taker = f"taker_{next(self._lines.numbers)}"
        return job

    def _messages(self, line: _Line) -> tuple[tuple[str, str], ...]:
        told: list[tuple[str, str]] = []
        for position, (run_id, role, text) in enumerate(line.said):
            before = line.said[position - 1][0] if position else run_id
            if before != run_id and before in line.stopped:
                told.append(("user", lane.STOPPED_WORDS))
            told.append((role, text))
        return tuple(told)

    async def _work(self, line: _Line, run: _Run) -> bool:
        for call in run.calls:
            if call.status != "pending":
                continue
            if call.held == "pending":
                return True
            call.status = "running"
            told = await self._world.act(Operation(call.operation_id, call.tool, call.arguments))
            self._tell(line, run, call, "succeeded", told)
        return False

    def _decide(self, line: _Line, run: _Run, call: _Call, approve: bool, request_hash: str) -> bool:
        if call.held != "pending" or call.request_hash != request_hash:
            return False
        call.held = "approved" if approve else "denied"
        if not approve:
            self._tell(line, run, call, "cancelled", DENIED_WORDS)
        return True

    def _tell(self, line: _Line, run: _Run, call: _Call, status: str, words: str) -> None:
        call.status = status
        line.said.append((run.run_id, "tool", words))

    def _close(self, line: _Line, run: _Run, state: str) -> None:
        run.state = state
        for job in run.jobs:
            if job.state == "open":
                job.state = "cancelled" if state == "cancelled" else "unreachable"
        line.queue[:0], line.steers = line.steers, []


def _waits(run: _Run) -> bool:
    return any(call.held == "pending" for call in run.calls)
