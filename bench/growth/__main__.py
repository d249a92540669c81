"""``python -m bench.growth [ROW ...] [--quick]``: how each figure grows with the amount of work.

Each figure is measured at several amounts. Its *exponent* is the slope of a line through the logarithms: 0 means that
the figure does not grow, 1 that it grows in proportion. As a ratio, it can be compared between machines. A figure that
should stay the same may have an exponent of 0.1, because caches become less effective with more data, and one that
should grow in proportion 1.1.
"""

import sys
import time
from collections.abc import Callable

from bench.growth import history, logs, units
from bench.growth.series import Series
from bench.measure import arguments_of, conditions

ROWS: dict[str, Callable[[bool], list[Series]]] = {
    "runs": history.runs,
    "units": units.tasks,
    "services": units.services,
    "followers": logs.followers,
    "lines": logs.lines,
}


def main() -> None:
    """Measure, and print a table."""
    names, quick = arguments_of("bench.growth", "Measure how costs grow.", ROWS)
    start_s = time.monotonic()
    print(f"{'figure':<48}  {'from':>10}  {'to':>13}  {'smallest':>10}  {'largest':>10}  exponent  bar")
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        for series in ROWS[name](quick):
            amounts = sorted(series.values)
            first, last = (series.unit.format(series.values[amount]) for amount in (amounts[0], amounts[-1]))
            verdict = "ok" if series.exponent <= series.bar else "MISSED"
            print(
                f"{series.what:<48}  {amounts[0]:>10,}  {amounts[-1]:>13,}  {first:>10}  {last:>10}"
                f"  {series.exponent:>8.2f}  <= {series.bar} {verdict}",
                flush=True,
            )
            print(
                *(f"    {amount:,}: {series.unit.format(series.values[amount])}" for amount in amounts), file=sys.stderr
            )
    print(conditions(start_s))


if __name__ == "__main__":
    main()
