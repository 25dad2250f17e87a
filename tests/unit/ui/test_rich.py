"""What a message says can only be seen: no markup, image, address or control of its own."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.tokens import tokens
from ui.text.blocks import MarkdownSplitter, PlainSplitter
from ui.text.highlight import label, parts
from ui.text.rich import plain, rich, typed
from ui.text.visible import LRI, PDI, has_right_to_left, one_line, visible

LOOKS = tokens(dark=False)
OURS = {"p", "pre", "span", "i", "s", "a", "br", "table", "tr", "td"}


class Reader(HTMLParser):
    """Tags, attributes and text of rich text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(markdown: str) -> Reader:
    splitter = MarkdownSplitter()
    splitter.feed(markdown)
    splitter.finish()
    reader = Reader()
    for row in splitter.closed:
        reader.feed(rich(row, LOOKS))
    reader.close()
    return reader


hostile = st.lists(
    st.sampled_from(
        ["<img src='file:///etc/passwd'>", "<b>", "</p>", "![x](file:///x)", "[t](http://e.org/\"onx='1')", "`<i>`",
         "&lt;",
         "<script>", "**", "\n\n", "```html\n<b>\n```\n", "| <td> | \"a\" |\n|--|--|\n", "\x1b[31m", "\u202e",
         "<a href='x'>",
         "<http://auto.link>", "style=\"background:url(x)\"", "javascript:alert(1)", "'", '"', "word "]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@given(st.one_of(hostile, st.text(max_size=200)))
def test_only_our_own_tags_come_out(markdown: str) -> None:
    for tag, attributes in read(markdown).tags:
        assert tag in OURS
        assert set(attributes) <= {"style", "href", "width", "align", "dir", "cellspacing"}
        assert "url(" not in (attributes.get("style") or "")


@given(hostile)
def test_nothing_loads(markdown: str) -> None:
    tags = [tag for tag, _ in read(markdown).tags]
    assert "img" not in tags
    assert "link" not in tags


def test_raw_html_is_text() -> None:
    assert read("before <b onclick='x'>bold</b> <img src=x>").text == "before <b onclick='x'>bold</b> <img src=x>"


def test_an_image_is_its_alternative_text() -> None:
    reader = read("![a chart](https://example.org/chart.png)")
    assert reader.text == "[image: a chart]"


def test_a_link_keeps_its_real_target() -> None:
    reader = read("[example.org](https://elsewhere.example/path?a=1&b=2)")
    assert [attributes["href"] for tag, attributes in reader.tags if tag == "a"] == [
        "https://elsewhere.example/path?a=1&b=2"
    ]


@pytest.mark.parametrize("target", ["javascript:alert(1)", "vbscript:x", "file:///etc/passwd", "data:text/html,x"])
def test_a_target_that_acts_is_no_link(target: str) -> None:
    assert "a" not in [tag for tag, _ in read(f"[press]({target})").tags]


@given(st.text(max_size=200))
def test_typed_text_is_shown_as_it_is(text: str) -> None:
    splitter = PlainSplitter()
    splitter.feed(text)
    splitter.finish()
    reader = Reader()
    for row in splitter.closed:
        reader.feed(typed(row, LOOKS).replace("<br/>", "\n"))
    reader.close()
    assert reader.text == visible(text.replace("\r\n", "\n"))


def test_code_among_right_to_left_words_is_isolated_and_nowhere_else() -> None:
    assert f"{LRI}ui/store.py{PDI}" in read("الملف `ui/store.py` هنا").text
    assert LRI not in read("the file `ui/store.py` here").text


def test_code_blocks_run_left_to_right() -> None:
    reader = read("```python\n# שלום\n```")
    assert [attributes["dir"] for tag, attributes in reader.tags if tag == "pre"] == ["ltr"]


@given(
    st.text(alphabet="def f(x):\n  '\"#\t0λ", max_size=200),
    st.sampled_from(["python", "html", "json", "bash", "nope", ""]),
)
def test_highlighting_loses_no_character(code: str, language: str) -> None:
    assert "".join(text for _, text in parts(code, language)) == code


def test_code_is_coloured_once_it_is_closed() -> None:
    splitter = MarkdownSplitter()
    splitter.feed("```python\ndef f():\n    return 1\n")
    assert "color:" not in rich(splitter.tail[0], LOOKS)
    splitter.finish()
    assert LOOKS["codeKeyword"] in rich(splitter.closed[0], LOOKS)


def test_languages_have_names() -> None:
    assert [label("python"), label("nolang"), label("")] == ["Python", "nolang", "Code"]


@given(st.text(max_size=200))
def test_visible_leaves_nothing_that_acts(text: str) -> None:
    shown = visible(text)
    assert not any(ord(char) < 0x20 and char not in "\n\t" for char in shown)
    assert not set(shown) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\ufffc\ufdd0\ufdd1\u2028\u2029"
    )


def test_visible_shows_what_a_terminal_would_do() -> None:
    assert visible("\x1b[31mred\x07\x00") == "␛[31mred␇␀"


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert visible("a\ud800b") == "a\ufffdb"


def test_one_line_has_no_line_break() -> None:
    assert one_line(" a\n\nb\tc\u2028d ") == "a b c d"


def test_right_to_left_is_seen() -> None:
    assert has_right_to_left("abc שלום")
    assert not has_right_to_left("äöü 日本")


def test_what_is_read_aloud_has_no_marks() -> None:
    assert plain("**bold** and `code` and [link](http://e.org)") == "bold and code and link"
