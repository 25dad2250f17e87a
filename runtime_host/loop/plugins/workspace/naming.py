r"""Names of files as they are told, and what a told name means. Pure.

Owns the one notation in which models and persons are told of names. Must not know files. Invariants: two names that
differ are told differently; nothing that is told turns lines around, breaks them or cannot be seen; what was told means
the same name again.

A name is told as it is, but for a backslash (`\\`), bytes that are no UTF-8 (`\xff`), and characters that cannot be
seen or change how others are read (`\u202e`).
"""

import re
import unicodedata
from typing import Final

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Zl", "Zp", "Zs"})
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Letters and marks by their kind, and nothing to look at."""
_ESCAPE: Final = re.compile(r"\\(?:(\\)|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)")


def told(name: str) -> str:
    """A name or path, as the file system gave it, in the notation."""
    shown = "".join(map(_told, name))
    # A blank at an end is not seen.
    parts = shown.split("/")
    return "/".join(_ends(part) for part in parts)


def meant(word: str) -> str:
    """The name or path that is meant.

    Raises:
        ValueError: it is in no such notation; the message is a sentence.
    """
    found = _ESCAPE.sub(_meant, word)
    try:
        # As the system takes it: a half of a character is none.
        found.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("The name holds half of a character, which no file is called by.") from None
    if "\0" in found:
        raise ValueError("The name holds a NUL, which no file is called by.")
    return found


def _told(sign: str) -> str:
    number = ord(sign)
    if sign == "\\":
        return "\\\\"
    if sign == " ":
        return sign
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"
    if unicodedata.category(sign) not in _UNSEEN and sign not in _BLANK and not _is_variation(number):
        return sign
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _is_variation(number: int) -> bool:
    return 0xFE00 <= number <= 0xFE0F or 0xE0100 <= number <= 0xE01EF


def _ends(part: str) -> str:
    if part.startswith(" "):
        part = "\\x20" + part[1:]
    return part[:-1] + "\\x20" if part.endswith(" ") else part


def _meant(found: re.Match[str]) -> str:
    backslash, byte, short, long = found.groups()
    if backslash:
        return "\\"
    if byte:
        number = int(byte, 16)
        sign = chr(number if number < 0x80 else 0xDC00 + number)
    elif short or long:
        number = int(short or long, 16)
        if number > 0x10FFFF:
            raise ValueError(f"{found.group()} is no character.")
        sign = chr(number)
    else:
        raise ValueError(
            r"A backslash begins an escape in a name: \\ for itself, \xHH for a byte, \uHHHH for a character."
        )
    if sign == "/":
        raise ValueError("No name holds a slash.")
    return sign
