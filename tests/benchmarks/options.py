"""What a run of the benchmarks was asked for."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Options:
    """Sizes of a run, and the fault planted into it."""

    plant: Literal["slow", "timer"] | None = None
    rounds: int = 9
    seconds: float = 60.0
    sessions: int = 1_000
    rows: int = 100_000
    events: int = 1_000_000
