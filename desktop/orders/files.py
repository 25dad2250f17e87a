"""The orders about files: given to a conversation, listed, fetched from it.

Owns their rows and progress. Must not know how orders arrive, nor how a file is moved. Invariant: a file is named from
the top of the disk on, by who gives the order; a stop leaves nothing of it here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from desktop.choices import HARNESS_NAMES
from desktop.exit_codes import CANCELLED, COMPLETED
from desktop.orders.answers import Send
from runtime_host.abort import AbortSignal
from runtime_host.errors import AgentAbortedError, AgentTransferError
from runtime_host.transfer.copy import OnProgress, TransferProgress

if TYPE_CHECKING:
    from desktop.app import Host
    from desktop.orders.operations import Order

T = TypeVar("T")

TOLD_AFTER_S: Final = 0.2
"""From when on, and how often, it is told how far a transfer is."""


class FileOrders:
    """The orders about files of conversations.

    Args:
        host: whose they are.
        find: a conversation by its id or the beginning of one.
    """

    def __init__(self, host: "Host", find: Callable[[str], Awaitable[str]]) -> None:
        self._host = host
        self._find = find

    def by_name(self) -> Mapping[str, "Order"]:
        return {"upload": self._upload, "artifacts": self._artifacts, "download": self._download}

    async def _upload(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name, source = await self._find(str(arguments["session"])), _absolute(arguments["path"])
        kind = str(arguments["type"]) if arguments.get("type") else None
        given = await self._move(
            lambda told, signal: self._host.transfers.upload(name, source, kind, told, signal), send, stop
        )
        if given is None:
            return CANCELLED
        about = given.moved.model_dump(mode="json", exclude={"path"})
        await send({"row": {"session": name, **about, "name_changed": given.changed}})
        return COMPLETED

    async def _artifacts(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name = await self._find(str(arguments["session"]))
        row = await self._host.conversations.row(name)
        driver = str((row.record.choice or {}).get("driver", "")) if row is not None else ""
        harness = HARNESS_NAMES.get(driver, driver)
        for made in await self._host.transfers.made(name):
            await send({"row": {"session": name, "harness": harness, **made._asdict()}})
        return COMPLETED

    async def _download(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        name, to = await self._find(str(arguments["session"])), _absolute(arguments["to"])
        reference = str(arguments["reference"])
        moved = await self._move(
            lambda told, signal: self._host.transfers.download(name, reference, to, told, signal), send, stop
        )
        if moved is None:
            return CANCELLED
        await send({"row": {"session": name, **moved.model_dump(mode="json", exclude={"path"}), "path": str(to)}})
        return COMPLETED

    async def _move(
        self, move: Callable[[OnProgress, AbortSignal], Awaitable[T]], send: Send, stop: asyncio.Event
    ) -> T | None:
        """Move a file and tell how far it is; None when it was stopped, and nothing of it is here."""
        signal, at = AbortSignal(), TransferProgress(0, None)

        def progress(now: TransferProgress) -> None:
            nonlocal at
            at = now

        moving = asyncio.ensure_future(move(progress, signal))
        stopping = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(lambda done: None if done.cancelled() else signal.abort())
        told = TransferProgress(-1, None)
        try:
            while not moving.done():
                await asyncio.wait({moving}, timeout=TOLD_AFTER_S)
                if not moving.done() and at != told:
                    told = at
                    await send({"progress": {"done_bytes": at.done_bytes, "total_bytes": at.total_bytes}})
            return moving.result()
        except AgentAbortedError:
            return None
        finally:
            stopping.cancel()
            if not moving.done():
                # Whoever gave the order has left: it is stopped, and its end waited for.
                signal.abort()
                await asyncio.wait({moving})


def _absolute(path: Any) -> Path:
    found = Path(str(path))
    if not found.is_absolute():
        raise AgentTransferError("A file is named from the top of the disk on.", code="TRANSFER_PATH_INVALID")
    return found
