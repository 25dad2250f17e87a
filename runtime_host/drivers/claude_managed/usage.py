"""What a run used, as the difference of two counts of the whole session. Pure.

Must not know any I/O. Invariant: what was not counted both times, or went down in between, is unknown; nothing is ever
negative.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from runtime_host.canonical import FrozenDict
from runtime_host.drivers.claude_managed.profile import COVERAGE
from runtime_host.loop.model_apis.reading import member
from runtime_host.results import Usage

_BEYOND: Final = 2**53
"""No count that is meant is as large, and not everything that reads JSON can hold a larger one."""
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_AMOUNT: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,12})?")
_CREATED: Final = ("ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens")


def snapshot(said: Any) -> dict[str, Any]:
    """A count of a session, without what is of no use here; it is kept."""
    if not isinstance(said, Mapping):
        return {}
    counts = {name: _count(said.get(name)) for name in ("input_tokens", "output_tokens", "cache_read_input_tokens")}
    created = said.get("cache_creation")
    if isinstance(created, Mapping):
        parts = [_count(created.get(name)) for name in _CREATED if created.get(name) is not None]
        counts["cache_creation_input_tokens"] = sum(part or 0 for part in parts) if None not in parts else None
    cost = member(said, "list_cost")
    kept: dict[str, Any] = {name: count for name, count in counts.items() if count is not None}
    currency = cost.get("currency")
    if _amount(cost.get("amount")) is not None and isinstance(currency, str) and _CURRENCY.fullmatch(currency):
        kept["list_cost"] = {"amount": str(cost["amount"]), "currency": currency}
    seconds = said.get("active_seconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < _BEYOND:
        kept["active_seconds"] = seconds
    return kept


def difference(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Usage | None:
    """What was used in between.

    Args:
        before: the snapshot from before the input; empty of a session that was new, None when there is none.
        after: the one from after the end; None when there is none.
    """
    if before is None or not after:
        return None
    fresh = not before
    own = _less(before, after, "input_tokens", fresh)
    cached = _less(before, after, "cache_read_input_tokens", fresh)
    written = _less(before, after, "cache_creation_input_tokens", fresh)
    output = _less(before, after, "output_tokens", fresh)
    # A part that is there and does not add up leaves the sum unknown; one that is never counted is none of it.
    parts = [(cached, "cache_read_input_tokens"), (written, "cache_creation_input_tokens")]
    whole = own is not None and all(part is not None or name not in {*before, *after} for part, name in parts)
    read = (own or 0) + sum(part or 0 for part, _ in parts) if whole else None
    native = _native(before, after, fresh)
    if (own, cached, written, output) == (None, None, None, None) and not native:
        return None
    return Usage(
        input_tokens=read,
        cached_input_tokens=cached,
        cache_write_input_tokens=written,
        output_tokens=output,
        total_tokens=read + output if read is not None and output is not None else None,
        coverage=COVERAGE,
        native=FrozenDict(native) if native else None,
    )


def _native(before: Mapping[str, Any], after: Mapping[str, Any], fresh: bool) -> dict[str, Any]:
    native: dict[str, Any] = {}
    first, second = member(before, "list_cost"), member(after, "list_cost")
    began, ended = _amount(first.get("amount")), _amount(second.get("amount"))
    if began is None and fresh:
        began = Decimal(0)
    same = fresh or first.get("currency") == second.get("currency")
    if began is not None and ended is not None and ended >= began and same:
        native["list_cost"] = {"amount": str(ended - began), "currency": second["currency"], "unit": "minor"}
    seconds = _seconds(before, after, fresh)
    if seconds is not None:
        native["active_seconds"] = seconds
    return native


def _seconds(before: Mapping[str, Any], after: Mapping[str, Any], fresh: bool) -> float | None:
    began = before.get("active_seconds", 0.0 if fresh else None)
    ended = after.get("active_seconds")
    return round(float(ended) - float(began), 3) if began is not None and ended is not None and ended >= began else None


def _less(before: Mapping[str, Any], after: Mapping[str, Any], name: str, fresh: bool) -> int | None:
    began, ended = _count(before.get(name)), _count(after.get(name))
    if began is None and fresh:
        began = 0
    if began is None or ended is None or ended < began:
        return None
    return ended - began


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _BEYOND else None


def _amount(value: Any) -> Decimal | None:
    """Minor units; a part of one may be told. Not whatever else `Decimal` reads: exponents, other scripts' digits."""
    if isinstance(value, bool) or (isinstance(value, int) and not 0 <= value < _BEYOND):
        return None
    if not isinstance(value, str | int) or not _AMOUNT.fullmatch(str(value)):
        return None
    return Decimal(value)
