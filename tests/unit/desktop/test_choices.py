"""The picker's choices: named by ids that tell nothing, described in words that are true."""

import pytest

from desktop.choices import NATIVE, ChoiceBook
from runtime_host.connectors.base import Connector, SecretRef

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
    assert (choice.runs, choice.touches, choice.bills) == (runs, "nothing", bills)
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
