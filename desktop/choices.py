"""What the picker offers: every harness, connector and model that a message can go to.

Pure. Owns the ids by which the renderer names a choice, the words that describe one, and the search among
them. Must not know channels. Invariants: the renderer sends an id of a list the host made; harness, connector
and model are looked up here and never taken from it; what nobody said of a model is not in its words; many
thousands of models cost a search, not a list.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from runtime_host.connectors.base import BUILTIN_CONNECTOR, Connector
from runtime_host.connectors.base_url import is_loopback
from runtime_host.definitions import Effort, ExecutionBinding, ReasoningConfig
from runtime_host.models.facts import SAYINGS, Declared, ModelFacts, facts_for

MOST_WORDS = 8
Badge = Literal["", "assumed", "declared"]

FolderUse = Literal["never", "optional", "required"]
EffortsOf = Callable[[str, Sequence[str] | None], tuple[str, ...]]
"""The efforts that a model takes in a harness, given what its server says of that."""

NATIVE = "native.agent"
CODEX = "openai.codex.sdk"
CLAUDE = "anthropic.agent.sdk"
OPENAI_MANAGED = "openai.agents.api"
CLAUDE_MANAGED = "anthropic.managed.api"


class HarnessWords(NamedTuple):
    """What there is to say of a harness whatever its model.

    Attributes:
        vendor: whose API its model has to speak; empty for any.
        folder: whether it works in a folder of this computer.
        touches: what it may touch, in a few words.
        means: the same in full.
        images: whether pictures can be given to it.
        service: who runs it, where that is a provider; empty for what works on this computer.
        billing: what is billed and where data goes, in a sentence; of a service only.
        deletes: what is deleted there with a conversation, in a sentence; of a service only.
        known_models: whether it is offered only with models that are known to work in it.
        fixed: whether model and effort of a conversation stay as it began.
    """

    name: str
    vendor: str
    folder: FolderUse
    touches: str
    means: str
    images: bool = True
    service: str = ""
    billing: str = ""
    deletes: str = ""
    known_models: bool = False
    fixed: bool = False


def _billing(service: str) -> str:
    return (
        f"The conversation, what tools return and the files it makes are kept at {service} until you delete the "
        "conversation here; the provider bills your key, also while Remuda is closed."
    )


HARNESSES: Final[Mapping[str, HarnessWords]] = MappingProxyType(
    {
        NATIVE: HarnessWords(
            "Remuda",
            "",
            "optional",
            "nothing, or one folder that you choose",
            "Without a folder it chats, and uses the tools that its agent has. It reads in a folder that you choose; "
            "where you let it, it changes files there and runs commands, each after you approved it unless you "
            "decided otherwise. Commands have no network and can read and run installed programs.",
        ),
        CODEX: HarnessWords(
            "Codex",
            "openai",
            "required",
            "one folder that you choose",
            "It works in one folder that you choose: it reads it and runs commands there that have no network, and "
            "changes files only where you let it. Commands can read and run installed programs.",
        ),
        CLAUDE: HarnessWords(
            "Claude",
            "anthropic",
            "optional",
            "nothing, or one folder that you choose",
            "Without a folder it chats and touches nothing. It reads in a folder that you choose; only "
            "where you let it does it change files there and run commands, which have no network and can read and run "
            "installed programs.",
            images=False,
        ),
        OPENAI_MANAGED: HarnessWords(
            "OpenAI Agents",
            "openai",
            "never",
            "its own sandbox there, without network",
            "It works at OpenAI, in a sandbox there that has no network, and goes on there while Remuda is closed. Of "
            "this computer it touches nothing but what its agent's tools and mounts reach.",
            images=False,
            service="OpenAI",
            billing=_billing("OpenAI"),
            deletes="At OpenAI: its session, with what was said, what tools returned and the files it made.",
            known_models=True,
        ),
        CLAUDE_MANAGED: HarnessWords(
            "Claude Managed Agents",
            "anthropic",
            "never",
            "its own sandbox there, without network",
            "It works at Anthropic, in a sandbox there that has no network, and goes on there while Remuda is closed. "
            "Of this computer it touches nothing but what its agent's tools and mounts reach.",
            images=False,
            service="Anthropic",
            billing=_billing("Anthropic"),
            deletes="At Anthropic: its session and its environment with all files; its agent is archived, as it "
            "cannot be deleted there.",
            fixed=True,
        ),
    }
)
PROGRAMS: Final = frozenset({CODEX, CLAUDE})
"""Harnesses that are programs on this computer: an open session is a running program."""
MANAGED: Final = frozenset(driver for driver, words in HARNESSES.items() if words.service)
"""Harnesses of a service: their work goes on there while this program is closed."""
HARNESS_NAMES = {driver: words.name for driver, words in HARNESSES.items()}


def at_services(conversations: Mapping[str, int], *, stays: bool) -> tuple[str, ...]:
    """What becomes of conversations at services when a profile goes, one sentence for each service.

    Args:
        conversations: how many there are, by driver.
        stays: whether they are left there, since nobody can ask for their deletion.
    """
    said = []
    for driver, count in sorted(conversations.items()):
        if driver not in MANAGED or not count:
            continue
        one = count == 1
        which = f"{count} conversation{'' if one else 's'} at {service_of(driver)}"
        said.append(
            f"{which} {'stays' if one else 'stay'} there and can be billed. To delete {'it' if one else 'them'} there, "
            "open the profile and remove everything from there."
            if stays
            else f"{which} {'is' if one else 'are'} deleted there, too."
        )
    return tuple(said)


def service_of(driver: str) -> str:
    """Who runs a harness, by its id; empty for one that works on this computer."""
    return HARNESSES[driver].service if driver in HARNESSES else ""


def harness_named(word: str) -> str:
    """The id of a harness that is called by its id or its name; the word itself where there is none."""
    named = (driver for driver, words in HARNESSES.items() if word.casefold() in (driver, words.name.casefold()))
    return next(named, word)


def choice_id_of(driver: str, connector: str, model: str) -> str:
    """The id of a choice: the same at every start; tells nothing."""
    key = "\x00".join((driver, connector, model))
    return "h" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class Choice(NamedTuple):
    """A harness with a connector and a model.

    Attributes:
        here: the model runs on this computer.
        keyed: a key of the person goes with each message.
        facts: what is known of the model, and who says so.
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
    facts: ModelFacts | None = None

    @property
    def choice_id(self) -> str:
        """The same for the same choice, at every start; tells nothing."""
        return choice_id_of(self.driver, self.connector, self.model)

    @property
    def harness_name(self) -> str:
        return HARNESS_NAMES.get(self.driver, self.driver)

    @property
    def service(self) -> str:
        """Who runs the harness itself; empty for one that works on this computer."""
        return service_of(self.driver)

    @property
    def runs(self) -> str:
        if self.service:
            return f"at {self.service}"
        if self.here:
            return "on this computer"
        return "at the provider" if self.driver == NATIVE else "here, its model at the provider"

    @property
    def touches(self) -> str:
        if self.folder == "never" and not self.service:
            return "nothing" if self.driver in HARNESSES else ""
        return HARNESSES[self.driver].touches

    @property
    def folder(self) -> FolderUse:
        """Whether a folder of this computer can or must be chosen for it."""
        if self.driver not in HARNESSES or (self.driver == NATIVE and self._calls_no_tools):
            return "never"
        return HARNESSES[self.driver].folder

    @property
    def _calls_no_tools(self) -> bool:
        """It is known that the model calls none. Remuda's own harness reads a folder by nothing else."""
        return self.facts is not None and self.facts.tools is False

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
        return f"It goes on at {self.service} while Remuda is closed." if self.service else ""

    @property
    def context(self) -> str:
        """How much the model reads at once, in words; empty where that is not known."""
        tokens = self.facts.context_tokens if self.facts is not None else None
        return f"{tokens:,} tokens" if tokens is not None else ""

    @property
    def price(self) -> str:
        """What it costs, in words; empty where that is not known."""
        return price_words(self.facts) if self.facts is not None else ""

    @property
    def badge(self) -> Badge:
        """Whose word the facts are, if not the provider's or its own pages'."""
        facts = self.facts
        if facts is None or not any(getattr(facts, name) not in (None, "") for name in SAYINGS):
            return ""
        return facts.origin if facts.origin in ("assumed", "declared") else ""

    @property
    def images(self) -> bool:
        """False only where it is known that harness or model takes none."""
        if self.driver in HARNESSES and not HARNESSES[self.driver].images:
            return False
        return self.facts is None or self.facts.images is not False

    @property
    def label(self) -> str:
        """Model and connector, for lists of both."""
        return "Tiny model on this computer" if self.vendor == "builtin" else f"{self.model} at {self.connector}"

    def sentence(self, effort: str = "", access: str | None = None) -> str:
        """The quiet line about it: harness, model, effort, what it may touch.

        Args:
            effort: how hard the model is to think.
            access: what a conversation may touch, where that is known; else what the harness can.
        """
        model = "tiny model on this computer" if self.vendor == "builtin" else f"{self.model} at {self.connector}"
        touches = f"touches {self.touches}" if access is None and self.touches else access
        return " · ".join(part for part in (self.harness_name, model, effort, touches) if part)

    def execution(self, effort: str = "", config: Mapping[str, Any] = MappingProxyType({})) -> ExecutionBinding:
        """The binding a session is opened with; `config` is its harness's own."""
        # Made by its name, so that a word that is none is refused in words.
        reasoning = ReasoningConfig(effort=cast(Effort, effort)) if effort else None
        return ExecutionBinding(
            driver=self.driver,
            connector=self.connector,
            model=self.model,
            reasoning=reasoning,
            driver_config=dict(config),
        )

    def record(self, effort: str = "") -> dict[str, Any]:
        """What a conversation keeps of its choice."""
        return {"driver": self.driver, "connector": self.connector, "model": self.model, "effort": effort}


def price_words(facts: ModelFacts) -> str:
    """Prices with their unit; those that are not known are not there."""
    prices = (
        (facts.price_input_usd, "in"),
        (facts.price_cached_usd, "cached"),
        (facts.price_output_usd, "out"),
    )
    known = [(usd, word) for usd, word in prices if usd is not None]
    if not known:
        return ""
    if all(usd == 0 for usd, _ in known):
        return "free"
    return ", ".join(f"{_dollars(usd)} {word}" for usd, word in known) + " per million tokens"


def _dollars(usd: float) -> str:
    """`$3`, `$0.15`, `$0.075`, `$1,250.50`."""
    digits = next((digits for digits in (0, 2, 3, 4) if round(usd, digits) == usd), 6)
    return f"${usd:,.{digits}f}"


def native_choice(connector: Connector, model: str, facts: ModelFacts | None = None) -> Choice:
    """The native harness with a model of a connector."""
    return Choice(
        NATIVE,
        connector.name,
        model,
        connector.vendor,
        here=is_loopback(urlsplit(connector.base_url).hostname or ""),
        keyed=connector.secret is not None,
        efforts=(facts.efforts or ()) if facts is not None else (),
        facts=facts,
    )


def gone(record: dict[str, Any] | None) -> str:
    """What a conversation used that is not set up any more."""
    used = f"{record.get('model')} at {record.get('connector')}" if record else "The model this conversation used"
    if record and record.get("driver") != NATIVE and record.get("driver") in HARNESS_NAMES:
        used = f"{HARNESS_NAMES[record['driver']]} with {used}"
    return f"{used} is not set up here any more"


def missing(record: dict[str, Any] | None) -> str:
    """The same, and what to do."""
    if record and record.get("driver") in PROGRAMS:
        return f"{gone(record)}. Look at Harnesses for its program, or add its connector again."
    return f"{gone(record)}. Choose another model, or add its connector again."


class _Said(NamedTuple):
    """Of a connector what `facts_for` reads, with what its server said of one model only."""

    vendor: str
    base_url: str
    facts: tuple[ModelFacts, ...]


class _Shelf:
    """What a harness has of one connector's models; a choice is made when asked for, what is searched at a search."""

    def __init__(
        self,
        connector: Connector,
        declared: Declared | None,
        unavailable_because: str = "",
        *,
        driver: str = NATIVE,
        efforts_of: EffortsOf | None = None,
    ) -> None:
        self.connector = connector
        self.driver = driver
        first = (connector.default_model,) if connector.default_model in connector.models else ()
        models = dict.fromkeys((*first, *connector.models))
        if efforts_of is not None and driver in HARNESSES and HARNESSES[driver].known_models:
            # What is not known to work in it would only be refused by it.
            models = {model: None for model in models if efforts_of(model, None)}
        self.models = tuple(models)
        self._known = frozenset(self.models)
        self._declared = declared
        self._unavailable_because = unavailable_because
        self._efforts_of = efforts_of
        self._said = {facts.model: facts for facts in connector.facts}
        self._choices: dict[str, Choice] = {}
        self._words: list[str] | None = None

    def choice(self, model: str) -> Choice:
        made = self._choices.get(model)
        if made is None:
            made = self._choices[model] = self._made(model)
        return made

    def _made(self, model: str) -> Choice:
        said = self._said.get(model)
        served = _Said(self.connector.vendor, self.connector.base_url, (said,) if said is not None else ())
        made = native_choice(self.connector, model, facts_for(served, model, self._declared))
        if self._efforts_of is not None:
            told = said.efforts if said is not None else None
            return made._replace(driver=self.driver, efforts=self._efforts_of(model, told))
        if self.connector.vendor == "builtin":
            missing = self._unavailable_because
            made = made._replace(here=True, available=not missing, unavailable_because=missing)
        return made

    def has(self, model: str) -> bool:
        return model in self._known

    def matches(self, words: list[str]) -> list[str]:
        """The models in which every one of the case-folded `words` is found."""
        if self._words is None:
            harness = HARNESS_NAMES.get(self.driver, self.driver)
            around = f"\n{self.connector.name}\n{self.connector.vendor}\n{harness}"
            self._words = [f"{model}\n{self._called(model)}{around}".casefold() for model in self.models]
        return [
            model for model, said in zip(self.models, self._words, strict=True) if all(word in said for word in words)
        ]

    def _called(self, model: str) -> str:
        said = self._said.get(model)
        return said.display_name if said is not None else ""


class ChoiceBook:
    """All choices there are now, by id and in the order they are offered."""

    def __init__(
        self,
        connectors: Iterable[Connector],
        builtin_missing: str | None,
        *,
        declared: Declared | None = None,
        default: dict[str, Any] | None = None,
        harnesses: Mapping[str, EffortsOf] = MappingProxyType({}),
    ) -> None:
        """Make no list yet.

        Args:
            connectors: in the order they are offered.
            builtin_missing: why the built-in model cannot be used; None when it can.
            declared: what the person says of models.
            default: the record of what new conversations start with, if the person chose it.
            harnesses: those besides Remuda's own that can be used here, with the efforts that models take in them.
        """
        shelves: list[_Shelf] = []
        for connector in connectors:
            shelves.append(_Shelf(connector, declared))
            shelves += [
                _Shelf(connector, declared, driver=driver, efforts_of=efforts_of)
                for driver, efforts_of in harnesses.items()
                # They work with a key of the person's: without one a CLI would look for a login of its own.
                if connector.secret is not None and driver in HARNESSES and HARNESSES[driver].vendor == connector.vendor
            ]
        shelves.append(_Shelf(BUILTIN_CONNECTOR, declared, builtin_missing or ""))
        self._shelves = {(shelf.driver, shelf.connector.name): shelf for shelf in shelves}
        self._default = default
        self._ids: dict[str, tuple[_Shelf, str]] | None = None

    def __iter__(self) -> Iterator[Choice]:
        return self.of()

    def of(self, driver: str | None = None, connector: str | None = None, model: str | None = None) -> Iterator[Choice]:
        """Those that have what is named, one by one: only what is taken costs anything.

        Of a harness that is not named those of Remuda itself come first.
        """
        shelves = sorted(self._shelves.values(), key=lambda shelf: shelf.driver != NATIVE)
        for shelf in shelves:
            if (driver not in (None, shelf.driver)) or connector not in (None, shelf.connector.name):
                continue
            for known in shelf.models if model is None else (model,) if shelf.has(model) else ():
                yield shelf.choice(known)

    def models(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """The models of each harness and connector, by their names."""
        return {names: shelf.models for names, shelf in self._shelves.items()}

    def get(self, choice_id: str) -> Choice | None:
        if self._ids is None:
            self._ids = {
                choice_id_of(shelf.driver, shelf.connector.name, model): (shelf, model)
                for shelf in self._shelves.values()
                for model in shelf.models
            }
        found = self._ids.get(choice_id)
        return found[0].choice(found[1]) if found is not None else None

    def unlisted(self, driver: str, connector: str, model: str) -> Choice | None:
        """A choice of a model that its connector does not list: whether it is there its server knows."""
        shelf = self._shelves.get((driver, connector))
        return shelf.choice(model) if shelf is not None else None

    def find(self, record: dict[str, Any] | None) -> Choice | None:
        """The choice that a conversation kept, if it is still offered."""
        if record is None:
            return None
        shelf = self._shelves.get((str(record.get("driver")), str(record.get("connector"))))
        model = str(record.get("model"))
        return shelf.choice(model) if shelf is not None and shelf.has(model) else None

    def kept(self, record: dict[str, Any] | None) -> Choice | None:
        """The choice that a conversation goes on with: also a model that its connector does not list, or no longer."""
        if record is None:
            return None
        return self.unlisted(str(record.get("driver")), str(record.get("connector")), str(record.get("model")))

    def search(self, text: str, connector: str | None, most: int) -> tuple[int, list[Choice]]:
        """(how many hold every word of `text`, the first `most` of them, those that begin with it ahead).

        Of many words only the first `MOST_WORDS` count: what a search costs is not the window's to say.
        """
        shelves = [shelf for shelf in self._shelves.values() if connector in (None, shelf.connector.name)]
        words = list(dict.fromkeys(text.casefold().split()))[:MOST_WORDS]
        if not words:
            found = [(shelf, model) for shelf in shelves for model in shelf.models[:most]]
            total = sum(len(shelf.models) for shelf in shelves)
            return total, [shelf.choice(model) for shelf, model in found[:most]]
        hits = [(shelf, model) for shelf in shelves for model in shelf.matches(words)]
        if len(words) == 1:
            hits.sort(key=lambda hit: not hit[1].casefold().startswith(words[0]))
        return len(hits), [shelf.choice(model) for shelf, model in hits[:most]]

    def default(self) -> Choice | None:
        """What a new conversation starts with: what the person chose for that, else the newest connector's first."""
        chosen = self.find(self._default)
        if chosen is not None and chosen.available:
            return chosen
        for shelf in self._shelves.values():
            if shelf.driver == NATIVE and shelf.models and (first := shelf.choice(shelf.models[0])).available:
                return first
        return None
