"""Colours of code.

Owns which tokens share a colour. Must not know Qt or markup. Invariant: the parts joined are
the code given, whatever the language; at most a row's worth is ever lexed at once.
"""

from functools import lru_cache
from typing import Any

from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Comment, Keyword, Literal, Name, Number, Operator, String  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]

Part = tuple[str, str]
"""Name of a colour ('' for plain text) and the text it is for."""

_COLOURS: tuple[tuple[Any, str], ...] = (
    (Comment, "codeComment"),
    (Keyword, "codeKeyword"),
    (Operator.Word, "codeKeyword"),
    (Number, "codeNumber"),
    (String, "codeString"),
    (Literal, "codeNumber"),
    (Name.Builtin, "codeBuiltin"),
    (Name.Function, "codeName"),
    (Name.Class, "codeName"),
    (Name.Decorator, "codeName"),
    (Name.Tag, "codeKeyword"),
    (Name.Attribute, "codeName"),
)


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    try:
        lexer: Lexer = get_lexer_by_name(language, stripnl=False, stripall=False, ensurenl=False)
    except ClassNotFound:
        return None
    return lexer


@lru_cache(maxsize=512)
def _colour(token: Any) -> str:
    return next((name for kind, name in _COLOURS if token in kind), "")


def label(language: str) -> str:
    """The language's name for people; what the message said when it is unknown, 'Code' when it said nothing."""
    if not language:
        return "Code"
    lexer = _lexer(language.lower())
    return lexer.name if lexer is not None else language


def parts(code: str, language: str) -> list[Part]:
    """`code` in coloured parts."""
    lexer = _lexer(language.lower()) if language else None
    if lexer is None:
        return [("", code)]
    found: list[Part] = []
    for token, text in lexer.get_tokens(code):
        colour = _colour(token)
        if found and (found[-1][0] == colour or not text.strip()):
            found[-1] = (found[-1][0], found[-1][1] + text)
        else:
            found.append((colour, text))
    if "".join(text for _, text in found) != code:  # some lexers normalise; what is shown is what was said
        return [("", code)]
    return found
