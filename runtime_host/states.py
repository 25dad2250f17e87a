"""The session and the run as state machines: tables, nothing else.

Owns every allowed step of a session and of a run, and what stop, detach, destroy and delete may do in
which state. Must not know storage, drivers, clocks or loops. Invariants: a step that is not in a table
does not exist; a terminal state has no step out, except `unknown`, which only reconciliation leaves.

Four things that are often taken for one another:

=========  ==============================================================================================
stop       ends the run: the native side is asked, and the run is over once that is confirmed
detach     lets go of the session and keeps everything: record, driver state, native work of a service, which goes on
destroy    stops the run, then lets go of the local handle; the record stays until it is deleted
delete     removes the session's record, requests, runs and items, and what the driver owns for it
=========  ==============================================================================================
"""

from typing import Final, Literal

SessionState = Literal[
    "opening", "ready", "running", "detaching", "detached", "failed", "destroying", "destroyed", "deleted"
]
SessionStep = Literal[
    "opened",
    "open_failed",
    "reserve",
    "release",
    "run_ended",
    "run_unconfirmed",
    "detach",
    "detached",
    "detach_failed",
    "run_parked",
    "rejoin",
    "destroy",
    "destroyed",
    "deleted",
]

RunState = Literal[
    "admitted",
    "dispatched",
    "running",
    "waiting",
    "stopping",
    "completed",
    "failed",
    "cancelled",
    "incomplete",
    "unknown",
]
RunStep = Literal[
    "dispatch",
    "started",
    "park",
    "take_up",
    "stop",
    "complete",
    "fail",
    "cancel",
    "cut_short",
    "lose",
    "leave",
    "withdraw",
]

Operation = Literal["run", "stop", "detach", "destroy", "delete"]
Verdict = Literal["do", "done_already", "busy", "failed", "closed"]

SESSION_STEPS: Final[dict[tuple[SessionState, SessionStep], SessionState]] = {
    ("opening", "opened"): "ready",
    ("opening", "open_failed"): "failed",
    ("opening", "destroy"): "destroying",
    ("ready", "reserve"): "running",
    ("running", "release"): "ready",
    ("running", "run_ended"): "ready",
    ("running", "run_unconfirmed"): "failed",
    # A run that waits for a person leaves the session as if there were none; the session refuses inputs by itself.
    ("running", "run_parked"): "ready",
    ("destroying", "run_parked"): "destroying",
    # A run that ends while its session is being destroyed changes nothing about the destruction.
    ("destroying", "run_ended"): "destroying",
    ("destroying", "run_unconfirmed"): "destroying",
    ("destroying", "release"): "destroying",
    ("ready", "detach"): "detaching",
    # Only of a harness whose work goes on without this program. A run that ends meanwhile changes nothing.
    ("running", "detach"): "detaching",
    ("detaching", "run_ended"): "detaching",
    ("detaching", "run_unconfirmed"): "detaching",
    # What became of an input is looked for again, where it went on without this program.
    ("failed", "rejoin"): "running",
    ("detaching", "detached"): "detached",
    ("detaching", "detach_failed"): "failed",
    ("ready", "destroy"): "destroying",
    ("running", "destroy"): "destroying",
    ("failed", "destroy"): "destroying",
    ("destroying", "destroyed"): "destroyed",
    ("detached", "deleted"): "deleted",
    ("destroyed", "deleted"): "deleted",
}

RUN_STEPS: Final[dict[tuple[RunState, RunStep], RunState]] = {
    # Never sent: may be withdrawn without asking anybody, and dispatched after a restart.
    ("admitted", "dispatch"): "dispatched",
    ("admitted", "withdraw"): "cancelled",
    ("admitted", "fail"): "failed",
    # Perhaps sent: from here only the native side can say what became of it.
    ("dispatched", "started"): "running",
    ("dispatched", "stop"): "stopping",
    ("dispatched", "fail"): "failed",
    ("dispatched", "lose"): "unknown",
    ("running", "stop"): "stopping",
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    ("running", "cancel"): "cancelled",
    ("running", "cut_short"): "incomplete",
    ("running", "lose"): "unknown",
    # A call waits for a person: nothing of the run goes on anywhere, until it is decided.
    ("running", "park"): "waiting",
    ("waiting", "take_up"): "dispatched",
    # Watched no longer; it goes on at its service as it was.
    ("dispatched", "leave"): "dispatched",
    ("running", "leave"): "running",
    ("stopping", "leave"): "stopping",
    # Asked to stop, by a person or by the wall clock: "completed" is no longer a way out.
    ("stopping", "cancel"): "cancelled",
    ("stopping", "fail"): "failed",
    ("stopping", "lose"): "unknown",
    # Reconciliation with a source that knows.
    ("unknown", "complete"): "completed",
    ("unknown", "fail"): "failed",
    ("unknown", "cancel"): "cancelled",
    ("unknown", "cut_short"): "incomplete",
}

TERMINAL_RUN_STATES: Final[frozenset[RunState]] = frozenset({"completed", "failed", "cancelled", "incomplete"})
"""States with a result. `unknown` is none: nobody knows the result."""

ENDED_RUN_STATES: Final[frozenset[RunState]] = TERMINAL_RUN_STATES | {"unknown"}

OPERATIONS: Final[dict[Operation, dict[SessionState, Verdict]]] = {
    "run": {
        "opening": "busy",
        "ready": "do",
        "running": "busy",
        "detaching": "busy",
        "detached": "closed",
        "failed": "failed",
        "destroying": "closed",
        "destroyed": "closed",
        "deleted": "closed",
    },
    "stop": {
        "opening": "done_already",
        "ready": "done_already",
        "running": "do",
        "detaching": "done_already",
        "detached": "closed",
        "failed": "done_already",
        "destroying": "do",
        "destroyed": "done_already",
        "deleted": "done_already",
    },
    "detach": {
        "opening": "busy",
        "ready": "do",
        "running": "busy",
        "detaching": "busy",
        "detached": "done_already",
        "failed": "failed",
        "destroying": "closed",
        "destroyed": "closed",
        "deleted": "closed",
    },
    "destroy": {
        "opening": "do",
        "ready": "do",
        "running": "do",
        "detaching": "busy",
        "detached": "done_already",
        "failed": "do",
        "destroying": "done_already",
        "destroyed": "done_already",
        "deleted": "done_already",
    },
    # Of a session that is open here: only an idle one; one that is not open has no handle to ask.
    "delete": {
        "opening": "busy",
        "ready": "do",
        "running": "busy",
        "detaching": "busy",
        "detached": "do",
        "failed": "do",
        "destroying": "busy",
        "destroyed": "do",
        "deleted": "done_already",
    },
}


class IllegalStepError(Exception):
    """A step that no table has: a defect of this library, never of its user."""


def next_session_state(state: SessionState, step: SessionStep) -> SessionState:
    """The state after a step.

    Raises:
        IllegalStepError: the table has no such step.
    """
    try:
        return SESSION_STEPS[state, step]
    except KeyError:
        raise IllegalStepError(f"a session that is {state} has no step {step}") from None


def next_run_state(state: RunState, step: RunStep) -> RunState:
    """The state after a step.

    Raises:
        IllegalStepError: the table has no such step.
    """
    try:
        return RUN_STEPS[state, step]
    except KeyError:
        raise IllegalStepError(f"a run that is {state} has no step {step}") from None


def verdict(operation: Operation, state: SessionState) -> Verdict:
    """What an operation may do to a session in this state."""
    return OPERATIONS[operation][state]
