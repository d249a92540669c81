"""Processes that a killed daemon left behind."""

import errno
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from store.database import open_writer
from supervisor.host.cgroups import assign, spare_name
from supervisor.ipc.log_line import Log
from supervisor.startup import orphans
from tests.scheduler.fake_clock import FakeClock
from tests.support.host_features import require_cgroups
from tests.support.waiting import until_environment


class _Killed(Exception):
    pass


def test_killed_during_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a scheduler is killed during the search, the next one searches the same places and the current ones."""
    looked: list[str] = []

    def end_cgroups(directory: str, _runs: Collection[str], _log: Log) -> set[str]:
        looked.append(directory)
        if len(looked) == 1:
            raise _Killed
        return set()

    database = open_writer(str(tmp_path / "ringward.db"))
    log = Log("test", "error")
    before, now = str(tmp_path / "before"), str(tmp_path / "now")
    orphans.end_orphans(database, "D", set(), before, log)
    monkeypatch.setattr(orphans, "_end_cgroups", end_cgroups)
    with pytest.raises(_Killed):
        orphans.end_orphans(database, "D", set(), now, log)
    orphans.end_orphans(database, "D", set(), now, log)
    assert sorted(looked[1:]) == [before, now]
    orphans.end_orphans(database, "D", set(), now, log)
    assert looked[3:] == [now]
    database.close()


def test_spare_cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost run's spare cgroup is found by its attribute.

    Unused ones of this daemon are removed, and other daemons' stay.
    """
    monkeypatch.setattr(orphans, "_WAIT_S", 60.0)
    cgroups = require_cgroups()
    ours, mine, other, unknown = (
        cgroups.make(f"{spare_name(daemon, os.getpid())}-{number}")
        for number, daemon in enumerate(["D", "D", "E", "D"])
    )
    run = f"R{os.getpid()}"
    assign(mine.path, run)
    with subprocess.Popen(["/bin/sh", "-c", f"echo $$ > {mine.procs}; echo; exec sleep 1000"], stdout=-1) as lost:
        assert lost.stdout is not None
        lost.stdout.readline()
        database = open_writer(str(tmp_path / "ringward.db"))
        orphans.end_orphans(database, "D", set(), cgroups.directory, Log("test", "error"))
        assert [os.path.exists(process_cgroup.path) for process_cgroup in (ours, mine, other, unknown)] == [
            True,
            True,
            True,
            True,
        ]
        orphans.end_orphans(database, "D", {run}, cgroups.directory, Log("test", "error"))
        database.close()
        assert lost.wait(60) == -signal.SIGKILL
    assert [os.path.exists(process_cgroup.path) for process_cgroup in (ours, mine, other, unknown)] == [
        False,
        False,
        True,
        False,
    ]
    other.remove()
    cgroups.close()


def test_copied_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copied data directory leaves the original's processes alone, and later ends its own."""
    looked: list[str] = []

    def end(where: str, _runs: Collection[str], _log: Log) -> set[str]:
        looked.append(where)
        return set()

    monkeypatch.setattr(orphans, "_end_cgroups", end)
    monkeypatch.setattr(orphans, "_end_marked", end)
    database = open_writer(str(tmp_path / "ringward.db"))
    log = Log("test", "error")
    place = str(tmp_path / "cgroups")
    orphans.end_orphans(database, "original", {"R"}, place, log)
    looked.clear()
    orphans.end_orphans(database, "copy", {"R"}, place, log)
    assert looked == []
    orphans.end_orphans(database, "copy", {"R"}, place, log)
    assert looked == [place, "copy"]
    database.close()


def test_wait_for_slow_orphans() -> None:
    """The search waits while each orphan ends within 5 s of the previous one, and names the rest."""
    clock = FakeClock()
    begin_s = clock.monotonic_s()
    ends_s = {f"R{number}": begin_s + number * 3.0 for number in range(20)} | {"stuck": float("inf")}
    remaining = orphans.wait_until_gone(ends_s, lambda run: ends_s[run] <= clock.monotonic_s(), clock)
    assert remaining == ["stuck"]
    assert clock.monotonic_s() - begin_s == pytest.approx(19 * 3.0 + 5.0, abs=0.02)


def sleeping(number: int, mark: dict[str, str]) -> list[subprocess.Popen[bytes]]:
    """Start processes that have a mark."""
    children = [subprocess.Popen(["sleep", "1000"], env={**os.environ, **mark}) for _ in range(number)]
    for child in children:
        until_environment(child)
    return children


def test_processes_without_cgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes with the marks of a lost run are killed, and none of them is logged as remaining."""
    mark = {"RINGWARD_DAEMON": f"D{os.getpid()}", "RINGWARD_RUN_ID": "R"}
    warnings_said: list[bytes] = []
    log = Log("test", "error")
    monkeypatch.setattr(log, "emit", warnings_said.append)
    children = sleeping(20, mark)
    reaper = threading.Thread(target=lambda: [child.wait() for child in children])
    reaper.start()
    orphans._end_marked(mark["RINGWARD_DAEMON"], {"R"}, log)
    reaper.join()
    assert [child.returncode for child in children] == [-signal.SIGKILL] * 20
    assert warnings_said == []


def test_more_orphans_than_free_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """All orphans are killed even if there are fewer free descriptors than orphans."""
    mark = {"RINGWARD_DAEMON": f"D{os.getpid()}", "RINGWARD_RUN_ID": "R"}
    warnings_said: list[bytes] = []
    log = Log("test", "warning")
    monkeypatch.setattr(log, "emit", warnings_said.append)
    children = sleeping(90, mark)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd")))
    with open(os.devnull) as null:
        gaps = [os.dup(null.fileno())]
        while gaps[-1] < used:
            gaps.append(os.dup(null.fileno()))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (gaps[-1] + 40, limits[1]))
        orphans._end_marked(mark["RINGWARD_DAEMON"], {"R"}, log)
        assert [child.poll() for child in children] == [-signal.SIGKILL] * 90
        killing = [line for line in warnings_said if b"killing orphans" in line]
        assert len(killing) > 1  # one for as many as there were descriptors for
        assert all(line in killing or b"Too many open files" in line for line in warnings_said)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for gap in gaps:
            os.close(gap)
        for child in children:
            child.kill()
            child.wait()


def test_search_without_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the scheduler cannot look at processes, it logs that orphans may continue."""

    def pidfd_open(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    warnings_said: list[bytes] = []
    log = Log("test", "error")
    monkeypatch.setattr(log, "emit", warnings_said.append)
    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    orphans._end_marked("D", {"R"}, log)
    (line,) = warnings_said
    assert b"cannot look for further orphans: Too many open files" in line
