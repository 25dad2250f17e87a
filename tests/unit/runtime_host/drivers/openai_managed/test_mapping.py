"""OpenAI's events and saved items as events of a run."""

import itertools
import json
from typing import Any

import pytest

from runtime_host.drivers.openai_managed import mapping, words
from runtime_host.drivers.openai_managed.mapping import TurnMapper
from runtime_host.events import DriverEvent
from runtime_host.tools.base import ToolDelivery

NUMBERS = itertools.count()


def _event(kind: str, **more: Any) -> dict[str, Any]:
    return {"event_id": f"e{next(NUMBERS)}", "type": kind, "session_id": "s", **more}


def _of_turn(kind: str, turn_id: str = "t", **more: Any) -> dict[str, Any]:
    return _event(f"agent.session.turn.{kind}", turn_id=turn_id, **more)


def _message(item_id: str, words_: str, phase: str | None = "final_answer", **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": words_}]
    said = {"id": item_id, "type": "message", "role": "assistant", "phase": phase, "content": content}
    return {**said, "status": "completed", "turn_id": "t", **more}


def _delta(item_id: str, piece: str, turn_id: str = "t", **more: Any) -> dict[str, Any]:
    about = {"item_id": item_id, "output_index": 0, "content_index": 0, "delta": piece}
    return _of_turn("output_text.delta", turn_id, **{**about, **more})


def _told(mapper: TurnMapper, *events: dict[str, Any]) -> list[DriverEvent]:
    return [told for event in events for told in mapper.event(event)]


def _texts(events: list[DriverEvent]) -> list[tuple[str, str]]:
    return [(event.type.removeprefix("agent.message."), event.data["text"]) for event in events]


def test_a_reply_is_told_in_pieces_and_then_whole_with_its_phase() -> None:
    begun = _message("m", "", "commentary", status="in_progress", content=[])
    events = _told(
        TurnMapper("t"),
        _of_turn("item.added", item=begun),
        _delta("m", "Par"),
        _delta("m", "is"),
        _of_turn("item.done", item=_message("m", "Paris", "commentary")),
    )
    assert _texts(events) == [("delta", "Par"), ("delta", "is"), ("completed", "Paris")]
    assert {event.data["phase"] for event in events} == {"commentary"}


def test_what_comes_twice_is_told_once() -> None:
    mapper, piece = TurnMapper("t"), _delta("m", "Hello")
    done = _of_turn("item.done", item=_message("m", "Hello"))
    again = _of_turn("item.done", item=_message("m", "Hello"))
    assert _texts(_told(mapper, piece, piece, done, done, again)) == [("delta", "Hello"), ("completed", "Hello")]
    assert mapper.saved([_message("m", "Hello")]) == []


def test_a_piece_after_the_end_of_its_item_is_left_out() -> None:
    mapper = TurnMapper("t")
    assert _texts(_told(mapper, _of_turn("item.done", item=_message("m", "All")), _delta("m", "l"))) == [
        ("completed", "All")
    ]


def test_of_what_was_open_over_a_gap_only_the_whole_is_told() -> None:
    mapper = TurnMapper("t")
    _told(mapper, _delta("m", "One "))
    mapper.gap()
    assert _told(mapper, _delta("m", "three"), _delta("new", "middle")) == []
    assert _texts(mapper.saved([_message("m", "One two three")])) == [("completed", "One two three")]


def test_nothing_of_another_turn_is_told() -> None:
    mapper = TurnMapper("t")
    other = _message("x", "From a subagent", turn_id="sub")
    events = _told(mapper, _delta("x", "From", "sub"), _of_turn("item.done", "sub", item=other))
    assert events == []
    _told(mapper, _of_turn("completed", "sub", turn={"id": "sub", "subagent_id": "a", "status": "completed"}))
    assert mapper.roots == []


def test_events_before_the_turn_is_known_wait_for_it() -> None:
    mapper = TurnMapper()
    created = _of_turn("created", turn={"id": "t", "subagent_id": None, "status": "queued"})
    assert _told(mapper, created, _delta("m", "Hel"), _delta("x", "no", "sub")) == []
    assert mapper.roots == ["t"]
    assert _texts(mapper.now("t")) == [("delta", "Hel")]


def test_an_unknown_kind_is_remarked_once_and_changes_nothing() -> None:
    mapper = TurnMapper("t")
    events = _told(mapper, _event("agent.session.turn.novelty", turn_id="t"), {"type": ""}, _event("other.thing"))
    assert [event.data["code"] for event in events] == ["EVENT_UNKNOWN"]
    assert not mapper.wants_a_look


def test_an_error_frame_is_a_remark_and_asks_for_a_look() -> None:
    mapper = TurnMapper("t")
    canary = "sk-canary-1234567890"
    events = _told(mapper, _event("error", error={"type": canary, "code": "server_overloaded", "message": canary}))
    assert [(event.type, event.data["code"]) for event in events] == [("diagnostic", "PROVIDER_ERROR")]
    assert canary not in json.dumps([event.data for event in events])
    assert mapper.wants_a_look


@pytest.mark.parametrize("kind", ["requires_action", "idle", "failed", "turn.completed", "turn.cancelled"])
def test_states_only_ask_for_a_look(kind: str) -> None:
    mapper = TurnMapper("t")
    assert _told(mapper, _event(f"agent.session.{kind}", turn_id="t", session={"id": "s"})) == []
    assert mapper.wants_a_look


def test_a_command_is_told_with_its_output_and_end() -> None:
    command = {"id": "c", "type": "command_execution", "command": "ls", "status": "in_progress", "turn_id": "t"}
    output = _event("agent.output.command_execution_output.delta", item_id="c", delta="a\n", turn_id="t")
    done = {**command, "status": "failed", "exit_code": 2, "output": "a\n", "duration_ms": 3}
    events = _told(TurnMapper("t"), _of_turn("item.added", item=command), output, _of_turn("item.done", item=done))
    assert [event.type for event in events] == ["command.started", "command.output.delta", "command.completed"]
    assert (events[-1].data["status"], events[-1].data["exit_code"]) == ("completed", 2)
    assert [e.type for e in TurnMapper("t").saved([done])] == ["command.started", "command.completed"]


def test_a_summary_of_reasoning_is_told_part_by_part() -> None:
    piece = _of_turn("reasoning_summary_text.delta", item_id="r", summary_index=1, delta="Hm")
    summary = [{"type": "summary_text", "text": "First"}, {"type": "summary_text", "text": "Hm"}]
    item = {"id": "r", "type": "reasoning", "summary": summary, "status": "completed", "turn_id": "t"}
    events = _told(TurnMapper("t"), piece, _of_turn("item.done", item=item))
    assert [(e.type, e.data["id"], e.data["text"]) for e in events] == [
        ("reasoning.delta", "r/1", "Hm"),
        ("reasoning.completed", "r/0", "First"),
        ("reasoning.completed", "r/1", "Hm"),
    ]


def test_the_answer_is_made_of_final_messages_alone() -> None:
    items = [
        _message("a", "Looking.", "commentary"),
        _message("b", "Cut", status="incomplete"),
        _message("c", "Paris."),
        _message("d", " Sure.", None),
        _message("e", "Sub", turn_id="sub"),
        {"id": None, "type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    ]
    assert mapping.answer_of(items, "t") == "Paris. Sure."


def test_calls_are_those_that_the_session_waits_for_in_this_turn() -> None:
    call: dict[str, Any] = {
        "type": "function_call",
        "call_id": "1",
        "name": "look",
        "arguments": {"city": "Paris"},
        "turn_id": "t",
    }
    actions: list[dict[str, Any]] = [
        call,
        {**call, "call_id": "2", "turn_id": "other"},
        {"type": "mcp_approval_request", "turn_id": "t"},
    ]
    [request] = mapping.pending_calls(actions, "t")
    assert (request.call_id, json.loads(request.arguments)) == ("1", {"city": "Paris"})
    assert mapping.other_actions(actions) == ["mcp_approval_request"]


def test_a_failure_of_a_tool_is_told_as_one() -> None:
    failed = ToolDelivery("1", "look", "{}", False, None, "No such city.")
    assert mapping.tool_result("t", failed, None) == {
        "type": "agent.session.input.tool_result",
        "turn_id": "t",
        "call_id": "1",
        "success": False,
        "error": "No such city.",
    }
    told = mapping.tool_result("t", ToolDelivery("1", "look", "{}", True, {"a": 1}, None), {"a": 1})
    assert (told["success"], json.loads(told["output"])) == (True, {"a": 1})


def test_artifacts_are_those_of_the_turn_under_a_name_that_leads_nowhere() -> None:
    mine = {"id": "f", "path": "/workspace/outputs/../../etc/pass wd\u202e.txt", "session_id": "s", "turn_id": "t"}
    listing = [
        {**mine, "environment_id": "e"},
        {**mine, "environment_id": "e", "turn_id": "before"},
        {**mine, "environment_id": "foreign"},
        {**mine, "environment_id": "e", "session_id": "foreign"},
    ]
    [artifact] = mapping.artifacts_of(listing, session_id="s", turn_id="t", environment_id="e")
    assert (artifact.type, artifact.name, artifact.reference) == ("reference", "pass wd_.txt", "f")
    assert [mapping.safe_name(path) for path in ("/a/..", "", "/a/.hidden")] == ["file", "file", "hidden"]


def test_every_code_of_a_failed_turn_has_words_of_its_own() -> None:
    canary = "sk-canary-1234567890"
    for code in words.TURN_ERROR_CODES:
        error = words.turn_error({"error": {"code": code, "message": canary}})
        assert error.details == {"provider_code": code}
        assert canary not in error.message
    unknown = words.turn_error({"error": {"code": canary, "message": canary}})
    assert canary not in unknown.model_dump_json()


def test_usage_that_is_not_told_is_not_known() -> None:
    assert mapping.usage_of({"usage": None}) is None
    usage = mapping.usage_of({"usage": {"input_tokens": 3, "output_tokens": -1, "total_tokens": "7"}})
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (3, None, None)
