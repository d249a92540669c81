"""Durations in buckets, for `run_durations`: by their first two digits, and how many follow.

Stored numbers depend on these buckets, so the buckets must not change.
"""

_MOST_DIGITS = 13  # milliseconds: 300 years
_NEGATIVE = -(2**62)


def bucket(duration: str) -> str:
    """Return the expression for the bucket of a duration, in ms: the shortest that may be in it."""
    cases = [f"WHEN {duration} < 0 THEN {_NEGATIVE}"]
    for digits in range(2, _MOST_DIGITS + 1):
        width = 10 ** (digits - 2)
        cases.append(f"WHEN {duration} < {100 * width} THEN {duration} / {width} * {width}")
    return f"(CASE {' '.join(cases)} ELSE {100 * width} END)"
