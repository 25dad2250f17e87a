"""Named credentials and the rules of transport to the servers behind them."""

from runtime_host.connectors.base import (
    BUILTIN_CONNECTOR,
    DEFAULT_BASE_URLS,
    Access,
    BuiltinSource,
    Connector,
    ConnectorRegistry,
    ConnectorTest,
    Endpoint,
    SecretRef,
)
from runtime_host.connectors.base_url import checked_base_url

__all__ = [
    "BUILTIN_CONNECTOR",
    "DEFAULT_BASE_URLS",
    "Access",
    "BuiltinSource",
    "Connector",
    "ConnectorRegistry",
    "ConnectorTest",
    "Endpoint",
    "SecretRef",
    "checked_base_url",
]
