"""Facts of models that come with the program, each from a source that can be read again.

Owns the facts and which server they hold at. Must not know connectors or any SDK. Invariants: a model without
a known source is not in here; a fact holds as it stands only at its makers' own address, elsewhere the name is
all there is to go by, and prices say nothing.

Prices are those of ordinary requests. Several of these models cost more beyond a size of the request, which no
figure here says.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from runtime_host.models import BUILTIN_MODELS
from runtime_host.models.reasoning import VERIFIED

SOURCE: Final = (
    "src/domain/entities/Model.ts of github.com/aantich/oneringai at 15a986d, which took them from the page named here"
)


_EVERYWHERE: Final = ("context_tokens", "output_tokens", "images", "tools")
_PRICES: Final = ("price_input_usd", "price_output_usd", "price_cached_usd")


class Sourced(NamedTuple):
    """Facts of one model.

    Attributes:
        home: host of its makers' API.
        page: where its makers say so.
        seen: when it was read there last.
    """

    home: str
    page: str
    seen: str
    context_tokens: int
    output_tokens: int | None
    price_input_usd: float
    price_output_usd: float
    price_cached_usd: float
    images: bool = True
    tools: bool = True


_OPENAI: Final = "api.openai.com"
_OPENAI_PAGES: Final = "https://developers.openai.com/api/docs/models/"
_ANTHROPIC: Final = "api.anthropic.com"
_ANTHROPIC_PAGES: Final = "https://platform.claude.com/docs/en/models/"
_GOOGLE: Final = "generativelanguage.googleapis.com"
_GOOGLE_PAGES: Final = "https://ai.google.dev/gemini-api/docs/models/"
_XAI: Final = "api.x.ai"
_XAI_PAGES: Final = "https://docs.x.ai/developers/"


def _openai(
    model: str, seen: str, context_tokens: int, input_usd: float, output_usd: float, cached_usd: float
) -> Sourced:
    return Sourced(_OPENAI, _OPENAI_PAGES + model, seen, context_tokens, 128_000, input_usd, output_usd, cached_usd)


# Input, output and cached input, each for a million tokens. A maker's first is what a new conversation takes: the one
# for everything, not the dearest.
SOURCED: Final[Mapping[str, Sourced]] = {
    "gpt-6.1-sol": _openai("gpt-6.1-sol", "2026-10-07", 1_050_000, 2, 10, 0.1),
    "gpt-6-astra": _openai("gpt-6-astra", "2026-10-07", 1_050_000, 10, 50, 1),
    "gpt-6-sol": _openai("gpt-6-sol", "2026-10-07", 1_050_000, 2, 10, 0.2),
    "gpt-6-luna": _openai("gpt-6-luna", "2026-10-07", 1_050_000, 0.1, 0.5, 0.01),
    "gpt-5.6-sol": _openai("gpt-5.6-sol", "2026-08-30", 1_050_000, 4, 20, 0.4),
    "gpt-5.6-terra": _openai("gpt-5.6-terra", "2026-08-30", 1_050_000, 2, 12, 0.2),
    "gpt-5.6-luna": _openai("gpt-5.6-luna", "2026-08-30", 1_050_000, 0.2, 1.2, 0.02),
    "gpt-5.6-cyber": _openai("gpt-5.6-cyber", "2026-10-07", 400_000, 12.5, 75, 1.25),
    "claude-sonnet-5-5": Sourced(
        _ANTHROPIC, _ANTHROPIC_PAGES + "sonnet-5-5/overview", "2026-10-07", 1_000_000, 128_000, 2, 10, 0.2
    ),
    "claude-opus-5-5": Sourced(
        _ANTHROPIC, _ANTHROPIC_PAGES + "opus-5-5/overview", "2026-10-07", 1_000_000, 128_000, 4, 20, 0.2
    ),
    "gemini-3.8-flash": Sourced(
        _GOOGLE, _GOOGLE_PAGES + "gemini-3.8-flash", "2026-09-04", 1_048_576, 65_536, 0.75, 3.75, 0.075
    ),
    "grok-4.7": Sourced(_XAI, _XAI_PAGES + "grok-4-7", "2026-10-07", 500_000, None, 2, 6, 0.5),
}


class Bundled(NamedTuple):
    """What comes with the program of one model: fields of `ModelFacts`, and whether they hold for certain."""

    said: Mapping[str, Any]
    certain: bool


def bundled(vendor: str, base_url: str, model: str) -> Bundled | None:
    """What comes with the program of `model` at a server of `vendor` at `base_url`; None when nothing does."""
    if vendor == "builtin":
        return _builtin(model)
    # Some servers put a folder before the names of their models.
    name = model.removeprefix("models/")
    sourced, entry = SOURCED.get(name), VERIFIED["native.agent"].get(name)
    said: dict[str, Any] = {} if entry is None else {"efforts": entry.efforts}
    at_home = False
    if sourced is not None:
        at_home = urlsplit(base_url).hostname == sourced.home
        said |= {field: getattr(sourced, field) for field in _EVERYWHERE + (_PRICES if at_home else ())}
    return Bundled(said, at_home) if said else None


def _builtin(model: str) -> Bundled | None:
    info = BUILTIN_MODELS.get(model)
    if info is None:
        return None
    said = {
        "context_tokens": info.context_tokens,
        "output_tokens": info.max_output_tokens,
        "efforts": None if info.reasons else (),
        "images": info.images,
        # The server here has no way for them: the model's template, which would be needed, makes it lose the question.
        "tools": False,
        "display_name": info.label,
        **dict.fromkeys(_PRICES, 0.0),
    }
    return Bundled(said, True)
