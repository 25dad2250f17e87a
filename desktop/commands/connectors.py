"""The commands about connectors: named servers, and the keys for them.

Owns that a key goes from this process to the key store and nowhere else: never in an argument, never over
the control socket, where only the reference to it travels.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from desktop.commands.terminal import Json, Show, fail, give_order, plain, rows
from desktop.exit_codes import COMPLETED, USAGE

connectors_app = typer.Typer(help="Named servers and the keys for them.", no_args_is_help=True)

KeyStdin = Annotated[
    bool, typer.Option("--key-stdin", help="Read the key from standard input; it goes to the system's key store.")
]
KeyEnv = Annotated[
    str | None, typer.Option(metavar="VARIABLE", help="Keep only the name of the variable that holds the key.")
]
Unchecked = Annotated[bool, typer.Option("--unchecked", help="Keep it without asking the server first.")]

_MOST_SHOWN = 8


@connectors_app.command("list")
def connectors_list(as_json: Json = False) -> int:
    """List the connectors, what uses them, and their keys' state. Keys are never shown."""
    return give_order("connectors", {}, rows(as_json, _in_words))


def _in_words(row: dict[str, Any]) -> str:
    lines = [f"{row['name']}  {row['vendor']}  {row['base_url'] or 'this computer'}"]
    lines.append(f"    key: {_key_in_words(row)}")
    if row["models"]:
        shown = ", ".join(row["models"][:_MOST_SHOWN])
        more = len(row["models"]) - _MOST_SHOWN
        lines.append(f"    models: {shown}{f' and {more} more' if more > 0 else ''}")
    if row["default_model"]:
        lines.append(f"    default: {row['default_model']}")
    used = _used_in_words(row["used_by"])
    return "\n".join(lines + ([f"    used by: {used}"] if used else []))


def _key_in_words(row: dict[str, Any]) -> str:
    if row["key"] is None:
        return "none"
    if row["key_state"] in ("ok", "set"):
        return str(row["key"])
    return f"{row['key']} ({row['key_state']})"


def _used_in_words(used_by: dict[str, list[str]]) -> str:
    counts = ((len(used_by["agents"]), "agent"), (len(used_by["conversations"]), "conversation"))
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count)


@connectors_app.command("add")
def connectors_add(
    name: str,
    vendor: Annotated[str, typer.Option(help="openai, anthropic or openai-compatible")] = "openai-compatible",
    base_url: Annotated[str, typer.Option(help="Address, e.g. http://127.0.0.1:8080/v1; else the vendor's own.")] = "",
    model: Annotated[list[str] | None, typer.Option(help="Model to offer; else the server's list.")] = None,
    key_stdin: KeyStdin = False,
    key_env: KeyEnv = None,
    unchecked: Unchecked = False,
    as_json: Json = False,
) -> int:
    """Add a connector. Its key goes to the system's key store, or stays in the named variable."""
    _one_of(key_stdin, key_env, as_json)
    order: dict[str, Any] = {"name": name, "vendor": vendor, "base_url": base_url, "models": model or []}
    order["unchecked"] = unchecked
    show = rows(
        as_json,
        lambda row: f"{row['name']} is added: {', '.join(row['models'][:_MOST_SHOWN]) or 'no models listed'}",
    )
    if key_env:
        return give_order("connector-add", {**order, "secret": {"kind": "env", "name": key_env}}, show)
    if key_stdin:
        return with_key("connector-add", order, show, as_json)
    return give_order("connector-add", order, show)


@connectors_app.command("rotate")
def connectors_rotate(
    name: str,
    key_stdin: KeyStdin = False,
    key_env: KeyEnv = None,
    unchecked: Unchecked = False,
    as_json: Json = False,
) -> int:
    """Give a connector another key for the same address. Work that goes on keeps the key it began with."""
    _one_of(key_stdin, key_env, as_json)
    show = rows(as_json, lambda row: f"{row['name']} has another key. {row.get('note', '')}".rstrip())
    order: dict[str, Any] = {"name": name, "unchecked": unchecked}
    if key_env:
        return give_order("connector-rotate", {**order, "secret": {"kind": "env", "name": key_env}}, show)
    if not key_stdin:
        fail("USAGE", "Say where the new key is: --key-stdin or --key-env VARIABLE.", USAGE, as_json=as_json)
    return with_key("connector-rotate", order, show, as_json)


def _one_of(key_stdin: bool, key_env: str | None, as_json: bool) -> None:
    if key_stdin and key_env:
        fail("USAGE", "Give --key-stdin or --key-env, not both.", USAGE, as_json=as_json)


def with_key(command: str, order: dict[str, Any], show: Show, as_json: bool) -> int:
    """Give an order whose key is put into the key store by this process; it is as before when the order fails."""
    from desktop.credentials import Credentials
    from desktop.dialog.entry import check_key
    from desktop.secret import Secret
    from runtime_host.connectors.base import SecretRef
    from runtime_host.errors import ConnectorError

    # Checked before the key is stored, so that a refused connector leaves no key behind.
    checked: list[dict[str, Any]] = []

    def take(line: dict[str, Any]) -> None:
        checked.append(line["row"]) if "row" in line else show(line)

    for question, arguments in ((command, {**order, "check": True}), ("profile", {})):
        code = give_order(question, arguments, take)
        if code != COMPLETED:
            return code
    where, profile = checked
    typed = check_key(_read_key(as_json), needed=True)
    if typed.state != "good":
        fail("KEY_UNUSABLE", typed.sentence, USAGE, as_json=as_json)

    def with_key_store(work: Callable[[Credentials], Coroutine[Any, Any, Any]]) -> Any:
        async def whole() -> Any:
            credentials = Credentials(profile["uuid"], on_slow=lambda said: print(f"remuda: {said}", file=sys.stderr))
            try:
                return await work(credentials)
            finally:
                await credentials.aclose()

        try:
            return asyncio.run(whole())
        except ConnectorError as fault:
            fail(fault.error_code, fault.message, as_json=as_json)

    # The name as it is kept, which is what its key is found by.
    name, key = where.get("name", order["name"]), Secret(typed.value)
    before: Secret | None
    reference: SecretRef
    reference, before = with_key_store(lambda keys: keys.exchange(name, key, base_url=where["base_url"]))
    place = {"name": name, "base_url": where["base_url"]}
    kept = False
    try:
        code = give_order(command, {**order, **place, "secret": reference.model_dump(mode="json")}, show)
        kept = code == COMPLETED
    finally:
        if not kept:
            with_key_store(lambda keys: keys.put_back(reference, before))
    return code


def _read_key(as_json: bool) -> str:
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("Key (not shown): ")
    line = sys.stdin.readline()
    if not line.strip():
        fail("KEY_MISSING", "Standard input held no key.", USAGE, as_json=as_json)
    return line


@connectors_app.command("remove")
def connectors_remove(
    name: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    leave_key: Annotated[bool, typer.Option("--leave-key", help="Leave its key in the key store.")] = False,
    as_json: Json = False,
) -> int:
    """Remove a connector and its key, after a question. Conversations and agents that use it stay."""
    found: list[dict[str, Any]] = []
    show = rows(as_json, lambda row: f"{row['name']} is removed. {row.get('note', '')}".rstrip())

    def take(answer: dict[str, Any]) -> None:
        found.append(answer["row"]) if "confirm" in answer.get("row", {}) else show(answer)

    order = {"name": name, "leave_key": leave_key, "confirmed": yes}
    code = give_order("connector-remove", order, take)
    if code != COMPLETED or not found:
        return code
    used_by = found[0]["used_by"]
    # Lines on the standard output are the answer; with --json there is one kind of them.
    about = sys.stderr if as_json else sys.stdout
    key = ""
    if found[0]["key"] == "keyring":
        key = ". Its key stays in the key store" if leave_key else ", with its key"
    print(f"{plain(name)} will be removed{key}.", file=about)
    if used := _used_in_words(used_by):
        print(f"It is used by {used}, which stay. To go on with one, choose another model there:", file=about)
    for title in [*used_by["agents"], *used_by["conversations"]][:20]:
        print(f"    {plain(title)}", file=about)
    if not sys.stdin.isatty() or not typer.confirm("Remove it?", default=False):
        fail("NOT_CONFIRMED", "Nothing was removed. With --yes it is not asked.", USAGE, as_json=as_json)
    return give_order("connector-remove", {**order, "confirmed": True}, show)


@connectors_app.command("test")
def connectors_test(
    name: str,
    model: Annotated[str, typer.Option(help="Also ask this model for one word, which costs a little.")] = "",
    as_json: Json = False,
) -> int:
    """Say whether a connector works, and if not, why. The key, the model, the way there, or the server."""
    return give_order(
        "connector-test",
        {"name": name, "model": model},
        rows(as_json, lambda row: f"{row['status']}: {row['sentence']}"),
    )


@connectors_app.command("models")
def connectors_models(
    name: str,
    filter: Annotated[str, typer.Option("--filter", help="Only models with this in their name.")] = "",
    refresh: Annotated[bool, typer.Option("--refresh", help="Ask the server for its list again.")] = False,
    as_json: Json = False,
) -> int:
    """List the models of a connector. With what is known of them, and who says so."""
    return give_order(
        "connector-models", {"name": name, "filter": filter, "refresh": refresh}, rows(as_json, _model_in_words)
    )


def _model_in_words(row: dict[str, Any]) -> str:
    said = []
    if row["context_tokens"] is not None:
        said.append(f"{row['context_tokens']:,} tokens")
    if row["price_input_usd"] is not None and row["price_output_usd"] is not None:
        said.append(f"${row['price_input_usd']:g} in, ${row['price_output_usd']:g} out a million")
    if row["efforts"]:
        said.append("effort " + "/".join(row["efforts"]))
    if row["images"]:
        said.append("takes images")
    if row["origin"] in ("assumed", "declared"):
        said.append("declared by you" if row["origin"] == "declared" else "assumed")
    return f"{'*' if row['default'] else ' '} {row['model']}  {' · '.join(said)}".rstrip()


@connectors_app.command("default")
def connectors_default(name: str, model: str, as_json: Json = False) -> int:
    """Have new conversations take this model of the connector."""
    return give_order(
        "connector-default",
        {"name": name, "model": model},
        rows(as_json, lambda row: f"{row['name']}: {row['default_model']}"),
    )
