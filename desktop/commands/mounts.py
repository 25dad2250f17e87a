"""The commands about mounts: what an agent may use, and what waits for the person.

Owns their arguments and how mounts are told of on a terminal. Must not know hosts. Invariants: a credential comes from
standard input, goes from this process to the key store and from there into the agent's file, never in an argument or
over the control socket; nothing here approves anything.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from desktop.commands.terminal import Json, confirmed, fail, give_order, rows
from desktop.exit_codes import COMPLETED, USAGE

mounts_app = typer.Typer(help="What an agent may use: folders, the web, servers of tools.", no_args_is_help=True)

AgentName = Annotated[str | None, typer.Option("--agent", help="Agent by name or id; else the one in use.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; empty takes it away. Repeatable.")
]
Read = Annotated[str | None, typer.Option(help="What only reads: allow, approval or deny.")]
Write = Annotated[str | None, typer.Option(help="What changes something: allow, approval or deny.")]
Tools = Annotated[
    list[str] | None, typer.Option("--tool", metavar="TOOL=DECISION", help="One tool by itself. Repeatable.")
]


@mounts_app.command("list")
def mounts_list(agent: AgentName = None, as_json: Json = False) -> int:
    """List the mounts of an agent, and what each of their tools would do."""
    return give_order("mounts", {"agent": agent}, rows(as_json, _in_words))


_STATES = {"put-away": "switched off", "other-version": "another version"}
"""How states are said where their own word says little."""


def _in_words(row: dict[str, Any]) -> str:
    lines = [f"{row['alias']}  {row['title']}  {_STATES.get(row['state'], row['state'])}"]
    lines += [f"    {row['state_words']}"] if row["state_words"] else []
    if row["config"]:
        lines.append("    " + ", ".join(f"{name}={_plain(value)}" for name, value in row["config"].items()))
    if row["credential"] != "not-needed":
        account = f" ({row['account']})" if row["account"] else ""
        lines.append(f"    credential: {row['credential']}{account}. {row['credential_words']}".rstrip())
    does = {"allow": "at once", "approval": "asks first", "deny": "refused"}
    for tool in row["tools"]:
        rules = f", {tool['rules']} always allowed" if tool["rules"] else ""
        lines.append(f"    {tool['name']}  {tool['effect']}  {does[tool['verdict']]}{rules}")
        lines += [f"        ! {tool['warning']}"] if tool["warning"] else []
    return "\n".join(lines + [f"    ! {warning}" for warning in row["warnings"]])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@mounts_app.command("add")
def mounts_add(
    plugin: Annotated[str, typer.Argument(help="workspace, http, mcp or artifacts")],
    alias: Annotated[str, typer.Option("--as", help="What it is called; else as the plugin.")] = "",
    settings: Settings = None,
    read: Read = None,
    write: Write = None,
    tool: Tools = None,
    agent: AgentName = None,
    as_json: Json = False,
) -> int:
    """Mount something for an agent. What changes something asks first, unless you say otherwise."""
    order = {
        "agent": agent,
        "plugin": plugin,
        "alias": alias,
        "set": settings,
        "read": read,
        "write": write,
        "tools": tool,
    }
    return give_order("mount-add", order, rows(as_json, _in_words))


@mounts_app.command("edit")
def mounts_edit(alias: str, settings: Settings = None, agent: AgentName = None, as_json: Json = False) -> int:
    """Set a mount up otherwise."""
    order = {"agent": agent, "alias": alias, "set": settings}
    return give_order("mount-edit", order, rows(as_json, _in_words))


@mounts_app.command("policy")
def mounts_policy(
    alias: str,
    read: Read = None,
    write: Write = None,
    tool: Tools = None,
    forget_rules: Annotated[bool, typer.Option("--forget-rules", help="Forget what was always allowed.")] = False,
    agent: AgentName = None,
    as_json: Json = False,
) -> int:
    """Say what of a mount is done at once, what asks first, and what is refused."""
    order = {"agent": agent, "alias": alias, "read": read, "write": write, "tools": tool, "forget_rules": forget_rules}
    return give_order("mount-edit", order, rows(as_json, _in_words))


@mounts_app.command("rename")
def mounts_rename(alias: str, new: str, agent: AgentName = None, as_json: Json = False) -> int:
    """Call a mount otherwise; its settings, rules and credential go with it."""
    return give_order("mount-rename", {"agent": agent, "alias": alias, "new": new}, rows(as_json, _in_words))


@mounts_app.command("switch")
def mounts_switch(
    alias: str,
    to: Annotated[str, typer.Argument(help="on, off or inherit")],
    agent: AgentName = None,
    as_json: Json = False,
) -> int:
    """Switch a mount on or off. Switched off, what it is set up with stays."""
    return give_order("mount-switch", {"agent": agent, "alias": alias, "to": to}, rows(as_json, _in_words))


@mounts_app.command("remove")
def mounts_remove(
    alias: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    agent: AgentName = None,
    as_json: Json = False,
) -> int:
    """Remove a mount with its settings and its credential, for good."""
    order = {"agent": agent, "alias": alias}
    if not yes:
        row = confirmed("mount-remove", order, "Remove it?", "Nothing was removed.", as_json)
        if isinstance(row, int):
            return row
    return give_order(
        "mount-remove", {**order, "confirmed": True}, rows(as_json, lambda row: f"{row['alias']} is removed")
    )


@mounts_app.command("attach")
def mounts_attach(
    alias: str,
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Read the credential from standard input.")] = False,
    account: Annotated[str, typer.Option(help="What you call it.")] = "",
    agent: AgentName = None,
    as_json: Json = False,
) -> int:
    """Give a mount its credential. It is sealed in the agent's file; nobody is ever shown it."""
    if not key_stdin:
        fail("USAGE", "Say where the credential is: --key-stdin.", USAGE, as_json=as_json)
    order: dict[str, Any] = {"agent": agent, "alias": alias, "account": account}
    return _with_credential(order, as_json)


def _with_credential(order: dict[str, Any], as_json: bool) -> int:
    """Put a credential into the key store, have the host seal it, and take it out again whatever comes of that."""
    from desktop.credentials import Credentials
    from desktop.orders.mounts import parked_name
    from desktop.secret import Secret
    from runtime_host.connectors.base import SecretRef
    from runtime_host.errors import ConnectorError

    found: list[dict[str, Any]] = []
    show = rows(as_json, _in_words)

    def take(line: dict[str, Any]) -> None:
        found.append(line["row"]) if "row" in line else show(line)

    for question, arguments in (("mount-attach", {**order, "check": True}), ("profile", {}), ("mounts", order)):
        code = give_order(question, arguments, take)
        if code != COMPLETED:
            return code
    [installation] = [row["installation"] for row in found[2:] if row["alias"] == order["alias"]]
    text = sys.stdin.readline().strip()
    if not text:
        fail("KEY_MISSING", "Standard input held no credential.", USAGE, as_json=as_json)

    def with_key_store(work: Callable[[Credentials], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            said = lambda words: print(f"remuda: {words}", file=sys.stderr)  # noqa: E731
            credentials = Credentials(found[1]["uuid"], on_slow=said)
            try:
                return await work(credentials)
            finally:
                await credentials.aclose()

        try:
            return asyncio.run(whole())
        except ConnectorError as fault:
            fail(fault.error_code, fault.message, as_json=as_json)

    reference: SecretRef = with_key_store(lambda keys: keys.store(parked_name(installation), Secret(text)))
    kept = False
    try:
        code = give_order("mount-attach", {**order, "secret": reference.model_dump(mode="json")}, show)
        kept = code == COMPLETED
    finally:
        if not kept:
            # The host takes it out once it has read it; here nobody may have.
            with_key_store(lambda keys: keys.delete(reference))
    return code


@mounts_app.command("detach")
def mounts_detach(alias: str, agent: AgentName = None, as_json: Json = False) -> int:
    """Take a mount's credential away."""
    return give_order("mount-detach", {"agent": agent, "alias": alias}, rows(as_json, _in_words))


@mounts_app.command("check")
def mounts_check(alias: str, agent: AgentName = None, as_json: Json = False) -> int:
    """Ask the other side whether it takes the credential."""
    return give_order(
        "mount-check",
        {"agent": agent, "alias": alias},
        rows(as_json, lambda row: f"{row['alias']}: {row['state']}. {row['detail']}".rstrip()),
    )


@mounts_app.command("refresh")
def mounts_refresh(alias: str, agent: AgentName = None, as_json: Json = False) -> int:
    """Say which tools the other side of a mount tells now. To use others than before, look at it."""

    def line(row: dict[str, Any]) -> str:
        said = [f"{row['alias']}: {'as you agreed to' if row['same'] else 'not what you agreed to'}"]
        said += [f"    {effect}  {name}" for name, _, effect in row["tools"]]
        said += [f"    left out  {name}: {why}" for name, why in row["skipped"]]
        return "\n".join(said)

    return give_order("mount-refresh", {"agent": agent, "alias": alias}, rows(as_json, line))


@mounts_app.command("look")
def mounts_look(alias: str, agent: AgentName = None, as_json: Json = False) -> int:
    """Open the trusted dialog on what has to be agreed to before a mount is used."""

    def line(row: dict[str, Any]) -> str:
        return f"{row['alias']} {'can be used' if row['ready'] else 'is not used: you did not agree'}"

    return give_order("mount-look", {"agent": agent, "alias": alias}, rows(as_json, line))


@mounts_app.command("rotate-key")
def mounts_rotate_key(as_json: Json = False) -> int:
    """Make a new key in the key store and seal the credentials of all agents under it.

    The credentials stay as they are; only the key that opens them is another. The old key is deleted once nothing is
    sealed under it any more. Where something could not be opened the old key stays; run it again later.
    """

    def line(row: dict[str, Any]) -> str:
        done, left = row["done"], row["unreadable"]
        said = f"{done} credential{' is' if done == 1 else 's are'} sealed under a new key."
        if not left:
            return f"{said} The old key is deleted."
        return (
            f"{said} {left} could not be opened and stay{'s' if left == 1 else ''} as before, so the old key is kept."
        )

    return give_order("mount-rotate-key", {}, rows(as_json, line))


@mounts_app.command("waiting")
def mounts_waiting(agent: AgentName = None, as_json: Json = False) -> int:
    """List the calls that wait for your decision."""

    def line(row: dict[str, Any]) -> str:
        return f"{row['operation']}  {row['mount']}.{row['tool']}  {row['effect']}\n    session {row['session']}"

    return give_order("waiting", {"agent": agent}, rows(as_json, line))


@mounts_app.command("review")
def mounts_review(
    operation: Annotated[str, typer.Argument(help="A call, or the beginning of its id.")], as_json: Json = False
) -> int:
    """Open the trusted dialog on a call that waits. It is decided there, and nowhere else."""
    return give_order(
        "waiting-review", {"operation": operation}, rows(as_json, lambda row: f"{row['decided']}: {row['words']}")
    )
