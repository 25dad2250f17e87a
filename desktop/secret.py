"""A secret on its way through the host.

Owns that it is never shown by accident. Must not know where it comes from or goes to.
"""

import hmac
from typing import NoReturn


class Secret:
    """A key that prints as dots. `reveal` is the one way to its characters."""

    __slots__ = ("_characters",)
    __hash__ = None  # type: ignore[assignment]  # a secret is no key of a table

    def __init__(self, characters: str) -> None:
        self._characters = characters

    def reveal(self) -> str:
        return self._characters

    def __repr__(self) -> str:
        return "Secret(•••)"

    def __str__(self) -> str:
        return "•••"

    def __format__(self, spec: str) -> str:
        return "•••"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._characters.encode(), other._characters.encode())

    def __bool__(self) -> bool:
        return bool(self._characters)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is neither copied to a file nor to another process")
