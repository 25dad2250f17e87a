"""The orders about everything at once: what is stored, all of it exported, all of it removed.

Owns their rows and notes. Must not know how orders arrive. Invariant: a removal is carried out only when it is
confirmed, and no reply is cut off unless that was said as well.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from desktop import export, profiles, stored
from desktop.exit_codes import CANCELLED, COMPLETED
from desktop.orders.answers import Send

if TYPE_CHECKING:
    from desktop.app import Host
    from desktop.orders.operations import Order


class StorageOrders:
    """The orders about all that a profile keeps."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    def by_name(self) -> Mapping[str, "Order"]:
        return {"stored": self._stored, "export-all": self._export, "remove-all": self._remove}

    async def _stored(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        rows = await stored.what_is_stored(self._host)
        for row in rows:
            await send({"row": msgspec.to_builtins(row)})
        return COMPLETED

    async def _export(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        waiting: asyncio.Queue[tuple[int, int, str]] = asyncio.Queue()

        def progress(done: int, of: int, sentence: str) -> None:
            waiting.put_nowait((done, of, sentence))

        writing = asyncio.ensure_future(export.export_all(self._host, Path(str(arguments["path"])), progress))
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not writing.done():
                told = asyncio.ensure_future(waiting.get())
                either: set[asyncio.Future[Any]] = {writing, stopped, told}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if told.done():
                    done, of, sentence = told.result()
                    await send({"progress": {"done": done, "of": of, "sentence": sentence}})
                told.cancel()
                if stopped.done():
                    writing.cancel()
                    await asyncio.wait([writing])
            if writing.cancelled():
                return CANCELLED
            made = writing.result()
        finally:
            stopped.cancel()
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(stopped, writing, return_exceptions=True)
        row = {"path": str(made.path), "size_bytes": made.size_bytes, "conversations": made.conversations}
        await send({"row": row})
        return COMPLETED

    async def _remove(self, arguments: dict[str, Any], send: Send, stop: asyncio.Event) -> int:
        host = self._host
        rows = await stored.what_is_stored(host)
        row = {"profile": host.paths.name, "name": profiles.display_name(host.paths)}
        if not arguments.get("confirmed"):
            goes = await stored.what_goes(host, rows)
            running = len(host.conversations.running())
            await send({"row": {**row, "goes": list(goes), "running": running, "confirm": True}})
            return COMPLETED
        await stored.remove_all(host, stop_runs=bool(arguments.get("stop_runs")))
        await send({"row": {**row, "removed": True}})
        return COMPLETED
