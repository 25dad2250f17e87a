"""OpenAI Responses over the official client.

Must not know events, sessions or where keys come from. Importing this module imports the SDK (about a second): do it
in a thread.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import openai

from runtime_host.connectors.transport import Timeouts
from runtime_host.loop.model_apis import responses_frames
from runtime_host.loop.model_apis.chat_completions import sdk_client
from runtime_host.loop.model_apis.pieces import ChatRequest
from runtime_host.loop.model_apis.service import Refused, SdkApi, StreamedResponse

_REHEARSED = b'data: {"type": "response.completed", "response": {}}\n\n'


class ResponsesApi(SdkApi):
    """Responses; of the extras accounts and models may refuse summaries and seals of the reasoning."""

    status_error = openai.APIStatusError
    any_error = openai.OpenAIError

    def secret_headers(self, key: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {key}"}

    def reader(self) -> responses_frames.FrameReader:
        return responses_frames.FrameReader()

    def body(self, request: ChatRequest, *, extras: bool) -> dict[str, Any]:
        return responses_frames.fields(request, reasoning_extras=extras)

    def refuses_extras(self, refused: Refused) -> bool:
        return responses_frames.refuses_reasoning_extras(refused.status, refused.content)

    def send(
        self, http_client: httpx2.AsyncClient, base_url: str, body: dict[str, Any]
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        return sdk_client(http_client, base_url).responses.with_streaming_response.create(**body)


def load(timeouts: Timeouts | None) -> ResponsesApi:
    """The API, ready for its first request. For the thread that imports this."""
    api = ResponsesApi(timeouts)
    api.rehearse(_REHEARSED)
    return api
