"""Names of mounted tools as a model reads them, and what a name that it wrote means. Pure.

Owns the form of aliases and names, attribution, and what is said of a name that leads nowhere. Must not know stores,
plugins or policies. Invariants: an offered name matches `NAME`, begins with its alias and is offered once; a name
depends on its own mount only; naming what is named already changes nothing; of two aliases the longer one is meant.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

BETWEEN: Final = "__"
LONGEST: Final = 64
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
ALIAS: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,22}[A-Za-z0-9])?", re.ASCII)
TOOL: Final = re.compile(r"[A-Za-z0-9_-]{1,48}", re.ASCII)
CANDIDATES: Final = 10
TOLD_CANDIDATES: Final = 5
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)


class Address(NamedTuple):
    """What a name leads to: a mount, and a tool by its bare name."""

    alias: str
    tool: str


def alias_fault(alias: str) -> str:
    """Why something is no alias; "" when it is one."""
    if not ALIAS.fullmatch(alias):
        return "An alias has 1 to 24 letters, digits, underscores or hyphens, and begins and ends with no underscore."
    if BETWEEN in alias:
        return "An alias holds no two underscores together: they part it from the names of its tools."
    return ""


def name_of(alias: str, tool: str) -> str:
    """The name of a tool, before ties. What has its alias before it already stays as it is."""
    before = _plain(alias) + BETWEEN
    name = _plain(tool)
    return (name if name.startswith(before) and len(name) > len(before) else before + name)[:LONGEST]


def names_of(alias: str, tools: Iterable[str]) -> dict[str, str]:
    """The names of a mount's tools, bare name by name; of those alike the later ones end with a number."""
    found: dict[str, str] = {}
    for tool in tools:
        name, number = (wanted := name_of(alias, tool)), 1
        while name in found:
            number += 1
            name = wanted[: LONGEST - len(str(number))] + str(number)
        found[name] = tool
    return found


class Names:
    """The names of an agent's mounts, offered and unoffered together.

    Args:
        tools: bare names of the tools by alias.
    """

    def __init__(self, tools: Mapping[str, Sequence[str]]) -> None:
        self._of = {alias: names_of(alias, each) for alias, each in tools.items()}
        # The longest first, so that the first that fits is the one that is meant.
        self._aliases = sorted(tools, key=lambda alias: (-len(alias), alias))

    def attribute(self, name: str) -> str | None:
        """The mount that a name speaks of: the longest alias that it begins with."""
        for alias in self._aliases:
            if name.startswith((_plain(alias) + BETWEEN, f"{alias}.")):
                return alias
        return None

    def address(self, name: str) -> Address | None:
        """What a name leads to; None when there is no such tool."""
        alias = self.attribute(name)
        if alias is None:
            return None
        tool = self._of[alias].get(name)
        if tool is None and name.startswith(f"{alias}."):
            bare = name[len(alias) + 1 :]
            tool = bare if bare in self._of[alias].values() else None
        return None if tool is None else Address(alias, tool)

    def name(self, alias: str, tool: str) -> str | None:
        """The name under which a tool is offered; None where another mount is meant by it."""
        for name, bare in self._of.get(alias, {}).items():
            if bare == tool:
                return name if self.attribute(name) == alias else None
        return None

    def bare(self, alias: str, name: str) -> str:
        """The bare name that somebody meant who wrote a name of a mount, whether or not there is such a tool."""
        for before in (_plain(alias) + BETWEEN, f"{alias}."):
            if name.startswith(before):
                return name[len(before) :]
        return name


def candidates(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The nearest of some names, at most `CANDIDATES`: those of the same mount if it has any, else all."""
    pool = sorted(known)
    shared = [each for each in pool if _closed_prefix(name, each)]
    if shared:
        longest = max(_closed_prefix(name, each) for each in shared)
        pool = [each for each in shared if _closed_prefix(name, each) == longest]
    return tuple(sorted(pool, key=lambda each: (-_shared(name, each), each))[:CANDIDATES])


def _closed_prefix(one: str, other: str) -> int:
    """How much two names share up to the last two underscores in it."""
    at = one[: _shared(one, other)].rfind(BETWEEN)
    return 0 if at < 0 else at + len(BETWEEN)


def _shared(one: str, other: str) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length


def _plain(text: str) -> str:
    return _OTHER.sub("_", text)


def nearest(word: str, known: Iterable[str], most: int = 2) -> str | None:
    """The known word that differs from another by the fewest letters, at most `most`."""
    best = min(((_distance(word, each, most), each) for each in known), default=(most + 1, ""))
    return best[1] if best[0] <= most else None


def _distance(one: str, other: str, most: int) -> int:
    if abs(len(one) - len(other)) > most:
        return most + 1
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, against in enumerate(other, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != against)))
        before = now
    return before[-1]
