"""What decides: limits, noise, verdicts.

Owns the arithmetic of a gate. Must not know how anything was measured; pure. Invariant: a gate
forgives no more than the same run measured against itself differs, and never more than
`MOST_NOISE`: where a machine is noisier than that, nothing is decided and the run fails.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

MOST_NOISE = 0.25
"""Beyond this A/A difference a ratio says nothing."""

Verdict = Literal["ok", "too much", "too noisy"]


@dataclass(frozen=True)
class Gate:
    """One target: `measured` may reach `limit`, and beyond it by the noise of an A/A run."""

    name: str
    measured: float
    limit: float
    noise: float = 0.0
    unit: str = "×"

    @property
    def allowed(self) -> float:
        return self.limit * (1.0 + min(self.noise, MOST_NOISE))

    @property
    def verdict(self) -> Verdict:
        if math.isnan(self.measured):
            return "too much"
        if self.measured <= self.limit:
            return "ok"
        if self.noise > MOST_NOISE:
            return "too noisy"
        return "ok" if self.measured <= self.allowed else "too much"

    def line(self) -> str:
        noise = f", A/A noise {self.noise:.1%}" if self.noise else ""
        return f"  {self.verdict:<9}  {self.name}: {self.measured:.3g} {self.unit} (limit {self.limit:.3g}{noise})"


@dataclass
class Report:
    """What one benchmark found: gates that decide, figures that are only told."""

    title: str
    gates: list[Gate] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        # A report without a gate has measured nothing.
        return bool(self.gates) and all(gate.verdict == "ok" for gate in self.gates)

    def text(self) -> str:
        head = f"{self.title}: {'ok' if self.passed else 'FAILED'}"
        return "\n".join(
            [head, *(gate.line() for gate in self.gates), *(f"  {' ' * 9}  {line}" for line in self.figures)]
        )


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of `values` do not pass (nearest rank)."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def paired_ratio(measured: Sequence[float], base: Sequence[float]) -> float:
    """Median of the ratios of what was measured side by side: what slows both slows neither."""
    if len(measured) != len(base) or not base:
        raise ValueError("ratios need pairs")
    return statistics.median(m / b for m, b in zip(measured, base, strict=True))


def aa_noise(first: Sequence[float], second: Sequence[float]) -> float:
    """How far the same thing, measured twice side by side, is from itself."""
    ratio = paired_ratio(first, second)
    return max(ratio, 1.0 / ratio) - 1.0


def scaled_count(limit_per_minute: int, seconds: float) -> int:
    """A count allowed in a minute, for a shorter or longer look; never below one."""
    return max(1, round(limit_per_minute * seconds / 60.0))
