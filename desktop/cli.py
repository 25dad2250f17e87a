"""The command line: talks to the running host of the profile, or becomes the host for one command.

Owns arguments, output and exit codes. With `--json` it prints one JSON object a line. Exit codes:
0 completed, 1 failed, 2 usage, 3 cancelled, 4 incomplete, 5 outcome unknown, 6 the running host
does not answer.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from desktop import host_lock, paths, process, terms, transcripts
from desktop.build import VERSION
from desktop.commands import files as files_commands
from desktop.commands import harnesses as harness_commands
from desktop.commands import network as network_commands
from desktop.commands import storage as storage_commands
from desktop.commands.agents import agents_app
from desktop.commands.connectors import connectors_app
from desktop.commands.harnesses import harnesses_app
from desktop.commands.mounts import mounts_app
from desktop.commands.profiles import profiles_app
from desktop.commands.terminal import Json, fail, give_order, json_text, place, plain, print_json, rows, show_error
from desktop.exit_codes import COMPLETED, FAILED, SILENT, UNKNOWN, USAGE

app = typer.Typer(
    name="remuda",
    help="Chat with swappable agent harnesses. Without a command: the app.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(connectors_app, name="connectors")
app.add_typer(agents_app, name="agents")
app.add_typer(harnesses_app, name="harnesses")
app.add_typer(mounts_app, name="mounts")
app.add_typer(profiles_app, name="profiles")

_USAGE_ERROR: Any = typer.BadParameter.__base__
"""What typer raises for arguments that make no sense; it names only some of its kinds."""

LONGEST_DEED_CHARS = 300

Harness = Annotated[str | None, typer.Option(help="Harness, e.g. native.agent.")]
ConnectorName = Annotated[str | None, typer.Option("--connector", help="Connector by name.")]
Model = Annotated[str | None, typer.Option(help="Model of the connector.")]
Reasoning = Annotated[str | None, typer.Option(help="Reasoning effort, where the model offers it.")]
Environment = Annotated[str | None, typer.Option(help="none, dir:PATH or managed.")]
AgentName = Annotated[str | None, typer.Option("--agent", help="Agent by name or id; else the one in use.")]
PolicyName = Annotated[str | None, typer.Option("--policy", help="chat touches nothing, read reads, work works.")]


@app.callback()
def _options(
    context: typer.Context,
    data_dir: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder that holds everything (else REMUDA_HOME).")
    ] = None,
    profile: Annotated[str | None, typer.Option(metavar="PROFILE", help="Profile to use, by id or name.")] = None,
    runtime_host: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="Trusted code that makes the runtime; without a command: a console."
        ),
    ] = None,
    runtime_resume: Annotated[
        str | None, typer.Option(metavar="SESSION", help="With --runtime-host: the session the console begins with.")
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False,
) -> None:
    if version:
        print(f"Remuda {VERSION}")
        raise typer.Exit(COMPLETED)
    place.data_dir = data_dir
    place.profile = profile
    place.runtime_host = runtime_host
    if context.invoked_subcommand is not None:
        return
    if runtime_host is None:
        print(context.get_help())
        raise typer.Exit(USAGE)
    from desktop.commands.runtime_console import console

    raise typer.Exit(asyncio.run(console(runtime_host, place.paths(), runtime_resume)))


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns the exit code."""
    process.undumpable()
    command = typer.main.get_command(app)
    try:
        result = command.main(args=list(arguments), prog_name="remuda", standalone_mode=False)
    except typer.Exit as ended:
        return int(ended.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return 3
    except BrokenPipeError:
        # Who read the output has left; there is nobody to tell, at the end of the process neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except _USAGE_ERROR as fault:
        fault.show()
        return USAGE
    return int(result or 0)


# -------------------------------------------------------------------------- run


class _RunLines:
    """Prints a run: each event and the result as a line of JSON, or the reply as it comes."""

    def __init__(self, *, as_json: bool, detach: bool = False) -> None:
        self._as_json, self._detach = as_json, detach
        self._accepted: dict[str, Any] = {}
        self._message = ""
        self._in_line = False

    def __call__(self, answer: dict[str, Any]) -> None:
        if "accepted" in answer:
            self._accepted = answer["accepted"]
            if self._detach:
                print_json(self._accepted) if self._as_json else print(self._accepted["session"])
        elif "error" in answer:
            if answer["error"]["code"] != "HOST_LOST" or not self._accepted:
                show_error(answer["error"], self._as_json)
        elif self._as_json:
            print_json(answer.get("event") or answer["result"])
        elif "event" in answer:
            self._event(answer["event"])
        elif "result" in answer:
            self._result(answer["result"])

    def _event(self, event: dict[str, Any]) -> None:
        if event["type"] == "agent.message.delta":
            self._text(event["data"])
        elif event["type"] == "agent.message.completed":
            self._end_line()
        elif event["type"] == "diagnostic" and event["data"].get("code") == "EVENTS_DROPPED":
            print(f"\n[{event['data']['from']} to {event['data']['to']} are no longer kept]", flush=True)
        elif event["type"] == "run.resumed":
            self._beside("it is decided, and goes on")
        elif event["type"] == "diagnostic" and event["data"].get("code") == "RETRY":
            self._beside(event["data"]["message"])
        elif words := _did(event["type"], event["data"]):
            self._beside(words)

    def _text(self, data: dict[str, Any]) -> None:
        if self._message and data.get("id") != self._message:
            # A harness says something, works, and goes on: each message is a paragraph of its own.
            print("\n" if self._in_line else "")
        self._message, self._in_line = str(data.get("id") or "?"), True
        print(plain(data["text"]), end="", flush=True)

    def _beside(self, words: str) -> None:
        """Beside the answer, in one line: what a name with further lines in it says is not said by this program."""
        self._end_line()
        print(f"remuda: {plain(' '.join(words.split()))[:LONGEST_DEED_CHARS]}", file=sys.stderr, flush=True)

    def _end_line(self) -> None:
        if self._in_line:
            self._in_line = False
            print(flush=True)

    def _result(self, result: dict[str, Any]) -> None:
        self._end_line()
        if not self._message and result.get("output_text"):
            # A run of long ago: there were no events to print.
            print(plain(result["output_text"]))
        if error := result.get("error"):
            print(f"remuda: {plain(error['message'])}", file=sys.stderr)
        if result["status"] == "waiting":
            for call in result["waiting"]:
                self._beside(f"{call['mount']}.{call['tool']} waits for your decision: {call['effect']}")
            print(f"remuda: decide in the app, or: remuda mounts review {result['operation']}", file=sys.stderr)
        if result["status"] == "unknown":
            print(f"remuda: the run is {result['run_id']} of session {result['session']}", file=sys.stderr)
            if "reference" in result:
                print(f"remuda: its reference is {json.dumps(result['reference'])}", file=sys.stderr)

    def end(self, code: int) -> int:
        """The exit code, given the one of the order."""
        if code != SILENT or self._detach or not self._accepted:
            return code
        # The host took the message and ended: what became of it is not known, and from here it is not sent again.
        lost = {"code": "HOST_LOST", "message": "The running Remuda ended before the reply did. It was not sent again."}
        session, run_id = self._accepted["session"], self._accepted["run"]
        self({"result": {"type": "result", "session": session, "run_id": run_id, "status": "unknown", "error": lost}})
        return UNKNOWN


_NOT_DONE: Final = {"failed": "did not change", "stopped": "may have changed", "unknown": "may have changed"}
"""Of a change that came to no good end, by its state."""


def _did(kind: str, data: dict[str, Any]) -> str:
    """What a harness did; empty for what is no deed."""
    if kind == "command.started":
        return f"runs {data.get('command', '')}"
    if kind == "tool.started":
        return f"uses {data.get('name', 'a tool')}"
    if kind == "file.changed":
        done = _NOT_DONE.get(str(data.get("state", "complete")), str(data.get("change", "changed")))
        return f"{done} {data.get('path', 'a file')}"
    if kind == "diagnostic" and data.get("level") in ("warning", "error") and data.get("message"):
        return str(data["message"])
    return ""


@app.command()
def run(
    prompt: Annotated[str, typer.Argument(help="The message, or - to read it from standard input.")],
    session: Annotated[str | None, typer.Option(help="Go on in this session.")] = None,
    agent: AgentName = None,
    harness: Harness = None,
    connector: ConnectorName = None,
    model: Model = None,
    reasoning: Reasoning = None,
    environment: Environment = None,
    policy: PolicyName = None,
    request_id: Annotated[str | None, typer.Option(help="Makes a repeated call the same run.")] = None,
    schema: Annotated[Path | None, typer.Option(help="File with the JSON schema that the reply has to meet.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Kept with the request.")] = None,
    image: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A picture that goes with the message; may be repeated.")
    ] = None,
    as_json: Json = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return once the running app has accepted it.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Send it though it looks like it holds a secret.")] = False,
) -> int:
    """Send a message and print the reply as it comes."""
    try:
        pairs = terms.metadata(metadata or ())
        answer_format = _schema(schema)
        images = _pictures(image or [])
    except (OSError, ValueError) as fault:
        fail("USAGE", str(fault), USAGE, as_json=as_json)
    text = sys.stdin.read() if prompt == "-" else prompt
    show = _RunLines(as_json=as_json, detach=detach)
    code = give_order(
        "run",
        {
            "prompt": text,
            "session": session,
            "agent": agent,
            "harness": harness,
            "connector": connector,
            "model": model,
            "reasoning": reasoning,
            "environment": terms.absolute(environment),
            "policy": policy,
            "request_id": request_id,
            "response_format": answer_format,
            "metadata": pairs,
            "images": images,
            "detach": detach,
            "anyway": anyway,
        },
        show,
        recover=True,
    )
    return show.end(code)


def _schema(file: Path | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        content = file.read_bytes()
    except OSError as fault:
        raise ValueError(f"The schema {file} cannot be read: {fault.strerror}.") from None
    return terms.answer_format(content, file.stem)


def _pictures(files: list[Path]) -> list[dict[str, str]]:
    if not files:
        return []
    # Late: it brings the runtime's definitions along, which most commands do without.
    from desktop.pictures import read_pictures

    return read_pictures(files)


@app.command()
def observe(
    run: str,
    after: Annotated[int, typer.Option(help="Only events after this number.")] = 0,
    as_json: Json = False,
) -> int:
    """Follow the events of a run that is there, to its end. Sends nothing; leaving does not stop the run."""
    return give_order("observe", {"run": run, "after": after}, _RunLines(as_json=as_json), recover=True)


@app.command()
def result(run: str, as_json: Json = False) -> int:
    """Print how a run ended, once it has. Sends nothing."""
    return give_order("result", {"run": run}, _RunLines(as_json=as_json), recover=True)


# --------------------------------------------------------------------- sessions


@app.command()
def sessions(
    filter: Annotated[str, typer.Option("--filter", help="Only titles with this in them.")] = "",
    as_json: Json = False,
) -> int:
    """List the conversations, the newest first."""

    def line(row: dict[str, Any]) -> str:
        when = datetime.fromtimestamp(row["updated_ms"] / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
        return f"{row['session']}  {when}  {row['state']:10}  {row['title']}"

    return give_order("sessions", {"filter": filter}, rows(as_json, line))


@app.command()
def new(
    agent: AgentName = None,
    harness: Harness = None,
    connector: ConnectorName = None,
    model: Model = None,
    reasoning: Reasoning = None,
    environment: Environment = None,
    policy: PolicyName = None,
    as_json: Json = False,
) -> int:
    """Open a session without saying anything yet, and print its id."""
    return give_order(
        "new",
        _binding(agent, harness, connector, model, reasoning, environment, policy),
        rows(as_json, lambda row: str(row["session"])),
    )


@app.command()
def reference(session: str, as_json: Json = False) -> int:
    """Print where the session is found again. It authenticates nobody and holds no key."""
    return give_order("reference", {"session": session}, rows(as_json, lambda row: json.dumps(row["reference"])))


@app.command()
def save(
    session: str,
    to: Annotated[Path | None, typer.Option(help="File to write; it must not be there yet.")] = None,
    as_json: Json = False,
) -> int:
    """Write the reference of a session to a file. Only you can read it."""
    found: list[dict[str, Any]] = []
    code = give_order("reference", {"session": session}, lambda line: _take(line, found, as_json))
    if code != COMPLETED or not found:
        return code
    try:
        path = _keep_reference(found[0]["reference"], to, place.paths())
    except OSError as fault:
        fail("SAVE_FAILED", f"The reference could not be written: {fault}", as_json=as_json)
    rows(as_json, lambda row: row["path"])({"row": {"session": found[0]["session"], "path": str(path)}})
    return COMPLETED


@app.command()
def resume(
    session: Annotated[str, typer.Argument(help="A session, a reference as JSON, or @FILE with one.")],
    as_json: Json = False,
) -> int:
    """Open a session again, with its rights looked at anew. Nothing is sent again."""
    order: dict[str, Any] = {"session": session}
    try:
        if session.startswith("@"):
            order = {"reference": json.loads(Path(session[1:]).read_bytes())}
        elif session.lstrip().startswith("{"):
            order = {"reference": json.loads(session)}
    except (OSError, ValueError) as fault:
        fail("REFERENCE_UNREADABLE", f"This is no reference: {fault}", USAGE, as_json=as_json)
    return give_order("resume", order, rows(as_json, _standing_in_words), recover=True)


def _keep_reference(reference: dict[str, Any], to: Path | None, profile: paths.ProfilePaths) -> Path:
    path = to
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    if path is None:
        # Ours to write, and written again as often as it is asked for.
        path = paths.private_dir(profile.root / "references") / f"{reference['session_id']}.json"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(reference) + "\n")
        file.flush()
        os.fsync(descriptor)
    return path


def _take(line: dict[str, Any], found: list[dict[str, Any]], as_json: bool) -> None:
    if "row" in line:
        found.append(line["row"])
    else:
        rows(as_json, str)(line)


def _binding(
    agent: str | None,
    harness: str | None,
    connector: str | None,
    model: str | None,
    reasoning: str | None,
    environment: str | None,
    policy: str | None,
) -> dict[str, Any]:
    return {
        "agent": agent,
        "harness": harness,
        "connector": connector,
        "model": model,
        "reasoning": reasoning,
        "environment": terms.absolute(environment),
        "policy": policy,
    }


def _standing_in_words(row: dict[str, Any]) -> str:
    lines = [f"{row['session']}  {row['state']}  {row['title']}", row["sentence"]]
    lines.append(f"{row['connection']}, {row['activity']}")
    if row.get("folder"):
        lines.append(f"in {row['folder']}: {row['access']}")
    if row.get("uses"):
        lines.append(terms.uses_words(row["uses"]))
    if row["quarantined"]:
        lines.append("It takes no more messages, because something of it may still be going on. Begin a new session.")
    lines += [
        f"not resolved: {effect['kind']} {effect['id']}, since {effect['since'] or 'an unknown time'}"
        f"\n    {effect['what_to_do']}"
        for effect in row["unresolved_effects"]
    ]
    lines.append(row["how_far"])
    if row["history_gap"]:
        lines.append("Events of earlier runs are no longer kept; their results and messages are.")
    if row["salvaged_from"]:
        lines.append(f"Read from the damaged file “{row['salvaged_from']}”; parts may be missing.")
    return "\n".join(line for line in lines if line)


@app.command()
def export(
    session: str,
    format: Annotated[str, typer.Option("--format", help="markdown or json")] = "markdown",
) -> int:
    """Print the whole transcript of a session."""
    if format not in ("markdown", "json"):
        fail("USAGE", "The format is markdown or json.", USAGE)
    whole: dict[str, Any] = {"items": []}

    def show(answer: dict[str, Any]) -> None:
        if "error" in answer:
            show_error(answer["error"], format == "json")
        elif "row" in answer:
            whole.update(answer["row"])
        elif "item" in answer:
            whole["items"].append({**answer["item"], "text": ""})
        else:
            whole["items"][-1]["text"] += answer["text"]

    code = give_order("export", {"session": session}, show)
    if code == COMPLETED:
        text = json_text(whole, indent=2) if format == "json" else _in_markdown(whole)
        print(plain(text) if sys.stdout.isatty() else text)
    return code


def _in_markdown(whole: dict[str, Any]) -> str:
    blocks = [transcripts.heading(whole["title"], whole["where"])]
    blocks += [
        transcripts.block(item["kind"], item["state"], item["text"], item.get("about")) for item in whole["items"]
    ]
    return "\n\n".join(blocks)


@app.command()
def status(session: Annotated[str | None, typer.Argument()] = None, as_json: Json = False) -> int:
    """Say how a session stands, or what the host is doing."""

    def line(row: dict[str, Any]) -> str:
        if "session" in row:
            return _standing_in_words(row)
        return (
            f"profile {row['profile']}, window {'open' if row['window'] else 'closed'}, {len(row['running'])} running"
        )

    return give_order("status", {"session": session}, rows(as_json, line))


@app.command()
def stop(session: str, as_json: Json = False) -> int:
    """Stop the run of a session, and wait until it has stopped."""
    return give_order(
        "stop",
        {"session": session},
        rows(as_json, lambda row: "stopped" if row["stopped"] else "nothing was running"),
    )


@app.command()
def detach(session: str, as_json: Json = False) -> int:
    """Let go of a session without ending it. It can be taken up again; what works at a provider goes on there."""

    def line(row: dict[str, Any]) -> str:
        return " ".join(filter(None, (f"{row['session']} is detached.", row.get("goes_on", ""))))

    return give_order("detach", {"session": session}, rows(as_json, line))


@app.command()
def delete(
    session: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> int:
    """Delete a session with everything in it, for good."""
    if not yes:
        found: list[dict[str, Any]] = []

        def take(answer: dict[str, Any]) -> None:
            if "row" in answer:
                found.append(answer["row"])
            else:
                rows(as_json, str)(answer)

        code = give_order("delete", {"session": session}, take)
        if code != COMPLETED or not found:
            return code
        about = f"{plain(found[0]['title'])} ({found[0]['session']}) will be deleted with everything in it, for good."
        # Lines on the standard output are the answer; with --json there is one kind of them.
        for line in (about, *map(plain, found[0].get("goes", ())[1:])):
            print(line, file=sys.stderr if as_json else sys.stdout)
        if not sys.stdin.isatty() or not typer.confirm("Delete it?", default=False):
            fail("NOT_CONFIRMED", "Nothing was deleted. With --yes it is not asked.", USAGE, as_json=as_json)
        session = found[0]["session"]
    return give_order(
        "delete", {"session": session, "confirmed": True}, rows(as_json, lambda row: f"{row['session']} is deleted")
    )


# ------------------------------------------------------------ harnesses, doctor


@app.command()
def inspect(
    agent: AgentName = None,
    harness: Harness = None,
    connector: ConnectorName = None,
    model: Model = None,
    reasoning: Reasoning = None,
    environment: Environment = None,
    policy: PolicyName = None,
    as_json: Json = False,
) -> int:
    """Say what a session would be, without opening one. What it can do, who enforces what, what it needs."""
    return give_order(
        "inspect",
        _binding(agent, harness, connector, model, reasoning, environment, policy),
        rows(as_json, _inspection_in_words),
    )


def _inspection_in_words(row: dict[str, Any]) -> str:
    bound = row["execution"]
    lines = [f"{row['driver_id']}, {bound['model']} at {bound['connector']}", f"definition {row['definition_digest']}"]
    lines.append(f"execution  {row['execution_digest']}")
    lines += [
        f"  {entry['support']:11}  {name}  {entry.get('reason') or ''}".rstrip()
        for name, entry in sorted(row["capabilities"].items())
    ]
    lines += [f"enforced: {field} by {who}" for field, who in sorted(row["enforcement"].items())]
    lines += [terms.uses_words(row["uses"])] if row["uses"] else []
    lines += [f"needs: {sentence}" for sentence in row["prerequisites"]]
    return "\n".join(lines)


@app.command()
def doctor(
    as_json: Json = False,
    without_walls: Annotated[
        bool, typer.Option("--without-walls", help="Control run: a renderer without walls, so that every attack works.")
    ] = False,
) -> int:
    """Say whether the walls hold, around the window and around harnesses, and which harness programs are here.

    Decoys are attacked from inside a renderer, and from a command as a harness runs them.
    """
    from desktop import selftest

    reports: list[dict[str, Any]] = []
    programs = harness_commands.programs() if not without_walls else {}
    if not without_walls and _host_runs(place.paths()):
        code = give_order("doctor", {}, lambda line: reports.append(line["row"]) if "row" in line else None)
        if code not in (COMPLETED, SILENT):
            return code
    try:
        report = reports[0] if reports else selftest.run("none" if without_walls else "all")
    except selftest.SelfTestFailed as fault:
        fail("SELF_TEST_FAILED", f"The self-test could not be made: {fault}", as_json=as_json)
    if as_json:
        print_json({**report, **programs})
    else:
        print(plain(_report_in_words(report)))
        print(plain(harness_commands.programs_in_words(programs)), end="")
    if without_walls:
        return FAILED if selftest.proves(report) else COMPLETED
    return COMPLETED if report["level"] == "walled" else FAILED


def _report_in_words(report: dict[str, Any]) -> str:
    marks = {
        "up": "stands",
        "down": "MISSING",
        "not-applicable": "not applicable",
        "blocked": "blocked",
        "open": "OPEN",
    }
    lines = [report["sentence"], "", "Walls"]
    lines += [f"  {marks[w['state']]:14}  {w['name']}  {w['detail']}".rstrip() for w in report["walls"]]
    lines += ["", "Attempts from inside the window's process"]
    lines += [
        f"  {marks.get(p['verdict'], p['verdict']):14}  {p['name']}  {p['detail']}".rstrip() for p in report["probes"]
    ]
    return "\n".join(lines)


def _host_runs(profile: paths.ProfilePaths) -> bool:
    try:
        lock = host_lock.acquire(profile.lock)
    except OSError:
        # No host can hold what is no lock; the self-test needs none.
        return False
    if lock is None:
        return True
    lock.release()
    return False


# Last, so that help begins with what is done every day.
storage_commands.register(app)
files_commands.register(app)
network_commands.register(app)
