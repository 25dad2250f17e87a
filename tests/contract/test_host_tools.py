"""Host tools through `native.agent`: who may run, what is told, what is kept, and never anything twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime_host.definitions import AgentDefinition
from runtime_host.errors import (
    AgentCapabilityUnsupportedError,
    AgentConfigurationChangedError,
    AgentDriverConfigurationError,
    AgentUnresolvedEffectError,
    StorageFailedError,
)
from runtime_host.events import AgentEvent
from runtime_host.results import AgentResult
from runtime_host.run import Run
from runtime_host.session import SessionReference
from runtime_host.storage.base import AgentStore, AgentTx, RunRecord, ToolCallRecord
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing import Script, reply
from runtime_host.testing.scripted import Call
from runtime_host.tools.base import (
    HOST_TOOLS,
    HostTool,
    Permission,
    ResolutionContext,
    ResolvedTools,
    RunCompletion,
    ToolCall,
    ToolContext,
    ToolFailedError,
    ToolOutcomeUnknownError,
    ToolReport,
    ToolRequest,
)
from tests.loopback.chat_server import DEFAULT_KEY, ChatServer
from tests.loopback.fixtures import chat_server
from tests.loopback.native import DEFINITION, options_for
from tests.loopback.tools import (
    CITY,
    WITH_LOOK,
    MortalStore,
    World,
    ask,
    doomed_runtime_on,
    finish,
    open_session,
    runtime_on,
)
from tests.unit.runtime_host.stage import Stage, session_options

__all__ = ["chat_server"]

RAIN = '{"city": "Paris", "weather": "rain"}'


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgentStore]:
    opened: AgentStore
    if request.param == "memory":
        opened = MemoryAgentStore()
    else:
        opened = await open_agent_store(tmp_path / "agent.sqlite3", profile="p", agent="assistant")
    yield opened
    await opened.close()


@pytest.fixture
def memory() -> MemoryAgentStore:
    return MemoryAgentStore()


@pytest.fixture
def world() -> World:
    return World()


def types(events: list[AgentEvent]) -> list[str]:
    """Event types in order, runs of one type as one."""
    found = [event.type for event in events]
    return [each for at, each in enumerate(found) if at == 0 or found[at - 1] != each]


def completed(events: list[AgentEvent]) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == "tool.completed"]


LAID_OUT = json.dumps(json.loads(RAIN), indent=2)
"""A result as the transcript has it."""


async def calls_of(store: AgentStore, result: AgentResult) -> list[ToolCallRecord]:
    return await store.read(lambda tx: tx.tool_calls(result.run_id))


def results_sent(server: ChatServer) -> list[dict[str, Any]]:
    """Results of tools in the newest request."""
    return [message for message in server.requests[-1].json()["messages"] if message["role"] == "tool"]


# ---------------------------------------------------------------------------- what a model can ask for


async def test_a_tool_is_called_and_its_result_told(chat_server: ChatServer, store: AgentStore, world: World) -> None:
    chat_server.behaviour = "tool-single"
    async with runtime_on(chat_server, store, world) as runtime:
        events, result = await ask(await open_session(runtime))
    assert (result.status, result.output_text) == ("completed", f"It says: {RAIN}")
    assert world.effects == ["Paris"]
    assert types(events) == [
        "run.started",
        "tool.progress",
        "usage.updated",
        "agent.iteration.completed",
        "tool.started",
        "tool.completed",
        "agent.message.delta",
        "agent.message.completed",
        "usage.updated",
        "agent.iteration.completed",
        "run.finished",
    ]
    progress = [event.data for event in events if event.type == "tool.progress"]
    assert [each["stage"] for each in progress][0::3] == ["arguments-started", "arguments-completed"]
    assert "".join(each.get("delta", "") for each in progress) == '{"city": "Paris"}'
    started = next(event.data for event in events if event.type == "tool.started")
    # Known by the item that the transcript has of it: what the model calls it is nobody else's business.
    item_id = f"{result.run_id}.1"
    assert started == {"id": item_id, "index": 1, "name": "look", "arguments": {"city": "Paris"}}
    assert {each["id"] for each in progress} == {item_id}
    assert [each.get("opened") for each in progress] == [True, *[None] * (len(progress) - 1)]
    [done] = completed(events)
    assert (done["id"], done["name"], done["error"], done["state"]) == (item_id, "look", None, "complete")
    assert done["result"] == {"city": "Paris", "weather": "rain"}
    assert done["duration_ms"] >= 0
    iterations = [event.data for event in events if event.type == "agent.iteration.completed"]
    assert [(each["iteration"], each["tool_calls"], each["has_more_iterations"]) for each in iterations] == [
        (1, 1, True),
        (2, 0, False),
    ]
    assert result.usage is not None
    assert (result.usage.input_tokens, result.usage.output_tokens) == (42, 16)
    [call] = await calls_of(store, result)
    assert (call.phase, call.outcome, call.payload) == ("delivered", "succeeded", done["result"])
    first, second = (request.json() for request in chat_server.requests)
    assert [tool["function"]["name"] for tool in first["tools"]] == ["look"]
    assert second["messages"][-2:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_a", "type": "function", "function": {"name": "look", "arguments": '{"city": "Paris"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": RAIN},
    ]


async def test_an_agent_without_tools_offers_none(chat_server: ChatServer, memory: AgentStore, world: World) -> None:
    async with runtime_on(chat_server, memory, world) as runtime:
        events, _ = await ask(await open_session(runtime, DEFINITION))
    assert "tools" not in chat_server.requests[-1].json()
    assert "agent.iteration.completed" not in types(events)
    assert world.asked == []


async def test_parallel_calls_run_in_order_and_are_told_together(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    chat_server.behaviour = "tool-parallel"
    async with runtime_on(chat_server, store, world) as runtime:
        events, result = await ask(await open_session(runtime))
    assert world.effects == ["Paris", "Rome"]
    assert [each["result"]["city"] for each in completed(events)] == ["Paris", "Rome"]
    assert [each["id"] for each in completed(events)] == [f"{result.run_id}.{number}" for number in (1, 2)]
    assert [each["tool_call_id"] for each in results_sent(chat_server)] == ["call_a", "call_b"]
    assert len(chat_server.requests) == 2
    assert result.status == "completed"


async def test_text_before_a_call_is_a_message_of_its_own(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    chat_server.behaviour = "tool-after-text"
    async with runtime_on(chat_server, store, world) as runtime:
        session = await open_session(runtime)
        _, result = await ask(session)
        items = await session.items(0, 10)
    assert [(item.kind, item.text) for item in items] == [
        ("user", "What is the weather?"),
        ("reply", "Let me look."),
        ("tool", LAID_OUT),
        ("reply", f"It says: {RAIN}"),
    ]
    assert items[2].about["name"] == "look"
    assert items[2].about["arguments"] == '{"city":"Paris"}'
    assert result.output_text == f"It says: {RAIN}"
    assert chat_server.requests[-1].json()["messages"][-2]["content"] == "Let me look."


async def test_rounds_go_on_until_the_model_is_done(chat_server: ChatServer, store: AgentStore, world: World) -> None:
    chat_server.behaviour = "tool-two-rounds"
    async with runtime_on(chat_server, store, world) as runtime:
        session = await open_session(runtime)
        _, result = await ask(session)
        chat_server.behaviour = "ok"
        _, after = await ask(session, "Thanks.")
    assert world.effects == ["Paris", "Rome"]
    assert [call.phase for call in await calls_of(store, result)] == ["delivered", "delivered"]
    assert (len(chat_server.requests), after.status) == (4, "completed")
    # What the tools said is still there for the model.
    sent = chat_server.requests[-1].json()["messages"]
    assert [(each["role"], each["content"]) for each in sent[1:]] == [
        ("user", "What is the weather?"),
        ("assistant", "Step 1."),
        ("tool", RAIN),
        ("assistant", "Step 2."),
        ("tool", RAIN.replace("Paris", "Rome")),
        ("assistant", result.output_text),
        ("user", "Thanks."),
    ]


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("tool-malformed", "no JSON; nothing was executed"),
        ("tool-misfit", "city did not fit the schema (type)"),
        ("tool-unknown", "There is no tool of this name; nothing was executed. There are: look."),
    ],
)
async def test_a_call_that_is_none_is_told_so_and_the_run_goes_on(
    behaviour: str, words: str, chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    chat_server.behaviour = behaviour
    async with runtime_on(chat_server, store, world) as runtime:
        events, result = await ask(await open_session(runtime))
    assert world.effects == []
    assert result.status == "completed"
    [sent] = results_sent(chat_server)
    assert sent["tool_call_id"] == "call_a"
    assert json.loads(sent["content"])["success"] is False
    assert words in sent["content"]
    assert words in completed(events)[0]["error"]
    assert [call.outcome for call in await calls_of(store, result)] == ["refused"]


async def test_a_repeated_call_id_is_the_call_it_was(chat_server: ChatServer, store: AgentStore, world: World) -> None:
    chat_server.behaviour = "tool-repeated"
    async with runtime_on(chat_server, store, world) as runtime:
        _, result = await ask(await open_session(runtime))
    assert world.effects == ["Paris"]
    assert [each["content"] for each in results_sent(chat_server)] == [RAIN, RAIN]
    assert result.status == "completed"


async def test_a_used_call_id_is_no_other_call(chat_server: ChatServer, store: AgentStore, world: World) -> None:
    chat_server.behaviour = "tool-repeated-other"
    async with runtime_on(chat_server, store, world) as runtime:
        _, result = await ask(await open_session(runtime))
    assert world.effects == ["Paris"]
    assert "used for another call before" in results_sent(chat_server)[-1]["content"]
    assert result.status == "completed"


async def test_calls_without_ids_are_told_apart(chat_server: ChatServer, store: AgentStore, world: World) -> None:
    chat_server.behaviour = "tool-no-id"
    async with runtime_on(chat_server, store, world) as runtime:
        _, result = await ask(await open_session(runtime))
    assert world.effects == ["Paris", "Rome"]
    assert [each["tool_call_id"] for each in results_sent(chat_server)] == ["call-1-1", "call-1-2"]
    assert result.status == "completed"


@pytest.mark.parametrize(
    ("behaviour", "status", "code"),
    [
        ("tool-one-id", "failed", "PROVIDER_TOOL_CALL_UNREADABLE"),
        ("tool-nameless", "failed", "PROVIDER_TOOL_CALL_UNREADABLE"),
        ("tool-cut", "failed", "PROVIDER_STREAM_CUT"),
        ("tool-length", "incomplete", "PROVIDER_LENGTH_LIMIT"),
    ],
)
async def test_nothing_is_executed_of_a_reply_that_is_not_whole(
    behaviour: str, status: str, code: str, chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    chat_server.behaviour = behaviour
    async with runtime_on(chat_server, memory, world) as runtime:
        _, result = await ask(await open_session(runtime))
    assert (result.status, result.error and result.error.code) == (status, code)
    assert (world.effects, len(chat_server.requests)) == ([], 1)
    assert await calls_of(memory, result) == []


async def test_a_model_that_never_ends_is_stopped(chat_server: ChatServer, memory: AgentStore, world: World) -> None:
    chat_server.behaviour = "tool-endless"
    async with runtime_on(chat_server, memory, world, max_iterations=3) as runtime:
        _, result = await ask(await open_session(runtime))
    assert (result.status, result.finish_reason) == ("incomplete", "iteration_limit")
    assert len(world.effects) == 2


async def test_a_server_that_fails_after_a_tool_does_not_bring_it_about_again(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    chat_server.behaviour = "tool-then-500"
    async with runtime_on(chat_server, store, world) as runtime:
        session = await open_session(runtime)
        _, result = await ask(session)
        assert (result.status, result.error and result.error.code) == ("failed", "PROVIDER_UNAVAILABLE")
        chat_server.behaviour = "ok"
        _, after = await ask(session, "And now?")
    assert (after.status, world.effects) == ("completed", ["Paris"])
    assert [call.phase for call in await calls_of(store, result)] == ["delivering"]


# ------------------------------------------------------------------------------- what comes of a call


async def test_an_application_failure_is_told_and_no_failure_of_the_run(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    async def act(_: str, __: ToolContext) -> ToolReport:
        return ToolReport(success=False, payload={"reason": "no such city"}, evidence=("log/7",))

    chat_server.behaviour, world.act = "tool-single", act
    async with runtime_on(chat_server, store, world) as runtime:
        events, result = await ask(await open_session(runtime))
    assert result.status == "completed"
    assert json.loads(results_sent(chat_server)[0]["content"]) == {
        "success": False,
        "error": {"reason": "no such city"},
    }
    assert (completed(events)[0]["result"], completed(events)[0]["error"]) == (None, '{"reason": "no such city"}')
    [call] = await calls_of(store, result)
    assert (call.outcome, call.evidence) == ("failed", ("log/7",))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolFailedError("The station is closed."), "The station is closed."),
        (ZeroDivisionError("secret detail"), "The tool failed (ZeroDivisionError); how far it got is not known."),
    ],
)
async def test_a_tool_that_raises_has_failed(
    error: Exception, words: str, chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    async def act(_: str, __: ToolContext) -> Any:
        raise error

    chat_server.behaviour, world.act = "tool-single", act
    async with runtime_on(chat_server, memory, world) as runtime:
        _, result = await ask(await open_session(runtime))
    assert result.status == "completed"
    assert json.loads(results_sent(chat_server)[0]["content"])["error"] == words
    assert "secret detail" not in chat_server.requests[-1].body.decode()


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (float("nan"), '{"success": false, "error": "The tool ran to its end, but its result cannot be told."}'),
        ({"x": ["a" * 300_000]}, "The result has 300011 bytes, which is more than can be told (262144)."),
        (None, "null"),
        ("plain", "plain"),
    ],
)
async def test_what_cannot_be_told_is_said_in_words(
    report: Any, told: str, chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    async def act(_: str, __: ToolContext) -> Any:
        return report

    chat_server.behaviour, world.act = "tool-single", act
    async with runtime_on(chat_server, memory, world) as runtime:
        _, result = await ask(await open_session(runtime))
    assert (result.status, results_sent(chat_server)[0]["content"]) == ("completed", told)


async def test_a_secret_in_a_result_is_told_to_nobody(chat_server: ChatServer, world: World, tmp_path: Path) -> None:
    async def act(_: str, __: ToolContext) -> Any:
        return {"key": f"it is {DEFAULT_KEY}", DEFAULT_KEY: 1}

    chat_server.behaviour, world.act = "tool-single", act
    store = await open_agent_store(tmp_path / "agent.sqlite3", profile="p", agent="assistant")
    try:
        async with runtime_on(chat_server, store, world) as runtime:
            session = await open_session(runtime)
            # The key is known to be one as soon as it was used.
            chat_server.behaviour = "ok"
            await ask(session)
            chat_server.behaviour = "tool-single"
            events, result = await ask(session)
    finally:
        await store.close()
    assert DEFAULT_KEY not in json.dumps([event.model_dump(mode="json") for event in events])
    assert DEFAULT_KEY not in result.model_dump_json()
    assert DEFAULT_KEY not in chat_server.requests[-1].body.decode()
    assert files_with("It says", tmp_path)  # so the search finds what is there
    assert files_with(DEFAULT_KEY, tmp_path) == []


async def test_a_secret_in_arguments_is_kept_and_published_masked(world: World) -> None:
    secret = "sk-" + "0123456789" * 3
    call = Call((ToolRequest("call_a", "look", json.dumps({"city": secret}), {"as": secret}),))
    async with Stage(Script((call, *reply("Done."))), resolve_tools=world.resolve) as stage:
        stage.connectors.redactor.add(secret)
        session = await stage.runtime.create_agent(WITH_LOOK).open_session(session_options())
        events, result = await ask(session)
        [kept] = await stage.memory.read(lambda tx: tx.tool_calls(result.run_id))
    assert world.effects == [secret], "the tool itself is given what the model wrote"
    assert "city" in kept.arguments
    assert secret not in f"{kept}"
    assert [event.type for event in events if "tool." in event.type] == ["tool.started", "tool.completed"]
    assert secret not in json.dumps([event.model_dump(mode="json") for event in events])


async def test_a_secret_as_a_name_or_an_id_is_kept_nowhere(world: World) -> None:
    secret = "sk-" + "0123456789" * 3
    call = Call((ToolRequest(secret, "look", '{"city": "Paris"}'), ToolRequest("call_b", secret, "{}")))
    async with Stage(Script((call, *reply("Done."))), resolve_tools=world.resolve) as stage:
        stage.connectors.redactor.add(secret)
        session = await stage.runtime.create_agent(WITH_LOOK).open_session(session_options())
        _, result = await ask(session)
        kept = await stage.memory.read(lambda tx: tx.tool_calls(result.run_id))
    assert (result.status, world.effects) == ("completed", ["Paris"])
    assert [record.phase for record in kept] == ["delivered", "delivered"]
    assert secret not in f"{kept}"


def files_with(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if text.encode() in path.read_bytes()]


async def test_a_plain_function_does_not_hold_up_the_loop(
    chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    loop = asyncio.get_running_loop()
    turned = asyncio.Event()

    def look(arguments: Mapping[str, Any], _: ToolContext) -> str:
        asyncio.run_coroutine_threadsafe(_set(turned), loop).result(5)
        return str(arguments["city"])

    chat_server.behaviour = "tool-single"
    world.resolved["tools"] = (HostTool("look", "Looks.", CITY, look),)
    async with runtime_on(chat_server, memory, world) as runtime:
        _, result = await ask(await open_session(runtime))
    assert (result.output_text, turned.is_set()) == ("It says: Paris", True)


async def _set(event: asyncio.Event) -> None:
    event.set()


# ---------------------------------------------------------------------------------- who may have it run


class Guard:
    """A permission manager, a manager and an owner in one, which answers as it is told."""

    def __init__(self, answer: Permission | Exception = Permission(True)) -> None:  # noqa: B008  # a tuple
        self.answer = answer
        self.executed: list[str] = []
        self.held: list[str] = []
        self.after: list[tuple[str, bool]] = []
        self.completions: list[RunCompletion] = []
        self.cancelled = False
        self.principal = "the-owner"
        self.roles = frozenset({"owner"})
        self.accounts = {"mail": "owner@example", "own": "1"}
        self.memory = {"remembers": True}

    async def permit(self, call: ToolCall, context: ToolContext) -> Permission:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    before_tool = permit

    async def execute(self, call: ToolCall, tool: HostTool, context: ToolContext) -> Any:
        self.executed.append(call.call_id)
        return await tool.call(call.arguments, context)

    async def acquire(self, session_id: str) -> None:
        self.held.append(session_id)

    async def release(self, session_id: str) -> None:
        self.held.remove(session_id)

    async def after_tool(self, call: ToolCall, report: ToolReport, context: ToolContext) -> None:
        self.after.append((call.call_id, report.success))

    async def run_completed(self, completion: RunCompletion) -> None:
        self.completions.append(completion)


@pytest.mark.parametrize("role", ["permission_manager", "manager", "owner"])
@pytest.mark.parametrize("answer", [Permission(False, "Not on Sundays."), ZeroDivisionError()])
async def test_whoever_has_a_say_can_forbid_it(
    role: str, answer: Permission | Exception, chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    chat_server.behaviour = "tool-single"
    world.resolved = {"permission_manager": Guard(), "manager": Guard(), "owner": Guard(), role: Guard(answer)}
    async with runtime_on(chat_server, memory, world) as runtime:
        _, result = await ask(await open_session(runtime))
    assert world.effects == []
    assert result.status == "completed"
    assert "The tool was not allowed" in results_sent(chat_server)[0]["content"]
    assert ("Not on Sundays." in results_sent(chat_server)[0]["content"]) is isinstance(answer, Permission)


async def test_tools_of_an_owner_that_was_stopped_do_not_run(
    chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    owner = Guard()
    owner.cancelled = True
    chat_server.behaviour, world.resolved = "tool-single", {"owner": owner}
    async with runtime_on(chat_server, memory, world) as runtime:
        await ask(await open_session(runtime))
    assert world.effects == []


async def test_an_owner_has_its_hooks_and_keeps_what_it_is(
    chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    owner, manager = Guard(), Guard()
    chat_server.behaviour = "tool-single"
    world.resolved = {
        "owner": owner,
        "manager": manager,
        "principal": "the-resolver",
        "roles": frozenset({"reader"}),
        "accounts": {"mail": "resolver@example", "other": "2"},
    }
    async with runtime_on(chat_server, memory, world) as runtime:
        session = await open_session(runtime)
        assert manager.held == [session.session_id]
        _, result = await ask(session)
        await session.destroy()
    assert (manager.executed, manager.held) == (["call_a"], [])
    assert owner.after == [("call_a", True)]
    [completion] = owner.completions
    assert completion == RunCompletion(result.session_id, result.run_id, "completed", result.output_text, None)
    assert "usage" not in completion._fields
    [context] = world.contexts
    assert (context.principal, sorted(context.roles)) == ("the-owner", ["owner", "reader"])
    assert context.accounts == {"mail": "owner@example", "other": "2", "own": "1"}
    assert context.memory is owner.memory


async def test_a_bare_manager_acts_as_the_resolver_says(
    chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    chat_server.behaviour = "tool-single"
    world.resolved = {"manager": Guard(), "principal": "the-resolver", "roles": frozenset({"reader"})}
    async with runtime_on(chat_server, memory, world) as runtime:
        await ask(await open_session(runtime))
    [context] = world.contexts
    assert (context.principal, sorted(context.roles), context.memory) == ("the-resolver", ["reader"], None)


# -------------------------------------------------------------------------------------- what is resolved


def tool(name: str = "look", **changes: Any) -> HostTool:
    async def call(_: Mapping[str, Any], __: ToolContext) -> None:
        """Does nothing."""

    return HostTool(**{"name": name, "description": "", "parameters": CITY, "call": call, **changes})


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ((), "Missing: look."),
        ((tool(), tool("more")), "Not selected: more."),
        ((tool(), tool()), "exactly the selected tools"),
        ((tool("renamed"),), "Missing: look. Not selected: renamed."),
        ((tool(background=True),), "answers in the background"),
        ((tool(parameters={"type": "string"}),), "must be an object at its root"),
        ((tool(parameters={}),), "must be an object at its root"),
        ((tool(parameters={"type": "object", "properties": 7}),), "is no JSON schema"),
        ((tool(parameters={"type": "object", "x": float("inf")}),), "is no JSON"),
        (({"type": "web_search", "name": "look"},), "Missing: look."),
        ((tool(call="not callable"),), "no function of the application"),
    ],
)
@pytest.mark.parametrize("opening", [False, True])
async def test_a_selection_that_breaks_a_rule_is_refused(
    tools: tuple[Any, ...], words: str, opening: bool, chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    world.resolved["tools"] = tools
    async with runtime_on(chat_server, memory, world) as runtime:
        agent = runtime.create_agent(WITH_LOOK)
        with pytest.raises(AgentDriverConfigurationError, match=words.replace(".", r"\.")):
            await (agent.open_session if opening else agent.inspect)(options_for())
    assert await memory.read(lambda tx: tx.sessions()) == []


async def test_a_resolver_that_fails_says_nothing_of_why(
    chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    async def resolve(_: tuple[str, ...], __: ResolutionContext) -> ResolvedTools:
        raise ZeroDivisionError("sk-secret")

    world.resolve = resolve  # type: ignore[method-assign,assignment]  # a host may
    async with runtime_on(chat_server, memory, world) as runtime:
        with pytest.raises(AgentDriverConfigurationError, match=r"ZeroDivisionError\)\.$"):
            await open_session(runtime)


async def test_inspection_tells_fingerprints_and_acquires_nothing(
    chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    manager = Guard()
    world.resolved = {"manager": manager}
    async with runtime_on(chat_server, memory, world) as runtime:
        agent = runtime.create_agent(WITH_LOOK)
        first = await agent.inspect(options_for())
        world.description = "Tells it otherwise."
        described = await agent.inspect(options_for())
        world.fingerprint = "look-2"
        implemented = await agent.inspect(options_for())
        assert {context.purpose for context in world.asked} == {"inspect"}
        assert manager.held == []
    [inspected] = first.tools
    assert (inspected.name, inspected.native_name, first.tools_fingerprint) == ("look", "look", "look-1")
    assert described.tools[0].schema_digest != inspected.schema_digest
    assert implemented.tools_fingerprint == "look-2"
    assert len({each.execution_digest for each in (first, described, implemented)}) == 3
    assert first.definition_digest == implemented.definition_digest
    assert chat_server.requests == []


@pytest.mark.parametrize("change", ["fingerprint", "description"])
async def test_a_session_is_not_resumed_with_other_tools(
    change: str, chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    async with runtime_on(chat_server, store, world) as runtime:
        session = await open_session(runtime)
        reference = session.reference()
        await session.detach()
        was = getattr(world, change)
        setattr(world, change, "another")
        with pytest.raises(AgentConfigurationChangedError):
            await runtime.resume_session(reference, context=options_for().context)
        setattr(world, change, was)
        resumed = await runtime.resume_session(reference, context=options_for().context)
        assert resumed.state == "ready"


async def test_a_harness_that_carries_no_host_tools_is_refused(world: World) -> None:
    async with Stage() as stage:
        stage.backend.resolve_tools = world.resolve
        stage.driver.capabilities.pop(HOST_TOOLS, None)
        agent = stage.runtime.create_agent(AgentDefinition(id="assistant", tools=("look",)))
        with pytest.raises(AgentCapabilityUnsupportedError, match=r"tools\.host"):
            await agent.open_session(session_options())


# ------------------------------------------------------------------- effects of which nobody knows


async def test_a_tool_that_does_not_know_blocks_its_session(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    async def act(_: str, __: ToolContext) -> Any:
        raise ToolOutcomeUnknownError

    chat_server.behaviour, world.act, world.proves = "tool-single", act, True
    async with runtime_on(chat_server, store, world) as runtime:
        session = await open_session(runtime)
        run = await session.run("Look", request_id="r1")
        events, result = await finish(run)
        assert (result.status, result.error and result.error.code) == ("failed", "AGENT_UNRESOLVED_EFFECT")
        assert completed(events)[0]["error"] == "Interrupted; whether it acted is not known."
        [effect] = session.inspect_state().unresolved_effects
        assert (effect.kind, effect.id, effect.tool, effect.run_id) == ("tool-result", "call_a", "look", run.run_id)
        assert session.state == "ready"
        with pytest.raises(AgentUnresolvedEffectError, match="whether it acted is not known"):
            await session.run("Again")
        assert (await session.run("Look", request_id="r1")).run_id == run.run_id
        with pytest.raises(AgentUnresolvedEffectError):
            await runtime.delete_session(session.reference(), context=options_for().context)
        assert len(await session.reconcile()) == 1
        for wrong in (
            {"call_id": "call_b"},
            {"tool": "other"},
            {"run_id": "run_other"},
            {"settled": False},
        ):
            world.remember("call_a", run.run_id)
            world.ledger["call_a"] = world.ledger["call_a"].model_copy(update=wrong)
            assert len(await session.reconcile()) == 1
        world.remember("call_a", run.run_id)
        assert await session.reconcile() == ()
        # Its run is over, so nobody is told; but what came of it is known and kept.
        [call] = await calls_of(store, result)
        assert (call.phase, call.payload["weather"], call.evidence) == ("withdrawn", "snow", ("ledger/1",))
        chat_server.behaviour = "ok"
        _, after = await ask(session)
        assert (after.status, world.effects) == ("completed", ["Paris"])
        await runtime.delete_session(session.reference(), context=options_for().context)
        assert await calls_of(store, result) == []


async def test_a_stop_lets_a_tool_end_and_keeps_what_it_says(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    async def act(city: str, context: ToolContext) -> Any:
        await context.stopping.wait()
        return f"{city}, in time"

    chat_server.behaviour, world.act = "tool-single", act
    async with runtime_on(chat_server, store, world) as runtime:
        session = await open_session(runtime)
        result = await _stopped_in_tool(await session.run("Look"), world)
        assert result.status == "cancelled"
        assert session.inspect_state().unresolved_effects == ()
        [call] = await calls_of(store, result)
        assert (call.phase, call.payload) == ("withdrawn", "Paris, in time")


async def test_a_tool_that_is_cut_by_a_stop_is_unresolved(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    async def act(_: str, __: ToolContext) -> Any:
        await asyncio.sleep(3600)

    chat_server.behaviour, world.act, world.proves = "tool-single", act, True
    async with runtime_on(chat_server, store, world, cleanup_s=0.4) as runtime:
        session = await open_session(runtime)
        result = await _stopped_in_tool(await session.run("Look"), world)
        assert result.status == "cancelled"
        assert [call.phase for call in await calls_of(store, result)] == ["interrupted"]
        with pytest.raises(AgentUnresolvedEffectError):
            await session.run("Again")
        reference = session.reference()
        await session.detach()
        session = await runtime.resume_session(reference, context=options_for().context)
        assert [each.id for each in session.inspect_state().unresolved_effects] == ["call_a"]
        world.remember("call_a", result.run_id)
        assert await session.reconcile() == ()
        assert session.active_run is None
    assert (world.effects, len(chat_server.requests)) == (["Paris"], 1)


async def test_a_call_that_is_stopped_before_it_ran_blocks_nothing(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    class Slow(MortalStore):
        begun = asyncio.Event()
        go_on = asyncio.Event()

        async def transact(self, fn: Any) -> Any:
            result = await super().transact(fn)
            # Session, input, dispatch, what the model is asked, and then that the call is executed.
            if self.commits == 5:
                self.begun.set()
                await self.go_on.wait()
            return result

    chat_server.behaviour, slow = "tool-single", Slow(store)
    async with runtime_on(chat_server, slow, world) as runtime, asyncio.timeout(20):
        session = await open_session(runtime)
        run = await session.run("Look")
        await slow.begun.wait()
        stopping = asyncio.ensure_future(run.cancel())
        await asyncio.sleep(0.05)
        slow.go_on.set()
        await stopping
        result = await run.result()
        assert (result.status, session.inspect_state().unresolved_effects) == ("cancelled", ())
        chat_server.behaviour = "ok"
        await ask(session)
    assert [call.phase for call in await calls_of(store, result)] == ["withdrawn"]
    assert world.effects == []


async def _stopped_in_tool(run: Run, world: World) -> AgentResult:
    async with asyncio.timeout(20):
        while not world.effects:  # noqa: ASYNC110  # of a tool of its own
            await asyncio.sleep(0.005)
        await run.cancel()
        return await run.result()


async def test_evidence_that_cannot_be_kept_stops_the_run_and_the_host_has_the_report(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    kept: list[ToolReport] = []
    broken = True

    async def project(call: ToolCall, report: ToolReport) -> ToolReport:
        if broken:
            raise OSError("the evidence folder is gone")
        kept.append(report)
        return ToolReport(payload="It rains.", evidence=("evidence/1",))

    chat_server.behaviour = "tool-single"
    world.resolved["project"] = project
    async with runtime_on(chat_server, store, world) as runtime:
        session = await open_session(runtime)
        _, result = await ask(session)
        assert (result.status, result.error and result.error.code) == ("failed", "AGENT_UNRESOLVED_EFFECT")
        assert len(chat_server.requests) == 1
        [observation] = world.retained
        assert (observation.reason, observation.call.call_id) == ("evidence", "call_a")
        assert observation.report.payload == {"city": "Paris", "weather": "rain"}
        assert len(await session.reconcile()) == 1
        broken = False
        assert await session.reconcile() == ()
        [call] = await calls_of(store, result)
        assert (call.payload, call.evidence) == ("It rains.", ("evidence/1",))
    assert (world.effects, len(kept)) == (["Paris"], 1)


async def test_a_result_that_cannot_be_stored_is_told_to_nobody_and_stored_later(
    chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    class Full(MortalStore):
        full = False

        async def transact(self, fn: Any) -> Any:
            if self.full:
                raise StorageFailedError("The disk is full.")
            return await super().transact(fn)

    store = Full(memory)

    async def act(_: str, __: ToolContext) -> Any:
        store.full = True
        return "done"

    chat_server.behaviour, world.act = "tool-single", act
    async with runtime_on(chat_server, store, world) as runtime:
        session = await open_session(runtime)
        run = await session.run("Look")
        await run.wait_settled()
        assert len(chat_server.requests) == 1
        assert [each.reason for each in world.retained] == ["storage"]
        assert [each.id for each in session.inspect_state().unresolved_effects if each.kind == "tool-result"]
        store.full = False
        assert await session.reconcile() == ()
        [call] = await memory.read(lambda tx: tx.tool_calls(run.run_id))
        assert (call.payload, world.effects, world.reconciled) == ("done", ["Paris"], 0)


# ------------------------------------------------------------------------------ a process that ends


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 11))
async def test_a_process_that_ends_at_a_commit_brings_nothing_about_twice(
    number: int, moment: str, chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    chat_server.behaviour = "tool-after-text"
    mortal = MortalStore(store)
    setattr(mortal, f"dies_{moment}", number)
    async with doomed_runtime_on(chat_server, mortal, world) as runtime:
        living = asyncio.ensure_future(_whole_life(runtime))
        dying = asyncio.ensure_future(mortal.dead.wait())
        async with asyncio.timeout(20):
            await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        living.cancel()
    runs = await store.read(lambda tx: [run for each in tx.sessions() for run in tx.runs(each.session_id)])
    if not runs:
        assert (world.effects, chat_server.requests) == ([], [])
        return
    [run] = runs
    calls = await store.read(lambda tx: tx.tool_calls(run.run_id))
    phase = calls[0].phase if calls else None
    known = world.effects == ["Paris"]
    before = len(chat_server.requests)
    async with runtime_on(chat_server, store, world) as runtime:
        async with asyncio.timeout(20):
            recovered = await runtime.recover("assistant")
            for each in recovered:
                if each.run is not None:
                    await each.run.result()
        after = await store.read(lambda tx: tx.run(run.run_id))
        assert after is not None
        if run.phase == "completed":
            assert recovered == []
        elif run.phase == "admitted":
            assert (after.phase, world.effects) == ("completed", ["Paris"])
        elif phase == "executing":
            # It may have acted: nothing is asked and nothing is executed until that is known.
            assert [each.outcome for each in recovered] == ["unknown"]
            assert (after.phase, len(chat_server.requests)) == ("unknown", before)
        else:
            # Where it was, it goes on: with the calls it has, which are told under their ids and not made again.
            assert [each.outcome for each in recovered] == ["continued"]
            assert (after.phase, world.effects) == ("completed", ["Paris"])
            assert [each["tool_call_id"] for each in results_sent(chat_server)] == ["call_a"]
            assert [message["content"] for message in chat_server.requests[-1].json()["messages"][1:3]] == [
                "What is the weather?",
                "Let me look.",
            ]
            assert len(chat_server.requests) - before <= (1 if calls else 2)
        assert len(world.effects) <= 1
        await _was_asked_as_often_as_it_says(chat_server, store, run)
        if phase == "executing":
            await _blocked_until_proven(runtime, chat_server, store, world, run.run_id, known=known)


def _all_calls(tx: AgentTx) -> list[ToolCallRecord]:
    runs = [run for session in tx.sessions() for run in tx.runs(session.session_id)]
    return [call for run in runs for call in tx.tool_calls(run.run_id)]


async def _was_asked_as_often_as_it_says(server: ChatServer, store: AgentStore, run: RunRecord) -> None:
    """The person can see each time that a request may have been sent once more, and has one message."""
    items = await store.read(lambda tx: tx.items(run.session_id, 0, 50, 200))
    again = [item for item in items if item.code == "ASKED_AGAIN" and item.kind == "notice"]
    with_results = [each for each in server.requests if "tool_call_id" in each.body.decode()]
    assert len(again) <= 1
    assert len(with_results) <= 1 + len(again)
    assert len(server.requests) - len(with_results) <= 1 + len(again)
    assert [item.kind for item in items].count("user") == 1


async def _live_until_death(server: ChatServer, mortal: MortalStore, world: World) -> None:
    async with doomed_runtime_on(server, mortal, world) as runtime:
        living = asyncio.ensure_future(_whole_life(runtime))
        async with asyncio.timeout(20):
            await mortal.dead.wait()
        living.cancel()


async def _whole_life(runtime: Any) -> None:
    session = await open_session(runtime)
    await ask(session)


async def _blocked_until_proven(
    runtime: Any, server: ChatServer, store: AgentStore, world: World, run_id: str, *, known: bool
) -> None:
    record = (await store.read(lambda tx: tx.sessions()))[0]
    opened = runtime.backend.open_session(record.session_id)
    assert opened is not None
    session = opened[0]
    assert [each.id for each in session.inspect_state().unresolved_effects] == ["call_a"]
    with pytest.raises(AgentUnresolvedEffectError):
        await session.run("Again")
    with pytest.raises(AgentUnresolvedEffectError):
        await runtime.delete_session(session.reference(), context=options_for().context)
    requests = len(server.requests)
    reference = session.reference()
    await session.detach()
    # The source can be asked now.
    world.proves = True
    if known:
        world.remember("call_a", run_id)
    session = await runtime.resume_session(reference, context=options_for().context)
    if not known:
        assert session.inspect_state().unresolved_effects != ()
        assert len(server.requests) == requests
        return
    run = await session.get_run(run_id)
    async with asyncio.timeout(20):
        result = await run.result()
    assert (result.status, world.effects) == ("completed", ["Paris"])
    assert results_sent(server) == [
        {"role": "tool", "tool_call_id": "call_a", "content": '{"city": "Paris", "weather": "snow"}'}
    ]
    assert len(server.requests) == requests + 1


async def test_proof_that_comes_later_lets_the_run_go_on_in_the_open_session(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    chat_server.behaviour, world.proves = "tool-single", True
    mortal = MortalStore(store)
    mortal.dies_before = 6
    await _live_until_death(chat_server, mortal, world)
    async with runtime_on(chat_server, store, world) as runtime:
        [recovered] = await runtime.recover("assistant")
        session = recovered.session
        assert session is not None
        assert (recovered.outcome, world.reconciled) == ("unknown", 1)
        assert len(await session.reconcile()) == 1
        world.remember("call_a", recovered.run_id)
        assert await session.reconcile() == ()
        async with asyncio.timeout(20):
            result = await (await session.get_run(recovered.run_id)).result()
        assert result.status == "completed"
        # One call, of which nobody knew for a while what came of it.
        calls = [item for item in await session.items(0, 20) if item.kind == "tool"]
        assert [(call.state, "snow" in call.text, call.about["name"]) for call in calls] == [("complete", True, "look")]
        chat_server.behaviour = "ok"
        _, after = await ask(session)
    assert (after.status, world.effects) == ("completed", ["Paris"])


async def test_a_result_is_kept_before_anybody_is_told(
    chat_server: ChatServer, memory: AgentStore, world: World
) -> None:
    seen: list[tuple[str, int]] = []

    class Watched(MortalStore):
        async def transact(self, fn: Any) -> Any:
            result = await super().transact(fn)
            calls = await self.inner.read(_all_calls)
            seen.extend((call.phase, len(chat_server.requests)) for call in calls)
            return result

    chat_server.behaviour = "tool-single"
    async with runtime_on(chat_server, Watched(memory), world) as runtime:
        await ask(await open_session(runtime))
    # The card of the call may be written while the server reads what came of it.
    steps = [step for step in dict.fromkeys(seen) if step != ("delivering", 2)]
    assert steps == [("executing", 1), ("acknowledged", 1), ("delivering", 1), ("delivered", 2)]


async def test_a_run_that_goes_on_shows_the_gap_and_numbers_on(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    chat_server.behaviour = "tool-after-text"
    mortal = MortalStore(store)
    # Session, input, dispatch, what the model is asked, the call's beginning, its end.
    mortal.dies_after = 6
    await _live_until_death(chat_server, mortal, world)
    async with runtime_on(chat_server, store, world) as runtime:
        [recovered] = await runtime.recover("assistant")
        assert recovered.run is not None
        assert recovered.session is not None
        events, result = await finish(recovered.run)
        items = await recovered.session.items(0, 10)
    assert [(item.kind, item.state, item.text) for item in items] == [
        ("user", "complete", "What is the weather?"),
        ("reply", "complete", "Let me look."),
        # Begun before the restart, and ended after it.
        ("tool", "complete", LAID_OUT),
        ("reply", "complete", f"It says: {RAIN}"),
    ]
    assert result.output_text == f"It says: {RAIN}"
    [gap] = [event for event in events if event.data.get("code") == "HISTORY_GAP"]
    assert gap.sequence == gap.data["to"] + 1 > 1
    # The reader began at the beginning, which is gone: told as any other gap.
    assert events[0].sequence == gap.data["to"]
    assert events[1] == gap
    assert events[-1].type == "run.finished"


async def test_of_two_calls_only_the_one_that_never_ran_is_executed_after_a_crash(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    chat_server.behaviour = "tool-parallel"
    mortal = MortalStore(store)
    mortal.dies_after = 6
    await _live_until_death(chat_server, mortal, world)
    assert world.effects == ["Paris"]
    async with runtime_on(chat_server, store, world) as runtime:
        [recovered] = await runtime.recover("assistant")
        assert recovered.run is not None
        _, result = await finish(recovered.run)
    assert (result.status, world.effects) == ("completed", ["Paris", "Rome"])
    assert [each["tool_call_id"] for each in results_sent(chat_server)] == ["call_a", "call_b"]


async def test_calls_that_were_told_before_a_crash_are_told_again_in_their_place_and_never_executed(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    class DiesInTheSecondRound(MortalStore):
        async def transact(self, fn: Any) -> Any:
            result = await super().transact(fn)
            if [call.phase for call in await self.inner.read(_all_calls)] == ["delivered", "acknowledged"]:
                self.dead.set()
                await asyncio.Event().wait()
            return result

    chat_server.behaviour = "tool-two-rounds"
    await _live_until_death(chat_server, DiesInTheSecondRound(store), world)
    assert (world.effects, len(chat_server.requests)) == (["Paris", "Rome"], 2)
    async with runtime_on(chat_server, store, world) as runtime:
        [recovered] = await runtime.recover("assistant")
        assert recovered.run is not None
        events, result = await finish(recovered.run)
    assert (result.status, world.effects, len(chat_server.requests)) == ("completed", ["Paris", "Rome"], 3)
    assert [each["tool_call_id"] for each in results_sent(chat_server)] == ["call_0", "call_1"]
    assert [event.data["iteration"] for event in events if event.type == "agent.iteration.completed"] == [3]


async def test_other_tools_after_a_crash_leave_the_run_unknown_and_nothing_is_executed(
    chat_server: ChatServer, store: AgentStore, world: World
) -> None:
    chat_server.behaviour = "tool-single"
    mortal = MortalStore(store)
    mortal.dies_after = 6
    await _live_until_death(chat_server, mortal, world)
    world.fingerprint = "look-2"
    async with runtime_on(chat_server, store, world) as runtime:
        [recovered] = await runtime.recover("assistant")
        assert (recovered.outcome, recovered.session) == ("unknown", None)
    assert (world.effects, len(chat_server.requests)) == (["Paris"], 1)
    # The tools are as they were: the result that was kept is told, and the run ends as it would have.
    world.fingerprint = "look-1"
    async with runtime_on(chat_server, store, world) as runtime:
        record = (await store.read(lambda tx: tx.sessions()))[0]
        session = await runtime.resume_session(_reference(record), context=options_for().context)
        async with asyncio.timeout(20):
            result = await (await session.get_run(recovered.run_id)).result()
    assert (result.status, world.effects, len(chat_server.requests)) == ("completed", ["Paris"], 2)


def _reference(record: Any) -> Any:
    return SessionReference(
        session_id=record.session_id,
        agent_id="assistant",
        scope_digest=record.scope_digest,
        driver_id="native.agent",
    )


async def test_arguments_made_to_hang_their_check_hold_nobody_up(world: World) -> None:
    """A schema that doubles with each reference: judged in full it would take years."""
    doubling: dict[str, Any] = {"x0": {"not": {"type": "object"}}}
    for number in range(1, 40):
        doubling[f"x{number}"] = {"anyOf": [{"$ref": f"#/$defs/x{number - 1}"}] * 2}

    async def resolve(names: tuple[str, ...], context: ResolutionContext) -> ResolvedTools:
        schema = {"type": "object", "$defs": doubling, "properties": {"city": {"$ref": "#/$defs/x39"}}}
        return ResolvedTools(tools=(HostTool("look", "", schema, world.look),), fingerprint="1")

    call = Call((ToolRequest("call_a", "look", '{"city": {}}'),))
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    async with Stage(Script((call, *reply("Done."))), resolve_tools=resolve) as stage:
        session = await stage.runtime.create_agent(WITH_LOOK).open_session(session_options())
        turning = asyncio.create_task(turn())
        began_s = asyncio.get_running_loop().time()
        result = await asyncio.wait_for((await session.run("Hi")).result(), 30)
        took_s = asyncio.get_running_loop().time() - began_s
        turning.cancel()
    assert result.status == "completed"
    assert world.effects == []
    assert "could not be found out" in str(stage.driver.told[0].error)
    assert turns > took_s * 20, "the loop stood still while arguments were checked"
