"""Which reasoning settings pass: the verified map, what programs declare, and the person's own file."""

from pathlib import Path
from typing import Any, get_args

import pytest

from runtime_host.definitions import Effort, ReasoningConfig
from runtime_host.drivers.native import NativeDriver
from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.models import SMOLLM2
from runtime_host.models.declared import NOTHING_DECLARED, parse_models_toml, read_models_toml
from runtime_host.models.reasoning import VERIFIED, Harness, ReasoningMap
from tests.loopback.native import DEFINITION, driver_for, options_for, registry_for

HOME = "https://models.example/v1"
HARNESSES: tuple[Harness, ...] = get_args(Harness)
LOW, MAX, NONE, ULTRA = (
    "low medium high",
    "low medium high xhigh max",
    "none low medium high xhigh max",
    "low medium high xhigh max ultra",
)
# By model: the efforts of native.agent, of Codex, of Claude, and of both at their providers; an empty text is a model
# that is not in the map.
TABLE = {
    "gpt-6-astra": (MAX, ULTRA, "", MAX, ""),
    "gpt-6.1-sol": (MAX, ULTRA, "", "", ""),
    "gpt-6-sol": (NONE, ULTRA, "", "", ""),
    "gpt-6-luna": (NONE, MAX, "", "", ""),
    "gpt-5.6-sol": (NONE, ULTRA, "", "", ""),
    "gpt-5.6-terra": (NONE, ULTRA, "", "", ""),
    "gpt-5.6-luna": (NONE, MAX, "", "", ""),
    "gpt-5.6-cyber": (NONE, "", "", "", ""),
    "claude-opus-5-5": (MAX, "", MAX, "", MAX),
    "claude-sonnet-5-5": (MAX, "", MAX, "", MAX),
    "gemini-3.8-flash": (LOW, "", "", "", ""),
    "grok-4.7": ("low medium high xhigh", "", "", "", ""),
    "gpt-5.3-codex": ("low medium high xhigh", "low medium high xhigh", "", "", ""),
}


def effort(name: str) -> ReasoningConfig:
    return ReasoningConfig.model_validate({"effort": name})


def refuses(some: ReasoningMap, model: str, reasoning: ReasoningConfig) -> str:
    with pytest.raises(AgentDriverConfigurationError) as refused:
        some.check(model, reasoning)
    return refused.value.message


def test_every_pair_of_model_and_effort_passes_or_not_as_it_was_verified() -> None:
    maps = [ReasoningMap(harness) for harness in HARNESSES]
    for model, columns in TABLE.items():
        for some, column in zip(maps, columns, strict=True):
            assert some.efforts(model) == tuple(column.split()), (model, some.harness)
            for name in get_args(Effort):
                if name in column.split():
                    some.check(model, effort(name))
                else:
                    assert model in refuses(some, model, effort(name))
    assert [set(VERIFIED[harness]) for harness in HARNESSES] == [
        {model for model, columns in TABLE.items() if columns[at]} for at in range(len(HARNESSES))
    ]


@pytest.mark.parametrize("harness", HARNESSES)
def test_neither_budget_nor_switching_off_passes_for_any_bundled_model(harness: Harness) -> None:
    some = ReasoningMap(harness)
    for model in (*TABLE, "unheard-of"):
        assert "not verified" in refuses(some, model, ReasoningConfig(enabled=False))
        assert "budget" in refuses(some, model, ReasoningConfig(budget_tokens=100))
        assert "neither" in refuses(some, model, ReasoningConfig(enabled=False, effort="low"))


@pytest.mark.parametrize("harness", HARNESSES)
def test_what_nobody_knows_is_refused_and_a_plain_wish_to_reason_is_not(harness: Harness) -> None:
    some = ReasoningMap(harness)
    assert "not known" in refuses(some, "unheard-of", effort("low"))
    some.check("unheard-of", ReasoningConfig())
    some.check("unheard-of", None)
    assert "does not reason" in refuses(some, SMOLLM2.id, ReasoningConfig())


@pytest.mark.parametrize("harness", HARNESSES)
def test_a_driver_can_be_given_efforts_that_add_and_replace(harness: Harness) -> None:
    some = ReasoningMap(harness, efforts={"my-model": ["low"], "gpt-6-sol": ["high"]})
    some.check("my-model", effort("low"))
    assert some.efforts("gpt-6-sol") == ("high",)
    assert "It takes high" in refuses(some, "gpt-6-sol", effort("low"))
    entry = some.entry("my-model")
    assert entry is not None
    assert entry.origin == "declared"
    with pytest.raises(AgentDriverConfigurationError, match="my-model"):
        ReasoningMap(harness, efforts={"my-model": ["enormous"]})


def test_an_empty_list_of_efforts_is_refused_by_codex_only() -> None:
    native = ReasoningMap("native.agent", efforts={"gpt-6-sol": []})
    assert "takes none" in refuses(native, "gpt-6-sol", effort("low"))
    with pytest.raises(AgentDriverConfigurationError, match="gpt-6-sol"):
        ReasoningMap("openai.codex.sdk", efforts={"gpt-6-sol": []})


def test_no_harness_takes_an_effort_it_cannot_send() -> None:
    for harness, never in zip(HARNESSES, ("ultra", "none", "minimal", "none", "ultra"), strict=True):
        with pytest.raises(AgentDriverConfigurationError, match=harness):
            ReasoningMap(harness, efforts={"my-model": [never]})


# ------------------------------------------------------------------------------- the person's file


FILE = b"""
[models."my-model"]
context_tokens = 32768
images = true
efforts = ["low", "high"]
can_switch_reasoning_off = true

[models."plain.model"]
reasons = false

[models."gpt-6-sol"]
codex_efforts = ["max"]
"""


def test_what_the_person_declares_is_taken_and_marked() -> None:
    said = parse_models_toml(FILE)
    facts = said.facts["my-model"]
    assert (facts.context_tokens, facts.images, facts.efforts) == (32768, True, ("low", "high"))
    assert facts.origin == "declared"
    plain = said.facts["plain.model"]
    assert (plain.context_tokens, plain.images, plain.efforts) == (None, None, ()), "what was not said stays unknown"
    native = ReasoningMap("native.agent", declared=said.reasoning["native.agent"], not_reasoning=said.not_reasoning)
    native.check("my-model", effort("high"))
    native.check("my-model", ReasoningConfig(enabled=False))
    assert "does not reason" in refuses(native, "plain.model", ReasoningConfig())
    assert native.efforts("gpt-6-sol") == tuple(NONE.split()), "said of another harness"
    codex = ReasoningMap("openai.codex.sdk", declared=said.reasoning["openai.codex.sdk"])
    assert codex.efforts("gpt-6-sol") == ("max",)


async def test_an_inspection_tells_declared_from_verified() -> None:
    said = parse_models_toml(FILE)
    driver = NativeDriver(registry_for(HOME), declared=said)
    found = {}
    for model in ("my-model", "gpt-6-sol", "unheard-of"):
        inspected = await driver.inspect(DEFINITION, options_for(model=model))
        found[model] = inspected.capabilities["run.reasoning_override"].constraints
    await driver.aclose()
    assert (found["my-model"]["origin"], found["my-model"]["source"]) == ("declared", "models.toml")
    assert found["gpt-6-sol"]["origin"] == "verified"
    assert found["unheard-of"] == {}
    assert NOTHING_DECLARED.facts == {}
    async with driver_for(registry_for(HOME)) as plain:
        with pytest.raises(AgentDriverConfigurationError):
            await plain.inspect(DEFINITION, options_for(model="my-model", reasoning=effort("high")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models = 3", "models"),
        ('[models."a"]\nefforts = ["huge"]', r"models\.a\.efforts"),
        ('[models."a"]\nefforts = "low"', r"models\.a\.efforts"),
        ('[models."a"]\ncodex_efforts = []', "codex_efforts"),
        ('[models."a"]\ncontext_tokens = 0', "context_tokens"),
        ('[models."a"]\nimages = "yes"', "images"),
        ('[models."a"]\nprice = 3', "price"),
        ('[models." "]\n', "models"),
        ('[models."a"]\nreasons = false\nefforts = ["low"]', "does not reason"),
        ("[models", "no TOML"),
        ("x = " + "[" * 100_000, "too deep"),
        (".".join("a" * 5_000) + " = 1", "dots"),
        ('[models."a"]\ncontext_tokens = ' + "9" * 5_000, "no TOML"),
        ("\xff", "UTF-8"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(AgentDriverConfigurationError, match=words):
        parse_models_toml(text.encode("latin-1"))


def test_no_file_declares_nothing_and_one_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    assert read_models_toml(tmp_path / "models.toml") == NOTHING_DECLARED
    wrong: dict[str, Any] = {"dir": tmp_path / "dir", "large": tmp_path / "large"}
    wrong["dir"].mkdir()
    wrong["large"].write_bytes(b"#" * (1024 * 1024 + 1))
    for path in wrong.values():
        with pytest.raises(AgentDriverConfigurationError, match=r"models\.toml"):
            read_models_toml(path)
