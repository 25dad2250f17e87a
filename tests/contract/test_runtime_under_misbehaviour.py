"""What the runtime makes of each harness that lets it down: a true verdict, one native input, a session that tells."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal, NamedTuple, get_args

import pytest

from runtime_host.errors import AgentSessionRecoveryError
from runtime_host.events import AgentEvent
from runtime_host.redaction import Redactor
from runtime_host.results import AgentResult
from runtime_host.run import Run, Windows
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.testing.driver_contract import FarBehaviour
from runtime_host.testing.misbehaviour import SECRET, Misbehaviour, ScriptedBench
from runtime_host.testing.scripted import Hold, Script, Wait, reply
from tests.unit.runtime_host.stage import until

WINDOW_S: Final = 0.05
"""How long the runtime waits for a native side here."""


class Verdict(NamedTuple):
    """What must come of a run.

    Attributes:
        how: how the far side takes the input.
        stopped: whether the person stops the run once it has said something.
        ends: its status; `unknown` when nobody can know.
        sent: how often the harness sent the input.
    """

    ends: Literal["completed", "failed", "cancelled", "unknown"]
    how: FarBehaviour = "answers"
    stopped: bool = False
    sent: int = 1


VERDICTS: Final[dict[Misbehaviour, Verdict]] = {
    "late-start": Verdict("unknown", stopped=True, sent=0),
    "deaf-start": Verdict("unknown", stopped=True, sent=0),
    # What a harness sends by itself the runtime cannot take back; it asks for it once.
    "sends-twice": Verdict("completed", sent=2),
    "sends-a-failure-again": Verdict("failed", "fails", sent=2),
    "sends-a-lost-input-again": Verdict("unknown", "loses-acceptance", sent=2),
    "claims-a-lost-input": Verdict("completed", "loses-acceptance"),
    "foreign-event": Verdict("failed"),
    "event-that-is-no-json": Verdict("failed"),
    "reply-of-other-pieces": Verdict("completed"),
    "double-finish": Verdict("completed"),
    "never-finished-item": Verdict("completed"),
    "silent-end": Verdict("failed"),
    "endless-result": Verdict("unknown"),
    "changing-result": Verdict("completed"),
    "failure-without-words": Verdict("failed", "fails"),
    "half-is-whole": Verdict("completed", "breaks-off"),
    "hanging-cancel": Verdict("unknown", "waits", stopped=True),
    "deaf-cancel": Verdict("unknown", "waits", stopped=True),
    "deaf-flood": Verdict("unknown", "floods", stopped=True),
    "completed-after-cancel": Verdict("cancelled", "waits", stopped=True),
    "cancel-takes-the-result": Verdict("completed"),
    "hanging-close": Verdict("completed"),
    "failing-close": Verdict("completed"),
    "state-that-is-no-json": Verdict("completed"),
    "state-that-fails": Verdict("completed"),
    "state-with-the-credential": Verdict("completed"),
    "inspection-sends": Verdict("completed", sent=2),
    "sessions-share-their-end": Verdict("completed"),
    "forgets-all": Verdict("completed"),
    "forget-sends": Verdict("completed"),
    "forgets-once-only": Verdict("completed"),
    "hanging-forget": Verdict("completed"),
    "crash-before-sending": Verdict("failed", sent=0),
    "crash-after-sending": Verdict("failed"),
    "crash-between-events": Verdict("failed"),
    "crash-before-the-result": Verdict("failed"),
    "crash-in-cancel": Verdict("unknown", "waits", stopped=True),
}


def test_there_is_a_verdict_on_every_misbehaviour() -> None:
    assert set(VERDICTS) == set(get_args(Misbehaviour))


class Connectors:
    def __init__(self) -> None:
        self.redactor = Redactor()
        self.redactor.add(SECRET)


class Scene(NamedTuple):
    bench: ScriptedBench
    store: MemoryAgentStore
    runtime: AgentRuntime
    session: Session


@asynccontextmanager
async def scene_of(misbehaviour: Misbehaviour) -> AsyncIterator[Scene]:
    bench, store = ScriptedBench(misbehaviour), MemoryAgentStore()

    async def storage(_: str) -> AgentStore:
        return store

    backend = LocalBackend(
        drivers=[bench.driver()], storage=storage, connectors=Connectors(), windows=Windows(cleanup_s=WINDOW_S)
    )
    try:
        async with AgentRuntime(backend) as runtime, asyncio.timeout(20):
            session = await runtime.create_agent(bench.definition).open_session(bench.options)
            yield Scene(bench, store, runtime, session)
    finally:
        await bench.aclose()


async def played(session: Session, verdict: Verdict) -> tuple[Run, list[AgentEvent], AgentResult | None]:
    """One run, and what a reader and the person learn of it."""
    run = await session.run("Hello", request_id="once")
    reading = asyncio.ensure_future(_read(run))
    if verdict.stopped:
        await until(lambda: bool(run.open_items()) or not verdict.sent)
        try:
            await run.cancel()
        except AgentSessionRecoveryError:
            pass
    if verdict.ends != "unknown":
        return run, await reading, await run.result()
    with pytest.raises(AgentSessionRecoveryError) as told:
        await run.result()
    assert told.value.run_id == run.run_id
    assert told.value.details["reference"] == session.reference().model_dump(mode="json")
    assert not told.value.retryable
    return run, await reading, None


async def _read(run: Run) -> list[AgentEvent]:
    return [event async for event in run.events()]


@pytest.mark.parametrize("misbehaviour", get_args(Misbehaviour))
async def test_the_verdict_is_true_and_the_input_was_sent_once(misbehaviour: Misbehaviour) -> None:
    verdict = VERDICTS[misbehaviour]
    async with scene_of(misbehaviour) as (bench, store, _, session):
        bench.behave(verdict.how)
        run, events, result = await played(session, verdict)
        ends = [event for event in events if event.type == "run.finished"]
        assert (result.status if result is not None else "unknown") == verdict.ends
        assert [turn.run_id for turn in bench.drivers[0].turns] == [run.run_id]
        assert bench.sent() == verdict.sent
        if result is None:
            assert ends == []
            assert session.state == "failed"
            assert session.inspect_state().quarantined
        else:
            assert ends == events[-1:]
            assert result.status != "failed" or (result.error is not None and result.error.message)
            assert (result.error is None) == (result.status != "failed")
            assert session.state == "ready"
        # What the store says is what was told, nothing stays open, and the id goes on standing for this run.
        stored = await store.read(lambda tx: tx.run(run.run_id))
        assert stored is not None
        assert stored.phase == verdict.ends
        items = await store.read(lambda tx: tx.items(session.session_id, 0, 100, 100))
        assert [item.text for item in items if item.kind == "user"] == ["Hello"]
        assert [item for item in items if item.state == "open"] == []
        assert await session.run("Hello", request_id="once") is run
        assert len(bench.drivers[0].turns) == 1


@pytest.mark.parametrize("misbehaviour", get_args(Misbehaviour))
async def test_another_session_goes_on(misbehaviour: Misbehaviour) -> None:
    verdict = VERDICTS[misbehaviour]
    async with scene_of(misbehaviour) as (bench, _, runtime, session):
        bench.behave(verdict.how)
        await played(session, verdict)
        bench.misbehaviour = None
        bench.behave("answers")
        other = await runtime.create_agent(bench.definition).open_session(bench.options)
        assert (await (await other.run("Hello")).result()).status == "completed"


async def test_a_credential_in_a_harness_state_is_not_stored() -> None:
    async with scene_of("state-with-the-credential") as (_, store, _, session):
        await (await session.run("Hello")).result()
        for status in ("open", "detached"):
            record = await store.read(lambda tx: tx.session(session.session_id))
            assert record is not None
            assert record.driver_state is not None
            assert record.status == status
            assert "key" in record.driver_state
            assert SECRET not in str(record.driver_state)
            # Put away, it is asked for its state once more.
            await session.detach()


async def test_a_start_that_comes_late_but_within_the_window_is_stopped_and_cancelled() -> None:
    async with scene_of("late-start") as (bench, _, _, session):
        bench.drivers[0].scripts = [Script((*reply("Late"), Hold(asyncio.Event())), start=Wait(WINDOW_S / 5))]
        run = await session.run("Hello")
        await until(lambda: bool(bench.drivers[0].turns))
        await run.cancel()
        assert (await run.result()).status == "cancelled"
        assert session.state == "ready"
        assert bench.drivers[0].cancels == 1
