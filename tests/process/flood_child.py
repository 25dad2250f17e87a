"""A run that is flooded while a reader holds its events and never reads on, for a test of what that costs.

`python -m tests.process.flood_child FOLDER KIND EVENTS`: prints as JSON how the process has grown (bytes), what the
journal kept, and what the run came to. KIND is `pieces` of one reply, of
which all is kept, `tools` at work, or the `output` of a command, of which the beginning and the end are kept.
"""

import asyncio
import gc
import json
import os
import sys
from pathlib import Path

from runtime_host.definitions import AgentDefinition, ExecutionBinding, SessionOptions, TrustedContext
from runtime_host.events import DriverEvent
from runtime_host.policy import CHAT
from runtime_host.runtime import AgentRuntime, LocalBackend
from runtime_host.storage.base import AgentStore
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing.scripted import Flood, Script, ScriptedDriver, reply

WARM_EVENTS = 20_000
KEY = "sk-canary-3f9A/x+0Zq7=Lm-and-some-more-of-it"


def resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def bytes_on_disk(folder: str) -> int:
    return sum(each.stat().st_size for each in Path(folder).iterdir())


LINE = "\x1b[32m[ 42%]\x1b[0m compiling a file with quite a long name\r\n" * 64


def flooded(kind: str, events: int) -> Script:
    if kind == "pieces":
        return Script([Flood(events), *reply("Done.")])
    if kind == "output":
        begun = DriverEvent("command.started", {"id": "c", "command": "make"})
        ended = {"id": "c", "command": "make", "output": None, "exit_code": 0, "status": "completed"}
        flood = Flood(events, event=DriverEvent("command.output.delta", {"id": "c", "text": LINE}))
        return Script([begun, flood, DriverEvent("command.completed", ended), *reply("Done.")])
    return Script([Flood(events, event=DriverEvent("tool.progress", {"id": "t", "name": "dig"})), *reply("Done.")])


async def kept_chars(store: AgentStore, session_id: str) -> int:
    """How much text of all replies and commands so far is in the store."""
    kinds = ("reply", "command")
    return await store.read(
        lambda tx: sum(head.size_chars for head in tx.items(session_id, 0, 100, 0) if head.kind in kinds)
    )


async def main(folder: str, kind: str, events: int) -> None:
    store = await open_agent_store(Path(folder) / "agent.sqlite3", profile="p", agent="a")

    async def storage(_: str) -> AgentStore:
        return store

    # The first run warms what is made once; the second is the one that counts.
    driver = ScriptedDriver([flooded(kind, WARM_EVENTS), flooded(kind, events)])
    options = SessionOptions(
        execution=ExecutionBinding(driver="scripted", connector="none", model="m-1"),
        context=TrustedContext(),
        policy=CHAT,
    )
    backend = LocalBackend(drivers=[driver], storage=storage)
    # With a credential to look for, as in earnest.
    backend.redactor.add(KEY)  # type: ignore[attr-defined]  # the runtime's own, where no connector brings one
    async with AgentRuntime(backend) as runtime:
        session = await runtime.create_agent(AgentDefinition(id="a", instructions="")).open_session(options)
        for warm in (True, False):
            before = resident_bytes()
            run = await session.run("Dig")
            reader = run.events()
            await anext(reader)
            result = await run.result()
            statistics = run.journal.statistics()
            told = {
                "grown_bytes": resident_bytes() - before,
                "retained_bytes": statistics.retained_bytes,
                "last_sequence": run.journal.last_sequence,
                "kept_chars": await kept_chars(store, session.session_id),
                "disk_bytes": bytes_on_disk(folder),
                "status": result.status,
                "finish_reason": result.finish_reason,
            }
            if not warm:
                rest = [event async for event in reader]
                gaps = [event.data["to"] for event in rest if event.data.get("code") == "EVENTS_DROPPED"]
                told |= {"last": rest[-1].type, "gap_to": gaps[-1] if gaps else None, "read": len(rest)}
                sys.stdout.write(json.dumps(told) + "\n")
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
