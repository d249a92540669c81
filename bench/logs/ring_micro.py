"""Speed from a pipe into a ring and its log file, in units of ``... | cat > file``.

All are measured in turn in the same run, on the same disk. The table shows medians, the ratio of the times, and the
ratio of the CPU times. With fewer cores than threads (program, pump, file thread), the first ratio cannot be better
than the second. "bare" goes the same way, from the pipe to mapped memory in one thread and to the file in another,
without lines, times, checksums and readers. The ratio to "bare" is the cost of these. Run it with ``python -m
bench.logs.ring_micro [--rounds N] [--dir DIRECTORY]``; the directory must be on a disk.
"""

import argparse
import itertools
import mmap
import os
import queue
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from logring.layout import RingShape
from logring.logfile.log_file import LogFileWriter
from logring.reader import LogReader
from logring.ring.writer import RingWriter
from supervisor.root.output.run_log import shape_of
from supervisor.root.output.run_pipes import widen

SHARED_MEMORY = "/dev/shm"
SHAPE = shape_of(1 << 30, 1 << 30)
READ_BYTES = 131072
PRINT = "import sys; w = sys.stdout.write\nfor i in range(2_000_000): w(f'{i:0199d}\\n')"
WIDE = f"import os; b = {b'x' * 199 + bytes([10])!r} * 320\nfor i in range(6250): os.write(1, b)"
# Command, lines, bar. The last one is the fastest possible source: it shows the cost, but no program is like it.
SOURCES: dict[str, tuple[list[str], int, str]] = {
    "seq 1 10000000": (["seq", "1", "10000000"], 10_000_000, "1.5"),
    "400 MB printed": ([sys.executable, "-I", "-S", "-c", PRINT], 2_000_000, "1.1"),
    "400 MB in 64 KB writes": ([sys.executable, "-I", "-S", "-c", WIDE], 2_000_000, "-"),
}


def cpu_s() -> float:
    """Return the CPU time of this process and its children so far."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def cat(argv: list[str], path: str) -> float:
    with open(path, "wb") as out:
        start = time.perf_counter()
        source = subprocess.Popen(argv, stdout=subprocess.PIPE)
        sink = subprocess.Popen(["cat"], stdin=source.stdout, stdout=out)
        assert source.stdout is not None
        source.stdout.close()
        assert source.wait() == 0
        assert sink.wait() == 0
        return time.perf_counter() - start


class FileThread(threading.Thread):
    """Write closed blocks, and wake the pump when a slot is free again."""

    def __init__(self, log: LogFileWriter) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.work = threading.Event()
        self.ended = False
        self.wake = os.eventfd(0, os.EFD_NONBLOCK)

    def run(self) -> None:
        while not self.ended:
            self.work.wait()
            self.work.clear()
            if self.log.write_closed():
                os.eventfd_write(self.wake, 1)


def ring(argv: list[str], ring_path: str, log_path: str) -> float:
    start = time.perf_counter()
    source = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert source.stdout is not None
    fd = source.stdout.fileno()
    os.set_blocking(fd, False)
    writer = RingWriter.new(ring_path, "BENCH", SHAPE._replace(file_blocks=1 << 12))
    log = LogFileWriter(log_path, writer, 1 << 12)
    files = FileThread(log)
    files.start()
    poll = select.epoll()
    poll.register(files.wake, select.EPOLLIN)
    poll.register(fd, select.EPOLLIN)
    listening = True
    live = True
    while live:
        for ready, _ in poll.poll():
            if ready == files.wake:
                os.eventfd_read(files.wake)
                if not listening and writer.writable:
                    poll.register(fd, select.EPOLLIN)
                    listening = True
                continue
            total = 0
            now_ms = time.time_ns() // 1_000_000
            while total < READ_BYTES and writer.writable:
                try:
                    count = writer.readv(fd, 0, now_ms)
                except BlockingIOError:
                    break
                if not count:
                    live = False
                    break
                total += count
                if count >= READ_BYTES // 4:
                    widen(fd)
                if count < READ_BYTES // 8:  # most likely the end of the pipe; a check costs as much as the next round
                    break
            if writer.wants_writing and not files.work.is_set():
                files.work.set()
            if listening and not writer.writable:
                poll.unregister(fd)
                listening = False
                os.eventfd_write(files.wake, 1)  # check again: the file thread may have been faster
        writer.mirror_pending()
    writer.seal(time.time_ns() // 1_000_000)
    files.ended = True
    files.work.set()
    files.join()
    log.finish()
    assert source.wait() == 0
    elapsed = time.perf_counter() - start
    writer.close()
    os.close(files.wake)
    return elapsed


def bare(argv: list[str], log_path: str) -> float:
    """Measure the bare way, without the parts of a log."""
    start = time.perf_counter()
    source = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert source.stdout is not None
    fd = source.stdout.fileno()
    os.set_blocking(fd, False)
    free = threading.Semaphore(SHAPE.ring_blocks)
    blocks: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()

    def write() -> None:
        with open(log_path, "wb", buffering=0) as file:
            while (block := blocks.get()) is not None:
                file.write(block)
                free.release()

    files = threading.Thread(target=write)
    files.start()
    poll = select.epoll()
    poll.register(fd, select.EPOLLIN)
    slots = itertools.cycle(range(SHAPE.ring_blocks))
    memory = memoryview(mmap.mmap(-1, SHAPE.ring_blocks * SHAPE.block_size))
    live = True
    while live:
        free.acquire()
        at = next(slots) * SHAPE.block_size
        fill, end = at, at + SHAPE.block_size
        while live and fill < end:
            poll.poll()
            count = os.readv(fd, [memory[fill:end][:READ_BYTES]])
            live = count > 0
            fill += count
            if count >= READ_BYTES // 4:
                widen(fd)
        blocks.put(memory[at:fill])
    blocks.put(None)
    files.join()
    assert source.wait() == 0
    return time.perf_counter() - start


def page_ms(ring_path: str, log_path: str, expected: int) -> float:
    """Return the milliseconds for a page of 1,000 lines from the middle, with a new reader."""
    took = []
    for _ in range(20):
        start = time.perf_counter()
        reader = LogReader(ring_path, log_path)
        page = reader.read(expected // 2, 1000)
        took.append(time.perf_counter() - start)
        assert len(page.lines) == 1000
        assert reader.head().lines == expected
        reader.close()
    return statistics.median(took) * 1000


def raw_rate(ring_path: str, log_path: str) -> float:
    """Return the MB/s of reading everything."""
    reader = LogReader(ring_path, log_path)
    start = time.perf_counter()
    size = sum(map(len, reader.raw()))
    elapsed = time.perf_counter() - start
    reader.close()
    return size / elapsed / 1e6


def append_rate(ring_path: str) -> float:
    """Return the lines a second with one read a line."""
    reading, writing = os.pipe()
    writer = RingWriter.new(ring_path, "BENCH", RingShape(0))
    count = 200_000
    start = time.perf_counter()
    for number in range(count):
        os.write(writing, b"a line that was written by itself\n")
        writer.readv(reading, 0, 1_700_000_000_000 + number // 100)
    elapsed = time.perf_counter() - start
    writer.close()
    os.unlink(ring_path)
    os.close(reading)
    os.close(writing)
    return count / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dir", default="/var/tmp")
    args = parser.parse_args()
    print("source                    cat > file        bare  ring + log   ratio  to bare", end="")
    print("  CPU ratio   bar  page ms  raw MB/s")
    with (
        tempfile.TemporaryDirectory(dir=args.dir) as disk,
        tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as shared,
    ):
        plain, log_path, ring_path = f"{disk}/plain", f"{disk}/run.log", f"{shared}/run.ring"
        for name, (argv, lines, bar) in SOURCES.items():
            cats, bares, rings, cat_cpu, ring_cpu = [], [], [], 0.0, 0.0
            for _ in range(args.rounds):
                _remove(log_path)
                start = cpu_s()
                cats.append(cat(argv, plain))
                cat_cpu += cpu_s() - start
                _remove(plain)
                bares.append(bare(argv, plain))
                _remove(plain)
                start = cpu_s()
                rings.append(ring(argv, ring_path, log_path))
                ring_cpu += cpu_s() - start
            one, least, other = map(statistics.median, (cats, bares, rings))
            print(
                f"{name:<24}{one:>10.3f} s{least:>10.3f} s{other:>10.3f} s{other / one:>8.2f}{other / least:>9.2f}"
                f"{ring_cpu / cat_cpu:>11.2f}{bar:>6}"
                f"{page_ms(ring_path, log_path, lines):>9.2f}{raw_rate(ring_path, log_path):>10.0f}"
            )
        print(f"one line at a time: {append_rate(ring_path):,.0f} lines/s (bar 150,000)")


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


if __name__ == "__main__":
    main()
