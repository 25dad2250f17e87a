"""The official OpenAI client for the Agents API.

Must not know sessions or events. Importing this module imports the SDK (about a second): do it in a thread.
Invariant: the environment chooses no key, server or header.
"""

from collections.abc import Mapping

import httpx2
import openai

from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.connectors.transport import Timeouts
from runtime_host.drivers.managed.service import Bounds, Patience, ServiceClient
from runtime_host.drivers.openai_managed.words import REFUSAL_WORDS
from runtime_host.loop.model_apis.service import NOT_THE_KEY


class AgentsClient(ServiceClient[openai.AsyncOpenAI]):
    """Requests to the Agents API."""

    passed_headers = frozenset({"openai-beta", "idempotency-key"})
    words = REFUSAL_WORDS
    status_error = openai.APIStatusError
    any_error = openai.OpenAIError

    def secret_headers(self, key: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {key}"}

    def sdk(self, http_client: httpx2.AsyncClient, base_url: str) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(
            api_key=NOT_THE_KEY, base_url=base_url, max_retries=0, timeout=http_client.timeout, http_client=http_client
        )
        # For a header that is not sent anyway it would start a thread to ask what system this is.
        client._platform = "Unknown"
        # From OPENAI_CUSTOM_HEADERS: one key of idempotency for all requests would make the later ones do nothing.
        client._custom_headers = {}
        return client


def load(connectors: ConnectorRegistry, timeouts: Timeouts | None, bounds: Bounds, patience: Patience) -> AgentsClient:
    """The client. For the thread that imports this."""
    return AgentsClient(connectors, timeouts, bounds, patience)
