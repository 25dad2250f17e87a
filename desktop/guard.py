"""A guard around every child program: nothing it starts outlives it, and nothing outlives the host.

Owns both ends: the role `guard`, one small process between the host and a child program, and
`Guarded`, the host's handle on it. Must not know what the child is or says. Invariant: when a
guard reports that it is done, no process below it is left, however often it forked and whatever
it did to its session, its signals or its parent; and the child's environment holds what the
allow-list and the caller name, nothing else of the host's.

The line between the two is one socket. From the host: one JSON line with the order (command,
environment, folder, the wall around the child: nothing of it is in argv), later at most a stop
order; its end means that the host is gone, and the guard then stops everything by itself. To the host: JSON lines
`started`, `failed`, `exited`, `left`, `gone`. The child's three standard streams are the guard's
own when it starts and the child's alone afterwards.

On Linux the guard is a child subreaper: whatever is orphaned below it becomes its child, so
"no child left" is a fact. Other POSIX systems have no such thing: there the child's process group
is ended and the report says that it is not complete. Windows is refused.

The role must start fast and stay small: this file imports the standard library only, and asyncio
only in the host's half.
"""

import errno
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from desktop import process

if TYPE_CHECKING:
    import asyncio
    import subprocess

    from desktop.isolation.walls import WallOrder

MARK = "REMUDA_GUARD"
"""Variable that every process below a guard inherits: what is left when the guard itself was killed is found by it."""

ALLOWED = frozenset(
    {"PATH", "HOME", "LANG", "TZ", "TMPDIR"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}
)
ALLOWED_PREFIXES = ("LC_", "SSL_CERT_")

_ORDER_BYTES = 4 << 20
_REASON_CHARS = 400
_HOST_GONE_GRACE_S = 1.0
_START_S = 30.0
_UNANSWERED_S = 5.0
"""How long after the end of its grace a guard may stay silent before the host ends the tree itself."""

Stream = Literal["pipe", "null"] | int


def child_env(overlay: Mapping[str, str], base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a guarded child: what `base` (the host's) may pass on, and `overlay` over it."""
    source = os.environ if base is None else base
    kept = {k: v for k, v in source.items() if k in ALLOWED or k.startswith(ALLOWED_PREFIXES)}
    return {**kept, **overlay}


# ---------------------------------------------------------------------------------- the role


class _Role:
    """One guard process: starts one child, watches the line and its children, ends them all."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._child = 0
        self._stop_at: float | None = None
        self._signalled: set[int] = set()
        self._killed: set[int] = set()

    def run(self) -> int:
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for signum in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda *_: None)

        order = self._order()
        if order is None:
            return 0
        try:
            self._child = _spawn(order["command"], order["env"], order["cwd"], order.get("wall"))
        except OSError as fault:
            self._say({"failed": fault.errno or 0, "text": fault.strerror or str(fault), "step": fault.filename})
            return 1
        self._say({"started": self._child})
        # The streams are the child's alone from here on: their ends must reach the host.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.close(null)
        self._watch(woken)
        return 0

    def _order(self) -> dict[str, Any] | None:
        received = bytearray()
        while not received.endswith(b"\n"):
            chunk = self._line.recv(65536)
            if not chunk or len(received) > _ORDER_BYTES:
                return None
            received += chunk
        order = json.loads(received)
        return order if isinstance(order, dict) else None

    def _say(self, message: dict[str, Any]) -> None:
        try:
            self._line.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # the host is gone: the report has no reader, the work goes on

    def _watch(self, woken: int) -> None:
        ready = select.poll()
        ready.register(self._line, select.POLLIN)
        ready.register(woken, select.POLLIN)
        said_left = False
        pause_s = 0.01
        while not self._bury():
            timeout_s: float | None = None
            if self._stop_at is not None:
                timeout_s = self._stop_at - time.monotonic()
                if timeout_s <= 0:
                    killed = self._kill()
                    # What cannot be killed (another user's, or stuck in the kernel) is asked for less and less often.
                    pause_s = 0.01 if killed else min(pause_s * 2, 1.0)
                    timeout_s = pause_s
                    if not said_left and time.monotonic() - self._stop_at > _UNANSWERED_S / 2:
                        said_left = True
                        self._say({"left": len(self._below())})
            for handle, _ in ready.poll(None if timeout_s is None else max(timeout_s, 0) * 1000):
                if handle == woken:
                    self._read_signals(woken)
                elif not self._read_line():
                    ready.unregister(self._line)
        self._say({"gone": True, "signalled": len(self._signalled | self._killed), "killed": len(self._killed)})

    def _read_signals(self, woken: int) -> None:
        received = os.read(woken, 4096)
        if any(signum != signal.SIGCHLD for signum in received):
            self._stop(_HOST_GONE_GRACE_S)

    def _read_line(self) -> bool:
        try:
            received = self._line.recv(4096)
        except OSError:
            received = b""
        if not received:
            self._stop(_HOST_GONE_GRACE_S)
            return False
        for order in received.splitlines():
            try:
                self._stop(float(json.loads(order)["stop"]))
            except (ValueError, KeyError, TypeError):
                self._stop(_HOST_GONE_GRACE_S)  # no sense in the order: the safe reading is to stop
        return True

    def _stop(self, grace_s: float) -> None:
        until = time.monotonic() + max(grace_s, 0.0)
        if self._stop_at is not None:
            self._stop_at = min(self._stop_at, until)
            return
        self._stop_at = until
        if not process.LINUX:
            _signal_group(self._child, signal.SIGTERM)
            return
        for found in self._below():
            if process.send(found, signal.SIGTERM):
                self._signalled.add(found.pid)
                process.send(found, signal.SIGCONT)  # a stopped process could not follow

    def _below(self) -> list[process.Process]:
        return [found for found in process.descendants(os.getpid()) if not found.is_zombie]

    def _kill(self) -> bool:
        if not process.LINUX:
            return _signal_group(self._child, signal.SIGKILL)
        new = {found.pid for found in process.kill_all(self._below)} - self._killed
        self._killed |= new
        return bool(new)

    def _bury(self) -> bool:
        """Take the status of every dead child. Returns whether no child is left: the kernel's word, not a count."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._child:
                self._say({"exited": os.waitstatus_to_exitcode(status)})
                if self._stop_at is None:
                    # What the child leaves behind has nobody to serve.
                    self._stop(_HOST_GONE_GRACE_S)


def _signal_group(pid: int, signum: int) -> bool:
    try:
        os.killpg(pid, signum)  # noqa: TID251 - systems without a subreaper: the group is all that can be named
    except OSError:
        return False
    return True


def _spawn(command: list[str], env: dict[str, str], cwd: str | None, wall: list[str] | None) -> int:
    """Fork and execute `command` in a session of its own; raises the OSError of whatever failed in the child.

    A wall that does not stand is an OSError too, with its reason as text and no number: nothing is executed then.

    By hand, because subprocess would be half of this role's start: the role has one thread and
    nothing open but the line, so a plain fork is safe.
    """
    guard = os.getpid()
    failed, fail = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        step = b"folder"
        try:
            os.setsid()
            process.die_with_parent(signal.SIGKILL)
            if os.getppid() != guard:
                os._exit(127)
            signal.set_wakeup_fd(-1)
            for signum in signal.valid_signals():
                if signal.getsignal(signum) is not signal.SIG_DFL and signum not in (signal.SIGKILL, signal.SIGSTOP):
                    signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            # Every descriptor is closed on exec anyway; these are the ones that could matter if one were not.
            os.closerange(3, fail)
            os.closerange(fail + 1, 1024)
            if cwd is not None:
                os.chdir(cwd)
            if wall is not None:
                step = b"wall"
                _wall_in(wall)
            step = b"program"
            os.execvpe(command[0], command, env)
        except Exception as fault:
            why = f"{fault}"[:_REASON_CHARS].encode("utf-8", "replace")
            os.write(fail, b"%d %s %s" % (getattr(fault, "errno", None) or errno.EINVAL, step, why))
        finally:
            os._exit(127)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.close(fail)
    try:
        told = os.read(failed, 8 * _REASON_CHARS)
    finally:
        os.close(failed)
    if told:
        os.waitpid(pid, 0)
        number, where, why = told.split(b" ", 2)
        text = why.decode("utf-8", "replace") if where == b"wall" else os.strerror(int(number))
        raise OSError(int(number), text, where.decode())
    return pid


def _wall_in(wall: list[str]) -> None:
    # Only a guard of a walled program loads this, in the process that becomes the program.
    from desktop.isolation.walls import WallOrder, raise_wall

    # Its own entries in /proc are not its own while it cannot be dumped; becoming the program ends that anyway.
    process.dumpable()
    raise_wall(WallOrder.of(wall))


def main(argv: list[str]) -> int:
    """Be a guard: `argv` is `--line=<fd>`, a connected socket to the host."""
    if len(argv) != 1 or not argv[0].startswith("--line=") or not argv[0][7:].isdigit():
        print("remuda: the role guard is started by the host only", file=sys.stderr)
        return 2
    process.become_subreaper()
    process.die_with_parent(signal.SIGTERM)
    # The child is of the same user: without this it could read the line's other traffic out of our memory.
    process.undumpable()
    line = socket.socket(fileno=int(argv[0][7:]))
    line.set_inheritable(False)
    return _Role(line).run()


# ---------------------------------------------------------------------------------- the host's half


class GuardError(Exception):
    """A guarded child could not be started. `code` is stable, the text a sentence for the person."""

    def __init__(self, message: str, *, code: str = "GUARD_START_FAILED") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class StopReport(NamedTuple):
    """What became of everything below a guard."""

    complete: bool
    """No process is left, by the kernel's word. False on systems that cannot tell, or when `left` is not 0."""
    left: int
    """Processes still there: stuck in the kernel, or another user's."""
    signalled: int
    """Processes that had to be told to end."""
    killed: int
    """Those of them that did not end in time and were killed."""


_live: dict[int, "Guarded"] = {}


def guard_pids() -> set[int]:
    """The pids of all live guards: whoever descends from one of them is no friend of the host's sockets."""
    return set(_live)


class Guarded:
    """A child program under a guard.

    `stdin`, `stdout` and `stderr` are streams where a pipe was asked for, else None. What the child
    writes is read at the caller's pace: a child that floods is held by its pipe. `stop` is called in
    every case, also after the child ended by itself; `async with` does it.
    """

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]") -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        self.name = name
        self.pid = popen.pid
        """The guard's pid."""
        self.child_pid = 0
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._popen = popen
        self._mark = ""
        self._transports: list[asyncio.BaseTransport] = []
        self._line: asyncio.StreamWriter | None = None
        self._exit: asyncio.Future[int | None] = loop.create_future()
        self._started: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._counts = {"signalled": 0, "killed": 0}
        self._left = 0
        self._gone = False
        self._silent = True
        self._listener: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        command: list[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        stdin: Stream = "pipe",
        stdout: Stream = "pipe",
        stderr: Stream = "pipe",
        name: str,
        limit_bytes: int = 1 << 20,
        inherit: bool = True,
        wall: "WallOrder | None" = None,
    ) -> Self:
        """Start `command` under a guard of its own; returns once it executes.

        Args:
            command: program and arguments; the program is looked for in the child's PATH.
            env: laid over the allow-list; may hold what the child needs to know, secrets too.
            cwd: the child's working folder.
            stdin: a pipe, nothing, or an open descriptor that stays the caller's.
            stdout: likewise.
            stderr: likewise.
            name: for logs and messages.
            limit_bytes: longest line the streams' `readline` takes; twice this is read ahead.
            inherit: False, the child has `env` and the guard's mark and nothing else; no allow-list.
            wall: what the child and everything below it stands behind; without it, it is not executed.

        Raises:
            GuardError: it could not be started; the message says why.
        """
        import asyncio
        import subprocess
        import threading

        from desktop.roles import self_command

        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("children are started from the main thread: their parent-death signal is bound to it")
        if os.name != "posix":
            raise GuardError("Programs cannot be guarded on this system yet.", code="GUARD_UNSUPPORTED")
        here, there = socket.socketpair()

        def end(stream: Stream) -> int:
            if isinstance(stream, int):
                return stream
            return subprocess.PIPE if stream == "pipe" else subprocess.DEVNULL

        try:
            with there:
                # Some milliseconds on the loop: asyncio's own starter takes a thread per child on Python 3.11.
                popen = subprocess.Popen(  # noqa: ASYNC220
                    [*self_command("guard"), f"--line={there.fileno()}"],
                    stdin=end(stdin),
                    stdout=end(stdout),
                    stderr=end(stderr),
                    pass_fds=(there.fileno(),),
                    env=child_env({}) if inherit else {},
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as fault:
            here.close()
            raise GuardError(f"The guard for {name} could not be started: {fault.strerror}.") from fault
        guarded = cls(name, popen)
        try:
            await guarded._open(here, limit_bytes)
            whole = child_env(env) if inherit else dict(env)
            await asyncio.wait_for(guarded._give_order(command, whole, cwd, wall), _START_S)
        except BaseException as fault:
            # Closing the line is a stop order by itself; the guard is waited for even when we are cancelled.
            if guarded._line is None:
                here.close()
            guarded._close_streams()
            await guarded._abandon()
            if isinstance(fault, TimeoutError | ConnectionError):
                raise GuardError(f"The guard for {name} did not answer.") from fault
            raise
        return guarded

    async def _open(self, here: socket.socket, limit_bytes: int) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        _live[self.pid] = self
        reader, self._line = await asyncio.open_unix_connection(sock=here)
        self._listener = loop.create_task(self._listen(reader), name=f"guard of {self.name}")

        async def read_end(pipe: Any) -> asyncio.StreamReader:
            stream = asyncio.StreamReader(limit_bytes, loop=loop)
            transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream, loop=loop), pipe)
            self._transports.append(transport)
            return stream

        if self._popen.stdout is not None:
            self.stdout = await read_end(self._popen.stdout)
        if self._popen.stderr is not None:
            self.stderr = await read_end(self._popen.stderr)
        if self._popen.stdin is not None:
            # The reader of this protocol is never fed; it is there for the writer's flow control.
            protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), loop=loop)
            transport, _ = await loop.connect_write_pipe(lambda: protocol, self._popen.stdin)
            self._transports.append(transport)
            self.stdin = asyncio.StreamWriter(transport, protocol, None, loop)

    async def _give_order(
        self, command: list[str], env: Mapping[str, str], cwd: str | None, wall: "WallOrder | None"
    ) -> None:
        assert self._line is not None
        self._mark = os.urandom(16).hex()
        order = {"command": command, "env": {**env, MARK: self._mark}, "cwd": cwd}
        if wall is not None:
            order["wall"] = wall.arguments()
        self._line.write(json.dumps(order).encode() + b"\n")
        await self._line.drain()
        answer = await self._started
        if "started" not in answer:
            text = answer.get("text") or "its guard ended"
            if answer.get("step") == "wall":
                raise GuardError(
                    f"{self.name} was not started: the wall around it could not be raised: {text}.",
                    code="GUARD_NO_WALL",
                )
            in_folder = answer.get("step") == "folder"
            missing = answer.get("failed") == errno.ENOENT and not in_folder
            raise GuardError(
                f"{self.name} could not be started: {cwd if in_folder else command[0]}: {text}.",
                code="GUARD_NO_PROGRAM" if missing else "GUARD_START_FAILED",
            )
        self.child_pid = int(answer["started"])

    async def _listen(self, reader: "asyncio.StreamReader") -> None:
        try:
            while said := await reader.readline():
                self._hear(json.loads(said))
        except (OSError, ValueError):
            pass  # a line that breaks is an ended line
        await process.wait_for_exit(self._popen)
        _live.pop(self.pid, None)
        if not self._gone and self._mark:
            await self._sweep()
        if not self._started.done():
            self._started.set_result({})
        if not self._exit.done():
            self._exit.set_result(None)

    def _hear(self, message: dict[str, Any]) -> None:
        self._silent = False
        if ("started" in message or "failed" in message) and not self._started.done():
            self._started.set_result(message)
        elif "exited" in message and not self._exit.done():
            self._exit.set_result(int(message["exited"]))
        elif "left" in message:
            self._left = int(message["left"])
        elif "gone" in message:
            self._gone = True
            self._left = 0
            self._counts = {"signalled": int(message["signalled"]), "killed": int(message["killed"])}

    async def _sweep(self) -> None:
        """The guard itself was killed: end what it held. Its orphans fell to us or to init; their mark names them."""
        import asyncio

        pause_s = 0.01
        for _ in range(12):
            found = [p for p in self._marked() if not p.is_zombie]
            self._left = len(found)
            if not found:
                break
            killed = process.kill_all(self._marked)
            self._counts["killed"] += len(killed)
            self._counts["signalled"] += len(killed)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)

    def _marked(self) -> list[process.Process]:
        """What carries the mark, and what stands below that with an environment of its own."""
        found = process.carriers(MARK, self._mark)
        below = [each for carrier in found for each in process.descendants(carrier.pid)]
        return list({each.pid: each for each in (*found, *below)}.values())

    async def wait(self) -> int | None:
        """Exit status of the child itself, negative for a signal.

        None when the guard was killed before it could tell: the status is not known and not guessed.
        """
        import asyncio

        return await asyncio.shield(self._exit)

    @property
    def returncode(self) -> int | None:
        """Exit status as far as known."""
        return self._exit.result() if self._exit.done() else None

    async def stop(self, grace_s: float = 2.0) -> StopReport:
        """End the child and everything below it; returns when none is left, or says how many are.

        Args:
            grace_s: time between the request to end (closed stdin, SIGTERM) and SIGKILL.
        """
        import asyncio

        if self._listener is None:
            return self._report()
        if self.stdin is not None:
            self.stdin.close()
        if not self._listener.done():
            if self._line is not None and not self._line.is_closing():
                self._silent = True
                self._line.write(json.dumps({"stop": grace_s}).encode() + b"\n")
            await asyncio.wait({self._listener}, timeout=max(grace_s, 0.0) + _UNANSWERED_S)
            if not self._listener.done() and self._silent:
                # A guard that says nothing is stopped or broken: the tree is ended from here, the guard last.
                process.kill_all(lambda: process.descendants(self.pid))
                self._popen.kill()
                await asyncio.wait({self._listener}, timeout=_UNANSWERED_S)
        report = self._report()
        if self._listener.done():
            self._close_streams()
            if self._line is not None:
                self._line.close()
            await self._listener
            # Closed transports give their descriptors back one turn later.
            await asyncio.sleep(0)
        return report

    def _report(self) -> StopReport:
        ended = self._listener is None or self._listener.done()
        complete = process.LINUX and ended and self._left == 0
        return StopReport(complete, self._left, self._counts["signalled"], self._counts["killed"])

    def _close_streams(self) -> None:
        import asyncio

        for transport in self._transports:
            if isinstance(transport, asyncio.WriteTransport):
                # Not waited for: nobody is left to read what it still holds.
                if not transport.is_closing() or transport.get_write_buffer_size():
                    transport.abort()
            else:
                transport.close()
        # A start that was cancelled has pipes that no transport took over.
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()

    async def _abandon(self) -> None:
        import asyncio

        if self._line is not None:
            self._line.close()
        if self._listener is not None:
            # Nobody waits for the answer any more.
            await asyncio.wait({self._listener}, timeout=_UNANSWERED_S)
        else:
            await process.wait_for_exit(self._popen)
            _live.pop(self.pid, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
