"""What an order about a run is answered with: its events, its result, the exit code that says how it ended.

Owns the one shape of these lines, whichever harness carries the run and whoever gives the order. Must not
know hosts, profiles or sockets. Invariant: an unknown outcome is answered with the reference under which it
may yet be found, and with an exit code of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from desktop.exit_codes import CANCELLED, COMPLETED, FAILED, INCOMPLETE, UNKNOWN
from runtime_host.errors import AgentSessionRecoveryError
from runtime_host.run import Run
from runtime_host.session import InspectedState, SessionReference

EXIT_CODES = {"completed": COMPLETED, "failed": FAILED, "cancelled": CANCELLED, "incomplete": INCOMPLETE}

Send = Callable[[dict[str, Any]], Awaitable[None]]

WHAT_TO_DO = {
    "input": "It may have been carried out. Look at what it was to change before you ask again.",
    "tool-result": "A tool may have done its work. Sending again asks its source first; it goes on once that knows.",
    "upload": "The file may have arrived. Nothing is sent again by itself; a new session starts clean.",
    "creation": "Something may have been made at the provider. Deleting the session looks for it and removes it.",
    "cleanup": "Something may be left at the provider. Deleting the session again tries once more.",
}
"""Of each kind of effect that is not resolved: what the person can do."""


PARKED = "run.parked"
Waiting = Callable[[], Awaitable[list[dict[str, Any]]]]
"""Tells the calls of a run that wait for the person."""


async def _told_waiting(run: Run, name: str, reference: SessionReference, send: Send, waiting: Waiting) -> int:
    """Say where a run that waits is decided."""
    calls = await waiting()
    await send(
        {
            "result": {
                "type": "result",
                "session": name,
                "run_id": run.run_id,
                "status": "waiting",
                "waiting": calls,
                "operation": calls[0]["operation"] if calls else "",
                "reference": reference.model_dump(mode="json"),
            }
        }
    )
    return INCOMPLETE


async def follow(
    run: Run,
    name: str,
    reference: SessionReference,
    send: Send,
    stop: asyncio.Event,
    *,
    after_sequence: int = 0,
    waiting: Waiting | None = None,
) -> int:
    """Send the events of a run and then its result; `stop` stops the run. Returns the exit code.

    With `waiting` a run that waits for a person is not waited for.
    """
    events = run.events(after_sequence)
    stopping = asyncio.ensure_future(_stop_when(stop, run))
    try:
        async for event in events:
            await send({"event": event.model_dump(mode="json")})
            if event.type == PARKED and waiting is not None and run.parked:
                # It goes on when it is decided, which may be in days: that is told, and not waited for.
                return await _told_waiting(run, name, reference, send, waiting)
        return await result(run, name, reference, send)
    finally:
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)


async def follow_request(
    run: Run, name: str, reference: SessionReference, send: Send, stop: asyncio.Event, waiting: Waiting | None = None
) -> int:
    """As `follow`; of a repeated request whose events are no longer kept, the result alone."""
    if run.parked and waiting is not None:
        return await _told_waiting(run, name, reference, send, waiting)
    if run.journal.expired:
        return await result(run, name, reference, send)
    return await follow(run, name, reference, send, stop, waiting=waiting)


async def _stop_when(stop: asyncio.Event, run: Run) -> None:
    await stop.wait()
    await run.cancel()


async def result(run: Run, name: str, reference: SessionReference, send: Send) -> int:
    """Send how a run ended, once it has. Returns the exit code."""
    try:
        ended = await run.result()
    except AgentSessionRecoveryError as unknown:
        await send(
            {
                "result": {
                    "type": "result",
                    "session": name,
                    "run_id": run.run_id,
                    "status": "unknown",
                    "error": {"code": unknown.error_code, "message": unknown.message},
                    "reference": reference.model_dump(mode="json"),
                }
            }
        )
        return UNKNOWN
    await send({"result": {"type": "result", "session": name, **ended.model_dump(mode="json")}})
    return EXIT_CODES[ended.status]


def unresolved_in_words(state: InspectedState) -> str:
    """What is not resolved besides the message itself, and what can be done; "" when nothing is."""
    others = [effect for effect in state.unresolved_effects if effect.kind != "input"]
    words = [
        f"{WHAT_TO_DO[effect.kind]}{f' It is the tool {effect.tool}.' if effect.tool else ''}" for effect in others
    ]
    if others and state.reconciliation is not None:
        words.append(state.reconciliation.in_words())
    return " ".join(filter(None, words))


def standing(state: InspectedState) -> dict[str, Any]:
    """How a session stands, with what can be done about what is not resolved."""
    row = state.model_dump(mode="json")
    for effect in row["unresolved_effects"]:
        effect["what_to_do"] = WHAT_TO_DO[effect["kind"]]
    row["how_far"] = state.reconciliation.in_words() if state.reconciliation is not None else ""
    return row


async def unless(stop: asyncio.Event, looking: "asyncio.Future[int]") -> int:
    """What `looking` comes to, or that it was ended by `stop`."""
    stopped = asyncio.ensure_future(stop.wait())
    either: set[asyncio.Future[Any]] = {stopped, looking}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return await looking if looking.done() else CANCELLED
    finally:
        for task in (stopped, looking):
            task.cancel()
        await asyncio.gather(stopped, looking, return_exceptions=True)
