"""The single steps of the pump, without its thread."""

import errno
import fcntl
import os
import select
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
from supervisor.ipc.doorbell import PRE_WAKE, DoorbellClient, DoorbellServer
from supervisor.root.output import pump_thread as pump
from supervisor.root.output.disk_space import DiskSpace
from supervisor.root.output.file_thread import FileThread
from supervisor.root.output.pump_thread import Pump, Trickle
from supervisor.root.output.run_log import Backpressure, RunLog, shape_of
from supervisor.root.output.run_pipes import capacity
from tests.root.pump_bench import LINE, PumpBench, RecordedReports
from tests.scheduler.fake_clock import Steps
from tests.support.waiting import until


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PumpBench]:
    harness = PumpBench(tmp_path)
    yield harness
    harness.close()


def test_full_ring_stops_both_pipes(bench: PumpBench) -> None:
    """If the ring is full, neither pipe is read until the log file has taken blocks; then both are read in full."""
    total = round_bytes = 0
    while not bench.stalled():
        total += bench.fill(bench.out, bench.err)
        round_bytes += bench.read()
    assert bench.read() == 0
    while round_bytes < total:
        bench.write_files()
        bench.obey()
        assert not bench.stalled()
        round_bytes += bench.read()
    assert bench.seal() == LINE * (total // len(LINE))


@pytest.mark.parametrize("stalled", [False, True])
def test_rest_of_an_ended_run(bench: PumpBench, stalled: bool) -> None:
    """The pipes of an ended run are read to their end, even if the ring was full until then."""
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
    assert bench.reports.ended == ["R"]
    assert len(bench.seal()) == total
    bench.out, bench.err = (os.open(os.devnull, os.O_WRONLY) for _ in range(2))


def test_hangup_of_a_closed_pipe(bench: PumpBench) -> None:
    """A hangup of a pipe that a command has closed does not close another run's pipe with the same number."""
    pump, number = bench.pump, next(source.fd for source in bench.log.sources if source.stream == STDOUT)
    os.close(bench.out)  # the pump gets this hangup

    def begin_another() -> None:
        """Start a run while the pump carries out commands, as the control thread may."""
        ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        ours, bench.out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, number + 1) for end in ends)
        for end in ends:
            os.close(end)
        os.dup2(ours, number, inheritable=False)
        os.close(ours)
        pump._add(replace(bench.spawn, run="S"), number, None, None)

    pump.drain("R")
    pump._queue(begin_another)
    pump.round()
    assert bench.reports.ended == ["R"]
    os.write(bench.out, b"a line")


def test_pre_wake_precedes_the_bell(bench: PumpBench, tmp_path: Path) -> None:
    """A pre-wake is sent before the pipe is read, the bell after the line is in the ring; an end has no pre-wake."""
    client = DoorbellClient(str(tmp_path / "bell"), "token")
    assert client.connect() is not None
    fd = until(bench.bell.accept, "a connection").fileno()
    until(lambda: bench.bell.readable(fd, bench.clock.monotonic_s()) and bench.bell._readers[fd].trusted, "the token")
    client.subscribe("R")
    assert bench.bell.readable(fd, bench.clock.monotonic_s())
    os.write(bench.out, LINE)
    assert bench.read() == len(LINE)
    assert [client.receive(), client.receive()] == [[f"{PRE_WAKE}R"], ["R"]]
    os.close(bench.out)
    bench.clock.advance(0.002)
    bench.pump.round()
    assert client.receive() == ["R"]
    client.close()
    bench.out = os.open(os.devnull, os.O_WRONLY)


def test_output_that_trickles_is_read_every_2_ms() -> None:
    """After some short rounds in close succession, the pump pauses; a long round or much output ends the pauses."""
    trickle = Trickle()
    assert not any(trickle.pause_s(20, 0.001) for _ in range(10))
    assert trickle.pause_s(0, 0.0005) == 0  # a bell counts for nothing
    assert [trickle.pause_s(20, 0.001) for _ in range(10)][-1] == 0.002
    assert trickle.pause_s(0, 0.0005) == 0
    assert trickle.pause_s(40, 0.0001) == 0.002
    for bytes_read, took_s in ((20, 0.003), (5000, 0.001)):
        assert trickle.pause_s(bytes_read, took_s) == 0
        assert trickle.pause_s(20, 0.001) == 0
        assert [trickle.pause_s(20, 0.001) for _ in range(20)][-1] > 0


def test_pipe_enlarged_by_its_run(bench: PumpBench) -> None:
    """A pipe that its run has made larger than the pump would keeps its size."""
    fcntl.fcntl(bench.out, fcntl.F_SETPIPE_SZ, 1 << 20)
    total = bench.fill(bench.out)
    assert bench.read() > 0
    assert fcntl.fcntl(bench.out, fcntl.F_GETPIPE_SZ) == 1 << 20
    while bench.read():
        bench.write_files()
        bench.obey()
    assert len(bench.seal()) == total


def test_pipes_of_busy_runs_are_enlarged(bench: PumpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipes with much output are enlarged to 256 KiB, up to a limit of such pipes."""
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


def test_pipe_cannot_be_enlarged(bench: PumpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the user's limit forbids a larger pipe, the pipe keeps its size and is read as before."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    total = bench.fill(bench.out)
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "fcntl", refuse)
        round_bytes = bench.read()
    while round_bytes < total:
        round_bytes += bench.read()
    assert bench.seal() == LINE * (total // len(LINE))


def test_room_made_during_the_stall(bench: PumpBench) -> None:
    """The pump is woken even if the file thread makes room at the very moment the pump stalls."""
    while not bench.stalled():
        bench.fill(bench.out)
        bench.read()
    bench.log.stalled = False  # the file thread looks before the pump reports that it waits
    bench.write_files()
    bench.log.stalled = True
    bench.files.enqueue(bench.log)
    bench.write_files()
    bench.obey()
    assert not bench.stalled()


def test_drain_keeps_all_output(bench: PumpBench) -> None:
    """A short read because of a nearly full block does not count as an empty pipe: all output is in the log."""
    total = os.write(bench.out, LINE)
    bench.read()
    head = bench.log.writer.blocks.head
    while head.limit - head.at < BLOCK_SIZE - 1000 or head.limit - head.fill > 12_000:
        total += os.write(bench.out, LINE * 80)
        bench.read()
    assert head.limit - head.fill > 4000
    total += bench.fill(bench.out, bench.err)
    bench.pump.drain("R")
    bench.obey()
    assert bench.reports.ended == ["R"]
    assert bench.seal() == LINE * (total // len(LINE))


@pytest.mark.parametrize("hangs_up", [False, True])
def test_end_waits_for_no_file(bench: PumpBench, hangs_up: bool) -> None:
    """If the ring of an ended run is full, its log is complete at once, and the file follows without any loss.

    The pipes are closed by a command, or because no process has them open any more.
    """
    total = 0
    while not bench.stalled():
        total += bench.fill(bench.out, bench.err)
        bench.read()
    total += bench.fill(bench.out, bench.err)
    if hangs_up:
        os.close(bench.out)
        os.close(bench.err)
        bench.read()
        bench.out, bench.err = (os.open(os.devnull, os.O_WRONLY) for _ in range(2))
    else:
        bench.pump.drain("R")
        bench.obey()
    assert bench.reports.ended == ["R"]
    bench.pump.seal("R", ["the end"])
    bench.obey()
    assert bench.reports.lines == [("R", total // len(LINE) + 1)]
    bench.write_files()
    assert bench.log.finished
    reader = LogReader(None, bench.log_path)
    assert (reader.head().lines, reader.head().dropped) == (total // len(LINE) + 1, 0)
    assert b"".join(reader.raw()) == LINE * (total // len(LINE))
    assert reader.read(total // len(LINE), 1).lines[0].text == b"the end"
    reader.close()
    bench.obey()
    assert not bench.pump._backpressure.since_s


def test_shutdown_with_a_log_that_cannot_be_written(bench: PumpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a shutdown, the ring of an ended run says how much output in memory is lost with the process."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(log_file, "pwritev", refuse)
    total = 0
    while not bench.stalled():
        total += bench.fill(bench.out)
        bench.read()
    bench.pump.drain("R")
    bench.pump.seal("R", [])
    bench.obey()
    bench.write_files()
    bench.files.hold(bench.files._finish)
    bench.write_files()
    reader = LogReader(bench.ring_path, None)
    head = reader.head()
    assert (head.sealed, head.lines) == (True, total // len(LINE) + 1)
    notice = reader.read(head.lines - 1, 1).lines[0].text.decode()
    lost = f"{head.dropped} lines ({head.dropped * len(LINE)} bytes) dropped"
    assert notice == f"{lost}: the daemon ended before the log file could be written"
    reader.close()


def test_rings_without_a_place(bench: PumpBench, tmp_path: Path) -> None:
    """Without a runtime directory, a run's lines go to its log file; its ring gets a place when there is one."""
    missing = tmp_path / "missing"
    bench.pump.move(str(missing))
    bench.pump._by_run.clear()
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    bench.pump.add(replace(bench.spawn, run="R2"), reading, None)
    bench.obey()
    os.write(writing, b"line\n")
    bench.read()
    reason = f"{missing}/R2.ring: No such file or directory"
    assert bench.reports.news == [("daemon", "waiting", reason)]
    bench.tick()
    reader = LogReader(ring_path(str(missing), "R2"), bench.log_path)
    assert [line.text for line in reader.read(0, 9).lines] == [b"line"]
    before = bench.pump.rings_have_place_again
    missing.mkdir()
    assert (before, bench.pump.rings_have_place_again) == (False, True)
    assert bench.pump.make_rings_again() == 1
    assert reader.head().lines == 1
    assert reader.has_ring
    assert bench.reports.news[1:] == [("daemon", "ok", None)]
    reader.close()
    os.close(writing)
    bench.ring_path = ring_path(str(missing), "R2")


def test_drain_of_an_endless_writer(bench: PumpBench) -> None:
    """The pipe of a process that never stops writing is read once more and then closed."""
    append = bench.log.writer.append

    def refill(stream: int, data: bytes, now_ms: int) -> None:
        append(stream, data, now_ms)
        bench.fill(bench.out)

    bench.fill(bench.out)
    bench.log.writer.append = refill  # type: ignore[method-assign]
    bench.pump.drain("R")
    bench.obey()
    assert bench.reports.ended == ["R"]


def test_log_that_delays_its_run(bench: PumpBench) -> None:
    """A run that waits for its log is reported after 5 s, and again when the log accepts data."""
    while not bench.stalled():
        bench.fill(bench.out)
        bench.read()
    pump = Steps(bench.clock, bench.pump.round)
    pump.let_pass(4.9)
    assert bench.reports.news == []
    pump.let_pass(0.1)
    assert bench.reports.news == [("R", "waiting", "its log file accepts no data")]
    pump.let_pass(60)
    bench.steps.run()
    assert bench.reports.news[1:] == [("R", "ok", None)]


def test_full_disk_delays_no_run(bench: PumpBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits for its full ring continues as soon as the disk is known to be full."""
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
    assert bench.reports.news == [("R", "dropping", "No space left on device")]
    assert bench.log.writer.blocks.dropped > 0
    bench.tick()
    bench.fill(bench.out)
    bench.read()
    assert bench.reports.news[1:] == [("R", "ok", None)]


@pytest.mark.parametrize(("printed", "silent"), [(b"", ["R"]), (b"x", [])])
def test_silent_run_has_no_log(tmp_path: Path, printed: bytes, silent: list[str]) -> None:
    """A run without output has neither writer nor ring, does not involve the file thread, and ends as silent."""
    bench = PumpBench(tmp_path)
    os.write(bench.out, printed)
    os.close(bench.out)
    os.close(bench.err)
    while not bench.reports.ended:
        bench.pump.round()
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


def test_stdout_precedes_stderr(tmp_path: Path) -> None:
    """If both pipes have output at first, standard output is read first, in every run."""
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
            bench.pump.round()
        reader = LogReader(ring_path(str(tmp_path), run), None)
        assert [line.text for line in reader.read(0, 2).lines] == [b"output", b"error"], run
        reader.close()
    bench.bell.close()


def test_hangup_with_the_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        bench.pump.round()
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
    *((FileThread, name) for name in ("enqueue", "changed")),
    *((RecordedReports, name) for name in ("at_end", "sealed", "wake")),
    (DoorbellServer, "ring"),
    (Backpressure, "judge"),
)
STEP_OF_FILES = FileThread, "_write"


def test_no_memory_for_a_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A step that fails for lack of memory is repeated: no line is lost, no end sent twice; the pump reports it."""
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
            harness = PumpBench(directory)
            os.write(harness.out, LINE * 3)
            harness.steps.run()
            os.close(harness.out)
            os.close(harness.err)
            harness.steps.run()
            harness.pump.seal("R", ["the end"])
            harness.steps.run()
        assert failed, name
        assert (harness.reports.ended, harness.reports.lines) == (["R"], [("R", 4)]), name
        assert harness.reports.short == ((owner, name) != STEP_OF_FILES), name
        assert harness.log.finished
        reader = LogReader(harness.ring_path, harness.log_path)
        assert b"".join(reader.raw()) == LINE * 3, name
        reader.close()
        harness.bell.close()


def test_unfinished_block_after_a_failure(bench: PumpBench, capfd: pytest.CaptureFixture[str]) -> None:
    """Lines that could not be written to the file are written once it accepts data, even if no more follow."""
    logs = Path(bench.log_path).parent
    logs.write_text("a file where the directory should be")
    os.write(bench.out, LINE)
    bench.read()
    for _ in range(3):
        bench.tick()
    errors = capfd.readouterr().err
    assert errors.count("cannot write the log file") == 1
    assert "can be written again" not in errors
    logs.unlink()
    bench.tick()
    assert "can be written again" in capfd.readouterr().err
    assert LINE in Path(bench.log_path).read_bytes()


@pytest.mark.parametrize(
    ("free", "inodes", "min_free", "message"),
    [
        (256 << 20, 50, None, None),
        ((256 << 20) - 4096, 50, None, "only 255 MiB are free on the disk"),
        (256 << 20, 49, None, "only 49 inodes are free on the disk"),
        (99 << 20, 1000, 100 << 20, "only 99 MiB are free on the disk"),
        (100 << 20, 1000, 100 << 20, None),
        (0, 0, 0, None),
    ],
)
def test_reserve_of_disk_space(
    monkeypatch: pytest.MonkeyPatch, free: int, inodes: int, min_free: int | None, message: str | None
) -> None:
    """The default reserve is 256 MiB of a large disk and some inodes; a reserve of 0 is none."""
    filesystem = os.statvfs_result((4096, 4096, 1 << 30, free // 4096, free // 4096, 1000, inodes, inodes, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: filesystem)
    assert DiskSpace("/", min_free).shortage() == message


def test_free_space_has_hysteresis(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a shortage, logs grow again only when a tenth more than the reserve is free."""
    free = 99

    def statvfs(_: str) -> os.statvfs_result:
        return os.statvfs_result((4096, 1 << 20, 10_000, free, free, 0, 0, 0, 0, 255))

    monkeypatch.setattr(os, "statvfs", statvfs)
    room = DiskSpace("/", 100 << 20)
    assert room.shortage() is not None
    free = 109
    assert room.shortage() is not None
    free = 110
    assert room.shortage() is None
    free = 100
    assert room.shortage() is None


def test_shape_of_a_log() -> None:
    """Large logs have large blocks, unless many logs share little memory."""
    assert shape_of(100 << 20, 1 << 30) == (400, 16, 262144)
    assert shape_of(100 << 20, 1 << 21) == (400, 8, 262144)
    assert shape_of(100 << 20, 1 << 19) == (1600, 8, 65536)
    assert shape_of(512 << 10, 1 << 30) == (8, 8, 65536)
    assert shape_of(0, 0) == (2, 8, 65536)


def test_helper_pipe_held_by_another_process(bench: PumpBench) -> None:
    """A closed pipe causes no more events, even while the trial of an upgrade has a copy of it.

    Such an event would end the next run that prints into a pipe with that number.
    """
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    bench.pump.add_helper(reading)
    bench.obey()
    copy = os.dup(reading)
    os.close(writing)
    bench.pump._read_helper(reading)
    assert reading not in dict(bench.pump._epoll.poll(0))
    os.close(copy)
