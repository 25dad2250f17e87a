"""Starting the processes that draw, behind as many walls as this system gives.

Owns launch, environment and the launcher's own walls (bubblewrap, what is passed in) of the
renderer and of dialogs, on every system behind one interface. Must not know what is said on
the channel. Standard library only and light: it runs before the first window is painted.

Invariants: a launched process inherits the channel and nothing else of ours; its
environment is built from an allow-list; no secret is in its arguments or environment; a
wall that could not be raised is in the plan with the reason.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from desktop.roles import self_command

if TYPE_CHECKING:
    import socket
    import subprocess

State = Literal["up", "down", "not-applicable"]
Row = tuple[str, State, str]
Walls = Literal["all", "none"]

RENDERER_WALLS = "landlock,seccomp,caps"


class WallPlan:
    """Which walls the launcher raised around a process it started, and why not the others."""

    __slots__ = ("bubblewrap", "platform", "rows", "supported", "x11")

    def __init__(self, rows: list[Row], *, bubblewrap: bool, platform: str, x11: bool, supported: bool = True) -> None:
        """Args as attributes.

        Args:
            rows: Name, state and reason of each wall of the launcher.
            bubblewrap: Whether the process runs inside bubblewrap.
            platform: How it reaches the display: wayland, xcb, offscreen, … or "" where it cannot.
            x11: Whether it holds the trusted cookie of an X server: other windows are then within its reach.
            supported: False where this system has no isolation yet.
        """
        self.rows = rows
        self.bubblewrap = bubblewrap
        self.platform = platform
        self.x11 = x11
        self.supported = supported


class Launch:
    """A started process, our end of its channel, and the walls around it."""

    __slots__ = ("channel", "plan", "process")

    def __init__(self, process: "subprocess.Popen[bytes]", channel: "socket.socket", plan: WallPlan) -> None:
        self.process = process
        self.channel = channel
        self.plan = plan

    def end(self, timeout_s: float = 5.0) -> int:
        """Kill the process and all it started, wait until none is left; exit status."""
        from desktop.isolation.watch import end_tree

        self.channel.close()
        return end_tree(self.process, timeout_s=timeout_s)


def launch_renderer(
    *,
    build: str,
    walls: Walls = "all",
    extra_env: dict[str, str] | None = None,
    stderr: int | None = None,
    graphics_card: bool = False,
) -> Launch:
    """Start the process that draws the window.

    Args:
        build: Which build of the program this is; the renderer repeats it in its hello.
        walls: "none" only for a control run that shows what the walls are good for.
        extra_env: Added to the environment last, for tests and tools.
        stderr: Descriptor for what it prints; None discards it.
        graphics_card: Let it open a render node, where there is one, instead of drawing in software.
    """
    return launch(
        self_command("renderer"),
        build=build,
        walls=walls,
        extra_env=extra_env,
        stderr=stderr,
        graphics_card=graphics_card,
    )


def launch_dialog(
    *,
    build: str,
    walls: Walls = "all",
    extra_env: dict[str, str] | None = None,
    stderr: int | None = None,
) -> Launch:
    """Start the process that asks trusted questions, behind the same walls as the renderer."""
    return launch(self_command("dialog"), build=build, walls=walls, extra_env=extra_env, stderr=stderr)


def launch(
    command: Sequence[str],
    *,
    build: str,
    walls: Walls = "all",
    extra_env: dict[str, str] | None = None,
    stderr: int | None = None,
    graphics_card: bool = False,
    inherit: Sequence[int] = (),
) -> Launch:
    """Start `command` with `--channel`, `--walls` and `--build` added; arguments as in `launch_renderer`.

    `inherit` are further descriptors to pass, for a self-test that shows what a leaked one would mean.
    """
    if sys.platform.startswith("linux"):
        from desktop.isolation.linux import start
    elif sys.platform == "darwin":
        from desktop.isolation.macos import start
    else:
        from desktop.isolation.windows import start
    return start(
        list(command),
        build=build,
        walls=walls,
        extra_env=extra_env or {},
        stderr=stderr,
        graphics_card=graphics_card,
        inherit=tuple(inherit),
    )


def drawing_uid(walls: Walls = "all") -> int | None:
    """The user that a launched process becomes; None where it stays the one who starts it."""
    if not sys.platform.startswith("linux"):
        return None
    from desktop.isolation.linux import drawing_uid as on_linux

    return on_linux(walls)


def seal_host() -> Row:
    """Keep other programs of the same user out of the memory of this process."""
    if sys.platform.startswith("linux"):
        from desktop.isolation.linux import seal
    elif sys.platform == "darwin":
        from desktop.isolation.macos import seal
    else:
        from desktop.isolation.windows import seal
    return seal()
