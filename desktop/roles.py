"""Starting ourselves in another role, frozen or not.

Owns the one command line by which any process of the program starts another. Must not
know what the roles do. Standard library only: it runs before the first window is painted.
"""

import sys
from typing import Literal

Role = Literal["renderer", "dialog", "guard", "model", "selftest", "wall", "wall-trial", "wall-probe", "search"]

FROZEN: bool = bool(getattr(sys, "frozen", False))


def self_command(role: Role) -> list[str]:
    """Command line that starts this program as `role`.

    From source the renderer is started as the package `ui`, so that the host's package
    `desktop` is never loaded into it; `-I` keeps PYTHON* variables and the working
    directory out of the child.
    """
    if FROZEN:
        return [sys.executable, f"--role={role}"]
    if role == "renderer":
        return [sys.executable, "-I", "-m", "ui"]
    return [sys.executable, "-I", "-m", "desktop", f"--role={role}"]


def app_command() -> list[str]:
    """Command line that starts this program as the app."""
    return [sys.executable] if FROZEN else [sys.executable, "-I", "-m", "desktop"]
