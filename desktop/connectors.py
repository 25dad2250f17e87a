"""The named connectors of a profile: what the person set up to reach models with.

Owns their records (never a key: those are in the keyring or an environment variable, here is
only the reference). Invariant: a key belongs to the address it was given for; another
address needs the key again.
"""

import re
from collections.abc import Callable, Iterator

from desktop.profile_store import ProfileStore
from runtime_host.connectors.base import BUILTIN_CONNECTOR, Connector
from runtime_host.errors import ConnectorError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,47}\Z")


class Connectors:
    """All connectors, in memory and in the profile's store."""

    def __init__(self, store: ProfileStore) -> None:
        self._store = store
        self._all: dict[str, Connector] = {}
        self.on_change: Callable[[], None] = lambda: None

    async def load(self) -> None:
        records = await self._store.read(lambda tx: tx.connectors())
        self._all = {}
        for record in records:
            connector = Connector.model_validate(record)
            self._all[connector.name] = connector

    def __iter__(self) -> Iterator[Connector]:
        # The newest first: it is what the person set up last, so what they want next.
        return iter(reversed(self._all.values()))

    def find(self, name: str) -> Connector | None:
        """The connector of that name, the built-in one included."""
        return BUILTIN_CONNECTOR if name == BUILTIN_CONNECTOR.name else self._all.get(name)

    def check_name(self, name: str) -> None:
        """Raises `ConnectorError` for a name that is taken or is no name."""
        if not NAME.match(name) or name.lower() == "builtin":
            raise ConnectorError(
                "A connector's name is 1 to 48 letters, digits, spaces, dots, dashes and underscores.",
                code="CONNECTOR_NAME_INVALID",
            )
        if name in self._all:
            raise ConnectorError(
                f"There is a connector named {name} already. Remove it first, or choose another name.",
                code="CONNECTOR_EXISTS",
            )

    async def add(self, connector: Connector) -> None:
        self.check_name(connector.name)
        await self.put(connector)

    async def put(self, connector: Connector) -> None:
        """Keep a connector, new or changed."""
        record = connector.model_dump(mode="json")
        await self._store.transact(lambda tx: tx.put_connector(record))
        self._all[connector.name] = connector
        self.on_change()

    async def remove(self, name: str) -> Connector:
        """Take a connector away; returns it, so that its key can be taken away too."""
        connector = self._all.get(name)
        if connector is None:
            raise ConnectorError(f"There is no connector named {name}.", code="CONNECTOR_UNKNOWN")
        await self._store.transact(lambda tx: tx.delete_connector(name))
        del self._all[name]
        self.on_change()
        return connector
