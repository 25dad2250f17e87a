"""A row to safe rich text.

Owns every tag that a message's text is ever wrapped in. Must not know Qt, only the small
set of markup its rich text reads. Invariant: all text is escaped; no image, no style that
loads, no address but in an `<a href>` that nothing follows.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from resources.tokens import contrast
from ui.text.blocks import Row
from ui.text.highlight import parts
from ui.text.styles import PLAIN, Span, Style
from ui.text.visible import LRI, PDI, has_right_to_left, in_order

Tokens = Mapping[str, Any]
"""The table of `resources.tokens`."""

_MARKDOWN = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False}).enable(
    ["strikethrough", "table"]
)

_TAGS = {"strong_open": "strong", "em_open": "em", "s_open": "s"}
_ENDS = {"strong_close": "</span>", "em_close": "</i>", "s_close": "</s>", "link_close": "</span></a>"}


def definitions(text: str, references: dict[str, Any]) -> str:
    """Take link reference definitions off the front of a paragraph into `references`; return what is left."""
    env: dict[str, Any] = {"references": references}
    tokens = _MARKDOWN.parse(text, env)
    return "\n".join(token.content for token in tokens if token.type == "inline")


def _inline(text: str, references: dict[str, Any]) -> Sequence[Token]:
    tokens = _MARKDOWN.parseInline(text, {"references": references})
    return tokens[0].children or []


def plain(text: str, references: dict[str, Any] | None = None) -> str:
    """Inline markdown without its marks: what a screen reader says."""
    words: list[str] = []
    for token in _inline(text, references or {}):
        if token.type in ("softbreak", "hardbreak"):
            words.append(" ")
        else:
            words.append(token.content)
    return "".join(words)


def _span(token: Token, looks: Tokens, *, isolate: bool) -> str:
    kind = token.type
    if kind == "text" or kind == "html_inline":
        return escape(token.content)
    if kind == "code_inline":
        code = escape(token.content).replace(" ", "&nbsp;") if token.content.isspace() else escape(token.content)
        body = LRI + code + PDI if isolate else code
        return (
            f"<span style=\"font-family:'{looks['fontCode']}'; font-size:{looks['fontQuiet']}px; "
            f'background-color:{looks["chosen"]}">{body}</span>'
        )
    if kind == "softbreak":
        return " "
    if kind == "hardbreak":
        return "<br/>"
    if kind == "strong_open":
        return f'<span style="font-weight:{looks["strong"]}">'
    if kind == "em_open":
        return "<i>"
    if kind == "s_open":
        return "<s>"
    if kind == "link_open":
        target = escape(str(token.attrs.get("href", "")), quote=True)
        look = f"color:{looks['link']}; text-decoration:underline"
        return f'<a href="{target}" style="text-decoration:none"><span style="{look}">'
    if kind == "image":
        words = escape(token.content or str(token.attrs.get("src", "")))
        return f'<span style="color:{looks["quiet"]}">[image: {words}]</span>'
    return _ENDS.get(kind, "")


def inline(text: str, looks: Tokens, references: dict[str, Any] | None = None) -> str:
    """Inline markdown as rich text."""
    isolate = has_right_to_left(text)
    return "".join(_span(token, looks, isolate=isolate) for token in _inline(text, references or {}))


def _line_height(looks: Tokens, token: str = "lineReading") -> str:
    return f"line-height:{round(looks[token] * 100)}%"


def code(row: Row, looks: Tokens) -> str:
    """A row of code, left to right whatever it holds; highlighted once it is closed."""
    coloured = [("", row.text)] if row.open else parts(row.text, row.language)
    body = "".join(
        f'<span style="color:{looks[colour]}">{escape(in_order(text))}</span>' if colour else escape(in_order(text))
        for colour, text in coloured
    )
    return _pre(body, looks)


def _pre(body: str, looks: Tokens) -> str:
    look = f"margin:0; white-space:pre-wrap; font-family:'{looks['fontCode']}'; {_line_height(looks, 'lineCode')}"
    return f'<pre dir="ltr" align="left" style="{look}">{body}</pre>'


@lru_cache(maxsize=1024)
def readable(colour: str, ground: str, least: float) -> str:
    """`colour`, or the nearest to it on the way to black or white that can be read on `ground`."""
    if contrast(colour, ground) >= least:
        return colour
    end = max(("#000000", "#ffffff"), key=lambda far: contrast(far, ground))
    for step in range(1, 10):
        mixed = "#" + "".join(
            f"{(int(colour[at : at + 2], 16) * (10 - step) + int(end[at : at + 2], 16) * step) // 10:02x}"
            for at in (1, 3, 5)
        )
        if contrast(mixed, ground) >= least:
            return mixed
    return end


def _named(name: str, looks: Tokens) -> str:
    return name if name.startswith("#") else str(looks[name])


def _dress(style: Style, looks: Tokens) -> str:
    """The look of a run as CSS; its words can be read whatever colours were asked for."""
    fore, back = style.fore, style.back
    if style.inverse:
        fore, back = back or "sunken", fore or "text"
    least = looks["leastContrast"]
    ground = _named(back or "sunken", looks)
    if back and max(contrast("#000000", ground), contrast("#ffffff", ground)) < least:
        ground = readable(ground, "#ffffff", least)  # a ground on which nothing could be read: darker, then
    wanted = fore or ("quiet" if style.faint and not back else "text")
    rules = [f"color:{readable(_named(wanted, looks), ground, least)}"] if wanted != "text" or back else []
    if back:
        rules.append(f"background-color:{ground}")
    if style.bold:
        rules.append(f"font-weight:{looks['strong']}")
    if style.italic:
        rules.append("font-style:italic")
    lines = [name for name, drawn in (("underline", style.underline), ("line-through", style.strike)) if drawn]
    if lines:
        rules.append("text-decoration:" + " ".join(lines))
    return "; ".join(rules)


def styled(row: Row, looks: Tokens) -> str:
    """A row of output, left to right whatever it holds."""
    return _pre(_spans(row.spans, looks), looks)


def changed(row: Row, looks: Tokens) -> str:
    """A row of a diff: the ground of a line reaches to its end."""
    lines: list[list[Span]] = [[]]
    for span in row.spans:
        if span[1] == "\n":
            lines.append([])
        else:
            lines[-1].append(span)
    family = f"white-space:pre-wrap; font-family:'{looks['fontCode']}'; {_line_height(looks, 'lineCode')}"
    paragraphs = []
    for line in lines:
        ground = line[0][0].back if line else ""
        look = f"margin:0; {family}" + (f"; background-color:{looks[ground]}" if ground else "")
        paragraphs.append(f'<p dir="ltr" align="left" style="{look}">{_spans(line, looks, in_order) or "&nbsp;"}</p>')
    return "".join(paragraphs)


def _spans(spans: Sequence[Span], looks: Tokens, shown: Callable[[str], str] = str) -> str:
    dresses: dict[Style, str] = {PLAIN: ""}
    body = []
    for style, text in spans:
        dress = dresses.get(style)
        if dress is None:
            dress = dresses[style] = _dress(style, looks)
        words = escape(shown(text))
        body.append(f'<span style="{dress}">{words}</span>' if dress else words)
    return "".join(body)


def table(row: Row, looks: Tokens) -> str:
    """A table, or a part of a long one."""
    lines: list[str] = []
    for position, cells in enumerate(row.cells):
        head = row.first and position == 0
        # No lines: Qt Quick draws a cell's border on all sides or not at all.
        look = f"color:{looks['quiet']}; font-weight:{looks['medium']}; " if head else ""
        look += f"padding-top:{looks['s4']}px; padding-bottom:{looks['s4']}px; padding-right:{looks['s16']}px"
        tds = "".join(
            f'<td width="{row.widths[c]}%" align="{row.aligns[c] or "left"}" style="{look}">'
            f"{inline(cell, looks, row.references)}</td>"
            for c, cell in enumerate(cells)
        )
        lines.append(f"<tr>{tds}</tr>")
    return f'<table width="100%" cellspacing="0" style="border-collapse:collapse">{"".join(lines)}</table>'


def rich(row: Row, looks: Tokens) -> str:
    """Any row of a reply as rich text."""
    if row.kind == "code":
        return code(row, looks)
    if row.kind == "output":
        return styled(row, looks)
    if row.kind == "diff":
        return changed(row, looks)
    if row.kind == "table":
        return table(row, looks)
    if row.kind == "rule":
        return ""
    return f'<p style="margin:0; {_line_height(looks)}">{inline(row.text, looks, row.references)}</p>'


def typed(row: Row, looks: Tokens) -> str:
    """A row of what a person typed: every character as it is."""
    body = escape(row.text).replace("\n", "<br/>")
    return f'<p style="margin:0; white-space:pre-wrap; {_line_height(looks)}">{body}</p>'


def spoken(row: Row) -> str:
    """A row in plain words."""
    if row.kind == "table":
        return "\n".join(" · ".join(cells) for cells in row.cells)
    return row.text if row.kind in ("code", "output", "diff") else plain(row.text, row.references)
