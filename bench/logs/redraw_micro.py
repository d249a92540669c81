"""Speed of the redraw reducer in MB/s, and relative to plain lines, which cost a search for newlines.

A chunk is one read: 64 KiB from a pipe, 4 KiB from a terminal. Run it with ``python -m bench.logs.redraw_micro``.
"""

import statistics
import time
from collections.abc import Callable

from logring.lines import newlines
from logring.redraw.reducer import Redraw

PIPE, TERMINAL = 65536, 4096
ROUNDS = 9
CHUNKS = 256


def bar(number: int) -> bytes:
    done = "█" * (number % 10) + " " * (10 - number % 10)
    return f"\r {number % 100:2d}%|{done}| {number}/99999 [00:01<00:02, 31234.56it/s]".encode()


def block(number: int) -> bytes:
    row = b"\x1b[2K\x1b[32m*\x1b[0m layer %d: [==========>          ] %d MB/s\n"
    return b"\x1b[4A" + b"".join(row % (index, number) for index in range(4))


# Name, whether from a terminal, text, bar in MB/s.
KINDS: dict[str, tuple[bool, Callable[[int], bytes], str]] = {
    "plain lines": (False, lambda number: b"%079d\n" % number, "3000"),
    "lines ending in CRLF": (False, lambda number: b"%078d\r\n" % number, "-"),
    "progress bar": (False, bar, "1000"),
    "short frames": (False, lambda number: b"\r%3d%%" % (number % 100), "1000"),
    "a bar on each line": (False, lambda number: b" 50%%\r100%% of %050d\n" % number, "-"),
    "terminal: plain lines": (True, lambda number: b"%079d\n" % number, "100"),
    "terminal: coloured lines": (True, lambda number: b"\x1b[32minfo\x1b[0m %060d\n" % number, "30"),
    "terminal: progress bar": (True, bar, "-"),
    "terminal: short frames": (True, lambda number: b"\r%3d%%" % (number % 100), "-"),
    "terminal: block of rows": (True, block, "-"),
}


def chunks_of(make: Callable[[int], bytes], size: int) -> list[bytes]:
    text = bytearray()
    number = 0
    while len(text) < 16 * size:
        text += make(number)
        number += 1
    return [bytes(text[at : at + size]) for at in range(0, 16 * size, size)]


def seconds(work: Callable[[bytes], object], chunks: list[bytes]) -> float:
    """Return the median of rounds over the same number of chunks."""
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CHUNKS // len(chunks)):
            for chunk in chunks:
                work(chunk)
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def count(chunk: bytes) -> int:
    return chunk.rfind(b"\n") + newlines(chunk, False)


def main() -> None:
    print("what                         us per chunk      MB/s   bar   x counting newlines")
    for name, (full, make, target) in KINDS.items():
        size = TERMINAL if full else PIPE
        chunks = chunks_of(make, size)
        reducer = Redraw(full=full)
        reduce_s, count_s = seconds(reducer.feed, chunks), seconds(count, chunks)
        print(
            f"{name:<28}{reduce_s / CHUNKS * 1e6:>13.1f}{size * CHUNKS / reduce_s / 1e6:>10.0f}{target:>6}"
            f"{reduce_s / count_s:>22.1f}"
        )


if __name__ == "__main__":
    main()
