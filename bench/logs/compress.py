"""Gain and cost of compression: `python -m bench.logs.compress`.

The first table shows ratio and speed for some kinds of logs, at several levels. The second one compares a log of many
lines (`--lines`, 10,000,000), plain and compressed: a page from its middle, opened anew each time, and a search without
a match. All files are in the page cache, and figures are medians of `--rounds`.
"""

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from bench.logs.search import CASES, SHARED_MEMORY, make, ours
from logring.layout import STDOUT, RingShape
from logring.logfile.compress import LEVEL, compress
from logring.logfile.log_file import LogFileWriter
from logring.reader import LogReader
from logring.ring.writer import RingWriter

LEVELS = (1, LEVEL, 5, 6, 9)
PAGE_BAR_MS = 2.0
PAGES = 200
FILE_BLOCKS = 1 << 12


def numbers() -> Iterator[bytes]:
    n = 0
    while True:
        yield b"%d\n" % n
        n += 1


def access_log() -> Iterator[bytes]:
    rng = random.Random(1)
    while True:
        yield (
            b'10.0.%d.%d - - [21/Nov/2026:03:%02d:%02d +0000] "GET /api/items/%d HTTP/1.1" %d %d "-" "curl/8.5.0"\n'
            % (
                *(rng.randrange(255), rng.randrange(255), rng.randrange(60), rng.randrange(60), rng.randrange(100_000)),
                *(rng.choice((200, 200, 200, 304, 404)), rng.randrange(50_000)),
            )
        )


def json_lines() -> Iterator[bytes]:
    rng = random.Random(2)
    while True:
        yield b'{"ts":"2026-11-21T03:04:%02d.%03dZ","level":"info","msg":"processed","item":"%016x","ms":%d}\n' % (
            *(rng.randrange(60), rng.randrange(1000), rng.getrandbits(64), rng.randrange(900)),
        )


def build_log() -> Iterator[bytes]:
    rng = random.Random(3)
    while True:
        name = rng.choice((b"main", b"tx", b"rx", b"ethtool", b"phy", b"ring"))
        yield b"  CC [M]  drivers/net/ethernet/%s/%s%d.o\n" % (rng.choice((b"intel", b"mlx5")), name, rng.randrange(40))


KINDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "numbers": numbers,
    "access log": access_log,
    "JSON lines": json_lines,
    "build output": build_log,
}


def write(path: str, shared: str, lines: Iterator[bytes], size: int) -> None:
    """Write a sealed log of about `size` bytes, ten lines a read."""
    writer = RingWriter.new(f"{shared}/kind.ring", "BENCH", RingShape(FILE_BLOCKS))
    log = LogFileWriter(path, writer, FILE_BLOCKS)
    written = 0
    for ms in range(1_700_000_000_000, 1 << 62):
        data = b"".join(next(lines) for _ in range(10))
        written += len(data)
        writer.append(STDOUT, data, ms)
        while not writer.complete_waiting():
            log.write_closed()
        log.write_closed()
        if written >= size:
            writer.seal(ms)
            break
    log.finish()
    writer.close()


def kinds(disk: str, shared: str, size: int) -> None:
    print(f"{'ratio, MB/s at level':<22}" + "".join(f"{level:>16}" for level in LEVELS))
    for name, lines in KINDS.items():
        path, copy = f"{disk}/kind.log", f"{disk}/copy.log"
        write(path, shared, lines(), size)
        before = os.path.getsize(path)
        cells = []
        for level in LEVELS:
            shutil.copy(path, copy)
            start_s = time.perf_counter()
            assert compress(copy, level)
            cells.append(f"{before / os.path.getsize(copy):.1f}, {before / (time.perf_counter() - start_s) / 1e6:.0f}")
        print(f"{name:<22}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
        os.unlink(path)


def page_ms(path: str, lines: int, limit: int) -> float:
    """Return the median time to open the log and read a page from its middle."""
    taken = []
    for number in range(PAGES):
        start_s = time.perf_counter()
        reader = LogReader(None, path)
        found = reader.read(lines // 2 + number * 997, limit)
        reader.close()
        taken.append(time.perf_counter() - start_s)
        assert len(found.lines) == limit
    return statistics.median(taken) * 1000


def large(disk: str, shared: str, lines: int, rounds: int) -> None:
    text, plain = make(disk, shared, lines)
    size = os.path.getsize(text)
    packed = f"{disk}/packed.log"
    shutil.copy(plain, packed)
    start_s = time.perf_counter()
    assert compress(packed)
    taken_s = time.perf_counter() - start_s
    ratio = os.path.getsize(plain) / os.path.getsize(packed)
    print(f"\n{lines:,} lines, {size / 1e6:.0f} MB, packed at {size / taken_s / 1e6:.0f} MB/s to 1/{ratio:.1f}")
    print(f"\n{'':<34}{'plain':>10}{'packed':>10}{'bar':>16}")
    for limit in (100, 1000):
        one, other = (page_ms(path, lines, limit) for path in (plain, packed))
        bar = f"{PAGE_BAR_MS} ms {'ok' if other <= PAGE_BAR_MS else 'MISSED'}"
        print(f"{f'page of {limit} from the middle, ms':<34}{one:>10.2f}{other:>10.2f}{bar:>16}")
    for case in (case for case in CASES if not case.what.endswith(("line", "lines", "them"))):
        pairs = [(ours(plain, case)[0], ours(packed, case)[0]) for _ in range(rounds)]
        one, other = (size / statistics.median(pair[side] for pair in pairs) / 1e6 for side in (0, 1))
        print(f"{f'search, {case.what}, MB/s':<34.34}{one:>10.0f}{other:>10.0f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--mb", type=int, default=30, help="size of each kind of log (30)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default="/var/tmp")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=args.dir) as disk,
        tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as shared,
    ):
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        kinds(disk, shared, args.mb * 1_000_000)
        large(disk, shared, args.lines, args.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
