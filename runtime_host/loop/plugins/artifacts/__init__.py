"""Mounts by which a model reads what was put aside. See `plugin`."""

from runtime_host.loop.plugins.artifacts.plugin import ArtifactsPlugin

__all__ = ["ArtifactsPlugin"]
