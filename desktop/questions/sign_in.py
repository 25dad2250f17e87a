"""A sign-in at another side: the whole address in the trusted dialog, then the person's own browser.

Owns what is shown. Must not know what the sign-in gives, or where that is kept. Invariant: no address is opened that
the person has not seen whole and agreed to.
"""

import hashlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from desktop.browser import BrowserError, open_address
from desktop.dialogs import Approval
from runtime_host.loop.plugins.base import PluginError

if TYPE_CHECKING:
    from desktop.app import Host


async def show(host: "Host", alias: str, address: str) -> bool:
    """Show where a person is to sign in, and open it when they agree; whether they did.

    Raises:
        PluginError: the browser could not be opened.
    """
    to = urlsplit(address).netloc
    asked = Approval(
        operation_id=f"sign-in:{alias}:{hashlib.sha256(address.encode()).hexdigest()}",
        heading="Sign in with your browser?",
        yes="Open the browser",
        no="Do not sign in",
        tool="",
        mount=alias,
        effect=f"Your browser opens a page of {to}. What you allow there, {alias} may do for you from then on.",
        why="The server named this address. Open it only if you know whose it is.",
        parts=(("Page of", "text", to), ("Whole address", "text", address)),
        exact=False,
    )
    answer = await (await host.trusted()).ask_approval(asked)
    if answer is None or not answer.approve:
        return False
    try:
        await open_address(address)
    except BrowserError as fault:
        raise PluginError(fault.message, code="sign_in_refused") from None
    return True
