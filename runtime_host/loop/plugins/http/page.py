"""What a page says, without what only a browser needs.

Owns the folding of HTML and XML to text. Must not know HTTP. Invariants: one pass, in time that grows with the length
and no faster whatever is not closed; nothing of a script, a style or the head comes through but title and description.
"""

import re
from typing import Final, NamedTuple

LONGEST_TAG_CHARS: Final = 4096
LONGEST_TITLE_CHARS: Final = 400
_TAG: Final = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)", re.ASCII)
_STOP: Final = re.compile("[\"'>]")
_ATTRIBUTE: Final = re.compile(r"""([a-zA-Z:-]{1,40})\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.ASCII)
_ENTITY: Final = re.compile(r"&(amp|lt|gt|quot|apos|nbsp|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " "}
_CLOSE: Final = {
    name: re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE | re.ASCII) for name in ("script", "style", "title")
}
_SKIPPED: Final = frozenset({"noscript", "svg", "template"})
_OF_HEAD: Final = frozenset({"title", "meta", "link", "base", "script", "style", "noscript", "template", "head"})
_INLINE: Final = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|img|input|ins|kbd|label|mark|meter|output|progress|"
    "q|ruby|rp|rt|s|samp|small|span|strike|strong|sub|sup|time|tt|u|var|wbr"
)
_CELLS: Final = frozenset({"td", "th"})
_HTML: Final = re.compile(r"\s*(?:<\?xml|<!doctype|<html)", re.IGNORECASE)


class Page(NamedTuple):
    title: str
    description: str
    text: str


def is_page(media_type: str, text: str) -> bool:
    """Whether a text is HTML or XML, by what it is said to be or how it begins."""
    kind = media_type.lower()
    return kind in ("text/html", "text/xml", "application/xml") or kind.endswith("+xml") or bool(_HTML.match(text))


def read_page(source: str) -> Page:
    """Title, description and text of a page."""
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._out: list[str] = []
        self._about: dict[str, str] = {}
        self._skipping = ""
        self._depth = 0
        self._in_head = False
        self._absent: set[str] = set()

    def read(self) -> Page:
        source = self._source
        while self._at < len(source):
            start = source.find("<", self._at)
            if start < 0:
                self._text(source[self._at :])
                break
            self._text(source[self._at : start])
            self._at = start
            self._markup()
        about = self._about
        return Page(
            _line(about.get("title") or about.get("og:title", "")),
            _line(about.get("description") or about.get("og:description", "")),
            _folded("".join(self._out)),
        )

    def _markup(self) -> None:
        source, at = self._source, self._at
        if source.startswith("<!--", at):
            self._at = self._after("-->", at + 4)
        elif source.startswith("<![CDATA[", at):
            self._at = self._after("]]>", at)
            self._text(source[at + 9 : self._at].removesuffix("]]>"))
        elif source.startswith(("<!", "<?"), at):
            self._at = self._after(">", at)
        elif (tag := _TAG.match(source, at)) is None:
            self._text("<")
            self._at = at + 1
        else:
            self._at = self._end_of_tag(tag.end())
            self._tag(tag[2].lower(), source[tag.end() : min(self._at, tag.end() + LONGEST_TAG_CHARS)], bool(tag[1]))

    def _after(self, sign: str, at: int) -> int:
        found = -1 if sign in self._absent else self._source.find(sign, at)
        if found < 0:
            # It does not come again, and is not looked for again.
            self._absent.add(sign)
            return len(self._source)
        return found + len(sign)

    def _end_of_tag(self, at: int) -> int:
        """After the `>` that is not within quotes."""
        while (stop := _STOP.search(self._source, at)) is not None:
            sign = stop.group()
            if sign == ">":
                return stop.end()
            closing = -1 if sign in self._absent else self._source.find(sign, stop.end())
            if closing < 0:
                self._absent.add(sign)
            at = stop.end() if closing < 0 else closing + 1
        return len(self._source)

    def _tag(self, name: str, rest: str, closes: bool) -> None:
        if self._skipping:
            self._skip(name, rest, closes)
            return
        if self._in_head and (name == "head" if closes else name not in _OF_HEAD):
            self._in_head = False
        if not closes and name in _CLOSE:
            self._raw(name)
        elif not closes and name in _SKIPPED:
            if not rest.endswith("/>"):
                self._skipping, self._depth = name, 1
        elif name == "meta":
            self._meta(rest)
        elif name == "head" and not closes:
            self._in_head = True
        elif name in _CELLS:
            self._out.append(" ")
        elif not _INLINE.fullmatch(name):
            self._out.append("\n")

    def _skip(self, name: str, rest: str, closes: bool) -> None:
        if name == self._skipping and not rest.endswith("/>"):
            self._depth += -1 if closes else 1
            if not self._depth:
                self._skipping = ""

    def _raw(self, name: str) -> None:
        """An element whose text is no markup."""
        end = _CLOSE[name].search(self._source, self._at)
        until = len(self._source) if end is None else end.start()
        if name == "title":
            self._about.setdefault("title", _plain(self._source[self._at : until][: 4 * LONGEST_TITLE_CHARS]))
        self._at = until if end is None else self._after(">", end.end())

    def _meta(self, rest: str) -> None:
        found = {each[1].lower(): each[2] or each[3] or each[4] or "" for each in _ATTRIBUTE.finditer(rest)}
        name = (found.get("name") or found.get("property") or "").lower()
        if name in ("description", "og:description", "og:title"):
            self._about.setdefault(name, _plain(found.get("content", "")))

    def _text(self, text: str) -> None:
        if text and not self._skipping and not self._in_head:
            self._out.append(_plain(text))


def _plain(text: str) -> str:
    """Entities read, and every run of white space one space."""
    return re.sub(r"\s+", " ", _ENTITY.sub(_entity, text))


def _entity(found: re.Match[str]) -> str:
    name = found[1]
    if name in _NAMED:
        return _NAMED[name]
    number = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    sign = chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "�"
    return sign if sign.isprintable() or sign in "\n\t" else " "


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_TITLE_CHARS]


def _folded(text: str) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        plain = " ".join(line.split())
        if plain or (lines and lines[-1]):
            lines.append(plain)
    return "\n".join(lines).strip()
