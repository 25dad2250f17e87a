"""One command line in the session's folder, behind the wall.

Owns how it is started, what of its output is kept, and that nothing of it is left. Must not know plugins or mounts.
Invariants: no command is executed but behind the wall, and none where no wall holds; it has no network and no
environment but what is named here; whatever it does, it ends with its time, with the run, or with this host.
"""

import asyncio
import codecs
import contextlib
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from runtime_host.loop.own_thread import in_own_thread, to_its_end
from runtime_host.programs import Program, ProgramError, ProgramOrder, Programs, Toolchains, Wall

MOST_HEAD_CHARS: Final = 16 * 1024
MOST_TAIL_CHARS: Final = 32 * 1024
MOST_LIVE_CHARS: Final = 64 * 1024
USUAL_S: Final = 120
LONGEST_S: Final = 1800
_PIECE_BYTES: Final = 16 * 1024
_GRACE_S: Final = 1.0
_AFTER_S: Final = 5.0
"""How long what a command leaves behind may hold its output open; it is ended within that."""
_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin")
_BOTH: Final = 'exec /bin/sh -c "$1" 2>&1'

Progress = Callable[[str], Awaitable[None]]


class CommandError(Exception):
    """A command was not executed. The text is a sentence."""


class Ran(NamedTuple):
    """What came of a command.

    Attributes:
        exit_code: negative for a signal; None where it did not end by itself or nobody could tell.
        ended_by: itself, its time limit, or the stop of the run.
        left_out_chars: of its output, from the middle.
        left: processes of it that could not be ended.
    """

    exit_code: int | None
    ended_by: str
    output: str
    left_out_chars: int
    left: int


class _Output:
    """Beginning and end of what was written; shows it as it comes, as far as that goes."""

    def __init__(self, progress: Progress) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._progress = progress
        self._live = MOST_LIVE_CHARS
        self._head = ""
        self._tail = ""
        self.left_out = 0

    async def take(self, piece: bytes, *, final: bool = False) -> None:
        text = self._decode(piece, final)
        if self._live > 0 and text:
            shown, self._live = text[: self._live], self._live - len(text)
            await self._progress(shown)
        room = MOST_HEAD_CHARS - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        over = max(len(tail) - MOST_TAIL_CHARS, 0)
        self.left_out += over
        self._tail = tail[over:]

    @property
    def text(self) -> str:
        if not self.left_out:
            return self._head + self._tail
        return f"{self._head}\n… {self.left_out} characters are left out here …\n{self._tail}"


def wall_of(root: str, scratch: str, toolchains: Toolchains, *, writes: bool) -> Wall:
    """What a command stands behind: the folder, a scratch folder, the system's programs, and no network."""
    return Wall(
        readable=(*toolchains.readable, *(() if writes else (root,))),
        writable=(scratch, *((root,) if writes else ())),
        network="none",
    )


def environment(scratch: str, toolchains: Toolchains) -> dict[str, str]:
    """All that a command has of variables, besides those that every program has."""
    return {
        "PATH": ":".join(toolchains.path or _PATH),
        "HOME": scratch,
        "TMPDIR": scratch,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "GIT_EDITOR": "true",
        "PAGER": "cat",
    }


async def run(
    programs: Programs,
    command: str,
    *,
    root: str,
    writes: bool,
    toolchains: Toolchains,
    limit_s: float,
    stopping: asyncio.Event,
    progress: Progress,
) -> Ran:
    """Run one command line to its end, or to that of its time.

    Raises:
        CommandError: it was not executed.
    """
    fault = await programs.wall_fault()
    if fault:
        raise CommandError(fault)
    # Its own, and gone with it: nothing of one command is found by another but what it left in the folder.
    scratch = await in_own_thread(_scratch, "make a scratch folder")
    try:
        order = ProgramOrder(
            "The command",
            ("/bin/sh", "-c", _BOTH, "sh", command),
            environment(scratch, toolchains),
            root,
            wall_of(root, scratch, toolchains, writes=writes),
        )
        try:
            program = await programs.start(order)
        except ProgramError as refused:
            raise CommandError(refused.message) from None
        return await _to_its_end(program, limit_s, stopping, _Output(progress))
    finally:
        await to_its_end(lambda: shutil.rmtree(scratch, ignore_errors=True), "remove a scratch folder")


def _scratch() -> str:
    return os.path.realpath(tempfile.mkdtemp(prefix="remuda-"))


async def _to_its_end(program: Program, limit_s: float, stopping: asyncio.Event, output: _Output) -> Ran:
    reading = asyncio.create_task(_read(program, output))
    ended = asyncio.create_task(program.wait())
    stopped = asyncio.create_task(stopping.wait())
    try:
        program.stdin.close()
        await asyncio.wait({ended, stopped}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        by = "itself" if ended.done() else "the stop of the run" if stopped.done() else "its time limit"
        if ended.done():
            await asyncio.wait({reading}, timeout=_AFTER_S)
        end = await program.stop(_GRACE_S)
        await asyncio.wait({reading}, timeout=_GRACE_S)
        return Ran(ended.result() if by == "itself" else None, by, output.text, output.left_out, end.left)
    finally:
        stopped.cancel()
        reading.cancel()
        await _gone(program)
        ended.cancel()
        await asyncio.wait({reading, ended, stopped})


async def _read(program: Program, output: _Output) -> None:
    while piece := await program.stdout.read(_PIECE_BYTES):
        await output.take(piece)
    await output.take(b"", final=True)


async def _gone(program: Program) -> None:
    """Also where the caller was cancelled: nothing of the command goes on behind its back."""
    stopping = asyncio.ensure_future(program.stop(_GRACE_S))
    while not stopping.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(stopping)
