"""A trusted module for `--runtime-host`: a durable store, a harness that does what the message says."""

from pathlib import Path
from typing import Any

from runtime_host import (
    AgentDefinition,
    AgentRuntime,
    ExecutionBinding,
    LocalBackend,
    Policy,
    SessionOptions,
    TrustedContext,
    open_agent_store,
)
from runtime_host.drivers.base import Turn
from runtime_host.storage.base import AgentStore
from runtime_host.testing import Script, ScriptedDriver, Wait, reply

DENIED = Policy(
    filesystem="denied",
    commands="denied",
    sandbox_network="denied",
    provider_web_search="denied",
    approvals="deny",
)


def script(turn: Turn) -> Script:
    if "slow" in turn.text:
        return Script((*reply("On it."), Wait(60)))
    return Script(reply(f"You said: {turn.text}", pieces=3))


class Runtime(AgentRuntime):
    """Closes the store with itself: it is the module's."""

    def __init__(self, backend: LocalBackend, store: AgentStore) -> None:
        super().__init__(backend)
        self._store = store

    async def aclose(self) -> None:
        await super().aclose()
        await self._store.close()


async def make(folder: Path) -> dict[str, Any]:
    store = await open_agent_store(folder / "agent.sqlite3", profile="module", agent="assistant")

    async def storage(agent_id: str) -> AgentStore:
        return store

    return {
        "runtime": Runtime(LocalBackend(drivers=[ScriptedDriver(script)], storage=storage), store),
        "definition": AgentDefinition(id="assistant"),
        "options": SessionOptions(
            execution=ExecutionBinding(driver="scripted", connector="none", model="any"),
            context=TrustedContext(user_id="me"),
            policy=DENIED,
        ),
    }


def nothing(folder: Path) -> dict[str, Any]:
    return {"runtime": None}
