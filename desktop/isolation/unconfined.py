"""Starting a drawing process on a system whose walls are not built yet.

Owns the plain launch that macOS and Windows share: own channel, own environment, no walls,
and a plan that says so. Must not claim anything else.
"""

import os
import socket
import subprocess
import sys

from desktop.isolation import Launch, Row, WallPlan, Walls

_DROPPED_PREFIXES = ("PYTHON", "DYLD_", "LD_", "QML", "QT_")
_SECRET_MARKS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


def start(
    command: list[str],
    *,
    build: str,
    walls: Walls,
    extra_env: dict[str, str],
    stderr: int | None,
    graphics_card: bool,
    inherit: tuple[int, ...],
) -> Launch:
    """Start `command` without walls, whatever was asked for; the plan says that there are none."""
    del walls, graphics_card
    ours, theirs = socket.socketpair()
    with theirs:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(_DROPPED_PREFIXES)
            and not any(mark in name.upper() for mark in _SECRET_MARKS)
        }
        environment |= extra_env
        process = subprocess.Popen(
            [*command, f"--channel={theirs.fileno()}", "--walls=none", f"--build={build}"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if stderr is None else stderr,
            pass_fds=(theirs.fileno(), *inherit),
            start_new_session=True,
        )
    row: Row = ("isolation", "down", f"not isolated on this system yet ({sys.platform})")
    return Launch(process, ours, WallPlan([row], bubblewrap=False, platform="", x11=False, supported=False))


def seal() -> Row:
    """Nothing to raise here yet."""
    return ("host memory", "down", f"not isolated on this system yet ({sys.platform})")
