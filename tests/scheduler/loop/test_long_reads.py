"""Long reads of the database."""

from pathlib import Path

from store.database import open_writer
from store.errors import DatabaseDamaged
from supervisor.scheduler.loop.long_reads import LongReads
from supervisor.scheduler.loop.loop import Loop
from tests.support.waiting import until


def test_damage_is_reported(tmp_path: Path) -> None:
    """A read that meets damage reports it and gives the error to the caller."""
    path = tmp_path / "ringward.db"
    open_writer(str(path)).close()
    path.write_bytes(b"\xa5" * path.stat().st_size)
    loop = Loop()
    reported: list[DatabaseDamaged] = []
    reading = LongReads(loop, str(path), reported.append)
    answers: list[object] = []
    reading.submit(lambda db: db.row("SELECT count(*) FROM runs"), answers.append)

    def answered() -> bool:
        loop.round(0)
        return bool(answers)

    until(answered, "an answer")
    assert answers == reported
    assert isinstance(reported[0], DatabaseDamaged)
