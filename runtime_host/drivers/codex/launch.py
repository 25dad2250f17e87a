"""How the Codex CLI is started: its command line, its environment, and the profile of its sandbox. Pure.

Must not know sessions or any I/O. Invariants: nothing secret is in the command line, the token of the relay is in the
environment of the CLI alone; commands see the folder they work in, the system's own programs and nothing else; nothing
is turned on that asks, reports, updates or reads a project's settings unless that was allowed.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

PROFILE: Final = "remuda"
"""The name of our profile of permissions."""
PROVIDER: Final = "remuda"
TOKEN_VARIABLE: Final = "REMUDA_RELAY_TOKEN"  # noqa: S105 - the name of a variable
REQUEST_RETRIES: Final = 0
"""Of those the CLI tells nothing."""
RETRIES: Final = 3
"""How often a request that failed is sent again; each time is told."""
STREAM_IDLE_MS: Final = 600_000
_OWN_NAMES: Final = "tmp/arg0-linux"

_OFF: Final = (
    "plugins",
    "shell_snapshot",
    "multi_agent",
    "multi_agent_v2",
    "memories",
    "apps",
    "goals",
    "hooks",
    "remote_plugin",
    "plugin_sharing",
    "tool_suggest",
    "skill_search",
    "skill_mcp_dependency_install",
    "computer_use",
    "browser_use",
    "browser_use_external",
    "in_app_browser",
    "image_generation",
    "system_proxy_fallback",
    "api_key_model_discovery",
    "enable_request_compression",
    "unbounded_connection_retries",
    "workspace_dependencies",
)


class Places(NamedTuple):
    """Folders of a session, by their full paths.

    Attributes:
        codex_home: what the CLI keeps; no command can read it.
        scratch: where commands may leave things for each other, besides the workspace.
        tmp: for temporary files of the CLI itself; `codex_home` does not lie in it.
        user: the home folder that the CLI believes to have; it is empty.
    """

    codex_home: str
    scratch: str
    tmp: str
    user: str


class Order(NamedTuple):
    """What a session's CLI is to be.

    Attributes:
        binary: the CLI.
        readable: what its sandbox has to read to work: the program itself.
        extra_readable: folders and files with programs that are not on every computer.
        base_url: of the relay.
        closed: what commands may not read even where what holds it can be.
        workspace: by its real path.
        may_write: whether commands may write there.
        network: whether commands have the network.
        web_search: whether the provider may search.
        project: whether the workspace may say how the CLI works.
        retries: how often a request that failed is sent again.
    """

    binary: str
    readable: Sequence[str]
    extra_readable: Sequence[str]
    base_url: str
    places: Places
    workspace: str
    may_write: bool
    network: bool
    web_search: bool
    project: bool
    retries: int = RETRIES
    closed: Sequence[str] = ()


def command_line(order: Order) -> tuple[str, ...]:
    """The CLI as a server on its own streams. Nothing in it is secret."""
    line = [order.binary, "app-server", "--listen", "stdio://"]
    for name, value in overrides(order).items():
        line += ["-c", f"{name}={toml(value)}"]
    return tuple(line)


def overrides(order: Order) -> dict[str, object]:
    """The settings of the CLI, by their dotted names. They go before every file."""
    places = order.places
    access = "write" if order.may_write else "read"
    files: dict[str, object] = {
        ":minimal": "read",
        ":workspace_roots": access,
        # The CLI starts its own helpers by names that lie there.
        f"{places.codex_home}/{_OWN_NAMES}": "read",
        **{path: "read" for path in (*order.readable, *order.extra_readable)},
        **dict.fromkeys(order.closed, "none"),
    }
    if order.may_write:
        files[places.scratch] = "write"
    temporary = places.scratch if order.may_write else "/dev/shm"  # noqa: S108 - of the sandbox alone, in its memory
    said: dict[str, object] = {
        "model_provider": PROVIDER,
        f"model_providers.{PROVIDER}": {
            "name": "Remuda",
            "base_url": order.base_url,
            "env_key": TOKEN_VARIABLE,
            "wire_api": "responses",
            "request_max_retries": REQUEST_RETRIES,
            "stream_max_retries": order.retries,
            "stream_idle_timeout_ms": STREAM_IDLE_MS,
            "supports_websockets": False,
        },
        "default_permissions": PROFILE,
        f"permissions.{PROFILE}.filesystem": files,
        f"permissions.{PROFILE}.network": {"enabled": order.network},
        "approval_policy": "never",
        "approvals_reviewer": "user",
        "allow_login_shell": False,
        "shell_environment_policy.inherit": "core",
        "shell_environment_policy.ignore_default_excludes": False,
        "shell_environment_policy.set": {"HOME": temporary, "TMPDIR": temporary},
        "web_search": "live" if order.web_search else "disabled",
        "model_reasoning_summary": "auto",
        "check_for_update_on_startup": False,
        "analytics.enabled": False,
        "agents.enabled": False,
        "tools.update_plan": {"enabled": True},
        "tools.experimental_request_user_input": {"enabled": False},
        "history.persistence": "none",
        "skills.include_instructions": False,
        "skills.bundled.enabled": False,
        "projects": {order.workspace: {"trust_level": "trusted" if order.project else "untrusted"}},
        **{f"features.{name}": False for name in _OFF},
    }
    if not order.project:
        said["project_doc_max_bytes"] = 0
    return said


def environment(order: Order, token: str, path: str) -> dict[str, str]:
    """The environment of the CLI, over what every program has of the host."""
    places = order.places
    return {
        "PATH": path,
        "HOME": places.user,
        "CODEX_HOME": places.codex_home,
        "TMPDIR": places.tmp,
        TOKEN_VARIABLE: token,
    }


def sandbox_program(bubblewrap: str) -> str:
    """What stands for bubblewrap where the CLI looks for it: with it, nothing can be put beside what is let through.

    Left alone, a command could write there, into memory that is gone with it, and would believe it had kept something.
    """
    return f"""#!/bin/sh
seen=
for word do
    shift
    if [ -z "$seen" ] && [ "$word" = -- ]; then
        seen=1
        set -- "$@" --remount-ro /
    fi
    set -- "$@" "$word"
done
exec {shlex.quote(bubblewrap)} "$@"
"""


def toml(value: object) -> str:
    """A value as the CLI reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        # A JSON string is one of TOML, but for what TOML wants escaped besides, and for pairs that stand for one sign.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{toml(str(name))}={toml(inner)}" for name, inner in value.items()) + "}"
    raise TypeError(type(value).__name__)
