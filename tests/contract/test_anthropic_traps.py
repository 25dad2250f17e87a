"""What the official Anthropic client does by itself, pinned: each row is why transport and reading below it are ours.

When one of these fails after an update of the SDK, the trap is gone or has moved: read `messages.py` again.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import pytest

from tests.loopback.chat_server import DEFAULT_KEY, DEFAULT_MODEL, ChatServer
from tests.loopback.messages_server import MessagesServer

QUESTION = [{"role": "user", "content": "Hello"}]


@pytest.fixture
async def server() -> AsyncIterator[MessagesServer]:
    async with Lenient() as listening:
        yield listening


class Lenient(MessagesServer):
    """Takes the key in any header, as the bare client sends it in another than the API wants."""

    def key_in(self, request: Any) -> str | None:
        return DEFAULT_KEY


def bare(base_url: str, **more: Any) -> anthropic.AsyncAnthropic:
    client = anthropic.AsyncAnthropic(**{"api_key": DEFAULT_KEY, "base_url": base_url, "max_retries": 0, **more})
    client._platform = "Unknown"  # or it leaves a thread of the loop's pool behind
    return client


async def events(client: anthropic.AsyncAnthropic) -> list[Any]:
    """A plain call, as an application that trusts the SDK makes it."""
    fields: dict[str, Any] = {"model": DEFAULT_MODEL, "max_tokens": 9, "messages": QUESTION, "stream": True}
    try:
        stream: Any = await client.messages.create(**fields)
        return [event async for event in stream]
    finally:
        await client.close()


def text_of(came: list[Any]) -> str:
    return "".join(getattr(event.delta, "text", "") for event in came if event.type == "content_block_delta")


async def test_the_key_goes_out_as_a_bearer_token(server: MessagesServer) -> None:
    await events(bare(server.base_url))
    headers = server.requests[0].headers
    assert headers["authorization"] == f"Bearer {DEFAULT_KEY}"
    assert "x-api-key" not in headers
    assert headers["anthropic-version"]
    assert "idempotency-key" not in headers


async def test_the_environment_adds_headers_and_another_version_of_the_api(
    server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Ambient: yes\nanthropic-version: 1999-01-01")
    await events(bare(server.base_url))
    assert server.requests[0].headers["x-ambient"] == "yes"
    assert server.requests[0].headers["anthropic-version"] == "1999-01-01"


async def test_it_sends_again_by_itself(server: MessagesServer) -> None:
    for behaviour in ("409", "503-retry"):
        server.requests.clear()
        server.behaviour = behaviour
        with pytest.raises(anthropic.APIStatusError):
            await events(bare(server.base_url, max_retries=2))
        assert len(server.requests) == 3
    assert anthropic.DEFAULT_MAX_RETRIES == 2


async def test_it_waits_for_an_hour_when_a_server_asks_for_it(
    server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    module = sys.modules["anthropic._base_client"]
    assert isinstance(module.anyio.sleep, object)

    async def sleep(wait_s: float) -> None:
        waits.append(wait_s)

    monkeypatch.setattr(module.anyio, "sleep", sleep)
    server.behaviour = "429-hour"
    with pytest.raises(anthropic.RateLimitError):
        await events(bare(server.base_url, max_retries=1))
    assert waits == [3600.0]


async def test_it_follows_redirects_with_what_is_in_the_body_and_in_headers_of_ours(server: MessagesServer) -> None:
    async with ChatServer(key=None) as other:
        server.behaviour = "redirect"
        server.redirect_to = f"{other.base_url}/elsewhere"
        with pytest.raises(anthropic.NotFoundError):
            await events(bare(server.base_url, default_headers={"X-Api-Key": DEFAULT_KEY}))
        assert b"Hello" in other.requests[0].body
        assert other.requests[0].headers["x-api-key"] == DEFAULT_KEY
        assert "authorization" not in other.requests[0].headers


async def test_a_stream_that_just_ends_is_taken_for_a_whole_one(server: MessagesServer) -> None:
    server.behaviour = "end-without-finish"
    assert text_of(await events(bare(server.base_url))) == "The capital of"


async def test_a_cut_and_a_silence_raise_what_is_no_error_of_the_sdk(server: MessagesServer) -> None:
    server.behaviour = "cut-after-text"
    with pytest.raises(httpx2.ReadError) if sys.platform == "win32" else pytest.raises(httpx2.TransportError) as cut:
        await events(bare(server.base_url))
    assert not isinstance(cut.value, anthropic.AnthropicError)
    server.behaviour = "silent-after-text"
    with pytest.raises(httpx2.ReadTimeout) as silent:
        await events(bare(server.base_url, timeout=httpx2.Timeout(5.0, read=0.3)))
    assert not isinstance(silent.value, anthropic.AnthropicError)


async def test_a_fault_told_in_the_stream_is_a_status_error_of_status_200(server: MessagesServer) -> None:
    server.behaviour = "error-frame-first"
    with pytest.raises(anthropic.APIStatusError) as fault:
        await events(bare(server.base_url))
    assert fault.value.status_code == 200


async def test_events_without_their_names_are_dropped_without_a_word(server: MessagesServer) -> None:
    server.behaviour = "nameless"
    assert await events(bare(server.base_url)) == []


async def test_an_event_of_an_unknown_type_becomes_one_of_another_class(server: MessagesServer) -> None:
    server.behaviour = "odd-shapes"
    came = await events(bare(server.base_url))
    unknown = next(event for event in came if event.type == "new_kind_of_event")
    assert type(unknown).__name__.startswith("Raw")
    async with bare(server.base_url) as client:
        fields: dict[str, Any] = {"model": DEFAULT_MODEL, "max_tokens": 9, "messages": QUESTION}
        async with client.messages.stream(**fields) as stream:
            # Its helper for the whole message does not stand what it lets through itself.
            with pytest.raises(IndexError):
                await stream.get_final_message()


async def test_there_is_no_bound_on_an_event(server: MessagesServer) -> None:
    server.behaviour = "huge-event"
    assert len(text_of(await events(bare(server.base_url)))) == 6 * 1024 * 1024


async def test_it_quotes_the_servers_words_in_its_error(server: MessagesServer) -> None:
    server.behaviour = "401-echo"
    with pytest.raises(anthropic.AuthenticationError, match=DEFAULT_KEY):
        await events(bare(server.base_url))


def test_a_client_of_the_other_http_library_is_refused() -> None:
    class AsyncClient:
        """As it looks from outside."""

    AsyncClient.__module__ = "httpx"
    with pytest.raises(TypeError):
        anthropic.AsyncAnthropic(api_key=DEFAULT_KEY, http_client=AsyncClient())  # type: ignore[arg-type]


def test_without_an_argument_for_the_key_it_looks_at_environment_and_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "ambient-token")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert anthropic.AsyncAnthropic(base_url="http://localhost").auth_token == "ambient-token"
    with_argument = anthropic.AsyncAnthropic(api_key="ours", base_url="http://localhost")
    assert (with_argument.api_key, with_argument.auth_token) == ("ours", None)


async def test_closing_a_stream_early_is_left_to_the_caller(server: MessagesServer) -> None:
    """Leaving the loop alone does not close the connection."""
    server.behaviour = "slow"
    server.tokens_per_s = 50.0
    server.reply = "word " * 500
    client = bare(server.base_url)
    fields: dict[str, Any] = {"model": DEFAULT_MODEL, "max_tokens": 9, "messages": QUESTION, "stream": True}
    stream: Any = await client.messages.create(**fields)
    async for _ in stream:
        break
    await asyncio.sleep(0.2)
    assert server.open_replies == 1
    await stream.close()
    await client.close()
