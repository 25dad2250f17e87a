"""What a harness did reaches the window as cards: what it folds from the events is what the store says."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desktop import sanitize
from runtime_host.events import AgentEvent, DriverEvent
from runtime_host.storage.base import ItemHead
from runtime_host.testing import Script, reply
from tests.unit.runtime_host.stage import Stage, all_events
from ui.wire import dto
from ui.wire.framing import HOST_FRAME_BYTES, host_encoder, renderer_decoder

RUN: dict[str, Any] = {
    "run_id": "run-1",
    "session_id": "s",
    "sequence": 1,
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
}
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KINDS = ["plan", "command", "tool", "change"]
TYPES: Any = [
    "plan.updated",
    "command.started",
    "command.output.delta",
    "command.completed",
    "tool.started",
    "tool.progress",
    "tool.completed",
    "file.change.started",
    "file.changed",
    "diagnostic",
]
MEMBERS = [
    *("command", "name", "arguments", "path", "change", "items", "status", "output", "result", "diff", "message"),
    *("exit_code", "duration_ms", "error", "detail", "code", "about", "steps", "cut", "opened", "completed", "added"),
]


def over_the_wire(*messages: dto.Message) -> list[Any]:
    return [m for frame in renderer_decoder().feed(host_encoder().encode(messages)) for m in frame.messages]


def head(kind: Any, about: Any, text: str = "", **changes: Any) -> ItemHead:
    return ItemHead("i", "s", "run-1", 0, kind, "complete", text, len(text), 1, "", "", about)._replace(**changes)


class Window:
    """The items as a window has them that was told the events."""

    def __init__(self) -> None:
        self.items: dict[str, dto.Item] = {}
        self.texts: dict[str, str] = {}

    def take(self, message: Any) -> None:
        match message:
            case dto.ItemAdded(item=item):
                assert item.id not in self.items
                self.items[item.id], self.texts[item.id] = item, item.text
            case dto.ItemDelta(item=name, at=at, text=text):
                assert len(self.texts[name]) == at
                self.texts[name] += text
            case dto.ItemCard(item=name, card=card):
                self.items[name] = msgspec.structs.replace(self.items[name], card=card)
            case dto.ItemDone():
                known = self.items[message.item]
                self.items[message.item] = msgspec.structs.replace(
                    known,
                    state=message.state,
                    code=message.code,
                    detail=message.detail,
                    size_chars=message.size_chars,
                    card=message.card or known.card,
                )


WORK = [
    DriverEvent("plan.updated", {"id": "p", "items": [{"text": "Look", "status": "active"}], "completed": False}),
    DriverEvent("command.started", {"id": "c", "command": "make all"}),
    DriverEvent("command.output.delta", {"id": "c", "text": "\x1b[32m10%\r"}),
    DriverEvent("command.output.delta", {"id": "c", "text": "100%\x1b[0m\n" * 3_000}),
    DriverEvent("tool.progress", {"id": "t", "name": "look", "stage": "arguments-started"}),
    DriverEvent("tool.started", {"id": "t", "name": "look", "arguments": {"city": "Paris"}}),
    *reply("So far.", pieces=3),
    DriverEvent("tool.completed", {"id": "t", "name": "look", "result": {"w": 1}, "error": None, "duration_ms": 7}),
    DriverEvent("command.completed", {"id": "c", "command": "make all", "output": None, "exit_code": 2, "status": "x"}),
    DriverEvent("file.change.started", {"id": "f", "path": "a.txt", "change": "created"}),
    DriverEvent(
        "file.changed",
        {"id": "f", "path": "a.txt", "change": "created", "status": "completed", "diff": "+++ b\n+x\n"},
    ),
    DriverEvent("command.completed", {"id": "d", "command": "id", "output": "", "exit_code": None, "status": "denied"}),
    DriverEvent("tool.completed", {"id": "u", "name": "odd", "result": None, "error": "It broke."}),
    DriverEvent("diagnostic", {"code": "W", "level": "warning", "message": "Denials are not reported."}),
    DriverEvent("plan.updated", {"id": "p", "items": [{"text": "Look", "status": "done"}], "completed": True}),
    DriverEvent("tool.started", {"id": "never ended", "name": "wait", "arguments": {}}),
    *reply("Done.", item_id="m2"),
]


async def test_what_the_window_folds_is_what_the_store_says() -> None:
    async with Stage(Script(WORK)) as stage:
        session = await stage.open()
        run = await session.run("Go")
        await run.result()
        heads = (await session.items(0, 100, 100_000))[1:]
        events = await all_events(run)
    window = Window()
    for message in over_the_wire(*(m for event in events for m in sanitize.event("c", event))):
        window.take(message)
    stored = [sanitize.item(each) for each in heads]
    told = sorted(window.items.values(), key=lambda item: [each.id for each in stored].index(item.id))
    assert [item.kind for item in stored].count("command") == 2
    for item, live in zip(stored, told, strict=True):
        assert window.texts[item.id] == sanitize.text_of(item.kind, _whole(heads, item.id))
        plain = {"text": "", "created_ms": 0, "size_chars": live.size_chars or item.size_chars}
        assert msgspec.structs.replace(live, **plain) == msgspec.structs.replace(item, **plain)
    cards = [item.card for item in stored]
    assert dto.PlanCard(steps=(dto.PlanStep(text="Look", state="done"),)) in cards
    assert dto.CommandCard(command="make all", exit_code=2) in cards
    assert dto.ToolCard(name="look", arguments='{"city":"Paris"}', duration_ms=7) in cards
    assert dto.ChangeCard(path="a.txt", change="created", added=1) in cards


def _whole(heads: list[ItemHead], name: str) -> str:
    return next(each.text for each in heads if each.item_id == name)


@given(st.sampled_from(TYPES), st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=8), st.booleans())
@settings(max_examples=200)
def test_whatever_an_event_says_what_gets_out_decodes(type_: Any, data: dict[str, Any], ended: bool) -> None:
    base: dict[str, Any] = {"id": "run-1.2", "index": 2, "at": 0, "text": "\x1b\x00\x9b\u202e"}
    if ended:
        base |= {"state": "complete", "size_chars": 3}
    event = AgentEvent(**RUN, type=type_, data={**data, **base})
    over_the_wire(dto.Notice(id="n", level="info", code="N", text=""), *sanitize.event("c", event))


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=8), st.text(max_size=50))
@settings(max_examples=200)
def test_whatever_is_known_of_a_thing_becomes_an_item_that_decodes(kind: str, about: Any, text: str) -> None:
    [items] = over_the_wire(
        dto.Items(conversation="c", total=1, first=0, items=(sanitize.item(head(kind, about, text)),))
    )
    assert items.items[0].card is not None


@pytest.mark.parametrize("filler", ["\x00", "\x1b", "\u202e", "\ud800", "\U0001f40e", '"', "\\", "x"])
def test_the_largest_of_each_card_fits_a_frame(filler: str) -> None:
    long = filler * 20_000
    abouts: dict[str, Any] = {
        "plan": {"steps": [{"text": long, "state": "active"}] * 64},
        "command": {"command": long},
        "tool": {"name": long, "arguments": long},
        "change": {"path": long, "change": "created"},
    }
    for kind, about in abouts.items():
        item = sanitize.item(head(kind, about, long))
        assert len(host_encoder().part(dto.ItemAdded(conversation="c", index=1, item=item))) < HOST_FRAME_BYTES - 1024
        over_the_wire(dto.ItemAdded(conversation="c", index=1, item=item))


def test_what_a_command_wrote_keeps_what_a_terminal_draws_by_and_nothing_else_does() -> None:
    noise = "".join(map(chr, range(0x100))) + "\ud800"
    shown = sanitize.written(noise)
    assert len(shown) == len(noise)
    kept = {each for each in shown if ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0}
    assert kept == set("\x07\b\t\n\r\x1b")
    for kind in ("tool", "change", "reply"):
        assert "\x1b" not in sanitize.text_of(kind, noise)


def test_a_command_keeps_its_lines() -> None:
    shown = sanitize.card("command", {"command": "cat <<EOF\n  indented\nEOF\n" + "x" * 3_000})
    assert isinstance(shown, dto.CommandCard)
    assert shown.command.startswith("cat <<EOF\n  indented\nEOF\n")
    assert shown.cut


@pytest.mark.parametrize("cut", [False, True])
def test_an_output_that_is_told_whole_in_the_end_takes_the_place_of_its_pieces(cut: bool) -> None:
    whole = "first\r\n\x1b[31msecond\n" * 300
    data = {"id": "r.1", "index": 1, "state": "complete", "output": whole, "size_chars": len(whole) + cut * 9_000}
    event = AgentEvent(**RUN, type="command.completed", data={**data, "command": "make", "exit_code": 0})
    added, done = over_the_wire(*sanitize.event("c", event))[-2:]
    assert isinstance(added, dto.ItemAdded)
    assert isinstance(done, dto.ItemDone)
    assert whole.startswith(added.item.text)
    assert (added.item.text == whole) is not cut
    assert added.item.size_chars == done.size_chars == data["size_chars"]


def test_a_native_id_of_a_call_does_not_get_out() -> None:
    item = sanitize.item(head("tool", {"name": "look", "call": "toolu_4711", "other": "acct_4711"}))
    assert b"4711" not in host_encoder().part(dto.ItemAdded(conversation="c", index=1, item=item))
