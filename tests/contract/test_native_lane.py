"""The lane of `native.agent` on a real file, against servers of all three protocols.

What is asked is written first, what has no answer is asked again and said so, what is said to a run reaches the model
before its next request, and a stop is told.
"""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputParam
from pydantic import TypeAdapter

from runtime_host.errors import AgentClosedError, AgentDriverConfigurationError, AgentRequestConflictError
from runtime_host.loop import lane
from runtime_host.loop.model_apis.chat_frames import RESULTS_READ
from runtime_host.recovery import ASKED_AGAIN, ASKED_AGAIN_WORDS
from runtime_host.run import Run
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore, AgentTx, ItemHead, RunRecord, SessionRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import EntryRow, InboxRow, ModelDeliveryRow, ModelJobRow, UsageRow
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.tools.base import ToolContext
from tests.loopback.chat_server import Answer, Behaviour, ChatServer
from tests.loopback.messages_server import MessagesServer
from tests.loopback.native import DEFINITION, options_for
from tests.loopback.responses_server import ResponsesServer
from tests.loopback.tools import MortalStore, World, ask, doomed_runtime_on, finish, open_session, runtime_on

VENDORS_TYPES: dict[str, Any] = {
    ChatServer.place: list[ChatCompletionMessageParam],
    ResponsesServer.place: ResponseInputParam,
    MessagesServer.place: list[MessageParam],
}
"""Of what is said to a model, as the vendors' SDKs have it."""


@pytest.fixture(params=[ChatServer, ResponsesServer, MessagesServer])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ChatServer]:
    async with request.param() as opened:
        yield opened


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AgentStore]:
    opened = await open_agent_store(tmp_path / "agent.sqlite3", profile="p", agent="assistant")
    yield opened
    await opened.close()


@pytest.fixture
def world() -> World:
    return World()


async def jobs_of(store: AgentStore, run: Run) -> list[ModelJobRow]:
    return await store.read(lambda tx: lane.jobs(tx, run.session_id, run.run_id))


async def items_of(store: AgentStore, session_id: str) -> list[ItemHead]:
    return await store.read(lambda tx: tx.items(session_id, 0, 100, 200))


async def plain_session(runtime: Any) -> Session:
    session: Session = await runtime.create_agent(DEFINITION).open_session(options_for())
    return session


def bodies(server: ChatServer) -> list[str]:
    return [request.body.decode() for request in server.requests]


async def dies(server: ChatServer, mortal: MortalStore, world: World, *, tools: bool = False) -> None:
    async with doomed_runtime_on(server, mortal, world, checkpoint_s=0.02) as runtime:

        async def live() -> None:
            session = await (open_session(runtime) if tools else plain_session(runtime))
            await ask(session)

        living = asyncio.ensure_future(live())
        async with asyncio.timeout(20):
            await mortal.dead.wait()
        living.cancel()


# ---------------------------------------------------------------------------- what a model is asked


async def test_a_message_alone_asks_nothing_and_the_first_drive_writes_one_job_before_it_is_sent(
    server: ChatServer, store: AgentStore, world: World
) -> None:
    seen: list[tuple[str, int]] = []

    async def reads_the_file(answer: Answer) -> None:
        # Of what is acknowledged, which is on the disk.
        seen.extend((job.state, job.tries) for job in await store.read(lambda tx: tx.rows(ModelJobRow)))
        await type(server)().behaviours["ok"](answer)

    behaviours: dict[str, Behaviour] = {**server.behaviours, "reads": reads_the_file}

    class Reading(type(server)):  # type: ignore[misc]  # one of three
        @property
        def behaviours(self) -> dict[str, Behaviour]:
            return behaviours

    async with Reading(behaviour="reads") as reading, runtime_on(reading, store, world) as runtime:
        session = await plain_session(runtime)
        go_on = asyncio.Event()
        transact = store.transact

        async def waits(fn: Callable[[AgentTx], Any]) -> Any:
            if "mark_dispatched" in fn.__code__.co_names:
                await go_on.wait()
            return await transact(fn)

        store.transact = waits  # type: ignore[method-assign]  # held where the drive begins
        run = await session.run("Hello")
        # Durable, and nothing is asked of it yet.
        assert [item.text for item in await items_of(store, session.session_id)] == ["Hello"]
        assert await jobs_of(store, run) == []
        go_on.set()
        result = await run.result()
        [job] = await jobs_of(store, run)
        usage = await store.read(lambda tx: tx.rows(UsageRow, session_id=session.session_id))
    assert (result.status, seen) == ("completed", [("open", 1)])
    assert (job.state, job.tries, job.number) == ("answered", 1, 1)
    # What the answers cost and what the ledger says is one sum.
    assert result.usage is not None
    assert job.answer is not None
    counted = {row.key.rpartition(":")[2]: int(row.quantity) for row in usage}
    assert counted["output"] == result.usage.output_tokens == job.answer["usage"]["output_tokens"]
    assert {row.resource for row in usage} == {"model.tokens"}


@pytest.mark.parametrize(("dies_after", "sent_before"), [(3, 0), (4, 0)])
async def test_a_host_that_dies_before_it_sends_is_followed_by_one_that_sends_once(
    server: ChatServer, store: AgentStore, world: World, dies_after: int, sent_before: int
) -> None:
    """Session, input, dispatch, job: of what was not sent the next process sends it, and nobody is asked."""
    mortal = MortalStore(store)
    mortal.dies_after = dies_after
    await dies(server, mortal, world)
    assert len(server.requests) == sent_before
    async with runtime_on(server, store, world) as runtime:
        [recovered] = await runtime.recover("assistant")
        assert recovered.outcome == "continued"
        assert recovered.run is not None
        _, result = await finish(recovered.run)
        assert await runtime.recover("assistant") == []
    assert (result.status, len(server.requests)) == ("completed", 1)
    items = await items_of(store, recovered.session_id)
    assert [item.kind for item in items if item.kind != "notice"] == ["user", "reply"]


async def test_a_reply_that_was_cut_by_the_end_of_the_host_is_asked_for_again_and_not_read_back(
    server: ChatServer, store: AgentStore, world: World
) -> None:
    class DiesWithHalfAReply(MortalStore):
        async def transact(self, fn: Any) -> Any:
            result = await super().transact(fn)
            sessions = await self.inner.read(lambda tx: tx.sessions())
            items = await items_of(self.inner, sessions[0].session_id) if sessions else []
            if any(item.kind == "reply" for item in items):
                self.dead.set()
                await asyncio.Event().wait()
            return result

    server.behaviour = "silent-after-text"
    await dies(server, DiesWithHalfAReply(store), world)
    server.behaviour = "ok"
    async with runtime_on(server, store, world) as runtime:
        [recovered] = await runtime.recover("assistant")
        assert recovered.run is not None
        assert recovered.session is not None
        events, result = await finish(recovered.run)
        _, after = await ask(recovered.session, "And then?")
    items = await items_of(store, recovered.session_id)
    assert [(item.kind, item.state) for item in items[:4]] == [
        ("user", "complete"),
        ("reply", "failed"),
        ("notice", "complete"),
        ("reply", "complete"),
    ]
    assert (items[1].code, items[2].code, items[2].text) == (ASKED_AGAIN, ASKED_AGAIN, ASKED_AGAIN_WORDS)
    assert ASKED_AGAIN in [event.data.get("code") for event in events]
    assert (result.status, after.status) == ("completed", "completed")
    assert items[1].text not in bodies(server)[-1].replace(items[3].text, "")
    [job] = await jobs_of(store, recovered.run)
    assert (job.state, job.tries) == ("answered", 2)


@pytest.mark.parametrize("server", [ChatServer], indirect=True)
async def test_a_request_is_sent_three_times_over_restarts_and_then_the_person_decides(
    server: ChatServer, store: AgentStore, world: World
) -> None:
    server.behaviour = "silent-after-text"

    class DiesOnceAsked(MortalStore):
        async def transact(self, fn: Any) -> Any:
            result = await super().transact(fn)
            if server.requests[self.asked :]:
                self.dead.set()
                await asyncio.Event().wait()
            return result

        asked = 0

    await dies(server, DiesOnceAsked(store), world)
    for asked in (1, 2):
        mortal = DiesOnceAsked(store)
        mortal.asked = asked
        async with doomed_runtime_on(server, mortal, world, checkpoint_s=0.02) as runtime, asyncio.timeout(20):
            living = asyncio.ensure_future(runtime.recover("assistant"))
            await mortal.dead.wait()
            living.cancel()
    async with runtime_on(server, store, world) as runtime:
        [recovered] = await runtime.recover("assistant")
        assert recovered.run is not None
        _, result = await finish(recovered.run)
        assert (result.status, len(server.requests)) == ("failed", 3)
        assert result.error is not None
        assert (result.error.code, result.error.retryable) == ("MODEL_UNREACHABLE", True)
        server.behaviour = "ok"
        assert recovered.session is not None
        _, after = await ask(recovered.session, "Again")
        assert after.status == "completed"
    [job] = await jobs_of(store, recovered.run)
    assert (job.state, job.tries) == ("unreachable", 3)


async def test_what_a_provider_wants_back_is_handed_back_after_a_restart(store: AgentStore, world: World) -> None:
    """Signatures of a call are kept with the answer: a provider that insists on them takes the results."""
    async with ChatServer(behaviour="tool-with-extras") as server:

        class DiesWithAResult(MortalStore):
            async def transact(self, fn: Any) -> Any:
                result = await super().transact(fn)
                runs = await self.inner.read(
                    lambda tx: [run for each in tx.sessions() for run in tx.runs(each.session_id)]
                )
                calls = await self.inner.read(lambda tx: [call for run in runs for call in tx.tool_calls(run.run_id)])
                if [call.phase for call in calls] == ["acknowledged"]:
                    self.dead.set()
                    await asyncio.Event().wait()
                return result

        await dies(server, DiesWithAResult(store), world, tools=True)
        async with runtime_on(server, store, world) as runtime:
            [recovered] = await runtime.recover("assistant")
            assert recovered.run is not None
            _, result = await finish(recovered.run)
        assert (result.status, world.effects) == ("completed", ["Paris"])
        # Both answers are counted, the one from before as well.
        assert result.usage is not None
        assert result.usage.output_tokens == 16


@pytest.mark.parametrize("server", [ChatServer], indirect=True)
async def test_a_host_that_dies_again_before_it_asks_again_is_followed_by_one_that_does(
    server: ChatServer, store: AgentStore, world: World
) -> None:
    server.behaviour = "silent-after-text"

    class DiesOnceAsked(MortalStore):
        async def transact(self, fn: Any) -> Any:
            result = await super().transact(fn)
            if server.requests:
                self.dead.set()
                await asyncio.Event().wait()
            return result

    await dies(server, DiesOnceAsked(store), world)
    for dies_after in (3, 3):
        mortal = MortalStore(store)
        # What is open, the session, and that the run goes on; not what it asks.
        mortal.dies_after = dies_after
        async with doomed_runtime_on(server, mortal, world) as runtime, asyncio.timeout(20):
            living = asyncio.ensure_future(runtime.recover("assistant"))
            await mortal.dead.wait()
            living.cancel()
    assert len(server.requests) == 1
    server.behaviour = "ok"
    async with runtime_on(server, store, world) as runtime:
        [recovered] = await runtime.recover("assistant")
        assert recovered.run is not None
        _, result = await finish(recovered.run)
    notices = [item for item in await items_of(store, recovered.session_id) if item.kind == "notice"]
    assert (result.status, len(server.requests), len(notices)) == ("completed", 2, 1)


# ----------------------------------------------------------------------------------- said to a run


async def test_what_is_said_while_a_tool_runs_is_in_the_next_request_and_stops_nothing(
    server: ChatServer, store: AgentStore, world: World
) -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def act(city: str, _: ToolContext) -> Any:
        at_work.set()
        await go_on.wait()
        return {"city": city}

    server.behaviour, world.act = "tool-single", act
    async with runtime_on(server, store, world) as runtime, asyncio.timeout(20):
        session = await open_session(runtime)
        run = await session.run("What is the weather?")
        await at_work.wait()
        said = await run.steer("In Celsius, please.", request_id="s-1")
        assert await run.steer("In Celsius, please.", request_id="s-1") == said
        assert [(each.kind, each.text) for each in await session.queued()] == [("steer", "In Celsius, please.")]
        go_on.set()
        events, result = await finish(run)
        assert (result.status, world.effects) == ("completed", ["Paris"])
        assert ["Celsius" in body for body in bodies(server)] == [False, True]
        items = await items_of(store, session.session_id)
        assert [(item.kind, item.text) for item in items if item.kind in ("user", "tool")][0::2] == [
            ("user", "What is the weather?"),
            ("user", "In Celsius, please."),
        ]
        [told] = [event.data for event in events if event.type == "run.steered"]
        assert (told["inbox"], told["index"]) == (said, 2)
        assert await session.queued() == ()
        # The next run reads it where it was said: after the result, before the answer.
        server.behaviour = "ok"
        await ask(session, "Thanks")
    last = bodies(server)[-1]
    assert last.count("Celsius") == 1
    assert last.index("What is the weather?") < last.index("call_a") < last.index("Celsius") < last.index("It says")
    with pytest.raises(AgentClosedError):
        await run.steer("Too late")


async def test_a_queued_message_that_is_said_now_waits_once_after_every_commit(
    server: ChatServer, store: AgentStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the host ended, it would be said once: not twice, and not lost."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def act(city: str, _: ToolContext) -> Any:
        at_work.set()
        await go_on.wait()
        return {"city": city}

    server.behaviour, world.act = "tool-single", act
    async with runtime_on(server, store, world) as runtime, asyncio.timeout(20):
        session = await open_session(runtime)
        run = await session.run("What is the weather?")
        await at_work.wait()
        queued = await session.queue("In Celsius, please.")
        transact = store.transact
        waiting: list[list[str]] = []

        async def watched(fn: Callable[[AgentTx], Any]) -> Any:
            done = await transact(fn)
            rows = await store.read(lambda tx: tx.rows(InboxRow, state="waiting"))
            waiting.append([row.kind for row in rows if row.text == queued.text])
            return done

        monkeypatch.setattr(store, "transact", watched)
        await run.steer(queued.text, f"now-{queued.inbox_id}", taking=queued.inbox_id)
        assert waiting
        assert all(kinds in (["follow_up"], ["steer"]) for kinds in waiting), waiting
        assert waiting[-1] == ["steer"]
        with pytest.raises(AgentDriverConfigurationError, match="removed by now"):
            await run.steer(queued.text, taking=queued.inbox_id)
        monkeypatch.undo()
        go_on.set()
        _, result = await finish(run)
    assert result.status == "completed"
    assert bodies(server)[-1].count("Celsius") == 1


async def test_what_is_said_to_a_run_is_a_message_of_the_person_behind_the_results(
    server: ChatServer, store: AgentStore, world: World
) -> None:
    """As the vendors' own types have it, and in the order that their servers insist on."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def act(city: str, _: ToolContext) -> Any:
        at_work.set()
        await go_on.wait()
        return {"city": city}

    server.behaviour, world.act = "tool-parallel", act
    async with runtime_on(server, store, world) as runtime, asyncio.timeout(20):
        run = await (await open_session(runtime)).run("What is the weather?")
        await at_work.wait()
        await run.steer("In Celsius, please.")
        await run.steer("And in Kelvin.")
        go_on.set()
        assert (await run.result()).status == "completed"
    request = server.requests[-1].json()
    told = request.get("messages", request.get("input"))
    TypeAdapter(VENDORS_TYPES[server.place]).validate_python(told)
    words = told[-1]
    results = [each for each in told if each.get("role") == "tool" or each.get("type") == "function_call_output"]
    said = "In Celsius, please.\n\nAnd in Kelvin."
    if isinstance(server, MessagesServer):
        # One message of the person has all of it: first every result, then what was said.
        results = [block for block in words["content"] if block["type"] == "tool_result"]
        assert words["role"] == "user"
        assert words["content"] == [*results, {"type": "text", "text": said}]
    else:
        # Strict servers of chat completions take nothing but a reply behind results.
        between = [{"role": "assistant", "content": RESULTS_READ}] if server.place == ChatServer.place else []
        assert told[-3 - len(between) :] == [*results, *between, words]
        assert (words["role"], words["content"]) == ("user", said)
    assert [each.get("tool_call_id", each.get("call_id", each.get("tool_use_id"))) for each in results] == [
        "call_a",
        "call_b",
    ]


async def test_what_is_said_during_the_last_reply_leads_to_another(
    server: ChatServer, store: AgentStore, world: World
) -> None:
    server.behaviour, server.tokens_per_s = "slow", 60.0
    async with runtime_on(server, store, world) as runtime, asyncio.timeout(20):
        session = await plain_session(runtime)
        run = await session.run("Hello")
        async for event in run.events():
            if event.type == "agent.message.delta":
                await run.steer("Shorter.")
                server.behaviour = "ok"
                break
        result = await run.result()
        items = await items_of(store, session.session_id)
        assert (result.status, len(server.requests)) == ("completed", 2)
        assert [item.kind for item in items] == ["user", "reply", "user", "reply"]
        jobs = await jobs_of(store, run)
        assert [job.state for job in jobs] == ["answered", "answered"]
        await ask(session, "And now?")
    assert bodies(server)[-1].count("Shorter.") == 1


async def test_what_is_said_survives_the_end_of_the_host_and_is_told_once(
    server: ChatServer, store: AgentStore, world: World
) -> None:
    at_work = asyncio.Event()

    async def act(city: str, _: ToolContext) -> Any:
        if not at_work.is_set():
            at_work.set()
            await asyncio.Event().wait()
        return {"city": city}

    server.behaviour, world.act, world.proves = "tool-single", act, True
    mortal = MortalStore(store)
    async with doomed_runtime_on(server, mortal, world) as runtime, asyncio.timeout(20):
        session = await open_session(runtime)
        run = await session.run("What is the weather?")
        await at_work.wait()
        await run.steer("In Celsius, please.")
    world.remember("call_a", run.run_id)
    async with runtime_on(server, store, world) as runtime:
        [recovered] = await runtime.recover("assistant")
        assert recovered.run is not None
        assert recovered.session is not None
        _, result = await finish(recovered.run)
        assert (result.status, world.effects) == ("completed", ["Paris"])
        assert ["Celsius" in body for body in bodies(server)] == [False, True]
        assert bodies(server)[-1].count("Celsius") == 1
        server.behaviour = "ok"
        await ask(recovered.session, "Thanks")
    assert bodies(server)[-1].count("Celsius") == 1


async def test_what_is_said_too_late_is_the_next_message(server: ChatServer, store: AgentStore, world: World) -> None:
    """A reply that ends early takes nothing more: what was said to it is sent next, ahead of what was queued."""
    server.behaviour = "length"
    async with runtime_on(server, store, world) as runtime, asyncio.timeout(20):
        session = await plain_session(runtime)
        run = await session.run("Hello")
        await session.queue("Then this")
        await run.steer("First this")
        await run.wait_settled()
        while await session.queued() or session.active_run is not None:  # noqa: ASYNC110  # of a state of its own
            await asyncio.sleep(0.005)
        items = await items_of(store, session.session_id)
    assert [item.text for item in items if item.kind == "user"] == ["Hello", "First this", "Then this"]


async def test_a_follow_up_is_in_no_request_until_the_run_has_ended(
    server: ChatServer, store: AgentStore, world: World
) -> None:
    async def act(city: str, _: ToolContext) -> Any:
        await session.queue("And in Rome?", request_id="q-1")
        await session.queue("And in Rome?", request_id="q-1")
        return {"city": city}

    server.behaviour, world.act = "tool-single", act
    server.script = ["tool-single", "tool-single", "ok"]
    async with runtime_on(server, store, world) as runtime, asyncio.timeout(20):
        session = await open_session(runtime)
        await ask(session)
        while await session.queued() or session.active_run is not None:  # noqa: ASYNC110  # of a state of its own
            await asyncio.sleep(0.005)
    assert ["Rome" in body for body in bodies(server)] == [False, False, True]


# ------------------------------------------------------------------------------------------- a stop


async def test_a_stop_is_told_to_the_model_once_and_a_stop_of_nothing_writes_nothing(
    server: ChatServer, store: AgentStore, world: World
) -> None:
    server.behaviour = "silent-after-text"
    async with runtime_on(server, store, world) as runtime, asyncio.timeout(20):
        session = await plain_session(runtime)
        run = await session.run("Write a novel")
        async for event in run.events():
            if event.type == "agent.message.delta":
                break
        await run.cancel()
        [mark] = await store.read(lambda tx: tx.rows(EntryRow, session_id=session.session_id))
        assert (mark.type, mark.run_id) == ("cancelled", run.run_id)
        [job] = await jobs_of(store, run)
        assert job.state == "cancelled"
        await run.cancel()
        await session.cancel_active_run()
        assert len(await store.read(lambda tx: tx.rows(EntryRow, session_id=session.session_id))) == 1
        server.behaviour = "ok"
        await ask(session, "A haiku instead")
        await ask(session, "Thanks")
    told = json.dumps(lane.STOPPED_WORDS)[1:-1]
    assert [body.count(told) for body in bodies(server)] == [0, 1, 1]
    second = bodies(server)[1]
    assert second.index("Write a novel") < second.index(told) < second.index("A haiku instead")


# ------------------------------------------------------------------------------------- the rows alone


async def job_row(store: AgentStore, taker: str = "t1") -> ModelJobRow:
    def write(tx: AgentTx) -> ModelJobRow | None:
        session = {"scope_digest": "", "created_ms": 1, "definition": {}, "options": {}}
        tx.put_session(SessionRecord(session_id="s", **session))  # type: ignore[arg-type]
        tx.put_run(RunRecord(run_id="r", session_id="s", phase="dispatched", created_ms=1, input={}))
        return lane.ask(tx, session_id="s", run_id="r", request={"model": "m"}, taker=taker, now_ms=1)

    job = await store.transact(write)
    assert job is not None
    return job


def answered(tx: AgentTx, job_id: str, taker: str) -> str:
    usage = {"output_tokens": 7, "input_tokens": None}
    return lane.answer(tx, job_id=job_id, taker=taker, reason="stop", model="m", usage=usage, now_ms=2)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_first_answer_is_taken_and_every_other_one_is_metered_only(kind: str, store: AgentStore) -> None:
    store = MemoryAgentStore() if kind == "memory" else store
    job = await job_row(store)
    verdicts = [
        await store.transact(functools.partial(answered, job_id=job.job_id, taker=taker))
        for taker in ("t1", "t2", "t2")
    ]
    assert verdicts == ["accepted", "unaccepted", "unaccepted"]
    rows = await store.read(lambda tx: tx.rows(UsageRow, session_id="s"))
    assert [(row.resource, row.quantity) for row in rows] == [
        ("model.tokens", 7.0),
        ("model.tokens.unaccepted", 7.0),
    ]
    deliveries = await store.read(lambda tx: tx.rows(ModelDeliveryRow, job_id=job.job_id))
    assert [each.verdict for each in deliveries] == ["accepted", "unaccepted"]


async def test_an_answer_after_a_stop_is_billed_and_not_placed(store: AgentStore) -> None:
    job = await job_row(store)

    def stop(tx: AgentTx) -> None:
        lane.end_run(tx, session_id="s", run_id="r", stopped=True, marks=True, now_ms=2)

    await store.transact(stop)
    assert await store.transact(lambda tx: answered(tx, job.job_id, "t1")) == "late"
    row = await store.read(lambda tx: tx.row(ModelJobRow, job.job_id))
    assert row is not None
    assert (row.state, row.answer) == ("cancelled", None)
    assert [row.quantity for row in await store.read(lambda tx: tx.rows(UsageRow, session_id="s"))] == [7.0]


async def test_a_key_that_was_used_is_one_row_and_one_turn(server: ChatServer, store: AgentStore, world: World) -> None:
    async with runtime_on(server, store, world) as runtime, asyncio.timeout(20):
        session = await plain_session(runtime)
        runs = [await session.run("Hello", request_id="once") for _ in range(2)]
        await runs[0].result()
        assert (await session.run("Hello", request_id="once")).run_id == runs[1].run_id == runs[0].run_id
        with pytest.raises(AgentRequestConflictError):
            await session.run("Other", request_id="once")
        one, two = await asyncio.gather(session.queue("Next", request_id="k"), session.queue("Next", request_id="k"))
        assert one.inbox_id == two.inbox_id
        while await session.queued() or session.active_run is not None:  # noqa: ASYNC110  # of a state of its own
            await asyncio.sleep(0.005)
        rows = await store.read(lambda tx: tx.rows(InboxRow, session_id=session.session_id))
    assert [(row.text, row.state) for row in rows] == [("Next", "taken")]
    assert len(server.requests) == 2
