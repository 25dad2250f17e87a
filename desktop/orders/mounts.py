"""The orders about mounts and about what waits for the person.

Owns the rows that tell of mounts. Must not know how orders arrive. Invariants: no order carries a credential, whose
reference alone comes here, and no order approves anything: to agree, one is shown the trusted dialog, which an order
can only open; what is deleted was asked about before.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from desktop import mounts
from desktop.exit_codes import COMPLETED, FAILED
from desktop.orders.answers import Send
from desktop.profile_store import AgentRecord
from desktop.questions import credential as credential_entry
from desktop.questions import mount as mount_entry
from desktop.questions.approval import until_words
from runtime_host.connectors.base import SecretRef
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.mounts import MountBook, MountRefusedError, MountReport

if TYPE_CHECKING:
    from desktop.app import Host
    from desktop.orders.operations import Order


class MountOrders:
    """The orders `mount…` and `waiting…` of a host."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    def by_name(self) -> Mapping[str, "Order"]:
        return {
            "mounts": self._list,
            "mount-add": self._add,
            "mount-edit": self._edit,
            "mount-rename": self._rename,
            "mount-switch": self._switch,
            "mount-remove": self._remove,
            "mount-attach": self._attach,
            "mount-detach": self._detach,
            "mount-check": self._check,
            "mount-refresh": self._refresh,
            "mount-look": self._look,
            "mount-rotate-key": self._rotate_key,
            "waiting": self._waiting,
            "waiting-review": self._review,
        }

    # ------------------------------------------------------------------ reading

    async def _list(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        record = self._agent(arguments)
        book = (await self._host.gateway(record.agent_id)).mounts
        report = await book.report()
        for each in report.mounts:
            await send({"row": {"agent": record.agent_id, **mounts.told(each)}})
        await book.told(report)
        return COMPLETED

    async def _waiting(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        """What waits for the person, of all agents or one; arguments of calls are for the dialog."""
        records = [self._agent(arguments)] if arguments.get("agent") else list(self._host.agents)
        for record in records:
            for held in await self._host.approvals.pending(record.agent_id):
                name = await self._host.conversations.conversation_of(held.session_id)
                row = {
                    "operation": held.operation_id,
                    "session": name,
                    "run": held.run_id,
                    "mount": held.alias,
                    "tool": held.tool,
                    "effect": self._host.registry.redactor.text(held.effect),
                    "account": held.account,
                    "since_ms": held.created_ms,
                    "until": until_words(held.expires_ms),
                    "stale": held.stale,
                }
                await send({"row": row})
        return COMPLETED

    async def _review(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        """Open the trusted dialog on a held call. What is decided there is decided by who sits in front of it."""
        decided = await self._host.approvals.review(await self._operation(str(arguments["operation"])))
        if decided is None:
            words = "It was not decided, and waits on. Where no dialog can be opened, open Remuda on your desktop."
            await send({"row": {"operation": arguments["operation"], "decided": "waiting", "words": words}})
            return COMPLETED
        await send({"row": {"operation": decided.operation_id, "decided": decided.state, "words": decided.words}})
        # A host of this order's own lives until what goes on with it has ended.
        await self._host.approvals.carried_out()
        return COMPLETED

    async def _operation(self, wanted: str) -> str:
        found = [
            held.operation_id
            for record in self._host.agents
            for held in await self._host.approvals.pending(record.agent_id)
            if held.operation_id.startswith(wanted)
        ]
        if len(found) > 1:
            raise AgentRuntimeError(f"{wanted} is the beginning of {len(found)} calls.", code="OPERATION_AMBIGUOUS")
        return found[0] if found else wanted

    # ------------------------------------------------------------------ changing

    async def _add(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        book = await self._book(arguments)
        plugin = book.plugin(str(arguments["plugin"]))
        usual = mount_entry.ASKS_FIRST if plugin.remote else mount_entry.CAREFUL
        policy = {**usual, **_policy(arguments, {})}
        row = await book.add(
            plugin.id, str(arguments.get("alias") or ""), config=_config(arguments, book, plugin.id, {}), policy=policy
        )
        return await self._tell(book, row.alias, send)

    async def _edit(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        book, found = await self._found(arguments)
        row = found.row
        config = _config(arguments, book, row.plugin, row.public_config)
        policy = _policy(arguments, row.policy)
        if config == row.public_config and policy == row.policy:
            raise MountRefusedError("There is nothing to change. Say what is to be otherwise.", code="MOUNT_UNCHANGED")
        await book.edit(
            row.alias,
            config=config if config != row.public_config else None,
            policy=policy if policy != row.policy else None,
        )
        return await self._tell(book, row.alias, send)

    async def _rename(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        book, found = await self._found(arguments)
        row = await book.rename(found.row.alias, str(arguments["new"]))
        return await self._tell(book, row.alias, send)

    async def _switch(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        book, found = await self._found(arguments)
        to = arguments.get("to")
        if to not in ("on", "off", "inherit"):
            raise MountRefusedError("A mount is switched on, off or inherit.", code="MOUNT_REFUSED")
        if to == "on" and found.state == "other-version":
            await book.take_over(found.row.alias)
        await book.switch(found.row.alias, to)
        return await self._tell(book, found.row.alias, send)

    async def _remove(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        book, found = await self._found(arguments)
        row = {"alias": found.row.alias, "installation": found.row.installation_id}
        if not arguments.get("confirmed"):
            goes = [f"The mount {found.row.alias} ({found.plugin_title}) with its settings and rules."]
            if found.credential.kind != "none":
                goes.append("Its credential, which cannot be had back.")
            await send({"row": {**row, "goes": goes, "confirm": True}})
            return COMPLETED
        await book.remove(found.row.alias)
        await send({"row": {**row, "removed": True}})
        return COMPLETED

    # ------------------------------------------------------------------ credentials

    async def _attach(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        """Seal what the command line has put into the key store, and take it out of there."""
        book, found = await self._found(arguments)
        names = [name for name, _ in credential_entry.fields_of(found)]
        if arguments.get("check"):
            await send({"row": {"alias": found.row.alias, "fields": names}})
            return COMPLETED
        try:
            given = SecretRef.model_validate(arguments["secret"])
        except (KeyError, ValidationError):
            raise MountRefusedError("This is no reference to a credential.", code="CREDENTIAL_REFUSED") from None
        if given.kind != "keyring" or given.name != parked_name(found.row.installation_id):
            # Any other key of this profile is for its own server.
            raise MountRefusedError("This reference is not of this mount.", code="CREDENTIAL_REFUSED")
        text = await self._host.credentials.resolve(given)
        try:
            fields = _fields(text, names)
            await book.attach(found.row.alias, fields, str(arguments.get("account") or ""))
        finally:
            await self._host.credentials.delete(given)
        return await self._tell(book, found.row.alias, send)

    async def _detach(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        book, found = await self._found(arguments)
        if found.credential_shape.kind == "sign-in":
            await book.sign_out(found.row.alias)
        else:
            await book.detach(found.row.alias)
        return await self._tell(book, found.row.alias, send)

    async def _check(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        book, found = await self._found(arguments)
        checked = await book.check(found.row.alias)
        await send({"row": {"alias": found.row.alias, "state": checked.state, "detail": checked.detail}})
        return COMPLETED if checked.state in ("ok", "unchecked") else FAILED

    # ------------------------------------------------------------------ what has to be seen

    async def _refresh(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        """Tell what the other side tells of its tools now. Changes nothing."""
        book, found = await self._found(arguments)
        told = await book.refresh(found.row.alias)
        await send({"row": {"alias": found.row.alias, **told._asdict()}})
        return COMPLETED

    async def _look(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        """Open the trusted dialog on what has to be agreed to before a mount is used: a program, tools."""
        book, found = await self._found(arguments)
        done = await mount_entry.look_at(self._host, book, found.row.alias)
        await send({"row": {"alias": found.row.alias, "ready": done}})
        return COMPLETED if done else FAILED

    async def _rotate_key(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        """Make a new sealing key and bring what is sealed of every agent under it."""
        agents = [(await self._host.gateway(record.agent_id)).ground.credentials for record in self._host.agents]
        resealed = await self._host.seals.rotate(agents)
        await send({"row": resealed._asdict()})
        return COMPLETED if not resealed.unreadable else FAILED

    # ------------------------------------------------------------------ inside

    def _agent(self, arguments: dict[str, Any]) -> AgentRecord:
        word = arguments.get("agent")
        return self._host.agents.find(str(word)) if word else self._host.agents.current

    async def _book(self, arguments: dict[str, Any]) -> MountBook:
        return (await self._host.gateway(self._agent(arguments).agent_id)).mounts

    async def _found(self, arguments: dict[str, Any]) -> tuple[MountBook, MountReport]:
        book, alias = await self._book(arguments), str(arguments["alias"])
        report = await book.report()
        found = next((each for each in report.mounts if each.row.alias == alias), None)
        if found is None:
            there = ", ".join(each.row.alias for each in report.mounts) or "none"
            raise MountRefusedError(f"There is no mount {alias}. There are: {there}.", code="NOT_MOUNTED")
        return book, found

    async def _tell(self, book: MountBook, alias: str, send: Send) -> int:
        report = await book.report()
        for each in report.mounts:
            if each.row.alias == alias:
                await send({"row": mounts.told(each)})
                if each.consent is not None or (each.can_refresh and not each.tools):
                    await send(
                        {"note": f"Look at it before it is used, in the trusted dialog: remuda mounts look {alias}"}
                    )
        channel = self._host.window.channel if self._host.window is not None else None
        if channel is not None:
            channel.page_changed("mounts")
        return COMPLETED


def parked_name(installation_id: str) -> str:
    """Under which name the command line puts a credential into the key store for a moment."""
    return f"mount-{installation_id}"


def _fields(text: str, names: list[str]) -> dict[str, str]:
    if len(names) == 1:
        return {names[0]: text}
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise MountRefusedError(
            f"This credential has several fields. Give them as one line of JSON with {', '.join(names)}.",
            code="CREDENTIAL_REFUSED",
        )
    return given


def _config(arguments: Mapping[str, Any], book: MountBook, plugin_id: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as `NAME=VALUE` words, by the kind each one is of; an empty value takes one away."""
    config, kinds = dict(before), {setting.name: setting.kind for setting in book.plugin(plugin_id).settings}
    for word in arguments.get("set") or ():
        name, equals, value = str(word).partition("=")
        if not equals:
            raise MountRefusedError(f"{word} is no NAME=VALUE.", code="SETTING_REFUSED")
        if not value:
            config.pop(name, None)
        else:
            config[name] = _value(kinds.get(name, "string"), value)
    return config


def _value(kind: str, text: str) -> Any:
    if kind == "strings":
        return [part.strip() for part in text.split(",") if part.strip()] if not text.startswith("[") else _json(text)
    return _json(text) if kind in ("number", "boolean") else text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _policy(arguments: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    policy = dict(before)
    for effect in ("read", "write"):
        if arguments.get(effect):
            policy[effect] = str(arguments[effect])
    tools = dict(policy.get("tools", {}))
    for word in arguments.get("tools") or ():
        name, equals, decision = str(word).partition("=")
        if not equals:
            raise MountRefusedError(f"{word} is no TOOL=DECISION.", code="POLICY_REFUSED")
        tools.pop(name, None)
        if decision:
            tools[name] = decision
    if tools or "tools" in policy:
        policy["tools"] = tools
    if arguments.get("forget_rules"):
        policy.pop("rules", None)
    return policy
