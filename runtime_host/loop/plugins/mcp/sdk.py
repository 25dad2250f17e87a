"""The official SDK, loaded when a server is first used.

Owns the loading, away from the event loop and once. Must not know what the SDK does. Invariants: importing this module
imports nothing of it; what the SDK would log, which holds what servers say, goes nowhere.
"""

import asyncio
import importlib
import logging
import sys
from types import ModuleType
from typing import Final

from runtime_host.loop.own_thread import in_own_thread
from runtime_host.loop.plugins.base import PluginError

_CODE: Final = "runtime_host.loop.plugins.mcp.protocol"
_LOGGERS: Final = ("mcp", "client")
"""Under which names the SDK logs; the second is that of its session."""


async def protocol() -> ModuleType:
    """The module `protocol`, with the SDK behind it.

    Raises:
        PluginError: code ``mcp_missing``: it is not installed.
    """
    found = sys.modules.get(_CODE)
    if found is not None and not getattr(found.__spec__, "_initializing", False):
        return found
    try:
        return await asyncio.shield(in_own_thread(_load, "load mcp"))
    except ImportError as fault:
        raise PluginError(
            f"What speaks to MCP servers is not installed in full ({fault.name or 'a part of it'}). "
            "Install Remuda with its part “mcp”.",
            code="mcp_missing",
        ) from fault


def _load() -> ModuleType:
    loaded = importlib.import_module(_CODE)
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return loaded
