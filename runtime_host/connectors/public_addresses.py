"""Which web addresses a tool may be led to: how an address is read, and which machines are public.

Owns the reading of URLs that a model or a server wrote, and the list of networks that are not public. Must not know
sockets, look-ups or HTTP. Invariants: an address is read once, here, and is its parts from then on, so that no second
reader can see another host in it; what can be read in two ways is refused; a machine that is not known to be public is
not.
"""

import ipaddress
import re
import socket
from typing import Final, NamedTuple, NoReturn
from urllib.parse import quote

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

LONGEST_URL_CHARS: Final = 8192
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
NOTHING_SENT: Final = "Nothing was sent there."
_SHAPE: Final = re.compile(r"(?i:(https?)://)([^/?#]*)([^#]*)(?:#.*)?", re.ASCII)
_PLACE: Final = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::([0-9]{0,5}))?", re.ASCII)
_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})+", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_TARGET_SIGNS: Final = "!$%&'()*+,-./:;=?@[]_~"

PRIVATE_ENDINGS: Final = (
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "ip6.arpa",
    "in-addr.arpa",
    "onion",
    "invalid",
)
"""Names that mean nothing in the public net, or something within a house: with all below them."""

_V4: Final = tuple(
    (ipaddress.IPv4Network(network), words)
    for network, words in (
        ("0.0.0.0/8", "this computer"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "the network of a provider"),
        ("127.0.0.0/8", "this computer"),
        ("168.63.129.16/32", "a service of the machine's own cloud"),
        ("169.254.0.0/16", "the link itself, where routers and clouds answer"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "a reserved network"),
        ("192.0.2.0/24", "a network for examples"),
        ("192.88.99.0/24", "a reserved network"),
        ("192.168.0.0/16", "a private network"),
        ("198.18.0.0/15", "a network for measurements"),
        ("198.51.100.0/24", "a network for examples"),
        ("203.0.113.0/24", "a network for examples"),
        ("224.0.0.0/4", "many machines at once"),
        ("240.0.0.0/4", "a reserved network"),
    )
)
_V6: Final = tuple(
    (ipaddress.IPv6Network(network), words)
    for network, words in (
        ("::/128", "this computer"),
        ("::1/128", "this computer"),
        ("64:ff9b:1::/48", "a private network"),
        ("fc00::/7", "a private network"),
        ("fe80::/10", "the link itself, where routers and clouds answer"),
        ("fec0::/10", "a private network"),
        ("ff00::/8", "many machines at once"),
        ("2001::/23", "a reserved network"),
        ("2001:db8::/32", "a network for examples"),
        ("3fff::/20", "a network for examples"),
    )
)
_PUBLIC_V6: Final = ipaddress.IPv6Network("2000::/3")
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4: Final = ipaddress.IPv6Network("2002::/16")
_ISATAP: Final = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")


class HostRefusedError(Exception):
    """An address that a tool may not be led to. The text is a sentence for model and person; nothing was sent there."""


class WebAddress(NamedTuple):
    """An address, read.

    Attributes:
        host: a name in ASCII without a dot at its end, or an address without brackets.
        target: path and query, escaped.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def netloc(self) -> str:
        """As it stands in a Host header."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == DEFAULT_PORTS[self.scheme] else f"{shown}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.target}"


def read_address(url: str) -> WebAddress:
    """Read an absolute http or https address. Its host is in its one form, and not looked up.

    Raises:
        HostRefusedError: it is none, says more than it should, or can be read in two ways.
    """
    if not url or len(url) > LONGEST_URL_CHARS:
        _refuse("The address is empty or too long.")
    if not url.isprintable() or " " in url or "\\" in url:
        _refuse("The address holds a space, a backslash or a sign that cannot be seen. Write it escaped, as %20 is.")
    shape = _SHAPE.fullmatch(url)
    if shape is None:
        _refuse("Only addresses that begin with http:// or https:// can be reached.")
    scheme, place, target = shape[1].lower(), shape[2], shape[3]
    if "@" in place:
        _refuse("The address holds a user name or password before its host. Leave that out.")
    if "%" in place:
        _refuse("The host of the address holds a per cent sign: a zone, or something escaped. Write it plainly.")
    parts = _PLACE.fullmatch(place)
    if parts is None:
        _refuse("The host of the address could not be read.")
    port = int(parts[3]) if parts[3] else DEFAULT_PORTS[scheme]
    if not 0 < port < 65536:
        _refuse("The port of the address must be between 1 and 65535.")
    host = _v6(parts[1]) if parts[1] is not None else read_host(parts[2])
    path = target if target.startswith("/") else f"/{target}"
    return WebAddress(scheme, host, port, quote(path, safe=_TARGET_SIGNS))


def read_host(host: str) -> str:
    """A host in its one form: a name in lower-case ASCII without a dot at its end, or an address.

    Raises:
        HostRefusedError: it is none, or a number in a notation that others read in another way.
    """
    if ":" in host:
        return _v6(host.removeprefix("[").removesuffix("]"))
    plain = _ascii(host)
    if _NUMBER.fullmatch(plain.rsplit(".", 1)[-1]):
        return _v4(plain)
    if plain != "localhost" and not _NAME.fullmatch(plain):
        _refuse(f"{host} is no name of a public host.")
    return plain


def refuse_private_name(host: str) -> None:
    """A name that is this computer's or a house's by its very form.

    Raises:
        HostRefusedError: it is one.
    """
    if any(host == ending or host.endswith(f".{ending}") for ending in PRIVATE_ENDINGS):
        _refuse(f"{host} is a name within this computer or its network, and no public host.")


def literal(host: str) -> IPAddress | None:
    """The address that `host`, in its one form, is; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def refuse_not_public(address: IPAddress, host: str) -> None:
    """Let pass what is known to be public.

    Raises:
        HostRefusedError: it is not.
    """
    if words := why_not_public(address):
        named = f"{address} is" if host == str(address) else f"{host} leads to {address}, which is"
        _refuse(f"{named} {words}, and no public host.")


def why_not_public(address: IPAddress) -> str:
    """What an address is instead of a public machine; "" when it is one."""
    if isinstance(address, ipaddress.IPv4Address):
        return next((words for network, words in _V4 if address in network), "")
    if address.scope_id is not None:
        return "an address within one link"
    words = next((words for network, words in _V6 if address in network), "")
    if words:
        return words
    hidden = embedded(address)
    if hidden is not None:
        words = why_not_public(hidden)
        return f"{hidden} in another form: {words}" if words else _form_of(address)
    return "" if address in _PUBLIC_V6 else "a reserved network"


def embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address to which a translator, a tunnel or this computer itself would turn an IPv6 address."""
    packed = address.packed
    if address in _MAPPED or address in _COMPATIBLE or address in _NAT64 or packed[8:12] in _ISATAP:
        return ipaddress.IPv4Address(packed[12:])
    return ipaddress.IPv4Address(packed[2:6]) if address in _6TO4 else None


def _form_of(address: ipaddress.IPv6Address) -> str:
    # Behind NAT64 every IPv4 host looks like this. The other forms are never a public host's own.
    return "" if address in _NAT64 or address in _6TO4 or address in _PUBLIC_V6 else "an IPv4 address in disguise"


def _ascii(host: str) -> str:
    if host.isascii() and "xn--" not in host.lower():
        return host.lower().removesuffix(".")
    # Its tables are large, and most names need none of them.
    import idna

    try:
        # A sign that looks like another, a full stop of another script: what it comes to is what is checked.
        plain = idna.encode(host, uts46=True, std3_rules=True).decode("ascii")
    except idna.IDNAError:
        _refuse(f"{host} is no name of a host.")
    return plain.removesuffix(".")


def _v4(plain: str) -> str:
    try:
        return str(ipaddress.IPv4Address(plain))
    except ValueError:
        pass
    try:
        # What the system's own functions make of hexadecimal, octal, long and short forms.
        meant = socket.inet_ntoa(socket.inet_aton(plain))
    except OSError:
        _refuse(f"{plain} is no address and no name.")
    _refuse(f"{plain} is another notation of {meant}. Write an address as four numbers, or use the host's name.")


def _v6(inner: str) -> str:
    try:
        return str(ipaddress.IPv6Address(inner))
    except ValueError:
        _refuse("The host of the address could not be read.")


def _refuse(sentence: str) -> NoReturn:
    raise HostRefusedError(f"{sentence} {NOTHING_SENT}")
