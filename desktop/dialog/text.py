"""Untrusted text, made so that what is drawn is what is there.

Owns the rule which characters a trusted dialog spells out instead of drawing: controls, bidi and
other format characters, invisible letters and spaces, private and unassigned code points, and
towers of combining marks. Must not know where the text came from. Invariant: two different texts
never look the same for lack of a visible character, and no character moves another.
"""

import unicodedata

LONGEST_MARK_RUN = 2
"""Combining marks in a row that are drawn; more of them would climb over the neighbouring lines."""

# Letters and marks by their category, and yet nothing is drawn for them.
_INVISIBLE = frozenset(
    {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0}
    | set(range(0xFE00, 0xFE10))
    | set(range(0xE0100, 0xE01F0))
)
_SPELLED_CATEGORIES = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
_EMOJI_STYLE = (0xFE0E, 0xFE0F)

# Isolated left to right, so that the code reads the same inside right-to-left text.
_OPEN, _CLOSE = "\u2066‹", "›\u2069"


def visible(text: str, *, keep_line_breaks: bool = False) -> str:
    """`text` with every character that would hide or reorder spelled out as ‹U+XXXX›.

    Args:
        text: whatever a model, a provider or a file name brought.
        keep_line_breaks: draw U+000A as a line break (for whole commands and messages); a title
            has none, so there it is spelled out too.
    """
    out: list[str] = []
    marks = 0
    before = ""
    for char in text:
        point = ord(char)
        if 0x20 <= point < 0x7F or (char == "\n" and keep_line_breaks):
            out.append(char)
            marks = 0
        elif point in _EMOJI_STYLE and before and unicodedata.category(before) in ("So", "Sm"):
            out.append(char)
        else:
            category = unicodedata.category(char)
            marks = marks + 1 if category in ("Mn", "Me") else 0
            hidden = (
                category in _SPELLED_CATEGORIES
                or point in _INVISIBLE
                or (category == "Zs" and char != " ")
                or marks > LONGEST_MARK_RUN
            )
            out.append(f"{_OPEN}U+{point:04X}{_CLOSE}" if hidden else char)
        before = char
    return "".join(out)
