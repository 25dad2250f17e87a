"""What is about to be made at a service, kept before it is asked for, and found again when the answer is lost.

Must not know any vendor's words. Invariants: an intent is durable before its request is sent; what was asked for once
is never asked for again; looking is bounded and says how far it went.
"""

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from runtime_host.drivers.managed.faults import ServiceFault
from runtime_host.drivers.managed.service import Patience

MARK: Final = "remuda_intent"
"""The name under which a service keeps an intent's id in its metadata."""
LISTED_BY_S: Final = 3600.0
"""A list may lag. What was asked for so long ago and is in none is taken for never made: by a deletion, and by nothing
else."""
LOOKING: Final = Patience(tries=6, first_wait_s=0.25, longest_wait_s=2.0)


def intend(state: Mapping[str, Any], what: str) -> tuple[dict[str, Any], str]:
    """A state that says that `what` is about to be made, and the id of that intent; keep it before anything is sent."""
    intent = str(uuid.uuid4())
    intents = {**state.get("intents", {}), what: {"id": intent, "since": int(time.time())}}
    return {**state, "intents": intents}, intent


def intended(state: Mapping[str, Any], what: str) -> str | None:
    """The id under which `what` was about to be made; None where it was not, or where that was found out."""
    intent = state.get("intents", {}).get(what)
    found = intent.get("id") if isinstance(intent, Mapping) else None
    return found if isinstance(found, str) else None


def age_s(state: Mapping[str, Any], what: str) -> float:
    """How long ago `what` was about to be made, in seconds by the wall clock; 0 where that is not known."""
    intent = state.get("intents", {}).get(what)
    since = intent.get("since") if isinstance(intent, Mapping) else None
    return max(0.0, time.time() - since) if isinstance(since, int) else 0.0


def settled(state: Mapping[str, Any], what: str) -> dict[str, Any]:
    """A state without the intent for `what`: it is known what came of it."""
    return {**state, "intents": {name: each for name, each in state.get("intents", {}).items() if name != what}}


class Looked(NamedTuple):
    """What looking came to.

    Attributes:
        found: ids of what bears the mark.
        times: how often was looked.
        over_s: in how many seconds.
    """

    found: tuple[str, ...]
    times: int
    over_s: float

    def in_words(self) -> str:
        """How far it looked, as the end of a sentence."""
        often = "once" if self.times == 1 else f"{self.times} times"
        return f"{often} in {max(1, round(self.over_s))} seconds"


async def look_for(find: Callable[[], Awaitable[Sequence[str]]], patience: Patience = LOOKING) -> Looked:
    """Look for what bears a mark until there is some, a few times: a list may lag behind.

    Raises:
        ServiceFault: it could not be looked the last time.
    """
    began, times = time.monotonic(), 0
    while True:
        found: tuple[str, ...] = ()
        fault: ServiceFault | None = None
        try:
            found = tuple(await find())
        except ServiceFault as raised:
            fault = raised
        times += 1
        wait_s = None if found else patience.wait_s(times)
        if wait_s is None:
            if fault is not None:
                raise fault
            return Looked(found, times, time.monotonic() - began)
        await patience.sleep(wait_s)
