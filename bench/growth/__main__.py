"""``python -m bench.growth [SUBJECT ...] [--quick]``: how each figure grows with the amount of work.

Each figure is measured at several amounts. Its *exponent* is the slope of a line through the logarithms: 0 means that
the figure does not grow, 1 that it grows in proportion. As a ratio, it can be compared between machines. A figure that
should stay the same may have an exponent of 0.1, because caches become less effective with more data, and one that
should grow in proportion 1.1.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable

from bench.growth import history, logs, units
from bench.growth.series import Series

SUBJECTS: dict[str, Callable[[bool], list[Series]]] = {
    "runs": history.runs,
    "units": units.tasks,
    "services": units.services,
    "followers": logs.followers,
    "lines": logs.lines,
}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="Measure how costs grow.")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"which; all of: {', '.join(SUBJECTS)}")
    parser.add_argument("--quick", action="store_true", help="only small amounts, to check that it works")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.subjects if name not in SUBJECTS]
    if unknown:
        parser.error(f"no such subject: {', '.join(unknown)}; there are: {', '.join(SUBJECTS)}")
    start_s = time.monotonic()
    print(f"{'figure':<48}  {'from':>10}  {'to':>13}  {'smallest':>10}  {'largest':>10}  exponent  bar")
    for name in arguments.subjects or SUBJECTS:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        for series in SUBJECTS[name](arguments.quick):
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
    load = "/".join(f"{average:.1f}" for average in os.getloadavg())
    print(f"\n{os.cpu_count()} cores, load {load}, {time.monotonic() - start_s:.0f} s")


if __name__ == "__main__":
    main()
