"""Characters that act made visible, or dropped.

Owns which code points may reach a text layout. Must not know markdown or Qt. Invariant:
the result holds no control character but newline and tab, no bidirectional override, and
none of the code points by which Qt's rich text marks its own structure; it maps character
by character, so that text cut anywhere gives the same result.
"""

import re
import unicodedata

LRI, FSI, PDI = "\u2066", "\u2068", "\u2069"


def _table() -> dict[int, str | None]:
    table: dict[int, str | None] = {}
    for code in range(0x20):
        table[code] = chr(0x2400 + code)  # control pictures: ESC becomes ␛
    del table[0x09], table[0x0A]
    table[0x0D] = "\n"
    table[0x7F] = "\u2421"
    for code in range(0x80, 0xA0):
        table[code] = "\ufffd"
    table[0x85] = "\n"
    for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0x00AD, 0x2060):
        table[code] = None  # overrides and isolates could reorder what stands around them
    table[0x2028] = table[0x2029] = "\n"
    for code in (*range(0xFDD0, 0xFDF0), *range(0xFFF9, 0xFFFD), 0xFFFE, 0xFFFF):
        table[code] = "\ufffd"
    for code in (*range(0xD800, 0xE000), *range(0xE0000, 0xE0080)):
        table[code] = "\ufffd"
    return table


_TABLE = _table()


def visible(text: str) -> str:
    """`text` with what acts made visible or dropped. A CR becomes a newline: join CRLF before."""
    return text.translate(_TABLE)


def one_line(text: str) -> str:
    """The same for names and titles: no newline either."""
    return " ".join(visible(text).split())


def whole_characters(text: str) -> str:
    """`text` without halves of surrogate pairs, which no encoding carries."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def has_right_to_left(text: str) -> bool:
    """Whether a strong right-to-left character occurs."""
    if text.isascii():
        return False
    return any(unicodedata.bidirectional(char) in ("R", "AL") for char in text)


def isolated(text: str) -> str:
    """A name that stands among other words, kept from reordering them."""
    return f"{FSI}{text}{PDI}" if has_right_to_left(text) else text


_STRONG = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\U00010800-\U00010fff\U0001e800-\U0001efff"
_RUN = re.compile(f"[{_STRONG}](?:[{_STRONG} ]*[{_STRONG}])?")


def in_order(code: str) -> str:
    """Code or a command, whose signs between right-to-left words stay where they are written."""
    return code if code.isascii() else _RUN.sub(lambda found: f"{FSI}{found[0]}{PDI}", code)


def as_written(text: str) -> str:
    """An address, a command or an account: its parts stay where they are written, whatever script they are in."""
    return f"{LRI}{in_order(text)}{PDI}" if has_right_to_left(text) else text


class Lines:
    """CRLF and CR to newline over pieces of text cut anywhere."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = False

    def feed(self, text: str) -> str:
        if self._held:
            text = "\r" + text
        self._held = text.endswith("\r")
        if self._held:
            text = text[:-1]
        return visible(text.replace("\r\n", "\n") if "\r" in text else text)

    def finish(self) -> str:
        held, self._held = self._held, False
        return "\n" if held else ""
