"""What waits to be said: its order, what the composer says of it, and that no typed word is lost."""

import pytest

from tests.ui.gate_rows import FOLLOW_UPS, STEERS, queued
from ui.models.queue import queued as rows_of
from ui.queue import LAST, Queue, enter_words
from ui.store import Pending, Store
from ui.wire import dto

ALL = (*STEERS, *FOLLOW_UPS)


def selected(conversation: str = "c1", state: str | None = "working", busy_enter: str = "steer") -> dto.Selected:
    run = None if state is None else dto.RunView(id="r", state=state)  # type: ignore[arg-type]
    return dto.Selected(
        revision=1, conversation=conversation, title="t", sentence="s", choice=None, effort="", enter="Enter sends.",
        total=0, draft="", run=run, busy_enter=busy_enter if state else "",  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.fixture
def store() -> Store:
    made = Store()
    made.apply(selected())
    made.apply(dto.Queued(conversation="c1", rows=ALL))
    return made


def test_a_queue_counts_for_its_own_conversation_only(store: Store) -> None:
    assert store.facts()["queueIds"] == ["q1", "q2", "q3", "q4"]
    store.apply(selected("c2"))
    assert store.facts()["queueIds"] == []
    assert rows_of(store) == []


@pytest.mark.parametrize(
    ("wanted", "by", "can", "before"),
    [
        ("q2", 1, True, "q4"),
        ("q3", 1, True, None),
        ("q4", 1, False, None),
        ("q4", -1, True, "q3"),
        ("q2", -1, False, None),  # what steers is said before it whatever happens
        ("q1", 1, False, None),
        ("gone", 1, False, None),
    ],
)
def test_what_is_sent_afterwards_moves_among_itself(wanted: str, by: int, can: bool, before: str | None) -> None:
    queue = Queue()
    queue.take(dto.Queued(conversation="c1", rows=ALL))
    moved = queue.move("c1", wanted, by)
    assert moved == (can, before) if can else moved[0] is False


@pytest.mark.parametrize("state", ["admitting", "working", "waiting", "stopping"])
@pytest.mark.parametrize("busy_enter", ["steer", "queue"])
def test_while_something_is_busy_both_keys_are_told_of(state: str, busy_enter: str) -> None:
    words = enter_words("Enter sends.", busy_enter, state, 0)
    assert "Enter" in words
    assert "Alt+Enter" in words
    assert "Enter sends." not in words


def test_the_words_of_the_host_stand_where_nothing_is_busy() -> None:
    assert enter_words("Enter sends.", "", "done", 0) == "Enter sends."
    assert enter_words("Enter sends.", "", "stopped", 2) == f"Enter sends · {LAST}"


def test_each_message_says_when_it_is_sent(store: Store) -> None:
    rows = rows_of(store)
    assert [row["heading"] for row in rows] == [
        "Sent before the model’s next step", "Sent when the run has ended", "", "",
    ]  # fmt: skip
    assert rows[1]["said"].startswith("2 of 4. Sent when the run has ended: Then write two sentences")
    store.apply(selected(state="waiting"))
    assert rows_of(store)[0]["heading"] == "Sent once you have decided"
    store.apply(selected(state="stopped"))
    store.apply(dto.Queued(conversation="c1", rows=FOLLOW_UPS, held=True))
    assert rows_of(store)[0]["heading"] == "Sent when you say so, or after your next message"
    assert store.facts()["queueWord"] == "3 messages held"


def test_sending_now_is_offered_where_it_changes_something(store: Store) -> None:
    assert [row["sendable"] for row in rows_of(store)] == [False, True, True, True]
    store.apply(selected(busy_enter="queue"))
    assert not any(row["sendable"] for row in rows_of(store))
    store.apply(selected(state="stopped"))
    assert all(row["sendable"] for row in rows_of(store))


def test_what_is_not_here_whole_is_not_edited(store: Store) -> None:
    long = dto.QueuedRow(id="q9", kind="follow_up", text="x" * 100, size_chars=50_000)
    store.apply(dto.Queued(conversation="c1", rows=(long, queued("follow_up", "short", "q8"))))
    first, second = rows_of(store)
    assert (first["editable"], first["text"][-1]) == (False, "…")
    assert "too long" in first["why"]
    assert second["editable"]


def test_a_change_that_was_not_taken_goes_to_the_composer(store: Store) -> None:
    store.typing("what stands there")
    store.expect(7, Pending("edit-queued", "the new words"))
    store.apply(dto.Outcome(request=7, status="stale"))
    assert store.typed == "what stands there\n\nthe new words"
    assert "composer" in store.changed


def test_a_suspected_secret_stays_and_is_remembered_until_the_text_changes(store: Store) -> None:
    store.typing("sk-1")
    store.expect(7, Pending("send", "sk-1", "r1", "c1", "queue"))
    store.apply(dto.Outcome(request=7, status="refused", code="SECRET_FOUND", text="It looks like a key."))
    assert (store.typed, store.problem) == ("sk-1", "It looks like a key.")
    assert store.doubted is not None
    assert store.doubted.when == "queue"
    store.typing("sk-")
    assert store.facts()["secret"] is False
    assert store.problem == ""


def test_any_other_refusal_offers_no_way_around(store: Store) -> None:
    store.expect(7, Pending("send", "hello", "r1", "c1"))
    store.apply(dto.Outcome(request=7, status="refused", code="KEYRING", text="No key."))
    assert store.facts()["secret"] is False


def test_while_a_run_goes_on_or_waits_the_queue_waits_for_it_and_is_not_held(store: Store) -> None:
    for state in ("working", "waiting"):
        store.apply(selected(state=state))
        store.apply(dto.Queued(conversation="c1", rows=ALL, held=True))
        assert store.facts()["queueWord"] == "4 messages waiting"
        assert rows_of(store)[1]["heading"] == "Sent when the run has ended"
    store.apply(selected(state="failed"))
    assert store.facts()["queueHeld"] is True
    assert [row["heading"] for row in rows_of(store)] == [
        "Sent when you say so, or after your next message",
        "",
        "",
        "",
    ]
