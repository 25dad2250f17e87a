"""The settings, the picker and the first-run page: every gesture is a wish or a proposal, and keys reach all of it."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtQuick import QQuickItem

from tests.ui.conftest import Bench
from tests.ui.scenes import AGENTS, CHOICES, CONNECTORS, FOUND, PAGES, PLACES, PROFILES
from tests.ui.test_window import press, running_timers
from ui.wire import dto

CTRL = Qt.KeyboardModifier.ControlModifier
ENTER, ESC, TAB, DOWN, UP = Qt.Key.Key_Return, Qt.Key.Key_Escape, Qt.Key.Key_Tab, Qt.Key.Key_Down, Qt.Key.Key_Up
RIGHT, LEFT = Qt.Key.Key_Right, Qt.Key.Key_Left


@pytest.fixture
def furnished(bench: Bench) -> Bench:
    """A window of somebody who has been here for a while."""
    bench.host.offer = list(CHOICES)
    bench.host.pages = dict(PAGES)
    bench.host.send(bench.host.choices(), dto.Connectors(rows=CONNECTORS))
    bench.select(choice="cloud", effort="medium")
    return bench


def open_settings(bench: Bench, place: str = "connections") -> None:
    bench.key(Qt.Key.Key_Comma, ",", CTRL)
    for _ in range(PLACES.index(place)):
        bench.key(RIGHT)
    bench.settle()


def shown(bench: Bench, kind: str) -> list[QObject]:
    return [item for item in bench.all(kind) if item.property("visible") and item.property("width") > 0]


def focus(bench: Bench) -> QQuickItem:
    item = bench.window.activeFocusItem()
    assert item is not None
    return item


def spoken(item: QObject) -> str:
    interface = QAccessible.queryAccessibleInterface(item)
    return interface.text(QAccessible.Text.Name) if interface is not None else ""


def tab_until(bench: Bench, words: str) -> None:
    """Go there by keys alone, as somebody without a mouse does."""
    for _ in range(80):
        if words in spoken(focus(bench)):
            return
        bench.key(TAB, "\t")
    raise AssertionError(f"keys do not reach {words!r}")


def in_menu(bench: Bench, words: str) -> None:
    """Choose an entry of the open menu with the arrow keys."""
    for _ in range(12):
        if spoken(focus(bench)) == words:
            bench.key(ENTER, "\r")
            return
        bench.key(DOWN)
    raise AssertionError(f"the menu holds no {words!r}")


# ------------------------------------------------------------------------- the place


def test_the_settings_are_made_when_they_are_opened_and_gone_when_they_are_left(furnished: Bench) -> None:
    assert furnished.all("Settings") == []
    assert furnished.all("Picker") == []
    assert not furnished.host.take(dto.WantPage)
    open_settings(furnished)
    assert furnished.wait_for(dto.WantPage).page == "connections"
    assert spoken(focus(furnished)) == "Connectors"
    furnished.key(ESC)
    furnished.settle()
    assert furnished.all("Settings") == []
    assert focus(furnished).objectName() == "composer"


def test_each_page_is_asked_for_when_it_is_opened(furnished: Bench) -> None:
    open_settings(furnished, "appearance")
    pages = ["connections", "harnesses", "agents", "mounts", "profiles", "stored"]
    assert [want.page for want in furnished.host.take(dto.WantPage)] == pages
    assert len(furnished.host.take(dto.WantChoices)) == 1


@pytest.mark.parametrize("place", PLACES)
def test_everything_on_a_page_is_reached_by_keys_and_has_a_name(furnished: Bench, place: str) -> None:
    open_settings(furnished, place)
    furnished.host.send(dto.Found(looked=True, rows=FOUND), dto.Progress(id="p1", sentence="Writing", done=1, of=3))
    furnished.settle()
    inside = [item for item in _below(shown(furnished, "Settings")[0]) if _takes_focus(item)]
    assert inside
    reached: set[int] = set()
    for _ in range(120):
        reached.add(id(focus(furnished)))
        assert spoken(focus(furnished)), focus(furnished).metaObject().className()
        furnished.key(TAB, "\t")
    missed = [f"{item.metaObject().className()} {spoken(item)}" for item in inside if id(item) not in reached]
    assert missed == []


def _below(item: QObject) -> Iterator[QQuickItem]:
    assert isinstance(item, QQuickItem)
    for kid in item.childItems():
        if kid.isVisible():
            yield kid
            yield from _below(kid)


def _takes_focus(item: QQuickItem) -> bool:
    if item.inherits("QQuickListView"):
        return False  # its current row has the focus in its place
    policy = item.property("focusPolicy")
    return item.isEnabled() and policy is not None and bool(int(policy.value) & int(Qt.FocusPolicy.TabFocus.value))


@pytest.mark.parametrize("place", PLACES)
def test_an_idle_page_has_no_timer_running(furnished: Bench, place: str) -> None:
    furnished.host.rows = []
    open_settings(furnished, place)
    assert running_timers(furnished) == []


def test_what_gets_the_focus_comes_into_sight(furnished: Bench) -> None:
    furnished.window.setHeight(360)
    open_settings(furnished)
    tab_until(furnished, "Change how the network is reached")
    item = focus(furnished)
    page = shown(furnished, "Connections")[0]
    assert isinstance(page, QQuickItem)
    top = item.mapToItem(page, item.boundingRect().topLeft()).y()
    assert 0 <= top <= page.height() - item.height()


def test_while_the_trusted_dialog_is_open_the_page_says_so_and_its_no_is_no_fault(furnished: Bench) -> None:
    open_settings(furnished)
    press(furnished, "Btn", "Add a connector…")
    proposed = furnished.wait_for(dto.Propose)
    assert (proposed.action, proposed.target) == ("add-connector", None)
    assert furnished.renderer._bridge.state.value("asked") is True
    furnished.host.send(dto.Outcome(request=proposed.request, status="refused", code="NOT_DONE"))
    furnished.settle()
    assert furnished.renderer._bridge.state.value("asked") is False
    assert shown(furnished, "Strip") == []


# ------------------------------------------------------------------------- connections


def test_a_connection_is_tested_and_its_models_are_shown_by_keys(furnished: Bench) -> None:
    open_settings(furnished)
    tab_until(furnished, "Test OpenAI")
    furnished.key(ENTER, "\r")
    assert furnished.wait_for(dto.TestConnector).connector == "k2"
    testing = replace(CONNECTORS[2], testing=True)
    furnished.host.send(dto.Connectors(rows=(*CONNECTORS[:2], testing, *CONNECTORS[3:])))
    furnished.settle()
    assert spoken(focus(furnished)) == "Testing OpenAI", "focus stays where it was"
    furnished.key(ENTER, "\r")
    furnished.settle()
    assert furnished.host.take(dto.TestConnector) == []
    tab_until(furnished, "Models of OpenAI")
    furnished.key(ENTER, "\r")
    want = furnished.wait_for(dto.WantChoices)
    assert (want.filter, want.connector) == ("", "k2")
    furnished.settle()
    assert spoken(focus(furnished)) == "Models", "focus follows to the page that was opened"


@pytest.mark.parametrize(
    ("label", "action"),
    [
        ("Change the key…", "change-key"),
        ("Edit…", "edit-connector"),
        ("Remove…", "remove-connector"),
    ],
)
def test_what_is_done_to_a_connection_is_proposed(furnished: Bench, label: str, action: str) -> None:
    open_settings(furnished)
    tab_until(furnished, "What can be done with OpenAI")
    furnished.key(ENTER, "\r")
    in_menu(furnished, label)
    proposed = furnished.wait_for(dto.Propose)
    assert (proposed.action, proposed.target) == (action, "k2")
    assert "What can be done with OpenAI" in spoken(focus(furnished)), "focus is back where it was"


def test_models_are_asked_for_again(furnished: Bench) -> None:
    open_settings(furnished)
    tab_until(furnished, "What can be done with OpenAI")
    furnished.key(ENTER, "\r")
    in_menu(furnished, "Ask for the models again")
    assert furnished.wait_for(dto.RefreshModels).connector == "k2"


def test_how_the_key_store_stands_is_said_with_the_way_on(furnished: Bench) -> None:
    open_settings(furnished)
    furnished.host.send(dto.KeyStore(state="locked", sentence="It is locked.", way="Unlock it."))
    furnished.settle()
    notes = shown(furnished, "Note")
    assert [(note.property("words"), note.property("way")) for note in notes] == [("It is locked.", "Unlock it.")]
    furnished.host.send(dto.KeyStore(state="ok"))
    furnished.settle()
    assert shown(furnished, "Note") == []


def test_the_network_is_changed_in_the_trusted_dialog(furnished: Bench) -> None:
    open_settings(furnished)
    tab_until(furnished, "Change how the network is reached")
    furnished.key(ENTER, "\r")
    assert furnished.wait_for(dto.Propose).action == "network"


# ------------------------------------------------------------------------- models


def test_a_model_is_found_and_made_the_default_by_keys(furnished: Bench) -> None:
    open_settings(furnished, "models")
    furnished.host.take(dto.WantChoices)
    tab_until(furnished, "Find a model")
    furnished.type("mini")
    want = furnished.wait_for(dto.WantChoices)
    furnished.settle()
    assert want.filter.startswith("m")
    assert furnished.renderer._bridge.state.value("modelsShown") == 1
    furnished.key(DOWN)
    furnished.key(ENTER, "\r")
    in_menu(furnished, "Start new conversations with it")
    made = furnished.wait_for(dto.SetDefault)
    assert (made.choice, made.scope) == ("mini", "profile")


def test_what_is_known_about_a_model_is_declared_in_the_trusted_dialog(furnished: Bench) -> None:
    open_settings(furnished)
    tab_until(furnished, "Models of Workshop server")
    furnished.key(ENTER, "\r")
    furnished.settle()
    tab_until(furnished, "Models of: Workshop server")
    furnished.key(TAB, "\t")
    furnished.key(ENTER, "\r")
    in_menu(furnished, "Say what is known about it…")
    proposed = furnished.wait_for(dto.Propose)
    assert (proposed.action, proposed.target) == ("declare-model", "local")


# ------------------------------------------------------------------------- agents, profiles, stored


def test_a_conversation_is_begun_with_an_agent(furnished: Bench) -> None:
    open_settings(furnished, "agents")
    tab_until(furnished, "Start a conversation with Scribe")
    furnished.key(ENTER, "\r")
    assert furnished.wait_for(dto.NewConversation).agent == "a2"
    furnished.settle()
    assert furnished.all("Settings") == []


@pytest.mark.parametrize(
    ("label", "action"), [("Edit…", "edit-agent"), ("Duplicate", "duplicate-agent"), ("Delete…", "delete-agent")]
)
def test_what_is_done_to_an_agent_is_proposed(furnished: Bench, label: str, action: str) -> None:
    open_settings(furnished, "agents")
    tab_until(furnished, f"What can be done with {AGENTS[1].name}")
    furnished.key(ENTER, "\r")
    in_menu(furnished, label)
    proposed = furnished.wait_for(dto.Propose)
    assert (proposed.action, proposed.target) == (action, "a2")


def test_profiles_are_opened_made_and_never_deleted_while_open(furnished: Bench) -> None:
    open_settings(furnished, "profiles")
    press(furnished, "Btn", "New profile…")
    assert furnished.wait_for(dto.Propose).action == "add-profile"
    tab_until(furnished, f"Open: {PROFILES[2].name}")
    furnished.key(ENTER, "\r")
    opened = furnished.wait_for(dto.Propose)
    assert (opened.action, opened.target) == ("open-profile", "society")
    for profile, entries in ((PROFILES[1], {"Rename…"}), (PROFILES[2], {"Rename…", "Delete…"})):
        tab_until(furnished, f"What can be done with {profile.name}")
        furnished.key(ENTER, "\r")
        seen = set()
        for _ in range(3):
            seen.add(spoken(focus(furnished)))
            furnished.key(DOWN)
        furnished.key(ESC)
        assert seen == entries


def test_export_is_proposed_its_progress_shown_and_cancelled(furnished: Bench) -> None:
    open_settings(furnished, "stored")
    press(furnished, "Btn", "Export all…")
    assert furnished.wait_for(dto.Propose).action == "export-all"
    furnished.host.send(dto.Progress(id="p1", sentence="Writing", done=12, of=31))
    furnished.settle()
    press(furnished, "Btn", "Cancel")
    assert furnished.wait_for(dto.Cancel).progress == "p1"
    furnished.host.send(dto.Progress(id="p1", sentence="", ended=True))
    furnished.settle()
    assert [button for button in shown(furnished, "Btn") if button.property("text") == "Cancel"] == []


# ------------------------------------------------------------------------- picker


def test_letters_narrow_the_picker_and_keys_choose_model_and_effort(furnished: Bench) -> None:
    furnished.key(Qt.Key.Key_M, "m", CTRL)
    furnished.settle()
    furnished.host.take(dto.WantChoices)
    furnished.type("sonnet-5")
    furnished.settle()
    assert furnished.host.take(dto.WantChoices)[-1].filter == "sonnet-5"
    furnished.key(RIGHT, modifiers=Qt.KeyboardModifier.AltModifier)
    furnished.key(ENTER, "\r")
    chosen = furnished.wait_for(dto.Choose)
    assert (chosen.choice, chosen.effort) == ("sonnet", "high")


def test_enter_before_the_answer_takes_the_answer_and_not_what_stood_there(furnished: Bench) -> None:
    furnished.key(Qt.Key.Key_M, "m", CTRL)
    furnished.settle()
    furnished.type("sonnet-5")
    furnished.key(ENTER, "\r")
    assert furnished.wait_for(dto.Choose).choice == "sonnet"


def test_the_picker_begins_at_what_is_chosen_and_arrows_move_from_there(furnished: Bench) -> None:
    furnished.key(Qt.Key.Key_M, "m", CTRL)
    furnished.settle()
    assert furnished.all("Picker")
    furnished.key(DOWN)
    furnished.key(LEFT)
    furnished.key(ENTER, "\r")
    chosen = furnished.wait_for(dto.Choose)
    assert (chosen.choice, chosen.effort) == ("mini", "low")


def test_what_is_not_available_is_not_taken(furnished: Bench) -> None:
    furnished.key(Qt.Key.Key_M, "m", CTRL)
    furnished.settle()
    for _ in range(len(CHOICES)):
        furnished.key(DOWN)
    furnished.key(ENTER, "\r")
    furnished.settle()
    assert furnished.host.take(dto.Choose) == []


def test_a_new_conversation_takes_its_agent_in_the_picker(furnished: Bench) -> None:
    furnished.select(None, choice="cloud", agent="a1", agent_name="Assistant")
    furnished.key(Qt.Key.Key_M, "m", CTRL)
    furnished.settle()
    assert "agents" in [want.page for want in furnished.host.take(dto.WantPage)]
    tab_until(furnished, "Agent: Assistant")
    furnished.key(ENTER, "\r")
    in_menu(furnished, "Scribe")
    assert furnished.wait_for(dto.NewConversation).agent == "a2"


@pytest.mark.parametrize(("word", "effort"), [("high", "high"), ("Its own measure", "")])
def test_the_effort_of_the_next_message_is_changed_beside_the_composer(
    furnished: Bench, word: str, effort: str
) -> None:
    tab_until(furnished, "Effort: medium")
    furnished.key(ENTER, "\r")
    in_menu(furnished, word)
    chosen = furnished.wait_for(dto.Choose)
    assert (chosen.choice, chosen.effort) == ("cloud", effort)


def test_the_header_says_who_answers_and_what_it_may_touch(furnished: Bench) -> None:
    furnished.select(agent="a1", agent_name="Assistant")
    names = [spoken(item) for item in _below(shown(furnished, "Header")[0])]
    assert "Assistant · Native · SmolLM2 · touches nothing" in names


def test_a_picture_is_not_pasted_without_a_word(furnished: Bench) -> None:
    from PySide6.QtGui import QGuiApplication, QImage

    image = QImage(4, 4, QImage.Format.Format_RGB32)
    image.fill(0)
    QGuiApplication.clipboard().setImage(image)
    furnished.select(images=False)
    composer = furnished.item("composer")
    composer.forceActiveFocus()
    furnished.key(Qt.Key.Key_V, "v", CTRL)
    furnished.settle()
    assert "picture was not put in" in furnished.renderer._bridge.state.value("problem")
    QGuiApplication.clipboard().clear()
