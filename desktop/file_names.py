"""Names of files that do not lie: how one is shown, and how one is saved.

Pure. Must not know files, windows or services. Invariants: what is shown holds no sign that cannot be seen or that
moves others, and always ends with the true extension; what is saved under leads nowhere and fits every usual disk, and
what was changed of it is said.
"""

import re
import unicodedata
from typing import Final, NamedTuple

SHOWN_CHARS: Final = 80
NAME_BYTES: Final = 255
_SUFFIX_CHARS: Final = 16
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_DOTS: Final = "․‥…。．｡"
"""Signs that look like one dot or several."""
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_FORBIDDEN: Final = frozenset('/\\:*?"<>|')
FALLBACK: Final = "file"


class SafeName(NamedTuple):
    """A name to save under, and what was changed; "" where nothing was."""

    name: str
    changed: str


def shown(name: str, most_chars: int = SHOWN_CHARS) -> str:
    """A name as a person may read it: on one line, everything in it to be seen, its true extension at its end.

    Args:
        name: whatever somebody called a file.
        most_chars: at least 24; what is longer loses its middle.
    """
    seen = "".join(map(_seen, name)) or "(no name)"
    if len(seen) <= most_chars:
        return seen
    tail = _tail(seen)
    return f"{seen[: most_chars - len(tail) - 1]}…{tail}"


def extension(name: str) -> str:
    """The true extension, in small letters and without its dot; "" where there is none."""
    stem, dot, suffix = name.rpartition(".")
    return suffix.lower() if dot and stem.strip(".") and suffix and suffix.isalnum() and suffix.isascii() else ""


def safe(name: str) -> SafeName:
    """A name to save under; of two files of one name each gets it, nothing is made different."""
    base = re.split(r"[/\\]", name)[-1]
    told = []
    if base != name:
        told.append("its folders were left out")
    plain = "".join("_" if _is_odd(sign) else sign for sign in unicodedata.normalize("NFC", base))
    if plain != base:
        told.append("signs that cannot be seen, or mean something to a system, became _")
    trimmed = plain.strip(" .").lstrip("-")
    if trimmed != plain:
        told.append("dots, spaces or dashes at its ends were left out")
    if _RESERVED.fullmatch(trimmed):
        trimmed = f"_{trimmed}"
        told.append("it is the name of a device on some systems")
    short = _shortened(trimmed)
    if short != trimmed:
        told.append("it was too long")
    if not short.strip("_"):
        return SafeName(FALLBACK, "The file is saved as another name, since nothing of its own can be one.")
    if not told:
        return SafeName(short, "")
    return SafeName(short, f"The name was changed: {'; '.join(told)}.")


def _seen(sign: str) -> str:
    if sign in _DOTS:
        return f"⟨U+{ord(sign):04X}⟩"
    if sign != " " and unicodedata.category(sign) in {*_HIDDEN, "Zs"}:
        return f"⟨U+{ord(sign):04X}⟩"
    return sign


def _is_odd(sign: str) -> bool:
    return sign in _FORBIDDEN or sign in _DOTS or (sign != " " and unicodedata.category(sign) in {*_HIDDEN, "Zs"})


def _tail(seen: str) -> str:
    stem, dot, suffix = seen.rpartition(".")
    return f"{dot}{suffix}" if stem and dot and 0 < len(suffix) <= _SUFFIX_CHARS else seen[-_SUFFIX_CHARS:]


def _shortened(name: str) -> str:
    if len(name.encode("utf-8")) <= NAME_BYTES:
        return name
    stem, dot, suffix = name.rpartition(".")
    tail = f"{dot}{suffix}" if stem and len(suffix.encode("utf-8")) <= _SUFFIX_CHARS else ""
    room = NAME_BYTES - len(tail.encode("utf-8"))
    head = (stem if tail else name).encode("utf-8")[:room].decode("utf-8", "ignore").rstrip(" .")
    return head + tail
