"""Secrets that a server sends back, masked.

Owns the replacing. Must not know where texts come from. Invariant: a text that passed here holds none of the secrets
of its call as they were sent; what a server encoded is not recognised.
"""

from collections.abc import Iterable
from typing import Final

SHORTEST: Final = 4
"""Below that a secret is part of too many words to be one."""


class Echoes:
    """The secrets of one call, with the names they are shown under."""

    def __init__(self, secrets: Iterable[tuple[str, str]]) -> None:
        shown: dict[str, str] = {}
        for name, value in secrets:
            if len(value) >= SHORTEST:
                # A host is told in lower case.
                shown |= {value.lower(): f"[secret {name}]", value: f"[secret {name}]"}
        # A longer one may hold a shorter one.
        self._shown = dict(sorted(shown.items(), key=lambda each: -len(each[0])))

    def masked(self, text: str) -> str:
        for value, shown in self._shown.items():
            text = text.replace(value, shown)
        return text

    def masked_bytes(self, data: bytes) -> bytes:
        for value, shown in self._shown.items():
            data = data.replace(value.encode(), shown.encode())
        return data

    def without_beginnings(self, text: str) -> str:
        """A text that was cut, without a part of a secret at its end."""
        for value in self._shown:
            for size in range(min(len(value) - 1, len(text)), 0, -1):
                if text.endswith(value[:size]):
                    text = text[:-size]
                    break
        return text
