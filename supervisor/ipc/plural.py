"""Counts with singular and plural nouns, for messages."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 task`` or ``2 tasks``; the plural must end in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
