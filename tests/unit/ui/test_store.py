"""The view state: what each message of the host changes, and that nothing typed is lost."""

from typing import Any

import pytest

from ui.store import Pending, Store
from ui.wire import dto

NOW = 1_800_000_000_000


def selected(revision: int = 1, conversation: str | None = "c1", **more: Any) -> dto.Selected:
    values: dict[str, Any] = {
        "title": "Title", "sentence": "Native · tiny · touches nothing", "choice": "tiny", "effort": "",
        "enter": "Enter sends.", "total": 0, "draft": "", **more,
    }  # fmt: skip
    return dto.Selected(revision=revision, conversation=conversation, **values)


def row(name: str, updated_ms: int = NOW, **more: Any) -> dto.ConversationRow:
    values: dict[str, Any] = {"title": name, "subtitle": "", "state": "done", **more}
    return dto.ConversationRow(id=name, updated_ms=updated_ms, **values)


TINY = dto.Choice(id="tiny", harness="Native", connector="Built-in", model="SmolLM2", builtin=True)


@pytest.fixture
def store() -> Store:
    made = Store()
    made.apply(dto.HostHello(version=1, build="b", profile="personal", theme="dark", dark=True))
    made.apply(dto.Choices(choices=(TINY,)))
    return made


def send(store: Store, text: str, request: int = 1) -> None:
    store.typing(text)
    store.expect(request, Pending("send", text, "r", store.conversation))


def test_the_first_run_page_shows_while_nothing_is_chosen(store: Store) -> None:
    assert not store.facts()["ready"]
    store.apply(selected(conversation=None, choice=None))
    assert store.facts()["firstRun"]
    store.apply(selected(2, None, choice="tiny"))
    assert not store.facts()["firstRun"]
    assert store.facts()["empty"]


def test_that_a_reply_is_asked_for_once_more_is_said_beside_the_run(store: Store) -> None:
    store.apply(selected(run=dto.RunView(id="r", state="working", sentence="Working on it")))
    store.apply(dto.Notice(id="retry", level="info", code="RETRY", text="Busy. It is asked for once more."))
    assert store.facts()["runSentence"] == "Busy. It is asked for once more."
    assert store.notices == {}
    store.apply(dto.NoticeGone(id="retry"))
    assert store.facts()["runSentence"] == "Working on it"


def test_the_header_names_the_agent_once_and_only_with_a_model(store: Store) -> None:
    store.apply(selected(agent="a", agent_name="Scribe"))
    assert store.facts()["sentence"] == "Scribe · Native · tiny · touches nothing"
    store.apply(selected(2, agent="a", agent_name="Native"))
    assert store.facts()["sentence"] == "Native · tiny · touches nothing"
    store.apply(selected(3, None, choice=None, sentence="Choose a model", agent="a", agent_name="Scribe"))
    assert store.facts()["sentence"] == "Choose a model"


def test_no_answer_in_the_trusted_dialog_is_no_fault(store: Store) -> None:
    store.apply(selected())
    store.expect(1, Pending("propose"))
    assert store.facts()["asked"]
    store.apply(dto.Outcome(request=1, status="refused", code="NOT_DONE"))
    assert not store.facts()["asked"]
    assert store.notices == {}


def test_typed_text_stays_until_the_host_has_it(store: Store) -> None:
    store.apply(selected())
    send(store, "Hello")
    assert store.typed == "Hello"
    assert store.facts()["sending"]
    store.apply(dto.Outcome(request=1, status="done"))
    assert store.typed == ""
    assert "composer" in store.changed


@pytest.mark.parametrize("status", ["refused", "failed", "stale"])
def test_refused_text_stays_with_the_sentence(store: Store, status: Any) -> None:
    store.apply(selected())
    send(store, "Hello")
    store.apply(dto.Outcome(request=1, status=status, text="The disk is full."))
    assert store.typed == "Hello"
    assert store.facts()["problem"] == "The disk is full."
    store.typing("Hello again")
    assert store.facts()["problem"] == ""


def test_a_refusal_without_words_still_says_something(store: Store) -> None:
    store.apply(selected())
    send(store, "Hello")
    store.apply(dto.Outcome(request=1, status="stale"))
    assert store.facts()["problem"]


def test_what_was_typed_after_enter_stays(store: Store) -> None:
    store.apply(selected())
    send(store, "Hello")
    store.typing("Hello\nand one more thing")
    store.apply(dto.Outcome(request=1, status="done"))
    assert store.typed == "and one more thing"


def test_the_conversation_made_by_a_send_keeps_the_text_until_the_outcome(store: Store) -> None:
    store.apply(selected(conversation=None))
    send(store, "Hello")
    store.apply(selected(2, "c9"))
    assert store.typed == "Hello"
    store.apply(dto.Outcome(request=1, status="refused", text="No."))
    assert store.typed == "Hello"


def test_another_conversation_brings_its_own_draft(store: Store) -> None:
    store.apply(selected(draft="one"))
    assert store.typed == "one"
    store.apply(selected(2, "c2", draft="tw", draft_pieces=2))
    store.apply(dto.DraftPiece(revision=2, text="o an"))
    assert store.typed == "one", "not before all of it is here"
    store.apply(dto.DraftPiece(revision=2, text="d a half"))
    assert store.typed == "two and a half"


def test_the_same_conversation_again_keeps_what_is_typed(store: Store) -> None:
    store.apply(selected(draft="kept"))
    store.typing("typed since")
    store.apply(selected(2, draft="kept"))
    assert store.typed == "typed since"


def test_commands_use_the_newest_revision(store: Store) -> None:
    store.apply(selected(3))
    store.apply(dto.RunChanged(revision=5, conversation="c1", enter="Stop first.", run=None))
    assert store.revision == 5
    assert store.facts()["enter"] == "Stop first."


def test_a_run_of_another_conversation_changes_nothing(store: Store) -> None:
    store.apply(selected(3))
    store.apply(dto.RunChanged(revision=9, conversation="c2", enter="", run=dto.RunView(id="r", state="working")))
    assert store.revision == 3
    assert not store.busy


@pytest.mark.parametrize(
    ("state", "word", "tone"),
    [("working", "Working", "working"), ("unknown", "Unknown", "unknown"), ("failed", "Failed", "failed"),
     ("stopped", "Stopped", "stopped"), ("waiting", "Waiting for you", "waiting")],
)  # fmt: skip
def test_each_state_has_its_icon_word_and_colour(store: Store, state: Any, word: str, tone: str) -> None:
    store.apply(selected(run=dto.RunView(id="r", state=state, sentence="Why.")))
    facts = store.facts()
    assert (facts["runWord"], facts["runTone"], facts["runIcon"]) == (word, tone, tone)
    assert facts["runVisible"]


def test_unknown_is_neither_failed_nor_done(store: Store) -> None:
    store.apply(selected(run=dto.RunView(id="r", state="unknown", can_ask_again=True)))
    facts = store.facts()
    assert facts["runTone"] not in ("failed", "done")
    assert facts["canAskAgain"]


def test_done_is_silent(store: Store) -> None:
    store.apply(selected(run=dto.RunView(id="r", state="done")))
    assert not store.facts()["runVisible"]


def test_items_of_another_conversation_are_dropped(store: Store) -> None:
    store.apply(selected(total=0))
    item = dto.Item(id="i", kind="user", state="complete", text="x", size_chars=1)
    store.apply(dto.ItemAdded(conversation="c2", index=0, item=item))
    store.apply(dto.Items(conversation="c2", total=1, first=0, items=(item,)))
    assert store.transcript.row_count == 0
    store.apply(dto.ItemAdded(conversation="c1", index=0, item=item))
    assert store.transcript.row_count == 1


def test_after_a_gap_the_snapshot_stands_in_the_place_of_what_was_there(store: Store) -> None:
    store.apply(selected(total=1))
    item = dto.Item(id="i", kind="reply", state="open", text="The be", size_chars=6)
    store.apply(dto.Items(conversation="c1", total=1, first=0, items=(item,)))
    store.apply(dto.Gap(conversation="c1", run="r", after=1, before=9))
    whole = dto.Item(id="i", kind="reply", state="complete", text="The beginning and the end", size_chars=25)
    store.apply(dto.Items(conversation="c1", total=1, first=0, items=(whole,), snapshot=True))
    [entry] = store.transcript.entries()
    assert (entry.item.state, entry.whole_text()) == ("complete", whole.text)


def listed(store: Store) -> list[str]:
    return [store.listing.rows[place].id for place in sorted(store.listing.rows)]


def test_the_sidebar_follows_changes_in_order(store: Store) -> None:
    rows = (row("p", 1, pinned=True), row("a", 30), row("b", 20), row("c", 10))
    store.apply(dto.Conversations(filter="", total=4, first=0, rows=rows))
    store.apply(dto.ConversationChanged(row=row("c", 40)))
    assert listed(store) == ["p", "c", "a", "b"]
    store.apply(dto.ConversationChanged(row=row("n", 50)))
    assert listed(store) == ["p", "n", "c", "a", "b"]
    assert store.listing.total == 5
    store.apply(dto.ConversationGone(id="c"))
    assert listed(store) == ["p", "n", "a", "b"]
    assert store.listing.total == 4
    assert sorted(store.listing.rows) == [0, 1, 2, 3]


def test_a_change_far_down_an_unloaded_list_goes_to_the_top(store: Store) -> None:
    loaded = tuple(row(f"r{n}", 1000 - n) for n in range(50))
    store.apply(dto.Conversations(filter="", total=5_000, first=0, rows=loaded))
    store.apply(dto.ConversationChanged(row=row("r9", 2_000)))
    assert listed(store)[:3] == ["r9", "r0", "r1"]
    assert store.listing.total == 5_000


def test_an_answer_to_an_older_filter_is_dropped(store: Store) -> None:
    store.listing.filter = "ab"
    store.apply(dto.Conversations(filter="a", total=1, first=0, rows=(row("x"),)))
    assert not store.listing.known
    store.apply(dto.Conversations(filter="ab", total=0, first=0, rows=()))
    assert store.listing.known


def test_a_title_that_changes_changes_the_header(store: Store) -> None:
    store.apply(selected())
    store.apply(dto.Conversations(filter="", total=1, first=0, rows=(row("c1"),)))
    store.apply(dto.ConversationChanged(row=row("c1", NOW + 1, title="A better title")))
    assert store.facts()["title"] == "A better title"


def test_notices_stay_until_they_are_withdrawn_or_closed(store: Store) -> None:
    store.apply(dto.Notice(id="n1", level="error", code="X", text="Something.", sticky=True))
    store.apply(dto.Notice(id="n2", level="info", code="Y", text="Else."))
    store.dismiss("n2")
    assert list(store.notices) == ["n1"]
    store.apply(dto.NoticeGone(id="n1"))
    assert not store.notices


def test_a_refused_command_is_said_over_the_conversation(store: Store) -> None:
    store.apply(selected())
    store.expect(7, Pending("delete"))
    store.apply(dto.Outcome(request=7, status="refused", text="A run is working."))
    assert [notice.text for notice in store.notices.values()] == ["A run is working."]


def test_a_self_test_that_could_not_run_ends(store: Store) -> None:
    store.apply(selected())
    store.expect(7, Pending("self-test"))
    assert store.facts()["testing"]
    store.apply(dto.Outcome(request=7, status="failed"))
    assert not store.facts()["testing"]


def test_an_outcome_nobody_asked_for_changes_nothing(store: Store) -> None:
    store.apply(selected())
    store.typing("text")
    store.apply(dto.Outcome(request=99, status="done"))
    assert store.typed == "text"
    assert not store.notices


def test_every_message_of_the_host_is_reduced() -> None:
    handled = set(Store()._reduce)
    assert handled == set(dto.HostMessage.__args__)
