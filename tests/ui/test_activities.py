"""What a person notices of a harness at work: cards that unfold by keys, live output, the folder, the harnesses."""

from typing import Any

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAccessible, QGuiApplication
from PySide6.QtQuick import QQuickItem

from tests.ui.conftest import Bench
from tests.ui.scenes import DIFF, FOLDER, HARNESSES, SERVICES, TESTS_RUN, command_card, plan_card
from tests.ui.test_settings import (
    ENTER,
    ESC,
    TAB,
    _below,
    focus,
    furnished,
    in_menu,
    open_settings,
    shown,
    spoken,
    tab_until,
)
from tests.ui.test_window import at_end, list_view, running_timers
from ui.wire import dto

__all__ = ["furnished"]


def card(bench: Bench, kind: str, text: str = "", state: str = "complete", **more: Any) -> dto.Item:
    return bench.host.item("c1", kind, text, state, run="r", **more)


def outputs(bench: Bench) -> str:
    """What is shown of outputs and diffs, from top to bottom."""
    bodies = [row for row in shown(bench, "RowOutput") if isinstance(row, QQuickItem)]
    bodies.sort(key=lambda row: row.y())
    return "\n".join(str(row.property("row")["said"]) for row in bodies if row.isVisible())


def names(bench: Bench) -> list[str]:
    """The accessible names of all cards."""
    return [spoken(item) for item in shown(bench, "Card")]


def said_below(item: QObject) -> list[str]:
    """Accessible names of what is seen inside `item`."""
    return [name for kid in _below(item) if (name := spoken(kid))]


@pytest.fixture
def work(bench: Bench) -> Bench:
    """One of everything."""
    card(bench, "plan", state="open", card=plan_card())
    card(bench, "tool", '{"zone": "Lisbon"}', card=dto.ToolCard(name="look_up", arguments='{"q":1}', duration_ms=212))
    card(bench, "change", DIFF, card=dto.ChangeCard(path="server/clock.py", change="modified", added=4, removed=3))
    card(bench, "command", TESTS_RUN, card=command_card("pytest -q", 1, 41_204))
    bench.select()
    return bench


def test_each_card_is_said_with_what_it_is_and_how_it_stands(work: Bench) -> None:
    said = " | ".join(names(work))
    for words in (
        "Tool look_up, Done, 212 ms, folded",
        "File server/clock.py, Changed, 4 lines added, 3 lines removed, folded",
        "Command pytest -q, Exit code 1, 41.2 s, folded",
    ):
        assert words in said
    roles = {QAccessible.queryAccessibleInterface(item).role() for item in shown(work, "Card")}
    assert roles == {QAccessible.Role.ListItem}
    assert "In progress: " + plan_card().steps[2].text in said_below(shown(work, "RowPlan")[0])


def test_a_card_is_unfolded_and_folded_by_keys_and_keeps_the_focus(work: Bench) -> None:
    before = outputs(work)
    assert "test session starts" not in before
    tab_until(work, "Show all 15 lines of Command pytest -q")
    work.key(ENTER, "\r")
    work.settle()
    assert "test session starts" in outputs(work)
    assert "1 failed, 411 passed" in outputs(work)
    assert spoken(focus(work)) == "Show less of Command pytest -q"
    work.key(ENTER, "\r")
    work.settle()
    assert outputs(work) == before


def test_what_is_unfolded_at_the_end_keeps_its_head_in_sight(bench: Bench) -> None:
    text = "".join(f"line {n}\n" for n in range(400))
    card(bench, "command", text, card=command_card("make", 0))
    bench.select()
    assert at_end(list_view(bench))
    tab_until(bench, "Show all 400 lines")
    bench.key(ENTER, "\r")
    bench.settle()
    view = list_view(bench)
    assert not at_end(view)
    head = shown(bench, "RowCommand")[0]
    assert isinstance(head, QQuickItem)
    assert head.y() >= view.property("contentY") - 1
    bench.key(ENTER, "\r")
    bench.settle()
    assert at_end(view)


def test_keys_go_through_the_cards_in_reading_order_wherever_the_view_has_been(bench: Bench) -> None:
    for n in range(30):
        card(bench, "command", f"{n}\n" * 4, card=command_card(f"step {n}", 0))
    bench.select(folder_use="fixed", folder=FOLDER, access="Read only")
    view = list_view(bench)
    for part in (0.0, 0.5, 1.0):  # rows are made in the order in which they come into sight
        view.setProperty("contentY", view.property("originY") + part * view.property("contentHeight") * 0.7)
        bench.settle()
    bench.key(Qt.Key.Key_J, "j", Qt.KeyboardModifier.ControlModifier)
    bench.settle()
    bench.item("composer").forceActiveFocus()
    back = []
    for _ in range(14):
        bench.key(Qt.Key.Key_Backtab, "", Qt.KeyboardModifier.ShiftModifier)
        bench.settle()
        back.append(place(bench))
    assert back == [None, *range(29, 16, -1)]
    forth = []
    for _ in range(13):
        bench.key(TAB, "\t")
        bench.settle()
        forth.append(place(bench))
    assert forth == [*range(18, 30), None]


def place(bench: Bench) -> int | None:
    """The card that has the focus, which is in sight."""
    item: QQuickItem | None = focus(bench)
    top = focus(bench).mapToScene(focus(bench).boundingRect().topLeft()).y()
    assert 0 < top < bench.window.height()
    while item is not None:
        row = item.property("row")
        if isinstance(row, dict) and "command" in row:
            return int(row["command"].split()[1])
        item = item.parentItem()
    return None


def test_the_arguments_and_the_result_of_a_tool_are_a_key_away(work: Bench) -> None:
    work.item("transcript").forceActiveFocus()
    work.key(Qt.Key.Key_Home)
    work.settle()
    tab_until(work, "Show of Tool look_up")
    work.key(ENTER, "\r")
    work.settle()
    labels = [label.property("row")["words"] for label in shown(work, "RowLabel")]
    assert labels == ["Arguments", "Result"]
    assert any(row.property("row")["said"] == '{\n  "q": 1\n}' for row in shown(work, "RowCode"))
    assert '{"zone": "Lisbon"}' in outputs(work)


def copy(bench: Bench, words: str) -> str:
    tab_until(bench, words)
    bench.key(ENTER, "\r")
    bench.settle()
    return QGuiApplication.clipboard().text()


def test_an_output_is_copied_as_it_is_seen_and_a_diff_as_it_was_written(work: Bench) -> None:
    copied = copy(work, "Copy the output")
    assert copied.startswith("============== test session starts ==============\ncollected 412 items\n")
    assert "\x1b" not in copied
    assert "[31m" not in copied
    assert copy(work, "Copy the changes") == DIFF


def test_a_long_output_that_is_not_here_is_fetched_before_it_is_copied(bench: Bench) -> None:
    text = "".join(f"line {n}\n" for n in range(8_000))
    card(bench, "command", text, card=command_card("seq", 0))
    bench.select()
    QGuiApplication.clipboard().clear()
    assert "line 7999" in outputs(bench)
    tab_until(bench, "Copy the output")
    bench.key(ENTER, "\r")
    assert bench.spin(lambda: bool(QGuiApplication.clipboard().text()))
    assert QGuiApplication.clipboard().text() == text.rstrip("\n")


def test_a_running_command_is_followed_and_its_progress_stays_one_line(bench: Bench) -> None:
    bench.host.item("c1", "user", "go")
    bench.select(run=dto.RunView(id="r", state="working"))
    opened = dto.Item(
        id="open", kind="command", state="open", text="", size_chars=0, run="r", card=command_card("make wheels")
    )
    bench.host.send(dto.ItemAdded(conversation="c1", index=1, item=opened))
    at = 0
    for n in range(101):
        text = f"\r\x1b[2K\x1b[36m{n:3} %\x1b[0m"
        bench.host.send(dto.ItemDelta(conversation="c1", item="open", at=at, text=text))
        at += len(text)
    bench.settle()
    assert outputs(bench) == "100 %"
    assert "Command make wheels, Running" in names(bench)
    assert at_end(list_view(bench))
    bench.host.send(
        dto.ItemDone(
            conversation="c1", item="open", state="stopped", size_chars=at, card=command_card("make wheels", None, 900)
        )
    )
    bench.settle()
    assert "Command make wheels, Stopped, 900 ms" in names(bench)


def test_a_megabyte_without_a_line_break_leaves_the_window_answering(bench: Bench) -> None:
    bench.select()
    opened = dto.Item(
        id="open", kind="command", state="open", text="", size_chars=0, run="r", card=command_card("cat x")
    )
    bench.host.send(dto.ItemAdded(conversation="c1", index=0, item=opened))
    piece = "y" * dto.TEXT_PIECE_CHARS
    for n in range(100):
        bench.host.send(dto.ItemDelta(conversation="c1", item="open", at=n * len(piece), text=piece))
        bench.spin(lambda: bench.host.acked >= bench.host.encoder.last_sequence)
    bench.settle()
    assert bench.spin(lambda: not bench.renderer._bridge._store.transcript.has_pending)
    bench.settle()
    assert set(outputs(bench)) <= {"y", "…"}
    assert len(outputs(bench)) < 3_000
    bench.type("still here")
    assert bench.item("composer").property("text") == "still here"


def test_a_step_on_the_way_is_a_quiet_line(bench: Bench) -> None:
    card(bench, "notice", "It was busy; the step was asked for once more.", code="RETRY")
    bench.select()
    said = [name for row in shown(bench, "RowNote") for name in said_below(row)]
    assert said[0] == "Asked again. It was busy; the step was asked for once more."
    assert shown(bench, "RowNotice") == []


def test_cards_at_rest_run_no_timer(work: Bench) -> None:
    work.host.items["c2"] = [replace(item, state="complete") for item in work.host.items["c1"]]
    work.select("c2")
    work.key(Qt.Key.Key_Comma, ",", Qt.KeyboardModifier.ControlModifier)
    work.key(ESC)
    work.settle()
    assert len(running_timers(work)) <= 1, "the caret's"


# ------------------------------------------------------------------------- the folder


def chip(bench: Bench) -> QObject | None:
    chips = shown(bench, "FolderChip")
    return chips[0] if chips else None


def described(item: QObject) -> str:
    return QAccessible.queryAccessibleInterface(item).text(QAccessible.Text.Description)


def test_no_folder_is_spoken_of_where_there_can_be_none(bench: Bench) -> None:
    bench.select()
    assert chip(bench) is None


def test_a_needed_folder_is_asked_for_instead_of_sending(bench: Bench) -> None:
    bench.select(None, folder_use="required")
    bench.type("Mend it")
    bench.key(ENTER, "\r")
    bench.settle()
    assert bench.host.take(dto.Send) == []
    assert "Choose the folder" in bench.renderer._bridge.state.value("problem")
    assert bench.item("composer").property("text") == "Mend it"
    tab_until(bench, "Choose a folder first")
    bench.key(ENTER, "\r")
    proposed = bench.wait_for(dto.Propose)
    assert (proposed.action, proposed.target) == ("choose-folder", None)
    bench.host.send(dto.Outcome(request=proposed.request, status="done"))
    bench.select(None, folder_use="required", folder=FOLDER, access="Read only", draft="Mend it")
    assert bench.renderer._bridge.state.value("problem") == ""
    bench.item("composer").forceActiveFocus()
    bench.key(ENTER, "\r")
    assert bench.wait_for(dto.Send).text == "Mend it"


def test_a_chosen_folder_is_changed_or_let_go_by_keys(bench: Bench) -> None:
    bench.select(folder_use="optional", folder=FOLDER, access="Read only")
    for words, action in (("Choose another folder…", "choose-folder"), ("Work without a folder", "clear-folder")):
        tab_until(bench, "Folder ")
        bench.key(ENTER, "\r")
        in_menu(bench, words)
        proposed = bench.wait_for(dto.Propose)
        assert (proposed.action, proposed.target) == (action, "c1")
        bench.host.send(dto.Outcome(request=proposed.request, status="refused", code="NOT_DONE"))
        bench.settle()


def test_a_folder_of_a_conversation_that_began_is_shown_whole_and_fixed(bench: Bench) -> None:
    long = "/home/ada/" + "deep/" * 40 + "notes"
    bench.select(folder_use="fixed", folder=long, access="Read, change files and run commands")
    there = chip(bench)
    assert there is not None
    assert spoken(there).endswith("/notes, Read, change files and run commands")
    assert long in described(there)
    assert there.metaObject().invokeMethod(there, "click")
    bench.settle()
    assert bench.host.take(dto.Propose) == []
    assert isinstance(there, QQuickItem)
    bench.window.setWidth(480)
    bench.settle()
    assert there.mapRectToScene(there.boundingRect()).right() <= 480


def test_a_folder_cannot_reorder_what_stands_around_it(bench: Bench) -> None:
    bench.select(folder_use="fixed", folder="/home/עדה/\u202eevil/x", access="Read only")
    shown_path = bench.renderer._bridge.state.value("folder")
    assert "\u202e" not in shown_path
    assert shown_path.startswith("\u2066/home/")
    assert shown_path.endswith("\u2069")


# ------------------------------------------------------------------------- harnesses


def test_the_harnesses_are_listed_with_state_version_and_what_they_can_do(furnished: Bench) -> None:
    open_settings(furnished, "harnesses")
    assert furnished.host.take(dto.WantPage)[-1].page == "harnesses"
    rows = [spoken(row) for row in shown(furnished, "Harness")]
    assert len(rows) == len(HARNESSES) + len(SERVICES)
    assert rows[1].startswith("Codex, Ready, Found on this computer.")
    assert "2 native, 1 emulated, 1 not supported" in rows[1]
    tab_until(furnished, "What it can do: Codex, folded")
    furnished.key(ENTER, "\r")
    furnished.settle()
    said = said_below(shown(furnished, "Harness")[1])
    assert "Reports of denials, not supported, A denied command is not reported." in said
    assert spoken(focus(furnished)) == "What it can do: Codex, shown"


@pytest.mark.parametrize(
    ("words", "action", "target"),
    [
        ("Pick the program… Claude Code", "pick-program", "claude"),
        ("Forget the pick Codex", "forget-program", "codex"),
    ],
)
def test_a_program_is_picked_and_forgotten(furnished: Bench, words: str, action: str, target: str) -> None:
    open_settings(furnished, "harnesses")
    tab_until(furnished, words)
    furnished.key(ENTER, "\r")
    proposed = furnished.wait_for(dto.Propose)
    assert (proposed.action, proposed.target) == (action, target)


def test_a_missing_harness_says_how_to_get_it_and_the_command_is_copied(furnished: Bench) -> None:
    open_settings(furnished, "harnesses")
    assert (
        copy(furnished, "Copy the command npm install -g @anthropic-ai/claude-code")
        == "npm install -g @anthropic-ai/claude-code"
    )


def test_harnesses_that_are_looked_for_say_so_and_none_is_said_too(furnished: Bench) -> None:
    furnished.host.pages["harnesses"] = []
    open_settings(furnished, "harnesses")
    assert "Asking" in [quiet.property("text") for quiet in shown(furnished, "Quiet")]
    furnished.host.send(dto.Harnesses(rows=(replace(HARNESSES[1], state="looking"),)))
    furnished.settle()
    assert "Looking" in [mark.property("word") for mark in shown(furnished, "StateMark")]
    furnished.host.send(dto.Harnesses(rows=()))
    furnished.settle()
    assert any(str(quiet.property("text")).startswith("No harness is here") for quiet in shown(furnished, "Quiet"))


def test_the_picker_says_what_a_harness_touches_and_whether_it_needs_a_folder(furnished: Bench) -> None:
    furnished.key(Qt.Key.Key_M, "m", Qt.KeyboardModifier.ControlModifier)
    furnished.settle()
    rows = furnished.renderer._bridge.setup.models["choices"]
    means = [rows.row_map(row)["means"] for row in range(rows.count())]
    assert any("reads a folder, may change files" in words and words.endswith("needs a folder") for words in means)
    assert not any("a folder if you choose one" in words for words in means), "what it touches says that"
    furnished.key(TAB, "\t")
