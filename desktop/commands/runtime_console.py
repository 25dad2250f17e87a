"""The runtime that a trusted module makes, steered from the command line: a console, or one order.

Owns what `--runtime-host MODULE:FUNCTION` means. The function gets the folder its files belong in and returns
(a mapping, or an object with these attributes) `runtime`, `definition`, `options`, and where it wants to
`resume` (the reference to begin with) and `save_reference` (called with each reference that is to be kept). It
may be async. Whoever names a module trusts it with everything this user may do. Must not know profiles,
connectors, windows or any harness: one controller for all of them, and the same lines as every other order.

Invariants: a reference is kept as soon as its session is open; nothing is ever sent twice; what belongs to
the app's own profile is refused with the reason.
"""

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import shlex
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from desktop import terms
from desktop.commands.output import Output
from desktop.exit_codes import COMPLETED, FAILED, USAGE
from desktop.orders import answers
from desktop.orders.answers import Send
from desktop.paths import ProfilePaths, private_dir
from desktop.pictures import message_of, pictures_of
from runtime_host.abort import AbortSignal
from runtime_host.definitions import AgentDefinition, ReasoningConfig, SessionOptions
from runtime_host.errors import AgentRuntimeError, AgentScopeMismatchError
from runtime_host.run import Run
from runtime_host.runtime import AgentRuntime
from runtime_host.session import Session, SessionReference
from runtime_host.transfer.copy import OnProgress, TransferProgress, Transferred

Show = Callable[[dict[str, Any]], None]
Move = Callable[[OnProgress, AbortSignal], Awaitable[Transferred]]

OF_THE_APP: Final[Mapping[str, str]] = {
    "sessions": "the list of conversations belongs to the app's own profile",
    "export": "transcripts are exported from the app's own profile",
    "harnesses": "the module has chosen the harness",
    "connectors": "the module brings its own connectors",
    "connector-add": "the module brings its own connectors",
    "connector-remove": "the module brings its own connectors",
    "profile": "the module has no profile",
    "doctor": "the self-test is about the app's window",
    "raise": "there is no window",
    "model": "the session is bound to the model that the module chose; /run --model changes it for one message",
    "vendor": "the module brings its own connectors",
    "connector": "the module brings its own connectors",
    "prompt": "the instructions are those of the module's definition",
    "tool": "the tools are those of the module's definition and cannot be changed here",
    "tools": "the tools are those of the module's definition and cannot be changed here",
    "context": "the context belongs to the harness that the module chose",
    "routing": "one harness is bound; there is nothing to route between",
    "routine": "routines belong to the app's own harness",
    "helper": "helpers belong to the app's own harness",
    "config": "the module is the configuration",
    "history": "the transcript belongs to the harness; /result prints how a run ended",
}
"""Commands that have no meaning here, each with the reason."""

HELP: Final = """\
TEXT, or /run TEXT [--request-id R] [--model M] [--reasoning E] [--schema FILE] [--metadata NAME=VALUE]
/result RUN · /observe RUN · /stop · /status · /inspect
/upload NAME --type MIME · /artifacts · /download REFERENCE --to NAME
/reference · /save · /resume [SESSION|REFERENCE] · /new · /detach · /delete [SESSION|REFERENCE]
/help · /exit"""


class BootstrapError(Exception):
    """The module or what it returned cannot be used; the message says why."""


class Bootstrap(NamedTuple):
    """What a bootstrap function returned."""

    runtime: AgentRuntime
    definition: AgentDefinition
    options: SessionOptions
    resume: SessionReference | None = None
    save_reference: Callable[[SessionReference], object] | None = None


async def load(named: str, folder: Path) -> Bootstrap:
    """Import what `MODULE:FUNCTION` names and call it. `MODULE` may be the path of a `.py` file.

    Raises:
        BootstrapError: it cannot be found, or returned something else.
    """
    module_name, colon, function_name = named.rpartition(":")
    if not colon or not module_name or not function_name:
        raise BootstrapError(f"--runtime-host takes MODULE:FUNCTION, and {named!r} is not that.")
    try:
        module = _from_file(Path(module_name)) if module_name.endswith(".py") else importlib.import_module(module_name)
        function = getattr(module, function_name)
    except (ImportError, AttributeError, OSError, SyntaxError) as fault:
        raise BootstrapError(f"{named} cannot be loaded: {fault}") from fault
    made = function(folder)
    if inspect.isawaitable(made):
        made = await made
    members = {name: _member(made, name) for name in Bootstrap._fields}
    for name, kind in (("runtime", AgentRuntime), ("definition", AgentDefinition), ("options", SessionOptions)):
        if not isinstance(members[name], kind):
            raise BootstrapError(f"{named} returned no {name}: {kind.__name__} was expected.")
    if members["resume"] is not None:
        members["resume"] = _reference(members["resume"])
    return Bootstrap(**members)


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _member(made: object, name: str) -> Any:
    return made.get(name) if isinstance(made, Mapping) else getattr(made, name, None)


def _reference(given: Any) -> SessionReference:
    try:
        return SessionReference.model_validate(json.loads(given) if isinstance(given, str) else given)
    except (ValidationError, ValueError):
        raise AgentRuntimeError("This is no reference of a session.", code="REFERENCE_UNREADABLE") from None


class RuntimeOrders:
    """Carries out orders on the module's runtime; one session is the current one."""

    def __init__(self, bootstrap: Bootstrap, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._agent = bootstrap.runtime.create_agent(bootstrap.definition)
        self.session: Session | None = None
        # Orders come while others wait for a run: which session is the current one is decided one by one.
        self._choosing = asyncio.Lock()
        self._moving: AbortSignal | None = None
        orders: dict[str, Callable[[dict[str, Any], Send, asyncio.Event], Awaitable[int]]] = {
            "run": self._run,
            "result": self._result,
            "observe": self._observe,
            "upload": self._upload,
            "artifacts": self._artifacts,
            "download": self._download,
            "reference": self._reference_order,
            "save": self._save,
            "resume": self._resume,
            "new": self._new,
            "delete": self._delete,
            "inspect": self._inspect,
            "status": self._status,
            "stop": self._stop,
            "detach": self._detach,
        }
        self._orders = orders

    async def perform(self, command: str, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        """Carry out an order; its lines go to `send`. Returns the exit code."""
        order = self._orders.get(command)
        if order is None:
            reason = OF_THE_APP.get(command)
            code, message = (
                ("COMMAND_NOT_HERE", f"{command} is not available with --runtime-host: {reason}.")
                if reason is not None
                else ("COMMAND_UNKNOWN", f"There is no command {command}. See /help.")
            )
            await send({"error": {"code": code, "message": message}})
            return USAGE
        try:
            return await order(arguments, send, stop)
        except AgentRuntimeError as refused:
            redact = self._bootstrap.runtime.backend.redactor.text
            await send({"error": {"code": refused.error_code, "message": redact(refused.message)}})
            return FAILED

    # ------------------------------------------------------------------ sessions

    async def begin(self, reference: SessionReference | None = None) -> Session:
        """Make a session the current one: the one of a reference, or a new one."""
        if reference is None:
            self.session = await self._agent.open_session(self._bootstrap.options)
        else:
            context = self._bootstrap.options.context
            self.session = await self._bootstrap.runtime.resume_session(reference, context=context)
        await self._keep(self.session.reference())
        return self.session

    async def _current(self, arguments: Mapping[str, Any]) -> Session:
        async with self._choosing:
            return await self._choose(arguments)

    async def _choose(self, arguments: Mapping[str, Any]) -> Session:
        wanted = arguments.get("session")
        current = self.session
        if (
            current is not None
            and wanted in (None, current.session_id)
            and current.state not in ("detached", "destroyed")
        ):
            return current
        if wanted:
            return await self.begin(self._kept(str(wanted)))
        if current is not None:
            return await self.begin(current.reference())
        return await self.begin(self._bootstrap.resume)

    def _kept(self, session: str) -> SessionReference:
        """A reference as it was given, or the kept one of a session."""
        if session.lstrip().startswith("{"):
            return _reference(session)
        try:
            return _reference((self._folder / f"{os.path.basename(session)}.json").read_text("utf-8"))
        except OSError:
            raise AgentRuntimeError(f"No reference of a session {session} is kept.", code="SESSION_UNKNOWN") from None

    async def _keep(self, reference: SessionReference) -> str:
        if self._bootstrap.save_reference is not None:
            saved = self._bootstrap.save_reference(reference)
            if inspect.isawaitable(saved):
                await saved
        path = private_dir(self._folder) / f"{reference.session_id}.json"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(reference.model_dump_json() + "\n")
        return str(path)

    async def _find_run(self, run_id: str) -> tuple[Session, Run]:
        """A run of the current session, else of a session whose reference is kept."""
        async with self._choosing:
            references: list[SessionReference | None] = [None] if self.session is not None else []
            references += [self._kept(path.stem) for path in sorted(self._folder.glob("session_*.json"))]
            for reference in references:
                session = await self._choose({}) if reference is None else await self.begin(reference)
                try:
                    return session, await session.get_run(run_id)
                except AgentScopeMismatchError:
                    continue
        raise AgentRuntimeError(f"There is no run {run_id}.", code="RUN_UNKNOWN_HERE")

    async def _new(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        async with self._choosing:
            session = await self.begin()
        reference = session.reference().model_dump(mode="json")
        await send({"row": {"session": session.session_id, "reference": reference}})
        return COMPLETED

    async def _reference_order(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        session = await self._current(arguments)
        reference = session.reference().model_dump(mode="json")
        await send({"row": {"session": session.session_id, "reference": reference}})
        return COMPLETED

    async def _save(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        session = await self._current(arguments)
        await send({"row": {"session": session.session_id, "path": await self._keep(session.reference())}})
        return COMPLETED

    async def _resume(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        given = arguments.get("reference")
        async with self._choosing:
            if given is not None:
                await self.begin(_reference(given))
            elif arguments.get("session"):
                await self.begin(self._kept(str(arguments["session"])))
        return await self._status({}, send, stop)

    async def _status(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        session = await self._current(arguments)
        await send(
            {
                "row": {
                    "session": session.session_id,
                    "title": self._bootstrap.definition.id,
                    "state": session.state,
                    "sentence": "",
                    **answers.standing(session.inspect_state()),
                }
            }
        )
        return COMPLETED

    async def _inspect(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        options = self._bootstrap.options
        found = await self._agent.inspect(options)
        bound = options.execution.model_dump(mode="json")
        await send({"row": {"execution": bound, **found.model_dump(mode="json")}})
        return COMPLETED

    async def _stop(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        session = await self._current(arguments)
        run, moving = session.active_run, self._moving
        if moving is not None:
            moving.abort()
        await session.cancel_active_run()
        status = (await run.result()).status if run is not None else None
        stopped = run is not None or moving is not None
        await send({"row": {"session": session.session_id, "stopped": stopped, "status": status}})
        return COMPLETED

    async def _detach(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        session = await self._current(arguments)
        await session.detach()
        await send({"row": {"session": session.session_id, "detached": True}})
        return COMPLETED

    async def _delete(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        wanted = arguments.get("session")
        reference = self._kept(str(wanted)) if wanted else (await self._current({})).reference()
        if "confirmed" in arguments or wanted is None:
            await self._bootstrap.runtime.delete_session(reference, context=self._bootstrap.options.context)
            (self._folder / f"{reference.session_id}.json").unlink(missing_ok=True)
            if self.session is not None and self.session.session_id == reference.session_id:
                self.session = None
            await send({"row": {"session": reference.session_id, "deleted": True}})
        else:
            title = self._bootstrap.definition.id
            await send({"row": {"session": reference.session_id, "title": title, "confirm": True}})
        return COMPLETED

    # ---------------------------------------------------------------------- runs

    async def _run(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        session = await self._current(arguments)
        effort = arguments.get("reasoning")
        response_format = arguments.get("response_format")
        run = await session.run(
            message_of(str(arguments.get("prompt", "")), pictures_of(arguments)),
            request_id=arguments.get("request_id") or None,
            model=arguments.get("model") or None,
            reasoning=ReasoningConfig.model_validate({"effort": effort}) if effort else None,
            metadata=arguments.get("metadata") or None,
            response_format=response_format,
        )
        await send({"accepted": {"session": session.session_id, "run": run.run_id}})
        return await answers.follow_request(run, session.session_id, session.reference(), send, stop)

    async def _result(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        session, run = await self._find_run(str(arguments["run"]))
        return await answers.result(run, session.session_id, session.reference(), send)

    async def _observe(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        session, run = await self._find_run(str(arguments["run"]))
        after_sequence = int(arguments.get("after") or 0)
        return await answers.follow(
            run, session.session_id, session.reference(), send, asyncio.Event(), after_sequence=after_sequence
        )

    async def _upload(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        # Names are those of the transfer folder that the module gives; it decides what may be moved.
        session = await self._current(arguments)

        def move(on_progress: OnProgress, signal: AbortSignal) -> Awaitable[Transferred]:
            return session.upload_file(
                path=str(arguments["path"]), media_type=str(arguments["type"]), on_progress=on_progress, signal=signal
            )

        return await self._move(session, move, send, stop)

    async def _download(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        session = await self._current(arguments)

        def move(on_progress: OnProgress, signal: AbortSignal) -> Awaitable[Transferred]:
            return session.download_artifact(
                reference=str(arguments["reference"]),
                path=str(arguments["to"]),
                on_progress=on_progress,
                signal=signal,
            )

        return await self._move(session, move, send, stop)

    async def _artifacts(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        session = await self._current(arguments)
        for artifact in await session.artifacts():
            about = artifact.model_dump(mode="json", include={"name", "media_type", "reference"})
            await send({"row": {"session": session.session_id, **about}})
        return COMPLETED

    async def _move(self, session: Session, move: Move, send: Send, stop: asyncio.Event) -> int:
        """Move a file; how far it is is told at each tenth, and a stop stops it."""
        signal = self._moving = AbortSignal()
        stopping = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(lambda done: None if done.cancelled() else signal.abort())
        told: list[asyncio.Future[None]] = []

        def progress(at: TransferProgress) -> None:
            if at.total_bytes and at.done_bytes * 10 // at.total_bytes >= len(told):
                line = {"type": "transfer.progress", "done_bytes": at.done_bytes, "total_bytes": at.total_bytes}
                told.append(asyncio.ensure_future(send({"event": line})))

        try:
            moved = await move(progress, signal)
        finally:
            self._moving = None
            stopping.cancel()
            await asyncio.gather(*told)
        about = moved.model_dump(mode="json")
        await send({"row": {"session": session.session_id, "moved": moved.reference, **about}})
        return COMPLETED


# ----------------------------------------------------------------------- one order


async def perform(named: str, profile: ProfilePaths, command: str, arguments: dict[str, Any], show: Show) -> int:
    """Make the module's runtime for one order, carry it out, and let go of the runtime."""
    stop = asyncio.Event()
    output = Output(stop)

    async def send(line: dict[str, Any]) -> None:
        await output.give(lambda: show(line))

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    folder = _folder(profile)
    try:
        bootstrap = await load(named, folder)
    except BootstrapError as fault:
        show({"error": {"code": "RUNTIME_HOST_UNUSABLE", "message": str(fault)}})
        return USAGE
    async with bootstrap.runtime:
        return await RuntimeOrders(bootstrap, folder / "references").perform(command, arguments, send, stop)


def _folder(profile: ProfilePaths) -> Path:
    return private_dir(profile.root / "runtime-host")


# ------------------------------------------------------------------------- console


class LineError(Exception):
    """A line that is no command; the message says why."""


_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "run": ("request-id", "model", "reasoning", "schema", "metadata"),
    "observe": ("after",),
    "upload": ("type",),
    "download": ("to",),
}
_ARGUMENT_OF: Final[Mapping[str, str]] = {
    "result": "run",
    "observe": "run",
    "resume": "session",
    "delete": "session",
    "download": "reference",
}
_NEEDS_ARGUMENT: Final = frozenset({"result", "observe", "download", "upload", "run"})


def parse(line: str) -> tuple[str, dict[str, Any]]:
    """(command, arguments) of a line; text without a slash is a message.

    Raises:
        LineError: it is neither.
    """
    if not line.startswith("/"):
        return "run", {"prompt": line}
    command, _, rest = line[1:].partition(" ")
    if command in ("resume", "delete") and rest.strip().startswith("{"):
        return command, {"session": rest.strip()}
    if command not in _OPTIONS and command not in _ARGUMENT_OF:
        return command, {}
    try:
        words = shlex.split(rest)
    except ValueError as fault:
        raise LineError(f"The quotes do not match: {fault}.") from None
    plain: list[str] = []
    options: dict[str, list[str]] = {}
    waiting = iter(words)
    for word in waiting:
        if word.startswith("--"):
            name, value = _option(command, word, waiting)
            options.setdefault(name, []).append(value)
        else:
            plain.append(word)
    if not plain and command in _NEEDS_ARGUMENT:
        raise LineError(f"/{command} needs to be told what. See /help.")
    return command, _arguments(command, plain, options)


def _option(command: str, word: str, waiting: Iterator[str]) -> tuple[str, str]:
    name, equals, value = word[2:].partition("=")
    if name not in _OPTIONS.get(command, ()):
        raise LineError(f"/{command} has no option --{name}.")
    if not equals:
        found = next(waiting, None)
        if found is None:
            raise LineError(f"--{name} needs a value.")
        value = found
    return name, value


def _arguments(command: str, plain: list[str], options: dict[str, list[str]]) -> dict[str, Any]:
    given: dict[str, Any] = {name.replace("-", "_"): values[-1] for name, values in options.items()}
    if command == "run":
        given["prompt"] = " ".join(plain)
        given["metadata"] = _or_line_error(terms.metadata, options.get("metadata", ()))
        if "schema" in given:
            path = Path(given.pop("schema"))
            given["response_format"] = _or_line_error(_schema, path)
    elif command == "upload":
        given["path"] = plain[0]
        given.setdefault("type", "application/octet-stream")
    elif plain:
        given[_ARGUMENT_OF[command]] = " ".join(plain)
    if command == "download" and "to" not in given:
        raise LineError("/download needs --to, with the name that the file is to have.")
    return given


def _schema(path: Path) -> dict[str, Any]:
    return terms.answer_format(path.read_bytes(), path.stem)


def _or_line_error(make: Callable[[Any], Any], given: Any) -> Any:
    try:
        return make(given)
    except (OSError, ValueError) as fault:
        raise LineError(str(fault)) from None


async def console(named: str, profile: ProfilePaths, resume: str | None = None) -> int:
    """Read commands from standard input until /exit or its end; lines as `--json` prints them.

    A command is read while a run goes on, so that it can be stopped. The exit code is that of the last run.
    """
    folder = _folder(profile)

    async def send(line: dict[str, Any]) -> None:
        print(
            json.dumps(next(iter(line.values())) if "error" not in line else {"type": "error", **line["error"]}),
            flush=True,
        )

    try:
        bootstrap = await load(named, folder)
    except BootstrapError as fault:
        await send({"error": {"code": "RUNTIME_HOST_UNUSABLE", "message": str(fault)}})
        return USAGE
    lines = _Lines()
    async with bootstrap.runtime:
        orders = RuntimeOrders(bootstrap, folder / "references")
        if resume is not None:
            code = await orders.perform("resume", {"session": resume}, send, asyncio.Event())
            if code != COMPLETED:
                return code
        return await _converse(orders, lines, send)


async def _converse(orders: RuntimeOrders, lines: "_Lines", send: Send) -> int:
    running: set[asyncio.Task[int]] = set()
    code = COMPLETED
    while (line := await lines.next()) is not None and line.strip() not in ("/exit", "/quit"):
        await _take(line.strip(), orders, running, send)
        for done in [task for task in running if task.done()]:
            running.discard(done)
            code = done.result()
    if line is None and running:
        # Its input ended, as a script's does: what was asked for is still answered.
        code = (await asyncio.gather(*running))[-1]
        running.clear()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return code


async def _take(line: str, orders: RuntimeOrders, running: "set[asyncio.Task[int]]", send: Send) -> None:
    """Carry out a line; one that follows a run goes on among `running`."""
    if not line:
        return
    if line == "/help":
        print(HELP, flush=True)
        return
    try:
        command, arguments = parse(line)
    except LineError as fault:
        await send({"error": {"code": "USAGE", "message": str(fault)}})
        return
    if command == "run" and running and not sys.stdin.isatty():
        # A script means its messages one after the other; a person sees that one goes on.
        await asyncio.wait(running)
    begun = asyncio.Event()

    async def tell(answer: dict[str, Any]) -> None:
        begun.set()
        await send(answer)

    work = asyncio.ensure_future(orders.perform(command, arguments, tell, asyncio.Event()))
    # A person may stop a file that is being moved; a script means what comes next to come after it.
    meanwhile = ("run", "observe", "result", *(("upload", "download") if sys.stdin.isatty() else ()))
    if command not in meanwhile:
        await work
        return
    running.add(work)
    if command == "run":
        # Accepted or refused before the next line is read: that may be meant for it.
        await begun.wait()


class _Lines:
    """Standard input, line by line, read by a thread of its own: a console or a file is never ready or not."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        threading.Thread(target=self._read, name="standard-input", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._pass_on(line)
        self._pass_on(None)

    def _pass_on(self, line: str | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:
            # The loop has ended; nobody reads any more.
            return

    async def next(self) -> str | None:
        return await self._lines.get()
