"""`native.agent` in the runtime over a real file: several turns, faults, and a key that is nowhere afterwards."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runtime_host.connectors.base import Connector, ConnectorRegistry, SecretRef
from runtime_host.definitions import ReasoningConfig
from runtime_host.drivers.native import NativeDriver
from runtime_host.errors import AgentConfigurationChangedError, AgentDriverConfigurationError
from runtime_host.results import AgentResult
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.session import Session
from runtime_host.storage.base import AgentStore
from runtime_host.storage.sqlite import open_agent_store
from tests.loopback.chat_server import DEFAULT_KEY, DEFAULT_REPLY, ChatServer
from tests.loopback.fixtures import chat_server
from tests.loopback.native import AT_ONCE, DEFINITION, QUICK, options_for, registry_for

__all__ = ["chat_server"]


@asynccontextmanager
async def session_on(server: ChatServer, folder: Path) -> AsyncIterator[Session]:
    async with runtime_on(registry_for(server.base_url), folder) as runtime:
        yield await runtime.create_agent(DEFINITION).open_session(options_for())


@asynccontextmanager
async def runtime_on(registry: ConnectorRegistry, folder: Path) -> AsyncIterator[AgentRuntime]:
    store = await open_agent_store(folder / "agent.sqlite3", profile="personal", agent=DEFINITION.id)

    async def storage(_: str) -> AgentStore:
        return store

    driver = NativeDriver(registry, timeouts=QUICK, retries=AT_ONCE)
    backend = LocalBackend(drivers=[driver], storage=storage, connectors=registry)
    try:
        async with AgentRuntime(backend) as runtime:
            yield runtime
    finally:
        await store.close()


def files_with(secret: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


async def published(session: Session, text: str) -> tuple[str, AgentResult]:
    """All events of one run as JSON, and its result."""
    async with asyncio.timeout(20):
        run = await session.run(text)
        events = [event async for event in run.events()]
        result = await run.result()
    assert events[0].type == "run.started"
    assert events[-1].type == "run.finished"
    return json.dumps([event.model_dump(mode="json") for event in events]), result


async def test_a_session_goes_on_with_another_key_and_not_with_another_server(
    chat_server: ChatServer, tmp_path: Path
) -> None:
    """What was said was meant for one server; a new key of the same account changes nothing."""
    context = options_for().context
    async with runtime_on(registry_for(chat_server.base_url), tmp_path) as runtime:
        session = await runtime.create_agent(DEFINITION).open_session(options_for())
        await published(session, "Hello")
        reference = session.reference()
        await session.detach()
    chat_server.key = "sk-another-key-9876543210"
    async with runtime_on(registry_for(chat_server.base_url, chat_server.key), tmp_path) as runtime:
        session = await runtime.resume_session(reference, context=context)
        _, result = await published(session, "And now?")
        assert result.status == "completed"
        await session.detach()
    async with ChatServer("ok") as other:
        async with runtime_on(registry_for(other.base_url), tmp_path) as runtime:
            with pytest.raises(AgentConfigurationChangedError, match="another server"):
                await runtime.resume_session(reference, context=context)
        assert other.requests == []


async def test_a_connector_that_moves_under_an_open_session_sends_nothing(
    chat_server: ChatServer, tmp_path: Path
) -> None:
    async with ChatServer("ok") as other:
        places = {"server": chat_server.base_url}
        registry = ConnectorRegistry(
            lambda name: Connector(name=name, vendor="openai-compatible", base_url=places[name]), no_key
        )
        chat_server.key = None
        async with runtime_on(registry, tmp_path) as runtime:
            session = await runtime.create_agent(DEFINITION).open_session(options_for())
            await published(session, "Hello")
            places["server"] = other.base_url
            _, result = await published(session, "And now?")
        assert result.error is not None
        assert result.error.code == "AGENT_CONFIGURATION_CHANGED"
        assert other.requests == []


async def no_key(_: SecretRef) -> str:
    raise AssertionError("this connector has no key")


async def test_a_conversation_of_several_turns(chat_server: ChatServer, tmp_path: Path) -> None:
    async with session_on(chat_server, tmp_path) as session:
        await published(session, "Hello")
        chat_server.behaviour = "500"
        _, failed = await published(session, "This one fails.")
        chat_server.behaviour = "ok"
        _, result = await published(session, "And now?")
    assert (failed.status, result.status, result.output_text) == ("failed", "completed", DEFAULT_REPLY)
    assert [(each["role"], each["content"]) for each in chat_server.requests[-1].json()["messages"]] == [
        ("system", "Answer in one sentence."),
        ("user", "Hello"),
        ("assistant", DEFAULT_REPLY),
        ("user", "This one fails.\n\nAnd now?"),
    ]


@pytest.mark.parametrize("behaviour", ["ok", "401-echo", "echo-in-text", "error-frame", "cut-after-text"])
async def test_the_key_is_in_no_event_result_file_or_log_of_ours(
    behaviour: str, chat_server: ChatServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chat_server.behaviour = behaviour
    # By name, too: a host of an earlier test holds these back.
    for name in ("openai", "httpx2"):
        caplog.set_level(logging.DEBUG, logger=name)
    with caplog.at_level(logging.DEBUG):
        async with session_on(chat_server, tmp_path) as session:
            events, result = await published(session, "What is the capital of France?")
    assert DEFAULT_KEY not in events
    assert DEFAULT_KEY not in result.model_dump_json()
    assert "Bearer sk-" not in events
    assert files_with("What is the capital of France?", tmp_path)  # so the search finds what is there
    assert files_with(DEFAULT_KEY, tmp_path) == []
    ours = [record for record in caplog.records if record.name.startswith(("runtime_host", "openai", "httpx2"))]
    assert ours
    assert not any(DEFAULT_KEY in record.getMessage() for record in ours)
    if behaviour == "echo-in-text":
        assert result.output_text == "Your header was Bearer [redacted], I think."


async def test_stop_keeps_what_had_come(chat_server: ChatServer, tmp_path: Path) -> None:
    chat_server.behaviour = "silent-after-text"
    async with session_on(chat_server, tmp_path) as session, asyncio.timeout(20):
        run = await session.run("Go on")
        async for event in run.events():
            if event.type == "agent.message.delta" and event.data["text"].endswith(" of"):
                await run.cancel()
        result = await run.result()
    assert (result.status, result.output_text) == ("cancelled", "The capital of")


async def test_an_effort_nobody_verified_sends_nothing(chat_server: ChatServer, tmp_path: Path) -> None:
    reasoning = ReasoningConfig(effort="high")
    async with session_on(chat_server, tmp_path) as session:
        try:
            run = await session.run("Think", reasoning=reasoning)
            result = await run.result()
            code, message = (result.error.code, result.error.message) if result.error else ("", "")
        except AgentDriverConfigurationError as refused:
            code, message = refused.error_code, refused.message
    assert (code, "is not known" in message) == ("AGENT_DRIVER_CONFIGURATION", True)
    assert chat_server.requests == []


SCHEMA = {"type": "object", "properties": {"capital": {"type": "string"}}, "required": ["capital"]}


@pytest.mark.parametrize(
    ("reply", "parsed"),
    [
        ('{"capital": "Paris"}', {"capital": "Paris"}),
        ('```json\n{"capital": "Paris"}\n```', {"capital": "Paris"}),
        ('{"capital": 1}', None),
        ("Paris.", None),
    ],
)
async def test_an_answer_with_a_schema_is_asked_for_and_judged(
    chat_server: ChatServer, tmp_path: Path, reply: str, parsed: object
) -> None:
    chat_server.reply = reply
    async with session_on(chat_server, tmp_path) as session:
        run = await session.run("The capital?", response_format={"type": "json_schema", "schema": SCHEMA})
        result = await run.result()
        plain = await (await session.run("And now?")).result()
    [asked, usual] = [request.json()["messages"][0]["content"] for request in chat_server.requests]
    assert asked.startswith(DEFINITION.instructions)
    assert json.dumps(SCHEMA, sort_keys=True, separators=(",", ":")) in asked
    assert usual == DEFINITION.instructions, "the next message is asked as always"
    assert (result.output_parsed, result.enforcement) == (parsed, {"structured_output": "emulated"})
    assert result.status == ("completed" if parsed else "failed")
    assert plain.status == "completed"
