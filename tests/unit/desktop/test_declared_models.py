"""One model's table in the person's own file is changed; whatever else stands there stays."""

import os
from pathlib import Path

import pytest

from desktop.declared_models import changed, declare
from desktop.questions.model import _NumberError, _tokens, _usd
from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.models.declared import parse_models_toml, read_models_toml

FILE = """\
# Mine.
[models."first"]   # the first
context_tokens = 1
codex_efforts = ["low"]

# About the second.
[models."sec]ond"]
label = \"\"\"two
lines\"\"\"
"""


def test_a_model_is_added_and_the_rest_stays() -> None:
    after = changed(FILE, 'ein "neues" Modell', {"context_tokens": 128_000, "efforts": ["low"], "images": None})
    assert after.startswith(FILE.rstrip())
    assert parse_models_toml(after.encode()).facts['ein "neues" Modell'].context_tokens == 128_000
    assert changed("", "m", {"images": True}) == '[models."m"]\nimages = true\n'


def test_a_model_is_changed_in_its_place_and_keeps_what_is_not_asked_about() -> None:
    after = changed(FILE, "first", {"context_tokens": 2, "price_input_usd": 0.5})
    said = parse_models_toml(after.encode())
    assert said.facts["first"].context_tokens == 2
    assert said.reasoning["openai.codex.sdk"]["first"].efforts == ("low",)
    assert after.index("first") < after.index("# About the second.") < after.index("sec]ond")
    back = changed(after, "first", {"price_input_usd": None})
    assert parse_models_toml(back.encode()).facts["first"].price_input_usd is None


@pytest.mark.parametrize(
    "before",
    [
        "models = { first = { context_tokens = 1 } }\n",  # no table of its own to change
        "[models]\nfirst = { context_tokens = 1 }\n",
        '[models.first]\nefforts = [\n"low",\n]\n[models.first.more]\n',
        "nonsense",
    ],
)
def test_a_file_that_cannot_be_changed_surely_is_left_alone(tmp_path: Path, before: str) -> None:
    file = tmp_path / "models.toml"
    file.write_text(before)
    with pytest.raises(AgentDriverConfigurationError):
        declare(file, "first", {"context_tokens": 2})
    assert file.read_text() == before


@pytest.mark.parametrize(("text", "tokens"), [("", None), ("128,000", 128_000), ("128 000", 128_000), ("4096", 4_096)])
def test_tokens_are_read_as_people_write_them(text: str, tokens: int | None) -> None:
    assert _tokens(text) == tokens


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "128k", "1,2", "٣", "9" * 20])
def test_what_is_no_number_of_tokens_is_said(text: str) -> None:
    with pytest.raises(_NumberError):
        _tokens(text)


@pytest.mark.parametrize(("text", "usd"), [("", None), ("$3", 3.0), ("0.15", 0.15), ("1,250.50", 1250.5)])
def test_prices_are_read_as_people_write_them(text: str, usd: float | None) -> None:
    assert _usd(text) == usd


@pytest.mark.parametrize("text", ["free", "-1", "nan", "1e3", "3 EUR", "0,15"])
def test_what_is_no_price_is_said(text: str) -> None:
    with pytest.raises(_NumberError):
        _usd(text)


def test_a_pipe_in_place_of_the_file_is_said_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "models.toml")
    for use in (read_models_toml, lambda path: declare(path, "m", {"images": True})):
        with pytest.raises(AgentDriverConfigurationError, match="cannot be read"):
            use(tmp_path / "models.toml")
