"""Mounts that fetch from and send to web addresses. See `plugin`."""

from runtime_host.loop.plugins.http.plugin import HttpPlugin

__all__ = ["HttpPlugin"]
