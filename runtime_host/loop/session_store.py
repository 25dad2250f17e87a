"""The stores of one session: entries, values, lists and what it used.

Owns the rules by which they are read and written together. Must not know other sessions, drivers or SQL: whoever holds
one reaches its session and no other. Invariants: what a transaction writes to several stores is there whole or not at
all; within it later reads see earlier writes; every write has a number that is greater than those before it, and lists
come in that order; a branch ends at its branch point before anything is filtered, and what lies up to a cursor is left
out before anything is counted.
"""

import functools
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeVar

from runtime_host.errors import StorageError
from runtime_host.storage import usage
from runtime_host.storage.base import AgentStore, AgentTx, session_fact
from runtime_host.storage.rows import CounterRow, EntryRow, SessionListRow, SessionValueRow, UsageRow

T = TypeVar("T")

WRITES: Final = "writes"
"""Counter of a session: how much was written to its stores."""


class SessionStores:
    """The stores of a session within one transaction."""

    def __init__(self, tx: AgentTx, session_id: str) -> None:
        self._tx = tx
        self._session_id = session_id

    # entries

    def append(
        self, type_: str, body: dict[str, Any], *, parent: str | None, run_id: str = "", now_ms: int = 0
    ) -> EntryRow:
        """Add an entry behind another one of this session; None begins a branch of its own.

        Raises:
            LookupError: there is no such entry in this session.
        """
        if parent is not None:
            self._entry(parent)
        row = EntryRow(
            entry_id=f"entry_{uuid.uuid4().hex}",
            session_id=self._session_id,
            run_id=run_id,
            type=type_,
            body=body,
            created_ms=now_ms,
            parent_id=parent,
            seq=self._next(),
        )
        self._tx.put_row(row)
        return row

    def branch(
        self,
        leaf: str,
        *,
        since: str | None = None,
        only: Callable[[EntryRow], bool] | None = None,
        after_seq: int = 0,
        limit: int | None = None,
    ) -> list[EntryRow]:
        """The entries that lead to `leaf`, oldest first.

        Args:
            leaf: the last one.
            since: the branch point: it and what lies before it are left out, whatever the filter says.
            only: the ones to be given.
            after_seq: those up to this number are left out before any is counted.
            limit: how many are given at most.

        Raises:
            LookupError: an entry is not of this session; or the branch point is not on the branch.
        """
        found: list[EntryRow] = []
        at: str | None = leaf
        while at is not None and at != since:
            row = self._entry(at)
            found.append(row)
            at = row.parent_id
        if at != since:
            raise LookupError(f"the entry {since} is not on the branch of {leaf}")
        kept = [row for row in reversed(found) if only is None or only(row)]
        later = [row for row in kept if row.seq > after_seq]
        return later if limit is None else later[: max(limit, 0)]

    # values

    def value(self, namespace: str, key: str) -> Any:
        """What was kept under a name; None for nothing."""
        row = self._tx.row(SessionValueRow, self._session_id, namespace, key)
        return None if row is None else row.body

    def put_value(self, namespace: str, key: str, body: Any) -> None:
        self._tx.put_row(
            SessionValueRow(session_id=self._session_id, namespace=namespace, key=key, seq=self._next(), body=body)
        )

    def remove_value(self, namespace: str, key: str) -> None:
        """Idempotent."""
        self._tx.delete_row(SessionValueRow, self._session_id, namespace, key)

    def values(self, namespace: str) -> list[tuple[str, Any]]:
        """Names and values of a namespace, in the order in which they were last written."""
        rows = self._tx.rows(SessionValueRow, session_id=self._session_id, namespace=namespace)
        return [(row.key, row.body) for row in sorted(rows, key=lambda row: row.seq)]

    # lists

    def add(self, namespace: str, key: str, body: Any) -> int:
        """Put an element at the end of a list; its number."""
        seq = self._next()
        self._tx.put_row(SessionListRow(session_id=self._session_id, namespace=namespace, key=key, seq=seq, body=body))
        return seq

    def list(self, namespace: str, key: str, *, after_seq: int = 0, limit: int | None = None) -> list[tuple[int, Any]]:
        """Numbers and elements of a list, in the order in which they were written."""
        rows = self._tx.rows(SessionListRow, session_id=self._session_id, namespace=namespace, key=key)
        later = [(row.seq, row.body) for row in rows if row.seq > after_seq]
        return later if limit is None else later[: max(limit, 0)]

    def clear(self, namespace: str, key: str) -> None:
        """Idempotent."""
        for seq, _ in self.list(namespace, key):
            self._tx.delete_row(SessionListRow, self._session_id, namespace, key, seq)

    # usage

    def used(self, usage_id: str, resource: str, key: str, quantity: float, unit: str, *, at_ms: int) -> None:
        """Write what the work of this transaction used.

        Raises:
            ValueError: the id is of something that another session used.
        """
        known = self._tx.row(UsageRow, usage_id)
        if known is not None and known.session_id != self._session_id:
            raise ValueError(f"what was used as {usage_id} belongs to another session")
        row = UsageRow(
            usage_id=usage_id,
            session_id=self._session_id,
            resource=resource,
            key=key,
            quantity=quantity,
            unit=unit,
            at_ms=at_ms,
        )
        usage.meter(self._tx, row)

    # ------------------------------------------------------------------------------------------ inside

    def _entry(self, entry_id: str) -> EntryRow:
        row = self._tx.row(EntryRow, entry_id)
        if row is None or row.session_id != self._session_id:
            raise LookupError(f"no entry {entry_id} in this session")
        return row

    def _next(self) -> int:
        name = session_fact(self._session_id, WRITES)
        counter = self._tx.row(CounterRow, name)
        value = 1 if counter is None else counter.value + 1
        self._tx.put_row(CounterRow(name=name, value=value))
        return value


class SessionStore:
    """What a session keeps, bound to that session. Several may be open over one agent's store."""

    def __init__(self, store: AgentStore, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._sealed = False

    async def transact(self, fn: Callable[[SessionStores], T]) -> T:
        """Run `fn` in one transaction, behind those that were asked for before; returns after it is durable.

        What `fn` raises undoes all of it. It may run again, so it has no effects besides those on its stores.

        Raises:
            StorageError: closed, or not durable.
        """
        self._admit()
        return await self._store.transact(functools.partial(self._within, fn))

    async def read(self, fn: Callable[[SessionStores], T]) -> T:
        """Run `fn`, which writes nothing; it sees all that was asked for before.

        Raises:
            StorageError: closed.
        """
        self._admit()
        return await self._store.read(functools.partial(self._within, fn))

    async def close(self) -> None:
        """Refuse what is asked for from now on; returns when what was asked for before is done. Idempotent."""
        self._sealed = True
        try:
            # A read is answered behind all that was asked for before it.
            await self._store.read(_nothing)
        except StorageError as error:
            if error.error_code != "STORAGE_CLOSED":
                raise

    def _admit(self) -> None:
        if self._sealed:
            raise StorageError("What this conversation keeps is closed.", code="STORAGE_CLOSED")

    def _within(self, fn: Callable[[SessionStores], T], tx: AgentTx) -> T:
        return fn(SessionStores(tx, self._session_id))


def _nothing(tx: AgentTx) -> None:
    """Waits its turn."""
