"""`python -m tests.process.kill_points WORK FOLDER [STEP]`: profiles and agents, killed at each change of a name.

A process of its own that forks for each attempt: the child does the work and kills itself ahead of the n-th call that
adds, moves or removes a name on disk; the parent looks at what is there then, ends what was begun as the next start
would, and looks again. Prints one JSON line an attempt, until an attempt comes to its end by itself.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from desktop import paths, profiles, stored
from desktop.app import Host
from desktop.paths import ProfilePaths
from desktop.profile_store import AgentRecord, open_profile_store

CANARY = b"canary-7110-of-the-one-that-goes"
KEPT = b"canary-7111-of-the-one-that-stays"

Work = Callable[[Path], Any]


def die_before(number: int) -> None:
    """Kill this process ahead of the `number`-th change of a name."""
    left = number

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **named: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return call(*args, **named)

        return wrapped

    for name in ("rename", "replace", "unlink", "rmdir", "mkdir", "link"):
        setattr(os, name, counted(getattr(os, name)))


def prepare(data: Path) -> None:
    """Two profiles and, in the usual one, two agents with files."""
    for name, said in (("personal", KEPT), ("work", CANARY)):
        paths.profile(data, name)
        asyncio.run(_fill(ProfilePaths(data, name), said.decode()))


async def _fill(profile: ProfilePaths, said: str) -> None:
    store = await open_profile_store(profile.store, profile=profile.name)
    await store.transact(lambda tx: tx.put_setting("profile_uuid", f"uuid-{profile.name}"))
    await store.transact(lambda tx: tx.put_draft("", said))
    await store.transact(lambda tx: tx.put_agent(AgentRecord(agent_id="a1", name="Poet", instructions=CANARY.decode())))
    await store.close()
    for agent, words in (("assistant", KEPT), ("a1", CANARY)):
        folder = paths.private_dir(profile.agent(agent) / "artifacts")
        (folder / "file").write_bytes(words)


def create(data: Path) -> None:
    profiles.create(data, "Third")


def rename(data: Path) -> None:
    profiles.rename(data, "work", "Office")


def delete(data: Path) -> None:
    asyncio.run(profiles.delete(data, "work"))


async def _in_host(data: Path, do: Callable[[Host], Awaitable[Any]]) -> None:
    async with Host(paths.profile(data)) as host:
        await do(host)


def delete_agent(data: Path) -> None:
    asyncio.run(_in_host(data, lambda host: host.conversations.delete_agent("a1")))


def remove_all(data: Path) -> None:
    asyncio.run(_in_host(data, stored.remove_all))


WORKS: dict[str, Work] = {
    "create": create,
    "rename": rename,
    "delete": delete,
    "delete-agent": delete_agent,
    "remove-all": remove_all,
}


def files_with(needle: bytes, root: Path) -> list[str]:
    return [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*"))
        if path.is_file() and needle in path.read_bytes()
    ]


async def _next_start(data: Path) -> dict[str, Any]:
    """What the next start of the usual profile makes of it."""
    async with Host(profiles.resolve(data, "personal")) as host:
        await host.recover()
        await asyncio.gather(*([host._sweeping] if host._sweeping is not None else []))
        agents = [record.name for record in host.agents]
        return {"agents": agents, "draft": await host.conversations.draft(None)}


def attempt(work: Work, data: Path, number: int) -> dict[str, Any]:
    prepare(data)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            die_before(number)
            work(data)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    found: dict[str, Any] = {
        "killed": os.WIFSIGNALED(status),
        "code": os.waitstatus_to_exitcode(status),
        "profiles": [(entry.profile_id, entry.name) for entry in profiles.list_profiles(data)],
    }
    found |= asyncio.run(_next_start(data))
    listed = [(entry.profile_id, entry.name) for entry in profiles.list_profiles(data)]
    found["later"] = listed
    found["left"] = [name for name in os.listdir(data / "profiles") if name.startswith((".gone", ".new"))]
    found["gone"] = files_with(CANARY, data)
    found["kept"] = files_with(KEPT, data)
    return found


def main(name: str, folder: Path, step: int) -> int:
    number = 0
    while True:
        data = folder / str(number)
        found = attempt(WORKS[name], data, number)
        print(json.dumps(found), flush=True)
        shutil.rmtree(data)
        if not found["killed"]:
            return 0
        number += step


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1))
