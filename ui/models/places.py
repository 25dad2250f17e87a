"""Rows of what is set up: connections, models, agents, profiles, what was found, what is stored.

Owns their wording. Must not know Qt: the rows are plain maps for a `ListModel`. Invariant: a
name from elsewhere never reorders the words around it.
"""

from collections.abc import Sequence
from typing import Any

from ui.setup import Setup, counted, size_words
from ui.text.visible import LRI, PDI, has_right_to_left, isolated, one_line, visible
from ui.wire import dto

BADGES = {"": "", "assumed": "assumed", "declared": "declared by you"}
"""Where facts come from, if not from the provider."""

LONGEST = 40
"""Most characters of one part of the header's sentence; the whole is its accessible name."""

PATH_CHARS = 44
"""Most characters of a path that is shown in passing; the whole is in its tip and its accessible description."""

NO_IMAGES = "cannot take images"

NEEDS = {"never": "", "optional": "", "required": "needs a folder"}
"""What an entry of the picker wants of a folder."""

HARNESS_STATES = {
    "ready": ("Ready", "check", "up"),
    "missing": ("Not here", "incomplete", "stopped"),
    "unsupported": ("Not supported", "warning", "waiting"),
    "unusable": ("Not usable", "failed", "failed"),
    "looking": ("Looking", "working", "working"),
    "unconnected": ("Needs a key", "key", "stopped"),
}
"""Word, icon and colour of how a harness stands."""

SUPPORT = {
    "native": ("native", "check", "up"),
    "emulated": ("emulated", "again", "elsewhere"),
    "unsupported": ("not supported", "incomplete", "stopped"),
}
"""Word, icon and colour of who does a thing that a harness may be able to do."""

TESTS = {"": ("", "done"), "ok": ("check", "up"), "problem": ("failed", "failed")}
"""Icon and colour of what a test found."""


def name(text: str) -> str:
    """A name among other words."""
    return isolated(one_line(text))


def parts(text: str) -> str:
    """A line of the host whose parts may be names: each kept to itself."""
    return " · ".join(isolated(part) for part in _cut(text))


def whole_parts(text: str) -> str:
    """The same on several lines: it breaks between the parts, and no part is so long that it hides the others."""
    short = (part if len(part) <= LONGEST else f"{part[: LONGEST // 2]}…{part[-LONGEST // 2 :]}" for part in _cut(text))
    return " · ".join(isolated(part.replace(" ", "\u00a0")) for part in short)


def _cut(text: str) -> list[str]:
    return one_line(text).split(" · ")


def path_words(path: str) -> str:
    """A path, its parts in their order whatever script they are in."""
    line = one_line(path)
    return f"{LRI}{'/'.join(isolated(part) for part in line.split('/'))}{PDI}" if has_right_to_left(line) else line


def short_path(path: str) -> str:
    """The same, with its middle left out where it is long: where it begins, and where it leads."""
    line = one_line(path)
    if len(line) <= PATH_CHARS:
        return path_words(line)
    parts = line.split("/")
    first = "/".join(parts[:2]) if line.startswith("/") else parts[0]
    last = parts[-1]
    for part in reversed(parts[:-1]):
        if len(first) + len(last) + len(part) + 4 > PATH_CHARS:
            break
        last = f"{part}/{last}"
    room = max(8, PATH_CHARS - len(first) - 3)
    if len(last) > room:
        last = f"{last[: room // 2]}…{last[-(room - room // 2) :]}"
    if len(first) > PATH_CHARS // 2:
        first = first[: PATH_CHARS // 2]
    return path_words(f"{first}/…/{last}")


def sentence_case(text: str) -> str:
    """Words of the host at the beginning of a line."""
    line = one_line(text)
    return line[:1].upper() + line[1:]


def joined(*words: str, by: str = " · ") -> str:
    return by.join(word for word in words if word)


def choice_row(choice: dto.Choice, chosen: str | None, effort: str) -> dict[str, Any]:
    """One entry of the picker or of the page of models."""
    facts = joined(name(choice.context), name(choice.price))
    marks = joined(BADGES[choice.badge], "" if choice.images else NO_IMAGES, by=", ")
    efforts = [one_line(word) for word in choice.efforts]
    note = visible(choice.note)
    here = choice.id == chosen
    said = [
        one_line(choice.model), one_line(choice.connector), one_line(choice.context), one_line(choice.price),
        f"efforts {', '.join(efforts)}" if efforts else "", marks, "default" if choice.default else "", note,
        "" if choice.available else "not available",
    ]  # fmt: skip
    return {
        "id": choice.id,
        "model": name(choice.model),
        "connector": name(choice.connector),
        "facts": facts,
        "efforts": efforts,
        "effort": effort if here else "",
        "marks": marks,
        "note": note,
        "available": choice.available,
        "default": choice.default,
        "chosen": here,
        "said": ", ".join(word for word in said if word),
    }


def offer(rows: Sequence[dto.Choice], chosen: str | None, effort: str) -> list[dict[str, Any]]:
    """The picker: a heading where harness or connection changes, with what they mean."""
    made = []
    before = None
    for choice in rows:
        row = choice_row(choice, chosen, effort)
        group = (choice.harness, choice.connector, choice.runs, choice.touches, choice.bills, choice.folder)
        fresh = group != before
        row["heading"] = joined(name(choice.harness), name(choice.connector)) if fresh else ""
        badges = (("Runs", choice.runs), ("touches", choice.touches), ("bills", choice.bills))
        means = [f"{word} {name(value)}" for word, value in badges if value]
        row["means"] = joined(*means, NEEDS[choice.folder]) if fresh else ""
        before = group
        made.append(row)
    return made


def models(setup: Setup) -> list[dict[str, Any]]:
    """The page of models; of one connection it also says which is its default."""
    narrowed = setup.connector(setup.models.connector)
    rows = []
    for choice in setup.models.rows:
        row = choice_row(choice, None, "")
        own = narrowed is not None and bool(narrowed.default_model) and choice.model == narrowed.default_model
        if own:
            row["said"] += ", default of this connector"
        row |= {"own": own, "narrowed": narrowed is not None, "declarable": choice.connector_id is not None}
        rows.append(row)
    return rows


def connectors(setup: Setup) -> list[dict[str, Any]]:
    rows = []
    for row in setup.connectors:
        icon, tone = TESTS[row.test]
        what = joined(one_line(row.vendor), name(row.address))
        default = f"default {name(row.default_model)}" if row.default_model else ""
        state = joined(sentence_case(row.key), counted(row.models, "model") if row.models else "", default)
        tested = "Testing" if row.testing else visible(row.tested)
        rows.append(
            {
                "id": row.id,
                "name": name(row.name),
                "what": what,
                "state": state,
                "used": parts(row.used_by),
                "tested": tested,
                "icon": "" if row.testing else icon,
                "tone": "done" if row.testing else tone,
                "testing": row.testing,
                "removable": row.removable,
                "models": row.models,
                "said": joined(name(row.name), what, state, parts(row.used_by), tested, by=", "),
            }
        )
    return rows


def found(setup: Setup) -> list[dict[str, Any]]:
    return [
        {
            "id": row.id,
            "icon": "server" if row.kind == "server" else "program",
            "name": name(row.name),
            "detail": parts(row.detail),
            "note": visible(row.note),
            "usable": row.usable,
            "said": joined(name(row.name), parts(row.detail), visible(row.note), by=", "),
        }
        for row in setup.found.rows
    ]


def harnesses(setup: Setup) -> list[dict[str, Any]]:
    return [_harness(row) for row in setup.harnesses or ()]


def _harness(row: dto.HarnessRow) -> dict[str, Any]:
    word, icon, tone = HARNESS_STATES[row.state]
    version = f"Version {name(row.version)}" if row.version else ""
    # Of one that is not here, the way to it says which.
    supported = f"Works with {name(row.supported)}" if row.supported and (row.version or not row.way) else ""
    words, codes = way(row.way)
    counts = [(kind, sum(badge.support == kind for badge in row.badges)) for kind in SUPPORT]
    summary = joined(*(f"{count} {SUPPORT[kind][0]}" for kind, count in counts if count), by=", ")
    return {
        "id": row.id,
        "name": name(row.name),
        "state": row.state,
        "word": word,
        "icon": icon,
        "tone": tone,
        "words": visible(row.sentence),
        "touches": visible(row.touches),
        "held": visible(row.held),
        "versions": joined(version, supported, "picked by you" if row.picked else ""),
        "path": path_words(row.path),
        "way": words if row.state != "ready" else "",
        "wayCodes": codes if row.state != "ready" else [],
        "program": row.program,
        "picked": row.picked,
        "runs": f"Runs {row.runs}" if row.runs else "",
        "billing": visible(row.billing),
        "cap": visible(row.cap),
        "canCap": row.can_cap,
        "connect": row.connect,
        "summary": summary,
        "badges": [_badge(badge) for badge in row.badges],
        "said": joined(
            name(row.name),
            word,
            visible(row.sentence),
            visible(row.touches),
            visible(row.billing),
            visible(row.cap),
            version,
            summary,
            by=", ",
        ),
    }


def _badge(badge: dto.HarnessBadge) -> dict[str, Any]:
    word, icon, tone = SUPPORT[badge.support]
    note = visible(badge.note)
    what = sentence_case(badge.name)
    return {
        "name": what, "word": word, "icon": icon, "tone": tone, "note": note, "said": joined(what, word, note, by=", "),
    }  # fmt: skip


def way(text: str) -> tuple[str, list[str]]:
    """What there is to do in words, and the commands in it, which stand between backticks."""
    words = visible(text)
    # What no second backtick closes is no command.
    codes = [code.strip() for code in words.split("`")[1:-1:2]]
    return words.replace("`", ""), [code for code in codes if code]


def agents(setup: Setup) -> list[dict[str, Any]]:
    return [
        {
            "id": row.id,
            "name": name(row.name) or "Agent",
            "description": visible(row.description),
            "sentence": parts(row.sentence),
            "preset": parts(row.preset),
            "tools": parts(row.tools),
            "count": counted(row.conversations, "conversation") if row.conversations else "No conversation yet",
            "current": row.current,
            "said": joined(name(row.name), visible(row.description), parts(row.sentence), parts(row.preset), by=", "),
        }
        for row in setup.agents or ()
    ]


def profiles(setup: Setup) -> list[dict[str, Any]]:
    return [
        {
            "id": row.id,
            "name": name(row.name) or "Profile",
            "state": "this window" if row.current else "open in another window" if row.running else "",
            "current": row.current,
            "running": row.running,
            "said": joined(name(row.name), "this window" if row.current else "open" if row.running else "", by=", "),
        }
        for row in setup.profiles or ()
    ]


def stored(setup: Setup) -> list[dict[str, Any]]:
    if setup.stored is None:
        return []
    return [
        {
            "what": name(row.what),
            "path": visible(row.path),
            "size": size_words(row.size_bytes) if row.size_bytes else "",
            "words": visible(row.sentence),
            "said": joined(
                name(row.what), visible(row.path), size_words(row.size_bytes), visible(row.sentence), by=", "
            ),
        }
        for row in setup.stored.rows
    ]


def progress(setup: Setup) -> list[dict[str, Any]]:
    rows = []
    for row in setup.progress.values():
        share = min(1.0, row.done / row.of) if row.of else -1.0
        words = visible(row.sentence)
        rows.append(
            {
                "id": row.id,
                "words": words,
                "share": share,
                "percent": f"{share:.0%}" if row.of else "",
                "said": joined(words, f"{share:.0%}" if row.of else "", by=", "),
            }
        )
    return rows
