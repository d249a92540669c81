"""The janitor as a process: it compresses, keeps the budget, and may be killed at any moment."""

import fcntl
import json
import os
import stat
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from logring.layout import KIND_PACKED, Static
from logring.log_paths import frames_path
from logring.logfile.compress import SUFFIX
from supervisor.helpers.janitor.upkeep import find_logs
from supervisor.ipc.log_jobs import JanitorReport
from tests.helpers.janitor.support import (
    COMMAND,
    EAGER,
    HOUR_MS,
    NOW_MS,
    DataDirectory,
    finished,
    lines_of,
    occupied,
    run,
    start,
)
from tests.support.waiting import until


def is_packed(path: str) -> bool:
    return Static.parse(Path(path).read_bytes(), path).kind == KIND_PACKED


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_old_logs_are_compressed(place: DataDirectory) -> None:
    """Logs that ended long enough ago are compressed and keep their time; the report has the time of the next one."""
    young_ms = now_ms() - HOUR_MS // 2
    old, young = place.log("t", 1), place.log("t", 2, ended_ms=young_ms)
    report, _ = run(place.job(compress_after_ms=HOUR_MS))
    assert [is_packed(path) for path in (old, young)] == [True, False]
    assert report.next_ms == young_ms + HOUR_MS
    assert lines_of(old) == place.texts(1)
    assert os.stat(old).st_mtime_ns == NOW_MS * 1_000_000
    assert stat.S_IMODE(os.stat(young).st_mode) == 0o600
    report, _ = run(place.job(compress_after_ms=0))
    assert is_packed(young)
    assert report.next_ms is None
    assert place.others() == []


def test_unsealed_logs_are_not_touched(place: DataDirectory) -> None:
    """An unsealed log is neither compressed nor removed, whatever its age and the size of all logs."""
    live, ended = place.log("t", 1, sealed=False, ended_ms=NOW_MS - HOUR_MS), place.log("t", 2)
    before = Path(live).read_bytes()
    _, logged = run(place.job(max_log_bytes=0))
    assert place.logs() == [live]
    assert Path(live).read_bytes() == before
    assert stat.S_IMODE(os.stat(live).st_mode) == 0o600
    assert "t: removed the logs of 1 run (" in logged
    size = os.stat(live).st_blocks * 512
    assert f"the logs use {size} bytes, more than the limit of 0 bytes; not removed: 1 unfinished log (" in logged
    assert "limit the logs of active runs with log_max_size, or raise max_log_bytes" in logged
    assert "unreadable" not in logged
    assert not os.path.exists(ended)


def test_oldest_logs_are_removed_first(place: DataDirectory) -> None:
    """Logs are removed with their sidecars, in the order their runs ended, until the rest fits the budget."""
    paths = [place.log("ab"[n % 2], n, ended_ms=NOW_MS - n * HOUR_MS) for n in range(10)]  # 0 ended last
    run(place.job(compress_after_ms=HOUR_MS))
    for path in paths:
        Path(frames_path(path)).write_bytes(b"x" * 5000)
    everything = [log_path for path in paths for log_path in (path, frames_path(path))]
    assert sum(log.occupied for log in find_logs(f"{place.directory}/logs")) == occupied(everything)
    budget = occupied(everything[:8])
    run(place.job(max_log_bytes=budget))
    assert place.logs() == sorted(paths[:4])
    assert place.others() == sorted(frames_path(path) for path in paths[:4])
    run(place.job(max_log_bytes=budget - 1))
    assert place.logs() == sorted(paths[:3])


def test_empty_directories_are_removed(place: DataDirectory) -> None:
    """Empty directories of tasks without logs are removed."""
    place.log("t", 1)
    other = place.log("u", 1)
    os.unlink(other)
    run(place.job())
    assert place.others() == []
    run(place.job(max_log_bytes=0))
    assert os.listdir(place.directory / "logs") == []


def test_default_budget(place: DataDirectory) -> None:
    """By default logs may use a fifth of the file system, so small logs are kept."""
    path = place.log("t", 1)
    run(place.job())
    assert lines_of(path) == place.texts(1)


def test_no_logs(place: DataDirectory) -> None:
    """For a data directory without logs the janitor reports and logs nothing."""
    assert run(place.job()) == (JanitorReport(next_ms=None, rest_ms=60_000), "")


def test_incompressible_log_is_tried_once(place: DataDirectory) -> None:
    """A log that gains nothing by compression is read only once."""
    path = place.log("t", 1)
    noise = os.urandom(1 << 16).replace(b"\n", b"")[:32_300]
    place.texts = lambda number, count=1: [noise[:16_000], noise[16_000:]]  # type: ignore[method-assign]  # noqa: ARG005
    dense = place.log("t", 2)
    before = Path(dense).read_bytes()
    run(place.job())
    assert is_packed(path)
    assert Path(dense).read_bytes() == before
    assert [log.done for log in find_logs(f"{place.directory}/logs")] == [True, True]
    times = [os.stat(log_path).st_atime_ns for log_path in (path, dense)]
    ids = [os.stat(log_path).st_ino for log_path in (path, dense)]
    run(place.job())
    assert ids == [os.stat(log_path).st_ino for log_path in (path, dense)]
    assert times == [os.stat(log_path).st_atime_ns for log_path in (path, dense)]


def test_unreadable_files_are_skipped(place: DataDirectory) -> None:
    """Foreign files, damaged logs and links stop nothing and are not removed."""
    good, bad = place.log("t", 1), place.log("t", 2)
    with open(bad, "r+b") as file:
        file.seek(100)
        file.write(b"?" * 500)
    foreign = os.path.join(os.path.dirname(good), "foreign.log")
    Path(foreign).write_bytes(b"text" * 5000)
    link = os.path.join(os.path.dirname(good), "link.log")
    os.symlink("/etc/passwd", link)
    (place.directory / "logs" / "file").write_text("in the way")
    run(place.job())
    assert is_packed(good)
    run(place.job(max_log_bytes=0))
    assert place.logs() == sorted([bad, foreign, link])


def test_one_janitor_at_a_time(place: DataDirectory) -> None:
    """While a janitor works in a data directory, another one does nothing and asks to be started again."""
    path = place.log("t", 1)
    lock = os.open(place.directory / "janitor.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    report, _ = run(place.job())
    assert not is_packed(path)
    assert report.next_ms == 0
    os.close(lock)
    run(place.job())
    assert is_packed(path)


def test_ends_with_the_scheduler(place: DataDirectory) -> None:
    """The janitor ends when the connection closes, even before it gets its job."""
    idle = start(None)
    idle.sock.close()
    assert idle.ended() == ""
    for number in range(50):
        place.log("t", number)
    janitor = start(place.job())
    until(lambda: any(is_packed(path) for path in place.logs()), "the first log")
    janitor.sock.close()
    janitor.ended()
    assert all(lines_of(path) == place.texts(number) for number, path in enumerate(place.logs()))


def test_scheduler_of_the_first_version(place: DataDirectory) -> None:
    """A scheduler of version 0.1.0 passes the job on standard input, and reads the report from standard output."""
    path = place.log("t", 1)
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(asdict(place.job())), file=process.stdin, flush=True)
    report = json.loads(process.stdout.readline())
    process.communicate()
    assert is_packed(path)
    assert report == {"next_ms": None, "rest_ms": 60_000, "removed": 0, "kept": [], "damaged": False}
    idle = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert idle.stdout + idle.stderr == b""


_HELD = f"""
{EAGER}
import threading

def rename(*paths, really=os.rename, left=[None] * int(sys.argv.pop(1))):
    if not left:
        threading.Event().wait()
    left.pop()
    really(*paths)

os.rename = rename
sys.exit(main())
"""
"""A janitor that stops before the next log, so that the kill always comes in time."""


@pytest.mark.parametrize("after", [0, 1, 7])
def test_killed_at_any_moment(place: DataDirectory, after: int) -> None:
    """After a SIGKILL every log is there, old or new; the next janitor removes partial files and continues."""
    for number in range(30):
        place.log("t", number, 40_000)
    janitor = start(place.job(), [sys.executable, "-I", "-c", _HELD, str(after)])
    folder = os.path.dirname(place.logs()[0])
    until(
        lambda: (
            sum(is_packed(path) for path in place.logs()) >= after
            and any(name.endswith(SUFFIX) for name in os.listdir(folder))
        ),
        "a log to be half made",
    )
    janitor.process.kill()
    with janitor.sock:
        janitor.process.communicate()
    assert len(place.logs()) == 30
    assert len(place.others()) <= 1
    for number in (0, after, 29):
        assert lines_of(place.logs()[number]) == place.texts(number, 40_000)
    finished(start(place.job()))
    assert all(is_packed(path) for path in place.logs())
    assert place.others() == []
    assert lines_of(place.logs()[after]) == place.texts(after, 40_000)
