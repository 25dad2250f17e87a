"""The command line: talks to the running host of the profile, or becomes the host for one command.

Owns arguments, output and exit codes. With `--json` it prints one JSON object a line. Exit codes:
0 completed, 1 failed, 2 usage, 3 cancelled, 4 incomplete, 5 outcome unknown, 6 the running host
does not answer.
"""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from desktop import host_lock, paths, process, terms
from desktop.control import HostLostError, HostSilentError, ask
from desktop.exit_codes import COMPLETED, FAILED, SILENT, UNKNOWN, USAGE
from desktop.output import Output

app = typer.Typer(
    name="remuda",
    help="Chat with swappable agent harnesses. Without a command: the app.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
connectors_app = typer.Typer(help="Named servers and the keys for them.", no_args_is_help=True)
app.add_typer(connectors_app, name="connectors")

_USAGE_ERROR: Any = typer.BadParameter.__base__
"""What typer raises for arguments that make no sense; it names only some of its kinds."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
Harness = Annotated[str | None, typer.Option(help="Harness, e.g. native.agent.")]
ConnectorName = Annotated[str | None, typer.Option("--connector", help="Connector by name.")]
Model = Annotated[str | None, typer.Option(help="Model of the connector.")]
Reasoning = Annotated[str | None, typer.Option(help="Reasoning effort, where the model offers it.")]
Environment = Annotated[str | None, typer.Option(help="none, dir:PATH or managed.")]
PolicyName = Annotated[str | None, typer.Option("--policy", help="chat touches nothing, read reads, work works.")]
Show = Callable[[dict[str, Any]], None]


class _Place:
    """Which profile the commands are about; set once by the options ahead of the command."""

    def __init__(self) -> None:
        self.data_dir: str | None = None
        self.profile = "personal"
        self.runtime_host: str | None = None

    def paths(self) -> paths.ProfilePaths:
        try:
            return paths.profile(paths.data_dir(self.data_dir), self.profile)
        except (OSError, ValueError) as fault:
            _fail("DATA_FOLDER_UNUSABLE", f"The data folder cannot be used: {fault}")


place = _Place()


@app.callback()
def _options(
    context: typer.Context,
    data_dir: Annotated[str | None, typer.Option(help="Folder that holds everything (else REMUDA_HOME).")] = None,
    profile: Annotated[str, typer.Option(help="Profile to use.")] = "personal",
    runtime_host: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="Trusted code that makes the runtime; without a command: a console."
        ),
    ] = None,
    runtime_resume: Annotated[
        str | None, typer.Option(metavar="SESSION", help="With --runtime-host: the session the console begins with.")
    ] = None,
) -> None:
    place.data_dir = data_dir
    place.profile = profile
    place.runtime_host = runtime_host
    if context.invoked_subcommand is not None:
        return
    if runtime_host is None:
        print(context.get_help())
        raise typer.Exit(USAGE)
    from desktop.runtime_console import console

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


def _fail(code: str, message: str, exit_code: int = FAILED, *, as_json: bool = False) -> NoReturn:
    _error({"code": code, "message": message}, as_json)
    raise typer.Exit(exit_code)


def _error(error: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _print_json({"type": "error", **error})
    else:
        print(f"remuda: {_plain(error['message'])}", file=sys.stderr)


# C1 controls, marks and overrides of direction, line separators, lone surrogates; JSON itself escapes C0.
_STEERS_A_TERMINAL = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that can be read as it is, and in which what would steer a terminal is written as an escape."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _STEERS_A_TERMINAL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _print_json(value: dict[str, Any]) -> None:
    print(json_text(value), flush=True)


# ------------------------------------------------------------------- giving orders


def _order(command: str, arguments: dict[str, Any], show: Show, *, recover: bool = False) -> int:
    """Give an order to the running host, or become the host for it; `show` gets every line."""
    if place.runtime_host is not None:
        from desktop.runtime_console import perform

        return asyncio.run(perform(place.runtime_host, place.paths(), command, arguments, show))
    return asyncio.run(_give(place.paths(), command, arguments, show, recover))


async def _give(profile: paths.ProfilePaths, command: str, arguments: dict[str, Any], show: Show, recover: bool) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    deadline = time.monotonic() + 5.0
    while True:
        try:
            lock = host_lock.acquire(profile.lock)
        except OSError as fault:
            message = f"The data folder cannot be used: {fault}. Nothing was changed."
            show({"error": {"code": "DATA_FOLDER_UNUSABLE", "message": message}})
            return FAILED
        if lock is not None:
            try:
                return await _as_host(profile, command, arguments, show, stop, recover)
            finally:
                lock.release()
        try:
            return await _over_socket(ask(profile.control, command, arguments, stop), show)
        except HostSilentError:
            # It may be starting, or ending: then its lock is free in a moment.
            if time.monotonic() > deadline:
                show({"error": {"code": "HOST_SILENT", "message": "Remuda is running, but it does not answer."}})
                return SILENT
            await asyncio.sleep(0.1)


async def _over_socket(lines: AsyncIterator[dict[str, Any]], show: Show) -> int:
    try:
        async for line in lines:
            if "done" in line:
                if "error" in line:
                    show(line)
                return int(line["done"])
            show(line)
    except HostLostError:
        # What became of the order is not known here, and it is not given again.
        show({"error": {"code": "HOST_LOST", "message": "The running Remuda ended before it answered in full."}})
    return SILENT


async def _as_host(
    profile: paths.ProfilePaths,
    command: str,
    arguments: dict[str, Any],
    show: Show,
    stop: asyncio.Event,
    recover: bool,
) -> int:
    from desktop.app import Host
    from runtime_host.errors import AgentRuntimeError

    process.become_subreaper()
    output = Output(stop)

    async def send(line: dict[str, Any]) -> None:
        await output.give(lambda: show(line))

    try:
        async with Host(profile) as host:
            if recover:
                await host.recover()
                for notice in host.notices:
                    print(f"remuda: {_plain(notice.text)}", file=sys.stderr)
            code = await host.operations.perform(command, arguments, send, stop)
            # Others may have given this host orders meanwhile: it stays until they are carried out, and until
            # what they began is finished, unless the person ends it.
            while not stop.is_set() and (host.operations.active or host.conversations.running()):
                await host.conversations.wait_until_quiet(stop)
                await host.operations.wait_until_idle()
            # Somebody may have opened a window on this host meanwhile: it lives as long as that.
            if host.window is not None and host.window.is_open:
                await host.run_until_ended()
            return code
    except AgentRuntimeError as fault:
        show({"error": {"code": fault.error_code, "message": fault.message}})
        return FAILED


def _rows(as_json: bool, line: Callable[[dict[str, Any]], str]) -> Show:
    def show(answer: dict[str, Any]) -> None:
        if "error" in answer:
            _error(answer["error"], as_json)
        elif "row" in answer:
            if as_json:
                _print_json(answer["row"])
            else:
                print(_plain(line(answer["row"])))

    return show


def _plain(text: str) -> str:
    """Text for a terminal: what a model or a server wrote must not steer it."""
    return "".join(c if c in "\n\t" or (c.isprintable()) else "\ufffd" for c in text)


# -------------------------------------------------------------------------- run


class _RunLines:
    """Prints a run: each event and the result as a line of JSON, or the reply as it comes."""

    def __init__(self, *, as_json: bool, detach: bool = False) -> None:
        self._as_json, self._detach = as_json, detach
        self._accepted: dict[str, Any] = {}
        self._in_text = False

    def __call__(self, answer: dict[str, Any]) -> None:
        if "accepted" in answer:
            self._accepted = answer["accepted"]
            if self._detach:
                _print_json(self._accepted) if self._as_json else print(self._accepted["session"])
        elif "error" in answer:
            if answer["error"]["code"] != "HOST_LOST" or not self._accepted:
                _error(answer["error"], self._as_json)
        elif self._as_json:
            _print_json(answer.get("event") or answer["result"])
        elif "event" in answer:
            self._event(answer["event"])
        elif "result" in answer:
            self._result(answer["result"])

    def _event(self, event: dict[str, Any]) -> None:
        if event["type"] == "agent.message.delta":
            self._in_text = True
            print(_plain(event["data"]["text"]), end="", flush=True)
        elif event["type"] == "diagnostic" and event["data"].get("code") == "EVENTS_DROPPED":
            print(f"\n[{event['data']['from']} to {event['data']['to']} are no longer kept]", flush=True)

    def _result(self, result: dict[str, Any]) -> None:
        if self._in_text:
            print()
        elif result.get("output_text"):
            # A run of long ago: there were no events to print.
            print(_plain(result["output_text"]))
        if error := result.get("error"):
            print(f"remuda: {_plain(error['message'])}", file=sys.stderr)
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


@app.command()
def run(
    prompt: Annotated[str, typer.Argument(help="The message, or - to read it from standard input.")],
    session: Annotated[str | None, typer.Option(help="Go on in this session.")] = None,
    harness: Harness = None,
    connector: ConnectorName = None,
    model: Model = None,
    reasoning: Reasoning = None,
    environment: Environment = None,
    policy: PolicyName = None,
    request_id: Annotated[str | None, typer.Option(help="Makes a repeated call the same run.")] = None,
    schema: Annotated[Path | None, typer.Option(help="File with the JSON schema that the reply has to meet.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Kept with the request.")] = None,
    as_json: Json = False,
    detach: Annotated[bool, typer.Option("--detach", help="Return once the running app has accepted it.")] = False,
) -> int:
    """Send a message and print the reply as it comes."""
    try:
        pairs = terms.metadata(metadata or ())
        answer_format = terms.answer_format(schema.read_bytes(), schema.stem) if schema is not None else None
    except (OSError, ValueError) as fault:
        _fail("USAGE", str(fault), USAGE, as_json=as_json)
    text = sys.stdin.read() if prompt == "-" else prompt
    show = _RunLines(as_json=as_json, detach=detach)
    code = _order(
        "run",
        {
            "prompt": text,
            "session": session,
            "harness": harness,
            "connector": connector,
            "model": model,
            "reasoning": reasoning,
            "environment": terms.absolute(environment),
            "policy": policy,
            "request_id": request_id,
            "response_format": answer_format,
            "metadata": pairs,
            "detach": detach,
        },
        show,
        recover=True,
    )
    return show.end(code)


@app.command()
def observe(
    run: str,
    after: Annotated[int, typer.Option(help="Only events after this number.")] = 0,
    as_json: Json = False,
) -> int:
    """Follow the events of a run that is there, to its end. Sends nothing; leaving does not stop the run."""
    return _order("observe", {"run": run, "after": after}, _RunLines(as_json=as_json), recover=True)


@app.command()
def result(run: str, as_json: Json = False) -> int:
    """Print how a run ended, once it has. Sends nothing."""
    return _order("result", {"run": run}, _RunLines(as_json=as_json), recover=True)


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

    return _order("sessions", {"filter": filter}, _rows(as_json, line))


@app.command()
def new(
    harness: Harness = None,
    connector: ConnectorName = None,
    model: Model = None,
    reasoning: Reasoning = None,
    environment: Environment = None,
    policy: PolicyName = None,
    as_json: Json = False,
) -> int:
    """Open a session without saying anything yet, and print its id."""
    return _order(
        "new",
        _binding(harness, connector, model, reasoning, environment, policy),
        _rows(as_json, lambda row: str(row["session"])),
    )


@app.command()
def reference(session: str, as_json: Json = False) -> int:
    """Print where the session is found again. It authenticates nobody and holds no key."""
    return _order("reference", {"session": session}, _rows(as_json, lambda row: json.dumps(row["reference"])))


@app.command()
def save(
    session: str,
    to: Annotated[Path | None, typer.Option(help="File to write; it must not be there yet.")] = None,
    as_json: Json = False,
) -> int:
    """Write the reference of a session to a file that only you can read."""
    found: list[dict[str, Any]] = []
    code = _order("reference", {"session": session}, lambda line: _take(line, found, as_json))
    if code != COMPLETED or not found:
        return code
    try:
        path = _keep_reference(found[0]["reference"], to, place.paths())
    except OSError as fault:
        _fail("SAVE_FAILED", f"The reference could not be written: {fault}", as_json=as_json)
    _rows(as_json, lambda row: row["path"])({"row": {"session": found[0]["session"], "path": str(path)}})
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
        _fail("REFERENCE_UNREADABLE", f"This is no reference: {fault}", USAGE, as_json=as_json)
    return _order("resume", order, _rows(as_json, _standing_in_words), recover=True)


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
        _rows(as_json, str)(line)


def _binding(
    harness: str | None,
    connector: str | None,
    model: str | None,
    reasoning: str | None,
    environment: str | None,
    policy: str | None,
) -> dict[str, Any]:
    return {
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
        _fail("USAGE", "The format is markdown or json.", USAGE)
    whole: dict[str, Any] = {"items": []}

    def show(answer: dict[str, Any]) -> None:
        if "error" in answer:
            _error(answer["error"], format == "json")
        elif "row" in answer:
            whole.update(answer["row"])
        elif "item" in answer:
            whole["items"].append({**answer["item"], "text": ""})
        else:
            whole["items"][-1]["text"] += answer["text"]

    code = _order("export", {"session": session}, show)
    if code == COMPLETED:
        text = json_text(whole, indent=2) if format == "json" else _in_markdown(whole)
        print(_plain(text) if sys.stdout.isatty() else text)
    return code


_SPEAKERS = {"user": "You", "reply": "Reply", "reasoning": "Reasoning", "notice": "Note"}


def _in_markdown(whole: dict[str, Any]) -> str:
    blocks = [f"# {whole['title']}", f"*{whole['where']}*"]
    for item in whole["items"]:
        state = "" if item["state"] == "complete" else f" ({item['state']})"
        text = item["text"]
        if item["kind"] in ("reasoning", "notice"):
            text = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
        blocks += [f"## {_SPEAKERS[item['kind']]}{state}", text]
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

    return _order("status", {"session": session}, _rows(as_json, line))


@app.command()
def stop(session: str, as_json: Json = False) -> int:
    """Stop the run of a session, and wait until it has stopped."""
    return _order(
        "stop",
        {"session": session},
        _rows(as_json, lambda row: "stopped" if row["stopped"] else "nothing was running"),
    )


@app.command()
def detach(session: str, as_json: Json = False) -> int:
    """Let go of a session without ending it; it can be taken up again."""
    return _order("detach", {"session": session}, _rows(as_json, lambda row: f"{row['session']} is detached"))


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
                _rows(as_json, str)(answer)

        code = _order("delete", {"session": session}, take)
        if code != COMPLETED or not found:
            return code
        about = f"{_plain(found[0]['title'])} ({found[0]['session']}) will be deleted with everything in it, for good."
        # Lines on the standard output are the answer; with --json there is one kind of them.
        print(about, file=sys.stderr if as_json else sys.stdout)
        if not sys.stdin.isatty() or not typer.confirm("Delete it?", default=False):
            _fail("NOT_CONFIRMED", "Nothing was deleted. With --yes it is not asked.", USAGE, as_json=as_json)
        session = found[0]["session"]
    return _order(
        "delete", {"session": session, "confirmed": True}, _rows(as_json, lambda row: f"{row['session']} is deleted")
    )


# -------------------------------------------------------------------- connectors


@connectors_app.command("list")
def connectors_list(as_json: Json = False) -> int:
    """List the connectors; keys are never shown."""

    def line(row: dict[str, Any]) -> str:
        where = row["base_url"] or "this computer"
        return f"{row['name']}  {where}  key: {row['key'] or 'none'}  {', '.join(row['models'][:5])}"

    return _order("connectors", {}, _rows(as_json, line))


@connectors_app.command("add")
def connectors_add(
    name: str,
    vendor: Annotated[str, typer.Option(help="openai-compatible")] = "openai-compatible",
    base_url: Annotated[str, typer.Option(help="Address, e.g. http://127.0.0.1:8080/v1")] = "",
    model: Annotated[list[str] | None, typer.Option(help="Model to offer; else the server's list.")] = None,
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Read the key from standard input.")] = False,
    key_env: Annotated[str | None, typer.Option(help="Keep only the name of the variable that holds the key.")] = None,
    as_json: Json = False,
) -> int:
    """Add a connector. Its key goes to the system's key store, or stays in the named variable."""
    if key_stdin and key_env:
        _fail("USAGE", "Give --key-stdin or --key-env, not both.", USAGE, as_json=as_json)
    order: dict[str, Any] = {"name": name, "vendor": vendor, "base_url": base_url, "models": model or []}
    show = _rows(as_json, lambda row: f"{row['name']} is added: {', '.join(row['models'][:8]) or 'no models listed'}")
    if key_env:
        order["secret"] = {"kind": "env", "name": key_env}
    elif key_stdin:
        # Checked before the key is stored, so that a refused connector leaves no key behind.
        checked: list[dict[str, Any]] = []
        code = _order(
            "connector-add",
            {**order, "check": True},
            lambda line: show(line) if "error" in line else checked.append(line["row"]),
        )
        if code != COMPLETED:
            return code
        return _add_with_key({**order, "base_url": checked[0]["base_url"]}, show, as_json)
    return _order("connector-add", order, show)


def _add_with_key(order: dict[str, Any], show: Show, as_json: bool) -> int:
    from desktop.credentials import Credentials
    from runtime_host.errors import ConnectorError

    key = sys.stdin.readline().strip()
    if not key:
        _fail("KEY_MISSING", "Standard input held no key.", USAGE, as_json=as_json)
    rows: list[dict[str, Any]] = []
    code = _order("profile", {}, lambda line: rows.append(line["row"]) if "row" in line else show(line))
    if code != COMPLETED:
        return code
    profile_uuid = rows[0]["uuid"]

    async def keep() -> dict[str, Any]:
        credentials = Credentials(profile_uuid)
        try:
            return (await credentials.store(order["name"], key, base_url=order["base_url"])).model_dump(mode="json")
        finally:
            await credentials.aclose()

    async def take_back(reference: dict[str, Any]) -> None:
        from runtime_host.connectors.base import SecretRef

        credentials = Credentials(profile_uuid)
        try:
            await credentials.delete(SecretRef.model_validate(reference))
        finally:
            await credentials.aclose()

    try:
        reference = asyncio.run(keep())
    except ConnectorError as fault:
        _fail(fault.error_code, fault.message, as_json=as_json)
    code = _order("connector-add", {**order, "secret": reference}, show)
    if code != COMPLETED:
        asyncio.run(take_back(reference))
    return code


@connectors_app.command("remove")
def connectors_remove(name: str, as_json: Json = False) -> int:
    """Remove a connector and its key. Conversations stay."""
    return _order("connector-remove", {"name": name}, _rows(as_json, lambda row: f"{row['name']} is removed"))


# ------------------------------------------------------------ harnesses, doctor


@app.command()
def inspect(
    harness: Harness = None,
    connector: ConnectorName = None,
    model: Model = None,
    reasoning: Reasoning = None,
    environment: Environment = None,
    policy: PolicyName = None,
    as_json: Json = False,
) -> int:
    """Say what a session would be, without opening one: what it can do, who enforces what, what it needs."""
    return _order(
        "inspect",
        _binding(harness, connector, model, reasoning, environment, policy),
        _rows(as_json, _inspection_in_words),
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
    lines += [f"needs: {sentence}" for sentence in row["prerequisites"]]
    return "\n".join(lines)


@app.command()
def harnesses(as_json: Json = False) -> int:
    """List what messages can go to."""

    def line(row: dict[str, Any]) -> str:
        state = "" if row["available"] else "  (not available)"
        return (
            f"{row['harness']}  {row['connector']}  {', '.join(row['models'][:5])}{state}\n"
            f"    runs {row['runs']} · touches {row['touches']} · bills {row['bills']}\n"
            f"    {row['note']}"
        ).rstrip()

    return _order("harnesses", {}, _rows(as_json, line))


@app.command()
def doctor(
    as_json: Json = False,
    without_walls: Annotated[
        bool, typer.Option("--without-walls", help="Control run: a renderer without walls, so that every attack works.")
    ] = False,
) -> int:
    """Attack decoys from inside a renderer and list what each attack met."""
    from desktop import selftest

    reports: list[dict[str, Any]] = []
    if not without_walls and _host_runs(place.paths()):
        code = _order("doctor", {}, lambda line: reports.append(line["row"]) if "row" in line else None)
        if code not in (COMPLETED, SILENT):
            return code
    try:
        report = reports[0] if reports else selftest.run("none" if without_walls else "all")
    except selftest.SelfTestFailed as fault:
        _fail("SELF_TEST_FAILED", f"The self-test could not be made: {fault}", as_json=as_json)
    if as_json:
        _print_json(report)
    else:
        print(_plain(_report_in_words(report)))
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
