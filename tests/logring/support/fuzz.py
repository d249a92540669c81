"""Damage rings and log files in every way, and read them with every reader.

``python -m tests.logring.support.fuzz SECONDS [SEED]`` does this for a while, as does `make fuzz`. A mutant with a
defect is left in a directory, whose name is printed with the seed of the mutant.
"""

import contextlib
import faulthandler
import io
import itertools
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from logring.__main__ import main as look_into
from logring.errors import Corrupt, LogError
from logring.layout import PACKED_BLOCKS_AT, PAGE
from logring.log_search import Pattern, SearchLimits, search
from logring.logfile.compress import SUFFIX, compress
from logring.logfile.leftover_ring import save_leftover_ring
from logring.reader import Line, LogReader
from logring.redraw.history_format import read_frames
from tests.logring.support.mutations import Mutant, mutant
from tests.logring.support.specimens import FRAMES, KINDS, RUN_FRAMES, Place, Specimen, specimen
from tests.support.host_features import HAS_RE2

MEMORY_BYTES = 256 << 20
"""Limits on reading a specimen of 100 KB, whatever sizes it claims."""
_READS = 20_000
_WATCHDOG_S = 60
_ANCHORS = (0, 1, -1, -10, 10**6, -(10**6), 2**63, -(2**63), 2**64)
_LIMIT = 50


class Defect(AssertionError):
    """The result of reading a mutant differs from the documentation."""


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Make allocations beyond MEMORY_BYTES raise MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def bounded_reading() -> Iterator[None]:
    """Limit the number of reads from the disk; steps are counted, not seconds."""
    count = itertools.count()
    pread = os.pread

    def counting(fd: int, size: int, at: int) -> bytes:
        if next(count) > _READS:
            raise Defect("reads the file without an end")
        return pread(fd, size, at)

    os.pread = counting
    try:
        yield
    finally:
        os.pread = pread


def examine(directory: str, original: Specimen, changed: Mutant, *, thorough: bool) -> None:
    """Read a mutant, whose files are in `directory`, in every way.

    Raises:
        Defect: the result differs from the documentation.
        Exception: any error that is not documented.
    """
    ring, file = (os.path.join(directory, part) for part in ("ring", "file"))
    with bounded_reading():
        lines = _documented(lambda: _walk(_reader(original, directory)))
        _compare(original, changed, lines)
        if not thorough:
            return
        for method in (_heads, _blocks, _searches, _times):
            _documented(lambda method=method: method(_reader(original, directory)))  # type: ignore[misc]
        if FRAMES in original.parts:
            _documented(lambda: _histories(os.path.join(directory, FRAMES), changed))
        for part in set(original.parts) - {FRAMES}:
            for command in ("dump", "check", "tail"):
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    look_into([command, os.path.join(directory, part)])
    if "ring" not in original.parts:
        _packing(original, directory, file, lines)
    else:
        _rescue(original, directory, ring, file)


def _reader(original: Specimen, directory: str) -> LogReader:
    ring = os.path.join(directory, "ring") if "ring" in original.parts else None
    return LogReader(ring, os.path.join(directory, "file"))


def _documented(action: Callable[[], dict[int, Line] | None]) -> dict[int, Line] | None:
    try:
        return action()
    except (LogError, OSError):
        return None


def _walk(reader: LogReader) -> dict[int, Line]:
    """Return all readable lines, page by page, across gaps and damage."""
    by_number: dict[int, Line] = {}
    with contextlib.closing(reader):
        head = reader.head()
        position = head.first_available
        if not 0 <= position <= head.lines:
            raise Defect(f"first available {position} of {head.lines}")
        for _pages in range(10_000):
            if position >= head.lines:
                return by_number
            newest = reader.newest(position, _LIMIT, 1 << 16) or []
            if [line.n for line in newest] != list(range(position, position + len(newest))):
                raise Defect(f"the newest lines from {position} on are {newest}")
            try:
                page = reader.read(position, _LIMIT)
            except Corrupt as err:
                if err.first is None or err.next is None or not position < err.next <= head.lines:
                    raise Defect(f"damage at {position} of {head.lines}: from {err.first} to {err.next}") from err
                position = err.next
                continue
            numbers = [line.n for line in page.lines]
            if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
                raise Defect(f"a page has lines {numbers}")
            start = numbers[0] if numbers else page.next
            if page.skipped != start - position or page.next != start + len(numbers) or page.next <= position:
                raise Defect(f"asked for {position}, got {numbers}, {page.skipped} skipped, next {page.next}")
            by_number |= {line.n: line for line in page.lines}
            position = page.next
    raise Defect("pages without end")


def _compare(original: Specimen, changed: Mutant, lines_read: dict[int, Line] | None) -> None:
    """Check that all lines of undamaged blocks are present and right."""
    page = PACKED_BLOCKS_AT if original.name.startswith("packed") else PAGE
    if changed.repaired or any(part != FRAMES and start < page for part, start, _end in changed.touched):
        return
    cut = {part for part, data in changed.parts.items() if len(data) < len(original.parts[part])}
    if "ring" in cut:
        if lines_read is not None:
            raise Defect("a ring that is cut short is read")
        return
    whole = [place for place in original.places if not _is_touched(place, changed)]
    for place in whole:
        for number in range(place.first_line, place.end_line):
            if number in original.lines and (lines_read is None or lines_read.get(number) != original.lines[number]):
                raise Defect(
                    f"line {number} is not {original.lines[number]!r}, but {lines_read and lines_read.get(number)!r}"
                )
    if lines_read is not None and "ring" not in original.parts and original.name.startswith(("sealed", "packed")):
        for number, line in lines_read.items():
            if line != original.lines.get(number):
                raise Defect(f"line {number} of a sealed file is {line!r}")


def _is_touched(place: Place, changed: Mutant) -> bool:
    return any(part == place.part and start < place.end and end > place.begin for part, start, end in changed.touched)


def _heads(reader: LogReader) -> None:
    with contextlib.closing(reader):
        head = reader.head()
        for anchor in _ANCHORS:
            line = reader.resolve(anchor)
            if not head.first_available <= line <= head.lines:
                raise Defect(f"anchor {anchor} is line {line}")
            with contextlib.suppress(Corrupt):
                reader.read(line, 3)
                reader.read(anchor, 3, max_bytes=1)
        reader.region()
        for pending in reader.pending():
            if pending.stream not in (0, 1) or len(pending.text) > 16384:
                raise Defect(f"pending {pending}")


def _blocks(reader: LogReader) -> None:
    with contextlib.closing(reader):
        lines = reader.head().lines
        for start in (0, lines // 2, lines):
            for count, block in enumerate(reader.blocks(start)):
                if count > 1000:
                    raise Defect("blocks without end")
                if not isinstance(block, LogError):
                    block.contradiction()
            for count, extent in enumerate(reader.extents(start=start)):
                if count > 1000:
                    raise Defect("extents without end")
                if not isinstance(extent, LogError) and extent.size < 0:
                    raise Defect(f"{extent}")
        for _piece in reader.raw():
            pass


def _searches(reader: LogReader) -> None:
    with contextlib.closing(reader):
        lines = reader.head().lines
        for pattern in (Pattern("line 1"), Pattern("[0-9]*7$" if HAS_RE2 else "7", regex=HAS_RE2)):
            start = 0
            for _calls in range(10_000):
                result = search(reader, pattern, start, limits=SearchLimits(20, 8192))
                if result.exhausted:
                    break
                if result.next <= start:
                    raise Defect(f"search from {start} of {lines} goes on at {result.next}")
                start = result.next
            else:
                raise Defect("search without end")


def _times(reader: LogReader) -> None:
    with contextlib.closing(reader):
        head = reader.head()
        for ms in (-(2**63), 0, 1_700_000_000_100, 1_700_000_000_400, 2**63):
            line = reader.line_at(ms)
            if not head.first_available <= line <= head.lines:
                raise Defect(f"time {ms} is line {line}")


def _rescue(original: Specimen, directory: str, ring: str, file: str) -> None:
    """Save the ring as after a crash, and check that the file alone is readable."""
    try:
        count = save_leftover_ring(ring, file)
    except (LogError, OSError):
        if not os.path.exists(ring):
            raise Defect("the ring could not be saved, and is gone") from None
        return
    if os.path.exists(ring):
        raise Defect("the ring was saved, and is still there")
    if count:
        _documented(lambda: _walk(_reader(original, directory)))


def _histories(path: str, changed: Mutant) -> None:
    """Check that frames are right or absent."""
    for line in (*range(0, 250, 7), 2**63, 2**64 - 1):
        frames = [tuple(rows) for rows in read_frames(path, line)]
        if frames and not changed.repaired and tuple(frames) != RUN_FRAMES.get(line):
            raise Defect(f"line {line} had {frames}")


def _packing(original: Specimen, directory: str, file: str, lines: dict[int, Line] | None) -> None:
    """Check that compressing a damaged file loses no further line."""
    try:
        packed = compress(file)
    except (LogError, OSError):
        packed = False
    if _documented(lambda: _walk(_reader(original, directory))) != lines:
        raise Defect(f"other lines after compressing ({packed})")
    if os.path.exists(file + SUFFIX):
        raise Defect("compressing left a file")


def fuzz_one(directory: str, rng: random.Random, specimens: list[Specimen], others: list[Specimen]) -> None:
    """Make one mutant of one of the specimens, perhaps with a part of one of the others, and examine it."""
    original = rng.choice(specimens)
    changed = mutant(rng, original, rng.choice(others))
    for part in ("ring", "file", FRAMES):
        path = os.path.join(directory, part)
        if part in changed.parts:
            original.write(directory, part, changed.parts[part])
        elif os.path.exists(path):
            os.unlink(path)
    try:
        examine(directory, original, changed, thorough=True)
    except BaseException:
        for part, data in changed.parts.items():  # restored, because the examination may have rescued the ring
            original.write(directory, part, data)
        raise


def main() -> int:
    """Fuzz until the time runs out or a defect is found."""
    seconds = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4))
    specimens = [specimen(kind) for kind in KINDS]
    directory = tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    end = time.monotonic() + seconds
    count = 0
    with bounded_memory():
        for count in itertools.count():
            if time.monotonic() > end:
                break
            faulthandler.dump_traceback_later(_WATCHDOG_S, exit=True)
            try:
                fuzz_one(directory, random.Random(seed + count), specimens, specimens)
            except Exception:
                print(f"found by seed {seed + count}; see {directory}", flush=True)
                raise
    faulthandler.cancel_dump_traceback_later()
    for name in os.listdir(directory):
        os.unlink(os.path.join(directory, name))
    os.rmdir(directory)
    print(f"{count} mutants from seed {seed} on: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
