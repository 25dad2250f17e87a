"""What is known of models, who said it, and in which order they are believed."""

from typing import Any

import pytest
from pydantic import ValidationError

from runtime_host.connectors import BUILTIN_CONNECTOR, DEFAULT_BASE_URLS, Connector
from runtime_host.connectors.base import Vendor
from runtime_host.definitions import ReasoningConfig
from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.models import SMOLLM2
from runtime_host.models.bundled import SOURCED
from runtime_host.models.declared import parse_models_toml
from runtime_host.models.facts import SAYINGS, ModelFacts, facts_for
from runtime_host.models.reasoning import VERIFIED, ReasoningMap

OPENAI = Connector(name="o", vendor="openai")
GATEWAY = Connector(name="g", vendor="openai-compatible", base_url="https://gateway.example/v1")


def told(connector: Connector, *facts: ModelFacts) -> Connector:
    return connector.model_copy(update={"facts": facts})


def test_what_nobody_said_is_unknown() -> None:
    facts = facts_for(GATEWAY, "unheard-of")
    assert all(getattr(facts, name) in (None, "") for name in SAYINGS)
    assert facts.origin == "assumed"


def test_a_makers_own_server_is_known_with_prices() -> None:
    facts = facts_for(OPENAI, "gpt-6-sol")
    assert (facts.context_tokens, facts.output_tokens, facts.images, facts.tools) == (1_050_000, 128_000, True, True)
    assert (facts.price_input_usd, facts.price_output_usd, facts.price_cached_usd) == (2, 10, 0.2)
    assert facts.efforts == VERIFIED["native.agent"]["gpt-6-sol"].efforts
    assert facts.origin == "bundled"


def test_elsewhere_a_name_is_all_there_is_to_go_by() -> None:
    """Whoever runs the server sets the prices, and may call anything by any name."""
    facts = facts_for(GATEWAY, "gpt-6-sol")
    assert (facts.price_input_usd, facts.price_output_usd, facts.price_cached_usd) == (None, None, None)
    assert (facts.context_tokens, facts.origin) == (1_050_000, "assumed")
    assert facts_for(GATEWAY, "gpt-5.3-codex").origin == "assumed", "no page is known for it, but its efforts are"
    google = Connector(
        name="x", vendor="openai-compatible", base_url="https://generativelanguage.googleapis.com/v1beta/openai"
    )
    assert facts_for(google, "models/gemini-3.8-flash").origin == "bundled"


def test_the_built_in_model() -> None:
    facts = facts_for(BUILTIN_CONNECTOR, SMOLLM2.id)
    assert (facts.context_tokens, facts.images, facts.efforts, facts.price_input_usd) == (2048, False, (), 0)
    assert facts.origin == "bundled"
    assert facts_for(BUILTIN_CONNECTOR, "another").origin == "assumed"


def test_every_bundled_fact_has_a_page() -> None:
    for model, sourced in SOURCED.items():
        assert sourced.page.startswith("https://"), model
        assert sourced.seen > "2026", model
        assert 0 < sourced.price_cached_usd < sourced.price_input_usd < sourced.price_output_usd, model
        assert sourced.context_tokens > (sourced.output_tokens or 0), model
        assert model in VERIFIED["native.agent"], model


DECLARED = parse_models_toml(
    b"""
    [models."gpt-6-sol"]
    context_tokens = 9000
    price_input_usd = 1

    [models.mine]
    label = "Mine"
    context_tokens = 4096
    max_output_tokens = 512
    images = false
    tools = true
    price_input_usd = 0.5
    price_output_usd = 1.5
    price_cached_usd = 0
    efforts = ["low"]

    [models.plain]
    reasons = false
    """
)


def test_the_server_is_believed_first_then_the_person_then_the_program() -> None:
    provider = ModelFacts(model="gpt-6-sol", context_tokens=500_000, display_name="Sol", origin="provider")
    facts = facts_for(told(OPENAI, provider), "gpt-6-sol", DECLARED)
    assert (facts.context_tokens, facts.display_name) == (500_000, "Sol"), "of the server"
    assert facts.price_input_usd == 1, "of the person"
    assert facts.price_output_usd == 10, "of the program"
    assert facts.origin == "declared", "the least certain of those that were needed"


def test_what_the_person_says_is_marked() -> None:
    facts = facts_for(GATEWAY, "mine", DECLARED)
    assert facts == ModelFacts(
        model="mine",
        context_tokens=4096,
        output_tokens=512,
        efforts=("low",),
        images=False,
        tools=True,
        price_input_usd=0.5,
        price_output_usd=1.5,
        price_cached_usd=0,
        display_name="Mine",
        origin="declared",
    )
    assert facts_for(GATEWAY, "plain", DECLARED).efforts == ()


def test_a_name_that_a_server_lists_is_no_assumption() -> None:
    listed = ModelFacts(model="some", origin="provider")
    assert facts_for(told(GATEWAY, listed), "some").origin == "provider"
    listed = ModelFacts(model="gpt-6-sol", origin="provider")
    assert facts_for(told(GATEWAY, listed), "gpt-6-sol").origin == "assumed", "its window is still one"


@pytest.mark.parametrize(
    "wrong",
    [
        {"context_tokens": 0},
        {"context_tokens": -1},
        {"context_tokens": 2**41},
        {"price_input_usd": -0.1},
        {"price_input_usd": float("nan")},
        {"price_input_usd": float("inf")},
        {"model": ""},
        {"model": "x" * 201},
        {"origin": "rumour"},
        {"more": 1},
    ],
)
def test_facts_are_bounded(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ModelFacts.model_validate({"model": "m", **wrong})


@pytest.mark.parametrize(
    "line",
    ['context_tokens = "many"', "context_tokens = 0", 'price_input_usd = "1"', "price_input_usd = -1",
     "price_input_usd = true", "price_input_usd = inf", 'images = "yes"', "tools = 1", 'label = ""', "price = 1"],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_in_words(line: str) -> None:
    with pytest.raises(AgentDriverConfigurationError, match=line.split(" ")[0]):
        parse_models_toml(f"[models.m]\n{line}\n".encode())


# ---------------------------------------------------------------------- efforts a server names itself


def test_a_server_may_name_the_efforts_of_its_models() -> None:
    efforts = ReasoningMap("native.agent")
    high = ReasoningConfig.model_validate({"effort": "high"})
    with pytest.raises(AgentDriverConfigurationError, match="not known"):
        efforts.check("claude-new", high)
    efforts.check("claude-new", high, ("low", "high"))
    assert efforts.efforts("claude-new", ("low", "high", "ultra", "rumour")) == ("low", "high")
    entry = efforts.entry("claude-new", ("low",))
    assert entry is not None
    assert "server" in entry.source
    with pytest.raises(AgentDriverConfigurationError, match="takes none"):
        efforts.check("gpt-6-sol", high, ())


# ---------------------------------------------------------------------------------------- connectors


@pytest.mark.parametrize(
    ("vendor", "api"),
    [("openai", "responses"), ("anthropic", "messages"), ("openai-compatible", "chat-completions")],
)
def test_a_vendor_has_an_address_and_an_api(vendor: Vendor, api: str) -> None:
    base_url = "" if vendor in DEFAULT_BASE_URLS else "https://gateway.example/v1"
    connector = Connector(name="c", vendor=vendor, base_url=base_url)
    assert connector.api == api
    assert connector.base_url == DEFAULT_BASE_URLS.get(vendor, base_url)
    own = Connector(name="c", vendor=vendor, base_url="https://gateway.example/llm")
    assert own.base_url == "https://gateway.example/llm"


def test_an_address_of_anthropic_is_taken_with_and_without_its_version() -> None:
    """The paths of its API begin with /v1; twice it would lead nowhere."""
    for pasted in ("https://api.anthropic.com/v1", "https://api.anthropic.com/v1/", "https://api.anthropic.com"):
        assert Connector(name="a", vendor="anthropic", base_url=pasted).base_url == "https://api.anthropic.com"


def test_a_record_of_before_is_read_and_a_new_one_comes_back_whole() -> None:
    old = {
        "name": "groq",
        "vendor": "openai-compatible",
        "base_url": "https://api.example.com/v1",
        "secret": {"kind": "keyring", "name": "groq", "base_url": "https://api.example.com/v1"},
        "models": ["a", "b"],
    }
    connector = Connector.model_validate(old)
    assert (connector.default_model, connector.facts) == ("", ())
    facts = ModelFacts(model="a", context_tokens=1, efforts=("low",), price_input_usd=0.5, origin="provider")
    new = connector.model_copy(update={"default_model": "b", "facts": (facts,)})
    assert Connector.model_validate(new.model_dump(mode="json")) == new
