"""What a run used, from counts that the CLI keeps for its whole session. Pure.

Must not know messages other than the counts. Invariant: counts that fall are not believed: what follows from them is
unknown, never negative.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from runtime_host.drivers.claude_sdk.profile import COVERAGE
from runtime_host.results import Usage

Counts = Mapping[str, Mapping[str, float]]
"""By model and by name of the count, for the session so far."""
NOTHING: Final[Counts] = {}
_INPUT, _READ, _WRITTEN = "inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"
_OUTPUT, _THINKING, _COST = "outputTokens", "thinkingTokens", "costUSD"
_COUNTED: Final = (_INPUT, _READ, _WRITTEN, _OUTPUT, _THINKING)


def counts_in(told: Any) -> Counts:
    """The counts of a result, as far as they are numbers."""
    if not isinstance(told, Mapping):
        return NOTHING
    return {
        str(model): {
            name: counts[name] for name in (*_COUNTED, _COST) if _is_number(counts.get(name)) and counts[name] >= 0
        }
        for model, counts in told.items()
        if isinstance(counts, Mapping)
    }


def used(before: Counts, now: Counts) -> Usage:
    """What was used between two states of the counts."""
    by_model: dict[str, dict[str, float | None]] = {}
    for model in {**before, **now}:
        then, after = before.get(model, {}), now.get(model, {})
        by_model[model] = {
            name: after[name] - then.get(name, 0) if name in after and after[name] >= then.get(name, 0) else None
            for name in (*_COUNTED, _COST)
            if name in after or name in then
        }
    total = {name: _sum(name, by_model) for name in _COUNTED}
    fresh, read, written = total[_INPUT], total[_READ], total[_WRITTEN]
    whole = None if fresh is None or read is None or written is None else fresh + read + written
    output = total[_OUTPUT]
    return Usage(
        input_tokens=whole,
        cached_input_tokens=read,
        cache_write_input_tokens=written,
        output_tokens=output,
        reasoning_tokens=total[_THINKING],
        total_tokens=None if whole is None or output is None else whole + output,
        coverage=COVERAGE,
        native={"models": {model: {**counts} for model, counts in by_model.items()}},
    )


def _sum(name: str, by_model: Mapping[str, Mapping[str, float | None]]) -> int | None:
    counts = [counts[name] for counts in by_model.values() if name in counts]
    if not counts or any(count is None for count in counts):
        return None
    return int(sum(count for count in counts if count is not None))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
