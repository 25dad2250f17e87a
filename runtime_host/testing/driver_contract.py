"""What every driver must do, as a suite a new harness subclasses.

Owns the checks of `runtime_host.drivers.base`, alone and inside the runtime. Must not know any harness.
A subclass is ten lines: it gives the fixture `bench`, a `DriverBench`.

    class TestMyDriver(AgentDriverContract):
        @pytest.fixture
        async def bench(self):
            async with MyServer() as server:
                yield MyBench(server)

Needs pytest and pytest-asyncio in its auto mode. `runtime_host.testing.misbehaviour` shows for each
case a driver that fails it.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeVar, get_args

import msgspec

from runtime_host.canonical import NotJsonError, freeze
from runtime_host.definitions import AgentDefinition, SessionOptions
from runtime_host.drivers.base import (
    AgentDriver,
    DriverRun,
    DriverSession,
    SessionOpening,
    TranscriptMessage,
    Turn,
)
from runtime_host.errors import AgentCapabilityUnsupportedError, AgentSessionRecoveryError
from runtime_host.events import DriverEvent, EventType
from runtime_host.results import DriverResult
from runtime_host.run import Run, Windows
from runtime_host.runtime import AgentRuntime, Connectors, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.tools.base import HOST_TOOLS, HostTool, ResolutionContext, ResolvedTools, ToolResolver

T = TypeVar("T")

FarBehaviour = Literal["answers", "waits", "fails", "breaks-off", "loses-acceptance", "floods"]
"""How the far side takes the next inputs: it answers in several pieces; says something and then nothing
more; refuses with an error; breaks off in the middle; takes the input and never says so; never stops
saying something."""

_ENDING: Final[tuple[FarBehaviour, ...]] = ("answers", "fails", "breaks-off", "loses-acceptance")
DRIVER_EVENTS: Final = frozenset(name for name in get_args(EventType) if not name.startswith("run."))
TURN_EVENTS: Final = 256
"""Events read before the loop gets its turn, as the runtime does it."""


class DriverBench(Protocol):
    """A driver with the far side it talks to, which does what it is told.

    Attributes:
        definition, options: what sessions are opened with.
        patience_s: how long an answer of the driver may take.
        secret: a credential the driver uses, which must appear nowhere; empty without one.
    """

    @property
    def definition(self) -> AgentDefinition: ...
    @property
    def options(self) -> SessionOptions: ...
    @property
    def patience_s(self) -> float: ...
    @property
    def secret(self) -> str: ...
    @property
    def connectors(self) -> Connectors | None:
        """What the runtime masks with."""
        ...

    def driver(self) -> AgentDriver:
        """A driver of its own for each call."""
        ...

    def behave(self, how: FarBehaviour) -> None:
        """Tell the far side how to take the inputs from now on."""
        ...

    def sent(self) -> int:
        """Inputs that the far side was given so far."""
        ...

    async def aclose(self) -> None:
        """End whatever is left of drivers and far side."""
        ...


class Outcome(NamedTuple):
    events: list[DriverEvent]
    result: DriverResult

    def joined(self) -> dict[str, str]:
        """The pieces of each reply, joined."""
        texts: dict[str, str] = {}
        for event in self.events:
            if event.type == "agent.message.delta":
                texts[event.data["id"]] = texts.get(event.data["id"], "") + event.data["text"]
        return texts

    def completed(self) -> list[tuple[str, str]]:
        """Replies that were finished, in order."""
        done = [event.data for event in self.events if event.type == "agent.message.completed"]
        return [(data["id"], data["text"]) for data in done]


class AgentDriverContract:
    """Subclass as `Test…`, with a fixture `bench`. For a harness that calls host tools there is `HostToolsContract`."""

    host_tools: ClassVar[bool] = False

    # ---- looking and opening ----

    async def test_looking_and_opening_send_nothing(self, bench: DriverBench) -> None:
        async with _driver(bench) as driver:
            said = await _within(bench, driver.inspect(bench.definition, bench.options), "inspect")
            assert said.driver_id == driver.driver_id == bench.options.execution.driver
            session = await _open(bench, driver)
            await _close(bench, session)
        assert bench.sent() == 0, "looking at a binding or opening a session reached the far side"

    # ---- sending ----

    async def test_a_start_answers_in_time(self, bench: DriverBench) -> None:
        async with _session(bench) as session:
            await _within(bench, session.start(_turn(bench)), "start")

    async def test_a_start_that_is_given_up_ends(self, bench: DriverBench) -> None:
        async with _session(bench) as session:
            starting = asyncio.ensure_future(session.start(_turn(bench)))
            await asyncio.sleep(0)
            starting.cancel()
            await _ended(bench, starting, "a start that was given up")

    async def test_an_input_is_sent_once(self, bench: DriverBench) -> None:
        async with _session(bench) as session:
            await _drive(bench, session)
        assert bench.sent() == 1

    async def test_an_input_that_failed_is_not_sent_again(self, bench: DriverBench) -> None:
        bench.behave("fails")
        async with _session(bench) as session:
            await _drive(bench, session)
        assert bench.sent() == 1

    async def test_a_lost_acceptance_is_told_and_nothing_is_sent_again(self, bench: DriverBench) -> None:
        bench.behave("loses-acceptance")
        async with _session(bench) as session:
            try:
                outcome = await _drive(bench, session)
            except AgentSessionRecoveryError:
                pass
            else:
                assert outcome.result.status == "failed", "an input nobody answered was taken for a success"
                assert outcome.result.error is not None
        assert bench.sent() == 1

    # ---- what comes ----

    async def test_only_events_of_a_driver_are_yielded(self, bench: DriverBench) -> None:
        async with _session(bench) as session:
            for event in (await _drive(bench, session)).events:
                assert isinstance(event, DriverEvent)
                assert event.type in DRIVER_EVENTS, f"{event.type} is no event of a driver"
                try:
                    freeze(event.data)
                except NotJsonError as error:
                    raise AssertionError(f"{event.type} carries what is no JSON: {error}") from None

    async def test_the_pieces_of_a_reply_are_the_reply(self, bench: DriverBench) -> None:
        async with _session(bench) as session:
            outcome = await _drive(bench, session)
        assert outcome.result.status == "completed"
        assert outcome.result.error is None
        assert outcome.result.output_text
        assert len([event for event in outcome.events if event.type == "agent.message.delta"]) > 1
        for item_id, text in outcome.completed():
            assert outcome.joined().get(item_id, text) == text
        assert outcome.result.output_text == "".join(text for _, text in outcome.completed()[-1:])

    async def test_each_item_is_finished_once(self, bench: DriverBench) -> None:
        async with _session(bench) as session:
            outcome = await _drive(bench, session)
        finished = [item_id for item_id, _ in outcome.completed()]
        assert len(finished) == len(set(finished)), "a message was finished twice"
        last_end = {item_id: number for number, item_id in enumerate(_ids(outcome.events, "agent.message.completed"))}
        assert set(_ids(outcome.events, "agent.message.delta")) <= set(last_end), "a message was never finished"

    async def test_the_result_is_there_once_the_events_have_ended(self, bench: DriverBench) -> None:
        async with _session(bench) as session:
            run = await _within(bench, session.start(_turn(bench)), "start")
            await _within(bench, _events(run), "the end of the events")
            result: object = await _within(bench, run.result(), "the result")
        assert isinstance(result, DriverResult), "the run ended without saying how"

    async def test_a_result_never_changes(self, bench: DriverBench) -> None:
        async with _session(bench) as session:
            run = await _within(bench, session.start(_turn(bench)), "start")
            await _within(bench, _events(run), "the end of the events")
            first = await _within(bench, run.result(), "the result")
            assert await _within(bench, run.result(), "the result again") == first

    # ---- faults ----

    async def test_a_failure_is_a_result_with_code_and_sentence(self, bench: DriverBench) -> None:
        bench.behave("fails")
        async with _session(bench) as session:
            result = (await _drive(bench, session)).result
        assert result.status == "failed"
        assert result.error is not None
        assert result.error.code
        assert len(result.error.message) > 10

    async def test_what_breaks_off_is_never_completed(self, bench: DriverBench) -> None:
        bench.behave("breaks-off")
        async with _session(bench) as session:
            result: DriverResult | None = None
            try:
                result = (await _drive(bench, session)).result
            except AgentSessionRecoveryError:
                return
        assert result.status in ("failed", "incomplete"), "half an answer was taken for a whole one"

    async def test_no_error_of_the_far_side_crosses(self, bench: DriverBench) -> None:
        for how in _ENDING:
            bench.behave(how)
            async with _session(bench) as session:
                try:
                    await _drive(bench, session)
                except AgentSessionRecoveryError:
                    pass

    # ---- stopping ----

    async def test_a_cancel_answers_in_time(self, bench: DriverBench) -> None:
        async with _stopped(bench) as (run, reading):
            await _cancel(bench, run)
            reading.cancel()

    async def test_after_a_cancel_the_events_end(self, bench: DriverBench) -> None:
        async with _stopped(bench) as (run, reading):
            await _cancel(bench, run)
            await _ended(bench, reading, "the events after a cancel")

    async def test_a_flood_can_be_stopped(self, bench: DriverBench) -> None:
        async with _stopped(bench, "floods") as (run, reading):
            await _cancel(bench, run)
            await _ended(bench, reading, "a flood after a cancel")

    async def test_what_was_cancelled_is_not_completed(self, bench: DriverBench) -> None:
        async with _stopped(bench) as (run, reading):
            await _cancel(bench, run)
            await _ended(bench, reading, "the events after a cancel")
            result = await _within(bench, run.result(), "the result after a cancel")
        assert result.status == "cancelled", f"a run that was stopped says it is {result.status}"

    async def test_a_cancel_again_or_after_the_end_changes_nothing(self, bench: DriverBench) -> None:
        async with _session(bench) as session:
            run = await _within(bench, session.start(_turn(bench)), "start")
            await _within(bench, _events(run), "the end of the events")
            result = await _within(bench, run.result(), "the result")
            for _ in range(2):
                await _cancel(bench, run)
            assert await _within(bench, run.result(), "the result again") == result

    async def test_a_close_ends_what_runs_and_may_be_repeated(self, bench: DriverBench) -> None:
        bench.behave("waits")
        async with _driver(bench) as driver:
            session = await _open(bench, driver)
            run = await _within(bench, session.start(_turn(bench)), "start")
            reading = asyncio.ensure_future(_events(run))
            await asyncio.sleep(0.01)
            for _ in range(2):
                await _close(bench, session)
            await _ended(bench, reading, "the events after a close")

    # ---- keeping ----

    async def test_a_state_is_json_without_a_credential_and_goes_on(self, bench: DriverBench) -> None:
        async with _session(bench) as session:
            await _drive(bench, session)
            state = _state(session)
        try:
            text = json.dumps(msgspec.to_builtins(freeze(state)))
        except NotJsonError as error:
            raise AssertionError(f"the state is no JSON: {error}") from None
        assert not bench.secret or bench.secret not in text
        async with _session(bench, json.loads(text)) as again:
            outcome = await _drive(bench, again, "And then?", earlier=(TranscriptMessage("user", "Hello"),))
        assert outcome.result.status == "completed"
        assert bench.sent() == 2

    async def test_sessions_do_not_know_each_other(self, bench: DriverBench) -> None:
        async with _driver(bench) as driver:
            bench.behave("waits")
            waiting = await _open(bench, driver, "one")
            run = await _within(bench, waiting.start(_turn(bench)), "start")
            reading = asyncio.ensure_future(_events(run))
            await _until(bench, lambda: bench.sent() == 1)
            bench.behave("answers")
            other = await _open(bench, driver, "two")
            assert (await _drive(bench, other)).result.status == "completed"
            await _close(bench, other)
            await asyncio.sleep(0.02)
            assert not reading.done(), "the end of one session ended another"
            await _close(bench, waiting)
            reading.cancel()

    async def test_what_is_kept_of_a_session_is_forgotten_alone(self, bench: DriverBench) -> None:
        agent_id = bench.definition.id
        async with _driver(bench) as driver:
            gone, kept = await _open(bench, driver, "gone"), await _open(bench, driver, "kept")
            assert (await _drive(bench, gone)).result.status == "completed"
            state = _state(gone)
            await _close(bench, gone)
            # The first is asked for again, as after a crash between it and the record; of the last nothing is known.
            for session_id, known in (("gone", state), ("gone", state), ("never there", None)):
                await _forget(bench, driver, agent_id, session_id, known)
            assert bench.sent() == 1, "forgetting a session reached the far side"
            assert (await _drive(bench, kept)).result.status == "completed", "forgetting a session ended another"
            await _close(bench, kept)
        async with _driver(bench) as other:
            # A later process, in which it was never open.
            await _forget(bench, other, agent_id, "kept", None)

    # ---- in the runtime ----

    async def test_in_the_runtime_a_run_begins_streams_and_finishes(self, bench: DriverBench) -> None:
        async with _in_runtime(bench) as session:
            run = await session.run("Hello", request_id="first")
            events = [event async for event in run.events()]
            result = await run.result()
            assert await session.run("Hello", request_id="first") is run
            assert (result.status, result.error) == ("completed", None)
            assert (events[0].type, events[-1].type) == ("run.started", "run.finished")
            assert [event.sequence for event in events] == sorted({event.sequence for event in events})
            published = json.dumps([event.model_dump(mode="json") for event in events]) + result.model_dump_json()
            assert not bench.secret or bench.secret not in published
            second = await (await session.run("And then?")).result()
            assert second.status == "completed"
        assert bench.sent() == 2

    async def test_in_the_runtime_a_stop_is_cancelled_and_the_session_goes_on(self, bench: DriverBench) -> None:
        bench.behave("waits")
        async with _in_runtime(bench) as session:
            run = await session.run("Hello")
            await _first_text(bench, run)
            await _within(bench, run.cancel(), "the stop")
            assert (await run.result()).status == "cancelled"
            assert session.state == "ready"
            bench.behave("answers")
            assert (await (await session.run("Again")).result()).status == "completed"

    async def test_in_the_runtime_host_tools_are_carried_by_their_contract_or_refused(self, bench: DriverBench) -> None:
        definition = bench.definition.model_copy(update={"tools": ("look",)})
        async with _runtime(bench, resolve_tools=_one_tool) as runtime:
            try:
                await runtime.create_agent(definition).open_session(bench.options)
            except AgentCapabilityUnsupportedError:
                return
        assert self.host_tools, f"a driver that says {HOST_TOOLS} has to keep HostToolsContract"

    async def test_in_the_runtime_a_failure_is_told_and_the_session_goes_on(self, bench: DriverBench) -> None:
        bench.behave("fails")
        async with _in_runtime(bench) as session:
            result = await (await session.run("Hello")).result()
            assert result.status == "failed"
            assert result.error is not None
            bench.behave("answers")
            assert (await (await session.run("Again")).result()).status == "completed"
        assert bench.sent() == 2


# ------------------------------------------------------------------------------------------ steps

_numbers = itertools.count(1)


def _turn(bench: DriverBench, text: str = "Hello", earlier: tuple[TranscriptMessage, ...] = ()) -> Turn:
    async def read_transcript() -> tuple[TranscriptMessage, ...]:
        return earlier

    return Turn(
        run_id=f"run_{next(_numbers)}",
        text=text,
        model=bench.options.execution.model,
        reasoning=bench.options.execution.reasoning,
        read_transcript=read_transcript,
    )


async def _within(bench: DriverBench, work: Awaitable[T], what: str) -> T:
    """The answer of `work`, which may take no longer than the bench is patient."""
    task = asyncio.ensure_future(work)
    await _ended(bench, task, what)
    return task.result()


async def _ended(bench: DriverBench, task: "asyncio.Future[T]", what: str) -> None:
    done, _ = await asyncio.wait({task}, timeout=bench.patience_s)
    if not done:
        task.cancel()
        raise AssertionError(f"{what} took longer than {bench.patience_s:g} s")


async def _until(bench: DriverBench, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(bench.patience_s):
        while not condition():  # noqa: ASYNC110  # a far side is plain data
            await asyncio.sleep(0.005)


async def _events(run: DriverRun, first: "asyncio.Event | None" = None) -> list[DriverEvent]:
    """All events of a run, of a flood the first; the loop gets its turns meanwhile."""
    kept: list[DriverEvent] = []
    taken = 0
    async for event in run.events():
        taken += 1
        if len(kept) < 10_000:
            kept.append(event)
        if first is not None:
            first.set()
        if taken % TURN_EVENTS == 0:
            await asyncio.sleep(0)
    return kept


async def _drive(
    bench: DriverBench, session: DriverSession, text: str = "Hello", *, earlier: tuple[TranscriptMessage, ...] = ()
) -> Outcome:
    """One turn from beginning to end. Of a driver nothing crosses but what says that nobody knows."""
    try:
        run = await _within(bench, session.start(_turn(bench, text, earlier)), "start")
        events = await _within(bench, _events(run), "the end of the events")
        result: object = await _within(bench, run.result(), "the result")
    except (AgentSessionRecoveryError, AssertionError):
        raise
    except Exception as error:
        raise AssertionError(f"an error of the far side crossed the driver: {error!r}") from error
    assert isinstance(result, DriverResult), "the run ended without saying how"
    return Outcome(events, result)


async def _cancel(bench: DriverBench, run: DriverRun) -> None:
    try:
        await _within(bench, run.cancel(), "cancel")
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"a cancel failed: {error!r}") from error


def _ids(events: list[DriverEvent], kind: str) -> list[str]:
    return [event.data["id"] for event in events if event.type == kind]


async def _forget(
    bench: DriverBench, driver: AgentDriver, agent_id: str, session_id: str, state: dict[str, Any] | None
) -> None:
    try:
        await _within(bench, driver.forget(agent_id, session_id, state), "forget")
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"what is kept of a session could not be removed: {error!r}") from error


def _state(session: DriverSession) -> dict[str, Any]:
    try:
        return session.state()
    except Exception as error:
        raise AssertionError(f"the session cannot say where it stands: {error!r}") from error


@contextlib.asynccontextmanager
async def _driver(bench: DriverBench) -> AsyncIterator[AgentDriver]:
    driver = bench.driver()
    try:
        yield driver
    finally:
        try:
            for _ in range(2):
                await _within(bench, driver.aclose(), "aclose")
        finally:
            await bench.aclose()


async def _open(
    bench: DriverBench, driver: AgentDriver, name: str = "session", state: dict[str, Any] | None = None
) -> DriverSession:
    opening = SessionOpening(session_id=name, definition=bench.definition, options=bench.options, state=state)
    return await _within(bench, driver.open(opening), "open")


async def _close(bench: DriverBench, session: DriverSession) -> None:
    try:
        await _within(bench, session.close(), "close")
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"a close failed: {error!r}") from error


@contextlib.asynccontextmanager
async def _session(bench: DriverBench, state: dict[str, Any] | None = None) -> AsyncIterator[DriverSession]:
    async with _driver(bench) as driver:
        session = await _open(bench, driver, state=state)
        try:
            yield session
        except BaseException:
            # What failed is told, not what a close made of it.
            with contextlib.suppress(Exception):
                await _close(bench, session)
            raise
        await _close(bench, session)


@contextlib.asynccontextmanager
async def _stopped(
    bench: DriverBench, how: FarBehaviour = "waits"
) -> AsyncIterator[tuple[DriverRun, "asyncio.Task[list[DriverEvent]]"]]:
    """A run that has said something and goes on, with its reader."""
    bench.behave(how)
    async with _session(bench) as session:
        run = await _within(bench, session.start(_turn(bench)), "start")
        first = asyncio.Event()
        reading = asyncio.create_task(_events(run, first))
        await _within(bench, first.wait(), "the first event")
        try:
            yield run, reading
        finally:
            reading.cancel()


@contextlib.asynccontextmanager
async def _in_runtime(bench: DriverBench) -> AsyncIterator[Session]:
    async with _runtime(bench) as runtime:
        yield await runtime.create_agent(bench.definition).open_session(bench.options)


async def _one_tool(names: tuple[str, ...], _: ResolutionContext) -> ResolvedTools:
    tools = tuple(HostTool(name, "Looks.", {"type": "object"}, lambda *_: None) for name in names)
    return ResolvedTools(tools=tools, fingerprint="1")


@contextlib.asynccontextmanager
async def _runtime(bench: DriverBench, resolve_tools: ToolResolver | None = None) -> AsyncIterator[AgentRuntime]:
    store = MemoryAgentStore()

    async def storage(_: str) -> AgentStore:
        return store

    backend = LocalBackend(
        drivers=[bench.driver()],
        storage=storage,
        connectors=bench.connectors,
        windows=Windows(cleanup_s=bench.patience_s),
        resolve_tools=resolve_tools,
        # For as long as the suite knows; a harness at a service wants to be told so.
        durability="durable",
    )
    try:
        async with AgentRuntime(backend) as runtime, asyncio.timeout(bench.patience_s * 8):
            yield runtime
    finally:
        await bench.aclose()


async def _first_text(bench: DriverBench, run: Run) -> None:
    await _until(bench, lambda: bool(run.open_items()))
