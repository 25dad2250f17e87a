"""What the person sets up, as the host tells it: connections, models, agents, mounts, profiles, what is stored.

Owns the view state behind the settings, the first-run page and the picker, and which answer of
the host belongs to which search. Must not know Qt, the channel or the clock. Invariants:
nothing is shown that the host did not say; an answer to an older search changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ui.wire import dto

Place = Literal["connections", "models", "harnesses", "agents", "mounts", "profiles", "stored", "appearance"]
Area = Literal[
    "connectors", "found", "offer", "models", "harnesses", "agents", "mounts", "profiles", "stored", "progress"
]

PLACES: tuple[Place, ...] = get_args(Place)
"""The pages of the settings, in the order of their tabs."""

ASKED: dict[Place, dto.Page] = {
    "connections": "connections",
    "harnesses": "harnesses",
    "agents": "agents",
    "mounts": "mounts",
    "profiles": "profiles",
    "stored": "stored",
}
"""What the host is asked for when a page is opened."""


_UNITS = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9))


def counted(count: int, one: str, many: str = "") -> str:
    """`3 models`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_words(size_bytes: int) -> str:
    """Bytes in the unit one would say them in."""
    if size_bytes < 1000:
        return counted(size_bytes, "byte")
    unit, size = next(
        ((unit, size_bytes / scale) for unit, scale in _UNITS if size_bytes < 999.5 * scale), ("TB", size_bytes / 1e12)
    )
    return f"{size:.1f} {unit}" if size < 10 else f"{size:.0f} {unit}"


@dataclass(slots=True)
class Offer:
    """One view of what can be chosen: a search, and the host's answer to it."""

    filter: str = ""
    connector: str | None = None
    rows: tuple[dto.Choice, ...] = ()
    total: int = 0
    known: bool = False
    waiting: bool = False

    def look_for(self, text: str, connector: str | None) -> None:
        """Search for something else: what stands stays until the answer comes."""
        if connector != self.connector:
            self.rows, self.total, self.known = (), 0, False
        self.waiting = self.waiting or not self.known or (text, connector) != (self.filter, self.connector)
        self.filter, self.connector = text, connector

    def take(self, answer: dto.Choices) -> bool:
        """Show the answer, if it is one to this search."""
        if (answer.filter, answer.connector) != (self.filter, self.connector):
            return False
        self.rows, self.total, self.known = answer.choices, max(answer.total, len(answer.choices)), True
        self.waiting = False
        return True


class Setup:
    """The view state. `apply` reduces one message; `changed` tells which areas to draw anew."""

    def __init__(self) -> None:
        self.changed: set[Area] = set()
        self.place: Place = "connections"
        self.connectors: tuple[dto.ConnectorRow, ...] = ()
        self.key_store: dto.KeyStore | None = None
        self.network: dto.Network | None = None
        self.found = dto.Found()
        self.harnesses: tuple[dto.HarnessRow, ...] | None = None
        self.agents: tuple[dto.AgentRow, ...] | None = None
        self.mounts: dto.Mounts | None = None
        self.profiles: tuple[dto.ProfileRow, ...] | None = None
        self.stored: dto.Stored | None = None
        self.progress: dict[str, dto.Progress] = {}
        self.offer = Offer()
        """What the picker shows."""
        self.models = Offer()
        """What the page of models shows."""
        self.unasked = False
        """Whether the page of models shows a search that the host was not asked for."""
        self.chosen: dto.Choice | None = None
        self.builtin: dto.Choice | None = None
        self._reduce: dict[type[Any], Callable[[Any], None]] = {
            dto.Choices: self._choices,
            dto.Connectors: self._connectors,
            dto.KeyStore: self._key_store,
            dto.Network: self._network,
            dto.Found: self._found,
            dto.Harnesses: self._harnesses,
            dto.Agents: self._agents,
            dto.Mounts: self._mounts,
            dto.Profiles: self._profiles,
            dto.Stored: self._stored,
            dto.Progress: self._progress,
        }
        self.kinds = tuple(self._reduce)
        """The messages that are reduced here."""

    def apply(self, message: Any) -> None:
        """Reduce one message of the host."""
        self._reduce[type(message)](message)

    # ------------------------------------------------------------------ reading

    def choice(self, wanted: str | None) -> dto.Choice | None:
        """The offered entry with this id, as far as it is known here."""
        if self.chosen is not None and self.chosen.id == wanted:
            return self.chosen
        rows = (*self.offer.rows, *self.models.rows)
        return next((choice for choice in rows if choice.id == wanted), None)

    def connector(self, wanted: str | None) -> dto.ConnectorRow | None:
        return next((row for row in self.connectors if row.id == wanted), None)

    def facts(self) -> dict[str, Any]:
        """What single values the window binds to."""
        store, network, models = self.key_store, self.network, self.models
        narrowed = self.connector(models.connector)
        return {
            "place": self.place,
            "keyStoreState": store.state if store else "ok",
            "keyStoreSentence": store.sentence if store else "",
            "keyStoreWay": store.way if store else "",
            "proxy": network.proxy if network else "",
            "certificates": network.certificates if network else "",
            "looking": self.found.looking,
            "looked": self.found.looked,
            "foundCount": len(self.found.rows),
            "ownConnectors": sum(1 for row in self.connectors if row.removable),
            "offerWaiting": self.offer.waiting,
            "offerTotal": self.offer.total,
            "offerShown": len(self.offer.rows),
            "modelsKnown": models.known,
            "modelsFilter": models.filter,
            "modelsTotal": models.total,
            "modelsShown": len(models.rows),
            "modelsConnector": models.connector or "",
            "modelsOf": narrowed.name if narrowed else "",
            "modelsDefault": narrowed.default_model if narrowed else "",
            "harnessesKnown": self.harnesses is not None,
            "harnessCount": len(self.harnesses or ()),
            "agentsKnown": self.agents is not None,
            "agentCount": len(self.agents or ()),
            "mountsKnown": self.mounts is not None,
            "mountCount": len(self.mounts.rows) if self.mounts else 0,
            "mountsOf": self.mounts.agent_name if self.mounts else "",
            "mountsAgent": self.mounts.agent if self.mounts else "",
            "mountsAgents": [{"id": one.id, "name": one.name} for one in self.mounts.agents] if self.mounts else [],
            "profilesKnown": self.profiles is not None,
            "storedKnown": self.stored is not None,
            "storedSize": size_words(self.stored.total_bytes) if self.stored else "",
        }

    # ------------------------------------------------------------------ messages

    def _choices(self, message: dto.Choices) -> None:
        if message.chosen is not None:
            self.chosen = message.chosen
        if self.offer.take(message):
            self.changed.add("offer")
        if self.models.take(message):
            self.changed.add("models")
        tiny = [choice for choice in message.choices if choice.builtin]
        if tiny:
            self.builtin = next((choice for choice in tiny if choice.available), tiny[0])

    def _connectors(self, message: dto.Connectors) -> None:
        self.connectors = message.rows
        if self.models.connector is not None and self.connector(self.models.connector) is None:
            self.models.look_for("", None)
            self.unasked = True
        self.changed |= {"connectors", "models"}

    def _key_store(self, message: dto.KeyStore) -> None:
        self.key_store = message

    def _network(self, message: dto.Network) -> None:
        self.network = message

    def _found(self, message: dto.Found) -> None:
        self.found = message
        self.changed.add("found")

    def _harnesses(self, message: dto.Harnesses) -> None:
        self.harnesses = message.rows
        self.changed.add("harnesses")

    def _agents(self, message: dto.Agents) -> None:
        self.agents = message.rows
        self.changed.add("agents")

    def _mounts(self, message: dto.Mounts) -> None:
        self.mounts = message
        self.changed.add("mounts")

    def _profiles(self, message: dto.Profiles) -> None:
        self.profiles = message.rows
        self.changed.add("profiles")

    def _stored(self, message: dto.Stored) -> None:
        self.stored = message
        self.changed.add("stored")

    def _progress(self, message: dto.Progress) -> None:
        if message.ended:
            self.progress.pop(message.id, None)
        else:
            self.progress[message.id] = message
        self.changed.add("progress")
