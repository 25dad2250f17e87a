"""What a folder says about how the Codex CLI is to work in it.

Owns the looking for such settings. Must not know sessions. Invariant: something of that name that is no file, or cannot
be looked at, counts as there.
"""

import os
from typing import Final

from runtime_host.errors import AgentDriverConfigurationError, AgentWorkspaceError

CONFIG: Final = os.path.join(".codex", "config.toml")


def check_project(workspace: str, *, allowed: bool, needs_repository: bool) -> None:
    """Refuse a folder that would say how the CLI works, or that is in no repository where one is demanded.

    Raises:
        AgentDriverConfigurationError: it does, and that was not allowed.
        AgentWorkspaceError: its name cannot be told to the CLI.
    """
    try:
        workspace.encode()
    except UnicodeEncodeError:
        raise AgentWorkspaceError("The name of the folder is no text, so the Codex CLI cannot be told of it.") from None
    folders = within_repository(workspace)
    if needs_repository and not os.path.lexists(os.path.join(folders[-1], ".git")):
        raise AgentDriverConfigurationError(
            "The folder is in no git repository, and driver_config.skip_git_repo_check is false.",
            details={"field": "driver_config.skip_git_repo_check"},
        )
    if allowed:
        return
    for folder in folders:
        if _is_there(os.path.join(folder, CONFIG)):
            raise AgentDriverConfigurationError(
                f"{CONFIG} in this folder would change what the Codex CLI may do, so nothing was started. Remove it, "
                "or allow it with the setting allow_project_config.",
                details={"field": "driver_config.allow_project_config", "path": os.path.join(folder, CONFIG)},
            )


def within_repository(workspace: str) -> list[str]:
    """The folder and those above it, up to the root of its repository; itself alone where there is none."""
    folders = [workspace]
    while not os.path.lexists(os.path.join(folders[-1], ".git")):
        above = os.path.dirname(folders[-1])
        if above == folders[-1]:
            return [workspace]
        folders.append(above)
    return folders


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
