"""Counts with singular and plural nouns, for messages."""

from collections.abc import Sequence

NAMED = 3
"""Maximum number of names after a number in the audit log."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 task`` or ``2 tasks``; the plural must end in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def counted_with_names(names: Sequence[str], noun: str, total: int | None = None) -> str:
    """Return a text such as ``12 runs: A, B, C and 9 more``. `total` also counts items without a name in `names`."""
    total = len(names) if total is None else total
    first = names[: min(NAMED, total)]
    more = f" and {total - len(first)} more" if total > len(first) else ""
    return f"{counted(total, noun)}: {', '.join(first)}{more}" if first else counted(total, noun)
