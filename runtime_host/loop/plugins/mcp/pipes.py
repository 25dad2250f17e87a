"""An MCP server that is a program: JSON-RPC, a message a line, over the streams of what `Programs` started.

Owns the program and the bounds of what it may say. Must not know what messages mean. Invariants: a server that has
ended is over at once, also while something it left behind holds its streams; what it says waits until it is read, and
what nobody asked for is bounded by a budget that each request of ours renews; what is no message is counted, and too
much of it ends the server; after `__aexit__` nothing of it is left, or the host said so.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter

from runtime_host.programs import Program, ProgramOrder, Programs

LINE_BYTES: Final = 8 << 20
ASKED_BYTES: Final = 32 << 20
"""What a server may say between two requests of ours."""
ASKED_MESSAGES: Final = 20_000
NO_MESSAGES: Final = 100
"""Lines that are no message, in its life: some print a greeting."""
_LEFT_S: Final = 0.2
_READ_BYTES: Final = 64 * 1024
_COMPLAINT_BYTES: Final = 2_000
_HEARD: Final = frozenset({"notifications/progress", "notifications/tools/list_changed", "notifications/cancelled"})
"""Notifications that are passed on; of others there are no readers here."""

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class ProgramPipes:
    """A transport of the SDK.

    Args:
        programs: starts it.
        order: what to start.
        gone: called once, when nothing more comes.
    """

    def __init__(self, programs: Programs, order: ProgramOrder, gone: Callable[[], None]) -> None:
        self._programs = programs
        self._order = order
        self._gone = gone
        self._program: Program | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._budget_bytes = ASKED_BYTES
        self._budget_messages = ASKED_MESSAGES
        self._no_messages = 0
        self._complaint = b""
        self.why = ""
        """Why it was ended from here; "" when it was not."""

    async def __aenter__(self) -> Streams:
        self._program = await self._programs.start(self._order)
        self._into, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        said, self._outof = anyio.create_memory_object_stream[SessionMessage](0)
        self._ours = (heard, said)
        for work, name in (
            (self._read(self._program), "read"),
            (self._write(self._program), "write"),
            (self._drain(self._program), "stderr"),
            (self._watch(self._program), "watch"),
        ):
            self._tasks.add(asyncio.create_task(work, name=f"mcp: {name}"))
        return heard, said

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        program = self._program
        assert program is not None
        # To its end, whoever is cancelled meanwhile.
        with anyio.CancelScope(shield=True):
            await asyncio.shield(asyncio.ensure_future(self._end(program)))

    def said_last(self) -> str:
        """The last line of what it complained of, short and printable: for a person."""
        lines = [line for line in self._complaint.decode("utf-8", "replace").splitlines() if line.strip()]
        return "".join(sign for sign in (lines[-1].strip() if lines else "") if sign.isprintable())[:300]

    # ---- inside ----

    async def _end(self, program: Program) -> None:
        try:
            program.stdin.close()
        except (OSError, RuntimeError):
            pass
        await program.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for stream in (self._into, self._outof, *self._ours):
            stream.close()

    async def _read(self, program: Program) -> None:
        try:
            async for line in self._lines(program):
                message = self._message(line)
                if message is not None:
                    await self._into.send(SessionMessage(message))
        except (OSError, ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            self._over()

    async def _lines(self, program: Program) -> AsyncIterator[bytes]:
        held: list[bytes] = []
        held_bytes = 0
        while not self.why and (piece := await program.stdout.read(_READ_BYTES)):
            self._budget_bytes -= len(piece)
            *lines, rest = piece.split(b"\n")
            for line in lines:
                yield b"".join((*held, line))
                held, held_bytes = [], 0
            held.append(rest)
            held_bytes += len(rest)
            if held_bytes > LINE_BYTES or self._budget_bytes < 0:
                self.why = "it said more than anybody had asked for"
            # One that never stops speaking leaves others their turn.
            await asyncio.sleep(0)

    def _message(self, line: bytes) -> JSONRPCMessage | None:
        """What a line says; None for what is passed over."""
        if not line.strip():
            return None
        self._budget_messages -= 1
        if self._budget_messages < 0:
            self.why = "it said more than anybody had asked for"
            raise ValueError(self.why)
        try:
            told = json.loads(line)
            if isinstance(told, dict) and "id" not in told and told.get("method") not in _HEARD:
                return None
            return jsonrpc_message_adapter.validate_python(told, by_name=False)
        except (ValueError, RecursionError):
            self._no_messages += 1
            if self._no_messages > NO_MESSAGES:
                self.why = "what it writes is no MCP"
                raise ValueError(self.why) from None
            return None

    async def _write(self, program: Program) -> None:
        try:
            async for asked in self._outof:
                if isinstance(asked.message, JSONRPCRequest):
                    self._budget_bytes, self._budget_messages = ASKED_BYTES, ASKED_MESSAGES
                line = asked.message.model_dump_json(by_alias=True, exclude_unset=True)
                program.stdin.write(line.encode("utf-8", "replace") + b"\n")
                await program.stdin.drain()
        except (OSError, RuntimeError, anyio.ClosedResourceError):
            self._over()

    async def _drain(self, program: Program) -> None:
        try:
            while piece := await program.stderr.read(_READ_BYTES):
                self._complaint = (self._complaint + piece)[-_COMPLAINT_BYTES:]
        except (OSError, ValueError):
            pass

    async def _watch(self, program: Program) -> None:
        await program.wait()
        # What it said last may still be on its way; what it left behind may hold the stream for good.
        await asyncio.sleep(_LEFT_S)
        self._over()

    def _over(self) -> None:
        self._into.close()
        self._gone()


__all__ = ["ASKED_MESSAGES", "LINE_BYTES", "NO_MESSAGES", "ProgramPipes"]
