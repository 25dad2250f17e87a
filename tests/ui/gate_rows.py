"""What waits for a person, as rows: mounts of every kind, calls of every decision, messages of a queue.

Owns the words that scenes and tests show. Must not know how they are shown.
"""

import re
from typing import Any, Literal

from ui.wire import dto

LOUD = "W" * 180
RTL = "עוזר הבית של משפחת כהן"
HOSTILE = "safe\u202etxt.exe\u2066\x1b[31m\x07\nOn, without asking"


def tool(
    name: str,
    effect: Literal["read", "write"] = "read",
    verdict: Literal["allow", "approval", "deny"] = "allow",
    summary: str = "",
    rules: int = 0,
    warning: str = "",
) -> dto.MountTool:
    return dto.MountTool(name=name, summary=summary, effect=effect, verdict=verdict, rules=rules, warning=warning)


FILES = (
    tool("list", summary="Lists the files of a folder inside the one that you chose."),
    tool("read", summary="Reads a file of the folder."),
    tool("search", summary="Searches the folder for words or a pattern."),
    tool("edit", "write", "approval", "Changes a file of the folder. You see the difference first.", 2),
    tool("run", "write", "approval", "Runs a command in the folder, without network."),
)
ISSUES = (
    tool("list_issues", summary="Lists the open issues of a repository."),
    tool("create_issue", "write", "approval", "Opens a new issue under your name."),
    tool("delete_repository", "write", "deny", "Deletes a repository for good."),
)
SIBLING = (
    "“hub” asks before it writes; this one has the same tools and does not. What is stopped there goes through here."
)


def mount(alias: str, plugin: str, title: str, **more: Any) -> dto.MountRow:
    values: dict[str, Any] = {"id": f"m-{alias[:40]}", "state": "on", **more}
    values["id"] = re.sub(r"[^A-Za-z0-9._-]", "_", values["id"])
    return dto.MountRow(alias=alias, plugin=plugin, title=title, **values)


def every_mount(now_ms: int) -> tuple[dto.MountRow, ...]:
    """Eight mounts: every state, and every meaning of a credential."""
    hour = 3_600_000
    return (
        mount(
            "files",
            "workspace",
            "Files of the folder",
            tools=FILES,
            last_used_ms=now_ms - hour // 20,
            about="Only in conversations with a folder. Commands run walled in: no network, nothing outside it.",
        ),
        mount(
            "hub",
            "mcp",
            "Code hub",
            tools=ISSUES,
            credential="attached",
            account="ada@example.org",
            credential_words="Checked 2 h ago: it is taken.",
            about="https://mcp.example.org/v1",
            last_used_ms=now_ms - 5 * hour,
            can_refresh=True,
            sign_in="offered",
        ),
        mount(
            "hub_ci",
            "mcp",
            "Code hub",
            credential="attached",
            account="build robot",
            can_refresh=True,
            about="https://mcp.example.org/v1",
            tools=(
                ISSUES[0],
                tool(
                    "create_issue",
                    "write",
                    "allow",
                    ISSUES[1].summary,
                    warning="Not asked here, though “hub” asks for the same.",
                ),
            ),
            warnings=(SIBLING,),
            last_used_ms=now_ms - 40 * 24 * hour,
        ),
        mount(
            "web",
            "http",
            "Web addresses",
            state="off",
            state_words="Web addresses is switched off for this agent.",
            about="Addresses on the public web only; none of this computer or network.",
            tools=(
                tool("get", "read", "approval", "Reads an address."),
                tool("send", "write", "approval", "Sends something to an address."),
            ),
        ),
        mount(
            "calendar",
            "mcp",
            "Calendar",
            state="unavailable",
            credential="none",
            sign_in="greyed",
            state_words="Its server did not start: the program “calendar-mcp” was not found.",
            credential_words="Nobody has attached one yet.",
            about="calendar-mcp --stdio, with CALENDAR_TOKEN",
            sign_in_words="Signing in is not possible here yet. Attach a token instead.",
        ),
        mount(
            "tickets",
            "http",
            "Ticket desk",
            credential="rejected",
            account="helpdesk",
            credential_words="tickets.example.org refused it 4 min ago (401). Attach another one.",
            about="Only tickets.example.org",
            tools=(tool("get", summary="Reads a ticket."),),
            last_used_ms=now_ms - hour // 15,
        ),
        mount(
            "mail",
            "mcp",
            "Mail",
            state="other-version",
            credential="unreachable",
            account="ada@example.org",
            state_words="It was mounted with version 1, and there is 2 now. Look at it again.",
            credential_words="mail.example.org did not answer, so it is not known whether it is taken.",
            about="https://mail.example.org/mcp",
            can_refresh=True,
            warnings=("2 tools are new, 1 says something else about itself.",),
            tools=(tool("send_mail", "write", "deny"),),
        ),
        mount(
            "archive",
            "artifacts",
            "Results put aside",
            state="put-away",
            credential="unreadable",
            state_words="Switched off. Nothing of it is offered; what it is set up with stays.",
            credential_words="The key of the key store does not open it. Write the credential again.",
            tools=(tool("read", summary="Reads a result that was too long to be given to the model."),),
        ),
    )


def many_tools() -> dto.MountRow:
    """A mount of sixty tools, and more that are not listed."""
    verdicts: tuple[Literal["allow", "approval", "deny"], ...] = ("allow", "approval", "deny")
    tools = tuple(
        tool(
            f"tool_number_{n}",
            "write" if n % 3 else "read",
            verdicts[n % 3],
            f"Does thing {n} to what you name.",
            n % 4,
        )
        for n in range(60)
    )
    return mount("everything", "mcp", "A server of many tools", tools=tools, tools_left_out=12, can_refresh=True)


def hostile_mounts() -> tuple[dto.MountRow, ...]:
    return (
        mount(
            HOSTILE,
            HOSTILE,
            HOSTILE,
            id="m-hostile",
            about=HOSTILE,
            credential="attached",
            account=HOSTILE,
            credential_words=HOSTILE,
            warnings=(HOSTILE,),
            tools=(tool(HOSTILE, "write", "approval", HOSTILE, 1, HOSTILE),),
        ),
        mount(
            LOUD,
            LOUD,
            LOUD + "x",
            about="a" * 1500,
            state_words="word " * 200,
            account=LOUD,
            credential="rejected",
            credential_words="b" * 600,
            warnings=("w" * 700,),
            tools=(tool(LOUD, "write", "deny", "c" * 900),),
            sign_in="greyed",
            sign_in_words="d" * 300,
        ),
        mount(
            RTL,
            "mcp",
            "שרת הבית",
            about="https://בית.example.org/כלים, 3 כלים",
            credential="attached",
            account="עדה@example.org",
            tools=(tool("מצא_קובץ", "read", "allow", "מחפש קובץ בתיקייה server/clock.py ומחזיר אותו."),),
        ),
    )


def mounts_page(*rows: dto.MountRow, agent_name: str = "Assistant") -> dto.Mounts:
    return dto.Mounts(agent="a1", agent_name=agent_name, rows=rows)


# ------------------------------------------------------------------------- calls

EFFECT = "Opens an issue in harbour/timetables under the name ada@example.org. Everybody can see it."
ISSUE = '{"repository":"harbour/timetables","title":"Night ferry an hour late in March","labels":["bug"]}'


def call(decided: str, operation: str = "o1", **more: Any) -> dto.ToolCard:
    values: dict[str, Any] = {"name": "hub_create_issue", "arguments": ISSUE, "effect": EFFECT, **more}
    return dto.ToolCard(operation=operation, decided=decided, **values)  # type: ignore[arg-type]


CALLS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("approved", "complete", '{"issue": 418}', {"duration_ms": 912}),
    ("denied", "failed", "", {}),
    ("expired", "failed", "", {}),
    ("stale", "failed", "", {}),
)
"""Decided calls: decision, state, result, more of the card."""

# ------------------------------------------------------------------------- queue


def queued(kind: str, text: str, name: str) -> dto.QueuedRow:
    return dto.QueuedRow(id=name, kind=kind, text=text, size_chars=len(text))  # type: ignore[arg-type]


STEERS = (queued("steer", "Use the harbour’s own time zone, not that of the server.", "q1"),)
FOLLOW_UPS = (
    queued("follow_up", "Then write two sentences for the crew about what changed.", "q2"),
    queued("follow_up", "Look at the timetable of April too.", "q3"),
    queued("follow_up", "Is there a test for October, when the clocks go back?", "q4"),
)


def twelve() -> tuple[dto.QueuedRow, ...]:
    return (
        *STEERS,
        *(queued("follow_up", f"Step {n}: look at line {n} of the timetable.", f"q{n}") for n in range(2, 13)),
    )


def long_queue() -> tuple[dto.QueuedRow, ...]:
    return (
        queued("steer", "word " * 400, "q1"),
        queued("follow_up", "x" * 4_000, "q2"),
        dto.QueuedRow(id="q3", kind="follow_up", text="The beginning of a very long message. " * 30, size_chars=40_000),
        queued("follow_up", "קודם כול בדוק את השעון ב־server/clock.py ואז ספר לי", "q4"),
        queued("follow_up", "first line\nsecond line\nthird line\nfourth line", "q5"),
    )
