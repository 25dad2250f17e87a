"""What the application's tools are called where the CLI and the model see them.

Pure. Must not know what a tool does. Invariant: two tools never have one name, and a name goes both ways.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

SERVER: Final = "host"
"""The one server of tools that the CLI is given; it lies in this process."""
STRUCTURED: Final = "StructuredOutput"
"""The tool by which the CLI has a model give an answer that fits a schema."""
_FITS: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")


def wire_names(tools: Sequence[str]) -> dict[str, str]:
    """By application tool, its name within the server: as it is where the model's makers allow it."""
    return {tool: tool if _FITS.fullmatch(tool) else _bent(tool) for tool in tools}


def native_names(tools: Sequence[str]) -> dict[str, str]:
    """By application tool, the name that the model calls."""
    return {tool: f"mcp__{SERVER}__{name}" for tool, name in wire_names(tools).items()}


def _bent(tool: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool)[:36]
    return f"{plain}_{hashlib.sha256(tool.encode()).hexdigest()[:10]}"
