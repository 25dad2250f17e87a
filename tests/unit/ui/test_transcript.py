"""Rows of a transcript: windows, streams and evictions, held against a list that is worked out anew each time."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.transcript import AHEAD_ITEMS, KEPT_ITEMS, Transcript
from ui.wire import dto


class Mirror:
    """A listener that keeps its own list of rows from what it is told, as a view does."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self.rows: list[str] = []
        transcript.listener = self

    def _said(self, row: int) -> str:
        entry, line = self.transcript.line(row)
        text = line.row.text if line.row is not None else ""
        return f"{line.kind}:{entry.item.id if entry else ''}:{text}"

    @contextmanager
    def _insert(self, first: int, count: int) -> Iterator[None]:
        assert count > 0
        assert 0 <= first <= len(self.rows)
        assert self.transcript.row_count == len(self.rows)
        yield
        assert self.transcript.row_count == len(self.rows) + count
        self.rows[first:first] = [self._said(row) for row in range(first, first + count)]

    @contextmanager
    def _remove(self, first: int, count: int) -> Iterator[None]:
        assert count > 0
        assert self.transcript.row_count == len(self.rows)
        yield
        del self.rows[first : first + count]
        assert self.transcript.row_count == len(self.rows)

    @contextmanager
    def _reset(self) -> Iterator[None]:
        yield
        self.rows = [self._said(row) for row in range(self.transcript.row_count)]

    def inserting(self, first: int, count: int) -> AbstractContextManager[object]:
        return self._insert(first, count)

    def removing(self, first: int, count: int) -> AbstractContextManager[object]:
        return self._remove(first, count)

    def resetting(self) -> AbstractContextManager[object]:
        return self._reset()

    def changed(self, first: int, count: int) -> None:
        assert count > 0
        for row in range(first, first + count):
            self.rows[row] = self._said(row)

    def check(self) -> None:
        assert self.rows == [self._said(row) for row in range(self.transcript.row_count)]


def item(index: int, text: str = "words", kind: dto.ItemKind = "reply", state: dto.ItemState = "complete") -> dto.Item:
    return dto.Item(id=f"i{index}", kind=kind, state=state, text=text, size_chars=len(text))


def started(total: int) -> tuple[Transcript, Mirror]:
    transcript = Transcript()
    mirror = Mirror(transcript)
    transcript.reset("c", total)
    return transcript, mirror


def texts(transcript: Transcript) -> list[str]:
    return [line.row.text for row in range(transcript.row_count) if (line := transcript.line(row)[1]).row is not None]


def test_what_is_not_loaded_is_one_row_each() -> None:
    transcript, mirror = started(100_000)
    assert transcript.row_count == 100_000
    transcript.put(500, (item(500, "a\n\nb"),), 100_000)
    assert transcript.row_count == 100_000 + 2  # two blocks and the foot instead of one row
    assert transcript.start_of(501) == 503
    assert transcript.line(0)[1].kind == "unloaded"
    mirror.check()


steps = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 40), st.integers(1, 6)),
    st.tuples(st.just("add"), st.sampled_from(["user", "reply", "reasoning", "notice"]), st.booleans()),
    st.tuples(st.just("delta"), st.sampled_from(["w", "\n\n", "# h\n", "```\n", "- x\n", "| a |\n|--|\n"]), st.just(0)),
    st.tuples(st.just("flush"), st.just(0), st.just(0)),
    st.tuples(st.just("done"), st.sampled_from(["complete", "stopped", "failed", "unknown"]), st.just(0)),
    st.tuples(st.just("toggle"), st.integers(0, 60), st.just(0)),
    st.tuples(st.just("resize"), st.integers(0, 60), st.just(0)),
)


@given(st.lists(steps, max_size=30))
def test_the_view_always_has_the_rows_that_are_there(moves: list[tuple[str, object, object]]) -> None:
    transcript, mirror = started(12)
    for name, first, second in moves:
        if name == "put":
            window = range(int(str(first)), min(int(str(first)) + int(str(second)), transcript.total))
            transcript.put(int(str(first)), tuple(item(n, f"t{n}\n\nmore", "reply") for n in window), transcript.total)
        elif name == "add":
            state: dto.ItemState = "open" if second else "complete"
            transcript.add(transcript.total, item(transcript.total, "" if second else "x", first, state))  # type: ignore[arg-type]
        elif name == "delta" and (last := transcript.last()) is not None:
            transcript.delta(dto.ItemDelta(conversation="c", item=last.item.id, at=last.chars, text=str(first)))
        elif name == "flush":
            transcript.flush()
        elif name == "done" and (last := transcript.last()) is not None:
            transcript.done(
                dto.ItemDone(conversation="c", item=last.item.id, state=first, size_chars=last.chars)  # type: ignore[arg-type]
            )
        elif name == "toggle" and transcript.row_count:
            transcript.toggle(int(str(first)) % transcript.row_count)
        elif name == "resize":
            transcript.resize(int(str(first)))
        mirror.check()
        for row in range(transcript.row_count):
            index, offset = transcript.locate(row)
            assert transcript.start_of(index) + offset == row


def test_a_stream_becomes_rows_and_closed_ones_are_left_alone() -> None:
    transcript, mirror = started(0)
    transcript.add(0, item(0, "", state="open"))
    changes: list[tuple[int, int]] = []
    mirror.changed = lambda first, count: changes.append((first, count))  # type: ignore[method-assign]
    at = 0
    for piece in ("First par", "agraph.\n", "\nSecond", " one.\n\n```\ncode", "\nmore"):
        transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=at, text=piece))
        at += len(piece)
        transcript.flush()
    assert texts(transcript) == ["First paragraph.", "Second one.", "code\nmore"]
    assert not any(first == 0 for first, _ in changes[2:]), "a closed row was drawn again"
    transcript.done(dto.ItemDone(conversation="c", item="i0", state="complete", size_chars=at))
    transcript.flush()
    assert transcript.line(transcript.row_count - 1)[1].kind == "foot"


def test_many_deltas_are_one_change() -> None:
    transcript, mirror = started(0)
    transcript.add(0, item(0, "", state="open"))
    calls: list[object] = []
    mirror.changed = lambda first, count: calls.append((first, count))  # type: ignore[method-assign]
    transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=0, text="start"))
    transcript.flush()
    for at in range(5, 105):
        transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=at, text="x"))
    transcript.flush()
    assert len(calls) == 1
    assert texts(transcript) == ["start" + "x" * 100]


def test_deltas_that_overlap_are_taken_once() -> None:
    transcript, _ = started(0)
    transcript.add(0, item(0, "abc", state="open"))
    transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=1, text="bcd"))
    transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=0, text="ab"))
    transcript.flush()
    assert texts(transcript) == ["abcd"]


def test_a_hole_in_the_text_is_asked_for_and_filled() -> None:
    transcript, mirror = started(0)
    transcript.add(0, dto.Item(id="i0", kind="reply", state="open", text="start ", size_chars=6))
    transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=12, text=" end"))
    transcript.flush()
    more = transcript.row_count - 1
    assert transcript.line(more)[1].kind == "more"
    assert transcript.want_text(more) == ("i0", 6)
    assert transcript.want_text(more) is None, "asked once"
    transcript.text(dto.ItemText(conversation="c", item="i0", at=6, text="middle end", last=True))
    transcript.flush()
    assert texts(transcript) == ["start middle end"]
    assert [transcript.line(row)[1].kind for row in range(transcript.row_count)] == ["text"]
    mirror.check()


def test_a_long_item_comes_in_pieces_and_closes_at_its_end() -> None:
    text = "paragraph\n\n" * 2_000
    transcript, mirror = started(1)
    first = dto.Item(id="i0", kind="reply", state="complete", text=text[:10_000], size_chars=len(text))
    transcript.put(0, (first,), 1)
    while transcript.line(transcript.row_count - 2)[1].kind == "more":
        wanted = transcript.want_text(transcript.row_count - 2)
        assert wanted is not None
        at = wanted[1]
        piece = text[at : at + 10_000]
        transcript.text(dto.ItemText(conversation="c", item="i0", at=at, text=piece, last=at + len(piece) >= len(text)))
        transcript.flush()
    assert texts(transcript) == ["paragraph"] * 2_000
    mirror.check()


def test_the_host_saying_an_item_again_loses_nothing() -> None:
    transcript, mirror = started(0)
    transcript.add(0, item(0, "", state="open"))
    transcript.delta(dto.ItemDelta(conversation="c", item="i0", at=0, text="all of it"))
    transcript.add(0, item(0, "", state="open"))
    transcript.put(0, (item(0, "all", state="open"),), 1)
    transcript.flush()
    assert texts(transcript) == ["all of it"]
    transcript.put(0, (item(0, "all of it and more"),), 1)
    assert texts(transcript) == ["all of it and more"]
    assert transcript.line(transcript.row_count - 1)[1].kind == "foot"
    mirror.check()


def test_only_what_is_near_is_asked_for_and_only_once() -> None:
    transcript, _ = started(100_000)
    windows = transcript.look(50_000, 50_010)
    asked = [index for first, count in windows for index in range(first, first + count)]
    assert min(asked) == 50_000 - AHEAD_ITEMS
    assert max(asked) == 50_010 + AHEAD_ITEMS
    assert all(count <= dto.WINDOW_ITEMS for _, count in windows)
    assert transcript.look(50_000, 50_010) == []


def test_what_is_far_is_let_go() -> None:
    transcript, mirror = started(5_000)
    for first in range(0, 3_000, 100):
        at = transcript.start_of(first)
        transcript.look(at, at + 20)
        transcript.put(first, tuple(item(n, "a\n\nb") for n in range(first, first + 100)), 5_000)
        mirror.check()
    assert sum(1 for _ in transcript.entries()) <= KEPT_ITEMS
    assert transcript.entry(2_900) is not None
    assert transcript.entry(0) is None
    assert transcript.look(0, 5), "what was let go is asked for again"


def test_reasoning_opens_and_closes() -> None:
    transcript, mirror = started(1)
    transcript.put(0, (item(0, "one\n\ntwo", "reasoning"),), 1)
    assert transcript.row_count == 1
    transcript.toggle(0)
    assert texts(transcript) == ["one", "two"]
    transcript.toggle(0)
    assert transcript.row_count == 1
    mirror.check()


def test_a_code_block_of_many_rows_is_copied_whole() -> None:
    code = "\n".join(f"line {n}" for n in range(200))
    transcript, _ = started(1)
    transcript.put(0, (item(0, f"before\n\n```\n{code}\n```\n\n```\nother\n```"),), 1)
    rows = [row for row in range(transcript.row_count) if transcript.line(row)[1].kind == "code"]
    assert len(rows) > 4
    assert {transcript.code_at(row) for row in rows[:-1]} == {code}
    assert transcript.code_at(rows[-1]) == "other"


def test_a_list_has_air_above_it_and_little_between_its_entries() -> None:
    transcript, _ = started(1)
    transcript.put(0, (item(0, "```\ncode\n```\n\n1. one\n2. two\n\nAfterwards."),), 1)
    air = [transcript.space_above(row) for row in range(transcript.row_count)]
    assert air[1:4] == ["block", "tight", "block"]


def test_another_conversation_leaves_nothing_of_the_last() -> None:
    transcript, mirror = started(3)
    transcript.put(0, (item(0), item(1), item(2)), 3)
    transcript.reset("d", 2)
    assert transcript.row_count == 2
    assert transcript.by_id("i1") is None
    transcript.put(0, (item(7), item(8)), 2)
    mirror.check()


def test_the_work_of_a_delta_does_not_depend_on_the_length_of_the_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in items that are visited, not in time."""
    visits = []
    for total in (10, 100_000):
        transcript, _ = started(total)
        transcript.put(total - 5, tuple(item(n) for n in range(total - 5, total)), total)
        transcript.add(total, item(total, "", state="open"))
        count = 0
        locate = transcript.start_of

        def counted(index: int, locate: object = locate) -> int:
            nonlocal count
            count += 1
            return locate(index)  # type: ignore[operator, no-any-return]

        monkeypatch.setattr(transcript, "start_of", counted)
        transcript.delta(dto.ItemDelta(conversation="c", item=f"i{total}", at=0, text="words\n\nmore"))
        transcript.flush()
        visits.append((count, len(transcript._starts)))
    assert visits[0] == visits[1]
