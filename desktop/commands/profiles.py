"""The commands about profiles: separate folders, keys and agents. No host is needed for them.

Owns their arguments and output. Invariant: what is deleted was asked about before.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from desktop import paths, profiles
from desktop.commands.terminal import Json, fail, place, plain, rows
from desktop.exit_codes import COMPLETED, FAILED, USAGE
from desktop.paths import ProfilePaths

T = TypeVar("T")

profiles_app = typer.Typer(help="Profiles: separate folders, keys and agents.", no_args_is_help=True)

_USAGE_CODES = ("PROFILE_UNKNOWN", "PROFILE_NAME_REFUSED")


def _data() -> Path:
    return paths.data_dir(place.data_dir)


def _done(work: Callable[[], T], as_json: bool) -> T:
    """What `work` comes to; its refusals as sentences."""
    from runtime_host.errors import AgentRuntimeError

    try:
        return work()
    except profiles.ProfileRefusedError as refused:
        fail(refused.code, str(refused), USAGE if refused.code in _USAGE_CODES else FAILED, as_json=as_json)
    except AgentRuntimeError as fault:
        fail(fault.error_code, fault.message, as_json=as_json)
    except OSError as fault:
        fail("DATA_FOLDER_UNUSABLE", f"The data folder cannot be used: {fault}.", as_json=as_json)


@profiles_app.command("list")
def profiles_list(as_json: Json = False) -> int:
    """List the profiles of the data folder."""
    _done(lambda: asyncio.run(profiles.finish_interrupted(_data())), as_json)
    show = rows(as_json, lambda row: f"{row['profile']}  {row['name']}{'  open' if row['running'] else ''}")
    for entry in profiles.list_profiles(_data()):
        root = str(ProfilePaths(_data(), entry.profile_id).root)
        show({"row": {"profile": entry.profile_id, "name": entry.name, "running": entry.running, "path": root}})
    return COMPLETED


@profiles_app.command("add")
def profiles_add(name: str, as_json: Json = False) -> int:
    """Make a profile: a folder, keys and agents of its own."""
    made = _done(lambda: profiles.create(_data(), name), as_json)
    row = {"profile": made.name, "name": profiles.display_name(made), "path": str(made.root)}
    rows(as_json, lambda row: f"{row['name']} is there. Use it: remuda --profile {row['profile']}")({"row": row})
    return COMPLETED


@profiles_app.command("rename")
def profiles_rename(profile: str, name: str, as_json: Json = False) -> int:
    """Call a profile something else. Its folder stays where it is."""
    found = _done(lambda: profiles.existing(_data(), profile), as_json)
    name = _done(lambda: profiles.rename(_data(), found.name, name), as_json)
    rows(as_json, lambda row: f"{row['profile']} is called {row['name']}")(
        {"row": {"profile": found.name, "name": name}}
    )
    return COMPLETED


@profiles_app.command("delete")
def profiles_delete(
    profile: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> int:
    """Delete a profile with all it holds, for good. Keys, agents, conversations and settings go."""
    found = _done(lambda: profiles.existing(_data(), profile), as_json)
    name = profiles.display_name(found)
    if not yes:
        about = f"{plain(name)} will be deleted with its keys, agents, conversations and settings, for good."
        about = " ".join((about, *_done(lambda: asyncio.run(profiles.stays(found)), as_json)))
        print(about, file=sys.stderr if as_json else sys.stdout)
        if not sys.stdin.isatty() or not typer.confirm("Delete it?", default=False):
            fail("NOT_CONFIRMED", "Nothing was deleted. With --yes it is not asked.", USAGE, as_json=as_json)
    _done(lambda: asyncio.run(profiles.delete(_data(), found.name)), as_json)
    row: dict[str, Any] = {"profile": found.name, "name": name, "deleted": True}
    rows(as_json, lambda row: f"{row['name']} is deleted")({"row": row})
    return COMPLETED


@profiles_app.command("open")
def profiles_open(profile: str, as_json: Json = False) -> int:
    """Open the window of a profile, or bring it to the front."""
    found = _done(lambda: profiles.existing(_data(), profile), as_json)
    row = {"profile": found.name, "name": profiles.display_name(found)}
    if profiles.is_running(found):
        from desktop.second_start import raise_window

        code = raise_window(found.control, os.environ.get("XDG_ACTIVATION_TOKEN", ""))
        if code != COMPLETED:
            return code
        rows(as_json, lambda row: f"{row['name']} is open")({"row": {**row, "started": False}})
        return COMPLETED
    if not profiles.has_display():
        fail("NO_DISPLAY", "There is no display to open a window on.", as_json=as_json)
    _done(lambda: profiles.open_window(found), as_json)
    rows(as_json, lambda row: f"{row['name']} is being opened")({"row": {**row, "started": True}})
    return COMPLETED
