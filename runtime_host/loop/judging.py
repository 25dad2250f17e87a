"""What a call is and what is said of it before anything of it happens. Pure, inside transactions.

Owns the order in which a call is looked at and the words of each refusal. Must not know drivers, tasks or what a tool
does. Invariants: the refusals before a record leave none; every call that is executed has one, written before; a
denial is looked at before anything that could lift it; a repeated write is never begun twice.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from runtime_host.canonical import digest
from runtime_host.loop import held, rules
from runtime_host.loop.credentials import ref_kind
from runtime_host.loop.kept import Ground
from runtime_host.loop.mounts import names_in, ordered, tools_of
from runtime_host.loop.names import BETWEEN, TOLD_CANDIDATES, Address, Names, candidates, nearest
from runtime_host.loop.plugins.base import Plugin, PluginTool, SideEffects
from runtime_host.storage.base import AgentTx
from runtime_host.storage.rows import ApprovalRow, MountRow, OperationRow
from runtime_host.tools.base import Judged, ToolCall

CONFIRM: Final = "confirm"
"""By which a model asks itself for a person's word; lifted out of the arguments of tools that have none so called."""
MOST_HELD: Final = 256
"""Calls of one session that wait for a person at once. More is no question any more."""
LONGEST_NAME: Final = 256
NO_HELP: Final = "Calling it again will not help."


class Found(NamedTuple):
    """What a name leads to."""

    row: MountRow
    plugin: Plugin
    tool: PluginTool


class Asked(NamedTuple):
    """A call as it is recorded.

    Attributes:
        arguments: without what was lifted out of them.
        confirm: whether the model wants a person to be asked.
    """

    call: ToolCall
    arguments: Mapping[str, Any]
    confirm: bool


def operation_id(agent_id: str, call: ToolCall) -> str:
    """The one operation that a call is, for ever."""
    return "op_" + digest([agent_id, call.session_id, call.run_id, call.call_id])[:20]


def refusal(code: str, words: str, operation: str = "", decided: str = "") -> Judged:
    """A refusal, before or after there was a record."""
    return Judged("refuse", words, code, operation, decided=decided)


def look(tx: AgentTx, ground: Ground, name: str) -> Found | Judged:
    """What a name leads to now, or why it leads nowhere; in the order of the gateway."""
    if len(name) > LONGEST_NAME:
        return refusal("unknown_tool", f"No tool has a name of {len(name)} characters; nothing was executed.")
    rows = {row.alias: row for row in ordered(ground, tx.rows(MountRow))}
    names = names_in(ground, rows.values())
    alias = names.attribute(name)
    if alias is None:
        meant = _by_plugin(ground, rows, name)
        if isinstance(meant, Judged):
            return meant
        alias = meant
    if alias is None:
        return _not_mounted(tx, ground, rows, names, name)
    row = rows[alias]
    plugin = ground.plugins.get(row.plugin)
    if plugin is None:
        return refusal(
            "plugin_unavailable", f"{alias} cannot be used: its plugin is not part of this program. {NO_HELP}"
        )
    if ground.is_off(tx, row):
        return refusal("plugin_disabled", f"{alias} is switched off by the person. {NO_HELP}")
    if plugin.version != row.tool_version:
        words = f"{alias} is of another version than the person mounted, and they have to look at it first. {NO_HELP}"
        return refusal("version_mismatch", words)
    address = names.address(name) or Address(alias, _bare(names, row, plugin, name))
    for tool in tools_of(plugin, row):
        if tool.name == address.tool:
            return Found(row, plugin, tool)
    return _unknown_tool(tx, ground, rows, names, name, Found(row, plugin, PluginTool("", "", {}, "read")))


def _bare(names: Names, row: MountRow, plugin: Plugin, name: str) -> str:
    bare = names.bare(row.alias, name)
    return names.bare(plugin.id, name) if bare == name else bare


def _by_plugin(ground: Ground, rows: Mapping[str, MountRow], name: str) -> str | Judged | None:
    """The one mount of a plugin that is named instead of its alias."""
    for plugin_id in sorted(ground.plugins, key=len, reverse=True):
        if name.startswith((plugin_id + BETWEEN, f"{plugin_id}.")):
            mounts = [alias for alias, row in rows.items() if row.plugin == plugin_id]
            if len(mounts) > 1:
                words = f"{plugin_id} is mounted more than once: {', '.join(mounts)}. Say which one you mean."
                return refusal("ambiguous_mount", words)
            return mounts[0] if mounts else None
    return None


def _not_mounted(tx: AgentTx, ground: Ground, rows: Mapping[str, MountRow], names: Names, name: str) -> Judged:
    known = offerable(tx, ground, rows, names)
    if not known:
        return refusal("no_tools", f"There is no tool {name}, and no other one is offered here. {NO_HELP}")
    code = "not_mounted" if BETWEEN in name or "." in name else "unknown_tool"
    return refusal(code, f"There is no tool {name}; nothing was executed. {_nearest(name, known)}")


def _unknown_tool(
    tx: AgentTx, ground: Ground, rows: Mapping[str, MountRow], names: Names, name: str, found: Found
) -> Judged:
    row, plugin = found.row, found.plugin
    bare = _bare(names, row, plugin, name)
    if bare in plugin.retired:
        new = plugin.retired[bare]
        told = None if new is None else names.name(row.alias, new)
        after = f"It is called {told} now." if told else "There is nothing in its place."
        return refusal("retired_tool", f"The tool {name} is gone. {after} {NO_HELP}")
    snapshot = row.tool_snapshot or {}
    if snapshot.get("changed"):
        words = f"{row.alias} tells other tools than the person agreed to; they have to look at them first. {NO_HELP}"
        return refusal("tools_changed", words)
    for each in snapshot.get("skipped", ()):
        if each["name"] == bare:
            return refusal("unknown_tool", f"The tool {name} was left out: {each['reason']}. {NO_HELP}")
    known = offerable(tx, ground, rows, names)
    if not known:
        return refusal("no_tools", f"There is no tool {name}, and no other one is offered here. {NO_HELP}")
    return refusal("unknown_tool", f"There is no tool {name}; nothing was executed. {_nearest(name, known)}")


def offerable(tx: AgentTx, ground: Ground, rows: Mapping[str, MountRow], names: Names) -> tuple[str, ...]:
    """The names of all tools of mounts that are on."""
    return tuple(
        offered
        for alias, row in rows.items()
        if (plugin := ground.plugins.get(row.plugin)) is not None
        and plugin.version == row.tool_version
        and not ground.is_off(tx, row)
        for tool in tools_of(plugin, row)
        if (offered := names.name(alias, tool.name)) is not None
    )


def _nearest(name: str, known: tuple[str, ...]) -> str:
    close = nearest(name, known)
    found = candidates(name, known)
    told = tuple(dict.fromkeys((*((close,) if close else ()), *found)))[:TOLD_CANDIDATES]
    return f"There are: {', '.join(told)}." if len(found) < len(known) else f"There is: {', '.join(told)}."


def lift_confirm(tool: PluginTool, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The arguments without the model's own wish to have a person asked, and that wish. Only a plain true is one."""
    declared = tool.parameters.get("properties")
    if CONFIRM not in arguments or (isinstance(declared, Mapping) and CONFIRM in declared):
        return dict(arguments), False
    rest = {name: value for name, value in arguments.items() if name != CONFIRM}
    return rest, arguments[CONFIRM] is True


def effect_of(plugin: Plugin, tool: PluginTool, arguments: Mapping[str, Any]) -> SideEffects:
    """What the gate goes by: a plugin may call a single write a read, and nothing else."""
    if tool.side_effects == "read":
        return "read"
    try:
        said = plugin.classify(tool.name, arguments)
    except Exception:
        # A plugin that cannot say says nothing.
        said = None
    return "read" if said == "read" else "write"


def replay_of(tool: PluginTool) -> Literal["safe", "never"]:
    """Whether an interrupted call may be made once more."""
    if tool.replay == "never":
        return "never"
    return "safe" if tool.side_effects == "read" or tool.idempotency == "native" else "never"


def record(
    tx: AgentTx, ground: Ground, found: Found, asked: Asked, *, now_ms: int, hold_ms: int | None, masked: Any
) -> Judged:
    """Write what is said of a call: its operation, and with it the hold, if it is held."""
    call, tool = asked.call, found.tool
    op_id = operation_id(ground.agent_id, call)
    known = tx.row(OperationRow, op_id)
    approval = tx.row(ApprovalRow, op_id) if known is not None else None
    if known is not None and approval is not None:
        return _of_hold(tx, found, known, approval, now_ms)
    if known is not None and (repeated := _repeated(known)):
        return refusal("already_attempted", repeated, op_id)
    operation = _operation(tx, ground, found, asked, op_id, now_ms, masked)
    said = rules.verdict(found.row.policy, tool.name, effect_of(found.plugin, tool, asked.arguments), asked.arguments)
    if said.decision == "deny":
        tx.put_row(msgspec.structs.replace(operation, status="rejected", error_code="policy_denied"))
        words = f"The person does not allow {call.tool} to be used. Nothing was executed. {NO_HELP}"
        return refusal("policy_denied", words, op_id)
    if said.decision != "approval" and not asked.confirm:
        tx.put_row(operation)
        return Judged("run", operation_id=op_id)
    if len(tx.rows(ApprovalRow, session_id=call.session_id, state="pending")) >= MOST_HELD:
        tx.put_row(msgspec.structs.replace(operation, status="rejected", error_code="too_many_held"))
        words = f"{MOST_HELD} calls wait for the person already, so they were not asked about this one."
        return refusal("too_many_held", f"{words} Nothing was executed. Wait until they have decided.", op_id)
    tx.put_row(operation)
    held.hold(
        tx,
        operation,
        asked.arguments,
        held.depends_on(tx, found.row, found.plugin.version),
        held_by="policy" if said.decision == "approval" else "agent",
        now_ms=now_ms,
        expires_ms=None if hold_ms is None else now_ms + hold_ms,
    )
    return _hold(op_id)


def _operation(
    tx: AgentTx, ground: Ground, found: Found, asked: Asked, op_id: str, now_ms: int, masked: Any
) -> OperationRow:
    row, tool, call = found.row, found.tool, asked.call
    return OperationRow(
        operation_id=op_id,
        session_id=call.session_id,
        run_id=call.run_id,
        call_id=call.call_id,
        mount_alias=row.alias,
        installation_id=row.installation_id,
        tool=tool.name,
        tool_version=row.tool_version,
        side_effects=tool.side_effects,
        replay=replay_of(tool),
        status="pending",
        key=call.call_id,
        args_hash=digest(asked.arguments),
        arguments=masked,
        identity=held.account_of(tx, row),
        credential_ref_kind=ref_kind(row.secret_ref),
        created_ms=now_ms,
        updated_ms=now_ms,
    )


def _hold(op_id: str) -> Judged:
    words = (
        "This call is paused: the person has to agree first, and was asked. Nothing was executed yet. "
        "Their decision will arrive as a message. Do other work meanwhile or stop here; do not make this call again."
    )
    return Judged("hold", words, "held", op_id)


def _repeated(known: OperationRow) -> str:
    """Why an operation that is there is not begun again; "" when it may be: a read, or one that never was begun."""
    if known.status in ("pending", "rejected") or known.side_effects == "read":
        return ""
    if known.status == "cancelled":
        return (
            "This call was made before and was withdrawn. Whether it is still wanted is not known, so it is not made."
        )
    return (
        "This call was begun before under the same id, so it is not made again: whether that came to an end is for you "
        "to find out by looking, not by repeating it."
    )


def _of_hold(tx: AgentTx, found: Found, known: OperationRow, approval: ApprovalRow, now_ms: int) -> Judged:
    """What is said of a call that a person was asked about."""
    op_id = known.operation_id
    if approval.state == "pending":
        if over := held.why_over(tx, approval, now_ms):
            held.end(tx, approval, "expired", over, now_ms)
            approval = msgspec.structs.replace(approval, state="expired", note=over)
        else:
            return _hold(op_id)
    if approval.state != "approved":
        return refusal(f"approval_{approval.state}", held.told_decision(approval), op_id, approval.state)
    if known.status != "pending":
        words = _repeated(known) or "This call was begun before under the same id, so it is not made again."
        return refusal("already_attempted", words, op_id, "approved")
    if stale := held.why_stale(tx, approval, found.plugin.version):
        held.end(tx, approval, "expired", stale, now_ms, code=held.STALE)
        words = (
            f"The person agreed to this call, but it is not what they agreed to any more: {stale} Nothing was executed."
        )
        return refusal(held.STALE, words, op_id, "stale")
    return Judged("run", operation_id=op_id, decided="approved")


def may_begin(tx: AgentTx, ground: Ground, op_id: str, arguments: Mapping[str, Any] | None) -> OperationRow | None:
    """The operation, when it may be begun in this very transaction.

    Args:
        tx: the transaction that begins it.
        ground: of the agent.
        op_id: the operation.
        arguments: what a policy judges; None for an approved one, which is judged by its approval.
    """
    operation = tx.row(OperationRow, op_id)
    if operation is None or operation.status not in ("pending", "rejected"):
        return None
    row = tx.row(MountRow, operation.mount_alias)
    plugin = ground.plugins.get(row.plugin) if row is not None else None
    if row is None or plugin is None or row.installation_id != operation.installation_id:
        return None
    if ground.is_off(tx, row) or plugin.version != row.tool_version:
        return None
    approval = tx.row(ApprovalRow, op_id)
    if approval is not None:
        allowed = approval.state == "approved" and not held.why_stale(tx, approval, plugin.version)
        return operation if allowed else None
    tool = next((each for each in tools_of(plugin, row) if each.name == operation.tool), None)
    if tool is None or arguments is None or digest(arguments) != operation.args_hash:
        return None
    said = rules.verdict(row.policy, tool.name, effect_of(plugin, tool, arguments), arguments)
    return operation if said.decision == "allow" else None


def interrupted_words(operation: OperationRow, name: str) -> str:
    """What model and person are told of a call that was begun and of which nobody knows how it ended."""
    if operation.side_effects == "write" and operation.replay == "safe":
        return (
            f"The call of {name} was begun and interrupted. It may have been done; doing it again comes to the same, "
            "so call it again if it is still wanted."
        )
    if operation.side_effects == "read":
        return (
            f"The call of {name} was interrupted before its result arrived. Nothing was changed by it; call it again."
        )
    return (
        f"The call of {name} was begun and interrupted: whether it did what was asked is not known. It is not made "
        "again by itself. Find out by looking before you do anything that would repeat it, and tell the person."
    )
