"""Time of one decision which of ten thousand queued runs starts next."""

import time

from bench.measure import Row, limit_row
from supervisor.schedule.admission import ActiveRuns, Capacity, Claim, WaitingRuns, admit

_BAR_MS = 1.0
_SLOTS = 20
_SIZE = 4


def admission(quick: bool) -> list[Row]:
    """Measure the end of a run and the start of the next; the floor is a sort of the same number of integers."""
    count, rounds = (1000, 2) if quick else (10_000, 5)
    pairs = [(_decision_ms(count), _sort_ms(count)) for _ in range(rounds)]
    return [limit_row(f"decision with {count:,} queued runs over {_SLOTS} slots", pairs, "{:.3f} ms", _BAR_MS)]


def _claim(number: int) -> Claim:
    slots = {f"s{number % _SLOTS}": 1 + number % 3}
    if number % 7 == 0:
        slots[f"s{number * 13 % _SLOTS}"] = 1
    return Claim(f"{number:026}", f"t{number}", slots, 1, number * 7919 % 100_003)


def _decision_ms(count: int) -> float:
    """Return the mean time of a decision while all runs start and end one after the other."""
    capacity = Capacity({f"s{number}": _SIZE for number in range(_SLOTS)})
    waiting = WaitingRuns(map(_claim, range(count)))
    active = ActiveRuns()
    decisions = 0
    start_s = time.perf_counter()
    while waiting:
        claim = admit(capacity, active, waiting)
        decisions += 1
        if claim is None:
            active.remove(next(iter(active)).run)
        else:
            waiting.remove(claim.run)
            active.add(claim)
    return (time.perf_counter() - start_s) * 1000 / decisions


def _sort_ms(count: int) -> float:
    numbers = [number * 7919 % 100_003 for number in range(count)]
    start_s = time.perf_counter()
    sorted(numbers)
    return (time.perf_counter() - start_s) * 1000
