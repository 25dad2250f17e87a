"""What the official Anthropic client does by itself at the managed API, pinned: why our driver takes no more of it.

When one of these fails after an update of the SDK, the trap is gone or has moved: read the driver of managed Claude
again. The far side is as strict as the provider, so what the client sends is checked there, too.
"""

import asyncio
import inspect
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, get_args, get_type_hints

import anthropic
import httpx2
import pytest
from anthropic.lib.sessions import accumulate_managed_agents_event
from anthropic.types import FileMetadata
from anthropic.types.beta import BetaFileMetadata, BetaManagedAgentsSessionAgentUpdateParam
from anthropic.types.beta.sessions import beta_managed_agents_session_status_idle_event as idle_event

from tests.loopback.managed_claude.faults import (
    Altered,
    Answered,
    AnswerLost,
    NullIdAtPageEnd,
    Redirected,
    StreamFault,
    StreamFaultKind,
)
from tests.loopback.managed_claude.script import (
    GiveUp,
    Many,
    Refuse,
    Request,
    Reschedule,
    Say,
    Terminate,
    Trouble,
    Use,
    UseBuiltIn,
    Wait,
    WriteFile,
)
from tests.loopback.managed_claude_server import BETA, DEFAULT_KEY, Canary, ManagedClaudeServer

TOOL = {"type": "custom", "name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
FIFTY_CENTS = {"type": "limit", "max_list_cost": {"amount": "50", "currency": "USD"}}
A_DOLLAR = {"type": "limit", "max_list_cost": {"amount": "100", "currency": "USD"}}
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
PREVIEWS = ["agent.message", "agent.thinking"]


@pytest.fixture
async def far() -> AsyncIterator[ManagedClaudeServer]:
    async with ManagedClaudeServer() as listening:
        listening.service.stale_reads = 0
        yield listening


@pytest.fixture
async def client(far: ManagedClaudeServer) -> AsyncIterator[Any]:
    async with bare(far.base_url) as made:
        yield made


def bare(base_url: str, **more: Any) -> Any:
    """The official client as it is, but for its certificates, which take a while to read."""
    http_client = more.pop("http_client", None) or anthropic.DefaultAsyncHttpxClient(verify=NO_CERTIFICATES)
    fields = {"api_key": DEFAULT_KEY, "base_url": base_url, "max_retries": 0, "http_client": http_client}
    client = anthropic.AsyncAnthropic(**{**fields, **more})
    client._platform = "Unknown"  # or it leaves a thread of the loop's pool behind
    return client


async def opened(client: Any, **more: Any) -> str:
    """A new session's id."""
    agent = await client.beta.agents.create(name="tester", model="claude-opus-5-5", tools=[TOOL])
    environment = await client.beta.environments.create(name="room")
    pinned = {"type": "agent", "id": agent.id, "version": agent.version}
    return str((await client.beta.sessions.create(agent=pinned, environment_id=environment.id, **more)).id)


async def say(client: Any, session_id: str, text: str = "Hello") -> Any:
    message = {"type": "user.message", "content": [{"type": "text", "text": text}]}
    return await client.beta.sessions.events.send(session_id, events=[message])


async def told(client: Any, session_id: str, call_id: str, text: str = "sunny") -> Any:
    content = [{"type": "text", "text": text}]
    result = {"type": "user.custom_tool_result", "custom_tool_use_id": call_id, "content": content}
    return await client.beta.sessions.events.send(session_id, events=[result])


async def turn(client: Any, session_id: str, into: list[Any] | None = None, **more: Any) -> list[Any]:
    """One message, and what an application sees that trusts the stream: until idle, the end, or an exception."""
    seen: list[Any] = [] if into is None else into
    async with await client.beta.sessions.events.stream(session_id, **more) as stream:
        await say(client, session_id)
        async for event in stream:
            seen.append(event)
            if event.type in ("session.status_idle", "session.status_terminated"):
                break
    return seen


async def until_idle(stream: Any) -> list[Any]:
    seen = []
    async for event in stream:
        seen.append(event)
        if event.type == "session.status_idle":
            break
    return seen


async def when(condition: Callable[[], object], then: Coroutine[Any, Any, object] | None = None) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # a far side is plain data
            await asyncio.sleep(0)
    if then is not None:
        await then


def types(events: list[Any]) -> list[str]:
    return [event.type for event in events]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client would have slept between two tries; it does not."""
    found: list[float] = []

    async def sleep(wait_s: float) -> None:
        found.append(wait_s)

    module = sys.modules["anthropic._base_client"]
    assert callable(module.anyio.sleep)
    monkeypatch.setattr(module.anyio, "sleep", sleep)
    return found


# ---- headers and where they go ----


async def test_the_key_is_a_bearer_token_and_the_beta_sets_itself(far: ManagedClaudeServer, client: Any) -> None:
    session_id = await opened(client)
    await turn(client, session_id)
    assert {request.endpoint for request in far.requests} >= {"agents.create", "environments.create", "events.stream"}
    for request in far.requests:
        assert request.headers["authorization"] == f"Bearer {DEFAULT_KEY}"
        assert "x-api-key" not in request.headers
        assert request.headers["anthropic-beta"] == BETA
        assert request.headers["anthropic-version"] == "2026-10-21"
        assert "idempotency-key" not in request.headers
    await client.beta.sessions.retrieve(session_id, betas=["another-2026-01-01"], workspace_id="wrkspc_1")
    assert far.requests[-1].headers["anthropic-beta"] == f"another-2026-01-01,{BETA}"
    assert far.requests[-1].headers["anthropic-workspace-id"] == "wrkspc_1"


async def test_files_send_no_beta_unless_told_and_then_cannot_be_asked_of_a_session(
    far: ManagedClaudeServer, client: Any
) -> None:
    far.service.late_looks = 0
    far.answer(WriteFile("out.txt"), Say("Written."))
    session_id = await opened(client)
    await turn(client, session_id)
    uploaded = await client.beta.files.upload(file=("in.csv", b"a,b", "text/csv"))
    assert "anthropic-beta" not in far.requests[-1].headers
    with pytest.raises(anthropic.BadRequestError):
        await client.beta.files.list(scope_id=session_id)
    found = [each async for each in client.beta.files.list(scope_id=session_id, betas=[BETA])]
    assert [(each.filename, each.scope.id) for each in found] == [("out.txt", session_id)]
    assert "scope_id" not in inspect.signature(client.files.list).parameters
    assert "scope" in BetaFileMetadata.model_fields
    assert "scope" not in FileMetadata.model_fields
    with pytest.raises(anthropic.BadRequestError) as refused:
        await client.beta.files.download(uploaded.id)
    assert (type(refused.value).__name__, refused.value.error_code) == (
        "FileNotDownloadableError",
        "file_not_downloadable",
    )
    assert await (await client.beta.files.download(found[0].id)).read() == b"made"
    far.service.files[found[0].id].record["expires_at"] = far.service.now()
    with pytest.raises(anthropic.NotFoundError) as expired:
        await client.beta.files.download(found[0].id)
    assert (type(expired.value).__name__, expired.value.error_code) == ("FileExpiredError", "file_expired")


async def test_a_mounted_file_is_another_file_where_the_answer_says(far: ManagedClaudeServer, client: Any) -> None:
    session_id = await opened(client)
    uploaded = await client.beta.files.upload(file=("in.csv", b"a,b", "text/csv"), expires_in_seconds=3600)
    add = client.beta.sessions.resources.add
    plain = await add(session_id, type="file", file_id=uploaded.id)
    named = await add(session_id, type="file", file_id=uploaded.id, mount_path="/data.csv")
    assert plain.mount_path == f"/mnt/session/uploads/{uploaded.id}"
    assert named.mount_path == "/mnt/session/uploads/data.csv"
    assert len({uploaded.id, plain.file_id, named.file_id}) == 3


async def test_the_environment_adds_headers_but_no_credentials(
    far: ManagedClaudeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Ambient: yes\nanthropic-version: 1999-01-01")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "ambient-token")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "ambient-key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    async with bare(far.base_url) as client:
        await client.beta.agents.list()
    headers = far.requests[0].headers
    assert (headers["x-ambient"], headers["anthropic-version"]) == ("yes", "1999-01-01")
    assert "ambient" not in far.requests[0].raw_headers.replace("x-ambient", "").replace("X-Ambient", "")


async def test_it_follows_redirects_with_the_body_and_with_headers_of_ours(far: ManagedClaudeServer) -> None:
    async with Canary() as canary:
        far.fault(Redirected("*", times=2, to=canary.base_url))
        async with bare(far.base_url, default_headers={"X-Api-Key": DEFAULT_KEY}) as client:
            with pytest.raises(anthropic.NotFoundError):
                await client.beta.agents.create(name="secret plan", model="claude-opus-5-5")
        assert b"secret plan" in canary.requests[0].body
        assert canary.requests[0].headers["x-api-key"] == DEFAULT_KEY
        assert "authorization" not in canary.requests[0].headers
        own = anthropic.DefaultAsyncHttpxClient(follow_redirects=False, trust_env=False, verify=NO_CERTIFICATES)
        async with bare(far.base_url, http_client=own) as client:
            with pytest.raises(anthropic.APIStatusError) as refused:
                await client.beta.agents.create(name="secret plan", model="claude-opus-5-5")
        assert refused.value.status_code == 307
        assert len(canary.requests) == 1


async def test_ids_are_encoded_and_dots_refused(far: ManagedClaudeServer, client: Any) -> None:
    with pytest.raises(anthropic.NotFoundError):
        await client.beta.sessions.retrieve("a/../b?c")
    assert far.requests[-1].endpoint == ""
    assert far.requests[-1].path == "/v1/sessions/a/../b?c"  # decoded here; it came as one segment without a query
    assert far.requests[-1].query == {}
    with pytest.raises(ValueError, match="dot"):
        await client.beta.sessions.retrieve("..")
    assert len(far.requests) == 1


def test_a_client_of_the_other_http_library_is_refused() -> None:
    class AsyncClient:
        """As it looks from outside."""

    class Timeout:
        """As it looks from outside."""

    for argument, kind in (("http_client", AsyncClient), ("timeout", Timeout)):
        kind.__module__ = "httpx"
        with pytest.raises(TypeError):
            bare("http://localhost", **{argument: kind()})


# ---- sending again ----


async def test_it_sends_again_by_itself_what_was_done_already(far: ManagedClaudeServer, waits: list[float]) -> None:
    async with bare(far.base_url, max_retries=2) as client:
        session_id = await opened(client)
        far.fault(AnswerLost("sessions.create"), AnswerLost("events.send:user.message"))
        environment_id = next(iter(far.service.environments))
        agent_id = next(iter(far.service.agents))
        await client.beta.sessions.create(agent=agent_id, environment_id=environment_id)
        await say(client, session_id)
    assert far.counts()["sessions"] == 3  # one of them nobody knows of
    assert far.counts()["inputs"] == 2  # the same words, said twice
    assert len(waits) == 2
    assert anthropic.DEFAULT_MAX_RETRIES == 2


@pytest.mark.parametrize("status", [408, 409, 429, 500, 529])
async def test_it_sends_again_after_these(far: ManagedClaudeServer, waits: list[float], status: int) -> None:
    far.fault(Answered("agents.list", times=2, status=status))
    async with bare(far.base_url, max_retries=2) as client:
        await client.beta.agents.list()
        assert far.by_endpoint["agents.list"] == 3
        far.fault(Answered("agents.list", status=status))
        once = client.with_options(max_retries=0)
        once._platform = "Unknown"
        with pytest.raises(anthropic.APIStatusError) as refused:
            await once.beta.agents.list()
        assert isinstance(refused.value, anthropic.OverloadedError) == (status == 529)
        assert far.by_endpoint["agents.list"] == 4
        with pytest.raises(TypeError):
            await client.beta.agents.list(max_retries=0)


async def test_a_word_of_the_server_goes_over_the_status(far: ManagedClaudeServer, waits: list[float]) -> None:
    far.fault(
        Answered("agents.list", status=400, says_retry=True), Answered("agents.list", status=500, says_retry=False)
    )
    async with bare(far.base_url, max_retries=2) as client:
        with pytest.raises(anthropic.InternalServerError):
            await client.beta.agents.list()
    assert far.by_endpoint["agents.list"] == 2


async def test_it_waits_for_an_hour_when_a_server_asks_for_it(far: ManagedClaudeServer, waits: list[float]) -> None:
    far.fault(Answered("agents.list", status=429, retry_after_s=3600))
    async with bare(far.base_url, max_retries=1) as client:
        await client.beta.agents.list()
    assert waits == [3600.0]


async def test_there_is_no_key_against_doing_a_thing_twice(client: Any) -> None:
    """Nor a filter to find by what a session was marked with, nor one for events behind another."""
    beta = client.beta
    for call in (beta.agents.create, beta.environments.create, beta.sessions.create, beta.sessions.events.send):
        assert not [name for name in inspect.signature(call).parameters if "idempot" in name]
    assert client._idempotency_header is None
    assert "metadata" not in inspect.signature(beta.sessions.list).parameters
    assert not {"after", "after_id"} & set(inspect.signature(beta.sessions.events.list).parameters)
    assert not {"after", "last_event_id"} & set(inspect.signature(beta.sessions.events.stream).parameters)
    assert not hasattr(beta.agents, "delete")


def test_the_timeouts_are_those_of_a_piece() -> None:
    timeout = bare("http://localhost").timeout
    assert (timeout.connect, timeout.read, timeout.write, timeout.pool) == (5.0, 600, 600, 600)


async def test_errors_carry_what_the_far_side_said(far: ManagedClaudeServer, client: Any) -> None:
    far.fault(Answered("agents.create", status=400, echo=True))
    with pytest.raises(anthropic.BadRequestError) as refused:
        await client.beta.agents.create(name="secret plan", model="claude-opus-5-5")
    for words in (str(refused.value), refused.value.message, str(refused.value.body), repr(refused.value)):
        assert DEFAULT_KEY in words
        assert "secret plan" in words
    assert DEFAULT_KEY in refused.value.response.headers["x-echo"]
    assert refused.value.request_id == "req_scripted"
    assert refused.value.type == "invalid_request_error"


async def test_a_conflict_looks_like_a_bad_request(far: ManagedClaudeServer, client: Any) -> None:
    await opened(client)
    with pytest.raises(anthropic.ConflictError) as refused:
        await client.beta.environments.create(name="room")
    assert (refused.value.status_code, refused.value.type) == (409, "invalid_request_error")


# ---- streams ----

BROKEN: Mapping[StreamFaultKind, type[Exception] | None] = {
    "close": None,
    "cut": httpx2.ReadError if sys.platform == "win32" else httpx2.RemoteProtocolError,
    "reset": httpx2.ReadError,
    "silent": httpx2.ReadTimeout,
    "error": anthropic.APIStatusError,
}


@pytest.mark.parametrize("how", BROKEN)
async def test_a_stream_that_breaks_off(far: ManagedClaudeServer, how: StreamFaultKind) -> None:
    """A clean close looks like an end; what else happens is no error of the SDK, or one of status 200."""
    far.fault(StreamFault(how=how, at="agent.message"))
    seen: list[Any] = []
    timeout = httpx2.Timeout(5.0, read=0.15) if how == "silent" else 5.0
    async with bare(far.base_url, timeout=timeout) as client:
        session_id = await opened(client)
        expected = BROKEN[how]
        if expected is None:
            await turn(client, session_id, seen)
        else:
            with pytest.raises(expected) as broken:
                await turn(client, session_id, seen)
            assert type(broken.value) is expected
            assert isinstance(broken.value, anthropic.AnthropicError) == (how == "error")
            if isinstance(broken.value, anthropic.APIStatusError):
                assert (broken.value.status_code, broken.value.type) == (200, "overloaded_error")
    assert types(seen)[-1] == "span.model_request_start"
    assert far.history()[-1]["type"] == "session.status_idle"  # it went on all the same


async def test_a_frame_without_its_name_is_dropped_without_a_word(far: ManagedClaudeServer, client: Any) -> None:
    far.fault(StreamFault(how="nameless", at="agent.message"))
    seen = types(await turn(client, await opened(client)))
    assert "agent.message" not in seen
    assert seen[-1] == "session.status_idle"


async def test_an_event_of_an_unknown_type_becomes_one_of_another_class(far: ManagedClaudeServer, client: Any) -> None:
    far.fault(StreamFault(how="unknown-type", at="agent.message"))
    seen = await turn(client, await opened(client))
    unknown = next(event for event in seen if event.type == "session.new_kind_of_event")
    assert type(unknown).__name__ == "BetaManagedAgentsUserMessageEvent"


async def test_there_is_no_bound_on_an_event(far: ManagedClaudeServer, client: Any) -> None:
    far.fault(StreamFault(how="huge", at="agent.message"))
    seen = await turn(client, await opened(client))
    message = next(event for event in seen if event.type == "agent.message")
    assert len(message.padding) == 6 * 1024 * 1024


async def test_what_comes_twice_or_out_of_order_is_passed_on(far: ManagedClaudeServer, client: Any) -> None:
    """A message of the person comes twice by design: as it is queued, and as it is taken up."""
    far.fault(StreamFault(how="twice", at="session.status_running"), StreamFault(how="swapped", at="agent.message"))
    seen = await turn(client, await opened(client))
    inputs = [event for event in seen if event.type == "user.message"]
    assert [event.processed_at is None for event in inputs] == [True, False]
    assert inputs[0].id == inputs[1].id
    assert types(seen)[2:4] == ["session.status_running", "session.status_running"]
    assert types(seen).index("agent.message") == types(seen).index("span.model_request_end") + 1


async def test_a_stream_is_live_only(far: ManagedClaudeServer, client: Any) -> None:
    session_id = await opened(client)
    await turn(client, session_id)
    far.answer(Say("Again."))
    seen = await turn(client, session_id)
    assert [event.content[0].text for event in seen if event.type == "agent.message"] == ["Again."]
    assert len([event for event in far.history() if event["type"] == "agent.message"]) == 2


async def test_leaving_the_loop_closes_nothing_and_closing_cancels_nothing(
    far: ManagedClaudeServer, client: Any
) -> None:
    far.answer(Say("Working."), Wait(), Say("Done."))
    session_id = await opened(client)
    stream = await client.beta.sessions.events.stream(session_id)
    await say(client, session_id)
    async for event in stream:
        if event.type == "agent.message":
            break
    assert far.streams_open == 1
    await stream.close()
    await when(lambda: not far.streams_open)
    assert (await client.beta.sessions.retrieve(session_id)).status == "running"
    far.let_go()
    await when(lambda: far.service.sessions[session_id].status == "idle")
    assert [event["content"][0]["text"] for event in far.history() if event["type"] == "agent.message"][-1] == "Done."


async def test_previews_come_when_asked_for_and_only_then(far: ManagedClaudeServer, client: Any) -> None:
    session_id = await opened(client)
    assert not {"event_start", "event_delta"} & set(types(await turn(client, session_id)))
    seen = await turn(client, session_id, event_deltas=PREVIEWS)
    previews = [event for event in seen if event.type in ("event_start", "event_delta")]
    assert len(previews) == 7
    folded: Any = None
    for event in previews:
        folded = accumulate_managed_agents_event(folded, event)
    message = next(event for event in seen if event.type == "agent.message")
    assert folded.id == message.id
    assert folded.content[0].text == message.content[0].text
    with pytest.raises(anthropic.AnthropicError, match="before its event_start"):
        accumulate_managed_agents_event(None, previews[1])
    assert not {"event_start", "event_delta"} & {event["type"] for event in far.history()}


# ---- what a session does ----


async def test_a_page_that_ends_without_an_id_loses_nothing_here(far: ManagedClaudeServer, client: Any) -> None:
    """Its pages go by tokens, which also keep the order they were made with."""
    far.answer(Many(20), Say("Yes."))
    session_id = await opened(client)
    await turn(client, session_id)
    far.fault(NullIdAtPageEnd(times=None))
    seen = [event async for event in client.beta.sessions.events.list(session_id, limit=5)]
    assert len(seen) == len(far.history())
    assert any(event.id is None for event in seen)
    first = await client.beta.sessions.events.list(session_id, limit=5, order="desc")
    second = await client.beta.sessions.events.list(session_id, limit=5, order="asc", page=first.next_page)
    newest = [event["id"] for event in reversed(far.history())]
    assert [event.id for event in second.data][:4] == newest[5:9]
    messages = await client.beta.sessions.events.list(session_id, types=["agent.message"])
    assert types(messages.data) == ["agent.message"]
    boundary = messages.data[0].processed_at
    later = await client.beta.sessions.events.list(session_id, created_at_gt=boundary)
    assert types(later.data) == ["span.model_request_end", "session.usage", "session.status_idle"]


async def test_sessions_are_listed_newest_first_in_both_directions(far: ManagedClaudeServer, client: Any) -> None:
    await opened(client)
    ids = {"agent": next(iter(far.service.agents)), "environment_id": next(iter(far.service.environments))}
    for number in range(4):
        await client.beta.sessions.create(**ids, metadata={"number": str(number)})
    listed = [each.metadata.get("number") async for each in client.beta.sessions.list(limit=2)]
    assert listed == ["3", "2", "1", "0", None]
    first = await client.beta.sessions.list(limit=2)
    second = await client.beta.sessions.list(limit=2, page=first.next_page)
    assert (await client.beta.sessions.list(limit=2, page=second.prev_page)).data[0].id == first.data[0].id
    assert [each async for each in client.beta.sessions.list(agent_id="agent_of_others")] == []
    assert len([each async for each in client.beta.sessions.list(statuses=["idle"])]) == 5


async def test_a_part_of_the_answers_brings_the_rest_again(far: ManagedClaudeServer, client: Any) -> None:
    far.answer(Use("look", {"city": "Rome"}), Use("look", {"city": "Oslo"}), Say(lambda told: " and ".join(told)))
    session_id = await opened(client)
    stopped = (await turn(client, session_id))[-1].stop_reason
    async with await client.beta.sessions.events.stream(session_id) as stream:
        await told(client, session_id, stopped.event_ids[1], "rain")
        again = (await until_idle(stream))[-1]
        assert again.stop_reason.event_ids == [stopped.event_ids[0]]
        await told(client, session_id, stopped.event_ids[1], "snow")  # taken, without effect
        await told(client, session_id, stopped.event_ids[0], "sun")
        seen = await until_idle(stream)
    assert [event.content[0].text for event in seen if event.type == "agent.message"] == ["rain and sun"]
    assert (far.counts()["results"], far.counts()["repeats"]) == (2, 1)
    with pytest.raises(anthropic.BadRequestError):
        await told(client, session_id, "sevt_of_others")


async def test_the_tool_runner_of_the_sdk_makes_a_call_twice(
    far: ManagedClaudeServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the answer was refused and the stream is opened again."""
    monkeypatch.setattr("anthropic.lib.tools._beta_session_runner.STREAM_BACKOFF_START", 0.01)
    calls: list[str] = []

    @anthropic.beta_async_tool
    async def look(city: str) -> str:
        """Looks.

        Args:
            city: where.
        """
        calls.append(city)
        return "sunny"

    far.answer(Use("look", {"city": "Rome"}), Say("Sunny."))
    far.fault(Answered("events.send:user.custom_tool_result", status=400), StreamFault(at="session.usage"))
    session_id = await opened(client)
    runner = client.beta.sessions.events.tool_runner(session_id, tools=[look], max_idle=0.05)
    runner._scoped._platform = "Unknown"
    async with asyncio.timeout(3), asyncio.TaskGroup() as group:
        group.create_task(when(lambda: far.by_endpoint["events.list"] and far.streams_open, say(client, session_id)))
        posted = [call.posted async for call in runner]
    assert calls == ["Rome", "Rome"]
    assert posted == [False, True]
    assert far.counts()["results"] == 1


async def test_an_interrupt_has_no_reason_of_its_own(far: ManagedClaudeServer, client: Any) -> None:
    reasons = {get_args(member.model_fields["type"].annotation)[0] for member in _union(idle_event.StopReason)}
    assert reasons == {"end_turn", "requires_action", "retries_exhausted", "budget_reached", "refusal"}
    far.answer(Say("Working."), Wait())
    session_id = await opened(client)
    async with await client.beta.sessions.events.stream(session_id) as stream:
        await say(client, session_id)
        seen: list[Any] = []
        sent: list[Any] = []
        async for event in stream:
            seen.append(event)
            if event.type == "agent.message":
                await say(client, session_id, "and this")  # queued: it is not taken up any more
                sent = (await client.beta.sessions.events.send(session_id, events=[{"type": "user.interrupt"}])).data
            if event.type == "session.status_idle":
                break
    echo = next(event for event in seen if event.type == "user.interrupt")
    assert (echo.id, echo.processed_at is None, sent[0].processed_at) == (sent[0].id, False, None)
    assert seen[-1].stop_reason.type == "end_turn"
    assert [event["processed_at"] is None for event in far.history() if event["type"] == "user.message"] == [
        False,
        True,
    ]


def _union(alias: Any) -> tuple[Any, ...]:
    return get_args(get_args(alias)[0])


async def test_idle_is_on_the_stream_before_the_record_says_so(far: ManagedClaudeServer, client: Any) -> None:
    far.service.stale_reads = 1
    session_id = await opened(client)
    assert types(await turn(client, session_id))[-1] == "session.status_idle"
    with pytest.raises(anthropic.BadRequestError):
        await client.beta.sessions.delete(session_id)
    assert (await client.beta.sessions.retrieve(session_id)).status == "running"
    assert (await client.beta.sessions.retrieve(session_id)).status == "idle"
    with pytest.raises(anthropic.ConflictError):
        await client.beta.environments.delete(next(iter(far.service.environments)))
    assert (await client.beta.sessions.delete(session_id)).type == "session_deleted"
    with pytest.raises(anthropic.NotFoundError):
        await client.beta.sessions.retrieve(session_id)


async def test_a_budget_pauses_a_turn_and_raising_it_goes_on(far: ManagedClaudeServer, client: Any) -> None:
    far.answer(Request(cents=60), Say("First."), Request(cents=1), Say("Second."))
    session_id = await opened(client, budget=FIFTY_CENTS)
    assert (await turn(client, session_id))[-1].stop_reason.type == "budget_reached"
    record = await client.beta.sessions.retrieve(session_id)
    assert (record.budget.max_list_cost.amount, record.usage.list_cost.amount) == ("50", "60")
    with pytest.raises(anthropic.BadRequestError) as refused:
        await client.beta.sessions.update(session_id, budget=FIFTY_CENTS)
    assert refused.value.error_code == "budget_not_raised"
    async with await client.beta.sessions.events.stream(session_id) as stream:
        await client.beta.sessions.update(session_id, budget=A_DOLLAR)
        seen = await until_idle(stream)
    assert [event.content[0].text for event in seen if event.type == "agent.message"] == ["Second."]
    assert seen[0].type == "session.updated"


async def test_a_budget_is_whole_cents_as_a_text_and_for_good(far: ManagedClaudeServer, client: Any) -> None:
    session_id = await opened(client)
    with pytest.raises(anthropic.BadRequestError) as refused:
        await client.beta.sessions.update(session_id, budget=FIFTY_CENTS)
    assert refused.value.error_code == "budget_create_only"
    far.service.unpriced = frozenset({"claude-opus-5-5"})
    ids = {"agent": next(iter(far.service.agents)), "environment_id": next(iter(far.service.environments))}
    for amount, code in (("50", "model_not_budgetable"), ("0.5", None), (50, None)):
        budget = {"type": "limit", "max_list_cost": {"amount": amount, "currency": "USD"}}
        with pytest.raises(anthropic.BadRequestError) as refused:
            await client.beta.sessions.create(**ids, budget=budget)
        assert refused.value.error_code == code
    assert far.counts()["sessions"] == 1


async def test_model_and_effort_are_fixed_and_unknown_fields_refused(far: ManagedClaudeServer, client: Any) -> None:
    assert set(get_type_hints(BetaManagedAgentsSessionAgentUpdateParam)) == {"tools", "mcp_servers"}
    session_id = await opened(client)
    for agent in ({"model": "claude-haiku-5-5"}, {"system": "Other."}):
        with pytest.raises(anthropic.BadRequestError, match="Extra inputs"):
            await client.beta.sessions.update(session_id, agent=agent)
    with pytest.raises(anthropic.BadRequestError, match="effort"):
        await client.beta.agents.create(name="a", model={"id": "claude-opus-5-5", "effort": "none"})
    built_in = await client.beta.agents.create(
        name="a", model={"id": "claude-opus-5-5", "effort": "high"}, tools=[{"type": "agent_toolset_20260401"}]
    )
    assert built_in.tools[0].default_config.enabled is True
    assert built_in.model.effort.type == "high"


async def test_a_built_in_call_waits_for_a_word(far: ManagedClaudeServer, client: Any) -> None:
    far.answer(UseBuiltIn(), Say("Root."))
    session_id = await opened(client)
    seen = await turn(client, session_id)
    use = next(event for event in seen if event.type == "agent.tool_use")
    assert seen[-1].stop_reason.event_ids == [use.id]
    with pytest.raises(anthropic.BadRequestError):
        await told(client, session_id, use.id)
    async with await client.beta.sessions.events.stream(session_id) as stream:
        allow = {"type": "user.tool_confirmation", "tool_use_id": use.id, "result": "allow"}
        await client.beta.sessions.events.send(session_id, events=[allow])
        kinds = types(await until_idle(stream))
    assert kinds[:3] == ["user.tool_confirmation", "agent.tool_result", "session.status_running"]
    assert kinds[-1] == "session.status_idle"


async def test_the_other_ways_a_turn_ends(far: ManagedClaudeServer, client: Any) -> None:
    session_id = await opened(client)
    far.answer(Trouble(), Reschedule(), GiveUp())
    seen = await turn(client, session_id)
    assert [event.error.retry_status.type for event in seen if event.type == "session.error"] == [
        "retrying",
        "exhausted",
    ]
    assert "session.status_rescheduled" in types(seen)
    assert seen[-1].stop_reason.type == "retries_exhausted"
    far.answer(Refuse("bio"))
    refused = (await turn(client, session_id))[-1]
    assert (refused.stop_reason.type, refused.stop_details.category) == ("refusal", "bio")
    far.answer(Terminate())
    assert types(await turn(client, session_id))[-1] == "session.status_terminated"
    with pytest.raises(anthropic.BadRequestError):
        await say(client, session_id)
    assert (await client.beta.sessions.retrieve(session_id)).status == "terminated"


async def test_usage_is_of_the_whole_session_and_the_clock_may_go_back(far: ManagedClaudeServer, client: Any) -> None:
    session_id = await opened(client)
    first = await turn(client, session_id)
    far.jump(-3600)
    second = await turn(client, session_id)
    tokens = [event.usage.input_tokens for event in [*first, *second] if event.type == "session.usage"]
    assert tokens == [10, 20]
    assert second[-1].processed_at < first[-1].processed_at
    assert [event["id"] for event in far.history()][-1] == second[-1].id


async def test_what_is_answered_need_not_be_what_was_asked_for(far: ManagedClaudeServer, client: Any) -> None:
    """Nothing in the client compares the two, or misses a field that has to be there."""
    limited = {"type": "cloud", "networking": {"type": "limited", "allowed_hosts": []}}
    room = await client.beta.environments.create(name="room", config=limited)
    assert room.config.networking.to_dict() == {
        "type": "limited", "allowed_hosts": [], "allow_mcp_servers": False, "allow_package_managers": False,
    }  # fmt: skip
    far.fault(Altered("environments.create", changes={"config": {"type": "cloud"}}))
    other = await client.beta.environments.create(name="other", config=limited)
    assert other.config.type == "cloud"
    assert other.config.networking is None


async def test_a_second_interrupt_changes_nothing(far: ManagedClaudeServer, client: Any) -> None:
    far.answer(Say("Working."), Wait())
    session_id = await opened(client)
    await say(client, session_id)
    await when(lambda: far.service.waiting)
    interrupts = [{"type": "user.interrupt"}, {"type": "user.interrupt"}]
    await client.beta.sessions.events.send(session_id, events=interrupts)
    await when(lambda: far.service.sessions[session_id].status == "idle")
    assert [event["type"] for event in far.history()].count("session.status_idle") == 1
    assert far.counts()["interrupts"] == 2


async def test_an_id_alone_means_the_newest_version(far: ManagedClaudeServer, client: Any) -> None:
    """Somebody else may have changed the agent meanwhile; only a version that is said stays."""
    pinned_id = await opened(client)
    agent_id, environment_id = next(iter(far.service.agents)), next(iter(far.service.environments))
    changed = await client.beta.agents.update(agent_id, system="Say no.", version=1)
    with pytest.raises(anthropic.ConflictError):
        await client.beta.agents.update(agent_id, system="Say maybe.", version=1)
    newest = await client.beta.sessions.create(agent=agent_id, environment_id=environment_id)
    assert (changed.version, newest.agent.version, newest.agent.system) == (2, 2, "Say no.")
    pinned = await client.beta.sessions.retrieve(pinned_id)
    assert (pinned.agent.version, pinned.agent.system) == (1, None)
    assert [each.version async for each in client.beta.agents.versions.list(agent_id)] == [2, 1]
    await client.beta.agents.archive(agent_id)
    with pytest.raises(anthropic.BadRequestError):
        await client.beta.sessions.create(agent=agent_id, environment_id=environment_id)
    assert [each async for each in client.beta.agents.list()] == []


async def test_what_is_said_during_a_turn_waits_for_its_end(far: ManagedClaudeServer, client: Any) -> None:
    far.answer(Say("First."), Wait())
    far.answer(Say("Second."))
    session_id = await opened(client)
    await say(client, session_id)
    await when(lambda: far.service.waiting)
    for end in (client.beta.sessions.archive, client.beta.sessions.delete):
        with pytest.raises(anthropic.BadRequestError):
            await end(session_id)
    with pytest.raises(anthropic.BadRequestError):
        await client.beta.sessions.update(session_id, agent={"tools": []})
    queued = (await say(client, session_id, "and this")).data[0]
    assert [event.processed_at for event in (await client.beta.sessions.events.list(session_id)).data][-1] is None
    far.let_go()
    await when(lambda: [event["type"] for event in far.history()].count("session.status_idle") == 2)
    events = (await client.beta.sessions.events.list(session_id)).data
    assert next(event for event in events if event.id == queued.id).processed_at is not None
    assert [event.content[0].text for event in events if event.type == "agent.message"] == ["First.", "Second."]
    assert (await client.beta.sessions.update(session_id, agent={"tools": []})).agent.tools == []
    assert (await client.beta.sessions.archive(session_id)).status == "terminated"
