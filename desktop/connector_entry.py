"""Adding a connector from the window: trusted dialog, key store, first look at the server's models.

Owns the order of those steps. Invariants: the key goes from the dialog to the key store and
nowhere else; a connector that could not be kept leaves no key behind; what went wrong is said
in the dialog, with what the person had typed (but the key) still there.
"""

import logging
from typing import TYPE_CHECKING

from pydantic import ValidationError

from runtime_host.connectors.base import Connector
from runtime_host.errors import AgentRuntimeError

if TYPE_CHECKING:
    from desktop.app import Host

log = logging.getLogger("remuda.connectors")


async def enter_connector(host: "Host") -> Connector | None:
    """Ask for a connector until one could be kept or the person gave up; the one that was kept."""
    dialogs = await host.trusted()
    prefill = None
    problem = ""
    while True:
        entry = await dialogs.ask_connector(
            prefill, problem or None, taken=tuple(connector.name for connector in host.connectors)
        )
        if entry is None:
            return None
        prefill = entry.without_key()
        secret = None
        kept = False
        try:
            connector = Connector(name=entry.name, vendor="openai-compatible", base_url=entry.address)
            host.connectors.check_name(connector.name)
            if entry.key:
                secret = await host.credentials.store(connector.name, entry.key, base_url=connector.base_url)
                connector = Connector(
                    name=connector.name, vendor=connector.vendor, base_url=connector.base_url, secret=secret
                )
            added = await host.operations.add_connector(connector)
            kept = True
            return added
        except ValidationError as fault:
            problem = str(fault.errors()[0]["msg"])
        except AgentRuntimeError as fault:
            problem = fault.message
        finally:
            # Also when who asked is gone: the window closed while the server was asked for its models.
            if secret is not None and not kept:
                await host.credentials.delete(secret)
