"""All that needs the SDK, in one place to load.

Owns nothing. Invariant: importing this imports the SDK; only `sdk` does, in a thread.
"""

from runtime_host.loop.plugins.mcp.answers import told
from runtime_host.loop.plugins.mcp.connection import Conversation, local, remote
from runtime_host.loop.plugins.mcp.http import ServerTransport, client
from runtime_host.loop.plugins.mcp.oauth import SignedIn, good_token, sign_in, sign_out

__all__ = [
    "Conversation",
    "ServerTransport",
    "SignedIn",
    "client",
    "good_token",
    "local",
    "remote",
    "sign_in",
    "sign_out",
    "told",
]
