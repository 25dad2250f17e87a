"""How a run of text looks that is not markdown: what a command wrote, a line of a diff.

Owns the names of the looks. Must not know Qt or markup. Invariant: a colour is a name of the
theme or `#rrggbb`, and is never taken as given: `rich` makes it readable on its ground.
"""

from typing import NamedTuple


class Style(NamedTuple):
    """`fore` and `back` are empty for what text and ground are anyway."""

    fore: str = ""
    back: str = ""
    bold: bool = False
    faint: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False
    inverse: bool = False


PLAIN = Style()

Span = tuple[Style, str]
"""A run of text within a line, or the newline between two."""
