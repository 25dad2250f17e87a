"""The plugins that agents can mount, as this host has them.

Owns which there are and their order, which is that of the tools a model is offered. Must not know mounts, agents or
who uses them. Invariant: nothing here starts, connects or loads anything before a call.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from desktop.paths import ProfilePaths, private_dir
from desktop.roles import self_command
from runtime_host.connectors.network import NetworkSettings
from runtime_host.connectors.public_hosts import PublicHosts
from runtime_host.loop.plugins.artifacts.plugin import ArtifactsPlugin
from runtime_host.loop.plugins.base import Mount, Plugin
from runtime_host.loop.plugins.http.plugin import HttpPlugin
from runtime_host.loop.plugins.mcp.plugin import McpPlugin
from runtime_host.loop.plugins.workspace.plugin import WorkspacePlugin
from runtime_host.programs import Programs, Toolchains


def plugins(
    paths: ProfilePaths,
    programs: Programs,
    network: Callable[[], Awaitable[NetworkSettings]],
    toolchains: Callable[[], Toolchains],
) -> tuple[Plugin, ...]:
    """All of them, each once."""
    hosts = PublicHosts(network)
    return (
        WorkspacePlugin(programs, toolchains=toolchains, search=tuple(self_command("search"))),
        ArtifactsPlugin(),
        HttpPlugin(hosts),
        McpPlugin(programs, hosts, lambda mount: str(_home(paths, mount))),
    )


def _home(paths: ProfilePaths, mount: Mount) -> Path:
    """The private folder of a mount's program, below its agent's own; it goes with the agent."""
    homes = paths.agent(mount.agent_id) / "mount-homes"
    private_dir(homes)
    home = homes / mount.installation_id
    private_dir(home)
    return home
