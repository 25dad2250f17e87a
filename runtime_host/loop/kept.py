"""What a plugin keeps for one mount: values, the state of its connection, what it sealed.

Owns the rule that this goes with the mount. Must not know gates, drivers or what is kept. Invariant: what comes late
for an installation that is gone is written nowhere; JSON only, and no credential outside of a seal.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from runtime_host.canonical import FrozenDict
from runtime_host.loop.credentials import CredentialRefusedError, MountCredentials, ref_kind
from runtime_host.loop.plugins.base import Credential, Mount, Plugin, PluginError
from runtime_host.storage.base import AgentStore, AgentTx
from runtime_host.storage.rows import ConnectionRow, MountRow, PluginChoiceRow, PluginValueRow


def wall_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Ground:
    """What everything of one agent's gateway stands on.

    Attributes:
        store: opens the agent's file, or gives the open one; nothing here holds on to it.
        plugins: by id, in the order in which they are registered.
        credentials: of the agent.
        off: plugins that the host has switched off for agents that chose nothing.
        masked: a JSON value with every known credential in it masked.
    """

    agent_id: str
    store: Callable[[], Awaitable[AgentStore]]
    plugins: Mapping[str, Plugin]
    credentials: MountCredentials
    off: frozenset[str] = frozenset()
    masked: Callable[[Any], Any] = lambda value: value
    now_ms: Callable[[], int] = field(default=wall_ms)

    def mount(self, row: MountRow) -> Mount:
        """A mount as its plugin sees it."""
        return Mount(
            self.agent_id,
            row.alias,
            row.installation_id,
            row.connection_id,
            FrozenDict(row.public_config),
            None if row.tool_snapshot is None else FrozenDict(row.tool_snapshot),
            ref_kind(row.secret_ref),
        )

    def is_off(self, tx: AgentTx, row: MountRow) -> bool:
        """Whether a mount is put away, or its plugin is switched off for this agent or by the host."""
        choice = tx.row(PluginChoiceRow, row.plugin)
        off = row.plugin in self.off if choice is None else choice.state == "off"
        return row.closed or off


class MountKept:
    """`plugins.base.Kept` of one installation of a mount."""

    def __init__(self, ground: Ground, row: MountRow) -> None:
        self._ground = ground
        self._row = row

    async def get(self, store: str, key: str) -> Any:
        """A value; None when there is none."""

        def read(tx: AgentTx) -> Any:
            row = self._current(tx)
            found = tx.row(PluginValueRow, row.alias, row.plugin, store, key)
            return None if found is None else found.value

        return await (await self._ground.store()).read(read)

    async def put(self, store: str, key: str, value: Any) -> None:
        def write(tx: AgentTx) -> None:
            row = self._current(tx)
            tx.put_row(
                PluginValueRow(
                    alias=row.alias,
                    plugin=row.plugin,
                    store=store,
                    key=key,
                    value=self._ground.masked(value),
                    updated_ms=self._ground.now_ms(),
                )
            )

        await (await self._ground.store()).transact(write)

    async def delete(self, store: str, key: str) -> None:
        def remove(tx: AgentTx) -> None:
            row = self._current(tx)
            tx.delete_row(PluginValueRow, row.alias, row.plugin, store, key)

        await (await self._ground.store()).transact(remove)

    async def connection(self) -> dict[str, Any]:
        def read(tx: AgentTx) -> dict[str, Any]:
            found = tx.row(ConnectionRow, self._current(tx).alias)
            over = found is not None and found.expires_ms is not None and found.expires_ms <= self._ground.now_ms()
            return {} if found is None or over else dict(found.state)

        return await (await self._ground.store()).read(read)

    async def put_connection(self, state: dict[str, Any], expires_ms: int | None = None) -> None:
        def write(tx: AgentTx) -> None:
            alias = self._current(tx).alias
            now_ms = self._ground.now_ms()
            masked = self._ground.masked(state)
            tx.put_row(ConnectionRow(alias=alias, state=masked, expires_ms=expires_ms, updated_ms=now_ms))

        await (await self._ground.store()).transact(write)

    async def secret(self, name: str) -> Credential | None:
        return await self._ground.credentials.secret(self._row, name)

    async def put_secret(self, name: str, fields: Mapping[str, str]) -> None:
        try:
            await self._ground.credentials.put_secret(self._row, name, fields)
        except CredentialRefusedError as refused:
            raise PluginError(refused.message, code="credential_refused") from None

    async def forget_secret(self, name: str) -> None:
        await self._ground.credentials.forget_secret(self._row, name)

    def _current(self, tx: AgentTx) -> MountRow:
        """The mount as it is called now; its installation decides, not its alias."""
        found = tx.rows(MountRow, installation_id=self._row.installation_id)
        return found[0] if found else _gone(self._row.alias)


def _gone(alias: str) -> NoReturn:
    raise PluginError(f"{alias} was removed meanwhile, so nothing of it is kept.", code="mount_gone")
