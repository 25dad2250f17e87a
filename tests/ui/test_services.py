"""What a person notices of harnesses at a provider: the page, the picker, and what goes on there, by keys alone."""

import pytest
from PySide6.QtCore import Qt

from tests.ui.conftest import Bench
from tests.ui.scenes import AT_OPENAI, LACKING, SERVICES
from tests.ui.test_activities import said_below
from tests.ui.test_settings import ENTER, focus, furnished, in_menu, open_settings, shown, spoken, tab_until
from ui.wire import dto

__all__ = ["furnished"]

CONTROL_SHIFT = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier


def stand(bench: Bench, state: str, words: str = "", **more: object) -> None:
    """The newest run of the selected conversation stands so."""
    bench.host.item("c1", "user", "Which berths were never free?")
    bench.select(run=dto.RunView(id="r1", state=state, sentence=words, **more))  # type: ignore[arg-type]
    bench.settle()


# ------------------------------------------------------------------------------ the page


def test_the_page_says_where_it_runs_what_is_billed_and_how_its_cost_is_held(furnished: Bench) -> None:
    furnished.host.pages["harnesses"] = [dto.Harnesses(rows=SERVICES)]
    open_settings(furnished, "harnesses")
    openai, claude = (spoken(row) for row in shown(furnished, "Harness"))
    assert openai.startswith("OpenAI Agents, Ready, It works at OpenAI")
    assert "the provider bills your key, also while Remuda is closed" in openai
    assert "OpenAI offers no cap" in openai
    assert "$2.50" in claude
    tab_until(furnished, "What it can do: Claude Managed Agents, folded")
    furnished.key(ENTER, "\r")
    furnished.settle()
    said = said_below(shown(furnished, "Harness")[1])
    assert "Another model for a message, not supported, Model and effort stay as they began." in said


def test_the_cap_is_set_by_keys_where_the_provider_has_one_and_only_there(furnished: Bench) -> None:
    furnished.host.pages["harnesses"] = [dto.Harnesses(rows=SERVICES)]
    open_settings(furnished, "harnesses")
    buttons = [spoken(button) for button in shown(furnished, "Btn") if spoken(button).startswith("Set the cost cap")]
    assert buttons == ["Set the cost cap… Claude Managed Agents"]
    tab_until(furnished, buttons[0])
    furnished.key(ENTER, "\r")
    proposed = furnished.wait_for(dto.Propose)
    assert (proposed.action, proposed.target) == ("cap-cost", "claude-managed")


def test_one_that_lacks_a_connector_says_so_and_leads_to_one(furnished: Bench) -> None:
    furnished.host.pages["harnesses"] = [dto.Harnesses(rows=(LACKING,))]
    open_settings(furnished, "harnesses")
    assert "Needs a key" in [mark.property("word") for mark in shown(furnished, "StateMark")]
    tab_until(furnished, "Add a connector… OpenAI Agents")
    furnished.key(ENTER, "\r")
    proposed = furnished.wait_for(dto.Propose)
    assert (proposed.action, proposed.target) == ("add-connector", "openai")


def test_the_picker_says_that_it_runs_there_in_its_own_sandbox(furnished: Bench) -> None:
    furnished.host.offer = [AT_OPENAI]
    furnished.key(Qt.Key.Key_M, "m", Qt.KeyboardModifier.ControlModifier)
    furnished.settle()
    rows = furnished.renderer._bridge.setup.models["choices"]
    said = [rows.row_map(row) for row in range(rows.count())]
    means = next(row["means"] for row in said if "OpenAI Agents" in row["heading"])
    for words in ("at OpenAI", "its own sandbox there, without network", "your key"):
        assert words in means


# -------------------------------------------------------------------------- what goes on


@pytest.mark.parametrize(
    ("state", "word", "words"),
    [
        ("working", "Working", "At OpenAI, and goes on there while Remuda is closed."),
        ("stopping", "Stopping", ""),
        ("elsewhere", "Running elsewhere", "It goes on at OpenAI, and is not watched from here."),
        ("unknown", "Unknown", "OpenAI did not confirm."),
    ],
)
def test_what_goes_on_there_is_never_shown_as_over(bench: Bench, state: str, word: str, words: str) -> None:
    stand(bench, state, words, goes_on_at="" if state == "unknown" else "OpenAI")
    assert word in [mark.property("word") for mark in shown(bench, "StateMark")]
    assert not words or words in [quiet.property("text") for quiet in shown(bench, "Quiet")]


def test_a_run_is_let_run_on_by_a_key_and_from_the_menu(bench: Bench) -> None:
    stand(bench, "working", goes_on_at="OpenAI")
    bench.key(Qt.Key.Key_O, "", CONTROL_SHIFT)
    assert bench.wait_for(dto.Detach).revision == bench.revision
    tab_until(bench, "What can be done with this conversation")
    bench.key(ENTER, "\r")
    bench.settle()
    in_menu(bench, "Let it run on")
    assert bench.wait_for(dto.Detach).revision == bench.revision


def test_what_runs_here_is_not_let_run_on(bench: Bench) -> None:
    stand(bench, "working")
    bench.key(Qt.Key.Key_O, "", CONTROL_SHIFT)
    bench.settle()
    assert not bench.host.take(dto.Detach)
    tab_until(bench, "What can be done with this conversation")
    bench.key(ENTER, "\r")
    bench.settle()
    in_menu(bench, "Detach")


@pytest.mark.parametrize("state", ["unknown", "elsewhere"])
def test_what_is_not_known_is_looked_at_again_by_a_key_or_from_the_menu(bench: Bench, state: str) -> None:
    stand(bench, state, "OpenAI did not confirm.", can_look_again=True)
    bench.key(Qt.Key.Key_L, "", CONTROL_SHIFT)
    assert bench.wait_for(dto.LookAgain).revision == bench.revision
    assert "Look again" in [spoken(button) for button in shown(bench, "Btn")]
    tab_until(bench, "What can be done with this conversation")
    bench.key(ENTER, "\r")
    bench.settle()
    in_menu(bench, "Look again")
    assert bench.wait_for(dto.LookAgain).revision == bench.revision
    assert not bench.host.take(dto.AskAgain), "nothing is sent again"


def test_looking_again_stands_in_the_order_of_the_keys_after_what_was_said(bench: Bench) -> None:
    """Below the last row it is no row; forwards and backwards the keys find it between that and the composer."""
    bench.host.item("c1", "reply", "Berths 7 and 19.")
    stand(bench, "unknown", "OpenAI did not confirm.", can_look_again=True)
    composer = focus(bench)
    tab_until(bench, "Copy reply")
    bench.key(Qt.Key.Key_Tab, "\t")
    assert spoken(focus(bench)) == "Look again"
    bench.key(Qt.Key.Key_Tab, "\t")
    assert focus(bench) is composer
    bench.key(Qt.Key.Key_Backtab, "", Qt.KeyboardModifier.ShiftModifier)
    assert spoken(focus(bench)) == "Look again"
    bench.key(Qt.Key.Key_Backtab, "", Qt.KeyboardModifier.ShiftModifier)
    assert spoken(focus(bench)).startswith("Copy reply")
    bench.key(Qt.Key.Key_Tab, "\t")
    bench.key(ENTER, "\r")
    assert bench.wait_for(dto.LookAgain).revision == bench.revision


def test_what_goes_on_elsewhere_can_be_stopped(bench: Bench) -> None:
    stand(bench, "elsewhere", goes_on_at="OpenAI", can_look_again=True)
    bench.key(Qt.Key.Key_Period, "", Qt.KeyboardModifier.ControlModifier)
    assert bench.wait_for(dto.Stop).revision == bench.revision
