"""What a second start does: ask the running host to raise its window. Standard library only."""

import json
import os
import socket
import sys
import time
from pathlib import Path

from desktop.process import peer_of

PATIENCE_S = 5.0
"""How long a host that holds the lock may take until its control socket answers."""


def raise_window(control: Path, activation_token: str) -> int:
    """Exit code 0 when the running host took the request, 6 when it does not answer."""
    deadline = time.monotonic() + PATIENCE_S
    order = json.dumps({"command": "raise", "arguments": {"token": activation_token[:512]}}).encode() + b"\n"
    while time.monotonic() < deadline:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(max(0.1, deadline - time.monotonic()))
                connection.connect(str(control))
                listening = peer_of(connection)
                if listening is not None and listening[1] != os.getuid():
                    break  # another user's socket where ours should be: nothing is said to it
                connection.sendall(order)
                if connection.makefile("rb").readline():
                    return 0
        except OSError:
            pass
        time.sleep(0.05)
    print("remuda: Remuda is running, but it does not answer. Its window could not be raised.", file=sys.stderr)
    return 6
