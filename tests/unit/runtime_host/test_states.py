from collections.abc import Iterable
from typing import get_args

import pytest

from runtime_host.states import (
    ENDED_RUN_STATES,
    OPERATIONS,
    RUN_STEPS,
    SESSION_STEPS,
    TERMINAL_RUN_STATES,
    IllegalStepError,
    Operation,
    RunState,
    RunStep,
    SessionState,
    SessionStep,
    Verdict,
    next_run_state,
    next_session_state,
    verdict,
)

SESSION_STATES: tuple[SessionState, ...] = get_args(SessionState)
RUN_STATES: tuple[RunState, ...] = get_args(RunState)


def reachable(table: Iterable[tuple[tuple[str, str], str]], start: str) -> set[str]:
    edges = list(table)
    found, todo = {start}, [start]
    while todo:
        state = todo.pop()
        for (source, _step), target in edges:
            if source == state and target not in found:
                found.add(target)
                todo.append(target)
    return found


def test_tables_name_only_states_and_steps_that_exist() -> None:
    for (state, step), target in SESSION_STEPS.items():
        assert {state, target} <= set(SESSION_STATES)
        assert step in get_args(SessionStep)
    for (run_state, run_step), run_target in RUN_STEPS.items():
        assert {run_state, run_target} <= set(RUN_STATES)
        assert run_step in get_args(RunStep)


def test_every_state_can_be_reached() -> None:
    assert reachable(SESSION_STEPS.items(), "opening") == set(SESSION_STATES)
    assert reachable(RUN_STEPS.items(), "admitted") == set(RUN_STATES)


def test_every_open_run_can_end_and_an_ended_one_is_left_only_from_unknown() -> None:
    for state in RUN_STATES:
        if state in TERMINAL_RUN_STATES:
            assert not [step for (source, step) in RUN_STEPS if source == state]
        else:
            assert reachable(RUN_STEPS.items(), state) & TERMINAL_RUN_STATES
    assert {target for (source, _), target in RUN_STEPS.items() if source == "unknown"} == TERMINAL_RUN_STATES
    assert TERMINAL_RUN_STATES | {"unknown"} == ENDED_RUN_STATES


def test_a_run_that_was_asked_to_stop_can_no_longer_complete() -> None:
    assert "completed" not in {target for (source, _), target in RUN_STEPS.items() if source == "stopping"}


def test_only_a_run_that_was_never_sent_can_be_withdrawn() -> None:
    assert [source for (source, step) in RUN_STEPS if step == "withdraw"] == ["admitted"]


def test_a_failed_session_takes_no_run_and_cannot_become_ready() -> None:
    # But by looking, at a service, for what became of the input.
    others = [each for each in SESSION_STEPS.items() if each[0][1] != "rejoin"]
    assert "ready" not in reachable(others, "failed")
    assert [source for (source, step) in SESSION_STEPS if step == "rejoin"] == ["failed"]
    assert verdict("run", "failed") == "failed"


def test_every_operation_has_an_answer_in_every_state() -> None:
    for operation in get_args(Operation):
        assert set(OPERATIONS[operation]) == set(SESSION_STATES)
        assert set(OPERATIONS[operation].values()) <= set(get_args(Verdict))


def test_stop_detach_destroy_and_delete_differ_while_a_run_goes_on() -> None:
    answers = {operation: verdict(operation, "running") for operation in ("stop", "detach", "destroy", "delete")}
    assert answers == {"stop": "do", "detach": "busy", "destroy": "do", "delete": "busy"}


@pytest.mark.parametrize(("state", "step"), [("completed", "fail"), ("stopping", "complete"), ("unknown", "dispatch")])
def test_a_step_that_no_table_has_is_a_defect(state: RunState, step: RunStep) -> None:
    with pytest.raises(IllegalStepError):
        next_run_state(state, step)


def test_a_destroyed_session_is_not_reserved() -> None:
    with pytest.raises(IllegalStepError):
        next_session_state("destroyed", "reserve")
    assert next_session_state("ready", "reserve") == "running"
