"""Which paths the CLI's own tools may be given. The wall around the CLI holds besides.

Must not know the SDK. Invariant: what is not certain to lie in the folder is refused; a tool that is not known is
refused.
"""

import os
from collections.abc import Mapping
from typing import Any, Final

from runtime_host.drivers.claude_sdk.ports import Gate

_PATHS: Final[dict[str, tuple[str, ...]]] = {
    "Read": ("file_path",),
    "Edit": ("file_path",),
    "Write": ("file_path",),
    "Glob": ("path", "pattern"),
    "Grep": ("path", "glob"),
    "Bash": (),
}


def gate_of(root: str | None, tools: tuple[str, ...]) -> Gate:
    """The gate of a session in the folder `root`, which has these tools of the CLI's own."""

    def why_not(tool: str, arguments: Mapping[str, Any]) -> str:
        if root is None or tool not in tools:
            return "This tool is not switched on here. Nothing was done."
        if tool == "Bash":
            return "Commands in the background are not run here." if arguments.get("run_in_background") else ""
        for name in _PATHS.get(tool, ()):
            value = arguments.get(name)
            if value is not None and not _lies_in(root, value):
                return "This path leads out of the folder of this session. Nothing was done."
        return ""

    return why_not


def _lies_in(root: str, value: Any) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    if value.startswith("~"):
        return False
    # Of a pattern only its beginning is a path; steps upwards could stand anywhere in it.
    if ".." in value.replace("\\", "/").split("/"):
        return False
    real = os.path.realpath(os.path.join(root, value))
    return real == root or os.path.commonpath((real, root)) == root


__all__ = ["gate_of"]
