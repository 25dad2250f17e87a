"""A text that may be endless: its beginning at once, its end at its end, and a line that says what is missing."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_host.long_text import GOES_ON_LINE, LongText


def whole_of(text: LongText, *pieces: str) -> str:
    return "".join([*map(text.take, pieces), text.end()])


@given(st.text(max_size=200), st.integers(2, 60), st.lists(st.integers(1, 40), max_size=20))
def test_it_is_whole_within_its_bound_and_says_what_is_left_out_beyond_it(
    text: str, limit: int, cuts: list[int]
) -> None:
    pieces, rest = [], text
    for size in cuts:
        pieces.append(rest[:size])
        rest = rest[size:]
    kept = whole_of(LongText(limit), *pieces, rest)
    half = limit // 2
    if len(text) <= half:
        assert kept == text
    elif len(text) <= 2 * half:
        assert kept == text[:half] + GOES_ON_LINE + text[half:]
    else:
        left_out = f"[{len(text) - 2 * half:,} characters were left out]\n"
        assert kept == text[:half] + GOES_ON_LINE + left_out + text[len(text) - half :]


@pytest.mark.parametrize("piece", ["x", "a line of a build\n", "y" * 70_000])
def test_memory_is_bounded_whatever_it_comes_in(piece: str) -> None:
    text = LongText(64 * 1024)
    count = min(60_000, 40_000_000 // len(piece))
    tracemalloc.start()
    shown = sum(len(text.take(piece)) for _ in range(count))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shown == 32 * 1024 + len(GOES_ON_LINE)
    assert peak < 2 * 1024 * 1024
    assert text.end().endswith((piece * 3)[-100:])
