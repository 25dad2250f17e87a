"""Calls that wait for a person: what is shown of them, what a decision depends on, and how one is taken. Pure.

Owns the writes of a hold and of its one decision, inside transactions. Must not know plugins, drivers or loops.
Invariants: a hold and its operation are written together; of all decisions about one the first counts and every other
changes nothing; what a decision depends on is in the hash that it has to name, and a decision about what has changed
since is none; a hold that nobody decides in time, or that nobody waits for any more, is over as if it was denied.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from runtime_host.canonical import FrozenDict, digest
from runtime_host.loop import rules
from runtime_host.loop.plugins.base import Rule
from runtime_host.storage.base import AgentTx, ItemHead, ItemRecord
from runtime_host.storage.rows import ApprovalRow, MountRow, OperationRow, PluginChoiceRow, SecretRow

DecidedState = Literal["approved", "denied", "expired", "already_decided", "stale_request"]
STALE: Final = "stale_request"
DECISION: Final = "decision-"
"""Request ids that begin so are of messages that tell of a decision, and nobody else's."""
_PAGE: Final = 256


class Held(NamedTuple):
    """A call that waits for a decision, with everything that a person has to see of it.

    Attributes:
        alias, plugin_title, tool: of what: the mount, what its plugin is called, the bare name of the tool.
        arguments: verbatim and frozen; with approval exactly these are executed.
        effect: in one sentence what it would do.
        account: as whom it would act; "" where nothing is signed in with.
        held_by: `policy`, a person wants to be asked; `agent`, the model asked for it.
        request_hash: a decision has to name it.
        expires_ms: after that it counts as denied; None when it waits for ever.
        widest: the widest rule that “always” may save; None when it is only `exact`.
        exact: the rule for this call and no other.
        parked: whether its run waits; otherwise the harness was told to expect a message.
        stale: why it cannot be approved any more; "" when it can.
    """

    agent_id: str
    session_id: str
    run_id: str
    operation_id: str
    alias: str
    plugin_title: str
    tool: str
    arguments: Mapping[str, Any]
    effect: str
    account: str
    held_by: Literal["policy", "agent"]
    request_hash: str
    created_ms: int
    expires_ms: int | None
    widest: Rule | None
    exact: Rule
    parked: bool
    stale: str = ""

    def shown(self) -> tuple[tuple[str, str], ...]:
        """Label and whole text of each part of the request, none of it cut; texts as they are, the rest as JSON."""
        return tuple(
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2))
            for name, value in self.arguments.items()
        )


class Decided(NamedTuple):
    """What a decision came to.

    Attributes:
        state: `already_decided`, an earlier one counts; `stale_request`, what it depends on has changed since.
        words: for the person who decided.
        parked: the run waits for it and is to be taken up, unless `live`.
        live: a run of this process is waiting for it at this moment and goes on by itself.
        agent_id: whose it is.
    """

    operation_id: str
    state: DecidedState
    words: str
    session_id: str
    run_id: str
    parked: bool
    live: bool = False
    agent_id: str = ""


def depends_on(tx: AgentTx, mount: MountRow, plugin_version: str) -> dict[str, Any]:
    """What a request depends on besides its words: mount, version, settings, and the credential it would act with.

    The policy is not in it: a rule that is saved for another call makes this one no other.
    """
    secret = _secret(tx, mount)
    return {
        "alias": mount.alias,
        "installation_id": mount.installation_id,
        "plugin": mount.plugin,
        "tool_version": mount.tool_version,
        "plugin_version": plugin_version,
        "public_config": digest(mount.public_config),
        "tools": digest(mount.tool_snapshot),
        "secret_ref": mount.secret_ref,
        # When it was written says whether it is the same; nothing of its value is looked at.
        "credential_written_ms": secret.updated_ms if secret is not None else None,
    }


UNNAMED: Final = "not named; a credential is attached"
"""As whom a mount acts whose credential was given no name."""


def account_of(tx: AgentTx, mount: MountRow) -> str:
    """As whom a mount acts, in the person's words."""
    secret = _secret(tx, mount)
    label = mount.public_config.get("account")
    named = (secret.account if secret is not None else "") or (label if isinstance(label, str) else "")
    return named or (UNNAMED if secret is not None else "")


def _secret(tx: AgentTx, mount: MountRow) -> SecretRow | None:
    ref = mount.secret_ref or ""
    return tx.row(SecretRow, ref.removeprefix("agent:")) if ref.startswith("agent:") else None


def request_hash(operation_id: str, request: Mapping[str, Any], depends: Mapping[str, Any]) -> str:
    """The hash that a decision has to name: of the request and of all that it depends on."""
    return digest([operation_id, request, depends])


def hold(
    tx: AgentTx,
    operation: OperationRow,
    arguments: Mapping[str, Any],
    depends: Mapping[str, Any],
    *,
    held_by: Literal["policy", "agent"],
    now_ms: int,
    expires_ms: int | None,
) -> ApprovalRow:
    """Write that an operation waits for a person, in the transaction that writes the operation."""
    request = {"tool": operation.tool, "args": dict(arguments), "held_by": held_by}
    approval = ApprovalRow(
        operation_id=operation.operation_id,
        session_id=operation.session_id,
        run_id=operation.run_id,
        mount_alias=operation.mount_alias,
        tool=operation.tool,
        request=request,
        request_hash=request_hash(operation.operation_id, request, depends),
        depends_on=dict(depends),
        held_by=held_by,
        created_ms=now_ms,
        expires_ms=expires_ms,
    )
    tx.put_row(approval)
    return approval


def pause(tx: AgentTx, operation_id: str) -> bool:
    """Write that nobody waits for a decision any more but a message is expected. False when it was decided by then."""
    approval = tx.row(ApprovalRow, operation_id)
    if approval is None or approval.state != "pending":
        return False
    tx.put_row(msgspec.structs.replace(approval, parked=False))
    return True


def why_stale(tx: AgentTx, approval: ApprovalRow, plugin_version: str | None) -> str:
    """Why a held call is not what was shown any more; "" while it is.

    Args:
        tx: the transaction that goes by it.
        approval: the hold.
        plugin_version: of the plugin as it is there now; None when it is not.
    """
    mount = tx.row(MountRow, approval.mount_alias)
    if mount is None:
        return f"{approval.mount_alias} was renamed or removed since this was asked."
    was = approval.depends_on
    if mount.installation_id != was.get("installation_id"):
        return f"{approval.mount_alias} was removed and added anew since this was asked."
    choice = tx.row(PluginChoiceRow, mount.plugin)
    if mount.closed or (choice is not None and choice.state == "off"):
        return f"{approval.mount_alias} is switched off since this was asked."
    if plugin_version is None:
        return f"What {approval.mount_alias} needs is not there any more."
    if plugin_version != mount.tool_version or plugin_version != was.get("plugin_version"):
        return f"{approval.mount_alias} is of another version since this was asked."
    now = depends_on(tx, mount, plugin_version)
    if any(now[name] != was.get(name) for name in ("secret_ref", "credential_written_ms")):
        return f"The credential of {approval.mount_alias} is another one since this was asked."
    if now != was:
        return f"The settings or tools of {approval.mount_alias} were changed since this was asked."
    operation = tx.row(OperationRow, approval.operation_id)
    effect = operation.side_effects if operation is not None else "write"
    if rules.verdict(mount.policy, approval.tool, effect, approval.request["args"]).decision == "deny":
        return f"{approval.mount_alias} is not allowed to do this any more."
    return "" if _is_as_asked(approval, operation) else "What is stored of this request is not what was asked."


def _is_as_asked(approval: ApprovalRow, operation: OperationRow | None) -> bool:
    """Whether a hold and its operation are of the one request that was shown: the operation is what is executed."""
    request = approval.request
    if approval.request_hash != request_hash(approval.operation_id, request, approval.depends_on):
        return False
    if operation is None:
        return True
    asked = request["tool"], request["tool"], approval.mount_alias, digest(request["args"])
    return asked == (approval.tool, operation.tool, operation.mount_alias, operation.args_hash)


def why_over(tx: AgentTx, approval: ApprovalRow, now_ms: int) -> str:
    """Why a pending hold is over without a decision; "" while it is not."""
    if approval.expires_ms is not None and now_ms >= approval.expires_ms:
        return "Nobody decided in time, which counts as a no."
    operation = tx.row(OperationRow, approval.operation_id)
    if operation is None:
        return "What it was part of is gone."
    if approval.parked:
        # A call that was withdrawn is of a run that has ended.
        call = tx.tool_call(approval.run_id, operation.call_id)
        if call is not None and call.phase != "requested":
            return "The run that asked for it has ended."
    return ""


class Decision(NamedTuple):
    """One person's word on a hold."""

    approve: bool
    request_hash: str
    approver: str
    note: str
    always: Rule | None


def decide(
    tx: AgentTx, operation_id: str, decision: Decision, *, plugin_version: str | None, widest: Rule | None, now_ms: int
) -> DecidedState | None:
    """Take a decision, in one transaction with all that follows from it. None when there is no such hold.

    Raises:
        ValueError: what “always” would save is wider than what was offered; then nothing is decided.
    """
    approval = tx.row(ApprovalRow, operation_id)
    if approval is None:
        return None
    if approval.state != "pending":
        return "already_decided"
    if over := why_over(tx, approval, now_ms):
        end(tx, approval, "expired", over, now_ms)
        return "expired"
    if decision.request_hash != approval.request_hash:
        return "stale_request"
    if not decision.approve:
        end(tx, approval, "denied", decision.note, now_ms, approver=decision.approver)
        return "denied"
    if stale := why_stale(tx, approval, plugin_version):
        end(tx, approval, "expired", stale, now_ms, code=STALE)
        return "stale_request"
    if decision.always is not None:
        _save(tx, approval, decision.always, widest, now_ms)
    tx.put_row(
        msgspec.structs.replace(
            approval, state="approved", approver=decision.approver, note=decision.note, decided_ms=now_ms
        )
    )
    _show(tx, approval, "approved")
    return "approved"


def end(
    tx: AgentTx,
    approval: ApprovalRow,
    state: Literal["denied", "expired"],
    note: str,
    now_ms: int,
    *,
    approver: str = "",
    code: str = "",
) -> None:
    """Write that a hold came to a no, of a person or of time; its operation is cancelled with it."""
    tx.put_row(msgspec.structs.replace(approval, state=state, approver=approver, note=note, decided_ms=now_ms))
    operation = tx.row(OperationRow, approval.operation_id)
    if operation is not None and operation.status == "pending":
        tx.put_row(
            msgspec.structs.replace(
                operation, status="cancelled", error_code=code or f"approval_{state}", updated_ms=now_ms
            )
        )
    _show(tx, approval, "stale" if code == STALE else state)


def withdraw(tx: AgentTx, session_id: str, run_id: str, why: str, now_ms: int) -> None:
    """Write that a run has ended: what it was about to do is not done, what it waited for is not decided any more.

    A call of which a message is expected stays.
    """
    for operation in tx.rows(OperationRow, session_id=session_id, run_id=run_id, status="pending"):
        approval = tx.row(ApprovalRow, operation.operation_id)
        if approval is not None and not approval.parked:
            continue
        if approval is not None and approval.state == "pending":
            end(tx, approval, "expired", why, now_ms)
        tx.put_row(msgspec.structs.replace(operation, status="cancelled", updated_ms=now_ms))


def sweep(tx: AgentTx, now_ms: int) -> tuple[ApprovalRow, ...]:
    """End every hold that is over without a decision; the ones that it ended."""
    over = [(each, why) for each in tx.rows(ApprovalRow, state="pending") if (why := why_over(tx, each, now_ms))]
    for approval, why in over:
        end(tx, approval, "expired", why, now_ms)
    return tuple(approval for approval, _ in over)


def told_decision(approval: ApprovalRow) -> str:
    """What a model is told of a call that came to a no. It names nobody's secret."""
    said = f" They said: {approval.note}" if approval.note and approval.state == "denied" else ""
    if approval.state == "denied":
        return (
            f"The person was asked about this call and said no. Nothing was executed.{said} "
            "Do not try to reach the same in another way; ask them what they want instead."
        )
    why = approval.note or "Nobody decided in time, which counts as a no."
    return f"This call waited for the person's decision and was not allowed: {why} Nothing was executed."


def _save(tx: AgentTx, approval: ApprovalRow, always: Rule, widest: Rule | None, now_ms: int) -> None:
    args = approval.request["args"]
    offered = widest if widest is not None and rules.holds(widest, approval.tool, args) else None
    exact = rules.exactly(approval.tool, args)
    if not (rules.is_narrower(always, exact) or (offered is not None and rules.is_narrower(always, offered))):
        raise ValueError("The rule allows more than was offered. Make it narrower.")
    if not rules.holds(always, approval.tool, args):
        raise ValueError("The rule does not hold for this call, so it would not be what was looked at.")
    mount = tx.row(MountRow, approval.mount_alias)
    if mount is not None:
        tx.put_row(msgspec.structs.replace(mount, policy=rules.with_rule(mount.policy, always), updated_ms=now_ms))


def card_of(tx: AgentTx, run_id: str, call_id: str) -> ItemRecord | None:
    """The open item of a call in the transcript, if it has one."""
    for head in _calls_of(tx, run_id):
        if head.about.get("call") == call_id:
            return tx.item(head.item_id) if head.state == "open" else None
    return None


def _calls_of(tx: AgentTx, run_id: str) -> Iterator[ItemHead]:
    """The items of a run's calls, without their texts."""
    run = tx.run(run_id)
    if run is None:
        return
    first, end_at = int(run.input.get("position", 0)) + 1, tx.count_items(run.session_id)
    while first < end_at:
        for head in tx.items(run.session_id, first, _PAGE, 0):
            if head.run_id == run_id and head.kind == "tool":
                yield head
        first += _PAGE


def as_decided(tx: AgentTx, kind: str, about: dict[str, Any]) -> dict[str, Any]:
    """What is known of an item, with what was decided since its harness was told to expect a message."""
    if kind != "tool" or about.get("decided") != "waiting":
        return about
    operation_id = str(about.get("operation", ""))
    approval = tx.row(ApprovalRow, operation_id)
    if approval is None or approval.state == "pending":
        return about
    operation = tx.row(OperationRow, operation_id)
    is_stale = approval.state == "expired" and operation is not None and operation.error_code == STALE
    return {**about, "decided": "stale" if is_stale else approval.state}


def paused_card(tx: AgentTx, operation_id: str) -> ItemHead | None:
    """The ended item of a call whose harness was told to expect a message, as it stands now."""
    approval = tx.row(ApprovalRow, operation_id)
    if approval is None or approval.parked:
        return None
    for head in _calls_of(tx, approval.run_id):
        if head.about.get("operation") == operation_id and head.state != "open":
            return head._replace(about=as_decided(tx, head.kind, head.about))
    return None


def _show(tx: AgentTx, approval: ApprovalRow, decided: str) -> None:
    """The decision on the card of the call, where that is still open."""
    operation = tx.row(OperationRow, approval.operation_id)
    item = card_of(tx, approval.run_id, operation.call_id) if operation is not None else None
    if item is not None:
        tx.put_about(item.item_id, {**item.about, "operation": approval.operation_id, "decided": decided})


def frozen_arguments(approval: ApprovalRow) -> Mapping[str, Any]:
    """The recorded arguments, as nobody can change them."""
    return FrozenDict(approval.request["args"])
