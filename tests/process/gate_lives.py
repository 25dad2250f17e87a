"""Lives of a program with the turn of `three_tools`, on a real file, each a process that may end itself.

`python -m tests.process.gate_lives` reads orders of one JSON line each, `[folder, base_url, point]`, forks a process
that lives in that folder, and answers how it ended in a line. A point is `before N` or `after N` of its commits,
`effect N` right after the N-th effect of a tool, or `nowhere`. What the tools did is a line each in `far`, there from
the moment it is written; the result of a life that came to its end is in `result`, its commits in `commits`.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from runtime_host.drivers.native import NativeDriver
from runtime_host.loop.plugins.base import PluginCall
from runtime_host.storage.sqlite import open_agent_store
from runtime_host.testing.counting import CountingStore, Side
from tests.loopback.native import AT_ONCE, QUICK, registry_for
from tests.loopback.three_tools import life


class Place:
    """A folder and what is written in it. The process ends at `stop_at`."""

    def __init__(self, folder: Path, stop_at: str = "nowhere") -> None:
        self.folder = folder
        self.stop_at = stop_at
        self._effects = 0

    def write(self, name: str, line: str) -> None:
        fd = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, f"{line}\n".encode())
        finally:
            os.close(fd)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []

    def at(self, point: str) -> None:
        if point == self.stop_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def at_commit(self, side: Side, number: int) -> None:
        self.at(f"{side} {number}")

    async def does(self, call: PluginCall) -> Any:
        """What a tool does."""
        self.write("far", str(call.arguments["entry"]))
        self._effects += 1
        self.at(f"effect {self._effects}")


async def live(place: Place, base_url: str) -> None:
    """The program, from its start to its end."""
    file = place.folder / "agent.sqlite3"
    store = await open_agent_store(file, profile="p", agent="assistant")
    counted = CountingStore(store, place.at_commit)
    driver = NativeDriver(registry_for(base_url), timeouts=QUICK, retries=AT_ONCE)
    try:
        async with asyncio.timeout(30):
            result = await life(counted, driver, place.does)
    finally:
        await store.close()
    place.write("result", result.model_dump_json())
    place.write("commits", str(counted.commits))


def forked(folder: str, base_url: str, point: str) -> int:
    """One life in a process of its own; how that ended."""
    if threading.active_count() != 1:
        raise RuntimeError("a process with threads is not forked")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(live(Place(Path(folder), point), base_url))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    # Loaded once for all lives: what a process loads on its first request.
    importlib.import_module("runtime_host.loop.model_apis.chat_completions").load(None)
    for line in iter(sys.stdin.readline, ""):
        print(forked(*json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
