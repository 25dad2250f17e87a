"""The keys that agents' credentials are sealed under, in the operating system's key store.

Owns their entry of a profile: the current key first, older ones behind it as long as something may be sealed under
them. Must not know what is sealed. Invariants: a key is made only when something is to be sealed and there is none; it
is in no file; that there is one is noted in the profile before it is made, so that it goes with the profile.
"""

import asyncio
import base64
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal, Protocol

from desktop.credentials import Credentials
from desktop.secret import Secret
from runtime_host.connectors.base import SecretRef
from runtime_host.loop import sealing
from runtime_host.loop.credentials import Resealed
from runtime_host.loop.sealing import KEY_BYTES, SealingKeyError

ENTRY: Final = "sealing:keys"
OPERATOR: Final = "operator:"
"""Beginning of entries that whoever runs Remuda here keeps for mounts."""
NOTED: Final = SecretRef(kind="keyring", name=ENTRY).model_dump(mode="json")


class Resealing(Protocol):
    """What brings an agent's credentials under the current key."""

    async def reseal(self) -> Resealed: ...


class KeyringSeals:
    """`runtime_host.loop.sealing.Seals` of a profile.

    Args:
        credentials: the profile's entries in the key store.
        note: called before a key is made, to keep in the profile that there is one.
    """

    def __init__(self, credentials: Credentials, note: Callable[[], Awaitable[None]]) -> None:
        self._credentials = credentials
        self._note = note
        self._making = asyncio.Lock()

    async def key(self, key_id: str | None = None, *, make: bool = False) -> bytes | None:
        """The current key, or the one with an id. None: there is certainly none.

        Raises:
            ConnectorError: the key store does not give it now.
            SealingKeyError: what is kept there is no key.
        """
        keys = await self._keys()
        if key_id is not None:
            return next((key for key in keys if sealing.key_id(key) == key_id), None)
        if not keys and make:
            async with self._making:
                # Another one may have made it meanwhile.
                keys = await self._keys() or [await self._made([])]
        return keys[0] if keys else None

    async def known(self) -> frozenset[str] | None:
        """The ids of the keys that are there. None when the key store is not open: nobody is asked to open it."""
        if (await self._credentials.state()).state != "ok":
            return None
        try:
            return frozenset(sealing.key_id(key) for key in await self._keys())
        except SealingKeyError:
            return frozenset()

    async def rotate(self, agents: Iterable[Resealing]) -> Resealed:
        """Make a new key and bring the credentials of all agents under it.

        The older keys go only when everything could be brought under the new one; called again, it goes on.

        Raises:
            ConnectorError: the key store did not take the new key; nothing is changed.
        """
        async with self._making:
            keys = await self._keys()
            await self._made(keys)
        done = unreadable = 0
        for agent in agents:
            resealed = await agent.reseal()
            done, unreadable = done + resealed.done, unreadable + resealed.unreadable
        async with self._making:
            if not unreadable:
                await self._keep((await self._keys())[:1])
        return Resealed(done, unreadable)

    async def _made(self, older: list[bytes]) -> bytes:
        await self._note()
        key = os.urandom(KEY_BYTES)
        await self._keep([key, *older])
        return key

    async def _keep(self, keys: list[bytes]) -> None:
        text = " ".join(base64.b64encode(key).decode() for key in keys)
        await self._credentials.store(ENTRY, Secret(text))

    async def _keys(self) -> list[bytes]:
        text = await self._credentials.look_up(ENTRY)
        try:
            keys = [base64.b64decode(each, validate=True) for each in (text or "").split()]
        except ValueError:
            keys = [b""]
        for key in keys:
            sealing.checked_key(key)
        return keys


def outside(credentials: Credentials) -> Callable[[Literal["operator", "env"], str], Awaitable[str | None]]:
    """What mounts' references to something outside of their agent's file mean.

    A variable of the environment is read only where Remuda runs from its source.
    """

    async def fetch(kind: Literal["operator", "env"], name: str) -> str | None:
        if kind == "operator":
            return await credentials.look_up(f"{OPERATOR}{name}")
        return None if getattr(sys, "frozen", False) else os.environ.get(name, "").strip() or None

    return fetch
