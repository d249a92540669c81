"""Readers that follow a growing log."""

from collections.abc import Callable
from pathlib import Path

from logring.errors import LogError
from logring.follower import LogFollower, follow
from logring.layout import STDOUT
from logring.reader import LogReader
from tests.logring.support.rings import T0, Joiner, Log, child_writer, texts

MakeLog = Callable[..., Log]


def test_follow_until_the_seal(make_log: MakeLog) -> None:
    """Each line arrives once, from before the log exists to its end; the follower decides how to wait."""
    log = make_log(file_blocks=1000)
    printed = [b"%06d" % number for number in range(9000)]
    steps = iter(range(0, 10_000, 1000))

    def go_on() -> None:
        start = next(steps)
        if start == 9000:
            log.finish(T0 + start)
        else:
            log.feed(STDOUT, b"".join(line + b"\n" for line in printed[start : start + 1000]), T0 + start)

    all_texts: list[bytes] = []
    for page in follow(log.reader, 0, go_on, limit=300):
        assert page.skipped == 0
        assert 0 < len(page.lines) <= 300
        all_texts += texts(page.lines)
    assert all_texts == printed


def test_dropped_lines(make_log: MakeLog) -> None:
    """A follower that is too slow gets the number of lines it missed."""
    log = make_log(file_blocks=2, blocks=2)
    log.feed(STDOUT, b"".join(b"%06d\n" % number for number in range(9000)))
    log.finish()
    missed = seen = 0
    for page in follow(log.reader, 0):
        missed += page.skipped
        seen += len(page.lines)
    assert missed > 0
    assert missed + seen == 9000


def test_damaged_block_is_skipped(make_log: MakeLog) -> None:
    """A damaged block costs its own lines, not those after it."""
    log = make_log()
    log.feed(STDOUT, b"".join(b"%06d\n" % number for number in range(9000)))
    log.finish()
    with open(log.log_path, "r+b") as file:
        file.seek(4096 + 8192 + 1000)
        file.write(b"X")
    log.reader = log.open_reader()
    pages = list(follow(log.reader, 0))
    seen = [line.n for page in pages for line in page.lines]
    assert sum(page.skipped for page in pages) + len(seen) == 9000
    assert 1000 < 9000 - len(seen) < 1200
    assert seen[-1] == 8999


def test_follow_another_process(tmp_path: Path) -> None:
    """A follower that only polls gets all lines of another process until its seal."""
    ring, path = str(tmp_path / "r"), str(tmp_path / "l")
    joiner = Joiner()
    reader = LogReader(ring, path)
    with child_writer(ring, path, 5000, 1, 4, 8192, 1000) as child:
        for page in follow(reader, 0):
            assert page.skipped == 0
            joiner.add(page.lines)
        assert child.wait() == 0
    joiner.end()
    reader.close()


def test_damaged_block_after_removed_lines(make_log: MakeLog) -> None:
    """If the first kept block is damaged, its lines and the removed ones before it are skipped together."""
    log = make_log(file_blocks=4, blocks=2)
    log.feed(STDOUT, b"".join(b"%06d\n" % number for number in range(9000)))
    log.finish()
    first = next(block for block in log.open_reader().blocks() if not isinstance(block, LogError))
    with open(log.log_path, "r+b") as file:
        content = file.read()
        file.seek(content.index(first.text) + 1000)
        file.write(b"X")
    follower = LogFollower(log.open_reader())
    page = follower.read_batches(100, 1 << 16)
    assert page is not None
    assert (page.lines, page.skipped, page.damage != "") == ([], first.header.end_line, True)
    assert follower.line == first.header.end_line
    page = follower.read_batches(100, 1 << 16)
    assert page is not None
    assert (page.lines[0].n, page.skipped) == (first.header.end_line, 0)
