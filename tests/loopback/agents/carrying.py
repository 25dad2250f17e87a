"""One stream of events that is being written to one client, well or badly.

Owns the frames. Must not know the state of a session. Invariant: what goes wrong was said before, and goes wrong at the
event it was said of.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from tests.loopback.agents.fields import Record
from tests.loopback.agents.sessions import Listening
from tests.loopback.managed_claude.faults import Faults, StreamFault
from tests.loopback.managed_claude.http import Connection

HUGE_CHARS = 6 * 1024 * 1024


def error_body(code: str, message: str, param: str | None = None, kind: str = "") -> Record:
    return {"error": {"type": kind or code, "code": code, "message": message, "param": param}}


@dataclass(eq=False)
class Carrying:
    """One stream.

    Attributes:
        endpoint: which request it answers.
        leaving: done once the client has left.
        pause_s: before each frame.
    """

    faults: Faults
    endpoint: str
    listening: Listening
    to: Connection
    leaving: "asyncio.Future[bytes]"
    pause_s: float = 0.0
    kept_back: Record | None = None

    async def carry(self) -> None:
        while (event := await self._next()) is not None:
            await asyncio.sleep(self.pause_s)
            fault = self._fault(event["type"])
            if fault is not None:
                if not await self._badly(fault, event):
                    return
                continue
            await self._frame(event)
            if self.kept_back is not None:
                event, self.kept_back = self.kept_back, None
                await self._frame(event)
        await self.to.end_stream()

    def _fault(self, kind: str) -> StreamFault | None:
        """A stream in the answer to a creation is a stream of events, too."""
        found = self.faults.next(StreamFault, self.endpoint, at=kind)
        if found is None and self.endpoint != "events.stream":
            found = self.faults.next(StreamFault, "events.stream", at=kind)
        return found

    async def _next(self) -> Record | None:
        """What comes next; None for the end, and once the client has left."""
        coming = asyncio.ensure_future(self.listening.to_come.get())
        both: set[asyncio.Future[Any]] = {coming, self.leaving}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            self.listening.taken.set()
            coming.cancel()

    async def _badly(self, fault: StreamFault, event: Record) -> bool:
        """Whether the stream goes on."""
        if fault.how == "close":
            await self.to.end_stream()
        elif fault.how == "cut":
            # What was written so far is on its way first: a reset throws away what nobody has read yet.
            await asyncio.sleep(0.02)
            await self.to.drop(reset=True)
        elif fault.how == "error":
            about = {"event_id": "evt_error", "session_id": event.get("session_id", "")}
            failure = error_body("server_overloaded", "Scripted error.", kind="server_error")
            await self._frame({"type": "error", **about, **failure})
            await self.to.end_stream()
        elif fault.how == "silent":
            await self.leaving
        else:
            await self._oddly(fault, event)
            return True
        return False

    async def _oddly(self, fault: StreamFault, event: Record) -> None:
        if fault.how == "swapped":
            self.kept_back = event
        elif fault.how == "nameless":
            await self._frame(event, named=False)
        elif fault.how == "huge":
            await self._frame({**event, "padding": "x" * HUGE_CHARS})
        elif fault.how == "unknown-type":
            await self._frame({"event_id": "evt_unknown", "type": "agent.session.new_kind_of_event", "session_id": ""})
            await self._frame(event)
        elif fault.how == "twice":
            await self._frame(event)
            await self._frame(event)

    async def _frame(self, event: Record, *, named: bool = True) -> None:
        head = f"event: {event['type']}\n" if named else ""
        await self.to.piece(f"{head}data: {json.dumps(event)}\n\n".encode())
