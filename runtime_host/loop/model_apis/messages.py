"""Anthropic Messages over the official client.

Must not know events, sessions or where keys come from. Importing this module imports the SDK (more than a second): do
it in a thread.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

import anthropic
import httpx2

from runtime_host.connectors.transport import Timeouts
from runtime_host.loop.model_apis import messages_frames
from runtime_host.loop.model_apis.pieces import ChatRequest
from runtime_host.loop.model_apis.service import NOT_THE_KEY, Refused, SdkApi, StreamedResponse

_REHEARSED = (
    b'data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}\n\ndata: {"type": "message_stop"}\n\n'
)


class MessagesApi(SdkApi):
    """Messages; of the extras older models may refuse the kind of thinking that is asked for with an effort."""

    # Which version of the API the SDK speaks is said in a header; without it the server refuses.
    passed_headers: ClassVar[frozenset[str]] = frozenset({"anthropic-version"})
    status_error = anthropic.APIStatusError
    any_error = anthropic.AnthropicError

    def secret_headers(self, key: str) -> Mapping[str, str]:
        # This SDK would send an API key as a bearer token, which is what the provider's access tokens are. The
        # public API takes keys in this header, and so do the gateways that speak it.
        return {"x-api-key": key}

    def reader(self) -> messages_frames.FrameReader:
        return messages_frames.FrameReader()

    def body(self, request: ChatRequest, *, extras: bool) -> dict[str, Any]:
        body = messages_frames.fields(request)
        if not extras and request.reasoning_effort != "none":
            body.pop("thinking", None)
        return body

    def refuses_extras(self, refused: Refused) -> bool:
        return messages_frames.refuses_thinking(refused.status, refused.content)

    def send(
        self, http_client: httpx2.AsyncClient, base_url: str, body: dict[str, Any]
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        # An argument for the key, so that no environment variable and no profile on disk is looked at.
        client = anthropic.AsyncAnthropic(
            api_key=NOT_THE_KEY,
            base_url=base_url,
            max_retries=0,
            timeout=http_client.timeout,
            http_client=http_client,
            open_telemetry=False,
        )
        # For a header that is not sent anyway it would start a thread to ask what system this is.
        client._platform = "Unknown"
        # From ANTHROPIC_CUSTOM_HEADERS, which could speak another version of the API than the SDK does.
        client._custom_headers = {}
        return client.messages.with_streaming_response.create(**body)


def load(timeouts: Timeouts | None) -> MessagesApi:
    """The API, ready for its first request. For the thread that imports this."""
    api = MessagesApi(timeouts)
    api.rehearse(_REHEARSED)
    return api
