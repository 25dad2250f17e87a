"""The person's own `models.toml`: what they say of models that nobody here has verified.

Owns the reading of that file. Must not know where it lies or who uses it. Invariants: a file that is wrong
is refused as a whole and in words, never half used; everything it says is marked as declared.

    [models."my-model"]
    label = "My model"            # all but the name may be left out
    context_tokens = 32768
    max_output_tokens = 4096
    images = true                 # whether it takes images
    tools = true                  # whether it can call tools
    price_input_usd = 0.5         # for a million tokens
    price_output_usd = 1.5
    price_cached_usd = 0.05
    reasons = true
    efforts = ["low", "high"]     # for native.agent
    codex_efforts = ["low"]       # for openai.codex.sdk
    claude_efforts = ["low"]      # for anthropic.agent.sdk
    openai_agents_efforts = ["low"]   # for openai.agents.api
    claude_managed_efforts = ["low"]  # for anthropic.managed.api
    can_switch_reasoning_off = true
"""

import errno
import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar, Final, NamedTuple, get_args

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError

from runtime_host.definitions import Effort
from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.frozen import Flag, Frozen, NonBlank, configuration_error
from runtime_host.models.facts import MODEL_CHARS, MOST_TOKENS, MOST_USD, ModelFacts
from runtime_host.models.reasoning import Harness, ReasoningEntry

MAX_FILE_BYTES: Final = 1024 * 1024
MOST_DOTS: Final = 64
SOURCE: Final = "models.toml"


def _number(value: object) -> object:
    if isinstance(value, bool | str):
        raise ValueError("this is no number")
    return value


_Name = Annotated[NonBlank, StringConstraints(max_length=MODEL_CHARS)]
_Tokens = Annotated[int, Field(strict=True, gt=0, le=MOST_TOKENS)]
# Strict would refuse 1 for 1.0; what is no number is refused all the same.
_Usd = Annotated[float, Field(ge=0, le=MOST_USD), BeforeValidator(_number)]


class _Model(Frozen):
    called: ClassVar[str] = SOURCE

    label: _Name | None = None
    context_tokens: _Tokens | None = None
    max_output_tokens: _Tokens | None = None
    images: Flag | None = None
    tools: Flag | None = None
    price_input_usd: _Usd | None = None
    price_output_usd: _Usd | None = None
    price_cached_usd: _Usd | None = None
    reasons: Flag | None = None
    efforts: tuple[Effort, ...] | None = None
    codex_efforts: Annotated[tuple[Effort, ...], Field(min_length=1)] | None = None
    claude_efforts: Annotated[tuple[Effort, ...], Field(min_length=1)] | None = None
    openai_agents_efforts: Annotated[tuple[Effort, ...], Field(min_length=1)] | None = None
    claude_managed_efforts: Annotated[tuple[Effort, ...], Field(min_length=1)] | None = None
    can_switch_reasoning_off: Flag = False


class _File(Frozen):
    called: ClassVar[str] = SOURCE

    models: dict[_Name, _Model] = Field(default_factory=dict)


class DeclaredModels(NamedTuple):
    """What a person says of models.

    Attributes:
        facts: by model, each marked as declared.
        not_reasoning: models said to have no reasoning.
    """

    facts: dict[str, ModelFacts]
    reasoning: dict[Harness, dict[str, ReasoningEntry]]
    not_reasoning: frozenset[str]


NOTHING_DECLARED: Final = DeclaredModels({}, {harness: {} for harness in get_args(Harness)}, frozenset())


def read_models_toml(path: Path) -> DeclaredModels:
    """What the file says; nothing when there is none.

    Raises:
        AgentDriverConfigurationError: the file cannot be read or is wrong; nothing of it holds.
    """
    try:
        content = file_bytes(path)
    except FileNotFoundError:
        return NOTHING_DECLARED
    except OSError as error:
        raise AgentDriverConfigurationError(f"{SOURCE} cannot be read ({type(error).__name__}).") from None
    if len(content) > MAX_FILE_BYTES:
        raise AgentDriverConfigurationError(f"{SOURCE} is larger than {MAX_FILE_BYTES // 1024} KiB.")
    return parse_models_toml(content)


def file_bytes(path: Path) -> bytes:
    """What the file holds, as far as it may hold. What is no file (a pipe) is not waited for.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "This is no file", str(path))
        return file.read(MAX_FILE_BYTES + 1)


def parse_models_toml(content: bytes) -> DeclaredModels:
    """What the text of the file says.

    Raises:
        AgentDriverConfigurationError: it is wrong, and where.
    """
    if any(line.count(b".") > MOST_DOTS for line in content.splitlines() if not line.lstrip().startswith(b"#")):
        # The reader keeps every beginning of a name in parts: a long one would take more memory than there is.
        raise AgentDriverConfigurationError(f"{SOURCE} has a line with more than {MOST_DOTS} dots.")
    try:
        file = _File.model_validate(tomllib.loads(content.decode("utf-8")))
    except UnicodeDecodeError:
        raise AgentDriverConfigurationError(f"{SOURCE} is no UTF-8 text.") from None
    except RecursionError:
        raise AgentDriverConfigurationError(f"{SOURCE} is nested too deep.") from None
    # Also for a number with more digits than are read.
    except ValueError as error:
        if isinstance(error, ValidationError):
            raise configuration_error(SOURCE, error) from None
        raise AgentDriverConfigurationError(f"{SOURCE} is no TOML: {error}.") from None
    for model, said in file.models.items():
        elsewhere = (said.codex_efforts, said.claude_efforts, said.openai_agents_efforts, said.claude_managed_efforts)
        if said.reasons is False and any((said.efforts, said.can_switch_reasoning_off, *elsewhere)):
            raise AgentDriverConfigurationError(
                f"{SOURCE} says of {model} that it does not reason, and how it does.", details={"field": model}
            )
    return DeclaredModels(
        facts={model: _facts(model, said) for model, said in file.models.items()},
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
            "openai.codex.sdk": _efforts(file, lambda said: said.codex_efforts),
            "anthropic.agent.sdk": _efforts(file, lambda said: said.claude_efforts),
            "openai.agents.api": _efforts(file, lambda said: said.openai_agents_efforts),
            "anthropic.managed.api": _efforts(file, lambda said: said.claude_managed_efforts),
        },
        not_reasoning=frozenset(model for model, said in file.models.items() if said.reasons is False),
    )


def _efforts(file: _File, of: Callable[[_Model], tuple[Effort, ...] | None]) -> dict[str, ReasoningEntry]:
    """What is said of the efforts of models in one harness."""
    said = ((model, of(about)) for model, about in file.models.items())
    return {
        model: ReasoningEntry(efforts, origin="declared", source=SOURCE)
        for model, efforts in said
        if efforts is not None
    }


def _facts(model: str, said: _Model) -> ModelFacts:
    return ModelFacts(
        model=model,
        context_tokens=said.context_tokens,
        output_tokens=said.max_output_tokens,
        efforts=() if said.reasons is False else said.efforts,
        images=said.images,
        tools=said.tools,
        price_input_usd=said.price_input_usd,
        price_output_usd=said.price_output_usd,
        price_cached_usd=said.price_cached_usd,
        display_name=said.label or "",
        origin="declared",
    )
