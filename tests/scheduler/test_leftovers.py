"""What a killed supervisor left behind, on the way to its end."""

from collections.abc import Collection
from pathlib import Path

import pytest

from store.database import open_writer
from supervisor.logline import Log
from supervisor.scheduler import leftovers


class _Killed(Exception):
    pass


def test_a_scheduler_that_is_killed_over_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one looks where this one had to look, also when the cgroups of runs are elsewhere now."""
    looked: list[str] = []

    def end_cgroups(directory: str, _runs: Collection[str], _log: Log) -> None:
        looked.append(directory)
        if len(looked) == 1:
            raise _Killed

    database = open_writer(str(tmp_path / "ringward.db"))
    log = Log("test", "error")
    before, now = str(tmp_path / "before"), str(tmp_path / "now")
    leftovers.end_leftovers(database, "D", set(), before, log)
    monkeypatch.setattr(leftovers, "_end_cgroups", end_cgroups)
    with pytest.raises(_Killed):
        leftovers.end_leftovers(database, "D", set(), now, log)
    leftovers.end_leftovers(database, "D", set(), now, log)
    assert sorted(looked[1:]) == [before, now]
    leftovers.end_leftovers(database, "D", set(), now, log)
    assert looked[3:] == [now]
    database.close()


def test_a_copy_of_another_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs of the original is left alone, in its cgroups and elsewhere; the copy's own is ended the next time."""
    looked: list[str] = []
    monkeypatch.setattr(leftovers, "_end_cgroups", lambda directory, _runs, _log: looked.append(directory))
    monkeypatch.setattr(leftovers, "_end_marked", lambda daemon_id, _runs, _log: looked.append(daemon_id))
    database = open_writer(str(tmp_path / "ringward.db"))
    log = Log("test", "error")
    place = str(tmp_path / "cgroups")
    leftovers.end_leftovers(database, "original", {"R"}, place, log)
    looked.clear()
    leftovers.end_leftovers(database, "copy", {"R"}, place, log)
    assert looked == []
    leftovers.end_leftovers(database, "copy", {"R"}, place, log)
    assert looked == [place, "copy"]
    database.close()
