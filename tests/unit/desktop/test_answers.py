"""What is not resolved is said with what can be done about it."""

from typing import get_args

from desktop.orders.answers import WHAT_TO_DO, standing, unresolved_in_words
from runtime_host.session import InspectedState, UnresolvedEffect

LOST = UnresolvedEffect(kind="input", id="run_1")
CALL = UnresolvedEffect(kind="tool-result", id="call_1", tool="pay_bill", run_id="run_1")


def state(*effects: UnresolvedEffect) -> InspectedState:
    return InspectedState(connection="lost", activity="unknown", unresolved_effects=effects)


def test_each_kind_of_effect_has_what_the_person_can_do() -> None:
    assert set(WHAT_TO_DO) == set(get_args(UnresolvedEffect.model_fields["kind"].annotation))


def test_a_standing_lists_each_effect_with_what_to_do() -> None:
    row = standing(state(LOST, CALL))
    assert [(effect["kind"], effect["id"]) for effect in row["unresolved_effects"]] == [
        ("input", "run_1"),
        ("tool-result", "call_1"),
    ]
    assert all(effect["what_to_do"] == WHAT_TO_DO[effect["kind"]] for effect in row["unresolved_effects"])


def test_the_run_line_names_the_tool_and_not_the_message_again() -> None:
    assert unresolved_in_words(state(LOST)) == ""
    assert unresolved_in_words(state(LOST, CALL)) == WHAT_TO_DO["tool-result"] + " It is the tool pay_bill."
