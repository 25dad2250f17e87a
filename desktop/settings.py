"""The settings of a profile, typed, with their defaults.

Owns the meaning of every key in the profile store's settings. A value that does not fit its
type (an older or damaged one) counts as not set.
"""

import uuid
from typing import Any, Literal, get_args

from desktop.profile_store import ProfileStore
from ui.wire.dto import Theme

_Name = Literal[
    "theme", "picture_word", "profile_uuid", "welcomed", "default_choice", "network", "programs", "sealing", "managed"
]
_NAMES: tuple[_Name, ...] = get_args(_Name)


class Settings:
    """Settings, read once and written through."""

    def __init__(self, store: ProfileStore) -> None:
        self._store = store
        self.theme: Theme = "system"
        self.picture_word: str | None = None
        self.profile_uuid = ""
        self.welcomed = False
        self.default_choice: dict[str, Any] | None = None
        """The record of what new conversations start with; None as long as the person chose nothing."""
        self.network: dict[str, Any] = {}
        """The way out of this computer, as `desktop.network` keeps it."""
        self.programs: dict[str, Any] = {}
        """Which programs harnesses are, as `desktop.harness_setup` keeps it."""
        self.managed: dict[str, Any] = {}
        """What is settled about harnesses at a service, as `desktop.managed` keeps it."""
        self.sealing: dict[str, Any] = {}
        """Where the keys for agents' credentials are, once there are any."""

    async def load(self) -> None:
        """Read all settings; a new profile gets its uuid, which keyring entries and agent files carry."""
        values = await self._store.read(lambda tx: {name: tx.setting(name) for name in _NAMES})
        if values["theme"] in get_args(Theme):
            self.theme = values["theme"]
        if isinstance(values["picture_word"], str):
            self.picture_word = values["picture_word"]
        self.welcomed = values["welcomed"] is True
        if isinstance(values["default_choice"], dict):
            self.default_choice = values["default_choice"]
        if isinstance(values["network"], dict):
            self.network = values["network"]
        if isinstance(values["programs"], dict):
            self.programs = values["programs"]
        if isinstance(values["managed"], dict):
            self.managed = values["managed"]
        if isinstance(values["sealing"], dict):
            self.sealing = values["sealing"]
        if isinstance(values["profile_uuid"], str) and values["profile_uuid"]:
            self.profile_uuid = values["profile_uuid"]
        else:
            self.profile_uuid = str(uuid.uuid4())
            await self._put("profile_uuid", self.profile_uuid)

    async def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        await self._put("theme", theme)

    async def set_picture_word(self, word: str) -> None:
        self.picture_word = word
        await self._put("picture_word", word)

    async def set_welcomed(self) -> None:
        """The person has been past the first-run page."""
        if not self.welcomed:
            self.welcomed = True
            await self._put("welcomed", True)

    async def set_default_choice(self, record: dict[str, Any]) -> None:
        self.default_choice = record
        await self._put("default_choice", record)

    async def set_network(self, record: dict[str, Any]) -> None:
        await self._put("network", record)
        self.network = record

    async def set_programs(self, record: dict[str, Any]) -> None:
        await self._put("programs", record)
        self.programs = record

    async def set_managed(self, record: dict[str, Any]) -> None:
        await self._put("managed", record)
        self.managed = record

    async def set_sealing(self, record: dict[str, Any]) -> None:
        """Written before a key is made, so that it is known of whatever happens then."""
        if self.sealing != record:
            await self._put("sealing", record)
            self.sealing = record

    async def _put(self, name: _Name, value: object) -> None:
        await self._store.transact(lambda tx: tx.put_setting(name, value))
