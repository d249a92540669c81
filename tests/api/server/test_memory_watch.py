"""Detection of workers that cannot answer for lack of memory."""

import pytest

from api.server.memory_watch import MemoryWatch, has_room


class Watched:
    """A watch with a clock and a memory of the test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.room = False
        self.shortages = 0
        self.watch = MemoryWatch(self.count, lambda: self.room, lambda: self.now_s)

    def count(self) -> None:
        self.shortages += 1

    def at(self, now_s: float, status: int, operation: str = "listRuns") -> int:
        """Record a response, and return the number of shortages until now."""
        self.now_s = now_s
        self.watch.record(operation, status)
        return self.shortages


@pytest.mark.parametrize("status", [500, 503])
def test_an_operation_that_fails_for_ten_seconds_without_room_is_a_shortage(status: int) -> None:
    """Failures count from the first one of the operation, whatever other operations do."""
    watched = Watched()
    assert watched.at(0, status) == 0
    assert watched.at(9.9, status) == 0
    assert watched.at(9.9, 200, "getHealth") == 0
    assert watched.at(10, status) == 1


def test_a_success_ends_the_failure_of_an_operation() -> None:
    """An operation that answers from time to time is not hopeless; a rejection of a bad request is an answer."""
    for status in (200, 404):
        watched = Watched()
        watched.at(0, 503)
        watched.at(9, status)
        assert watched.at(11, 503) == 0
        assert watched.at(20.9, 503) == 0
        assert watched.at(21, 503) == 1


def test_failures_with_room_have_other_causes() -> None:
    """A missing database is not a lack of memory."""
    watched = Watched()
    watched.room = True
    watched.at(0, 503)
    assert watched.at(1000, 503) == 0


def test_a_process_without_a_limit_has_room() -> None:
    """The check maps and unmaps memory."""
    assert has_room()
