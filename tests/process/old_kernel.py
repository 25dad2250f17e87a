"""The wall, and the trial of it, as they are on an older kernel.

Owns the lie about the version of Landlock. What is then asked of this kernel is what would be asked of the older one,
and it holds no more than that one would. For tests only: the program itself goes by what the kernel says.
"""

import shutil
import subprocess
import sys

WITHOUT_NAMESPACES = ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--"]
"""A system that gives no program mounts of its own, as many that restrict user namespaces do."""

_CODE = """
import sys
from desktop.isolation import wall_trial, walls
from ui import lockdown

version, role, *rest = sys.argv[1:]
assert lockdown.landlock_abi() >= int(version)
lockdown.landlock_abi = lambda: int(version)
real = wall_trial.self_command
again = [sys.executable, "-I", "-c", sys.orig_argv[3], version]
wall_trial.self_command = lambda name: [*again, name] if name == "wall" else real(name)
sys.exit({"wall": walls.main, "wall-trial": wall_trial.main}[role](rest))
"""


def on_old_kernel(version: int, role: str, python: str = sys.executable) -> list[str]:
    """The command line of a role (`wall`, `wall-trial`) that goes by this version of Landlock."""
    return [python, "-I", "-c", _CODE, str(version), role]


def gives_no_namespaces() -> bool:
    """Whether such a system can be had here."""
    if shutil.which(WITHOUT_NAMESPACES[0]) is None:
        return False
    return subprocess.run([*WITHOUT_NAMESPACES, "true"], capture_output=True, timeout=60, check=False).returncode == 0
