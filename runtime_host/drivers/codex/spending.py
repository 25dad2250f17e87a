"""What a run used, from the sums that the Codex CLI tells of a whole thread. Pure.

Must not know any I/O. Invariant: what is used is a difference of sums; where sums do not fit each other it is unknown,
never negative.
"""

from collections.abc import Mapping
from typing import Any, Final

from runtime_host.canonical import freeze
from runtime_host.results import Usage

_FIELDS: Final = {
    "input_tokens": "inputTokens",
    "cached_input_tokens": "cachedInputTokens",
    "cache_write_input_tokens": "cacheWriteInputTokens",
    "output_tokens": "outputTokens",
    "reasoning_tokens": "reasoningOutputTokens",
    "total_tokens": "totalTokens",
}


class Spending:
    """The sums of one thread.

    Args:
        before: the sums before this run; None when they are not known.
    """

    def __init__(self, before: Mapping[str, int] | None = None) -> None:
        self._before = dict(before) if before is not None else None
        self.total: dict[str, int] | None = None

    def take(self, usage: Mapping[str, Any]) -> None:
        """Take the newest sums."""
        total, last = _numbers(usage.get("total")), _numbers(usage.get("last"))
        if not total:
            return
        if self._before is None:
            self._before = {name: total[name] - last.get(name, 0) for name in total}
        self.total = total

    def of_the_run(self) -> Usage | None:
        """What was used since; None when nothing was told."""
        if self.total is None or self._before is None:
            return None
        fields: dict[str, int] = {}
        for name, native in _FIELDS.items():
            now, then = self.total.get(native), self._before.get(native, 0)
            if now is not None and now >= then:
                fields[name] = now - then
        return Usage.model_validate({**fields, "native": freeze({"thread_total": self.total})})

    def known(self) -> dict[str, int] | None:
        """The newest sums; None when there are none."""
        return self.total if self.total is not None else self._before

    def next(self) -> "Spending":
        """For the run after this one."""
        return Spending(self.known())


def _numbers(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {
        name: value[name]
        for name in _FIELDS.values()
        if isinstance(value.get(name), int) and not isinstance(value[name], bool)
    }
