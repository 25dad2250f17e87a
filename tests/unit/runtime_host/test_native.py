"""What `native.agent` accepts, how it words things, and what it sends."""

import ast
import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.connectors import BUILTIN_CONNECTOR, Connector, ConnectorRegistry, SecretRef
from runtime_host.definitions import AgentDefinition, Environment, ReasoningConfig
from runtime_host.drivers.base import AgentDriver, DriverRun, DriverSession, SessionOpening, TranscriptMessage
from runtime_host.drivers.native import NativeDriver, mapping
from runtime_host.errors import (
    AgentClosedError,
    AgentDriverConfigurationError,
    AgentPolicyUnsupportedError,
    AgentSessionRecoveryError,
    ConnectorError,
)
from runtime_host.loop.model_apis import chat_frames
from runtime_host.loop.model_apis.pieces import (
    ChatRequest,
    EndReason,
    FaultKind,
    Finished,
    ModelFault,
    Piece,
    ReasoningPiece,
    TextPiece,
    TlsReason,
)
from runtime_host.models import BUILTIN_MODELS, SMOLLM2
from runtime_host.policy import CHAT
from tests.loopback.chat_server import ChatServer
from tests.loopback.fixtures import chat_server
from tests.loopback.native import DEFINITION, drive, driver_for, options_for, registry_for, start, turn_for

__all__ = ["chat_server"]

HOME = "https://models.example/v1"
SERVER = Connector(name="Models", vendor="openai-compatible", base_url=HOME, secret=SecretRef(kind="env", name="K"))


def effort(name: str) -> ReasoningConfig:
    return ReasoningConfig.model_validate({"effort": name})


# ------------------------------------------------------------------------------------- driver


@pytest.mark.parametrize(
    ("changes", "definition", "error"),
    [
        ({"environment": Environment(type="local-directory", path="/srv")}, DEFINITION, AgentPolicyUnsupportedError),
        ({"environment": Environment(type="provider-managed")}, DEFINITION, AgentPolicyUnsupportedError),
        *(
            ({"policy": CHAT.model_copy(update={field: value})}, DEFINITION, AgentPolicyUnsupportedError)
            for field, value in (
                ("filesystem", "read-only"),
                ("filesystem", "workspace-write"),
                ("commands", "sandboxed"),
                ("sandbox_network", "allowed"),
                ("provider_web_search", "allowed"),
            )
        ),
        ({"reasoning": effort("low")}, DEFINITION, AgentDriverConfigurationError),
        ({"connector": "nowhere"}, DEFINITION, ConnectorError),
    ],
)  # fmt: skip
async def test_a_binding_that_is_not_carried_is_refused(
    changes: dict[str, Any], definition: AgentDefinition, error: type[Exception]
) -> None:
    async with driver_for(registry_for(HOME)) as driver:
        with pytest.raises(error) as refused:
            await driver.inspect(definition, options_for(**changes))
        assert str(refused.value).endswith(".")
        with pytest.raises(error):
            await driver.open(SessionOpening("session_1", definition, options_for(**changes)))


async def test_settings_of_other_harnesses_are_refused() -> None:
    options = options_for()
    execution = options.execution.model_copy(update={"driver_config": {"allow_project_config": True}})
    async with driver_for(registry_for(HOME)) as driver:
        with pytest.raises(AgentDriverConfigurationError, match="allow_project_config"):
            await driver.inspect(DEFINITION, options.model_copy(update={"execution": execution}))


async def test_inspection_tells_what_it_can_and_who_enforces() -> None:
    async with driver_for(registry_for(HOME)) as driver:
        unknown = await driver.inspect(DEFINITION, options_for())
        known = await driver.inspect(DEFINITION, options_for(model="gpt-6-sol", reasoning=effort("high")))
    assert unknown.driver_id == "native.agent"
    assert unknown.capabilities["run.cancel"].support == "native"
    assert unknown.capabilities["run.reasoning_override"].reason == "no effort is verified for this model"
    assert known.capabilities["run.reasoning_override"].support == "native"
    assert "xhigh" in (known.capabilities["run.reasoning_override"].reason or "")
    assert {name for name, each in unknown.capabilities.items() if each.support == "native"} == {
        "session.continue", "session.restore", "run.cancel", "run.model_override", "run.reasoning_override",
        "event.live", "event.message", "event.reasoning", "event.tool", "event.tool_progress", "tools.host",
        "input.image", "run.approval", "run.steer",
    }  # fmt: skip
    assert set(unknown.enforcement) == {
        "filesystem", "commands", "sandbox_network", "provider_web_search", "approvals",
    }  # fmt: skip
    assert unknown.prerequisites == (
        "https://models.example/v1 can be reached.",
        "The key of server can be read and is accepted.",
    )


async def test_inspection_reads_no_key_and_sends_nothing(chat_server: ChatServer) -> None:
    async def forbidden(_: SecretRef) -> str:
        raise AssertionError("inspect read a key")

    connector = registry_for(chat_server.base_url).connector("server")
    driver = NativeDriver(ConnectorRegistry({"server": connector}.get, forbidden))
    await driver.inspect(DEFINITION, options_for())
    await driver.open(SessionOpening("session_1", DEFINITION, options_for()))
    await driver.aclose()
    assert chat_server.requests == []


async def test_an_override_that_is_not_verified_rejects_before_any_call(chat_server: ChatServer) -> None:
    async with driver_for(registry_for(chat_server.base_url)) as driver:
        with pytest.raises(AgentDriverConfigurationError, match="is not known"):
            await start(driver, turn_for(model="unheard-of", reasoning=effort("low")))
    assert chat_server.requests == []


async def test_overrides_are_sent(chat_server: ChatServer) -> None:
    registry = registry_for(chat_server.base_url)
    came = await drive(registry, turn_for(model="gpt-6-sol", reasoning=effort("xhigh")))
    assert came.result.status == "completed"
    body = chat_server.requests[0].json()
    assert (body["model"], body["reasoning_effort"]) == ("gpt-6-sol", "xhigh")
    assert set(body) == {"model", "messages", "stream", "stream_options", "reasoning_effort"}


async def test_a_session_of_another_version_is_not_continued() -> None:
    async with driver_for(registry_for(HOME)) as driver:
        session = await driver.open(SessionOpening("session_1", DEFINITION, options_for()))
        assert json.loads(json.dumps(session.state()))["version"] == 1
        await driver.open(SessionOpening("session_1", DEFINITION, options_for(), session.state()))
        with pytest.raises(AgentSessionRecoveryError, match="another version"):
            await driver.open(SessionOpening("session_1", DEFINITION, options_for(), {"version": 2}))


async def test_a_closed_driver_opens_nothing() -> None:
    driver = NativeDriver(registry_for(HOME))
    await driver.aclose()
    await driver.aclose()
    with pytest.raises(AgentClosedError):
        await driver.open(SessionOpening("session_1", DEFINITION, options_for()))


async def test_it_meets_the_driver_protocol(chat_server: ChatServer) -> None:
    driver = NativeDriver(registry_for(chat_server.base_url))
    as_driver: AgentDriver = driver
    session: DriverSession = await as_driver.open(SessionOpening("session_1", DEFINITION, options_for()))
    run: DriverRun = await session.start(turn_for())
    await run.cancel()
    await as_driver.aclose()


LAZY = """
import asyncio, sys
from tests.loopback.chat_server import ChatServer
from tests.loopback.messages_server import MessagesServer
from tests.loopback.native import DEFINITION, driver_for, options_for, outcome, registry_for, start, turn_for
from tests.loopback.responses_server import ResponsesServer

async def main(server_type):
    async with server_type() as server:
        registry = registry_for(server.base_url, vendor=server.vendor)
        async with driver_for(registry) as driver:
            await driver.inspect(DEFINITION, options_for())
            before = sorted({"openai", "anthropic"} & set(sys.modules))
            beats = 0
            loading = asyncio.create_task(driver.api(registry.connector("server").api))
            while not loading.done():
                await asyncio.sleep(0.001)
                beats += 1
            loaded = set(sys.modules)
            came = await outcome(await start(driver, turn_for()))
            sdks = sorted({"openai", "anthropic"} & loaded)
            print([before, beats, sdks, sorted(set(sys.modules) - loaded), came.result.status])

asyncio.run(main(SERVER))
"""


@pytest.mark.parametrize(
    ("server", "sdk"), [("ChatServer", "openai"), ("ResponsesServer", "openai"), ("MessagesServer", "anthropic")]
)
def test_the_sdk_is_loaded_on_first_use_and_beside_the_event_loop(server: str, sdk: str) -> None:
    code = LAZY.replace("SERVER", server)
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    before, beats, after, by_the_request, status = ast.literal_eval(printed.stdout)
    assert before == []
    assert after == [sdk]
    assert beats >= 5  # in one piece on the loop it would be none
    assert by_the_request == []
    assert status == "completed"


def test_the_harness_itself_loads_no_http_and_no_sdk() -> None:
    code = "import sys, runtime_host.drivers.native; print({'openai', 'anthropic', 'httpx2'} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert printed.stdout.strip() == "set()"


# ---------------------------------------------------------------------------- the built-in model


class Builtin:
    def __init__(self, uds_path: str) -> None:
        self.uds_path = uds_path
        self.api_key = "builtin-key-of-this-start"
        self.uses = 0

    def use(self) -> Any:
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def held() -> Any:
            self.uses += 1
            yield self

        return held()


async def test_the_builtin_model_is_reached_over_its_socket(tmp_path: Any) -> None:
    source = Builtin(str(tmp_path / "model.sock"))
    registry = ConnectorRegistry({"builtin": BUILTIN_CONNECTOR}.get, registry_for(HOME)._secrets, source)
    options = options_for("builtin", SMOLLM2.id)
    async with ChatServer(uds_path=source.uds_path, key=source.api_key) as server:
        came = await drive(registry, turn_for(model=SMOLLM2.id), options=options)
        assert came.result.status == "completed"
        body = server.requests[0].json()
        assert (body["max_tokens"], body["temperature"], body["top_p"]) == (640, 0.2, 0.9)
        assert server.requests[0].headers["host"] == "localhost"
    assert source.uses == 1
    gone = await drive(registry, turn_for(model=SMOLLM2.id), options=options)
    assert gone.result.error is not None
    assert gone.result.error.code == "PROVIDER_UNREACHABLE"
    assert gone.result.error.message.startswith("The built-in model could not be reached.")


async def test_the_builtin_server_has_only_its_own_models() -> None:
    registry = ConnectorRegistry({"builtin": BUILTIN_CONNECTOR}.get, registry_for(HOME)._secrets, Builtin("/x"))
    async with driver_for(registry) as driver:
        inspected = await driver.inspect(DEFINITION, options_for("builtin", SMOLLM2.id))
        assert inspected.capabilities["event.reasoning"].support == "unsupported"
        assert inspected.capabilities["run.reasoning_override"].support == "unsupported"
        with pytest.raises(AgentDriverConfigurationError, match="no model gpt-6-sol"):
            await driver.inspect(DEFINITION, options_for("builtin", "gpt-6-sol"))


def test_the_builtin_model_says_that_it_is_tiny() -> None:
    assert {SMOLLM2.id: SMOLLM2} == BUILTIN_MODELS
    assert (SMOLLM2.tiny, SMOLLM2.context_tokens) == (True, 2048)


# ------------------------------------------------------------------------------------ mapping


def sent_for(earlier: list[tuple[str, str]], instructions: str = "Be brief.") -> list[dict[str, Any]]:
    """The messages of a chat-completions request."""
    messages = mapping.messages([TranscriptMessage(*each) for each in earlier], TranscriptMessage("user", "now"))
    sent: list[dict[str, Any]] = chat_frames.fields(ChatRequest("m", messages, instructions))["messages"]
    return sent


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.sampled_from(["", " ", "a", "b"])), max_size=12))
def test_roles_alternate_and_the_input_is_last(earlier: list[tuple[str, str]]) -> None:
    sent = sent_for(earlier)
    roles = [message["role"] for message in sent]
    assert roles[0] == "system"
    assert roles[-1] == "user"
    assert all(first != second for first, second in zip(roles, roles[1:], strict=False))  # noqa: RUF007 - short
    assert sent[-1]["content"].split("\n\n")[-1] == "now"
    said = [text for _, text in earlier if text.strip()]
    assert "".join(m["content"] for m in sent[1:]).replace("\n\n", "") == "".join(said) + "now"


def test_no_instructions_is_no_system_message() -> None:
    assert sent_for([], " ") == [{"role": "user", "content": "now"}]


def test_reasoning_is_closed_when_the_reply_begins_and_opened_anew_after() -> None:
    reply = mapping.ReplyMapper()
    reply.begin(offered=False)
    pieces: list[Piece] = [
        ReasoningPiece("r1"),
        ReasoningPiece("r2"),
        TextPiece("a"),
        ReasoningPiece("r3"),
        TextPiece("b"),
    ]
    events = [event for piece in pieces for event in reply.events(piece)] + list(reply.closing_events())
    assert [(event.type, event.data["id"], event.data["text"]) for event in events] == [
        ("reasoning.delta", "reasoning-1", "r1"),
        ("reasoning.delta", "reasoning-1", "r2"),
        ("reasoning.completed", "reasoning-1", "r1r2"),
        ("agent.message.delta", "reply-1", "a"),
        ("reasoning.delta", "reasoning-2", "r3"),
        ("reasoning.completed", "reasoning-2", "r3"),
        ("agent.message.delta", "reply-1", "b"),
        ("agent.message.completed", "reply-1", "ab"),
    ]


@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("connector", [SERVER, BUILTIN_CONNECTOR, SERVER.model_copy(update={"secret": None})])
def test_every_fault_has_whole_sentences(kind: FaultKind, connector: Connector) -> None:
    fault = ModelFault(kind, http_status=500, tls=TlsReason.EXPIRED)
    for kept in (True, False):
        error = mapping.fault_error(fault, connector, "a-model", kept=kept)
        assert error.code == kind.value
        assert error.message[0].isupper()
        assert error.message.endswith(".")
        assert "None" not in error.message
        assert "  " not in error.message
        assert json.dumps(error.details)
        assert not error.retryable or kind in (
            FaultKind.RATE_LIMITED, FaultKind.UNAVAILABLE, FaultKind.UNREACHABLE,
        )  # fmt: skip


@pytest.mark.parametrize("reason", EndReason)
def test_every_end_is_a_result(reason: EndReason) -> None:
    reply = mapping.ReplyMapper()
    reply.begin(offered=False)
    list(reply.events(TextPiece("kept")))
    list(reply.events(Finished(reason)))
    result = mapping.ended(reply, SERVER, "a-model")
    assert result.output_text == "kept"
    assert (result.status == "completed") == (reason is EndReason.STOP) == (result.error is None)


@pytest.mark.parametrize(
    ("wait_s", "words"),
    [(1.0, "wait 1 second."), (0.2, "wait 1 second."), (20.0, "wait 20 seconds."), (300.0, "wait 5 minutes."),
     (86400.0, "wait 24 hours."), (None, "for now. ")],
)  # fmt: skip
def test_the_wait_is_said_in_fitting_units(wait_s: float | None, words: str) -> None:
    error = mapping.fault_error(ModelFault(FaultKind.RATE_LIMITED, retry_after_s=wait_s), SERVER, "m", kept=False)
    assert words in error.message


def test_names_that_people_typed_cannot_dress_up_a_sentence() -> None:
    error = mapping.fault_error(ModelFault(FaultKind.MODEL_UNKNOWN), SERVER, "m\n\u202e\x1b[31m<b>", kept=False)
    assert error.message.startswith("Models has no model called m???")
    assert not set("\n\u202e\x1b<") & set(error.message)


async def test_events_come_in_time_and_not_at_the_end(chat_server: ChatServer) -> None:
    chat_server.behaviour = "silent-after-text"
    async with driver_for(registry_for(chat_server.base_url)) as driver:
        run = await start(driver, turn_for())
        events = run.events()
        async with asyncio.timeout(5):
            first = await anext(aiter(events))
        assert first.data == {"id": "reply-1", "text": "The", "phase": "unknown"}
        await run.cancel()
        rest = [event async for event in events]
        assert [event.data["text"] for event in rest] == [" capital", " of"]
