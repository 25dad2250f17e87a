"""Changing the way out of this computer from the window: the trusted dialog, and what is wrong with an answer.

Owns what is asked about proxy and certificates. Must not know how requests go or where a login is kept. Invariant:
a proxy's login goes from the dialog to `Network.set`, which keeps it in the key store, and nowhere else.
"""

from typing import TYPE_CHECKING
from urllib.parse import quote

from desktop.dialogs import Answer, Form, FormField, FormOption
from desktop.network import NONE, SYSTEM
from desktop.secret import Secret
from runtime_host.connectors.network import LONGEST_PROXY_CHARS
from runtime_host.errors import ConnectorError

if TYPE_CHECKING:
    from desktop.app import Host

OWN = "own"


async def change(host: "Host") -> bool:
    """Ask until the way out could be changed or the person gave up; whether it was changed."""
    form = _form(host)
    while True:
        answers = await (await host.trusted()).ask_form(form)
        if answers is None:
            return False
        try:
            await host.network.set(_proxy(answers), str(answers.get("ca_file", "")))
        except ConnectorError as refused:
            at = "ca_file" if refused.error_code == "NETWORK_CA_REFUSED" else ""
            form = form.again(answers, "" if at else refused.message, {at: refused.message} if at else None)
            continue
        return True


def _form(host: "Host") -> Form:
    network = host.network
    own = network.proxy not in (SYSTEM, NONE)
    kept = "Left empty, the login that is kept stays in use." if network.login is not None else "If it asks for one."
    return Form(
        title="Network",
        lead="How Remuda, and the programs it starts, reach servers. This computer itself is never reached by a proxy.",
        fields=(
            FormField(
                "proxy",
                "choice",
                "Proxy",
                OWN if own else network.proxy,
                (
                    FormOption(SYSTEM, "As the system says", "The variables HTTPS_PROXY, NO_PROXY and the like."),
                    FormOption(NONE, "No proxy", "Straight to every server, whatever the variables say."),
                    FormOption(OWN, "This proxy", "For every server that is not on this computer."),
                ),
                required=True,
            ),
            FormField(
                "address",
                "line",
                "Address of the proxy",
                network.proxy if own else "",
                hint="http://proxy.example.com:3128",
                required=True,
                bound=LONGEST_PROXY_CHARS,
                when=("proxy", (OWN,)),
            ),
            FormField("user", "line", "User name", help=kept, bound=256, when=("proxy", (OWN,))),
            FormField("password", "secret", "Password", bound=1024, when=("proxy", (OWN,))),
            FormField(
                "ca_file",
                "path",
                "More certificates",
                network.ca_file,
                hint="/etc/ssl/company.pem",
                help="A file of certificates that are trusted besides the system’s. Empty for none.",
                bound=4096,
            ),
        ),
    )


def _proxy(answers: "dict[str, Answer]") -> str:
    """The proxy as `Network.set` takes it, its login in the address."""
    chosen = str(answers.get("proxy", SYSTEM))
    if chosen != OWN:
        return chosen
    address, user, password = str(answers.get("address", "")), str(answers.get("user", "")), answers.get("password")
    secret = password.reveal() if isinstance(password, Secret) else ""
    if not user and not secret:
        return address
    scheme, separator, place = address.rpartition("://")
    login = f"{quote(user, safe='')}:{quote(secret, safe='')}"
    return f"{scheme}{separator}{login}@{place}"
