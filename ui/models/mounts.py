"""Rows of what an agent may use: each mount with its state, its credential and every tool.

Owns their wording and what can be done with each. Must not know Qt or ask a clock: the rows are plain maps for a
`ListModel`, the present is an argument. Invariants: a state is always an icon, a word and a colour; what would happen
to a call is said for every tool; a name from elsewhere never reorders the words around it.
"""

from collections.abc import Sequence
from typing import Any

from ui.models.places import joined, name
from ui.setup import Setup, counted
from ui.text.visible import as_written, one_line
from ui.when import when
from ui.wire import dto

STATES = {
    "on": ("On", "check", "up"),
    "off": ("Off", "stopped", "stopped"),
    "put-away": ("Switched off", "stopped", "stopped"),
    "unavailable": ("Unavailable", "failed", "failed"),
    "other-version": ("Another version", "warning", "waiting"),
}
"""Word, icon and colour of how a mount stands."""

CREDENTIALS = {
    "not-needed": ("", "", "quiet"),
    "none": ("No credential", "key", "quiet"),
    "attached": ("Credential attached", "key", "text"),
    "unreadable": ("Credential cannot be read", "failed", "failed"),
    "rejected": ("Credential refused", "failed", "failed"),
    "unreachable": ("Credential not checked", "unknown", "unknown"),
}
"""The same of its credential. Refused and not reached are two things: only one of them says that the key is bad."""

SIGN_INS = {"none": "Not signed in", "attached": "Signed in", "rejected": "Sign-in refused"}
"""The same where a person signs in at the other side."""

SWITCHES = {
    "on": "Switch off",
    "off": "Switch on…",
    "put-away": "Switch on…",
    "other-version": "Look at it again…",
}
"""What switching a mount would do now; one whose plugin is not here cannot be switched."""

VERDICTS = {
    "allow": ("without asking", "check", "up"),
    "approval": ("asks you first", "shield", "text"),
    "deny": ("refused", "stopped", "stopped"),
}
"""What happens when a tool is called."""

EFFECTS = {"read": "reads", "write": "changes things"}

WANTING = frozenset({"none", "unreadable", "rejected"})
"""Credentials that somebody has to attach or write again."""


def mounts(setup: Setup, now_ms: int) -> list[dict[str, Any]]:
    """Everything that the agent may use."""
    return [_mount(row, now_ms) for row in setup.mounts.rows] if setup.mounts is not None else []


def _mount(row: dto.MountRow, now_ms: int) -> dict[str, Any]:
    word, icon, tone = STATES[row.state]
    held, held_icon, held_tone = CREDENTIALS[row.credential]
    if row.sign_in == "offered":
        held = SIGN_INS.get(row.credential, held)
    account = f"as {as_written(one_line(row.account))}" if row.account else ""
    credential = joined(held, account)
    credential_words = one_line(row.credential_words)
    warnings = [one_line(words) for words in row.warnings]
    tools = [_tool(tool) for tool in row.tools]
    summary = tools_words(row.tools, row.tools_left_out)
    alias, about = name(row.alias), as_written(one_line(row.about))
    used = f"Used {when(row.last_used_ms, now_ms)}" if row.last_used_ms else "Never used"
    what = joined(
        name(row.title) if row.title != row.alias else "", name(row.plugin) if row.plugin != row.title else ""
    )
    return {
        "id": row.id,
        "alias": alias,
        "what": what,
        "word": word,
        "icon": icon,
        "tone": tone,
        "words": one_line(row.state_words),
        "about": about,
        "credential": credential,
        "credentialIcon": held_icon,
        "credentialTone": held_tone,
        "credentialWords": credential_words,
        "greyed": row.sign_in == "greyed",
        "signInWords": one_line(row.sign_in_words),
        "warnings": warnings,
        "tools": tools,
        "summary": summary,
        "more": f"and {counted(row.tools_left_out, 'tool')} more, too many to be listed" if row.tools_left_out else "",
        "used": used,
        "switch": SWITCHES.get(row.state, ""),
        "quick": quick(row),
        "deeds": deeds(row),
        "said": joined(
            alias, what, word, one_line(row.state_words), about, credential, credential_words,
            *(f"Take note: {words}" for words in warnings), summary, used, by=", ",
        ),
    }  # fmt: skip


def _tool(tool: dto.MountTool) -> dict[str, Any]:
    verdict, icon, tone = VERDICTS[tool.verdict]
    if tool.rules and tool.verdict == "approval":
        verdict += f", but for {counted(tool.rules, 'kind')} of call"
    effect, warning, called = EFFECTS[tool.effect], one_line(tool.warning), name(tool.name)
    summary = one_line(tool.summary)
    return {
        "name": called,
        "effect": effect,
        "writes": tool.effect == "write",
        "word": verdict,
        "icon": icon,
        "tone": tone,
        "summary": summary,
        "warning": warning,
        "said": joined(called, effect, verdict, summary, f"Take note: {warning}" if warning else "", by=", "),
    }


def tools_words(tools: Sequence[dto.MountTool], left_out: int) -> str:
    """How many tools there are, and what becomes of their calls."""
    if not tools and not left_out:
        return "No tools"
    counts = [(verdict, sum(tool.verdict == verdict for tool in tools)) for verdict in VERDICTS]
    said = {"allow": "without asking", "approval": "after asking you", "deny": "refused"}
    parts = [f"{count} {said[verdict]}" for verdict, count in counts if count]
    if left_out:
        parts.append(f"{left_out} not listed")
    return joined(counted(len(tools) + left_out, "tool"), ", ".join(parts), by=": ")


def quick(row: dto.MountRow) -> list[str]:
    """What is most likely wanted, as buttons of its own."""
    made = []
    if row.credential in WANTING and row.sign_in != "offered":
        made.append("attach-credential")
    if row.sign_in == "offered" and row.credential in WANTING:
        made.append("sign-in")
    if row.state not in ("on", "unavailable"):
        made.append("switch-mount")
    if row.can_refresh and row.state == "on" and not row.tools and "sign-in" not in made:
        made.append("refresh-mount")
    return made


def deeds(row: dto.MountRow) -> list[str]:
    """All that can be done with it, in the order of its menu."""
    kept = row.credential in ("attached", "unreadable", "rejected", "unreachable")
    wanted = (
        ("edit-mount", True),
        ("rename-mount", True),
        ("switch-mount", row.state in SWITCHES),
        ("refresh-mount", row.can_refresh),
        ("sign-in", row.sign_in == "offered"),
        ("attach-credential", row.credential != "not-needed" and row.sign_in != "offered"),
        ("check-credential", kept),
        ("detach-credential", kept),
        ("remove-mount", True),
    )
    return [action for action, can in wanted if can]
