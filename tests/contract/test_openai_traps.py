"""What the official client does by itself, pinned: each row is why the transport below it is ours.

When one of these fails after an update of the SDK, the trap is gone or has moved: read the transport again.
"""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from runtime_host.connectors.transport import OutOfScopeError, Timeouts, open_connections, scoped_client
from tests.loopback.chat_server import DEFAULT_KEY, DEFAULT_MODEL, ChatServer
from tests.loopback.fixtures import chat_server
from tests.loopback.responses_server import ResponsesServer

__all__ = ["chat_server"]

QUESTION = [{"role": "user", "content": "Hello"}]


async def raw_call(client: openai.AsyncOpenAI) -> str:
    """A plain call, as an application that trusts the SDK makes it; returns the text."""
    try:
        fields = {"model": DEFAULT_MODEL, "messages": QUESTION, "stream": True}
        stream = await client.chat.completions.create(**fields)  # type: ignore[call-overload]  # as plain as it comes
        text = ""
        async for chunk in stream:
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
        return text
    finally:
        await client.close()


def bare(base_url: str, **more: object) -> openai.AsyncOpenAI:
    made: dict[str, object] = {"api_key": DEFAULT_KEY, "base_url": base_url, "max_retries": 0, **more}
    client: openai.AsyncOpenAI = openai.AsyncOpenAI(**made)  # type: ignore[arg-type]
    client._platform = "Unknown"  # or it leaves a thread of the loop's pool behind
    return client


async def test_the_bare_client_follows_redirects_with_what_is_in_the_body(chat_server: ChatServer) -> None:
    async with ChatServer(key=None) as other:
        chat_server.behaviour = "redirect"
        chat_server.redirect_to = f"{other.base_url}/chat/completions"
        assert await raw_call(bare(chat_server.base_url))
        assert b"Hello" in other.requests[0].body


async def test_the_bare_client_sends_again_by_itself(chat_server: ChatServer) -> None:
    chat_server.behaviour = "503-retry"
    with pytest.raises(openai.InternalServerError):
        await raw_call(bare(chat_server.base_url, max_retries=2))
    assert len(chat_server.requests) == 3


async def test_the_bare_client_takes_headers_from_the_environment(
    chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Ambient: yes")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-ambient")
    await raw_call(bare(chat_server.base_url))
    headers = chat_server.requests[0].headers
    assert (headers["x-ambient"], headers["openai-organization"]) == ("yes", "org-ambient")


async def test_the_bare_client_takes_a_stream_that_just_ends_for_a_whole_one(chat_server: ChatServer) -> None:
    chat_server.behaviour = "end-without-finish"
    assert await raw_call(bare(chat_server.base_url)) == "The capital of"


async def test_the_bare_client_has_no_bound_on_an_event(chat_server: ChatServer) -> None:
    chat_server.behaviour = "huge-event"
    assert len(await raw_call(bare(chat_server.base_url))) == 6 * 1024 * 1024


async def test_the_bare_client_quotes_the_servers_words_in_its_error(chat_server: ChatServer) -> None:
    chat_server.behaviour = "401-echo"
    with pytest.raises(openai.AuthenticationError, match=DEFAULT_KEY):
        await raw_call(bare(chat_server.base_url))


async def test_below_our_client_nothing_leaves_its_address(chat_server: ChatServer) -> None:
    connections = open_connections()
    client = scoped_client(
        connections,
        base_url=chat_server.base_url,
        secret_headers={"authorization": f"Bearer {DEFAULT_KEY}"},
        timeouts=Timeouts(),
    )
    async with ChatServer(key=None) as other:
        for url in (
            f"{other.base_url}/models",
            f"http://127.0.0.1:{chat_server.port}/elsewhere",
            f"http://127.0.0.1:{chat_server.port}/v1/../elsewhere",
            f"http://127.0.0.1:{chat_server.port}/v1x/models",
            f"http://user@127.0.0.1:{chat_server.port}/v1/models",
            f"http://localhost:{chat_server.port}/v1/models",
        ):
            with pytest.raises(OutOfScopeError):
                await client.get(url)
        assert other.requests == []
    assert chat_server.requests == []
    answer = await client.get(f"{chat_server.base_url}/models", headers={"x-more": "no", "cookie": "a=b"})
    assert answer.status_code == 200
    assert not {"x-more", "cookie"} & set(chat_server.requests[0].headers)
    await client.aclose()
    await connections.aclose()


async def test_the_client_bounds_what_an_error_may_say() -> None:
    class Endless(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            async def body() -> AsyncIterator[bytes]:
                while True:
                    yield b"x" * 10_000

            return httpx2.Response(500, content=body())

    client = scoped_client(Endless(), base_url="http://localhost/v1", secret_headers={}, timeouts=Timeouts())
    answer = await client.get("http://localhost/v1/models")
    assert (answer.status_code, len(answer.content)) == (500, 64 * 1024)
    await client.aclose()


# ---------------------------------------------------------------------------------------- Responses


@pytest.fixture
async def responses_server() -> AsyncIterator[ResponsesServer]:
    async with ResponsesServer() as server:
        yield server


async def raw_events(client: openai.AsyncOpenAI) -> list[Any]:
    try:
        asked = [{"type": "message", "role": "user", "content": "Hello"}]
        fields: dict[str, Any] = {"model": DEFAULT_MODEL, "input": asked, "stream": True, "store": False}
        stream: Any = await client.responses.create(**fields)
        return [event async for event in stream]
    finally:
        await client.close()


def text_of(came: list[Any]) -> str:
    return "".join(event.delta for event in came if event.type == "response.output_text.delta")


async def test_no_key_of_its_own_makes_a_request_the_same_one(responses_server: ResponsesServer) -> None:
    await raw_events(bare(responses_server.base_url))
    assert "idempotency-key" not in responses_server.requests[0].headers


async def test_responses_are_sent_again_by_default(responses_server: ResponsesServer) -> None:
    for behaviour in ("409", "503-retry"):
        responses_server.requests.clear()
        responses_server.behaviour = behaviour
        with pytest.raises(openai.APIStatusError):
            await raw_events(bare(responses_server.base_url, max_retries=2))
        assert len(responses_server.requests) == 3
    assert openai.DEFAULT_MAX_RETRIES == 2


async def test_a_wait_beyond_two_minutes_is_not_kept(
    responses_server: ResponsesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the two SDKs differ: the other one would sleep for the hour."""
    responses_server.behaviour = "429-hour"
    with pytest.raises(openai.RateLimitError):
        await raw_events(bare(responses_server.base_url, max_retries=1))
    assert len(responses_server.requests) == 1


async def test_a_response_that_just_ends_is_taken_for_a_whole_one(responses_server: ResponsesServer) -> None:
    responses_server.behaviour = "end-without-finish"
    assert text_of(await raw_events(bare(responses_server.base_url))) == "The capital of"


async def test_a_response_that_is_cut_off(responses_server: ResponsesServer) -> None:
    responses_server.behaviour = "cut-after-text"
    with pytest.raises(openai.APIConnectionError):
        await raw_events(bare(responses_server.base_url))
    responses_server.behaviour = "silent-after-text"
    with pytest.raises(openai.APITimeoutError):
        await raw_events(bare(responses_server.base_url, timeout=httpx2.Timeout(5.0, read=0.3)))


async def test_a_fault_told_in_a_response_is_an_event_like_any_other(responses_server: ResponsesServer) -> None:
    responses_server.behaviour = "error-frame"
    came = await raw_events(bare(responses_server.base_url))
    assert came[-1].type == "response.failed"


async def test_an_event_of_an_unknown_type_keeps_its_name_alone(responses_server: ResponsesServer) -> None:
    responses_server.behaviour = "odd-shapes"
    came = await raw_events(bare(responses_server.base_url))
    unknown = next(event for event in came if event.type == "new_kind_of_event")
    assert type(unknown).__name__ != "new_kind_of_event"
