"""Runs whose end or output is delayed: real processes on a clock that the test sets."""

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from logring.logfile import log_file
from logring.reader import LogReader
from supervisor.root.process import process_tree
from supervisor.root.process.transitions import ALIVE
from tests.root.stepped_root import SteppedRoot
from tests.support.host_features import largest_file
from tests.support.waiting import until, until_environment


@pytest.fixture
def root(tmp_path: Path) -> Iterator[SteppedRoot]:
    stepped = SteppedRoot(tmp_path)
    yield stepped
    stepped.close()


@pytest.fixture
def leftover(root: SteppedRoot) -> Iterator[str]:
    """A process that outlives the main process of its run, and is a child of the root then."""
    process = root.start("echo ready; exec sleep 1000")
    with subprocess.Popen(["sleep", "1000"], env={"RINGWARD_DAEMON": "D", "RINGWARD_RUN_ID": "R"}) as child:
        until_environment(child)
        os.kill(process.main.pid, signal.SIGTERM)
        root.until(lambda: process.state not in ALIVE, "the exit")
        yield f"sleep ({child.pid})"
        child.kill()


def test_leftovers_may_end_by_themselves(root: SteppedRoot, leftover: str) -> None:
    """Processes that outlive the main process are killed after a quarter of a second, and the log names them."""
    root.let_pass(0.249)
    assert root.live["R"].outcome.leftovers == {}
    root.let_pass(0.001)
    assert root.ended()["leftovers"] == [leftover]
    assert root.lines()[1:] == [f"killed processes that outlived the main process: {leftover}"]


def test_run_ends_without_an_unkillable_process(
    root: SteppedRoot, leftover: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run waits 10 s for killed processes to end. It then ends without them, and the log names them."""
    monkeypatch.setattr(root.control._trees, "kill", lambda _process: None)
    root.let_pass(0.25 + 9.99)
    assert root.report() is None
    root.let_pass(0.11)
    assert "leftovers" not in root.ended()
    assert root.lines()[1:] == [f"still there 10 s after SIGKILL (uninterruptible?): {leftover}"]


def test_run_ends_without_a_process_of_another_user(
    root: SteppedRoot, leftover: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the root may not signal a process that outlives its run, the log says so."""
    monkeypatch.setattr(process_tree, "send_signal", lambda _process, _number: False)
    root.let_pass(0.25 + 10.1)
    root.ended()
    assert root.lines()[1:] == [f"still there 10 s after SIGKILL (not permitted to signal it): {leftover}"]


def test_stop_of_a_process_of_another_user(root: SteppedRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the root may not signal a run's own process, which is setuid, the log names it apart from hanging ones."""
    process = root.start("sleep 1000 & echo ready; wait", grace_ms=0, stdin_open=False)
    main = process.main.pid
    members = root.control._trees.members
    until(lambda: {member.name for member in members(process).values()} == {"sh", "sleep"}, "the child's command")

    def not_permitted(_group: int, _number: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", not_permitted)
        patch.setattr(process_tree, "send_signal", lambda process, _number: process.pid != main)
        root.ask({"op": "stop", "run": "R", "cause": "stop"})
        root.let_pass(0.1)
        root.let_pass(10)
    (line,) = [line for line in root.lines() if line.startswith("still there")]
    (child,) = [pid for pid in members(process) if pid != main]
    os.killpg(main, signal.SIGKILL)
    assert line == (
        f"still there 10 s after SIGKILL (not permitted to signal it): sh ({main}); (uninterruptible?): sleep ({child})"
    )


def test_run_that_waits_for_its_log(root: SteppedRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose log cannot be written waits, which is reported after 5 s; it continues once the disk works again."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(log_file, "pwritev", refuse)
        root.start("echo ready; seq 1000000; exit 3")
        root.until(lambda: root.pump._by_run["R"].stalled, "the ring to fill")
        root.let_pass(4.9)
        assert states(root) == []
        root.let_pass(0.1)
        assert states(root) == [("waiting", "Input/output error")]
    root.let_pass(1.0)
    assert states(root)[1:] == [("ok", None)]
    report = root.ended()
    assert (report["status"], report["lines"]) == (3 << 8, 1_000_001)


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("ends_by", ["timeout", "stop", "force"])
def test_end_of_a_run_whose_log_is_refused(
    root: SteppedRoot, monkeypatch: pytest.MonkeyPatch, error: int, ends_by: str
) -> None:
    """A run whose log file refuses data is reported as soon as its processes have ended, and its log is complete later.

    What has no room in the ring waits in memory; on a full disk it is dropped, and the log says so.
    """

    def refuse(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    is_full = error in (errno.ENOSPC, errno.EDQUOT)
    with monkeypatch.context() as patch:
        patch.setattr(log_file, "pwritev", refuse)
        limit = {"timeout_ms": 60_000} if ends_by == "timeout" else {}
        root.start("echo ready; seq 1000000; read _", log_max_bytes=1 << 20, grace_ms=3_600_000, **limit)
        log = root.pump._by_run["R"]
        root.until(lambda: log.writer.gap is not None if is_full else log.stalled, "the ring to fill")
        if ends_by == "timeout":
            root.let_pass(60)
        else:
            root.ask({"op": "stop", "run": "R", "cause": "stop", "force": ends_by == "force"})
        report = root.ended()
        root.let_pass(10)
        assert states(root)[-1] == ("waiting", os.strerror(error))
    root.let_pass(1)
    assert log.finished
    assert states(root)[-1] == ("ok", None)
    reader = LogReader(None, root.log_path)
    head, last = reader.head(), reader.read(reader.resolve(-1), 1).lines[0].text.decode()
    reader.close()
    assert head.lines == report["lines"]
    assert (head.dropped > 0) == is_full
    if is_full:
        assert last.endswith(f"dropped: {os.strerror(error)}")


def test_log_below_the_limit_on_the_size_of_files(root: SteppedRoot) -> None:
    """A log is never larger than the limit on the size of files: it keeps its newest lines."""
    with largest_file(1_000_000):
        root.spawn("seq 1000000")
        report = root.ended()
        root.let_pass(1)
    reader = LogReader(None, root.log_path)
    head, last = reader.head(), reader.read(reader.resolve(-1), 1).lines[0].text
    reader.close()
    assert (head.lines, head.dropped, last) == (report["lines"], 0, b"1000000")
    assert 500_000 < os.path.getsize(root.log_path) <= 1_000_000
    assert states(root) == []


def test_logs_at_the_largest_size_of_a_file_system(
    root: SteppedRoot, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Logs that the file system limits are cut, and the lost lines counted; no ring and no descriptor remains."""
    pwritev = log_file.pwritev

    def limited(fd: int, parts: list[bytes], at: int) -> int:
        if at + sum(map(len, parts)) > 100_000:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return pwritev(fd, parts, at)

    monkeypatch.setattr(log_file, "pwritev", limited)
    assert run_many(root, 30) == run_many(root, 1)
    reader = LogReader(None, root.log_path)
    head, kept = reader.head(), reader.read(0, 1_000_000).lines
    reader.close()
    assert head.dropped == head.lines - len(kept) > 0
    assert kept[-1].text.decode() == str(len(kept))
    assert os.path.getsize(root.log_path) <= 100_000
    assert f"R: {head.dropped} lines were dropped at the end of its log" in capfd.readouterr().err


def test_limit_on_the_size_of_files_without_room_for_a_ring(
    root: SteppedRoot, capfd: pytest.CaptureFixture[str]
) -> None:
    """If the limit leaves room for no ring, runs end without a log, and the daemon's log counts their lines."""
    with largest_file(100_000):
        assert run_many(root, 200) == run_many(root, 1)
    assert "R: 30000 lines were dropped at the end of its log" in capfd.readouterr().err


def run_many(root: SteppedRoot, count: int) -> tuple[list[str], int]:
    """Carry out runs that print 30,000 lines; return the rings and the number of descriptors that remain."""
    for _ in range(count):
        root.sent.clear()
        with suppress(FileNotFoundError):
            os.unlink(root.log_path)
        root.spawn("seq 30000", log_max_bytes=1 << 20)
        assert root.ended()["lines"] >= 30_000
        root.ask({"op": "ack", "runs": ["R"]})
        root.let_pass(1)
    return [name for name in os.listdir(root.settings.runtime_dir) if "R" in name], len(os.listdir("/proc/self/fd"))


def states(root: SteppedRoot) -> list[tuple[str, str | None]]:
    """Return the reported states of the run's log, with their reasons."""
    return [(message["state"], message["reason"]) for message in root.sent if message["op"] == "log"]
