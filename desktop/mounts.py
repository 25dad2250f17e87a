"""The page of mounts: what an agent may use, in words.

Owns how a report on mounts is told, to the window and on the command line. Must not know how mounts are kept or used.
Invariant: what tells of a credential tells whether there is one, of whom and what a check came to, and nothing of it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from desktop import sanitize
from runtime_host.loop.mounts import MountReport, MountSetReport, ToolLine, news_words
from runtime_host.loop.plugins.base import Setting
from runtime_host.storage.rows import MountRow
from ui.wire import dto

MOST_TOOLS: Final = 200
MOST_WARNINGS: Final = 16
ROW_BYTES: Final = 24 * 1024
"""Of the tools of one mount, about: the rest is counted."""
_AT_HOME: Final = frozenset({"workspace", "artifacts"})
"""Plugins that reach nothing but the folder of the conversation and what calls before put aside."""

CredentialWord = Literal["not-needed", "none", "attached", "unreadable", "rejected", "unreachable"]


def mount_id(installation_id: str) -> str:
    """The wire's name of a mount: of this installation, so that one added anew is another."""
    return sanitize.wire_id("mount:" + installation_id)


def page(agent_id: str, agent_name: str, report: MountSetReport) -> dto.Mounts:
    """The whole set."""
    rows = tuple(row(each) for each in report.mounts[:64])
    return dto.Mounts(agent=agent_id, agent_name=sanitize.line(agent_name), rows=rows)


def row(report: MountReport) -> dto.MountRow:
    """One mount with what each of its tools would do."""
    mount = report.row
    shown: list[dto.MountTool] = []
    size = 0
    for line in report.tools[:MOST_TOOLS]:
        tool = _tool(line)
        size += len(tool.summary.encode()) + len(tool.warning.encode()) + 100
        if size > ROW_BYTES:
            break
        shown.append(tool)
    word = credential_word(report)
    shape = report.credential_shape
    warnings = warnings_of(report)
    return dto.MountRow(
        id=mount_id(mount.installation_id),
        alias=sanitize.line(mount.alias),
        plugin=sanitize.line(mount.plugin),
        title=sanitize.line(report.plugin_title),
        state=report.state,
        state_words=sanitize.sentence(report.state_words),
        about=sanitize.sentence(about(mount.public_config, report.settings)),
        credential=word,
        credential_words=sanitize.sentence(credential_words(report)),
        account=sanitize.line(report.credential.account or str(mount.public_config.get("account", ""))),
        sign_in="" if shape.kind != "sign-in" else "greyed" if shape.why_not else "offered",
        sign_in_words=sanitize.sentence(shape.why_not),
        tools=tuple(shown),
        tools_left_out=len(report.tools) - len(shown),
        warnings=tuple(map(sanitize.sentence, warnings[:MOST_WARNINGS])),
        last_used_ms=mount.last_used_ms,
        can_refresh=report.can_refresh,
    )


def warnings_of(report: MountReport) -> list[str]:
    """What has to be looked at, and what was left out."""
    warnings = [*report.warnings, *(news_words(each, report.row) for each in report.news)]
    if report.consent is not None:
        warnings.append(f"It does nothing before you have agreed: {report.consent.effect}")
    if report.skipped:
        count = len(report.skipped)
        first = "; ".join(f"{name}: {why}" for name, why in report.skipped[:3])
        warnings.append(f"{count} tool{' was' if count == 1 else 's were'} left out: {first}.")
    return warnings


def _tool(line: ToolLine) -> dto.MountTool:
    return dto.MountTool(
        name=sanitize.line(line.name),
        summary=sanitize.sentence(line.summary),
        effect=line.effect,
        verdict=line.verdict,
        rules=max(0, line.rules),
        warning=sanitize.sentence(line.warning),
    )


def reaching(rows: Iterable[MountRow]) -> tuple[str, ...]:
    """The mounts, of those that may be used, by which more is reached than a folder and what was put aside."""
    return tuple(sanitize.line(row.alias) for row in rows if row.plugin not in _AT_HOME)


def about(config: Mapping[str, Any], settings: Sequence[Setting] = ()) -> str:
    """What a mount is set up with, in one line, under the names that its form has."""
    titles = {each.name: each.title for each in settings}
    parts = []
    for name, value in config.items():
        if name == "account" or value in ("", [], None):
            continue
        if isinstance(value, list | tuple):
            words = (" " if name == "command" else ", ").join(map(str, value))
        elif isinstance(value, bool):
            words = "yes" if value else "no"
        else:
            words = value if isinstance(value, str) else json.dumps(value)
        parts.append(f"{titles.get(name) or name.replace('_', ' ')}: {words}")
    return " · ".join(parts)


def credential_word(report: MountReport) -> CredentialWord:
    """How a mount stands with its credential: none needed, none there, there, or why it cannot be used."""
    state = report.credential
    if state.kind == "none":
        return "not-needed" if report.credential_shape.kind == "none" else "none"
    if state.kind != "attached":
        return "unreadable"
    checked = (state.verified or {}).get("state")
    return checked if checked in ("rejected", "unreachable") else "attached"


def credential_words(report: MountReport) -> str:
    """The same in a sentence, with what the last check came to."""
    state = report.credential
    detail = str((state.verified or {}).get("detail", ""))
    said = {
        "ok": "The other side took it when it was last checked.",
        "rejected": "The other side did not take it when it was last used or checked.",
        "unreachable": "The other side could not be reached when it was last checked, so it is not known.",
    }.get(str((state.verified or {}).get("state", "")), "")
    return " ".join(filter(None, (state.words, said, detail)))


def told(report: MountReport) -> dict[str, Any]:
    """A mount as a row of the command line."""
    mount = report.row
    return {
        "alias": mount.alias,
        "plugin": mount.plugin,
        "title": report.plugin_title,
        "state": report.state,
        "state_words": report.state_words,
        "config": dict(mount.public_config),
        "policy": dict(mount.policy),
        "credential": credential_word(report),
        "credential_words": credential_words(report),
        "account": report.credential.account,
        "tools": [line._asdict() for line in report.tools],
        "warnings": warnings_of(report),
        "last_used_ms": mount.last_used_ms,
        "installation": mount.installation_id,
    }
