"""The Codex CLI as a server: JSON-RPC, a message a line, over the streams of a program.

Owns the program, the numbers of calls and their answers. Must not know what the methods mean. Invariants: every call
has a deadline and an answer, if only that there will be none; a question of the CLI that nobody here knows is refused;
a program that has ended, is silent or says what is no message is over for good, and everybody waiting is told; what it
says waits until it is read, so that it cannot fill the memory.

The vendor's own Python client is not used: its calls have no deadline, its one reader waits for whoever answers a
question, it hands the host's whole environment on, and an approval that nobody handles it grants.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from runtime_host.programs import Program, ProgramEnd

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 256 * 1024

Notified = Callable[[str, Mapping[str, Any]], Awaitable[None]]
Asked = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]
"""Answers a question of the CLI; None refuses it. Raises `NoAnswerError` when there is to be none at all."""


class ServerGoneError(Exception):
    """The CLI has ended, or can no longer be spoken with."""


class ServerSilentError(Exception):
    """A call was not answered in time."""


class NoAnswerError(Exception):
    """Nothing may be said to a question of the CLI."""


class CallRefusedError(Exception):
    """The CLI answered a call with an error. Its words are in `text`, for looking at, not for showing."""

    def __init__(self, method: str, code: int, text: str) -> None:
        super().__init__(f"{method}: {code}")
        self.code = code
        self.text = text


class AppServer:
    """A conversation with one program.

    Args:
        program: was just started.
        notified: told of each notification, in order; the next is read when it returns.
        asked: answers questions, each in a task of its own.
        gone: called once, when nothing more comes.
    """

    def __init__(self, program: Program, notified: Notified, asked: Asked, gone: Callable[[], None]) -> None:
        self.program = program
        self._notified = notified
        self._asked = asked
        self._gone = gone
        self._number = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()
        self._reading = asyncio.create_task(self._read(), name="codex: read")
        self._draining = asyncio.create_task(self._drain(), name="codex: stderr")

    @property
    def is_alive(self) -> bool:
        return not self.ended.is_set()

    async def call(self, method: str, params: Mapping[str, Any], *, within_s: float) -> dict[str, Any]:
        """Ask for something and wait for the answer.

        Raises:
            ServerGoneError, ServerSilentError, CallRefusedError
        """
        if self.ended.is_set():
            raise ServerGoneError(method)
        self._number += 1
        number = self._number
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(within_s):
                await self._send({"id": number, "method": method, "params": params})
                message = await answer
        except TimeoutError:
            raise ServerSilentError(method) from None
        finally:
            self._waiting.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()
        error = message.get("error")
        if isinstance(error, dict):
            raise CallRefusedError(method, int(error.get("code", 0)), str(error.get("message", "")))
        result = message.get("result")
        return result if isinstance(result, dict) else {}

    async def notify(self, method: str) -> None:
        """Tell the CLI something that has no answer."""
        await self._send({"method": method})

    async def stop(self, grace_s: float = 2.0) -> ProgramEnd:
        """End the program and everything below it. Idempotent."""
        with contextlib.suppress(OSError, RuntimeError):
            self.program.stdin.close()
        try:
            return await self.program.stop(grace_s)
        finally:
            self._over()
            for task in (self._reading, self._draining, *self._answering):
                task.cancel()
            await asyncio.wait({self._reading, self._draining, *self._answering})

    # ---- inside ----

    async def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self.program.stdin.write(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            await self.program.stdin.drain()
        except (OSError, RuntimeError) as error:
            self._over()
            raise ServerGoneError(type(error).__name__) from None

    async def _read(self) -> None:
        held: list[bytes] = []
        held_bytes = 0
        try:
            while piece := await self.program.stdout.read(_READ_BYTES):
                *lines, rest = piece.split(b"\n")
                for line in lines:
                    await self._take(b"".join((*held, line)))
                    held, held_bytes = [], 0
                held.append(rest)
                held_bytes += len(rest)
                if held_bytes > MAX_LINE_BYTES:
                    return
        except (OSError, ValueError, RecursionError):
            # It says what is no message: nothing it says from here on can be believed.
            return
        finally:
            self._over()

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("no message")
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        known = params if isinstance(params, dict) else {}
        if isinstance(method, str) and number is not None:
            task = asyncio.create_task(self._answer(number, method, known), name="codex: answer")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif isinstance(method, str):
            await self._notified(method, known)
        elif isinstance(number, int) and (waiting := self._waiting.get(number)) is not None and not waiting.done():
            waiting.set_result(message)

    async def _answer(self, number: object, method: str, params: Mapping[str, Any]) -> None:
        try:
            result = await self._asked(method, params)
        except NoAnswerError:
            return
        answer: dict[str, Any] = {"id": number}
        if result is None:
            answer["error"] = {"code": -32601, "message": "This is refused here."}
        else:
            answer["result"] = result
        with contextlib.suppress(ServerGoneError):
            await self._send(answer)

    async def _drain(self) -> None:
        # What it complains of may hold anything; it is read so that it does not wait, and not kept.
        with contextlib.suppress(OSError, ValueError):
            while await self.program.stderr.read(_READ_BYTES):
                pass

    def _over(self) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        self._gone()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ServerGoneError("ended"))
