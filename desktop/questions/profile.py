"""Profiles and everything at once, as the person asks for them: trusted forms and questions.

Owns what is asked. Must not know how a profile is made or removed. Invariants: where a file is written is typed or
chosen in the trusted dialog and nowhere else; nothing is removed that was not shown before.
"""

import asyncio
import functools
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from desktop import export, names, profiles, stored
from desktop.dialogs import DeleteConfirmation, Form, FormField
from desktop.paths import ProfilePaths
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.own_thread import in_own_thread

if TYPE_CHECKING:
    from desktop.app import Host


T = TypeVar("T")

MOST_OPENED = 4
OPENED_S = 10.0
"""So many profiles are opened within this time: nothing is asked before, and each is a program of its own."""

_opened: "WeakKeyDictionary[Host, deque[float]]" = WeakKeyDictionary()


class ProfileError(AgentRuntimeError):
    """Something cannot be done with a profile; the message says why."""

    code = "PROFILE_REFUSED"


async def add(host: "Host") -> ProfilePaths | None:
    """Ask for a name and make a profile; None when the person does not want to."""
    return await _named(
        host,
        Form(
            title="New profile",
            lead="It has a folder, keys and agents of its own. Nothing of one profile is seen in another.",
            fields=(FormField("name", "line", "Name", required=True, bound=names.NAME_BYTES),),
            confirm="Make profile",
        ),
        lambda name: profiles.create(host.paths.data, name),
    )


async def rename(host: "Host", profile_id: str) -> str | None:
    """Ask for another name of a profile; the new name, None when the person does not want to."""
    now = profiles.display_name(ProfilePaths(host.paths.data, profile_id))
    return await _named(
        host,
        Form(
            title="Rename the profile",
            lead="Its folder stays where it is.",
            about=now,
            fields=(FormField("name", "line", "Name", now, required=True, bound=names.NAME_BYTES),),
            confirm="Rename",
        ),
        lambda name: profiles.rename(host.paths.data, profile_id, name),
    )


async def delete(host: "Host", profile_id: str) -> bool:
    """Ask, and delete a profile that is not open with its keys and files; whether it is gone.

    Raises:
        AgentRuntimeError: it cannot go; the sentence says why.
    """
    data = host.paths.data
    found = ProfilePaths(data, profile_id)
    if profile_id == host.paths.name:
        raise ProfileError(
            "This is the profile you are in. Open another one and delete it from there, or remove everything.",
            code="PROFILE_CURRENT",
        )
    if await in_own_thread(lambda: profiles.is_running(found), "look at profile"):
        raise ProfileError("This profile is open. Close it first.", code="PROFILE_RUNNING")
    goes = (
        "All its conversations, drafts, agents, connectors and settings.",
        "Its keys in this computer’s key store.",
        f"Its folder {found.root}.",
        *await profiles.stays(found),
    )
    question = DeleteConfirmation(title=profiles.display_name(found), what="profile", goes=goes)
    if not await (await host.trusted()).confirm(question):
        return False

    def slow(sentence: str) -> None:
        host.tell("key-store", "warning", "KEYRING_SLOW", sentence)

    try:
        await profiles.delete(data, profile_id, current=host.paths.name, on_slow=slow)
    except profiles.ProfileRefusedError as refused:
        raise ProfileError(str(refused), code=refused.code) from refused
    except OSError as fault:
        raise ProfileError(f"The profile could not be deleted: {fault.strerror or fault}.") from fault
    return True


async def open_profile(host: "Host", profile_id: str) -> bool:
    """Open the window of a profile, or bring it to the front; it has a host of its own."""
    if profile_id == host.paths.name:
        host.raise_window("")
        return True
    now = asyncio.get_running_loop().time()
    opened = _opened.setdefault(host, deque(maxlen=MOST_OPENED))
    if len(opened) == MOST_OPENED and now - opened[0] < OPENED_S:
        raise ProfileError("Several profiles were opened just now. Try again in a moment.", code="PROFILES_OPENED")
    opened.append(now)
    try:
        profiles.open_window(profiles.existing(host.paths.data, profile_id))
    except profiles.ProfileRefusedError as refused:
        raise ProfileError(str(refused), code=refused.code) from refused
    except OSError as fault:
        raise ProfileError(f"The profile could not be opened: {fault.strerror or fault}.") from fault
    return True


async def ask_destination(host: "Host") -> Path | None:
    """Ask where everything is written to, until it can lie there; None when the person does not want to."""
    file = f"remuda-{names.slug(host.profile_name, (), 'profile')}-{time.strftime('%Y-%m-%d')}.zip"
    form = Form(
        title="Export everything",
        lead="All conversations, agents and settings, in one .zip file that only you can read. Keys are not in it.",
        fields=(FormField("path", "path", "File", str(_full("~") / file), required=True, bound=4096),),
        confirm="Export",
    )
    dialogs = await host.trusted()
    while (answers := await dialogs.ask_form(form)) is not None:
        try:
            return await export.check_destination(host, _full(str(answers["path"])))
        except export.ExportRefusedError as refused:
            form = form.again(answers, at={"path": refused.message})
    return None


async def export_all(host: "Host", path: Path, tell: Callable[[int, int], None]) -> export.Exported:
    """Write everything to `path`; `tell` is told (done, of). Cancelling it leaves nothing.

    Raises:
        AgentRuntimeError: nothing was written; the sentence says why.
    """
    return await export.export_all(host, path, lambda done, of, sentence: tell(done, of))


async def remove_all(host: "Host") -> bool:
    """Show what goes, ask, and remove everything of this profile; the host then ends.

    Raises:
        AgentRuntimeError: the key store kept a key, so nothing was removed.
    """
    rows = await stored.what_is_stored(host)
    running = bool(host.conversations.running())
    goes = await stored.what_goes(host, rows)
    question = DeleteConfirmation(title=host.profile_name, running=running, what="profile", goes=goes)
    if not await (await host.trusted()).confirm(question):
        return False

    def slow(sentence: str) -> None:
        host.tell("key-store", "warning", "KEYRING_SLOW", sentence)

    # The question said what becomes of replies that are being written.
    await stored.remove_all(host, stop_runs=True, on_slow=slow)
    return True


async def _named(host: "Host", form: Form, do: Callable[[str], T]) -> T | None:
    """Ask for a name until `do` takes it."""
    dialogs = await host.trusted()
    while True:
        answers = await dialogs.ask_form(form)
        if answers is None:
            return None
        name = str(answers["name"])
        try:
            return await in_own_thread(functools.partial(do, name), "change profile")
        except profiles.ProfileRefusedError as refused:
            form = form.again(answers, at={"name": str(refused)})
        except OSError as fault:
            form = form.again(answers, f"The data folder cannot be used: {fault.strerror or fault}.")


def _full(path: str) -> Path:
    return Path(os.path.expanduser(path))
