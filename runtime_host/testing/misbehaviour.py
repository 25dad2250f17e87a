"""Every way a harness can let the runtime down, as a scripted bench: one name each.

Owns the scripts of a good harness and of each bad one. Must not know what the runtime makes of them.
Invariant: for each name there is a case of `HostToolsContract`, which has those of `AgentDriverContract` in it, that
fails with it; `FAILS` says which.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal, cast, get_args

from runtime_host.definitions import AgentDefinition, ExecutionBinding, SessionOptions, TrustedContext
from runtime_host.errors import AgentSessionRecoveryError
from runtime_host.events import DriverEvent
from runtime_host.policy import CHAT
from runtime_host.results import DriverResult, RunError
from runtime_host.runtime import Connectors
from runtime_host.testing.driver_contract import FarBehaviour
from runtime_host.testing.host_tools_contract import TOOL, Told, ToolBehaviour
from runtime_host.testing.scripted import (
    Call,
    Fail,
    Flood,
    Hold,
    Script,
    ScriptedDriver,
    Step,
    ToolMisbehaviour,
    Wait,
    reply,
)
from runtime_host.tools.base import ToolRequest

Misbehaviour = Literal[
    "late-start",
    "deaf-start",
    "sends-twice",
    "sends-a-lost-input-again",
    "claims-a-lost-input",
    "foreign-event",
    "event-that-is-no-json",
    "reply-of-other-pieces",
    "double-finish",
    "never-finished-item",
    "silent-end",
    "endless-result",
    "changing-result",
    "failure-without-words",
    "half-is-whole",
    "sends-a-failure-again",
    "hanging-cancel",
    "deaf-cancel",
    "deaf-flood",
    "completed-after-cancel",
    "cancel-takes-the-result",
    "hanging-close",
    "failing-close",
    "state-that-is-no-json",
    "state-that-fails",
    "state-with-the-credential",
    "inspection-sends",
    "sessions-share-their-end",
    "forgets-all",
    "forget-sends",
    "forgets-once-only",
    "hanging-forget",
    "crash-before-sending",
    "crash-after-sending",
    "crash-between-events",
    "crash-before-the-result",
    "crash-in-cancel",
]

FAILS: Final[dict[Misbehaviour | ToolMisbehaviour, str]] = {
    "late-start": "test_a_start_answers_in_time",
    "deaf-start": "test_a_start_that_is_given_up_ends",
    "sends-twice": "test_an_input_is_sent_once",
    "sends-a-lost-input-again": "test_a_lost_acceptance_is_told_and_nothing_is_sent_again",
    "claims-a-lost-input": "test_a_lost_acceptance_is_told_and_nothing_is_sent_again",
    "foreign-event": "test_only_events_of_a_driver_are_yielded",
    "event-that-is-no-json": "test_only_events_of_a_driver_are_yielded",
    "reply-of-other-pieces": "test_the_pieces_of_a_reply_are_the_reply",
    "double-finish": "test_each_item_is_finished_once",
    "never-finished-item": "test_each_item_is_finished_once",
    "silent-end": "test_the_result_is_there_once_the_events_have_ended",
    "endless-result": "test_the_result_is_there_once_the_events_have_ended",
    "changing-result": "test_a_result_never_changes",
    "failure-without-words": "test_a_failure_is_a_result_with_code_and_sentence",
    "half-is-whole": "test_what_breaks_off_is_never_completed",
    "sends-a-failure-again": "test_an_input_that_failed_is_not_sent_again",
    "hanging-cancel": "test_a_cancel_answers_in_time",
    "deaf-cancel": "test_after_a_cancel_the_events_end",
    "deaf-flood": "test_a_flood_can_be_stopped",
    "completed-after-cancel": "test_what_was_cancelled_is_not_completed",
    "cancel-takes-the-result": "test_a_cancel_again_or_after_the_end_changes_nothing",
    "hanging-close": "test_a_close_ends_what_runs_and_may_be_repeated",
    "failing-close": "test_a_close_ends_what_runs_and_may_be_repeated",
    "state-that-is-no-json": "test_a_state_is_json_without_a_credential_and_goes_on",
    "state-that-fails": "test_a_state_is_json_without_a_credential_and_goes_on",
    "state-with-the-credential": "test_a_state_is_json_without_a_credential_and_goes_on",
    "inspection-sends": "test_looking_and_opening_send_nothing",
    "sessions-share-their-end": "test_sessions_do_not_know_each_other",
    "forgets-all": "test_what_is_kept_of_a_session_is_forgotten_alone",
    "forget-sends": "test_what_is_kept_of_a_session_is_forgotten_alone",
    "forgets-once-only": "test_what_is_kept_of_a_session_is_forgotten_alone",
    "hanging-forget": "test_what_is_kept_of_a_session_is_forgotten_alone",
    "crash-before-sending": "test_no_error_of_the_far_side_crosses",
    "crash-after-sending": "test_no_error_of_the_far_side_crosses",
    "crash-between-events": "test_no_error_of_the_far_side_crosses",
    "crash-before-the-result": "test_no_error_of_the_far_side_crosses",
    "crash-in-cancel": "test_a_cancel_answers_in_time",
    "asks-once": "test_the_same_tool_twice_is_two_calls",
    "repeats-as-new": "test_a_repeated_call_is_executed_once",
    "tells-before-kept": "test_nothing_is_told_before_it_is_kept",
    "tells-what-failed": "test_what_cannot_be_kept_is_told_to_nobody",
    "hides-a-denial": "test_what_is_denied_is_not_executed_and_told_as_that",
    "tells-under-another-id": "test_a_result_kept_before_a_restart_is_told_once_under_its_id",
    "tells-twice": "test_a_result_kept_before_a_restart_is_told_once_under_its_id",
    "executes-again": "test_a_run_that_goes_on_executes_nothing_again",
}
"""The case of the contract that each misbehaviour fails."""

SECRET: Final = "sk-scripted-0123456789abcdef"  # noqa: S105  # a canary
FLOOD_PIECES: Final = 50_000_000


class VendorError(Exception):
    """What a vendor's SDK would raise."""


def _lost() -> Exception:
    return AgentSessionRecoveryError("Whether the input was taken is not known.", session_id="session")


class ScriptedBench:
    """A `DriverBench` of scripted drivers, good or with one misbehaviour.

    Args:
        misbehaviour: what its drivers do badly; None is nothing.
        patience_s: how long the contract waits for an answer.
    """

    def __init__(self, misbehaviour: Misbehaviour | ToolMisbehaviour | None = None, *, patience_s: float = 5.0) -> None:
        self.misbehaviour = misbehaviour
        self.patience_s = patience_s
        self.secret = SECRET
        self.connectors: Connectors | None = None
        self.definition = AgentDefinition(id="assistant", instructions="Be kind.")
        self.options = SessionOptions(
            execution=ExecutionBinding(driver="scripted", connector="none", model="m-1"),
            context=TrustedContext(),
            policy=CHAT,
        )
        self.drivers: list[ScriptedDriver] = []
        self._how: FarBehaviour = "answers"
        self._calls: ToolBehaviour | None = None

    def driver(self) -> ScriptedDriver:
        driver = ScriptedDriver(lambda _: self.script())
        _spoil_driver(driver, self.misbehaviour)
        self.drivers.append(driver)
        return driver

    def behave(self, how: FarBehaviour) -> None:
        self._how, self._calls = how, None

    def call(self, how: ToolBehaviour) -> None:
        self._calls = how

    def told(self) -> list[Told]:
        told = [delivery for driver in self.drivers for delivery in driver.told]
        return [Told(each.call_id, each.error if each.error is not None else str(each.payload)) for each in told]

    def sent(self) -> int:
        return sum(len(driver.sent) for driver in self.drivers)

    async def aclose(self) -> None:
        for driver in self.drivers:
            driver.released.set()
        # What hung has a few turns to notice.
        for _ in range(5):
            await asyncio.sleep(0)

    def script(self) -> Script:
        """What the next run does."""
        if self._calls is not None:
            return Script((*CALLS[self._calls], *reply("That is it.", pieces=2)))
        good = good_script(self._how)
        spoil = _SPOILED.get(self.misbehaviour or "")
        return good if spoil is None else spoil(good, self._how)


def good_script(how: FarBehaviour) -> Script:
    """What a good harness does when its far side is like that."""
    answer = reply("Hello to you.", pieces=4)
    failed = DriverResult(
        status="failed", error=RunError(code="PROVIDER_UNAVAILABLE", message="The server cannot answer now.")
    )
    match how:
        case "answers":
            return Script(answer)
        case "waits":
            return Script((*answer[:2], Hold(asyncio.Event())))
        case "fails":
            return Script(result=failed)
        case "breaks-off":
            return Script(answer[:2], result=failed)
        case "loses-acceptance":
            return Script(acceptance=_lost())
        case "floods":
            return Script((Flood(FLOOD_PIECES),))


def _spoil_driver(driver: ScriptedDriver, misbehaviour: Misbehaviour | ToolMisbehaviour | None) -> None:
    match misbehaviour:
        case "hanging-close":
            driver.close_hangs = True
        case "failing-close":
            driver.close_fails = VendorError("socket is closed")
        case "state-that-is-no-json":
            driver.state_extra = {"connection": object()}
        case "state-that-fails":
            driver.state_fails = VendorError("no state")
        case "state-with-the-credential":
            driver.state_extra = {"key": SECRET}
        case "inspection-sends":
            driver.inspection_sends = True
        case "sessions-share-their-end":
            driver.close_ends_all = True
        case "forgets-all" | "forget-sends" | "forgets-once-only" | "hanging-forget":
            driver.forgets_badly = misbehaviour
        case _ if misbehaviour in get_args(ToolMisbehaviour):
            driver.tools_badly = cast(ToolMisbehaviour, misbehaviour)
        case _:
            pass


def _when(hows: tuple[FarBehaviour, ...], **changes: Any) -> "Callable[[Script, FarBehaviour], Script]":
    """Changes to a good script when the far side is like one of these."""
    return lambda script, how: replace(script, **changes) if how in hows else script


def _stepwise(change: Callable[[tuple[Step, ...]], tuple[Step, ...]]) -> Callable[[Script, FarBehaviour], Script]:
    """Other steps when the far side answers."""
    return lambda script, how: replace(script, steps=change(tuple(script.steps))) if how == "answers" else script


_ALWAYS: Final[tuple[FarBehaviour, ...]] = get_args(FarBehaviour)
_COMPLETED = DriverResult(status="completed", output_text="Done.")
_ONE, _OTHER = (ToolRequest(call_id, TOOL, '{"city": "Paris"}') for call_id in ("call_a", "call_b"))
CALLS: Final[dict[ToolBehaviour, tuple[Call, ...]]] = {
    "calls-once": (Call((_ONE,)),),
    "calls-twice": (Call((_ONE,)), Call((_OTHER,))),
    "repeats-a-call": (Call((_ONE,)), Call((_ONE,))),
}
_FOREIGN = DriverEvent("run.finished", {"status": "completed"})
_NO_JSON = DriverEvent("diagnostic", {"code": "X", "message": "x", "at": float("nan")})
_ERROR = VendorError("connection reset by peer")

_SPOILED: Final[dict[str, Callable[[Script, FarBehaviour], Script]]] = {
    "late-start": _when(_ALWAYS, start=Wait(3600.0)),
    "deaf-start": _when(_ALWAYS, start="deaf"),
    "sends-twice": _when(("answers",), sends=2),
    "sends-a-failure-again": _when(("fails",), sends=2),
    "sends-a-lost-input-again": _when(("loses-acceptance",), sends=2),
    "claims-a-lost-input": _when(("loses-acceptance",), acceptance="answered", result=_COMPLETED),
    "foreign-event": _stepwise(lambda steps: (*steps, _FOREIGN)),
    "event-that-is-no-json": _stepwise(lambda steps: (*steps, _NO_JSON)),
    "reply-of-other-pieces": _stepwise(lambda steps: (*steps[:1], *steps[2:])),
    "double-finish": _when(("answers",), finishes=2),
    "never-finished-item": _stepwise(lambda steps: (*reply("Lost", pieces=2, item_id="m0")[:2], *steps)),
    "silent-end": _when(("answers",), result="missing"),
    "endless-result": _when(("answers",), result="hangs"),
    "changing-result": _when(("answers",), result="changes"),
    "failure-without-words": _when(("fails",), result=DriverResult(status="failed")),
    "half-is-whole": _when(("breaks-off",), result=_COMPLETED),
    "hanging-cancel": _when(("waits", "answers"), cancel="hangs"),
    "deaf-cancel": _when(("waits",), cancel="ignored"),
    "deaf-flood": _when(("floods",), steps=(Flood(FLOOD_PIECES, deaf=True),)),
    "completed-after-cancel": _when(("waits",), cancelled_as="completed"),
    "cancel-takes-the-result": _when(("answers",), ended_result_stands=False),
    "crash-before-sending": _when(("answers",), start=_ERROR),
    "crash-after-sending": _when(("answers",), acceptance=_ERROR),
    "crash-between-events": _stepwise(lambda steps: (*steps[:2], Fail(_ERROR), *steps[2:])),
    "crash-before-the-result": _when(("answers",), result=_ERROR),
    "crash-in-cancel": _when(("waits",), cancel=_ERROR),
}
