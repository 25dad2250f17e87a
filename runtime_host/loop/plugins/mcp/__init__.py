"""MCP servers as mounts: `McpPlugin`. What speaks the protocol is loaded when a server is first used."""

from runtime_host.loop.plugins.mcp.plugin import McpPlugin

__all__ = ["McpPlugin"]
