"""The picker's choices: named by ids that tell nothing, described in words that are true."""

from collections.abc import Sequence
from typing import Any

import pytest

from desktop import choices
from desktop.choices import CLAUDE, CODEX, NATIVE, ChoiceBook, price_words
from runtime_host.connectors.base import Connector, SecretRef
from runtime_host.models.declared import parse_models_toml
from runtime_host.models.facts import ModelFacts

LOCAL = Connector(name="Lab", vendor="openai-compatible", base_url="http://127.0.0.1:8080/v1", models=("small", "big"))
REMOTE = Connector(
    name="Hosted",
    vendor="openai-compatible",
    base_url="https://models.example.com/v1",
    secret=SecretRef(kind="env", name="HOSTED_KEY"),
    models=("small",),
)


def test_the_same_choice_has_the_same_id_and_different_ones_differ() -> None:
    first, second = ChoiceBook([LOCAL, REMOTE], None), ChoiceBook([REMOTE, LOCAL], None)
    ids = [choice.choice_id for choice in first]
    assert len(set(ids)) == len(ids) == 4
    assert set(ids) == {choice.choice_id for choice in second}
    for name in ids:
        found = first.get(name)
        assert found is not None
        assert found.model not in name
        assert found.connector.lower() not in name


def test_an_id_that_was_not_offered_is_nothing() -> None:
    assert ChoiceBook([LOCAL], None).get("h" + "0" * 24) is None


@pytest.mark.parametrize(
    ("connector", "runs", "bills"),
    [(LOCAL, "on this computer", "nobody"), (REMOTE, "at the provider", "your key")],
)
def test_badges_say_where_it_runs_and_what_it_bills(connector: Connector, runs: str, bills: str) -> None:
    choice = next(iter(ChoiceBook([connector], None)))
    assert (choice.runs, choice.touches, choice.bills) == (runs, "nothing, or one folder that you choose", bills)
    assert "touches nothing" in choice.sentence()


def test_a_model_that_is_not_installed_says_so_and_is_no_default() -> None:
    book = ChoiceBook([], "The package is missing.")
    only = next(iter(book))
    assert not only.available
    assert only.note == "The package is missing."
    assert book.default() is None


def test_the_tiny_model_says_that_it_is_tiny() -> None:
    only = next(iter(ChoiceBook([], None)))
    assert only.driver == NATIVE
    assert "tiny" in only.note
    assert "often wrong" in only.note


def test_a_conversation_finds_its_choice_again_until_the_connector_is_gone() -> None:
    choice = next(iter(ChoiceBook([LOCAL], None)))
    record = choice.record("high")
    assert ChoiceBook([LOCAL], None).find(record) == choice
    assert ChoiceBook([REMOTE], None).find(record) is None
    assert ChoiceBook([LOCAL], None).find(None) is None


def said(model: str, **more: Any) -> ModelFacts:
    return ModelFacts.model_validate({"model": model, "origin": "provider", **more})


def hosted(count: int, **more: Any) -> Connector:
    return REMOTE.model_copy(update={"models": tuple(f"Vendor/Model-{n}" for n in range(count)), **more})


def test_every_word_is_found_whatever_its_case_in_model_name_or_connector() -> None:
    book = ChoiceBook([hosted(3, facts=(said("Vendor/Model-1", display_name="Große Straße"),)), LOCAL], None)
    for text, models in (
        ("MODEL-2", ["Vendor/Model-2"]),
        ("strasse große", ["Vendor/Model-1"]),
        ("hosted vendor", ["Vendor/Model-0", "Vendor/Model-1", "Vendor/Model-2"]),
        ("lab", ["small", "big"]),
        ("model lab", []),
    ):
        total, found = book.search(text, None, 100)
        assert (total, [choice.model for choice in found]) == (len(models), models)


def test_of_very_many_words_only_the_first_few_count() -> None:
    book = ChoiceBook([hosted(3)], None)
    assert book.search("model-1 " * 200, None, 100)[0] == 1
    few = " ".join(["vendor", "model", "hosted", "openai", "o", "e", "d", "l"])
    assert book.search(f"{few} nowhere", None, 100)[0] == book.search(few, None, 100)[0] == 3


def test_what_begins_with_the_word_comes_first_and_the_total_is_told() -> None:
    first = REMOTE.model_copy(update={"models": ("a-model", "x-a-model", "a-second")})
    total, found = ChoiceBook([first], None).search("a-", None, 2)
    assert (total, [choice.model for choice in found]) == (3, ["a-model", "a-second"])


def test_of_many_thousands_only_those_that_are_shown_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = choices.native_choice

    def noted(connector: Connector, model: str, facts: ModelFacts | None = None) -> choices.Choice:
        made.append(model)
        return make(connector, model, facts)

    monkeypatch.setattr(choices, "native_choice", noted)
    book = ChoiceBook([hosted(50_000)], None)
    total, found = book.search("", None, 100)
    assert (total, len(found), len(made)) == (50_001, 100, 100)
    assert book.search("model-49999", None, 100)[0] == 1
    assert book.default() is not None
    assert book.find(found[0].record()) == found[0]
    assert len(made) == 101


def test_the_default_of_a_connector_is_offered_first_and_the_profiles_is_what_is_begun_with() -> None:
    preferring = hosted(3, default_model="Vendor/Model-2")
    book = ChoiceBook([preferring, LOCAL], None)
    first = book.default()
    assert first is not None
    assert first.model == "Vendor/Model-2"
    chosen = next(book.of(connector="Lab", model="big"))
    book = ChoiceBook([preferring, LOCAL], None, default=chosen.record())
    assert book.default() == chosen
    assert ChoiceBook([preferring], None, default=chosen.record()).default() == first, "what is gone is no default"


def test_what_is_declared_fills_in_what_the_provider_does_not_say_and_is_marked() -> None:
    declared = parse_models_toml(b'[models."Vendor/Model-0"]\ncontext_tokens = 5\nimages = false\n')
    connector = hosted(
        2, facts=(said("Vendor/Model-0", context_tokens=1_000_000, price_input_usd=0, price_output_usd=0),)
    )
    book = ChoiceBook([connector], None, declared=declared)
    choice = next(book.of(model="Vendor/Model-0"))
    assert (choice.context, choice.price, choice.images, choice.badge) == (
        "1,000,000 tokens",
        "free",
        False,
        "declared",
    )
    silent = next(book.of(model="Vendor/Model-1"))
    assert (silent.context, silent.price, silent.images, silent.badge) == ("", "", True, "")


@pytest.mark.parametrize(
    ("usd", "words"),
    [(3.0, "$3"), (0.15, "$0.15"), (0.075, "$0.075"), (0.0375, "$0.0375"), (1_250.5, "$1,250.50"), (1e-5, "$0.000010")],
)
def test_a_price_has_its_unit_and_as_many_digits_as_it_needs(usd: float, words: str) -> None:
    assert price_words(said("m", price_output_usd=usd)) == f"{words} out per million tokens"


# ------------------------------------------------------------------------------------ harnesses


OPENAI = Connector(
    name="OpenAI",
    vendor="openai",
    secret=SecretRef(kind="env", name="K"),
    models=("gpt-a", "gpt-b"),
    facts=(ModelFacts(model="gpt-a", efforts=("none", "low"), origin="provider"),),
)
ANTHROPIC = Connector(
    name="Anthropic", vendor="anthropic", secret=SecretRef(kind="env", name="K"), models=("claude-a",)
)


def efforts_as_told(model: str, told: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(effort for effort in told or ("high",) if effort != "none")


def book_with(*drivers: str, **more: Any) -> ChoiceBook:
    harnesses = dict.fromkeys(drivers, efforts_as_told)
    return ChoiceBook([REMOTE, OPENAI, ANTHROPIC], None, harnesses=harnesses, **more)


def test_each_harness_has_the_connectors_whose_api_it_speaks() -> None:
    book = book_with(CODEX, CLAUDE)
    assert {(c.driver, c.connector) for c in book if c.driver != NATIVE} == {(CODEX, "OpenAI"), (CLAUDE, "Anthropic")}
    assert [c.connector for c in book_with().of(CODEX)] == []
    assert len({c.choice_id for c in book}) == len(list(book)) == 8
    native, codex = next(book.of(NATIVE, "OpenAI", "gpt-a")), next(book.of(CODEX, "OpenAI", "gpt-a"))
    assert (native.efforts, codex.efforts) == (("none", "low"), ("low",)), "a model takes other efforts elsewhere"
    for choice in (native, codex):
        assert book.get(choice.choice_id) == choice
        assert book.find(choice.record()) == choice
    assert next(book.of(connector="OpenAI")).driver == NATIVE, "who names no harness gets Remuda's own"
    assert book_with().find(codex.record()) is None
    assert "Codex with gpt-a at OpenAI" in choices.missing(codex.record())
    assert "Harnesses" in choices.missing(codex.record())


def test_a_harness_is_found_by_its_name_and_is_a_default_only_when_it_was_chosen() -> None:
    book = book_with(CODEX, CLAUDE)
    total, found = book.search("codex", None, 10)
    assert (total, {c.driver for c in found}) == (2, {CODEX})
    assert {c.driver for c in book.search("claude", None, 10)[1]} == {NATIVE, CLAUDE}
    assert {c.driver for c in book.search("remuda", None, 10)[1]} == {NATIVE}
    assert {c.driver for c in book.search("", "OpenAI", 10)[1]} == {NATIVE, CODEX}
    first = book.default()
    assert first is not None
    assert first.driver == NATIVE
    chosen = book_with(CODEX, default=next(book.of(CODEX)).record()).default()
    assert chosen is not None
    assert chosen.driver == CODEX


def test_what_a_harness_touches_is_never_said_to_be_nothing_where_it_is_more() -> None:
    book = book_with(CODEX, CLAUDE)
    codex, claude = next(book.of(CODEX)), next(book.of(CLAUDE))
    assert (codex.folder, claude.folder, next(book.of(NATIVE)).folder) == ("required", "optional", "optional")
    tiny = next(book.of(NATIVE, "builtin"))
    assert (tiny.folder, tiny.touches) == ("never", "nothing"), "it calls no tools"
    assert "one folder" in codex.sentence()
    assert "one folder" in claude.sentence()
    assert codex.sentence("low", "reads only").endswith("low · reads only")
    assert (codex.images, claude.images) == (True, False)
    assert (codex.runs, codex.bills) == ("here, its model at the provider", "your key")


def test_a_model_that_is_not_listed_can_be_named_where_the_harness_is_here() -> None:
    book = book_with(CODEX)
    named = book.unlisted(CODEX, "OpenAI", "gpt-new")
    assert named is not None
    assert (named.driver, named.model, named.efforts) == (CODEX, "gpt-new", ("high",))
    assert book.kept(named.record()) == named, "a conversation that began with it goes on with it"
    assert book.find(named.record()) is None, "and nothing new begins with it by itself"
    assert book.unlisted(CODEX, "Anthropic", "gpt-new") is None
    assert book.unlisted(CLAUDE, "Anthropic", "claude-new") is None
