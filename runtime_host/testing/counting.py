"""A store that counts its commits and lets a test act before and after each.

Owns the count. Must not know what is committed. Invariant: a point is reached once for each commit that
was asked for, in the order they were asked for; `after` only once the commit is durable.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar

from runtime_host.storage.base import AgentStore, AgentTx

T = TypeVar("T")

Side: TypeAlias = Literal["before", "after"]


class CountingStore:
    """An `AgentStore` around another one.

    Args:
        inner: does the work.
        at: called with the side and the number, from 1, of each commit; may raise, or end the process.
    """

    def __init__(self, inner: AgentStore, at: Callable[[Side, int], object] | None = None) -> None:
        self.inner = inner
        self.commits = 0
        self._at = at

    @property
    def generation(self) -> int:
        return self.inner.generation

    async def transact(self, fn: Callable[[AgentTx], T]) -> T:
        self.commits += 1
        number = self.commits
        if self._at is not None:
            self._at("before", number)
        result = await self.inner.transact(fn)
        if self._at is not None:
            self._at("after", number)
        return result

    async def read(self, fn: Callable[[AgentTx], T]) -> T:
        return await self.inner.read(fn)

    async def close(self) -> None:
        await self.inner.close()
