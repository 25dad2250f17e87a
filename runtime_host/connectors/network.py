"""The way out of this computer: which proxy, which certificates besides the system's.

Owns what the proxy variables mean and which address goes which way. Must not know connectors, HTTP or where
settings are kept; standard library only. Invariants: this computer itself is never reached by a proxy; what names
a proxy that cannot be used is a refusal, never a way around it; the login of a proxy is in no text made here but
the environment that children get.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import quote, unquote, urlsplit

from runtime_host.connectors.base_url import is_loopback
from runtime_host.errors import ConnectorError

Origin = Literal["system", "none", "set"]

LONGEST_PROXY_CHARS: Final = 1024
MOST_EXCEPTIONS: Final = 256
_HERE: Final = ("localhost", "127.0.0.1", "::1")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?")
PROXY_VARIABLES: Final = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """A proxy.

    Attributes:
        url: scheme, host and port; never a login.
        user, password: as they are, not percent-encoded; empty when it wants none.
    """

    url: str
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def has_login(self) -> bool:
        return bool(self.user or self.password)

    def url_with_login(self) -> str:
        """For a child's environment only."""
        if not self.has_login:
            return self.url
        scheme, _, place = self.url.partition("://")
        return f"{scheme}://{quote(self.user, safe='')}:{quote(self.password, safe='')}@{place}"


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Which way requests go, resolved.

    Attributes:
        proxy: for every https address that `no_proxy` does not except; None for none.
        no_proxy: hosts, domains, addresses and networks that are reached without it, as `NO_PROXY` writes them.
        origin: `system`, the environment says so; `none`, the person wants no proxy; `set`, the person named it.
        problem: why the proxy that is named cannot be used; then nothing that needs it is sent.
        ca_file: certificates that are trusted besides the system's; empty for none.
        children_ca_file: all certificates in one file, for programs that read one file only.
        variables: the proxy variables as the environment has them, for children.
    """

    proxy: ProxyServer | None = None
    no_proxy: tuple[str, ...] = ()
    origin: Origin = "system"
    problem: str = ""
    ca_file: str = ""
    children_ca_file: str = ""
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def proxy_for(self, url: str) -> ProxyServer | None:
        """The proxy that `url` is reached by; None for straight there.

        Raises:
            ConnectorError: code ``NETWORK_PROXY_REFUSED``: it would be needed and cannot be used.
        """
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        if is_loopback(host) or self._is_excepted(host, parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)):
            return None
        if self.problem:
            raise ConnectorError(self.problem, code="NETWORK_PROXY_REFUSED")
        return self.proxy

    def _is_excepted(self, host: str, port: int) -> bool:
        return any(_covers(exception, host, port) for exception in self.no_proxy)

    def child_environment(self) -> dict[str, str]:
        """What a child program has to be told to go the same way; to be laid over its environment.

        It may hold the proxy's login, so it belongs into no log.
        """
        told = dict(self.variables)
        if self.origin != "system":
            proxy = "" if self.proxy is None else self.proxy.url_with_login()
            for name in PROXY_VARIABLES:
                told |= {name: proxy, name.lower(): proxy}
        exceptions = ",".join(dict.fromkeys((*_HERE, *self.no_proxy)))
        told |= {"NO_PROXY": exceptions, "no_proxy": exceptions}
        if self.ca_file:
            told["NODE_EXTRA_CA_CERTS"] = self.ca_file
            if self.children_ca_file:
                # Most programs take this file for all there are, so it is never the further ones alone.
                told["SSL_CERT_FILE"] = self.children_ca_file
        elif extra := os.environ.get("NODE_EXTRA_CA_CERTS") or os.environ.get("SSL_CERT_FILE"):
            told["NODE_EXTRA_CA_CERTS"] = extra
        return told

    def with_certificates(self, ca_file: str, children_ca_file: str = "") -> "NetworkSettings":
        return replace(self, ca_file=ca_file, children_ca_file=children_ca_file)


DIRECT: Final = NetworkSettings(origin="none")
"""Straight to every address, with the system's certificates."""


def system_network(environment: Mapping[str, str] | None = None) -> NetworkSettings:
    """What the environment says: ``HTTPS_PROXY``, else ``ALL_PROXY``, and ``NO_PROXY``; small letters go first.

    ``HTTP_PROXY`` is read for nothing here: plain http goes to this computer only.
    """
    said = os.environ if environment is None else environment
    variables = tuple(
        (name, said[name]) for upper in PROXY_VARIABLES for name in (upper, upper.lower()) if name in said
    )
    found = NetworkSettings(no_proxy=_exceptions(_variable(said, "NO_PROXY")), variables=variables)
    for name in ("HTTPS_PROXY", "ALL_PROXY"):
        named = _variable(said, name)
        if named:
            try:
                return replace(found, proxy=parse_proxy(named))
            except ConnectorError as refused:
                return replace(found, problem=f"{refused.message} The variable {name} names it.")
    return found


def set_network(proxy: str, *, no_proxy: str = "") -> NetworkSettings:
    """A proxy that the person names.

    Raises:
        ConnectorError: code ``NETWORK_PROXY_REFUSED``.
    """
    return NetworkSettings(parse_proxy(proxy), _exceptions(no_proxy), "set")


def parse_proxy(url: str) -> ProxyServer:
    """A proxy's address, a login in it taken out. Without a scheme it is http.

    Raises:
        ConnectorError: code ``NETWORK_PROXY_REFUSED``, with a sentence that repeats nothing of it.
    """
    given = url.strip()
    if len(given) > LONGEST_PROXY_CHARS or not given.isascii() or not given.isprintable() or " " in given:
        raise _refused("The address of the proxy holds signs that do not belong there.")
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        port = parts.port
    except ValueError:
        raise _refused("The address of the proxy could not be read.") from None
    scheme, host = parts.scheme, parts.hostname or ""
    if scheme not in _DEFAULT_PORTS:
        raise _refused("This kind of proxy cannot be used.")
    if not (_HOST.fullmatch(host) or _is_address(host)) or port == 0 or parts.path not in ("", "/"):
        raise _refused("The address of the proxy could not be read.")
    shown = f"[{host}]" if ":" in host else host
    return ProxyServer(
        f"{scheme}://{shown}:{port or _DEFAULT_PORTS[scheme]}",
        unquote(parts.username or ""),
        unquote(parts.password or ""),
    )


def _refused(problem: str) -> ConnectorError:
    return ConnectorError(
        f"{problem} It should look like http://proxy.example.com:3128; https and socks5 go as well.",
        code="NETWORK_PROXY_REFUSED",
    )


def _variable(said: Mapping[str, str], name: str) -> str:
    small = said.get(name.lower())
    return (said.get(name, "") if small is None else small).strip()


def _exceptions(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.lower() for part in re.split(r"[,\s]+", text) if part))[:MOST_EXCEPTIONS]


def _covers(exception: str, host: str, port: int) -> bool:
    """Whether one entry of ``NO_PROXY`` means `host`: ``*``, a host and all below it, an address, a network."""
    if exception == "*":
        return True
    if _is_address(host):
        return _covers_address(exception, host, port)
    name, _, only_port = exception.partition(":")
    if only_port and only_port != str(port):
        return False
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host.rstrip(".") == name or host.rstrip(".").endswith(f".{name}"))


def _covers_address(exception: str, host: str, port: int) -> bool:
    network, only_port = exception, ""
    if exception.startswith("["):
        network, _, only_port = exception[1:].partition("]")
        only_port = only_port.removeprefix(":")
    elif exception.count(":") == 1:
        network, _, only_port = exception.partition(":")
    if only_port and only_port != str(port):
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


__all__ = [
    "DIRECT",
    "NetworkSettings",
    "ProxyServer",
    "parse_proxy",
    "set_network",
    "system_network",
]
