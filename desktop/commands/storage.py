"""The commands about everything at once: what is stored where, all of it exported, all of it removed.

Owns their arguments and output. Must not know hosts. Invariant: after a removal it is looked a second time, and
what is still there is said.
"""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from desktop.commands.terminal import Json, Show, confirmed, fail, give_order, place, plain, print_json, rows
from desktop.exit_codes import COMPLETED, FAILED
from desktop.paths import ProfilePaths
from desktop.sizes import size_words

GONE_WITHIN_S = 30.0
"""How long a host that removes everything may take until it has ended."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("stored")(stored)
    app.command("export-all")(export_all)
    app.command("remove-all")(remove_all)


def stored(as_json: Json = False) -> int:
    """Say what of this profile is stored where, and how large it is."""
    sizes: list[int] = []

    def line(row: dict[str, Any]) -> str:
        sizes.append(row["size_bytes"])
        return f"{size_words(row['size_bytes']):>10}  {row['what']}  {row['path']}\n            {row['sentence']}"

    code = give_order("stored", {}, rows(as_json, line))
    if code == COMPLETED and not as_json:
        print(f"{size_words(sum(sizes)):>10}  together")
    return code


def export_all(path: Path, as_json: Json = False) -> int:
    """Write everything but keys to a new .zip file."""

    def in_words(row: dict[str, Any]) -> str:
        count = row["conversations"]
        return f"{row['path']}: {count} conversation{'' if count == 1 else 's'}, {size_words(row['size_bytes'])}"

    show = rows(as_json, in_words)

    def progress(answer: dict[str, Any]) -> None:
        if "progress" not in answer:
            show(answer)
        elif as_json:
            print_json({"type": "progress", **answer["progress"]})
        elif sys.stderr.isatty():
            print(f"\r\x1b[K{plain(answer['progress']['sentence'])}", end="", file=sys.stderr, flush=True)

    code = give_order("export-all", {"path": str(path.expanduser().absolute())}, progress)
    if not as_json and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    return code


def remove_all(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop replies that are being written.")] = False,
    as_json: Json = False,
) -> int:
    """Remove everything of this profile, for good. Keys, conversations, agents, settings and files go."""
    if not yes:
        row = confirmed("remove-all", {}, "Remove everything?", "Nothing was removed.", as_json)
        if isinstance(row, int):
            return row
    profile = place.paths()
    removed: list[dict[str, Any]] = []
    code = give_order("remove-all", {"confirmed": True, "stop_runs": stop}, _taking(removed, as_json))
    if code != COMPLETED or not removed:
        return code or FAILED
    left = _left(profile)
    if left:
        fail("REMOVAL_INCOMPLETE", f"Not everything is gone: {', '.join(left[:3])}.", as_json=as_json)
    rows(as_json, lambda row: f"Everything of {row['name']} is removed")({"row": removed[0]})
    return COMPLETED


def _taking(removed: list[dict[str, Any]], as_json: bool) -> Show:
    show = rows(as_json, str)
    return lambda answer: removed.append(answer["row"]) if "row" in answer else show(answer)


def _left(profile: ProfilePaths) -> list[str]:
    """What a second look finds, once the host that removes has ended."""
    from desktop import stored

    deadline = time.monotonic() + GONE_WITHIN_S
    while (found := stored.left_behind(profile)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found
