"""What events and the saved history of a managed Claude session mean, and what a run used."""

import itertools
from typing import Any

import pytest

from runtime_host.drivers.claude_managed.history import Reading, blocks_input, read
from runtime_host.drivers.claude_managed.mapping import TurnMapper
from runtime_host.drivers.claude_managed.usage import difference, snapshot

_numbers = itertools.count(1)


def event(kind: str, event_id: str = "", at: str | None = "2026-12-01T10:00:00Z", **fields: Any) -> dict[str, Any]:
    return {"id": event_id or f"sevt_{next(_numbers)}", "type": kind, "processed_at": at, **fields}


def said(kind: str, text: str, event_id: str = "", **more: Any) -> dict[str, Any]:
    return event(kind, event_id, content=[{"type": "text", "text": text}], **more)


def idle(reason: str, **more: Any) -> dict[str, Any]:
    ids = {"event_ids": more.pop("event_ids")} if "event_ids" in more else {}
    return event("session.status_idle", stop_reason={"type": reason, **ids}, **more)


INPUT = said("user.message", "Hello", "sevt_in")
CALL = event("agent.custom_tool_use", "sevt_call", name="look", input={})


def reading(*after: dict[str, Any], interrupt: bool = False, interrupt_id: str | None = None, **more: Any) -> Reading:
    asked: dict[str, Any] = {"said": "Hello", "input_id": "sevt_in", **more}
    return read(after, interrupt=interrupt, interrupt_id=interrupt_id, **asked)


def test_an_input_is_known_by_its_id_and_without_one_by_its_words() -> None:
    assert reading().stage == "unseen"
    assert reading(said("user.message", "Hello", "sevt_other")).stage == "unseen"
    assert reading(said("user.message", "Bye"), INPUT, input_id=None).input_id == "sevt_in"
    assert reading({**INPUT, "processed_at": None}).stage == "queued"
    assert reading({**INPUT, "processed_at": None}, INPUT).stage == "running"


@pytest.mark.parametrize("reason", ["end_turn", "refusal", "retries_exhausted"])
def test_only_the_sessions_own_word_after_the_input_ends_a_turn(reason: str) -> None:
    assert reading(idle(reason), INPUT).stage == "running"
    ended = reading(INPUT, said("agent.message", "One."), said("agent.message", "Two."), idle(reason))
    assert (ended.stage, ended.reason, ended.answer, ended.stopped) == ("ended", reason, "Two.", False)
    broken = event("span.model_request_end", is_error=True)
    assert reading(INPUT, said("agent.message", "One."), broken).stage == "running"


def test_what_comes_after_the_end_belongs_to_others() -> None:
    others = (said("user.message", "And?", "sevt_next"), said("agent.message", "No."), idle("end_turn"))
    assert reading(INPUT, said("agent.message", "Yes."), idle("end_turn"), *others).answer == "Yes."


def test_calls_wait_only_while_the_last_word_names_them_and_no_result_is_saved() -> None:
    second = event("agent.custom_tool_use", "sevt_second", name="look", input={})
    asks = idle("requires_action", event_ids=["sevt_second", "sevt_call"])
    result = event("user.custom_tool_result", custom_tool_use_id="sevt_call")
    assert reading(INPUT, CALL).stage == "running", "a call alone is no question"
    both = reading(INPUT, CALL, second, asks)
    assert (both.stage, [call["id"] for call in both.pending]) == ("calls", ["sevt_call", "sevt_second"])
    one = reading(INPUT, CALL, second, asks, result)
    assert ([call["id"] for call in one.pending], one.answered) == (["sevt_second"], frozenset({"sevt_call"}))
    assert reading(INPUT, CALL, idle("requires_action", event_ids=["sevt_call"]), result).stage == "running"
    assert reading(INPUT, CALL, asks, event("session.status_running")).stage == "running", "of history, not pending"


def test_a_question_of_another_kind_is_not_answered() -> None:
    built_in = event("agent.tool_use", "sevt_bash", name="bash", input={})
    assert reading(INPUT, built_in, idle("requires_action", event_ids=["sevt_bash"])).stage == "refused_action"
    both = reading(INPUT, CALL, built_in, idle("requires_action", event_ids=["sevt_call", "sevt_bash"]))
    assert both.stage == "refused_action"


def test_a_budget_pauses_and_a_change_of_it_goes_on() -> None:
    pause = idle("budget_reached")
    assert reading(INPUT, pause).stage == "paused"
    assert reading(INPUT, pause, event("session.status_running")).stage == "running"


def test_a_stop_is_proven_by_our_own_interrupt_and_an_idle_after_it() -> None:
    ours = event("user.interrupt", "sevt_stop", "2026-12-01T10:00:05Z")
    after, before = idle("end_turn", at="2026-12-01T10:00:06Z"), idle("end_turn", at="2026-12-01T10:00:04Z")
    mine: dict[str, Any] = {"interrupt": True, "interrupt_id": "sevt_stop"}
    assert reading(INPUT, ours, **mine).stage == "running"
    assert reading(INPUT, ours, after, **mine).stopped
    assert reading(INPUT, ours, after, interrupt=True).interrupt_id == "sevt_stop"
    assert not reading(INPUT, ours, after).stopped, "somebody else's"
    assert not reading(INPUT, ours, after, interrupt=True, interrupt_id="sevt_other").stopped
    assert not reading(INPUT, before, ours, after, **mine).stopped, "it had ended by itself"
    assert not reading(INPUT, ours, before, **mine).stopped, "it was taken up after the end"
    assert not reading(INPUT, {**ours, "processed_at": None}, after, **mine).stopped, "it was never taken up"


def test_a_terminated_session_is_over() -> None:
    error = event("session.error", error={"type": "billing_error", "retry_status": {"type": "terminal"}})
    over = reading(INPUT, error, event("session.status_terminated"))
    assert (over.stage, over.error) == ("terminated", "billing_error")
    strange = event("session.error", error={"type": "my key is sk-1", "retry_status": {"type": "exhausted"}})
    assert reading(INPUT, strange, idle("retries_exhausted")).error == ""


def test_a_category_of_a_refusal_is_a_plain_word_or_nothing() -> None:
    assert reading(INPUT, idle("refusal", stop_details={"category": "cyber"})).category == "cyber"
    assert reading(INPUT, idle("refusal", stop_details={"category": "see http://x"})).category == ""


def test_what_blocks_input_is_the_last_word() -> None:
    assert blocks_input([idle("end_turn"), idle("budget_reached")]) == ""
    assert blocks_input([said("agent.message", "x"), idle("budget_reached")]) == "budget_reached"
    assert blocks_input([idle("requires_action", event_ids=[])]) == "requires_action"
    assert blocks_input([event("session.status_running"), idle("end_turn")]) == "running"


# ---- events ----


def start(event_id: str) -> dict[str, Any]:
    return {"type": "event_start", "event": {"type": "agent.message", "id": event_id}}


def delta(event_id: str, text: str) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    return {"type": "event_delta", "event_id": event_id, "delta": {"type": "content_delta", "content": content}}


def kinds(mapper: TurnMapper, *events: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each.type, each.data.get("text", "")) for given in events for each in mapper.take(given)]


def test_pieces_are_told_only_after_their_beginning_and_before_the_whole() -> None:
    whole = said("agent.message", "Paris.", "sevt_a")
    mapper = TurnMapper()
    told = kinds(mapper, delta("sevt_a", "lost"), start("sevt_a"), delta("sevt_a", "Par"), whole, delta("sevt_a", "is"))
    assert told == [("agent.message.delta", "Par"), ("agent.message.completed", "Paris.")]
    assert kinds(mapper, whole, start("sevt_a"), delta("sevt_a", "Par")) == []


@pytest.mark.parametrize("between", ["reconnected", "ended"])
def test_a_preview_does_not_go_on_over_a_gap_or_a_request_that_broke_off(between: str) -> None:
    mapper = TurnMapper()
    assert kinds(mapper, start("sevt_a"), delta("sevt_a", "Par"))
    if between == "reconnected":
        mapper.reconnected()
    else:
        mapper.take(event("span.model_request_end", is_error=True))
    assert kinds(mapper, delta("sevt_a", "is.")) == []
    assert kinds(mapper, said("agent.message", "Paris.", "sevt_a")) == [("agent.message.completed", "Paris.")]


def test_what_was_told_or_belongs_to_turns_before_is_not_told_again() -> None:
    mapper = TurnMapper()
    old, new = said("agent.message", "Old."), said("agent.message", "New.")
    mapper.earlier([old])
    assert kinds(mapper, old, new, new) == [("agent.message.completed", "New.")]
    nameless = {**event("session.status_rescheduled"), "id": None}
    assert [len(mapper.take(nameless)) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(
    "strange",
    [{}, {"type": None}, {"type": "agent.new_thing", "id": "x"}, {"type": "agent.message"}, {"type": "event_delta"}],
)
def test_what_is_not_known_means_nothing(strange: dict[str, Any]) -> None:
    assert TurnMapper().take(strange) == []


def test_a_failed_tool_is_a_failure_and_a_denied_one_is_told_as_that() -> None:
    mapper = TurnMapper()
    used = event("agent.tool_use", "sevt_t", name="read", input={"path": "x"}, evaluated_permission="deny")
    mapper.take(used)
    [done] = mapper.take(said("agent.tool_result", "No.", tool_use_id="sevt_t", is_error=True))
    assert (done.type, done.data["status"], done.data["error"]) == ("tool.completed", "denied", "No.")


# ---- usage ----


def counted(tokens: int, cents: str = "5", **more: Any) -> dict[str, Any]:
    cost = {"amount": cents, "currency": "USD"}
    created = {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": tokens}
    return snapshot(
        {"input_tokens": tokens, "output_tokens": tokens, "cache_read_input_tokens": tokens, "cache_creation": created,
         "list_cost": cost, "active_seconds": 1.5, **more}
    )  # fmt: skip


def test_a_run_used_what_the_session_used_since() -> None:
    used = difference(counted(10, "5"), counted(25, "9"))
    assert used is not None
    assert (used.input_tokens, used.cached_input_tokens, used.cache_write_input_tokens) == (45, 15, 15)
    assert (used.output_tokens, used.total_tokens) == (15, 60)
    assert used.native is not None
    assert used.native["list_cost"] == {"amount": "4", "currency": "USD", "unit": "minor"}
    assert used.coverage


def test_what_went_down_or_is_missing_is_unknown_and_never_negative() -> None:
    used = difference(counted(10), counted(25, input_tokens=3, list_cost={"amount": "2", "currency": "USD"}))
    assert used is not None
    assert (used.input_tokens, used.total_tokens, used.output_tokens) == (None, None, 15)
    assert used.native is None or "list_cost" not in used.native
    part = difference(counted(10), counted(25, cache_read_input_tokens=2))
    assert part is not None
    assert (part.cached_input_tokens, part.input_tokens) == (None, None), "a sum with an unknown part is unknown"
    lost = difference(counted(10), counted(25, output_tokens=None))
    assert lost is not None
    assert (lost.output_tokens, lost.input_tokens) == (None, 45)
    assert difference(None, counted(25)) is None
    assert difference(counted(10), None) is None
    assert difference(counted(10), {}) is None


def test_a_new_session_has_used_nothing_before() -> None:
    used = difference({}, counted(7))
    assert used is not None
    assert (used.output_tokens, used.total_tokens) == (7, 28)


@pytest.mark.parametrize("odd", [-1, "7", 1.5, True, None])
def test_a_count_that_is_none_is_unknown(odd: Any) -> None:
    used = difference({}, snapshot({"input_tokens": odd, "output_tokens": 3}))
    assert used is not None
    assert (used.input_tokens, used.output_tokens) == (None, 3)


@pytest.mark.parametrize(
    "odd",
    [
        {"list_cost": {"amount": "9e9999999", "currency": "USD"}},
        {"list_cost": {"amount": "1" * 3000, "currency": "USD"}},
        {"list_cost": {"amount": "\u0663", "currency": "USD"}},
        {"list_cost": {"amount": "3", "currency": "\u202eDSU"}},
        {"active_seconds": 10**400},
        {"active_seconds": float("inf")},
        {"active_seconds": float("nan")},
        {"input_tokens": 10**40},
    ],
)
def test_a_count_beyond_all_measure_is_unknown_and_breaks_nothing(odd: dict[str, Any]) -> None:
    used = difference({}, snapshot({"output_tokens": 3, **odd}))
    assert used is not None
    assert (used.input_tokens, used.output_tokens, used.native) == (None, 3, None)


def test_ids_and_times_of_another_form_break_no_reading() -> None:
    asks = idle("requires_action", event_ids=["sevt_call", ["sevt_call"]])
    odd = {**CALL, "id": ["sevt_call"]}
    assert [call["id"] for call in reading(INPUT, odd, CALL, asks).pending] == ["sevt_call"]
    began = event("user.interrupt", processed_at="2026-01-01T00:00:00")
    ends = {**idle("end_turn"), "processed_at": "2026-01-01T00:00:01Z"}
    ended = read((INPUT, began, ends), said="Hi", input_id=INPUT["id"], interrupt=True, interrupt_id=None)
    assert (ended.stage, ended.stopped) == ("ended", True)
