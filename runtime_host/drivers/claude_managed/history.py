"""What the saved history of a session says of one turn. Pure.

Must not know any I/O. Invariants: a call is pending only when the last word of the session names it and no result of it
is saved; a turn has ended only by the session's own word after the input was taken up; it was stopped only when our own
interrupt was taken up before that word.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from runtime_host.drivers.claude_managed.mapping import Event, error_of, words
from runtime_host.loop.model_apis.reading import member, text

Stage = Literal["unseen", "queued", "running", "calls", "refused_action", "paused", "ended", "terminated"]
Reason = Literal["end_turn", "refusal", "retries_exhausted"]

_ENDS: Final = frozenset({"end_turn", "refusal", "retries_exhausted"})
_INPUT: Final = "user.message"
_INTERRUPT: Final = "user.interrupt"
_RESULT: Final = "user.custom_tool_result"
_CALL: Final = "agent.custom_tool_use"
CATEGORY_CHARS: Final = 40


class Reading(NamedTuple):
    """What is known of a turn.

    Attributes:
        stage: `unseen`, the input is not there; `queued`, it is and was not taken up; `running`; `calls`, it waits for
            results of ours; `refused_action`, it waits for something that is never given; `paused`, its budget is
            reached; `ended`; `terminated`, the session is.
        input_id: of the input's event.
        events: of the turn, as far as it has come, oldest first.
        reason: by which it ended.
        category: of a refusal, where it is a plain word.
        stopped: whether it ended because of our interrupt.
        interrupt_id: of our interrupt, once it is there.
        pending: calls of ours that wait for a result, in the order in which they were made.
        answered: calls whose result is saved.
        calls: ids of all calls of ours in this turn.
        error: what the last error that is not tried again calls itself.
        pause: the event of the pause.
    """

    stage: Stage
    input_id: str | None = None
    events: tuple[Event, ...] = ()
    reason: str = ""
    category: str = ""
    stopped: bool = False
    interrupt_id: str | None = None
    pending: tuple[Event, ...] = ()
    answered: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    error: str = ""
    pause: str = ""

    @property
    def answer(self) -> str:
        """The last complete message of the turn."""
        said = [words(event) for event in self.events if event.get("type") == "agent.message"]
        return said[-1] if said else ""


def read(
    after: Sequence[Event],
    *,
    said: str,
    input_id: str | None,
    interrupt: bool,
    interrupt_id: str | None,
) -> Reading:
    """Read a turn out of what is saved after the event that was the last before its input.

    Args:
        after: that, oldest first.
        said: the words of the input.
        input_id: of its event, where that is known.
        interrupt: whether we have asked it to stop.
        interrupt_id: of that event, where that is known.
    """
    begins = next((at for at, event in enumerate(after) if _is_input(event, said, input_id)), None)
    if begins is None:
        gone = any(event.get("type") == "session.status_terminated" for event in after)
        return Reading("terminated" if gone else "unseen")
    found = text(after[begins], "id") or None
    events = [event for event in after[begins:] if not _is_other_input(event, found)]
    if not any(event.get("processed_at") for event in events if text(event, "id") == found):
        return _unfinished("queued", found, events, interrupt, interrupt_id)
    stop = _own_interrupt(events, interrupt, interrupt_id)
    for at, event in enumerate(events):
        kind = event.get("type")
        if kind in ("session.status_terminated", "session.deleted"):
            return _ended("terminated", found, events[: at + 1], event, stop)
        if kind == "session.status_idle" and _reason(event) in _ENDS:
            return _ended("ended", found, events[: at + 1], event, stop)
        if kind == "session.status_idle" and stop is not None and _came_before(events, stop, at):
            return _ended("ended", found, events[: at + 1], event, stop)
    return _going_on(found, events, interrupt, interrupt_id)


def _ended(stage: Stage, input_id: str | None, events: list[Event], last: Event, stop: Event | None) -> Reading:
    at = len(events) - 1
    category = text(member(last, "stop_details"), "category") or text(
        member(member(last, "stop_reason"), "stop_details"), "category"
    )
    plain = category.replace("_", "").replace("-", "").isalnum() and len(category) <= CATEGORY_CHARS
    return Reading(
        stage,
        input_id,
        tuple(events),
        reason=_reason(last),
        category=category if plain else "",
        stopped=stop is not None and _came_before(events, stop, at),
        interrupt_id=text(stop, "id") or None if stop is not None else None,
        answered=_answered(events),
        calls=_calls(events),
        error=_last_error(events),
    )


def _going_on(input_id: str | None, events: list[Event], interrupt: bool, interrupt_id: str | None) -> Reading:
    reading = _unfinished("running", input_id, events, interrupt, interrupt_id)
    states = [event for event in events if str(event.get("type")).startswith("session.status_")]
    last = states[-1] if states else None
    if last is None or last.get("type") != "session.status_idle":
        return reading
    if _reason(last) == "budget_reached":
        return reading._replace(stage="paused", pause=text(last, "id"))
    if _reason(last) != "requires_action":
        return reading
    named = member(last, "stop_reason").get("event_ids")
    ids = {each for each in named if isinstance(each, str)} if isinstance(named, list) else set()
    pending = tuple(
        event for event in events if event.get("type") == _CALL and text(event, "id") in ids - reading.answered
    )
    if ids - reading.calls:
        return reading._replace(stage="refused_action", pending=pending)
    return reading._replace(stage="calls", pending=_once(pending)) if pending else reading


def _unfinished(
    stage: Stage, input_id: str | None, events: list[Event], interrupt: bool, interrupt_id: str | None
) -> Reading:
    stop = next((event for event in events if _is_interrupt(event, interrupt, interrupt_id)), None)
    return Reading(
        stage,
        input_id,
        tuple(events),
        interrupt_id=text(stop, "id") or None if stop is not None else None,
        answered=_answered(events),
        calls=_calls(events),
        error=_last_error(events),
    )


def _once(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return tuple({text(event, "id"): event for event in events}.values())


def _is_input(event: Event, said: str, input_id: str | None) -> bool:
    if event.get("type") != _INPUT:
        return False
    return event.get("id") == input_id if input_id is not None else words(event) == said


def _is_other_input(event: Event, input_id: str | None) -> bool:
    return event.get("type") == _INPUT and (text(event, "id") or None) != input_id


def _is_interrupt(event: Event, interrupt: bool, interrupt_id: str | None) -> bool:
    if not interrupt or event.get("type") != _INTERRUPT:
        return False
    return interrupt_id is None or event.get("id") == interrupt_id


def _own_interrupt(events: list[Event], interrupt: bool, interrupt_id: str | None) -> Event | None:
    return next(
        (event for event in events if _is_interrupt(event, interrupt, interrupt_id) and event.get("processed_at")),
        None,
    )


def _came_before(events: list[Event], earlier: Event, at: int) -> bool:
    """Whether an event was taken up before the one at a place: by its own place, and by both times where they are told.

    An event that waited is saved where it was sent, so that its place alone may be too early.
    """
    place = next((index for index, event in enumerate(events) if event is earlier), None)
    if place is None or place >= at:
        return False
    first, second = _time(earlier), _time(events[at])
    return first is None or second is None or first <= second


def _time(event: Event) -> datetime | None:
    try:
        said = datetime.fromisoformat(text(event, "processed_at").replace("Z", "+00:00"))
    except ValueError:
        return None
    return said if said.tzinfo is not None else said.replace(tzinfo=UTC)


def _reason(event: Event) -> str:
    return text(member(event, "stop_reason"), "type")


def _answered(events: Sequence[Event]) -> frozenset[str]:
    """Ids of calls whose result is saved; one that is asked for again under its id waits again."""
    answered: set[str] = set()
    for event in events:
        if event.get("type") == _CALL:
            answered.discard(text(event, "id"))
        elif event.get("type") == _RESULT:
            answered.add(text(event, "custom_tool_use_id"))
    return frozenset(answered)


def _calls(events: Sequence[Event]) -> frozenset[str]:
    return frozenset(text(event, "id") for event in events if event.get("type") == _CALL)


def _last_error(events: Sequence[Event]) -> str:
    kinds = [error_of(event) for event in events if event.get("type") == "session.error"]
    final = [kind for kind, retry in kinds if retry != "retrying"]
    return final[-1] if final else ""


def blocks_input(events: Sequence[Event]) -> str:
    """Why a session takes no input now, by its last word; "" when it does. `events`: newest first."""
    for event in events:
        kind = event.get("type")
        if kind == "session.status_idle":
            reason = _reason(event)
            return reason if reason in ("requires_action", "budget_reached") else ""
        if kind in ("session.status_running", "session.status_rescheduled"):
            return "running"
    return ""


def is_at_rest(newest: Sequence[Event], interrupt_id: str | None) -> bool:
    """Whether the last word of a session is that it is over, by its own end or by our interrupt. `newest`: first."""
    idle = False
    for event in newest:
        kind = event.get("type")
        if kind in ("session.status_terminated", "session.deleted"):
            return True
        if kind == "session.status_idle":
            idle = True
            if _reason(event) in _ENDS:
                return True
        elif kind == _INPUT or str(kind).startswith("session.status_"):
            return False
        elif kind == _INTERRUPT and interrupt_id is not None and text(event, "id") == interrupt_id:
            return idle
    return False


def arguments_of(call: Event) -> Mapping[str, Any]:
    """What a call was made with."""
    return member(call, "input")
