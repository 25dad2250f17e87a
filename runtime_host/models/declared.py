"""The person's own `models.toml`: what they say of models that nobody here has verified.

Owns the reading of that file. Must not know where it lies or who uses it. Invariants: a file that is wrong
is refused as a whole and in words, never half used; everything it says is marked as declared.

    [models."my-model"]
    context_tokens = 32768        # all but the name may be left out
    max_output_tokens = 4096
    images = true
    reasons = true
    efforts = ["low", "high"]     # for native.agent
    codex_efforts = ["low"]       # for openai.codex.sdk
    can_switch_reasoning_off = true
"""

import tomllib
from pathlib import Path
from typing import Annotated, ClassVar, Final, NamedTuple

from pydantic import Field, ValidationError

from runtime_host.definitions import Effort
from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.frozen import Flag, Frozen, NonBlank, PositiveInteger, configuration_error
from runtime_host.models import ModelInfo
from runtime_host.models.reasoning import Harness, ReasoningEntry

MAX_FILE_BYTES: Final = 1024 * 1024
SOURCE: Final = "models.toml"


class _Model(Frozen):
    called: ClassVar[str] = SOURCE

    label: NonBlank | None = None
    context_tokens: PositiveInteger | None = None
    max_output_tokens: PositiveInteger | None = None
    images: Flag = False
    reasons: Flag | None = None
    efforts: tuple[Effort, ...] | None = None
    codex_efforts: Annotated[tuple[Effort, ...], Field(min_length=1)] | None = None
    can_switch_reasoning_off: Flag = False


class _File(Frozen):
    called: ClassVar[str] = SOURCE

    models: dict[NonBlank, _Model] = Field(default_factory=dict)


class DeclaredModels(NamedTuple):
    """What a person says of models.

    Attributes:
        infos: facts by model, each marked as declared.
        not_reasoning: models said to have no reasoning.
    """

    infos: dict[str, ModelInfo]
    reasoning: dict[Harness, dict[str, ReasoningEntry]]
    not_reasoning: frozenset[str]


NOTHING_DECLARED: Final = DeclaredModels({}, {"native.agent": {}, "openai.codex.sdk": {}}, frozenset())


def read_models_toml(path: Path) -> DeclaredModels:
    """What the file says; nothing when there is none.

    Raises:
        AgentDriverConfigurationError: the file cannot be read or is wrong; nothing of it holds.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return NOTHING_DECLARED
    except OSError as error:
        raise AgentDriverConfigurationError(f"{SOURCE} cannot be read ({type(error).__name__}).") from None
    if len(content) > MAX_FILE_BYTES:
        raise AgentDriverConfigurationError(f"{SOURCE} is larger than {MAX_FILE_BYTES // 1024} KiB.")
    return parse_models_toml(content)


def parse_models_toml(content: bytes) -> DeclaredModels:
    """What the text of the file says.

    Raises:
        AgentDriverConfigurationError: it is wrong, and where.
    """
    try:
        file = _File.model_validate(tomllib.loads(content.decode("utf-8")))
    except UnicodeDecodeError:
        raise AgentDriverConfigurationError(f"{SOURCE} is no UTF-8 text.") from None
    except tomllib.TOMLDecodeError as error:
        raise AgentDriverConfigurationError(f"{SOURCE} is no TOML: {error}.") from None
    except ValidationError as error:
        raise configuration_error(SOURCE, error) from None
    for model, said in file.models.items():
        wants_reasoning = said.efforts or said.codex_efforts or said.can_switch_reasoning_off
        if said.reasons is False and wants_reasoning:
            raise AgentDriverConfigurationError(
                f"{SOURCE} says of {model} that it does not reason, and how it does.", details={"field": model}
            )
    return DeclaredModels(
        infos={model: _info(model, said) for model, said in file.models.items()},
        reasoning={
            "native.agent": {
                model: ReasoningEntry(
                    said.efforts or (),
                    supports_disabled=said.can_switch_reasoning_off,
                    origin="declared",
                    source=SOURCE,
                )
                for model, said in file.models.items()
                if said.efforts is not None or said.can_switch_reasoning_off
            },
            "openai.codex.sdk": {
                model: ReasoningEntry(said.codex_efforts, origin="declared", source=SOURCE)
                for model, said in file.models.items()
                if said.codex_efforts is not None
            },
        },
        not_reasoning=frozenset(model for model, said in file.models.items() if said.reasons is False),
    )


def _info(model: str, said: _Model) -> ModelInfo:
    reasons = said.reasons if said.reasons is not None else bool(said.efforts or said.codex_efforts)
    return ModelInfo(
        id=model,
        label=said.label or model,
        context_tokens=said.context_tokens,
        max_output_tokens=said.max_output_tokens,
        reasons=reasons,
        images=said.images,
        declared=True,
    )
