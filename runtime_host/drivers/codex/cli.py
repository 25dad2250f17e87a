"""Where the Codex CLI is.

Owns the finding of the program and of what belongs to it. Must not know sessions, and starts nothing. Invariant: what
is named is a file that can be executed, by its real path.
"""

import importlib.util
import os
from collections.abc import Callable
from typing import NamedTuple

from runtime_host.drivers.codex.profile import HOW_TO_GET_IT
from runtime_host.errors import AgentRuntimeDependencyError


class Cli(NamedTuple):
    """The program.

    Attributes:
        binary: by its real path.
        readable: what its sandbox has to read of it.
        path_entries: folders with programs that it brings along.
    """

    binary: str
    readable: tuple[str, ...]
    path_entries: tuple[str, ...]


def find(named: Callable[[], str] | None) -> Cli:
    """The program that `named` names, else the one that came with this one.

    Raises:
        AgentRuntimeDependencyError: there is none; the sentence says how to get it.
    """
    path = named() if named is not None else _bundled()
    if not path:
        raise AgentRuntimeDependencyError(f"The Codex CLI is not installed. {HOW_TO_GET_IT}")
    binary = os.path.realpath(path)
    if not os.path.isfile(binary) or not os.access(binary, os.X_OK):
        raise AgentRuntimeDependencyError(f"The Codex CLI is not there any more. {HOW_TO_GET_IT}")
    package = os.path.dirname(os.path.dirname(binary))
    if os.path.isfile(os.path.join(package, "codex-package.json")):
        tools = os.path.join(package, "codex-path")
        return Cli(binary, (package,), (tools,) if os.path.isdir(tools) else ())
    return Cli(binary, (binary,), ())


def _bundled() -> str:
    """The program of the package that the SDK depends on, found without importing it."""
    try:
        spec = importlib.util.find_spec("codex_cli_bin")
    except (ImportError, ValueError):
        return ""
    if spec is None or not spec.submodule_search_locations:
        return ""
    name = "codex.exe" if os.name == "nt" else "codex"
    return os.path.join(next(iter(spec.submodule_search_locations)), "bin", name)
