"""Driver `anthropic.managed.api`: Claude Managed Agents over the provider's own API.

Must not know storage, journal, other drivers or any desktop.
"""
