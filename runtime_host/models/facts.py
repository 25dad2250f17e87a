"""What is said of a model, by whom, and how the sayings of several are put together.

Owns the shape of such facts and the one order in which sources are believed. Must not know connectors,
drivers or any SDK. Invariants: what nobody said is None, never a guess; what is only concluded from a
model's name, or said by the person, is marked as that.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from runtime_host.models.bundled import bundled

Origin = Literal["provider", "bundled", "declared", "assumed"]

MODEL_CHARS: Final = 200
MOST_TOKENS: Final = 2**40
MOST_USD: Final = 1_000_000.0

_Tokens = Annotated[int, Field(gt=0, le=MOST_TOKENS)]
_Usd = Annotated[float, Field(ge=0, le=MOST_USD, allow_inf_nan=False)]


class ModelFacts(BaseModel):
    """What is said of one model. None is "nobody said", everywhere.

    Attributes:
        model: the name a request takes.
        context_tokens: the whole window.
        output_tokens: the longest reply.
        efforts: the reasoning efforts it takes; empty when it is known to take none.
        images: whether it takes images.
        tools: whether it can call tools.
        price_input_usd, price_output_usd, price_cached_usd: for a million tokens.
        display_name: what its makers call it; empty when they say nothing.
        origin: the least certain source that anything here is from. `provider`, the server said so when it
            was asked; `bundled`, a fact that comes with the program, with its source; `declared`, the person says
            so; `assumed`, it is concluded from the name alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(min_length=1, max_length=MODEL_CHARS)
    context_tokens: _Tokens | None = None
    output_tokens: _Tokens | None = None
    efforts: tuple[str, ...] | None = None
    images: bool | None = None
    tools: bool | None = None
    price_input_usd: _Usd | None = None
    price_output_usd: _Usd | None = None
    price_cached_usd: _Usd | None = None
    display_name: str = Field(default="", max_length=MODEL_CHARS)
    origin: Origin = "assumed"


SAYINGS: Final = tuple(name for name in ModelFacts.model_fields if name not in ("model", "origin"))
"""The fields that say something of a model."""

_LEAST_CERTAIN_LAST: Final[tuple[Origin, ...]] = ("provider", "bundled", "declared", "assumed")


class Served(Protocol):
    """Of a connector what matters here."""

    @property
    def vendor(self) -> str: ...

    @property
    def base_url(self) -> str: ...

    @property
    def facts(self) -> tuple[ModelFacts, ...]: ...


class Declared(Protocol):
    """What a person says of models: `runtime_host.models.declared.DeclaredModels`."""

    @property
    def facts(self) -> Mapping[str, ModelFacts]: ...


def facts_for(connector: Served, model: str, declared: Declared | None = None) -> ModelFacts:
    """What is known of `model` behind `connector`, each field from the first of its sources that says something.

    The server's own answer goes first, then the person's `models.toml`, then what is bundled.
    """
    provider = next((said for said in connector.facts if said.model == model), None)
    said_by_person = declared.facts.get(model) if declared is not None else None
    ours = bundled(connector.vendor, connector.base_url, model)
    with_program = (
        None
        if ours is None
        else ModelFacts.model_validate(
            {**ours.said, "model": model, "origin": "bundled" if ours.certain else "assumed"}
        )
    )
    sources = (provider, said_by_person, with_program)
    return together(model, [said for said in sources if said is not None])


def together(model: str, sources: Sequence[ModelFacts]) -> ModelFacts:
    """One set of facts out of several, the first that says something winning for each field."""
    merged: dict[str, object] = {}
    used: list[Origin] = []
    for said in sources:
        new = {name: value for name in SAYINGS if (value := getattr(said, name)) not in (None, "")}
        fresh = {name: value for name, value in new.items() if name not in merged}
        if fresh or said.origin == "provider":
            used.append(said.origin)
        merged |= fresh
    origin = max(used, key=_LEAST_CERTAIN_LAST.index, default="assumed")
    return ModelFacts.model_validate({**merged, "model": model, "origin": origin})


__all__ = ["Declared", "ModelFacts", "Origin", "Served", "facts_for", "together"]
