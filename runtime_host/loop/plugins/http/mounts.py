"""What the configuration of an http mount allows.

Owns the reading of its settings. Must not know connections. Invariants: a host is allowed by its exact name or not at
all; a mount that lists none sends no secret; this computer is reached only where a person ticked it, and never by
being led there from elsewhere.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from runtime_host.connectors.base_url import is_loopback
from runtime_host.connectors.public_addresses import (
    NOTHING_SENT,
    HostRefusedError,
    WebAddress,
    read_host,
    refuse_private_name,
)
from runtime_host.loop.plugins.base import PluginError

SHOWN_HOSTS: Final = 12


class Allowed(NamedTuple):
    """Where a mount may go.

    Attributes:
        hosts: exact hosts; None for every public one.
        unread: entries that are no host, as they stand there.
        loopback: whether this computer may be reached.
    """

    hosts: frozenset[str] | None
    unread: tuple[str, ...]
    loopback: bool

    def check(self, address: WebAddress, *, from_elsewhere: bool) -> None:
        """Let an address pass.

        Args:
            address: of one hop.
            from_elsewhere: whether another host than this computer led there.

        Raises:
            HostRefusedError: it does not; in words for the model.
        """
        if not (self.loopback and is_loopback(address.host) and not from_elsewhere):
            refuse_private_name(address.host)
        if self.hosts is None or address.host in self.hosts:
            return
        listed = ", ".join(sorted(self.hosts)[:SHOWN_HOSTS]) or "none"
        more = " and others" if len(self.hosts) > SHOWN_HOSTS else ""
        unread = f" These entries name no host: {', '.join(self.unread[:SHOWN_HOSTS])}." if self.unread else ""
        raise HostRefusedError(
            f"{address.host} is not on the list of hosts of this mount. {NOTHING_SENT} Listed: {listed}{more}.{unread}"
        )

    @property
    def may_have_secrets(self) -> bool:
        return bool(self.hosts)


def allowed(config: Mapping[str, Any]) -> Allowed:
    """What a configuration allows; what is no host in it allows nothing."""
    given = config.get("allowed_hosts")
    loopback = config.get("loopback") is True
    if given is None:
        return Allowed(None, (), loopback)
    hosts, unread = set(), []
    for entry in given if isinstance(given, list | tuple) else [given]:
        try:
            hosts.add(read_host(str(entry).strip()))
        except HostRefusedError:
            unread.append(str(entry)[:80])
    return Allowed(frozenset(hosts), tuple(unread), loopback)


def check_secret_may_leave(rules: Allowed, address: WebAddress) -> None:
    """Before a secret is put into a request to `address`.

    Raises:
        PluginError: it may not leave this way.
    """
    if not rules.may_have_secrets:
        raise PluginError(
            "This mount lists no hosts, so no secret is sent by it. Nothing was sent. Ask the person to set the "
            "hosts it may reach.",
            code="allowed_hosts_required",
        )
    if address.scheme != "https" and not is_loopback(address.host):
        raise PluginError(
            "A secret is sent over https only, because plain http would show it on the way. Nothing was sent.",
            code="secret_over_http",
        )
