"""What a person notices in the window: keys, input methods, drafts, following, selection, copying."""

import time

import pytest
from PySide6.QtCore import QObject, QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QWheelEvent, QWindow

from tests.ui.conftest import Bench
from tests.ui.fake_host import hello_message, rows_of
from ui.wire import dto

ENTER = Qt.Key.Key_Return
TEXT = "paragraph one with words\n\nparagraph two\n\n"


def composer(bench: Bench) -> QObject:
    return bench.item("composer")


def typed(bench: Bench) -> str:
    return str(composer(bench).property("text"))


@pytest.fixture
def talk(bench: Bench) -> Bench:
    for n in range(30):
        bench.host.item("c1", "user" if n % 2 == 0 else "reply", f"message {n}\n\n{TEXT}")
    bench.select()
    return bench


def list_view(bench: Bench) -> QObject:
    return bench.item("transcript")


# ------------------------------------------------------------------------- composer


def test_enter_sends_and_the_text_goes_when_the_host_has_it(bench: Bench) -> None:
    bench.select()
    bench.type("Hello there")
    bench.key(ENTER, "\r")
    sent = bench.wait_for(dto.Send)
    assert (sent.text, sent.revision, sent.pieces) == ("Hello there", bench.revision, 0)
    assert typed(bench) == "Hello there"
    bench.host.send(dto.Outcome(request=sent.request, status="done"))
    bench.settle()
    assert typed(bench) == ""


def test_enter_twice_sends_once(bench: Bench) -> None:
    bench.select()
    bench.type("Once")
    bench.key(ENTER, "\r")
    bench.key(ENTER, "\r")
    bench.settle()
    assert len(bench.host.take(dto.Send)) == 1


def test_a_refused_message_stays_and_is_sent_again_under_the_same_request(bench: Bench) -> None:
    bench.select()
    bench.type("Keep me")
    bench.key(ENTER, "\r")
    first = bench.wait_for(dto.Send)
    bench.host.send(dto.Outcome(request=first.request, status="refused", text="The disk is full."))
    bench.settle()
    assert typed(bench) == "Keep me"
    assert any(item.property("text") == "The disk is full." for item in bench.all("Quiet"))
    bench.key(ENTER, "\r")
    assert bench.wait_for(dto.Send).request_id == first.request_id


def test_shift_enter_is_a_new_line(bench: Bench) -> None:
    bench.select()
    bench.type("one\ntwo")
    assert typed(bench) == "one\ntwo"
    assert not bench.host.take(dto.Send)


def test_enter_while_an_input_method_composes_sends_nothing(bench: Bench) -> None:
    bench.select()
    bench.compose("にほん")
    bench.key(ENTER, "\r")
    bench.settle()
    assert not bench.host.take(dto.Send)
    bench.compose("", "日本")
    assert typed(bench).endswith("日本")
    bench.key(ENTER, "\r")
    assert bench.wait_for(dto.Send).text.endswith("日本")


def test_blank_text_is_not_sent(bench: Bench) -> None:
    bench.select()
    bench.type("   ")
    bench.key(ENTER, "\r")
    bench.settle()
    assert not bench.host.take(dto.Send)


def test_while_a_run_works_the_button_stops_and_enter_sends_nothing(bench: Bench) -> None:
    bench.select(run=dto.RunView(id="r1", state="working"))
    bench.type("later")
    bench.key(ENTER, "\r")
    bench.key(Qt.Key.Key_Period, ".", Qt.KeyboardModifier.ControlModifier)
    assert bench.wait_for(dto.Stop).revision == bench.revision
    assert not bench.host.take(dto.Send)
    assert typed(bench) == "later"


def test_long_text_goes_in_pieces_that_join_to_it(bench: Bench) -> None:
    bench.select()
    text = "ä€🐎\x01" * 9_000
    composer(bench).setProperty("text", text)
    bench.key(ENTER, "\r")
    sent = bench.wait_for(dto.Send)
    pieces = [piece.text for piece in bench.host.take(dto.Piece)]
    assert sent.pieces == len(pieces) > 0
    assert "".join([*pieces, sent.text]) == text


def test_the_draft_is_kept_after_typing_stops(bench: Bench) -> None:
    bench.select()
    bench.type("unfinished")
    assert not bench.host.take(dto.Draft)
    draft = bench.wait_for(dto.Draft)
    assert (draft.conversation, draft.text) == ("c1", "unfinished")
    end = time.monotonic() + 0.6
    bench.spin(lambda: time.monotonic() > end)
    assert not bench.host.take(dto.Draft), "said once"


def test_who_types_without_a_pause_has_a_draft_all_the_same(bench: Bench) -> None:
    bench.select()
    end = time.monotonic() + 5
    typed = ""
    while not (drafts := bench.host.take(dto.Draft)):
        assert time.monotonic() < end, "nothing was kept while typing went on"
        bench.type("a")
        typed += "a"
        pause = time.monotonic() + 0.05
        bench.spin(lambda until=pause: time.monotonic() > until)  # type: ignore[misc]
    assert typed.startswith(drafts[0].text)


def test_the_draft_is_kept_before_another_conversation_is_asked_for(bench: Bench) -> None:
    bench.host.rows = [
        dto.ConversationRow(id=f"c{n}", title=f"T{n}", subtitle="", updated_ms=n, state="done") for n in (2, 1)
    ]
    bench.select()
    bench.host.send(dto.Conversations(filter="", total=2, first=0, rows=tuple(bench.host.rows)))
    bench.settle()
    bench.type("unfinished")
    bench.host.said.clear()
    bench.key(Qt.Key.Key_1, "1", Qt.KeyboardModifier.ControlModifier)
    bench.settle()
    kinds = [type(message) for message in bench.host.said if isinstance(message, (dto.Draft, dto.Select))]
    assert kinds == [dto.Draft, dto.Select]
    bench.select("c2", draft="what was there")
    assert typed(bench) == "what was there"


def test_closing_the_window_keeps_the_draft_and_says_so(bench: Bench) -> None:
    bench.select()
    bench.type("unfinished")
    bench.window.close()
    bench.spin(lambda: any(isinstance(message, dto.WindowClosed) for message in bench.host.said))
    kinds = [type(message) for message in bench.host.said if isinstance(message, (dto.Draft, dto.WindowClosed))]
    assert kinds == [dto.Draft, dto.WindowClosed]


def test_the_window_says_whether_it_is_in_front(bench: Bench) -> None:
    """So that what is seen here is not told by the desktop as well."""
    assert bench.wait_for(dto.WindowActive).active
    other = QWindow()
    other.show()
    other.requestActivate()
    assert not bench.wait_for(dto.WindowActive).active
    bench.window.requestActivate()
    assert bench.wait_for(dto.WindowActive).active
    other.destroy()


def test_the_composer_grows_to_two_fifths_of_the_height(bench: Bench) -> None:
    bench.select()
    small = bench.item("composer").height()
    composer(bench).setProperty("text", "line\n" * 200)
    bench.settle()
    box = bench.item("composer").parentItem().parentItem().parentItem()
    assert small < box.height() <= bench.window.height() * 0.4 + 16


# ------------------------------------------------------------------------- transcript


def at_end(view: QObject) -> bool:
    return bool(view.property("atYEnd"))


def scroll(bench: Bench, steps: int) -> None:
    for step in range(abs(steps)):
        place = QPointF(bench.window.width() * 0.6, bench.window.height() * 0.4)
        angle = QPoint(0, 120 if steps > 0 else -120)
        event = QWheelEvent(
            place, place, QPoint(), angle, Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        event.setTimestamp(1 + step * 40)
        QGuiApplication.sendEvent(bench.window, event)
        end = time.monotonic() + 0.04
        bench.spin(lambda end=end: time.monotonic() > end)  # type: ignore[misc]
    view = list_view(bench)
    assert bench.spin(lambda: not view.property("moving"))
    bench.settle()


def stream(bench: Bench, text: str, at: int = 0) -> int:
    for start in range(0, len(text), 20):
        piece = text[start : start + 20]
        bench.host.send(dto.ItemDelta(conversation="c1", item="open", at=at, text=piece))
        at += len(piece)
        bench.spin(lambda: bench.host.acked >= bench.host.encoder.last_sequence)
    bench.settle()
    return at


def open_reply(bench: Bench) -> None:
    item = dto.Item(id="open", kind="reply", state="open", text="", size_chars=0)
    bench.host.send(dto.ItemAdded(conversation="c1", index=len(bench.host.items["c1"]), item=item))
    bench.settle()


def test_a_conversation_opens_at_its_end(talk: Bench) -> None:
    assert at_end(list_view(talk))


def test_the_view_follows_a_stream_at_the_end(talk: Bench) -> None:
    open_reply(talk)
    stream(talk, TEXT * 12)
    assert at_end(list_view(talk))


def test_the_view_stays_where_the_reader_is(talk: Bench) -> None:
    open_reply(talk)
    at = stream(talk, TEXT)
    scroll(talk, 12)
    view = list_view(talk)
    before = view.property("contentY")
    assert not at_end(view)
    at = stream(talk, TEXT * 8, at)
    talk.host.send(dto.ItemDone(conversation="c1", item="open", state="complete", size_chars=at))
    talk.settle()
    assert view.property("contentY") == pytest.approx(before, abs=1)
    below = [item for item in talk.all("Btn") if item.property("text") == "New below"]
    assert [item.property("visible") for item in below] == [True]


def test_the_newest_is_one_key_away(talk: Bench) -> None:
    scroll(talk, 12)
    assert not at_end(list_view(talk))
    talk.key(Qt.Key.Key_J, "j", Qt.KeyboardModifier.ControlModifier)
    talk.settle()
    assert at_end(list_view(talk))


def test_a_huge_transcript_asks_for_what_is_near_only(bench: Bench) -> None:
    bench.host.items["c1"] = [
        dto.Item(id=f"i{n}", kind="reply", state="complete", text=f"message {n}", size_chars=len(f"message {n}"))
        for n in range(20_000)
    ]
    bench.select()
    bench.settle()
    wanted = bench.host.take(dto.WantItems)
    assert sum(want.count for want in wanted) < 400
    assert min(want.first for want in wanted) > 19_000


def test_a_jump_into_what_is_not_loaded_stays_where_it_went(bench: Bench) -> None:
    bench.host.items["c1"] = [
        dto.Item(id=f"i{n}", kind="reply", state="complete", text=f"message {n}\n\nmore", size_chars=15)
        for n in range(20_000)
    ]
    bench.select()
    scroll(bench, 3)
    view = list_view(bench)
    middle = view.property("originY") + view.property("contentHeight") / 2
    bench.host.said.clear()
    view.setProperty("contentY", middle)
    bench.settle()
    asked = bench.host.take(dto.WantItems)
    near = sum(want.first for want in asked) // len(asked)
    assert 5_000 < near < 15_000
    for _ in range(10):
        bench.settle()
        # What came in is of another height than was thought: a neighbour may come into view, no other place.
        later = bench.host.take(dto.WantItems)
        assert all(abs(want.first - near) < 120 for want in later), "what came in moved the view away"
        if not later:
            break
    else:
        pytest.fail("the view does not come to rest")
    seen = [str(body.property("said")) for body in bodies(bench)]
    numbers = [int(words.split()[1]) for words in seen if words.startswith("message ")]
    assert numbers
    assert all(abs(number - near) < 120 for number in numbers if number < 19_000)


def bodies(bench: Bench) -> list[QObject]:
    return [body for body in bench.all("Body") if body.property("visible") and body.property("html")]


def test_selected_text_survives_a_stream(talk: Bench) -> None:
    open_reply(talk)
    at = stream(talk, "closed paragraph\n\nopen paragraph")
    body = next(body for body in bodies(talk) if str(body.property("said")).startswith("open paragraph"))
    body.setProperty("focus", True)
    assert body.metaObject().invokeMethod(body, "selectWord")
    chosen = body.property("selectedText")
    assert chosen
    stream(talk, " and on and on" * 10, at)
    assert body.property("selectedText") == chosen


def test_code_is_copied_byte_for_byte(bench: Bench) -> None:
    code = "\n".join(f"if a < {n} && b > '\"':\t# <b>&amp;" for n in range(60))
    bench.host.item("c1", "reply", f"Before\n\n```python\n{code}\n```\n")
    bench.select()
    buttons = [item for item in bench.all("Btn") if item.property("text") == "Copy"]
    for button in buttons[:1]:
        button.metaObject().invokeMethod(button, "click")
    assert QGuiApplication.clipboard().text() == code


def test_a_reply_is_copied_as_it_was_written(bench: Bench) -> None:
    text = 'Some **bold** `<a>&"`\n\n- item\n'
    bench.host.item("c1", "reply", text)
    bench.select()
    foot = next(item for item in bench.all("Btn") if item.property("text") == "Copy")
    foot.metaObject().invokeMethod(foot, "click")
    assert QGuiApplication.clipboard().text() == text


def test_a_link_leads_nowhere_by_itself(bench: Bench) -> None:
    bench.host.item("c1", "reply", "[here](https://example.org/x)")
    bench.select()
    body = bodies(bench)[0]
    before = body.property("text")
    body.linkActivated.emit("https://example.org/x")  # type: ignore[attr-defined]
    bench.settle()
    assert body.property("text") == before


def test_work_shows_before_the_first_word(bench: Bench) -> None:
    bench.host.item("c1", "user", "Question")
    bench.select(run=dto.RunView(id="r", state="working"))
    line = bench.all("RunLine")[0]
    marks = [mark for mark in bench.all("StateMark") if mark.property("word") == "Working" and mark.property("visible")]
    assert line.property("visible")
    assert len(marks) == 1


def test_what_is_not_known_is_said_as_unknown(bench: Bench) -> None:
    bench.host.item("c1", "user", "Question")
    bench.select(run=dto.RunView(id="r", state="unknown", sentence="Not confirmed.", can_ask_again=True))
    marks = [mark for mark in bench.all("StateMark") if mark.property("word") == "Unknown"]
    assert [(mark.property("icon"), mark.property("tone")) for mark in marks] == [("unknown", "unknown")]
    again = next(item for item in bench.all("Btn") if item.property("text") == "Ask again" and item.property("visible"))
    again.metaObject().invokeMethod(again, "click")
    again.metaObject().invokeMethod(again, "click")
    first = bench.wait_for(dto.AskAgain)
    others = bench.host.take(dto.AskAgain)
    assert {ask.request_id for ask in others} <= {first.request_id}, "a second click is the same request"


# ------------------------------------------------------------------------- the rest


def press(bench: Bench, kind: str, words: str) -> None:
    """Click the button of this kind whose text, tip, title or accessible name these words are."""
    for button in bench.all(kind):
        if words in (button.property("text"), button.property("says"), button.property("title")):
            assert button.metaObject().invokeMethod(button, "click")
            return
    raise AssertionError(f"no {kind} {words!r}")


def test_the_first_run_page_leads_to_the_tiny_model(bench: Bench) -> None:
    bench.select(None, choice=None, sentence="")
    press(bench, "Way", "Try it now")
    assert bench.wait_for(dto.Choose).choice == "tiny"


def test_the_first_run_page_opens_the_trusted_dialog_for_each_kind_of_key(bench: Bench) -> None:
    bench.select(None, choice=None, sentence="")
    for words, kind in (("OpenAI…", "openai"), ("Anthropic…", "anthropic"), ("Another service…", "compatible")):
        press(bench, "Btn", words)
        proposed = bench.wait_for(dto.Propose)
        assert (proposed.action, proposed.target) == ("add-connector", kind)


def test_nothing_is_looked_for_before_the_person_says_so(bench: Bench) -> None:
    bench.select(None, choice=None, sentence="")
    bench.settle()
    assert not bench.host.take(dto.Look)
    press(bench, "Btn", "Look")
    bench.wait_for(dto.Look)
    row = dto.FoundRow(id="f1", kind="server", name="Ollama", detail="3 models")
    other = dto.FoundRow(id="f2", kind="cli", name="Codex", detail="1.2", note="Comes to use later.", usable=False)
    bench.host.send(dto.Found(looked=True, rows=(row, other)))
    bench.settle()
    buttons = [button for button in bench.all("Btn") if button.property("text") == "Use it…"]
    assert [button.property("visible") for button in buttons].count(True) == 1
    press(bench, "Btn", "Use it…")
    assert bench.wait_for(dto.UseFound).found == "f1"


def test_a_window_of_another_profile_says_so(bench: Bench) -> None:
    bench.select()
    assert bench.window.title() == "Remuda"
    bench.host.send(hello_message(profile="workshop"))
    bench.settle()
    assert bench.window.title() == "Remuda · workshop"
    assert "workshop" in [item.property("text") for item in bench.all("Name") if item.property("visible")]


def test_what_holds_the_window_is_always_said(bench: Bench) -> None:
    bench.select()
    bench.host.send(dto.Isolation(level="none", sentence="Nothing holds this window.", walls=(), probes=()))
    bench.settle()
    strips = [strip for strip in bench.all("Strip") if strip.property("visible")]
    assert [strip.property("words") for strip in strips] == ["Nothing holds this window."]
    assert not strips[0].property("closable")


def test_the_self_test_page_lists_walls_and_probes_and_runs_again(bench: Bench) -> None:
    bench.select()
    bench.key(Qt.Key.Key_I, "i", Qt.KeyboardModifier.ControlModifier)
    asked = bench.wait_for(dto.SelfTest)
    bench.host.send(
        dto.Isolation(
            level="walled",
            sentence="All walls stand.",
            walls=(dto.Wall(name="landlock", state="up"),),
            probes=(dto.Probe(name="read home", verdict="blocked"), dto.Probe(name="take a picture", verdict="open")),
        ),
        dto.Outcome(request=asked.request, status="done"),
    )
    bench.settle()
    words = {mark.property("word") for mark in bench.all("StateMark") if mark.property("visible")}
    assert {"Isolated", "Stands", "Blocked", "Open"} <= words
    again = next(item for item in bench.all("Btn") if item.property("text") == "Run again")
    again.metaObject().invokeMethod(again, "click")
    bench.wait_for(dto.SelfTest)


def test_the_theme_follows_the_host_and_is_asked_of_it(bench: Bench) -> None:
    bench.select()
    light = bench.window.color().name()
    bench.renderer._bridge.setup.open("appearance")
    bench.settle()
    press(bench, "Way", "Dark")
    assert bench.wait_for(dto.SetTheme).theme == "dark"
    bench.host.send(dto.Appearance(theme="dark", dark=True))
    bench.settle()
    assert bench.window.color().name() != light


def test_the_filter_is_asked_of_the_host(bench: Bench) -> None:
    bench.select()
    bench.host.said.clear()
    bench.key(Qt.Key.Key_F, "f", Qt.KeyboardModifier.ControlModifier)
    bench.type("rain")
    bench.settle()
    assert bench.host.take(dto.WantConversations)[-1].filter == "rain"


def test_everything_has_a_name_for_those_who_do_not_see(talk: Bench) -> None:
    from PySide6.QtGui import QAccessible

    talk.settle()
    roles = {QAccessible.Role.Button, QAccessible.Role.EditableText, QAccessible.Role.List, QAccessible.Role.ButtonMenu}
    nameless = []

    def walk(interface: object, depth: int = 0) -> None:
        for place in range(interface.childCount()):  # type: ignore[attr-defined]
            child = interface.child(place)  # type: ignore[attr-defined]
            if child is None or depth > 40:
                continue
            if child.role() in roles and not child.text(QAccessible.Text.Name):
                nameless.append((child.role(), child.object().metaObject().className()))
            walk(child, depth + 1)

    walk(QAccessible.queryAccessibleInterface(talk.window))
    assert nameless == []


def test_tab_reaches_every_part_of_the_window(talk: Bench) -> None:
    seen = set()
    for _ in range(60):
        talk.key(Qt.Key.Key_Tab, "\t")
        focused = talk.window.activeFocusItem()
        if focused is not None:
            seen.add(str(focused.property("says") or focused.objectName() or focused.property("text")))
    words = "\n".join(sorted(seen))
    for wanted in ("New conversation", "Filter", "Isolat", "Settings", "composer", "transcript", "What can be done"):
        assert wanted in words, words


def running_timers(bench: Bench) -> list[QObject]:
    objects = bench.everything()
    return [timer for timer in objects if timer.property("running") is True and timer.property("repeat") is True]


def test_a_row_that_is_gone_does_not_go_on_moving(bench: Bench) -> None:
    bench.host.rows = rows_of([("At work", "Native", 1, "working", False)], time.time_ns() // 1_000_000)
    bench.host.send(dto.Conversations(filter="", total=1, first=0, rows=tuple(bench.host.rows)))
    bench.select()
    bench.key(Qt.Key.Key_Comma, ",", Qt.KeyboardModifier.ControlModifier)  # where no caret blinks
    bench.settle()
    assert running_timers(bench)
    bench.host.send(dto.Conversations(filter="", total=0, first=0, rows=()))
    bench.settle()
    assert running_timers(bench) == []


def test_an_idle_window_has_no_timer_running(talk: Bench) -> None:
    """But the caret's, which rests after ten seconds; hidden, not even that."""
    end = time.monotonic() + 0.7
    talk.spin(lambda: time.monotonic() > end)
    assert len(running_timers(talk)) <= 1
    talk.window.hide()
    talk.settle()
    assert running_timers(talk) == []
