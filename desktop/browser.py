"""The person's browser, led to one web page.

Owns the start of whatever opens addresses on this system. Must not know what is opened, or why. Invariants: nothing but
a web address is handed on, as one argument and through no shell; what opens it is looked for in the system's places;
it is nobody's child for long, because a browser outlives this program.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from typing import Final
from urllib.parse import urlsplit

from desktop.process import wait_for_exit
from runtime_host.errors import AgentRuntimeError
from runtime_host.programs import search_path

_OPENS: Final = {"linux": "xdg-open", "darwin": "open"}
_SOON_S: Final = 5.0
_LONGEST_CHARS: Final = 8_192
_going: list[subprocess.Popen[bytes]] = []
"""What still runs: on some systems it becomes the browser itself."""


class BrowserError(AgentRuntimeError):
    """The browser could not be opened."""

    code = "BROWSER_NOT_OPENED"
    status = 503


async def open_address(address: str) -> None:
    """Show a web page to the person, in their own browser.

    Raises:
        BrowserError: it is no web address, or nothing here opens one.
    """
    if not _is_web(address):
        raise BrowserError("That is no address of a web page. It was not opened.")
    name = _OPENS.get(sys.platform, "")
    program = shutil.which(name, path=search_path(os.environ.get("PATH", ""))) if name else None
    if program is None:
        raise BrowserError(
            f"There is nothing here that opens a browser{f' ({name})' if name else ''}. Copy the address into it."
        )
    _going[:] = [process for process in _going if process.poll() is None]
    try:
        process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once, and asyncio's would end with the loop
            [program, address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError as fault:
        raise BrowserError(f"The browser could not be opened: {fault.strerror}.") from fault
    try:
        async with asyncio.timeout(_SOON_S):
            await wait_for_exit(process)
    except TimeoutError:
        _going.append(process)
        return
    if process.poll():
        raise BrowserError("The browser could not be opened: the system has none, or it did not start.")


def _is_web(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    plain = address.isascii() and address.isprintable() and not set(address) & set(" \\\"'<>")
    return plain and len(address) <= _LONGEST_CHARS and parts.scheme in ("http", "https") and bool(parts.hostname)
