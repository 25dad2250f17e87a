"""A host with a mount that counts its effects, a model that asks for them, and a person who decides."""

import asyncio
import json
from typing import Any, Literal

import pytest

from desktop import app
from desktop.app import Host
from desktop.dialogs import Approval, ApprovalAnswer
from desktop.plugins import plugins
from runtime_host.testing.ledger_plugin import LedgerPlugin
from tests.loopback.chat_server import BEHAVIOURS, Answer, behaviour

ENTRY = "the first entry"
WRITES = "ledger-writes"

if WRITES not in BEHAVIOURS:

    @behaviour(WRITES)
    async def writes(answer: Answer) -> None:
        """Asks for an entry to be written down, then tells what came of it; later messages are only answered."""
        answer.start_stream()
        await answer.begin()
        messages = answer.request.json()["messages"]
        if messages[-1]["role"] == "tool":
            await answer.text("It says: " + " and ".join(answer.told()))
            await answer.finish()
        elif str(messages[-1]["content"]).startswith("write"):
            await answer.call(f"call_{len(messages)}", "ledger__write", json.dumps({"entry": ENTRY}))
            await answer.finish("tool_calls")
        else:
            await answer.text("Heard: " + str(messages[-1]["content"]))
            await answer.finish()


class Decider:
    """The person in front of the trusted dialog of a call."""

    def __init__(self) -> None:
        self.asked: list[Approval] = []
        self.answer: ApprovalAnswer | None = None
        self.thinking = asyncio.Event()
        self.thinking.set()

    def says(self, word: Literal["approve", "deny", "later"], **more: Any) -> None:
        self.answer = None if word == "later" else ApprovalAnswer(word == "approve", **more)

    async def ask_approval(self, asked: Approval) -> ApprovalAnswer | None:
        self.asked.append(asked)
        await self.thinking.wait()
        return self.answer

    async def aclose(self) -> None:
        """Nothing is open."""


def with_ledger(monkeypatch: pytest.MonkeyPatch) -> LedgerPlugin:
    """Hosts made from now on have a ledger among their plugins."""
    ledger = LedgerPlugin()
    monkeypatch.setattr(app, "plugins", lambda *given: (*plugins(*given), ledger))
    return ledger


def deciding(host: Host, monkeypatch: pytest.MonkeyPatch) -> Decider:
    person = Decider()

    async def trusted() -> Decider:
        return person

    monkeypatch.setattr(host, "trusted", trusted)
    return person


async def mount_ledger(host: Host, **policy: str) -> None:
    """Mount it for the current agent."""
    gateway = await host.gateway(host.agents.current.agent_id)
    await gateway.mounts.add("ledger", policy=policy or {"write": "approval"})
