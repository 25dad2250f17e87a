"""Programs that drivers start on this computer, and the walls that these and their commands stand behind.

Owns the words in which a driver orders a program; who starts it is the host's doing. Must not know how: the desktop
does it under a guard. Invariants: a program has the environment that is ordered and nothing of the host's besides what
is named here; nothing secret is ordered in a command line; after `stop` it is said whether anything is left.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

PASSED_ON = frozenset({"PATH", "LANG", "TZ"})
"""Variables of the host that a program has unless the order says otherwise; and those beginning with ``LC_``."""

MARK: Final = "REMUDA_GUARD"
"""Variable by which whoever starts programs may know what these have started. No secret; where a program has it, it
goes on into every environment that is made anew below."""


_SYSTEM_PATH: Final = os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin"))


def search_path(path: str, *, apart_from: Iterable[str] = ()) -> str:
    """Where a program looks for others, without places in which somebody else may have put them.

    What is asked for by its name alone (`env`, `git`, `bwrap`) is started with all that the program itself may do. So
    a place that is named from wherever the program happens to be is none, nor one inside a folder it works in.

    Args:
        path: as in ``PATH``.
        apart_from: folders that commands of a model, or the makers of what lies there, may have written into.
    """
    apart = [os.path.realpath(folder) for folder in apart_from]
    kept = [place for place in path.split(os.pathsep) if os.path.isabs(place) and not _leads_into(place, apart)]
    return os.pathsep.join(kept) or _SYSTEM_PATH


def _leads_into(place: str, folders: list[str]) -> bool:
    """Whether a place lies in one of the folders, by its name, a link on the way, or where it really is."""
    names = [place]
    while (above := os.path.dirname(names[-1])) != names[-1]:
        names.append(above)
    # Of each folder on the way the real place counts: a link could be led elsewhere from inside.
    reals = {os.path.normpath(place), os.path.realpath(place), *(_own_place(name) for name in names)}
    return any(real == folder or real.startswith(folder.rstrip("/") + "/") for real in reals for folder in folders)


def _own_place(name: str) -> str:
    return os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))


@dataclass(frozen=True)
class Wall:
    """What is behind a wall: everything is refused that is not named here.

    What every program needs of the system (its libraries, programs, configuration, devices) can be read. The folders of
    the person cannot, where they are not named.

    Attributes:
        readable: further folders and files that can be read and executed, by their real paths: a link on the way
            raises no wall, since a command could have put it there.
        writable: folders in which anything can be done, likewise.
        network: `none`, no socket of any kind can be opened, a local one neither; `all`, those of the internet
            protocols can: local ones, which lead to the person's other programs, cannot.
    """

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    network: Literal["none", "all"] = "none"


class Toolchains(NamedTuple):
    """Programs that the person installed for themselves, and that commands of a harness may use. Nobody writes there.

    Attributes:
        readable: folders and files that hold programs and no credentials, by their real paths; read and executed.
        path: where commands look for programs, the system's places among them; empty for those alone.
    """

    readable: tuple[str, ...] = ()
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProgramOrder:
    """A program to start.

    Attributes:
        name: for messages, e.g. "The Codex CLI".
        command: the program by its full path, and its arguments. Nothing secret: every program here can read them.
        env: its environment, over what `PASSED_ON` names; may hold what only this program is to know.
        cwd: its working folder, a full path.
        wall: what it and everything below it stands behind; None for none.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str
    wall: Wall | None = None


class ProgramEnd(NamedTuple):
    """What became of a program and of everything it had started.

    Attributes:
        complete: nothing of it is left, by the kernel's word.
        left: processes that are still there.
        killed: processes that did not end when they were asked to.
    """

    complete: bool
    left: int = 0
    killed: int = 0


class Program(Protocol):
    """A program that was started. Its streams are its own alone; what it writes waits until it is read."""

    @property
    def pid(self) -> int:
        """Of the program itself."""
        ...

    @property
    def stdin(self) -> asyncio.StreamWriter: ...
    @property
    def stdout(self) -> asyncio.StreamReader: ...
    @property
    def stderr(self) -> asyncio.StreamReader: ...

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs, or where nobody could tell."""
        ...

    async def wait(self) -> int | None:
        """Wait for its end; the exit status, None where it is not known."""
        ...

    async def stop(self, grace_s: float = 2.0) -> ProgramEnd:
        """End it and everything below it; to be called in every case, also after it ended by itself. Idempotent."""
        ...


class ProgramError(Exception):
    """A program could not be started. The text is a sentence for the person, `code` is stable."""

    def __init__(self, message: str, *, code: str = "PROGRAM_START_FAILED") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Programs(Protocol):
    """Starts programs. A driver starts none but through this."""

    async def start(self, order: ProgramOrder) -> Program:
        """Start a program; returns once it executes.

        Raises:
            ProgramError: it could not be started, or not behind its wall.
        """
        ...

    def walled(self, wall: Wall) -> tuple[str, ...] | None:
        """A command line that runs what is written behind it inside `wall`; None where this system has no such wall.

        A program that stands behind a wall itself can use it for what it starts: only what both let through remains.
        """
        ...

    async def wall_fault(self) -> str:
        """Why walls do not hold here, in words, found out by trying; empty when they hold."""
        ...


class HarnessHomes(Protocol):
    """Where harnesses keep what they must keep on this computer."""

    def home(self, agent_id: str, session_id: str) -> str:
        """The full path of a session's own folder, which need not exist. No other session has it, or one inside it."""
        ...


__all__ = [
    "MARK",
    "PASSED_ON",
    "HarnessHomes",
    "Program",
    "ProgramEnd",
    "ProgramError",
    "ProgramOrder",
    "Programs",
    "Toolchains",
    "Wall",
    "search_path",
]
