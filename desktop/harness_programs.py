"""The programs of harnesses as the desktop starts them: under its guard, behind its walls, with an exact environment.

Owns what such a program has of this computer. Must not know any harness. Invariants: it has of the host's environment
what `PASSED_ON` names and no proxy, key or path besides; nothing of it is left after `stop`, or it is said; a
program that was ordered behind a wall is executed behind it or not at all; the data folder is behind every wall but
for what the order names.
"""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from desktop.guard import Guarded, GuardError
from desktop.isolation import wall_trial, walls
from desktop.isolation.walls import WallOrder
from desktop.paths import ProfilePaths
from desktop.roles import self_command
from runtime_host.programs import PASSED_ON, Program, ProgramEnd, ProgramError, ProgramOrder, Wall, search_path

LINE_BYTES = 16 << 20
"""Longest line that a harness may write: a whole message with pictures and a file's content in it."""

_TRIAL_S = 90.0

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_CODES = {
    "GUARD_NO_PROGRAM": "PROGRAM_MISSING",
    "GUARD_NO_WALL": "PROGRAM_NO_WALL",
    "GUARD_UNSUPPORTED": "PROGRAM_UNSUPPORTED",
}


class WallReport(NamedTuple):
    """What a trial of the walls gave."""

    fault: str
    """Why they do not hold, a sentence; empty when they do."""
    weaker: tuple[str, ...] = ()
    """What they do not hold back here, sentences; not enough to do without them."""
    trial: wall_trial.Trial | None = None
    """Each attempt, with and without a wall; None where there was none."""


class HarnessPrograms:
    """Meets `runtime_host.programs.Programs`; programs are started from the main thread."""

    def __init__(self, *, hidden: Sequence[str] = ()) -> None:
        """Nothing is started yet.

        Args:
            hidden: folders that no wall lets through, wherever they lie; the data folder. Folders inside them that an
                order names are let through.
        """
        self._hidden = tuple(os.path.realpath(path) for path in hidden)
        self._trial: asyncio.Task[WallReport] | None = None

    async def start(self, order: ProgramOrder) -> Program:
        """Start a program under a guard of its own; see `Programs.start`."""
        if not order.command or not os.path.isabs(order.command[0]) or not os.path.isabs(order.cwd):
            raise ProgramError(f"{order.name} could not be started: its full path and folder are needed.")
        try:
            guarded = await Guarded.start(
                list(order.command),
                env={**passed_on(), **order.env},
                cwd=order.cwd,
                name=order.name,
                limit_bytes=LINE_BYTES,
                inherit=False,
                wall=None if order.wall is None else self._order(order.wall),
            )
        except GuardError as fault:
            raise ProgramError(fault.message, code=_CODES.get(fault.code, "PROGRAM_START_FAILED")) from fault
        return _GuardedProgram(guarded)

    def walled(self, wall: Wall) -> tuple[str, ...] | None:
        """See `Programs.walled`. The command line ends with `--`."""
        if walls.missing():
            return None
        return (*self_command("wall"), *self._order(wall).arguments(), "--")

    async def wall_fault(self) -> str:
        """See `Programs.wall_fault`."""
        return (await self.wall_report()).fault

    async def wall_report(self) -> WallReport:
        """Whether walls hold here, tried at the first call; and what was seen, for the doctor."""
        if self._trial is None:
            self._trial = asyncio.create_task(self._try_walls(), name="trial of the walls")
        # One caller's end is not the end of the trial that others wait for.
        return await asyncio.shield(self._trial)

    async def _try_walls(self) -> WallReport:
        lacking = walls.missing()
        if lacking:
            return WallReport(f"{lacking[0].upper()}{lacking[1:]}.")
        order = ProgramOrder("The trial of the walls", (*self_command("wall-trial"), *self._hidden), {}, "/")
        try:
            program = await self.start(order)
        except ProgramError as fault:
            return WallReport(fault.message)
        complained = b""
        try:
            async with asyncio.timeout(_TRIAL_S):
                said, complained = await asyncio.gather(program.stdout.read(), program.stderr.read())
            trial = wall_trial.Trial.of(said.decode())
        except TimeoutError:
            return WallReport("The walls could not be tried: there was no answer in time.")
        except ValueError:
            words = complained.decode("utf-8", "replace").strip().splitlines()
            return WallReport(f"The walls could not be tried: {words[-1] if words else 'there was no answer'}")
        finally:
            await program.stop()
        return WallReport(wall_trial.fault(trial), wall_trial.weaker(trial), trial)

    def _order(self, wall: Wall) -> WallOrder:
        return WallOrder(wall.readable, wall.writable, wall.network, self._hidden)


def passed_on(host: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a program has of the host's environment."""
    source = os.environ if host is None else host
    passed = {name: value for name, value in source.items() if name in PASSED_ON or name.startswith("LC_")}
    return {**passed, "PATH": search_path(passed.get("PATH", ""))}


class _GuardedProgram:
    """Meets `runtime_host.programs.Program`."""

    def __init__(self, guarded: Guarded) -> None:
        assert guarded.stdin is not None
        assert guarded.stdout is not None
        assert guarded.stderr is not None
        self._guarded = guarded
        self.stdin: asyncio.StreamWriter = guarded.stdin
        self.stdout: asyncio.StreamReader = guarded.stdout
        self.stderr: asyncio.StreamReader = guarded.stderr

    @property
    def pid(self) -> int:
        return self._guarded.child_pid

    @property
    def guard_pid(self) -> int:
        """Of the guard around it."""
        return self._guarded.pid

    @property
    def returncode(self) -> int | None:
        return self._guarded.returncode

    async def wait(self) -> int | None:
        return await self._guarded.wait()

    async def stop(self, grace_s: float = 2.0) -> ProgramEnd:
        report = await self._guarded.stop(grace_s)
        return ProgramEnd(report.complete, report.left, report.killed)


class ProfileHomes:
    """Meets `runtime_host.programs.HarnessHomes`: folders beside the agent's store."""

    def __init__(self, paths: ProfilePaths) -> None:
        self._paths = paths

    def home(self, agent_id: str, session_id: str) -> str:
        """See `HarnessHomes.home`.

        Raises:
            ValueError: no session is called that.
        """
        if _SESSION.fullmatch(session_id) is None:
            raise ValueError(f"no session is called {session_id!r}")
        # By its real path: walls take no other, and a data folder may be reached over links.
        return str(Path(os.path.realpath(self._paths.harness_homes(agent_id))) / session_id)


__all__ = ["LINE_BYTES", "HarnessPrograms", "ProfileHomes", "WallReport", "passed_on"]
