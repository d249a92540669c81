"""Where a page begins in two sorted lists that are merged."""

import random
from bisect import bisect

from store.runs.run_pages import Window, begin


def test_where_pages_begin() -> None:
    """After few probes the result lies between two close bounds, wherever the other runs are."""
    rnd = random.Random(3)
    for _ in range(2000):
        ended = sorted(rnd.sample(range(0, 100_000, 2), rnd.choice([1, 30, 3000])))
        around = rnd.randrange(100_000)
        spread = rnd.choice([10, 1000, 100_000])
        active = sorted(2 * ((around + rnd.randrange(spread)) // 2) + 1 for _ in range(rnd.choice([0, 3, 500])))
        offset, near = rnd.randrange(len(ended) + len(active) + 1), rnd.choice([1, 5, 50])
        looks: list[int] = []

        def before(place: int, ended: list[int] = ended, active: list[int] = active, looks: list[int] = looks) -> int:
            looks.append(place)
            return bisect(active, ended[place])

        low, high = max(0, offset - len(active)), min(offset, len(ended))
        first, last = begin(offset, (low, high), near, before, 100, ahead=rnd.random() < 0.5)
        right = sum(value % 2 == 0 for value in sorted([*ended, *active])[:offset])
        assert low <= first <= right <= last <= high
        assert last - first <= near
        assert len(looks) <= 3 * len(bin(len(active) + 1))


def test_one_look() -> None:
    """It is enough when all others stand before, or behind, as it is believed; else it takes two."""
    for active, ahead, enough in ((0, False, 1), (5000, True, 1), (0, True, 2), (5000, False, 2)):
        looks: list[int] = []

        def before(place: int, active: int = active, looks: list[int] = looks) -> int:
            looks.append(place)
            return active

        place = 500_000 - active
        assert begin(500_000, (495_000, 500_000), 250, before, 50, ahead=ahead) == (place, place)
        assert len(looks) == enough


def test_what_was_read() -> None:
    """It is not read again, also where the list ends; all else is."""
    asked: list[tuple[int, int]] = []

    def read(place: int, size: int) -> tuple[list[int], int]:
        asked.append((place, size))
        return [*range(100)][place : place + size], 100

    some = Window(read, 90, 20)
    assert some.total == 100
    for place, size in ((90, 20), (95, 3), (99, 50), (100, 5), (120, 5)):
        assert some.entries(place, size) == [*range(100)][place : place + size]
    assert asked == [(90, 20)]
    assert some.entries(89, 2) == [89, 90]
    assert len(asked) == 2
