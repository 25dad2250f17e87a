"""Programs for an application that has no guard of its own: a session of their own, a clean environment, no walls.

Owns start and end of such a program. Must not know what it is. Invariants: it has of this process's environment what
`PASSED_ON` names; `stop` ends the program and its process group, and never says that nothing is left, because what
went into a session of its own cannot be seen from here. It builds no walls, so whatever needs one is refused.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, SubprocessStreamProtocol

from runtime_host.programs import PASSED_ON, Program, ProgramEnd, ProgramError, ProgramOrder, Wall, search_path

LINE_BYTES = 16 << 20
"""Longest line that a program may write and a driver read at once."""

_KILLED_S = 5.0


class PlainPrograms:
    """Meets `runtime_host.programs.Programs` on POSIX systems."""

    async def start(self, order: ProgramOrder) -> Program:
        """See `Programs.start`."""
        if order.wall is not None:
            raise ProgramError(f"{order.name} was not started: {await self.wall_fault()}", code="PROGRAM_NO_WALL")
        if os.name != "posix":
            raise ProgramError("Programs cannot be started on this system yet.", code="PROGRAM_UNSUPPORTED")
        if not order.command or not os.path.isabs(order.command[0]) or not os.path.isabs(order.cwd):
            raise ProgramError(f"{order.name} could not be started: its full path and folder are needed.")
        passed_on = {k: v for k, v in os.environ.items() if k in PASSED_ON or k.startswith("LC_")}
        passed_on["PATH"] = search_path(passed_on.get("PATH", ""))
        loop = asyncio.get_running_loop()
        try:
            transport, protocol = await loop.subprocess_exec(
                _Streams,
                *order.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env={**passed_on, **order.env},
                cwd=order.cwd,
                start_new_session=True,
            )
        except OSError as fault:
            # The system names the folder where it was that which could not be entered.
            place = fault.filename if isinstance(fault.filename, str) else order.command[0]
            missing = isinstance(fault, FileNotFoundError) and place == order.command[0]
            raise ProgramError(
                f"{order.name} could not be started: {place}: {fault.strerror}.",
                code="PROGRAM_MISSING" if missing else "PROGRAM_START_FAILED",
            ) from fault
        return _PlainProgram(transport, protocol)

    def walled(self, wall: Wall) -> tuple[str, ...] | None:
        """See `Programs.walled`: there is none."""
        del wall
        return None

    async def wall_fault(self) -> str:
        """See `Programs.wall_fault`."""
        return "This application builds no walls around programs."


class _Streams(SubprocessStreamProtocol):
    """The streams of a program, and word of its end: asyncio's own waits until nobody holds the streams any more."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(limit=LINE_BYTES, loop=loop)
        self.exited: asyncio.Future[None] = loop.create_future()

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)


class _PlainProgram:
    """Meets `runtime_host.programs.Program`."""

    def __init__(self, transport: asyncio.SubprocessTransport, streams: _Streams) -> None:
        assert streams.stdin is not None
        assert streams.stdout is not None
        assert streams.stderr is not None
        self._transport = transport
        self._exited = streams.exited
        self._end: ProgramEnd | None = None
        self.stdin: asyncio.StreamWriter = streams.stdin
        self.stdout: asyncio.StreamReader = streams.stdout
        self.stderr: asyncio.StreamReader = streams.stderr

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    @property
    def returncode(self) -> int | None:
        return self._transport.get_returncode()

    async def wait(self) -> int | None:
        await asyncio.shield(self._exited)
        return self.returncode

    async def stop(self, grace_s: float = 2.0) -> ProgramEnd:
        """See `Program.stop`; what is counted is the program itself."""
        if self._end is None:
            self._end = await self._stop(grace_s)
        return self._end

    async def _stop(self, grace_s: float) -> ProgramEnd:
        self.stdin.close()
        killed = 0
        if not await self._ended_by(signal.SIGTERM, grace_s):
            killed = 1
            await self._ended_by(signal.SIGKILL, _KILLED_S)
        # What it left in its group has nobody to serve.
        self._signal(signal.SIGKILL)
        self._transport.close()
        # A closed transport gives its descriptors back one turn later.
        await asyncio.sleep(0)
        return ProgramEnd(complete=False, left=int(self.returncode is None), killed=killed)

    async def _ended_by(self, signum: int, within_s: float) -> bool:
        self._signal(signum)
        await asyncio.wait({self._exited}, timeout=max(within_s, 0.0))
        return self._exited.done()

    def _signal(self, signum: int) -> None:
        """Signal the group. Once the program ended, its number may have become another's, whose group it is then."""
        if self.returncode is not None and _exists(self.pid):
            return
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signum)  # noqa: TID251 - a library has no guard: the group is all that can be named


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


__all__ = ["LINE_BYTES", "PlainPrograms"]
