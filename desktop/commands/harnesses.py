"""The commands about harnesses: which there are, how they stand, and which program one is.

Owns their arguments and output, and what the doctor says of programs. Must not know hosts.
"""

from typing import Annotated, Any

import typer

from desktop.commands.terminal import Json, give_order, plain, rows

harnesses_app = typer.Typer(
    help="List harnesses: what is here, what each may do, and with which connectors.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

_STATES = {
    "ready": "ready",
    "missing": "NOT HERE",
    "unsupported": "VERSION NOT KNOWN TO WORK",
    "unusable": "NOT USED",
    "looking": "being looked for",
    "unconnected": "NEEDS A CONNECTOR",
}


@harnesses_app.callback()
def harnesses(context: typer.Context, as_json: Json = False) -> int | None:
    """List harnesses: what is here, what each may do, and with which connectors."""
    if context.invoked_subcommand is not None:
        return None
    raise typer.Exit(give_order("harnesses", {}, rows(as_json, _in_words)))


@harnesses_app.command("pick")
def pick(harness: str, path: str, as_json: Json = False) -> int:
    """Use the program at PATH for a harness (codex or claude) from now on. It is asked for its version first."""
    from pathlib import Path

    return give_order(
        "harness-pick", {"harness": harness, "path": str(Path(path).expanduser().absolute())}, rows(as_json, _in_words)
    )


@harnesses_app.command("forget")
def forget(harness: str, as_json: Json = False) -> int:
    """Use again the program of a harness that is found by itself."""
    return give_order("harness-forget", {"harness": harness}, rows(as_json, _in_words))


@harnesses_app.command("cap")
def cap(
    harness: str,
    cents: Annotated[str, typer.Argument(help="Whole US cents, such as 250 for $2.50, or none.")],
    as_json: Json = False,
) -> int:
    """Hold each conversation that begins from now on in a harness at a provider to an amount."""
    amount = "" if cents == "none" else cents or "?"
    return give_order("harness-cap", {"harness": harness, "cents": amount}, rows(as_json, _in_words))


@harnesses_app.command("allow")
def allow(harness: str, environment: str, as_json: Json = False) -> int:
    """Let sessions of a harness at a provider be opened in this environment of yours there."""
    return give_order("harness-allow", {"harness": harness, "environment": environment}, rows(as_json, _in_words))


@harnesses_app.command("disallow")
def disallow(harness: str, environment: str, as_json: Json = False) -> int:
    """Open no session in that environment any more."""
    return give_order("harness-disallow", {"harness": harness, "environment": environment}, rows(as_json, _in_words))


def _in_words(row: dict[str, Any]) -> str:
    program = row["program"] or {}
    version = f"  {program['version']}" if program.get("version") else ""
    lines = [f"{row['harness']}  {row['name']}{version}  {_STATES[row['state']]}"]
    service = row.get("service") or {}
    lines += [row["sentence"], row["touches"], row["held"], *(service.get(key, "") for key in ("billing", "cap"))]
    if program.get("path"):
        lines.append(f"{program['path']}  ({program['taken']}; known to work: {program['supported']})")
    if row["state"] != "ready":
        lines.append(program.get("way", "") or service.get("way", ""))
    for offer in row["connectors"]:
        state = "" if offer["available"] else "  (not available)"
        lines.append(
            f"{offer['connector']}: {', '.join(offer['models'][:5])}{state} · runs {offer['runs']} · "
            f"bills {offer['bills']}"
        )
        lines.append(offer["note"])
    can = [entry["name"] for entry in row["capabilities"].values() if entry["support"] != "unsupported"]
    cannot = [entry["name"] for entry in row["capabilities"].values() if entry["support"] == "unsupported"]
    lines += [f"{word}: {'; '.join(names).lower()}" for word, names in (("can", can), ("cannot", cannot)) if names]
    return "\n    ".join(line for line in lines if line)


def programs() -> dict[str, Any]:
    """What the doctor says of harness programs and of the walls around their commands."""
    found: dict[str, Any] = {"programs": []}

    def take(answer: dict[str, Any]) -> None:
        if "row" in answer:
            found["programs"].append(answer["row"])
        elif "walls" in answer:
            found["program_walls"] = answer["walls"]
        elif "error" in answer:
            found["program_walls"] = {"holds": False, "sentence": answer["error"]["message"]}

    give_order("programs", {}, take)
    return found


def _attempt(tried: dict[str, str]) -> str:
    mark = {"blocked": "blocked", "open": "OPEN"}.get(tried["verdict"], tried["verdict"])
    without = "; without a wall it works" if tried["without"] == "open" else ""
    return f"  {mark:14}  {tried['name']}  {tried['detail']}{without}".rstrip()


def programs_in_words(found: dict[str, Any]) -> str:
    """The same for people; empty where nothing was asked."""
    if not found:
        return ""
    lines = ["", "Harness programs"]
    for row in found["programs"]:
        words = " ".join(filter(None, (row["version"], row["path"], row["sentence"])))
        lines.append(f"  {_STATES[row['state']]:14}  {row['name']}  {words}".rstrip())
    walls = found.get("program_walls")
    if walls is not None:
        lines += ["", "Walls around what harnesses run"]
        lines.append(f"  {'stands' if walls['holds'] else 'MISSING':14}  {walls['sentence']}")
        lines += [f"  {'':14}  {sentence}" for sentence in walls.get("weaker", ())]
        lines += [_attempt(tried) for tried in walls.get("attempts", ())]
    return plain("\n".join(lines) + "\n")
