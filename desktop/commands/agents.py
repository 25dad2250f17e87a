"""The commands about agents: what a new conversation is begun with.

Owns their arguments and how an agent is told of on a terminal. Must not know hosts. Invariant: instructions come
from a file or from standard input, whole and bounded, never from an argument that others could read.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from desktop.commands.terminal import Json, confirmed, fail, give_order, rows
from desktop.exit_codes import USAGE

agents_app = typer.Typer(help="Agents: instructions, model, what it may touch, tools.", no_args_is_help=True)

Description = Annotated[str | None, typer.Option(help="One line for people.")]
Instructions = Annotated[
    str | None, typer.Option(metavar="FILE|-", help="File with what the model is told first; - reads standard input.")
]
Harness = Annotated[str | None, typer.Option(help="Harness, e.g. native.agent.")]
ConnectorName = Annotated[str | None, typer.Option("--connector", help="Connector by name.")]
Model = Annotated[str | None, typer.Option(help="Model of the connector; without any, the usual one.")]
Reasoning = Annotated[str | None, typer.Option(help="Reasoning effort, where the model offers it.")]
PresetName = Annotated[
    str | None, typer.Option("--policy", help="chat touches nothing, read reads a folder, work works in one.")
]
Folder = Annotated[Path | None, typer.Option(help="The folder that is read or worked in.")]
Tool = Annotated[list[str] | None, typer.Option(help="A tool of Remuda’s own, such as clock; may be repeated.")]


@agents_app.command("list")
def agents_list(as_json: Json = False) -> int:
    """List the agents, what they go to and what they may touch."""
    return give_order("agents", {}, rows(as_json, _in_words))


def _in_words(row: dict[str, Any]) -> str:
    count = row["conversations"]
    lines = [f"{row['name']}  ({row['agent']}){'  for new conversations' if row['current'] else ''}"]
    lines += [f"    {row['description']}"] if row["description"] else []
    touches = f"{row['touches']}{' ' + row['folder'] if row['folder'] else ''}"
    lines.append(f"    {row['model']} · {touches} · {row['tools_in_words']}")
    lines.append(f"    {count} conversation{'' if count == 1 else 's'}")
    return "\n".join(lines)


@agents_app.command("show")
def agents_show(agent: str, as_json: Json = False) -> int:
    """Show an agent whole, with its instructions."""

    def line(row: dict[str, Any]) -> str:
        return f"{_in_words(row)}\n\n{row['instructions'] or 'No instructions.'}".rstrip("\n")

    return give_order("agent-show", {"agent": agent}, rows(as_json, line))


@agents_app.command("add")
def agents_add(
    name: str,
    description: Description = None,
    instructions: Instructions = None,
    harness: Harness = None,
    connector: ConnectorName = None,
    model: Model = None,
    reasoning: Reasoning = None,
    policy: PresetName = None,
    folder: Folder = None,
    tool: Tool = None,
    as_json: Json = False,
) -> int:
    """Make an agent. What its model's harness does not take is refused with the harness' reason."""
    order = {
        "name": name,
        "description": description,
        "instructions": _instructions(instructions, as_json),
        "harness": harness,
        "connector": connector,
        "model": model,
        "reasoning": reasoning,
        "preset": policy,
        "folder": _full(folder),
        "tools": tool,
    }
    return give_order("agent-add", order, rows(as_json, lambda row: f"{row['name']} is there ({row['agent']})"))


@agents_app.command("edit")
def agents_edit(
    agent: str,
    name: Annotated[str | None, typer.Option(help="What it is to be called.")] = None,
    description: Description = None,
    instructions: Instructions = None,
    harness: Harness = None,
    connector: ConnectorName = None,
    model: Model = None,
    reasoning: Reasoning = None,
    usual_model: Annotated[bool, typer.Option("--usual-model", help="Go to whatever is the usual model then.")] = False,
    policy: PresetName = None,
    folder: Folder = None,
    tool: Tool = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Take its tools away.")] = False,
    as_json: Json = False,
) -> int:
    """Change an agent. Conversations that are there keep what they began with; new ones take this."""
    if tool and no_tools:
        fail("USAGE", "Give --tool or --no-tools, not both.", USAGE, as_json=as_json)
    if usual_model and (harness or connector or model):
        fail("USAGE", "Give --usual-model or a model, not both.", USAGE, as_json=as_json)
    order = {
        "agent": agent,
        "name": name,
        "description": description,
        "instructions": _instructions(instructions, as_json),
        "harness": harness,
        "connector": connector,
        "model": model,
        "reasoning": reasoning,
        "usual_model": usual_model,
        "preset": policy,
        "folder": _full(folder),
        "tools": [] if no_tools else tool,
    }
    return give_order("agent-edit", order, rows(as_json, lambda row: f"{row['name']} is changed"))


@agents_app.command("duplicate")
def agents_duplicate(
    agent: str,
    as_name: Annotated[str | None, typer.Option("--as", help="What the other one is called.")] = None,
    as_json: Json = False,
) -> int:
    """Make another agent like this one, without its conversations."""
    order = {"agent": agent, "as": as_name}
    return give_order("agent-duplicate", order, rows(as_json, lambda row: f"{row['name']} is there ({row['agent']})"))


@agents_app.command("use")
def agents_use(agent: str, as_json: Json = False) -> int:
    """Begin new conversations with this agent from now on."""
    return give_order("agent-use", {"agent": agent}, rows(as_json, lambda row: f"{row['name']} is used from now on"))


@agents_app.command("delete")
def agents_delete(
    agent: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> int:
    """Delete an agent with its conversations, for good."""
    if not yes:
        row = confirmed("agent-delete", {"agent": agent}, "Delete it?", "Nothing was deleted.", as_json)
        if isinstance(row, int):
            return row
        agent = row["agent"]
    return give_order(
        "agent-delete", {"agent": agent, "confirmed": True}, rows(as_json, lambda row: f"{row['name']} is deleted")
    )


@agents_app.command("presets")
def agents_presets(
    harness: Harness = None, connector: ConnectorName = None, model: Model = None, as_json: Json = False
) -> int:
    """Say what each policy means for a model’s harness. Or why one is not offered."""

    def line(row: dict[str, Any]) -> str:
        return (
            f"{row['preset']}  {row['title']}\n    {row['means'] if row['offered'] else 'Not here: ' + row['why_not']}"
        )

    return give_order("presets", {"harness": harness, "connector": connector, "model": model}, rows(as_json, line))


def _full(folder: Path | None) -> str | None:
    return os.path.abspath(os.path.expanduser(folder)) if folder is not None else None


def _instructions(source: str | None, as_json: bool) -> str | None:
    if source is None:
        return None
    from desktop.agents import INSTRUCTIONS_BYTES

    try:
        if source == "-":
            content = sys.stdin.buffer.read(INSTRUCTIONS_BYTES + 1)
        else:
            with open(source, "rb") as file:
                content = file.read(INSTRUCTIONS_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as fault:
        fail("USAGE", f"The instructions {source} cannot be read: {fault.strerror}.", USAGE, as_json=as_json)
    except ValueError:
        fail("USAGE", f"The instructions {source} are no text in UTF-8.", USAGE, as_json=as_json)
    if len(content) > INSTRUCTIONS_BYTES:
        fail("USAGE", f"Instructions take at most {INSTRUCTIONS_BYTES // 1024} KiB.", USAGE, as_json=as_json)
    return text
