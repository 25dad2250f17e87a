"""The named connectors of a profile: what the person set up to reach models with.

Owns their records (never a key: those are in the keyring or an environment variable, here is
only the reference) and the answer to what uses one. Invariant: a key belongs to the address it was
given for; another address needs the key again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from desktop.dialog import entry as rules
from desktop.profile_store import ProfileStore, ProfileTx
from runtime_host.connectors.base import BUILTIN_CONNECTOR, Connector
from runtime_host.errors import ConnectorError
from runtime_host.models.facts import ModelFacts

EVERYTHING = 1_000_000_000


class UsedBy(NamedTuple):
    """What uses a connector, the newest first."""

    conversations: tuple[str, ...]
    agents: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.conversations or self.agents)

    def in_words(self) -> str:
        """How much that is; empty for nothing."""
        counts = ((len(self.agents), "agent"), (len(self.conversations), "conversation"))
        return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count)

    def lines(self, most: int = 20) -> tuple[str, ...]:
        """One line each, as many as `most`, and how many are left out."""
        lines = [f"Agent: {name}" for name in self.agents] + [f"Conversation: {title}" for title in self.conversations]
        left_out = len(lines) - most
        return (*lines[:most], f"… and {left_out} more") if left_out > 0 else tuple(lines)


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

    def own(self, name: str) -> Connector:
        """The person's connector of that name.

        Raises:
            ConnectorError: there is none, or it is the built-in one, which has no key and no settings.
        """
        connector = self._all.get(name)
        if connector is not None:
            return connector
        if name == BUILTIN_CONNECTOR.name:
            raise ConnectorError(
                "The built-in model has no key, no address and nothing to set.", code="CONNECTOR_CONFIGURATION"
            )
        raise ConnectorError(f"There is no connector named {name}.", code="CONNECTOR_UNKNOWN")

    def check_name(self, name: str) -> str:
        """The name as it is kept. Raises `ConnectorError` for a name that is taken or is no name."""
        check = rules.check_name(name, tuple(self._all))
        if check.state != "good":
            code = "CONNECTOR_EXISTS" if check.sentence == rules.TAKEN else "CONNECTOR_NAME_INVALID"
            raise ConnectorError(check.sentence, code=code)
        return check.value

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
        """Take a connector away; returns it."""
        connector = self.own(name)
        await self._store.transact(lambda tx: tx.delete_connector(name))
        del self._all[name]
        self.on_change()
        return connector

    async def set_models(self, name: str, facts: Sequence[ModelFacts]) -> Connector:
        """Keep what the server says it offers. A default that it offers no more is none."""
        connector = with_models(self.own(name), facts)
        await self.put(connector)
        return connector

    async def set_default(self, name: str, model: str) -> Connector:
        """Have new conversations take `model` of this connector.

        Raises:
            ConnectorError: ``MODEL_UNKNOWN``, it lists models and this is none of them.
        """
        connector = self.own(name)
        if connector.models and model not in connector.models:
            raise ConnectorError(
                f"{name} lists no model {model}. See what it lists: remuda connectors models {name} --refresh",
                code="MODEL_UNKNOWN",
            )
        models = connector.models or (model,)
        changed = connector.model_copy(update={"default_model": model, "models": models})
        await self.put(changed)
        return changed

    async def used_by(self, name: str) -> UsedBy:
        """What would miss the connector of that name."""
        return (await self.uses())[name]

    async def uses(self) -> "Uses":
        """What uses each of them."""
        return await self._store.read(_uses)


class Uses:
    """What uses each connector, by its name; nothing for a name that nothing uses."""

    def __init__(self, conversations: Iterable[tuple[str, str]], agents: Iterable[tuple[str, str]]) -> None:
        self._conversations, self._agents = _grouped(conversations), _grouped(agents)

    def __getitem__(self, name: str) -> UsedBy:
        return UsedBy(tuple(self._conversations.get(name, ())), tuple(self._agents.get(name, ())))


def with_models(connector: Connector, facts: Sequence[ModelFacts]) -> Connector:
    """`connector` with the models that its server lists, and those that the person named besides."""
    listed, listed_before = {one.model for one in facts}, {one.model for one in connector.facts}
    named = (model for model in connector.models if listed_before and model not in listed_before | listed)
    models = (*(one.model for one in facts), *named)
    default = connector.default_model if connector.default_model in models else ""
    return connector.model_copy(update={"models": models, "facts": tuple(facts), "default_model": default})


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, what in pairs:
        grouped.setdefault(name, []).append(what)
    return grouped


def _uses(tx: ProfileTx) -> Uses:
    records = [
        record for archived in (False, True) for record in tx.conversations("", 0, EVERYTHING, archived=archived).rows
    ]
    return Uses(
        ((name, record.title) for record in records if (name := _connector_of(record.choice))),
        ((name, agent.name) for agent in tx.agents() if (name := _connector_of(agent.choice))),
    )


def _connector_of(choice: dict[str, Any] | None) -> str:
    return str((choice or {}).get("connector") or "")
