"""Whatever comes in, what goes out decodes on the other side and holds nothing it must not."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from desktop import sanitize
from runtime_host.events import AgentEvent
from runtime_host.storage.base import ItemHead
from ui.wire import dto
from ui.wire.framing import host_encoder, renderer_decoder

ANY_TEXT = st.text(alphabet=st.characters(), max_size=300)  # lone surrogates included


def over_the_wire(*messages: dto.Message) -> list[Any]:
    return [m for frame in renderer_decoder().feed(host_encoder().encode(messages)) for m in frame.messages]


def head(**changes: Any) -> ItemHead:
    values: dict[str, Any] = {
        "item_id": "item-1",
        "session_id": "session-native",
        "run_id": "run-1",
        "position": 0,
        "kind": "reply",
        "state": "complete",
        "text": "",
        "size_chars": 0,
        "created_ms": 1,
        "code": "",
        "detail": "",
    }
    return ItemHead(**{**values, **changes})


@given(ANY_TEXT)
def test_text_keeps_its_length_and_can_be_sent(value: str) -> None:
    clean = sanitize.text(value)
    assert len(clean) == len(value)
    clean.encode("utf-8")
    assert not any(ord(c) < 32 and c not in "\n\t" for c in clean)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, st.integers(-5, 2**53))
def test_any_record_becomes_an_item_that_decodes(text: str, detail: str, code: str, created_ms: int) -> None:
    item = sanitize.item(head(text=text, size_chars=len(text), detail=detail, code=code, created_ms=created_ms))
    sent = over_the_wire(dto.Items(conversation="c", total=1, first=0, items=(item,)))
    assert sent[0].items[0].text == sanitize.text(text)[: dto.TEXT_PIECE_CHARS]


@given(
    st.text(alphabet="ab \u202e\x1b\U0001f40e", min_size=0, max_size=40_000).filter(lambda s: True), st.integers(0, 5)
)
def test_a_delta_of_any_length_arrives_whole_and_in_order(text: str, at: int) -> None:
    event = AgentEvent(
        run_id="run-1",
        session_id="s",
        sequence=1,
        timestamp=datetime.now(UTC),
        type="agent.message.delta",
        data={"id": "item-1", "index": 3, "at": at, "text": text},
    )
    messages = sanitize.event("c1", event)
    sent = over_the_wire(*messages)
    assert isinstance(sent[0], dto.ItemAdded) == (at == 0)
    deltas = [m for m in sent if isinstance(m, dto.ItemDelta)]
    assert "".join(m.text for m in deltas) == sanitize.text(text)
    position = at
    for delta in deltas:
        assert delta.at == position
        position += len(delta.text)


def test_a_providers_id_gets_out_as_a_digest_only() -> None:
    native = "resp_68af0:https://provider.example/acct/4711"
    assert "4711" not in sanitize.wire_id(native)
    assert sanitize.wire_id(native) == sanitize.wire_id(native)
    assert sanitize.wire_id("run_0a1b-2") == "run_0a1b-2"


def test_nothing_but_what_a_message_names_gets_out() -> None:
    event = AgentEvent(
        run_id="run-1",
        session_id="native-session-77",
        sequence=1,
        timestamp=datetime.now(UTC),
        type="agent.message.delta",
        data={"id": "item-1", "index": 0, "at": 0, "text": "hi", "native": "resp_secret", "path": "/home/me/x"},
    )
    wire = host_encoder().encode(sanitize.event("c1", event))
    for hidden in (b"native-session-77", b"resp_secret", b"/home/me"):
        assert hidden not in wire


@pytest.mark.parametrize("kind", ["tool.started", "command.output.delta", "diagnostic", "run.started"])
def test_events_the_window_does_not_show_send_nothing(kind: Any) -> None:
    event = AgentEvent(
        run_id="r", session_id="s", sequence=1, timestamp=datetime.now(UTC), type=kind, data={"id": "x", "text": "t"}
    )
    assert sanitize.event("c", event) == []


def test_a_second_try_is_a_quiet_line() -> None:
    data = {"code": "RETRY", "message": "server is overloaded. It is asked for once more (try 2).", "attempt": 2}
    event = AgentEvent(
        run_id="r", session_id="s", sequence=1, timestamp=datetime.now(UTC), type="diagnostic", data=data
    )
    [notice] = sanitize.event("c", event)
    assert isinstance(notice, dto.Notice)
    assert (notice.level, notice.code, notice.text) == ("info", "RETRY", data["message"])


@given(ANY_TEXT)
def test_a_line_is_one_line_within_its_bound(value: str) -> None:
    line = sanitize.line(value * 10)
    assert len(line) <= 512
    assert "\n" not in line
    line.encode("utf-8")
