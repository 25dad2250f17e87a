"""What the command line needs for any command: the profile it is about, the way to a host, and output.

Owns how an order reaches the host that runs, or how this process becomes the host for it, and how answers
are printed. Must not know commands. Invariant: what a model or a server wrote steers no terminal.
"""

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, NoReturn

import typer

from desktop import host_lock, paths, process, profiles
from desktop.commands.output import Output
from desktop.control import HostLostError, HostSilentError, ask
from desktop.exit_codes import COMPLETED, FAILED, SILENT, USAGE

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
Show = Callable[[dict[str, Any]], None]


class Place:
    """Which profile the commands are about; set once by the options ahead of the command."""

    def __init__(self) -> None:
        self.data_dir: str | None = None
        self.profile: str | None = None
        self.runtime_host: str | None = None

    def paths(self) -> paths.ProfilePaths:
        try:
            return profiles.resolve(paths.data_dir(self.data_dir), self.profile)
        except profiles.ProfileRefusedError as refused:
            fail(refused.code, str(refused), USAGE)
        except (OSError, ValueError) as fault:
            fail("DATA_FOLDER_UNUSABLE", f"The data folder cannot be used: {fault}")


place = Place()


def fail(code: str, message: str, exit_code: int = FAILED, *, as_json: bool = False) -> NoReturn:
    show_error({"code": code, "message": message}, as_json)
    raise typer.Exit(exit_code)


def show_error(error: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({"type": "error", **error})
    else:
        print(f"remuda: {plain(error['message'])}", file=sys.stderr)


# C1 controls, marks and overrides of direction, line separators, lone surrogates; JSON itself escapes C0.
_STEERS_A_TERMINAL = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that can be read as it is, and in which what would steer a terminal is written as an escape."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _STEERS_A_TERMINAL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(value: dict[str, Any]) -> None:
    print(json_text(value), flush=True)


# ------------------------------------------------------------------- giving orders


def give_order(command: str, arguments: dict[str, Any], show: Show, *, recover: bool = False) -> int:
    """Give an order to the running host, or become the host for it; `show` gets every line."""
    if place.runtime_host is not None:
        from desktop.commands.runtime_console import perform

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
    from desktop.app import Host, goes_on_words
    from runtime_host.errors import AgentRuntimeError

    process.become_subreaper()
    output = Output(stop)

    async def send(line: dict[str, Any]) -> None:
        await output.give(lambda: show(line))

    try:
        async with Host(profile) as host:
            host.aside = _aside
            if recover:
                await host.recover()
                for notice in host.notices:
                    _aside(notice.text)
            code = await host.operations.perform(command, arguments, send, stop)
            # Others may have given this host orders meanwhile: it stays until they are carried out, and until
            # what they began is finished, unless the person ends it.
            while not stop.is_set() and (host.operations.active or host.conversations.held_here()):
                await host.conversations.wait_until_quiet(stop)
                await host.operations.wait_until_idle()
            if elsewhere := goes_on_words(host.conversations.at_services()):
                _aside(elsewhere)
            # Somebody may have opened a window on this host meanwhile: it lives as long as that.
            if host.window is not None and host.window.is_open:
                await host.run_until_ended()
            return code
    except AgentRuntimeError as fault:
        show({"error": {"code": fault.error_code, "message": fault.message}})
        return FAILED


def _aside(sentence: str) -> None:
    print(f"remuda: {plain(sentence)}", file=sys.stderr, flush=True)


def rows(as_json: bool, line: Callable[[dict[str, Any]], str]) -> Show:
    def show(answer: dict[str, Any]) -> None:
        if "error" in answer:
            show_error(answer["error"], as_json)
        elif "note" in answer:
            # Beside the answer: what reads the rows is not to stumble over it.
            _aside(answer["note"])
        elif "row" in answer:
            if as_json:
                print_json(answer["row"])
            else:
                print(plain(line(answer["row"])))

    return show


def confirmed(
    command: str, arguments: dict[str, Any], question: str, otherwise: str, as_json: bool
) -> dict[str, Any] | int:
    """Show what an order would take away and ask; what it is about, or the exit code when it could not be told."""
    found: list[dict[str, Any]] = []
    show = rows(as_json, str)
    code = give_order(
        command, arguments, lambda answer: found.append(answer["row"]) if "row" in answer else show(answer)
    )
    if code != COMPLETED or not found:
        return code
    for sentence in found[0]["goes"]:
        # Lines on the standard output are the answer; with --json there is one kind of them.
        print(plain(sentence), file=sys.stderr if as_json else sys.stdout)
    if not sys.stdin.isatty() or not typer.confirm(question, default=False):
        fail("NOT_CONFIRMED", f"{otherwise} With --yes it is not asked.", USAGE, as_json=as_json)
    return found[0]


def plain(text: str) -> str:
    """Text for a terminal: what a model or a server wrote must not steer it."""
    return "".join(c if c in "\n\t" or (c.isprintable()) else "\ufffd" for c in text)
