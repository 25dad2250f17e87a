"""The ledger of what was used, and its sums by hour and by day.

Owns the writing of both. Must not know what is counted, or who reads it. Invariants: what the hours and the days hold
together is what the ledger holds, after each transaction; each amount stands in one of both; an hour is kept for
`HOURS_KEPT_DAYS`, and is part of its day from then on, so that the file does not grow with the hours.
"""

import datetime
import math
from typing import TYPE_CHECKING, Final

from runtime_host.storage.rows import CounterRow, UsageDayRow, UsageHourRow, UsageRow

if TYPE_CHECKING:
    from runtime_host.storage.base import AgentTx

HOURS_KEPT_DAYS: Final = 35
FOLDED: Final = "usage.folded_days"
"""Counter: days from 1970 on whose hours are not kept any more."""
MOST_KEY_CHARS: Final = 200
_DAY_MS: Final = 24 * 3600 * 1000
_MOST_MS: Final = 250_000_000_000_000
_BEGIN: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - all of it is UTC


def meter(tx: "AgentTx", row: UsageRow) -> None:
    """Write something that was used, in the transaction of the work; one that is there already is put in its place.

    Nothing is not written, and neither is what is no number.
    """
    if not row.quantity or not math.isfinite(row.quantity):
        return
    if len(row.key) > MOST_KEY_CHARS:
        raise ValueError("the key of what was used is too long")
    _fold(tx, row.at_ms)
    before = tx.row(UsageRow, row.usage_id)
    if before is not None:
        _add(tx, before, -before.quantity)
    tx.put_row(row)
    _add(tx, row, row.quantity)


def forget(tx: "AgentTx", session_id: str) -> None:
    """Take what a session used out of the sums, before its part of the ledger goes with it."""
    used = tx.rows(UsageRow, session_id=session_id)
    if not used:
        return
    sums: dict[tuple[type[UsageHourRow | UsageDayRow], str, str, str, str], float] = {}
    folded = _folded(tx)
    for row in used:
        place = (*_place(row.at_ms, folded), row.resource, row.key, row.unit)
        sums[place] = sums.get(place, 0.0) + row.quantity
    for (kind, *key), quantity in sums.items():
        # What no sum holds is taken out of none.
        if tx.row(kind, *key) is not None:
            _change(tx, kind, key, -quantity)


def _fold(tx: "AgentTx", now_ms: int) -> None:
    """Put hours that are not kept any more to their days: looked at once a day."""
    upto = min(max(now_ms, 0), _MOST_MS) // _DAY_MS - HOURS_KEPT_DAYS
    if upto <= _folded(tx):
        return
    tx.put_row(CounterRow(name=FOLDED, value=upto))
    first = _time(upto * _DAY_MS)
    for row in tx.rows(UsageHourRow):
        if row.hour >= first:
            break
        _change(tx, UsageDayRow, [row.hour[:10], row.resource, row.key, row.unit], row.quantity)
        tx.delete_row(UsageHourRow, row.hour, row.resource, row.key, row.unit)


def _add(tx: "AgentTx", row: UsageRow, quantity: float) -> None:
    kind, time = _place(row.at_ms, _folded(tx))
    _change(tx, kind, [time, row.resource, row.key, row.unit], quantity)


def _change(tx: "AgentTx", kind: type[UsageHourRow | UsageDayRow], key: list[str], quantity: float) -> None:
    known = tx.row(kind, *key)
    whole = quantity if known is None else known.quantity + quantity
    time, resource, name, unit = key
    if not whole:
        tx.delete_row(kind, *key)
    elif kind is UsageHourRow:
        tx.put_row(UsageHourRow(hour=time, resource=resource, key=name, unit=unit, quantity=whole))
    else:
        tx.put_row(UsageDayRow(day=time, resource=resource, key=name, unit=unit, quantity=whole))


def _folded(tx: "AgentTx") -> int:
    counter = tx.row(CounterRow, FOLDED)
    return 0 if counter is None else counter.value


def _place(at_ms: int, folded: int) -> tuple[type[UsageHourRow | UsageDayRow], str]:
    """Where an amount of a time stands: an hour, or a day whose hours are not kept any more."""
    at_ms = min(max(at_ms, 0), _MOST_MS)
    hour = _time(at_ms)
    return (UsageDayRow, hour[:10]) if at_ms // _DAY_MS < folded else (UsageHourRow, hour)


def _time(at_ms: int) -> str:
    return (_BEGIN + datetime.timedelta(milliseconds=at_ms)).strftime("%Y-%m-%dT%H")
