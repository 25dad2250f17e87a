"""The orders about connectors: what they mean, and their answers.

Owns the rows that tell of connectors, their models and their tests. Must not know how orders arrive. Invariant:
no order carries a key; a key that comes from the command line is in the key store before its reference comes here.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from desktop.connectors import UsedBy
from desktop.dialog.entry import KINDS
from desktop.exit_codes import COMPLETED, FAILED
from desktop.local_model import available
from desktop.orders import answers
from desktop.orders.answers import Send
from runtime_host.connectors.base import BUILTIN_CONNECTOR, Connector, SecretRef
from runtime_host.errors import ConnectorError
from runtime_host.models.facts import ModelFacts

VENDORS = tuple(dict.fromkeys(kind.vendor for kind in KINDS))
"""Whose APIs are spoken by what can be added; the built-in model is there already."""

if TYPE_CHECKING:
    from desktop.app import Host
    from desktop.orders.operations import Order


class ConnectorOrders:
    """The orders `connector…` of a host."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    def by_name(self) -> Mapping[str, "Order"]:
        orders: dict[str, Order] = {
            "connectors": self._list,
            "connector-add": self._add,
            "connector-remove": self._remove,
            "connector-rotate": self._rotate,
            "connector-test": self._test,
            "connector-models": self._models,
            "connector-default": self._default,
        }
        return {name: _stoppable(order) for name, order in orders.items()}

    async def _list(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        host = self._host
        uses = await host.connectors.uses()
        kept = [connector.secret for connector in host.connectors if connector.secret is not None]
        # The key store is looked at only where a connector's key is in it; looking asks the person nothing.
        store = await host.credentials.state() if any(secret.kind == "keyring" for secret in kept) else None
        for connector in host.connectors:
            secret = connector.secret
            key = {"key": None, "key_state": "none"}
            if secret is not None and secret.kind == "env":
                key = {"key": f"env {secret.name}", "key_state": host.credentials.variable_state(secret.name)}
            elif secret is not None and store is not None:
                key = {"key": "keyring", "key_state": store.state}
            await send({"row": {**_row(connector), **key, "used_by": _used_by(uses[connector.name])}})
        missing = available()
        await send(
            {
                "row": {
                    **_row(BUILTIN_CONNECTOR),
                    "key": None,
                    "key_state": "none",
                    "used_by": _used_by(uses[BUILTIN_CONNECTOR.name]),
                    "note": missing or "",
                }
            }
        )
        if store is not None and store.state != "ok":
            await send({"note": f"{store.sentence} {store.way}"})
        return COMPLETED

    async def _add(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name = self._host.connectors.check_name(str(arguments["name"]))
        connector = _connector({**arguments, "name": name})
        if not arguments.get("check"):
            unchecked = bool(arguments.get("unchecked"))
            connector = await self._host.setup.add(connector, unchecked=unchecked)
        await send({"row": {"name": connector.name, "base_url": connector.base_url, "models": list(connector.models)}})
        return COMPLETED

    async def _remove(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name = str(arguments["name"])
        connector = self._host.connectors.own(name)
        if not arguments.get("confirmed"):
            used_by = await self._host.connectors.used_by(name)
            await send(
                {"row": {**_row(connector), "key": _key_of(connector), "used_by": _used_by(used_by), "confirm": True}}
            )
            return COMPLETED
        removed = await self._host.setup.remove(name, leave_key=bool(arguments.get("leave_key")))
        await send({"row": {"name": name, "removed": True, **({"note": removed.note} if removed.note else {})}})
        return COMPLETED

    async def _rotate(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name = str(arguments["name"])
        connector = self._host.connectors.own(name)
        if not arguments.get("check"):
            given = SecretRef.model_validate(arguments["secret"])
            if given.kind == "keyring" and given.name != name:
                raise _not_its_own()
            note = await self._host.setup.rotate(name, None, given, unchecked=bool(arguments.get("unchecked")))
            await send({"row": {"name": name, "rotated": True, **({"note": note} if note else {})}})
            return COMPLETED
        await send({"row": {"name": name, "base_url": connector.base_url}})
        return COMPLETED

    async def _test(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name = str(arguments["name"])
        found = await self._host.setup.test(name, str(arguments.get("model") or ""))
        await send({"row": {"name": name, **found._asdict()}})
        return COMPLETED if found.status == "ok" else FAILED

    async def _models(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        host, name = self._host, str(arguments["name"])
        connector = host.connectors.find(name) or host.connectors.own(name)
        if arguments.get("refresh"):
            connector = await host.setup.refresh(name)
        wanted = str(arguments.get("filter") or "").casefold()
        for model in connector.models:
            facts = host.facts(connector, model)
            if wanted in model.casefold() or wanted in facts.display_name.casefold():
                row = _model_row(facts)
                await send({"row": {**row, "default": model == (connector.default_model or connector.models[0])}})
        return COMPLETED

    async def _default(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        connector = await self._host.connectors.set_default(str(arguments["name"]), str(arguments["model"]))
        await send({"row": {"name": connector.name, "default_model": connector.default_model}})
        return COMPLETED


def _stoppable(order: "Order") -> "Order":
    """A server may take long and a key store for ever: who gave the order may stop it, and nothing is changed."""

    async def until_stopped(arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        return await answers.unless(stop, asyncio.ensure_future(order(arguments, send, stop)))

    return until_stopped


def _connector(arguments: dict[str, Any]) -> Connector:
    secret, vendor = arguments.get("secret"), arguments.get("vendor", "openai-compatible")
    if vendor not in VENDORS:
        raise ConnectorError(
            f"There is no vendor {vendor}. It is one of: {', '.join(VENDORS)}.", code="CONNECTOR_CONFIGURATION"
        )
    try:
        connector = Connector(
            name=str(arguments["name"]),
            vendor=vendor,
            base_url=str(arguments.get("base_url", "")),
            secret=SecretRef.model_validate(secret) if secret else None,
            models=tuple(arguments.get("models", ())),
            default_model=str(arguments.get("default_model") or ""),
        )
    except ValidationError as fault:
        first = fault.errors()[0]
        raise ConnectorError(
            f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}", code="CONNECTOR_CONFIGURATION"
        ) from None
    kept = connector.secret
    if kept is not None and kept.kind == "keyring" and kept.name != connector.name:
        raise _not_its_own()
    return connector


def _not_its_own() -> ConnectorError:
    # Else an order could have the key of one connector sent to the address of another.
    return ConnectorError("A key in the key store belongs to the connector of its name.", code="CONNECTOR_KEY_BOUND")


def _row(connector: Connector) -> dict[str, Any]:
    return {
        "name": connector.name,
        "vendor": connector.vendor,
        "base_url": connector.base_url,
        "models": list(connector.models),
        "default_model": connector.default_model,
    }


def _key_of(connector: Connector) -> str | None:
    return None if connector.secret is None else connector.secret.kind


def _used_by(used_by: UsedBy) -> dict[str, list[str]]:
    return {"conversations": list(used_by.conversations), "agents": list(used_by.agents)}


def _model_row(facts: ModelFacts) -> dict[str, Any]:
    return facts.model_dump(mode="json")
