"""The orders about agents: what they mean, and their answers.

Owns the rows that tell of agents and presets. Must not know how orders arrive. Invariant: what is deleted was
asked about before: a first order tells what would go, and only a confirmed one deletes.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from desktop import agent_setup
from desktop.agents import NEW_ONES_ONLY, AgentRefusedError, preset_title, record_row, tool_words
from desktop.exit_codes import COMPLETED
from desktop.orders.answers import Send
from desktop.profile_store import AgentRecord

if TYPE_CHECKING:
    from desktop.app import Host
    from desktop.orders.operations import Order

_TEXTS = ("name", "description", "instructions", "preset", "folder")


class AgentOrders:
    """The orders `agent…` of a host."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    def by_name(self) -> Mapping[str, "Order"]:
        return {
            "agents": self._list,
            "agent-show": self._show,
            "agent-add": self._add,
            "agent-edit": self._edit,
            "agent-duplicate": self._duplicate,
            "agent-use": self._use,
            "agent-delete": self._delete,
            "presets": self._presets,
        }

    async def _list(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        counted = await self._host.agents.count_conversations()
        for record in self._host.agents:
            row = self._row(record, counted[record.agent_id])
            row["instructions_bytes"] = len(row.pop("instructions").encode())
            await send({"row": row})
        return COMPLETED

    async def _show(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        await self._tell(self._named(arguments), send)
        return COMPLETED

    async def _add(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        draft = self._changed(AgentRecord(agent_id="", name=""), arguments)
        await self._tell(await agent_setup.keep(self._host, draft), send)
        return COMPLETED

    async def _edit(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        record = self._named(arguments)
        changed = self._changed(record, arguments)
        if changed == record:
            raise AgentRefusedError("There is nothing to change. Say what is to be otherwise.", code="AGENT_UNCHANGED")
        kept = await agent_setup.keep(self._host, changed)
        if (await self._host.agents.count_conversations())[kept.agent_id]:
            await send({"note": NEW_ONES_ONLY})
        await self._tell(kept, send)
        return COMPLETED

    async def _duplicate(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        record = self._named(arguments)
        await self._tell(await self._host.agents.duplicate(record.agent_id, str(arguments.get("as") or "")), send)
        return COMPLETED

    async def _use(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        record = self._named(arguments)
        await self._host.agents.set_current(record.agent_id)
        await self._tell(record, send)
        return COMPLETED

    async def _delete(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        record = self._named(arguments)
        goes = await agent_setup.deletion(self._host, record)
        row = {"agent": record.agent_id, "name": record.name}
        if not arguments.get("confirmed"):
            await send({"row": {**row, "goes": list(goes), "confirm": True}})
            return COMPLETED
        await agent_setup.delete(self._host, record.agent_id)
        await send({"row": {**row, "deleted": True}})
        return COMPLETED

    async def _presets(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        choice, _ = await self._host.operations.choice(arguments, None, self._host.agents.current)
        for view in await agent_setup.presets(self._host, choice):
            await send({"row": {**view._asdict(), "harness": choice.driver, "model": choice.model}})
        return COMPLETED

    # ------------------------------------------------------------------------------------ inside

    def _named(self, arguments: dict[str, Any]) -> AgentRecord:
        return self._host.agents.find(str(arguments["agent"]))

    def _changed(self, record: AgentRecord, arguments: dict[str, Any]) -> AgentRecord:
        """The record with what an order says of it."""
        said: dict[str, Any] = {key: str(arguments[key]) for key in _TEXTS if arguments.get(key) is not None}
        if arguments.get("tools") is not None:
            said["tools"] = tuple(map(str, arguments["tools"]))
        if arguments.get("usual_model"):
            said |= {"choice": None, "effort": ""}
        harness, connector, model = (arguments.get(key) for key in ("harness", "connector", "model"))
        if harness or connector or model:
            asked = str(arguments.get("reasoning") or "")
            choice, effort = self._host.operations.find_choice(harness, connector, model, asked)
            said |= {"choice": {key: value for key, value in choice.record().items() if key != "effort"}}
            said["effort"] = effort
        elif arguments.get("reasoning") is not None:
            said["effort"] = str(arguments["reasoning"])
        return msgspec.structs.replace(record, **said)

    async def _tell(self, record: AgentRecord, send: Send) -> None:
        counted = await self._host.agents.count_conversations()
        await send({"row": self._row(record, counted[record.agent_id])})

    def _row(self, record: AgentRecord, conversations: int) -> dict[str, Any]:
        return {
            **record_row(record),
            "model": agent_setup.model_words(self._host, record),
            "touches": preset_title(record.preset),
            "tools_in_words": tool_words(record),
            "conversations": conversations,
            "current": record.agent_id == self._host.agents.current.agent_id,
        }
