"""Long reads of the database."""

from pathlib import Path

from store.database import open_writer
from store.errors import DatabaseDamaged
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Procedure, Procedures
from tests.support.threads import no_memory_for_threads
from tests.support.waiting import until


def append_result(reading: LongReads, query: str, results: list[object]) -> Procedure[None]:
    results.append((yield reading.result_of(lambda db: db.rows(query))))


def test_damage_is_reported(tmp_path: Path) -> None:
    """A read that meets damage reports it and gives the error to the caller."""
    path = tmp_path / "ringward.db"
    open_writer(str(path)).close()
    path.write_bytes(b"\xa5" * path.stat().st_size)
    loop = Loop()
    reported: list[DatabaseDamaged] = []
    reading = LongReads(loop, str(path), reported.append)
    answers: list[object] = []
    Procedures().start(append_result(reading, "SELECT count(*) FROM runs", answers), answers.append)

    def answered() -> bool:
        loop.round(0)
        return bool(answers)

    until(answered, "an answer")
    assert answers == reported
    assert isinstance(reported[0], DatabaseDamaged)


def test_thread_without_memory(tmp_path: Path) -> None:
    """A read whose thread had no memory to begin is done by the thread of the next one."""
    path = tmp_path / "ringward.db"
    open_writer(str(path)).close()
    loop = Loop()
    reading = LongReads(loop, str(path), lambda _damage: None)
    answers: list[object] = []
    with no_memory_for_threads():
        reading.call(lambda: 1, answers.append)
    reading.call(lambda: 2, answers.append)

    def answered() -> bool:
        loop.round(0)
        return len(answers) == 2

    until(answered, "both answers")
    assert answers == [1, 2]
