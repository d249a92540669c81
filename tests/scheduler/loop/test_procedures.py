"""Procedures: operations that wait."""

from collections.abc import Callable

import pytest

from supervisor.scheduler.loop.procedures import Procedure, Procedures, Refused, Turn, Wait, Waiter


class Bell:
    """A wait that the test completes."""

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []

    def wait(self, waiter: Waiter) -> None:
        self.waiters.append(waiter)

    def ring(self, result: object = None) -> None:
        self.waiters.pop(0).resume(result)


def procedure(said: list[object], *waits: Wait) -> Procedure[None]:
    try:
        for wait in waits:
            result = yield wait
            said.append(result)
        said.append("end")
    finally:
        said.append("finally")


def at_once(result: object) -> Wait:
    return lambda waiter: waiter.resume(result)


def test_results_of_waits_arrive_in_order() -> None:
    """A procedure continues with the result of each wait, whether that completes later or at once."""
    bell, said = Bell(), []  # type: tuple[Bell, list[object]]
    Procedures().start(procedure(said, bell.wait, at_once(2), bell.wait))
    assert said == []
    bell.ring(1)
    assert said == [1, 2]
    bell.ring(3)
    assert said == [1, 2, 3, "end", "finally"]


def test_many_waits_that_complete_at_once() -> None:
    """Ten thousand waits that complete at once do not exhaust the stack."""
    said: list[object] = []
    Procedures().start(procedure(said, *(at_once(number) for number in range(10_000))))
    assert said[:10_000] == list(range(10_000))


def test_refusal() -> None:
    """After a refusal, only ``finally`` blocks run, and the error is reported once they have."""
    bell, said = Bell(), []  # type: tuple[Bell, list[object]]
    Procedures().start(procedure(said, bell.wait), lambda error: said.append(str(error)))
    bell.waiters.pop().refuse(OSError("full"))
    assert said == ["finally", "full"]


def test_refusal_that_is_handled() -> None:
    """A procedure can catch a refusal and go on."""

    def stubborn() -> Procedure[None]:
        try:
            yield bell.wait
        except Refused as refusal:
            said.append(str(refusal.error))
        yield bell.wait
        said.append("end")

    bell, said = Bell(), []  # type: tuple[Bell, list[object]]
    Procedures().start(stubborn())
    bell.waiters.pop().refuse(OSError("full"))
    bell.ring()
    assert said == ["full", "end"]


def test_end_of_the_scheduler_closes_all_procedures() -> None:
    """At the end of the scheduler the ``finally`` blocks of all waiting procedures run."""
    bell, said, procedures = Bell(), [], Procedures()  # type: tuple[Bell, list[object], Procedures]
    for _ in range(2):
        procedures.start(procedure(said, bell.wait))
    procedures.start(procedure(said))
    procedures.close()
    assert said == ["end", "finally", "finally", "finally"]


def test_defect_reaches_the_caller() -> None:
    """An exception of a procedure is an exception of whoever resumes it."""

    def broken() -> Procedure[None]:
        yield bell.wait
        raise RuntimeError("defect")

    bell = Bell()
    Procedures().start(broken())
    with pytest.raises(RuntimeError, match="defect"):
        bell.ring()


@pytest.mark.parametrize("end", [lambda waiter: waiter.resume(), lambda waiter: waiter.refuse(OSError())])
def test_one_turn_after_another(end: Callable[[Waiter], None]) -> None:
    """Procedures take a turn in the order of their arrival, also after one that was refused."""

    def with_turn(name: str) -> Procedure[None]:
        yield turn.take
        try:
            said.append(name)
            yield bell.wait
        finally:
            turn.leave()

    turn, bell, said, procedures = Turn(), Bell(), [], Procedures()  # type: tuple[Turn, Bell, list[str], Procedures]
    for name in ("a", "b", "c"):
        procedures.start(with_turn(name), lambda _error: None)
    assert said == ["a"]
    end(bell.waiters.pop())
    assert said == ["a", "b"]
    end(bell.waiters.pop())
    assert said == ["a", "b", "c"]
