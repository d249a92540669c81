"""Rows of the table, rounds that alternate with the floor, and statistics, for all benchmarks.

A *floor* is the least that the operating system needs for the same work (``... | cat > file``, a bare spawn, a bare
pipe). It is measured in turn with the daemon, in the same run. The ratio of the two is comparable between machines.
A *peer* is another process manager that does the same work. It replaces the floor in the rows that name it.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass


def arguments_of(module: str, description: str, names: Collection[str]) -> tuple[list[str], bool]:
    """Parse the command line of a module that measures all of `names`, or those in its arguments.

    Returns:
        The names to measure, and whether all work is shortened.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"what to measure; all of: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="shorten everything; the figures mean little")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.rows if name not in names]
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are: {', '.join(names)}")
    return arguments.rows or list(names), arguments.quick


def conditions(start_s: float) -> str:
    """Return the last line of a table: processors, load, and seconds since `start_s` (monotonic)."""
    load = "/".join(f"{average:.1f}" for average in os.getloadavg())
    return f"\n{os.cpu_count()} cores, load {load}, {time.monotonic() - start_s:.0f} s"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    figure: str
    floor: str
    """Figure of the operating system alone, or of the peer in `what`, in the unit of `figure`."""
    ratio: str
    bar: str
    ok: bool | None
    """None without a bar."""
    spread: str = ""
    """Minimum and maximum of the rounds, in the unit of `figure` or, with an x, of `ratio`."""


def table(rows: Sequence[Row]) -> str:
    """Return the rows as aligned plain text."""
    verdicts = {True: "ok", False: "MISSED", None: ""}
    cells = [("what", "figure", "floor/peer", "ratio", "rounds", "bar", "")]
    cells += [(row.what, row.figure, row.floor, row.ratio, row.spread, row.bar, verdicts[row.ok]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def in_turn(rounds: int, ours: Callable[[], float], floor: Callable[[], float]) -> list[tuple[float, float]]:
    """Measure pairs (ours, floor) one after the other, so that a disturbance of the machine affects both."""
    return [(ours(), floor()) for _ in range(rounds)]


def ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Return the ratio of each round."""
    return [ours / floor for ours, floor in pairs]


def quantile(values: Sequence[float], q: float) -> float:
    """Return the value that a share `q` of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def ratio_row(what: str, pairs: Sequence[tuple[float, float]], unit: str, bar: float) -> Row:
    """Return a row with a ratio as its bar; `unit` formats both figures, as in ``{:.2f} s``."""
    each = ratios(pairs)
    middle = statistics.median(each)
    return Row(
        what,
        unit.format(statistics.median(ours for ours, _ in pairs)),
        unit.format(statistics.median(floor for _, floor in pairs)),
        f"{middle:.2f} x",
        f"<= {bar:g} x",
        middle <= bar,
        between(each, "{:.2f} x"),
    )


def limit_row(what: str, pairs: Sequence[tuple[float, float]], unit: str, bar: float) -> Row:
    """Return a row with an upper limit as its bar, in the unit of the figure."""
    ours = [one for one, _ in pairs]
    middle = statistics.median(ours)
    return Row(
        what,
        unit.format(middle),
        unit.format(statistics.median(floor for _, floor in pairs)),
        f"{statistics.median(ratios(pairs)):.1f} x",
        f"<= {unit.format(bar)}",
        middle <= bar,
        between(ours, unit),
    )


def rate_row(what: str, pairs: Sequence[tuple[float, float]], unit: str, bar: float) -> Row:
    """Return a row with a lower limit as its bar; the ratio is floor to ours, so less is better."""
    ours = [one for one, _ in pairs]
    middle = statistics.median(ours)
    return Row(
        what,
        unit.format(middle),
        unit.format(statistics.median(floor for _, floor in pairs)),
        f"{statistics.median(floor / one for one, floor in pairs):.2f} x",
        f">= {unit.format(bar)}",
        middle >= bar,
        between(ours, unit),
    )


def peer_row(what: str, pairs: Sequence[tuple[float, float]], unit: str, bar: float | None = None) -> Row:
    """Return a row with a peer instead of the floor; less is better, and `bar` limits the ratio."""
    middle = statistics.median(ratios(pairs))
    return Row(
        what,
        unit.format(statistics.median(ours for ours, _ in pairs)),
        unit.format(statistics.median(peer for _, peer in pairs)),
        f"{middle:.2f} x",
        "" if bar is None else f"<= {bar:.2f} x",
        None if bar is None else middle <= bar,
        between(ratios(pairs), "{:.2f} x"),
    )


def latency_rows(
    what: str,
    ours_s: Sequence[float],
    floor_s: Sequence[float],
    bars_ms: tuple[float | None, float | None] = (None, None),
) -> list[Row]:
    """Return rows for p50 and p99."""
    rows = []
    for name, q, bar in (("p50", 0.5, bars_ms[0]), ("p99", 0.99, bars_ms[1])):
        ours, floor = quantile(ours_s, q) * 1000, quantile(floor_s, q) * 1000
        rows.append(
            Row(
                f"{what}, {name}",
                f"{ours:.2f} ms",
                f"{floor:.2f} ms",
                f"{ours / floor:.2f} x",
                "" if bar is None else f"<= {bar:g} ms",
                None if bar is None else ours <= bar,
                f"max {max(ours_s) * 1000:.1f} ms" if q > 0.5 else "",
            )
        )
    return rows


def between(values: Sequence[float], unit: str) -> str:
    """Return minimum and maximum, or an empty text for a single value."""
    if len(values) < 2:
        return ""
    return f"{unit.format(min(values)).split()[0]} - {unit.format(max(values))}"
