"""What every engine has to do: subclass `EngineContract` and give it a bench.

Owns the statements. Must not know an engine's insides: it asks the port, the world it gives, and what the bench reads.
Invariant: a process that ends is an exception out of `drive`, and the engine after it is another object.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import pytest

from runtime_host.loop.engine import DENIED_WORDS, UNKNOWN_WORDS, Answer, Engine, Job, Operation, Wanted
from runtime_host.loop.lane import STOPPED_WORDS


class Ended(BaseException):
    """The process ended here."""


class HeldRequest(NamedTuple):
    """A held call as it was recorded."""

    operation_id: str
    tool: str
    arguments: Mapping[str, Any]
    request_hash: str


class ScriptedWorld:
    """Answers what it is told, counts what it was asked, and may end the process before or after."""

    def __init__(self) -> None:
        self.sent: list[Job] = []
        self.effects: list[tuple[str, Mapping[str, Any]]] = []
        self.answers: list[Answer] = []
        self.at: Callable[[str], None] = lambda point: None

    async def send(self, job: Job) -> Answer:
        self.at("before send")
        self.sent.append(job)
        self.at("sent")
        return self.answers.pop(0) if self.answers else Answer(f"Answer {len(self.sent)}", usage={"output_tokens": 5})

    async def act(self, operation: Operation) -> str:
        self.at("before effect")
        self.effects.append((operation.tool, dict(operation.arguments)))
        self.at("after effect")
        return f"{operation.tool} done"

    def holds(self, tool: str) -> bool:
        return tool == "delete"


class EngineBench(Protocol):
    """One store of lines with a session `s`, and what is read of it besides the port."""

    world: ScriptedWorld

    def engine(self) -> Engine:
        """An engine as a new process has it."""
        ...

    async def said(self) -> list[tuple[str, str]]:
        """What was said in the session, as role and words, in order."""
        ...

    async def jobs(self) -> list[tuple[str, int]]:
        """State and tries of what models were asked, in order."""
        ...

    async def held(self) -> list[HeldRequest]: ...
    async def metered(self) -> list[tuple[str, float]]:
        """Resource and quantity of everything that was used."""
        ...


def at(point: str) -> Callable[[str], None]:
    """Ends the process once, there."""
    left = [point]

    def ended(now: str) -> None:
        if now in left:
            left.remove(now)
            raise Ended(now)

    return ended


DELETE = Answer("I will.", (Wanted("delete", {"path": "a"}),), {"output_tokens": 5})


class EngineContract:
    """Subclass it and give a fixture `bench`."""

    async def _until_still(self, engine: Engine) -> None:
        for _ in range(20):
            if (await engine.drive("s")).wake_in_ms is None:
                return
        raise AssertionError("it never comes to rest")

    async def test_what_is_accepted_is_there_in_the_next_process(self, bench: EngineBench) -> None:
        await bench.engine().accept("s", "Hello", dedup_key="1")
        assert await bench.engine().wake() == ("s",)
        await self._until_still(bench.engine())
        assert await bench.said() == [("user", "Hello"), ("assistant", "Answer 1")]

    async def test_accepting_asks_nothing_and_the_first_pass_asks_once(self, bench: EngineBench) -> None:
        engine = bench.engine()
        await engine.accept("s", "Hello", dedup_key="1")
        assert (await bench.jobs(), bench.world.sent) == ([], [])
        await engine.drive("s")
        assert (await bench.jobs(), len(bench.world.sent)) == ([("answered", 1)], 1)
        assert (await engine.drive("s")).open == 0
        assert len(bench.world.sent) == 1

    async def test_a_request_is_kept_before_it_is_sent(self, bench: EngineBench) -> None:
        engine = bench.engine()
        await engine.accept("s", "Hello", dedup_key="1")
        bench.world.at = at("before send")
        with pytest.raises(Ended):
            await engine.drive("s")
        assert await bench.jobs() == [("open", 1)]

    async def test_a_key_that_was_used_is_one_message_and_one_turn(self, bench: EngineBench) -> None:
        engine = bench.engine()
        first = await engine.accept("s", "Hello", dedup_key="1")
        assert await engine.accept("s", "Hello", dedup_key="1") == first
        await self._until_still(engine)
        assert await bench.engine().accept("s", "Hello", dedup_key="1") == first
        await self._until_still(engine)
        assert (len(bench.world.sent), [role for role, _ in await bench.said()]) == (1, ["user", "assistant"])

    async def test_ended_between_writing_and_sending_it_is_sent_once(self, bench: EngineBench) -> None:
        await bench.engine().accept("s", "Hello", dedup_key="1")
        bench.world.at = at("before send")
        with pytest.raises(Ended):
            await bench.engine().drive("s")
        await self._until_still(bench.engine())
        assert (len(bench.world.sent), [role for role, _ in await bench.said()]) == (1, ["user", "assistant"])

    async def test_a_request_without_an_answer_is_sent_three_times_at_most(self, bench: EngineBench) -> None:
        await bench.engine().accept("s", "Hello", dedup_key="1")
        for _ in range(3):
            bench.world.at = at("sent")
            with pytest.raises(Ended):
                await bench.engine().drive("s")
        gone = await bench.engine().drive("s")
        assert (len(bench.world.sent), gone.open, len(gone.settled)) == (3, 0, 1)
        assert await bench.jobs() == [("unreachable", 3)]

    async def test_a_second_answer_is_refused_and_metered(self, bench: EngineBench) -> None:
        engine = bench.engine()
        await engine.accept("s", "Hello", dedup_key="1")
        await self._until_still(engine)
        [job] = bench.world.sent
        other = Answer("Another", usage={"output_tokens": 7})
        assert await engine.collect(job.job_id, "taker-2", other) == "unaccepted"
        assert await engine.collect(job.job_id, "taker-2", other) == "unaccepted"
        assert ("assistant", "Another") not in await bench.said()
        assert await bench.metered() == [("model.tokens", 5.0), ("model.tokens.unaccepted", 7.0)]

    async def test_an_answer_after_a_stop_is_metered_and_not_placed(self, bench: EngineBench) -> None:
        engine = bench.engine()
        await engine.accept("s", "Hello", dedup_key="1")
        bench.world.at = at("sent")
        with pytest.raises(Ended):
            await engine.drive("s")
        [job] = bench.world.sent
        assert await engine.cancel("s") == job.run_id
        late = Answer("Too late", usage={"output_tokens": 7})
        assert await engine.collect(job.job_id, job.taker, late) == "late"
        assert await bench.said() == [("user", "Hello")]
        assert await bench.metered() == [("model.tokens.unaccepted", 7.0)]
        assert await engine.list_open() == ()
        # The next request says that it was stopped; a stop of nothing is none.
        assert await engine.cancel("s") is None
        await engine.accept("s", "Another thing", dedup_key="2")
        await self._until_still(engine)
        assert bench.world.sent[-1].messages == (
            ("user", "Hello"),
            ("user", STOPPED_WORDS),
            ("user", "Another thing"),
        )

    async def test_what_is_said_meanwhile_steers_and_a_follow_up_waits(self, bench: EngineBench) -> None:
        engine = bench.engine()
        await engine.accept("s", "Hello", dedup_key="1")
        bench.world.answers = [Answer("Let me.", (Wanted("look", {}),))]
        bench.world.at = at("before effect")
        with pytest.raises(Ended):
            await engine.drive("s")
        await engine.accept("s", "Shorter", dedup_key="2")
        await engine.accept("s", "Then this", dedup_key="3", kind="follow_up")
        await self._until_still(engine)
        second, third = bench.world.sent[1].messages, bench.world.sent[2].messages
        assert ("user", "Shorter") in second
        assert ("user", "Then this") not in second
        assert third[-1] == ("user", "Then this")

    async def test_a_held_call_is_recorded_and_nothing_goes_on_until_it_is_decided(self, bench: EngineBench) -> None:
        engine = bench.engine()
        await engine.accept("s", "Delete a", dedup_key="1")
        bench.world.answers = [DELETE]
        held = await engine.drive("s")
        assert (held.open, held.wake_in_ms, held.settled) == (1, None, ())
        [request] = await bench.held()
        assert (request.tool, dict(request.arguments)) == ("delete", {"path": "a"})
        for _ in range(20):
            await bench.engine().drive("s")
        assert (len(bench.world.sent), bench.world.effects) == (1, [])
        [waiting] = await engine.list_open()
        assert (waiting.waits_for, await engine.wake()) == ("decision", ())

    async def test_a_decision_counts_once_and_only_of_the_request_it_names(self, bench: EngineBench) -> None:
        engine = bench.engine()
        await engine.accept("s", "Delete a", dedup_key="1")
        bench.world.answers = [DELETE]
        await engine.drive("s")
        [request] = await bench.held()
        assert not await engine.decide(request.operation_id, approve=True, request_hash="another")
        assert not await engine.decide("op_none", approve=True, request_hash=request.request_hash)
        assert await engine.decide(request.operation_id, approve=True, request_hash=request.request_hash)
        assert not await engine.decide(request.operation_id, approve=False, request_hash=request.request_hash)
        await self._until_still(engine)
        # The recorded request, once.
        assert bench.world.effects == [("delete", {"path": "a"})]

    async def test_of_decisions_that_race_one_counts(self, bench: EngineBench) -> None:
        await bench.engine().accept("s", "Delete a", dedup_key="1")
        bench.world.answers = [DELETE]
        await bench.engine().drive("s")
        [request] = await bench.held()
        counted = await asyncio.gather(
            *(
                bench.engine().decide(request.operation_id, approve=True, request_hash=request.request_hash)
                for _ in range(8)
            )
        )
        assert counted.count(True) == 1
        await self._until_still(bench.engine())
        assert bench.world.effects == [("delete", {"path": "a"})]

    async def test_a_held_call_of_a_stopped_run_is_decided_no_more(self, bench: EngineBench) -> None:
        engine = bench.engine()
        await engine.accept("s", "Delete a", dedup_key="1")
        bench.world.answers = [DELETE]
        await engine.drive("s")
        [request] = await bench.held()
        assert await engine.cancel("s") is not None
        assert not await engine.decide(request.operation_id, approve=True, request_hash=request.request_hash)
        assert (await engine.list_open(), await engine.wake(), await bench.held()) == ((), (), [])
        await self._until_still(engine)
        assert bench.world.effects == []

    async def test_a_run_that_a_process_left_is_listed_as_open_and_wakes(self, bench: EngineBench) -> None:
        await bench.engine().accept("s", "Hello", dedup_key="1")
        assert await bench.engine().list_open() == ()
        bench.world.at = at("sent")
        with pytest.raises(Ended):
            await bench.engine().drive("s")
        [left] = await bench.engine().list_open()
        assert (left.session_id, left.waits_for, await bench.engine().wake()) == ("s", "drive", ("s",))
        # Asking for it sends nothing.
        assert len(bench.world.sent) == 1

    async def test_a_denial_is_told_and_nothing_is_done(self, bench: EngineBench) -> None:
        engine = bench.engine()
        await engine.accept("s", "Delete a", dedup_key="1")
        bench.world.answers = [DELETE]
        await engine.drive("s")
        [request] = await bench.held()
        await engine.decide(request.operation_id, approve=False, request_hash=request.request_hash)
        await self._until_still(engine)
        assert bench.world.effects == []
        assert [each for each in bench.world.sent[-1].messages if each[0] == "tool"] == [("tool", DENIED_WORDS)]

    async def test_approved_and_ended_before_it_began_it_is_done_once(self, bench: EngineBench) -> None:
        await bench.engine().accept("s", "Delete a", dedup_key="1")
        bench.world.answers = [DELETE]
        await bench.engine().drive("s")
        [request] = await bench.held()
        await bench.engine().decide(request.operation_id, approve=True, request_hash=request.request_hash)
        assert await bench.engine().wake() == ("s",)
        await self._until_still(bench.engine())
        await self._until_still(bench.engine())
        assert bench.world.effects == [("delete", {"path": "a"})]

    @pytest.mark.parametrize("point", ["before effect", "after effect"])
    async def test_ended_within_an_effect_it_is_unknown_and_not_repeated(self, bench: EngineBench, point: str) -> None:
        await bench.engine().accept("s", "Look", dedup_key="1")
        bench.world.answers = [Answer("Let me.", (Wanted("look", {}),))]
        bench.world.at = at(point)
        with pytest.raises(Ended):
            await bench.engine().drive("s")
        effects = list(bench.world.effects)
        await self._until_still(bench.engine())
        assert bench.world.effects == effects
        assert ("tool", UNKNOWN_WORDS) in bench.world.sent[-1].messages
        assert (await bench.said())[-1][0] == "assistant"
