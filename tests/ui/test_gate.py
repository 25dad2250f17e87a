"""What a person notices of gate and queue: mounts, calls that wait, what Enter will do, and keys for all of it."""

from typing import Any

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QObject, QPointF, Qt
from PySide6.QtQuick import QQuickItem
from PySide6.QtTest import QTest

from tests.ui import gate_rows
from tests.ui.conftest import Bench
from tests.ui.gate_rows import FOLLOW_UPS, STEERS
from tests.ui.test_settings import (
    CTRL,
    DOWN,
    ENTER,
    ESC,
    TAB,
    UP,
    _below,
    focus,
    furnished,
    in_menu,
    open_settings,
    shown,
    spoken,
    tab_until,
)
from tests.ui.test_window import typed
from ui.wire import dto

__all__ = ["furnished"]

ALT = Qt.KeyboardModifier.AltModifier
DELETE = Qt.Key.Key_Delete
BACKTAB, SHIFT = Qt.Key.Key_Backtab, Qt.KeyboardModifier.ShiftModifier
WORKING = dto.RunView(id="r", state="working")


def busy(bench: Bench, enter: str = "steer", state: str = "working", **more: Any) -> None:
    bench.select(run=dto.RunView(id="r", state=state), busy_enter=enter, **more)  # type: ignore[arg-type]


def tell(bench: Bench, *rows: dto.QueuedRow, held: bool = False) -> None:
    bench.host.send(dto.Queued(conversation="c1", rows=rows, held=held))
    bench.settle()


def back_until(bench: Bench, words: str) -> None:
    for _ in range(40):
        if words in spoken(focus(bench)):
            return
        bench.key(BACKTAB, "", SHIFT)
    raise AssertionError(f"keys do not lead back to {words!r}")


def click(bench: Bench, item: QObject) -> None:
    assert isinstance(item, QQuickItem)
    at = item.mapToScene(QPointF(item.width() / 2, item.height() / 2)).toPoint()
    QTest.mouseClick(bench.window, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, at)
    bench.settle()


def fact(bench: Bench, name: str) -> Any:
    return bench.renderer._bridge.state.value(name)


# ------------------------------------------------------------------------- mounts


def test_every_mount_is_listed_with_its_state_and_its_warnings(furnished: Bench) -> None:
    open_settings(furnished, "mounts")
    assert furnished.host.take(dto.WantPage)[-1].page == "mounts"
    rows = [spoken(row) for row in shown(furnished, "Mount")]
    assert len(rows) == 8
    assert gate_rows.SIBLING in rows[2]
    marks = [mark.property("word") for mark in shown(furnished, "StateMark")]
    for word in ("On", "Off", "Switched off", "Unavailable", "Another version"):
        assert word in marks


def test_what_each_tool_would_do_is_a_key_away(furnished: Bench) -> None:
    open_settings(furnished, "mounts")
    tab_until(furnished, "5 tools: 3 without asking, 2 after asking you of files, folded")
    furnished.key(ENTER, "\r")
    furnished.settle()
    said = [spoken(tool) for tool in shown(furnished, "MountTool")]
    assert len(said) == 5
    assert said[3].startswith("edit, changes things, asks you first, but for 2 kinds of call, Changes a file")
    assert spoken(focus(furnished)).endswith("of files, shown"), "the focus stays"
    page = furnished.host.pages["mounts"][0]
    assert isinstance(page, dto.Mounts)
    furnished.host.send(replace(page, rows=(replace(page.rows[0], state="off"), *page.rows[1:])))
    furnished.settle()
    assert len(shown(furnished, "MountTool")) == 5, "what was unfolded stays so when something else changes"


@pytest.mark.parametrize(
    ("label", "action"),
    [("Edit…", "edit-mount"), ("Ask for its tools again", "refresh-mount"), ("Remove…", "remove-mount")],
)
def test_what_is_done_to_a_mount_is_proposed(furnished: Bench, label: str, action: str) -> None:
    open_settings(furnished, "mounts")
    tab_until(furnished, "What can be done with hub")
    furnished.key(ENTER, "\r")
    in_menu(furnished, label)
    proposed = furnished.wait_for(dto.Propose)
    assert (proposed.action, proposed.target) == (action, "m-hub")
    assert "What can be done with hub" in spoken(focus(furnished)), "focus is back where it was"


def test_a_refused_credential_and_a_mount_that_is_off_offer_the_way_on(furnished: Bench) -> None:
    open_settings(furnished, "mounts")
    for words, action, target in (
        ("Add a mount…", "add-mount", "a1"),  # the agent that is shown
        ("Switch on… web", "switch-mount", "m-web"),
        ("Attach a credential… tickets", "attach-credential", "m-tickets"),
    ):
        tab_until(furnished, words)
        furnished.key(ENTER, "\r")
        proposed = furnished.wait_for(dto.Propose)
        assert (proposed.action, proposed.target) == (action, target)


@pytest.mark.parametrize("by", ["keys", "mouse"])
def test_the_mounts_of_another_agent_are_a_choice_away(furnished: Bench, by: str) -> None:
    agents = (dto.MountsAgent(id="a1", name="Assistant"), dto.MountsAgent(id="a2", name="Harbour master"))
    page = gate_rows.mounts_page()
    furnished.host.pages["mounts"] = [replace(page, agents=agents)]
    open_settings(furnished, "mounts")
    furnished.host.take(dto.WantPage)
    [switch] = [button for button in shown(furnished, "Btn") if spoken(button).startswith("Mounts of: Assistant")]
    furnished.host.pages["mounts"] = [replace(page, agent="a2", agent_name="Harbour master", agents=agents)]
    if by == "keys":
        tab_until(furnished, "Mounts of: Assistant")
        furnished.key(ENTER, "\r")
        in_menu(furnished, "Harbour master")
    else:
        click(furnished, switch)
        [entry] = [item for item in furnished.everything() if spoken(item) == "Harbour master"]
        click(furnished, entry)
    assert furnished.wait_for(dto.WantPage).about == "a2"
    furnished.settle()
    assert spoken(switch).startswith("Mounts of: Harbour master")
    assert spoken(focus(furnished)) == spoken(switch), "focus is back where it was"


def test_an_agent_that_may_use_nothing_is_told_of(furnished: Bench) -> None:
    furnished.host.pages["mounts"] = []
    open_settings(furnished, "mounts")
    assert "Asking" in [quiet.property("text") for quiet in shown(furnished, "Quiet")]
    furnished.host.send(gate_rows.mounts_page())
    furnished.settle()
    assert any(
        str(quiet.property("text")).startswith("Assistant may use nothing") for quiet in shown(furnished, "Quiet")
    )


# ------------------------------------------------------------------------- calls that wait


@pytest.fixture
def asking(bench: Bench) -> Bench:
    """A conversation with a call that waits."""
    bench.host.item("c1", "user", "Tell the others.")
    bench.host.item("c1", "tool", "", "open", run="r", card=gate_rows.call("waiting"))
    busy(bench, state="waiting", waiting=1)
    return bench


def test_a_call_that_waits_is_reviewed_by_keys_and_decided_in_the_dialog(asking: Bench) -> None:
    card = shown(asking, "Card")[0]
    assert "Waiting for you" in spoken(card)
    assert gate_rows.EFFECT in spoken(card)
    back_until(asking, "Review… Tool hub_create_issue")
    asking.key(ENTER, "\r")
    asking.key(ENTER, "\r")
    proposed = asking.wait_for(dto.Propose)
    assert (proposed.action, proposed.target) == ("review", "o1")
    asking.settle()
    assert asking.host.take(dto.Propose) == [], "one window at a time"
    asking.host.send(
        dto.Outcome(request=proposed.request, status="done"),
        dto.ItemCard(conversation="c1", item="c1-1", card=gate_rows.call("denied")),
        dto.ItemDone(conversation="c1", item="c1-1", state="failed", size_chars=0, card=gate_rows.call("denied")),
    )
    busy(asking)
    assert "Denied" in spoken(shown(asking, "Card")[0])
    assert not [item for item in shown(asking, "Btn") if item.property("text") == "Review…"]


def test_the_header_leads_to_what_waits(asking: Bench) -> None:
    tab_until(asking, "1 call waits for you. Review…")
    asking.key(ENTER, "\r")
    assert asking.wait_for(dto.Propose).target == "o1"
    busy(asking, waiting=0)
    assert not [item for item in shown(asking, "Btn") if "waits for you" in spoken(item)]


def test_a_key_reviews_and_without_a_call_that_waits_it_does_nothing(asking: Bench) -> None:
    asking.key(Qt.Key.Key_R, "r", CTRL)
    assert asking.wait_for(dto.Propose).action == "review"
    busy(asking, waiting=0)
    asking.key(Qt.Key.Key_R, "r", CTRL)
    asking.settle()
    assert asking.host.take(dto.Propose) == []


def test_a_run_that_waits_is_stopped_and_told_more(asking: Bench) -> None:
    assert "once you have decided" in fact(asking, "enter")
    asking.type("and to the crew")
    asking.key(ENTER, "\r")
    assert asking.wait_for(dto.Send).when == "now"
    tab_until(asking, "Stop")
    asking.key(ENTER, "\r")
    assert asking.wait_for(dto.Stop).revision == asking.revision


# ------------------------------------------------------------------------- what Enter does


@pytest.mark.parametrize("enter", ["steer", "queue"])
def test_while_it_works_enter_and_alt_enter_do_what_is_written_there(bench: Bench, enter: str) -> None:
    busy(bench, enter)
    words = [str(item.property("text")) for item in shown(bench, "Quiet")]
    assert any("Enter" in line and "Alt+Enter" in line for line in words)
    bench.type("more")
    bench.key(ENTER, "\r")
    first = bench.wait_for(dto.Send)
    bench.host.send(dto.Outcome(request=first.request, status="done"))
    bench.settle()
    bench.type("more")
    bench.key(ENTER, "\r", ALT)
    second = bench.wait_for(dto.Send)
    assert (first.when, second.when) == ("now", "queue")
    assert first.request_id != second.request_id, "the same words said again are another message"
    assert [item.property("says") for item in shown(bench, "IconBtn") if item.property("says") == "Stop"]


def test_alt_enter_with_nothing_ahead_sends_and_behind_a_held_queue_waits(bench: Bench) -> None:
    bench.select()
    bench.type("one")
    bench.key(ENTER, "\r", ALT)
    sent = bench.wait_for(dto.Send)
    assert sent.when == "now"
    bench.host.send(dto.Outcome(request=sent.request, status="done"))
    tell(bench, *FOLLOW_UPS, held=True)
    bench.type("two")
    bench.key(ENTER, "\r", ALT)
    assert bench.wait_for(dto.Send).when == "queue"


def test_what_looks_like_a_secret_is_sent_only_once_more_and_deliberately(bench: Bench) -> None:
    busy(bench)
    bench.type("sk-12345")
    bench.key(ENTER, "\r", ALT)
    first = bench.wait_for(dto.Send)
    assert first.anyway is False
    refusal = dto.Outcome(request=first.request, status="refused", code="SECRET_FOUND", text="It looks like a key.")
    bench.host.send(refusal)
    bench.settle()
    assert typed(bench) == "sk-12345"
    assert spoken(shown(bench, "Doubt")[0]) == "It looks like a key."
    back_until(bench, "Send anyway")
    bench.key(ENTER, "\r")
    again = bench.wait_for(dto.Send)
    assert (again.anyway, again.text, again.when, again.request_id) == (True, "sk-12345", "queue", first.request_id)
    bench.host.send(dto.Outcome(request=again.request, status="done"))
    bench.settle()
    assert typed(bench) == ""
    assert shown(bench, "Doubt") == []


def test_taking_the_secret_out_takes_the_offer_away(bench: Bench) -> None:
    bench.select()
    bench.type("sk-12345")
    bench.key(ENTER, "\r")
    sent = bench.wait_for(dto.Send)
    bench.host.send(
        dto.Outcome(request=sent.request, status="refused", code="SECRET_FOUND", text="It looks like a key.")
    )
    bench.settle()
    bench.key(Qt.Key.Key_Backspace)
    bench.settle()
    assert shown(bench, "Doubt") == []
    bench.renderer._bridge.sendAnyway()
    bench.settle()
    assert bench.host.take(dto.Send) == []


# ------------------------------------------------------------------------- queue


@pytest.fixture
def queued(bench: Bench) -> Bench:
    """Four messages wait, and the keys stand on the first that is sent afterwards."""
    busy(bench)
    tell(bench, *STEERS, *FOLLOW_UPS)
    back_until(bench, "1 of 4")
    bench.key(DOWN)
    assert spoken(focus(bench)).startswith("2 of 4. Sent when the run has ended")
    return bench


def test_the_queue_is_above_the_composer_and_says_when_each_is_sent(queued: Bench) -> None:
    lines = [line for line in shown(queued, "QueueLine") if isinstance(line, QQuickItem)]
    assert len(lines) == 4
    composer = queued.item("composer")
    assert (
        max(line.mapToScene(line.boundingRect().bottomLeft()).y() for line in lines)
        < composer.mapToScene(composer.boundingRect().topLeft()).y()
    )
    words = [str(item.property("text")) for item in shown(queued, "Quiet")]
    assert "Sent before the model’s next step" in words
    assert "Sent when the run has ended" in words


def test_keys_move_a_message_and_stay_with_it(queued: Bench) -> None:
    queued.key(DOWN, modifiers=ALT)
    moved = queued.wait_for(dto.MoveQueued)
    assert (moved.queued, moved.before) == ("q2", "q4")
    tell(queued, *STEERS, FOLLOW_UPS[1], FOLLOW_UPS[0], FOLLOW_UPS[2])
    assert spoken(focus(queued)).startswith("3 of 4"), "focus goes with the message"
    queued.key(UP, modifiers=ALT)
    assert queued.wait_for(dto.MoveQueued).before == "q3"


def test_buttons_do_the_same_and_keep_the_focus(queued: Bench) -> None:
    tab_until(queued, "Later: 2 of 4")
    queued.key(ENTER, "\r")
    assert queued.wait_for(dto.MoveQueued).before == "q4"
    tell(queued, *STEERS, FOLLOW_UPS[1], FOLLOW_UPS[0], FOLLOW_UPS[2])
    assert spoken(focus(queued)).startswith("Later: 3 of 4")
    tell(queued, *STEERS, FOLLOW_UPS[1], FOLLOW_UPS[2], FOLLOW_UPS[0])
    tab_until(queued, "Send now: ")
    queued.key(ENTER, "\r")
    assert queued.wait_for(dto.SendQueued).queued == "q2"
    tab_until(queued, "Remove: ")
    queued.key(ENTER, "\r")
    assert queued.wait_for(dto.RemoveQueued).queued == "q2"


def test_a_message_that_waits_is_edited_in_its_place(queued: Bench) -> None:
    queued.key(ENTER, "\r")
    queued.settle()
    assert spoken(focus(queued)) == "Message that waits, 2 of 4"
    queued.key(Qt.Key.Key_End)
    queued.type("!\nAnd more")
    queued.key(ENTER, "\r")
    edited = queued.wait_for(dto.EditQueued)
    assert (edited.queued, edited.text) == ("q2", FOLLOW_UPS[0].text + "!\nAnd more")
    queued.settle()
    assert spoken(focus(queued)).startswith("2 of 4")
    queued.key(ENTER, "\r")
    queued.settle()
    queued.type("nothing of this")
    queued.key(ESC)
    queued.settle()
    assert queued.host.take(dto.EditQueued) == []
    assert spoken(focus(queued)).startswith("2 of 4")


def test_what_was_said_while_it_was_edited_is_not_lost(queued: Bench) -> None:
    queued.key(ENTER, "\r")
    queued.settle()
    queued.key(Qt.Key.Key_End)
    queued.type(" Please.")
    tell(queued, *STEERS, *FOLLOW_UPS[1:])
    assert typed(queued) == FOLLOW_UPS[0].text + " Please."
    assert focus(queued).objectName() == "composer"


def test_keys_send_now_and_remove_and_lead_back_to_the_composer(queued: Bench) -> None:
    queued.key(ENTER, "\r", CTRL)
    assert queued.wait_for(dto.SendQueued).queued == "q2"
    queued.key(DELETE)
    assert queued.wait_for(dto.RemoveQueued).queued == "q2"
    tell(queued, *STEERS, *FOLLOW_UPS[1:])
    assert spoken(focus(queued)).startswith("2 of 3"), "focus stays in its place"
    tell(queued)
    assert focus(queued).objectName() == "composer"
    tell(queued, *FOLLOW_UPS)
    assert focus(queued).objectName() == "composer", "what comes takes no focus"


def test_a_message_that_steers_stays_ahead_of_the_rest(queued: Bench) -> None:
    queued.key(UP)
    assert spoken(focus(queued)).startswith("1 of 4. Sent before")
    queued.key(DOWN, modifiers=ALT)
    queued.key(ENTER, "\r", CTRL)
    queued.settle()
    assert queued.host.take(dto.MoveQueued) == []
    assert queued.host.take(dto.SendQueued) == [], "that is what happens to it anyway"


def test_a_held_queue_says_so_and_every_control_has_a_name(bench: Bench) -> None:
    bench.select(run=dto.RunView(id="r", state="stopped"))
    tell(bench, *FOLLOW_UPS, held=True)
    assert fact(bench, "queueWord") == "3 messages held"
    back_until(bench, "1 of 3")
    bench.key(UP)
    names = []
    for _ in range(6):
        names.append(spoken(focus(bench)))
        bench.key(TAB, "\t")
    assert [name.split(":")[0] for name in names[1:4]] == ["Send now", "Edit", "Later"], names
    assert all(names)


def test_twelve_messages_leave_room_for_the_conversation_and_all_are_reached(bench: Bench) -> None:
    busy(bench)
    tell(bench, *gate_rows.twelve())
    panel = shown(bench, "QueueList")[0]
    assert isinstance(panel, QQuickItem)
    assert panel.height() < bench.window.height() / 2
    back_until(bench, "1 of 12")
    for place in range(2, 13):
        bench.key(DOWN)
        item = focus(bench)
        assert spoken(item).startswith(f"{place} of 12")
        top = item.mapToItem(panel, item.boundingRect().topLeft()).y()
        assert 0 <= top <= panel.height() - item.height() + 1
    assert all(_shown_inside(line, panel) for line in _below(panel) if line.hasActiveFocus())


def _shown_inside(item: QObject, panel: QQuickItem) -> bool:
    assert isinstance(item, QQuickItem)
    return panel.mapRectToScene(panel.boundingRect()).intersects(item.mapRectToScene(item.boundingRect()))
