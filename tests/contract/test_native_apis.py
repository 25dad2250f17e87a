"""One table of faults over the three kinds of API, each through its real SDK client and a strict server.

What is peculiar to one of them stands below the table.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from runtime_host.connectors.base import Connector, ConnectorRegistry, Vendor
from runtime_host.connectors.transport import Timeouts
from runtime_host.definitions import ImagePart, JsonSchemaFormat, ReasoningConfig
from runtime_host.drivers.base import TranscriptMessage, Turn
from runtime_host.drivers.native.driver import Retries
from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.events import AgentEvent
from runtime_host.models.facts import ModelFacts
from runtime_host.results import AgentResult, RunStatus
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.storage.rows import ModelJobRow
from runtime_host.tools.base import ToolFailedError
from tests.loopback.chat_server import DEFAULT_KEY, DEFAULT_MODEL, DEFAULT_REPLY, HUGE_CHARS, TOOL_MARKUP, ChatServer
from tests.loopback.messages_server import MessagesServer
from tests.loopback.native import (
    AT_ONCE,
    DEFINITION,
    Outcome,
    drive,
    driver_for,
    options_for,
    outcome,
    registry_for,
    start,
    turn_for,
)
from tests.loopback.responses_server import ResponsesServer
from tests.loopback.tools import WITH_LOOK, MortalStore, World, doomed_runtime_on, finish, runtime_on

BEGUN = "The capital of"
IMPATIENT = Timeouts(connect_s=2.0, read_s=0.5, write_s=2.0)
SERVERS: tuple[type[ChatServer], ...] = (ChatServer, ResponsesServer, MessagesServer)
PNG = ImagePart(media_type="image/png", data=b"\x89PNG\r\n\x1a\n" + bytes(64))
GIF = ImagePart(media_type="image/gif", data=b"GIF89a" + bytes(32))


class Far:
    """A server and the registry that leads to it."""

    def __init__(self, server: ChatServer) -> None:
        self.server = server
        self.vendor: Vendor = server.vendor

    def registry(self, key: str | None = DEFAULT_KEY, facts: tuple[ModelFacts, ...] = ()) -> ConnectorRegistry:
        return registry_for(self.server.base_url, key, vendor=self.vendor, facts=facts)

    async def drive(self, turn: Turn | None = None, **more: Any) -> Outcome:
        return await drive(self.registry(), turn, **more)

    def body(self, at: int = -1) -> Any:
        return self.server.requests[at].json()


@pytest.fixture(params=SERVERS, ids=["chat-completions", "responses", "messages"])
async def far(request: pytest.FixtureRequest) -> AsyncIterator[Far]:
    async with request.param() as server:
        yield Far(server)


@pytest.fixture
async def responses() -> AsyncIterator[Far]:
    async with ResponsesServer() as server:
        yield Far(server)


@pytest.fixture
async def messages() -> AsyncIterator[Far]:
    async with MessagesServer() as server:
        yield Far(server)


class Row(NamedTuple):
    """A behaviour of the server and what must come of it. `tries`: how often the request is sent."""

    behaviour: str
    status: RunStatus
    code: str | None = None
    words: str = ""
    text: str = ""
    retryable: bool = False
    tries: int = 1


ROWS = [
    Row("ok", "completed", text=DEFAULT_REPLY),
    Row("no-usage", "completed", text=DEFAULT_REPLY),
    Row("cut-after-finish", "completed", text=DEFAULT_REPLY),
    Row("keep-alive", "completed", text=DEFAULT_REPLY),
    Row("odd-shapes", "completed", text=DEFAULT_REPLY),
    Row("tool-markup", "completed", text=TOOL_MARKUP),
    Row("400", "failed", "PROVIDER_REQUEST_REFUSED", "refused the request (400)"),
    Row("400-context", "failed", "PROVIDER_CONTEXT_TOO_LONG", "Start a new conversation"),
    Row("400-credit", "failed", "PROVIDER_QUOTA_EXHAUSTED", "no credit"),
    Row("401", "failed", "PROVIDER_KEY_REFUSED", "refused the key (401)"),
    Row("401-echo", "failed", "PROVIDER_KEY_REFUSED", "Check the key"),
    Row("402", "failed", "PROVIDER_QUOTA_EXHAUSTED", "no credit"),
    Row("403", "failed", "PROVIDER_FORBIDDEN", "does not allow this key"),
    Row("404-model", "failed", "PROVIDER_MODEL_UNKNOWN", "no model called loopback-chat"),
    Row("404-page", "failed", "PROVIDER_NOT_FOUND", "Check the address"),
    Row("408", "failed", "PROVIDER_UNAVAILABLE", "tried 3 times", retryable=True, tries=3),
    Row("409", "failed", "PROVIDER_UNAVAILABLE", "(409)", retryable=True, tries=3),
    Row("413", "failed", "PROVIDER_CONTEXT_TOO_LONG", "Start a new conversation"),
    Row("422", "failed", "PROVIDER_REQUEST_REFUSED", "refused the request (422)"),
    Row("429", "failed", "PROVIDER_RATE_LIMITED", "asks to wait 20 seconds", retryable=True, tries=3),
    Row("429-bare", "failed", "PROVIDER_RATE_LIMITED", "no more requests for now (429)", retryable=True, tries=3),
    Row("429-date", "failed", "PROVIDER_RATE_LIMITED", "no more requests for now (429)", retryable=True, tries=3),
    Row("429-hour", "failed", "PROVIDER_RATE_LIMITED", "asks to wait 60 minutes", retryable=True),
    Row("500", "failed", "PROVIDER_UNAVAILABLE", "(500)", retryable=True, tries=3),
    Row("502", "failed", "PROVIDER_UNAVAILABLE", "(502)", retryable=True, tries=3),
    Row("503-retry", "failed", "PROVIDER_UNAVAILABLE", "(503)", retryable=True, tries=3),
    Row("503-hour", "failed", "PROVIDER_UNAVAILABLE", "asks to wait 60 minutes", retryable=True),
    Row("504", "failed", "PROVIDER_UNAVAILABLE", "(504)", retryable=True, tries=3),
    Row("529", "failed", "PROVIDER_UNAVAILABLE", "overloaded (529)", retryable=True, tries=3),
    Row("redirect", "failed", "PROVIDER_REDIRECTED", "not followed"),
    Row("cut-before-answer", "failed", "PROVIDER_STREAM_CUT", "tried 3 times", tries=3),
    Row("cut-before-text", "failed", "PROVIDER_STREAM_CUT", "tried 3 times", tries=3),
    Row("cut-after-text", "failed", "PROVIDER_STREAM_CUT", "is kept", BEGUN),
    Row("end-without-finish", "failed", "PROVIDER_STREAM_CUT", "is kept", BEGUN),
    Row("malformed-json", "failed", "PROVIDER_MALFORMED", "no chat reply", BEGUN),
    Row("malformed-utf8", "failed", "PROVIDER_MALFORMED", "no chat reply", BEGUN),
    Row("endless-event", "failed", "PROVIDER_MALFORMED", "no chat reply", BEGUN),
    Row("html-page", "failed", "PROVIDER_MALFORMED", "Check that the address"),
    Row("gzip", "failed", "PROVIDER_MALFORMED", "Check that the address"),
    Row("error-frame", "failed", "PROVIDER_FAILED", "fault of its own", BEGUN),
    Row("named-error-frame", "failed", "PROVIDER_FAILED", "fault of its own", BEGUN),
    Row("error-frame-first", "failed", "PROVIDER_UNAVAILABLE", "overloaded", retryable=True, tries=3),
    Row("error-frame-bad-request", "failed", "PROVIDER_REQUEST_REFUSED", "refused the request."),
    Row("tool-call", "failed", "PROVIDER_TOOL_NOT_OFFERED", "nothing was executed"),
    Row("length", "incomplete", "PROVIDER_LENGTH_LIMIT", "length limit", BEGUN),
    Row("content-filter", "incomplete", "PROVIDER_CONTENT_FILTERED", "content rules", BEGUN),
    Row("refusal", "incomplete", "PROVIDER_REFUSAL", "declined", "I will not say."),
    Row("odd-finish", "incomplete", "PROVIDER_END_UNKNOWN", "may not be complete", DEFAULT_REPLY),
]


def check(came: Outcome, row: Row) -> None:
    error = came.result.error
    assert (came.result.status, came.result.output_text, came.text()) == (row.status, row.text, row.text), error
    if row.code is None:
        assert error is None
        return
    assert error is not None
    assert (error.code, error.retryable) == (row.code, row.retryable), error.message
    assert row.words in error.message
    assert error.message.count(". ") >= 1
    assert error.message.endswith(".")


def retries(came: Outcome) -> list[dict[str, Any]]:
    return [event.data for event in came.events if event.data.get("code") == "RETRY"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.behaviour)
async def test_fault(row: Row, far: Far, caplog: pytest.LogCaptureFixture) -> None:
    if row.behaviour not in far.server.behaviours:
        assert (far.vendor, row.behaviour) == ("anthropic", "content-filter")  # this API has no word for it
        return
    far.server.behaviour = row.behaviour
    with caplog.at_level(logging.DEBUG):
        came = await far.drive()
    check(came, row)
    assert len(far.server.requests) == row.tries
    assert [told["attempt"] for told in retries(came)] == list(range(2, row.tries + 1))
    published = json.dumps([event.data for event in came.events]) + came.result.model_dump_json()
    assert DEFAULT_KEY[3:] not in published
    shown = [logging.Formatter("%(name)s %(message)s").format(record) for record in caplog.records]
    leaking = {line.split(".")[0] for line in shown if DEFAULT_KEY in line}
    # DEBUG lines of transport and SDK name the headers of an answer; a host passes every line through the redactor.
    assert leaking <= ({"httpcore2", "anthropic"} if row.behaviour == "401-echo" else set())


async def test_a_key_said_back_in_the_reply_is_masked_by_the_registrys_redactor(far: Far) -> None:
    far.server.behaviour = "echo-in-text"
    registry = far.registry()
    came = await drive(registry)
    stream = registry.redactor.stream()
    shown = "".join(stream.feed(event.data["text"]) for event in came.events if event.type == "agent.message.delta")
    assert shown + stream.flush() == "Your header was Bearer [redacted], I think."


@pytest.mark.parametrize(
    ("behaviour", "text", "words"),
    [("silent", "", "not known; it is not sent again"), ("silent-after-text", BEGUN, "is kept")],
)
async def test_silence_beyond_the_limit_ends_the_run(far: Far, behaviour: str, text: str, words: str) -> None:
    far.server.behaviour = behaviour
    came = await far.drive(timeouts=IMPATIENT)
    check(came, Row("", "failed", "PROVIDER_SILENT", words, text))
    assert len(far.server.requests) == 1


async def test_keep_alive_is_no_silence(far: Far) -> None:
    """Six signs of life a tenth of a second apart, with a patience of less than that in all."""
    far.server.behaviour = "keep-alive"
    came = await far.drive(timeouts=Timeouts(connect_s=2.0, read_s=0.4, write_s=2.0))
    check(came, Row("", "completed", text=DEFAULT_REPLY))


async def test_a_huge_event_arrives_whole_in_bounded_pieces(far: Far) -> None:
    far.server.behaviour = "huge-event"
    came = await far.drive()
    assert len(came.result.output_text) == HUGE_CHARS
    assert came.text() == came.result.output_text
    assert max(len(event.data["text"]) for event in came.events if event.type == "agent.message.delta") <= 8192


async def test_an_unreachable_server_is_tried_again_and_told_from_a_broken_one(far: Far) -> None:
    registry = far.registry()
    await far.server.aclose()
    came = await drive(registry)
    check(came, Row("", "failed", "PROVIDER_UNREACHABLE", "Nothing was sent.", retryable=True))
    assert len(retries(came)) == 2


async def test_redirects_reach_no_other_origin(far: Far) -> None:
    async with ChatServer(key=None) as other:
        far.server.behaviour = "redirect"
        far.server.redirect_to = f"{other.base_url}/chat/completions"
        await far.drive()
        assert other.requests == []


async def test_only_the_headers_of_the_api_go_out_whatever_the_environment_says(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatServer(key=None) as other:
        evil = "X-Evil: yes\nAuthorization: Bearer other\nHost: evil.example\nanthropic-version: evil\nX-Api-Key: evil"
        for vendor in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{vendor}_CUSTOM_HEADERS", evil)
            monkeypatch.setenv(f"{vendor}_API_KEY", "sk-evil-evil-evil")
            monkeypatch.setenv(f"{vendor}_BASE_URL", other.base_url)
        monkeypatch.setenv("OPENAI_ORG_ID", "org-evil")
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "evil-token")
        monkeypatch.setenv("ANTHROPIC_PROFILE", "evil")
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, other.base_url.removesuffix("/v1"))
        came = await far.drive()
        assert other.requests == []
    assert came.result.output_text == DEFAULT_REPLY
    [request] = far.server.requests
    assert "evil" not in request.raw_headers
    own = {"x-api-key", "anthropic-version"} if far.vendor == "anthropic" else {"authorization"}
    common = {"host", "accept", "accept-encoding", "user-agent", "content-type", "content-length"}
    assert set(request.headers) == common | own


async def test_usage_tells_cache_and_reasoning_apart(far: Far) -> None:
    far.server.behaviour = "reasoning"
    came = await far.drive()
    assert came.result.usage is not None
    assert came.result.usage.model_dump(exclude={"coverage", "native"}) == {
        "input_tokens": 21,
        "cached_input_tokens": 5,
        "cache_write_input_tokens": None if far.vendor == "openai-compatible" else 6,
        "output_tokens": 8,
        "reasoning_tokens": 3,
        "total_tokens": 29,
    }
    # Each report is of the whole so far: the counts are not added up.
    assert came.events[-1].data == came.result.usage.model_dump()


async def test_reasoning_is_shown_apart_from_the_reply(far: Far) -> None:
    far.server.behaviour = "reasoning"
    came = await far.drive()
    assert came.types() == [
        "reasoning.delta",
        "reasoning.completed",
        "agent.message.delta",
        "agent.message.completed",
        "usage.updated",
    ]
    assert came.text("reasoning.completed") == "France. Its capital."
    assert came.result.output_text == DEFAULT_REPLY


async def test_the_whole_conversation_is_sent_and_taken_by_a_strict_server(far: Far) -> None:
    earlier = (
        TranscriptMessage("user", "Hello"),
        TranscriptMessage("assistant", "Hello!"),
        TranscriptMessage("user", "This one got no reply."),
    )
    came = await far.drive(turn_for("And this?", earlier=earlier))
    assert came.result.status == "completed"
    body = far.body()
    sent = body.get("messages") or body["input"]
    said = [(each["role"], each["content"]) for each in sent if each["role"] != "system"]
    assert said == [("user", "Hello"), ("assistant", "Hello!"), ("user", "This one got no reply.\n\nAnd this?")]
    assert "Answer in one sentence." in (body.get("system"), body.get("instructions"), sent[0]["content"])
    assert body.get("store", False) is False


# ------------------------------------------------------------------------------------------ retries


async def test_a_request_of_which_nothing_was_shown_is_repeated_and_that_is_said(far: Far) -> None:
    far.server.script = ["529", "cut-before-text"]
    waits: list[float] = []

    async def sleep(wait_s: float) -> None:
        waits.append(wait_s)

    came = await far.drive(retries=Retries(sleep=sleep))
    check(came, Row("", "completed", text=DEFAULT_REPLY))
    assert len(far.server.requests) == 3
    assert len({request.body for request in far.server.requests}) == 1
    told = retries(came)
    assert [each["reason"] for each in told] == ["PROVIDER_UNAVAILABLE", "PROVIDER_STREAM_CUT"]
    assert [each["wait_ms"] for each in told] == [round(wait_s * 1000) for wait_s in waits]
    assert 0.7 < waits[0] < 1.3 < 2.9 < waits[1] < 5.1
    assert all(each["level"] == "warning" and each["message"].endswith(f"(try {each['attempt']}).") for each in told)
    assert came.types()[0] == "diagnostic"
    assert came.result.usage is not None
    assert came.result.usage.total_tokens == 29  # of the reply that came, not of what broke off before


async def test_what_a_server_asks_to_wait_is_waited(far: Far) -> None:
    far.server.script = ["429", "429-date"]
    waits: list[float] = []

    async def sleep(wait_s: float) -> None:
        waits.append(wait_s)

    came = await far.drive(retries=Retries(sleep=sleep))
    assert came.result.status == "completed"
    assert waits == [20.0, 0.0]


async def test_a_stop_ends_the_wait_for_the_next_try_at_once(far: Far) -> None:
    far.server.behaviour = "429"
    async with driver_for(far.registry(), retries=Retries()) as driver:
        run = await start(driver, turn_for())
        reading = asyncio.create_task(outcome(run))
        async with asyncio.timeout(10):
            while not far.server.requests:  # noqa: ASYNC110 - the server is plain data
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        async with asyncio.timeout(2):
            await run.cancel()
            came = await reading
    assert came.result.status == "cancelled"
    assert len(far.server.requests) == 1


async def test_a_connector_that_moves_between_two_tries_sends_nothing_elsewhere(far: Far) -> None:
    async with ChatServer(key=None) as other:
        far.server.key = None
        far.server.behaviour = "500"
        places = [far.server.base_url]
        registry = ConnectorRegistry(
            lambda name: Connector(name=name, vendor=far.vendor, base_url=places[0]), far.registry()._secrets
        )

        async def move(_: float) -> None:
            places[0] = other.base_url

        came = await drive(registry, retries=Retries(sleep=move))
        assert other.requests == []
    assert came.result.error is not None
    assert came.result.error.code == "AGENT_CONFIGURATION_CHANGED"


async def test_after_text_was_shown_nothing_is_repeated(far: Far) -> None:
    far.server.script = ["cut-after-text"]
    came = await far.drive()
    check(came, Row("", "failed", "PROVIDER_STREAM_CUT", "is kept", BEGUN))
    assert len(far.server.requests) == 1


# ----------------------------------------------------------------------------------- efforts, schemas


def effort(name: str) -> ReasoningConfig:
    return ReasoningConfig.model_validate({"effort": name})


VERIFIED: dict[Vendor, str] = {
    "openai-compatible": "gpt-6-sol",
    "openai": "gpt-6-sol",
    "anthropic": "claude-opus-5-5",
}


async def test_an_effort_goes_out_as_the_api_names_it(far: Far) -> None:
    came = await far.drive(turn_for(model=VERIFIED[far.vendor], reasoning=effort("xhigh")))
    assert came.result.status == "completed"
    body = far.body()
    said = body.get("reasoning_effort") or body.get("reasoning") or (body["output_config"], body["thinking"])
    assert (
        said
        == {
            "openai-compatible": "xhigh",
            "openai": {"effort": "xhigh", "summary": "auto"},
            "anthropic": ({"effort": "xhigh"}, {"type": "adaptive", "display": "summarized"}),
        }[far.vendor]
    )


WANTED = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


async def test_a_schema_is_the_providers_matter_where_its_api_has_a_mode_for_it(far: Far) -> None:
    far.server.reply = '{"city": "Paris"}'
    wanted = JsonSchemaFormat(schema=WANTED, name="the city", strict=None)
    came = await far.drive(turn_for(response_format=wanted))
    assert came.result.output_text == far.server.reply
    body = far.body()
    if far.vendor == "openai":
        assert body["text"] == {"format": {"type": "json_schema", "name": "the_city", "schema": WANTED}}
        assert body["instructions"] == "Answer in one sentence."
    elif far.vendor == "anthropic":
        assert body["output_config"] == {"format": {"type": "json_schema", "schema": WANTED}}
        assert body["system"] == "Answer in one sentence."
    else:
        assert '"required":["city"]' in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("reply", "status", "parsed"),
    [
        ('{"city": "Paris"}', "completed", {"city": "Paris"}),
        ('{"town": "Paris"}', "failed", None),
        ("Paris", "failed", None),
    ],
)
async def test_what_the_provider_promises_is_checked_here_all_the_same(
    far: Far, reply: str, status: str, parsed: Any
) -> None:
    far.server.reply = reply
    async with runtime_on(far.server, MemoryAgentStore(), World()) as runtime:
        session = await runtime.create_agent(DEFINITION).open_session(options_for())
        wanted = JsonSchemaFormat(schema=WANTED, name="city")
        _, result = await finish(await session.run("Where?", response_format=wanted))
    assert (result.status, result.output_parsed) == (status, parsed)
    assert result.enforcement == {"structured_output": "emulated" if far.vendor == "openai-compatible" else "native"}
    assert status == "completed" or result.finish_reason == "structured_output_invalid"


async def test_what_holds_a_model_to_a_schema_is_told_before(far: Far) -> None:
    async with driver_for(far.registry()) as driver:
        inspected = await driver.inspect(DEFINITION, options_for())
    expected = "emulated" if far.vendor == "openai-compatible" else "native"
    assert inspected.capabilities["run.structured_output"].support == expected
    assert far.server.requests == []


# -------------------------------------------------------------------------------------------- tools


async def with_tools(
    far: Far, world: World, *, model: str = DEFAULT_MODEL, reasoning: ReasoningConfig | None = None
) -> tuple[list[AgentEvent], AgentResult]:
    """One run in a runtime of its own, its model offered the tool `look`."""
    async with runtime_on(far.server, MemoryAgentStore(), world) as runtime:
        agent = runtime.create_agent(WITH_LOOK)
        session = await agent.open_session(options_for(model=model, reasoning=reasoning))
        return await finish(await session.run("What is the weather?"))


def told(events: list[AgentEvent], kind: str) -> list[Any]:
    return [event.data for event in events if event.type == kind]


async def test_two_calls_at_once_are_executed_and_their_results_told(far: Far) -> None:
    far.server.behaviour = "tool-parallel"
    world = World()
    events, result = await with_tools(far, world)
    assert result.status == "completed", result.error
    assert world.effects == ["Paris", "Rome"]
    assert [each["result"]["city"] for each in told(events, "tool.completed")] == ["Paris", "Rome"]
    second = told(events, "tool.completed")[1]["id"]
    assert result.output_text == (
        'It says: {"city": "Paris", "weather": "rain"} and {"city": "Rome", "weather": "rain"}'
    )
    deltas = [each for each in told(events, "tool.progress") if each["id"] == second and "delta" in each]
    assert "".join(each["delta"] for each in deltas) == '{"city": "Rome"}'


async def test_a_tool_that_failed_is_told_as_that_and_the_run_goes_on(far: Far) -> None:
    far.server.behaviour = "tool-single"
    world = World()

    async def fail(city: str, _: Any) -> Any:
        raise ToolFailedError(f"There is no {city}.")

    world.act = fail
    _, result = await with_tools(far, world)
    assert result.status == "completed", result.error
    assert "There is no Paris." in result.output_text
    if far.vendor == "anthropic":
        [block] = far.body()["messages"][-1]["content"]
        assert block["is_error"] is True


@pytest.mark.parametrize(
    ("behaviour", "effects", "says"),
    [
        ("tool-malformed", [], "no JSON"),
        ("tool-misfit", [], "Nothing was executed"),
        ("tool-unknown", [], "There is no tool of this name"),
        ("tool-repeated", ["Paris"], "rain"),
        ("tool-two-rounds", ["Paris", "Rome"], "rain"),
        ("tool-after-text", ["Paris"], "rain"),
    ],
)
async def test_odd_calls_are_answered_in_words(far: Far, behaviour: str, effects: list[str], says: str) -> None:
    far.server.behaviour = behaviour
    world = World()
    _, result = await with_tools(far, world)
    assert result.status == "completed", result.error
    assert world.effects == effects
    assert says in result.output_text


async def test_a_repeated_request_repeats_no_tool(far: Far) -> None:
    """The results are told again; nothing is executed again."""
    far.server.behaviour = "tool-single"
    far.server.script = ["500", "tool-single", "503-retry", "cut-before-text"]
    world = World()
    events, result = await with_tools(far, world)
    assert result.status == "completed", result.error
    assert world.effects == ["Paris"]
    assert len(far.server.requests) == 5
    assert [each["attempt"] for each in told(events, "diagnostic")] == [2, 2, 3]
    assert len(told(events, "run.started")) == len(told(events, "run.finished")) == 1


async def test_a_repeat_that_fails_leaves_the_results_kept(far: Far) -> None:
    far.server.behaviour = "500"
    far.server.script = ["tool-single"]
    world = World()
    _, result = await with_tools(far, world)
    assert (result.status, world.effects) == ("failed", ["Paris"])
    assert result.error is not None
    assert result.error.code == "PROVIDER_UNAVAILABLE"
    assert len(far.server.requests) == 4


@pytest.mark.parametrize("server_type", [ResponsesServer, MessagesServer])
async def test_reasoning_before_a_call_goes_back_exactly_as_it_came(server_type: type[ChatServer]) -> None:
    """The server refuses anything else: signed thinking, sealed reasoning and words, in their order, with the calls."""
    async with server_type(behaviour="reasoning-tool") as server:
        far, world = Far(server), World()
        events, result = await with_tools(far, world, model=VERIFIED[server.vendor], reasoning=effort("high"))
        assert result.status == "completed", result.error
        assert world.effects == ["Paris", "Rome"]
        assert [each["text"] for each in told(events, "reasoning.completed")] == ["France. Its capital."]
        assert next(each["text"] for each in told(events, "agent.message.completed")) == "Let me look."
        assert len(server.requests) == 2


async def test_a_chat_server_gets_back_what_it_put_beside_a_call() -> None:
    """Signatures of calls and the reasoning before them, which some providers refuse to go on without."""
    async with ChatServer(behaviour="tool-with-extras") as server:
        world = World()
        events, result = await with_tools(Far(server), world)
        assert result.status == "completed", result.error
        assert world.effects == ["Paris"]
        assert [each["text"] for each in told(events, "reasoning.completed")] == ["France. Its capital."]


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


@pytest.mark.parametrize("server_type", [ResponsesServer, MessagesServer])
async def test_a_run_goes_on_after_a_restart_with_the_reasoning_that_its_provider_wants_back(
    server_type: type[ChatServer],
) -> None:
    """It is kept with the answer it came with, until the run has ended."""
    async with server_type(behaviour="reasoning-tool") as server:
        memory, world = MemoryAgentStore(), World()
        options = options_for(model=VERIFIED[server.vendor], reasoning=effort("high"))
        store = MortalStore(memory)
        async with doomed_runtime_on(server, store, world) as runtime:
            session = await runtime.create_agent(WITH_LOOK).open_session(options)

            async def die(city: str, _: Any) -> Any:
                if city == "Rome":
                    store.dies_after = store.commits + 1  # with the result of this call
                return {"city": city}

            world.act = die
            asking = asyncio.ensure_future(session.run("What is the weather?"))
            async with asyncio.timeout(20):
                await store.dead.wait()
            asking.cancel()
            reference = session.reference()
        assert len(server.requests) == 1
        async with runtime_on(server, memory, world) as runtime:
            session = await runtime.resume_session(reference, context=options.context)
            run = session.active_run
            assert run is not None
            _, result = await finish(run)
            assert result.status == "completed", result.error
            assert world.effects == ["Paris", "Rome"]
            jobs = await memory.read(lambda tx: tx.rows(ModelJobRow))
            assert jobs
            assert not any("kept" in (job.answer or {}) for job in jobs)
        body = server.requests[-1].json()
        sealed = {"signature", "encrypted_content"}
        said = [part for each in body.get("messages", body.get("input")) for part in (each, *_parts(each))]
        assert any(sealed & part.keys() for part in said), "the server refuses to go on without"
        assert body.get("output_config", body.get("reasoning"))["effort"] == "high"


async def test_thinking_that_is_not_shown_goes_back_all_the_same(messages: Far) -> None:
    messages.server.behaviour = "omitted-thinking"
    world = World()
    _, result = await with_tools(messages, world)
    assert (result.status, world.effects) == ("completed", ["Paris"]), result.error


async def test_the_next_input_brings_no_reasoning_of_an_earlier_run(responses: Far) -> None:
    """It is kept for the run alone; calls and results stand where they were made."""
    responses.server.behaviour = "reasoning-tool"
    async with runtime_on(responses.server, MemoryAgentStore(), World()) as runtime:
        session = await runtime.create_agent(WITH_LOOK).open_session(options_for())
        await finish(await session.run("What is the weather?"))
        responses.server.behaviour = "ok"
        _, result = await finish(await session.run("And tomorrow?"))
        assert result.status == "completed", result.error
    assert [item["type"] for item in responses.body()["input"]] == [
        "message",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
        "message",
    ]


# ------------------------------------------------------------------------------------------- images


async def test_images_go_out_with_their_message_and_again_with_the_conversation(far: Far) -> None:
    earlier = (
        TranscriptMessage("user", "What is this?", images=(PNG,)),
        TranscriptMessage("assistant", "A picture."),
        TranscriptMessage("user", "", images=(GIF,)),
        TranscriptMessage("assistant", "Another."),
    )
    came = await far.drive(turn_for("And these?", earlier=earlier, parts=(PNG, GIF)))
    assert came.result.status == "completed", came.result.error  # the server looks at each picture
    assert far.server.requests[0].body.count(b"base64") == 4


async def test_a_refusal_for_a_picture_says_so(far: Far) -> None:
    far.server.behaviour = "400-image"
    came = await far.drive(turn_for("What is this?", parts=(PNG,)))
    check(came, Row("", "failed", "PROVIDER_PICTURE_REFUSED", "Choose a model that does"))
    came = await far.drive(turn_for("What is this?"))
    check(came, Row("", "failed", "PROVIDER_REQUEST_REFUSED", "refused the request (400)"))


async def test_a_model_that_takes_no_pictures_is_told_that_there_were_some(far: Far) -> None:
    facts = (ModelFacts(model=DEFAULT_MODEL, images=False, origin="provider"),)
    earlier = (TranscriptMessage("user", "", images=(PNG,)), TranscriptMessage("assistant", "A picture."))
    came = await drive(far.registry(facts=facts), turn_for("And now?", earlier=earlier))
    assert came.result.status == "completed"
    assert b"base64" not in far.server.requests[0].body
    assert b"A picture was here" in far.server.requests[0].body


# ----------------------------------------------------------------------------------- one API's own


async def test_messages_without_their_events_names_are_read_all_the_same(messages: Far) -> None:
    messages.server.behaviour = "nameless"
    check(await messages.drive(), Row("", "completed", text=DEFAULT_REPLY))


async def test_a_paused_turn_goes_on_as_one_reply(messages: Far) -> None:
    messages.server.behaviour = "pause"
    came = await messages.drive()
    check(came, Row("", "completed", text="The capital of France is Paris."))
    assert len(messages.server.requests) == 3
    assert messages.body()["messages"][-1]["content"] == [
        {"type": "text", "text": "The capital"},
        {"type": "text", "text": " of France"},
    ]
    assert came.result.usage is not None
    assert came.result.usage.total_tokens == 3 * 29
    assert len([event for event in came.events if event.type == "agent.message.completed"]) == 1


async def test_a_turn_that_pauses_for_ever_is_stopped(messages: Far) -> None:
    messages.server.behaviour = "pause-endless"
    came = await messages.drive()
    check(came, Row("", "incomplete", "PROVIDER_PAUSED", "paused", "x" * 64))


async def test_a_full_context_window_ends_the_reply_in_words(messages: Far) -> None:
    messages.server.behaviour = "context-full"
    row = Row("", "incomplete", "PROVIDER_CONTEXT_TOO_LONG", "Start a new conversation", BEGUN)
    check(await messages.drive(), row)


async def test_a_model_without_this_kind_of_thinking_gets_the_effort_alone(messages: Far) -> None:
    messages.server.behaviour = "no-adaptive"
    came = await messages.drive(turn_for(model="claude-opus-5-5", reasoning=effort("low")))
    assert came.result.status == "completed"
    assert ["thinking" in request.json() for request in messages.server.requests] == [True, False]
    assert messages.body()["output_config"] == {"effort": "low"}


async def test_an_account_without_summaries_gets_the_reply_alone(responses: Far) -> None:
    responses.server.behaviour = "no-extras"
    came = await responses.drive(turn_for(model="gpt-6-sol", reasoning=effort("low")))
    assert came.result.status == "completed"
    assert [request.json()["reasoning"] for request in responses.server.requests] == [
        {"effort": "low", "summary": "auto"},
        {"effort": "low"},
    ]
    assert retries(came) == []


async def test_an_effort_that_an_api_has_no_word_for_is_refused_before_anything_is_sent(messages: Far) -> None:
    facts = (ModelFacts(model=DEFAULT_MODEL, efforts=("minimal", "low"), origin="provider"),)
    with pytest.raises(AgentDriverConfigurationError, match="has no reasoning effort minimal"):
        await drive(messages.registry(facts=facts), turn_for(reasoning=effort("minimal")))
    assert messages.server.requests == []


async def test_a_longer_reply_is_asked_for_where_its_length_is_known(messages: Far) -> None:
    await messages.drive()
    facts = (ModelFacts(model=DEFAULT_MODEL, output_tokens=32_000, origin="provider"),)
    await drive(messages.registry(facts=facts))
    assert [request.json()["max_tokens"] for request in messages.server.requests] == [8192, 32_000]


async def test_items_without_their_pieces_are_read_all_the_same(responses: Far) -> None:
    responses.server.behaviour = "whole-items"
    check(await responses.drive(), Row("", "completed", text=DEFAULT_REPLY))


async def test_two_messages_of_one_reply_do_not_run_into_each_other(responses: Far) -> None:
    responses.server.behaviour = "two-messages"
    check(await responses.drive(), Row("", "completed", text="I will think.\n\nParis."))


def test_the_retries_of_the_tests_are_the_real_ones_without_the_waits() -> None:
    assert AT_ONCE._replace(sleep=Retries().sleep) == Retries()
