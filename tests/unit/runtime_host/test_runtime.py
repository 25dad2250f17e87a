import asyncio

import pytest

from runtime_host.canonical import digest
from runtime_host.capabilities import DriverInspection
from runtime_host.definitions import AgentDefinition, SessionOptions, TrustedContext
from runtime_host.drivers.base import DriverSession, SessionOpening
from runtime_host.errors import (
    AgentBusyError,
    AgentClosedError,
    AgentDriverConfigurationError,
    AgentDriverNotFoundError,
    AgentNativeExecutionError,
    AgentPolicyUnsupportedError,
    AgentScopeMismatchError,
    StorageFailedError,
)
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import SessionReference
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.testing import Hold, Script, ScriptedDriver, reply
from tests.unit.runtime_host.stage import AGENT, ME, Stage, session_options, until

OTHERS = [
    TrustedContext(tenant_id="home", user_id="you"),
    TrustedContext(tenant_id="work", user_id="me"),
    TrustedContext(tenant_id="home", user_id="me", group_id="g"),
    TrustedContext(),
]


async def no_storage(agent_id: str) -> AgentStore:
    raise AssertionError("no store is needed for this")


async def test_inspect_has_no_effect_and_says_what_was_bound() -> None:
    driver = ScriptedDriver([Script()])
    other = ScriptedDriver([Script()], driver_id="other")
    runtime = AgentRuntime(LocalBackend(drivers=[driver, other], storage=no_storage))
    agent = runtime.create_agent(AgentDefinition(id=AGENT, instructions="Be kind."))
    one = await agent.inspect(session_options())
    two = await agent.inspect(session_options(driver="other"))
    assert (driver.inspections, driver.openings, driver.turns) == (1, [], [])
    assert one.definition_digest == two.definition_digest
    assert one.execution_digest != two.execution_digest
    assert one.capabilities["run.cancel"].support == "native"
    assert one.replay.event_buffer_bytes == 1024 * 1024
    same = await agent.inspect(session_options(context=OTHERS[0]))
    assert same.execution_digest == one.execution_digest, "whose session it is, is no part of the binding"
    await runtime.aclose()


async def test_bad_definitions_and_bindings_are_refused_in_words() -> None:
    runtime = AgentRuntime(LocalBackend(drivers=[ScriptedDriver([Script()])], storage=no_storage))
    with pytest.raises(AgentDriverConfigurationError, match="definition option id"):
        runtime.create_agent({"id": "  "})
    agent = runtime.create_agent({"id": AGENT})
    with pytest.raises(AgentDriverNotFoundError, match=r"no\.such"):
        await agent.inspect(session_options(driver="no.such"))
    with pytest.raises(AgentDriverConfigurationError, match="driver_config"):
        await agent.inspect(session_options(driver_config={"a": b"bytes"}))
    with pytest.raises(AgentDriverConfigurationError, match="resolver"):
        await runtime.create_agent({"id": AGENT, "tools": ["lookup"]}).inspect(session_options())
    await runtime.aclose()


def test_two_drivers_of_one_name_are_refused() -> None:
    with pytest.raises(AgentDriverConfigurationError, match="scripted"):
        LocalBackend(drivers=[ScriptedDriver([]), ScriptedDriver([])], storage=no_storage)
    with pytest.raises(AgentDriverConfigurationError, match="1024"):
        LocalBackend(drivers=[], storage=no_storage, max_session_journal_bytes=1023)


async def test_a_session_the_driver_refuses_leaves_nothing_behind() -> None:
    class Strict(ScriptedDriver):
        async def inspect(self, definition: AgentDefinition, options: SessionOptions) -> DriverInspection:
            raise AgentPolicyUnsupportedError("This harness cannot hold that.")

    for driver, error in (
        (Strict([]), AgentPolicyUnsupportedError),
        (ScriptedDriver([], open_fails=AgentNativeExecutionError("No.", native_code="X")), AgentNativeExecutionError),
        (ScriptedDriver([], open_fails=OSError("vendor")), AgentNativeExecutionError),
    ):
        async with Stage(driver=driver) as stage:
            with pytest.raises(error):
                await stage.open()
            assert await stage.memory.read(lambda tx: tx.sessions()) == []


async def test_what_the_caller_changes_later_does_not_reach_the_session() -> None:
    config = {"a": [1]}
    async with Stage() as stage:
        session = await stage.open(driver_config=config)
        config["a"].append(2)
        assert session.options.execution.driver_config == {"a": (1,)}
        assert stage.driver.openings[0].options.execution.driver_config == {"a": (1,)}
        with pytest.raises(TypeError):
            session.options.execution.driver_config["b"] = 1


@pytest.mark.parametrize("context", OTHERS)
async def test_a_foreign_scope_learns_nothing(context: TrustedContext) -> None:
    async with Stage() as stage:
        session = await stage.open()
        reference = session.reference()
        missing = reference.model_copy(update={"session_id": "session_none"})
        said = set()
        for some in (reference, missing):
            for call in (stage.runtime.resume_session, stage.runtime.delete_session):
                with pytest.raises(AgentScopeMismatchError) as refused:
                    await call(some, context=context)
                said.add((refused.value.message, repr(refused.value.details)))
        assert len(said) == 1, "a foreign session reads differently from one that is not there"
        # Nor does one that says it is theirs: whose a session is is in its record.
        claimed = reference.model_copy(update={"scope_digest": digest(context.scope())})
        for call in (stage.runtime.resume_session, stage.runtime.delete_session):
            with pytest.raises(AgentScopeMismatchError):
                await call(claimed, context=context)
        # A reference with the right words on it opens nothing either.
        forged = reference.model_copy(update={"scope_digest": "f" * 64})
        with pytest.raises(AgentScopeMismatchError):
            await stage.runtime.resume_session(forged, context=ME)
        assert await stage.memory.read(lambda tx: len(tx.sessions())) == 1


async def test_a_reference_survives_json_and_holds_no_names() -> None:
    async with Stage() as stage:
        session = await stage.open()
        text = session.reference().model_dump_json()
        assert SessionReference.model_validate_json(text) == session.reference()
        assert "home" not in text
        assert '"me"' not in text


async def test_resuming_an_open_session_gives_the_same_handle() -> None:
    async with Stage() as stage:
        session = await stage.open()
        reference = session.reference()
        assert await stage.runtime.resume_session(reference, context=ME) is session
        await session.destroy()
        handles = await asyncio.gather(*(stage.runtime.resume_session(reference, context=ME) for _ in range(4)))
        assert len({id(handle) for handle in handles}) == 1
        assert len(stage.driver.openings) == 2


async def test_a_session_is_open_in_one_runtime_of_a_backend() -> None:
    async with Stage() as stage:
        session = await stage.open()
        other = AgentRuntime(stage.backend, backend_ownership="borrowed")
        with pytest.raises(AgentBusyError):
            await other.resume_session(session.reference(), context=ME)
        await session.detach()
        again = await other.resume_session(session.reference(), context=ME)
        await other.aclose()
        assert again.state == "destroyed"
        # The backend was borrowed, so it is still good.
        assert (await stage.runtime.resume_session(session.reference(), context=ME)).state == "ready"
        with pytest.raises(AgentClosedError):
            other.create_agent({"id": AGENT})


async def test_delete_removes_everything_and_only_that() -> None:
    async with Stage() as stage:
        kept, gone = await stage.open(), await stage.open()
        for session in (kept, gone):
            await (await session.run("Hi", request_id="q")).result()
        run_id = (await gone.find_request("q")).run_id  # type: ignore[union-attr]
        reference = gone.reference()
        await stage.runtime.delete_session(reference, context=ME)
        assert gone.state == "deleted"
        assert await stage.items(gone.session_id) == []
        assert await stage.run_record(run_id) is None
        assert len(await stage.items(kept.session_id)) == 2
        for call in (stage.runtime.resume_session, stage.runtime.delete_session):
            with pytest.raises(AgentScopeMismatchError):
                await call(reference, context=ME)
        assert (await (await kept.run("more")).result()).status == "completed"


async def test_delete_is_refused_while_a_run_goes_on() -> None:
    async with Stage(Script([*reply("Half")[:1], Hold(asyncio.Event())])) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: bool(run.open_items()))
        with pytest.raises(AgentBusyError):
            await stage.runtime.delete_session(session.reference(), context=ME)
        assert not run.done
        await run.cancel()
        await stage.runtime.delete_session(session.reference(), context=ME)


async def test_a_delete_that_could_not_be_stored_leaves_the_session() -> None:
    async with Stage() as stage:
        session = await stage.open()
        reference = session.reference()
        await session.detach()
        stage.store.fail_before = lambda number: True
        with pytest.raises(StorageFailedError):
            await stage.runtime.delete_session(reference, context=ME)
        stage.store.fail_before = lambda number: False
        assert (await stage.runtime.resume_session(reference, context=ME)).state == "ready"


async def test_closing_the_runtime_lets_go_of_sessions_and_never_closes_a_store() -> None:
    store = MemoryAgentStore()
    stage = Stage(Script([*reply("Half")[:1], Hold(asyncio.Event())]), store=store)
    session = await stage.open()
    run = await session.run("Hi")
    await until(lambda: bool(run.open_items()))
    await asyncio.gather(stage.runtime.aclose(), stage.runtime.aclose())
    assert session.state == "destroyed"
    assert (await run.result()).status == "cancelled"
    with pytest.raises(AgentClosedError, match="destroyed"):
        await stage.runtime.resume_session(session.reference(), context=ME)
    with pytest.raises(AgentClosedError, match="destroyed"):
        await stage.open()
    assert await store.read(lambda tx: len(tx.sessions())) == 1


async def test_a_session_that_opens_while_the_runtime_closes_is_not_left_open() -> None:
    stage = Stage()
    hold = stage.store.hold = asyncio.Event()
    opening = asyncio.ensure_future(stage.open())
    await asyncio.sleep(0.01)
    closing = asyncio.ensure_future(stage.runtime.aclose())
    await asyncio.sleep(0.01)
    hold.set()
    with pytest.raises(AgentClosedError):
        await opening
    await closing
    assert stage.driver.closes == len(stage.driver.openings)
    assert await stage.memory.read(lambda tx: tx.sessions()) == []


async def test_a_native_side_that_opens_while_the_runtime_closes_is_let_go_of() -> None:
    gate = asyncio.Event()

    class Slow(ScriptedDriver):
        async def open(self, opening: SessionOpening) -> DriverSession:
            session = await super().open(opening)
            await gate.wait()
            return session

    stage = Stage(driver=Slow([Script()]))
    runtime = AgentRuntime(stage.backend, backend_ownership="borrowed")
    opening = asyncio.ensure_future(runtime.create_agent({"id": AGENT}).open_session(session_options()))
    await until(lambda: bool(stage.driver.openings))
    await runtime.aclose()
    gate.set()
    with pytest.raises(AgentClosedError):
        await opening
    assert stage.driver.closes == 1
    assert await stage.memory.read(lambda tx: tx.sessions()) == []
    await stage.runtime.aclose()


async def test_an_unconfirmed_session_is_readable_and_takes_no_input_in_this_process() -> None:
    from runtime_host.errors import AgentSessionRecoveryError

    script = Script([*reply("Half")[:1], Hold(asyncio.Event())], cancel="ignored")
    async with Stage(script, cleanup_s=0.05) as stage:
        session = await stage.open()
        run = await session.run("Hi")
        await until(lambda: bool(run.open_items()))
        with pytest.raises(AgentSessionRecoveryError):
            await run.cancel()
        await session.destroy()
        again = await stage.runtime.resume_session(session.reference(), context=ME)
        assert again.inspect_state().quarantined
        with pytest.raises(AgentSessionRecoveryError):
            await again.run("more")
        assert [head.text for head in await again.items(0, 2)] == ["Hi", "Half"]
    # Its process is gone, and what ran in it: now the session may go on.
    async with Stage(Script(reply("Back.")), store=stage.memory) as after:
        back = await after.runtime.resume_session(session.reference(), context=ME)
        assert (await (await back.run("more")).result()).output_text == "Back."
