"""Buckets of durations for `run_durations`: by the first two digits and the number of digits after them.

Stored numbers depend on these buckets, so the buckets must not change.
"""

_MOST_DIGITS = 13  # milliseconds: 300 years
_NEGATIVE = -(2**62)


def bucket(duration: str) -> str:
    """Return the SQL expression for the bucket of a duration in ms. A bucket's name is its shortest duration."""
    cases = [f"WHEN {duration} < 0 THEN {_NEGATIVE}"]
    for digits in range(2, _MOST_DIGITS + 1):
        width = 10 ** (digits - 2)
        cases.append(f"WHEN {duration} < {100 * width} THEN {duration} / {width} * {width}")
    return f"(CASE {' '.join(cases)} ELSE {100 * width} END)"
