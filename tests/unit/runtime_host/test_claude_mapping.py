"""Messages of the Claude CLI to events: whatever comes, in whatever order."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.canonical import freeze
from runtime_host.connectors.base import Connector
from runtime_host.drivers.claude_sdk.activities import own_words
from runtime_host.drivers.claude_sdk.endings import About, Cut, result_of
from runtime_host.drivers.claude_sdk.mapping import DELTA_CHARS, REPLY_CHARS, TurnMapper
from runtime_host.drivers.claude_sdk.naming import native_names, wire_names
from runtime_host.drivers.claude_sdk.usage import counts_in, used
from runtime_host.events import DriverEvent
from runtime_host.results import DriverResult
from runtime_host.testing.driver_contract import DRIVER_EVENTS

NAMES = {"mcp__host__look": "look"}
OWN = frozenset({"Read", "Edit", "Write", "Bash"})
CONNECTOR = Connector(name="mine", vendor="anthropic", base_url="http://127.0.0.1:9")
ABOUT = About(CONNECTOR, "claude-sonnet-5-5", requests=1)


def mapper() -> TurnMapper:
    return TurnMapper(NAMES, own_tools=OWN)


def stream(event: dict[str, Any]) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": None}


def begin(message_id: str = "msg_1") -> dict[str, Any]:
    return stream({"type": "message_start", "message": {"id": message_id}})


def text(piece: str) -> dict[str, Any]:
    return stream({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})


def finish(reason: str = "end_turn") -> dict[str, Any]:
    return stream({"type": "message_delta", "delta": {"stop_reason": reason}})


def block(*content: dict[str, Any], message_id: str = "msg_1", **more: Any) -> dict[str, Any]:
    message = {"id": message_id, "model": "claude-sonnet-5-5", "content": list(content)}
    return {"type": "assistant", "message": message, "uuid": "u", **more}


def use(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def told(call_id: str, content: Any, *, failed: bool = False, **more: Any) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": failed}
    return {"type": "user", "message": {"role": "user", "content": [result]}, **more}


def result(**more: Any) -> dict[str, Any]:
    said = {"type": "result", "subtype": "success", "is_error": False, "terminal_reason": "completed"}
    return {**said, "stop_reason": "end_turn", "modelUsage": {}, **more}


def events(turn: TurnMapper, *messages: dict[str, Any]) -> list[DriverEvent]:
    return [event for message in messages for event in turn.events(message)]


def texts(found: list[DriverEvent], kind: str) -> list[str]:
    return [event.data["text"] for event in found if event.type == kind]


# ------------------------------------------------------------------------------ whatever may come

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
WORDS = st.sampled_from(
    [
        "type", "subtype", "event", "message", "content", "delta", "index", "content_block", "text", "thinking", "id",
        "name", "input", "tool_use", "tool_result", "tool_use_id", "stream_event", "assistant", "user", "system",
        "result", "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
        "text_delta", "thinking_delta", "input_json_delta", "partial_json", "stop_reason", "end_turn", "max_tokens",
        "api_retry", "init", "is_error", "modelUsage", "tools", "Bash", "Edit", "mcp__host__look", "StructuredOutput",
        "tool_use_result", "structuredPatch", "lines", "tool_result_meta", "permission_decision", "errors",
    ]
)  # fmt: skip
JSON = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=5),
    max_leaves=20,
)
SHAPED = st.one_of(
    st.builds(begin, st.text(max_size=4)),
    st.builds(text, st.text(max_size=20)),
    st.builds(finish, WORDS),
    st.builds(lambda content: block(content), st.dictionaries(WORDS, JSON, max_size=5)),
    st.builds(lambda call, name: block(use(call, name)), st.text(max_size=3), WORDS),
    st.builds(lambda call, content, raw: told(call, content, tool_use_result=raw), st.text(max_size=3), JSON, JSON),
    st.builds(lambda more: result(**more), st.dictionaries(WORDS, JSON, max_size=4)),
    st.builds(
        lambda kind, more: {**more, "type": "system", "subtype": kind},
        st.sampled_from(["init", "api_retry", "compact_boundary", "permission_denied"]),
        st.dictionaries(st.sampled_from(["tools", "attempt", "retry_delay_ms", "error_status", "tool_name"]), JSON),
    ),
    st.builds(lambda event: stream(event), st.dictionaries(WORDS, JSON, max_size=5)),
    st.dictionaries(WORDS, JSON, max_size=6),
)


@given(st.lists(SHAPED, max_size=30))
def test_whatever_shape_messages_have_only_events_of_a_driver_come_of_them(messages: list[dict[str, Any]]) -> None:
    turn = mapper()
    found = [*events(turn, *messages), *turn.broken_off()]
    for event in found:
        assert event.type in DRIVER_EVENTS
        freeze(event.data)
    for begun, ended in (
        ("command.started", "command.completed"),
        ("file.change.started", "file.changed"),
        ("tool.started", "tool.completed"),
    ):
        assert sorted(ids(found, begun)) == sorted(ids(found, ended)), "an activity did not end once"
    for cut in (None, *get_args(Cut)):
        assert isinstance(result_of(turn, ABOUT, cut), DriverResult)


def ids(found: list[DriverEvent], kind: str) -> list[str]:
    return [event.data["id"] for event in found if event.type == kind]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=8), st.booleans())
def test_pieces_are_the_reply_whether_or_not_a_block_repeats_them(pieces: list[str], repeated: bool) -> None:
    turn = mapper()
    whole = [block({"type": "text", "text": "".join(pieces)})] if repeated else []
    found = events(turn, begin(), *map(text, pieces), *whole, finish(), result())
    joined = "".join(texts(found, "agent.message.delta"))
    assert texts(found, "agent.message.completed") == ([joined] if joined else [])
    assert turn.text == joined


@given(st.text(min_size=1, max_size=40))
def test_a_reply_that_came_as_a_block_alone_is_told_once(whole: str) -> None:
    turn = mapper()
    found = events(turn, block({"type": "text", "text": whole}), result())
    assert len(texts(found, "agent.message.completed")) == 1
    assert turn.replies == 1


def test_a_long_piece_is_told_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = mapper()
    found = events(turn, begin(), text("x" * (2 * DELTA_CHARS + 1)))
    assert [len(each) for each in texts(found, "agent.message.delta")] == [DELTA_CHARS, DELTA_CHARS, 1]
    assert not turn.too_long
    events(turn, text("x" * REPLY_CHARS))
    assert turn.too_long
    assert result_of(turn, ABOUT, "too-long").status == "incomplete"


# ------------------------------------------------------------------------------------ what is torn


def test_a_retry_before_anything_was_shown_is_told_and_one_after_it_ends_the_run() -> None:
    turn = mapper()
    retry = {"type": "system", "subtype": "api_retry", "attempt": 1, "retry_delay_ms": 500.4, "error_status": 529}
    [event] = events(turn, begin(), retry)
    assert (event.data["code"], event.data["attempt"], event.data["wait_ms"]) == ("RETRY", 2, 500)
    assert events(turn, begin("msg_2"), text("Half")) != []
    assert events(turn, retry) == []
    assert turn.torn
    ended = result_of(turn, ABOUT, "torn")
    assert (ended.status, ended.finish_reason, ended.output_text) == ("failed", "stream_incomplete", "Half")


def test_a_call_that_was_shown_counts_as_shown() -> None:
    turn = mapper()
    start = {"type": "content_block_start", "index": 0, "content_block": use("t1", "mcp__host__look")}
    found = events(turn, begin(), stream(start), {"type": "system", "subtype": "api_retry"})
    assert [event.data["stage"] for event in found] == ["arguments-started"]
    assert turn.torn


def test_a_new_beginning_in_the_middle_of_a_reply_is_none() -> None:
    turn = mapper()
    found = events(turn, begin(), text("Half"), begin("msg_2"))
    assert turn.torn
    assert texts(found, "agent.message.completed") == []


def test_words_of_the_cli_s_own_faults_are_no_reply() -> None:
    turn = mapper()
    fault = block({"type": "text", "text": "API Error: 529 key sk-1"}, message_id="x", is_api_error_message=True)
    ended = result(is_error=True, api_error_status=529, terminal_reason="api_error", result="API Error: sk-1")
    assert texts(events(turn, fault, ended), "agent.message.delta") == []
    failed = result_of(turn, ABOUT, None)
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.code == "PROVIDER_UNAVAILABLE"
    assert "sk-1" not in failed.model_dump_json()


@pytest.mark.parametrize(
    "said",
    [
        {"is_error": True},
        {"subtype": "error_during_execution"},
        {"terminal_reason": "aborted_streaming"},
        {"terminal_reason": ""},
    ],
)
def test_a_success_is_one_in_every_place_that_says_so(said: dict[str, Any]) -> None:
    turn = mapper()
    events(turn, begin(), text("Done."), finish(), result(**said))
    assert result_of(turn, ABOUT, None).status == "failed"
    assert result_of(turn, ABOUT, "stopped").status == "cancelled"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"subtype": "error_max_turns", "terminal_reason": "max_turns", "is_error": True}, "max_turns"),
        ({"subtype": "error_max_budget_usd", "terminal_reason": "budget_exhausted", "is_error": True}, "max_cost"),
        ({"api_error": "max_output_tokens", "terminal_reason": "api_error", "is_error": True}, "length"),
        ({"stop_reason": "refusal", "terminal_reason": "api_error", "is_error": True}, "refusal"),
    ],
)
def test_a_bound_makes_a_run_incomplete(said: dict[str, Any], reason: str) -> None:
    turn = mapper()
    events(turn, begin(), text("So far."), finish(), result(**said))
    ended = result_of(turn, ABOUT, None)
    assert (ended.status, ended.finish_reason, ended.output_text) == ("incomplete", reason, "So far.")


def test_length_that_ran_out_makes_one_reply_of_two() -> None:
    turn = mapper()
    found = events(
        turn, begin(), text("The capital"), finish("max_tokens"), begin("m2"), text(" is"), finish(), result()
    )
    assert texts(found, "agent.message.completed") == ["The capital is"]


def test_a_null_that_a_schema_asked_for_is_not_made_up() -> None:
    turn = mapper()
    events(turn, begin(), text("Talk."), finish(), result(structured_output={"n": None}))
    assert json.loads(result_of(turn, ABOUT, None).output_text) == {"n": None}


# ------------------------------------------------------------------------------------- its own tools


def test_a_command_tells_its_output_and_how_it_ended() -> None:
    turn = mapper()
    messages = [
        block(use("b1", "Bash", command="make"), message_id="m"),
        told("b1", "Exit code 2\nno rule", failed=True),
        block(use("b2", "Bash", command="ls"), message_id="m2"),
        told("b2", "a\n", tool_use_result={"stdout": "a", "stderr": "odd", "interrupted": False}),
        block(use("b3", "Bash", command="rm -rf /"), message_id="m3"),
        told("b3", "no", failed=True, tool_result_meta=[{"id": "b3", "permission_decision": {"decision": "reject"}}]),
        block(use("b4", "Bash", command="sleep 9"), message_id="m4"),
        result(),
    ]
    found = [event.data for event in events(turn, *messages) if event.type == "command.completed"]
    assert [(each["exit_code"], each["output"], each["status"]) for each in found] == [
        (2, "no rule", "completed"),
        (0, "a\nodd", "completed"),
        (None, "no", "declined"),
        (None, "", "interrupted"),
    ]


def test_a_change_tells_its_diff_and_becomes_an_artifact_once() -> None:
    turn = mapper()
    hunk = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-a", "+b"]}
    created = {"type": "create", "content": "a\n", "structuredPatch": []}
    messages = [
        block(use("w1", "Write", file_path="/w/a"), message_id="m"),
        told("w1", "done", tool_use_result=created),
        block(use("e1", "Edit", file_path="/w/a"), message_id="m2"),
        told("e1", "done", tool_use_result={"structuredPatch": [hunk]}),
        block(use("e2", "Edit", file_path="/w/b"), message_id="m3"),
        told("e2", "not found", failed=True),
        result(),
    ]
    found = [event.data for event in events(turn, *messages) if event.type == "file.changed"]
    assert [(each["change"], each["status"], each.get("diff")) for each in found] == [
        ("created", "completed", "@@ -0,0 +1,1 @@\n+a"),
        ("modified", "completed", "@@ -1,1 +1,1 @@\n-a\n+b"),
        ("modified", "failed", None),
    ]
    [artifact] = turn.activities.artifacts
    assert (artifact.path, artifact.change) == ("/w/a", "created")


# -------------------------------------------------------------------------------------------- counts

COUNTS = st.dictionaries(
    st.sampled_from(["one", "two"]),
    st.dictionaries(
        st.sampled_from(["inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "outputTokens", "costUSD"]),
        st.integers(min_value=-3, max_value=100) | st.floats() | st.text(max_size=2),
        max_size=5,
    ),
)


@given(COUNTS, COUNTS)
def test_usage_is_never_negative_and_what_is_not_known_is_none(before: Any, after: Any) -> None:
    usage = used(counts_in(before), counts_in(after))
    for count in usage.model_dump(exclude={"coverage", "native"}).values():
        assert count is None or count >= 0
    freeze(usage.model_dump())


def test_usage_is_the_difference_over_all_models() -> None:
    one = {"inputTokens": 10, "cacheReadInputTokens": 5, "cacheCreationInputTokens": 6, "outputTokens": 8}
    two = {name: 2 * count for name, count in one.items()}
    usage = used(counts_in({"a": one}), counts_in({"a": two, "b": one}))
    assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens, usage.total_tokens) == (42, 10, 16, 58)
    assert used(counts_in({"a": two}), counts_in({"a": one})).input_tokens is None


# --------------------------------------------------------------------------------------------- names


@given(st.lists(st.text(min_size=1, max_size=60), unique=True, max_size=8))
def test_every_tool_has_a_name_of_its_own_that_the_model_may_call(tools: list[str]) -> None:
    wires = wire_names(tools)
    assert len(set(wires.values())) == len(tools)
    for name in native_names(tools).values():
        assert len(name) <= 64
        assert name.replace("_", "").replace("-", "").isalnum()


def test_a_name_that_fits_stays() -> None:
    assert list(_wires("look", "look around")) == [
        "look",
        "look_around_" + wire_names(["look around"])["look around"][-10:],
    ]


def _wires(*tools: str) -> Iterator[str]:
    yield from wire_names(tools).values()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("<tool_use_error>File does not exist.</tool_use_error>", "File does not exist."),
        ("PreToolUse:Read hook error: This path leads out.", "This path leads out."),
        ("PreToolUse:Read hook error: [callback]: This path leads out.", "This path leads out."),
        ("a <tool_use_error> in the middle", "a <tool_use_error> in the middle"),
    ],
)
def test_a_failure_is_told_without_the_marks_that_are_for_the_model(said: str, told: str) -> None:
    assert own_words(said) == told
