"""What a plugin is given, in memory."""

import asyncio
from collections.abc import Mapping
from typing import Any

from runtime_host.canonical import freeze
from runtime_host.loop.plugins.base import Credential, Mount, PluginCall, PluginError


class KeptInMemory:
    """Meets `plugins.base.Kept`. `locked`: what is sealed does not open."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self.sealed: dict[str, dict[str, str]] = {name: {"token": value} for name, value in (secrets or {}).items()}
        self.values: dict[tuple[str, str], Any] = {}
        self.state: dict[str, Any] = {}
        self.locked = False

    async def get(self, store: str, key: str) -> Any:
        return self.values.get((store, key))

    async def put(self, store: str, key: str, value: Any) -> None:
        self.values[(store, key)] = value

    async def delete(self, store: str, key: str) -> None:
        self.values.pop((store, key), None)

    async def connection(self) -> dict[str, Any]:
        return self.state

    async def put_connection(self, state: dict[str, Any], expires_ms: int | None = None) -> None:
        self.state = state

    async def secret(self, name: str) -> Credential | None:
        if self.locked:
            raise PluginError("The key store is locked.", code="credential_unreadable")
        return Credential(self.sealed[name]) if name in self.sealed else None

    async def put_secret(self, name: str, fields: Mapping[str, str]) -> None:
        self.sealed[name] = dict(fields)

    async def forget_secret(self, name: str) -> None:
        self.sealed.pop(name, None)


class ArtifactsInMemory:
    """Meets `plugins.base.Artifacts`."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[bytes, str]] = {}

    async def put(self, data: bytes, mime: str, *, session_id: str, operation_id: str = "") -> str:
        reference = f"artifact://{len(self.held) + 1}"
        self.held[reference] = (data, mime)
        return reference

    async def get(self, reference: str, *, session_id: str) -> tuple[bytes, str]:
        if reference not in self.held:
            raise PluginError("There is none.", code="artifact_missing")
        return self.held[reference]


def a_call(
    tool: str,
    arguments: Mapping[str, Any],
    *,
    config: Mapping[str, Any] | None = None,
    kept: KeptInMemory | None = None,
    artifacts: ArtifactsInMemory | None = None,
    credential: Credential | None = None,
    alias: str = "web",
    stopping: asyncio.Event | None = None,
) -> PluginCall:
    """A call as the gateway makes it: its arguments are frozen."""
    return PluginCall(
        Mount("agent", alias, "installation", "connection", freeze(dict(config or {}))),
        tool,
        freeze(dict(arguments)),
        "op_1",
        "session",
        "run",
        kept or KeptInMemory(),
        artifacts or ArtifactsInMemory(),
        credential,
        stopping=stopping or asyncio.Event(),
    )
