"""How a session stands: what is not resolved and since when, how far that was looked into, what can be read no more."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from runtime_host.definitions import AgentDefinition
from runtime_host.errors import (
    AgentCapabilityUnsupportedError,
    AgentConfigurationChangedError,
    AgentSessionRecoveryError,
    AgentUnresolvedEffectError,
)
from runtime_host.events import DriverEvent
from runtime_host.session import Session
from runtime_host.storage.base import AgentTx, RunRecord, ToolCallRecord
from runtime_host.testing import Flood, Hold, Script, reply
from runtime_host.tools.base import (
    ReconcileBounds,
    ResolutionContext,
    ResolvedTools,
    ToolCall,
    ToolContext,
    ToolReceipt,
)
from tests.loopback.tools import World
from tests.unit.runtime_host.stage import AGENT, ME, Stage, able, all_events, session_options, until

WITH_LOOK = AgentDefinition(id=AGENT, tools=("look",))


def just_now(moment: datetime | None) -> bool:
    return moment is not None and timedelta(0) <= datetime.now(UTC) - moment < timedelta(minutes=1)


async def interrupted(stage: Stage, calls: int, created_ms: int = 1_700_000_000_000) -> Session:
    """A session, put away, of which an earlier process left calls that were interrupted."""
    session = await stage.runtime.create_agent(WITH_LOOK).open_session(session_options())

    def leave(tx: AgentTx) -> None:
        tx.put_run(
            RunRecord(
                run_id="run_1",
                session_id=session.session_id,
                phase="unknown",
                created_ms=1,
                input={"item_id": "i", "position": 0, "text": "Hi"},
            )
        )
        for number in range(calls):
            tx.put_tool_call(
                ToolCallRecord(
                    session_id=session.session_id,
                    run_id="run_1",
                    call_id=f"call_{number}",
                    tool="look",
                    arguments='{"city": "Paris"}',
                    phase="interrupted",
                    created_ms=created_ms,
                )
            )

    await stage.memory.transact(leave)
    await session.detach()
    return session


# ------------------------------------------------------------------------------------------ since when


async def test_what_is_not_resolved_says_since_when() -> None:
    script = Script([*reply("Half")[:1], Hold(asyncio.Event())], cancel="ignored")
    async with Stage(script, cleanup_s=0.05) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: bool(run.open_items()))
        with pytest.raises(AgentSessionRecoveryError):
            await run.cancel()
        [effect] = session.inspect_state().unresolved_effects
        assert (effect.kind, effect.id) == ("input", run.run_id)
        assert just_now(effect.since)
        await session.destroy()
        # Opened again in the process that could not confirm it, it still says what is not known.
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        [kept] = again.inspect_state().unresolved_effects
        assert (kept.kind, kept.id) == ("input", run.run_id)
        assert just_now(kept.since)


async def test_of_a_tool_it_is_when_its_call_was_recorded_and_unknown_where_nobody_wrote_it_down() -> None:
    for created_ms, since in ((1_700_000_000_000, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)), (0, None)):
        async with Stage(resolve_tools=World().resolve) as stage:
            kept = await interrupted(stage, 1, created_ms)
            session = await stage.runtime.resume_session(kept.reference(), context=ME)
            [effect] = session.inspect_state().unresolved_effects
            assert (effect.id, effect.tool, effect.since) == ("call_0", "look", since)
            told = session.inspect_state().model_dump(mode="json")["unresolved_effects"][0]["since"]
            assert told == (None if since is None else "2023-11-14T22:13:20Z")


# -------------------------------------------------------------------------------- how far it was looked


async def test_a_look_that_stops_says_how_far_it_looked_and_the_next_goes_on() -> None:
    world = World(proves=True)
    async with Stage(resolve_tools=world.resolve, reconcile_bounds=ReconcileBounds(calls=2)) as stage:
        kept = await interrupted(stage, 5)
        session = await stage.runtime.resume_session(kept.reference(), context=ME)
        looked = session.inspect_state().reconciliation
        assert looked is not None
        assert (looked.unresolved, looked.looked_at, looked.found, looked.stopped_by) == (5, 2, 0, "calls")
        with pytest.raises(AgentUnresolvedEffectError, match="looked into 2 of 5 interrupted calls") as refused:
            await session.run("Go on")
        assert refused.value.details["reconciliation"]["stopped_by"] == "calls"
        with pytest.raises(AgentUnresolvedEffectError, match="looked into 2 of 5 interrupted calls"):
            await stage.runtime.delete_session(session.reference(), context=ME)
        for number in range(5):
            world.remember(f"call_{number}", "run_1")
        # The two that were asked about wait until the others had their turn.
        assert [len(await session.reconcile()) for _ in range(3)] == [3, 1, 0]
        assert world.reconciled == 7
        done = session.inspect_state().reconciliation
        assert done is not None
        assert (done.unresolved, done.looked_at, done.found, done.stopped_by) == (1, 1, 1, None)
        assert done.in_words() == ""
        assert world.effects == [], "a look executed something"


async def test_a_source_that_never_answers_holds_a_look_up_no_longer_than_it_may_take() -> None:
    async def hangs(call: ToolCall, _: ToolContext) -> ToolReceipt | None:
        await asyncio.Event().wait()
        return None

    async def resolve(names: tuple[str, ...], context: ResolutionContext) -> ResolvedTools:
        return replace(await World().resolve(names, context), reconcile=hangs)

    bounds = ReconcileBounds(each_s=0.04, all_s=0.1)
    async with Stage(resolve_tools=resolve, reconcile_bounds=bounds) as stage, asyncio.timeout(20):
        kept = await interrupted(stage, 50)
        session = await stage.runtime.resume_session(kept.reference(), context=ME)
        looked = session.inspect_state().reconciliation
        assert looked is not None
        assert (looked.unresolved, looked.stopped_by) == (50, "time")
        assert 1 <= looked.looked_at < 50
        assert "as long as one look may take" in looked.in_words()


# -------------------------------------------------------------------------------------- events that went


async def test_a_gap_in_the_history_is_told_when_events_went_and_not_before() -> None:
    many = Script([Flood(400), *reply("x" * 100)])
    async with Stage(Script(reply("One.")), many, Script(reply("Three."))) as stage:
        session = await stage.open()
        first = await session.run("Hi")
        await first.result()
        await all_events(first)
        assert not session.inspect_state().history_gap
        await session.detach()
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        assert again.inspect_state().history_gap, "the first run's events can be read no more"


async def test_evicted_and_expired_events_are_a_gap() -> None:
    said = [DriverEvent("agent.message.completed", {"id": f"m{number}", "text": "x" * 100}) for number in range(40)]
    async with Stage(Script(said), journal_bytes=2048, checkpoint_s=5) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await run.result()
        assert run.journal.statistics().dropped_events
        assert session.inspect_state().history_gap, "evicted from the journal that is kept"
    async with Stage(Script(reply("word " * 150)), journal_bytes=4096) as stage:
        session = await stage.open()
        gaps = []
        for number in range(8):
            await (await session.run(f"message {number}")).result()
            gaps.append(session.inspect_state().history_gap)
        assert (gaps[0], gaps[-1]) == (False, True), "journals of ended runs expired"


async def test_a_session_that_was_only_opened_and_one_with_an_unsent_message_have_no_gap() -> None:
    async with Stage() as stage:
        session = await stage.open()
        await session.detach()
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        assert not again.inspect_state().history_gap


# --------------------------------------------------------------------------- what no harness here can do


async def test_what_a_harness_of_this_computer_cannot_do_is_refused_by_name_and_changes_nothing() -> None:
    async with Stage(Script([*reply("Half")[:1], Hold(asyncio.Event())])) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: bool(run.open_items()))
        for asked, capability in (
            (session.upload_file(path="in.txt", media_type="text/plain"), "file.transfer"),
            (session.download_artifact(reference="r", path="out.txt"), "file.transfer"),
            (run.steer("faster"), "run.steer"),
            (run.respond_to_interaction("i", {"answer": "yes"}), "run.interaction"),
        ):
            with pytest.raises(AgentCapabilityUnsupportedError) as refused:
                await asked
            assert refused.value.details["capability"] == capability
        assert session.state == "running"
        await run.cancel()
        assert len(stage.driver.turns) == 1


# ------------------------------------------------------------------------------- configured otherwise


@pytest.mark.parametrize(
    ("was", "now", "goes_on"),
    [("r1", "r1", True), ("r1", "r2", False), ("r1", None, False), (None, "r1", False), (None, None, True)],
)
async def test_a_session_goes_on_only_with_its_harness_configured_as_it_was(
    was: str | None, now: str | None, goes_on: bool
) -> None:
    first = able(scripts=[Script(reply("Hello."))], configuration_revision=was)
    async with Stage(driver=first) as stage:
        session = await stage.open()
        assert session.inspection.configuration_revision == was
        await (await session.run("Hi")).result()
    later = able(scripts=[Script(reply("Again."))], configuration_revision=now)
    async with Stage(driver=later, store=stage.memory) as stage:
        if goes_on:
            back = await stage.runtime.resume_session(session.reference(), context=ME)
            assert (await (await back.run("more")).result()).output_text == "Again."
            return
        with pytest.raises(AgentConfigurationChangedError, match="configured otherwise") as refused:
            await stage.runtime.resume_session(session.reference(), context=ME)
        assert refused.value.details == {"changed": "configuration_revision"}
        assert later.openings == []
        # Back as it was, it goes on: nothing was migrated.
        later.configuration_revision = was
        await stage.runtime.resume_session(session.reference(), context=ME)


async def test_another_configuration_is_another_execution_of_the_same_definition() -> None:
    digests: list[Mapping[str, str]] = []
    for revision in (None, "r1", "r2"):
        async with Stage(driver=able(scripts=[Script()], configuration_revision=revision)) as stage:
            told = await stage.runtime.create_agent(AgentDefinition(id=AGENT)).inspect(session_options())
            digests.append({"definition": told.definition_digest, "execution": told.execution_digest})
    assert len({each["definition"] for each in digests}) == 1
    assert len({each["execution"] for each in digests}) == 3
