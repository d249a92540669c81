"""A writer process, which puts numbered lines through pipes into a ring, with a file thread.

``python -m tests.logring.support.child RING LOG LINES SEED BLOCKS BLOCK_SIZE FILE_BLOCKS``; with LINES 0 it never ends.
"""

import itertools
import os
import random
import sys
import threading

from logring.layout import STDERR, STDOUT, RingShape
from logring.logfile.log_file import LogFileWriter
from logring.ring.writer import RingWriter
from tests.logring.support.rings import T0, numbered


def main() -> None:
    ring, log = sys.argv[1:3]
    count, seed, blocks, block_size, file_blocks = map(int, sys.argv[3:])
    rng = random.Random(seed)
    writer = RingWriter.new(ring, "01ARZ3NDEKTSV4RRFFQ69G5FAV", RingShape(file_blocks, blocks, block_size))
    file = LogFileWriter(log, writer, file_blocks)
    work, free, ending = threading.Event(), threading.Event(), threading.Event()

    def write_files() -> None:
        turns = 0
        while not ending.is_set():
            work.wait()
            work.clear()
            file.write_closed()
            turns += 1
            if turns % 8 == 0:
                file.write_unfinished()
            free.set()

    thread = threading.Thread(target=write_files, daemon=True)
    thread.start()
    pipes = {stream: os.pipe() for stream in (STDOUT, STDERR)}
    for reading, _ in pipes.values():
        os.set_blocking(reading, False)
    waiting = {STDOUT: b"", STDERR: b""}
    now_ms = T0
    for number in itertools.count() if not count else range(count):
        stream = number % 2
        waiting[stream] += numbered(number) + b"\n"
        now_ms += rng.randrange(5) == 0
        if rng.randrange(4):
            continue
        size = rng.choice((1, 10, 100, 1000, 30000))
        chunk, waiting[stream] = waiting[stream][:size], waiting[stream][size:]
        pump(writer, pipes[stream], stream, chunk, now_ms, work, free)
        writer.mirror_pending()
    for stream in (STDOUT, STDERR):
        pump(writer, pipes[stream], stream, waiting[stream], now_ms, work, free)
    writer.seal(now_ms)
    ending.set()
    work.set()
    thread.join()
    file.finish()


def pump(
    writer: RingWriter,
    pipe: tuple[int, int],
    stream: int,
    data: bytes,
    now_ms: int,
    work: threading.Event,
    free: threading.Event,
) -> None:
    reading, writing = pipe
    while data:
        data = data[os.write(writing, data[:60000]) :]
        while True:
            if writer.blocks.closed_blocks > writer.blocks.written_blocks:
                work.set()
            while not writer.writable:
                work.set()
                free.wait()
                free.clear()
            try:
                writer.readv(reading, stream, now_ms)
            except BlockingIOError:
                if writer.writable:
                    break


if __name__ == "__main__":
    main()
