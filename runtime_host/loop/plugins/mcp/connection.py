"""One conversation with an MCP server, on the official SDK. Loaded by `sdk`, in a thread.

Owns the SDK's client of one server: the hand-shake, the list of tools, calls, and what their endings mean. Must not
know mounts or credentials. Invariants: every question has a deadline; a question of the server (sampling, elicitation,
roots) is refused; its instructions, prompts and resources are not asked for; what a server wrote into an answer is
data; of an ended call it is said whether it may have been done.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import httpx2
from mcp.client import Client
from mcp.client.auth import OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    Tool,
)
from pydantic import TypeAdapter, ValidationError

from runtime_host.loop.plugins.base import PluginError, RemoteTool
from runtime_host.loop.plugins.mcp.http import Ending, SignInNeededError, TooMuchError, ending
from runtime_host.loop.plugins.mcp.pipes import ProgramPipes
from runtime_host.programs import ProgramError, ProgramOrder, Programs

LIST_S: Final = 10.0
MOST_TOOLS: Final = 512
_MOST_PAGES: Final = 64
_SCHEMA_CHARS: Final = 64 * 1024
_WORDS_CHARS: Final = 4_000
_END_S: Final = 10.0

_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)

Transport = AbstractAsyncContextManager[Any]


class Conversation:
    """A server that was connected to.

    Args:
        name: for sentences.
        transport: of the SDK; given what to call when the other side is gone.
        said_last: the last complaint of a program, and why it was ended from here.
    """

    def __init__(
        self,
        name: str,
        transport: Callable[[Callable[[], None]], Transport],
        said_last: Callable[[], str] = lambda: "",
    ) -> None:
        self.name = name
        self._said_last = said_last
        self._ending = asyncio.Event()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._gone = False
        self._fault: Exception | None = None
        self._heard = Ending()
        self._task = asyncio.create_task(self._serve(transport), name="mcp: conversation")

    @property
    def alive(self) -> bool:
        return not self._gone and not self._ending.is_set()

    async def opened(self, within_s: float) -> None:
        """Wait until it can be asked; it goes on connecting when its caller does not wait any more.

        Raises:
            PluginError: it cannot be had.
        """
        try:
            async with asyncio.timeout(within_s):
                await asyncio.shield(self._opened)
        except TimeoutError:
            await self.end()
            raise PluginError(
                f"The MCP server {self.name} did not answer within {within_s:.0f} seconds. Nothing was done.",
                code="mcp_silent",
                transient=True,
            ) from None
        except Exception as fault:
            await self.end()
            raise self._not_had(fault) from None

    async def tools(self) -> tuple[RemoteTool, ...]:
        """All tools that it tells of now.

        Raises:
            PluginError: it did not tell.
        """
        client = self._opened.result()
        found: list[Tool] = []
        cursor: str | None = None
        token = ending.set(self._heard)
        try:
            async with asyncio.timeout(LIST_S):
                for _ in range(_MOST_PAGES):
                    page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
                    found += page.tools
                    cursor = page.next_cursor
                    if cursor is None or len(found) > MOST_TOOLS:
                        break
        except Exception as fault:
            # Whoever cannot be asked what it does is not asked to do something either.
            await self.end()
            raise self._not_had(fault) from None
        finally:
            ending.reset(token)
        return tuple(_told(tool) for tool in found[:MOST_TOOLS])

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        within_s: float,
        stopping: asyncio.Event,
        progress: Callable[[str], Awaitable[None]],
    ) -> CallToolResult:
        """Have it do something, once.

        Raises:
            PluginError: it failed, or that is not known.
        """
        heard = Ending()
        token = ending.set(heard)
        try:
            asked = asyncio.create_task(self._ask(tool, arguments, progress), name="mcp: call")
        finally:
            ending.reset(token)
        stop = asyncio.create_task(stopping.wait(), name="mcp: stopping")
        try:
            await asyncio.wait({asked, stop}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                why = "The run was stopped" if stop.done() else f"There was no answer within {within_s:.0f} seconds"
                raise PluginError(
                    f"{why}. Whether the MCP server {self.name} did what it was asked to is not known.",
                    code="stopped" if stop.done() else "mcp_silent",
                    landed="perhaps",
                )
            return self._answer(asked.result())
        except (PluginError, asyncio.CancelledError):
            raise
        except Exception as fault:
            if isinstance(fault, MCPError) and fault.code == CONNECTION_CLOSED:
                # With it comes why; a server that ends by itself says the same of calls that it leaves.
                await self.end()
            raise self._ended(fault, heard) from None
        finally:
            asked.cancel()
            stop.cancel()
            await asyncio.wait({asked, stop})

    async def end(self) -> None:
        """End it and what was started for it. Idempotent."""
        self._ending.set()
        if not self._opened.done():
            self._task.cancel()
        done, _ = await asyncio.wait({self._task}, timeout=_END_S)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task})

    # ---- inside ----

    async def _serve(self, transport: Callable[[Callable[[], None]], Transport]) -> None:
        ending.set(self._heard)
        try:
            async with Client(
                transport(self._ending.set),
                cache=None,
                client_info=Implementation(name="remuda", version="1"),
                read_timeout_seconds=None,
            ) as client:
                if not self._opened.done():
                    self._opened.set_result(client)
                await self._ending.wait()
        except Exception as fault:
            self._fault = fault
            if not self._opened.done():
                self._opened.set_exception(fault)
        finally:
            self._gone = True
            if not self._opened.done():
                self._opened.set_exception(ConnectionError("gone"))
            # Nobody may have waited for it.
            self._opened.exception()

    async def _ask(
        self, tool: str, arguments: Mapping[str, Any], show: Callable[[str], Awaitable[None]]
    ) -> CallToolResult | InputRequiredResult:
        async def told(progress: float, total: float | None, message: str | None) -> None:
            if message:
                await show(message[:_WORDS_CHARS])

        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=_plain(arguments)))
        # Not the SDK's `call_tool`: it would check answers against a schema of the server's, which can be endless.
        return await self._opened.result().session.send_request(request, _RESULT, progress_callback=told)

    def _answer(self, result: CallToolResult | InputRequiredResult) -> CallToolResult:
        if isinstance(result, InputRequiredResult):
            raise PluginError(
                f"The MCP server {self.name} asked for something in return, which it is not given here. Whether it "
                "did a part of what it was asked to is not known.",
                code="mcp_asks",
                landed="perhaps",
            )
        return result

    def _not_had(self, fault: BaseException) -> PluginError:
        """Before anything was asked of it to do."""
        found = _first(self._fault or fault)
        if isinstance(found, PluginError):
            return found
        if isinstance(found, ProgramError):
            return PluginError(found.message, code="mcp_not_started")
        if isinstance(found, OAuthFlowError):
            return PluginError(f"The sign-in failed: {_printable(str(found))}", code="sign_in_refused")
        if self._heard.words:
            return PluginError(f"{self._heard.words} Nothing was done.", code="mcp_unreachable", transient=True)
        if isinstance(found, SignInNeededError) or self._heard.status in (401, 403):
            return _sign_in(self.name)
        said = self._said_last()
        more = f" It said last: {said}" if said else ""
        if not more and isinstance(found, httpx2.TransportError | MCPError | ValidationError):
            more = f" ({_short(found)})"
        return PluginError(
            f"The MCP server {self.name} could not be spoken with. Nothing was done.{more}",
            code="mcp_unreachable",
            transient=True,
        )

    def _ended(self, fault: Exception, heard: Ending) -> PluginError:
        """What a call that came to no answer means."""
        found = _first(self._fault or fault)
        if isinstance(found, SignInNeededError) or heard.status in (401, 403):
            return _sign_in(self.name)
        if heard.status == 429:
            return PluginError(
                f"The MCP server {self.name} wants to be asked less often. Nothing was done; try later.",
                code="mcp_busy",
                transient=True,
            )
        if heard.words:
            return PluginError(f"{heard.words} Nothing was sent.", code="mcp_unreachable", transient=True)
        if 400 <= heard.status < 500 or (isinstance(found, MCPError) and found.code in _REFUSALS):
            words = _short(found) if isinstance(found, MCPError) else f"HTTP {heard.status}"
            return PluginError(f"The MCP server {self.name} refused the call: {words}", code="mcp_refused")
        unknown = "Whether it did what it was asked to is not known."
        if self.alive:
            words = f"The MCP server {self.name} answered with a fault ({_short(found)}). {unknown}"
        else:
            said = self._said_last()
            words = f"The MCP server {self.name} ended while it was asked. {unknown}"
            words += f" It said last: {said}" if said else ""
            words += " The next call starts it anew."
        return PluginError(words, code="mcp_lost", landed="perhaps")


_REFUSALS: Final = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})


def local(name: str, programs: Programs, order: ProgramOrder) -> Conversation:
    """Start a server and connect to it."""
    pipes: list[ProgramPipes] = []

    def transport(gone: Callable[[], None]) -> Transport:
        pipes.append(ProgramPipes(programs, order, gone))
        return pipes[0]

    return Conversation(name, transport, lambda: pipes[0].why or pipes[0].said_last())


def remote(name: str, address: str, client: httpx2.AsyncClient) -> Conversation:
    """Connect to a server at an address. The client is closed with it."""

    def transport(gone: Callable[[], None]) -> Transport:
        return _Closing(client, streamable_http_client(address, http_client=client))

    return Conversation(name, transport)


class _Closing:
    """A transport with the client below it."""

    def __init__(self, client: httpx2.AsyncClient, transport: Transport) -> None:
        self._client = client
        self._transport = transport

    async def __aenter__(self) -> Any:
        await self._client.__aenter__()
        return await self._transport.__aenter__()

    async def __aexit__(self, *raised: Any) -> bool | None:
        try:
            return await self._transport.__aexit__(*raised)
        finally:
            await self._client.__aexit__(None, None, None)


def _told(tool: Tool) -> RemoteTool:
    schema = tool.input_schema
    if len(json.dumps(schema, default=str)) > _SCHEMA_CHARS:
        # Without a schema it is not admitted, and that is said.
        schema = {}
    read_only = tool.annotations is not None and tool.annotations.read_only_hint is True
    return RemoteTool(tool.name, tool.description or tool.title or "", schema, read_only)


def _plain(value: Any) -> Any:
    """Frozen arguments as the JSON they are."""
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value


def _first(fault: BaseException) -> BaseException:
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


def _short(fault: BaseException) -> str:
    if isinstance(fault, TooMuchError):
        return str(fault)
    words = fault.message if isinstance(fault, MCPError) else type(fault).__name__
    return _printable(words) or type(fault).__name__


def _printable(text: str) -> str:
    return "".join(sign for sign in text if sign.isprintable())[:300]


def _sign_in(name: str) -> PluginError:
    return PluginError(
        f"The MCP server {name} does not take the credential, or there is none: a person has to sign in or attach "
        "one. Nothing was done, and trying again will not help.",
        code="credential_rejected",
    )


__all__ = ["LIST_S", "MOST_TOOLS", "Conversation", "local", "remote"]
