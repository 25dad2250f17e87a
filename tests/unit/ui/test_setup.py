"""What is set up, as the host tells it: which answer belongs to which search, and the words of each row."""

from typing import get_args

import pytest

from ui.actions import BY_NAME, PROPOSALS
from ui.models import places
from ui.setup import Setup, size_words
from ui.wire import dto

TINY = dto.Choice(id="tiny", harness="Native", connector="Built-in", model="SmolLM2", builtin=True, images=False)
BIG = dto.Choice(
    id="big", harness="Native", connector="OpenAI", connector_id="k1", model="gpt-5.5", efforts=("low", "high"),
    context="400k tokens", price="$1 in", runs="at the provider", touches="nothing", bills="your key", default=True,
)  # fmt: skip
GUESSED = dto.Choice(id="own", harness="Native", connector="Here", model="qwen", badge="assumed", connector_id="k2")
RTL = "עוזר"


@pytest.fixture
def setup() -> Setup:
    made = Setup()
    made.apply(dto.Choices(choices=(TINY, BIG, GUESSED), total=3))
    return made


def test_an_answer_to_an_older_search_changes_nothing(setup: Setup) -> None:
    setup.offer.look_for("gpt", None)
    setup.apply(dto.Choices(choices=(GUESSED,), filter="qw", total=1))
    assert [choice.id for choice in setup.offer.rows] == ["tiny", "big", "own"]
    setup.apply(dto.Choices(choices=(BIG,), filter="gpt", total=1))
    assert [choice.id for choice in setup.offer.rows] == ["big"]


def test_picker_and_page_of_models_search_apart(setup: Setup) -> None:
    setup.models.look_for("", "k1")
    assert not setup.models.known
    setup.apply(dto.Choices(choices=(BIG,), connector="k1", total=1))
    assert [choice.id for choice in setup.models.rows] == ["big"]
    assert len(setup.offer.rows) == 3


def test_what_is_chosen_and_the_tiny_model_are_known_whatever_is_searched_for(setup: Setup) -> None:
    setup.offer.look_for("zzz", None)
    setup.apply(dto.Choices(choices=(), filter="zzz", total=0, chosen=BIG))
    assert setup.choice("big") == BIG
    assert setup.builtin == TINY


def test_a_connection_that_is_gone_is_not_searched_any_more(setup: Setup) -> None:
    setup.apply(dto.Connectors(rows=(dto.ConnectorRow(id="k1", name="OpenAI", vendor="", address="", key=""),)))
    setup.models.look_for("g", "k1")
    setup.apply(dto.Connectors(rows=()))
    assert (setup.models.filter, setup.models.connector, setup.unasked) == ("", None, True)


def test_work_is_shown_until_it_ends(setup: Setup) -> None:
    setup.apply(dto.Progress(id="p", sentence="Writing", done=1, of=4))
    assert [(row["words"], row["percent"]) for row in places.progress(setup)] == [("Writing", "25%")]
    setup.apply(dto.Progress(id="p", sentence="Writing", done=5, of=4))
    assert places.progress(setup)[0]["share"] == 1.0
    setup.apply(dto.Progress(id="p", sentence="Done", ended=True))
    assert places.progress(setup) == []


def test_a_heading_stands_where_what_is_meant_changes(setup: Setup) -> None:
    rows = places.offer(setup.offer.rows, "big", "high")
    assert [row["heading"] for row in rows] == ["Native · Built-in", "Native · OpenAI", "Native · Here"]
    assert rows[1]["means"] == "Runs at the provider · touches nothing · bills your key"
    assert [(row["chosen"], row["effort"]) for row in rows] == [(False, ""), (True, "high"), (False, "")]


def test_where_facts_come_from_and_what_a_model_cannot_is_said(setup: Setup) -> None:
    tiny, big, own = places.offer(setup.offer.rows, None, "")
    assert tiny["marks"] == "cannot take images"
    assert big["facts"] == "400k tokens · $1 in"
    assert own["marks"] == "assumed"
    assert "default" in big["said"]


def test_the_default_of_a_connection_is_marked_on_its_own_page(setup: Setup) -> None:
    row = dto.ConnectorRow(id="k1", name="OpenAI", vendor="", address="", key="", default_model="gpt-5.5")
    setup.apply(dto.Connectors(rows=(row,)))
    setup.models.look_for("", "k1")
    setup.apply(dto.Choices(choices=(BIG,), connector="k1", total=1))
    assert places.models(setup)[0]["own"]


def test_a_test_that_goes_on_hides_the_last_finding(setup: Setup) -> None:
    for testing, words, tone in ((False, "Refused the key.", "failed"), (True, "Testing", "done")):
        row = dto.ConnectorRow(
            id="k", name="n", vendor="v", address="a", key="k", tested="Refused the key.", test="problem",
            testing=testing,
        )  # fmt: skip
        setup.apply(dto.Connectors(rows=(row,)))
        shown = places.connectors(setup)[0]
        assert (shown["tested"], shown["tone"]) == (words, tone)


def test_names_do_not_reorder_what_stands_around_them(setup: Setup) -> None:
    setup.apply(dto.Agents(rows=(dto.AgentRow(id="a", name=f"{RTL}\u202e\n", sentence=f"Native · {RTL} · medium"),)))
    row = places.agents(setup)[0]
    assert row["name"] == f"\u2068{RTL}\u2069"
    assert row["sentence"] == f"Native · \u2068{RTL}\u2069 · medium"


def test_a_long_name_does_not_hide_what_may_be_touched() -> None:
    short = places.whole_parts("Native · " + "m" * 300 + " · touches nothing")
    assert short.startswith("Native · mmm")
    assert short.endswith(" · touches\u00a0nothing")
    assert len(short) < 80


def test_everything_that_can_be_proposed_has_words() -> None:
    table = (*PROPOSALS, BY_NAME["review"])
    labels = {action.name: action.label for action in table}
    assert set(get_args(dto.Action)) <= set(labels)
    assert len(labels) == len(table)
    undecided = {
        "open-profile", "duplicate-agent", "clear-folder", "forget-program", "check-credential", "refresh-mount",
    }  # fmt: skip
    assert all(labels[name].endswith("…") for name in get_args(dto.Action) if name not in undecided)


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.0 kB"), (48_201_728, "48 MB"), (999_600, "1.0 MB"),
     (3_200_000_000_000, "3.2 TB")],
)  # fmt: skip
def test_sizes_are_said_in_their_unit(size_bytes: int, words: str) -> None:
    assert size_words(size_bytes) == words
