"""The commands about files: given to a conversation at a service, listed, fetched from it.

Owns their arguments and output. Must not know hosts, nor how a file is moved.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from desktop import file_names
from desktop.commands.terminal import Json, Show, give_order, place, plain, print_json, rows
from desktop.exit_codes import COMPLETED
from desktop.sizes import size_words

UNKNOWN = "application/octet-stream"
Type = Annotated[
    str | None, typer.Option("--type", help="What the file is, as in text/csv; else its name and content say.")
]
To = Annotated[Path | None, typer.Option("--to", help="The new file; else its own name, in this folder.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("upload")(upload)
    app.command("artifacts")(artifacts)
    app.command("download")(download)


def upload(session: str, file: Path, type: Type = None, as_json: Json = False) -> int:
    """Give the agent of a session at a service a file."""

    def line(row: dict[str, Any]) -> str:
        said = f"{row['reference']}: {size_words(row['size_bytes'])}, {row['media_type']}"
        return "\n".join(filter(None, (said, row.get("name_changed", ""))))

    if type is None and place.runtime_host is not None:
        type = UNKNOWN
    return _moving("upload", {"session": session, "path": _named(file), "type": type}, line, as_json)


def artifacts(session: str, as_json: Json = False) -> int:
    """List the files that the agent of a session made and gives out."""
    listed: list[dict[str, Any]] = []

    def line(row: dict[str, Any]) -> str:
        listed.append(row)
        return f"{row['reference']}  {row['name']}"

    code = give_order("artifacts", {"session": session}, rows(as_json, line))
    if code == COMPLETED and not as_json and not listed:
        print("It made no files. Those that it writes to its folder of outputs are listed here.")
    return code


def download(session: str, reference: str, to: To = None, as_json: Json = False) -> int:
    """Fetch a file that the agent of a session made. Nothing is overwritten."""
    if to is None:
        found: dict[str, Any] = {}

        def take(answer: dict[str, Any]) -> None:
            if "row" not in answer:
                rows(as_json, str)(answer)
            elif answer["row"]["reference"] == reference:
                found.update(answer["row"])

        code = give_order("artifacts", {"session": session}, take)
        if code != COMPLETED:
            return code
        to = Path(found.get("save_as") or file_names.FALLBACK)

    def line(row: dict[str, Any]) -> str:
        return f"{plain(row['path'])}: {size_words(row['size_bytes'])}, {row['media_type']}"

    return _moving("download", {"session": session, "reference": reference, "to": _named(to)}, line, as_json)


def _named(path: Path) -> str:
    """A path as whoever carries the order out finds it."""
    # A runtime of a module has a transfer folder of its own, in which files are named.
    return str(path) if place.runtime_host is not None else str(path.expanduser().absolute())


def _moving(command: str, arguments: dict[str, Any], line: Any, as_json: bool) -> int:
    show: Show = rows(as_json, line)
    on_terminal = not as_json and sys.stderr.isatty()

    def take(answer: dict[str, Any]) -> None:
        if "progress" not in answer:
            if on_terminal:
                print("\r\x1b[K", end="", file=sys.stderr)
            show(answer)
        elif as_json:
            print_json({"type": "progress", **answer["progress"]})
        elif on_terminal:
            done, total = answer["progress"]["done_bytes"], answer["progress"]["total_bytes"]
            of = f" of {size_words(total)}" if total else ""
            print(f"\r\x1b[K{size_words(done)}{of}", end="", file=sys.stderr, flush=True)

    return give_order(command, arguments, take)
