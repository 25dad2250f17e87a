"""Rows of streamed markdown: the same however the text is cut, never changed once closed, of CommonMark's shape."""

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ui.text.blocks import (
    CODE_CHARS,
    CODE_LINES,
    LINE_CHARS,
    PARAGRAPH_CHARS,
    TABLE_LINES,
    MarkdownSplitter,
    PlainSplitter,
    Row,
)
from ui.text.rich import rich
from ui.text.visible import visible

LINES = (
    "", "", "plain words", "more words", "# Title", "## Title ##", "###not", "---", "===", "***", "- item", "- ",
    "* star",
    "  continued", "    deep", "  - nested", "1. one", "2. two",
    "7) seven", "> quote", "> - in quote", ">", "```", "```python",
    "~~~", "   ```", "code(x)", "| a | b |", "|---|:-:|", "| 1 | 2 |", "a | b", "- [ ] task", "\tTab", "text  ",
    "[ref]: http://example.org", "[ref] used", "<b>raw</b>", "`code`", "10. ten", "+ plus", "  > q", "- ```", "  ```",
)  # fmt: skip

documents = st.lists(st.sampled_from(LINES), max_size=14).map("\n".join)
anything = st.one_of(documents, st.text(max_size=200), st.text(alphabet="`~-*>#| 1.\n\r\tab[]:\\", max_size=120))


def rows(text: str, cuts: list[int] | None = None) -> list[Row]:
    splitter = MarkdownSplitter()
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


@given(anything, st.lists(st.integers(0, 260), max_size=20))
@example("a\r\nb\r\rc", [2, 3, 5])
@example("- \n\n      x", [1, 2, 3])
def test_any_cutting_gives_the_same_rows(text: str, cuts: list[int]) -> None:
    assert rows(text, cuts) == rows(text)


@given(anything)
def test_letter_by_letter_gives_the_same_rows(text: str) -> None:
    assert rows(text, list(range(len(text)))) == rows(text)


def shape(text: str) -> list[tuple[str, str, int, int]]:
    """What markdown-it makes of it: kind, first words, list depth, quote depth of each leaf."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    return list(_leaves(parser.parse(text)))


def _leaves(tokens: list) -> Iterator[tuple[str, str, int, int]]:  # type: ignore[type-arg]
    depth = quote = 0
    kind, heading, table = "text", "", False
    for token in tokens:
        if token.type in ("list_item_open", "list_item_close"):
            depth += token.nesting
        elif token.type in ("blockquote_open", "blockquote_close"):
            quote += token.nesting
        elif token.type == "heading_open":
            kind, heading = "heading", token.tag
        elif token.type == "table_open":
            table = True
            yield "table", "", depth, quote
        elif token.type == "table_close":
            table = False
        elif token.type == "inline" and not table:
            yield kind + heading, " ".join(token.content.split()), depth, quote
            kind, heading = "text", ""
        elif token.type in ("fence", "code_block"):
            yield "code", token.content.rstrip("\n"), depth, quote
        elif token.type == "hr":
            yield "rule", "", depth, quote


def our_shape(text: str) -> list[tuple[str, str, int, int]]:
    found = []
    for row in rows(text):
        if row.kind == "text" and not row.text:
            continue  # an empty list item: markdown-it has no leaf in it
        words = row.text.rstrip("\n") if row.kind == "code" else " ".join(row.text.split())
        words = "" if row.kind in ("table", "rule") else words
        kind = f"heading{'h'}{row.level}" if row.kind == "heading" else row.kind
        found.append((kind, words, row.depth, row.quote))
    return found


@pytest.mark.parametrize(
    "text",
    [
        "para\nstill\n\nother",
        "Title\n===\n\nSecond\n---\ntext",
        "- one\n- two\n  more\n\n  para\n- three",
        "- one\n\n  ```python\n  x = 1\n\n  y\n  ```\n- two",
        "1. a\n   1. b\n      - c\n2. d",
        "> a\nlazy\n\n> b\n> > c",
        "> - a\n>   b\n> - c",
        "text\n# Heading\ntext\n***\ntext",
        "    code\n\n    more\nnot",
        "a\n    not code",
        "~~~\n```\n~~~\nafter",
        "````\n```\n````",
        "```\nnever closed",
        "| a | b |\n|---|---|\n| 1 | 2 |\n\nafter",
        "words\n| a | b |\n|---|---|\n| 1 | 2 |",
        "a | b\n--|--\n1 | 2",
        "- a\n\n\n- b\n\ntext",
        "text\n2. not a list",
        "text\n1. a list",
        "- a\n - b\n  - c",
        "\tcode by tab",
        "-\ttab item\n\n\tits paragraph",
        "[x]: http://e.org\n[x] used",
    ],
)
def test_blocks_are_commonmarks(text: str) -> None:
    assert our_shape(text) == shape(text)


plain_documents = st.lists(
    st.sampled_from([line for line in LINES if "[ ]" not in line and "[ref]:" not in line]), max_size=7
).map("\n".join)


@given(plain_documents)
def test_any_document_has_commonmarks_shape(text: str) -> None:
    """But for task lists (no part of CommonMark) and what directly follows a reference definition."""
    assert our_shape(text) == shape(text)


def test_a_task_list_shows_what_is_done() -> None:
    assert [row.marker for row in rows("- [ ] open\n- [x] done\n- plain")] == ["☐", "☑", "•"]


def test_an_open_row_is_marked_and_only_the_tail_is() -> None:
    splitter = MarkdownSplitter()
    splitter.feed("done\n\nnot yet")
    assert [row.text for row in splitter.closed] == ["done"]
    assert [(row.text, row.open) for row in splitter.tail] == [("not yet", True)]


def test_marks_that_may_still_turn_into_something_else_are_held_back() -> None:
    splitter = MarkdownSplitter()
    splitter.feed("A paragraph\n--")
    assert [(row.kind, row.text) for row in splitter.tail] == [("text", "A paragraph")]
    splitter.feed(" and on")
    assert splitter.tail[0].text.endswith("-- and on")


@pytest.mark.parametrize("piece", ["word " * 40_000, "x" * 200_000, "- " + "y" * 100_000, "| a |\n" * 9_000])
def test_no_row_outgrows_its_bound(piece: str) -> None:
    for row in rows(piece):
        assert len(row.text) <= PARAGRAPH_CHARS + LINE_CHARS


def test_a_long_fence_is_bounded_rows_that_join_to_the_code() -> None:
    code = "\n".join(f"line {n}" * 3 for n in range(1_000)) + "\n" + "z" * 30_000
    found = rows(f"```text\n{code}\n```\n")
    assert all(row.kind == "code" for row in found)
    assert max(row.text.count("\n") for row in found) < CODE_LINES
    assert max(len(row.text) for row in found) <= CODE_CHARS + LINE_CHARS
    joined = found[0].text + "".join(("" if row.joined else "\n") + row.text for row in found[1:])
    assert joined == code
    assert [row.first for row in found] == [True] + [False] * (len(found) - 1)
    assert [row.last for row in found] == [False] * (len(found) - 1) + [True]


def test_a_long_table_is_parts_with_the_same_columns() -> None:
    found = rows("| name | n |\n|:--|--:|\n" + "".join(f"| row {n} | {n} |\n" for n in range(200)))
    assert {row.kind for row in found} == {"table"}
    assert len(found) > 200 / TABLE_LINES
    assert len({row.widths for row in found}) == 1
    assert [row.first for row in found].count(True) == 1
    assert sum(len(row.cells) for row in found) == 201


def test_the_work_for_a_delta_does_not_grow_with_an_open_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in characters that a preview holds, not in time."""
    splitter = MarkdownSplitter()
    splitter.feed("```\n")
    sizes = []
    for _ in range(60):
        splitter.feed("some line of code that goes on\n" * 100)
        sizes.append(sum(len(row.text) for row in splitter.tail))
    assert max(sizes) <= CODE_CHARS + LINE_CHARS


@given(st.text(max_size=300), st.lists(st.integers(0, 300), max_size=8))
def test_typed_text_keeps_every_visible_character(text: str, cuts: list[int]) -> None:
    whole, cut = PlainSplitter(), PlainSplitter()
    whole.feed(text)
    whole.finish()
    bounds = sorted({min(at, len(text)) for at in cuts} | {0, len(text)})
    for start, end in pairwise(bounds):
        cut.feed(text[start:end])
    cut.finish()
    assert whole.closed == cut.closed
    assert "".join(row.text for row in whole.closed) == visible(text.replace("\r\n", "\n"))


@pytest.mark.parametrize(
    "text",
    ["[" * 20_000, "*" * 20_000, "`" * 20_001, "> " * 5_000, "- " * 5_000, "![](" * 8_000, "**a" * 8_000, "<" * 20_000,
     "|" * 20_000 + "\n" + "-|" * 9_000, "\\" * 20_000, "_a_" * 9_000, "[a](" * 8_000],
)  # fmt: skip
def test_hostile_text_is_drawn_in_bounded_steps(text: str) -> None:
    """No single row takes long; generous, because it is time that is measured."""
    looks = _looks()
    for row in rows(text):
        started = time.thread_time()
        rich(row, looks)
        assert time.thread_time() - started < 1.0


def _looks() -> dict[str, object]:
    from resources.tokens import tokens

    return tokens(dark=False)
