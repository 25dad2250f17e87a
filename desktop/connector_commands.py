"""The commands about connectors: named servers, and the keys for them.

Owns that a key goes from this process to the key store and nowhere else: never in an argument, never over
the control socket, where only the reference to it travels.
"""

import asyncio
import sys
from typing import Annotated, Any

import typer

from desktop.exit_codes import COMPLETED, USAGE
from desktop.terminal import Json, Show, fail, give_order, rows

connectors_app = typer.Typer(help="Named servers and the keys for them.", no_args_is_help=True)


@connectors_app.command("list")
def connectors_list(as_json: Json = False) -> int:
    """List the connectors; keys are never shown."""

    def line(row: dict[str, Any]) -> str:
        where = row["base_url"] or "this computer"
        return f"{row['name']}  {where}  key: {row['key'] or 'none'}  {', '.join(row['models'][:5])}"

    return give_order("connectors", {}, rows(as_json, line))


@connectors_app.command("add")
def connectors_add(
    name: str,
    vendor: Annotated[str, typer.Option(help="openai-compatible")] = "openai-compatible",
    base_url: Annotated[str, typer.Option(help="Address, e.g. http://127.0.0.1:8080/v1")] = "",
    model: Annotated[list[str] | None, typer.Option(help="Model to offer; else the server's list.")] = None,
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Read the key from standard input.")] = False,
    key_env: Annotated[str | None, typer.Option(help="Keep only the name of the variable that holds the key.")] = None,
    as_json: Json = False,
) -> int:
    """Add a connector. Its key goes to the system's key store, or stays in the named variable."""
    if key_stdin and key_env:
        fail("USAGE", "Give --key-stdin or --key-env, not both.", USAGE, as_json=as_json)
    order: dict[str, Any] = {"name": name, "vendor": vendor, "base_url": base_url, "models": model or []}
    show = rows(as_json, lambda row: f"{row['name']} is added: {', '.join(row['models'][:8]) or 'no models listed'}")
    if key_env:
        order["secret"] = {"kind": "env", "name": key_env}
    elif key_stdin:
        # Checked before the key is stored, so that a refused connector leaves no key behind.
        checked: list[dict[str, Any]] = []
        code = give_order(
            "connector-add",
            {**order, "check": True},
            lambda line: show(line) if "error" in line else checked.append(line["row"]),
        )
        if code != COMPLETED:
            return code
        return _add_with_key({**order, "base_url": checked[0]["base_url"]}, show, as_json)
    return give_order("connector-add", order, show)


def _add_with_key(order: dict[str, Any], show: Show, as_json: bool) -> int:
    from desktop.credentials import Credentials
    from runtime_host.errors import ConnectorError

    key = sys.stdin.readline().strip()
    if not key:
        fail("KEY_MISSING", "Standard input held no key.", USAGE, as_json=as_json)
    rows: list[dict[str, Any]] = []
    code = give_order("profile", {}, lambda line: rows.append(line["row"]) if "row" in line else show(line))
    if code != COMPLETED:
        return code
    profile_uuid = rows[0]["uuid"]

    async def keep() -> dict[str, Any]:
        credentials = Credentials(profile_uuid)
        try:
            return (await credentials.store(order["name"], key, base_url=order["base_url"])).model_dump(mode="json")
        finally:
            await credentials.aclose()

    async def take_back(reference: dict[str, Any]) -> None:
        from runtime_host.connectors.base import SecretRef

        credentials = Credentials(profile_uuid)
        try:
            await credentials.delete(SecretRef.model_validate(reference))
        finally:
            await credentials.aclose()

    try:
        reference = asyncio.run(keep())
    except ConnectorError as fault:
        fail(fault.error_code, fault.message, as_json=as_json)
    code = give_order("connector-add", {**order, "secret": reference}, show)
    if code != COMPLETED:
        asyncio.run(take_back(reference))
    return code


@connectors_app.command("remove")
def connectors_remove(name: str, as_json: Json = False) -> int:
    """Remove a connector and its key. Conversations stay."""
    return give_order("connector-remove", {"name": name}, rows(as_json, lambda row: f"{row['name']} is removed"))
