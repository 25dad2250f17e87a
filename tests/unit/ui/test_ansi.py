"""Output of commands: the same however it is cut, as a terminal shows it, bounded, and nothing in it acts."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resources.tokens import ANSI, colours, contrast, tokens
from ui.text.ansi import (
    ENDING_LINES,
    LINE_CHARS,
    LINE_SPANS,
    NAMES,
    OUTPUT_CHARS,
    OUTPUT_LINES,
    OutputSplitter,
    graphics,
    joined,
    plain,
)
from ui.text.blocks import Row
from ui.text.rich import rich
from ui.text.styles import PLAIN, Style

ESC = "\x1b"
PIECES = (
    "word", "\r", "\n", "\r\n", "\b", "\t", f"{ESC}[31m", f"{ESC}[0m", f"{ESC}[1;4m", f"{ESC}[38;5;200m", f"{ESC}[K",
    f"{ESC}[38:2::1:2:3m", f"{ESC}[2K", f"{ESC}[1K", f"{ESC}[3G", f"{ESC}[?25l", f"{ESC}[5A", f"{ESC}]0;title\x07",
    f"{ESC}]8;;http://example.org{ESC}\\", f"{ESC}Pq#0{ESC}\\", f"{ESC}(B", f"{ESC}c", f"{ESC}", f"{ESC}[", "\x9b31m",
    "\x9d0;t\x9c", "\x00", "\x07", "\x7f", "\x84", "\u2028", "\u202e", "é", "日", "🐎", "<b>&", " ", "%", "x" * 90,
    "\x18", f"{ESC}[999999999999m", f"{ESC}[38;5m", f"{ESC}[;m", f"{ESC}[31 q", f"{ESC}[<1m",
)  # fmt: skip

outputs = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)
anything = st.one_of(outputs, st.text(max_size=200), st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))


def rows(text: str, cuts: list[int] | None = None) -> list[Row]:
    splitter = OutputSplitter()
    bounds = sorted({min(cut, len(text)) for cut in cuts or []} | {0, len(text)})
    seen: list[Row] = []
    for start, end in pairwise(bounds):
        splitter.feed(text[start:end])
        assert splitter.closed[: len(seen)] == seen, "a closed row changed"
        seen = list(splitter.closed)
    splitter.finish()
    assert splitter.closed[: len(seen)] == seen
    assert not splitter.tail
    return splitter.closed


@given(anything, st.lists(st.integers(0, 400), max_size=20))
@example(f"a{ESC}[3", [2, 3])
@example(f"{ESC}]0;ab{ESC}\\c", [4, 6, 7])
@example("\n" * 60, [7, 30])
def test_any_cutting_gives_the_same_rows(text: str, cuts: list[int]) -> None:
    assert rows(text, cuts) == rows(text)


@given(anything)
def test_letter_by_letter_gives_the_same_rows(text: str) -> None:
    assert rows(text, list(range(len(text)))) == rows(text)


@given(anything)
def test_what_is_open_looks_as_it_will_when_it_closes(text: str) -> None:
    splitter = OutputSplitter()
    splitter.feed(text)
    before = [(row.text, row.spans) for row in (*splitter.closed, *splitter.tail)]
    splitter.finish()
    assert [(row.text, row.spans) for row in splitter.closed] == before


@given(anything)
def test_no_control_character_is_left(text: str) -> None:
    for row in rows(text):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", row.text)


@given(anything, st.integers(1, 40))
def test_rows_are_bounded_and_their_looks_are_of_their_text(text: str, times: int) -> None:
    for row in rows(text * times):
        assert "".join(part for _, part in row.spans) == row.text
        assert row.text.count("\n") < OUTPUT_LINES
        assert len(row.text) <= max(LINE_CHARS, OUTPUT_CHARS + OUTPUT_LINES)
        assert len(row.spans) <= LINE_SPANS + 2 * OUTPUT_LINES


def shown(text: str) -> list[str]:
    """A terminal, letter by letter: printable text, ends of lines, carriage return and backspace only."""
    lines: list[list[str]] = [[]]
    cursor = 0
    for char in text:
        if char == "\r":
            cursor = 0
        elif char == "\b":
            cursor = max(0, cursor - 1)
        elif char == "\n":
            lines.append([])
            cursor = 0
        else:
            lines[-1][cursor : cursor + 1] = [char]
            cursor += 1
    found = ["".join(line) for line in lines]
    return found[:-1] if found[-1] == "" else found


@given(st.text(alphabet="ab \r\n\b%é日", max_size=120))
def test_lines_are_those_a_terminal_shows(text: str) -> None:
    assert plain(text).split("\n") == (shown(text) or [""])


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("10 %\r55 %\r100 %\n", "100 %"),
        ("longer line\rshort\n", "shortr line"),
        (f"longer line\r{ESC}[Kshort\n", "short"),
        (f"gone{ESC}[2K\rhere", "here"),
        (f"ab{ESC}[1Kc", "  c"),
        ("typo\b\b\b\byes!\n", "yes!"),
        (f"abc{ESC}[1Gx", "xbc"),
        (f"up{ESC}[3A down{ESC}[2J{ESC}[10;10H", "up down"),
        (f"{ESC}]0;a title\x07seen", "seen"),
        (f"{ESC}]52;c;secret{ESC}\\seen", "seen"),
        (f"{ESC}]never ended\nnext line", "\nnext line"),
        (f"a{ESC}P1;2q#0;2;0;0;0{ESC}\\b", "ab"),
        (f"{ESC}(0qq{ESC}(B", "qq"),
        ("bell\x07 nul\x00 del\x7f", "bell nul del"),
        ("a\x85b\x0bc", "a\nb\nc"),
        ("col1\tcol2\r\n", "col1\tcol2"),
        (f"half {ESC}", "half "),
        (f"broken {ESC}[31", "broken "),
        ("\ufffd\ufffd\ufffdPNG", "\ufffd\ufffd\ufffdPNG"),
    ],
)
def test_control_sequences(written: str, seen: str) -> None:
    assert plain(written) == seen


def styles(text: str) -> dict[str, Style]:
    return {part.strip(): style for row in rows(text) for style, part in row.spans if part.strip()}


def test_colours_and_looks() -> None:
    found = styles(
        f"plain {ESC}[1;31mred {ESC}[39mbold {ESC}[22;92;44mgreen {ESC}[38;5;208mindexed {ESC}[48;2;1;2;3mground "
        f"{ESC}[0;3;4;9mlines {ESC}[23;24;29;7minverse {ESC}[27mback"
    )
    assert found["plain"] == PLAIN
    assert found["red"] == Style(fore="ansiRed", bold=True)
    assert found["bold"] == Style(bold=True)
    assert found["green"] == Style(fore="ansiBrightGreen", back="ansiBlue")
    assert found["indexed"] == Style(fore="#ff8700", back="ansiBlue")
    assert found["ground"] == Style(fore="#ff8700", back="#010203")
    assert found["lines"] == Style(italic=True, underline=True, strike=True)
    assert found["inverse"] == Style(inverse=True)
    assert found["back"] == PLAIN


@pytest.mark.parametrize(
    ("parameters", "style"),
    [
        ("", PLAIN),
        ("38:2::10:20:30", Style(fore="#0a141e")),
        ("38:2:10:20:30", Style(fore="#0a141e")),
        ("38:5:1", Style(fore="ansiRed")),
        ("4:3", Style(underline=True)),
        ("4:0", PLAIN),
        ("38;5", PLAIN),
        ("38;5;999", PLAIN),
        ("38;2;1;2", PLAIN),
        ("38;9;1", PLAIN),
        ("1;;31", Style(fore="ansiRed")),
        ("48;5;232;1", Style(back="#080808", bold=True)),
        ("9999999999", PLAIN),
        ("8", PLAIN),
    ],
)
def test_graphics(parameters: str, style: Style) -> None:
    assert graphics(PLAIN, parameters) == style


@given(st.text(alphabet="0123456789;:", max_size=40))
def test_any_graphics_are_survived(parameters: str) -> None:
    style = graphics(PLAIN, parameters)
    assert all(not name or name in NAMES or re.fullmatch("#[0-9a-f]{6}", name) for name in (style.fore, style.back))


def test_the_names_are_those_of_the_theme() -> None:
    assert NAMES == ANSI


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("high", [False, True])
def test_any_colour_on_any_ground_can_be_read(dark: bool, high: bool) -> None:
    looks = tokens(dark=dark, high_contrast=high)
    codes = [*range(0, 256, 15), 16, 231, 255]
    for fore in codes:
        for back in (None, *codes):
            ground = "" if back is None else f";48;5;{back}"
            html = rich(rows(f"{ESC}[38;5;{fore}{ground}mwords")[0], looks)
            text = re.search(r"[^-]color:(#[0-9A-Fa-f]{6})", html)
            under = re.search(r"background-color:(#[0-9A-Fa-f]{6})", html)
            assert text is not None
            pair = (text[1], under[1] if under else colours(dark=dark, high_contrast=high)["sunken"])
            assert contrast(*pair) >= looks["leastContrast"], (fore, back, pair)


@given(anything)
def test_output_is_never_markup(text: str) -> None:
    looks = tokens(dark=False)
    for row in rows(text):
        html = rich(row, looks)
        tags = re.sub(r"</?(?:pre|span)(?: [a-z]+=\"[^\"<>]*\")*>", "", html)
        assert "<" not in tags
        assert ">" not in tags


def test_a_megabyte_without_a_line_break_is_cut_into_rows() -> None:
    text = "x" * 2**20
    splitter = OutputSplitter()
    for at in range(0, len(text), 10_000):
        splitter.feed(text[at : at + 10_000])
        assert sum(len(row.text) for row in splitter.tail) <= OUTPUT_CHARS + LINE_CHARS
    splitter.finish()
    assert joined(splitter.closed) == text
    assert splitter.line_count == 1
    ending = splitter.ending()
    assert ending is not None
    assert len(ending.text) < OUTPUT_CHARS


@given(anything)
def test_the_ending_is_the_end(text: str) -> None:
    splitter = OutputSplitter()
    splitter.feed(text)
    live = splitter.ending()
    splitter.finish()
    ending = splitter.ending()
    assert (live.text if live else "") == (ending.text if ending else "")
    whole = joined(splitter.closed)
    if ending is not None:
        assert ending.text.count("\n") < ENDING_LINES
        assert whole.endswith(ending.text.removeprefix("…"))
    else:
        assert whole == ""
