"""What a fault means to whoever tries a connector, in a sentence with a way on.

Pure. Must not know HTTP or SDKs. Invariant: nothing that a server or proxy wrote is in a sentence.
"""

from typing import Final, NamedTuple

from runtime_host.connectors.base import Access, Connector, ConnectorTest
from runtime_host.connectors.transport import ProxyReason
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.model_apis.pieces import FaultKind, ModelFault, TlsReason

LISTS_NO_MODELS: Final = "PROVIDER_LISTS_NO_MODELS"


class _About(NamedTuple):
    connector: Connector
    model: str
    listing: bool

    @property
    def server(self) -> str:
        return "The built-in model" if self.connector.vendor == "builtin" else "The server"

    @property
    def name(self) -> str:
        return self.connector.name


def explained(fault: ModelFault, access: Access, *, model: str = "", listing: bool = False) -> ConnectorTest:
    """What `fault` means.

    Args:
        fault: what came of the request.
        access: whom it went to, and which way.
        model: who should have answered.
        listing: the server was asked for its models.
    """
    about = _About(access.connector, model, listing)
    if fault.kind in (FaultKind.PROXY, FaultKind.TLS):
        through = access.network.proxy_for(access.base_url)
        proxy = "" if through is None else through.url
        return _proxy(fault, proxy) if fault.kind is FaultKind.PROXY else _tls(fault, proxy)
    if listing and (fault.kind in _NO_LIST or fault.http_status == 405):
        return ConnectorTest(
            "failed",
            LISTS_NO_MODELS,
            "The server answered, but it lists no models. Check that the address ends where its API begins"
            f"{_ADDRESS_HINT[about.connector.api]}; or name a model yourself: "
            "remuda connectors add NAME --base-url ADDRESS --model MODEL.",
        )
    return _OF_KIND.get(fault.kind, _failed)(fault, about)


def explained_error(fault: AgentRuntimeError) -> ConnectorTest:
    """What it means that nothing could be sent."""
    code = fault.error_code
    if code.startswith("NETWORK_PROXY_"):
        return ConnectorTest("proxy", code, fault.message)
    if code == "NETWORK_CERTIFICATES_UNREADABLE":
        return ConnectorTest("tls", code, fault.message)
    is_key = code.startswith(("KEYRING_", "CONNECTOR_KEY_"))
    return ConnectorTest("key-store" if is_key else "failed", code, fault.message)


_NO_LIST: Final = (FaultKind.NOT_FOUND, FaultKind.MALFORMED, FaultKind.MODEL_UNKNOWN)
_ADDRESS_HINT: Final = {
    "chat-completions": ", often in /v1",
    "responses": ", often in /v1",
    "messages": ", ahead of /v1",
}


def _proxy(fault: ModelFault, proxy: str) -> ConnectorTest:
    reason = ProxyReason(fault.proxy or ProxyReason.BROKEN)
    sentence = {
        ProxyReason.UNREACHABLE: f"The proxy {proxy} cannot be reached. Check its address and that it runs.",
        ProxyReason.SILENT: f"The proxy {proxy} did not answer in time.",
        ProxyReason.TLS: f"The certificate of the proxy {proxy} is not one this computer trusts.",
        ProxyReason.LOGIN: f"The proxy {proxy} wants another login. Check its user name and password.",
        ProxyReason.REFUSED: f"The proxy {proxy} does not lead to this address. Ask whoever runs it.",
        ProxyReason.NO_WAY: f"The proxy {proxy} could not reach the server. Check the address of the connector.",
        ProxyReason.BROKEN: f"What answers at {proxy} broke off; it may be no proxy. Check its address.",
    }[reason]
    return ConnectorTest(
        "proxy",
        f"{FaultKind.PROXY.value}_{reason.name}",
        f"{sentence} The server saw nothing of the request. See which way is taken, or set it: remuda network",
    )


def _tls(fault: ModelFault, through: str) -> ConnectorTest:
    what = {
        TlsReason.EXPIRED: "The certificate of the server has expired, or the clock of this computer is wrong.",
        TlsReason.WRONG_HOST: "The certificate of the server is for another name. Check the address.",
        TlsReason.HANDSHAKE: "No encrypted connection with the server came about. Check the address; a server that "
        "speaks plain http is reached on this computer only.",
    }.get(fault.tls or TlsReason.HANDSHAKE)
    if what is None:
        between = f" The proxy {through} may stand in between and show its own." if through else ""
        what = (
            f"The certificate of the server is signed by nobody this computer trusts.{between} If that is meant so, "
            "name the file of the certificates to trust as well: remuda network --ca-file FILE"
        )
    return ConnectorTest("tls", FaultKind.TLS.value, f"{what} The key was not sent.")


def _key_refused(fault: ModelFault, about: _About) -> ConnectorTest:
    if about.connector.secret is None:
        sentence = f"{about.server} wants a key, and this connector has none. Enter one for {about.name}."
    else:
        sentence = f"{about.server} refused the key. Check it and enter it again."
    return ConnectorTest("wrong-key", fault.kind.value, sentence)


def _forbidden(fault: ModelFault, about: _About) -> ConnectorTest:
    if about.listing:
        sentence = (
            f"{about.server} does not let this key see its models. It may still answer: test it with a model, "
            f"remuda connectors test {about.name} --model MODEL; or ask whoever runs the account for access."
        )
    else:
        sentence = (
            f"{about.server} does not let this key use {about.model}. Choose another model, or ask whoever runs the "
            "account for access."
        )
    return ConnectorTest("no-entitlement", fault.kind.value, sentence)


def _no_credit(fault: ModelFault, about: _About) -> ConnectorTest:
    return ConnectorTest(
        "no-entitlement",
        fault.kind.value,
        f"The account behind {about.name} has no credit left or has met its spending limit. Add credit or raise the "
        "limit at the provider.",
    )


def _no_model(fault: ModelFault, about: _About) -> ConnectorTest:
    return ConnectorTest(
        "wrong-model",
        fault.kind.value,
        f"{about.server} has no model called {about.model}, or none that this key may use. See what it lists: "
        f"remuda connectors models {about.name}",
    )


def _not_found(fault: ModelFault, about: _About) -> ConnectorTest:
    return ConnectorTest(
        "failed",
        fault.kind.value,
        f"{about.server} knows nothing at {about.connector.base_url}. Check that the address ends where its API "
        f"begins{_ADDRESS_HINT[about.connector.api]}.",
    )


def _limited(fault: ModelFault, about: _About) -> ConnectorTest:
    wait = "in a while" if fault.retry_after_s is None else f"in {max(1, round(fault.retry_after_s))} seconds"
    return ConnectorTest(
        "limited",
        fault.kind.value,
        f"{about.server} takes no more requests for now, which says that it can be reached. Try again {wait}.",
    )


def _in_trouble(fault: ModelFault, about: _About) -> ConnectorTest:
    status = f" ({fault.http_status})" if fault.http_status else ""
    return ConnectorTest(
        "limited" if fault.http_status == 529 or fault.retry_after_s is not None else "failed",
        fault.kind.value,
        f"{about.server} is in trouble or overloaded{status}. Try again later.",
    )


def _redirected(fault: ModelFault, about: _About) -> ConnectorTest:
    return ConnectorTest(
        "failed",
        fault.kind.value,
        f"{about.server} points to another address. Remuda does not follow, because the key is for this one. "
        "Enter the other address if you trust it.",
    )


def _unreachable(fault: ModelFault, about: _About) -> ConnectorTest:
    if about.connector.vendor == "builtin":
        sentence = "The built-in model could not be reached. Try again; if it stays so, restart Remuda."
    else:
        sentence = (
            f"Nothing answers at {about.connector.base_url}. Check the address, that the server is running, and that "
            "this computer is online."
        )
    return ConnectorTest("unreachable", fault.kind.value, sentence)


def _silent(fault: ModelFault, about: _About) -> ConnectorTest:
    return ConnectorTest(
        "unreachable",
        fault.kind.value,
        f"{about.server} did not answer in time. Check the address, and that the server is running.",
    )


def _refused(fault: ModelFault, about: _About) -> ConnectorTest:
    status = f" ({fault.http_status})" if fault.http_status else ""
    what = f"{about.model} may not be made for chats" if about.model else "It may be a server of another kind"
    return ConnectorTest(
        "failed", fault.kind.value, f"{about.server} refused the request{status}. {what}. Check the address and vendor."
    )


def _failed(fault: ModelFault, about: _About) -> ConnectorTest:
    status = f" ({fault.http_status})" if fault.http_status else ""
    return ConnectorTest(
        "failed",
        fault.kind.value,
        f"{about.server} answered in a way that Remuda cannot read{status}. Check the address, and the vendor of the "
        "connector.",
    )


_OF_KIND: Final = {
    FaultKind.KEY_REFUSED: _key_refused,
    FaultKind.FORBIDDEN: _forbidden,
    FaultKind.QUOTA_EXHAUSTED: _no_credit,
    FaultKind.MODEL_UNKNOWN: _no_model,
    FaultKind.NOT_FOUND: _not_found,
    FaultKind.RATE_LIMITED: _limited,
    FaultKind.UNAVAILABLE: _in_trouble,
    FaultKind.REDIRECTED: _redirected,
    FaultKind.UNREACHABLE: _unreachable,
    FaultKind.SILENT: _silent,
    FaultKind.REQUEST_REFUSED: _refused,
}
