"""The agents' files, opened on use and closed when they rest.

Owns which agent files of the profile are open. Must not know what is in them. Invariants:
one open store an agent; a file is closed `REST_S` after its last use, by one timer that is
armed only while something is open; nothing in use is closed.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import TypeVar

from desktop.paths import GONE, ProfilePaths, is_agent_id, private_dir, remove_tree
from runtime_host.errors import StorageDamagedError, StorageFailedError
from runtime_host.loop.own_thread import in_own_thread
from runtime_host.storage.base import AgentStore, AgentTx
from runtime_host.storage.claim import sync_folder
from runtime_host.storage.salvage import set_aside, take_over
from runtime_host.storage.sqlite import open_agent_store

T = TypeVar("T")

_log = logging.getLogger("desktop.agent_stores")

REST_S = 60.0
"""How long an agent's file stays open after its last use."""


class RestingStore:
    """An `AgentStore` whose file is open only while it is used.

    A store that failed (disk full, failed fsync) is let go, so that the next use reads the truth from
    disk anew. Of one that is damaged the use that met it raises where it was set aside; the next use, of this
    process or of a later one, finds what could be read of it.
    """

    def __init__(self, path: Path, open_store: Callable[[], Awaitable[AgentStore]], rest_s: float) -> None:
        self._path = path
        self._open_store = open_store
        self._rest_s = rest_s
        self._store: AgentStore | None = None
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._gate = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed = False
        self._generation = 0

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def is_open(self) -> bool:
        """Whether the file is open now."""
        return self._store is not None

    async def transact(self, fn: Callable[[AgentTx], T]) -> T:
        return await self._use(lambda store: store.transact(fn))

    async def read(self, fn: Callable[[AgentTx], T]) -> T:
        return await self._use(lambda store: store.read(fn))

    async def close(self) -> None:
        """Close the file for good, once what is under way has ended."""
        self._closed = True
        await self._unused.wait()
        await self.rest()

    async def rest(self) -> None:
        """Close the file if nothing uses it; the next use opens it again."""
        self._disarm()
        async with self._gate:
            if self._users == 0 and self._store is not None:
                store, self._store = self._store, None
                await store.close()

    async def _use(self, operation: Callable[[AgentStore], Awaitable[T]]) -> T:
        self._disarm()
        self._users += 1
        self._unused.clear()
        try:
            async with self._gate:
                if self._closed:
                    raise StorageFailedError("This agent's file was closed. Start Remuda again to go on.")
                if self._store is None:
                    self._store = await self._opened()
                    self._generation = self._store.generation
                store = self._store
            try:
                return await operation(store)
            except (StorageFailedError, StorageDamagedError):
                if self._store is store:
                    self._store = None
                    await store.close()
                raise
        finally:
            self._users -= 1
            if self._users == 0:
                self._unused.set()
                if self._store is not None and not self._closed:
                    self._arm()

    async def _opened(self) -> AgentStore:
        store = await self._open_store()
        try:
            for aside in await take_over(self._path, store, now_ms=time.time_ns() // 1_000_000):
                _log.warning("what could be read of %s was taken over", aside.name)
        except BaseException:
            await store.close()
            raise
        return store

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._rest_s, self._rest_now)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest_now(self) -> None:
        self._timer = None
        self._closing = asyncio.get_running_loop().create_task(self.rest())


class AgentStores:
    """The stores of a profile's agents, by agent id."""

    def __init__(self, paths: ProfilePaths, profile_uuid: str, rest_s: float = REST_S) -> None:
        self._paths = paths
        self._profile_uuid = profile_uuid
        self._rest_s = rest_s
        self._stores: dict[str, RestingStore] = {}

    async def open(self, agent_id: str) -> AgentStore:
        """The store of an agent; its file is opened at the first use."""
        store = self._stores.get(agent_id)
        if store is None:

            async def open_store() -> AgentStore:
                try:
                    private_dir(self._paths.agent(agent_id))
                except OSError as fault:
                    raise StorageFailedError(f"The folder of this agent cannot be used: {fault}.") from fault
                return await open_agent_store(
                    self._paths.agent_store(agent_id), profile=self._profile_uuid, agent=agent_id
                )

            path = self._paths.agent_store(agent_id)
            store = self._stores[agent_id] = RestingStore(path, open_store, self._rest_s)
        return store

    @contextlib.asynccontextmanager
    async def removing(self, agent_id: str) -> AsyncIterator[None]:
        """Close an agent's file and take its folder away; what is done meanwhile decides whether it goes or stays.

        Raises:
            StorageFailedError: the folder cannot be moved; nothing is changed.
        """
        store = self._stores.pop(agent_id, None)
        if store is not None:
            await store.close()
        folder, gone = self._paths.agent(agent_id), self._paths.gone_agent(agent_id)
        moved = folder.exists()
        if moved:
            try:
                os.rename(folder, gone)
                sync_folder(folder.parent)
            except OSError as fault:
                raise StorageFailedError(f"The folder of this agent cannot be moved: {fault}.") from fault
        try:
            yield
        except BaseException:
            if moved:
                os.rename(gone, folder)
            raise
        await in_own_thread(lambda: self._take_away(gone), "delete an agent")

    async def sweep(self, known: Collection[str]) -> None:
        """After a start: end what a removal that was interrupted had begun. One that was not decided is undone."""
        await in_own_thread(lambda: self._sweep(frozenset(known)), "sweep agents")

    def _sweep(self, known: frozenset[str]) -> None:
        folder = self._paths.agents
        gone = [name for name in os.listdir(folder) if name.startswith(GONE)] if folder.is_dir() else []
        for name in gone:
            agent_id = name.removeprefix(GONE)
            if agent_id in known and not self._paths.agent(agent_id).exists():
                os.rename(folder / name, self._paths.agent(agent_id))
            else:
                self._take_away(folder / name)

    def _take_away(self, folder: Path) -> None:
        try:
            if folder.exists():
                remove_tree(folder)
        except OSError as fault:
            # It is no agent's any more, and tried again at the next start.
            _log.error("the folder of a deleted agent is still there: %s", fault)

    async def rest(self) -> None:
        """Close every file that is not used just now; the next use opens it again."""
        for store in self._stores.values():
            await store.rest()

    def set_aside(self) -> list[Path]:
        """Damaged files of agents that were set aside, by this process or an earlier one, and are there still."""
        folders = sorted(self._paths.agents.iterdir()) if self._paths.agents.is_dir() else ()
        # What is there while an agent is deleted goes with it.
        there = [folder.name for folder in folders if is_agent_id(folder.name)]
        return [each for name in there for each in set_aside(self._paths.agent_store(name))]

    def open_files(self) -> int:
        """How many agent files are open now."""
        return sum(store.is_open for store in self._stores.values())

    async def aclose(self) -> None:
        for store in self._stores.values():
            await store.close()
        self._stores.clear()
