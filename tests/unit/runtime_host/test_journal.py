import asyncio
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.definitions import Observation
from runtime_host.errors import AgentEventHistoryExpiredError
from runtime_host.events import AgentEvent
from runtime_host.journal import Gap, Journal, admitted_types


class Turns:
    """Stands for the loop: callbacks wait for the end of the turn."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def end(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


def journal_of(budget_bytes: int = 1 << 20, turns: Turns | None = None, first_sequence: int = 1) -> Journal:
    return Journal(
        run_id="run_1",
        session_id="session_1",
        budget_bytes=budget_bytes,
        first_sequence=first_sequence,
        schedule=turns or Turns(),
    )


def say(journal: Journal, text: str, item: str = "i1", at: int = 0) -> None:
    journal.append_delta("agent.message.delta", item, text, {"id": item, "index": 1, "at": at, "phase": "unknown"})


def size_of(event: AgentEvent) -> int:
    return len(msgspec.json.encode(event.model_dump(mode="json")))


def read_all(journal: Journal, cursor: int = 0, step: int = 7) -> tuple[list[AgentEvent], list[Gap]]:
    events: list[AgentEvent] = []
    gaps: list[Gap] = []
    while True:
        slice_ = journal.read(cursor, step)
        if slice_.gap is not None:
            gaps.append(slice_.gap)
            assert slice_.gap.from_sequence == cursor + 1
        events.extend(slice_.events)
        following = slice_.next_cursor(cursor)
        if following == cursor:
            return events, gaps
        cursor = following


def test_deltas_of_one_item_in_one_turn_are_one_event() -> None:
    turns = Turns()
    journal = journal_of(turns=turns)
    say(journal, "Hel")
    say(journal, "lo", at=3)
    turns.end()
    say(journal, " you", at=5)
    events, _ = read_all(journal)
    assert [(event.sequence, event.data["at"], event.data["text"]) for event in events] == [
        (1, 0, "Hello"),
        (2, 5, " you"),
    ]


def test_deltas_of_two_items_keep_their_order() -> None:
    journal = journal_of()
    for item, text in (("a", "1"), ("b", "2"), ("a", "3")):
        say(journal, text, item)
    events, _ = read_all(journal)
    assert [(event.data["id"], event.data["text"]) for event in events] == [("a", "1"), ("b", "2"), ("a", "3")]


def test_another_event_comes_after_the_text_before_it() -> None:
    journal = journal_of()
    say(journal, "text")
    journal.append("diagnostic", {"code": "X"})
    say(journal, "more", at=4)
    events, _ = read_all(journal)
    assert [event.type for event in events] == ["agent.message.delta", "diagnostic", "agent.message.delta"]


def test_reading_ends_what_grows_so_a_cursor_misses_nothing() -> None:
    journal = journal_of()
    say(journal, "ab")
    cursor = journal.last_sequence
    say(journal, "cd", at=2)
    assert [event.data["text"] for event in journal.read(cursor).events] == ["cd"]


def test_one_huge_delta_is_split_and_nothing_of_it_is_lost() -> None:
    journal = journal_of(1 << 22)
    text = "x\n😀\x01" * 30_000
    say(journal, text)
    events, gaps = read_all(journal)
    assert not gaps
    assert len(events) > 1
    assert "".join(event.data["text"] for event in events) == text
    at = 0
    for event in events:
        assert event.data["at"] == at
        at += len(event.data["text"])
        assert len(msgspec.json.encode(event.data)) <= journal.payload_cap_bytes


def test_a_large_payload_is_cut_and_keeps_what_identifies_it() -> None:
    journal = journal_of()
    journal.append(
        "tool.completed", {"id": "t1", "name": "lookup", "status": "ok", "result": {"rows": ["r" * 50] * 9000}}
    )
    journal.append("agent.message.completed", {"id": "i1", "index": 3, "size_chars": 200_000, "text": "ä" * 200_000})
    tool, message = read_all(journal)[0]
    assert (tool.data["id"], tool.data["name"], tool.data["status"], tool.data["truncated"]) == (
        "t1",
        "lookup",
        "ok",
        True,
    )
    assert tool.data["payload_preview"].startswith('{"result"')
    assert (message.data["id"], message.data["index"], message.data["size_chars"]) == ("i1", 3, 200_000)
    assert message.data["truncated"] is True
    assert set(message.data["text"]) == {"ä"}
    for event in (tool, message):
        assert len(msgspec.json.encode(event.data)) <= 65536


@given(
    st.integers(1024, 8192),
    st.lists(
        st.tuples(st.sampled_from(["delta", "other", "turn"]), st.integers(1, 600), st.sampled_from("abc")),
        max_size=120,
    ),
)
def test_bounds_order_and_gaps_hold_whatever_comes(budget_bytes: int, script: list[tuple[str, int, str]]) -> None:
    turns = Turns()
    journal = journal_of(budget_bytes, turns)
    told: list[Gap] = []
    for what, size, item in script:
        if what == "delta":
            say(journal, "é" * size, item)
        elif what == "other":
            journal.append("diagnostic", {"code": "D", "message": "m" * size})
        else:
            turns.end()
        assert journal.statistics().retained_bytes <= budget_bytes
    journal.append("run.finished", {"status": "completed", "finish_reason": None})
    journal.close()
    events, gaps = read_all(journal)
    statistics = journal.statistics()
    assert sum(map(size_of, events)) <= statistics.retained_bytes <= budget_bytes
    assert events[-1].type == "run.finished"
    assert events[-1].sequence == journal.last_sequence
    # Each number is either read or in exactly one gap.
    seen = [event.sequence for event in events]
    for gap in gaps:
        seen += range(gap.from_sequence, gap.to_sequence + 1)
        told.append(gap)
    assert sorted(seen) == list(range(1, journal.last_sequence + 1))
    assert [event.sequence for event in events] == sorted(event.sequence for event in events)
    assert len(events) + statistics.dropped_events == journal.last_sequence
    assert bool(told) == bool(statistics.dropped_events)


@given(st.integers(1, 40), st.integers(1, 12))
def test_any_cursor_reads_the_same_rest(events_count: int, step: int) -> None:
    journal = journal_of(2048)
    for number in range(events_count):
        say(journal, f"{number}" * 10, item=f"i{number % 3}")
    whole, _ = read_all(journal, 0, 1)
    for cursor in range(journal.last_sequence + 1):
        rest, _ = read_all(journal, cursor, step)
        assert rest == [event for event in whole if event.sequence > cursor]


def test_deltas_go_before_anything_else() -> None:
    journal = journal_of(2048)
    journal.append("run.started", {"driver": "d"})
    for number in range(50):
        say(journal, "x" * 60, item=f"i{number}")
    journal.append("run.finished", {"status": "completed"})
    events, gaps = read_all(journal)
    assert [events[0].type, events[-1].type] == ["run.started", "run.finished"]
    assert gaps == [Gap(2, events[1].sequence - 1, gaps[0].dropped_events, gaps[0].dropped_deltas)]
    assert (gaps[0].after, gaps[0].before) == (1, events[1].sequence)
    assert gaps[0].dropped_deltas == gaps[0].dropped_events == gaps[0].to_sequence - 1


def test_a_million_deltas_nobody_reads_stay_within_the_bound() -> None:
    turns = Turns()
    journal = journal_of(1 << 20, turns)
    for number in range(60_000):
        say(journal, "word ", item="a" if number % 2 else "b")
        turns.waiting.clear()
    held = len(journal._deltas.entries)
    assert journal.statistics().retained_bytes <= 1 << 20
    assert held <= 2 * journal.statistics().retained_events + 128


def test_a_cursor_that_is_none_of_the_run_is_refused() -> None:
    journal = journal_of()
    journal.append("diagnostic", {"code": "A"})
    for cursor in (-1, 2):
        with pytest.raises(ValueError, match="cursor"):
            journal.read(cursor)


def test_nothing_comes_after_the_end() -> None:
    journal = journal_of()
    journal.append("run.finished", {"status": "completed"})
    journal.close()
    with pytest.raises(RuntimeError):
        journal.append("diagnostic", {"code": "late"})
    with pytest.raises(RuntimeError):
        say(journal, "late")
    assert [event.type for event in read_all(journal)[0]] == ["run.finished"]


def test_an_event_cannot_be_changed_by_who_read_it() -> None:
    journal = journal_of()
    journal.append("diagnostic", {"code": "A"})
    event = journal.read(0).events[0]
    with pytest.raises(TypeError):
        event.data["code"] = "B"
    assert journal.read(0).events[0].data == {"code": "A"}


def test_a_subscriber_is_called_once_a_turn_and_one_that_fails_is_dropped_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns = Turns()
    journal = journal_of(turns=turns)
    calls: list[str] = []

    def broken() -> None:
        calls.append("broken")
        raise RuntimeError("subscriber")

    journal.subscribe(broken)
    leave = journal.subscribe(lambda: calls.append("sound"))
    for _ in range(2):
        say(journal, "a")
        say(journal, "b")
        journal.append("diagnostic", {"code": "A"})
        turns.end()
    assert calls == ["broken", "sound", "sound"]
    assert "failed and was dropped" in caplog.text
    leave()
    leave()
    journal.append("diagnostic", {"code": "A"})
    turns.end()
    assert calls == ["broken", "sound", "sound"]


def test_idle_there_is_nothing_scheduled() -> None:
    turns = Turns()
    journal = journal_of(turns=turns)
    journal.append("diagnostic", {"code": "A"})
    assert turns.waiting == []
    say(journal, "a")
    assert len(turns.waiting) == 1
    turns.end()
    assert turns.waiting == []


@pytest.mark.parametrize(
    ("observation", "kept", "dropped"),
    [
        (Observation(), ["reasoning.delta", "tool.started", "agent.message.delta", "run.started"], []),
        (
            Observation(detail="activity"),
            ["tool.started", "agent.message.delta"],
            ["reasoning.delta", "reasoning.completed"],
        ),
        (
            Observation(detail="status"),
            ["agent.message.completed", "usage.updated", "diagnostic", "run.finished"],
            [
                "agent.message.delta",
                "plan.updated",
                "command.started",
                "file.changed",
                "tool.started",
                "reasoning.delta",
            ],
        ),
        (
            Observation(mode="final-only"),
            ["agent.message.completed", "run.started", "interaction.requested"],
            ["agent.message.delta", "agent.iteration.completed", "reasoning.completed"],
        ),
    ],
)
def test_an_observation_keeps_what_its_row_says(observation: Observation, kept: list[str], dropped: list[str]) -> None:
    types = admitted_types(observation)
    for type_ in kept:
        assert types is None or type_ in types
    for type_ in dropped:
        assert types is not None
        assert type_ not in types


async def test_readers_before_during_and_after_see_the_same() -> None:
    journal = Journal(run_id="r", session_id="s", budget_bytes=1 << 20)
    seen: list[list[AgentEvent]] = [[], [], []]

    async def follow(into: list[AgentEvent]) -> None:
        into.extend([event async for event in journal.follow()])

    async with asyncio.TaskGroup() as group:
        group.create_task(follow(seen[0]))
        await asyncio.sleep(0)
        say(journal, "one")
        await asyncio.sleep(0)
        group.create_task(follow(seen[1]))
        await asyncio.sleep(0)
        say(journal, "two", at=3)
        await asyncio.sleep(0)
        journal.append("run.finished", {"status": "completed"})
        journal.close()
    await follow(seen[2])
    assert seen[0] == seen[1] == seen[2]
    assert [event.type for event in seen[0]] == ["agent.message.delta", "agent.message.delta", "run.finished"]


async def test_a_follower_sees_a_gap_where_it_is() -> None:
    journal = Journal(run_id="r", session_id="s", budget_bytes=2048)
    journal.append("run.started", {"driver": "d"})
    for number in range(40):
        say(journal, "x" * 80, item=f"i{number}")
    journal.close()
    events = [event async for event in journal.follow()]
    assert [events[0].type, events[1].type] == ["run.started", "diagnostic"]
    marker = events[1].data
    assert (marker["code"], marker["from"], marker["to"]) == ("EVENTS_DROPPED", 2, events[2].sequence - 1)
    assert [event.sequence for event in events] == sorted({event.sequence for event in events})
    # A cursor inside what is gone cannot be served; the marker's own number can.
    with pytest.raises(AgentEventHistoryExpiredError):
        await anext(journal.follow(5))
    assert [event async for event in journal.follow(events[1].sequence)] == events[2:]


async def test_an_expired_journal_is_history_and_holds_no_memory() -> None:
    journal = Journal(run_id="r", session_id="s", budget_bytes=2048)
    say(journal, "text")
    journal.append("run.finished", {"status": "completed"})
    journal.close()
    journal.expire()
    assert journal.statistics()[:2] == (0, 0)
    with pytest.raises(AgentEventHistoryExpiredError):
        await anext(journal.follow())
    slice_ = journal.read(0)
    assert (slice_.events, slice_.gap) == ((), Gap(1, 2, 2, 1))


async def test_numbers_go_on_where_an_earlier_process_may_have_stopped() -> None:
    journal = Journal(run_id="r", session_id="s", budget_bytes=2048, first_sequence=1025)
    journal.append("diagnostic", {"code": "A"})
    slice_ = journal.read(3)
    assert (slice_.gap and slice_.gap[:2], slice_.events[0].sequence) == ((4, 1024), 1025)


def test_a_budget_too_small_to_hold_an_event_is_refused() -> None:
    with pytest.raises(ValueError, match="1024"):
        journal_of(1023)


def test_what_is_kept_weighs_little_more_than_it_is_counted() -> None:
    journal = journal_of()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1_000):
            journal.append("agent.message.completed", {"id": f"m{number}", "text": f"{number:05d}" * 2_000})
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert journal.statistics().dropped_events > 0
    assert grown < 1.2 * journal.budget_bytes
