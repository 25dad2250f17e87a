"""What of the system's own files no command may read, where it is root who runs the CLI.

Owns the looking for them. Must not know sessions. Invariant: what only root may read is named, or lies in a folder that
is; for anybody else the system itself holds it.
"""

import os
import stat
from typing import Final

from runtime_host.errors import AgentPolicyUnsupportedError

SETTINGS: Final = "/etc"
"""Passwords, keys of the machine and tokens lie there, among what every program needs."""
MOST_PLACES: Final = 512


def roots_own(folder: str = SETTINGS) -> tuple[str, ...]:
    """Files and folders below one that not every user may read; none where it is not root who asks.

    Raises:
        AgentPolicyUnsupportedError: there are more than the CLI can be told.
    """
    if os.geteuid() != 0:
        return ()
    found: list[str] = []
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        for name in os.listdir(here):
            path = os.path.join(here, name)
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                continue
            if _is_roots(mode):
                found.append(path)
            elif stat.S_ISDIR(mode):
                waiting.append(path)
    if len(found) > MOST_PLACES:
        raise AgentPolicyUnsupportedError(
            f"As root this program can read {len(found)} places in {folder} that others cannot, which are too many to "
            "keep from commands of the Codex CLI. Start it as another user.",
            details={"field": "policy.commands"},
        )
    return tuple(sorted(found))


def _is_roots(mode: int) -> bool:
    if stat.S_ISLNK(mode):
        # What it leads to is looked at where it lies.
        return False
    needed = 0o005 if stat.S_ISDIR(mode) else 0o004
    return mode & needed != needed
