"""Sealing: a credential under a key, bound to the place where it lies.

Owns the form of what is sealed and the rule for keys. Must not know stores, mounts or key stores. Invariants: a key has
exactly 32 bytes or is refused; every seal has an IV of its own; what was moved to another file, tenant, agent or name,
or changed by a single bit, does not open. Nothing that is stored beside it follows from the value, its length in steps
of `STEP_BYTES` excepted.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from runtime_host.errors import AgentRuntimeError

KEY_BYTES: Final = 32
IV_BYTES: Final = 12
STEP_BYTES: Final = 256
MOST_BYTES: Final = 128 * 1024
_TAG_BYTES: Final = 16


class SealingKeyError(AgentRuntimeError):
    """There is no key to seal or open with, or it is none. Nothing was sealed, opened or sent."""

    code = "SEALING_KEY"
    status = 409


class NotOpenedError(Exception):
    """It does not open. `wrong_key` tells another key from something that was moved or changed."""

    def __init__(self, *, wrong_key: bool) -> None:
        super().__init__("a seal does not open")
        self.wrong_key = wrong_key


class Seals(Protocol):
    """Where the keys are that credentials are sealed under: one is current, older ones only open."""

    async def key(self, key_id: str | None = None, *, make: bool = False) -> bytes | None:
        """The current key, or the one with an id. None: there is certainly none.

        Args:
            key_id: of which key; the current one if left out.
            make: make and keep a current key if there is none yet.

        Raises:
            AgentRuntimeError: it cannot be had now (the key store is locked, slow or away).
        """
        ...

    async def known(self) -> frozenset[str] | None:
        """The ids of the keys that are there, current and older.

        None when that cannot be told without asking a person to unlock something.
        """
        ...


class HeldSeals:
    """Keys that the caller holds: the first seals, all open."""

    def __init__(self, key: bytes, older: Iterable[bytes] = ()) -> None:
        self._keys = {key_id(each): each for each in (key, *older)}
        self._current = key_id(key)

    async def key(self, key_id: str | None = None, *, make: bool = False) -> bytes | None:
        return self._keys.get(key_id or self._current)

    async def known(self) -> frozenset[str] | None:
        return frozenset(self._keys)


class Place(NamedTuple):
    """Where a seal lies; it opens nowhere else."""

    file_uuid: str
    tenant: str
    agent: str
    name: str

    @property
    def bound(self) -> bytes:
        """What the seal is bound to. A bar inside a part is escaped, so that no two places are written alike."""
        return "|".join(part.replace("\\", "\\\\").replace("|", "\\|") for part in self).encode()


class Sealed(NamedTuple):
    ciphertext: bytes
    iv: bytes
    key_id: str


def checked_key(key: bytes | None) -> bytes:
    """The key.

    Raises:
        SealingKeyError: there is none, or it has another length than 32 bytes.
    """
    if key is None:
        raise SealingKeyError(
            "There is no key to seal this agent's credentials with. Nothing was opened and nothing was sent. "
            "Attach the credential again, where a key store is there to keep such a key.",
            code="SEALING_KEY_MISSING",
        )
    if len(key) != KEY_BYTES:
        raise SealingKeyError(
            f"The key for this agent's credentials has {len(key)} bytes and not {KEY_BYTES}, so it is not used. "
            "Nothing was opened and nothing was sent.",
            code="SEALING_KEY_REFUSED",
        )
    return key


def key_id(key: bytes) -> str:
    """By which a key is known. It tells nothing of the key, which is 32 random bytes."""
    return hmac.new(checked_key(key), b"remuda sealing key", hashlib.sha256).hexdigest()[:16]


def seal(key: bytes, place: Place, fields: Mapping[str, str]) -> Sealed:
    """Seal named values for one place.

    Raises:
        SealingKeyError: the key is none.
        ValueError: it is more than `MOST_BYTES`.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    name = key_id(key)
    data = json.dumps(dict(fields), ensure_ascii=True, separators=(",", ":")).encode()
    if len(data) > MOST_BYTES:
        raise ValueError(f"A credential has at most {MOST_BYTES // 1024} KiB.")
    padded = data.ljust(-(-len(data) // STEP_BYTES) * STEP_BYTES)
    iv = os.urandom(IV_BYTES)
    return Sealed(AESGCM(key).encrypt(iv, padded, place.bound), iv, name)


def unseal(key: bytes, place: Place, sealed: Sealed) -> dict[str, str]:
    """The named values.

    Raises:
        SealingKeyError: the key is none.
        NotOpenedError: another key, another place, or not what was sealed.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if key_id(key) != sealed.key_id:
        raise NotOpenedError(wrong_key=True)
    if len(sealed.iv) != IV_BYTES or len(sealed.ciphertext) < _TAG_BYTES:
        raise NotOpenedError(wrong_key=False)
    try:
        data = AESGCM(key).decrypt(sealed.iv, sealed.ciphertext, place.bound)
    except InvalidTag:
        raise NotOpenedError(wrong_key=False) from None
    fields: dict[str, str] = json.loads(data)
    return fields
