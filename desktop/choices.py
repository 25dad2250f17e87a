"""What the picker offers: every harness, connector and model that a message can go to.

Pure. Owns the ids by which the renderer names a choice and the words that describe one.
Invariant: the renderer sends an id of a list the host made; harness, connector and model
are looked up here and never taken from it.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from runtime_host.connectors.base import BUILTIN_CONNECTOR, Connector
from runtime_host.connectors.base_url import is_loopback
from runtime_host.definitions import ExecutionBinding, ReasoningConfig

NATIVE = "native.agent"
HARNESS_NAMES = {NATIVE: "Remuda"}


class Choice(NamedTuple):
    """A harness with a connector and a model.

    Attributes:
        here: the model runs on this computer.
        keyed: a key of the person goes with each message.
    """

    driver: str
    connector: str
    model: str
    vendor: str
    here: bool = False
    keyed: bool = False
    efforts: tuple[str, ...] = ()
    available: bool = True
    unavailable_because: str = ""

    @property
    def choice_id(self) -> str:
        """The same for the same choice, at every start; tells nothing."""
        key = "\x00".join((self.driver, self.connector, self.model))
        return "h" + hashlib.sha256(key.encode()).hexdigest()[:24]

    @property
    def harness_name(self) -> str:
        return HARNESS_NAMES.get(self.driver, self.driver)

    @property
    def runs(self) -> str:
        return "on this computer" if self.here else "at the provider"

    @property
    def touches(self) -> str:
        return "nothing"

    @property
    def bills(self) -> str:
        return "your key" if self.keyed else "nobody"

    @property
    def note(self) -> str:
        if not self.available:
            return self.unavailable_because
        if self.vendor == "builtin":
            return (
                "A tiny model that runs on this computer without a network. It shows how Remuda works; "
                "what it says is often wrong."
            )
        return ""

    def sentence(self, effort: str = "") -> str:
        """The header's quiet line: harness, model, effort, what it may touch."""
        model = "tiny model on this computer" if self.vendor == "builtin" else f"{self.model} at {self.connector}"
        return " · ".join(part for part in (self.harness_name, model, effort, "touches nothing") if part)

    def execution(self, effort: str = "") -> ExecutionBinding:
        """The binding a session is opened with."""
        reasoning = ReasoningConfig.model_validate({"effort": effort}) if effort else None
        return ExecutionBinding(driver=self.driver, connector=self.connector, model=self.model, reasoning=reasoning)

    def record(self, effort: str = "") -> dict[str, Any]:
        """What a conversation keeps of its choice."""
        return {"driver": self.driver, "connector": self.connector, "model": self.model, "effort": effort}


def native_choice(connector: Connector, model: str) -> Choice:
    """The native harness with a model of a connector."""
    return Choice(
        NATIVE,
        connector.name,
        model,
        connector.vendor,
        here=is_loopback(urlsplit(connector.base_url).hostname or ""),
        keyed=connector.secret is not None,
    )


def missing(record: dict[str, Any] | None) -> str:
    """What a conversation used that is not set up any more, and what to do."""
    used = f"{record.get('model')} at {record.get('connector')}" if record else "The model this conversation used"
    return f"{used} is not set up here any more. Choose another model, or add its connector again."


class ChoiceBook:
    """All choices there are now, by id and in the order they are offered."""

    def __init__(self, connectors: Iterable[Connector], builtin_missing: str | None) -> None:
        """`builtin_missing` says why the built-in model cannot be used; None when it can."""
        self._choices: dict[str, Choice] = {}
        self._kept: dict[tuple[str, str, str], Choice] = {}
        for connector in connectors:
            for model in connector.models:
                self._add(native_choice(connector, model))
        for model in BUILTIN_CONNECTOR.models:
            self._add(
                Choice(
                    NATIVE,
                    BUILTIN_CONNECTOR.name,
                    model,
                    BUILTIN_CONNECTOR.vendor,
                    here=True,
                    available=builtin_missing is None,
                    unavailable_because=builtin_missing or "",
                )
            )

    def _add(self, choice: Choice) -> None:
        self._choices[choice.choice_id] = choice
        self._kept[choice.driver, choice.connector, choice.model] = choice

    def __iter__(self) -> Iterator[Choice]:
        return iter(self._choices.values())

    def get(self, choice_id: str) -> Choice | None:
        return self._choices.get(choice_id)

    def find(self, record: dict[str, Any] | None) -> Choice | None:
        """The choice that a conversation kept, if it is still offered."""
        if record is None:
            return None
        driver, connector, model = (str(record.get(name)) for name in ("driver", "connector", "model"))
        return self._kept.get((driver, connector, model))

    def default(self) -> Choice | None:
        """What a new conversation starts with: the newest connector's first model, else the built-in one."""
        return next((choice for choice in self._choices.values() if choice.available), None)
