"""Which reasoning settings a model takes in which harness: verified facts, and what people declare.

Owns the facts and the one check against them. Must not know connectors, drivers or any SDK. Invariants: what
is neither verified nor declared is refused before anything is sent; what was declared is never told as
verified.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, NoReturn, get_args

from runtime_host.definitions import Effort, ReasoningConfig
from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.models import BUILTIN_MODELS

Harness = Literal[
    "native.agent", "openai.codex.sdk", "anthropic.agent.sdk", "openai.agents.api", "anthropic.managed.api"
]
Origin = Literal["verified", "declared"]

EFFORTS: Final[frozenset[str]] = frozenset(get_args(Effort))

_SOURCE: Final = "driver maps of github.com/aantich/oneringai at 15a986d"


class ReasoningEntry(NamedTuple):
    """What one model takes.

    Attributes:
        origin: `verified`, somebody tried it; `declared`, the person or the host program says so.
        source: where the fact is from, in words.
    """

    efforts: tuple[str, ...]
    supports_disabled: bool = False
    supports_budget: bool = False
    origin: Origin = "verified"
    source: str = _SOURCE

    def constraints(self) -> dict[str, object]:
        """What an inspection tells of it."""
        return {
            "requires_reasoning_model": True,
            "efforts": list(self.efforts),
            "supports_disabled": self.supports_disabled,
            "supports_budget_tokens": self.supports_budget,
            "origin": self.origin,
            "source": self.source,
        }


_LOW_TO_HIGH: Final = ("low", "medium", "high")
_LOW_TO_XHIGH: Final = (*_LOW_TO_HIGH, "xhigh")
_LOW_TO_MAX: Final = (*_LOW_TO_XHIGH, "max")
_NONE_TO_MAX: Final = ("none", *_LOW_TO_MAX)
_LOW_TO_ULTRA: Final = (*_LOW_TO_MAX, "ultra")

_EFFORTS_OF: Final[dict[Harness, dict[str, tuple[str, ...]]]] = {
    "native.agent": {
        "gpt-6-astra": _LOW_TO_MAX,
        "gpt-6.1-sol": _LOW_TO_MAX,
        "gpt-6-sol": _NONE_TO_MAX,
        "gpt-6-luna": _NONE_TO_MAX,
        "gpt-5.6-sol": _NONE_TO_MAX,
        "gpt-5.6-terra": _NONE_TO_MAX,
        "gpt-5.6-luna": _NONE_TO_MAX,
        "gpt-5.6-cyber": _NONE_TO_MAX,
        "claude-opus-5-5": _LOW_TO_MAX,
        "claude-sonnet-5-5": _LOW_TO_MAX,
        "gemini-3.8-flash": _LOW_TO_HIGH,
        "grok-4.7": _LOW_TO_XHIGH,
        "gpt-5.3-codex": _LOW_TO_XHIGH,
    },
    "openai.codex.sdk": {
        "gpt-6-astra": _LOW_TO_ULTRA,
        "gpt-6.1-sol": _LOW_TO_ULTRA,
        "gpt-6-sol": _LOW_TO_ULTRA,
        "gpt-6-luna": _LOW_TO_MAX,
        "gpt-5.6-sol": _LOW_TO_ULTRA,
        "gpt-5.6-terra": _LOW_TO_ULTRA,
        "gpt-5.6-luna": _LOW_TO_MAX,
        "gpt-5.3-codex": _LOW_TO_XHIGH,
    },
    "anthropic.agent.sdk": {
        "claude-opus-5-5": _LOW_TO_MAX,
        "claude-sonnet-5-5": _LOW_TO_MAX,
    },
    "openai.agents.api": {
        "gpt-6-astra": _LOW_TO_MAX,
    },
    "anthropic.managed.api": {
        "claude-opus-5-5": _LOW_TO_MAX,
        "claude-sonnet-5-5": _LOW_TO_MAX,
    },
}
_SOURCE_OF: Final[dict[Harness, str]] = {
    "anthropic.agent.sdk": f"the levels of these models ({_SOURCE}), seen to leave the CLI 2.1.332 as they are"
}

VERIFIED: Final[Mapping[Harness, Mapping[str, ReasoningEntry]]] = {
    harness: {
        model: ReasoningEntry(efforts, source=_SOURCE_OF.get(harness, _SOURCE)) for model, efforts in models.items()
    }
    for harness, models in _EFFORTS_OF.items()
}
"""By harness and model: what was seen to work. The same model may take other efforts in another harness."""

_NEVER: Final[dict[Harness, frozenset[str]]] = {
    "native.agent": frozenset({"ultra"}),
    "openai.codex.sdk": frozenset({"none"}),
    "anthropic.agent.sdk": frozenset({"none", "minimal", "ultra"}),
    "openai.agents.api": frozenset({"none", "minimal", "ultra"}),
    "anthropic.managed.api": frozenset({"none", "minimal", "ultra"}),
}
_BY_EFFORT_ALONE: Final = frozenset(
    {"openai.codex.sdk", "anthropic.agent.sdk", "openai.agents.api", "anthropic.managed.api"}
)
"""Harnesses that have no word for reasoning that is switched off."""


class ReasoningMap:
    """The settings that models take in one harness.

    Args:
        harness: whose map it is.
        efforts: by model, efforts the host program vouches for; they replace what is bundled.
        declared: entries of the person's own file; they replace what is bundled, too.
        not_reasoning: models known to have no reasoning, besides the bundled ones.

    Raises:
        AgentDriverConfigurationError: an effort that nobody knows or that the harness never takes; for Codex
            also an entry without efforts.
    """

    def __init__(
        self,
        harness: Harness,
        *,
        efforts: Mapping[str, Sequence[str]] | None = None,
        declared: Mapping[str, ReasoningEntry] | None = None,
        not_reasoning: Iterable[str] = (),
    ) -> None:
        self.harness: Final = harness
        self._entries: dict[str, ReasoningEntry] = dict(VERIFIED[harness])
        self._not_reasoning = {model for model, info in BUILTIN_MODELS.items() if not info.reasons}
        added = dict(declared or {})
        for model, some in (efforts or {}).items():
            added[model] = ReasoningEntry(tuple(some), origin="declared", source="the program that made this driver")
        for model, entry in added.items():
            self._check_entry(model, entry)
            self._entries[model] = entry
            self._not_reasoning.discard(model)
        self._not_reasoning.update(not_reasoning)

    def entry(self, model: str, told: Sequence[str] | None = None) -> ReasoningEntry | None:
        """What is known of `model`; None when nothing is.

        Args:
            model: the model.
            told: the efforts its server says it takes; None when it does not say. Its word goes first.
        """
        if model in self._not_reasoning:
            return None
        known = self._entries.get(model)
        if told is None:
            return known
        never = _NEVER[self.harness]
        return ReasoningEntry(
            tuple(effort for effort in told if effort in EFFORTS and effort not in never),
            supports_disabled=known is not None and known.supports_disabled,
            source="the server's own list of its models",
        )

    def efforts(self, model: str, told: Sequence[str] | None = None) -> tuple[str, ...]:
        """Efforts to offer for `model`; none when it is not known."""
        entry = self.entry(model, told)
        return entry.efforts if entry is not None else ()

    def is_known_not_to_reason(self, model: str) -> bool:
        return model in self._not_reasoning

    def check(self, model: str, reasoning: ReasoningConfig | None, told: Sequence[str] | None = None) -> None:
        """Refuse what is not known to work for `model`.

        Args:
            model: the model.
            reasoning: what is asked of it.
            told: as in `entry`.

        Raises:
            AgentDriverConfigurationError: with a sentence that names model and setting.
        """
        if reasoning is None:
            return
        if model in self._not_reasoning:
            _refuse(f"{model} does not reason, so it takes no reasoning setting. Remove it.")
        entry = self.entry(model, told)
        if not reasoning.enabled:
            if reasoning.effort is not None or reasoning.budget_tokens is not None:
                _refuse("Reasoning that is switched off takes neither effort nor budget.")
            if entry is None or not entry.supports_disabled:
                _refuse(
                    f"Whether {model} can answer without reasoning is not verified. Leave the reasoning setting out."
                )
            return
        if reasoning.budget_tokens is not None and (entry is None or not entry.supports_budget):
            _refuse(f"Whether {model} takes a reasoning budget is not verified. Choose an effort instead.")
        if reasoning.effort is None:
            return
        if entry is None:
            _refuse(f"Which reasoning efforts {model} takes is not known. Leave the effort out, or declare them.")
        if reasoning.effort not in entry.efforts:
            takes = f"It takes {', '.join(entry.efforts)}." if entry.efforts else "It takes none."
            _refuse(f"{model} does not take the reasoning effort {reasoning.effort}. {takes}")

    def _check_entry(self, model: str, entry: ReasoningEntry) -> None:
        never = _NEVER[self.harness]
        wrong = [effort for effort in entry.efforts if effort not in EFFORTS or effort in never]
        empty_refused = self.harness == "openai.codex.sdk" and not entry.efforts
        # No harness has a way to send them.
        unsendable = entry.supports_budget or (entry.supports_disabled and self.harness in _BY_EFFORT_ALONE)
        if wrong or empty_refused or unsendable:
            _refuse(
                f"The reasoning settings declared for {model} must be efforts that {self.harness} can send: some of "
                f"{', '.join(sorted(EFFORTS - never))}."
            )


def _refuse(sentence: str) -> NoReturn:
    raise AgentDriverConfigurationError(sentence, details={"field": "reasoning"})
