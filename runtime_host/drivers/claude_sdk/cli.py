"""A running Claude CLI: its process, the SDK's control protocol over it, and the tools of the application.

The one module that imports the SDK; it is loaded when a run first needs it, in a thread. Owns process and pipes. Must
not know runs, results or what a tool does. Invariants: what the CLI says comes to its listener in the order in which
it was said, a call of a tool after everything before it; whatever asks for permission is denied; every wait has an end;
after `stop` no process, task or descriptor is left, or it is said so.

The SDK reads only what belongs to its control protocol. Everything else goes to the listener as it came: the SDK's own
stream drops what it does not know, and holds a hundred messages nobody may have read.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import claude_agent_sdk as sdk
from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, Tool

from runtime_host.drivers.claude_sdk.naming import SERVER, STRUCTURED
from runtime_host.drivers.claude_sdk.ports import Gate, Listener, ToolAnswer
from runtime_host.errors import AgentNativeExecutionError
from runtime_host.programs import Program, ProgramEnd, ProgramError, ProgramOrder, Programs
from runtime_host.tools.base import ToolOffer

log = logging.getLogger(__name__)

READ_BYTES: Final = 64 * 1024
LINE_BYTES: Final = 64 * 1024 * 1024
CONNECT_S: Final = 45.0
WRITE_S: Final = 20.0
CONTROL_S: Final = 15.0
_TOOL_USE_ID: Final = "claudecode/toolUseId"
_LARGEST_RESULT_CHARS: Final = 490_000
"""What the CLI passes on of one result at most; more it would put into a file."""


class _GoneError(Exception):
    """The CLI has ended. Fails what the SDK still waits for."""


class _Pipes(sdk.Transport):
    """What the SDK writes to and reads from: a program's pipes."""

    def __init__(self, start: Callable[[], Awaitable[Program]]) -> None:
        self.program: Program | None = None
        self.listener: Listener | None = None
        self.ended = asyncio.Event()
        self.leaving = False
        self.last_words: deque[str] = deque(maxlen=8)
        self._start = start
        self._writing = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        self.program = await self._start()
        self._draining = asyncio.create_task(self._drain(self.program.stderr), name="claude stderr")

    async def _drain(self, stream: asyncio.StreamReader) -> None:
        # Read so that it never stands still; the last of it may say why it ended.
        while piece := await stream.read(READ_BYTES):
            self.last_words.append(piece[-2000:].decode(errors="replace"))

    async def write(self, data: str) -> None:
        if self.program is None or self.ended.is_set():
            raise _GoneError("The CLI has ended.")
        async with self._writing, asyncio.timeout(WRITE_S):
            self.program.stdin.write(data.encode())
            await self.program.stdin.drain()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        try:
            async for line in self._lines():
                message = _parsed(line)
                if message is None:
                    continue
                if str(message.get("type", "")).startswith("control_"):
                    yield message
                elif self.listener is not None:
                    await self.listener.said(message)
        finally:
            self.ended.set()
            if self.listener is not None:
                self.listener.gone()
        if not self.leaving:
            raise _GoneError("The CLI has ended.")

    async def _lines(self) -> AsyncIterator[bytes]:
        program, rest, size = self.program, list[bytes](), 0
        while program is not None and (piece := await program.stdout.read(READ_BYTES)):
            *lines, last = piece.split(b"\n")
            for line in lines:
                yield b"".join((*rest, line))
                rest, size = [], 0
            rest.append(last)
            size += len(last)
            if size > LINE_BYTES:
                # Nothing that follows could be told from the middle of this.
                return

    async def close(self) -> None:
        """The process is ended by `Cli.stop`, which has a deadline for each step."""
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.wait({self._draining})
            self._draining = None

    def is_ready(self) -> bool:
        return self.program is not None and not self.ended.is_set()

    async def end_input(self) -> None:
        if self.program is not None:
            self.program.stdin.close()


class Cli:
    """One process of the CLI, for the runs of one session that need the same start.

    Args:
        programs: starts it.
        order: what to start.
        offers: tools of the application, by their names within the server.
        gate: judges what the CLI's own tools are given.
    """

    def __init__(self, programs: Programs, order: ProgramOrder, offers: Mapping[str, ToolOffer], gate: Gate) -> None:
        self._programs = programs
        self._order = order
        self._gate = gate
        self._pipes = _Pipes(self._begin)
        self._client = sdk.ClaudeSDKClient(self._options(offers), transport=self._pipes)
        self._stopping: asyncio.Task[ProgramEnd] | None = None
        self._connected = False

    @property
    def lives(self) -> bool:
        return self._connected and not self._pipes.ended.is_set() and self._stopping is None

    @property
    def pid(self) -> int | None:
        return self._pipes.program.pid if self._pipes.program is not None else None

    @property
    def last_words(self) -> str:
        """The end of what the CLI wrote beside its messages."""
        return "".join(self._pipes.last_words)[-2000:]

    def listen(self, listener: Listener | None) -> None:
        """Who is told from now on; None for nobody."""
        self._pipes.listener = listener

    async def connect(self) -> None:
        """Start the process and agree on how to speak.

        Raises:
            AgentNativeExecutionError: it does not start, or does not answer.
        """
        connecting = asyncio.create_task(self._client.connect(), name="claude connect")
        try:
            done, _ = await asyncio.wait({connecting}, timeout=CONNECT_S)
        except asyncio.CancelledError:
            await _given_up(connecting)
            raise
        if not done:
            await _given_up(connecting)
            raise _not_started("it did not answer in time")
        fault = connecting.exception()
        if isinstance(fault, ProgramError):
            raise AgentNativeExecutionError(fault.message, native_code=fault.code) from None
        if fault is not None:
            log.warning("the Claude CLI did not start: %s", type(fault).__name__)
            raise _not_started("it ended at once" if self._pipes.ended.is_set() else "it did not answer as it should")
        self._connected = True

    async def say(self, text: str) -> None:
        """Give it the words of a person, as they are.

        Raises:
            AgentNativeExecutionError: it has ended, or takes nothing.
        """
        try:
            await self._client.query(text)
        except (OSError, TimeoutError, _GoneError):
            raise AgentNativeExecutionError(
                "The Claude CLI did not take the message.", native_code="PROVIDER_UNREACHABLE"
            ) from None

    async def interrupt(self) -> bool:
        """Ask it to stop what it does; whether it said that it will."""
        try:
            async with asyncio.timeout(CONTROL_S):
                await self._client.interrupt()
        except Exception as fault:
            log.info("the Claude CLI was not interrupted: %s", type(fault).__name__)
            return False
        return True

    async def wait_gone(self) -> None:
        await self._pipes.ended.wait()

    async def stop(self, grace_s: float) -> ProgramEnd:
        """End it, at once or after `grace_s` in which it may end by itself. Idempotent."""
        if self._stopping is None or self._stopping.cancelled():
            self._stopping = asyncio.create_task(self._stop(grace_s), name="claude stop")
        # Whoever waits may be given up; the end of a process is not.
        return await asyncio.shield(self._stopping)

    async def _stop(self, grace_s: float) -> ProgramEnd:
        program = self._pipes.program
        # Only what nobody asked for is a fault to the SDK, which then fails what it still waits for.
        self._pipes.leaving = self._connected
        end = ProgramEnd(complete=True)
        try:
            if program is not None:
                program.stdin.close()
                if grace_s > 0:
                    await asyncio.wait({asyncio.ensure_future(self._pipes.ended.wait())}, timeout=grace_s)
                end = await program.stop(grace_s=min(grace_s, 0.5))
        finally:
            self._pipes.ended.set()
            try:
                async with asyncio.timeout(CONTROL_S):
                    await self._client.disconnect()
            except Exception as fault:
                log.warning("the Claude SDK did not let go: %s", type(fault).__name__)
            await self._pipes.close()
        if end.left:
            log.error("of the Claude CLI %d processes are left", end.left)
        return end

    async def _begin(self) -> Program:
        return await self._programs.start(self._order)

    def _options(self, offers: Mapping[str, ToolOffer]) -> sdk.ClaudeAgentOptions:
        """What the SDK itself needs to know. The command line is the order's."""
        servers: dict[str, Any] = {}
        if offers:
            servers[SERVER] = sdk.McpSdkServerConfig(type="sdk", name=SERVER, instance=self._server(offers))
        return sdk.ClaudeAgentOptions(
            tools=[],
            mcp_servers=servers,
            strict_mcp_config=True,
            setting_sources=[],
            skills=[],
            can_use_tool=_deny,
            hooks={"PreToolUse": [sdk.HookMatcher(hooks=[self._before_tool], on_failure="block")]},
            verbatim_prompts=True,
            include_partial_messages=True,
        )

    def _server(self, offers: Mapping[str, ToolOffer]) -> "Server[Any]":
        tools = [_tool(name, offer) for name, offer in offers.items()]

        async def list_tools(_: Any, __: Any) -> ListToolsResult:
            return ListToolsResult(tools=tools)

        async def call_tool(_: Any, params: Any) -> CallToolResult:
            meta: Mapping[str, Any] = params.meta if isinstance(params.meta, Mapping) else {}
            answer = await self._call(str(meta.get(_TOOL_USE_ID, "")), params.name, params.arguments or {})
            content = [{"type": "text", "text": answer.text[:_LARGEST_RESULT_CHARS]}]
            return CallToolResult.model_validate({"content": content, "isError": answer.failed})

        return Server(SERVER, version="1", on_list_tools=list_tools, on_call_tool=call_tool)

    async def _before_tool(self, asked: Any, _: str | None, __: sdk.HookContext) -> sdk.HookJSONOutput:
        """Before any tool: those of the application are judged where they are executed."""
        name, arguments = str(asked.get("tool_name", "")), asked.get("tool_input")
        if name.startswith(f"mcp__{SERVER}__") or name == STRUCTURED:
            return {}
        why_not = self._gate(name, arguments if isinstance(arguments, Mapping) else {})
        if not why_not:
            return {}
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": why_not,
            }
        }

    async def _call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        listener = self._pipes.listener
        if listener is None or not call_id:
            return ToolAnswer("Nothing was executed: nobody waits for this call.", failed=True)
        return await listener.called(call_id, name, arguments)


async def _deny(
    tool: str, arguments: dict[str, Any], context: sdk.ToolPermissionContext
) -> sdk.PermissionResultAllow | sdk.PermissionResultDeny:
    return sdk.PermissionResultDeny(message="This is not allowed here. Nothing was done.")


def _tool(name: str, offer: ToolOffer) -> Tool:
    return Tool.model_validate(
        {
            "name": name,
            "description": offer.description,
            "inputSchema": json.loads(json.dumps(offer.parameters)),
            "_meta": {"anthropic/maxResultSizeChars": 500_000},
        }
    )


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A message; None for what else may stand on a line."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


async def _given_up(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=CONTROL_S)
    if task.done() and not task.cancelled():
        task.exception()


def _not_started(why: str) -> AgentNativeExecutionError:
    return AgentNativeExecutionError(
        f"The Claude CLI could not be started: {why}. Nothing was sent.", native_code="HARNESS_START_FAILED"
    )


__all__ = ["Cli"]
