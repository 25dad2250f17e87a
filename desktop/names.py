"""What people may call a profile or an agent.

Pure, standard library only. Owns the rules of a name and when two names count as the same. Must not know
what is named. Invariant: a name that was taken reads as it is written: one line, no mark that hides, turns or
steers text, nothing that a path, an option or a file system takes for something else.
"""

import re
import unicodedata
from collections.abc import Iterable

NAME_CHARS = 64
NAME_BYTES = 255

_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Controls, marks of direction and joiners, halves of characters, private and unassigned ones, line ends."""


class NameRefusedError(ValueError):
    """The name cannot be given. The text is the sentence for the person."""


def same(name: str) -> str:
    """What two names have in common that would be taken for one another."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def checked(what: str, name: str, taken: Iterable[str] = ()) -> str:
    """The name as it is kept, without blanks around it.

    Args:
        what: the word for what is named, as in "a profile".
        name: as it was typed.
        taken: names that others have.

    Raises:
        NameRefusedError: it breaks a rule; the sentence says which.
    """
    blanks = (" " if unicodedata.category(character) == "Zs" else character for character in name)
    name = unicodedata.normalize("NFC", "".join(blanks).strip(" "))
    if not name:
        raise NameRefusedError(f"Give {what} a name.")
    if any(unicodedata.category(character) in _UNSEEN for character in name):
        raise NameRefusedError(
            f"The name of {what} cannot hold line ends, controls or marks that hide or turn text. Type it anew."
        )
    if len(name) > NAME_CHARS or len(name.encode()) > NAME_BYTES:
        raise NameRefusedError(f"The name of {what} has at most {NAME_CHARS} characters and {NAME_BYTES} bytes.")
    if any(character in "/\\" for character in name):
        raise NameRefusedError(f"The name of {what} cannot hold / or \\, which part the steps of a path.")
    if not name[0].isalnum():
        raise NameRefusedError(f"The name of {what} begins with a letter or a digit.")
    if _RESERVED.fullmatch(name) or name.endswith("."):
        raise NameRefusedError(f"Some systems cannot have {name} as a name. Choose another.")
    if same(name) in {same(other) for other in taken}:
        raise NameRefusedError(f"There is {what} called {name} already, or one that reads the same. Choose another.")
    return name


def free(name: str, taken: Iterable[str]) -> str:
    """`name`, or with a number behind it the first that nobody has."""
    others = {same(other) for other in taken}
    number, candidate = 1, name
    while same(candidate) in others:
        number += 1
        tail = f" {number}"
        candidate = name[: NAME_CHARS - len(tail)].rstrip() + tail
    return candidate


def slug(name: str, taken: Iterable[str], otherwise: str) -> str:
    """A plain folder name made of `name`: small letters, digits and dashes, none of `taken` whatever its case."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    word = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:40].strip("-")
    if not word or _RESERVED.fullmatch(word):
        word = otherwise
    others = {other.casefold() for other in taken}
    number, candidate = 1, word
    while candidate.casefold() in others:
        number += 1
        candidate = f"{word}-{number}"
    return candidate
