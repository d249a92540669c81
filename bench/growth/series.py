"""A figure at several amounts of work, and how it grows."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

CONSTANT = 0.1
"""The bar for a figure that should not grow."""
LINEAR = 1.1
"""The bar for a figure that should grow in proportion."""


@dataclass
class Series:
    """One figure, measured at several amounts."""

    what: str
    unit: str
    """A format, such as ``{:.1f} ms``."""
    bar: float
    """The greatest exponent."""
    values: dict[int, float] = field(default_factory=dict)
    """The figure by amount."""

    @property
    def exponent(self) -> float:
        """Return the slope of the figure over the amount, both as logarithms."""
        amounts = sorted(self.values)
        lowest = min(value for value in self.values.values() if value > 0)
        return statistics.linear_regression(
            [math.log(amount) for amount in amounts],
            [math.log(max(self.values[amount], lowest)) for amount in amounts],
        ).slope


def median_ms(work: Callable[[], object], times: int) -> float:
    """Return the median duration of `times` calls in ms, after one that does not count."""
    work()
    taken = []
    for _ in range(times):
        start_s = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start_s) * 1000)
    return statistics.median(taken)
