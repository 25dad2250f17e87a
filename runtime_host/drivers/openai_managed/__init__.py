"""The harness `openai.agents.api`: agents that OpenAI runs itself, over its Agents API."""

from runtime_host.drivers.openai_managed.driver import OpenAIManagedDriver

__all__ = ["OpenAIManagedDriver"]
