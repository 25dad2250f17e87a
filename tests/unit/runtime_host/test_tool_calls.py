"""Tool calls as servers stream them: however they are cut and numbered, the same calls come out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.drivers.native.mapping import ReplyMapper, _object_text, _sum, round_messages, rounds
from runtime_host.events import DriverEvent
from runtime_host.loop.model_apis.chat_frames import FrameReader
from runtime_host.loop.model_apis.pieces import Answer, Call, EndReason, Finished, ModelFault, TextPiece
from runtime_host.loop.model_apis.reading import MAX_ARGUMENTS_CHARS, MAX_TOOL_CALLS
from runtime_host.loop.model_apis.sse import ServerEvent
from runtime_host.results import Usage
from runtime_host.tools.base import EarlierCall, ToolDelivery, ToolRequest


def read(*entries: Any, reason: str = "tool_calls", offered: bool = True) -> tuple[ReplyMapper, list[DriverEvent]]:
    """What becomes of tool-call entries, one frame each."""
    reader, reply = FrameReader(), ReplyMapper()
    reply.begin(offered=offered)
    events: list[DriverEvent] = []
    frames = [{"choices": [{"delta": {"tool_calls": [entry]}}]} for entry in entries]
    for frame in [*frames, {"choices": [{"delta": {}, "finish_reason": reason}]}]:
        for piece in reader.read(ServerEvent("", json.dumps(frame).encode())):
            events.extend(reply.events(piece))
    events.extend(reply.closing_events())
    return reply, events


def entry(arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """One entry; only what is given is in it."""
    function = {key: fields.pop(key) for key in ("name",) if key in fields}
    if arguments is not None:
        function["arguments"] = arguments
    return {**fields, "function": function}


def asked(reply: ReplyMapper) -> list[tuple[str, str, str]]:
    return [request[:3] for request in reply.requests()]


@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3), min_size=1, max_size=4),
    st.data(),
)
def test_pieces_in_any_cut_and_mixture_give_the_same_calls(calls: list[dict[str, str]], data: st.DataObject) -> None:
    texts = [json.dumps(arguments, ensure_ascii=False) for arguments in calls]
    queues = []
    for index, text in enumerate(texts):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        opening = entry(pieces[0], index=index, id=f"c{index}", name="look")
        queues.append([opening, *(entry(piece, index=index) for piece in pieces[1:])])
    mixed = []
    while any(queues):
        mixed.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    reply, events = read(*mixed)
    expected = {(f"c{index}", "look", text) for index, text in enumerate(texts)}
    assert set(asked(reply)) == expected
    for call_id, _, text in expected:
        deltas = [event.data for event in events if event.type == "tool.progress" and event.data["id"] == call_id]
        assert [each["stage"] for each in deltas][:: max(1, len(deltas) - 1)] == [
            "arguments-started",
            "arguments-completed",
        ]
        assert "".join(each.get("delta", "") for each in deltas) == text


@pytest.mark.parametrize(
    ("entries", "calls"),
    [
        # Each whole, without an index.
        ([entry("{}", id="a", name="x"), entry("{}", id="b", name="x")], [("a", "x", "{}"), ("b", "x", "{}")]),
        # One index for all of them.
        (
            [entry("{}", id="a", name="x", index=0), entry("{}", id="b", name="y", index=0)],
            [("a", "x", "{}"), ("b", "y", "{}")],
        ),
        # The id and the name again in each piece.
        (
            [entry('{"a"', id="a", name="x", index=0), entry(":1}", id="a", name="x", index=0)],
            [("a", "x", '{"a":1}')],
        ),
        # No index at all, the rest of the arguments alone.
        ([entry('{"a"', id="a", name="x"), entry(":1}")], [("a", "x", '{"a":1}')]),
        # No id.
        ([entry("{}", name="x"), entry("{}", name="x")], [("call-1-1", "x", "{}"), ("call-1-2", "x", "{}")]),
        # Twice the same is once.
        ([entry("{}", id="a", name="x", index=0), entry("{}", id="a", name="x", index=1)], [("a", "x", "{}")]),
        # What is of no kind we know.
        ([7, None, {"function": "x"}, {"id": 5, "function": {"name": 1, "arguments": 2}}], [("call-1-1", "", "")]),
    ],
)
def test_servers_number_calls_in_their_own_ways(entries: list[Any], calls: list[tuple[str, str, str]]) -> None:
    assert asked(read(*entries)[0]) == calls


@pytest.mark.parametrize("reason", ["length", "content_filter", "error", "odd"])
def test_calls_of_a_reply_that_did_not_come_to_its_end_are_none(reason: str) -> None:
    assert asked(read(entry("{}", id="a", name="x"), reason=reason)[0]) == []


def test_calls_are_none_where_no_tool_was_offered() -> None:
    reply, events = read(entry("{}", id="a", name="x"), offered=False)
    assert asked(reply) == []
    assert events == []


def test_calls_without_measure_are_refused() -> None:
    with pytest.raises(ModelFault):
        read(*(entry("{}", id=str(number), name="x") for number in range(MAX_TOOL_CALLS + 1)))
    with pytest.raises(ModelFault):
        read(entry("x" * MAX_ARGUMENTS_CHARS, id="a", name="x", index=0), entry("x", index=0))


def test_each_reply_is_a_message_of_its_own_and_tokens_add_up() -> None:
    reply = ReplyMapper()
    said = []
    for text in ("One.", "Two."):
        reply.begin(offered=True)
        for piece in (TextPiece(text), Finished(EndReason.STOP)):
            said += [event.data["id"] for event in reply.events(piece)]
        said += [event.data["id"] for event in reply.closing_events() if event.type == "agent.message.completed"]
    assert said == ["reply-1", "reply-1", "reply-2", "reply-2"]
    assert reply.text == "Two."
    assert _sum(None, Usage(input_tokens=1)) == Usage(input_tokens=1)
    assert _sum(Usage(input_tokens=1, output_tokens=2), Usage(input_tokens=3)) == Usage(input_tokens=4)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [('{"a": 1}', '{"a": 1}'), ("", "{}"), ("[1]", "{}"), ('{"a"', "{}"), ("[" * 100_000, "{}")],
)  # fmt: skip
def test_arguments_go_back_as_an_object(arguments: str, sent: str) -> None:
    assert _object_text(arguments) == sent


def test_earlier_calls_are_told_in_their_rounds() -> None:
    def request(call_id: str, number: int, **more: Any) -> ToolRequest:
        return ToolRequest(call_id, "look", "{}", {"round": number, **more})

    told = ToolDelivery("a", "look", "{}", True, "rain", None)
    first, second = rounds(
        [
            EarlierCall(request("a", 1, said="Let me look."), told),
            EarlierCall(request("b", 2, said="And again."), None),
            EarlierCall(request("c", 2), None),
        ]
    )
    assert (first.said, first.told) == ("Let me look.", (told,))
    assert (second.said, [each.call_id for each in second.requests], second.told) == ("And again.", ["b", "c"], ())
    asked_for, answered = round_messages(first.said, first.told)
    assert (asked_for.text, asked_for.calls) == ("Let me look.", (Call("a", "look", "{}"),))
    assert answered.answers == (Answer("a", "rain"),)
