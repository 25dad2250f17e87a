"""The way out of this computer for a profile: which proxy, which certificates besides the system's.

Owns the setting `network` and what it comes to at the moment it is needed. Must not know who asks servers.
Invariants: the login of a proxy is in the key store and nowhere else; a setting that cannot be used is refused
before it is kept, and one that cannot be used any more is a refusal, not a way around it.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from desktop.credentials import Credentials
from desktop.paths import write_private
from desktop.secret import Secret
from desktop.settings import Settings
from runtime_host.connectors.base import SecretRef
from runtime_host.connectors.network import (
    DIRECT,
    NetworkSettings,
    ProxyServer,
    parse_proxy,
    set_network,
    system_network,
)
from runtime_host.errors import ConnectorError
from runtime_host.loop.own_thread import in_own_thread

LOGIN_ENTRY: Final = "network:proxy"
"""Name of the login in the key store. No connector has a colon in its name."""
CHILDREN_FILE: Final = "certificates.pem"
SYSTEM: Final = "system"
NONE: Final = "none"


class NetworkView(NamedTuple):
    """The way out in words."""

    proxy: str
    certificates: str


class Network:
    """The way out of one profile.

    Args:
        settings: of the profile.
        credentials: where the proxy's login is kept.
        folder: of this start; a file that children are told of is made in it.
    """

    def __init__(self, settings: Settings, credentials: Credentials, folder: Path) -> None:
        self._settings = settings
        self._credentials = credentials
        self._folder = folder
        self._children_file_of = ""
        self._has_children_file = False

    @property
    def proxy(self) -> str:
        """`system`, `none` or an address without login."""
        return str(self._record.get("proxy") or SYSTEM)

    @property
    def ca_file(self) -> str:
        return str(self._record.get("ca_file") or "")

    @property
    def _record(self) -> Mapping[str, Any]:
        return self._settings.network

    @property
    def login(self) -> SecretRef | None:
        """Where the proxy's login is kept; None when it has none."""
        secret = self._record.get("secret")
        return SecretRef.model_validate(secret) if isinstance(secret, dict) else None

    async def now(self) -> NetworkSettings:
        """What holds at this moment. The key store is asked for a login where one is kept.

        Raises:
            ConnectorError: as `Credentials.resolve`.
        """
        settings = self.without_login()
        login = self.login
        if login is not None and settings.proxy is not None:
            settings = replace(settings, proxy=await self._with_login(settings.proxy.url, login))
        if not self.ca_file:
            return settings
        return settings.with_certificates(self.ca_file, await self._children_file())

    async def _with_login(self, url: str, login: SecretRef) -> ProxyServer:
        try:
            user, _, password = (await self._credentials.resolve(login)).partition(":")
        except ConnectorError as fault:
            if fault.error_code != "CONNECTOR_KEY_MISSING":
                raise
            raise ConnectorError(
                f"The login of the proxy {url} is not in the key store any more. Nothing was sent. Set it again: "
                f"remuda network --proxy {url} --proxy-login-stdin",
                code="NETWORK_PROXY_LOGIN_MISSING",
            ) from None
        return ProxyServer(url, user, password)

    def without_login(self) -> NetworkSettings:
        if self.proxy == SYSTEM:
            return system_network()
        return DIRECT if self.proxy == NONE else set_network(self.proxy, no_proxy=",".join(system_network().no_proxy))

    def view(self) -> NetworkView:
        """The way out in words; asks nobody, shows no login, and of a file the name alone."""
        try:
            proxy = self._proxy_in_words()
        except ConnectorError as refused:
            proxy = refused.message
        certificates = "the system's"
        extra = [file for file in (self.ca_file, os.environ.get("SSL_CERT_FILE", "")) if file]
        if extra:
            certificates += f", and those in {' and '.join(map(os.path.basename, extra))}"
        return NetworkView(proxy, certificates)

    def _proxy_in_words(self) -> str:
        settings = self.without_login()
        if settings.problem:
            return settings.problem
        if settings.proxy is None:
            return "none" if self.proxy == NONE else "none: no variable of the system names one"
        login = ", with a login" if settings.proxy.has_login or self.login is not None else ""
        origin = ", as the system's variables say" if self.proxy == SYSTEM else ""
        exceptions = f"; straight to {', '.join(settings.no_proxy)}" if settings.no_proxy else ""
        return f"{settings.proxy.url}{login}{origin}{exceptions}"

    async def set(
        self, proxy: str | None = None, ca_file: str | None = None, *, kept_login: SecretRef | None = None
    ) -> None:
        """Change the way out. What is None stays as it is.

        Args:
            proxy: `system`, `none` or an address; a login in it goes to the key store.
            ca_file: certificates to trust as well; empty for none.
            kept_login: where the login of `proxy` is already.

        Raises:
            ConnectorError: it cannot be used, or the login could not be kept; nothing was changed.
        """
        record = dict(self._record)
        login: ProxyServer | None = None
        if ca_file is not None:
            record["ca_file"] = await checked_ca_file(ca_file)
        if proxy is not None:
            parsed = None if proxy in (SYSTEM, NONE) else parse_proxy(proxy)
            login = parsed if parsed is not None and parsed.has_login else None
            changed = proxy if parsed is None else parsed.url
            if changed != record.get("proxy") or login is not None or kept_login is not None:
                record |= {"proxy": changed, "secret": None}
        old = self.login
        if kept_login is not None:
            record["secret"] = _checked_login(kept_login, record["proxy"])
        before: tuple[SecretRef, Secret | None] | None = None
        if login is not None:
            secret = Secret(f"{login.user}:{login.password}")
            before = await self._credentials.exchange(LOGIN_ENTRY, secret, base_url=login.url)
            record["secret"] = before[0].model_dump(mode="json")
        try:
            await self._settings.set_network(record)
        except BaseException:
            if before is not None:
                await self._credentials.put_back(*before)
            raise
        self._forget_certificates()
        if old is not None and record.get("secret") is None:
            await self._credentials.delete(old)

    def _forget_certificates(self) -> None:
        self._children_file_of = ""
        # Nothing is kept where no request was made yet; the HTTP stack is not loaded for this.
        transport = sys.modules.get("runtime_host.connectors.transport")
        if transport is not None:
            transport.system_tls_context.cache_clear()

    async def _children_file(self) -> str:
        """A file with all certificates, for programs that take one file for all; made once a start.

        Empty where the system keeps its own in no file.
        """
        file = self._folder / CHILDREN_FILE
        if self._children_file_of != self.ca_file:
            own = self.ca_file
            self._has_children_file = await in_own_thread(lambda: _write_all(file, own), "write certificates")
            self._children_file_of = own
        return str(file) if self._has_children_file else ""


def parsed_place(proxy: str) -> str:
    """A proxy as the setting keeps it, from an address in which no login may be.

    Raises:
        ConnectorError: it cannot be used, or holds a login.
    """
    if proxy in (SYSTEM, NONE):
        return proxy
    if proxy.strip().isalpha():
        # A word such as "off" would be taken for the name of a server.
        raise ConnectorError(
            f"{proxy.strip()[:40]} is no address of a proxy. It is {SYSTEM}, {NONE}, or an address such as "
            "http://proxy.example.com:3128",
            code="NETWORK_PROXY_REFUSED",
        )
    server = parse_proxy(proxy)
    if server.has_login:
        raise ConnectorError(
            "An address with a login in it would be seen by every program here. Give the address alone, and the login "
            "by standard input: --proxy-login-stdin",
            code="NETWORK_LOGIN_SHOWN",
        )
    return server.url


async def checked_ca_file(ca_file: str) -> str:
    """The absolute path of a file of certificates.

    Raises:
        ConnectorError: it cannot be read, or holds none.
    """
    if not ca_file:
        return ""

    def check() -> str:
        from runtime_host.connectors.transport import check_certificates

        path = os.path.abspath(os.path.expanduser(ca_file))
        check_certificates(path)
        return path

    return await in_own_thread(check, "read certificates")


def _checked_login(login: SecretRef, proxy: str) -> dict[str, Any]:
    if login.kind != "keyring" or login.name != LOGIN_ENTRY or login.base_url != proxy or proxy in (SYSTEM, NONE):
        # Else the key of a connector could be sent to a proxy.
        raise ConnectorError("This login was not given for this proxy.", code="CONNECTOR_KEY_BOUND")
    return login.model_dump(mode="json")


def _write_all(file: Path, ca_file: str) -> bool:
    """Put the system's certificates and further ones into one file; False where the system's are in none."""
    from runtime_host.connectors.transport import system_certificates_file

    system = system_certificates_file()
    if not system:
        return False
    parts = []
    for source in (system, os.environ.get("SSL_CERT_FILE", ""), ca_file):
        try:
            is_file = bool(source) and Path(source).is_file()
            parts.append(Path(source).read_text(encoding="utf-8", errors="replace") if is_file else "")
        except OSError:
            # It is told where it is needed; the rest holds.
            continue
    write_private(file, "\n".join(parts))
    return True
