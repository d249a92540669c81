"""The pump's steps, one by one, without its thread."""

import errno
import fcntl
import os
import select
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logring.layout import BLOCK_SIZE, STDOUT
from logring.log_paths import ring_path
from logring.logfile import log_file
from logring.reader import LogReader
from logring.ring.writer import RingWriter
from supervisor.ipc.doorbell import HERALD, DoorbellClient, DoorbellServer
from supervisor.root.output import file_thread
from supervisor.root.output import pump_thread as pump
from supervisor.root.output.disk_space import DiskSpace
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.pump_thread import Pump, capacity
from supervisor.root.output.run_log import Backpressure, RunLog, shape_of
from tests.root.pump_bench import LINE, PumpBench, RecordedReports
from tests.support.waiting import until


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PumpBench]:
    one = PumpBench(tmp_path)
    yield one
    one.close()


def test_a_full_ring_stops_both_pipes(bench: PumpBench) -> None:
    """When the ring is full, neither pipe is read until the log file has taken blocks; then both are, in full."""
    total = taken = 0
    while not bench.stalled():
        total += bench.fill(bench.out, bench.err)
        taken += bench.read()
    assert bench.read() == 0
    while taken < total:
        bench.write_files()
        bench.obey()
        assert not bench.stalled()
        taken += bench.read()
    assert bench.seal() == LINE * (total // len(LINE))


@pytest.mark.parametrize("stalled", [False, True])
def test_the_rest_of_who_has_ended(bench: PumpBench, stalled: bool) -> None:
    """Much may be left in the pipes, up to their end, also when the ring has only now room for it again."""
    for pipe in (bench.out, bench.err):
        os.set_blocking(pipe, False)
    total = 0
    while stalled and not bench.stalled():
        total += bench.fill(bench.out)
        bench.read()
    total += bench.fill(bench.out, bench.err)
    os.close(bench.out)
    os.close(bench.err)
    bench.pump.drain("R")
    bench.obey()
    while bench.log.sources:
        assert bench.stalled()
        bench.write_files()
        bench.obey()
    assert bench.reports.ended == ["R"]
    assert len(bench.seal()) == total
    bench.out, bench.err = (os.open(os.devnull, os.O_WRONLY) for _ in range(2))


def test_a_hang_up_of_a_pipe_that_a_command_has_closed(bench: PumpBench) -> None:
    """A pipe of another run may have its number by then; it is not closed for that."""
    pump, number = bench.pump, next(one.fd for one in bench.log.sources if one.stream == STDOUT)
    os.close(bench.out)  # of this the pump hears

    def begin_another() -> None:
        """As the control thread may, which starts runs while the pump carries out commands."""
        ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        ours, bench.out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, number + 1) for end in ends)
        for end in ends:
            os.close(end)
        os.dup2(ours, number, inheritable=False)
        os.close(ours)
        pump._add(replace(bench.spawn, run="S"), number, None, None)

    pump.drain("R")
    pump._do(begin_another)
    pump._round()
    assert bench.reports.ended == ["R"]
    os.write(bench.out, b"a line")


def test_who_follows_a_quiet_log_wakes_while_it_is_read(bench: PumpBench, tmp_path: Path) -> None:
    """A herald goes out before the pipe is read, the bell after the line is in the ring; an end has no herald."""
    client = DoorbellClient(str(tmp_path / "bell"), "token")
    client._sock.settimeout(30)
    fd = until(bench.bell.accept, "a connection").fileno()
    until(lambda: bench.bell.readable(fd) and bench.bell._readers[fd].trusted, "the token")
    client.subscribe("R")
    assert bench.bell.readable(fd)
    bench.pump.wakeup.clear()
    os.write(bench.out, LINE)
    assert bench.pump._round() == len(LINE)
    assert [client.receive(), client.receive()] == [[f"{HERALD}R"], ["R"]]
    os.close(bench.out)
    bench.bell._readers[fd].next_s = 0.0
    bench.pump._round()
    assert client.receive() == ["R"]
    client.close()
    bench.out = os.open(os.devnull, os.O_WRONLY)


def test_a_run_that_makes_its_pipe_hold_more(bench: PumpBench) -> None:
    """It may hold more than we would let it; then it cannot be made to hold less (EBUSY), and is not to be."""
    fcntl.fcntl(bench.out, fcntl.F_SETPIPE_SZ, 1 << 20)
    total = bench.fill(bench.out)
    assert bench.read() > 0
    assert fcntl.fcntl(bench.out, fcntl.F_GETPIPE_SZ) == 1 << 20
    while bench.read():
        bench.write_files()
        bench.obey()
    assert len(bench.seal()) == total


def test_pipes_of_busy_runs_hold_more(bench: PumpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What brings much is made to hold 256 KiB, as long as there are not too many such pipes."""
    monkeypatch.setattr(pump, "_WIDE_PIPES", 1)
    usual = capacity(bench.out)
    os.write(bench.out, LINE)
    bench.read()
    assert capacity(bench.out) == usual
    while capacity(bench.out) != 262144:
        bench.fill(bench.out)
        assert bench.read()
    bench.fill(bench.err)
    bench.read()
    assert capacity(bench.err) == usual
    os.close(bench.out)
    bench.read()
    bench.fill(bench.err)
    bench.read()
    assert capacity(bench.err) == 262144
    bench.out = os.open(os.devnull, os.O_WRONLY)


def test_a_user_whose_pipes_may_hold_no_more(bench: PumpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe stays as it is, and is read as before."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    total = bench.fill(bench.out)
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "fcntl", refuse)
        taken = bench.read()
    while taken < total:
        taken += bench.read()
    assert bench.seal() == LINE * (total // len(LINE))


def test_room_that_was_made_before_the_stall_counts(bench: PumpBench) -> None:
    """A pump that stalls in the very moment in which the file thread makes room is woken nevertheless."""
    while not bench.stalled():
        bench.fill(bench.out)
        bench.read()
    bench.log.stalled = False  # the file thread looks before the pump has said that it waits
    bench.write_files()
    bench.log.stalled = True
    bench.files.work(bench.log)
    bench.write_files()
    bench.obey()
    assert not bench.stalled()


def test_cutting_off_keeps_what_the_pipes_hold(bench: PumpBench) -> None:
    """A short read, because a block is nearly full, is no empty pipe: everything that was written is in the log."""
    total = os.write(bench.out, LINE)
    bench.read()
    head = bench.log.writer._head
    while head.limit - head.at < BLOCK_SIZE - 1000 or head.limit - head.fill > 12_000:
        total += os.write(bench.out, LINE * 80)
        bench.read()
    assert head.limit - head.fill > 4000
    total += bench.fill(bench.out, bench.err)
    bench.pump.drain("R")
    bench.obey()
    assert bench.reports.ended == ["R"]
    assert bench.seal() == LINE * (total // len(LINE))


def test_cutting_off_waits_for_a_full_ring(bench: PumpBench) -> None:
    """Pipes that are to be closed while the ring is full are read to their end when it has room."""
    total = 0
    while not bench.stalled():
        total += bench.fill(bench.out, bench.err)
        bench.read()
    bench.pump.drain("R")
    bench.obey()
    assert bench.reports.ended == []
    while not bench.reports.ended:
        bench.write_files()
        bench.obey()
    assert bench.seal() == LINE * (total // len(LINE))
    assert bench.reports.lines == [("R", total // len(LINE))]


def test_cutting_off_a_writer_without_end(bench: PumpBench) -> None:
    """Who goes on writing is read once more and then closed."""
    read = bench.log.writer.readv

    def refill(fd: int, stream: int, now_ms: int) -> int:
        size = read(fd, stream, now_ms)
        bench.fill(bench.out)
        return size

    bench.fill(bench.out)
    bench.log.writer.readv = refill  # type: ignore[method-assign]
    bench.pump.drain("R")
    bench.obey()
    assert bench.reports.ended == ["R"]


def test_a_log_that_makes_its_run_wait(bench: PumpBench) -> None:
    """A run that waits for its log is reported after 5 s, and again when the log accepts data."""
    begin_s = time.monotonic()
    while not bench.stalled():
        bench.fill(bench.out)
        bench.read()
    trouble = bench.pump._backpressure
    due_s = trouble.due_s()
    assert due_s is not None
    assert begin_s + 5.0 <= due_s <= time.monotonic() + 5.0
    assert trouble.slow(due_s - 0.1) == []
    assert trouble.judge(bench.log, due_s - 0.1) is None
    assert trouble.slow(due_s) == [bench.log]
    assert trouble.judge(bench.log, due_s) == ("waiting", "its log file accepts no data")
    assert (trouble.slow(due_s), trouble.due_s()) == ([], None)
    bench.write_files()
    bench.obey()
    bench.pump._publish()
    assert bench.reports.news == [("R", "ok", None)]


def test_a_full_disk_makes_nobody_wait(bench: PumpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits because its ring is full goes on as soon as it is known that the disk is full."""
    while not bench.stalled():
        bench.fill(bench.out)
        bench.read()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log_file, "pwritev", full)
        bench.write_files()
        bench.obey()
        assert not bench.stalled()
        bench.fill(bench.out)
        assert bench.read() > 0
        bench.pump._publish()
    assert bench.reports.news == [("R", "dropping", "No space left on device")]
    assert bench.log.writer.dropped > 0
    bench.files._tick()
    bench.fill(bench.out)
    bench.read()
    bench.pump._publish()
    assert bench.reports.news[1:] == [("R", "ok", None)]


@pytest.mark.parametrize(("printed", "silent"), [(b"", ["R"]), (b"x", [])])
def test_a_run_that_prints_nothing_costs_no_log(tmp_path: Path, printed: bytes, silent: list[str]) -> None:
    """It has neither writer nor ring, the file thread hears nothing of it, and its end says so."""
    bench = PumpBench(tmp_path)
    os.write(bench.out, printed)
    os.close(bench.out)
    os.close(bench.err)
    while not bench.reports.ended:
        bench.pump._round()
    assert (bench.reports.silent, bench.log.silent) == (silent, bool(silent))
    assert os.path.exists(bench.ring_path) == (not silent)
    if silent:
        bench.pump.forget("R")
        bench.obey()
        assert (bench.log.finished, "R" in bench.pump._by_run) == (True, False)
        assert not bench.files._changed
        assert bench.files._queue.empty()
    else:
        assert bench.seal() == printed
    bench.bell.close()


def test_what_stands_in_both_pipes_at_first(tmp_path: Path) -> None:
    """Standard output comes first then, in every run."""
    bench = PumpBench(tmp_path)
    spawn = bench.spawn
    for run in "ABCDEFGH":
        pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(2)]
        for text, (_, end) in zip((b"error\n", b"output\n"), reversed(pipes), strict=True):
            os.write(end, text)
            os.close(end)
        out, err = (ours for ours, _ in pipes)
        bench.pump.add(replace(spawn, run=run, log=f"{tmp_path}/logs/{run}.log"), out, err)
        bench.obey()
        log = bench.pump._by_run[run]
        while log.sources:
            bench.pump._round()
        reader = LogReader(ring_path(str(tmp_path), run), None)
        assert [line.text for line in reader.read(0, 2).lines] == [b"output", b"error"], run
        reader.close()
    bench.bell.close()


def test_a_pipe_that_hangs_up_with_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that arrive together with a hangup are read, although epoll does not report them."""
    bench = PumpBench(tmp_path)

    class Hasty:
        register, unregister = bench.pump._epoll.register, bench.pump._epoll.unregister

        def poll(self, _timeout_s: float) -> list[tuple[int, int]]:
            return [(fd, select.EPOLLHUP) for fd in bench.pump._by_fd]

    monkeypatch.setattr(bench.pump, "_epoll", Hasty())
    os.write(bench.out, LINE)
    os.close(bench.out)
    os.close(bench.err)
    while not bench.reports.ended:
        bench.pump._round()
    assert not bench.reports.silent
    assert bench.seal() == LINE
    bench.bell.close()


STEPS = (
    (RunLog, "save_held"),
    (Pump, "_writer"),
    *(
        (RingWriter, name)
        for name in ("readv", "finish_stream", "mirror_pending", "seal", "complete_waiting", "system_line")
    ),
    *((FileThread, name) for name in ("work", "changed")),
    *((RecordedReports, name) for name in ("at_end", "sealed", "wake")),
    (DoorbellServer, "ring"),
    (Backpressure, "judge"),
)
STEP_OF_FILES = FileThread, "_write"


def test_no_memory_for_a_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What pump and file thread have none for, they do again: no line is lost, no end told twice; the pump says so."""
    for module in (pump, file_thread):
        monkeypatch.setattr(module, "REST_S", 0)
    for number, (owner, name) in enumerate((*STEPS, STEP_OF_FILES)):
        step = getattr(owner, name)
        failed: list[bool] = []

        def fail_once(*arguments: Any, step: Any = step, failed: list[bool] = failed, **named: Any) -> Any:
            if not failed:
                failed.append(True)
                raise MemoryError
            return step(*arguments, **named)

        directory = tmp_path / str(number)
        directory.mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail_once)
            one = PumpBench(directory, start=True)
            os.write(one.out, LINE * 3)
            until(lambda one=one: not one.log.silent and one.log.writer.lines == 3, "the lines")  # type: ignore[misc]
            os.close(one.out)
            os.close(one.err)
            until(lambda one=one: one.reports.ended, "the end of the pipes")  # type: ignore[misc]
            one.pump.seal("R", ["the end"])
            until(lambda one=one: one.reports.lines, "the end of the log")  # type: ignore[misc]
            one.pump.finish(60)
            one.files.start()
            assert one.files.finish(60)
        assert failed, name
        assert (one.reports.ended, one.reports.lines) == (["R"], [("R", 4)]), name
        assert one.reports.short == ((owner, name) != STEP_OF_FILES), name
        assert one.log.finished
        reader = LogReader(one.ring_path, one.log_path)
        assert b"".join(reader.raw()) == LINE * 3, name
        reader.close()
        one.bell.close()


@pytest.mark.parametrize(
    ("free", "inodes", "min_free", "said"),
    [
        (256 << 20, 50, None, None),
        ((256 << 20) - 4096, 50, None, "only 255 MiB are free on the disk"),
        (256 << 20, 49, None, "only 49 inodes are free on the disk"),
        (99 << 20, 1000, 100 << 20, "only 99 MiB are free on the disk"),
        (100 << 20, 1000, 100 << 20, None),
        (0, 0, 0, None),
    ],
)
def test_room_on_the_disk(
    monkeypatch: pytest.MonkeyPatch, free: int, inodes: int, min_free: int | None, said: str | None
) -> None:
    """The default reserve is 256 MiB of a large disk; inodes count; 0 is no reserve."""
    found = os.statvfs_result((4096, 4096, 1 << 30, free // 4096, free // 4096, 1000, inodes, inodes, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    assert DiskSpace("/", min_free).shortage() == said


def test_room_that_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once short, logs grow again when a tenth more than the reserve is free: no flapping."""
    free = 99

    def found(_: str) -> os.statvfs_result:
        return os.statvfs_result((4096, 1 << 20, 10_000, free, free, 0, 0, 0, 0, 255))

    monkeypatch.setattr(os, "statvfs", found)
    room = DiskSpace("/", 100 << 20)
    assert room.shortage() is not None
    free = 109
    assert room.shortage() is not None
    free = 110
    assert room.shortage() is None
    free = 100
    assert room.shortage() is None


def test_the_shape_of_a_log() -> None:
    """The blocks of large logs are large, unless many share little memory."""
    assert shape_of(100 << 20, 1 << 30) == (400, 16, 262144)
    assert shape_of(100 << 20, 1 << 21) == (400, 8, 262144)
    assert shape_of(100 << 20, 1 << 19) == (1600, 8, 65536)
    assert shape_of(512 << 10, 1 << 30) == (8, 8, 65536)
    assert shape_of(0, 0) == (2, 8, 65536)


def test_the_end_of_a_helper_whose_pipe_another_process_has(bench: PumpBench) -> None:
    """A closed pipe brings no more events, not even while the trial of an upgrade has a copy of it.

    They would end the next run that prints into a pipe of that number.
    """
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    bench.pump.add_helper(reading)
    bench.obey()
    copy = os.dup(reading)
    os.close(writing)
    bench.pump._read_helper(reading)
    assert reading not in dict(bench.pump._epoll.poll(0))
    os.close(copy)
