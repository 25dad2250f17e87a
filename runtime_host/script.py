"""The `remuda` command as this distribution installs it.

Owns one sentence: the library alone is not the app. Where the app lies beside the library (a source
tree installed editable) the command starts it. Must not import the app by name: the library knows
no desktop. Invariant: without the app, exit code 2 and no traceback.
"""

import importlib
import importlib.util
import sys

APP = "desktop"


def main() -> int:
    """Start the app where it is installed, else say where it is to be had; returns the exit code."""
    if not _app_is_here():
        print(
            "remuda: this is the Remuda library (`import runtime_host`), without the app.\n"
            "The app comes as an installer for your system, or from its source tree: make run",
            file=sys.stderr,
        )
        return 2
    return int(importlib.import_module(f"{APP}.__main__").main())


def _app_is_here() -> bool:
    # The name is a common word: only a package with our roles is ours.
    return importlib.util.find_spec(APP) is not None and importlib.util.find_spec(f"{APP}.roles") is not None
