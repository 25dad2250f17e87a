"""Rows of the short lists over the conversation and of the self-test: notices, walls and probes.

Owns their wording. Must not know Qt: the rows are plain maps for a `ListModel`.
"""

from typing import Any

from ui.store import Store
from ui.text.visible import one_line, visible


def notices(store: Store) -> list[dict[str, Any]]:
    tones = {"info": "elsewhere", "warning": "waiting", "error": "failed"}
    icons = {"info": "info", "warning": "warning", "error": "failed"}
    words = {"info": "Note", "warning": "Take note", "error": "Problem"}
    return [
        {
            "id": notice.id,
            "tone": tones[notice.level],
            "icon": icons[notice.level],
            "word": words[notice.level],
            "words": visible(notice.text),
            "sticky": notice.sticky,
            "said": f"{words[notice.level]}: {visible(notice.text)}",
        }
        for notice in store.notices.values()
    ]


_STATES = {
    "up": ("up", "check", "Stands"),
    "down": ("failed", "failed", "Down"),
    "blocked": ("up", "check", "Blocked"),
    "open": ("failed", "failed", "Open"),
    "not-applicable": ("done", "incomplete", "Not applicable"),
}
"""Of a wall or a probe: colour, icon, word."""


def isolation(store: Store) -> list[dict[str, Any]]:
    """Walls, then probes, each under its heading."""
    report = store.isolation
    if report is None:
        return []
    walls = [_finding(wall.name, wall.state, wall.detail) for wall in report.walls]
    probes = [_finding(probe.name, probe.verdict, probe.detail) for probe in report.probes]
    for heading, rows in (("Walls", walls), ("What was tried from inside this window", probes)):
        if rows:
            rows[0]["heading"] = heading
    return walls + probes


def _finding(name: str, state: str, detail: str) -> dict[str, Any]:
    tone, icon, word = _STATES[state]
    said = one_line(name)
    return {
        "heading": "",
        "name": said[:1].upper() + said[1:],
        "detail": visible(detail),
        "tone": tone,
        "icon": icon,
        "word": word,
        "said": f"{said}: {word}. {visible(detail)}",
    }
