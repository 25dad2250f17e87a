"""Any history of sessions, runs, host tools, stops, store failures, crashes and restarts keeps what was acknowledged.

Whatever happened: an acknowledged input is there exactly once and in its session, was sent at most once, its
request id stands for one run for ever, a result once given never changes, each effect happened at most once,
and nothing of a session that was deleted is left.
"""

import asyncio
import json
from collections import Counter
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runtime_host.definitions import AgentDefinition
from runtime_host.drivers.base import Turn
from runtime_host.errors import (
    AgentBusyError,
    AgentClosedError,
    AgentRequestConflictError,
    AgentRuntimeError,
    AgentScopeMismatchError,
    AgentSessionRecoveryError,
    AgentUnresolvedEffectError,
    StorageError,
)
from runtime_host.session import Session, SessionReference
from runtime_host.storage.base import AgentTx
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.testing import Call, Hold, Script, ScriptedDriver, reply
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
from tests.unit.runtime_host.stage import AGENT, ME, Stage, session_options
from tests.unit.runtime_host.test_recovery import crash

SESSIONS: Final = 3
REFUSALS: Final = (
    AgentBusyError,
    AgentSessionRecoveryError,
    AgentClosedError,
    AgentUnresolvedEffectError,
    StorageError,
)

_places = st.integers(0, SESSIONS - 1)
_ids = st.sampled_from(["q0", "q1", "q2"])
_texts = st.sampled_from(["a", "b", "tool"])


class Known:
    """What the outside was told of one session."""

    def __init__(self, reference: SessionReference) -> None:
        self.reference = reference
        self.runs: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.results: dict[str, Any] = {}


class HistoryOfSessions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.memory = MemoryAgentStore()
        self.sent: list[str] = []
        self.effects: Counter[str] = Counter()
        self.gates: list[asyncio.Event] = []
        self.known: dict[int, Known] = {}
        self.open: dict[int, Session] = {}
        self.deleted: list[str] = []
        self.stage = self._stage()

    # ---- the stage ----

    def _stage(self) -> Stage:
        driver = ScriptedDriver(self._script, on_send=lambda turn: self.sent.append(turn.run_id))
        return Stage(store=self.memory, driver=driver, cleanup_s=0.02, checkpoint_s=0.001, resolve_tools=self._resolve)

    def _script(self, turn: Turn) -> Script:
        gate = asyncio.Event()
        self.gates.append(gate)
        first, *rest = reply(f"Answer to {turn.text}", pieces=2)
        call = Call((ToolRequest(f"call-{turn.run_id}", "note", json.dumps({"run": turn.run_id})),))
        return Script([first, Hold(gate), *([call] if turn.text == "tool" else []), *rest])

    async def _note(self, arguments: Any, context: ToolContext) -> str:
        await asyncio.sleep(0)
        self.effects[arguments["run"]] += 1
        await asyncio.sleep(0)
        return "noted"

    async def _receipt(self, call: ToolCall, context: ToolContext) -> ToolReceipt:
        acted = bool(self.effects[call.arguments["run"]])
        report = ToolReport(success=acted, payload="noted" if acted else "never noted")
        return ToolReceipt(call_id=call.call_id, tool=call.tool, run_id=call.run_id, settled=True, report=report)

    async def _resolve(self, names: tuple[str, ...], context: ResolutionContext) -> ResolvedTools:
        parameters = {"type": "object", "properties": {"run": {"type": "string"}}, "required": ["run"]}
        note = HostTool("note", "Notes something.", parameters, self._note)
        return ResolvedTools(tools=(note,), fingerprint="1", reconcile=self._receipt)

    def go(self, work: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(20):
                return await work

        return self.loop.run_until_complete(bounded())

    async def _session(self, place: int) -> Session | None:
        """The open session of a place: the handle, else the one its reference leads to, else a new one."""
        session = self.open.get(place)
        if session is not None and session.state in ("ready", "running", "failed"):
            return session
        try:
            known = self.known.get(place)
            if known is None:
                agent = self.stage.runtime.create_agent(
                    AgentDefinition(id=AGENT, instructions="Be kind.", tools=("note",))
                )
                session = await agent.open_session(session_options())
                self.known[place] = Known(session.reference())
            else:
                session = await self.stage.runtime.resume_session(known.reference, context=ME)
        except StorageError:
            return None
        self.open[place] = session
        return session

    # ---- what happens ----

    @initialize()
    def begin(self) -> None:
        self.go(self._session(0))

    @rule(place=_places, request_id=_ids, text=_texts)
    def input(self, place: int, request_id: str, text: str) -> None:
        async def ask() -> None:
            session = await self._session(place)
            if session is None:
                return
            known = self.known[place]
            said = known.texts.setdefault(request_id, text)
            try:
                run = await session.run(text, request_id=request_id)
            except AgentRequestConflictError:
                assert text != said, "the same input was taken for another"
                return
            except REFUSALS:
                return
            assert text == said or request_id not in known.runs, "two inputs under one id"
            known.texts[request_id] = text
            assert known.runs.setdefault(request_id, run.run_id) == run.run_id, "one request, two runs"

        self.go(ask())

    @rule(place=_places)
    def finish(self, place: int) -> None:
        async def finish() -> None:
            session = self.open.get(place)
            run = session.active_run if session is not None else None
            for _ in range(60):
                for gate in self.gates:
                    gate.set()
                if run is None or run.done:
                    return
                await asyncio.sleep(0.001)

        self.go(finish())

    @rule(place=_places)
    def stop(self, place: int) -> None:
        async def stop() -> None:
            session = self.open.get(place)
            if session is not None and session.active_run is not None:
                try:
                    await session.active_run.cancel()
                except AgentSessionRecoveryError:
                    pass

        self.go(stop())

    @rule(ahead=st.integers(1, 4), after=st.booleans())
    def store_fails_soon(self, ahead: int, after: bool) -> None:
        failing = self.stage.store.commits + ahead
        if after:
            self.stage.store.fail_after = lambda number: number == failing
        else:
            self.stage.store.fail_before = lambda number: number == failing

    @rule(turns=st.integers(0, 15))
    def time_passes(self, turns: int) -> None:
        async def pass_() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.go(pass_())

    @rule(recover=st.booleans())
    def crash_and_restart(self, recover: bool) -> None:
        async def restart() -> None:
            await crash(self.stage)
            self.open.clear()
            self.stage = self._stage()
            if recover:
                await self.stage.runtime.recover(AGENT)

        self.go(restart())

    @rule(place=_places, destroy=st.booleans())
    def leave(self, place: int, destroy: bool) -> None:
        async def leave() -> None:
            session = self.open.get(place)
            if session is None:
                return
            try:
                await (session.destroy() if destroy else session.detach())
            except REFUSALS:
                return
            self.open.pop(place, None)

        self.go(leave())

    @rule(place=_places)
    def delete(self, place: int) -> None:
        async def delete() -> None:
            known = self.known.get(place)
            if known is None:
                return
            try:
                await self.stage.runtime.delete_session(known.reference, context=ME)
            except StorageError:
                # Perhaps gone, perhaps not: the store says which.
                if await self.memory.read(lambda tx: tx.session(known.reference.session_id)) is not None:
                    return
            except AgentScopeMismatchError:
                pass
            except REFUSALS:
                return
            self.deleted.append(known.reference.session_id)
            self.open.pop(place, None)
            del self.known[place]

        self.go(delete())

    @rule(place=_places, request_id=_ids)
    def look(self, place: int, request_id: str) -> None:
        async def look() -> None:
            session, known = self.open.get(place), self.known.get(place)
            if session is None or known is None or request_id not in known.runs:
                return
            try:
                run = await session.get_run(known.runs[request_id])
            except REFUSALS:
                return
            if run.done:
                try:
                    result = await run.result()
                except AgentRuntimeError:
                    assert run.run_id not in known.results, "a result was given and taken back"
                    return
                assert known.results.setdefault(run.run_id, result) == result

        self.go(look())

    # ---- what is always so ----

    @invariant()
    def acknowledged_is_there_once(self) -> None:
        assert max(Counter(self.sent).values(), default=0) <= 1, "an input was sent twice"
        assert max(self.effects.values(), default=0) <= 1, "an effect happened twice"
        self.go(self.memory.read(self._check_store))

    def _check_store(self, tx: AgentTx) -> None:
        for session_id in self.deleted:
            assert (tx.session(session_id), tx.runs(session_id), tx.count_items(session_id)) == (None, [], 0)
        for known in self.known.values():
            session_id = known.reference.session_id
            heads = tx.items(session_id, 0, 1_000, 10)
            assert [head.position for head in heads] == list(range(len(heads)))
            said = {head.run_id: head.text for head in heads if head.kind == "user"}
            assert len(said) == sum(head.kind == "user" for head in heads), "an input is there twice"
            for request_id, run_id in known.runs.items():
                assert said[run_id] == known.texts[request_id]
                record = tx.request(session_id, request_id)
                assert record is not None
                assert record.run_id == run_id
            for run in tx.runs(session_id):
                if run.phase in ("completed", "failed", "cancelled", "incomplete"):
                    assert run.result is not None
                    assert [head for head in heads if head.run_id == run.run_id and head.state == "open"] == []

    def teardown(self) -> None:
        async def end() -> None:
            self.stage.store.fail_before = lambda number: False
            self.stage.store.fail_after = lambda number: False
            await self.stage.runtime.aclose()
            await asyncio.sleep(0)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.go(end())
        self.loop.close()


TestHistoryOfSessions = HistoryOfSessions.TestCase
# 1,000 histories in the long run; with fewer than 60 hardly a session is deleted that has runs in it.
TestHistoryOfSessions.settings = settings(
    max_examples=max(60, settings.default.max_examples // 5 if settings.default else 0),
    stateful_step_count=30,
    deadline=None,
)
