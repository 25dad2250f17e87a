"""What a running CLI is to a run, and a run to a CLI. Protocols only, so that neither brings the SDK in."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from runtime_host.programs import ProgramEnd, ProgramOrder, Programs
from runtime_host.tools.base import ToolOffer


class ToolAnswer(NamedTuple):
    """What a call of a tool came to, in words for the model."""

    text: str
    failed: bool = False


class Listener(Protocol):
    """Who is told what the CLI says."""

    async def said(self, message: Mapping[str, Any]) -> None:
        """A message that is none of the control protocol. The next one waits until this returns."""
        ...

    async def called(self, call_id: str, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """The model calls a tool of the application, by its name within the server."""
        ...

    def gone(self) -> None:
        """The CLI says nothing more."""
        ...


Gate = Callable[[str, Mapping[str, Any]], str]
"""Why the CLI's own tool may not do what its arguments say; empty where it may."""


class RunningCli(Protocol):
    """One process of the CLI."""

    @property
    def lives(self) -> bool: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def last_words(self) -> str: ...
    def listen(self, listener: Listener | None) -> None: ...
    async def connect(self) -> None: ...
    async def say(self, text: str) -> None: ...
    async def interrupt(self) -> bool: ...
    async def stop(self, grace_s: float) -> ProgramEnd: ...


MakesClis = Callable[[Programs, ProgramOrder, Mapping[str, ToolOffer], Gate], RunningCli]
