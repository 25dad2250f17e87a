"""What the official OpenAI client does by itself at the Agents API, pinned: why our driver takes no more of it.

When one of these fails after an update of the SDK, the trap is gone or has moved: read the driver of the Agents API
again. The far side is as strict as the provider, so what the client sends is checked there, too.
"""

import asyncio
import inspect
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, get_args, get_type_hints

import httpx2
import openai
import pytest
from openai.types.beta import agent_session_event
from openai.types.beta.agents import session_create_params, session_update_params
from openai.types.beta.agents.sessions import SessionArtifact, Turn

from tests.loopback.agents.script import Emit, Fail, Many, Run, Say, Spawn, Think, Use, Wait, WriteFile
from tests.loopback.agents_server import AgentsServer, Canary
from tests.loopback.managed_claude.faults import (
    Answered,
    AnswerLost,
    NullIdAtPageEnd,
    Redirected,
    RequestLost,
    StreamFault,
    StreamFaultKind,
)

TOOL = {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}}
AGENT = {"model": "gpt-6-astra", "instructions": "Be brief.", "tools": [TOOL]}
HOSTED = {"type": "openai_hosted", "network": {"access": "disabled"}}
MESSAGE = "agent.session.input.message"
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.fixture
async def far() -> AsyncIterator[AgentsServer]:
    async with AgentsServer() as listening:
        yield listening


@pytest.fixture
async def client(far: AgentsServer) -> AsyncIterator[Any]:
    async with bare(far) as made:
        yield made


def bare(far: AgentsServer, **more: Any) -> Any:
    """The official client as it is, but for its certificates, which take a while to read."""
    http_client = more.pop("http_client", None) or openai.DefaultAsyncHttpxClient(verify=NO_CERTIFICATES)
    fields = {"api_key": far.key, "base_url": far.base_url, "max_retries": 0, "http_client": http_client}
    client = openai.AsyncOpenAI(**{**fields, **more})
    client._platform = "Unknown"  # or it leaves a thread of the loop's pool behind
    return client


async def opened(client: Any, **more: Any) -> Any:
    """A new session that waits for its first input."""
    fields = {"environment": HOSTED, "agent": AGENT, "vault_ids": [], **more}
    return await client.beta.agents.sessions.create(**fields)


async def say(client: Any, session_id: str, text: str = "Hello", **more: Any) -> None:
    content = [{"type": "input_text", "text": text}]
    event = {"type": MESSAGE, "input": [{"role": "user", "content": content}]}
    await client.beta.agents.sessions.events.create(session_id, events=[event], **more)


async def tell(client: Any, session_id: str, action: Any, output: str = "sunny", **more: Any) -> None:
    result = {"type": "agent.session.input.tool_result", "turn_id": action.turn_id, "call_id": action.call_id}
    result |= {"success": True, "output": output}
    await client.beta.agents.sessions.events.create(session_id, events=[result], **more)


async def cancel(client: Any, session_id: str, **more: Any) -> None:
    event = {"type": "agent.session.input.cancel"}
    await client.beta.agents.sessions.events.create(session_id, events=[event], **more)


async def turn(client: Any, session_id: str, into: list[Any] | None = None, **more: Any) -> list[Any]:
    """One input, and what an application sees that trusts the stream: until it rests, the end, or an exception."""
    seen: list[Any] = [] if into is None else into
    async with await client.beta.agents.sessions.events.stream(session_id, **more) as stream:
        await say(client, session_id)
        async for event in stream:
            seen.append(event)
            if event.type in ("agent.session.idle", "agent.session.requires_action"):
                break
    return seen


async def when(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # a far side is plain data
            await asyncio.sleep(0)


def types(events: list[Any]) -> list[str]:
    return [event.type.removeprefix("agent.session.") for event in events]


def text_of(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "agent.session.turn.output_text.delta")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client would have slept between two tries; it does not."""
    found: list[float] = []

    async def sleep(wait_s: float) -> None:
        found.append(wait_s)

    module = sys.modules["openai._base_client"]
    assert callable(module.anyio.sleep)
    monkeypatch.setattr(module.anyio, "sleep", sleep)
    return found


# ---- headers and where they go ----


async def test_the_key_is_a_bearer_token_and_the_beta_sets_itself(far: AgentsServer, client: Any) -> None:
    session = await opened(client)
    await turn(client, session.id)
    await client.beta.agents.sessions.retrieve(session.id)
    assert set(far.by_endpoint) == {"sessions.create", "events.stream", "events.create", "sessions.retrieve"}
    for request in far.requests:
        assert request.headers["authorization"] == f"Bearer {far.key}"
        assert request.headers["openai-beta"] == "agents=v1"


async def test_files_go_without_the_header_of_the_agents(far: AgentsServer, client: Any) -> None:
    expiry = {"anchor": "created_at", "seconds": 3600}
    made = await client.files.create(file=("in.csv", b"a,b"), purpose="user_data", expires_after=expiry)
    assert "openai-beta" not in far.requests[-1].headers
    assert (made.filename, made.bytes, far.service.file(made.id)[1]) == ("in.csv", 3, b"a,b")


async def test_no_request_has_an_idempotency_key_of_its_own(far: AgentsServer, client: Any) -> None:
    session = await opened(client)
    await say(client, session.id)
    await cancel(client, session.id)
    await client.beta.agents.environments.create(environment=HOSTED)
    assert all("idempotency-key" not in request.headers for request in far.requests)


async def test_only_events_and_environments_take_an_idempotency_key(far: AgentsServer, client: Any) -> None:
    agents = client.beta.agents
    for takes in (agents.sessions.events.create, agents.environments.create):
        assert "idempotency_key" in inspect.signature(takes).parameters
    for not_takes in (agents.sessions.create, agents.sessions.update, agents.sessions.delete):
        assert "idempotency_key" not in inspect.signature(not_takes).parameters
    session = await opened(client, extra_headers={"Idempotency-Key": "first"})
    await say(client, session.id, idempotency_key="second")
    await say(client, session.id, idempotency_key="second")
    assert (far.keys("sessions.create"), far.keys()) == (["first"], ["second", "second"])
    assert far.counts()["inputs"] == 1


async def test_headers_of_the_environment_reach_an_explicit_client(
    far: AgentsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Slipped-In: yes")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-shell")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-the-shell")
    async with bare(far) as client:
        await opened(client)
    sent = far.requests[0].headers
    assert sent["x-slipped-in"] == "yes"
    assert (sent["openai-organization"], sent["openai-project"]) == ("org-of-the-shell", "project-of-the-shell")


async def test_ids_in_paths_are_encoded_and_dots_are_refused(far: AgentsServer, client: Any) -> None:
    with pytest.raises(openai.NotFoundError):
        await client.beta.agents.sessions.retrieve("a/b?c")
    assert far.requests[-1].path == "/v1/agents/sessions/a/b?c"
    assert not far.requests[-1].query
    for name in ("..", ".", ""):
        with pytest.raises(ValueError, match=r"."):
            await client.beta.agents.sessions.retrieve(name)
    assert len(far.requests) == 1


# ---- redirects ----


async def test_redirects_are_followed_and_what_is_no_authorization_goes_along(far: AgentsServer, client: Any) -> None:
    async with Canary() as canary:
        far.fault(Redirected("sessions.create", to=canary.base_url))
        with pytest.raises(openai.NotFoundError):
            await opened(client, extra_headers={"X-Api-Key": far.key, "Idempotency-Key": "mine"})
        [reached] = canary.requests
    assert "authorization" not in reached.headers
    assert reached.headers["x-api-key"] == far.key
    assert reached.headers["idempotency-key"] == "mine"
    assert reached.json()["agent"]["instructions"] == "Be brief."
    assert far.counts()["sessions"] == 0


async def test_a_client_that_follows_nothing_raises(far: AgentsServer) -> None:
    transport = openai.DefaultAsyncHttpxClient(verify=NO_CERTIFICATES, follow_redirects=False, trust_env=False)
    async with Canary() as canary, bare(far, http_client=transport) as client:
        far.fault(Redirected("sessions.create", to=canary.base_url))
        with pytest.raises(openai.APIStatusError) as raised:
            await opened(client)
        assert raised.value.status_code == 307
        assert not canary.requests


# ---- what is sent again ----


async def test_it_is_the_client_and_not_a_call_that_says_how_often_and_how_long(client: Any) -> None:
    for call in (client.beta.agents.sessions.create, client.beta.agents.sessions.events.create):
        assert "max_retries" not in inspect.signature(call).parameters
    assert client.with_options(max_retries=1).max_retries == 1
    assert (client.timeout.connect, client.timeout.read) == (5, 600)


async def test_the_client_sends_a_creation_again_whose_answer_was_lost(far: AgentsServer, waits: list[float]) -> None:
    far.fault(AnswerLost("sessions.create", times=2))
    async with bare(far, max_retries=2) as client:
        await opened(client, metadata={"intent": "one"})
        found = [each.id async for each in client.beta.agents.sessions.list(metadata={"intent": "one"})]
    assert len(found) == far.counts()["sessions"] == 3
    assert len(waits) == 2


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
async def test_these_are_sent_again_by_default(far: AgentsServer, waits: list[float], status: int) -> None:
    assert openai.DEFAULT_MAX_RETRIES == 2
    far.fault(Answered("sessions.create", status=status, retry_after_s=7, times=2))
    async with bare(far, max_retries=openai.DEFAULT_MAX_RETRIES) as client:
        await opened(client)
    assert far.by_endpoint["sessions.create"] == 3
    assert waits == [7, 7]


async def test_a_wait_of_more_than_two_minutes_is_no_wait(far: AgentsServer, waits: list[float]) -> None:
    far.fault(Answered("sessions.create", status=429, retry_after_s=121))
    async with bare(far, max_retries=2) as client:
        with pytest.raises(openai.RateLimitError):
            await opened(client)
    assert (far.by_endpoint["sessions.create"], waits) == (1, [])


async def test_the_deletion_of_a_running_session_is_tried_again_by_itself(
    far: AgentsServer, waits: list[float]
) -> None:
    far.always(Wait())
    async with bare(far, max_retries=2) as client:
        session = await opened(client)
        await say(client, session.id)
        with pytest.raises(openai.ConflictError) as raised:
            await client.beta.agents.sessions.delete(session.id)
        assert (raised.value.code, far.by_endpoint["sessions.delete"]) == ("conflict_error", 3)
        assert len(waits) == 2
        await cancel(client, session.id)
        assert (await client.beta.agents.sessions.delete(session.id)).deleted
    assert far.counts()["deletes"] == 1


async def test_a_request_that_was_lost_looks_like_an_answer_that_was(far: AgentsServer, client: Any) -> None:
    session = await opened(client)
    told = []
    for fault in (RequestLost("events.create"), AnswerLost("events.create")):
        far.fault(fault)
        with pytest.raises(openai.APIConnectionError) as raised:
            await say(client, session.id, str(fault))
        told.append(str(raised.value))
    assert told[0] == told[1]
    assert len(far.service.inputs) == 1


# ---- streams ----


def broken(how: StreamFaultKind, at: str = "agent.session.turn.output_text.delta") -> StreamFault:
    return StreamFault(how=how, at=at)


async def test_a_stream_that_ends_in_the_middle_just_ends(far: AgentsServer, client: Any) -> None:
    far.fault(broken("close"))
    session = await opened(client)
    seen = await turn(client, session.id)
    assert types(seen)[-1] == "turn.content_part.added"


async def test_a_stream_that_is_cut_raises_a_connection_error(far: AgentsServer, client: Any) -> None:
    far.fault(broken("cut"))
    session = await opened(client)
    seen: list[Any] = []
    with pytest.raises(openai.APIConnectionError):
        await turn(client, session.id, seen)
    assert types(seen)[-1] == "turn.content_part.added"


async def test_a_stream_that_says_nothing_is_a_timeout(far: AgentsServer, client: Any) -> None:
    far.fault(broken("silent"))
    session = await opened(client)
    with pytest.raises(openai.APITimeoutError):
        await turn(client, session.id, timeout=httpx2.Timeout(5, read=0.05))


async def test_an_error_is_an_event_like_any_other(far: AgentsServer, client: Any) -> None:
    far.fault(broken("error"))
    session = await opened(client)
    seen = await turn(client, session.id)
    assert (seen[-1].type, seen[-1].error.code) == ("error", "server_overloaded")


async def test_the_name_of_a_frame_is_not_looked_at(far: AgentsServer, client: Any) -> None:
    far.fault(broken("nameless"))
    session = await opened(client)
    assert text_of(await turn(client, session.id)) == "The capital of France is Paris."


async def test_an_event_nobody_knows_is_built_as_another(far: AgentsServer, client: Any) -> None:
    far.fault(broken("unknown-type"))
    session = await opened(client)
    [unknown] = [each for each in await turn(client, session.id) if each.type.endswith("new_kind_of_event")]
    assert type(unknown) in get_args(get_args(agent_session_event.AgentSessionEvent)[0])
    assert unknown.type not in get_args(type(unknown).model_fields["type"].annotation)


async def test_an_event_has_no_bound(far: AgentsServer, client: Any) -> None:
    far.fault(broken("huge"))
    session = await opened(client)
    seen = await turn(client, session.id)
    assert max(len(getattr(each, "padding", "")) for each in seen) == 6 * 1024 * 1024


async def test_what_comes_twice_or_out_of_order_is_passed_on(far: AgentsServer, client: Any) -> None:
    far.fault(broken("twice"), broken("swapped", "agent.session.turn.output_text.done"))
    session = await opened(client)
    seen = await turn(client, session.id)
    ids = [each.event_id for each in seen]
    assert len(ids) == len(set(ids)) + 1
    kinds = types(seen)
    assert kinds.index("turn.content_part.done") < kinds.index("turn.output_text.done")


async def test_a_stream_begins_where_it_is_opened(far: AgentsServer, client: Any) -> None:
    parameters = inspect.signature(client.beta.agents.sessions.events.stream).parameters
    assert set(parameters) & {"after", "last_event_id", "starting_after"} == set()
    far.always(Say("The capital"), Wait(), Say("of France."))
    session = await opened(client)
    await say(client, session.id)
    await when(lambda: far.service.waiting)
    async with await client.beta.agents.sessions.events.stream(session.id) as stream:
        await when(lambda: far.streams_open)
        far.let_go()
        seen = [event async for event in _until_idle(stream)]
    assert text_of(seen) == "of France."


async def _until_idle(stream: Any) -> AsyncIterator[Any]:
    async for event in stream:
        yield event
        if event.type == "agent.session.idle":
            return


async def test_padding_comes_unless_it_is_declined(far: AgentsServer, client: Any) -> None:
    session = await opened(client)
    padded = [getattr(each, "obfuscation", None) for each in await turn(client, session.id)]
    plain = [getattr(each, "obfuscation", None) for each in await turn(client, session.id, include_obfuscation=False)]
    assert any(padded)
    assert not any(plain)


async def test_leaving_a_stream_ends_no_work(far: AgentsServer, client: Any) -> None:
    far.always(Say("The capital"), Wait())
    session = await opened(client)
    async with await client.beta.agents.sessions.events.stream(session.id) as stream:
        await say(client, session.id)
        await when(lambda: far.service.waiting)
        await stream.close()
    await when(lambda: not far.streams_open)
    assert (await client.beta.agents.sessions.retrieve(session.id)).status == "in_progress"
    assert far.counts()["cancels"] == 0


async def test_a_creation_can_answer_with_the_stream_of_its_turn(far: AgentsServer, client: Any) -> None:
    far.answer(Think("Hm."), Say("Looking.", phase="commentary"), Run("id", "root"), Spawn("Found."), Say("Root."))
    made = await opened(client, environment={"type": "none"}, input="Who am I?", stream=True)
    seen = [event async for event in made]
    assert (types(seen)[0], types(seen)[-1]) == ("created", "idle")
    assert {"agent.output.command_execution_output.delta", "turn.reasoning_summary_text.delta"} <= set(types(seen))
    roots = {each.turn.id for each in seen if each.type.endswith("turn.created") and each.turn.subagent_id is None}
    done = [each.item for each in seen if each.type.endswith("item.done") and each.turn_id in roots]
    answers = [each.content[0].text for each in done if each.type == "message" and each.phase != "commentary"]
    assert answers == ["Root."]


async def test_a_session_without_an_environment_wants_its_first_input_at_once(far: AgentsServer, client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await opened(client, environment={"type": "none"})
    assert (raised.value.param, far.counts()["sessions"]) == ("input", 0)


# ---- tools, cancels ----


async def asking(client: Any, far: AgentsServer) -> tuple[str, Any]:
    far.answer(Use("look", {"city": "Rome"}), Say(lambda results: f"It is {results[0]}."))
    session = await opened(client)
    seen = await turn(client, session.id)
    [action] = seen[-1].session.required_actions
    return session.id, action


async def test_a_repeated_result_and_an_early_one_are_refused_in_the_same_words(far: AgentsServer, client: Any) -> None:
    far.service.early_refusals = 1
    session_id, action = await asking(client, far)
    refusals = []
    for accepted in (False, True, False):
        try:
            await tell(client, session_id, action)
        except openai.BadRequestError as raised:
            refusals.append((raised.code, raised.body["message"]))  # type: ignore[index]  # a mapping, as it came
            assert not accepted
    assert refusals == [("invalid_request_error", f"Unknown pending tool call: {action.call_id}")] * 2
    assert far.service.results == [action.call_id]
    items = client.beta.agents.sessions.turns.items.list(action.turn_id, session_id=session_id)
    assert [each.output async for each in items if each.type == "function_call_output"] == ["sunny"]


async def test_an_accepted_result_under_its_own_key_is_no_error_when_it_is_sent_again(
    far: AgentsServer, client: Any
) -> None:
    session_id, action = await asking(client, far)
    for _ in range(2):
        await tell(client, session_id, action, idempotency_key="of the call")
    assert far.service.results == [action.call_id]


async def test_a_tool_comes_back_with_what_holds_for_it(far: AgentsServer, client: Any) -> None:
    [tool] = (await opened(client)).agent.tools
    assert tool.to_dict() == {**TOOL, "defer_loading": False, "async": False}


async def test_an_input_into_a_running_turn_steers_it(far: AgentsServer, client: Any) -> None:
    far.always(Wait())
    session = await opened(client)
    await say(client, session.id, "One")
    await say(client, session.id, "Two")
    turns = [each.id async for each in client.beta.agents.sessions.turns.list(session.id)]
    assert (len(turns), far.service.inputs) == (1, ["One", "Two"])


async def test_a_cancel_names_no_turn_and_meets_the_one_that_runs(far: AgentsServer, client: Any) -> None:
    session = await opened(client)
    await turn(client, session.id)
    far.always(Wait())
    await say(client, session.id)
    await cancel(client, session.id)
    turns = [each.status async for each in client.beta.agents.sessions.turns.list(session.id)]
    assert turns == ["cancelled", "completed"]


async def test_a_failed_turn_has_its_code_in_the_saved_state(far: AgentsServer, client: Any) -> None:
    far.answer(Fail("credit_balance_exhausted"))
    session = await opened(client)
    await turn(client, session.id)
    [failed] = [each async for each in client.beta.agents.sessions.turns.list(session.id)]
    assert (failed.status, failed.error.code) == ("failed", "credit_balance_exhausted")


async def test_the_helper_that_runs_tools_sends_a_result_again_under_keys_of_its_own(
    far: AgentsServer, client: Any
) -> None:
    far.service.early_refusals = 2
    far.answer(Use("look", {"city": "Rome"}), Say("It is sunny."))
    session = await opened(client)
    handlers = {"look": lambda arguments: "sunny"}
    async with client.beta.agents.sessions.stream(session.id, input="Hello", tool_handlers=handlers) as stream:
        async for _ in stream:
            pass
    sent = [each["events"][0]["type"] for each in far.bodies("events.create")]
    assert sent == [MESSAGE, *["agent.session.input.tool_result"] * 3]
    assert far.keys()[0] != far.keys()[1] == far.keys()[2] == far.keys()[3] is not None
    assert far.counts()["results"] == 1


# ---- what is made, and what is told of it ----


async def test_what_is_not_told_back_cannot_be_checked(far: AgentsServer, client: Any) -> None:
    network = {"access": "restricted", "allowed_domains": ["a.example"], "blocked_domains": ["b.example"]}
    more = {"env": {"NAME": "value"}, "setup_commands": [{"command": "true"}]}
    environment = (await opened(client, environment={**HOSTED, "network": network, **more})).environment.to_dict()
    assert environment["network"] == {"access": "restricted", "allowed_domains": ["a.example"]}
    assert not {"env", "setup_commands"} & set(environment)


async def test_only_a_few_fields_of_a_session_can_be_changed(far: AgentsServer, client: Any) -> None:
    assert set(get_type_hints(session_update_params.Agent)) == {"model", "reasoning", "service_tier", "tools"}
    assert set(get_type_hints(session_update_params.AgentReasoning)) == {"effort"}
    session = await opened(client)
    changed = await client.beta.agents.sessions.update(session.id, agent={"reasoning": {"effort": "xhigh"}})
    assert (changed.agent.reasoning.effort, changed.agent.instructions) == ("xhigh", "Be brief.")
    with pytest.raises(openai.BadRequestError):
        await client.beta.agents.sessions.update(session.id, agent={"instructions": "Be long."})


async def test_a_new_session_may_be_missing_from_the_list_for_a_while(far: AgentsServer, client: Any) -> None:
    far.service.list_lag = 2
    session = await opened(client, metadata={"intent": "one"})

    async def with_intent(name: str) -> list[str]:
        return [each.id async for each in client.beta.agents.sessions.list(metadata={"intent": name})]

    assert [await with_intent("one") for _ in range(3)] == [[], [], [session.id]]
    assert not await with_intent("two")


async def test_the_clock_of_the_provider_may_go_back(far: AgentsServer, client: Any) -> None:
    first = await opened(client)
    far.jump(-3600)
    second = await opened(client)
    assert second.created_at < first.created_at - 3000
    assert [each.id async for each in client.beta.agents.sessions.list(order="asc")] == [first.id, second.id]


async def test_there_is_no_way_to_delete_an_environment(client: Any) -> None:
    environments = client.beta.agents.environments
    assert not any(hasattr(environments, name) for name in ("delete", "update", "archive"))
    assert not any(hasattr(environments.files, name) for name in ("delete", "retrieve", "content"))


# ---- pages ----


async def test_a_page_that_ends_with_an_item_without_id_ends_the_list(far: AgentsServer, client: Any) -> None:
    far.answer(Many(19))
    session = await opened(client)
    await turn(client, session.id)
    items = client.beta.agents.sessions.items
    far.fault(NullIdAtPageEnd("items.list"))
    assert len([each async for each in items.list(session.id, limit=10, order="asc")]) == 10
    assert len(far.session().items) == 20
    [run] = [each.id async for each in client.beta.agents.sessions.turns.list(session.id)]
    far.fault(NullIdAtPageEnd("turns.items"))
    whole = client.beta.agents.sessions.turns.items.list(run, session_id=session.id, limit=10, order="asc")
    assert len([each async for each in whole]) == 20


async def test_items_of_a_turn_are_paged_by_a_token_and_not_by_their_ids(far: AgentsServer, client: Any) -> None:
    far.answer(Many(3))
    session = await opened(client)
    await turn(client, session.id)
    [run] = [each.id async for each in client.beta.agents.sessions.turns.list(session.id)]
    page = await client.beta.agents.sessions.turns.items.list(run, session_id=session.id, limit=2)
    assert page.last_id not in {each.id for each in page.data}
    with pytest.raises(openai.BadRequestError):
        await client.beta.agents.sessions.turns.items.list(run, session_id=session.id, after=page.data[-1].id)


# ---- files ----


async def test_an_artifact_says_nothing_of_its_kind_and_is_there_once_the_turn_is_done(
    far: AgentsServer, client: Any
) -> None:
    assert not {"media_type", "mime_type", "content_type", "sha256", "digest"} & set(SessionArtifact.model_fields)
    parameters = inspect.signature(client.beta.agents.sessions.artifacts.list).parameters
    assert ("turn_id" in parameters, "environment_id" in parameters) == (False, True)
    far.answer(WriteFile(content="made"), Wait())
    session = await opened(client)
    await say(client, session.id)
    await when(lambda: far.service.waiting)
    assert not [each async for each in client.beta.agents.sessions.artifacts.list(session.id)]
    far.let_go()
    await when(lambda: not far.session().running)
    artifacts = client.beta.agents.sessions.artifacts
    [made] = [each async for each in artifacts.list(session.id, environment_id=session.environment.id)]
    read = await artifacts.content(made.id, session_id=session.id)
    assert (made.path, made.size_bytes, read.read()) == ("/workspace/outputs/report.txt", 4, b"made")
    assert far.requests[-1].headers["accept"] == "application/octet-stream"


async def test_a_download_without_end_is_left_where_one_counts(far: AgentsServer, client: Any) -> None:
    far.answer(WriteFile(endless=True))
    session = await opened(client)
    await turn(client, session.id)
    artifacts = client.beta.agents.sessions.artifacts
    [made] = [each async for each in artifacts.list(session.id)]
    size_bytes = 0
    async with artifacts.with_streaming_response.content(made.id, session_id=session.id) as answer:
        async for piece in answer.iter_bytes(chunk_size=65536):
            size_bytes += len(piece)
            if size_bytes > 1_000_000:
                break
    assert size_bytes <= 1_000_000 + 65536


async def test_a_file_goes_into_an_environment_between_turns_only(far: AgentsServer, client: Any) -> None:
    session = await opened(client)
    files = client.beta.agents.environments.files
    place = session.environment.id
    for name in ("b", "a", "c"):
        await files.create(place, type="inline", data="aGk=", path=f"/workspace/{name}")
    listed = [each async for each in files.list(place, path="/workspace", limit=1)]
    assert [(each.path, each.size_bytes) for each in listed] == [(f"/workspace/{name}", 2) for name in "abc"]
    far.always(Wait())
    await say(client, session.id)
    with pytest.raises(openai.ConflictError):
        await files.create(place, type="inline", data="aGk=", path="/workspace/d")


async def test_the_helper_for_uploads_leaves_a_file_of_ones_own(far: AgentsServer, client: Any) -> None:
    session = await opened(client)
    await client.beta.agents.environments.files.upload(session.environment.id, file=b"hi", path="/workspace/in.txt")
    assert far.service.environment_files[session.environment.id] == {"/workspace/in.txt": b"hi"}
    assert (far.counts()["files"], len(far.service.files)) == (1, 1)


# ---- errors ----


async def test_an_exception_says_all_that_the_error_said(far: AgentsServer, client: Any) -> None:
    far.fault(Answered("sessions.create", status=400, echo=True))
    with pytest.raises(openai.BadRequestError) as raised:
        await opened(client)
    assert str(far.key) in str(raised.value)
    assert "Be brief." in str(raised.value)
    assert raised.value.request_id
    assert (raised.value.code, raised.value.status_code) == ("invalid_request_error", 400)


async def test_no_session_has_a_budget_and_one_that_is_reached_is_in_no_type(far: AgentsServer, client: Any) -> None:
    assert not [name for name in get_type_hints(session_create_params.SessionCreateParamsBase) if "budget" in name]
    known = get_args(get_args(agent_session_event.AgentSessionEvent)[0])
    reached = "agent.session.budget_reached"
    assert not [kind for kind in known if reached in get_args(kind.model_fields["type"].annotation)]
    far.answer(Emit(reached), Say("Yes."))
    session = await opened(client)
    assert "budget_reached" in types(await turn(client, session.id))


async def test_a_turn_may_fail_with_a_code_nobody_knows(far: AgentsServer, client: Any) -> None:
    far.answer(Fail("something_new"))
    session = await opened(client)
    seen = await turn(client, session.id)
    [failed] = [each.turn for each in seen if each.type == "agent.session.turn.failed"]
    assert (type(failed), failed.error.code) == (Turn, "something_new")


# ---- the far side itself: as strict as the provider ----


@pytest.mark.parametrize(
    "more",
    [
        {"extra_body": {"surprise": 1}},
        {"agent": {"instructions": "no model"}},
        {"agent": {"model": "m", "surprise": 1}},
        {"environment": {"type": "none", "network": {"access": "disabled"}}, "input": "Hi"},
        {"environment": {"type": "openai_hosted", "network": {}}},
        {"metadata": {"name": "x" * 513}},
        {"input": [{"role": "system", "content": [{"type": "input_text", "text": "Hi"}]}]},
        {"stream": True},
        {"extra_query": {"surprise": "1"}},
        {"extra_headers": {"OpenAI-Beta": "agents=v0"}},
    ],
)
async def test_what_the_api_does_not_know_is_refused(far: AgentsServer, client: Any, more: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError):
        await opened(client, **more)
    assert far.counts()["sessions"] == 0


async def test_another_key_is_refused(far: AgentsServer) -> None:
    async with bare(far, api_key="sk-another") as client:
        with pytest.raises(openai.AuthenticationError):
            await opened(client)
    assert far.refused_for_key == 1


async def test_a_key_that_was_used_for_another_request_is_a_conflict(far: AgentsServer, client: Any) -> None:
    session = await opened(client)
    await say(client, session.id, "One", idempotency_key="k")
    with pytest.raises(openai.ConflictError):
        await say(client, session.id, "Two", idempotency_key="k")
    assert far.service.inputs == ["One"]


async def test_the_state_is_there_for_the_next_client(far: AgentsServer) -> None:
    far.always(Say("The capital"), Wait(), Say("of France."))
    async with bare(far) as first:
        session = await opened(first)
        await say(first, session.id)
        await when(lambda: far.service.waiting)
    async with bare(far) as second:
        assert (await second.beta.agents.sessions.retrieve(session.id)).status == "in_progress"
        far.let_go()
        await when(lambda: not far.session().running)
        items = [each async for each in second.beta.agents.sessions.items.list(session.id, order="asc")]
    assert [each.role for each in items] == ["user", "assistant", "assistant"]


async def test_another_process_can_say_what_goes_wrong_and_count(far: AgentsServer, client: Any) -> None:
    place = far.base_url.replace("/v1", "/_control")
    fault = {"Answered": {"on": "sessions.create", "status": 503}}
    said = {"always": [{"Say": {"text": "Yes."}}], "faults": [fault], "set": {"list_lag": 1}, "jump_s": -3600}
    async with httpx2.AsyncClient(verify=NO_CERTIFICATES, trust_env=False) as other:
        await other.post(place, json=said)
        with pytest.raises(openai.InternalServerError):
            await opened(client)
        session = await opened(client)
        assert text_of(await turn(client, session.id)) == "Yes."
        told = (await other.get(place)).json()
    assert (told["counts"]["sessions"], told["by_endpoint"]["sessions.create"], told["inputs"]) == (1, 2, ["Hello"])
    assert (told["statuses"], told["turns"]) == ({session.id: "idle"}, {session.id: ["completed"]})
