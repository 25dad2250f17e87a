"""Chat completions over the official OpenAI client.

Must not know events, sessions or where keys come from. Importing this module imports the SDK (about a second): do it
in a thread.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import openai

from runtime_host.connectors.transport import Timeouts
from runtime_host.loop.model_apis import chat_frames
from runtime_host.loop.model_apis.pieces import ChatRequest
from runtime_host.loop.model_apis.service import NOT_THE_KEY, Refused, SdkApi, StreamedResponse

_REHEARSED = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


class ChatCompletionsApi(SdkApi):
    """Chat completions; of the extras servers may refuse the count of tokens at the end."""

    status_error = openai.APIStatusError
    any_error = openai.OpenAIError

    def secret_headers(self, key: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {key}"}

    def reader(self) -> chat_frames.FrameReader:
        return chat_frames.FrameReader()

    def body(self, request: ChatRequest, *, extras: bool) -> dict[str, Any]:
        return chat_frames.fields(request) | ({"stream_options": {"include_usage": True}} if extras else {})

    def refuses_extras(self, refused: Refused) -> bool:
        return chat_frames.refuses_stream_options(refused.status, refused.content)

    def send(
        self, http_client: httpx2.AsyncClient, base_url: str, body: dict[str, Any]
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        return sdk_client(http_client, base_url).chat.completions.with_streaming_response.create(**body)


def sdk_client(http_client: httpx2.AsyncClient, base_url: str) -> openai.AsyncOpenAI:
    """The official client without retries, over the one HTTP stack."""
    client = openai.AsyncOpenAI(
        api_key=NOT_THE_KEY, base_url=base_url, max_retries=0, timeout=http_client.timeout, http_client=http_client
    )
    # For a header that is not sent anyway it would start a thread to ask what system this is.
    client._platform = "Unknown"
    return client


def load(timeouts: Timeouts | None) -> ChatCompletionsApi:
    """The API, ready for its first request. For the thread that imports this."""
    api = ChatCompletionsApi(timeouts)
    api.rehearse(_REHEARSED)
    return api
