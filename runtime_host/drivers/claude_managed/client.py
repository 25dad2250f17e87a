"""Claude Managed Agents over the official client.

Must not know events, sessions or where keys come from. Importing this module imports the SDK (more than a second): do
it in a thread. Invariant: neither the environment nor a profile on disk chooses a key, a server or a header.
"""

from collections.abc import Mapping
from typing import ClassVar

import anthropic
import httpx2

from runtime_host.connectors.base import ConnectorRegistry
from runtime_host.connectors.transport import Timeouts
from runtime_host.drivers.managed.service import Bounds, Patience, ServiceClient
from runtime_host.loop.model_apis.service import NOT_THE_KEY

_WORKSPACE: str = "anthropic-workspace-id"


class ClaudeService(ServiceClient[anthropic.AsyncAnthropic]):
    """The service, for all sessions.

    Args:
        workspace_id: of the account's workspaces the one to work in; None leaves it to the key.
    """

    passed_headers: ClassVar[frozenset[str]] = frozenset(
        {"anthropic-beta", "anthropic-version", "content-type", _WORKSPACE}
    )
    words: ClassVar[frozenset[str]] = frozenset(
        {
            "api_error",
            "authentication_error",
            "billing_error",
            "budget_create_only",
            "budget_not_raised",
            "environment_archived",
            "environment_create_disabled",
            "environment_not_found",
            "file_expired",
            "file_not_downloadable",
            "invalid_metadata",
            "invalid_request_error",
            "model_not_budgetable",
            "not_found_error",
            "overloaded_error",
            "permission_error",
            "rate_limit_error",
            "request_too_large",
            "timeout_error",
        }
    )
    status_error = anthropic.APIStatusError
    any_error = anthropic.AnthropicError

    def __init__(
        self,
        connectors: ConnectorRegistry,
        timeouts: Timeouts | None,
        bounds: Bounds,
        patience: Patience,
        workspace_id: str | None,
    ) -> None:
        super().__init__(connectors, timeouts, bounds, patience)
        self._workspace_id = workspace_id

    def secret_headers(self, key: str) -> Mapping[str, str]:
        # As this SDK sends a key: this API takes it so.
        return {"authorization": f"Bearer {key}"}

    def sdk(self, http_client: httpx2.AsyncClient, base_url: str) -> anthropic.AsyncAnthropic:
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
        client._custom_headers = {} if self._workspace_id is None else {_WORKSPACE: self._workspace_id}
        return client


def load(
    connectors: ConnectorRegistry,
    timeouts: Timeouts | None,
    bounds: Bounds,
    patience: Patience,
    workspace_id: str | None,
) -> ClaudeService:
    """The service, ready for its first request. For the thread that imports this."""
    # What the SDK puts off until it is used is read here and not on the event loop.
    beta = anthropic.AsyncAnthropic(api_key=NOT_THE_KEY, base_url="http://127.0.0.1", open_telemetry=False).beta
    for part in (
        beta.agents,
        beta.environments,
        beta.sessions,
        beta.sessions.events,
        beta.sessions.resources,
        beta.files,
    ):
        part.with_streaming_response  # noqa: B018 - reading it is what loads it
    return ClaudeService(connectors, timeouts, bounds, patience, workspace_id)
