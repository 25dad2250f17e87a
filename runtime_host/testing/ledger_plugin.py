"""A plugin that counts what it did: for tests of gates, and of hosts that have one.

Owns a list of effects. Must not know the gateway's insides. Invariants: what it did is in `effects`, once for each time
it was entered; what it was shown of a credential is nothing but whether it was there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from runtime_host.canonical import freeze
from runtime_host.loop.plugins.base import (
    Credential,
    CredentialCheck,
    CredentialShape,
    Mount,
    Plugin,
    PluginAnswer,
    PluginCall,
    PluginError,
    PluginTool,
    Rule,
    SecretShape,
    Setting,
)

_TEXT: Final[dict[str, Any]] = {"type": "string"}


def _object(**properties: Any) -> Mapping[str, Any]:
    return freeze({"type": "object", "properties": properties, "required": list(properties)})  # type: ignore[no-any-return]


class LedgerPlugin(Plugin):
    """Looks things up and writes them down.

    Args:
        plugin_id: by which it is mounted.
        version: which one it is.
        does: called when it is entered, before it answers; what it raises is what the call comes to.
    """

    title = "Ledger"
    tools = (
        PluginTool("look", "Looks an entry up.", _object(entry=_TEXT), "read"),
        PluginTool("write", "Writes an entry down.", _object(entry=_TEXT), "write"),
        PluginTool("set", "Sets the one value; again it is the same.", _object(entry=_TEXT), "write", "native"),
        PluginTool(
            "ask",
            "Writes down, once it is sure.",
            _object(entry=_TEXT, confirm={"type": ["string", "boolean"]}),
            "write",
        ),
    )
    settings = (
        Setting("allowed_hosts", "strings", "Hosts", required_with_credential=True),
        Setting("size", "number", "Size"),
        Setting("colour", "string", "Colour", choices=("red", "blue")),
    )
    credential = CredentialShape("token")
    secret_shapes = (SecretShape("ledger key", "ledg_[A-Za-z0-9]{24,64}"),)
    retired = freeze({"note": "write", "gone": None})

    def __init__(
        self,
        plugin_id: str = "ledger",
        *,
        version: str = "1",
        does: Callable[[PluginCall], Awaitable[Any]] | None = None,
    ) -> None:
        self.id = plugin_id
        self.version = version
        self.does = does
        self.effects: list[tuple[str, str]] = []
        self.seen: list[PluginCall] = []
        self.let_gone: list[str | None] = []
        self.entered = asyncio.Event()
        self.rested = asyncio.Event()

    async def call(self, call: PluginCall) -> PluginAnswer:
        self.seen.append(call)
        self.effects.append((call.tool, str(call.arguments.get("entry"))))
        self.entered.set()
        payload: Any = f"{call.tool}: {call.arguments.get('entry')}"
        if self.does is not None:
            payload = await self.does(call) or payload
        return PluginAnswer(payload)

    def classify(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        entry = arguments.get("entry")
        if entry == "raise":
            raise ValueError("cannot say")
        return {"only-looks": "read", "odd": "harmless"}.get(str(entry))

    def effect(self, mount: Mount, tool: str, arguments: Mapping[str, Any]) -> str:
        return f"Writes “{arguments.get('entry')}” into {mount.alias}."

    def widest(self, mount: Mount, tool: str, arguments: Mapping[str, Any]) -> Rule | None:
        entry = str(arguments.get("entry", ""))
        return Rule(tool, {"entry": {"starts": entry[:4]}}) if len(entry) > 4 else None

    async def check_credential(self, mount: Mount, credential: Credential) -> CredentialCheck:
        return CredentialCheck("ok" if credential.token == "a-good-token-0001" else "rejected")  # noqa: S105 - a test's

    async def let_go(self, installation_id: str | None = None) -> None:
        self.let_gone.append(installation_id)
        self.rested.set()


def failing(**kwargs: Any) -> Callable[[PluginCall], Awaitable[Any]]:
    """What makes a call come to a `PluginError`."""

    async def does(call: PluginCall) -> Any:
        raise PluginError("The other side said no.", **kwargs)

    return does


def waiting(until: asyncio.Event) -> Callable[[PluginCall], Awaitable[Any]]:
    """What makes a call go on until an event."""

    async def does(call: PluginCall) -> Any:
        await until.wait()

    return does
