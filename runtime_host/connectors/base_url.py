"""Which addresses a key may be sent to.

Owns the rules for base URLs. Must not know connectors or HTTP; standard library only, because the
dialog that asks for an address uses the same rules. Invariant: an accepted address is https, or plain
http to this machine, and says nothing besides scheme, host, port and path.
"""

import ipaddress
import re
from typing import NoReturn
from urllib.parse import SplitResult, urlsplit

from runtime_host.errors import ConnectorError

LONGEST_URL_CHARS = 2048
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/%-]*")
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")


def checked_base_url(url: str) -> str:
    """`url` in its one normal form: lower case host, no default port, no slash at the end.

    Raises:
        ConnectorError: code ``CONNECTOR_URL_REFUSED``, with a sentence on what to change.
    """
    if not url or len(url) > LONGEST_URL_CHARS:
        _refuse("The address is empty or too long. It should look like https://api.example.com/v1.")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        # urlsplit drops tabs and newlines silently, and a look-alike letter would send the key elsewhere.
        _refuse("The address holds a space, a backslash or a letter outside plain ASCII. Please type it again.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        _refuse("The address could not be read. It should look like https://api.example.com/v1.")
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        _refuse("The address must begin with https:// (or http:// for a server on this machine).")
    if "@" in parts.netloc:
        _refuse("The address must not hold a user name or password. The key has its own field.")
    if "?" in url or "#" in url:
        _refuse("The address must end before any ? or #.")
    if not _PLAIN_PATH.fullmatch(parts.path) or {".", ".."} & set(_decoded_segments(parts.path)):
        _refuse("The path of the address holds signs that do not belong there.")
    host = _host(parts)
    if parts.scheme == "http" and not is_loopback(host):
        _refuse("Plain http is for servers on this machine only, because it would show the key on the way. Use https.")
    shown = f"[{host}]" if ":" in host else host
    if port is not None and port != _DEFAULT_PORTS[parts.scheme]:
        if port == 0:
            _refuse("The port of the address must be between 1 and 65535.")
        shown += f":{port}"
    return f"{parts.scheme}://{shown}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine by its very form: no look-up, so no answer can change it."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").lower()
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    # What looks like a number is read by resolvers as an address in another notation.
    last = host.rsplit(".", 1)[-1]
    if not _HOST_NAME.fullmatch(host) or last.isdigit() or last.startswith("0x"):
        _refuse("The host of the address could not be read. It should look like https://api.example.com/v1.")
    return host


def _decoded_segments(path: str) -> list[str]:
    return re.sub("%2e", ".", path.replace("%2F", "/").replace("%2f", "/"), flags=re.IGNORECASE).split("/")


def _refuse(sentence: str) -> NoReturn:
    raise ConnectorError(sentence, code="CONNECTOR_URL_REFUSED")
