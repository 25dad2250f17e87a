"""A process that uses a store, for tests that kill it, fill its disk or count its syncs.

`python -m tests.process.storage_child MODE PATH [ARGUMENT]`; it tells what was acknowledged, a line each,
in writes of their own.
"""

import asyncio
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from runtime_host.errors import StorageError
from runtime_host.storage.base import AgentStore, AgentTx, ItemRecord, SessionRecord
from runtime_host.storage.sqlite import open_agent_store


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def write(name: str) -> Callable[[AgentTx], None]:
    """One transaction: an item named `name` at the end of the session."""

    def work(tx: AgentTx) -> None:
        if tx.session("s") is None:
            tx.put_session(SessionRecord(session_id="s", scope_digest="", created_ms=1, definition={}, options={}))
        position = tx.count_items("s")
        tx.add_item(
            ItemRecord(
                item_id=name,
                session_id="s",
                run_id=None,
                position=position,
                kind="user",
                state="complete",
                text=name * 20,
                created_ms=1,
            )
        )

    return work


async def open_store(path: str) -> AgentStore:
    return await open_agent_store(Path(path), profile="p", agent="a")


async def hold(path: str, _: str) -> None:
    """Keep the store open until killed, with a child that outlives this process."""
    await open_store(path)
    nothing = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec("sleep", "60", close_fds=False, stdin=nothing, stdout=nothing)
    tell(f"ready {child.pid}")
    await asyncio.Event().wait()


async def try_open(path: str, _: str) -> None:
    try:
        await (await open_store(path)).close()
    except StorageError as error:
        tell(f"{error.error_code} {error.details.get('pid')}")
    else:
        tell("opened")


async def write_until_killed(path: str, prefix: str) -> None:
    store = await open_store(path)
    tell("ready")

    async def writer(number: int) -> None:
        for count in range(1_000_000):
            name = f"{prefix}-{number}-{count}"
            await store.transact(write(name))
            tell(f"ack {name}")

    await asyncio.gather(*(writer(number) for number in range(4)))


async def write_until_full(path: str, limit_bytes: str) -> None:
    if int(limit_bytes):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit_bytes), resource.RLIM_INFINITY))
    store = await open_store(path)
    for count in range(1_000_000):
        try:
            await store.transact(write(f"n{count}"))
        except StorageError as error:
            tell(f"failed {error.error_code} {error.message}")
            break
        tell(f"ack n{count}")
    await _told_outcome(lambda: store.transact(write("after")))
    await store.close()
    tell("closed")


async def count_syncs(path: str, count: str) -> None:
    """Transactions one after the other, then as many that wait together."""
    store = await open_store(path)
    await store.transact(write("first"))
    tell("one after the other")
    for number in range(int(count)):
        await store.transact(write(f"a{number}"))
        tell(f"ack a{number}")
    tell("together")
    loop, started, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def hold_the_thread(tx: AgentTx) -> None:
        loop.call_soon_threadsafe(started.set)
        go.wait(20)

    waiting = [asyncio.ensure_future(store.transact(hold_the_thread))]
    await started.wait()
    waiting += [asyncio.ensure_future(store.transact(write(f"b{number}"))) for number in range(int(count))]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*waiting)
    tell("done")
    os.kill(os.getpid(), signal.SIGKILL)


async def count_turns(path: str, _: str) -> None:
    """Turns of the loop while one commit waits for the disk."""
    store = await open_store(path)
    await store.transact(write("first"))
    commit = asyncio.ensure_future(store.transact(write("second")))
    turns = 0
    while not commit.done():
        await asyncio.sleep(0)
        turns += 1
    tell(f"turns {turns}")
    await store.close()


async def fail_syncs(path: str, switch: str) -> None:
    """Let syncs fail while the file `switch` is there."""
    store = await open_store(path)
    await store.transact(write("before"))
    tell("ack before")
    os.close(os.open(switch, os.O_CREAT))
    await _told_outcome(lambda: store.transact(write("during")))
    os.unlink(switch)
    await _told_outcome(lambda: store.transact(write("after")))
    await _told_outcome(lambda: store.read(lambda tx: tx.count_items("s")))
    tell("done")
    os.kill(os.getpid(), signal.SIGKILL)


async def replaced(path: str, _: str) -> None:
    """Move an open store's files away, put another in its place, then close the first."""
    first = await open_store(path)
    await first.transact(write("first"))
    for suffix in ("", "-wal", ".lock"):
        os.rename(path + suffix, f"{path}.moved{suffix}")
    second = await open_store(path)
    await second.transact(write("second"))
    tell("ack second")
    await _told_outcome(lambda: first.transact(write("lost")))
    await first.close()
    await second.transact(write("third"))
    tell("ack third")
    os.kill(os.getpid(), signal.SIGKILL)


async def _told_outcome(work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()
    except StorageError as error:
        tell(f"refused {error.error_code}")
    else:
        tell("accepted")


MODES = {
    mode.__name__: mode
    for mode in (hold, try_open, write_until_killed, write_until_full, count_syncs, count_turns, fail_syncs, replaced)
}

if __name__ == "__main__":
    _, mode, path, *rest = sys.argv
    asyncio.run(MODES[mode](path, rest[0] if rest else ""))
