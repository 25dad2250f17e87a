"""A program of its own that works in a folder, for tests of who else may.

`python -m tests.process.folder_child FOLDER LEASES [child]`: opens a session in FOLDER and begins a run there that goes
on until the input ends. Tells in one line of JSON whether it works, or why not. With `child` it starts a process of its
own first, with every descriptor it may inherit.
"""

import asyncio
import json
import subprocess
import sys
from typing import Any

from runtime_host.definitions import AgentDefinition, Environment, ExecutionBinding, SessionOptions, TrustedContext
from runtime_host.errors import AgentRuntimeError
from runtime_host.policy import CHAT
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.storage.base import AgentStore
from runtime_host.storage.memory import MemoryAgentStore
from runtime_host.testing.scripted import Hold, Script, ScriptedDriver


async def main(folder: str, leases: str, *, child: bool) -> None:
    store = MemoryAgentStore()

    async def storage(_: str) -> AgentStore:
        return store

    driver = ScriptedDriver([Script((Hold(asyncio.Event()),))])
    told: dict[str, Any] = {}
    async with AgentRuntime(LocalBackend(drivers=[driver], storage=storage, lease_folder=leases)) as runtime:
        session = await runtime.create_agent(AgentDefinition(id="a")).open_session(
            SessionOptions(
                execution=ExecutionBinding(driver="scripted", connector="none", model="m"),
                context=TrustedContext(),
                policy=CHAT.model_copy(update={"filesystem": "workspace-write"}),
                environment=Environment(type="local-directory", path=folder),
            )
        )
        try:
            told["run_id"] = (await session.run("Work")).run_id
        except AgentRuntimeError as refused:
            told |= {"code": refused.error_code, "message": refused.message, "details": refused.details}
        if child:
            told["child"] = subprocess.Popen(["sleep", "60"], close_fds=False).pid  # noqa: ASYNC220
        print(json.dumps(told), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], child=sys.argv[3:] == ["child"]))
