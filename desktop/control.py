"""The control socket: how another `remuda` of the same person talks to the running host.

Owns the 0600 Unix socket and who may speak on it: both ends check the other's uid, and a process
that runs below a guard (a harness and what it started) is refused, as is one that has ended
meanwhile, of which that cannot be known. Must not know what the
orders do. One connection carries one order: a JSON line in, JSON lines out: `taken` at once, so
that who asked knows whether the order may be given again, then what the order says, the last with
the key `done`. An order whose giver left before it was taken is not carried out. No secret and no
approval crosses it, in either direction.
"""

import asyncio
import contextlib
import json
import logging
import os
import select
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Set
from pathlib import Path
from typing import Any

from desktop.paths import private_dir
from desktop.process import look, peer_of

log = logging.getLogger("remuda.control")

ORDER_BYTES = 40 * 1024 * 1024
"""Most bytes of one order: a message with all the pictures it may bring, in base64."""
PATIENCE_S = 5.0
"""How long a host may take until it has taken an order."""
LAST_WORD_S = 1.0
"""How long a host that ends waits for who is being told that an order was carried out, and a refusal for the order."""

Send = Callable[[dict[str, Any]], Awaitable[None]]
Perform = Callable[[str, dict[str, Any], Send, asyncio.Event], Awaitable[int]]
"""Carries out an order, sends its lines, returns the exit code. The event is set when the other side
wants the work stopped; when it merely leaves, the task is cancelled and work goes on by itself."""


class ControlServer:
    """Listens while the host lives."""

    def __init__(self, path: Path, perform: Perform, guard_pids: Callable[[], Set[int]]) -> None:
        self._path = path
        self._perform = perform
        self._guard_pids = guard_pids
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._answering: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen. The caller holds the host lock, so a socket file that lies there is a dead host's."""
        private_dir(self._path.parent)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(before)
        listener.setblocking(False)
        self._server = await asyncio.start_unix_server(self._connected, sock=listener, limit=ORDER_BYTES)

    async def aclose(self) -> None:
        """End every connection, stop listening and take the socket file away."""
        if self._server is None:
            return
        self._server.close()
        if self._answering:
            # What was done is said to who asked for it.
            await asyncio.wait(set(self._answering), timeout=LAST_WORD_S)
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer, task)
        except (OSError, asyncio.CancelledError):
            # The peer left, or the host ends; either way this connection is over.
            pass
        finally:
            self._connections.discard(task)
            self._answering.discard(task)
            writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: "asyncio.Task[None]"
    ) -> None:
        async def send(line: dict[str, Any]) -> None:
            writer.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
            await writer.drain()

        refusal = self._refusal(writer.get_extra_info("socket"))
        if refusal is not None:
            log.warning("control connection refused: %s", refusal)
            await send({"error": {"code": "CONTROL_REFUSED", "message": refusal}, "done": 6})
            # Who asks writes first: closed before that, its pipe breaks, and it does not read why.
            with contextlib.suppress(TimeoutError, ValueError):
                await asyncio.wait_for(reader.readline(), LAST_WORD_S)
            return
        try:
            order = json.loads(await reader.readline())
            command, arguments = str(order["command"]), dict(order.get("arguments", {}))
        except (ValueError, KeyError, TypeError, RecursionError, asyncio.LimitOverrunError):
            await send({"error": {"code": "CONTROL_MALFORMED", "message": "This is no order."}, "done": 2})
            return
        if _has_left(writer.get_extra_info("socket")):
            log.info("an order was not taken: nobody waits for it any more")
            return
        await send({"taken": True})
        stop = asyncio.Event()

        async def carry_out() -> int:
            code = await self._perform(command, arguments, send, stop)
            # Before anything else can run: a host that ends now still says that this is done.
            self._answering.add(connection)
            return code

        work = asyncio.ensure_future(carry_out())
        # A further line asks to stop; the end of the stream means that nobody listens any more.
        gone = asyncio.ensure_future(reader.readline())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and gone.exception() is None and gone.result():
                stop.set()
                await work
            if work.done():
                await send({"done": work.result()})
        finally:
            gone.cancel()
            work.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    def _refusal(self, connection: Any) -> str | None:
        peer = peer_of(connection)
        if peer is None:
            return None
        pid, uid = peer
        if uid != os.getuid():
            return "The other side is another user."
        above = ancestors(pid)
        if look(pid) is None:
            # It may have been below a guard: who asks stays for the answer.
            return "The other side has ended, so who it was is not known."
        if above & set(self._guard_pids()):
            return "A harness, or what it started, may not steer Remuda."
        return None


def ancestors(pid: int) -> set[int]:
    """A process and those it descends from, as far as the system tells."""
    chain: set[int] = set()
    child = 0
    while pid > 1 and pid not in chain:
        process = look(pid)
        if process is None and child and (again := look(child)) is not None and again.parent != pid:
            # It ended while it was looked at, and its child has fallen to another.
            pid = again.parent
            continue
        chain.add(pid)
        if process is None:
            break
        child, pid = pid, process.parent
    return chain


def _has_left(connection: Any) -> bool:
    """Whether the other side has closed its end, though its order may still lie here to be read."""
    poller = select.poll()
    poller.register(connection.fileno(), getattr(select, "POLLRDHUP", 0) | select.POLLHUP)
    return bool(poller.poll(0))


class HostSilentError(Exception):
    """A host holds the profile's lock but does not answer on its control socket: the order was not taken."""


class HostLostError(Exception):
    """The host took the order, and what became of it is not known: it must not be given again."""


async def ask(
    path: Path, command: str, arguments: dict[str, Any], stop: asyncio.Event
) -> AsyncGenerator[dict[str, Any], None]:
    """Give the running host an order; yields the lines of its answer, the last with the key `done`.

    Setting `stop` asks the host to stop the work; its lines go on until it has.

    Raises:
        HostSilentError: nobody took the order.
        HostLostError: it was taken, and the answer broke off.
    """
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(str(path), limit=ORDER_BYTES), PATIENCE_S)
    except (TimeoutError, OSError) as fault:
        raise HostSilentError(str(fault)) from fault
    passing: asyncio.Future[None] | None = None
    taken = False
    try:
        listening = peer_of(writer.get_extra_info("socket"))
        if listening is not None and listening[1] != os.getuid():
            raise HostSilentError("the socket is another user's")
        writer.write(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n")
        await writer.drain()

        async def pass_stop_on() -> None:
            await stop.wait()
            writer.write(b'"stop"\n')
            await writer.drain()

        line = await asyncio.wait_for(reader.readline(), PATIENCE_S)
        passing = asyncio.ensure_future(pass_stop_on())
        while line:
            answer: dict[str, Any] = json.loads(line)
            if "taken" in answer:
                taken = True
            else:
                yield answer
            if "done" in answer:
                return
            line = await reader.readline()
        raise (HostLostError if taken else HostSilentError)("the answer broke off")
    except (TimeoutError, OSError, ValueError) as fault:
        raise (HostLostError if taken else HostSilentError)(str(fault)) from fault
    finally:
        if passing is not None:
            passing.cancel()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
