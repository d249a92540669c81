"""Where a page begins in two sorted lists that are merged, without going through what stands before it."""

from collections.abc import Callable
from itertools import cycle, islice
from typing import Generic, TypeVar

T = TypeVar("T")


class Window(Generic[T]):
    """A list of which some neighbours were read.

    Args:
        read: Reads entries from a place on, as many as asked for; gives them and how many the whole list has.
        place: Of the first of those neighbours.
        size: How many they are.
    """

    def __init__(self, read: Callable[[int, int], tuple[list[T], int]], place: int, size: int) -> None:
        self._read = read
        self._place = place
        self._known, self.total = read(place, size)

    def entries(self, place: int, size: int) -> list[T]:
        """Entries from a place on; those that were not read are read anew."""
        begin = place - self._place
        if begin < 0 or begin + min(size, self.total - place) > len(self._known):
            return self._read(place, size)[0]
        return self._known[begin : begin + size]


def begin(
    offset: int, low: int, high: int, near: int, before: Callable[[int], int], looks: int, *, ahead: bool
) -> tuple[int, int]:
    """Two numbers, between which is how many of the first list stand before the page.

    They are not further apart than `near`, unless so many looks have not been enough. One is where all of the others
    stand ahead, or behind; few more where they are spread out thinly.

    Args:
        offset: How many of both stand before the page.
        low: How many of the first one do at least.
        high: How many of it do at most; `offset` and what the first one has are not less.
        near: More than 0.
        before: How many of the other list stand before an entry of the first one, by its place.
        looks: How often that may be asked.
        ahead: Most of the others are believed to stand before the page.
    """
    # Both ends, and the middle: of each three, one at least halves what is left.
    for share in islice(cycle((0.0, 1.0, 0.5) if ahead else (1.0, 0.0, 0.5)), looks):
        if high - low <= near:
            break
        at = low + int((high - 1 - low) * share)
        others = before(at)
        if at + others >= offset:  # it does not stand before the page itself
            low, high = max(low, offset - others), at
        else:
            low, high = at + 1, min(high, offset - others)
    return low, high
