"""What a reply of a hostile server costs while it is read."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from runtime_host.loop.model_apis import chat_frames, messages_frames, responses_frames
from runtime_host.loop.model_apis.pieces import Kept, ModelFault, ToolCallPiece
from runtime_host.loop.model_apis.reading import MAX_NAME_CHARS
from runtime_host.loop.model_apis.sse import ServerEvent

LONG = "x" * 4_000_000
Frames = list[dict[str, Any]]


def event(frame: dict[str, Any]) -> ServerEvent:
    return ServerEvent("", json.dumps(frame).encode())


def delta(**said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said}]}


def detail(text: str) -> dict[str, Any]:
    return delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": text}])


def signature(text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": text}}


THINKING = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "Hm."}}
CALL = {"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("reader", "before", "piece", "after"),
    [
        (
            chat_frames.FrameReader,
            [],
            detail,
            [{"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}],
        ),
        (
            messages_frames.FrameReader,
            [THINKING],
            signature,
            [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}],
        ),
    ],
    ids=["chat-completions", "messages"],
)
def test_another_piece_does_not_cost_what_came_before(
    reader: type[Any], before: Frames, piece: Callable[[str], dict[str, Any]], after: Frames
) -> None:
    """Else a server that sends much at once and then sign by sign holds up the whole program."""
    reading = reader()
    for frame in [*before, piece(LONG)]:
        reading.read(event(frame))
    small = event(piece("y"))
    tracemalloc.start()
    try:
        for _ in range(3):
            reading.read(small)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < len(LONG) / 10
    [kept] = [each for frame in after for each in reading.read(event(frame)) if isinstance(each, Kept)]
    assert LONG + "yyy" in [value for entry in kept.entries for value in _texts(entry)], "it goes back as it came"


def _texts(entry: Any) -> list[Any]:
    if isinstance(entry, dict):
        return [text for value in entry.values() for text in _texts(value)]
    return [text for value in entry for text in _texts(value)] if isinstance(entry, list) else [entry]


def chat_call(call_id: str, name: str) -> Frames:
    return [delta(tool_calls=[{"index": 0, "id": call_id, "function": {"name": name, "arguments": ""}}])]


def messages_call(call_id: str, name: str) -> Frames:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return [{"type": "content_block_start", "index": 0, "content_block": block}]


def responses_call(call_id: str, name: str) -> Frames:
    item = {"type": "function_call", "call_id": call_id, "name": name}
    return [{"type": "response.output_item.added", "output_index": 0, "item": item}]


@pytest.mark.parametrize(
    ("reader", "call"),
    [
        (chat_frames.FrameReader, chat_call),
        (messages_frames.FrameReader, messages_call),
        (responses_frames.FrameReader, responses_call),
    ],
    ids=["chat-completions", "messages", "responses"],
)
def test_ids_and_names_of_tool_calls_have_a_bound(reader: type[Any], call: Callable[[str, str], Frames]) -> None:
    long = "n" * MAX_NAME_CHARS
    [piece] = reader().read(event(call(long, "look")[0]))
    assert isinstance(piece, ToolCallPiece)
    assert (piece.call_id, piece.name) == (long, "look")
    for call_id, name in ((long + "n", "look"), ("c", long + "n")):
        with pytest.raises(ModelFault, match="PROVIDER_MALFORMED"):
            reader().read(event(call(call_id, name)[0]))
