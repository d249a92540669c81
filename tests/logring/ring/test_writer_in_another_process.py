"""A writer in another process: readers never see torn data, and its death loses nothing published."""

import itertools
import random
from pathlib import Path

import pytest

from logring.layout import STDERR, STDOUT
from logring.logfile.leftover_ring import save_leftover_ring
from logring.reader import Line, LogReader, Page
from tests.logring.support.rings import Joiner, child_writer, numbered, read_all
from tests.support.waiting import until


@pytest.mark.parametrize(("blocks", "block_size"), [(1, 8192), (2, 8192), (8, 65536)])
def test_reader_beside_a_writer_at_full_speed(tmp_path: Path, blocks: int, block_size: int) -> None:
    """A reader gets every line exactly once, in order and unchanged, from the first byte to the sealed file."""
    ring, log = str(tmp_path / "r.ring"), str(tmp_path / "d" / "r.log")
    with child_writer(ring, log, 40_000, blocks, blocks, block_size, 1 << 14) as child:
        reader = LogReader(ring, log)
        joiner = Joiner()

        def read_on() -> bool:
            while True:
                sealed = reader.head().sealed
                page = reader.read(joiner.next_line, 5000)
                assert page.skipped == 0
                joiner.add(page.lines)
                reader.pending()
                if not page.lines:
                    return sealed

        until(read_on, "the sealed log")
        assert child.wait() == 0
        joiner.end()
        assert reader.head().lines == joiner.next_line
        reader.close()
        again = Joiner()
        reader = LogReader(ring, log)
        again.add(read_all(reader))
        again.end()
        reader.close()


@pytest.mark.parametrize("file_blocks", [1, 3])
def test_slow_reader_beside_a_writer_that_drops(tmp_path: Path, file_blocks: int) -> None:
    """If blocks are dropped before a reader gets them, it learns which lines are missing; the others are right."""
    ring, log = str(tmp_path / "r.ring"), str(tmp_path / "r.log")
    with child_writer(ring, log, 40_000, file_blocks, 2, 4096, file_blocks) as child:
        reader = LogReader(ring, log)
        position = skipped = 0
        newest = {STDOUT: -1, STDERR: -1}

        def read_on() -> bool:
            nonlocal position, skipped
            head = reader.head()
            check_numbers(reader.read(head.first_available, 50), head.first_available)
            page = reader.read(position, 50)
            check_numbers(page, position)
            for line, after in itertools.pairwise(page.lines):
                if not line.continued and not after.continued and 0 < len(line.text) < 100:
                    number = int(line.text.partition(b":")[0])
                    assert line.text == numbered(number)
                    assert number > newest[line.stream]
                    newest[line.stream] = number
            position, skipped = page.next, skipped + page.skipped
            return head.sealed and not page.lines

        until(read_on, "the sealed log")
        assert child.wait() == 0
        assert skipped > 0
        reader.close()


def check_numbers(page: Page[Line], start: int) -> None:
    first = start + page.skipped
    assert [line.n for line in page.lines] == list(range(first, first + len(page.lines)))


@pytest.mark.parametrize("seed", range(12))
def test_killed_writer(tmp_path: Path, seed: int) -> None:
    """After SIGKILL at any moment, everything that a reader could see is in the file, even unfinished lines."""
    rng = random.Random(seed)
    ring, log = str(tmp_path / "r.ring"), str(tmp_path / "r.log")
    blocks, block_size = rng.choice([(1, 4096), (2, 8192), (4, 65536)])
    with child_writer(ring, log, 0, seed, blocks, block_size, 1 << 14) as child:
        reader = LogReader(ring, log)
        goal = rng.choice([1, 100, 3000, 20_000]) + rng.randrange(300)
        until(lambda: reader.head().lines >= goal, f"{goal} lines")
        seen = reader.head().lines
        pending = reader.pending()
        child.kill()
        child.wait()
        last_head = reader.head()
        assert last_head.lines >= seen
        last = reader.read(last_head.lines - 1, 1).lines[0]
        lines = save_leftover_ring(ring, log)
        assert lines is not None
        assert last_head.lines <= lines <= last_head.lines + 2
        assert reader.head().sealed
        assert reader.read(last_head.lines - 1, 1).lines == [last]
        joiner = Joiner()
        lines_read = read_all(reader)
        joiner.add(lines_read)
        joiner.end(torn=True)
        assert joiner.next_line == lines
        raw = b"".join(reader.raw())
        assert all(part.text in raw for part in pending)
        reader.close()


@pytest.mark.parametrize("seed", range(8))
def test_killed_at_the_end(tmp_path: Path, seed: int) -> None:
    """A writer that is killed while it seals, writes out or unlinks leaves a log that can be saved whole."""
    rng = random.Random(seed)
    ring, log = str(tmp_path / "r.ring"), str(tmp_path / "r.log")
    with child_writer(ring, log, 300, seed, 2, 8192, 1 << 14) as child:
        reader = LogReader(ring, log)
        until(lambda: reader.head().lines >= 290 or child.poll() is not None, "nearly the end")
        for _ in range(rng.randrange(3000)):
            reader.head()
        child.kill()
        child.wait()
        before = reader.head()
        lines = save_leftover_ring(ring, log)
        assert lines is None or lines >= before.lines
        head = reader.head()
        assert head.sealed
        joiner = Joiner()
        joiner.add(read_all(reader))
        joiner.end(torn=True)
        assert joiner.next_line == head.lines >= before.lines
        reader.close()
