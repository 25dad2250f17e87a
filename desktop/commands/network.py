"""The commands about the way out of this computer: its proxy and its certificates.

Owns their arguments and output. Invariant: a proxy's login comes by standard input and goes to the key store, never
in an argument, which every program here could read.
"""

import os
from typing import Annotated, Any

import typer

from desktop.commands.connectors import connectors_app, with_key
from desktop.commands.terminal import Json, fail, give_order, rows
from desktop.exit_codes import USAGE


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("network")(network)


def network(
    proxy: Annotated[
        str | None,
        typer.Option(metavar="PROXY", help="system, none, or an address such as http://proxy.example.com:3128"),
    ] = None,
    proxy_login_stdin: Annotated[
        bool, typer.Option("--proxy-login-stdin", help="Read the proxy's user:password from standard input.")
    ] = False,
    ca_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of certificates (PEM) to trust besides the system's.")
    ] = None,
    no_ca_file: Annotated[bool, typer.Option("--no-ca-file", help="Trust the system's certificates alone.")] = False,
    as_json: Json = False,
) -> int:
    """Show which way requests leave this computer, or set it."""
    if ca_file is not None and no_ca_file:
        fail("USAGE", "Give --ca-file or --no-ca-file, not both.", USAGE, as_json=as_json)
    if proxy_login_stdin and proxy in (None, "system", "none"):
        fail("USAGE", "A login needs the proxy it is for: --proxy ADDRESS.", USAGE, as_json=as_json)
    order: dict[str, Any] = {}
    if proxy is not None:
        order["proxy"] = proxy
    if ca_file is not None or no_ca_file:
        # A host that runs already has another working folder.
        order["ca_file"] = "" if ca_file is None else os.path.abspath(os.path.expanduser(ca_file))
    show = rows(as_json, _in_words)
    if not order:
        return give_order("network", {}, show)
    if proxy_login_stdin:
        from desktop.network import LOGIN_ENTRY

        return with_key("network-set", {**order, "name": LOGIN_ENTRY}, show, as_json)
    return give_order("network-set", order, show)


def _in_words(row: dict[str, Any]) -> str:
    return f"proxy: {row['proxy_in_words']}\ncertificates: {row['certificates_in_words']}"


@connectors_app.command("found")
def connectors_found(as_json: Json = False) -> int:
    """Look for model servers and harness programs here. Nothing is looked for at any other time."""
    return give_order("found", {}, rows(as_json, _found_in_words))


def _found_in_words(row: dict[str, Any]) -> str:
    lines = [f"{row['name']}  {row['detail']}{'  ' if row['path'] else ''}{row['path']}"]
    lines += [f"    {row['note']}"] if row["note"] else []
    if row["usable"]:
        lines.append(f"    remuda connectors add NAME --base-url {row['base_url']}")
    return "\n".join(lines)
